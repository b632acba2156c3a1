"""The page of a check of two copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from posprobe.page import Cell, Evidence, Fact, Page, Row, Table, make_columns
from posprobe.report.pages.parts import version_facts
from posprobe.text import Block, format_cell
from posprobe.words import PICTURE_TEXTS, define_line, describe_pictures, relations

#: Measure of a question of which several parts are alike.
ALL_PARTS = "several parts"
#: Keys of the columns of numbers of a finding.
FINDING_KEYS = ("value", "tolerance")


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
                f"={relations.DISTANCE_LABEL}",
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


def _evidence(document: Block) -> list[Evidence]:
    """Return a line and a sentence for each difference, and a line for each other question."""
    n_causes = len(document["causes"])
    evidence: list[Evidence] = []
    first_lines: dict[tuple[str, str], int] = {}
    for index, finding in enumerate((*document["causes"], *document["compared"])):
        line = relations.finding_line(
            relations.read_finding(finding),
            f"check-{index}-{finding['what']}",
            differs=index < n_causes,
        )
        cause = next(
            (
                k
                for k in range(min(n_causes, index))
                if evidence[k].lines[0].question == line.question
            ),
            None,
        )
        same = first_lines.setdefault((line.question, line.value), len(evidence))
        first = same if cause is None else cause
        if index < n_causes or first == len(evidence):
            evidence.append(Evidence((line,), sentences=(finding["sentence"],)))
            continue
        # What else is alike stands below the difference, or the first line of its value.
        first_line = evidence[first].lines[0]
        if first >= n_causes:
            first_line = replace(first_line, measure=ALL_PARTS)
        sentences = (*evidence[first].sentences, finding["sentence"])
        evidence[first] = Evidence((first_line,), sentences=sentences)
    return evidence


def _number_rows(document: Block) -> Iterator[Row]:
    """Yield the numbers of each finding, with the layers that it is about."""
    for key in ("causes", "compared"):
        for block in document[key]:
            finding = relations.read_finding(block)
            name = Cell(
                relations.subject_name(finding.what, finding.part),
                note=relations.finding_place(finding),
                definition=define_line(f"check-{finding.what}"),
            )
            yield (
                name,
                relations.finding_verdict(finding, differs=key == "causes"),
                *(format_cell(block[number]) for number in FINDING_KEYS),
                relations.format_first_distance(finding),
                format_cell(finding.rotation),
            )
