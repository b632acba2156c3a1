"""Norms of positions and norms of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import Builder, nothing, one_each, plain
from posprobe.figures.styles import BLUE, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.analyses.scale import Scale

#: Bins of either histogram, over the range of both.
BINS = 60


def plot_scale(ax: Axes, result: Scale) -> None:
    """Draw the norms of positions and of tokens as histograms on one axis, their means as lines."""
    drawn = (
        (result.position_norms, "positions", BLUE, "-"),
        (result.token_norms, "tokens", RED, (0, (4, 1.5))),
    )
    both = np.concatenate([result.position_norms, result.token_norms])
    low, high = float(both.min()), float(both.max())
    if not high:
        nothing(ax, "all positions and all tokens are zero")
        return
    # Norms of the two may lie decades apart, but a norm of zero lies on no logarithmic axis.
    logarithmic = low > 0 and high > 4 * low
    edges = np.geomspace(low, high, BINS) if logarithmic else np.linspace(low, high, BINS)
    if low == high:
        edges = np.array([0.9 * low, 1.1 * low])
    for norms, label, color, dash in drawn:
        # Rounding must not put the largest norm beyond the last edge.
        share = np.histogram(np.clip(norms, edges[0], edges[-1]), edges)[0] / len(norms)
        ax.stairs(share, edges, color=color, linestyle=dash, label=f"{label} ({len(norms)})")
        ax.axvline(norms.mean(), color=color, linestyle=dash, linewidth=0.6)
    ax.set(xlabel="norm (lines: means)", ylabel="share", ylim=(0, None))
    if logarithmic:
        from matplotlib.ticker import LogLocator

        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        plain(ax.xaxis)
    ax.legend(loc="best")


scale_figure: Builder = one_each(plot_scale, 2.4, width=4.6)
