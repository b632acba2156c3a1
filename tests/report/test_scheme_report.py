"""Encodings without a table, kernels side by side, and heads of saved runs: data and terminal."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_forward import budget_of, save_run, text_budget
from made_pages import SCHEMES
from made_schemas import problems, schema
from made_schemes import buckets, linear, rotary, source, window
from made_tables import as_table, patches, walk

import posprobe as pp
from posprobe.analyses.descriptive.kernels import (
    N_WALK_PAIRS,
    centred_kernel_products,
    draw_walk_correlations,
    standardise,
)
from posprobe.analyses.models.attention_window import AttentionWindow, grid_window
from posprobe.analyses.models.head_biases import heads
from posprobe.analyses.models.rotary_use import match_heads
from posprobe.cli import main
from posprobe.cli.show import describe_loaded
from posprobe.errors import InvalidCheckpoint, InvalidTable, UsageError
from posprobe.layouts import Grid, Sequence
from posprobe.report.bundle import render_bundle
from posprobe.report.screen import render_text as summary
from posprobe.schemes import LinearBias, RelativeBias
from posprobe.studies.figure import paper_figure
from posprobe.studies.kernels import compare_kernels, measured_heads
from posprobe.studies.saved_runs import read_run
from posprobe.studies.schemes import analyze_schemes
from posprobe.sweeps.columns import run_row
from posprobe.tables import PositionTable
from posprobe.text import format_value, use_minus_sign
from posprobe.words import QUESTION_TEXTS

if TYPE_CHECKING:
    from pathlib import Path

    from posprobe.analyses.models.attention_budget import AttentionBudget
    from posprobe.schemes import Encoding
    from posprobe.studies.kernels import KernelComparison


# The document.


def test_a_document_has_a_table_or_schemes_and_never_both() -> None:
    table = pp.analyze(as_table(walk(12, 4)), only=["norms"], nulls=0).to_dict()
    schemes = analyze_schemes(linear()).to_dict()
    assert problems("analysis", table) == []
    assert problems("analysis", schemes | {"table": table["table"]})
    assert problems("analysis", table | {"schemes": schemes["schemes"]})
    assert problems("analysis", schemes | {"norms": table["norms"]})
    assert problems(
        "analysis", {key: value for key, value in schemes.items() if key != "schemes"}
    )


# Kernels side by side.


def numbers(comparison: KernelComparison) -> dict[str, Any]:
    return {record["label"]: record for record in comparison.to_dict()["records"]}


def test_kernels_are_those_of_the_records() -> None:
    table = as_table(walk(60, 6))
    records: list[Encoding] = [table, rotary(), linear(), buckets(3, 200)]
    comparison = compare_kernels(*records, length=40)
    for record, kernel in zip(records, comparison.kernels, strict=True):
        expected = record.kernel(40).mean(axis=0)
        if isinstance(record, LinearBias):
            expected = np.tril(expected) + np.tril(expected, -1).T
        np.testing.assert_allclose(kernel, expected, atol=1e-12)


def test_the_pairs_are_pearson_and_centred_alignment() -> None:
    records = (as_table(walk(50, 5)), rotary(), buckets(2, 50))
    comparison = compare_kernels(*records)
    center = np.eye(50) - 1 / 50
    for i, j in ((0, 1), (0, 2), (1, 2)):
        curves = [record.curves(50).mean(axis=0) for record in (records[i], records[j])]
        one_sided = [(curve[49:] + curve[49::-1])[1:] for curve in curves]
        assert comparison.correlation[i, j] == pytest.approx(
            np.corrcoef(*one_sided)[0, 1]
        )
        a, b = (center @ records[k].kernel(50).mean(axis=0) @ center for k in (i, j))
        expected = np.trace(a.T @ b) / math.sqrt(np.trace(a.T @ a) * np.trace(b.T @ b))
        assert comparison.alignment[i, j] == pytest.approx(expected)


def test_the_numbers_are_those_of_the_mean_head() -> None:
    record, table = buckets(3, 100), as_table(walk(100, 5))
    numbers_found = numbers(compare_kernels(record, table))
    mean = heads(record.curves(100).mean(axis=0)[None])
    assert numbers_found["encoder"]["half_width"] == mean.half_width[0]
    assert numbers_found["encoder"]["monotone_fraction"] == mean.monotone_fraction[0]
    assert numbers_found["encoder"]["asymmetry"] == mean.asymmetry[0]
    assert numbers_found["encoder"]["translation_invariance"] == 1
    expected = pp.similarity(table).raw.translation_invariance
    assert numbers_found["made"]["translation_invariance"] == expected
    assert numbers_found["made"]["asymmetry"] == pytest.approx(0, abs=1e-12)


def test_distances_of_two_kinds_are_not_compared() -> None:
    page = replace(buckets(2, 80), name="page", unit="hundredths of the page's width")
    with pytest.raises(UsageError, match="page count hundredths of the page's width"):
        compare_kernels(page, linear(4))
    assert compare_kernels(page, replace(page, name="other")).correlation[
        0, 1
    ] == pytest.approx(1)


def test_a_causal_encoding_is_compared_by_its_past() -> None:
    causal = buckets(2, 64, causal=True)
    comparison = compare_kernels(causal, linear(2))
    past = causal.curves(64).mean(axis=0)[:64]
    np.testing.assert_array_equal(comparison.curves[0][:64], past)
    np.testing.assert_array_equal(comparison.curves[0], comparison.curves[0][::-1])
    assert numbers(comparison)["encoder"]["asymmetry"] is None
    assert "asymmetry" in numbers(comparison)["encoder"]["undefined"]


@pytest.mark.parametrize(
    ("records", "length", "expected"),
    [
        ((as_table(walk(30, 4)), rotary()), None, 30),
        ((as_table(walk(30, 4)), rotary()), 12, 12),
        ((rotary(), linear()), None, 300),
        ((rotary(), rotary("b")), None, 1024),
        ((rotary(max_positions=None), linear(max_positions=None)), None, 512),
        ((buckets(1, 40), linear()), 90, 90),
        ((window(), patches(5, 5, 4)), None, 25),
    ],
)
def test_the_length_is_that_of_the_shortest(
    records: tuple[Encoding, ...], length: int | None, expected: int
) -> None:
    comparison = compare_kernels(*records, length=length)
    assert comparison.layout.size == expected
    assert all(kernel.shape == (expected, expected) for kernel in comparison.kernels)
    assert problems("kernels", comparison.to_dict()) == []


@pytest.mark.parametrize(
    ("records", "length", "phrase"),
    [
        ((rotary(),), None, "at least two"),
        ((window(), rotary()), None, "same grid"),
        ((window(5, 5), window(4, 4)), None, "same grid"),
        ((window(5, 5), window(5, 5)), 24, "25 positions: all are compared"),
        ((window(1, 2), window(1, 2)), None, "from three on"),
        ((as_table(walk(30, 4)), rotary()), 31, "from 3 to 30"),
        ((rotary(), linear()), 2, "from 3 to 4096"),
        ((rotary(), linear()), 5000, "from 3 to 4096"),
        ((rotary(), linear()), -1, "from 3 to 4096"),
        ((as_table(np.eye(20)[:, :3]), rotary()), None, "zero row"),
    ],
)
def test_encodings_without_common_positions_are_refused(
    records: tuple[Encoding, ...], length: int | None, phrase: str
) -> None:
    with pytest.raises((UsageError, InvalidTable), match=phrase):
        compare_kernels(*records, length=length)


@pytest.mark.parametrize(
    ("objects", "phrase"),
    [
        ((), "posprobe.load_schemes"),
        ((as_table(walk(9, 4)),), "posprobe.analyze"),
        (("t5:512x32",), "str is not an encoding"),
        (([rotary()],), "list is not .* one by one"),
    ],
)
def test_objects_that_are_no_encoding_are_refused(
    objects: tuple[Any, ...], phrase: str
) -> None:
    with pytest.raises(UsageError, match=phrase):
        analyze_schemes(*objects)
    if objects and not isinstance(objects[0], PositionTable | str):
        with pytest.raises(UsageError, match=phrase):
            compare_kernels(linear(), *objects)


@pytest.mark.parametrize("length", ["9", 9.0, 8.5, float("nan"), True, [9]])
def test_a_length_that_is_no_whole_number_is_refused(length: Any) -> None:
    with pytest.raises(UsageError, match="not a whole number"):
        analyze_schemes(linear(), length=length)
    with pytest.raises(UsageError, match="not a whole number"):
        compare_kernels(linear(), rotary(), length=length)


def test_labels_that_are_no_texts_are_refused() -> None:
    bad_labels: Any
    for bad_labels in ([1, 2], "ab", ["a", ""], ["a"]):
        with pytest.raises(UsageError, match="2 records need"):
            compare_kernels(rotary(), linear(), labels=bad_labels)


def test_grids_are_compared_by_displacement() -> None:
    table = patches(4, 5, 6)
    comparison = compare_kernels(table, window(4, 5))
    np.testing.assert_array_equal(
        comparison.curves[0], pp.similarity(table).raw.offset_mean
    )
    np.testing.assert_allclose(
        comparison.kernels[1], window(4, 5).kernel(20).mean(axis=0)
    )
    assert comparison.walk is None
    assert problems("kernels", comparison.to_dict()) == []


def test_a_flat_encoding_correlates_with_nothing_and_says_why(tmp_path: Path) -> None:
    flat = RelativeBias(np.full((2, 9), 0.1), Sequence(30), "flat", source())
    comparison = compare_kernels(
        flat, rotary(), as_table(np.full((30, 3), 0.1), name="equal rows")
    )
    document = comparison.to_dict()
    assert problems("kernels", document) == []
    for pair in document["pairs"]:
        assert pair["correlation"] is None
        assert pair["alignment"] is None
        assert set(pair["undefined"]) == {"correlation", "alignment"}
    assert document["records"][0]["translation_invariance"] is None
    for record in document["records"]:
        undefined = {key for key, value in record.items() if value is None}
        assert set(record["undefined"]) == undefined & {
            "half_width", "monotone_fraction", "asymmetry", "translation_invariance",
        }  # fmt: skip
    folder = comparison.save(tmp_path / "bundle")
    assert "undefined" in (folder / "report.html").read_text(encoding="utf-8")
    with np.load(folder / "arrays.npz") as arrays:
        names = [f"{k}_{kind}" for k in range(3) for kind in ("curve", "kernel")]
        assert set(arrays) == {"correlation", "alignment", *names}
        np.testing.assert_array_equal(arrays["1_kernel"], comparison.kernels[1])


@given(
    st.integers(2, 30),
    st.integers(0, 2**32 - 1),
)
def test_centred_kernels_can_be_multiplied_by_their_curves_alone(
    n: int, seed: int
) -> None:
    x, y = np.random.default_rng(seed).standard_normal((2, 1, n))
    center = np.eye(n) - 1 / n
    distance = np.abs(np.arange(n)[:, None] - np.arange(n))
    a, b = (center @ curve[0][distance] @ center for curve in (x, y))
    np.testing.assert_allclose(centred_kernel_products(x, y), [(a * b).sum()], atol=1e-10)


def test_random_walks_correlate_by_chance_and_noise_would_not() -> None:
    null_walk = draw_walk_correlations(512, 0)
    assert null_walk["draws"] == N_WALK_PAIRS
    assert 0.7 < null_walk["correlation"] < 1
    assert 0.7 < null_walk["alignment"] < 1
    assert draw_walk_correlations(512, 0) == null_walk
    assert draw_walk_correlations(512, 1) != null_walk
    # Of independent noise, 95 % stay below 2 / sqrt(n).
    noise = np.random.default_rng(0).standard_normal((2, N_WALK_PAIRS, 511))
    r = [abs(np.corrcoef(x, y)[0, 1]) for x, y in zip(*noise, strict=True)]
    assert np.quantile(r, 0.95) < 0.1


@given(st.integers(3, 40), st.floats(0.1, 50), st.floats(-50, 50), st.integers(0, 9))
def test_standardising_undoes_units(
    n: int, scale: float, shift: float, seed: int
) -> None:
    values = np.random.default_rng(seed).standard_normal(n)
    np.testing.assert_allclose(
        standardise(scale * values + shift, 0), standardise(values, 0), atol=1e-8
    )
    assert standardise(values, 0)[1:].mean() == pytest.approx(0, abs=1e-9)
    assert standardise(values, 0)[1:].std() == pytest.approx(1)


# The terminal.


@pytest.mark.parametrize("name", SCHEMES)
def test_the_summary_is_short_and_has_every_encoding(name: str) -> None:
    document = analyze_schemes(*SCHEMES[name]()).to_dict()
    lines = summary(document, 100).splitlines()
    assert len(lines) <= 24
    assert "None" not in summary(document)
    for answer in document["verdict"]["answers"]:
        assert any(QUESTION_TEXTS[answer["question"]] in line for line in lines)
    assert all(len(line) <= 160 for line in lines)


def test_encodings_are_named_with_scheme_and_notes() -> None:
    text = describe_loaded((buckets(notes=("a note",)), rotary(base=500.0), linear(1)))
    assert "encoder: relative bias, sequence of 200, 4 heads" in text
    assert "  note: a note" in text
    assert "rotary: rotary, base 500, rule default" in text
    assert "alibi: linear biases (ALiBi), 1 head" in text
    thirty_schemes = describe_loaded(tuple(window(name=f"layer {k}") for k in range(30)))
    assert thirty_schemes.splitlines()[-1] == "... and 18 more encodings"


def test_the_terminal_shows_the_numbers_of_a_comparison_of_kernels() -> None:
    document: Any = compare_kernels(rotary(), linear(), as_table(walk(40, 4))).to_dict()
    text = summary(document, 100)
    bar = f"below {document['walk']['correlation']:.2f}"
    for pair in document["pairs"]:
        (line,) = [
            x for x in text.splitlines() if " · ".join(pair["records"]) + "  " in x
        ]
        assert use_minus_sign(f"{pair['correlation']:.2f}") in line
        assert line.endswith(bar)
        exceeds_chance = pair["correlation"] > document["walk"]["correlation"]
        assert line.startswith("yes" if exceeds_chance else "no")
    for record in document["records"]:
        assert format_value(record["monotone_fraction"]) in text
    assert "None" not in text


# Saved runs of rotary models, head by head.

#: Which head of the first run each head of the second is.
PERMUTATION = (4, 0, 5, 1, 3, 2)


def with_curves(curves: Any, *, both_sides: bool = False) -> AttentionBudget:
    """A run of two layers with three heads that have these curves, ``[6, n]``."""
    budget = text_budget()
    n = curves.shape[1]
    window = (n + 1) // 2 if both_sides else n
    return replace(
        budget,
        curves=curves,
        displacements=np.arange(window - n, window)[:, None],
        both_sides=both_sides,
        layers=tuple(replace(layer, window=window) for layer in budget.layers),
        heads=tuple(replace(head, preferred=None, prefers="no") for head in budget.heads),
    )


def stored(budget: AttentionBudget | None, folder: Path) -> Path:
    return save_run(folder, {} if budget is None else {"attention_budget": budget})


def waves(n: int = 24, heads: int = 6) -> Any:
    """Curves that are all different: one frequency each."""
    return np.cos(np.outer(np.arange(1, heads + 1) / 3, np.arange(n)))


def test_heads_are_matched_by_their_curves(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves, rng = waves(), np.random.default_rng(0)
    noisy = 3 * curves[list(PERMUTATION)] + 0.05 * rng.normal(size=curves.shape)
    first_run = stored(with_curves(curves), tmp_path / "one")
    second_run = stored(with_curves(noisy[:, :20]), tmp_path / "other")
    monkeypatch.setattr(
        "sys.argv",
        [
            "posprobe",
            "compare",
            str(first_run),
            str(second_run),
            "--json",
            "--out",
            str(tmp_path / "both"),
        ],
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    document = json.loads(capsys.readouterr().out)
    assert problems(schema("kernels"), document) == []
    assert document["length"] == 20
    (pair,) = document["pairs"]
    places = [[layer, head] for layer in range(2) for head in range(3)]
    second_by_first = {places.index(matched_pair["first"]): places.index(matched_pair["second"])
             for matched_pair in pair["heads"]["matched"]}  # fmt: skip
    assert [second_by_first[head] for head in PERMUTATION] == list(range(6))
    assert pair["heads"]["same"] == 0
    assert pair["heads"]["correlation"] > 0.99
    assert pair["heads"]["by_place"] < 0.5
    assert f"{pair['heads']['correlation']:.2f}" in summary(document, 100)
    run = document["records"][0]["run"]
    assert (run["contexts"], run["tokens"], run["heads"]) == (12, 32, 6)
    budget = text_budget()
    for name in ("distance", "key", "other", "content", "moved", "most"):
        assert run[name] == pytest.approx(getattr(budget, name), abs=1e-12)


def test_heads_of_unrelated_runs_match_no_better_than_those_of_one() -> None:
    rng = np.random.default_rng(1)
    walks = np.cumsum(rng.normal(size=(2, 40, 128)), axis=2)
    places = [(0, head) for head in range(40)]
    head_match = match_heads((walks[0], walks[1]), (places, places))
    assert head_match.within is not None
    # Smooth curves correlate, and the best match of 40 does so strongly.
    assert head_match.correlation > 0.7
    assert abs(head_match.correlation - head_match.within) < 0.1
    assert head_match.by_place is not None
    assert abs(head_match.by_place) < 0.4


def test_curves_of_flat_heads_match_none() -> None:
    curves = np.stack([np.zeros(8), np.arange(8.0)])
    head_match = match_heads((curves, curves[1:]), ([(0, 0), (0, 1)], [(0, 0)]))
    assert [
        (matched_pair.first, matched_pair.second) for matched_pair in head_match.matched
    ] == [((0, 1), (0, 0))]
    assert head_match.same is head_match.by_place is None


@pytest.mark.parametrize("both_sides", [False, True])
def test_a_run_s_curves_are_by_offset_of_the_key(
    tmp_path: Path, both_sides: bool
) -> None:
    curves = waves(15)
    record = measured_heads(
        str(stored(with_curves(curves, both_sides=both_sides), tmp_path / "x"))
    )
    assert record is not None
    assert record.causal is not both_sides
    assert record.places[4] == (1, 1)
    n = record.layout.size
    offset_curves = record.curves(n)
    for distance in range(n):
        # A key so much earlier has the offset -distance.
        place = n - 1 + distance if both_sides else distance
        np.testing.assert_array_equal(
            offset_curves[:, n - 1 - distance], curves[:, place]
        )
    if both_sides:
        np.testing.assert_array_equal(offset_curves[:, -1], curves[:, 0])


@pytest.mark.parametrize("both_sides", [False, True])
def test_the_heads_that_match_best_are_drawn_over_each_other(
    tmp_path: Path, both_sides: bool
) -> None:
    curves, rng = waves(15), np.random.default_rng(0)
    noise = np.arange(6)[:, None] * rng.normal(size=curves.shape) / 40
    # Of layers and heads as above; the more noise, the later it is drawn.
    permuted = 5 * (curves + noise)[list(PERMUTATION)]
    runs = [
        measured_heads(
            str(stored(with_curves(run_curves, both_sides=both_sides), tmp_path / name))
        )
        for name, run_curves in (("one", curves), ("other", permuted))
    ]
    comparison = pp.compare_kernels(*filter(None, runs))
    axes = [ax for ax in comparison.figures()["heads"]().axes if ax.lines]
    assert len(axes) == 6
    distances = np.arange(-7 if both_sides else 0, 8 if both_sides else 15)
    pairs = comparison.to_dict()["pairs"][0]["heads"]["matched"]
    for ax, pair in zip(
        axes,
        sorted(pairs, key=lambda run_curves: -run_curves["correlation"]),
        strict=True,
    ):
        (a, b), (c, d) = pair["first"], pair["second"]
        assert ax.get_title() == f"L{a}H{b} · L{c}H{d}"
        for line, curve in zip(
            ax.lines, (curves[3 * a + b], permuted[3 * c + d]), strict=True
        ):
            x, y = map(np.asarray, line.get_data())
            np.testing.assert_allclose(
                np.sign(x) * (2 ** np.abs(x) - 1), distances, atol=1e-9
            )
            np.testing.assert_allclose(y, (curve - curve.mean()) / curve.std())
    (alibi,) = pp.load_schemes("alibi:24x4")
    assert (
        "heads" not in pp.compare_kernels(*filter(None, runs), alibi, length=8).figures()
    )


def test_a_run_stands_beside_an_encoding(tmp_path: Path) -> None:
    falls = -np.arange(24.0) * np.ones((6, 1))
    record = measured_heads(str(stored(with_curves(falls), tmp_path / "run")))
    assert record is not None
    (alibi,) = pp.load_schemes("alibi:24x4")
    comparison = pp.compare_kernels(record, alibi)
    assert comparison.correlation[0, 1] == pytest.approx(1)
    assert "heads" not in comparison.to_dict()["pairs"][0]


def test_bundles_without_curves_are_refused(tmp_path: Path) -> None:
    assert measured_heads(str(tmp_path)) is None
    assert measured_heads("gpt2") is None
    with pytest.raises(UsageError, match="did not measure what decides"):
        measured_heads(str(stored(None, tmp_path / "none")))
    run = stored(with_curves(waves()), tmp_path / "run")
    (run / "arrays.npz").unlink()
    with pytest.raises(InvalidCheckpoint, match="lost its arrays"):
        measured_heads(str(run))


def edited(run: Path, place: tuple[Any, ...], value: Any) -> Any:
    """The document of a run in which somebody put a value in a place."""
    document = json.loads((run / "analysis.json").read_text())
    container = document
    for key in place[:-1]:
        container = container[key]
    container[place[-1]] = value
    return document


@pytest.mark.parametrize(
    ("place", "value", "phrase"),
    [
        (("attention_budget", "heads", 0, "layer"), 9, "it lacks what the run measured"),
        (("attention_budget", "contexts"), "many", "'many' is no such number"),
        (("attention_budget", "source"), "dreams", "source 'dreams'"),
        (("attention_budget", "heads", 0, "distance"), "half", "distance 'half'"),
        (("attention_budget", "heads", 0, "distance"), float("nan"), "distance nan"),
        (("attention_budget", "heads", 0, "content"), 2.0, "shares add up to"),
        (("attention_budget", "heads", 0, "moved"), 7, "moved 7"),
        (("attention_budget", "heads", 0, "spread"), 10**400, "spread 1000"),
        (("attention_budget", "heads", 0, "preferred"), 10**9, "preferred 1000000000"),
        (("attention_budget", "heads", 0, "preferred"), [[1]], "preferred"),
        (("attention_budget", "heads", 0, "head"), -1, "-1 is no such number"),
        (("attention_budget", "heads", 1, "head"), 0, "twice"),
        (("attention_budget", "heads"), [{}], "KeyError"),
        (("attention_budget", "heads"), 10**9, "TypeError"),
        (("attention_budget", "layers", 1, "layer"), 0, "twice"),
        (("attention_budget", "layers"), [], "it lacks what the run measured"),
        (
            ("attention_budget", "layers", 0, "window"),
            10**9,
            "over 1000000000 displacements",
        ),
        (("attention_budget", "layout"), "line", "TypeError"),
        (("attention_budget",), [1], "TypeError"),
        (("contexts",), 3, "TypeError"),
    ],
)
def test_a_run_that_was_edited_is_refused_by_the_place(
    place: tuple[Any, ...], value: Any, phrase: str, tmp_path: Path
) -> None:
    run = stored(with_curves(waves()), tmp_path / "run")
    (run / "analysis.json").write_text(json.dumps(edited(run, place, value)))
    with pytest.raises(InvalidCheckpoint, match=phrase):
        measured_heads(str(run))


@pytest.mark.parametrize(
    ("place", "value", "phrase"),
    [
        (("name",), 7, "name is 7"),
        (("attention_budget", "distance"), -float("inf"), "budget.distance is -inf"),
        (("attention_budget", "key"), "half", "budget.key is 'half'"),
        (("attention_budget", "most"), 2**70, "budget.most is"),
        (("verdict", "answers"), [1], "it lacks"),
        (("model",), {}, "it lacks 'dtype'"),
    ],
)
def test_no_row_is_made_of_a_run_that_was_edited(
    place: tuple[Any, ...], value: Any, phrase: str, tmp_path: Path
) -> None:
    run = stored(with_curves(waves()), tmp_path / "run")
    row = run_row(edited(run, ("name",), "x"))
    assert row["attention_budget.distance"] == pytest.approx(text_budget().distance)
    assert "scheme" not in row
    with pytest.raises(InvalidCheckpoint, match=phrase):
        run_row(edited(run, place, value))


def test_three_runs_stand_under_each_other_with_their_shares(tmp_path: Path) -> None:
    runs = []
    for index, size in enumerate((0.5, 1.0, 2.0)):
        budget = with_curves(waves(20 + index))
        heads = tuple(
            replace(head, distance=size / 4, content=1 - size / 4, key=0.0, other=0.0)
            for head in budget.heads
        )
        folder = stored(replace(budget, heads=heads), tmp_path / str(index))
        runs.append(measured_heads(str(folder)))
    comparison = compare_kernels(*filter(None, runs), labels=("A", "<b>B</b>", "C"))
    document: Any = comparison.to_dict()
    assert problems("kernels", document) == []
    headline = document["verdict"]["summary"]
    assert "most in C (50 % of where the heads look) and least in A (12 %)" in headline
    folder = comparison.save(tmp_path / "all")
    html = (folder / "report.html").read_text()
    assert html.count('class="barname"') == 3
    assert "<b>B</b>" not in html
    for share in ("12 %", "25 %", "50 %"):
        assert f"<title>distance: {share}</title>" in html
    text = summary(document, 80)
    (line,) = [
        line for line in text.splitlines() if line.startswith("C ") and "█" in line
    ]
    assert line.split()[-8:] == ["50", "%", "0", "%", "0", "%", "50", "%"]
    assert abs(line.count("█") - line.count("░")) <= 1
    # A drawing in the folder that another program wrote is not part of the page.
    (folder / "figures" / "budget.svg").write_text("<svg><script>1</script></svg>")
    page = render_bundle(folder).read_text()
    assert "<script>1" not in page
    assert page.count('class="barname"') == 3


@pytest.mark.parametrize("share", ["half", float("nan"), None, [1]])
def test_a_comparison_of_runs_with_an_edited_share_is_refused(
    tmp_path: Path, share: Any
) -> None:
    runs = [
        measured_heads(str(stored(with_curves(waves()), tmp_path / name)))
        for name in ("a", "b")
    ]
    folder = compare_kernels(*filter(None, runs)).save(tmp_path / "both")
    document = json.loads((folder / "analysis.json").read_text())
    document["records"][0]["run"]["content"] = share
    (folder / "analysis.json").write_text(json.dumps(document))
    if share is None:
        # None is an unmeasured share, which is drawn as none.
        assert render_bundle(folder)
        return
    with pytest.raises(InvalidCheckpoint, match="it lacks what the report shows"):
        render_bundle(folder)


def test_runs_on_images_have_bars_and_no_curves_over_distance(tmp_path: Path) -> None:
    window = grid_window(Grid(9, 9), 0)
    assert isinstance(window, AttentionWindow)
    grid_budget = budget_of(window, Grid(9, 9))
    grid = str(stored(grid_budget, tmp_path / "grid"))
    line = str(stored(text_budget(), tmp_path / "line"))
    with pytest.raises(UsageError, match="a run on images"):
        measured_heads(grid)
    figure = paper_figure("attention-budget", grid, line, labels=["pictures", "text"])
    (ax,) = figure.figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["pictures", "text"]
    run = read_run(line)
    assert run is not None
    widths = [bars[1].get_width() for bars in ax.containers]
    names = ("distance", "key", "other", "content")
    shares = [max(getattr(run.budget, name), 0.0) for name in names]
    assert widths == pytest.approx(shares)
    assert "pictures: " in figure.caption
    assert len(paper_figure("attention-budget", line).figure.axes) > 1
    # What was measured is drawn as what was saved.
    assert paper_figure("attention-budget", run.budget).caption.startswith(
        "What decides where each head looks"
    )
