"""The base of all results: they are frozen, can be drawn, and are the blocks of the document.

The type of a result describes its numbers. ``analysis.json`` shows its fields, under their names,
and each property whose annotation is ``Annotated``; an array only if its annotation is, be it with
an empty description. ``Annotated`` adds a `Number` (label and meaning), a description, keywords of
JSON Schema, `StoredArray` (the array's name in ``arrays.npz``), `JsonType` (the type in JSON, if
it differs), `NumberSuffixes` (for a record whose numbers are listed too), `NEWER` or `HIDDEN`.

A value that is None or not finite is undefined, with a reason in ``undefined``. If this field is a
text, it is the reason for all numbers, and empty lists are None too. If it is empty, the text
``missing_reason`` is the reason why a number is None, and ``partly`` has the reasons for gaps in
lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from types import ModuleType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Cause, Number
from posprobe.arrays import Array, Floats
from posprobe.drawable import Card, Drawable, format_repr
from posprobe.layouts import Grid, Sequence, Video, describe_layout

#: A list of at most this many values is shown among single values, because it fits on a line.
MAX_SHORT_LIST = 8
#: The `repr` of a result shows at most this many values.
MAX_REPR_VALUES = 4
#: A value with more letters is left out of the `repr`.
MAX_REPR_VALUE_LETTERS = 40
#: This mark excludes a field from the document.
HIDDEN = "(hidden)"
#: This mark belongs to a field that older documents do not have.
NEWER = "(newer)"


@dataclass(frozen=True)
class StoredArray:
    """The mark of an array that is stored in ``arrays.npz``.

    Parameters
    ----------
    name
        Name in the archive; empty for the name of the measurement.
    compute
        Function that computes the stored array from the record; None for the field itself.
    """

    name: str = ""
    compute: Callable[[Any], NDArray[Any]] | None = None


@dataclass(frozen=True, eq=False)
class JsonType:
    """The type of a value in JSON, such as ``list[float | None]`` for an array.

    Parameters
    ----------
    target
        Type in JSON.
    compute
        Function that computes the shown value from the record; None for the field itself.
    """

    target: Any
    compute: Callable[[Any], Any] | None = None


#: An array that JSON shows as a list in which single numbers may be undefined.
WithGaps: TypeAlias = Annotated[Floats, JsonType(list[float | None])]


@dataclass(frozen=True)
class NumberSuffixes:
    """Suffixes of the labels of a nested record, if a result has several of one type.

    Parameters
    ----------
    label, meaning, stored
        Suffixes of the labels and meanings of the record's numbers, and of the names of its arrays
        in ``arrays.npz``.
    not_compared
        Names of its numbers that are not compared with the sinusoid and the null models.
    """

    label: str = ""
    meaning: str = ""
    stored: str = ""
    not_compared: tuple[str, ...] = ()


class Result(Drawable):
    """The base class of the frozen results of all analyses."""

    def __repr__(self) -> str:
        values_by_key = _single_values(as_block(self))
        number_keys = [
            key for key, *_ in record_numbers(type(self)) if key in values_by_key
        ]
        ordered_keys = dict.fromkeys((*number_keys, *values_by_key))
        texts = [
            f"{key}={_format_value(values_by_key[key])}"
            for key in ordered_keys
            if not isinstance(values_by_key[key], str)
        ]
        short_texts = [text for text in texts if len(text) <= MAX_REPR_VALUE_LETTERS]
        ellipsis = ("...",) if len(short_texts) > MAX_REPR_VALUES else ()
        return format_repr(self, *short_texts[:MAX_REPR_VALUES], *ellipsis)

    def _card(self) -> Card:
        values_by_key = _single_values(as_block(self))
        facts = {k: _format_value(v) for k, v in values_by_key.items()}
        return Card(type(self).__name__, facts, pictures=self._pictures())


def empty_array() -> NDArray[Any]:
    """Return an array without numbers, the default of a field."""
    return np.zeros(0)


@cache
def member_types(record_type: Any) -> Mapping[str, Any]:
    """Return the annotated types of a record's fields and properties, by name."""
    hints = get_type_hints(record_type, include_extras=True)
    hints = {member.name: hints[member.name] for member in fields(record_type)}
    for base in reversed(record_type.__mro__):
        for name, value in vars(base).items():
            getter = getattr(value, "fget", None) or getattr(value, "func", None)
            if isinstance(value, property | cached_property) and getter is not None:
                hint = get_type_hints(getter, include_extras=True).get("return")
                if get_origin(hint) is Annotated:
                    hints[name] = hint
    return hints


@cache
def shown_types(record_type: Any) -> Mapping[str, Any]:
    """Return the annotated types of the fields and properties that JSON shows, by name."""
    return {
        name: hint for name, hint in member_types(record_type).items() if _is_shown(hint)
    }


def annotation_metadata(hint: Any) -> tuple[Any, ...]:
    """Return the metadata that ``Annotated`` adds to a type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _is_shown(hint: Any) -> bool:
    metadata = annotation_metadata(hint)
    if HIDDEN in metadata:
        return False
    bare_type = get_args(hint)[0] if metadata else hint
    candidate_types = (bare_type, *_union_members(bare_type))
    has_array = any(get_origin(candidate) is np.ndarray for candidate in candidate_types)
    is_stored_only = all(isinstance(note, StoredArray) for note in metadata)
    return not (is_stored_only and (metadata or has_array))


def _union_members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


def as_block(record: Any, format_cause: Callable[[Cause], str] = str) -> dict[str, Any]:
    """Return a record as JSON shows it.

    Parameters
    ----------
    record
        Dataclass to convert. If its ``undefined`` is a text, it is the reason for every None.
    format_cause
        Function that writes a cause as text.
    """
    record_type: Any = type(record)
    block, computed_keys = {}, set()
    for name, hint in shown_types(record_type).items():
        json_types = (
            note for note in annotation_metadata(hint) if isinstance(note, JsonType)
        )
        compute = next((note.compute for note in json_types), None)
        value = compute(record) if compute else getattr(record, name)
        block[name] = to_json(value, format_cause)
        computed_keys |= {name} if compute else set()
    if isinstance(reason := getattr(record, "undefined", None), str):
        if reason:  # all numbers are undefined
            undefined_keys = {key for key, value in block.items() if _is_undefined(value)}
            block |= dict.fromkeys(undefined_keys - computed_keys)
        reason = reason or getattr(record, "missing_reason", "")
        reasons = {
            name: reason for name, value in block.items() if value is None and reason
        }
        block["undefined"] = reasons | getattr(record, "partly", {})
    return block


def _is_undefined(value: Any) -> bool:
    entries = value.values() if isinstance(value, dict) else value
    return isinstance(value, list | dict) and all(entry is None for entry in entries)


def to_json(value: Any, format_cause: Callable[[Cause], str] = str) -> Any:
    """Return a value as JSON shows it, with None for numbers that are not finite."""
    match value:
        case float():
            return float(value) if math.isfinite(value) else None
        case Cause():
            return format_cause(value)
        case Sequence() | Grid() | Video():
            return describe_layout(value)
        case np.ndarray() | np.generic():
            return to_json(value.tolist(), format_cause)
        case Mapping():
            block = {key: to_json(member, format_cause) for key, member in value.items()}
            if any(isinstance(key, int) for key in block):
                return [{"layer": layer, **member} for layer, member in block.items()]
            return block
        case list() | tuple():
            return [to_json(member, format_cause) for member in value]
        case _ if is_dataclass(value):
            return as_block(value, format_cause)
    return value


def collect_arrays(
    record: Any, prefix: str = "", suffix: str = ""
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a record, and of records in it, that ``arrays.npz`` holds.

    Parameters
    ----------
    record
        Dataclass with the arrays. Names of a layer's arrays begin with its index.
    prefix, suffix
        Name of an array whose mark has none, and the end of all names.
    """
    stored_arrays: dict[str, NDArray[Any]] = {}
    record_type: Any = type(record)
    for name, hint in member_types(record_type).items():
        metadata = [
            note
            for note in annotation_metadata(hint)
            if isinstance(note, StoredArray | NumberSuffixes)
        ]
        value: Any = getattr(record, name) if metadata else None
        for note in metadata if value is not None else ():
            if isinstance(note, StoredArray):
                array = note.compute(record) if note.compute else value
                stored_arrays[f"{note.name or prefix}{suffix}"] = array
            elif isinstance(value, Mapping):
                for layer_index, layer in value.items():
                    arrays = collect_arrays(layer, prefix, note.stored)
                    stored_arrays |= {
                        f"{layer_index}_{key}": array for key, array in arrays.items()
                    }
            else:
                stored_arrays |= collect_arrays(value, prefix, note.stored)
    return stored_arrays


def record_numbers(
    record_type: Any, prefix: str = ""
) -> Iterator[tuple[str, Number, Any]]:
    """Yield the key path, the metadata and the JSON type of each number of a record."""
    for name, hint in shown_types(record_type).items():
        bare_type = json_type(hint)
        candidate_types = (bare_type, *_union_members(bare_type))
        inner_type = next(filter(is_dataclass, candidate_types), None)
        for note in annotation_metadata(hint):
            if isinstance(note, Number):
                yield f"{prefix}{name}", note, bare_type
            elif isinstance(note, NumberSuffixes) and inner_type is not None:
                for key, number, member_hint in record_numbers(
                    inner_type, f"{prefix}{name}."
                ):
                    relabelled = replace(
                        number,
                        label=number.label + note.label,
                        meaning=number.meaning + note.meaning,
                        compared=number.compared
                        and key.split(".")[-1] not in note.not_compared,
                    )
                    yield key, relabelled, member_hint


def json_type(hint: Any) -> Any:
    """Return the JSON type of an annotated field."""
    metadata = annotation_metadata(hint)
    bare_type = get_args(hint)[0] if metadata else hint
    return next(
        (note.target for note in metadata if isinstance(note, JsonType)), bare_type
    )


def _single_values(block: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return single values and short lists; those of nested blocks as ``block.key``."""
    single_values: dict[str, Any] = {}
    for key, value in block.items():
        if isinstance(value, Mapping):
            single_values |= _single_values(value, f"{prefix}{key}.")
        elif not isinstance(value, list) or (
            len(value) <= MAX_SHORT_LIST
            and not any(
                isinstance(entry, Mapping) or is_dataclass(entry) for entry in value
            )
        ):
            single_values[prefix + key] = value
    return single_values


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


#: The spacing of double precision numbers at 1.
FLOAT64_EPS = float(np.finfo(np.float64).eps)
#: Up to this multiple of the expected error a number counts as rounding: sums of n numbers err by
#: less than n units in nearly all tables, and products of such sums by a few times that.
MAX_ROUNDING_UNITS = 16


def centring_error(largest: Any, count: int, eps: float = FLOAT64_EPS) -> Any:
    """Return the largest residual of equal numbers after centring, which is rounding.

    A mean summed in double precision is off by up to ``count`` units in the last place (Higham
    2002, Accuracy and Stability of Numerical Algorithms, section 4.2), and the numbers have the
    error of their own type. So the bound is ``16 max(eps, count 2⁻⁵²) largest``.

    Parameters
    ----------
    largest
        Largest magnitude of the numbers, or an array of such.
    count
        Number of values in each mean.
    eps
        Relative error of the numbers themselves: the spacing of their type, or more.
    """
    return MAX_ROUNDING_UNITS * max(eps, count * FLOAT64_EPS) * largest


def quantisation_floor(step: float, n: int, d: int) -> float:
    """Return the largest singular value of a quantised table that may be rounding.

    Rounding to steps of ``step`` adds an error that is uniform in between, of variance
    ``step² / 12`` (Bennett 1948, Bell System Technical Journal 27). The largest singular value of
    ``[n, d]`` such errors is about ``(√n + √d) step / √12`` (Vershynin 2012, section 5.3).

    Parameters
    ----------
    step
        Distance between neighbouring values, in units of the table.
    n, d
        Shape of the table.
    """
    return float((np.sqrt(n) + np.sqrt(d)) * step / np.sqrt(12))


def centre_rows(values: Array, xp: ModuleType = np) -> tuple[Array, float]:
    """Subtract the mean row from a table; equal rows become exactly 0.

    Parameters
    ----------
    values
        ``[n, d]``, rows of the table.
    xp
        Array namespace of the values.

    Returns
    -------
    tuple
        ``[n, d]`` in the precision of the table, all 0 if the table is rounding throughout; and
        the size up to which single entries are rounding. A row is rounding if its length is below
        that size times ``sqrt(d)``.
    """
    if xp is np:  # single precision is too coarse for the mean of many rows
        centred_rows = values - values.mean(axis=0, dtype=np.float64).astype(values.dtype)
    else:
        centred_rows = values - xp.mean(values, axis=0)
    error = centring_error(
        _largest_magnitude(values, xp), len(values), float(xp.finfo(values.dtype).eps)
    )
    return (
        centred_rows
        if _largest_magnitude(centred_rows, xp) > error
        else xp.zeros_like(centred_rows)
    ), error


def _largest_magnitude(values: Array, xp: ModuleType) -> float:
    # An array of magnitudes would take as much memory as the table.
    return max(float(xp.max(values)), -float(xp.min(values)))
