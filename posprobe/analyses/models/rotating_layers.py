"""Whether a layer turns its queries and keys, from the norms of their rows alone.

Without rotation the dimensions of a head are exchangeable: independent initialisation and AdamW
treat them alike, so none has a size of its own in all heads. Rotation gives each pair a frequency,
and with it a size. Both tests are this project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from posprobe.analyses.resampling import count_p_value
from posprobe.arrays import Floats
from posprobe.number_types import Count, NonNegative, Share

#: Random exchanges of dimensions: p = 0.05 is known to 0.007, and 0.001 is the smallest p, so that
#: a contradiction can be told of up to fifty layers.
N_EXCHANGES = 999
#: Fewer groups of heads that share a key leave too little to compare between heads.
MIN_HEAD_GROUPS = 3
#: Fewer rotated dimensions have too few arrangements into pairs: eight have 1,260.
MIN_PAIRED_DIMENSIONS = 8
#: A layer is called rotating up to this p.
MAX_ROTATING_P = 0.05

#: What is compared: the sizes of dimensions between heads, or those of pairs and of their
#: neighbours within the mean head.
RotationEvidence: TypeAlias = Literal["heads", "pairs"]
#: Reason why a layer has no test: its weights cannot be read; or a row is 0 or not finite, or fewer
#: than eight columns of a head rotate.
MissingTest: TypeAlias = Literal["unreadable", "undefined"]


@dataclass(frozen=True)
class RotationTest:
    """Test of one layer against exchangeable dimensions.

    Parameters
    ----------
    evidence
        ``heads``: dimensions are exchanged within heads. ``pairs``: they are exchanged in all heads
        alike, where heads share a norm of queries and keys, or are few.
    ratio
        Of ``heads``, the variance over dimensions of the mean log norm of rows; of ``pairs``, the
        squared difference of this mean between members of a pair and between neighbouring pairs.
        Over its mean when dimensions are exchanged: ``heads`` of a layer that rotates are above 1,
        ``pairs`` below.
    p
        Share of exchanges in which it is as far from 1.
    groups
        Groups of heads that share a key.
    """

    evidence: RotationEvidence
    ratio: NonNegative
    p: Share
    groups: Count

    @property
    def rotates(self) -> bool | None:
        """True if dimensions differ; None if the layer may rotate or not."""
        return True if self.p <= MAX_ROTATING_P else None


@dataclass(frozen=True)
class LayerRotation:
    """Whether one layer rotates, as declared and as its weights show.

    Parameters
    ----------
    layer
        Number of the layer.
    declared
        Whether the configuration says that it rotates.
    test
        Evidence from the norms of its rows; None where there is none.
    missing
        Reason why there is no test.
    """

    layer: Count
    declared: bool
    test: RotationTest | None
    missing: MissingTest | None = None


def find_contradictions(rotations: Sequence[LayerRotation]) -> tuple[int, ...]:
    """Return the layers that rotate by their weights, and do not by the configuration.

    Of all layers that are not to rotate, one is named by chance in at most 5 % of models.
    """
    undeclared = [rotation for rotation in rotations if not rotation.declared]
    return tuple(
        rotation.layer
        for rotation in undeclared
        if rotation.test and rotation.test.p <= MAX_ROTATING_P / len(undeclared)
    )


def rotation_test(
    query_norms: Floats,
    key_norms: Floats,
    *,
    rotated: int | None = None,
    has_shared_norm: bool = False,
    seed: int = 0,
) -> RotationTest | None:
    """Test whether the dimensions of a layer's heads have sizes of their own.

    A row of a query and the same row of its key are trained together, without rotation too, so that
    dimensions are exchanged alike in all heads that share a key. A norm of queries and keys that
    all heads share couples all rows of a dimension: then, and where heads are few, dimensions are
    exchanged in all heads alike. Rotation is seen by members of a pair, and pairs of neighbouring
    frequency, that have like sizes. Pairs are taken as half a head apart and as neighbours, and the
    better of both counts, in the exchanges as well.

    Parameters
    ----------
    query_norms, key_norms
        ``[heads, head_dim]``: norms of the rows; queries of a group share a key.
    rotated
        Number of leading dimensions that may rotate; None for all.
    has_shared_norm
        Whether heads share a learned norm of queries and keys.
    seed
        Seed of the exchanges.

    Returns
    -------
    RotationTest
        None if a norm is 0 or not finite, or fewer than eight dimensions may rotate.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> plain = np.exp(0.1 * rng.normal(size=(8, 16)))
    >>> profile = np.exp(np.tile(np.linspace(0, 1, 8), 2))
    >>> rotation_test(plain * profile, plain[::-1] * profile).rotates
    True
    >>> rotation_test(plain * profile, plain * profile, has_shared_norm=True).rotates
    True
    """
    norms = np.concatenate([query_norms, key_norms])
    rotated = (norms.shape[1] if rotated is None else rotated) // 2 * 2
    is_measurable = np.isfinite(norms).all() and norms.min(initial=1.0) > 0
    if not is_measurable or rotated < MIN_PAIRED_DIMENSIONS or not len(key_norms):
        return None
    logs = np.log(norms)
    logs -= logs.mean(axis=1, keepdims=True)
    n_groups, head_dim = key_norms.shape
    rng = np.random.default_rng(seed)
    is_grouped = len(query_norms) % n_groups == 0
    if has_shared_norm or n_groups < MIN_HEAD_GROUPS or not is_grouped:
        sizes = logs[:, :rotated].mean(axis=0)
        exchanged_sizes = rng.permuted(np.tile(sizes, (N_EXCHANGES, 1)), axis=1)
        ratio, p = _compare(-_pair_roughness(exchanged_sizes), -_pair_roughness(sizes))
        return RotationTest("pairs", ratio, p, n_groups)
    queries = logs[: len(query_norms)].reshape(n_groups, -1, head_dim)
    group_sums = queries.sum(axis=1) + logs[len(query_norms) :]
    variances = [
        (rng.permuted(group_sums, axis=1).sum(axis=0) ** 2).sum()
        for _ in range(N_EXCHANGES)
    ]
    variance = (group_sums.sum(axis=0) ** 2).sum()
    return RotationTest("heads", *_compare(np.array(variances), variance), n_groups)


def _compare(exchanged: Floats, statistic: Floats) -> tuple[float, float]:
    """Return a statistic over its mean when exchanged, and the share of exchanges as large."""
    mean = float(exchanged.mean())
    # Equal statistics are equal up to the order of a sum.
    n_as_large = int((exchanged >= statistic - 1e-12 * np.abs(statistic)).sum())
    ratio = float(statistic) / mean if mean else 1.0
    return ratio, count_p_value(n_as_large, len(exchanged))


def _pair_roughness(sizes: Floats) -> Floats:
    """Return how unlike members of pairs and neighbouring pairs are, in the smoother pair order.

    Parameters
    ----------
    sizes
        ``[..., rotated]``.
    """
    shape, n_pairs = sizes.shape[:-1], sizes.shape[-1] // 2
    pair_orders = (
        sizes.reshape(*shape, 2, n_pairs),
        sizes.reshape(*shape, n_pairs, 2).swapaxes(-1, -2),
    )
    roughness = [
        (np.diff(members, axis=-2) ** 2).sum(axis=(-2, -1))
        + (np.diff(members.mean(axis=-2), axis=-1) ** 2).sum(axis=-1)
        for members in pair_orders
    ]
    return np.asarray(np.minimum(*roughness))
