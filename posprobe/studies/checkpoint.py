"""All analyses of a reference: of its table, or else of its schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posprobe.analyses.models.rotary_weights import (
    LayerWeights,
    Missing,
    WeightPairOrder,
    WeightUse,
    measure_layer_weights,
    pair_layout,
)
from posprobe.arrays import Device, Floats
from posprobe.errors import PosprobeError, UsageError
from posprobe.families import TokenSample, load_tokens
from posprobe.families.projections import RotaryWeights, open_rotary_weights
from posprobe.measurements import Tokens
from posprobe.progress import stage
from posprobe.schemes import Rotary, Scheme
from posprobe.studies import Analysis, SchemeAnalysis, analyze, analyze_schemes
from posprobe.studies.rotation import weights_rotations
from posprobe.tables import PositionTable

#: Largest number of positions for curves from weights, which reach half as far.
MAX_WEIGHT_CURVE_POSITIONS = 512


def analyze_any(
    loaded: PositionTable | tuple[Scheme, ...],
    *,
    only: Sequence[str] | None = None,
    nulls: int = 0,
    rows: slice | None = None,
    device: Device = "auto",
    seed: int = 0,
    offline: bool = False,
    command: str | None = None,
    all_rows: bool = False,
    weights: Mapping[int, RotaryWeights | Missing] | None = None,
    tokens: Tokens | None = None,
) -> Analysis | SchemeAnalysis:
    """Run the analyses on a loaded table or schemes.

    Parameters
    ----------
    loaded
        Table with the rows to analyse, or schemes, as `load_any` returns them.
    rows
        Rows ``slice(0, N)`` that state the length at which schemes are measured.
    only, nulls, device, seed, command, all_rows
        Options as for `posprobe.analyze`.
    offline
        Whether to use local files only for the token embeddings.
    weights
        Query and key weights from `open_weights`; None for those on this machine.
    tokens
        Sample of the token embeddings; None to read one.

    Raises
    ------
    PosprobeError
        As `posprobe.analyze`; also if ``only`` or ``nulls`` do not apply to a scheme.
    """
    if not isinstance(loaded, tuple):
        tokens = tokens or _sample_tokens(loaded, only, seed=seed, offline=offline)
        return analyze(
            loaded,
            only=only,
            nulls=nulls,
            device=device,
            seed=seed,
            command=command,
            tokens=tokens,
            all_rows=all_rows,
        )
    if nulls < 0:
        raise UsageError(f"`nulls={nulls}`: it must be 0 or more.")
    if only is not None:
        raise UsageError(
            f"{loaded[0].source.reference}: it has no table, and `only` chooses analyses of tables."
        )
    length = scheme_length(rows)
    weights = open_weights(loaded) if weights is None else weights
    measured = {
        number: measure_weight_use(record, weights[number], length)
        for number, record in enumerate(loaded)
        if isinstance(record, Rotary) and number in weights
    }
    return analyze_schemes(
        *loaded, length=length, seed=seed, command=command, weights=measured
    )


def open_weights(
    loaded: PositionTable | tuple[Scheme, ...],
    *,
    everywhere: bool = False,
    layers: Sequence[int] | None = None,
    offline: bool = False,
) -> dict[int, RotaryWeights | Missing]:
    """Find the query and key weights of rotary schemes, by index, without reading them.

    Parameters
    ----------
    loaded
        Result of `load_any`.
    everywhere
        Whether to open weights on the Hub as well.
    layers
        Indices of the layers to open; None for all.
    offline
        Whether to use local files only.

    Raises
    ------
    UsageError
        If one of these layers has no rotary positions.
    """
    records = loaded if isinstance(loaded, tuple) else ()
    rotary = {
        number: record
        for number, record in enumerate(records)
        if isinstance(record, Rotary) and record.family != "formula"
    }
    if not rotary:
        return {}
    source = next(iter(rotary.values())).source
    if source.revision is not None and not everywhere:
        return dict.fromkeys(rotary, "remote")
    opened = open_rotary_weights(
        source.reference, revision=source.revision, offline=offline
    )
    known_layers = {layer for weights in opened for layer in weights.layers}
    if layers is not None and (missing_layers := sorted(set(layers) - known_layers)):
        raise UsageError(
            f"`layers={missing_layers}`: no layer of "
            "that number turns queries and keys. There are "
            f"{', '.join(map(str, sorted(known_layers))) or 'none whose weights are known'}."
        )
    weights_by_number: dict[int, RotaryWeights | Missing] = {}
    for (number, record), weights in zip(rotary.items(), opened, strict=True):
        if record.axes > 1:
            weights_by_number[number] = "axes"
        elif weights.layers:
            weights_by_number[number] = weights.select_layers(layers)
        elif not weights.checkpoint.tensors:
            weights_by_number[number] = "no_weights"
        else:
            weights_by_number[number] = (
                "latent" if weights.config.get("kv_lora_rank") else "no_names"
            )
    return weights_by_number


def measure_weight_use(
    record: Rotary, weights: RotaryWeights | Missing, length: int | None = None
) -> WeightUse:
    """Measure how the query and key weights of a rotary scheme use its pairs, layer by layer.

    Layers that cannot be read, or hold NaN or infinity, are skipped.

    Parameters
    ----------
    record
        Rotary scheme.
    weights
        Its weights, or the reason why there are none.
    length
        Length of the context in positions, on which some scaling rules depend.
    """
    context_length = length or record.max_positions
    ladder = record.frequencies(context_length)
    if isinstance(weights, str):
        return WeightUse((), None, None, False, False, ladder, context_length, weights)
    declared_order: WeightPairOrder = "neighbours" if record.interleaved else "halves"
    curve_length = context_length or MAX_WEIGHT_CURVE_POSITIONS
    options: dict[str, Any] = {
        "ladder": ladder,
        "scale": weights.scale * record.attention_factor(context_length) ** 2,
        "distances": max(min(curve_length, MAX_WEIGHT_CURVE_POSITIONS) // 2, 1),
        "positions": context_length,
        "normed": weights.normed,
    }
    orders: tuple[WeightPairOrder, ...] = ("halves", "neighbours")
    if weights.declared:
        orders = (declared_order,)
    measured, row_norms, skipped, problem = _measure_layers(weights, orders, options)
    rotated_norms = [norms[:, : record.rotated] for norms in row_norms.values()]
    layout = pair_layout(np.concatenate(rotated_norms)) if rotated_norms else None
    pairs = declared_order if weights.declared else layout.answer if layout else None
    return WeightUse(
        layers=tuple(measured.get(pairs, ())) if pairs else (),
        layout=layout,
        pairs=pairs,
        declared=weights.declared,
        normed=weights.normed,
        ladder=np.append(ladder, 0.0) if record.head_dim > record.rotated else ladder,
        positions=context_length,
        missing="unreadable" if problem else None,
        problem=problem,
        bytes=weights.bytes,
        skipped=tuple(skipped),
        rotations=tuple(weights_rotations(weights, row_norms)),
    )


def _measure_layers(
    weights: RotaryWeights,
    orders: tuple[WeightPairOrder, ...],
    options: Mapping[str, Any],
) -> tuple[dict[WeightPairOrder, list[LayerWeights]], dict[int, Floats], list[int], str]:
    """Measure the weights layer by layer.

    Return the results by pair order, the norms of the rows by layer, the layers that were skipped,
    and the first error.
    """
    measured: dict[WeightPairOrder, list[LayerWeights]] = {order: [] for order in orders}
    row_norms: dict[int, Floats] = {}
    skipped: list[int] = []
    problem = ""
    with stage("Reading queries and keys", len(weights.layers)) as advance:
        for layer in weights.layers:
            try:
                projections = weights.read(layer)
            except PosprobeError as error:
                projections, problem = None, problem or str(error)
            advance(1)
            if projections is None or not np.isfinite(projections.row_norms).all():
                skipped.append(layer)
                continue
            row_norms[layer] = projections.row_norms
            for reading, layer_results in measured.items():
                weights_and_biases = (*projections.with_gain(), projections.biases)
                layer_results.append(
                    measure_layer_weights(
                        layer, *weights_and_biases, pair_order=reading, **options
                    )
                )
    return measured, row_norms, skipped, problem


def _sample_tokens(
    table: PositionTable, only: Sequence[str] | None, *, seed: int, offline: bool
) -> TokenSample | None:
    """Sample token embeddings if they are requested, or cost no requests to the Hub."""
    is_remote = table.source.revision is not None
    if is_remote if only is None else not {"scale", "all"} & set(only):
        return None
    try:
        with stage("Reading tokens that positions are added to"):
            return load_tokens(table, seed=seed, offline=offline)
    except UsageError:
        if only and "scale" in only:
            raise
        return None


def scheme_length(rows: slice | None) -> int | None:
    """Return ``N`` of the rows ``0:N`` as the length at which schemes are measured.

    Raises
    ------
    UsageError
        If the rows begin elsewhere, or have no end.
    """
    if rows is None:
        return None
    if rows.start not in (None, 0) or rows.stop is None or rows.stop < 2:
        start, stop = (
            "" if bound is None else bound for bound in (rows.start, rows.stop)
        )
        raise UsageError(
            f"`rows=slice({start}, {stop})`: an encoding without a table depends on "
            "distances alone. Name a length of at least 2: `rows=slice(0, N)`."
        )
    return int(rows.stop)
