"""The judgement: what a search reached, as figures of a true value that no strategy saw."""
