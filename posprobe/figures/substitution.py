"""Effect of substitutes for a table on the model: by size, side by side, by position."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import (
    Builder,
    FigureFormat,
    shorten_label,
    single_plot,
    single_result,
)
from posprobe.figures.styles import BLUE, INK, LINE_STYLES, MUTED, PALE, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.experiments import Substitute, SubstitutionEffect


#: Shares below this one are drawn at the edge, as an arrow.
MIN_DRAWN_SHARE = -0.5
#: Longer labels are shortened.
MAX_LABEL_LETTERS = 40
#: Longer labels are shortened in a column of a paper.
MAX_NARROW_LABEL_LETTERS = 26
#: Costs are averaged over neighbouring positions to this many points.
N_POSITION_POINTS = 28
#: Style and label of each kind of substitute that is drawn as a curve over its size.
SIZE_CURVES = {
    "components": ((BLUE, "-", "o"), "leading components"),
    "sinusoids": ((RED, (0, (5, 1.5)), "s"), "best sinusoids (two directions each)"),
    "band": ((BLUE, "-", "o"), "without this band"),
    "head": ((BLUE, "", "o"), "this head's biases at their mean"),
}

#: Label of the axis of sizes, by the scheme of the encoding.
_SIZE_LABELS = {
    "table": "how many are kept",
    "rotary": "band of periods, from fast to slow",
    "relative": "head, from 1",
}


def plot_substitution(ax: Axes, effect: SubstitutionEffect) -> None:
    """Draw the worth that components and sinusoids keep, over their number, and random tables."""
    sizes: set[int] = set()
    for kind in SIZE_CURVES:
        sizes |= _plot_size_curve(ax, effect, kind)
    null_substitutes = [s for s in effect.substitutes if s.kind == "null"]
    values, _ = _shares_or_costs(effect, null_substitutes)
    finite_values = values[np.isfinite(values)]
    best_null: list[Substitute] = []
    if finite_values.size:
        best_null = [null_substitutes[int(np.nanargmax(values))]]
        best_value = finite_values.min()
        if _has_shares(effect):
            best_value = max(finite_values.max(), MIN_DRAWN_SHARE)
        ax.axhline(
            float(best_value),
            color=INK,
            linewidth=0.8,
            linestyle=(0, (5, 1.2, 1, 1.2)),
            label="best random table",
        )
    curves = [s for s in effect.substitutes if s.kind in SIZE_CURVES]
    _set_share_limits(ax.set_ylim, effect, [*curves, *best_null])
    if sizes and effect.scheme == "table":
        ax.set_xscale("log")
        ax.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
        ax.minorticks_off()
    ax.set_xlabel(_SIZE_LABELS[effect.scheme])
    ax.set_ylabel(_value_label(effect))
    # A constant table has no components, and no random table resembles it.
    if curves or finite_values.size:
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0))


def _plot_size_curve(ax: Axes, effect: SubstitutionEffect, kind: str) -> set[int]:
    """Draw the substitutes of one kind over their sizes, and return these."""
    substitutes = [s for s in effect.substitutes if s.kind == kind]
    if not substitutes:
        return set()
    (color, dash, marker), label = SIZE_CURVES[kind]
    sizes = [substitute.size or 1 for substitute in substitutes]
    values, errors = _shares_or_costs(effect, substitutes)
    ax.errorbar(
        sizes,
        _clip_shares(effect, values),
        yerr=errors,
        color=color,
        linestyle=dash,
        marker=marker,
        markersize=3,
        elinewidth=0.8,
        label=label,
    )
    if kind == "components" and _has_shares(effect):
        variance = np.array(
            [substitute.variance for substitute in substitutes], dtype=float
        )
        line_style: dict[str, Any] = {"color": MUTED, "linestyle": (0, (1, 1))}
        ax.plot(sizes, variance, label="their share of the variance", **line_style)
    return set(sizes)


def _plot_other_substitutes(
    ax: Axes, effect: SubstitutionEffect, max_letters: int
) -> None:
    """Draw the worth that every other substitute keeps, each on a line of its own."""
    # Shares are relative to the cost of removal, which keeps nothing by definition.
    hidden_name = effect.removed if _has_shares(effect) else ""
    substitutes = [
        substitute
        for substitute in effect.substitutes
        if substitute.kind not in (*SIZE_CURVES, "table")
        and substitute.name != hidden_name
    ]
    values, errors = _shares_or_costs(effect, substitutes)
    colors = {"null": INK, "removed": MUTED}
    clipped_values = _clip_shares(effect, values)
    for y, substitute in enumerate(substitutes):
        is_clipped = clipped_values[y] != values[y]
        ax.errorbar(
            clipped_values[y],
            y,
            xerr=None if np.isnan(errors[y]) else errors[y],
            color=colors.get(substitute.kind, BLUE),
            elinewidth=0.8,
            marker="<" if is_clipped else "o",
            markersize=3,
        )
        ax.axhline(y, color=PALE, linewidth=0.4, zorder=0)
    labels = [shorten_label(substitute.label, max_letters) for substitute in substitutes]
    ax.set_yticks(range(len(substitutes)), labels)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(substitutes) - 0.4, -0.6)
    _set_share_limits(ax.set_xlim, effect, substitutes)
    ax.axvline(0, color=MUTED, linewidth=0.5)
    ax.set_xlabel(_value_label(effect))


def _plot_by_position(ax: Axes, effect: SubstitutionEffect) -> None:
    """Draw the loss, or the cost, by position, unchanged and with the main substitutes."""
    costs = effect.by_position
    if costs is None:
        return
    names = [substitute.name for substitute in effect.substitutes]
    if effect.unchanged is not None:
        x, values = _average_neighbours(effect.unchanged)
        ax.plot(x, values, color=INK, label=effect.substitutes[0].label)
    for name, (color, dash) in zip(
        _main_substitutes(effect, names), LINE_STYLES, strict=False
    ):
        index = names.index(name)
        curve = (
            costs[index] if effect.unchanged is None else costs[index] + effect.unchanged
        )
        x, values = _average_neighbours(curve)
        label = shorten_label(effect.substitutes[index].label, MAX_LABEL_LETTERS)
        ax.plot(x, values, color=color, linestyle=dash, label=label)
    ax.set_xscale("log")
    _label_positions(ax, costs.shape[1])
    ax.set_xlabel("position in the context, from 1")
    ax.set_ylabel("loss (nats)" if effect.unchanged is not None else _cost_label(effect))
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def _main_substitutes(effect: SubstitutionEffect, names: Sequence[str]) -> list[str]:
    """Name the substitutes that are drawn by position."""
    sinusoid_names = [f"sinusoids_{k}" for k in range(1, 11) if f"sinusoids_{k}" in names]
    main_names = (
        effect.removed,
        "components_3",
        *sinusoid_names[-1:],
        "codes",
        "permuted",
        "components_10",
        "band_1",
        "band_4",
        "band_8",
    )
    return [name for name in main_names if name in names]


def _label_positions(ax: Axes, length: int) -> None:
    ticks = [
        2**k for k in range(0, int(np.log2(max(length, 2))) + 1, 1 if length < 64 else 2)
    ]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()


def _average_neighbours(values: Any) -> tuple[Any, Any]:
    """Average neighbouring positions in groups that grow with position."""
    n = len(values)
    edges = np.unique(np.round(np.geomspace(1, n + 1, N_POSITION_POINTS)).astype(int)) - 1
    centres, means = [], []
    for start, stop in pairwise(edges):
        finite_values = values[start:stop][np.isfinite(values[start:stop])]
        if finite_values.size:
            centres.append((start + stop + 1) / 2)
            means.append(finite_values.mean())
    return np.array(centres), np.array(means)


def _has_shares(effect: SubstitutionEffect) -> bool:
    return effect[effect.removed].costs[effect.measure].kept is not None


def _shares_or_costs(
    effect: SubstitutionEffect, substitutes: Sequence[Substitute]
) -> tuple[Any, Any]:
    """Return shares with their errors, or costs where shares are undefined."""
    costs = [substitute.costs[effect.measure] for substitute in substitutes]
    pairs = [
        (c.kept, c.kept_error) if _has_shares(effect) else (c.value, c.error)
        for c in costs
    ]
    numbers = np.array(pairs, dtype=float).reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def _clip_shares(effect: SubstitutionEffect, values: Any) -> Any:
    return np.maximum(values, MIN_DRAWN_SHARE) if _has_shares(effect) else values


def _set_share_limits(
    set_limits: Any, effect: SubstitutionEffect, drawn_substitutes: Sequence[Substitute]
) -> None:
    if _has_shares(effect):
        values, _ = _shares_or_costs(effect, drawn_substitutes)
        finite_values = values[np.isfinite(values)]
        lowest = max(MIN_DRAWN_SHARE, min(finite_values.min(initial=0.0), 0.0))
        set_limits(lowest - 0.06, max(finite_values.max(initial=1.0), 1.0) + 0.06)


def _value_label(effect: SubstitutionEffect) -> str:
    return "share of the worth kept" if _has_shares(effect) else _cost_label(effect)


def _cost_label(effect: SubstitutionEffect) -> str:
    return {
        "loss": "change of the loss (nats)",
        "divergence": "divergence of the outputs (nats)",
        "answers": "top answers that change",
        "states": "relative change of the states",
    }[effect.measure]


@single_result
def substitution_figure(
    figure_format: FigureFormat, effect: SubstitutionEffect
) -> Figure:
    """Draw the worth kept over the number of components, and that of the other substitutes."""
    n_lines = sum(substitute.kind not in SIZE_CURVES for substitute in effect.substitutes)
    if effect.scheme != "table":
        figure = figure_format.make_figure(2.6, width=4.8)
        plot_substitution(figure.subplots(), effect)
        return figure
    height = 0.14 * n_lines + 1.0
    if figure_format.is_narrow:
        figure = figure_format.make_figure(2.2 + height)
        axes = figure.subplots(2, 1, height_ratios=(2.2, height))
    else:
        figure = figure_format.make_figure(max(2.6, height))
        axes = figure.subplots(1, 2)
    plot_substitution(axes[0], effect)
    _plot_other_substitutes(
        axes[1],
        effect,
        MAX_NARROW_LABEL_LETTERS if figure_format.is_narrow else MAX_LABEL_LETTERS,
    )
    return figure


substitution_positions_figure: Builder = single_plot(_plot_by_position, 2.6, width=4.8)
