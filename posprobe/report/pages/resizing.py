"""The pages of resizing: ways of resizing a table, rules of scaling rotary positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from posprobe.analyses.result import record_numbers
from posprobe.page import Cell, Evidence, Fact, Page, Row, Table, make_columns
from posprobe.relations.resized import Effect, Rule
from posprobe.report.pages.parts import version_facts
from posprobe.text import Block, format_cell
from posprobe.words import (
    PICTURE_TEXTS,
    define_number,
    describe_pictures,
    resizing,
)


def ways_page(document: Block) -> Page:
    """Build the page of ways of resizing a table."""
    table, ways, run = document["table"], document["ways"], document.get("run")
    return Page(
        title=table["name"],
        subject="ways of resizing",
        lead=resizing.ways_lead(table["layout"], document["to"]),
        headline=resizing.ways_headline(document),
        notes=tuple(
            f"{way} is left out: {reason}" for way, reason in document["missing"].items()
        ),
        pictures=describe_pictures("ways", PICTURE_TEXTS["ways"]),
        evidence=tuple(
            Evidence((resizing.way_line(way, run),), sentences=tuple(way["sentences"]))
            for way in ways
        ),
        key=resizing.run_key(run),
        numbers=_way_numbers(document),
        provenance=(
            Fact("reference", table["source"]["reference"]),
            *version_facts(document["environment"]),
        ),
    )


def rules_page(document: Block) -> Page:
    """Build the page of rules that scale rotary positions to another length."""
    rules, run = document["rules"], document.get("run")
    rows: list[Row] = [
        (
            Cell(
                number.label,
                note=number.meaning,
                definition=define_number(number.label, number.meaning),
            ),
            *(format_cell(rule[key]) for rule in rules),
        )
        for key, number, _ in record_numbers(Rule)
    ]
    names = {rule["rule"]: rule["rule"] for rule in rules}
    return Page(
        title=document["name"],
        subject="rules of scaling",
        lead=resizing.rules_lead(document),
        headline=run["sentence"]
        if run
        else resizing.rules_headline(rules, document["pairs"]),
        notes=tuple(
            f"{name} is left out: {reason}."
            for name, reason in document["missing"].items()
        ),
        pictures=describe_pictures("rules", PICTURE_TEXTS["rules"]),
        evidence=tuple(
            Evidence(
                (resizing.rule_line(rule, document["pairs"], run),),
                sentences=(rule["sentence"],),
            )
            for rule in rules
        ),
        key=resizing.run_key(run),
        numbers=_number_table([*rows, *_cost_rows(run, names)], names),
        provenance=(
            Fact("reference", document["source"]["reference"]),
            *version_facts(document["environment"]),
        ),
    )


def _number_table(rows: list[Row], names: Mapping[str, str]) -> Table:
    headings = make_columns("number", *(f"={name}" for name in names))
    return Table(
        "All numbers; distances and periods in positions.", headings, tuple(rows)
    )


def _cost_rows(run: Block | None, names: Mapping[str, object]) -> Iterator[Row]:
    """Yield the cost of each table or rule for the model, in all and by position."""
    if run is None:
        return
    blocks = {"before": run["before"]} | run["ways"]
    cost_blocks = [blocks.get(name) for name in names]
    yield (
        resizing.LOSS_MEASURE,
        *(resizing.format_cost(block) if block else "–" for block in cost_blocks),
    )
    sections = max((block["parts"] for block in blocks.values()), key=len)
    for index, section in enumerate(sections):
        losses = (
            block["parts"][index : index + 1] if block else () for block in cost_blocks
        )
        texts = (
            format_cell(loss_blocks[0]["loss"], ".3f") if loss_blocks else "–"
            for loss_blocks in losses
        )
        yield (f"loss at positions {section['first']} to {section['last']}", *texts)


def _way_numbers(document: Block) -> Table:
    blocks = {"before": document["before"]} | {
        way["how"]: way for way in document["ways"]
    }
    rows: list[Row] = [
        (
            Cell(
                number.label,
                note=number.meaning,
                definition=define_number(number.label, number.meaning),
            ),
            # Comparing the old table with itself says nothing.
            *(
                "–"
                if way_name == "before" and key.startswith("same_")
                else format_cell(block[key])
                for way_name, block in blocks.items()
            ),
        )
        for key, number, _ in record_numbers(Effect)
    ]
    for axis in document["before"]["turns"]:
        name = "leading period" if axis == "positions" else f"leading period along {axis}"
        periods = [_leading_period(block, axis) for block in blocks.values()]
        if any(periods):
            rows.append((name, *map(format_cell, periods)))
    return _number_table(
        [*rows, *_cost_rows(document.get("run"), blocks)], dict.fromkeys(blocks, "")
    )


def _leading_period(block: Block, axis: str) -> float | None:
    """Return the leading period of the old table, or what becomes of it; None if it is lost."""
    for period in block.get("periods", ()):
        if period["axis"] == axis:
            after: float | None = period["after"]
            return after
    # The old table, and documents of earlier versions.
    turns = block["turns"].get(axis)
    return turns["periods"][0] if turns and turns["periods"] else None
