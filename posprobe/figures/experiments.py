"""Experiments on a model: permuted tokens, later positions, images without content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import (
    FigureFormat,
    annotate_point,
    label_layer_axis,
    pick_evenly,
    single_result,
)
from posprobe.figures.styles import BLUE, LINE_STYLES, MUTED, ONE_SIDED_COLORMAP, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.experiments import (
        BlankImages,
        PermutationEffect,
        PhaseShift,
    )


def plot_permutation(ax: Axes, effect: PermutationEffect) -> None:
    """Draw the change of the outputs under permuted tokens, with and without positions."""
    with_positions, without_positions = effect.with_positions, effect.without_positions
    groups = {"tokens": (with_positions.tokens, without_positions.tokens)}
    if with_positions.special is not None and without_positions.special is not None:
        groups["tokens that\nstay (CLS)"] = (
            with_positions.special,
            without_positions.special,
        )
    _plot_paired_bars(ax, groups, ("with positions", "table set to 0"))
    ax.set_xlabel("relative change of the last hidden states")


def _plot_accuracies(ax: Axes, effect: PermutationEffect) -> None:
    """Draw the share of contexts that are classified right, unchanged and permuted."""
    groups = {
        name: (change.accuracy or 0.0, change.scrambled_accuracy or 0.0)
        for name, change in (
            ("with positions", effect.with_positions),
            ("table set to 0", effect.without_positions),
        )
    }
    _plot_paired_bars(ax, groups, ("as they are", "permuted"))
    ax.set_xlim(0, 1.15)
    ax.set_xlabel("classified right")


def _plot_paired_bars(
    ax: Axes, groups: Mapping[str, tuple[float, float]], labels: tuple[str, str]
) -> None:
    """Draw pairs of bars, the first of each pair on top, every bar with its number."""
    centres = np.arange(len(groups))
    for bar, (label, color, hatch) in enumerate(
        zip(labels, (BLUE, RED), ("", "////"), strict=True)
    ):
        values = [pair[bar] for pair in groups.values()]
        y_positions = centres + (bar - 0.5) * 0.36
        ax.barh(
            y_positions,
            values,
            0.32,
            color=color if not hatch else "none",
            edgecolor=color,
            hatch=hatch,
            label=label,
        )
        for value, y in zip(values, y_positions, strict=True):
            value_text = (
                f"{value:.2g}" if value > 5e-4 else (f"{value:.0e}" if value else "0")
            )
            annotate_point(ax, value_text, (value, y), (3, 0), va="center")
    ax.set_yticks(centres, list(groups))
    ax.set_ylim(len(groups) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


@single_result
def permutation_figure(figure_format: FigureFormat, effect: PermutationEffect) -> Figure:
    """Draw the change of the hidden states, and the accuracy where classes are known."""
    has_accuracy = effect.with_positions.accuracy is not None
    shape = figure_format.arrange_panels(1 + has_accuracy)
    figure = figure_format.make_figure(1.8 * shape[0], width=6.3 if has_accuracy else 4.2)
    axes = figure.subplots(*shape, squeeze=False).ravel()
    plot_permutation(axes[0], effect)
    if has_accuracy:
        _plot_accuracies(axes[1], effect)
    return figure


def plot_phase_shift(ax: Axes, phase_shift: PhaseShift) -> None:
    """Draw the change of the last hidden states when positions begin later."""
    ax.plot(phase_shift.shifts, phase_shift.change, color=BLUE, marker="o", markersize=3)
    ax.set(xlabel="position of the first token", ylabel="relative change", ylim=(0, None))


@single_result
def shift_figure(figure_format: FigureFormat, phase_shift: PhaseShift) -> Figure:
    """Draw the change of the hidden states by shift, and the loss where there is one."""
    if phase_shift.loss is None:
        figure = figure_format.make_figure(2.2, width=4.8)
        plot_phase_shift(figure.subplots(), phase_shift)
        return figure
    figure = figure_format.make_figure(3.6, width=4.8)
    upper_axes, lower_axes = figure.subplots(2, 1, sharex=True)
    plot_phase_shift(upper_axes, phase_shift)
    upper_axes.set_xlabel("")
    lower_axes.plot(
        phase_shift.shifts, phase_shift.loss, color=BLUE, marker="o", markersize=3
    )
    lower_axes.axhline(phase_shift.loss[0], color=MUTED, linewidth=0.5)
    lower_axes.set(
        xlabel="position of the first token", ylabel=f"loss, {phase_shift.task}\n(nats)"
    )
    return figure


#: At most this many layers are drawn as a map of their patches.
MAX_PATTERN_LAYERS = 6


def plot_blank(ax: Axes, blank_images: BlankImages) -> None:
    """Draw the mean cosine of the patches' states with the position table by layer."""
    _plot_patterns(ax, blank_images, "alignment")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set_ylim(-1.05, 1.05)
    ax.set_ylabel("cosine with the table")
    ax.legend(loc="best")


def _plot_share(ax: Axes, blank_images: BlankImages) -> None:
    """Draw by layer the share of the states' squared norm that differs between patches."""
    _plot_patterns(ax, blank_images, "share")
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("share between patches")


def _plot_patterns(ax: Axes, blank_images: BlankImages, number: str) -> None:
    patterns_by_image = (
        ("constant", blank_images.constant),
        ("noise", blank_images.noise),
    )
    for (label, patterns), (color, dash), marker in zip(
        patterns_by_image, LINE_STYLES, "os", strict=False
    ):
        values = np.array(
            [getattr(pattern, number) for pattern in patterns.values()], dtype=float
        )
        ax.plot(
            list(patterns),
            values,
            color=color,
            linestyle=dash,
            marker=marker,
            markersize=3,
            label=label,
        )
    label_layer_axis(ax)


def _plot_patch_maps(figure: Any, blank_images: BlankImages, layers: list[int]) -> None:
    """Draw the distance of each patch from the mean at some layers, for images without content.

    Every map is relative to its own largest norm, since norms grow along the layers.
    """
    patterns_by_image = {"constant": blank_images.constant, "noise": blank_images.noise}
    axes = figure.subplots(len(patterns_by_image), len(layers), squeeze=False)
    for row, (image_name, patterns) in zip(axes, patterns_by_image.items(), strict=True):
        for ax, number in zip(row, layers, strict=True):
            norms = patterns[number].norms
            image = ax.imshow(
                norms / (norms.max() or 1.0), cmap=ONE_SIDED_COLORMAP, vmin=0, vmax=1
            )
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if patterns is blank_images.constant:
                ax.set_title(f"layer {number}", pad=2)
        row[0].set_ylabel(image_name)
    figure.colorbar(image, ax=axes, label="norm over the largest", aspect=30)


@single_result
def blank_figure(figure_format: FigureFormat, blank_images: BlankImages) -> Figure:
    """Draw each patch of both images at some layers, and the patterns' share and alignment."""
    layers = pick_evenly(
        list(blank_images.constant), 3 if figure_format.is_narrow else MAX_PATTERN_LAYERS
    )
    figure = figure_format.make_figure(4.6)
    figure_rows: Any = figure.subfigures(
        2, 1, height_ratios=(2.4 if len(layers) > 3 else 3, 2)
    )
    _plot_patch_maps(figure_rows[0], blank_images, layers)
    left, right = figure_rows[1].subplots(1, 2)
    plot_blank(left, blank_images)
    _plot_share(right, blank_images)
    return figure
