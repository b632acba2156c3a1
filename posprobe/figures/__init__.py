"""Figures of results, made by functions that are found by name.

* A result names the module and the function that draw it into Axes (`Drawable.figures`).
* ``NAME_figure`` in that module, a `Builder`, makes the figure NAME for a report or a paper.

The description of a measurement says which figures its results have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from posprobe.figures.common import REPORT, FigureExtras
from posprobe.figures.pictures import picture_address
from posprobe.figures.styles import GOLDEN_HEIGHT_RATIO, make_labels_printable, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.drawable import Drawable
    from posprobe.figures.common import Builder


def draw(result: Drawable, ax: Axes | None, properties: Mapping[str, Any]) -> Axes:
    """Draw a result or an encoding into ``ax``, or into a new pyplot figure, and return the Axes.

    Raises
    ------
    TypeError
        If results of this class have no drawing.
    AttributeError
        If Axes have no such property.
    """
    module, plot_name = _find_drawing(result)
    with style():
        if ax is not None:
            getattr(module, plot_name)(ax, result)
            ax.set(**properties)
            return ax
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(layout="constrained")
        try:
            return draw(result, axes, properties)
        except Exception:
            # pyplot keeps the figure, and the caller has no reference with which to close it.
            plt.close(figure)
            raise


def draw_alone(result: Drawable) -> Figure:
    """Draw a result or an encoding into a figure that pyplot does not know, and return it.

    Raises
    ------
    TypeError
        If results of this class have no drawing.
    """
    from matplotlib.figure import Figure

    with style():
        width = REPORT.width
        figure = Figure((width, GOLDEN_HEIGHT_RATIO * width), layout="constrained")
        axes = draw(result, figure.subplots(), {})
        handles, labels = axes.get_legend_handles_labels()
        # Drawings that share a row of panels leave the legend to the caller.
        if axes.get_legend() is None and len(labels) > 1:
            figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        return figure


def find_builder(result: Drawable, name: str) -> Builder:
    """Return the function that makes the figure ``name`` of a result."""
    module, _ = _find_drawing(result)
    build: Builder = getattr(module, f"{name}_figure")
    return build


def report_figures(
    results: Mapping[str, Drawable],
    names: Iterable[str],
    extras: FigureExtras | None = None,
) -> dict[str, Callable[[], Figure]]:
    """Return functions that make the named figures of a report.

    Parameters
    ----------
    results
        Results of one class, by label.
    names
        Names of the figures.
    extras
        Further inputs by name; each figure documents those that it uses.
    """
    first_result = next(iter(results.values()))
    return {
        name: partial(
            find_builder(first_result, name),
            REPORT,
            make_labels_printable(results),
            extras or {},
        )
        for name in names
    }


def _find_drawing(result: Drawable) -> tuple[Any, str]:
    """Return the module that draws a result and the name of its drawing function."""
    if not result.figures:
        raise TypeError(f"there is no drawing for a {type(result).__name__}")
    module, _, plot = result.figures.partition(".")
    return import_module(f"{__name__}.{module}"), plot


__all__ = [
    "draw",
    "draw_alone",
    "find_builder",
    "picture_address",
    "report_figures",
    "style",
]
