"""How far outputs move when tokens are permuted, with and without positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import note, of_one
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.experiments import PermutationEffect


def plot_permutation(ax: Axes, found: PermutationEffect) -> None:
    """Draw how far outputs move when tokens are permuted, with and without positions."""
    known, zero = found.with_positions, found.without_positions
    groups = {"tokens": (known.tokens, zero.tokens)}
    if known.special is not None and zero.special is not None:
        groups["tokens that\nstay (CLS)"] = (known.special, zero.special)
    _paired(ax, groups, ("with positions", "table set to 0"))
    ax.set_xlabel("relative change of the last hidden states")


def _accuracies(ax: Axes, found: PermutationEffect) -> None:
    """Draw the share of contexts that are classified right, as they are and permuted."""
    groups = {
        name: (change.accuracy or 0.0, change.scrambled_accuracy or 0.0)
        for name, change in (
            ("with positions", found.with_positions),
            ("table set to 0", found.without_positions),
        )
    }
    _paired(ax, groups, ("as they are", "permuted"))
    ax.set_xlim(0, 1.15)
    ax.set_xlabel("classified right")


def _paired(ax: Axes, groups: Mapping[str, tuple[float, float]], labels: tuple[str, str]) -> None:
    """Draw pairs of bars, the first of each pair on top, every bar with its number."""
    place = np.arange(len(groups))
    for side, (label, color, hatch) in enumerate(
        zip(labels, (BLUE, RED), ("", "////"), strict=True)
    ):
        values = [pair[side] for pair in groups.values()]
        at = place + (side - 0.5) * 0.36
        ax.barh(
            at, values, 0.32, color=color if not hatch else "none", edgecolor=color, hatch=hatch,
            label=label,
        )  # fmt: skip
        for value, y in zip(values, at, strict=True):
            shown = f"{value:.2g}" if value > 5e-4 else (f"{value:.0e}" if value else "0")
            note(ax, shown, (value, y), (3, 0), va="center")
    ax.set_yticks(place, list(groups))
    ax.set_ylim(len(groups) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


@of_one
def permutation_figure(sheet: Sheet, found: PermutationEffect) -> Figure:
    """Draw the change of the states, and right answers where they are known."""
    known = found.with_positions.accuracy is not None
    shape = sheet.beside(1 + known)
    figure = sheet.figure(1.8 * shape[0], width=6.3 if known else 4.2)
    axes = figure.subplots(*shape, squeeze=False).ravel()
    plot_permutation(axes[0], found)
    if known:
        _accuracies(axes[1], found)
    return figure
