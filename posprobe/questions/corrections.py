"""Corrections of answers by other answers, and what they say of the order of rows.

Corrections are applied in order. A correction sees the corrected answers of those before it, and
the uncorrected answers of those after it. None reads an answer that a later one may change, with
one exception: that of rotations by winding. Whether the winding keeps its pace is decided by the
winding answer alone, and no later correction takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from posprobe.analyses.breaks.copies import Copies, copies, find_returns
from posprobe.analyses.breaks.stretches import find_stretch, long_stretches
from posprobe.analyses.composition.shared_planes import find_shared_planes
from posprobe.analyses.facts import Answer, Correction
from posprobe.analyses.view import View
from posprobe.questions import fields, grids, rotations

Answers: TypeAlias = Mapping[str, Answer]

#: Fewest turns of a winding that show that order matters, however different neighbours are: paths
#: of random rows through two components stay below it.
MIN_ORDERING_TURNS = 3.0
#: Fewest waves at harmonics of one period that make rows repeat rather than rotate: no trained
#: table was seen to have as many.
MIN_REPEATING_HARMONICS = 6


def find_copied_rows(answers: Answers, view: View) -> Copies | None:
    """Return the copied rows of the whole table, beyond those that its rotations explain."""
    if view.all_rows is None or view.seams is None:
        return None
    lines = answers["rotations"].facts.lines if answers["rotations"].yes else ()
    rotation_share = 1.0 if answers["winding"].yes else sum(line.share for line in lines)
    copied_rows = copies(view.all_rows) or find_returns(view.all_rows, 0.0)
    if copied_rows and copied_rows.kind == "near" and copied_rows.period:
        ratios = [copied_rows.period / line.period for line in lines]
        n_harmonics = sum(abs(ratio - round(ratio)) < 0.1 for ratio in ratios)
        if n_harmonics < MIN_REPEATING_HARMONICS:
            copied_rows = find_returns(view.all_rows, rotation_share)
    equal_stretches = view.seams.equal
    if copied_rows and copied_rows.kind == "any" and equal_stretches:
        repeats = [
            row for first, last in equal_stretches for row in range(first + 1, last + 1)
        ]
        return copied_rows if copies(np.delete(view.all_rows, repeats, axis=0)) else None
    return copied_rows


def _seams_by_rotations(answers: Answers, view: View) -> Answer | None:
    """Add that stretches on both sides of a seam rotate in the same planes."""
    seams_answer = answers.get("seams")
    if seams_answer is None or not seams_answer.yes or not answers["rotations"].yes:
        return None
    if view.all_rows is None or view.seams is None:
        return None
    main_stretch = find_stretch(view.seams)
    other_stretches = [
        rows for rows in long_stretches(view.seams) if rows[0] != main_stretch.first
    ]
    if not (
        shared_planes := find_shared_planes(
            view.rotation_fit, view.all_rows, other_stretches, view.start
        )
    ):
        return None
    return replace(seams_answer, facts=replace(seams_answer.facts, same=shared_planes))


def _order_by_winding(answers: Answers, _: View) -> Answer | None:
    """Affirm that order matters for a winding path, whose neighbours may be at any angle."""
    order_answer, winding_answer = answers["order"], answers["winding"]
    if order_answer.yes or not winding_answer.yes:
        return None
    turns = winding_answer.facts.turns
    if turns < MIN_ORDERING_TURNS:
        return None
    facts = replace(order_answer.facts, turns=turns)
    return order_answer.with_correction(
        "yes", "winding", "winding", facts=facts, test=None
    )


def _order_by_copies(answers: Answers, view: View) -> Answer | None:
    """Affirm that order matters where rows are copies of others at regular positions."""
    order_answer = answers["order"]
    if order_answer.yes or order_answer.value is None:
        return None
    copied_rows = find_copied_rows(answers, view)
    if copied_rows is None or copied_rows.kind == "any":
        return None
    facts = replace(order_answer.facts, copies=copied_rows)
    return order_answer.with_correction("yes", "copies", "copies", facts=facts, test=None)


def _position_by_smooth(answers: Answers, _: View) -> Answer | None:
    """Affirm that position matters where a straight line is a part, as it never comes back."""
    position_answer, smooth_answer = answers["absolute_position"], answers["smooth"]
    if not smooth_answer.yes or smooth_answer.reason != "line":
        return None
    return position_answer.with_correction("yes", "straight_line", "smooth", test=None)


def _position_by_order(answers: Answers, _: View) -> Answer | None:
    """Correct an answer about position where the order of rows may not matter.

    Then neither positions nor distances can matter.
    """
    position_answer, order_answer = answers["absolute_position"], answers["order"]
    if order_answer.yes or position_answer.value is None or order_answer.value is None:
        return None
    if position_answer.facts.equally_far or position_answer.reason == "straight_line":
        return None
    if order_answer.answer == "cannot tell":
        if position_answer.answer == "no":
            return position_answer.with_correction("no", "order_open", "order")
        return None
    if position_answer.answer == "no":
        return position_answer.with_correction("no", "unordered", "order", test=None)
    if position_answer.yes or position_answer.reason == "wanders":
        return position_answer.with_correction("cannot tell", "unordered_open", "order")
    return None


def _position_by_copies(answers: Answers, view: View) -> Answer | None:
    """Affirm that position matters if rows are copied in blocks or mirrored, or some are zero."""
    position_answer = answers["absolute_position"]
    if position_answer.answer != "no" or view.all_rows is None:
        return None
    copied_rows = copies(view.all_rows)
    if copied_rows is not None and copied_rows.kind in {"blocks", "mirror"}:
        facts = replace(position_answer.facts, copies=copied_rows)
        return position_answer.with_correction(
            "yes", "copies", "copies", facts=facts, test=None
        )
    n_zero_rows = int((~view.values.any(axis=1)).sum())
    if 0 < n_zero_rows < len(view.values):
        return position_answer.with_correction("yes", "zeros", "zero rows", test=None)
    return None


#: Corrections of answers about positions on a line, in order.
SEQUENCE_CORRECTIONS: tuple[Correction[View], ...] = (
    lambda answers, _: rotations.ladder_by_formula(
        answers["ladder"], answers["closed_form"]
    ),
    lambda answers, _: rotations.rotations_by_ladder(
        answers["rotations"], answers["ladder"]
    ),
    lambda answers, _: rotations.rotations_by_winding(
        answers["rotations"], answers["winding"]
    ),
    lambda answers, _: rotations.winding_by_rotations(
        answers["winding"], answers["rotations"]
    ),
    _seams_by_rotations,
    _order_by_winding,
    _order_by_copies,
    _position_by_smooth,
    _position_by_order,
    _position_by_copies,
)
#: Corrections of answers about patches on a grid, in order.
GRID_CORRECTIONS: tuple[Correction[View], ...] = (
    lambda answers, _: grids.axis_rotations_by_formula(
        answers["axis_rotations"], answers["closed_form"]
    ),
    lambda answers, _: fields.position_by_order(
        answers["absolute_position"], answers["order"]
    ),
)


# The kind of a table that has no parts to name.

KindName: TypeAlias = Literal[
    "formula",
    "similar",
    "opposite",
    "norms",
    "ordered",
    "equal",
    "equally_far",
    "independent",
    "too_few",
    "unknown",
]

#: Absolute mean cosine of neighbours from which they are called similar, or opposite.
MIN_SIMILAR_COSINE = 0.2


def classify_table(answers: Answers) -> KindName:
    """Return what the answers about a stretch say of the order of its rows."""
    order_answer = answers["order"]
    if "closed_form" in answers and answers["closed_form"].yes:
        return "formula"
    if order_answer.reason in {"all_equal", "too_few"}:
        return "equal" if order_answer.reason == "all_equal" else "too_few"
    if order_answer.answer == "cannot tell":
        return "unknown"
    if not order_answer.yes:
        position_facts = answers["absolute_position"].facts
        is_equidistant = getattr(position_facts, "equally_far", False)
        return "equally_far" if is_equidistant else "independent"
    if order_answer.reason in {"norms", "norms_and_wave"}:
        return "norms"
    cosine = order_answer.facts.cosine
    if abs(cosine) >= MIN_SIMILAR_COSINE:
        return "similar" if cosine > 0 else "opposite"
    return "ordered"
