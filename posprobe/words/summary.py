"""The headline: what a table is, and where it breaks, in at most sixty words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posprobe.analyses.facts import Answer, Verdicts
from posprobe.questions.corrections import classify_table
from posprobe.text import format_period
from posprobe.words import TEXTS
from posprobe.words.formats import (
    Template,
    Words,
    capital,
    listed,
    percent,
    rounded,
    signed,
    some,
    turned,
)
from posprobe.words.tables import components, copied, matches, periods

#: Parts, and places of breaks, that a headline names.
MAX_NAMED_TERMS = 3
#: Words of the longest headline; further sentences that do not fit are left out.
MAX_HEADLINE_WORDS = 60
#: Share from which a smooth curve is said to hold a table.
MOSTLY = 0.5


def headline(verdicts: Verdicts) -> str:
    """Say what a table is.

    Parameters
    ----------
    verdicts
        Its answers, and those of its other parts.
    """
    main = _of_budget(verdicts)
    positions_by_clause: dict[str, list[str]] = {}
    for part in verdicts.parts:
        if not main or _family(part.answers) != _family(verdicts.answers):
            positions_by_clause.setdefault(clause(part.answers), []).append(
                f"{part.first}–{part.stop - 1}"
            )
    if not main:
        main = clause(verdicts.answers)
        if not verdicts.whole:
            main = f"positions {verdicts.first}–{verdicts.stop - 1}: {main}"
    shared_positions = positions_by_clause.pop(clause(verdicts.answers), None)
    rest = [
        f"positions {listed(positions, MAX_NAMED_TERMS)}: {text}"
        for text, positions in positions_by_clause.items()
    ]
    if shared_positions:
        rest = [f"the same holds for positions {listed(shared_positions, MAX_NAMED_TERMS)}", *rest]
    clauses: list[str] = []
    for clause_text in (main, *_breaks(verdicts), *rest):
        if not clauses or len(" ".join([*clauses, clause_text]).split()) <= MAX_HEADLINE_WORDS:
            clauses.append(f"{capital(clause_text)}.")
    return signed(" ".join(clauses))


def _family(answers: Mapping[str, Answer]) -> str:
    """Return what the budget calls a kind."""
    kind = classify_table(answers).name
    return "rotations" if kind == "series" else kind


def _of_budget(verdicts: Verdicts) -> str:
    """Say how much of the variance that holds which a table mostly is; empty where it is no part.

    The shares are those of the variance budget of the whole table.
    """
    kind = classify_table(verdicts.answers)
    if verdicts.budget is None or kind.name not in {"rotations", "series", "smooth"}:
        return ""
    facts = {name: verdicts.answers[name].facts for name in kind.of}
    smooth = kind.name == "smooth"
    names = {"smooth"} if smooth else {"rotation", "sway"}
    share = sum(part.share for part in verdicts.budget.around_mean() if part.part in names)
    if smooth:
        # The steps of what is told as smooth go on; the model may find it rough beside noise.
        sentence = f"a smooth curve explains {percent(share)} of the variance{_beside(facts)}"
        return sentence if share >= MOSTLY else ""
    lines, ladder = facts["rotations"].lines, facts.get("ladder")
    if not lines or (ladder is not None and ladder.series is not None):
        return ""
    is_single = len(lines) == 1
    noun = "rotation" if all(line.is_circular for line in lines) else "periodic component"
    text = f"a {noun}" if is_single else f"{noun}s"
    sentence = listed([format_period(line.period) for line in lines])
    text += f" with {'a period' if is_single else 'periods'} of {sentence} positions "
    text += f"explain{'s' if is_single else ''} {percent(share)} of the variance"
    if ladder is not None:
        text += f"; each period is {ladder.factor:.2g} times the one before"
    return text


def clause(answers: Mapping[str, Answer]) -> str:
    """Say what one stretch is, as a sentence without its full stop."""
    kind = classify_table(answers)
    facts = {name: answers[name].facts for name in kind.of}
    rows = "patches" if "rows_and_columns" in answers else "rows"
    words = Words({**TEXTS["kinds"]["parts"], **_PARTS}, rows=rows, f=facts, **facts)
    return words.format(TEXTS["kinds"][kind.name])


def _breaks(verdicts: Verdicts) -> list[str]:
    """Say where a table breaks, and what else there is in it than what it is."""
    grid = "rows_and_columns" in verdicts.answers
    seams, special = verdicts.answers.get("seams"), verdicts.answers.get("special_rows")
    clauses = []
    # A stretch of equal rows tells of its own ends.
    ends = {first for first, _ in verdicts.equal} | {last + 1 for _, last in verdicts.equal}
    if verdicts.untrained is not None:  # said below
        ends.add(verdicts.untrained)
    pairs = [pair for pair in seams.value if pair[1] not in ends] if seams and seams.yes else []
    if pairs:
        places = listed([f"{left} and {right}" for left, right in pairs], MAX_NAMED_TERMS + 1)
        clauses.append(f"breaks between positions {places}")
    if special and special.yes:
        zeros = len(special.facts.zeros)
        noun = "patch" if grid else "row"
        counts = {f"outlier {noun}": len(special.value) - zeros, f"{noun} of zeros": zeros}
        plurals = {f"{noun} of zeros": f"{noun}{'es' if grid else 's'} of zeros"}
        has = [some(n, noun, plurals.get(noun, "")) for noun, n in counts.items() if n]
        clauses.append(f"has {listed(has)}")
    own_range = (verdicts.first, verdicts.stop - 1)
    if names := [f"{first}–{last}" for first, last in verdicts.equal if (first, last) != own_range]:
        clauses.append(f"has equal rows at positions {listed(names, MAX_NAMED_TERMS + 1)}")
    sentences = [f"the table {listed(clauses)}"] if clauses else []
    if verdicts.untrained is not None:
        text = f"rows from position {verdicts.untrained} on look untrained"
        if (untrained := verdicts.untrained_interval) and untrained[0] < untrained[1]:
            text += f" (95 % interval {untrained[0]}–{untrained[1]})"
        sentences.append(text)
    return [*sentences, *([copied(verdicts.copies)] if verdicts.copies else [])]


def _codes(facts: Mapping[str, Any]) -> str:
    codes = facts["rows_and_columns"]
    summed = f"a {codes.lone} code alone" if codes.lone else "a row code plus a column code"
    predicate = "it explains" if codes.lone else "together they explain"
    return f"each patch is {summed}: {predicate} {percent(codes.share)} of the variance"


def _turning(facts: Mapping[str, Any]) -> str:
    """Return the part that says which codes rotate."""
    if "axis_rotations" not in facts:
        return ""
    rotating = facts["axis_rotations"].rotating
    return rotating[0].removesuffix("s") if len(rotating) == 1 else "both"


def _rotations(facts: Mapping[str, Any]) -> str:
    rotations, ladder = facts["rotations"], facts.get("ladder")
    if ladder is not None and ladder.series is not None:
        base = rounded(ladder.series.base)
        return f"rotations in a geometric series, like the sinusoid of base {base}"
    if not rotations.lines:
        return "a sum of many rotations"
    text = f"{components(len(rotations.lines))} with {periods(rotations.lines)} "
    verb = "explains" if len(rotations.lines) == 1 else "explain"
    text += f"{verb} {percent(rotations.share)} of the variance"
    return text if ladder is None else f"{text}; the periods form a geometric series"


def _beside(facts: Mapping[str, Any]) -> str:
    text = ""
    if "winding" in facts:
        text += f", and two components trace {turned(facts['winding'].turns)} of a circle"
    if "rotations" in facts:
        text += f"; in addition, {periods(facts['rotations'].lines)}"
    return text


#: From the facts of a kind, the parts of its clause that must choose.
_PARTS: Mapping[str, Template] = {
    "matches": lambda facts: matches(facts["closed_form"]),
    "codes": _codes,
    "turning": _turning,
    "halves": lambda facts: "similarity" if facts["smooth"].halves else "",
    "rotating": _rotations,
    "beside": _beside,
}
