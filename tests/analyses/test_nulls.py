"""Null models keep their property and nothing else, and bands are quantiles of their draws."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_tables import as_table, gaussian, patches, rotation, walk, waves

import posprobe as pp
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.measurements.baselines import (
    build_null_table,
    compare_with_baselines,
    measure_formula,
    measure_numbers,
)
from posprobe.nulls import NULL_MODELS, draw_rows, null_band, null_models

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from posprobe.tables import PositionTable

    Floats = NDArray[np.floating[Any]]

NULL_NAMES = tuple(NULL_MODELS)
SEQUENCE = Sequence(60)
GRID = Grid(5, 12)
LAYOUTS = pytest.mark.parametrize("layout", [SEQUENCE, GRID], ids=["line", "plane"])


def draw(
    values: Floats, name: str, layout: Layout | None = None, seed: int = 0
) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(draw_rows(values, name, rng, layout or Sequence(len(values))))


def structured() -> Floats:
    """Return a table with every property that a null model can keep or lose."""
    values = waves(60, [5.0, 20.0], noise=0.1) + 0.3 * walk(60, 4, seed=3) + 2.0
    values[7] *= 3
    return values


def row_norms(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows, axis=1))


def step_norms(rows: Floats) -> Floats:
    return row_norms(np.diff(rows, axis=0))


def sorted_rows(values: Floats) -> Floats:
    return np.asarray(values[np.lexsort(values.T)])


def differs(a: Floats, b: Floats) -> bool:
    """Return whether nearly every entry differs by more than rounding."""
    return bool(np.mean(np.abs(a - b) > 1e-3 * np.abs(b).max()) > 0.9)


# --- properties that null models keep ---


def test_gaussian_rows_point_anywhere() -> None:
    null_rows = draw(np.ones((20_000, 3)), "gaussian")
    units = null_rows / row_norms(null_rows)[:, None]
    np.testing.assert_allclose(units.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(units.T @ units / len(units), np.eye(3) / 3, atol=0.01)
    assert abs(np.mean(np.sum(units[1:] * units[:-1], axis=1))) < 0.02


def test_a_permutation_puts_every_row_anywhere() -> None:
    rows = np.arange(4.0)[:, None]
    orders = {tuple(draw(rows, "permuted", seed=seed)[:, 0]) for seed in range(400)}
    assert orders == set(itertools.permutations(range(4)))


def test_a_null_walk_begins_in_the_first_row_with_independent_steps() -> None:
    values = structured()
    null_rows = draw(values, "walk")
    np.testing.assert_allclose(null_rows[0], values[0], rtol=1e-6)
    assert differs(null_rows[7:], values[7:])
    null_rows = np.diff(draw(np.arange(20_000.0)[:, None] * [1.0, 0, 0], "walk"), axis=0)
    assert abs(np.mean(np.sum(null_rows[1:] * null_rows[:-1], axis=1))) < 0.03
    np.testing.assert_allclose(null_rows.mean(axis=0), 0, atol=0.03)


@LAYOUTS
def test_a_stationary_process_keeps_the_mean_and_the_covariance_of_columns(
    layout: Layout,
) -> None:
    values = gaussian(60, 3, seed=5) * [1.0, 2.0, 4.0] + [5.0, 0, 0]
    centred = values - values.mean(axis=0)
    # Variances along principal directions do not change under rotation.
    variances = np.linalg.eigvalsh(centred.T @ centred)
    covariance = np.zeros((3, 3))
    for seed in range(150):
        null_rows = draw(values, "stationary", layout, seed).astype(np.float64)
        mean = null_rows.mean(axis=0)
        covariance += (null_rows - mean).T @ (null_rows - mean) / 150
        assert np.linalg.norm(mean) == pytest.approx(
            np.linalg.norm(values.mean(axis=0)), rel=1e-4
        )
    np.testing.assert_allclose(np.linalg.eigvalsh(covariance), variances, rtol=0.15)


def test_a_stationary_process_does_not_depend_on_the_basis_of_the_columns() -> None:
    values = structured()
    original, rotated = (
        draw(values, "stationary"),
        draw(values @ rotation(4), "stationary"),
    )
    np.testing.assert_allclose(
        original @ original.T,
        rotated @ rotated.T,
        atol=1e-3 * np.abs(original @ original.T).max(),
    )


def test_grids_have_no_null_walk() -> None:
    assert "walk" not in null_models(GRID)
    with pytest.raises(
        UsageError, match=r"'walk'\. Choose from gaussian, permuted, stationary"
    ):
        draw(structured(), "walk", GRID)
    null_bands = compare_with_baselines(
        patches(5, 6, 8), {"grid.row_share": 0.25}, draws=3, seed=5
    )
    assert null_bands["grid.row_share"]["walk"] is None


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for layout in (SEQUENCE, GRID) for name in null_models(layout)],
)
def test_null_models_keep_no_property_of_another_model(name: str, layout: Layout) -> None:
    values = structured()
    values.flags.writeable = False
    null_rows = draw(values, name, layout)
    assert null_rows.shape == values.shape
    assert null_rows.dtype == np.float32
    assert np.isfinite(null_rows).all()
    is_kept = {
        "gaussian": np.allclose(row_norms(null_rows), row_norms(values), rtol=1e-3),
        "permuted": np.allclose(sorted_rows(null_rows), sorted_rows(values), atol=1e-4),
        "walk": np.allclose(step_norms(null_rows), step_norms(values), rtol=1e-3),
    }
    assert [null for null, holds in is_kept.items() if holds] == (
        [name] if name in is_kept else []
    )


def test_an_unknown_null_model_is_refused_with_the_known_names() -> None:
    with pytest.raises(
        UsageError, match=r"bootstrap.*gaussian, permuted, walk, stationary"
    ):
        draw(structured(), "bootstrap")


# --- draws ---


@pytest.mark.parametrize("name", NULL_NAMES)
def test_draws_are_repeatable_and_all_different(name: str) -> None:
    values = structured()
    np.testing.assert_array_equal(draw(values, name, seed=3), draw(values, name, seed=3))
    assert differs(draw(values, name, seed=3), draw(values, name, seed=4))


def by_draw(
    table: PositionTable, count: int, seed: int, key: str
) -> dict[str, list[float]]:
    """Return draws of one number by null model, computed one by one."""
    values = np.asarray(table.values, dtype=np.float64)
    values = values / np.abs(values).max()
    draws_by_model: dict[str, list[float]] = {name: [] for name in NULL_MODELS}
    for index, name in enumerate(NULL_MODELS):
        for k in range(count if name in null_models(table.layout) else 0):
            rng = np.random.default_rng([seed, index, k])
            rows = draw_rows(values, name, rng, table.layout)
            wide = np.zeros(table.shape)
            wide[:, : rows.shape[1]] = rows
            number: Any = measure_numbers(build_null_table(wide, table.layout))[key]
            draws_by_model[name].append(number)
    return draws_by_model


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (as_table(structured()), "similarity.centered.neighbour_mean"),
        (as_table(structured()), "shift.skill"),
        (as_table(walk(40, 8)), "sinusoid.cka"),
        (patches(5, 6, 8), "grid.row_share"),
    ],
    ids=["neighbours", "skill", "cka", "grid"],
)
def test_a_band_is_the_percentiles_of_its_draws(table: PositionTable, key: str) -> None:
    null_bands = compare_with_baselines(table, {key: 0.25}, draws=3, seed=5)[key]
    null_draws = by_draw(table, 3, 5, key)
    assert null_bands["value"] == 0.25
    for name in null_models(table.layout):
        ordered = np.sort(null_draws[name])
        # The middle of three draws is the median; 5 % lies 0.1 of the way to the second.
        expected = {
            "p5": ordered[0] + 0.1 * (ordered[1] - ordered[0]),
            "p50": ordered[1],
            "p95": ordered[2] - 0.1 * (ordered[2] - ordered[1]),
        }
        assert null_bands[name] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_bands_do_not_depend_on_the_number_of_threads(monkeypatch: Any) -> None:
    table = as_table(walk(60, 6))
    numbers = {"pca.top3": 0.5, "shift.skill": 0.1, "sinusoid.cka": 0.3}
    null_bands = []
    for cores in (1, 2, 7):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        null_bands.append(compare_with_baselines(table, numbers, draws=4, seed=1))
    assert null_bands[0] == null_bands[1] == null_bands[2]


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_bands_do_not_depend_on_the_unit(scale: float) -> None:
    table = as_table(walk(40, 6))
    numbers: dict[str, float | None] = {"similarity.raw.far_mean": 0.1, "pca.top3": 0.5}
    plain = compare_with_baselines(table, numbers, 3, 0)
    scaled = compare_with_baselines(
        replace(table, values=table.values * scale), numbers, 3, 0
    )
    for key in numbers:
        for name in NULL_MODELS:
            assert scaled[key][name] == pytest.approx(
                plain[key][name], rel=1e-4, abs=1e-5
            )


def test_without_draws_bands_hold_the_sinusoid_alone() -> None:
    table = as_table(walk(40, 6))
    null_bands = compare_with_baselines(table, {"pca.top3": 0.5}, draws=0, seed=0)[
        "pca.top3"
    ]
    top3 = pp.pca(pp.sinusoidal(40, 6)).explained_variance_ratio[:3].sum()
    assert null_bands["sinusoid"] == pytest.approx(top3, rel=1e-6)
    assert {name: null_bands[name] for name in NULL_MODELS} == dict.fromkeys(NULL_MODELS)


def test_an_undefined_draw_leaves_no_band() -> None:
    assert null_band([]) is None
    assert null_band([1.0, None, 2.0]) is None
    assert null_band([2.0]) == {"p5": 2.0, "p50": 2.0, "p95": 2.0}


# --- poor tables ---

POOR_TABLES = {
    "two rows": as_table(gaussian(2, 4)),
    "three rows": as_table(gaussian(3, 4)),
    "seven rows": as_table(gaussian(7, 4)),
    "constant": as_table(np.ones((30, 4))),
    "a rounded constant": as_table(np.full((30, 4), 0.1)),
    "zeros": as_table(np.zeros((30, 4))),
    "rank one": as_table(np.outer(np.arange(1, 31.0), [1.0, 2, 3, 4])),
    "rank one, both signs": as_table(np.outer(np.linspace(-1, 1, 30), [1.0, 2, 3, 4])),
    "one column": as_table(walk(30, 1)),
    "odd width": as_table(walk(30, 5)),
    "a zero row": as_table(np.vstack([np.zeros((1, 4)), walk(29, 4)])),
    "a constant grid": as_table(np.full((24, 4), 0.3), Grid(4, 6)),
    "a grid of odd width": as_table(walk(24, 6), Grid(4, 6)),
    "a small grid": as_table(walk(6, 8), Grid(2, 3)),
    "a grid of one row": as_table(walk(24, 8), Grid(1, 24)),
}


def numbers_of(block: dict[str, Any]) -> list[float]:
    cells = [block["value"], block["sinusoid"]]
    cells += [
        value for name in NULL_MODELS if block[name] for value in block[name].values()
    ]
    return [value for value in cells if value is not None]


@pytest.mark.parametrize("name", POOR_TABLES)
def test_poor_tables_have_numbers_within_bounds_or_none(name: str) -> None:
    table = POOR_TABLES[name]
    numbers = measure_numbers(table)
    shares = ("top3", "_share", "fraction", "entropy", "ladder", "edge_frequency")
    for key, block in compare_with_baselines(table, numbers, 2, 0).items():
        for value in numbers_of(block):
            assert np.isfinite(value)
            assert value <= 1 + 1e-5 or key in (
                "pca.stable_rank",
                "pca.participation_ratio",
            )
            assert value >= -1 - 1e-5 or key in ("shift.skill", "sinusoid.cka")
            assert value >= -1e-9 or not key.endswith(shares)


@pytest.mark.parametrize(
    "name", ["constant", "a rounded constant", "zeros", "a constant grid"]
)
def test_rows_that_are_equal_have_no_centred_numbers(name: str) -> None:
    numbers = compare_with_baselines(
        POOR_TABLES[name], measure_numbers(POOR_TABLES[name]), 2, 0
    )
    moving = [key for key in numbers if not key.startswith("similarity.raw")]
    moving.append("similarity.raw.translation_invariance")
    for key in moving:
        assert numbers[key]["value"] is None, key
        # Permuted rows and steps of length 0 leave equal rows equal.
        assert numbers[key]["permuted"] is None, key
        assert numbers[key]["walk"] is None, key


@pytest.mark.parametrize("rows", [60, 12], ids=["more rows than columns", "fewer"])
@pytest.mark.parametrize("grid", [False, True], ids=["line", "plane"])
def test_a_table_and_its_negative_have_the_same_bands(rows: int, grid: bool) -> None:
    layout = Grid(rows // 4, 4) if grid else Sequence(rows)
    values = np.random.default_rng(0).standard_normal((rows, 16)) + 2.0
    for name in null_models(layout):
        null_tables = (
            build_null_table(draw(sign * values, name, layout), layout)
            for sign in (1, -1)
        )
        numbers, negative_numbers = map(measure_numbers, null_tables)
        for key, value in numbers.items():
            assert negative_numbers[key] == pytest.approx(value, abs=1e-5), (name, key)


@pytest.mark.parametrize("draws", [-1, 10_001])
def test_impossible_numbers_of_draws_are_refused(draws: int) -> None:
    table = as_table(gaussian(12, 4))
    for attempt in (
        lambda: compare_with_baselines(table, {}, draws, 0),
        lambda: pp.analyze(table, nulls=draws),
    ):
        with pytest.raises(
            UsageError, match=f"`nulls={draws}`: (between 0|the number of draws)"
        ):
            attempt()


@pytest.mark.parametrize("shape", [(7, 6), (128, 64), (48, 160)])
def test_the_numbers_of_the_sinusoid_are_those_of_its_table(
    shape: tuple[int, int],
) -> None:
    expected = measure_numbers(pp.sinusoidal(*shape))
    numbers = measure_formula(Sequence(shape[0]), shape[1])
    assert numbers == pytest.approx(expected, abs=1e-9)


def test_a_surrogate_has_the_shape_and_positions_of_its_table() -> None:
    table = pp.table(100 * structured())[10:50]
    for name in NULL_NAMES:
        surrogate = pp.surrogate(table, name)
        assert (surrogate.values.shape, surrogate.rows) == (
            table.values.shape,
            table.rows,
        )
        assert not differs(surrogate.values, pp.surrogate(table, name).values)
        assert differs(surrogate.values, pp.surrogate(table, name, seed=1).values)
    walk_of = pp.surrogate(table, "walk")
    np.testing.assert_allclose(
        step_norms(walk_of.values), step_norms(table.values), rtol=1e-4
    )
