"""What a person or a scheduler starts: the Prefect flows and the command line."""
