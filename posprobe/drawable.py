"""The one door upwards: what can be drawn looks its drawing up only when asked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Drawable:
    """What `posprobe.figures` has a drawing for: results and positional encodings."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into ``ax``, or into a new figure, and return the Axes.

        The drawing is looked up only here, so that reading and computing need no matplotlib.
        """
        axes: Axes = import_module("posprobe.figures").draw(self, ax)
        return axes
