"""Winding: pairs of principal components that go round, how often and how evenly.

GPT-2's table is known as a helix (Yedidia 2023): two components turn about a common centre while
a third one rises. A linear phase and a round shape prove nothing: the first two components of
any random walk make 0.75 of a turn with a phase that is straight to 0.99 (Antognini &
Sohl-Dickstein 2018 explain why). What tells is the number of turns, beside that of such tables, and
whether the period stays the same along the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.pca import PCA, resolve_components
from posprobe.analyses.facts import Number
from posprobe.analyses.linear import fit_line
from posprobe.analyses.result import HIDDEN, JsonType, Result, WithGaps, empty_array
from posprobe.arrays import Array, Floats, Positions, positions, quotient
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Reasons
from posprobe.tables import PositionTable

#: Fewest rows of a table that winds; with fewer, a turn is two or three steps.
MIN_WINDING_TABLE_ROWS = 6
#: Components that hold this share of the variance are paired.
PAIRED_VARIANCE_SHARE = 0.99
#: Most components that are paired: eight pairs, whose coherence is computed at every lag.
MAX_PAIRED_COMPONENTS = 16
#: Two components are a pair from this coherence a quarter of a period apart on: the most coherent
#: of 16 components of noise reach 0.40 in 120 tables.
MIN_PAIR_COHERENCE = 0.5
#: Sections of the table, a tenth each, whose periods are measured.
MAX_PERIOD_PARTS = 10
#: Fewest rows of such a section: two steps and their ends.
MIN_PERIOD_PART_ROWS = 4


@dataclass(frozen=True, eq=False)
class WindingPair:
    """Two components that turn about their common centre; in JSON they are counted from 1.

    Both are scaled to the same variance, so that an ellipse is a circle.

    Parameters
    ----------
    components
        The two, counted from 0.
    share
        Share of the variance, both components together.
    coherence
        Between 0 and 1: how nearly one is the other a quarter of a period later, at the lag where
        they agree best. 1 for a circle run through evenly.
    phase
        ``[n]``, radians, unwrapped, rising on the whole.
    radius
        ``[n]``, in the table's units.
    phase_linearity
        R² of the phase against position.
    bounds
        ``[parts + 1]``: edges of the parts of the table, in rows.
    frequency
        ``[parts]``: turns per position in each part; below 0 where it turns back.
    axis
        The other component that rises with the phase best, counted from 0; None if there is none.
    axis_r2
        R² of its straight line against the phase.
    pitch
        Its rise per turn, in the table's units.
    """

    components: Annotated[
        tuple[int, int],
        JsonType(
            list[int], lambda pair: [component + 1 for component in pair.components]
        ),
    ]
    share: float
    coherence: float
    phase: Floats
    radius: Annotated[
        Floats,
        JsonType(float, lambda pair: pair.radius.mean()),
        "Mean, in the table's units.",
    ]
    phase_linearity: float
    bounds: NDArray[np.int64]
    frequency: Floats
    axis: Annotated[
        int | None,
        JsonType(int | None, lambda pair: None if pair.axis is None else pair.axis + 1),
    ]
    axis_r2: Annotated[float, JsonType(float | None)]
    pitch: Annotated[float, JsonType(float | None)]

    @property
    def turns(self) -> Annotated[float, ""]:
        """How often it goes round from the first row to the last."""
        return float(self.phase[-1] - self.phase[0]) / (2 * np.pi)

    @property
    def period(self) -> Annotated[float, JsonType(float | None)]:
        """Positions per turn, over the whole table; infinite where it ends where it began."""
        return (len(self.phase) - 1) / self.turns if self.turns > 0 else np.inf

    @property
    def radius_cv(self) -> Annotated[float, ""]:
        """Standard deviation of the radius over its mean; 0 for a circle."""
        return float((self.radius / self.radius.mean()).std())

    @property
    def local_period(self) -> WithGaps:
        """``[parts]``: positions per turn in each part; NaN where it stands still or turns back."""
        return quotient(np.ones(1), self.frequency, self.frequency > 1e-9)


def rotation_shares(pair: WindingPair, periods: Sequence[float]) -> Floats:
    """Return which share of a pair's variance goes round with each of some periods.

    By least squares with all of them together, in both senses: an ellipse is two circles.

    Parameters
    ----------
    pair
        The two components.
    periods
        ``[k]``, positions per turn.
    """
    path = pair.radius * np.exp(1j * pair.phase)
    time = np.arange(len(path))
    angles = 2 * np.pi * np.outer(time, [sign / p for p in periods for sign in (1, -1)])
    waves = np.exp(1j * np.concatenate([np.zeros((len(path), 1)), angles], axis=1))
    coefficients = np.linalg.lstsq(waves, path, rcond=None)[0][1:]
    variance = float(np.square(np.abs(path - path.mean())).mean())
    power = np.square(np.abs(coefficients)).reshape(-1, 2).sum(axis=1)
    return np.asarray(power / max(variance, np.finfo(np.float64).tiny))


@dataclass(frozen=True, eq=False, repr=False)
class Winding(Result):
    """Pairs of components that go round, those with the most variance first.

    Parameters
    ----------
    pairs
        No component is in two of them.
    scores
        ``[n, k]``: the leading components.
    ratio
        ``[k]``: their shares of the variance.
    layout, start
        Layout and first of the positions.
    turns, phase_linearity, radius_cv, share
        Numbers of the first pair; None where there is none.
    components
        Number of components that were looked at.
    undefined
        Reason why no pairs were looked for, or empty.
    """

    figures: ClassVar[str] = "components.plot_winding"
    missing_reason: ClassVar[str] = (
        f"no two components have a coherence of {MIN_PAIR_COHERENCE}"
    )

    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    pairs: tuple[WindingPair, ...] = ()
    scores: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    ratio: Floats = field(default_factory=empty_array)
    undefined: Annotated[str, JsonType(Reasons)] = ""
    turns: Annotated[float | None, Number("turns", "of the strongest pair")] = None
    share: Annotated[float | None, Number("winding pair", "share of the variance")] = None
    phase_linearity: Annotated[
        float | None, Number("phase linearity", "R² of its phase")
    ] = None
    radius_cv: Annotated[float | None, Number("radius CV", "deviation over the mean")] = (
        None
    )
    components: int | None = None

    @property
    def rows(self) -> Annotated[list[int] | None, ""]:
        """First position that was used, and one past the last."""
        return [self.start, self.start + len(self.scores)] if len(self.scores) else None

    @property
    def partly(self) -> dict[str, str]:
        """Why single local periods are None."""
        gaps = any(np.isnan(pair.local_period).any() for pair in self.pairs)
        return (
            {"local_period": "null where a pair stands still or turns back"}
            if gaps
            else {}
        )


def winding(
    table: PositionTable | Positions | Array, *, pca: PCA | None = None
) -> Winding:
    """Look for pairs of principal components that go round each other.

    Two components pair up by their coherence a quarter of a period apart: the largest, over lags up
    to half the table, of ``|sum_t x(t) y(t + lag) - y(t) x(t + lag)|`` over the root of the sums of
    ``x² + y²`` over the rows that it leads from and those that it leads to. For two phases of one
    rotation it is ``|sin(w lag)|``, which is 1 at a quarter of the period, whatever their order by
    variance. The most coherent two are paired first.

    Parameters
    ----------
    table
        ``[n, d]``. Undefined on a grid, whose row and column codes wind on their own.
    pca
        The table's principal components where they are known already.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or ``pca`` is of a table of other length.

    Examples
    --------
    >>> import posprobe as pp
    >>> found = pp.winding(pp.sinusoidal(64, 2))
    >>> print(f"{found.pairs[0].turns:.1f} turns")
    10.0 turns
    """
    inputs = positions(table)
    n, undefined_winding = (
        inputs.values.shape[0],
        partial(Winding, inputs.layout, inputs.start),
    )
    if isinstance(inputs.layout, Grid):
        return undefined_winding(
            undefined="patches lie on a grid: their rows and columns wind on their own"
        )
    if n < MIN_WINDING_TABLE_ROWS:
        return undefined_winding(undefined=f"fewer than {MIN_WINDING_TABLE_ROWS} rows")
    components = resolve_components(inputs, pca)
    if components.undefined:
        return undefined_winding(undefined=components.undefined)
    ratio = components.explained_variance_ratio
    n_components = count_paired_components(ratio)
    if n_components < 2:
        return undefined_winding(
            undefined="all rows lie on one line: a single component cannot trace a circle"
        )
    scores = components.scores[:, :n_components]
    pairs = sorted(find_winding_pairs(scores, ratio), key=lambda pair: -pair.share)
    names = ("turns", "share", "phase_linearity", "radius_cv")
    first_pair: dict[str, Any] = (
        {name: getattr(pairs[0], name) for name in names} if pairs else {}
    )
    ratio = ratio[:n_components]
    return undefined_winding(
        tuple(pairs), scores, ratio, components=len(ratio), **first_pair
    )


def count_paired_components(ratio: Floats) -> int:
    """Return how many components are paired, by their shares of the variance, which fall."""
    n_components = (
        int(
            np.argmax(np.cumsum(ratio) >= min(PAIRED_VARIANCE_SHARE, ratio.sum() - 1e-12))
        )
        + 1
    )
    # An axis may hold little; what rounding holds is none.
    return min(
        max(n_components, 3), MAX_PAIRED_COMPONENTS, int(np.count_nonzero(ratio > 1e-12))
    )


def find_winding_pairs(scores: Floats, ratio: Floats) -> list[WindingPair]:
    """Pair components ``[n, k]`` that go round each other; ``ratio`` are their shares ``[k]``."""
    # By a power of two, which changes no digit, so that no square leaves the range of the numbers.
    unit = float(np.ldexp(1.0, np.frexp(np.abs(scores).max())[1]))
    scores = scores / unit
    scaled = scores / np.sqrt((scores**2).mean(axis=0))
    coherence = _pair_coherence(scaled)
    free = np.ones(scores.shape[1], dtype=bool)
    pairs = []
    for flat in np.argsort(-coherence, axis=None, kind="stable").tolist():
        first, second = divmod(flat, scores.shape[1])
        if coherence[first, second] < MIN_PAIR_COHERENCE:
            break
        if free[first] and free[second]:
            free[[first, second]] = False
            pair = _describe_pair(
                scores, ratio, (first, second), coherence[first, second]
            )
            pairs.append(
                replace(pair, radius=pair.radius * unit, pitch=pair.pitch * unit)
            )
    return pairs


def _pair_coherence(scaled: Floats) -> Floats:
    """Return the largest coherence of each pair over all lags, above the diagonal: ``[k, k]``."""
    from scipy.fft import irfft, next_fast_len, rfft

    n, k = scaled.shape
    max_lag = max(n // 2, 1)
    length = next_fast_len(2 * n, real=True)  # nothing wraps around
    columns = np.ascontiguousarray(scaled.T)
    transform = rfft(columns, length, axis=1)
    power = np.cumsum(columns**2, axis=1)
    # Of the rows up to each lag's last, and of those from the lag on.
    before = power[:, n - 1 - max_lag : n - 1][:, ::-1]
    after = power[:, -1:] - power[:, :max_lag]
    result = np.zeros((k, k))
    for index in range(k - 1):
        spectrum, later_spectra = transform[index], transform[index + 1 :]
        # A product less its conjugate: twice what is imaginary.
        cross_spectrum = 2j * (np.conj(spectrum) * later_spectra).imag
        crossed = irfft(cross_spectrum, length, axis=1)[:, 1 : max_lag + 1]
        sizes = [part[index] + part[index + 1 :] for part in (before, after)]
        size = np.sqrt(sizes[0] * sizes[1])
        ratio = np.abs(crossed) / np.maximum(size, np.finfo(float).tiny)
        # Of few rows, a pair that holds next to nothing agrees by chance.
        ratio[size < 0.1 * n] = 0.0
        result[index, index + 1 :] = ratio.max(axis=1)
    return result


def _describe_pair(
    scores: Floats, ratio: Floats, components: tuple[int, int], coherence: float
) -> WindingPair:
    n = len(scores)
    pair_scores = scores[:, list(components)]
    size = np.sqrt((pair_scores**2).mean(axis=0))
    x, y = (pair_scores * (np.sqrt((size**2).mean()) / size)).T
    phase = np.unwrap(np.arctan2(y, x))
    phase = phase if phase[-1] >= phase[0] else -phase
    time = np.arange(n, dtype=np.float64)
    parts = min(MAX_PERIOD_PARTS, max(n // MIN_PERIOD_PART_ROWS, 1))
    bounds = np.linspace(0, n, parts + 1).round().astype(np.int64)
    edges = np.minimum(
        bounds, n - 1
    )  # up to the next part's first row, so that no turn is lost
    frequency = np.diff(phase[edges]) / (2 * np.pi * np.diff(edges))
    axis, axis_r2, pitch = None, np.nan, np.nan
    for third in range(scores.shape[1]):
        if third not in components:
            slope, r2 = fit_line(phase, scores[:, third])
            if axis is None or r2 > axis_r2:
                axis, axis_r2, pitch = third, r2, 2 * np.pi * slope
    return WindingPair(
        components=components,
        share=float(ratio[list(components)].sum()),
        coherence=float(min(coherence, 1.0)),
        phase=phase,
        radius=np.hypot(x, y),
        phase_linearity=fit_line(time, phase)[1],
        bounds=bounds,
        frequency=frequency,
        axis=axis,
        axis_r2=axis_r2,
        pitch=abs(pitch),
    )
