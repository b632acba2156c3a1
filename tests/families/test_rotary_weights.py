"""What query and key weights alone say: closed forms, every way they are stored, real weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import Hub
from made_checkpoints import model_folder
from made_cli import Cli, cli
from made_hub import server, waits
from made_schemas import problems
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.models.rotary_weights import (
    WeightUse,
    measure_layer_weights,
    pair_layout,
)
from posprobe.encodings.rotary import precision_horizon
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families.projections import open_rotary_weights
from posprobe.families.read import load_any
from posprobe.report.render import build_page
from posprobe.studies.checkpoint import analyze_any, open_weights
from posprobe.words import weights

#: Fixtures that pytest finds by name.
__all__ = ["cli", "server", "waits"]

Floats = NDArray[np.float64]
LADDER = 10_000.0 ** (-np.arange(4) / 4)
REAL = Path(os.environ.get("POSPROBE_REAL", "")) / "stories260K"
HEADS = 4
KEYS = 2
WIDTH = 8
HIDDEN = 32


# Closed forms.


def of_layer(query: Floats, key: Floats, biases: Any = None, **options: Any) -> Any:
    settings = {
        "ladder": LADDER,
        "pair_order": "halves",
        "scale": 1.0,
        "distances": 64,
        **options,
    }
    return measure_layer_weights(0, query, key, biases, **settings)


def test_equal_weights_meet_the_kernel_of_the_ladder() -> None:
    layer_weights_found = of_layer(np.eye(8)[None], np.eye(8)[None], scale=0.5)
    kernel = np.cos(np.outer(LADDER, np.arange(64))).sum(axis=0)
    np.testing.assert_allclose(
        layer_weights_found.self_match[0], kernel, atol=1e-12
    )  # 2 rows a pair, halved
    np.testing.assert_allclose(layer_weights_found.usage, 0.25)


def rotated(vectors: Floats, places: NDArray[np.int64]) -> Floats:
    """Turn heads ``[n, 8]``, pairs half a head apart, each to its place."""
    rotated_pairs = (vectors[:, :4] + 1j * vectors[:, 4:]) * np.exp(
        1j * np.outer(places, LADDER)
    )
    return np.concatenate([rotated_pairs.real, rotated_pairs.imag], axis=1)


def test_the_self_match_curve_is_the_mean_logit_of_like_contents() -> None:
    draw = np.random.default_rng(0)
    query, key = draw.normal(size=(2, 1, 8, 6))
    content = draw.normal(size=(200_000, 6))
    layer_weights_found = of_layer(query, key)
    for distance in (0, 1, 7):
        positions = np.full(len(content), distance)
        logits = rotated(content @ query[0].T, positions) * rotated(
            content @ key[0].T, 0 * positions
        )
        error = 4 * logits.sum(axis=1).std() / len(content) ** 0.5
        assert layer_weights_found.self_match[0, distance] == pytest.approx(
            logits.sum(axis=1).mean(), abs=error
        )


def test_biases_add_the_same_to_every_logit_exactly() -> None:
    draw = np.random.default_rng(1)
    queries, keys = draw.normal(size=(4, 8)), draw.normal(size=(2, 8))
    weights = draw.normal(size=(4, 8, 6)), draw.normal(size=(2, 8, 6))
    layer_weights_found = of_layer(*weights, (queries, keys), scale=0.3)
    places = np.arange(64)
    for head in range(4):
        rotated_queries = rotated(np.tile(queries[head], (64, 1)), places)
        curve = 0.3 * rotated_queries @ keys[head // 2]
        np.testing.assert_allclose(
            layer_weights_found.bias_curve[head], curve, atol=1e-12
        )
    assert layer_weights_found.bias_spread == pytest.approx(
        layer_weights_found.bias_curve.std(axis=1).max()
    )


def test_columns_that_do_not_turn_are_one_more_pair() -> None:
    weight = np.eye(12)[None]
    layer_weights_found = of_layer(weight, weight)
    np.testing.assert_allclose(layer_weights_found.usage, np.array([2, 2, 2, 2, 4]) / 12)
    assert layer_weights_found.self_match[0, 0] == pytest.approx(12)


def test_a_head_without_strength_leaves_the_mean_to_the_others() -> None:
    query, key = np.random.default_rng(0).normal(size=(2, 3, 8, 5))
    query[1] = 0
    layer_weights_found, strong_heads = (
        of_layer(query[k], key[k], positions=64) for k in ([0, 1, 2], [0, 2])
    )
    np.testing.assert_allclose(layer_weights_found.usage, strong_heads.usage)
    assert layer_weights_found.never == strong_heads.never
    assert of_layer(query[[1]], key[[1]], positions=64).usage is None


# The layout of pairs.


def planted(heads: int, rows: int, seed: int = 0) -> Floats:
    """Sizes of rows, pairs half a head apart, with a phase of each head and a common profile."""
    draw = np.random.default_rng(seed)
    angle = draw.uniform(0.1, np.pi / 2 - 0.1, (heads, rows // 2))
    profile = np.exp(draw.normal(size=rows // 2))
    return np.concatenate([profile * np.cos(angle), profile * np.sin(angle)], axis=1)


def reordered(sizes: Floats) -> Floats:
    """Put rows of halves as neighbours, as a converter does."""
    heads, rows = sizes.shape
    return sizes.reshape(heads, 2, rows // 2).swapaxes(1, 2).reshape(heads, rows)


def test_planted_pairs_are_found_in_whatever_order_they_stand() -> None:
    sizes = planted(40, 16)
    once = reordered(sizes)
    orders = {"halves": sizes, "neighbours": once, "neighbours_again": reordered(once)}
    for reading, rows in orders.items():
        layout = pair_layout(rows)
        assert layout is not None
        assert layout.answer == reading
        assert layout.margin == pytest.approx(pair_layout(sizes).margin)  # type: ignore[union-attr]


@pytest.mark.parametrize(("heads", "rows"), [(60, 8), (24, 16), (100, 32)])
def test_random_weights_have_no_layout(heads: int, rows: int) -> None:
    draw = np.random.default_rng(2)
    answers = [
        pair_layout(np.linalg.norm(draw.normal(size=(heads, rows, 32)), axis=2))
        for _ in range(60)
    ]
    assert (
        sum(layout is not None and layout.answer is not None for layout in answers) <= 1
    )


def test_too_little_to_compare_has_no_layout() -> None:
    assert pair_layout(np.ones((3, 16))) is None
    assert pair_layout(np.ones((16, 2))) is None
    assert pair_layout(np.zeros((16, 8))) is None


# How checkpoints store them.


def projections(heads: int, keys: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Draw queries, keys and values of a layer: ``[heads, WIDTH, HIDDEN]``."""
    draw = np.random.default_rng(seed)
    query, key, value = (
        draw.normal(size=(n, WIDTH, HIDDEN)) for n in (heads, keys, keys)
    )
    return query, key, value


def flat(*parts: Floats) -> Floats:
    return np.concatenate([part.reshape(-1, HIDDEN) for part in parts])


def by_group(query: Floats, key: Floats, value: Floats) -> Floats:
    grouped = query.reshape(len(key), -1, WIDTH, HIDDEN)
    return flat(np.concatenate([grouped, key[:, None], value[:, None]], axis=1))


TWO_KEY_HEADS = {"num_key_value_heads": 2}
GROUPED = "transformer.h.0.self_attention.query_key_value"
#: Architecture: more of its configuration, heads of keys, what it calls and how it joins them.
#: Those that transformers builds are compared with it where models are checked.
STORED: Mapping[str, tuple[dict[str, Any], int, str, Callable[..., Floats] | None]] = {
    "llama": (TWO_KEY_HEADS, 2, "model.layers.0.self_attn.{}_proj", None),
    "qwen": ({}, 4, "transformer.h.0.attn.c_attn", flat),
    "falcon": ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2, GROUPED, by_group),
    "internlm2": (TWO_KEY_HEADS, 2, "model.layers.0.attention.wqkv", by_group),
    "chatglm": (
        {"multi_query_group_num": 2}, 2,
        "transformer.encoder.layers.0.self_attention.query_key_value", flat,
    ),
}  # fmt: skip


def joined(family: str, query: Floats, key: Floats, value: Floats) -> dict[str, Floats]:
    _, _, name, join = STORED[family]
    if join is None:
        return {name.format("q"): flat(query), name.format("k"): flat(key)}
    return {name: join(query, key, value)}


def saved(folder: Path, tensors: Mapping[str, Floats], **config: Any) -> str:
    stated_config = {
        "num_attention_heads": HEADS, "hidden_size": HIDDEN, "head_dim": WIDTH,
        "num_hidden_layers": 1, "rope_theta": 1e4, "max_position_embeddings": 64, **config,
    }  # fmt: skip
    stored = {
        name if name.endswith((".weight", ".bias")) else f"{name}.weight": values
        for name, values in tensors.items()
    }
    return model_folder(folder, stored, **stated_config)


@pytest.mark.parametrize("family", STORED)
def test_every_family_is_split_as_its_model_does(family: str, tmp_path: Path) -> None:
    options, keys, *_ = STORED[family]
    query, key, value = projections(HEADS, keys)
    tensors = joined(family, query, key, value)
    path = saved(tmp_path, tensors, model_type=family, **options)
    (weights,) = open_rotary_weights(path)
    layer = weights.read(0)
    np.testing.assert_array_equal(layer.query, query.astype(np.float32))
    np.testing.assert_array_equal(layer.key, key.astype(np.float32))
    first_heads = weights.read(0, (range(1), range(1)))
    np.testing.assert_array_equal(first_heads.query, query[:1].astype(np.float32))
    np.testing.assert_array_equal(first_heads.key, key[:1].astype(np.float32))
    assert weights.bytes == 4 * (query.size + key.size)


def llama(folder: Path, layers: int = 2, **overrides: Any) -> str:
    tensors: dict[str, Floats] = {}
    for layer in range(layers):
        query, key, _ = projections(HEADS, KEYS, seed=layer)
        prefix = f"model.layers.{layer}."
        tensors |= {
            f"{prefix}self_attn.q_proj": flat(query), f"{prefix}self_attn.k_proj": flat(key),
            f"{prefix}input_layernorm": np.full(HIDDEN, 2.0),
        }  # fmt: skip
    tensors |= overrides.pop("tensors", {})
    config = {
        "model_type": "llama",
        "num_key_value_heads": KEYS,
        "num_hidden_layers": layers,
    }
    return saved(folder, tensors, **{**config, **overrides})


def use(path: str, **options: Any) -> WeightUse:
    loaded = load_any(path)
    analysis = analyze_any(loaded, weights=open_weights(loaded, **options))
    weight_use = analysis.results[0]["weights"]  # type: ignore[index]
    assert isinstance(weight_use, WeightUse)
    return weight_use


def test_the_gain_of_the_norm_before_is_multiplied_in(tmp_path: Path) -> None:
    gain = {"model.layers.0.input_layernorm": np.r_[np.full(HIDDEN - 1, 1e-6), 1.0]}
    path = llama(tmp_path / "a", 1, tensors=gain)
    query, key, value = projections(HEADS, KEYS)
    last_column = np.zeros(HIDDEN)
    last_column[-1] = 1
    single_column = of_layer(query * last_column, key * last_column)
    np.testing.assert_allclose(use(path).layers[0].heads, single_column.heads, rtol=1e-4)
    gemma = llama(tmp_path / "b", 1, tensors={"model.layers.0.input_layernorm": -1 + last_column},
                  model_type="gemma")  # fmt: skip
    np.testing.assert_allclose(use(gemma).layers[0].heads, single_column.heads, rtol=1e-5)
    tensors = joined("falcon", query, key, value) | {
        "transformer.h.0.ln_attn": last_column
    }
    falcon = saved(tmp_path / "c", tensors, model_type="falcon", **STORED["falcon"][0])
    np.testing.assert_allclose(
        use(falcon).layers[0].heads, single_column.heads, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("GPTNeoX", {"rotary_pct": 0.5}),
        ("StableLm", {"partial_rotary_factor": 0.5, "use_qkv_bias": True}),
        ("Starcoder2", {"use_bias": True}),
        ("Nemotron", {"partial_rotary_factor": 0.5}),  # whose norms multiply by one more
    ],
)
def test_without_gain_logits_equal_those_of_the_biases(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    config = getattr(transformers, f"{family}Config")(
        vocab_size=40, hidden_size=HIDDEN, intermediate_size=HIDDEN, num_hidden_layers=1,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.normal_(std=0.4)
            if name.endswith("input_layernorm.weight"):
                values.fill_(-1 if family == "Nemotron" else 0)
    model.save_pretrained(tmp_path)
    run = pp.rotary_use(model, [np.random.default_rng(0).integers(3, 40, (4, 64))])
    (layer,) = use(str(tmp_path)).layers
    assert layer.bias_curve is not None
    for head, curve in zip(run.heads, layer.bias_curve, strict=True):
        centred_curve = curve - curve.mean()
        assert np.ptp(centred_curve) > 0.1
        np.testing.assert_allclose(
            head.measured - head.measured.mean(), centred_curve, atol=1e-5
        )


def test_layers_that_do_not_rotate_or_are_not_asked_for_are_not_read(
    tmp_path: Path,
) -> None:
    path = llama(tmp_path, 4, model_type="smollm3", no_rope_layers=[1, 0, 1, 0])
    for requested, read in ((None, [0, 2]), ([2], [2])):
        assert [layer.layer for layer in use(path, layers=requested).layers] == read
    with pytest.raises(
        UsageError, match=r"`layers=\[7\]`: no layer of that number .* 0, 2\."
    ):
        use(path, layers=[7])


def test_a_page_shows_weights_and_its_document_follows_the_schema(tmp_path: Path) -> None:
    analysis = analyze_any(load_any(llama(tmp_path)))
    document = json.loads(json.dumps(analysis.to_dict()))
    assert problems("analysis", document) == []
    (line,) = (
        candidate
        for candidate in build_page(document).single_answers
        if candidate.name == "weights"
    )
    assert line.answer == ""
    idle_pairs = document["schemes"][0]["weights"]["never"]
    assert line.value == f"{100 * idle_pairs:.0f} %"
    assert {"weights_usage", "weights_curves"} <= set(analysis.figures())
    assert analysis.arrays()["0_weights_usage"].shape == (2, HEADS, WIDTH // 2)


def told(path: str) -> str:
    evidence = build_page(analyze_any(load_any(path)).to_dict()).evidence
    return next(
        " ".join(item.sentences)
        for item in evidence
        if item.lines and item.lines[0].name == "weights"
    )


def test_unreadable_weights_are_one_clear_sentence(tmp_path: Path) -> None:
    quantised = {"model.layers.0.self_attn.q_proj.qweight": np.zeros((4, 4))}
    assert "have a name that is known" in told(
        saved(tmp_path / "b", quantised, model_type="llama")
    )
    nan = {"model.layers.0.self_attn.q_proj": np.full((HEADS * WIDTH, HIDDEN), np.nan)}
    sentence = told(llama(tmp_path / "c", tensors=nan))
    assert "Layer 0 was left out: the weights hold NaN or infinity." in sentence
    assert "(1 layer)" in sentence
    odd = {"model.layers.1.self_attn.k_proj": np.zeros((KEYS * WIDTH + 1, HIDDEN))}
    assert "Layer 1 was left out" in told(llama(tmp_path / "d", tensors=odd))


def test_normalised_queries_say_to_run_the_model(tmp_path: Path) -> None:
    norm = {"model.layers.0.self_attn.q_norm": np.ones(WIDTH)}
    path = llama(tmp_path, tensors=norm, model_type="qwen3")
    assert use(path).normed
    assert "posprobe forward" in told(path)


def test_undeclared_layouts_are_those_that_the_weights_tell(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    tensors = {}
    for layer in range(6):
        for name, heads in (("q", HEADS), ("k", KEYS)):
            rows = draw.normal(size=(heads, WIDTH, HIDDEN))
            rows /= np.linalg.norm(rows, axis=2, keepdims=True)
            profile = np.exp(np.arange(WIDTH // 2))
            angle = draw.uniform(0.1, np.pi / 2 - 0.1, (heads, WIDTH // 2))
            sizes = np.stack([profile * np.cos(angle), profile * np.sin(angle)], axis=2)
            weight = rows * sizes.reshape(heads, WIDTH, 1)
            tensors[f"model.layers.{layer}.self_attn.{name}_proj"] = flat(weight)
    config = {"num_hidden_layers": 6, "num_key_value_heads": KEYS}
    path, second_path = (saved(tmp_path / name, tensors, **config) for name in "ab")
    weight_use = use(path)
    assert (weight_use.declared, weight_use.pairs) == (False, "neighbours")
    assert "no architecture is named" in told(path)
    # The same answer where the command compares two such copies.
    checked = pp.check(path, second_path)
    assert checked.alike
    assert [finding.a for finding in checked.compared if finding.what == "pairs"] == [
        "neighbours"
    ]


def test_the_command_reports_the_bytes_to_read(tmp_path: Path, cli: Cli) -> None:
    completed = cli("analyze", llama(tmp_path / "model"), "--out", "out", "--layers", "0")
    assert completed.code == 0
    assert " 6.1 kB " in completed.err
    assert "from weights" in completed.out


def test_hub_weights_are_read_only_on_request(server: Hub, tmp_path: Path) -> None:
    much = {"model.embed_tokens": np.zeros((4096, HIDDEN))}
    path = Path(llama(tmp_path, tensors=much))
    server.add("someone/llama", {file.name: file.read_bytes() for file in path.iterdir()})
    loaded = load_any("someone/llama")
    assert open_weights(loaded) == {0: "remote"}
    (opened,) = open_weights(loaded, everywhere=True).values()
    assert not isinstance(opened, str)
    assert opened.bytes == 4 * 2 * (HEADS + KEYS) * WIDTH * HIDDEN
    weight_use = use("someone/llama", everywhere=True)
    assert weight_use.head_count == 2 * HEADS
    assert server.sent() < (path / "model.safetensors").stat().st_size / 4
    assert "--weights" in told("someone/llama")


# Arithmetic.


@pytest.mark.parametrize(
    ("base", "name", "first_position"),
    [
        (1e4, "bfloat16", 40),
        (1e4, "float16", 182),
        (5e5, "bfloat16", 33),
        (1e6, "float16", 257),
    ],
)
def test_half_precision_carries_angles_so_far(
    base: float, name: str, first_position: int
) -> None:
    ladder, _ = pp.encodings.rotary_frequencies(128, base=base)
    assert precision_horizon(ladder, name) == first_position
    assert precision_horizon([1.0], "float32") is None  # positions themselves are exact


# Real weights.


@pytest.mark.real
def test_real_weights_tell_their_layout() -> None:
    layout = use(str(REAL)).layout
    assert layout is not None
    assert (layout.answer, layout.heads, layout.wins) == ("halves", 60, 1.0)
    assert layout.margin == pytest.approx(23.96, abs=0.01)
    scores = {
        reading.reading: (reading.apart, reading.correlation)
        for reading in layout.readings
    }
    assert scores["halves"] == pytest.approx((0.162, -0.362), abs=0.001)
    assert scores["neighbours"] == pytest.approx((32.18, -0.097), abs=0.01)
    assert scores["halves_again"] == pytest.approx((59.69, -0.074), abs=0.01)


# Several axes.


def along(path: str) -> dict[str, tuple[float, float, int, int]]:
    (record, *_) = pp.load_schemes(path)
    axis_ladders = pp.studies.analyze_schemes(record).results[0]["rotation"].along  # type: ignore[attr-defined]
    return {
        axis_ladder.axis: (
            axis_ladder.shortest,
            axis_ladder.longest,
            axis_ladder.turning,
            axis_ladder.dead,
        )
        for axis_ladder in axis_ladders
    }


#: Configurations, and of some axes: shortest and longest wavelength, turning and dead pairs.
AXES: dict[str, tuple[dict[str, Any], dict[str, tuple[float, float, int, int]]]] = {
    "dinov3_vit": (
        {"hidden_size": 384, "image_size": 224, "num_attention_heads": 6, "patch_size": 16,
         "rope_theta": 100.0},
        dict.fromkeys(("rows", "columns"), (7, 524.9, 3, 0)),
    ),
    "pixtral": (
        {"head_dim": 64, "image_size": 1024, "patch_size": 16, "rope_theta": 1e4},
        {"rows": (6.283, 35_333, 5, 4), "columns": (8.379, 47_117, 4, 5)},
    ),
    "qwen2_vl_text": (
        {"head_dim": 128, "max_position_embeddings": 32_768, "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}},
        {"time": (6.283, 160.1, 8, 0), "rows": (198.7, 28_473, 0, 13),
         "columns": (35_330, 5.06e6, 0, 24)},
    ),
    "qwen3_vl_text": (  # whose sections take pairs in turn
        {"head_dim": 128, "rope_parameters": {
            "rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20],
            "mrope_interleaved": True}},
        {"time": (6.283, 2.469e7, 3, 16), "rows": (7.996, 7.398e6, 2, 12)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AXES)
def test_pairs_of_several_axes(name: str, tmp_path: Path) -> None:
    config, expected = AXES[name]
    axis_ladders = along(model_folder(tmp_path, {}, model_type=name, **config))
    for axis, numbers in expected.items():
        assert axis_ladders[axis] == pytest.approx(numbers, rel=1e-3)


def test_latent_attention_weights_need_a_run(tmp_path: Path) -> None:
    config = {
        "model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 4,
        "kv_lora_rank": 16, "q_lora_rank": None, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "rope_theta": 1e4, "max_position_embeddings": 128,
    }  # fmt: skip
    document = analyze_any(load_any(model_folder(tmp_path, {}, **config))).to_dict()
    assert problems("analysis", document) == []
    assert document["schemes"][0]["weights"]["missing"] == "latent"
    (sentence,) = weights.weights_sentences(document["schemes"][0]["weights"])
    assert "`posprobe forward`" in sentence


def test_curves_are_drawn_for_a_paper(tmp_path: Path, cli: Cli) -> None:
    completed = cli(
        "figure", "rotary-curves", "sample:pydoc-llama", "-o", "curves.svg", "--quiet"
    )
    assert (completed.code, (tmp_path / "curves.svg").read_text().count("<svg")) == (0, 1)
    assert "on 24 contexts of 128 tokens sampled from the model" in " ".join(
        completed.out.split()
    )
    refused = cli(
        "figure", "rotary-curves", "rotary:512x64", "-o", "curves.svg", "--quiet"
    )
    assert (refused.code, "a formula is not a model" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (
            {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8},
            "no_weights",
        ),
        ({"model_type": "bloom", "hidden_size": 64, "n_head": 8}, None),
    ],
)
def test_a_configuration_alone_shows_its_declared_scheme(
    config: dict[str, Any], missing: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (scheme,) = analyze_any(load_any(str(tmp_path))).to_dict()["schemes"]
    assert (scheme.get("weights") or {}).get("missing") == missing


def test_a_configuration_alone_that_states_no_positions_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_positions": 1024}')
    with pytest.raises(
        InvalidCheckpoint, match=r"contains no weights .* states no positions"
    ):
        load_any(str(tmp_path))
