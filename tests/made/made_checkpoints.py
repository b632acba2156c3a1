"""Checkpoint folders: sound ones, and ones without a table, broken or malicious."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BERT_TABLE = "embeddings.position_embeddings.weight"


def checkpoint(folder: Path, tensors: dict[str, Any], config: Any = None) -> None:
    (folder / "model").mkdir()
    save_file(tensors, folder / "model" / "model.safetensors")
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "model" / "config.json").write_text(text)


def model_folder(folder: Path, tensors: Mapping[str, Any], **config: Any) -> str:
    """Write tensors in single precision (by default an unrelated one) and a configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = tensors or {"lm_head.weight": np.zeros((2, 2))}
    arrays = {
        name: np.ascontiguousarray(values, np.float32) for name, values in stored.items()
    }
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def table(rows: int = 16, width: int = 8) -> Any:
    return np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)


def make_empty_file(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(b"")


def make_truncated(folder: Path) -> None:
    checkpoint(folder, {BERT_TABLE: table()})
    path = folder / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


def make_enormous_header(folder: Path) -> None:
    make_empty_file(folder)
    (folder / "model" / "model.safetensors").write_bytes(
        (2**60).to_bytes(8, "little") + b"{}"
    )


def with_value(value: float) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        values = table()
        values[3, 2] = value
        checkpoint(folder, {BERT_TABLE: values}, {"model_type": "bert"})

    return prepare


class Malicious:
    """A pickle that creates a file if it is loaded carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def make_pickle(folder: Path) -> None:
    (folder / "model").mkdir()
    content = {BERT_TABLE: torch.ones(4, 4), "x": Malicious(folder / "ran")}
    torch.save(content, folder / "model" / "pytorch_model.bin")


def make_legacy_pickle(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "pytorch_model.bin").write_bytes(
        pickle.dumps(Malicious(folder / "ran"))
    )


QUERY_WEIGHT = {"layers.0.self_attn.q_proj.weight": np.ones((8, 8), np.float32)}
T5_BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"

CHECKPOINT_MAKERS: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "sound": lambda folder: checkpoint(
        folder, {BERT_TABLE: table()}, {"model_type": "bert"}
    ),
    "empty file": make_empty_file,
    "truncated": make_truncated,
    "enormous header": make_enormous_header,
    "empty folder": lambda folder: (folder / "model").mkdir(),
    "list for a config": lambda folder: checkpoint(folder, {BERT_TABLE: table()}, [1, 2]),
    "no JSON": lambda folder: checkpoint(folder, {BERT_TABLE: table()}, "{'a': 1}"),
    "NaN": with_value(np.nan),
    "infinity": with_value(np.inf),
    "one row": lambda folder: checkpoint(
        folder, {BERT_TABLE: table(1)}, {"model_type": "bert"}
    ),
    "one dimension": lambda folder: checkpoint(folder, {"bias": np.ones(8, np.float32)}),
    "integers": lambda folder: checkpoint(
        folder, {BERT_TABLE: np.ones((8, 8), np.int8)}, {"model_type": "bert"}
    ),
    "rotary": lambda folder: checkpoint(
        folder, QUERY_WEIGHT, {"model_type": "llama", "rope_theta": 1e4}
    ),
    "alibi": lambda folder: checkpoint(
        folder, QUERY_WEIGHT, {"model_type": "bloom", "n_head": 8}
    ),
    "relative": lambda folder: checkpoint(
        folder, {T5_BIAS: np.ones((32, 8), np.float32)}, {"model_type": "t5"}
    ),
    "no positions": lambda folder: checkpoint(folder, QUERY_WEIGHT),
    "several": lambda folder: checkpoint(
        folder,
        {
            "model.encoder.embed_positions.weight": table(),
            "model.decoder.embed_positions.weight": table(),
        },
        {"model_type": "bart"},
    ),
    "malicious": make_pickle,
    "malicious legacy": make_legacy_pickle,
}
