"""The additive model: its spectra against dense algebra, its shares against planted ones."""

from __future__ import annotations

import numpy as np
import pytest
from made_tables import gaussian, rotation, smooth, walk, waves
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.linalg import toeplitz

import posprobe as pp
from posprobe.analyses.composition.dictionary import dictionary
from posprobe.analyses.composition.grid_model import fit_surface
from posprobe.analyses.composition.mixture import (
    Bands,
    cosine_power,
    fit_components,
    floor_power,
    log_likelihood,
)
from posprobe.analyses.composition.planes import find_rotations
from posprobe.analyses.composition.power_draws import draw_powers
from posprobe.analyses.composition.processes import fit_kernel, fit_process
from posprobe.analyses.composition.wave_scores import transform_waves
from posprobe.analyses.composition.waves import (
    component_shares,
    find_waves,
    fit_lines,
    wave_shares,
)
from posprobe.analyses.linear import (
    covariance_root,
    grid_distances,
    leading_coordinates,
    offset_sums,
)
from posprobe.layouts import Grid, Sequence

Floats = NDArray[np.float64]


def centred(values: object) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    return np.asarray(rows - rows.mean(axis=0))


def autoregressive(n: int, d: int, period: float, memory: float, seed: int = 0) -> Floats:
    """Return noise with a preferred period whose phase is lost over `memory` rows."""
    radius, angle = np.exp(-1 / memory), 2 * np.pi / period
    noise = gaussian(n + 400, d, seed)
    rows_made = np.zeros_like(noise)
    for k in range(2, len(noise)):
        rows_made[k] = (
            2 * radius * np.cos(angle) * rows_made[k - 1]
            - radius**2 * rows_made[k - 2]
            + noise[k]
        )
    return rows_made[400:]


# --- spectra ---


@pytest.mark.parametrize("n", [17, 64])
def test_components_have_the_spectra_of_their_covariances(n: int) -> None:
    basis = dct(np.eye(n), axis=0, norm="ortho")[1:]
    components = dictionary(n)
    positions = np.arange(n)
    dense = [np.minimum.outer(positions, positions), np.outer(positions, positions)]
    dense += [toeplitz(column) for column in components.covariance.T[2:]]
    for covariance, power in zip(dense, components.power.T, strict=True):
        expected = np.einsum("ks,st,kt->k", basis, covariance, basis)
        np.testing.assert_allclose(power, expected / expected.sum(), atol=1e-9)
    assert components.power.sum(axis=0) == pytest.approx(1)


def test_transformed_waves_equal_scipy_s_cosine_transform() -> None:
    n, turns = 48, np.array([3.0, 7.3, 20.9])
    exact = dct(
        np.exp(2j * np.pi * np.outer(np.arange(n), turns) / n), axis=0, norm="ortho"
    )
    coefficients = transform_waves(turns, np.arange(n, dtype=np.float64)[:, None], n)
    np.testing.assert_allclose(coefficients[1:], exact[1:], atol=1e-12)


def test_lines_have_the_spectrum_of_the_waves_that_fit() -> None:
    points = centred(waves(64, [6.1, 9.7]) @ gaussian(4, 5))
    power, coefficients = fit_lines(points, [64 / 6.1, 64 / 9.7])
    angle = 2 * np.pi * np.arange(64) / 6.1
    first_wave = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ coefficients[0]
    expected = np.square(dct(first_wave, axis=0, norm="ortho")[1:]).sum(axis=1)
    np.testing.assert_allclose(power[:, 0], expected / expected.sum(), atol=1e-12)


def test_cosine_power_counts_independent_columns() -> None:
    for rank in (1, 4, 30):
        column_counts = cosine_power(
            centred(gaussian(400, rank, 1) @ rotation(40)[:rank])
        ).columns
        assert np.median(column_counts) == pytest.approx(rank, rel=0.35)


def test_draws_have_the_spectrum_of_the_fit() -> None:
    points = centred(smooth(96, 24, 3.0) + 0.5 * gaussian(96, 24, 1))
    power = cosine_power(points)
    start = np.full(len(dictionary(96).family), 0.01)
    best_fit = fit_components(
        power.share, power.columns, dictionary(96), Bands.split_bins(95), start
    )
    drawn_power = draw_powers(best_fit, power.columns, 400, np.random.default_rng(0))
    assert drawn_power.sum(axis=1) == pytest.approx(1)
    mean = best_fit.mean / best_fit.mean.sum()
    np.testing.assert_allclose(drawn_power.mean(axis=0)[:20], mean[:20], rtol=0.1)


def test_no_step_from_the_fit_is_more_likely() -> None:
    power = cosine_power(centred(walk(80, 12) + gaussian(80, 12, 3)))
    components, bands = dictionary(80), Bands.split_bins(79)
    best_fit = fit_components(
        power.share,
        power.columns,
        components,
        bands,
        np.full(len(components.family), 0.01),
    )
    observed, degrees = bands.mean(power.share), bands.mean(power.columns) * bands.sizes

    def of(weights: Floats) -> float:
        return log_likelihood(
            observed, degrees, floor_power(bands.mean(components.power @ weights))
        )

    best_likelihood = of(best_fit.weights)
    for k in range(len(best_fit.weights)):
        for factor in (0.9, 1.1):
            weights = best_fit.weights.copy()
            weights[k] = factor * weights[k] + 1e-4 * (factor > 1)
            assert of(weights) < best_likelihood + 0.05


# --- planted processes ---


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_planted_and_add_up(seed: int) -> None:
    n, d = 256, 64
    line = waves(n, [7.3]) @ rotation(d, seed)[:2]
    terms = [
        np.sqrt(share) * term / np.sqrt(np.square(term - term.mean(axis=0)).sum())
        for share, term in (
            (0.2, line),
            (0.5, smooth(n, d, 12.0, seed)),
            (0.3, gaussian(n, d, seed + 9)),
        )
    ]
    points = centred(sum(terms))
    power = cosine_power(points)
    mixture, _ = find_waves(points, power, seed)
    shares = component_shares(power, mixture.fit)
    assert shares.sum() == pytest.approx(1, abs=0.01)
    assert [round(n / wave.turns, 1) for wave in mixture.waves] == [7.3]
    assert wave_shares(power, mixture)[0] == pytest.approx(0.2, abs=0.02)
    components = mixture.fit.components
    assert shares[components.has_family("smooth", "slow")].sum() == pytest.approx(
        0.5, abs=0.05
    )
    assert shares[components.has_family("noise")].sum() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("columns", [2, 32])
def test_noise_with_a_preferred_period_does_not_rotate(columns: int) -> None:
    n_reported = 0
    for seed in range(3):
        noise = autoregressive(384, columns, 8.0, 24.0, seed) @ np.eye(columns, 64)
        noise = noise / noise.std() + 0.3 * gaussian(384, 64, seed)
        rotations = find_rotations(centred(noise), seed)
        assert not rotations.rotations
        n_reported += any(abs(hump.period - 8) < 1 for hump in rotations.humps)
    assert n_reported >= 2


@pytest.mark.parametrize("warp", [0.05, 0.2])
def test_a_circle_of_varying_pace_is_one_rotation(warp: float) -> None:
    n = 384
    clock = np.arange(n) + warp * n / (2 * np.pi) * np.sin(2 * np.pi * np.arange(n) / n)
    circle = np.stack(
        [np.cos(2 * np.pi * clock / 9), np.sin(2 * np.pi * clock / 9)], axis=1
    )
    values = circle @ rotation(32)[:2] + 0.1 * gaussian(n, 32)
    (rotation_found,) = find_rotations(centred(values), 0).rotations
    assert rotation_found.pace == "smooth"
    # The pace of the straight line through the planted phases.
    assert rotation_found.period == pytest.approx(
        9 / np.polyfit(np.arange(n), clock, 1)[0], rel=0.01
    )
    assert rotation_found.share == pytest.approx(1 / 1.32, abs=0.02)
    local = 9 / (1 + warp * np.cos(2 * np.pi * np.arange(n) / n))
    ends = tuple(np.quantile(local, [0.1, 0.9]))
    assert (rotation_found.fastest, rotation_found.slowest) == pytest.approx(
        ends, rel=0.02
    )


# --- invariances ---


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((64, 4)),
        np.outer(np.arange(64.0), np.ones(3)),
        np.eye(64),
        np.repeat(gaussian(8, 4), 8, axis=0),
        np.concatenate([gaussian(32, 4), gaussian(32, 4)[::-1]]),
        np.tile([[1.0], [-1.0]], (40, 2)),
        gaussian(15, 4),
        gaussian(64, 1),
    ],
    ids=[
        "zeros",
        "line",
        "one-hot",
        "blocks",
        "mirror",
        "alternating",
        "short",
        "one column",
    ],
)
def test_degenerate_tables_have_no_rotation(values: Floats) -> None:
    assert not find_rotations(centred(values), 0).rotations


# --- trained tables ---


def test_whisper_has_a_fixed_period_beside_others() -> None:
    rotations = find_rotations(
        centred(pp.load("sample:whisper-tiny-decoder").values[4:223]), 0
    )
    fixed = [rotation for rotation in rotations.rotations if rotation.pace == "fixed"]
    assert [rotation.period for rotation in fixed] == pytest.approx([42.4], rel=0.005)
    assert fixed[0].share == pytest.approx(0.134, abs=0.01)
    assert fixed[0].circularity == pytest.approx(0.88, abs=0.02)


# --- kernels against dense linear algebra and known processes ---


def test_offset_sums_are_those_of_the_gram_matrix() -> None:
    values = gaussian(13, 4)
    gram = values @ values.T
    np.testing.assert_allclose(
        offset_sums(values), [np.trace(gram, k) for k in range(13)]
    )


@pytest.mark.parametrize("length", [2.0, 5.0, 15.0])
def test_a_fitted_kernel_is_that_of_the_process(length: float) -> None:
    kernel = fit_kernel(centred(smooth(300, 400, length))).by_offset
    offset = np.arange(int(3 * length))
    expected = np.exp(-0.5 * (offset / length) ** 2)
    # Centring takes a constant away, which the fit cannot know.
    np.testing.assert_allclose(kernel[: len(offset)] / kernel[0], expected, atol=0.12)


def test_a_grid_s_kernel_is_that_of_the_field() -> None:
    distance = grid_distances(9, 12)
    values = covariance_root(np.exp(-distance / 2)) @ gaussian(108, 600)
    surface = fit_surface(centred(values), 9, 12)
    offsets = np.array([0, 1, 2, 4])
    for kernel in (surface[offsets, 0], surface[0, offsets]):
        np.testing.assert_allclose(kernel / kernel[0], np.exp(-offsets / 2), atol=0.12)


@pytest.mark.parametrize("shape", [(64,), (8, 8)])
def test_draws_have_the_correlation_of_the_table(shape: tuple[int, ...]) -> None:
    layout = Grid(*shape) if len(shape) == 2 else Sequence(64)
    distance = (
        grid_distances(*shape)
        if len(shape) == 2
        else np.abs(np.subtract.outer(np.arange(64.0), np.arange(64.0)))
    )
    values = covariance_root(np.exp(-0.5 * (distance / 2) ** 2)) @ gaussian(64, 200)
    process = fit_process(values, layout)
    gram = np.zeros((64, 64))
    for seed in range(90):
        drawn_rows = centred(process.draw(np.random.default_rng(seed)).astype(np.float64))
        gram += drawn_rows @ drawn_rows.T / 90
    expected = centred(centred(np.exp(-0.5 * (distance / 2) ** 2)).T) * 200
    assert np.trace(gram) == pytest.approx(np.trace(expected), rel=0.1)
    assert np.corrcoef(gram.ravel(), expected.ravel())[0, 1] > 0.98


def test_roots_square_to_the_covariance_even_if_it_is_singular() -> None:
    for covariance in (toeplitz(0.5 ** np.arange(9.0)), np.ones((9, 9))):
        factor = covariance_root(covariance)
        np.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-6)


def test_leading_coordinates_hold_the_leading_variances() -> None:
    values = centred(walk(300, 200))
    singular = np.linalg.svd(values, compute_uv=False)[:24]
    norms = np.linalg.norm(leading_coordinates(values), axis=0)
    np.testing.assert_allclose(norms[:12], singular[:12], rtol=1e-3)
    gram = leading_coordinates(values) @ leading_coordinates(values).T
    rotated = leading_coordinates(values @ rotation(200))
    np.testing.assert_allclose(rotated @ rotated.T, gram, atol=1e-6 * np.abs(gram).max())


# --- lines ---


@pytest.mark.parametrize(
    "periods", [(5.3,), (8.0, 32.0), (256 / 5, 4.0), (6.0, 18.0, 54.0)], ids=str
)
def test_rotations_are_found_whether_or_not_they_divide_the_table(
    periods: tuple[float, ...],
) -> None:
    values = centred(waves(256, list(periods)) @ rotation(2 * len(periods)))
    values = np.hstack([values, np.zeros((256, 30))])
    values += gaussian(256, values.shape[1], seed=1) * np.sqrt(
        np.square(values).sum() / 256 / values.shape[1]
    )
    periods_found = [line.period for line in find_rotations(centred(values), 0).rotations]
    assert periods_found == pytest.approx(sorted(periods), rel=0.02)


@pytest.mark.parametrize("seed", [12, 20, 39])
def test_three_rotations_of_a_short_table_have_their_periods(seed: int) -> None:
    # The slowest turns four times, where the coarse fit of two waves may put it on either.
    periods = (3.7, np.sqrt(3.7 * 16), 16.0)
    values = waves(64, list(periods)) @ np.linalg.qr(gaussian(32, 6, seed=seed))[0].T
    values = centred(values)
    noise = gaussian(64, 32, seed=seed + 10)
    values += noise * np.sqrt(np.square(values).sum() / np.square(noise).sum())
    periods_found = [
        line.period for line in find_rotations(centred(values), seed).rotations
    ]
    assert periods_found == pytest.approx(periods, rel=0.02)
