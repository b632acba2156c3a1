"""Figures: the numbers behind the marks, the same limits everywhere, and nothing left behind."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest
from made_schemes import rotary, window
from made_tables import as_table, gaussian, patches, walk, waves
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

import posprobe as pp
from posprobe import analyses
from posprobe.analyses import Result
from posprobe.analyses.mean_decomposition import mean_decomposition, moments
from posprobe.encodings.sinusoidal import frequencies
from posprobe.figures import bundle_figures, draw, style
from posprobe.figures.draw import (
    MAX_CELLS,
    MAX_TILES,
    heat_map,
    ladder,
    matrix,
    mosaic,
    norms,
    plane_power,
    pooled,
    power,
    profile,
    score,
    variance,
)
from posprobe.table import Grid, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.axes import Axes

    from posprobe.table import PositionTable


@pytest.fixture(autouse=True)
def pyplot_is_left_alone() -> Iterator[None]:
    """Hold every drawing to leaving no figure and no setting behind."""
    plt.switch_backend("Agg")
    before = dict(mpl.rcParams)
    yield
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()


def with_zero_row() -> PositionTable:
    values = walk(24, 4)
    values[5] = 0
    return as_table(values)


TABLES: dict[str, Callable[[], PositionTable]] = {
    "sequence": lambda: as_table(waves(96, [6.0, 18.0], noise=0.05)),
    "grid": lambda: patches(8, 10, 12),
    "constant": lambda: as_table(np.full((16, 3), 0.1)),
    "constant grid": lambda: as_table(np.full((64, 3), 0.1), Grid(8, 8)),
    "zeros": lambda: as_table(np.zeros((9, 2))),
    "zero row": with_zero_row,
    "two rows": lambda: as_table(gaussian(2, 3)),
    "one column": lambda: as_table(gaussian(30, 1)),
    "one row of patches": lambda: as_table(gaussian(9, 4), Grid(1, 9)),
    "tiny numbers": lambda: as_table(walk(30, 4) * 1e-30),
    "huge numbers": lambda: as_table(walk(30, 4) * 1e30),
    "cut": lambda: as_table(walk(60, 4))[20:50],
}


def image_of(ax: Axes) -> AxesImage:
    (image,) = ax.images
    return image


def numbers_of(image: AxesImage) -> Any:
    values = image.get_array()
    assert values is not None
    return np.ma.filled(values, np.nan)


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


@pytest.mark.parametrize("n", [1, 5, 6, 7, 11, 12, 13, 30])
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


@pytest.mark.parametrize(("height", "width"), [(3, 4), (5, 2), (1, 6)])
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
    assert labels == [str(column) for column in range(0, 37, 3)]
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


def test_the_profile_of_a_grid_is_the_map_of_displacements(ax: Axes) -> None:
    found = pp.similarity(patches(4, 6, 8))
    profile(ax, found)
    image = image_of(ax)
    np.testing.assert_array_equal(numbers_of(image), found.centered.offset_mean)
    assert image.get_clim() == (-1, 1)
    assert tuple(image.get_extent()) == (-5.5, 5.5, 3.5, -3.5)


def test_explained_variance_is_drawn_with_its_running_sum(ax: Axes) -> None:
    found = pp.pca(walk(40, 9))
    variance(ax, found)
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


def test_scores_on_a_grid_are_a_map_around_zero(ax: Axes) -> None:
    found = pp.pca(patches(4, 6, 8))
    score(ax, found, 0)
    image = image_of(ax)
    np.testing.assert_array_equal(numbers_of(image).ravel(), found.scores[:, 0])
    low, high = image.get_clim()
    assert -low == high == np.abs(found.scores[:, 0]).max()


def test_the_spectrum_is_drawn_with_its_red_noise_and_its_lines(ax: Axes) -> None:
    found = pp.spectrum(waves(256, [6.0, 18.0], noise=0.1))
    power(ax, found)
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
    power(ax, pp.spectrum(walk(64, 4)))
    (top,) = ax.child_axes
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    low, high = ax.get_xlim()
    assert sorted(top.get_xlim()) == pytest.approx([1 / high, 1 / low])
    assert "period" in top.get_xlabel()


def test_resolved_columns_of_the_sinusoid_lie_on_the_ladder(ax: Axes) -> None:
    found = pp.spectrum(pp.sinusoidal(512, 256))
    ladder(ax, found)
    line = lines_of(ax)["sinusoid's ladder"]
    rank, frequency = (np.asarray(data) for data in line.get_data())
    # The line is the ladder itself, one step for each pair of columns.
    pairs = frequencies(256) / (2 * np.pi)
    np.testing.assert_allclose(frequency[1::2], np.append(pairs[1:], 1e-4 / (2 * np.pi)))
    dots = lines_of(ax)["dimension"]
    resolved = frequency > 5 / 512
    ratio = np.asarray(dots.get_ydata())[resolved] / frequency[resolved]
    assert np.abs(np.log(ratio)).max() < 0.2
    np.testing.assert_array_equal(dots.get_xdata(), rank)


def test_norms_mark_the_rows_that_stand_out(ax: Axes) -> None:
    values = gaussian(40, 16)
    values[12] *= 20
    table = as_table(values)[10:]
    found = pp.norms(table)
    norms(ax, found, table.layout, table.start)
    line, dots = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(10, 40))
    np.testing.assert_array_equal(line.get_ydata(), found.norms)
    assert np.asarray(dots.get_xdata()).tolist() == [12]
    assert np.asarray(dots.get_ydata()).tolist() == [found.norms[2]]
    assert ax.get_ylim()[0] == 0


def test_norms_of_patches_are_a_map(ax: Axes) -> None:
    table = patches(4, 6, 8)
    found = pp.norms(table)
    norms(ax, found, table.layout)
    np.testing.assert_array_equal(numbers_of(image_of(ax)).ravel(), found.norms)


def test_the_table_is_drawn_with_positions_from_left_to_right(ax: Axes) -> None:
    table = as_table(walk(60, 4))[20:50]
    colors = matrix(ax, table)
    low, high = colors.get_clim()
    assert -low == high == pytest.approx(np.percentile(np.abs(table.values), 99), rel=1e-6)
    assert tuple(image_of(ax).get_extent()) == (19.5, 49.5, 3.5, -0.5)
    # One colour for each number, dimensions downwards.
    drawn = numbers_of(image_of(ax))
    expected = colors.to_rgba(table.values.T.astype(np.float32), bytes=True)
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 7), (4, 7), (1, 5)])
def test_the_plane_spectrum_is_in_decibels_with_frequency_zero_in_the_middle(
    height: int, width: int, ax: Axes
) -> None:
    found = pp.grid(patches(height, width, 8))
    plane_power(ax, found)
    image = image_of(ax)
    level = numbers_of(image)
    peak = np.unravel_index(np.argmax(found.power), found.power.shape)
    assert level[peak] == 0
    shown = level > -60
    np.testing.assert_allclose(
        10 ** (level[shown] / 10), found.power[shown] / found.power.max(), rtol=1e-12
    )
    left, right, bottom, top = image.get_extent()
    for axis, extent in ((1, (left, right)), (0, (top, bottom))):
        size = level.shape[axis]
        centers = extent[0] + (np.arange(size) + 0.5) * (extent[1] - extent[0]) / size
        np.testing.assert_allclose(centers, np.fft.fftshift(np.fft.fftfreq(size)), atol=1e-12)


def test_what_is_undefined_is_said_in_words() -> None:
    table = as_table(np.full((16, 3), 0.1))
    for result in (pp.pca(table), pp.spectrum(table)):
        ax = result.plot(Figure().add_subplot())
        (note,) = ax.texts
        assert result.undefined in note.get_text()


# Every result, every kind of table.


def results_of(table: PositionTable) -> dict[str, Result]:
    return dict(pp.analyze(table, nulls=0, device="cpu").results)


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[PositionTable, dict[str, Result]]]:
    return {name: (made, results_of(made)) for name, made in ((n, t()) for n, t in TABLES.items())}


def test_every_result_has_a_drawing(
    drawn: dict[str, tuple[PositionTable, dict[str, Result]]],
) -> None:
    kinds = {
        kind
        for kind in vars(analyses).values()
        if isinstance(kind, type) and issubclass(kind, Result) and kind is not Result
    }
    every = pp.analyze(drawn["sequence"][0], only=["all"], nulls=0).results
    schemes = pp.analyze_schemes(rotary(), window()).results
    others = (result for results in schemes for result in results.values())
    beside = analyses.scale(drawn["sequence"][0], np.ones((3, drawn["sequence"][0].dim)))
    table = drawn["sequence"][0]
    attending = analyses.head_logits(table, np.eye(table.dim), np.eye(table.dim), heads=1)
    states = np.random.default_rng(0).normal(size=(2, 3, 5, 8))
    sums = {layer: moments(batch) for layer, batch in enumerate(states)}
    inside = (attending, mean_decomposition(sums, layout=Sequence(5)))
    made = (*drawn["grid"][1].values(), *every.values(), *others, beside, *inside)
    examples = {type(result): result for result in made}
    # Attention has to be measured: its drawing is tested with a running model.
    assert set(examples) | {analyses.AttentionByOffset} == kinds
    for result in examples.values():
        axes = Figure().add_subplot()
        assert result.plot(axes) is axes
        assert draw(result, Figure().add_subplot()).has_data()


def test_a_result_without_a_drawing_says_so(ax: Axes) -> None:
    class Strange(Result):
        """Something new."""

    with pytest.raises(TypeError, match="no drawing for a Strange"):
        Strange().plot(ax)


def test_without_axes_a_new_figure_is_made_for_the_notebook(
    drawn: dict[str, tuple[PositionTable, dict[str, Result]]],
) -> None:
    for result in drawn["grid"][1].values():
        ax = result.plot()
        assert plt.get_fignums() == [ax.figure.number]  # type: ignore[union-attr]
        plt.close(ax.figure)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_gets_a_picture_without_a_warning(
    name: str, drawn: dict[str, tuple[PositionTable, dict[str, Result]]]
) -> None:
    table, results = drawn[name]
    made = bundle_figures(table, results)
    assert {"table", "norms", "similarity", "profile", "variance"} <= set(made)
    assert ("mosaic" in made) == isinstance(table.layout, Grid)
    for make in made.values():
        with style():
            figure = make()
            figure.draw_without_rendering()
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            if text.get_text() and text.get_visible():
                assert float(text.get_fontsize()) >= 6
        for image in figure.findobj(AxesImage):
            assert isinstance(image, AxesImage)
            if image.cmap.name == "RdBu_r":
                assert image.get_clim() == (-1, 1)
            assert image.cmap.name in ("RdBu_r", "PuOr_r", "viridis", "cividis")


def test_lines_are_told_apart_without_colour(
    drawn: dict[str, tuple[PositionTable, dict[str, Result]]],
) -> None:
    with_legend = 0
    for make in bundle_figures(*drawn["sequence"]).values():
        with style():
            figure = make()
        for axes in figure.axes:
            if axes.get_legend() is None or axes.images:
                continue
            with_legend += 1
            looks = []
            for line in axes.lines:
                if not str(line.get_label()).startswith("_"):
                    dash = line._dash_pattern  # type: ignore[attr-defined]
                    looks.append((dash, line.get_marker(), line.get_linestyle() == "None"))
                    gray = np.dot(mpl.colors.to_rgb(line.get_color()), [0.299, 0.587, 0.114])
                    assert gray < 0.9
            if all(marker == "None" for _, marker, _ in looks):
                assert len({str(look) for look in looks}) == len(looks)
    assert with_legend >= 3


def test_only_what_was_analysed_is_drawn() -> None:
    table = as_table(walk(20, 4))
    assert set(bundle_figures(table, {})) == {"table"}
    assert set(bundle_figures(table, {"norms": pp.norms(table)})) == {"table", "norms"}


def test_the_style_holds_inside_its_block_only() -> None:
    before = mpl.rcParams["pdf.fonttype"], mpl.rcParams["font.size"]
    with style():
        assert mpl.rcParams["pdf.fonttype"] == 42
        assert mpl.rcParams["svg.fonttype"] == "none"
    assert (mpl.rcParams["pdf.fonttype"], mpl.rcParams["font.size"]) == before
