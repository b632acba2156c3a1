"""A table, or a checkpoint, at another size; and what each way of resizing does to it."""

from posprobe.resizing.checkpoint import refuse_source
from posprobe.resizing.resize import resize

__all__ = ["refuse_source", "resize"]
