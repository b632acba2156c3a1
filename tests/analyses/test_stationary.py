"""The falling kernel, against dense linear algebra and known processes, and lines against it."""

from __future__ import annotations

import numpy as np
import pytest
from made_answers import smooth
from made_tables import gaussian, rotation, walk, waves
from numpy.typing import NDArray

from posprobe.analyses.grids.grid_model import fit_surface
from posprobe.analyses.linear import (
    grid_distances,
    leading,
    offset_sums,
    root,
    toeplitz,
)
from posprobe.analyses.sequences.mixture import non_negative
from posprobe.analyses.sequences.planes import find_rotations
from posprobe.analyses.tables.processes import fit_kernel, fit_process
from posprobe.layouts import Grid, Sequence

Floats = NDArray[np.float64]


def centred(values: Floats) -> Floats:
    return np.asarray(values - values.mean(axis=0))


def test_offset_sums_are_those_of_the_gram_matrix() -> None:
    values = gaussian(13, 4)
    gram = values @ values.T
    np.testing.assert_allclose(offset_sums(values), [np.trace(gram, k) for k in range(13)])


def test_least_squares_without_negative_coefficients_is_scipys() -> None:
    from scipy.optimize import nnls

    for seed in range(20):
        matrix, target = gaussian(30, 12, seed=seed), gaussian(30, 1, seed=100 + seed)[:, 0]
        np.testing.assert_allclose(non_negative(matrix, target), nnls(matrix, target)[0], atol=1e-8)


@pytest.mark.parametrize("length", [2.0, 5.0, 15.0])
def test_a_fitted_kernel_is_that_of_the_process(length: float) -> None:
    found = fit_kernel(centred(smooth(300, 400, length))).by_offset
    offset = np.arange(int(3 * length))
    expected = np.exp(-0.5 * (offset / length) ** 2)
    # Centring takes a constant away, which the fit cannot know.
    np.testing.assert_allclose(found[: len(offset)] / found[0], expected, atol=0.12)


def test_a_grid_s_kernel_is_that_of_the_field() -> None:
    distance = grid_distances(9, 12)
    values = root(np.exp(-distance / 2)) @ gaussian(108, 600)
    surface = fit_surface(centred(values), 9, 12)
    near = np.array([0, 1, 2, 4])
    for found in (surface[near, 0], surface[0, near]):
        np.testing.assert_allclose(found / found[0], np.exp(-near / 2), atol=0.12)


@pytest.mark.parametrize("shape", [(64,), (8, 8)])
def test_draws_have_the_correlation_of_the_table(shape: tuple[int, ...]) -> None:
    layout = Grid(*shape) if len(shape) == 2 else Sequence(64)
    distance = (
        grid_distances(*shape)
        if len(shape) == 2
        else np.abs(np.subtract.outer(np.arange(64.0), np.arange(64.0)))
    )
    values = root(np.exp(-0.5 * (distance / 2) ** 2)) @ gaussian(64, 200)
    process = fit_process(values, layout)
    gram = np.zeros((64, 64))
    for seed in range(90):
        drawn = centred(process.draw(np.random.default_rng(seed)).astype(np.float64))
        gram += drawn @ drawn.T / 90
    expected = centred(centred(np.exp(-0.5 * (distance / 2) ** 2)).T) * 200
    assert np.trace(gram) == pytest.approx(np.trace(expected), rel=0.1)
    assert np.corrcoef(gram.ravel(), expected.ravel())[0, 1] > 0.98


def test_roots_square_to_the_covariance_even_if_it_is_singular() -> None:
    for covariance in (toeplitz(0.5 ** np.arange(9.0)), np.ones((9, 9))):
        factor = root(covariance)
        np.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-6)


def test_leading_coordinates_hold_the_leading_variances() -> None:
    values = centred(walk(300, 200))
    singular = np.linalg.svd(values, compute_uv=False)[:24]
    found = np.linalg.norm(leading(values), axis=0)
    np.testing.assert_allclose(found[:12], singular[:12], rtol=1e-3)
    gram = leading(values) @ leading(values).T
    turned = leading(values @ rotation(200))
    np.testing.assert_allclose(turned @ turned.T, gram, atol=1e-6 * np.abs(gram).max())


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
    found = [line.period for line in find_rotations(centred(values), 0).rotations]
    assert found == pytest.approx(sorted(periods), rel=0.02)


@pytest.mark.parametrize("seed", [12, 20, 39])
def test_three_rotations_of_a_short_table_have_their_periods(seed: int) -> None:
    # The slowest turns four times, where the coarse fit of two waves may put it on either.
    periods = (3.7, np.sqrt(3.7 * 16), 16.0)
    values = waves(64, list(periods)) @ np.linalg.qr(gaussian(32, 6, seed=seed))[0].T
    values = centred(values)
    noise = gaussian(64, 32, seed=seed + 10)
    values += noise * np.sqrt(np.square(values).sum() / np.square(noise).sum())
    found = [line.period for line in find_rotations(centred(values), seed).rotations]
    assert found == pytest.approx(periods, rel=0.02)
