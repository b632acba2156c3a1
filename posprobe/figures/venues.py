"""The widths of papers, slides and pages, each with where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

from posprobe.data import read_data
from posprobe.errors import UsageError

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
