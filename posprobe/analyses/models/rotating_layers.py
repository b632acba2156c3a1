"""Whether a layer turns its queries and keys, from the norms of their rows alone.

Without rotation the dimensions of a head are exchangeable: independent initialisation and AdamW
treat them alike, so none has a size of its own in all heads. Rotation gives each pair a frequency,
and with it a size. The test is this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posprobe.arrays import Floats

#: Random exchanges of dimensions, from which p = 0.05 is known to 0.01.
N_EXCHANGES = 499
#: Fewer groups of heads that share a key leave too little to compare.
MIN_HEAD_GROUPS = 3
#: Fewer dimensions have too few exchanges.
MIN_EXCHANGED_DIMENSIONS = 4
#: A layer is called rotating up to this p.
MAX_ROTATING_P = 0.05


@dataclass(frozen=True)
class RotationTest:
    """Test of one layer against exchangeable dimensions.

    Parameters
    ----------
    ratio
        Variance over dimensions of the mean log norm of rows, over its mean when dimensions are
        exchanged within heads.
    p
        Share of exchanges in which the variance is as large.
    groups
        Groups of heads that share a key.
    """

    ratio: float
    p: float
    groups: int

    @property
    def rotates(self) -> bool | None:
        """True if dimensions differ; None if the layer may rotate or not."""
        return True if self.p <= MAX_ROTATING_P else None


def rotation_test(
    query_norms: Floats, key_norms: Floats, seed: int = 0
) -> RotationTest | None:
    """Test whether the dimensions of a layer's heads have sizes of their own.

    A row of a query and the same row of its key are trained together, without rotation too, so that
    dimensions are exchanged alike in all heads that share a key. Norms of shared weights, such as a
    norm of queries that all heads have in common, make dimensions differ without rotation.

    Parameters
    ----------
    query_norms, key_norms
        ``[heads, head_dim]``: norms of the rows; queries of a group share a key.
    seed
        Seed of the exchanges.

    Returns
    -------
    RotationTest
        None with fewer than three groups or four dimensions, or if a norm is 0 or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> plain = np.exp(0.1 * rng.normal(size=(8, 16)))
    >>> profile = np.exp(np.linspace(0, 1, 16))
    >>> rotation_test(plain * profile, plain[::-1] * profile).rotates
    True
    """
    norms = np.concatenate([query_norms, key_norms])
    n_groups, head_dim = key_norms.shape
    is_measurable = np.isfinite(norms).all() and norms.min(initial=1.0) > 0
    is_grouped = n_groups > 0 and len(query_norms) % n_groups == 0
    has_enough = n_groups >= MIN_HEAD_GROUPS and head_dim >= MIN_EXCHANGED_DIMENSIONS
    if not (is_measurable and is_grouped and has_enough):
        return None
    logs = np.log(norms)
    logs -= logs.mean(axis=1, keepdims=True)
    queries = logs[: len(query_norms)].reshape(n_groups, -1, head_dim)
    group_sums = queries.sum(axis=1) + logs[len(query_norms) :]
    variance = float((group_sums.sum(axis=0) ** 2).sum())
    rng = np.random.default_rng(seed)
    exchanged = np.array(
        [
            (rng.permuted(group_sums, axis=1).sum(axis=0) ** 2).sum()
            for _ in range(N_EXCHANGES)
        ]
    )
    # Equal variances are equal up to the order of a sum.
    n_as_large = int((exchanged >= variance * (1 - 1e-12)).sum())
    mean_variance = float(exchanged.mean())
    ratio = variance / mean_variance if mean_variance else 1.0
    return RotationTest(ratio, (1 + n_as_large) / (1 + N_EXCHANGES), n_groups)
