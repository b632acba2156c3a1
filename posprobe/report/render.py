"""A saved bundle becomes one page: which page a document has, and that of a table."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from posprobe.measurements import TABLE
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, columns
from posprobe.report import overview
from posprobe.report.html import html
from posprobe.report.svg import embedded
from posprobe.text import Block, between, cell, lookup, plain, show
from posprobe.words import REPLACED, claim
from posprobe.words.captions import baselines_caption
from posprobe.words.lines import key, lines, size

#: By a block that a document of something else than one table has, what lays out its page.
OTHERS = {
    "tables": "pages.comparison_page",
    "schemes": "schemes.scheme_page",
    "records": "pages.kernel_page",
    "ways": "pages.ways_page",
    "rules": "pages.rules_page",
    "contexts": "forward.forward_page",
    "causes": "pages.check_page",
}


def of_table(document: Block) -> bool:
    """Tell whether a document is of one table, whose page is drawn from its arrays."""
    return "table" in document and not OTHERS.keys() & document.keys()


def page_of(document: Block) -> Page:
    """Lay out the page of any document. What other documents need is not imported.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    place = next((place for key, place in OTHERS.items() if key in document), "render.table_page")
    module, _, build = place.partition(".")
    page: Page = getattr(import_module(f"posprobe.report.{module}"), build)(document)
    return page


def figures_of(document: Block) -> set[str]:
    """Name the figures that a bundle of such a document may have."""
    if of_table(document):
        drawn = {each.name for found in TABLE.values() for each in found.drawings}
        return {"table", *drawn, *(f"overview-{name}" for name in overview.NAMES)}
    return {picture.name for picture in page_of(document).drawn}


def render(document: Block, drawings: Mapping[str, str]) -> str:
    """Render a bundle's page.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    drawings
        SVG text of its figures by name; of a table those of `posprobe.report.overview.drawings`.

    Returns
    -------
    str
        HTML that refers to nothing outside itself but the files beside it.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    page, version = page_of(document), document["environment"]["posprobe"]
    if of_table(document):
        drawn = dict(drawings)
        if "budget" in drawn:
            drawn["budget"] += overview.legend(document)
        return html(page, version, drawn)
    shown = {
        each.name: embedded(drawings[each.name], plain(each.alt))
        for each in page.drawn
        if each.name in drawings
    }
    return html(page, version, shown)


def table_page(document: Block) -> Page:
    """Lay out the page of a table."""
    table, told = document["table"], document.get("verdict")
    notes = [f"{note}." for note in table["notes"]]
    if told and told.get("replaced"):
        notes.append(REPLACED)
    return Page(
        title=table["name"],
        subject="what it has learned about position",
        lead=size(table),
        headline=told["summary"] if told else "",
        notes=tuple(notes),
        pictures=tuple(map(Picture, overview.NAMES)),
        evidence=_evidence(told, grid=table["layout"]["type"] == "grid") if told else (),
        key=key(document) if told else "",
        numbers=_numbers(document),
        provenance=(*_source(document), *versions(document["environment"])),
    )


def _evidence(told: Block, *, grid: bool) -> tuple[Evidence, ...]:
    said = {each["question"]: claim(each) for each in told["answers"]}
    return tuple(Evidence((line,), sentences=(said[line.name],)) for line in lines(told, grid=grid))


def _numbers(document: Block) -> Table:
    """Tabulate every number with those of the sinusoid and, where asked for, of baselines."""
    nulls = document.get("nulls") or {"numbers": {}, "models": {}, "draws": 0}
    models = tuple(nulls["models"]) if nulls["draws"] else ()
    rows: list[Row] = []
    for name, measurement in TABLE.items():
        for path, number in measurement.numbers.items():
            value = lookup(document, f"{name}.{path}")
            if value is None or value == []:
                continue
            beside = nulls["numbers"].get(f"{name}.{path}") or {}
            drawn = (beside.get(model) for model in models)
            bands = (between(each.values()) if each else "–" for each in drawn)
            sinusoid = cell(beside.get("sinusoid"))
            rows.append((number.label, show(value, number.form), sinusoid, *bands))
    headings = columns("number", "=this table", "=sinusoid", *(f"={name}" for name in models))
    caption = baselines_caption(nulls["draws"] if models else 0)
    return Table(f"{caption}.", headings, tuple(rows))


def _source(document: Block) -> tuple[Fact, ...]:
    table, told = document["table"], document.get("verdict", {})
    left_out = "; ".join(f"row {row['row']}: {row['reason']}" for row in table["dropped_rows"])
    special = "; ".join(f"row {row['row']}: {row['token']}" for row in table["prefix_rows"])
    facts = {
        "family": table["family"], "rows left out": left_out, "rows kept apart": special,
        "answers": told.get("based_on"),
    }  # fmt: skip
    return (
        *origin(table["source"]),
        *tensor(table["source"]),
        *(Fact(label, text) for label, text in facts.items() if text),
    )


def origin(source: Block) -> tuple[Fact, ...]:
    """Say what was asked for and what it led to."""
    found = {"reference": "reference", "resolved": "resolved to", "revision": "revision"}
    return tuple(Fact(label, str(source[key])) for key, label in found.items() if source[key])


def tensor(source: Block, whose: str = "") -> tuple[Fact, ...]:
    """Say where the numbers are stored, and how."""
    facts = []
    if source["file"]:
        facts.append(Fact(f"{whose}file", source["file"]))
    if source.get("format"):
        facts.append(Fact(f"{whose}file format", source["format"]))
    if source["tensor"]:
        facts.append(Fact(f"{whose}tensor", source["tensor"]))
        shape = " × ".join(map(str, source["shape"] or ()))
        stored = ", ".join(filter(None, (shape, source["dtype"], quantised(source))))
        if stored:
            facts.append(Fact(f"{whose}stored as", stored))
    if source["sha256"]:
        facts.append(Fact(f"{whose}SHA-256", source["sha256"]))
    return tuple(facts)


def quantised(source: Block) -> str:
    """Say how the stored numbers were rounded to few values; empty where they were not."""
    known = source.get("quantisation")
    if not known:
        return ""
    step = f" in steps of {known['step']:.3g}" if known["step"] else ""
    return f"dequantised from {known['name']}{step}"


def headline(document: Block) -> str:
    """Return the summary of the answers; bundles of earlier versions have findings alone."""
    if told := document.get("verdict"):
        summary: str = told["summary"]
        return summary
    return " ".join(finding["text"] for finding in document["findings"])


def versions(environment: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Say what the numbers were made with."""
    return tuple(Fact(name, str(value)) for name, value in environment.items() if value is not None)
