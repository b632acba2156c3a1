"""Principal components and effective dimensions.

Chughtai & Lau 2024 and Song & Zhong 2023 report them for GPT-2. Sinusoidal components alone prove
nothing: those of a random walk are sinusoids too (Antognini & Sohl-Dickstein 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np

from posprobe.analyses.descriptive.similarity import sum_of_squares
from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, JsonType, Result, StoredArray, centre_rows
from posprobe.arrays import Array, Floats, Positions, namespace, positions, to_numpy
from posprobe.errors import InvalidTable
from posprobe.layouts import Layout
from posprobe.number_types import Natural, NonNegative, Reasons, Share, limits
from posprobe.tables import PositionTable

#: All components are computed up to this many multiply-adds ``n d min(n, d)``: some 20 seconds on
#: two cores for 65,536 x 1,024, and four times the table's memory; both double with the rows.
MAX_EXACT_OPERATIONS = 2**36
#: A few components come from a Gram matrix of up to this side, as its eigenvectors cost the cube of
#: the side, a few seconds here.
MAX_GRAM_SIDE = 2048
#: Leading components that are computed of a larger table: more than any measurement of such a table
#: shows.
N_LEADING_COMPONENTS = 64
#: Singular values are roots of eigenvalues where the smallest of these over the largest is at least
#: this many roundings.
MIN_EIGENVALUE_ROUNDINGS = 5e7
#: Columns of the randomised method beyond the components that it computes.
N_EXTRA_COLUMNS = 16
#: Rounds of power iteration. Where the spectrum falls, the singular values are then exact to many
#: digits; those of white noise come out up to 3 % too small.
N_POWER_ITERATIONS = 8

Method: TypeAlias = Literal["exact", "randomised"]


@dataclass(frozen=True, eq=False, repr=False)
class PCA(Result):
    """Singular value decomposition of the column-centred table.

    Of a table beyond `MAX_EXACT_OPERATIONS` the `N_LEADING_COMPONENTS` components alone are
    computed, by a randomised method. The shares of variance are exact all the same, as the variance
    of the whole needs no component; numbers that need the rest are None. Nothing is computed before
    it is asked for, since singular values alone take half the time.

    Parameters
    ----------
    values
        ``[n, d]``: the table, not centred.
    layout, start
        Layout and first of the positions.
    count
        Number of components, k: the smaller of n and d, or the number that was requested, or
        `N_LEADING_COMPONENTS`.
    decompose
        Computes singular vectors and values of the centred table: all, or so many leading ones.
    undefined
        Reason why all numbers are None, or empty.
    centered
        What is centred: the columns.
    """

    figures: ClassVar[str] = "components.plot_variance"

    values: Annotated[Array, HIDDEN]
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    count: Annotated[int, HIDDEN]
    decompose: Annotated[
        Callable[[Array, int, ModuleType], tuple[Array, Array, Array]], HIDDEN
    ]
    undefined: Annotated[str, JsonType(Reasons)] = ""
    centered: Literal["columns"] = "columns"

    @property
    def method(
        self,
    ) -> Annotated[
        Method,
        "Randomised: only the leading components are computed; their shares "
        "are of the whole variance.",
    ]:
        """How the components are computed: ``"randomised"`` gives the leading ones alone."""
        return "exact" if self.decompose is full_svd else "randomised"

    @property
    def scores(self) -> Annotated[Floats, StoredArray("pca_scores")]:
        """``[n, k]``: each position along each component, in the table's units."""
        return self._decomposed[0]

    @property
    def components(self) -> Annotated[Floats, StoredArray("pca_components")]:
        """``[k, d]``, orthonormal rows; in each, the loading of largest magnitude is positive."""
        return self._decomposed[2]

    @cached_property
    def singular_values(self) -> Floats:
        """``[k]``, falling."""
        if self.method == "exact" and "_decomposed" not in self.__dict__:
            centered, xp = self._centered
            return _singular_values(centered, xp)
        return self._decomposed[1]

    @cached_property
    def explained_variance_ratio(
        self,
    ) -> Annotated[
        Floats,
        StoredArray("pca_explained_variance_ratio"),
        JsonType(list[Share]),
        limits(minItems=1),
    ]:
        """``[k]``: squared singular values over the sum of all; NaN for a constant table."""
        power, total_power, _ = self._powers
        return np.full_like(power, np.nan) if self.undefined else power / total_power

    @property
    def stable_rank(
        self,
    ) -> Annotated[
        float | None,
        Number(
            "stable rank",
            "sum of squared singular values over the largest",
            compared=True,
        ),
    ]:
        """Sum of squared singular values over the largest."""
        power, total_power, _ = self._powers
        return None if self.undefined else total_power / float(power[0])

    @property
    def participation_ratio(
        self,
    ) -> Annotated[
        float | None,
        Number("participation ratio", "effective number of components", compared=True),
    ]:
        """Squared sum of the eigenvalues over the sum of their squares."""
        _, total_power, squares = self._powers
        return None if self.undefined else total_power**2 / squares

    @property
    def effective_rank(
        self,
    ) -> Annotated[
        float | None, Number("effective rank", "exponential of the eigenvalues' entropy")
    ]:
        """Exponential of the entropy of the eigenvalue shares.

        Roy & Vetterli 2007 use singular values; with eigenvalues it is comparable with the
        participation ratio.
        """
        if self.undefined or self.method != "exact":
            return None
        share = self.explained_variance_ratio
        positive = share[share > 0]
        return float(np.exp(-(positive * np.log(positive)).sum()))

    @property
    def top3(
        self,
    ) -> Annotated[
        NonNegative | None,
        "Share of the variance in the first three components.",
        Number(
            "first three components", "share of the variance they explain", compared=True
        ),
    ]:
        """Share of variance that the first three components explain; None of a constant table."""
        return None if self.undefined else float(self.explained_variance_ratio[:3].sum())

    def components_for(self, share: float) -> int | None:
        """Return how many components hold at least this share of the variance.

        None for a constant table, and where the leading components do not hold as much.
        """
        # Rounding may keep the last sum just below 1.
        reached = np.cumsum(self.explained_variance_ratio) >= min(share, 1 - 1e-12)
        return int(np.argmax(reached)) + 1 if reached.any() else None

    @property
    def missing_reason(self) -> str:
        """The reason why single numbers are None."""
        return f"only the {len(self.singular_values)} leading ones are computed"

    @property
    def components_90(
        self,
    ) -> Annotated[
        Natural | None, Number("components for 90 %", "of the variance", form="d")
    ]:
        """Components that hold 90 % of the variance."""
        return self.components_for(0.90)

    @property
    def components_95(
        self,
    ) -> Annotated[
        Natural | None, Number("components for 95 %", "of the variance", form="d")
    ]:
        """Components that hold 95 % of the variance."""
        return self.components_for(0.95)

    @property
    def components_99(
        self,
    ) -> Annotated[
        Natural | None, Number("components for 99 %", "of the variance", form="d")
    ]:
        """Components that hold 99 % of the variance."""
        return self.components_for(0.99)

    @property
    def _centered(self) -> tuple[Array, ModuleType]:
        xp = namespace(self.values)
        return centre_rows(self.values, xp)[0], xp

    @cached_property
    def _decomposed(self) -> tuple[Floats, Floats, Floats]:
        """Scores ``[n, k]``, singular values ``[k]`` and components ``[k, d]``."""
        centered, xp = self._centered
        u, singular_values, vt = self.decompose(centered, self.count, xp)
        scores, components = (
            to_numpy(part).astype(np.float64, copy=False)
            for part in (u * singular_values, vt)
        )
        largest = np.argmax(np.abs(components), axis=1)
        signs = np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)
        singular = to_numpy(singular_values).astype(np.float64, copy=False)
        return scores * signs, singular, components * signs[:, None]

    @cached_property
    def _powers(self) -> tuple[Floats, float, float]:
        """Eigenvalues ``[k]`` in units of the largest; the sums of all, and of their squares."""
        singular = self.singular_values
        # In units of the largest, so that no square leaves the range of the numbers.
        unit = float(singular[0]) or 1.0
        power = (singular / unit) ** 2
        if self.method == "exact" or self.undefined:
            return power, float(power.sum()), float((power**2).sum())
        centered, xp = self._centered
        scaled = centered / unit
        total_power = float(xp.sum(xp.linalg.vector_norm(scaled, axis=1) ** 2))
        return power, total_power, sum_of_squares(scaled)


def pca(table: PositionTable | Positions | Array, *, leading: int | None = None) -> PCA:
    """Compute the principal components of a table, positions being the samples.

    Parameters
    ----------
    table
        ``[n, d]``.
    leading
        Components that are enough, where they are few: they cost less than all.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or has a single row.

    Examples
    --------
    A table that moves along one line has one component:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> line = np.outer(np.arange(32.0), np.ones(4))
    >>> print(pp.pca(line).explained_variance_ratio[:2].round(3).tolist())
    [1.0, 0.0]
    >>> print(f"{pp.pca(line).stable_rank:.2f}")
    1.00
    """
    inputs = positions(table)
    values, xp = inputs.values, inputs.xp
    if values.shape[0] < 2:
        raise InvalidTable(
            "one position has no principal components. Keep at least two rows with `table[A:B]`."
        )
    varies = bool(xp.any(centre_rows(values, xp)[0] != 0))
    n, d = values.shape
    needs_few = leading is not None and 4 * leading < min(n, d)
    large = n * d * min(n, d) > MAX_EXACT_OPERATIONS
    decompose = leading_svd if needs_few or large else full_svd
    if needs_few and min(n, d) <= MAX_GRAM_SIDE:
        decompose = _leading_from_gram
    return PCA(
        values=values,
        layout=inputs.layout,
        start=inputs.start,
        count=(leading or N_LEADING_COMPONENTS) if needs_few or large else min(n, d),
        decompose=decompose,
        undefined="" if varies else "all rows are equal: there is no variance",
    )


def resolve_components(inputs: Positions, known_pca: PCA | None) -> PCA:
    """Return a table's principal components: those that are known already, or new ones.

    Raises
    ------
    InvalidTable
        If the known ones are of a table of other length.
    """
    components = pca(inputs) if known_pca is None else known_pca
    # Who asks here needs the scores, and singular values come with them.
    if len(components.scores) != inputs.values.shape[0]:
        raise InvalidTable(
            f"the principal components are of {len(components.scores)} "
            f"rows, the table has {inputs.values.shape[0]}."
        )
    return components


def _singular_values(centered: Array, xp: ModuleType) -> Floats:
    """Return the singular values ``[k]`` of centred rows ``[n, d]``, falling.

    As roots of eigenvalues, in a third of the time, where all of those are known to nine digits:
    the error of each is about the rounding of the largest (Golub & Van Loan 2013, section 8.6).
    """
    n, d = centered.shape
    unit = float(xp.abs(centered).max())
    n_values = min(
        d, n - 1
    )  # rows that add up to 0 have a direction less than there are rows
    if unit > 0 and n_values:
        scaled = centered / unit
        squares = xp.matmul(scaled.T, scaled) if d < n else xp.matmul(scaled, scaled.T)
        eigenvalues = to_numpy(xp.linalg.eigvalsh(squares)).astype(
            np.float64, copy=False
        )[::-1]
        if (
            eigenvalues[n_values - 1]
            > MIN_EIGENVALUE_ROUNDINGS * xp.finfo(centered.dtype).eps * eigenvalues[0]
        ):
            values = np.zeros(len(eigenvalues))
            values[:n_values] = np.sqrt(eigenvalues[:n_values]) * unit
            return values
    return to_numpy(xp.linalg.svdvals(centered)).astype(np.float64, copy=False)


def full_svd(matrix: Array, _: int, xp: ModuleType) -> tuple[Array, Array, Array]:
    """Decompose a matrix ``[n, d]``, as `leading_svd` does its leading part."""
    left, values, right = xp.linalg.svd(matrix, full_matrices=False)
    return left, values, right


def leading_svd(matrix: Array, count: int, xp: ModuleType) -> tuple[Array, Array, Array]:
    """Approximate the leading part of a singular value decomposition.

    Randomised subspace iteration from a fixed start (Halko, Martinsson & Tropp 2011, algorithm 4.4
    with 5.1), `N_EXTRA_COLUMNS` columns wider than asked for and with `N_POWER_ITERATIONS` of power
    iteration.

    Parameters
    ----------
    matrix
        ``[n, d]``.
    count
        Number of singular values, k.
    xp
        Array namespace of the values.

    Returns
    -------
    tuple
        Left vectors ``[n, k]``, values ``[k]`` and right vectors ``[k, d]``.
    """
    n, d = matrix.shape
    wide = min(count + N_EXTRA_COLUMNS, n, d)
    start_basis = np.random.default_rng(0).standard_normal((d, wide))
    start = xp.asarray(start_basis, dtype=matrix.dtype, device=matrix.device)
    basis, _ = xp.linalg.qr(xp.matmul(matrix, start))
    for _ in range(N_POWER_ITERATIONS):
        column_basis, _ = xp.linalg.qr(xp.matmul(matrix.T, basis))
        basis, _ = xp.linalg.qr(xp.matmul(matrix, column_basis))
    left, values, right = xp.linalg.svd(xp.matmul(basis.T, matrix), full_matrices=False)
    return xp.matmul(basis, left)[:, :count], values[:count], right[:count, :]


def _leading_from_gram(
    matrix: Array, count: int, xp: ModuleType
) -> tuple[Array, Array, Array]:
    """Return the leading part of a decomposition from the smaller Gram matrix.

    The squares lose half of the digits of the smallest singular values, and none of the leading.
    """
    n, d = matrix.shape
    wide = d > n
    rows = matrix.T if wide else matrix
    squares, vectors = xp.linalg.eigh(xp.matmul(rows.T, rows))
    values = xp.sqrt(xp.clip(xp.flip(squares, axis=0)[:count], 0.0, None))
    right = xp.flip(vectors, axis=1)[:, :count]
    left = xp.matmul(rows, right) / xp.where(values > 0, values, 1.0)
    return (right, values, left.T) if wide else (left, values, right.T)
