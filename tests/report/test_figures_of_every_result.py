"""Every result of every kind of table has a drawing, which fits every sheet."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_bundles import with_zero_row
from made_figures import ax, pyplot_is_left_alone
from made_schemes import rotary, window
from made_tables import as_table, gaussian, patches, walk, waves
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

import posprobe as pp
from posprobe import analyses
from posprobe.analyses import Result
from posprobe.analyses.models.rotary_weights import pair_layout
from posprobe.analyses.models.states import mean_decomposition, moments
from posprobe.figures import builder, style
from posprobe.figures.common import Sheet
from posprobe.layouts import Grid, Sequence
from posprobe.measurements import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from posprobe.tables import PositionTable

#: Fixtures that pytest finds by name.
__all__ = ["ax", "pyplot_is_left_alone"]


TABLES: dict[str, Callable[[], PositionTable]] = {
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
def drawn() -> dict[str, pp.report.Analysis]:
    return {
        name: pp.analyze(made(), nulls=0, device="cpu", tokens=Tokens(made().dim))
        for name, made in TABLES.items()
    }


class Tokens:
    """A few embeddings that positions are added to."""

    def __init__(self, width: int) -> None:
        self.values = gaussian(40, width)

    def summary(self) -> dict[str, Any]:
        return {}


def test_every_result_but_one_number_has_a_drawing(
    drawn: dict[str, pp.report.Analysis],
) -> None:
    kinds = {
        kind
        for kind in vars(analyses).values()
        if isinstance(kind, type) and issubclass(kind, Result) and kind is not Result
    }
    table = drawn["sequence"].table
    every = pp.analyze(table, only=["all"], nulls=0).results
    schemes = pp.report.analyze_schemes(rotary(), window()).results
    others = (result for results in schemes for result in results.values())
    scaled = analyses.scale(table, np.ones((3, table.dim)))
    attending = analyses.head_logits(table, np.eye(table.dim), np.eye(table.dim), heads=1)
    states = np.random.default_rng(0).normal(size=(2, 3, 5, 8))
    sums = {layer: moments(batch) for layer, batch in enumerate(states)}
    inside = (attending, mean_decomposition(sums, layout=Sequence(5)))
    made = (*drawn["grid"].results.values(), *every.values(), *others, scaled, *inside)
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
    drawn: dict[str, pp.report.Analysis],
) -> None:
    for result in filter(lambda result: result.figures, drawn["grid"].results.values()):
        ax = result.plot()
        assert plt.get_fignums() == [ax.figure.number]  # type: ignore[union-attr]
        plt.close(ax.figure)  # type: ignore[arg-type]


#: A column of a paper, and half a slide.
SHEETS = (Sheet(3.03, 9.7), Sheet(2.68, 3.15))


@pytest.mark.parametrize("name", TABLES)
def test_every_table_gets_pictures_that_can_be_read(
    name: str, drawn: dict[str, pp.report.Analysis]
) -> None:
    made = drawn[name].figures()
    assert {"table", "norms", "similarity", "profile", "scale"} <= set(made)
    # Equal rows have no variance that components could hold.
    (variance,) = (one for one in TABLE["pca"].drawings if one.name == "variance")
    assert ("variance" in made) == (not variance.lacks(drawn[name].results["pca"]))
    assert ("mosaic" in made) == isinstance(drawn[name].table.layout, Grid)
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


def test_only_what_was_analysed_is_drawn() -> None:
    table = as_table(walk(20, 4))
    assert set(pp.analyze(table, only=["norms"], nulls=0).figures()) == {"table", "norms"}


@pytest.mark.parametrize("name", ["grid", "constant", "one row of patches"])
def test_every_figure_of_a_table_fits_every_sheet(
    name: str, drawn: dict[str, pp.report.Analysis]
) -> None:
    named: list[tuple[str, Any]] = [("table", drawn[name].table)]
    named += [
        (drawing.name, result)
        for key, result in drawn[name].results.items()
        for drawing in TABLE[key].drawings
        if not drawing.lacks(result)
    ]
    for (kind, result), sheet in itertools.product(named, SHEETS):
        with style():
            figure = builder(result, kind)(sheet, {"a table": result}, {})
        width, height = figure.get_size_inches()
        assert width == sheet.width
        assert height <= sheet.limit + 1e-9
