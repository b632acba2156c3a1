"""Relate two tables of positions: corresponding rows first, then the change of their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.layouts import Grid, Layout, Sequence, layout_sides
from posprobe.relations.damage import find_damage
from posprobe.relations.rules import RULES, Finding
from posprobe.relations.values import find_same_values, moved_finding, relative_distance

#: Tables are tried at shifts up to this many rows, because one to four rows are reserved.
MAX_ROW_LAG = 4
#: Ways in which tables are interpolated, and whether the first and last rows stay.
RESAMPLING_METHODS = (
    ("linear", False),
    ("linear", True),
    ("bicubic", False),
    ("bicubic", True),
    ("bicubic_antialias", False),
)
#: Inner products are formed of at most this many rows at once, which bounds time and memory.
_MAX_COMPARED_ROWS = 2048


def relate_tables(
    a: Floats, b: Floats, layouts: tuple[Layout, Layout] | None = None
) -> tuple[Finding, ...]:
    """Relate the rows and the values of two tables.

    Parameters
    ----------
    a, b
        ``[n, d]`` and ``[m, d]``, rows that are positions, finite.
    layouts
        Layouts of both tables; sequences if None.

    Returns
    -------
    tuple
        Findings on the rows first, then the finding on the values of common rows.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(40, 8))
    >>> [finding.cause for finding in relate_tables(rows, rows[2:])]
    ['rows_cut', 'identical']
    """
    has_grid = layouts is not None and any(
        not isinstance(layout, Sequence) for layout in layouts
    )
    if a.shape[1] != b.shape[1]:
        if (
            a.shape == b.shape[::-1]
            and _centred_distance(a, b.T) < RULES["transposed"].tolerance
        ):
            return (Finding("rows", "transposed", list(a.shape), list(b.shape)),)
        return (Finding("rows", "width", a.shape[1], b.shape[1]),)
    lag = find_row_lag(a, b)
    aligned_a, aligned_b = (a[lag:], b) if lag >= 0 else (a, b[-lag:])
    n_common = min(len(aligned_a), len(aligned_b))
    rows_a, rows_b = aligned_a[:n_common], aligned_b[:n_common]
    row_findings: list[Finding] = []
    if lag:
        lag_cause = "rows_cut" if lag > 0 else "rows_before"
        row_findings.append(
            Finding("rows", lag_cause, value=abs(lag), more={"position": 0})
        )
    value_finding = _relate_values(rows_a, rows_b)
    if len(a) != len(b) and value_finding.cause in ("moved", "unrelated"):
        if resized := _find_resizing(a, b, layouts):
            return (resized,)
        if has_grid or value_finding.cause == "unrelated":
            return (Finding("rows", "unrelated", len(a), len(b), value_finding.value),)
    elif value_finding.cause == "unrelated":
        return (_find_rearrangement(a, b, layouts, value_finding),)
    if len(aligned_a) > n_common and not (lag > 0 and len(a) - lag == len(b)):
        more = {} if lag else {"position": n_common}
        row_findings.append(Finding("rows", "truncated", len(a), len(b), more=more))
    elif len(aligned_b) > n_common:
        tail = aligned_b[n_common:]
        is_repeated = (
            len(tail) <= n_common
            and relative_distance(aligned_b[: len(tail)], tail)
            < RULES["repeated"].tolerance
        )
        tail_cause = "repeated" if is_repeated else "longer"
        row_findings.append(Finding("rows", tail_cause, len(a), len(b)))
    row_errors = np.full(len(a), np.nan)
    row_errors[max(lag, 0) : max(lag, 0) + n_common] = _row_errors(rows_a, rows_b)
    return (*row_findings, replace(value_finding, a=len(a), b=len(b), curve=row_errors))


def _row_errors(a: Floats, b: Floats) -> Floats:
    """Return the distances of corresponding rows over the median norm of a row, ``[n]``."""
    median_norm = float(np.median(np.linalg.norm(a, axis=1))) or 1.0
    return np.asarray(np.linalg.norm(b - a, axis=1) / median_norm)


def find_row_lag(a: Floats, b: Floats) -> int:
    """Return the number of rows by which ``b`` begins later than ``a``, 0 unless it is certain."""
    errors = {}
    for lag in range(-MAX_ROW_LAG - 1, MAX_ROW_LAG + 2):
        rows_a, rows_b = (a[lag:], b) if lag >= 0 else (a, b[-lag:])
        n_common = min(len(rows_a), len(rows_b))
        if n_common > 0:
            errors[lag] = float(
                np.median(_row_errors(rows_a[:n_common], rows_b[:n_common]))
            )
    best = min(errors, key=lambda lag: (errors[lag], abs(lag)))
    if abs(best) > MAX_ROW_LAG or len(a) < 3:
        return 0
    median_norm = float(np.median(np.linalg.norm(a, axis=1))) or 1.0
    neighbour_distance = (
        float(np.median(np.linalg.norm(np.diff(a, axis=0), axis=1))) / median_norm
    )
    adjacent_errors = [errors[lag] for lag in (best - 1, best + 1) if lag in errors]
    error_gain = min(error**2 - errors[best] ** 2 for error in adjacent_errors)
    is_distinct = error_gain >= neighbour_distance**2 / 2
    return best if is_distinct and errors[best] < RULES["rows_cut"].tolerance else 0


def _relate_values(a: Floats, b: Floats) -> Finding:
    """Relate the values of rows of the same positions."""
    damage = find_damage(a, b, "values")
    if damage is not None and damage.cause == "zeroed":
        return damage
    if finding := find_same_values(a, b, "values"):
        return finding
    # A mean row that both share says nothing. Rows that are unlike were trained again, as far as a
    # table shows.
    damage = find_damage(a - a.mean(axis=0), b - b.mean(axis=0), "values")
    is_replaced = damage is not None and damage.cause == "replaced"
    if damage is not None and is_replaced and damage.more["axis"] == "columns":
        return damage
    direct_distance, errors = relative_distance(a, b), _row_errors(a, b)
    for finding in _simple_changes(a, b):
        # One number that changes all values explains all but a third of the difference.
        max_misfit = min(RULES[finding.cause].tolerance, direct_distance / 3)
        if finding.value is not None and finding.value < max_misfit:
            return finding
    moved_rows = np.flatnonzero(errors > RULES["retrained"].tolerance * np.median(errors))
    if 0 < len(moved_rows) < len(a) / 2:
        kept_rows = np.delete(np.arange(len(a)), moved_rows)
        same_finding = find_same_values(a[kept_rows], b[kept_rows], "values")
        details = {
            "first": int(moved_rows[0]),
            "last": int(moved_rows[-1]),
            "count": len(moved_rows),
        }
        if same_finding or _is_slightly_moved(a[kept_rows], b[kept_rows]):
            return Finding(
                "values", "retrained", value=float(errors[moved_rows].max()), more=details
            )
    return (
        moved_finding(a, b, "values")
        if _is_slightly_moved(a, b)
        else Finding("values", "unrelated", value=direct_distance)
    )


def _is_slightly_moved(a: Floats, b: Floats) -> bool:
    """Tell whether values were moved a little, apart from a mean row that both may share."""
    limit = RULES["moved"].tolerance
    rows_a, rows_b = (rows - rows.mean(axis=0) for rows in (a, b))
    norm_product = float(np.linalg.norm(rows_a) * np.linalg.norm(rows_b))
    return (
        relative_distance(a, b) < limit
        and float((rows_a * rows_b).sum()) >= limit * norm_product
    )


def _simple_changes(a: Floats, b: Floats) -> Iterator[Finding]:
    """Yield a factor on all values, and a row that is added to all rows, with their misfits."""
    scale = float((a * b).sum() / ((a * a).sum() or 1.0))
    if abs(scale) > 0:
        misfit = max(relative_distance(b, scale * a), _centred_distance(b, scale * a))
        yield Finding("values", "scaled", value=misfit, more={"factor": scale})
    mean_row = (b - a).mean(axis=0)
    if np.linalg.norm(mean_row):
        median_norm = np.median(np.linalg.norm(a, axis=1)) or 1.0
        details = {"size": float(np.linalg.norm(mean_row) / median_norm)}
        yield Finding(
            "values", "constant_row", value=_centred_distance(a, b), more=details
        )


def _centred_distance(a: Floats, b: Floats) -> float:
    """Return the relative distance of rows less their mean, which would hide other changes."""
    return relative_distance(a - a.mean(axis=0), b - b.mean(axis=0))


def _find_rearrangement(
    a: Floats, b: Floats, layouts: tuple[Layout, Layout] | None, value_finding: Finding
) -> Finding:
    """Find how the rows of a table of the same size were rearranged, or its columns rotated."""
    tolerance = RULES["reversed"].tolerance
    if _centred_distance(a[::-1], b) < tolerance:
        return Finding("rows", "reversed", len(a), len(b))
    if a.shape[0] == a.shape[1] and _centred_distance(a.T, b) < tolerance:
        return Finding("rows", "transposed", list(a.shape), list(b.shape))
    grid = layouts[0] if layouts else None
    if isinstance(grid, Grid):
        patches = a.reshape(grid.height, grid.width, -1)
        if _centred_distance(patches.swapaxes(0, 1).reshape(a.shape), b) < tolerance:
            return Finding("rows", "exchanged", grid.height, grid.width)
    nearest = _nearest_rows(a, b)
    if (
        len(set(nearest.tolist())) == len(a)
        and _centred_distance(a[nearest], b) < tolerance
    ):
        n_moved = int((nearest != np.arange(len(a))).sum())
        return Finding("rows", "permuted", len(a), len(b), n_moved)
    # Inner products of some rows show a rotation of the columns as well as those of all rows.
    sampled_rows = np.linspace(0, len(a) - 1, min(len(a), _MAX_COMPARED_ROWS)).astype(
        np.intp
    )
    rotation_misfit = max(
        relative_distance(
            rows_a[sampled_rows] @ rows_a[sampled_rows].T,
            rows_b[sampled_rows] @ rows_b[sampled_rows].T,
        )
        for rows_a, rows_b in ((a, b), (a - a.mean(axis=0), b - b.mean(axis=0)))
    )
    if rotation_misfit < RULES["turned"].tolerance:
        return Finding("values", "turned", value=rotation_misfit)
    return value_finding


def _nearest_rows(a: Floats, b: Floats) -> NDArray[np.intp]:
    """Return for each row of ``b`` the index of the nearest row of ``a``, computed in blocks."""
    squares = (a * a).sum(axis=1)
    nearest = [
        np.argmin(squares - 2 * b[begin : begin + _MAX_COMPARED_ROWS] @ a.T, axis=1)
        for begin in range(0, len(b), _MAX_COMPARED_ROWS)
    ]
    return np.concatenate(nearest)


def _find_resizing(
    a: Floats, b: Floats, layouts: tuple[Layout, Layout] | None
) -> Finding | None:
    """Find the interpolation that turns one table into the other."""
    sequences = Sequence(len(a)), Sequence(len(b))
    old, new = (layout_sides(layout) for layout in layouts or sequences)
    fits: list[tuple[float, dict[str, Any]]] = []
    for method, corners in RESAMPLING_METHODS:
        details = {"method": method, "corners": corners}
        if len(old) == len(new):
            patches = a.reshape(*old, -1)
            for axis in range(len(old)):
                weights = resampling_weights(
                    old[axis], new[axis], method, corners=corners
                )
                patches = np.moveaxis(np.tensordot(weights, patches, (1, axis)), 0, axis)
            fits.append((_centred_distance(patches.reshape(len(b), -1), b), details))
        if max(len(old), len(new)) > 1:
            misfit = _fit_raster(a, b, method, corners=corners)
            fits.append((misfit, {**details, "raster": True}))
    misfit, details = min(fits, key=lambda fit: fit[0])
    if misfit >= RULES["resized"].tolerance:
        return None
    is_raster = "raster" in details
    sizes_a, sizes_b = ((len(a),), (len(b),)) if is_raster else (old, new)
    n_common = min(len(a), len(b))
    is_wrong = _row_errors(a[:n_common], b[:n_common]) > RULES["resized"].tolerance
    position = int(is_wrong.argmax()) if is_wrong.any() else n_common
    more = {**details, "position": position}
    return Finding("rows", "resized", [*sizes_a], [*sizes_b], misfit, more=more)


def _fit_raster(a: Floats, b: Floats, method: str, *, corners: bool) -> float:
    """Return the misfit of a grid that was resampled as one long row.

    Rows in front of the grid, which are not known, may have been resampled with it.
    """
    misfits = []
    for n_prefix in range(MAX_ROW_LAG + 1):
        weights = resampling_weights(
            len(a) + n_prefix, len(b) + n_prefix, method, corners=corners
        )[n_prefix:]
        is_known = (weights[:, :n_prefix] == 0).all(axis=1)
        rows = weights[is_known, n_prefix:] @ a
        misfits.append(_centred_distance(rows, b[is_known]))
    return min(misfits)


def resampling_weights(old: int, new: int, method: str, *, corners: bool) -> Floats:
    """Return the weights ``[new, old]`` that interpolate one axis.

    They are those of PyTorch's ``interpolate``: linear, or cubic convolution with a = -0.75. The
    antialiased kernel has a = -0.5 and widens with the step (timm, Pillow).

    Parameters
    ----------
    old, new
        Number of rows before and after.
    method
        ``linear``, ``bicubic`` or ``bicubic_antialias``.
    corners
        Whether the first and last rows stay where they are (``align_corners``).
    """
    if old == new:
        return np.eye(old)
    index = np.arange(new)
    step = (old - 1) / max(new - 1, 1) if corners else old / new
    positions = index * step if corners else (index + 0.5) * step - 0.5
    kernel_width = max(step, 1.0) if method == "bicubic_antialias" else 1.0
    if method == "linear" and not corners:
        positions = np.maximum(positions, 0.0)
    max_shift = int(np.ceil(2 * kernel_width)) + 1
    weights = np.zeros((new, old))
    for shift in range(-max_shift, max_shift + 1):
        neighbours = np.floor(positions) + shift
        kernel_weights = _interpolation_kernel(
            (neighbours - positions) / kernel_width, method
        )
        if method == "bicubic_antialias":  # rows beyond the edge have no weight
            kernel_weights = np.where(
                (neighbours >= 0) & (neighbours < old), kernel_weights, 0.0
            )
        np.add.at(
            weights,
            (index, np.clip(neighbours, 0, old - 1).astype(np.intp)),
            kernel_weights,
        )
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _interpolation_kernel(offsets: Floats, method: str) -> Floats:
    """Return the weight at each offset, in rows over the width of the kernel."""
    x = np.abs(offsets)
    if method == "linear":
        return np.asarray(np.maximum(1 - x, 0.0))
    a = -0.5 if method == "bicubic_antialias" else -0.75  # Keys (1981); PyTorch
    inner = (a + 2) * x**3 - (a + 3) * x**2 + 1
    outer = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))
