"""The eigenvalues of the step from one position to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import cross, nothing
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from posprobe.analyses import Shift

#: Periods written beside the circle, and the angle in radians that each needs.
LABELLED_MODES = 8
TURN_APART = 0.17
#: Share of the variance from which a mode is labelled even close to another.
STRONG = 0.05
#: Distance from 1 within which all modes lie where the drawing is enlarged.
SLOW = 0.3


def plot_shift(ax: Axes, result: Shift) -> None:
    """Draw the eigenvalues in the complex plane, with periods beside the unit circle."""
    if result.skill is None:
        nothing(ax, result.undefined)
        return
    turn = np.linspace(0, 2 * np.pi, 361)
    cross(ax)
    ax.plot(np.cos(turn), np.sin(turn), color=MUTED, linewidth=0.7, zorder=1)
    every = result.eigenvalues
    ax.plot(every.real, every.imag, ".", color=MUTED, markersize=2.5, label="other", zorder=2)
    angle = 2 * np.pi / result.periods
    modes = result.moduli * np.exp(1j * angle)
    turning = result.rotations
    for shown, label, fill in (
        (modes[turning], "rotation", BLUE),
        (modes[~turning], "mode, no rotation", "white"),
    ):
        both = np.concatenate([shown, shown.conj()])
        if shown.size:
            ax.plot(
                both.real, both.imag, "o", color=BLUE, markerfacecolor=fill, markersize=4,
                label=label, zorder=3,
            )  # fmt: skip
    reach = float(np.abs(modes - 1).max(initial=0.0))
    # Modes that are all slow are one blob at 1 unless drawn larger.
    slow = 0 < reach < SLOW
    if slow:
        limit = 1.3 * reach
        chosen = np.argsort(-result.shares)[:LABELLED_MODES]
        chosen = chosen[np.argsort(modes[chosen].imag)]
        heights = _spread(modes[chosen].imag, 0.2 * limit, limit)
        places = [(1 + 0.75 * limit, y) for y in heights]
        ax.set(xlim=(1 - limit, 1 + 1.2 * limit), ylim=(-1.1 * limit, 1.1 * limit))
        ax.locator_params(nbins=5)
    else:
        # A single stray eigenvalue must not shrink the circle.
        limit = min(1.2, max(1.05, float(np.abs(every).max()) * 1.05))
        chosen = _labelled(result, angle)
        turns = _spread(angle[chosen], TURN_APART, np.pi)
        places = [(1.16 * np.cos(place), 1.16 * np.sin(place)) for place in turns]
        room = 1.45 if turns and turns[-1] > 0.6 * np.pi else 1.1
        ax.set(xlim=(-room * limit, 1.45 * limit), ylim=(-1.1 * limit, 1.3 * limit))
    for (x, y), mode in zip(places, chosen, strict=True):
        period = result.periods[mode]
        ax.annotate(
            f"{period:.0f}" if period >= 100 else f"{period:.1f}",
            (modes[mode].real, modes[mode].imag), (x, y), color=INK,
            ha="left" if x > 0.1 else "right" if x < -0.1 else "center", va="center",
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": MUTED, "shrinkA": 0},
        )  # fmt: skip
    ax.set(xlabel="real part", ylabel="imaginary part (labels: periods)", aspect="equal")
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    within = (every.real >= left) & (every.real <= right)
    within &= (every.imag >= bottom) & (every.imag <= top)
    beyond = int((~within).sum())
    ax.set_title(
        f"skill {result.skill:.3g}, rank {result.rank}"
        + (", enlarged around 1" if slow else "")
        + (f"\n{beyond} of the eigenvalues beyond the frame" if beyond else "")
    )
    ax.legend(loc="lower left", handletextpad=0.3, borderaxespad=0)


def _labelled(result: Shift, angle: NDArray[np.float64]) -> NDArray[np.intp]:
    """Choose modes to label, in the order of their angles.

    Rotations come before the rest and strong ones before weak ones; but first those far from
    each other, so that a dense ladder is labelled all around.
    """
    order = np.lexsort((-result.shares, ~result.rotations))
    chosen: list[int] = []
    for mode in order.tolist():
        if all(abs(angle[mode] - angle[other]) >= TURN_APART for other in chosen):
            chosen.append(mode)
    rest = [mode for mode in order.tolist() if mode not in chosen]
    chosen += [mode for mode in rest if result.shares[mode] >= STRONG]
    return np.sort(np.array(chosen[:LABELLED_MODES], dtype=np.intp))[
        ::-1
    ]  # periods rise, angles fall


def _spread(rising: NDArray[np.float64], apart: float, most: float) -> list[float]:
    """Move rising places upwards until no label covers the one before, and back below ``most``."""
    places: list[float] = []
    for place in rising.tolist():
        places.append(max(place, places[-1] + apart) if places else place)
    excess = max(places[-1] - most, 0.0) if places else 0.0
    return [place - excess for place in places]


def shift_figure(sheet: Sheet, results: Mapping[str, Shift], _: Mapping[str, Any]) -> Figure:
    """Draw the eigenvalues of each table."""
    size = min(sheet.width, 4.0)
    figure = sheet.figure(0.95 * size * len(results), width=3.8, compressed=True)
    axes = figure.subplots(len(results), 1, squeeze=False)[:, 0]
    for ax, result in zip(axes, results.values(), strict=True):
        plot_shift(ax, result)
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, handletextpad=0.3,
            borderaxespad=0, columnspacing=1.0,
        )  # fmt: skip
    return figure
