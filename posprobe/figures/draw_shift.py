"""Drawings of the shift operator's eigenvalues, and of seams and special rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.draw import extremes, nothing
from posprobe.figures.styles import BLUE, GRID, INK, MUTED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from posprobe.analyses.seams import Seams
    from posprobe.analyses.shift import Shift

#: Periods written beside the circle, and the angle in radians that each needs.
LABELS = 8
APART = 0.17
#: Share of the variance from which a mode is labelled even close to another.
STRONG = 0.05
#: Special rows and seams whose numbers are written out.
NAMED = 12


def shift_plane(ax: Axes, result: Shift) -> None:
    """Draw the eigenvalues in the complex plane, with periods beside the unit circle."""
    if result.skill is None:
        nothing(ax, result.undefined)
        return
    turn = np.linspace(0, 2 * np.pi, 361)
    ax.axhline(0, color=GRID, linewidth=0.5, zorder=0)
    ax.axvline(0, color=GRID, linewidth=0.5, zorder=0)
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
    labelled = _labelled(result, angle)
    places = _spread(angle[labelled])
    for place, mode in zip(places, labelled, strict=True):
        period = result.periods[mode]
        x, y = 1.16 * np.cos(place), 1.16 * np.sin(place)
        ax.annotate(
            f"{period:.0f}" if period >= 100 else f"{period:.1f}",
            (modes[mode].real, modes[mode].imag), (x, y), color=INK,
            ha="left" if x > 0.1 else "right" if x < -0.1 else "center", va="center",
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": MUTED, "shrinkA": 0},
        )  # fmt: skip
    # A single stray eigenvalue must not shrink the circle.
    limit = min(1.2, max(1.05, float(np.abs(every).max()) * 1.05))
    ax.set(xlabel="real part", ylabel="imaginary part (labels: periods)", aspect="equal")
    room = 1.45 if places and places[-1] > 0.6 * np.pi else 1.1
    ax.set(xlim=(-room * limit, 1.45 * limit), ylim=(-1.1 * limit, 1.3 * limit))
    beyond = int((np.abs(every) > 1.45 * limit).sum())
    ax.set_title(
        f"skill {result.skill:.3g}, rank {result.rank}"
        + (f", {beyond} beyond the frame" if beyond else "")
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
        if all(abs(angle[mode] - angle[other]) >= APART for other in chosen):
            chosen.append(mode)
    rest = [mode for mode in order.tolist() if mode not in chosen]
    chosen += [mode for mode in rest if result.shares[mode] >= STRONG]
    return np.sort(np.array(chosen[:LABELS], dtype=np.intp))[::-1]  # periods rise, angles fall


def _spread(angles: NDArray[np.float64]) -> list[float]:
    """Move rising angles upwards until no label covers the one before, and back into the half."""
    places: list[float] = []
    for angle in angles.tolist():
        places.append(max(angle, places[-1] + APART) if places else angle)
    excess = max(places[-1] - np.pi, 0.0) if places else 0.0
    return [place - excess for place in places]


def seam_profile(ax: Axes, result: Seams) -> None:
    """Draw the adjacent centred cosine against position, with seams and special rows marked."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    n = len(result.norms)
    # The cosine of two rows stands between them.
    middle = result.start + np.arange(n - 1) + 0.5
    ax.plot(*extremes(middle, result.cosines), color=BLUE, linewidth=0.9)
    for k, (left, right) in enumerate(result.between):
        x = result.start + (left + right) / 2
        ax.axvline(x, color=INK, linewidth=0.8, linestyle=(0, (4, 1.5)), zorder=0,
                   label="seam" if k == 0 else None)  # fmt: skip
        if k < NAMED:
            late = left > n / 2
            ax.annotate(
                f"{result.start + left} | {result.start + right}", (x, 0.04),
                xycoords=("data", "axes fraction"), xytext=(-3 if late else 3, 0),
                textcoords="offset points", ha="right" if late else "left",
            )  # fmt: skip
    rows = np.array([found.row for found in result.special], dtype=int)
    if rows.size:
        # Between the cosines on either side, of which an end has one.
        padded = np.concatenate([result.cosines[:1], result.cosines, result.cosines[-1:]])
        height = np.nan_to_num((padded[rows] + padded[rows + 1]) / 2)
        ax.plot(result.start + rows, height, "v", color=RED, markersize=4, label="special row")
        groups = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) > 1) + 1)
        for group in groups[:NAMED]:
            first, last = (result.start + rows[group[[0, -1]]]).tolist()
            lowest = group[np.argmin(height[group])]
            late = rows[lowest] > n / 2
            ax.annotate(
                f"{first}" if first == last else f"{first}\N{EN DASH}{last}",
                (result.start + rows[lowest], height[lowest]), (-5 if late else 5, 0),
                textcoords="offset points", ha="right" if late else "left", va="center",
            )  # fmt: skip
    ax.set(xlabel="position", ylabel="adjacent centred cosine")
    low = float(np.nanmin(result.cosines)) if np.isfinite(result.cosines).any() else 0.0
    ax.set_ylim(min(0.0, low) - 0.05, 1.05)
    ax.set_xlim(result.start - 0.02 * n, result.start + 1.02 * n)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0)
