"""A checkpoint becomes the list of its positional encodings, from header and configuration.

And what is said of one without a table: what it has instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint
from posprobe.families.parts import Part, dotted, part_for, parts_of
from posprobe.families.registry import Family, TableRule, added_families, registry
from posprobe.families.relative import Relative, find_relative
from posprobe.families.rotary import (
    LinearSpec,
    linear_spec,
    rotary_specs,
    says_alibi,
    says_rotary,
    says_timm,
)
from posprobe.families.rows import Rows, count_rows, like_reserved, resolve_rows, stored_layout
from posprobe.layouts import Sequence
from posprobe.schemes import RotarySpec

#: Names that are looked at, in characters: no library writes longer ones, and looking for words in
#: them takes time that grows faster than they do.
LONGEST_NAME = 300
SchemeName: TypeAlias = Literal["learned", "fixed", "rotary", "relative", "alibi"]


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
    relative
        For relative positions, the tensors that hold them and how they are read.
    spec
        For rotary and linear positions, the numbers they are made of.
    """

    scheme: SchemeName
    name: str
    why: str
    tensor: TensorInfo | None = None
    rule: TableRule | None = None
    family: str | None = None
    rows: Rows | None = None
    problem: str | None = None
    relative: Relative | None = None
    spec: RotarySpec | LinearSpec | None = None

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Every stored tensor that belongs to it."""
        if self.relative is not None:
            return self.relative.tensors
        return (self.tensor,) if self.tensor else ()


def find_encodings(checkpoint: Checkpoint) -> tuple[Encoding, ...]:
    """List what a checkpoint says about position, tables first.

    Only names, shapes and the configuration are looked at. A table is read by the rule of the
    configured family; without one, by its name, if all families that use the name read it alike;
    else by the number of rows that the configuration promises; and at last by the generic rule,
    which takes every row and says so. Families that other packages add are asked where none of
    ours is found. Of several models in one folder each is looked at by itself, and what it has is
    called after its folder.
    """
    if checkpoint.models:
        return tuple(
            replace(encoding, name=folder if len(found) == 1 else f"{folder}-{encoding.name}")
            for folder, model in checkpoint.models.items()
            for found in [find_encodings(model)]
            for encoding in found
        )
    found = _find(checkpoint, registry().families)
    if _is_known(checkpoint, found) or not (more := added_families()):
        return found
    return _find(checkpoint, (*registry().families, *more))


def called(checkpoint: Checkpoint, found: tuple[Encoding, ...], name: str) -> tuple[Encoding, ...]:
    """Pick what is called so; the name of a folder with one of several models, all of that one."""
    inside = (f"{name}-",) if name in checkpoint.models else ()
    return tuple(e for e in found if e.name == name or e.name.startswith(inside))


def _is_known(checkpoint: Checkpoint, found: tuple[Encoding, ...]) -> bool:
    """Tell whether one of our families was found, and none by its tensors' names alone."""
    if not any(encoding.family for encoding in found):
        return False
    types = {part.model_type for part in parts_of(checkpoint.config)} - {None}
    by_name = any(encoding.rule for encoding in found)
    return not (by_name and types) or bool(types & _Known(registry().families).model_types)


def _find(checkpoint: Checkpoint, families: tuple[Family, ...]) -> tuple[Encoding, ...]:
    parts = parts_of(checkpoint.config)
    known = _Known(families)
    # Looking a tensor up can cost a request for its shard's header: names go first.
    names = [
        name
        for name in checkpoint.tensors
        if len(name) <= LONGEST_NAME and (known.rules(name) or is_named_position(name))
    ]
    tables = [
        table
        for name in names
        for table in _tables(checkpoint, checkpoint.tensors[name], parts, known)
    ]
    relative = list(_relative(checkpoint))
    # Rows of relative positions are gathered by counted numbers, too.
    names += [info.name for encoding in relative for info in encoding.tensors]
    tables += [
        table
        for name, use in checkpoint.uses.items()
        if name not in names and (table := _used(checkpoint, name, use, parts)) is not None
    ]
    stored = list(_stored_rotary(checkpoint))
    others = list(_configured(parts)) or stored
    if stored and not isinstance(others[0].spec, RotarySpec):
        others[0] = replace(others[0], tensor=stored[0].tensor)
    # What computes its table may store it as well.
    others += [] if any(table.scheme == "fixed" for table in tables) else _computed(parts)
    if not tables and not relative and not others:
        tables = _bare_table(checkpoint)
    more = bool(tables)
    return (
        *_named(tables),
        *_named(relative, "relative" if more or others else ""),
        *_named(others, others[0].scheme if others and (more or relative) else ""),
    )


def _bare_table(checkpoint: Checkpoint) -> list[Encoding]:
    """Take the array of a ``.npy`` file, or what ``posprobe extract`` wrote: it is the table."""
    bare = [
        info
        for info in checkpoint.tensors.values()
        if info.file.endswith(".npy") or (info.name == "values" and len(checkpoint.tensors) <= 2)
    ]
    tables = [_whole(checkpoint, info, "the only table in the file") for info in bare]
    return [table for table in tables if table is not None]


class _Known:
    """Families, and their rules by the last two parts of the names that they match."""

    def __init__(self, families: tuple[Family, ...]) -> None:
        self.model_types = {kind for family in families for kind in family.model_types}
        self._by_ending: dict[str, list[tuple[str, Family, TableRule]]] = {}
        for family in families:
            for rule in family.tables:
                for tensor in rule.tensors:
                    ending = ".".join(tensor.split(".")[-2:])
                    self._by_ending.setdefault(ending, []).append((tensor, family, rule))

    def rules(self, name: str) -> list[tuple[Family, TableRule]]:
        """Return the rules whose tensor a name may be."""
        name = dotted(name)
        parts = name.split(".")
        candidates = [
            *self._by_ending.get(".".join(parts[-2:]), ()),
            *self._by_ending.get(parts[-1], ()),
        ]
        return [(f, rule) for tensor, f, rule in candidates if f".{name}".endswith(f".{tensor}")]


def _tables(
    checkpoint: Checkpoint, info: TensorInfo, parts: tuple[Part, ...], known: _Known
) -> Iterator[Encoding]:
    """Read a tensor as a table, or as the tables of two axes that are added up."""
    if len(info.shape) == 3 and info.shape[0] == 2 and is_named_position(info.name):
        layout = Sequence(info.shape[1])
        for axis in (0, 1):
            yield Encoding(
                "learned", f"axis-{axis}", "a table for each axis in one tensor", info,
                TableRule(()), rows=Rows(layout, axis=axis),
            )  # fmt: skip
    elif (table := _table(checkpoint, info, parts, known)) is not None:
        yield table


def _table(
    checkpoint: Checkpoint, info: TensorInfo, parts: tuple[Part, ...], known: _Known
) -> Encoding | None:
    if len(info.shape) < 2 or info.dtype in ("BOOL", "I64", "I32", "I16"):
        return None
    part = part_for(info.name, parts)
    scheme = part.config.get("position_embedding_type", "absolute")
    if scheme == "absolute":
        return _read_as(checkpoint, info, parts, part, known)
    # BERT-like models keep an unused table when they use relative or rotary positions.
    if scheme not in ("relative_key", "relative_key_query") or any(
        "distance_embedding" in name and part_for(name, parts) == part
        for name in checkpoint.tensors
    ):
        return None
    found = _read_as(checkpoint, info, parts, part, known)
    if found is None or found.rows is None:
        return found
    note = (
        f"the configuration says position_embedding_type = {scheme}, and there is no "
        "distance_embedding: transformers 5 ignores the setting and adds this table"
    )
    return replace(found, rows=found.rows.noted(note))


def _read_as(
    checkpoint: Checkpoint, info: TensorInfo, parts: tuple[Part, ...], part: Part, known: _Known
) -> Encoding | None:
    rules = known.rules(info.name)
    if part.is_vision:
        rules = [pair for pair in rules if pair[1].grid] or rules
    types = [kind for kind in (parts[0].model_type, part.model_type) if kind]
    unused = registry().unused
    if dotted(info.name).endswith(tuple(name for kind in types for name in unused.get(kind, ()))):
        return None
    for model_type in types:
        configured = [pair for pair in rules if model_type in pair[0].model_types]
        if configured:
            why = f"{configured[0][0].title}: model_type is {model_type}"
            return _by_rules(checkpoint, info, configured, why)
    if known.model_types.intersection(types):
        rules = []  # it is not the family's table, whatever others call theirs
    modules = dotted(info.name).split(".")
    prefixed = [pair for pair in rules if set(pair[0].prefixes) & set(modules)]
    named = prefixed or rules
    why = f"{prefixed[0][0].title}: the module's name" if prefixed else f"the name {info.name}"
    by_name = _by_rules(checkpoint, info, named, why) if named else None
    if by_name and not by_name.problem:
        return by_name
    if (counted := count_rows(checkpoint, info, part)) is not None:
        rows, why = counted
        return Encoding("learned", "", why, info, TableRule(()), rows=rows)
    return by_name or _generic(checkpoint, info)


def _used(checkpoint: Checkpoint, name: str, use: str, parts: tuple[Part, ...]) -> Encoding | None:
    """Read a tensor as a table since it is used as one, whatever it is called."""
    info = checkpoint.tensors[name]
    place = use.rpartition(" ")[2]  # the node that uses it, which is named after its module
    why = f"its use: {use}"
    if (counted := count_rows(checkpoint, info, part_for(place, parts))) is not None:
        rows, reason = counted
        found = Encoding("learned", "", f"{why}; {reason}", info, TableRule(()), rows=rows)
    elif (whole := _whole(checkpoint, info, why)) is not None:
        found = whole
    else:
        return None
    words = re.split(r"[._/]", place)
    note = f"the name {info.name} says nothing: it is read as positions because {use}"
    name = next((part for part in _PARTS if part in words), "")
    return replace(found, name=name, rows=found.rows and found.rows.noted(note))


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
    r"(?:^|[./])(?:\w*_)?(?:wpe|pos(?:ition(?:s|al)?)?_?(?:emb\w*|enc\w*|table|weights?)?|emb\w*_pos\w*"
    r"|(?:row|col(?:umn)?)_embed\w*|embed_timestep|time_embeddings)"
    r"(?:[./](?:weights?(?:\.\d+)?|pe|emb(?:edding)?s?|positional_embedding))*$",
    re.IGNORECASE,
)
_NO_TABLE = re.compile(
    r"rel(?:ative)?(?:[._]|$)|rotary|bias|position_?ids|norm|positionwise|proj(?!ector)|_quantized|_scale|_zero_point"
    r"|quer(?:y|ies)_pos|linear_pos|shared_(?:image_)?embedding|mask|logits|tile_|self_attn\.pos_emb$|gaussian_matrix|(?:no|class|cls)_\w*pos",
    re.IGNORECASE,
)


def is_named_position(name: str) -> bool:
    """Tell whether a tensor is named like a table of positions."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", dotted(name)).removesuffix(".vars.0")
    return bool(_POSITION.search(name)) and not _NO_TABLE.search(name)


def _generic(checkpoint: Checkpoint, info: TensorInfo) -> Encoding | None:
    if not is_named_position(info.name):
        return None
    return _whole(
        checkpoint, info, f"generic rule: {info.name} is named and shaped like a position table"
    )


def _whole(checkpoint: Checkpoint, info: TensorInfo, why: str) -> Encoding | None:
    """Take every stored row as a position; None where the shape is not a table's."""
    try:
        layout = stored_layout(info)
    except InvalidCheckpoint:
        return None
    if layout.size < 2 or info.shape[-1] < 2:
        return None
    notes = ["unknown architecture: every stored row is taken as a position, in order"]
    found = Encoding("learned", "", why, info, TableRule(()))
    # Rows that are added as they stand are all positions; of those that are gathered some may not.
    if "gathered" in checkpoint.uses.get(info.name, ""):
        unsaid = "the file does not say which row the first position takes"
        if like_reserved(layout.size):
            return replace(found, problem=_unknown_offset(info, layout.size, unsaid))
        notes.append(f"{unsaid}: models such as RoBERTa, BART and OPT skip one row or more")
    try:
        rows = resolve_rows(checkpoint, info, TableRule(()))
    except InvalidCheckpoint as error:
        return replace(found, problem=str(error))
    return replace(found, rows=replace(rows, notes=tuple(notes)))


def _unknown_offset(info: TensorInfo, rows: int, unsaid: str) -> str:
    return (
        f"{info.file}: tensor {info.name}, shape {list(info.shape)}: {unsaid}, and {rows} is a "
        "round number and a few more, as where RoBERTa, BART and OPT keep rows for no position. "
        "Put the model's config.json beside it, or read all rows with --tensor "
        f"{info.name} (and leave out the first two with --rows 2:)."
    )


def _named(found: list[Encoding], alone: str = "") -> Iterator[Encoding]:
    """Give each of several encodings a name of its own: its part of the model, else its tensor.

    ``alone`` is the name of an only one that states none itself.
    """
    if len(found) == 1 and not (alone and found[0].name):
        yield replace(found[0], name=alone)
        return
    names = [_possible_names(encoding) for encoding in found]
    count = Counter(name for possible in names for name in set(possible))
    for encoding, possible in zip(found, names, strict=True):
        yield replace(encoding, name=next((n for n in possible if count[n] == 1), possible[-1]))


def _possible_names(encoding: Encoding) -> list[str]:
    stated = [encoding.name] if encoding.name else []
    if encoding.tensor is None:
        return stated or [encoding.scheme]
    words = re.split(r"[._/]", encoding.tensor.name)
    parts = stated or [part for part in _PARTS if part in words]
    if encoding.relative:
        return [*parts, *_layer(encoding.relative.prefix), encoding.tensor.name]
    return [*parts, *_short_names(encoding.tensor.name), encoding.tensor.name]


def _layer(module: str) -> list[str]:
    """Shorten ``encoder.layers.0.attention.self`` to ``layers.0``, where it can."""
    if not module:
        return []
    words = module.split(".")
    numbers = [place for place, word in enumerate(words) if word.isdigit()]
    if not numbers or numbers[0] == 0:
        return [module]
    return [".".join(words[numbers[0] - 1 : numbers[-1] + 1]), module]


def _short_names(tensor: str) -> list[str]:
    """Shorten ``embeddings.x_position_embeddings.weight`` to ``x``, and a path to its layers."""
    if "/" in tensor:
        layers = re.sub(r"/(?:vars/0|embeddings?(?::0)?|weight:0)$", "", tensor).split("/")
        return [layer for layer in reversed(layers) if is_named_position(layer)]
    last = re.sub(r"(?:\.weights?)+(?:\.\d+)?$", "", dotted(tensor)).rpartition(".")[2]
    short = re.sub(r"_?(?:pos\w*?)?_?emb(?:ed\w*)?$", "", last)
    return [short] if short and short != last else []


_PARTS = ("encoder", "decoder", "text", "vision")


def _relative(checkpoint: Checkpoint) -> Iterator[Encoding]:
    parts = parts_of(checkpoint.config)
    for found in find_relative(checkpoint):
        tensor = found.tensors[0]
        family = part_for(tensor.name, parts).model_type
        yield Encoding("relative", "", found.rule.what, tensor, family=family, relative=found)


def _configured(parts: tuple[Part, ...]) -> Iterator[Encoding]:
    """List the schemes that leave no tensor: what a configuration says, part by part."""
    for part in parts:
        where = f"{part.path}: " if part.path else ""
        # Falcon's configuration gives rotary parameters also where ALiBi takes their place.
        if reason := says_alibi(part):
            yield from _specified("alibi", part, f"{where}{reason}", lambda p: (linear_spec(p),))
        elif reason := says_rotary(part):
            yield from _specified("rotary", part, f"{where}{reason}", rotary_specs)
        elif reason := says_timm(part):
            problem = "timm's configuration states no base, axes and units: they are in timm's code"
            yield Encoding("rotary", part.name, reason, problem=problem)


def _specified(
    scheme: SchemeName,
    part: Part,
    why: str,
    read: Callable[[Part], tuple[RotarySpec | LinearSpec, ...]],
) -> Iterator[Encoding]:
    try:
        specs = read(part)
    except InvalidCheckpoint as error:
        yield Encoding(scheme, part.name, why, problem=str(error))
        return
    for spec in specs:
        layers = spec.layers if isinstance(spec, RotarySpec) else ""
        name = "-".join(filter(None, (part.name, layers)))
        yield Encoding(scheme, name, why, family=part.model_type, spec=spec)


def _computed(parts: tuple[Part, ...]) -> Iterator[Encoding]:
    """Name the formulas that leave no trace in a checkpoint."""
    for part in parts:
        if what := registry().computed.get(part.model_type or ""):
            why = f"model_type is {part.model_type}: {what}, computed at run time"
            yield Encoding("fixed", part.name, why, family=part.model_type)
    for layer in parts[0].config.get("keras_layers", ()) if parts else ():
        if what := registry().computed_layers.get(layer):
            yield Encoding("fixed", "", f"a layer {layer}: {what}, computed at run time")


def _stored_rotary(checkpoint: Checkpoint) -> Iterator[Encoding]:
    """Find frequencies that old checkpoints store although they follow from the configuration."""
    for name in checkpoint.tensors:
        if name.endswith(("rotary_emb.inv_freq", "rope.freqs")):
            info = checkpoint.tensors[name]
            yield Encoding("rotary", "", f"stored frequencies, {name}", info)
            return


#: How wav2vec 2.0 and its kin, PVT v2 and XCiT name what stands in for positions.
_CONVOLUTION = re.compile(r"pos_conv|conv_pos|peg\.|pos_embed\.proj|\.cpe\.")
#: What the networks of diffusers call the layer that takes the sinusoid of the time step.
_TIME_STEP = re.compile(
    r"(?:^|[._])(?:time_embedding|timestep_embedder|time_embedder)\.linear_1\.weight$"
)
#: Tensors of a small file that are named, since one of them is the one to name.
_FEW = 5
#: Keys under which the networks of diffusers state the widths of rotations over several axes.
_AXES = ("axes_dims_rope", "axes_dim", "rope_axes_dim")


def what_instead(checkpoint: Checkpoint, found: tuple[Encoding, ...]) -> str:
    """Say that there is no table, and what was found in its place."""
    others = {encoding.scheme: encoding for encoding in reversed(found)}
    if not others and checkpoint.models:
        told = (_in_model(folder, model) for folder, model in checkpoint.models.items())
        return f"{checkpoint.location}: it has no table of positions. {' '.join(told)}"
    model = checkpoint.config.get("model_type")
    if not others:
        count = len(checkpoint.tensors)
        names = f" ({', '.join(name[:80] for name in checkpoint.tensors)})" if count <= _FEW else ""
        seen = f"among its {count} tensor{'s' if count != 1 else ''}{names}" + (
            f" (model_type {model})" if model else ""
        )
        conv = next((name for name in checkpoint.tensors if _CONVOLUTION.search(name)), None)
        instead = f" A convolution tells places apart: {conv}." if conv else ""
        return (
            f"{checkpoint.location}: no position table was found {seen}, nor another scheme in the "
            f"configuration.{instead} If a tensor holds positions, name it with --tensor NAME."
        )
    instead = "; ".join(f"{scheme} positions ({other.why})" for scheme, other in others.items())
    return (
        f"{checkpoint.location}: it has no table of positions. It has {instead}. "
        "`posprobe inspect` lists what the checkpoint says about position."
    )


def _in_model(folder: str, model: Checkpoint) -> str:
    """Say in a sentence what one of several models has."""
    kind = model.config.get("_class_name") or model.config.get("model_type")
    what = f"{folder} ({kind})" if isinstance(kind, str) else folder
    step = next((name for name in model.tensors if _TIME_STEP.search(name)), None)
    parts = [_rotations(model.config)] if any(key in model.config for key in _AXES) else []
    if step is not None:
        parts.append(
            "a sinusoid of the time step, computed at run time and handed to "
            f"{step.removeprefix(f'{folder}.')}: it numbers the steps of denoising, not positions"
        )
    return f"{what} has {'; and '.join(parts) or 'none among its tensors'}."


def _rotations(config: Mapping[str, Any]) -> str:
    key = next(key for key in _AXES if key in config)
    return f"rotary positions over several axes ({key}), whose base stands in the code of diffusers"
