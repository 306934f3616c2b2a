"""Work with many runs: sweeps and their jobs, reports and figures."""
