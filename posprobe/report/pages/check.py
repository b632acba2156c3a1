"""The page of a check of two copies."""

from __future__ import annotations

from posprobe.page import Evidence, Fact, Page, Row, Table, make_columns
from posprobe.report.pages.parts import version_facts
from posprobe.text import Block, format_cell
from posprobe.words import PICTURE_TEXTS, describe_pictures, relations


def check_page(document: Block) -> Page:
    """Build the page of the check of two copies, differences before agreements."""
    causes, compared = document["causes"], document["compared"]
    cell_keys = ("value", "tolerance", "first_distance", "rotation")
    rows: list[Row] = [
        (
            relations.subject_name(finding["what"], finding["part"]),
            verdict,
            *(format_cell(finding[key]) for key in cell_keys),
        )
        for verdict, findings in (("differs", causes), ("alike", compared))
        for finding in findings
    ]
    columns = make_columns(
        "part", "B is", "=value", "=tolerance", "=matters from distance", "=mean rotation"
    )
    records = [
        [relations.read_finding(finding) for finding in findings]
        for findings in (causes, compared)
    ]
    findings_by_title = {"Differs": causes, "Alike": compared}
    return Page(
        title=f"{document['a']} and {document['b']}",
        subject="check of two copies",
        lead=relations.check_question(document["a"], document["b"]),
        headline=" ".join(relations.verdict_sentences(document["alike"], *records)),
        notes=tuple(
            relations.not_compared_sentence(finding["reason"])
            for finding in document["not_compared"]
        ),
        pictures=describe_pictures("check", PICTURE_TEXTS["check"]),
        evidence=tuple(
            Evidence(
                title=title, sentences=tuple(finding["sentence"] for finding in findings)
            )
            for title, findings in findings_by_title.items()
            if findings
        ),
        numbers=Table("What was compared; distances in positions.", columns, tuple(rows)),
        provenance=(
            Fact("A", document["a"]),
            Fact("B", document["b"]),
            *version_facts(document["environment"]),
        ),
    )
