"""Which waves of a table are rotations: planes in which the rows go round.

A line of the spectrum keeps its phase; it is a rotation where its two phases have two directions. A
hump does not say why its phase is not kept: a circle whose pace varies has the spectrum of
narrow-band noise. Its plane tells the two apart: noise has no constant radius and turns both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.clocks import ClockFit, fit_clock, resample_evenly
from posprobe.analyses.composition.mixture import Power, cosine_power
from posprobe.analyses.composition.paths import (
    MIN_SAME_DIRECTION,
    PathStats,
    local_periods,
    measure_path,
    measure_steps,
    project_path,
    smooth_pace_share,
)
from posprobe.analyses.composition.slow_changes import judge_slow_families
from posprobe.analyses.composition.variance_shares import share_variance
from posprobe.analyses.composition.wave_scores import (
    MAX_LINE_P,
    MIN_LINE_SPACING_TURNS,
    MIN_LINE_TURNS,
)
from posprobe.analyses.composition.waves import (
    MIN_ACTIVE_WEIGHT,
    MIN_FAMILY_SHARE,
    MIN_PLANE_SHARE,
    MIN_WAVE_ROWS,
    FamilyTest,
    Misfit,
    Waves,
    WaveThresholds,
    find_waves,
    fit_lines,
    leading_plane,
    measure_misfit,
    refit_selected,
    stationary_covariance,
    wave_shares,
)
from posprobe.analyses.resampling import count_p_value
from posprobe.arrays import Floats

Pace: TypeAlias = Literal["fixed", "smooth", "uneven"]

#: A wave of fixed period goes round from this circularity on (1 for a circle, 0 for a line): the
#: short axis of its ellipse is then 0.58 of the long one.
MIN_CIRCULARITY = 0.5
#: Waves whose periods are within this factor may be pieces of one rotation. MiniLM's fastest is
#: found as 5.7 and 6.4 positions, and its next is three times as slow.
MAX_PERIOD_RATIO = 1.5
#: Pieces of one rotation have planes that overlap by more than half. Those of MiniLM's fastest
#: overlap by 0.99.
MIN_PLANE_OVERLAP = 0.5
#: Below this share of a bin's power, the background blurs the plane of a wave, for it spreads over
#: all directions.
MIN_WAVE_SHARE = 0.2
#: The pace is smooth where a constant radius with a smooth phase explains this share of the plane.
#: Planes of MiniLM have .97 to .996, Whisper's fastest .28.
MIN_SMOOTH_PACE_SHARE = 0.9
#: The pace is not fixed where a bent phase explains a tenth of the plane's variance beyond a
#: straight one.
MIN_BENT_SHARE = 0.1
#: Periods form a series where the largest ratio of neighbours exceeds the smallest by no more than
#: this factor: trained planes repeat their ratio to a percent.
MAX_RATIO_SPREAD = 1.05
#: Draws of narrow-band noise for a plane. The smallest p-value, 1 / 600, passes alone among the
#: questions of a table.
N_PLANE_DRAWS = 599
#: A plane is a rotation up to this p-value.
MAX_PLANE_P = 0.02
#: Draws that are transformed at once: at 1.6 kilobytes a row they stay in the cache.
PLANE_DRAWS_PER_BATCH = 50


@dataclass(frozen=True)
class Rotation:
    """A plane that the table goes round in.

    Parameters
    ----------
    period, turns
        Period in positions by the straight line through the phases, and turns at that pace.
    share
        Share of the variance: that of the model where the period is fixed, else that of a circle
        of constant radius.
    pace
        Way in which the period changes: not at all, smoothly, or unevenly.
    fastest, slowest
        Local periods in positions, the 10 and 90 % quantiles over the table.
    circularity
        Shape of the path: 1 for a circle, 0 for a wave along one direction.
    p
        Probability that noise does as well: a line as strong, or a plane with a radius as constant.
    """

    period: float
    turns: float
    share: float
    pace: Pace
    fastest: float
    slowest: float
    circularity: float
    p: float

    @property
    def is_circular(self) -> bool:
        """Whether it goes round, rather than along one direction."""
        return self.circularity >= MIN_CIRCULARITY


@dataclass(frozen=True)
class NarrowbandNoise:
    """Noise with a preferred period.

    Parameters
    ----------
    period, share
        Period in positions, and share of the variance.
    coherent
        Positions after which its phase is lost.
    p
        Probability that noise keeps its radius as well in a plane; 1 where it does not go round.
    """

    period: float
    share: float
    coherent: float
    p: float


@dataclass(frozen=True)
class FormulaRotations:
    """The rotations of a table that follows a formula.

    Parameters
    ----------
    count
        Number of frequencies that make `MIN_LINE_TURNS` turns or more.
    shortest, longest
        Periods of the fastest and the slowest of them, in positions.
    share
        Share of the variance that they explain together.
    """

    count: int
    shortest: float
    longest: float
    share: float


@dataclass(frozen=True, eq=False)
class RotationFit:
    """The rotations of a table, and the noise that only prefers a period.

    Parameters
    ----------
    rotations
        Rotations with the fastest first, small ones included.
    humps
        Narrow-band noises with the strongest first.
    p
        P-value of the strongest line of the table.
    detection_limit
        Share of the variance below which a line may be missed.
    strongest_share
        Share of the variance of the strongest line of the table.
    null_draws
        ``[r]``: share that a line of the period of the strongest would need to stand out of the
        table as the strongest line of each table drawn without waves does.
    model
        Fit that everything here is read from; None where there are too few rows.
    spectrum
        ``[3, n - 1]``: share of the variance in each bin of the cosine transform, its mean in the
        best fit without waves, and the number of independent columns there.
    planes
        ``[r, 2, d]``: directions of each rotation.
    clock
        Clock of the rotations that go round; None where there are fewer than two.
    families
        Share of the variance of everything without a period, by family; with the shares of
        ``rotations`` and ``humps`` they add up to 1.
    family_tests
        Test of each family but noise, in the table or not.
    smooth_limit
        Share of the variance up to which a smooth part would not be needed.
    slow_ranges
        Smallest and largest share of each family of the slow changes, where a smooth curve cannot
        be told from a random walk or a rough part; empty where it can.
    null_offsets
        ``[n]``: covariance by offset of the stationary process without rotations that is most like
        the table, preferred periods included; empty where there are too few rows.
    misfit
        Comparison of the fit with fits of draws from it; None where there are too few rows.
    formula
        Rotations of the formula that the table follows, if it does; the shares are then those of
        its frequencies, and ``rotations`` those that stand out.
    """

    rotations: tuple[Rotation, ...] = ()
    humps: tuple[NarrowbandNoise, ...] = ()
    p: float = 1.0
    detection_limit: float = 1.0
    strongest_share: float = 0.0
    null_draws: Floats = field(default_factory=lambda: np.zeros(0))
    model: Waves | None = None
    spectrum: Floats = field(default_factory=lambda: np.zeros((3, 0)))
    planes: Floats = field(default_factory=lambda: np.zeros((0, 2, 0)))
    clock: ClockFit | None = None
    families: Mapping[str, float] = field(default_factory=dict)
    family_tests: Mapping[str, FamilyTest] = field(default_factory=dict)
    smooth_limit: float = 1.0
    slow_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    null_offsets: Floats = field(default_factory=lambda: np.zeros(0))
    misfit: Misfit | None = None
    formula: FormulaRotations | None = None


@dataclass(frozen=True, eq=False)
class _LocatedRotation:
    """A rotation with its plane ``[2, d]``, and the indices of the waves that are pieces of it."""

    rotation: Rotation
    plane: Floats
    members: list[int]


@dataclass(frozen=True, eq=False)
class _LocatedHump:
    """Narrow-band noise with the indices of the waves that are pieces of it."""

    noise: NarrowbandNoise
    members: list[int]


def find_rotations(points: Floats, seed: int) -> RotationFit:
    """Find the rotations of a table.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    seed
        Seed of the null draws.
    """
    n, d = points.shape
    if n < MIN_WAVE_ROWS or d < 2 or not points.any():
        return RotationFit()
    power = cosine_power(points)
    waves, thresholds = find_waves(points, power, seed)
    located_rotations, located_humps = _classify_waves(points, power, waves, seed)
    clock = _fit_shared_clock(points, located_rotations)
    if clock is not None and clock.is_shared:
        located_rotations += _extend_series(clock, points)
    located_rotations.sort(key=lambda located: located.rotation.period)
    shares, families, fit, family_tests = share_variance(
        points,
        power,
        waves,
        [located.members for located in located_rotations]
        + [located.members for located in located_humps],
        {
            k: located.plane
            for k, located in enumerate(located_rotations)
            if located.rotation.pace != "fixed"
        },
    )
    rotation_shares, hump_shares = np.split(shares, [len(located_rotations)])
    rotations = [
        replace(located.rotation, share=share)
        for located, share in zip(
            located_rotations, rotation_shares.tolist(), strict=True
        )
    ]
    humps = [
        replace(located.noise, share=share)
        for located, share in zip(located_humps, hump_shares.tolist(), strict=True)
    ]
    is_rotation = np.isin(
        waves.wave_indices, [k for located in located_rotations for k in located.members]
    )
    families, smooth_limit, slow_ranges = judge_slow_families(
        power, waves, fit.weights, families, is_rotation
    )
    strongest = max(rotations, key=lambda rotation: rotation.share, default=None)
    turns = strongest.turns if strongest else thresholds.strongest_turns
    return RotationFit(
        rotations=tuple(rotations),
        humps=tuple(sorted(humps, key=lambda hump: -hump.share)),
        p=max(thresholds.p, MAX_LINE_P),
        detection_limit=thresholds.detection_limit,
        strongest_share=_strongest_share(thresholds),
        null_draws=thresholds.share_at(thresholds.null_scores, turns),
        model=waves,
        spectrum=np.stack([power.share, thresholds.background, power.columns]),
        planes=np.array([located.plane for located in located_rotations]).reshape(
            -1, 2, d
        ),
        clock=clock,
        families=families,
        family_tests=family_tests,
        smooth_limit=smooth_limit,
        slow_ranges=slow_ranges,
        null_offsets=_fit_null_offsets(power, waves, fit.weights, is_rotation),
        misfit=measure_misfit(
            power, waves, fit.weights, np.random.default_rng([seed, 47])
        ),
    )


def _fit_null_offsets(
    power: Power, waves: Waves, weights: Floats, is_rotation: NDArray[np.bool_]
) -> Floats:
    """Return the covariance by offset of the process without rotations most like the table.

    Alternation that lasts along the table is left out as well: it is one direction, as a rotation
    is two.
    """
    covariance = np.abs(waves.fit.components.covariance)
    is_lasting = waves.fit.components.has_family("alternating") & (
        covariance[-1] > 0.5 * covariance[0]
    )
    if is_rotation.any() or weights[is_lasting].any():
        start = np.maximum(weights, MIN_ACTIVE_WEIGHT)
        weights = refit_selected(
            power, waves, ~(is_rotation | is_lasting), start
        ).fit.weights
    return stationary_covariance(waves, weights)


def _strongest_share(thresholds: WaveThresholds) -> float:
    return float(
        thresholds.share_at(thresholds.strongest_score, thresholds.strongest_turns)
    )


def _classify_waves(
    points: Floats, power: Power, waves: Waves, seed: int
) -> tuple[list[_LocatedRotation], list[_LocatedHump]]:
    """Tell the rotations among the waves from narrow-band noise."""
    n = len(points)
    shares = wave_shares(power, waves)
    rng = np.random.default_rng([seed, 43])
    rotations: list[_LocatedRotation] = []
    humps: list[_LocatedHump] = []
    for group in _group_waves(power, waves, shares):
        share = float(shares[group].sum())
        lines = [k for k in group if waves.waves[k].is_line]
        line = max(lines, key=lambda k: shares[k], default=None)
        if line is not None and shares[line] > share / 2:
            rotations.append(
                replace(_describe_line(points, waves, line, share), members=group)
            )
            continue
        group_turns = [waves.waves[k].turns for k in group]
        plane_share, plane = leading_plane(power, group_turns)
        located = _find_same_rotation(rotations, group_turns[0], plane)
        if located:
            located.members.extend(group)
            continue
        path = points @ plane.T
        stats = measure_path(path)
        p = 1.0
        if plane_share >= MIN_PLANE_SHARE and stats.is_rotation:
            p = _noise_p(waves, group, stats, rng)
        circle_share = np.square(np.linalg.norm(path, axis=1).mean()) * n / power.total
        rotation = _describe_rotation(path, min(float(circle_share), 1.0), 1.0, p)
        coherence_length = _coherence_length(waves, group, n)
        period = n / group_turns[0]
        if p <= MAX_PLANE_P and rotation.turns >= MIN_LINE_TURNS:
            rotations.append(_LocatedRotation(rotation, plane, group))
        elif coherence_length >= period:
            humps.append(
                _LocatedHump(NarrowbandNoise(period, share, coherence_length, p), group)
            )
    return rotations, humps


def _find_same_rotation(
    rotations: Sequence[_LocatedRotation], turns: float, plane: Floats
) -> _LocatedRotation | None:
    """Return the first rotation of like period in the same plane, of which a wave is a piece."""
    for located in rotations:
        is_close = _has_similar_period(turns, located.rotation.turns)
        if is_close and _plane_overlap(plane, located.plane) > MIN_PLANE_OVERLAP:
            return located
    return None


def _fit_shared_clock(
    points: Floats, rotations: Sequence[_LocatedRotation]
) -> ClockFit | None:
    """Fit one clock to all planes that go round, where there are at least two."""
    circular = [located for located in rotations if located.rotation.is_circular]
    if len(circular) < 2:
        return None
    return fit_clock(
        np.array([project_path(points, located.plane) for located in circular])
    )


def _extend_series(clock: ClockFit, points: Floats) -> list[_LocatedRotation]:
    """Look for the next members of a series of periods, slower and faster, by the shared clock.

    A slow one hides in the smooth part of the spectrum. Where the rows are taken at even steps of
    the clock, its plane is that of one wave of fixed period.
    """
    clock_turns = (clock.clock_positions[-1] - clock.clock_positions[0]) / (2 * np.pi)
    turns = np.sort(clock.frequencies) * clock_turns
    ratios = turns[1:] / turns[:-1]
    if len(ratios) < 2 or ratios.max() > MAX_RATIO_SPREAD * ratios.min():
        return []
    ratio = float(np.exp(np.log(ratios).mean()))
    even_points = resample_evenly(points, clock.clock_positions)
    even_points = even_points - even_points.mean(axis=0)
    max_turns = len(points) / 2 - MIN_LINE_SPACING_TURNS
    added_rotations = []
    for candidate in (turns[0] / ratio, turns[-1] * ratio):
        if not MIN_LINE_TURNS <= candidate < max_turns:
            continue
        coefficients = fit_lines(even_points, [*turns, candidate])[1][-1]
        plane = np.linalg.svd(coefficients, full_matrices=False)[2]
        path = points @ plane.T
        share = float(np.square(path).sum() / np.square(points).sum())
        if share >= MIN_FAMILY_SHARE and measure_path(path).is_rotation:
            rotation = _describe_rotation(path, share, 1.0, MAX_LINE_P)
            added_rotations.append(_LocatedRotation(rotation, plane, []))
    return added_rotations


def _wave_rows(power: Power, waves: Waves, wave: int) -> Floats:
    """Return the bins of the transform that a wave dominates, by its share there: ``[k, d]``."""
    is_member = waves.wave_indices == wave
    members = waves.fit.components.power[:, is_member]
    bin_shares = members @ waves.fit.weights[is_member] / waves.fit.mean
    bins = np.flatnonzero(bin_shares > MIN_WAVE_SHARE)
    return np.asarray(power.coefficients[bins] * np.sqrt(bin_shares[bins])[:, None])


def _group_waves(power: Power, waves: Waves, shares: Floats) -> list[list[int]]:
    """Pool waves of like period whose planes overlap."""
    rows = [_wave_rows(power, waves, k) for k in range(len(waves.waves))]
    groups: list[list[int]] = []
    for k in np.argsort(-shares).tolist():
        for group in groups:
            is_close = _has_similar_period(
                waves.waves[k].turns, waves.waves[group[0]].turns
            )
            if is_close and _plane_overlap(rows[k], rows[group[0]]) > MIN_PLANE_OVERLAP:
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def _has_similar_period(turns: float, reference_turns: float) -> bool:
    return 1 / MAX_PERIOD_RATIO < turns / reference_turns < MAX_PERIOD_RATIO


def _plane_overlap(x: Floats, y: Floats) -> float:
    """Return how much the planes of two sets of rows ``[k, d]`` overlap, 1 where they are equal."""

    def inner(a: Floats, b: Floats) -> float:
        return float(np.square(a @ b.T).sum())

    size = np.sqrt(inner(x, x) * inner(y, y))
    return inner(x, y) / size if size > 0 else 0.0


def _describe_line(
    points: Floats, waves: Waves, line: int, share: float
) -> _LocatedRotation:
    """Describe a line; its pace is smooth where a bent phase explains more than a straight one."""
    line_turns = [wave.turns for wave in waves.waves if wave.is_line]
    _, coefficients = fit_lines(points, line_turns)
    turns, n = waves.waves[line].turns, len(points)
    line_coefficients = coefficients[line_turns.index(turns)]
    _, radii, plane = np.linalg.svd(line_coefficients, full_matrices=False)
    # For the two radii of an ellipse, 1 - |sum z^2| / sum |z|^2 is the smaller square, doubled.
    circularity = float(2 * radii[1] ** 2 / np.square(radii).sum())
    path = points @ plane.T
    if circularity >= MIN_CIRCULARITY and measure_path(path).is_rotation:
        z = path[:, 0] + 1j * path[:, 1]
        angle = 2 * np.pi * turns * np.arange(n) / n
        straight = max(
            abs(np.mean(z * np.exp(1j * sign * angle))) ** 2 for sign in (1, -1)
        )
        if (
            smooth_pace_share(path) - straight / np.square(np.abs(z)).mean()
            >= MIN_BENT_SHARE
        ):
            rotation = _describe_rotation(path, share, circularity, MAX_LINE_P)
            return _LocatedRotation(rotation, plane, [line])
    period = n / turns
    rotation = Rotation(
        period, turns, share, "fixed", period, period, circularity, MAX_LINE_P
    )
    return _LocatedRotation(rotation, plane, [line])


def _describe_rotation(
    path: Floats, share: float, circularity: float, p: float
) -> Rotation:
    """Describe a path ``[n, 2]`` whose pace is not fixed."""
    phase = measure_path(path).phase
    position = np.arange(len(phase)) - (len(phase) - 1) / 2
    frequency = abs(float(phase @ position) / float(position @ position))
    fastest, slowest = (float(q) for q in np.quantile(local_periods(phase), (0.1, 0.9)))
    pace: Pace = (
        "smooth" if smooth_pace_share(path) >= MIN_SMOOTH_PACE_SHARE else "uneven"
    )
    period = 2 * np.pi / frequency
    turns = len(path) / period
    return Rotation(period, turns, share, pace, fastest, slowest, circularity, p)


def _group_covariance(waves: Waves, group: Sequence[int]) -> Floats:
    """Return the covariance ``[n]`` of some waves by offset."""
    is_member = np.isin(waves.wave_indices, group)
    members = waves.fit.components.covariance[:, is_member]
    return np.asarray(members @ waves.fit.weights[is_member])


def _noise_p(
    waves: Waves, group: Sequence[int], stats: PathStats, rng: np.random.Generator
) -> float:
    """Return how often narrow-band noise in two directions keeps its radius as well."""
    covariance = _group_covariance(waves, group)
    n = len(covariance)
    ring = np.concatenate([covariance, [0.0], covariance[:0:-1]])
    # The real and the imaginary part of its transform are two independent columns.
    amplitude = np.sqrt(np.maximum(np.fft.fft(ring).real, 0.0))
    n_as_constant = 0
    for first_draw in range(0, N_PLANE_DRAWS, PLANE_DRAWS_PER_BATCH):
        n_draws = min(PLANE_DRAWS_PER_BATCH, N_PLANE_DRAWS - first_draw)
        white = rng.standard_normal((n_draws, 2 * n, 2))
        transform = white.view(np.complex128)[..., 0] * amplitude
        _, radius_cv, same_direction = measure_steps(
            np.fft.ifft(transform, axis=1)[:, :n]
        )
        is_as_constant = radius_cv <= stats.radius_cv
        n_as_constant += int(
            np.sum(is_as_constant & (same_direction >= MIN_SAME_DIRECTION))
        )
    return count_p_value(n_as_constant, N_PLANE_DRAWS)


def _coherence_length(waves: Waves, group: Sequence[int], n: int) -> float:
    """Return the offset at which noise has lost its phase: exp(-1/2) of the envelope."""
    covariance = _group_covariance(waves, group)
    if not covariance[0] > 0:
        return 0.0
    turns = waves.waves[group[0]].turns
    lag = np.arange(n)
    # With a period of two or three rows, one of five lags meets the envelope.
    period = min(max(round(n / turns), 5), n)
    envelope = np.lib.stride_tricks.sliding_window_view(np.abs(covariance), period).max(
        axis=1
    )
    is_below = np.flatnonzero(envelope < np.exp(-0.5) * covariance[0])
    return float(lag[is_below[0]] if len(is_below) else n)
