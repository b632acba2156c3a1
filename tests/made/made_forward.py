"""Forward analyses made of random numbers: every kind of result, without a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.models.attention import attention_by_offset, sum_attention
from posprobe.analyses.models.attention_budget import (
    AttentionBudget,
    LogitSums,
    build_attention_budget,
)
from posprobe.analyses.models.attention_window import (
    AttentionWindow,
    grid_window,
    sequence_window,
)
from posprobe.analyses.models.experiments import (
    BlankImages,
    Change,
    Pattern,
    PermutationEffect,
    PhaseShift,
    Substitute,
    SubstitutionEffect,
    by_position,
    costs,
    measure_early,
)
from posprobe.analyses.models.places import (
    PlaceNumbers,
    Places,
    PlacesOutput,
    divide_last_slot,
    summarise_places,
)
from posprobe.analyses.models.rotary_heads import (
    LayerRotation,
    RotarySums,
    build_rotary_use,
)
from posprobe.analyses.models.rotary_use import RotaryUse
from posprobe.analyses.models.states import (
    MeanDecomposition,
    build_decomposition,
    sum_moments,
)
from posprobe.analyses.models.subspaces import subspace_overlap
from posprobe.forward.replacements import explained_share, explanations
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.measurements.model import MODEL_MEASUREMENTS, add_layer_numbers
from posprobe.report.bundle import to_json
from posprobe.sources import Source
from posprobe.studies.model import ForwardAnalysis
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from posprobe.analyses import Result

ENVIRONMENT = {
    "posprobe": "0", "python": "3", "numpy": "2", "device": "cpu", "seed": 0, "command": "made",
    "created": "2024-01-01T00:00:00+00:00",
}  # fmt: skip
WIDTH = 8
HEADS = 3
DRAWS = 3
RANDOM_TOKENS = "random tokens"


def states_of(
    layout: Layout, contexts: int = 12, signal: float = 1.0, seed: int = 0
) -> NDArray[np.float64]:
    """Return ``[c, t, WIDTH]``: a smooth path along positions plus noise of unit variance."""
    rng = np.random.default_rng(seed)
    positions = np.arange(layout.size)[:, None] / layout.size
    path = np.cos(2 * np.pi * positions * np.arange(1, WIDTH + 1) / 2)
    return signal * path + rng.normal(size=(contexts, layout.size, WIDTH))


def attention_of(
    layout: Layout, *, causal: bool = False, special: int = 0, seed: int = 0
) -> NDArray[np.float64]:
    """Return ``[c, HEADS, m, m]``: rows that add up to 1, with ``special`` leading tokens."""
    n = layout.size + special
    logits = np.random.default_rng(seed).normal(size=(4, HEADS, n, n))
    if causal:
        logits = np.where(np.tri(n, dtype=bool), logits, -np.inf)
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def table_of(layout: Layout, seed: int = 0) -> PositionTable:
    values = states_of(layout, 1, seed=seed)[0]
    return PositionTable(values, layout, "made", Source("a", "a"))


def window_of(layout: Layout, *, causal: bool = False) -> AttentionWindow | str:
    """Return the window of attention on such positions, or why they have none."""
    if isinstance(layout, Grid):
        return grid_window(layout, 1)
    return sequence_window(
        np.tri(layout.size, dtype=bool) if causal else None, layout.size
    )


def logits_of(
    window: AttentionWindow, contexts: int = 12, position: float = 1.0, seed: int = 0
) -> LogitSums:
    """Return logits of a layer that fall with distance from the nearest key before the query.

    The last head sees content alone.
    """
    rng = np.random.default_rng(seed)
    size = contexts, HEADS, *window.keys.shape
    away = np.abs(window.displacements - np.eye(window.displacements.shape[1])[0])
    fall = -position * away.sum(axis=1) * (np.arange(HEADS) < HEADS - 1)[:, None, None]
    shares = np.full((contexts, HEADS), 0.25), np.zeros((contexts, HEADS))
    return LogitSums((fall + rng.normal(size=size),), *shares, window, 0.1)


def budget_of(
    window: AttentionWindow, layout: Layout, layers: int = 2, **options: Any
) -> AttentionBudget:
    """Return the budget of layers whose heads prefer the previous place, but for the last."""
    sums = {k: logits_of(window, seed=k, **options) for k in range(layers)}
    return build_attention_budget(
        sums, {}, layout=layout, source="queries and keys", name="made"
    )


def pattern(layout: Grid, number: int) -> Pattern:
    norms = np.random.default_rng(number).random((layout.height, layout.width))
    return Pattern(0.25, 0.5 - 0.1 * number, None if number else 0.75, norms)


def _permutation(*, labelled: bool) -> PermutationEffect:
    with_positions, without_positions = (
        Change(0.8, None, None, None),
        Change(1e-7, None, None, None),
    )
    if labelled:
        with_positions, without_positions = (
            Change(0.8, 0.3, 0.9, 0.2),
            Change(1e-7, 0.0, 0.1, 0.1),
        )
    return PermutationEffect(with_positions, without_positions, 12, 0, "wpe.weight")


def substitution_of(
    layout: Layout, contexts: int = 12, worth: float = 1.0
) -> SubstitutionEffect:
    """Return a substitution whose kept share of the loss equals that of the variance."""
    table = table_of(layout)
    substitutes = explanations(table)
    kept_shares = [
        explained_share(np.asarray(table.values), substitute.rows) or 0.0
        for substitute in substitutes
    ]
    rng = np.random.default_rng(0)
    spread = 1 + 0.1 * rng.normal(size=(contexts, layout.size))
    cost = worth * np.maximum(1 - np.array(kept_shares), 0.0)[:, None, None] * spread
    count = np.full(layout.size, float(contexts))
    names = [substitute.name for substitute in substitutes]
    cost_by_substitute = costs(
        cost.sum(axis=2), np.full(contexts, float(layout.size)), names.index("mean")
    )
    cost_sums = np.stack([cost.sum(axis=1), np.square(cost).sum(axis=1)])
    mean, error = by_position(cost_sums, count, count)
    undefined = {"cka": "measured of models without a head"}
    max_distance = (
        max(layout.height, layout.width) if isinstance(layout, Grid) else layout.size
    )
    distances = (0, *(2**k for k in range((max_distance - 1).bit_length())))
    if cost_by_substitute[names.index("mean")].kept is None:
        undefined["kept"] = "a single context has no spread to tell that from chance by"
    return SubstitutionEffect(
        substitutes=tuple(
            Substitute(
                substitute.name, substitute.label, substitute.kind, substitute.size, share,
                {"loss": cost_record, "divergence": cost_record, "answers": cost_record},
                attention=tuple((share, 0.01) for share in np.linspace(0.4, 0, len(distances))),
            )
            for substitute, share, cost_record in zip(
                substitutes, kept_shares, cost_by_substitute, strict=True
            )
        ),
        measure="loss", removed="mean", contexts=contexts, seed=0, table="wpe.weight",
        layout=layout, start=0, task="next token", loss=2.0, loss_error=0.1, by_position=mean,
        by_position_error=error, unchanged=np.full(layout.size, 2.0),
        early=measure_early(cost_sums[0, names.index("mean")], count), undefined=undefined,
        distances=distances,
    )  # fmt: skip


def rotary_of(layers: int = 2, contexts: int = 12, size: float = 1.0) -> RotaryUse:
    """Return rotary heads whose logits fall with distance, except the last per layer."""
    rng = np.random.default_rng(0)
    rotation = LayerRotation(
        np.array([1.0, 0.1, 0.01]), "halves", "first", 3e-7, np.arange(16), 0.5
    )  # fmt: skip
    fall = -size * np.arange(16) / 8 * (np.arange(HEADS) < HEADS - 1)[:, None]
    vectors = rng.normal(size=(2, HEADS, 3, 2)) @ [1, 1j]

    def sums() -> RotarySums:
        return RotarySums(
            curves=fall + size * 0.02 * rng.normal(size=(contexts, HEADS, 16)),
            variance=size**2 * (1 + 0.1 * rng.random((contexts, HEADS))),
            moved_attention=np.full((contexts, HEADS), 0.3),
            capped_share=np.full((contexts, HEADS), 0.01),
            query=vectors[0], key=vectors[1], fixed_query=np.ones((HEADS, 2)),
            fixed_key=np.ones((HEADS, 2)), query_power=np.full((HEADS, 4), 5.0),
            key_power=np.full((HEADS, 4), 5.0), queries=1, keys=1,
        )  # fmt: skip

    numbers = range(layers)
    return build_rotary_use(
        {number: sums() for number in numbers}, dict.fromkeys(numbers, rotation), {}, length=32,
        positions=64, source="sampled", name="made",
    )  # fmt: skip


def places_of(layout: Layout, output: PlacesOutput = "embedding") -> Places:
    """Return places at two lengths; of text the first weighs most, and that moves with rows."""
    rng = np.random.default_rng(0)
    grid = (4, 4) if isinstance(layout, Grid) else None
    slots = 16 if grid else 8
    curve = np.linspace(1.5, 0.5, slots)
    reach_layout = divide_last_slot(4) if output == "next_token" else None
    is_weight = output == "embedding" and grid is None

    def noisy(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(values * (1 + 0.05 * rng.normal(size=(32, slots))))

    lengths = tuple(
        summarise_places(
            PlaceNumbers(
                32,
                noisy(curve[::-1] ** 4 if reach_layout else curve),
                r2=np.full(32, 0.8) if is_weight else None,
                blocks=np.ones((32, len(reach_layout.blocks))) if reach_layout else None,
                reversed=noisy(curve[::-1]) if is_weight else None,
                averaged=noisy(np.ones(slots)) if is_weight else None,
            ),
            tokens=tokens, unit_size=8 if is_weight else 1, layout=reach_layout,
            caused_reason="" if is_weight else "it was not tried", is_line=grid is None, seed=0,
        )
        for tokens in ((64,) if grid else (16, 32))
    )  # fmt: skip
    return Places(
        output=output, pooling="mean" if is_weight else None,
        reversed_positions="table" if is_weight else None, grid=grid, lengths=lengths,
        contexts=12, source="given", name="made",
    )  # fmt: skip


def text_budget() -> AttentionBudget:
    """Return the budget of heads that see the earlier tokens of a text of 32."""
    window = sequence_window(np.tri(32, dtype=bool), 32)
    assert isinstance(window, AttentionWindow)
    return budget_of(window, Sequence(32))


def results_of(layout: Layout, *, causal: bool = False) -> dict[str, Result]:
    """Return every result of a run on such positions."""
    states = states_of(layout)
    sums = {number: sum_moments(states * (1 + number)) for number in (0, 1, 3)}
    table = table_of(layout)
    tokens = np.random.default_rng(1).normal(size=(4 * WIDTH, WIDTH))
    on_grid = isinstance(layout, Grid)
    special = 1 if on_grid else 0
    weights = [
        attention_of(layout, causal=causal, special=special, seed=layer)
        for layer in range(2)
    ]
    attention = attention_by_offset(
        {
            number: sum_attention(results, layout)
            for number, results in enumerate(weights)
        },
        layout=layout,
    )
    window = window_of(layout, causal=causal)
    results: dict[str, Result] = {
        "states": build_decomposition(sums, layout=layout),
        "subspaces": subspace_overlap(table, tokens),
        "attention": attention,
        "permutation": _permutation(labelled=on_grid),
        "places": places_of(layout, "classes" if on_grid else "embedding"),
        "substitution": substitution_of(layout),
    }
    # A run whose contexts are too short for a window has no budget.
    if not isinstance(window, str):
        results["attention_budget"] = budget_of(window, layout)
    if isinstance(layout, Grid):
        patterns = {number: pattern(layout, number) for number in range(3)}
        return results | {
            "blank": BlankImages(patterns, patterns, layout, 0, "pos_embed")
        }
    return results | {
        "words": replace(attention, contexts=7, layers={0: attention.layers[0]}),
        "rotary_use": rotary_of(),
        "shift": PhaseShift(
            np.array([0, 4, 8]), np.array([0.0, 0.3, 0.5]), np.array([2.0, 2.5, 3.0]),
            "next token", 5,
        ),
    }  # fmt: skip


def default_results(layout: Layout | None = None) -> dict[str, Any]:
    """Return the results that a run has where no measurement is asked for."""
    return {
        name: result
        for name, result in results_of(layout or Sequence(24), causal=False).items()
        if MODEL_MEASUREMENTS[name].is_default
    }


def forward_analysis(
    layout: Layout | None = None,
    kind: str = RANDOM_TOKENS,
    *,
    causal: bool = False,
    **changes: Any,
) -> ForwardAnalysis:
    """Return a run with every result, apart from the given changes."""
    layout = layout or Sequence(24)
    results = dict(changes.pop("results", None) or results_of(layout, causal=causal))
    if isinstance(states := results.get("states"), MeanDecomposition):
        results["states"] = add_layer_numbers(states, changes.pop("draws", DRAWS), 0)
    size = {"shape": [3, 8, 8]} if isinstance(layout, Grid) else {"length": layout.size}
    analysis = ForwardAnalysis(
        name="made",
        model={
            "class": "GPT2Model",
            "parameters": 1234567,
            "dtype": "float32",
            "device": "cpu",
        },
        contexts={"kind": kind, "random": kind.startswith("random"), "seed": 0, **size},
        results=results,
        missing={},
        environment=ENVIRONMENT,
    )
    return replace(analysis, **changes)


def save_run(folder: Path, results: dict[str, Result]) -> Path:
    """Write the data of a run's bundle, without page and figures."""
    run = replace(forward_analysis(), results=results)
    folder.mkdir(parents=True)
    (folder / "analysis.json").write_text(to_json(run.to_dict()))
    np.savez(folder / "arrays.npz", **run.arrays())  # type: ignore[arg-type]
    return folder
