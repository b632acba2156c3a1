"""What every measurement of a table must do: the same in any basis and unit, or a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made_tables import as_table, gaussian, patches, rotation, walk, waves
from matplotlib.figure import Figure

import posprobe as pp
from posprobe.analyses.descriptive.probes import probes
from posprobe.analyses.descriptive.sinusoid import against_sinusoid
from posprobe.analyses.result import as_block
from posprobe.arrays import positions
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid
from posprobe.schemes import RelativeBias
from posprobe.words import cause

Measure = Callable[..., Any]


#: What takes seconds, and is left to the slow tier as the tests of its own are.
SLOW = (pp.bridging, pp.budget, pp.clock, probes)


def tiers(measures: Iterable[Measure]) -> list[Any]:
    """Return measurements as parameters, with a mark on those that take long."""
    return [
        pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in measures
    ]


def block_of(result: Any) -> dict[str, Any]:
    """Return a result as strict JSON has it."""
    block: dict[str, Any] = json.loads(json.dumps(as_block(result, cause), allow_nan=False))
    return block


def numbers(block: Any, keys: tuple[str, ...]) -> list[float]:
    """Return all numbers below some keys, in order."""
    found: list[float] = []
    for key in keys:
        value = block
        for part in key.split("."):
            value = value[part]
        found += np.ravel(np.asarray(value, dtype=float)).tolist()
    return found


# --- what is undefined ---

EQUAL, ZERO = np.full((40, 8), 0.1), np.zeros((40, 8))
SQUARE = patches(8, 8, 16)
#: By measurement: tables that it tells nothing of, and a part of the reason.
UNDEFINED: list[tuple[Measure, list[tuple[Any, str]]]] = [
    (pp.axis_codes, [
        (gaussian(30, 4), "sequence"),
        (as_table(np.full((36, 4), 0.1), Grid(6, 6)), "all patches are equal"),
        (as_table(np.zeros((36, 4)), Grid(6, 6)), "all patches are equal"),
    ]),
    (pp.bridging, [
        (gaussian(1, 4), "fewer than 8 rows"), (gaussian(7, 4), "fewer than 8 rows"),
        (EQUAL, "all rows are equal"), (ZERO, "all rows are equal"),
    ]),
    (pp.winding, [
        (gaussian(1, 3), "fewer than 6 rows"), (gaussian(5, 3), "fewer than 6 rows"),
        (EQUAL, "all rows are equal"), (ZERO, "all rows are equal"),
        (gaussian(30, 1), "one line"), (np.outer(np.arange(30.0), np.ones(4)), "one line"),
        (SQUARE, "grid"),
    ]),
    (pp.shift, [
        (gaussian(1, 4), "fewer than 16 rows"), (gaussian(15, 4), "fewer than 16 rows"),
        (EQUAL, "all rows are equal"), (ZERO, "all rows are equal"),
        (np.repeat(gaussian(2, 8), 20, axis=0), "do not change within either half"),
        (SQUARE, "grid"),
    ]),
    (pp.seams, [
        (gaussian(1, 4), "fewer than 16 rows"), (gaussian(15, 4), "fewer than 16 rows"),
        (gaussian(64, 1), "single column"),
        (EQUAL, "all rows are equal"), (ZERO, "all rows are equal"),
    ]),
    (pp.spectrogram, [
        (gaussian(63, 3), "fewer than 64 positions"), (gaussian(1, 3), "fewer than 64 positions"),
        (np.full((80, 3), 0.1), "straight line"),
        (np.outer(np.arange(80.0), [1, 2]), "straight line"), (SQUARE, "grid"),
    ]),
    (probes, [
        (walk(9, 4), "fewer than"), (SQUARE, "grid"), (np.ones((64, 3)), "all rows are equal"),
        (1e3 + 1e-13 * gaussian(64, 3), "all rows are equal"),
        (1e20 * walk(64, 3), "single precision"), (1e-20 * walk(64, 3), "single precision"),
    ]),
    (pp.pca, [(EQUAL, "all rows are equal")]),
    (pp.spectrum, [(EQUAL, "nothing is left")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "table", "why"),
    [
        pytest.param(measure, table, why, id=f"{measure.__name__}-{number}")
        for measure, cases in UNDEFINED
        for number, (table, why) in enumerate(cases)
    ],
)
def test_what_is_undefined_is_none_with_a_reason_and_drawn_in_words(
    measure: Measure, table: Any, why: str
) -> None:
    found = measure(table)
    block = block_of(found)
    none = {key for key, value in block.items() if value is None}
    assert none
    assert none <= set(block["undefined"])
    assert any(why in block["undefined"][key] for key in none)
    if found.figures:
        drawn = found.plot(Figure().add_subplot())
        assert any(why in " ".join(text.get_text().split()) for text in drawn.texts)


LONE = np.zeros((64, 3))
LONE[20] = 1
POOR = {
    "two rows": gaussian(2, 3),
    "six rows": walk(6, 2),
    "eight rows": walk(8, 1),
    "eleven rows": gaussian(11, 12),
    "one column": gaussian(64, 1),
    "rank one": np.outer(gaussian(64, 1), np.ones(8)),
    "line": np.outer(np.arange(1.0, 65), np.ones(3)),
    "one-hot": np.eye(40),
    "zero rows": np.vstack([np.zeros((3, 4)), gaussian(61, 4)]),
    "a lone row": LONE,
    "tiny": 1e-40 * gaussian(64, 4),
    "huge": 1e40 * gaussian(64, 4),
    **{f"{h} x {w}": as_table(gaussian(h * w, 3), Grid(h, w)) for h, w in ((1, 8), (8, 1), (3, 7))},
}
OF_ALL: tuple[Measure, ...] = (
    pp.axis_codes, pp.bridging, pp.winding, pp.shift, pp.seams, pp.spectrogram, pp.budget,
    pp.clock, against_sinusoid,
)  # fmt: skip


@pytest.mark.parametrize("measure", tiers(OF_ALL))
@pytest.mark.parametrize("name", POOR)
def test_poor_tables_give_numbers_or_reasons_and_no_rotation(measure: Measure, name: str) -> None:
    found = measure(POOR[name])
    block = block_of(found)
    assert {key for key, value in block.items() if value is None} <= set(block["undefined"])
    if measure is pp.shift and not found.undefined:
        assert not found.rotations.any()
    if measure is pp.seams and not found.undefined and name not in ("zero rows", "a lone row"):
        assert (found.between, found.special) == ((), ())


# --- what must not matter ---

TURNING = waves(160, [8.0, 30.0], noise=0.2) @ rotation(12)[:4]
SEAM = np.concatenate([walk(80, 12), walk(80, 12, 1) + 60 * gaussian(1, 12)])
#: By measurement: a table, and keys of numbers without a unit.
UNITLESS: dict[Measure, tuple[Any, tuple[str, ...]]] = {
    pp.bridging: (TURNING, ("r2.linear", "r2.smooth", "r2.waves", "r2.shift")),
    pp.winding: (TURNING, ("turns",)),
    pp.shift: (TURNING, ("periods", "moduli", "shares", "skill", "rank")),
    pp.seams: (SEAM, ("between",)),
    pp.spectrogram: (TURNING, ("length", "fastest_period_p10_p50_p90")),
    against_sinusoid: (
        TURNING, ("cka", "cka_biased", "procrustes", "subspace_overlap", "ladder_share"),
    ),
    pp.axis_codes: (patches(8, 10, 12), ("rows.share", "columns.share", "interaction_share")),
}  # fmt: skip


@pytest.mark.parametrize("measure", tiers(UNITLESS))
@pytest.mark.parametrize("scale", [1e-80, -3.0, 1e80])
def test_neither_basis_nor_origin_nor_unit_matters(measure: Measure, scale: float) -> None:
    table, keys = UNITLESS[measure]
    if measure is pp.spectrogram:  # it takes fourth powers
        scale = float(np.cbrt(scale))
    values = scale * (np.asarray(table) @ rotation(12, 5) + (0.0 if measure is pp.seams else 3.0))
    turned = as_table(values, table.layout) if isinstance(table, pp.PositionTable) else values
    before, after = (numbers(block_of(measure(each)), keys) for each in (table, turned))
    assert after == pytest.approx(before, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("measure", tiers((pp.bridging, pp.winding, pp.shift)))
def test_known_components_are_used_and_held_to_the_table(measure: Measure) -> None:
    assert block_of(measure(TURNING, pca=pp.pca(TURNING))) == block_of(measure(TURNING))
    with pytest.raises(InvalidTable, match="159 rows, the table has 160"):
        measure(TURNING, pca=pp.pca(TURNING[1:]))


def assert_same(found: Any, expected: Any, where: str) -> None:
    """Assert that parts of two results, or of their blocks, agree."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_same(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), where
    else:
        assert found == expected, where


#: Of these the whole result has to agree, with arrays that no document has; of others the numbers
#: without a unit.
WHOLE: dict[Measure, Callable[[Any], tuple[Any, ...]]] = {
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
ON_DEVICES = (
    TURNING, SEAM, np.vstack([np.zeros((1, 12)), walk(19, 12)]), np.ones((32, 5)), walk(9, 40),
    patches(9, 12, 20),
)  # fmt: skip
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is there")


@pytest.mark.parametrize(
    ("measure", "device"),
    [
        *((each, "cpu") for each in (*WHOLE, pp.seams, pp.shift, pp.winding, pp.spectrogram)),
        *(pytest.param(each, "cuda", marks=needs_cuda) for each in WHOLE),
    ],
)
def test_torch_gives_the_same_numbers(measure: Measure, device: str) -> None:
    for table in ON_DEVICES:
        given = positions(table, "cpu")
        if measure is pp.grid and not isinstance(given.layout, Grid):
            continue
        values = torch.from_numpy(np.array(table, dtype=np.float64)).to(device)
        found, expected = measure(replace(given, values=values, device=device)), measure(table)
        blocks = block_of(found), block_of(expected)
        if measure in WHOLE:
            assert_same(*blocks, measure.__name__)
            for one, other in zip(*map(WHOLE[measure], (found, expected)), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(table).max())
            continue
        assert blocks[0]["undefined"] == blocks[1]["undefined"]
        known = tuple(key for key in UNITLESS[measure][1] if blocks[1][key] is not None)
        assert numbers(blocks[0], known) == pytest.approx(numbers(blocks[1], known), rel=1e-9)


@pytest.mark.parametrize("measure", [*OF_ALL, pp.norms, pp.similarity, pp.pca, pp.spectrum, probes])
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
def test_what_is_no_table_is_refused(measure: Measure, values: Any, message: str) -> None:
    with pytest.raises(InvalidTable, match=message):
        measure(values)


# --- numbers at the edge ---

SQUARES: tuple[Measure, ...] = (
    pp.norms, pp.seams, pp.similarity, pp.spectrogram, pp.spectrum,
)  # fmt: skip
SUMS: tuple[Measure, ...] = (
    pp.axis_codes, pp.bridging, pp.budget, pp.pca, pp.shift, pp.winding,
)  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "reach"),
    [
        *((measure, reach) for measure in SQUARES for reach in (1e160, 1e308, 1e-200)),
        *((measure, 1e308) for measure in SUMS),
    ],
)
def test_a_measurement_of_numbers_at_the_edge_is_refused_by_name(
    measure: Measure, reach: float
) -> None:
    table = np.random.default_rng(0).uniform(-1, 1, (16, 16))
    with pytest.raises(InvalidTable, match=r"reach .* Scale the table"):
        measure(pp.table(table / np.abs(table).max() * reach, grid=(4, 4)))


@pytest.mark.parametrize("exponent", [-460, 460])
def test_what_has_no_units_is_the_same_up_to_the_edge(exponent: int) -> None:
    # By a power of two, which changes no digit.
    table = np.cos(np.arange(96)[:, None] * 1e4 ** -(np.arange(16) / 16))
    one, other = (
        (pp.spectrum(part), pp.spectrogram(part), pp.winding(part), pp.pca(part))
        for part in (table, np.ldexp(table, exponent))
    )
    noise, scaled = (np.asarray(each[0].threshold) / each[0].power for each in (one, other))
    np.testing.assert_allclose(noise, scaled)
    np.testing.assert_allclose(one[1].strongest, other[1].strongest)
    assert one[2].radius_cv == pytest.approx(other[2].radius_cv)
    moved = np.ldexp(other[3].singular_values, -exponent)
    np.testing.assert_allclose(moved, one[3].singular_values, atol=1e-12)


@pytest.mark.parametrize("exponent", [-560, 660])
def test_components_are_the_same_where_squares_leave_the_range(exponent: int) -> None:
    table = np.hstack([waves(40, [8.0]), walk(40, 5)])
    one, other = ((pp.pca(part), pp.winding(part)) for part in (table, np.ldexp(table, exponent)))
    moved = np.ldexp(other[0].singular_values, -exponent)
    np.testing.assert_allclose(moved, one[0].singular_values, rtol=1e-9)
    assert other[1].pairs[0].radius_cv == pytest.approx(one[1].pairs[0].radius_cv)


@pytest.mark.parametrize("reach", [1e150, 1e-170])
def test_biases_at_the_edge_are_refused_by_name(reach: float) -> None:
    (bias,) = pp.load_schemes("t5:32x8")
    assert isinstance(bias, RelativeBias)
    with pytest.raises(InvalidTable, match=r"t5:32x8.* reach .* Scale them"):
        replace(bias, values=bias.values / np.abs(bias.values).max() * reach)
