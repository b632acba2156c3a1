"""What is said of tables, on a line and on a grid, where templates must choose."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.questions.absolute_position import AbsolutePosition
from posprobe.questions.smooth import Smooth
from posprobe.report.narrator.causes import copied
from posprobe.report.narrator.words import Template, percent

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


SEQUENCE_PARTS: Mapping[str, Mapping[str, Template]] = {
    "order": {
        "side": lambda f: "more" if f.cosine > f.chance else "less",
        "copies": lambda f: copied(f.copies),
    },
    "smooth": {
        "steps": _steps,
        "halves": lambda f: "length" if 0 < f.length < f.rows - 1 else "",
        "unlike": lambda f: "opposed" if f.cosine <= OPPOSED else "walk",
    },
    "absolute_position": {"invariance": _invariance, "copies": lambda f: copied(f.copies)},
    "low_dimensional": {"thinned": lambda f: "every" if f.every > 1 else ""},
}
