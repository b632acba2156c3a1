"""What every table that follows a formula shares: its reference, its limits, its record."""

from __future__ import annotations

import math
import reprlib
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import UsageError
from posprobe.layouts import Layout
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: Largest table that a formula builds, in numbers: 4 GiB of float64.
MAX_SIZE = 2**29


def canonical(name: str, *sizes: int, **options: float | bool | None) -> str:
    """Write the reference that builds a table again, such as ``binary:256x16,signed``.

    An option that is False or None stands at its default and is left out; one that is True is
    written bare. Underscores become dashes.
    """
    words = [
        key.replace("_", "-") + ("" if value is True else f"={_number(value)}")
        for key, value in options.items()
        if value is not None and value is not False
    ]
    return ",".join([f"{name}:{'x'.join(map(str, sizes))}", *words])


def whole(what: str, value: object) -> int:
    """Return a whole number that a caller gave, also NumPy's; true and false are none.

    Raises
    ------
    UsageError
        If it is anything else.
    """
    if not isinstance(value, SupportsIndex) or isinstance(value, bool | np.bool_):
        raise UsageError(f"{what}: {reprlib.repr(value)} is not a whole number. Pass an int.")
    try:
        return index(value)
    except TypeError as error:  # an array of several numbers
        raise UsageError(
            f"{what}: {type(value).__name__} is not a whole number. Pass an int."
        ) from error


def check_sizes(reference: str, rows: int, dim: int, *, multiple: int = 1) -> None:
    """Refuse sizes that no table can have.

    Raises
    ------
    UsageError
        If a size is not positive, the width is not a multiple of ``multiple``, or the table would
        hold more than `MAX_SIZE` numbers.
    """
    if rows < 1 or dim < 1 or dim % multiple:
        raise UsageError(
            f"{reference}: sizes must be positive"
            + (f" and the table's width a multiple of {multiple}." if multiple > 1 else ".")
        )
    if rows * dim > MAX_SIZE:
        raise UsageError(
            f"{reference}: {rows * dim} numbers are more than the {MAX_SIZE} that fit comfortably "
            "into memory. Choose fewer positions."
        )


def check_base(reference: str, base: float) -> None:
    """Refuse a base that makes no ladder of falling frequencies.

    Raises
    ------
    UsageError
        If the base is not a finite number above 1.
    """
    if not (math.isfinite(base) and base > 1):
        raise UsageError(
            f"{reference}: the base is {base}; frequencies fall from 1 to about 1 / base, so it "
            "must be a finite number above 1. The published one is 10000."
        )


def formula_table(
    reference: str, values: NDArray[np.floating[Any]], layout: Layout
) -> PositionTable:
    """Make the fixed table of a formula, which its reference names in full."""
    source = Source(reference=reference, resolved=reference, shape=values.shape, dtype="F64")
    return PositionTable(
        values, layout, name=reference, source=source, kind="fixed", family="formula"
    )


def _number(value: float) -> str:
    whole = float(value).is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else repr(float(value))
