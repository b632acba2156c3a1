"""Spectrograms against other libraries, planted drift and trained tables."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal
from made_tables import as_table, gaussian, rotation, walk, waves
from matplotlib.figure import Figure

import posprobe as pp
from posprobe.analyses.descriptive.spectrum import spectrogram
from posprobe.analyses.result import as_block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


@cache
def minilm() -> Any:
    return pp.load("sample:all-minilm-l6-v2")


def chirp(n: int, first: float, last: float) -> Floats:
    """A circle whose frequency moves evenly from one value to another."""
    t = np.arange(n)
    angle = 2 * np.pi * (first * t + (last - first) * t**2 / (2 * n))
    return np.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1))


# --- spectrogram ---


def test_segment_power_is_that_of_scipy_s_periodogram() -> None:
    x = walk(100, 3) + gaussian(100, 3)
    segments = spectrogram(as_table(x)[3:])
    taper = np.hanning(length := 32)
    np.testing.assert_array_equal(segments.center, 3 + 15.5 + 8 * np.arange(9))
    for k, row in enumerate(segments.power):
        segment = scipy.signal.detrend(x[3 + 8 * k : 3 + 8 * k + length], axis=0)
        frequency, density = scipy.signal.periodogram(
            segment, window=taper, detrend=False, axis=0, scaling="density"
        )
        np.testing.assert_allclose(segments.frequency, frequency)
        np.testing.assert_allclose(
            row, density.sum(axis=1) / length, rtol=1e-9, atol=1e-12
        )


def test_a_drifting_line_is_followed_with_its_drift() -> None:
    segments = spectrogram(chirp(512, 0.12, 0.18) @ rotation(2))
    expected = 0.12 + 0.06 * segments.center / 512
    np.testing.assert_allclose(segments.fastest, expected, rtol=0.005)
    np.testing.assert_array_equal(segments.strongest, segments.fastest)
    low, middle, high = np.percentile(expected, [10, 50, 90])
    assert segments.drift == pytest.approx((high - low) / middle, rel=0.02)


def test_the_fastest_line_is_not_the_strongest() -> None:
    lines = (3, 12.0), (1, 4.0), (0.8, 2.5)
    x = np.concatenate([size * waves(512, [period]) for size, period in lines], axis=1)
    segments = spectrogram(x)
    np.testing.assert_allclose(1 / segments.strongest, 12, rtol=0.01)
    np.testing.assert_allclose(
        1 / segments.fastest, 4, rtol=0.01
    )  # 2.5 has a 14th of the power


def test_a_line_in_a_third_of_the_table_does_not_drift() -> None:
    x = waves(400, [6.0]) * (np.arange(400) < 130)[:, None] + 0.3 * gaussian(400, 2)
    segments = spectrogram(x)
    assert 2 < np.count_nonzero(~np.isnan(segments.fastest)) < len(segments.fastest) / 2
    assert segments.drift is None
    assert "segments show a line" in segments.partly["drift"]
    assert as_block(segments)["fastest_period_p10_p50_p90"] is not None


def test_minilm_s_fastest_line_bends() -> None:
    """Its two halves seem to have periods 5.7 and 6.5; the second sweeps from one to the other."""
    segments = spectrogram(minilm())
    followed = np.interp([160, 200, 320, 460], segments.center, segments.fastest)
    np.testing.assert_allclose(1 / followed, [5.7, 5.7, 6.6, 5.6], atol=0.1)
    assert segments.drift == pytest.approx(0.153, abs=0.002)
    assert segments.length == 64


@pytest.mark.parametrize("d", [2, 16, 200])
def test_noise_and_walks_show_no_line(d: int) -> None:
    for seed in range(3):
        for x in (gaussian(300, d, seed), walk(300, d, seed)):
            segments = spectrogram(x)
            assert segments.drift is None
            assert np.isnan(segments.fastest).mean() > 0.9
            assert "above red noise" in segments.partly["drift"]


@pytest.mark.parametrize(("n", "length"), [(64, 32), (300, 36), (4096, 256)])
def test_the_segment_follows_the_table(n: int, length: int) -> None:
    segments = spectrogram(gaussian(n, 1))
    assert segments.length == length
    assert segments.step == length // 4


def test_a_table_constant_in_part_has_a_spectrogram() -> None:
    x = waves(200, [5.0]) * (np.arange(200) < 100)[:, None]
    segments = spectrogram(x)
    assert np.isnan(segments.fastest[-2:]).all()
    assert segments.power[-2:].sum() == 0
    np.testing.assert_allclose(1 / segments.fastest[:6], 5, rtol=0.01)
    json.dumps(as_block(segments), allow_nan=False)


# --- figures ---


def test_the_spectrogram_is_drawn_over_position_with_its_line() -> None:
    result: Any = spectrogram(minilm()[128:510])
    ax: Any = result.plot(Figure().add_subplot())
    (image,) = ax.images
    left, right, low, high = image.get_extent()
    assert left == result.center[0] - result.step / 2
    assert right == result.center[-1] + result.step / 2
    assert low < 0 < 0.5 < high
    assert image.get_array().shape == result.power.T.shape
    assert image.get_array().max() == pytest.approx(0)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), result.fastest)
    assert not spectrogram(walk(100, 30)).plot(Figure().add_subplot()).lines
