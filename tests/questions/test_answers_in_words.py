"""What is said of tables: every reason has words, and they are those of its facts alone."""

from __future__ import annotations

import re
import types
import typing
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_answers import PLANTED, SAMPLES, answers_of, planted, smooth, verdicts_of
from made_tables import gaussian, rotation, waves

from posprobe.analyses import facts as settled
from posprobe.analyses.facts import Answer, Cause, Part, TooFew
from posprobe.questions import ANALYSIS, GRID, SEQUENCE
from posprobe.questions.absolute_position import AbsolutePosition
from posprobe.questions.breaks import Breaks, SpecialRows
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.corrections import kind_of
from posprobe.questions.fields import PatchDimension, PatchPlaces, PatchSmooth
from posprobe.questions.grids import AxisRotations, PatchOrder, RowsAndColumns, Sides
from posprobe.questions.models import QUESTIONS
from posprobe.questions.rotations import Ladder, Rotations, Winding
from posprobe.questions.schemes import KERNELS
from posprobe.questions.sequences import LowDimensional, Order, Smooth
from posprobe.report import narrator
from posprobe.report.document import answer_block
from posprobe.report.narrator import ASKS, TEXTS, sentence, templates
from posprobe.report.narrator.lines import p_value
from posprobe.report.narrator.summary import clause, headline
from posprobe.report.narrator.tables import based_on

ALL = (*PLANTED, *SAMPLES)


def test_every_question_is_asked_in_few_words() -> None:
    assert set(ASKS) == {*ANALYSIS, *QUESTIONS, *KERNELS}
    assert all(len(asked.split()) <= 5 and asked.endswith("?") for asked in ASKS.values())


def test_every_part_that_is_made_by_a_function_is_told() -> None:
    for made_parts in narrator.made_parts():
        for question, parts in made_parts.items():
            told = f"{TEXTS[question]} {TEXTS['shared']['parts']}"
            # Of a text and a function of one name, one would never be told.
            assert not set(parts) & set(TEXTS[question].get("parts", ()))
            assert all(re.search(rf"{{{name}[:}}]", told) for name in parts), question


# --- templates and facts of any kind ---

#: Facts of each question about a table, on a line and on a grid.
FACTS: dict[str, tuple[type, ...]] = {
    "closed_form": (ClosedForm,),
    "special_rows": (SpecialRows,),
    "seams": (Breaks,),
    "order": (Order, PatchOrder),
    "smooth": (Smooth, PatchSmooth),
    "absolute_position": (AbsolutePosition, PatchPlaces),
    "low_dimensional": (LowDimensional, PatchDimension),
    "rotations": (Rotations,),
    "winding": (Winding,),
    "ladder": (Ladder,),
    "rows_and_columns": (RowsAndColumns,),
    "axis_rotations": (AxisRotations,),
}
COSINES = {"cosine", "chance", "cka", "similar", "neighbours", "between", "invariance", "curve"}
COUNTS = st.integers(1, 4096)
POSITIVE = st.floats(1e-3, 1e6)
CAUSES = st.builds(
    Cause, st.sampled_from(sorted(TEXTS["causes"])), st.tuples(*[POSITIVE] * 3), st.just("rows")
)


def made(kind: Any, name: str, reason: str) -> st.SearchStrategy[Any]:
    """Draw what a field may hold where it is there: planted tables lack what may be lacking."""
    if get_origin(kind) is typing.Annotated:
        return st.none()  # hidden from documents
    if get_origin(kind) in (Union, types.UnionType):
        (one,) = (each for each in get_args(kind) if each is not type(None))
        return made(one, name, reason)
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[-1] is not Ellipsis:
            return st.tuples(*(made(part, name, reason) for part in parts)).map(sorted).map(tuple)
        several = st.lists(made(parts[0], name, reason), min_size=1, max_size=4, unique=True)
        return several.map(lambda found: tuple(sorted(found) if name == "positions" else found))
    if kind is Cause:
        return CAUSES
    if is_dataclass(kind):
        return built(kind, reason)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return COUNTS
    if kind is str:
        return st.sampled_from({"axis": ("rows", "columns")}.get(name, (f"some {name}",)))
    return st.floats(-1, 1) if name in COSINES else POSITIVE


def built(kind: Any, reason: str) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    drawn = {each.name: made(hints[each.name], each.name, reason) for each in fields(kind)}
    if kind is AbsolutePosition and reason.startswith("place_"):
        place = drawn["place"]
        drawn["place"] = place.map(lambda f: type(f)(reason[6:], f.share, f.typical, f.large))
    if kind is SpecialRows:
        drawn["width"] = COUNTS if reason.startswith("patch") else st.none()
    return st.builds(kind, **drawn)


def facts_of(question: str, reason: str) -> st.SearchStrategy[Any]:
    if question == "axis_rotations" and reason in {"lines", "circles", "none", "open"}:
        return codes(reason)
    kinds = FACTS[question]
    kind = kinds[-1] if reason.startswith("patch_") else kinds[0]
    return built(kind, reason)


@st.composite
def codes(draw: Any, reason: str) -> AxisRotations:
    """Draw codes of which each has lines or a circle, as the reason says."""
    hints = get_type_hints(AxisRotations)
    kind = get_args(hints["codes"])[0]
    circle = get_args(get_type_hints(kind)["circle"])[0]
    line = get_args(get_type_hints(kind)["lines"])[0]
    made_codes = []
    for axis in ("rows", "columns"):
        lines = draw(st.lists(built(line, reason), min_size=1, max_size=3)) * (reason == "lines")
        round_one = None if lines else draw(built(circle, reason))
        made_codes.append(kind(axis, draw(COUNTS), tuple(lines), round_one))
    return AxisRotations(14, 14, tuple(made_codes), ("rows", "columns"))


BEGINS = re.compile(r"(?:Yes|No|Cannot tell)[:,.]|Cannot\b|[a-z]")
OF_TABLES = [
    (question, reason)
    for question, reason in templates()
    if question in {*SEQUENCE, *GRID} and reason not in {"changed", "slight", "rounding"}
]


def is_a_sentence(text: str) -> bool:
    broken = re.search(r"\bNone\b|\bnan\b|\binf\b|[{}]|-0(?:\.0+)?(?![.\d])", text)
    return text.endswith(".") and not broken and not BEGINS.match(text)


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@pytest.mark.parametrize(("question", "reason"), OF_TABLES)
@given(data=st.data())
def test_every_template_makes_a_sentence_of_any_facts(
    question: str, reason: str, data: st.DataObject
) -> None:
    facts = data.draw(facts_of(question, reason))
    assert is_a_sentence(text := sentence(Answer(question, "yes", reason, facts))), text


@pytest.mark.parametrize("reason", ["too_few", "all_equal", "narrow", "large", "among_many"])
def test_reasons_that_all_questions_share_have_words(reason: str) -> None:
    facts = Sides(2, 9, 3, 64) if reason in {"narrow", "large"} else TooFew(6, 4)
    answer = Answer("order", "yes", "too_few", facts)
    told = sentence(answer.corrected("cannot tell", reason, "another"))
    assert is_a_sentence(told)
    assert (narrator.AMONG_MANY in told) == (reason == "among_many")


# --- numbers ---

#: Numbers that are no findings, by question: of nine tenths, of dimensions, of a random walk.
CONSTANTS: dict[str, set[float]] = {
    "low_dimensional": {90.0}, "closed_form": {1.0, 2.0}, "smooth": {0.0},
    "special_rows": {95.0},
}  # fmt: skip
#: Where a number is rounded up or down, so that what is not all is not 100 %.
BOUND = re.compile(r"less than 1 %|more than 99 %|to within \d+ %")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def numbers_in(facts: Any) -> set[float]:
    """Every number of a record, counts of its tuples, and its properties."""
    if isinstance(facts, bool) or facts is None:
        return set()
    if isinstance(facts, int | float):
        return {float(facts)}
    if isinstance(facts, str):
        return {float(found.replace(",", "")) for found in NUMBER.findall(facts)}
    if isinstance(facts, tuple | list):
        return {float(len(facts))}.union(*map(numbers_in, facts))
    if isinstance(facts, dict):
        return set().union(*map(numbers_in, facts.values()))
    if is_dataclass(facts):
        own = {each.name for each in fields(facts)} - {"pair"}
        derived = {name for name, each in vars(type(facts)).items() if isinstance(each, property)}
        return set().union(*(numbers_in(getattr(facts, name)) for name in own | derived))
    return set()


def stands_for(text: str, number: float) -> bool:
    """Whether a numeral is a number, rounded, or its per cent."""
    said = float(text.replace(",", ""))
    last = 10.0 ** -len(text.partition(".")[2]) if "e" not in text else 0.0
    for value in (number, 100 * number):
        figures = {float(f"{value:.2g}"), float(f"{value:.3g}")}
        if said in figures or abs(said - value) <= 0.5 * last * (1 + 1e-9):
            return True
    return False


@pytest.mark.parametrize("name", ALL)
def test_no_number_is_told_that_is_not_in_the_facts(name: str) -> None:
    for question, answer in planted(name).answers.items():
        known = numbers_in(answer.facts) | CONSTANTS.get(question, set())
        if question == "special_rows" and answer.facts.width:
            known |= {n for at in answer.value or () for n in divmod(at, answer.facts.width)}
        elif question == "special_rows":
            known |= {at + side for at in answer.facts.positions for side in (-1.0, 1.0)}
        text = BOUND.sub("", sentence(answer)).replace("\N{MINUS SIGN}", "-")
        for numeral in NUMBER.findall(text):
            assert any(stands_for(numeral, number) for number in known), (numeral, text)


@pytest.mark.parametrize("name", ALL)
def test_what_chance_gives_stands_beside_each_number_that_was_tested(name: str) -> None:
    for question, answer in planted(name).answers.items():
        told = p_value(answer_block(answer))
        if answer.test is None:
            assert told == "–"
            continue
        assert answer.p is not None
        assert answer.p >= answer.test.least - 1e-12, question
        assert ("≤" in told) == (answer.p == pytest.approx(answer.test.least, rel=1e-9))
        if "≤" in told:
            assert answer.p <= float(told.rpartition(" ")[2]) < 1.2 * answer.p, question


# --- headlines ---

#: Kinds that no yes stands behind.
NO_YES = {"walk", "equal", "equally_far", "independent", "too_few", "unknown"}
#: How a table of each kind is told of, with the numbers that were planted.
HEADLINES = {
    "noise": "No structure found: the rows look independent.",
    "walk": "Like a random walk: no smoother than random steps added up.",
    "smooth": r"A smooth curve explains \d+ % of the variance\.",
    "line": "A straight line along which positions are evenly spaced.",
    "noisy line": r"A straight line in noise: the line explains 5\d % of the variance.",
    "rotations": (
        r"Rotations with periods of 6, 17 and 48 positions explain "
        r"\d\d % of the variance; each period is 2\.8 times the one before\."
    ),
    "sinusoid": (
        r"It matches a formula: sinusoid, interleaved, exponents over d/2, base 10,000\."
    ),
    "turned sinusoid": "Up to a rotation, it is the sinusoid of base 1,000.",
    "helix": r"A rotation with a period of 8\d positions explains .*",
    "chirp": (
        r"Order matters, but neighbours are hardly similar \(mean cosine .*\), "
        r"and two components trace 3\d turns of a circle."
    ),
    "alternating": (
        r"Neighbours point in opposite directions \(mean cosine -0\.\d\d\)\. Rows 2 positions "
        r"apart are similar again \(.*\)\."
    ),
    "growing": (
        "The distance from the mean row changes along the table, while directions show no order."
    ),
    "mirrored": r".*\. The second half is the first in reverse order\.",
    "one-hot": "Any two rows are equally far apart.",
    "equal": "All rows are equal.",
    "few rows": "Six rows are too few to tell.",
    "two halves": (
        r"A smooth curve explains \d\d % of the variance.*\. The table breaks between positions 79 "
        r"and 80\."
    ),
    "odd row": r"Positions 31–95: a smooth curve: .*\. The table has 1 outlier row\.",
    "patches of noise": "No structure found: the patches look independent.",
    "field": r"A smooth surface over the grid: similarity halves within \d\.\d patches.",
    "codes": (
        r"Each patch is a row code plus a column code: together they explain 8\d % of the "
        r"variance\."
    ),
    "turning codes": (
        r"Each patch is .* code: together they explain 9\d % .*; both codes contain rotations\."
    ),
    "row code": r"Each patch is a row code alone: it explains more than 99 % of the variance\.",
    "checkerboard": r"Neighbours point in opposite directions \(mean cosine -0\.9\d\)\.",
    "grid formula": r"It matches a formula: 2-D sin-cos, columns first, base 10,000\.",
    "odd patch": r"A smooth surface over the grid: .*\. The table has 1 outlier patch\.",
}  # fmt: skip


@pytest.mark.parametrize("name", HEADLINES)
def test_headlines_say_what_was_planted(name: str) -> None:
    told = headline(planted(name)).replace("\N{MINUS SIGN}", "-")
    assert re.fullmatch(HEADLINES[name], told), told


@pytest.mark.parametrize("name", ALL)
def test_headlines_claim_only_what_is_answered_yes(name: str) -> None:
    found = planted(name)
    for answers in (found.answers, *(part.answers for part in found.parts)):
        kind = kind_of(answers)
        assert kind.name in NO_YES or all(answers[question].yes for question in kind.of)
    told = headline(found)
    assert len(told.split()) <= 60
    assert is_a_sentence(told)
    assert ("break" in told) == bool(found.answers.get("seams") and found.answers["seams"].yes)
    assert ("outlier" in told) == found.answers["special_rows"].yes
    assert (based_on(found) == "") == found.whole


def test_a_headline_of_many_parts_stays_short() -> None:
    names = ("two halves", "rotations", "chirp", "alternating", "mirrored", "smooth")
    parts = tuple(Part(10 * k, 10 * k + 9, planted(name).answers) for k, name in enumerate(names))
    equal = tuple((k, k + 8) for k in range(0, 90, 9))
    for name in names:
        found = replace(planted(name), parts=parts, equal=equal, untrained=90)
        told = headline(found)
        assert 30 < len(told.split()) <= 60
        alone = headline(replace(found, parts=(), equal=(), untrained=None))
        assert told.startswith(alone.partition(". ")[0].removesuffix("."))


@pytest.mark.parametrize(
    ("share", "kind", "beside"),
    [(0.6, "rotations", False), (0.1, "smooth", True), (0.002, "smooth", False)],
)
def test_a_weak_rotation_is_not_what_a_table_is(share: float, kind: str, beside: bool) -> None:
    slow = smooth(256, 16, 20.0)
    slow /= np.sqrt(np.square(slow - slow.mean(axis=0)).sum(axis=1).mean())
    circle = waves(256, [8.1]) @ rotation(16)[:2]
    both = np.sqrt(1 - share) * slow + np.sqrt(share) * circle + 1e-3 * gaussian(256, 16)
    answers = answers_of(both)
    assert kind_of(answers).name == kind
    assert ("; in addition, a period of 8.1 positions" in clause(answers)) == beside


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            1 + np.eye(64)[:, 20:21] * np.ones(8),
            "has 1 outlier row and has equal rows at positions 0–19",
        ),
        (gaussian(64, 8) * (np.arange(64) % 2)[:, None], "the table has 32 rows of zeros"),
        (np.repeat(gaussian(24, 4), 3, axis=0), "each row occurs 3 times in succession"),
    ],
)
def test_what_else_a_headline_tells(values: Any, told: str) -> None:
    assert told in headline(verdicts_of(values)).lower()


# --- what sentences rest on ---


def test_p_values_are_ranked_once_for_each_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[dict[str, float | None]] = []
    real = settled.hold_rate

    def counted(own: Any) -> list[Answer]:
        answers = list(own)
        ranked.append({answer.question: answer.p for answer in answers})
        return real(answers)

    monkeypatch.setattr(settled, "hold_rate", counted)
    values = PLANTED["two halves"][0]()
    found = verdicts_of(values)
    assert len(ranked) == 1 + len(found.parts) == 2
    for ps, answers in zip(ranked, (found.answers, found.parts[0].answers), strict=True):
        assert set(ps) == set(answers)
        assert ps["winding"] is not None
        for question, answer in answers.items():
            assert ps[question] == answer.p or answer.change


@pytest.mark.parametrize("asked", [SEQUENCE, GRID], ids=["line", "grid"])
def test_a_yes_can_stand_alone_among_the_questions(asked: Any) -> None:
    grid = asked is GRID
    tables = [name for name in ALL if ("rows_and_columns" in planted(name).answers) == grid]
    answers = [answer for name in tables for answer in planted(name).answers.values()]
    tested = {answer.question for answer in answers if answer.test}
    assert len(tested) == (6 if grid else 7)
    for answer in answers:
        if answer.yes and answer.test:
            assert 0 < answer.test.least <= settled.RATE / len(tested), answer.question
    assert tested == {answer.question for answer in answers if answer.yes and answer.test}
