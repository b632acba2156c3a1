"""Drawings of how frequencies hold along the table, and of the Gram matrix's cosine transform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.analyses.timefreq import COMPONENTS
from posprobe.figures.draw import nothing
from posprobe.figures.styles import ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from numpy.typing import NDArray

    from posprobe.analyses.timefreq import GramDCT, Spectrogram

#: Decibels below the peak at which the colours end.
FLOOR = -40.0


def spectrogram(ax: Axes, result: Spectrogram) -> AxesImage | None:
    """Draw power over position and frequency in decibels below its peak, and the fastest line."""
    if result.length is None or result.step is None:
        nothing(ax, result.undefined.get("length", ""))
        return None
    half, bin_ = result.step / 2, result.frequency[1]
    image = ax.imshow(
        _decibels(result.power).T,
        origin="lower",
        aspect="auto",
        cmap=ONE_SIDED,
        vmin=FLOOR,
        vmax=0,
        extent=(
            result.center[0] - half,
            result.center[-1] + half,
            -bin_ / 2,
            result.frequency[-1] + bin_ / 2,
        ),
    )
    if not np.isnan(result.fastest).all():
        ax.plot(
            result.center, result.fastest, "o", color="white", markeredgecolor=RED,
            markeredgewidth=0.8, markersize=3, label="fastest line",
        )  # fmt: skip
        ax.legend(loc="upper right", labelcolor="white")
    ax.set(
        xlabel=f"position (middle of {result.length})",
        ylabel="frequency (cycles per position)",
        ylim=(0, result.frequency[-1]),
    )
    ax.spines[:].set_visible(False)
    return image


def gram_dct(ax: Axes, result: GramDCT) -> AxesImage | None:
    """Draw the slow corner of the transformed Gram matrix, and the block whose share is given."""
    if result.share is None:
        nothing(ax, result.undefined)
        return None
    image = ax.imshow(_decibels(np.square(result.corner)), cmap=ONE_SIDED, vmin=FLOOR, vmax=0)
    edge = COMPONENTS - 0.5
    ax.plot([-0.5, edge, edge], [edge, edge, -0.5], color=RED, linewidth=0.9)
    ax.set_title(f"slowest {COMPONENTS} x {COMPONENTS}: {result.share:.1%} of the energy")
    ax.set(xlabel="half cycles in the table", ylabel="half cycles in the table")
    ax.spines[:].set_visible(False)
    return image


def _decibels(power: NDArray[np.float64]) -> NDArray[np.float64]:
    peak = power.max()
    return np.asarray(10 * np.log10(np.maximum(power, peak * 10 ** (FLOOR / 10) / 10) / peak))
