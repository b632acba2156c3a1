"""Figures: the numbers behind the marks, and the same limits everywhere."""

from __future__ import annotations

import itertools
import math
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_figures import ax, pyplot_is_left_alone
from made_tables import as_table, gaussian, patches, walk, waves
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

import posprobe as pp
from posprobe.analyses import Result
from posprobe.drawable import Drawable
from posprobe.encodings.tables import frequencies
from posprobe.figures import builder, report_figures
from posprobe.figures.common import FLOOR, MAX_CELLS, REPORT, Beside, Sheet, pooled
from posprobe.figures.components import score
from posprobe.figures.frequencies import ladder
from posprobe.figures.grid import MAX_TILES, mosaic
from posprobe.figures.similarity import heat_map, profile
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Fixtures that pytest finds by name.
__all__ = ["ax", "pyplot_is_left_alone"]


def image_of(ax: Axes) -> AxesImage:
    (image,) = ax.images
    return image


def numbers_of(image: AxesImage) -> Any:
    values: Any = image.get_array()
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


def test_the_profile_of_a_grid_is_the_map_of_displacements(ax: Axes) -> None:
    found = pp.similarity(patches(4, 6, 8))
    profile(ax, found)
    image = image_of(ax)
    np.testing.assert_array_equal(numbers_of(image), found.centered.offset_mean)
    assert image.get_clim() == (-1, 1)
    assert tuple(image.get_extent()) == (-5.5, 5.5, 3.5, -3.5)


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


def test_scores_on_a_grid_are_a_map_around_zero(ax: Axes) -> None:
    found = pp.pca(patches(4, 6, 8))
    score(ax, found, 0)
    image = image_of(ax)
    np.testing.assert_array_equal(numbers_of(image).ravel(), found.scores[:, 0])
    low, high = image.get_clim()
    assert -low == high == np.abs(found.scores[:, 0]).max()


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


def test_resolved_columns_of_the_sinusoid_lie_on_the_ladder(ax: Axes) -> None:
    found = pp.spectrum(pp.sinusoidal(512, 256))
    ladder(ax, found)
    line = lines_of(ax)["sinusoid's frequencies"]
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
    found.plot(ax)
    line, dots = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(10, 40))
    np.testing.assert_array_equal(line.get_ydata(), found.norms)
    assert np.asarray(dots.get_xdata()).tolist() == [12]
    assert np.asarray(dots.get_ydata()).tolist() == [found.norms[2]]
    assert ax.get_ylim()[0] == 0


def test_norms_of_patches_are_a_map(ax: Axes) -> None:
    table = patches(4, 6, 8)
    found = pp.norms(table)
    found.plot(ax)
    np.testing.assert_array_equal(numbers_of(image_of(ax)).ravel(), found.norms)


def test_the_table_is_drawn_with_positions_from_left_to_right(ax: Axes) -> None:
    table = as_table(walk(60, 4))[20:50]
    table.plot(ax)
    low, high = ax.figure.axes[-1].get_ylim()
    assert -low == high == pytest.approx(np.percentile(np.abs(table.values), 99), rel=1e-6)
    colors = ScalarMappable(Normalize(low, high), "PuOr_r")
    assert tuple(image_of(ax).get_extent()) == (19.5, 49.5, 3.5, -0.5)
    # One colour for each number, dimensions downwards.
    drawn = numbers_of(image_of(ax))
    expected = colors.to_rgba(table.values.T.astype(np.float32), bytes=True)
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize(("height", "width"), [(4, 7), (1, 5)])
def test_the_plane_spectrum_is_in_decibels_with_frequency_zero_in_the_middle(
    height: int, width: int
) -> None:
    found = pp.grid(patches(height, width, 8))
    figure = builder(found, "plane_spectrum")(REPORT, {"patches": found}, {})
    image = image_of(figure.axes[0])
    level = numbers_of(image)
    peak = np.unravel_index(np.argmax(found.power), found.power.shape)
    assert level[peak] == 0
    shown = level > FLOOR
    np.testing.assert_allclose(
        10 ** (level[shown] / 10), found.power[shown] / found.power.max(), rtol=1e-12
    )
    left, right, bottom, top = image.get_extent()
    for axis, extent in ((1, (left, right)), (0, (top, bottom))):
        size = level.shape[axis]
        centers = extent[0] + (np.arange(size) + 0.5) * (extent[1] - extent[0]) / size
        np.testing.assert_allclose(centers, np.fft.fftshift(np.fft.fftfreq(size)), atol=1e-12)


# Drawings are found by name.


def test_a_drawing_is_found_by_the_name_that_its_result_gives(
    ax: Axes, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Toy(Result):
        """A number."""

        figures = "toy.plot"

        def __init__(self, number: float) -> None:
            self.number = number

    def panels(sheet: Sheet, results: dict[str, Toy], _: Beside) -> Figure:
        figure = sheet.figure(2.0)
        for axes, (name, result) in zip(figure.subplots(2), results.items(), strict=True):
            module.plot(axes, result)
            axes.set_title(name)
        return figure

    module: Any = ModuleType("posprobe.figures.toy")
    module.plot = lambda axes, result: axes.plot([0, 1], [result.number] * 2)
    module.toy_figure = panels
    monkeypatch.setitem(sys.modules, "posprobe.figures.toy", module)
    assert Toy(3.0).plot(ax) is ax
    assert list(np.asarray(ax.lines[0].get_ydata())) == [3, 3]
    made = report_figures({"one": Toy(1.0), "_two": Toy(2.0)}, ("toy",))
    assert set(made) == {"toy"}
    figure = made["toy"]()
    assert [axes.lines[0].get_ydata()[0] for axes in figure.axes] == [1, 2]  # type: ignore[index]
    # What matplotlib would hide or read as markup is printed.
    assert [axes.get_title() for axes in figure.axes] == ["one", " _two"]


def test_every_function_that_a_record_names_draws_it() -> None:
    kinds = [Drawable]
    for kind in kinds:
        kinds += kind.__subclasses__()
    named = {kind.figures for kind in kinds if kind.__module__.startswith("posprobe.")} - {""}
    assert len(named) > 20
    for name in named:
        module, _, function = name.partition(".")
        assert callable(getattr(import_module(f"posprobe.figures.{module}"), function))
