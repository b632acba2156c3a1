"""What all results share: they are frozen, can be drawn, and are the blocks of the document.

What a result's type says is all that is known of its numbers. Shown in ``analysis.json`` are its
fields, under their names, and each property whose annotation is ``Annotated``; arrays only where
they are. ``Annotated`` adds a `Number` (its label and meaning), a description, keywords of JSON
Schema, `Stored` (the array's name in ``arrays.npz``), `As` (the type in JSON, where it differs), or
`HIDDEN`. What is NaN or None is undefined, with a reason in ``undefined``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from html import escape
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Cause, Number
from posprobe.drawable import Drawable
from posprobe.layouts import Grid, Sequence, describe_layout

#: Longest list that is shown among single values.
SHORT = 8
#: How many values stand on one line, and the letters of the widest of them.
ON_A_LINE, WIDEST = 4, 40
#: Marks a field that is no part of the document.
HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Stored:
    """Marks an array as one of ``arrays.npz``.

    Parameters
    ----------
    name
        Its key there.
    """

    name: str


@dataclass(frozen=True, eq=False)
class As:
    """The type that a value has in JSON, such as ``list[float | None]`` of an array."""

    kind: Any


@dataclass(frozen=True)
class Part:
    """How the numbers of a part are called where a result has several of one type.

    Parameters
    ----------
    label, meaning, stored
        What follows those of its numbers, and the names of its arrays in ``arrays.npz``.
    """

    label: str = ""
    meaning: str = ""
    stored: str = ""


class Result(Drawable):
    """Base of every analysis's frozen result."""

    def __repr__(self) -> str:
        found = _single(as_block(self)).items()
        said = [f"{key}={_show(value)}" for key, value in found if not isinstance(value, str)]
        shown = [text for text in said if len(text) <= WIDEST]
        more = ", ..." if len(shown) > ON_A_LINE else ""
        return f"{type(self).__name__}({', '.join(shown[:ON_A_LINE])}{more})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(key.replace('_', ' '))}</th>"
            f"<td>{escape(_show(value))}</td></tr>"
            for key, value in _single(as_block(self)).items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


@cache
def members(kind: Any) -> Mapping[str, Any]:
    """Return the types of a record's fields and properties, with what ``Annotated`` adds."""
    found = get_type_hints(kind, include_extras=True)
    found = {each.name: found[each.name] for each in fields(kind)}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            getter = getattr(value, "fget", None) or getattr(value, "func", None)
            if isinstance(value, property | cached_property) and getter is not None:
                hint = get_type_hints(getter, include_extras=True).get("return")
                if get_origin(hint) is Annotated:
                    found[name] = hint
    return found


@cache
def shown(kind: Any) -> Mapping[str, Any]:
    """Return the names and types of all that a record shows."""
    return {name: hint for name, hint in members(kind).items() if _is_shown(hint)}


def notes(hint: Any) -> tuple[Any, ...]:
    """Return what ``Annotated`` adds to a type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _is_shown(hint: Any) -> bool:
    added = notes(hint)
    if HIDDEN in added:
        return False
    bare = get_args(hint)[0] if added else hint
    array = any(get_origin(one) is np.ndarray for one in (bare, *_members(bare)))
    return not array or any(not isinstance(note, Stored) for note in added)


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
    if hasattr(record, "summary"):  # not moved yet
        return {key: plain(value, words) for key, value in record.summary().items()}
    kind: Any = type(record)
    found = {name: plain(getattr(record, name), words) for name in shown(kind)}
    if isinstance(why := getattr(record, "undefined", None), str):
        if why:  # nothing is known of any number
            found = {k: None if _all_none(value) else value for k, value in found.items()}
        why = why or getattr(record, "why", "")
        missing = {name: why for name, value in found.items() if value is None and why}
        found["undefined"] = missing
    return found


def _all_none(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(each is None for each in value)


def plain(value: Any, words: Callable[[Cause], str] = str) -> Any:
    """Return a value as JSON has it; NaN is None."""
    match value:
        case Cause():
            return words(value)
        case Sequence() | Grid():
            return describe_layout(value)
        case np.ndarray() | np.generic():
            return plain(value.tolist(), words)
        case Mapping():
            return {str(key): plain(each, words) for key, each in value.items()}
        case list() | tuple():
            return [plain(each, words) for each in value]
        case float():
            return value if value == value else None
        case _ if is_dataclass(value):
            return as_block(value, words)
    return value


def stored(record: Any, suffix: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of a record, and of records in it, that ``arrays.npz`` holds."""
    found: dict[str, NDArray[Any]] = {}
    kind: Any = type(record)
    for name, hint in members(kind).items():
        for note in notes(hint):
            if isinstance(note, Stored):
                found[f"{note.name}{suffix}"] = getattr(record, name)
            elif isinstance(note, Part):
                found |= stored(getattr(record, name), note.stored)
    return found


def numbers_of(kind: Any, prefix: str = "") -> Iterator[tuple[str, Number]]:
    """Yield the key path and the description of every number of a type of records."""
    for name, hint in shown(kind).items():
        added = notes(hint)
        bare = get_args(hint)[0] if added else hint
        inner = [one for one in (bare, *_members(bare)) if is_dataclass(one)]
        for note in added:
            if isinstance(note, Number):
                yield f"{prefix}{name}", note
        part = next((note for note in added if isinstance(note, Part)), Part())
        for one in inner:
            for key, number in numbers_of(one, f"{prefix}{name}."):
                yield key, _of_part(number, part)


def _of_part(number: Number, part: Part) -> Number:
    return replace(
        number, label=f"{number.label}{part.label}", meaning=f"{number.meaning}{part.meaning}"
    )


def _single(found: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keep single values and short lists of them; those of blocks inside under ``block.key``."""
    kept: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, Mapping):
            kept |= _single(value, f"{prefix}{key}.")
        elif not isinstance(value, list) or (
            len(value) <= SHORT
            and not any(isinstance(each, Mapping) or is_dataclass(each) for each in value)
        ):
            kept[prefix + key] = value
    return kept


def _show(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def reasons(block: Mapping[str, object], why: str) -> dict[str, str]:
    """Return the same reason for every number of a block that is None."""
    return {name: why for name, value in block.items() if value is None}


def numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Return an array as JSON has it; NaN is an undefined number."""
    return [None if np.isnan(value) else float(value) for value in values]
