"""Questions about rotations of a sequence: periodic components, their ladder, and winding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from posprobe.analyses.composition.planes import (
    N_PLANE_DRAWS,
    NarrowbandNoise,
    Rotation,
    RotationFit,
)
from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.composition.wave_scores import MAX_LINE_P
from posprobe.analyses.composition.waves import MIN_WAVE_ROWS
from posprobe.analyses.descriptive.closeness import prepare_cloud
from posprobe.analyses.descriptive.sinusoid import fit_base
from posprobe.analyses.descriptive.winding import (
    WindingPair,
    count_paired_components,
    find_winding_pairs,
    rotation_shares,
)
from posprobe.analyses.facts import MAX_YES_P, Answer, Test, TooFew, Verdict
from posprobe.analyses.linear import covariance_root, leading_coordinates, toeplitz
from posprobe.analyses.resampling import count_p_value, rank_p_value
from posprobe.analyses.result import HIDDEN
from posprobe.analyses.view import N_NULL_DRAWS, View
from posprobe.arrays import Floats
from posprobe.layouts import Sequence
from posprobe.questions.rank_tests import (
    MAX_OPEN_P,
    MIN_EFFECT_SHARE,
    AskTable,
    draw_null,
    null_test,
    small_table_answer,
)

#: Smallest CKA with a sinusoid of some base at which a table may be that sinusoid in noise.
MIN_SIMILAR_SINUSOID_CKA = 0.9
#: Fewest rows in which a fixed period can be told from noise that prefers a period: in fewer, too
#: few turns fit.
MIN_FIXED_PERIOD_ROWS = 48
#: Share at which a rotation is hardly ever missed, over the smallest detectable share.
DETECTION_MARGIN = 3.0
#: No detection limit below this share is claimed, since no smaller share is ever reported.
MIN_DETECTION_LIMIT = 0.01
#: Smallest detectable share of the variance from which on rotations are not denied: a quarter.
MAX_DENIAL_DETECTION_SHARE = 0.25
#: Share of the table over which noise must keep its phase to be a possible rotation.
MIN_COHERENT_TABLE_SHARE = 1 / 6
ROTATIONS_KEYS = ("shift.rotations", "spectrum.lines")


@dataclass(frozen=True)
class Rotations:
    """The rotations of a table, and the share below which one may be missed.

    Parameters
    ----------
    rows
        Number of rows.
    lines
        Rotations, fastest first: those that are not small, or else the small ones.
    share
        Share of the variance that the rotations explain together.
    hidden
        Detection limit: share of the variance below which a rotation may well be missed.
    alternating
        Share of the variance by which even and odd positions differ.
    preferred
        Strongest narrow-band noise, where there is no rotation.
    similar
        CKA with the most similar sinusoid, where it is high and no single base fits best.
    turn
        Lengths of whole turns of a changing pace, in positions, as another answer shows; the
        fastest and the slowest tenth are left out.
    own_share
        Share of the variance of the stretch that was tested; None where that is the whole table.
    count, periods
        Number of the rotations of the formula that the table follows, and the shortest and the
        longest of their periods, in positions; None of other tables.
    """

    rows: int
    lines: tuple[Rotation, ...]
    share: float
    hidden: float
    alternating: float
    preferred: NarrowbandNoise | None = None
    similar: float | None = None
    own_share: float | None = None
    turn: tuple[float, float] | None = None
    count: int | None = None
    periods: tuple[float, float] | None = None

    @property
    def value(self) -> list[dict[str, Any]]:
        """The rotations."""
        return [asdict(line) for line in self.lines]

    @property
    def steady(self) -> bool:
        """Whether all periods are fixed."""
        return all(line.pace == "fixed" for line in self.lines)

    @property
    def alternates(self) -> bool:
        """Whether even and odd positions differ by more than the detection limit."""
        return self.alternating > self.hidden


def ask_rotations(view: View) -> Answer:
    """Ask whether the table rotates in planes, and with which periods."""
    if refusal := small_table_answer("rotations", view, ROTATIONS_KEYS):
        return refusal
    n, d = view.points.shape
    if n < MIN_WAVE_ROWS or d < 2:
        return Answer(
            "rotations", "cannot tell", "too_few", TooFew(n, d), keys=ROTATIONS_KEYS
        )
    rotation_fit = view.rotation_fit
    facts = _rotation_facts(view, rotation_fit)
    if (formula := rotation_fit.formula) is not None:
        periods = formula.shortest, formula.longest
        facts = replace(
            facts, lines=(), share=formula.share, count=formula.count, periods=periods
        )
        return Answer("rotations", "yes", "formula", facts, keys=ROTATIONS_KEYS)
    test = _rotation_test(facts, rotation_fit)
    answer: Verdict
    if n < MIN_FIXED_PERIOD_ROWS:
        answer, reason = "cannot tell", "few_rows"
    elif facts.lines:
        answer, reason = ("no", "small")
        if facts.lines[0].share >= MIN_EFFECT_SHARE:
            answer, reason = "yes", "stand_out"
    else:
        reason = _absence_reason(facts, rotation_fit)
        answer = "no" if reason in {"none", "preferred"} else "cannot tell"
    return Answer("rotations", answer, reason, facts, test, ROTATIONS_KEYS)


def _absence_reason(facts: Rotations, rotation_fit: RotationFit) -> str:
    """Return the reason why no rotation is found: there is none, or it may be hidden."""
    if facts.similar is not None:
        return "dense"
    if any(
        hump.coherent >= MIN_COHERENT_TABLE_SHARE * facts.rows and hump.p <= MAX_OPEN_P
        for hump in rotation_fit.humps
    ):
        return "unclear"
    if facts.preferred is not None:
        return "preferred"
    if rotation_fit.p <= MAX_OPEN_P:
        return "unclear"
    return (
        "none" if rotation_fit.detection_limit < MAX_DENIAL_DETECTION_SHARE else "unclear"
    )


def _rotation_facts(view: View, rotation_fit: RotationFit) -> Rotations:
    points = view.points
    large_rotations = tuple(
        line for line in rotation_fit.rotations if line.share >= MIN_EFFECT_SHARE
    )
    lines = large_rotations or rotation_fit.rotations
    alternation_power = (
        np.square(points[::2].mean(axis=0) - points[1::2].mean(axis=0)).sum() / 4
    )
    return Rotations(
        rows=len(view),
        lines=lines,
        share=min(sum(line.share for line in lines), 1.0),
        hidden=max(DETECTION_MARGIN * rotation_fit.detection_limit, MIN_DETECTION_LIMIT),
        alternating=float(alternation_power / np.square(points).sum(axis=1).mean()),
        preferred=next(iter(rotation_fit.humps), None) if not lines else None,
        similar=nearest_sinusoid_cka(view),
    )


def nearest_sinusoid_cka(view: View) -> float | None:
    """Return the CKA of the most similar sinusoid if it is high though no base fits best."""
    fit = view.base_fit
    if fit is None or fit.base is not None or fit.best is None:
        return None
    return fit.best if fit.best >= MIN_SIMILAR_SINUSOID_CKA else None


def _rotation_test(facts: Rotations, rotation_fit: RotationFit) -> Test:
    """Return the test of the strongest rotation against the shares of lines in noise."""
    share = max(
        (line.share for line in facts.lines), default=rotation_fit.strongest_share
    )
    p = min((line.p for line in facts.lines), default=rotation_fit.p)
    if facts.preferred is not None:
        # The strongest wave is noise with a preferred period, tested by the radius of its plane.
        return Test(facts.preferred.share, facts.preferred.p, of="narrow-band noise")
    test = null_test(share, rotation_fit.null_draws, "smooth", p)
    return replace(test, least=min(MAX_LINE_P, 1 / (N_PLANE_DRAWS + 1)))


def rotations_by_ladder(rotations_answer: Answer, ladder_answer: Answer) -> Answer | None:
    """Affirm that a geometric series consists of many rotations.

    They are too many, and too close to each other, for any line to stand out.
    """
    if rotations_answer.yes or not isinstance(rotations_answer.facts, Rotations):
        return None
    if not ladder_answer.yes or ladder_answer.reason != "base":
        return None
    return rotations_answer.with_correction("yes", "series", "ladder", test=None)


def rotations_by_winding(
    rotations_answer: Answer, winding_answer: Answer
) -> Answer | None:
    """Deny fixed periods where no line stands out and the winding changes its pace."""
    facts = rotations_answer.facts
    if rotations_answer.answer != "cannot tell":
        return None
    if not (winding_answer.yes and winding_answer.facts.changes):
        return None
    if not isinstance(facts, Rotations) or facts.rows < MIN_FIXED_PERIOD_ROWS:
        return None
    keys = (*rotations_answer.keys, *winding_answer.keys)
    facts = replace(facts, turn=winding_answer.facts.turn)
    return rotations_answer.with_correction(
        "no", "pace", "winding", facts=facts, keys=keys
    )


#: Draws with which a single yes is significant among the seven questions about a sequence: 1 in 146
#: is less than a seventh of 0.05. They are made only where the first `N_NULL_DRAWS` do not exclude
#: a yes.
N_SINGLE_YES_DRAWS = 145
#: Leading components whose pairs are examined, in the table and in the draws.
N_WINDING_COMPONENTS = 6
#: Fewest rows of a table about which the question is asked.
MIN_WINDING_ROWS = 24
#: Largest number of turns per row of a winding: at half a turn per row no path has a direction, so
#: that noise that alternates seems to go round.
MAX_WINDING_TURNS_PER_ROW = 0.4
#: Fewest turns that count as winding.
MIN_WINDING_TURNS = 1.0
#: Smallest share of a pair of components in the variance of the leading ones.
MIN_WINDING_SHARE = 0.1
#: Smallest ratio of slow to fast whole turns, without the outer tenths, at which the pace changes.
MIN_PACE_RATIO = 1.3
#: Largest relative difference of turns between a winding and the spectral line that it is.
MAX_SAME_LINE_DIFFERENCE = 0.1
#: Smallest share of a winding in a spectral line that it mixes.
MIN_MIXED_LINE_SHARE = 0.1
WINDING_KEYS = ("winding.turns", "winding.pairs")


@dataclass(frozen=True)
class Winding:
    """The pair of principal components that was tested.

    Parameters
    ----------
    components
        Numbers of the two components, from 1.
    share
        Share of the variance, both components together.
    turns
        Number of turns from the first row to the last.
    radius_cv
        Standard deviation of the distance from the centre over its mean; 0 for a circle.
    local_period
        Positions per turn in each chunk of the table where the pair turns forward.
    turn
        Number of positions of a whole turn, the fastest and the slowest tenth left out; None for
        less than one turn.
    changes
        Whether whole turns differ by more than noise of the phase explains.
    rotation
        Period of the spectral line that the pair shows, as another answer tells.
    mixed
        Spectral lines that the pair mixes, as another answer tells.
    pair
        Record of the pair, which no document shows.
    """

    components: tuple[int, int]
    share: float
    turns: float
    radius_cv: float
    local_period: tuple[float, ...]
    turn: tuple[float, float] | None
    changes: bool
    rotation: float | None = None
    mixed: tuple[Rotation, ...] = ()
    pair: Annotated[WindingPair | None, HIDDEN] = field(
        default=None, repr=False, compare=False
    )

    @property
    def value(self) -> dict[str, Any]:
        """Numbers of the pair, and the periods of the lines that it shows, or mixes."""
        pair_numbers = {
            "components": list(self.components),
            "turns": self.turns,
            "share": self.share,
            "radius_cv": self.radius_cv,
            "local_period": list(self.local_period),
        }
        line_numbers = {
            "turn": list(self.turn or ()),
            "rotation": self.rotation,
            "mixed": [line.period for line in self.mixed],
        }
        return pair_numbers | {
            name: value for name, value in line_numbers.items() if value
        }


def ask_winding(view: View) -> Answer:
    """Ask whether a pair of components goes round a centre.

    The statistic is ``turns * (1 - radius CV) * share`` of the pair where it is largest: many turns
    at an even distance from the centre that hold much of the variance. One null model sums the
    table's own steps with random signs. The other is a stationary process with the fitted kernel
    and the covariance of columns: smooth curves in as few directions sometimes wind as well.
    """
    n, d = view.values.shape
    if n < MIN_WINDING_ROWS or d < 2 or view.is_constant:
        reason = "all_equal" if view.is_constant and n >= MIN_WINDING_ROWS else "too_few"
        return Answer("winding", "cannot tell", reason, TooFew(n, d), keys=WINDING_KEYS)
    # The draws have the covariance of the rows that all questions are asked of.
    points = view.values[: len(view)]
    points = points - points.mean(axis=0)
    points = points / np.abs(points).max()
    statistic, pair, plane_share = strongest_winding(points)
    if pair is None or statistic <= 0:
        # No statistic is smaller, so that no draws are needed.
        return Answer("winding", "no", "none", None, Test(0.0, 1.0), WINDING_KEYS)
    offsets = view.null_offsets
    p, null_model, null_draws = _draw_windings(points, offsets, statistic, view.rng(11))
    facts = _winding_facts(pair, plane_share)
    # Draws are reported as turns of a pair with the same share and radius CV.
    null_turns = null_draws * (pair.turns / statistic)
    test = null_test(
        pair.turns, null_turns, null_model, p, smallest_effect=MIN_WINDING_TURNS
    )
    answer: Verdict = "no"
    if pair.turns < MIN_WINDING_TURNS:
        reason = "part_turn"
    elif p > MAX_OPEN_P:
        reason = "smooth"
    elif p > MAX_YES_P or pair.turns > MAX_WINDING_TURNS_PER_ROW * len(points):
        answer, reason = "cannot tell", "open"
    elif facts.share < MIN_EFFECT_SHARE:
        answer, reason = "cannot tell", "small"
    else:
        answer, reason = "yes", "turns"
    return Answer("winding", answer, reason, facts, test, WINDING_KEYS)


def strongest_winding(points: Floats) -> tuple[float, WindingPair | None, float]:
    """Return the pair where ``turns * (1 - radius CV) * share`` is largest.

    Parameters
    ----------
    points
        ``[n, d]``, rows of a table.

    Returns
    -------
    tuple
        That statistic, the pair, and the variance share of the components that the pair's share
        refers to.
    """
    points = points - points.mean(axis=0)
    total_power = float(np.square(points).sum())
    if points.shape[1] > 2 * N_WINDING_COMPONENTS:
        points = leading_coordinates(points, N_WINDING_COMPONENTS)
    variances, directions = np.linalg.eigh(points.T @ points)
    variances = variances[::-1][:N_WINDING_COMPONENTS]
    directions = directions[:, ::-1][:, :N_WINDING_COMPONENTS]
    if not variances[0] > 0:
        return 0.0, None, 0.0
    ratios = np.maximum(variances, 0.0) / variances.sum()
    n_components = count_paired_components(ratios)
    pairs = (
        find_winding_pairs(points @ directions[:, :n_components], ratios)
        if n_components > 1
        else []
    )
    components_share = float(variances.sum()) / total_power
    if not pairs:
        return 0.0, None, components_share
    statistics = [
        pair.turns * max(1 - pair.radius_cv, 0.0) * pair.share
        if pair.share >= MIN_WINDING_SHARE
        else 0.0
        for pair in pairs
    ]
    best = int(np.argmax(statistics))
    return statistics[best], pairs[best], components_share


def _draw_windings(
    points: Floats, offsets: Floats, statistic: float, rng: np.random.Generator
) -> tuple[float, str, Floats]:
    """Return the p-value, and the name and the draws of the nearest null model.

    ``offsets`` ``[n]`` are the covariances by offset of the stationary one.
    """
    n = len(points)
    leading_steps = leading_coordinates(np.diff(points, axis=0), N_WINDING_COMPONENTS)
    coordinates = leading_coordinates(points, 2 * N_WINDING_COMPONENTS)
    process = fit_process(coordinates, Sequence(n), offsets)

    def draw() -> list[float]:
        signs = rng.choice([-1.0, 1.0], size=(n - 1, 1))
        origin = np.zeros((1, leading_steps.shape[1]))
        walk = np.concatenate([origin, np.cumsum(signs * leading_steps, axis=0)])
        curve = np.asarray(process.draw(rng), dtype=np.float64)
        return [strongest_winding(table)[0] for table in (walk, curve)]

    def p_values(null_draws: Floats) -> list[float]:
        return [rank_p_value(statistic, draws) for draws in null_draws.T]

    null_draws, p = draw_null(
        draw, lambda draws: max(p_values(draws)), N_NULL_DRAWS, N_SINGLE_YES_DRAWS
    )
    medians = np.median(null_draws, axis=0)
    nearest_null = int(np.lexsort((medians, np.array(p_values(null_draws))))[-1])
    return p, ("walk", "stationary")[nearest_null], null_draws[:, nearest_null]


def _winding_facts(pair: WindingPair, plane_share: float) -> Winding:
    period = pair.local_period
    turn_lengths = measure_turns(pair.phase)
    turn_range, changes = None, False
    if len(turn_lengths):
        fast, slow = (float(q) for q in np.quantile(turn_lengths, (0.1, 0.9)))
        turn_range = (fast, slow)
        changes = slow > MIN_PACE_RATIO * fast * _noise_pace_ratio(pair.phase)
    first, second = pair.components
    return Winding(
        components=(first + 1, second + 1),
        share=pair.share * plane_share,
        turns=pair.turns,
        radius_cv=pair.radius_cv,
        local_period=tuple(period[np.isfinite(period)].tolist()),
        turn=turn_range,
        changes=changes,
        pair=pair,
    )


def _noise_pace_ratio(phase: Floats) -> float:
    """Return the ratio of slow to fast whole turns that noise of the phase alone explains.

    The noise follows from the second differences of the phase, to which a steady or slowly
    changing pace adds nothing.
    """
    noise = float(np.sqrt(np.square(np.diff(phase, 2)).mean() / 6))
    # The outer tenths of a normal distribution begin at 1.2816 standard deviations.
    turn_error = min(1.2816 * float(np.sqrt(2)) * noise / (2 * float(np.pi)), 0.9)
    return (1 + turn_error) / (1 - turn_error)


def measure_turns(phase: Floats) -> Floats:
    """Return the length in positions of the whole turn from each position where one fits.

    Shorter arcs would mislead: components that share a slow trend seem to turn unevenly within a
    turn.

    Parameters
    ----------
    phase
        ``[n]``, unwrapped phase in radians.
    """
    rising_phase = np.maximum.accumulate(phase) + 1e-9 * np.arange(len(phase))
    starts = np.flatnonzero(rising_phase + 2 * np.pi <= rising_phase[-1])
    ends = np.interp(
        rising_phase[starts] + 2 * np.pi, rising_phase, np.arange(len(phase))
    )
    return np.asarray(ends - starts)


def winding_by_rotations(
    winding_answer: Answer, rotations_answer: Answer
) -> Answer | None:
    """Add which spectral line a winding shows, or which lines it mixes."""
    facts = winding_answer.facts
    if not (winding_answer.yes and rotations_answer.yes):
        return None
    if not isinstance(rotations_answer.facts, Rotations):
        return None
    lines = rotations_answer.facts.lines
    if not lines or facts.pair is None:
        return None
    shares = rotation_shares(facts.pair, [line.period for line in lines])
    by_share = np.argsort(-shares, kind="stable").tolist()
    mixed_lines = [lines[k] for k in by_share if shares[k] >= MIN_MIXED_LINE_SHARE]
    if (
        len(mixed_lines) > 1
        and _turns_difference(facts, mixed_lines[0]) > MAX_SAME_LINE_DIFFERENCE
    ):
        facts = replace(
            facts, mixed=tuple(sorted(mixed_lines, key=lambda line: line.period))
        )
        if not all(line.is_circular for line in mixed_lines):
            return winding_answer.with_correction(
                "cannot tell", "mixed_waves", "rotations", facts=facts
            )
        facts = replace(facts, turns=mixed_lines[0].turns, rotation=mixed_lines[0].period)
        return winding_answer.with_correction("yes", "mixed", "rotations", facts=facts)
    nearest_line = min(lines, key=lambda line: _turns_difference(facts, line))
    if _turns_difference(facts, nearest_line) > MAX_SAME_LINE_DIFFERENCE:
        return None
    # The turns are those of the period that is named, so that both agree.
    facts = replace(facts, turns=nearest_line.turns, rotation=nearest_line.period)
    return winding_answer.with_correction("yes", "rotation", "rotations", facts=facts)


def _turns_difference(facts: Winding, line: Rotation) -> float:
    """Return the relative difference between the turns of a pair and of a line."""
    return abs(facts.turns / line.turns - 1)


#: Largest relative difference of one step of a ladder from the mean step, in the logarithm of the
#: period.
MAX_LADDER_UNEVENNESS = 0.2
#: Fewest lines that can form a ladder.
MIN_LADDER_LINES = 3
#: Fewest rows of a table about which the answer can be no.
MIN_LADDER_DENIAL_ROWS = 64
#: Largest share of the variance in fewer lines at which a base that fits may count: every line is
#: in the series of some base, and no line of a sinusoid has this share unless it has few lines.
MAX_LONE_LINES_SHARE = 0.25
#: Sets of random periods that are drawn.
N_PERIOD_SETS = 9999
#: Rows of the tables that are drawn.
MAX_SINUSOID_ROWS = 512
LADDER_KEYS = ("sinusoid.base",)


@dataclass(frozen=True)
class Sinusoid:
    """The sinusoid of one base, and its CKA with the table; None where a formula states it."""

    base: float
    cka: float | None


@dataclass(frozen=True)
class Ladder:
    """The geometric series of frequencies, or the lines that do not form one.

    Parameters
    ----------
    lines
        Number of lines that stand out.
    series
        Sinusoid whose frequencies the table has.
    factor
        Mean ratio of neighbouring periods.
    off, worst
        Largest distance of a period from the even series between the first and the last, in its
        steps; and largest difference of a step from the mean step, as a share of it.
    similar
        CKA with the most similar sinusoid, where it is high and no single base fits best.
    """

    lines: int = 0
    series: Sinusoid | None = None
    factor: float | None = None
    off: float | None = None
    worst: float | None = None
    similar: float | None = None

    @property
    def value(self) -> dict[str, float] | None:
        """Base with its CKA where that was tested, or the factor."""
        if self.series is not None:
            cka = {} if self.series.cka is None else {"cka": self.series.cka}
            return {"base": self.series.base} | cka
        return None if self.factor is None else {"factor": self.factor}


def ask_ladder(view: View) -> Answer:
    """Ask whether the frequencies form a geometric ladder, against random frequencies.

    In a ladder, either the table resembles the sinusoid of one base more than draws of the fitted
    kernel do; or its lines are evenly spaced in the logarithm of their periods, compared with as
    many random periods between the same ends.
    """
    if refusal := small_table_answer("ladder", view, LADDER_KEYS):
        return refusal
    n = len(view)
    lines = view.rotation_fit.rotations
    fit, sinusoid = view.base_fit, None
    if fit is not None and fit.base is not None and fit.best is not None:
        sinusoid = Sinusoid(fit.base, fit.best)
        lines_share = sum(line.share for line in lines)
        has_few_lines = 0 < len(lines) < MIN_LADDER_LINES
        has_lone_lines = has_few_lines and lines_share > MAX_LONE_LINES_SHARE
        if not has_lone_lines or fit.best >= MIN_SIMILAR_SINUSOID_CKA:
            test = _test_base(view, fit.best)
            if test.p <= MAX_YES_P:
                facts = Ladder(len(lines), series=sinusoid)
                return Answer("ladder", "yes", "base", facts, test, LADDER_KEYS)
    facts = Ladder(len(lines), similar=nearest_sinusoid_cka(view))
    if len(lines) >= MIN_LADDER_LINES:
        return _ask_even_periods(view, facts)
    answer: Verdict = "cannot tell"
    reason = "dense" if not lines and facts.similar is not None else "few"
    if reason == "few" and not lines and n >= MIN_LADDER_DENIAL_ROWS:
        answer, reason = "no", "none"
    # Without a test the question still counts among those that are asked, with a p-value of 1.
    return Answer(
        "ladder", answer, reason, facts, Test(float(len(lines)), 1.0), LADDER_KEYS
    )


def _ask_even_periods(view: View, facts: Ladder) -> Answer:
    """Ask whether the logarithms of the periods are evenly spaced."""
    rotation_fit = view.rotation_fit
    log_periods = np.log(np.sort([line.period for line in rotation_fit.rotations]))
    n_steps = len(log_periods) - 1
    log_range = float(log_periods[-1] - log_periods[0])
    even_spacing = np.linspace(0, 1, len(log_periods))
    deviation = float(
        np.abs((log_periods - log_periods[0]) / log_range - even_spacing).max()
    )
    null_draws = np.sort(
        view.rng(4).random((N_PERIOD_SETS, len(log_periods) - 2)), axis=1
    )
    null_deviations = np.abs(null_draws - even_spacing[1:-1]).max(axis=1)
    p = rank_p_value(-deviation, -null_deviations)
    mean_step = log_range / n_steps
    unevenness = float(np.abs(np.diff(log_periods) / mean_step - 1).max())
    factor = float(np.exp(mean_step))
    facts = replace(facts, factor=factor, off=deviation * n_steps, worst=unevenness)
    smallest_share = min(line.share for line in rotation_fit.rotations)
    detection_limit = max(
        DETECTION_MARGIN * rotation_fit.detection_limit, MIN_DETECTION_LIMIT
    )
    answer: Verdict = "no"
    if p > MAX_OPEN_P or unevenness > MAX_LADDER_UNEVENNESS:
        reason = "random" if p > MAX_OPEN_P else "uneven"
        if smallest_share < detection_limit:
            answer, reason = "cannot tell", "between"
        elif p <= MAX_YES_P:
            answer = "cannot tell"
    else:
        answer, reason = ("yes", "even") if p <= MAX_YES_P else ("cannot tell", "open")
    test = null_test(
        deviation * n_steps, null_deviations * n_steps, "random periods", p, bound=n_steps
    )
    return Answer("ladder", answer, reason, facts, test, LADDER_KEYS)


def _test_base(view: View, best_cka: float) -> Test:
    """Test the CKA with the sinusoid of the best base against draws of the fitted kernel.

    A draw in which no base fits best counts as 0.
    """
    d = view.points.shape[1]
    rows = view.coordinates[:MAX_SINUSOID_ROWS]
    factor = covariance_root(toeplitz(view.kernel.by_offset[: len(rows)]))
    column_norms = np.sqrt(np.square(rows).sum(axis=0))
    rng = view.rng(5)
    null_draws: list[float] = []
    n_reached, p = 0, 0.0
    for n_draws in (N_NULL_DRAWS, N_SINGLE_YES_DRAWS):
        # Where too many draws reach the CKA, the others are not made.
        while len(null_draws) < n_draws and p <= MAX_YES_P:
            null_rows = factor @ rng.standard_normal(rows.shape) * column_norms
            fit = fit_base(prepare_cloud(null_rows), d - d % 2)
            null_draws.append(
                fit.best if fit.base is not None and fit.best is not None else 0.0
            )
            n_reached += null_draws[-1] >= best_cka
            p = count_p_value(n_reached, n_draws)
    return null_test(best_cka, np.array(null_draws), "smooth", p)


def ladder_by_formula(ladder_answer: Answer, formula_answer: Answer) -> Answer | None:
    """Affirm that the frequencies of a formula form a ladder: they have a base."""
    base = getattr(formula_answer.facts, "base", None)
    is_series = isinstance(ladder_answer.facts, Ladder)
    if ladder_answer.yes or not formula_answer.yes or not is_series or base is None:
        return None
    facts = replace(ladder_answer.facts, series=Sinusoid(base, None))
    return ladder_answer.with_correction(
        "yes", "formula", "closed_form", facts=facts, test=None
    )


#: Questions by name, in the order of the page.
ROTATION_QUESTIONS: Mapping[str, AskTable] = {
    "rotations": ask_rotations,
    "winding": ask_winding,
    "ladder": ask_ladder,
}
