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
    found = pp.similarity(as_table(values, layout))
    cosine = found.centered if centered else found.raw
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
    found = pp.similarity(table).raw
    assert found.offset_mean.shape == (2 * height - 1, 2 * width - 1)
    pairs: dict[tuple[int, int], list[float]] = {}
    for i, j in itertools.product(range(12), repeat=2):
        shift = (j // width - i // width, j % width - i % width)
        pairs.setdefault(shift, []).append(float(found.matrix[i, j]))
    for (down, right), values in pairs.items():
        cell = (down + height - 1, right + width - 1)
        assert found.offset_mean[cell] == pytest.approx(np.mean(values), abs=1e-12)
        assert found.offset_std[cell] == pytest.approx(np.std(values), abs=1e-7)
        assert found.offset_count[cell] == len(values)
    del pairs[0, 0]
    within = sum(len(values) * np.var(values) for values in pairs.values())
    every = [value for values in pairs.values() for value in values]
    expected = 1 - within / (len(every) * np.var(every))
    assert found.translation_invariance == pytest.approx(expected, abs=1e-10)


def test_monotone_fraction_on_a_grid_takes_steps_along_both_axes() -> None:
    height, width = 4, 6
    table = patches(height, width, 5)
    matrix = pp.similarity(table).raw.matrix
    falls = []
    for row, column in itertools.product(range(height), range(width)):
        here = row * width + column
        if column < width - width // 2:
            line = [matrix[here, here + m] for m in range(width // 2 + 1)]
            falls += [after < before for before, after in itertools.pairwise(line)]
        if row < height - height // 2:
            line = [matrix[here, here + m * width] for m in range(height // 2 + 1)]
            falls += [after < before for before, after in itertools.pairwise(line)]
    assert pp.similarity(table).raw.monotone_fraction == pytest.approx(np.mean(falls), abs=1e-12)


def test_patches_against_walking_over_the_grid() -> None:
    height, width, d = 3, 5, 4
    table = patches(height, width, d, seed=5)
    found, centered = pp.grid(table), pp.similarity(table).centered.matrix
    kinds: dict[str, list[float]] = {}
    for i, j in itertools.permutations(range(height * width), 2):
        (r, c), (s, t) = divmod(i, width), divmod(j, width)
        if r == s:
            kinds.setdefault("own_row", []).append(centered[i, j])
        elif c == t:
            kinds.setdefault("own_column", []).append(centered[i, j])
        else:
            kinds.setdefault("elsewhere", []).append(centered[i, j])
        if (s, t) == (r, c + 1):
            kinds.setdefault("neighbour_right", []).append(centered[i, j])
        if (s, t) == (r + 1, c):
            kinds.setdefault("neighbour_below", []).append(centered[i, j])
    for name, values in kinds.items():
        assert getattr(found, name) == pytest.approx(np.mean(values), abs=1e-12), name
    raw = pp.similarity(table).raw.matrix
    for r, c, s, t in itertools.product(range(height), range(width), range(height), range(width)):
        assert found.mosaic[r, c, s, t] == raw[r * width + c, s * width + t]


def test_two_way_decomposition_and_plane_spectrum_by_explicit_loops() -> None:
    height, width, d = 3, 4, 2
    table = patches(height, width, d, seed=2)
    found = pp.grid(table)
    cells = table.values.reshape(height, width, d)
    mean = cells.mean(axis=(0, 1))
    parts = {"row": 0.0, "column": 0.0, "interaction": 0.0, "all": 0.0}
    for r, c in itertools.product(range(height), range(width)):
        row = cells[r].mean(axis=0) - mean
        column = cells[:, c].mean(axis=0) - mean
        parts["row"] += row @ row
        parts["column"] += column @ column
        rest = cells[r, c] - mean - row - column
        parts["interaction"] += rest @ rest
        parts["all"] += (cells[r, c] - mean) @ (cells[r, c] - mean)
    assert found.row_share == pytest.approx(parts["row"] / parts["all"], abs=1e-12)
    assert found.column_share == pytest.approx(parts["column"] / parts["all"], abs=1e-12)
    assert found.interaction_share == pytest.approx(parts["interaction"] / parts["all"], abs=1e-12)

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
        assert found.power[cell] == pytest.approx(power, abs=1e-12)
        on_axes += power if u == 0 or v == 0 else 0.0
    assert found.axis_power_share == pytest.approx(on_axes / found.power.sum(), abs=1e-12)


@pytest.mark.parametrize("n", [8, 9, 31])
def test_spectrum_is_the_transform_of_the_detrended_and_tapered_columns(n: int) -> None:
    values = walk(n, 3, seed=n)
    found = pp.spectrum(values)
    time = np.arange(n)
    lines = [np.polyval(np.polyfit(time, column, 1), time) for column in values.T]
    rest = values - np.stack(lines, axis=1)
    taper = [0.5 - 0.5 * math.cos(2 * math.pi * t / (n - 1)) for t in time]
    energy = n * sum(w * w for w in taper)
    for k, j in itertools.product(range(n // 2 + 1), range(3)):
        total = sum(rest[t, j] * taper[t] * cmath.exp(-2j * cmath.pi * k * t / n) for t in range(n))
        sides = 1 if k == 0 or 2 * k == n else 2
        naive = sides * abs(total) ** 2 / energy
        assert found.power_by_dim[k, j] == pytest.approx(naive, rel=1e-9, abs=1e-12)
        assert found.frequency[k] == k / n
    np.testing.assert_allclose(found.power, found.power_by_dim.sum(axis=1), rtol=1e-12)
    assert (found.detrend, found.window) == ("linear", "hann")


def test_entropy_edge_and_dominant_frequency_by_their_definitions() -> None:
    found = pp.spectrum(walk(40, 3, seed=1))
    share = found.power / found.power.sum()
    entropy = -sum(p * math.log(p) for p in share if p > 0) / math.log(len(share))
    assert found.entropy == pytest.approx(entropy, abs=1e-12)
    edge = min(k for k in range(len(share)) if share[: k + 1].sum() >= 0.9)
    assert found.edge_frequency == found.frequency[edge]
    for j in range(3):
        column = found.power_by_dim[:, j]
        peak = max(range(1, len(column)), key=lambda k: column[k])
        assert found.dominant_frequency[j] == found.frequency[peak]


def test_rings_of_a_grid_hold_the_power_of_their_radius() -> None:
    table = patches(8, 10, 3)
    found, plane = pp.spectrum(table), pp.grid(table).power
    rings = np.zeros(len(found.power))
    for u, v in itertools.product(range(8), range(10)):
        radius = math.hypot((u - 4) / 8, (v - 5) / 10)
        rings[round(radius * 10)] += plane[u, v]
    np.testing.assert_allclose(found.power, rings, atol=1e-12)
    assert found.lines == ()
    assert (found.detrend, found.window) == ("constant", "none")


@pytest.mark.parametrize("name", [sample.name for sample in tables()])
def test_pca_is_that_of_scikit_learn_on_real_tables(name: str) -> None:
    values = np.asarray(pp.load(f"sample:{name}").values, dtype=np.float64)
    found = pp.pca(values)
    reference = decomposition.PCA(svd_solver="full").fit(values)
    kept = reference.singular_values_ > 1e-9 * reference.singular_values_[0]
    np.testing.assert_allclose(
        found.explained_variance_ratio[kept], reference.explained_variance_ratio_[kept], rtol=1e-10
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


def test_translation_invariance_and_monotone_fraction_anchors() -> None:
    sinusoid, minilm = (
        pp.similarity(table).raw
        for table in (pp.sinusoidal(512, 768), pp.load("sample:all-minilm-l6-v2"))
    )
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
