"""A stand-in engine with SGLang's command line, log lines and HTTP, which says of itself that it is a rehearsal."""
