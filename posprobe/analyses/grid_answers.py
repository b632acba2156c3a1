"""What a table of patches has learned, as answers: codes of rows and columns, and what they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from posprobe.analyses.answer import (
    MIN_ROWS,
    OPEN,
    Answer,
    Verdict,
    rank,
    too_few,
    verdict_of,
)
from posprobe.analyses.answers import settle
from posprobe.analyses.closeness import Floats
from posprobe.analyses.code_rotations import code_rotation
from posprobe.analyses.grid_fields import field_answers, parts
from posprobe.analyses.rotation_answers import closed_form, rotations
from posprobe.analyses.stationary import (
    fit_grid_kernel,
    fit_kernel,
    grid_distances,
    leading,
    root,
    toeplitz,
)
from posprobe.analyses.views import LEVEL, MAX_ROWS, View, chance_cosine, units, view
from posprobe.layouts import Grid
from posprobe.text import hundredths, listed

#: Draws of each null of row and column codes.
CODE_DRAWS = 99
#: Permutations of the patches.
ORDER_DRAWS = 199
#: A code that holds less of the variance than this share of what both hold is none.
ONE_CODE = 0.03
#: Codes must hold more than in all but this share of the draws, however rough what is left is.
SURELY_MORE = 0.3
#: Patches on a side below which a separable field that is fitted to codes imitates them.
SHORT_SIDE = 8
#: Patches below which codes of rows and columns are not denied: planted in 3 x 3 in a little noise,
#: they would be each time, since smooth fields have as much in codes there.
FEW_PATCHES = 16
#: Share of a short code below which a rotation of it would not count, whatever else is there.
LITTLE = 0.25


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
    form = closed_form(shared, values, dtype, layout)
    answers = [
        grid_order(shared, height, width),
        rows_and_columns(shared, height, width),
        axis_rotations(shared, height, width, form),
        *field_answers(shared, height, width),
        form,
    ]
    return settle(answers)


def grid_order(shared: View, height: int, width: int) -> Answer:
    """Ask whether neighbours right and below are more, or less, alike than patches permuted."""
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
    # So many that the least p-value stands alone among the questions of a grid.
    drawn = np.empty(ORDER_DRAWS + 1)
    for k in range(len(drawn)):
        rows = short if k == 0 else short[rng.permutation(len(short))]
        drawn[k] = _neighbours(rows, height, width)
    typical = float(np.median(drawn[1:]))
    away = np.abs(drawn - typical)
    p = rank(away[0], away[1:])
    answer = verdict_of(p, enough=len(shared) >= 16)
    chance = chance_cosine(unit)
    told = (
        f"neighbouring patches have a mean cosine of {hundredths(value)}, "
        f"patches in random order {hundredths(chance)}"
    )
    sentence = {
        "yes": f"Yes: the place of a patch matters: {told}.",
        "no": f"No sign that the place of a patch matters: {told}.",
        "cannot tell": f"Cannot be told from {len(shared)} patches: {told}.",
    }[answer]
    return Answer("order", answer, sentence, value, chance, p, value - chance, keys)


def _neighbours(rows: Floats, height: int, width: int) -> float:
    cells = rows.reshape(height, width, -1)
    right = np.einsum("rcd,rcd->rc", cells[:, 1:], cells[:, :-1])
    below = np.einsum("rcd,rcd->rc", cells[1:], cells[:-1])
    return float((right.sum() + below.sum()) / max(right.size + below.size, 1))


def rows_and_columns(shared: View, height: int, width: int) -> Answer:
    """Ask whether each patch is a row code plus a column code.

    Codes hold more than in fields, and what they leave is as rough as noise, where that of a smooth
    field is smooth: the evidence is the sum of both, each in standard deviations of the draws. The
    nulls are the patches permuted, an isotropic field with the fitted kernel, and a separable field
    in noise, whose covariance is that of rows times that of columns.
    """
    keys = ("axis_codes.rows.share", "axis_codes.columns.share", "axis_codes.interaction_share")
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
    down, noise_down = _axis_root(points, shape, 0)
    right, noise_right = _axis_root(points, shape, 1)
    noise = (noise_down + noise_right) / 2
    drawn = np.empty((3, CODE_DRAWS, 2))
    for k in range(CODE_DRAWS):
        white = rng.standard_normal((2, *points.shape)) * columns
        apart = down @ white[0].reshape(height, -1)
        apart = right @ apart.reshape(height, width, -1)
        apart = np.sqrt(1 - noise) * apart.reshape(points.shape) + np.sqrt(noise) * white[1]
        fields = (rng.permutation(points, axis=0), isotropic @ white[0], apart)
        drawn[:, k] = [_apartness(field, shape) for field in fields]
    share = _additive(shared.points, shape)
    found = np.array(_apartness(points, shape))
    spread = np.maximum(drawn.std(axis=1), 1e-9)
    both = (found / spread).sum(axis=1), (drawn / spread[:, None]).sum(axis=2)
    ranks = [rank(value, null) for value, null in zip(*both, strict=True)]
    p = max(ranks)
    more = max(rank(found[0], null[:, 0]) for null in drawn)
    nearest = max(float(np.median(1 - np.exp(-null[:, 0]))) for null in drawn)
    # No order and no isotropic field explain it: only a separable one does, which may be the codes.
    imitated = min(shape) < SHORT_SIDE and max(ranks[:2]) <= LEVEL
    too_small = height * width < FEW_PATCHES
    answer = verdict_of(p, enough=not (imitated or too_small))
    if answer == "yes" and more > SURELY_MORE:
        answer = "cannot tell" if imitated or too_small or sum(share) > nearest else "no"
    told = (
        f"row codes hold {share[0]:.1%} and column codes {share[1]:.1%} of the variance, what is "
        f"left {max(1 - sum(share), 0):.1%}; together, smooth fields without such codes would have "
        f"{nearest:.1%}"
    )
    lone = lone_code(*share)
    summed = f"a code of its {lone} alone" if lone else "a code of its row plus one of its column"
    sentence = {
        "yes": f"Yes: a patch is {summed}: {told}.",
        "no": f"No sign of separate codes of rows and columns: {told}.",
        "cannot tell": f"Cannot be told from {height} x {width} patches: {told}.",
    }[answer]
    value = {"row_share": share[0], "column_share": share[1]}
    return Answer(
        "rows_and_columns", answer, sentence, value, nearest, p, sum(share) - nearest, keys
    )


def lone_code(row_share: float, column_share: float) -> str:
    """Return ``row`` or ``column`` where the other code holds next to nothing, else nothing."""
    if column_share <= ONE_CODE * row_share:
        return "row"
    return "column" if row_share <= ONE_CODE * column_share else ""


def _additive(points: Floats, shape: tuple[int, int]) -> tuple[float, float]:
    cells = points.reshape(*shape, -1)
    cells = cells - cells.mean(axis=(0, 1))
    whole = max(float(np.square(cells).sum()), np.finfo(np.float64).tiny)
    by_row, by_column = cells.mean(axis=1), cells.mean(axis=0)
    return (
        float(np.square(by_row).sum() * shape[1] / whole),
        float(np.square(by_column).sum() * shape[0] / whole),
    )


def _apartness(points: Floats, shape: tuple[int, int]) -> tuple[float, float]:
    """Return how much more codes hold than they leave, in logarithms, and how rough that is."""
    rest = parts(points, shape)[2]
    left = max(float(np.square(rest).sum()), np.finfo(np.float64).tiny)
    alike = float(np.vdot(rest[1:], rest[:-1]) + np.vdot(rest[:, 1:], rest[:, :-1]))
    whole = float(np.square(points - points.mean(axis=0)).sum())
    return float(np.log(max(whole, np.finfo(np.float64).tiny) / left)), -alike / left


def _axis_root(points: Floats, shape: tuple[int, int], axis: int) -> tuple[Floats, float]:
    """Return a root of the correlation along one axis but for noise, and the share of noise.

    From pairs in the same row or column.
    """
    cells = points.reshape(*shape, -1)
    lines = np.moveaxis(cells, axis, 0).reshape(shape[axis], -1)
    kernel = fit_kernel(lines - lines.mean(axis=0))
    values = kernel.by_offset(shape[axis])
    noise = float(kernel.weights[-1])
    whole, smooth = float(values[0]), float(values[0]) - noise
    if not smooth > 1e-9 * whole:
        return np.eye(shape[axis]), 1.0 if whole > 0 else 0.0
    correlation = values / smooth
    correlation[0] = 1.0
    return root(toeplitz(correlation)), noise / whole


def axis_rotations(shared: View, height: int, width: int, form: Answer) -> Answer:
    """Ask whether the row code or the column code rotates, each as a sequence of its own.

    Lines in the spectrum show rotations of many turns; of few turns, a pair of directions that
    goes round more evenly than smooth curves do, in one code or in both together.
    """
    keys = ("axis_codes.rows.share", "axis_codes.columns.share")
    if few := too_few("axis_rotations", shared, keys):
        return few
    if height * width > MAX_ROWS:
        text = f"Cannot be told of a grid of {height} x {width}."
        return Answer("axis_rotations", "cannot tell", text, keys=keys)
    if form.answer == "yes":
        text = (
            "Yes: the formula makes both codes of rotations, a plane for each of its frequencies."
        )
        return Answer("axis_rotations", "yes", text, keys=(*keys, *form.keys))
    rows, columns, _ = parts(shared.points, (height, width))
    sizes = {
        "rows": width * float(np.square(rows).sum()),
        "columns": height * float(np.square(columns).sum()),
    }
    # What a code that is none has is noise.
    least = max(1e-9 * float(np.square(shared.points).sum()), ONE_CODE * max(sizes.values()))
    codes = {
        name: code
        for name, code in (("rows", rows), ("columns", columns))
        if len(code) >= MIN_ROWS and code.shape[1] > 1 and sizes[name] > least
    }
    if not codes:
        text = (
            f"Cannot be told: a code needs at least {MIN_ROWS} rows or columns and two directions "
            "to show a rotation."
        )
        return Answer("axis_rotations", "cannot tell", text, keys=keys)
    lined = {name: rotations(view(code, seed=shared.seed)) for name, code in codes.items()}
    if any(answer.answer == "yes" for answer in lined.values()):
        said = [
            f"in the {name.removesuffix('s')} code "
            f"{answer.sentence.removeprefix('Yes: ').rstrip('.')}"
            for name, answer in lined.items()
            if answer.answer == "yes"
        ]
        p = min(answer.p for answer in lined.values() if answer.p is not None)
        value: dict[str, Any] = {name: answer.value for name, answer in lined.items()}
        value["rotating"] = [name for name, answer in lined.items() if answer.answer == "yes"]
        text = f"Yes: {'; '.join(said)}."
        return Answer("axis_rotations", "yes", text, value, None, p, None, keys)
    rng = shared.rng(16)
    found = {name: code_rotation(code, rng) for name, code in codes.items()}
    together = sum(each.share for each in found.values())
    drawn = np.sum([each.drawn for each in found.values()], axis=0)
    ranks = {name: each.p for name, each in found.items()}
    joint = max(rank(together, null) for null in drawn)
    p = min(1.0, (len(found) + 1 if len(found) > 1 else 1) * min(joint, *ranks.values()))
    turning = [name for name in found if joint <= LEVEL or ranks[name] <= LEVEL]
    value = {
        name: {"turns": each.turns, "share": each.share, "typical": each.typical, "p": each.p}
        for name, each in found.items()
    }
    value["rotating"] = turning if p <= LEVEL else []
    typical = float(np.mean([each.typical for each in found.values()]))
    told = listed(
        [f"{each.share:.0%} of the {name.removesuffix('s')} code" for name, each in found.items()]
    )
    told = f"{told} go{'es' if len(found) == 1 else ''} round evenly in a pair of directions"
    if p <= LEVEL and turning:
        answer: Verdict = "yes"
        names = listed([f"the {name.removesuffix('s')} code" for name in turning])
        shares = listed([f"{found[name].share:.0%}" for name in turning])
        one = len(turning) == 1
        text = (
            f"Yes: {names} go{'es' if one else ''} round {'its' if one else 'their'} centre at a "
            f"more even distance than smooth curves do: {shares} of {'its' if one else 'their'} "
            f"variance {'is' if one else 'are'} in a pair of directions that goes round evenly, of "
            f"smooth curves about {typical:.0%}."
        )
    elif p > OPEN and max(each.share for each in found.values()) < LITTLE:
        answer = "no"
        text = f"No sign of rotations: {told}, no more than in random curves."
    else:
        answer = "cannot tell"
        text = (
            f"Cannot be told from {listed([f'{len(code)} {n}' for n, code in codes.items()])}: "
            f"{told}, and about {typical:.0%} of a smooth curve of that length does so as well, as "
            "its components look like sinusoids of about one turn anyway."
        )
    effect = float(np.mean([each.share for each in found.values()])) - typical
    return Answer("axis_rotations", answer, text, value, typical, p, effect, keys)
