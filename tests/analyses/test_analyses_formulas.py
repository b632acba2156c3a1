"""The analyses against naive formulas on small tables, against scikit-learn, and their anchors."""

from __future__ import annotations

import cmath
import itertools
import math

import numpy as np
import pytest
from made_tables import as_table, gaussian, patches, walk
from naive_similarity import naive_invariance, naive_monotone, naive_statistics
from sklearn import decomposition

import posprobe as pp
from posprobe.layouts import Grid, Sequence
from posprobe.samples import tables


@pytest.mark.parametrize(
    "layout", [Sequence(24), Grid(4, 6), Grid(6, 4), Grid(1, 24), Grid(24, 1)], ids=str
)
@pytest.mark.parametrize("centered", [False, True], ids=["raw", "centred"])
def test_similarity_numbers_are_those_of_all_pairs(
    layout: Sequence | Grid, *, centered: bool
) -> None:
    values = walk(24, 5, seed=3)
    similarity = pp.similarity(as_table(values, layout))
    cosine = similarity.centered if centered else similarity.raw
    rows = values - values.mean(axis=0) if centered else values
    for i, j in itertools.product(range(24), repeat=2):
        naive = (rows[i] @ rows[j]) / math.sqrt((rows[i] @ rows[i]) * (rows[j] @ rows[j]))
        assert cosine.matrix[i, j] == pytest.approx(naive, abs=1e-13)
    for name, value in naive_statistics(cosine.matrix, layout).items():
        assert getattr(cosine, name) == pytest.approx(value, abs=1e-12), name
    assert cosine.undefined == {}


def test_displacements_on_a_grid_are_those_of_all_pairs() -> None:
    height, width = 3, 4
    table = patches(height, width, 5)
    cosine = pp.similarity(table).raw
    assert cosine.offset_mean.shape == (2 * height - 1, 2 * width - 1)
    pairs: dict[tuple[int, int], list[float]] = {}
    for i, j in itertools.product(range(12), repeat=2):
        shift = (j // width - i // width, j % width - i % width)
        pairs.setdefault(shift, []).append(float(cosine.matrix[i, j]))
    for (row_offset, column_offset), values in pairs.items():
        cell = (row_offset + height - 1, column_offset + width - 1)
        assert cosine.offset_mean[cell] == pytest.approx(np.mean(values), abs=1e-12)
        assert cosine.offset_std[cell] == pytest.approx(np.std(values), abs=1e-7)
        assert cosine.offset_count[cell] == len(values)
    del pairs[0, 0]
    sum_within = sum(len(values) * np.var(values) for values in pairs.values())
    all_cosines = [value for values in pairs.values() for value in values]
    expected = 1 - sum_within / (len(all_cosines) * np.var(all_cosines))
    assert cosine.translation_invariance == pytest.approx(expected, abs=1e-10)


def test_monotone_fraction_on_a_grid_takes_steps_along_both_axes() -> None:
    height, width = 4, 6
    table = patches(height, width, 5)
    matrix = pp.similarity(table).raw.matrix
    falls = []
    for row, column in itertools.product(range(height), range(width)):
        patch = row * width + column
        if column < width - width // 2:
            line = [matrix[patch, patch + m] for m in range(width // 2 + 1)]
            falls += [after < before for before, after in itertools.pairwise(line)]
        if row < height - height // 2:
            line = [matrix[patch, patch + m * width] for m in range(height // 2 + 1)]
            falls += [after < before for before, after in itertools.pairwise(line)]
    assert pp.similarity(table).raw.monotone_fraction == pytest.approx(
        np.mean(falls), abs=1e-12
    )


def test_grid_numbers_are_means_over_pairs_of_patches() -> None:
    height, width, d = 3, 5, 4
    table = patches(height, width, d, seed=5)
    grid, centered = pp.grid(table), pp.similarity(table).centered.matrix
    cosines: dict[str, list[float]] = {}
    for i, j in itertools.permutations(range(height * width), 2):
        (r, c), (s, t) = divmod(i, width), divmod(j, width)
        if r == s:
            cosines.setdefault("own_row", []).append(centered[i, j])
        elif c == t:
            cosines.setdefault("own_column", []).append(centered[i, j])
        else:
            cosines.setdefault("elsewhere", []).append(centered[i, j])
        if (s, t) == (r, c + 1):
            cosines.setdefault("neighbour_right", []).append(centered[i, j])
        if (s, t) == (r + 1, c):
            cosines.setdefault("neighbour_below", []).append(centered[i, j])
    for name, values in cosines.items():
        assert getattr(grid, name) == pytest.approx(np.mean(values), abs=1e-12), name
    raw = pp.similarity(table).raw.matrix
    for r, c, s, t in itertools.product(
        range(height), range(width), range(height), range(width)
    ):
        assert grid.mosaic[r, c, s, t] == raw[r * width + c, s * width + t]


def test_two_way_decomposition_and_plane_spectrum_by_explicit_loops() -> None:
    height, width, d = 3, 4, 2
    table = patches(height, width, d, seed=2)
    grid = pp.grid(table)
    cells = table.values.reshape(height, width, d)
    mean = cells.mean(axis=(0, 1))
    squares = {"row": 0.0, "column": 0.0, "interaction": 0.0, "all": 0.0}
    for r, c in itertools.product(range(height), range(width)):
        row = cells[r].mean(axis=0) - mean
        column = cells[:, c].mean(axis=0) - mean
        squares["row"] += row @ row
        squares["column"] += column @ column
        interaction = cells[r, c] - mean - row - column
        squares["interaction"] += interaction @ interaction
        squares["all"] += (cells[r, c] - mean) @ (cells[r, c] - mean)
    assert grid.row_share == pytest.approx(squares["row"] / squares["all"], abs=1e-12)
    assert grid.column_share == pytest.approx(
        squares["column"] / squares["all"], abs=1e-12
    )
    assert grid.interaction_share == pytest.approx(
        squares["interaction"] / squares["all"], abs=1e-12
    )

    on_axes = 0.0
    for u, v in itertools.product(range(height), range(width)):
        power = 0.0
        for j in range(d):
            total = 0j
            for r, c in itertools.product(range(height), range(width)):
                turns = u * r / height + v * c / width
                total += (cells[r, c, j] - mean[j]) * cmath.exp(-2j * cmath.pi * turns)
            power += abs(total) ** 2 / (height * width) ** 2
        # Frequency 0 stands in the middle.
        cell = ((u + height // 2) % height, (v + width // 2) % width)
        assert grid.power[cell] == pytest.approx(power, abs=1e-12)
        on_axes += power if u == 0 or v == 0 else 0.0
    assert grid.axis_power_share == pytest.approx(on_axes / grid.power.sum(), abs=1e-12)


@pytest.mark.parametrize("n", [8, 9, 31])
def test_spectrum_is_the_transform_of_the_detrended_and_tapered_columns(n: int) -> None:
    values = walk(n, 3, seed=n)
    spectrum = pp.spectrum(values)
    time = np.arange(n)
    lines = [np.polyval(np.polyfit(time, column, 1), time) for column in values.T]
    residual = values - np.stack(lines, axis=1)
    taper = [0.5 - 0.5 * math.cos(2 * math.pi * t / (n - 1)) for t in time]
    energy = n * sum(w * w for w in taper)
    for k, j in itertools.product(range(n // 2 + 1), range(3)):
        total = sum(
            residual[t, j] * taper[t] * cmath.exp(-2j * cmath.pi * k * t / n)
            for t in range(n)
        )
        sides = 1 if k == 0 or 2 * k == n else 2
        naive = sides * abs(total) ** 2 / energy
        assert spectrum.power_by_dim[k, j] == pytest.approx(naive, rel=1e-9, abs=1e-12)
        assert spectrum.frequency[k] == k / n
    np.testing.assert_allclose(
        spectrum.power, spectrum.power_by_dim.sum(axis=1), rtol=1e-12
    )
    assert (spectrum.detrend, spectrum.window) == ("linear", "hann")


def test_entropy_edge_and_dominant_frequency_by_their_definitions() -> None:
    spectrum = pp.spectrum(walk(40, 3, seed=1))
    share = spectrum.power / spectrum.power.sum()
    entropy = -sum(p * math.log(p) for p in share if p > 0) / math.log(len(share))
    assert spectrum.entropy == pytest.approx(entropy, abs=1e-12)
    edge = min(k for k in range(len(share)) if share[: k + 1].sum() >= 0.9)
    assert spectrum.edge_frequency == spectrum.frequency[edge]
    for j in range(3):
        column = spectrum.power_by_dim[:, j]
        peak = max(range(1, len(column)), key=lambda k: column[k])
        assert spectrum.dominant_frequency[j] == spectrum.frequency[peak]


def test_rings_of_a_grid_hold_the_power_of_their_radius() -> None:
    table = patches(8, 10, 3)
    spectrum, grid_power = pp.spectrum(table), pp.grid(table).power
    rings = np.zeros(len(spectrum.power))
    for u, v in itertools.product(range(8), range(10)):
        radius = math.hypot((u - 4) / 8, (v - 5) / 10)
        rings[round(radius * 10)] += grid_power[u, v]
    np.testing.assert_allclose(spectrum.power, rings, atol=1e-12)
    assert spectrum.lines == ()
    assert (spectrum.detrend, spectrum.window) == ("constant", "none")


@pytest.mark.parametrize("name", [sample.name for sample in tables()])
def test_pca_is_that_of_scikit_learn_on_real_tables(name: str) -> None:
    values = np.asarray(pp.load(f"sample:{name}").values, dtype=np.float64)
    components = pp.pca(values)
    reference = decomposition.PCA(svd_solver="full").fit(values)
    is_defined = reference.singular_values_ > 1e-9 * reference.singular_values_[0]
    np.testing.assert_allclose(
        components.explained_variance_ratio[is_defined],
        reference.explained_variance_ratio_[is_defined],
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        components.singular_values[is_defined],
        reference.singular_values_[is_defined],
        rtol=1e-10,
    )
    # Components are defined where their singular value stands apart from its neighbours.
    leading = slice(0, 8)
    own_components, reference_components = (
        components.components[leading],
        reference.components_[leading],
    )
    signs = np.sign((own_components * reference_components).sum(axis=1))
    np.testing.assert_allclose(
        own_components, reference_components * signs[:, None], rtol=0, atol=1e-10
    )
    scores = reference.transform(values)[:, leading] * signs
    np.testing.assert_allclose(
        components.scores[:, leading], scores, rtol=0, atol=1e-10 * np.abs(scores).max()
    )


def test_sinusoid_and_minilm_have_their_recorded_cosine_numbers() -> None:
    sinusoid, minilm = (
        pp.similarity(table).raw
        for table in (pp.sinusoidal(512, 768), pp.load("sample:all-minilm-l6-v2"))
    )
    assert sinusoid.monotone_fraction == pytest.approx(0.969, abs=5e-4)
    assert minilm.monotone_fraction == pytest.approx(0.525, abs=5e-4)
    for cosine in (sinusoid, minilm):
        assert cosine.monotone_fraction == pytest.approx(
            naive_monotone(cosine.matrix), abs=1e-12
        )
    naive = naive_invariance(minilm.matrix)
    assert minilm.translation_invariance == pytest.approx(naive, abs=1e-10)


def test_noise_is_not_translation_invariant_although_its_diagonal_looks_so() -> None:
    cosine = pp.similarity(gaussian(512, 384)).raw
    assert cosine.translation_invariance == pytest.approx(0.004, abs=5e-4)
    # The trap: with the diagonal of ones the same matrix seems to have structure.
    assert naive_invariance(cosine.matrix, diagonal=True) == pytest.approx(
        0.431, abs=4e-3
    )
    assert cosine.translation_invariance == pytest.approx(
        naive_invariance(cosine.matrix), abs=1e-10
    )


def test_effective_dimensions_of_the_sinusoid_follow_its_gram_matrix() -> None:
    components = pp.pca(pp.sinusoidal(512, 768))
    # The second way: eigenvalues of the centred Gram matrix, from the angles alone.
    angles = np.arange(512)[:, None] * 10_000 ** (-np.arange(384) / 384)
    gram = np.cos(angles) @ np.cos(angles).T + np.sin(angles) @ np.sin(angles).T
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1)[:, None]
    eigenvalues = np.linalg.eigvalsh(gram)[::-1].clip(0)
    share = eigenvalues / eigenvalues.sum()
    np.testing.assert_allclose(components.explained_variance_ratio, share, atol=1e-10)
    assert components.stable_rank == pytest.approx(1 / share[0], rel=1e-10)
    assert components.participation_ratio == pytest.approx(
        1 / (share**2).sum(), rel=1e-10
    )
    assert components.effective_rank == pytest.approx(59.09, abs=5e-3)
    for threshold, count in zip((0.90, 0.95, 0.99), (90, 111, 133), strict=True):
        assert components.components_for(threshold) == count
        assert share[:count].sum() >= threshold > share[: count - 1].sum()
