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

from posprobe.page import AnswerLine, Listing, Page
from posprobe.report.overview import draw_answer_strip
from posprobe.report.svg import read_template
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from jinja2 import Template


#: How to cite posprobe, as CITATION.cff says.
CITATION = "The posprobe authors. posprobe: what a trained transformer has learned about position."
#: Sentences of a list that are shown before the rest is folded; cells from which numbers are.
MAX_OPEN_ROWS, MIN_FOLDED_CELLS = 12, 300


def render_html(page: Page, version: str, drawings: Mapping[str, str]) -> str:
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
    scripts = _shared_variables("page.js", version, drawings)
    rendered = _load_template("page.html").render(page=page, folded=MIN_FOLDED_CELLS, **scripts)
    # A file name need not be valid text.
    return rendered.encode("utf-8", "backslashreplace").decode()


def render_listing(
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
        See `render_html`.
    thumbnail
        Gives the small picture of a cell by its name, made by posprobe itself, when the page comes
        to it; empty for none.

    Yields
    ------
    str
        HTML that refers to nothing outside itself but the files beside it.
    """
    pieces = _load_template("listing.html").generate(
        page=page,
        thumbnail=lambda name: Markup(thumbnail(name)),  # noqa: S704
        shown=MAX_OPEN_ROWS,
        **_shared_variables("listing.js", version, drawings),
    )
    return (piece.encode("utf-8", "backslashreplace").decode() for piece in pieces)


def _shared_variables(name: str, version: str, drawings: Mapping[str, str]) -> dict[str, Any]:
    """Return what every page shows beside its content; markup that is our own."""
    script = read_template(name)
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
def _load_template(name: str) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("posprobe.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escape_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"code": _mark_code, "strip": _draw_strip}
    return environment.get_template(name)


def _escape_value(value: Any) -> Any:
    """Show text of others as it is; what the templates' filters made is shown already."""
    return escape_invisible(value) if type(value) is str else value


def _mark_code(text: str) -> Markup:
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(escape_invisible(text))))  # noqa: S704 - escaped


def _draw_strip(line: AnswerLine) -> Markup:
    return Markup(draw_answer_strip(line))  # noqa: S704 - our own
