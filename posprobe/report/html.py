"""A page as one self-contained HTML file, with its numbers, and its script by its hash."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from posprobe.page import Line, Listing, Page
from posprobe.report.overview import strip
from posprobe.report.svg import source
from posprobe.text import plain

if TYPE_CHECKING:
    from jinja2 import Template


#: How to cite posprobe, as CITATION.cff says.
CITATION = "The posprobe authors. posprobe: what a trained transformer has learned about position."
#: Sentences of a list that are shown before the rest is folded; cells from which numbers are.
MAX_OPEN_ROWS, FOLDED = 12, 300


def html(page: Page, version: str, drawings: Mapping[str, str]) -> str:
    """Render a page: HTML that refers to nothing outside itself but the files beside it.

    Parameters
    ----------
    page
        Content of the page.
    version
        Version of posprobe that made the numbers.
    drawings
        Elements by name, made by posprobe; a picture without one is left out.
    """
    scripts = _shared("page.js", version, drawings)
    rendered = _template("page.html").render(page=page, folded=FOLDED, **scripts)
    # A file name need not be valid text.
    return rendered.encode("utf-8", "backslashreplace").decode()


def listing(
    page: Listing, version: str, drawings: Mapping[str, str], thumbnail: Callable[[str], str]
) -> Iterator[str]:
    """Render a page of sections, piece by piece: one of many rows is never in memory as a whole.

    Parameters
    ----------
    page
        Content of the page; a script sorts and filters its tables.
    version
        Version of posprobe that made the numbers.
    drawings
        See `html`.
    thumbnail
        Gives the small picture of a cell by its name, made by posprobe itself, when the page comes
        to it; empty for none.

    Yields
    ------
    str
        HTML that refers to nothing outside itself but the files beside it.
    """
    pieces = _template("listing.html").generate(
        page=page,
        thumbnail=lambda name: Markup(thumbnail(name)),  # noqa: S704
        shown=MAX_OPEN_ROWS,
        **_shared("listing.js", version, drawings),
    )
    return (piece.encode("utf-8", "backslashreplace").decode() for piece in pieces)


def _shared(name: str, version: str, drawings: Mapping[str, str]) -> dict[str, Any]:
    """Return what every page shows beside its content; markup that is our own."""
    script = source(name)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "version": version,
        "citation": f"{CITATION} Version {version}.",
        "drawings": {key: Markup(drawing) for key, drawing in drawings.items()},  # noqa: S704
        "script": Markup(script),  # noqa: S704
        # By its hash the page's policy lets it alone run.
        "script_hash": f"sha256-{digest}",
    }


@cache
def _template(name: str) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("posprobe.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"code": _code, "strip": _strip}
    return environment.get_template(name)


def _shown(value: Any) -> Any:
    """Show text of others as it is; what the templates' filters made is shown already."""
    return plain(value) if type(value) is str else value


def _code(text: str) -> Markup:
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(plain(text))))  # noqa: S704 - escaped


def _strip(line: Line) -> Markup:
    return Markup(strip(line))  # noqa: S704 - our own
