"""Spectrogram and Gram transform: other libraries, planted drift, exact identities."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal
from hypothesis import given, settings, strategies as st
from made_tables import gaussian, rotation, walk, waves
from matplotlib.figure import Figure

import posprobe as pp
from posprobe.analyses.result import as_block
from posprobe.analyses.sequences.spectrum import CORNER, gram_dct, spectrogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

few = settings(max_examples=20, deadline=None, derandomize=True, database=None)
SEEDS = st.integers(0, 2**31)


@cache
def minilm() -> Any:
    return pp.load("sample:all-minilm-l6-v2")


def chirp(n: int, first: float, last: float) -> Floats:
    """A circle whose frequency moves evenly from one value to another."""
    t = np.arange(n)
    angle = 2 * np.pi * (first * t + (last - first) * t**2 / (2 * n))
    return np.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1))


# --- spectrogram ---


@pytest.mark.parametrize("length", [32, 33])
def test_power_is_that_of_scipy_s_transform_of_each_segment(length: int) -> None:
    x = walk(100, 3) + gaussian(100, 3)
    found = spectrogram(x, length=length, step=9)
    taper = np.hanning(length)
    for k, row in enumerate(found.power):
        segment = scipy.signal.detrend(x[9 * k : 9 * k + length], axis=0)
        frequency, density = scipy.signal.periodogram(
            segment, window=taper, detrend=False, axis=0, scaling="density"
        )
        np.testing.assert_allclose(found.frequency, frequency)
        np.testing.assert_allclose(row, density.sum(axis=1) / length, rtol=1e-9, atol=1e-12)
    assert len(found.power) == (100 - length) // 9 + 1


@few
@given(SEEDS, st.integers(1, 5), st.integers(8, 30), st.integers(1, 9))
def test_each_segment_s_powers_add_up_to_its_windowed_variance(
    seed: int, d: int, length: int, step: int
) -> None:
    x = gaussian(40, d, seed)
    found = spectrogram(x, length=length, step=step)
    taper = np.hanning(length)[:, None]
    for k, row in enumerate(found.power):
        segment = scipy.signal.detrend(x[step * k : step * k + length], axis=0)
        expected = np.square(segment * taper).sum() / np.square(taper).sum()
        assert row.sum() == pytest.approx(expected, rel=1e-9)


def test_segments_lie_where_they_say() -> None:
    table = minilm()[100:300]
    found = spectrogram(table, length=40, step=25)
    assert found.center[0] == 119.5  # rows 100 to 139
    assert np.diff(found.center) == pytest.approx(25)
    assert found.center[-1] + 20 <= 300
    np.testing.assert_allclose(found.power[2], spectrogram(minilm()[150:190], length=40).power[0])


def test_a_drifting_line_is_followed() -> None:
    found = spectrogram(chirp(512, 0.12, 0.18) @ rotation(2))
    expected = 0.12 + 0.06 * found.center / 512
    np.testing.assert_allclose(found.fastest, expected, rtol=0.005)
    np.testing.assert_array_equal(found.strongest, found.fastest)
    low, middle, high = np.percentile(expected, [10, 50, 90])
    assert found.drift == pytest.approx((high - low) / middle, rel=0.02)


def test_the_fastest_line_is_not_the_strongest() -> None:
    lines = (3, 12.0), (1, 4.0), (0.8, 2.5)
    x = np.concatenate([size * waves(256, [period]) for size, period in lines], axis=1)
    found = spectrogram(x, length=64)
    np.testing.assert_allclose(1 / found.strongest, 12, rtol=0.01)
    np.testing.assert_allclose(1 / found.fastest, 4, rtol=0.01)  # 2.5 has a 14th of the power


def test_two_periods_in_a_segment_are_a_trend() -> None:
    x = waves(256, [32.0], noise=0.01)
    assert np.isnan(spectrogram(x, length=64).strongest).all()
    np.testing.assert_allclose(1 / spectrogram(x, length=128).strongest, 32, rtol=0.01)


def test_a_line_in_a_third_of_the_table_does_not_drift() -> None:
    x = waves(400, [6.0]) * (np.arange(400) < 130)[:, None] + 0.3 * gaussian(400, 2)
    found = spectrogram(x)
    assert 2 < np.count_nonzero(~np.isnan(found.fastest)) < len(found.fastest) / 2
    assert found.drift is None
    assert "segments show a line" in found.partly["drift"]
    assert as_block(found)["fastest_period_p10_p50_p90"] is not None


def test_minilm_s_fastest_line_bends() -> None:
    """Its two halves seem to have periods 5.7 and 6.5; the second sweeps from one to the other."""
    for rows, bin_, period in (((1, 127), 22, 5.7), ((128, 510), 59, 6.5)):
        table = minilm()[slice(*rows)]
        whole = spectrogram(table, length=len(table)).power[0]
        fast = len(table) // 8
        assert fast + np.argmax(whole[fast:]) == bin_
        assert len(table) / bin_ == pytest.approx(period, abs=0.05)
    found = spectrogram(minilm())
    followed = np.interp([160, 200, 320, 460], found.center, found.fastest)
    np.testing.assert_allclose(1 / followed, [5.7, 5.7, 6.6, 5.6], atol=0.1)
    assert found.drift == pytest.approx(0.153, abs=0.002)
    assert found.length == 64


@pytest.mark.parametrize("d", [2, 16, 200])
def test_noise_and_walks_show_no_line(d: int) -> None:
    for seed in range(3):
        for x in (gaussian(300, d, seed), walk(300, d, seed)):
            found = spectrogram(x)
            assert found.drift is None
            assert np.isnan(found.fastest).mean() > 0.9
            assert "above red noise" in found.partly["drift"]


@pytest.mark.parametrize(("n", "length"), [(64, 32), (300, 36), (4096, 256)])
def test_the_segment_follows_the_table(n: int, length: int) -> None:
    found = spectrogram(gaussian(n, 1))
    assert found.length == length
    assert found.step == length // 4


@pytest.mark.parametrize(
    "options", [{"length": 7}, {"length": 65}, {"length": 16, "step": 0}, {"step": -3}]
)
def test_impossible_segments_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="between 8 and 64"):
        spectrogram(gaussian(64, 2), **options)


def test_a_table_constant_in_part_has_a_spectrogram() -> None:
    x = waves(200, [5.0]) * (np.arange(200) < 100)[:, None]
    found = spectrogram(x, length=40, step=40)
    assert np.isnan(found.fastest[-2:]).all()
    assert found.power[-2:].sum() == 0
    np.testing.assert_allclose(1 / found.fastest[:2], 5, rtol=0.01)
    json.dumps(as_block(found), allow_nan=False)


def test_one_segment_does_not_drift() -> None:
    found = spectrogram(waves(64, [5.0]), length=64)
    assert found.drift is None
    assert found.partly == {"drift": "a single segment shows no drift"}
    periods: Any = as_block(found)["fastest_period_p10_p50_p90"]
    np.testing.assert_allclose(periods, 5, rtol=0.01)


# --- the Gram matrix's transform ---


@few
@given(SEEDS, st.integers(20, 60), st.integers(1, 80), st.sampled_from([walk, gaussian]))
def test_the_transform_is_the_two_sided_product(seed: int, n: int, d: int, make: Any) -> None:
    x = make(n, d, seed)
    centered = x - x.mean(axis=0)
    units = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    gram = units @ units.T
    basis = scipy.fft.dct(np.eye(n), type=2, norm="ortho", axis=0).T  # columns are cosines
    full = basis.T @ gram @ basis
    found = gram_dct(x)
    kept = min(n, CORNER)
    np.testing.assert_allclose(found.corner, full[:kept, :kept], atol=1e-12)
    np.testing.assert_allclose(full, scipy.fft.dctn(gram, norm="ortho"), atol=1e-12)
    share = np.square(full[:10, :10]).sum() / np.square(full).sum()
    assert found.share == pytest.approx(share, abs=1e-12)
    assert gram_dct(x, cosines=gram).share == pytest.approx(share, abs=1e-12)
    assert gram_dct(x @ rotation(d, seed) - 3).share == pytest.approx(share, abs=1e-9)


def test_shares_of_known_tables() -> None:
    assert gram_dct(pp.sinusoidal(512, 768)).share == pytest.approx(0.911, abs=5e-4)
    assert gram_dct(minilm()).share == pytest.approx(0.333, abs=5e-4)


def test_a_walk_is_slower_than_any_table() -> None:
    """The warning: smoothness alone scores high."""
    for seed in range(3):
        share: Any = gram_dct(walk(512, 384, seed)).share
        assert share > 0.99


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
