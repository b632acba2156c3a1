"""The page of a check of two copies."""

from __future__ import annotations

from posprobe.page import Evidence, Fact, Page, Row, Table, columns
from posprobe.report.pages.parts import versions
from posprobe.text import Block, cell
from posprobe.words import (
    PICTURES,
    pictures,
    relations,
)


def check_page(document: Block) -> Page:
    """Lay out what two copies of a model are to each other: differences before what is alike."""
    causes, compared = document["causes"], document["compared"]
    rows: list[Row] = [
        (
            relations.subject(each["what"], each["part"]), verdict, cell(each["value"]),
            cell(each["tolerance"]), cell(each["first_distance"]), cell(each["rotation"]),
        )
        for verdict, found in (("differs", causes), ("alike", compared))
        for each in found
    ]  # fmt: skip
    names = [[each["cause"] for each in found] for found in (causes, compared)]
    told = {"Differs": causes, "Alike": compared}
    return Page(
        title=f"{document['a']} and {document['b']}",
        subject="check of two copies",
        lead=relations.copies(document["a"], document["b"]),
        headline=" ".join(relations.verdict(document["alike"], *names)),
        notes=tuple(relations.left_out(each["reason"]) for each in document["not_compared"]),
        pictures=pictures("check", PICTURES["check"]),
        evidence=tuple(
            Evidence(title=title, sentences=tuple(each["sentence"] for each in found))
            for title, found in told.items()
            if found
        ),
        numbers=Table(
            "What was compared; distances in positions.",
            columns("part", "B is", "=value", "=tolerance", "=0.1 rad off from", "=mean rotation"),
            tuple(rows),
        ),
        provenance=(
            Fact("A", document["a"]), Fact("B", document["b"]),
            *versions(document["environment"]),
        ),
    )  # fmt: skip
