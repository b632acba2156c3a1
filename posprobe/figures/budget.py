"""What the variance of tables is made of: a bar for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posprobe.analyses.budget import LABELS, ORDER, Budget
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import INK
from posprobe.text import period_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def plot_budget(ax: Axes, result: Budget, *, at: float = 0.0, width: float = 4.0) -> set[str]:
    """Draw a bar of the shares of the variance around the mean row.

    Parameters
    ----------
    ax, result
        To draw into, and what.
    at
        Height of the bar.
    width
        Of a share of 1, in inches.

    Returns
    -------
    set of str
        Parts that are too small for their names.
    """
    parts = result.around_mean()
    waves = sum(each.part == "rotation" for each in parts)
    left, rank = 0.0, 0
    unnamed: set[str] = set()
    for each in parts:
        shade = color(each.part, rank, waves)
        rank += each.part == "rotation"
        ax.barh(
            at, each.share, left=left, height=0.7, color=shade, edgecolor="white", linewidth=0.8
        )
        name = f"{period_of(each.period)} positions" if each.period else LABELS[each.part]
        light = each.part in DARK or (each.part == "rotation" and rank > 2)
        said = [name, f"{100 * each.share:.0f} %"]
        if each.period and each.share * width <= LETTER * len(name):
            said[0] = period_of(each.period)
        if each.share * width > LETTER * max(map(len, said)):
            ax.text(
                left + each.share / 2, at, "\n".join(said), ha="center", va="center",
                color="white" if light else INK,
            )  # fmt: skip
        if each.share * width <= LETTER * len(name):
            unnamed.add(each.part)
        left += each.share
    ax.set(xlim=(0, 1), xlabel="share of the variance")
    return unnamed


def budget_figure(sheet: Sheet, results: Mapping[str, Budget], _: Mapping[str, Any]) -> Figure:
    """Draw a bar per table, and name the parts that are too small for a name."""
    from matplotlib.patches import Patch

    names = list(results) if len(results) > 1 else [""]
    width = 0.92 * sheet.width - LETTER * max(map(len, names))
    figure = sheet.figure(0.55 * len(results) + 1.1)
    ax = figure.subplots()
    unnamed: set[str] = set()
    for row, result in enumerate(results.values()):
        unnamed |= plot_budget(ax, result, at=-row, width=width)
    ax.set_yticks([-k for k in range(len(names))], names)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    said = {"rotation": "rotation, by period in positions"}
    patches = [
        Patch(color=color(part, 2, 5), label=said.get(part, LABELS[part]))
        for part in ORDER
        if part in unnamed
    ]
    if patches:
        columns = 1 if sheet.narrow else 4
        figure.legend(handles=patches, loc="outside lower left", ncols=columns, frameon=False)
    return figure
