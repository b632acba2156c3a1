"""Page as one self-contained HTML file, whose policy allows its own script by hash."""

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
from posprobe.words import define_line

if TYPE_CHECKING:
    from jinja2 import Template


#: Citation of posprobe, as in CITATION.cff.
CITATION = "The posprobe authors. posprobe: what a trained transformer has learned about position."
#: Lists show this many sentences; the rest is folded.
MAX_OPEN_ROWS = 12
#: Tables with more cells than this are folded.
MIN_FOLDED_CELLS = 300


def render_html(page: Page, version: str, drawings: Mapping[str, str]) -> str:
    """Render a page as HTML that refers only to files in its own folder.

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
    rendered = _load_template("page.html").render(
        page=page, folded=MIN_FOLDED_CELLS, **scripts
    )
    # A file name need not be valid text.
    return rendered.encode("utf-8", "backslashreplace").decode()


def render_listing(
    page: Listing,
    version: str,
    drawings: Mapping[str, str],
    thumbnail: Callable[[str], str],
) -> Iterator[str]:
    """Render a page of sections piece by piece, so that a long one is never whole in memory.

    Parameters
    ----------
    page
        Content of the page; a script sorts and filters its tables.
    version
        Version of posprobe that made the numbers.
    drawings
        See `render_html`.
    thumbnail
        Function that makes the small picture of a cell by its name; empty for none. It is called
        when rendering reaches the cell.

    Yields
    ------
    str
        HTML that refers only to files in its own folder.
    """
    pieces = _load_template("listing.html").generate(
        page=page,
        thumbnail=lambda name: Markup(thumbnail(name)),  # noqa: S704
        shown=MAX_OPEN_ROWS,
        **_shared_variables("listing.js", version, drawings),
    )
    return (piece.encode("utf-8", "backslashreplace").decode() for piece in pieces)


def _shared_variables(
    name: str, version: str, drawings: Mapping[str, str]
) -> dict[str, Any]:
    """Return the variables of a template that all pages share; the markup is our own."""
    script = read_template(name)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "version": version,
        "citation": f"{CITATION} Version {version}.",
        "drawings": {key: Markup(drawing) for key, drawing in drawings.items()},  # noqa: S704
        "script": Markup(script),  # noqa: S704
        # The page's security policy lets only the script with this hash run.
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
    environment.filters |= {
        "code": _mark_code,
        "css_string": _escape_css,
        "strip": _draw_strip,
        "definition": lambda line: define_line(line.name),
    }
    return environment.get_template(name)


def _escape_value(value: Any) -> Any:
    """Escape invisible characters of plain text; markup from filters is escaped already."""
    return escape_invisible(value) if type(value) is str else value


def _escape_css(text: str) -> Markup:
    """Return a text for a string of a style sheet: all but plain letters as numbers."""
    escaped = re.sub(
        r"[^A-Za-z0-9 .,?%()+-]",
        lambda match: f"\\{ord(match[0]):x} ",
        escape_invisible(text),
    )
    return Markup(escaped)  # noqa: S704 - neither quotes nor brackets of tags are left


def _mark_code(text: str) -> Markup:
    marked = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(escape_invisible(text)))
    return Markup(marked)  # noqa: S704 - escaped


def _draw_strip(line: AnswerLine) -> Markup:
    return Markup(draw_answer_strip(line))  # noqa: S704 - our own
