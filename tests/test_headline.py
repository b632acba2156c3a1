"""The headline numbers: the cheap way gives what the full analyses of the same table give."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_tables import as_table, gaussian, held_out_skill, patches, rotation, walk, waves

import posprobe as pp
from posprobe.analyses.headline import (
    COMPONENTS,
    HEADLINES,
    headline,
    leading_components,
    shape_constants,
    sinusoid_headline,
)
from posprobe.analyses.shift_skill import shift_rank
from posprobe.layouts import Grid, Sequence
from posprobe.measurements import compared_numbers
from posprobe.samples import samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from posprobe.tables import PositionTable

    Floats = NDArray[np.floating[Any]]

few = settings(max_examples=20, deadline=None, derandomize=True, database=None)
SEEDS = st.integers(0, 2**31)
SKILL = "shift.skill"

TABLES: dict[str, PositionTable] = {
    **{sample.name: pp.load(f"sample:{sample.name}") for sample in samples()},
    "sinusoid": pp.sinusoidal(300, 64),
    "planted": as_table(waves(300, [6.0, 18.0, 54.0], noise=0.05)),
    "noise": as_table(gaussian(200, 40)),
    "walk": as_table(walk(200, 40)),
    "more columns than rows": as_table(walk(50, 200)),
    "odd width": as_table(walk(80, 5)),
    "one column": as_table(walk(80, 1)),
    "a shared row": as_table(gaussian(100, 8) + 5),
    "zero rows": as_table(walk(60, 8) * (np.arange(60) % 20 > 0)[:, None]),
    "short": as_table(gaussian(9, 4)),
    "grid": patches(8, 6, 12),
    "square grid": pp.sincos2d(7, 7, 24),
    "a grid of noise": as_table(gaussian(70, 8), Grid(10, 7)),
}


@cache
def full(name: str) -> dict[str, float | None]:
    """The numbers from the document that the analyses make."""
    table = TABLES[name]
    document = pp.analyze(table, nulls=0, device="cpu").to_dict()
    found = {}
    for key in HEADLINES:
        block, *path = key.split(".")
        value = document.get(block, {})
        for part in path:
            value = value.get(part)
        if not (block == "grid" and isinstance(table.layout, Sequence)):
            found[key] = value
    return found


def cheap(table: PositionTable, dtype: type) -> dict[str, float | None]:
    values = table.values.astype(np.float64)
    return headline(
        (values / np.abs(values).max()).astype(dtype), shape_constants(table.layout, table.dim)
    )


def agree(
    found: dict[str, float | None], expected: dict[str, float | None], tolerance: float
) -> None:
    assert found.keys() == expected.keys()
    undefined = {key for key, value in expected.items() if value is None}
    assert {key for key, value in found.items() if value is None} == undefined
    for key in expected.keys() - undefined:
        assert found[key] == pytest.approx(expected[key], rel=tolerance, abs=tolerance), key


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-9)])
def test_every_number_is_that_of_the_analysis(name: str, dtype: type, tolerance: float) -> None:
    agree(cheap(TABLES[name], dtype) | {SKILL: None}, full(name) | {SKILL: None}, tolerance)


@pytest.mark.parametrize("name", TABLES)
def test_the_skill_is_that_of_the_leading_components(name: str) -> None:
    table = TABLES[name]
    found = cheap(table, np.float64)[SKILL]
    if full(name)[SKILL] is None:
        assert found is None
        return
    scores = pp.pca(table).scores[:, :COMPONENTS]
    scores = scores / np.linalg.norm(scores[:, 0])
    expected = held_out_skill(scores[:, : shift_rank(scores)[0]])
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_the_skill_is_the_full_one_where_few_components_hold_the_table() -> None:
    for periods in ([6.0, 18.0, 54.0], [4.5], [5.0, 9.0, 20.0, 33.0, 70.0]):
        table = as_table(waves(300, periods, noise=0.02))
        expected = pp.analyze(table, only=["shift"], nulls=0, device="cpu").to_dict()["shift"]
        assert cheap(table, np.float32)[SKILL] == pytest.approx(expected["skill"], abs=1e-4)


@pytest.mark.parametrize(
    "table",
    [pp.sinusoidal(64, 16), pp.sinusoidal(300, 64), pp.sinusoidal(512, 384), pp.sincos2d(6, 9, 24)],
    ids=str,
)
def test_the_sinusoid_s_values_are_those_of_its_analyses(table: PositionTable) -> None:
    numbers = pp.analyze(table, nulls=0, device="cpu").to_dict()["nulls"]["numbers"]
    expected = {key: block["value"] for key, block in numbers.items()}
    found = {key: block["sinusoid"] for key, block in numbers.items()}
    # The skill of a map of many nearly lost directions is a delicate number.
    assert found[SKILL] == expected[SKILL] or found[SKILL] == pytest.approx(
        expected[SKILL], rel=0.01
    )
    agree(found | {SKILL: None}, expected | {SKILL: None}, 1e-6)
    assert sinusoid_headline(shape_constants(table.layout, table.dim)).keys() == numbers.keys()


def test_there_is_no_sinusoid_of_such_a_width() -> None:
    assert sinusoid_headline(shape_constants(Sequence(30), 7)) == {}
    assert sinusoid_headline(shape_constants(Grid(5, 6), 6)) == {}


@few
@given(
    SEEDS, st.sampled_from([walk, gaussian]), st.integers(2, 12), st.sampled_from([1e-6, 1, 1e6])
)
def test_blind_to_rotation_and_scale(seed: int, make: Any, d: int, scale: float) -> None:
    values = make(40, d, seed)
    shared = shape_constants(Sequence(40), d)
    turned = scale * values @ rotation(d, seed + 1)
    agree(headline(turned, shared), headline(values, shared), 1e-6)


@few
@given(SEEDS, st.integers(2, 6), st.integers(2, 6), st.sampled_from([4, 7, 8]))
def test_a_grid_is_blind_to_rotation_and_scale(seed: int, height: int, width: int, d: int) -> None:
    values = walk(height * width, d, seed)
    shared = shape_constants(Grid(height, width), d)
    one = headline(values, shared)
    agree(headline(3 * values @ rotation(d, seed + 1), shared), one, 1e-6)
    shares = [one[f"grid.{name}_share"] for name in ("row", "column", "interaction")]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)


def test_a_grid_turned_over_swaps_rows_and_columns() -> None:
    values = walk(42, 8)
    upright = headline(values, shape_constants(Grid(6, 7), 8))
    turned = values.reshape(6, 7, 8).transpose(1, 0, 2).reshape(42, 8)
    lying = headline(turned, shape_constants(Grid(7, 6), 8))
    assert upright["grid.row_share"] == pytest.approx(lying["grid.column_share"])
    assert upright["grid.column_share"] == pytest.approx(lying["grid.row_share"])
    for key in ("grid.interaction_share", "grid.axis_power_share", "pca.top3"):
        assert upright[key] == pytest.approx(lying[key]), key


@few
@given(SEEDS)
def test_centred_numbers_do_not_see_a_common_row(seed: int) -> None:
    values = walk(50, 6, seed)
    shared = shape_constants(Sequence(50), 6)
    one, two = (
        {key: value for key, value in numbers.items() if not key.startswith("similarity.raw")}
        for numbers in (
            headline(values, shared),
            headline(values + 1e4 * gaussian(1, 6, seed), shared),
        )
    )
    agree(two, one, 1e-5)


def test_single_precision_survives_a_large_common_row() -> None:
    values = walk(100, 8) / 30
    shared = shape_constants(Sequence(100), 8)
    shifted = (values + 100).astype(np.float32)
    expected, found = headline(shifted.astype(np.float64), shared), headline(shifted, shared)
    for key in ("pca.top3", "pca.stable_rank", "sinusoid.cka", "spectrum.entropy"):
        assert found[key] == pytest.approx(expected[key], rel=1e-4), key


# --- leading components ---


@pytest.mark.parametrize("count", [3, COMPONENTS])
@pytest.mark.parametrize(
    "values",
    [
        walk(400, 60),
        gaussian(400, 60),
        gaussian(400, 800),
        waves(400, [5.0, 9.0, 31.0]),
        np.asarray(pp.sinusoidal(400, 64)),
        walk(30, 60),
        walk(97, 60),
    ],
    ids=["walk", "noise", "flat", "few", "sinusoid", "short", "just iterated"],
)
def test_leading_components_are_the_eigenvectors(values: Floats, count: int) -> None:
    centered = values - values.mean(axis=0)
    gram = centered @ centered.T
    expected = np.linalg.eigvalsh(gram)[::-1][:count]
    for precision in (np.float32, np.float64):
        found, vectors = leading_components(gram.astype(precision), count)
        assert found.shape == (count,)
        # Its own bound: never more than the truth, and within 0.4 % even of a flat spectrum.
        np.testing.assert_allclose(found, expected, rtol=4e-3, atol=1e-5 * expected[0])
        assert (found <= expected * (1 + 1e-5) + 1e-5 * expected[0]).all()
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-4)
        held = np.linalg.norm(vectors.T @ centered, axis=1) ** 2
        np.testing.assert_allclose(held, expected, rtol=5e-3, atol=1e-4 * expected[0])


def test_leading_components_are_repeatable() -> None:
    gram = np.asarray(np.cov(gaussian(200, 300)), dtype=np.float32)
    one, two = leading_components(gram, 5), leading_components(gram, 5)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])


# --- what is shown ---


def test_every_number_in_the_verdict_is_a_headline() -> None:
    assert set(compared_numbers()) == set(HEADLINES)
    assert len(set(HEADLINES)) == len(HEADLINES)
