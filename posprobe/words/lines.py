"""Answers as lines: a short question, a measure, its value, and its range by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from posprobe.analyses.composition.budget import BUDGET_LABELS
from posprobe.analyses.descriptive.grid import VideoCodes
from posprobe.layouts import Video
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.text import Block, format_period, use_minus_sign
from posprobe.words import NULL_TEXTS, QUESTION_TEXTS
from posprobe.words.formats import (
    capitalise,
    format_count,
    format_hundredths,
    format_rounded,
    format_two_figures,
    format_whole_percent,
    join_words,
)

#: Function that formats the numbers of a measure.
NumberFormat = Callable[[float], str]
#: Meaning of a tested answer.
TEST_KEY = "yes: p ≤ 0.02; by chance: all but 2 % of random tables."


def _format_share(value: float) -> str:
    """Format a share in per cent, with two digits where it is small."""
    return (
        f"{100 * value:.2g} %"
        if 0.0001 <= value < 0.0095
        else format_whole_percent(value)
    )


def _format_cosine(value: float) -> str:
    return f"{value:.3f}" if 0.995 <= value < 1 else format_hundredths(value)


def _format_dimension(value: float) -> str:
    return format_two_figures(value) if value < 100 else f"{value:.0f}"


_SIGN_MEASURES: Mapping[str, str] = {
    "products": "not due to distance",
    "norms": "trend in norms",
    "speed": "trend in step size",
    "mirrored": "mirrored pairs",
    "opposed": "mirrored pairs",
}


def _order_measure(facts: Block) -> tuple[str, NumberFormat]:
    shares = {"wave": "share of strongest wave", "norms": "trend in norms"}
    if share := shares.get(facts.get("tested", "cosine")):
        return share, _format_share
    return "neighbour cosine", _format_cosine


def _smooth_measure(facts: Block) -> tuple[str, NumberFormat]:
    if facts.get("straight") is not None:
        return "share of variance", _format_share
    stride = facts["stride"]  # of earlier versions, and of patches
    return (
        "cosine of steps" if stride == 1 else f"cosine of {stride}-row steps",
        _format_cosine,
    )


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


def _circle_measure(facts: Block) -> tuple[str, NumberFormat]:
    axes: list[str] = facts.get("rotating") or []
    name = f"{axes[0].removesuffix('s')} code" if len(axes) == 1 else "codes"
    return f"{name} on a circle", _format_share


#: Measure that was tested and its format, from the facts of an answer, by question.
_TEST_MEASURES: Mapping[str, Callable[[Block], tuple[str, NumberFormat]]] = {
    "order": _order_measure,
    "smooth": _smooth_measure,
    "absolute_position": _position_measure,
    "winding": _winding_measure,
    "ladder": _ladder_measure,
    "low_dimensional": lambda _: ("effective dimension", _format_dimension),
    "rotations": lambda _: ("strongest component", _format_share),
    "rows_and_columns": lambda _: ("share in both codes", _format_share),
    "axis_rotations": _circle_measure,
}


def _formula_columns(facts: Block) -> dict[str, Any]:
    if facts.get("formula") is not None:
        error = facts.get("error")
        return {
            "measure": "largest error",
            "value": _format_share(error) if error else "none",
        }
    if facts.get("cka") is None:
        return {}
    best = "CKA, 2-D sin-cos" if facts.get("grid") else "CKA, best sinusoid"
    return {"measure": best, "value": format_hundredths(facts["cka"])}


def _seam_columns(facts: Block) -> dict[str, Any]:
    if facts.get("pairs") is None:
        return {}
    pairs = facts["pairs"]
    value = (
        f"{pairs[0][0]} | {pairs[0][1]}" if len(pairs) == 1 else str(len(pairs) or "none")
    )
    return {
        "measure": "between positions" if len(pairs) == 1 else "breaks",
        "value": value,
    }


def _outlier_columns(facts: Block) -> dict[str, Any]:
    if facts.get("positions") is None:
        return {}
    largest, chance, count = (
        facts.get("largest"),
        facts.get("chance"),
        len(facts["positions"]),
    )
    # A row may be an outlier by its norm or its direction alone.
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


#: Columns of answers without a test of their own, from their facts, by question.
_FACT_COLUMNS: Mapping[str, Callable[[Block], dict[str, Any]]] = {
    "closed_form": _formula_columns,
    "seams": _seam_columns,
    "special_rows": _outlier_columns,
}


def _formula_rotations(facts: Block) -> tuple[str, str]:
    if facts.get("count") is None:  # as in bundles of 0.1
        return "periodic components", "many"
    return "share of variance", _format_share(facts["share"])


#: Measure and value of answers that state what they did not test, by question and reason.
_STATED_MEASURES: Mapping[tuple[str, str], Callable[[Block], tuple[str, str]]] = {
    ("rotations", "formula"): _formula_rotations,
    ("rotations", "series"): lambda _: ("periodic components", "many"),
    ("smooth", "formula"): lambda facts: (
        "share of variance",
        _format_share(facts["share"]),
    ),
    ("ladder", "formula"): lambda facts: (
        "base",
        format_rounded(facts["series"]["base"]),
    ),
    # The distance of two rows is that of their positions up to rounding.
    ("absolute_position", "exact"): lambda _: ("explained by distance", "100 %"),
    ("absolute_position", "clock"): lambda facts: (
        "pace of the clock",
        f"± {format_whole_percent(facts['variation'])}",
    ),
}


def table_lines(verdict: Block, *, grid: bool) -> tuple[AnswerLine, ...]:
    """Return one line for each answer of a block ``verdict``, in the order of the page.

    Parameters
    ----------
    verdict
        Block of the answers; facts that version 1 did not keep are left out.
    grid
        Whether the positions are patches, about which some questions are not asked.
    """
    answers = {answer["question"]: answer for answer in verdict["answers"]}
    names = [name for name in QUESTION_TEXTS if name in answers]
    if grid:
        names = [
            name
            for name in names
            if name not in {"seams", "rotations", "winding", "ladder"}
        ]
    elif answers.get("rotations", {}).get("answer") == "yes":
        # The winding is the same fact.
        names = [name for name in names if name != "winding"]
    elif answers.get("ladder", {}).get("answer") != "yes":
        # Without rotations there is no ladder to ask about.
        names = [name for name in names if name != "ladder"]
    return tuple(answer_line(answers[name], grid=grid) for name in names)


def answer_line(answer: Block, *, grid: bool = False) -> AnswerLine:
    """Return an answer's block as a line."""
    name, facts = answer["question"], answer.get("facts") or {}
    question = QUESTION_TEXTS[name]
    if grid:
        question = {"special_rows": "Outlier patches?", "smooth": "Smooth?"}.get(
            name, question
        )
    if name == "smooth" and facts.get("curve") is not None:
        return AnswerLine(
            name,
            answer["answer"],
            "Only a smooth curve?",
            "R²: curve, rotations",
            f"{format_hundredths(facts['curve'])}, {format_hundredths(facts['waves'])}",
        )
    if stated_measure := _STATED_MEASURES.get((name, answer["reason"])):
        return AnswerLine(name, answer["answer"], question, *stated_measure(facts))
    if name == "rotations" and facts.get("preferred") and not facts.get("lines"):
        share = _format_share(facts["preferred"]["share"])
        return AnswerLine(name, answer["answer"], question, "noise with a period", share)
    if name in _FACT_COLUMNS:
        return AnswerLine(name, answer["answer"], question, **_FACT_COLUMNS[name](facts))
    if answer.get("interval") and name in _TEST_MEASURES:
        measure, number_format = _TEST_MEASURES[name](facts)
        value = _stated_value(answer, facts, number_format)
        return chance_line(answer, question, measure, number_format, value)
    if name == "absolute_position" and facts.get("invariance") is not None:
        share = _format_share(facts["invariance"])
        return AnswerLine(
            name, answer["answer"], question, "explained by distance", share
        )
    return AnswerLine(name, answer["answer"], question)


def _stated_value(answer: Block, facts: Block, number_format: NumberFormat) -> str:
    """Return a tested number with its range or its largest value; empty if it has neither."""
    name, tested = answer["question"], number_format(answer["tested"])
    if name == "low_dimensional" and facts.get("columns"):
        return f"{tested} of {facts['columns']}"
    if name == "smooth" and facts.get("least") is not None:
        # Slow changes that may not be smooth are the difference.
        return f"{number_format(facts['least']).removesuffix(' %')} to {tested}"
    return ""


def chance_line(
    answer: Block,
    question: str,
    measure: str,
    number_format: NumberFormat,
    value: str = "",
) -> AnswerLine:
    """Return an answer's block as a line with its range by chance, where there is one.

    Parameters
    ----------
    answer
        Block of the answer.
    question, measure
        Columns of the `AnswerLine`.
    number_format
        Format of the numbers of this measure.
    value
        Text that is shown instead of the number that was tested.
    """
    name, verdict = answer["question"], answer["answer"]
    number, interval = answer.get("tested"), answer.get("interval")
    if number is None or not interval:
        return AnswerLine(name, verdict, question, measure, value or NO_VALUE)
    low, high = (use_minus_sign(number_format(limit)) for limit in interval)
    chance = low if low == high else f"{low.removesuffix(' %')} to {high}"
    value, p = value or use_minus_sign(number_format(number)), format_p_value(answer)
    null = NULL_TEXTS.get(answer["baseline"], answer["baseline"])
    draws_text = f", {answer['draws']:,} draws" if answer.get("draws") else ""
    facts = f"{measure}: {value}. By chance ({null}{draws_text}): {chance}."
    if p != NO_VALUE:
        facts += f" p {'' if p[0] == '≤' else '= '}{p}."
    columns = (name, verdict, question, measure, value, chance, p)
    return AnswerLine(*columns, number, tuple(interval), facts)


def format_p_value(answer: Block) -> str:
    """Format the p-value of an answer's block, with ``≤`` where more draws could lower it."""
    if answer["p"] is None or not (answer.get("draws", True) or answer.get("least")):
        return NO_VALUE
    if answer["p"] > (answer.get("least") or 0.0):
        return f"{answer['p']:.2g}"
    # A bound is rounded up: p ≤ 0.0068 would be false for 1/146.
    rounded_up = Context(prec=2, rounding=ROUND_CEILING).create_decimal(
        str(float(answer["p"]))
    )
    return f"≤ {float(rounded_up):.2g}"


@dataclass(frozen=True)
class BudgetTerm:
    """A term of the variance budget, as its bar shows it.

    Parameters
    ----------
    kind, colour_class
        Key of `posprobe.analyses.composition.ledger.BUDGET_TERMS`, and its colour class.
    share
        Share of the variance around the mean row.
    value
        Text of the share.
    name, label, short_label
        Name in full, name in the bar, and name where the bar is narrow.
    """

    kind: str
    colour_class: str
    share: float
    value: str
    name: str
    label: str
    short_label: str


#: Number of colour classes of rotations, from the fastest.
N_ROTATION_COLOURS = 5


#: What the parts of a table are shares of.
TABLE_BUDGET_SUBJECT = "variance around the mean row"
#: What the parts of attention logits are shares of.
ATTENTION_SUBJECT = "variance of attention logits"
#: Label and colour class of the parts of attention logits, in the order of the bar.
ATTENTION_LABELS = {
    "distance": ("distance", "r3"),
    "key": ("place of the key", "r1"),
    "other": ("other position", "rows"),
    "content": ("content", "content"),
}


def budget_terms(document: Block) -> tuple[BudgetTerm, ...]:
    """Return the terms of a document's budget; none where it has no budget."""
    if attention := document.get("attention_budget"):
        return _attention_terms(attention)
    blocks = (document.get("budget") or {}).get("parts") or ()
    term_blocks = [block for block in blocks if block["part"] != "mean"]
    total = sum(block["share"] for block in term_blocks)
    n_rotations = sum(block["part"] == "rotation" for block in term_blocks)
    terms, rank = [], 0
    for block in term_blocks:
        kind, label = block["part"], BUDGET_LABELS[block["part"]]
        colour_class, name, short_name = (
            "line-part" if kind == "line" else kind,
            label,
            label,
        )
        if block["period"]:
            period = format_period(block["period"])
            label, short_name = f"{period} positions", period
            name = f"{label} ({BUDGET_LABELS[kind]})"
            name = f"rotation, period {label}" if kind == "rotation" else name
        if kind == "rotation":
            colour_class = f"r{_colour_index(rank, n_rotations)}"
            rank += 1
        share = block["share"] / total
        share_text = format_whole_percent(share)
        terms.append(
            BudgetTerm(kind, colour_class, share, share_text, name, label, short_name)
        )
    return tuple(terms)


def _colour_index(rank: int, n_rotations: int) -> int:
    """Return the colour class of a rotation by its rank from the fastest."""
    if n_rotations > N_ROTATION_COLOURS:
        rank = rank * N_ROTATION_COLOURS // n_rotations
    return min(rank, N_ROTATION_COLOURS - 1)


def _attention_terms(block: Block) -> tuple[BudgetTerm, ...]:
    """Return what decides where the heads of a model look, as the terms of a budget."""
    # The estimate of a zero share can be slightly negative.
    shares = {name: max(block[name] or 0.0, 0.0) for name in ATTENTION_LABELS}
    total = sum(shares.values()) or 1.0
    if not math.isfinite(total):
        raise ValueError(f"shares of attention logits that add up to {total}")
    return tuple(
        BudgetTerm(
            name,
            colour_class,
            shares[name] / total,
            format_whole_percent(shares[name]),
            label,
            label,
            label,
        )
        for name, (label, colour_class) in ATTENTION_LABELS.items()
    )


def compared_runs(records: Sequence[Block]) -> list[tuple[str, Block]]:
    """Return label and block of every run if nothing but runs is compared."""
    runs = [(record["label"], record.get("run") or {}) for record in records]
    # Runs in bundles of version 2 have no budget.
    return runs if all("content" in run for _, run in runs) else []


def compared_budgets(
    document: Block,
) -> tuple[tuple[str, tuple[BudgetTerm, ...]], ...]:
    """Return label and attention budget of every run in a comparison of nothing but runs.

    Raises
    ------
    ValueError
        If a share is not finite, as in no run.
    """
    runs = compared_runs(document.get("records") or ())
    return tuple((label, _attention_terms(run)) for label, run in runs)


def table_budgets(document: Block) -> tuple[tuple[str, tuple[BudgetTerm, ...]], ...]:
    """Return label and variance budget of every table of a comparison that has one."""
    budgets = (
        (table["label"], budget_terms(table)) for table in document.get("tables") or ()
    )
    return tuple((label, terms) for label, terms in budgets if terms)


def head_share_text(head: Block) -> str:
    """Return the share of a head's logits that goes with distance, as a text."""
    # The estimate of a zero share can be slightly negative.
    return format_whole_percent(max(head["distance"], 0.0))


def budget_subject(document: Block) -> str:
    """Return what the terms of a document's budget are shares of."""
    if attention := document.get("attention_budget"):
        heads = format_count(len(attention["heads"]), "head")
        return f"{ATTENTION_SUBJECT}, mean of {heads}"
    return TABLE_BUDGET_SUBJECT


def budget_note(document: Block) -> str:
    """Return a note on the variance that no term explains; empty where that is chance."""
    budget = document.get("budget") or {}
    if budget.get("explained") is not False:
        return ""
    excess_misfit = budget["misfit"] - budget["typical_misfit"]
    return f"{format_whole_percent(excess_misfit)} not explained by these parts"


def budget_sums(terms: tuple[BudgetTerm, ...]) -> list[tuple[float, str, str]]:
    """Return the total shares of terms of one kind, each with its text and its label."""
    kinds_by_name = {"rotations": ("rotation",), "row + column code": ("rows", "columns")}
    sums = []
    for name, kinds in kinds_by_name.items():
        shares = [term.share for term in terms if term.kind in kinds]
        if len(shares) > 1:
            sums.append((sum(shares), format_whole_percent(sum(shares)), name))
    return sums


def answers_key(document: Block) -> str:
    """Return the key to the answers about a table: their rows, and their levels."""
    verdict, table = document["verdict"], document["table"]
    small_effects = [
        QUESTION_TEXTS[answer["question"]].rstrip("?")
        for answer in verdict["answers"]
        if answer.get("reason") == "small" and answer["answer"] == "no"
    ]
    text = TEST_KEY
    if small_effects:
        text += f" {join_words(small_effects)}: significant but small."
    if verdict.get("rows") and verdict["rows"] != table["rows"]:
        return f"Answers: positions {verdict['rows'][0]}–{verdict['rows'][1] - 1}. {text}"
    return capitalise(text)


def video_note(codes: VideoCodes, layout: Video) -> str:
    """Return the note that stands for the answers of a table of a video's patches."""
    advice = (
        f"Questions are asked of lines and grids: `--rows 0:{layout.frame.size}` takes the "
        "first frame as a grid"
    )
    if codes.undefined:
        return f"{codes.undefined}. {advice}"
    names = {"frames": "time code", "rows": "row code", "columns": "column code"}
    shares = ", ".join(
        f"{names[axis]} {format_whole_percent(code.share)}"
        for axis, code in codes.axes.items()
    )
    return (
        "a time code plus a row code plus a column code explains "
        f"{format_whole_percent(codes.additive_share)} of the variance ({shares}). {advice}"
    )


def describe_table(table: Block) -> str:
    """Describe the size of a table and its tensor in one line."""
    layout, source = table["layout"], table["source"]
    rows = f"{table['positions']:,} positions"
    if layout["type"] == "grid":
        rows = f"{layout['height']} × {layout['width']} patches"
    if layout["type"] == "video":
        rows = (
            f"{layout['frames']} frames × {layout['height']} × {layout['width']} patches"
        )
    parts = [f"{rows} × {table['dim']}"]
    if source["tensor"]:
        parts.append(source["tensor"])
    tokens = [row["token"] for row in table["prefix_rows"]]
    if tokens:
        parts.append(f"{', '.join(tokens[:3])} kept apart")
    if table["dropped_rows"]:
        parts.append(f"{format_count(len(table['dropped_rows']), 'row')} left out")
    return " · ".join(parts)
