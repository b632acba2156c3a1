"""Configurations: the parts of a model, what their tensors are called, and llama.cpp's own words.

A GGUF file states its sizes under keys such as ``llama.rope.freq_base``. They are translated here
once, so that whatever reads a configuration reads these models too. The rules are those of
llama.cpp's loader (``llama-hparams.h``, ``llama-model.cpp``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints import Checkpoint
from posprobe.data import read_data
from posprobe.encodings import rotary_frequencies
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.settings import LARGEST, number, whole

_DATA = read_data("families/configurations.toml")
#: What modules and configurations of one part of a model are called.
_ROLES: Mapping[str, tuple[str, ...]] = _DATA["roles"]
_DEPTH = 4
#: More parts than any model has.
_MAX_SECTIONS = 64
#: Nested settings that describe no part of the model.
_NO_PARTS = ("attn_config", "pretrained_cfg", "quantization_config", "generation_config")


@dataclass(frozen=True)
class ConfigSection:
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
        value = self.config.get("model_type")
        return value if isinstance(value, str) else None

    @property
    def is_vision(self) -> bool:
        """Whether its positions are patches, as far as names tell."""
        words = set(_words(self.path)) | set(_words(self.model_type or ""))
        return bool(words & set(_ROLES["vision"]))

    def whole(self, *keys: str, most: int, least: int = 1) -> int | None:
        """Read the first whole number that is stated of some, as `posprobe.settings.whole`."""
        path = self.path
        read = (whole(self.config, key, maximum=most, minimum=least, path=path) for key in keys)
        return next((value for value in read if value is not None), None)

    def number(self, *keys: str) -> float | None:
        """Read the first number that is stated of some, as `posprobe.settings.number`."""
        read = (number(self.config, key, path=self.path) for key in keys)
        return next((value for value in read if value is not None), None)

    @property
    def name(self) -> str:
        """What the part is called: its key without ``_config``."""
        return self.path.rpartition(".")[2].removesuffix("_config")


def parts_of(config: Mapping[str, Any]) -> tuple[ConfigSection, ...]:
    """List the whole configuration and the configurations nested in it, outermost first."""
    return tuple(islice(_walk("", config, _DEPTH), _MAX_SECTIONS))


def _walk(path: str, config: Mapping[str, Any], depth: int) -> Iterator[ConfigSection]:
    yield ConfigSection(path, config)
    for key, value in config.items() if depth else ():
        is_part = isinstance(value, Mapping) and (key.endswith("_config") or "model_type" in value)
        if is_part and key not in _NO_PARTS:
            yield from _walk(f"{path}.{key}" if path else key, value, depth - 1)


def part_for(tensor: str, parts: tuple[ConfigSection, ...]) -> ConfigSection:
    """Choose the part whose name the modules of a tensor share most; the whole where none does."""
    if len(parts) == 1:
        return parts[0]
    modules, folder = _words(tensor), tensor.partition(".")[0]
    matching = [
        # Words have no numbers, which tell text_encoder_2 from text_encoder.
        (_agreement(modules, part) + 0.25 * (part.path.split("_config")[0] == folder), part)
        for part in parts[1:]
    ]
    score, best = max(matching, key=lambda pair: pair[0])
    return best if score > 0 else parts[0]


def _agreement(modules: list[str], part: ConfigSection) -> float:
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


def norm_part(checkpoint: Checkpoint, name: str, part: Literal["weight", "bias"]) -> str | None:
    """Find a part of a LayerNorm; checkpoints converted from TensorFlow say gamma and beta."""
    gamma_beta_names = {"weight": "gamma", "bias": "beta"}[part]
    names = (f"{name}.{part}", f"{name}.{gamma_beta_names}")
    return next((name for name in names if name in checkpoint.tensors), None)


def normalised(
    checkpoint: Checkpoint, rows: NDArray[np.float64], name: str, eps: float
) -> NDArray[np.float64]:
    """Apply a LayerNorm of a model: mean 0 and variance 1, then gain and shift (Ba et al. 2016).

    Raises
    ------
    InvalidCheckpoint
        If it is missing or of another width.
    UsageError
        If it has no bias.
    """
    subject = f"{checkpoint.location}: LayerNorm {name}"
    weight, bias = (norm_part(checkpoint, name, part) for part in ("weight", "bias"))
    if weight is None:
        raise InvalidCheckpoint(f"{subject} is missing.")
    if bias is None:
        raise UsageError(f"{subject} has no bias: it may be an RMSNorm, which is not followed.")
    gain, shift = checkpoint.read(weight).values, checkpoint.read(bias).values
    if not gain.shape == shift.shape == rows.shape[1:]:
        raise InvalidCheckpoint(f"{subject} is not {rows.shape[1]} wide.")
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


_KEYS = _DATA["llama_cpp"]
_NAMES = _KEYS["names"]
_NEIGHBOURS = _KEYS["neighbours"]
_SIZES = _KEYS["sizes"]
#: Architectures that rotate, and those with a linear bias, although their files may not say so.
_ROTATING = frozenset({"falcon"})
_LINEAR: Mapping[str, float] = {"bloom": 8.0, "refact": 8.0, "jina-bert-v2": 8.0}


def translated(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose configuration is in the words of a config.json.

    What a config.json beside the file states counts more than what the file says.
    """
    config = checkpoint.config
    if checkpoint.format == "GGUF":
        return replace(checkpoint, config={**as_config(config), **config})
    return checkpoint


def as_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the settings of a GGUF file.

    Parameters
    ----------
    settings
        Settings as stored, and the small tensors by which frequencies are divided as lists of
        numbers.

    Returns
    -------
    dict
        What a config.json would state; values are not checked.
    """
    arch = settings.get("general.architecture")
    if not isinstance(arch, str):
        return {}
    if arch == "clip":
        return _projector(settings)
    prefix = f"{arch}."
    settings_found = {
        key.removeprefix(prefix): value
        for key, value in settings.items()
        if key.startswith(prefix) and value is not None
    }
    config: dict[str, Any] = {
        key: _single(settings_found[name]) for key, name in _SIZES.items() if name in settings_found
    }
    config["model_type"] = _NAMES.get(arch, arch.replace("-", "_"))
    max_bias = settings_found.get("attention.max_alibi_bias") or _LINEAR.get(arch, 0.0)
    if max_bias:
        config["attn_config"] = {"alibi": True, "alibi_bias_max": max_bias}
    elif arch in _ROTATING or any(key.startswith("rope.") for key in settings_found):
        config |= _rotary(arch, settings_found, settings, config)
    return config


def _single(value: Any) -> Any:
    """Take the first number that is not 0 of a list with one for each layer."""
    if isinstance(value, list):
        return next(filter(None, value), None)
    return value


def _rotary(
    arch: str,
    gguf_settings: Mapping[str, Any],
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "rope_theta": _plain(gguf_settings.get("rope.freq_base", 10_000.0))
    }
    parameters |= _scaling(gguf_settings, settings, config)
    sections = gguf_settings.get("rope.dimension_sections")
    if isinstance(sections, list) and any(sections):
        parameters["mrope_section"] = [size for size in sections if size]
    rotary: dict[str, Any] = {"rope_parameters": parameters}
    width = gguf_settings.get("rope.dimension_count")
    if (
        "attention.kv_lora_rank" in gguf_settings
    ):  # the rotated part of a head has a width of its own
        rotary["qk_rope_head_dim"] = width
    elif width is not None:
        rotary["rotary_dim"] = width
        if "head_dim" not in config and "num_attention_heads" not in config:
            rotary["head_dim"] = width
    if arch in _NEIGHBOURS:
        rotary["rope_interleave"] = True
    local = gguf_settings.get("rope.freq_base_swa")
    if local is not None:
        # Both kinds of layers, under the names that transformers gives them.
        rotary["rope_parameters"] = {
            "full_attention": parameters,
            "sliding_attention": {"rope_theta": _plain(local)},
        }
    return rotary


def _scaling(
    gguf_settings: Mapping[str, Any], settings: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Translate the rule that stretches the ladder of frequencies."""
    original = gguf_settings.get("rope.scaling.original_context_length")
    original_entry: dict[str, Any] = (
        {"original_max_position_embeddings": original} if original else {}
    )
    attention = _plain(gguf_settings.get("rope.scaling.attn_factor", 1.0))
    long_factors, short_factors = (
        _numbers(settings, f"rope_factors_{length}.weight") for length in ("long", "short")
    )
    if long_factors and short_factors:
        return original_entry | {
            "rope_type": "longrope",
            "long_factor": long_factors,
            "short_factor": short_factors,
            "attention_factor": attention,
        }
    if divisors := _numbers(settings, "rope_freqs.weight"):
        return _divided(divisors, gguf_settings, config)
    rule = gguf_settings.get("rope.scaling.type")
    factor = _plain(gguf_settings.get("rope.scaling.factor"))
    if (
        factor is None and "rope.scale_linear" in gguf_settings
    ):  # before there was a choice of rules
        rule, factor = "linear", _plain(gguf_settings["rope.scale_linear"])
    if rule not in ("linear", "yarn"):
        return {"rope_type": "default"}
    original_entry |= {"rope_type": rule, "factor": factor}
    if rule == "linear":
        return original_entry
    for key, name in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
        if f"rope.scaling.{name}" in gguf_settings:
            original_entry[key] = _plain(gguf_settings[f"rope.scaling.{name}"])
    if "rope.scaling.yarn_log_multiplier" in gguf_settings:
        # llama.cpp moves this factor from the rotation to the logits, where it cancels.
        original_entry["attention_factor"] = attention
    elif attention != 1.0 and all(
        isinstance(x, float | int) and x > 0 for x in (attention, factor)
    ):
        original_entry["attention_factor"] = attention * (0.1 * math.log(factor) + 1)
    return original_entry


def _divided(
    divisors: list[float], gguf_settings: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Name the rule of Llama 3 where the divisors are its own, else give them as they are.

    The converter computes them from the rule's parameters and stores no parameter.
    """
    base, factor = gguf_settings.get("rope.freq_base", 10_000.0), divisors[-1]
    if 1 < factor < LARGEST and isinstance(base, int | float) and 1 < base < LARGEST:
        plain, _ = rotary_frequencies(2 * len(divisors), base=base)
        for original in (8192, 4096, 2048, 16384, 32768):
            rule = {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": original,
            }
            divided, _ = rotary_frequencies(2 * len(divisors), base=base, scaling=rule)
            if np.allclose(plain / divided, divisors, rtol=1e-5, atol=0):
                return rule
    length = config.get("max_position_embeddings")
    return {
        "rope_type": "longrope",
        "long_factor": divisors,
        "short_factor": divisors,
        "factor": 1.0,
        "attention_factor": 1.0,
        **({"original_max_position_embeddings": length} if length else {}),
    }


def _numbers(settings: Mapping[str, Any], name: str) -> list[float]:
    value = settings.get(name)
    if not isinstance(value, list) or not all(isinstance(number, float) for number in value):
        return []
    return [*map(_plain, value)]


def _plain(number: Any) -> Any:
    """Undo the rounding to float32 where that gives a number of six digits, such as 0.1."""
    if not isinstance(number, float) or not math.isfinite(number):
        return number
    rounded = float(f"{number:.6g}")
    return rounded if math.isclose(rounded, number, rel_tol=1e-7) else number


def _projector(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the settings of llama.cpp's encoders of images (``mmproj``)."""
    keys = {key: f"clip.vision.{name}" for key, name in _KEYS["projector"].items()}
    settings_found = {
        key: settings[name] for key, name in keys.items() if settings.get(name) is not None
    }
    return {"model_type": "mmproj_vision", **settings_found} if settings_found else {}
