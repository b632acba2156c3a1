"""What goes round in a table on a line: periodic components, their series, and what winds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from posprobe.analyses.composition.bridging import Bridging
from posprobe.analyses.composition.planes import (
    N_PLANE_DRAWS,
    NarrowbandNoise,
    Rotation,
    RotationFit,
)
from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.composition.wave_scores import MAX_LINE_P
from posprobe.analyses.composition.waves import MIN_WAVE_ROWS
from posprobe.analyses.descriptive.closeness import cloud
from posprobe.analyses.descriptive.sinusoid import fit_base
from posprobe.analyses.descriptive.winding import (
    WindingPair,
    kept_components,
    rhythms,
    winding_pairs,
)
from posprobe.analyses.facts import Answer, Test, TooFew, Verdict
from posprobe.analyses.linear import leading, root, toeplitz
from posprobe.analyses.result import HIDDEN
from posprobe.analyses.view import DRAWS, LEVEL, View
from posprobe.arrays import Floats
from posprobe.layouts import Sequence
from posprobe.questions.rank_tests import (
    MAX_OPEN_P,
    MIN_EFFECT_SHARE,
    AskTable,
    draw_null,
    null_test,
    rank_p_value,
    small_table_answer,
)

#: CKA with a sinusoid of some base from which a table may be one in noise.
MIN_SIMILAR_SINUSOID_CKA = 0.9
#: Rows below which a fixed period is not told from noise that prefers one: too few turns fit in.
MIN_FIXED_PERIOD_ROWS = 48
#: Times the share at which a rotation may be seen of that at which it is hardly ever missed; and
#: the least share that is said to be hidden, since less is told of nowhere.
DETECTION_MARGIN = 3.0
MIN_DETECTION_LIMIT = 0.01
#: Share at which a rotation may be seen from which nothing is denied: a quarter of the table.
MAX_DENIAL_DETECTION_SHARE = 0.25
#: Share of the table over which noise keeps its phase from which it may be a rotation.
MIN_COHERENT_TABLE_SHARE = 1 / 6
#: Held-out R² by which waves must be ahead of any smooth curve.
MIN_BRIDGING_R2_GAIN = 0.2
ROTATIONS_KEYS = ("shift.rotations", "spectrum.lines")


@dataclass(frozen=True)
class Rotations:
    """The rotations of a table, or what may be missed.

    Parameters
    ----------
    rows
        Number of rows.
    lines
        Fastest first: those that are not small, or small ones alone.
    share
        Share of the variance that they explain together.
    hidden
        Share of the variance below which one may well be missed.
    alternating
        Share of the variance by which even and odd positions differ.
    preferred
        The strongest period that noise prefers, where nothing goes round.
    similar
        CKA with the most similar sinusoid, where it is high and no single base fits best.
    turn
        Lengths of whole turns of a changing pace, in positions, as another answer shows; the
        fastest and the slowest tenth are left out.
    """

    rows: int
    lines: tuple[Rotation, ...]
    share: float
    hidden: float
    alternating: float
    preferred: NarrowbandNoise | None = None
    similar: float | None = None
    turn: tuple[float, float] | None = None

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
        """Whether even and odd positions differ by more than may be missed."""
        return self.alternating > self.hidden


def ask_rotations(view: View) -> Answer:
    """Ask whether the table goes round in planes of its own, and in which periods."""
    if refusal := small_table_answer("rotations", view, ROTATIONS_KEYS):
        return refusal
    n, d = view.points.shape
    if n < MIN_WAVE_ROWS or d < 2:
        return Answer("rotations", "cannot tell", "too_few", TooFew(n, d), keys=ROTATIONS_KEYS)
    rotation_fit = view.turning
    facts = _rotation_facts(view, rotation_fit)
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
    """Return why nothing goes round: there is nothing, or it may be hidden."""
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
    return "none" if rotation_fit.detection_limit < MAX_DENIAL_DETECTION_SHARE else "unclear"


def _rotation_facts(view: View, rotation_fit: RotationFit) -> Rotations:
    points = view.points
    large_rotations = tuple(
        line for line in rotation_fit.rotations if line.share >= MIN_EFFECT_SHARE
    )
    lines = large_rotations or rotation_fit.rotations
    alternation_power = np.square(points[::2].mean(axis=0) - points[1::2].mean(axis=0)).sum() / 4
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
    """Return the CKA of the most similar sinusoid where it is high, though no base fits best."""
    fit = view.base
    if (
        fit is None
        or fit.base is not None
        or fit.best is None
        or fit.best < MIN_SIMILAR_SINUSOID_CKA
    ):
        return None
    return fit.best


def _rotation_test(facts: Rotations, rotation_fit: RotationFit) -> Test:
    """Return what the strongest rotation was held against: shares of lines that noise has."""
    share = max((line.share for line in facts.lines), default=rotation_fit.strongest_share)
    p = min((line.p for line in facts.lines), default=rotation_fit.p)
    return replace(
        null_test(share, rotation_fit.null_draws, "smooth", p),
        least=min(MAX_LINE_P, 1 / (N_PLANE_DRAWS + 1)),
    )


def rotations_by_formula(
    rotations_answer: Answer, formula_answer: Answer, ladder_answer: Answer
) -> Answer | None:
    """Say of a formula or a geometric series that it is made of many lines.

    Too many, and too close to each other, for any to stand out.
    """
    deciding_answer = next(
        (answer for answer in (formula_answer, ladder_answer) if answer.yes), None
    )
    if (
        deciding_answer is None
        or rotations_answer.yes
        or not isinstance(rotations_answer.facts, Rotations)
    ):
        return None
    return rotations_answer.corrected("yes", "formula", deciding_answer.question, test=None)


def rotations_by_winding(rotations_answer: Answer, winding_answer: Answer) -> Answer | None:
    """Say that no period is fixed where none stands out, and what winds changes its pace."""
    facts = rotations_answer.facts
    if rotations_answer.answer != "cannot tell" or not (
        winding_answer.yes and winding_answer.facts.changes
    ):
        return None
    if not isinstance(facts, Rotations) or facts.rows < MIN_FIXED_PERIOD_ROWS:
        return None
    keys = (*rotations_answer.keys, *winding_answer.keys)
    facts = replace(facts, turn=winding_answer.facts.turn)
    return rotations_answer.corrected("no", "pace", "winding", facts=facts, keys=keys)


def bridging_gain(bridging: Bridging | None) -> dict[str, Any] | None:
    """Return where waves are furthest ahead of smooth curves; None where hardly anywhere.

    The missing rows, ``gap``, and the held-out R² of the model with its waves, ``waves``, and of
    the best smooth curve, ``curve``.
    """
    if bridging is None or bridging.undefined:
        return None
    waves_r2, curve_r2 = (
        bridging.r2["waves"],
        np.maximum(bridging.r2["linear"], bridging.r2["smooth"]),
    )
    if not np.nanmax(waves_r2 - curve_r2) > MIN_BRIDGING_R2_GAIN:
        return None
    best_gap = int(np.nanargmax(waves_r2 - curve_r2))
    return {
        "gap": int(bridging.gaps[best_gap]), "waves": float(waves_r2[best_gap]),
        "curve": float(curve_r2[best_gap]),
    }  # fmt: skip


#: Draws after which a yes may stand alone among the seven questions of a sequence: one in 146 is
#: less than a seventh of 0.05. As many are drawn only where the first `DRAWS` exclude no yes.
N_SINGLE_YES_DRAWS = 145
#: Leading directions of which pairs are looked at, in the table and in the draws alike.
N_WINDING_COMPONENTS = 6
#: Fewest rows that can be asked, and turns that count as winding.
MIN_WINDING_ROWS = 24
MIN_WINDING_TURNS = 1.0
#: Least share of the variance of the leading directions of a pair that speaks for the table.
MIN_WINDING_SHARE = 0.1
#: Ratio of slow whole turns to fast ones, the outer tenths aside, from which the period changes.
MIN_PACE_RATIO = 1.3
#: Relative difference of turns up to which what winds is a line of the spectrum.
MAX_SAME_LINE_DIFFERENCE = 0.1
#: Share of what winds from which a line of the spectrum has a part in it.
MIN_MIXED_LINE_SHARE = 0.1
WINDING_KEYS = ("winding.turns", "winding.pairs")


@dataclass(frozen=True)
class Winding:
    """The pair of principal components that was tested.

    Parameters
    ----------
    components
        The two, counted from 1.
    share
        Share of the variance, both components together.
    turns
        Number of turns from the first row to the last.
    radius_cv
        Standard deviation of the distance from the centre over its mean; 0 for a circle.
    local_period
        Positions per turn in each part of the table where they go forward.
    turn
        Number of positions of a whole turn, the fastest and the slowest tenth left out; None for
        less than one.
    changes
        Whether whole turns differ by more than noise of the phase makes them.
    rotation
        Period of the spectral line that they are, as another answer shows.
    mixed
        Spectral lines that meet in them, as another answer shows.
    pair
        The pair itself, which no document shows.
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
    pair: Annotated[WindingPair | None, HIDDEN] = field(default=None, repr=False, compare=False)

    @property
    def value(self) -> dict[str, Any]:
        """The pair's numbers, and the periods of the lines that it is, or mixes."""
        value = {
            "components": list(self.components), "turns": self.turns, "share": self.share,
            "radius_cv": self.radius_cv, "local_period": list(self.local_period),
        }  # fmt: skip
        rotation_values = {
            "turn": list(self.turn or ()),
            "rotation": self.rotation,
            "mixed": [line.period for line in self.mixed],
        }
        return value | {name: value for name, value in rotation_values.items() if value}


def ask_winding(view: View) -> Answer:
    """Ask whether a pair of components goes round a centre.

    The number is ``turns * (1 - radius CV) * share`` of the pair where it is largest: many turns,
    at an even distance from the centre, of much of the variance. The nulls are the table's own
    steps with random signs, added up, and a stationary process with its fitted kernel and its
    covariance of columns: smooth curves in as few directions wind now and then as well.
    """
    n, d = view.values.shape
    if n < MIN_WINDING_ROWS or d < 2 or view.constant:
        reason = "all_equal" if view.constant and n >= MIN_WINDING_ROWS else "too_few"
        return Answer("winding", "cannot tell", reason, TooFew(n, d), keys=WINDING_KEYS)
    points = view.values - view.values.mean(axis=0)
    points = points / np.abs(points).max()
    statistic, pair, plane_share = strongest_winding(points)
    if pair is None or statistic <= 0:
        # Nothing is below it: no draw need be made.
        return Answer("winding", "no", "none", None, Test(0.0, 1.0), WINDING_KEYS)
    p, null_model, null_draws = _draw_windings(points, statistic, view.rng(11))
    facts = _winding_facts(pair, plane_share)
    # What is drawn is told in turns, of a pair with as large a share and as even a distance.
    test = null_test(pair.turns, null_draws * (pair.turns / statistic), null_model, p)
    answer: Verdict = "no"
    if pair.turns < MIN_WINDING_TURNS:
        reason = "part_turn"
    elif p > MAX_OPEN_P:
        reason = "smooth"
    elif p > LEVEL:
        answer, reason = "cannot tell", "open"
    elif facts.share < MIN_EFFECT_SHARE:
        reason = "small"
    else:
        answer, reason = "yes", "turns"
    return Answer("winding", answer, reason, facts, test, WINDING_KEYS)


def strongest_winding(points: Floats) -> tuple[float, WindingPair | None, float]:
    """Return the pair where ``turns * (1 - radius CV) * share`` is largest.

    Parameters
    ----------
    points
        ``[n, d]``.

    Returns
    -------
    tuple
        That number, the pair, and which share of the variance the directions hold that the pair's
        own share is of.
    """
    points = points - points.mean(axis=0)
    total_power = float(np.square(points).sum())
    if points.shape[1] > 2 * N_WINDING_COMPONENTS:
        points = leading(points, N_WINDING_COMPONENTS)
    variances, directions = np.linalg.eigh(points.T @ points)
    variances, directions = (
        variances[::-1][:N_WINDING_COMPONENTS],
        directions[:, ::-1][:, :N_WINDING_COMPONENTS],
    )
    if not variances[0] > 0:
        return 0.0, None, 0.0
    ratios = np.maximum(variances, 0.0) / variances.sum()
    n_components = kept_components(ratios)
    pairs = winding_pairs(points @ directions[:, :n_components], ratios) if n_components > 1 else []
    statistics = [
        pair.turns * max(1 - pair.radius_cv, 0.0) * pair.share
        if pair.share >= MIN_WINDING_SHARE
        else 0.0
        for pair in pairs
    ]
    best = int(np.argmax(statistics)) if statistics else 0
    plane_share = float(variances.sum()) / total_power
    return (statistics[best], pairs[best], plane_share) if statistics else (0.0, None, plane_share)


def _draw_windings(
    points: Floats, statistic: float, rng: np.random.Generator
) -> tuple[float, str, Floats]:
    """Return the p-value, and the name and the draws of the nearest null."""
    n = len(points)
    leading_steps = leading(np.diff(points, axis=0), N_WINDING_COMPONENTS)
    process = fit_process(leading(points, 2 * N_WINDING_COMPONENTS), Sequence(n))

    def draw() -> list[float]:
        signs = rng.choice([-1.0, 1.0], size=(n - 1, 1))
        walk = np.concatenate(
            [np.zeros((1, leading_steps.shape[1])), np.cumsum(signs * leading_steps, axis=0)]
        )
        curve = np.asarray(process.draw(rng), dtype=np.float64)
        return [strongest_winding(table)[0] for table in (walk, curve)]

    def p_values(null_draws: Floats) -> list[float]:
        return [rank_p_value(statistic, draws) for draws in null_draws.T]

    null_draws, p = draw_null(
        draw, lambda null_draws: max(p_values(null_draws)), DRAWS, N_SINGLE_YES_DRAWS
    )
    nearest_null = int(
        np.lexsort((np.median(null_draws, axis=0), np.array(p_values(null_draws))))[-1]
    )
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
    """Return the ratio of slow whole turns to fast ones that noise of the phase alone makes.

    By the second differences of the phase, to which a steady or slowly changing pace adds nothing.
    """
    noise = float(np.sqrt(np.square(np.diff(phase, 2)).mean() / 6))
    phase_error = min(
        1.2816 * float(np.sqrt(2)) * noise / (2 * float(np.pi)), 0.9
    )  # a normal's tenths
    return (1 + phase_error) / (1 - phase_error)


def measure_turns(phase: Floats) -> Floats:
    """Return how many positions a whole turn takes from each position that one begins at.

    Over whole turns: within one, components that share a slow trend seem to go round unevenly.

    Parameters
    ----------
    phase
        ``[n]``, radians, unwrapped.
    """
    rising_phase = np.maximum.accumulate(phase) + 1e-9 * np.arange(len(phase))
    starts = np.flatnonzero(rising_phase + 2 * np.pi <= rising_phase[-1])
    ends = np.interp(rising_phase[starts] + 2 * np.pi, rising_phase, np.arange(len(phase)))
    return np.asarray(ends - starts)


def winding_by_rotations(winding_answer: Answer, rotations_answer: Answer) -> Answer | None:
    """Say of what winds which line of the spectrum it is, or which lines it mixes."""
    facts = winding_answer.facts
    if not (
        winding_answer.yes
        and rotations_answer.yes
        and isinstance(rotations_answer.facts, Rotations)
    ):
        return None
    lines = rotations_answer.facts.lines
    if not lines or facts.pair is None:
        return None
    shares = rhythms(facts.pair, [line.period for line in lines])
    by_share = np.argsort(-shares, kind="stable").tolist()
    mixed_lines = [lines[k] for k in by_share if shares[k] >= MIN_MIXED_LINE_SHARE]
    if len(mixed_lines) > 1 and _turns_difference(facts, mixed_lines[0]) > MAX_SAME_LINE_DIFFERENCE:
        facts = replace(facts, mixed=tuple(sorted(mixed_lines, key=lambda line: line.period)))
        if not all(line.round for line in mixed_lines):
            return winding_answer.corrected("cannot tell", "mixed_waves", "rotations", facts=facts)
        facts = replace(facts, turns=mixed_lines[0].turns, rotation=mixed_lines[0].period)
        return winding_answer.corrected("yes", "mixed", "rotations", facts=facts)
    nearest_line = min(lines, key=lambda line: _turns_difference(facts, line))
    if _turns_difference(facts, nearest_line) > MAX_SAME_LINE_DIFFERENCE:
        return None
    facts = replace(facts, rotation=nearest_line.period)
    return winding_answer.corrected("yes", "rotation", "rotations", facts=facts)


def _turns_difference(facts: Winding, line: Rotation) -> float:
    """Return the relative difference between the turns of a pair and of a line."""
    return abs(facts.turns / line.turns - 1)


#: Largest difference of one step of a ladder from the others, in the logarithm of the period.
MAX_LADDER_UNEVENNESS = 0.2
#: Fewest lines of a series, and rows of which none is denied.
MIN_LADDER_LINES = 3
MIN_LADDER_DENIAL_ROWS = 64
#: Share of the variance of fewer lines from which a base that fits may be theirs: every line falls
#: upon one of the series of some base. No line of a sinusoid holds as much, unless it has few.
MAX_LONE_LINES_SHARE = 0.25
#: Sets of periods that are drawn at random, and rows of the tables that are drawn.
N_PERIOD_SETS = 9999
MAX_SINUSOID_ROWS = 512
LADDER_KEYS = ("sinusoid.base",)


@dataclass(frozen=True)
class Sinusoid:
    """The sinusoid of one base, and its CKA with the table."""

    base: float
    cka: float


@dataclass(frozen=True)
class Ladder:
    """The series, or the lines that make none.

    Parameters
    ----------
    lines
        Number of lines that stand out.
    series
        The sinusoid whose frequencies the table has.
    factor
        Mean ratio of neighbouring periods.
    off, worst
        Largest distance of a period from the even series between the first and the last, in steps
        of it; and largest difference of one step from the mean one, as a share of it.
    similar
        CKA with the most similar sinusoid, where it is high and no single base fits best.
    fits
        The sinusoid of the base that was singled out, whether or not it tells of a series.
    """

    lines: int = 0
    series: Sinusoid | None = None
    factor: float | None = None
    off: float | None = None
    worst: float | None = None
    similar: float | None = None
    fits: Sinusoid | None = None

    @property
    def value(self) -> dict[str, float] | None:
        """The base with its CKA, or the factor."""
        if self.series is not None:
            return {"base": self.series.base, "cka": self.series.cka}
        return None if self.factor is None else {"factor": self.factor}


def ask_ladder(view: View) -> Answer:
    """Ask whether the frequencies form a geometric ladder, against frequencies at random.

    Either the table resembles the sinusoid of one base more than of any other, beside draws of the
    fitted kernel; or the lines found are evenly spaced in the logarithm of their periods, beside as
    many drawn at random between the same ends.
    """
    if refusal := small_table_answer("ladder", view, LADDER_KEYS):
        return refusal
    n = len(view)
    lines = view.turning.rotations
    fit, sinusoid = view.base, None
    if fit is not None and fit.base is not None and fit.best is not None:
        sinusoid = Sinusoid(fit.base, fit.best)
        has_lone_lines = (
            0 < len(lines) < MIN_LADDER_LINES
            and sum(line.share for line in lines) > MAX_LONE_LINES_SHARE
        )
        if not has_lone_lines or fit.best >= MIN_SIMILAR_SINUSOID_CKA:
            test = _test_base(view, fit.best)
            if test.p <= LEVEL:
                facts = Ladder(len(lines), series=sinusoid, fits=sinusoid)
                return Answer("ladder", "yes", "base", facts, test, LADDER_KEYS)
    facts = Ladder(len(lines), similar=nearest_sinusoid_cka(view), fits=sinusoid)
    if len(lines) >= MIN_LADDER_LINES:
        return _ask_even_periods(view, facts)
    answer: Verdict = "cannot tell"
    reason = "dense" if not lines and facts.similar is not None else "few"
    if reason == "few" and not lines and n >= MIN_LADDER_DENIAL_ROWS:
        answer, reason = "no", "none"
    # Nothing is tested, but it is among the questions that are asked.
    return Answer("ladder", answer, reason, facts, Test(float(len(lines)), 1.0), LADDER_KEYS)


def _ask_even_periods(view: View, facts: Ladder) -> Answer:
    """Ask whether the logarithms of the periods are evenly spaced."""
    rotation_fit = view.turning
    log_periods = np.log(np.sort([line.period for line in rotation_fit.rotations]))
    n_steps = len(log_periods) - 1
    log_range = float(log_periods[-1] - log_periods[0])
    even_spacing = np.linspace(0, 1, len(log_periods))
    deviation = float(np.abs((log_periods - log_periods[0]) / log_range - even_spacing).max())
    null_draws = np.sort(view.rng(4).random((N_PERIOD_SETS, len(log_periods) - 2)), axis=1)
    null_deviations = np.abs(null_draws - even_spacing[1:-1]).max(axis=1)
    p = rank_p_value(-deviation, -null_deviations)
    unevenness = float(np.abs(np.diff(log_periods) / (log_range / n_steps) - 1).max())
    facts = replace(
        facts, factor=float(np.exp(log_range / n_steps)), off=deviation * n_steps, worst=unevenness
    )
    smallest_share = min(line.share for line in rotation_fit.rotations)
    answer: Verdict = "no"
    if p > MAX_OPEN_P or unevenness > MAX_LADDER_UNEVENNESS:
        reason = "random" if p > MAX_OPEN_P else "uneven"
        if smallest_share < max(
            DETECTION_MARGIN * rotation_fit.detection_limit, MIN_DETECTION_LIMIT
        ):
            answer, reason = "cannot tell", "between"
    else:
        answer, reason = ("yes", "even") if p <= LEVEL else ("cannot tell", "open")
    test = null_test(deviation * n_steps, null_deviations * n_steps, "random periods", p)
    return Answer("ladder", answer, reason, facts, test, LADDER_KEYS)


def _test_base(view: View, best_cka: float) -> Test:
    """Hold the CKA with the sinusoid of the best base against draws of the fitted kernel.

    A draw that singles out no base has 0 in its place.
    """
    d = view.points.shape[1]
    rows = view.coordinates[:MAX_SINUSOID_ROWS]
    factor = root(toeplitz(view.kernel.by_offset[: len(rows)]))
    column_norms = np.sqrt(np.square(rows).sum(axis=0))
    rng = view.rng(5)
    null_draws: list[float] = []
    n_reached, p = 0, 0.0
    for n_draws in (DRAWS, N_SINGLE_YES_DRAWS):
        # Where too many reach it, the others need not be drawn.
        while len(null_draws) < n_draws and p <= LEVEL:
            fit = fit_base(
                cloud(factor @ rng.standard_normal(rows.shape) * column_norms), d - d % 2
            )
            null_draws.append(fit.best if fit.base is not None and fit.best is not None else 0.0)
            n_reached += null_draws[-1] >= best_cka
            p = (1 + n_reached) / (n_draws + 1)
    return null_test(best_cka, np.array(null_draws), "smooth", p)


def ladder_by_formula(ladder_answer: Answer, formula_answer: Answer) -> Answer | None:
    """Say of a formula whose base was singled out that its frequencies are a series."""
    if (
        ladder_answer.yes
        or not formula_answer.yes
        or getattr(ladder_answer.facts, "fits", None) is None
    ):
        return None
    facts = replace(ladder_answer.facts, series=ladder_answer.facts.fits)
    return ladder_answer.corrected("yes", "base", "closed_form", facts=facts, test=None)


#: By name, in the order of the page.
ROTATION_QUESTIONS: Mapping[str, AskTable] = {
    "rotations": ask_rotations, "winding": ask_winding, "ladder": ask_ladder,
}  # fmt: skip
