"""A page as one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from posprobe.foreign import plain
from posprobe.page import Page, Picture
from posprobe.report.embed import json_text, script
from posprobe.report.svg import inline

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

#: How to cite posprobe, as CITATION.cff says.
CITATION = "The posprobe authors. posprobe: what a trained transformer has learned about position."
#: Sentences of a list that are shown before the rest is folded.
SHOWN = 12


def html(
    page: Page,
    document: Mapping[str, Any],
    version: str,
    drawings: Mapping[str, str] = MappingProxyType({}),
    thumbnail: Callable[[str], str] = lambda _: "",
    cosines: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Render a page, piece by piece: a page of many rows is never in memory as a whole.

    Parameters
    ----------
    page
        What it shows.
    document
        What it carries for its script and for whoever saves the page.
    version
        Of posprobe, which made the numbers.
    drawings
        SVG text by name.
    thumbnail
        Gives the small picture of a cell by its name, made by posprobe itself, when the page comes
        to it; empty for none.
    cosines
        The matrices that its script reads; None for none.

    Yields
    ------
    str
        HTML that refers to nothing outside itself but the files beside it.
    """
    from markupsafe import Markup

    text, digest = script()
    # Neither JSON of ours nor the script holds a `<` that HTML would read.
    pieces = _template().generate(
        page=page,
        version=version,
        citation=f"{CITATION} Version {version}.",
        drawings=drawings,
        thumbnail=lambda name: Markup(thumbnail(name)),  # noqa: S704
        shown=SHOWN,
        data=Markup(json_text(document)),  # noqa: S704
        cosines=Markup(json_text(cosines)) if cosines else None,  # noqa: S704
        script=Markup(text),  # noqa: S704
        script_hash=digest,
    )
    # A file name need not be valid text.
    return (piece.encode("utf-8", "backslashreplace").decode() for piece in pieces)


@cache
def _template() -> Template:
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
    return environment.get_template("page.html")


def _shown(value: Any) -> Any:
    """Show text of others as it is; what the templates' filters made is shown already."""
    return plain(value) if type(value) is str else value


def _code(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(plain(text))))  # noqa: S704 - escaped


def _inline(svg: str, picture: Picture) -> Markup:
    from markupsafe import Markup

    return Markup(inline(svg, picture.name, plain(picture.alt)))  # noqa: S704 - a drawing of the bundle
