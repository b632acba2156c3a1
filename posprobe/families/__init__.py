"""A checkpoint becomes tables of positions: which tensors, which rows, what layout."""

from posprobe.families.find import Encoding, find_encodings
from posprobe.families.read import (
    inspect,
    load,
    load_schemes,
    load_tokens,
    open_reference,
    read_table,
)
from posprobe.families.registry import FAMILIES, Family, TableRule
from posprobe.families.tokens import TokenSample, sample_tokens
from posprobe.families.weights import LayerHeads, load_heads

__all__ = [
    "FAMILIES",
    "Encoding",
    "Family",
    "LayerHeads",
    "TableRule",
    "TokenSample",
    "find_encodings",
    "inspect",
    "load",
    "load_heads",
    "load_schemes",
    "load_tokens",
    "open_reference",
    "read_table",
    "sample_tokens",
]
