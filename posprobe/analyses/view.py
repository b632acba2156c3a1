"""What all questions about a table share: each is computed on first use and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.seams import Seams
from posprobe.analyses.composition.bridging import Bridging, bridging
from posprobe.analyses.composition.grid_model import GridModel, fit_grid
from posprobe.analyses.composition.planes import RotationFit, find_rotations
from posprobe.analyses.composition.processes import Kernel, fit_kernel
from posprobe.analyses.descriptive.closeness import prepare_cloud
from posprobe.analyses.descriptive.sinusoid import BaseFit, SinusoidFit, fit_base
from posprobe.analyses.descriptive.winding import Winding, winding
from posprobe.analyses.linear import half_length, leading_coordinates, scaled_points
from posprobe.arrays import Floats
from posprobe.layouts import Grid, Layout, Sequence

#: A yes needs a p-value of at most this: with a false discovery rate of 0.05 over some seven
#: questions a single yes may stand at 0.007, three at 0.02.
MAX_YES_P = 0.02
#: Draws of each null: the least p-value, 1 / 50, is the level.
N_NULL_DRAWS = 49
#: Rows of the draws that need a factor of the kernel, which costs their cube; longer tables are
#: thinned.
MAX_DRAW_ROWS = 128
#: Walks of the table's own steps, with the table itself: so many that the least p-value, 1 / 145,
#: passes alone among the seven questions of a sequence that have one.
N_SIGNED_WALKS = 145


@dataclass(frozen=True, eq=False)
class View:
    """What all questions about a sequence share.

    Parameters
    ----------
    points
        ``[n, d]``, centred, of mean squared norm 1, or 0 for equal rows.
    seed
        Seed of all draws.
    values
        ``[n, d]``: the rows as stored.
    dtype
        Format in which they were stored.
    layout
        Layout of the rows.
    start
        Position of the first row of the whole table.
    seams
        Seams and special rows of the whole table; None of a part.
    replaced_patches
        Special patches in whose place the mean of their neighbours stands, counted from 0.
    all_rows
        ``[N, d]``: every row of the table, of which ``values`` may be a stretch.
    results
        Results that are known already, by name.
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
        """``[n, r]``: along the leading directions."""
        return leading_coordinates(self.points)

    @cached_property
    def half_length(self) -> float:
        """Distance at which the mean inner product of rows halves."""
        return half_length(self.points)

    @cached_property
    def steps(self) -> Floats:
        """``[n - 1, r]``: steps along the leading directions of the steps, which signs keep."""
        return leading_coordinates(np.diff(self.points, axis=0), 12)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel without a period that fits."""
        return fit_kernel(self.points)

    @cached_property
    def signed_walks(self) -> NDArray[np.float32]:
        """``[draws, n, r]``: the steps with random signs, added up; the first has none changed."""
        return sum_signed_steps(self.steps, 1, self.rng(1))

    @cached_property
    def base_fit(self) -> BaseFit | None:
        """The sinusoid that resembles the table most; None of fewer than two columns."""
        sinusoid_fit: SinusoidFit | None = self.results.get("sinusoid")
        points = sinusoid_fit.points if sinusoid_fit else None
        if (
            sinusoid_fit
            and points
            and len(points) == len(self)
            and sinusoid_fit.base
            and not self.replaced_patches
        ):
            return sinusoid_fit.base
        width = self.points.shape[1] // 2 * 2
        return (
            fit_base(prepare_cloud(self.points), width) if width and len(self) >= 4 else None
        )

    @cached_property
    def rotation_fit(self) -> RotationFit:
        """What goes round in the table."""
        return find_rotations(self.points, self.seed)

    @cached_property
    def grid_model(self) -> GridModel:
        """What a table of patches is made of."""
        return fit_grid(self.values, *self.shape, self.seed)

    @cached_property
    def winding(self) -> Winding:
        """Pairs of principal components that go round each other."""
        return self.results.get("winding") or winding(self.values)

    @cached_property
    def bridging(self) -> Bridging:
        """How well gaps are predicted by smooth curves and by rotations."""
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
    """Give rows length 1 as seen from their spatial median, so that no few long rows decide."""
    median = np.zeros(points.shape[1])
    for _ in range(4):  # Weiszfeld's iteration
        weights = 1 / np.maximum(np.linalg.norm(points - median, axis=1), 1e-6)
        median = weights @ points / weights.sum()
    points = points - median
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.where(norms > 1e-12, norms, 1.0))


def chance_cosine(rows: Floats) -> float:
    """Return the mean cosine of two different rows, which neighbours have in random order, too.

    Parameters
    ----------
    rows
        ``[n, d]``, of length 1, or 0 where they have no direction; two or more.
    """
    total = rows.sum(axis=0)
    return float(total @ total - np.square(rows).sum()) / (len(rows) * (len(rows) - 1))


def random_signs(n_steps: int, rng: np.random.Generator) -> Floats:
    """Draw the signs of so many steps: ``[WALKS, count]``; the first are all positive."""
    signs = rng.choice([-1.0, 1.0], size=(N_SIGNED_WALKS, n_steps))
    signs[0] = 1.0
    return np.asarray(signs)


def sum_signed_steps(
    steps: Floats, block_steps: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Add steps up, the signs of each block of them drawn at random; first as they are."""
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
        ``[n, d]``, finite; rows that are special already left out.
    seed
        Seed of all draws.
    layout
        Layout of the rows; a sequence where None.
    fields
        Further fields of `View`.
    """
    points = scaled_points(values)
    return View(points, seed, values, layout=layout or Sequence(len(values)), **fields)
