"""Times of training and scoring beside other implementations."""
