"""Slow changes of a table: whether a part is smooth or rough, and which cannot be told apart.

Smooth curves, random walks and rough changes share the lowest frequencies. Where one of them could
hold what another does at nearly the same likelihood, they are one part, with a range for each.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.mixture import Fit, Power, floor_power
from posprobe.analyses.composition.waves import Waves, component_shares, largest_share
from posprobe.arrays import Floats

#: Smallest second difference of squared distances on a smooth curve, over the first: kernels have
#: .67 at short offsets and .26 to .34 at offsets up to their length, moving averages 0.
MIN_BEND = 0.05
#: Longest mean length of kernels that may be moving averages: those of up to 16 rows look like it.
MAX_TESTED_BEND_POSITIONS = 8.0
#: Families that a smooth or a rough part may be mixed with.
MIXED_FAMILIES = ("smooth", "walk", "rough")
#: Loss of log likelihood at which a share is still likely: the bound of a 95 % interval (Wilks).
MAX_LIKELY_LOSS = 1.92
#: Loss of log likelihood at which a share is still possible: the gain by which a smooth part counts
#: as needed.
MAX_MIXED_LOSS = 10.0
#: Smallest likely share of another family at which slow changes are one part. Of 128 to 512 rows,
#: all 15 smooth curves in noise keep their name, and 45 of 46 mixtures of two families lie within
#: the ranges that are then stated.
MIN_MIXED_SHARE = 0.15


def judge_slow_families(
    power: Power,
    waves: Waves,
    weights: Floats,
    families: Mapping[str, float],
    is_rotation: NDArray[np.bool_],
) -> tuple[dict[str, float], float, dict[str, tuple[float, float]]]:
    """Tell a smooth part from a rough one, and join slow families that cannot be told apart.

    Returned are the shares of the families, the share up to which a smooth part would not be
    needed, and the ranges of the slow families; empty where all are told apart.
    """
    families, smooth_limit = dict(families), 0.0
    smooth_share = families.get("smooth", 0.0)
    if not smooth_share:
        smooth_limit = largest_share(power, waves, weights, "smooth", MAX_MIXED_LOSS)
    elif not _bends_smoothly(power, waves, weights, is_rotation):
        families["rough"] = families.get("rough", 0.0) + families.pop("smooth")
        smooth_limit = smooth_share
    slow_ranges = _find_slow_ranges(power, waves, weights, families)
    if slow_ranges:
        families["slow"] = sum(families.pop(name, 0.0) for name in slow_ranges)
    return families, smooth_limit, slow_ranges


def _bends_smoothly(
    power: Power, waves: Waves, weights: Floats, is_rotation: NDArray[np.bool_]
) -> bool:
    """Tell whether distances of rows grow faster than their offsets, as they do on a smooth curve.

    Mean squared distances grow with the square of small offsets on a smooth curve, and with the
    offset on a walk or in moving averages, however smooth kernels fit these. Three offsets up to
    the mean length of the kernels are looked at, without the rotations; noise adds the same to all.
    Kernels longer than `MAX_TESTED_BEND_POSITIONS` are not tested.
    """
    components = waves.fit.components
    is_smooth = components.has_family("smooth", "slow") & (waves.wave_indices < 0)
    n = power.n_rows
    rotation_power = components.power[:, is_rotation] @ weights[is_rotation]
    mean = floor_power(components.power @ weights)
    residual_power = power.share * (1 - rotation_power / mean)
    smooth_weights = weights[is_smooth]
    # Offset at which a kernel has fallen to .6: its length, where it is normal.
    covariance = components.covariance[:, is_smooth]
    is_below = covariance < 0.6 * covariance[0]
    lengths = np.where(is_below.any(axis=0), is_below.argmax(axis=0), n)
    # Short kernels decide how a curve bends, so that the harmonic mean is taken.
    mean_length = smooth_weights.sum() / (smooth_weights @ (1 / lengths))
    if mean_length > MAX_TESTED_BEND_POSITIONS:
        return True
    step = max(round(float(mean_length) / 3), 1)
    bins = np.arange(1, n)
    distances = [
        float(residual_power @ (1 - np.cos(np.pi * bins * k * step / n)))
        for k in (1, 2, 3)
    ]
    bend = distances[2] - 2 * distances[1] + distances[0]
    return bend >= MIN_BEND * (distances[1] - distances[0])


def _find_slow_ranges(
    power: Power, waves: Waves, weights: Floats, families: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Return the ranges of the shares of slow families that a smooth part may be mixed with.

    Families that left the fit may still hold much of what a smooth or a rough part does. Where a
    random walk is all that is needed, it is named alone: the fewest parts.
    """
    retained = [name for name in ("smooth", "rough") if families.get(name)]
    if not retained:
        return {}
    is_background = waves.wave_indices < 0
    is_slow = waves.fit.components.has_family("smooth", "slow", "rough") & is_background
    fit_shares = component_shares(power, Fit(waves.fit.components, weights))
    slow_share = sum(families[name] for name in retained)
    # What rotations hold is taken off all families alike.
    scale = min(slow_share / max(float(fit_shares[is_slow].sum()), 1e-300), 1.0)
    ranges: dict[str, tuple[float, float]] = {}
    for name in MIXED_FAMILIES:
        if families.get(name):
            continue
        likely_share = scale * largest_share(power, waves, weights, name, MAX_LIKELY_LOSS)
        if min(likely_share, slow_share) >= MIN_MIXED_SHARE:
            share = scale * largest_share(power, waves, weights, name, MAX_MIXED_LOSS)
            ranges[name] = 0.0, min(share, slow_share)
    if not ranges:
        return {}
    largest = max(high for _, high in ranges.values())
    for name in retained:
        ranges[name] = max(families[name] - largest, 0.0), slow_share
    return ranges
