"""How far outputs move when positions begin later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import of_one
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.experiments import PhaseShift


def plot_phase_shift(ax: Axes, found: PhaseShift) -> None:
    """Draw how far the last hidden states move when positions begin later."""
    ax.plot(found.shifts, found.change, color=BLUE, marker="o", markersize=3)
    ax.set(xlabel="position of the first token", ylabel="relative change", ylim=(0, None))


def _loss(ax: Axes, found: PhaseShift) -> None:
    """Draw the loss by shift, with the perplexity on the right."""
    if found.loss is None:
        return
    ax.plot(found.shifts, found.loss, color=BLUE, marker="o", markersize=3)
    ax.axhline(found.loss[0], color=MUTED, linewidth=0.5)
    ax.set(xlabel="position of the first token", ylabel=f"loss, {found.task}\n(nats)")
    right = ax.secondary_yaxis("right", functions=(_exp, _log))
    right.set_ylabel("perplexity")


def _exp(values: Any) -> Any:
    return np.exp(np.minimum(values, 700.0))


def _log(values: Any) -> Any:
    # The scale is asked for what lies off it, too.
    return np.log(np.maximum(values, 1e-300))


@of_one
def shift_figure(sheet: Sheet, found: PhaseShift) -> Figure:
    """Draw the change of the states by shift, and the loss where there is one."""
    with_loss = found.loss is not None
    figure = sheet.figure(3.6 if with_loss else 2.2, width=4.8)
    axes = figure.subplots(1 + with_loss, 1, sharex=True, squeeze=False)[:, 0]
    plot_phase_shift(axes[0], found)
    if with_loss:
        axes[0].set_xlabel("")
        _loss(axes[1], found)
    return figure
