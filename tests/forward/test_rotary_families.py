"""Models of many families by transformers, tiny: what turns queries and keys is found in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
import torch
import transformers

from posprobe.forward import rotary_use
from posprobe.forward.attention_inputs import run_observed

torch.set_num_threads(1)
LENGTH = 40
VOCABULARY = 64
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 2,
}  # fmt: skip
HALVES = ("halves", "all")
NEIGHBOURS = ("neighbours", "all")
#: By family: its own settings, and how columns of each layer turn.
FAMILIES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "Llama": ({}, [HALVES] * 2),
    "Mistral": ({"sliding_window": 16}, [HALVES] * 2),
    "Qwen2": ({}, [HALVES] * 2),
    "Qwen3": ({"head_dim": 8}, [HALVES] * 2),
    "Qwen3Moe": (
        {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        [HALVES] * 2,
    ),
    "Qwen2VLText": (
        {"rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]
        }},
        [HALVES] * 2,
    ),
    "Gemma2": ({"head_dim": 8, "sliding_window": 16}, [HALVES] * 2),
    "Gemma3Text": (
        {"head_dim": 8, "sliding_window": 16,
         "layer_types": ["sliding_attention", "full_attention"]},
        [HALVES] * 2,
    ),
    "Phi3": ({}, [HALVES] * 2),
    "GPTNeoX": ({"rotary_pct": 0.5}, [("halves", "first")] * 2),
    "GPTJ": (
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 4},
        [("neighbours", "first")] * 2,
    ),
    "Glm": ({"head_dim": 8, "partial_rotary_factor": 0.5}, [("neighbours", "first")] * 2),
    "DeepseekV3": (LATENT, [("halves", "last")] * 2),
    "SmolLM3": (
        {"num_hidden_layers": 4, "no_rope_layer_interval": 4}, [HALVES] * 3 + [("none", "none")]
    ),
    "GptOss": (
        {"head_dim": 8, "num_local_experts": 4, "sliding_window": 16}, [HALVES] * 2
    ),
    "Cohere": ({}, [NEIGHBOURS] * 2),
    "Olmo2": ({}, [HALVES] * 2),
    "StableLm": ({"partial_rotary_factor": 0.5}, [("halves", "first")] * 2),
    "Granite": ({"attention_multiplier": 0.3}, [HALVES] * 2),
    "Ernie4_5": ({}, [NEIGHBOURS] * 2),
    "Starcoder2": ({}, [HALVES] * 2),
    "ModernBert": (
        {"local_attention": 16, "global_attn_every_n_layers": 2, "cls_token_id": 1,
         "sep_token_id": 2},
        [HALVES] * 2,
    ),
    "Esm": ({"position_embedding_type": "rotary", "mask_token_id": 3}, [HALVES] * 2),
}  # fmt: skip


def built(family: str, **settings: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(**{**COMMON, **settings})
    torch.manual_seed(0)
    return getattr(transformers, f"{family}Model")._from_config(config).eval()


def tokens(
    contexts: int = 12, length: int = LENGTH, seed: int = 0
) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(4, VOCABULARY, (contexts, length))


@pytest.mark.parametrize("family", FAMILIES)
def test_rotating_layers_are_found_without_changing_outputs(family: str) -> None:
    settings, expected = FAMILIES[family]
    model = built(family, **settings)
    ids = torch.as_tensor(tokens(2))
    way = model.config._attn_implementation
    with torch.no_grad():
        output_before = model(input_ids=ids).last_hidden_state
    assert torch.equal(run_observed(model, ids, lambda *_: None, family), output_before)
    use = rotary_use(model, [tokens()])
    assert [(layer.pairs, layer.columns) for layer in use.layers] == expected
    assert all((layer.shift_check or 0.0) < 1e-5 for layer in use.layers)
    assert model.config._attn_implementation == way
    interfaces: tuple[Any, ...] = (
        transformers.AttentionInterface, transformers.AttentionMaskInterface,
    )  # fmt: skip
    assert all("posprobe_rotary" not in interface() for interface in interfaces)
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).last_hidden_state, output_before)


@pytest.mark.parametrize(
    ("length", "factors"), [(100, [1, 1.1, 1.2, 1.3]), (130, [1, 2, 3, 4])]
)
def test_long_factors_are_those_of_the_run_s_length(
    length: int, factors: list[float]
) -> None:
    rope = {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.0, 2.0, 3.0, 4.0],
    }  # fmt: skip
    lengths = {"original_max_position_embeddings": 128, "max_position_embeddings": 512}
    model = built("Phi3", **lengths, rope_parameters=rope)
    for layer in rotary_use(model, [tokens(2, length)]).layers:
        expected = 1e4 ** (-np.arange(4) / 4) / factors
        np.testing.assert_allclose(layer.ladder, expected, rtol=1e-6)
        assert (layer.shift_check or 0) < 1e-5
