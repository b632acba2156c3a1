"""What a table of patches has learned, as answers: codes of rows and columns, and what they are."""

from __future__ import annotations

import numpy as np

from posprobe.analyses.answer import Answer, Verdict, hundredths, rank, too_few, verdict_of
from posprobe.analyses.answers import settle
from posprobe.analyses.closeness import Floats
from posprobe.analyses.rotation_answers import closed_form, rotations
from posprobe.analyses.stationary import (
    fit_grid_kernel,
    fit_kernel,
    grid_distances,
    leading,
    root,
    toeplitz,
)
from posprobe.analyses.views import DRAWS, LEVEL, MAX_ROWS, View, units, view
from posprobe.table import Grid

#: Grids with a side shorter than this need codes that hold so much more than in smooth fields: of
#: so few patches, the kernel of a separable field is too uncertain for its draws to decide.
SMALL_SIDE, CLEARLY = 10, 0.1


def ask_grid(
    values: Floats, height: int, width: int, *, seed: int = 0, dtype: str = "F32"
) -> list[Answer]:
    """Ask every question about a grid of patches.

    Parameters
    ----------
    values
        ``[h * w, d]``, row by row, finite.
    height, width
        Of the grid.
    seed, dtype
        As for `ask`.
    """
    shared = view(values, seed=seed)
    layout = Grid(height, width)
    answers = [
        grid_order(shared, height, width),
        rows_and_columns(shared, height, width),
        axis_rotations(shared, height, width),
        closed_form(shared, values, dtype, layout),
    ]
    return settle(answers)


def grid_order(shared: View, height: int, width: int) -> Answer:
    """Ask whether neighbours right and below are more alike than the same patches permuted."""
    keys = ("grid.neighbour_right", "grid.neighbour_below")
    if few := too_few("order", shared, keys):
        return few
    if height * width > MAX_ROWS:
        text = f"Cannot be told of a grid of {height} x {width}."
        return Answer("order", "cannot tell", text, keys=keys)
    unit = units(shared.points)
    short = leading(unit, 8)
    rng = shared.rng(12)
    value = _neighbours(unit, height, width)
    drawn = np.empty(2 * DRAWS + 1)
    for k in range(len(drawn)):
        rows = short if k == 0 else rng.permutation(short, axis=0)
        drawn[k] = _neighbours(rows, height, width)
    p = rank(drawn[0], drawn[1:])
    typical = float(np.median(drawn[1:]))
    answer = verdict_of(p, enough=len(shared) >= 16)
    told = (
        f"neighbouring patches have a mean cosine of {hundredths(value)}, "
        "patches in random order about 0"
    )
    sentence = {
        "yes": f"Yes: the place of a patch matters: {told}.",
        "no": f"No sign that the place of a patch matters: {told}.",
        "cannot tell": f"Cannot be told from {len(shared)} patches: {told}.",
    }[answer]
    return Answer("order", answer, sentence, value, typical, p, value - typical, keys)


def _neighbours(rows: Floats, height: int, width: int) -> float:
    cells = rows.reshape(height, width, -1)
    right = np.einsum("rcd,rcd->rc", cells[:, 1:], cells[:, :-1])
    below = np.einsum("rcd,rcd->rc", cells[1:], cells[:-1])
    return float((right.sum() + below.sum()) / max(right.size + below.size, 1))


def rows_and_columns(shared: View, height: int, width: int) -> Answer:
    """Ask whether each patch is a row code plus a column code.

    The nulls are the patches permuted, an isotropic field with the fitted kernel, and a separable
    field, whose covariance is that of rows times that of columns.
    """
    keys = ("grid.row_share", "grid.column_share", "grid.interaction_share")
    if few := too_few("rows_and_columns", shared, keys):
        return few
    if min(height, width) < 3 or height * width > MAX_ROWS:
        text = f"Cannot be told of a grid of {height} x {width}."
        return Answer("rows_and_columns", "cannot tell", text, keys=keys)
    rng = shared.rng(6)
    points = shared.coordinates[:, :16]
    columns = np.sqrt(np.square(points).sum(axis=0))
    shape = (height, width)
    isotropic = root(fit_grid_kernel(points, height, width)(grid_distances(height, width)))
    down, right = _axis_root(points, shape, 0), _axis_root(points, shape, 1)
    drawn = np.empty((3, DRAWS))
    for k in range(DRAWS):
        white = rng.standard_normal(points.shape) * columns
        apart = np.einsum("ab,bcr,dc->adr", down, white.reshape(height, width, -1), right)
        fields = (rng.permutation(points, axis=0), isotropic @ white, apart)
        drawn[:, k] = [1 - sum(_additive(field, shape)) for field in fields]
    share = _additive(shared.points, shape)
    rest = 1 - sum(_additive(points, shape))
    p = max(rank(-rest, -null) for null in drawn)
    nearest = max(float(np.median(1 - null)) for null in drawn)
    answer = verdict_of(p)
    if answer == "yes" and min(height, width) < SMALL_SIDE and sum(share) - nearest < CLEARLY:
        answer = "cannot tell"
    told = (
        f"row codes hold {share[0]:.1%} and column codes {share[1]:.1%} of the variance, what is "
        f"left {max(1 - sum(share), 0):.1%}; together, smooth fields without such codes would have "
        f"{nearest:.1%}"
    )
    sentence = {
        "yes": f"Yes: a patch is the sum of a code of its row and a code of its column: {told}.",
        "no": f"No sign of separate codes of rows and columns: {told}.",
        "cannot tell": f"Cannot be told from {height} x {width} patches: {told}.",
    }[answer]
    value = {"row_share": share[0], "column_share": share[1]}
    return Answer(
        "rows_and_columns", answer, sentence, value, nearest, p, sum(share) - nearest, keys
    )


def _additive(points: Floats, shape: tuple[int, int]) -> tuple[float, float]:
    cells = points.reshape(*shape, -1)
    cells = cells - cells.mean(axis=(0, 1))
    whole = max(float(np.square(cells).sum()), np.finfo(np.float64).tiny)
    by_row, by_column = cells.mean(axis=1), cells.mean(axis=0)
    return (
        float(np.square(by_row).sum() * shape[1] / whole),
        float(np.square(by_column).sum() * shape[0] / whole),
    )


def _axis_root(points: Floats, shape: tuple[int, int], axis: int) -> Floats:
    """Return a root of the covariance along one axis, from pairs in the same row or column."""
    cells = points.reshape(*shape, -1)
    lines = np.moveaxis(cells, axis, 0).reshape(shape[axis], -1)
    kernel = fit_kernel(lines - lines.mean(axis=0))
    return root(toeplitz(kernel.by_offset(shape[axis])))


def axis_rotations(shared: View, height: int, width: int) -> Answer:
    """Ask whether the row code or the column code rotates, each as a sequence of its own."""
    keys = ("grid.row_share", "grid.column_share")
    if few := too_few("axis_rotations", shared, keys):
        return few
    if height * width > MAX_ROWS:
        text = f"Cannot be told of a grid of {height} x {width}."
        return Answer("axis_rotations", "cannot tell", text, keys=keys)
    cells = shared.points.reshape(height, width, -1)
    parts = {"rows": cells.mean(axis=1), "columns": cells.mean(axis=0)}
    found = {name: rotations(view(code, seed=shared.seed)) for name, code in parts.items()}
    p = min((a.p for a in found.values() if a.p is not None), default=None)
    p = None if p is None else min(1.0, 2 * p)
    said = [f"{name}: {a.sentence}" for name, a in found.items()]
    kinds = {a.answer for a in found.values()}
    answer: Verdict = "yes" if "yes" in kinds and (p or 1) <= 2 * LEVEL else (
        "no" if kinds == {"no"} else "cannot tell"
    )  # fmt: skip
    start = {"yes": "Yes: ", "no": "No: ", "cannot tell": "Cannot be told: "}[answer]
    value = {name: a.value for name, a in found.items()}
    return Answer("axis_rotations", answer, start + " ".join(said), value, None, p, None, keys)
