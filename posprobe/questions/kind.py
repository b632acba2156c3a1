"""What a table is, from its answers: the one thing that is said of it first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from posprobe.analyses.facts import Answer

KindName: TypeAlias = Literal[
    "formula", "codes", "surface", "series", "rotations", "line", "noisy_line", "smooth", "walk",
    "similar", "opposite", "norms", "ordered", "equal", "equally_far", "independent", "too_few",
    "unknown",
]  # fmt: skip

#: Mean cosine of neighbours from which they are called similar, or opposite.
SIMILAR = 0.2
#: Share of the variance from which rotations are what a table is, and beside a smooth curve.
LEADING, MOST = 0.1, 0.5
#: Least share of the variance that is told of beside what a table is.
TOLD = 0.01


@dataclass(frozen=True)
class Kind:
    """What a table, or a part of it, is.

    Parameters
    ----------
    name
        Which kind.
    of
        The questions whose facts it is told by, in order. But for ``walk``, ``equal``,
        ``equally_far``, ``independent``, ``too_few`` and ``unknown``, their answers are yes.
    """

    name: KindName
    of: tuple[str, ...] = ()


def kind_of(answers: Mapping[str, Answer]) -> Kind:
    """Return what a table is.

    Parameters
    ----------
    answers
        By question, of one stretch.
    """

    def yes(name: str) -> bool:
        return name in answers and answers[name].yes

    def facts(name: str) -> Any:
        return answers[name].facts

    order = answers["order"]
    if yes("closed_form"):
        return Kind("formula", ("closed_form",))
    if order.reason in {"all_equal", "too_few"}:
        return Kind("equal" if order.reason == "all_equal" else "too_few", ("order",))
    if yes("rows_and_columns"):
        turning = ("axis_rotations",) if yes("axis_rotations") else ()
        return Kind("codes", ("rows_and_columns", *turning))
    if not order.yes:
        if order.answer == "cannot tell":
            return Kind("unknown", ("order",))
        far = getattr(facts("absolute_position"), "equally_far", False)
        return Kind("equally_far" if far else "independent", ("order",))
    if "rows_and_columns" in answers and yes("smooth"):
        return Kind("surface", ("smooth",))
    winding = ("winding",) if yes("winding") else ()
    if yes("rotations"):
        found = facts("rotations")
        series = ("ladder",) if yes("ladder") else ()
        # What winds is named as one of them: then they are what the table is, however small.
        named = bool(winding) and facts("winding").rotation is not None
        least = MOST if yes("smooth") else 0.0 if named else LEADING
        if series or not found.lines or found.share >= least:
            return Kind("series" if series else "rotations", ("rotations", *series))
    beside: tuple[str, ...] = ()
    if yes("rotations") and facts("rotations").share >= TOLD:
        beside = ("rotations",)
    if yes("smooth"):
        found = facts("smooth")
        if found.straight is not None:
            return Kind("line" if found.line else "noisy_line", ("smooth",))
        return Kind("smooth", ("smooth", *winding, *beside))
    wanders = answers["absolute_position"].reason == "wanders"
    if wanders and answers["smooth"].answer == "no":
        return Kind("walk", ("smooth", *winding, *beside))
    if order.reason in {"norms", "norms_and_wave"}:
        return Kind("norms", ("order", *winding, *beside))
    near = facts("order").cosine
    if abs(near) >= SIMILAR:
        return Kind("similar" if near > 0 else "opposite", ("order", *winding, *beside))
    return Kind("ordered", ("order", *winding, *beside))
