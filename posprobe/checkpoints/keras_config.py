"""What the configuration in a ``.keras`` archive says of the weights: which layer each belongs to.

Weights lie under the classes of their layers (``layers/position_embedding_1/vars/0``) or under the
attributes of a class of one's own, so that a name may tell nothing. The configuration lists the
layers in the same order, with their classes and arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from posprobe.checkpoints.base import TensorInfo

#: Where KerasHub's layers keep a table, by class.
_TABLES: Mapping[str, str] = {
    "PositionEmbedding": "vars/0", "TokenAndPositionEmbedding": "position_embedding/vars/0",
}  # fmt: skip
#: Arguments that state a number of positions.
_LENGTHS = (
    "sequence_length", "max_sequence_length", "seq_len", "max_seq_len", "max_length", "maxlen",
    "max_len", "context_length", "block_size", "num_positions", "max_positions", "num_patches",
    "max_position_embeddings",
)  # fmt: skip
#: Layers within layers, and layers in all, that are looked at.
_DEPTH, _MOST = 32, 10_000


@dataclass(frozen=True)
class _Layer:
    """A layer's place among the weights, its class, the name that the user gave it, arguments."""

    path: str
    kind: str
    name: str
    config: Mapping[str, Any]


def position_layers(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> dict[str, str]:
    """Find the weights that layers of positions have, by class, or else by shape.

    Parameters
    ----------
    config
        The archive's ``config.json``.
    tensors
        The weights by their path.

    Returns
    -------
    dict
        Name of the tensor to a few words that say why; the last is the layer's path.
    """
    found: dict[str, str] = {}
    layers = list(islice(_layers(config, ""), _MOST))
    for layer in layers:
        own = _TABLES.get(layer.kind, "")
        place = f"{layer.path}/{own}".lstrip("/")
        if own and place in tensors:
            found[place] = f"it is the table of a layer {layer.kind} called {_told(layer)}"
    known = set(found)
    below = _below({layer.path for layer in layers}, tensors)
    for layer in layers:
        for key in _LENGTHS:
            rows = layer.config.get(key)
            if layer.kind in _TABLES or type(rows) is not int or rows < 2:
                continue
            fits = below.get((layer.path, rows))
            if fits and fits not in known:
                why = f"its shape alone fits, with {rows} rows, {key} of a layer {layer.kind}"
                found.setdefault(fits, f"{why} called {_told(layer)}")
    return found


def _below(
    paths: Container[str], tensors: Mapping[str, TensorInfo]
) -> dict[tuple[str, int], str | None]:
    """Find the one table of so many rows below each path; None where there are several."""
    found: dict[tuple[str, int], str | None] = {}
    for name, info in tensors.items():
        rows = _rows(info.shape)
        parts = name.split("/")
        if rows is not None:
            for length in range(len(parts)):
                if (path := "/".join(parts[:length])) in paths:
                    found[path, rows] = None if (path, rows) in found else name
    return found


def _told(layer: _Layer) -> str:
    return " ".join(filter(None, (layer.name[:80], layer.path and f"at {layer.path}")))


def _rows(shape: tuple[int, ...]) -> int | None:
    """Count the rows of a table ``[n, d]`` or ``[1, n, d]``."""
    table = len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)
    return shape[-2] if table and shape[-1] > 1 else None


def _layers(entry: Mapping[str, Any], path: str, depth: int = 0) -> Iterator[_Layer]:
    """Yield a layer, and the layers within it under the paths that Keras gives their weights."""
    config = entry.get("config")
    kind, name = entry.get("class_name"), ""
    if not isinstance(config, dict) or not isinstance(kind, str) or depth > _DEPTH:
        return
    if isinstance(config.get("name"), str):
        name = config["name"]
    yield _Layer(path, kind, name, config)
    seen: Counter[str] = Counter()
    listed = config.get("layers")
    for layer in listed[:_MOST] if isinstance(listed, list) else ():
        # Operations such as an addition stand in the list as well, and are not layers.
        if not isinstance(layer, dict) or ".ops." in str(layer.get("module")):
            continue
        word = _snake(str(layer.get("class_name"))[:200])
        number = seen[word]
        seen[word] += 1
        within = f"layers/{word}_{number}" if number else f"layers/{word}"
        yield from _layers(layer, f"{path}/{within}".lstrip("/"), depth + 1)
    for key, part in config.items():
        if isinstance(part, dict) and "class_name" in part:
            yield from _layers(part, f"{path}/{key}".lstrip("/"), depth + 1)


def _snake(name: str) -> str:
    """Write a class's name as Keras does in paths: ``PositionEmbedding`` is position_embedding."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
