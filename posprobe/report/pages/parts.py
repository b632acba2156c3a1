"""Parts that several pages share: where a table comes from, versions, the headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posprobe.analyses.facts import Number
from posprobe.analyses.linear import MAX_VIEW_ROWS
from posprobe.measurements import STRETCH_MEASUREMENTS
from posprobe.page import Cell, Fact
from posprobe.text import Block
from posprobe.words import define_number


def origin_facts(source: Block) -> tuple[Fact, ...]:
    """Return the facts about the reference that the user typed and its resolution."""
    labels = {"reference": "reference", "resolved": "resolved to", "revision": "revision"}
    return tuple(
        Fact(label, str(source[key])) for key, label in labels.items() if source[key]
    )


def tensor_facts(source: Block, prefix: str = "") -> tuple[Fact, ...]:
    """Return the facts about the stored tensor: file, name, shape, dtype and checksum."""
    facts = []
    if source["file"]:
        facts.append(Fact(f"{prefix}file", source["file"]))
    if source.get("format"):
        facts.append(Fact(f"{prefix}file format", source["format"]))
    if source["tensor"]:
        facts.append(Fact(f"{prefix}tensor", source["tensor"]))
        shape = " × ".join(map(str, source["shape"] or ()))
        stored = ", ".join(
            filter(None, (shape, source["dtype"], describe_quantisation(source)))
        )
        if stored:
            facts.append(Fact(f"{prefix}stored as", stored))
    if source["sha256"]:
        facts.append(Fact(f"{prefix}SHA-256", source["sha256"]))
    return tuple(facts)


def describe_quantisation(source: Block) -> str:
    """Describe the quantisation of the stored numbers; empty where there is none."""
    quantisation = source.get("quantisation")
    if not quantisation:
        return ""
    step = f" in steps of {quantisation['step']:.3g}" if quantisation["step"] else ""
    return f"dequantised from {quantisation['name']}{step}"


def document_headline(document: Block) -> str:
    """Return the summary of the answers; bundles of earlier versions have findings alone."""
    if verdict := document.get("verdict"):
        summary: str = verdict["summary"]
        return summary
    return " ".join(finding["text"] for finding in document["findings"])


def number_cell(name: str, number: Number, documents: Sequence[Block]) -> Cell:
    """Return the cell that names a number of tables: its rows, and what it is.

    Parameters
    ----------
    name, number
        Name of its measurement, and its label and meaning.
    documents
        Blocks of the tables that have it.
    """
    rows = dict.fromkeys(_measured_rows(name, document) for document in documents)
    definition = define_number(number.label, number.meaning)
    return Cell(number.label, note="; ".join(rows), definition=definition)


def _measured_rows(name: str, document: Block) -> str:
    """Return which rows of a table a measurement is of."""
    table, block = document["table"], document.get(name) or {}
    if table["layout"]["type"] == "grid":
        return "all patches"
    all_rows = table.get("rows")
    used_rows = (document.get("verdict") or {}).get("rows")
    if name == "budget" and used_rows and _is_cut(used_rows, document):
        return f"all rows; parts fitted to {_positions_text(used_rows)}"
    # Some records state their rows; those of others are what the questions use.
    rows = block.get("rows") or used_rows
    if name not in STRETCH_MEASUREMENTS or rows in (None, all_rows):
        return "all rows"
    return _positions_text(rows)


def _is_cut(rows: Sequence[int], document: Block) -> bool:
    """Return whether questions use the first rows alone of a stretch, which was too long."""
    seam_rows = [right for _, right in (document.get("seams") or {}).get("between") or ()]
    is_limit = rows[1] - rows[0] == MAX_VIEW_ROWS < document["table"]["positions"]
    return is_limit and rows[1] not in seam_rows


def _positions_text(rows: Sequence[int]) -> str:
    return f"positions {rows[0]} to {rows[1] - 1}"


def version_facts(environment: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Return the facts about the environment that made the numbers."""
    return tuple(
        Fact(name, str(value)) for name, value in environment.items() if value is not None
    )
