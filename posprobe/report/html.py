"""A page as one self-contained HTML file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from posprobe.foreign import plain
from posprobe.number_format import Block
from posprobe.page import Page, Picture
from posprobe.report.embed import json_text, script
from posprobe.report.narrator import claim
from posprobe.report.narrator.lines import budget_note, budget_parts, facts
from posprobe.report.overview import Arrays, drawings, strip
from posprobe.report.svg import inline
from posprobe.report.table_page import answers, table_page

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

#: How to cite posprobe, as CITATION.cff says.
CITATION = "The posprobe authors. posprobe: what a trained transformer has learned about position."
#: Sentences of a list that are shown before the rest is folded.
SHOWN = 12


def html(
    page: Page,
    version: str,
    drawings: Mapping[str, str] = MappingProxyType({}),
    thumbnail: Callable[[str], str] = lambda _: "",
    atlas: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Render a page, piece by piece: a page of many rows is never in memory as a whole.

    Parameters
    ----------
    page
        What it shows.
    version
        Of posprobe, which made the numbers.
    drawings
        SVG text by name.
    thumbnail
        Gives the small picture of a cell by its name, made by posprobe itself, when the page comes
        to it; empty for none.
    atlas
        Numbers that the script of an atlas draws; other pages have no script.

    Yields
    ------
    str
        HTML that refers to nothing outside itself but the files beside it.
    """
    from markupsafe import Markup

    text, digest = script("atlas.js")
    # Neither JSON of ours nor the script holds a `<` that HTML would read.
    pieces = _template("page.html").generate(
        page=page,
        version=version,
        citation=_cite(version),
        drawings=drawings,
        thumbnail=lambda name: Markup(thumbnail(name)),  # noqa: S704
        shown=SHOWN,
        data=Markup(json_text(atlas)) if atlas else None,  # noqa: S704
        script=Markup(text),  # noqa: S704
        script_hash=digest,
    )
    # A file name need not be valid text.
    return (piece.encode("utf-8", "backslashreplace").decode() for piece in pieces)


def table_html(document: Block, arrays: Arrays) -> str:
    """Render the page of a table.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    arrays
        That of ``arrays.npz``, of which the drawings are made.
    """
    from markupsafe import Markup

    page, found = table_page(document), answers(document)
    told = {each["question"]: each for each in document.get("verdict", {}).get("answers", ())}
    text, digest = script("table.js")
    drawn = drawings(document, arrays)
    rendered = _template("table.html").render(
        page=page,
        citation=_cite(document["environment"]["posprobe"]),
        version=document["environment"]["posprobe"],
        headline=document["verdict"]["summary"] if told else "",
        answers=found,
        parts=budget_parts(document),
        budget_note=budget_note(document),
        drawings=defaultdict(str, {name: Markup(each) for name, each in drawn.items()}),  # noqa: S704 - our own
        sentences={each.name: claim(told[each.name]) for each in found},
        facts={each.name: facts(told[each.name], each) for each in found},
        strips={each.name: Markup(strip(each)) for each in found},  # noqa: S704 - our own
        script=Markup(text),  # noqa: S704 - our own
        script_hash=digest,
    )
    # A file name need not be valid text.
    return rendered.encode("utf-8", "backslashreplace").decode()


def _cite(version: str) -> str:
    return f"{CITATION} Version {version}."


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
    environment.filters |= {"code": _code, "inline": _inline}
    return environment.get_template(name)


def _shown(value: Any) -> Any:
    """Show text of others as it is; what the templates' filters made is shown already."""
    return plain(value) if type(value) is str else value


def _code(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(plain(text))))  # noqa: S704 - escaped


def _inline(svg: str, picture: Picture) -> Markup:
    from markupsafe import Markup

    return Markup(inline(svg, picture.name, plain(picture.alt)))  # noqa: S704 - a drawing of the bundle
