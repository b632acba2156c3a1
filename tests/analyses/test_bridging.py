"""Rows left out are predicted where a rule is right, and not where it is wrong."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from made_answers import smooth
from made_tables import as_table, gaussian, patches, rotation, walk, waves

from posprobe.analyses.composition.bridging import bridging, process
from posprobe.analyses.composition.mixture import cosine_power
from posprobe.analyses.composition.waves import covariance, find_waves
from posprobe.analyses.result import as_block
from posprobe.families import load
from posprobe.figures.common import Sheet
from posprobe.figures.fits import bridging_figure
from posprobe.layouts import Grid

# --- what each rule is made for ---


def test_a_straight_line_is_bridged_by_linear_interpolation() -> None:
    found = bridging(np.outer(np.arange(80.0), [1.0, -2.0, 0.5]) + 3)
    np.testing.assert_allclose(found.r2["linear"], 1, atol=1e-12)
    # Beyond the ends it repeats the last row: closed form for the last quarter of a line.
    n, quarter = 80, 20
    known = np.arange(n - quarter)
    ahead = np.arange(n - quarter, n)
    expected = 1 - ((ahead - known[-1]) ** 2).sum() / ((ahead - known.mean()) ** 2).sum()
    assert found.beyond["linear"][1] == pytest.approx(expected, abs=1e-12)


def test_rotations_are_bridged_in_noise_of_equal_variance() -> None:
    table = waves(400, [11.0, 37.0]) @ rotation(32, 1)[:4] + 0.25 * gaussian(400, 32, 5)
    found = bridging(table)
    wide = found.gaps >= 16
    assert (found.r2["waves"][wide] > found.r2["linear"][wide] + 0.3).all()
    assert (found.r2["waves"][wide] > found.r2["smooth"][wide] + 0.3).all()


def test_a_walk_is_bridged_by_the_straight_line_as_the_brownian_bridge_says() -> None:
    n, gap = 256, 32
    errors = []
    for seed in range(4):
        found = bridging(walk(n, 64, seed))
        best = max(found.r2[rule][-1] for rule in ("shift",))
        assert found.r2["linear"][-1] > best
        assert found.r2["smooth"][-1] == pytest.approx(found.r2["linear"][-1], abs=0.03)
        errors.append(1 - found.r2["linear"][found.gaps.tolist().index(gap)])
    # Variance of a bridge over gap + 1 steps, averaged over its rows: (gap + 2) / 6 per column. A
    # walk's is n / 6 about its mean, less for the blocks near the middle.
    assert np.mean(errors) == pytest.approx((gap + 2) / n, rel=0.5)


def test_a_smooth_curve_is_bridged_to_about_its_length_and_no_further() -> None:
    found = bridging(smooth(400, 48, 15))
    by_gap = dict(zip(found.gaps.tolist(), found.r2["smooth"], strict=True))
    assert by_gap[16] > 0.95
    assert max(values[-1] for values in found.r2.values()) < 0.6


# --- second computations ---


def test_missing_rows_are_the_mean_of_a_gaussian_process() -> None:
    curve = smooth(91, 3, 6) + 0.1 * gaussian(91, 3, 1)
    curve -= curve.mean(axis=0)
    missing = np.zeros(91, dtype=bool)
    missing[30:41] = missing[60] = missing[90] = True
    place = np.arange(91)
    kernel = np.exp(-np.abs(place[:, None] - place) / 7) + 0.1 * np.eye(91)
    mean = curve[~missing].mean(axis=0)
    weights = np.linalg.solve(kernel[np.ix_(~missing, ~missing)], curve[~missing] - mean)
    expected = kernel[np.ix_(missing, ~missing)] @ weights + mean
    found = process(kernel, curve)(missing)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_covariance_of_a_fit_has_its_spectrum() -> None:
    from scipy.fft import dct

    curve = walk(90, 5) + waves(90, [7.0, 11.0], noise=0.3) @ gaussian(4, 5)
    points = curve - curve.mean(axis=0)
    found, _ = find_waves(points, cosine_power(points), 0)
    assert found.waves
    basis = dct(np.eye(90), axis=0, norm="ortho")[1:]
    whole = covariance(found, waves=True)
    stationary = found.fit.mean.copy()
    # Lines have the phases that were found, and the covariance the mean of all phases.
    for k, wave in enumerate(found.waves):
        if wave.line:
            own = found.member == k
            stationary -= found.fit.components.power[:, own] @ found.fit.weights[own]
            whole -= (
                found.fit.weights[own].sum()
                / 90
                * np.cos(
                    2 * np.pi * wave.turns / 90 * np.subtract.outer(np.arange(90), np.arange(90))
                )
            )
    spectrum = np.einsum("ks,st,kt->k", basis, whole, basis)
    np.testing.assert_allclose(spectrum, np.maximum(stationary, 0), atol=1e-9)


# --- laws ---


def test_every_gap_has_known_rows_on_both_sides() -> None:
    from posprobe.analyses.composition.bridging import _folds

    for n in (8, 9, 14, 33, 64, 100, 382, 1019):
        gaps, folds = _folds(n)
        assert gaps[0] == 1
        assert gaps[-1] == n // 4
        seen = set()
        for fold in folds:
            edges = np.flatnonzero(np.diff(np.concatenate([[-1], fold, [-1]])))
            for first, stop in pairwise(edges.tolist()):
                index = fold[first]
                if index < 0:
                    assert first == 0 or stop == n or stop - first >= gaps[fold[first - 1]]
                    continue
                seen.add(int(index))
                if index < len(gaps):
                    assert stop - first == gaps[index]
                    assert first >= 1
                    assert stop <= n - 1
                else:
                    assert (first, stop) in {(0, n // 4), (n - n // 4, n)}
        assert seen == set(range(len(gaps) + 2))


# --- real tables ---


def test_minilm_is_bridged_by_rotations_and_not_by_a_smooth_curve() -> None:
    found = bridging(load("sample:all-minilm-l6-v2")[128:510])
    at = found.gaps.tolist().index(16)
    assert found.r2["linear"][at] < 0.3
    assert found.r2["smooth"][at] < 0.4
    assert found.r2["waves"][at] > 0.9
    assert found.beyond["waves"][2] > 0.4


# --- what is undefined ---


def test_a_grid_is_measured_along_its_axes() -> None:
    table = patches(12, 9, 16)
    summary = as_block(bridging(table))
    assert summary["r2"] is None
    assert "axes" in summary["undefined"]["r2"]
    assert summary["axes"] is not None
    cells = np.asarray(table).reshape(12, 9, 16)
    expected = as_block(bridging(cells.mean(axis=1)))
    assert summary["axes"]["rows"] == expected
    assert summary["axes"]["columns"]["gaps"] == [1, 2]
    low = as_block(bridging(as_table(gaussian(12, 4), Grid(2, 6))))
    assert low["axes"] is not None
    assert "fewer than 8 rows" in low["axes"]["rows"]["undefined"]["r2"]


def test_a_long_table_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package's own name for it is the function.
    module = import_module("posprobe.analyses.composition.bridging")
    monkeypatch.setattr(module, "MAX_ROWS", 100)
    table = walk(151, 8)
    found = bridging(table)
    assert (found.first, found.stop) == (25, 125)
    assert "longer than 100" in as_block(found)["undefined"]["rows"]
    # Sums are rounded as the rows happen to lie in memory.
    alone = bridging(table[25:125]).r2["linear"]
    np.testing.assert_allclose(found.r2["linear"], alone, rtol=1e-12)


def test_the_panels_of_a_grid_say_which_axis_they_are_of() -> None:
    figure = bridging_figure(Sheet(3.3, 9.0), {"patches": bridging(patches(9, 9, 8))}, {})
    assert [ax.get_title() for ax in figure.axes] == ["rows", "columns"]
