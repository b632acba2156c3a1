"""Power over position and frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import FLOOR, Builder, decibels, nothing, one_each
from posprobe.figures.styles import ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.analyses import Spectrogram


def plot_spectrogram(ax: Axes, result: Spectrogram) -> None:
    """Draw power over position and frequency in decibels below its peak, and the fastest line."""
    if result.length is None or result.step is None:
        nothing(ax, result.undefined)
        return
    half, bin_, highest = result.step / 2, result.frequency[1], result.frequency[-1]
    sides = (result.center[0] - half, result.center[-1] + half, -bin_ / 2, highest + bin_ / 2)
    image = ax.imshow(
        decibels(result.power).T, origin="lower", aspect="auto", cmap=ONE_SIDED, vmin=FLOOR, vmax=0,
        extent=sides,
    )  # fmt: skip
    if not np.isnan(result.fastest).all():
        ax.plot(
            result.center, result.fastest, "o", color="white", markeredgecolor=RED,
            markeredgewidth=0.8, markersize=3, label="fastest line",
        )  # fmt: skip
        ax.legend(loc="upper right", labelcolor="white")
    ax.set(
        xlabel=f"position (middle of {result.length})",
        ylabel="frequency (cycles per position)",
        ylim=(0, highest),
    )
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label="power (dB below peak)", aspect=25, pad=0.02)


spectrogram_figure: Builder = one_each(plot_spectrogram, 2.5)
