"""What heads of a rotary model make of distance: closed forms, slow sums, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
import torch
import transformers
from made_cli import Cli, cli
from made_schemas import problems, schema
from test_rotary_families import COMMON, FAMILIES, LENGTH, VOCABULARY, built, tokens

import posprobe as pp
from posprobe.analyses.models.rotary_heads import (
    LayerRotation,
    answer_heads,
    judge_position,
    measure_rotary_heads,
)
from posprobe.analyses.models.rotary_use import HeadUse, LayerUse
from posprobe.errors import UnknownReference, UsageError
from posprobe.forward import file_tokens, rotary_use, sampled_tokens
from posprobe.forward.attention_inputs import AttentionInputs
from posprobe.forward.rotary import ObservedLayer, sum_window
from posprobe.report import read_bundle

__all__ = ["cli"]

torch.set_num_threads(1)
LADDER = 10_000.0 ** (-np.arange(4) / 4)
SCALE = 8**-0.5
Complexes = np.ndarray[Any, np.dtype[np.complex128]]


# Closed forms: 4 pairs, 256 tokens, base 10,000.


def handed(query: Complexes, key: Complexes, places: Any = None) -> AttentionInputs:
    """Rotate unrotated pairs ``[contexts, tokens, pairs]`` of one head."""
    places = np.arange(query.shape[1]) if places is None else places
    phases = np.exp(1j * places[:, None] * LADDER)
    columns = [
        torch.as_tensor(np.concatenate([pairs.real, pairs.imag], axis=-1)[:, None])
        for pairs in (query * phases, key * phases)
    ]
    return AttentionInputs(columns[0], columns[1], None, SCALE, None)


def measured(query: Complexes, key: Complexes) -> HeadUse:
    length = query.shape[1]
    turning = LayerRotation(LADDER, "halves", "all", 0.0, np.arange(length // 2), SCALE)
    sums = sum_window(handed(query, key), ObservedLayer(turning, length // 2, length))
    return answer_heads(measure_rotary_heads(0, sums, turning, length=length))[0]


def same(value: complex | Complexes, contexts: int = 16) -> Complexes:
    return np.broadcast_to(np.asarray(value, complex), (contexts, 256, 4)).copy()


def noise(seed: int, contexts: int = 16) -> Complexes:
    """Complex, of variance 1."""
    rng = np.random.default_rng(seed)
    pair = rng.normal(size=(2, contexts, 256, 4)) / np.sqrt(2)
    return np.asarray(pair[0] + 1j * pair[1])


def test_constant_queries_and_keys_have_the_kernel_of_the_ladder() -> None:
    head_use = measured(same(2), same(2))
    kernel = 4 * SCALE * np.cos(np.outer(np.arange(128), LADDER)).sum(axis=1)
    np.testing.assert_allclose(head_use.measured, kernel, atol=1e-9)
    np.testing.assert_allclose(head_use.predicted, kernel, atol=1e-9)
    assert head_use.share == pytest.approx(1, abs=1e-9)
    assert head_use.spread is not None
    assert head_use.spread**2 == pytest.approx(2.096731, abs=1e-5)
    assert head_use.moved == pytest.approx(0.50645, abs=1e-5)
    assert (head_use.peak, head_use.answer) == (0, "yes")
    assert head_use.curve_share.sum() == pytest.approx(1)
    np.testing.assert_allclose(head_use.mean_part, 1)
    np.testing.assert_allclose(head_use.usage, 0.25)


def test_a_previous_token_head_prefers_the_distance_1() -> None:
    head_use = measured(same(3), same(3 * np.exp(1j * LADDER)))
    assert (head_use.peak, head_use.answer) == (1, "yes")
    assert head_use.measured[1] == pytest.approx(36 * SCALE)
    assert head_use.range == pytest.approx(13.78587, abs=1e-5)
    assert head_use.spread == pytest.approx(3.28872, abs=1e-5)
    # A pair turned by an angle of its own falls with a slope of its own.
    assert head_use.offset is None or head_use.offset.pair in (2, 3)


def test_white_noise_has_no_curve_and_yet_moves() -> None:
    head_use = measured(noise(1), noise(2))
    assert head_use.share == pytest.approx(0, abs=1e-3)
    assert 0.1 < head_use.moved < 0.5
    assert (head_use.answer, head_use.peak, head_use.by_content) == ("no", None, True)
    assert head_use.means_explain is None


def test_a_constant_amid_noise_has_the_share_that_arithmetic_gives() -> None:
    head_use = measured(1 + noise(3), 1 + noise(4))
    kernel_power = np.abs(np.exp(1j * np.outer(np.arange(128), LADDER)).mean(axis=0)) ** 2
    curve = SCALE * np.cos(np.outer(np.arange(128), LADDER)).sum(axis=1)
    noisy = curve.var() + SCALE**2 * (4 * 127 / 128 + np.sum(1 - kernel_power) / 2)
    assert curve.var() == pytest.approx(0.131046, abs=1e-5)
    assert noisy == pytest.approx(0.760270, abs=1e-4)
    assert head_use.variance == pytest.approx(noisy, rel=0.03)
    assert head_use.share == pytest.approx(0.172367, abs=0.015)
    np.testing.assert_allclose(head_use.mean_part, 0.5, atol=0.03)


def test_content_that_matches_itself_is_in_the_measured_curve_alone() -> None:
    content = 2 * noise(5)
    head_use = measured(content, content)
    assert head_use.measured[0] == pytest.approx(16 * SCALE, abs=0.2)
    assert np.abs(head_use.predicted).max() < 0.1
    assert head_use.r2 is not None
    assert head_use.r2 < 0.1


@pytest.mark.parametrize("degrees", [0, 100])
def test_an_offset_pair_falls_with_its_angle(degrees: float) -> None:
    slow = np.array([0, 0, 0, 2.0])
    head_use = measured(same(slow * np.exp(1j * np.radians(degrees))), same(slow))
    assert head_use.offset is not None
    assert head_use.offset.pair == 3
    assert head_use.offset.angle == pytest.approx(np.radians(degrees))
    step = float(head_use.predicted[1] - head_use.predicted[0])
    assert head_use.offset.slope == pytest.approx(step, rel=1e-3, abs=2e-6)
    assert degrees or head_use.moved < 0.05


def test_fewer_than_twelve_contexts_give_no_answer() -> None:
    head_use = measured(same(2, 11), same(2, 11))
    assert (head_use.p, head_use.answer, head_use.peak) == (None, "cannot tell", None)
    single_context = measured(same(2, 1), same(2, 1))
    assert (single_context.share, single_context.interval, single_context.spread) == (
        None,
        None,
        None,
    )


def test_zeros_are_undefined_and_no_error() -> None:
    head_use = measured(same(0), same(0))
    assert (head_use.share, head_use.r, head_use.r2) == (None, None, None)
    assert np.isnan(head_use.usage).all()
    assert (head_use.moved, head_use.range, head_use.answer) == (0, 0, "no")


def test_false_curves_are_rare() -> None:
    """Topics per context, with neighbours alike: what is smooth along keys is no curve."""
    rng = np.random.default_rng(0)
    ps = []
    for seed in range(24):
        pair = noise(100 + seed, 12), noise(200 + seed, 12)
        topic = rng.normal(size=(2, 12, 1, 4)) @ np.eye(4)
        for side in pair:
            for place in range(1, 256):
                side[:, place] = 0.8 * side[:, place - 1] + 0.6 * side[:, place]
        head_use = measured(pair[0] + topic[0] * rng.choice([-1, 1], (12, 1, 1)), pair[1])
        ps.append(head_use.p)
        assert head_use.answer != "yes"
    assert np.mean(np.array(ps) <= 0.05) < 0.2


def test_a_layer_ignores_position_only_where_all_its_heads_do() -> None:
    turning = LayerRotation(LADDER, "halves", "all", 0.0, np.arange(128), SCALE)
    quiet = 0.05 * noise(7), noise(8)
    flat = [measured(*quiet)]
    assert flat[0].variance < 0.01
    assert judge_position(turning, flat) == ("cannot tell", "flat")
    moving = [*flat, measured(same(2), same(2))]
    assert judge_position(turning, moving) == ("no", "moves")
    slow = np.array([0, 0, 0, 2.0])
    unmoved_heads = [measured(same(slow) * noise(9), same(slow) * noise(10))]
    assert unmoved_heads[0].variance > 0.01
    assert judge_position(turning, unmoved_heads) == ("yes", "still")


# The same numbers, one query and one distance at a time.


def taken(model: Any, contexts: Any) -> list[dict[str, Any]]:
    """Take queries, keys and attention of every layer as the library computes them."""
    import sys

    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    calls: list[dict[str, Any]] = []

    def look(
        module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any
    ) -> Any:
        eager = sys.modules[type(module).__module__].eager_attention_forward
        output, weights = eager(module, query, key, value, mask, **options)
        calls.append({
            "q": query.double().numpy(), "k": key.double().numpy(), "scale": options["scaling"],
            "weights": weights.double().numpy(),
        })  # fmt: skip
        return output, weights

    AttentionInterface.register("slow", look)
    AttentionMaskInterface.register("slow", eager_mask)
    model.set_attn_implementation("slow")
    try:
        with torch.no_grad():
            model(input_ids=torch.as_tensor(contexts))
    finally:
        model.set_attn_implementation("eager")
    return calls


def softmax(row: Any) -> Any:
    row = np.exp(row - row.max())
    return row / row.sum()


def slowly(part: dict[str, Any], layer: LayerUse, head: int) -> dict[str, Any]:
    """Compute the numbers of one head by loops over contexts, queries and distances."""
    window, both_sides = layer.window, layer.both_sides
    distances = list(range(-window + 1 if both_sides else 0, window))
    group = part["q"].shape[1] // part["k"].shape[1]
    q, k = part["q"][:, head], part["k"][:, head // group]
    length, width = q.shape[1:]
    queries = range(window, length - window if both_sides else 2 * window)
    turns = [turn for turn in layer.ladder if turn]
    place = np.arange(2 * len(turns)) + (
        width - 2 * len(turns) if layer.columns == "last" else 0
    )
    first, second = (
        (place[: len(turns)], place[len(turns) :]) if layer.pairs == "halves"
        else (place[0::2], place[1::2])
    )  # fmt: skip
    unrotated = [column for column in range(width) if column not in place]

    def logit(c: int, m: int, n: int, rotated: Any) -> float:
        """Return the logit with every pair at its unrotated place times ``rotated``."""
        qs = (q[c, m, first] + 1j * q[c, m, second]) * np.exp(-1j * np.array(turns) * m)
        ks = (k[c, n, first] + 1j * k[c, n, second]) * np.exp(-1j * np.array(turns) * n)
        return float(part["scale"] * (
            np.sum(qs * np.conj(ks) * rotated).real + q[c, m, unrotated] @ k[c, n, unrotated]
        ))  # fmt: skip

    mean_turn = np.mean([np.exp(1j * np.array(turns) * d) for d in distances], axis=0)
    curves, within_variances, moved_shares, plain = [], [], [], []
    for c in range(len(q)):
        rows = np.array([
            [logit(c, m, m - d, np.exp(1j * np.array(turns) * d)) for d in distances]
            for m in queries
        ])  # fmt: skip
        hidden = np.array(
            [[logit(c, m, m - d, mean_turn) for d in distances] for m in queries]
        )
        plain.append(part["scale"] * np.array([[q[c, m] @ k[c, m - d] for d in distances]
                                               for m in queries]))  # fmt: skip
        curves.append(rows.mean(axis=0))
        within_variances.append(rows.var(axis=1).mean())
        moved_shares += [
            np.abs(softmax(row) - softmax(state)).sum() / 2
            for row, state in zip(rows, hidden, strict=True)
        ]
        np.testing.assert_allclose(rows, plain[-1], atol=1e-5)
        # The model's own attention has the same differences, whatever else its softmax sees.
        log_attention = np.log(np.array([[part["weights"][c, head, m, m - d] for d in distances]
                               for m in queries]))  # fmt: skip
        np.testing.assert_allclose(
            log_attention - log_attention.mean(axis=1, keepdims=True),
            rows - rows.mean(axis=1, keepdims=True),
            atol=1e-4,
        )  # fmt: skip
    covariances = [
        np.mean((curve - curve.mean()) * (state - state.mean()))
        for a, curve in enumerate(curves) for b, state in enumerate(curves) if a != b
    ]  # fmt: skip
    return {
        "measured": np.mean(curves, axis=0), "variance": np.mean(within_variances),
        "share": np.mean(covariances) / np.mean(within_variances), "moved": np.mean(moved_shares),
    }  # fmt: skip


@pytest.mark.parametrize(
    "family", ["Llama", "Gemma3Text", "Glm", "DeepseekV3", "ModernBert"]
)
def test_sums_are_those_of_slow_loops(family: str) -> None:
    model = built(family, **FAMILIES[family][0]).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Random weights hardly attend: larger ones do.
            if any(part in name for part in ("q_proj", "k_proj", "q_b", "kv_b", "Wqkv")):
                weight *= 12
    contexts = tokens(3, 32)
    use = rotary_use(model, [contexts[:2], contexts[2:]])
    calls = taken(model, contexts)
    for place, layer in enumerate(use.layers):
        head = use.heads[place * 4 + 3]
        assert (head.layer, head.head) == (layer.layer, 3)
        slow = slowly(calls[place], layer, 3)
        np.testing.assert_allclose(head.measured, slow["measured"], atol=1e-6)
        for key in ("variance", "share", "moved"):
            assert getattr(head, key) == pytest.approx(slow[key], abs=1e-6, rel=1e-6)


def test_windows_are_those_that_the_model_sees() -> None:
    windows = {
        family: [layer.window for layer in rotary_use(built(family, **FAMILIES[family][0]),
                                                      [tokens(2, 64)]).layers]
        for family in ("Llama", "Gemma3Text", "ModernBert")
    }  # fmt: skip
    assert windows["Llama"] == [32, 32]
    assert windows["Gemma3Text"] == [16, 32]
    # 64 tokens to both sides, or as far as a local layer sees: half of 16 and oneself.
    assert windows["ModernBert"] == [21, 9]


def held(name: str) -> float:
    """MiB that this process holds (``VmRSS``) or held at most (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux counts it")
def test_many_heads_take_no_more_memory_at_a_time_than_few() -> None:
    turning = LayerRotation(
        0.5 ** np.arange(4.0), "halves", "all", 0.0, np.arange(512), 1.0
    )
    query, key = torch.randn(2, 1, 64, 1024, 8)
    layer = ObservedLayer(turning, 512, 1024)
    sum_window(
        AttentionInputs(query[:, :4], key[:, :4], None, 1.0, None), layer
    )  # loads libraries
    Path("/proc/self/clear_refs").write_text("5")
    memory_before = held("VmRSS")
    sums = sum_window(AttentionInputs(query, key, None, 1.0, None), layer)
    # Logits of all heads would be 64 MiB, of which there are several copies.
    assert held("VmHWM") - memory_before < 64
    assert sums.curves.shape == (1, 64, 512)


def test_a_capped_model_says_how_many_logits_are_near_the_cap() -> None:
    model = built("Gemma2", **FAMILIES["Gemma2"][0], attn_logit_softcapping=1e-3)
    capped = [head.capped for head in rotary_use(model, [tokens()]).heads]
    assert all(share is not None and share > 0.5 for share in capped)
    assert all(
        head.capped is None for head in rotary_use(built("Llama"), [tokens()]).heads
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_passes_its_own_shift_check(dtype: torch.dtype) -> None:
    model = built("Llama")
    exact = rotary_use(model, [tokens()])
    ladder = model.rotary_emb.inv_freq.clone()
    model.to(dtype)
    rough = rotary_use(model, [tokens()]).layers[0].ladder
    assert (
        np.abs(rough / exact.layers[0].ladder - 1).max() > 1e-4
    )  # rounded with the weights
    # As models are loaded, frequencies stay in float32, and are read so, whatever cosines are in.
    model.rotary_emb.inv_freq = ladder
    rounded = rotary_use(model, [tokens()])
    np.testing.assert_allclose(
        rounded.layers[0].ladder, exact.layers[0].ladder, rtol=1e-6
    )
    assert 1e-5 < (rounded.layers[0].shift_check or 0) < 0.02
    for exact_head, rounded_head in zip(exact.heads, rounded.heads, strict=True):
        np.testing.assert_allclose(exact_head.usage, rounded_head.usage, rtol=0.02)


# What cannot be measured.


def test_a_layer_with_nan_is_left_out_and_the_others_are_measured() -> None:
    model = built("Llama", num_hidden_layers=3)
    model.layers[1].self_attn.q_proj.weight.data[0, 0] = float("nan")
    use = rotary_use(model, [tokens()])
    assert [layer.reason for layer in use.layers[1:]] == ["not_finite"] * 2
    assert {head.layer for head in use.heads} == {0}
    assert np.isnan(use.rotary_usage[1:]).all()
    assert np.isfinite(use.rotary_usage[0]).all()
    assert use.layers[1].ignores is None


def test_a_rotation_that_no_ladder_explains_is_not_measured() -> None:
    model = built("Llama")
    query_projection = model.layers[1].self_attn.q_proj
    # What depends on absolute position is no rotation.
    query_projection.register_forward_hook(
        lambda _, __, output: output * (1 + model.rotary_emb.seen[:, :, None])
    )
    model.rotary_emb.register_forward_hook(
        lambda module, inputs, options, _: setattr(
            module, "seen", (options.get("position_ids", inputs[-1]) / 10).float()
        ),
        with_kwargs=True,
    )
    use = rotary_use(model, [tokens()])
    assert use.layers[1].reason == "no_pairing"
    assert use.layers[0].shift_check is not None
    assert use.layers[0].shift_check < 1e-5
    assert {head.layer for head in use.heads} == {0}
    assert (use.layers[1].shift_check or 0) > 0.1


@pytest.mark.parametrize(
    ("family", "length", "text"),
    [
        ("Llama", 31, "contexts of 31 tokens are too short"),
        ("Llama", 129, "longer than the 128 positions"),
        ("Falcon", LENGTH, "do not use the attention interface"),
        ("RoFormer", LENGTH, r"by their place in a text\.$"),
        ("GPT2", LENGTH, r"by their place in a text\.$"),
        ("DINOv3ViT", LENGTH, "Along rows and columns of images they are not measured"),
    ],
)
def test_an_unmeasurable_model_is_one_clear_sentence(
    family: str, length: int, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        rotary_use(built(family), [tokens(2, length)])


def test_contexts_that_fill_the_positions_leave_room_for_the_shift_check() -> None:
    use = rotary_use(built("Llama"), [tokens(2, 128)])
    assert all((layer.shift_check or 0) < 1e-5 for layer in use.layers)
    assert (use.length, use.layers[0].window) == (128, 64)


# Contexts.


def language_model() -> Any:
    torch.manual_seed(0)
    model_class: Any = transformers.LlamaForCausalLM
    model = model_class(transformers.LlamaConfig(**COMMON)).eval()
    with torch.no_grad():
        model.lm_head.weight *= 30  # so that the next token depends on those before
    return model


def test_sampled_tokens_are_drawn_from_what_the_model_predicts() -> None:
    model = language_model()
    sampled = np.concatenate(list(sampled_tokens(model, 24, 5, seed=3, batch_size=2)))
    resampled = np.concatenate(list(sampled_tokens(model, 24, 5, seed=3, batch_size=5)))
    np.testing.assert_array_equal(sampled, resampled)
    assert (sampled[:, 0] == 1).all()
    uniforms = np.random.default_rng(3).random((5, 24))
    with torch.no_grad():
        predicted = (
            model(input_ids=torch.as_tensor(sampled)).logits.double().softmax(-1).numpy()
        )
    sums = predicted[:, :-1].cumsum(axis=-1)
    token = sampled[:, 1:, None]
    upper = np.take_along_axis(sums, token, axis=-1)[..., 0]
    lower = upper - np.take_along_axis(predicted[:, :-1], token, axis=-1)[..., 0]
    assert (lower - 1e-5 <= uniforms[:, 1:]).all()
    assert (uniforms[:, 1:] <= upper + 1e-5).all()
    assert len(np.unique(sampled)) > 10


def test_a_model_without_a_head_is_not_sampled() -> None:
    with pytest.raises(UsageError, match="does not predict the next token"):
        next(sampled_tokens(built("Llama"), 8, 2))


def test_token_ids_are_read_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", tokens().astype(np.int32))
    np.testing.assert_array_equal(
        file_tokens(tmp_path / "ids.npy", count=3, length=8), tokens()[:3, :8]
    )
    np.save(tmp_path / "floats.npy", np.zeros((2, 3)))
    with pytest.raises(UsageError, match="whole numbers"):
        file_tokens(tmp_path / "floats.npy")
    with pytest.raises(UsageError, match="fewer than 41"):
        file_tokens(tmp_path / "ids.npy", length=41)
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(UnknownReference, match="cannot be read"):
        file_tokens(tmp_path / "text.npy")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    language_model().save_pretrained(folder)
    return folder


def test_a_run_samples_contexts_and_follows_the_schema(
    saved: Path, tmp_path: Path
) -> None:
    analysis = pp.analyze_model(
        str(saved),
        pp.Contexts(count=12, length=32),
        only=("attention_budget", "rotary_use"),
        device="cpu",
    )
    folder = analysis.save(tmp_path / "bundle", every=True)
    document = read_bundle(folder)
    assert problems(schema("forward"), document) == []
    block = document["rotary_use"]
    assert (block["source"], block["contexts"], block["length"]) == ("sampled", 12, 32)
    assert [len(layer["ladder"]) for layer in block["layers"]] == [4, 4]
    answer = next(
        candidate
        for candidate in document["verdict"]["answers"]
        if candidate["question"] == "distance"
    )
    assert "12 contexts of 32 tokens" in answer["sentence"]
    with np.load(folder / "arrays.npz") as arrays:
        assert arrays["rotary_measured"].shape == (2, 4, 16)
        assert arrays["rotary_c"].shape == (2, 4, 4, 2)
    assert {"rotary_curves.svg", "rotary_usage.svg"} <= {
        path.name for path in (folder / "figures").iterdir()
    }


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        ("few", 0, "5 contexts of 128 tokens are too few to test a head: take 12"),
        ("nan", 0, "Not measured: rotary use of layer 1 (NaN or infinity)"),
        ("config", 4, "no file named model.safetensors"),
        ("shards", 4, "No such file or directory"),
        ("quantised", 4, "requires"),
    ],
)
def test_one_failing_measurement_leaves_the_others(
    fault: str, status: int, text: str, tmp_path: Path, cli: Cli
) -> None:
    damaged(tmp_path / "model", fault)
    completed = cli(
        "forward", str(tmp_path / "model"), "--only", "attention_budget,rotary_use", "--quiet",
        "--json", "--contexts", "5", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert completed.code == status
    assert text in " ".join((completed.err if status else completed.out).split())
    assert len(completed.err.splitlines()) == bool(status)


def damaged(folder: Path, fault: str) -> None:
    """Save a model of which something cannot be measured, or read."""
    model = language_model()
    if fault == "nan":
        model.model.layers[1].self_attn.q_proj.weight.data[0, 0] = float("nan")
    model.save_pretrained(
        folder, **({"max_shard_size": "20KB"} if fault == "shards" else {})
    )
    weights = sorted(folder.glob("*.safetensors"))
    if fault in ("config", "shards"):
        weights[-1].unlink()
    if fault == "quantised":
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
        }
        (folder / "config.json").write_text(json.dumps(config))


def test_all_measurements_of_a_run_take_the_same_random_tokens(saved: Path) -> None:
    contexts = pp.Contexts(count=4, length=32, tokens="random")
    names = ("attention_budget", "rotary_use", "shift")
    analysis = pp.analyze_model(str(saved), contexts, only=names, nulls=0, device="cpu")
    budget: Any = analysis.results["attention_budget"]
    use: Any = analysis.results["rotary_use"]
    for head, other in zip(budget.heads, use.heads, strict=True):
        assert head.distance == pytest.approx(other.share, abs=1e-6)
    assert analysis.to_dict()["rotary_use"]["source"] == "random"
    # A loss of random tokens says nothing.
    assert analysis.to_dict()["shift"]["loss"] is None


def test_all_measurements_run_on_the_token_file(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    np.save(path, tokens())
    analysis = pp.analyze_model(
        str(saved), pp.Contexts(tokens=path), only=("rotary_use", "shift"), device="cpu"
    )
    expected_use = rotary_use(pp.load_model(str(saved), device="cpu"), [tokens()])
    use: Any = analysis.results["rotary_use"]
    np.testing.assert_allclose(
        use.rotary_measured, expected_use.rotary_measured, atol=1e-6
    )
    document = analysis.to_dict()
    assert document["contexts"]["random"] is False
    assert document["contexts"]["seed"] is None
    assert document["shift"]["loss"] is not None
    assert json.dumps(document)
    with pytest.raises(UsageError, match="`text` and `tokens`"):
        pp.analyze_model(str(saved), pp.Contexts(text=path, tokens=path))
    np.save(path, tokens() + VOCABULARY)
    with pytest.raises(UsageError, match="token ids run from"):
        pp.analyze_model(str(saved), pp.Contexts(tokens=path), device="cpu")
