"""Compare the positional encodings of two copies of a model, and their queries and keys.

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
from posprobe.checks.sides import Side
from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    NoPositionTable,
    PosprobeError,
)
from posprobe.families.configurations import list_sections
from posprobe.families.projections import HeadRanges, RotaryWeights
from posprobe.families.rotary import read_logit_scale
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
from posprobe.schemes import Encoding, LinearBias, RelativeBias, Rotary
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: A projection with more numbers is read whole only if all layers are requested; this bounds the
#: time.
MAX_WHOLE_LAYER_NUMBERS = 2**20
#: At most this many numbers of the queries of a larger layer are read at once: a head of a model
#: of 7B. The intermediate arrays of a comparison take 20 times their memory.
MAX_BLOCK_NUMBERS = 2**19
#: At most this many numbers of the queries are requested from the Hub at once: 8 MB in half
#: precision.
MAX_BATCH_NUMBERS = 2**22
#: The query heads and the key heads that are read where one head is enough.
FIRST_HEADS: HeadRanges = (range(1), range(1))
#: A whole layer is compared by its products with this many random inputs.
N_SKETCH_INPUTS = 8
#: Types of ggml with these prefixes round each number to the nearest of its block. Other types
#: keep several numbers as one code; those of ONNX may have a step for each column.
NEAREST_ROUNDING_PREFIXES = ("Q", "IQ4", "MXFP4")
#: The order of the rows, None if it is not recognised, and the finding on the values.
_OrderAndFinding: TypeAlias = tuple[str | None, Finding]


def compare(
    a: Side, b: Side, *, all_layers: bool
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare two copies; return the findings, and the records of what was not compared.

    Raises
    ------
    InvalidCheckpoint
        If the first is a dump and the second is a checkpoint.
    NoPositionTable
        If neither has an encoding of position.
    """
    if a.dump is not None and b.dump is None:
        raise InvalidCheckpoint(
            f"{a.name}: a dump is held against a checkpoint. Name the checkpoint first."
        )
    has_any_encoding = a.encodings or b.encodings or a.dump is not None
    if not has_any_encoding and not a.unread_schemes and not b.unread_schemes:
        raise NoPositionTable(
            f"{a.name} and {b.name}: neither has a position that could be compared. "
            "`posprobe inspect` says what they have."
        )
    if b.dump is not None:
        return _compare_with_dump(a, b.dump)
    findings: list[Finding] = []
    not_compared = [
        NotCompared(scheme, "no_numbers", decides=False)
        for scheme in sorted({*a.unread_schemes} & {*b.unread_schemes})
    ]
    if not a.encodings.keys() & b.encodings.keys():
        kinds_a, kinds_b = (" and ".join(side.encodings) for side in (a, b))
        if kinds_a and kinds_b:
            refusal = NotCompared("encoding", "other_kinds", f"{kinds_a} | {kinds_b}")
        else:
            refusal = NotCompared("encoding", "no_encoding", "B" if kinds_a else "A")
        return [], [*not_compared, refusal]
    for kind in sorted({*a.encodings, *b.encodings}):
        encodings_a, encodings_b = a.encodings.get(kind, {}), b.encodings.get(kind, {})
        if not encodings_a or not encodings_b:
            kind_a, kind_b = (kind, None) if encodings_a else (None, kind)
            findings.append(Finding("encoding", "missing", kind_a, kind_b))
            continue
        encoding_pairs = _pair_encodings(encodings_a, encodings_b)
        if len(encoding_pairs) < max(len(encodings_a), len(encodings_b)):
            counts = f"{len(encodings_a)} | {len(encodings_b)}"
            not_compared.append(NotCompared(kind, "several", counts))
        findings += _relate_encoding_pairs(encoding_pairs)
    if "rotary" in a.encodings and "rotary" in b.encodings:
        weight_findings, weights_not_compared = relate_weights(
            a, b, all_layers=all_layers
        )
        findings += weight_findings
        not_compared += weights_not_compared
        if a.checkpoint is not None and b.checkpoint is not None:
            logit_findings, logits_not_compared = _compare_logits(a, b)
            findings += logit_findings
            not_compared += logits_not_compared
    return findings, not_compared


def _pair_encodings(
    encodings_a: Mapping[str, Encoding], encodings_b: Mapping[str, Encoding]
) -> list[tuple[str, Encoding, Encoding]]:
    """Pair encodings by name, or in their order if the names differ but not their number."""
    if encodings_a.keys() != encodings_b.keys() and len(encodings_a) == len(encodings_b):
        return [
            (name, encodings_a[name], encoding_b)
            for name, encoding_b in zip(encodings_a, encodings_b.values(), strict=True)
        ]
    return [
        (name, encodings_a[name], encodings_b[name])
        for name in encodings_a
        if name in encodings_b
    ]


def _relate_encoding_pairs(
    encoding_pairs: Sequence[tuple[str, Encoding, Encoding]],
) -> Iterator[Finding]:
    """Compare each pair; findings name their encoding where there are several."""
    for name, encoding_a, encoding_b in encoding_pairs:
        encoding_name = name if len(encoding_pairs) > 1 else ""
        for finding in _relate_encodings(encoding_a, encoding_b):
            yield replace(finding, part=encoding_name)


def _relate_encodings(a: Encoding, b: Encoding) -> Sequence[Finding]:
    match a, b:
        case PositionTable(), PositionTable():
            values_a, values_b = (np.asarray(t.values, dtype=np.float64) for t in (a, b))
            types = [quantised_type(table.source) for table in (a, b)]
            findings = relate_tables(values_a, values_b, (a.layout, b.layout))
            return [name_declared_type(finding, types) for finding in findings]
        case LinearBias(), LinearBias():
            return relate_slopes(a.slopes, b.slopes)
        case RelativeBias(), RelativeBias():
            return relate_biases(a.values, b.values)
        case Rotary(), Rotary():
            return list(_rotary_findings(a, b))
    raise TypeError((a, b))


def _rotary_findings(a: Rotary, b: Rotary) -> Iterator[Finding]:
    if a.axes != b.axes:
        yield Finding("sections", "axes", a.axes, b.axes)
        return
    yield from relate_ladders(_rotary_ladder(a), _rotary_ladder(b))
    if (a.rotated, a.head_dim) == (b.rotated, b.head_dim):
        yield Finding("columns", "same_columns", a.rotated, a.head_dim)
    elif a.rotated == b.rotated:
        yield Finding(
            "columns", "columns", a.head_dim, b.head_dim, more={"of": a.rotated}
        )
    if a.window and b.window and a.window != b.window:
        yield Finding("window", "window", a.window, b.window)
    if "formula" not in (a.family, b.family):  # a formula states no sections
        yield from _section_findings(a, [*b.sections] or None, in_turn=b.sections_in_turn)


def _section_findings(
    a: Rotary, sections: list[int] | None, *, in_turn: bool | None
) -> Iterator[Finding]:
    """Compare how many pairs turn along each axis, and whether axes take them in turn."""
    stored_sections = [*a.sections] or None
    if stored_sections != sections:
        yield Finding("sections", "sections", stored_sections, sections)
    if (
        stored_sections
        and sections
        and in_turn is not None
        and a.sections_in_turn != in_turn
    ):
        orders = {True: "interleaved", False: "contiguous"}
        yield Finding("sections", "sections", orders[a.sections_in_turn], orders[in_turn])


def _rotary_ladder(rotary: Rotary) -> Ladder:
    return Ladder(
        rotary.frequencies(),
        rotary.attention_factor(),
        rotary.unscaled(),
        rotary.head_dim,
        rotary.seen(rotary.max_positions),
    )


def _compare_with_dump(a: Side, dump: Dump) -> tuple[list[Finding], list[NotCompared]]:
    rotary = a.rotary_schemes[0] if len(a.rotary_schemes) == 1 else None
    if a.dump is not None:
        ladder, are_neighbours = a.dump.ladder, None
    elif rotary is not None:
        ladder, are_neighbours = _rotary_ladder(rotary), rotary.interleaved
    else:
        reason = "many_ladders" if a.rotary_schemes else "no_rotation"
        rotary_names = ", ".join(
            f"#{name}" for name in a.encodings.get("rotary", {}) if name
        )
        return [], [NotCompared("ladder", reason, rotary_names)]
    findings = list(relate_ladders(ladder, dump.ladder))
    not_compared = []
    if dump.ladder.factor is None and ladder.factor not in (None, 1.0):
        not_compared.append(NotCompared("factor", "no_cosines"))
    if rotary and rotary.sections:
        if dump.sections is None:
            not_compared.append(NotCompared("sections", "no_sections"))
        else:
            findings += _section_findings(rotary, dump.sections, in_turn=dump.in_turn)
            if dump.in_turn is None:
                not_compared.append(NotCompared("sections", "no_order", decides=False))
    axes = rotary.axes if rotary else 1
    declared_neighbours = are_neighbours if a.declares_pairs else None
    pairs_finding = relate_query(ladder, dump, declared_neighbours) if axes == 1 else None
    if pairs_finding is not None:
        findings.append(pairs_finding)
    elif axes > 1:
        not_compared.append(NotCompared("pairs", "many_axes"))
    else:
        reason = "no_query" if dump.q is None else "query_tells_not"
        not_compared.append(NotCompared("pairs", reason))
    return findings, not_compared


def _compare_logits(a: Side, b: Side) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the scale and the cap of logits that the configurations state."""
    findings, not_compared = [], []
    scales, caps = zip(*map(_logit_settings, (a, b)), strict=True)
    stated_scales = [scale for scale in scales if scale is not None]
    tolerance = RULES["logit_scale"].tolerance
    if len(stated_scales) == 2 and not math.isclose(*stated_scales, rel_tol=tolerance):
        findings.append(Finding("logits", "logit_scale", *stated_scales))
    elif len(stated_scales) == 1 and not math.isclose(stated_scales[0], 1.0):
        not_compared.append(NotCompared("logits", "no_scale", decides=False))
    if None not in caps and caps[0] != caps[1]:
        findings.append(Finding("logits", "soft_cap", *caps))
    return findings, not_compared


def _logit_settings(side: Side) -> tuple[float | None, float | None]:
    """Return the factor of the logits beside 1 / sqrt(head width), and their cap, 0 for none.

    Both are None where a GGUF file omits them, because llama.cpp knows some by the architecture.
    """
    assert side.checkpoint is not None  # noqa: S101 - callers check this
    may_omit_scale = side.checkpoint.format == "GGUF"
    scale, cap = (None, None) if may_omit_scale else (1.0, 0.0)
    for section in list_sections(side.checkpoint.config):
        if section.is_vision:
            continue
        scale = read_logit_scale(section, side.rotary_schemes[0].head_dim) or scale
        if section.config.get("attn_logit_softcapping"):
            cap = settings.read_number(
                section.config, "attn_logit_softcapping", path=section.path
            )
    return scale, cap


# --- queries and keys


def quantised_type(storage: Source | TensorInfo) -> str | None:
    """Return the quantised type in which numbers are stored; None if they are not quantised."""
    return storage.quantisation.name if storage.quantisation else None


def name_declared_type(finding: Finding, types: Sequence[str | None]) -> Finding:
    """Add the quantised type that a file declares to a finding on its values.

    Values that moved further than by rounding stay "moved" if the type rounds to the nearest.
    Of other types the declaration is the only evidence.
    """
    side = (
        finding.more["side"] if finding.cause == "quantised" else "b" if types[1] else "a"
    )
    declared_type = types[side == "b"]
    if declared_type is None or finding.cause not in ("quantised", "moved"):
        return finding
    details = {**finding.more, "type": declared_type, "side": side}
    nearer_share = details.pop("beyond", {}).get(side, 0.0)
    rounds_to_nearest = declared_type.startswith(NEAREST_ROUNDING_PREFIXES)
    if rounds_to_nearest and nearer_share >= RULES["quantised"].tolerance:
        return replace(finding, more=details)
    return replace(finding, cause="quantised", more=details)


def relate_weights(
    a: Side, b: Side, *, all_layers: bool
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare pairs as declared, and the order of the rows that make queries and keys."""
    has_weights = a.checkpoint is not None and b.checkpoint is not None
    findings_by_cause: dict[tuple[str, str | None], list[tuple[int, Finding]]] = {}
    not_compared = []
    try:
        related = _relate_layers(a, b, all_layers=all_layers) if has_weights else ()
        for layer, order, finding in related:
            findings_by_cause.setdefault((finding.cause, order), []).append(
                (layer, finding)
            )
    except PosprobeError as error:
        not_compared.append(NotCompared("weights", str(error)))
        findings_by_cause = {}
    are_neighbours = _are_pairs_neighbours(a), _are_pairs_neighbours(b)
    findings = []
    for layer_findings in findings_by_cause.values():
        worst = _worst_finding([finding for _, finding in layer_findings])
        layers = [layer for layer, _ in layer_findings]
        findings.append(replace(worst, more={**worst.more, "layers": layers}))
    recognised_orders = sorted({order for _, order in findings_by_cause if order})
    orders: list[str | None] = [*recognised_orders] or [None]
    pairs_findings = [relate_layouts(are_neighbours, order) for order in orders]
    findings += {
        pairs_finding.cause: pairs_finding
        for pairs_finding in pairs_findings
        if pairs_finding is not None
    }.values()
    if not findings_by_cause and not not_compared:
        reason = "no_projections" if has_weights else "no_weights"
        not_compared.append(NotCompared("weights", reason, decides=False))
    if None in pairs_findings:
        not_compared.append(NotCompared("pairs", "pairs_unknown"))
    return findings, not_compared


def _worst_finding(findings: Sequence[Finding]) -> Finding:
    return max(
        findings,
        key=lambda finding: (finding.cause == "other_weights", finding.value or 0.0),
    )


def _relate_layers(
    a: Side, b: Side, *, all_layers: bool
) -> Iterator[tuple[int, str | None, Finding]]:
    """Yield the layers of both copies, each with the order of its rows and the finding on them."""
    rotary_a, rotary_b = a.rotary_schemes[0], b.rotary_schemes[0]
    if a.weights is None or b.weights is None or rotary_a.head_dim != rotary_b.head_dim:
        return
    layers = sorted(a.weights.layers)
    if not layers or layers != sorted(b.weights.layers):
        return
    if not all_layers:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    for layer_index in layers:
        with stage(f"Comparing queries and keys of layer {layer_index}"):
            layer_a = _Layer(a.weights, rotary_a, layer_index)
            layer_b = _Layer(b.weights, rotary_b, layer_index)
            query_infos = [layer_a.query_info, layer_b.query_info]
            n_numbers = max(math.prod(info.shape) for info in query_infos)
            is_large = n_numbers > MAX_WHOLE_LAYER_NUMBERS
            if not all_layers and (is_large or layer_a.is_remote or layer_b.is_remote):
                head_a, head_b = (
                    next(layer.read([FIRST_HEADS])) for layer in (layer_a, layer_b)
                )
                order, finding = relate_projections(head_a, head_b)
                finding = replace(finding, more={**finding.more, "read": "first head"})
            else:
                max_numbers = MAX_BLOCK_NUMBERS if is_large else MAX_WHOLE_LAYER_NUMBERS
                order, finding = _relate_whole_layer(layer_a, layer_b, max_numbers)
            types = [quantised_type(info) for info in query_infos]
            yield layer_index, order, name_declared_type(finding, types)


@dataclass(frozen=True, eq=False)
class _Layer:
    """Queries and keys of one layer of one copy."""

    weights: RotaryWeights
    rotary: Rotary
    layer: int

    @property
    def query_info(self) -> TensorInfo:
        """Name, shape and dtype of the tensor that holds the query projection."""
        tensor_names = self.weights.layers[self.layer]
        return self.weights.checkpoint.tensors[f"{tensor_names.query}.weight"]

    @property
    def is_remote(self) -> bool:
        """Whether the checkpoint is stored on the Hub."""
        return self.weights.checkpoint.revision is not None

    def read(self, blocks: Sequence[HeadRanges]) -> Iterator[Projections]:
        """Read blocks of heads, in their order; adjacent blocks on the Hub in one request."""
        block_numbers = (
            len(blocks[0][0]) * self.rotary.head_dim * self.query_info.shape[1]
        )
        batch_blocks = max(MAX_BATCH_NUMBERS // block_numbers, 1) if self.is_remote else 1
        for begin in range(0, len(blocks), batch_blocks):
            batch = blocks[begin : begin + batch_blocks]
            queries, keys = (range(batch[0][k].start, batch[-1][k].stop) for k in (0, 1))
            projections = self.weights.read(self.layer, (queries, keys))
            for block_queries, block_keys in batch:
                query_slice, key_slice = (
                    slice(block_heads.start - heads.start, block_heads.stop - heads.start)
                    for block_heads, heads in (
                        (block_queries, queries),
                        (block_keys, keys),
                    )
                )
                yield self._build_projections(
                    projections.query[query_slice], projections.key[key_slice]
                )

    def _build_projections(self, *heads: NDArray[Any]) -> Projections:
        query, key = (
            weight.reshape(-1, weight.shape[-1]).astype(np.float64) for weight in heads
        )
        if not (np.isfinite(query).all() and np.isfinite(key).all()):
            raise InvalidTable(
                f"{self.query_info.subject}: contains NaN or infinity, or "
                "its keys do. The checkpoint is damaged: use a sound copy"
            )
        return Projections(query, key, self.rotary.head_dim, self.rotary.rotated)

    def sketch(self, blocks: Sequence[HeadRanges]) -> tuple[Projections, Floats | None]:
        """Return the weights times random inputs, and the transposed queries times them.

        The second product is None if the query projection is not square.
        """
        query_products: dict[int, Floats] = {}
        key_products: dict[int, Floats] = {}
        transposed_product: Floats | None = None
        for (queries, keys), projections in zip(blocks, self.read(blocks), strict=True):
            width, head_dim = projections.query.shape[1], projections.head_dim
            inputs = np.random.default_rng(0).normal(size=(width, N_SKETCH_INPUTS))
            query_products[queries.start] = projections.query @ inputs
            # The keys of a group come with each block of its queries, and are stored once.
            key_products[keys.start] = projections.key @ inputs
            if blocks[-1][0].stop * head_dim == width:
                rows = slice(queries.start * head_dim, queries.stop * head_dim)
                block_product = projections.query.T @ inputs[rows]
                if transposed_product is None:
                    transposed_product = block_product
                else:
                    transposed_product = transposed_product + block_product
        query = np.concatenate([*query_products.values()])
        key = np.concatenate([*key_products.values()])
        projected = Projections(query, key, self.rotary.head_dim, self.rotary.rotated)
        return projected, transposed_product


def _relate_whole_layer(a: _Layer, b: _Layer, max_numbers: int) -> _OrderAndFinding:
    """Relate all heads of a layer, block by block."""
    blocks, blocks_b = (
        [*layer.weights.iter_blocks(layer.layer, max_numbers)] for layer in (a, b)
    )
    if blocks != blocks_b:
        return None, Finding("weights", "other_weights")
    related_blocks = [*map(relate_projections, a.read(blocks), b.read(blocks))]
    findings = [finding for _, finding in related_blocks]
    if len(findings) > 1 and all(
        finding.cause == "other_weights" for finding in findings
    ):
        sketch_a, transposed_product = a.sketch(blocks)
        sketch_b, _ = b.sketch(blocks)
        return relate_sketches(sketch_a, sketch_b, transposed_product)
    orders = {order for order, _ in related_blocks if order}
    order = orders.pop() if len(orders) == 1 else None
    return order, _worst_finding(findings)


def _are_pairs_neighbours(side: Side) -> bool | None:
    """Tell whether pairs are neighbours: as declared, else by the sizes of all rows on disk."""
    rotary, weights = side.rotary_schemes[0], side.weights
    if side.declares_pairs:
        return rotary.interleaved
    if weights is None or weights.checkpoint.revision is not None:
        return None
    row_sizes = [
        weights.row_norms(layer, MAX_BLOCK_NUMBERS)[:, : rotary.rotated]
        for layer in weights.layers
    ]
    layout = pair_layout(np.concatenate(row_sizes)) if row_sizes else None
    pair_order = layout.answer if layout else None
    return {"halves": False, "neighbours": True}.get(pair_order or "")
