"""A table compared with the sinusoid of its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.pursuit import ENOUGH
from posprobe.figures.common import note, nothing, plain
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, INK, MUTED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.sinusoid import SinusoidFit

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
    gained = np.diff(lines.share, prepend=0.0)
    last = (-WIDE, -TALL)
    for k, period in enumerate(lines.periods):
        room = k - last[0] >= WIDE or lines.share[k] - last[1] >= TALL
        if gained[k] >= LABELLED and room:
            last = (k, lines.share[k])
            said = f"{period:.0f}" if period >= 100 else f"{period:.1f}"
            note(ax, said, (k + 1, lines.share[k]), (3, -3), va="top")
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


def sinusoid_figure(
    sheet: Sheet, results: Mapping[str, SinusoidFit], _: Mapping[str, Any]
) -> Figure:
    """Draw both, below each other where the sheet is narrow."""
    shape = (2 * len(results), 1) if sheet.narrow else (len(results), 2)
    figure = sheet.figure(2.5 * shape[0])
    axes = figure.subplots(*shape, squeeze=False).reshape(-1, 2)
    for (left, right), result in zip(axes, results.values(), strict=True):
        plot_sinusoid(left, result)
        plot_base(right, result)
    return figure
