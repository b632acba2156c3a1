"""Values of a model's configuration: read, checked, and refused in one way.

A configuration is text that anybody may have written: a number can be a list, endless or negative.
Whatever is computed with goes through one of these functions; what is only compared need not.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from posprobe.errors import InvalidCheckpoint

#: Beyond these, numbers that are multiplied or divided leave the range of the arithmetic.
LARGEST, SMALLEST = 1e100, 1e-100
#: Layers, heads or experts that a model has at most; the largest published ones have hundreds.
MOST_LAYERS = 10_000
_short_repr = reprlib.Repr()
_short_repr.maxstring, _short_repr.maxlevel = 80, 2


def whole(
    config: Mapping[str, Any], key: str, *, maximum: int, minimum: int = 1, path: str = ""
) -> int | None:
    """Read a whole number; None where the key is missing or null.

    Parameters
    ----------
    config, key
        The configuration and what to read of it.
    maximum, minimum
        The range in which it must lie.
    path
        Keys that lead to this configuration, for the message.

    Raises
    ------
    InvalidCheckpoint
        If it is anything else; true and false are not numbers.
    """
    value = config.get(key)
    if value is None:
        return None
    if type(value) is not int or not minimum <= value <= maximum:
        raise wrong(key, value, f"a whole number from {minimum} to {maximum}", path)
    return value


def number(config: Mapping[str, Any], key: str, *, path: str = "") -> float | None:
    """Read a number from `SMALLEST` to `LARGEST`; None where the key is missing or null.

    Raises
    ------
    InvalidCheckpoint
        If it is anything else.
    """
    value = config.get(key)
    if value is None:
        return None
    # A whole number of a thousand digits compares, and turns into no float.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not SMALLEST <= value <= LARGEST:
        raise wrong(key, value, "a positive number", path)
    return float(value)


def truth(config: Mapping[str, Any], key: str, *, path: str = "") -> bool | None:
    """Read true or false; None where the key is missing or null.

    Raises
    ------
    InvalidCheckpoint
        If it is anything else.
    """
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise wrong(key, value, "true or false", path)


def text(config: Mapping[str, Any], key: str, *, path: str = "") -> str | None:
    """Read a text that is not empty; None where the key is missing or null.

    Raises
    ------
    InvalidCheckpoint
        If it is anything else.
    """
    value = config.get(key)
    if value is None or (isinstance(value, str) and value):
        return value
    raise wrong(key, value, "a word", path)


def wholes(
    config: Mapping[str, Any], key: str, *, maximum: int, max_length: int, path: str = ""
) -> list[int] | None:
    """Read a list of at most ``max_length`` integers from 0 to ``maximum``; None if missing.

    Raises
    ------
    InvalidCheckpoint
        If it is anything else.
    """
    value = config.get(key)
    if value is None:
        return None
    sound = isinstance(value, list) and len(value) <= max_length
    if not sound or not all(type(item) is int and 0 <= item <= maximum for item in value):
        raise wrong(key, value, f"a list of whole numbers from 0 to {maximum}", path)
    return list(value)


def pair(config: Mapping[str, Any], key: str, *, maximum: int) -> tuple[int, int] | None:
    """Read two sizes, such as those of an image; one number stands for both.

    Returns
    -------
    tuple or None
        Height and width; None where there is nothing of this form, which configurations write in
        many ways.
    """
    match config.get(key):
        case int(side):
            height = width = side
        case [int(height), int(width)] | {"height": int(height), "width": int(width)}:
            pass
        case _:
            return None
    if bool in (type(height), type(width)) or not (0 < height <= maximum and 0 < width <= maximum):
        return None
    return height, width


def finite(value: object) -> bool:
    """Tell whether a value, and all that is nested in it, has a finite number for each number."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, int | float) and not -LARGEST <= part <= LARGEST:  # nor is NaN
            return False
    return True


def contradicted(subject: str, statement: str, otherwise: str = "") -> InvalidCheckpoint:
    """Say that a tensor is another than its configuration says, and what else to do about it."""
    return InvalidCheckpoint(
        f"{subject}: the configuration says {statement}. One of them belongs to another "
        "checkpoint: fix "
        f"config.json{otherwise}."
    )


def wrong(key: str, value: object, expected: str, path: str = "") -> InvalidCheckpoint:
    """Say what a configuration gives and what it should."""
    key_path = f"{path}.{key}" if path else key
    return InvalidCheckpoint(
        f"the configuration gives {key_path} as {_short_repr.repr(value)}; {expected} is "
        "expected. Fix "
        "config.json."
    )
