"""What positions add to the hidden states, layer by layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from posprobe import analyses, forward
from posprobe.analyses import Patches, Similarity
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.arrays import Array
from posprobe.layouts import Grid, Layout
from posprobe.measurements import compared_numbers
from posprobe.measurements.base import Drawing
from posprobe.measurements.baselines import formula_numbers, made, numbers_of_table
from posprobe.measurements.model.base import ModelInputs, ModelMeasurement
from posprobe.nulls import band
from posprobe.number_format import Block, cell, fine_percent, lookup, show
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, LACKS, TABLES, lacking
from posprobe.tables import PositionTable

#: Numbers of a layer's table that are compared with the sinusoid and random walks, and what their
#: columns are called.
COLUMNS = {
    "similarity.centered.neighbour_mean": "neighbours",
    "similarity.centered.translation_invariance": "invariance",
    "pca.stable_rank": "stable rank",
    "sinusoid.cka": "CKA",
}


def _compute(given: ModelInputs) -> MeanDecomposition:
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


def _lacking(block: Block) -> tuple[str, ...]:
    """Say why numbers of the table of layers are undefined."""
    known = block["undefined"]
    shown = [(compared_numbers()[key].label, known[key]) for key in COLUMNS if key in known]
    return lacking(shown)


def layers_table(document: Block) -> Table:
    """Tabulate what positions add: a row per layer, the sinusoid and random walks below."""
    baselines = document["beside"] or {}
    sinusoid = baselines.get("sinusoid") or {}
    walk = baselines.get("walk") or {}
    rows = tuple(
        (
            str(layer["layer"]),
            _share(lookup(layer, "shares.position")),
            _share(_noise(layer)),
            _share(lookup(layer, "shares.context")),
            cell(layer["relative_norm"]),
            cell(layer["rank"]),
            *(cell(layer["analyses"].get(key)) for key in COLUMNS),
        )
        for layer in document["states"]["layers"]
    )
    foot = []
    if sinusoid:
        foot.append(("sinusoid", *[""] * 5, *(cell(sinusoid.get(key)) for key in COLUMNS)))
    if any(walk.values()):
        bands = [walk.get(key) for key in COLUMNS]
        known = [f"{show(b['p5'], '.2g')} to {show(b['p95'], '.2g')}" if b else "–" for b in bands]
        foot.append(("random walks", *[""] * 5, *known))
    return Table(
        TABLES["states"](document),
        columns(
            "layer", "=position", "=noise", "=context", "=relative norm", "=rank",
            *(f"={label}" for label in COLUMNS.values()),
        ),
        rows,
        tuple(foot),
        brief=True,
    )  # fmt: skip


def _noise(layer: Block) -> float | None:
    """Return the share of the variance that sampling noise puts into that of positions."""
    noise, share = layer["noise_share"], lookup(layer, "shares.position")
    return None if noise is None or share is None else noise * share


def _share(value: float | None) -> str:
    return "–" if value is None else fine_percent(value)


STATES = ModelMeasurement[MeanDecomposition](
    name="states",
    compute=_compute,
    record=MeanDecomposition,
    drawings=(
        Drawing("layers", ALTS["layers"]),
        Drawing("cosines", ALTS["cosines"], lacks=LACKS["cosines"]),
        Drawing("paths", ALTS["paths"], lacks=LACKS["paths"]),
    ),
    facts=_lacking,
    tables=lambda document: (layers_table(document),),
    drawn_with=_drawn_with,
)
