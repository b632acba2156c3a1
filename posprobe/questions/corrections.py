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


def copies_of(answers: Answers, view: View) -> Copies | None:
    """Return which rows of the whole table are copies of others, beyond what goes round in it."""
    if view.all_rows is None or view.breaks is None:
        return None
    lines = answers["rotations"].facts.lines if answers["rotations"].yes else ()
    rotating = 1.0 if answers["winding"].yes else sum(line.share for line in lines)
    copied_rows = copies(view.all_rows) or returns(view.all_rows, 0.0)
    if copied_rows and copied_rows.kind == "near" and copied_rows.period:
        times = [copied_rows.period / line.period for line in lines]
        if sum(abs(turns - round(turns)) < 0.1 for turns in times) < HARMONICS:
            copied_rows = returns(view.all_rows, rotating)
    equal = view.breaks.equal
    if copied_rows and copied_rows.kind == "any" and equal:
        repeated_rows = [row for first, last in equal for row in range(first + 1, last + 1)]
        return copied_rows if copies(np.delete(view.all_rows, repeated_rows, axis=0)) else None
    return copied_rows


def _smooth_by_rotations(answers: Answers, view: View) -> Answer | None:
    """Say of a sum of rotations that it is no smooth curve, where gaps in it tell the two apart."""
    smooth, turning = answers["smooth"], answers["rotations"]
    if not (smooth.yes and turning.yes):
        return None
    if turning.reason != "formula" and turning.facts.share < ROTATING:
        return None
    bridged_facts = rotations.bridged(view.bridging)
    if bridged_facts is None:
        return None
    facts = replace(smooth.facts, **bridged_facts)
    keys = (*smooth.keys, "bridging.r2")
    return smooth.corrected("no", "rotations", "rotations", facts=facts, keys=keys)


def _seams_by_rotations(answers: Answers, view: View) -> Answer | None:
    """Say of parts on both sides of a break that they go round in the same planes."""
    seams = answers.get("seams")
    if seams is None or not seams.yes or not answers["rotations"].yes:
        return None
    if view.all_rows is None or view.breaks is None:
        return None
    own_stretch = stretch(view.breaks)
    other_runs = [run for run in long_runs(view.breaks) if run[0] != own_stretch.first]
    if not (shared_planes := same_planes(view.turning, view.all_rows, other_runs, view.start)):
        return None
    return replace(seams, facts=replace(seams.facts, same=shared_planes))


def _order_by_winding(answers: Answers, _: View) -> Answer | None:
    """Say that order matters of a path whose pace changes: its neighbours are at every angle."""
    order, turning = answers["order"], answers["winding"]
    if order.yes or not turning.yes or turning.facts.turns < MANY_TURNS:
        return None
    facts = replace(order.facts, turns=turning.facts.turns)
    return order.corrected("yes", "winding", "winding", facts=facts, test=None)


def _order_by_copies(answers: Answers, view: View) -> Answer | None:
    order = answers["order"]
    if order.yes or order.value is None:
        return None
    copied_rows = copies_of(answers, view)
    if copied_rows is None or copied_rows.kind == "any":
        return None
    facts = replace(order.facts, copies=copied_rows)
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


def _place_by_copies(answers: Answers, view: View) -> Answer | None:
    """Say that places decide where rows are copies in blocks or mirrored, or zeros among others."""
    place = answers["absolute_position"]
    if place.answer != "no" or view.all_rows is None:
        return None
    copied_rows = copies(view.all_rows)
    if copied_rows is not None and copied_rows.kind in {"blocks", "mirror"}:
        facts = replace(place.facts, copies=copied_rows)
        return place.corrected("yes", "copies", "copies", facts=facts, test=None)
    zeros = int((~view.values.any(axis=1)).sum())
    if 0 < zeros < len(view.values):
        return place.corrected("yes", "zeros", "zero rows", test=None)
    return None


#: Of positions on a line.
SEQUENCE: tuple[Correction[View], ...] = (
    lambda answers, _: rotations.series_by_formula(answers["ladder"], answers["closed_form"]),
    lambda answers, _: rotations.lines_by_formula(
        answers["rotations"], answers["closed_form"], answers["ladder"]
    ),
    lambda answers, _: rotations.by_winding(answers["rotations"], answers["winding"]),
    lambda answers, _: rotations.by_rotations(answers["winding"], answers["rotations"]),
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
    lambda answers, _: grids.circles_by_formula(answers["axis_rotations"], answers["closed_form"]),
    lambda answers, _: fields.places_by_order(answers["absolute_position"], answers["order"]),
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
MIN_TOLD_SHARE = 0.01


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
        is_equidistant = getattr(facts("absolute_position"), "equally_far", False)
        return Kind("equally_far" if is_equidistant else "independent", ("order",))
    if "rows_and_columns" in answers and yes("smooth"):
        return Kind("surface", ("smooth",))
    winding = ("winding",) if yes("winding") else ()
    if yes("rotations"):
        rotations_facts = facts("rotations")
        series = ("ladder",) if yes("ladder") else ()
        # What winds is named as one of them: then they are what the table is, however small.
        has_named_rotation = bool(winding) and facts("winding").rotation is not None
        min_share = MOST if yes("smooth") else 0.0 if has_named_rotation else LEADING
        if series or not rotations_facts.lines or rotations_facts.share >= min_share:
            return Kind("series" if series else "rotations", ("rotations", *series))
    companions: tuple[str, ...] = ()
    if yes("rotations") and facts("rotations").share >= MIN_TOLD_SHARE:
        companions = ("rotations",)
    if yes("smooth"):
        rotations_facts = facts("smooth")
        if rotations_facts.straight is not None:
            return Kind("line" if rotations_facts.line else "noisy_line", ("smooth",))
        return Kind("smooth", ("smooth", *winding, *companions))
    wanders = answers["absolute_position"].reason == "wanders"
    if wanders and answers["smooth"].answer == "no":
        return Kind("walk", ("smooth", *winding, *companions))
    if order.reason in {"norms", "norms_and_wave"}:
        return Kind("norms", ("order", *winding, *companions))
    neighbour_cosine = facts("order").cosine
    if abs(neighbour_cosine) >= SIMILAR:
        return Kind(
            "similar" if neighbour_cosine > 0 else "opposite", ("order", *winding, *companions)
        )
    return Kind("ordered", ("order", *winding, *companions))
