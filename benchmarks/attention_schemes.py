"""The attention budget of every scheme at random weights, and its time over a bare pass.

    uv run --group test python benchmarks/attention_schemes.py [SCHEME ...]

Each model has four layers of width 256 with random weights, and runs 32 contexts of 96 tokens, or
as many pictures of 64 x 64 pixels. The budget and the bare pass run three times in turn; printed is
the median of their ratio.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
import transformers

import posprobe as pp
from posprobe.forward.running import run_body

#: Batches, contexts of a batch, tokens of a context and words of the vocabulary.
N_BATCHES = 4
BATCH_SIZE = 8
N_TOKENS = 96
N_WORDS = 64
#: Width and layers of a model.
WIDTH = 256
N_LAYERS = 4
#: Times that both are run.
N_REPEATS = 3

TEXT: dict[str, Any] = {
    "vocab_size": N_WORDS, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": N_LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ROBERTA = {**TEXT, "max_position_embeddings": 130, "pad_token_id": 1, "bos_token_id": 0}
GPT2 = {
    "n_embd": WIDTH, "n_layer": N_LAYERS, "n_head": 4, "n_positions": 128,
    "vocab_size": N_WORDS, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
T5 = {
    "vocab_size": N_WORDS, "d_model": WIDTH, "d_kv": 64, "d_ff": 2 * WIDTH,
    "num_layers": N_LAYERS, "num_heads": 4, "pad_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
FALCON = {
    "vocab_size": N_WORDS, "hidden_size": WIDTH, "num_hidden_layers": N_LAYERS,
    "num_attention_heads": 4, "new_decoder_architecture": False, "multi_query": False,
}  # fmt: skip
IMAGE: dict[str, Any] = {
    "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": N_LAYERS,
    "num_attention_heads": 4, "image_size": 64, "patch_size": 8, "num_channels": 3,
}  # fmt: skip
SWIN = {
    "image_size": 64, "patch_size": 4, "num_channels": 3, "embed_dim": WIDTH // 4,
    "depths": [2, 2], "num_heads": [2, 4], "window_size": 8,
}  # fmt: skip
WHISPER = {
    "vocab_size": N_WORDS, "d_model": WIDTH, "encoder_layers": N_LAYERS,
    "decoder_layers": N_LAYERS, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 2 * WIDTH, "decoder_ffn_dim": 2 * WIDTH, "max_source_positions": 48,
    "max_target_positions": 128, "num_mel_bins": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip

#: By scheme: name of its classes in transformers, part of the model, and configuration.
SCHEMES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "BERT": ("Bert", "text", TEXT),
    "RoBERTa": ("Roberta", "text", ROBERTA),
    "GPT-2": ("GPT2", "text", GPT2),
    "OPT": ("OPT", "text", {**TEXT, "ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH}),
    "T5 encoder": ("T5", "encoder", T5),
    "T5 decoder": ("T5", "decoder", T5),
    "mT5 encoder": ("MT5", "encoder", T5),
    "BLOOM": ("Bloom", "text", {
        "vocab_size": N_WORDS, "hidden_size": WIDTH, "n_layer": N_LAYERS, "n_head": 4,
    }),
    "MPT": ("Mpt", "text", {
        "vocab_size": N_WORDS, "d_model": WIDTH, "n_layers": N_LAYERS, "n_heads": 4,
        "max_seq_len": 128,
    }),
    "Falcon, ALiBi": ("Falcon", "text", {**FALCON, "alibi": True}),
    "Falcon, rotary": ("Falcon", "text", {**FALCON, "alibi": False}),
    "Llama": ("Llama", "text", TEXT),
    "Qwen2": ("Qwen2", "text", TEXT),
    "Qwen3": ("Qwen3", "text", {**TEXT, "head_dim": 64}),
    "Gemma 3": ("Gemma3Text", "text", {
        **TEXT, "head_dim": 64, "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    }),
    "Phi": ("Phi", "text", {**TEXT, "num_key_value_heads": 4}),
    "GPT-NeoX": ("GPTNeoX", "text", TEXT),
    "GPT-J": ("GPTJ", "text", {**GPT2, "rotary_dim": 32}),
    "GPT-OSS": ("GptOss", "text", {
        **TEXT, "head_dim": 64, "num_local_experts": 4, "sliding_window": 32,
    }),
    "DeBERTa v2": ("DebertaV2", "text", {
        **TEXT, "relative_attention": True, "position_buckets": 16,
        "pos_att_type": "p2c|c2p", "max_relative_positions": 64,
    }),
    "XLNet": ("XLNet", "text", {
        "vocab_size": N_WORDS, "d_model": WIDTH, "n_layer": N_LAYERS, "n_head": 4,
        "d_inner": 2 * WIDTH,
    }),
    "MPNet": ("MPNet", "text", ROBERTA),
    "ModernBERT": ("ModernBert", "text", {
        **TEXT, "local_attention": 48, "global_attn_every_n_layers": 2,
        "cls_token_id": 1, "sep_token_id": 2,
    }),
    "ESM-2": ("Esm", "text", {
        **ROBERTA, "position_embedding_type": "rotary", "mask_token_id": 3,
    }),
    "ALBERT": ("Albert", "text", {**TEXT, "embedding_size": 64}),
    "DistilBERT": ("DistilBert", "text", {
        "vocab_size": N_WORDS, "dim": WIDTH, "hidden_dim": 2 * WIDTH, "n_layers": N_LAYERS,
        "n_heads": 4, "max_position_embeddings": 128, "pad_token_id": 0,
    }),
    "RoFormer": ("RoFormer", "text", {**TEXT, "embedding_size": 64}),
    "CLIP text": ("CLIPText", "text", TEXT),
    "CLIP vision": ("CLIPVision", "image", IMAGE),
    "ViT": ("ViT", "image", IMAGE),
    "DeiT": ("DeiT", "image", IMAGE),
    "BEiT": ("Beit", "image", {**IMAGE, "use_relative_position_bias": True}),
    "Swin": ("Swin", "image", SWIN),
    "SwinV2": ("Swinv2", "image", SWIN),
    "DINOv2": ("Dinov2", "image", IMAGE),
    "DINOv3": ("DINOv3ViT", "image", IMAGE),
    "Whisper encoder": ("Whisper", "audio", WHISPER),
    "Whisper decoder": ("Whisper", "decoder", WHISPER),
}  # fmt: skip


def build(scheme: str) -> Any:
    """Build a model of a scheme with random weights."""
    family, part, settings = SCHEMES[scheme]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, f"{family}Model")._from_config(config).eval()
    if part in ("encoder", "audio"):
        return model.get_encoder()
    return model.get_decoder() if part == "decoder" else model


def draw_batches(part: str) -> list[Any]:
    """Draw random contexts for a part of a model."""
    rng = np.random.default_rng(0)
    shapes = {"image": (BATCH_SIZE, 3, 64, 64), "audio": (BATCH_SIZE, 16, N_TOKENS)}
    if part in shapes:
        return [
            rng.standard_normal(shapes[part]).astype(np.float32) for _ in range(N_BATCHES)
        ]
    return [rng.integers(4, N_WORDS, (BATCH_SIZE, N_TOKENS)) for _ in range(N_BATCHES)]


def measure(scheme: str) -> str:
    """Return the row of a scheme."""
    model, batches = build(scheme), draw_batches(SCHEMES[scheme][1])
    ratios = []
    for _ in range(N_REPEATS):
        start = time.perf_counter()
        with torch.no_grad():
            for batch in batches:
                run_body(model, torch.as_tensor(batch))
        bare_end = time.perf_counter()
        budget = pp.attention_budget(model, batches, name=scheme)
        ratios.append((time.perf_counter() - bare_end) / (bare_end - start))
    shares = (budget.distance, budget.key, budget.other, budget.content)
    cells = [budget.source, *(f"{share:.2f}" for share in shares)]
    return " | ".join([*cells, f"{statistics.median(ratios):.1f}"])


def main() -> None:
    """Print one row for each scheme."""
    warnings.filterwarnings("ignore")
    print("| scheme | logits from | distance | key | other | content | time over bare |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for scheme in sys.argv[1:] or SCHEMES:
        try:
            print(f"| {scheme} | {measure(scheme)} |", flush=True)
        except pp.PosprobeError as error:
            print(f"| {scheme} | refused: {error} |", flush=True)


if __name__ == "__main__":
    main()
