"""Scores of waves in a spectrum beside a fit of the rest: lines, humps, and the law of the largest.

A score is the slope of the likelihood in the share of a wave, in standard errors.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from posprobe.analyses.composition.mixture import (
    stationary,
)
from posprobe.arrays import Floats

#: Chance that a line of noise passes: of 40 smooth tables of few columns none has a line at this
#: level, at 0.01 two of six had.
MAX_LINE_P = 0.002


#: Fewest turns of a line (a smooth curve bends once or twice), the step of the search, an eighth of
#: a line's width of two turns, and turns between two lines, closer than which they are one.
MIN_LINE_TURNS = 1.75
LINE_GRID_STEP_TURNS = 0.25
MIN_LINE_SPACING_TURNS = 0.6


#: Bins on each side that a line's power is collected from: 95 % of it or more, wherever between
#: bins it lies.
LINE_SIDE_BINS = 8


#: Bins of the median that guards a line against a bad fit around it: a line fills fewer than half
#: of them.
GUARD_BINS = 15


#: Share of the variance below which a wave does not matter: deep tails of smooth spectra are full
#: of certain trifles.
MIN_SCORED_SHARE = 0.005


#: Shortest envelope of a hump, in positions: shorter ones fill the whole spectrum and are what
#: kernels without a period are for.
MIN_ENVELOPE_POSITIONS = 3.0


def transformed(turns: Floats, bins: Floats, n: int) -> NDArray[np.complex128]:
    """Return the cosine transform of ``exp(2 pi i t s / n)`` in bins from 1 on; both broadcast."""

    def total(angle: Floats) -> NDArray[np.complex128]:
        half = angle / 2
        sine = np.sin(half)
        near = np.abs(sine) < 1e-9
        ratio = np.where(
            near, n * np.cos(n * half) / np.cos(half), np.sin(n * half) / np.where(near, 1.0, sine)
        )
        return np.asarray(np.exp(1j * (n - 1) * half) * ratio)

    wave, bin_ = 2 * np.pi * turns / n, np.pi * bins / n
    turn = np.exp(0.5j * bin_)
    return np.asarray(
        (turn * total(wave + bin_) + turn.conj() * total(wave - bin_)) / np.sqrt(2 * n)
    )


@lru_cache(maxsize=4)
def line_grid(n: int) -> tuple[Floats, NDArray[np.intp], Floats]:
    """Return turns ``[t]`` of lines, and their bins from 0 and power there, ``[t, w]`` each."""
    turns = np.arange(MIN_LINE_TURNS, n / 2 - MIN_LINE_SPACING_TURNS, LINE_GRID_STEP_TURNS)
    bins = np.rint(2 * turns)[:, None].astype(np.intp) + np.arange(
        -LINE_SIDE_BINS, LINE_SIDE_BINS + 1
    )
    inside = (bins >= 1) & (bins < n)
    power = np.square(np.abs(transformed(turns[:, None], bins.astype(float), n)))
    mean = np.square(np.abs(transformed(turns, np.zeros_like(turns), n))) / 2
    power = np.where(inside, power / (n - mean)[:, None], 0.0)
    return turns, np.clip(bins - 1, 0, n - 2), power


def line_scores(power: Floats, columns: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return the scores of lines in spectra ``[r, n - 1]``, and a share of 1 in standard errors.

    Each is ``[r, t]``; the score is 0 of trifles.
    """
    n = power.shape[1] + 1
    _, bins, shape = line_grid(n)
    guard = mean * np.maximum(1.0, _guarded(power / mean))
    slope = 0.5 * columns * (power - guard) / np.square(guard)
    curve = 0.5 * columns / np.square(guard)
    first, second = np.zeros((2, len(power), len(bins)))
    for place in range(bins.shape[1]):
        first += slope[:, bins[:, place]] * shape[:, place]
        second += curve[:, bins[:, place]] * np.square(shape[:, place])
    return _score(first, second), np.sqrt(second)


def _guarded(ratio: Floats) -> Floats:
    """Return the median of `GUARD_BINS` neighbours in ``[r, k]``; beyond the ends the last counts."""
    padded = np.pad(ratio, ((0, 0), (GUARD_BINS // 2, GUARD_BINS // 2)), mode="edge")
    windows = np.array(sliding_window_view(padded, GUARD_BINS, axis=1))
    windows.partition(GUARD_BINS // 2)
    return np.asarray(windows[..., GUARD_BINS // 2])


def _correlated(rows: Floats, shape: Floats) -> Floats:
    """Sum the products of a shape, of odd length, with what is around each place of each row."""
    return np.array([np.correlate(row, shape, mode="same") for row in rows])


def _score(slope: Floats, curve: Floats) -> Floats:
    share = slope / np.maximum(curve, 1e-300)
    return np.where(share >= MIN_SCORED_SHARE, slope / np.sqrt(np.maximum(curve, 1e-300)), 0.0)


@lru_cache(maxsize=4)
def _levels(n: int) -> tuple[tuple[float, tuple[Floats, ...]], ...]:
    """Return the lengths of humps, with their power around a bin, and half a bin beside it."""
    found = []
    length = n / 4
    while length >= MIN_ENVELOPE_POSITIONS:
        wide = n / (np.pi * length)
        reach = int(min(np.ceil(4 * wide) + 3, n // 2 - 2))
        shifts = (0.0, 0.5) if wide < 2 else (0.0,)
        shapes = []
        for shift in shifts:
            middle = n // 2
            power = stationary(
                ["hump"], hump_covariance(n, (middle + shift) / 2, length, "normal")
            ).power[:, 0]
            shapes.append(power[middle - 1 - reach : middle + reach])
        found.append((length, tuple(shapes)))
        length /= 2
    return tuple(found)


def hump_covariance(n: int, turns: float, length: float, kind: str) -> Floats:
    """Return the covariance of a hump by offset: ``[n, 1]``."""
    lag = np.arange(n, dtype=np.float64)
    angle = 2 * np.pi * turns / n
    if kind == "normal":
        found = np.cos(angle * lag) * np.exp(-0.5 * np.square(lag / length))
    elif kind == "exponential":
        found = np.cos(angle * lag) * np.exp(-lag / length)
    else:  # the autocorrelation of an AR(2) process
        radius = np.exp(-1 / length)
        lean = (1 - radius**2) / (1 + radius**2) / np.tan(angle)
        found = (np.cos(angle * lag) + lean * np.sin(angle * lag)) * radius**lag
    return found[:, None]


def hump_scores(power: Floats, columns: Floats, mean: Floats) -> list[tuple[float, Floats, Floats]]:
    """Return, for each length, turns ``[t]`` of humps and their scores ``[r, t]``."""
    n = power.shape[1] + 1
    slope = 0.5 * columns * (power - mean) / np.square(mean)
    curve = np.broadcast_to(0.5 * columns / np.square(mean), power.shape)
    found = []
    for length, shapes in _levels(n):
        spread = n / (2 * np.pi * length)
        turns, scores = [], []
        for shift, shape in enumerate(shapes):
            at = (np.arange(1, n) + 0.5 * shift) / 2
            inside = (at >= 2 + 3 * spread) & (at <= n / 2 - spread)
            first = _correlated(slope, shape)[:, inside]
            second = _correlated(curve, np.square(shape))[:, inside]
            turns.append(at[inside])
            scores.append(_score(first, second))
        if sum(map(len, turns)):
            found.append((length, np.concatenate(turns), np.concatenate(scores, axis=1)))
    return found


def bar(largest: Floats, level: float) -> float:
    """Return what the largest score of noise exceeds with a probability, by Gumbel's law.

    59 draws do not reach the tail themselves.
    """
    scale = np.sqrt(6) / np.pi * largest.std()
    return float(largest.mean() - np.euler_gamma * scale - scale * np.log(-np.log1p(-level)))


def tail(score: float, largest: Floats) -> float:
    """Return how likely the largest score of noise reaches one, by the same law."""
    scale = np.sqrt(6) / np.pi * float(largest.std())
    if not scale > 0:
        return 1.0 if score <= largest.mean() else MAX_LINE_P
    above = (score - largest.mean()) / scale + np.euler_gamma
    return float(-np.expm1(-np.exp(-above)))
