"""The page: a saved bundle becomes one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posprobe.figures.grid import MAX_TILES
from posprobe.nulls import NULLS
from posprobe.report.embed import cosines, json_text, script
from posprobe.report.forward_page import forward_context
from posprobe.report.scheme_page import kernel_context, scheme_context
from posprobe.report.sections import (
    COMPARED,
    OVERVIEW,
    SECTIONS,
    VERDICT,
    Block,
    Number,
    lookup,
    reasons,
    show,
)
from posprobe.report.svg import inline

if TYPE_CHECKING:
    from jinja2 import Template


#: How to cite posprobe, as CITATION.cff says.
CITATION = "The posprobe authors. posprobe: what a trained transformer has learned about position."
#: Bytes that a page may have, and what all but its drawings and data take at most.
LIMIT, TEXT = 2_000_000, 150_000


def render(
    document: Block,
    drawings: Mapping[str, str],
    arrays: Mapping[str, NDArray[Any]] = MappingProxyType({}),
) -> str:
    """Render a bundle's page.

    Parameters
    ----------
    document
        The content of ``analysis.json``; the page carries it.
    drawings
        SVG text of its figures by name.
    arrays
        The content of ``arrays.npz``, of whose cosines the page carries a rounded copy; without
        them none can be read by pointing.

    Returns
    -------
    str
        HTML that refers to nothing outside itself.

    Raises
    ------
    KeyError, TypeError
        If the document lacks a block that the page shows.
    """
    name, context = _content(document, drawings)
    data = json_text(document)
    room = LIMIT - TEXT - sum(map(len, drawings.values())) - len(data.encode(errors="replace"))
    packed = cosines(arrays, room) if "table" in document else None
    version = document["environment"]["posprobe"]
    return fill(
        name,
        **context,
        environment=document["environment"],
        citation=f"{CITATION} Version {version}.",
        data=data,
        cosines=json_text(packed | {"tiles": MAX_TILES}) if packed else None,
    )


def fill(template: str, *, data: str, cosines: str | None, **context: Any) -> str:
    """Fill a template, with the script and with the JSON that it reads."""
    from markupsafe import Markup

    # Neither JSON of ours nor the script holds a `<` that HTML would read.
    marked = {"data": Markup(data), "cosines": cosines and Markup(cosines)}  # noqa: S704
    text, digest = script()
    page = _template(template).render(
        **context,
        **marked,
        script=Markup(text),  # noqa: S704
        script_hash=digest,
    )
    # A file name need not be valid text.
    return page.encode("utf-8", "backslashreplace").decode()


def _content(document: Block, drawings: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Choose the template of a document and gather what it shows."""
    if "tables" in document:
        return "comparison.html", _comparison_context(document, drawings)
    if "schemes" in document:
        return "schemes.html", scheme_context(document, drawings)
    if "records" in document:
        return "kernels.html", kernel_context(document, drawings)
    if "contexts" in document:
        return "forward.html", forward_context(document, drawings)
    return "report.html", _analysis_context(document, drawings)


def _analysis_context(document: Block, drawings: Mapping[str, str]) -> dict[str, Any]:
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
            "facts": section.facts(document[section.key]),
            "rows": rows_of(document[section.key], section.numbers),
            "undefined": _reasons(document[section.key]),
        }
        for section in SECTIONS
        if section.key in document
    ]
    table = document["table"]
    return {
        "document": document,
        "table": table,
        "source": table["source"],
        "overview": [row for row in rows_of(document, OVERVIEW) if row["value"] != "undefined"],
        "sections": sections,
        "verdict": verdict_rows(document.get("nulls")),
        "nulls": document.get("nulls"),
        "null_names": NULLS,
        "findings": document.get("findings", ()),
        "lines": document.get("spectrum", {}).get("lines") or [],
        "outliers": _farthest(document.get("norms", {})),
        "seams": document.get("seams", {}),
        "table_drawing": "table" in drawings
        and inline(
            drawings["table"],
            "table",
            f"Heat map of the table {table['name']}: {table['positions']} positions across, "
            f"{table['dim']} dimensions down.",
        ),
    }


def _comparison_context(document: Block, drawings: Mapping[str, str]) -> dict[str, Any]:
    tables = document["tables"]
    rows = []
    for number in VERDICT:
        found = [table["nulls"]["numbers"].get(number.key) for table in tables]
        if any(entry and entry["value"] is not None for entry in found):
            rows.append({"label": number.label, "texts": [_beside_walk(entry) for entry in found]})
    return {
        "labels": [table["label"] for table in tables],
        "tables": tables,
        "length": document["length"],
        "pairs": document["pairs"],
        "numbers": rows,
        "published": [
            {"label": table["label"], **value} for table in tables for value in table["published"]
        ],
        "figures": [
            inline(drawings[name], name, text(document))
            for name, text in COMPARED.items()
            if name in drawings
        ],
    }


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
            "nulls": [{"name": name, **_band_text(entry[name])} for name in NULLS],
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
    """Collect why numbers of a block and its parts are undefined."""
    parts = (block, *(value for value in block.values() if isinstance(value, Mapping)))
    found = [part["undefined"] for part in parts if isinstance(part.get("undefined"), Mapping)]
    return reasons(pair for undefined in found for pair in undefined.items())


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
