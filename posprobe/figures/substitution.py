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


def plot_substitution(ax: Axes, found: SubstitutionEffect) -> None:
    """Draw what components and sinusoids keep, over their number, beside random tables."""
    sizes: set[int] = set()
    for kind, ((color, dash, marker), label) in CURVES.items():
        of_kind = [each for each in found.substitutes if each.kind == kind]
        if not of_kind:
            continue
        at = [each.size or 1 for each in of_kind]
        sizes |= set(at)
        values, errors = _numbers(found, of_kind)
        ax.errorbar(
            at, _within(found, values), yerr=errors, color=color, linestyle=dash, marker=marker,
            markersize=3, elinewidth=0.8, label=label,
        )  # fmt: skip
        if kind == "components" and _shares(found):
            variance = np.array([each.variance for each in of_kind], dtype=float)
            look: dict[str, Any] = {"color": MUTED, "linestyle": (0, (1, 1))}
            ax.plot(at, variance, label="their share of the variance", **look)
    random = [each for each in found.substitutes if each.kind == "null"]
    values, _ = _numbers(found, random)
    known = values[np.isfinite(values)]
    if known.size:
        best = max(known.max(), LOWEST) if _shares(found) else known.min()
        ax.axhline(
            float(best), color=INK, linewidth=0.8, linestyle=(0, (5, 1.2, 1, 1.2)),
            label="best random table",
        )  # fmt: skip
    best_one = [random[int(np.nanargmax(values))]] if known.size else []
    curves = [each for each in found.substitutes if each.kind in CURVES]
    _limits(ax.set_ylim, found, [*curves, *best_one])
    if sizes and found.scheme == "table":
        ax.set_xscale("log")
        ax.set_xticks(sorted(sizes), [str(k) for k in sorted(sizes)])
        ax.minorticks_off()
    ax.set_xlabel(_SIZES[found.scheme])
    ax.set_ylabel(_axis(found))
    if curves or known.size:  # a constant table has no parts, and no random table like it
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0))


def _others(ax: Axes, found: SubstitutionEffect, letters: int) -> None:
    """Draw what every other explanation keeps, each on a line of its own."""
    # Shares are of what removing costs, which keeps none of it.
    left_out = found.removed if _shares(found) else ""
    others = [
        each for each in found.substitutes
        if each.kind not in (*CURVES, "table") and each.name != left_out
    ]  # fmt: skip
    values, errors = _numbers(found, others)
    place = np.arange(len(others))
    colors = {"null": INK, "removed": MUTED}
    inside = _within(found, values)
    for each, at, value, error in zip(others, place.tolist(), inside, errors, strict=True):
        color = colors.get(each.kind, BLUE)
        ax.errorbar(
            value, at, xerr=None if np.isnan(error) else error, color=color, elinewidth=0.8,
            marker="<" if value != values[at] else "o", markersize=3,
        )  # fmt: skip
        ax.axhline(at, color=GRID, linewidth=0.4, zorder=0)
    ax.set_yticks(place, [shortened(each.label, letters) for each in others])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(others) - 0.4, -0.6)
    _limits(ax.set_xlim, found, others)
    ax.axvline(0, color=MUTED, linewidth=0.5)
    ax.set_xlabel(_axis(found))


def _along(ax: Axes, found: SubstitutionEffect) -> None:
    """Draw the loss, or the cost, by position, as it is and with the main substitutes."""
    costs = found.by_position
    if costs is None:
        return
    names = [each.name for each in found.substitutes]
    if found.unchanged is not None:
        at, values = _binned(found.unchanged)
        ax.plot(at, values, color=INK, label=found.substitutes[0].label)
    for name, (color, dash) in zip(_main_ones(found, names), LINES, strict=False):
        rows = costs[names.index(name)]
        at, values = _binned(rows if found.unchanged is None else rows + found.unchanged)
        label = found.substitutes[names.index(name)].label
        ax.plot(at, values, color=color, linestyle=dash, label=shortened(label, LETTERS))
    ax.set_xscale("log")
    _plain_positions(ax, costs.shape[1])
    ax.set_xlabel("position in the context, from 1")
    ax.set_ylabel("loss (nats)" if found.unchanged is not None else _cost(found))
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def _main_ones(found: SubstitutionEffect, names: Sequence[str]) -> list[str]:
    """Choose what is drawn by position: the removal, three components, sinusoids, and order."""
    waves = [f"sinusoids_{k}" for k in range(1, 11) if f"sinusoids_{k}" in names]
    main = (
        found.removed, "components_3", *waves[-1:], "codes", "permuted", "components_10",
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
    at, means = [], []
    for first, stop in pairwise(edges):
        known = values[first:stop][np.isfinite(values[first:stop])]
        if known.size:
            at.append((first + stop + 1) / 2)
            means.append(known.mean())
    return np.array(at), np.array(means)


def _shares(found: SubstitutionEffect) -> bool:
    return found[found.removed].costs[found.measure].kept is not None


def _numbers(found: SubstitutionEffect, some: Sequence[Substitute]) -> tuple[Any, Any]:
    """Return shares with their errors, or costs where shares are undefined."""
    costs = [each.costs[found.measure] for each in some]
    pairs = [(c.kept, c.kept_error) if _shares(found) else (c.value, c.error) for c in costs]
    made = np.array(pairs, dtype=float).reshape(-1, 2)
    return made[:, 0], made[:, 1]


def _within(found: SubstitutionEffect, values: Any) -> Any:
    return np.maximum(values, LOWEST) if _shares(found) else values


def _limits(set_limits: Any, found: SubstitutionEffect, shown: Sequence[Substitute]) -> None:
    if _shares(found):
        values, _ = _numbers(found, shown)
        known = values[np.isfinite(values)]
        lowest = max(LOWEST, min(known.min(initial=0.0), 0.0))
        set_limits(lowest - 0.06, max(known.max(initial=1.0), 1.0) + 0.06)


def _axis(found: SubstitutionEffect) -> str:
    return "share of the worth kept" if _shares(found) else _cost(found)


def _cost(found: SubstitutionEffect) -> str:
    return {
        "loss": "change of the loss (nats)",
        "divergence": "divergence of the outputs (nats)",
        "answers": "top answers that change",
        "states": "relative change of the states",
    }[found.measure]


@of_one
def substitution_figure(sheet: Sheet, found: SubstitutionEffect) -> Figure:
    """Draw what parts of a table keep by their number, and the other explanations beside it."""
    lines = sum(each.kind not in CURVES for each in found.substitutes)
    if found.scheme != "table":
        figure = sheet.figure(2.6, width=4.8)
        plot_substitution(figure.subplots(), found)
        return figure
    height = 0.14 * lines + 1.0
    if sheet.narrow:
        figure = sheet.figure(2.2 + height)
        axes = figure.subplots(2, 1, height_ratios=(2.2, height))
    else:
        figure = sheet.figure(max(2.6, height))
        axes = figure.subplots(1, 2)
    plot_substitution(axes[0], found)
    _others(axes[1], found, FEW_LETTERS if sheet.narrow else LETTERS)
    return figure


substitution_positions_figure: Builder = alone(_along, 2.6, width=4.8)
