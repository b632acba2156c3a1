"""A table, or a checkpoint, at another size; and what each way of resizing does to it."""

from posprobe.resizing.checkpoint import copy_place, refuse_source, write_checkpoint
from posprobe.resizing.resize import resize

__all__ = ["copy_place", "refuse_source", "resize", "write_checkpoint"]
