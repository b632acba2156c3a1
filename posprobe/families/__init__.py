"""A checkpoint becomes tables of positions: which tensors, which rows, what layout."""

from posprobe.families.effective import effective_table, open_model
from posprobe.families.find import Encoding, find_encodings
from posprobe.families.read import (
    choose_table,
    inspect,
    load,
    load_schemes,
    open_reference,
    read_table,
)
from posprobe.families.registry import Family, TableRule, added_families
from posprobe.families.tokens import TokenSample, load_tokens, sample_tokens
from posprobe.families.weights import LayerHeads, load_heads, read_heads

__all__ = [
    "Encoding",
    "Family",
    "LayerHeads",
    "TableRule",
    "TokenSample",
    "added_families",
    "choose_table",
    "effective_table",
    "find_encodings",
    "inspect",
    "load",
    "load_heads",
    "load_schemes",
    "load_tokens",
    "open_model",
    "open_reference",
    "read_heads",
    "read_table",
    "sample_tokens",
]
