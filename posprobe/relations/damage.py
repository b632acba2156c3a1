"""Rows and columns of an array that vanish or are unlike in one copy, while the others agree."""

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
#: numbers of half the median size, 3 bits leave one above zero but for 1 in a million columns.
MIN_ZEROED_COLUMN_SHARE = 0.5
#: Largest distance of the remaining rows or columns beside replaced ones: rounding to 4 bits moves
#: them by 0.1.
MAX_REMAINING_DISTANCE = 0.15
#: Rows of another model have a small cosine with those that stood there; what a merged adapter adds
#: to a row leaves it above 0.8.
MAX_UNLIKE_COSINE = 0.5
#: More rows of another model, or a larger share of the sum of squares, are another array.
MAX_REPLACED_SHARE = 0.5
#: The axis of ``[rows, width]`` along which norms of rows and of columns are taken.
_NORM_AXES = {"rows": 1, "columns": 0}
_MIN_ZEROED_SHARES = {"rows": MIN_ZEROED_ROW_SHARE, "columns": MIN_ZEROED_COLUMN_SHARE}


def find_damage(a: Floats, b: Floats, subject: str) -> Finding | None:
    """Find rows or columns that vanish in one copy, or are unlike while all others are alike.

    Training and rounding move all rows by about as much. Of several damages the first is returned:
    rows that vanish, columns that do, and then rows and columns that are unlike.

    Parameters
    ----------
    a, b
        ``[rows, width]``, rows in the same order.
    subject
        Subject of the finding, as in `Finding`.
    """
    for find in (_find_zeroed, _find_replaced):
        for axis in _NORM_AXES:
            finding = find(a, b, axis)
            if finding is not None:
                return replace(finding, what=subject)
    return None


def _find_zeroed(a: Floats, b: Floats, axis: str) -> Finding | None:
    """Find rows or columns that vanish in one copy alone; in B if in both some do."""
    norms_a, norms_b = (
        np.linalg.norm(values, axis=_NORM_AXES[axis]) for values in (a, b)
    )
    largest_norms = np.maximum(norms_a, norms_b)
    max_norms = RULES["zeroed"].tolerance * largest_norms
    is_long = largest_norms > _MIN_ZEROED_SHARES[axis] * np.median(largest_norms)
    vanishes = {
        "b": is_long & (norms_b <= max_norms),
        "a": is_long & (norms_a <= max_norms),
    }
    is_zeroed = vanishes["a"] | vanishes["b"]
    if not is_zeroed.any():
        return None
    if (
        not is_zeroed.all()
        and _remaining_distance(a, b, is_zeroed, axis) >= RULES["moved"].tolerance
    ):
        return None
    side = "b" if vanishes["b"].any() else "a"
    count = int(vanishes[side].sum())
    details = {"axis": axis, "count": count, "of": len(is_zeroed), "side": side}
    return Finding("", "zeroed", more=details)


def _find_replaced(a: Floats, b: Floats, axis: str) -> Finding | None:
    """Find rows or columns that are unlike, while the larger part of A stays."""
    norm_axis = _NORM_AXES[axis]
    norms_a, norms_b = (np.linalg.norm(values, axis=norm_axis) for values in (a, b))
    changes = np.linalg.norm(b - a, axis=norm_axis)
    sizes = np.maximum(norms_a, np.median(norms_a))
    relative_changes = np.divide(
        changes, sizes, out=np.zeros_like(changes), where=sizes > 0
    )
    is_far = relative_changes >= RULES["replaced"].tolerance
    is_unlike = (a * b).sum(axis=norm_axis) < MAX_UNLIKE_COSINE * norms_a * norms_b
    is_replaced = is_far & is_unlike
    replaced_power = np.square(norms_a[is_replaced]).sum()
    if (
        not is_replaced.any()
        or is_replaced.mean() > MAX_REPLACED_SHARE
        or replaced_power > MAX_REPLACED_SHARE * np.square(norms_a).sum()
        or _remaining_distance(a, b, is_replaced, axis) >= MAX_REMAINING_DISTANCE
    ):
        return None
    details = {"axis": axis, "count": int(is_replaced.sum()), "of": len(changes)}
    largest_change = float(relative_changes[is_replaced].max())
    return Finding("", "replaced", value=largest_change, more=details)


def _remaining_distance(
    a: Floats, b: Floats, is_damaged: NDArray[np.bool_], axis: str
) -> float:
    """Return the relative distance of the rows or columns that are not damaged."""
    rest_a, rest_b = (
        np.compress(~is_damaged, values, axis=1 - _NORM_AXES[axis]) for values in (a, b)
    )
    return relative_distance(rest_a, rest_b)


def join_damage(findings: list[Finding]) -> Finding:
    """Join findings of one cause on blocks of rows: rows add up, and columns are those of all.

    Parameters
    ----------
    findings
        Findings of the blocks, in their order, with those of other causes.
    """
    worst = max(findings, key=lambda finding: (not finding.alike, finding.value or 0.0))
    if worst.more.get("axis") != "rows":
        return worst
    members = [
        finding.more
        for finding in findings
        if finding.cause == worst.cause and finding.more["axis"] == "rows"
    ]
    count = sum(details["count"] for details in members)
    n_rows = worst.more["of"] * len(findings)
    return replace(worst, more={**worst.more, "count": count, "of": n_rows})
