"""The page of tables side by side."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe.measurements import compared_numbers
from posprobe.number_format import Block, cell, lookup, show
from posprobe.page import Column, Fact, Page, Picture, Section, Table, columns
from posprobe.readings import readings
from posprobe.report.narrator import asks
from posprobe.report.narrator.compare import lead, rows_compared
from posprobe.report.table_page import versions


def comparison_page(document: Block) -> Page:
    """Lay out the page of a comparison of tables."""
    tables = document["tables"]
    notes = [f"{table['label']}: {note}." for table in tables for note in table["table"]["notes"]]
    return Page(
        title=" · ".join(table["label"] for table in tables),
        subject="compared by position",
        lead=lead(tables),
        notes=(*rows_compared(document), *notes),
        sections=(
            *_answers(document),
            Section("numbers", "Numbers side by side", tables=(_numbers(tables),)),
            Section("figures", "Figures", pictures=tuple(_pictures(document))),
            _distances(document),
            *_published(tables),
        ),
        provenance=(
            *(fact for table in tables for fact in _source(table)),
            *versions(document["environment"]),
        ),
    )


def _answers(document: Block) -> tuple[Section, ...]:
    """Say what the tables share and where they differ."""
    if "verdict" not in document:
        return ()
    told, tables = document["verdict"], document["tables"]
    rows = tuple(
        (
            asks().get(answer["question"], answer["question"]),
            *(answer["answers"].get(table["label"], "–") for table in tables),
        )
        for answer in told["answers"]
    )
    headings = columns("question", *(table["label"] for table in tables))
    return (
        Section(
            "verdict",
            "What they share and where they differ",
            bullets=(
                told["summary"],
                *(f"{t['label']}: {t['verdict']['summary']}" for t in tables),
            ),
            tables=(
                Table(
                    "Questions and answers, each about the table's own rows.",
                    headings,
                    rows,
                    brief=True,
                ),
            ),
        ),
    )


def _numbers(tables: list[Block]) -> Table:
    rows = []
    for key, number in compared_numbers().items():
        found = [table["nulls"]["numbers"].get(key) for table in tables]
        if any(entry and entry["value"] is not None for entry in found):
            rows.append((number.label, *map(_beside_walk, found)))
    beside = ""
    if any(table["nulls"]["draws"] for table in tables):
        beside = " In brackets: median of random walks with the same steps, for sequences."
    return Table(
        f"Numbers of each table.{beside}",
        (Column("number"), *(Column(table["label"], numeric=True) for table in tables)),
        tuple(rows),
        brief=True,
    )


def _beside_walk(entry: Block | None) -> str:
    if not entry or entry["value"] is None:
        return "–"
    walk = entry.get("walk")
    return show(entry["value"]) + (f" ({show(walk['p50'])})" if walk else "")


def _distances(document: Block) -> Section:
    rows = tuple(
        (
            " and ".join(pair["tables"]),
            show(pair["cka"]),
            show(pair["procrustes"]),
            show(pair["subspace_overlap"]),
            _walks(pair["nulls"]),
        )
        for pair in document["pairs"]
    )
    return Section(
        "pairs",
        "Distances",
        tables=(
            Table(
                "Pairs of tables; the last column is the CKA of random walks with the steps of "
                "both, 5 to 95 %. Only a CKA above that range is evidence of similarity.",
                columns("pair", "=CKA", "=Procrustes", "=overlap", "=CKA of random walks"),
                rows,
                brief=True,
            ),
        ),
        reading=readings("report")["pairs"].reading,
    )


def _walks(nulls: Block | None) -> str:
    walk = nulls.get("walk") if nulls else None
    return f"{show(walk['p5'])} to {show(walk['p95'])}" if walk else "–"


def _published(tables: list[Block]) -> tuple[Section, ...]:
    rows = tuple(
        (
            table["label"],
            value["quantity"],
            show(value["value"]),
            cell(value["ours"]),
            _citation(value),
        )
        for table in tables
        for value in table["published"]
    )
    if not rows:
        return ()
    unmeasured = any(value["ours"] is None for table in tables for value in table["published"])
    missing = " Run with --only all to fill the blanks." if unmeasured else ""
    table = Table(
        f"Published values.{missing}",
        columns("table", "quantity", "=published", "=here", "source"),
        rows,
        brief=True,
    )
    return (Section("published", "Published values and ours", tables=(table,)),)


def _citation(value: Block) -> str:
    text = f"{value['citation']}, {value['where']}."
    if value["differs"]:
        text += f" Not the same quantity: {value['differs']}."
    if value["matched"] == "name":
        text += " The table was recognised by its name alone."
    return text


def _pictures(document: Block) -> Iterator[Picture]:
    """Name the figures, with the texts that stand for them."""

    def each(key: str, form: str = ".3g") -> str:
        found = ((table["label"], lookup(table, key)) for table in document["tables"])
        return ", ".join(f"{label} {show(value, form)}" for label, value in found)

    found = [pair["cka"] for pair in document["pairs"] if pair["cka"] is not None]
    between = show(sorted({min(found), max(found)}), " to ") if found else "undefined"
    yield Picture(
        "similarity",
        "Cosine matrices of all tables on one range from -1 to 1; mean centred cosine of "
        f"neighbours: {each('similarity.centered.neighbour_mean')}.",
    )
    yield Picture(
        "curves",
        "Mean centred cosine by offset, and share of power by frequency; 90 % of the power lies "
        f"below frequency: {each('spectrum.edge_frequency')}.",
    )
    yield Picture(
        "variance",
        "Running sum of explained variance; components that hold 90 %: "
        f"{each('pca.components_90', 'd')}.",
    )
    yield Picture(
        "distances",
        f"Matrices of the pairwise distances: CKA {between}; all numbers stand in the table.",
    )


def _source(table: Block) -> tuple[Fact, ...]:
    label, source = table["label"], table["table"]["source"]
    facts = [Fact(label, source["reference"], code=True)]
    if source["tensor"]:
        facts.append(Fact(f"{label}: tensor", source["tensor"], code=True))
    if source["sha256"]:
        facts.append(Fact(f"{label}: sha256", source["sha256"], code=True))
    return tuple(facts)
