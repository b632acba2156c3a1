"""Fits of a table: variance budget, sinusoids, prediction of left-out rows, probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posprobe.analyses.composition.budget import BUDGET_LABELS, Budget
from posprobe.analyses.composition.ledger import BUDGET_TERMS
from posprobe.analyses.descriptive.matching_pursuit import EXPLAINED_VARIANCE_SHARE
from posprobe.figures.common import (
    Builder,
    FigureExtras,
    FigureFormat,
    annotate_point,
    count_legend_columns,
    label_decades,
    legend_height,
    single_plot,
    single_result,
    write_undefined,
)
from posprobe.figures.styles import BLUE, INK, LINE_STYLES, MUTED, PALE, RED
from posprobe.text import format_period

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.composition.bridging import Bridging
    from posprobe.analyses.descriptive.probes import Probes
    from posprobe.analyses.descriptive.sinusoid import SinusoidFit


#: The period of a sinusoid is labelled where it adds at least this share of the variance.
MIN_LABELLED_GAIN = 0.03
#: Labels this many sinusoids apart do not overlap.
MIN_LABEL_SINUSOIDS = 3
#: Labels this share of the variance apart do not overlap.
MIN_LABEL_SHARE = 0.09


def plot_sinusoid(ax: Axes, result: SinusoidFit) -> None:
    """Draw the share explained by 1, 2, 3 … sinusoids, with the first ones' periods."""
    lines = result.sinusoids
    if lines is None or not lines.share.size:
        write_undefined(ax, result.undefined.get("sinusoids", "no sinusoid was found"))
        return
    count = np.arange(1, len(lines.share) + 1)
    ax.plot(
        count,
        result.best_share,
        color=MUTED,
        linestyle=(0, (4, 1.5)),
        label="any shape, two directions each",
    )
    ax.plot(count, lines.share, "o-", color=BLUE, markersize=3, label="sinusoids")
    gains = np.diff(lines.share, prepend=0.0)
    last_label = (-MIN_LABEL_SINUSOIDS, -MIN_LABEL_SHARE)
    for k, period in enumerate(lines.periods):
        room = (
            k - last_label[0] >= MIN_LABEL_SINUSOIDS
            or lines.share[k] - last_label[1] >= MIN_LABEL_SHARE
        )
        if gains[k] >= MIN_LABELLED_GAIN and room:
            last_label = (k, lines.share[k])
            annotate_point(
                ax, format_period(period), (k + 1, lines.share[k]), (3, -3), va="top"
            )
    ax.axhline(EXPLAINED_VARIANCE_SHARE, color=MUTED, linewidth=0.5)
    ax.set(
        xlabel="sinusoids (labels: periods)",
        ylabel="share of variance",
        ylim=(-0.02, 1.04),
    )
    ax.set_xlim(0.5, max(len(count), 4) + 0.7)
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def plot_base(ax: Axes, result: SinusoidFit) -> None:
    """Draw the resemblance to sinusoids of other bases, and the best where one stands out."""
    fit = result.base
    if fit is None or not fit.bases.size:
        write_undefined(ax, result.undefined.get("base", "no base was fitted"))
        return
    ax.plot(fit.bases, fit.cka, color=BLUE)
    if fit.base is not None and fit.best is not None:
        ax.plot([fit.base], [fit.best], "o", color=RED, markersize=3)
        label = f"{float(f'{fit.base:.3g}'):.0f}"
        annotate_point(ax, label, (fit.base, fit.best), (4, 2))
    elif fit.similar is not None and fit.similar[1] > fit.similar[0]:
        ax.axvspan(*fit.similar, color=MUTED, alpha=0.15, linewidth=0)
        ax.annotate(
            "fit as well",
            (float(np.sqrt(np.prod(fit.similar))), 0.02),
            xycoords=("data", "axes fraction"),
            ha="center",
            color=INK,
        )
    ax.set(xscale="log", xlabel="base of the wavelengths", ylabel="debiased CKA")
    ax.set_ylim(min(0.0, float(fit.cka.min())) - 0.02, 1.04)
    ax.set_xlim(fit.bases[0], fit.bases[-1])
    label_decades(ax.xaxis)


@single_result
def sinusoid_figure(figure_format: FigureFormat, result: SinusoidFit) -> Figure:
    """Draw the share by number of sinusoids and the CKA by base."""
    shape = figure_format.arrange_panels(2)
    figure = figure_format.make_figure(2.5 * shape[0])
    first, second = figure.subplots(*shape)
    plot_sinusoid(first, result)
    plot_base(second, result)
    return figure


#: Curves leave the frame below this R².
MIN_DRAWN_R2 = -0.25
#: The largest gap is no power of two; the label of one that is nearer would touch its label.
MIN_LABEL_OCTAVES = 0.7
#: Markers of the rules, which also differ in colour and dash.
RULE_MARKERS = ("o", "s", "^", "D")
#: Labels of the rules that predict left-out rows.
RULE_LABELS = {
    "linear": "straight line",
    "smooth": "smooth part of the model",
    "waves": "model with periodic components",
    "shift": "linear map from row to row",
}


def plot_bridging(ax: Axes, result: Bridging) -> None:
    """Draw R² against the gap for each rule, and to the right of it R² beyond the ends."""
    if result.undefined:
        write_undefined(ax, result.undefined)
        return
    x = np.log2(result.gaps)
    # The two ends need room for their labels, whatever the number of gaps.
    spacing = max(0.17 * float(x[-1] - x[0]), 0.5)
    ends = x[-1] + spacing * np.array([1.0, 2.0])
    ax.axhline(0, color=PALE, linewidth=0.6, zorder=0)
    ax.axvline(x[-1] + spacing / 2, color=PALE, linewidth=0.6, zorder=0)
    for (rule, label), (color, dash), marker in zip(
        RULE_LABELS.items(), LINE_STYLES, RULE_MARKERS, strict=False
    ):
        marker_style: dict[str, Any] = {"color": color, "markersize": 3, "clip_on": True}
        ax.plot(x, result.r2[rule], marker, linestyle=dash, label=label, **marker_style)
        ax.plot(ends, result.beyond[rule][:2], marker, linestyle="none", **marker_style)
    stride = max(1, -(-len(x) // 9))
    last = len(x) - 1
    labelled = [
        k
        for k in range(last % stride, len(x), stride)
        if k == last or x[last] - x[k] >= MIN_LABEL_OCTAVES
    ]
    ax.set_xticks(
        [*x[labelled].tolist(), *ends],
        [*(str(result.gaps[k]) for k in labelled), "before\nstart", "after\nend"],
    )
    ax.set(xlabel="rows left out (a quarter beyond the ends)", ylabel="held-out R²")
    ax.set(ylim=(MIN_DRAWN_R2, 1.04), xlim=(x[0] - spacing / 3, ends[-1] + spacing / 2))


@single_result
def bridging_figure(figure_format: FigureFormat, result: Bridging) -> Figure:
    """Draw one panel for a sequence and one for each axis of a grid."""
    defined_axes = {
        axis: bridging for axis, bridging in result.axes.items() if not bridging.undefined
    }
    panels_by_name, labels = defined_axes or {"": result}, list(RULE_LABELS.values())
    n_rows, n_columns = figure_format.arrange_panels(len(panels_by_name))
    figure = figure_format.make_figure(
        2.2 * n_rows + legend_height(labels, figure_format.width)
    )
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    for ax, (axis, bridging) in zip(axes, panels_by_name.items(), strict=True):
        plot_bridging(ax, bridging)
        ax.set_title(axis)
        ax.label_outer()
        if figure_format.is_narrow:
            ax.set_xlabel("rows left out")
    if axes[0].lines:
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=count_legend_columns(labels, figure_format.width),
            columnspacing=1.0,
            handlelength=2.8,
        )
    return figure


class _ProbeLine(NamedTuple):
    """One probe in the drawing: its error, spread and chance level."""

    label: str
    error: float
    error_sd: float
    chance: float
    number_format: str
    is_published: bool = False


def plot_probes(ax: Axes, result: Probes) -> None:
    """Draw each probe's error as a share of its own chance level, labelled with the error."""
    lines = list(_probe_lines(result))
    if not lines:
        write_undefined(ax, result.undefined or "there are no probes")
        return
    height = -np.arange(len(lines), dtype=float)
    ax.axvline(1, color=MUTED, linewidth=0.6, linestyle=(0, (4, 1.5)))
    ax.axvline(0, color=PALE, linewidth=0.6)
    for y, line in zip(height, lines, strict=True):
        share = line.error / line.chance
        ax.errorbar(
            [share],
            [y],
            xerr=[line.error_sd / line.chance],
            capsize=2,
            linewidth=0.9,
            markersize=4,
            fmt="s" if line.is_published else "o",
            color=RED if line.is_published else BLUE,
            markerfacecolor="white" if line.is_published else BLUE,
        )
        annotate_point(
            ax, f"{line.error:{line.number_format}}", (share, y), (0, 5), ha="center"
        )
    ax.set_yticks(height, [line.label for line in lines])
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel="error as a share of its chance level (0: none, 1: chance)")
    ax.set_xlim(-0.08, max(1.12, max(line.error / line.chance for line in lines) * 1.1))
    ax.set_ylim(height[-1] - 0.6, 0.8)


def _probe_lines(result: Probes) -> Iterator[_ProbeLine]:
    for line_label, number_format, published in (
        ("position", ".3g", result.absolute_published),
        ("order", ".1%", result.order_published),
    ):
        if published is not None:
            yield _ProbeLine(
                f"{line_label}, as published",
                published.mean,
                published.sd or 0.0,
                published.chance,
                number_format,
                is_published=True,
            )
        if line_label == "position" and (blocked := result.absolute_blocked) is not None:
            for split, error, chance in (
                ("random folds", blocked.mae_shuffled, blocked.chance_shuffled),
                ("inner blocks", blocked.interpolation, blocked.chance_interpolation),
                ("outer blocks", blocked.extrapolation, blocked.chance_extrapolation),
            ):
                yield _ProbeLine(f"position, {split}", error, 0.0, chance, number_format)
        if line_label == "order" and (order := result.order_disjoint) is not None:
            chance = float(order.chance.mean())
            yield _ProbeLine(
                "order, unseen positions",
                order.error,
                order.sd or 0.0,
                chance,
                number_format,
            )
            blocked_error = float(order.blocked.mean())
            blocked_sd = order.blocked_sd or 0.0
            yield _ProbeLine(
                "order, unseen blocks", blocked_error, blocked_sd, chance, number_format
            )


probes_figure: Builder = single_plot(plot_probes, 2.6, width=4.6)


#: Colours of the terms of the variance budget, except rotations.
TERM_COLOURS: Mapping[str, str] = {
    "preferred": "#c9a0dc",
    "sway": "#7a6fb0",
    "line": "#d9773f",
    "smooth": "#eda866",
    "walk": "#d8c36a",
    "rough": "#b9b36b",
    "slow": "#e3b97a",
    "alternating": "#c9788f",
    "rows": "#0f6b5c",
    "columns": "#81c4b1",
    "special": "#33383f",
    "breaks": "#7d5c3c",
    "noise": "#a9aeb3",
    "other": "#cfd3d6",
    "untrained": "#dfe2e4",
}
#: Colours of rotations, from fast to slow.
ROTATION_COLOURS = ("#8fc0ea", "#5b9bd5", "#2a6fb3", "#164a85", "#0d2f57")
#: Terms with dark colours, whose labels are white.
DARK_TERMS = {"special", "breaks", "rows", "sway"}
#: Width of a letter in the labels of the budget.
BUDGET_LETTER_INCHES = 0.07
#: Height of a line in the legend of the budget.
BUDGET_LEGEND_LINE_INCHES = 0.15


def term_colour(term: str, rank: int, n_rotations: int) -> str:
    """Return the colour of a term; rotations are coloured by rank, the fastest first."""
    if term != "rotation":
        return TERM_COLOURS[term]
    n_colours = len(ROTATION_COLOURS)
    index = rank if n_rotations <= n_colours else rank * n_colours // n_rotations
    return ROTATION_COLOURS[min(index, n_colours - 1)]


def plot_budget(
    ax: Axes, result: Budget, *, y: float = 0.0, width: float = 4.0
) -> set[str]:
    """Draw a bar of the shares of the variance around the mean row.

    Parameters
    ----------
    ax
        Axes that are drawn into.
    result
        Variance budget.
    y
        Vertical position of the bar.
    width
        Width of the whole bar, a share of 1, in inches.

    Returns
    -------
    set of str
        Terms whose segments are too narrow for their names.
    """
    terms = result.around_mean()
    n_rotations = sum(term.part == "rotation" for term in terms)
    left_edge, rank = 0.0, 0
    unnamed: set[str] = set()
    for term in terms:
        colour = term_colour(term.part, rank, n_rotations)
        rank += term.part == "rotation"
        ax.barh(
            y,
            term.share,
            left=left_edge,
            height=0.7,
            color=colour,
            edgecolor="white",
            linewidth=0.8,
        )
        name = (
            f"{format_period(term.period)} positions"
            if term.period
            else BUDGET_LABELS[term.part]
        )
        has_light_label = term.part in DARK_TERMS or (
            term.part == "rotation" and rank > 2
        )
        label_lines = [name, f"{100 * term.share:.0f} %"]
        if term.period and term.share * width <= BUDGET_LETTER_INCHES * len(name):
            label_lines[0] = format_period(term.period)
        if term.share * width > BUDGET_LETTER_INCHES * max(map(len, label_lines)):
            ax.text(
                left_edge + term.share / 2,
                y,
                "\n".join(label_lines),
                ha="center",
                va="center",
                color="white" if has_light_label else INK,
            )
        if term.share * width <= BUDGET_LETTER_INCHES * len(name):
            unnamed.add(term.part)
        left_edge += term.share
    ax.set(xlim=(0, 1), xlabel="share of the variance")
    return unnamed


def budget_figure(
    figure_format: FigureFormat, results: Mapping[str, Budget], _: FigureExtras
) -> Figure:
    """Draw a bar per table, and a legend of the terms that are too narrow for a name."""
    from matplotlib.patches import Patch

    names = list(results) if len(results) > 1 else [""]
    width = 0.92 * figure_format.width - BUDGET_LETTER_INCHES * max(map(len, names))
    bars_height = 0.55 * len(results) + 0.55
    figure = figure_format.make_figure(bars_height)
    ax = figure.subplots()
    unnamed: set[str] = set()
    for row, result in enumerate(results.values()):
        unnamed |= plot_budget(ax, result, y=-row, width=width)
    ax.set_yticks([-k for k in range(len(names))], names)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    legend_labels = {"rotation": "rotation, by period in positions"}
    patches = [
        Patch(
            color=term_colour(term, 2, 5),
            label=legend_labels.get(term, BUDGET_LABELS[term]),
        )
        for term in BUDGET_TERMS
        if term in unnamed
    ]
    if patches:
        columns = 1 if figure_format.is_narrow else 4
        n_lines = -(-len(patches) // columns)
        height = bars_height + 0.1 + BUDGET_LEGEND_LINE_INCHES * n_lines
        figure.set_figheight(min(height, figure_format.max_height))
        figure.legend(
            handles=patches, loc="outside lower left", ncols=columns, frameon=False
        )
    return figure
