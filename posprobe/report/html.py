"""A page as one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    cosines: Mapping[str, Any] | None = None,
) -> str:
    """Render a page.

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
    cosines
        The matrices that its script reads; None for none.

    Returns
    -------
    str
        HTML that refers to nothing outside itself but the files beside it.
    """
    from markupsafe import Markup

    text, digest = script()
    # Neither JSON of ours nor the script holds a `<` that HTML would read.
    made = _template().render(
        page=page,
        version=version,
        citation=f"{CITATION} Version {version}.",
        drawings=drawings,
        shown=SHOWN,
        data=Markup(json_text(document)),  # noqa: S704
        cosines=Markup(json_text(cosines)) if cosines else None,  # noqa: S704
        script=Markup(text),  # noqa: S704
        script_hash=digest,
    )
    # A file name need not be valid text.
    return made.encode("utf-8", "backslashreplace").decode()


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
    environment.filters |= {"code": _code, "inline": _inline, "marks": marks}
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


def marks(entry: Mapping[str, Any]) -> Markup:
    """Draw a number on one axis with the bands of the null models and the sinusoid's value.

    Parameters
    ----------
    entry
        ``value``, ``sinusoid`` (None for none) and ``bands``: by name ``p5`` and ``p95``, or None.
    """
    from markupsafe import Markup

    value, sinusoid, bands = entry["value"], entry["sinusoid"], list(entry["bands"].values())
    ends = [number for number in (value, sinusoid) if number is not None]
    ends += [band[key] for band in bands if band for key in ("p5", "p95")]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0

    def x(number: float) -> float:
        return float(6 + 128 * (number - low) / span)

    height = 7 + 5 * len(bands)
    parts = []
    for row, band in enumerate(bands):
        if band:
            width = max(x(band["p95"]) - x(band["p5"]), 2.0)
            parts.append(
                f'<rect x="{x(band["p5"]):.1f}" y="{4 + 5 * row}" width="{width:.1f}" height="3"/>'
            )
    if sinusoid is not None:
        at = x(sinusoid)
        parts.append(f'<path class="sinusoid" d="M{at - 3.5:.1f} {height - 2}l3.5 -5l3.5 5z"/>')
    parts.append(f'<path class="value" d="M{x(value):.1f} 2v{height - 4}"/>')
    size = f'viewBox="0 0 140 {height}"'
    drawn = f'<svg class="range" {size} aria-hidden="true">{"".join(parts)}</svg>'
    return Markup(drawn)  # noqa: S704 - numbers alone
