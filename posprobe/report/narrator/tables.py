"""What is said of tables, on a line and on a grid, where templates must choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from posprobe.analyses.facts import Cause, Verdicts
from posprobe.analyses.sequences.planes import Rotation
from posprobe.analyses.tables.copies import Copies
from posprobe.questions.absolute_position import AbsolutePosition
from posprobe.questions.axis_rotations import LEAST_TURNS, Code
from posprobe.questions.breaks import Breaks, SpecialRows
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.grids import RowsAndColumns
from posprobe.questions.rotations import Ladder, Rotations
from posprobe.questions.sequences import Smooth
from posprobe.report.narrator import cause
from posprobe.report.narrator.words import (
    Template,
    capital,
    either,
    hundredths,
    listed,
    patches,
    percent,
    positions,
    rounded,
    similarity,
    spelled,
    two_figures,
)
from posprobe.text import period_of, show


def _pace(found: Cause) -> str:
    (factor,) = found.numbers
    return f"{factor:.2f}" if factor > 0.01 else f"{factor:.1e}"


CAUSE_PARTS: Mapping[str, Template] = {"pace": _pace}


def copied(found: Copies) -> str:
    """Say in a clause which rows are copies of others."""
    match found.kind:
        case "blocks":
            return f"each row occurs {found.times} times in succession"
        case "period":
            return f"the rows repeat every {found.period} positions"
        case "mirror":
            return "the second half is the first in reverse order"
        case "near":
            return (
                f"rows {found.period} positions apart are similar again (mean cosine "
                f"{found.cosine:z.2f}; {found.between:z.2f} between)"
            )
        case "any":
            return f"{found.count} of {found.rows} rows are copies of earlier ones"


#: What is said of a table that is nothing else.
STRAIGHT = "a straight line along which positions are evenly spaced"
#: Mean cosine from which steps that are no smoother than a walk's are said to be opposed.
OPPOSED = -0.2
#: Share of its variance below which distance is said to explain just that much of similarity.
MOSTLY = 0.9


def _steps(f: Smooth) -> str:
    return "Consecutive steps" if f.stride == 1 else f"Consecutive {f.stride}-position steps"


def _invariance(f: AbsolutePosition) -> str:
    if f.invariance is None:
        return ""
    share = f"{percent(max(f.invariance, 0.0))} of its variance"
    if f.invariance < MOSTLY:
        return f", though distance explains only {share}"
    return f": distance explains {share}"


def _codes(f: RowsAndColumns) -> str:
    shares = {"": f.share, "row": f.row_share, "column": f.column_share}
    summed = f"A {f.lone} code alone explains" if f.lone else "Row code + column code explain"
    said = f"{summed} {percent(shares[f.lone])} of the variance"
    return f"{said} ({percent(f.typical)} in random tables without codes)."


def _code(axis: str) -> str:
    return f"{axis.removesuffix('s')} code"


def _lined(code: Code) -> str:
    share = min(sum(line.share for line in code.lines), 1.0)
    which = "a periodic component with a period of|periodic components with periods of"
    return (
        f"The {_code(code.axis)} has {either(code.lines, which)} "
        f"{listed([show(line.period) for line in code.lines])} {code.axis} ({percent(share)} of "
        "its variance)."
    )


def _circled(code: Code) -> str:
    circle = code.circle
    assert circle is not None  # noqa: S101 - those told of have one
    turns = f"{circle.turns:.1f} turns" if circle.turns > LEAST_TURNS else "about one turn"
    return (
        f"A circle of {turns} over {code.length} {code.axis} explains {percent(circle.share)} of "
        f"the variance of the {_code(code.axis)} ({percent(circle.typical)} in smooth random "
        "curves)."
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


def _flat(f: Rotations) -> str:
    flat = sum(not line.round for line in f.lines)
    if not flat:
        return ""
    who = f"{capital(spelled(flat))} of them"
    if flat == len(f.lines):
        who = "It" if flat == 1 else "They"
    along = "along one direction rather than around a circle"
    return f" {who} oscillate{'s' if flat == 1 else ''} {along}."


def _varying(f: Rotations) -> str:
    varying = [line for line in f.lines if line.pace != "fixed"]
    ranges = [f"{show(line.fastest)} to {show(line.slowest)}" for line in varying]
    told = f" Along the table, periods vary: {listed(ranges)} positions."
    return told if varying else ""


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


def _error(f: ClosedForm) -> str:
    return f"{100 * (f.error or 0.0):.2g} %"


def _first_rows(f: ClosedForm) -> str:
    return f" over the first {f.rows} positions" if f.rows < f.of else ""


def _nearest(f: ClosedForm) -> str:
    if f.cka is None:
        return ""
    nearest = "The 2-D sin-cos table" if f.grid else "The closest sinusoid"
    return f" {nearest} has a CKA of {similarity(f.cka)}{_first_rows(f)}."


def _few(f: Ladder) -> str:
    return "only two stand" if f.lines == 2 else "only one stands" if f.lines else "none stands"


def _odd(found: Cause, at: int) -> str:
    """Say what is odd about the row at a position."""
    if found.kind == "among_equal":
        return f"the rows around {at} are equal"
    first, *others = found.numbers
    match found.kind:
        case "far_from_next" | "far_from_previous":
            pair = f"{at} to {at + 1}" if found.kind == "far_from_next" else f"{at - 1} to {at}"
            return f"the step from {pair} is {two_figures(first)} times the median step nearby"
        case "far_from_both":
            times = f"{two_figures(first)} and {two_figures(others[0])}"
            return f"the steps to and from {at} are {times} times the median step nearby"
        case "norm":
            usual = two_figures(others[0])
            return f"the norm of {at} is {two_figures(first)} (median nearby {usual})"
        case "direction":
            usual = hundredths(others[0])
            return f"the mean cosine of {at} with all rows is {hundredths(first)} (nearby {usual})"
    same = "equal" if found.kind == "equal_rows" else "zero"
    return f"position {at} is next to positions {first:.0f}–{others[0]:.0f}, which are all {same}"


def _outliers(f: SpecialRows) -> str:
    said = []
    if f.positions:
        many = "s" if len(f.positions) > 1 else ""
        odd = [f"{capital(_odd(found, f.positions[0]))}." for found in f.causes]
        said = [f"Outlier{many}: {positions(f.positions)}.", *odd]
    return " ".join([*said, *_zeros(f, positions(f.zeros))])


def _outlier_patches(f: SpecialRows) -> str:
    width, said = f.width or 1, []
    if f.positions:
        one = len(f.positions) == 1
        said = [f"Outlier{'' if one else 's'}: {patches(f.positions, width)}."]
        it = "it" if one else "the first"
        for found in f.causes:
            if found.kind == "patch_far":
                times = two_figures(found.numbers[0])
                said.append(
                    f"{capital(it)} is {times} times as far from its neighbours as patches nearby."
                )
            else:
                said.append(f"The patches around {it} are equal.")
    said += _zeros(f, patches(f.zeros, width))
    if f.replaced:
        place = "its place" if len(f.positions) + len(f.zeros) == 1 else "their place"
        said.append(f"Other answers use the mean of the neighbours in {place}.")
    return " ".join(said)


def _zeros(f: SpecialRows, named: str) -> list[str]:
    are = "is" if len(f.zeros) == 1 else "are"
    return [f"{capital(named)} {are} zero."] if f.zeros else []


def _breaks(f: Breaks) -> str:
    first = cause(f.causes[0])
    if len(f.pairs) == 1:
        left, right = f.pairs[0]
        said = f"The table breaks between positions {left} and {right} ({first})."
    else:
        begin = listed([str(right) for _, right in f.pairs], 8)
        said = f"The table breaks before positions {begin}. At the first: {first}."
    for part in f.same:
        some_of = f" ({part.around} of {part.rotations})" if part.around < part.rotations else ""
        said += (
            f" Positions {part.first}–{part.last} rotate in the same planes{some_of}, which "
            f"explain {percent(part.held)} of their variance."
        )
    return said


def based_on(found: Verdicts) -> str:
    """Say which positions the answers are about; nothing where they are about all."""
    if found.whole:
        return ""
    breaks = [f"{end.numbers[1]:.0f}" for end in found.ends if end.kind == "seam"]
    excluded = ["outliers"] if any(end.kind == "special" for end in found.ends) else []
    if breaks:
        noun = "break" if len(breaks) == 1 else "breaks"
        excluded.append(f"positions beyond the {noun} at {listed(breaks)}")
    return (
        f"Based on positions {found.first}–{found.stop - 1}; {listed(excluded)} are excluded. Use "
        "`--all-rows` to include them."
    )


#: Of questions about tables, the parts that must choose.
TABLE_PARTS: Mapping[str, Mapping[str, Template]] = {
    "order": {
        "side": lambda f: "more" if f.cosine > f.chance else "less",
        "copies": lambda f: copied(f.copies),
    },
    "smooth": {
        "steps": _steps,
        "halves": lambda f: "length" if 0 < f.length < f.rows - 1 else "",
        "unlike": lambda f: "opposed" if f.cosine <= OPPOSED else "walk",
        "surface": lambda f: "halving" if f.halves else "wide",
    },
    "absolute_position": {"invariance": _invariance, "copies": lambda f: copied(f.copies)},
    "low_dimensional": {"thinned": lambda f: "every" if f.every > 1 else ""},
    "rows_and_columns": {"codes": _codes},
    "axis_rotations": {
        "lines": lambda f: " ".join(map(_lined, f.round)),
        "round": lambda f: " ".join(map(_circled, f.round)),
        "circles": lambda f: " ".join(map(_circled, f.codes)),
        "of_codes": lambda f: "" if f.codes_share is None else "codes",
    },
    "closed_form": {
        "formula": _formula,
        "error": _error,
        "first": _first_rows,
        "nearest": _nearest,
        "replaced": lambda f: "means" if f.replaced else "",
    },
    "rotations": {
        "flat": _flat,
        "varying": _varying,
        "components": lambda f: components(len(f.lines)),
        "periods": lambda f: periods(f.lines),
        "alternating": lambda f: "signs" if f.alternates else "",
    },
    "winding": {
        "changes": lambda f: "pace" if f.changes and f.turn else "",
        "periods": lambda f: periods(f.mixed),
        "times": lambda f: listed([f"{line.turns:.1f}" for line in f.mixed]),
    },
    "ladder": {
        "within": lambda f: str(max(math.ceil(100 * f.off), 1)),
        "few": _few,
    },
    "special_rows": {"found": _outliers, "patches": _outlier_patches},
    "seams": {"found": _breaks},
}
