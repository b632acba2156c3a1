"""Laws of every measurement: equal numbers in any basis and unit, or a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made_devices import needs_cuda
from made_tables import as_table, gaussian, patches, rotation, walk, waves
from matplotlib.figure import Figure

import posprobe as pp
from posprobe.analyses.descriptive.probes import probes
from posprobe.analyses.descriptive.sinusoid import against_sinusoid
from posprobe.analyses.models.subspaces import subspace_overlap
from posprobe.analyses.result import as_block
from posprobe.arrays import positions
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid
from posprobe.schemes import RelativeBias
from posprobe.words import cause_clause

Measure = Callable[..., Any]


#: Measurements that take seconds: their cases belong to the slow tier.
SLOW_MEASURES = (pp.bridging, pp.budget, pp.clock, probes)


def tiers(measures: Iterable[Measure]) -> list[Any]:
    """Return measurements as test parameters; slow ones carry the mark."""
    return [
        pytest.param(measure, marks=pytest.mark.slow)
        if measure in SLOW_MEASURES
        else measure
        for measure in measures
    ]


def block_of(result: Any) -> dict[str, Any]:
    """Return a result as read back from strict JSON."""
    block: dict[str, Any] = json.loads(
        json.dumps(as_block(result, cause_clause), allow_nan=False)
    )
    return block


def numbers(block: Any, keys: tuple[str, ...]) -> list[float]:
    """Return all numbers below some keys, in order."""
    numbers_found: list[float] = []
    for key in keys:
        value = block
        for name in key.split("."):
            value = value[name]
        numbers_found += np.ravel(np.asarray(value, dtype=float)).tolist()
    return numbers_found


# --- undefined results ---

EQUAL_ROWS = np.full((40, 8), 0.1)
ZERO_ROWS = np.zeros((40, 8))
SQUARE_GRID = patches(8, 8, 16)
#: By measurement: tables without a result, and a part of the reason.
UNDEFINED_CASES: list[tuple[Measure, list[tuple[Any, str]]]] = [
    (pp.axis_codes, [
        (gaussian(30, 4), "sequence"),
        (as_table(np.full((36, 4), 0.1), Grid(6, 6)), "all patches are equal"),
        (as_table(np.zeros((36, 4)), Grid(6, 6)), "all patches are equal"),
    ]),
    (pp.bridging, [
        (gaussian(1, 4), "fewer than 8 rows"), (gaussian(7, 4), "fewer than 8 rows"),
        (EQUAL_ROWS, "all rows are equal"), (ZERO_ROWS, "all rows are equal"),
    ]),
    (pp.winding, [
        (gaussian(1, 3), "fewer than 6 rows"), (gaussian(5, 3), "fewer than 6 rows"),
        (EQUAL_ROWS, "all rows are equal"), (ZERO_ROWS, "all rows are equal"),
        (gaussian(30, 1), "one line"), (np.outer(np.arange(30.0), np.ones(4)), "one line"),
        (SQUARE_GRID, "grid"),
    ]),
    (pp.shift, [
        (gaussian(1, 4), "fewer than 16 rows"), (gaussian(15, 4), "fewer than 16 rows"),
        (EQUAL_ROWS, "all rows are equal"), (ZERO_ROWS, "all rows are equal"),
        (np.repeat(gaussian(2, 8), 20, axis=0), "do not change within either half"),
        (SQUARE_GRID, "grid"),
    ]),
    (pp.seams, [
        (gaussian(1, 4), "fewer than 16 rows"), (gaussian(15, 4), "fewer than 16 rows"),
        (gaussian(64, 1), "single column"),
        (EQUAL_ROWS, "all rows are equal"), (ZERO_ROWS, "all rows are equal"),
    ]),
    (pp.spectrogram, [
        (gaussian(63, 3), "fewer than 64 positions"), (gaussian(1, 3), "fewer than 64 positions"),
        (np.full((80, 3), 0.1), "straight line"),
        (np.outer(np.arange(80.0), [1, 2]), "straight line"), (SQUARE_GRID, "grid"),
    ]),
    (probes, [
        (walk(9, 4), "fewer than"), (SQUARE_GRID, "grid"), (np.ones((64, 3)), "all rows are equal"),
        (1e3 + 1e-13 * gaussian(64, 3), "all rows are equal"),
        (1e20 * walk(64, 3), "single precision"), (1e-20 * walk(64, 3), "single precision"),
    ]),
    (pp.pca, [(EQUAL_ROWS, "all rows are equal")]),
    (pp.spectrum, [(EQUAL_ROWS, "nothing is left")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "table", "reason"),
    [
        pytest.param(measure, table, reason, id=f"{measure.__name__}-{number}")
        for measure, cases in UNDEFINED_CASES
        for number, (table, reason) in enumerate(cases)
    ],
)
def test_undefined_numbers_are_none_with_a_reason_that_is_drawn(
    measure: Measure, table: Any, reason: str
) -> None:
    result = measure(table)
    block = block_of(result)
    undefined = {key for key, value in block.items() if value is None}
    assert undefined
    assert undefined <= set(block["undefined"])
    assert any(reason in block["undefined"][key] for key in undefined)
    if result.figures:
        ax = result.plot(Figure().add_subplot())
        assert any(reason in " ".join(text.get_text().split()) for text in ax.texts)


LONE_ROW = np.zeros((64, 3))
LONE_ROW[20] = 1
POOR_TABLES = {
    "two rows": gaussian(2, 3),
    "six rows": walk(6, 2),
    "eight rows": walk(8, 1),
    "eleven rows": gaussian(11, 12),
    "one column": gaussian(64, 1),
    "rank one": np.outer(gaussian(64, 1), np.ones(8)),
    "line": np.outer(np.arange(1.0, 65), np.ones(3)),
    "one-hot": np.eye(40),
    "zero rows": np.vstack([np.zeros((3, 4)), gaussian(61, 4)]),
    "a lone row": LONE_ROW,
    "tiny": 1e-40 * gaussian(64, 4),
    "huge": 1e40 * gaussian(64, 4),
    **{
        f"{h} x {w}": as_table(gaussian(h * w, 3), Grid(h, w))
        for h, w in ((1, 8), (8, 1), (3, 7))
    },
}
MEASURES: tuple[Measure, ...] = (
    pp.axis_codes, pp.bridging, pp.winding, pp.shift, pp.seams, pp.spectrogram, pp.budget,
    pp.clock, against_sinusoid,
)  # fmt: skip


@pytest.mark.parametrize("measure", tiers(MEASURES))
@pytest.mark.parametrize("name", POOR_TABLES)
def test_poor_tables_give_numbers_or_reasons_and_no_rotation(
    measure: Measure, name: str
) -> None:
    result = measure(POOR_TABLES[name])
    block = block_of(result)
    assert {key for key, value in block.items() if value is None} <= set(
        block["undefined"]
    )
    if measure is pp.shift and not result.undefined:
        assert not result.rotations.any()
    if (
        measure is pp.seams
        and not result.undefined
        and name not in ("zero rows", "a lone row")
    ):
        assert (result.between, result.special) == ((), ())


# --- invariances ---

ROTATING_ROWS = waves(160, [8.0, 30.0], noise=0.2) @ rotation(12)[:4]
SEAM_ROWS = np.concatenate([walk(80, 12), walk(80, 12, 1) + 60 * gaussian(1, 12)])
#: By measurement: a table, and keys of numbers without a unit.
UNITLESS_KEYS: dict[Measure, tuple[Any, tuple[str, ...]]] = {
    pp.bridging: (ROTATING_ROWS, ("r2.linear", "r2.smooth", "r2.waves", "r2.shift")),
    pp.winding: (ROTATING_ROWS, ("turns",)),
    pp.shift: (ROTATING_ROWS, ("periods", "moduli", "shares", "skill", "rank")),
    pp.seams: (SEAM_ROWS, ("between",)),
    pp.spectrogram: (ROTATING_ROWS, ("length", "fastest_period_p10_p50_p90")),
    against_sinusoid: (
        ROTATING_ROWS, ("cka", "cka_biased", "procrustes", "subspace_overlap", "ladder_share"),
    ),
    pp.axis_codes: (patches(8, 10, 12), ("rows.share", "columns.share", "interaction_share")),
}  # fmt: skip


@pytest.mark.parametrize("measure", tiers(UNITLESS_KEYS))
@pytest.mark.parametrize("scale", [1e-80, -3.0, 1e80])
def test_neither_basis_nor_origin_nor_unit_matters(
    measure: Measure, scale: float
) -> None:
    table, keys = UNITLESS_KEYS[measure]
    if measure is pp.spectrogram:  # fourth powers would overflow
        scale = float(np.cbrt(scale))
    values = scale * (
        np.asarray(table) @ rotation(12, 5) + (0.0 if measure is pp.seams else 3.0)
    )
    rotated = (
        as_table(values, table.layout) if isinstance(table, pp.PositionTable) else values
    )
    before, after = (numbers(block_of(measure(rows)), keys) for rows in (table, rotated))
    assert after == pytest.approx(before, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("measure", tiers((pp.bridging, pp.winding, pp.shift)))
def test_known_components_are_used_and_held_to_the_table(measure: Measure) -> None:
    assert block_of(measure(ROTATING_ROWS, pca=pp.pca(ROTATING_ROWS))) == block_of(
        measure(ROTATING_ROWS)
    )
    with pytest.raises(InvalidTable, match="159 rows, the table has 160"):
        measure(ROTATING_ROWS, pca=pp.pca(ROTATING_ROWS[1:]))


def assert_equal_blocks(actual: Any, expected: Any, subject: str) -> None:
    """Assert that two blocks, or parts of them, agree."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), subject
        for key, value in expected.items():
            assert_equal_blocks(actual[key], value, f"{subject}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), subject
        for index, pair in enumerate(zip(actual, expected, strict=True)):
            assert_equal_blocks(*pair, f"{subject}[{index}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-9, abs=1e-9), subject
    else:
        assert actual == expected, subject


#: Measurements whose whole result must agree, with their arrays; of the others only the unitless
#: numbers are compared.
ARRAYS_BY_MEASURE: dict[Measure, Callable[[Any], tuple[Any, ...]]] = {
    pp.norms: lambda result: (result.norms,),
    pp.similarity: lambda result: (result.raw.matrix, result.centered.matrix),
    # Only the first components of all tables below have singular values of their own.
    pp.pca: lambda result: (
        result.singular_values,
        *(() if result.undefined else (result.scores[:, :3], result.components[:3])),
    ),
    pp.spectrum: lambda result: (result.power, result.power_by_dim),
    pp.grid: lambda result: (result.mosaic, result.power),
}
DEVICE_TABLES = (
    ROTATING_ROWS,
    SEAM_ROWS,
    np.vstack([np.zeros((1, 12)), walk(19, 12)]),
    np.ones((32, 5)),
    walk(9, 40),
    patches(9, 12, 20),
)
#: Rows and token embeddings.
SUBSPACE_ARRAYS = (gaussian(30, 12), gaussian(60, 12, 1) * np.linspace(0.1, 2, 12))


@pytest.mark.parametrize(
    ("measure", "device"),
    [
        *(
            (measure, "cpu")
            for measure in (
                *ARRAYS_BY_MEASURE,
                pp.seams,
                pp.shift,
                pp.winding,
                pp.spectrogram,
            )
        ),
        *(
            pytest.param(measure, "cuda", marks=needs_cuda)
            for measure in ARRAYS_BY_MEASURE
        ),
    ],
)
def test_torch_gives_the_same_numbers(measure: Measure, device: str) -> None:
    for table in DEVICE_TABLES:
        inputs = positions(table, "cpu")
        if measure is pp.grid and not isinstance(inputs.layout, Grid):
            continue
        values = torch.from_numpy(np.array(table, dtype=np.float64)).to(device)
        result, expected = (
            measure(replace(inputs, values=values, device=device)),
            measure(table),
        )
        blocks = block_of(result), block_of(expected)
        if measure in ARRAYS_BY_MEASURE:
            assert_equal_blocks(*blocks, measure.__name__)
            for array, expected_array in zip(
                *map(ARRAYS_BY_MEASURE[measure], (result, expected)), strict=True
            ):
                assert array.dtype == expected_array.dtype
                np.testing.assert_allclose(
                    array, expected_array, rtol=1e-9, atol=1e-9 * np.abs(table).max()
                )
            continue
        assert blocks[0]["undefined"] == blocks[1]["undefined"]
        defined_keys = tuple(
            key for key in UNITLESS_KEYS[measure][1] if blocks[1][key] is not None
        )
        assert numbers(blocks[0], defined_keys) == pytest.approx(
            numbers(blocks[1], defined_keys), rel=1e-9
        )


def test_torch_gives_the_same_overlap_of_subspaces() -> None:
    result, expected = (
        subspace_overlap(*map(convert, SUBSPACE_ARRAYS), rank=4)
        for convert in (torch.from_numpy, np.asarray)
    )
    for name in ("matrix", "cosine_change"):
        np.testing.assert_allclose(
            getattr(result, name), getattr(expected, name), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(
    "measure", [*MEASURES, pp.norms, pp.similarity, pp.pca, pp.spectrum, probes]
)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(5), r"shape \[5\]"),
        (np.ones((2, 3, 4)), r"shape \[2, 3, 4\]"),
        (np.ones((0, 4)), r"shape \[0, 4\]"),
        (np.ones((4, 0)), r"shape \[4, 0\]"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "NaN or infinity"),
        (np.array([[1.0, np.inf], [0.0, 1.0]]), "NaN or infinity"),
    ],
    ids=["1-D", "3-D", "no rows", "no columns", "NaN", "infinity"],
)
def test_arrays_that_are_no_table_are_refused(
    measure: Measure, values: Any, message: str
) -> None:
    with pytest.raises(InvalidTable, match=message):
        measure(values)


# --- magnitudes near overflow ---

SQUARING_MEASURES: tuple[Measure, ...] = (
    pp.norms, pp.seams, pp.similarity, pp.spectrogram, pp.spectrum,
)  # fmt: skip
SUMMING_MEASURES: tuple[Measure, ...] = (
    pp.axis_codes, pp.bridging, pp.budget, pp.pca, pp.shift, pp.winding,
)  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "magnitude"),
    [
        *(
            (measure, reach)
            for measure in SQUARING_MEASURES
            for reach in (1e160, 1e308, 1e-200)
        ),
        *((measure, 1e308) for measure in SUMMING_MEASURES),
    ],
)
def test_magnitudes_near_overflow_are_refused_by_measurement_name(
    measure: Measure, magnitude: float
) -> None:
    table = np.random.default_rng(0).uniform(-1, 1, (16, 16))
    with pytest.raises(InvalidTable, match=r"reach .* Scale the table"):
        measure(pp.table(table / np.abs(table).max() * magnitude, grid=(4, 4)))


@pytest.mark.parametrize("exponent", [-460, 460])
def test_unitless_numbers_are_equal_up_to_the_range_of_floats(exponent: int) -> None:
    # Scaling by a power of two changes no digit.
    table = np.cos(np.arange(96)[:, None] * 1e4 ** -(np.arange(16) / 16))
    original, scaled = (
        (pp.spectrum(rows), pp.spectrogram(rows), pp.winding(rows), pp.pca(rows))
        for rows in (table, np.ldexp(table, exponent))
    )
    original_ratio, scaled_ratio = (
        np.asarray(results[0].threshold) / results[0].power
        for results in (original, scaled)
    )
    np.testing.assert_allclose(original_ratio, scaled_ratio)
    np.testing.assert_allclose(original[1].strongest, scaled[1].strongest)
    assert original[2].radius_cv == pytest.approx(scaled[2].radius_cv)
    singular_values = np.ldexp(scaled[3].singular_values, -exponent)
    np.testing.assert_allclose(singular_values, original[3].singular_values, atol=1e-12)


@pytest.mark.parametrize("exponent", [-560, 660])
def test_components_are_equal_when_squares_overflow(exponent: int) -> None:
    table = np.hstack([waves(40, [8.0]), walk(40, 5)])
    original, scaled = (
        (pp.pca(rows), pp.winding(rows)) for rows in (table, np.ldexp(table, exponent))
    )
    singular_values = np.ldexp(scaled[0].singular_values, -exponent)
    np.testing.assert_allclose(singular_values, original[0].singular_values, rtol=1e-9)
    assert scaled[1].pairs[0].radius_cv == pytest.approx(original[1].pairs[0].radius_cv)


@pytest.mark.parametrize("magnitude", [1e150, 1e-170])
def test_biases_near_overflow_are_refused_by_name(magnitude: float) -> None:
    (bias,) = pp.load_schemes("t5:32x8")
    assert isinstance(bias, RelativeBias)
    with pytest.raises(InvalidTable, match=r"t5:32x8.* reach .* Scale them"):
        replace(bias, values=bias.values / np.abs(bias.values).max() * magnitude)
