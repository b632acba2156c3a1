"""The page of encodings of any scheme side by side, compared by their kernels."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.analyses.facts import Number
from posprobe.number_format import Block, between, cell, show
from posprobe.page import Cell, Column, Fact, Page, Picture, Row, Section, Table, columns
from posprobe.readings import readings
from posprobe.report.narrator.schemes import ASKS
from posprobe.report.table_page import versions

#: Alternative texts of the figures.
_FIGURES = {
    "curves": "Standardised mean over heads by distance, of all encodings.",
    "kernels": "Standardised kernels between positions on one range from -3 to 3.",
    "distances": "Matrices of correlation and alignment.",
}
#: Numbers of each encoding.
NUMBERS: Mapping[str, Number] = {
    "half_width": Number("half width", "distance at which half of the fall is done"),
    "monotone_fraction": Number("monotone fraction", "share of steps that do not rise"),
    "asymmetry": Number("asymmetry", "share of variance that tells before from after"),
    "translation_invariance": Number("translation invariance", "share of variance by offset"),
}
#: What a kernel holds, for people.
KERNEL_OF = {"cosine": "cosine", "bias": "bias, in logits", "rotation": "mean rotation"}


def kernel_page(document: Block) -> Page:
    """Lay out the page of a comparison of kernels."""
    records, length = document["records"], document["length"]
    layout = document["layout"]
    where = f"{length} positions"
    if layout["type"] == "grid":
        where = f"the patches of a grid of {layout['height']} × {layout['width']}"
    others = [
        f"{record['label']} has {record['positions']}"
        for record in records
        if record["positions"] not in (None, length)
    ]
    notes = [f"{record['label']}: {note}." for record in records for note in record["notes"]]
    if others:
        notes.insert(
            0,
            f"{length} positions of each are compared: {', '.join(others)}. Nothing is resampled.",
        )
    correlations = [pair["correlation"] for pair in document["pairs"]]
    said = f"Correlations of the curves: {between(correlations)}."
    return Page(
        title=" · ".join(record["label"] for record in records),
        subject="kernels side by side",
        lead=f"{len(records)} positional encodings by the kernel that each induces between "
        f"{where}.",
        notes=tuple(notes),
        sections=(
            *_verdict(document),
            Section(
                "figures",
                "Figures",
                pictures=tuple(Picture(name, f"{text} {said}") for name, text in _FIGURES.items()),
                reading=readings("report")["kernels"].reading,
            ),
            Section("numbers", "Numbers side by side", tables=(_numbers(document),)),
            Section("pairs", "Pairs", tables=(_pairs(document),)),
        ),
        provenance=(
            *(Fact(record["label"], _whence(record["source"]), code=True) for record in records),
            *versions(document["environment"]),
        ),
    )


def _verdict(document: Block) -> tuple[Section, ...]:
    """Say what the encodings share and where they differ; bundles of 0.1.0 say nothing."""
    if "verdict" not in document:
        return ()
    told = document["verdict"]
    rows = tuple(
        (
            ASKS.get(answer["question"], answer["question"]),
            *(answer["answers"].get(record["label"], "–") for record in document["records"]),
        )
        for answer in told["answers"]
    )
    headings = columns("question", *(record["label"] for record in document["records"]))
    caption = "Questions and answers, of the mean over heads."
    return (
        Section(
            "verdict",
            "What they share and where they differ",
            bullets=(told["summary"],),
            tables=(Table(caption, headings, rows, brief=True),) if rows else (),
        ),
    )


def _whence(source: Block) -> str:
    return (
        f"{source['reference']}, {source['tensor']}"
        if source["tensor"]
        else str(source["reference"])
    )


def _numbers(document: Block) -> Table:
    records = document["records"]
    rows: list[Row] = [
        (
            Cell("kernel", note="what stands between two positions"),
            *(KERNEL_OF[record["quantity"]] for record in records),
        ),
        (Cell("heads", note="that the mean is of"), *(str(r["head_count"]) for r in records)),
    ]
    for key, number in NUMBERS.items():
        values = (cell(record[key]) for record in records)
        rows.append((Cell(number.label, note=number.meaning), *values))
    headings = (
        Column("number"),
        *(Column(record["label"], numeric=True) for record in records),
    )
    return Table(
        f"Kernels between {document['length']} positions, the mean over heads; distances in "
        "positions.",
        headings,
        tuple(rows),
        stacked=True,
        brief=True,
    )


def _pairs(document: Block) -> Table:
    rows = tuple(
        (" and ".join(pair["records"]), show(pair["correlation"]), show(pair["alignment"]))
        for pair in document["pairs"]
    )
    walk = document["walk"]
    foot: tuple[Row, ...] = ()
    if walk:
        chance = "two random walks, 95 % of draws below"
        foot = ((chance, show(walk["correlation"]), show(walk["alignment"])),)
    return Table(
        "Correlation of the curves over all distances but 0, and centred alignment of the kernels"
        + (f"; {walk['draws']} pairs of random walks show what smoothness does." if walk else "."),
        columns("pair", "=correlation", "=alignment"),
        rows,
        foot=foot,
        brief=True,
    )
