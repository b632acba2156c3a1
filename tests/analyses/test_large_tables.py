"""Tables whose n x n matrix is never formed: tiles and factors give the same numbers."""

from __future__ import annotations

import tracemalloc
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from made_devices import needs_cuda
from made_tables import as_table, gaussian, patches, walk

import posprobe as pp
from posprobe.analyses.descriptive.similarity import sum_by_displacement
from posprobe.analyses.result import as_block
from posprobe.arrays import Positions
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from pathlib import Path

    from posprobe.analyses import Cosine
    from posprobe.tables import PositionTable

# Functions of the package hide the modules that define them, hence the imports by name.
SIMILARITY = import_module("posprobe.analyses.descriptive.similarity")
COMPONENTS = import_module("posprobe.analyses.descriptive.pca")

DEVICES = ["numpy", "cpu", pytest.param("cuda", marks=needs_cuda)]

TABLES: dict[str, Any] = {
    "walk": lambda: as_table(walk(301, 7)),
    "shared row": lambda: as_table(gaussian(200, 8) + 5),
    "sinusoid": lambda: pp.sinusoidal(300, 64),
    "zero rows": lambda: as_table(walk(150, 6) * (np.arange(150) % 7 > 0)[:, None]),
    "tall grid": lambda: patches(13, 9, 5),
    "one column of patches": lambda: patches(60, 1, 6),
    "grid with zero rows": lambda: as_table(
        patches(8, 11, 4).values * (np.arange(88) % 5 > 0)[:, None], Grid(8, 11)
    ),
    "constant": lambda: as_table(np.ones((64, 5))),
    "one direction": lambda: as_table(np.arange(1.0, 65)[:, None] * np.arange(1, 4)),
}
NUMBER_NAMES = (
    "neighbour_mean",
    "far_mean",
    "translation_invariance",
    "monotone_fraction",
)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables of a few dozen rows count as large, with uneven tiles and blocks."""
    sizes = {
        "MAX_MATRIX_ROWS": 10,
        "MAX_POOLED_BLOCKS": 24,
        "POSITIONS_PER_PROFILE_BATCH": 19,
    }
    for name, size in (sizes | {"NUMBERS_PER_GRID_TRANSFORM": 512}).items():
        monkeypatch.setattr(SIMILARITY, name, size)


def on_device(table: PositionTable, device: str) -> PositionTable | Positions:
    if device == "numpy":
        return table
    values = torch.from_numpy(np.array(table.values, dtype=np.float64)).to(device)
    return Positions(values, table.layout, table.start, device)


def assert_close(
    actual: float | None, expected: float | None, tolerance: float, name: str
) -> None:
    if expected is None:
        assert actual is None, name
    else:
        assert actual == pytest.approx(expected, rel=tolerance, abs=tolerance), name


def cosine_variants(table: PositionTable | Positions) -> dict[str, Cosine]:
    similarity = pp.similarity(table)
    return {"raw": similarity.raw, "centred": similarity.centered}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TABLES)
def test_tiled_similarity_equals_the_full_matrix(
    name: str, device: str, request: pytest.FixtureRequest
) -> None:
    table = TABLES[name]()
    expected = cosine_variants(table)
    zero_rows = pp.similarity(table).zero_rows
    request.getfixturevalue("small_limits")
    tiled = cosine_variants(on_device(table, device))
    assert pp.similarity(on_device(table, device)).zero_rows == zero_rows
    for variant, exact in expected.items():
        large = tiled[variant]
        for number in NUMBER_NAMES:
            assert_close(getattr(large, number), getattr(exact, number), 1e-11, number)
        assert large.minimum is None
        assert "not every pair" in large.undefined["minimum"]
        assert np.isnan(large.offset_std).all()
        unavailable = ("minimum", "offset_profile")
        for name in set(large.undefined) - {*unavailable}:
            assert large.undefined[name] == exact.undefined[name]
        assert set(exact.undefined) - {*unavailable} == set(large.undefined) - {
            *unavailable
        }
        np.testing.assert_array_equal(large.offset_count, exact.offset_count)
        np.testing.assert_allclose(
            large.offset_mean, exact.offset_mean, rtol=0, atol=1e-11
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TABLES)
def test_pooled_cosines_are_means_over_defined_pairs(
    name: str, device: str, request: pytest.FixtureRequest
) -> None:
    table = TABLES[name]()
    n = len(table)
    expected = cosine_variants(table)
    request.getfixturevalue("small_limits")
    for variant, large in cosine_variants(on_device(table, device)).items():
        exact, block = expected[variant].matrix, large.pooled
        assert block == -(-n // 24)
        assert large.positions == n
        blocks = [slice(start, start + block) for start in range(0, n, block)]
        assert large.matrix.shape == (len(blocks), len(blocks))
        for i, rows in enumerate(blocks):
            for j, columns in enumerate(blocks):
                pairs = exact[rows, columns]
                defined = pairs[~np.isnan(pairs)]
                mean = defined.mean() if defined.size else np.nan
                assert large.matrix[i, j] == pytest.approx(mean, abs=1e-12, nan_ok=True)


@given(
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    d=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_an_autocorrelation_is_the_sum_of_all_inner_products(
    height: int, width: int, d: int, seed: int
) -> None:
    rows = gaussian(height * width, d, seed)
    sums = SIMILARITY.autocorrelation(rows, height, width, np)
    expected = sum_by_displacement(rows @ rows.T, height, width, np)
    np.testing.assert_allclose(sums, expected, atol=1e-11)
    assert SIMILARITY.sum_of_squares(rows) == pytest.approx(
        np.square(rows @ rows.T).sum(), rel=1e-12
    )


def test_a_long_sinusoid_has_its_closed_form() -> None:
    n, d = 20_001, 16
    similarity: Any = pp.similarity(pp.sinusoidal(n, d))
    assert similarity.raw.pooled == -(-n // 1024)
    # Vaswani et al. 2017: the cosine at offset k is the mean of cos(w_i k).
    frequencies = 10_000.0 ** (-2 * np.arange(d // 2) / d)
    closed = np.cos(np.outer(np.arange(n), frequencies)).mean(axis=1)
    np.testing.assert_allclose(similarity.raw.offset_mean, closed, rtol=0, atol=1e-9)
    assert similarity.raw.translation_invariance == pytest.approx(1, abs=1e-10)
    fall = np.diff(closed[:65]) < 0
    assert similarity.raw.monotone_fraction == pytest.approx(fall.mean(), abs=1e-12)
    block = similarity.raw.pooled
    offsets = np.abs(np.arange(block)[:, None] - np.arange(5 * block, 6 * block))
    assert similarity.raw.matrix[0, 5] == pytest.approx(closed[offsets].mean(), abs=1e-10)
    assert similarity.centered.translation_invariance < 1


def test_more_rows_than_can_be_compared_are_refused_at_once() -> None:
    n = SIMILARITY.MAX_COSINE_ROWS + 1
    with pytest.raises(InvalidTable, match=rf"{n} positions.*`table\[A:B\]`.*`only`"):
        pp.similarity(np.ones((n, 1), dtype=np.float32))
    table = as_table(np.ones((n, 1), dtype=np.float32))
    with pytest.raises(InvalidTable, match=r"`table\[A:B\]`"):
        pp.analyze(table)
    assert set(pp.analyze(table, only=["norms"], nulls=0).results) == {"norms"}


def test_loading_and_norms_of_a_large_table_stay_within_memory(tmp_path: Path) -> None:
    values = walk(2**14, 128).astype(np.float32)
    doubles = 8 * values.size
    np.save(tmp_path / "table.npy", values)
    pp.analyze(
        as_table(values[:9000]), only=["norms"], nulls=0
    )  # modules are there from now on
    tracemalloc.start()
    try:
        table = pp.load(str(tmp_path / "table.npy"))
        bytes_loaded = tracemalloc.get_traced_memory()[1]
        pp.analyze(table, only=["norms"], nulls=0)
        bytes_measured = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bytes_loaded < doubles
    # The values in double precision, and their squares.
    assert bytes_measured < 3 * doubles


# Components.


@pytest.fixture
def randomised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPONENTS, "MAX_EXACT_OPERATIONS", 1)
    monkeypatch.setattr(COMPONENTS, "N_LEADING_COMPONENTS", 12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "values",
    [walk(300, 80), gaussian(200, 50) * 0.8 ** np.arange(50), walk(40, 200, seed=1)],
    ids=["walk", "falling", "more columns than rows"],
)
def test_randomised_components_are_the_leading_exact_ones(
    values: Any, device: str, request: pytest.FixtureRequest
) -> None:
    table = as_table(values)
    exact = pp.pca(table)
    request.getfixturevalue("randomised")
    leading = pp.pca(on_device(table, device))
    assert (exact.method, leading.method) == ("exact", "randomised")
    k = len(leading.singular_values)
    assert k == 12
    np.testing.assert_allclose(
        leading.singular_values, exact.singular_values[:k], rtol=1e-5
    )
    np.testing.assert_allclose(
        leading.explained_variance_ratio, exact.explained_variance_ratio[:k], rtol=1e-5
    )
    np.testing.assert_allclose(leading.components[:6], exact.components[:6], atol=1e-4)
    np.testing.assert_allclose(
        leading.scores[:, :6], exact.scores[:, :6], atol=1e-4 * exact.singular_values[0]
    )
    for number in ("stable_rank", "participation_ratio"):
        assert getattr(leading, number) == pytest.approx(getattr(exact, number), rel=1e-9)
    assert leading.effective_rank is None
    assert "only the 12 leading" in as_block(leading)["undefined"]["effective_rank"]


@pytest.mark.usefixtures("randomised")
def test_shares_that_the_leading_components_do_not_reach_are_undefined() -> None:
    components = pp.pca(gaussian(400, 100))
    numbers = as_block(components)
    assert components.explained_variance_ratio.sum() < 0.5
    assert numbers["components_90"] is None
    assert "leading" in numbers["undefined"]["components_90"]
    assert numbers["top3"] == pytest.approx(components.explained_variance_ratio[:3].sum())
    low_rank = pp.pca(gaussian(400, 3) @ gaussian(3, 100) + 1e-3 * gaussian(400, 100))
    assert low_rank.components_for(0.99) == 3


def test_comparisons_use_all_rows_when_components_are_randomised(
    request: pytest.FixtureRequest,
) -> None:
    table = as_table(walk(200, 60) + 3 * gaussian(200, 60))
    exact = pp.analyze(table, only=["pca", "sinusoid", "shift"], nulls=0)
    request.getfixturevalue("randomised")
    document = pp.analyze(table, only=["pca", "sinusoid", "shift"], nulls=0).to_dict()
    expected = exact.to_dict()
    for name in ("cka", "cka_biased", "procrustes", "ladder_share", "subspace_overlap"):
        assert document["sinusoid"][name] == pytest.approx(
            expected["sinusoid"][name], rel=1e-4
        ), name
    assert document["shift"]["skill"] is None
    assert "leading components" in document["shift"]["undefined"]["skill"]


# Figures and documents.


def test_a_mosaic_of_a_large_grid_shows_the_cosines_of_single_patches() -> None:

    table = pp.sincos2d(95, 90, 8)
    grid = pp.grid(table)
    assert grid.every == 6
    assert grid.mosaic.shape == (16, 15, 95, 90)
    rows = table.values / np.linalg.norm(table.values, axis=1, keepdims=True)
    anchor = rows[(12 * 90) + 18]
    np.testing.assert_allclose(
        grid.mosaic[2, 3], (rows @ anchor).reshape(95, 90), atol=1e-12
    )


@pytest.mark.usefixtures("small_limits")
def test_the_profile_of_a_large_table_is_in_the_arrays_and_not_in_the_json() -> None:
    analysis = pp.analyze(as_table(walk(301, 7)), only=["similarity"], nulls=0)
    block = analysis.to_dict()["similarity"]["raw"]
    assert block["offset_profile"] is None
    assert "arrays.npz" in block["undefined"]["offset_profile"]
    assert analysis.arrays()["offset_profile"].shape == (301,)
    assert block["pooled"] == 13
