"""The parts of a model, and the names of their tensors as PyTorch would write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.data import read_data
from posprobe.settings import number, whole

#: What modules and configurations of one part of a model are called.
_ROLES: Mapping[str, tuple[str, ...]] = read_data("families/configurations.toml")["roles"]
_DEPTH = 4
#: More parts than any model has.
_MOST = 64
#: Nested settings that describe no part of the model.
_NO_PARTS = ("attn_config", "pretrained_cfg", "quantization_config", "generation_config")


@dataclass(frozen=True)
class Part:
    """A piece of the configuration.

    Parameters
    ----------
    path
        Keys that lead to it, joined by dots; empty for the whole.
    config
        Its content.
    """

    path: str
    config: Mapping[str, Any]

    @property
    def model_type(self) -> str | None:
        """The architecture of this part."""
        found = self.config.get("model_type")
        return found if isinstance(found, str) else None

    @property
    def is_vision(self) -> bool:
        """Whether its positions are patches, as far as names tell."""
        words = set(_words(self.path)) | set(_words(self.model_type or ""))
        return bool(words & set(_ROLES["vision"]))

    def whole(self, *keys: str, most: int, least: int = 1) -> int | None:
        """Read the first whole number that is stated of some, as `posprobe.settings.whole`."""
        path = self.path
        read = (whole(self.config, key, most=most, least=least, path=path) for key in keys)
        return next((value for value in read if value is not None), None)

    def number(self, *keys: str) -> float | None:
        """Read the first number that is stated of some, as `posprobe.settings.number`."""
        read = (number(self.config, key, path=self.path) for key in keys)
        return next((value for value in read if value is not None), None)

    @property
    def name(self) -> str:
        """What the part is called: its key without ``_config``."""
        return self.path.rpartition(".")[2].removesuffix("_config")


def parts_of(config: Mapping[str, Any]) -> tuple[Part, ...]:
    """List the whole configuration and the configurations nested in it, outermost first."""
    return tuple(islice(_walk("", config, _DEPTH), _MOST))


def _walk(path: str, config: Mapping[str, Any], depth: int) -> Iterator[Part]:
    yield Part(path, config)
    for key, value in config.items() if depth else ():
        is_part = isinstance(value, Mapping) and (key.endswith("_config") or "model_type" in value)
        if is_part and key not in _NO_PARTS:
            yield from _walk(f"{path}.{key}" if path else key, value, depth - 1)


def part_for(tensor: str, parts: tuple[Part, ...]) -> Part:
    """Choose the part whose name the modules of a tensor share most; the whole where none does."""
    if len(parts) == 1:
        return parts[0]
    modules, folder = _words(tensor), tensor.partition(".")[0]
    named = [
        # Words have no numbers, which tell text_encoder_2 from text_encoder.
        (_agreement(modules, part) + 0.25 * (part.path.split("_config")[0] == folder), part)
        for part in parts[1:]
    ]
    score, best = max(named, key=lambda pair: pair[0])
    return best if score > 0 else parts[0]


def _agreement(modules: list[str], part: Part) -> float:
    """Count the words of the part's path that the module's path holds; outer words weigh more."""
    score = 0.0
    for level, key in enumerate(part.path.split(".")):
        words = _words(key.removesuffix("_config"))
        literal = [word for word in words if word in modules]
        roles = {role for role, names in _ROLES.items() if set(words) & set(names)}
        shared = [role for role in roles if set(_ROLES[role]) & set(modules)]
        if not literal and not shared:
            return score - 1.0 if level == 0 else score - 0.5
        score += 1.0 + 0.5 * len(literal) / max(len(words), 1)
    return score


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[._/\d]+", name.lower()) if word]


def layer_norm(
    rows: NDArray[np.float64],
    gain: NDArray[np.floating[Any]],
    shift: NDArray[np.floating[Any]],
    eps: float,
) -> NDArray[np.float64]:
    """Bring each row to mean 0 and variance 1, then scale and shift (Ba et al. 2016)."""
    values = rows - rows.mean(axis=1, keepdims=True)
    values /= np.sqrt((values**2).mean(axis=1, keepdims=True) + eps)
    return np.asarray(values * gain + shift)


#: What other libraries call the one parameter of an embedding.
_WEIGHT = re.compile(r"(?<=\.)(?:embeddings?|weight):0$|(?<=\.)embeddings?$")


def dotted(name: str) -> str:
    """Write a path of Keras, TensorFlow or Flax with dots; other names stay what they are.

    ``bert/embeddings/position_embeddings/embeddings:0`` becomes
    ``bert.embeddings.position_embeddings.weight``, and ``block_._0`` a layer ``block.0``.
    """
    if "/" not in name:
        return name
    plain = name.replace("/", ".").replace("_._", ".")
    return _WEIGHT.sub("weight", plain).removesuffix(":0")
