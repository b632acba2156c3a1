"""Drawings of encodings that follow a formula: rotary ladders, linear biases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.draw import plain
from posprobe.figures.styles import BLUE, MUTED, ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.analyses.rotation import Rotation


def ladder(
    ax: Axes,
    wavelength: NDArray[np.float64],
    unscaled: NDArray[np.float64],
    training: int | None,
    target: int | None,
) -> None:
    """Draw each pair's wavelength beside the context lengths; arguments as in `Rotation`."""
    pair = np.arange(len(wavelength))
    if not np.array_equal(wavelength, unscaled):
        before = np.where(np.isfinite(unscaled), unscaled, np.nan)
        ax.plot(pair, before, color=MUTED, linestyle=(0, (1, 1.2)), label="before scaling")
    ax.plot(pair, np.where(np.isfinite(wavelength), wavelength, np.nan), color=BLUE, marker=".",
            markersize=3, label="wavelength")  # fmt: skip
    lengths = {"target": (target, "-"), "training": (training, (0, (4, 1.5)))}
    if training == target:
        del lengths["training"]
    for name, (length, dash) in lengths.items():
        if length:
            ax.axhline(length, color=RED, linewidth=0.8, linestyle=dash)
            what = f"{name} length, {length}" if len(lengths) > 1 else f"length {length}"
            below = name == "training" and "target" in lengths
            ax.annotate(what, (0, length), (2, -2 if below else 2),
                        textcoords="offset points", va="top" if below else "bottom")  # fmt: skip
    if target and (never := wavelength > target).any():
        for start in pair[never & ~np.concatenate([[False], never[:-1]])]:
            run = np.argmin(never[start:]) if not never[start:].all() else never[start:].size
            ax.axvspan(start - 0.5, start + run - 0.5, color=MUTED, alpha=0.15, linewidth=0)
        ax.annotate(
            f"{never.sum()} of {never.size} pairs\nnever complete a turn",
            (0.98, 0.03), xycoords="axes fraction", ha="right", va="bottom",
        )  # fmt: skip
    ax.set(yscale="log", xlabel="pair, fastest first", ylabel="wavelength (positions per turn)")
    ax.set_xlim(-0.5, len(pair) - 0.5)
    plain(ax.yaxis)
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, 1.12), ncols=2)


def decay(ax: Axes, result: Rotation) -> None:
    """Draw the mean rotation by distance and where it is first negative, with the bound's shape.

    The bound is RoFormer's, on logits in units of the content's differences: relative to its value
    at distance 0, it bounds nothing that is drawn here.
    """
    later = result.distance > 0
    distance = result.distance[later]
    bound = result.bound[later] / result.bound[0]
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.plot(distance, bound, color=MUTED, linestyle=(0, (4, 1.5)), label="shape of the bound")
    ax.plot(distance, result.kernel[later], color=BLUE, label="mean rotation")
    if result.first_negative is not None and result.first_negative <= distance[-1]:
        ax.plot([result.first_negative], [0], "o", color=RED, markersize=3.5)
        ax.annotate(
            f"first negative: {result.first_negative}", (result.first_negative, 0), (-3, -4),
            textcoords="offset points", ha="right", va="top",
        )  # fmt: skip
    ax.set(xscale="log", xlabel="distance (positions)", ylabel="share of the value at distance 0")
    ax.set_xlim(1, distance[-1])
    ax.set_ylim(min(-0.3, float(result.kernel.min()) - 0.05), 1.03)
    plain(ax.xaxis)
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, 1.12), ncols=2)


def slopes(ax: Axes, values: NDArray[np.floating[Any]], n: int) -> None:
    """Draw the penalty of each head up to ``n`` positions on logarithmic axes, where it is a line.

    Parameters
    ----------
    ax
        To draw into.
    values
        ``[heads]``, logits per position.
    n
        Positions.
    """
    from matplotlib import colormaps

    distance = np.array([1, max(n - 1, 2)])
    # The lightest end of the map is lost on white.
    colors = colormaps[ONE_SIDED](np.linspace(0, 0.85, len(values)))
    every = math.ceil(len(values) / 8)
    # Labels stand in the order of the slopes, whatever the order of the heads.
    labelled = np.argsort(-values, kind="stable")[::every]
    for head, slope in enumerate(values):
        ax.plot(distance, slope * distance, color=colors[head], linewidth=0.9)
    for head in labelled:
        ax.annotate(
            f"head {head}", (distance[-1], values[head] * distance[-1]), (3, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
    ax.axhline(1, color=RED, linewidth=0.8, linestyle=(0, (4, 1.5)))
    ax.set(xscale="log", yscale="log", xlabel="distance (positions)")
    ax.set_ylabel("penalty (logits; dashed: 1)")
    ax.set_xlim(1, distance[-1])
    plain(ax.xaxis, ax.yaxis)
