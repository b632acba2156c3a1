"""Rotations of a few turns, which no spectrum tells from a slow curve by its background."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.analyses.stationary import fit_kernel, leading

#: Slowest rotation: fewer turns than this look like any slow curve.
MIN_TURNS = 2.0
#: The same beside faster ones, which show that the table has rotations.
MIN_TURNS_BESIDE = 1.0
#: The slow part of a table ends at so many turns, and at this share of the slowest rotation's.
SLOW_TURNS, SLOW_SHARE = 8.0, 0.75
#: Least share of the variance of a slow rotation.
MIN_SHARE = 0.02
#: Steps between the turns that are tried of the slow part's two sinusoids, alone and beside faster.
TURN_STEP, TURN_STEP_BESIDE = 0.125, 0.25
#: Tables that are drawn at most, and the rank up to which a slow rotation is one, alone and beside
#: faster ones. The search for those is a test of its own, so that this one has a stricter level.
SLOW_DRAWS, SLOW_LEVEL, SLOW_LEVEL_BESIDE = 799, 0.005, 0.01
#: Rows of the slow part; it needs no more.
SLOW_ROWS = 256


@dataclass(frozen=True)
class Rotation:
    """One rotation.

    Parameters
    ----------
    period
        In positions.
    share
        Of the table's variance, above the background.
    purity
        Share of the power near its frequency that is the rotation's and not the background's.
    circularity
        1 for a circle, 0 for a wave along one direction.
    first_period, last_period
        Period in the first and in the last third of the table.
    height
        Power over the background's.
    p
        Rank among the greatest heights of the noise.
    skill
        Held-out, see `rotation_skill.with_skill`; NaN before it is measured.
    drift_p
        p-value of a change of the period along the table; 1 of a few turns, which do not tell.
    band
        Of a few turns: 5 and 95 % of the noise's greatest heights, as shares of its own.
    """

    period: float
    share: float
    purity: float
    circularity: float
    first_period: float
    last_period: float
    height: float
    p: float
    skill: float = np.nan
    drift_p: float = 1.0
    band: tuple[float, float] | None = None

    @property
    def drift(self) -> float:
        """Change of the period from the first to the last third, as a share of the period."""
        return (self.last_period - self.first_period) / self.period


def find_slow_rotations(points: Floats, found: list[Rotation], seed: int) -> list[Rotation]:
    """Find rotations of a few turns, which have no background on their slower side.

    Two sinusoids of fixed frequencies are fitted to the slow part of the table; one of them has
    less than `MIN_TURNS` unless faster rotations were found, and is a rotation only then. The
    evidence is the share that they explain, beside that in draws of the falling kernel that fits
    the same part.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    found
        Faster rotations, which are taken out first.
    seed
        Of the tables that are drawn.
    """
    n = len(points)
    t = np.arange(n)
    table = points
    turns = [n / line.period for line in found]
    basis = np.zeros((n, 0))
    if turns:
        near = np.add.outer(turns, np.array([-1.0, -0.5, 0.0, 0.5, 1.0])).ravel()
        basis, _ = np.linalg.qr(np.concatenate([_wave(f, n) for f in near], axis=1))
        points = points - basis @ (basis.T @ points)
    points = points - points.mean(axis=0)
    top = min([SLOW_TURNS, n / 4, *(SLOW_SHARE * f for f in turns)])
    least = MIN_TURNS_BESIDE if found else MIN_TURNS
    if top < MIN_TURNS + 1.5:
        return []
    count = int(2 * top) + 1
    cosines = np.cos(np.pi * np.outer(t + 0.5, np.arange(count)) / n)
    cosines /= np.linalg.norm(cosines, axis=0)
    seen = cosines - basis @ (basis.T @ cosines)  # what taking the rotations out has left of them
    left, singular, _ = np.linalg.svd(cosines.T @ points, full_matrices=False)
    part = left * singular
    if np.square(part).sum() <= 1e-3 * np.square(points).sum():
        return []
    thin = max(1, n // SLOW_ROWS)
    values = fit_kernel(points[::thin]).by_offset(len(points[::thin]))
    coarse = seen[::thin]
    spectrum = np.fft.rfft(np.concatenate([values, [0.0], values[:0:-1]]))
    whole = 2 * len(values)
    covariance = (
        coarse.T
        @ np.fft.irfft(spectrum[:, None] * np.fft.rfft(coarse, whole, axis=0), whole, axis=0)[
            : len(values)
        ]
    )
    covariance += 1e-9 * np.trace(covariance) * np.eye(count)
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, part)
    inner = white.T @ white
    spread = np.square(inner).sum() / np.trace(inner) ** 2 - 1 / count  # of so few samples
    columns = int(np.clip(round(1 / max(float(spread), 1 / 32)), 1, 32))

    step = TURN_STEP_BESIDE if found else TURN_STEP
    slower = np.arange(0.25, top - 1.25 if found else MIN_TURNS - 0.2, step)
    faster = np.arange(1.0, top - 0.75, step)
    if len(faster) < 2:
        return []
    pairs, bases = _pairs(cosines, slower, faster)
    explained = _explained(bases, part)
    best = int(np.argmax(explained))
    if pairs[best][1] <= least:
        return []
    rng = np.random.default_rng([seed, n, 1])
    level = SLOW_LEVEL_BESIDE if found else SLOW_LEVEL
    drawn: list[float] = []
    reached = 0
    while len(drawn) < SLOW_DRAWS:
        drawn.append(float(_explained(bases, factor @ rng.standard_normal((count, columns))).max()))
        reached += int(drawn[-1] >= explained[best])
        if 1 + reached > level * (SLOW_DRAWS + 1):
            return []
    p = (1 + reached) / (SLOW_DRAWS + 1)
    low, high = np.quantile(drawn, (0.05, 0.95)) / explained.max()
    rotations = []
    for cycles, sizes in _fitted(table, cosines, turns, *pairs[best], least):
        share = float(np.square(sizes).sum() / np.square(table).sum())
        if share < MIN_SHARE or cycles <= least:
            continue
        rotations.append(
            Rotation(
                period=n / cycles,
                share=share,
                purity=float(explained[best]),
                circularity=float(2 * sizes[0] * sizes[-1] / np.square(sizes).sum()),
                first_period=n / cycles,
                last_period=n / cycles,
                height=float(explained.max() / np.median(drawn)),
                p=p,
                band=(float(low), float(high)),
            )
        )
    return rotations


def _fitted(
    table: Floats,
    cosines: Floats,
    turns: list[float],
    slower: float,
    faster: float,
    least: float,
) -> list[tuple[float, Floats]]:
    """Fit slow rotations together with all others: the turns and singular values of each."""
    n = len(table)
    others = [np.stack([np.ones(n), np.arange(n) / n], axis=1), *(_wave(f, n) for f in turns)]

    def left(*cycles: float) -> float:
        basis, _ = np.linalg.qr(np.concatenate([*others, *(_wave(f, n) for f in cycles)], axis=1))
        return whole - float(np.square(basis.T @ short).sum())

    short = leading(table)
    short = cosines @ (cosines.T @ short)  # else faster noise hides what a slow wave explains
    whole = float(np.square(short).sum())
    fine = np.arange(-0.24, 0.25, 0.04)
    alone = {f: left(f) for f in [*(faster + fine), *(slower + fine)[slower + fine > least]]}
    both = {(a, b): left(a, b) for a in slower + fine[::3] for b in faster + fine}
    # The slower wave is there only if it explains much of what is left.
    if min(both.values()) < 0.5 * min(alone.values()):
        kept = list(min(both.items(), key=lambda item: item[1])[0])
    else:
        kept = [min(alone, key=lambda f: alone[f])]
    basis, _ = np.linalg.qr(np.concatenate([*others, *(_wave(f, n) for f in kept)], axis=1))
    along = basis[:, -2 * len(kept) :].T @ table
    return [
        (float(f), np.asarray(np.linalg.svd(along[2 * k : 2 * k + 2], compute_uv=False)))
        for k, f in enumerate(kept)
    ]


def _wave(cycles: float, n: int) -> Floats:
    angle = 2 * np.pi * cycles * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _pairs(
    cosines: Floats, slower: Floats, faster: Floats
) -> tuple[list[tuple[float, float]], Floats]:
    """Return pairs of turns, and bases of the constant and both waves in the slow part."""
    n = len(cosines)
    pairs = [(a, b) for a in slower for b in faster if b > a + 0.4]
    waves = {f: cosines.T @ _wave(f, n) for f in {*slower, *faster}}
    straight = cosines.T @ np.stack([np.ones(n), np.arange(n) / n], axis=1)
    stacked = np.stack([np.concatenate([straight, waves[a], waves[b]], axis=1) for a, b in pairs])
    return pairs, np.linalg.qr(stacked)[0]


def _explained(bases: Floats, part: Floats) -> Floats:
    """Return the share of the slow part, less its straight line, that each pair explains."""
    straight = bases[0, :, :2]  # the first two columns are the same in all
    part = part - straight @ (straight.T @ part)
    along = np.matmul(bases.transpose(0, 2, 1), part)
    share: Floats = np.square(along).sum(axis=(1, 2)) / np.square(part).sum()
    return share
