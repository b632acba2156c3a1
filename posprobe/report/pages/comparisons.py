"""The pages of comparisons of tables and of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from posprobe.data import read_data
from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.measurements.model import MODEL_MEASUREMENTS
from posprobe.page import (
    AnswerLine,
    Cell,
    Evidence,
    Fact,
    Page,
    Picture,
    Row,
    Table,
    make_columns,
)
from posprobe.report.comparison_overview import COMPARISON_DRAWING_NAMES
from posprobe.report.pages.parts import number_cell, version_facts
from posprobe.text import Block, format_cell, format_value, lookup
from posprobe.words import (
    QUESTION_TEXTS,
    SHORT_QUESTION_TEXTS,
    claim_sentence,
    comparisons,
    define_line,
    define_number,
    describe_pictures,
    schemes,
)
from posprobe.words.lines import compared_runs, table_lines

#: Keys of the numbers that a terminal prints without being asked for all numbers.
PREVIEW_NUMBERS = (
    "similarity.centered.neighbour_mean",
    "pca.participation_ratio",
    "pca.top3",
    "similarity.centered.translation_invariance",
)
#: Number of tables beside whose answers questions in full have room.
MAX_WIDE_SUBJECTS = 3


def comparison_page(document: Block) -> Page:
    """Build the page of a comparison of tables."""
    tables = document["tables"]
    notes = [
        f"{table['label']}: {note}."
        for table in tables
        for note in table["table"]["notes"]
    ]
    labels = tuple(table["label"] for table in tables)
    baselines = tuple(map(comparisons.baseline_kind, tables))
    return Page(
        title=" · ".join(labels),
        subject="compared by position",
        lead=comparisons.comparison_lead(tables),
        headline=comparisons.comparison_headline(document),
        notes=(*comparisons.compared_rows_notes(document), *notes),
        pictures=(
            *map(Picture, COMPARISON_DRAWING_NAMES),
            *describe_pictures("tables", ("similarity", "variance")),
        ),
        subjects=labels,
        baselines=baselines if any(baselines) else (),
        evidence=(
            *_pair_evidence(
                document["pairs"],
                comparisons.pair_line,
                comparisons.pair_sentences,
                describe_pictures("tables", ("curves", "distances")),
            ),
            *_answer_evidence(document),
            *_published_evidence(tables),
        ),
        key=comparisons.comparison_key(document),
        numbers=_table_numbers(tables),
        provenance=(
            *(fact for table in tables for fact in _source_facts(table)),
            *version_facts(document["environment"]),
        ),
    )


def _pair_evidence(
    pairs: Sequence[Block],
    line: Callable[[Block, str], AnswerLine],
    sentences: Callable[[Block], Iterable[str]],
    drawings: tuple[Picture, ...],
) -> Iterator[Evidence]:
    """Yield the similarity of each pair; the drawings of all pairs stand beside the first."""
    for index, pair in enumerate(pairs):
        yield Evidence(
            (line(pair, f"pair-{index}"),),
            sentences=tuple(sentences(pair)),
            pictures=() if index else drawings,
        )


def _answer_evidence(document: Block) -> Iterator[Evidence]:
    """Yield every question that a table answers, with the answers of all tables."""
    tables = document["tables"]
    blocks = [table.get("verdict") for table in tables]
    if not all(blocks):
        return
    is_grid = [table["table"]["layout"]["type"] == "grid" for table in tables]
    lines_by_table = [
        {line.name: line for line in table_lines(block, grid=grid)}
        for block, grid in zip(blocks, is_grid, strict=True)
    ]
    claims_by_table = [
        {answer["question"]: claim_sentence(answer) for answer in block["answers"]}
        for block in blocks
    ]
    for name, question in QUESTION_TEXTS.items():
        if not any(name in lines for lines in lines_by_table):
            continue
        if len(tables) > MAX_WIDE_SUBJECTS:
            question = SHORT_QUESTION_TEXTS.get(question, question)
        empty_line = AnswerLine(name, "", question)
        yield Evidence(
            tuple(
                replace(lines.get(name, empty_line), question=question)
                for lines in lines_by_table
            ),
            sentences=tuple(
                f"{table['label']}: {texts[name]}"
                for table, lines, texts in zip(
                    tables, lines_by_table, claims_by_table, strict=True
                )
                if name in lines
            ),
        )


def _table_numbers(tables: list[Block]) -> Table:
    """Tabulate every number that a table has; those for the terminal are marked."""
    # Answers need all measurements: without any, the measurements were chosen by name.
    is_chosen = not any(table.get("verdict") for table in tables)
    rows: list[Row] = []
    preview_rows = []
    for name, measurement in TABLE_MEASUREMENTS.items():
        for path, number in measurement.numbers.items():
            values = [lookup(table, f"{name}.{path}") for table in tables]
            if all(value is None or value == [] for value in values):
                continue
            if is_chosen or f"{name}.{path}" in PREVIEW_NUMBERS:
                preview_rows.append(len(rows))
            texts = (format_cell(value, number.form) for value in values)
            rows.append((number_cell(name, number, tables), *texts))
    headings = make_columns("number", *(f"={table['label']}" for table in tables))
    return Table(
        "Numbers of each table.", headings, tuple(rows), preview_rows=tuple(preview_rows)
    )


def _published_evidence(tables: list[Block]) -> Iterator[Evidence]:
    sentences = tuple(
        f"{table['label']}: {value['quantity']} "
        f"{format_value(value['value'])}, here "
        f"{format_cell(value['ours'])}. "
        f"{comparisons.citation_sentence(value)}"
        for table in tables
        for value in table["published"]
    )
    if sentences:
        yield Evidence(title="Published values", sentences=sentences)


def _source_facts(table: Block) -> Iterator[Fact]:
    label, source = table["label"], table["table"]["source"]
    yield Fact(label, source["reference"])
    for key in ("tensor", "sha256"):
        if source[key]:
            yield Fact(f"{label}: {key}", source[key])


def kernel_page(document: Block) -> Page:
    """Build the page of a comparison of kernels."""
    records, walk = document["records"], document["walk"]
    labels = tuple(record["label"] for record in records)
    return Page(
        title=" · ".join(labels),
        subject="kernels side by side",
        lead=schemes.kernels_lead(document),
        headline=schemes.kernels_headline(document["pairs"], walk, records),
        notes=(
            *schemes.kernel_notes(document),
            *(
                f"{record['label']}: {note}."
                for record in records
                for note in record["notes"]
            ),
        ),
        pictures=describe_pictures("kernels", ("curves",)),
        subjects=labels,
        evidence=(
            *_pair_evidence(
                document["pairs"],
                partial(schemes.curve_line, walk=walk),
                partial(schemes.curve_sentences, walk=walk),
                describe_pictures("kernels", ("heads", "distances")),
            ),
            *_kernel_evidence(document),
        ),
        key=schemes.KERNEL_KEY,
        numbers=_kernel_numbers(records),
        provenance=(
            *(
                Fact(record["label"], _source_text(record["source"]))
                for record in records
            ),
            *version_facts(document["environment"]),
        ),
    )


def _kernel_evidence(document: Block) -> Iterator[Evidence]:
    """Yield the questions with the answer of each encoding; bundles of 0.1.0 answer none."""
    for answer in document.get("verdict", {}).get("answers", ()):
        yield Evidence(
            tuple(
                schemes.kernel_line(
                    answer["question"], answer["answers"].get(record["label"], ""), record
                )
                for record in document["records"]
            )
        )


def _kernel_numbers(records: list[Block]) -> Table:
    labels_by_key = read_data("report/numbers.toml")["kernels"]
    rows: list[Row] = [
        (
            "kernel",
            *(schemes.KERNEL_QUANTITIES[record["quantity"]] for record in records),
        ),
        ("heads that the mean is of", *(str(record["head_count"]) for record in records)),
    ]
    for key, label in labels_by_key.items():
        name = Cell(label, definition=define_line("kernel"))
        rows.append((name, *(format_cell(record[key]) for record in records)))
    rows += _run_rows(records)
    headings = make_columns("number", *(f"={record['label']}" for record in records))
    caption = "Kernels, the mean over heads; distances in positions."
    return Table(caption, headings, tuple(rows), preview_rows=tuple(range(len(rows))))


def _run_rows(records: list[Block]) -> Iterator[Row]:
    """Yield the numbers of what decides where heads look, if nothing but runs is compared."""
    runs = [run for _, run in compared_runs(records)]
    numbers = MODEL_MEASUREMENTS["attention_budget"].numbers if runs else {}
    for key, number in numbers.items():
        name = Cell(
            f"{number.label} ({number.meaning})",
            definition=define_number(number.label, number.meaning),
        )
        yield name, *(format_cell(run[key], number.form) for run in runs)


def _source_text(source: Block) -> str:
    return ", ".join(source[key] for key in ("reference", "tensor") if source[key])
