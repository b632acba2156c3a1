"""The page of a check of two copies."""

from __future__ import annotations

from posprobe.page import Cell, Evidence, Fact, Page, Row, Table, make_columns
from posprobe.report.pages.parts import version_facts
from posprobe.text import Block, format_cell
from posprobe.words import PICTURE_TEXTS, define_line, describe_pictures, relations


def check_page(document: Block) -> Page:
    """Build the page of the check of two copies, differences before agreements."""
    causes, compared = document["causes"], document["compared"]
    records = [
        [relations.read_finding(finding) for finding in findings]
        for findings in (causes, compared)
    ]
    cell_keys = ("value", "tolerance", "first_distance", "rotation")
    rows: list[Row] = [
        (
            Cell(
                relations.subject_name(finding["what"], finding["part"]),
                note=relations.finding_place(record),
                definition=define_line("check"),
            ),
            verdict,
            *(format_cell(finding[key]) for key in cell_keys),
        )
        for verdict, findings, group in (
            ("differs", causes, records[0]),
            ("alike", compared, records[1]),
        )
        for finding, record in zip(findings, group, strict=True)
    ]
    columns = make_columns(
        "part", "B is", "=value", "=tolerance", "=0.1 rad off from", "=mean rotation"
    )
    return Page(
        title=relations.check_title(document["a"], document["b"]),
        subject="check of two copies",
        lead=relations.check_lead(document),
        headline=" ".join(relations.verdict_sentences(document["alike"], *records)),
        notes=tuple(
            relations.not_compared_sentence(finding["reason"])
            for finding in document["not_compared"]
        ),
        pictures=describe_pictures("check", PICTURE_TEXTS["check"]),
        evidence=tuple(
            Evidence(
                (
                    relations.finding_line(
                        record, f"check-{index}", differs=index < len(causes)
                    ),
                ),
                sentences=(finding["sentence"],),
            )
            for index, (record, finding) in enumerate(
                zip((*records[0], *records[1]), (*causes, *compared), strict=True)
            )
        ),
        numbers=Table("What was compared; distances in positions.", columns, tuple(rows)),
        provenance=(
            Fact("A", document["a"]),
            Fact("B", document["b"]),
            *version_facts(document["environment"]),
        ),
    )
