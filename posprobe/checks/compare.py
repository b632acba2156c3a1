"""What two copies of a model have, and what differs between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np

from posprobe import settings
from posprobe.analyses.models.rotary_weights import pair_layout
from posprobe.checkpoint_analysis import load_any
from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.encodings import FORMULAS
from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    NoPositionTable,
    PosprobeError,
    UnknownReference,
)
from posprobe.families import find_encodings, open_reference, read_table
from posprobe.families.find import called
from posprobe.families.parts import parts_of
from posprobe.families.projections import RotaryWeights, rotary_weights
from posprobe.families.read import build_scheme
from posprobe.families.rotary import RotarySpec, logit_scale
from posprobe.progress import stage
from posprobe.reference import named_in_errors, parse_reference
from posprobe.relations import (
    RULES,
    Finding,
    Ladder,
    NotCompared,
    Projections,
    relate_biases,
    relate_ladders,
    relate_layouts,
    relate_projections,
    relate_slopes,
    relate_tables,
)
from posprobe.relations.dumps import NAMES, Dump, is_dump, read_dump, relate_query
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import Source
from posprobe.tables import PositionTable

Record: TypeAlias = PositionTable | Scheme
#: Most numbers of an array of a dump: 128 MiB as float64.
MOST = 2**24


@dataclass(frozen=True, eq=False)
class Side:
    """What was read of one copy: its encodings by kind and name."""

    name: str
    records: Mapping[str, Mapping[str, Record]]
    checkpoint: Checkpoint | None = None
    dump: Dump | None = None
    weights: RotaryWeights | None = None
    declared: bool = True
    unread: tuple[str, ...] = field(default=())


def open_side(given: str | PathLike[str] | Record, *, offline: bool) -> Side:
    """Read the encodings of a copy, or an engine's dump; errors as of `posprobe.load`."""
    if not isinstance(given, str | PathLike):
        return Side(given.name, {_kind(given): {"": given}})
    parsed = parse_reference(given)
    source = parsed.source
    formula = (":" in source and not source.startswith("sample:")) or source in FORMULAS
    if formula and not parsed.is_path:
        loaded = load_any(parsed.text)
        first = loaded[0] if isinstance(loaded, tuple) else loaded
        return Side(parsed.text, {_kind(first): {"": first}})
    with named_in_errors(source), stage(f"Reading {parsed.text}"):
        if parsed.is_path and source.endswith(".npz"):
            archive = open_local(Path(source))
            if is_dump(archive.tensors):
                return Side(parsed.text, {}, dump=_read_dump(archive), declared=False)
        checkpoint = open_reference(parsed, offline=offline)
        found = find_encodings(checkpoint)
        if parsed.table and parsed.table not in checkpoint.models:
            found = called(checkpoint, found, parsed.table)
            if not found:
                raise UnknownReference(
                    f"{parsed.text}: it has no encoding of that name. `posprobe inspect {source}` "
                    "lists those that it has."
                )
        records: dict[str, dict[str, Record]] = {}
        weights = None
        unread = []
        for encoding in found:
            try:
                record: Record = (
                    build_scheme(checkpoint, encoding, encoding.name or source, parsed.text)
                    if encoding.rule is None
                    else read_table(checkpoint, encoding, parsed)
                )
            except NoPositionTable:
                unread.append(encoding.scheme)
                continue
            records.setdefault(_kind(record), {})[encoding.name] = record
            if weights is None and isinstance(encoding.spec, RotarySpec):
                # Kinds of layers are compared together: they differ in their ladder alone.
                weights = rotary_weights(checkpoint, encoding.spec, every_kind=True)
    return Side(
        parsed.text, records, checkpoint, weights=weights,
        declared=weights is None or weights.declared, unread=tuple(unread),
    )  # fmt: skip


def _read_dump(archive: Checkpoint) -> Dump:
    arrays = {}
    for name in NAMES.keys() & archive.tensors.keys():
        info = archive.tensors[name]
        if math.prod(info.shape) > MOST:
            raise InvalidCheckpoint(
                f"{info.file}: {name}, shape {list(info.shape)}, has more than {MOST} numbers. "
                "Write fewer positions: a few thousand tell as much."
            )
        if info.dtype in ("I32", "I64"):
            whole = np.frombuffer(archive.fetch(info), f"<i{int(info.dtype[1:]) // 8}")
            arrays[name] = whole.astype(np.float64).reshape(info.shape)
        else:
            arrays[name] = archive.read(name).values.astype(np.float64)
    return read_dump(arrays, archive.location)


def _kind(record: Record) -> str:
    return "table" if isinstance(record, PositionTable) else record.scheme


#: Most numbers of a projection that is read whole unless all are asked for, which bounds time.
WHOLE = 2**20


def stored_type(stored: Source | TensorInfo) -> str | None:
    """Return the quantised type in which numbers are stored; None where they are not."""
    return stored.quantisation.name if stored.quantisation else None


def as_declared(found: Finding, kinds: Sequence[str | None]) -> Finding:
    """Call values rounded that a file declares so: grids of larger blocks are not looked for."""
    if found.cause != "moved" or not any(kinds):
        return found
    side = "b" if kinds[1] else "a"
    more = {"type": kinds[1] or kinds[0], "side": side}
    return replace(found, cause="quantised", more=more)


def relate_weights(
    a: Side, b: Side, *, all_layers: bool
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare pairs as declared, and the order of the rows that make queries and keys."""
    one, other = (
        next(each for each in side.records["rotary"].values() if isinstance(each, Rotary))
        for side in (a, b)
    )
    found: dict[tuple[str, str | None], list[tuple[int, Finding]]] = {}
    stored = a.checkpoint is not None and b.checkpoint is not None
    reason = "no_projections" if stored else "no_weights"
    missing = []
    try:
        for layer, read, kinds, mine, theirs in (
            _projections(a, b, one, other, all_layers=all_layers) if stored else ()
        ):
            order, finding = relate_projections(mine, theirs)
            finding = as_declared(finding, kinds)
            if read:
                finding = replace(finding, more={**finding.more, "read": read})
            found.setdefault((finding.cause, order), []).append((layer, finding))
    except PosprobeError as error:
        missing.append(NotCompared("weights", str(error)))
        found = {}
    declared = _neighbours(a, one), _neighbours(b, other)
    findings = []
    for each in found.values():
        worst = max((finding for _, finding in each), key=lambda finding: finding.value or 0.0)
        layers = [layer for layer, _ in each]
        findings.append(replace(worst, more={**worst.more, "layers": layers}))
    orders: list[str | None] = [*sorted({order for _, order in found if order})] or [None]
    pairs = [relate_layouts(declared, order) for order in orders]
    findings += {each.cause: each for each in pairs if each is not None}.values()
    if not found and not missing:
        missing.append(NotCompared("weights", reason, decides=False))
    if None in pairs:
        missing.append(NotCompared("pairs", "pairs_unknown"))
    return findings, missing


def _projections(
    a: Side, b: Side, one: Rotary, other: Rotary, *, all_layers: bool
) -> Iterator[tuple[int, str | None, Sequence[str | None], Projections, Projections]]:
    """Yield layers, what of them was read, the types that files declare, and the rows of both."""
    both = [side.weights for side in (a, b) if side.weights is not None]
    if len(both) < 2 or both[0].layers.keys() != both[1].layers.keys() or not both[0].layers:
        return
    layers = sorted(both[0].layers)
    if one.head_dim != other.head_dim:
        return
    if not all_layers:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    remote = any(side.checkpoint.revision is not None for side in both)
    for layer in layers:
        with stage(f"Comparing queries and keys of layer {layer}"):
            infos = [side.checkpoint.tensors[f"{side.layers[layer].query}.weight"] for side in both]
            large = max(math.prod(info.shape) for info in infos) > WHOLE
            first = (large or remote) and not all_layers
            kinds = [stored_type(info) for info in infos]
            mine, theirs = (
                _read(side, layer, record, first=first)
                for side, record in zip(both, (one, other), strict=True)
            )
            yield layer, "first head" if first else None, kinds, mine, theirs


def _read(side: RotaryWeights, layer: int, record: Rotary, *, first: bool) -> Projections:
    found = side.read(layer, first=first)
    query, key = (
        each.reshape(-1, each.shape[-1]).astype(np.float64) for each in (found.query, found.key)
    )
    if not (np.isfinite(query).all() and np.isfinite(key).all()):
        raise InvalidTable(
            f"{side.checkpoint.tensors[f'{side.layers[layer].query}.weight'].where}: contains NaN "
            "or infinity, or its keys do. The checkpoint is damaged: use a sound copy"
        )
    return Projections(query, key, record.head_dim, record.rotated)


def _neighbours(side: Side, record: Rotary) -> bool | None:
    """Tell whether pairs are neighbours: as declared, else as all weights on disk tell, if so."""
    if side.declared:
        return record.interleaved
    if side.weights is None or side.weights.checkpoint.revision is not None:
        return None
    sizes = [side.weights.read(layer).row_sizes for layer in side.weights.layers]
    found = pair_layout(np.concatenate(sizes)[:, : record.rotated]) if sizes else None
    answer = found.answer if found else None
    return {"halves": False, "neighbours": True}.get(answer or "")


def compare(a: Side, b: Side, *, all_layers: bool) -> tuple[list[Finding], list[NotCompared]]:
    """Compare two copies; return what was found, and what could not be compared.

    Raises
    ------
    InvalidCheckpoint
        If the first is a dump and the second is none.
    NoPositionTable
        If neither has a position.
    """
    if a.dump is not None and b.dump is None:
        raise InvalidCheckpoint(
            f"{a.name}: a dump is held against a checkpoint. Name the checkpoint first."
        )
    if not a.records and not b.records and a.dump is None and not a.unread and not b.unread:
        raise NoPositionTable(
            f"{a.name} and {b.name}: neither has a position that could be compared. `posprobe "
            "inspect` says what they have."
        )
    if b.dump is not None:
        return _against_dump(a, b.dump)
    found: list[Finding] = []
    missing = [
        NotCompared(scheme, "no_numbers", decides=False)
        for scheme in sorted({*a.unread} & {*b.unread})
    ]
    if not a.records.keys() & b.records.keys():
        kinds = [" and ".join(side.records) for side in (a, b)]
        if not all(kinds):
            return [], [*missing, NotCompared("encoding", "no_encoding", "B" if kinds[0] else "A")]
        return [], [*missing, NotCompared("encoding", "other_kinds", " | ".join(kinds))]
    for kind in sorted({*a.records, *b.records}):
        one, other = a.records.get(kind, {}), b.records.get(kind, {})
        if not one or not other:
            found.append(Finding("encoding", "missing", *((kind, None) if one else (None, kind))))
            continue
        pairs = _matched(one, other)
        if len(pairs) < max(len(one), len(other)):
            counts = f"{len(one)} | {len(other)}"
            missing.append(NotCompared(kind, "several", counts))
        for name, mine, theirs in pairs:
            part = name if len(pairs) > 1 else ""
            found += [replace(each, part=part) for each in _related(mine, theirs)]
    if "rotary" in a.records and "rotary" in b.records:
        more, others = relate_weights(a, b, all_layers=all_layers)
        found, missing = [*found, *more], [*missing, *others]
        for each in _settings(a, b):
            (found if isinstance(each, Finding) else missing).append(each)  # type: ignore[arg-type]
    return found, missing


def _matched(
    one: Mapping[str, Record], other: Mapping[str, Record]
) -> list[tuple[str, Record, Record]]:
    """Pair encodings by name, or in their order where there are as many."""
    if one.keys() != other.keys() and len(one) == len(other):
        return [(name, one[name], theirs) for name, theirs in zip(one, other.values(), strict=True)]
    return [(name, one[name], other[name]) for name in one if name in other]


def _related(a: Record, b: Record) -> Sequence[Finding]:
    match a, b:
        case PositionTable(), PositionTable():
            values = [np.asarray(each.values, dtype=np.float64) for each in (a, b)]
            kinds = [stored_type(each.source) for each in (a, b)]
            found = relate_tables(values[0], values[1], (a.layout, b.layout))
            return [as_declared(each, kinds) for each in found]
        case LinearBias(), LinearBias():
            return relate_slopes(a.slopes, b.slopes)
        case RelativeBias(), RelativeBias():
            return relate_biases(a.values, b.values)
        case Rotary(), Rotary():
            return list(_of_rotary(a, b))
    raise TypeError((a, b))


def _of_rotary(a: Rotary, b: Rotary) -> Iterator[Finding]:
    if a.axes != b.axes:
        yield Finding("sections", "axes", a.axes, b.axes)
        return
    yield from relate_ladders(_ladder(a), _ladder(b))
    if (a.rotated, a.head_dim) == (b.rotated, b.head_dim):
        yield Finding("columns", "same_columns", a.rotated, a.head_dim)
    elif a.rotated == b.rotated:
        yield Finding("columns", "columns", a.head_dim, b.head_dim, more={"of": a.rotated})
    if a.window and b.window and a.window != b.window:
        yield Finding("window", "window", a.window, b.window)


def _ladder(record: Rotary) -> Ladder:
    return Ladder(
        record.frequencies(), record.attention_factor(), record.unscaled(), record.head_dim,
        record.seen(record.max_positions),
    )  # fmt: skip


def _against_dump(a: Side, dump: Dump) -> tuple[list[Finding], list[NotCompared]]:
    rotary = [each for each in a.records.get("rotary", {}).values() if isinstance(each, Rotary)]
    if a.dump is not None:
        ladder, neighbours = a.dump.ladder, None
    elif len(rotary) == 1:
        ladder, neighbours = _ladder(rotary[0]), rotary[0].interleaved
    else:
        reason = "many_ladders" if rotary else "no_rotation"
        about = ", ".join(f"#{name}" for name in a.records.get("rotary", {}) if name)
        return [], [NotCompared("ladder", reason, about)]
    found = list(relate_ladders(ladder, dump.ladder))
    missing = []
    if dump.ladder.factor is None and ladder.factor not in (None, 1.0):
        missing.append(NotCompared("factor", "no_cosines"))
    stated = None if a.checkpoint is None else _sections(a.checkpoint)[0]
    if stated and rotary and rotary[0].axes == 1:
        if dump.sections is None:
            missing.append(NotCompared("sections", "no_sections"))
        elif dump.sections != stated:
            found.append(Finding("sections", "sections", stated, dump.sections))
    axes = rotary[0].axes if rotary else 1
    pairs = relate_query(ladder, dump, neighbours if a.declared else None) if axes == 1 else None
    if pairs is not None:
        found.append(pairs)
    elif axes > 1:
        missing.append(NotCompared("pairs", "many_axes"))
    else:
        missing.append(NotCompared("pairs", "no_query" if dump.q is None else "query_tells_not"))
    return found, missing


def _settings(a: Side, b: Side) -> Iterator[Finding | NotCompared]:
    """Compare what configurations state beside the ladder."""
    if a.checkpoint is None or b.checkpoint is None:
        return
    one, other = (_sections(side.checkpoint) for side in (a, b))  # type: ignore[arg-type]
    if one[0] != other[0]:
        yield Finding("sections", "sections", one[0], other[0])
    elif one[1] and other[1] and one[1] != other[1]:
        yield Finding("sections", "sections", one[1], other[1])
    scales, caps = zip(*(_logits(side) for side in (a, b)), strict=True)
    known = [scale for scale in scales if scale is not None]
    if len(known) == 2 and not math.isclose(*known, rel_tol=RULES["logit_scale"].tolerance):
        yield Finding("logits", "logit_scale", *known)
    elif len(known) == 1 and not math.isclose(known[0], 1.0):
        yield NotCompared("logits", "no_scale", decides=False)
    if None not in caps and caps[0] != caps[1]:
        yield Finding("logits", "soft_cap", *caps)


def _sections(checkpoint: Checkpoint) -> tuple[list[int] | None, str | None]:
    """Return how many pairs turn along each axis, and in which order; None where not stated."""
    found: tuple[list[int] | None, str | None] = (None, None)
    for part in parts_of(checkpoint.config):
        rope = part.config.get("rope_parameters") or part.config.get("rope_scaling")
        if isinstance(rope, Mapping) and rope.get("mrope_section"):
            sizes = settings.wholes(rope, "mrope_section", most=2**12, longest=4)
            order = "interleaved" if rope.get("mrope_interleaved") else "contiguous"
            # llama.cpp knows the order by the architecture.
            found = sizes, None if checkpoint.format == "GGUF" else order
    return found


def _logits(side: Side) -> tuple[float | None, float | None]:
    """Return what logits are multiplied by beside 1 / sqrt(head width), and their cap, 0 for none.

    A GGUF file need not state them: llama.cpp knows some by the architecture.
    """
    assert side.checkpoint is not None  # noqa: S101 - the caller asked
    silent = side.checkpoint.format == "GGUF"
    scale, cap = (None, None) if silent else (1.0, 0.0)
    record = next(each for each in side.records["rotary"].values() if isinstance(each, Rotary))
    for part in parts_of(side.checkpoint.config):
        if part.is_vision:
            continue
        scale = logit_scale(part, record.head_dim) or scale
        if part.config.get("attn_logit_softcapping"):
            cap = settings.number(part.config, "attn_logit_softcapping", path=part.path)
    return scale, cap
