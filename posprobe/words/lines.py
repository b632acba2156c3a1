"""Answers in a line each: a short question, a measure, one value, and what chance gives of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from posprobe.analyses.composition.budget import BUDGET_LABELS
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.text import Block, format_period, use_minus_sign
from posprobe.words import NULL_TEXTS, QUESTION_TEXTS
from posprobe.words.formats import (
    capitalise,
    format_count,
    format_hundredths,
    format_two_figures,
    format_whole_percent,
    join_words,
)

#: How numbers of one measure are written.
NumberFormat = Callable[[float], str]
#: What an answer means that was tested.
TEST_KEY = "yes: p ≤ 0.02; by chance: 5–95 %."


def _format_share(value: float) -> str:
    """Write a share in per cent; of small ones two digits count."""
    return f"{100 * value:.2g} %" if 0.0001 <= value < 0.0095 else format_whole_percent(value)


def _format_cosine(value: float) -> str:
    return f"{value:.3f}" if 0.995 <= value < 1 else format_hundredths(value)


_SIGN_MEASURES: Mapping[str, str] = {
    "products": "not due to distance",
    "norms": "trend in norms",
    "speed": "trend in step size",
    "mirrored": "mirrored pairs",
    "opposed": "mirrored pairs",
}


def _order_measure(_: Block) -> tuple[str, NumberFormat]:
    return "neighbour cosine", _format_cosine


def _smooth_measure(facts: Block) -> tuple[str, NumberFormat]:
    if facts.get("straight") is not None:
        return "variance on a line", _format_share
    stride = facts["stride"]
    return "cosine of steps" if stride == 1 else f"cosine of {stride}-row steps", _format_cosine


def _position_measure(facts: Block) -> tuple[str, NumberFormat]:
    if "place" in facts:
        return _SIGN_MEASURES[facts["place"]["sign"]], _format_share
    return "not due to offset", _format_share


def _winding_measure(facts: Block) -> tuple[str, NumberFormat]:
    first, second = facts["components"]
    return f"turns of PC {first} and {second}", "{:.1f}".format


def _ladder_measure(facts: Block) -> tuple[str, NumberFormat]:
    if facts.get("factor") is None:
        return "CKA, best base", format_hundredths
    return f"deviation from × {facts['factor']:.1f}", _format_share


#: From the facts of an answer what was tested, and how such numbers are written.
_TEST_MEASURES: Mapping[str, Callable[[Block], tuple[str, NumberFormat]]] = {
    "order": _order_measure,
    "smooth": _smooth_measure,
    "absolute_position": _position_measure,
    "winding": _winding_measure,
    "ladder": _ladder_measure,
    "low_dimensional": lambda _: ("participation ratio", format_two_figures),
    "rotations": lambda _: ("strongest component", _format_share),
    "rows_and_columns": lambda _: ("share in both codes", _format_share),
    "axis_rotations": lambda _: ("share on a circle", _format_share),
}


def _formula_columns(facts: Block) -> dict[str, Any]:
    if facts.get("formula") is not None:
        error = facts.get("error")
        return {"measure": "largest error", "value": _format_share(error) if error else "none"}
    if facts.get("cka") is None:
        return {}
    best = "CKA, 2-D sin-cos" if facts.get("grid") else "CKA, best sinusoid"
    return {"measure": best, "value": format_hundredths(facts["cka"])}


def _seam_columns(facts: Block) -> dict[str, Any]:
    if facts.get("pairs") is None:
        return {}
    pairs = facts["pairs"]
    value = f"{pairs[0][0]} | {pairs[0][1]}" if len(pairs) == 1 else str(len(pairs) or "none")
    return {"measure": "between positions" if len(pairs) == 1 else "breaks", "value": value}


def _outlier_columns(facts: Block) -> dict[str, Any]:
    if facts.get("positions") is None:
        return {}
    largest, chance, count = facts.get("largest"), facts.get("chance"), len(facts["positions"])
    # A row may be odd by its norm or its direction alone.
    if chance is None or (count and largest <= chance[1]):
        return {"measure": "far from neighbours", "value": str(count or "none")}
    value, low, high = (
        f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}" for ratio in (largest, *chance)
    )
    return {
        "measure": "longest step / usual",
        "value": f"{value} ×",
        "chance": f"{low} to {high} ×",
    }


#: Answers without a test of their own.
_FACT_COLUMNS: Mapping[str, Callable[[Block], dict[str, Any]]] = {
    "closed_form": _formula_columns,
    "seams": _seam_columns,
    "special_rows": _outlier_columns,
}


def table_lines(verdict: Block, *, grid: bool) -> tuple[AnswerLine, ...]:
    """Return the answers of a block ``verdict`` in a line each, in the order of the page.

    Parameters
    ----------
    verdict
        The block; what version 1 did not keep is left out.
    grid
        Whether the positions are patches, of which some questions are not asked.
    """
    answers = {answer["question"]: answer for answer in verdict["answers"]}
    names = [name for name in QUESTION_TEXTS if name in answers]
    if grid:
        names = [name for name in names if name not in {"seams", "rotations", "winding", "ladder"}]
    elif answers.get("rotations", {}).get("answer") == "yes":
        # It is the same fact.
        names = [name for name in names if name != "winding"]
    elif answers.get("ladder", {}).get("answer") != "yes":
        # A series of what there is none of is not asked about.
        names = [name for name in names if name != "ladder"]
    return tuple(answer_line(answers[name], grid=grid) for name in names)


def answer_line(answer: Block, *, grid: bool = False) -> AnswerLine:
    """Return an answer's block as a line."""
    name, facts = answer["question"], answer.get("facts") or {}
    question = QUESTION_TEXTS[name]
    if name == "special_rows" and grid:
        question = "Outlier patches?"
    if name == "smooth" and facts.get("curve") is not None:
        return AnswerLine(
            name, answer["answer"], "Only a smooth curve?", "R²: curve, rotations",
            f"{format_hundredths(facts['curve'])}, {format_hundredths(facts['waves'])}",
        )  # fmt: skip
    if name == "rotations" and answer["reason"] == "formula" and not facts.get("lines"):
        return AnswerLine(name, answer["answer"], question, "periodic components", "many")
    if name in _FACT_COLUMNS:
        return AnswerLine(name, answer["answer"], question, **_FACT_COLUMNS[name](facts))
    if answer.get("interval") and name in _TEST_MEASURES:
        return chance_line(answer, question, *_TEST_MEASURES[name](facts))
    if name == "absolute_position" and facts.get("invariance") is not None:
        share = _format_share(facts["invariance"])
        return AnswerLine(name, answer["answer"], question, "explained by distance", share)
    return AnswerLine(name, answer["answer"], question)


def chance_line(
    answer: Block, question: str, measure: str, number_format: NumberFormat, value: str = ""
) -> AnswerLine:
    """Return an answer's block as a line with what it was held against, if with anything.

    Parameters
    ----------
    answer
        The block.
    question, measure
        See `AnswerLine`.
    number_format
        Format of such numbers.
    value
        Text that is shown in place of the number that was tested.
    """
    number, interval = answer.get("tested"), answer.get("interval")
    if number is None or not interval:
        return AnswerLine(
            answer["question"], answer["answer"], question, measure, value or NO_VALUE
        )
    low, high = (use_minus_sign(number_format(limit)) for limit in interval)
    chance = low if low == high else f"{low.removesuffix(' %')} to {high}"
    value, p = value or use_minus_sign(number_format(number)), format_p_value(answer)
    null = NULL_TEXTS.get(answer["baseline"], answer["baseline"])
    draws_text = f", {answer['draws']:,} draws" if answer.get("draws") else ""
    facts = f"{measure}: {value}. By chance ({null}{draws_text}): {chance}."
    if p != NO_VALUE:
        facts += f" p {'' if p[0] == '≤' else '= '}{p}."
    return AnswerLine(
        answer["question"], answer["answer"], question, measure, value, chance, p, number,
        tuple(interval), facts,
    )  # fmt: skip


def format_p_value(answer: Block) -> str:
    """Write the p-value of an answer's block; ``≤`` where more draws could have made it smaller."""
    if answer["p"] is None or not answer.get("draws", True):
        return NO_VALUE
    if answer["p"] > (answer.get("least") or 0.0):
        return f"{answer['p']:.2g}"
    # A bound is rounded up: p ≤ 0.0068 is false of 1/146.
    rounded_up = Context(prec=2, rounding=ROUND_CEILING).create_decimal(str(float(answer["p"])))
    return f"≤ {float(rounded_up):.2g}"


@dataclass(frozen=True)
class BudgetTerm:
    """A part of the variance budget, as its bar names it.

    Parameters
    ----------
    kind, look
        Key of `posprobe.analyses.composition.budget.BUDGET_TERMS`, and its class of colours.
    share
        Share of the variance around the mean row.
    value
        The share in words.
    name, label, short_label
        Name in full, name in the bar, and name where the bar is narrow.
    """

    kind: str
    look: str
    share: float
    value: str
    name: str
    label: str
    short_label: str


#: Classes of the colours of rotations, from the fastest.
_N_ROTATION_COLOURS = 5


def budget_terms(document: Block) -> tuple[BudgetTerm, ...]:
    """Return the parts of a document's budget; none where it has no budget."""
    blocks = (document.get("budget") or {}).get("parts") or ()
    term_blocks = [block for block in blocks if block["part"] != "mean"]
    total = sum(block["share"] for block in term_blocks)
    n_rotations = sum(block["part"] == "rotation" for block in term_blocks)
    terms, rank = [], 0
    for block in term_blocks:
        kind, label = block["part"], BUDGET_LABELS[block["part"]]
        colour_class, name, short_name = "line-part" if kind == "line" else kind, label, label
        if block["period"]:
            period = format_period(block["period"])
            label, short_name = f"{period} positions", period
            name = f"{label} ({BUDGET_LABELS[kind]})"
        if kind == "rotation":
            name = f"rotation, period {label}"
            colour_class = f"r{min(rank if n_rotations <= _N_ROTATION_COLOURS else rank * _N_ROTATION_COLOURS // n_rotations, 4)}"
            rank += 1
        share = block["share"] / total
        terms.append(
            BudgetTerm(
                kind, colour_class, share, format_whole_percent(share), name, label, short_name
            )
        )
    return tuple(terms)


def budget_note(document: Block) -> str:
    """Say how much of the variance the parts do not explain; empty where that is chance."""
    budget = document.get("budget") or {}
    if budget.get("explained") is not False:
        return ""
    return f"{format_whole_percent(budget['misfit'] - budget['typical_misfit'])} not explained by these parts"


def budget_sums(terms: tuple[BudgetTerm, ...]) -> list[tuple[float, str]]:
    """Return what several parts of one nature hold together, and how that is called."""
    kinds_by_name = {"rotations": ("rotation",), "row + column code": ("rows", "columns")}
    sums = []
    for name, kinds in kinds_by_name.items():
        shares = [term.share for term in terms if term.kind in kinds]
        if len(shares) > 1:
            sums.append((sum(shares), f"{name} {format_whole_percent(sum(shares))}"))
    return sums


def answers_key(document: Block) -> str:
    """Say which rows the answers about a table are about, and what they are held against."""
    verdict, table = document["verdict"], document["table"]
    small_effects = [
        QUESTION_TEXTS[answer["question"]].rstrip("?")
        for answer in verdict["answers"]
        if answer.get("reason") == "small" and answer["answer"] == "no"
    ]
    text = (
        f"{TEST_KEY} {join_words(small_effects)}: significant but small."
        if small_effects
        else TEST_KEY
    )
    if verdict.get("rows") and verdict["rows"] != table["rows"]:
        return f"Answers: positions {verdict['rows'][0]}–{verdict['rows'][1] - 1}. {text}"
    return capitalise(text)


def describe_table(table: Block) -> str:
    """Say in a line, after its name, how large a table is and which tensor it is."""
    layout, source = table["layout"], table["source"]
    rows = f"{table['positions']:,} positions"
    if layout["type"] == "grid":
        rows = f"{layout['height']} × {layout['width']} patches"
    parts = [f"{rows} × {table['dim']}"]
    if source["tensor"]:
        parts.append(source["tensor"])
    tokens = [row["token"] for row in table["prefix_rows"]]
    if tokens:
        parts.append(f"{', '.join(tokens[:3])} kept apart")
    if table["dropped_rows"]:
        parts.append(f"{format_count(len(table['dropped_rows']), 'row')} left out")
    return " · ".join(parts)
