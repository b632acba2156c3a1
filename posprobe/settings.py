"""Checked values of a model's configuration, with one form of error message.

A configuration may come from anywhere: a number can be a list, infinite or negative. All values
that enter a computation go through these functions; values that are only compared need not.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from posprobe.errors import InvalidCheckpoint

#: Largest and smallest number of a configuration; products of more extreme ones overflow.
MAX_MAGNITUDE = 1e100
MIN_MAGNITUDE = 1e-100
#: Largest number of layers, heads or experts of a model; the largest published ones have hundreds.
MAX_CONFIG_LAYERS = 10_000
_short_repr = reprlib.Repr()
_short_repr.maxstring, _short_repr.maxlevel = 80, 2


def read_integer(
    config: Mapping[str, Any], key: str, *, maximum: int, minimum: int = 1, path: str = ""
) -> int | None:
    """Read an integer; None if the key is missing or null.

    Parameters
    ----------
    config, key
        Configuration and its key.
    maximum, minimum
        Allowed range.
    path
        Keys that lead to this configuration, for the message.

    Raises
    ------
    InvalidCheckpoint
        If the value is anything else; true and false are not numbers.
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
    """Read a number from `MIN_MAGNITUDE` to `MAX_MAGNITUDE`; None if missing or null.

    Raises
    ------
    InvalidCheckpoint
        If the value is anything else.
    """
    value = config.get(key)
    if value is None:
        return None
    # An integer of a thousand digits can be compared but not converted to a float.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not MIN_MAGNITUDE <= value <= MAX_MAGNITUDE:
        raise wrong_value_error(key, value, "a positive number", path)
    return float(value)


def read_bool(config: Mapping[str, Any], key: str, *, path: str = "") -> bool | None:
    """Read true or false; None if the key is missing or null.

    Raises
    ------
    InvalidCheckpoint
        If the value is anything else.
    """
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise wrong_value_error(key, value, "true or false", path)


def read_text(config: Mapping[str, Any], key: str, *, path: str = "") -> str | None:
    """Read a text that is not empty; None if the key is missing or null.

    Raises
    ------
    InvalidCheckpoint
        If the value is anything else.
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
        If the value is anything else.
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


def read_size(
    config: Mapping[str, Any], key: str, *, maximum: int
) -> tuple[int, int] | None:
    """Read two sizes, such as those of an image; one number stands for both.

    Returns
    -------
    tuple or None
        Height and width; None for other forms, of which configurations have many.
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
    """Tell whether all numbers in a value and the values nested in it are finite."""
    queue = [value]
    while queue:
        nested = queue.pop()
        if isinstance(nested, Mapping):
            queue.extend(nested.values())
        elif isinstance(nested, list | tuple):
            queue.extend(nested)
        elif (
            isinstance(nested, int | float)
            and not -MAX_MAGNITUDE <= nested <= MAX_MAGNITUDE
        ):  # NaN included
            return False
    return True


def contradiction_error(
    subject: str, statement: str, alternative: str = ""
) -> InvalidCheckpoint:
    """Return the error for a tensor that contradicts its configuration."""
    return InvalidCheckpoint(
        f"{subject}: the configuration says {statement}. One of them "
        f"belongs to another checkpoint: fix config.json{alternative}."
    )


def wrong_value_error(
    key: str, value: object, expected: str, path: str = ""
) -> InvalidCheckpoint:
    """Return the error for a value of a configuration that is not of the expected form."""
    key_path = f"{path}.{key}" if path else key
    return InvalidCheckpoint(
        f"the configuration gives {key_path} as {_short_repr.repr(value)}; "
        f"{expected} is expected. Fix config.json."
    )
