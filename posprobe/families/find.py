"""A checkpoint becomes the list of its positional encodings, from header and configuration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint
from posprobe.families.registry import FAMILIES, Family, TableRule
from posprobe.families.rows import Rows, resolve_rows, stored_layout

Scheme: TypeAlias = Literal["learned", "fixed", "rotary", "relative", "alibi"]


@dataclass(frozen=True)
class Encoding:
    """One positional encoding that a checkpoint holds.

    Parameters
    ----------
    scheme
        ``learned`` and ``fixed`` are tables; the other schemes have none.
    name
        What ``#TABLE`` calls it; empty where it is the only one.
    why
        What it was recognised by.
    tensor
        The stored tensor, where there is one.
    rule, family
        For a table, how its rows are read, and the family that says so (None: the generic rule).
    rows, problem
        For a table, which rows are positions, or why that cannot be told.
    """

    scheme: Scheme
    name: str
    why: str
    tensor: TensorInfo | None = None
    rule: TableRule | None = None
    family: str | None = None
    rows: Rows | None = None
    problem: str | None = None


def find_encodings(checkpoint: Checkpoint) -> tuple[Encoding, ...]:
    """List what a checkpoint says about position, tables first.

    Only names, shapes and the configuration are looked at. A tensor is read by the rule of the
    configured family; without one, by its name, if all families that use the name read it alike;
    and else by the generic rule, which takes every row and says so.
    """
    tables: list[Encoding] = []
    # BERT-like models keep an unused table when they use relative or rotary positions.
    if checkpoint.config.get("position_embedding_type", "absolute") == "absolute":
        # Looking a tensor up can cost a request for its shard's header: names go first.
        names = [name for name in checkpoint.tensors if _rules(name) or _is_generic(name)]
        found = (_table(checkpoint, checkpoint.tensors[name]) for name in names)
        tables = [table for table in found if table is not None]
    others = tuple(_other_schemes(checkpoint))
    if not tables and not others:
        tables = _bare_table(checkpoint)
    return (*_named(tables), *others)


def _bare_table(checkpoint: Checkpoint) -> list[Encoding]:
    """Take the array of a ``.npy`` file, or what ``posprobe extract`` wrote: it is the table."""
    bare = [
        info
        for info in checkpoint.tensors.values()
        if info.file.endswith(".npy") or (info.name == "values" and len(checkpoint.tensors) <= 2)
    ]
    tables = [_whole(checkpoint, info, "the only table in the file") for info in bare]
    return [table for table in tables if table is not None]


def _rules(name: str) -> list[tuple[Family, TableRule]]:
    return [
        (family, rule)
        for family in FAMILIES
        for rule in family.tables
        if any(f".{name}".endswith(f".{tensor}") for tensor in rule.tensors)
    ]


def _table(checkpoint: Checkpoint, info: TensorInfo) -> Encoding | None:
    if len(info.shape) < 2 or info.dtype in ("BOOL", "I64", "I32", "I16"):
        return None
    rules = _rules(info.name)
    model_type = checkpoint.config.get("model_type")
    configured = [pair for pair in rules if model_type in pair[0].model_types]
    if configured:
        why = f"{configured[0][0].title}: model_type is {model_type}"
        return _by_rules(checkpoint, info, configured, why)
    if any(model_type in family.model_types for family in FAMILIES):
        return None
    modules = info.name.split(".")
    prefixed = [pair for pair in rules if set(pair[0].prefixes) & set(modules)]
    if prefixed:
        return _by_rules(checkpoint, info, prefixed, f"{prefixed[0][0].title}: the module's name")
    if rules:
        return _by_rules(checkpoint, info, rules, f"the name {info.name}")
    return _generic(checkpoint, info)


def _by_rules(
    checkpoint: Checkpoint, info: TensorInfo, rules: list[tuple[Family, TableRule]], why: str
) -> Encoding:
    """Read a table by the one reading on which all of the families agree."""
    readings: dict[Rows, Encoding] = {}
    problems: list[str] = []
    for family, rule in rules:
        encoding = Encoding(
            "fixed" if rule.fixed else "learned", rule.name, why, info, rule, family.name
        )
        try:
            rows = resolve_rows(checkpoint, info, rule)
        except InvalidCheckpoint as error:
            problems.append(str(error))
            continue
        readings.setdefault(rows, replace(encoding, rows=rows))
    if not readings:
        return replace(encoding, problem=problems[0])
    by_name_alone = len({family.name for family, _ in rules}) > 1
    if by_name_alone and any(rule.reserved == "padding" for _, rule in rules):
        decided = _is_power_of_two(stored_layout(info).size)
    else:
        decided = len(readings) == 1
    if not decided:
        return replace(encoding, problem=_undecided(checkpoint, info, rules))
    return next(iter(readings.values()))


def _is_power_of_two(rows: int) -> bool:
    return rows > 0 and rows & (rows - 1) == 0


def _undecided(
    checkpoint: Checkpoint, info: TensorInfo, rules: list[tuple[Family, TableRule]]
) -> str:
    families = ", ".join(dict.fromkeys(family.name for family, _ in rules))
    return (
        f"{info.file}: tensor {info.name}, shape {list(info.shape)}: {families} share this name "
        "and do not all take every row as a position; model_type is "
        f'{checkpoint.config.get("model_type")!r}. Add "model_type" to config.json, or take every '
        f"row as it stands with --tensor {info.name}."
    )


_POSITION = re.compile(
    r"(?:^|[./])(?:\w*_)?(?:wpe|pos(?:ition(?:s|al)?)?_?(?:emb\w*|enc\w*|table|weights?)?|emb\w*_pos\w*)"
    r"(?:[./](?:weight|pe|emb(?:edding)?s?))*$",
    re.IGNORECASE,
)
_NO_TABLE = re.compile(
    r"rel(?:ative)?(?:[._]|$)|rotary|bias|position_?ids|norm|positionwise|proj|_quantized|_scale",
    re.IGNORECASE,
)


def _is_generic(name: str) -> bool:
    return bool(_POSITION.search(name)) and not _NO_TABLE.search(name)


def _generic(checkpoint: Checkpoint, info: TensorInfo) -> Encoding | None:
    if not _is_generic(info.name):
        return None
    return _whole(
        checkpoint, info, f"generic rule: {info.name} is named and shaped like a position table"
    )


def _whole(checkpoint: Checkpoint, info: TensorInfo, why: str) -> Encoding | None:
    """Take every stored row as a position; None where the shape is no table's."""
    try:
        layout = stored_layout(info)
    except InvalidCheckpoint:
        return None
    if layout.size < 2 or info.shape[-1] < 2:
        return None
    note = "unknown architecture: every stored row is taken as a position, in order"
    rows = replace(resolve_rows(checkpoint, info, TableRule(())), notes=(note,))
    return Encoding("learned", "", why, info, TableRule(()), rows=rows)


def _named(tables: list[Encoding]) -> Iterator[Encoding]:
    """Give each of several tables a name of its own: its part of the model, else its tensor."""
    if len(tables) < 2:
        yield from tables
        return
    names = [_possible_names(table) for table in tables]
    count = Counter(name for possible in names for name in possible)
    for table, possible in zip(tables, names, strict=True):
        yield replace(table, name=next((n for n in possible if count[n] == 1), possible[-1]))


def _possible_names(table: Encoding) -> list[str]:
    assert table.tensor is not None  # noqa: S101 - tables are found by their tensor
    words = re.split(r"[._/]", table.tensor.name)
    parts = [table.name] if table.name else [part for part in _PARTS if part in words]
    return [*parts, table.tensor.name]


_PARTS = ("encoder", "decoder", "text", "vision")

_ROTARY = (
    "rope_theta",
    "rope_parameters",
    "rotary_dim",
    "rotary_pct",
    "rotary_emb_base",
    "rotary_emb_fraction",
)
_RELATIVE = re.compile(
    r"relative_attention_bias|relative_position_bias_table|rel_pos_[hw]$|attention_biases$"
    r"|rel_embeddings|(?:height|width)_rel|distance_embedding"
)


def _other_schemes(checkpoint: Checkpoint) -> Iterator[Encoding]:
    parts = {"": checkpoint.config} | {
        key: value for key, value in checkpoint.config.items()
        if key.endswith("_config") and isinstance(value, Mapping)
    }  # fmt: skip
    for part, config in parts.items():
        name = part.removesuffix("_config")
        where = f"{part}." if part else ""
        # Falcon's configuration gives rotary parameters also where ALiBi takes their place.
        if reason := _alibi(config):
            yield Encoding("alibi", name, f"{where}{reason} in the configuration")
        elif reason := _rotary(config):
            yield Encoding("rotary", name, f"{where}{reason} in the configuration")
    stored = [name for name in checkpoint.tensors if name.endswith("rotary_emb.inv_freq")]
    if stored and not any(_rotary(config) for config in parts.values()):
        yield Encoding("rotary", "", f"stored frequencies, {stored[0]}")
    for name in checkpoint.tensors:
        if _RELATIVE.search(name):
            info = checkpoint.tensors[name]
            yield Encoding("relative", name, "named like a relative position bias", info)


def _rotary(config: Mapping[str, Any]) -> str | None:
    if config.get("position_embedding_type") in ("rotary", "rope"):
        return "position_embedding_type"
    return next((key for key in _ROTARY if config.get(key)), None)


def _alibi(config: Mapping[str, Any]) -> str | None:
    attention = config.get("attn_config")
    if isinstance(attention, Mapping) and attention.get("alibi"):
        return "attn_config.alibi"
    if config.get("position_embedding_type") == "alibi":
        return "position_embedding_type"
    if config.get("model_type") == "bloom":
        return "model_type bloom"
    return "alibi" if config.get("alibi") else None
