"""Rotations: lines in the spectrum that stand out of any smooth background.

The spectrum is summed over columns, which no rotation of the columns changes. Its background is the
larger of two: what a spectrum that falls with frequency would have (every mixture of the kernels in
`stationary` falls), and the median of the neighbourhood. A line's evidence is its height over that
background, beside the greatest such height in noise with the same background and as many directions
in each band of frequencies. Lines at whole numbers of turns are found like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import Floats
from posprobe.analyses.gram import fast_length
from posprobe.analyses.phase import drift_p, local_periods, refined
from posprobe.analyses.slow_rotation import MIN_TURNS, Rotation, find_slow_rotations

#: Turns over the table by which rotations of different periods differ.
RESOLVED = 0.75
#: Slowest wave of the background: below, centring has taken power away.
SLOWEST_CYCLES = 1.5
#: Fewest turns of a line: from here on the spectrum has a background on both sides. Rotations of
#: fewer turns are found in the slow part.
LINE_TURNS = 3.0
#: Power over the background that a line has at least: lower bumps are no lines, however certain.
MIN_HEIGHT = 3.0
#: Fewest rows whose spectrum has a background.
MIN_ROWS = 16
#: Half-width of the neighbourhood, as a share of the frequency, and at least so many cycles.
NEIGHBOURHOOD, MIN_CYCLES = 0.3, 5.0
#: Below so many cycles, directions are counted by power.
FEW_WAVES = 16.0
#: Strongest frequencies whose leakage is looked at.
LEAKING = 32
#: Power above so many times the neighbourhood's is cut before the falling background is fitted.
CUT = 3.0
#: The same below so many cycles, where smooth spectra are steep and medians too low.
SLOW, SLOW_CUT = 8.0, 6.0
#: Frequencies, from the slowest, that the falling background takes one by one.
BINS = 24
#: Frequencies per octave at which the neighbourhood's median is taken.
PER_OCTAVE = 8
#: Most directions of the noise: with more, heights vary less, and the test is cautious.
MAX_DIRECTIONS = 64
#: Lines whose planes overlap by more than this, and whose periods differ by less than this factor,
#: are one rotation that drifts.
SAME_PLANE, SAME_PERIOD = 0.5, 1.5
#: Neighbouring lines within so many cycles are one line.
SAME_LINE = 1.5
#: How many times as many spectra of noise are drawn again before the first line is believed, at
#: half the level.
MORE = 3
#: Most looks at a spectrum, each without the lines that were found before.
PASSES = 3
#: Steps per cycle at which waves of constant period are tried, as far from a rotation's frequency
#: as this share of it.
FINE, NEAR = 4, 0.15
#: Level at which a period changes along the table, for all periods together.
DRIFT_LEVEL = 0.01
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Lines:
    """The spectrum with its background, and what stands out.

    Parameters
    ----------
    cycles
        ``[f]``: turns per table.
    power, background
        ``[f]``, each as a share of the power.
    rotations
        Fastest first; none if ``p`` is above the level.
    height, p
        The greatest height, and its rank among the noise's.
    needed
        Height that 95 % of the noise's greatest heights do not reach.
    least_share
        Share of the variance of the weakest rotation that would have been found, at the
        background's median.
    drawn
        ``[draws]``: the noise's greatest heights; none where ``p`` is that of a slow rotation.
    """

    cycles: Floats
    power: Floats
    background: Floats
    rotations: tuple[Rotation, ...]
    height: float
    p: float
    needed: float
    least_share: float
    drawn: Floats


def find_lines(points: Floats, *, draws: int = 99, seed: int = 0, level: float = 0.02) -> Lines:
    """Find the rotations of a sequence.

    Parameters
    ----------
    points
        ``[n, d]``, at least `MIN_ROWS` rows, centred.
    draws
        Spectra of noise that are drawn.
    seed
        Of the noise.
    level
        Lines of a higher rank are left out.
    """
    n = len(points)
    taper = np.sqrt(2.0) * np.sin(np.pi * (np.arange(n) + 0.5) / n)
    straight, _ = np.linalg.qr(np.stack([np.ones(n), np.arange(n) / n], axis=1))
    flat = points - straight @ (straight.T @ points)
    if np.square(flat).sum() <= 1e-20 * np.square(points).sum():
        flat = np.zeros_like(flat)  # a straight line leaves rounding
    # Shares are of the variance of the table, its straight line among it.
    whole = float(np.square(points).sum())
    whole /= float(np.square(flat).sum()) or whole or 1.0
    flat = flat * taper[:, None]
    waves = np.fft.rfft(flat.astype(np.float32), 2 * n, axis=0)
    total = float(np.square(np.abs(waves)).sum(dtype=np.float64)) * whole or 1.0
    noise = _spectra(np.random.default_rng([seed, n]), n, draws)
    first = seen = _look(points, waves, taper, noise, seed, level, total, [])
    found = list(first.found)
    for _ in range(PASSES - 1):
        if not seen.found:
            break
        # Strong lines raise the median of their neighbourhood, which may have hidden others.
        basis = _band(taper, [(line.low, line.high) for line in found])
        taken = np.fft.rfft(basis.astype(np.float32), 2 * n, axis=0)
        rest = waves - taken @ (basis.T @ flat).astype(np.float32)
        seen = _look(points, rest, taper, noise, seed, level, total, found)
        found += seen.found
    rotations = [line.rotation for line in found]
    p, drawn = first.p, first.drawn
    for slow in find_slow_rotations(points, rotations, seed):
        rotations.append(slow)
        if slow.p < p:
            p, drawn = slow.p, np.zeros(0)
    least = float(first.needed * np.median(first.background) * 2 / max(total, TINY))
    return Lines(
        first.cycles,
        first.power / total,
        first.background / total,
        _resolved(rotations, n),
        first.height,
        p,
        first.needed,
        least,
        drawn,
    )


def constant_shares(points: Floats, rotations: Sequence[Rotation]) -> list[float]:
    """Return what waves of constant period and size explain, one near each rotation.

    A rotation's own share is that of all frequencies over which changes of its period and size
    spread it: what the wave lacks of it tells how much it changes.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    rotations
        Of these points.

    Returns
    -------
    list
        Shares of the variance; those of stronger rotations first, of weaker ones what they add.
    """
    n = len(points)
    spectrum = np.fft.rfft(points.astype(np.float32), FINE * n, axis=0)
    power = np.square(np.abs(spectrum)).sum(axis=1)
    every = [n / rotation.period for rotation in rotations]
    cycles = []
    for turns, rotation in zip(every, rotations, strict=True):
        ends = [n / rotation.first_period, n / rotation.last_period]
        # Of a weak wave beside slow changes the ends may be anything.
        drifts = ends if rotation.drift_p <= DRIFT_LEVEL else []
        reach = max([1.0, NEAR * turns, *(abs(end - turns) for end in drifts)])
        # No further than half-way to another rotation, and to what is no wave: at every second
        # row a sine is 0.
        low, high = max(turns - reach, 0.5), min(turns + reach, n / 2 - 0.5)
        low = max([low, *((turns + other) / 2 for other in every if other < turns)])
        high = min([high, *((turns + other) / 2 for other in every if other > turns)])
        first = math.ceil(FINE * low)
        tried = np.arange(first, max(math.floor(FINE * high), first) + 1)
        best = int(tried[np.argmax(power[tried])])
        # Between two steps, a wave would lose up to a twentieth.
        own = float(np.square(np.abs(np.exp(2j * np.pi * turns * np.arange(n) / n) @ points)).sum())
        cycles.append(turns if low <= turns <= high and own > power[best] else best / FINE)
    order = np.argsort([-rotation.share for rotation in rotations], kind="stable")
    angle = 2 * np.pi * np.outer(np.arange(n) / n, np.array(cycles)[order])
    waves = np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(n, -1)
    basis, _ = np.linalg.qr(waves - waves.mean(axis=0))
    held = np.square(basis.T @ points).sum(axis=1).reshape(-1, 2).sum(axis=1)
    shares = np.empty(len(order))
    shares[order] = held / np.square(points).sum()
    return shares.tolist()


@dataclass(frozen=True, eq=False)
class _Line:
    """A rotation that was found, its frequencies in cycles, and the plane of the strongest."""

    rotation: Rotation
    low: float
    high: float
    cycles: float
    plane: Floats  # [d, 2]

    def same(self, cycles: float, plane: Floats) -> bool:
        """Say whether a wave at another frequency is a part of this rotation, which drifts."""
        ratio = max(cycles, self.cycles) / min(cycles, self.cycles)
        return ratio < SAME_PERIOD and np.square(plane.T @ self.plane).sum() / 2 > SAME_PLANE


def _resolved(rotations: Sequence[Rotation], n: int) -> tuple[Rotation, ...]:
    """Order rotations by period; of those with one period, which drift, the largest stands."""
    kept: list[Rotation] = []
    for rotation in sorted(rotations, key=lambda line: -line.share):
        if all(abs(n / rotation.period - n / other.period) >= RESOLVED for other in kept):
            kept.append(rotation)
    return tuple(sorted(kept, key=lambda line: line.period))


@dataclass(frozen=True, eq=False)
class _Seen:
    """What one look at a spectrum finds; names as in `Lines`, powers as they are."""

    cycles: Floats
    power: Floats
    background: Floats
    found: list[_Line]
    height: float
    p: float
    needed: float
    drawn: Floats


def _look(
    points: Floats,
    waves: NDArray[np.complexfloating[Any, Any]],
    taper: Floats,
    noise: NDArray[np.float32],
    seed: int,
    level: float,
    total: float,
    before: list[_Line],
) -> _Seen:
    """Look for lines beside those found ``before``, which were taken out of points and waves."""
    n = len(points)
    power = np.square(np.abs(waves)).sum(axis=1, dtype=np.float64)
    cycles = np.arange(n + 1) / 2
    hole = np.zeros(n + 1, dtype=bool)
    for other in before:
        hole |= (cycles >= other.low - 1.5) & (cycles <= other.high + 1.5)
    if hole.all():
        hole[:] = False
    # What was taken out leaves holes, which would lower the background: the level beside them.
    level_there = np.log(np.maximum(power[~hole], TINY))
    power[hole] = np.exp(np.interp(cycles[hole], cycles[~hole], level_there))
    kept = (cycles >= SLOWEST_CYCLES) & (cycles <= n / 2 - 0.5)
    part, where = power[kept], cycles[kept]
    background = _background(part[None], where)[0]
    eligible = (where >= LINE_TURNS) & ~hole[kept]
    height = part / np.maximum(background, _leakage(power, taper)[kept])
    summits = _summits(height[None])[0] & eligible
    top = float(height[summits].max(initial=0.0))
    if before and top < MIN_HEIGHT:
        return _Seen(where, part, background, [], top, 1.0, MIN_HEIGHT, np.zeros(0))
    directions = _directions(waves[~hole], cycles[~hole])
    bands = np.clip(np.searchsorted([edge for edge, _ in directions], where, "right") - 1, 0, None)
    count = np.array([number for _, number in directions])[bands]
    # Running means over columns: a band of few directions takes the first few.
    falling = np.minimum.accumulate(background)

    def reached(noise: NDArray[np.float32]) -> Floats:
        surrogates = noise[:, count - 1, np.flatnonzero(kept)] * falling
        beyond = surrogates / _background(surrogates, where)
        return np.asarray(np.where(_summits(beyond) & eligible, beyond, 0.0).max(axis=1))

    greatest = reached(noise)

    def rank(value: float) -> float:
        return float((1 + np.sum(greatest >= value * (1 - 1e-9))) / (len(greatest) + 1))

    p = rank(top) if top >= MIN_HEIGHT else 1.0
    if p <= level and not before:
        # A first line is no accident of few draws.
        rng = np.random.default_rng([seed, n, 2])
        more = [reached(_spectra(rng, n, len(noise))) for _ in range(MORE)]
        greatest = np.concatenate([greatest, *more])
        level /= 2
        p = rank(top)
    needed = float(np.quantile(greatest, 0.95))
    lines: list[_Line] = []
    if p <= level:
        bar = max(float(np.quantile(greatest, 1 - level)), MIN_HEIGHT)
        peaks = [int(k) for k in np.flatnonzero(summits & (height > bar))]
        seen = waves[kept]
        for group in _together(peaks, part, seen, where):
            plane = _plane(seen[group[0]])
            if any(other.same(float(where[group[0]]), plane) for other in before):
                continue
            found = _describe(points, group, where, part, background, seen, total, rank)
            low, high = float(where[group].min()), float(where[group].max())
            if n / found.period > MIN_TURNS:
                lines.append(_Line(found, low - 1, high + 1, float(where[group[0]]), plane))
        p = p if lines else 1.0
    return _Seen(where, part, background, lines, top, p, needed, greatest)


def _band(taper: Floats, bands: list[tuple[float, float]]) -> Floats:
    """Return an orthonormal basis of the tapered waves within bands of cycles: ``[n, k]``."""
    each = [np.arange(low, high + 0.25, 0.5) for low, high in bands]
    cycles = np.unique(np.concatenate(each))
    angle = 2 * np.pi * np.outer(np.arange(len(taper)), cycles) / len(taper)
    waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray(np.linalg.qr(waves * taper[:, None])[0])


def _background(power: NDArray[np.floating[Any]], cycles: Floats) -> Floats:
    """Return the background of spectra ``[s, f]``."""
    low, high = float(cycles[0]), float(cycles[-1])
    centres = np.geomspace(low, high, max(2, round(PER_OCTAVE * np.log2(high / low))))
    half = np.maximum(NEIGHBOURHOOD * centres, MIN_CYCLES)
    first = np.searchsorted(cycles, centres - half)
    last = np.searchsorted(cycles, centres + half, "right")
    medians = np.stack(
        [np.median(power[:, a:b], axis=1) for a, b in zip(first, last, strict=True)], axis=1
    )
    medians = np.log(np.maximum(medians, TINY))
    place = np.clip(np.searchsorted(centres, cycles) - 1, 0, len(centres) - 2)
    ahead = (cycles - centres[place]) / (centres[place + 1] - centres[place])
    local = np.exp(medians[:, place] * (1 - ahead) + medians[:, place + 1] * ahead)
    # The falling fit is made of every frequency where they are few, and of bands where many.
    edges = np.unique(
        np.concatenate([np.arange(min(BINS, len(cycles))), np.searchsorted(cycles, centres)])
    )
    edges = edges[edges < len(cycles)]
    member = np.repeat(np.arange(len(edges)), np.diff(np.append(edges, len(cycles))))
    count = np.bincount(member).astype(np.float64)
    means = (
        np.add.reduceat(
            np.minimum(power, np.where(cycles < SLOW, SLOW_CUT, CUT) * local), edges, axis=1
        )
        / count
    )
    falling = _falling(means, count)[:, member]
    floor = 1e-12 * power.max(axis=1, keepdims=True) + TINY
    return np.asarray(np.maximum(np.maximum(local, falling), floor))


def _falling(values: Floats, weight: Floats) -> Floats:
    """Return the falling sequences nearest to ``values`` ``[s, b]``: isotonic least squares.

    At each place, the greatest over later ends of the least over earlier beginnings of the mean
    between them (Robertson, Wright & Dykstra 1988, section 1.4).
    """
    size = values.shape[1]
    total = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values * weight, axis=1)], axis=1)
    weights = np.append(0.0, np.cumsum(weight))
    begin, end = np.triu_indices(size)
    means = np.full((len(values), size, size), np.inf)
    means[:, begin, end] = (total[:, end + 1] - total[:, begin]) / (
        weights[end + 1] - weights[begin]
    )
    least = np.minimum.accumulate(means, axis=1)  # over beginnings up to each place
    least[:, np.tril_indices(size, -1)[0], np.tril_indices(size, -1)[1]] = -np.inf
    return np.asarray(least.max(axis=2))


def _spectra(rng: np.random.Generator, n: int, draws: int) -> NDArray[np.float32]:
    """Spectra of white noise, mean 1, averaged over 1, 2, ... columns: ``[s, columns, f]``."""
    # Transforms of a prime length take several times as long, and how the noise of neighbouring
    # frequencies hangs together is the same for all lengths, in cycles of the table.
    size = fast_length(n)
    taper = (np.sqrt(2.0) * np.sin(np.pi * (np.arange(size) + 0.5) / size)).astype(np.float32)
    columns = np.arange(1, MAX_DIRECTIONS + 1, dtype=np.float32)[:, None]
    spectra = np.empty((draws, MAX_DIRECTIONS, n + 1), dtype=np.float32)
    for draw in range(draws):
        white = rng.standard_normal((MAX_DIRECTIONS, size), dtype=np.float32) * taper
        power = np.square(np.abs(np.fft.rfft(white, 2 * size, axis=1)[:, : n + 1])) / size
        spectra[draw] = np.cumsum(power, axis=0) / columns
    return spectra


def _directions(
    waves: NDArray[np.complexfloating[Any, Any]], cycles: Floats
) -> list[tuple[float, int]]:
    """Estimate how many directions the power of each octave has: lower edge and number.

    The squared inner product of two independent waves of length 1 in ``m`` directions is ``1 / m``
    on average and 0.69 times that in the median, which lines do not move.
    """
    found = []
    low, last = 2.0, float(cycles[-1]) - 1
    while low < last:
        high = max(2 * low, low + 7)
        if last - high < 7:
            high = last + 1
        member = np.flatnonzero((cycles >= low) & (cycles < high) & (cycles % 2 == 0))[:48]
        unit = waves[member]
        size = np.linalg.norm(unit, axis=1)
        unit = unit[size > 0] / size[size > 0][:, None]
        if len(unit) >= 2:
            inner = np.square(np.abs(unit @ unit.conj().T))
            pairs = np.triu_indices(len(unit), 1)
            typical = float(np.median(inner[pairs]))
            if low < FEW_WAVES:  # too few pairs for a median, and of very different power
                share = (size[size > 0] / size.max()).astype(np.float64) ** 2
                weight = np.outer(share, share)[pairs] + 1e-30
                typical = max(typical, 0.69 * float(weight @ inner[pairs] / weight.sum()))
            number = int(np.clip(round(0.69 / max(typical, 1e-3)), 1, MAX_DIRECTIONS))
        else:
            number = 1
        found.append((low, number))
        low = high
    return found or [(2.0, 1)]


def _leakage(power: Floats, taper: Floats) -> Floats:
    """Return what stronger waves at other frequencies may put at each, by the taper's sidelobes."""
    n = len(taper)
    lobes = np.square(np.abs(np.fft.rfft(taper, 2 * n)))
    lobes = np.maximum.accumulate(lobes[::-1])[::-1] / lobes[0]  # no ripples: the greatest beyond
    found = np.zeros_like(power)
    for k in np.argsort(-power)[:LEAKING]:
        away = np.abs(np.arange(len(power)) - k)
        found = np.maximum(found, np.where(away > 3, power[k] * lobes[away], 0.0))
    return found


def _summits(height: Floats) -> NDArray[np.bool_]:
    """Where spectra ``[s, f]`` are higher than on either side."""
    summit = np.zeros(height.shape, dtype=bool)
    inner = height[:, 1:-1]
    summit[:, 1:-1] = (inner >= height[:, :-2]) & (inner > height[:, 2:])
    return summit


def _together(
    peaks: list[int], power: Floats, waves: NDArray[np.complexfloating[Any, Any]], cycles: Floats
) -> list[list[int]]:
    """Join the peaks of one rotation, beginning with the strongest."""
    groups: list[list[int]] = []
    for k in sorted(peaks, key=lambda k: -power[k]):
        plane = _plane(waves[k])
        for group in groups:
            first = group[0]
            ratio = max(cycles[k], cycles[first]) / min(cycles[k], cycles[first])
            nearby = abs(cycles[k] - cycles[first]) <= SAME_LINE
            overlap = np.square(plane.T @ _plane(waves[first])).sum() / 2
            if nearby or (ratio < SAME_PERIOD and overlap > SAME_PLANE):
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def _plane(wave: NDArray[np.complexfloating[Any, Any]]) -> Floats:
    basis, _, _ = np.linalg.svd(np.stack([wave.real, wave.imag], axis=1), full_matrices=False)
    return np.asarray(basis)


def _describe(
    points: Floats,
    group: list[int],
    cycles: Floats,
    power: Floats,
    background: Floats,
    waves: NDArray[np.complexfloating[Any, Any]],
    total: float,
    rank: Callable[[float], float],
) -> Rotation:
    n = len(points)
    k = group[0]
    weight = power[group]
    low, high = min(cycles[group]) - 1.5, max(cycles[group]) + 1.5
    band = (cycles >= low) & (cycles <= high)
    above = np.maximum(power[band] - background[band], 0).sum()
    along = points @ waves[k].conj() / np.linalg.norm(waves[k])
    centre = float((weight * cycles[group]).sum() / weight.sum())
    if len(group) == 1:
        centre = refined(along, centre)
    singular = np.linalg.svd(np.stack([waves[k].real, waves[k].imag]), compute_uv=False)
    first, last, centre = local_periods(along, centre)
    height = float((power[group] / background[group]).max())
    return Rotation(
        period=n / centre,
        share=float(above / total),
        purity=float(above / power[band].sum()),
        circularity=float(2 * singular[0] * singular[-1] / np.square(singular).sum()),
        first_period=first,
        last_period=last,
        height=height,
        p=rank(height),
        drift_p=drift_p(along, centre),
    )
