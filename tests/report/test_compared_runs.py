"""Two saved runs of rotary models side by side, head by head."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_forward import rotary_of, saved_run
from made_schemas import problems, schema

import posprobe as pp
from posprobe.analyses.models.rotary_use import match_heads
from posprobe.cli import main
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.report.kernels import measured_heads
from posprobe.sweeps.columns import run_row

if TYPE_CHECKING:
    from pathlib import Path

    from posprobe.analyses.models.rotary_use import RotaryUse

#: Which head of the first run each head of the second is.
MOVED = (4, 0, 5, 1, 3, 2)


def with_curves(curves: Any, *, both_sides: bool = False) -> RotaryUse:
    """A run of two layers with three heads that have these curves, ``[6, n]``."""
    made = rotary_of()
    heads = tuple(
        replace(head, measured=curve) for head, curve in zip(made.heads, curves, strict=True)
    )
    window = (curves.shape[1] + 1) // 2 if both_sides else curves.shape[1]
    layers = tuple(replace(layer, window=window, both_sides=both_sides) for layer in made.layers)
    return replace(made, heads=heads, layers=layers)


def saved(use: RotaryUse | None, folder: Path) -> Path:
    return saved_run(folder, {} if use is None else {"rotary_use": use})


def waves(n: int = 24, heads: int = 6) -> Any:
    """Curves that are all different: one frequency each."""
    return np.cos(np.outer(np.arange(1, heads + 1) / 3, np.arange(n)))


def test_heads_are_matched_by_their_curves(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves, rng = waves(), np.random.default_rng(0)
    noisy = 3 * curves[list(MOVED)] + 0.05 * rng.normal(size=curves.shape)
    one = saved(with_curves(curves), tmp_path / "one")
    other = saved(with_curves(noisy[:, :20]), tmp_path / "other")
    monkeypatch.setattr(
        "sys.argv",
        ["posprobe", "compare", str(one), str(other), "--json", "--out", str(tmp_path / "both")],
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    document = json.loads(capsys.readouterr().out)
    assert problems(schema("kernels"), document) == []
    assert document["length"] == 20
    (pair,) = document["pairs"]
    places = [[layer, head] for layer in range(2) for head in range(3)]
    found = {places.index(each["first"]): places.index(each["second"])
             for each in pair["heads"]["matched"]}  # fmt: skip
    assert [found[head] for head in MOVED] == list(range(6))
    assert pair["heads"]["same"] == 0
    assert pair["heads"]["correlation"] > 0.99
    assert pair["heads"]["by_place"] < 0.5
    assert document["verdict"]["summary"].startswith("Heads matched by their curves have a median")
    run = document["records"][0]["run"]
    assert (run["contexts"], run["length"], run["source"]) == (12, 32, "sampled")
    assert run["share"] == pytest.approx(rotary_of().summary.share)


def test_heads_of_unrelated_runs_match_no_better_than_those_of_one() -> None:
    rng = np.random.default_rng(1)
    walks = np.cumsum(rng.normal(size=(2, 40, 128)), axis=2)
    places = [(0, head) for head in range(40)]
    found = match_heads((walks[0], walks[1]), (places, places))
    assert found.within is not None
    # Smooth curves correlate, and the best match of 40 does so strongly.
    assert found.correlation > 0.7
    assert abs(found.correlation - found.within) < 0.1
    assert found.by_place is not None
    assert abs(found.by_place) < 0.4


def test_curves_of_flat_heads_match_none() -> None:
    curves = np.stack([np.zeros(8), np.arange(8.0)])
    found = match_heads((curves, curves[1:]), ([(0, 0), (0, 1)], [(0, 0)]))
    assert [(each.first, each.second) for each in found.matched] == [((0, 1), (0, 0))]
    assert found.same is found.by_place is None


@pytest.mark.parametrize("both_sides", [False, True])
def test_a_run_s_curves_are_by_offset_of_the_key(tmp_path: Path, both_sides: bool) -> None:
    curves = waves(15)
    record = measured_heads(str(saved(with_curves(curves, both_sides=both_sides), tmp_path / "x")))
    assert record is not None
    assert record.causal is not both_sides
    assert record.places[4] == (1, 1)
    n = record.layout.size
    found = record.curves(n)
    for distance in range(n):
        # A key so much earlier has the offset -distance.
        place = n - 1 + distance if both_sides else distance
        np.testing.assert_array_equal(found[:, n - 1 - distance], curves[:, place])
    if both_sides:
        np.testing.assert_array_equal(found[:, -1], curves[:, 0])


@pytest.mark.parametrize("both_sides", [False, True])
def test_the_heads_that_match_best_are_drawn_over_each_other(
    tmp_path: Path, both_sides: bool
) -> None:
    curves, rng = waves(15), np.random.default_rng(0)
    noise = np.arange(6)[:, None] * rng.normal(size=curves.shape) / 40
    # Of layers and heads as above; the more noise, the later it is drawn.
    other = 5 * (curves + noise)[list(MOVED)]
    runs = [
        measured_heads(str(saved(with_curves(each, both_sides=both_sides), tmp_path / name)))
        for name, each in (("one", curves), ("other", other))
    ]
    found = pp.compare_kernels(*filter(None, runs))
    axes = [ax for ax in found.figures()["heads"]().axes if ax.lines]
    assert len(axes) == 6
    distances = np.arange(-7 if both_sides else 0, 8 if both_sides else 15)
    pairs = found.to_dict()["pairs"][0]["heads"]["matched"]
    for ax, pair in zip(axes, sorted(pairs, key=lambda each: -each["correlation"]), strict=True):
        (a, b), (c, d) = pair["first"], pair["second"]
        assert ax.get_title() == f"L{a}H{b} · L{c}H{d}"
        for line, curve in zip(ax.lines, (curves[3 * a + b], other[3 * c + d]), strict=True):
            at, drawn = map(np.asarray, line.get_data())
            np.testing.assert_allclose(np.sign(at) * (2 ** np.abs(at) - 1), distances, atol=1e-9)
            np.testing.assert_allclose(drawn, (curve - curve.mean()) / curve.std())
    (alibi,) = pp.load_schemes("alibi:24x4")
    assert "heads" not in pp.compare_kernels(*filter(None, runs), alibi, length=8).figures()


def test_a_run_stands_beside_an_encoding(tmp_path: Path) -> None:
    falls = -np.arange(24.0) * np.ones((6, 1))
    record = measured_heads(str(saved(with_curves(falls), tmp_path / "run")))
    assert record is not None
    (alibi,) = pp.load_schemes("alibi:24x4")
    found = pp.compare_kernels(record, alibi)
    assert found.correlation[0, 1] == pytest.approx(1)
    assert "heads" not in found.to_dict()["pairs"][0]


def test_what_holds_no_curves_is_refused(tmp_path: Path) -> None:
    assert measured_heads(str(tmp_path)) is None
    assert measured_heads("gpt2") is None
    with pytest.raises(UsageError, match="did not measure what heads do"):
        measured_heads(str(saved(None, tmp_path / "none")))
    run = saved(with_curves(waves()), tmp_path / "run")
    (run / "arrays.npz").unlink()
    with pytest.raises(InvalidCheckpoint, match="lost its arrays"):
        measured_heads(str(run))


def edited(run: Path, place: tuple[Any, ...], value: Any) -> Any:
    """The document of a run in which somebody put a value in a place."""
    document = json.loads((run / "analysis.json").read_text())
    within = document
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    return document


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("rotary_use", "heads", 0, "layer"), 9, "it lacks what the run measured"),
        (("rotary_use", "contexts"), "many", "'many' is no such number"),
        (("rotary_use", "source"), "dreams", "source 'dreams'"),
        (("rotary_use", "summary", "share"), [1], "TypeError"),
        (("rotary_use", "summary", "share"), float("nan"), "share nan"),
        (("rotary_use", "heads", 0, "head"), -1, "-1 is no such number"),
        (("rotary_use", "heads", 1, "head"), 0, "twice"),
        (("rotary_use", "layers", 1, "layer"), 0, "twice"),
        (("rotary_use", "layers", 0, "window"), 10**9, "no curves over 1000000000 distances"),
    ],
)
def test_a_run_that_was_edited_is_refused_by_the_place(
    place: tuple[Any, ...], value: Any, said: str, tmp_path: Path
) -> None:
    run = saved(with_curves(waves()), tmp_path / "run")
    (run / "analysis.json").write_text(json.dumps(edited(run, place, value)))
    with pytest.raises(InvalidCheckpoint, match=said):
        measured_heads(str(run))


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("name",), 7, "name is 7"),
        (("rotary_use", "summary", "least"), -float("inf"), "summary.least is -inf"),
        (("rotary_use", "summary", "yes"), 2**70, "summary.yes is"),
        (("verdict", "answers"), [1], "it lacks"),
        (("model",), {}, "it lacks 'dtype'"),
    ],
)
def test_no_row_is_made_of_a_run_that_was_edited(
    place: tuple[Any, ...], value: Any, said: str, tmp_path: Path
) -> None:
    run = saved(with_curves(waves()), tmp_path / "run")
    assert run_row(edited(run, ("name",), "x"))["scheme"] == "rotary"
    with pytest.raises(InvalidCheckpoint, match=said):
        run_row(edited(run, place, value))
