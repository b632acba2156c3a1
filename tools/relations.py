"""Count how often `posprobe check` names what was done to a table, a ladder or a projection.

    uv run python tools/relations.py

Every change of its rules is made to the sample tables, to ladders of published configurations and
to made projections, with drawn sizes; pairs without relation show false kinship. The numbers in
docs/how-to/check.md are what it prints.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import posprobe as pp
from posprobe.checks.layers import RelatedLayer
from posprobe.checks.orders import order_findings, value_findings
from posprobe.encodings.rotary import round_to_type
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.relations import (
    Finding,
    Ladder,
    Projections,
    relate_ladders,
    relate_layouts,
)
from posprobe.relations.tables import relate_tables, resampling_weights
from posprobe.relations.weights import LayerRelation, relate_layer, reorder_rows

Floats: TypeAlias = NDArray[np.float64]
Draw: TypeAlias = np.random.Generator
SAMPLES = (
    "all-minilm-l6-v2", "digits-vit", "rxnmapper-albert", "sapiens-roberta", "whisper-tiny-decoder",
)  # fmt: skip


# --- tables -----------------------------------------------------------------------------------


def in_blocks(values: Floats, bits: int) -> Floats:
    """Round in blocks of 32 as ggml's Q8_0 and Q4_0 do, with scales in half precision."""
    blocks = values.reshape(-1, 32)
    if bits == 8:
        step = np.abs(blocks).max(axis=1, keepdims=True) / 127
    else:
        largest = np.abs(blocks).argmax(axis=1)[:, None]
        step = np.take_along_axis(blocks, largest, 1) / -8
    step = np.where(step == 0, 1, step)
    low, high = (-127, 127) if bits == 8 else (-8, 7)
    codes = np.clip(np.round(blocks / step), low, high)
    return np.asarray(codes * round_to_type(step, "float16")).reshape(values.shape)


def orthogonal(width: int, draw: Draw) -> Floats:
    """Draw a turn of the columns."""
    q, r = np.linalg.qr(draw.normal(size=(width, width)))
    return np.asarray(q * np.sign(np.diag(r)))


def resized(
    values: Floats, layout: Layout, size: int, method: str, corners: bool
) -> Floats:
    """Interpolate a line to ``size`` rows, or a grid to ``size`` rows and columns."""
    cells = (
        values.reshape(layout.height, layout.width, -1)
        if isinstance(layout, Grid)
        else values
    )
    for axis in range(cells.ndim - 1):
        weights = resampling_weights(cells.shape[axis], size, method, corners=corners)
        cells = np.moveaxis(np.tensordot(weights, cells, (1, axis)), 0, axis)
    return np.asarray(cells.reshape(-1, values.shape[1]))


def _noise(values: Floats, share: float, draw: Draw) -> Floats:
    noise = draw.normal(size=values.shape)
    return np.asarray(
        values + share * noise * np.linalg.norm(values) / np.linalg.norm(noise)
    )


def _retrained(values: Floats, draw: Draw) -> Floats:
    first_row, count = int(draw.integers(0, len(values) // 2)), max(2, len(values) // 8)
    copy = _noise(values, float(draw.choice([0.0, 0.002])), draw)
    rows = draw.normal(size=(count, values.shape[1]))
    size = np.median(np.linalg.norm(values, axis=1)) / math.sqrt(values.shape[1])
    copy[first_row : first_row + count] = rows * size
    return copy


def _permuted(values: Floats, draw: Draw) -> Floats:
    # Two neighbours alone would be found again as well, but not by rows that are stored twice.
    return values[draw.permutation(len(values))]


def _zeroed(weight: Floats, draw: Draw) -> Floats:
    """Set some rows or columns to zero, but not all."""
    axis = int(draw.integers(2))
    count = int(draw.integers(1, weight.shape[axis] // 2))
    lines = draw.permutation(weight.shape[axis])[:count]
    copy = weight.copy()
    copy[(slice(None),) * axis + (lines,)] = 0
    return copy


def _columns_exchanged(values: Floats, draw: Draw) -> Floats:
    """Exchange a column, of those that are longer than most, with the one most unlike it."""
    centred = values - values.mean(axis=0)
    norms = np.linalg.norm(centred, axis=0)
    long_columns = np.argsort(norms)[values.shape[1] // 2 :]
    first = draw.choice(long_columns)
    cosines = centred[:, first] @ centred[:, long_columns] / norms[long_columns]
    columns = np.array([first, long_columns[np.argmin(np.abs(cosines))]])
    copy = values.copy()
    copy[:, columns] = values[:, columns[::-1]]
    return copy


#: Changes of a table's values, by the cause that is to be named.
TABLE_CHANGES: Mapping[str, Callable[[Floats, Draw], Floats]] = {
    "identical": lambda v, _: v.copy(),
    "rounded": lambda v, draw: round_to_type(
        v, str(draw.choice(["float16", "bfloat16"]))
    ),
    "quantised": lambda v, draw: in_blocks(v, int(draw.choice([8, 4]))),
    "moved": lambda v, draw: _noise(v, float(draw.choice([0.01, 0.05, 0.1, 0.3])), draw),
    "rows_cut": lambda v, draw: v[int(draw.integers(1, 5)) :],
    "rows_before": lambda v, draw: np.concatenate(
        [draw.normal(size=(int(draw.integers(1, 5)), v.shape[1])) * v.std(), v]
    ),
    "truncated": lambda v, draw: v[: int(draw.integers(len(v) // 2, len(v)))],
    "repeated": lambda v, draw: np.concatenate([v, v[: int(draw.integers(6, len(v)))]]),
    "longer": lambda v, draw: np.concatenate(
        [v, draw.normal(size=(int(draw.integers(6, len(v))), v.shape[1])) * v.std()]
    ),
    "retrained": _retrained,
    "scaled": lambda v, draw: v * float(draw.choice([math.sqrt(v.shape[1]), 0.5, 8.0])),
    "zeroed": _zeroed,
    "replaced": _columns_exchanged,
    "constant_row": lambda v, draw: v + draw.normal(size=v.shape[1]) * v.std(),
    "reversed": lambda v, _: v[::-1],
    "permuted": _permuted,
    "turned": lambda v, draw: v @ orthogonal(v.shape[1], draw),
    "unrelated": lambda v, draw: draw.normal(size=v.shape) * v.std(),
}


def table_cases(seed: int, tables: Mapping[str, pp.PositionTable]) -> Iterator[Any]:
    """Yield cause and findings of every change of every table, once."""
    for name, table in tables.items():
        draw = np.random.default_rng([seed, len(name)])
        values = np.asarray(table.values, np.float64)
        for cause, change in TABLE_CHANGES.items():
            grid = isinstance(table.layout, Grid)
            copy = change(values, draw)
            if grid and len(copy) != len(values):
                continue
            if cause == "quantised" and values.shape[1] % 32:
                continue
            if cause == "rounded" and np.array_equal(copy, values):  # it is stored so
                continue
            layouts = (table.layout, table.layout if grid else Sequence(len(copy)))
            yield name, cause, relate_tables(values, copy, layouts)
        size = (
            int(draw.integers(9, 20))
            if isinstance(table.layout, Grid)
            else int(draw.integers(len(values) // 2, 2 * len(values)))
        )
        size += size in (len(values), table.layout.height)
        method = str(draw.choice(["linear", "bicubic", "bicubic_antialias"]))
        corners = bool(draw.integers(2)) and method != "bicubic_antialias"
        copy = round_to_type(
            resized(values, table.layout, size, method, corners), "float32"
        )
        grid = isinstance(table.layout, Grid)
        layouts = (table.layout, Grid(size, size) if grid else Sequence(size))
        yield name, "resized", relate_tables(values, copy, layouts)
        if isinstance(table.layout, Grid):
            cells = values.reshape(table.layout.height, table.layout.width, -1)
            copy = cells.swapaxes(0, 1).reshape(values.shape)
            yield (
                name,
                "exchanged",
                relate_tables(values, copy, (table.layout, table.layout)),
            )


# --- ladders ----------------------------------------------------------------------------------

_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
#: Ladders of published configurations: width of a head, base, share that rotates, rule, context.
PUBLISHED: Mapping[str, tuple[int, float, float, Mapping[str, Any] | None, int]] = {
    "Llama 2": (128, 1e4, 1.0, None, 4096),
    "Llama 3": (128, 5e5, 1.0, None, 8192),
    "Llama 3.1": (128, 5e5, 1.0, _LLAMA3, 131072),
    "Llama 3.2": (64, 5e5, 1.0, {**_LLAMA3, "factor": 32.0}, 131072),
    "Qwen2": (128, 1e6, 1.0, None, 32768),
    "Qwen2.5, YaRN": (128, 1e6, 1.0, _YARN, 131072),
    "Phi-2": (80, 1e4, 0.4, None, 2048),
    "GPT-NeoX": (96, 1e4, 0.25, None, 2048),
    "Gemma 2": (256, 1e4, 1.0, None, 8192),
    "Gemma 3, global": (256, 1e6, 1.0, {"rope_type": "linear", "factor": 8.0}, 131072),
}


def published(name: str, **overrides: Any) -> Ladder:
    """Build a ladder of a published configuration, or with something changed."""
    width, base, partial, scaling, context = PUBLISHED[name]
    scaling = overrides.get("scaling", scaling)
    parameters = {"partial": overrides.get("partial", partial), "max_positions": context}
    base = overrides.get("base", base)
    omega, factor = pp.encodings.rotary_frequencies(
        width, base=base, scaling=scaling, **parameters
    )
    plain = {"rope_type": "default"} if scaling else None
    unscaled, _ = pp.encodings.rotary_frequencies(
        width, base=base, scaling=plain, **parameters
    )
    return Ladder(omega, factor, unscaled, width, context)


def _as_dumped(omega: Floats) -> Ladder:
    return Ladder(round_to_type(omega, "float32"))


def ladder_cases(seed: int) -> Iterator[tuple[str, str, tuple[Finding, ...]]]:
    """Yield cause and findings of every change of every ladder, as an engine would dump it."""
    for name, (width, base, partial, scaling, _) in PUBLISHED.items():
        draw = np.random.default_rng([seed, len(name), width])
        a = published(name)
        pairs = len(a.frequencies)
        rule = (scaling or {}).get("rope_type")
        by_parts = rule in ("llama3", "yarn")
        frequencies_by_cause: dict[str, Floats] = {"same_ladder": a.frequencies}
        frequencies_by_cause["ladder_rounded"] = round_to_type(
            a.frequencies, str(draw.choice(["bfloat16", "float16"]))
        )
        other_base = float(draw.choice([1e4, 10001.0, 2e5, 1.5e6]))
        other_base = other_base if other_base != base else 7e4
        if not by_parts:
            frequencies_by_cause["base"] = published(name, base=other_base).frequencies
            stretch = int(draw.integers(2, 17))
            grown = base * stretch ** (pairs / (pairs - 1))
            frequencies_by_cause["ntk"] = published(name, base=grown).frequencies
            if rule is None:
                frequencies_by_cause["last_pair"] = base ** -(
                    np.arange(pairs) / (pairs - 1)
                )
                llama3_scaling = {**_LLAMA3, "factor": float(draw.choice([8, 32]))}
                frequencies_by_cause["parts_added"] = published(
                    name, scaling=llama3_scaling
                ).frequencies
                if partial < 1:
                    frequencies_by_cause["spread"] = base ** -(
                        2 * np.arange(pairs) / width
                    )
                    frequencies_by_cause["columns"] = published(
                        name, partial=1.0
                    ).frequencies
        else:
            frequencies_by_cause["parts_lost"] = published(name, scaling=None).frequencies
            assert scaling is not None  # noqa: S101 - its rule was read
            factor = {"factor": float(draw.choice([3.0, 16.0, 24.0]))}
            frequencies_by_cause["parts_factor"] = published(
                name, scaling={**scaling, **factor}
            ).frequencies
            ramp: dict[str, Any] = (
                {"beta_fast": 24.0} if rule == "yarn" else {"low_freq_factor": 2.0}
            )
            if rule == "yarn":
                ramp["truncate"] = False
            frequencies_by_cause["ramp"] = published(
                name, scaling={**scaling, **ramp}
            ).frequencies
        frequencies_by_cause["positions_scaled"] = a.frequencies / float(
            draw.choice([2.0, 4.0, 8.0, 0.25])
        )
        frequencies_by_cause["frequencies"] = a.frequencies * np.exp(
            0.1 * draw.normal(size=pairs)
        )
        frequencies_by_cause["pair_order"] = a.frequencies[draw.permutation(pairs)]
        for cause, omega in frequencies_by_cause.items():
            yield name, cause, relate_ladders(a, _as_dumped(omega))
        yield (
            name,
            "factor",
            relate_ladders(a, Ladder(a.frequencies, (a.factor or 1.0) * 1.2773)),
        )


# --- projections ------------------------------------------------------------------------------


def projections(
    draw: Draw, heads: int = 4, head_dim: int = 16, width: int = 64
) -> Projections:
    """Make queries and keys whose pairs and columns have sizes of their own."""
    rows = np.exp(0.5 * draw.normal(size=heads * head_dim))[:, None]
    matrices = [rows * draw.normal(size=(heads * head_dim, width)) for _ in range(2)]
    return Projections(matrices[0], matrices[1], head_dim, head_dim)


def _each(projections: Projections, change: Callable[[Floats], Floats]) -> Projections:
    return Projections(
        change(projections.query),
        change(projections.key),
        projections.head_dim,
        projections.rotated,
    )


def _gauge(projections: Projections, draw: Draw) -> Projections:
    """Turn each pair of queries and keys by one angle: no logit changes."""
    half, size = projections.head_dim // 2, projections.head_dim
    angle = draw.uniform(1, 3, size=(len(projections.query) // size, half, 1))

    def turned(weight: Floats) -> Floats:
        heads = weight.reshape(-1, size, weight.shape[1])
        pairs = (heads[:, :half] + 1j * heads[:, half:]) * np.exp(1j * angle)
        return np.concatenate([pairs.real, pairs.imag], axis=1).reshape(weight.shape)

    return _each(projections, turned)


def _reflected(weight: Floats, head_dim: int) -> Floats:
    """Negate the second row of each pair of halves."""
    signs = np.repeat([1.0, -1.0], head_dim // 2)
    return np.asarray(weight * np.tile(signs, len(weight) // head_dim)[:, None])


def _heads_moved(projections: Projections, draw: Draw) -> Projections:
    heads = len(projections.query) // projections.head_dim
    order = np.roll(np.arange(heads), int(draw.integers(1, heads)))

    def moved(weight: Floats) -> Floats:
        return weight.reshape(heads, projections.head_dim, -1)[order].reshape(
            weight.shape
        )

    return _each(projections, moved)


def _scale_folded(projections: Projections, draw: Draw) -> Projections:
    factor = float(draw.choice([8.0, 0.25]))
    return Projections(
        projections.query * factor,
        projections.key / factor,
        projections.head_dim,
        projections.rotated,
    )


def _layer_findings(relation: LayerRelation) -> tuple[Finding, ...]:
    return tuple(finding for _, finding in relation.findings())


def weight_cases(seed: int) -> Iterator[tuple[str, str, tuple[Finding, ...]]]:
    """Yield cause and findings of every change of made projections."""
    draw = np.random.default_rng(seed)
    a = projections(draw)
    gain = np.exp(draw.normal(size=a.query.shape[1]))
    half = str(draw.choice(["float16", "bfloat16"]))
    copies: dict[str, Projections] = {
        "identical": a,
        "rounded": _each(a, lambda w: round_to_type(w, half)),
        "quantised": _each(a, lambda w: in_blocks(w, 8)),
        "moved": _each(a, lambda w: _noise(w, 0.1, draw)),
        "gain_folded": _each(a, lambda w: w * gain),
        "scale_folded": _scale_folded(a, draw),
        "heads_order": _heads_moved(a, draw),
        "weights_transposed": _each(a, lambda w: w.T),
        "gauge": _gauge(a, draw),
        "reflected": _each(a, lambda w: _reflected(w, a.head_dim)),
        "turned_apart": replace(a, query=_gauge(a, draw).query),
        "other_weights": projections(draw),
    }
    for cause, b in copies.items():
        yield "projections", cause, _layer_findings(relate_layer(a, b))
    for (first_layout, second_layout), order, cause in (
        ((False, False), "same", "same_pairs"),
        ((False, True), "to_neighbours", "pairs_reordered"),
        ((True, False), "to_halves", "pairs_reordered"),
        ((False, False), "to_neighbours", "pairs_mixed_up"),
        ((False, True), "same", "pairs_mixed_up"),
        ((False, True), "to_halves", "pairs_mixed_up"),
    ):
        change = str(draw.choice(["none", "8 bits", "noise"]))
        query, key = (
            reorder_rows(w, order, a.head_dim, a.rotated) for w in (a.query, a.key)
        )
        b = Projections(query, key, a.head_dim, a.rotated)
        if change != "none":
            rounding = {
                "8 bits": lambda w: in_blocks(w, 8),
                "noise": lambda w: _noise(w, 0.1, draw),
            }
            b = _each(b, rounding[change])
        finding = relate_layouts((first_layout, second_layout), relate_layer(a, b).order)
        yield "projections", cause, () if finding is None else (finding,)


def _with_side(projections: Projections, side: str, weight: Floats) -> Projections:
    return (
        replace(projections, query=weight)
        if side == "query"
        else replace(projections, key=weight)
    )


def _replaced(weight: Floats, draw: Draw) -> Floats:
    """Replace some rows by others of the same sizes, at most a sixth."""
    rows = draw.permutation(len(weight))[: int(draw.integers(1, len(weight) // 6))]
    copy = weight.copy()
    sizes = np.linalg.norm(weight[rows], axis=1, keepdims=True)
    usual_size = np.median(np.linalg.norm(weight, axis=1))
    new_rows = draw.normal(size=(len(rows), weight.shape[1]))
    new_rows /= np.linalg.norm(new_rows, axis=1, keepdims=True)
    copy[rows] = new_rows * np.maximum(sizes, usual_size)
    return copy


def _damaged_copies(
    sound: list[Projections],
    rounding: Callable[[Floats], Floats],
    side: str,
    faulty: set[int],
    draw: Draw,
) -> dict[str, list[Projections]]:
    """Damage one side of some layers after it was rounded; a gain shows in little noise alone."""
    gain = np.exp(draw.normal(size=sound[0].query.shape[1]))
    rounded_layers = [_each(layer, rounding) for layer in sound]
    changes: tuple[tuple[str, Callable[[Floats], Floats], list[Projections]], ...] = (
        ("zeroed", lambda w: _zeroed(w, draw), rounded_layers),
        ("replaced", lambda w: _replaced(w, draw), rounded_layers),
        ("gain_unlike", lambda w: w * gain, sound),
    )
    return {
        cause: [
            _with_side(layer, side, change(getattr(layer, side)))
            if k in faulty
            else layer
            for k, layer in enumerate(layers)
        ]
        for cause, change, layers in changes
    }


def layer_cases(seed: int) -> Iterator[tuple[str, str, tuple[Finding, ...]]]:
    """Yield cause and findings of faults of one projection or one layer of three."""
    draw = np.random.default_rng([11, seed])
    sound = [projections(draw) for _ in range(3)]
    n_rows, head_dim = len(sound[0].query), sound[0].head_dim
    rounding: Callable[[Floats], Floats] = [
        lambda w: w,
        lambda w: round_to_type(w, "bfloat16"),
        lambda w: in_blocks(w, int(draw.choice([8, 4]))),
        lambda w: _noise(w, 0.08, draw),
    ][int(draw.integers(4))]

    def permuted(weight: Floats) -> Floats:
        heads = int(draw.choice([2, 8]))
        return [
            lambda: reorder_rows(weight, "to_neighbours", head_dim, head_dim),
            lambda: reorder_rows(weight, "to_halves", head_dim, head_dim),
            lambda: reorder_rows(
                weight, "to_neighbours", n_rows // heads, n_rows // heads
            ),
            lambda: weight[draw.permutation(n_rows)],
            lambda: np.roll(weight, 2, axis=0),
        ][int(draw.integers(5))]()

    side = str(draw.choice(["query", "key"]))
    faulty = {int(draw.integers(3))} if draw.random() < 0.5 else {0, 1, 2}
    one = int(draw.integers(3))
    copies = {
        "half_permuted": [
            _with_side(layer, side, permuted(getattr(layer, side)))
            if k in faulty
            else layer
            for k, layer in enumerate(sound)
        ],
        "heads_separated": [
            _with_side(layer, side, np.roll(getattr(layer, side), head_dim, axis=0))
            for layer in sound
        ],
        "layers_reordered": [
            _each(layer, lambda w: reorder_rows(w, "to_neighbours", head_dim, head_dim))
            if k == one
            else layer
            for k, layer in enumerate(sound)
        ],
        "unlike_rest": [
            _with_side(layer, side, draw.normal(size=layer.query.shape))
            if k == one
            else layer
            for k, layer in enumerate(sound)
        ],
    }
    rounded_copies = {
        cause: [_each(layer, rounding) for layer in copy]
        for cause, copy in copies.items()
    }
    rounded_copies |= _damaged_copies(sound, rounding, side, faulty, draw)
    for cause, copy in rounded_copies.items():
        layers = [
            RelatedLayer(k, relate_layer(a, b), "all", None, (4, 4))
            for k, (a, b) in enumerate(zip(sound, copy, strict=True))
        ]
        findings = (*value_findings(layers), *order_findings(layers, (False, False)))
        yield "layers", cause, findings


# --- unrelated --------------------------------------------------------------------------------


Kind: TypeAlias = Callable[[int, int, Draw], Floats]


def _smooth(n: int, d: int, draw: Draw) -> Floats:
    count = int(draw.integers(2, 8))
    basis = np.cos(np.pi * np.outer(np.arange(n) + 0.5, np.arange(count)) / n)
    return np.asarray(basis @ draw.normal(size=(count, d)))


def _waves(n: int, d: int, draw: Draw) -> Floats:
    omega = 10 ** -(draw.uniform(1.5, 5) * np.arange(d // 2) / (d // 2))
    angles = np.outer(np.arange(n), omega) + draw.uniform(0, 2 * np.pi, d // 2)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1) @ orthogonal(d, draw)


def _trained(n: int, d: int, draw: Draw) -> Floats:
    """Take rows of a trained table, their columns turned and noise put on them."""
    values = np.asarray(pp.load(f"sample:{draw.choice(SAMPLES)}").values, np.float64)
    width = values.shape[1]
    values = (values @ orthogonal(max(d, width), draw)[:width, :d])[:n]
    missing = draw.normal(size=(n - len(values), d)) * values.std()
    return _noise(np.concatenate([values, missing]), float(draw.uniform(0, 0.5)), draw)


#: Kinds of tables by which false kinship is counted.
KINDS: Mapping[str, Kind] = {
    "noise": lambda n, d, draw: draw.normal(size=(n, d)),
    "walk": lambda n, d, draw: np.cumsum(draw.normal(size=(n, d)), axis=0),
    "smooth": _smooth,
    "waves": _waves,
    "trained": _trained,
    "few directions": lambda n, d, draw: (
        draw.normal(size=(n, 3)) @ draw.normal(size=(3, d))
    ),
    "sparse": lambda n, d, draw: draw.normal(size=(n, d)) * (draw.random((n, d)) < 0.05),
    "coarse": lambda n, d, draw: np.round(2 * draw.normal(size=(n, d))) / 2,
}


def unrelated(seed: int) -> tuple[str, Floats, Floats]:
    """Draw two tables of one size without relation; of every fourth pair the mean row is one."""
    draw = np.random.default_rng([7, seed])
    n, d = int(draw.choice([16, 49, 64, 128, 256])), int(draw.choice([16, 32, 64, 128]))
    m = n if draw.random() < 0.75 else int(draw.choice([36, 100, 200]))
    names = [str(draw.choice([*KINDS])) for _ in range(2)]
    a, b = (KINDS[name](rows, d, draw) for name, rows in zip(names, (n, m), strict=True))
    a, b = (rows * math.sqrt(len(rows)) / np.linalg.norm(rows) for rows in (a, b))
    if not seed % 4:
        mean = draw.normal(size=d) * 10 ** draw.uniform(-1, 1)
        a, b = (rows - rows.mean(axis=0) + mean for rows in (a, b))
        names.append("one mean")
    return ", ".join(names), a, b


#: What says of two tables that they are not one made of the other.
NO_KIN = {"unrelated", "width", "truncated", "longer"}


def false_kin(count: int) -> Counter[str]:
    """Count pairs of unrelated tables that are called kin, by their kinds and what they are called.

    Lines of positions and grids take turns where both are squares.
    """
    causes: Counter[str] = Counter()
    for seed in range(count):
        kinds, a, b = unrelated(seed)
        sides = [math.isqrt(len(rows)) for rows in (a, b)]
        square = all(
            side**2 == len(rows) for side, rows in zip(sides, (a, b), strict=True)
        )
        grids = (Grid(sides[0], sides[0]), Grid(sides[1], sides[1]))
        names = {
            finding.cause
            for finding in relate_tables(a, b, grids if square and seed % 2 else None)
        }
        if names - NO_KIN:
            causes[f"{kinds}: {' '.join(sorted(names))}"] += 1
    return causes


def cases(seed: int) -> Iterator[tuple[str, str, tuple[Finding, ...]]]:
    """Yield all cases of one seed: subject, cause, findings."""
    tables = {name: pp.load(f"sample:{name}") for name in SAMPLES}
    yield from table_cases(seed, tables)
    yield from ladder_cases(seed)
    for repeat in range(5):
        yield from weight_cases(10 * seed + repeat)
        yield from layer_cases(10 * seed + repeat)


def main() -> None:
    """Print rule by rule how many changes were named, and what others were called."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    correct: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    mistakes: Counter[tuple[str, str, str]] = Counter()
    for seed in range(1, 5):
        for subject, cause, findings in cases(seed):
            names = [finding.cause for finding in findings]
            attempts[cause] += 1
            correct[cause] += cause in names
            if cause not in names:
                mistakes[subject, cause, " ".join(names)] += 1
    print("| change | named right |\n| --- | ---: |")
    for cause, count in attempts.items():
        print(f"| {cause} | {correct[cause]} of {count} |")
    print(f"| **all** | {correct.total()} of {attempts.total()} |")
    for (subject, cause, reported), count in mistakes.items():
        print(f"wrong: {subject}: {cause} is called {reported or 'nothing'} ({count})")
    kin = false_kin(10_000)
    print(f"unrelated tables called kin: {kin.total()} of 10,000", *kin.items())


if __name__ == "__main__":
    main()
