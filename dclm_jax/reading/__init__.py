"""Reading documents with any model: the driver, the likelihoods that come of it, and the reader."""
