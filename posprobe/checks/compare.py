"""Compare the positional encodings of two copies of a model, and their queries and keys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from posprobe import settings
from posprobe.checks.layer_kinds import compare_layer_kinds
from posprobe.checks.live import trained_length
from posprobe.checks.orders import (
    Comparison,
    ExpectedWeights,
    ProjectionState,
    relate_weights,
)
from posprobe.checks.sides import Side
from posprobe.checks.sinks import compare_sinks
from posprobe.checks.storage import name_declared_type, quantised_type
from posprobe.errors import InvalidCheckpoint, NoPositionTable
from posprobe.families.configurations import list_sections
from posprobe.families.rotary import read_logit_scale
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
from posprobe.relations.ladders import measure_harm
from posprobe.schemes import Encoding, LinearBias, RelativeBias, Rotary
from posprobe.tables import PositionTable

#: Ladders that depend on the length of the input are compared at so many times the trained one.
FAR_LENGTH_RATIO = 2


def compare(
    a: Side, b: Side, *, all_layers: bool, expected_weights: ExpectedWeights | None
) -> Comparison:
    """Compare two copies of a model.

    Parameters
    ----------
    a, b
        The copies.
    all_layers
        Whether projections are compared completely.
    expected_weights
        Whether weights are to be the same, or may be another model's; None if they are to be
        related.

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
        return Comparison(*_compare_with_dump(a, b.dump))
    findings: list[Finding] = []
    projections: list[ProjectionState] = []
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
        return Comparison([], [*not_compared, refusal])
    findings += _encoding_findings(a, b)
    not_compared += _several_encodings(a, b)
    if "rotary" in a.encodings and "rotary" in b.encodings:
        weights = relate_weights(
            a, b, all_layers=all_layers, expected_weights=expected_weights
        )
        findings += weights.findings
        not_compared += weights.not_compared
        projections += weights.projections
        layer_findings, layers_not_compared = compare_layer_kinds(a, b)
        findings += layer_findings
        not_compared += layers_not_compared
        if a.checkpoint is not None and b.checkpoint is not None:
            attention_findings, attention_not_compared = _compare_attention(
                a, b, weights.findings
            )
            findings += attention_findings
            not_compared += attention_not_compared
    return Comparison(findings, not_compared, projections)


def _encoding_findings(a: Side, b: Side) -> Iterator[Finding]:
    """Compare the encodings of each kind."""
    for kind in sorted({*a.encodings, *b.encodings}):
        encodings_a, encodings_b = a.encodings.get(kind, {}), b.encodings.get(kind, {})
        if encodings_a and encodings_b:
            yield from _relate_encoding_pairs(_pair_encodings(encodings_a, encodings_b))
        else:
            kind_a, kind_b = (kind, None) if encodings_a else (None, kind)
            yield Finding("encoding", "missing", kind_a, kind_b)


def _several_encodings(a: Side, b: Side) -> Iterator[NotCompared]:
    """Yield kinds of which one copy has more encodings than could be paired."""
    for kind in sorted({*a.encodings} & {*b.encodings}):
        encodings_a, encodings_b = a.encodings[kind], b.encodings[kind]
        n_pairs = len(_pair_encodings(encodings_a, encodings_b))
        if n_pairs < max(len(encodings_a), len(encodings_b)):
            counts = f"{len(encodings_a)} | {len(encodings_b)}"
            yield NotCompared(kind, "several", counts)


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
    ladder_findings = relate_ladders(_rotary_ladder(a), _rotary_ladder(b))
    yield from ladder_findings
    if all(finding.alike for finding in ladder_findings):
        yield from _far_ladder_findings(a, b)
    if (a.rotated, a.head_dim) == (b.rotated, b.head_dim):
        yield Finding("columns", "same_columns", a.rotated, a.head_dim)
    elif a.rotated == b.rotated:
        yield Finding(
            "columns", "columns", a.head_dim, b.head_dim, more={"of": a.rotated}
        )
    if "formula" not in (a.family, b.family):  # a formula states no sections
        yield from _section_findings(a, [*b.sections] or None, in_turn=b.sections_in_turn)


def _far_ladder_findings(a: Rotary, b: Rotary) -> Iterator[Finding]:
    """Compare ladders beyond the trained length, where rules may change them."""
    trained_lengths = [length for length in map(trained_length, (a, b)) if length]
    if not trained_lengths:
        return
    far_length = FAR_LENGTH_RATIO * max(trained_lengths)
    ladders = [
        replace(_rotary_ladder(rotary), frequencies=rotary.frequencies(far_length))
        for rotary in (a, b)
    ]
    if all(finding.alike for finding in relate_ladders(*ladders)):
        return
    distance, rotation = measure_harm(
        ladders[0].frequencies, ladders[1].frequencies, far_length
    )
    yield Finding(
        "ladder",
        "far_ladder",
        far_length,
        first_distance=max(distance, float(min(trained_lengths))),
        rotation=rotation,
        curve=ladders[1].frequencies / ladders[0].frequencies,
    )


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


def _compare_attention(
    a: Side, b: Side, weight_findings: Sequence[Finding]
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the sinks of two checkpoints, and the scale and cap of their logits."""
    assert a.checkpoint is not None and b.checkpoint is not None  # noqa: S101, PT018 - callers check this
    findings, not_compared = compare_sinks(a.checkpoint, b.checkpoint, weight_findings)
    logit_findings, logits_not_compared = _compare_logits(
        a, b, 1.0 if _is_normed(a) else _folded_scale(weight_findings)
    )
    return findings + logit_findings, not_compared + logits_not_compared


def _is_normed(side: Side) -> bool:
    """Tell whether queries and keys are normalised, so that scaled weights change no logit."""
    return side.weights is not None and side.weights.normed


def _folded_scale(weight_findings: Sequence[Finding]) -> float:
    """Return the factor by which the weights of all layers of B scale logits; 1 without one."""
    causes = [finding.cause for finding in weight_findings]
    if "scale_unlike" in causes or "scale_folded" not in causes:
        return 1.0
    finding = weight_findings[causes.index("scale_folded")]
    factor = float(finding.a * finding.b)
    is_balanced = math.isclose(factor, 1.0, rel_tol=RULES["scale_folded"].tolerance)
    return 1.0 if is_balanced else factor


def _compare_logits(
    a: Side, b: Side, folded_scale: float
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the scale and the cap of logits that configurations and weights give."""
    findings, not_compared = [], []
    scales, caps = zip(*map(_logit_settings, (a, b)), strict=True)
    stated_scales = [scale for scale in scales if scale is not None]
    cause = "logit_scale" if folded_scale == 1 else "scale_folded"
    tolerance = RULES[cause].tolerance
    scale_a, scale_b = scales
    if scale_a is not None and scale_b is not None:
        if not math.isclose(scale_a, scale_b * folded_scale, rel_tol=tolerance):
            findings.append(
                Finding("logits", "logit_scale", scale_a, scale_b * folded_scale)
            )
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
