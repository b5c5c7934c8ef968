"""A stand-in engine that speaks SGLang's command line, log lines and HTTP, and says of itself that it is a rehearsal."""
