"""Assertions for tests of engines and converters."""

from __future__ import annotations

import math
from numbers import Real
from os import PathLike
from typing import TYPE_CHECKING

from posprobe.checks.live import Rotate
from posprobe.encodings.rotary import MAX_ANGLE_ERROR_RADIANS
from posprobe.encodings.tables import check_integer
from posprobe.errors import UsageError
from posprobe.relations import Finding
from posprobe.schemes import Encoding
from posprobe.studies.check import check
from posprobe.words.relations import tolerance_sentence

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
        If an angle is off by more than the tolerance, if they differ in anything else, or if that
        cannot be told; its message is the table of `check`.
    PosprobeError
        As for `posprobe.check`; UsageError also if the tolerance is no positive number.

    Examples
    --------
    >>> import numpy as np
    >>> from posprobe.testing import assert_positions_alike
    >>> assert_positions_alike("rotary:4096x64", "rotary:4096x64", tolerance=0.01)
    """
    value: object = tolerance
    is_number = not isinstance(value, bool) and isinstance(value, Real)
    if not is_number or not 0 < tolerance < math.inf:
        raise UsageError(
            f"tolerance: {tolerance!r} is no angle. Give a positive number, in radians."
        )
    check_integer("positions", positions)
    result = check(reference, live, positions=positions)
    is_alike = not any(skipped.decides for skipped in result.not_compared)
    findings = (*result.causes, *result.compared)
    largest_error = max((_largest_error(f, positions) for f in findings), default=0.0)
    if not findings or not is_alike or largest_error == math.inf:
        raise AssertionError(str(result))
    if largest_error > tolerance:
        raise AssertionError(
            f"{result}\n{tolerance_sentence(largest_error, positions, tolerance)}"
        )


def _largest_error(finding: Finding, positions: int) -> float:
    """Return the largest error of an angle within some positions; infinite for other causes."""
    if finding.alike:
        return positions * float(finding.more.get("angle_error_per_position", 0.0))
    if finding.what != "ladder" or not finding.first_distance:
        return math.inf
    return MAX_ANGLE_ERROR_RADIANS * positions / finding.first_distance
