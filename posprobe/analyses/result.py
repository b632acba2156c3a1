"""What all results share: they are frozen, they draw themselves and they describe themselves."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Result:
    """Base of every analysis's frozen result."""

    def summary(self) -> dict[str, Any]:
        """Return the numbers that stand in ``analysis.json``; None is an undefined number."""
        raise NotImplementedError

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the result into ``ax``, or into a new figure, and return the Axes.

        The drawing is `posprobe.figures`' for this kind of result. It is looked up only here, so
        that computing needs no matplotlib: this is the one door from a result up to its figure.
        """
        axes: Axes = import_module("posprobe.figures").draw(self, ax)
        return axes

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(key.replace('_', ' '))}</th>"
            f"<td>{escape(_show(value))}</td></tr>"
            for key, value in self.summary().items()
            if not isinstance(value, list | dict) or len(value) <= 8
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
