"""A training run: numbers, answers and the way of the table, over its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.sheet import Sheet, legend_above
from posprobe.figures.styles import BLUE, INK, LINES, MUTED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: How answers are marked: shape, filled or not, size.
ANSWERS: Mapping[str, tuple[str, bool, float]] = {
    "yes": ("s", True, 2.6), "no": ("s", False, 2.2), "cannot tell": ("_", True, 2.2),
}  # fmt: skip
#: Ratio of the last to the first step beyond which steps are drawn on a logarithmic axis.
FAR = 30
#: Height in inches of a line of answers, and of a panel of curves.
LINE, PANEL = 0.15, 0.95


def _number(ax: Axes, label: str, steps: Sequence[int], entry: Mapping[str, Any]) -> None:
    """Draw one number, and the sinusoid's value."""
    sinusoid = np.array(entry["sinusoid"], dtype=float)
    ax.plot(steps, sinusoid, color=RED, linestyle=(0, (3, 1.2)), linewidth=0.9, label="sinusoid")
    ax.plot(
        steps,
        np.array(entry["values"], dtype=float),
        color=BLUE,
        marker="o",
        markersize=2,
        label="table",
    )
    ax.set_title(label, pad=2, fontsize="medium")
    ax.locator_params(axis="y", nbins=3)
    ax.margins(y=0.1)


def _path(ax: Axes, steps: Sequence[int], path: Mapping[str, Sequence[float | None]]) -> None:
    for (label, values), (colour, dash) in zip(path.items(), LINES, strict=False):
        ax.plot(steps, np.array(values, dtype=float), color=colour, linestyle=dash, label=label)
    ax.set_ylim(0, None)
    ax.locator_params(axis="y", nbins=3)
    legend_above(ax)


def _answers(ax: Axes, steps: Sequence[int], answers: Mapping[str, Sequence[str | None]]) -> None:
    """Draw a line of marks for each question."""
    for row, said in enumerate(answers.values()):
        for answer, (marker, filled, size) in ANSWERS.items():
            at = [step for step, each in zip(steps, said, strict=True) if each == answer]
            ax.plot(
                at, [row] * len(at), marker, color=BLUE if answer == "yes" else MUTED,
                markersize=size, markeredgewidth=0.6, linestyle="none",
                markerfacecolor=None if filled else "white",
                label=answer if row == 0 else f"_{answer}",
            )  # fmt: skip
    ax.set_yticks(range(len(answers)), list(answers))
    ax.set_ylim(len(answers) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def series_figure(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw ``steps``, ``numbers`` by label, ``path`` and ``answers`` of the references."""
    steps, numbers, answers = (references[name] for name in ("steps", "numbers", "answers"))
    heights = [PANEL] * len(numbers) + [PANEL + 0.4]
    if answers:
        heights.append(LINE * len(answers) + 0.35)
    figure = sheet.figure(sum(heights) + 0.5)
    axes = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for ax, (label, entry) in zip(axes, numbers.items(), strict=False):
        _number(ax, label, steps, entry)
    if numbers:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=3, borderaxespad=0.1)
    _path(axes[len(numbers)], steps, references["path"])
    if answers:
        _answers(axes[-1], steps, answers)
    first = next((step for step in steps if step > 0), 1)
    if steps[-1] / first > FAR:
        axes[-1].set_xscale("symlog", linthresh=first, linscale=0.4)
        axes[-1].set_xlim(steps[0] - 0.3 * first, steps[-1] * 1.15)
        tens = [10**k for k in range(20) if first <= 10**k <= steps[-1]]
        axes[-1].set_xticks([0, *tens], [f"{step:,}" for step in (0, *tens)])
        axes[-1].minorticks_off()
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.label.set_color(INK)
    return figure
