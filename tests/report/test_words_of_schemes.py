"""What is said of encodings without a table: words of facts that are known, and of each reason."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from made_schemes import buckets, linear, rotary, source, window
from made_tables import as_table, walk
from safetensors.numpy import load_file, save_file

import posprobe as pp
from posprobe.analyses.facts import Answer
from posprobe.layouts import Grid, Sequence
from posprobe.questions.schemes import NAMES, answers_of, kernel_answers
from posprobe.report.kernels import compare_kernels
from posprobe.report.narrator import sentence, templates
from posprobe.report.narrator.schemes import kernels_headline, pair_sentences, summary
from posprobe.report.schemes import analyze_schemes
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme

library: Any = transformers


def asked(*records: Scheme) -> dict[str, Answer]:
    return answers_of(analyze_schemes(*records).to_dict()["schemes"])


def said(*records: Scheme) -> dict[str, str]:
    """Return the sentences by question, and the headline."""
    answers = asked(*records)
    told = {name: sentence(answer) for name, answer in answers.items()}
    return {**told, "summary": summary(answers)}


def noise(heads: int, seed: int, **fields: Any) -> RelativeBias:
    values = np.random.default_rng(seed).standard_normal((heads, 119))
    return RelativeBias(values, Sequence(60), "noise", source(), **fields)


def mixed(quantity: Any = "bias") -> RelativeBias:
    """Of 12 heads, 4 fall from the query, 4 rise, 2 are noise and 2 have one value."""
    offsets = np.abs(np.arange(-59, 60))
    rng = np.random.default_rng(5)
    noisy = rng.standard_normal((2, 119))
    falls, rises = np.exp(-offsets / 5.0), 1 - np.exp(-offsets / 20.0)
    values = np.stack([*[falls] * 4, *[rises] * 4, *noisy, *np.ones((2, 119))])
    values[:8] += 0.01 * rng.standard_normal((8, 119))
    return RelativeBias(values, Sequence(60), "m", source(), quantity=quantity)


def peaks(*shifts: int, quantity: Any = "bias", **fields: Any) -> RelativeBias:
    offsets = np.arange(-39, 40)
    values = np.stack([np.exp(-((offsets - shift) ** 2) / 20) for shift in shifts])
    return RelativeBias(values, Sequence(40), "peaks", source(), quantity=quantity, **fields)


SLOW = {"rope_type": "linear", "factor": 2e7}
FLAT = np.full((2, 79), 3.0)
RECORDS: dict[str, tuple[Scheme, ...]] = {
    "rotary": (rotary(),),
    "short": (rotary(base=50.0, max_positions=20), rotary("other", base=50.0)),
    "no length": (rotary(max_positions=None, training_length=None),),
    "fast": (rotary(base=50.0, max_positions=300),),
    "axes": (Rotary(24, "vision", source(), base=50.0, axes=2, max_positions=900),),
    "one": (Rotary(2, "one", source(), max_positions=8),),
    "not searched": (Rotary(2, "one", source(), max_positions=2**21, scaling=SLOW),),
    "changed": (rotary(scaling={"rope_type": "linear", "factor": 8.0}),),
    "unchanged": (rotary(scaling={"rope_type": "linear", "factor": 1.0}),),
    "alibi": (linear(),),
    "alibi without length": (linear(1, max_positions=None),),
    "alibi far": (LinearBias(np.array([1e-3]), "far", source(), max_positions=300),),
    "buckets": (buckets(), buckets(name="decoder", causal=True)),
    "noise": (noise(12, 3),),
    "open": (noise(8, 3), peaks(-2, 0, 0)),
    "mixed": (mixed(),),
    "sided": (peaks(-3, -3, 0, 3),),
    "far": (peaks(-30, 30, 30),),
    "weak": (peaks(0),),
    "flat": (RelativeBias(FLAT, Sequence(40), "flat", source()),),
    "computed": (replace(buckets(), computed=True),),
    "windows": (window(), window(7, 7)),
    **{
        f"vectors {name}": (record,)
        for name, record in {
            "buckets": buckets(quantity="cosine"),
            "noise": noise(12, 3, quantity="cosine"),
            "mixed": mixed("cosine"),
            "near": peaks(0, 0, 0, quantity="cosine"),
            "one": peaks(0, quantity="cosine"),
            "flat": RelativeBias(FLAT / 3, Sequence(40), "flat", source(), quantity="cosine"),
            "computed": peaks(0, quantity="cosine", computed=True),
        }.items()
    },
    "vectors open": (noise(8, 3, quantity="cosine"), peaks(-2, 0, 0, quantity="cosine")),
}


def test_every_reason_is_reached_and_told() -> None:
    reached: dict[tuple[str, str], str] = {}
    for records in RECORDS.values():
        for answer in asked(*records).values():
            reached[answer.question, answer.reason] = sentence(answer)
    wanted = {key for key in templates() if key[0] in NAMES}
    assert wanted == set(reached)


@pytest.mark.parametrize("name", RECORDS)
def test_sentences_begin_with_their_subject_and_are_short(name: str) -> None:
    for question, text in said(*RECORDS[name]).items():
        assert text.endswith(".")
        assert not re.match(r"(yes|no|cannot tell)\b(?! order)", text, re.IGNORECASE)
        assert "None" not in text
        assert "nan" not in text.split()
        if question != "summary":
            parts = re.split(r"[.;:] ", text)
            assert all(len(re.sub(r"\(.*?\)", "", part).split()) <= 25 for part in parts), text


# Numbers and what they are of.


def test_biases_that_are_all_zero_are_not_said_to_depend_on_distance() -> None:
    """As BEiT and Swin are initialised."""
    zero = RelativeBias(np.zeros((4, 7, 7)), Grid(4, 4), "a", source())
    assert said(zero, replace(zero, name="b"))["summary"] == (
        "The biases are the same at all distances."
    )


def test_pairs_of_a_head_are_counted_whatever_axis_they_belong_to() -> None:
    """Qwen2-VL's images: heads of 80 numbers, half of whose pairs turn along rows."""
    images = Rotary(80, "vision", source(), axes=2)
    text = Rotary(128, "text", source(), base=1e6, max_positions=32_768)
    alone = said(images)["summary"]
    assert alone.startswith("40 pairs (20 per axis) of wavelength 6.3 to 40,000 positions.")
    told = said(text, images)
    assert "vision: 40 pairs (20 per axis)" in told["summary"]
    assert told["rotary_turns"].startswith(
        "24 of 64 pairs never turn within the context of 32,768 positions"
    )
    framed = said(replace(images, max_positions=100))["rotary_turns"]
    slow = 2 * (2 * np.pi / images.frequencies() > 100).sum()
    assert framed.startswith(f"{slow} of 40 pairs (20 per axis) never turn")


def test_a_score_is_positive_up_to_the_distance_before_it_is_not() -> None:
    omega = 10_000.0 ** (-np.arange(16) / 16)
    last = next(k for k in range(1, 10**6) if np.cos(k * omega).sum() < 0) - 1
    assert said(rotary(max_positions=128))["rotary_positive"] == (
        "With identical query and key, the RoPE score stays positive up to distance "
        f"{last} (context of 128 positions)."
    )
    assert "(window of 64 positions)" in said(rotary(window=64))["rotary_positive"]
    along = "never negative along one axis: the pairs of the others stand still."
    assert said(*RECORDS["axes"])["rotary_positive"].endswith(along)
    looked = said(*RECORDS["not searched"])["rotary_positive"]
    assert "up to 1,048,576, the farthest looked at" in looked


def test_what_a_rule_changes_is_told_with_the_length_of_the_text() -> None:
    changed, unchanged = (
        said(*RECORDS[name])["rotary_stretched"] for name in ("changed", "unchanged")
    )
    assert changed == (
        "The rule linear changes the wavelengths for texts of 4,096 positions (training: 2,048)."
    )
    assert unchanged == "The rule linear changes no wavelength for texts of 4,096 positions."


def test_keys_are_told_of_how_many() -> None:
    """BLOOM states no length: curves are taken at 512 positions."""
    told = said(linear(16, max_positions=None))["alibi_near"]
    assert re.search(r"over 3\.9 to 440 of 512 keys\.$", told)


def test_each_limit_is_told_with_the_encodings_that_have_it(tmp_path: Any) -> None:
    torch.manual_seed(0)
    config = library.T5Config(d_model=32, d_kv=8, d_ff=16, num_layers=1, num_heads=4, vocab_size=20)
    library.T5Model(config).save_pretrained(tmp_path)
    # As T5 1.0 is published: with a bias between decoder and encoder that nothing uses.
    stored = load_file(tmp_path / "model.safetensors")
    other = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    save_file(stored | {other: np.ones((32, 4), np.float32)}, tmp_path / "model.safetensors")
    records = pp.load_schemes(str(tmp_path))
    assert [record.name for record in records] == ["decoder", "encoder"]
    for record in records:
        assert record.source.tensor is not None
        assert record.source.tensor.startswith(f"{record.name}.")
    told = said(*records)
    limits = (
        "From 91 positions on, distances share one bias per side (encoder). From 113 positions "
        "on, distances share one bias (decoder)."
    )
    assert told["bias_limit"] == limits
    assert told["summary"].endswith(limits)
    page = replace(buckets(6), unit="hundredths of the page's width", layout=Sequence(101))
    assert "From 91 hundredths of the page's width on" in said(page)["bias_limit"]


def test_heads_are_told_with_all_that_they_are_of() -> None:
    told = said(mixed())
    assert told["bias_smooth"] == (
        "In 8 of 12 heads, neighbouring distances have more similar biases than in 95 % of "
        "permutations (0.5 expected by chance)."
    )
    assert told["bias_near"] == (
        "Of 8 heads with an order of distances, 4 favour near ones and 4 those beyond a quarter "
        "of the length; 2 of 12 have no order."
    )
    assert said(*RECORDS["sided"])["bias_sides"] == (
        "4 heads with an order of distances: the largest bias is at an earlier key in 2, at a "
        "later key in 1, at neither in 1."
    )


# Kernels side by side.


def test_curves_are_similar_only_beyond_random_walks() -> None:
    falls = RelativeBias(-np.abs(np.arange(-59.0, 60))[None], Sequence(60), "falls", source())
    rises = replace(falls, values=-falls.values, name="rises")
    other = replace(falls, values=noise(1, 0).values, name="other")
    document = compare_kernels(falls, replace(falls, name="again"), rises, other).to_dict()
    pairs, walk = document["pairs"], document["walk"]
    assert walk is not None
    for pair in pairs:
        text = kernels_headline([pair], walk)
        assert ("no more" in text) == ((pair["correlation"] or 0) <= walk["correlation"])
        assert all(told.endswith(".") for told in pair_sentences(pair, walk))
    assert kernels_headline(pairs, walk) == ("1 of 6 pairs is more similar than two random walks.")


def test_kernels_are_asked_by_their_numbers() -> None:
    document = compare_kernels(linear(4), pp.sinusoidal(48, 16), as_table(walk(48, 4))).to_dict()
    found = {
        record["label"]: [each.answer for each in kernel_answers(record)]
        for record in document["records"]
    }
    assert list(found.values()) == [
        ["yes", "yes", "cannot tell"], ["no", "yes", "yes"], ["no", "no", "yes"],
    ]  # fmt: skip
