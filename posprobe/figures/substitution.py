"""What explanations of a table keep for the model: by size, side by side, by position."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import Builder, Sheet, alone, of_one, shortened
from posprobe.figures.styles import BLUE, GRID, INK, LINES, MUTED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.experiments import Substitute, SubstitutionEffect


#: Lowest share that is drawn: what is below stands at the edge, as an arrow.
LOWEST = -0.5
#: Letters of a label beside a dot, and in a column of a paper.
LETTERS, FEW_LETTERS = 40, 26
#: Points of a curve along positions: each is the mean of its neighbours.
POINTS = 28
#: Kinds that are curves over their size, with look and name.
CURVES = {
    "components": ((BLUE, "-", "o"), "leading components"),
    "sinusoids": ((RED, (0, (5, 1.5)), "s"), "best sinusoids (two directions each)"),
    "band": ((BLUE, "-", "o"), "without this band"),
    "head": ((BLUE, "", "o"), "this head's biases at their mean"),
}

_SIZES = {
    "table": "how many are kept",
    "rotary": "band of periods, from fast to slow",
    "relative": "head, from 1",
}


def plot_substitution(ax: Axes, effect: SubstitutionEffect) -> None:
    """Draw what components and sinusoids keep, over their number, beside random tables."""
    sizes: set[int] = set()
    for kind, ((color, dash, marker), label) in CURVES.items():
        of_kind = [substitute for substitute in effect.substitutes if substitute.kind == kind]
        if not of_kind:
            continue
        n_dimensions = [substitute.size or 1 for substitute in of_kind]
        sizes |= set(n_dimensions)
        values, errors = _numbers(effect, of_kind)
        ax.errorbar(
            n_dimensions, _within(effect, values), yerr=errors, color=color,
            linestyle=dash, marker=marker,
            markersize=3, elinewidth=0.8, label=label,
        )  # fmt: skip
        if kind == "components" and _shares(effect):
            variance = np.array([substitute.variance for substitute in of_kind], dtype=float)
            look: dict[str, Any] = {"color": MUTED, "linestyle": (0, (1, 1))}
            ax.plot(n_dimensions, variance, label="their share of the variance", **look)
    random = [substitute for substitute in effect.substitutes if substitute.kind == "null"]
    values, _ = _numbers(effect, random)
    finite_values = values[np.isfinite(values)]
    if finite_values.size:
        best = max(finite_values.max(), LOWEST) if _shares(effect) else finite_values.min()
        ax.axhline(
            float(best), color=INK, linewidth=0.8, linestyle=(0, (5, 1.2, 1, 1.2)),
            label="best random table",
        )  # fmt: skip
    best_one = [random[int(np.nanargmax(values))]] if finite_values.size else []
    curves = [substitute for substitute in effect.substitutes if substitute.kind in CURVES]
    _limits(ax.set_ylim, effect, [*curves, *best_one])
    if sizes and effect.scheme == "table":
        ax.set_xscale("log")
        ax.set_xticks(sorted(sizes), [str(k) for k in sorted(sizes)])
        ax.minorticks_off()
    ax.set_xlabel(_SIZES[effect.scheme])
    ax.set_ylabel(_axis(effect))
    if curves or finite_values.size:  # a constant table has no parts, and no random table like it
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0))


def _others(ax: Axes, effect: SubstitutionEffect, letters: int) -> None:
    """Draw what every other explanation keeps, each on a line of its own."""
    # Shares are of what removing costs, which keeps none of it.
    left_out = effect.removed if _shares(effect) else ""
    other_substitutes = [
        substitute for substitute in effect.substitutes
        if substitute.kind not in (*CURVES, "table") and substitute.name != left_out
    ]  # fmt: skip
    values, errors = _numbers(effect, other_substitutes)
    place = np.arange(len(other_substitutes))
    colors = {"null": INK, "removed": MUTED}
    clipped = _within(effect, values)
    for substitute, y, value, error in zip(
        other_substitutes, place.tolist(), clipped, errors, strict=True
    ):
        color = colors.get(substitute.kind, BLUE)
        ax.errorbar(
            value, y, xerr=None if np.isnan(error) else error, color=color, elinewidth=0.8,
            marker="<" if value != values[y] else "o", markersize=3,
        )  # fmt: skip
        ax.axhline(y, color=GRID, linewidth=0.4, zorder=0)
    ax.set_yticks(place, [shortened(substitute.label, letters) for substitute in other_substitutes])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(other_substitutes) - 0.4, -0.6)
    _limits(ax.set_xlim, effect, other_substitutes)
    ax.axvline(0, color=MUTED, linewidth=0.5)
    ax.set_xlabel(_axis(effect))


def _along(ax: Axes, effect: SubstitutionEffect) -> None:
    """Draw the loss, or the cost, by position, as it is and with the main substitutes."""
    costs = effect.by_position
    if costs is None:
        return
    names = [substitute.name for substitute in effect.substitutes]
    if effect.unchanged is not None:
        x, values = _binned(effect.unchanged)
        ax.plot(x, values, color=INK, label=effect.substitutes[0].label)
    for name, (color, dash) in zip(_main_ones(effect, names), LINES, strict=False):
        rows = costs[names.index(name)]
        x, values = _binned(rows if effect.unchanged is None else rows + effect.unchanged)
        label = effect.substitutes[names.index(name)].label
        ax.plot(x, values, color=color, linestyle=dash, label=shortened(label, LETTERS))
    ax.set_xscale("log")
    _plain_positions(ax, costs.shape[1])
    ax.set_xlabel("position in the context, from 1")
    ax.set_ylabel("loss (nats)" if effect.unchanged is not None else _cost(effect))
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def _main_ones(effect: SubstitutionEffect, names: Sequence[str]) -> list[str]:
    """Choose what is drawn by position: the removal, three components, sinusoids, and order."""
    waves = [f"sinusoids_{k}" for k in range(1, 11) if f"sinusoids_{k}" in names]
    main = (
        effect.removed, "components_3", *waves[-1:], "codes", "permuted", "components_10",
        "band_1", "band_4", "band_8",
    )  # fmt: skip
    return [name for name in main if name in names]


def _plain_positions(ax: Axes, length: int) -> None:
    ticks = [2**k for k in range(0, int(np.log2(max(length, 2))) + 1, 1 if length < 64 else 2)]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()


def _binned(values: Any) -> tuple[Any, Any]:
    """Average neighbouring positions, the more of them the later they are."""
    n = len(values)
    edges = np.unique(np.round(np.geomspace(1, n + 1, POINTS)).astype(int)) - 1
    centres, means = [], []
    for start, stop in pairwise(edges):
        finite_values = values[start:stop][np.isfinite(values[start:stop])]
        if finite_values.size:
            centres.append((start + stop + 1) / 2)
            means.append(finite_values.mean())
    return np.array(centres), np.array(means)


def _shares(effect: SubstitutionEffect) -> bool:
    return effect[effect.removed].costs[effect.measure].kept is not None


def _numbers(effect: SubstitutionEffect, substitutes: Sequence[Substitute]) -> tuple[Any, Any]:
    """Return shares with their errors, or costs where shares are undefined."""
    costs = [substitute.costs[effect.measure] for substitute in substitutes]
    pairs = [(c.kept, c.kept_error) if _shares(effect) else (c.value, c.error) for c in costs]
    numbers = np.array(pairs, dtype=float).reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def _within(effect: SubstitutionEffect, values: Any) -> Any:
    return np.maximum(values, LOWEST) if _shares(effect) else values


def _limits(
    set_limits: Any, effect: SubstitutionEffect, drawn_substitutes: Sequence[Substitute]
) -> None:
    if _shares(effect):
        values, _ = _numbers(effect, drawn_substitutes)
        finite_values = values[np.isfinite(values)]
        lowest = max(LOWEST, min(finite_values.min(initial=0.0), 0.0))
        set_limits(lowest - 0.06, max(finite_values.max(initial=1.0), 1.0) + 0.06)


def _axis(effect: SubstitutionEffect) -> str:
    return "share of the worth kept" if _shares(effect) else _cost(effect)


def _cost(effect: SubstitutionEffect) -> str:
    return {
        "loss": "change of the loss (nats)",
        "divergence": "divergence of the outputs (nats)",
        "answers": "top answers that change",
        "states": "relative change of the states",
    }[effect.measure]


@of_one
def substitution_figure(sheet: Sheet, effect: SubstitutionEffect) -> Figure:
    """Draw what parts of a table keep by their number, and the other explanations beside it."""
    lines = sum(substitute.kind not in CURVES for substitute in effect.substitutes)
    if effect.scheme != "table":
        figure = sheet.figure(2.6, width=4.8)
        plot_substitution(figure.subplots(), effect)
        return figure
    height = 0.14 * lines + 1.0
    if sheet.narrow:
        figure = sheet.figure(2.2 + height)
        axes = figure.subplots(2, 1, height_ratios=(2.2, height))
    else:
        figure = sheet.figure(max(2.6, height))
        axes = figure.subplots(1, 2)
    plot_substitution(axes[0], effect)
    _others(axes[1], effect, FEW_LETTERS if sheet.narrow else LETTERS)
    return figure


substitution_positions_figure: Builder = alone(_along, 2.6, width=4.8)
