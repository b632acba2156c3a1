"""The headline: what a table is, and where it breaks, in at most sixty words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from posprobe.analyses.facts import Answer, Verdicts
from posprobe.questions.kind import Kind, kind_of
from posprobe.report.narrator import tables
from posprobe.report.narrator.tables import STRAIGHT, components, matches, periods
from posprobe.report.narrator.words import (
    capital,
    listed,
    percent,
    rounded,
    signed,
    some,
    spelled,
    turned,
    two_figures,
)
from posprobe.text import period_of

#: Parts, and places of breaks, that a headline names.
MOST = 3
#: Words of the longest headline; further sentences that do not fit are left out.
LONGEST = 60
#: Share from which a smooth curve is said to hold a table.
MOSTLY = 0.5


def headline(found: Verdicts) -> str:
    """Say what a table is.

    Parameters
    ----------
    found
        Its answers, and those of its other parts.
    """
    main = _of_budget(found)
    told: dict[str, list[str]] = {}
    for part in found.parts:
        if not main or _family(part.answers) != _family(found.answers):
            told.setdefault(clause(part.answers), []).append(f"{part.first}–{part.stop - 1}")
    if not main:
        main = clause(found.answers)
        if not found.whole:
            main = f"positions {found.first}–{found.stop - 1}: {main}"
    alike = told.pop(clause(found.answers), None)
    rest = [f"positions {listed(which, MOST)}: {text}" for text, which in told.items()]
    if alike:
        rest = [f"the same holds for positions {listed(alike, MOST)}", *rest]
    said: list[str] = []
    for each in (main, *_breaks(found), *rest):
        if not said or len(" ".join([*said, each]).split()) <= LONGEST:
            said.append(f"{capital(each)}.")
    return signed(" ".join(said))


def _family(answers: Mapping[str, Answer]) -> str:
    """Return what the budget calls a kind."""
    kind = kind_of(answers).name
    return "rotations" if kind == "series" else kind


def _of_budget(found: Verdicts) -> str:
    """Say how much of the variance that holds which a table mostly is; empty where it is no part.

    The shares are those of the variance budget of the whole table.
    """
    kind = kind_of(found.answers)
    if found.budget is None or kind.name not in {"rotations", "series", "smooth"}:
        return ""
    facts = {name: found.answers[name].facts for name in kind.of}
    smooth = kind.name == "smooth"
    names = {"smooth"} if smooth else {"rotation", "sway"}
    share = sum(each.share for each in found.budget.around_mean() if each.part in names)
    if smooth:
        # The steps of what is told as smooth go on; the model may find it rough beside noise.
        told = f"a smooth curve explains {percent(share)} of the variance{_beside(kind, facts)}"
        return told if share >= MOSTLY else ""
    lines, ladder = facts["rotations"].lines, facts.get("ladder")
    if not lines or (ladder is not None and ladder.series is not None):
        return ""
    one = len(lines) == 1
    noun = "rotation" if all(line.round for line in lines) else "periodic component"
    text = f"a {noun}" if one else f"{noun}s"
    told = listed([period_of(line.period) for line in lines])
    text += f" with {'a period' if one else 'periods'} of {told} positions "
    text += f"explain{'s' if one else ''} {percent(share)} of the variance"
    if ladder is not None:
        text += f"; each period is {ladder.factor:.2g} times the one before"
    return text


def clause(answers: Mapping[str, Answer]) -> str:
    """Say what one stretch is, as a sentence without its full stop."""
    kind = kind_of(answers)
    text = _CLAUSES[kind.name](kind, {name: answers[name].facts for name in kind.of})
    return text.format(rows="patches" if "rows_and_columns" in answers else "rows")


def _breaks(found: Verdicts) -> list[str]:
    """Say where a table breaks, and what else there is in it than what it is."""
    grid = "rows_and_columns" in found.answers
    seams, special = found.answers.get("seams"), found.answers.get("special_rows")
    said = []
    # A stretch of equal rows tells of its own ends.
    ends = {first for first, _ in found.equal} | {last + 1 for _, last in found.equal}
    if found.untrained is not None:  # said below
        ends.add(found.untrained)
    pairs = [pair for pair in seams.value if pair[1] not in ends] if seams and seams.yes else []
    if pairs:
        places = listed([f"{left} and {right}" for left, right in pairs], MOST + 1)
        said.append(f"breaks between positions {places}")
    if special and special.yes:
        zeros = len(special.facts.zeros)
        noun = "patch" if grid else "row"
        counts = {f"outlier {noun}": len(special.value) - zeros, f"{noun} of zeros": zeros}
        plurals = {f"{noun} of zeros": f"{noun}{'es' if grid else 's'} of zeros"}
        has = [some(n, each, plurals.get(each, "")) for each, n in counts.items() if n]
        said.append(f"has {listed(has)}")
    own = (found.first, found.stop - 1)
    if names := [f"{first}–{last}" for first, last in found.equal if (first, last) != own]:
        said.append(f"has equal rows at positions {listed(names, MOST + 1)}")
    sentences = [f"the table {listed(said)}"] if said else []
    if found.untrained is not None:
        text = f"rows from position {found.untrained} on look untrained"
        if (within := found.untrained_interval) and within[0] < within[1]:
            text += f" (95 % interval {within[0]}–{within[1]})"
        sentences.append(text)
    return [*sentences, *([tables.copied(found.copies)] if found.copies else [])]


def _surface(_: Kind, facts: Mapping[str, Any]) -> str:
    smooth = facts["smooth"]
    text = "a smooth surface over the grid"
    if smooth.halves:
        text += f": similarity halves within {two_figures(smooth.length)} patches"
    return text


def _codes(kind: Kind, facts: Mapping[str, Any]) -> str:
    codes = facts["rows_and_columns"]
    summed = f"a {codes.lone} code alone" if codes.lone else "a row code plus a column code"
    held = "it explains" if codes.lone else "together they explain"
    text = f"each patch is {summed}: {held} {percent(codes.share)} of the variance"
    if "axis_rotations" in kind.of:
        rotating = facts["axis_rotations"].rotating
        which = (
            "both codes contain rotations"
            if len(rotating) != 1
            else f"the {rotating[0][:-1]} code contains rotations"
        )
        text += f"; {which}"
    return text


def _rotations(_: Kind, facts: Mapping[str, Any]) -> str:
    found = facts["rotations"]
    ladder = facts.get("ladder")
    if ladder is not None and ladder.series is not None:
        base = rounded(ladder.series.base)
        return f"rotations in a geometric series, like the sinusoid of base {base}"
    if not found.lines:
        return "a sum of many rotations"
    text = f"{components(len(found.lines))} with {periods(found.lines)} "
    text += f"explain{'s' if len(found.lines) == 1 else ''} {percent(found.share)} of the variance"
    return text if ladder is None else f"{text}; the periods form a geometric series"


def _smooth(kind: Kind, facts: Mapping[str, Any]) -> str:
    length = two_figures(facts["smooth"].length)
    text = f"a smooth curve: similarity halves within {length} positions"
    return f"{text}{_beside(kind, facts)}"


def _beside(kind: Kind, facts: Mapping[str, Any]) -> str:
    text = ""
    if "winding" in kind.of:
        text += f", and two components trace {turned(facts['winding'].turns)} of a circle"
    if "rotations" in kind.of:
        text += f"; in addition, {periods(facts['rotations'].lines)}"
    return text


def _order(text: str) -> Callable[[Kind, Mapping[str, Any]], str]:
    return lambda kind, facts: f"{text.format(f=facts.get('order'))}{_beside(kind, facts)}"


_CLAUSES: Mapping[str, Callable[[Kind, Mapping[str, Any]], str]] = {
    "formula": lambda _, facts: matches(facts["closed_form"]),
    "codes": _codes,
    "surface": _surface,
    "series": _rotations,
    "rotations": _rotations,
    "smooth": _smooth,
    "line": lambda *_: STRAIGHT,
    "noisy_line": lambda _, facts: (
        f"a straight line in noise: the line explains {percent(facts['smooth'].straight)} of the "
        "variance"
    ),
    "walk": _order("like a random walk: no smoother than random steps added up"),
    "similar": _order("neighbours are similar (mean cosine {f.cosine:z.2f})"),
    "opposite": _order("neighbours point in opposite directions (mean cosine {f.cosine:z.2f})"),
    "norms": _order(
        "the distance from the mean row changes along the table, while directions show no order"
    ),
    "ordered": _order(
        "order matters, but neighbours are hardly similar (mean cosine {f.cosine:z.2f})"
    ),
    "equal": lambda *_: "all {rows} are equal",
    "equally_far": lambda *_: "any two {rows} are equally far apart",
    "independent": lambda *_: "no structure found: the {rows} look independent",
    "too_few": lambda _, facts: f"{spelled(facts['order'].rows)} {{rows}} are too few to tell",
    "unknown": lambda *_: "whether the order of positions matters cannot be told",
}
