"""Waves in a table's spectrum: lines of fixed period, and humps whose phase follows none.

The spectrum of everything without a period is fitted first
(`mixture` beside this module). What stands out of it is found by score tests, against the
strongest of the same tests in tables drawn from that fit; each wave found joins the fit before the
next is looked for.

How far a fit may be trusted is told by spectra that are drawn from it, part by part, and fitted
again from the same start: how much further the table is from its fit than they are from theirs,
and how far their shares are from what was put into them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.mixture import (
    N_UPDATES,
    Bands,
    Components,
    Fit,
    Power,
    dictionary,
    drawn_powers,
    fit,
    floored,
    joined,
    likelihood,
    stationary,
    updated,
)
from posprobe.analyses.composition.wave_scores import (
    LINE_GRID_STEP_TURNS,
    MAX_LINE_P,
    MIN_LINE_SPACING_TURNS,
    MIN_LINE_TURNS,
    MIN_SCORED_SHARE,
    bar,
    hump_covariance,
    hump_scores,
    line_grid,
    line_scores,
    tail,
    transformed,
)
from posprobe.analyses.linear import toeplitz
from posprobe.arrays import Floats

#: Fewest rows of which waves are told: in 14, waves of three turns are found from a tenth of a
#: smooth curve on, and one is made up in 1 of 720 tables without any.
MIN_WAVE_ROWS = 14
#: Tables drawn for the bars, of which the law of the largest needs mean and deviation alone, and
#: chance that noise passes as a hump of any length: a hump is told as no rotation yet.
N_THRESHOLD_DRAWS = 59
MAX_HUMP_P = 0.01
#: Most waves that are looked for: trained tables are found in five pieces or fewer.
MAX_WAVES = 24
#: Log likelihood by which a hump must beat the best line nearby (two lines two turns apart are then
#: found as lines in 40 of 40 tables), and by which a line must beat the humps at its place, beyond
#: what its phases in parts of the table cost it.
MIN_HUMP_LOG_LIKELIHOOD_GAIN = 10.0
MIN_LINE_LOG_LIKELIHOOD_GAIN = 2.5
#: The phases of a line, in as many parts of the table, differ by about a quarter of a radian: the
#: concentration of von Mises' distribution.
MAX_PHASE_SECTIONS = 8
LINE_PHASE_CONCENTRATION = 16.0
#: Share of a band's variance that a plane of its own has at least (planes of trained tables have
#: .92 to .99, narrow-band noise in 64 columns .2 to .7), and periods on both sides of those of its
#: waves that a band takes in.
MIN_PLANE_SHARE = 0.8
BAND_MARGIN_RATIO = 1.2


@dataclass(frozen=True)
class Wave:
    """A wave in the spectrum.

    Parameters
    ----------
    turns
        Over the table.
    lengths
        Of the envelopes that a hump is fitted with, in positions, the one that it was found with
        first; none of a line.
    """

    turns: float
    lengths: tuple[float, ...] = ()

    @property
    def line(self) -> bool:
        """Whether its phase is kept."""
        return not self.lengths


@dataclass(frozen=True, eq=False)
class Waves:
    """The waves of a table and the fit that they are part of.

    Parameters
    ----------
    waves
        In the order of their components, which follow those of the dictionary.
    fit
        Of everything.
    member
        ``[m]``: the wave that a component belongs to; -1 of those without a period.
    bands
        In which bins were taken together.
    """

    waves: tuple[Wave, ...]
    fit: Fit
    member: NDArray[np.intp]
    bands: Bands


@dataclass(frozen=True, eq=False)
class Bars:
    """What waves are held against, from tables drawn of a fit without any.

    Parameters
    ----------
    line
        Score of a line.
    humps
        Of humps, by length.
    p
        How likely the strongest line of such a table scores as high as that of this one.
    turns, score
        Of the strongest line of this table, and its score.
    largest
        ``[r]``: the same score of each draw.
    unit
        ``[t]``: score of a share of 1, for lines of the turns that are looked at.
    background
        ``[n - 1]``: mean power of each bin in the fit without any.
    """

    line: float
    humps: tuple[float, ...]
    p: float
    turns: float
    score: float
    largest: Floats
    unit: Floats
    background: Floats

    def share(self, score: float | Floats, turns: float) -> Any:
        """Return the share of the variance that a line of so many turns scores with."""
        at = round((turns - MIN_LINE_TURNS) / LINE_GRID_STEP_TURNS)
        return score / self.unit[min(max(at, 0), len(self.unit) - 1)]

    @property
    def hidden(self) -> float:
        """Share at which a line passes, at all but a tenth of the periods."""
        return float(np.quantile(self.line / self.unit, 0.9).clip(MIN_SCORED_SHARE, 1.0))


def lines_power(points: Floats, turns: Sequence[float]) -> tuple[Floats, Floats]:
    """Fit waves of fixed period jointly; return the power of each ``[n - 1, k]``, and coefficients.

    Phases count: averaged over them, lines in a walk would be taken for humps.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    turns
        Of each wave.

    Returns
    -------
    tuple
        Power scaled to add up to 1, and ``[k, 2, d]``: cosine and sine.
    """
    n = len(points)
    angle = 2 * np.pi * np.outer(np.arange(n), turns) / n
    basis = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    basis -= basis.mean(axis=0)
    coefficients = np.linalg.lstsq(basis, points, rcond=None)[0]
    count = len(turns)
    both = np.stack([coefficients[:count], coefficients[count:]], axis=1)
    bins = np.arange(1, n, dtype=np.float64)[:, None]
    waves = transformed(np.asarray(turns), bins, n)
    one, other = waves.real, waves.imag
    product = np.einsum("kad,kbd->kab", both, both)
    found = (
        np.square(one) * product[:, 0, 0]
        + np.square(other) * product[:, 1, 1]
        + 2 * one * other * product[:, 0, 1]
    )
    return np.maximum(found, 0.0) / np.maximum(found.sum(axis=0), 1e-300), both


def _found_hump(turns: float, length: float, n: int) -> Wave:
    if length >= n / 8:
        return Wave(
            turns, (length, *(each for each in (n / 2, n / 4, n / 8, n / 16) if each != length))
        )
    return Wave(turns, (length, 2 * length, length / 2))


def _wave_components(wave: Wave, n: int) -> Components:
    kinds = ("normal", "exponential", "recursive")
    covariance = [
        hump_covariance(n, wave.turns, length, kind) for length in wave.lengths for kind in kinds
    ]
    return stationary(["hump"] * len(covariance), np.hstack(covariance))


def together(
    power: Power, points: Floats, waves: Sequence[Wave], start: Floats | None = None
) -> Waves:
    """Fit everything: the dictionary, and the waves.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    start
        ``[m]``: weights of the first components to begin with.
    """
    n = power.rows
    base = dictionary(n)
    parts, member, apart = [base], [-1] * len(base.family), []
    for k, wave in enumerate(waves):
        if not wave.line:
            parts.append(_wave_components(wave, n))
            member += [k] * len(parts[-1].family)
            apart.append((2 * wave.turns - 1, n / (np.pi * wave.lengths[0]) + 5))
    lines = [k for k, wave in enumerate(waves) if wave.line]
    if lines:
        shape, _ = lines_power(points, [waves[k].turns for k in lines])
        parts.append(Components(("line wave",) * len(lines), shape, np.zeros((n, len(lines)))))
        member += lines
        apart += [(2 * waves[k].turns - 1, 5.0) for k in lines]
    components = joined(parts)
    weights = np.full(len(member), 1e-3)
    if start is not None:
        known = min(len(start), len(base.family))
        weights[:known] = start[:known]
    else:
        weights[:] = 1 / len(member)
    bands = Bands.of(n - 1, apart)
    found = fit(power.share, power.columns, components, bands, weights)
    return Waves(tuple(waves), found, np.array(member), bands)


def fitness(power: Power, found: Waves, bands: Bands) -> float:
    """Return the log likelihood of a fit, in bands that may be those of another."""
    free = bands.mean(power.columns) * bands.size
    return likelihood(bands.mean(power.share), free, floored(bands.mean(found.fit.mean)))


def _refined(points: Floats, turns: float, others: Sequence[float]) -> float:
    """Return the turns within .4 of those given at which a wave explains most, beside others."""
    n = len(points)
    rest = points
    if others:
        angle = 2 * np.pi * np.outer(np.arange(n), others) / n
        basis = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        rest = points - basis @ np.linalg.lstsq(basis, points, rcond=None)[0]
    tried = turns + np.linspace(-0.4, 0.4, 33)
    wave = np.exp(2j * np.pi * np.outer(tried, np.arange(n)) / n)
    wave -= wave.mean(axis=1, keepdims=True)
    cosine, sine = wave.real @ rest, wave.imag @ rest
    # Least squares: over few turns cosine and sine are neither orthogonal nor of equal size.
    own = np.square(wave.real).sum(axis=1), np.square(wave.imag).sum(axis=1)
    both = (wave.real * wave.imag).sum(axis=1)
    size = (
        own[1] * np.square(cosine).sum(axis=1)
        + own[0] * np.square(sine).sum(axis=1)
        - 2 * both * (cosine * sine).sum(axis=1)
    ) / (own[0] * own[1] - np.square(both))
    best = int(np.argmax(size))
    if not 0 < best < len(tried) - 1:
        return float(tried[best])
    low, middle, high = size[best - 1 : best + 2]
    curve = low - 2 * middle + high
    shift = 0.5 * (low - high) / curve if curve else 0.0
    return float(tried[best] + shift * (tried[1] - tried[0]))


def find_waves(points: Floats, power: Power, seed: int) -> tuple[Waves, Bars]:
    """Find the waves of a table, and what they were held against.

    Parameters
    ----------
    points
        ``[n, d]``, centred; at least `MIN_WAVE_ROWS` rows.
    power
        Of the same.
    seed
        Of the draws.
    """
    found = together(power, points, ())
    bars = _bars(power, found, np.random.default_rng([seed, 41]))
    while len(found.waves) < MAX_WAVES:
        wave = _next_line(power, points, found, bars) or _next_hump(power, points, found, bars)
        if wave is None:
            break
        found = together(power, points, (*found.waves, wave), found.fit.weights)
    found = _settled(power, points, _sharpened(power, points, found))
    apart = found.member < 0
    rest = floored(found.fit.components.power[:, apart] @ found.fit.weights[apart])
    columns = np.maximum(power.columns, 1.0)
    unit = line_scores(power.share[None], columns, rest[None])[1][0]
    return found, replace(bars, unit=np.maximum(unit, 1e-300))


def _bars(power: Power, found: Waves, rng: np.random.Generator) -> Bars:
    spectra = drawn_powers(found.fit, power.columns, N_THRESHOLD_DRAWS, rng)
    means = _refitted(spectra, power.columns, found)
    scores, _ = line_scores(spectra, power.columns, means)
    humps = hump_scores(spectra, power.columns, means)
    level = MAX_HUMP_P / max(len(humps), 1)
    largest = scores.max(axis=1)
    own, unit = (
        each[0] for each in line_scores(power.share[None], power.columns, found.fit.mean[None])
    )
    turns, *_ = line_grid(power.rows)
    return Bars(
        line=bar(largest, MAX_LINE_P),
        humps=tuple(bar(each.max(axis=1), level) for *_, each in humps),
        p=tail(float(own.max()), largest),
        turns=float(turns[own.argmax()]),
        score=float(own.max()),
        largest=largest,
        unit=unit,
        background=found.fit.mean,
    )


def _refitted(spectra: Floats, columns: Floats, found: Waves) -> Floats:
    """Refit spectra ``[r, n - 1]`` from the weights of a fit; return their means, of that shape."""
    bands, components = found.bands, found.fit.components
    start = np.tile(np.maximum(found.fit.weights, 1e-6), (len(spectra), 1))
    free = bands.mean(columns) * bands.size
    design = bands.mean(components.power, 0)
    weights = updated(bands.mean(spectra), free, design, start, N_UPDATES)
    return floored(weights @ components.power.T)


def _next_line(power: Power, points: Floats, found: Waves, bars: Bars) -> Wave | None:
    turns, *_ = line_grid(power.rows)
    mean = found.fit.mean[None]
    scores = line_scores(power.share[None], power.columns, mean)[0][0]
    lines = [wave.turns for wave in found.waves if wave.line]
    for each in lines:
        scores = np.where(np.abs(turns - each) < MIN_LINE_SPACING_TURNS, 0.0, scores)
    best = int(np.argmax(scores))
    if not scores[best] > 0:
        return None
    line = Wave(_refined(points, float(turns[best]), lines))
    if scores[best] > bars.line:
        return line
    # A slow line may be held by a smooth background, which leaves when the line comes: half the
    # square of a score is what the likelihood then gains.
    both = together(power, points, (*found.waves, line), found.fit.weights)
    gain = fitness(power, both, both.bands) - fitness(power, found, both.bands)
    return line if gain >= 0.5 * bars.line**2 else None


def _next_hump(power: Power, points: Floats, found: Waves, bars: Bars) -> Wave | None:
    n = power.rows
    ahead: list[tuple[float, Wave]] = []
    scored = hump_scores(power.share[None], power.columns, found.fit.mean[None])
    for (length, turns, scores), least in zip(scored, bars.humps, strict=True):
        taken = [w for w in found.waves if w.lengths[:1] == (length,)]
        own = scores[0]
        for wave in taken:
            own = np.where(np.abs(turns - wave.turns) < n / (2 * np.pi * length), 0.0, own)
        best = int(np.argmax(own))
        if own[best] > max(least, 0.0):
            ahead.append((float(own[best] - least), _found_hump(float(turns[best]), length, n)))
    if not ahead:
        return None
    wave = max(ahead, key=lambda each: each[0])[1]
    if wave.lengths[0] < n / 8:
        return wave
    reach = max(n / (2 * np.pi * wave.lengths[0]), 1.0)
    lines = [each.turns for each in found.waves if each.line]
    near = [
        t
        for t in wave.turns + np.linspace(-reach, reach, 9)
        if MIN_LINE_TURNS <= t < n / 2 - MIN_LINE_SPACING_TURNS
        and all(abs(t - each) >= MIN_LINE_SPACING_TURNS for each in lines)
    ]
    if not near:
        return wave
    start = found.fit.weights
    line = Wave(
        max((_refined(points, t, lines) for t in near), key=lambda t: _explained(points, t))
    )
    as_line = together(power, points, (*found.waves, line), start)
    as_hump = together(power, points, (*found.waves, wave), start)
    gain = fitness(power, as_hump, as_hump.bands) - fitness(power, as_line, as_hump.bands)
    return wave if gain > MIN_HUMP_LOG_LIKELIHOOD_GAIN else line


def _explained(points: Floats, turns: float) -> float:
    wave = np.exp(-2j * np.pi * turns * np.arange(len(points)) / len(points))
    return float(np.square(np.abs(wave @ points)).sum())


def _sharpened(power: Power, points: Floats, found: Waves) -> Waves:
    """Move each line to where it explains most beside all others."""
    waves = list(found.waves)
    for k, wave in enumerate(waves):
        if wave.line:
            others = [each.turns for each in waves if each.line and each is not wave]
            waves[k] = Wave(_refined(points, wave.turns, others))
    return (
        found if waves == list(found.waves) else together(power, points, waves, found.fit.weights)
    )


def _settled(power: Power, points: Floats, found: Waves) -> Waves:
    """Turn lines into humps, weakest first, where humps and any phases explain as much."""
    n = power.rows
    shares = wave_shares(power, found)
    for k in np.argsort(shares):
        wave = found.waves[k]
        if not wave.line:
            continue
        humps = (Wave(wave.turns, (n / 4, n / 8)),)
        others = tuple(w for w in found.waves if w is not wave)
        without = together(power, points, (*others, *humps), found.fit.weights)
        both = together(power, points, (*others, *humps, wave), found.fit.weights)
        gain = fitness(power, both, both.bands) - fitness(power, without, both.bands)
        if gain - _lost(points, found, wave) <= MIN_LINE_LOG_LIKELIHOOD_GAIN:
            waves = tuple(humps[0] if w is wave else w for w in found.waves)
            found = together(power, points, waves, found.fit.weights)
    return found


def own_plane(power: Power, turns: Sequence[float]) -> tuple[float, Floats]:
    """Return the share of a band's strongest two directions in it, and these ``[2, d]``."""
    low, high = min(turns) / BAND_MARGIN_RATIO, max(turns) * BAND_MARGIN_RATIO
    band = slice(max(int(2 * low) - 1, 0), min(int(np.ceil(2 * high)), power.rows - 1))
    _, size, directions = np.linalg.svd(power.waves[band], full_matrices=False)
    squares = np.square(size)
    return float(squares[:2].sum() / max(squares.sum(), 1e-300)), directions[:2]


def _lost(points: Floats, found: Waves, wave: Wave) -> float:
    """Return the log likelihood that a line loses where its phase is not the same in all parts."""
    lines = [each.turns for each in found.waves if each.line]
    n = len(points)
    cosine, sine = lines_power(points, lines)[1][lines.index(wave.turns)]
    angle = 2 * np.pi * wave.turns * np.arange(n) / n
    # The table along the line's own ellipse, turned back.
    held = points @ (cosine - 1j * sine) * np.exp(1j * angle)
    parts = int(np.clip(wave.turns, 1, MAX_PHASE_SECTIONS))  # of a turn or more
    each = np.array([part.mean() for part in np.array_split(held, parts)])
    kept = np.abs(each.sum()) / max(np.abs(each).sum(), 1e-300)
    return float(LINE_PHASE_CONCENTRATION * parts * (1 - kept))


def component_shares(power: Power, found: Fit) -> Floats:
    """Return what each component explains: ``[m]``, which add up to 1; nothing counts twice."""
    part = found.components.power * found.weights
    return np.asarray((power.share / found.mean) @ part)


def wave_shares(power: Power, found: Waves) -> Floats:
    """Return the share of the variance of each wave."""
    shares = component_shares(power, found.fit)
    return np.array([shares[found.member == k].sum() for k in range(len(found.waves))])


#: Families in the order in which they may leave a fit, with the log likelihood that each holds at
#: least. Of 250 tables without a smooth part one gives it more than 10 (11.3), without another of
#: the families 3 in 1,000 give it more than 5.
REMOVABLE_FAMILIES = (
    (("smooth", "slow"), 10.0),
    (("line",), 5.0),
    (("rough",), 5.0),
    (("alternating",), 5.0),
    (("slow",), 5.0),
    (("walk",), 5.0),
)
#: Least share of a family: less is told by nobody, and fits of 128 rows are no better.
MIN_FAMILY_SHARE = 0.02


def needed(power: Power, found: Waves, told: Sequence[int]) -> Floats:
    """Leave out each family without which everything else explains a table as well.

    Parameters
    ----------
    power, found
        Of a table.
    told
        Waves that are told of; what the others hold is for families to explain.

    Returns
    -------
    NDArray
        ``[m]``: weights of the fit, 0 of what left.
    """
    components, bands = found.fit.components, found.bands

    def of(chosen: NDArray[np.bool_], start: Floats) -> Waves:
        fewer = Components(
            tuple(np.array(components.family)[chosen]),
            components.power[:, chosen],
            components.covariance[:, chosen],
        )
        weights = np.zeros(len(chosen))
        weights[chosen] = fit(power.share, power.columns, fewer, bands, start[chosen]).weights
        return replace(found, fit=Fit(components, weights))

    kept = (found.member < 0) | np.isin(found.member, told)
    now = found if kept.all() else of(kept, found.fit.weights)
    at = fitness(power, now, bands)
    for names, gain in REMOVABLE_FAMILIES:
        rest = kept & ~components.of(*names)
        if not now.fit.weights[kept & ~rest].any():
            kept = rest
            continue
        without = of(rest, now.fit.weights)
        lost = at - fitness(power, without, bands)
        if lost < gain or component_shares(power, now.fit)[kept & ~rest].sum() < MIN_FAMILY_SHARE:
            kept, now, at = rest, without, at - lost
    return now.fit.weights


def covariance(found: Waves, *, waves: bool) -> Floats:
    """Return the covariance of the rows ``[n, n]`` by a fit, with its waves or without."""
    components, weights = found.fit.components, found.fit.weights
    n = len(components.covariance)
    kept = np.where(found.member < 0, weights, weights * waves)
    offsets = components.covariance @ kept
    for k, wave in enumerate(found.waves):
        if wave.line:
            angle = 2 * np.pi * wave.turns * np.arange(n) / n
            offsets += np.cos(angle) * kept[found.member == k].sum() / n
    walk, ramp = kept[:2]  # as the dictionary has them
    steps = np.sum(1 / np.square(np.sin(np.pi * np.arange(1, n) / (2 * n))))
    place = np.arange(n) - (n - 1) / 2
    moved = 4 * walk / steps * np.arange(n)
    total = toeplitz(offsets)
    total += np.minimum.outer(moved, moved)
    edge = np.outer(place, place)
    edge *= ramp
    edge /= place @ place
    total += edge
    return total


#: Spectra that are drawn of a fit: the least p-value, 1 / 100, is below the level.
N_MISFIT_DRAWS = 99


#: Level of a misfit, and how much of the variance must be misplaced beyond what is in such draws:
#: planted parts of the model are flagged in 5 of 320 tables; torus knots, bridges and moving
#: averages in 117 of 120.
MAX_MISFIT_P = 0.02
MIN_EXCESS_MISFIT = 0.01


#: Families whose errors cover what was planted: 2 of their root mean squares in 151 of 151 tables.
#: Those of noise do in 66 of 100.
FAMILIES_WITH_ERRORS = ("smooth", "walk", "line")


@dataclass(frozen=True)
class Misfit:
    """How far a fit may be trusted.

    Parameters
    ----------
    amount, typical
        Share of the variance that the fit misplaces among frequencies, and its median in draws.
    p
        How often draws misplace as much.
    errors
        By family, in shares of the variance: twice the root mean square error in draws.
    """

    amount: float
    typical: float
    p: float
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def explained(self) -> bool:
        """Whether the model explains the table."""
        return self.p > MAX_MISFIT_P or self.amount - self.typical < MIN_EXCESS_MISFIT


def misfit(power: Power, found: Waves, weights: Floats, rng: np.random.Generator) -> Misfit:
    """Set a fit beside those of spectra drawn from it.

    Parameters
    ----------
    power, found
        Of a table.
    weights
        ``[m]``: of the components that the fit kept.
    rng
        Of the draws.
    """
    on = weights > 0
    bands, start = found.bands, weights[on]
    family, wave = np.array(found.fit.components.family)[on], found.member[on]
    names = np.where(wave < 0, np.where(family == "slow", "smooth", family), wave.astype(str))
    parts = sorted(set(names.tolist()))
    random = [not name.isdecimal() or not found.waves[int(name)].line for name in parts]
    design = bands.mean(found.fit.components.power[:, on], 0)
    free = bands.mean(power.columns) * bands.size
    means = np.stack([design[:, names == name] @ start[names == name] for name in parts])
    chance = rng.gamma(free / 2, 2 / free, size=(N_MISFIT_DRAWS, *means.shape))
    # A line's phases are what they are; all else is random.
    drawn = means * np.where(np.array(random)[:, None], chance, 1.0)
    spectra = drawn.sum(axis=1)
    for one in range(len(parts)):
        for other in range(one):
            cross = rng.standard_normal(spectra.shape).clip(-2, 2)
            spectra += 2 * np.sqrt(drawn[:, one] * drawn[:, other] / free) * cross
    spectra = np.maximum(spectra, 1e-300)
    whole = (spectra @ bands.size)[:, None]
    true = (drawn @ bands.size) / whole
    spectra = np.vstack([bands.mean(power.share), spectra / whole])
    fitted = updated(spectra, free, design, np.tile(start, (N_MISFIT_DRAWS + 1, 1)), N_UPDATES)
    mean = floored(fitted @ design.T)
    misplaced = 0.5 * np.abs(spectra - mean) @ bands.size
    held = (spectra / mean * bands.size) @ design * fitted
    errors = {
        name: 2 * float(np.sqrt(np.square(held[1:, names == name].sum(1) - true[:, k]).mean()))
        for k, name in enumerate(parts)
        if name in FAMILIES_WITH_ERRORS
    }
    p = (1 + int(np.sum(misplaced[1:] >= misplaced[0]))) / (N_MISFIT_DRAWS + 1)
    return Misfit(float(misplaced[0]), float(np.median(misplaced[1:])), p, errors)
