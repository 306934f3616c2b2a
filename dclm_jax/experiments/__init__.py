"""What handles many runs: sweeps, their jobs, reports and pictures. Nothing below imports it."""
