"""Whether a table contains rotations, whether they form a ladder, and known formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posprobe.analyses.answer import OPEN, Answer, Verdict, rank, too_few, verdict_of
from posprobe.analyses.base_fit import fit_base
from posprobe.analyses.closeness import Cloud, Floats, cka, cloud
from posprobe.analyses.lines import MIN_ROWS as LINE_ROWS
from posprobe.analyses.lines import Lines, constant_shares
from posprobe.analyses.slow_rotation import Rotation
from posprobe.analyses.stationary import root, toeplitz
from posprobe.analyses.views import DRAWS, LEVEL, View
from posprobe.encodings.recognise import fixed_formula, nearly_formula
from posprobe.encodings.sinusoidal import sincos2d
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Layout
from posprobe.layouts import Sequence as Line
from posprobe.text import hundredths, listed, percent, rounded, show

#: CKA with the sinusoid from which a table is one.
SAME = 0.99
#: CKA with a sinusoid of some base from which a table may be one in noise.
ALIKE = 0.9
#: Relative distance from a formula that rounding explains.
EXACT = 5e-4
#: Words of a table that differs from its formula.
NEARLY = ", nearly: it is off by"
#: Largest difference of one step of a ladder from the others, in the logarithm of the period.
UNEVEN = 0.2
#: Rows below which the frequencies are too few to say that there are no rotations.
FEW_ROWS = 48
#: Level at which a period changes along the table, for all periods together, and least change.
DRIFT_LEVEL, LEAST_DRIFT = 0.01, 0.01
#: Times the share at which a rotation may be seen of that at which it is hardly ever missed.
SEEN = 3.0
#: Share of what rotations hold that waves of constant period and size hold at least of steady ones.
STEADY = 0.75
#: Circularity (1 for a circle, 0 for a line) from which a line of the spectrum is a rotation.
ROUND = 0.5


def rotations(shared: View, known: Answer | None = None) -> Answer:
    """Ask whether rotations stand out of a smooth spectrum, and which.

    Parameters
    ----------
    shared
        The table.
    known
        The answer that it is a sinusoid or a ladder: so many lines leave no background.
    """
    keys = ("shift.rotations", "spectrum.lines")
    if few := too_few("rotations", shared, keys):
        return few
    n = len(shared)
    if n < LINE_ROWS or shared.points.shape[1] < 2:
        d = shared.points.shape[1]
        text = f"Cannot be told from {n} rows of {d} column{'s' if d > 1 else ''}."
        return Answer("rotations", "cannot tell", text, [], keys=keys)
    lines = shared.lines
    value = [
        {
            "period": r.period, "turns": n / r.period, "share": r.share, "purity": r.purity,
            "circularity": r.circularity, "first_period": r.first_period,
            "last_period": r.last_period, "drift": r.drift, "drift_p": r.drift_p, "p": r.p,
            "skill": r.skill, "constant_share": constant,
        }
        for r, constant in zip(
            lines.rotations, constant_shares(shared.points, lines.rotations), strict=True
        )
    ]  # fmt: skip
    share = sum(r.share for r in lines.rotations)
    if lines.rotations:
        answer: Verdict = "yes"
        count = len(value)
        noun = noun_of([r.circularity for r in lines.rotations])
        along = {
            "rotation": "",
            "wave": ", to and fro rather than round in a plane",
            "rotation or wave": "",
        }[noun]
        stand = _count([r.circularity for r in lines.rotations])
        sentence = (
            f"Yes: {stand} out of any smooth background, with "
            f"{told_periods(value)}{along}, and "
            f"{'holds' if count == 1 else 'together hold'} {percent(share)} of the variance"
            f"{_changing(value, _drifting(lines.rotations))}."
        )
    elif known is not None and known.answer == "yes":
        answer = "yes"
        sentence = (
            "Yes: it is made of rotations, so many and so close that no single one stands out of "
            "the others."
        )
    elif lines.p > OPEN and (dense := _dense(shared)):
        answer = "cannot tell"
        sentence = f"Cannot be told: no period stands out, but {dense}."
    elif lines.p > OPEN and n < FEW_ROWS:
        answer = "cannot tell"
        sentence = (
            f"Cannot be told from {n} rows: no single period stands out, and several would hide "
            "each other among so few frequencies."
        )
    elif lines.p > OPEN and lines.least_share < 0.25:
        answer = "no"
        sentence = (
            "No sign of rotations: no period that fits into the table at least twice stands out of "
            "a smooth background; one with less than about "
            f"{_hidden(lines):.0%} of the variance, or a slow one among other "
            f"slow changes, may hide in it.{_alternating(shared, lines)}"
        )
    else:
        answer = "cannot tell"
        sentence = f"Cannot be told from {n} rows: no period stands out clearly."
    return Answer(
        "rotations",
        answer,
        sentence,
        value,
        lines.needed,
        lines.p if lines.rotations or answer != "yes" else known.p if known else None,
        share,
        keys,
    )


def _hidden(lines: Lines) -> float:
    """Return the share of the variance below which a rotation may well be missed."""
    return max(SEEN * lines.least_share, 0.01)


def _alternating(shared: View, lines: Lines) -> str:
    """Say that even and odd positions differ: nothing goes round with a period of 2."""
    points = shared.points
    differ = np.square(points[::2].mean(axis=0) - points[1::2].mean(axis=0)).sum() / 4
    share = float(differ / np.square(points).sum(axis=1).mean())
    if share <= _hidden(lines):
        return ""
    return (
        f" Even and odd positions differ, which holds {share:.0%} of the variance and is no "
        "rotation."
    )


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _drifting(found: Sequence[Rotation]) -> str:
    """Say which periods change along the table, beyond what noise does to their phase."""
    said = []
    for r in found:
        if r.drift_p <= DRIFT_LEVEL / len(found) and abs(r.drift) >= LEAST_DRIFT:
            which = "its period" if len(found) == 1 else f"the period of {show(r.period)}"
            goes = "grows" if r.drift > 0 else "falls"
            said.append(f"{which} {goes} from {show(r.first_period)} to {show(r.last_period)}")
    if not said:
        return ""
    return f"; from the first third of the table to the last, {listed(said)}"


def _is_steady(value: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether waves of constant period and size hold nearly all that rotations hold."""
    held, constant = (sum(each[key] for each in value) for key in ("share", "constant_share"))
    return bool(constant >= STEADY * held)


def _changing(value: Sequence[Mapping[str, Any]], drifting: str) -> str:
    """Say after what drifts what waves of constant period and size would hold, where it is less."""
    if _is_steady(value):
        return drifting
    it, waves = "they change", "waves of constant period and size hold"
    if len(value) == 1:
        it, waves = "it changes", "a wave of constant period and size holds"
    lead = f"{drifting};" if drifting else f"; {it} along the table:"
    return f"{lead} {waves} {percent(sum(each['constant_share'] for each in value))}"


def _dense(shared: View) -> str:
    """Say that a sinusoid resembles the table whose rotations are too close to stand out."""
    fit = shared.base
    if fit is None or fit.base is not None or fit.best is None or fit.best < ALIKE:
        return ""
    low, high = fit.similar or (0.0, 0.0)
    return (
        f"sinusoids of bases from {show(low)} to {show(high)} resemble it (CKA "
        f"{hundredths(fit.best)}), and rotations as close as theirs could not be told apart"
    )


def noun_of(circularities: Sequence[float]) -> str:
    """Return what to call lines of a spectrum: only some of them go round in a plane."""
    round_ = [value >= ROUND for value in circularities]
    return "rotation" if all(round_) else "rotation or wave" if any(round_) else "wave"


def plural(noun: str) -> str:
    """Return the plural of what `noun_of` returns."""
    return " and ".join(f"{word}s" for word in noun.split(" or "))


def _count(circularities: Sequence[float]) -> str:
    round_ = sum(value >= ROUND for value in circularities)
    counts = {"rotation": round_, "wave": len(circularities) - round_}
    parts = [
        f"{_NUMBERS[count] if count < len(_NUMBERS) else count} {noun}{'' if count == 1 else 's'}"
        for noun, count in counts.items()
        if count
    ]
    return f"{listed(parts)} stand{'s' if len(circularities) == 1 else ''}"


def told_periods(value: Sequence[Mapping[str, Any]]) -> str:
    """Name the periods of rotations, about what they are where they change."""
    noun = "a period" if len(value) == 1 else "periods"
    periods = listed([show(each["period"]) for each in value])
    return f"{noun} of {'' if _is_steady(value) else 'about '}{periods} positions"


def ladder(shared: View, known: Answer | None = None) -> Answer:
    """Ask whether the frequencies form a geometric ladder, against frequencies at random.

    Either the rotations found are evenly spaced in the logarithm of their periods, beside as many
    drawn at random between the same ends; or the table resembles the sinusoid of one base more
    than of any other, beside draws of the fitted kernel, unless it is known to be a sinusoid.
    """
    keys = ("sinusoid.base",)
    if few := too_few("ladder", shared, keys):
        return few
    n, d = shared.points.shape
    width = d - d % 2
    fit = shared.base
    if fit is not None and fit.base is not None and fit.best is not None:
        formula = known is not None and known.answer == "yes"
        p = None if formula else _base_rank(shared, fit.best, width)
        if p is None or p <= LEVEL:
            return Answer(
                "ladder", "yes",
                "Yes: its frequencies are those of a geometric series, which each time fall by the "
                f"same factor, as the sinusoid's do: base {rounded(fit.base)} fits, and series "
                "between its frequencies do not.",
                {"base": fit.base, "cka": fit.best}, None, p, fit.best, keys,
            )  # fmt: skip
    periods = [r.period for r in shared.lines.rotations] if n >= LINE_ROWS and d > 1 else []
    if not periods and (dense := _dense(shared)):
        text = f"Cannot be told: {dense}."
        return Answer("ladder", "cannot tell", text, None, None, 1.0, None, keys)
    if len(periods) < 3:
        return Answer(
            "ladder", "no" if not periods and n >= 64 else "cannot tell",
            "No sign of a geometric series of frequencies." if not periods and n >= 64 else
            "Cannot be told: a series needs three rotations, and "
            f"{('none stands', 'one stands', 'two stand')[len(periods)]} out.",
            None, None, 1.0, None, keys,
        )  # fmt: skip
    place = np.log(np.sort(periods))
    place = (place - place[0]) / (place[-1] - place[0])
    even = np.linspace(0, 1, len(place))
    off = float(np.abs(place - even).max())
    drawn = np.sort(shared.rng(4).random((9999, len(place) - 2)), axis=1)
    p = rank(-off, -np.abs(drawn - even[1:-1]).max(axis=1))
    factor = float((max(periods) / min(periods)) ** (1 / (len(periods) - 1)))
    ratios = np.diff(np.log(np.sort(periods))) / np.log(factor)
    answer = verdict_of(p if np.abs(ratios - 1).max() <= UNEVEN else 1.0)
    told = f"the periods rise by a factor of {factor:.2f} on average"
    if answer == "no" and min(r.share for r in shared.lines.rotations) < _hidden(shared.lines):
        answer = "cannot tell"
        told += ", and others as weak as the weakest of them may lie between unseen"
    sentence = {
        "yes": f"Yes: the rotations form a geometric series: each period is about {factor:.2f} "
        "times the one before.",
        "no": f"No: {told}, no more evenly than periods at random.",
        "cannot tell": f"Cannot be told from {len(periods)} rotations: {told}.",
    }[answer]
    return Answer("ladder", answer, sentence, {"factor": factor}, None, p, off, keys)


def _base_rank(shared: View, best: float, width: int) -> float:
    rows = shared.coordinates[:512]
    factor = root(toeplitz(shared.kernel.by_offset(len(shared))[: len(rows)]))
    columns = np.sqrt(np.square(rows).sum(axis=0))
    rng = shared.rng(5)
    reached = 0
    for _ in range(DRAWS):
        fit = fit_base(cloud(factor @ rng.standard_normal(rows.shape) * columns), width)
        reached += fit.base is not None and fit.best is not None and fit.best >= best
        if reached > LEVEL * (DRAWS + 1):
            break  # too many already
    return (1 + reached) / (DRAWS + 1)


def closed_form(shared: View, values: Floats, dtype: str, layout: Layout | None = None) -> Answer:
    """Ask whether the table follows a published formula, up to rotation, scale and mean."""
    keys = ("sinusoid.cka", "sinusoid.base")
    n, d = values.shape
    layout = layout or Line(n)
    name = fixed_formula(values, layout, dtype)
    if name:
        name += ", base 10000"  # as every published variant has it
        text = f"Yes: it is computed, not learned: {name}."
        return Answer("closed_form", "yes", text, {"formula": name}, keys=keys)
    if near := nearly_formula(values, layout):
        name = f"{near.name}, base {near.base:.6g}"
        times = "" if abs(near.scale - 1) < 0.01 else f", times {near.scale:.3g}"
        rounding = EXACT * (8 if dtype == "BF16" else 1)
        off = f"{NEARLY} {near.error:.2%}" if near.error > rounding else ""
        text = f"Yes: its values follow a formula: {name}{times}{off}."
        value = {"formula": name, "base": near.base, "scale": near.scale, "error": near.error}
        return Answer("closed_form", "yes", text, value, keys=keys)
    if few := too_few("closed_form", shared, keys):
        return few
    if isinstance(layout, Grid):
        wide = d - d % 4
        alike = (
            _alike(cloud(shared.points), cloud(sincos2d(layout.height, layout.width, wide).values))
            if wide >= 4
            else None
        )
        if alike is None or alike < SAME:
            beside = "; its CKA with the 2-D sin-cos table is "
            told = "" if alike is None else beside + hundredths(alike)
            return Answer(
                "closed_form",
                "no",
                f"No: it follows no formula that is known here{told}.",
                {"cka": alike},
                keys=keys,
            )
        text = f"Yes: up to rotation, it is the 2-D sin-cos table (CKA {alike:.4f})."
        return Answer("closed_form", "yes", text, {"cka": alike}, keys=keys)
    fit = shared.base
    if fit is None:
        return Answer(
            "closed_form", "no", "No: it follows no formula that is known here.", keys=keys
        )
    if fit.best is not None and fit.base is not None and fit.best >= SAME:
        text = (
            f"Yes: up to rotation, it is the sinusoid of base {rounded(fit.base)} (CKA "
            f"{fit.best:.4f})."
        )
        return Answer("closed_form", "yes", text, {"base": fit.base, "cka": fit.best}, keys=keys)
    first = f"its first {fit.rows} rows" if fit.rows < len(shared) else "it"
    told = "" if fit.best is None else (
        f"; the sinusoid that resembles {first} most has a CKA of {hundredths(fit.best)} with "
        f"{'them' if fit.rows < len(shared) else 'it'}, 1 being the same"
    )  # fmt: skip
    return Answer(
        "closed_form",
        "no",
        f"No: it follows no formula that is known here{told}.",
        {"cka": fit.best},
        keys=keys,
    )


def _alike(first: Cloud, second: Cloud) -> float | None:
    try:
        return cka(first, second)
    except (InvalidTable, ValueError):
        return None
