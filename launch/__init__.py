"""Commands: options whose fields are flags, and a function."""
