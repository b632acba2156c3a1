"""The columns of a sweep's table, which follow from the registries of measurements and questions.

Names of numbers are their key paths in ``analysis.json``; the same number of the sinusoid of the
shape has that path and ``.sinusoid``. Columns of the user's own begin with ``user.``, so that they
meet none of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from posprobe import questions
from posprobe.analyses.models.rotary_use import Summary
from posprobe.analyses.result import in_json, numbers_of, shown
from posprobe.blocks import LinearBiasBlock, RelativeBlock, RotaryBlock, SchemeBlock
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.measurements import TABLE
from posprobe.studies import Analysis, SchemeAnalysis
from posprobe.text import Block, lookup

#: Kinds of columns: what Arrow calls them.
Kind = Literal["string", "int64", "double", "bool", "strings", "rows"]
#: What the user's own columns begin with.
OWN = "user."
#: What is said of every row before its numbers.
_ABOUT: Mapping[str, Kind] = {
    **dict.fromkeys(
        (
            "reference", "lineage", "name", "commit", "resolved", "file", "tensor", "dtype",
            "sha256", "stored_shape", "scheme", "family", "layout",
        ),
        "string",
    ),
    **dict.fromkeys(("height", "width", "positions", "dim", "head_count"), "int64"),
    "summary": "string",
}  # fmt: skip
#: Of each seam the position after it.
SEAMS = "seams.at"
#: What is said after them; times are the only columns that differ between two runs.
_RUN: Mapping[str, Kind] = {
    "findings": "strings",
    "bundle": "string",
    "seconds": "double",
    "bytes_read": "int64",
    "posprobe": "string",
}
#: Columns of ``sweep.csv`` unless all are asked for; the parquet file has all.
MOST = 40
#: What a saved run of a rotary model adds.
_OF_RUN = "rotary_use.summary."
_HEADLINES = (
    "budget.rotation", "budget.smooth", "similarity.centered.neighbour_mean",
    "similarity.centered.translation_invariance", "pca.stable_rank", "pca.participation_ratio",
    "pca.top3", "spectrum.entropy", "sinusoid.cka", "shift.skill", "grid.row_share",
    "grid.column_share", "norms.mean", "base",
)  # fmt: skip


@cache
def columns() -> Mapping[str, Kind]:
    """Return all columns but the user's own, in order."""
    found: dict[str, Kind] = dict(_ABOUT)
    found |= {f"answers.{name}": "string" for name in questions.ANALYSIS}
    found[SEAMS] = "rows"
    for name, measurement in TABLE.items():
        for path, number, hint in numbers_of(measurement.record) if measurement.record else ():
            key = f"{name}.{path}"
            if (kind := _kind(hint)) is None:
                continue  # a list
            found[key] = kind
            if number.compared:
                found[f"{key}.sinusoid"] = "double"
    for block in (RelativeBlock, RotaryBlock, LinearBiasBlock):
        found |= dict(_scalars(block, {*get_type_hints(SchemeBlock), "scheme", "layout"}))
    found |= dict(_scalars(Summary, set(), _OF_RUN))
    return found | dict(_RUN)


def headline_columns(own: Iterable[str]) -> set[str]:
    """Choose the columns of a short table: what each row is, the user's own, answers, numbers."""
    about = ("reference", "lineage", "name", "scheme", "family", "layout", "positions", "dim")
    answers = [f"answers.{name}" for name in questions.TABLE]
    names = dict.fromkeys((*about, *own, "summary", *answers, SEAMS, *_HEADLINES))
    return set(list(names)[:MOST])


def _scalars(block: Any, but: Set[str], prefix: str = "") -> Iterator[tuple[str, Kind]]:
    """Give the numbers and words of a block and of the blocks in it, by key path."""
    hints = shown if is_dataclass(block) else get_type_hints
    for name, hint in hints(block).items():
        if name in but:
            continue
        if is_typeddict(hint) or is_dataclass(hint):
            yield from _scalars(hint, but, f"{prefix}{name}.")
        elif kind := _kind(hint):
            yield f"{prefix}{name}", kind


def _kind(hint: Any) -> Kind | None:
    """Return what Arrow calls a single number or word, if it may be missing; None of all else."""
    hint = in_json(hint)
    union = get_origin(hint) in (Union, UnionType)
    found = [one for one in get_args(hint) if one is not NoneType] if union else [hint]
    if len(found) > 1:
        return None
    (kind,) = found
    if get_origin(kind) is Annotated:
        return _kind(kind)
    if get_origin(kind) is Literal:
        return "int64" if isinstance(get_args(kind)[0], int) else "string"
    return _KINDS.get(kind)


def is_row(row: Mapping[str, Any]) -> bool:
    """Tell whether a recorded row has a reference, and values of the kinds of their columns."""
    known = columns()
    return row.get("reference") is not None and all(
        value is None or name not in known or _is_of(value, known[name])
        for name, value in row.items()
    )


def _is_of(value: Any, kind: Kind) -> bool:
    match kind:
        case "strings":
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case "rows":
            return isinstance(value, list) and all(_is_of(each, "int64") for each in value)
        case "double":
            whole = type(value) is int and abs(value) <= 2**53  # as a float has it too
            return whole or (type(value) is float and math.isfinite(value))
        case "int64":
            return type(value) is int and abs(value) < 2**63
        case "bool":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)


_NUMBERS = (bool, int, float)
_KINDS: Mapping[Any, Kind] = {bool: "bool", int: "int64", float: "double", str: "string"}
_TYPES: Mapping[Kind, type] = {kind: known for known, kind in _KINDS.items()}


def table_row(document: Block) -> dict[str, Any]:
    """Reduce the ``analysis.json`` of a table to its row; what is undefined is left out."""
    table, compared = document["table"], document["nulls"]["numbers"]
    row = {key: lookup(document, key) for key in columns() if key.partition(".")[0] in TABLE}
    row |= {f"{key}.sinusoid": entry["sinusoid"] for key, entry in compared.items()}
    row |= {key: table[key] for key in ("positions", "dim")} | {"scheme": table["kind"]}
    return _kept(row | {SEAMS: _seams(document)} | _about(table) | _told(document))


def _seams(document: Block) -> list[int] | None:
    """Return the position after each seam; None where none was looked for."""
    pairs = document.get("seams", {}).get("between")
    for answer in document.get("verdict", {"answers": ()})["answers"]:
        if answer["question"] == "seams":
            pairs = answer["value"]
    return None if pairs is None else [after for _, after in pairs]


def rows_of(analysis: Analysis | SchemeAnalysis, reference: str) -> list[dict[str, Any]]:
    """Reduce an analysis to its row, or a row of each encoding without a table."""
    if isinstance(analysis, Analysis):
        return [table_row(analysis.to_dict()) | {"reference": reference}]
    several = len(analysis.records) > 1
    return [
        row | {"reference": f"{reference}#{row['name']}" if several else reference}
        for row in _scheme_rows(analysis)
    ]


def _scheme_rows(analysis: SchemeAnalysis) -> Iterator[dict[str, Any]]:
    for record, results in zip(analysis.records, analysis.results, strict=True):
        document = SchemeAnalysis((record,), (results,), analysis.environment).to_dict()
        (scheme,) = document["schemes"]
        known = {key: lookup(scheme, key) for key in columns()}
        row = {key: value for key, value in known.items() if not isinstance(value, Mapping | list)}
        row |= _about(scheme) | {"positions": scheme.get("max_positions")}
        yield _kept(row | _told(document))


def run_row(document: Block) -> dict[str, Any]:
    """Reduce the ``analysis.json`` of a saved run of a rotary model to its row.

    Raises
    ------
    UsageError
        If the run did not measure what heads do.
    InvalidCheckpoint
        If somebody changed what it measured.
    """
    if not document.get("rotary_use"):
        raise UsageError(f"{document['name']}: this run did not measure what rotary heads do.")
    row = {key: lookup(document, key) for key in columns() if key.startswith(_OF_RUN)}
    try:
        about = {"name": document["name"], "scheme": "rotary", "dtype": document["model"]["dtype"]}
        found = _kept(row | about | _told(document))
    except (LookupError, TypeError) as error:
        raise InvalidCheckpoint(f"analysis.json: it lacks {error}. Run the model again.") from error
    for key, value in found.items():
        if not _is_of(value, columns()[key]):
            raise InvalidCheckpoint(
                f"analysis.json: {key} is {value!r:.40}, as in no run. Run the model again."
            )
    return found


def _about(record: Block) -> dict[str, Any]:
    source, layout = record["source"], record.get("layout") or {"type": "sequence"}
    shape = source["shape"]
    about = {name: source[name] for name in ("resolved", "file", "tensor", "dtype", "sha256")}
    return about | {
        "name": record["name"],
        "commit": source["revision"],
        "family": record["family"],
        "stored_shape": "x".join(map(str, shape)) if shape else None,
        "layout": layout["type"],
        "height": layout.get("height"),
        "width": layout.get("width"),
    }


def _told(document: Block) -> dict[str, Any]:
    verdict = document.get("verdict", {"answers": ()})
    row = {f"answers.{answer['question']}": answer["answer"] for answer in verdict["answers"]}
    row["summary"] = verdict.get("summary")
    row["findings"] = [finding["text"] for finding in document["findings"]]
    row["posprobe"] = document["environment"]["posprobe"]
    return row


def _kept(row: Mapping[str, Any]) -> dict[str, Any]:
    known = columns()
    return {key: value for key, value in row.items() if key in known and value is not None}


def typed_own(rows: Sequence[dict[str, Any]]) -> dict[str, Kind]:
    """Convert the user's columns, in place, to the narrowest kinds that hold all their values.

    Text that reads as numbers throughout, as all of a CSV is, becomes numbers.
    """
    found: dict[str, set[Kind]] = {}
    for row in rows:
        for name in row:
            if name.startswith(OWN):
                found.setdefault(name, set()).add(_kind_of(row[name]))
    kinds: dict[str, Kind] = {}
    for name, several in found.items():
        mixed: Kind = "double" if several == {"int64", "double"} else "string"
        kinds[name] = several.pop() if len(several) == 1 else mixed
    for row in rows:
        row |= {name: _TYPES[kind](row[name]) for name, kind in kinds.items() if name in row}
    return kinds


def _kind_of(value: Any) -> Kind:
    if not isinstance(value, str):
        # Truth values are whole numbers, too; NumPy's numbers are floats.
        return next((_KINDS[known] for known in _NUMBERS if isinstance(value, known)), "string")
    text = value.strip()
    number = number_in(text)
    if isinstance(number, int) and (number or text == "0"):
        # What begins with a zero or a plus is a name.
        return "int64" if text == str(number) else "string"
    return "string" if number is None else "double"


def number_in(text: str) -> int | float | None:
    """Read a number as data files write it; words such as nan are words."""
    if not text.isascii() or "_" in text or not any(letter.isdigit() for letter in text):
        return None
    try:
        return int(text) if abs(int(text)) < 2**63 else None
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
