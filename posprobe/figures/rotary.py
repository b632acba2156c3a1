"""Rotary encodings: the ladder of wavelengths, and how the mean rotation falls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.rotation import SAME
from posprobe.encodings import wavelengths
from posprobe.figures.common import note, plain
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, MUTED, RED
from posprobe.schemes import Rotary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.rotation import Rotation


def plot_rotation(ax: Axes, result: Rotation | Rotary) -> None:
    """Draw each pair's wavelength beside the context lengths."""
    if isinstance(result, Rotary):
        lengths = map(result.seen, (result.training_length, result.max_positions))
        used, before = result.frequencies(result.max_positions), result.unscaled()
        _ladder(ax, wavelengths(used), wavelengths(before), *lengths)
    else:
        _ladder(ax, result.wavelength, result.unscaled, result.training, result.target)


def _ladder(
    ax: Axes,
    wavelength: NDArray[np.float64],
    unscaled: NDArray[np.float64],
    training: int | None,
    target: int | None,
) -> None:
    """Draw each pair's wavelength beside the context lengths; arguments as in `Rotation`."""
    pair = np.arange(len(wavelength))
    if not np.allclose(wavelength, unscaled, rtol=SAME):
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
            away = (2, -2 if below else 2)
            note(ax, what, (0, length), away, va="top" if below else "bottom")
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
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)


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
        said, at = f"first negative: {result.first_negative}", (result.first_negative, 0)
        note(ax, said, at, (-3, -4), ha="right", va="top")
    along = "" if result.axes == 1 else " along one axis"
    ax.set(
        xscale="log",
        xlabel=f"distance{along} (positions)",
        ylabel="share of the value at distance 0",
    )
    ax.set_xlim(1, distance[-1])
    ax.set_ylim(min(-0.3, float(result.kernel.min()) - 0.05), 1.03)
    plain(ax.xaxis)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)


def rotation_figure(sheet: Sheet, results: Mapping[str, Rotation], _: Mapping[str, Any]) -> Figure:
    """Draw each ladder of wavelengths, and beside it how the mean rotation falls."""
    count = len(results)
    shape = (2 * count, 1) if sheet.narrow else (count, 2)
    figure = sheet.figure((2.2 if sheet.narrow else 2.7) * shape[0])
    axes = figure.subplots(*shape, squeeze=False).reshape(count, 2)
    for (left, right), (name, result) in zip(axes, results.items(), strict=True):
        plot_rotation(left, result)
        decay(right, result)
        if sheet.width <= 6:
            for ax in (left, right):
                ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
        if count > 1:
            left.set_ylabel(f"{name}\n{left.get_ylabel()}")
        elif not sheet.exact:
            figure.suptitle(name)
    return figure
