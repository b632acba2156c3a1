"""One style for every figure, applied in a context and never globally, and widths of venues."""

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

#: ``column`` is one column of text, ``page`` the width of all columns together.
Span: TypeAlias = Literal["column", "page"]

#: Height of a plain drawing over its width: the golden section.
GOLDEN_HEIGHT_RATIO = 0.618


@dataclass(frozen=True)
class Venue:
    """A publication, slide or web page that figures are made for.

    Parameters
    ----------
    name
        Printed name.
    column, page
        Widths in inches of one column and of the whole text; equal where there is one column.
    height
        Height of the text in inches, which no figure exceeds.
    source
        Style file or guideline that states these sizes.
    text
        Size of titles and labels in points; ticks, legends and notes are a point smaller.
    dpi
        Pixels per inch of a PNG, and of the rasters in a vector file that have no resolution of
        their own, such as colour bars.
    serif
        Whether text and figures are set in a typeface like Times.
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
    return {
        key: Venue(**fields) for key, fields in read_data("figures/venues.toml").items()
    }


def find_venue(name: str) -> Venue:
    """Look up a venue by name.

    Raises
    ------
    UsageError
        If there is no venue of that name.
    """
    if name not in venues():
        raise UsageError(f"unknown venue {name!r}. Choose one of {', '.join(venues())}.")
    return venues()[name]


def venue_settings(name: str, *, span: Span = "column") -> dict[str, Any]:
    """Return the matplotlib settings that depend on a venue: width, face, text sizes, resolution.

    Raises
    ------
    UsageError
        If there is no such venue or span.
    """
    venue = find_venue(name)
    if span not in get_args(Span):
        raise UsageError(
            f"unknown span {span!r}. Choose one of {', '.join(get_args(Span))}."
        )
    width = venue.width(span)
    small_points = venue.text - 1
    return {
        # Both typefaces come with matplotlib; the second has the letters that the first lacks.
        "font.family": ["STIXGeneral", "DejaVu Sans"] if venue.serif else ["DejaVu Sans"],
        "figure.figsize": (width, GOLDEN_HEIGHT_RATIO * width),
        "savefig.dpi": venue.dpi,
        "font.size": small_points,
        "legend.fontsize": small_points,
        "xtick.labelsize": small_points,
        "ytick.labelsize": small_points,
        "axes.titlesize": venue.text,
        "axes.labelsize": venue.text,
        "figure.titlesize": venue.text,
        "figure.labelsize": venue.text,
    }


_Result = TypeVar("_Result")

#: Colour of text and of marks without a colour of their own.
INK = "#1a1a1a"
#: Colour of axes and of what a drawing is compared with.
MUTED = "#6b6b6b"
#: Colour of grid lines and of areas behind the data.
PALE = "#dcdcdc"
# Okabe & Ito's colours, which the colour-blind can tell apart and which also differ in grey.
BLUE = "#0072b2"
RED = "#d55e00"
GREEN = "#009e73"
SKY = "#56b4e9"
# Two more for figures of many lines, darker than the others.
PURPLE = "#8a3fa0"
OCHRE = "#8a6a00"
#: Fill of what is as it should be, beside fills of red.
SOUND_FILL = "#dfe7e4"
#: Text on a fill of red; it is not pure white, which other marks are and keep on a dark page.
ON_RED = "#fefefe"
#: Colour and dash of each line: lines differ in dash as well, for print in black and white.
LINE_STYLES = (
    (BLUE, "-"),
    (RED, (0, (5, 1.5))),
    (GREEN, (0, (1, 1))),
    (INK, (0, (5, 1.2, 1, 1.2))),
    (SKY, (0, (3, 1, 1, 1, 1, 1))),
    (PURPLE, (0, (6, 1.5, 1, 1.5, 1, 1.5))),
    (OCHRE, (0, (2.5, 1))),
    (MUTED, (0, (8, 2))),
)
#: Colour map of cosines, which have fixed limits so that panels can be compared.
DIVERGING_COLORMAP = "RdBu_r"
#: Colour map of other signed numbers, whose limits are equally far from 0.
SIGNED_COLORMAP = "PuOr_r"
#: Colour map of quantities that are not negative.
ONE_SIDED_COLORMAP = "viridis"
#: Colour of the gaps between tiles, which no colour map here contains.
GAP_COLOUR = "#808080"


def colormap_with_gaps(name: str, gap_colour: str = GAP_COLOUR) -> Colormap:
    """Return a colour map that draws NaN in the colour of gaps."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=gap_colour)


@cache
def _figure_settings() -> dict[str, Any]:
    """Return matplotlib's settings of every figure."""
    ink_settings = (
        "axes.labelcolor",
        "text.color",
        "xtick.labelcolor",
        "ytick.labelcolor",
    )
    muted_settings = ("axes.edgecolor", "xtick.color", "ytick.color")
    colours = dict.fromkeys(ink_settings, INK) | dict.fromkeys(muted_settings, MUTED)
    return read_data("figures/styles.toml") | colours


#: Whether the code runs within a `style` block.
_IS_STYLE_ACTIVE: ContextVar[bool] = ContextVar("posprobe style", default=False)


@contextmanager
def style(venue: str | None = None, *, span: Span = "column") -> Iterator[None]:
    """Apply posprobe's style within a ``with`` block; new figures get the venue's width.

    Within another such block, ``style()`` changes nothing, so that results, which apply it
    themselves when they are drawn, keep the style of the venue.

    Parameters
    ----------
    venue
        Key of `posprobe.figures.styles.venues`; None for the style of the report.
    span
        Width of the figure: one column of text, or the page.

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

    if venue is None and _IS_STYLE_ACTIVE.get():
        yield
        return
    settings = _figure_settings() | (
        {} if venue is None else venue_settings(venue, span=span)
    )
    token = _IS_STYLE_ACTIVE.set(True)
    try:
        # matplotlib types the keys of rc_context as a closed list of literals.
        with mpl.rc_context(settings), warnings.catch_warnings():  # type: ignore[arg-type]
            # A browser substitutes letters that the font lacks; print shows them as boxes.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            yield
    finally:
        _IS_STYLE_ACTIVE.reset(token)


def make_labels_printable(results: Mapping[str, _Result]) -> dict[str, _Result]:
    """Replace labels by ones that a figure can print: short, unique, no control characters."""
    printable_results: dict[str, _Result] = {}
    for label, result in results.items():
        text = "".join(letter for letter in label if letter.isprintable())
        if len(text) > 32:
            text = f"{text[:14]} … {text[-15:]}"
        # matplotlib leaves lines whose label begins with _ out of the legend.
        text = f" {text}" if text[:1] in ("", "_") else text
        while text in printable_results:
            text += "'"
        printable_results[text] = result
    return printable_results
