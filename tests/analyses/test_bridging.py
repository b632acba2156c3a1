"""Missing rows are predicted where a rule holds, and not where it does not."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from made_tables import as_table, gaussian, patches, rotation, smooth, walk, waves

from posprobe.analyses.composition.bridging import bridging, fit_process_predictor
from posprobe.analyses.composition.mixture import cosine_power
from posprobe.analyses.composition.waves import find_waves, row_covariance
from posprobe.analyses.result import as_block
from posprobe.families import load
from posprobe.figures.common import FigureFormat
from posprobe.figures.fits import bridging_figure
from posprobe.layouts import Grid

# --- tables that suit a rule ---


def test_a_straight_line_is_bridged_by_linear_interpolation() -> None:
    bridges = bridging(np.outer(np.arange(80.0), [1.0, -2.0, 0.5]) + 3)
    np.testing.assert_allclose(bridges.r2["linear"], 1, atol=1e-12)
    # Beyond the ends it repeats the last row: closed form for the last quarter of a line.
    n, quarter = 80, 20
    known_rows = np.arange(n - quarter)
    predicted_rows = np.arange(n - quarter, n)
    expected = (
        1
        - ((predicted_rows - known_rows[-1]) ** 2).sum()
        / ((predicted_rows - known_rows.mean()) ** 2).sum()
    )
    assert bridges.beyond["linear"][1] == pytest.approx(expected, abs=1e-12)


def test_rotations_are_bridged_in_noise_of_equal_variance() -> None:
    table = waves(400, [11.0, 37.0]) @ rotation(32, 1)[:4] + 0.25 * gaussian(400, 32, 5)
    bridges = bridging(table)
    wide = bridges.gaps >= 16
    assert (bridges.r2["waves"][wide] > bridges.r2["linear"][wide] + 0.3).all()
    assert (bridges.r2["waves"][wide] > bridges.r2["smooth"][wide] + 0.3).all()


def test_a_walk_is_bridged_with_the_error_of_a_brownian_bridge() -> None:
    n, gap = 256, 32
    errors = []
    for seed in range(4):
        bridges = bridging(walk(n, 64, seed))
        best = max(bridges.r2[rule][-1] for rule in ("shift",))
        assert bridges.r2["linear"][-1] > best
        assert bridges.r2["smooth"][-1] == pytest.approx(
            bridges.r2["linear"][-1], abs=0.03
        )
        errors.append(1 - bridges.r2["linear"][bridges.gaps.tolist().index(gap)])
    # Variance of a bridge over gap + 1 steps, averaged over its rows: (gap + 2) / 6 per column. A
    # walk's is n / 6 about its mean, less for the blocks near the middle.
    assert np.mean(errors) == pytest.approx((gap + 2) / n, rel=0.5)


def test_a_smooth_curve_is_bridged_to_about_its_length_and_no_further() -> None:
    bridges = bridging(smooth(400, 48, 15))
    by_gap = dict(zip(bridges.gaps.tolist(), bridges.r2["smooth"], strict=True))
    assert by_gap[16] > 0.95
    assert max(values[-1] for values in bridges.r2.values()) < 0.6


# --- independent computations ---


def test_missing_rows_are_the_mean_of_a_gaussian_process() -> None:
    curve = smooth(91, 3, 6) + 0.1 * gaussian(91, 3, 1)
    curve -= curve.mean(axis=0)
    missing = np.zeros(91, dtype=bool)
    missing[30:41] = missing[60] = missing[90] = True
    positions = np.arange(91)
    kernel = np.exp(-np.abs(positions[:, None] - positions) / 7) + 0.1 * np.eye(91)
    mean = curve[~missing].mean(axis=0)
    weights = np.linalg.solve(kernel[np.ix_(~missing, ~missing)], curve[~missing] - mean)
    expected = kernel[np.ix_(missing, ~missing)] @ weights + mean
    predicted = fit_process_predictor(kernel, curve)(missing)
    np.testing.assert_allclose(predicted, expected, atol=1e-6)


def test_the_covariance_of_a_fit_has_its_spectrum() -> None:
    from scipy.fft import dct

    curve = walk(90, 5) + waves(90, [7.0, 11.0], noise=0.3) @ gaussian(4, 5)
    points = curve - curve.mean(axis=0)
    mixture, _ = find_waves(points, cosine_power(points), 0)
    assert mixture.waves
    basis = dct(np.eye(90), axis=0, norm="ortho")[1:]
    total = row_covariance(mixture, waves=True)
    stationary = mixture.fit.mean.copy()
    # Lines keep their fitted phases; the covariance is the mean over all phases.
    for k, wave in enumerate(mixture.waves):
        if wave.is_line:
            is_member = mixture.wave_indices == k
            stationary -= (
                mixture.fit.components.power[:, is_member]
                @ mixture.fit.weights[is_member]
            )
            total -= (
                mixture.fit.weights[is_member].sum()
                / 90
                * np.cos(
                    2
                    * np.pi
                    * wave.turns
                    / 90
                    * np.subtract.outer(np.arange(90), np.arange(90))
                )
            )
    spectrum = np.einsum("ks,st,kt->k", basis, total, basis)
    np.testing.assert_allclose(spectrum, np.maximum(stationary, 0), atol=1e-9)


# --- laws ---


def test_every_gap_has_known_rows_on_both_sides() -> None:
    from posprobe.analyses.composition.bridging import _choose_folds

    for n in (8, 9, 14, 33, 64, 100, 382, 1019):
        gaps, folds = _choose_folds(n)
        assert gaps[0] == 1
        assert gaps[-1] == n // 4
        indices = set()
        for fold in folds:
            edges = np.flatnonzero(np.diff(np.concatenate([[-1], fold, [-1]])))
            for start, stop in pairwise(edges.tolist()):
                index = fold[start]
                if index < 0:
                    assert (
                        start == 0 or stop == n or stop - start >= gaps[fold[start - 1]]
                    )
                    continue
                indices.add(int(index))
                if index < len(gaps):
                    assert stop - start == gaps[index]
                    assert start >= 1
                    assert stop <= n - 1
                else:
                    assert (start, stop) in {(0, n // 4), (n - n // 4, n)}
        assert indices == set(range(len(gaps) + 2))


# --- real tables ---


def test_minilm_is_bridged_by_rotations_and_not_by_a_smooth_curve() -> None:
    bridges = bridging(load("sample:all-minilm-l6-v2")[128:510])
    gap_index = bridges.gaps.tolist().index(16)
    assert bridges.r2["linear"][gap_index] < 0.3
    assert bridges.r2["smooth"][gap_index] < 0.4
    assert bridges.r2["waves"][gap_index] > 0.9
    assert bridges.beyond["waves"][2] > 0.4


# --- undefined results ---


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


def test_a_long_table_is_cut_to_its_middle_rows_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As an attribute of its package, this name is the function.
    module = import_module("posprobe.analyses.composition.bridging")
    monkeypatch.setattr(module, "MAX_BRIDGING_ROWS", 100)
    table = walk(151, 8)
    bridges = bridging(table)
    assert (bridges.first, bridges.stop) == (25, 125)
    assert "longer than 100" in as_block(bridges)["undefined"]["rows"]
    # The rounding of sums depends on the memory layout of the rows.
    expected = bridging(table[25:125]).r2["linear"]
    np.testing.assert_allclose(bridges.r2["linear"], expected, rtol=1e-12)


def test_panels_of_a_grid_are_titled_by_axis() -> None:
    figure = bridging_figure(
        FigureFormat(3.3, 9.0), {"patches": bridging(patches(9, 9, 8))}, {}
    )
    assert [ax.get_title() for ax in figure.axes] == ["rows", "columns"]
