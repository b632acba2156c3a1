"""The registry of architectures: their tables, and the tensors between a table and attention.

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
class LayerRule:
    """The tensors of an architecture between its table and the queries and keys of a layer.

    ``tables`` are the names of the table's tensor; other names are relative to its module. ``{}``
    stands for the layer; without it all layers share their weights. ``fused`` is the axis of a
    tensor with queries, keys and values: rows, as linear layers store them, or columns, as GPT-2's
    Conv1D does. ``first_norm`` follows the sum of the embeddings, ``projection`` follows that (a
    question mark: in some models), and ``norm`` precedes the attention of each layer (pre-LN).
    """

    tables: tuple[str, ...]
    query: str
    key: str = ""
    fused: Literal["", "rows", "columns"] = ""
    norm: str = ""
    first_norm: str = ""
    projection: str = ""
    token_type: str = ""
    eps: float = 1e-12
    causal: bool = False
    heads: tuple[str, ...] = ("num_attention_heads",)
    model_types: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether all layers have the same weights."""
        return "{}" not in self.query

    def find_module(self, tensor: str) -> str | None:
        """Return the prefix of the table's tensor; None for the tensor of another table."""
        for table in self.tables:
            if f".{tensor}".endswith(f".{table}"):
                return tensor.removesuffix(table)
        return None


@dataclass(frozen=True)
class Registry:
    """The content of ``architectures.toml``.

    Parameters
    ----------
    families
        Families in the order of the file.
    layers
        Rules for the layers of these families.
    unused
        Tensors named like tables of positions that an architecture stores and never reads, by
        ``model_type``.
    computed, computed_layers
        Positions that architectures (by ``model_type``) and layers of Keras compute at run time, so
        that no file holds them.
    attention_modules
        Modules of attention that leave the product of queries and keys unchanged.
    timm_heads
        Width and number of heads of timm's models, by their size.
    """

    families: tuple[Family, ...]
    layers: tuple[LayerRule, ...]
    unused: Mapping[str, tuple[str, ...]]
    computed: Mapping[str, str]
    computed_layers: Mapping[str, str]
    attention_modules: tuple[str, ...]
    timm_heads: Mapping[str, tuple[int, int]]


@cache
def load_registry() -> Registry:
    """Read ``architectures.toml``, once.

    Raises
    ------
    TypeError
        If an entry has a key that is not a field of its record, or lacks one without a default.
    """
    data = read_data("families/architectures.toml")
    families: list[Family] = []
    layers: list[LayerRule] = []
    for name, entry in data["architectures"].items():
        rules = entry.pop("layers", ())
        families.append(_build_family(name, **entry))
        rules = (rules,) if isinstance(rules, dict) else rules
        layers += [_build_layer_rule(families[-1], **rule) for rule in rules]
    computed = {
        model_type: formula
        for formula, types in data["computed"].items()
        for model_type in types
    }
    return Registry(
        tuple(families),
        tuple(layers),
        data["unused"],
        computed,
        data["computed_layers"],
        data["attention"]["modules"],
        data["attention"]["timm_heads"],
    )


def _build_family(
    name: str, *, tables: tuple[Mapping[str, Any], ...], **entry: Any
) -> Family:
    return Family(name, tables=tuple(TableRule(**table) for table in tables), **entry)


def _build_layer_rule(
    family: Family, *, table: str | None = None, **rule: Any
) -> LayerRule:
    """Build a rule whose table and model types are those of its family unless it states others."""
    (tensors,) = (t.tensors for t in family.tables if table in (None, t.name))
    return LayerRule(tensors, **{"model_types": family.model_types, **rule})


@cache
def load_added_families() -> tuple[Family, ...]:
    """Load the families of other installed packages; this searches all packages."""
    return tuple(load_entry_points(FAMILY_GROUP, Family))


def has_model_type(rule: Family | LayerRule, *model_types: str | None) -> bool:
    """Tell whether a rule of the registry is for one of the model types."""
    return any(model_type in rule.model_types for model_type in model_types)
