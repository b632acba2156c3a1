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
    sketch: Callable[[str], str] = lambda _: "",
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
    sketch
        Gives the small drawing of a cell by its name, made by posprobe itself, when the page comes
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
        sketch=lambda name: Markup(sketch(name)),  # noqa: S704
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

    Each null model has a line of its own, which its first letter names.

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
        return float(18 + 126 * (number - low) / span)

    height = 10 + 9 * len(bands)
    parts = []
    for row, (name, band) in enumerate(entry["bands"].items()):
        if band:
            middle = (x(band["p5"]) + x(band["p95"])) / 2
            width = max(x(band["p95"]) - x(band["p5"]), 5.0)
            parts.append(
                f'<text x="2" y="{8.5 + 9 * row}">{escape(name[:1])}</text>'
                f'<path class="track" d="M12 {6 + 9 * row}H150"/>'
                f'<rect x="{middle - width / 2:.1f}" y="{3 + 9 * row}" width="{width:.1f}" '
                'height="6"/>'
            )
    if sinusoid is not None:
        at = x(sinusoid)
        parts.append(f'<path class="sinusoid" d="M{at - 3.5:.1f} {height - 2}l3.5 -5l3.5 5z"/>')
    parts.append(f'<path class="value" d="M{x(value):.1f} 2v{height - 4}"/>')
    size = f'viewBox="0 0 152 {height}" style="height:{height}px"'
    drawn = f'<svg class="range" {size} aria-hidden="true">{"".join(parts)}</svg>'
    return Markup(drawn)  # noqa: S704 - numbers alone
