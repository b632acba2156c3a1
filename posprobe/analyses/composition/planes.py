"""Which waves of a table are rotations: planes of their own that it goes round in.

A line of the spectrum keeps its phase; it is a rotation where its two phases have two directions. A
hump does not say why its phase is not kept: a circle whose pace varies has the spectrum of
narrow-band noise. Its plane tells: noise has no kept radius and turns both ways.

Rotations may read one clock: planes whose phases all follow the same function g of position, as
``2 pi g(p) / T``. A clock runs evenly where the period is fixed. It is fitted to the unwrapped
phases: the position itself and a polynomial without a straight part, times a pace of each plane's
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.mixture import Fit, Power, cosine_power, floored
from posprobe.analyses.composition.wave_scores import (
    MAX_LINE_P,
    MIN_LINE_SPACING_TURNS,
    MIN_LINE_TURNS,
)
from posprobe.analyses.composition.waves import (
    MIN_FAMILY_SHARE,
    MIN_PLANE_SHARE,
    MIN_WAVE_ROWS,
    Misfit,
    Waves,
    component_shares,
    find_waves,
    lines_power,
    misfit,
    needed,
    own_plane,
    wave_shares,
)
from posprobe.arrays import Floats

Pace: TypeAlias = Literal["fixed", "smooth", "uneven"]

#: Circularity (1 for a circle, 0 for a line) from which a wave of fixed period goes round: the
#: short axis of its ellipse is then 0.58 of the long one.
MIN_CIRCULARITY = 0.5
#: Periods within this factor whose planes agree by so much, more than half, are pieces of one
#: rotation: MiniLM's fastest is found as 5.7 and 6.4 positions in planes that agree by 0.99, and
#: its next is three times as slow.
MAX_PERIOD_RATIO = 1.5
MIN_PLANE_OVERLAP = 0.5
#: Share of a bin from which it tells of a wave's plane: what the rest puts there is shared out
#: among all directions.
MIN_WAVE_SHARE = 0.2
#: What a plane of rotation has: small radii of at least so much (their 2 % quantile over the
#: median) or radii that vary by at most so much, and at least so many steps one way. From the
#: planes of trained tables and of narrow-band noise (docs/calibration.md).
MIN_RADIUS_RATIO = 0.5
MAX_RADIUS_CV = 0.3
MIN_SAME_DIRECTION = 0.95
#: Share of the plane that a constant radius with a smooth phase explains: its degree, and where the
#: pace is smooth. Planes of MiniLM have .97 to .996, Whisper's fastest .28.
PHASE_DEGREE = 8
MIN_SMOOTH_PACE_SHARE = 0.9
#: Share of the plane that a bent phase explains beyond a straight one where the pace is not fixed:
#: a tenth of its variance.
MIN_BENT_SHARE = 0.1
#: Largest of the ratios of neighbouring periods over the smallest, of a series: as trained planes
#: repeat theirs to a percent.
MAX_RATIO_SPREAD = 1.05
#: Draws of narrow-band noise for a plane: the least p-value, 1 / 600, stands alone among the
#: questions of a table.
N_PLANE_DRAWS = 599
MAX_PLANE_P = 0.02
#: Draws that are transformed at once: their numbers, 1.6 kilobytes a row, stay in the cache.
PLANE_DRAWS_PER_BATCH = 50


@dataclass(frozen=True)
class Rotation:
    """A plane that the table goes round in.

    Parameters
    ----------
    period, turns
        In positions, by the straight line through the phases; and the turns at that pace.
    share
        Of the variance: of a fixed period what the model gives it, else that of a constant radius.
    pace
        Whether the period is fixed, changes smoothly, or unevenly.
    fastest, slowest
        Local periods that a tenth of the table is beyond, on either side, in positions.
    circularity
        1 for a circle, 0 for a wave along one direction.
    p
        How likely noise does as well: a line as strong, or a plane with a radius as constant.
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
    def round(self) -> bool:
        """Whether it goes round, rather than along one direction."""
        return self.circularity >= MIN_CIRCULARITY


@dataclass(frozen=True)
class Preferred:
    """Noise with a preferred period.

    Parameters
    ----------
    period, share
        In positions, and of the variance.
    coherent
        Positions after which its phase is lost.
    p
        How likely noise keeps its radius as well in a plane; 1 where it does not go round.
    """

    period: float
    share: float
    coherent: float
    p: float


@dataclass(frozen=True, eq=False)
class Turning:
    """What goes round in a table, and what only prefers a period.

    Parameters
    ----------
    rotations
        Fastest first, small ones among them.
    preferred
        Strongest first.
    p
        Of the strongest line, where nothing goes round.
    hidden
        Share of the variance below which a line may be missed.
    strongest
        Share of the variance of the strongest line, where nothing goes round.
    drawn
        ``[r]``: share that a line of the period of the strongest would need to stand out of the
        table as the strongest line of each table drawn without waves does.
    model
        The fit that all of them are read from; None of too few rows.
    spectrum
        ``[3, n - 1]``: the share of the variance in each bin of the cosine transform, its mean in
        the best fit without waves, and the independent columns there.
    planes
        ``[r, 2, d]``: directions of each rotation.
    clock
        What the rotations read that go round; None of fewer than two.
    families
        Share of the variance of everything without a period, by family; with the shares of
        ``rotations`` and ``preferred`` they add up to 1.
    misfit
        How far all of these may be trusted.
    """

    rotations: tuple[Rotation, ...] = ()
    preferred: tuple[Preferred, ...] = ()
    p: float = 1.0
    hidden: float = 1.0
    strongest: float = 0.0
    drawn: Floats = field(default_factory=lambda: np.zeros(0))
    model: Waves | None = None
    spectrum: Floats = field(default_factory=lambda: np.zeros((3, 0)))
    planes: Floats = field(default_factory=lambda: np.zeros((0, 2, 0)))
    clock: Fitted | None = None
    families: Mapping[str, float] = field(default_factory=dict)
    misfit: Misfit | None = None


@dataclass(frozen=True, eq=False)
class _Found:
    """A rotation with its plane ``[2, d]``, and the waves that are pieces of it."""

    rotation: Rotation
    plane: Floats
    members: list[int]


def find_rotations(points: Floats, seed: int) -> Turning:
    """Find the rotations of a table.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    seed
        Of the draws.
    """
    n, d = points.shape
    if n < MIN_WAVE_ROWS or d < 2 or not points.any():
        return Turning()
    power = cosine_power(points)
    found, bars = find_waves(points, power, seed)
    shares = wave_shares(power, found)
    rng = np.random.default_rng([seed, 43])
    rotations: list[_Found] = []
    preferred: list[tuple[Preferred, list[int]]] = []
    for group in _groups(power, found, shares):
        share = float(shares[group].sum())
        line = max((k for k in group if found.waves[k].line), key=lambda k: shares[k], default=None)
        if line is not None and shares[line] > share / 2:
            rotations.append(replace(_line(points, found, line, share), members=group))
            continue
        own = [found.waves[k].turns for k in group]
        two, plane = own_plane(power, own)
        piece = next(
            (
                each
                for each in rotations
                if _near(own[0], each.rotation.turns)
                and _alike(plane, each.plane) > MIN_PLANE_OVERLAP
            ),
            None,
        )
        if piece:  # of what is told already
            piece.members.extend(group)
            continue
        path = points @ plane.T
        about = measured_path(path)
        p = _chance(found, group, about, rng) if two >= MIN_PLANE_SHARE and about.round else 1.0
        held = np.square(np.linalg.norm(path, axis=1).mean()) * n / power.total
        turning = _turning(path, min(float(held), 1.0), 1.0, p)
        if p <= MAX_PLANE_P and turning.turns >= MIN_LINE_TURNS:
            rotations.append(_Found(turning, plane, group))
        elif (coherent := _coherent(found, group, n)) >= n / own[0]:
            preferred.append((Preferred(n / own[0], share, coherent, p), group))
    clock = _clock(points, rotations)
    if clock is not None and clock.shared:
        rotations += _read_by(clock, points)
    rotations.sort(key=lambda each: each.rotation.period)
    others = [each for _, each in preferred]
    told, families, kept = _apportioned(points, power, found, rotations, others)
    rounds = [
        replace(each.rotation, share=float(share))
        for each, share in zip(rotations, told, strict=False)
    ]
    humps = [
        replace(each, share=float(share))
        for (each, _), share in zip(preferred, told[len(rotations) :], strict=True)
    ]
    at = max(rounds, key=lambda each: each.share).turns if rounds else bars.turns
    return Turning(
        tuple(rounds),
        tuple(sorted(humps, key=lambda each: -each.share)),
        max(bars.p, MAX_LINE_P), bars.hidden,
        float(bars.share(bars.score, bars.turns)), bars.share(bars.largest, at), found,
        np.stack([power.share, bars.background, power.columns]),
        np.array([each.plane for each in rotations]).reshape(-1, 2, d), clock, families,
        misfit(power, found, kept.weights, np.random.default_rng([seed, 47])),
    )  # fmt: skip


def _along(points: Floats, plane: Floats) -> Complexes:
    """Return the path ``[n]`` of rows in a plane ``[2, d]``."""
    path = points @ plane.T
    return np.asarray(path[:, 0] + 1j * path[:, 1])


def _clock(points: Floats, rotations: Sequence[_Found]) -> Fitted | None:
    """Fit one clock to all that goes round, where at least two planes do."""
    turning = [each for each in rotations if each.rotation.round]
    if len(turning) < 2:
        return None
    return fit_clock(np.array([_along(points, each.plane) for each in turning]))


def _read_by(clock: Fitted, points: Floats) -> list[_Found]:
    """Look for the next member of a series of periods, slower and faster, by the clock it reads.

    A slow one hides in the smooth part of the spectrum; where the rows are taken at even steps of
    the clock its plane is that of one wave of fixed period.
    """
    turns = np.sort(clock.paces) * (clock.reading[-1] - clock.reading[0]) / (2 * np.pi)
    ratios = turns[1:] / turns[:-1]
    if len(ratios) < 2 or ratios.max() > MAX_RATIO_SPREAD * ratios.min():
        return []
    ratio = float(np.exp(np.log(ratios).mean()))
    even = rewound(points, clock.reading)
    even = even - even.mean(axis=0)
    new = []
    for tried in (turns[0] / ratio, turns[-1] * ratio):
        if not MIN_LINE_TURNS <= tried < len(points) / 2 - MIN_LINE_SPACING_TURNS:
            continue
        both = lines_power(even, [*turns, tried])[1][-1]
        plane = np.linalg.svd(both, full_matrices=False)[2]
        path = points @ plane.T
        share = float(np.square(path).sum() / np.square(points).sum())
        if share >= MIN_FAMILY_SHARE and measured_path(path).round:
            new.append(_Found(_turning(path, share, 1.0, MAX_LINE_P), plane, []))
    return new


def _apportioned(
    points: Floats, power: Power, found: Waves, rotations: Sequence[_Found],
    others: Sequence[list[int]],
) -> tuple[Floats, dict[str, float], Fit]:  # fmt: skip
    """Share out the variance: to rotations, to other waves, and to families; 1 in all.

    Planes whose pace changes are taken off as circles with the phases that they have; other waves
    hold what the model gives them. All else is shared out among the families as the model has them
    in what the circles leave of each bin. With the fit that all of this is read from.
    """
    components = found.fit.components
    owner = np.full(len(found.waves) + 1, -1)  # the last is of what belongs to no wave
    for k, members in enumerate([*(each.members for each in rotations), *others]):
        owner[members] = k
    of = owner[found.member]
    told = np.zeros(len(rotations) + len(others))
    kept = Fit(components, needed(power, found, np.flatnonzero(owner[:-1] >= 0).tolist()))
    np.add.at(told, of[of >= 0], component_shares(power, kept)[of >= 0])
    circles = [k for k, each in enumerate(rotations) if each.rotation.pace != "fixed"]
    left = power.share
    if circles:
        phase = np.angle([_along(points, rotations[k].plane) for k in circles])
        basis = np.stack([np.cos(phase), np.sin(phase)], axis=-1)  # [k, n, 2]
        basis -= basis.mean(axis=1, keepdims=True)
        both = np.concatenate(list(basis), axis=1)
        size = np.linalg.lstsq(both, points, rcond=None)[0]
        held = both @ size
        parts = [one @ size[2 * k : 2 * k + 2] for k, one in enumerate(basis)]
        told[circles] = [np.vdot(part, held) / power.total for part in parts]
        left = cosine_power(points - held).share
    weights = np.where(np.isin(of, circles), 0.0, kept.weights)
    each = (left / floored(components.power @ weights)) @ (components.power * weights)
    told /= max(float(told.sum()), 1.0)  # what two waves share counts once
    rest, known = 1 - float(told.sum()), float(each[of < 0].sum())
    if not known > 0:
        return told, {"noise": rest}, kept
    each *= rest / known
    families: dict[str, float] = {}
    for name, k, share in zip(components.family, of.tolist(), each.tolist(), strict=True):
        if k < 0 and share > 0:
            name = "smooth" if name == "slow" else name
            families[name] = families.get(name, 0.0) + share
    return told, families, kept


def _rows_of(power: Power, found: Waves, wave: int) -> Floats:
    """Return the bins of the transform that a wave holds much of, by its share: ``[k, d]``."""
    own = found.member == wave
    held = found.fit.components.power[:, own] @ found.fit.weights[own] / found.fit.mean
    bins = np.flatnonzero(held > MIN_WAVE_SHARE)
    return np.asarray(power.waves[bins] * np.sqrt(held[bins])[:, None])


def _groups(power: Power, found: Waves, shares: Floats) -> list[list[int]]:
    """Pool waves of like period whose planes agree."""
    rows = [_rows_of(power, found, k) for k in range(len(found.waves))]
    groups: list[list[int]] = []
    for k in np.argsort(-shares).tolist():
        for group in groups:
            near = _near(found.waves[k].turns, found.waves[group[0]].turns)
            if near and _alike(rows[k], rows[group[0]]) > MIN_PLANE_OVERLAP:
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def _near(turns: float, others: float) -> bool:
    return 1 / MAX_PERIOD_RATIO < turns / others < MAX_PERIOD_RATIO


def _alike(one: Floats, other: Floats) -> float:
    """Return how alike the planes of two sets of rows ``[k, d]`` are, 1 where they are the same."""

    def inner(a: Floats, b: Floats) -> float:
        return float(np.square(a @ b.T).sum())

    size = np.sqrt(inner(one, one) * inner(other, other))
    return inner(one, other) / size if size > 0 else 0.0


def _line(points: Floats, found: Waves, line: int, share: float) -> _Found:
    """Describe a line; its pace is smooth where a bent phase explains more than a straight one."""
    lines = [wave.turns for wave in found.waves if wave.line]
    _, coefficients = lines_power(points, lines)
    turns, n = found.waves[line].turns, len(points)
    _, size, plane = np.linalg.svd(coefficients[lines.index(turns)], full_matrices=False)
    # Of the two radii of an ellipse: 1 - |sum z^2| / sum |z|^2 is their smaller square, doubled.
    circularity = float(2 * size[1] ** 2 / np.square(size).sum())
    path = points @ plane.T
    if circularity >= MIN_CIRCULARITY and measured_path(path).round:
        z = path[:, 0] + 1j * path[:, 1]
        angle = 2 * np.pi * turns * np.arange(n) / n
        straight = max(abs(np.mean(z * np.exp(1j * sign * angle))) ** 2 for sign in (1, -1))
        if _smooth(path) - straight / np.square(np.abs(z)).mean() >= MIN_BENT_SHARE:
            return _Found(_turning(path, share, circularity, MAX_LINE_P), plane, [line])
    period = n / turns
    told = Rotation(period, turns, share, "fixed", period, period, circularity, MAX_LINE_P)
    return _Found(told, plane, [line])


def _turning(path: Floats, share: float, circularity: float, p: float) -> Rotation:
    """Describe a path ``[n, 2]`` whose pace is not fixed."""
    phase = measured_path(path).phase
    place = np.arange(len(phase)) - (len(phase) - 1) / 2
    pace = abs(float(phase @ place) / float(place @ place))
    fastest, slowest = (float(q) for q in np.quantile(_local_periods(phase), (0.1, 0.9)))
    kind: Pace = "smooth" if _smooth(path) >= MIN_SMOOTH_PACE_SHARE else "uneven"
    period = 2 * np.pi / pace
    return Rotation(period, len(path) / period, share, kind, fastest, slowest, circularity, p)


@dataclass(frozen=True, eq=False)
class Path:
    """A path in a plane.

    Parameters
    ----------
    phase
        ``[n]``: its angle, from 0 on.
    low
        The 2 % quantile of its radii over their median.
    variation
        Standard deviation of the radii over their mean.
    same
        Share of the steps that turn the way that most do.
    """

    phase: Floats
    low: float
    variation: float
    same: float

    @property
    def round(self) -> bool:
        """Whether it goes round at a kept radius."""
        return (
            self.low >= MIN_RADIUS_RATIO or self.variation <= MAX_RADIUS_CV
        ) and self.same >= MIN_SAME_DIRECTION


def measured_path(path: Floats) -> Path:
    """Measure a path ``[n, 2]``."""
    z = path[:, 0] + 1j * path[:, 1]
    radius = np.abs(z)
    steps, variation, same = _evenness(z)
    low = float(np.quantile(radius, 0.02) / max(np.median(radius), 1e-300))
    return Path(np.append(0.0, np.cumsum(steps)), low, float(variation), float(same))


def _evenness(z: NDArray[np.complex128]) -> tuple[Floats, Floats, Floats]:
    """Return the turns of paths ``[..., n]``, how their radii vary, and how many turns agree."""
    radius = np.abs(z)
    steps = np.angle(z[..., 1:] * z[..., :-1].conj())
    one_way = np.sign(np.median(steps, axis=-1, keepdims=True))
    same = np.mean(steps * one_way > 0, axis=-1)
    return steps, radius.std(axis=-1) / np.maximum(radius.mean(axis=-1), 1e-300), same


def _smooth(path: Floats) -> float:
    """Return the share of a path that a constant radius with a smooth phase explains."""
    z = path[:, 0] + 1j * path[:, 1]
    place = np.linspace(-1, 1, len(z))
    fitted = np.polynomial.legendre.Legendre.fit(place, np.unwrap(np.angle(z)), PHASE_DEGREE)(place)
    held = np.abs((z * np.exp(-1j * fitted)).mean()) ** 2
    return float(held / np.square(np.abs(z)).mean())


def _local_periods(phase: Floats) -> Floats:
    """Return the local periods, each over about a whole turn."""
    n = len(phase)
    turn = max(round(2 * np.pi * (n - 1) / max(abs(phase[-1] - phase[0]), 1e-9)), 1)
    turn = min(turn, n - 1)
    moved = np.abs(phase[turn:] - phase[:-turn])
    return np.asarray(2 * np.pi * turn / np.maximum(moved, 1e-9))


def _chance(found: Waves, group: Sequence[int], about: Path, rng: np.random.Generator) -> float:
    """Return how often narrow-band noise in two directions keeps its radius as well."""
    own = np.isin(found.member, group)
    covariance = found.fit.components.covariance[:, own] @ found.fit.weights[own]
    n = len(covariance)
    around = np.concatenate([covariance, [0.0], covariance[:0:-1]])
    # The real and the imaginary part of its transform are two independent columns.
    amplitude = np.sqrt(np.maximum(np.fft.fft(around).real, 0.0))
    reached = 0
    for first in range(0, N_PLANE_DRAWS, PLANE_DRAWS_PER_BATCH):
        white = rng.standard_normal((min(PLANE_DRAWS_PER_BATCH, N_PLANE_DRAWS - first), 2 * n, 2))
        waves = white.view(np.complex128)[..., 0] * amplitude
        _, variation, same = _evenness(np.fft.ifft(waves, axis=1)[:, :n])
        reached += int(np.sum((variation <= about.variation) & (same >= MIN_SAME_DIRECTION)))
    return (1 + reached) / (1 + N_PLANE_DRAWS)


def _coherent(found: Waves, group: Sequence[int], n: int) -> float:
    """Return the offset at which noise has lost its phase: exp(-1/2) of the envelope."""
    own = np.isin(found.member, group)
    covariance = found.fit.components.covariance[:, own] @ found.fit.weights[own]
    if not covariance[0] > 0:
        return 0.0
    turns = found.waves[group[0]].turns
    lag = np.arange(n)
    # Of a period of two or three rows the envelope is met in one of five.
    period = min(max(round(n / turns), 5), n)
    envelope = np.lib.stride_tricks.sliding_window_view(np.abs(covariance), period).max(axis=1)
    below = np.flatnonzero(envelope < np.exp(-0.5) * covariance[0])
    return float(lag[below[0]] if len(below) else n)


Complexes: TypeAlias = NDArray[np.complex128]


#: Degree of the polynomial: a clock that runs faster and slower four times along the table. What
#: degrees from there to the second hold is taken for noise.
CLOCK_DEGREE = 8
CLOCK_NOISE_DEGREE = 24


#: Turns of fitting the paces and the clock to each other; from the third on nothing moves.
N_CLOCK_ITERATIONS = 8


#: Turns of a plane from which its clock can be told: what else is smooth bends slower ones.
MIN_CLOCK_TURNS = 3


#: Correlation of clocks that are one, as those of trained planes are; and how many times likelier
#: than clocks of their own they make what was seen: strong evidence (Jeffreys 1961, appendix B).
CLOCK_CORRELATION = 0.995
STRONG_EVIDENCE_RATIO = 10.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A clock that several planes read.

    Parameters
    ----------
    reading
        ``[n]``: g, in positions, as fast as position on average.
    paces
        ``[k]``: radians per position on average.
    fixed, one, own
        Share of what lies in the planes that circles of fixed periods explain, that those read from
        this clock do, and those with a clock for each.
    evidence
        Logarithm, to base 10, of how many times likelier the phases are with one clock than with
        clocks of their own, for all or for any one of three or more; 0 where fewer than two planes
        make `MIN_CLOCK_TURNS` turns.
    """

    reading: Floats
    paces: Floats
    fixed: float
    one: float
    own: float
    evidence: float

    @property
    def shared(self) -> bool:
        """Whether the planes read this one, and it does not run evenly."""
        return bool(self.evidence >= np.log10(STRONG_EVIDENCE_RATIO))

    @property
    def speed(self) -> Floats:
        """``[n]``: of the clock, 1 on average."""
        return np.asarray(np.gradient(self.reading))


def forward(z: Complexes) -> Complexes:
    """Return paths ``[k, n]`` mirrored where that makes their phases rise."""
    turned = np.angle(z[:, 1:] * z[:, :-1].conj()).sum(axis=1)
    return np.where(turned[:, None] < 0, z.conj(), z)


def fit_clock(z: Complexes) -> Fitted:
    """Fit one clock to several planes.

    Parameters
    ----------
    z
        ``[k, n]``: the table along each plane; two planes or more.
    """
    z = forward(z)
    n = z.shape[1]
    place = np.arange(n) - (n - 1) / 2
    weights = np.square(np.abs(z)).sum(axis=1)
    phases = np.unwrap(np.angle(z), axis=1)
    phases -= phases.mean(axis=1, keepdims=True)
    straight = np.stack([np.ones(n), place], axis=1)
    most = min(CLOCK_NOISE_DEGREE, n - 2)
    bends = np.polynomial.legendre.legvander(np.linspace(-1, 1, n), most)[:, 2:]
    bends = np.linalg.qr(bends - straight @ np.linalg.lstsq(straight, bends, rcond=None)[0])[0]
    even = phases @ place / (place @ place)
    held = phases @ bends
    own, bends = held[:, : CLOCK_DEGREE - 1], bends[:, : CLOCK_DEGREE - 1]
    noise = np.square(held[:, CLOCK_DEGREE - 1 :]).mean(axis=1) + 1e-12 / n
    told = np.abs(even) * n >= 2 * np.pi * MIN_CLOCK_TURNS
    reading, paces = place, even
    for _ in range(N_CLOCK_ITERATIONS):
        bend = (weights * paces) @ own / (weights @ np.square(paces))
        reading = place + bends @ bend
        paces = phases @ reading / (reading @ reading)

    def explained(phase: Floats) -> float:
        held = np.square(np.abs((z * np.exp(-1j * phase)).sum(axis=1))) / n
        return float(held.sum() / weights.sum())

    each = even[:, None] * place
    return Fitted(
        reading,
        paces,
        # Of each plane the best of all fixed periods, to a sixteenth of a turn.
        fixed=float(np.square(np.abs(np.fft.fft(z, 16 * n)).max(axis=1)).sum() / n / weights.sum()),
        one=explained(paces[:, None] * reading),
        own=explained(each + own @ bends.T),
        evidence=_evidence((own / even[:, None])[told], (noise / np.square(even))[told]),
    )


def _evidence(ahead: Floats, noise: Floats) -> float:
    """Compare clocks that are one with clocks of their own: log10 of the likelihoods' ratio.

    The speed of a clock is taken for a random walk, so that the squares of its degrees fall by
    their fourth power. How far it walks is, in each case, what makes the phases likeliest. That all
    planes but one read a clock is taken to be a tenth as likely beforehand.

    Parameters
    ----------
    ahead
        ``[k, m]``: how far clocks run ahead, by degree from the second on.
    noise
        ``[k]``: variance of each of these.
    """
    if len(ahead) < 2:
        return 0.0
    falling = np.arange(2.0, ahead.shape[1] + 2) ** -4
    # From clocks that run evenly to ten times the largest bend seen.
    sizes = np.append(0.0, np.geomspace(1e-8, 10, 70)) * np.square(ahead).max() / falling[0]

    def likelihood(reads: NDArray[np.intp]) -> float:
        same = np.equal.outer(reads, reads)
        alike = np.where(np.eye(len(reads), dtype=bool), 1.0, CLOCK_CORRELATION * same)
        spread = np.multiply.outer(sizes, falling)[..., None, None] * alike + np.diag(noise)
        fitting = np.einsum("kj,tjkl,lj->tj", ahead, np.linalg.inv(spread), ahead)
        return -0.5 * float((np.linalg.slogdet(spread)[1] + fitting).sum(axis=1).min())

    each = np.arange(len(ahead))
    others = [likelihood(each)]
    if len(ahead) > 2:
        others += [
            likelihood(np.where(each == k, 1, 0)) - np.log(STRONG_EVIDENCE_RATIO) for k in each
        ]
    return float((likelihood(np.zeros_like(each)) - max(others)) / np.log(10))


def rewound(points: Floats, reading: Floats) -> Floats:
    """Return rows ``[n, d]`` at even steps of a clock, between its first and last reading."""
    even = np.linspace(reading[0], reading[-1], len(points))
    return np.stack([np.interp(even, reading, column) for column in points.T], axis=1)
