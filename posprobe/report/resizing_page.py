"""The pages of ways of resizing and of rules of scaling, from their documents alone."""

from __future__ import annotations

from posprobe.analyses.result import numbers_of
from posprobe.number_format import Block, cell, percent_with_error, with_error
from posprobe.page import (
    Cell,
    Column,
    Fact,
    Page,
    Picture,
    Row,
    Section,
    Table,
    columns,
)
from posprobe.readings import readings
from posprobe.report.table_page import versions
from posprobe.resizing.facts import Effect, Rule


def ways_page(document: Block) -> Page:
    """Lay out what each way of resizing does to a table."""
    table, to = document["table"], document["to"]
    missing = tuple(f"{how} is left out: {why}" for how, why in document["missing"].items())
    run = document.get("run")
    return Page(
        title=table["name"],
        subject="ways of resizing",
        lead=f"{table['name']}, from a {_layout(table['layout'])} to a {_layout(to)}: what each "
        "way does to the structure of the table.",
        notes=missing,
        sections=(
            *(() if run is None else (_costs(run),)),
            Section(
                "ways",
                "What each way does",
                bullets=tuple(
                    f"`{way['how']}`: {' '.join(way['sentences'])}" for way in document["ways"]
                ),
                reading=readings("report")["ways"].filled(
                    run=" Run the model, with --text or --images." if run is None else ""
                ),
                pictures=(
                    Picture("cosines", "Centred cosines of all pairs of rows, before and by way."),
                    Picture("norms", "Row norms by position, before and by way."),
                ),
            ),
            Section("numbers", "Numbers side by side", tables=(_numbers(document),)),
        ),
        provenance=(
            Fact("reference", table["source"]["reference"], code=True),
            *versions(document["environment"]),
        ),
    )


def rules_page(document: Block) -> Page:
    """Lay out what each rule of scaling does to rotary positions at another length."""
    missing = tuple(f"{name} is left out: {why}." for name, why in document["missing"].items())
    rules, run = document["rules"], document.get("run")
    rows: list[Row] = [
        (Cell(number.label, note=number.meaning), *(cell(rule[key]) for rule in rules))
        for key, number, _ in numbers_of(Rule)
    ]
    headings = (
        Column("number"),
        *(Column(rule["rule"], numeric=True) for rule in rules),
    )
    caption = f"{document['pairs']} pairs at {document['to']} positions; distances in positions."
    return Page(
        title=document["name"],
        subject="rules of scaling",
        lead=f"{document['name']}, rotary with base {document['base']:g}, from "
        f"{document['training']} positions to {document['to']}: what each rule of scaling does to "
        "its pairs.",
        notes=missing,
        sections=(
            *(() if run is None else (_costs(run, "rule"),)),
            Section(
                "rules",
                "What each rule does",
                bullets=tuple(f"`{rule['rule']}`: {rule['sentence']}" for rule in rules),
                reading=readings("report")["rules"].filled(
                    run=" Run the model, with --text." if run is None else ""
                ),
                pictures=(
                    Picture("wavelengths", "Wavelength of each pair by rule, and both lengths."),
                    Picture("decay", "Mean rotation by distance and rule."),
                ),
            ),
            Section(
                "numbers",
                "Numbers side by side",
                tables=(Table(caption, headings, tuple(rows), stacked=True, brief=True),),
            ),
        ),
        provenance=(
            Fact("reference", document["source"]["reference"], code=True),
            *versions(document["environment"]),
        ),
    )


def _costs(run: Block, what: str = "way") -> Section:
    """Lay out what the model does with each table, or by each rule."""
    of_text = run["measure"] == "loss"
    blocks = ({"before": run["before"]} if of_text else {}) | run["ways"]
    most = max((block["parts"] for block in blocks.values()), key=len)
    unit = "loss (nats)" if of_text else "same answer"
    rows = []
    for how, block in blocks.items():
        write = with_error if of_text else percent_with_error
        parts = [cell(part["loss"], ".3f") for part in block["parts"]]
        parts += ["–"] * (len(most) - len(parts))
        rows.append((how, write(block["value"], block["error"]), *parts))
    first = "table" if what == "way" else what
    headings = (first, f"={unit}", *(f"={part['first']} to {part['last']}" for part in most))
    caption = (
        f"Mean loss per {run['task']} over {run['contexts']} windows, and over ranges of positions."
        if of_text
        else f"Share of {run['contexts']} pictures with the answer that the unchanged model gives."
    )
    each = "with the table of each way" if what == "way" else "by each rule"
    picture = Picture("losses", f"Loss by position: before, and {each}.")
    told = readings("report")["losses" if of_text else "same_answers"]
    return Section(
        "costs",
        f"What each {what} costs the model",
        bullets=(run["sentence"],),
        tables=(Table(caption, columns(*headings), tuple(rows), brief=True),),
        reading=told.filled(kind=run["kind"], what=what),
        pictures=(picture,) if of_text else (),
    )


def _layout(layout: Block) -> str:
    if layout["type"] == "grid":
        return f"grid of {layout['height']} × {layout['width']}"
    return f"sequence of {layout['length']}"


def _numbers(document: Block) -> Table:
    blocks = {"before": document["before"]} | {way["how"]: way for way in document["ways"]}
    rows: list[Row] = [
        (
            Cell(number.label, note=number.meaning),
            # The old table against itself is no comparison.
            *(
                "–" if how == "before" and key.startswith("same_") else cell(block[key])
                for how, block in blocks.items()
            ),
        )
        for key, number, _ in numbers_of(Effect)
    ]
    for axis in document["before"]["turns"]:
        name = "period" if axis == "positions" else f"period along {axis}"
        periods = [_leading(block, axis) for block in blocks.values()]
        if any(periods):
            note = "of the leading pair of components that goes round"
            rows.append((Cell(name, note=note), *map(cell, periods)))
    if document["against"] is not None:
        name = document["against"]["name"]
        for key, label in (("row_cosine", "cosine"), ("distance", "distance"), ("cka", "CKA")):
            values = (cell((block["against"] or {}).get(key)) for block in blocks.values())
            rows.append((Cell(f"{label} with {name}", note="trained at this size"), *values))
    headings = (
        Column("number"),
        *(Column(how, numeric=True) for how in blocks),
    )
    return Table(
        "The table before and in each way; periods in positions.",
        headings,
        tuple(rows),
        stacked=True,
        brief=True,
    )


def _leading(block: Block, axis: str) -> float | None:
    turns = block["turns"].get(axis)
    return turns["periods"][0] if turns and turns["periods"] else None
