"""What heads of a rotary model make of distance: their curves, and the pairs that they use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import Baselines, Sheet, of_one, panels, spread, styled
from posprobe.figures.styles import BLUE, INK, MUTED, ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.rotary_use import HeadUse, MatchedHead, Place, RotaryUse
    from posprobe.analyses.models.rotary_weights import WeightUse


class _Place(NamedTuple):
    """A head of a layer."""

    layer: int
    head: int


_Head = TypeVar("_Head", _Place, "HeadUse")

#: Layers and heads of a layer that curves are drawn of at most.
MAX_LAYERS, MAX_HEADS = 12, 8
#: Distances that are named on the axis.
MARKS = (0, 8, 64, 512, 4096)


def plot_rotary_use(ax: Axes, result: RotaryUse) -> None:
    """Draw the measured curve of every head, coloured from its first layer to its last."""
    from matplotlib import colormaps

    numbers = [layer.layer for layer in result.layers]
    for head in result.heads:
        shade = numbers.index(head.layer) / max(len(numbers) - 1, 1)
        curve = head.measured - head.measured.mean()
        ax.plot(_distances(curve, result, head), curve, color=colormaps[ONE_SIDED](shade))
    ax.set(xlabel="distance (tokens)", ylabel="mean logit, centred (nats)")


def _distances(curve: NDArray[np.float64], result: RotaryUse, head: HeadUse) -> NDArray[np.int64]:
    layer = next(layer for layer in result.layers if layer.layer == head.layer)
    first_offset = 1 - layer.window if layer.both_sides else 0
    return np.arange(first_offset, first_offset + len(curve))


@of_one
def rotary_curves_figure(sheet: Sheet, use: RotaryUse) -> Figure:
    """Draw both curves of every head: layers down, heads across, one range per layer."""
    rows = _chosen(use)
    figure = _grid(sheet, rows, lambda ax, head: _one_head(ax, use, head))
    max_heads = max(len(_of_layer(use, row[0].layer)) for row in rows)
    part = []
    measured = {head.layer for head in use.heads}
    if len(rows) < len(measured):
        part.append(f"{len(rows)} of {len(measured)} layers")
    if max(map(len, rows)) < max_heads:
        part.append(f"the {MAX_HEADS} heads of largest spread of {max_heads}")
    part_text = f"; {', '.join(part)}" if part else ""
    figure.supxlabel(f"distance (tokens){part_text}", fontsize="medium")
    return figure


def _grid(
    sheet: Sheet, rows: Sequence[Sequence[_Head]], draw: Callable[[Axes, _Head], object]
) -> Figure:
    """Draw panels of heads: layers down, heads across, one range per layer."""
    n_columns = max(map(len, rows))
    side = min((sheet.width - 0.4) / n_columns, 0.8)
    figure = sheet.figure(side * len(rows) + 0.5)
    grid = figure.subplots(len(rows), n_columns, sharey="row", squeeze=False)
    for axes, heads in zip(grid, rows, strict=True):
        for ax in axes[len(heads) :]:
            ax.set_axis_off()
        for ax, head in zip(axes, heads, strict=False):
            draw(ax, head)
            ax.set_title(f"head {head.head}", fontsize=6, pad=2)
        axes[0].set_ylabel(f"layer {heads[0].layer}")
    return figure


def _of_layer(use: RotaryUse, layer: int) -> list[HeadUse]:
    return [head for head in use.heads if head.layer == layer]


def _chosen(use: RotaryUse) -> list[list[HeadUse]]:
    """Choose layers evenly, and of each the heads of largest spread, in their order."""
    numbers = spread(list(dict.fromkeys(head.layer for head in use.heads)), MAX_LAYERS)
    rows = []
    for number in numbers:
        heads = sorted(_of_layer(use, number), key=lambda head: -(head.spread or 0.0))
        rows.append(sorted(heads[:MAX_HEADS], key=lambda head: head.head))
    return rows


def _one_head(ax: Axes, use: RotaryUse, head: HeadUse) -> None:
    """Draw the measured curve below the predicted one, both centred, and the distance share."""
    grey = head.answer == "no"
    distances = _distances(head.measured, use, head)
    measured, predicted = (curve - curve.mean() for curve in (head.measured, head.predicted))
    place = distance_axis(ax, distances)
    ax.plot(place, measured, color=MUTED if grey else BLUE, linewidth=1.6, alpha=0.5 if grey else 1)
    ax.plot(
        place, predicted, color=MUTED if grey else RED, linewidth=0.8, linestyle=(0, (4, 1.5)),
        alpha=0.5 if grey else 1,
    )  # fmt: skip
    if head.share is not None:
        _corner(ax, f"{100 * max(head.share, 0.0):.0f}%", MUTED if grey else INK)


def _corner(ax: Axes, text: str, color: str = INK) -> None:
    ax.text(0.96, 0.94, text, transform=ax.transAxes, ha="right", va="top", fontsize=6, color=color)


def distance_axis(ax: Axes, distances: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mark distances on a logarithmic axis, and return where each stands.

    Near distances matter most: the axis is logarithmic in distance + 1, to either side.
    """
    marks = [mark for mark in MARKS if mark <= distances[-1]][:3]
    ax.set_xticks(np.log2(np.array(marks) + 1), [str(mark) for mark in marks])
    ax.tick_params(labelsize=6, pad=1, length=2)
    log_distances: NDArray[np.float64] = np.sign(distances) * np.log2(np.abs(distances) + 1)
    return log_distances


def matched_heads_figure(
    sheet: Sheet, results: Mapping[str, Mapping[Place, NDArray[np.float64]]], baselines: Baselines
) -> Figure:
    """Draw the best of the ``matched`` heads of two runs, by the ``distances`` of their curves."""
    matched: list[MatchedHead] = sorted(
        baselines["matched"], key=lambda match_of_heads: -match_of_heads.correlation
    )
    best = matched[:MAX_HEADS]
    figure = sheet.figure(1.1 * -(-len(best) // 4) + 0.7)
    grid = panels(figure, len(best), 4)
    for ax, match_of_heads in zip(grid.flat, best, strict=False):
        places, x = (
            (match_of_heads.first, match_of_heads.second),
            distance_axis(ax, baselines["distances"]),
        )
        for place, (_, heads, look) in zip(places, styled(results), strict=True):
            curve = heads[place] - heads[place].mean()
            ax.plot(x, curve / (curve.std() or 1.0), **look)
        ax.set_title(" · ".join(f"L{layer}H{head}" for layer, head in places), fontsize=7, pad=2)
        _corner(ax, f"{match_of_heads.correlation:.2f}")
    for ax in grid[:, 0]:
        ax.set_ylabel("standard deviations", fontsize=7)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figure.supxlabel("distance (tokens)", fontsize="medium")
    return figure


@of_one
def rotary_usage_figure(sheet: Sheet, use: RotaryUse) -> Figure:
    """Draw which pairs hold each head's strength, and which its curve: fastest pair on top."""
    titles = ("share of the head's strength", "share of its curve")
    n_columns = len(titles) if not sheet.narrow else 1
    figure = sheet.figure(2.6 * (len(titles) // n_columns))
    axes = figure.subplots(len(titles) // n_columns, n_columns, squeeze=False, sharey=True).ravel()
    ladders = {layer.layer: layer.ladder for layer in use.layers}
    numbers = [head.layer for head in use.heads]
    turning = [int(np.sum(ladders[number] * use.length >= 2 * np.pi)) for number in numbers]
    # Layers can have ladders of their own: the names are those of the first that rotates.
    rotating = [layer.ladder for layer in use.layers if layer.pairs in ("halves", "neighbours")]
    ladder = rotating[0] if rotating else np.zeros(1)
    for ax, title, name in zip(axes, titles, ("usage", "curve_share"), strict=True):
        values = stacked([getattr(head, name) for head in use.heads])
        heat_map(ax, values, numbers, ladder, turning)
        ax.set_title(title)
    axes[0].set_ylabel("wavelength (tokens)")
    figure.colorbar(axes[0].images[0], ax=axes.tolist(), label="share", aspect=30)
    return figure


def stacked(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Put heads side by side: ``[pairs, heads]``, NaN where a layer has fewer."""
    matrix = np.full((max(map(len, columns)), len(columns)), np.nan)
    for number, column in enumerate(columns):
        matrix[: len(column), number] = column
    return matrix


def heat_map(
    ax: Axes,
    values: NDArray[np.float64],
    numbers: Sequence[int],
    ladder: NDArray[np.float64],
    turning: Sequence[int],
) -> None:
    """Draw shares of pairs, fastest on top, with a line below those that turn.

    Parameters
    ----------
    ax
        To draw into.
    values
        ``[pairs, heads]``, layer after layer.
    numbers
        The layer of each head.
    ladder
        By which pairs are named, radians per position.
    turning
        How many pairs of each head turn.
    """
    ax.imshow(
        np.clip(values, 0, 1), aspect="auto", vmin=0, vmax=1, cmap=ONE_SIDED,
        interpolation="nearest",
    )  # fmt: skip
    firsts = [k for k, number in enumerate(numbers) if k == 0 or number != numbers[k - 1]]
    for boundary in firsts[1:]:
        ax.axvline(boundary - 0.5, color="white", linewidth=0.6)
    ends = [*firsts[1:], len(numbers)]
    middles = [(boundary + end - 1) / 2 for boundary, end in zip(firsts, ends, strict=True)]
    labelled_layers = spread(list(range(len(firsts))), 8)
    ax.set_xticks(
        [middles[k] for k in labelled_layers], [str(numbers[firsts[k]]) for k in labelled_layers]
    )
    ax.set_xlabel("layer")
    names = ["never" if not turn else f"{float(f'{2 * np.pi / turn:.3g}'):,g}" for turn in ladder]
    labelled_names = spread(list(range(len(names))), 8)
    ax.set_yticks(labelled_names, [names[k] for k in labelled_names])
    for number, count in enumerate(turning):
        ax.plot(
            [number - 0.5, number + 0.5], [count - 0.5] * 2, color=RED, linewidth=1,
            solid_capstyle="butt",
        )  # fmt: skip
    ax.tick_params(length=2)


def plot_weights(ax: Axes, result: WeightUse) -> None:
    """Draw the strength of each pair of each head, as a share of the head's."""
    heads = [row for layer in result.layers for row in layer.heads]
    numbers = [layer.layer for layer in result.layers for _ in layer.heads]
    turning = result.ladder * (result.positions or sys.maxsize) >= 2 * np.pi
    heat_map(ax, stacked(heads), numbers, result.ladder, [int(turning.sum())] * len(heads))
    ax.set_ylabel("wavelength (tokens)")


@of_one
def weights_usage_figure(sheet: Sheet, use: WeightUse) -> Figure:
    """Draw the strength of each pair of each head."""
    figure = sheet.figure(2.6)
    ax = figure.subplots()
    plot_weights(ax, use)
    ax.set_title("share of the head's strength, from weights")
    figure.colorbar(ax.images[0], ax=ax, label="share", aspect=30)
    return figure


@of_one
def weights_curves_figure(sheet: Sheet, use: WeightUse) -> Figure:
    """Draw the self-match curves of some layers and heads, and the curves of biases."""
    layers = {layer.layer: layer for layer in spread(list(use.layers), MAX_LAYERS)}
    rows = [
        [_Place(number, head) for head in spread(list(range(len(layer.heads))), MAX_HEADS)]
        for number, layer in layers.items()
    ]

    def draw(ax: Axes, place: _Place) -> None:
        layer = layers[place.layer]
        for curves, color in ((layer.self_match, MUTED), (layer.bias_curve, BLUE)):
            if curves is not None:
                curve = curves[place.head] - curves[place.head].mean()
                ax.plot(distance_axis(ax, np.arange(len(curve))), curve, color=color)

    figure = _grid(sheet, rows, draw)
    figure.supxlabel("distance (tokens)", fontsize="medium")
    return figure
