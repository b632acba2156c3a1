"""The page of encodings of any scheme side by side, compared by their kernels."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe.data import read_data
from posprobe.page import Evidence, Fact, Page, Row, Table, columns
from posprobe.report.narrator import pictures, schemes as narrator
from posprobe.report.table_page import versions
from posprobe.text import Block, cell


def kernel_page(document: Block) -> Page:
    """Lay out the page of a comparison of kernels."""
    records = document["records"]
    labels = tuple(record["label"] for record in records)
    return Page(
        title=" · ".join(labels),
        subject="kernels side by side",
        lead=narrator.kernels_lead(document),
        headline=narrator.kernels_headline(document["pairs"], document["walk"]),
        notes=(
            *narrator.positions_compared(document),
            *(f"{record['label']}: {note}." for record in records for note in record["notes"]),
        ),
        pictures=pictures("kernels", ("curves", "kernels")),
        subjects=labels,
        evidence=(*_kernel_pairs(document), *_answers(document)),
        key=narrator.KERNEL_KEY,
        numbers=_numbers(records),
        provenance=(
            *(Fact(record["label"], _whence(record["source"])) for record in records),
            *versions(document["environment"]),
        ),
    )


def _kernel_pairs(document: Block) -> Iterator[Evidence]:
    for place, pair in enumerate(document["pairs"]):
        line = narrator.pair_line(pair, document["walk"], f"pair-{place}")
        said = tuple(narrator.pair_sentences(pair, document["walk"]))
        drawn = () if place else pictures("kernels", ("distances",))
        yield Evidence((line,), sentences=said, pictures=drawn)


def _answers(document: Block) -> Iterator[Evidence]:
    """Yield the questions with the answer of each encoding; bundles of 0.1.0 answer none."""
    for told in document.get("verdict", {}).get("answers", ()):
        yield Evidence(
            tuple(
                narrator.kernel_line(told["question"], told["answers"].get(each["label"], ""), each)
                for each in document["records"]
            )
        )


def _numbers(records: list[Block]) -> Table:
    known = read_data("report/numbers.toml")["kernels"]
    rows: list[Row] = [
        ("kernel", *(narrator.KERNEL_OF[record["quantity"]] for record in records)),
        ("heads that the mean is of", *(str(record["head_count"]) for record in records)),
        *((label, *(cell(r[key]) for r in records)) for key, label in known.items()),
    ]
    headings = columns("number", *(f"={record['label']}" for record in records))
    caption = "Kernels, the mean over heads; distances in positions."
    return Table(caption, headings, tuple(rows), unasked=tuple(range(len(rows))))


def _whence(source: Block) -> str:
    return ", ".join(source[key] for key in ("reference", "tensor") if source[key])
