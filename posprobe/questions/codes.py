"""Whether each patch is a row code plus a column code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.analyses.facts import Answer
from posprobe.analyses.stationary import (
    fit_grid_kernel,
    fit_kernel,
    grid_distances,
    root,
    toeplitz,
)
from posprobe.analyses.views import LEVEL, View
from posprobe.questions.base import LEAST_SHARE, Question, against, rank, verdict_of
from posprobe.questions.grids import draw_until, parts, unfit

#: Draws of each null, and how many where those do not exclude a yes: so many that the least p-value
#: stands alone among the questions of a grid.
DRAWS, MOST_DRAWS = 99, 199
#: Leading components that are tested: noise in all others would hide codes.
COMPONENTS = 16
#: A code that holds less of the variance than this share of what both hold is none.
ONE_CODE = 0.03
#: Codes must hold more than in all but this share of the draws, however rough what is left is.
SURELY_MORE = 0.3
#: Shortest side that is asked; of two patches a code is hardly a sequence.
MIN_SIDE = 3
#: Patches on a side below which a separable field that is fitted to codes imitates them.
SHORT_SIDE = 8
#: Patches below which codes of rows and columns are not denied: planted in 3 x 3 in a little noise,
#: they would be each time, since smooth fields have as much in codes there.
FEW_PATCHES = 16
#: Names of the nulls.
NULLS = ("permuted", "isotropic field", "separable field")
KEYS = ("axis_codes.rows.share", "axis_codes.columns.share", "axis_codes.interaction_share")

Lone: TypeAlias = Literal["", "row", "column"]


@dataclass(frozen=True)
class RowsAndColumns:
    """What a row code and a column code hold of a table of patches.

    Parameters
    ----------
    height, width
        Of the grid, in patches.
    row_share, column_share
        Of the variance, which each code explains.
    components, held, typical
        How many leading components were tested, the share of their variance that both codes
        explain, and the same in the nearest null.
    whole
        Whether those are all components.
    """

    height: int
    width: int
    row_share: float
    column_share: float
    components: int
    held: float
    typical: float
    whole: bool

    @property
    def share(self) -> float:
        """Share of the variance that both codes explain."""
        return self.row_share + self.column_share

    @property
    def lone(self) -> Lone:
        """The code beside which the other holds next to nothing, or nothing."""
        if self.column_share <= ONE_CODE * self.row_share:
            return "row"
        return "column" if self.row_share <= ONE_CODE * self.column_share else ""

    @property
    def value(self) -> dict[str, float]:
        """The shares of both codes."""
        return {"row_share": self.row_share, "column_share": self.column_share}


def ask(seen: View) -> Answer:
    """Ask whether each patch is a row code plus a column code.

    Codes hold more than in fields, and what they leave is as rough as noise, where that of a smooth
    field is smooth: the evidence is the sum of both, each in standard deviations of the draws. The
    nulls are the patches permuted, an isotropic field with the fitted kernel, and a separable field
    in noise, whose covariance is that of rows times that of columns.
    """
    if none := unfit("rows_and_columns", seen, KEYS, least=MIN_SIDE, prefix=""):
        return none
    height, width = shape = seen.shape
    rng = seen.rng(6)
    points = seen.coordinates[:, :COMPONENTS]
    columns = np.sqrt(np.square(points).sum(axis=0))
    isotropic = root(fit_grid_kernel(points, height, width)(grid_distances(height, width)))
    down, noise_down = _axis_root(points, shape, 0)
    right, noise_right = _axis_root(points, shape, 1)
    noise = (noise_down + noise_right) / 2
    found = np.array(_apartness(points, shape))

    def draw() -> list[tuple[float, float]]:
        white = rng.standard_normal((2, *points.shape)) * columns
        apart = down @ white[0].reshape(height, -1)
        apart = right @ apart.reshape(height, width, -1)
        apart = np.sqrt(1 - noise) * apart.reshape(points.shape) + np.sqrt(noise) * white[1]
        fields = (rng.permutation(points, axis=0), isotropic @ white[0], apart)
        return [_apartness(field, shape) for field in fields]

    def ranks(drawn: Floats) -> list[float]:
        spread = np.maximum(drawn.std(axis=0), 1e-9)
        value, nulls = (found / spread).sum(axis=1), (drawn / spread).sum(axis=2)
        return [rank(value[k], nulls[:, k]) for k in range(len(NULLS))]

    drawn, p = draw_until(draw, lambda drawn: max(ranks(drawn)), DRAWS, MOST_DRAWS)
    held, holding = _held(found[0]), _held(drawn[:, :, 0])
    nearest = int(np.argmax(np.median(holding, axis=0)))
    facts = RowsAndColumns(
        height, width, *_shares(seen.points, shape), points.shape[1], float(held),
        float(np.median(holding[:, nearest])), bool(points.shape[1] >= min(seen.points.shape)),
    )  # fmt: skip
    # No order and no isotropic field explain it: only a separable one does, which may be the codes.
    imitated = min(shape) < SHORT_SIDE and max(ranks(drawn)[:2]) <= LEVEL
    too_small = height * width < FEW_PATCHES
    unsure = "imitated" if imitated else "few_patches" if too_small else ""
    answer = verdict_of(p, enough=not unsure)
    reason = {"yes": "lone" if facts.lone else "codes", "no": "none"}.get(answer, unsure or "open")
    if answer == "yes":
        more = max(rank(found[0], null) for null in drawn[:, :, 0].T)
        # Of what the nearest null leaves, since codes cannot hold more than all.
        small = facts.held - facts.typical < LEAST_SHARE * (1 - facts.typical)
        if small and not unsure:
            answer, reason = "no", "no_more"
        elif small or more > SURELY_MORE:
            answer, reason = "cannot tell", unsure or "open"
    test = against(facts.held, holding[:, nearest], NULLS[nearest], p)
    return Answer("rows_and_columns", answer, reason, facts, test, KEYS)


def _shares(points: Floats, shape: tuple[int, int]) -> tuple[float, float]:
    """Return the shares of the variance of row code and column code."""
    rows, columns, _ = parts(points, shape)
    whole = float(np.square(points - points.mean(axis=0)).sum())
    return (
        float(np.square(rows).sum()) * shape[1] / whole,
        float(np.square(columns).sum()) * shape[0] / whole,
    )


def _apartness(points: Floats, shape: tuple[int, int]) -> tuple[float, float]:
    """Return how much more codes hold than they leave, in logarithms, and how rough that is."""
    rest = parts(points, shape)[2]
    tiny = np.finfo(np.float64).tiny
    left = max(float(np.square(rest).sum()), tiny)
    alike = float(np.vdot(rest[1:], rest[:-1]) + np.vdot(rest[:, 1:], rest[:, :-1]))
    whole = float(np.square(points - points.mean(axis=0)).sum())
    return float(np.log(max(whole, tiny) / left)), -alike / left


def _held(logs: Floats) -> Floats:
    """Return the share that codes hold from the logarithm of all over what they leave."""
    return np.asarray(1 - np.exp(-logs))


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


ROWS_AND_COLUMNS = Question(
    "rows_and_columns",
    ask,
    ("codes", "lone", "none", "no_more", "imitated", "few_patches", "open", "narrow", "large"),
)
