"""Programs of a run, compiled for a machine that is not there, and their cost."""
