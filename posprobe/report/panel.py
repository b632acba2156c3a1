"""A small drawing with axes, built by hand: lines, dots and bands in the colours of the page."""

from __future__ import annotations

from html import escape
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: What a mark stands for; the page's style gives it a colour: the table, what it is compared with,
#: and what the answer names.
Kind: TypeAlias = Literal["own", "null", "named"]
Numbers: TypeAlias = NDArray[np.float64]

#: Size in pixels, and where the axes are.
WIDTH, HEIGHT = 190, 112
LEFT, RIGHT, TOP, BOTTOM = 8.0, 182.0, 19.0, 93.0
#: Most points of a line.
POINTS = 150


class Panel:
    """A drawing with one title line above it and one line of labels below.

    Parameters
    ----------
    title
        What is drawn; escaped.
    x, y
        Ranges of the axes.
    log_x, log_y
        Whether an axis is logarithmic; its range is positive.
    square
        Whether a unit is as long on both axes.
    """

    def __init__(
        self,
        title: str,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        log_x: bool = False,
        log_y: bool = False,
        square: bool = False,
        left: float = LEFT,
        right: float = RIGHT,
    ) -> None:
        self._log = log_x, log_y
        self._x, self._y = self._range(x, log_x), self._range(y, log_y)
        self._box = left, right, TOP, BOTTOM
        if square:
            half = min(right - left, BOTTOM - TOP) / 2
            across, down = (left + right) / 2, (TOP + BOTTOM) / 2
            self._box = across - half, across + half, down - half, down + half
        self.parts: list[str] = []
        self.label(title, LEFT, 10)

    @staticmethod
    def _range(ends: tuple[float, float], log: bool) -> tuple[float, float]:
        low, high = (np.log(max(end, 1e-300)) if log else float(end) for end in ends)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ValueError("a drawing needs finite numbers")
        return (float(low), float(high)) if high > low else (float(low), float(low) + 1.0)

    def _place(self, x: Any, y: Any) -> tuple[Numbers, Numbers]:
        left, right, top, bottom = self._box
        found = []
        for values, log, (low, high), begin, end in (
            (x, self._log[0], self._x, left, right),
            (y, self._log[1], self._y, bottom, top),
        ):
            values = np.asarray(values, dtype=np.float64)
            values = np.log(np.maximum(values, 1e-300)) if log else values
            share = np.clip((values - low) / (high - low), -0.02, 1.02)
            found.append(begin + (end - begin) * share)
        return found[0], found[1]

    def line(self, x: Any, y: Any, kind: Kind = "own") -> None:
        """Draw a line through points; of many, some. None and what is not finite is left out."""
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        known = known[np.unique(np.linspace(0, len(known) - 1, POINTS).astype(int))] if len(
            known
        ) > POINTS else known  # fmt: skip
        if len(known) > 1:
            across, down = self._place(x[known], y[known])
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True))
            self.parts.append(f'<polyline class="{kind}" points="{points}"/>')

    def dots(self, x: Any, y: Any, kind: Kind = "own", radius: float = 2.2) -> None:
        """Draw a dot at every point."""
        for a, b in zip(*self._place(np.atleast_1d(x), np.atleast_1d(y)), strict=True):
            if np.isfinite(a) and np.isfinite(b):
                self.parts.append(
                    f'<circle class="{kind}" cx="{a:.1f}" cy="{b:.1f}" r="{radius:g}"/>'
                )

    def dotted(self, x: Any, y: Any) -> None:
        """Draw a line with a dot at every point."""
        self.line(x, y)
        self.dots(x, y)

    def across(self, y: float, kind: Kind = "null") -> None:
        """Draw a horizontal line from end to end."""
        at = float(self._place(0.0 if not self._log[0] else 1.0, y)[1])
        self._stroke(kind, self._box[0], at, self._box[1], at)

    def upright(self, x: float, kind: Kind = "named") -> None:
        """Draw a vertical line from top to bottom."""
        at = float(self._place(x, 0.0 if not self._log[1] else 1.0)[0])
        self._stroke(kind, at, self._box[2], at, self._box[3])

    def _stroke(self, kind: Kind, a: float, b: float, c: float, d: float) -> None:
        self.parts.append(
            f'<line class="{kind}" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>'
        )

    def band(self, low: float, high: float) -> None:
        """Shade the range of what the table is compared with."""
        at = self._place([1.0, 1.0], [low, high])[1]
        left, right, *_ = self._box
        self._rect("null", left, float(at[1]), right - left, max(float(at[0] - at[1]), 2.0))

    def bar(self, row: int, begin: float, end: float, kind: Kind, *, height: float = 12) -> None:
        """Draw a horizontal bar in one of the rows of the drawing."""
        at = self._place([begin, end], [1.0, 1.0])[0]
        self._rect(kind, float(at[0]), self.row(row), float(at[1] - at[0]), height)

    @staticmethod
    def row(row: int) -> float:
        """Return the upper edge of the bar of a row."""
        return TOP + 16 + 34 * row

    def _rect(self, kind: Kind, x: float, y: float, width: float, height: float) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"/>'
        )

    def axis(self, begin: str = "", middle: str = "", end: str = "") -> None:
        """Draw the lower axis with what stands at its ends and in the middle."""
        left, right, _, bottom = self._box
        self._stroke("axis", left, bottom, right, bottom)  # type: ignore[arg-type]
        self.label(begin, left, bottom + 12)
        self.label(middle, (left + right) / 2, bottom + 12, "middle")
        self.label(end, right, bottom + 12, "end")

    def beside(self, text: str, x: float, y: float, anchor: str = "start", rise: float = 3) -> None:
        """Write at a point of the axes."""
        a, b = (float(place) for place in self._place(x, y))
        self.label(text, a, b - rise, anchor)

    def label(self, text: str, x: float, y: float, anchor: str = "start") -> None:
        """Write at a place in pixels."""
        if text:
            at = "" if anchor == "start" else f' text-anchor="{anchor}"'
            self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{at}>{escape(text)}</text>')

    def svg(self, alt: str) -> str:
        """Return the drawing as an element of a page.

        Parameters
        ----------
        alt
            The text that stands for it.
        """
        return drawing(self.parts, alt)


def drawing(parts: list[str], alt: str) -> str:
    """Return an element of a page with the parts of one or more drawings."""
    return (
        f'<svg class="sketch" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(alt, quote=True)}">{"".join(parts)}</svg>'
    )
