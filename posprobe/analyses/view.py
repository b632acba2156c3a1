"""Hold the intermediate results that questions about a table share, computed on first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.seams import Seams
from posprobe.analyses.composition.bridging import Bridging, bridging
from posprobe.analyses.composition.formulas import apply_formula
from posprobe.analyses.composition.grid_model import GridModel, fit_grid
from posprobe.analyses.composition.planes import RotationFit, find_rotations
from posprobe.analyses.composition.processes import Kernel, fit_kernel
from posprobe.analyses.descriptive.closeness import prepare_cloud
from posprobe.analyses.descriptive.sinusoid import BaseFit, SinusoidFit, fit_base
from posprobe.analyses.descriptive.winding import Winding, winding
from posprobe.analyses.linear import half_length, leading_coordinates, scaled_points
from posprobe.arrays import Floats
from posprobe.encodings.recognise import Formula, find_formula
from posprobe.layouts import Grid, Layout, Sequence

#: With this many draws of each null model the smallest p-value, 1 / 50, is the level.
N_NULL_DRAWS = 49
#: Draws that need a factor of the kernel have at most this many rows, because the factor costs
#: their cube. Longer tables are thinned.
MAX_DRAW_ROWS = 128
#: This many random walks are made of the table's steps, the table itself among them. The smallest
#: p-value, 1 / 145, suffices for a single yes among the seven questions of a sequence with one.
N_SIGNED_WALKS = 145


@dataclass(frozen=True, eq=False)
class View:
    """A table as the questions see it, with the intermediate results that they share.

    Parameters
    ----------
    points
        ``[n, d]``, centred, of mean squared norm 1, or 0 for equal rows.
    seed
        Seed of all draws.
    values
        ``[n, d]``, rows as stored.
    dtype
        Stored format of the values.
    layout
        Layout of the rows.
    start
        Position of the first row of the whole table.
    seams
        Seams and outlier rows of the whole table; None for a view of a stretch.
    replaced_patches
        Outlier patches that are replaced by the mean of their neighbours, as rows from 0.
    all_rows
        ``[N, d]``, all rows of the table, of which ``values`` may be a stretch.
    results
        Results that were computed before, by name.
    """

    points: Floats
    seed: int
    values: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    dtype: str = "F32"
    layout: Layout = field(default_factory=lambda: Sequence(0))
    start: int = 0
    seams: Seams | None = None
    replaced_patches: tuple[int, ...] = ()
    all_rows: Floats | None = None
    results: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def is_constant(self) -> bool:
        """Whether all rows are equal."""
        return not self.points.any()

    @cached_property
    def coordinates(self) -> Floats:
        """The points along their leading directions, ``[n, r]``."""
        return leading_coordinates(self.points)

    @cached_property
    def half_length(self) -> float:
        """Distance at which the mean inner product of rows halves."""
        return half_length(self.points)

    @cached_property
    def steps(self) -> Floats:
        """Steps along their leading directions, which signs do not change, ``[n - 1, r]``."""
        return leading_coordinates(np.diff(self.points, axis=0), 12)

    @cached_property
    def kernel(self) -> Kernel:
        """The fitted kernel without a period."""
        return fit_kernel(self.points)

    @cached_property
    def signed_walks(self) -> NDArray[np.float32]:
        """Sums of the steps with random signs, ``[draws, n, r]``; the first are unchanged."""
        return sum_signed_steps(self.steps, 1, self.rng(1))

    @cached_property
    def base_fit(self) -> BaseFit | None:
        """The base of the most similar sinusoid; None for fewer than two columns or four rows."""
        sinusoid_fit: SinusoidFit | None = self.results.get("sinusoid")
        if sinusoid_fit and sinusoid_fit.base and not self.replaced_patches:
            points = sinusoid_fit.points
            if points and len(points) == len(self):
                return sinusoid_fit.base
        width = self.points.shape[1] // 2 * 2
        if not width or len(self) < 4:
            return None
        return fit_base(prepare_cloud(self.points), width)

    @cached_property
    def formula(self) -> Formula | None:
        """The formula whose columns the table has, maybe up to a factor and a little noise."""
        return find_formula(self.values, self.layout, self.dtype)

    @cached_property
    def rotation_fit(self) -> RotationFit:
        """The fitted waves and rotations of the table, or those of the formula it follows."""
        n, dim = self.points.shape
        return apply_formula(
            find_rotations(self.points, self.seed),
            self.formula,
            self.base_fit,
            (n, dim),
        )

    @cached_property
    def null_offsets(self) -> Floats:
        """Covariance by offset of random tables like this one, but without rotations, ``[n]``."""
        offsets = self.rotation_fit.null_offsets
        return offsets if offsets.any() else self.kernel.by_offset

    @cached_property
    def grid_model(self) -> GridModel:
        """The additive model of a table of patches."""
        return fit_grid(self.values, *self.shape, self.seed)

    @cached_property
    def winding(self) -> Winding:
        """Pairs of principal components that turn about their centre."""
        return self.results.get("winding") or winding(self.values)

    @cached_property
    def bridging(self) -> Bridging:
        """The errors of smooth curves and of rotations in predicting gaps."""
        return self.results.get("bridging") or bridging(
            self.values, model=self.rotation_fit.model
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of a grid."""
        assert isinstance(self.layout, Grid)  # noqa: S101 - grids alone have these questions
        return self.layout.height, self.layout.width

    def rng(self, question: int) -> np.random.Generator:
        """Return the source of randomness of one question."""
        return np.random.default_rng([self.seed, question])


def normalise_rows(points: Floats) -> Floats:
    """Scale rows to length 1 about their spatial median, so that a few long rows do not decide."""
    median = np.zeros(points.shape[1])
    for _ in range(4):  # Weiszfeld's iteration
        weights = 1 / np.maximum(np.linalg.norm(points - median, axis=1), 1e-6)
        median = weights @ points / weights.sum()
    points = points - median
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.where(norms > 1e-12, norms, 1.0))


def chance_cosine(rows: Floats) -> float:
    """Return the mean cosine of two different rows: that of neighbours in random order.

    Parameters
    ----------
    rows
        ``[n, d]``, two or more rows of length 1, or 0 for rows without a direction.
    """
    total = rows.sum(axis=0)
    return float(total @ total - np.square(rows).sum()) / (len(rows) * (len(rows) - 1))


def random_signs(n_steps: int, rng: np.random.Generator) -> Floats:
    """Draw the signs of steps, ``[N_SIGNED_WALKS, n_steps]``; the first are all positive."""
    signs = rng.choice([-1.0, 1.0], size=(N_SIGNED_WALKS, n_steps))
    signs[0] = 1.0
    return np.asarray(signs)


def sum_signed_steps(
    steps: Floats, block_steps: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Sum steps with a random sign for each block of them; the first sums have no sign changed."""
    n_steps = len(steps)
    signs = random_signs(-(-n_steps // block_steps), rng)
    step_signs = np.repeat(signs, block_steps, axis=1)[:, :n_steps].astype(np.float32)
    walks = np.zeros((len(signs), n_steps + 1, steps.shape[1]), dtype=np.float32)
    np.cumsum(step_signs[:, :, None] * steps.astype(np.float32), axis=1, out=walks[:, 1:])
    return walks


def view(
    values: Floats, *, seed: int = 0, layout: Layout | None = None, **fields: Any
) -> View:
    """Prepare a table for questions.

    Parameters
    ----------
    values
        ``[n, d]``, finite, without outlier rows.
    seed
        Seed of all draws.
    layout
        Layout of the rows; a sequence if None.
    fields
        Further fields of `View`.
    """
    points = scaled_points(values)
    return View(points, seed, values, layout=layout or Sequence(len(values)), **fields)
