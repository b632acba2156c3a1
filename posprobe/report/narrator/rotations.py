"""What is said of formulas, periodic components, what winds, and series of frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from posprobe.analyses.planes import Rotation
from posprobe.number_format import period_of, show
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.ladder import Ladder
from posprobe.questions.rotations import Rotations
from posprobe.questions.winding import Winding
from posprobe.report.narrator import Template
from posprobe.report.narrator.words import (
    capital,
    listed,
    percent,
    rounded,
    similarity,
    spelled,
    two_figures,
)


def periods(lines: Sequence[Rotation]) -> str:
    """Name the periods of lines, with three figures where all of them are fixed."""
    noun = "a period" if len(lines) == 1 else "periods"
    fixed = all(line.pace == "fixed" for line in lines)
    told = [show(line.period) if fixed else period_of(line.period) for line in lines]
    about = "" if fixed else "about "
    return f"{noun} of {about}{listed(told)} positions"


def components(count: int) -> str:
    """Count periodic components."""
    return f"{spelled(count)} periodic component{'' if count == 1 else 's'}"


def _stand_out(f: Rotations) -> str:
    one = len(f.lines) == 1
    which = f"{capital(components(len(f.lines)))}, with {periods(f.lines)}"
    told = [f"{which}, explain{'s' if one else ''} {percent(f.share)} of the variance."]
    flat = sum(not line.round for line in f.lines)
    if flat:
        each = "one direction rather than around a circle"
        who = (
            ("It" if one else "They")
            if flat == len(f.lines)
            else f"{capital(spelled(flat))} of them"
        )
        told.append(f"{who} oscillate{'s' if flat == 1 else ''} along {each}.")
    varying = [line for line in f.lines if line.pace != "fixed"]
    if varying:
        ranges = [f"{show(line.fastest)} to {show(line.slowest)}" for line in varying]
        told.append(f"Along the table, periods vary: {listed(ranges)} positions.")
    return " ".join(told)


def _small_lines(f: Rotations) -> str:
    one = len(f.lines) == 1
    return (
        f"{capital(components(len(f.lines)))} with {periods(f.lines)} stand{'s' if one else ''} "
        f"out, but {'is' if one else 'are'} small ({percent(f.share)} of the variance)."
    )


def _no_lines(f: Rotations) -> str:
    beside = ""
    if f.alternates:
        beside = f" apart from alternating signs ({percent(f.alternating)} of the variance)"
    return (
        f"No periodic components found{beside}. Limits: under {percent(f.hidden)} of the variance, "
        "or periods longer than half the table, would go unnoticed."
    )


def _dense(f: Rotations | Ladder) -> str:
    return (
        "No period stands out, but the table resembles a sinusoid (CKA "
        f"{similarity(f.similar or 0.0)}), whose periods are too close to be separated."
    )


def turned(turns: float) -> str:
    """Count turns, near one to the hundredth."""
    # Near one turn, which is where the answer changes, a tenth is too coarse.
    if turns < 1:
        return f"{min(turns, 0.99):.2f} turns"
    return f"{turns:.2f} turns" if turns < 1.5 else f"{turns:.{1 if turns < 10 else 0}f} turns"


def _pair(f: Winding) -> str:
    first, second = f.components
    return f"Components {first} and {second} ({percent(f.share)} of the variance)"


def _lengths(turn: tuple[float, float]) -> str:
    return f"most whole turns take between {turn[0]:.3g} and {turn[1]:.3g} positions"


def _winds(f: Winding) -> str:
    told = f"{_pair(f)} trace {turned(f.turns)} of a circle."
    return f"{told} Their period changes: {_lengths(f.turn)}." if f.changes and f.turn else told


def _mixed(f: Winding) -> str:
    times = listed([f"{line.turns:.1f}" for line in f.mixed])
    return f"{_pair(f)} mix circles with {periods(f.mixed)}, which make {times} turns."


def _formula(f: ClosedForm) -> str:
    base = "" if f.base is None else f", base {rounded(f.base)}"
    scaled = f.scale is not None and abs(f.scale - 1) >= 0.01
    return f"{f.formula}{base}{f', times {show(f.scale)}' if scaled else ''}"


def matches(f: ClosedForm) -> str:
    """Say in a clause which formula a table follows."""
    if f.formula is not None:
        off = f" up to {100 * f.error:.2g} %" if f.error else ""
        return f"it matches a formula{off}: {_formula(f)}"
    which = "2-D sin-cos table" if f.grid else f"sinusoid of base {rounded(f.base or 0.0)}"
    return f"up to a rotation, it is the {which}"


def _nearly(f: ClosedForm) -> str:
    told = f"Matches a formula up to {100 * (f.error or 0.0):.2g} %: {_formula(f)}."
    if f.replaced:
        told += " Outlier patches, replaced by means, are part of the difference."
    return told


def _first_rows(f: ClosedForm) -> str:
    return f" over the first {f.rows} positions" if f.rows < f.of else ""


def _no_formula(f: ClosedForm, nearest: str) -> str:
    if f.cka is None:
        return "Matches no known formula."
    return f"Matches no known formula. {nearest} has a CKA of {similarity(f.cka)}{_first_rows(f)}."


def _sinusoid(f: ClosedForm) -> str:
    return (
        f"Up to a rotation, it is the sinusoid of base {rounded(f.base or 0.0)} (CKA "
        f"{similarity(f.cka or 0.0)}{_first_rows(f)})."
    )


def _series(f: Ladder) -> str:
    assert f.series is not None  # noqa: S101 - the reason says so
    return (
        "The frequencies form a geometric series: those of the sinusoid of base "
        f"{rounded(f.series.base)} (CKA {similarity(f.series.cka)})."
    )


def _no_series(f: Ladder) -> str:
    return (
        f"The {spelled(f.lines)} periods are up to {percent(f.off or 0.0)} of a step away from a "
        "geometric series"
    )


def _few(f: Ladder) -> str:
    stand = "only two stand" if f.lines == 2 else "only one stands" if f.lines else "none stands"
    return f"A series needs three periodic components, but {stand} out."


TEMPLATES: Mapping[tuple[str, str], Template] = {
    ("closed_form", "exact"): lambda f: f"Matches a formula: {_formula(f)}.",
    ("closed_form", "nearly"): _nearly,
    ("closed_form", "sinusoid"): _sinusoid,
    ("closed_form", "sincos2d"): lambda f: (
        f"Up to a rotation, it is the 2-D sin-cos table (CKA {similarity(f.cka)})."
    ),
    ("closed_form", "none"): lambda f: _no_formula(
        f, "The 2-D sin-cos table" if f.grid else "The closest sinusoid"
    ),
    ("rotations", "stand_out"): _stand_out,
    ("rotations", "small"): _small_lines,
    ("rotations", "none"): _no_lines,
    ("rotations", "dense"): _dense,
    ("rotations", "preferred"): lambda f: (
        f"No periodic components found: a period of about {period_of(f.preferred.period)} "
        f"positions is preferred ({percent(f.preferred.share)} of the variance), but its phase is "
        f"lost after {two_figures(f.preferred.coherent)} positions."
    ),
    ("rotations", "few_rows"): (
        "{f.rows} rows are too few to tell a fixed period from noise that prefers one."
    ),
    ("rotations", "unclear"): "No period stands out clearly in {f.rows} rows.",
    ("rotations", "formula"): (
        "The table is a sum of many periodic components, too close in period to be separated."
    ),
    ("rotations", "pace"): lambda f: f"No period is fixed: {_lengths(f.turn)}.",
    ("winding", "turns"): _winds,
    ("winding", "small"): lambda f: (
        f"{_pair(f)} trace {turned(f.turns)} of a circle, but explain little of the variance."
    ),
    ("winding", "part_turn"): lambda f: (
        f"{_pair(f)} trace {turned(f.turns)} of a circle, less than a whole one."
    ),
    ("winding", "smooth"): lambda f: (
        f"{_pair(f)} trace {turned(f.turns)}, no more evenly than smooth random curves do."
    ),
    ("winding", "open"): lambda f: (
        f"{_pair(f)} trace {turned(f.turns)}, and smooth random curves seldom do so as evenly."
    ),
    ("winding", "none"): "No two leading components trace a circle.",
    ("winding", "rotation"): lambda f: (
        f"{_pair(f)} trace {turned(f.turns)} of a circle: the {show(f.rotation)}-position period."
    ),
    ("winding", "mixed"): _mixed,
    ("winding", "mixed_waves"): lambda f: (
        f"{_pair(f)} mix periodic components with {periods(f.mixed)}, not all of them circles."
    ),
    ("ladder", "base"): _series,
    ("ladder", "even"): lambda f: (
        f"The {spelled(f.lines)} periods form a geometric series: each is {f.factor:.3g} times the "
        f"one before (to within {max(math.ceil(100 * f.off), 1)} % of a step)."
    ),
    ("ladder", "none"): "No geometric series of frequencies found.",
    ("ladder", "few"): _few,
    ("ladder", "dense"): _dense,
    ("ladder", "uneven"): lambda f: (
        f"The {spelled(f.lines)} periods rise by a factor of {f.factor:.2g} on average, but single "
        f"steps differ by up to {percent(f.worst)} of the mean step (log scale)."
    ),
    ("ladder", "random"): lambda f: f"{_no_series(f)}, no closer than random ones.",
    ("ladder", "between"): lambda f: (
        f"{_no_series(f)}, but components as weak may lie between them unnoticed."
    ),
    ("ladder", "open"): lambda f: f"{_no_series(f)}, and random ones seldom come as close.",
}
