"""The families: which tensors are positions, and which of their rows are not.

They are listed in ``families.toml``. To add a family, add an entry there: the list in the
documentation, `posprobe list families` and detection follow from it, and the tests ask for a tiny
model of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from posprobe.data import read_data
from posprobe.readers import added

#: Entry points of other packages that name a `Family`.
GROUP = "posprobe.families"

#: Rows at the start of a table that no position selects:
#: ``none``; ``two``: the model adds 2 to every position; ``padding``: positions start at
#: ``padding_idx + 1``, with padding_idx read from the configuration; ``beyond``: as many as the
#: table has rows beyond the configured number of positions.
Reserved: TypeAlias = Literal["none", "two", "padding", "beyond"]

#: Special tokens whose rows come before the patches. ``stored`` asks the checkpoint: the tokens
#: for which it has an embedding, all of them or (timm's ``no_embed_class``) none.
Tokens: TypeAlias = tuple[str, ...] | Literal["stored"]


@dataclass(frozen=True)
class TableRule:
    """Where a family keeps one table, and how its rows are to be read.

    Parameters
    ----------
    tensors
        Names, matched after any prefix that ends in a dot (``bert.``, ``model.decoder.``).
    name
        What ``#TABLE`` calls it, where a family has several.
    reserved
        The rule for rows that are not positions.
    grid
        Whether positions are patches of an image.
    tokens
        For a grid, the special tokens that have rows before the patches.
    tokens_last
        Whether the rows of special tokens come after the patches.
    fixed
        Whether the model fills it from a formula; reading the values puts this to the test.
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
    """An architecture and the tables it learns.

    Parameters
    ----------
    name
        Short name, as printed by `posprobe list families`.
    title
        What people call the models.
    model_types
        Values of ``model_type`` in a transformers configuration.
    tables
        The tables it learns or stores.
    prefixes
        Module names that identify the family where there is no configuration.
    note
        What its rows are, in a sentence.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    tables: tuple[TableRule, ...]
    prefixes: tuple[str, ...] = ()
    note: str = "every row is a position"


@dataclass(frozen=True)
class Registry:
    """What ``families.toml`` says.

    Parameters
    ----------
    families
        The families, in the order of the file.
    unused
        Tensors named like tables of positions that an architecture stores and never reads, by
        ``model_type``.
    computed, computed_layers
        What architectures (by ``model_type``) and layers of Keras compute at run time, so that no
        file holds it.
    """

    families: tuple[Family, ...]
    unused: Mapping[str, tuple[str, ...]]
    computed: Mapping[str, str]
    computed_layers: Mapping[str, str]


@cache
def registry() -> Registry:
    """Read ``families.toml``, once.

    Raises
    ------
    TypeError
        If an entry has a key that is not a field of its record, or lacks one without a default.
    """
    data = read_data("families/families.toml")
    families = tuple(_family(name, **entry) for name, entry in data["families"].items())
    computed = {name: what for what, names in data["computed"].items() for name in names}
    return Registry(families, data["unused"], computed, data["computed_layers"])


def _family(name: str, *, tables: tuple[Mapping[str, Any], ...], **entry: Any) -> Family:
    return Family(name, tables=tuple(TableRule(**table) for table in tables), **entry)


@cache
def added_families() -> tuple[Family, ...]:
    """Load the families that other installed packages add, which takes a look at all packages."""
    return tuple(added(GROUP, Family))
