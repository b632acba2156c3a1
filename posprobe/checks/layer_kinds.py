"""Compare what configurations state of single layers: their windows, and which ladder they take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from posprobe.checks.sides import Side, state_layers
from posprobe.families.configurations import list_sections
from posprobe.relations import Finding, NotCompared
from posprobe.relations.ladders import measure_harm
from posprobe.schemes import Rotary
from posprobe.settings import MAX_CONFIG_LAYERS


def compare_layer_kinds(a: Side, b: Side) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the window of each layer, and which of several ladders it takes.

    Parameters
    ----------
    a, b
        Copies with rotary encodings.
    """
    n_layers = max(_count_layers(a), _count_layers(b), 1)
    layers_a, layers_b = (state_layers(side, n_layers) for side in (a, b))
    common_layers = sorted(layers_a.keys() & layers_b.keys())
    layer_pairs = {layer: (layers_a[layer], layers_b[layer]) for layer in common_layers}
    findings, not_compared = _compare_windows(a, b, layer_pairs)
    has_same_kinds = a.encodings["rotary"].keys() == b.encodings["rotary"].keys()
    if has_same_kinds and _states_layers(a) and _states_layers(b):
        findings += _exchanged_ladders(layer_pairs)
    return findings, not_compared


def window_finding(window_a: int | None, window_b: int | None) -> Finding:
    """Return the finding that windows differ; None is a query that sees all keys."""
    cause = "window"
    if window_b is None:
        cause = "window_lost"
    elif window_a is None:
        cause = "window_added"
    first_distance = min(filter(None, (window_a, window_b)))
    return Finding(
        "window", cause, window_a, window_b, first_distance=float(first_distance)
    )


def _compare_windows(
    a: Side, b: Side, layer_pairs: dict[int, tuple[Rotary, Rotary]]
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the windows of layers, but of what a format cannot state."""
    changes: dict[tuple[int | None, int | None], list[int]] = {}
    windows: tuple[set[int], set[int]] = (set(), set())
    for layer, rotaries in layer_pairs.items():
        contexts = [x.max_positions for x in rotaries if x.max_positions]
        context = min(contexts, default=math.inf)
        # A window that is no shorter than the context hides nothing.
        window_a, window_b = (
            rotary.window if rotary.window and rotary.window < context else None
            for rotary in rotaries
        )
        for side_windows, window in zip(windows, (window_a, window_b), strict=True):
            side_windows.update([window] if window else [])
        if window_a != window_b:
            changes.setdefault((window_a, window_b), []).append(layer)
    for side, side_windows in zip((a, b), windows, strict=True):
        if changes and not side_windows and not _states_windows(side):
            is_formula = side.checkpoint is None
            return [], [
                NotCompared("window", "no_window", side.name, decides=not is_formula)
            ]
        if changes and windows[0] == windows[1] and not _states_layers(side):
            return [], [NotCompared("window", "no_layers", side.name, decides=False)]
    return [
        replace(window_finding(*pair), more={"layers": layers})
        for pair, layers in changes.items()
    ], []


def _exchanged_ladders(
    layer_pairs: dict[int, tuple[Rotary, Rotary]],
) -> Iterator[Finding]:
    """Yield which layers take the ladder of another kind of layers."""
    changes: dict[tuple[str, str], list[int]] = {}
    for layer, (rotary_a, rotary_b) in layer_pairs.items():
        if rotary_a.layers != rotary_b.layers:
            names = rotary_a.layers, rotary_b.layers
            changes.setdefault(names, []).append(layer)
    for (name_a, name_b), layers in changes.items():
        rotary_a, rotary_b = layer_pairs[layers[0]]
        distance, rotation = measure_harm(
            rotary_a.frequencies(), rotary_b.frequencies(), rotary_a.max_positions
        )
        if math.isfinite(distance):
            yield Finding(
                "ladder",
                "ladders_exchanged",
                name_a,
                name_b,
                first_distance=distance,
                rotation=rotation,
                more={"layers": layers},
            )


def _count_layers(side: Side) -> int:
    """Return the number of layers that weights or the configuration show; 0 if neither does."""
    counts = [0]
    if side.weights is not None:
        numbers = {*side.weights.layers, *side.weights.unrotated}
        counts.append(max(numbers, default=-1) + 1)
    if side.checkpoint is not None:
        stated = (
            section.config.get("num_hidden_layers")
            for section in list_sections(side.checkpoint.config)
            if not section.is_vision
        )
        counts += [count for count in stated if type(count) is int]
    return min(max(counts), MAX_CONFIG_LAYERS)


def _states_windows(side: Side) -> bool:
    """Tell whether a copy that states no window has none."""
    if side.checkpoint is None:
        return all(rotary.family != "formula" for rotary in side.rotary_schemes)
    return _states_layers(side) and bool(side.checkpoint.config)


def _states_layers(side: Side) -> bool:
    """Tell whether a copy states the kind of each layer, which GGUF leaves to the engine."""
    return side.checkpoint is None or side.checkpoint.format != "GGUF"
