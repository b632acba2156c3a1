"""The positional encodings of a checkpoint, found from header and configuration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal, TypeAlias

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint, UnknownReference
from posprobe.families.architectures import (
    Family,
    TableRule,
    has_model_type,
    load_added_families,
    load_registry,
)
from posprobe.families.configurations import (
    ConfigSection,
    dotted_name,
    find_section,
    list_sections,
)
from posprobe.families.relative import Relative, find_relative
from posprobe.families.rotary import (
    LinearSpec,
    find_alibi_evidence,
    find_rotary_evidence,
    find_timm_evidence,
    read_linear_spec,
    read_rotary_specs,
)
from posprobe.families.rows import (
    Rows,
    TailRows,
    count_rows,
    count_text_rows,
    count_video,
    is_reserved_count,
    resolve_rows,
    stored_layout,
)
from posprobe.families.witnesses import find_patch_kernel, read_by_witnesses
from posprobe.layouts import Grid, Sequence
from posprobe.reference import Reference
from posprobe.schemes import RotarySpec

#: Longest tensor name that is examined, in characters: no library writes longer ones, and the time
#: of the search for words grows faster than the length.
MAX_TENSOR_NAME_LETTERS = 300
SchemeName: TypeAlias = Literal[
    "learned", "fixed", "rotary", "relative", "alibi", "convolution"
]
#: Tensor name, family and rule, by the last two words of the name.
_RulesByEnding: TypeAlias = dict[str, list[tuple[str, Family, TableRule]]]


@dataclass(frozen=True)
class StoredEncoding:
    """One positional encoding that a checkpoint holds.

    Parameters
    ----------
    scheme
        Scheme; ``learned`` and ``fixed`` are tables, the others have none.
    name
        Name in ``#TABLE``; empty where it is the only encoding.
    evidence
        Evidence by which it was recognised, in words.
    tensor
        Stored tensor, if there is one.
    rule, family
        Rule by which the rows of a table are read, and its family (None: the generic rule).
    rows, problem
        Rows of a table that are positions, or the reason why they are unknown.
    relative
        Tensors of relative positions and their rule.
    spec
        Parameters of rotary and linear positions.
    unused
        Reason why the model never reads it, although it is stored.
    """

    scheme: SchemeName
    name: str
    evidence: str
    tensor: TensorInfo | None = None
    rule: TableRule | None = None
    family: str | None = None
    rows: Rows | None = None
    problem: str | None = None
    relative: Relative | None = None
    spec: RotarySpec | LinearSpec | None = None
    unused: str | None = None

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Every stored tensor that belongs to it."""
        if self.relative is not None:
            return self.relative.tensors
        return (self.tensor,) if self.tensor else ()


#: Keys of CogVideoX for rotation, and for a learned table beside it.
_VIDEO_ROTATION_KEY = "use_rotary_positional_embeddings"
_VIDEO_TABLE_KEY = "use_learned_positional_embeddings"
#: Ending of the table of an encoder like BERT's.
_ENCODER_TABLE_ENDING = "embeddings.position_embeddings.weight"


def find_encodings(checkpoint: Checkpoint) -> tuple[StoredEncoding, ...]:
    """List the positional encodings of a checkpoint, tables first.

    Only names, shapes and the configuration are read. A table is read by the rule of the configured
    family; without one, by its name, if all families that use the name read it in the same way;
    else by the number of rows that the configuration promises; and last by the generic rule, which
    takes every row and notes that. Families of other packages are used if the configuration names
    none of this package. In a folder with several models every model is searched separately, and
    its encodings are named after its folder.
    """
    if checkpoint.models:
        return tuple(list_in_models(checkpoint.models, find_encodings))
    sections = list_sections(checkpoint.config)
    rules_by_ending = _group_rules(sections)
    names = _list_table_names(checkpoint, rules_by_ending)
    tables = _join_halves(
        checkpoint, _read_named_tables(checkpoint, names, sections, rules_by_ending)
    )
    relative = list(_find_relative_encodings(checkpoint, sections))
    # Rows of relative positions are gathered by counted indices, too.
    names += [info.name for encoding in relative for info in encoding.tensors]
    tables += [
        table
        for name, use in checkpoint.uses.items()
        if name not in names
        and (table := _read_used(checkpoint, name, use, sections)) is not None
    ]
    stored = list(_find_stored_frequencies(checkpoint))
    scheme_encodings = list(_find_configured(sections)) or stored
    if stored and not isinstance(scheme_encodings[0].spec, RotarySpec):
        scheme_encodings[0] = replace(scheme_encodings[0], tensor=stored[0].tensor)
    # An architecture that computes its table may store it as well.
    scheme_encodings += (
        []
        if any(table.scheme == "fixed" for table in tables)
        else _find_computed(sections)
    )
    if not tables and not relative and not scheme_encodings:
        tables = _find_bare_table(checkpoint)
    has_tables = bool(tables)
    return (
        *_name_encodings(tables),
        *_name_encodings(relative, "relative" if has_tables or scheme_encodings else ""),
        *_name_encodings(
            scheme_encodings,
            scheme_encodings[0].scheme
            if scheme_encodings and (has_tables or relative)
            else "",
        ),
    )


def _group_rules(sections: tuple[ConfigSection, ...]) -> _RulesByEnding:
    """Group the rules of all families, and of other packages' if the type is none of these."""
    families = load_registry().families
    types = [section.model_type for section in sections]
    if not any(has_model_type(family, *types) for family in families):
        families = (*families, *load_added_families())
    return _group_by_ending(families)


def _list_table_names(
    checkpoint: Checkpoint, rules_by_ending: _RulesByEnding
) -> list[str]:
    """List the tensors named like tables; looking one up can cost a request for its header."""
    return [
        name
        for name in checkpoint.tensors
        if len(name) <= MAX_TENSOR_NAME_LETTERS
        and (_find_rules(name, rules_by_ending) or is_named_position(name))
    ]


def _read_named_tables(
    checkpoint: Checkpoint,
    names: list[str],
    sections: tuple[ConfigSection, ...],
    rules_by_ending: _RulesByEnding,
    *,
    unused: bool = False,
) -> list[StoredEncoding]:
    """Read the tensors named like tables; those that the model reads, or the unused ones."""
    return [
        table
        for name in names
        for table in _read_tables(
            checkpoint, checkpoint.tensors[name], sections, rules_by_ending, names
        )
        if bool(table.unused) == unused
    ]


def find_unused(checkpoint: Checkpoint) -> list[StoredEncoding]:
    """List the tables of one model that are stored and never read, with the reason."""
    sections = list_sections(checkpoint.config)
    rules_by_ending = _group_rules(sections)
    names = _list_table_names(checkpoint, rules_by_ending)
    return _read_named_tables(checkpoint, names, sections, rules_by_ending, unused=True)


#: Rows of LongCLIP's table that are those of CLIP's (``mask1``); the others are of a second tensor.
_LONG_CLIP_KEPT_ROWS = 20
#: What the name of that tensor ends in, before ``.weight``.
_LONG_CLIP_ENDING = "_res"


def _join_halves(
    checkpoint: Checkpoint, tables: list[StoredEncoding]
) -> list[StoredEncoding]:
    """Join the two tensors of LongCLIP's table, of which each position reads one."""
    seconds = {
        table.tensor.name: second
        for table in tables
        if table.tensor and (second := _second_half(checkpoint, table.tensor))
    }
    return [
        _join_half(table, seconds.get(table.tensor.name))
        for table in tables
        if table.tensor and table.tensor.name not in seconds.values()
    ]


def _second_half(checkpoint: Checkpoint, info: TensorInfo) -> str | None:
    """Return the tensor with the later rows of a table; None if there is none."""
    stem = info.name.removesuffix(".weight")
    second = checkpoint.tensors.get(
        f"{stem}{_LONG_CLIP_ENDING}{info.name.removeprefix(stem)}"
    )
    is_half = second is not None and second.shape == info.shape
    has_rows = bool(info.shape) and info.shape[0] > _LONG_CLIP_KEPT_ROWS
    return second.name if second is not None and is_half and has_rows else None


def _join_half(table: StoredEncoding, second: str | None) -> StoredEncoding:
    """Let the later rows of a table be those of a second tensor."""
    if second is None or table.tensor is None:
        return table
    note = (
        f"LongCLIP: positions 0 to {_LONG_CLIP_KEPT_ROWS - 1} are rows of "
        f"{table.tensor.name}, the others of {second}"
    )
    rows = Rows(
        Sequence(table.tensor.shape[0]),
        notes=(note,),
        tail=TailRows(_LONG_CLIP_KEPT_ROWS, second),
    )
    return replace(table, rows=rows, problem=None)


def list_in_models(
    models: Mapping[str, Checkpoint],
    find: Callable[[Checkpoint], tuple[StoredEncoding, ...]],
) -> Iterator[StoredEncoding]:
    """Yield the encodings of several models, named after the folder of their model."""
    for folder, model in models.items():
        encodings = find(model)
        for encoding in encodings:
            name = folder if len(encodings) == 1 else f"{folder}-{encoding.name}"
            yield replace(encoding, name=name)


def pick_encodings(
    checkpoint: Checkpoint, encodings: tuple[StoredEncoding, ...], reference: Reference
) -> tuple[StoredEncoding, ...]:
    """Return the encodings that ``#NAME`` names; for the folder of a model, all of that model.

    Raises
    ------
    UnknownReference
        If no encoding has the name.
    """
    name = reference.table
    if name is None:
        return encodings
    prefixes = (f"{name}-",) if name in checkpoint.models else ()
    matching = tuple(
        e for e in encodings if e.name == name or e.name.startswith(prefixes)
    )
    if not matching and name not in checkpoint.models:
        raise UnknownReference(
            f"{reference.text}: it has no encoding called {name!r}. "
            f"`posprobe inspect {reference.source}` lists those that it has."
        )
    return matching


def _find_bare_table(checkpoint: Checkpoint) -> list[StoredEncoding]:
    """Take the array of a ``.npy`` file, or of ``posprobe extract``, as the table."""
    bare = [
        info
        for info in checkpoint.tensors.values()
        if info.file.endswith(".npy")
        or (info.name == "values" and len(checkpoint.tensors) <= 2)
    ]
    tables = [
        _read_all_rows(checkpoint, info, "the only table in the file") for info in bare
    ]
    return [table for table in tables if table is not None]


def _group_by_ending(families: tuple[Family, ...]) -> _RulesByEnding:
    """Group rules by the last two words of the names that they match."""
    rules_by_ending: _RulesByEnding = {}
    for family in families:
        for rule in family.tables:
            for tensor in rule.tensors:
                ending = ".".join(tensor.split(".")[-2:])
                rules_by_ending.setdefault(ending, []).append((tensor, family, rule))
    return rules_by_ending


def _find_rules(
    name: str, rules_by_ending: _RulesByEnding
) -> list[tuple[Family, TableRule]]:
    """Return the rules that match the name of a tensor."""
    name = dotted_name(name)
    words = name.split(".")
    rules = [
        *rules_by_ending.get(".".join(words[-2:]), ()),
        *rules_by_ending.get(words[-1], ()),
    ]
    return [
        (family, rule)
        for tensor, family, rule in rules
        if f".{name}".endswith(f".{tensor}")
    ]


def _read_tables(
    checkpoint: Checkpoint,
    info: TensorInfo,
    sections: tuple[ConfigSection, ...],
    rules_by_ending: _RulesByEnding,
    table_names: list[str],
) -> Iterator[StoredEncoding]:
    """Read a tensor as a table, or as the tables of two axes that the model adds."""
    if 0 in info.shape:
        yield _describe_placeholder(info)
        return
    if len(info.shape) == 3 and info.shape[0] == 2 and is_named_position(info.name):
        layout = Sequence(info.shape[1])
        for axis in (0, 1):
            yield StoredEncoding(
                "learned",
                f"axis-{axis}",
                "a table for each axis in one tensor",
                info,
                TableRule(()),
                rows=Rows(layout, axis=axis),
            )
    elif (
        table := _read_table(checkpoint, info, sections, rules_by_ending, table_names)
    ) is not None:
        yield table


def _describe_placeholder(info: TensorInfo) -> StoredEncoding:
    """Describe a table without numbers, which no reader can make up for."""
    problem = (
        f"{info.subject}: it is empty, a placeholder as DeepSpeed's ZeRO-3 leaves it. "
        "Gather the weights (zero_to_fp32.py, or stage3_gather_16bit_weights_on_model_save) "
        "and use that checkpoint."
    )
    return StoredEncoding(
        "learned", "", f"the name {info.name}", info, TableRule(()), problem=problem
    )


def _read_table(
    checkpoint: Checkpoint,
    info: TensorInfo,
    sections: tuple[ConfigSection, ...],
    rules_by_ending: _RulesByEnding,
    table_names: list[str],
) -> StoredEncoding | None:
    if len(info.shape) < 2 or info.dtype in ("BOOL", "I64", "I32", "I16"):
        return None
    section = find_section(info.name, sections)
    scheme = section.config.get("position_embedding_type", "absolute")
    # BERT-like models keep an unused table when they use relative or rotary positions. Without
    # vectors of distances, transformers 5 ignores the setting and adds this table.
    ignored = scheme in ("relative_key", "relative_key_query") and not any(
        "distance_embedding" in name and find_section(name, sections) == section
        for name in checkpoint.tensors
    )
    if scheme != "absolute" and not ignored:
        return _mark_unused(info, f"position_embedding_type is {scheme}")
    if reason := _find_other_use(checkpoint, info, section):
        return _mark_unused(info, reason)
    return _read_by_evidence(
        checkpoint, info, sections, section, rules_by_ending, table_names
    )


def _mark_unused(info: TensorInfo, reason: str) -> StoredEncoding:
    return StoredEncoding(
        "learned", info.name, f"the name {info.name}", info, unused=reason
    )


def _find_other_use(
    checkpoint: Checkpoint, info: TensorInfo, section: ConfigSection
) -> str | None:
    """Return the reason why a table is stored beside rotation and not added."""
    config = section.config
    if config.get(_VIDEO_ROTATION_KEY) and not config.get(_VIDEO_TABLE_KEY, True):
        return f"{_VIDEO_ROTATION_KEY} is true and {_VIDEO_TABLE_KEY} is not"
    stem = dotted_name(info.name).removesuffix(_ENCODER_TABLE_ENDING)
    if section.config or stem == info.name:
        return None
    # ESM-2: its layers rotate, and older versions of transformers stored a table all the same.
    rotations = (
        name
        for name in checkpoint.tensors
        if name.startswith(f"{stem}encoder.layer.")
        and name.endswith("attention.self.rotary_embeddings.inv_freq")
    )
    first_rotation = next(rotations, None)
    return first_rotation and f"the layers rotate queries and keys ({first_rotation})"


def _read_by_evidence(
    checkpoint: Checkpoint,
    info: TensorInfo,
    sections: tuple[ConfigSection, ...],
    section: ConfigSection,
    rules_by_ending: _RulesByEnding,
    table_names: list[str],
) -> StoredEncoding | None:
    rules = _find_rules(info.name, rules_by_ending)
    if section.is_vision:
        rules = [rule_pair for rule_pair in rules if rule_pair[1].grid] or rules
    types = [
        model_type
        for model_type in (sections[0].model_type, section.model_type)
        if model_type
    ]
    unused_tensors = load_registry().unused
    if dotted_name(info.name).endswith(
        tuple(name for model_type in types for name in unused_tensors.get(model_type, ()))
    ):
        return _mark_unused(info, f"the code of {types[-1]} never reads it")
    for model_type in types:
        configured = [pair for pair in rules if has_model_type(pair[0], model_type)]
        if configured:
            reason = f"{configured[0][0].title}: model_type is {model_type}"
            return _read_by_rules(checkpoint, info, configured, reason)
    if (counted_video := count_video(checkpoint, info, section)) is not None:
        rows, reason = counted_video
        return StoredEncoding("learned", "", reason, info, TableRule(()), rows=rows)
    of_families = (family for rules in rules_by_ending.values() for _, family, _ in rules)
    if any(has_model_type(family, *types) for family in of_families):
        rules = []  # the configured family is known, and this is not its table
    by_name = _read_by_name(checkpoint, info, rules)
    # A square number of rows may also be that of a video, which its convolution tells.
    if (
        by_name
        and by_name.rows
        and isinstance(by_name.rows.layout, Grid)
        and by_name.rows.notes
    ):
        kernel = find_patch_kernel(checkpoint, info, table_names)
        if kernel is not None and kernel.is_of_videos:
            return _read_by_witnesses(checkpoint, info, section, table_names)
    if by_name and not by_name.problem:
        return by_name
    counted = count_text_rows(info, section) or count_rows(checkpoint, info, section)
    if counted is not None:
        rows, reason = counted
        return StoredEncoding("learned", "", reason, info, TableRule(()), rows=rows)
    by_witnesses = _read_by_witnesses(checkpoint, info, section, table_names)
    return by_witnesses or by_name or _read_generic(checkpoint, info)


def _read_by_name(
    checkpoint: Checkpoint, info: TensorInfo, rules: list[tuple[Family, TableRule]]
) -> StoredEncoding | None:
    """Read a table by the rules of the families that its module names, or of all of them."""
    modules = dotted_name(info.name).split(".")
    prefixed = [
        rule_pair for rule_pair in rules if set(rule_pair[0].prefixes) & set(modules)
    ]
    candidates = prefixed or rules
    reason = (
        f"{prefixed[0][0].title}: the module's name"
        if prefixed
        else f"the name {info.name}"
    )
    return _read_by_rules(checkpoint, info, candidates, reason) if candidates else None


def _read_by_witnesses(
    checkpoint: Checkpoint,
    info: TensorInfo,
    section: ConfigSection,
    table_names: list[str],
) -> StoredEncoding | None:
    """Read a table as patches if what makes patches stands beside it; None if nothing does."""
    kernel = find_patch_kernel(checkpoint, info, table_names)
    if kernel is None:
        return None
    encoding = StoredEncoding("learned", "", f"the {kernel}", info, TableRule(()))
    try:
        rows, reason = read_by_witnesses(checkpoint, info, section, kernel)
    except InvalidCheckpoint as error:
        return replace(encoding, problem=str(error))
    return replace(encoding, evidence=reason, rows=rows)


def _read_used(
    checkpoint: Checkpoint, name: str, use: str, sections: tuple[ConfigSection, ...]
) -> StoredEncoding | None:
    """Read a tensor as a table because of its use, whatever its name."""
    info = checkpoint.tensors[name]
    node_name = use.rpartition(" ")[2]  # the node is named after its module
    use_text = f"its use: {use}"
    if (
        counted := count_rows(checkpoint, info, find_section(node_name, sections))
    ) is not None:
        rows, reason = counted
        encoding = StoredEncoding(
            "learned", "", f"{use_text}; {reason}", info, TableRule(()), rows=rows
        )
    elif (generic := _read_all_rows(checkpoint, info, use_text)) is not None:
        encoding = generic
    else:
        return None
    words = re.split(r"[._/]", node_name)
    note = f"the name {info.name} says nothing: it is read as positions because {use}"
    name = next((section for section in _SECTION_NAMES if section in words), "")
    noted_rows = encoding.rows and replace(
        encoding.rows, notes=(note, *encoding.rows.notes)
    )
    return replace(encoding, name=name, rows=noted_rows)


def _read_by_rules(
    checkpoint: Checkpoint,
    info: TensorInfo,
    rules: list[tuple[Family, TableRule]],
    reason: str,
) -> StoredEncoding:
    """Read a table by several rules; undecided unless all of them select the same rows."""
    readings: dict[Rows, StoredEncoding] = {}
    problems: list[str] = []
    for family, rule in rules:
        encoding = StoredEncoding(
            "fixed" if rule.fixed else "learned",
            rule.name,
            reason,
            info,
            rule,
            family.name,
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
        is_decided = _is_power_of_two(stored_layout(info).size)
    else:
        is_decided = len(readings) == 1
    if not is_decided:
        return replace(encoding, problem=_undecided_message(checkpoint, info, rules))
    return next(iter(readings.values()))


def _is_power_of_two(n_rows: int) -> bool:
    return n_rows > 0 and n_rows & (n_rows - 1) == 0


def _undecided_message(
    checkpoint: Checkpoint, info: TensorInfo, rules: list[tuple[Family, TableRule]]
) -> str:
    families = ", ".join(dict.fromkeys(family.name for family, _ in rules))
    return (
        f"{info.file}: tensor {info.name}, shape {list(info.shape)}: "
        f"{families} share this name and do not all take every row as a "
        "position; model_type is "
        f'{checkpoint.config.get("model_type")!r}. Add "model_type" to config.json, or take every '
        f"row as it stands with `tensor={info.name!r}`."
    )


_POSITION_NAME = re.compile(
    r"(?:^|[./])(?:\w*_)?(?:wpe|pos(?:ition(?:s|al)?)?_?(?:emb\w*|enc\w*|table|weights?)?|emb\w*_pos\w*"
    r"|(?:row|col(?:umn)?)_embed\w*|embed_timestep|time_embeddings)"
    r"(?:[./](?:weights?(?:\.\d+)?|pe|emb(?:edding)?s?|positional_embedding))*$",
    re.IGNORECASE,
)
_OTHER_NAME = re.compile(
    r"rel(?:ative)?(?:[._]|$)|rotary|bias|position_?ids|norm|positionwise|proj(?!ector)|_quantized|_scale|_zero_point"
    r"|quer(?:y|ies)_pos|linear_pos|shared_(?:image_)?embedding|mask|logits|tile_|self_attn\.pos_emb$|gaussian_matrix|(?:no|class|cls)_\w*pos",
    re.IGNORECASE,
)


def is_named_position(name: str) -> bool:
    """Tell whether a tensor is named like a table of positions."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", dotted_name(name)).removesuffix(
        ".vars.0"
    )
    return bool(_POSITION_NAME.search(name)) and not _OTHER_NAME.search(name)


def _read_generic(checkpoint: Checkpoint, info: TensorInfo) -> StoredEncoding | None:
    if not is_named_position(info.name):
        return None
    return _read_all_rows(
        checkpoint,
        info,
        f"generic rule: {info.name} is named and shaped like a position table",
    )


def _read_all_rows(
    checkpoint: Checkpoint, info: TensorInfo, reason: str
) -> StoredEncoding | None:
    """Take every stored row as a position; None if the shape is not that of a table."""
    try:
        layout = stored_layout(info)
    except InvalidCheckpoint:
        return None
    if layout.size < 2 or info.shape[-1] < 2:
        return None
    notes = ["unknown architecture: every stored row is taken as a position, in order"]
    encoding = StoredEncoding("learned", "", reason, info, TableRule(()))
    # If a table is added whole, all rows are positions; if rows are gathered, some may not be.
    if "gathered" in checkpoint.uses.get(info.name, ""):
        missing = "the file does not say which row the first position takes"
        if is_reserved_count(layout.size):
            return replace(
                encoding, problem=_unknown_offset_message(info, layout.size, missing)
            )
        notes.append(
            f"{missing}: models such as RoBERTa, BART and OPT skip one row or more"
        )
    try:
        rows = resolve_rows(checkpoint, info, TableRule(()))
    except InvalidCheckpoint as error:
        return replace(encoding, problem=str(error))
    return replace(encoding, rows=replace(rows, notes=tuple(notes)))


def _unknown_offset_message(info: TensorInfo, n_rows: int, missing: str) -> str:
    return (
        f"{info.file}: tensor {info.name}, shape {list(info.shape)}: "
        f"{missing}, and {n_rows} is a round number and a few more, as "
        "where RoBERTa, BART and OPT keep rows for no position. Put the "
        "model's config.json beside it, or read all rows with "
        f"`tensor={info.name!r}` (and leave out the first two with `table[2:]`)."
    )


def _name_encodings(
    encodings: list[StoredEncoding], single_name: str = ""
) -> Iterator[StoredEncoding]:
    """Give several encodings unique names: their section of the model, else their tensor.

    ``single_name`` is the name of a single encoding without a name of its own.
    """
    if len(encodings) == 1 and not (single_name and encodings[0].name):
        yield replace(encodings[0], name=single_name)
        return
    short_names = _shorten_paths(
        [dotted_name(e.tensor.name) if e.tensor else e.scheme for e in encodings]
    )
    candidate_names = [
        [*_stated_names(e), path] for e, path in zip(encodings, short_names, strict=True)
    ]
    counts = Counter(name for candidates in candidate_names for name in set(candidates))
    for encoding, candidates in zip(encodings, candidate_names, strict=True):
        last_name = encoding.tensor.name if encoding.tensor else candidates[0]
        yield replace(
            encoding, name=next((n for n in candidates if counts[n] == 1), last_name)
        )


def _stated_names(encoding: StoredEncoding) -> list[str]:
    """List the sections of the model that an encoding or its tensor's name states."""
    if encoding.name:
        return [encoding.name]
    words = re.split(r"[._/]", encoding.tensor.name) if encoding.tensor else ()
    return [section for section in _SECTION_NAMES if section in words]


def _shorten_paths(names: list[str]) -> list[str]:
    """Shorten paths of modules to the words that differ, such as ``layers.0``."""
    words = [name.split(".") for name in names]
    start, n_trailing = (
        _count_shared(words),
        _count_shared([path[::-1] for path in words]),
    )
    if any(path[start : start + 1] and path[start].isdigit() for path in words):
        start = max(start - 1, 0)  # a number needs the word before it, such as "layers"
    shortened = (".".join(path[start : len(path) - n_trailing]) for path in words)
    return [path or name for path, name in zip(shortened, names, strict=True)]


def _count_shared(paths: list[list[str]]) -> int:
    """Count the words that all paths begin with."""
    equal_words = (len(set(words)) == 1 for words in zip(*paths, strict=False))
    return sum(1 for _ in takewhile(bool, equal_words))


_SECTION_NAMES = ("encoder", "decoder", "text", "vision")


def _find_relative_encodings(
    checkpoint: Checkpoint, sections: tuple[ConfigSection, ...]
) -> Iterator[StoredEncoding]:
    for bias in find_relative(checkpoint):
        tensor = bias.tensors[0]
        family = find_section(tensor.name, sections).model_type
        yield StoredEncoding(
            "relative", "", bias.rule.description, tensor, family=family, relative=bias
        )


def _find_configured(sections: tuple[ConfigSection, ...]) -> Iterator[StoredEncoding]:
    """List the schemes without a tensor that the sections of a configuration state."""
    for section in sections:
        prefix = f"{section.path}: " if section.path else ""
        # Falcon's configuration states rotary parameters even if ALiBi replaces them.
        if reason := find_alibi_evidence(section):
            yield from _build_specified(
                "alibi", section, f"{prefix}{reason}", lambda p: (read_linear_spec(p),)
            )
        elif reason := find_rotary_evidence(section):
            yield from _build_specified(
                "rotary", section, f"{prefix}{reason}", read_rotary_specs
            )
        elif section.config.get(_VIDEO_ROTATION_KEY):
            problem = (
                "frames, rows and columns turn shares of the pairs that diffusers' code "
                "states, not the configuration"
            )
            yield StoredEncoding(
                "rotary", section.name, _VIDEO_ROTATION_KEY, problem=problem
            )
        elif reason := find_timm_evidence(section):
            problem = "timm's configuration states no base, axes and units: they are in timm's code"
            yield StoredEncoding("rotary", section.name, reason, problem=problem)


def _build_specified(
    scheme: SchemeName,
    section: ConfigSection,
    reason: str,
    read: Callable[[ConfigSection], tuple[RotarySpec | LinearSpec, ...]],
) -> Iterator[StoredEncoding]:
    try:
        specs = read(section)
    except InvalidCheckpoint as error:
        yield StoredEncoding(scheme, section.name, reason, problem=str(error))
        return
    for spec in specs:
        layers = spec.layers if isinstance(spec, RotarySpec) else ""
        name = "-".join(filter(None, (section.name, layers)))
        yield StoredEncoding(scheme, name, reason, family=section.model_type, spec=spec)


def _find_computed(sections: tuple[ConfigSection, ...]) -> Iterator[StoredEncoding]:
    """List the tables that the model computes and no checkpoint stores."""
    for section in sections:
        if formula_name := load_registry().computed.get(section.model_type or ""):
            reason = f"model_type is {section.model_type}: {formula_name}, computed at run time"
            yield StoredEncoding("fixed", section.name, reason, family=section.model_type)
    for layer in sections[0].config.get("keras_layers", ()) if sections else ():
        if formula_name := load_registry().computed_layers.get(layer):
            yield StoredEncoding(
                "fixed", "", f"a layer {layer}: {formula_name}, computed at run time"
            )


#: Names of rotary frequencies, and of cosines and sines made of them.
_FREQUENCY_NAME = re.compile(
    r"(?:rotary_emb|rotary_embeddings?|rotary_pos_emb)\.(?:inv_freq|freqs)$"
    r"|rope\.(?:freqs(?:_cos)?|inv_freq)$|(?:^|\.)freqs_(?:cis|cos)$"
)


def _find_stored_frequencies(checkpoint: Checkpoint) -> Iterator[StoredEncoding]:
    """Find rotary frequencies, which old checkpoints store in addition to the configuration."""
    for name in checkpoint.tensors:
        if _FREQUENCY_NAME.search(name):
            info = checkpoint.tensors[name]
            yield StoredEncoding("rotary", "", f"stored frequencies, {name}", info)
            return
