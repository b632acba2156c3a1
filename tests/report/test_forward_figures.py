"""Figures of what position does inside a model show what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_forward import (
    HEADS,
    WIDTH,
    attention_of,
    forward_analysis,
    heads_of,
    results_of,
)
from made_forward_reports import large
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from posprobe.analyses.models.attention import attention_by_offset, attention_sums
from posprobe.analyses.models.head_logits import HeadsByLayer
from posprobe.analyses.models.states import mean_decomposition, moments
from posprobe.figures import report_figures, style
from posprobe.figures.common import spread
from posprobe.figures.relative import MAX_STRIPES
from posprobe.figures.rotary_use import heat_map
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.measurements.model import MODEL

FIGURES = {
    "states": {"layers", "cosines", "paths"}, "heads": {"heads"},
    "effective": {"effective"}, "subspaces": {"overlap"}, "attention": {"attention", "first"},
    "words": {"words"}, "permutation": {"permutation"}, "shift": {"shift"}, "blank": {"blank"},
    "rotary_use": {"rotary_curves", "rotary_usage"},
    "substitution": {"substitution", "substitution_positions"},
}  # fmt: skip


@pytest.mark.parametrize("layout", [Sequence(5), Grid(18, 2)], ids=str)
def test_a_figure_is_drawn_where_its_result_is_there(layout: Layout, tmp_path: Path) -> None:
    made = forward_analysis(layout)
    figures = made.figures()
    assert set(figures) == {name for key in made.results for name in FIGURES[key]}
    assert set(figures) == {drawing.name for key in made.results for drawing in MODEL[key].drawings}
    for name, make in figures.items():
        with style():
            make().savefig(tmp_path / f"{name}.svg")
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", MODEL)
def test_every_result_draws_itself(name: str) -> None:
    result = results_of(Grid(3, 4) if name == "blank" else Sequence(24))[name]
    ax = Figure().add_subplot()
    assert result.plot(ax) is ax
    assert ax.has_data()


def test_positions_that_add_nothing_are_drawn_as_far_as_they_can_be() -> None:
    flat = mean_decomposition({0: moments(np.ones((2, 9, WIDTH)))}, layout=Sequence(9))
    figures = MODEL["states"].figures({"a model": flat})
    assert set(figures) == {"layers"}
    figures["layers"]()


def test_wavelengths_of_pairs_are_written_out() -> None:
    ladder = 1e4 ** (-np.arange(8) / 8)
    ax = Figure().add_subplot()
    heat_map(ax, np.zeros((9, 2)), [0, 1], np.append(ladder, 0), [4, 4])
    named = [label.get_text() for label in ax.get_yticklabels()]
    assert named[0] == "6.28"
    assert named[-2:] == ["19,900", "never"]


@pytest.mark.parametrize("causal", [False, True])
def test_a_row_shows_the_curve_of_its_head_around_the_offset_0(causal: bool) -> None:
    found = heads_of(Sequence(50), 2, causal=causal)
    with style():
        ax = report_figures({"a model": found}, ("heads",))["heads"]().axes[0]
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    drawn = np.asarray(mesh.get_array())
    before, after = (32, 0) if causal else (16, 16)
    curve = found.layers[1].curves[1, 49 - before : 49 + after + 1]
    curve = curve - curve.mean()
    np.testing.assert_allclose(drawn[HEADS + 1], curve / np.abs(curve).max())
    edges = np.asarray(mesh.get_coordinates())[0, :, 0]
    assert (edges[0], edges[-1]) == (-before - 0.5, after + 0.5)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1"]


def test_a_tile_shows_the_map_of_its_head_with_the_query_in_the_middle() -> None:
    layout = Grid(3, 4)
    found = attention_by_offset(
        {number: attention_sums(attention_of(layout, seed=number), layout) for number in range(2)},
        layout=layout,
    )
    with style():
        ax = report_figures({"a model": found}, ("words",))["words"]().axes[0]
    drawn = np.asarray(ax.images[0].get_array())
    for layer, head in ((0, 0), (1, 2)):
        tile = drawn[layer * 6 : layer * 6 + 5, head * 8 : head * 8 + 7]
        np.testing.assert_allclose(tile, found.layers[layer].curves[head])


def test_bars_are_as_long_as_what_changes() -> None:
    with style():
        figure = forward_analysis(Grid(3, 4)).figures()["permutation"]()
    widths = [
        [bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle)] for ax in figure.axes
    ]
    assert widths == [[0.8, 0.3, 1e-7, 0.0], [0.9, 0.1, 0.2, 0.1]]


def test_heads_of_a_large_model_are_chosen_and_the_figure_says_so() -> None:
    made = large(n=64)
    with style():
        ax = made.figures()["heads"]().axes[0]
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    found = made.results["heads"]
    assert isinstance(found, HeadsByLayer)
    curves = np.concatenate([layer.curves for layer in found.layers.values()])
    every = -(-len(curves) // MAX_STRIPES)
    drawn = np.asarray(mesh.get_array())
    assert drawn.shape == (-(-len(curves) // every), 33)
    assert f"one in {every} is drawn" in ax.get_ylabel()
    # The second stripe is of the head so many further on.
    curve = curves[every][63 - 32 : 64]
    curve = curve - curve.mean()
    np.testing.assert_allclose(drawn[1], curve / np.abs(curve).max())
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert (labels[0], labels[-1]) == ("0", "31")


@given(count=st.integers(1, 200), most=st.integers(2, 40))
def test_items_are_spread_from_the_first_to_the_last(count: int, most: int) -> None:
    found = spread(range(count), most)
    assert len(found) == min(count, most)
    assert (found[0], found[-1]) == (0, count - 1)
    steps = np.diff(found)
    assert (steps >= 1).all()
    assert not len(steps) or steps.max() - steps.min() <= 1
