"""Reading documents with any model: the driver, likelihoods, and incremental reading."""
