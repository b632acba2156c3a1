"""Figures: the numbers behind the marks, and the same limits everywhere."""

from __future__ import annotations

import itertools
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_bundles import with_zero_row
from made_figures import ax, hold_to_colours, numbers_of, pyplot_is_left_alone, texts
from made_schemes import rotary, window
from made_tables import as_table, gaussian, patches, walk, waves
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

import posprobe as pp
from posprobe import analyses
from posprobe.analyses import Result
from posprobe.analyses.models.rotary_weights import pair_layout
from posprobe.analyses.models.states import mean_decomposition, moments
from posprobe.drawable import Drawable
from posprobe.figures import builder, style
from posprobe.figures.common import MAX_CELLS, Sheet, pooled
from posprobe.figures.components import score
from posprobe.figures.grid import MAX_TILES, mosaic
from posprobe.figures.similarity import heat_map, profile
from posprobe.layouts import Grid, Sequence
from posprobe.measurements import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from posprobe.tables import PositionTable

#: Fixtures that pytest finds by name.
__all__ = ["ax", "pyplot_is_left_alone"]


def image_of(ax: Axes) -> AxesImage:
    (image,) = ax.images
    return image


# The numbers behind the marks.


def test_the_heat_map_holds_the_cosines_on_fixed_limits(ax: Axes) -> None:
    found = pp.similarity(as_table(walk(60, 4))[20:50])
    image = heat_map(ax, found.raw, found.start)
    np.testing.assert_array_equal(numbers_of(image), found.raw.matrix)
    assert image.get_clim() == (-1, 1)
    assert image.cmap.name == "RdBu_r"
    # Cell (0, 0) is centred on the first position, which is 20.
    assert tuple(image.get_extent()) == (19.5, 49.5, 49.5, 19.5)


def test_a_heat_map_of_many_positions_is_averaged_in_blocks_and_says_so(ax: Axes) -> None:
    found = pp.similarity(walk(MAX_CELLS + 88, 3))
    image = heat_map(ax, found.centered)
    assert numbers_of(image).shape == (300, 300)
    block = found.centered.matrix[10:12, 40:42]
    assert numbers_of(image)[5, 20] == pytest.approx(block.mean(), abs=1e-12)
    assert "means of 2 x 2 pairs" in ax.get_xlabel()
    assert image.get_clim() == (-1, 1)


@pytest.mark.parametrize("n", [1, 6, 7, 30])
def test_pooling_takes_the_mean_of_each_block(n: int) -> None:
    values = np.asarray(gaussian(n, n), dtype=np.float64)
    found, block = pooled(values, cells=6)
    assert block == math.ceil(n / 6)
    assert len(found) == math.ceil(n / block) <= 6
    for i, j in itertools.product(range(len(found)), repeat=2):
        cells = [
            values[r, c]
            for r in range(i * block, min((i + 1) * block, n))
            for c in range(j * block, min((j + 1) * block, n))
        ]
        assert found[i, j] == pytest.approx(sum(cells) / len(cells), abs=1e-12)


def test_pooling_does_not_hide_what_is_undefined() -> None:
    values = np.ones((12, 12))
    values[3, 3] = np.nan
    found, _ = pooled(values, cells=6)
    assert np.argwhere(np.isnan(found)).tolist() == [[1, 1]]


@pytest.mark.parametrize(("height", "width"), [(3, 4), (1, 6)])
def test_each_tile_of_the_mosaic_holds_the_cosines_of_its_patch(
    height: int, width: int, ax: Axes
) -> None:
    found = pp.grid(patches(height, width, 8))
    image = mosaic(ax, found)
    canvas = numbers_of(image)
    assert image.get_clim() == (-1, 1)
    assert canvas.shape == (height * (height + 1) - 1, width * (width + 1) - 1)
    seen = np.zeros(canvas.shape, dtype=bool)
    for r, c in itertools.product(range(height), range(width)):
        rows = slice(r * (height + 1), r * (height + 1) + height)
        columns = slice(c * (width + 1), c * (width + 1) + width)
        np.testing.assert_array_equal(canvas[rows, columns], found.mosaic[r, c])
        # The bright cell of every tile sits on its own patch.
        tile = canvas[rows, columns]
        assert divmod(int(np.argmax(tile)), width) == (r, c)
        assert tile[r, c] == pytest.approx(1, abs=1e-12)
        seen[rows, columns] = True
    assert np.isnan(canvas[~seen]).all()


def test_a_mosaic_of_many_patches_shows_every_third_tile_and_says_which(ax: Axes) -> None:
    found = pp.grid(as_table(gaussian(37 * 37, 4), Grid(37, 37)))
    canvas = numbers_of(mosaic(ax, found))
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == [str(column) for column in range(0, 37, 6)]
    assert len(labels) <= MAX_TILES
    np.testing.assert_array_equal(canvas[2 * 38 : 2 * 38 + 37, 38 : 38 + 37], found.mosaic[6, 3])


def lines_of(ax: Axes) -> dict[str, Any]:
    return {str(line.get_label()): line for line in ax.lines}


def test_the_profile_is_the_mean_cosine_by_offset_with_its_band(ax: Axes) -> None:
    found = pp.similarity(walk(40, 5))
    profile(ax, found)
    for label, cosine in (("raw", found.raw), ("centred", found.centered)):
        np.testing.assert_array_equal(lines_of(ax)[label].get_xdata(), np.arange(40))
        np.testing.assert_array_equal(lines_of(ax)[label].get_ydata(), cosine.offset_mean)
    (band,) = ax.collections
    corners = np.concatenate([path.vertices for path in band.get_paths()])
    heights = corners[np.isclose(corners[:, 0], 7), 1]
    mean, sd = found.centered.offset_mean[7], found.centered.offset_std[7]
    assert heights.min() == pytest.approx(mean - sd)
    assert heights.max() == pytest.approx(mean + sd)


@pytest.mark.parametrize("drawn", ["profile", "scores", "norms"])
def test_on_a_grid_numbers_of_patches_are_a_map(drawn: str, ax: Axes) -> None:
    table = patches(4, 6, 8)
    if drawn == "profile":
        found = pp.similarity(table)
        profile(ax, found)
        numbers = found.centered.offset_mean
        assert image_of(ax).get_clim() == (-1, 1)
        assert tuple(image_of(ax).get_extent()) == (-5.5, 5.5, 3.5, -3.5)
    elif drawn == "scores":
        components = pp.pca(table)
        score(ax, components, 0)
        numbers = components.scores[:, 0]
        low, high = image_of(ax).get_clim()
        assert -low == high == np.abs(numbers).max()
    else:
        lengths = pp.norms(table)
        lengths.plot(ax)
        numbers = lengths.norms
    np.testing.assert_array_equal(numbers_of(image_of(ax)).ravel(), numbers.ravel())


def test_explained_variance_is_drawn_with_its_running_sum(ax: Axes) -> None:
    found = pp.pca(walk(40, 9))
    found.plot(ax)
    ratio, lines = found.explained_variance_ratio, lines_of(ax)
    np.testing.assert_array_equal(lines["each component"].get_ydata(), ratio)
    np.testing.assert_allclose(lines["running sum"].get_ydata(), np.cumsum(ratio))
    np.testing.assert_array_equal(lines["running sum"].get_xdata(), np.arange(1, 10))
    notes = {note.get_text() for note in ax.texts}
    assert notes == {
        f"90%: {found.components_for(0.9)}",
        f"99%: {found.components_for(0.99)}",
    }


def test_scores_are_drawn_against_position(ax: Axes) -> None:
    table = as_table(walk(60, 4))[20:50]
    found = pp.pca(table)
    score(ax, found, 1)
    line = next(line for line in ax.lines if len(line.get_xdata()) == 30)  # type: ignore[arg-type]
    np.testing.assert_array_equal(line.get_xdata(), np.arange(20, 50))
    np.testing.assert_array_equal(line.get_ydata(), found.scores[:, 1])
    assert ax.get_title(loc="left") or ax.get_title()


def test_the_spectrum_is_drawn_with_its_red_noise_and_its_lines(ax: Axes) -> None:
    found = pp.spectrum(waves(256, [6.0, 18.0], noise=0.1))
    found.plot(ax)
    lines = lines_of(ax)
    drawn = {"table": found.power, "red noise": found.background, "1 % level": found.threshold}
    for label, values in drawn.items():
        assert values is not None
        np.testing.assert_array_equal(lines[label].get_xdata(), found.frequency[1:])
        np.testing.assert_array_equal(lines[label].get_ydata(), values[1:])
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    points = {tuple(np.concatenate(dot.get_data())) for dot in dots}
    for line in found.lines:
        at = np.flatnonzero(found.frequency == line.frequency)[0]
        assert (line.frequency, found.power[at]) in points
    assert {f"{line.period:.1f}" for line in found.lines} <= {t.get_text() for t in ax.texts}
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_the_period_axis_is_one_over_frequency(ax: Axes) -> None:
    pp.spectrum(walk(64, 4)).plot(ax)
    (top,) = ax.child_axes
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    low, high = ax.get_xlim()
    assert sorted(top.get_xlim()) == pytest.approx([1 / high, 1 / low])
    assert "period" in top.get_xlabel()


def test_norms_mark_the_rows_that_stand_out(ax: Axes) -> None:
    values = gaussian(40, 16)
    values[12] *= 20
    table = as_table(values)[10:]
    found = pp.norms(table)
    found.plot(ax)
    line, dots = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(10, 40))
    np.testing.assert_array_equal(line.get_ydata(), found.norms)
    assert np.asarray(dots.get_xdata()).tolist() == [12]
    assert np.asarray(dots.get_ydata()).tolist() == [found.norms[2]]
    assert ax.get_ylim()[0] == 0


def test_the_table_is_drawn_with_positions_from_left_to_right(ax: Axes) -> None:
    table = as_table(walk(60, 4))[20:50]
    table.plot(ax)
    low, high = image_of(ax).get_clim()
    assert -low == high == pytest.approx(np.percentile(np.abs(table.values), 99), rel=1e-6)
    assert tuple(image_of(ax).get_extent()) == (19.5, 49.5, 3.5, -0.5)
    # Dimensions downwards.
    np.testing.assert_array_equal(numbers_of(image_of(ax)), table.values.T.astype(np.float32))


def test_every_function_that_a_record_names_draws_it() -> None:
    kinds = [Drawable]
    for kind in kinds:
        kinds += kind.__subclasses__()
    named = {kind.figures for kind in kinds if kind.__module__.startswith("posprobe.")} - {""}
    assert len(named) > 20
    for name in named:
        module, _, function = name.partition(".")
        assert callable(getattr(import_module(f"posprobe.figures.{module}"), function))


KINDS_OF_TABLES: dict[str, Callable[[], PositionTable]] = {
    "sequence": lambda: as_table(waves(96, [6.0, 18.0], noise=0.05)),
    "grid": lambda: patches(8, 10, 12),
    "constant": lambda: as_table(np.full((16, 3), 0.1)),
    "constant grid": lambda: as_table(np.full((64, 3), 0.1), Grid(8, 8)),
    "zero row": with_zero_row,
    "two rows": lambda: as_table(gaussian(2, 3)),
    "one column": lambda: as_table(gaussian(30, 1)),
    "one row of patches": lambda: as_table(gaussian(9, 4), Grid(1, 9)),
    "huge numbers": lambda: as_table(walk(30, 4) * 1e30),
    "cut": lambda: as_table(walk(60, 4))[20:50],
}


@pytest.fixture(scope="module")
def analysed() -> dict[str, pp.report.Analysis]:
    return {
        name: pp.analyze(made(), nulls=0, device="cpu", tokens=Tokens(made().dim))
        for name, made in KINDS_OF_TABLES.items()
    }


class Tokens:
    """A few embeddings that positions are added to."""

    def __init__(self, width: int) -> None:
        self.values = gaussian(40, width)

    def summary(self) -> dict[str, Any]:
        return {}


def test_every_result_but_one_number_has_a_drawing(
    analysed: dict[str, pp.report.Analysis],
) -> None:
    kinds = {
        kind
        for kind in vars(analyses).values()
        if isinstance(kind, type) and issubclass(kind, Result) and kind is not Result
    }
    table = analysed["sequence"].table
    every = pp.analyze(table, only=["all"], nulls=0).results
    schemes = pp.report.analyze_schemes(rotary(), window()).results
    others = (result for results in schemes for result in results.values())
    scaled = analyses.scale(table, np.ones((3, table.dim)))
    attending = analyses.head_logits(table, np.eye(table.dim), np.eye(table.dim), heads=1)
    states = np.random.default_rng(0).normal(size=(2, 3, 5, 8))
    sums = {layer: moments(batch) for layer, batch in enumerate(states)}
    inside = (attending, mean_decomposition(sums, layout=Sequence(5)))
    made = (*analysed["grid"].results.values(), *every.values(), *others, scaled, *inside)
    examples = {type(result): result for result in made}
    # Attention has to be measured: its drawing is tested with a running model.
    assert set(examples) | {analyses.AttentionByOffset} == kinds
    for result in examples.values():
        axes = Figure().add_subplot()
        assert result.plot(axes) is axes
        assert result.plot(Figure().add_subplot()).has_data()


def test_a_result_without_a_drawing_says_so(ax: Axes) -> None:
    found = pair_layout(np.exp(gaussian(30, 8)))
    assert found is not None
    with pytest.raises(TypeError, match="no drawing for a PairLayout"):
        found.plot(ax)


def test_without_axes_a_new_figure_is_made_for_the_notebook(
    analysed: dict[str, pp.report.Analysis],
) -> None:
    for result in filter(lambda result: result.figures, analysed["grid"].results.values()):
        ax = result.plot()
        assert plt.get_fignums() == [ax.figure.number]  # type: ignore[union-attr]
        plt.close(ax.figure)  # type: ignore[arg-type]


#: A column of a paper, and half a slide.
SHEETS = (Sheet(3.03, 9.7), Sheet(2.68, 3.15))


@pytest.mark.parametrize("name", KINDS_OF_TABLES)
def test_every_table_gets_pictures_that_can_be_read(
    name: str, analysed: dict[str, pp.report.Analysis]
) -> None:
    made = analysed[name].figures()
    assert {"table", "norms", "similarity", "profile", "scale"} <= set(made)
    # Equal rows have no variance that components could hold.
    (variance,) = (one for one in TABLE["pca"].drawings if one.name == "variance")
    assert ("variance" in made) == (not variance.lacks(analysed[name].results["pca"]))
    assert ("mosaic" in made) == isinstance(analysed[name].table.layout, Grid)
    for make in made.values():
        with style():
            figure = make()
            figure.draw_without_rendering()
        assert all(float(text.get_fontsize()) >= 6 for text in texts(figure))
        hold_to_colours(figure)


def test_only_what_was_analysed_is_drawn() -> None:
    table = as_table(walk(20, 4))
    assert set(pp.analyze(table, only=["norms"], nulls=0).figures()) == {"table", "norms"}


@pytest.mark.parametrize("name", ["grid", "constant", "one row of patches"])
def test_every_figure_of_a_table_fits_every_sheet(
    name: str, analysed: dict[str, pp.report.Analysis]
) -> None:
    named: list[tuple[str, Any]] = [("table", analysed[name].table)]
    named += [
        (drawing.name, result)
        for key, result in analysed[name].results.items()
        for drawing in TABLE[key].drawings
        if not drawing.lacks(result)
    ]
    for (kind, result), sheet in itertools.product(named, SHEETS):
        with style():
            figure = builder(result, kind)(sheet, {"a table": result}, {})
        width, height = figure.get_size_inches()
        assert width == sheet.width
        assert height <= sheet.limit + 1e-9
