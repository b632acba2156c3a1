"""What is said of a table of positions on a line."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.number_format import show
from posprobe.questions.absolute_position import AbsolutePosition
from posprobe.questions.low_dimensional import LowDimensional
from posprobe.questions.order import Order
from posprobe.questions.smooth import Smooth
from posprobe.report.narrator import Template
from posprobe.report.narrator.causes import copied
from posprobe.report.narrator.rotations import turned
from posprobe.report.narrator.words import capital, percent, some, two_figures

#: What is said of a table that is nothing else.
STRAIGHT = "a straight line along which positions are evenly spaced"
#: Mean cosine from which steps that are no smoother than a walk's are said to be opposed.
OPPOSED = -0.2
#: Share of its variance below which distance is said to explain just that much of similarity.
MOSTLY = 0.9


def _cosines(f: Order) -> str:
    return f"a mean cosine of {f.cosine:z.2f} ({f.chance:z.2f} in random order)"


def _wave(f: Order) -> str:
    return (
        f"A wave with a period of {show(f.period)} positions explains {percent(f.share)} of the "
        f"variance of the directions ({percent(f.typical)} in random order)"
    )


def _farther(f: Order) -> str:
    return (
        f"Positions in one quarter of the table are {f.farther:.2g} times as far from the mean as "
        "in another"
    )


def _neighbours(f: Order) -> str:
    side = "more" if f.cosine > f.chance else "less"
    return f"Neighbouring positions are {side} similar than chance: they have {_cosines(f)}."


def _order_small(f: Order) -> str:
    return (
        f"The effect of order is significant but small: neighbours have {_cosines(f)}. The "
        f"strongest wave explains {percent(f.share)} of the variance of the directions "
        f"({percent(f.typical)} in random order)."
    )


def _steps(f: Smooth) -> str:
    return "Consecutive steps" if f.stride == 1 else f"Consecutive {f.stride}-position steps"


def _alike(f: Smooth) -> str:
    return f"mean cosine {f.cosine:z.2f}; random walk 0"


def _told_cosine(f: Smooth) -> str:
    return f"{_steps(f).lower()} have a mean cosine of {f.cosine:z.2f} (random walk 0)"


def _curve(f: Smooth) -> str:
    text = f"{_steps(f)} point in similar directions ({_alike(f)})."
    if 0 < f.length < f.rows - 1:
        text += f" Similarity halves within {two_figures(f.length)} positions."
    return text


def _not_smooth(f: Smooth) -> str:
    if f.cosine <= OPPOSED:
        return f"{_steps(f)} point in opposite directions ({_alike(f)})."
    return f"{_steps(f)} are no more similar than those of a random walk ({_alike(f)})."


def _recovered(f: Smooth) -> str:
    return (
        f"Across gaps of {some(f.gap or 0, 'position')}, periodic components predict the missing "
        f"rows better (R² {f.waves:z.2f}) than the best smooth curve (R² {f.curve:z.2f})."
    )


#: Where the table is seen to differ by place, by the sign of it.
_PLACES: Mapping[str, str] = {
    "products": "At one distance, similarity differs from place to place.",
    "norms": "Positions are farther from the mean in some regions than in others.",
    "speed": "The table changes faster in some regions than in others.",
    "mirrored": "Positions equally far before and after some place are more similar than their "
    "distance explains.",
    "opposed": "Positions equally far before and after some place are less similar than their "
    "distance explains.",
}
_EXPLAINED: Mapping[str, str] = {
    "products": "distance leaves {0} of the squared similarity unexplained",
    "norms": "a slow trend explains {0} of the variance of the ranked distances from the mean",
    "speed": "a slow trend explains {0} of the variance of the ranked step sizes",
    "mirrored": "pairs mirrored at one place account for {0} of the squared similarity",
    "opposed": "pairs mirrored at one place account for {0} of the squared similarity",
}


def _explained(f: AbsolutePosition) -> str:
    text = _EXPLAINED[f.place.sign].format(percent(f.place.share))
    return f"{text} ({percent(f.place.typical)} in stationary random tables)"


def _place(f: AbsolutePosition) -> str:
    return f"{_PLACES[f.place.sign]} {capital(_explained(f))}."


def _bounded(f: AbsolutePosition) -> str:
    text = "Similarity is consistent with depending on distance only"
    if f.invariance is None:
        return f"{text}."
    share = f"{percent(max(f.invariance, 0.0))} of its variance"
    if f.invariance < MOSTLY:
        return f"{text}, though distance explains only {share}."
    return f"{text}: distance explains {share}."


def _beside_a_walk(f: AbsolutePosition) -> str:
    return f"its variance is {f.variance_ratio:.2g} times that of a walk with the same steps"


def _components(f: LowDimensional) -> str:
    explain = "component explains" if f.directions == 1 else "components explain"
    return f"{f.directions} {explain} 90 % of the variance."


def _dimension(f: LowDimensional) -> str:
    apart = f" (one row in {f.every})" if f.every > 1 else ""
    return f"the effective dimension{apart}"


def _fewer(f: LowDimensional) -> str:
    text = f"{_dimension(f)} is {two_figures(f.participation)}"
    expected = two_figures(f.expected)
    return f"{_components(f)} {capital(text)}; equally smooth random tables have {expected}."


def _against_smooth(f: LowDimensional) -> str:
    return (
        f"{two_figures(f.participation)}; {two_figures(f.expected)} in equally smooth random tables"
    )


TEMPLATES: Mapping[tuple[str, str], Template] = {
    ("order", "neighbours"): _neighbours,
    ("order", "wave"): lambda f: f"{_wave(f)}.",
    ("order", "norms"): lambda f: (
        f"{_farther(f)}, but directions show no order: neighbours have {_cosines(f)}."
    ),
    ("order", "norms_and_wave"): lambda f: f"{_farther(f)}. {_wave(f)}.",
    ("order", "none"): lambda f: f"The rows look independent: neighbours have {_cosines(f)}.",
    ("order", "open"): lambda f: f"The evidence is weak: neighbours have {_cosines(f)}.",
    ("order", "small"): _order_small,
    ("order", "winding"): lambda f: (
        f"Two components make {turned(f.turns)} along the table, though neighbours have "
        f"{_cosines(f)}."
    ),
    ("order", "copies"): lambda f: (
        f"{capital(copied(f.copies))}, though neighbours have {_cosines(f)}."
    ),
    ("smooth", "curve"): _curve,
    ("smooth", "line"): lambda f: (
        f"Evenly spaced points on a straight line explain {percent(f.straight)} of the variance."
    ),
    ("smooth", "noisy_line"): lambda f: (
        f"A straight line explains {percent(f.straight)} of the variance, and what is left shows "
        "no order."
    ),
    ("smooth", "small"): lambda f: f"The effect is significant but small: {_told_cosine(f)}.",
    ("smooth", "not_smooth"): _not_smooth,
    ("smooth", "open"): lambda f: f"The evidence is weak: {_told_cosine(f)}.",
    ("smooth", "rotations"): _recovered,
    ("absolute_position", "exact"): (
        "Up to rounding, the distance of two rows depends only on that of their positions."
    ),
    ("absolute_position", "equally_far"): "Any two rows are equally far apart.",
    ("absolute_position", "bounded"): _bounded,
    ("absolute_position", "small"): lambda f: (
        f"The effect of absolute position is significant but small: {_explained(f)}."
    ),
    **{
        ("absolute_position", f"place_{sign}"): _place
        for sign in ("products", "norms", "speed", "mirrored", "opposed")
    },
    ("absolute_position", "slow"): (
        "Part of the table changes too slowly to tell whether it drifts or returns."
    ),
    ("absolute_position", "maybe_place"): lambda f: f"The evidence is weak: {_explained(f)}.",
    ("absolute_position", "wanders"): lambda f: (
        f"The table wanders like a random walk: {_beside_a_walk(f)}."
    ),
    ("absolute_position", "few_steps"): lambda f: (
        "There are too few independent steps to tell the table from a random walk: "
        f"{_beside_a_walk(f)}."
    ),
    ("absolute_position", "straight_line"): (
        "Positions lie along a straight line: their similarity depends on where on it they are."
    ),
    ("absolute_position", "unordered"): "Not applicable: the rows look independent.",
    ("absolute_position", "unordered_open"): lambda f: (
        f"The rows look independent, yet {_explained(f)}."
    ),
    ("absolute_position", "order_open"): (
        "Similarity is consistent with depending on distance only, whether or not order matters."
    ),
    ("absolute_position", "copies"): lambda f: (
        f"{capital(copied(f.copies))}, which distance alone does not explain."
    ),
    ("absolute_position", "zeros"): ("Some rows are zero, which distance alone does not explain."),
    ("low_dimensional", "fewer"): _fewer,
    ("low_dimensional", "small"): lambda f: (
        f"{capital(_dimension(f))} is only slightly low ({_against_smooth(f)})."
    ),
    ("low_dimensional", "not_fewer"): lambda f: (
        f"{capital(_dimension(f))} is not unusually low ({_against_smooth(f)})."
    ),
    ("low_dimensional", "open"): lambda f: (
        f"The evidence is weak: {_dimension(f)} is {_against_smooth(f)}."
    ),
    ("low_dimensional", "slow"): lambda f: (
        f"{_components(f)} The table changes too slowly to compare this with random tables."
    ),
    ("low_dimensional", "few_columns"): "Too few columns to tell ({f.columns}).",
}
