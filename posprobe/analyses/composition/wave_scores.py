"""Scores of lines and humps beside a fit of the rest of a spectrum, and the law of the largest.

A score is the slope of the likelihood in the share of a wave, in standard errors.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from posprobe.analyses.composition.dictionary import stationary_components
from posprobe.arrays import Floats

#: Probability that a line of noise passes: at this level none of 40 smooth tables of few columns
#: has a line, at 0.01 two of six had.
MAX_LINE_P = 0.002
#: Fewest turns of a line; a smooth curve bends once or twice.
MIN_LINE_TURNS = 1.75
#: Step of the search in turns, an eighth of a line's width of two turns.
LINE_GRID_STEP_TURNS = 0.25
#: Two lines closer than this, in turns, are one.
MIN_LINE_SPACING_TURNS = 0.6
#: Bins on each side that a line's power is collected from: 95 % of it or more, wherever between
#: bins it lies.
LINE_SIDE_BINS = 8
#: Bins of the median that guards a line against a bad fit around it. A line fills fewer than half
#: of them.
GUARD_BINS = 15
#: A wave with less than this share of the variance does not matter: deep tails of smooth spectra
#: are full of small waves that are certain.
MIN_SCORED_SHARE = 0.005
#: Shortest envelope of a hump, in positions. Shorter ones fill the whole spectrum, which kernels
#: without a period explain.
MIN_ENVELOPE_POSITIONS = 3.0


def transform_waves(turns: Floats, bins: Floats, n: int) -> NDArray[np.complex128]:
    """Return the cosine transform of ``exp(2 pi i t s / n)`` in bins from 1 on; both broadcast."""

    def geometric_sum(angle: Floats) -> NDArray[np.complex128]:
        half = angle / 2
        sine = np.sin(half)
        is_small = np.abs(sine) < 1e-9
        limit = n * np.cos(n * half) / np.cos(half)
        ratio = np.where(
            is_small, limit, np.sin(n * half) / np.where(is_small, 1.0, sine)
        )
        return np.asarray(np.exp(1j * (n - 1) * half) * ratio)

    wave_angle, bin_angle = 2 * np.pi * turns / n, np.pi * bins / n
    half_step = np.exp(0.5j * bin_angle)
    total = half_step * geometric_sum(wave_angle + bin_angle)
    total = total + half_step.conj() * geometric_sum(wave_angle - bin_angle)
    return np.asarray(total / np.sqrt(2 * n))


@lru_cache(maxsize=4)
def line_grid(n: int) -> tuple[Floats, NDArray[np.intp], Floats]:
    """Return turns ``[t]`` of lines, and their bins from 0 and power there, ``[t, w]`` each."""
    turns = np.arange(
        MIN_LINE_TURNS, n / 2 - MIN_LINE_SPACING_TURNS, LINE_GRID_STEP_TURNS
    )
    nearest_bins = np.rint(2 * turns)[:, None].astype(np.intp)
    bins = nearest_bins + np.arange(-LINE_SIDE_BINS, LINE_SIDE_BINS + 1)
    is_inside = (bins >= 1) & (bins < n)
    power = np.square(np.abs(transform_waves(turns[:, None], bins.astype(float), n)))
    mean = np.square(np.abs(transform_waves(turns, np.zeros_like(turns), n))) / 2
    power = np.where(is_inside, power / (n - mean)[:, None], 0.0)
    return turns, np.clip(bins - 1, 0, n - 2), power


def line_scores(power: Floats, columns: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return the scores of lines in spectra ``[r, n - 1]``, and a share of 1 in standard errors.

    Each is ``[r, t]``; the score is 0 where the share is too small to matter.
    """
    n = power.shape[1] + 1
    _, bins, line_power = line_grid(n)
    guard = mean * np.maximum(1.0, _local_medians(power / mean))
    slope = 0.5 * columns * (power - guard) / np.square(guard)
    curvature = 0.5 * columns / np.square(guard)
    total_slope, total_curvature = np.zeros((2, len(power), len(bins)))
    for side in range(bins.shape[1]):
        total_slope += slope[:, bins[:, side]] * line_power[:, side]
        total_curvature += curvature[:, bins[:, side]] * np.square(line_power[:, side])
    return _share_scores(total_slope, total_curvature), np.sqrt(total_curvature)


def _local_medians(ratio: Floats) -> Floats:
    """Return medians of `GUARD_BINS` neighbours in ``[r, k]``; ends repeat the last value."""
    padded = np.pad(ratio, ((0, 0), (GUARD_BINS // 2, GUARD_BINS // 2)), mode="edge")
    windows = np.array(sliding_window_view(padded, GUARD_BINS, axis=1))
    windows.partition(GUARD_BINS // 2)
    return np.asarray(windows[..., GUARD_BINS // 2])


def _correlate_rows(rows: Floats, shape: Floats) -> Floats:
    """Correlate each row with a shape of odd length, centred on each bin."""
    return np.array([np.correlate(row, shape, mode="same") for row in rows])


def _share_scores(slope: Floats, curvature: Floats) -> Floats:
    share = slope / np.maximum(curvature, 1e-300)
    score = slope / np.sqrt(np.maximum(curvature, 1e-300))
    return np.where(share >= MIN_SCORED_SHARE, score, 0.0)


@lru_cache(maxsize=4)
def _hump_shapes(n: int) -> tuple[tuple[float, tuple[Floats, ...]], ...]:
    """Return the lengths of humps, with their power around a bin, and half a bin beside it."""
    shapes_by_length = []
    length = n / 4
    while length >= MIN_ENVELOPE_POSITIONS:
        width = n / (np.pi * length)
        reach = int(min(np.ceil(4 * width) + 3, n // 2 - 2))
        middle = n // 2
        shapes = []
        for shift in (0.0, 0.5) if width < 2 else (0.0,):
            covariance = hump_covariance(n, (middle + shift) / 2, length, "normal")
            power = stationary_components(["hump"], covariance).power[:, 0]
            shapes.append(power[middle - 1 - reach : middle + reach])
        shapes_by_length.append((length, tuple(shapes)))
        length /= 2
    return tuple(shapes_by_length)


def hump_covariance(n: int, turns: float, length: float, kind: str) -> Floats:
    """Return the covariance of a hump by offset: ``[n, 1]``."""
    lag = np.arange(n, dtype=np.float64)
    angle = 2 * np.pi * turns / n
    if kind == "normal":
        covariance = np.cos(angle * lag) * np.exp(-0.5 * np.square(lag / length))
    elif kind == "exponential":
        covariance = np.cos(angle * lag) * np.exp(-lag / length)
    else:  # the autocorrelation of an AR(2) process
        radius = np.exp(-1 / length)
        sine_weight = (1 - radius**2) / (1 + radius**2) / np.tan(angle)
        covariance = (
            np.cos(angle * lag) + sine_weight * np.sin(angle * lag)
        ) * radius**lag
    return covariance[:, None]


def hump_scores(
    power: Floats, columns: Floats, mean: Floats
) -> list[tuple[float, Floats, Floats]]:
    """Return, for each length, turns ``[t]`` of humps and their scores ``[r, t]``."""
    n = power.shape[1] + 1
    slope = 0.5 * columns * (power - mean) / np.square(mean)
    curvature = np.broadcast_to(0.5 * columns / np.square(mean), power.shape)
    scores_by_length = []
    for length, shapes in _hump_shapes(n):
        width = n / (2 * np.pi * length)
        turns, scores = [], []
        for shift, shape in enumerate(shapes):
            bin_turns = (np.arange(1, n) + 0.5 * shift) / 2
            is_inside = (bin_turns >= 2 + 3 * width) & (bin_turns <= n / 2 - width)
            total_slope = _correlate_rows(slope, shape)[:, is_inside]
            total_curvature = _correlate_rows(curvature, np.square(shape))[:, is_inside]
            turns.append(bin_turns[is_inside])
            scores.append(_share_scores(total_slope, total_curvature))
        if sum(map(len, turns)):
            all_scores = np.concatenate(scores, axis=1)
            scores_by_length.append((length, np.concatenate(turns), all_scores))
    return scores_by_length
