"""What is said of a table of positions on a line."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.questions.order import Order
from posprobe.report.narrator import Template
from posprobe.text import percent, show

#: The questions, as a reader asks them.
ASKS: Mapping[str, str] = {
    "order": "Does the order of positions matter?",
}


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


TEMPLATES: Mapping[tuple[str, str], Template] = {
    ("order", "neighbours"): _neighbours,
    ("order", "wave"): lambda f: f"{_wave(f)}.",
    ("order", "norms"): lambda f: (
        f"{_farther(f)}, but directions show no order: neighbours have {_cosines(f)}."
    ),
    ("order", "norms_and_wave"): lambda f: f"{_farther(f)}. {_wave(f)}.",
    ("order", "none"): lambda f: f"The rows look independent: neighbours have {_cosines(f)}.",
    ("order", "open"): lambda f: f"The evidence is weak: neighbours have {_cosines(f)}.",
    ("order", "small"): lambda f: f"The order shows, but hardly: neighbours have {_cosines(f)}.",
    ("order", "winding"): lambda f: (
        f"Two components go round {f.turns:.1f} times along the table, though neighbours have "
        f"{_cosines(f)}."
    ),
}
