"""The widths of papers, slides and pages, each with where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

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


VENUES: Mapping[str, Venue] = {
    "acl": Venue(
        name="ACL",
        column=7.7 / 2.54,
        page=16 / 2.54,
        height=24.7 / 2.54,
        source="acl.sty (acl-org/acl-style-files): A4 with margins of 2.5 cm and a \\columnsep of "
        "0.6 cm, so 16 cm of text in two columns of 7.7 cm",
    ),
    "neurips": Venue(
        name="NeurIPS",
        column=5.5,
        page=5.5,
        height=9.0,
        source="neurips_2025.sty: textwidth=5.5in, textheight=9in; one column",
    ),
    "iclr": Venue(
        name="ICLR",
        column=5.5,
        page=5.5,
        height=9.0,
        source="iclr2025_conference.tex: text in a rectangle 5.5 inches wide and 9 inches long; "
        "one column",
    ),
    "icml": Venue(
        name="ICML",
        column=3.25,
        page=6.75,
        height=9.0,
        source="icml2025.sty: \\textwidth 6.75in, \\columnsep 0.25in, \\textheight 9.0in",
    ),
    "cvpr": Venue(
        name="CVPR",
        column=3.25,
        page=6.875,
        height=8.875,
        source="CVPR author guidelines: text 6 7/8 inches wide and 8 7/8 high, columns of 3 1/4 "
        "inches (those of cvpr.sty, with its \\columnsep of 0.3125in, are 1/32 inch wider)",
    ),
    "aaai": Venue(
        name="AAAI",
        column=3.3125,
        page=7.0,
        height=9.0,
        source="aaai25.sty: \\textwidth 7.0in, \\columnsep 0.375in, \\textheight 9.0in",
    ),
    "jmlr": Venue(
        name="JMLR",
        column=6.0,
        page=6.0,
        height=8.5,
        source="jmlr2e.sty: \\textwidth 6.0 true in, \\textheight 8.5 true in; one column",
    ),
    "tmlr": Venue(
        name="TMLR",
        column=6.5,
        page=6.5,
        height=9.0,
        source="tmlr.sty: \\textwidth 6.5 true in, \\textheight 9.0 true in; one column",
    ),
    "slides": Venue(
        name="slides",
        column=6.8 / 2.54,
        page=14 / 2.54,
        height=8 / 2.54,
        source="beamer user guide: aspectratio=169 is 16 cm by 9 cm with text margins of 1 cm; a "
        "column is half of the text less a gap of 4 mm. Other programs enlarge it to their slide: "
        "on one 13.33 inches wide, 8 points become 17",
        serif=False,
    ),
    "web": Venue(
        name="web",
        column=3.75,
        page=7.5,
        height=9.0,
        source="CSS Values and Units: 96 pixels to the inch, so 360 and 720 pixels, which fit the "
        "text of a README on GitHub; a PNG has two pixels for each",
        text=9.0,
        dpi=192,
        serif=False,
    ),
}


def venue_of(name: str) -> Venue:
    """Look up a venue by name.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in VENUES:
        raise UsageError(f"no venue is called {name!r}. There are {', '.join(VENUES)}.")
    return VENUES[name]


def venue_rc(name: str, *, span: Span = "column") -> dict[str, Any]:
    """Return the matplotlib settings that depend on a venue: width, face, text sizes, resolution.

    Raises
    ------
    UsageError
        If there is no such venue or span.
    """
    venue = venue_of(name)
    if span not in get_args(Span):
        raise UsageError(f"no span is called {span!r}. There are {', '.join(get_args(Span))}.")
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
