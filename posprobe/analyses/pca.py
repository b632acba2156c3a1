"""Principal components and effective dimensions.

Chughtai & Lau 2024 and Song & Zhong 2023 report them for GPT-2. Sinusoidal components alone prove
nothing: those of a random walk are sinusoids too (Antognini & Sohl-Dickstein 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import Result
from posprobe.arrays import Array, Positions, positions, to_numpy
from posprobe.errors import InvalidTable
from posprobe.table import Layout, PositionTable

#: Shares of variance for which the number of components is reported.
SHARES = (0.90, 0.95, 0.99)


@dataclass(frozen=True, eq=False)
class PCA(Result):
    """Singular value decomposition of the column-centred table.

    Parameters
    ----------
    scores
        ``[n, k]``: each position along each component, in the table's units.
    components
        ``[k, d]``, orthonormal rows; in each, the loading of largest magnitude is positive.
    singular_values
        ``[k]``, falling; k is the smaller of n and d.
    explained_variance_ratio
        ``[k]``: squared singular values over their sum; NaN for a constant table.
    stable_rank
        Sum of squared singular values over the largest.
    participation_ratio
        Squared sum of the eigenvalues over the sum of their squares.
    effective_rank
        Exponential of the entropy of the eigenvalue shares (Roy & Vetterli 2007 use singular
        values; with eigenvalues it is comparable with the participation ratio).
    layout, start
        Of the positions.
    undefined
        Reason why the numbers are None, or empty.
    """

    scores: NDArray[np.float64]
    components: NDArray[np.float64]
    singular_values: NDArray[np.float64]
    explained_variance_ratio: NDArray[np.float64]
    stable_rank: float | None
    participation_ratio: float | None
    effective_rank: float | None
    layout: Layout
    start: int
    undefined: str = ""

    def components_for(self, share: float) -> int | None:
        """Return how many components hold at least this share of the variance."""
        if self.undefined:
            return None
        # Rounding may keep the last sum just below 1.
        reached = np.cumsum(self.explained_variance_ratio) >= min(share, 1 - 1e-12)
        return int(np.argmax(reached)) + 1

    def summary(self) -> dict[str, Any]:
        """Return the explained variances and the effective dimensions."""
        ratios = None if self.undefined else self.explained_variance_ratio.tolist()
        numbers: dict[str, Any] = {
            "centered": "columns",
            "explained_variance_ratio": ratios,
            "top3": float(np.sum(ratios[:3])) if ratios else None,
            "stable_rank": self.stable_rank,
            "participation_ratio": self.participation_ratio,
            "effective_rank": self.effective_rank,
            **{f"components_{share:.0%}"[:-1]: self.components_for(share) for share in SHARES},
        }
        undefined = {name: self.undefined for name, value in numbers.items() if value is None}
        return numbers | {"undefined": undefined}


def pca(table: PositionTable | Positions | Array) -> PCA:
    """Compute the principal components of a table, positions being the samples.

    Parameters
    ----------
    table
        ``[n, d]``.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or has a single row.
    """
    given = positions(table)
    values, xp = given.values, given.xp
    if values.shape[0] < 2:
        raise InvalidTable(
            "one position has no principal components. Keep at least two rows with --rows A:B."
        )
    centered = values - xp.mean(values, axis=0)
    left, singular, right = xp.linalg.svd(centered, full_matrices=False)
    scores = to_numpy(left * singular).astype(np.float64)
    components = to_numpy(right).astype(np.float64)
    singular = to_numpy(singular).astype(np.float64)
    largest = np.argmax(np.abs(components), axis=1)
    signs = np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)
    scale = float(xp.max(xp.abs(values)))
    # What centring leaves of equal rows is rounding, not variance.
    varies = bool(singular[0] > 1e-13 * scale * values.shape[0])
    power = singular**2
    share = power / power.sum() if varies else np.full_like(power, np.nan)
    return PCA(
        scores=scores * signs,
        components=components * signs[:, None],
        singular_values=singular,
        explained_variance_ratio=share,
        stable_rank=float(power.sum() / power[0]) if varies else None,
        participation_ratio=float(1 / (share**2).sum()) if varies else None,
        effective_rank=_effective_rank(share) if varies else None,
        layout=given.layout,
        start=given.start,
        undefined="" if varies else "all rows are equal: there is no variance",
    )


def _effective_rank(share: NDArray[np.float64]) -> float:
    positive = share[share > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))
