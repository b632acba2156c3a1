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
MAX_MAGNITUDE = 1e100
MIN_MAGNITUDE = 1e-100
#: Layers, heads or experts that a model has at most; the largest published ones have hundreds.
MAX_CONFIG_LAYERS = 10_000
_short_repr = reprlib.Repr()
_short_repr.maxstring, _short_repr.maxlevel = 80, 2


def read_integer(
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
        raise wrong_value_error(
            key, value, f"a whole number from {minimum} to {maximum}", path
        )
    return value


def read_number(config: Mapping[str, Any], key: str, *, path: str = "") -> float | None:
    """Read a number from `MIN_MAGNITUDE` to `MAX_MAGNITUDE`; None where the key is missing or null.

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
    if not is_number or not MIN_MAGNITUDE <= value <= MAX_MAGNITUDE:
        raise wrong_value_error(key, value, "a positive number", path)
    return float(value)


def read_bool(config: Mapping[str, Any], key: str, *, path: str = "") -> bool | None:
    """Read true or false; None where the key is missing or null.

    Raises
    ------
    InvalidCheckpoint
        If it is anything else.
    """
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise wrong_value_error(key, value, "true or false", path)


def read_text(config: Mapping[str, Any], key: str, *, path: str = "") -> str | None:
    """Read a text that is not empty; None where the key is missing or null.

    Raises
    ------
    InvalidCheckpoint
        If it is anything else.
    """
    value = config.get(key)
    if value is None or (isinstance(value, str) and value):
        return value
    raise wrong_value_error(key, value, "a word", path)


def read_integers(
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
    is_short_list = isinstance(value, list) and len(value) <= max_length
    if not is_short_list or not all(
        type(item) is int and 0 <= item <= maximum for item in value
    ):
        raise wrong_value_error(
            key, value, f"a list of whole numbers from 0 to {maximum}", path
        )
    return list(value)


def read_size(config: Mapping[str, Any], key: str, *, maximum: int) -> tuple[int, int] | None:
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
    if bool in (type(height), type(width)) or not (
        0 < height <= maximum and 0 < width <= maximum
    ):
        return None
    return height, width


def is_finite(value: object) -> bool:
    """Tell whether a value, and all that is nested in it, has a finite number for each number."""
    queue = [value]
    while queue:
        nested = queue.pop()
        if isinstance(nested, Mapping):
            queue.extend(nested.values())
        elif isinstance(nested, list | tuple):
            queue.extend(nested)
        elif (
            isinstance(nested, int | float) and not -MAX_MAGNITUDE <= nested <= MAX_MAGNITUDE
        ):  # nor is NaN
            return False
    return True


def contradiction_error(
    subject: str, statement: str, alternative: str = ""
) -> InvalidCheckpoint:
    """Say that a tensor is another than its configuration says, and what else to do about it."""
    return InvalidCheckpoint(
        f"{subject}: the configuration says {statement}. One of them "
        f"belongs to another checkpoint: fix config.json{alternative}."
    )


def wrong_value_error(
    key: str, value: object, expected: str, path: str = ""
) -> InvalidCheckpoint:
    """Say what a configuration gives and what it should."""
    key_path = f"{path}.{key}" if path else key
    return InvalidCheckpoint(
        f"the configuration gives {key_path} as {_short_repr.repr(value)}; "
        f"{expected} is expected. Fix config.json."
    )
