"""Kinds of layers of one model: how far each sees, how wide its heads are, and whether it rotates.

Layers with a window meet no distance beyond it, whatever the context of the model is, and layers
that do not rotate know no position of their own. Newer configurations name the kind of every layer
under ``layer_types``; older ones state a pattern, or leave it to the code of the model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from posprobe import settings
from posprobe.data import read_data
from posprobe.families.parts import Part

_LAYERS = read_data("families/configurations.toml")["layers"]
_PATTERNS = _LAYERS["patterns"]
_WINDOWED_ROTATE = _LAYERS["windowed_rotate"]
_STILL = _LAYERS["still"]
_WITHOUT_ATTENTION = _LAYERS["without_attention"]
#: Kinds of layers with a window, as ``layer_types`` and older configurations call them.
_SLIDING = ("sliding_attention", "hybrid_sliding", "local")
#: Architectures whose ``sliding_window`` counts the positions to either side, without the query.
_RADIUS = {"embedding_gemma2_text", "neomme", "openai_privacy_filter"}
#: No head is wider, and no window longer; a configuration that says so is damaged.
WIDEST, LONGEST = 2**16, 2**31


@dataclass(frozen=True)
class LayerKind:
    """Layers that rotate alike.

    Parameters
    ----------
    name
        As in ``layer_types``, such as ``sliding_attention``.
    layers
        How many there are.
    window
        Positions that a query sees on one side, itself included; None for all.
    sees
        The same in words; empty for all.
    head_dim
        Width of a head where it is that of this kind of layers alone.
    rotates
        Whether queries and keys turn.
    """

    name: str
    layers: int = 1
    window: int | None = None
    sees: str = ""
    head_dim: int | None = None
    rotates: bool = True


def layer_kinds(part: Part) -> tuple[LayerKind, ...]:
    """List the kinds of layers of attention, in the order in which they first come.

    Raises
    ------
    InvalidCheckpoint
        If what the configuration says of its layers is none of what it can be.
    """
    found = Counter(kind for kind in _kinds(part) if kind is not None)
    return tuple(
        LayerKind(kind.name, count, kind.window, kind.sees, kind.head_dim, kind.rotates)
        for kind, count in found.items()
    )


def _kinds(part: Part) -> Iterator[LayerKind | None]:
    """Yield the kind of every layer, or of one period of them; None where nothing attends."""
    flags = _flags(part)
    types = _types(part, flags)
    windowed = _window(part, part.config, _SLIDING[0])[0] is not None
    of_layers = _of_layers(part.config)
    dense = _dense(part.config)
    for number, name in enumerate(types):
        own = of_layers.get(number, part.config)
        rotates = flags[number] if len(flags) == len(types) else True
        if part.model_type in _WINDOWED_ROTATE and windowed:
            rotates = name in _SLIDING or number in dense
        yield None if name in _WITHOUT_ATTENTION else _kind(part, name, own, rotates=rotates)


def rotating_layers(part: Part, count: int, layers: str = "") -> set[int]:
    """Return which of the first ``count`` layers one encoding turns.

    Parameters
    ----------
    part
        Of the model.
    count
        How many layers there are.
    layers
        What `RotarySpec` calls them: a kind of ``layer_types``, ``global`` or ``local``; empty for
        all.
    """
    kinds = list(_kinds(part))

    def turned(kind: LayerKind | None) -> bool:
        if kind is None or not kind.rotates:
            return False
        sliding = kind.name in _SLIDING
        return {"": True, "global": not sliding, "local": sliding}.get(layers, kind.name == layers)

    return {number for number in range(count) if turned(kinds[number % len(kinds)])}


def kind_called(part: Part, name: str) -> LayerKind:
    """Return the kind of layers of a name, by the name alone where no layer is called so."""
    named = (kind for kind in layer_kinds(part) if kind.name == name)
    return next(named, _kind(part, name, part.config, rotates=True))


def _kind(part: Part, name: str, own: Mapping[str, Any], *, rotates: bool) -> LayerKind:
    window, sees = _window(part, own, name)
    head_dim = None
    if "per_layer_config" in part.config:
        head_dim = settings.whole(own, "head_dim", most=WIDEST, path=part.path)
    elif "full" in name:
        head_dim = settings.whole(own, "global_head_dim", most=WIDEST, path=part.path)
    return LayerKind(name, 1, window, sees, head_dim, rotates)


def _of_layers(config: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
    """Return the configuration of each layer of which ``per_layer_config`` states something."""
    stated = config.get("per_layer_config")
    if not isinstance(stated, Mapping):
        return {}
    return {
        int(number): {**config, **found}  # the numbers have as many digits as the largest
        for number, found in stated.items()
        if isinstance(found, Mapping) and re.fullmatch(r"[0-9]{1,5}", str(number))
    }


def _dense(config: Mapping[str, Any]) -> set[int]:
    """Return the layers of Cohere 2's mixture that rotate though they see everything."""
    types, pattern = config.get("mlp_layer_types"), "prefix_dense_sliding_window_pattern"
    if not isinstance(types, list) or config.get(pattern) != 1:
        return set()
    return {number for number, name in enumerate(types) if name == "dense"}


def _window(part: Part, own: Mapping[str, Any], name: str) -> tuple[int | None, str]:
    """Read how far layers see, -1 and false standing for no window, and say it."""
    if "chunk" in name:
        size = settings.whole(own, "attention_chunk_size", most=LONGEST, path=part.path)
        return size, f"chunks of {size:,} positions, each by itself" if size else ""
    if name not in _SLIDING or own.get("use_sliding_window") is False:
        return None, ""
    keys = ("sliding_window", "local_attention", "attention_window_size")
    key = next((key for key in keys if own.get(key) not in (None, -1, False)), None)
    if key is None:
        return None, ""
    size = settings.whole(own, key, most=LONGEST, path=part.path) or 0
    if part.model_type in _RADIUS:
        return size + 1, f"{size:,} positions to either side"
    # Gemma 3's code halves the window where attention looks both ways.
    if key == "local_attention" or own.get("use_bidirectional_attention") in (True, "all"):
        return size // 2 + 1, f"{size // 2:,} positions to either side"
    return size, f"{size:,} positions"


def _flags(part: Part) -> list[bool]:
    """Tell of each layer whether it rotates; empty where all do."""
    stated = part.config.get("no_rope_layers") or part.config.get("layer_rope_theta")
    if isinstance(stated, list) and stated:
        return [flag != 0 for flag in stated[: settings.MOST_LAYERS]]
    usual = _STILL.get(part.model_type or "")
    if usual is None:
        return []
    key = "no_rope_layer_interval"
    every = settings.whole(part.config, key, most=settings.MOST_LAYERS, path=part.path) or usual
    return [(number + 1) % every != 0 for number in range(_count(part) or every)]


def _types(part: Part, flags: list[bool]) -> list[str]:
    """Name the kind of every layer; as many as one period where their number is not stated."""
    config = part.config
    stated = config.get("layer_types")
    if stated:
        if not isinstance(stated, list) or not all(isinstance(name, str) for name in stated):
            raise settings.wrong("layer_types", stated, "a list of names", part.path)
        return stated[: settings.MOST_LAYERS]
    if config.get("attention_chunk_size") and flags:
        return ["chunked_attention" if rotates else "full_attention" for rotates in flags]
    full, sliding = "full_attention", _SLIDING[0]
    if _window(part, config, sliding)[0] is None:
        return [full] * (len(flags) or 1)
    if config.get("use_sliding_window") and "max_window_layers" in config:
        first = settings.whole(
            config, "max_window_layers", most=settings.MOST_LAYERS, least=0, path=part.path
        )
        count = _count(part) or 1
        before = min(first or 0, count)
        return [full] * before + [sliding] * (count - before)
    pattern = config.get("sliding_window_pattern", _PATTERNS.get(part.model_type or ""))
    period = len(pattern) if isinstance(pattern, str) else pattern
    if type(period) is not int or not 1 <= period <= settings.MOST_LAYERS:
        return [sliding] * (len(flags) or 1)
    return [sliding if (number + 1) % period else full for number in range(_count(part) or period)]


def _count(part: Part) -> int | None:
    return settings.whole(
        part.config, "num_hidden_layers", most=settings.MOST_LAYERS, path=part.path
    )
