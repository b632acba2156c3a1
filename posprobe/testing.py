"""Assertions for tests of engines and converters."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from posprobe.checks.live import Rotate
from posprobe.encodings.rotary import MAX_ANGLE_ERROR_RADIANS
from posprobe.relations import Finding
from posprobe.schemes import Encoding
from posprobe.studies.check import check

if TYPE_CHECKING:
    from torch import nn


def assert_positions_alike(
    reference: str | PathLike[str] | Encoding,
    live: str | PathLike[str] | Encoding | Rotate | nn.Module,
    *,
    positions: int = 4096,
    tolerance: float = 0.1,
) -> None:
    """Assert that what runs encodes position as a file states.

    Parameters
    ----------
    reference
        Reference as for `posprobe.load`, or a record that was loaded.
    live
        Model, callable ``rotate(x, positions)``, or another copy, as for `posprobe.check`.
    positions
        Number of positions within which they must be alike.
    tolerance
        Largest error of an angle within these positions, in radians.

    Raises
    ------
    AssertionError
        If they differ, or if that cannot be told; its message is the table of `check`.
    PosprobeError
        As for `posprobe.check`.

    Examples
    --------
    >>> import numpy as np
    >>> from posprobe.testing import assert_positions_alike
    >>> assert_positions_alike("rotary:4096x64", "rotary:4096x64", tolerance=0.01)
    """
    result = check(reference, live, positions=positions)
    is_alike = result.alike
    if result.causes and all(
        _largest_error(cause, positions) <= tolerance for cause in result.causes
    ):
        is_alike = not any(skipped.decides for skipped in result.not_compared)
    if not is_alike:
        raise AssertionError(str(result))


def _largest_error(cause: Finding, positions: int) -> float:
    """Return the largest error of an angle within some positions; infinite for other causes."""
    if cause.what != "ladder" or not cause.first_distance:
        return float("inf")
    return MAX_ANGLE_ERROR_RADIANS * positions / cause.first_distance
