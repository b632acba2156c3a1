"""Distances between two tables against their definitions, other libraries and exact identities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial
from hypothesis import given, strategies as st
from made_tables import as_table, gaussian, rotation, walk

import posprobe as pp
from posprobe.analyses.descriptive.closeness import (
    Closeness,
    Cloud,
    cka,
    closeness,
    gram_product,
    prepare_cloud,
)
from posprobe.analyses.result import as_block
from posprobe.errors import InvalidTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

SEEDS = st.integers(0, 2**31)
WIDTHS = st.integers(1, 12)

#: Numbers for which every law below holds.
DISTANCE_NAMES = ("cka", "cka_biased", "procrustes", "subspace_overlap")


# --- definitions ---


def unbiased_hsic(k: Floats, m: Floats) -> float:
    """Song et al. 2012, equation 4, from uncentred Gram matrices, term by term."""
    n = len(k)
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    ones = np.ones(n)
    product_of_sums = ones @ k @ ones * (ones @ m @ ones) / ((n - 1) * (n - 2))
    sum_of_products = 2 / (n - 2) * (ones @ k @ m @ ones)
    return float((np.trace(k @ m) + product_of_sums - sum_of_products) / (n * (n - 3)))


@pytest.mark.parametrize("widths", [(3, 5), (5, 3), (30, 2), (30, 40), (1, 1)])
def test_debiased_cka_is_that_of_the_published_estimator(widths: tuple[int, int]) -> None:
    x, y = gaussian(12, widths[0]) + 3.0, gaussian(12, widths[1], seed=1) - 1.0
    k, m = x @ x.T, y @ y.T
    expected = unbiased_hsic(k, m) / math.sqrt(unbiased_hsic(k, k) * unbiased_hsic(m, m))
    assert cka(x, y) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("widths", [(3, 5), (30, 2), (30, 40)])
def test_biased_cka_is_kornblith_s(widths: tuple[int, int]) -> None:
    x, y = gaussian(12, widths[0]) + 3.0, gaussian(12, widths[1], seed=1)
    a, b = x - x.mean(axis=0), y - y.mean(axis=0)
    norm = np.linalg.norm
    expected = norm(a.T @ b) ** 2 / (norm(a.T @ a) * norm(b.T @ b))
    assert cka(x, y, debiased=False) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("widths", [(7, 5), (7, 90), (90, 200)])
def test_the_inner_product_is_the_same_from_either_side(widths: tuple[int, int]) -> None:
    def both() -> tuple[Cloud, Cloud]:
        return prepare_cloud(walk(40, widths[0])), prepare_cloud(gaussian(40, widths[1]))

    fresh, formed = both(), both()
    expected = float((formed[0].gram * formed[1].gram).sum())
    assert all(c.has_gram for c in formed)
    for x, y in (fresh, formed, (fresh[0], formed[1])):
        assert gram_product(x, y) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("width", [2, 6, 50])
def test_procrustes_is_scipy_s_for_equal_widths(width: int) -> None:
    x, y = walk(20, width), walk(20, width, seed=1)
    *_, disparity = scipy.spatial.procrustes(x, y)  # 1 - (nuclear norm)²
    expected = math.sqrt(2 - 2 * math.sqrt(1 - disparity))
    assert closeness(x, y).procrustes == pytest.approx(expected)


def test_subspace_overlap_is_that_of_scipy_s_principal_angles() -> None:
    x, y = gaussian(30, 8), gaussian(30, 5, seed=1)
    y[:, 0] = (
        9 * (x[:, 0] - x[:, 0].mean()) + 1e-9 * y[:, 0]
    )  # one direction all but shared
    x[:, 0] *= 20
    distances = closeness(x, y)
    assert distances.subspace_rank == 5
    u, v = (scipy.linalg.svd(t - t.mean(axis=0))[0][:, :5] for t in (x, y))
    cosine = np.cos(scipy.linalg.subspace_angles(u, v))
    assert distances.subspace_overlap == pytest.approx(np.mean(cosine**2))


# --- laws ---


@given(SEEDS, WIDTHS, WIDTHS)
def test_distances_ignore_order_rotation_shift_scale_and_zero_columns(
    seed: int, d1: int, d2: int
) -> None:
    x, y = walk(15, d1 + 2, seed), gaussian(15, d2 + 2, seed + 1)
    transformed = 0.01 * np.pad(x @ rotation(d1 + 2, seed + 2), ((0, 0), (0, 3))) + 5.0
    distances = closeness(x, y)
    for other_distances in (
        closeness(y, x),
        closeness(transformed, y),
        closeness(y, transformed),
    ):
        for name in DISTANCE_NAMES:
            assert getattr(other_distances, name) == pytest.approx(
                getattr(distances, name), rel=1e-9, abs=1e-11
            )
    own_distances = closeness(x, transformed)
    assert (own_distances.cka, own_distances.cka_biased) == pytest.approx(
        (1, 1), abs=1e-12
    )
    assert own_distances.procrustes == pytest.approx(0, abs=1e-7)
    assert own_distances.subspace_overlap == pytest.approx(1, abs=1e-9)


@given(SEEDS, WIDTHS, WIDTHS)
def test_prepared_clouds_change_no_number(seed: int, d1: int, d2: int) -> None:
    x, y = walk(15, d1 + 1, seed), gaussian(15, d2 + 1, seed + 1)
    prepared = prepare_cloud(x, decomposition=pp.pca(x))
    formed = prepare_cloud(x)
    assert formed.gram.shape == (15, 15)
    assert formed.has_gram
    expected = closeness(x, y)
    for first_cloud in (prepared, formed, prepare_cloud(x)):
        for second_cloud in (y, prepare_cloud(y)):
            distances = closeness(first_cloud, second_cloud)
            assert distances.subspace_rank == expected.subspace_rank
            for name in DISTANCE_NAMES:
                value = getattr(expected, name)
                assert getattr(distances, name) == pytest.approx(
                    value, rel=1e-9, abs=1e-11
                )


def test_scale_never_overflows_or_vanishes() -> None:
    x, y = walk(30, 5), gaussian(30, 6)
    distances = closeness(x, y)
    for factor in (1e-300, 1e-160, 1e160, 1e290):
        scaled = closeness(factor * x, y)
        assert dict(as_block(scaled)) == {
            key: pytest.approx(number, rel=1e-9)
            for key, number in as_block(distances).items()
        }


# --- incomparable tables ---


@pytest.mark.parametrize("measure", [cka, closeness])
def test_unequal_lengths_are_refused_with_both_shapes(measure: Any) -> None:
    with pytest.raises(InvalidTable, match=r"(?s)12 x 3.*13 x 4.*never resampled"):
        measure(gaussian(12, 3), gaussian(13, 4))


def test_a_constant_table_has_no_cka() -> None:
    with pytest.raises(InvalidTable, match="undefined"):
        cka(np.ones((12, 3)), gaussian(12, 3))


def test_subspaces_end_before_equal_singular_values() -> None:
    grid = pp.sincos2d(6, 6, 24)  # rows and columns alike: every direction comes twice
    assert closeness(grid, gaussian(36, 3)).subspace_rank == 2
    assert (
        closeness(np.outer(np.arange(9.0), [1, 2, 3]), gaussian(9, 3)).subspace_rank == 1
    )


@pytest.mark.parametrize(
    ("x", "y", "missing"),
    [
        (np.ones((12, 3)), gaussian(12, 3), {"cka", "cka_biased", "procrustes"}),
        (np.eye(12), gaussian(12, 3), {"cka"}),  # all positions equally far apart
        (gaussian(3, 2), gaussian(3, 5), {"cka"}),  # too few for the unbiased form
        (gaussian(1, 2), gaussian(1, 2), {"cka", "cka_biased", "procrustes"}),
        (np.outer(np.arange(9.0), [1, 2]), gaussian(9, 3), set()),  # rank one
        (gaussian(9, 1), gaussian(9, 1, 1), set()),
    ],
    ids=["constant", "simplex", "three", "one", "rank one", "one column"],
)
def test_undefined_distances_are_none_with_a_reason(
    x: Floats, y: Floats, missing: set[str]
) -> None:
    for distances in (closeness(x, y), closeness(y, x)):
        summary = as_block(distances)
        undefined = {key for key, value in summary.items() if value is None}
        assert undefined == set(distances.undefined)
        assert undefined - {"subspace_overlap"} == missing
        numbers = [value for value in summary.values() if isinstance(value, float)]
        assert np.isfinite(numbers).all()


def test_tables_and_tensors_are_accepted_like_arrays() -> None:
    torch = pytest.importorskip("torch")
    x, y = walk(20, 4), walk(20, 6, seed=1)
    expected: Closeness = closeness(x, y)
    assert closeness(as_table(x), torch.from_numpy(y)) == expected
