"""How the variance of a table is shared out among its rotations, humps and families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from posprobe.analyses.composition.mixture import Fit, Power, cosine_power, floor_power
from posprobe.analyses.composition.paths import project_path
from posprobe.analyses.composition.waves import (
    MIN_FAMILY_SHARE,
    FamilyTest,
    Wave,
    Waves,
    component_shares,
    prune_families,
)
from posprobe.arrays import Floats


def share_variance(
    points: Floats,
    power: Power,
    waves: Waves,
    members: Sequence[Sequence[int]],
    circle_planes: Mapping[int, Floats],
) -> tuple[Floats, dict[str, float], Fit, dict[str, FamilyTest]]:
    """Share out the variance among rotations, humps and families.

    Planes whose pace changes are taken off as circles with the phases that they have; other waves
    hold what the model gives them. All else is shared out among the families as the model has them
    in what the circles leave of each bin. Waves that keep their phase for less than a period belong
    to the family around them. The shares of waves and families add up to 1.

    Parameters
    ----------
    points, power
        Centred rows ``[n, d]`` and their power.
    waves
        Waves of the table, with their fit.
    members
        Indices of the waves that are pieces of each rotation and hump.
    circle_planes
        Planes ``[2, d]`` of the rotations whose pace changes, by their index in ``members``.

    Returns
    -------
    tuple
        Shares of the rotations and humps, and of the families; the fit; the test of each family.
    """
    components = waves.fit.components
    # The last element is for what belongs to no wave.
    owner_by_wave = np.full(len(waves.waves) + 1, -1)
    for k, pieces in enumerate(members):
        owner_by_wave[pieces] = k
    owners = owner_by_wave[waves.wave_indices]
    shares = np.zeros(len(members))
    weights, family_tests = prune_families(power, waves)
    fit = Fit(components, weights)
    is_owned = owners >= 0
    np.add.at(shares, owners[is_owned], component_shares(power, fit)[is_owned])
    circles = list(circle_planes)
    residual_power = power.share
    if circles:
        shares[circles], residual_power = _circle_shares(
            points, list(circle_planes.values()), power.total
        )
    weights = np.where(np.isin(owners, circles), 0.0, fit.weights)
    mean = floor_power(components.power @ weights)
    family_shares = (residual_power / mean) @ (components.power * weights)
    shares /= max(float(shares.sum()), 1.0)  # what two waves share counts once
    remaining, unowned = 1 - float(shares.sum()), float(family_shares[~is_owned].sum())
    families = {"noise": remaining}
    if unowned > 0:
        free_shares = np.where(is_owned, 0.0, family_shares * (remaining / unowned))
        families = _sum_families(waves, weights, free_shares)
    return shares, families, fit, family_tests


def _sum_families(waves: Waves, weights: Floats, shares: Floats) -> dict[str, float]:
    """Return the share of each family, of shares ``[m]`` of components; small ones are noise."""
    wave_families = [_surrounding_family(waves, weights, wave) for wave in waves.waves]
    families: dict[str, float] = {}
    for wave, family, share in zip(
        waves.wave_indices, waves.fit.components.family, shares.tolist(), strict=True
    ):
        name = wave_families[wave] if wave >= 0 else str(family)
        name = "smooth" if name == "slow" else name
        if share > 0:
            families[name] = families.get(name, 0.0) + share
    small = [name for name, share in families.items() if share < MIN_FAMILY_SHARE]
    for name in small:
        if name != "noise":
            families["noise"] = families.get("noise", 0.0) + families.pop(name)
    return families


def _surrounding_family(waves: Waves, weights: Floats, wave: Wave) -> str:
    """Return which of smooth and rough has more power at the frequency of a wave."""
    components = waves.fit.components
    middle = min(max(round(2 * wave.turns) - 1, 0), len(components.power) - 1)
    power = np.where(waves.wave_indices < 0, components.power[middle] * weights, 0.0)
    smooth_power, rough_power = (
        float(power[components.has_family(*families)].sum())
        for families in (("smooth", "slow"), ("rough",))
    )
    return "smooth" if smooth_power > rough_power else "rough"


def _circle_shares(
    points: Floats, planes: Sequence[Floats], total: float
) -> tuple[list[float], Floats]:
    """Return the share of each plane's circle, and the power of what all circles leave."""
    phase = np.angle([project_path(points, plane) for plane in planes])
    circles = np.stack([np.cos(phase), np.sin(phase)], axis=-1)  # [k, n, 2]
    circles -= circles.mean(axis=1, keepdims=True)
    basis = np.concatenate(list(circles), axis=1)
    coefficients = np.linalg.lstsq(basis, points, rcond=None)[0]
    fitted = basis @ coefficients
    terms = [circle @ coefficients[2 * k : 2 * k + 2] for k, circle in enumerate(circles)]
    shares = [float(np.vdot(term, fitted)) / total for term in terms]
    return shares, cosine_power(points - fitted).share
