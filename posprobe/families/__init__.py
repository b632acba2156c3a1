"""A checkpoint becomes tables of positions: which tensors, which rows, what layout."""

from posprobe.families.find import Encoding, find_encodings
from posprobe.families.read import inspect, load, open_reference, read_table
from posprobe.families.registry import FAMILIES, Family, TableRule

__all__ = [
    "FAMILIES",
    "Encoding",
    "Family",
    "TableRule",
    "find_encodings",
    "inspect",
    "load",
    "open_reference",
    "read_table",
]
