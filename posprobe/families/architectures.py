"""The registry of architectures and their tables.

Architectures are listed in ``architectures.toml``. To add one, add an entry there: `posprobe list
families` and detection follow from it, and the tests require a tiny model of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from posprobe.data import read_data
from posprobe.readers import load_entry_points

#: Entry points of other packages that name a `Family`.
FAMILY_GROUP = "posprobe.families"

#: Rows at the start of a table that no position selects:
#: ``none``; ``two``: the model adds 2 to every position; ``padding``: positions start at
#: ``padding_idx + 1``, with padding_idx read from the configuration; ``beyond``: as many as the
#: table has rows beyond the configured number of positions.
Reserved: TypeAlias = Literal["none", "two", "padding", "beyond"]

#: Special tokens whose rows come before the patches. ``stored`` stands for the tokens that have an
#: embedding in the checkpoint: all of them or (timm's ``no_embed_class``) none.
Tokens: TypeAlias = tuple[str, ...] | Literal["stored"]


@dataclass(frozen=True)
class TableRule:
    """The tensors of one table of a family, and the rule for its rows.

    Parameters
    ----------
    tensors
        Names, matched after any prefix that ends in a dot (``bert.``, ``model.decoder.``).
    name
        Name in ``#TABLE``, where a family has several tables.
    reserved
        Rule for rows that are not positions.
    grid
        Whether positions are patches of an image.
    tokens
        Special tokens that have rows before the patches of a grid.
    tokens_last
        Whether the rows of special tokens come after the patches.
    fixed
        Whether the model fills the table from a formula; `read_table` checks the values.
    """

    tensors: tuple[str, ...]
    name: str = ""
    reserved: Reserved = "none"
    grid: bool = False
    tokens: Tokens = ()
    tokens_last: bool = False
    fixed: bool = False


@dataclass(frozen=True)
class Family:
    """An architecture and the tables that it learns.

    Parameters
    ----------
    name
        Short name, as printed by `posprobe list families`.
    title
        Common name of the models.
    model_types
        Values of ``model_type`` in a transformers configuration.
    tables
        Rules of the tables that it learns or stores.
    prefixes
        Module names that identify the family without a configuration.
    note
        Description of its rows, in a sentence.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    tables: tuple[TableRule, ...]
    prefixes: tuple[str, ...] = ()
    note: str = "every row is a position"


@dataclass(frozen=True)
class Registry:
    """The content of ``architectures.toml``.

    Parameters
    ----------
    families
        Families in the order of the file.
    unused
        Tensors named like tables of positions that an architecture stores and never reads, by
        ``model_type``.
    computed, computed_layers
        Positions that architectures (by ``model_type``) and layers of Keras compute at run time, so
        that no file holds them.
    """

    families: tuple[Family, ...]
    unused: Mapping[str, tuple[str, ...]]
    computed: Mapping[str, str]
    computed_layers: Mapping[str, str]


@cache
def load_registry() -> Registry:
    """Read ``architectures.toml``, once.

    Raises
    ------
    TypeError
        If an entry has a key that is not a field of its record, or lacks one without a default.
    """
    data = read_data("families/architectures.toml")
    families = tuple(
        _build_family(name, **entry) for name, entry in data["architectures"].items()
    )
    computed = {
        model_type: formula
        for formula, types in data["computed"].items()
        for model_type in types
    }
    return Registry(families, data["unused"], computed, data["computed_layers"])


def _build_family(
    name: str, *, tables: tuple[Mapping[str, Any], ...], **entry: Any
) -> Family:
    return Family(name, tables=tuple(TableRule(**table) for table in tables), **entry)


@cache
def load_added_families() -> tuple[Family, ...]:
    """Load the families of other installed packages; this searches all packages."""
    return tuple(load_entry_points(FAMILY_GROUP, Family))


def has_model_type(family: Family, *model_types: str | None) -> bool:
    """Tell whether a family of the registry has one of the model types."""
    return any(model_type in family.model_types for model_type in model_types)
