"""Position ids of a prompt, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posprobe.figures.common import move_legend_above
from posprobe.figures.styles import LINE_STYLES
from posprobe.schemes import AXIS_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.analyses.models.positions import PositionIds

#: Widths of the lines of axes. Where axes have the same ids, all of them are seen.
AXIS_LINE_WIDTHS = (3.0, 1.8, 0.9)


def plot_position_ids(ax: Axes, result: PositionIds) -> None:
    """Draw the id of each token: a line for each axis, and for layers that received other ids."""
    n_axes = result.ids.shape[1]
    axis_names = AXIS_NAMES[:n_axes] if n_axes > 1 else ("",)
    groups: dict[bytes, list[int]] = {}
    for index, ids in enumerate(result.ids):
        groups.setdefault(ids.tobytes(), []).append(index)
    lines = []
    for indices in groups.values():
        numbers = [result.layers[index] for index in indices]
        layers = f"layer {numbers[0]}" + (" and others" if numbers[1:] else "")
        for name, ids in zip(axis_names, result.ids[indices[0]], strict=True):
            words = (name, layers if len(groups) > 1 else "")
            lines.append((", ".join(filter(None, words)), ids))
    for index, (label, ids) in enumerate(lines[: len(LINE_STYLES)]):
        color, dashes = LINE_STYLES[index]
        width = AXIS_LINE_WIDTHS[index % n_axes] if n_axes > 1 else None
        ax.plot(ids, color=color, linestyle=dashes, linewidth=width, label=label)
    is_cut = len(lines) > len(LINE_STYLES)
    ax.set_xlabel(
        "token" + (" (further layers, with other ids, are not drawn)" if is_cut else "")
    )
    ax.set_ylabel("position id")
    if len(lines) > 1:
        move_legend_above(ax)
