"""The columns of a sweep's table, which follow from the registries of measurements and questions.

A number is named by its key path in ``analysis.json``; the same number of the sinusoid of equal
shape has that path and ``.sinusoid``. Columns of the user's list begin with ``user.``, so that they
cannot collide with those of posprobe.
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
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.rotary_use import Summary
from posprobe.analyses.result import json_type, record_numbers, shown_types
from posprobe.blocks import LinearBiasBlock, RelativeBlock, RotaryBlock, SchemeBlock
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.studies import Analysis, SchemeAnalysis
from posprobe.text import Block, lookup
from posprobe.words.captions import N_CHECKSUM_DIGITS

#: Types of columns, named as in Arrow; ``strings`` and ``rows`` are lists.
ColumnType = Literal["string", "int64", "double", "bool", "strings", "rows"]
#: Prefix of the columns that come from the user's list.
USER_PREFIX = "user."
#: Columns before the numbers: what was read for the row.
_DESCRIPTION_COLUMNS: Mapping[str, ColumnType] = {
    **dict.fromkeys(
        (
            "reference",
            "lineage",
            "name",
            "commit",
            "resolved",
            "file",
            "tensor",
            "dtype",
            "sha256",
            "stored_shape",
            "scheme",
            "family",
            "layout",
        ),
        "string",
    ),
    **dict.fromkeys(("height", "width", "positions", "dim", "head_count"), "int64"),
    "summary": "string",
}
#: Column of the seams: the position to the right of each.
SEAM_COLUMN = "seams.at"
#: Columns after the numbers; the times are the only columns that differ between two runs.
_SWEEP_COLUMNS: Mapping[str, ColumnType] = {
    "findings": "strings",
    "bundle": "string",
    "seconds": "double",
    "bytes_read": "int64",
    "posprobe": "string",
}
#: Number of columns of ``sweep.csv`` unless all are requested; the parquet file has all.
MAX_CSV_COLUMNS = 40
#: Prefix of the columns that a saved run of a model adds.
_ATTENTION_PREFIX = "attention_budget."
#: Prefix of the columns that a saved run of a rotary model adds, where that was measured.
_ROTARY_USE_PREFIX = "rotary_use.summary."
#: Columns of the places that a saved run found.
_PLACES_COLUMNS: Mapping[str, ColumnType] = {
    "places.output": "string",
    "places.first_over_last": "double",
    "places.reach": "double",
    "places.caused": "double",
}
_CSV_NUMBERS = (
    "budget.rotation",
    "budget.smooth",
    "similarity.centered.neighbour_mean",
    "similarity.centered.translation_invariance",
    "pca.stable_rank",
    "pca.participation_ratio",
    "pca.top3",
    "spectrum.entropy",
    "sinusoid.cka",
    "shift.skill",
    "grid.row_share",
    "grid.column_share",
    "norms.mean",
    "base",
)


@cache
def columns() -> Mapping[str, ColumnType]:
    """Return the types of all columns but those of the user, in order."""
    column_types: dict[str, ColumnType] = dict(_DESCRIPTION_COLUMNS)
    column_types |= {f"answers.{name}": "string" for name in questions.ANALYSIS_QUESTIONS}
    column_types[SEAM_COLUMN] = "rows"
    for name, measurement in TABLE_MEASUREMENTS.items():
        for path, number, hint in (
            record_numbers(measurement.record) if measurement.record else ()
        ):
            key = f"{name}.{path}"
            if (column_type := _column_type(hint)) is None:
                continue  # a list
            column_types[key] = column_type
            if number.compared:
                column_types[f"{key}.sinusoid"] = "double"
    for block in (RelativeBlock, RotaryBlock, LinearBiasBlock):
        column_types |= dict(
            _scalars(block, {*get_type_hints(SchemeBlock), "scheme", "layout"})
        )
    for path, _, hint in record_numbers(AttentionBudget):
        if column_type := _column_type(hint):
            column_types[f"{_ATTENTION_PREFIX}{path}"] = column_type
    column_types |= dict(_scalars(Summary, set(), _ROTARY_USE_PREFIX))
    column_types |= dict(_PLACES_COLUMNS)
    return column_types | dict(_SWEEP_COLUMNS)


def headline_columns(user_columns: Iterable[str]) -> set[str]:
    """Choose the columns of a short table: description, user's columns, answers and numbers."""
    descriptions = (
        "reference",
        "lineage",
        "name",
        "scheme",
        "family",
        "layout",
        "positions",
        "dim",
    )
    answers = [f"answers.{name}" for name in questions.TABLE_QUESTIONS]
    names = dict.fromkeys(
        (*descriptions, *user_columns, "summary", *answers, SEAM_COLUMN, *_CSV_NUMBERS)
    )
    return set(list(names)[:MAX_CSV_COLUMNS])


def _scalars(
    block: Any, excluded: Set[str], prefix: str = ""
) -> Iterator[tuple[str, ColumnType]]:
    """Yield key path and type of the numbers and words of a block and of the blocks in it."""
    hints = shown_types if is_dataclass(block) else get_type_hints
    for name, hint in hints(block).items():
        if name in excluded:
            continue
        if is_typeddict(hint) or is_dataclass(hint):
            yield from _scalars(hint, excluded, f"{prefix}{name}.")
        elif column_type := _column_type(hint):
            yield f"{prefix}{name}", column_type


def _column_type(hint: Any) -> ColumnType | None:
    """Return the column type of a hint for one number or word; None for any other hint."""
    hint = json_type(hint)
    union = get_origin(hint) in (Union, UnionType)
    members = (
        [member for member in get_args(hint) if member is not NoneType]
        if union
        else [hint]
    )
    if len(members) > 1:
        return None
    (member,) = members
    if get_origin(member) is Annotated:
        return _column_type(member)
    if get_origin(member) is Literal:
        return "int64" if isinstance(get_args(member)[0], int) else "string"
    return _COLUMN_TYPES.get(member)


def is_row(row: Mapping[str, Any]) -> bool:
    """Tell whether a recorded row has a reference, and values of the types of their columns."""
    column_types = columns()
    return row.get("reference") is not None and all(
        value is None or name not in column_types or _has_type(value, column_types[name])
        for name, value in row.items()
    )


def _has_type(value: Any, column_type: ColumnType) -> bool:
    match column_type:
        case "strings":
            return isinstance(value, list) and all(
                isinstance(element, str) for element in value
            )
        case "rows":
            return isinstance(value, list) and all(
                _has_type(element, "int64") for element in value
            )
        case "double":
            is_exact_integer = (
                type(value) is int and abs(value) <= 2**53
            )  # exact as a float
            return is_exact_integer or (type(value) is float and math.isfinite(value))
        case "int64":
            return type(value) is int and abs(value) < 2**63
        case "bool":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)


_NUMBER_TYPES = (bool, int, float)
_COLUMN_TYPES: Mapping[Any, ColumnType] = {
    bool: "bool",
    int: "int64",
    float: "double",
    str: "string",
}
_PYTHON_TYPES: Mapping[ColumnType, type] = {
    column_type: python_type for python_type, column_type in _COLUMN_TYPES.items()
}


def table_row(document: Block) -> dict[str, Any]:
    """Reduce the ``analysis.json`` of a table to its row, without undefined numbers."""
    table, baselines = document["table"], document["nulls"]["numbers"]
    row = {
        key: lookup(document, key)
        for key in columns()
        if key.partition(".")[0] in TABLE_MEASUREMENTS
    }
    row |= {
        f"{key}.sinusoid": baseline["sinusoid"] for key, baseline in baselines.items()
    }
    row |= {key: table[key] for key in ("positions", "dim")} | {"scheme": table["kind"]}
    return _select_defined(
        row
        | {SEAM_COLUMN: _seam_positions(document)}
        | _description_cells(table)
        | _verdict_cells(document)
    )


def _seam_positions(document: Block) -> list[int] | None:
    """Return the position to the right of each seam; None if seams were not measured."""
    pairs = document.get("seams", {}).get("between")
    for answer in document.get("verdict", {"answers": ()})["answers"]:
        if answer["question"] == "seams":
            pairs = answer["value"]
    return None if pairs is None else [right_position for _, right_position in pairs]


def analysis_rows(
    analysis: Analysis | SchemeAnalysis, reference: str
) -> list[dict[str, Any]]:
    """Reduce an analysis to its row, or to a row per scheme."""
    if isinstance(analysis, Analysis):
        return [table_row(analysis.to_dict()) | {"reference": reference}]
    has_several = len(analysis.records) > 1
    return [
        row | {"reference": f"{reference}#{row['name']}" if has_several else reference}
        for row in _scheme_rows(analysis)
    ]


def _scheme_rows(analysis: SchemeAnalysis) -> Iterator[dict[str, Any]]:
    for record, results in zip(analysis.records, analysis.results, strict=True):
        document = SchemeAnalysis((record,), (results,), analysis.environment).to_dict()
        (scheme,) = document["schemes"]
        values = {key: lookup(scheme, key) for key in columns()}
        row = {
            key: value
            for key, value in values.items()
            if not isinstance(value, Mapping | list)
        }
        row |= _description_cells(scheme) | {"positions": scheme.get("max_positions")}
        yield _select_defined(row | _verdict_cells(document))


def run_row(document: Block) -> dict[str, Any]:
    """Reduce the ``analysis.json`` of a saved run of a model to its row.

    Raises
    ------
    UsageError
        If the run measured none of attention budget, rotary use and places.
    InvalidCheckpoint
        If its document was changed by hand.
    """
    measurements = ("attention_budget", "rotary_use", "places")
    if not any(document.get(name) for name in measurements):
        raise UsageError(
            f"{document['name']}: this run measured neither what decides where heads look nor "
            "which places count."
        )
    row = {
        key: lookup(document, key)
        for key in columns()
        if key.startswith((_ATTENTION_PREFIX, _ROTARY_USE_PREFIX))
        or key in _PLACES_COLUMNS
    }
    try:
        metadata = {
            "name": document["name"],
            "scheme": "rotary" if document.get("rotary_use") else None,
            "dtype": document["model"]["dtype"],
        }
        cells = _select_defined(row | metadata | _verdict_cells(document))
    except (LookupError, TypeError) as error:
        raise InvalidCheckpoint(
            f"analysis.json: it lacks {error}. Run the model again."
        ) from error
    for key, value in cells.items():
        if not _has_type(value, columns()[key]):
            raise InvalidCheckpoint(
                f"analysis.json: {key} is {value!r:.40}, as in no run. Run the model again."
            )
    return cells


def _description_cells(record: Block) -> dict[str, Any]:
    source, layout = record["source"], record.get("layout") or {"type": "sequence"}
    shape = source["shape"]
    cells = {
        name: source[name] for name in ("resolved", "file", "tensor", "dtype", "sha256")
    }
    return cells | {
        "name": record["name"],
        "commit": source["revision"],
        "family": record["family"],
        "stored_shape": "x".join(map(str, shape)) if shape else None,
        "layout": layout["type"],
        "height": layout.get("height"),
        "width": layout.get("width"),
    }


def _verdict_cells(document: Block) -> dict[str, Any]:
    verdict = document.get("verdict", {"answers": ()})
    row = {
        f"answers.{answer['question']}": answer["answer"] for answer in verdict["answers"]
    }
    row["summary"] = verdict.get("summary")
    row["findings"] = [finding["text"] for finding in document["findings"]]
    row["posprobe"] = document["environment"]["posprobe"]
    return row


def _select_defined(row: Mapping[str, Any]) -> dict[str, Any]:
    column_types = columns()
    return {
        key: value
        for key, value in row.items()
        if key in column_types and value is not None
    }


def convert_user_columns(rows: Sequence[dict[str, Any]]) -> dict[str, ColumnType]:
    """Convert the user's columns in place to the narrowest types that hold all their values.

    A column of text becomes numbers if all its values read as numbers, as in a CSV file.
    """
    value_types: dict[str, set[ColumnType]] = {}
    for row in rows:
        for name in row:
            if name.startswith(USER_PREFIX):
                value_types.setdefault(name, set()).add(_value_type(row[name]))
    column_types: dict[str, ColumnType] = {}
    for name, types in value_types.items():
        common_type: ColumnType = "double" if types == {"int64", "double"} else "string"
        column_types[name] = types.pop() if len(types) == 1 else common_type
    for row in rows:
        row |= {
            name: _PYTHON_TYPES[column_type](row[name])
            for name, column_type in column_types.items()
            if name in row
        }
    return column_types


def _value_type(value: Any) -> ColumnType:
    if not isinstance(value, str):
        # `bool` comes first, being a subclass of `int`; a NumPy float is a `float`.
        return next(
            (
                _COLUMN_TYPES[python_type]
                for python_type in _NUMBER_TYPES
                if isinstance(value, python_type)
            ),
            "string",
        )
    text = value.strip()
    number = parse_number(text)
    if isinstance(number, int) and (number or text == "0"):
        # Digits with a leading zero or plus are a name.
        return "int64" if text == str(number) else "string"
    return "string" if number is None else "double"


def parse_number(text: str) -> int | float | None:
    """Parse a finite number as data files write it; None for anything else, such as nan."""
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


def row_source(row: Mapping[str, Any]) -> str:
    """Return where the table of a row was read: its tensor, reference, and commit or checksum."""
    text = str(row["reference"])
    if row.get("tensor"):
        text = f"{row['tensor']} of {text}"
    if row.get("commit"):
        return f"{text}, commit {row['commit'][:N_CHECKSUM_DIGITS]}"
    return (
        f"{text}, SHA-256 {row['sha256'][:N_CHECKSUM_DIGITS]}"
        if row.get("sha256")
        else text
    )
