"""What ways of resizing do: numbers follow from the way, and what changes from the numbers."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest

import posprobe as pp
from posprobe.errors import NoPositionTable, UsageError
from posprobe.layouts import Sequence
from posprobe.relations.resized import Effect, Period, Turns, Way
from posprobe.report import render_bundle, to_json
from posprobe.report.render import build_page
from posprobe.report.screen import render_text as summary
from posprobe.resizing.rotary import compare_rules
from posprobe.studies.resizing import compare, compare_ways

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from posprobe.schemes import Rotary

MINILM = "sample:all-minilm-l6-v2"


def helix(size: int, period: float = 24.0) -> NDArray[np.float64]:
    """A helix in eight dimensions, with a little noise."""
    time = np.arange(size)
    turn = 2 * np.pi * time / period
    axes = np.random.default_rng(0).normal(size=(3, 8))
    rows = np.stack([np.cos(turn), np.sin(turn), time / size], axis=1) @ axes
    return np.asarray(rows + 0.01 * np.random.default_rng(1).normal(size=rows.shape))


def by_way(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {way["how"]: way for way in document["ways"]}


def only_way(values: Any, size: Any, way_name: str, **options: Any) -> Way:
    """What one way does to a table."""
    (way,) = compare_ways(pp.table(values, **options), to=size, ways=(way_name,)).ways
    return way


def follows_the_schema(document: dict[str, Any]) -> bool:
    text = (files("posprobe.report") / "schema" / "resizing-1.json").read_text(
        encoding="utf-8"
    )
    validator = jsonschema.Draft202012Validator(json.loads(text))
    return not list(validator.iter_errors(json.loads(to_json(document))))


def test_stretching_scales_periods_and_continuing_keeps_them() -> None:
    comparison = compare_ways(pp.table(helix(120)), to=240)
    assert comparison.before.turns["positions"].periods[0] == pytest.approx(24, rel=0.02)
    for way in comparison.ways:
        (period,) = way.periods
        if way.how in ("linear", "cubic", "fourier"):
            assert period.change == "scales"
            assert period.after == pytest.approx(48, rel=0.05)
            assert (way.place, way.position) == ("kept", "lost")
            assert (way.same_place or 0) > 0.97
        elif way.how in ("tile", "sinusoids"):
            assert period.change == "stays"
            assert period.after == pytest.approx(24, rel=0.05)
        if way.kind == "continues":
            assert way.same_position == pytest.approx(1)
    assert follows_the_schema(comparison.to_dict())


def test_kept_structure_follows_from_cosines() -> None:
    turning = only_way(helix(60), 120, "linear")
    assert (turning.place, turning.position) == ("kept", "lost")
    # One more row leaves those of a slow curve near where they were.
    slow = only_way(np.arange(40.0)[:, None] * np.array([[1.0, 0.2, 3.0]]), 41, "linear")
    assert (slow.place, slow.position) == ("kept", "kept")
    # Few waves of many cannot hold rows that are independent of each other.
    noise = np.random.default_rng(0).normal(size=(60, 20))
    assert only_way(noise, 45, "fourier").place == "partly"
    assert only_way(noise, 8, "fourier").place == "lost"
    equal = only_way(np.ones((10, 3)), 20, "linear")
    assert equal.alike
    assert equal.place is None
    assert not turning.alike


def test_axes_of_a_grid_have_periods_of_their_own() -> None:
    turns = 2 * np.pi * np.arange(24)[:, None] / np.array([[6.0, 11.0]])
    rows, columns = (np.stack([np.cos(turn), np.sin(turn)], axis=1) for turn in turns.T)
    cells = np.concatenate(
        [np.repeat(rows[:, None], 24, axis=1), np.repeat(columns[None], 24, axis=0)],
        axis=2,
    )
    way = only_way(cells.reshape(-1, 4), (48, 24), "bilinear", grid=(24, 24))
    rows_found, columns_found = way.periods
    assert (rows_found.axis, rows_found.change) == ("rows", "scales")
    assert (rows_found.before, rows_found.after) == pytest.approx((6, 12), rel=0.05)
    assert (columns_found.axis, columns_found.change) == ("columns", "stays")
    assert columns_found.after == pytest.approx(11, rel=0.05)
    assert way.factors == {"rows": 2, "columns": 1}


def test_special_patches_are_looked_for_and_seams_of_grids_are_not() -> None:
    values = np.array(pp.sincos2d(8, 9, 16).values, float)
    values[30] += 9
    document = compare_ways(pp.table(values, grid=(8, 9)), to=(8, 9)).to_dict()
    assert document["before"]["special"] == [30]
    larger = by_way(compare_ways(pp.table(values, grid=(8, 9)), to=(16, 18)).to_dict())[
        "bilinear"
    ]
    assert len(larger["special"]) > 1
    assert document["before"]["seams"] is None
    assert set(document["before"]["undefined"]) & {"seams", "special"} == {"seams"}
    small_grid = compare_ways(pp.table(values[:9], grid=(3, 3)), to=(8, 9)).to_dict()
    assert small_grid["before"]["special"] is None
    assert small_grid["before"]["undefined"]["special"] == "fewer than 16 patches"


def test_copies_and_seams_are_those_that_the_way_makes() -> None:
    table = pp.load(MINILM)
    ways = by_way(
        compare_ways(table, to=800, ways=("tile", "linear", "repeat-last")).to_dict()
    )
    assert (ways["tile"]["copies"], ways["repeat-last"]["copies"]) == (288, 288)
    assert ways["tile"]["seams"] == [
        [511, 512]
    ]  # that of the table, at 127 and 639, is old
    assert ways["linear"]["seams"] == []


def test_a_tiled_table_breaks_at_every_tile() -> None:
    """As GPT-2's table does, whose first four rows and last one are outliers."""
    values = pp.sinusoidal(120, 48).values.copy()
    values[[0, 1, 2, 3, 119]] = np.random.default_rng(0).normal(size=(5, 48))
    way = only_way(values, 240, "tile")
    assert way.seams == ((119, 120),)
    assert len(way.special or ()) > len(way.before.special or ()) > 0


def test_cutting_leaves_remaining_rows_unchanged() -> None:
    table = pp.table(helix(120))
    way = by_way(compare_ways(table, to=60, ways=("tile",)).to_dict())["tile"]
    assert way["norm_mean"] == pytest.approx(
        np.linalg.norm(table.values[:60], axis=1).mean()
    )
    assert way["same_position"] == pytest.approx(1)
    assert way["copies"] == 0


def test_a_grid_is_described_by_its_axes() -> None:
    document = compare_ways(pp.load("sample:digits-vit"), to=(16, 8)).to_dict()
    ways = by_way(document)
    assert set(document["before"]["turns"]) == {"rows", "columns"}
    assert ways["tile"]["copies"] == 64
    assert document["missing"] == {}
    assert follows_the_schema(document)
    text = " ".join(summary(document).split())
    assert "from a grid of 8 × 8 patches to a grid of 16 × 8" in text
    assert all(
        f"* {way_name}: {way['sentences'][0]}" in text for way_name, way in ways.items()
    )


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((10, 3)),
        np.ones((10, 3)),
        np.eye(10)[:, :1],
        np.arange(6.0).reshape(2, 3),
    ],
    ids=["zeros", "constant", "one column", "two rows"],
)
def test_degenerate_tables_have_sentences_without_none(
    values: NDArray[np.float64],
) -> None:
    document = compare_ways(pp.table(values), to=15).to_dict()
    assert follows_the_schema(document)
    for way in (document["before"], *document["ways"]):
        for key in ("neighbour_cosine", "same_place", "seams"):
            assert (way[key] is None) == (key in way["undefined"])
    assert "nan" not in summary(document).lower()


def test_a_bundle_is_written_and_rendered_again(tmp_path: Path) -> None:
    folder = compare_ways(pp.table(helix(60)), to=90).save(tmp_path / "ways")
    rotations = compare_rules(rotary("rotary:512x16"), to=2048).save(tmp_path / "rules")
    for bundle, figure_names in (
        (folder, {"cosines", "norms"}),
        (rotations, {"wavelengths", "decay"}),
    ):
        page = (bundle / "report.html").read_bytes()
        assert {path.stem for path in (bundle / "figures").glob("*.svg")} == figure_names
        assert render_bundle(bundle).read_bytes() == page
    with np.load(folder / "arrays.npz") as arrays:
        assert arrays["tile_norms"].shape == (90,)
        # Small tables are not averaged.
        similarity = pp.similarity(pp.resize(pp.table(helix(60)), to=90, how="cubic"))
        np.testing.assert_allclose(
            arrays["cubic_cosines"], similarity.centered.matrix, atol=1e-9
        )


def test_the_page_has_the_period_of_the_sentences() -> None:
    document = compare_ways(pp.load("sample:all-minilm-l6-v2"), to=1024).to_dict()
    rows = {row[0]: row[1:] for row in build_page(document).numbers.rows}
    periods = rows["leading period"][1:]
    for way, period in zip(document["ways"], periods, strict=True):
        (change,) = way["periods"]
        if change["change"] == "lost":
            assert period == "–"
        else:
            assert float(str(period)) == pytest.approx(change["after"], rel=0.01)


# Rotary positions.


def rotary(text: str) -> Rotary:
    (record,) = pp.load_schemes(text)
    assert isinstance(record, pp.schemes.Rotary)
    return record


def rules(text: str, target_length: int) -> dict[str, dict[str, Any]]:
    document = compare_rules(rotary(text), to=target_length).to_dict()
    assert follows_the_schema(document)
    return {rule["rule"]: rule for rule in document["rules"]}


def test_scaling_rules_follow_their_formulas() -> None:
    training, target, dim = 4096, 16384, 128
    rules_by_name = rules(f"rotary:{training}x{dim}", target)
    omega = 10_000.0 ** (-np.arange(0, dim, 2) / dim)
    n_idle = int((training * omega < 2 * np.pi).sum())
    assert (
        rules_by_name["none"]["extrapolated"]
        == n_idle
        == 64 - rules_by_name["none"]["whole_turn"]
    )
    assert rules_by_name["none"]["slowed"] == rules_by_name["linear"]["kept"] == 0
    assert rules_by_name["linear"]["interpolated"] == n_idle
    assert rules_by_name["linear"]["slowest"] == pytest.approx(4)
    # NTK-aware: base * 4 ** (d / (d - 2)) leaves the fastest pair and slows the slowest 4 times.
    assert (
        rules_by_name["dynamic"]["kept"],
        rules_by_name["dynamic"]["interpolated"],
    ) == (
        1,
        1,
    )
    assert rules_by_name["dynamic"]["slowest"] == pytest.approx(4)
    assert rules_by_name["yarn"]["attention_factor"] == pytest.approx(0.1 * np.log(4) + 1)
    assert rules_by_name["llama3"]["kept"] == int(
        (training * omega / (2 * np.pi) >= 4).sum()
    )
    mean = np.cos(omega / 4 * target).mean()
    assert rules_by_name["linear"]["kernel_at_to"] == pytest.approx(mean)
    assert rules_by_name["linear"]["longest_wavelength"] == pytest.approx(
        4 * 2 * np.pi / omega[-1]
    )


def test_a_ladder_whose_pairs_all_turn_extrapolates_nothing() -> None:
    rules_by_name = rules("rotary:4096x16,base=10", 8192)
    assert rules_by_name["none"]["extrapolated"] == 0
    assert rules_by_name["none"]["whole_turn"] == 8


def test_the_checkpoints_own_rule_is_among_them() -> None:
    factors = {"long_factor": [2.0, 4.0], "short_factor": [1.0, 1.0]}
    record = pp.schemes.Rotary(
        4, "mine", pp.sources.Source("mine", "made here"), max_positions=8192, training_length=1024,
        scaling={"rope_type": "longrope", **factors, "original_max_position_embeddings": 1024},
    )  # fmt: skip
    document = compare_rules(record, to=4096).to_dict()
    own_rule = next(rule for rule in document["rules"] if rule["rule"] == "longrope")
    assert (own_rule["slowed"], own_rule["slowest"]) == (2, 4)
    assert "longrope" not in document["missing"]


def test_resizing_schemes_refuses_table_options() -> None:
    (alibi,) = pp.load_schemes("alibi:64x4")
    with pytest.raises(NoPositionTable, match="no table of positions that could be"):
        compare((alibi,), to=128)
    record = rotary("rotary:64x8")
    with pytest.raises(UsageError, match="Choose `to` above 64"):
        compare((record,), to=64)
    with pytest.raises(UsageError, match="without `how`"):
        compare((record,), to=128, how="tile")
    with pytest.raises(UsageError, match="it has 2 rotary encodings"):
        compare((record, record), to=128)
    flat = pp.schemes.Rotary(8, "patches", record.source, max_positions=64, axes=2)
    with pytest.raises(UsageError, match="turns along 2 axes"):
        compare((flat,), to=128)
    unknown = pp.schemes.Rotary(8, "no length", record.source)
    with pytest.raises(UsageError, match="states no length"):
        compare((unknown,), to=128)


def measured(*periods: float) -> Effect:
    """Numbers of a table whose pairs of components have these periods."""
    return Effect(
        norm_mean=1.0, norm_min=1.0, neighbour_cosine=None, same_place=1.0, same_position=0.0,
        translation_invariance=None, copies=0, seams=None, special=(), undefined={},
        turns={"positions": Turns(periods, 2.0 if periods else None)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "periods", "expected"),
    [
        ("continues", (8.1,), Period("positions", "stays", 8.0, 8.1)),
        ("continues", (32.0, 8.1), Period("positions", "stays", 8.0, 8.1)),
        ("continues", (16.0,), Period("positions", "lost", 8.0, None)),
        ("continues", (), Period("positions", "lost", 8.0, None)),
        ("stretches", (8.0, 16.0), Period("positions", "scales", 8.0, 16.0)),
        ("stretches", (8.0,), Period("positions", "stays", 8.0, 8.0)),
    ],
)
def test_the_leading_period_is_looked_for_among_all_of_them(
    kind: Any, periods: tuple[float, ...], expected: Period
) -> None:
    way = Way(
        **vars(measured(*periods)), how="", kind=kind, before=measured(8.0), old=Sequence(32),
        new=Sequence(64), start=0,
    )  # fmt: skip
    assert way.periods == (expected,)
