"""Analyses of tables that are constant, short, narrow or empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from made_tables import as_table, gaussian, walk
from naive_similarity import naive_monotone, naive_statistics

import posprobe as pp
from posprobe.analyses.result import as_block
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Sequence


def test_a_zero_row_has_no_direction_and_takes_no_part_in_statistics() -> None:
    values = walk(12, 4, seed=4)
    values[5] = 0
    similarity = pp.similarity(values)
    assert similarity.zero_rows == (5,)
    assert np.isnan(similarity.raw.matrix[5]).all()
    assert np.isnan(similarity.raw.matrix[:, 5]).all()
    assert np.isnan(similarity.raw.matrix).sum() == 2 * 12 - 1
    for name, value in naive_statistics(similarity.raw.matrix, Sequence(12)).items():
        assert getattr(similarity.raw, name) == pytest.approx(value, abs=1e-12), name
    assert similarity.raw.monotone_fraction == pytest.approx(
        naive_monotone(similarity.raw.matrix)
    )
    for offset in range(12):
        pairs = np.diagonal(similarity.raw.matrix, offset)
        assert similarity.raw.offset_mean[offset] == pytest.approx(
            np.nanmean(pairs), abs=1e-12
        )
        assert similarity.raw.offset_count[offset] == np.isfinite(pairs).sum()
    # Once centred, the row has a direction: minus the mean.
    assert np.isfinite(similarity.centered.matrix).all()
    assert pp.norms(values).zero_rows == (5,)
    assert as_block(similarity)["zero_rows"] == [5]


def test_an_offset_without_any_pair_is_undefined_with_its_reason() -> None:
    values = gaussian(6, 3)
    values[0] = 0
    raw: Any = as_block(pp.similarity(values))["raw"]
    assert raw["offset_profile"][5] is None
    assert None not in raw["offset_profile"][:5]
    assert "far apart" in raw["undefined"]["offset_profile"]


@pytest.mark.parametrize("value", [0.0, 0.1, 1e30], ids=str)
@pytest.mark.parametrize("layout", [Sequence(64), Grid(8, 8)], ids=["sequence", "grid"])
def test_a_constant_table_is_undefined_with_reasons(
    value: float, layout: Sequence | Grid
) -> None:
    table = as_table(np.full((64, 7), value) * np.arange(1, 8), layout)
    centered = pp.similarity(table).centered
    assert np.isnan(centered.matrix).all()
    assert set(centered.undefined) >= {"neighbour_mean", "translation_invariance"}
    assert pp.pca(table).components_for(0.9) is None
    assert pp.spectrum(table).lines == ()
    assert pp.norms(table).outlier_rows == ()
    if isinstance(layout, Grid):
        assert {"axis_power_share", "row_share"} <= set(
            as_block(pp.grid(table))["undefined"]
        )


def assert_reasons(block: Mapping[str, Any]) -> None:
    """Assert that exactly the undefined numbers have a reason."""
    missing = {
        name
        for name, value in block.items()
        if value is None or (isinstance(value, list) and None in value)
    }
    assert missing == set(block.get("undefined", {}))
    for value in block.values():
        if isinstance(value, dict) and "undefined" in value:
            assert_reasons(value)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize(
    "make", [gaussian, lambda n, d: np.ones((n, d))], ids=["noise", "ones"]
)
def test_short_and_narrow_tables_end_in_numbers_or_reasons(
    n: int, d: int, make: Any
) -> None:
    table = as_table(make(n, d))
    assert_reasons(as_block(pp.norms(table)))
    assert_reasons(as_block(pp.similarity(table)))
    assert_reasons(as_block(pp.spectrum(table)))
    assert (pp.spectrum(table).undefined == "") == (n >= 8 and make is gaussian)
    if n == 1:
        with pytest.raises(InvalidTable, match="at least two rows"):
            pp.pca(table)
        return
    components = pp.pca(table)
    assert_reasons(as_block(components))
    assert components.scores.shape == (n, min(n, d))
    grid = pp.grid(as_table(make(n, d), Grid(1, n)))
    assert_reasons(as_block(grid))


def test_half_precision_is_analysed_as_the_numbers_it_holds() -> None:
    half = walk(40, 6, seed=2).astype(np.float16)
    wide = half.astype(np.float64)
    np.testing.assert_array_equal(
        pp.similarity(half).raw.matrix, pp.similarity(wide).raw.matrix
    )
    np.testing.assert_array_equal(pp.pca(half).scores, pp.pca(wide).scores)
    np.testing.assert_array_equal(pp.spectrum(half).power, pp.spectrum(wide).power)
    # In half precision itself the squares overflow.
    large = np.full((4, 3), 6e4, dtype=np.float16)
    assert pp.norms(large).norms == pytest.approx([6e4 * 3**0.5] * 4, rel=1e-3)


def test_patches_need_a_grid() -> None:
    with pytest.raises(InvalidTable, match="grid"):
        pp.grid(as_table(gaussian(16, 4)))


def test_analyses_leave_their_table_unchanged() -> None:
    values = walk(20, 5)
    original = values.copy()
    for analysis in (pp.norms, pp.similarity, pp.pca, pp.spectrum):
        analysis(values)
    np.testing.assert_array_equal(values, original)


def test_row_numbers_follow_a_cut_table() -> None:
    values = gaussian(40, 4) + 10
    values[12] *= 50
    values[14] = 0
    document = pp.analyze(
        as_table(values)[10:], only=["norms", "similarity"], nulls=0
    ).to_dict()
    assert [row["row"] for row in document["norms"]["outlier_rows"]] == [12, 14]
    assert document["norms"]["zero_rows"] == [14]
    assert document["similarity"]["zero_rows"] == [14]
    assert document["table"]["rows"] == [10, 40]


@pytest.mark.parametrize("slope", [0.0, 0.37])
def test_the_rounding_of_a_straight_line_is_no_spectrum(slope: float) -> None:
    rng = np.random.default_rng(0)
    line = slope * np.arange(512)[:, None] * rng.standard_normal(
        32
    ) + rng.standard_normal(32)
    spectrum = pp.spectrum(line.astype(np.float32))
    assert spectrum.entropy is None
    assert "nothing is left" in spectrum.undefined
