"""A checkpoint becomes the list of its positional encodings, from header and configuration.

And what is said of one without a table: what it has instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal, TypeAlias

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint, UnknownReference
from posprobe.families.configurations import ConfigSection, dotted, part_for, parts_of
from posprobe.families.relative import Relative, find_relative
from posprobe.families.rotary import (
    LinearSpec,
    linear_spec,
    rotary_specs,
    says_alibi,
    says_rotary,
    says_timm,
)
from posprobe.families.rows import (
    Family,
    Rows,
    TableRule,
    added_families,
    count_rows,
    like_reserved,
    registry,
    resolve_rows,
    stored_layout,
)
from posprobe.layouts import Sequence
from posprobe.reference import Reference
from posprobe.schemes import RotarySpec

#: Names that are looked at, in characters: no library writes longer ones, and looking for words in
#: them takes time that grows faster than they do.
LONGEST_NAME = 300
SchemeName: TypeAlias = Literal["learned", "fixed", "rotary", "relative", "alibi"]
#: Rules with a name of each and its family, by the last two parts of that name.
_RulesByEnding: TypeAlias = dict[str, list[tuple[str, Family, TableRule]]]


@dataclass(frozen=True)
class StoredEncoding:
    """One positional encoding that a checkpoint holds.

    Parameters
    ----------
    scheme
        ``learned`` and ``fixed`` are tables; the other schemes have none.
    name
        Name in ``#TABLE``; empty where it is the only encoding.
    why
        Evidence by which it was recognised, in words.
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


def find_encodings(checkpoint: Checkpoint) -> tuple[StoredEncoding, ...]:
    """List what a checkpoint says about position, tables first.

    Only names, shapes and the configuration are looked at. A table is read by the rule of the
    configured family; without one, by its name, if all families that use the name read it alike;
    else by the number of rows that the configuration promises; and at last by the generic rule,
    which takes every row and says so. Families that other packages add are asked where the
    configuration names none of ours. Of several models in one folder each is looked at by itself,
    and what it has is called after its folder.
    """
    if checkpoint.models:
        return tuple(
            replace(
                encoding, name=folder if len(model_encodings) == 1 else f"{folder}-{encoding.name}"
            )
            for folder, model in checkpoint.models.items()
            for model_encodings in [find_encodings(model)]
            for encoding in model_encodings
        )
    parts = parts_of(checkpoint.config)
    families = registry().families
    ours = {kind for family in families for kind in family.model_types}
    if not ours.intersection(part.model_type for part in parts):
        families = (*families, *added_families())
    rules_by_ending = _by_ending(families)
    # Looking a tensor up can cost a request for its shard's header: names go first.
    names = [
        name
        for name in checkpoint.tensors
        if len(name) <= LONGEST_NAME
        and (_rules_for(name, rules_by_ending) or is_named_position(name))
    ]
    tables = [
        table
        for name in names
        for table in _tables(checkpoint, checkpoint.tensors[name], parts, rules_by_ending)
    ]
    relative = list(_relative(checkpoint, parts))
    # Rows of relative positions are gathered by counted numbers, too.
    names += [info.name for encoding in relative for info in encoding.tensors]
    tables += [
        table
        for name, use in checkpoint.uses.items()
        if name not in names and (table := _used(checkpoint, name, use, parts)) is not None
    ]
    stored = list(_stored_rotary(checkpoint))
    scheme_encodings = list(_configured(parts)) or stored
    if stored and not isinstance(scheme_encodings[0].spec, RotarySpec):
        scheme_encodings[0] = replace(scheme_encodings[0], tensor=stored[0].tensor)
    # What computes its table may store it as well.
    scheme_encodings += [] if any(table.scheme == "fixed" for table in tables) else _computed(parts)
    if not tables and not relative and not scheme_encodings:
        tables = _bare_table(checkpoint)
    has_tables = bool(tables)
    return (
        *_named(tables),
        *_named(relative, "relative" if has_tables or scheme_encodings else ""),
        *_named(
            scheme_encodings,
            scheme_encodings[0].scheme if scheme_encodings and (has_tables or relative) else "",
        ),
    )


def picked(
    checkpoint: Checkpoint, encodings: tuple[StoredEncoding, ...], reference: Reference
) -> tuple[StoredEncoding, ...]:
    """Pick what ``#NAME`` names; a folder with one of several models, all that this one has.

    Raises
    ------
    UnknownReference
        If nothing is called so.
    """
    name = reference.table
    if name is None:
        return encodings
    prefixes = (f"{name}-",) if name in checkpoint.models else ()
    matching = tuple(e for e in encodings if e.name == name or e.name.startswith(prefixes))
    if not matching and name not in checkpoint.models:
        raise UnknownReference(
            f"{reference.text}: it has no encoding called {name!r}. `posprobe inspect "
            f"{reference.source}` lists those that it has."
        )
    return matching


def _bare_table(checkpoint: Checkpoint) -> list[StoredEncoding]:
    """Take the array of a ``.npy`` file, or what ``posprobe extract`` wrote: it is the table."""
    bare = [
        info
        for info in checkpoint.tensors.values()
        if info.file.endswith(".npy") or (info.name == "values" and len(checkpoint.tensors) <= 2)
    ]
    tables = [_whole(checkpoint, info, "the only table in the file") for info in bare]
    return [table for table in tables if table is not None]


def _by_ending(families: tuple[Family, ...]) -> _RulesByEnding:
    """Sort rules by the last two parts of the names that they match."""
    rules_by_ending: _RulesByEnding = {}
    for family in families:
        for rule in family.tables:
            for tensor in rule.tensors:
                ending = ".".join(tensor.split(".")[-2:])
                rules_by_ending.setdefault(ending, []).append((tensor, family, rule))
    return rules_by_ending


def _rules_for(name: str, rules_by_ending: _RulesByEnding) -> list[tuple[Family, TableRule]]:
    """Return the rules whose tensor a name may be."""
    name = dotted(name)
    words = name.split(".")
    rules = [*rules_by_ending.get(".".join(words[-2:]), ()), *rules_by_ending.get(words[-1], ())]
    return [(family, rule) for tensor, family, rule in rules if f".{name}".endswith(f".{tensor}")]


def _tables(
    checkpoint: Checkpoint,
    info: TensorInfo,
    parts: tuple[ConfigSection, ...],
    rules_by_ending: _RulesByEnding,
) -> Iterator[StoredEncoding]:
    """Read a tensor as a table, or as the tables of two axes that are added up."""
    if len(info.shape) == 3 and info.shape[0] == 2 and is_named_position(info.name):
        layout = Sequence(info.shape[1])
        for axis in (0, 1):
            yield StoredEncoding(
                "learned", f"axis-{axis}", "a table for each axis in one tensor", info,
                TableRule(()), rows=Rows(layout, axis=axis),
            )  # fmt: skip
    elif (table := _table(checkpoint, info, parts, rules_by_ending)) is not None:
        yield table


def _table(
    checkpoint: Checkpoint,
    info: TensorInfo,
    parts: tuple[ConfigSection, ...],
    rules_by_ending: _RulesByEnding,
) -> StoredEncoding | None:
    if len(info.shape) < 2 or info.dtype in ("BOOL", "I64", "I32", "I16"):
        return None
    part = part_for(info.name, parts)
    scheme = part.config.get("position_embedding_type", "absolute")
    # BERT-like models keep an unused table when they use relative or rotary positions; where there
    # are no vectors of distances, transformers 5 ignores what is said and adds this table.
    ignored = scheme in ("relative_key", "relative_key_query") and not any(
        "distance_embedding" in name and part_for(name, parts) == part
        for name in checkpoint.tensors
    )
    if scheme != "absolute" and not ignored:
        return None
    return _read_as(checkpoint, info, parts, part, rules_by_ending)


def _read_as(
    checkpoint: Checkpoint,
    info: TensorInfo,
    parts: tuple[ConfigSection, ...],
    part: ConfigSection,
    rules_by_ending: _RulesByEnding,
) -> StoredEncoding | None:
    rules = _rules_for(info.name, rules_by_ending)
    if part.is_vision:
        rules = [pair for pair in rules if pair[1].grid] or rules
    types = [kind for kind in (parts[0].model_type, part.model_type) if kind]
    unused = registry().unused
    if dotted(info.name).endswith(tuple(name for kind in types for name in unused.get(kind, ()))):
        return None
    for model_type in types:
        configured = [pair for pair in rules if model_type in pair[0].model_types]
        if configured:
            reason = f"{configured[0][0].title}: model_type is {model_type}"
            return _by_rules(checkpoint, info, configured, reason)
    of_families = (family for rules in rules_by_ending.values() for _, family, _ in rules)
    if any(set(family.model_types).intersection(types) for family in of_families):
        rules = []  # it is not the family's table, whatever others call theirs
    modules = dotted(info.name).split(".")
    prefixed = [pair for pair in rules if set(pair[0].prefixes) & set(modules)]
    candidates = prefixed or rules
    reason = f"{prefixed[0][0].title}: the module's name" if prefixed else f"the name {info.name}"
    by_name = _by_rules(checkpoint, info, candidates, reason) if candidates else None
    if by_name and not by_name.problem:
        return by_name
    if (n_rows := count_rows(checkpoint, info, part)) is not None:
        rows, reason = n_rows
        return StoredEncoding("learned", "", reason, info, TableRule(()), rows=rows)
    return by_name or _generic(checkpoint, info)


def _used(
    checkpoint: Checkpoint, name: str, use: str, parts: tuple[ConfigSection, ...]
) -> StoredEncoding | None:
    """Read a tensor as a table since it is used as one, whatever it is called."""
    info = checkpoint.tensors[name]
    place = use.rpartition(" ")[2]  # the node that uses it, which is named after its module
    use_text = f"its use: {use}"
    if (n_rows := count_rows(checkpoint, info, part_for(place, parts))) is not None:
        rows, reason = n_rows
        encoding = StoredEncoding(
            "learned", "", f"{use_text}; {reason}", info, TableRule(()), rows=rows
        )
    elif (all_rows := _whole(checkpoint, info, use_text)) is not None:
        encoding = all_rows
    else:
        return None
    words = re.split(r"[._/]", place)
    note = f"the name {info.name} says nothing: it is read as positions because {use}"
    name = next((part for part in _PARTS if part in words), "")
    noted = encoding.rows and replace(encoding.rows, notes=(note, *encoding.rows.notes))
    return replace(encoding, name=name, rows=noted)


def _by_rules(
    checkpoint: Checkpoint, info: TensorInfo, rules: list[tuple[Family, TableRule]], reason: str
) -> StoredEncoding:
    """Read a table by the one reading on which all of the families agree."""
    readings: dict[Rows, StoredEncoding] = {}
    problems: list[str] = []
    for family, rule in rules:
        encoding = StoredEncoding(
            "fixed" if rule.fixed else "learned", rule.name, reason, info, rule, family.name
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


def _generic(checkpoint: Checkpoint, info: TensorInfo) -> StoredEncoding | None:
    if not is_named_position(info.name):
        return None
    return _whole(
        checkpoint, info, f"generic rule: {info.name} is named and shaped like a position table"
    )


def _whole(checkpoint: Checkpoint, info: TensorInfo, reason: str) -> StoredEncoding | None:
    """Take every stored row as a position; None where the shape is not a table's."""
    try:
        layout = stored_layout(info)
    except InvalidCheckpoint:
        return None
    if layout.size < 2 or info.shape[-1] < 2:
        return None
    notes = ["unknown architecture: every stored row is taken as a position, in order"]
    encoding = StoredEncoding("learned", "", reason, info, TableRule(()))
    # Rows that are added as they stand are all positions; of those that are gathered some may not.
    if "gathered" in checkpoint.uses.get(info.name, ""):
        unsaid = "the file does not say which row the first position takes"
        if like_reserved(layout.size):
            return replace(encoding, problem=_unknown_offset(info, layout.size, unsaid))
        notes.append(f"{unsaid}: models such as RoBERTa, BART and OPT skip one row or more")
    try:
        rows = resolve_rows(checkpoint, info, TableRule(()))
    except InvalidCheckpoint as error:
        return replace(encoding, problem=str(error))
    return replace(encoding, rows=replace(rows, notes=tuple(notes)))


def _unknown_offset(info: TensorInfo, rows: int, unsaid: str) -> str:
    return (
        f"{info.file}: tensor {info.name}, shape {list(info.shape)}: {unsaid}, and {rows} is a "
        "round number and a few more, as where RoBERTa, BART and OPT keep rows for no position. "
        "Put the model's config.json beside it, or read all rows with --tensor "
        f"{info.name} (and leave out the first two with --rows 2:)."
    )


def _named(encodings: list[StoredEncoding], single_name: str = "") -> Iterator[StoredEncoding]:
    """Give each of several encodings a name of its own: its part of the model, else its tensor.

    ``single_name`` is the name of an only one that states none itself.
    """
    if len(encodings) == 1 and not (single_name and encodings[0].name):
        yield replace(encodings[0], name=single_name)
        return
    short_names = _places([dotted(e.tensor.name) if e.tensor else e.scheme for e in encodings])
    names = [[*_stated(e), place] for e, place in zip(encodings, short_names, strict=True)]
    count = Counter(name for possible in names for name in set(possible))
    for encoding, possible in zip(encodings, names, strict=True):
        last_name = encoding.tensor.name if encoding.tensor else possible[0]
        yield replace(encoding, name=next((n for n in possible if count[n] == 1), last_name))


def _stated(encoding: StoredEncoding) -> list[str]:
    """Name the part of the model that an encoding states, or that its tensor's name does."""
    if encoding.name:
        return [encoding.name]
    words = re.split(r"[._/]", encoding.tensor.name) if encoding.tensor else ()
    return [part for part in _PARTS if part in words]


def _places(names: list[str]) -> list[str]:
    """Shorten paths of modules to what tells them apart, such as ``layers.0``."""
    words = [name.split(".") for name in names]
    begin, end = _shared(words), _shared([path[::-1] for path in words])
    if any(path[begin : begin + 1] and path[begin].isdigit() for path in words):
        begin = max(begin - 1, 0)  # a number says little without what it counts
    shortened = (".".join(path[begin : len(path) - end]) for path in words)
    return [place or name for place, name in zip(shortened, names, strict=True)]


def _shared(paths: list[list[str]]) -> int:
    """Count the words that all paths begin with."""
    equal_words = (len(set(words)) == 1 for words in zip(*paths, strict=False))
    return sum(1 for _ in takewhile(bool, equal_words))


_PARTS = ("encoder", "decoder", "text", "vision")


def _relative(checkpoint: Checkpoint, parts: tuple[ConfigSection, ...]) -> Iterator[StoredEncoding]:
    for bias in find_relative(checkpoint):
        tensor = bias.tensors[0]
        family = part_for(tensor.name, parts).model_type
        yield StoredEncoding("relative", "", bias.rule.what, tensor, family=family, relative=bias)


def _configured(parts: tuple[ConfigSection, ...]) -> Iterator[StoredEncoding]:
    """List the schemes that leave no tensor: what a configuration says, part by part."""
    for part in parts:
        prefix = f"{part.path}: " if part.path else ""
        # Falcon's configuration gives rotary parameters also where ALiBi takes their place.
        if reason := says_alibi(part):
            yield from _specified("alibi", part, f"{prefix}{reason}", lambda p: (linear_spec(p),))
        elif reason := says_rotary(part):
            yield from _specified("rotary", part, f"{prefix}{reason}", rotary_specs)
        elif reason := says_timm(part):
            problem = "timm's configuration states no base, axes and units: they are in timm's code"
            yield StoredEncoding("rotary", part.name, reason, problem=problem)


def _specified(
    scheme: SchemeName,
    part: ConfigSection,
    reason: str,
    read: Callable[[ConfigSection], tuple[RotarySpec | LinearSpec, ...]],
) -> Iterator[StoredEncoding]:
    try:
        specs = read(part)
    except InvalidCheckpoint as error:
        yield StoredEncoding(scheme, part.name, reason, problem=str(error))
        return
    for spec in specs:
        layers = spec.layers if isinstance(spec, RotarySpec) else ""
        name = "-".join(filter(None, (part.name, layers)))
        yield StoredEncoding(scheme, name, reason, family=part.model_type, spec=spec)


def _computed(parts: tuple[ConfigSection, ...]) -> Iterator[StoredEncoding]:
    """Name the formulas that leave no trace in a checkpoint."""
    for part in parts:
        if formula_name := registry().computed.get(part.model_type or ""):
            reason = f"model_type is {part.model_type}: {formula_name}, computed at run time"
            yield StoredEncoding("fixed", part.name, reason, family=part.model_type)
    for layer in parts[0].config.get("keras_layers", ()) if parts else ():
        if formula_name := registry().computed_layers.get(layer):
            yield StoredEncoding(
                "fixed", "", f"a layer {layer}: {formula_name}, computed at run time"
            )


def _stored_rotary(checkpoint: Checkpoint) -> Iterator[StoredEncoding]:
    """Find frequencies that old checkpoints store although they follow from the configuration."""
    for name in checkpoint.tensors:
        if name.endswith(("rotary_emb.inv_freq", "rope.freqs")):
            info = checkpoint.tensors[name]
            yield StoredEncoding("rotary", "", f"stored frequencies, {name}", info)
            return


#: How wav2vec 2.0 and its kin, PVT v2 and XCiT name what stands in for positions.
_CONVOLUTION = re.compile(r"pos_conv|conv_pos|peg\.|pos_embed\.proj|\.cpe\.")
#: Tensors that are named where none is a table, since one of them may be the one to name.
_MAX_LISTED_TENSORS = 5


def what_instead(checkpoint: Checkpoint, encodings: tuple[StoredEncoding, ...]) -> str:
    """Say that there is no table, and what was found in its place."""
    by_scheme = {encoding.scheme: encoding for encoding in reversed(encodings)}
    if by_scheme:
        instead = "; ".join(
            f"{name} positions ({encoding.why})" for name, encoding in by_scheme.items()
        )
        return (
            f"{checkpoint.location}: it has no table of positions. It has {instead}. "
            "`posprobe inspect` lists what the checkpoint says about position."
        )
    tensors = [name for model in checkpoint.models.values() for name in model.tensors]
    tensors = tensors or list(checkpoint.tensors)
    listed_names = ", ".join(name[:80] for name in tensors[:_MAX_LISTED_TENSORS])
    model = checkpoint.config.get("model_type")
    conv = next((name for name in tensors if _CONVOLUTION.search(name)), None)
    return (
        f"{checkpoint.location}: no position table was found among its tensors ({len(tensors)}: "
        f"{listed_names}{', ...' if len(tensors) > _MAX_LISTED_TENSORS else ''})"
        + (f" of a {model}" if isinstance(model, str) else "")
        + ", nor another scheme in the configuration."
        + (f" A convolution tells places apart: {conv}." if conv else "")
        + " If a tensor holds positions, name it with --tensor NAME."
    )
