"""The programs of a run, compiled without the target machine, and their costs."""
