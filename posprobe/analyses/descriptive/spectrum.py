"""Frequency spectra along positions.

Spectra of learned tables were published by Yamamoto & Matsuzaki (EMNLP 2023) and Song & Zhong
(2023); the red-noise line follows Torrence & Compo (1998, section 4).

The spectrogram shows what one spectrum of the whole table smears: learned frequencies drift with
position (Wennberg & Henter, ACL 2021, show RoBERTa's bent ridges).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Number
from posprobe.analyses.linear import participation_ratio
from posprobe.analyses.result import (
    HIDDEN,
    JsonType,
    Result,
    StoredArray,
    WithGaps,
    empty_array,
)
from posprobe.arrays import Array, Floats, Positions, positions, quotient, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Natural, Reasons, limits
from posprobe.tables import PositionTable

#: Half a unit of float32 in the last place, with room to spare.
DETRENDING_ROUNDING = 2e-7
#: Chance that red noise alone shows any line in a spectrum: the usual level of one in a hundred.
FALSE_ALARM_P = 0.01
#: Share of the power below the edge frequency, which documents state.
EDGE_POWER_SHARE = 0.90
#: Fewest positions (along the longer side of a grid) with a spectrum worth the name: five
#: frequencies.
MIN_SPECTRUM_POSITIONS = 8
#: A window of this many periods or fewer cannot tell a line from a trend.
MIN_LINE_PERIODS = 3
#: Shortest and longest segment of a spectrogram, in positions: ten of the shortest periods that are
#: reported, and few enough that a frequency hardly changes within one.
SEGMENT_RANGE_POSITIONS = (32, 256)
#: Lines weaker than this share of a segment's strongest are not followed: sidelobes of the Hann
#: window, 31 dB down, stay well below.
MIN_LINE_POWER_SHARE = 0.1


@dataclass(frozen=True)
class Line:
    """A peak of the aggregate spectrum that red noise does not explain.

    Parameters
    ----------
    frequency
        Frequency in cycles per position.
    period
        Period in positions.
    ratio
        Power over the red-noise background at that frequency.
    """

    frequency: Annotated[float, "Cycles per position.", limits(exclusiveMinimum=0)]
    period: Annotated[float, "Positions.", limits(exclusiveMinimum=0)]
    ratio: Annotated[float, "Power over the background."]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Spectrum(Result):
    """One-sided power spectrum along positions; on a grid, over radial frequency.

    Parameters
    ----------
    frequency
        ``[f]``, cycles per position (per patch on a grid).
    power
        ``[f]``, summed over dimensions, so independent of the basis; in squared table units,
        scaled so that the powers add up to the windowed variance (Parseval).
    power_by_dim
        ``[f, d]``.
    background, threshold
        ``[f]``: fitted AR(1) noise, and the level that it exceeds anywhere with probability
        `FALSE_ALARM_P`; None on a grid.
    lines
        Significant peaks with at least `MIN_LINE_PERIODS` periods in the table, strongest first.
    entropy
        Entropy of the power over frequencies, as a share of its maximum: 1 is white, 0 a single
        line.
    edge_frequency
        Frequency below which `EDGE_POWER_SHARE` of the power lies.
    dominant_frequency
        ``[d]``: each dimension's strongest frequency; NaN for a constant dimension.
    dominant_significant
        ``[d]``: whether that peak exceeds the dimension's own red noise.
    layout
        Layout of the positions.
    undefined
        Reason why there is no spectrum, or empty.
    edge_share, false_alarm
        `EDGE_POWER_SHARE` and `FALSE_ALARM_P`.
    """

    figures: ClassVar[str] = "frequencies.plot_spectrum"
    missing_reason: ClassVar[str] = "no red noise is fitted on a grid"

    layout: Annotated[Layout, HIDDEN]
    frequency: Annotated[Floats, StoredArray("spectrum_frequency")] = field(
        default_factory=empty_array
    )
    power: Annotated[Floats, StoredArray("spectrum_power")] = field(
        default_factory=empty_array
    )
    power_by_dim: Annotated[Floats, StoredArray("spectrum_power_by_dim")] = field(
        default_factory=lambda: np.zeros((0, 0))
    )
    background: Floats | None = None
    threshold: Floats | None = None
    lines: Annotated[
        tuple[Line, ...],
        JsonType(
            list[Line] | None,
            lambda record: None if record.threshold is None else record.lines,
        ),
        "Peaks that red noise does not explain, strongest first.",
    ] = ()
    entropy: Annotated[
        float | None, Number("spectral entropy", "1 is white noise", compared=True)
    ] = None
    edge_frequency: Annotated[
        float | None,
        Number("edge frequency", "90 % of the power is below", compared=True),
    ] = None
    dominant_frequency: Floats = field(default_factory=empty_array)
    dominant_significant: NDArray[np.bool_] = field(default_factory=empty_array)
    undefined: Annotated[str, JsonType(Reasons)] = ""
    edge_share: float = EDGE_POWER_SHARE
    false_alarm: float = FALSE_ALARM_P

    @property
    def axis(self) -> Annotated[Literal["positions", "radial"], ""]:
        """Along what frequencies are."""
        return "radial" if isinstance(self.layout, Grid) else "positions"

    @property
    def detrend(self) -> Annotated[Literal["constant", "linear"], ""]:
        """What is taken off each dimension: its least-squares line, on a grid its mean."""
        return "constant" if isinstance(self.layout, Grid) else "linear"

    @property
    def window(self) -> Annotated[Literal["hann", "none"], ""]:
        """Taper of each dimension."""
        return "none" if isinstance(self.layout, Grid) else "hann"

    @property
    def dimensions_with_line(
        self,
    ) -> Annotated[
        Count | None,
        Number(
            "dimensions with a line", "strongest line above their own red noise", form="d"
        ),
    ]:
        """How many dimensions have a significant peak; None on a grid."""
        return None if self.threshold is None else int(self.dominant_significant.sum())


def spectrum(table: PositionTable | Positions | Array) -> Spectrum:
    """Compute the power spectrum of every dimension along positions.

    The least-squares line of each dimension is removed, as a trend leaks over all frequencies, and
    a Hann window applied. On a grid the transform is two-dimensional and power is summed over rings
    of equal radial frequency; only the mean is removed and no window applied, since 14 x 14 cells
    leave no room.

    Parameters
    ----------
    table
        ``[n, d]``.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    A cosine of period 8 has one line, at an eighth of a turn per position:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> wave = np.cos(2 * np.pi * np.arange(64) / 8)
    >>> spectrum = pp.spectrum(wave[:, None])
    >>> spectrum.dominant_frequency.tolist()
    [0.125]
    """
    inputs = positions(table, sums_squares=True)
    values, layout, xp = inputs.values, inputs.layout, inputs.xp
    length = max(layout.height, layout.width) if isinstance(layout, Grid) else len(values)
    if length < MIN_SPECTRUM_POSITIONS:
        return Spectrum(
            layout=layout,
            undefined=f"fewer than {MIN_SPECTRUM_POSITIONS} positions in a row",
        )
    residual = detrend_columns(values, xp, linear=not isinstance(layout, Grid))
    if isinstance(layout, Grid):
        by_dim = sum_rings(measure_grid_power(residual, layout, xp), layout)
    else:
        taper = np.hanning(length)
        by_dim = measure_line_power(residual, taper, xp).astype(np.float64) / (
            length * (taper**2).sum()
        )
    frequency = np.arange(len(by_dim), dtype=np.float64) / length
    power = by_dim.sum(axis=1)
    if not power.any():
        reason = "nothing is left after detrending: every dimension is constant or a straight line"
        return Spectrum(layout=layout, undefined=reason)
    share = power / power.sum()
    positive = share[share > 0]
    strongest = np.argmax(by_dim[1:], axis=0) + 1
    result = Spectrum(
        layout=layout,
        frequency=frequency,
        power=power,
        power_by_dim=by_dim,
        entropy=float(-(positive * np.log(positive)).sum() / np.log(len(share))),
        edge_frequency=float(
            np.searchsorted(np.cumsum(share), EDGE_POWER_SHARE) / length
        ),
        dominant_frequency=np.where(by_dim.sum(axis=0) > 0, frequency[strongest], np.nan),
        dominant_significant=np.zeros(by_dim.shape[1], dtype=bool),
    )
    if isinstance(layout, Grid):
        return result
    residual = to_numpy(residual).astype(np.float64)
    red, level = fit_red_noise(residual, frequency, power[:, None], pooled=True)
    _, levels = fit_red_noise(residual, frequency, by_dim, pooled=False)
    is_significant = (by_dim > levels)[strongest, np.arange(by_dim.shape[1])]
    return replace(
        result,
        background=red[:, 0],
        threshold=level[:, 0],
        lines=_find_lines(frequency, power, red[:, 0], level[:, 0]),
        dominant_significant=is_significant & (strongest >= MIN_LINE_PERIODS),
    )


def detrend_columns(values: Array, xp: ModuleType, *, linear: bool) -> Array:
    """Subtract each column's mean, or its least-squares line; what is then rounding becomes 0."""
    residual = values - xp.mean(values, axis=0)
    if linear:
        residual = remove_line(residual, xp)
    # What detrending leaves of a constant or straight column is rounding, of float32 in most files.
    scale = xp.max(xp.abs(values), axis=0)
    return xp.where(
        xp.max(xp.abs(residual), axis=0) > DETRENDING_ROUNDING * scale, residual, 0.0
    )


def remove_line(centered: Array, xp: ModuleType) -> Array:
    """Subtract the least-squares line from each column of a centred table ``[n, d]``."""
    n = centered.shape[0]
    line = xp.arange(n, dtype=centered.dtype, device=centered.device) - (n - 1) / 2
    return centered - line[:, None] * (xp.matmul(line, centered) / xp.sum(line**2))


def measure_line_power(
    residual: Array, taper: Floats, xp: ModuleType
) -> NDArray[np.floating[Any]]:
    """Return the one-sided power of each tapered column ``[f, d]``, in the table's precision."""
    tapered = (
        residual
        * xp.asarray(taper, dtype=residual.dtype, device=residual.device)[:, None]
    )
    power = to_numpy(xp.abs(xp.fft.rfft(tapered, axis=0)) ** 2)
    # One side of the spectrum stands for both, but for 0 and the Nyquist frequency.
    power[1 : (len(taper) + 1) // 2] *= 2
    return power


def fit_red_noise(
    residual: Floats,
    frequency: Floats,
    power: Floats,
    *,
    pooled: bool,
) -> tuple[Floats, Floats]:
    """Fit AR(1) noise; return its spectrum and the significance level, each ``[f, columns]``.

    ``pooled`` fits one process to all dimensions at once; their power then has as many degrees of
    freedom as there are independent dimensions, two for each.
    """
    from scipy.special import chdtri

    lagged, total = (residual[1:] * residual[:-1]).sum(axis=0), (residual**2).sum(axis=0)
    degrees = 2.0
    if pooled:
        degrees = 2 * participation_ratio(residual)
        lagged, total = lagged.sum(keepdims=True), total.sum(keepdims=True)
    memory = quotient(lagged, total, fill=0.0).clip(0.0, 0.999)
    wave = np.cos(2 * np.pi * frequency)[:, None]
    shape = (1 - memory**2) / (1 + memory**2 - 2 * memory * wave)
    red = shape * (power.sum(axis=0) / shape.sum(axis=0))
    level = red * chdtri(degrees, FALSE_ALARM_P / len(frequency)) / degrees
    return red, level


def _find_lines(
    frequency: Floats,
    power: Floats,
    background: Floats,
    threshold: Floats,
) -> tuple[Line, ...]:
    peaks_above = np.flatnonzero(power > threshold)
    # Neighbouring bins belong to one peak of the Hann window, whose main lobe is four bins wide.
    runs = (
        np.split(peaks_above, np.flatnonzero(np.diff(peaks_above) > 2) + 1)
        if peaks_above.size
        else []
    )
    lines = []
    for run in runs:
        k = run[np.argmax(power[run])]
        is_inner = MIN_LINE_PERIODS <= k < len(power) - 1
        if is_inner and power[k] > power[k - 1] and power[k] >= power[k + 1]:
            ratio = float(power[k] / background[k])
            lines.append(Line(float(frequency[k]), float(1 / frequency[k]), ratio))
    return tuple(sorted(lines, key=lambda line: -line.ratio))


def sum_rings(power: NDArray[np.floating[Any]], layout: Grid) -> Floats:
    """Sum two-dimensional power ``[h * w, ...]`` over rings of equal radial frequency."""
    radius = np.hypot(
        np.fft.fftfreq(layout.height)[:, None], np.fft.fftfreq(layout.width)[None, :]
    )
    ring = np.rint(radius * max(layout.height, layout.width)).astype(np.intp).ravel()
    by_ring = np.zeros((ring.max() + 1, *power.shape[1:]))
    np.add.at(by_ring, ring, power)
    return by_ring


def measure_grid_power(
    centered: Array, layout: Grid, xp: ModuleType
) -> NDArray[np.floating[Any]]:
    """Return the two-dimensional power of each column's map: ``[h * w, d]``.

    Frequencies are in the order of ``fftfreq``; the powers of a column add up to its variance.
    """
    maps = xp.reshape(centered, (layout.height, layout.width, -1))
    power = to_numpy(xp.abs(xp.fft.fftn(maps, axes=(0, 1))) ** 2)
    return np.asarray(power.reshape(layout.size, -1) / layout.size**2)


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
        `MIN_LINE_POWER_SHARE` of that one's power; NaN where no line stands out of red noise. A
        line has at least three periods in the segment; its frequency is interpolated between bins.
    length, step
        Positions in a segment, and from one to the next. Each segment is detrended (line) and
        tapered (Hann), so frequencies closer than about 2 / length are one.
    drift
        Drift of the fastest line: 10 to 90 % range of its frequency over the median. None where
        fewer than half of the segments show a line.
    layout, start
        Layout and first of the positions.
    undefined
        Reason why there is no spectrogram, or empty.
    detrend, window
        How segments are detrended and tapered.
    """

    figures: ClassVar[str] = "frequencies.plot_spectrogram"

    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    frequency: Floats = field(default_factory=empty_array)
    power: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    center: Annotated[Floats, "Position of the middle of each segment."] = field(
        default_factory=empty_array
    )
    strongest: Floats = field(default_factory=empty_array)
    fastest: Floats = field(default_factory=empty_array)
    length: Annotated[
        Natural | None, Number("segment", "positions in each segment", form="d")
    ] = None
    step: Annotated[Natural | None, "Positions from one segment to the next."] = None
    drift: Annotated[float | None, Number("drift", "10 to 90 % of the fastest line")] = (
        None
    )
    undefined: Annotated[str, JsonType(Reasons)] = ""
    detrend: Literal["linear"] = "linear"
    window: Literal["hann"] = "hann"

    @property
    def segments(
        self,
    ) -> Annotated[
        Count | None, Number("segments", "number of overlapping ones", form="d")
    ]:
        """How many there are."""
        return len(self.center) or None

    @property
    def strongest_period(
        self,
    ) -> Annotated[WithGaps, "By segment, of the strongest line."]:
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
        fastest = self.fastest[~np.isnan(self.fastest)]
        return (
            (1 / np.percentile(fastest, [90, 50, 10])).tolist() if fastest.size else None
        )

    @property
    def partly(self) -> dict[str, str]:
        """Why numbers are None, and why there are gaps."""
        n_with_line = int(np.count_nonzero(~np.isnan(self.fastest)))
        if self.undefined or n_with_line == len(self.fastest) > 1:
            return {}
        reason = (
            f"{n_with_line} of {len(self.fastest)} segments show a line above red noise"
        )
        gaps = ["strongest_period", "fastest_period"]
        gaps += [] if n_with_line else ["fastest_period_p10_p50_p90"]
        return dict.fromkeys(gaps if self.drift is not None else (*gaps, "drift"), reason)


def spectrogram(table: PositionTable | Positions | Array) -> Spectrogram:
    """Compute the power spectrum of overlapping segments of the positions.

    Segments of n / 8 positions, within `SEGMENT_RANGE_POSITIONS`, a quarter of their length apart.
    They count from the first row; up to a quarter of a segment at the end is in none.

    Parameters
    ----------
    table
        ``[n, d]``, a sequence.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    The same frequency in each of five segments:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> wave = np.cos(2 * np.pi * np.arange(64) / 8)
    >>> spectrogram = pp.spectrogram(wave[:, None])
    >>> spectrogram.power.shape
    (5, 17)
    >>> spectrogram.strongest.round(2).tolist()
    [0.13, 0.13, 0.13, 0.13, 0.13]
    """
    inputs = positions(table, sums_squares=True)
    undefined_spectrogram = partial(Spectrogram, inputs.layout, inputs.start)
    n = inputs.values.shape[0]
    if isinstance(inputs.layout, Grid):
        return undefined_spectrogram(undefined="a grid has no single order of positions")
    if n < 2 * SEGMENT_RANGE_POSITIONS[0]:
        return undefined_spectrogram(
            undefined=f"fewer than {2 * SEGMENT_RANGE_POSITIONS[0]} positions"
        )
    length = 2 * (
        min(max(n // 8, SEGMENT_RANGE_POSITIONS[0]), SEGMENT_RANGE_POSITIONS[1]) // 2
    )
    step = length // 4
    values = to_numpy(inputs.values).astype(np.float64, copy=False)
    taper = np.hanning(length)
    frequency = np.arange(length // 2 + 1, dtype=np.float64) / length
    begin = np.arange(0, n - length + 1, step)
    power = np.empty((len(begin), len(frequency)))
    strongest, fastest = np.full((2, len(begin)), np.nan)
    for k, start in enumerate(begin):
        residual = detrend_columns(values[start : start + length], np, linear=True)
        power[k] = measure_line_power(residual, taper, np).sum(axis=1) / (
            length * np.square(taper).sum()
        )
        if power[k].any():
            _, level = fit_red_noise(residual, frequency, power[k][:, None], pooled=True)
            strongest[k], fastest[k] = _extreme_lines(power[k], level[:, 0], length)
    if not power.any():
        return undefined_spectrogram(
            undefined="every dimension is constant or a straight line"
        )
    center = inputs.start + begin + (length - 1) / 2
    drift, defined_fastest = None, fastest[~np.isnan(fastest)]
    if 2 * defined_fastest.size >= fastest.size:
        low, middle, high = np.percentile(defined_fastest, [10, 50, 90])
        drift = float((high - low) / middle)
    return undefined_spectrogram(
        frequency, power, center, strongest, fastest, length, step, drift
    )


def _extreme_lines(power: Floats, level: Floats, length: int) -> tuple[float, float]:
    """Return the frequencies of a segment's strongest and fastest line, or NaN."""
    inner_bins = np.arange(MIN_LINE_PERIODS, len(power) - 1)
    peak = (power[inner_bins] > power[inner_bins - 1]) & (
        power[inner_bins] >= power[inner_bins + 1]
    )
    peak_bins = inner_bins[peak & (power[inner_bins] > level[inner_bins])]
    if not peak_bins.size:
        return np.nan, np.nan
    strongest = peak_bins[np.argmax(power[peak_bins])]
    fastest = peak_bins[power[peak_bins] >= MIN_LINE_POWER_SHARE * power[strongest]][-1]
    return _interpolate_peak(power, strongest) / length, _interpolate_peak(
        power, fastest
    ) / length


def _interpolate_peak(power: Floats, k: int) -> float:
    """Interpolate a peak between bins; a Hann window's peak is nearly a parabola in decibels."""
    low, middle, high = np.log(np.maximum(power[k - 1 : k + 2], 1e-300))
    return float(k + (low - high) / (2 * (low - 2 * middle + high)))
