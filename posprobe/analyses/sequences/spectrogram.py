"""Whether a table's frequencies hold along the table, and how slow its positions' Gram matrix is.

The spectrogram shows what one spectrum of the whole table smears: learned frequencies drift with
position (Wennberg & Henter, ACL 2021, show RoBERTa's bent ridges). The cosine transform of the Gram
matrix is Song & Zhong's (2023, figure 2).

Warning: smoothness alone puts a Gram matrix into its slow corner. A random walk scores higher there
than any learned table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np

from posprobe.analyses.facts import Number
from posprobe.analyses.linear import slow_cosines
from posprobe.analyses.result import HIDDEN, As, Result, WithGaps, centred, nothing
from posprobe.analyses.sequences.spectrum import (
    MIN_PERIODS,
    detrended,
    line_power,
    red_noise,
)
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.schema import Count, Natural, Reasons, limits
from posprobe.tables import PositionTable

#: Shortest and longest segment chosen by default, in positions.
SEGMENT = (32, 256)
#: Lines weaker than this share of a segment's strongest are not followed.
FAINT = 0.1
#: Side of the block of slow components whose energy is reported.
COMPONENTS = 10
#: Components of the transformed Gram matrix that are kept.
CORNER = 32


@dataclass(frozen=True, eq=False, repr=False)
class Spectrogram(Result):
    """Power by position and frequency, summed over dimensions.

    Parameters
    ----------
    frequency
        ``[f]``, cycles per position.
    power
        ``[s, f]``: one-sided, in squared table units; each row adds up to its segment's windowed
        variance (Parseval).
    center
        ``[s]``: position of the middle of each segment.
    strongest, fastest
        ``[s]``: frequency of the segment's strongest line, and of its fastest that has at least
        `FAINT` of that one's power; NaN where no line stands out of red noise. A line has at least
        three periods in the segment; its frequency is interpolated between bins.
    length, step
        Positions in a segment, and from one to the next. Each segment is detrended (line) and
        tapered (Hann), so frequencies closer than about 2 / length are one.
    drift
        How far the fastest line wanders: its frequency's 10 to 90 % range over the median. None
        where fewer than half of the segments show a line.
    layout, start
        Of the positions.
    undefined
        Reason why there is no spectrogram, or empty.
    partly
        Reason for each number that is None.
    """

    figures: ClassVar[str] = "frequencies.plot_spectrogram"

    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    frequency: Floats = field(default_factory=nothing)
    power: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    center: Annotated[Floats, "Position of the middle of each segment."] = field(
        default_factory=nothing
    )
    strongest: Floats = field(default_factory=nothing)
    fastest: Floats = field(default_factory=nothing)
    length: Annotated[Natural | None, Number("segment", "positions in each", form="d")] = None
    step: Annotated[Natural | None, "Positions from one segment to the next."] = None
    drift: Annotated[
        float | None, Number("drift", "of the fastest line: its 10 to 90 % range over its median")
    ] = None
    undefined: Annotated[str, As(Reasons)] = ""
    partly: Annotated[dict[str, str], HIDDEN] = field(default_factory=dict)
    detrend: Literal["linear"] = "linear"
    window: Literal["hann"] = "hann"

    @property
    def segments(self) -> Annotated[Count | None, Number("segments", "overlapping", form="d")]:
        """How many there are."""
        return len(self.center) or None

    @property
    def strongest_period(self) -> Annotated[WithGaps, "By segment, of the strongest line."]:
        """``[s]``, in positions."""
        return 1 / self.strongest

    @property
    def fastest_period(self) -> Annotated[WithGaps, "By segment, of the fastest line."]:
        """``[s]``, in positions."""
        return 1 / self.fastest

    @property
    def fastest_period_p10_p50_p90(
        self,
    ) -> Annotated[list[float] | None, "Over segments.", limits(minItems=3, maxItems=3)]:
        """Percentiles of the fastest line's period; None where no segment has one."""
        found = self.fastest[~np.isnan(self.fastest)]
        return (1 / np.percentile(found, [90, 50, 10])).tolist() if found.size else None


def spectrogram(
    table: PositionTable | Positions | Array,
    *,
    length: int | None = None,
    step: int | None = None,
) -> Spectrogram:
    """Compute the power spectrum of overlapping segments of the positions.

    Parameters
    ----------
    table
        ``[n, d]``, a sequence. Segments count from the first row; up to ``step`` rows at the end
        are in none.
    length
        Positions in a segment; by default n / 8, within `SEGMENT`.
    step
        Positions from one segment to the next; by default a quarter of the length.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.
    ValueError
        If a segment has fewer than 8 positions or more than the table, or the step is no positive
        number.

    Examples
    --------
    The same frequency in each of five segments:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> wave = np.cos(2 * np.pi * np.arange(64) / 8)
    >>> spectrogram = pp.spectrogram(wave[:, None], length=32, step=8)
    >>> spectrogram.power.shape
    (5, 17)
    >>> spectrogram.strongest.round(2).tolist()
    [0.13, 0.13, 0.13, 0.13, 0.13]
    """
    given = positions(table, squares=True)
    none = partial(Spectrogram, given.layout, given.start)
    n = given.values.shape[0]
    if isinstance(given.layout, Grid):
        return none(undefined="a grid has no single order of positions")
    if length is None:
        if n < 2 * SEGMENT[0]:
            return none(undefined=f"fewer than {2 * SEGMENT[0]} positions")
        length = 2 * (min(max(n // 8, SEGMENT[0]), SEGMENT[1]) // 2)
    step = max(length // 4, 1) if step is None else step
    if not 8 <= length <= n or step < 1:
        raise ValueError(
            f"segments of {length} positions, {step} apart: between 8 and {n} positions in a "
            "segment and a positive step are needed."
        )
    values = to_numpy(given.values).astype(np.float64, copy=False)
    taper = np.hanning(length)
    frequency = np.arange(length // 2 + 1, dtype=np.float64) / length
    begin = np.arange(0, n - length + 1, step)
    power = np.empty((len(begin), len(frequency)))
    strongest, fastest = np.full((2, len(begin)), np.nan)
    for k, first in enumerate(begin):
        rest = detrended(values[first : first + length], np, linear=True)
        power[k] = line_power(rest, taper, np).sum(axis=1) / (length * np.square(taper).sum())
        if power[k].any():
            _, level = red_noise(rest, frequency, power[k][:, None], pooled=True)
            strongest[k], fastest[k] = _extremes(power[k], level[:, 0], length)
    if not power.any():
        return none(undefined="every dimension is constant or a straight line")
    drift, why = _drift(fastest)
    partly = {"drift": why} if why else {}
    if np.isnan(fastest).all():
        partly["fastest_period_p10_p50_p90"] = "no segment shows a line above red noise"
    for name, line in (("strongest_period", strongest), ("fastest_period", fastest)):
        if without := int(np.isnan(line).sum()):
            partly[name] = f"null in {without} segments, which show no such line"
    center = given.start + begin + (length - 1) / 2
    return Spectrogram(
        layout=given.layout,
        start=given.start,
        frequency=frequency,
        power=power,
        center=center,
        strongest=strongest,
        fastest=fastest,
        length=length,
        step=step,
        drift=drift,
        partly=partly,
    )


@dataclass(frozen=True, eq=False, repr=False)
class GramDCT(Result):
    """Cosine transform of the centred positions' cosine matrix.

    Parameters
    ----------
    corner
        ``[k, k]``: ``F' G F`` for the slowest k components, F the orthonormal DCT-II and G the
        cosines of the centred rows. Component j has j half cycles in the table.
    share
        Share of the squared entries of ``F' G F`` within the slowest `COMPONENTS` components: how
        slow the matrix is, with no wrap-around as in a Fourier transform. High for every smooth
        table.
    layout
        Of the positions.
    undefined
        Reason why there is nothing, or empty.
    """

    corner: Floats
    share: Annotated[
        float | None,
        Number("share of the slow corner", "of the squared energy of the matrix"),
    ]
    layout: Annotated[Layout, HIDDEN]
    undefined: Annotated[str, As(Reasons)] = ""
    components: Annotated[Natural, "Slowest components, along either side."] = COMPONENTS


def gram_dct(table: PositionTable | Positions | Array, *, cosines: Floats | None = None) -> GramDCT:
    """Transform the centred cosine matrix by cosines along both sides.

    Parameters
    ----------
    table
        ``[n, d]``, a sequence.
    cosines
        ``[n, n]`` cosine matrix of the centred rows, where it is known already.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    Cosines that depend on the distance alone put their power on the diagonal:

    >>> import posprobe as pp
    >>> result = pp.analyses.gram_dct(pp.sinusoidal(64, 16))
    >>> result.corner.shape
    (32, 32)
    >>> print(f"{result.share:.2f}")
    0.72
    """
    given = positions(table)
    n, layout = given.values.shape[0], given.layout
    if isinstance(layout, Grid):
        return GramDCT(np.zeros((0, 0)), None, layout, "a grid has no single order of positions")
    if n < 2 * COMPONENTS:
        return GramDCT(np.zeros((0, 0)), None, layout, f"fewer than {2 * COMPONENTS} positions")
    values = to_numpy(given.values).astype(np.float64, copy=False)
    values = values / (np.abs(values).max() or 1.0)
    centered, error = centred(values)
    size = np.linalg.norm(centered, axis=1)
    nowhere = size <= error * values.shape[1] ** 0.5
    if nowhere.any():
        why = "all rows are equal" if nowhere.all() else "a row without direction: the mean row"
        return GramDCT(np.zeros((0, 0)), None, layout, why)
    units = centered / size[:, None]
    kept = min(n, CORNER)
    slow = slow_cosines(n, kept).T @ units
    corner = slow @ slow.T
    if cosines is not None:
        total = float(np.vdot(cosines, cosines))
    else:
        total = float(np.square(units @ units.T if n < units.shape[1] else units.T @ units).sum())
    share = float(np.square(corner[:COMPONENTS, :COMPONENTS]).sum() / total)
    return GramDCT(corner, min(share, 1.0), layout)


def _extremes(power: Floats, level: Floats, length: int) -> tuple[float, float]:
    """Return the frequencies of a segment's strongest and fastest line, or NaN."""
    inside = np.arange(MIN_PERIODS, len(power) - 1)
    peak = (power[inside] > power[inside - 1]) & (power[inside] >= power[inside + 1])
    found = inside[peak & (power[inside] > level[inside])]
    if not found.size:
        return np.nan, np.nan
    strongest = found[np.argmax(power[found])]
    fastest = found[power[found] >= FAINT * power[strongest]][-1]
    return _between(power, strongest) / length, _between(power, fastest) / length


def _between(power: Floats, k: int) -> float:
    """Interpolate a peak between bins; a Hann window's peak is nearly a parabola in decibels."""
    low, middle, high = np.log(np.maximum(power[k - 1 : k + 2], 1e-300))
    return float(k + (low - high) / (2 * (low - 2 * middle + high)))


def _drift(fastest: Floats) -> tuple[float | None, str]:
    found = fastest[~np.isnan(fastest)]
    if fastest.size < 2:
        return None, "a single segment shows no drift"
    if 2 * found.size < fastest.size or found.size < 2:
        return None, f"{found.size} of {fastest.size} segments show a line above red noise"
    low, middle, high = np.percentile(found, [10, 50, 90])
    return float((high - low) / middle), ""
