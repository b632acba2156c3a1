"""The page: a saved bundle becomes one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from posprobe.nulls import NULLS
from posprobe.report.scheme_page import kernel_context, scheme_context
from posprobe.report.sections import OVERVIEW, SECTIONS, VERDICT, Block, Number, lookup, show
from posprobe.report.svg import inline

if TYPE_CHECKING:
    from jinja2 import Template


#: Alternative texts of a comparison's figures.
_COMPARED = {
    "similarity": "Cosine matrices of all tables on one range from -1 to 1.",
    "curves": "Mean centred cosine by offset, and share of power by frequency, of all tables.",
    "variance": "Running sum of explained variance of all tables.",
    "distances": "Matrices of the pairwise distances; the numbers stand in the table below.",
}


def render(document: Block, drawings: Mapping[str, str]) -> str:
    """Render a bundle's page.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    drawings
        SVG text of its figures by name.

    Returns
    -------
    str
        HTML that refers to nothing outside itself.

    Raises
    ------
    KeyError, TypeError
        If the document lacks a block that the page shows.
    """
    # A file name need not be valid text.
    return _render(document, drawings).encode("utf-8", "backslashreplace").decode()


def _render(document: Block, drawings: Mapping[str, str]) -> str:
    if "tables" in document:
        return _render_comparison(document, drawings)
    if "schemes" in document:
        return _template("schemes.html").render(scheme_context(document, drawings))
    if "records" in document:
        return _template("kernels.html").render(kernel_context(document, drawings))
    return _render_analysis(document, drawings)


def _render_analysis(document: Block, drawings: Mapping[str, str]) -> str:
    sections = [
        {
            "key": section.key,
            "title": section.title,
            "text": section,
            "figures": [
                inline(drawings[name], name, label(document[section.key]))
                for name, label in section.figures.items()
                if name in drawings
            ],
            "rows": rows_of(document[section.key], section.numbers),
            "undefined": _reasons(document[section.key]),
        }
        for section in SECTIONS
        if section.key in document
    ]
    table_drawing = drawings.get("table")
    return _template("report.html").render(
        document=document,
        table=document["table"],
        source=document["table"]["source"],
        environment=document["environment"],
        overview=[row for row in rows_of(document, OVERVIEW) if row["value"] != "undefined"],
        sections=sections,
        verdict=verdict_rows(document.get("nulls")),
        nulls=document.get("nulls"),
        null_names=NULLS,
        findings=document.get("findings", ()),
        lines=document.get("spectrum", {}).get("lines") or [],
        outliers=_farthest(document.get("norms", {})),
        seams=document.get("seams", {}),
        table_drawing=table_drawing
        and inline(table_drawing, "table", f"Heat map of the table {document['table']['name']}"),
    )


def _render_comparison(document: Block, drawings: Mapping[str, str]) -> str:
    tables = document["tables"]
    rows = []
    for number in VERDICT:
        found = [table["nulls"]["numbers"].get(number.key) for table in tables]
        if any(entry and entry["value"] is not None for entry in found):
            rows.append({"label": number.label, "texts": [_beside_walk(entry) for entry in found]})
    return _template("comparison.html").render(
        labels=[table["label"] for table in tables],
        tables=tables,
        length=document["length"],
        pairs=document["pairs"],
        environment=document["environment"],
        numbers=rows,
        published=[
            {"label": table["label"], **value} for table in tables for value in table["published"]
        ],
        figures=[
            inline(drawings[name], name, text)
            for name, text in _COMPARED.items()
            if name in drawings
        ],
    )


def _beside_walk(entry: Block | None) -> str:
    if not entry or entry["value"] is None:
        return "–"
    walk = entry["walk"]
    return show(entry["value"]) + (f" ({show(walk['p50'])})" if walk else "")


def verdict_rows(nulls: Block | None) -> list[dict[str, Any]]:
    """Format the ``nulls`` block: one row per number that is defined."""
    numbers = nulls["numbers"] if nulls else {}
    return [
        {
            "label": number.label,
            "meaning": number.meaning,
            "value": show(entry["value"]),
            "sinusoid": show(entry["sinusoid"]) if entry["sinusoid"] is not None else "–",
            "nulls": [_band_text(entry[name]) for name in NULLS],
            "plot": _range_plot(entry),
        }
        for number in VERDICT
        if (entry := numbers.get(number.key)) and entry["value"] is not None
    ]


def _band_text(band: Block | None) -> dict[str, str]:
    if band is None:
        return {"median": "–", "range": ""}
    low, middle, high = (brief(band[key]) for key in ("p5", "p50", "p95"))
    return {"median": middle, "range": "" if low == high else f"{low} to {high}"}


def brief(value: float) -> str:
    """Format a number of a band: two digits, and nothing for what is nearly nothing."""
    if abs(value) < 0.005:
        return "0"
    return f"{value:.3g}" if 0.95 < abs(value) < 1.05 or abs(value) >= 10 else f"{value:.2g}"


def _range_plot(entry: Block) -> str:
    """Draw a number on one axis with the bands of the nulls and the sinusoid's value."""
    bands = [entry[name] for name in NULLS]
    marks = [value for value in (entry["value"], entry["sinusoid"]) if value is not None]
    marks += [band[key] for band in bands if band for key in ("p5", "p95")]
    low, high = min(marks), max(marks)
    span = (high - low) or 1.0

    def x(value: float) -> float:
        return float(6 + 128 * (value - low) / span)

    parts = []
    for row, band in enumerate(bands):
        if band:
            width = max(x(band["p95"]) - x(band["p5"]), 2.0)
            parts.append(
                f'<rect x="{x(band["p5"]):.1f}" y="{4 + 5 * row}" width="{width:.1f}" height="3"/>'
            )
    if entry["sinusoid"] is not None:
        at = x(entry["sinusoid"])
        parts.append(f'<path class="sinusoid" d="M{at - 3.5:.1f} 25l3.5 -5l3.5 5z"/>')
    parts.append(f'<path class="value" d="M{x(entry["value"]):.1f} 2v23"/>')
    return f'<svg class="range" viewBox="0 0 140 27" aria-hidden="true">{"".join(parts)}</svg>'


def rows_of(block: Block, numbers: tuple[Number, ...]) -> list[dict[str, str]]:
    """Look numbers up in a block and format them: label, value and meaning."""
    return [
        {
            "label": number.label,
            "value": show(lookup(block, number.key), number.form),
            "meaning": number.meaning,
        }
        for number in numbers
    ]


def _farthest(norms: Block) -> list[dict[str, Any]]:
    """Sort the rows that stand out by how far they do."""
    rows = norms.get("outlier_rows") or []
    return sorted(rows, key=lambda row: -abs(row["norm"] - norms["median"]))


def _reasons(block: Block) -> list[str]:
    """Collect why numbers are undefined: each reason once, with the numbers it concerns."""
    found: dict[str, dict[str, None]] = {}
    for part in (block, *(value for value in block.values() if isinstance(value, Mapping))):
        undefined = part.get("undefined")
        for name, reason in undefined.items() if isinstance(undefined, Mapping) else ():
            found.setdefault(reason, {})[name.replace("_", " ")] = None
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


@cache
def _template(name: str) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("posprobe.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    return environment.get_template(name)
