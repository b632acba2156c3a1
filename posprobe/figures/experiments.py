"""Experiments on a model: permuted tokens, later positions, images without content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import Sheet, layer_axis, note, of_one, spread
from posprobe.figures.styles import BLUE, LINES, MUTED, ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.experiments import BlankImages, PermutationEffect, PhaseShift


def plot_permutation(ax: Axes, effect: PermutationEffect) -> None:
    """Draw how far outputs move when tokens are permuted, with and without positions."""
    with_positions, zero = effect.with_positions, effect.without_positions
    groups = {"tokens": (with_positions.tokens, zero.tokens)}
    if with_positions.special is not None and zero.special is not None:
        groups["tokens that\nstay (CLS)"] = (with_positions.special, zero.special)
    _paired(ax, groups, ("with positions", "table set to 0"))
    ax.set_xlabel("relative change of the last hidden states")


def _accuracies(ax: Axes, effect: PermutationEffect) -> None:
    """Draw the share of contexts that are classified right, as they are and permuted."""
    groups = {
        name: (change.accuracy or 0.0, change.scrambled_accuracy or 0.0)
        for name, change in (
            ("with positions", effect.with_positions),
            ("table set to 0", effect.without_positions),
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
        x = place + (side - 0.5) * 0.36
        ax.barh(
            x, values, 0.32, color=color if not hatch else "none", edgecolor=color, hatch=hatch,
            label=label,
        )  # fmt: skip
        for value, y in zip(values, x, strict=True):
            value_text = f"{value:.2g}" if value > 5e-4 else (f"{value:.0e}" if value else "0")
            note(ax, value_text, (value, y), (3, 0), va="center")
    ax.set_yticks(place, list(groups))
    ax.set_ylim(len(groups) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


@of_one
def permutation_figure(sheet: Sheet, effect: PermutationEffect) -> Figure:
    """Draw the change of the states, and right answers where they are known."""
    has_accuracy = effect.with_positions.accuracy is not None
    shape = sheet.beside(1 + has_accuracy)
    figure = sheet.figure(1.8 * shape[0], width=6.3 if has_accuracy else 4.2)
    axes = figure.subplots(*shape, squeeze=False).ravel()
    plot_permutation(axes[0], effect)
    if has_accuracy:
        _accuracies(axes[1], effect)
    return figure


def plot_phase_shift(ax: Axes, phase_shift: PhaseShift) -> None:
    """Draw how far the last hidden states move when positions begin later."""
    ax.plot(phase_shift.shifts, phase_shift.change, color=BLUE, marker="o", markersize=3)
    ax.set(xlabel="position of the first token", ylabel="relative change", ylim=(0, None))


@of_one
def shift_figure(sheet: Sheet, phase_shift: PhaseShift) -> Figure:
    """Draw the change of the states by shift, and the loss where there is one."""
    if phase_shift.loss is None:
        figure = sheet.figure(2.2, width=4.8)
        plot_phase_shift(figure.subplots(), phase_shift)
        return figure
    figure = sheet.figure(3.6, width=4.8)
    upper_axes, lower_axes = figure.subplots(2, 1, sharex=True)
    plot_phase_shift(upper_axes, phase_shift)
    upper_axes.set_xlabel("")
    lower_axes.plot(phase_shift.shifts, phase_shift.loss, color=BLUE, marker="o", markersize=3)
    lower_axes.axhline(phase_shift.loss[0], color=MUTED, linewidth=0.5)
    lower_axes.set(xlabel="position of the first token", ylabel=f"loss, {phase_shift.task}\n(nats)")
    return figure


#: Layers that get a map each.
PANELS = 6


def plot_blank(ax: Axes, blank_images: BlankImages) -> None:
    """Draw the mean cosine of the patches' states with the position table by layer."""
    _patterns(ax, blank_images, "alignment")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set_ylim(-1.05, 1.05)
    ax.set_ylabel("cosine with the table")
    ax.legend(loc="best")


def _share(ax: Axes, blank_images: BlankImages) -> None:
    """Draw which share of the states' squared norm differs between patches by layer."""
    _patterns(ax, blank_images, "share")
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("share between patches")


def _patterns(ax: Axes, blank_images: BlankImages, number: str) -> None:
    kinds = (("constant", blank_images.constant), ("noise", blank_images.noise))
    for (label, patterns), (color, dash), marker in zip(kinds, LINES, "os", strict=False):
        values = np.array([getattr(pattern, number) for pattern in patterns.values()], dtype=float)
        ax.plot(
            list(patterns), values, color=color, linestyle=dash, marker=marker, markersize=3,
            label=label,
        )  # fmt: skip
    layer_axis(ax)


def _maps(figure: Any, blank_images: BlankImages, layers: list[int]) -> None:
    """Draw how far each patch of an image without content lies from the mean, at some layers.

    Every map is drawn over its own largest norm, since norms grow along the layers.
    """
    kinds = {"constant": blank_images.constant, "noise": blank_images.noise}
    axes = figure.subplots(len(kinds), len(layers), squeeze=False)
    for row, (kind, patterns) in zip(axes, kinds.items(), strict=True):
        for ax, number in zip(row, layers, strict=True):
            norms = patterns[number].norms
            image = ax.imshow(norms / (norms.max() or 1.0), cmap=ONE_SIDED, vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if patterns is blank_images.constant:
                ax.set_title(f"layer {number}", pad=2)
        row[0].set_ylabel(kind)
    figure.colorbar(image, ax=axes, label="norm over the largest", aspect=30)


@of_one
def blank_figure(sheet: Sheet, blank_images: BlankImages) -> Figure:
    """Draw each patch of both images at some layers, and the patterns' share and alignment."""
    layers = spread(list(blank_images.constant), 3 if sheet.narrow else PANELS)
    figure = sheet.figure(4.6)
    halves: Any = figure.subfigures(2, 1, height_ratios=(2.4 if len(layers) > 3 else 3, 2))
    _maps(halves[0], blank_images, layers)
    left, right = halves[1].subplots(1, 2)
    plot_blank(left, blank_images)
    _share(right, blank_images)
    return figure
