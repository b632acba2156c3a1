"""What all results share: they are frozen, can be drawn, and are the blocks of the document.

What a result's type says is all that is known of its numbers. Shown in ``analysis.json`` are its
fields, under their names, and each property whose annotation is ``Annotated``; an array only where
its annotation is, if with an empty description. ``Annotated`` adds a `Number` (its label and
meaning), a description, keywords of JSON Schema, `StoredArray` (the array's name in
``arrays.npz``), `JsonType` (the type in JSON, where it differs), `NumberSuffixes` (of a record
whose numbers are listed too), `NEWER` or `HIDDEN`.

What is None or not finite is undefined, with a reason in ``undefined``. Where that is a text, it is
the reason for all numbers, and empty lists are None too; where it is empty, the text ``why`` says
why a number is None, and ``partly`` why there are gaps in a list.
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
from posprobe.drawable import Drawable, format_repr
from posprobe.layouts import Grid, Sequence, describe_layout

#: Longest list that is shown among single values: what fits on a line.
MAX_SHORT_LIST = 8
#: How many values stand on one line, and the letters of the widest of them.
MAX_REPR_VALUES = 4
MAX_REPR_VALUE_LETTERS = 40
#: Marks a field that is no part of the document, and one that older documents have not.
HIDDEN = "(hidden)"
NEWER = "(newer)"


@dataclass(frozen=True)
class StoredArray:
    """Marks an array as one of ``arrays.npz``.

    Parameters
    ----------
    name
        Its key there; empty stands for the name of the measurement.
    compute
        Makes of the record the array that is kept, where it is another one.
    """

    name: str = ""
    compute: Callable[[Any], NDArray[Any]] | None = None


@dataclass(frozen=True, eq=False)
class JsonType:
    """The type that a value has in JSON, such as ``list[float | None]`` of an array.

    Parameters
    ----------
    kind
        That type.
    compute
        Makes of the record the value that is shown, where it is another one.
    """

    kind: Any
    compute: Callable[[Any], Any] | None = None


#: An array as a list in which single numbers may be unknown.
WithGaps: TypeAlias = Annotated[Floats, JsonType(list[float | None])]


@dataclass(frozen=True)
class NumberSuffixes:
    """How the numbers of a part are called where a result has several of one type.

    Parameters
    ----------
    label, meaning, stored
        Suffixes of the labels and meanings of its numbers, and of the names of its arrays in
        ``arrays.npz``.
    not_compared
        Its numbers that do not stand beside the sinusoid and the null models.
    """

    label: str = ""
    meaning: str = ""
    stored: str = ""
    not_compared: tuple[str, ...] = ()


class Result(Drawable):
    """Base of every analysis's frozen result."""

    def __repr__(self) -> str:
        values_by_key = _single_values(as_block(self))
        number_keys = [key for key, *_ in record_numbers(type(self)) if key in values_by_key]
        values_by_key = {
            key: values_by_key[key] for key in dict.fromkeys((*number_keys, *values_by_key))
        }
        texts = [
            f"{key}={_format_value(value)}"
            for key, value in values_by_key.items()
            if not isinstance(value, str)
        ]
        short_texts = [text for text in texts if len(text) <= MAX_REPR_VALUE_LETTERS]
        ellipsis = ("...",) if len(short_texts) > MAX_REPR_VALUES else ()
        return format_repr(self, *short_texts[:MAX_REPR_VALUES], *ellipsis)

    def _card(self) -> tuple[str, dict[str, object]]:
        values_by_key = {
            key: _format_value(value) for key, value in _single_values(as_block(self)).items()
        }
        return type(self).__name__, dict(values_by_key)


def empty_array() -> NDArray[Any]:
    """Return the default of a field: an array without numbers, where nothing is known."""
    return np.zeros(0)


@cache
def member_types(kind: Any) -> Mapping[str, Any]:
    """Return the types of a record's fields and properties, with what ``Annotated`` adds."""
    hints = get_type_hints(kind, include_extras=True)
    hints = {member.name: hints[member.name] for member in fields(kind)}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            getter = getattr(value, "fget", None) or getattr(value, "func", None)
            if isinstance(value, property | cached_property) and getter is not None:
                hint = get_type_hints(getter, include_extras=True).get("return")
                if get_origin(hint) is Annotated:
                    hints[name] = hint
    return hints


@cache
def shown_types(kind: Any) -> Mapping[str, Any]:
    """Return the names and types of all that a record shows."""
    return {name: hint for name, hint in member_types(kind).items() if _is_shown(hint)}


def annotation_metadata(hint: Any) -> tuple[Any, ...]:
    """Return what ``Annotated`` adds to a type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _is_shown(hint: Any) -> bool:
    metadata = annotation_metadata(hint)
    if HIDDEN in metadata:
        return False
    bare_type = get_args(hint)[0] if metadata else hint
    has_array = any(
        get_origin(member_type) is np.ndarray
        for member_type in (bare_type, *_union_members(bare_type))
    )
    is_stored_only = all(isinstance(note, StoredArray) for note in metadata)
    return not (is_stored_only and (metadata or has_array))


def _union_members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


def as_block(record: Any, format_cause: Callable[[Cause], str] = str) -> dict[str, Any]:
    """Return a record as JSON has it.

    Parameters
    ----------
    record
        A dataclass. Where its ``undefined`` is a text, it is the reason for all that is None.
    format_cause
        Says a cause.
    """
    kind: Any = type(record)
    block, computed_keys = {}, set()
    for name, hint in shown_types(kind).items():
        compute = next(
            (note.compute for note in annotation_metadata(hint) if isinstance(note, JsonType)),
            None,
        )
        block[name] = to_json(
            compute(record) if compute else getattr(record, name), format_cause
        )
        computed_keys |= {name} if compute else set()
    if isinstance(reason := getattr(record, "undefined", None), str):
        if reason:  # nothing is known of any number
            undefined_keys = {
                key for key, value in block.items() if _is_undefined(value)
            } - computed_keys
            block |= dict.fromkeys(undefined_keys)
        reason = reason or getattr(record, "missing_reason", "")
        reasons = {name: reason for name, value in block.items() if value is None and reason}
        block["undefined"] = reasons | getattr(record, "partly", {})
    return block


def _is_undefined(value: Any) -> bool:
    entries = value.values() if isinstance(value, dict) else value
    return isinstance(value, list | dict) and all(entry is None for entry in entries)


def to_json(value: Any, format_cause: Callable[[Cause], str] = str) -> Any:
    """Return a value as JSON has it; what is not finite is None."""
    match value:
        case float():
            return float(value) if math.isfinite(value) else None
        case Cause():
            return format_cause(value)
        case Sequence() | Grid():
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


def collect_arrays(record: Any, prefix: str = "", suffix: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of a record, and of records in it, that ``arrays.npz`` holds.

    Parameters
    ----------
    record
        A dataclass. Arrays of layers by number begin with theirs.
    prefix, suffix
        The name of an array that has none of its own, and the end of all.
    """
    stored_arrays: dict[str, NDArray[Any]] = {}
    kind: Any = type(record)
    for name, hint in member_types(kind).items():
        metadata = [
            note
            for note in annotation_metadata(hint)
            if isinstance(note, StoredArray | NumberSuffixes)
        ]
        value: Any = getattr(record, name) if metadata else None
        for note in metadata if value is not None else ():
            if isinstance(note, StoredArray):
                stored_arrays[f"{note.name or prefix}{suffix}"] = (
                    note.compute(record) if note.compute else value
                )
            elif isinstance(value, Mapping):
                for layer_index, layer in value.items():
                    arrays = collect_arrays(layer, prefix, note.stored)
                    stored_arrays |= {
                        f"{layer_index}_{key}": array for key, array in arrays.items()
                    }
            else:
                stored_arrays |= collect_arrays(value, prefix, note.stored)
    return stored_arrays


def record_numbers(kind: Any, prefix: str = "") -> Iterator[tuple[str, Number, Any]]:
    """Yield the key path, the description and the type in JSON of a record's numbers."""
    for name, hint in shown_types(kind).items():
        bare_type = json_type(hint)
        inner_type = next(
            (
                member_type
                for member_type in (bare_type, *_union_members(bare_type))
                if is_dataclass(member_type)
            ),
            None,
        )
        for note in annotation_metadata(hint):
            if isinstance(note, Number):
                yield f"{prefix}{name}", note, bare_type
            elif isinstance(note, NumberSuffixes) and inner_type is not None:
                for key, number, member_hint in record_numbers(inner_type, f"{prefix}{name}."):
                    relabelled = replace(
                        number,
                        label=number.label + note.label,
                        meaning=number.meaning + note.meaning,
                        compared=number.compared
                        and key.split(".")[-1] not in note.not_compared,
                    )
                    yield key, relabelled, member_hint


def json_type(hint: Any) -> Any:
    """Return the type that a value of a field has in JSON."""
    metadata = annotation_metadata(hint)
    bare_type = get_args(hint)[0] if metadata else hint
    return next((note.kind for note in metadata if isinstance(note, JsonType)), bare_type)


def _single_values(block: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keep single values and short lists of them; those of blocks inside under ``block.key``."""
    single_values: dict[str, Any] = {}
    for key, value in block.items():
        if isinstance(value, Mapping):
            single_values |= _single_values(value, f"{prefix}{key}.")
        elif not isinstance(value, list) or (
            len(value) <= MAX_SHORT_LIST
            and not any(isinstance(entry, Mapping) or is_dataclass(entry) for entry in value)
        ):
            single_values[prefix + key] = value
    return single_values


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


#: Spacing of double precision numbers at 1.
FLOAT64_EPS = float(np.finfo(np.float64).eps)
#: How many times the expected error still counts as rounding: sums of n numbers err by less than n
#: units in nearly all tables, and products of such sums by a few times that.
MAX_ROUNDING_UNITS = 16


def centring_error(largest: Any, count: int, eps: float = FLOAT64_EPS) -> Any:
    """Return the size up to which what centring leaves of equal numbers is rounding.

    A mean summed in double precision is off by up to ``count`` units in the last place (Higham
    2002, Accuracy and Stability of Numerical Algorithms, section 4.2), and what is subtracted from
    it carries the error of its own type: ``16 max(eps, count 2⁻⁵²) largest``.

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
    """Return the singular value up to which components of a quantised table may be rounding.

    Rounding to steps of ``step`` adds an error that is uniform in between, of variance
    ``step² / 12`` (Bennett 1948, Bell System Technical Journal 27). The largest singular value of
    ``[n, d]`` such errors is about ``(√n + √d) step / √12`` (Vershynin 2012, section 5.3).

    Parameters
    ----------
    step
        Distance between neighbouring values, in units of the table.
    n, d
        Its shape.
    """
    return float((np.sqrt(n) + np.sqrt(d)) * step / np.sqrt(12))


def centre_rows(values: Array, xp: ModuleType = np) -> tuple[Array, float]:
    """Subtract the mean row from a table; of equal rows nothing is left.

    Parameters
    ----------
    values
        ``[n, d]``.

    Returns
    -------
    tuple
        ``[n, d]`` in the precision of the table, all 0 where it is rounding throughout; and up to
        which size single entries are rounding. A row is where its length is below that times
        ``sqrt(d)``.
    """
    if xp is np:  # single precision would lose a mean of many rows
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
    # Without an array of magnitudes, which takes as much memory as the table.
    return max(float(xp.max(values)), -float(xp.min(values)))
