"""What is said of tables, on a line and on a grid, where templates must choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from posprobe.analyses.breaks.copies import Copies
from posprobe.analyses.composition.planes import Rotation
from posprobe.analyses.facts import Verdicts
from posprobe.questions.absolute_position import AbsolutePosition
from posprobe.questions.breaks import Breaks, SpecialRows
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.grids import Code
from posprobe.questions.rotations import Ladder, Rotations
from posprobe.questions.sequences import Smooth
from posprobe.text import format_period, format_value
from posprobe.words import TEXTS, cause
from posprobe.words.formats import (
    Template,
    Words,
    capital,
    either,
    listed,
    patches,
    percent,
    positions,
    rounded,
    similarity,
    spelled,
)


def copied(copies: Copies) -> str:
    """Say in a clause which rows are copies of others."""
    return Words({}, f=copies).format(TEXTS["copies"][copies.kind])


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


def _lined(code: Code) -> str:
    share = min(sum(line.share for line in code.lines), 1.0)
    noun = "a periodic component with a period of|periodic components with periods of"
    return (
        f"The {code.axis[:-1]} code has {either(code.lines, noun)} "
        f"{listed([format_value(line.period) for line in code.lines])} {code.axis} ({percent(share)} of "
        "its variance)."
    )


def _circled(code: Code) -> str:
    circle = code.circle
    assert circle is not None  # noqa: S101 - those told of have one
    return (
        f"A circle of {circle.turns:.1f} turns over {code.length} {code.axis} explains "
        f"{percent(circle.share)} of the variance of the {code.axis[:-1]} code "
        f"({percent(circle.typical)} in smooth random curves)."
    )


def periods(lines: Sequence[Rotation]) -> str:
    """Name the periods of lines, with three figures where all of them are fixed."""
    noun = "a period" if len(lines) == 1 else "periods"
    fixed = all(line.pace == "fixed" for line in lines)
    texts = [format_value(line.period) if fixed else format_period(line.period) for line in lines]
    qualifier = "" if fixed else "about "
    return f"{noun} of {qualifier}{listed(texts)} positions"


def components(count: int) -> str:
    """Count periodic components."""
    return f"{spelled(count)} periodic component{'' if count == 1 else 's'}"


def _flat(f: Rotations) -> str:
    flat = sum(not line.is_circular for line in f.lines)
    clause_text = (
        f" Of these, {spelled(flat)} oscillate{'s' if flat == 1 else ''} along one direction, "
    )
    return f"{clause_text}not around a circle." if flat else ""


def _varying(f: Rotations) -> str:
    varying = [line for line in f.lines if line.pace != "fixed"]
    ranges = [f"{format_value(line.fastest)} to {format_value(line.slowest)}" for line in varying]
    sentence = f" Along the table, periods vary: {listed(ranges)} positions."
    return sentence if varying else ""


def _formula(f: ClosedForm) -> str:
    base = "" if f.base is None else f", base {rounded(f.base)}"
    scaled = f.scale is not None and abs(f.scale - 1) >= 0.01
    return f"{f.formula}{base}{f', times {format_value(f.scale)}' if scaled else ''}"


def matches(f: ClosedForm) -> str:
    """Say in a clause which formula a table follows."""
    if f.formula is not None:
        error_text = f" up to {100 * f.error:.2g} %" if f.error else ""
        return f"it matches a formula{error_text}: {_formula(f)}"
    formula_text = "2-D sin-cos table" if f.grid else f"sinusoid of base {rounded(f.base or 0.0)}"
    return f"up to a rotation, it is the {formula_text}"


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


def _outliers(f: SpecialRows) -> str:
    name = partial(patches, width=f.width) if f.width else positions
    sentences = []
    if f.positions:
        is_plural = len(f.positions) > 1
        causes = "; ".join(map(cause, f.causes))
        causes_text = f"{'the first: ' if is_plural else ''}{causes}"
        sentences.append(f"Outlier{'s' if is_plural else ''}: {name(f.positions)} ({causes_text}).")
    if f.zeros:
        sentences.append(f"{capital(name(f.zeros))} {'is' if len(f.zeros) == 1 else 'are'} zero.")
    if f.replaced:
        sentences.append("Other answers use the mean of the neighbours instead.")
    return " ".join(sentences)


def _breaks(f: Breaks) -> str:
    cause_text = cause(f.causes[0])
    if len(f.pairs) == 1:
        left, right = f.pairs[0]
        sentence = f"The table breaks between positions {left} and {right} ({cause_text})."
    else:
        begin = listed([str(right) for _, right in f.pairs], 8)
        sentence = f"The table breaks before positions {begin}. At the first: {cause_text}."
    for part in f.same:
        some_of = f" ({part.around} of {part.rotations})" if part.around < part.rotations else ""
        sentence += (
            f" Positions {part.first}–{part.last} rotate in the same planes{some_of}, which "
            f"explain {percent(part.held)} of their variance."
        )
    return sentence


def based_on(verdicts: Verdicts) -> str:
    """Say which positions the answers are about; nothing where they are about all."""
    if verdicts.whole:
        return ""
    breaks = [f"{end.numbers[1]:.0f}" for end in verdicts.ends if end.kind == "seam"]
    excluded = ["outliers"] if any(end.kind == "special" for end in verdicts.ends) else []
    if breaks:
        noun = "break" if len(breaks) == 1 else "breaks"
        excluded.append(f"positions beyond the {noun} at {listed(breaks)}")
    return (
        f"Based on positions {verdicts.first}–{verdicts.stop - 1}; "
        f"{listed(excluded)} are excluded. Use "
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
    "axis_rotations": {
        "lines": lambda f: " ".join(map(_lined, f.round)),
        "round": lambda f: " ".join(map(_circled, f.round)),
        "circles": lambda f: " ".join(map(_circled, f.codes)),
    },
    "closed_form": {
        "formula": _formula,
        "error": _error,
        "first": _first_rows,
        "nearest": _nearest,
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
    "special_rows": {"outliers": _outliers},
    "seams": {"found": _breaks},
}
