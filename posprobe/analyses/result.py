"""What all results share: they are frozen, can be drawn, and are the blocks of the document.

What a result's type says is all that is known of its numbers. Shown in ``analysis.json`` are its
fields, under their names, and each property whose annotation is ``Annotated``; an array only where
its annotation is, if with an empty description. ``Annotated`` adds a `Number` (its label and
meaning), a description, keywords of JSON Schema, `Stored` (the array's name in ``arrays.npz``),
`As` (the type in JSON, where it differs), `Part` (of a record whose numbers are listed too),
`NEWER` or `HIDDEN`.

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
ON_A_LINE = 4
WIDEST = 40
#: Marks a field that is no part of the document, and one that older documents have not.
HIDDEN = "(hidden)"
NEWER = "(newer)"


@dataclass(frozen=True)
class Stored:
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
class As:
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
WithGaps: TypeAlias = Annotated[Floats, As(list[float | None])]


@dataclass(frozen=True)
class Part:
    """How the numbers of a part are called where a result has several of one type.

    Parameters
    ----------
    label, meaning, stored
        Suffixes of the labels and meanings of its numbers, and of the names of its arrays in
        ``arrays.npz``.
    alone
        Its numbers that do not stand beside the sinusoid and the null models.
    """

    label: str = ""
    meaning: str = ""
    stored: str = ""
    alone: tuple[str, ...] = ()


class Result(Drawable):
    """Base of every analysis's frozen result."""

    def __repr__(self) -> str:
        values_by_key = _single(as_block(self))
        number_keys = [key for key, *_ in numbers_of(type(self)) if key in values_by_key]
        values_by_key = {
            key: values_by_key[key] for key in dict.fromkeys((*number_keys, *values_by_key))
        }
        texts = [
            f"{k}={_show(value)}"
            for k, value in values_by_key.items()
            if not isinstance(value, str)
        ]
        short_texts = [text for text in texts if len(text) <= WIDEST]
        ellipsis = ("...",) if len(short_texts) > ON_A_LINE else ()
        return format_repr(self, *short_texts[:ON_A_LINE], *ellipsis)

    def _card(self) -> tuple[str, dict[str, object]]:
        values_by_key = {key: _show(value) for key, value in _single(as_block(self)).items()}
        return type(self).__name__, dict(values_by_key)


def nothing() -> NDArray[Any]:
    """Return the default of a field: an array without numbers, where nothing is known."""
    return np.zeros(0)


@cache
def members(kind: Any) -> Mapping[str, Any]:
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
def shown(kind: Any) -> Mapping[str, Any]:
    """Return the names and types of all that a record shows."""
    return {name: hint for name, hint in members(kind).items() if _is_shown(hint)}


def notes(hint: Any) -> tuple[Any, ...]:
    """Return what ``Annotated`` adds to a type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _is_shown(hint: Any) -> bool:
    extra_notes = notes(hint)
    if HIDDEN in extra_notes:
        return False
    bare = get_args(hint)[0] if extra_notes else hint
    array = any(
        get_origin(member_type) is np.ndarray for member_type in (bare, *_members(bare))
    )
    kept_alone = all(isinstance(note, Stored) for note in extra_notes)
    return not (kept_alone and (extra_notes or array))


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


def as_block(record: Any, words: Callable[[Cause], str] = str) -> dict[str, Any]:
    """Return a record as JSON has it.

    Parameters
    ----------
    record
        A dataclass. Where its ``undefined`` is a text, it is the reason for all that is None.
    words
        Says a cause.
    """
    kind: Any = type(record)
    block, computed_keys = {}, set()
    for name, hint in shown(kind).items():
        make = next((note.compute for note in notes(hint) if isinstance(note, As)), None)
        block[name] = plain(make(record) if make else getattr(record, name), words)
        computed_keys |= {name} if make else set()
    if isinstance(reason := getattr(record, "undefined", None), str):
        if reason:  # nothing is known of any number
            unknown = {key for key, value in block.items() if _unknown(value)} - computed_keys
            block |= dict.fromkeys(unknown)
        reason = reason or getattr(record, "missing_reason", "")
        missing = {name: reason for name, value in block.items() if value is None and reason}
        block["undefined"] = missing | getattr(record, "partly", {})
    return block


def _unknown(value: Any) -> bool:
    members_found = value.values() if isinstance(value, dict) else value
    return isinstance(value, list | dict) and all(member is None for member in members_found)


def plain(value: Any, words: Callable[[Cause], str] = str) -> Any:
    """Return a value as JSON has it; what is not finite is None."""
    match value:
        case float():
            return float(value) if math.isfinite(value) else None
        case Cause():
            return words(value)
        case Sequence() | Grid():
            return describe_layout(value)
        case np.ndarray() | np.generic():
            return plain(value.tolist(), words)
        case Mapping():
            entries = {key: plain(entry, words) for key, entry in value.items()}
            if any(isinstance(key, int) for key in entries):
                return [{"layer": number, **entry} for number, entry in entries.items()]
            return entries
        case list() | tuple():
            return [plain(entry, words) for entry in value]
        case _ if is_dataclass(value):
            return as_block(value, words)
    return value


def stored(record: Any, prefix: str = "", suffix: str = "") -> dict[str, NDArray[Any]]:
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
    for name, hint in members(kind).items():
        marks = [note for note in notes(hint) if isinstance(note, Stored | Part)]
        value: Any = getattr(record, name) if marks else None
        for note in marks if value is not None else ():
            if isinstance(note, Stored):
                stored_arrays[f"{note.name or prefix}{suffix}"] = (
                    note.compute(record) if note.compute else value
                )
            elif isinstance(value, Mapping):
                for number, layer in value.items():
                    arrays = stored(layer, prefix, note.stored)
                    stored_arrays |= {f"{number}_{key}": array for key, array in arrays.items()}
            else:
                stored_arrays |= stored(value, prefix, note.stored)
    return stored_arrays


def numbers_of(kind: Any, prefix: str = "") -> Iterator[tuple[str, Number, Any]]:
    """Yield the key path, the description and the type in JSON of a record's numbers."""
    for name, hint in shown(kind).items():
        bare = in_json(hint)
        inner = next(
            (
                member_type
                for member_type in (bare, *_members(bare))
                if is_dataclass(member_type)
            ),
            None,
        )
        for note in notes(hint):
            if isinstance(note, Number):
                yield f"{prefix}{name}", note, bare
            elif isinstance(note, Part) and inner is not None:
                for key, number, member_hint in numbers_of(inner, f"{prefix}{name}."):
                    relabelled = replace(
                        number,
                        label=number.label + note.label,
                        meaning=number.meaning + note.meaning,
                        compared=number.compared and key.split(".")[-1] not in note.alone,
                    )
                    yield key, relabelled, member_hint


def in_json(hint: Any) -> Any:
    """Return the type that a value of a field has in JSON."""
    extra_notes = notes(hint)
    bare = get_args(hint)[0] if extra_notes else hint
    return next((note.kind for note in extra_notes if isinstance(note, As)), bare)


def _single(block: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keep single values and short lists of them; those of blocks inside under ``block.key``."""
    single_values: dict[str, Any] = {}
    for key, value in block.items():
        if isinstance(value, Mapping):
            single_values |= _single(value, f"{prefix}{key}.")
        elif not isinstance(value, list) or (
            len(value) <= MAX_SHORT_LIST
            and not any(isinstance(entry, Mapping) or is_dataclass(entry) for entry in value)
        ):
            single_values[prefix + key] = value
    return single_values


def _show(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


#: Spacing of double precision numbers at 1.
EPS = float(np.finfo(np.float64).eps)
#: How many times the expected error still counts as rounding: sums of n numbers err by less than n
#: units in nearly all tables, and products of such sums by a few times that.
UNITS = 16


def centring_error(largest: Any, count: int, eps: float = EPS) -> Any:
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
    return UNITS * max(eps, count * EPS) * largest


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


def centred(values: Array, xp: ModuleType = np) -> tuple[Array, float]:
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
        residual = values - values.mean(axis=0, dtype=np.float64).astype(values.dtype)
    else:
        residual = values - xp.mean(values, axis=0)
    error = centring_error(_largest(values, xp), len(values), float(xp.finfo(values.dtype).eps))
    return (residual if _largest(residual, xp) > error else xp.zeros_like(residual)), error


def _largest(values: Array, xp: ModuleType) -> float:
    # Without an array of magnitudes, which takes as much memory as the table.
    return max(float(xp.max(values)), -float(xp.min(values)))
