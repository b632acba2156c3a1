"""What answers say together: what one shows that another could not know, and what a table is.

Corrections are applied in their order. A correction sees the final answers of those before it, and
the own answers of those after it. None reads an answer that a later one may change, but for that of
rotations by winding: whether what winds keeps its pace is winding's own finding, and nothing later
takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from posprobe.analyses.breaks.copies import Copies, copies, returns
from posprobe.analyses.breaks.seams import long_runs, stretch
from posprobe.analyses.composition.budget import same_planes
from posprobe.analyses.facts import Answer, Correction
from posprobe.analyses.view import View
from posprobe.questions import fields, grids, rotations

Answers: TypeAlias = Mapping[str, Answer]

#: Turns from which what winds shows that order matters, whatever neighbours have in common: the
#: paths that random rows make through two components stay below it.
MANY_TURNS = 3.0
#: Share of the variance in rotations from which a table is more than a smooth curve: with less, the
#: curve is what it is, and they are told beside it.
ROTATING = 0.25
#: Waves whose periods are whole fractions of one, from which the rows repeat rather than rotate:
#: more than any trained table was seen to have.
HARMONICS = 6


def copies_of(answers: Answers, seen: View) -> Copies | None:
    """Return which rows of the whole table are copies of others, beyond what goes round in it."""
    if seen.all_rows is None or seen.breaks is None:
        return None
    lines = answers["rotations"].facts.lines if answers["rotations"].yes else ()
    rotating = 1.0 if answers["winding"].yes else sum(line.share for line in lines)
    found = copies(seen.all_rows) or returns(seen.all_rows, 0.0)
    if found and found.kind == "near" and found.period:
        times = [found.period / line.period for line in lines]
        if sum(abs(each - round(each)) < 0.1 for each in times) < HARMONICS:
            found = returns(seen.all_rows, rotating)
    equal = seen.breaks.equal
    if found and found.kind == "any" and equal:
        again = [row for first, last in equal for row in range(first + 1, last + 1)]
        return found if copies(np.delete(seen.all_rows, again, axis=0)) else None
    return found


def _smooth_by_rotations(answers: Answers, seen: View) -> Answer | None:
    """Say of a sum of rotations that it is no smooth curve, where gaps in it tell the two apart."""
    smooth, turning = answers["smooth"], answers["rotations"]
    if not (smooth.yes and turning.yes):
        return None
    if turning.reason != "formula" and turning.facts.share < ROTATING:
        return None
    found = rotations.bridged(seen.bridging)
    if found is None:
        return None
    facts = replace(smooth.facts, **found)
    keys = (*smooth.keys, "bridging.r2")
    return smooth.corrected("no", "rotations", "rotations", facts=facts, keys=keys)


def _seams_by_rotations(answers: Answers, seen: View) -> Answer | None:
    """Say of parts on both sides of a break that they go round in the same planes."""
    seams = answers.get("seams")
    if seams is None or not seams.yes or not answers["rotations"].yes:
        return None
    if seen.all_rows is None or seen.breaks is None:
        return None
    own = stretch(seen.breaks)
    others = [run for run in long_runs(seen.breaks) if run[0] != own.first]
    if not (same := same_planes(seen.turning, seen.all_rows, others, seen.start)):
        return None
    return replace(seams, facts=replace(seams.facts, same=same))


def _order_by_winding(answers: Answers, _: View) -> Answer | None:
    """Say that order matters of a path whose pace changes: its neighbours are at every angle."""
    order, turning = answers["order"], answers["winding"]
    if order.yes or not turning.yes or turning.facts.turns < MANY_TURNS:
        return None
    facts = replace(order.facts, turns=turning.facts.turns)
    return order.corrected("yes", "winding", "winding", facts=facts, test=None)


def _order_by_copies(answers: Answers, seen: View) -> Answer | None:
    order = answers["order"]
    if order.yes or order.value is None:
        return None
    found = copies_of(answers, seen)
    if found is None or found.kind == "any":
        return None
    facts = replace(order.facts, copies=found)
    return order.corrected("yes", "copies", "copies", facts=facts, test=None)


def _place_by_smooth(answers: Answers, _: View) -> Answer | None:
    """Say of a straight line that it moves on, so that where rows stand matters."""
    place, smooth = answers["absolute_position"], answers["smooth"]
    if not smooth.yes or smooth.reason != "line":
        return None
    return place.corrected("yes", "straight_line", "smooth", test=None)


def _place_by_order(answers: Answers, _: View) -> Answer | None:
    """Say of rows whose order may not matter that neither their places nor distances can."""
    place, order = answers["absolute_position"], answers["order"]
    if order.yes or place.value is None or place.facts.equally_far or order.value is None:
        return None
    if place.reason == "straight_line":
        return None
    if order.answer == "cannot tell":
        return place.corrected("no", "order_open", "order") if place.answer == "no" else None
    if place.answer == "no":
        return place.corrected("no", "unordered", "order", test=None)
    if place.yes or place.reason == "wanders":
        return place.corrected("cannot tell", "unordered_open", "order")
    return None


def _place_by_copies(answers: Answers, seen: View) -> Answer | None:
    """Say that places decide where rows are copies in blocks or mirrored, or zeros among others."""
    place = answers["absolute_position"]
    if place.answer != "no" or seen.all_rows is None:
        return None
    found = copies(seen.all_rows)
    if found is not None and found.kind in {"blocks", "mirror"}:
        facts = replace(place.facts, copies=found)
        return place.corrected("yes", "copies", "copies", facts=facts, test=None)
    zeros = int((~seen.values.any(axis=1)).sum())
    if 0 < zeros < len(seen.values):
        return place.corrected("yes", "zeros", "zero rows", test=None)
    return None


#: Of positions on a line.
SEQUENCE: tuple[Correction[View], ...] = (
    lambda own, _: rotations.series_by_formula(own["ladder"], own["closed_form"]),
    lambda own, _: rotations.lines_by_formula(own["rotations"], own["closed_form"], own["ladder"]),
    lambda own, _: rotations.by_winding(own["rotations"], own["winding"]),
    lambda own, _: rotations.by_rotations(own["winding"], own["rotations"]),
    _smooth_by_rotations,
    _seams_by_rotations,
    _order_by_winding,
    _order_by_copies,
    _place_by_smooth,
    _place_by_order,
    _place_by_copies,
)
#: Of patches on a grid.
GRID: tuple[Correction[View], ...] = (
    lambda own, _: grids.circles_by_formula(own["axis_rotations"], own["closed_form"]),
    lambda own, _: fields.places_by_order(own["absolute_position"], own["order"]),
)


# What a table is.

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


def kind_of(answers: Answers) -> Kind:
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
