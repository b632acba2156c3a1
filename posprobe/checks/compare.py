"""What two copies of a model have, and what differs between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from posprobe import settings
from posprobe.checks.sides import Record, Side
from posprobe.checks.weights import as_declared, relate_weights, stored_type
from posprobe.errors import InvalidCheckpoint, NoPositionTable
from posprobe.families.parts import parts_of
from posprobe.families.rotary import logit_scale
from posprobe.relations import (
    RULES,
    Finding,
    Ladder,
    NotCompared,
    relate_biases,
    relate_ladders,
    relate_slopes,
    relate_tables,
)
from posprobe.relations.dumps import Dump, relate_query
from posprobe.schemes import LinearBias, RelativeBias, Rotary
from posprobe.tables import PositionTable


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
        if a.checkpoint is not None and b.checkpoint is not None:
            more, others = _logits(a, b)
            found, missing = [*found, *more], [*missing, *others]
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
    if "formula" not in (a.family, b.family):  # which says nothing of axes
        yield from _of_sections(a, [*b.sections] or None, in_turn=b.sections_in_turn)


def _of_sections(
    a: Rotary, sections: list[int] | None, *, in_turn: bool | None
) -> Iterator[Finding]:
    """Compare how many pairs turn along each axis, and whether axes take them in turn."""
    own = [*a.sections] or None
    if own != sections:
        yield Finding("sections", "sections", own, sections)
    if own and sections and in_turn is not None and a.sections_in_turn != in_turn:
        orders = {True: "interleaved", False: "contiguous"}
        yield Finding("sections", "sections", orders[a.sections_in_turn], orders[in_turn])


def _ladder(record: Rotary) -> Ladder:
    return Ladder(
        record.frequencies(), record.attention_factor(), record.unscaled(), record.head_dim,
        record.seen(record.max_positions),
    )  # fmt: skip


def _against_dump(a: Side, dump: Dump) -> tuple[list[Finding], list[NotCompared]]:
    record = a.rotary[0] if len(a.rotary) == 1 else None
    if a.dump is not None:
        ladder, neighbours = a.dump.ladder, None
    elif record is not None:
        ladder, neighbours = _ladder(record), record.interleaved
    else:
        reason = "many_ladders" if a.rotary else "no_rotation"
        about = ", ".join(f"#{name}" for name in a.records.get("rotary", {}) if name)
        return [], [NotCompared("ladder", reason, about)]
    found = list(relate_ladders(ladder, dump.ladder))
    missing = []
    if dump.ladder.factor is None and ladder.factor not in (None, 1.0):
        missing.append(NotCompared("factor", "no_cosines"))
    if record and record.sections:
        if dump.sections is None:
            missing.append(NotCompared("sections", "no_sections"))
        else:
            found += _of_sections(record, dump.sections, in_turn=dump.in_turn)
            if dump.in_turn is None:
                missing.append(NotCompared("sections", "no_order", decides=False))
    axes = record.axes if record else 1
    pairs = relate_query(ladder, dump, neighbours if a.declared else None) if axes == 1 else None
    if pairs is not None:
        found.append(pairs)
    elif axes > 1:
        missing.append(NotCompared("pairs", "many_axes"))
    else:
        missing.append(NotCompared("pairs", "no_query" if dump.q is None else "query_tells_not"))
    return found, missing


def _logits(a: Side, b: Side) -> tuple[list[Finding], list[NotCompared]]:
    """Compare what configurations say of logits."""
    found, missing = [], []
    scales, caps = zip(*map(_stated, (a, b)), strict=True)
    known = [scale for scale in scales if scale is not None]
    if len(known) == 2 and not math.isclose(*known, rel_tol=RULES["logit_scale"].tolerance):
        found.append(Finding("logits", "logit_scale", *known))
    elif len(known) == 1 and not math.isclose(known[0], 1.0):
        missing.append(NotCompared("logits", "no_scale", decides=False))
    if None not in caps and caps[0] != caps[1]:
        found.append(Finding("logits", "soft_cap", *caps))
    return found, missing


def _stated(side: Side) -> tuple[float | None, float | None]:
    """Return what logits are multiplied by beside 1 / sqrt(head width), and their cap, 0 for none.

    A GGUF file need not state them: llama.cpp knows some by the architecture.
    """
    assert side.checkpoint is not None  # noqa: S101 - the caller asked
    silent = side.checkpoint.format == "GGUF"
    scale, cap = (None, None) if silent else (1.0, 0.0)
    for part in parts_of(side.checkpoint.config):
        if part.is_vision:
            continue
        scale = logit_scale(part, side.rotary[0].head_dim) or scale
        if part.config.get("attn_logit_softcapping"):
            cap = settings.number(part.config, "attn_logit_softcapping", path=part.path)
    return scale, cap
