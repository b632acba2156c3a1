"""Every change that a copy can suffer is named; tables without relation are never kin."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

import numpy as np
import pytest
import relations as made
from made_schemas import problems

import posprobe as pp
from posprobe.data import read_data
from posprobe.encodings.rotary import round_to_type
from posprobe.relations import (
    RULES,
    Finding,
    Ladder,
    Projections,
    relate_ladders,
    relate_tables,
)
from posprobe.relations.ladders import measure_harm
from posprobe.relations.tables import resampling_weights
from posprobe.relations.weights import relate_layer, reorder_rows
from posprobe.words import define_line
from posprobe.words.relations import (
    check_title,
    compared_subjects,
    finding_line,
    finding_sentence,
    finding_verdict,
    format_first_distance,
)

Case: TypeAlias = tuple[str, str, tuple[Finding, ...]]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    with pytest.MonkeyPatch.context() as patch:
        # What a difference of two ladders does is looked at up to there; the causes are not.
        patch.setattr("posprobe.relations.ladders.MAX_COMPARED_DISTANCE", 1024)
        return list(made.cases(0))


def test_every_change_and_nothing_else_is_named_by_its_cause(cases: list[Case]) -> None:
    alike_causes = {cause for cause, rule in RULES.items() if rule.alike}
    for subject, cause, findings in cases:
        names = {finding.cause for finding in findings}
        assert cause in names, (subject, cause, names)
        assert (cause in alike_causes) == (names <= alike_causes), (subject, cause, names)
    assert {*made.TABLE_CHANGES, "resized", "exchanged"} <= {
        cause for _, cause, _ in cases
    }
    assert len(cases) > 200


def test_every_relation_has_a_sentence_and_follows_the_schema(cases: list[Case]) -> None:
    sentences = {}
    for _, cause, findings in cases:
        differ = tuple(finding for finding in findings if not finding.alike)
        alike_findings = tuple(finding for finding in findings if finding.alike)
        sentences[cause] = pp.Check("a", "b", None, differ, alike_findings, context=4096)
    assert len(sentences) > 30
    for check in sentences.values():
        assert problems("check", check.to_dict()) == []
        assert len(str(check).splitlines()) <= 12


def test_every_cause_has_words_and_every_difference_a_headline() -> None:
    causes = read_data("words/checks.toml")["causes"]
    assert set(causes) == set(RULES)
    assert {cause for cause, rule in RULES.items() if not rule.alike} <= {
        cause for cause, words in causes.items() if "head" in words
    }


def test_tables_without_relation_are_no_kin() -> None:
    # Every kind and a common mean row are among the first 200 pairs.
    assert made.false_kin(200) == Counter()


def test_a_large_common_mean_row_is_no_kinship_and_hides_none() -> None:
    draw = np.random.default_rng(0)
    mean, a, b = 9 * draw.normal(size=32), *draw.normal(size=(2, 64, 32))
    assert [finding.cause for finding in relate_tables(a + mean, b + mean)] == [
        "unrelated"
    ]
    for change, cause in (
        (a + 0.1 * b, "moved"), (a[::-1], "reversed"), (a[draw.permutation(64)], "permuted"),
        (a @ made.orthogonal(32, draw), "turned"),
    ):  # fmt: skip
        center = mean if cause != "turned" else np.zeros(32)
        finding = relate_tables(a + center, change + center)
        assert [finding.cause for finding in finding] == [cause]


# 128 columns: bases and rules of published models, and the distance from which each is felt.
@pytest.mark.parametrize(
    ("a", "b", "first_distance", "rotation"),
    [
        ({"base": 5e5}, {"base": 1e4}, 0.77, 0.536),
        ({"base": 1e4}, {"base": 10_001.0}, 25_040, 0.00186),
        ({"base": 1e4, "scaling": {"rope_type": "linear", "factor": 4.0}}, {}, None, 0.444),
        ({"base": 5e5, "scaling": made._LLAMA3}, {"base": 5e5}, 112, 0.137),
    ],
)  # fmt: skip
def test_a_ladder_difference_has_its_first_harmful_distance(
    a: dict[str, Any], b: dict[str, Any], first_distance: float | None, rotation: float
) -> None:
    omega_a, omega_b = (
        pp.encodings.rotary_frequencies(128, **parameters)[0] for parameters in (a, b)
    )
    distance, mean_rotation = measure_harm(omega_a, omega_b)
    assert mean_rotation == pytest.approx(rotation, rel=0.01)
    if first_distance is not None:
        assert distance == pytest.approx(first_distance, rel=0.01)


@pytest.mark.parametrize(("kind", "first_distance"), [("bfloat16", 82), ("float16", 414)])
def test_a_rounded_ladder_matters_from_the_computed_distance(
    kind: str, first_distance: float
) -> None:
    omega = pp.encodings.rotary_frequencies(128)[0]
    (finding,) = relate_ladders(Ladder(omega), Ladder(round_to_type(omega, kind)))
    assert (finding.cause, finding.more["type"]) == ("ladder_rounded", kind)
    assert finding.first_distance == pytest.approx(first_distance, rel=0.01)


@pytest.mark.parametrize(
    ("method", "corners"),
    [
        ("linear", False), ("linear", True), ("bicubic", False), ("bicubic", True),
        ("bicubic_antialias", False),  # PyTorch aligns no corners with it
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [9, 24])
def test_interpolation_is_pytorchs(method: str, corners: bool, size: int) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).normal(size=(14, 14))
    mode = "bilinear" if method == "linear" else "bicubic"
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(values)[None, None], size=(size, size), mode=mode, align_corners=corners,
        antialias=method == "bicubic_antialias",
    )[0, 0].numpy()  # fmt: skip
    weights = resampling_weights(14, size, method, corners=corners)
    np.testing.assert_allclose(weights @ values @ weights.T, expected, atol=1e-6)


@pytest.mark.parametrize("pairs", [1, 2, 3, 7])
def test_ladders_of_any_shape_are_related_without_failing(pairs: int) -> None:
    draw = np.random.default_rng(pairs)
    made_up = [
        1e4 ** -(np.arange(pairs) / pairs), np.ones(pairs), draw.uniform(0.01, 3, pairs),
        np.sort(draw.uniform(1e-9, 1, pairs))[::-1],
    ]  # fmt: skip
    for a in made_up:
        for b in made_up:
            findings = relate_ladders(Ladder(a, 1.0, None, 2 * pairs, 512), Ladder(b))
            assert all(finding.alike for finding in findings) == bool(
                np.allclose(a, b, 1e-6, 0)
            )


def test_a_shift_is_found_under_noise_of_four_bits() -> None:
    values = np.asarray(pp.load("sample:all-minilm-l6-v2").values, np.float64)
    findings = relate_tables(values, made.in_blocks(values[2:], 4))
    assert [finding.cause for finding in findings] == ["rows_cut", "quantised"]
    assert findings[0].value == 2


def test_grouped_keys_and_columns_that_do_not_rotate_keep_their_order() -> None:
    draw = np.random.default_rng(3)
    query, key = draw.normal(size=(8 * 16, 32)), draw.normal(size=(2 * 16, 32))
    a = Projections(query, key, 16, 8)
    reordered_query, keys = (
        reorder_rows(projection, "to_neighbours", 16, 8) for projection in (query, key)
    )
    b = Projections(reordered_query, keys, 16, 8)
    relation = relate_layer(a, b)
    assert relation.order == "to_neighbours"
    assert [finding.cause for _, finding in relation.findings()] == ["identical"]
    np.testing.assert_array_equal(
        b.query.reshape(8, 16, 32)[:, 8:], query.reshape(8, 16, 32)[:, 8:]
    )


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_1", "Q5_1"])
def test_numbers_of_ggmls_types_are_called_rounded_to_their_bits(kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    draw, quant = np.random.default_rng(0), gguf.GGMLQuantizationType[kind]
    blocks = draw.integers(0, 256, (256, gguf.GGML_QUANT_SIZES[quant][1]), dtype=np.uint8)
    scales = {"Q2_K": [80, 82], "Q3_K": [108], "Q6_K": [208]}.get(kind, [0, 2])
    for place in scales:
        blocks[:, place : place + 2] = np.float16(0.01).reshape(1).view(np.uint8)
    stored = gguf.quants.dequantize(blocks, quant).astype(np.float64).reshape(-1, 64)
    exact = stored + 0.003 * draw.uniform(-1, 1, stored.shape)
    (finding,) = relate_tables(exact, stored)
    assert (finding.cause, finding.more) == (
        "quantised",
        {"bits": int(kind[1]), "side": "b"},
    )
    (finding,) = relate_tables(exact, stored + 1e-3 * draw.normal(size=stored.shape))
    assert finding.cause == "moved"


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q8_0"])
def test_values_that_moved_before_they_were_rounded_are_not_called_rounded(
    kind: str,
) -> None:
    gguf = pytest.importorskip("gguf")
    draw, quant = np.random.default_rng(0), gguf.GGMLQuantizationType[kind]

    def stored(values: Any) -> Any:
        blocks = gguf.quants.quantize(values.astype(np.float32), quant)
        return gguf.quants.dequantize(blocks, quant).astype(np.float64)

    exact = draw.normal(size=(64, 256))
    (finding,) = relate_tables(exact, stored(exact))
    assert (finding.cause, finding.more["bits"]) == ("quantised", int(kind[1]))
    (finding,) = relate_tables(
        exact, stored(exact + 0.01 * draw.normal(size=exact.shape))
    )
    assert finding.cause == "moved"


def test_a_ladder_that_is_off_by_little_more_than_float32_is_named() -> None:
    omega = pp.encodings.rotary_frequencies(128, base=5e5)[0]
    (finding,) = relate_ladders(Ladder(omega), Ladder(omega * (1 + 1.5e-6)))
    assert finding.cause == "same_ladder"
    (finding,) = relate_ladders(Ladder(omega), Ladder(omega * (1 + 1e-5)))
    assert finding.cause == "positions_scaled"


@pytest.mark.parametrize("seed", range(5))
def test_merged_adapters_of_low_rank_replace_no_rows(seed: int) -> None:
    draw = np.random.default_rng(seed)
    a = made.projections(draw, heads=16, head_dim=32, width=128)
    for rank, size in ((1, 0.08), (1, 0.14), (4, 0.14), (1, 0.3)):
        update = draw.normal(size=(512, rank)) @ draw.normal(size=(rank, 128))
        update *= size * np.linalg.norm(a.query) / np.linalg.norm(update)
        b = Projections(a.query + update, a.key + update, 32, 32)
        assert {finding.cause for _, finding in relate_layer(a, b).findings()} == {
            "moved"
        }


def test_zero_projections_are_identical() -> None:
    zeros = Projections(np.zeros((32, 8)), np.zeros((32, 8)), 16, 16)
    relation = relate_layer(zeros, zeros)
    assert relation.order == "same"
    assert [finding.cause for _, finding in relation.findings()] == ["identical"]


def test_every_question_of_a_check_has_its_own_definition() -> None:
    definitions = {
        subject: define_line(f"check-3-{subject}") for subject in compared_subjects()
    }
    assert all(len(definition.split()) > 8 for definition in definitions.values())
    assert len(set(definitions.values())) == len(definitions)


def test_reordered_rows_are_not_called_alike() -> None:
    finding = Finding("weights", "identical", None, None, 0.0, more={"reordered": True})
    assert finding_verdict(finding, differs=False) == "reordered"
    assert finding_line(finding, "check-0-weights", differs=False).value == "reordered"


def test_a_finding_is_a_line_with_its_place_and_size() -> None:
    order = Finding("pairs", "half_permuted", "same", "to_neighbours",
                    more={"layers": [3], "projection": "keys"})  # fmt: skip
    line = finding_line(order, "check-0", differs=True)
    assert (line.answer, line.question) == ("no", "Same pairs?")
    assert (line.measure, line.value) == ("layer 3, keys", "differs")
    harm = Finding("ladder", "base", 1e4, 5e5, value=0.2, first_distance=7.4)
    line = finding_line(harm, "check-1", differs=True)
    assert (line.measure, line.value) == ("matters from distance", "8")
    # Line, sentence and table give one number one name.
    assert "matters from distance 8:" in finding_sentence(harm).lower()
    assert format_first_distance(harm) == "8"
    same = finding_line(
        Finding("weights", "identical", None, None, value=0.0), "c", differs=False
    )
    assert (same.answer, same.value) == ("yes", "equal")


def test_two_copies_of_one_name_are_told_apart_by_their_folders() -> None:
    assert check_title("/x/model", "/y/copy") == "model → copy"
    assert check_title("/x/model", "/y/model") == "/x/model → /y/model"
