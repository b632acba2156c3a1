"""Configurations: their sections, the tensors that belong to them, and llama.cpp's settings.

A GGUF file states its sizes under keys such as ``llama.rope.freq_base``. They are translated here
once, so that everything that reads a configuration also reads these models. The rules are those of
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
from posprobe.settings import MAX_MAGNITUDE, read_integer, read_number

_CONFIG_DATA = read_data("families/configurations.toml")
#: Names of modules and configuration sections by their role in a model.
_ROLE_NAMES: Mapping[str, tuple[str, ...]] = _CONFIG_DATA["roles"]
#: Largest number of nested configurations.
_MAX_CONFIG_DEPTH = 4
#: Largest number of sections; no model has as many.
_MAX_SECTIONS = 64
#: Key under which the configuration of an adapter (PEFT) stands in a checkpoint's.
ADAPTER_KEY = "adapter_config"
#: Endings of the keys of nested configurations; open_clip's is the second.
_SECTION_ENDINGS = ("_config", "_cfg")
#: Nested settings that do not describe a part of the model.
_NOT_SECTIONS = (
    ADAPTER_KEY,
    "attn_config",
    "pretrained_cfg",
    "quantization_config",
    "generation_config",
)


@dataclass(frozen=True)
class ConfigSection:
    """The configuration of a model, or of one of its parts.

    Parameters
    ----------
    path
        Keys that lead to the section, joined by dots; empty for the full configuration.
    config
        Content of the section.
    """

    path: str
    config: Mapping[str, Any]

    @property
    def model_type(self) -> str | None:
        """Architecture that the section states."""
        value = self.config.get("model_type")
        return value if isinstance(value, str) else None

    @property
    def is_vision(self) -> bool:
        """Whether its positions are patches, judging by names."""
        words = set(_split_words(self.path)) | set(_split_words(self.model_type or ""))
        return bool(words & set(_ROLE_NAMES["vision"]))

    def read_integer(self, *keys: str, maximum: int, minimum: int = 1) -> int | None:
        """Return the first stated integer of some keys, as `posprobe.settings.read_integer`."""
        path = self.path
        values = (
            read_integer(self.config, key, maximum=maximum, minimum=minimum, path=path)
            for key in keys
        )
        return next((value for value in values if value is not None), None)

    def read_number(self, *keys: str) -> float | None:
        """Return the first stated number of some keys, as `posprobe.settings.read_number`."""
        values = (read_number(self.config, key, path=self.path) for key in keys)
        return next((value for value in values if value is not None), None)

    @property
    def name(self) -> str:
        """Key of the section without ``_config``."""
        return _remove_section_ending(self.path.rpartition(".")[2])


def list_sections(config: Mapping[str, Any]) -> tuple[ConfigSection, ...]:
    """List the full configuration and the sections nested in it, outermost first."""
    return tuple(islice(_iter_sections("", config, _MAX_CONFIG_DEPTH), _MAX_SECTIONS))


def _iter_sections(
    path: str, config: Mapping[str, Any], depth: int
) -> Iterator[ConfigSection]:
    yield ConfigSection(path, config)
    for key, value in config.items() if depth else ():
        is_section = isinstance(value, Mapping) and (
            key.endswith(_SECTION_ENDINGS) or "model_type" in value
        )
        if is_section and key not in _NOT_SECTIONS:
            yield from _iter_sections(f"{path}.{key}" if path else key, value, depth - 1)


def find_section(tensor: str, sections: tuple[ConfigSection, ...]) -> ConfigSection:
    """Return the section that shares most words with a tensor's name, or the full configuration."""
    if len(sections) == 1:
        return sections[0]
    modules, folder = _split_words(tensor), tensor.partition(".")[0]
    scored = [
        # Words have no numbers, but these distinguish text_encoder_2 from text_encoder.
        (
            _score_agreement(modules, section)
            + 0.25 * (section.path.split("_config")[0] == folder),
            section,
        )
        for section in sections[1:]
    ]
    best_score, best_section = max(scored, key=lambda pair: pair[0])
    return best_section if best_score > 0 else sections[0]


def _remove_section_ending(key: str) -> str:
    for ending in _SECTION_ENDINGS:
        key = key.removesuffix(ending)
    return key


def _score_agreement(modules: list[str], section: ConfigSection) -> float:
    """Score the words of a section's path that a module's path has; outer words weigh more."""
    score = 0.0
    for level, key in enumerate(section.path.split(".")):
        words = _split_words(_remove_section_ending(key))
        literal = [word for word in words if word in modules]
        roles = {role for role, names in _ROLE_NAMES.items() if set(words) & set(names)}
        shared = [role for role in roles if set(_ROLE_NAMES[role]) & set(modules)]
        if not literal and not shared:
            return score - 1.0 if level == 0 else score - 0.5
        score += 1.0 + 0.5 * len(literal) / max(len(words), 1)
    return score


def _split_words(name: str) -> list[str]:
    return [word for word in re.split(r"[._/\d]+", name.lower()) if word]


def find_norm_tensor(
    checkpoint: Checkpoint, name: str, parameter: Literal["weight", "bias"]
) -> str | None:
    """Find a parameter of a LayerNorm; checkpoints from TensorFlow call them gamma and beta."""
    gamma_beta_names = {"weight": "gamma", "bias": "beta"}[parameter]
    names = (f"{name}.{parameter}", f"{name}.{gamma_beta_names}")
    return next((name for name in names if name in checkpoint.tensors), None)


def apply_layer_norm(
    checkpoint: Checkpoint, rows: NDArray[np.float64], name: str, eps: float
) -> NDArray[np.float64]:
    """Apply a LayerNorm of a model: mean 0 and variance 1, then gain and shift (Ba et al. 2016).

    Raises
    ------
    InvalidCheckpoint
        If the LayerNorm is missing or has another width.
    UsageError
        If the LayerNorm has no bias.
    """
    subject = f"{checkpoint.location}: LayerNorm {name}"
    weight, bias = (
        find_norm_tensor(checkpoint, name, parameter) for parameter in ("weight", "bias")
    )
    if weight is None:
        raise InvalidCheckpoint(f"{subject} is missing.")
    if bias is None:
        raise UsageError(
            f"{subject} has no bias: it may be an RMSNorm, which is not followed."
        )
    gain, shift = checkpoint.read(weight).values, checkpoint.read(bias).values
    if not gain.shape == shift.shape == rows.shape[1:]:
        raise InvalidCheckpoint(f"{subject} is not {rows.shape[1]} wide.")
    values = rows - rows.mean(axis=1, keepdims=True)
    values /= np.sqrt((values**2).mean(axis=1, keepdims=True) + eps)
    return np.asarray(values * gain + shift)


#: Names of an embedding's only parameter in other libraries.
_WEIGHT_ENDING = re.compile(r"(?<=\.)(?:embeddings?|weight):0$|(?<=\.)embeddings?$")


def dotted_name(name: str) -> str:
    """Write a path of Keras, TensorFlow or Flax with dots; other names are returned unchanged.

    ``bert/embeddings/position_embeddings/embeddings:0`` becomes
    ``bert.embeddings.position_embeddings.weight``, and ``block_._0`` a layer ``block.0``.
    """
    if "/" not in name:
        return name
    dotted = name.replace("/", ".").replace("_._", ".")
    return _WEIGHT_ENDING.sub("weight", dotted).removesuffix(":0")


_LLAMA_CPP = _CONFIG_DATA["llama_cpp"]
_ARCHITECTURE_NAMES = _LLAMA_CPP["names"]
_NEIGHBOUR_PAIRS = _LLAMA_CPP["neighbours"]
_SIZE_KEYS = _LLAMA_CPP["sizes"]
#: Architectures that rotate although their files may not say so.
_IMPLICIT_ROTARY = frozenset({"falcon"})
#: Largest exponent of the linear bias of architectures whose files may not state it.
_IMPLICIT_ALIBI: Mapping[str, float] = {"bloom": 8.0, "refact": 8.0, "jina-bert-v2": 8.0}


def translate_config(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose configuration has the keys of a config.json.

    A config.json beside a GGUF file takes precedence over the settings in the file.
    """
    config = checkpoint.config
    if checkpoint.format == "GGUF":
        return replace(checkpoint, config={**translate_settings(config), **config})
    return checkpoint


def translate_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the settings of a GGUF file.

    Parameters
    ----------
    settings
        Settings as stored, and the small tensors by which frequencies are divided as lists of
        numbers.

    Returns
    -------
    dict
        Keys and values of a config.json; values are not checked.
    """
    arch = settings.get("general.architecture")
    if not isinstance(arch, str):
        return {}
    if arch == "clip":
        return _translate_projector(settings)
    prefix = f"{arch}."
    architecture_settings = {
        key.removeprefix(prefix): value
        for key, value in settings.items()
        if key.startswith(prefix) and value is not None
    }
    config: dict[str, Any] = {
        key: _first_nonzero(architecture_settings[name])
        for key, name in _SIZE_KEYS.items()
        if name in architecture_settings
    }
    config["model_type"] = _ARCHITECTURE_NAMES.get(arch, arch.replace("-", "_"))
    max_bias = architecture_settings.get(
        "attention.max_alibi_bias"
    ) or _IMPLICIT_ALIBI.get(arch, 0.0)
    if max_bias:
        config["attn_config"] = {"alibi": True, "alibi_bias_max": max_bias}
    elif arch in _IMPLICIT_ROTARY or any(
        key.startswith("rope.") for key in architecture_settings
    ):
        config |= _translate_rotary(arch, architecture_settings, settings, config)
    return config


def _first_nonzero(value: Any) -> Any:
    """Return the first nonzero number of a list with one per layer; other values unchanged."""
    if isinstance(value, list):
        return next(filter(None, value), None)
    return value


def _translate_rotary(
    arch: str,
    architecture_settings: Mapping[str, Any],
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "rope_theta": _undo_rounding(
            architecture_settings.get("rope.freq_base", 10_000.0)
        )
    }
    parameters |= _translate_scaling(architecture_settings, settings, config)
    sections = architecture_settings.get("rope.dimension_sections")
    if isinstance(sections, list) and any(sections):
        parameters["mrope_section"] = [size for size in sections if size]
    rotary: dict[str, Any] = {"rope_parameters": parameters}
    rotary_dim = architecture_settings.get("rope.dimension_count")
    if (
        "attention.kv_lora_rank" in architecture_settings
    ):  # the rotated part of a head has a width of its own
        rotary["qk_rope_head_dim"] = rotary_dim
    elif rotary_dim is not None:
        rotary["rotary_dim"] = rotary_dim
        if "head_dim" not in config and "num_attention_heads" not in config:
            rotary["head_dim"] = rotary_dim
    if arch in _NEIGHBOUR_PAIRS:
        rotary["rope_interleave"] = True
    local_base = architecture_settings.get("rope.freq_base_swa")
    if local_base is not None:
        # Both kinds of layers, under the names that transformers gives them.
        rotary["rope_parameters"] = {
            "full_attention": parameters,
            "sliding_attention": {"rope_theta": _undo_rounding(local_base)},
        }
    return rotary


def _translate_scaling(
    architecture_settings: Mapping[str, Any],
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Translate the rule that scales the rotary frequencies."""
    original_length = architecture_settings.get("rope.scaling.original_context_length")
    parameters: dict[str, Any] = (
        {"original_max_position_embeddings": original_length} if original_length else {}
    )
    attention_factor = _undo_rounding(
        architecture_settings.get("rope.scaling.attn_factor", 1.0)
    )
    long_factors, short_factors = (
        _float_list(settings, f"rope_factors_{length}.weight")
        for length in ("long", "short")
    )
    if long_factors and short_factors:
        return parameters | {
            "rope_type": "longrope",
            "long_factor": long_factors,
            "short_factor": short_factors,
            "attention_factor": attention_factor,
        }
    if divisors := _float_list(settings, "rope_freqs.weight"):
        return _translate_divisors(divisors, architecture_settings, config)
    rule = architecture_settings.get("rope.scaling.type")
    factor = _undo_rounding(architecture_settings.get("rope.scaling.factor"))
    if factor is None and "rope.scale_linear" in architecture_settings:
        # The key of files from before there was a choice of rules.
        rule = "linear"
        factor = _undo_rounding(architecture_settings["rope.scale_linear"])
    if rule not in ("linear", "yarn"):
        return {"rope_type": "default"}
    parameters |= {"rope_type": rule, "factor": factor}
    if rule == "linear":
        return parameters
    for key, name in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
        if f"rope.scaling.{name}" in architecture_settings:
            parameters[key] = _undo_rounding(
                architecture_settings[f"rope.scaling.{name}"]
            )
    if "rope.scaling.yarn_log_multiplier" in architecture_settings:
        # llama.cpp moves this factor from the rotation to the logits, where it cancels out.
        parameters["attention_factor"] = attention_factor
    elif attention_factor != 1.0 and all(
        isinstance(x, float | int) and x > 0 for x in (attention_factor, factor)
    ):
        parameters["attention_factor"] = attention_factor * (0.1 * math.log(factor) + 1)
    return parameters


def _translate_divisors(
    divisors: list[float],
    architecture_settings: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the rule of Llama 3 if it gives these divisors, else the divisors themselves.

    The converter computes the divisors from the rule's parameters and does not store these.
    """
    base, factor = architecture_settings.get("rope.freq_base", 10_000.0), divisors[-1]
    if (
        1 < factor < MAX_MAGNITUDE
        and isinstance(base, int | float)
        and 1 < base < MAX_MAGNITUDE
    ):
        unscaled, _ = rotary_frequencies(2 * len(divisors), base=base)
        for original_length in (8192, 4096, 2048, 16384, 32768):
            rule = {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": original_length,
            }
            scaled, _ = rotary_frequencies(2 * len(divisors), base=base, scaling=rule)
            if np.allclose(unscaled / scaled, divisors, rtol=1e-5, atol=0):
                return rule
    max_positions = config.get("max_position_embeddings")
    return {
        "rope_type": "longrope",
        "long_factor": divisors,
        "short_factor": divisors,
        "factor": 1.0,
        "attention_factor": 1.0,
        **({"original_max_position_embeddings": max_positions} if max_positions else {}),
    }


def _float_list(settings: Mapping[str, Any], name: str) -> list[float]:
    value = settings.get(name)
    if not isinstance(value, list) or not all(
        isinstance(number, float) for number in value
    ):
        return []
    return [*map(_undo_rounding, value)]


def _undo_rounding(number: Any) -> Any:
    """Undo the rounding to float32 if the result has at most six digits, such as 0.1."""
    if not isinstance(number, float) or not math.isfinite(number):
        return number
    rounded = float(f"{number:.6g}")
    return rounded if math.isclose(rounded, number, rel_tol=1e-7) else number


def _translate_projector(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the settings of llama.cpp's image encoders (``mmproj``)."""
    keys = {key: f"clip.vision.{name}" for key, name in _LLAMA_CPP["projector"].items()}
    config = {
        key: settings[name]
        for key, name in keys.items()
        if settings.get(name) is not None
    }
    return {"model_type": "mmproj_vision", **config} if config else {}
