"""The analyses against scikit-learn, published values and those of the definitions."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_tables import gaussian, walk
from naive_similarity import naive_invariance, naive_monotone
from sklearn import decomposition
from sklearn.metrics.pairwise import cosine_similarity

import posprobe as pp
from posprobe.samples import tables
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from posprobe.analyses import PCA, Similarity

SAMPLES = [sample.name for sample in tables()]
MINILM = "all-minilm-l6-v2"


@cache
def sample(name: str) -> PositionTable:
    return pp.load(f"sample:{name}")


@cache
def sample_similarity(name: str) -> Similarity:
    return pp.similarity(sample(name))


@cache
def sample_pca(name: str) -> PCA:
    return pp.pca(sample(name))


def float64(table: PositionTable) -> Any:
    return np.asarray(table.values, dtype=np.float64)


@pytest.mark.parametrize("name", SAMPLES)
def test_cosine_is_that_of_scikit_learn_on_real_tables(name: str) -> None:
    values, found = float64(sample(name)), sample_similarity(name)
    np.testing.assert_allclose(found.raw.matrix, cosine_similarity(values), rtol=1e-10, atol=1e-13)
    centered = cosine_similarity(values - values.mean(axis=0))
    np.testing.assert_allclose(found.centered.matrix, centered, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", SAMPLES)
def test_pca_is_that_of_scikit_learn_on_real_tables(name: str) -> None:
    values, found = float64(sample(name)), sample_pca(name)
    reference = decomposition.PCA(svd_solver="full").fit(values)
    kept = reference.singular_values_ > 1e-9 * reference.singular_values_[0]
    np.testing.assert_allclose(
        found.explained_variance_ratio[kept],
        reference.explained_variance_ratio_[kept],
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        found.singular_values[kept], reference.singular_values_[kept], rtol=1e-10
    )
    # Components are defined where their singular value stands apart from its neighbours.
    leading = slice(0, 8)
    ours, theirs = found.components[leading], reference.components_[leading]
    signs = np.sign((ours * theirs).sum(axis=1))
    np.testing.assert_allclose(ours, theirs * signs[:, None], rtol=0, atol=1e-10)
    scores = reference.transform(values)[:, leading] * signs
    np.testing.assert_allclose(
        found.scores[:, leading], scores, rtol=0, atol=1e-10 * np.abs(scores).max()
    )


# Published values and those derived from the definition for this project.


def test_norms_of_the_sinusoid_are_the_root_of_half_its_width() -> None:
    found = pp.norms(pp.sinusoidal(512, 768))
    np.testing.assert_allclose(found.norms, math.sqrt(768 / 2), rtol=1e-12)
    assert found.norms[0] == pytest.approx(19.59592, abs=5e-6)
    assert found.outlier_rows == ()
    assert found.zero_rows == ()


def test_offset_profile_of_kernes_figure() -> None:
    found = pp.similarity(pp.sinusoidal(256, 128)).raw.offset_mean
    published = {0: 1, 1: 0.9702, 8: 0.7144, 28: 0.5587, 64: 0.4769, 128: 0.3328}
    for offset, value in published.items():
        naive = sum(math.cos(offset / 10_000 ** (i / 64)) for i in range(64)) / 64
        assert naive == pytest.approx(value, abs=5e-5)
        assert found[offset] == pytest.approx(naive, abs=1e-12)


def test_translation_invariance_and_monotone_fraction_anchors() -> None:
    sinusoid, minilm = pp.similarity(pp.sinusoidal(512, 768)).raw, sample_similarity(MINILM).raw
    assert sinusoid.monotone_fraction == pytest.approx(0.969, abs=5e-4)
    assert minilm.monotone_fraction == pytest.approx(0.525, abs=5e-4)
    for found in (sinusoid, minilm):
        assert found.monotone_fraction == pytest.approx(naive_monotone(found.matrix), abs=1e-12)
    naive = naive_invariance(minilm.matrix)
    assert minilm.translation_invariance == pytest.approx(naive, abs=1e-10)


def test_noise_is_not_translation_invariant_although_its_diagonal_looks_so() -> None:
    found = pp.similarity(gaussian(512, 384)).raw
    assert found.translation_invariance == pytest.approx(0.004, abs=5e-4)
    # The trap: with the diagonal of ones the same matrix seems to have structure.
    assert naive_invariance(found.matrix, diagonal=True) == pytest.approx(0.431, abs=4e-3)
    assert found.translation_invariance == pytest.approx(naive_invariance(found.matrix), abs=1e-10)


def test_smoothness_alone_makes_a_random_walk_look_translation_invariant() -> None:
    scores = [
        pp.similarity(walk(512, 384, seed)).centered.translation_invariance for seed in range(5)
    ]
    assert all(score is not None and 0.85 < score < 0.95 for score in scores)


def test_effective_dimensions_of_the_sinusoid() -> None:
    found = pp.pca(pp.sinusoidal(512, 768))
    # The second way: eigenvalues of the centred Gram matrix, from the angles alone.
    angles = np.arange(512)[:, None] * 10_000 ** (-np.arange(384) / 384)
    gram = np.cos(angles) @ np.cos(angles).T + np.sin(angles) @ np.sin(angles).T
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1)[:, None]
    eigenvalues = np.linalg.eigvalsh(gram)[::-1].clip(0)
    share = eigenvalues / eigenvalues.sum()
    np.testing.assert_allclose(found.explained_variance_ratio, share, atol=1e-10)
    assert found.stable_rank == pytest.approx(1 / share[0], rel=1e-10)
    assert found.participation_ratio == pytest.approx(1 / (share**2).sum(), rel=1e-10)
    assert found.effective_rank == pytest.approx(59.09, abs=5e-3)
    for threshold, count in zip((0.90, 0.95, 0.99), (90, 111, 133), strict=True):
        assert found.components_for(threshold) == count
        assert share[:count].sum() >= threshold > share[: count - 1].sum()


def test_first_component_of_a_random_walk_holds_six_over_pi_squared() -> None:
    found = [pp.pca(walk(256, 512, seed)) for seed in range(12)]
    mean = np.mean([result.explained_variance_ratio[:3] for result in found], axis=0)
    # The eigenvalues of a walk's covariance fall as 1 / k^2.
    expected = [6 / (math.pi * k) ** 2 for k in (1, 2, 3)]
    np.testing.assert_allclose(mean, expected, atol=0.012)
    assert np.mean([result.stable_rank for result in found]) == pytest.approx(1.64, abs=0.04)


def test_cosines_of_the_two_dimensional_sinusoid() -> None:
    table = pp.sincos2d(14, 14, 768)
    found = pp.grid(table)
    np.testing.assert_allclose(pp.norms(table).norms, 19.59592, atol=5e-6)
    here = found.mosaic[6, 7]
    assert here[6, 8] == pytest.approx(0.986374, abs=5e-7)
    assert here[7, 7] == pytest.approx(0.986374, abs=5e-7)
    assert here[7, 8] == pytest.approx(0.972748, abs=5e-7)
    # C(dx, dy) = C(dx, 0) + C(0, dy) - 1, for every displacement.
    both = here[:, 7][:, None] + here[6][None, :] - 1
    np.testing.assert_allclose(here, both, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e170])
def test_singular_values_of_tables_of_any_scale_are_those_of_numpy(scale: float) -> None:
    values = scale * walk(40, 7)
    centred = values - values.mean(axis=0)
    expected = np.linalg.svd(centred, compute_uv=False)
    np.testing.assert_allclose(pp.pca(values).singular_values, expected, rtol=1e-9)
