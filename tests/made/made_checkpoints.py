"""Checkpoints as they are met in a folder: whole, without a table, broken and malicious."""

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

BERT = "embeddings.position_embeddings.weight"


def checkpoint(place: Path, tensors: dict[str, Any], config: Any = None) -> None:
    (place / "model").mkdir()
    save_file(tensors, place / "model" / "model.safetensors")
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (place / "model" / "config.json").write_text(text)


def model_folder(folder: Path, tensors: Mapping[str, Any], **config: Any) -> str:
    """Write tensors in single precision, or one that says nothing, and a configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = tensors or {"lm_head.weight": np.zeros((2, 2))}
    arrays = {name: np.ascontiguousarray(values, np.float32) for name, values in stored.items()}
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def table(rows: int = 16, width: int = 8) -> Any:
    return np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)


def empty(place: Path) -> None:
    (place / "model").mkdir()
    (place / "model" / "model.safetensors").write_bytes(b"")


def truncated(place: Path) -> None:
    checkpoint(place, {BERT: table()})
    path = place / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


def enormous_header(place: Path) -> None:
    empty(place)
    (place / "model" / "model.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")


def with_value(value: float) -> Callable[[Path], None]:
    def prepare(place: Path) -> None:
        values = table()
        values[3, 2] = value
        checkpoint(place, {BERT: values}, {"model_type": "bert"})

    return prepare


class Malicious:
    """What a pickle can do when it is read carelessly: leave a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def pickled(place: Path) -> None:
    (place / "model").mkdir()
    content = {BERT: torch.ones(4, 4), "x": Malicious(place / "ran")}
    torch.save(content, place / "model" / "pytorch_model.bin")


def legacy_pickle(place: Path) -> None:
    (place / "model").mkdir()
    (place / "model" / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(place / "ran")))


WEIGHT = {"layers.0.self_attn.q_proj.weight": np.ones((8, 8), np.float32)}
T5 = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"

PREPARE: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "sound": lambda place: checkpoint(place, {BERT: table()}, {"model_type": "bert"}),
    "empty file": empty,
    "truncated": truncated,
    "enormous header": enormous_header,
    "empty folder": lambda place: (place / "model").mkdir(),
    "list for a config": lambda place: checkpoint(place, {BERT: table()}, [1, 2]),
    "no JSON": lambda place: checkpoint(place, {BERT: table()}, "{'a': 1}"),
    "NaN": with_value(np.nan),
    "infinity": with_value(np.inf),
    "one row": lambda place: checkpoint(place, {BERT: table(1)}, {"model_type": "bert"}),
    "one dimension": lambda place: checkpoint(place, {"bias": np.ones(8, np.float32)}),
    "integers": lambda place: checkpoint(
        place, {BERT: np.ones((8, 8), np.int8)}, {"model_type": "bert"}
    ),
    "rotary": lambda place: checkpoint(place, WEIGHT, {"model_type": "llama", "rope_theta": 1e4}),
    "alibi": lambda place: checkpoint(place, WEIGHT, {"model_type": "bloom", "n_head": 8}),
    "relative": lambda place: checkpoint(
        place, {T5: np.ones((32, 8), np.float32)}, {"model_type": "t5"}
    ),
    "no positions": lambda place: checkpoint(place, WEIGHT),
    "several": lambda place: checkpoint(
        place,
        {
            "model.encoder.embed_positions.weight": table(),
            "model.decoder.embed_positions.weight": table(),
        },
        {"model_type": "bart"},
    ),
    "malicious": pickled,
    "malicious legacy": legacy_pickle,
}
