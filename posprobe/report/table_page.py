"""The page of a table, from its document alone: what stands in its four sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posprobe.measurements import TABLE
from posprobe.number_format import Block, cell, lookup, show
from posprobe.page import Cell, Column, Fact, Page, Row, Section, Table, columns
from posprobe.report.narrator import LEVELS, REPLACED, asks, chance, claim
from posprobe.report.narrator.captions import baselines_caption
from posprobe.report.narrator.lines import Line, lines, size


def table_page(document: Block) -> Page:
    """Lay out the page of a table: what it is, the evidence, all numbers, where they come from."""
    table, told = document["table"], document.get("verdict")
    found = answers(document)
    overview = Table(
        LEVELS,
        columns("answer", "question", "measure", "=value", "by chance", "p"),
        tuple((a.answer, a.question, a.measure, a.value, a.chance, a.p) for a in found),
        brief=True,
    )
    sections = [
        Section(
            "overview", "Overview",
            bullets=(told["summary"],) if told else (),
            tables=(overview,) if found else (),
        ),
        Section("numbers", "All numbers", tables=(numbers_table(document, brief=not told),)),
    ]  # fmt: skip
    notes = [f"{note}." for note in table["notes"]]
    if told and told.get("replaced"):
        notes.append(REPLACED)
    return Page(
        title=table["name"],
        subject="what it has learned about position",
        lead=size(table),
        notes=tuple(notes),
        sections=tuple(sections),
        provenance=(*_source(document), *versions(document["environment"])),
    )


def answers(document: Block) -> tuple[Line, ...]:
    """Return the answers of a table in a line each; none where single measurements were chosen."""
    grid = document["table"]["layout"]["type"] == "grid"
    return lines(document["verdict"], grid=grid) if "verdict" in document else ()


def numbers_table(document: Block, *, brief: bool = False) -> Table:
    """Tabulate every number with those of the sinusoid and, where asked for, of baselines."""
    nulls = document.get("nulls") or {"numbers": {}, "models": {}, "draws": 0}
    models = tuple(nulls["models"]) if nulls["draws"] else ()
    rows: list[Row] = []
    for name, measurement in TABLE.items():
        for key, number in measurement.numbers.items():
            value = lookup(document, f"{name}.{key}")
            if value is None or value == []:
                continue
            beside = nulls["numbers"].get(f"{name}.{key}") or {}
            rows.append(
                (
                    number.label,
                    show(value, number.form),
                    cell(beside.get("sinusoid")),
                    *(_band(beside.get(model)) for model in models),
                )
            )
    headings = (
        *columns("number", "=this table", "=sinusoid"),
        *(Column(name, numeric=True) for name in models),
    )
    caption = baselines_caption(nulls["draws"] if models else 0)
    return Table(f"{caption}.", headings, tuple(rows), brief=brief)


def answers_table(
    told: Block, caption: str = LEVELS, questions: Mapping[str, str] | None = None
) -> Table:
    """Tabulate questions, answers, and the evidence for them beside what chance gives.

    Parameters
    ----------
    told
        The block ``verdict`` of a document; of version 1, what is asked of lines alone has an
        answer on grids, too, and is left out.
    caption
        What an answer means.
    questions
        In words, by name; those of tables where None.
    """
    words = asks() if questions is None else questions
    shown = [each for each in told["answers"] if each["question"] in words and claim(each)]
    # Exact answers leave nothing to chance.
    tested = any(answer["p"] is not None or answer.get("interval") for answer in shown)
    rows = tuple(
        (
            words[answer["question"]], answer["answer"], claim(answer),
            *([chance(answer)] if tested else ()),
        )
        for answer in shown
    )  # fmt: skip
    headings = columns("question", "answer", "evidence", *(["by chance"] if tested else ()))
    return Table(caption, headings, rows, stacked=True, brief=True)


def _band(band: Mapping[str, float] | None) -> Cell:
    if band is None:
        return Cell("–")
    low, middle, high = (brief(band[key]) for key in ("p5", "p50", "p95"))
    return Cell(middle, note="" if low == high else f"{low} to {high}")


def brief(value: float) -> str:
    """Format a number of a band: two digits, and nothing for what is nearly nothing."""
    if abs(value) < 0.005:
        return "0"
    return f"{value:.3g}" if 0.95 < abs(value) < 1.05 or abs(value) >= 10 else f"{value:.2g}"


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
    return tuple(
        Fact(label, str(source[key]), code=True) for key, label in found.items() if source[key]
    )


def tensor(source: Block, whose: str = "") -> tuple[Fact, ...]:
    """Say where the numbers are stored, and how."""
    facts = []
    if source["file"]:
        facts.append(Fact(f"{whose}file", source["file"], code=True))
    if source.get("format"):
        facts.append(Fact(f"{whose}file format", source["format"]))
    if source["tensor"]:
        facts.append(Fact(f"{whose}tensor", source["tensor"], code=True))
        shape = " × ".join(map(str, source["shape"] or ()))
        stored = ", ".join(filter(None, (shape, source["dtype"], quantised(source))))
        if stored:
            facts.append(Fact(f"{whose}stored as", stored))
    if source["sha256"]:
        facts.append(Fact(f"{whose}SHA-256", source["sha256"], code=True))
    return tuple(facts)


def quantised(source: Block) -> str:
    """Say how the stored numbers were rounded to few values; empty where they were not."""
    known = source.get("quantisation")
    if not known:
        return ""
    step = f" in steps of {known['step']:.3g}" if known["step"] else ""
    return f"dequantised from {known['name']}{step}"


def versions(environment: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Say what the numbers were made with."""
    return tuple(
        Fact(name, str(value), code=name == "command")
        for name, value in environment.items()
        if value is not None
    )
