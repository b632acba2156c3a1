"""Results become figures: drawn by functions whose names follow from the result and the figure.

* A result names the module and the function that draw it into Axes (`Drawable.figures`).
* ``NAME_figure`` beside that function, a `Builder`, makes the figure NAME for a report or a paper.

Whether a figure can be drawn of a result is known where its measurement is described.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from posprobe.figures.common import REPORT, Baselines
from posprobe.figures.styles import printable, style

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
        If there is no drawing for this kind of result.
    AttributeError
        If Axes have no such property.
    """
    module, plot = _drawing(result)
    with style():
        if ax is not None:
            getattr(module, plot)(ax, result)
            ax.set(**properties)
            return ax
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(layout="constrained")
        try:
            return draw(result, axes, properties)
        except Exception:
            # Nobody else has the figure that pyplot keeps.
            plt.close(figure)
            raise


def builder(result: Drawable, name: str) -> Builder:
    """Return what makes a figure of a kind of result, by the name of the figure."""
    module, _ = _drawing(result)
    build: Builder = getattr(module, f"{name}_figure")
    return build


def report_figures(
    results: Mapping[str, Drawable],
    names: Iterable[str],
    baselines: Baselines | None = None,
) -> dict[str, Callable[[], Figure]]:
    """Return how to make figures of a report, of results of one kind.

    Parameters
    ----------
    results
        By label.
    names
        Of the figures.
    baselines
        What was computed to stand beside them; each figure says what it takes.
    """
    first_result = next(iter(results.values()))
    return {
        name: partial(builder(first_result, name), REPORT, printable(results), baselines or {})
        for name in names
    }


def _drawing(result: Drawable) -> tuple[Any, str]:
    """Return the module that draws a result, and the name of its function."""
    if not result.figures:
        raise TypeError(f"there is no drawing for a {type(result).__name__}")
    module, _, plot = result.figures.partition(".")
    return import_module(f"{__name__}.{module}"), plot


__all__ = ["builder", "draw", "report_figures", "style"]
