"""Commands: flags, a call of the library, and an exit code."""
