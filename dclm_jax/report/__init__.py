"""Reports on runs: results, rows, tables, figures, an HTML page."""
