"""What positions add to the hidden states, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from posprobe import analyses, forward
from posprobe.analyses import Patches, Similarity
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.arrays import Array
from posprobe.layouts import Grid, Layout
from posprobe.measurements.base import Drawing
from posprobe.measurements.baselines import formula_numbers, made, numbers_of_table
from posprobe.measurements.model.base import (
    SINUSOID,
    WALKS,
    LabelledRow,
    ModelInputs,
    ModelMeasurement,
    by_layer,
)
from posprobe.nulls import band
from posprobe.tables import PositionTable
from posprobe.text import Block, cell, fine_percent, lookup, show

#: Numbers of a layer's table that are compared with the sinusoid and random walks, and what they
#: are called.
LAYER_NUMBERS = {
    "similarity.centered.neighbour_mean": "neighbour cosine",
    "similarity.centered.translation_invariance": "invariance",
    "pca.stable_rank": "stable rank",
    "sinusoid.cka": "CKA with the sinusoid",
}


def _states(given: ModelInputs) -> MeanDecomposition:
    found = forward.decompose(
        given.model, given.batches("hidden states"), positions=given.positions,
        layers=given.layers, name=given.reference,
    )  # fmt: skip
    return with_numbers(found, given.nulls, given.seed)


def with_numbers(found: MeanDecomposition, draws: int, seed: int) -> MeanDecomposition:
    """Measure the table of every layer, and the sinusoid and random walks of the same shape.

    Parameters
    ----------
    found
        Of all its layers.
    draws
        Random walks, whose steps are equally long.
    seed
        Of the walks.
    """
    tables = [found.table(number) for number in found.layers]
    layout, dim = tables[0].layout, tables[0].dim
    numbers = [numbers_of_table(table) for table in tables]
    walks = (made(_walk(layout, dim, seed, draw), layout) for draw in range(draws))
    drawn = [numbers_of_table(walk) for walk in walks]
    return replace(
        found,
        layers={
            number: replace(layer, analyses=known)
            for (number, layer), known in zip(found.layers.items(), numbers, strict=True)
        },
        baselines={
            "sinusoid": dict(formula_numbers(layout, dim)),
            "walk": {key: band([one.get(key) for one in drawn]) for key in numbers[0]},
            "draws": draws,
            "seed": seed,
        },
    )


def _drawn_with(result: MeanDecomposition) -> dict[str, Any]:
    """Compute what the figures of layers show: cosines and components of some, and baselines."""
    from posprobe.figures.common import spread
    from posprobe.figures.model_states import PANELS

    moving = [n for n, layer in result.layers.items() if layer.stable_rank is not None]
    shown = {n: result.table(n) for n in spread(moving, PANELS)}
    return {
        **result.baselines,
        "cosines": {n: cosines_of(table) for n, table in shown.items()},
        "components": {n: analyses.pca(table) for n, table in shown.items()},
    }


def cosines_of(table: PositionTable) -> Patches | Similarity:
    """Return what a panel of cosines shows: a mosaic of a small grid, else the matrix."""
    from posprobe.figures.model_states import MOSAIC

    layout = table.layout
    if isinstance(layout, Grid) and max(layout.height, layout.width) <= MOSAIC:
        return analyses.grid(table)
    return analyses.similarity(table)


def _walk(layout: Layout, dim: int, seed: int, draw: int) -> Array:
    """Draw a random walk in reading order whose steps are equally long, from the origin."""
    steps = np.random.default_rng([seed, draw]).standard_normal((layout.size, dim))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    steps[0] = 0
    return np.cumsum(steps, axis=0)


def _state_rows(document: Block) -> Iterator[LabelledRow]:
    """Yield what positions add to every layer, with the sinusoid and random walks beside it."""
    block, beside = document["states"], document["beside"] or {}
    yield by_layer(block, "variance explained by position", "shares.position", _share)
    noise = {layer["layer"]: _share(_noise(layer)) for layer in block["layers"]}
    yield "of which sampling noise", {**noise}
    yield by_layer(block, "variance explained by context", "shares.context", _share)
    yield by_layer(block, "relative norm of what positions add", "relative_norm")
    yield by_layer(block, "directions above sampling noise", "rank")
    for key, label in LAYER_NUMBERS.items():
        texts: dict[int | str, str] = {
            layer["layer"]: cell(layer["analyses"].get(key)) for layer in block["layers"]
        }
        if beside.get("sinusoid"):
            texts[SINUSOID] = cell(beside["sinusoid"].get(key))
        if found := (beside.get("walk") or {}).get(key):
            texts[WALKS] = f"{show(found['p5'], '.2g')} to {show(found['p95'], '.2g')}"
        yield f"{label} of what positions add", texts


def _noise(layer: Block) -> float | None:
    """Return the share of the variance that sampling noise puts into that of positions."""
    noise, share = layer["noise_share"], lookup(layer, "shares.position")
    return None if noise is None or share is None else noise * share


def _share(value: float | None) -> str:
    return "–" if value is None else fine_percent(value)


STATES = ModelMeasurement[MeanDecomposition](
    name="states",
    title="Through the layers",
    compute=_states,
    record=MeanDecomposition,
    drawings=(
        Drawing("layers"),
        Drawing("cosines"),
        Drawing("paths"),
    ),
    rows=_state_rows,
    drawn_with=_drawn_with,
)
