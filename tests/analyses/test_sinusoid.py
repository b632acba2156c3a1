"""A table beside the sinusoid: planted truth, regressions by other means, exact identities."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, strategies as st
from made_tables import as_table, gaussian, rotation, sinusoid, walk, waves
from matplotlib.figure import Figure

import posprobe as pp
from posprobe.analyses.descriptive.closeness import cka, closeness, prepare_cloud
from posprobe.analyses.descriptive.matching_pursuit import choose_sinusoids
from posprobe.analyses.descriptive.sinusoid import (
    MIN_BASE_LADDER_LINES,
    SinusoidFit,
    against_sinusoid,
    decompose_ladder,
    fit_base,
)
from posprobe.analyses.result import as_block
from posprobe.figures.fits import plot_base
from posprobe.layouts import Grid
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

SEEDS = st.integers(0, 2**31)
PLANTED_PERIODS = [6.0, 18.0, 54.0, 162.0, 486.0]


@cache
def minilm() -> SinusoidFit:
    return against_sinusoid(pp.load("sample:all-minilm-l6-v2"))


def explained_share(x: Floats, frequencies: Floats) -> float:
    """Return the share that least squares on sines, cosines and a constant explains."""
    angle = 2 * np.pi * np.outer(np.arange(len(x)), frequencies)
    waves_ = np.concatenate([np.ones((len(x), 1)), np.cos(angle), np.sin(angle)], axis=1)
    residual = x - waves_ @ np.linalg.lstsq(waves_, x, rcond=None)[0]
    return float(1 - np.square(residual).sum() / np.square(x - x.mean(axis=0)).sum())


# --- the ladder's span ---


@pytest.mark.parametrize(
    "shape", [(8, 2), (9, 4), (33, 10), (64, 64), (40, 300), (512, 384)]
)
def test_the_ladder_is_the_centred_sinusoid_decomposed(shape: tuple[int, int]) -> None:
    n, d = shape
    rungs = decompose_ladder(n, d)
    table = sinusoid(n, d) - sinusoid(n, d).mean(axis=0)
    singular = scipy.linalg.svdvals(table)
    rank = int((singular > 1e-6 * singular[0]).sum())
    assert rungs.rank == rank
    np.testing.assert_allclose(rungs.singular, singular[:rank], atol=1e-12 * singular[0])
    np.testing.assert_allclose(rungs.basis.T @ rungs.basis, np.eye(rank), atol=1e-12)
    np.testing.assert_allclose(rungs.basis.sum(axis=0), 0, atol=1e-7)
    np.testing.assert_allclose(rungs.cloud.gram, table @ table.T, atol=1e-9 * d)
    assert rungs.white_share == rungs.rank / (n - 1)
    assert decompose_ladder(n, d) is rungs


def test_the_ladder_s_share_is_that_of_a_regression_on_its_columns() -> None:
    x = walk(200, 9) + gaussian(200, 9)
    frequencies = 1e4 ** (-np.arange(3) / 3) / (2 * np.pi)
    assert decompose_ladder(200, 6).rank == 6
    assert decompose_ladder(200, 6).share(prepare_cloud(x)) == pytest.approx(
        explained_share(x, frequencies), abs=1e-9
    )


# --- the sinusoid itself ---


@pytest.mark.parametrize(("shape", "base"), [((128, 64), 1e3), ((700, 768), 5e5)])
def test_the_base_of_a_sinusoid_is_found_again(
    shape: tuple[int, int], base: float
) -> None:
    table = sinusoid(*shape, base) @ rotation(shape[1])
    base_fit = fit_base(prepare_cloud(table), shape[1])
    assert base_fit.base == pytest.approx(base, rel=2e-4)
    assert base_fit.best == pytest.approx(1, abs=1e-6)
    assert base_fit.rows == min(shape[0], 512)


def test_the_curve_of_bases_is_the_debiased_cka() -> None:
    table = gaussian(50, 6) + walk(50, 6)
    base_fit = fit_base(prepare_cloud(table), 32)
    for k in (0, 7, len(base_fit.bases) - 1):
        expected = cka(table, sinusoid(50, 32, float(base_fit.bases[k])))
        assert base_fit.cka[k] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("length", "width"), [(77, 384), (512, 64)])
def test_a_smooth_or_white_table_has_no_base(length: int, width: int) -> None:
    def memory(seed: int) -> Floats:
        noise = gaussian(length, width, seed)
        for t in range(1, length):
            noise[t] += 0.9 * noise[t - 1]
        return noise

    for seed in range(3):
        for table in (
            walk(length, width, seed),
            gaussian(length, width, seed),
            memory(seed),
        ):
            base_fit = fit_base(prepare_cloud(table), width)
            assert base_fit.base is None
            assert "fit as well" in base_fit.undefined


def test_a_few_lines_have_no_base() -> None:
    width = 2 * MIN_BASE_LADDER_LINES - 2
    base_fit = fit_base(prepare_cloud(sinusoid(64, width)), width)
    assert base_fit.base is None
    assert "lines" in base_fit.undefined


def test_the_sinusoid_is_at_distance_zero_from_itself() -> None:
    sinusoid_fit: Any = against_sinusoid(pp.sinusoidal(512, 384)[100:400])
    assert sinusoid_fit.cka == pytest.approx(1, abs=1e-9)
    assert sinusoid_fit.cka_biased == pytest.approx(1, abs=1e-9)
    assert sinusoid_fit.procrustes == pytest.approx(0, abs=1e-5)
    assert sinusoid_fit.subspace_overlap == pytest.approx(1, abs=1e-9)
    assert sinusoid_fit.ladder_share == pytest.approx(1, abs=1e-9)
    assert sinusoid_fit.base.base == pytest.approx(1e4, rel=1e-3)
    assert sinusoid_fit.reference == "sinusoidal:300x384"
    x = walk(64, 40)
    walk_fit, distances = (
        against_sinusoid(x, decomposition=pp.pca(x)),
        closeness(x, sinusoid(64, 40)),
    )
    for name in ("cka", "cka_biased", "procrustes", "subspace_rank", "subspace_overlap"):
        assert getattr(walk_fit, name) == pytest.approx(getattr(distances, name))
    assert walk_fit.subspace_chance == pytest.approx(10 / 63)
    grid_fit = against_sinusoid(pp.sincos2d(7, 9, 24))
    assert grid_fit.cka == pytest.approx(1, abs=1e-9)
    assert grid_fit.reference == "sincos2d:7x9x24"
    assert {"ladder_share", "sinusoids", "base"} <= set(grid_fit.undefined)


# --- how many sinusoids ---


@pytest.mark.parametrize("seed", range(2))
def test_a_planted_ladder_is_found_again(seed: int) -> None:
    sinusoids = choose_sinusoids(
        prepare_cloud(waves(512, PLANTED_PERIODS, seed, noise=0.01))
    )
    np.testing.assert_allclose(sorted(sinusoids.periods[:5]), PLANTED_PERIODS, rtol=0.01)
    assert sinusoids.enough == 5
    assert sinusoids.share[4] > 0.999
    assert len(sinusoids.share) == 5  # the residual is no sinusoid
    np.testing.assert_allclose(np.diff(sinusoids.share, prepend=0), 0.2, atol=0.01)


@given(SEEDS, st.integers(8, 60), st.integers(1, 5), st.sampled_from([walk, gaussian]))
def test_the_share_is_that_of_a_regression_on_the_sinusoids(
    seed: int, n: int, d: int, make: Any
) -> None:
    x = make(n, d, seed)
    sinusoids = choose_sinusoids(prepare_cloud(x))
    assert len(sinusoids.share) == len(sinusoids.frequencies) <= n // 4
    for k, (share, frequencies) in enumerate(
        zip(sinusoids.share, sinusoids.frequencies, strict=True)
    ):
        assert len(frequencies) == k + 1
        assert share == pytest.approx(explained_share(x, frequencies), abs=1e-9)
        assert frequencies.min() * n >= 0.5 - 1e-9
        assert frequencies.max() <= 0.5 - 0.5 / n + 1e-9
        assert (np.diff(np.sort(frequencies)) * n >= 1 - 1e-6).all()
    assert (np.diff(sinusoids.share) > -1e-12).all()


@given(SEEDS, st.integers(16, 40), st.integers(1, 4))
def test_no_frequency_of_the_grid_explains_more_than_the_one_chosen(
    seed: int, n: int, d: int
) -> None:
    x = walk(n, d, seed) + gaussian(n, d, seed + 1)
    sinusoids = choose_sinusoids(prepare_cloud(x))
    grid = np.arange(2, 2 * n - 1) / (4 * n)
    best_single = max(explained_share(x, np.array([f])) for f in grid)
    assert sinusoids.share[0] >= best_single - 1e-9
    first_frequency = sinusoids.frequencies[0]
    other_frequencies = grid[np.abs(grid - first_frequency[0]) * n >= 1]
    best_double = max(
        explained_share(x, np.array([first_frequency[0], f])) for f in other_frequencies
    )
    assert sinusoids.share[1] >= best_double - 1e-9


def test_refining_reaches_a_local_best() -> None:
    x = waves(200, [7.3, 19.1, 61.0], noise=0.2)
    sinusoids = choose_sinusoids(prepare_cloud(x))
    best_share = sinusoids.share[2]
    for k in range(3):
        for move in (-0.02, 0.02):
            shifted = sinusoids.frequencies[2].copy()
            shifted[k] += move / 200
            assert explained_share(x, shifted) < best_share


def test_no_sinusoids_explain_more_than_as_many_directions() -> None:
    for result in (
        minilm(),
        against_sinusoid(walk(80, 30)),
        against_sinusoid(gaussian(80, 3)),
    ):
        lines: Any = result.sinusoids
        assert (lines.share <= result.best_share + 1e-9).all()


# --- the whole result ---


def test_minilm_has_its_recorded_sinusoid_numbers() -> None:
    sinusoid_fit = minilm()
    summary: Any = as_block(sinusoid_fit)
    assert summary["cka_biased"] == pytest.approx(0.4623, abs=5e-5)
    assert summary["cka"] == pytest.approx(0.4515, abs=5e-5)
    assert summary["ladder_rank"] == 106
    assert summary["ladder_share"] == pytest.approx(0.726, abs=1e-3)
    periods = [line["period"] for line in summary["sinusoids"][:5]]
    np.testing.assert_allclose(periods[1:], [162, 53.5, 17.0, 5.67], rtol=0.01)
    assert summary["base"] is None
    assert "flat" in summary["undefined"]["base"]


def on_grid(values: Floats, height: int, width: int) -> PositionTable:
    return as_table(values, Grid(height, width))


@pytest.mark.parametrize(
    ("table", "defined"),
    [
        (gaussian(1, 4), set()),
        (gaussian(7, 4), set()),
        (np.full((30, 4), 0.1), set()),
        (walk(30, 1), {"sinusoids"}),
        (walk(8, 64), {"cka", "procrustes", "sinusoids"}),  # the ladder spans every such table
        (np.outer(np.arange(30.0), [1, 2]), {"cka", "procrustes", "ladder_share", "sinusoids"}),
        (np.eye(30), {"procrustes", "ladder_share", "sinusoids"}),
        (walk(600, 16) * (np.arange(600) > 520)[:, None], {"cka", "ladder_share", "sinusoids"}),
        (on_grid(walk(30, 8), 5, 6), {"cka", "procrustes"}),
        (on_grid(walk(30, 6), 5, 6), set()),
        (on_grid(np.ones((30, 8)), 5, 6), set()),
    ],
    ids=[
        "one row", "short", "constant", "one column", "spanned", "rank one", "simplex",
        "constant start", "grid", "grid of odd width", "constant grid",
    ],
)  # fmt: skip
def test_undefined_sinusoid_numbers_have_a_reason(table: Any, defined: set[str]) -> None:
    sinusoid_fit = against_sinusoid(table)
    summary = json.loads(json.dumps(as_block(sinusoid_fit), allow_nan=False))
    undefined = {key for key, value in summary.items() if value is None}
    assert undefined == set(summary["undefined"])
    assert all(summary["undefined"].values())
    keys = {"cka", "procrustes", "ladder_share", "sinusoids"}
    assert keys - undefined >= defined
    if not defined:
        assert undefined >= {*keys, "base", "subspace_overlap"}


def test_a_ladder_that_spans_everything_explains_nothing() -> None:
    sinusoid_fit = against_sinusoid(walk(9, 64))
    assert sinusoid_fit.ladder_rank == 8
    assert sinusoid_fit.ladder_share is None
    assert "spans every table" in sinusoid_fit.undefined["ladder_share"]


# --- figures ---


def test_the_curve_of_bases_is_labelled_with_the_base_or_the_reason() -> None:
    for table, label in ((sinusoid(128, 64), "10000"), (walk(128, 64), "fit as well")):
        plot_base(ax := Figure().add_subplot(), against_sinusoid(table))
        assert [text.get_text() for text in ax.texts] == [label]
