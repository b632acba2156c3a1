"""Use of rotary positions by the heads of a model: curves by distance, and the pairs used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import (
    FigureExtras,
    FigureFormat,
    assign_line_styles,
    make_panels,
    pick_evenly,
    single_result,
)
from posprobe.figures.styles import BLUE, INK, MUTED, ONE_SIDED_COLORMAP, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.rotary_use import (
        HeadIndex,
        HeadUse,
        MatchedHead,
        RotaryUse,
    )
    from posprobe.analyses.models.rotary_weights import WeightUse


class _PanelHead(NamedTuple):
    """A head whose curve is drawn in a panel of its own."""

    layer: int
    head: int


_Head = TypeVar("_Head", _PanelHead, "HeadUse")

#: Curves are drawn for at most this many layers.
MAX_CURVE_LAYERS = 12
#: Curves are drawn for at most this many heads of a layer.
MAX_CURVE_HEADS = 8
#: Distances that are labelled on the axis.
DISTANCE_TICKS = (0, 8, 64, 512, 4096)


def plot_rotary_use(ax: Axes, result: RotaryUse) -> None:
    """Draw the measured curve of every head, coloured from its first layer to its last."""
    from matplotlib import colormaps

    numbers = [layer.layer for layer in result.layers]
    for head in result.heads:
        shade = numbers.index(head.layer) / max(len(numbers) - 1, 1)
        curve = head.measured - head.measured.mean()
        ax.plot(
            _curve_distances(curve, result, head),
            curve,
            color=colormaps[ONE_SIDED_COLORMAP](shade),
        )
    ax.set(xlabel="distance (tokens)", ylabel="mean logit, centred (nats)")


def _curve_distances(
    curve: NDArray[np.float64], result: RotaryUse, head: HeadUse
) -> NDArray[np.int64]:
    layer = next(layer for layer in result.layers if layer.layer == head.layer)
    first_offset = 1 - layer.window if layer.both_sides else 0
    return np.arange(first_offset, first_offset + len(curve))


@single_result
def rotary_curves_figure(figure_format: FigureFormat, use: RotaryUse) -> Figure:
    """Draw measured and predicted curves: a row per layer on one range, a column per head."""
    rows = _choose_heads(use)
    figure = _plot_head_grid(
        figure_format, rows, lambda ax, head: _plot_head(ax, use, head)
    )
    max_heads = max(len(_layer_heads(use, row[0].layer)) for row in rows)
    omissions = []
    measured_layers = {head.layer for head in use.heads}
    if len(rows) < len(measured_layers):
        omissions.append(f"{len(rows)} of {len(measured_layers)} layers")
    if max(map(len, rows)) < max_heads:
        omissions.append(f"the {MAX_CURVE_HEADS} heads of largest spread of {max_heads}")
    omission_text = f"; {', '.join(omissions)}" if omissions else ""
    figure.supxlabel(f"distance (tokens){omission_text}", fontsize="medium")
    return figure


def _plot_head_grid(
    figure_format: FigureFormat,
    rows: Sequence[Sequence[_Head]],
    draw: Callable[[Axes, _Head], object],
) -> Figure:
    """Draw panels of heads: a row per layer on one range, a column per head."""
    n_columns = max(map(len, rows))
    side = min((figure_format.width - 0.4) / n_columns, 0.8)
    figure = figure_format.make_figure(side * len(rows) + 0.5)
    grid = figure.subplots(len(rows), n_columns, sharey="row", squeeze=False)
    for axes, heads in zip(grid, rows, strict=True):
        for ax in axes[len(heads) :]:
            ax.set_axis_off()
        for ax, head in zip(axes, heads, strict=False):
            draw(ax, head)
            ax.set_title(f"head {head.head}", fontsize=6, pad=2)
        axes[0].set_ylabel(f"layer {heads[0].layer}")
    return figure


def _layer_heads(use: RotaryUse, layer: int) -> list[HeadUse]:
    return [head for head in use.heads if head.layer == layer]


def _choose_heads(use: RotaryUse) -> list[list[HeadUse]]:
    """Choose layers evenly, and in each layer the heads of largest spread, in their order."""
    numbers = pick_evenly(
        list(dict.fromkeys(head.layer for head in use.heads)), MAX_CURVE_LAYERS
    )
    rows = []
    for number in numbers:
        heads = sorted(_layer_heads(use, number), key=lambda head: -(head.spread or 0.0))
        rows.append(sorted(heads[:MAX_CURVE_HEADS], key=lambda head: head.head))
    return rows


def _plot_head(ax: Axes, use: RotaryUse, head: HeadUse) -> None:
    """Draw the predicted over the measured curve, both centred, and write the distance share."""
    is_grey = head.answer == "no"
    distances = _curve_distances(head.measured, use, head)
    measured, predicted = (
        curve - curve.mean() for curve in (head.measured, head.predicted)
    )
    x = label_distance_axis(ax, distances)
    ax.plot(
        x,
        measured,
        color=MUTED if is_grey else BLUE,
        linewidth=1.6,
        alpha=0.5 if is_grey else 1,
    )
    ax.plot(
        x,
        predicted,
        color=MUTED if is_grey else RED,
        linewidth=0.8,
        linestyle=(0, (4, 1.5)),
        alpha=0.5 if is_grey else 1,
    )
    if head.share is not None:
        _write_in_corner(
            ax, f"{100 * max(head.share, 0.0):.0f}%", MUTED if is_grey else INK
        )


def _write_in_corner(ax: Axes, text: str, color: str = INK) -> None:
    ax.text(
        0.96,
        0.94,
        text,
        transform=ax.transAxes,
        ha="right",
        va="top",
        fontsize=6,
        color=color,
    )


def label_distance_axis(ax: Axes, distances: NDArray[np.int64]) -> NDArray[np.float64]:
    """Label distances on a logarithmic axis, and return the coordinate of each.

    Near distances matter most: the axis is logarithmic in distance + 1, to either side.
    """
    ticks = [mark for mark in DISTANCE_TICKS if mark <= distances[-1]][:3]
    ax.set_xticks(np.log2(np.array(ticks) + 1), [str(mark) for mark in ticks])
    ax.tick_params(labelsize=6, pad=1, length=2)
    log_distances: NDArray[np.float64] = np.sign(distances) * np.log2(
        np.abs(distances) + 1
    )
    return log_distances


def matched_heads_figure(
    figure_format: FigureFormat,
    results: Mapping[str, Mapping[HeadIndex, NDArray[np.float64]]],
    extras: FigureExtras,
) -> Figure:
    """Draw the best ``matched`` heads of two runs, over the ``distances`` of their curves."""
    matches: list[MatchedHead] = sorted(
        extras["matched"], key=lambda head_match: -head_match.correlation
    )
    best_matches = matches[:MAX_CURVE_HEADS]
    figure = figure_format.make_figure(1.1 * -(-len(best_matches) // 4) + 0.7)
    grid = make_panels(figure, len(best_matches), 4)
    for ax, head_match in zip(grid.flat, best_matches, strict=False):
        x = label_distance_axis(ax, extras["distances"])
        head_indices = (head_match.first, head_match.second)
        styled_results = assign_line_styles(results)
        for head_index, (_, heads, line_style) in zip(
            head_indices, styled_results, strict=True
        ):
            curve = heads[head_index] - heads[head_index].mean()
            ax.plot(x, curve / (curve.std() or 1.0), **line_style)
        title = " · ".join(f"L{layer}H{head}" for layer, head in head_indices)
        ax.set_title(title, fontsize=7, pad=2)
        _write_in_corner(ax, f"{head_match.correlation:.2f}")
    for ax in grid[:, 0]:
        ax.set_ylabel("standard deviations", fontsize=7)
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2
    )
    figure.supxlabel("distance (tokens)", fontsize="medium")
    return figure


@single_result
def rotary_usage_figure(figure_format: FigureFormat, use: RotaryUse) -> Figure:
    """Draw each pair's share of a head's strength and of its curve, fastest pair on top."""
    titles = ("share of the head's strength", "share of its curve")
    n_columns = len(titles) if not figure_format.is_narrow else 1
    figure = figure_format.make_figure(2.6 * (len(titles) // n_columns))
    axes = figure.subplots(
        len(titles) // n_columns, n_columns, squeeze=False, sharey=True
    ).ravel()
    ladders = {layer.layer: layer.ladder for layer in use.layers}
    head_layers = [head.layer for head in use.heads]
    turning_counts = [
        int(np.sum(ladders[number] * use.length >= 2 * np.pi)) for number in head_layers
    ]
    # Layers can have different ladders; pairs are labelled by the first layer that rotates.
    rotating = [
        layer.ladder for layer in use.layers if layer.pairs in ("halves", "neighbours")
    ]
    ladder = rotating[0] if rotating else np.zeros(1)
    for ax, title, name in zip(axes, titles, ("usage", "curve_share"), strict=True):
        values = stack_columns([getattr(head, name) for head in use.heads])
        plot_pair_shares(ax, values, head_layers, ladder, turning_counts)
        ax.set_title(title)
    axes[0].set_ylabel("wavelength (tokens)")
    figure.colorbar(axes[0].images[0], ax=axes.tolist(), label="share", aspect=30)
    return figure


def stack_columns(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Stack columns to ``[pairs, heads]``, with NaN where a layer has fewer pairs."""
    matrix = np.full((max(map(len, columns)), len(columns)), np.nan)
    for head, column in enumerate(columns):
        matrix[: len(column), head] = column
    return matrix


def plot_pair_shares(
    ax: Axes,
    values: NDArray[np.float64],
    head_layers: Sequence[int],
    ladder: NDArray[np.float64],
    turning_counts: Sequence[int],
) -> None:
    """Draw shares of pairs, fastest on top, with a line below those that complete a turn.

    Parameters
    ----------
    ax
        Axes to draw into.
    values
        ``[pairs, heads]``, layer after layer.
    head_layers
        The layer of each head.
    ladder
        Frequencies by which pairs are named, radians per position.
    turning_counts
        Number of pairs of each head that turn.
    """
    ax.imshow(
        np.clip(values, 0, 1),
        aspect="auto",
        vmin=0,
        vmax=1,
        cmap=ONE_SIDED_COLORMAP,
        interpolation="nearest",
    )
    layer_starts = [
        k for k, head in enumerate(head_layers) if k == 0 or head != head_layers[k - 1]
    ]
    for boundary in layer_starts[1:]:
        ax.axvline(boundary - 0.5, color="white", linewidth=0.6)
    ends = [*layer_starts[1:], len(head_layers)]
    middles = [
        (boundary + end - 1) / 2 for boundary, end in zip(layer_starts, ends, strict=True)
    ]
    labelled_layers = pick_evenly(list(range(len(layer_starts))), 8)
    ax.set_xticks(
        [middles[k] for k in labelled_layers],
        [str(head_layers[layer_starts[k]]) for k in labelled_layers],
    )
    ax.set_xlabel("layer")
    names = [
        "never" if not frequency else f"{float(f'{2 * np.pi / frequency:.3g}'):,g}"
        for frequency in ladder
    ]
    labelled_names = pick_evenly(list(range(len(names))), 8)
    ax.set_yticks(labelled_names, [names[k] for k in labelled_names])
    for head, count in enumerate(turning_counts):
        ax.plot(
            [head - 0.5, head + 0.5],
            [count - 0.5] * 2,
            color=RED,
            linewidth=1,
            solid_capstyle="butt",
        )
    ax.tick_params(length=2)


def plot_weights(ax: Axes, result: WeightUse) -> None:
    """Draw the strength of each pair of each head, as a share of the head's."""
    heads = [row for layer in result.layers for row in layer.heads]
    head_layers = [layer.layer for layer in result.layers for _ in layer.heads]
    is_turning = result.ladder * (result.positions or sys.maxsize) >= 2 * np.pi
    plot_pair_shares(
        ax,
        stack_columns(heads),
        head_layers,
        result.ladder,
        [int(is_turning.sum())] * len(heads),
    )
    ax.set_ylabel("wavelength (tokens)")


@single_result
def weights_usage_figure(figure_format: FigureFormat, use: WeightUse) -> Figure:
    """Draw the strength of each pair of each head."""
    figure = figure_format.make_figure(2.6)
    ax = figure.subplots()
    plot_weights(ax, use)
    ax.set_title("share of the head's strength, from weights")
    figure.colorbar(ax.images[0], ax=ax, label="share", aspect=30)
    return figure


@single_result
def weights_curves_figure(figure_format: FigureFormat, use: WeightUse) -> Figure:
    """Draw the self-match curves of some layers and heads, and the curves of biases."""
    layers = {
        layer.layer: layer for layer in pick_evenly(list(use.layers), MAX_CURVE_LAYERS)
    }
    rows = [
        [
            _PanelHead(number, head)
            for head in pick_evenly(list(range(len(layer.heads))), MAX_CURVE_HEADS)
        ]
        for number, layer in layers.items()
    ]

    def draw(ax: Axes, head_index: _PanelHead) -> None:
        layer = layers[head_index.layer]
        for curves, color in ((layer.self_match, MUTED), (layer.bias_curve, BLUE)):
            if curves is not None:
                curve = curves[head_index.head] - curves[head_index.head].mean()
                ax.plot(
                    label_distance_axis(ax, np.arange(len(curve))), curve, color=color
                )

    figure = _plot_head_grid(figure_format, rows, draw)
    figure.supxlabel("distance (tokens)", fontsize="medium")
    return figure
