"""Training: configuration, optimizer, step, checkpoints, metrics and the loop that ties them."""
