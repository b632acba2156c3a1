"""Rotary and linear positions: what a configuration says, read as transformers reads it.

The keys have changed over the years: ``rope_parameters`` holds everything today, ``rope_theta`` and
``rope_scaling`` did before, and the first models had keys of their own.

Layers of one model may differ. Those with a window meet no distance beyond it, whatever the context
of the model is, and those that do not rotate know no position of their own. Newer configurations
name the kind of every layer under ``layer_types``; older ones state a pattern, or leave it to code.
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
from posprobe.schemes import RotarySpec as RotarySpec

_LAYERS = read_data("families/configurations.toml")["layers"]
_PATTERNS = _LAYERS["patterns"]
_WINDOWED_ROTATE = _LAYERS["windowed_rotate"]
_TYPES_WITHOUT_ROTATION = _LAYERS["still"]
_WITHOUT_ATTENTION = _LAYERS["without_attention"]
#: Kinds of layers with a window, as ``layer_types`` and older configurations call them.
_SLIDING = ("sliding_attention", "hybrid_sliding", "local")
#: Architectures whose ``sliding_window`` counts the positions to either side, without the query.
_RADIUS = {"embedding_gemma2_text", "neomme", "openai_privacy_filter"}
#: No head is wider, and no window longer; a configuration that says so is damaged.
MAX_HEAD_DIM = 2**16
MAX_POSITIONS = 2**31


@dataclass(frozen=True)
class LayerKind:
    """Layers that rotate alike.

    Parameters
    ----------
    name
        Name as in ``layer_types``, such as ``sliding_attention``.
    window
        Positions that a query sees on one side, itself included; None for all.
    head_dim
        Width of a head where it is that of this kind of layers alone.
    rotates
        Whether queries and keys turn.
    """

    name: str
    window: int | None = None
    head_dim: int | None = None
    rotates: bool = True


def layer_kinds(part: ConfigSection) -> list[LayerKind]:
    """Tell the kind of every layer of attention, or of one period of them.

    Raises
    ------
    InvalidCheckpoint
        If what the configuration says of its layers is none of what it can be.
    """
    return [kind for kind in _kinds(part) if kind is not None]


def _kinds(part: ConfigSection) -> Iterator[LayerKind | None]:
    """Yield the kind of every layer, or of one period of them; None where nothing attends."""
    flags = _flags(part)
    types = _types(part, flags)
    windowed = _window(part, part.config, _SLIDING[0]) is not None
    of_layers = _of_layers(part.config)
    dense = _dense(part.config)
    for number, name in enumerate(types):
        layer_config = of_layers.get(number, part.config)
        rotates = flags[number] if len(flags) == len(types) else True
        if part.model_type in _WINDOWED_ROTATE and windowed:
            rotates = name in _SLIDING or number in dense
        yield (
            None if name in _WITHOUT_ATTENTION else _kind(part, name, layer_config, rotates=rotates)
        )


def rotating_layers(part: ConfigSection, count: int, layers: str = "") -> set[int]:
    """Return which of the first ``count`` layers one encoding turns.

    Parameters
    ----------
    part
        Configuration section of the model.
    count
        Number of layers.
    layers
        Name in `RotarySpec`: a kind of ``layer_types``, ``global`` or ``local``; empty for all.
    """
    kinds = list(_kinds(part))

    def turned(kind: LayerKind | None) -> bool:
        if kind is None or not kind.rotates:
            return False
        sliding = kind.name in _SLIDING
        return {"": True, "global": not sliding, "local": sliding}.get(layers, kind.name == layers)

    return {number for number in range(count) if turned(kinds[number % len(kinds)])}


def kind_called(part: ConfigSection, name: str) -> LayerKind:
    """Return the kind of layers of a name, by the name alone where no layer is called so."""
    matching_kinds = (kind for kind in layer_kinds(part) if kind.name == name)
    return next(matching_kinds, _kind(part, name, part.config, rotates=True))


def _kind(
    part: ConfigSection, name: str, layer_config: Mapping[str, Any], *, rotates: bool
) -> LayerKind:
    window, head_dim = _window(part, layer_config, name), None
    if "per_layer_config" in part.config:
        head_dim = settings.whole(layer_config, "head_dim", maximum=MAX_HEAD_DIM, path=part.path)
    elif "full" in name:
        head_dim = settings.whole(
            layer_config, "global_head_dim", maximum=MAX_HEAD_DIM, path=part.path
        )
    return LayerKind(name, window, head_dim, rotates)


def _of_layers(config: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
    """Return the configuration of each layer of which ``per_layer_config`` states something."""
    declared = config.get("per_layer_config")
    if not isinstance(declared, Mapping):
        return {}
    return {
        int(number): {**config, **layer_entry}  # the numbers have as many digits as the largest
        for number, layer_entry in declared.items()
        if isinstance(layer_entry, Mapping) and re.fullmatch(r"[0-9]{1,5}", str(number))
    }


def _dense(config: Mapping[str, Any]) -> set[int]:
    """Return the layers of Cohere 2's mixture that rotate though they see everything."""
    types, pattern = config.get("mlp_layer_types"), "prefix_dense_sliding_window_pattern"
    if not isinstance(types, list) or config.get(pattern) != 1:
        return set()
    return {number for number, name in enumerate(types) if name == "dense"}


def _window(part: ConfigSection, layer_config: Mapping[str, Any], name: str) -> int | None:
    """Read how far layers see, -1 and false standing for no window."""
    if "chunk" in name:  # each chunk by itself
        return settings.whole(
            layer_config, "attention_chunk_size", maximum=MAX_POSITIONS, path=part.path
        )
    if name not in _SLIDING or layer_config.get("use_sliding_window") is False:
        return None
    keys = ("sliding_window", "local_attention", "attention_window_size")
    key = next((key for key in keys if layer_config.get(key) not in (None, -1, False)), None)
    if key is None:
        return None
    size = settings.whole(layer_config, key, maximum=MAX_POSITIONS, path=part.path) or 0
    if part.model_type in _RADIUS:
        return size + 1
    # Gemma 3's code halves the window where attention looks both ways.
    both_ways = layer_config.get("use_bidirectional_attention") in (True, "all")
    return size // 2 + 1 if key == "local_attention" or both_ways else size


def _flags(part: ConfigSection) -> list[bool]:
    """Tell of each layer whether it rotates; empty where all do."""
    declared = part.config.get("no_rope_layers") or part.config.get("layer_rope_theta")
    if isinstance(declared, list) and declared:
        return [flag != 0 for flag in declared[: settings.MOST_LAYERS]]
    default_interval = _TYPES_WITHOUT_ROTATION.get(part.model_type or "")
    if default_interval is None:
        return []
    interval = part.whole("no_rope_layer_interval", most=settings.MOST_LAYERS) or default_interval
    return [(number + 1) % interval != 0 for number in range(_count(part) or interval)]


def _types(part: ConfigSection, flags: list[bool]) -> list[str]:
    """Name the kind of every layer; as many as one period where their number is not stated."""
    config = part.config
    declared = config.get("layer_types")
    if declared:
        if not isinstance(declared, list) or not all(isinstance(name, str) for name in declared):
            raise settings.wrong("layer_types", declared, "a list of names", part.path)
        return declared[: settings.MOST_LAYERS]
    if config.get("attention_chunk_size") and flags:
        return ["chunked_attention" if rotates else "full_attention" for rotates in flags]
    full_type, sliding = "full_attention", _SLIDING[0]
    if _window(part, config, sliding) is None:
        return [full_type] * (len(flags) or 1)
    if config.get("use_sliding_window") and "max_window_layers" in config:
        n_full_layers = part.whole("max_window_layers", most=settings.MOST_LAYERS, least=0)
        count = _count(part) or 1
        n_before = min(n_full_layers or 0, count)
        return [full_type] * n_before + [sliding] * (count - n_before)
    pattern = config.get("sliding_window_pattern", _PATTERNS.get(part.model_type or ""))
    period = len(pattern) if isinstance(pattern, str) else pattern
    if type(period) is not int or not 1 <= period <= settings.MOST_LAYERS:
        return [sliding] * (len(flags) or 1)
    return [
        sliding if (number + 1) % period else full_type for number in range(_count(part) or period)
    ]


def _count(part: ConfigSection) -> int | None:
    return part.whole("num_hidden_layers", most=settings.MOST_LAYERS)


_KEYS = read_data("families/configurations.toml")["rotary"]
_ROTATING = _KEYS["rotating"]
_INTERLEAVED = _KEYS["interleaved"]
_IN_TURN = _KEYS["in_turn"]
_HEADS = _KEYS["heads"]
_LENGTHS = _KEYS["lengths"]
#: Parts for images whose rows and columns turn one half of the pairs each.
_AXIAL = re.compile(
    r"(?:qwen2(?:_5)?_vl|qwen3_vl)(?:_moe)?_vision|pixtral|gemma4_vision|llama4_vision_model"
    r"|dinov3_vit|eomt_dinov3"
)
#: timm's architectures that rotate.
_TIMM = re.compile(
    r"eva02_(?!enormous)|deepseek_vit|gemma4_vit|qwen3_vit|vit_pe_|vit_.*(?:_rope_|dinov3|sapiens2|lingbot)"
)
#: No model is larger; a configuration that says so is damaged.
_MOST_HEADS = 2**12
_MOST_LADDERS = 64


def says_rotary(part: ConfigSection) -> str | None:
    """Tell by what a part's configuration says that it rotates; None where it does not."""
    config = part.config
    scheme = config.get("position_embedding_type", config.get("position_embeddings_type"))
    if scheme in ("rotary", "rope"):
        return f"position_embedding_type is {scheme}"
    if isinstance(scheme, str) or ("position_embedding_type" in config and scheme is None):
        return None
    if any(
        config.get(key) == off_value for key, off_value in _KEYS["off"].items() if key in config
    ):
        return None
    for key in _KEYS["there"]:
        if config.get(key) not in (None, {}):
            return str(key)
    for key in _KEYS["stated"]:
        if config.get(key):
            return str(key)
    if config.get("use_rotary_embedding") or config.get("use_rope"):
        return "use_rotary_embedding"
    if part.model_type in _ROTATING:
        return f"model_type is {part.model_type}"
    return None


def says_timm(part: ConfigSection) -> str | None:
    """Name the timm architecture that rotates; its configuration states no number of it."""
    architecture = part.config.get("architecture")
    rotates = isinstance(architecture, str) and _TIMM.match(architecture)
    return f"timm's architecture {architecture}" if rotates else None


def rotary_specs(part: ConfigSection) -> tuple[RotarySpec, ...]:
    """Read the rotary encodings of a part: one, or one for each kind of layers.

    Raises
    ------
    InvalidCheckpoint
        If the configuration does not say how wide a head is, or says something else than numbers.
    """
    return tuple(_specs(part))


def _specs(part: ConfigSection) -> Iterator[RotarySpec]:
    config = part.config
    declared = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(declared, Mapping):
        raise settings.wrong("rope_parameters", declared, "a mapping", part.path)
    if not settings.finite(declared):
        raise settings.wrong("rope_parameters", dict(declared), "a mapping of finite numbers")
    nested = {key: value for key, value in declared.items() if isinstance(value, Mapping)}
    if len(nested) > _MOST_LADDERS:
        raise settings.wrong("rope_parameters", f"{len(nested)} ladders", "one", part.path)
    if nested and not any(key in declared for key in ("rope_type", "type", "rope_theta")):
        for layers, parameters in nested.items():
            yield _spec(part, parameters, str(layers), kind_called(part, str(layers)))
        return
    if (local := _local_base(config)) is not None:
        yield _spec(part, declared, "global", kind_called(part, "full_attention"))
        yield _spec(part, {"rope_theta": local}, "local", kind_called(part, "local"))
        return
    kinds = list(dict.fromkeys(kind for kind in layer_kinds(part) if kind.rotates))
    is_uniform = len({(kind.window, kind.head_dim) for kind in kinds}) == 1
    for kind in kinds[:1] if is_uniform else kinds:
        yield _spec(part, declared, "" if is_uniform else kind.name, kind)


def _local_base(config: Mapping[str, Any]) -> Any:
    """Find the base of local layers, as Gemma 3 and ModernBERT wrote it before."""
    if config.get("rope_parameters"):
        return None
    return config.get("rope_local_base_freq", config.get("local_rope_theta"))


def _spec(
    part: ConfigSection, declared: Mapping[str, Any], layers: str, kind: LayerKind
) -> RotarySpec:
    config = part.config
    rope_types = [
        settings.text(declared, key, path="rope_parameters") for key in ("rope_type", "type")
    ]
    rule = next(filter(None, rope_types), "default")
    rope = ConfigSection("rope_parameters", declared)
    base = rope.number("rope_theta") or part.number(*_KEYS["bases"]) or 10_000.0
    head_dim = _latent(part) or kind.head_dim or _head_dim(part)
    max_positions = part.whole(*_LENGTHS, most=MAX_POSITIONS)
    key = "original_max_position_embeddings"
    original = rope.whole(key, most=MAX_POSITIONS) or part.whole(key, most=MAX_POSITIONS)
    window = kind.window if kind.window and kind.window < (max_positions or math.inf) else None
    scaling = {} if rule in ("default", "axial", "mrope") else dict(declared)
    if scaling and original:
        scaling.setdefault(key, original)
    partial = _partial(part, declared, head_dim)
    step, axis_steps, extent, grid_notes = _step(part, base, head_dim)
    sections = settings.wholes(
        declared, "mrope_section", maximum=head_dim, max_length=4, path="rope_parameters"
    )
    if part.model_type in _KEYS["rows_first"]:
        sections = None
    spec = RotarySpec(
        head_dim=head_dim,
        base=base,
        partial=partial,
        scaling=scaling,
        max_positions=max_positions,
        training_length=original or max_positions,
        axes=_axes(part, rule),
        step=step,
        across=axis_steps,
        extent=extent,
        sections=tuple(sections or ()),
        sections_in_turn=bool(declared.get("mrope_interleaved", part.model_type in _IN_TURN)),
        window=window,
        interleaved=part.model_type in _INTERLEAVED or bool(config.get("rope_interleave")),
        layers=layers,
        notes=(
            *_layer_notes(part),
            *_scaling_notes(declared, scaling),
            *_standing_notes(part, head_dim, partial),
            *grid_notes,
        ),
    )
    try:
        spec.ladder()
    except UsageError as error:
        raise InvalidCheckpoint(f"the configuration says: {error}") from error
    return spec


def _axes(part: ConfigSection, rule: str) -> int:
    if part.model_type == "vjepa2":
        return 3  # frames, rows and columns
    return 2 if rule == "axial" or _AXIAL.fullmatch(part.model_type or "") else 1


def _layer_notes(part: ConfigSection) -> Iterator[str]:
    """Say how many layers do not rotate."""
    kinds = layer_kinds(part)
    if n_without_rotation := sum(not kind.rotates for kind in kinds):
        verb = "does" if n_without_rotation == 1 else "do"
        yield f"{n_without_rotation} of {len(kinds)} layers {verb} not rotate"


def _scaling_notes(declared: Mapping[str, Any], scaling: Mapping[str, Any]) -> Iterator[str]:
    if not scaling and declared.get("factor") not in (None, 1):
        yield "no rule of scaling is named, so that the factor has no effect"


def logit_scale(part: ConfigSection, head_dim: int) -> float | None:
    """Return by what logits are multiplied beside one over the root of the width of a head.

    None where the configuration does not state it (``query_pre_attn_scalar`` of Gemma,
    ``attention_multiplier`` of Granite, ``mscale_all_dim`` of DeepSeek).

    Raises
    ------
    InvalidCheckpoint
        If it is no positive number.
    """
    if scalar := part.number("query_pre_attn_scalar"):
        return math.sqrt(head_dim / scalar)
    if factor := part.number("attention_multiplier"):
        return factor * math.sqrt(head_dim)
    scaling = part.config.get("rope_parameters") or part.config.get("rope_scaling")
    if not _latent(part) or not isinstance(scaling, Mapping) or not scaling.get("mscale_all_dim"):
        return None
    rope = ConfigSection("rope_parameters", scaling)
    share, factor = rope.number("mscale_all_dim") or 0.0, rope.number("factor") or 1.0
    # DeepSeek's code has it beside the factor on cosines and sines.
    return (0.1 * share * math.log(factor) + 1) ** 2 if factor > 1 else None


def _standing_notes(part: ConfigSection, head_dim: int, partial: float) -> Iterator[str]:
    """Say of how many numbers of a head the numbers shown tell nothing."""
    besides = part.whole("qk_nope_head_dim", most=MAX_HEAD_DIM, least=0) or 0
    width = head_dim + (besides if _latent(part) else 0)
    rotated = 2 * (int(head_dim * partial) // 2)
    if 0 < rotated < width:
        yield (
            f"{rotated} of the {width} numbers of a head are rotated; the others add to a logit "
            "what does not depend on position, and take part in no number here"
        )


def _step(
    part: ConfigSection, base: float, head_dim: int
) -> tuple[float, float, int | None, tuple[str, ...]]:
    """Read what a step of one patch adds to the coordinate that turns the pairs.

    Returns
    -------
    tuple
        That step along rows, how many times as fast columns turn, the patches along an axis where
        the configuration states them, and notes.
    """
    if part.model_type == "pixtral":
        image, patch = (
            part.whole(key, most=MAX_HEAD_DIM) or 0 for key in ("image_size", "patch_size")
        )
        extent = image // patch if image >= patch > 0 else None
        return 1.0, base ** (-2 / head_dim), extent, ()  # rows and columns take pairs in turn
    if part.model_type not in ("dinov3_vit", "eomt_dinov3"):
        return 1.0, 1.0, None, ()
    sizes = settings.pair(part.config, "image_size", maximum=MAX_HEAD_DIM)
    cuts = settings.pair(part.config, "patch_size", maximum=MAX_HEAD_DIM)
    if sizes is None or cuts is None or min(sizes) < max(cuts):
        raise InvalidCheckpoint(
            "its coordinates run from -1 to 1 over the image, but the configuration does not give "
            'the number of patches. Add "image_size" and "patch_size" to config.json.'
        )
    rows, columns = (side // cut for side, cut in zip(sizes, cuts, strict=True))
    note = (
        f"coordinates run from -1 to 1 over the image: wavelengths are those of {rows} patches "
        f"along an axis (image_size {sizes[0]}), and grow with their number"
    )
    return 4 * math.pi / rows, rows / columns, rows, (note,)


def _partial(part: ConfigSection, declared: Mapping[str, Any], head_dim: int) -> float:
    config = part.config
    if config.get("rotary_dim") is not None:
        return (part.whole("rotary_dim", most=MAX_HEAD_DIM) or 0) / head_dim
    for key in ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"):
        for source in (declared, config):
            share = settings.number(source, key, path=part.path)
            if share is not None:
                # Multi-head latent attention gives the rotated part of a head a width of its own.
                return 1.0 if _latent(part) else share
    return 1.0


def _latent(part: ConfigSection) -> int:
    return part.whole("qk_rope_head_dim", most=MAX_HEAD_DIM, least=0) or 0


def _head_dim(part: ConfigSection) -> int:
    declared = part.whole(*_KEYS["widths"], most=MAX_HEAD_DIM)
    if declared is not None:
        return declared
    hidden = part.whole(*_KEYS["hidden"], most=MAX_HEAD_DIM * _MOST_HEADS)
    heads = head_count(part)
    if not hidden or not heads or hidden < heads:
        prefix = f"{part.path}: " if part.path else ""
        raise InvalidCheckpoint(
            f"{prefix}it rotates queries and keys, but the configuration does not give the width "
            "of "
            'a head. State "hidden_size" and "num_attention_heads", or "head_dim", in config.json.'
        )
    return hidden // heads


def head_count(part: ConfigSection) -> int | None:
    """Return how many query heads a part states; None where it states none.

    Raises
    ------
    InvalidCheckpoint
        If that is no whole number.
    """
    return part.whole(*_HEADS, most=_MOST_HEADS)


def says_alibi(part: ConfigSection) -> str | None:
    """Tell by what a part's configuration says that it uses ALiBi; None where it does not."""
    config = part.config
    attention = config.get("attn_config")
    if isinstance(attention, Mapping) and attention.get("alibi"):
        return "attn_config.alibi"
    if config.get("position_embedding_type") == "alibi":
        return "position_embedding_type is alibi"
    if part.model_type == "mpt" and not isinstance(attention, Mapping):
        return "model_type is mpt"
    if part.model_type == "bloom":
        return "model_type is bloom"
    return "alibi" if settings.truth(config, "alibi", path=part.path) else None


@dataclass(frozen=True)
class LinearSpec:
    """The numbers of a linear bias.

    ``most`` is the exponent of the smallest slope, 8 unless MPT's ``alibi_bias_max`` says else;
    ``scale`` multiplies the slopes.
    """

    heads: int
    most: float = 8.0
    max_positions: int | None = None
    scale: float = 1.0
    notes: tuple[str, ...] = ()


def linear_spec(part: ConfigSection) -> LinearSpec:
    """Read the linear bias of a part.

    Raises
    ------
    InvalidCheckpoint
        If the configuration does not say how many heads there are.
    """
    heads = head_count(part)
    if not heads:
        raise InvalidCheckpoint(
            "it has a linear bias per head (ALiBi), and the configuration does not say how many "
            'heads there are. Add "num_attention_heads" to config.json.'
        )
    attention = part.config.get("attn_config")
    declared = attention if isinstance(attention, Mapping) else {}
    max_bias = ConfigSection("attn_config", declared).number("alibi_bias_max") or 8.0
    spec = LinearSpec(heads, max_bias, part.whole(*_LENGTHS, most=MAX_POSITIONS))
    if part.model_type != "falcon":
        return spec
    note = "Falcon adds the bias before it divides by the root of the head's width"
    return replace(spec, scale=_head_dim(part) ** -0.5, notes=(note,))
