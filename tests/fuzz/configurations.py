"""``config.json`` of many families, with values of wrong types and sizes, beside fitting weights.

What is read is a block of the stored rows; what a configuration gives as no number is not one.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any

from fuzz import build
from fuzz.case import Case

_LLAMA = {"model_type": "llama", "head_dim": 16, "max_position_embeddings": 4096}
_WIDE = {"hidden_size": 64, "num_attention_heads": 4}
_WORDS: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (4, 64)}
_PICTURE = {"image_size": 32, "patch_size": 8, "hidden_size": 8}
#: Families with their configuration and the shapes of their tensors.
FAMILIES: tuple[tuple[dict[str, Any], dict[str, tuple[int, ...]]], ...] = (
    ({"model_type": "gpt2", "n_positions": 24, "n_embd": 8, "n_head": 2}, {"wpe.weight": (24, 8)}),
    ({"model_type": "roberta", "max_position_embeddings": 18, "pad_token_id": 1, "hidden_size": 8,
      "position_embedding_type": "absolute"},
     {"roberta.embeddings.position_embeddings.weight": (18, 8)}),
    ({**_PICTURE, "model_type": "vit", "num_channels": 3},
     {"vit.embeddings.position_embeddings": (1, 17, 8), "vit.embeddings.cls_token": (1, 1, 8)}),
    ({**_PICTURE, "model_type": "yolos", "image_size": [32, 48], "num_detection_tokens": 4},
     {"vit.embeddings.position_embeddings": (1, 29, 8), "vit.embeddings.cls_token": (1, 1, 8),
      "vit.embeddings.detection_tokens": (1, 4, 8)}),
    ({**_PICTURE, "model_type": "deit", "patch_size": [8, 8]},
     {"deit.embeddings.position_embeddings": (1, 18, 8)}),
    ({**_WIDE, "model_type": "llama", "rope_theta": 10000.0, "max_position_embeddings": 128,
      "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, _WORDS),
    ({**_LLAMA, "original_max_position_embeddings": 512,
      "rope_parameters": {"rope_type": "yarn", "factor": 8.0, "rope_theta": 1e6, "beta_fast": 32,
                          "beta_slow": 1, "original_max_position_embeddings": 512}}, _WORDS),
    ({**_LLAMA, "rope_theta": 5e5,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}}, _WORDS),
    ({**_WIDE, "model_type": "phi3", "max_position_embeddings": 1024,
      "original_max_position_embeddings": 128,
      "rope_scaling": {"type": "longrope", "long_factor": [1.0, 2.0] * 4,
                       "short_factor": [1.0] * 8}}, _WORDS),
    ({"model_type": "qwen2_vl",
      "text_config": {**_WIDE, "model_type": "qwen2_vl_text",
                      "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}}, _WORDS),
    ({**_LLAMA, "model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
      "sliding_window": 64, "partial_rotary_factor": 0.5}, _WORDS),
    ({"model_type": "t5", "relative_attention_num_buckets": 8, "num_heads": 2,
      "relative_attention_max_distance": 32},
     {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (8, 2)}),
    ({"model_type": "bloom", "n_head": 4, "hidden_size": 64}, {"word_embeddings.weight": (4, 64)}),
    ({"model_type": "mpt", "n_heads": 4, "d_model": 64,
      "attn_config": {"alibi": True, "alibi_bias_max": 8}}, {"transformer.wte.weight": (4, 64)}),
    ({"model_type": "swin", "image_size": 32, "patch_size": 4, "window_size": 4, "depths": [1],
      "num_heads": [2], "embed_dim": 8},
     {"swin.encoder.layers.0.blocks.0.attention.self.relative_position_bias_table": (49, 2)}),
    ({"model_type": "clip", "vision_config": _PICTURE,
      "text_config": {"max_position_embeddings": 12, "hidden_size": 8}},
     {"vision_model.embeddings.position_embedding.weight": (17, 8),
      "text_model.embeddings.position_embedding.weight": (12, 8)}),
    ({"architecture": "vit_base_patch16_224", "num_classes": 10, "num_features": 8,
      "pretrained_cfg": {"input_size": [3, 32, 32], "num_classes": 10}, "model_args": {}},
     {"pos_embed": (1, 17, 8), "cls_token": (1, 1, 8), "patch_embed.proj.weight": (8, 3, 8, 8)}),
    ({"model_type": "deberta-v2", "max_relative_positions": 16, "position_buckets": 8,
      "pos_att_type": ["p2c", "c2p"], "relative_attention": True, "hidden_size": 8},
     {"encoder.rel_embeddings.weight": (16, 8)}),
)  # fmt: skip
#: Keys that any reader might look at, given to families that do not know them.
KEYS = (
    "model_type", "architectures", "auto_map", "rope_scaling", "rope_parameters", "alibi",
    "position_embedding_type", "num_detection_tokens", "pad_token_id", "text_config",
    "vision_config", "head_dim", "sliding_window", "no_rope_layers", "layer_types", "rotary_pct",
    "original_max_position_embeddings", "attn_config", "image_size", "patch_size", "window_size",
    "rotary_dim", "qk_rope_head_dim", "max_position_embeddings", "pretrained_cfg", "architecture",
)  # fmt: skip


def make(rng: random.Random) -> Case:
    """Make a folder with a mutated configuration and look at it."""
    family, shapes = rng.choice(FAMILIES)
    config: dict[str, Any] = json.loads(json.dumps(family))
    tensors = {
        name: build.table(rng, 1, math.prod(shape)).reshape(shape)
        for name, shape in shapes.items()
    }
    changes = rng.choice((0, 1, 1, 1, 2, 3))
    for _ in range(changes):
        if rng.random() < 0.3:
            config[rng.choice(KEYS)] = rng.choice(
                (*build.WRONG_VALUES, rng.choice(build.HOSTILE))
            )
        else:
            config = build.altered(rng, config, (1,))
    content = build.dumps(config)
    subject = f"configuration of {len(content)} bytes with {changes} changes"
    if changes and rng.random() < 0.1:
        damaged, content = build.damage(rng, content)
        subject = f"configuration: {damaged}"
    elif rng.random() < 0.03:
        content = rng.choice(
            (b'{"a":' * 100_000, b"[" * 100_000, b'{"rope_theta": ' + b"9" * 5000 + b"}")
        )
        subject = "configuration: deep or long"
    files = {"m/model.safetensors": build.safetensors(tensors), "m/config.json": content}
    tables = [name for name in shapes if "pos" in name or "wpe" in name]
    plain = content == build.dumps(family)
    kind = build.pick(rng, (3, "inspect"), (3, "json"), (6, "extract"), (1, "analyze"))
    if kind == "inspect":
        return Case(
            subject, ("inspect", "m"), files, expected="accepted" if plain else "any"
        )
    if kind == "json":
        return Case(subject, ("inspect", "m", "--json"), files)
    if kind == "extract":
        read = ("m/model.safetensors", tables[0]) if len(tables) == 1 else None
        argv: tuple[str, ...] = ("extract", "m", "-o", "out.npy")
        return Case(subject, argv, files, read=read, block=True, outputs=("out.npy",))
    argv = ("analyze", "m", "--out", "bundle", "--nulls", "0", "--rows", "0:8")
    argv = (*argv, "--only", "norms") if tables else argv
    return Case(subject, argv, files, outputs=("bundle",))


WARM = (("analyze", "rotary:32x16", "--nulls", "0", "--out", "r"),)
