"""One look for every figure, applied in a context and never globally."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from posprobe.figures.venues import Span, venue_rc

_Drawn = TypeVar("_Drawn")

#: Okabe & Ito's colour-blind safe colours that also differ in grey; lines differ in dash as well.
INK, MUTED, GRID = "#1a1a1a", "#6b6b6b", "#dcdcdc"
BLUE, RED, GREEN, SKY = "#0072b2", "#d55e00", "#009e73", "#56b4e9"
#: Lines are told apart by dash as well as colour.
LINES = (
    (BLUE, "-"),
    (RED, (0, (5, 1.5))),
    (GREEN, (0, (1, 1))),
    (INK, (0, (5, 1.2, 1, 1.2))),
    (SKY, (0, (3, 1, 1, 1, 1, 1))),
    (MUTED, (0, (8, 2))),
)
#: Cosines: one diverging map with fixed limits, so that panels can be compared.
DIVERGING = "RdBu_r"
#: One-sided quantities.
ONE_SIDED = "viridis"

_RC: dict[str, Any] = {
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    # Of notes; titles and labels have sizes of their own below.
    "font.size": 7,
    "figure.titlesize": 8,
    "figure.labelsize": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "normal",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.visible": False,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "image.interpolation": "none",
    "image.aspect": "equal",
    # No label here is a formula, and looking for one costs time.
    "text.parse_math": False,
    "pdf.fonttype": 42,
    # Text stays text: it can be searched, selected and follows the page's theme.
    "svg.fonttype": "none",
}


#: Whether a style is in force already.
_IN_FORCE: ContextVar[bool] = ContextVar("posprobe style", default=False)


@contextmanager
def style(venue: str | None = None, *, span: Span = "column") -> Iterator[None]:
    """Apply posprobe's look within a ``with`` block; new figures get the venue's width.

    Within another such block, ``style()`` changes nothing: the drawings of results, which apply it
    themselves, keep the venue's look.

    Parameters
    ----------
    venue
        Key of `posprobe.figures.venues.VENUES`; where None, the look of the report.
    span
        The width of a column of text, or of the page.

    Raises
    ------
    UsageError
        If there is no such venue or span.

    Examples
    --------
    A figure that is made in the block is as wide as the text of the venue:

    >>> import posprobe as pp
    >>> import matplotlib as mpl
    >>> with pp.style("neurips"):
    ...     print(mpl.rcParams["figure.figsize"][0])
    5.5
    """
    import matplotlib as mpl

    if venue is None and _IN_FORCE.get():
        yield
        return
    settings = _RC if venue is None else _RC | venue_rc(venue, span=span)
    token = _IN_FORCE.set(True)
    try:
        with mpl.rc_context(settings):  # type: ignore[arg-type]  # its keys are a closed list
            yield
    finally:
        _IN_FORCE.reset(token)


def printable(results: Mapping[str, _Drawn]) -> dict[str, _Drawn]:
    """Key results by what a figure can print: no markup, no control characters, no long path."""
    shown: dict[str, _Drawn] = {}
    for label, result in results.items():
        text = "".join(letter for letter in label if letter.isprintable())
        if len(text) > 32:
            text = f"{text[:14]} … {text[-15:]}"
        # A line whose label begins with _ is left out of the legend.
        text = f" {text}" if text[:1] in ("", "_") else text
        while text in shown:
            text += "'"
        shown[text] = result
    return shown
