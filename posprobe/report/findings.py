"""Sentences made from the numbers: each beside a null or a reference, none that a null explains.

A number is a finding only where it lies outside the band of every null model, by more than the
band's own width, since a band from few draws is itself uncertain. How often a table drawn from a
null model triggers a sentence all the same is measured by ``tools/false_alarms.py`` and stands in
``docs/analyses.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from posprobe.nulls import NULLS

Document = Mapping[str, Any]

_NAMES = {
    "gaussian": "Gaussian rows",
    "permuted": "permuted rows",
    "walk": "a random walk with the same steps",
    "stationary": "a smooth stationary process",
}


@dataclass(frozen=True)
class Finding:
    """A sentence and the JSON keys of the numbers that it rests on."""

    text: str
    keys: tuple[str, ...]


def findings(document: Document) -> tuple[Finding, ...]:
    """Return what can be said of a table.

    Parameters
    ----------
    document
        The content of ``analysis.json``, its ``nulls`` included. Without draws of the null models
        there is nothing to compare with, and so no finding but seams and special rows.
    """
    return tuple(finding for rule in RULES.values() for finding in rule(document))


def outside(document: Document, key: str) -> str | None:
    """Say whether a number lies ``above`` or ``below`` the bands of all null models, or neither."""
    numbers = document.get("nulls", {}).get("numbers", {}).get(key)
    if numbers is None or numbers["value"] is None:
        return None
    scale = _SCALES.get(key, _identity)
    value = scale(numbers["value"])
    sides = set()
    for null in NULLS:
        band = numbers.get(null)
        if band is None and null == "walk" and "grid" in document:
            continue  # patches have no walk
        if band is None:
            return None
        low, high = sorted((scale(band["p5"]), scale(band["p95"])))
        margin = max(high - low, 1e-3 * max(abs(low), abs(high)))
        sides.add(1 if value > high + margin else -1 if value < low - margin else 0)
    return {frozenset({1}): "above", frozenset({-1}): "below"}.get(frozenset(sides)) or (
        "between" if sides == {-1, 1} else None
    )


def _identity(value: float) -> float:
    return value


def unexplained(value: float) -> float:
    """Map a share of 1 - 10^-k to k: what matters near 1 is what is left."""
    return -math.log10(max(1 - value, 1e-12))


_SCALES: Mapping[str, Callable[[float], float]] = {
    "shift.skill": unexplained,
    "sinusoid.cka": unexplained,
    "sinusoid.ladder_share": unexplained,
    "similarity.raw.translation_invariance": unexplained,
}


def _beside(document: Document, key: str, *nulls: str, sinusoid: bool = False) -> str:
    numbers = document["nulls"]["numbers"][key]
    parts = [
        f"{_NAMES[null]} {_show(numbers[null]['p50'])}"
        for null in nulls
        if numbers[null] is not None
    ]
    if sinusoid and numbers["sinusoid"] is not None:
        parts.append(f"the sinusoid {_show(numbers['sinusoid'])}")
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _show(value: float) -> str:
    if abs(value) >= 10:
        return f"{value:.3g}"
    # Near 1 it is the distance from 1 that tells numbers apart. There is no -0.00.
    digits = 3 if 0.95 < abs(value) < 1.05 else 2
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _value(document: Document, key: str) -> float:
    return float(document["nulls"]["numbers"][key]["value"])


def _neighbours(document: Document) -> Iterator[Finding]:
    key = "similarity.centered.neighbour_mean"
    if outside(document, key) is not None:
        beside = _beside(document, key, "permuted", "walk", sinusoid=True)
        yield Finding(
            f"Neighbouring positions have mean centred cosine {_show(_value(document, key))}; "
            f"{beside}.",
            (key, f"nulls.numbers.{key}"),
        )


def _invariance(document: Document) -> Iterator[Finding]:
    key = "similarity.raw.translation_invariance"
    if outside(document, key) == "above":
        beside = _beside(document, key, "walk", "stationary", sinusoid=True)
        yield Finding(
            f"The offset alone explains {_show(_value(document, key))} of the variance of the "
            f"cosines (1 is a sinusoid's invariance); {beside}.",
            (key, f"nulls.numbers.{key}"),
        )


def _rotations(document: Document) -> Iterator[Finding]:
    key = "shift.skill"
    shift = document.get("shift", {})
    periods = shift.get("rotations") or ()
    if outside(document, key) == "above" and periods:
        shown = ", ".join(f"{period:.3g}" for period in periods[:6])
        more = f" and {len(periods) - 6} more" if len(periods) > 6 else ""
        subject = (
            f"One rotation with period {shown} predicts"
            if len(periods) == 1
            else f"{len(periods)} rotations with periods {shown}{more} predict"
        )
        beside = _beside(document, key, "walk", "stationary", sinusoid=True)
        yield Finding(
            f"{subject} the next position with held-out skill "
            f"{_show(_value(document, key))}; {beside}.",
            ("shift.rotations", key, f"nulls.numbers.{key}"),
        )


def _sinusoid(document: Document) -> Iterator[Finding]:
    key = "sinusoid.cka"
    if outside(document, key) == "above":
        beside = _beside(document, key, "walk", "stationary")
        yield Finding(
            f"The table is closer to the sinusoid of its shape than any null is: debiased CKA "
            f"{_show(_value(document, key))}; {beside}.",
            (key, f"nulls.numbers.{key}"),
        )


def _seams(document: Document) -> Iterator[Finding]:
    seams = document.get("seams", {})
    for (left, right), reason in zip(
        seams.get("between") or (), seams.get("reasons") or (), strict=True
    ):
        yield Finding(
            f"There is a seam between positions {left} and {right}: {reason}.",
            ("seams.between", "seams.reasons"),
        )


def _special(document: Document) -> Iterator[Finding]:
    special = (document.get("seams", {}).get("special")) or ()
    if special:
        rows = ", ".join(str(row["row"]) for row in special[:8])
        more = f" and {len(special) - 8} more" if len(special) > 8 else ""
        first = special[0]
        yield Finding(
            f"{'Position' if len(special) == 1 else 'Positions'} {rows}{more} "
            f"{'is unlike its' if len(special) == 1 else 'are unlike their'} neighbours; "
            f"{first['row']} is {first['reason']}.",
            ("seams.special",),
        )


#: Every rule by name, for the measurement of false alarms.
RULES: Mapping[str, Callable[[Document], Iterator[Finding]]] = {
    "neighbours": _neighbours,
    "invariance": _invariance,
    "rotations": _rotations,
    "sinusoid": _sinusoid,
    "seams": _seams,
    "special": _special,
}
