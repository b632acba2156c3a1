"""Rotary and linear positions as configurations state them, with the rules of transformers.

The keys have changed over the years: ``rope_parameters`` holds everything today, ``rope_theta`` and
``rope_scaling`` did before, and the first models had other keys.

Layers of one model may differ. Layers with a window never see a distance beyond it, whatever the
context of the model, and layers that do not rotate have no positions. Newer configurations name the
kind of every layer under ``layer_types``; older ones state a pattern, or leave it to the code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from posprobe import settings
from posprobe.data import read_data
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families.configurations import ConfigSection
from posprobe.families.position_keys import list_unread_keys
from posprobe.schemes import RotarySpec as RotarySpec

_LAYER_KEYS = read_data("families/configurations.toml")["layers"]
_FULL_INTERVALS = _LAYER_KEYS["full_intervals"]
_WINDOWED_ROTATE_TYPES = _LAYER_KEYS["windowed_rotate"]
_UNROTATED_INTERVALS = _LAYER_KEYS["unrotated_intervals"]
_WITHOUT_ATTENTION = _LAYER_KEYS["without_attention"]
#: Names of layers with a window in ``layer_types`` and older configurations.
_SLIDING_NAMES = ("sliding_attention", "hybrid_sliding", "local")
#: Architectures whose ``sliding_window`` counts the positions on one side, without the query.
_RADIUS_WINDOW_TYPES = {
    "embedding_gemma2_text",
    "neomme",
    "openai_privacy_filter",
    "ultrabert",
}
#: Widest head; a configuration that states more is damaged.
MAX_HEAD_DIM = 2**16
#: Longest side of an image or a patch in pixels; a configuration that states more is damaged.
MAX_CONFIG_PIXELS = 2**16
#: Longest context or window in positions; a configuration that states more is damaged.
MAX_CONFIG_POSITIONS = 2**31


@dataclass(frozen=True)
class LayerKind:
    """A kind of layers, which rotate in the same way.

    Parameters
    ----------
    name
        Name as in ``layer_types``, such as ``sliding_attention``.
    window
        Positions that a query sees on one side, itself included; None for all.
    head_dim
        Width of a head if it is specific to this kind of layers.
    rotates
        Whether queries and keys are rotated.
    """

    name: str
    window: int | None = None
    head_dim: int | None = None
    rotates: bool = True


def list_layer_kinds(section: ConfigSection) -> list[LayerKind]:
    """List the kinds of all attention layers, or of one period of them.

    Raises
    ------
    InvalidCheckpoint
        If the configuration's statement about its layers is invalid.
    """
    return [
        layer_kind for layer_kind in _iter_layer_kinds(section) if layer_kind is not None
    ]


def _iter_layer_kinds(section: ConfigSection) -> Iterator[LayerKind | None]:
    """Yield the kind of every layer, or of one period; None for layers without attention."""
    flags = _read_rotation_flags(section)
    layer_types = _read_layer_types(section, flags)
    has_window = (
        _read_layer_window(section, section.config, _SLIDING_NAMES[0]) is not None
    )
    layer_configs = _read_layer_configs(section.config)
    dense_layers = _find_dense_layers(section.config)
    for layer, name in enumerate(layer_types):
        layer_config = layer_configs.get(layer, section.config)
        rotates = flags[layer] if len(flags) == len(layer_types) else True
        if section.model_type in _WINDOWED_ROTATE_TYPES and has_window:
            rotates = name in _SLIDING_NAMES or layer in dense_layers
        yield (
            None
            if name in _WITHOUT_ATTENTION
            else _build_layer_kind(section, name, layer_config, rotates=rotates)
        )


def find_rotating_layers(
    section: ConfigSection, n_layers: int, layers: str = ""
) -> set[int]:
    """Return the indices of the layers that one encoding rotates.

    Parameters
    ----------
    section
        Configuration section of the model.
    n_layers
        Number of layers.
    layers
        Name in `RotarySpec`: a kind of ``layer_types``, ``global`` or ``local``; empty for all.
    """
    layer_kinds = list(_iter_layer_kinds(section))

    def is_rotated(layer_kind: LayerKind | None) -> bool:
        if layer_kind is None or not layer_kind.rotates:
            return False
        is_sliding = layer_kind.name in _SLIDING_NAMES
        return {"": True, "global": not is_sliding, "local": is_sliding}.get(
            layers, layer_kind.name == layers
        )

    return {
        layer
        for layer in range(n_layers)
        if is_rotated(layer_kinds[layer % len(layer_kinds)])
    }


def find_layer_kind(section: ConfigSection, name: str) -> LayerKind:
    """Return the kind of layers with a name; built from the name if no layer has it."""
    matching = (
        layer_kind for layer_kind in list_layer_kinds(section) if layer_kind.name == name
    )
    return next(matching, _build_layer_kind(section, name, section.config, rotates=True))


def _build_layer_kind(
    section: ConfigSection, name: str, layer_config: Mapping[str, Any], *, rotates: bool
) -> LayerKind:
    window, head_dim = _read_layer_window(section, layer_config, name), None
    if "per_layer_config" in section.config:
        head_dim = settings.read_integer(
            layer_config, "head_dim", maximum=MAX_HEAD_DIM, path=section.path
        )
    elif "full" in name:
        head_dim = settings.read_integer(
            layer_config, "global_head_dim", maximum=MAX_HEAD_DIM, path=section.path
        )
    return LayerKind(name, window, head_dim, rotates)


def _read_layer_configs(config: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
    """Return the configurations of the layers in ``per_layer_config``."""
    declared = config.get("per_layer_config")
    if not isinstance(declared, Mapping):
        return {}
    return {
        int(layer): {
            **config,
            **layer_entry,
        }  # the numbers have as many digits as the largest
        for layer, layer_entry in declared.items()
        if isinstance(layer_entry, Mapping) and re.fullmatch(r"[0-9]{1,5}", str(layer))
    }


def _find_dense_layers(config: Mapping[str, Any]) -> set[int]:
    """Return the layers of Cohere 2's mixture that rotate although they have no window."""
    types, pattern = config.get("mlp_layer_types"), "prefix_dense_sliding_window_pattern"
    if not isinstance(types, list) or config.get(pattern) != 1:
        return set()
    return {layer for layer, name in enumerate(types) if name == "dense"}


def _read_layer_window(
    section: ConfigSection, layer_config: Mapping[str, Any], name: str
) -> int | None:
    """Read the window of a kind of layers; -1 and false stand for no window."""
    if "chunk" in name:  # attention stays within a chunk
        return settings.read_integer(
            layer_config,
            "attention_chunk_size",
            maximum=MAX_CONFIG_POSITIONS,
            path=section.path,
        )
    if name not in _SLIDING_NAMES or layer_config.get("use_sliding_window") is False:
        return None
    keys = ("sliding_window", "local_attention", "attention_window_size")
    key = next(
        (key for key in keys if layer_config.get(key) not in (None, -1, False)), None
    )
    if key is None:
        return None
    size = (
        settings.read_integer(
            layer_config, key, maximum=MAX_CONFIG_POSITIONS, path=section.path
        )
        or 0
    )
    if section.model_type in _RADIUS_WINDOW_TYPES:
        return size + 1
    # Gemma 3's code halves the window for bidirectional attention.
    is_bidirectional = layer_config.get("use_bidirectional_attention") in (True, "all")
    return size // 2 + 1 if key == "local_attention" or is_bidirectional else size


def _read_rotation_flags(section: ConfigSection) -> list[bool]:
    """Return whether each layer rotates; empty if all do."""
    declared = section.config.get("no_rope_layers") or section.config.get(
        "layer_rope_theta"
    )
    if isinstance(declared, list) and declared:
        return [flag != 0 for flag in declared[: settings.MAX_CONFIG_LAYERS]]
    default_interval = _UNROTATED_INTERVALS.get(section.model_type or "")
    if default_interval is None:
        return []
    interval = (
        section.read_integer("no_rope_layer_interval", maximum=settings.MAX_CONFIG_LAYERS)
        or default_interval
    )
    return [
        (layer + 1) % interval != 0 for layer in range(_count_layers(section) or interval)
    ]


def _read_layer_types(section: ConfigSection, flags: list[bool]) -> list[str]:
    """Name the kind of every layer, or of one period if the number of layers is unknown."""
    config = section.config
    declared = config.get("layer_types")
    if declared:
        if not isinstance(declared, list) or not all(
            isinstance(name, str) for name in declared
        ):
            raise settings.wrong_value_error(
                "layer_types", declared, "a list of names", section.path
            )
        return _without_mlp_blocks(declared, section)[: settings.MAX_CONFIG_LAYERS]
    if config.get("attention_chunk_size") and flags:
        return ["chunked_attention" if rotates else "full_attention" for rotates in flags]
    full_type, sliding = "full_attention", _SLIDING_NAMES[0]
    if _read_layer_window(section, config, sliding) is None:
        return [full_type] * (len(flags) or 1)
    if config.get("use_sliding_window") and "max_window_layers" in config:
        n_full_layers = section.read_integer(
            "max_window_layers", maximum=settings.MAX_CONFIG_LAYERS, minimum=0
        )
        n_layers = _count_layers(section) or 1
        n_before = min(n_full_layers or 0, n_layers)
        return [full_type] * n_before + [sliding] * (n_layers - n_before)
    default_interval = _FULL_INTERVALS.get(section.model_type or "")
    pattern = config.get(
        "sliding_window_pattern", config.get("_sliding_window_pattern", default_interval)
    )
    period = len(pattern) if isinstance(pattern, str) else pattern
    if type(period) is not int or not 1 <= period <= settings.MAX_CONFIG_LAYERS:
        return [sliding] * (len(flags) or 1)
    return [
        sliding if (layer + 1) % period else full_type
        for layer in range(_count_layers(section) or period)
    ]


def _without_mlp_blocks(names: list[str], section: ConfigSection) -> list[str]:
    """Leave out ``mlp`` after each layer, where a configuration lists blocks and not layers."""
    n_layers = _count_layers(section)
    lists_blocks = len(names) == 2 * (n_layers or 0) and set(names[1::2]) == {"mlp"}
    return names[::2] if lists_blocks else names


def _count_layers(section: ConfigSection) -> int | None:
    count = section.read_integer("num_hidden_layers", maximum=settings.MAX_CONFIG_LAYERS)
    counts_blocks = section.model_type in _ROTARY_KEYS["counting_blocks"]
    return count // 2 if count and counts_blocks else count


_ROTARY_KEYS = read_data("families/configurations.toml")["rotary"]
_ROTATING_TYPES = _ROTARY_KEYS["rotating"]
_INTERLEAVED_TYPES = _ROTARY_KEYS["interleaved"]
_BACKWARDS_TYPES = _ROTARY_KEYS["backwards"]
_IN_TURN_TYPES = _ROTARY_KEYS["in_turn"]
_LADDER_LAYERS: Mapping[str, str] = _ROTARY_KEYS["ladder_layers"]
_HEAD_COUNT_KEYS = _ROTARY_KEYS["heads"]
_ROTARY_LENGTH_KEYS = _ROTARY_KEYS["lengths"]
#: Architectures for images whose rows and columns turn one half of the pairs each.
_AXIAL_TYPES = re.compile(
    r"(?:qwen2(?:_5)?_vl|qwen3_vl)(?:_moe)?_vision|pixtral|gemma4_vision|llama4_vision_model"
    r"|dinov3_vit|eomt_dinov3"
)
#: timm's architectures that rotate.
_TIMM_ROTARY = re.compile(
    r"eva02_(?!enormous)|deepseek_vit|gemma4_vit|qwen3_vit|vit_pe_|vit_.*(?:_rope_|dinov3|sapiens2|lingbot)"
)
#: Largest number of heads; a configuration that states more is damaged.
_MAX_CONFIG_HEADS = 2**12
#: Keys that state that the numbers of a pair are neighbours.
_INTERLEAVED_KEYS = ("rope_interleave", "rotary_emb_interleaved")
#: Key of the positions in training, where the context that is promised is longer (Nomic).
_TRAINED_LENGTH_KEY = "max_trained_positions"
#: Largest number of kinds of layers with their own frequencies.
_MAX_LADDERS = 64


def find_rotary_evidence(section: ConfigSection) -> str | None:
    """Return the key by which a section states that it rotates; None if it does not."""
    config = section.config
    scheme = config.get("position_embedding_type", config.get("position_embeddings_type"))
    if scheme in ("rotary", "rope"):
        return f"position_embedding_type is {scheme}"
    if isinstance(scheme, str) or (
        "position_embedding_type" in config and scheme is None
    ):
        return None
    if any(
        config.get(key) == off_value
        for key, off_value in _ROTARY_KEYS["off_values"].items()
        if key in config
    ):
        return None
    for key in _ROTARY_KEYS["present_keys"]:
        if config.get(key) not in (None, {}):
            return str(key)
    for key in _ROTARY_KEYS["nonzero_keys"]:
        if config.get(key):
            return str(key)
    if config.get("use_rotary_embedding") or config.get("use_rope"):
        return "use_rotary_embedding"
    if section.model_type in _ROTATING_TYPES:
        return f"model_type is {section.model_type}"
    return None


def find_timm_evidence(section: ConfigSection) -> str | None:
    """Name the timm architecture if it rotates; its configuration states no parameters."""
    architecture = section.config.get("architecture")
    rotates = isinstance(architecture, str) and _TIMM_ROTARY.match(architecture)
    return f"timm's architecture {architecture}" if rotates else None


def read_rotary_specs(section: ConfigSection) -> tuple[RotarySpec, ...]:
    """Read the rotary encodings of a section: one, or one for each kind of layers.

    Raises
    ------
    InvalidCheckpoint
        If the configuration does not state the width of a head, or has values other than numbers.
    """
    return tuple(_iter_specs(section))


def _iter_specs(section: ConfigSection) -> Iterator[RotarySpec]:
    config = section.config
    declared = config.get("rope_parameters") or config.get("rope_scaling") or {}
    declared = declared or _read_dynamic_factor(section)
    if not isinstance(declared, Mapping):
        raise settings.wrong_value_error(
            "rope_parameters", declared, "a mapping", section.path
        )
    if not settings.is_finite(declared):
        raise settings.wrong_value_error(
            "rope_parameters", dict(declared), "a mapping of finite numbers"
        )
    nested = {key: value for key, value in declared.items() if isinstance(value, Mapping)}
    if len(nested) > _MAX_LADDERS:
        raise settings.wrong_value_error(
            "rope_parameters", f"{len(nested)} ladders", "one", section.path
        )
    if nested and not any(key in declared for key in ("rope_type", "type", "rope_theta")):
        for key, parameters in nested.items():
            layers = _LADDER_LAYERS.get(str(key), str(key))
            yield _build_spec(
                section, parameters, layers, find_layer_kind(section, layers)
            )
        return
    if (local_base := _local_base(config)) is not None:
        yield _build_spec(
            section, declared, "global", find_layer_kind(section, "full_attention")
        )
        yield _build_spec(
            section,
            {"rope_theta": local_base},
            "local",
            find_layer_kind(section, "local"),
        )
        return
    layer_kinds = list(
        dict.fromkeys(
            layer_kind for layer_kind in list_layer_kinds(section) if layer_kind.rotates
        )
    )
    is_uniform = (
        len({(layer_kind.window, layer_kind.head_dim) for layer_kind in layer_kinds}) == 1
    )
    for layer_kind in layer_kinds[:1] if is_uniform else layer_kinds:
        yield _build_spec(
            section, declared, "" if is_uniform else layer_kind.name, layer_kind
        )


def _read_dynamic_factor(section: ConfigSection) -> Mapping[str, Any]:
    """Return the rule of Nomic's BERT, dynamic NTK, under the names of transformers."""
    factor = section.read_number("rotary_scaling_factor")
    return {"rope_type": "dynamic", "factor": factor} if factor else {}


def _local_base(config: Mapping[str, Any]) -> Any:
    """Return the base of local layers under the older keys of Gemma 3 and ModernBERT."""
    if config.get("rope_parameters"):
        return None
    return config.get("rope_local_base_freq", config.get("local_rope_theta"))


def _build_spec(
    section: ConfigSection,
    declared: Mapping[str, Any],
    layers: str,
    layer_kind: LayerKind,
) -> RotarySpec:
    rule_name = _read_rule_name(declared)
    rope_section = ConfigSection("rope_parameters", declared)
    stated_base = rope_section.read_number("rope_theta")
    base = stated_base or section.read_number(*_ROTARY_KEYS["bases"]) or 10_000.0
    head_dim = _read_latent_dim(section) or layer_kind.head_dim or _read_head_dim(section)
    max_positions = section.read_integer(
        *_ROTARY_LENGTH_KEYS, maximum=MAX_CONFIG_POSITIONS
    )
    key = "original_max_position_embeddings"
    lengths = (
        source.read_integer(key, maximum=MAX_CONFIG_POSITIONS)
        for source in (rope_section, section)
    )
    original_length = next(filter(None, lengths), None)
    trained_length = section.read_integer(
        _TRAINED_LENGTH_KEY, maximum=MAX_CONFIG_POSITIONS
    )
    scaling = {} if rule_name in ("default", "axial", "mrope") else dict(declared)
    if scaling and original_length:
        scaling.setdefault(key, original_length)
    if rule_name == "dynamic" and trained_length:
        scaling[_TRAINED_LENGTH_KEY] = trained_length
    partial = _read_partial(section, declared, head_dim)
    if _read_latent_dim(section):
        # It states a share of the whole head there, of which the rotated part has its own width.
        scaling.pop("partial_rotary_factor", None)
    step, axis_steps, extent, grid_notes = _read_step(section, base, head_dim)
    sections, sections_in_turn = _read_sections(section, declared, head_dim)
    is_interleaved = section.model_type in _INTERLEAVED_TYPES
    spec = RotarySpec(
        head_dim=head_dim,
        base=base,
        partial=partial,
        scaling=scaling,
        max_positions=max_positions,
        training_length=original_length or trained_length or max_positions,
        axes=_count_axes(section, rule_name),
        step=step,
        across=axis_steps,
        extent=extent,
        sections=sections,
        sections_in_turn=sections_in_turn,
        window=_limit_window(layer_kind.window, max_positions),
        interleaved=is_interleaved
        or any(section.config.get(key) for key in _INTERLEAVED_KEYS),
        backwards=section.model_type in _BACKWARDS_TYPES,
        layers=layers,
        unread_keys=list_unread_keys(section),
        notes=(
            *_layer_notes(section),
            *_scaling_notes(declared, scaling),
            *_unrotated_notes(section, head_dim, partial),
            *grid_notes,
        ),
    )
    _check_spec(spec)
    return spec


def _check_spec(spec: RotarySpec) -> None:
    """Refuse a configuration whose parameters contradict each other."""
    try:
        spec.ladder()
    except UsageError as error:
        raise InvalidCheckpoint(f"the configuration says: {error}") from error


def _read_rule_name(declared: Mapping[str, Any]) -> str:
    rope_types = [
        settings.read_text(declared, key, path="rope_parameters")
        for key in ("rope_type", "type")
    ]
    return next(filter(None, rope_types), "default")


def _limit_window(window: int | None, max_positions: int | None) -> int | None:
    """Return the window if it is shorter than the context, else None."""
    return window if window and window < (max_positions or math.inf) else None


def _read_sections(
    section: ConfigSection, declared: Mapping[str, Any], head_dim: int
) -> tuple[tuple[int, ...], bool]:
    """Read the pairs of time, rows and columns, and whether these take pairs in turn."""
    sections = settings.read_integers(
        declared, "mrope_section", maximum=head_dim, max_length=4, path="rope_parameters"
    )
    if section.model_type in _ROTARY_KEYS["rows_first"]:
        sections = None
    in_turn = declared.get("mrope_interleaved", section.model_type in _IN_TURN_TYPES)
    return tuple(sections or ()), bool(in_turn)


def _count_axes(section: ConfigSection, rule_name: str) -> int:
    if section.model_type == "vjepa2":
        return 3  # frames, rows and columns
    return (
        2
        if rule_name == "axial" or _AXIAL_TYPES.fullmatch(section.model_type or "")
        else 1
    )


def _layer_notes(section: ConfigSection) -> Iterator[str]:
    """Yield a note about the number of layers that do not rotate."""
    layer_kinds = list_layer_kinds(section)
    if n_without_rotation := sum(not layer_kind.rotates for layer_kind in layer_kinds):
        verb = "does" if n_without_rotation == 1 else "do"
        yield f"{n_without_rotation} of {len(layer_kinds)} layers {verb} not rotate"


def _scaling_notes(
    declared: Mapping[str, Any], scaling: Mapping[str, Any]
) -> Iterator[str]:
    if not scaling and declared.get("factor") not in (None, 1):
        yield "no rule of scaling is named, so that the factor has no effect"


def read_logit_scale(section: ConfigSection, head_dim: int) -> float | None:
    """Return the factor of logits in addition to one over the root of the width of a head.

    None if the configuration does not state it (``query_pre_attn_scalar`` of Gemma,
    ``attention_multiplier`` of Granite, ``mscale_all_dim`` of DeepSeek).

    Raises
    ------
    InvalidCheckpoint
        If the value is not a positive number.
    """
    if scalar := section.read_number("query_pre_attn_scalar"):
        return math.sqrt(head_dim / scalar)
    if factor := section.read_number("attention_multiplier"):
        return factor * math.sqrt(head_dim)
    scaling = section.config.get("rope_parameters") or section.config.get("rope_scaling")
    if (
        not _read_latent_dim(section)
        or not isinstance(scaling, Mapping)
        or not scaling.get("mscale_all_dim")
    ):
        return None
    rope_section = ConfigSection("rope_parameters", scaling)
    share, factor = (
        rope_section.read_number("mscale_all_dim") or 0.0,
        rope_section.read_number("factor") or 1.0,
    )
    # DeepSeek's code applies it in addition to the factor on cosines and sines.
    return (0.1 * share * math.log(factor) + 1) ** 2 if factor > 1 else None


def _unrotated_notes(
    section: ConfigSection, head_dim: int, partial: float
) -> Iterator[str]:
    """Yield a note about the dimensions of a head that are not rotated."""
    unrotated_dim = (
        section.read_integer("qk_nope_head_dim", maximum=MAX_HEAD_DIM, minimum=0) or 0
    )
    width = head_dim + (unrotated_dim if _read_latent_dim(section) else 0)
    rotated_dim = 2 * (int(head_dim * partial) // 2)
    if 0 < rotated_dim < width:
        yield (
            f"{rotated_dim} of the {width} numbers of a head are rotated; "
            "the others add to a logit what does not depend on position, "
            "and take part in no number here"
        )


def _read_step(
    section: ConfigSection, base: float, head_dim: int
) -> tuple[float, float, int | None, tuple[str, ...]]:
    """Read the increment per patch of the coordinate that turns the pairs.

    Returns
    -------
    tuple
        Increment along rows, ratio of columns to rows, number of patches along an axis if the
        configuration states it, and notes.
    """
    if section.model_type == "pixtral":
        image, patch = (
            section.read_integer(key, maximum=MAX_CONFIG_PIXELS) or 0
            for key in ("image_size", "patch_size")
        )
        extent = image // patch if image >= patch > 0 else None
        return (
            1.0,
            base ** (-2 / head_dim),
            extent,
            (),
        )  # rows and columns take pairs in turn
    if section.model_type not in ("dinov3_vit", "eomt_dinov3"):
        return 1.0, 1.0, None, ()
    image_size = settings.read_size(
        section.config, "image_size", maximum=MAX_CONFIG_PIXELS
    )
    patch_size = settings.read_size(
        section.config, "patch_size", maximum=MAX_CONFIG_PIXELS
    )
    if image_size is None or patch_size is None or min(image_size) < max(patch_size):
        raise InvalidCheckpoint(
            "its coordinates run from -1 to 1 over the image, but the configuration does not give "
            'the number of patches. Add "image_size" and "patch_size" to config.json.'
        )
    rows, columns = (
        image // patch for image, patch in zip(image_size, patch_size, strict=True)
    )
    note = (
        "coordinates run from -1 to 1 over the image: wavelengths are "
        f"those of {rows} patches along an axis (image_size "
        f"{image_size[0]}), and grow with their number"
    )
    return 4 * math.pi / rows, rows / columns, rows, (note,)


def _read_partial(
    section: ConfigSection, declared: Mapping[str, Any], head_dim: int
) -> float:
    config = section.config
    if config.get("rotary_dim") is not None:
        return (section.read_integer("rotary_dim", maximum=MAX_HEAD_DIM) or 0) / head_dim
    for key in ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"):
        for source in (declared, config):
            share = settings.read_number(source, key, path=section.path)
            if share is not None:
                # In multi-head latent attention the rotated part of a head has its own width.
                return 1.0 if _read_latent_dim(section) else share
    return 1.0


def _read_latent_dim(section: ConfigSection) -> int:
    return section.read_integer("qk_rope_head_dim", maximum=MAX_HEAD_DIM, minimum=0) or 0


def _read_head_dim(section: ConfigSection) -> int:
    declared = section.read_integer(*_ROTARY_KEYS["widths"], maximum=MAX_HEAD_DIM)
    if declared is not None:
        return declared
    hidden_size = section.read_integer(
        *_ROTARY_KEYS["hidden"], maximum=MAX_HEAD_DIM * _MAX_CONFIG_HEADS
    )
    heads = read_head_count(section)
    if not hidden_size or not heads or hidden_size < heads:
        prefix = f"{section.path}: " if section.path else ""
        raise InvalidCheckpoint(
            f"{prefix}it rotates queries and keys, but the configuration "
            "does not give the width of "
            'a head. State "hidden_size" and "num_attention_heads", or "head_dim", in config.json.'
        )
    return hidden_size // heads


def read_head_count(section: ConfigSection) -> int | None:
    """Return the number of query heads that a section states; None without one.

    Raises
    ------
    InvalidCheckpoint
        If the value is not an integer.
    """
    return section.read_integer(*_HEAD_COUNT_KEYS, maximum=_MAX_CONFIG_HEADS)


def find_alibi_evidence(section: ConfigSection) -> str | None:
    """Return the key by which a section states that it uses ALiBi; None if it does not."""
    config = section.config
    attention = config.get("attn_config")
    if isinstance(attention, Mapping) and attention.get("alibi"):
        return "attn_config.alibi"
    if config.get("position_embedding_type") == "alibi":
        return "position_embedding_type is alibi"
    if section.model_type == "mpt" and not isinstance(attention, Mapping):
        return "model_type is mpt"
    if section.model_type == "bloom":
        return "model_type is bloom"
    return "alibi" if settings.read_bool(config, "alibi", path=section.path) else None


@dataclass(frozen=True)
class LinearSpec:
    """The parameters of a linear bias.

    ``most`` is the exponent of the smallest slope, 8 unless MPT's ``alibi_bias_max`` states
    another; ``scale`` multiplies the slopes; ``unread_keys`` concern position and are not read.
    """

    heads: int
    most: float = 8.0
    max_positions: int | None = None
    scale: float = 1.0
    notes: tuple[str, ...] = ()
    unread_keys: tuple[str, ...] = ()


def read_linear_spec(section: ConfigSection) -> LinearSpec:
    """Read the linear bias of a section.

    Raises
    ------
    InvalidCheckpoint
        If the configuration does not state the number of heads.
    """
    heads = read_head_count(section)
    if not heads:
        raise InvalidCheckpoint(
            "it has a linear bias per head (ALiBi), and the configuration does not say how many "
            'heads there are. Add "num_attention_heads" to config.json.'
        )
    attention = section.config.get("attn_config")
    declared = attention if isinstance(attention, Mapping) else {}
    max_exponent = (
        ConfigSection("attn_config", declared).read_number("alibi_bias_max") or 8.0
    )
    spec = LinearSpec(
        heads,
        max_exponent,
        section.read_integer(*_ROTARY_LENGTH_KEYS, maximum=MAX_CONFIG_POSITIONS),
        unread_keys=list_unread_keys(section),
    )
    if section.model_type != "falcon":
        return spec
    note = "Falcon adds the bias before it divides by the root of the head's width"
    return replace(spec, scale=_read_head_dim(section) ** -0.5, notes=(note,))
