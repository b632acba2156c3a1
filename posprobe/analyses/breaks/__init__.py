"""Where a table changes: seams, outlier rows, copied rows, the history of training."""
