"""A table, or a checkpoint, at another size; and what each way of resizing does to it."""

from posprobe.resizing.checkpoint import copy_place, refuse_source, write_checkpoint
from posprobe.resizing.comparison import WaysCompared, compare, compare_ways
from posprobe.resizing.rotary import RulesCompared, compare_rules
from posprobe.resizing.tables import resize

__all__ = [
    "RulesCompared",
    "WaysCompared",
    "compare",
    "compare_rules",
    "compare_ways",
    "copy_place",
    "refuse_source",
    "resize",
    "write_checkpoint",
]
