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
from posprobe.encodings.tables import frequencies
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


@pytest.mark.parametrize("name", SAMPLES)
def test_pca_gives_the_centred_table_back_with_orthonormal_components(name: str) -> None:
    values, found = float64(sample(name)), sample_pca(name)
    centered = values - values.mean(axis=0)
    np.testing.assert_allclose(
        found.scores @ found.components, centered, rtol=0, atol=1e-12 * np.abs(centered).max()
    )
    gram = found.components @ found.components.T
    np.testing.assert_allclose(gram, np.eye(len(gram)), rtol=0, atol=1e-12)
    for loadings in found.components:
        assert loadings[np.argmax(np.abs(loadings))] > 0


# Published values and those derived from the definition for this project.


def test_norms_of_the_sinusoid_are_the_root_of_half_its_width() -> None:
    found = pp.norms(pp.sinusoidal(512, 768))
    np.testing.assert_allclose(found.norms, math.sqrt(768 / 2), rtol=1e-12)
    assert found.norms[0] == pytest.approx(19.59592, abs=5e-6)
    assert found.outlier_rows == ()
    assert found.zero_rows == ()


def test_norms_of_minilm() -> None:
    found = pp.norms(sample(MINILM))
    anchors = {0: 2.362, 1: 0.491, 2: 0.447, 127: 0.689, 510: 0.857, 511: 0.970}
    assert found.norms[list(anchors)] == pytest.approx(list(anchors.values()), abs=5e-4)
    assert {0, 127, 510, 511} <= {each.row for each in found.outlier_rows}


def test_offset_profile_of_kernes_figure() -> None:
    found = pp.similarity(pp.sinusoidal(256, 128)).raw.offset_mean
    published = {0: 1, 1: 0.9702, 8: 0.7144, 28: 0.5587, 64: 0.4769, 128: 0.3328}
    for offset, value in published.items():
        naive = sum(math.cos(offset / 10_000 ** (i / 64)) for i in range(64)) / 64
        assert naive == pytest.approx(value, abs=5e-5)
        assert found[offset] == pytest.approx(naive, abs=1e-12)


def test_offset_profile_of_minilm_is_not_monotone() -> None:
    found = sample_similarity(MINILM).raw
    anchors = {1: 0.851, 2: 0.592, 4: 0.504, 8: 0.294, 16: 0.432, 32: 0.220}
    assert found.offset_mean[list(anchors)] == pytest.approx(list(anchors.values()), abs=5e-4)
    assert found.neighbour_mean == pytest.approx(found.offset_mean[1])


def test_centring_forces_the_mean_cosine_of_minilm_slightly_below_zero() -> None:
    found = sample_similarity(MINILM)
    off = ~np.eye(512, dtype=bool)
    assert found.raw.matrix[off].mean() == pytest.approx(0.1219, abs=5e-5)
    assert found.centered.matrix[off].mean() == pytest.approx(-0.0017, abs=5e-5)


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


def test_effective_dimensions_of_minilm() -> None:
    found = sample_pca(MINILM)
    anchors = [0.1235, 0.1217, 0.1001, 0.0881, 0.0828, 0.0812, 0.0780, 0.0717]
    np.testing.assert_allclose(found.explained_variance_ratio[:8], anchors, atol=5e-5)
    assert found.components_for(0.9) == 11
    assert found.stable_rank == pytest.approx(8.10, abs=5e-3)
    assert found.participation_ratio == pytest.approx(11.70, abs=5e-3)


def test_first_component_of_a_random_walk_holds_six_over_pi_squared() -> None:
    found = [pp.pca(walk(256, 512, seed)) for seed in range(12)]
    mean = np.mean([result.explained_variance_ratio[:3] for result in found], axis=0)
    # The eigenvalues of a walk's covariance fall as 1 / k^2.
    expected = [6 / (math.pi * k) ** 2 for k in (1, 2, 3)]
    np.testing.assert_allclose(mean, expected, atol=0.012)
    assert np.mean([result.stable_rank for result in found]) == pytest.approx(1.64, abs=0.04)


def test_spectrum_of_minilm() -> None:
    found = pp.spectrum(sample(MINILM), detrend="constant")
    assert found.entropy == pytest.approx(0.604, abs=1e-3)
    assert found.edge_frequency == pytest.approx(0.172, abs=5e-4)


def test_most_wavelengths_of_the_sinusoid_are_longer_than_the_table() -> None:
    wavelengths = [2 * math.pi * 10_000 ** (2 * i / 768) for i in range(384)]
    np.testing.assert_allclose(2 * np.pi / frequencies(768), wavelengths, rtol=1e-12)
    fitting = [sum(w <= length for w in wavelengths) for length in (512, 1024, 4096)]
    assert fitting == [184, 213, 271]
    found = pp.spectrum(pp.sinusoidal(512, 768), detrend="constant", window="none")
    # Two columns for each of the 200 pairs fold into the lowest bins: any sinusoid looks red.
    slow = found.dominant_frequency[2 * 184 :]
    assert len(slow) == 400
    assert slow.max() <= 1 / 512


def test_resolved_wavelengths_of_the_sinusoid_are_found_to_half_a_bin() -> None:
    found = pp.spectrum(pp.sinusoidal(512, 768))
    expected = np.repeat(frequencies(768) / (2 * np.pi), 2)
    resolved = expected > 5 / 512
    error = np.abs(found.dominant_frequency - expected)[resolved]
    assert error.max() <= 0.75 / 512


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


def test_the_two_dimensional_sinusoid_is_separable() -> None:
    found = pp.grid(pp.sincos2d(14, 14, 768))
    assert found.row_share == pytest.approx(0.5, abs=1e-12)
    assert found.column_share == pytest.approx(0.5, abs=1e-12)
    assert found.interaction_share == pytest.approx(0, abs=1e-12)
    assert found.axis_power_share == pytest.approx(1, abs=1e-12)
    cosine = pp.similarity(pp.sincos2d(14, 14, 768)).raw
    assert cosine.translation_invariance == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e170])
def test_singular_values_of_tables_of_any_scale_are_those_of_numpy(scale: float) -> None:
    values = scale * walk(40, 7)
    centred = values - values.mean(axis=0)
    expected = np.linalg.svd(centred, compute_uv=False)
    np.testing.assert_allclose(pp.pca(values).singular_values, expected, rtol=1e-9)
