"""Headline of a table: its parts by size, a property, its breaks, in at most sixty words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from posprobe.analyses.composition.ledger import Share
from posprobe.analyses.facts import Answer, Verdicts
from posprobe.questions.corrections import classify_table
from posprobe.questions.rank_tests import MIN_EFFECT_SHARE
from posprobe.text import format_period
from posprobe.words import ANSWER_TEXTS
from posprobe.words.formats import (
    Template,
    TemplateFormatter,
    capitalise,
    format_count,
    format_rounded,
    format_whole_percent,
    join_words,
    write_minus_signs,
)
from posprobe.words.tables import (
    copies_clause,
    formula_clause,
)

#: Largest number of stretches, and of seams, that a headline names.
MAX_NAMED_TERMS = 3
#: Largest number of words in a headline; sentences that do not fit are left out.
MAX_HEADLINE_WORDS = 60
#: Smallest share of the variance of a part that a headline names beside the largest.
MIN_NAMED_SHARE = 0.15
#: Largest number of periods in a headline.
MAX_NAMED_PERIODS = 6
#: Parts that are named as one, by the name of the group.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "rotations": ("rotation", "sway"),
    "codes": ("rows", "columns"),
    "curves": ("smooth", "slow"),
}


def table_headline(verdicts: Verdicts) -> str:
    """Return the headline of a table: its largest parts, one property, breaks and outliers.

    Parameters
    ----------
    verdicts
        Answers about the table, and about its other stretches.
    """
    main_clause = composition_clause(verdicts.answers, verdicts.parts)
    if not verdicts.parts and not verdicts.is_whole:
        main_clause = f"positions {verdicts.first}–{verdicts.stop - 1}: {main_clause}"
    main_group = _largest_group(verdicts.parts)
    positions_by_clause: dict[str, list[str]] = {}
    for stretch in verdicts.other_stretches:
        if not main_group or _largest_group(stretch.parts) != main_group:
            clause_text = composition_clause(stretch.answers, stretch.parts)
            positions_by_clause.setdefault(clause_text, []).append(
                f"{stretch.first}–{stretch.stop - 1}"
            )
    part_clauses = [
        f"positions {join_words(positions, MAX_NAMED_TERMS)}: {text}"
        for text, positions in positions_by_clause.items()
    ]
    clauses: list[str] = []
    property_clauses = _property_clauses(verdicts.answers)
    extra_clauses = _extra_clauses(verdicts)
    for clause_text in (main_clause, *property_clauses, *extra_clauses, *part_clauses):
        if (
            not clauses
            or len(" ".join([*clauses, clause_text]).split()) <= MAX_HEADLINE_WORDS
        ):
            clauses.append(f"{capitalise(clause_text)}.")
    return write_minus_signs(" ".join(clauses))


def composition_clause(answers: Mapping[str, Answer], parts: Iterable[Share]) -> str:
    """Return a clause on the largest parts of a stretch, as a sentence without its full stop.

    Parameters
    ----------
    answers
        Answers about the stretch, by question.
    parts
        Shares of its variance.
    """
    kind = classify_table(answers)
    groups = _group_parts(parts)
    largest_name = groups[0][0] if groups else "other"
    is_structured = largest_name != "other" and (
        largest_name != "noise" or (len(groups) > 1 and groups[1][1] >= MIN_NAMED_SHARE)
    )
    if not is_structured or kind in {"formula", "equal", "too_few"}:
        return _kind_clause(kind, answers, is_noise=largest_name == "noise")
    is_grid = "rows_and_columns" in answers
    texts: list[str] = []
    for name, share, shares in groups:
        if name != "other" and (not texts or share >= MIN_NAMED_SHARE):
            subject, is_plural = _name_part(name, shares, is_grid=is_grid)
            verb = "" if texts else f" explain{'' if is_plural else 's'}"
            of_variance = "" if texts else " of the variance"
            texts.append(f"{subject}{verb} {format_whole_percent(share)}{of_variance}")
    return ", ".join([*texts[:1], join_words(texts[1:])] if texts[1:] else texts)


def _group_parts(parts: Iterable[Share]) -> list[tuple[str, float, list[Share]]]:
    """Return name, share and members of the parts that are named as one, largest first."""
    groups: dict[str, list[Share]] = {}
    for part in parts:
        group_names = (name for name, members in GROUPS.items() if part.part in members)
        groups.setdefault(next(group_names, part.part), []).append(part)
    sums = [
        (name, sum(part.share for part in group), group) for name, group in groups.items()
    ]
    return sorted(sums, key=lambda group: -group[1])


def _largest_group(parts: Iterable[Share]) -> str:
    groups = _group_parts(parts)
    return groups[0][0] if groups else ""


def _name_part(name: str, shares: Sequence[Share], *, is_grid: bool) -> tuple[str, bool]:
    """Return the name of a part in a headline, and whether it is plural."""
    if name == "rotations":
        return _name_rotations(shares)
    if name == "preferred":
        periods = join_words([format_period(share.period or 0.0) for share in shares], 3)
        return f"noise that prefers a period of {periods} positions", False
    if name == "codes":
        codes = {share.part for share in shares if share.share >= MIN_EFFECT_SHARE}
        names = {"rows": "a row code", "columns": "a column code"}
        return " plus ".join(
            names[code] for code in ("rows", "columns") if code in codes
        ), False
    names = ANSWER_TEXTS["kinds"]["names"]
    if name == "curves":
        parts = {share.part for share in shares}
        if parts >= {"smooth", "slow"}:
            return f"{names['smooth_part']} with {names['slow']}", False
        name = "slow" if "slow" in parts else "smooth"
    grid_keys = {"smooth": "surface", "special": "special_patches"}
    key = grid_keys.get(name, name) if is_grid else name
    return names[key], name in {"special", "breaks", "slow", "untrained", "alternating"}


def _name_rotations(shares: Sequence[Share]) -> tuple[str, bool]:
    large_shares = [
        share for share in shares if share.share >= MIN_EFFECT_SHARE
    ] or shares
    noun = "rotation" if all(share.part == "rotation" for share in large_shares) else ""
    noun = noun or "periodic component"
    periods = [format_period(share.period or 0.0) for share in large_shares]
    if len(periods) == 1:
        return f"a {noun} with a period of {periods[0]} positions", False
    if len(periods) > MAX_NAMED_PERIODS:
        return (
            f"{len(periods)} {noun}s with periods of {periods[0]} to {periods[-1]} positions",
            True,
        )
    return f"{noun}s with periods of {join_words(periods)} positions", True


def _kind_clause(kind: str, answers: Mapping[str, Answer], *, is_noise: bool) -> str:
    """Return a clause on a stretch that has no part to name but noise."""
    rows = "patches" if "rows_and_columns" in answers else "rows"
    facts = {
        name: answers[name].facts for name in ("order", "closed_form") if name in answers
    }
    text = TemplateFormatter(_KIND_PARTS, rows=rows, f=facts, **facts).format(
        ANSWER_TEXTS["kinds"][kind]
    )
    if is_noise and kind in {"norms", "ordered", "similar", "opposite"}:
        text += "; what is left is noise"
    return text


def _property_clauses(answers: Mapping[str, Answer]) -> list[str]:
    """Return a clause on what the rotations have in common: a clock, or else a series."""
    position_answer, ladder_answer = (
        answers.get("absolute_position"),
        answers.get("ladder"),
    )
    if position_answer and position_answer.reason == "clock":
        variation = format_whole_percent(position_answer.facts.variation)
        return [f"the rotations read one clock, whose pace varies by ± {variation}"]
    is_formula = "closed_form" in answers and answers["closed_form"].yes
    if not (ladder_answer and ladder_answer.yes) or is_formula:
        return []
    facts = ladder_answer.facts
    if facts.series is not None:
        base = format_rounded(facts.series.base)
        return [
            f"the frequencies form a geometric series, like the sinusoid of base {base}"
        ]
    return [f"each period is {facts.factor:.2g} times the one before"]


def _seam_pairs(verdicts: Verdicts) -> list[list[int]]:
    """Return the seams that no other clause mentions, as pairs of positions."""
    seams_answer = verdicts.answers.get("seams")
    if not (seams_answer and seams_answer.yes):
        return []
    # The clause on equal rows mentions their ends, and so does that on untrained rows.
    ends = {first for first, _ in verdicts.equal} | {
        last + 1 for _, last in verdicts.equal
    }
    if verdicts.untrained is not None:
        ends.add(verdicts.untrained)
    return [pair for pair in seams_answer.value if pair[1] not in ends]


def _extra_clauses(verdicts: Verdicts) -> list[str]:
    """Return clauses on seams, outliers, equal, untrained and copied rows."""
    is_grid = "rows_and_columns" in verdicts.answers
    outliers_answer = verdicts.answers.get("special_rows")
    clauses = []
    if pairs := [f"{left} and {right}" for left, right in _seam_pairs(verdicts)]:
        clauses.append(
            f"breaks between positions {join_words(pairs, MAX_NAMED_TERMS + 1)}"
        )
    if outliers_answer and outliers_answer.yes:
        n_zeros = len(outliers_answer.facts.zeros)
        noun = "patch" if is_grid else "row"
        counts = {
            f"outlier {noun}": len(outliers_answer.value) - n_zeros,
            f"{noun} of zeros": n_zeros,
        }
        plurals = {f"{noun} of zeros": f"{noun}{'es' if is_grid else 's'} of zeros"}
        texts = [
            format_count(n, name, plurals.get(name, ""))
            for name, n in counts.items()
            if n
        ]
        clauses.append(f"has {join_words(texts)}")
    main_range = (verdicts.first, verdicts.stop - 1)
    equal_ranges = [rows for rows in verdicts.equal if rows != main_range]
    if names := [f"{first}–{last}" for first, last in equal_ranges]:
        clauses.append(
            f"has equal rows at positions {join_words(names, MAX_NAMED_TERMS + 1)}"
        )
    sentences = [f"the table {join_words(clauses)}"] if clauses else []
    if verdicts.untrained is not None:
        text = f"rows from position {verdicts.untrained} on look untrained"
        if (untrained := verdicts.untrained_interval) and untrained[0] < untrained[1]:
            text += f" (95 % interval {untrained[0]}–{untrained[1]})"
        sentences.append(text)
    return [*sentences, *([copies_clause(verdicts.copies)] if verdicts.copies else [])]


#: From the facts of a kind, the parts of its clause that must choose.
_KIND_PARTS: Mapping[str, Template] = {
    "matches": lambda facts: formula_clause(facts["closed_form"]),
}
