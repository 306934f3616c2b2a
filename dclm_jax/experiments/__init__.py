"""Work with many runs: reports and figures."""
