"""The room that a figure has, and how legends and labels are fitted into it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Inches below which panels stand below each other rather than side by side.
NARROW = 4.5
#: Inches of height below which little stands above each other.
LOW = 4.0
#: Width in inches of a drawing with a single pair of axes, where it may be narrower than the sheet.
PLAIN = 4.6
#: Width in inches of a letter of a legend or a panel's title, and height of their lines.
LETTER, LINE = 0.06, 0.13


#: Layouts that are tried until nothing leaves the page.
ATTEMPTS = 3


@dataclass(frozen=True)
class Sheet:
    """The room that a figure has.

    Parameters
    ----------
    width
        In inches.
    limit
        Largest height in inches.
    exact
        Whether every figure is as wide, as a page of a paper asks for, rather than at most.
    columns
        Most panels side by side; None for as many as suit the width.
    """

    width: float
    limit: float
    exact: bool = True
    columns: int | None = None

    @property
    def narrow(self) -> bool:
        """Whether the sheet is a column rather than a page."""
        return self.width < NARROW

    @property
    def low(self) -> bool:
        """Whether the sheet is a slide rather than a page of paper."""
        return self.limit < LOW

    def beside(self, count: int) -> tuple[int, int]:
        """Return rows and columns of so many panels: below each other on a narrow sheet."""
        return (count, 1) if self.narrow else (1, count)

    @property
    def plain(self) -> float:
        """Height in inches of a plain drawing without its legend."""
        return 1.9 if self.exact else 2.2

    def figure(
        self, height: float, *, width: float | None = None, compressed: bool = False
    ) -> Figure:
        """Make an empty figure.

        Parameters
        ----------
        height
            In inches, where the limit allows.
        width
            In inches, where a figure may be narrower than the sheet; None: as wide.
        compressed
            Whether panels of fixed shape are brought together.
        """
        from matplotlib.figure import Figure

        wide = self.width if self.exact or width is None else min(width, self.width)
        size = wide, min(height, self.limit)
        made = Figure(figsize=size, layout="compressed" if compressed else "constrained")
        if self.exact:
            # A column is narrow: what stands at its edge gets as little room as it needs.
            engine: Any = made.get_layout_engine()
            engine.set(w_pad=0.02, h_pad=0.02)
        return made


#: A figure of a report, which has the room that it needs.
REPORT = Sheet(6.3, 9.0, exact=False)


def lay_out(figure: Figure) -> None:
    """Place everything for good, so that every file of the figure is the same, and nothing is cut.

    Axes in three dimensions and titles above rows of panels reach a little beyond the room that the
    layout gives them; where they would leave the page, the layout is made again with a margin.
    """
    engine = figure.get_layout_engine()
    if engine is None:
        return
    engine.execute(figure)
    width, height = figure.get_size_inches()
    left = bottom = right = top = 0.0
    for _ in range(ATTEMPTS):
        box = figure.get_tightbbox()
        over = (-box.x0 / width, -box.y0 / height, box.x1 / width - 1, box.y1 / height - 1)
        if max(over) <= 0:
            break
        more = [max(part, 0.0) for part in over]
        left, bottom, right, top = (
            a + b for a, b in zip((left, bottom, right, top), more, strict=True)
        )
        rect = (left, bottom, 1 - left - right, 1 - bottom - top)
        engine.set(rect=rect)  # type: ignore[call-arg]
        engine.execute(figure)
    figure.set_layout_engine(None)  # "none" would be an engine that saving draws once more for


def legend_above(ax: Axes, *, top: bool = False) -> None:
    """Move a legend above the axes, in as many columns as fit.

    Parameters
    ----------
    ax
        With or without a legend.
    top
        Whether the axes have an axis of their own at the top.
    """
    handles, labels = ax.get_legend_handles_labels()
    if not handles or (ax.get_legend() is None and len(handles) < 2):
        return
    width = ax.figure.bbox.width / ax.figure.dpi
    ax.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0, 1.24 if top else 1.0),
        ncols=columns_of(labels, width), borderaxespad=0.2, columnspacing=1.0,
        handlelength=2.4, labelspacing=0.3,
    )  # fmt: skip


def columns_of(labels: Sequence[str], width: float) -> int:
    """Return how many columns of a legend fit into a width, samples and gaps included."""
    widest = LETTER * max(map(len, labels)) + 0.45
    return min(max(int((width - 0.4) / widest), 1), len(labels))


def legend_height(labels: Sequence[str], width: float) -> float:
    """Return the height in inches that a legend above axes of this width takes."""
    return LINE * math.ceil(len(labels) / columns_of(labels, width))


def few_ticks(ax: Axes, axis: str = "both") -> None:
    """Mark two or three whole numbers on an axis (``"x"``) or both."""
    from matplotlib.ticker import MaxNLocator

    for one in {"x": (ax.xaxis,), "both": (ax.xaxis, ax.yaxis)}[axis]:
        one.set_major_locator(MaxNLocator(2, integer=True, min_n_ticks=2, steps=[1, 2, 2.5, 5, 10]))


def fewer_labels(ax: Axes) -> None:
    """Leave out every second tick label, or more, where they are too many for a column."""
    for axis in (ax.xaxis, ax.yaxis):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        every = math.ceil(len(labels) / 8)
        shown = [text if k % every == 0 else "" for k, text in enumerate(labels)]
        axis.set_ticks(axis.get_ticklocs(), shown)


def shortened(text: str, most: int) -> str:
    """Leave out the middle of a text that is longer than ``most`` letters."""
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most - most // 2) :]}"
