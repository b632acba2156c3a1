"""The base of the ladder of frequencies that resembles a table most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from posprobe.analyses.closeness import Cloud, Floats, cloud, unbiased
from posprobe.analyses.rounding import centring_error
from posprobe.encodings.tables import frequencies

#: Bases between which the best is sought.
BASES = (10.0, 1e7)
#: Rows that the search looks at: more make its peaks narrower than its grid.
BASE_ROWS = 512
#: Bases whose misfit is this much above the best fit as well.
SLACK = 0.05
#: A base is undefined where bases that fit as well are further apart than this factor.
FLAT = 2.0
#: A base is undefined unless lines half way between its own have so many times the misfit.
CONTRAST = 1.1
#: A base is undefined where its lines, each moved by up to half a step alone, leave so many times
#: less; not asked of a table that resembles the sinusoid more than this.
UNEVEN, SURE = 1.1, 0.99
#: Fewest lines of a ladder whose base is sought: a few fall upon something in any table.
MIN_LINES = 16


@dataclass(frozen=True, eq=False)
class BaseFit:
    """How well sinusoids of other bases resemble a table.

    Parameters
    ----------
    bases, cka
        ``[b]``: bases tried, rising, and the table's debiased CKA with the sinusoid of its width
        and each base.
    base, best
        The best base, None where the curve does not single one out, and the highest CKA.
    similar
        Lowest and highest base that fit as well: whose misfit ``1 - cka²`` is within `SLACK`.
    contrast
        Misfit of the best base's ladder with its lines moved half way to their neighbours, over
        its own: how much the lines themselves matter, and not just the band that they fill.
    rows
        Number of rows compared, from the first.
    undefined
        Reason why there is no base, or empty.
    """

    bases: Floats
    cka: Floats
    base: float | None
    best: float | None
    similar: tuple[float, float] | None
    contrast: float | None
    rows: int
    undefined: str = ""


def fit_base(table: Cloud, d: int) -> BaseFit:
    """Find the base b whose ladder ``b^(-2i/d)`` resembles a table most.

    Least squares between the Gram matrices off the diagonal, up to scale, which is the debiased
    CKA. The span of a wide ladder hardly depends on its base; which lines it has does, so that
    only a table with the lines of one ladder singles out a base, and a merely smooth table leaves
    the curve flat: then the base is undefined.

    Parameters
    ----------
    table
        At least four positions; the first `BASE_ROWS` are used.
    d
        Even width of the sinusoids.
    """
    if len(table) > BASE_ROWS:
        table = cloud(table.points[:BASE_ROWS])
    n = len(table)
    if d < 2 * MIN_LINES:
        return _no_base(n, f"a ladder of fewer than {MIN_LINES} lines resembles anything")
    own = unbiased(table.squared_gram, table.power, table.power)
    if table.total == 0 or own <= centring_error(table.squared_gram, n):
        return _no_base(n, "all rows are equal, or equally far apart")
    # Inner products with a Toeplitz matrix see only the sums along the diagonals.
    spectrum = np.square(np.abs(np.fft.rfft(table.points, 2 * n, axis=0))).sum(axis=1)
    sums = np.fft.irfft(spectrum, 2 * n)[:n] * np.where(np.arange(n) > 0, 2.0, 1.0)

    def resemblance(kernels: _Kernels) -> Floats:
        cross = unbiased(kernels.lags @ sums, kernels.power, table.power)
        varies = kernels.own > 0
        return np.where(varies, cross / np.sqrt(own * np.where(varies, kernels.own, 1.0)), 0.0)

    bases, kernels = _base_grid(n, d)
    curve = resemblance(kernels)
    top = int(np.argmax(curve))
    low, high = np.log(bases[max(top - 1, 0)]), np.log(bases[min(top + 1, len(bases) - 1)])
    base, best = float(bases[top]), float(curve[top])
    for _ in range(6):  # each round narrows the bracket to a quarter
        nearby = np.exp(np.linspace(low, high, 9))
        around = resemblance(_kernels(n, d, nearby))
        k = int(np.argmax(around))
        if around[k] > best:
            base, best = float(nearby[k]), float(around[k])
        low, high = np.log(nearby[max(k - 1, 0)]), np.log(nearby[min(k + 1, 8)])
    least = float(_misfit(best))
    alike = np.append(bases[_misfit(curve) <= (1 + SLACK) * least], base)
    similar = float(alike.min()), float(alike.max())
    # A smooth table resembles as much a ladder whose lines lie between those of this one.
    there = np.array([base])
    between = max(float(resemblance(_kernels(n, d, there, half))[0]) for half in (-0.5, 0.5))
    contrast = float(_misfit(between)) / least
    why = ""
    if best <= 0 or similar[1] > FLAT * similar[0]:
        why = f"flat: bases from {similar[0]:.3g} to {similar[1]:.3g} fit as well"
    elif contrast < CONTRAST:
        why = f"no ladder: lines between those of base {base:.3g} fit as well"
    elif best < SURE and _uneven(resemblance, n, d, base) > UNEVEN:
        why = f"no ladder: lines spaced less evenly than those of base {base:.3g} fit better"
    elif not BASES[0] < base < BASES[1]:
        why = f"no base between {BASES[0]:g} and {BASES[1]:g} fits best"
    return BaseFit(bases, curve, None if why else base, best, similar, contrast, n, why)


def _no_base(n: int, why: str) -> BaseFit:
    return BaseFit(np.zeros(0), np.zeros(0), None, None, None, None, n, why)


def _uneven(resemblance: Callable[[_Kernels], Floats], n: int, d: int, base: float) -> float:
    """Return how many times less misfit is left where lines move each by itself, one by one.

    The lines of a table that is a ladder, in however much noise, are best where they are; of
    frequencies at random, some ladder hits a few.
    """
    lines = frequencies(d, base=base)
    place = np.arange(n)
    lags = np.cos(np.outer(place, lines)).sum(axis=1)
    first = best = float(resemblance(_of_lags(lags[None]))[0])
    moves = base ** (np.array([-1.0, -0.5, 0.5, 1.0]) / d)  # of half a step, and of a quarter
    for line in lines[lines > 2 * np.pi / n]:
        moved = lags - np.cos(line * place) + np.cos(np.outer(line * moves, place))
        found = resemblance(_of_lags(moved))
        if found.max() > best:
            best, lags = float(found.max()), moved[int(np.argmax(found))]
    return float(_misfit(first) / _misfit(best))


def _misfit(cka: Floats | float) -> Floats:
    """Return ``1 - cka²``, kept above 0 so that misfits have a ratio."""
    return np.asarray(1 - np.square(np.maximum(cka, 0)) + 1e-12)


@dataclass(frozen=True, eq=False)
class _Kernels:
    """Sinusoids of several bases: ``[b, n]`` inner product by lag and centred row powers."""

    lags: Floats
    power: Floats
    own: Floats  # [b]: unbiased HSIC of each with itself


@lru_cache(maxsize=4)
def _base_grid(n: int, d: int) -> tuple[Floats, _Kernels]:
    # The lines of a ladder move with the logarithm of log(base), the faster the longer the table.
    low, high = np.log(np.log(BASES))
    count = round((high - low) * max(n, 128) / 8.5) + 1
    bases = np.exp(np.exp(np.linspace(low, high, count)))
    return bases, _kernels(n, d, bases)


def _kernels(n: int, d: int, bases: Floats, shift: float = 0.0) -> _Kernels:
    """Prepare sinusoids whose lines are moved by ``shift`` of the way to the next faster one."""
    block = 32
    begin = np.arange(0, n, block)
    lags = np.empty((len(bases), n))
    for k, base in enumerate(bases):
        omega = frequencies(d, base=float(base)) * base ** (2 * shift / d)
        coarse, fine = np.outer(begin, omega), np.outer(np.arange(block), omega)
        waves = np.cos(coarse) @ np.cos(fine).T - np.sin(coarse) @ np.sin(fine).T
        lags[k] = waves.ravel()[:n]
    return _of_lags(lags)


def _of_lags(lags: Floats) -> _Kernels:
    """Prepare Toeplitz kernels ``[b, n]`` by their values at each lag."""
    n = lags.shape[1]
    sums = np.cumsum(lags, axis=1)
    row = (sums + sums[:, ::-1] - lags[:, :1]) / n
    mean = row.mean(axis=1, keepdims=True)
    power = lags[:, :1] - 2 * row + mean
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0) * np.arange(n, 0, -1)
    squared = np.square(lags) @ pairs - 2 * n * np.square(row).sum(axis=1) + (n * mean[:, 0]) ** 2
    return _Kernels(lags, power, unbiased(squared, power, power))
