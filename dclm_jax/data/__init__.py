"""Text -> documents -> ids on disk -> batches."""
