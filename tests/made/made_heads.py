"""Small models whose heads attend by position, their files, and their logits by posprobe."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from made_models import BERT, LENGTH, VOCABULARY, WIDTH, bert, gpt2, timm_vit, vit
from safetensors.torch import save_file

from posprobe.analyses.models.head_logits import HeadLogits, head_logits
from posprobe.families.layers import LayerHeads

HEADS = 3


def roberta() -> Any:
    config = transformers.RobertaConfig(**BERT | {"max_position_embeddings": LENGTH + 2})
    return transformers.RobertaForMaskedLM(config)


def albert() -> Any:
    config = transformers.AlbertConfig(**BERT, embedding_size=16)
    return transformers.AlbertForMaskedLM(config)


def electra() -> Any:
    return transformers.ElectraModel(
        transformers.ElectraConfig(**BERT, embedding_size=16)
    )


def distilbert() -> Any:
    config = transformers.DistilBertConfig(
        dim=WIDTH, n_layers=2, n_heads=HEADS, hidden_dim=8, vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    return transformers.DistilBertModel(config)


def opt(**options: Any) -> Any:
    config = transformers.OPTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, ffn_dim=8,
        vocab_size=VOCABULARY, max_position_embeddings=LENGTH, word_embed_proj_dim=WIDTH, **options,
    )  # fmt: skip
    return transformers.OPTForCausalLM(config)


BART: dict[str, Any] = {
    "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8,
    "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "scale_embedding": True,
}  # fmt: skip


def bart() -> Any:
    return transformers.BartModel(transformers.BartConfig(**BART))


def mbart() -> Any:
    return transformers.MBartModel(transformers.MBartConfig(**BART))


def whisper() -> Any:
    config = transformers.WhisperConfig(
        **BART,
        max_target_positions=LENGTH,
        max_source_positions=6,
        num_mel_bins=4,
        pad_token_id=1,
    )
    return transformers.WhisperModel(config)


MODEL_BUILDERS: dict[str, Callable[[], Any]] = {
    "BERT": bert, "RoBERTa": roberta, "GPT-2": gpt2, "ViT": vit, "timm ViT": timm_vit,
    "timm CLIP ViT": partial(timm_vit, "vit_base_patch16_clip_224"), "ALBERT": albert,
    "ELECTRA, small": electra, "DistilBERT": distilbert, "OPT": opt,
    "OPT-350m": lambda: opt(do_layer_norm_before=False),
    "BART#encoder": bart, "BART#decoder": bart, "mBART#encoder": mbart, "mBART#decoder": mbart,
    "Whisper#decoder": whisper,
}  # fmt: skip


def perturb(model: Any) -> Any:
    """Perturb every parameter, so that a forgotten one changes the result."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.train(mode=False)


def save_model(model: Any, folder: Path) -> str:
    if isinstance(model, transformers.PreTrainedModel):
        model.save_pretrained(folder)
        return str(folder)
    save_file(dict(model.state_dict()), folder / "model.safetensors")
    config = {"architecture": "vit_tiny_patch16_224", "model_args": {"num_heads": HEADS}}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def head_logits_of(loaded: LayerHeads) -> HeadLogits:
    return head_logits(
        loaded.table, loaded.w_q, loaded.w_k, loaded.b_q, loaded.b_k,
        heads=loaded.heads, scale=loaded.scale, causal=loaded.causal,
    )  # fmt: skip
