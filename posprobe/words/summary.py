"""Headline of a table: its kind and its seams, in at most sixty words."""

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
from posprobe.words.tables import (
    components_phrase,
    copies_clause,
    formula_clause,
    periods_phrase,
)

#: Largest number of stretches, and of seams, that a headline names.
MAX_NAMED_TERMS = 3
#: Largest number of words in a headline; sentences that do not fit are left out.
MAX_HEADLINE_WORDS = 60
#: Smallest share of the variance at which a smooth curve is the headline.
MIN_CURVE_SHARE = 0.5


def table_headline(verdicts: Verdicts) -> str:
    """Return the headline of a table.

    Parameters
    ----------
    verdicts
        Answers about the table, and about its other stretches.
    """
    main_clause = _budget_clause(verdicts)
    positions_by_clause: dict[str, list[str]] = {}
    for stretch in verdicts.other_stretches:
        if not main_clause or _budget_kind(stretch.answers) != _budget_kind(verdicts.answers):
            positions_by_clause.setdefault(kind_clause(stretch.answers), []).append(
                f"{stretch.first}–{stretch.stop - 1}"
            )
    if not main_clause:
        main_clause = kind_clause(verdicts.answers)
        if not verdicts.is_whole:
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
    """Return the name of the kind of a table in the budget."""
    kind = classify_table(answers).name
    return "rotations" if kind == "series" else kind


def _budget_clause(verdicts: Verdicts) -> str:
    """Return a clause on the share of the main term of a table in its variance budget.

    It is empty where the kind of the table is no term of the budget.
    """
    kind = classify_table(verdicts.answers)
    if verdicts.budget is None or kind.name not in {"rotations", "series", "smooth"}:
        return ""
    facts = {name: verdicts.answers[name].facts for name in kind.questions}
    is_smooth = kind.name == "smooth"
    names = {"smooth"} if is_smooth else {"rotation", "sway"}
    share = sum(part.share for part in verdicts.budget.around_mean() if part.part in names)
    if is_smooth:
        # A table whose steps go on is called smooth; in noise, the budget may still find it rough.
        if share < MIN_CURVE_SHARE:
            return ""
        share_text = format_whole_percent(share)
        return f"a smooth curve explains {share_text} of the variance{_added_clause(facts)}"
    lines, ladder = facts["rotations"].lines, facts.get("ladder")
    if not lines or (ladder is not None and ladder.series is not None):
        return ""
    is_single = len(lines) == 1
    noun = "rotation" if all(line.is_circular for line in lines) else "periodic component"
    text = f"a {noun}" if is_single else f"{noun}s"
    periods = join_words([format_period(line.period) for line in lines])
    text += f" with {'a period' if is_single else 'periods'} of {periods} positions "
    text += f"explain{'s' if is_single else ''} {format_whole_percent(share)} of the variance"
    if ladder is not None:
        text += f"; each period is {ladder.factor:.2g} times the one before"
    return text


def kind_clause(answers: Mapping[str, Answer]) -> str:
    """Return a clause on the kind of a stretch, as a sentence without its full stop."""
    kind = classify_table(answers)
    facts = {name: answers[name].facts for name in kind.questions}
    rows = "patches" if "rows_and_columns" in answers else "rows"
    texts = ANSWER_TEXTS["kinds"]
    parts = {**texts["parts"], **_KIND_PARTS}
    return TemplateFormatter(parts, rows=rows, f=facts, **facts).format(texts[kind.name])


def _seam_pairs(verdicts: Verdicts) -> list[list[int]]:
    """Return the seams that no other clause mentions, as pairs of positions."""
    seams_answer = verdicts.answers.get("seams")
    if not (seams_answer and seams_answer.yes):
        return []
    # The clause on equal rows mentions their ends, and so does that on untrained rows.
    ends = {first for first, _ in verdicts.equal} | {last + 1 for _, last in verdicts.equal}
    if verdicts.untrained is not None:
        ends.add(verdicts.untrained)
    return [pair for pair in seams_answer.value if pair[1] not in ends]


def _extra_clauses(verdicts: Verdicts) -> list[str]:
    """Return clauses on seams, outliers, equal, untrained and copied rows."""
    is_grid = "rows_and_columns" in verdicts.answers
    outliers_answer = verdicts.answers.get("special_rows")
    clauses = []
    if pairs := [f"{left} and {right}" for left, right in _seam_pairs(verdicts)]:
        clauses.append(f"breaks between positions {join_words(pairs, MAX_NAMED_TERMS + 1)}")
    if outliers_answer and outliers_answer.yes:
        n_zeros = len(outliers_answer.facts.zeros)
        noun = "patch" if is_grid else "row"
        counts = {
            f"outlier {noun}": len(outliers_answer.value) - n_zeros,
            f"{noun} of zeros": n_zeros,
        }
        plurals = {f"{noun} of zeros": f"{noun}{'es' if is_grid else 's'} of zeros"}
        texts = [
            format_count(n, name, plurals.get(name, "")) for name, n in counts.items() if n
        ]
        clauses.append(f"has {join_words(texts)}")
    main_range = (verdicts.first, verdicts.stop - 1)
    equal_ranges = [rows for rows in verdicts.equal if rows != main_range]
    if names := [f"{first}–{last}" for first, last in equal_ranges]:
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
    share = f"{format_whole_percent(codes.share)} of the variance"
    if codes.lone:
        return f"each patch is a {codes.lone} code alone: it explains {share}"
    return f"each patch is a row code plus a column code: together they explain {share}"


def _rotating_codes(facts: Mapping[str, Any]) -> str:
    """Return the name of the part about the codes that rotate."""
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
        text += (
            f", and two components trace {format_turns(facts['winding'].turns)} of a circle"
        )
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
