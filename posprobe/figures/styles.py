"""One look for every figure, applied in a context and never globally; widths of venues."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

from posprobe.data import read_data
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

#: ``column``: one of the columns of text; ``page``: across all of them.
Span: TypeAlias = Literal["column", "page"]

#: Golden section: the height of a plain drawing over its width.
RATIO = 0.618


@dataclass(frozen=True)
class Venue:
    """Where a figure will stand.

    Parameters
    ----------
    name
        As it is printed.
    column, page
        Widths in inches. Where the text has a single column, they are equal.
    height
        Of the text, in inches: no figure is taller.
    source
        What says so.
    text
        Size of titles and labels in points; ticks, legends and notes are a point smaller.
    dpi
        Pixels per inch of a PNG, and of the few parts of a vector file that are rasters without a
        resolution of their own, such as colour bars.
    serif
        Whether its text is set in a face like Times, and so is what stands in its figures.
    """

    name: str
    column: float
    page: float
    height: float
    source: str
    text: float = 8.0
    dpi: int = 300
    serif: bool = True

    def width(self, span: Span) -> float:
        """Return the width in inches."""
        return self.page if span == "page" else self.column


@cache
def venues() -> Mapping[str, Venue]:
    """Read ``venues.toml``, once."""
    return {key: Venue(**entry) for key, entry in read_data("figures/venues.toml").items()}


def venue_of(name: str) -> Venue:
    """Look up a venue by name.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in venues():
        raise UsageError(f"unknown venue {name!r}. Choose one of {', '.join(venues())}.")
    return venues()[name]


def venue_rc(name: str, *, span: Span = "column") -> dict[str, Any]:
    """Return the matplotlib settings that depend on a venue: width, face, text sizes, resolution.

    Raises
    ------
    UsageError
        If there is no such venue or span.
    """
    venue = venue_of(name)
    if span not in get_args(Span):
        raise UsageError(f"unknown span {span!r}. Choose one of {', '.join(get_args(Span))}.")
    width, small = venue.width(span), venue.text - 1
    return {
        # Both come with matplotlib; the second has the letters that the first lacks.
        "font.family": ["STIXGeneral", "DejaVu Sans"] if venue.serif else ["DejaVu Sans"],
        "figure.figsize": (width, RATIO * width),
        "savefig.dpi": venue.dpi,
        "font.size": small,
        "legend.fontsize": small,
        "xtick.labelsize": small,
        "ytick.labelsize": small,
        "axes.titlesize": venue.text,
        "axes.labelsize": venue.text,
        "figure.titlesize": venue.text,
        "figure.labelsize": venue.text,
    }


_Result = TypeVar("_Result")

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
#: Other numbers with a sign, on limits as far from 0 on either side.
SIGNED = "PuOr_r"
#: One-sided quantities.
ONE_SIDED = "viridis"
#: Between panels of numbers: no map here has this colour.
GAP = "#808080"


def gapped(name: str, gap: str = GAP) -> Colormap:
    """Return a colour map in which what is not known is grey."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=gap)


@cache
def _settings() -> dict[str, Any]:
    """Return matplotlib's settings of every figure."""
    inked = ("axes.labelcolor", "text.color", "xtick.labelcolor", "ytick.labelcolor")
    muted = ("axes.edgecolor", "xtick.color", "ytick.color")
    colours = dict.fromkeys(inked, INK) | dict.fromkeys(muted, MUTED)
    return read_data("figures/styles.toml") | colours


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
        Key of `posprobe.figures.styles.venues`; where None, the look of the report.
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
    settings = _settings() | ({} if venue is None else venue_rc(venue, span=span))
    token = _IN_FORCE.set(True)
    try:
        # Its keys are a closed list.
        with mpl.rc_context(settings), warnings.catch_warnings():  # type: ignore[arg-type]
            # A reader's browser has the letters that the font lacks; in print they are boxes.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            yield
    finally:
        _IN_FORCE.reset(token)


def printable(results: Mapping[str, _Result]) -> dict[str, _Result]:
    """Key results by what a figure can print: no markup, no control characters, no long path."""
    printable_names: dict[str, _Result] = {}
    for label, result in results.items():
        text = "".join(letter for letter in label if letter.isprintable())
        if len(text) > 32:
            text = f"{text[:14]} … {text[-15:]}"
        # A line whose label begins with _ is left out of the legend.
        text = f" {text}" if text[:1] in ("", "_") else text
        while text in printable_names:
            text += "'"
        printable_names[text] = result
    return printable_names
