"""Parts of sentences about tables that depend on conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from posprobe.analyses.breaks.copies import Copies
from posprobe.analyses.composition.planes import Rotation
from posprobe.analyses.facts import Verdicts
from posprobe.questions.absolute_position import AbsolutePosition
from posprobe.questions.breaks import Breaks, SpecialRows
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.grids import Code
from posprobe.questions.rotations import Ladder, Rotations
from posprobe.questions.sequences import Smooth
from posprobe.text import format_period, format_value
from posprobe.words import ANSWER_TEXTS, cause_clause
from posprobe.words.formats import (
    Template,
    TemplateFormatter,
    capitalise,
    choose_plural,
    format_rounded,
    format_similarity,
    format_whole_percent,
    join_words,
    name_patches,
    name_positions,
    spell_number,
)


def copies_clause(copies: Copies) -> str:
    """Return a clause on the rows that are copies of others."""
    return TemplateFormatter({}, f=copies).format(ANSWER_TEXTS["copies"][copies.kind])


#: Smallest share of the variance of similarity at which distance is its main explanation.
MIN_MAIN_INVARIANCE = 0.9


def _own_share_phrase(facts: Smooth | Rotations) -> str:
    """Return a phrase on the share of the stretch that was tested, if that is not the table."""
    if facts.own_share is None:
        return ""
    return f"; within the tested positions, {format_whole_percent(facts.own_share)}"


def _invariance_phrase(facts: AbsolutePosition) -> str:
    if facts.invariance is None:
        return ""
    share = f"{format_whole_percent(max(facts.invariance, 0.0))} of its variance"
    if facts.invariance < MIN_MAIN_INVARIANCE:
        return f", though distance explains only {share}"
    return f": distance explains {share}"


def _lines_sentence(code: Code) -> str:
    share = min(sum(line.share for line in code.lines), 1.0)
    noun = "a periodic component with a period of|periodic components with periods of"
    periods = join_words([format_value(line.period) for line in code.lines])
    return (
        f"The {code.axis[:-1]} code has {choose_plural(code.lines, noun)} "
        f"{periods} {code.axis} ({format_whole_percent(share)} of its "
        "variance)."
    )


def _circle_sentence(code: Code) -> str:
    circle = code.circle
    assert circle is not None  # noqa: S101 - sentences name only codes with a circle
    return (
        f"A circle of {circle.turns:.1f} turns over {code.length} "
        f"{code.axis} explains {format_whole_percent(circle.share)} of the "
        f"variance of the {code.axis[:-1]} code "
        f"({format_whole_percent(circle.typical)} in smooth random curves)."
    )


def periods_phrase(lines: Sequence[Rotation]) -> str:
    """Return a phrase on the periods of lines, with three figures where all are fixed."""
    noun = "a period" if len(lines) == 1 else "periods"
    if all(line.pace == "fixed" for line in lines):
        texts = join_words([format_value(line.period) for line in lines])
        return f"{noun} of {texts} positions"
    texts = join_words([format_period(line.period) for line in lines])
    return f"{noun} of about {texts} positions"


def components_phrase(count: int) -> str:
    """Return a number of periodic components in words."""
    return f"{spell_number(count)} periodic component{'' if count == 1 else 's'}"


def _flat_sentence(facts: Rotations) -> str:
    n_flat = sum(not line.is_circular for line in facts.lines)
    if not n_flat:
        return ""
    verb = "oscillates" if n_flat == 1 else "oscillate"
    subject = f" Of these, {spell_number(n_flat)}"
    return f"{subject} {verb} along one direction, not around a circle."


def _varying_sentence(facts: Rotations) -> str:
    varying_lines = [line for line in facts.lines if line.pace != "fixed"]
    ranges = [
        f"{format_value(line.fastest)} to {format_value(line.slowest)}"
        for line in varying_lines
    ]
    sentence = f" Along the table, periods vary: {join_words(ranges)} positions."
    return sentence if varying_lines else ""


def _formula_phrase(facts: ClosedForm) -> str:
    base = "" if facts.base is None else f", base {format_rounded(facts.base)}"
    is_scaled = facts.scale is not None and abs(facts.scale - 1) >= 0.01
    return f"{facts.formula}{base}{f', times {format_value(facts.scale)}' if is_scaled else ''}"


def formula_clause(facts: ClosedForm) -> str:
    """Return a clause on the formula that a table follows."""
    if facts.formula is not None:
        error_text = f" up to {100 * facts.error:.2g} %" if facts.error else ""
        return f"it matches a formula{error_text}: {_formula_phrase(facts)}"
    formula = f"sinusoid of base {format_rounded(facts.base or 0.0)}"
    if facts.grid:
        formula = "2-D sin-cos table"
    return f"up to a rotation, it is the {formula}"


def _error_text(facts: ClosedForm) -> str:
    return f"{100 * (facts.error or 0.0):.2g} %"


def _first_rows_phrase(facts: ClosedForm) -> str:
    return f" over the first {facts.rows} positions" if facts.rows < facts.of else ""


def _nearest_sentence(facts: ClosedForm) -> str:
    if facts.cka is None:
        return ""
    subject = "The 2-D sin-cos table" if facts.grid else "The closest sinusoid"
    return f" {subject} has a CKA of {format_similarity(facts.cka)}{_first_rows_phrase(facts)}."


def _few_phrase(facts: Ladder) -> str:
    if facts.lines == 2:
        return "only two stand"
    return "only one stands" if facts.lines else "none stands"


def _outliers_sentences(facts: SpecialRows) -> str:
    name_places = (
        partial(name_patches, width=facts.width) if facts.width else name_positions
    )
    sentences = []
    if facts.positions:
        is_plural = len(facts.positions) > 1
        causes = "; ".join(map(cause_clause, facts.causes))
        noun, prefix = ("Outliers", "the first: ") if is_plural else ("Outlier", "")
        sentences.append(f"{noun}: {name_places(facts.positions)} ({prefix}{causes}).")
    if facts.zeros:
        verb = "is" if len(facts.zeros) == 1 else "are"
        sentences.append(f"{capitalise(name_places(facts.zeros))} {verb} zero.")
    if facts.replaced:
        sentences.append("Other answers use the mean of the neighbours instead.")
    return " ".join(sentences)


def _break_sentences(facts: Breaks) -> str:
    cause_text = cause_clause(facts.causes[0])
    if len(facts.pairs) == 1:
        left, right = facts.pairs[0]
        sentence = (
            f"The table breaks between positions {left} and {right} ({cause_text})."
        )
    else:
        positions_text = join_words([str(right) for _, right in facts.pairs], 8)
        sentence = f"The table breaks before positions {positions_text}."
        sentence += f" At the first: {cause_text}."
    for planes in facts.same:
        count_text = ""
        if planes.around < planes.rotations:
            count_text = f" ({planes.around} of {planes.rotations})"
        sentence += (
            f" Positions {planes.first}–{planes.last} rotate in the same "
            f"planes{count_text}, which explain "
            f"{format_whole_percent(planes.held)} of their variance."
        )
    return sentence


def basis_sentences(verdicts: Verdicts) -> str:
    """Return sentences on the positions of the answers; empty where they concern all."""
    last = (verdicts.used_stop or verdicts.stop) - 1
    if verdicts.is_whole:
        return (
            f"Based on positions {verdicts.first}–{last} of {verdicts.stop - verdicts.first:,}."
            if verdicts.used_stop
            else ""
        )
    breaks = [
        f"{end.numbers[1]:.0f}" for end in verdicts.end_causes if end.kind == "seam"
    ]
    exclusions = (
        ["outliers"] if any(end.kind == "special" for end in verdicts.end_causes) else []
    )
    if breaks:
        noun = "break" if len(breaks) == 1 else "breaks"
        exclusions.append(f"positions beyond the {noun} at {join_words(breaks)}")
    return (
        f"Based on positions {verdicts.first}–{last}; "
        f"{join_words(exclusions)} are excluded. Use `--all-rows` to "
        "include them."
    )


#: Parts of sentences that depend on the facts, by question about tables.
TABLE_PARTS: Mapping[str, Mapping[str, Template]] = {
    "order": {
        "side": lambda f: "more" if f.cosine > f.chance else "less",
        "copies": lambda f: copies_clause(f.copies),
    },
    "smooth": {
        "halves": lambda f: "length" if 0 < f.length < f.rows - 1 else "",
        "own": _own_share_phrase,
        "surface": lambda f: "halving" if f.halves else "wide",
    },
    "absolute_position": {
        "invariance": _invariance_phrase,
        "copies": lambda f: copies_clause(f.copies),
    },
    "low_dimensional": {"thinned": lambda f: "every" if f.every > 1 else ""},
    "axis_rotations": {
        "lines": lambda f: " ".join(map(_lines_sentence, f.round)),
        "round": lambda f: " ".join(map(_circle_sentence, f.round)),
        "circles": lambda f: " ".join(map(_circle_sentence, f.codes)),
    },
    "closed_form": {
        "formula": _formula_phrase,
        "error": _error_text,
        "first": _first_rows_phrase,
        "nearest": _nearest_sentence,
    },
    "rotations": {
        "own": _own_share_phrase,
        "flat": _flat_sentence,
        "varying": _varying_sentence,
        "components": lambda f: components_phrase(len(f.lines)),
        "periods": lambda f: periods_phrase(f.lines),
        "alternating": lambda f: "signs" if f.alternates else "",
    },
    "winding": {
        "changes": lambda f: "pace" if f.changes and f.turn else "",
        "periods": lambda f: periods_phrase(f.mixed),
        "times": lambda f: join_words([f"{line.turns:.1f}" for line in f.mixed]),
    },
    "ladder": {
        "within": lambda f: str(max(math.ceil(100 * f.off), 1)),
        "few": _few_phrase,
    },
    "special_rows": {"outliers": _outliers_sentences},
    "seams": {"found": _break_sentences},
}
