"""What two copies of a model have, and what differs between them.

Queries and keys of large layers are read head by head, which bounds the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe import settings
from posprobe.analyses.models.rotary_weights import pair_layout
from posprobe.arrays import Floats
from posprobe.checkpoints import TensorInfo
from posprobe.checks.sides import Encoding, Side
from posprobe.errors import InvalidCheckpoint, InvalidTable, NoPositionTable, PosprobeError
from posprobe.families.configurations import parts_of
from posprobe.families.projections import Heads, RotaryWeights
from posprobe.families.rotary import logit_scale
from posprobe.progress import stage
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
    relate_sketches,
    relate_slopes,
    relate_tables,
)
from posprobe.relations.dumps import Dump, relate_query
from posprobe.schemes import LinearBias, RelativeBias, Rotary
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: Most numbers of a projection that is read whole unless all are asked for, which bounds time.
MAX_WHOLE_LAYER_NUMBERS = 2**20
#: Most numbers of the queries that are read at once of larger ones: a head of a model of 7B. What
#: is made of them while they are compared takes 20 times their memory.
PART = 2**19
#: Most numbers of the queries that are asked of the Hub at once: 8 MB in half precision.
MAX_BATCH_NUMBERS = 2**22
#: What is read where one head is enough.
FIRST_HEADS: Heads = (range(1), range(1))
#: Random inputs of whole layers.
INPUTS = 8
#: How types of ggml begin that round each number to the nearest of its block. Others keep several
#: numbers as one code; those of ONNX may have a step for each column.
TO_NEAREST = ("Q", "IQ4", "MXFP4")
#: The order of rows, None where none is recognised; and the finding on the values.
_Related: TypeAlias = tuple[str | None, Finding]


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
    findings: list[Finding] = []
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
        records_a, records_b = a.records.get(kind, {}), b.records.get(kind, {})
        if not records_a or not records_b:
            findings.append(
                Finding("encoding", "missing", *((kind, None) if records_a else (None, kind)))
            )
            continue
        pairs = _matched(records_a, records_b)
        if len(pairs) < max(len(records_a), len(records_b)):
            counts = f"{len(records_a)} | {len(records_b)}"
            missing.append(NotCompared(kind, "several", counts))
        for name, record_a, record_b in pairs:
            part = name if len(pairs) > 1 else ""
            findings += [replace(finding, part=part) for finding in _related(record_a, record_b)]
    if "rotary" in a.records and "rotary" in b.records:
        weight_findings, weight_gaps = relate_weights(a, b, all_layers=all_layers)
        findings, missing = [*findings, *weight_findings], [*missing, *weight_gaps]
        if a.checkpoint is not None and b.checkpoint is not None:
            weight_findings, weight_gaps = _logits(a, b)
            findings, missing = [*findings, *weight_findings], [*missing, *weight_gaps]
    return findings, missing


def _matched(
    records_a: Mapping[str, Encoding], records_b: Mapping[str, Encoding]
) -> list[tuple[str, Encoding, Encoding]]:
    """Pair encodings by name, or in their order where there are as many."""
    if records_a.keys() != records_b.keys() and len(records_a) == len(records_b):
        return [
            (name, records_a[name], record_b)
            for name, record_b in zip(records_a, records_b.values(), strict=True)
        ]
    return [(name, records_a[name], records_b[name]) for name in records_a if name in records_b]


def _related(a: Encoding, b: Encoding) -> Sequence[Finding]:
    match a, b:
        case PositionTable(), PositionTable():
            values = [np.asarray(table.values, dtype=np.float64) for table in (a, b)]
            kinds = [stored_type(table.source) for table in (a, b)]
            findings = relate_tables(values[0], values[1], (a.layout, b.layout))
            return [as_declared(table, kinds) for table in findings]
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
    stored_sections = [*a.sections] or None
    if stored_sections != sections:
        yield Finding("sections", "sections", stored_sections, sections)
    if stored_sections and sections and in_turn is not None and a.sections_in_turn != in_turn:
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
        kinds_text = ", ".join(f"#{name}" for name in a.records.get("rotary", {}) if name)
        return [], [NotCompared("ladder", reason, kinds_text)]
    findings = list(relate_ladders(ladder, dump.ladder))
    missing = []
    if dump.ladder.factor is None and ladder.factor not in (None, 1.0):
        missing.append(NotCompared("factor", "no_cosines"))
    if record and record.sections:
        if dump.sections is None:
            missing.append(NotCompared("sections", "no_sections"))
        else:
            findings += _of_sections(record, dump.sections, in_turn=dump.in_turn)
            if dump.in_turn is None:
                missing.append(NotCompared("sections", "no_order", decides=False))
    axes = record.axes if record else 1
    pairs = relate_query(ladder, dump, neighbours if a.declared else None) if axes == 1 else None
    if pairs is not None:
        findings.append(pairs)
    elif axes > 1:
        missing.append(NotCompared("pairs", "many_axes"))
    else:
        missing.append(NotCompared("pairs", "no_query" if dump.q is None else "query_tells_not"))
    return findings, missing


def _logits(a: Side, b: Side) -> tuple[list[Finding], list[NotCompared]]:
    """Compare what configurations say of logits."""
    findings, missing = [], []
    scales, caps = zip(*map(_stated, (a, b)), strict=True)
    stated_scales = [scale for scale in scales if scale is not None]
    if len(stated_scales) == 2 and not math.isclose(
        *stated_scales, rel_tol=RULES["logit_scale"].tolerance
    ):
        findings.append(Finding("logits", "logit_scale", *stated_scales))
    elif len(stated_scales) == 1 and not math.isclose(stated_scales[0], 1.0):
        missing.append(NotCompared("logits", "no_scale", decides=False))
    if None not in caps and caps[0] != caps[1]:
        findings.append(Finding("logits", "soft_cap", *caps))
    return findings, missing


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


# --- queries and keys


def stored_type(stored: Source | TensorInfo) -> str | None:
    """Return the quantised type in which numbers are stored; None where they are not."""
    return stored.quantisation.name if stored.quantisation else None


def as_declared(finding: Finding, kinds: Sequence[str | None]) -> Finding:
    """Name the type in which a file says that it keeps numbers.

    What was moved further than by rounding stays moved, where the type rounds to the nearest;
    elsewhere the file's word is all that tells.
    """
    side = finding.more["side"] if finding.cause == "quantised" else "b" if kinds[1] else "a"
    kind = kinds[side == "b"]
    if kind is None or finding.cause not in ("quantised", "moved"):
        return finding
    details = {**finding.more, "type": kind, "side": side}
    nearer = details.pop("beyond", {}).get(side, 0.0)
    if kind.startswith(TO_NEAREST) and nearer >= RULES["quantised"].tolerance:
        return replace(finding, more=details)
    return replace(finding, cause="quantised", more=details)


def relate_weights(
    a: Side, b: Side, *, all_layers: bool
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare pairs as declared, and the order of the rows that make queries and keys."""
    stored = a.checkpoint is not None and b.checkpoint is not None
    findings_by_cause: dict[tuple[str, str | None], list[tuple[int, Finding]]] = {}
    missing = []
    try:
        for layer, order, finding in _layers(a, b, all_layers=all_layers) if stored else ():
            findings_by_cause.setdefault((finding.cause, order), []).append((layer, finding))
    except PosprobeError as error:
        missing.append(NotCompared("weights", str(error)))
        findings_by_cause = {}
    declared = _neighbours(a), _neighbours(b)
    findings = []
    for layer_findings in findings_by_cause.values():
        worst = _worst([finding for _, finding in layer_findings])
        layers = [layer for layer, _ in layer_findings]
        findings.append(replace(worst, more={**worst.more, "layers": layers}))
    orders: list[str | None] = [*sorted({order for _, order in findings_by_cause if order})] or [
        None
    ]
    pairs = [relate_layouts(declared, order) for order in orders]
    findings += {
        layer_findings.cause: layer_findings
        for layer_findings in pairs
        if layer_findings is not None
    }.values()
    if not findings_by_cause and not missing:
        reason = "no_projections" if stored else "no_weights"
        missing.append(NotCompared("weights", reason, decides=False))
    if None in pairs:
        missing.append(NotCompared("pairs", "pairs_unknown"))
    return findings, missing


def _worst(findings: Sequence[Finding]) -> Finding:
    return max(
        findings, key=lambda finding: (finding.cause == "other_weights", finding.value or 0.0)
    )


def _layers(a: Side, b: Side, *, all_layers: bool) -> Iterator[tuple[int, str | None, Finding]]:
    """Yield layers that both have with the order of rows and what became of them."""
    if a.weights is None or b.weights is None or a.rotary[0].head_dim != b.rotary[0].head_dim:
        return
    layers = sorted(a.weights.layers)
    if not layers or layers != sorted(b.weights.layers):
        return
    if not all_layers:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    for number in layers:
        with stage(f"Comparing queries and keys of layer {number}"):
            layer_a = _Layer(a.weights, a.rotary[0], number)
            layer_b = _Layer(b.weights, b.rotary[0], number)
            is_large = (
                max(math.prod(layer.info.shape) for layer in (layer_a, layer_b))
                > MAX_WHOLE_LAYER_NUMBERS
            )
            if not all_layers and (is_large or layer_a.remote or layer_b.remote):
                first_pair = [next(layer.read([FIRST_HEADS])) for layer in (layer_a, layer_b)]
                order, finding = relate_projections(*first_pair)
                finding = replace(finding, more={**finding.more, "read": "first head"})
            else:
                order, finding = _whole(
                    layer_a, layer_b, PART if is_large else MAX_WHOLE_LAYER_NUMBERS
                )
            kinds = [stored_type(layer.info) for layer in (layer_a, layer_b)]
            yield number, order, as_declared(finding, kinds)


@dataclass(frozen=True, eq=False)
class _Layer:
    """Queries and keys of one layer of one copy."""

    weights: RotaryWeights
    record: Rotary
    number: int

    @property
    def info(self) -> TensorInfo:
        """What makes its queries."""
        stored = self.weights.layers[self.number]
        return self.weights.checkpoint.tensors[f"{stored.query}.weight"]

    @property
    def remote(self) -> bool:
        """Whether it lies on the Hub."""
        return self.weights.checkpoint.revision is not None

    def read(self, blocks: Sequence[Heads]) -> Iterator[Projections]:
        """Read blocks of heads, in their order; those of the Hub that lie together in one go."""
        block_numbers = len(blocks[0][0]) * self.record.head_dim * self.info.shape[1]
        count = max(MAX_BATCH_NUMBERS // block_numbers, 1) if self.remote else 1
        for begin in range(0, len(blocks), count):
            batch = blocks[begin : begin + count]
            queries, keys = (range(batch[0][k].start, batch[-1][k].stop) for k in (0, 1))
            projections = self.weights.read(self.number, (queries, keys))
            for queries_read, keys_read in batch:
                query = projections.query[
                    queries_read.start - queries.start : queries_read.stop - queries.start
                ]
                key = projections.key[keys_read.start - keys.start : keys_read.stop - keys.start]
                yield self._checked(query, key)

    def _checked(self, *heads: NDArray[Any]) -> Projections:
        query, key = (weight.reshape(-1, weight.shape[-1]).astype(np.float64) for weight in heads)
        if not (np.isfinite(query).all() and np.isfinite(key).all()):
            raise InvalidTable(
                f"{self.info.where}: contains NaN or infinity, or its keys do. The checkpoint is "
                "damaged: use a sound copy"
            )
        return Projections(query, key, self.record.head_dim, self.record.rotated)

    def made(self, blocks: Sequence[Heads]) -> tuple[Projections, Floats | None]:
        """Return what the weights make of random inputs, and what they make of them transposed.

        The latter, of queries, is None where they are not square.
        """
        query: dict[int, Floats] = {}
        key: dict[int, Floats] = {}
        rotated: Floats | None = None
        for heads, projections in zip(blocks, self.read(blocks), strict=True):
            width = projections.query.shape[1]
            inputs = np.random.default_rng(0).normal(size=(width, INPUTS))
            # Keys of a group come with each block of its queries.
            query[heads[0].start], key[heads[1].start] = (
                projections.query @ inputs,
                projections.key @ inputs,
            )
            rows = slice(
                *(projections.head_dim * bound for bound in (heads[0].start, heads[0].stop))
            )
            if blocks[-1][0].stop * projections.head_dim == width:
                share = projections.query.T @ inputs[rows]
                rotated = share if rotated is None else rotated + share
        queries, keys = (np.concatenate([*bound.values()]) for bound in (query, key))
        return Projections(queries, keys, self.record.head_dim, self.record.rotated), rotated


def _whole(a: _Layer, b: _Layer, max_heads: int) -> _Related:
    """Relate a whole layer, block by block."""
    blocks, blocks_b = ([*layer.weights.blocks(layer.number, max_heads)] for layer in (a, b))
    if blocks != blocks_b:
        return None, Finding("weights", "other_weights")
    relations_found = [*map(relate_projections, a.read(blocks), b.read(blocks))]
    if len(relations_found) > 1 and all(
        layer.cause == "other_weights" for _, layer in relations_found
    ):
        sketch, rotated = a.made(blocks)
        return relate_sketches(sketch, b.made(blocks)[0], rotated)
    orders = {order for order, _ in relations_found if order}
    return orders.pop() if len(orders) == 1 else None, _worst(
        [layer for _, layer in relations_found]
    )


def _neighbours(side: Side) -> bool | None:
    """Tell whether pairs are neighbours: as declared, else as all weights on disk tell, if so."""
    record, weights = side.rotary[0], side.weights
    if side.declared:
        return record.interleaved
    if weights is None or weights.checkpoint.revision is not None:
        return None
    sizes = [weights.row_sizes(layer, PART)[:, : record.rotated] for layer in weights.layers]
    layout = pair_layout(np.concatenate(sizes)) if sizes else None
    answer = layout.answer if layout else None
    return {"halves": False, "neighbours": True}.get(answer or "")
