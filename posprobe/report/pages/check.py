"""The page of a check of two copies."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe.page import Cell, Evidence, Fact, Page, Row, Table, make_columns
from posprobe.report.pages.parts import version_facts
from posprobe.text import Block, format_cell
from posprobe.words import PICTURE_TEXTS, define_line, describe_pictures, relations

#: Keys of the columns of numbers of a finding.
FINDING_KEYS = ("value", "tolerance", "first_distance", "rotation")


def check_page(document: Block) -> Page:
    """Build the page of the check of two copies, differences before agreements."""
    causes, compared = (
        [relations.read_finding(finding) for finding in document[key]]
        for key in ("causes", "compared")
    )
    return Page(
        title=relations.check_title(document["a"], document["b"]),
        subject="check of two copies",
        lead=relations.check_lead(document),
        headline=" ".join(
            relations.verdict_sentences(document["alike"], causes, compared)
        ),
        notes=tuple(
            relations.not_compared_sentence(finding["reason"])
            for finding in document["not_compared"]
        ),
        pictures=describe_pictures("check", PICTURE_TEXTS["check"]),
        evidence=tuple(_evidence(document)),
        numbers=Table(
            "What was compared; distances in positions.",
            make_columns(
                "part",
                "B is",
                "=value",
                "=tolerance",
                "=matters from distance",
                "=mean rotation",
            ),
            tuple(_number_rows(document)),
        ),
        provenance=(
            Fact("A", document["a"]),
            Fact("B", document["b"]),
            *version_facts(document["environment"]),
        ),
    )


def _evidence(document: Block) -> Iterator[Evidence]:
    """Yield a line and a sentence on each finding."""
    n_causes = len(document["causes"])
    for index, finding in enumerate((*document["causes"], *document["compared"])):
        line = relations.finding_line(
            relations.read_finding(finding), f"check-{index}", differs=index < n_causes
        )
        yield Evidence((line,), sentences=(finding["sentence"],))


def _number_rows(document: Block) -> Iterator[Row]:
    """Yield the numbers of each finding, with the layers that it is about."""
    for key, verdict in (("causes", "differs"), ("compared", "alike")):
        for finding in document[key]:
            name = Cell(
                relations.subject_name(finding["what"], finding["part"]),
                note=relations.finding_place(relations.read_finding(finding)),
                definition=define_line("check"),
            )
            yield name, verdict, *(format_cell(finding[key]) for key in FINDING_KEYS)
