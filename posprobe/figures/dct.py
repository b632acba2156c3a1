"""The cosine transform of the Gram matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from posprobe.analyses.timefreq import COMPONENTS
from posprobe.figures.common import FLOOR, Builder, decibels, nothing, one_each
from posprobe.figures.styles import ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.analyses import GramDCT


def plot(ax: Axes, result: GramDCT) -> None:
    """Draw the slow corner of the transformed Gram matrix, and the block whose share is given."""
    if result.share is None:
        nothing(ax, result.undefined)
        return
    image = ax.imshow(decibels(np.square(result.corner)), cmap=ONE_SIDED, vmin=FLOOR, vmax=0)
    edge = COMPONENTS - 0.5
    ax.plot([-0.5, edge, edge], [edge, edge, -0.5], color=RED, linewidth=0.9)
    ax.set_title(f"slowest {COMPONENTS} x {COMPONENTS}: {result.share:.1%} of the energy")
    ax.set(xlabel="half cycles in the table", ylabel="half cycles in the table")
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label="energy (dB below peak)", aspect=25, pad=0.02)


FIGURES: Mapping[str, Builder] = {"dct": one_each(plot, 2.9, width=3.8)}
