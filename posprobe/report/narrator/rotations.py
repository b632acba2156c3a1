"""What is said of formulas, of what goes round, and of series, where templates must choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from posprobe.analyses.planes import Rotation
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.ladder import Ladder
from posprobe.questions.rotations import Rotations
from posprobe.report.narrator.words import (
    Template,
    capital,
    listed,
    rounded,
    similarity,
    spelled,
)
from posprobe.text import period_of, show


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


ROTATION_PARTS: Mapping[str, Mapping[str, Template]] = {
    "closed_form": {
        "formula": _formula, "error": _error, "first": _first_rows, "nearest": _nearest,
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
}  # fmt: skip
