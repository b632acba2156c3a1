"""Errors of the probes: the published and the sound ones on one scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posprobe.analyses.probes_held_out import AbsoluteProbe
from posprobe.figures.common import Builder, note, nothing, one_each
from posprobe.figures.styles import BLUE, GRID, MUTED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.analyses.probes import Probes


class _Line(NamedTuple):
    label: str
    error: float
    spread: float
    chance: float
    form: str
    published: bool = False


def plot_probes(ax: Axes, result: Probes | AbsoluteProbe) -> None:
    """Draw each probe's error as a share of its own chance level, the number itself beside it.

    A single probe of the position is drawn by its predictions.
    """
    if isinstance(result, AbsoluteProbe):
        _predictions(ax, result)
        return
    lines = list(_lines(result))
    if not lines:
        nothing(ax, result.undefined or "there are no probes")
        return
    height = -np.arange(len(lines), dtype=float)
    ax.axvline(1, color=MUTED, linewidth=0.6, linestyle=(0, (4, 1.5)))
    ax.axvline(0, color=GRID, linewidth=0.6)
    for y, line in zip(height, lines, strict=True):
        share = line.error / line.chance
        ax.errorbar(
            [share], [y], xerr=[line.spread / line.chance], capsize=2, linewidth=0.9, markersize=4,
            fmt="s" if line.published else "o", color=RED if line.published else BLUE,
            markerfacecolor="white" if line.published else BLUE,
        )  # fmt: skip
        note(ax, f"{line.error:{line.form}}", (share, y), (0, 5), ha="center")
    ax.set_yticks(height, [line.label for line in lines])
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel="error as a share of its chance level (0: none, 1: chance)")
    ax.set_xlim(-0.08, max(1.12, max(line.error / line.chance for line in lines) * 1.1))
    ax.set_ylim(height[-1] - 0.6, 0.8)


def _predictions(ax: Axes, result: AbsoluteProbe) -> None:
    """Draw the predicted against the true position, for held-out blocks and for random folds."""
    position = result.start + np.arange(len(result.predicted))
    ends = position[[0, -1]]
    ax.plot(ends, ends, color=MUTED, linewidth=0.6, linestyle=(0, (4, 1.5)), label="exact")
    drawn = (
        (result.shuffled, "random folds", RED, "."),
        (result.predicted, "held-out blocks", BLUE, "o"),
    )
    for predicted, label, color, marker in drawn:
        ax.plot(
            position, result.start + predicted, marker, color=color, label=label, markersize=1.6,
            markeredgewidth=0,
        )  # fmt: skip
    # A probe that fails beyond the training rows may land anywhere.
    margin = 0.25 * (ends[1] - ends[0])
    ax.set(xlabel="position", ylabel="predicted position")
    ax.set_xlim(*ends)
    ax.set_ylim(ends[0] - margin, ends[1] + margin)
    ax.legend(loc="upper left", markerscale=3)


def _lines(result: Probes) -> Iterator[_Line]:
    for what, form, published in (
        ("position", ".3g", result.absolute_published),
        ("order", ".1%", result.order_published),
    ):
        if published is not None:
            yield _Line(
                f"{what}, as published", published.mean, published.sd or 0.0, published.chance,
                form, published=True,
            )  # fmt: skip
        if what == "position" and (sound := result.absolute_blocked) is not None:
            for rows, error, level in (
                ("random folds", sound.mae_shuffled, sound.chance_shuffled),
                ("inner blocks", sound.interpolation, sound.chance_interpolation),
                ("outer blocks", sound.extrapolation, sound.chance_extrapolation),
            ):
                yield _Line(f"position, {rows}", error, 0.0, level, form)
        if what == "order" and (order := result.order_disjoint) is not None:
            chance = float(order.chance.mean())
            yield _Line("order, unseen positions", order.error, order.sd or 0.0, chance, form)
            blocked = float(order.blocked.mean())
            yield _Line("order, unseen blocks", blocked, order.blocked_sd or 0.0, chance, form)


probes_figure: Builder = one_each(plot_probes, 2.6, width=4.6)
