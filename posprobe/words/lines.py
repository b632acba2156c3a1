"""Answers in a line each: a short question, a measure, one value, and what chance gives of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from posprobe.analyses.composition.budget import BUDGET_LABELS
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.text import Block, format_period, use_minus_sign
from posprobe.words import ASKS, NULLS
from posprobe.words.formats import capital, hundredths, listed, percent, some, two_figures

#: How numbers of one measure are written.
Form = Callable[[float], str]
#: What an answer means that was tested.
KEY = "yes: p ≤ 0.02; by chance: 5–95 %."


def _share(value: float) -> str:
    """Write a share in per cent; of small ones two digits count."""
    return f"{100 * value:.2g} %" if 0.0001 <= value < 0.0095 else percent(value)


def _cosine(value: float) -> str:
    return f"{value:.3f}" if 0.995 <= value < 1 else hundredths(value)


_PLACES: Mapping[str, str] = {
    "products": "not due to distance",
    "norms": "trend in norms",
    "speed": "trend in step size",
    "mirrored": "mirrored pairs",
    "opposed": "mirrored pairs",
}


def _order(_: Block) -> tuple[str, Form]:
    return "neighbour cosine", _cosine


def _smooth(facts: Block) -> tuple[str, Form]:
    if facts.get("straight") is not None:
        return "variance on a line", _share
    stride = facts["stride"]
    return "cosine of steps" if stride == 1 else f"cosine of {stride}-row steps", _cosine


def _absolute(facts: Block) -> tuple[str, Form]:
    if "place" in facts:
        return _PLACES[facts["place"]["sign"]], _share
    return "not due to offset", _share


def _winding(facts: Block) -> tuple[str, Form]:
    first, second = facts["components"]
    return f"turns of PC {first} and {second}", "{:.1f}".format


def _ladder(facts: Block) -> tuple[str, Form]:
    if facts.get("factor") is None:
        return "CKA, best base", hundredths
    return f"deviation from × {facts['factor']:.1f}", _share


#: From the facts of an answer what was tested, and how such numbers are written.
_TESTED: Mapping[str, Callable[[Block], tuple[str, Form]]] = {
    "order": _order,
    "smooth": _smooth,
    "absolute_position": _absolute,
    "winding": _winding,
    "ladder": _ladder,
    "low_dimensional": lambda _: ("participation ratio", two_figures),
    "rotations": lambda _: ("strongest component", _share),
    "rows_and_columns": lambda _: ("share in both codes", _share),
    "axis_rotations": lambda _: ("share on a circle", _share),
}


def _formula(facts: Block) -> dict[str, Any]:
    if facts.get("formula") is not None:
        error = facts.get("error")
        return {"measure": "largest error", "value": _share(error) if error else "none"}
    if facts.get("cka") is None:
        return {}
    best = "CKA, 2-D sin-cos" if facts.get("grid") else "CKA, best sinusoid"
    return {"measure": best, "value": hundredths(facts["cka"])}


def _seams(facts: Block) -> dict[str, Any]:
    if facts.get("pairs") is None:
        return {}
    pairs = facts["pairs"]
    value = f"{pairs[0][0]} | {pairs[0][1]}" if len(pairs) == 1 else str(len(pairs) or "none")
    return {"measure": "between positions" if len(pairs) == 1 else "breaks", "value": value}


def _special(facts: Block) -> dict[str, Any]:
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
_FACTS_FORMATS: Mapping[str, Callable[[Block], dict[str, Any]]] = {
    "closed_form": _formula,
    "seams": _seams,
    "special_rows": _special,
}


def lines(verdict: Block, *, grid: bool) -> tuple[AnswerLine, ...]:
    """Return the answers of a block ``verdict`` in a line each, in the order of the page.

    Parameters
    ----------
    verdict
        The block; what version 1 did not keep is left out.
    grid
        Whether the positions are patches, of which some questions are not asked.
    """
    answers = {answer["question"]: answer for answer in verdict["answers"]}
    names = [name for name in ASKS if name in answers]
    if grid:
        names = [name for name in names if name not in {"seams", "rotations", "winding", "ladder"}]
    elif answers.get("rotations", {}).get("answer") == "yes":
        # It is the same fact.
        names = [name for name in names if name != "winding"]
    elif answers.get("ladder", {}).get("answer") != "yes":
        # A series of what there is none of is not asked about.
        names = [name for name in names if name != "ladder"]
    return tuple(line(answers[name], grid=grid) for name in names)


def line(answer: Block, *, grid: bool = False) -> AnswerLine:
    """Return an answer's block as a line."""
    name, facts = answer["question"], answer.get("facts") or {}
    question = ASKS[name]
    if name == "special_rows" and grid:
        question = "Outlier patches?"
    if name == "smooth" and facts.get("curve") is not None:
        return AnswerLine(
            name, answer["answer"], "Only a smooth curve?", "R²: curve, rotations",
            f"{hundredths(facts['curve'])}, {hundredths(facts['waves'])}",
        )  # fmt: skip
    if name == "rotations" and answer["reason"] == "formula" and not facts.get("lines"):
        return AnswerLine(name, answer["answer"], question, "periodic components", "many")
    if name in _FACTS_FORMATS:
        return AnswerLine(name, answer["answer"], question, **_FACTS_FORMATS[name](facts))
    if answer.get("interval") and name in _TESTED:
        return held_against(answer, question, *_TESTED[name](facts))
    if name == "absolute_position" and facts.get("invariance") is not None:
        share = _share(facts["invariance"])
        return AnswerLine(name, answer["answer"], question, "explained by distance", share)
    return AnswerLine(name, answer["answer"], question)


def held_against(
    answer: Block, question: str, measure: str, form: Form, value: str = ""
) -> AnswerLine:
    """Return an answer's block as a line with what it was held against, if with anything.

    Parameters
    ----------
    answer
        The block.
    question, measure
        See `AnswerLine`.
    form
        Format of such numbers.
    value
        Text that is shown in place of the number that was tested.
    """
    number, interval = answer.get("tested"), answer.get("interval")
    if number is None or not interval:
        return AnswerLine(
            answer["question"], answer["answer"], question, measure, value or NO_VALUE
        )
    low, high = (use_minus_sign(form(limit)) for limit in interval)
    chance = low if low == high else f"{low.removesuffix(' %')} to {high}"
    value, p = value or use_minus_sign(form(number)), p_value(answer)
    null = NULLS.get(answer["baseline"], answer["baseline"])
    draws_text = f", {answer['draws']:,} draws" if answer.get("draws") else ""
    facts = f"{measure}: {value}. By chance ({null}{draws_text}): {chance}."
    if p != NO_VALUE:
        facts += f" p {'' if p[0] == '≤' else '= '}{p}."
    return AnswerLine(
        answer["question"], answer["answer"], question, measure, value, chance, p, number,
        tuple(interval), facts,
    )  # fmt: skip


def p_value(answer: Block) -> str:
    """Write the p-value of an answer's block; ``≤`` where more draws could have made it smaller."""
    if answer["p"] is None or not answer.get("draws", True):
        return NO_VALUE
    if answer["p"] > (answer.get("least") or 0.0):
        return f"{answer['p']:.2g}"
    # A bound is rounded up: p ≤ 0.0068 is false of 1/146.
    up = Context(prec=2, rounding=ROUND_CEILING).create_decimal(str(float(answer["p"])))
    return f"≤ {float(up):.2g}"


@dataclass(frozen=True)
class Part:
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
_ROTATIONS = 5


def budget_parts(document: Block) -> tuple[Part, ...]:
    """Return the parts of a document's budget; none where it has no budget."""
    parts_block = (document.get("budget") or {}).get("parts") or ()
    parts = [part for part in parts_block if part["part"] != "mean"]
    total = sum(part["share"] for part in parts)
    waves = sum(part["part"] == "rotation" for part in parts)
    labelled_parts, rank = [], 0
    for part in parts:
        kind, label = part["part"], BUDGET_LABELS[part["part"]]
        look, name, short_name = "line-part" if kind == "line" else kind, label, label
        if part["period"]:
            period = format_period(part["period"])
            label, short_name = f"{period} positions", period
            name = f"{label} ({BUDGET_LABELS[kind]})"
        if kind == "rotation":
            name = f"rotation, period {label}"
            look = f"r{min(rank if waves <= _ROTATIONS else rank * _ROTATIONS // waves, 4)}"
            rank += 1
        share = part["share"] / total
        labelled_parts.append(Part(kind, look, share, percent(share), name, label, short_name))
    return tuple(labelled_parts)


def budget_note(document: Block) -> str:
    """Say how much of the variance the parts do not explain; empty where that is chance."""
    budget = document.get("budget") or {}
    if budget.get("explained") is not False:
        return ""
    return f"{percent(budget['misfit'] - budget['typical_misfit'])} not explained by these parts"


def budget_sums(parts: tuple[Part, ...]) -> list[tuple[float, str]]:
    """Return what several parts of one nature hold together, and how that is called."""
    natures = {"rotations": ("rotation",), "row + column code": ("rows", "columns")}
    sums = []
    for name, kinds in natures.items():
        shares = [part.share for part in parts if part.kind in kinds]
        if len(shares) > 1:
            sums.append((sum(shares), f"{name} {percent(sum(shares))}"))
    return sums


def key(document: Block) -> str:
    """Say which rows the answers about a table are about, and what they are held against."""
    verdict, table = document["verdict"], document["table"]
    small = [
        ASKS[answer["question"]].rstrip("?")
        for answer in verdict["answers"]
        if answer.get("reason") == "small" and answer["answer"] == "no"
    ]
    text = f"{KEY} {listed(small)}: significant but small." if small else KEY
    if verdict.get("rows") and verdict["rows"] != table["rows"]:
        return f"Answers: positions {verdict['rows'][0]}–{verdict['rows'][1] - 1}. {text}"
    return capital(text)


def size(table: Block) -> str:
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
        parts.append(f"{some(len(table['dropped_rows']), 'row')} left out")
    return " · ".join(parts)
