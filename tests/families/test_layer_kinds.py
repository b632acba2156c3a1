"""Layers of several kinds: windows, heads of another width, layers without rotation.

What the layers of transformers do is measured: which of them an angle changes, and how far a token
reaches.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_checkpoints import model_folder
from transformers.models.gemma4.modeling_gemma4 import apply_rotary_pos_emb

from posprobe import load_schemes
from posprobe.errors import InvalidCheckpoint
from posprobe.families.configurations import ConfigSection
from posprobe.families.rotary import read_logit_scale
from posprobe.schemes import Rotary
from posprobe.studies.schemes import analyze_schemes

if TYPE_CHECKING:
    from collections.abc import Callable

library: Any = transformers
LONG_LENGTH = 64
WINDOW = 8
SIZES: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 32, "intermediate_size": 16, "num_attention_heads": 2,
    "num_key_value_heads": 2, "num_hidden_layers": 4, "max_position_embeddings": LONG_LENGTH,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager",
}  # fmt: skip
CHUNKS = {"attention_chunk_size": WINDOW, "head_dim": 16, "intermediate_size_mlp": 16}
#: By model, what its configuration states besides, as transformers calls both.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "qwen2": ("Qwen2", {"sliding_window": WINDOW}),  # and does not use it
    "qwen2 from some depth on": (
        "Qwen2",
        {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 3},
    ),
    "gemma2": ("Gemma2", {"sliding_window": WINDOW, "head_dim": 16}),
    "gemma3": ("Gemma3Text", {"sliding_window": WINDOW, "head_dim": 16}),
    "cohere2": ("Cohere2", {"sliding_window": WINDOW}),
    "exaone4": ("Exaone4", {"sliding_window": WINDOW}),
    "exaone4 without windows": (
        "Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "smollm3": ("SmolLM3", {}),
    "llama4": ("Llama4Text", {**CHUNKS, "num_local_experts": 1}),
}  # fmt: skip


def built(name: str, **overrides: Any) -> Any:
    model, settings = MODELS[name]
    torch.manual_seed(0)
    config = getattr(library, f"{model}Config")(**SIZES | settings | overrides)
    kind = getattr(library, f"{model}Model")
    return kind._from_config(config, attn_implementation="eager").eval()


def records_of(folder: Path) -> list[Rotary]:
    records = load_schemes(str(folder))
    assert all(isinstance(record, Rotary) for record in records)
    return [record for record in records if isinstance(record, Rotary)]


def stated(folder: Path, **config: Any) -> list[Rotary]:
    return records_of(Path(model_folder(folder, {}, **config)))


def rotating(model: Any) -> list[bool]:
    """Tell which layers answer to the angles that they are given."""
    states = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(1))
    place = torch.arange(6)[None]
    rotates = []
    for layer in model.layers:
        outputs = []
        for positions in (place, 3 * place):
            angles = model.rotary_emb(states, positions)
            with torch.no_grad():
                output = layer.self_attn(
                    hidden_states=states, position_embeddings=angles, attention_mask=None
                )[0]
            outputs.append(output)
        rotates.append(not torch.equal(*outputs))
    return rotates


def seen(model: Any, length: int = 40) -> int:
    """Count the positions that a query of the only layer sees on one side, itself included."""
    tokens = torch.full((1, length), 5)
    changed_tokens = tokens.clone()
    changed_tokens[0, 16] = 6  # where a chunk begins
    with torch.no_grad():
        states, changed_states = (
            model(ids).last_hidden_state[0] for ids in (tokens, changed_tokens)
        )
    changed_positions = torch.nonzero((states != changed_states).any(dim=1))
    return int(changed_positions.max()) - 16 + 1


#: By model, the encodings that are found, with the window of each.
WINDOWS: dict[str, dict[str, int | None]] = {
    "mistral": {"rotary": WINDOW},
    "qwen2": {"rotary": None},
    "qwen2 from some depth on": {"full_attention": None, "sliding_attention": WINDOW},
    "gemma2": {"sliding_attention": WINDOW, "full_attention": None},
    "cohere2": {"rotary": WINDOW},
    "exaone4": {"rotary": WINDOW},
    "exaone4 without windows": {"rotary": None},
    "smollm3": {"rotary": None},
    "llama4": {"rotary": WINDOW},
}
#: What newer versions write into a configuration, and what is on the Hub does not have.
NEWER = ("layer_types", "no_rope_layers", "sliding_window_pattern")


@pytest.mark.parametrize("name", WINDOWS)
def test_layers_are_grouped_by_window_and_rotation(tmp_path: Path, name: str) -> None:
    model = built(name)
    n_without_rotation = rotating(model).count(False)
    verb = "does" if n_without_rotation == 1 else "do"
    notes = (
        (f"{n_without_rotation} of 4 layers {verb} not rotate",)
        if n_without_rotation
        else ()
    )
    newer = model.config.to_dict()
    older = {key: value for key, value in newer.items() if key not in NEWER}
    for version, config in (("newer", newer), ("older", older)):
        records = stated(tmp_path / version / "rotary", **config)
        assert {record.name: record.window for record in records} == WINDOWS[name]
        assert all(record.notes == notes for record in records)
        assert {record.max_positions for record in records} == {LONG_LENGTH}


@pytest.mark.parametrize("name", ["mistral", "gemma2", "llama4"])
def test_a_window_is_as_wide_as_the_layer_sees(tmp_path: Path, name: str) -> None:
    kind = "chunked_attention" if name == "llama4" else "sliding_attention"
    types = {} if name == "mistral" else {"layer_types": [kind]}
    rope = {"no_rope_layers": [1]} if name == "llama4" else {}
    model = built(name, num_hidden_layers=1, **types, **rope)
    model.save_pretrained(tmp_path)
    (record,) = records_of(tmp_path)
    assert record.window == seen(model) == WINDOW


def modernbert() -> Any:
    torch.manual_seed(0)
    config = library.ModernBertConfig(
        vocab_size=40, hidden_size=32, intermediate_size=16, num_attention_heads=2,
        num_hidden_layers=1, local_attention=WINDOW, max_position_embeddings=LONG_LENGTH,
        layer_types=["sliding_attention"], pad_token_id=0, cls_token_id=1, sep_token_id=2,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return library.ModernBertModel._from_config(
        config, attn_implementation="eager"
    ).eval()


def gemma3() -> Any:
    return built(
        "gemma3", num_hidden_layers=1, layer_types=["sliding_attention"],
        use_bidirectional_attention=True,
    )  # fmt: skip


@pytest.mark.parametrize("build", [modernbert, gemma3])
def test_layers_that_see_both_sides_are_judged_by_one(
    build: Callable[[], Any], tmp_path: Path
) -> None:
    model = build()
    model.save_pretrained(tmp_path)
    local = next(r for r in records_of(tmp_path) if r.name == "sliding_attention")
    assert local.window == seen(model) == WINDOW // 2 + 1


def test_layers_whose_theta_is_zero_do_not_rotate(tmp_path: Path) -> None:
    (glimmer,) = stated(
        tmp_path, layer_rope_theta=[0, 1e4, 0, 1e4], head_dim=8, rope_theta=1e4,
        sliding_window=WINDOW, layer_types=["full_attention", "sliding_attention"] * 2,
    )  # fmt: skip
    assert (glimmer.window, glimmer.notes) == (WINDOW, ("2 of 4 layers do not rotate",))


def test_dense_layers_of_a_mixture_rotate_though_they_see_everything(
    tmp_path: Path,
) -> None:
    mixture = stated(
        tmp_path, model_type="cohere2_moe", prefix_dense_sliding_window_pattern=1,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"], head_dim=8, rope_theta=1e4,
        sliding_window=WINDOW, layer_types=["full_attention", "sliding_attention"] * 2,
    )  # fmt: skip
    windows = {record.name: record.window for record in mixture}
    assert windows == {"full_attention": None, "sliding_attention": WINDOW}


def test_blocks_that_are_listed_beside_layers_are_no_layers(tmp_path: Path) -> None:
    blocks = stated(
        tmp_path, model_type="dory", num_hidden_layers=4, head_dim=8, rope_theta=1e4,
        sliding_window=WINDOW, layer_types=["full_attention", "mlp", "sliding_attention", "mlp"],
    )  # fmt: skip
    assert [record.window for record in blocks] == [None, WINDOW]
    assert not any(record.notes for record in blocks)


def test_ladders_by_the_name_of_their_use_belong_to_layers(tmp_path: Path) -> None:
    bases = {"main": 1e4, "compress": 1.6e5}
    records = stated(
        tmp_path, model_type="deepseek_v4", num_hidden_layers=2, head_dim=8,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "compressed_sparse_attention"],
        rope_parameters={
            name: {"rope_type": "default", "rope_theta": base} for name, base in bases.items()
        },
    )  # fmt: skip
    bases_by_layers = {record.name: record.frequencies()[1] ** -4 for record in records}
    assert bases_by_layers == pytest.approx({"local": 1e4, "global": 1.6e5})


def test_a_share_of_the_whole_head_is_none_of_its_latent_part(tmp_path: Path) -> None:
    rule = {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "partial_rotary_factor": 0.5,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    (record,) = stated(
        tmp_path, model_type="mistral4", num_hidden_layers=2, head_dim=16, qk_rope_head_dim=8,
        qk_nope_head_dim=8, rope_parameters=rule,
    )  # fmt: skip
    assert len(record.frequencies()) == 4


def test_windows_that_are_a_radius_do_not_count_the_query(tmp_path: Path) -> None:
    sizes = {"head_dim": 8, "rope_theta": 1e4, "sliding_window": WINDOW}
    (record,) = stated(tmp_path, model_type="neomme", **sizes)
    assert record.window == WINDOW + 1


@pytest.mark.parametrize("layer_type", ["conv", "linear_attention", "mamba"])
def test_layers_without_attention_are_no_encoding_of_their_own(
    tmp_path: Path, layer_type: str
) -> None:
    common: dict[str, Any] = {"head_dim": 8, "rope_theta": 1e4, "sliding_window": WINDOW}
    types = [layer_type, "sliding_attention", layer_type, "sliding_attention"]
    (record,) = stated(tmp_path / "a", layer_types=types, **common)
    assert record.window == WINDOW
    mixed = stated(tmp_path / "b", layer_types=[*types, "full_attention"], **common)
    windows = {scheme.name: scheme.window for scheme in mixed}
    assert windows == {"sliding_attention": WINDOW, "full_attention": None}


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": None,
        "original_max_position_embeddings": 16}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16,
            "short_factor": [1.0] * 8, "long_factor": [3.0] * 8}  # fmt: skip


@pytest.mark.parametrize("rule", [YARN, LONGROPE], ids=["yarn", "longrope"])
def test_a_rule_follows_the_length_of_the_text_and_not_the_window(
    tmp_path: Path, rule: dict[str, Any]
) -> None:
    model = built("mistral", rope_parameters=rule)
    model.save_pretrained(tmp_path)
    (record,) = records_of(tmp_path)
    measured = analyze_schemes(record).results[0]["rotation"]
    positions = torch.arange(LONG_LENGTH)[None]
    cos, _ = model.rotary_emb(torch.zeros(1), positions)
    factor = measured.attention_factor  # type: ignore[attr-defined]
    omega = 2 * np.pi / measured.wavelength  # type: ignore[attr-defined]
    expected = factor * np.cos(np.outer(np.arange(LONG_LENGTH), omega))
    np.testing.assert_allclose(expected, cos[0, :, :8], atol=1e-4)


# Heads of another width, and pairs that stand still


def gemma4(**overrides: Any) -> Any:
    torch.manual_seed(0)
    config = library.Gemma4TextConfig(
        **SIZES | {"head_dim": 8, "global_head_dim": 32, "sliding_window": WINDOW,
                   "vocab_size_per_layer_input": 40, "hidden_size_per_layer_input": 4} | overrides,
    )  # fmt: skip
    return library.Gemma4TextModel(config).eval()


@pytest.mark.parametrize("form", ["saved", "as on the Hub"])
def test_gemma4_has_wider_heads_in_layers_of_full_attention(
    tmp_path: Path, form: str
) -> None:
    model = gemma4(num_hidden_layers=12)  # "05" and "11" are told apart from the others
    model.save_pretrained(tmp_path)
    if form == "as on the Hub":
        config = json.loads((tmp_path / "config.json").read_text())
        del config["per_layer_config"]
        config["global_head_dim"] = 32
        (tmp_path / "config.json").write_text(json.dumps(config))
    records = {record.name: record for record in records_of(tmp_path)}
    for kind, width in (("sliding_attention", 8), ("full_attention", 32)):
        inv_freq = getattr(model.rotary_emb, f"{kind}_inv_freq").numpy()
        turning = inv_freq[inv_freq > 0]
        assert records[kind].head_dim == width == 2 * len(inv_freq)
        np.testing.assert_allclose(records[kind].frequencies(), turning, rtol=1e-6)
        assert records[kind].rotated == 2 * len(turning)
    assert (
        "8 of the 32 numbers of a head are rotated" in records["full_attention"].notes[0]
    )


def test_the_mean_rotation_equals_the_logit_of_rotating_pairs(tmp_path: Path) -> None:
    model = gemma4()
    model.save_pretrained(tmp_path)
    record = next(r for r in records_of(tmp_path) if r.name == "full_attention")
    n = 30
    cos, sin = model.rotary_emb(torch.zeros(1), torch.arange(n)[None], "full_attention")
    turning = model.rotary_emb.full_attention_inv_freq > 0
    rng = np.random.default_rng(0)
    # Equal queries and keys, whose pairs have unit length where they turn and any elsewhere.
    phase, length = (
        rng.uniform(0, 2 * np.pi, 16),
        np.where(turning, 1, rng.uniform(1, 2, 16)),
    )
    vector = np.concatenate([length * np.cos(phase), length * np.sin(phase)])
    rotated = apply_rotary_pos_emb(
        torch.from_numpy(vector.astype(np.float32)).expand(1, 1, n, 32), cos, sin
    )
    logits = (rotated[0, 0] @ rotated[0, 0, 0]).numpy()
    content = (length[~turning.numpy()] ** 2).sum()
    expected = (logits - content) / int(turning.sum())
    np.testing.assert_allclose(record.curves(n)[0, n - 1 :], expected, atol=1e-5)


def test_a_ladder_with_idle_slow_pairs_is_scaled_by_its_factor(
    tmp_path: Path,
) -> None:
    ladder = {
        "rope_type": "proportional",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.25,
    }
    sizes = {"head_dim": 32, "max_position_embeddings": LONG_LENGTH}
    (plain,) = stated(tmp_path / "plain", rope_parameters=ladder, **sizes)
    (slow,) = stated(tmp_path / "slow", rope_parameters=ladder | {"factor": 4.0}, **sizes)
    for record, answer in ((plain, "no"), (slow, "yes")):
        document = analyze_schemes(record).to_dict()
        answers = {
            answer["question"]: answer for answer in document["verdict"]["answers"]
        }
        assert answers["rotary_stretched"]["answer"] == answer
    np.testing.assert_allclose(slow.unscaled(), 1e4 ** (-np.arange(4) / 16))
    np.testing.assert_allclose(slow.frequencies(), slow.unscaled() / 4)


def test_a_head_without_rotating_pairs_is_refused(tmp_path: Path) -> None:
    ladder = {
        "rope_type": "proportional",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.01,
    }
    with pytest.raises(InvalidCheckpoint, match="rotates no pair"):
        stated(tmp_path, rope_parameters=ladder, head_dim=32)


@pytest.mark.parametrize("version", ["V2", "V3"])
def test_of_latent_attention_a_part_of_a_head_is_rotated(
    tmp_path: Path, version: str
) -> None:
    rule = {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0,
        "mscale_all_dim": 0.7, "original_max_position_embeddings": 16,
    }  # fmt: skip
    torch.manual_seed(0)
    config = getattr(library, f"Deepseek{version}Config")(
        **SIZES | {"moe_intermediate_size": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
                   "n_group": 1, "topk_group": 1, "kv_lora_rank": 8, "q_lora_rank": 8,
                   "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16},
        rope_parameters=rule,
    )  # fmt: skip
    model = getattr(library, f"Deepseek{version}Model")(config)
    model.save_pretrained(tmp_path)
    (record,) = records_of(tmp_path)
    attention = model.layers[0].self_attn
    logits = attention.scaling * attention.qk_head_dim**0.5
    says = f"8 of the {attention.qk_head_dim} numbers of a head are rotated"
    assert any(note.startswith(says) for note in record.notes)
    part = ConfigSection("", json.loads((tmp_path / "config.json").read_text()))
    assert read_logit_scale(part, attention.qk_head_dim) == pytest.approx(logits)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"layer_types": "sliding"}, "layer_types"),
        ({"layer_types": [1, 2]}, "layer_types"),
        ({"sliding_window": "wide"}, "sliding_window"),
        (
            {"sliding_window": 4, "model_type": "gemma2", "num_hidden_layers": 10**9},
            "num_hidden",
        ),
        ({"per_layer_config": {"0": {"head_dim": -1}}}, "head_dim"),
        ({"model_type": "dinov3_vit"}, "image_size"),
    ],
)
def test_impossible_layer_settings_are_one_clear_error(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        stated(tmp_path, rope_theta=1e4, head_dim=8, **config)
