"""Figures of tables and of encodings: the numbers behind the marks, the same limits everywhere."""

from __future__ import annotations

import itertools
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_bundles import with_zero_row
from made_figures import assert_colour_maps, ax, numbers_of, pyplot_is_left_alone, texts
from made_pages import SCHEMES
from made_schemes import buckets, linear, rotary, source, window
from made_tables import as_table, gaussian, patches, walk, waves
from matplotlib import pyplot as plt
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

import posprobe as pp
from posprobe import analyses
from posprobe.analyses import Result
from posprobe.analyses.models.head_biases import smoothness
from posprobe.analyses.models.rotary import rotation
from posprobe.analyses.models.rotary_weights import pair_layout
from posprobe.analyses.models.states import build_decomposition, sum_moments
from posprobe.drawable import Drawable
from posprobe.figures import find_builder, style
from posprobe.figures.common import (
    MAX_CELLS,
    REPORT,
    FigureFormat,
    assign_line_styles,
    average_blocks,
)
from posprobe.figures.comparison import KERNEL_FIGURES
from posprobe.figures.components import plot_score
from posprobe.figures.grid import MAX_TILES, plot_mosaic
from posprobe.figures.relative import MAX_MOSAIC_HEADS, MAX_MOSAIC_LAYERS, MAX_STRIPES
from posprobe.figures.schemes import (
    MAX_FIGURES,
    plot_decay,
    scheme_figures,
    shorten_names,
)
from posprobe.figures.similarity import plot_cosine_matrix, plot_profile
from posprobe.layouts import Grid, Sequence
from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.schemes import RelativeBias, Scheme
from posprobe.studies.schemes import analyze_schemes

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
    result = pp.similarity(as_table(walk(60, 4))[20:50])
    image = plot_cosine_matrix(ax, result.raw, result.start)
    np.testing.assert_array_equal(numbers_of(image), result.raw.matrix)
    assert image.get_clim() == (-1, 1)
    assert image.cmap.name == "RdBu_r"
    # Cell (0, 0) is centred on the first position, which is 20.
    assert tuple(image.get_extent()) == (19.5, 49.5, 49.5, 19.5)


def test_a_large_heat_map_is_averaged_in_blocks_with_a_note(ax: Axes) -> None:
    result = pp.similarity(walk(MAX_CELLS + 88, 3))
    image = plot_cosine_matrix(ax, result.centered)
    assert numbers_of(image).shape == (300, 300)
    block = result.centered.matrix[10:12, 40:42]
    assert numbers_of(image)[5, 20] == pytest.approx(block.mean(), abs=1e-12)
    assert "means of 2 x 2 pairs" in ax.get_xlabel()
    assert image.get_clim() == (-1, 1)


@pytest.mark.parametrize("n", [1, 6, 7, 30])
def test_pooling_takes_the_mean_of_every_block(n: int) -> None:
    values = np.asarray(gaussian(n, n), dtype=np.float64)
    means, block = average_blocks(values, max_cells=6)
    assert block == math.ceil(n / 6)
    assert len(means) == math.ceil(n / block) <= 6
    for i, j in itertools.product(range(len(means)), repeat=2):
        cells = [
            values[r, c]
            for r in range(i * block, min((i + 1) * block, n))
            for c in range(j * block, min((j + 1) * block, n))
        ]
        assert means[i, j] == pytest.approx(sum(cells) / len(cells), abs=1e-12)


def test_pooling_does_not_hide_what_is_undefined() -> None:
    values = np.ones((12, 12))
    values[3, 3] = np.nan
    means, _ = average_blocks(values, max_cells=6)
    assert np.argwhere(np.isnan(means)).tolist() == [[1, 1]]


@pytest.mark.parametrize(("height", "width"), [(3, 4), (1, 6)])
def test_mosaic_tiles_hold_the_cosines_of_their_patch(
    height: int, width: int, ax: Axes
) -> None:
    result = pp.grid(patches(height, width, 8))
    image = plot_mosaic(ax, result)
    canvas = numbers_of(image)
    assert image.get_clim() == (-1, 1)
    assert canvas.shape == (height * (height + 1) - 1, width * (width + 1) - 1)
    is_covered = np.zeros(canvas.shape, dtype=bool)
    for r, c in itertools.product(range(height), range(width)):
        rows = slice(r * (height + 1), r * (height + 1) + height)
        columns = slice(c * (width + 1), c * (width + 1) + width)
        np.testing.assert_array_equal(canvas[rows, columns], result.mosaic[r, c])
        # The bright cell of every tile sits on its own patch.
        tile = canvas[rows, columns]
        assert divmod(int(np.argmax(tile)), width) == (r, c)
        assert tile[r, c] == pytest.approx(1, abs=1e-12)
        is_covered[rows, columns] = True
    assert np.isnan(canvas[~is_covered]).all()


def test_a_large_mosaic_names_the_tiles_that_it_shows(ax: Axes) -> None:
    result = pp.grid(as_table(gaussian(37 * 37, 4), Grid(37, 37)))
    canvas = numbers_of(plot_mosaic(ax, result))
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == [str(column) for column in range(0, 37, 6)]
    assert len(labels) <= MAX_TILES
    np.testing.assert_array_equal(
        canvas[2 * 38 : 2 * 38 + 37, 38 : 38 + 37], result.mosaic[6, 3]
    )


def lines_of(ax: Axes) -> dict[str, Any]:
    return {str(line.get_label()): line for line in ax.lines}


def test_the_profile_is_the_mean_cosine_by_offset_with_its_band(ax: Axes) -> None:
    result = pp.similarity(walk(40, 5))
    plot_profile(ax, result)
    for label, cosine in (("raw", result.raw), ("centred", result.centered)):
        np.testing.assert_array_equal(lines_of(ax)[label].get_xdata(), np.arange(40))
        np.testing.assert_array_equal(lines_of(ax)[label].get_ydata(), cosine.offset_mean)
    (band,) = ax.collections
    corners = np.concatenate([path.vertices for path in band.get_paths()])
    heights = corners[np.isclose(corners[:, 0], 7), 1]
    mean, sd = result.centered.offset_mean[7], result.centered.offset_std[7]
    assert heights.min() == pytest.approx(mean - sd)
    assert heights.max() == pytest.approx(mean + sd)


@pytest.mark.parametrize("kind", ["profile", "scores", "norms"])
def test_on_a_grid_numbers_of_patches_are_a_map(kind: str, ax: Axes) -> None:
    table = patches(4, 6, 8)
    if kind == "profile":
        result = pp.similarity(table)
        plot_profile(ax, result)
        numbers = result.centered.offset_mean
        assert image_of(ax).get_clim() == (-1, 1)
        assert tuple(image_of(ax).get_extent()) == (-5.5, 5.5, 3.5, -3.5)
    elif kind == "scores":
        components = pp.pca(table)
        plot_score(ax, components, 0)
        numbers = components.scores[:, 0]
        low, high = image_of(ax).get_clim()
        assert -low == high == np.abs(numbers).max()
    else:
        lengths = pp.norms(table)
        lengths.plot(ax)
        numbers = lengths.norms
    np.testing.assert_array_equal(numbers_of(image_of(ax)).ravel(), numbers.ravel())


def test_explained_variance_is_drawn_with_its_running_sum(ax: Axes) -> None:
    result = pp.pca(walk(40, 9))
    result.plot(ax)
    ratio, lines = result.explained_variance_ratio, lines_of(ax)
    np.testing.assert_array_equal(lines["each component"].get_ydata(), ratio)
    np.testing.assert_allclose(lines["running sum"].get_ydata(), np.cumsum(ratio))
    np.testing.assert_array_equal(lines["running sum"].get_xdata(), np.arange(1, 10))
    notes = {note.get_text() for note in ax.texts}
    assert notes == {
        f"90%: {result.components_for(0.9)}",
        f"99%: {result.components_for(0.99)}",
    }


def test_scores_are_drawn_against_position(ax: Axes) -> None:
    table = as_table(walk(60, 4))[20:50]
    result = pp.pca(table)
    plot_score(ax, result, 1)
    line = next(line for line in ax.lines if len(line.get_xdata()) == 30)  # type: ignore[arg-type]
    np.testing.assert_array_equal(line.get_xdata(), np.arange(20, 50))
    np.testing.assert_array_equal(line.get_ydata(), result.scores[:, 1])
    assert ax.get_title(loc="left") or ax.get_title()


def test_the_spectrum_is_drawn_with_its_red_noise_and_its_lines(ax: Axes) -> None:
    result = pp.spectrum(waves(256, [6.0, 18.0], noise=0.1))
    result.plot(ax)
    lines = lines_of(ax)
    expected_lines = {
        "table": result.power,
        "red noise": result.background,
        "1 % level": result.threshold,
    }
    for label, values in expected_lines.items():
        assert values is not None
        np.testing.assert_array_equal(lines[label].get_xdata(), result.frequency[1:])
        np.testing.assert_array_equal(lines[label].get_ydata(), values[1:])
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    points = {tuple(np.concatenate(dot.get_data())) for dot in dots}
    for line in result.lines:
        index = np.flatnonzero(result.frequency == line.frequency)[0]
        assert (line.frequency, result.power[index]) in points
    assert {f"{line.period:.1f}" for line in result.lines} <= {
        t.get_text() for t in ax.texts
    }
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
    result = pp.norms(table)
    result.plot(ax)
    line, dots = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(10, 40))
    np.testing.assert_array_equal(line.get_ydata(), result.norms)
    assert np.asarray(dots.get_xdata()).tolist() == [12]
    assert np.asarray(dots.get_ydata()).tolist() == [result.norms[2]]
    assert ax.get_ylim()[0] == 0


def test_the_table_is_drawn_with_positions_from_left_to_right(ax: Axes) -> None:
    table = as_table(walk(60, 4))[20:50]
    table.plot(ax)
    low, high = image_of(ax).get_clim()
    assert (
        -low == high == pytest.approx(np.percentile(np.abs(table.values), 99), rel=1e-6)
    )
    assert tuple(image_of(ax).get_extent()) == (19.5, 49.5, 3.5, -0.5)
    # Dimensions downwards.
    np.testing.assert_array_equal(
        numbers_of(image_of(ax)), table.values.T.astype(np.float32)
    )


def test_every_function_that_a_record_names_draws_it() -> None:
    kinds = [Drawable]
    for kind in kinds:
        kinds += kind.__subclasses__()
    functions = {
        kind.figures for kind in kinds if kind.__module__.startswith("posprobe.")
    } - {""}
    assert len(functions) > 20
    for name in functions:
        module, _, function = name.partition(".")
        assert callable(getattr(import_module(f"posprobe.figures.{module}"), function))


# Every result of every kind of table.

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
def analysed() -> dict[str, pp.studies.Analysis]:
    return {
        name: pp.analyze(table(), nulls=0, device="cpu", tokens=Tokens(table().dim))
        for name, table in KINDS_OF_TABLES.items()
    }


class Tokens:
    """A few embeddings that positions are added to."""

    def __init__(self, width: int) -> None:
        self.values = gaussian(40, width)

    def summary(self) -> dict[str, Any]:
        return {}


def test_every_result_but_one_number_has_a_drawing(
    analysed: dict[str, pp.studies.Analysis],
) -> None:
    kinds = {
        kind
        for kind in vars(analyses).values()
        if isinstance(kind, type) and issubclass(kind, Result) and kind is not Result
    }
    table = analysed["sequence"].table
    all_results = pp.analyze(table, only=["all"], nulls=0).results
    schemes = pp.studies.analyze_schemes(rotary(), window()).results
    scheme_results = (result for results in schemes for result in results.values())
    scaled = analyses.scale(table, np.ones((3, table.dim)))
    states = np.random.default_rng(0).normal(size=(2, 3, 5, 8))
    sums = {layer: sum_moments(batch) for layer, batch in enumerate(states)}
    decomposition = build_decomposition(sums, layout=Sequence(5))
    video = np.random.default_rng(0).normal(size=(4 * 5 * 6, 8))
    results = (
        analyses.video_codes(pp.table(video, grid=(4, 5, 6))),
        *analysed["grid"].results.values(),
        *all_results.values(),
        *scheme_results,
        scaled,
        decomposition,
    )
    examples = {type(result): result for result in results}
    # Attention has to be measured: its drawing is tested with a running model.
    assert set(examples) | {analyses.AttentionByOffset} == kinds
    for result in examples.values():
        axes = Figure().add_subplot()
        assert result.plot(axes) is axes
        assert result.plot(Figure().add_subplot()).has_data()


def test_a_result_without_a_drawing_says_so(ax: Axes) -> None:
    result = pair_layout(np.exp(gaussian(30, 8)))
    assert result is not None
    with pytest.raises(TypeError, match="no drawing for a PairLayout"):
        result.plot(ax)


def test_without_axes_a_new_figure_is_made_for_the_notebook(
    analysed: dict[str, pp.studies.Analysis],
) -> None:
    for result in filter(
        lambda result: result.figures, analysed["grid"].results.values()
    ):
        ax = result.plot()
        assert plt.get_fignums() == [ax.figure.number]  # type: ignore[union-attr]
        plt.close(ax.figure)  # type: ignore[arg-type]


#: A column of a paper, and half a slide.
SHEETS = (FigureFormat(3.03, 9.7), FigureFormat(2.68, 3.15))


@pytest.mark.parametrize("name", KINDS_OF_TABLES)
def test_every_table_gets_pictures_that_can_be_read(
    name: str, analysed: dict[str, pp.studies.Analysis]
) -> None:
    figures = analysed[name].figures()
    assert {"table", "norms", "similarity", "profile", "scale"} <= set(figures)
    # Equal rows have no variance that components could hold.
    (variance,) = (
        drawing
        for drawing in TABLE_MEASUREMENTS["pca"].drawings
        if drawing.name == "variance"
    )
    assert ("variance" in figures) == (
        not variance.explain_absence(analysed[name].results["pca"])
    )
    assert ("mosaic" in figures) == isinstance(analysed[name].table.layout, Grid)
    for make in figures.values():
        with style():
            figure = make()
            figure.draw_without_rendering()
        assert all(float(text.get_fontsize()) >= 6 for text in texts(figure))
        assert_colour_maps(figure)


def test_only_measured_results_are_drawn() -> None:
    table = as_table(walk(20, 4))
    assert set(pp.analyze(table, only=["norms"], nulls=0).figures()) == {"table", "norms"}


@pytest.mark.parametrize("name", ["grid", "constant", "one row of patches"])
def test_every_figure_of_a_table_fits_every_sheet(
    name: str, analysed: dict[str, pp.studies.Analysis]
) -> None:
    records: list[tuple[str, Any]] = [("table", analysed[name].table)]
    records += [
        (drawing.name, result)
        for key, result in analysed[name].results.items()
        for drawing in TABLE_MEASUREMENTS[key].drawings
        if not drawing.explain_absence(result)
    ]
    for (kind, result), sheet in itertools.product(records, SHEETS):
        with style():
            figure = find_builder(result, kind)(sheet, {"a table": result}, {})
        width, height = figure.get_size_inches()
        assert width == sheet.width
        assert height <= sheet.max_height + 1e-9


def makers_of(*records: Scheme) -> dict[str, Callable[[], Figure]]:
    """Return how each figure of a bundle is made."""
    return scheme_figures(records, analyze_schemes(*records).results)


def laid_out(make: Callable[[], Figure]) -> Figure:
    with style():
        figure = make()
        figure.draw_without_rendering()
    return figure


def panels(figure: Figure) -> list[Axes]:
    """The Axes that show something, colour bars left out."""
    return [ax for ax in figure.axes if ax.axison and ax.get_label() != "<colorbar>"]


def panels_of(name: str, *records: Scheme) -> list[Axes]:
    return panels(laid_out(makers_of(*records)[name]))


# Biases by offset.


@pytest.mark.parametrize("causal", [False, True])
def test_few_heads_are_curves_with_different_dashes(causal: bool) -> None:
    record = buckets(heads=4, n=200, causal=causal)
    (ax,) = panels_of("curves", record)
    n_visible = 200 if causal else 399
    for curve, line in zip(record.curves(200), ax.lines, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(-199, 200)[:n_visible])
        np.testing.assert_array_equal(line.get_ydata(), curve[:n_visible])
    assert len({str(line._dash_pattern) for line in ax.lines}) == 4  # type: ignore[attr-defined]
    assert ax.get_xscale() == "symlog"
    single_axes = Figure().add_subplot()
    assert record.plot(single_axes) is single_axes
    for line_a, line_b in zip(single_axes.lines, ax.lines, strict=True):
        np.testing.assert_array_equal(line_a.get_ydata(), line_b.get_ydata())


def test_many_heads_become_stripes_of_centred_curves() -> None:
    record = buckets(heads=20, n=60)
    curves = record.curves(60)
    single_axes = Figure().add_subplot()
    record.plot(single_axes)
    (ax,) = panels_of("stripes", record)
    for axes in (ax, single_axes):
        (mesh,) = [artist for artist in axes.collections if isinstance(artist, QuadMesh)]
        values = numbers_of(mesh)
        np.testing.assert_allclose(values, curves - curves.mean(axis=1, keepdims=True))
        low, high = mesh.get_clim()
        assert -low == high == np.abs(values).max()


def test_offsets_on_a_page_are_not_called_positions() -> None:
    page = buckets(2, 101, name="page", unit="hundredths of the page's width")
    assert panels_of("curves", page)[0].get_xlabel() == (
        "offset (key minus query, hundredths of the page's width)"
    )
    two_panels = panels_of("stripes", buckets(2), page, buckets(2, name="other"))
    label = " ".join(two_panels[0].get_xlabel().split())
    assert "positions or hundredths of the page's width" in label


def test_stripes_of_too_many_heads_skip_some_and_say_so() -> None:
    layers = [buckets(heads=24, n=20, name=f"block.{k}", seed=k) for k in range(20)]
    (ax,) = panels_of("stripes", *layers)
    (mesh,) = [artist for artist in ax.collections if isinstance(artist, QuadMesh)]
    assert numbers_of(mesh).shape[0] <= MAX_STRIPES
    assert "one in 3" in ax.get_ylabel()
    curves = layers[3].curves(20)
    centred = curves - curves.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(numbers_of(mesh)[24], centred[0])


# Biases by displacement.


def test_the_mosaic_has_a_tile_per_layer_and_head() -> None:
    layers = [
        window(3, 3, heads=2 + k, name=f"layers.{k}.attn", seed=k) for k in range(4)
    ]
    (ax,) = panels_of("mosaic", *layers)
    (image,) = ax.images
    canvas = numbers_of(image)
    assert canvas.shape == (4 * 6 - 1, 5 * 6 - 1)
    for r, record in enumerate(layers):
        for c in range(5):
            tile = canvas[6 * r : 6 * r + 5, 6 * c : 6 * c + 5]
            if c < record.heads:
                values = record.values[c]
                np.testing.assert_allclose(tile, values - values.mean())
            else:
                assert np.isnan(tile).all()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2", "3"]


def test_cosines_are_drawn_as_they_are_from_minus_one_to_one() -> None:
    layers = [
        window(4, 4, heads=1, quantity="cosine", name=f"b.{k}", seed=k) for k in range(3)
    ]
    (ax,) = panels_of("mosaic_cosine", *layers)
    canvas = numbers_of(ax.images[0])
    for k, record in enumerate(layers):
        np.testing.assert_array_equal(canvas[8 * k : 8 * k + 7], record.values[0])
    assert ax.images[0].get_clim() == (-1, 1)
    assert ax.images[0].cmap.name == "RdBu_r"


def test_windows_of_two_sizes_share_a_mosaic_with_the_query_in_the_middle() -> None:
    layers = [window(side, side, heads=2, name=f"l.{side}") for side in (3, 4, 6)]
    (ax,) = panels_of("mosaic", *layers)
    canvas = numbers_of(ax.images[0])
    side = 2 * 11
    for r, record in enumerate(layers):
        tile = canvas[r * (side + 1) : r * (side + 1) + side, :side]
        centred = record.values[0] - record.values[0].mean()
        half = side // 2
        assert tile[half, half] == pytest.approx(
            centred[centred.shape[0] // 2, centred.shape[1] // 2]
        )
        assert set(tile.ravel()) == set(centred.ravel())


def test_a_mosaic_names_omitted_heads_and_layers() -> None:
    count = MAX_MOSAIC_LAYERS + 6
    layers = [
        window(2, 2, heads=MAX_MOSAIC_HEADS + 3, name=f"l.{k}", seed=k)
        for k in range(count)
    ]
    (ax,) = panels_of("mosaic", *layers)
    assert len(ax.get_yticks()) == count // 2
    assert "one row in 2" in ax.get_ylabel()
    assert {note.get_text() for note in ax.texts} == {"+3"}
    assert len(ax.get_xticks()) == MAX_MOSAIC_HEADS


def test_heads_of_a_single_window_stand_in_rows(ax: Axes) -> None:
    record = window(3, 3, heads=6)
    record.plot(ax)
    canvas = numbers_of(ax.images[0])
    # Two rows of three.
    np.testing.assert_allclose(
        canvas[6:11, 6:11], record.values[4] - record.values[4].mean()
    )


# Rotary and linear biases.


def test_the_ladder_is_the_wavelengths_with_the_unscaled_ones_behind(ax: Axes) -> None:
    record = rotary(scaling={"rope_type": "linear", "factor": 4.0})
    record.plot(ax)
    lines = {str(line.get_label()): line for line in ax.lines}
    turns = 2 * np.pi / record.frequencies()
    np.testing.assert_allclose(np.asarray(lines["wavelength"].get_ydata()), turns)
    np.testing.assert_allclose(np.asarray(lines["before scaling"].get_ydata()), turns / 4)
    lengths = [np.asarray(line.get_ydata()) for line in ax.lines]
    levels = {float(line[0]) for line in lengths if line.size == 2}
    assert levels == {2048, 4096}
    n_idle = int((turns > 4096).sum())
    assert any(f"{n_idle} of 16 pairs" in note.get_text() for note in ax.texts)


def test_a_ladder_without_scaling_is_drawn_once(ax: Axes) -> None:
    rotary(training_length=4096).plot(ax)
    assert "before scaling" not in {str(line.get_label()) for line in ax.lines}
    assert [note.get_text() for note in ax.texts if "length" in note.get_text()] == [
        "length 4096"
    ]


def test_the_decay_is_the_mean_cosine_with_its_first_negative_marked(ax: Axes) -> None:
    record = rotary()
    result: Any = rotation(record.frequencies(), target=4096)
    plot_decay(ax, result)
    lines = {str(line.get_label()): line for line in ax.lines}
    distance, kernel = (np.asarray(data) for data in lines["mean rotation"].get_data())
    expected = np.cos(distance[:, None] * record.frequencies()).mean(axis=1)
    np.testing.assert_allclose(kernel, expected, atol=1e-12)
    (dot,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert list(np.asarray(dot.get_xdata())) == [result.first_negative]
    crossing = result.first_negative
    assert np.cos(crossing * record.frequencies()).mean() < 0
    assert np.cos((crossing - 1) * record.frequencies()).mean() >= 0


def test_equal_rotations_are_drawn_once() -> None:
    assert "rotation_2" not in makers_of(rotary("a"), rotary("b"))
    assert "rotation_2" in makers_of(rotary("a"), rotary("b", base=500.0))


def test_linear_biases_are_lines_of_slope_one(
    ax: Axes,
) -> None:
    record = linear(8)
    record.plot(ax)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    for slope, line in zip(record.slopes, ax.lines, strict=False):
        distance, penalty = (np.asarray(data) for data in line.get_data())
        np.testing.assert_allclose(penalty / distance, slope)
        np.testing.assert_allclose(
            penalty, -record.curves(300)[0, distance - 1 + 300] * slope * 2
        )
    assert {note.get_text() for note in ax.texts} == {f"head {head}" for head in range(8)}


# All of them.

BUNDLES: dict[str, Callable[[], tuple[Scheme, ...]]] = {
    **SCHEMES,
    "cosines and biases": lambda: (
        window(4, 4, 1, "a.pos", quantity="cosine"),
        window(9, 4, 2, "b.pos"),
        buckets(1, 30, "c.pos", quantity="cosine"),
        buckets(2, 30, "d.pos"),
    ),
    "one head": lambda: (linear(1), buckets(1, 3)),
    "zeros": lambda: tuple(
        RelativeBias(np.zeros((2, 5, 5)), window(3, 3).layout, f"zero.{k}", source())
        for k in range(3)
    ),
    "one cell": lambda: (window(1, 1, 2),),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_every_bundle_is_drawn_within_bounds_and_can_be_read(name: str) -> None:
    figures = list(map(laid_out, makers_of(*BUNDLES[name]()).values()))
    assert 1 <= len(figures) <= MAX_FIGURES
    for figure in figures:
        assert figure.get_figwidth() <= 6.31
        assert figure.get_figheight() <= 8
        assert all(6 <= float(text.get_fontsize()) <= 8 for text in texts(figure))
        assert_colour_maps(figure)


def test_smoothness_shows_every_head_over_its_band(ax: Axes) -> None:
    result = smoothness(window(5, 5, heads=4).values)
    result.plot(ax)
    (dots,) = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_array_equal(dots.get_ydata(), result.correlation)
    heights = [bar.get_height() for bar in ax.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights, result.p95)


def test_depth_shows_every_head_of_every_encoding() -> None:
    layers = [window(4, 4, heads=3, name=f"l.{k}", seed=k) for k in range(5)]
    results = analyze_schemes(*layers).results
    (ax,) = panels_of("depth", *layers)
    dots = [np.asarray(line.get_ydata()) for line in ax.lines if line.get_marker() == "."]
    expected = [result["smoothness"].correlation for result in results]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(dots, expected)


def test_common_parts_of_names_are_dropped() -> None:
    assert shorten_names(["a.0.b.bias", "a.1.b.bias", "a.1.c.bias"]) == [
        "0.b",
        "1.b",
        "1.c",
    ]
    assert shorten_names(["whole.name"]) == ["whole.name"]
    assert shorten_names(["x.a", "x.b", "x.a"]) == ["0: x.a", "1: x.b", "2: x.a"]
    assert shorten_names(["a.b", "a.b.c"]) == ["a.b", "c"]
    assert shorten_names(["a.a", "a.a.a"]) == ["a.a", "a.a.a"]


@pytest.mark.parametrize("name", ["_hidden", "$\\frac{1}{0}$", "a/" * 100, "\x01<&"])
def test_names_of_encodings_are_drawn_whatever_they_are(name: str) -> None:
    records = (buckets(2, 20, name), rotary(name + "2"), linear(2, name + "3"))
    for figure in map(laid_out, makers_of(*records).values()):
        for text in figure.findobj(Text):
            assert "$" not in text.get_text() or "frac" in text.get_text()


def test_curves_and_distances_of_kernels_hold_their_numbers() -> None:
    rng = np.random.default_rng(0)
    curves = {name: rng.standard_normal(19) for name in "abcd"}
    axes_by_name = {}
    matrix = rng.uniform(-1, 1, (4, 4))
    references = {"distances": {"correlation": matrix}}
    for name, build in KERNEL_FIGURES.items():
        with style():
            axes_by_name[name] = build(REPORT, curves, references)
            axes_by_name[name].draw_without_rendering()
    (ax,) = panels(axes_by_name["curves"])
    for curve, line in zip(curves.values(), ax.lines, strict=False):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 20))
        np.testing.assert_array_equal(line.get_ydata(), curve)
    (ax,) = panels(axes_by_name["distances"])
    np.testing.assert_array_equal(numbers_of(ax.images[0]), matrix)
    assert ax.images[0].get_clim() == (-1, 1)
    assert [note.get_text() for note in ax.texts] == [
        f"{value:.2f}" for value in matrix.flat
    ]


def test_no_two_lines_of_a_figure_share_colour_and_dash() -> None:
    names = [f"way {index}" for index in range(20)]
    styles = [
        (line["color"], line["linestyle"])
        for _, _, line in assign_line_styles(dict.fromkeys(names, 0))
    ]
    assert len(set(styles)) == len(names)
    colours, dashes = zip(*styles[:8], strict=True)
    assert len(set(colours)) == len(set(dashes)) == 8
