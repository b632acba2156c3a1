"""The headline: what a table is, and where it breaks, in at most sixty words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posprobe.analyses.facts import Answer, Verdicts
from posprobe.questions.corrections import classify_table
from posprobe.text import format_period
from posprobe.words import ANSWER_TEXTS
from posprobe.words.formats import (
    Template,
    TemplateFormatter,
    capitalise,
    format_count,
    format_rounded,
    format_turns,
    format_whole_percent,
    join_words,
    write_minus_signs,
)
from posprobe.words.tables import components_phrase, copies_clause, formula_clause, periods_phrase

#: Parts, and places of breaks, that a headline names.
MAX_NAMED_TERMS = 3
#: Words of the longest headline; further sentences that do not fit are left out.
MAX_HEADLINE_WORDS = 60
#: Share from which a smooth curve is said to hold a table.
MIN_CURVE_SHARE = 0.5


def table_headline(verdicts: Verdicts) -> str:
    """Say what a table is.

    Parameters
    ----------
    verdicts
        Its answers, and those of its other parts.
    """
    main_clause = _budget_clause(verdicts)
    positions_by_clause: dict[str, list[str]] = {}
    for stretch in verdicts.parts:
        if not main_clause or _budget_kind(stretch.answers) != _budget_kind(verdicts.answers):
            positions_by_clause.setdefault(kind_clause(stretch.answers), []).append(
                f"{stretch.first}–{stretch.stop - 1}"
            )
    if not main_clause:
        main_clause = kind_clause(verdicts.answers)
        if not verdicts.whole:
            main_clause = f"positions {verdicts.first}–{verdicts.stop - 1}: {main_clause}"
    shared_positions = positions_by_clause.pop(kind_clause(verdicts.answers), None)
    part_clauses = [
        f"positions {join_words(positions, MAX_NAMED_TERMS)}: {text}"
        for text, positions in positions_by_clause.items()
    ]
    if shared_positions:
        part_clauses = [
            f"the same holds for positions {join_words(shared_positions, MAX_NAMED_TERMS)}",
            *part_clauses,
        ]
    clauses: list[str] = []
    for clause_text in (main_clause, *_extra_clauses(verdicts), *part_clauses):
        if not clauses or len(" ".join([*clauses, clause_text]).split()) <= MAX_HEADLINE_WORDS:
            clauses.append(f"{capitalise(clause_text)}.")
    return write_minus_signs(" ".join(clauses))


def _budget_kind(answers: Mapping[str, Answer]) -> str:
    """Return what the budget calls a kind."""
    kind = classify_table(answers).name
    return "rotations" if kind == "series" else kind


def _budget_clause(verdicts: Verdicts) -> str:
    """Say how much of the variance that holds which a table mostly is; empty where it is no part.

    The shares are those of the variance budget of the whole table.
    """
    kind = classify_table(verdicts.answers)
    if verdicts.budget is None or kind.name not in {"rotations", "series", "smooth"}:
        return ""
    facts = {name: verdicts.answers[name].facts for name in kind.of}
    is_smooth = kind.name == "smooth"
    names = {"smooth"} if is_smooth else {"rotation", "sway"}
    share = sum(part.share for part in verdicts.budget.around_mean() if part.part in names)
    if is_smooth:
        # The steps of what is told as smooth go on; the model may find it rough beside noise.
        sentence = f"a smooth curve explains {format_whole_percent(share)} of the variance{_added_clause(facts)}"
        return sentence if share >= MIN_CURVE_SHARE else ""
    lines, ladder = facts["rotations"].lines, facts.get("ladder")
    if not lines or (ladder is not None and ladder.series is not None):
        return ""
    is_single = len(lines) == 1
    noun = "rotation" if all(line.is_circular for line in lines) else "periodic component"
    text = f"a {noun}" if is_single else f"{noun}s"
    sentence = join_words([format_period(line.period) for line in lines])
    text += f" with {'a period' if is_single else 'periods'} of {sentence} positions "
    text += f"explain{'s' if is_single else ''} {format_whole_percent(share)} of the variance"
    if ladder is not None:
        text += f"; each period is {ladder.factor:.2g} times the one before"
    return text


def kind_clause(answers: Mapping[str, Answer]) -> str:
    """Say what one stretch is, as a sentence without its full stop."""
    kind = classify_table(answers)
    facts = {name: answers[name].facts for name in kind.of}
    rows = "patches" if "rows_and_columns" in answers else "rows"
    words = TemplateFormatter(
        {**ANSWER_TEXTS["kinds"]["parts"], **_KIND_PARTS}, rows=rows, f=facts, **facts
    )
    return words.format(ANSWER_TEXTS["kinds"][kind.name])


def _extra_clauses(verdicts: Verdicts) -> list[str]:
    """Say where a table breaks, and what else there is in it than what it is."""
    is_grid = "rows_and_columns" in verdicts.answers
    seams_answer, outliers_answer = (
        verdicts.answers.get("seams"),
        verdicts.answers.get("special_rows"),
    )
    clauses = []
    # A stretch of equal rows tells of its own ends.
    ends = {first for first, _ in verdicts.equal} | {last + 1 for _, last in verdicts.equal}
    if verdicts.untrained is not None:  # said below
        ends.add(verdicts.untrained)
    pairs = (
        [pair for pair in seams_answer.value if pair[1] not in ends]
        if seams_answer and seams_answer.yes
        else []
    )
    if pairs:
        pairs_text = join_words(
            [f"{left} and {right}" for left, right in pairs], MAX_NAMED_TERMS + 1
        )
        clauses.append(f"breaks between positions {pairs_text}")
    if outliers_answer and outliers_answer.yes:
        n_zeros = len(outliers_answer.facts.zeros)
        noun = "patch" if is_grid else "row"
        counts = {
            f"outlier {noun}": len(outliers_answer.value) - n_zeros,
            f"{noun} of zeros": n_zeros,
        }
        plurals = {f"{noun} of zeros": f"{noun}{'es' if is_grid else 's'} of zeros"}
        has = [format_count(n, noun, plurals.get(noun, "")) for noun, n in counts.items() if n]
        clauses.append(f"has {join_words(has)}")
    main_range = (verdicts.first, verdicts.stop - 1)
    if names := [
        f"{first}–{last}" for first, last in verdicts.equal if (first, last) != main_range
    ]:
        clauses.append(f"has equal rows at positions {join_words(names, MAX_NAMED_TERMS + 1)}")
    sentences = [f"the table {join_words(clauses)}"] if clauses else []
    if verdicts.untrained is not None:
        text = f"rows from position {verdicts.untrained} on look untrained"
        if (untrained := verdicts.untrained_interval) and untrained[0] < untrained[1]:
            text += f" (95 % interval {untrained[0]}–{untrained[1]})"
        sentences.append(text)
    return [*sentences, *([copies_clause(verdicts.copies)] if verdicts.copies else [])]


def _codes_clause(facts: Mapping[str, Any]) -> str:
    codes = facts["rows_and_columns"]
    summed = f"a {codes.lone} code alone" if codes.lone else "a row code plus a column code"
    predicate = "it explains" if codes.lone else "together they explain"
    return (
        f"each patch is {summed}: {predicate} {format_whole_percent(codes.share)} of the variance"
    )


def _rotating_codes(facts: Mapping[str, Any]) -> str:
    """Return the part that says which codes rotate."""
    if "axis_rotations" not in facts:
        return ""
    rotating = facts["axis_rotations"].rotating
    return rotating[0].removesuffix("s") if len(rotating) == 1 else "both"


def _rotations_clause(facts: Mapping[str, Any]) -> str:
    rotations, ladder = facts["rotations"], facts.get("ladder")
    if ladder is not None and ladder.series is not None:
        base = format_rounded(ladder.series.base)
        return f"rotations in a geometric series, like the sinusoid of base {base}"
    if not rotations.lines:
        return "a sum of many rotations"
    text = f"{components_phrase(len(rotations.lines))} with {periods_phrase(rotations.lines)} "
    verb = "explains" if len(rotations.lines) == 1 else "explain"
    text += f"{verb} {format_whole_percent(rotations.share)} of the variance"
    return text if ladder is None else f"{text}; the periods form a geometric series"


def _added_clause(facts: Mapping[str, Any]) -> str:
    text = ""
    if "winding" in facts:
        text += f", and two components trace {format_turns(facts['winding'].turns)} of a circle"
    if "rotations" in facts:
        text += f"; in addition, {periods_phrase(facts['rotations'].lines)}"
    return text


#: From the facts of a kind, the parts of its clause that must choose.
_KIND_PARTS: Mapping[str, Template] = {
    "matches": lambda facts: formula_clause(facts["closed_form"]),
    "codes": _codes_clause,
    "turning": _rotating_codes,
    "halves": lambda facts: "similarity" if facts["smooth"].halves else "",
    "rotating": _rotations_clause,
    "beside": _added_clause,
}
