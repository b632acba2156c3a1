"""Rows and columns of an array that are zero or unlike in one copy, while the rest agrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.relations.rules import RULES, Finding
from posprobe.relations.values import relative_distance

#: Rows shorter than this share of the median may be rounded to zero where a tensor has one step:
#: at 8 bits, if another row is a hundred times as long.
MIN_ZEROED_ROW_SHARE = 0.1
#: The same of columns, whose numbers stand beside larger ones in blocks that share a step: of 16
#: numbers of half the usual size, 3 bits leave one above zero but for 1 in a million columns.
MIN_ZEROED_COLUMN_SHARE = 0.5
#: Beside rows of another model, the rest moved by less: rounding to 4 bits moves it by 0.1.
MAX_REST_DISTANCE = 0.15
#: Rows of another model have a small cosine with those that stood there; what a merged adapter adds
#: to a row leaves it above 0.8.
MAX_UNLIKE_COSINE = 0.5
#: More rows of another model, or a larger share of the sum of squares, are another array.
MAX_REPLACED_SHARE = 0.5


#: The axis of ``[rows, width]`` along which norms of rows and of columns are taken.
_NORM_AXES = {"rows": 1, "columns": 0}
_MIN_ZEROED_SHARES = {"rows": MIN_ZEROED_ROW_SHARE, "columns": MIN_ZEROED_COLUMN_SHARE}


def find_damage(a: Floats, b: Floats, subject: str) -> Finding | None:
    """Find rows or columns that are zero in one copy, or unlike while all others are alike.

    Training and rounding move all rows by about as much.

    Parameters
    ----------
    a, b
        ``[rows, width]``, rows in the same order.
    subject
        Subject of the finding, as in `Finding`.
    """
    for axis in _NORM_AXES:
        finding = _find_zeroed(a, b, axis) or _find_replaced(a, b, axis)
        if finding is not None:
            return replace(finding, what=subject)
    return None


def _find_zeroed(a: Floats, b: Floats, axis: str) -> Finding | None:
    """Find rows or columns that are zero in one copy alone."""
    sizes_a, sizes_b = (
        np.linalg.norm(values, axis=_NORM_AXES[axis]) for values in (a, b)
    )
    sizes = np.maximum(sizes_a, sizes_b)
    is_long = sizes > _MIN_ZEROED_SHARES[axis] * np.median(sizes)
    is_zeroed = ((sizes_a == 0) != (sizes_b == 0)) & is_long
    if not is_zeroed.any():
        return None
    if not is_zeroed.all():
        rest_distance = _rest_distance(a, b, is_zeroed, axis)
        if rest_distance >= RULES["moved"].tolerance:
            return None
    side = "b" if (sizes_b[is_zeroed] == 0).all() else "a"
    count = int(is_zeroed.sum())
    details = {"axis": axis, "count": count, "of": len(sizes), "side": side}
    return Finding("", "zeroed", value=count, more=details)


def _find_replaced(a: Floats, b: Floats, axis: str) -> Finding | None:
    """Find rows or columns that are unlike, while the larger part of A stays."""
    norm_axis = _NORM_AXES[axis]
    sizes_a, sizes_b = (np.linalg.norm(values, axis=norm_axis) for values in (a, b))
    changes = np.linalg.norm(b - a, axis=norm_axis)
    usual_sizes = np.maximum(sizes_a, np.median(sizes_a))
    relative_changes = np.divide(
        changes, usual_sizes, out=np.zeros_like(changes), where=usual_sizes > 0
    )
    is_far = relative_changes >= RULES["replaced"].tolerance
    is_unlike = (a * b).sum(axis=norm_axis) < MAX_UNLIKE_COSINE * sizes_a * sizes_b
    is_replaced = is_far & is_unlike
    replaced_power = np.square(sizes_a[is_replaced]).sum()
    if (
        not is_replaced.any()
        or is_replaced.mean() > MAX_REPLACED_SHARE
        or replaced_power > MAX_REPLACED_SHARE * np.square(sizes_a).sum()
    ):
        return None
    if _rest_distance(a, b, is_replaced, axis) >= MAX_REST_DISTANCE:
        return None
    details = {"axis": axis, "count": int(is_replaced.sum()), "of": len(changes)}
    largest_change = float(relative_changes[is_replaced].max())
    return Finding("", "replaced", value=largest_change, more=details)


def _rest_distance(
    a: Floats, b: Floats, is_damaged: NDArray[np.bool_], axis: str
) -> float:
    """Return the relative distance of the rows or columns that are not damaged."""
    return relative_distance(
        *(
            np.compress(~is_damaged, values, axis=1 - _NORM_AXES[axis])
            for values in (a, b)
        )
    )
