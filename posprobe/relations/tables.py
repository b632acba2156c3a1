"""Two tables of positions: which rows of one are which of the other, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.relations.rules import RULES, Finding
from posprobe.relations.values import distance, moved, stored_again

#: Rows by which a table is tried to be shifted: reserved rows are one to four.
LAGS = 4
#: Most rows of which all inner products are formed.
_MAX_COMPARED_ROWS = 2048


def relate_tables(
    a: Floats, b: Floats, layouts: tuple[Layout, Layout] | None = None
) -> tuple[Finding, ...]:
    """Say what the rows and the values of one table are to those of another.

    Parameters
    ----------
    a, b
        ``[n, d]`` and ``[m, d]``, rows that are positions, finite.
    layouts
        Layouts of both tables; lines of positions where None.

    Returns
    -------
    tuple
        What differs in the rows first, then the values of those that both have.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(40, 8))
    >>> [found.cause for found in relate_tables(rows, rows[2:])]
    ['rows_cut', 'identical']
    """
    grids = layouts is not None and any(isinstance(layout, Grid) for layout in layouts)
    if a.shape[1] != b.shape[1]:
        if a.shape == b.shape[::-1] and _apart(a, b.T) < RULES["transposed"].tolerance:
            return (Finding("rows", "transposed", list(a.shape), list(b.shape)),)
        return (Finding("rows", "width", a.shape[1], b.shape[1]),)
    lag = row_lag(a, b)
    cut_a, cut_b = (a[lag:], b) if lag >= 0 else (a, b[-lag:])
    common = min(len(cut_a), len(cut_b))
    rows_a, rows_b = cut_a[:common], cut_b[:common]
    rows: list[Finding] = []
    if lag:
        rows.append(Finding("rows", "rows_cut" if lag > 0 else "rows_before", value=abs(lag)))
    values = _values(rows_a, rows_b)
    if len(a) != len(b) and values.cause in ("moved", "unrelated"):
        if resized := _resized(a, b, layouts):
            return (resized,)
        if grids or values.cause == "unrelated":
            return (Finding("rows", "unrelated", len(a), len(b), values.value),)
    elif values.cause == "unrelated":
        return (_moved_whole(a, b, layouts, values),)
    if len(cut_a) > common and not (lag > 0 and len(a) - lag == len(b)):
        rows.append(Finding("rows", "truncated", len(a), len(b)))
    elif len(cut_b) > common:
        tail = cut_b[common:]
        copied = len(tail) <= common and distance(cut_b[: len(tail)], tail)
        is_repeated = copied is not False and copied < RULES["repeated"].tolerance
        rows.append(Finding("rows", "repeated" if is_repeated else "longer", len(a), len(b)))
    curve = np.full(len(a), np.nan)
    curve[max(lag, 0) : max(lag, 0) + common] = _row_errors(rows_a, rows_b)
    return (*rows, replace(values, a=len(a), b=len(b), curve=curve))


def _row_errors(a: Floats, b: Floats) -> Floats:
    """Return how far rows are from each other, over the median length of a row."""
    size = float(np.median(np.linalg.norm(a, axis=1))) or 1.0
    return np.asarray(np.linalg.norm(b - a, axis=1) / size)


def row_lag(a: Floats, b: Floats) -> int:
    """Return by how many rows ``b`` begins later than ``a``, 0 unless it surely does."""
    errors = {}
    for lag in range(-LAGS - 1, LAGS + 2):
        rows_a, rows_b = (a[lag:], b) if lag >= 0 else (a, b[-lag:])
        common = min(len(rows_a), len(rows_b))
        if common > 0:
            errors[lag] = float(np.median(_row_errors(rows_a[:common], rows_b[:common])))
    best = min(errors, key=lambda lag: (errors[lag], abs(lag)))
    if abs(best) > LAGS or len(a) < 3:
        return 0
    size = float(np.median(np.linalg.norm(a, axis=1))) or 1.0
    neighbours = float(np.median(np.linalg.norm(np.diff(a, axis=0), axis=1))) / size
    gain = min(errors[k] ** 2 - errors[best] ** 2 for k in (best - 1, best + 1) if k in errors)
    sure = gain >= neighbours**2 / 2 and errors[best] < RULES["rows_cut"].tolerance
    return best if sure else 0


def _values(a: Floats, b: Floats) -> Finding:
    """Say what became of the values of rows that stand for the same positions."""
    if finding := stored_again(a, b, "values"):
        return finding
    relative_distance, errors = distance(a, b), _row_errors(a, b)
    for finding in _simple_changes(a, b):
        # A change of everything by one number leaves no more than a third of the difference.
        if finding.value is not None and finding.value < min(
            RULES[finding.cause].tolerance, relative_distance / 3
        ):
            return finding
    moved_rows = np.flatnonzero(errors > RULES["retrained"].tolerance * np.median(errors))
    if 0 < len(moved_rows) < len(a) / 2:
        kept_rows = np.delete(np.arange(len(a)), moved_rows)
        same_finding = stored_again(a[kept_rows], b[kept_rows], "values")
        details = {
            "first": int(moved_rows[0]),
            "last": int(moved_rows[-1]),
            "count": len(moved_rows),
        }
        if same_finding or _is_moved(a[kept_rows], b[kept_rows]):
            return Finding(
                "values", "retrained", value=float(errors[moved_rows].max()), more=details
            )
    return (
        moved(a, b, "values")
        if _is_moved(a, b)
        else Finding("values", "unrelated", value=relative_distance)
    )


def _is_moved(a: Floats, b: Floats) -> bool:
    """Tell whether values were moved a little; sharing a large mean row is no kinship."""
    limit = RULES["moved"].tolerance
    rows_a, rows_b = (rows - rows.mean(axis=0) for rows in (a, b))
    sizes = float(np.linalg.norm(rows_a) * np.linalg.norm(rows_b))
    return distance(a, b) < limit and float((rows_a * rows_b).sum()) >= limit * sizes


def _simple_changes(a: Floats, b: Floats) -> Iterator[Finding]:
    scale = float((a * b).sum() / ((a * a).sum() or 1.0))
    if abs(scale) > 0:
        misfit = max(distance(b, scale * a), _apart(b, scale * a))
        yield Finding("values", "scaled", value=misfit, more={"factor": scale})
    row = (b - a).mean(axis=0)
    if np.linalg.norm(row):
        mean = float(np.linalg.norm(row) / (np.median(np.linalg.norm(a, axis=1)) or 1.0))
        yield Finding("values", "constant_row", value=_apart(a, b), more={"size": mean})


def _apart(a: Floats, b: Floats) -> float:
    """Return the distance of rows less their mean, which where it is large hides any other."""
    return distance(a - a.mean(axis=0), b - b.mean(axis=0))


def _moved_whole(
    a: Floats, b: Floats, layouts: tuple[Layout, Layout] | None, values: Finding
) -> Finding:
    """Say how the rows of a table of the same size were arranged anew."""
    limit = RULES["reversed"].tolerance
    if _apart(a[::-1], b) < limit:
        return Finding("rows", "reversed", len(a), len(b))
    if a.shape[0] == a.shape[1] and _apart(a.T, b) < limit:
        return Finding("rows", "transposed", list(a.shape), list(b.shape))
    grid = layouts[0] if layouts else None
    if isinstance(grid, Grid):
        cells = a.reshape(grid.height, grid.width, -1)
        if _apart(cells.swapaxes(0, 1).reshape(a.shape), b) < limit:
            return Finding("rows", "exchanged", grid.height, grid.width)
    nearest = _nearest_rows(a, b)
    if len(set(nearest.tolist())) == len(a) and _apart(a[nearest], b) < limit:
        n_moved = int((nearest != np.arange(len(a))).sum())
        return Finding("rows", "permuted", len(a), len(b), n_moved)
    # Inner products of some rows tell a turn of the columns as well as those of all.
    sampled_rows = np.linspace(0, len(a) - 1, min(len(a), _MAX_COMPARED_ROWS)).astype(np.intp)
    rotation_misfit = max(
        distance(
            rows_a[sampled_rows] @ rows_a[sampled_rows].T,
            rows_b[sampled_rows] @ rows_b[sampled_rows].T,
        )
        for rows_a, rows_b in ((a, b), (a - a.mean(axis=0), b - b.mean(axis=0)))
    )
    if rotation_misfit < RULES["turned"].tolerance:
        return Finding("values", "turned", value=rotation_misfit)
    return values


def _nearest_rows(a: Floats, b: Floats) -> NDArray[np.intp]:
    """Return for each row of ``b`` the row of ``a`` that is nearest, in blocks."""
    squares = (a * a).sum(axis=1)
    nearest = [
        np.argmin(squares - 2 * b[begin : begin + _MAX_COMPARED_ROWS] @ a.T, axis=1)
        for begin in range(0, len(b), _MAX_COMPARED_ROWS)
    ]
    return np.concatenate(nearest)


def _resized(a: Floats, b: Floats, layouts: tuple[Layout, Layout] | None) -> Finding | None:
    """Find the interpolation that makes one table of the other."""
    old, new = (
        (size.height, size.width) if isinstance(size, Grid) else (size.length, 1)
        for size in layouts or (Sequence(len(a)), Sequence(len(b)))
    )
    if (old[1] > 1) != (new[1] > 1):
        return None
    fits = []
    for method in ("linear", "bicubic", "bicubic_antialias"):
        for corners in (False, True):
            if corners and method == "bicubic_antialias":
                continue
            cells = a.reshape(*old, -1)
            for axis in (0, 1):
                weights = resampling(old[axis], new[axis], method, corners=corners)
                cells = np.moveaxis(np.tensordot(weights, cells, (1, axis)), 0, axis)
            fits.append((_apart(cells.reshape(len(b), -1), b), method, corners))
    misfit, method, corners = min(fits)
    if misfit >= RULES["resized"].tolerance:
        return None
    details = {"method": method, "corners": corners}
    shapes = (old, new) if new[1] > 1 or old[1] > 1 else (old[:1], new[:1])
    return Finding("rows", "resized", list(shapes[0]), list(shapes[1]), misfit, more=details)


def resampling(old: int, new: int, method: str, *, corners: bool) -> Floats:
    """Return the weights ``[new, old]`` with which one axis is interpolated.

    They are those of PyTorch's ``interpolate``: linear, or cubic convolution with a = -0.75, or
    -0.5 and a kernel that widens with the step where it is antialiased (timm, Pillow).

    Parameters
    ----------
    old, new
        Numbers of rows.
    method
        ``linear``, ``bicubic`` or ``bicubic_antialias``.
    corners
        Whether the first and last rows stay where they are (``align_corners``).
    """
    if old == new:
        return np.eye(old)
    index = np.arange(new)
    step = (old - 1) / max(new - 1, 1) if corners else old / new
    places = index * step if corners else (index + 0.5) * step - 0.5
    wide = max(step, 1.0) if method == "bicubic_antialias" else 1.0
    if method == "linear" and not corners:
        places = np.maximum(places, 0.0)
    reach = int(np.ceil(2 * wide)) + 1
    weights = np.zeros((new, old))
    for shift in range(-reach, reach + 1):
        neighbours = np.floor(places) + shift
        share = _kernel((neighbours - places) / wide, method)
        if method == "bicubic_antialias":  # beyond the edge nothing counts
            share = np.where((neighbours >= 0) & (neighbours < old), share, 0.0)
        np.add.at(weights, (index, np.clip(neighbours, 0, old - 1).astype(np.intp)), share)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _kernel(x: Floats, method: str) -> Floats:
    x = np.abs(x)
    if method == "linear":
        return np.maximum(1 - x, 0.0)
    a = -0.5 if method == "bicubic_antialias" else -0.75  # Keys 1981, and what PyTorch took
    inner = (a + 2) * x**3 - (a + 3) * x**2 + 1
    outer = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))
