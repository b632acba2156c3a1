"""A table, or a checkpoint, at another size; and what each way of resizing does to it."""
