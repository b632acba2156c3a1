"""What models of a table explain: parts of the variance, sinusoids, rows left out, probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posprobe.analyses.composition.budget import LABELS, ORDER, Budget
from posprobe.analyses.descriptive.matching_pursuit import ENOUGH
from posprobe.figures.common import (
    Baselines,
    Builder,
    Sheet,
    alone,
    columns_of,
    legend_height,
    note,
    nothing,
    of_one,
    plain,
)
from posprobe.figures.styles import BLUE, GRID, INK, LINES, MUTED, RED
from posprobe.text import period_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.composition.bridging import Bridging
    from posprobe.analyses.descriptive.probes import Probes
    from posprobe.analyses.descriptive.sinusoid import SinusoidFit


#: A sinusoid's period is written out where it adds at least this share.
LABELLED = 0.03
#: Sinusoids and shares of the variance between two labels that do not touch.
WIDE, TALL = 3, 0.09


def plot_sinusoid(ax: Axes, result: SinusoidFit) -> None:
    """Draw the share explained by 1, 2, 3 … sinusoids, with the first ones' periods."""
    lines = result.sinusoids
    if lines is None or not lines.share.size:
        nothing(ax, result.undefined.get("sinusoids", "no sinusoid was found"))
        return
    count = np.arange(1, len(lines.share) + 1)
    ax.plot(
        count, result.best_share, color=MUTED, linestyle=(0, (4, 1.5)),
        label="any shape, two directions each",
    )  # fmt: skip
    ax.plot(count, lines.share, "o-", color=BLUE, markersize=3, label="sinusoids")
    gains = np.diff(lines.share, prepend=0.0)
    last_label = (-WIDE, -TALL)
    for k, period in enumerate(lines.periods):
        room = k - last_label[0] >= WIDE or lines.share[k] - last_label[1] >= TALL
        if gains[k] >= LABELLED and room:
            last_label = (k, lines.share[k])
            note(ax, period_of(period), (k + 1, lines.share[k]), (3, -3), va="top")
    ax.axhline(ENOUGH, color=MUTED, linewidth=0.5)
    ax.set(xlabel="sinusoids (labels: periods)", ylabel="share of variance", ylim=(-0.02, 1.04))
    ax.set_xlim(0.5, max(len(count), 4) + 0.7)
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def plot_base(ax: Axes, result: SinusoidFit) -> None:
    """Draw the resemblance to sinusoids of other bases, and the best where one stands out."""
    fit = result.base
    if fit is None or not fit.bases.size:
        nothing(ax, result.undefined.get("base", "no base was fitted"))
        return
    ax.plot(fit.bases, fit.cka, color=BLUE)
    if fit.base is not None and fit.best is not None:
        ax.plot([fit.base], [fit.best], "o", color=RED, markersize=3)
        label = f"{float(f'{fit.base:.3g}'):.0f}"
        note(ax, label, (fit.base, fit.best), (4, 2))
    elif fit.similar is not None and fit.similar[1] > fit.similar[0]:
        ax.axvspan(*fit.similar, color=MUTED, alpha=0.15, linewidth=0)
        ax.annotate(
            "fit as well", (float(np.sqrt(np.prod(fit.similar))), 0.02),
            xycoords=("data", "axes fraction"), ha="center", color=INK,
        )  # fmt: skip
    ax.set(xscale="log", xlabel="base of the wavelengths", ylabel="debiased CKA")
    ax.set_ylim(min(0.0, float(fit.cka.min())) - 0.02, 1.04)
    ax.set_xlim(fit.bases[0], fit.bases[-1])
    plain(ax.xaxis)


@of_one
def sinusoid_figure(sheet: Sheet, result: SinusoidFit) -> Figure:
    """Draw both, below each other where the sheet is narrow."""
    shape = sheet.beside(2)
    figure = sheet.figure(2.5 * shape[0])
    first, second = figure.subplots(*shape)
    plot_sinusoid(first, result)
    plot_base(second, result)
    return figure


#: R² below which a curve leaves the frame.
LOWEST = -0.25
#: Marks of the rules, beside colour and dash.
MARKS = ("o", "s", "^", "D")
NAMES = {
    "linear": "straight line",
    "smooth": "smooth part of the model",
    "waves": "model with periodic components",
    "shift": "linear map from row to row",
}


def plot_bridging(ax: Axes, result: Bridging) -> None:
    """Draw R² against the gap for each rule, and what lies beyond the ends to the right of it."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    x = np.log2(result.gaps)
    # Wide enough apart for their labels, whatever the number of gaps.
    spacing = max(0.17 * float(x[-1] - x[0]), 0.5)
    ends = x[-1] + spacing * np.array([1.0, 2.0])
    ax.axhline(0, color=GRID, linewidth=0.6, zorder=0)
    ax.axvline(x[-1] + spacing / 2, color=GRID, linewidth=0.6, zorder=0)
    for (rule, label), (color, dash), mark in zip(NAMES.items(), LINES, MARKS, strict=False):
        look: dict[str, Any] = {"color": color, "markersize": 3, "clip_on": True}
        ax.plot(x, result.r2[rule], mark, linestyle=dash, label=label, **look)
        ax.plot(ends, result.beyond[rule][:2], mark, linestyle="none", **look)
    stride = max(1, -(-len(x) // 9))
    labelled = list(range(len(x)))[::-1][::stride][::-1]
    ax.set_xticks(
        [*x[labelled], *ends],
        [*(str(result.gaps[k]) for k in labelled), "before\nstart", "after\nend"],
    )
    ax.set(xlabel="rows left out (a quarter beyond the ends)", ylabel="held-out R²")
    ax.set(ylim=(LOWEST, 1.04), xlim=(x[0] - spacing / 3, ends[-1] + spacing / 2))


@of_one
def bridging_figure(sheet: Sheet, result: Bridging) -> Figure:
    """Draw a panel, and of a grid one for both axes."""
    parts = {axis: part for axis, part in result.axes.items() if not part.undefined}
    panels_by_name, labels = parts or {"": result}, list(NAMES.values())
    n_rows, n_columns = sheet.beside(len(panels_by_name))
    figure = sheet.figure(2.2 * n_rows + legend_height(labels, sheet.width))
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    for ax, (axis, part) in zip(axes, panels_by_name.items(), strict=True):
        plot_bridging(ax, part)
        ax.set_title(axis)
        ax.label_outer()
        if sheet.narrow:
            ax.set_xlabel("rows left out")
    if axes[0].lines:
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside upper center",
            ncols=columns_of(labels, sheet.width), columnspacing=1.0, handlelength=2.8,
        )  # fmt: skip
    return figure


class _Line(NamedTuple):
    label: str
    error: float
    spread: float
    chance: float
    form: str
    published: bool = False


def plot_probes(ax: Axes, result: Probes) -> None:
    """Draw each probe's error as a share of its own chance level, the number itself beside it."""
    lines = list(_lines(result))
    if not lines:
        nothing(ax, result.undefined or "there are no probes")
        return
    height = -np.arange(len(lines), dtype=float)
    ax.axvline(1, color=MUTED, linewidth=0.6, linestyle=(0, (4, 1.5)))
    ax.axvline(0, color=GRID, linewidth=0.6)
    for y, line in zip(height, lines, strict=True):
        share = line.error / line.chance
        ax.errorbar(
            [share], [y], xerr=[line.spread / line.chance], capsize=2, linewidth=0.9, markersize=4,
            fmt="s" if line.published else "o", color=RED if line.published else BLUE,
            markerfacecolor="white" if line.published else BLUE,
        )  # fmt: skip
        note(ax, f"{line.error:{line.form}}", (share, y), (0, 5), ha="center")
    ax.set_yticks(height, [line.label for line in lines])
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel="error as a share of its chance level (0: none, 1: chance)")
    ax.set_xlim(-0.08, max(1.12, max(line.error / line.chance for line in lines) * 1.1))
    ax.set_ylim(height[-1] - 0.6, 0.8)


def _lines(result: Probes) -> Iterator[_Line]:
    for line_label, form, published in (
        ("position", ".3g", result.absolute_published),
        ("order", ".1%", result.order_published),
    ):
        if published is not None:
            yield _Line(
                f"{line_label}, as published", published.mean, published.sd or 0.0,
                published.chance,
                form, published=True,
            )  # fmt: skip
        if line_label == "position" and (sound := result.absolute_blocked) is not None:
            for rows, error, level in (
                ("random folds", sound.mae_shuffled, sound.chance_shuffled),
                ("inner blocks", sound.interpolation, sound.chance_interpolation),
                ("outer blocks", sound.extrapolation, sound.chance_extrapolation),
            ):
                yield _Line(f"position, {rows}", error, 0.0, level, form)
        if line_label == "order" and (order := result.order_disjoint) is not None:
            chance = float(order.chance.mean())
            yield _Line("order, unseen positions", order.error, order.sd or 0.0, chance, form)
            blocked = float(order.blocked.mean())
            yield _Line("order, unseen blocks", blocked, order.blocked_sd or 0.0, chance, form)


probes_figure: Builder = alone(plot_probes, 2.6, width=4.6)


#: Colours of parts; of rotations and other waves, from fast to slow.
COLORS: Mapping[str, str] = {
    "preferred": "#c9a0dc", "sway": "#7a6fb0", "line": "#d9773f", "smooth": "#eda866",
    "walk": "#d8c36a", "rough": "#b9b36b", "alternating": "#c9788f", "rows": "#0f6b5c",
    "columns": "#81c4b1", "special": "#33383f", "breaks": "#7d5c3c",
    "noise": "#a9aeb3", "other": "#cfd3d6", "untrained": "#dfe2e4",
}  # fmt: skip
WAVES = ("#8fc0ea", "#5b9bd5", "#2a6fb3", "#164a85", "#0d2f57")
#: Dark parts, whose labels are light.
DARK = {"special", "breaks", "rows", "sway"}
#: Width of a letter of a label, in inches.
LETTER = 0.07


def color(part: str, rank: int, waves: int) -> str:
    """Return the colour of a part, of a rotation by its rank from the fastest."""
    if part != "rotation":
        return COLORS[part]
    return WAVES[min(rank if waves <= len(WAVES) else rank * len(WAVES) // waves, len(WAVES) - 1)]


def plot_budget(ax: Axes, result: Budget, *, y: float = 0.0, width: float = 4.0) -> set[str]:
    """Draw a bar of the shares of the variance around the mean row.

    Parameters
    ----------
    ax, result
        To draw into, and what.
    y
        Height of the bar.
    width
        Of a share of 1, in inches.

    Returns
    -------
    set of str
        Parts that are too small for their names.
    """
    parts = result.around_mean()
    waves = sum(part.part == "rotation" for part in parts)
    left_edge, rank = 0.0, 0
    unnamed: set[str] = set()
    for part in parts:
        shade = color(part.part, rank, waves)
        rank += part.part == "rotation"
        ax.barh(
            y, part.share, left=left_edge, height=0.7, color=shade, edgecolor="white", linewidth=0.8
        )
        name = f"{period_of(part.period)} positions" if part.period else LABELS[part.part]
        light = part.part in DARK or (part.part == "rotation" and rank > 2)
        label_lines = [name, f"{100 * part.share:.0f} %"]
        if part.period and part.share * width <= LETTER * len(name):
            label_lines[0] = period_of(part.period)
        if part.share * width > LETTER * max(map(len, label_lines)):
            ax.text(
                left_edge + part.share / 2, y, "\n".join(label_lines), ha="center", va="center",
                color="white" if light else INK,
            )  # fmt: skip
        if part.share * width <= LETTER * len(name):
            unnamed.add(part.part)
        left_edge += part.share
    ax.set(xlim=(0, 1), xlabel="share of the variance")
    return unnamed


def budget_figure(sheet: Sheet, results: Mapping[str, Budget], _: Baselines) -> Figure:
    """Draw a bar per table, and name the parts that are too small for a name."""
    from matplotlib.patches import Patch

    names = list(results) if len(results) > 1 else [""]
    width = 0.92 * sheet.width - LETTER * max(map(len, names))
    figure = sheet.figure(0.55 * len(results) + 1.1)
    ax = figure.subplots()
    unnamed: set[str] = set()
    for row, result in enumerate(results.values()):
        unnamed |= plot_budget(ax, result, y=-row, width=width)
    ax.set_yticks([-k for k in range(len(names))], names)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    legend_labels = {"rotation": "rotation, by period in positions"}
    patches = [
        Patch(color=color(part, 2, 5), label=legend_labels.get(part, LABELS[part]))
        for part in ORDER
        if part in unnamed
    ]
    if patches:
        columns = 1 if sheet.narrow else 4
        figure.legend(handles=patches, loc="outside lower left", ncols=columns, frameon=False)
    return figure
