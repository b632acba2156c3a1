"""Models as they run against their files: each fault is named, with layers and first distance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
import torch
import transformers
from made_cli import Cli, cli
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

import posprobe as pp
from posprobe.errors import UsageError
from posprobe.studies import Check

__all__ = ["cli"]

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
COMMON: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}


def build(family: str, **settings: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(**{**COMMON, **settings})
    torch.manual_seed(0)
    return getattr(transformers, f"{family}Model")._from_config(config).eval()


def check_changed(
    folder: Path, model: Any, change: Callable[[Any], None] = lambda _: None
) -> Check:
    """Write a model to a file, change it in memory, and hold it against the file."""
    model.save_pretrained(folder)
    change(model)
    return pp.check(folder, model)


def check_rebuilt(folder: Path, family: str, file: Any, live: Any) -> Check:
    """Write a model with one configuration, and run its weights with another."""
    model = build(family, **file)
    model.save_pretrained(folder)
    changed = build(family, **live)
    changed.load_state_dict(model.state_dict(), strict=False)
    return pp.check(folder, changed)


def cause_of(result: Check) -> tuple[str, list[int], float | None]:
    """Return the first cause, its layers, and the first distance at which it matters."""
    cause = result.causes[0]
    distance = cause.first_distance
    layers = list(cause.more.get("layers", ()))
    return cause.cause, layers, None if distance is None else float(np.ceil(distance))


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("rope", "live", "expected"),
    [
        ({**PLAIN, "rope_theta": 5e5}, PLAIN, "base"),
        (LLAMA3, PLAIN, "parts_lost"),
        (PLAIN, LLAMA3, "parts_added"),
        (YARN, PLAIN, "parts_lost"),
        (LINEAR, PLAIN, "positions_scaled"),
        ({**LLAMA3, "rope_theta": 5e5}, PLAIN, "base"),
    ],
    ids=["base", "llama3", "llama3 added", "yarn", "linear", "parameters ignored"],
)
def test_ladders_other_than_stated_are_named(
    tmp_path: Path, rope: Any, live: Any, expected: str
) -> None:
    result = check_rebuilt(
        tmp_path, "Llama", {"rope_parameters": rope}, {"rope_parameters": live}
    )
    assert result.exit_code == 6
    assert expected in {cause.cause for cause in result.causes}
    _, layers, distance = cause_of(result)
    # Within so many positions no pair of either ladder is 0.1 rad off.
    assert layers == ALL
    frequencies_a, frequencies_b = (
        pp.encodings.rotary_frequencies(16, scaling=parameters, max_positions=512)[0]
        for parameters in (rope, live)
    )
    assert distance == np.ceil(0.1 / np.abs(frequencies_a - frequencies_b).max())


@pytest.mark.parametrize("rope", [LLAMA3, YARN, LINEAR], ids=["llama3", "yarn", "linear"])
def test_scaling_by_the_ratios_of_a_file_applied_again_is_named(
    tmp_path: Path, rope: dict[str, Any]
) -> None:
    def scale_again(model: Any) -> None:
        buffer = model.rotary_emb.inv_freq
        unscaled = 1e4 ** (-torch.arange(0, 16, 2) / 16)
        model.rotary_emb.inv_freq = buffer**2 / unscaled

    model = build("Llama", rope_parameters=rope)
    frequencies = model.rotary_emb.inv_freq.double().numpy()
    twice = frequencies**2 * 1e4 ** (np.arange(0, 16, 2) / 16)
    result = check_changed(tmp_path, model, scale_again)
    distance = np.ceil(0.1 / np.abs(frequencies - twice).max())
    assert cause_of(result) == ("scaled_twice", ALL, distance)


def test_llama3_rule_applied_to_scaled_frequencies_is_named(tmp_path: Path) -> None:
    def scale_again(model: Any) -> None:
        frequencies = model.rotary_emb.inv_freq
        turns = 64 * frequencies / (2 * np.pi)
        kept = ((turns - 1) / 3).clamp(0, 1)
        model.rotary_emb.inv_freq = frequencies * ((1 - kept) / 8 + kept)

    model = build("Llama", rope_parameters=LLAMA3)
    result = check_changed(tmp_path, model, scale_again)
    assert cause_of(result)[:2] == ("scaled_twice", ALL)


def scale_by_length(model: Any, growth: Callable[[float], float]) -> None:
    """Let the ladder of a model depend on the longest input so far, as transformers does."""
    lengths = [512.0]

    def scale(module: Any, inputs: Any, options: Any) -> None:
        ids = options["position_ids"] if "position_ids" in options else inputs[1]
        lengths.append(float(ids.max() + 1))
        base = 1e4 * growth(max(lengths) / 512) ** (16 / 14)
        module.inv_freq = (base ** (-torch.arange(0, 16, 2) / 16)).float()

    model.rotary_emb.register_forward_pre_hook(scale, with_kwargs=True)


@pytest.mark.parametrize(
    ("growth", "cause"),
    [
        (lambda _: 1.0, "ntk_lost"),
        (lambda ratio: 16 * ratio - 15, "ntk_factor"),
        (lambda ratio: (4 * ratio - 3) ** 2, "scaled_twice"),
    ],
    ids=["lost", "other factor", "twice"],
)
def test_ntk_other_than_stated_is_named(
    tmp_path: Path, growth: Callable[[float], float], cause: str
) -> None:
    build("Llama", rope_parameters=DYNAMIC).save_pretrained(tmp_path)
    model = build("Llama")
    scale_by_length(model, growth)
    result = pp.check(tmp_path, model)
    found, layers, distance = cause_of(result)
    assert (found, layers) == (cause, ALL)
    assert distance is not None
    assert distance >= 1
    if cause == "ntk_factor":
        assert (result.causes[0].a, result.causes[0].b) == (4, 16)
    if cause == "ntk_lost":
        assert "longer than 512" in str(result)


def test_ntk_as_stated_raises_no_alarm(tmp_path: Path) -> None:
    build("Llama", rope_parameters=DYNAMIC).save_pretrained(tmp_path)
    assert pp.check(tmp_path, build("Llama", rope_parameters=DYNAMIC)).alike is True
    model = build("Llama")
    scale_by_length(model, lambda ratio: 4 * ratio - 3)
    assert pp.check(tmp_path, model).exit_code == 0


def test_inverted_list_of_rotating_layers_is_named(tmp_path: Path) -> None:
    def invert(model: Any) -> None:
        for layer in model.layers:
            layer.self_attn.use_rope = not layer.self_attn.use_rope

    model = build("SmolLM3", no_rope_layer_interval=4)
    result = check_changed(tmp_path, model, invert)
    assert cause_of(result) == ("rotating_layers", ALL, 1)
    assert "layers 0–3" in str(result)


def test_lost_attention_factor_is_named(tmp_path: Path) -> None:
    def lose(model: Any) -> None:
        model.rotary_emb.attention_scaling = 1.0

    result = check_changed(tmp_path, build("Llama", rope_parameters=YARN), lose)
    assert cause_of(result) == ("factor", ALL, 0)
    assert "layers 0–3: 1.208 in A, 1 in B" in str(result)
    assert "matters from distance 0, the first token" in str(result)
    assert result.causes[0].a == pytest.approx(0.1 * np.log(8) + 1)
    assert result.causes[0].b == pytest.approx(1.0)


def test_whole_rotation_in_place_of_a_part_is_named(tmp_path: Path) -> None:
    file, live = {"partial_rotary_factor": 0.5}, {"partial_rotary_factor": 1.0}
    rope = [{**PLAIN, **settings} for settings in (file, live)]
    result = check_rebuilt(
        tmp_path, "StableLm", {"rope_parameters": rope[0]}, {"rope_parameters": rope[1]}
    )
    assert cause_of(result)[:2] == ("columns", ALL)
    assert (result.causes[0].a, result.causes[0].b) == (8, 16)


def test_swapped_pairs_are_named(tmp_path: Path, monkeypatch: Any) -> None:
    apply = modeling_llama.apply_rotary_pos_emb
    halves = [*range(0, 16, 2), *range(1, 16, 2)]
    back = np.argsort(halves)

    def rotate_neighbours(q: Any, k: Any, cos: Any, sin: Any, *extra: Any) -> Any:
        rotated = apply(q[..., halves], k[..., halves], cos, sin, *extra)
        return tuple(tensor[..., back] for tensor in rotated)

    model = build("Llama")
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", rotate_neighbours)
    result = check_changed(tmp_path, model)
    assert cause_of(result) == ("pairs_wrong", ALL, 1)


def test_keys_permuted_by_the_number_of_query_heads_are_named(tmp_path: Path) -> None:
    def permute(model: Any) -> None:
        weight = model.layers[1].self_attn.k_proj.weight
        rows = torch.arange(32).view(4, 2, 4).transpose(1, 2).reshape(-1)
        weight.data = weight.data[rows]

    result = check_changed(tmp_path, build("Llama"), permute)
    cause, layers, _ = cause_of(result)
    assert (cause, layers) == ("half_permuted", [1])
    assert result.causes[0].more["projection"] == "keys"


def test_exchanged_ladders_are_named(tmp_path: Path) -> None:
    def exchange(model: Any) -> None:
        rotary = model.rotary_emb
        local, full = (
            rotary.sliding_attention_inv_freq.clone(),
            rotary.full_attention_inv_freq.clone(),
        )
        rotary.sliding_attention_inv_freq, rotary.full_attention_inv_freq = full, local

    kinds = ["sliding_attention", "full_attention"] * 2
    model = build("Gemma3Text", head_dim=16, sliding_window=16, layer_types=kinds)
    result = check_changed(tmp_path, model, exchange)
    causes = {(c.cause, tuple(c.more["layers"])) for c in result.causes}
    assert causes == {("ladders_exchanged", (0, 2)), ("ladders_exchanged", (1, 3))}


def test_flattened_sections_are_named(tmp_path: Path) -> None:
    def flatten(model: Any) -> None:
        def use_time(_: Any, inputs: Any, options: Any) -> Any:
            ids = options.pop("position_ids") if "position_ids" in options else inputs[1]
            return (inputs[0], ids[:1].expand_as(ids)), options

        model.rotary_emb.register_forward_pre_hook(use_time, with_kwargs=True)

    rope = {**PLAIN, "mrope_section": [2, 3, 3]}
    model = build("Qwen2VLText", rope_parameters=rope)
    result = check_changed(tmp_path, model, flatten)
    assert cause_of(result) == ("sections", ALL, 1)
    assert result.causes[0].b == [8, 0, 0]


def test_window_that_became_full_is_named(tmp_path: Path) -> None:
    def widen(model: Any) -> None:
        model.config.sliding_window = None

    result = check_changed(tmp_path, build("Mistral", sliding_window=16), widen)
    assert cause_of(result) == ("window_lost", ALL, 16)


def test_dropped_sinks_are_named(tmp_path: Path, monkeypatch: Any) -> None:
    settings = {"head_dim": 16, "num_local_experts": 4, "sliding_window": 16}
    model = build("GptOss", **settings)
    monkeypatch.setattr(
        modeling_gpt_oss,
        "eager_attention_forward",
        modeling_llama.eager_attention_forward,
    )
    assert cause_of(check_changed(tmp_path, model)) == ("sinks_dropped", ALL, 0)


def build_bert() -> Any:
    config: Any = transformers.BertConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        vocab_size=99, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    family: Any = transformers.BertModel
    return family._from_config(config).eval()


def test_shifted_rows_are_named(tmp_path: Path) -> None:
    def shift(model: Any) -> None:
        table = model.embeddings.position_embeddings
        table.register_forward_pre_hook(lambda _, inputs: ((inputs[0] + 2) % 64,))

    cause = check_changed(tmp_path, build_bert(), shift).causes[0]
    assert (cause.cause, cause.value, cause.more["position"]) == ("rows_cut", 2, 0)


def test_cut_table_is_named(tmp_path: Path) -> None:
    def cut(model: Any) -> None:
        table = model.embeddings.position_embeddings
        table.weight = torch.nn.Parameter(table.weight[:40].clone())
        model.config.max_position_embeddings = 40

    result = check_changed(tmp_path, build_bert(), cut)
    assert (result.causes[0].cause, result.causes[0].more["position"]) == (
        "truncated",
        40,
    )
    assert "wrong from position 40" in str(result)


def build_vit(side: int) -> Any:
    config = transformers.ViTConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        image_size=8 * side, patch_size=8,
    )  # fmt: skip
    torch.manual_seed(0)
    family: Any = transformers.ViTModel
    model = family._from_config(config).eval()
    table = model.embeddings.position_embeddings
    table.data = torch.randn(table.shape).cumsum(dim=1)
    return model


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("has_prefix", [True, False])
def test_table_resampled_along_the_raster_is_named(
    tmp_path: Path, mode: str, has_prefix: bool
) -> None:
    def resample(model: Any) -> None:
        table = model.embeddings.position_embeddings.detach()
        prefix = table[:, :0] if has_prefix else table[:, :1]
        rows = table[:, prefix.shape[1] :]
        size = 512 - prefix.shape[1]
        # Along one axis the two-dimensional kernels are those of a line.
        line = torch.nn.functional.interpolate(
            rows.permute(0, 2, 1)[..., None], size=(size, 1), mode=mode
        )
        values = torch.cat([prefix, line[..., 0].permute(0, 2, 1)], dim=1)
        model.embeddings.position_embeddings = torch.nn.Parameter(values)

    result = check_changed(tmp_path, build_vit(24), resample)
    cause = result.causes[0]
    assert (cause.cause, cause.a, cause.b) == ("resized", [576], [511])
    assert cause.more["method"] == {"bilinear": "linear"}.get(mode, mode)
    assert cause.more["position"] <= 2
    assert "along the raster" in str(result)


def test_resampled_grid_is_named(tmp_path: Path) -> None:
    model = build_vit(8)

    def resample(model: Any) -> None:
        table = model.embeddings.position_embeddings
        grid = table[:, 1:].reshape(1, 8, 8, 32).permute(0, 3, 1, 2)
        grid = torch.nn.functional.interpolate(grid, size=(6, 6), mode="bicubic")
        rows = grid.permute(0, 2, 3, 1).reshape(1, 36, 32)
        values = torch.cat([table[:, :1], rows], dim=1).detach()
        model.embeddings.position_embeddings = torch.nn.Parameter(values)

    result = check_changed(tmp_path, model, resample)
    cause = result.causes[0]
    assert (cause.cause, cause.a, cause.b) == ("resized", [8, 8], [6, 6])
    assert cause.more["method"] == "bicubic"


FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {}, "Mistral": {"sliding_window": 16}, "Qwen3": {"head_dim": 16},
    "GPTNeoX": {"rotary_pct": 0.5}, "Cohere": {}, "Glm": {"head_dim": 16},
    "SmolLM3": {"no_rope_layer_interval": 4}, "Phi3": {},
    "ModernBert": {"local_attention": 16, "cls_token_id": 1, "sep_token_id": 2},
    "Gemma3Text": {"head_dim": 16, "sliding_window": 16},
    "Qwen2VLText": {"rope_parameters": {**PLAIN, "mrope_section": [2, 3, 3]}},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_unchanged_models_raise_no_alarm(tmp_path: Path, family: str) -> None:
    result = check_changed(tmp_path, build(family, **FAMILIES[family]))
    assert result.alike is True, str(result)


def test_run_option_loads_the_file_and_holds_it_against_itself(
    tmp_path: Path, cli: Cli
) -> None:
    build("Llama").save_pretrained(tmp_path)
    run = cli("check", str(tmp_path), "--run")
    assert run.code == 0, run.err
    first_sentence = run.out.partition("\n")[0]
    assert first_sentence.endswith(
        "as transformers loads it, against what its own file states."
    )
    assert "rotary ladder" in run.out


def test_run_option_holds_a_second_copy_against_the_file(
    tmp_path: Path, cli: Cli
) -> None:
    for name, base in (("a", 1e4), ("b", 5e5)):
        rope = {"rope_type": "default", "rope_theta": base}
        build("Llama", rope_parameters=rope).save_pretrained(tmp_path / name)
    run = cli("check", str(tmp_path / "a"), str(tmp_path / "b"), "--run")
    assert run.code == 6, run.err
    assert f"against what the file of {tmp_path / 'a'} states" in run.out
    assert "base 10,000 in A, 500,000 in B" in run.out


#: Sound models with a ladder, factor, window or sinks of each kind.
HALF_PRECISION: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("Llama", {}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "yarn": ("Llama", {"rope_parameters": YARN}),
    "dynamic": ("Llama", {"rope_parameters": DYNAMIC}),
    "biases": ("Qwen2", {}),
    "norms": ("Qwen3", {"head_dim": 16}),
    "window": ("Mistral", {"sliding_window": 16}),
    "two ladders": ("Gemma3Text", {"head_dim": 16, "sliding_window": 16}),
    "sinks": (
        "GptOss",
        {"head_dim": 16, "num_local_experts": 4, "sliding_window": 16},
    ),
    "partial": ("GPTNeoX", {"rotary_pct": 0.5}),
    "layers without rotation": ("SmolLM3", {"no_rope_layer_interval": 4}),
    "neighbours": ("Cohere", {}),
    "encoder": (
        "ModernBert",
        {"local_attention": 16, "cls_token_id": 1, "sep_token_id": 2},
    ),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", HALF_PRECISION)
def test_sound_models_in_half_precision_are_alike(
    tmp_path: Path, kind: str, dtype: torch.dtype
) -> None:
    family, settings = HALF_PRECISION[kind]
    model = build(family, **settings)
    model.save_pretrained(tmp_path)
    implementations = ["eager"] if kind == "sinks" else ["eager", "sdpa"]
    for implementation in implementations:
        loaded = type(model).from_pretrained(
            tmp_path, dtype=dtype, attn_implementation=implementation
        )
        result = pp.check(tmp_path, loaded)
        assert result.alike is True, str(result)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("base", [1e3, 5e5, 1e6])
def test_other_base_in_half_precision_is_named_alone(
    tmp_path: Path, dtype: torch.dtype, base: float
) -> None:
    """Slow pairs turn by less than half precision shows, and are not taken to stand still."""
    build("Llama", rope_parameters=PLAIN).save_pretrained(tmp_path)
    config = transformers.LlamaConfig.from_pretrained(tmp_path)
    config.rope_parameters = {"rope_type": "default", "rope_theta": base}
    family: Any = transformers.LlamaModel
    model = family.from_pretrained(tmp_path, config=config, dtype=dtype)
    (cause,) = pp.check(tmp_path, model).causes
    assert (cause.cause, round(cause.b)) == ("base", base)


def test_wrapped_models_are_checked_as_what_they_wrap(tmp_path: Path) -> None:
    model = build("Llama")
    model.save_pretrained(tmp_path)
    wrapped = torch.nn.DataParallel(model)
    assert pp.check(tmp_path, wrapped).alike is True
    assert pp.positions_of(wrapped, [[3, 4, 5]]).ids.shape == (4, 1, 3)
    tokens = np.random.default_rng(0).integers(3, 128, (4, 48))
    budgets = [pp.attention_budget(x, tokens) for x in (model, wrapped)]
    assert budgets[0].distance == budgets[1].distance


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 2), transformers.LlamaModel])
def test_what_is_no_model_is_refused(tmp_path: Path, model: Any) -> None:
    build("Llama").save_pretrained(tmp_path)
    for run in (
        lambda: pp.check(tmp_path, model),
        lambda: pp.attention_budget(model, np.ones((4, 48), dtype=int)),
        lambda: pp.places(model, np.ones((4, 48), dtype=int)),
        lambda: pp.positions_of(model, [[3, 4]]),
    ):
        with pytest.raises(UsageError, match="model"):
            run()


@pytest.mark.parametrize(
    ("family", "settings", "reason"),
    [
        ("Bloom", {"n_head": 4, "hidden_size": 32, "n_layer": 1}, "ALiBi, bloom"),
        ("Mamba", {"hidden_size": 32, "num_hidden_layers": 1}, "states no encoding"),
        (
            "T5",
            {"d_model": 32, "num_layers": 1, "num_heads": 2},
            "relative position (t5)",
        ),
    ],
)
def test_encodings_that_are_not_run_are_named(
    tmp_path: Path, family: str, settings: dict[str, Any], reason: str
) -> None:
    config = getattr(transformers, f"{family}Config")(vocab_size=99, **settings)
    model = getattr(transformers, f"{family}Model")(config)
    model.save_pretrained(tmp_path)
    result = pp.check(tmp_path, model)
    assert result.alike is None
    assert reason in str(result)


def test_a_model_of_sound_and_text_is_held_against_its_text(tmp_path: Path) -> None:
    sizes = {**COMMON, "head_dim": 16}
    audio = {
        key: size
        for key, size in sizes.items()
        if key.endswith(("size", "layers", "heads"))
    }
    config = transformers.GlmAsrConfig(
        audio_config={**audio, "num_key_value_heads": 4},
        text_config={**sizes, "model_type": "llama"},
    )  # fmt: skip
    torch.manual_seed(0)
    model: Any = transformers.GlmAsrForConditionalGeneration(config)
    model.eval()
    model.save_pretrained(tmp_path)
    schemes: Any = pp.load_schemes(str(tmp_path))
    rotated = {rotary.name: rotary.rotated for rotary in schemes}
    assert rotated["audio"] < rotated["text"]
    assert pp.check(tmp_path, model).alike


def test_a_token_behind_the_rows_of_a_table_is_left_out_of_both(tmp_path: Path) -> None:
    vision = {
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 64, "image_size": 56, "patch_size": 14,
    }  # fmt: skip
    text = {**COMMON, "head_dim": 16, "num_local_experts": 2, "intermediate_size_mlp": 32}
    config = transformers.Llama4Config(vision_config=vision, text_config=text)
    torch.manual_seed(0)
    model: Any = transformers.Llama4ForConditionalGeneration(config)
    model.eval()
    causes = check_changed(tmp_path, model).causes
    assert "rows" not in {cause.what for cause in causes}


def test_layers_with_compressed_keys_cannot_be_told(tmp_path: Path) -> None:
    model = build("Llama")
    model.config.layer_types = ["compressed_sparse_attention"] * 4
    model.save_pretrained(tmp_path)
    result = pp.check(tmp_path, model)
    assert result.alike is None
    assert "compressed keys" in str(result)
