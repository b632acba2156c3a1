"""The verdict: every question about a table with its answer, and one sentence that sums them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from posprobe.analyses.answers import Answer, ask, ask_grid, winds
from posprobe.analyses.seams import Seams
from posprobe.analyses.stretch import Stretch
from posprobe.arrays import to_numpy
from posprobe.formatting import Block, listed, show
from posprobe.measurements import Finding, TableInputs
from posprobe.table import Grid

#: Every question in the order of the page, as a reader would ask it.
QUESTIONS: Mapping[str, str] = {
    "closed_form": "Is it a known formula?",
    "special_rows": "Are single rows unlike the rest?",
    "seams": "Does it break into parts?",
    "order": "Does the order of positions matter?",
    "rows_and_columns": "Is it a row code plus a column code?",
    "axis_rotations": "Do the row and column codes rotate?",
    "smooth": "Is it a smooth curve?",
    "stationary": "Does distance alone decide how alike positions are?",
    "low_dimensional": "Does it use few directions?",
    "rotations": "Does it contain rotations of fixed period?",
    "winding": "Does it wind around a centre?",
    "ladder": "Do its frequencies form a geometric series?",
}
#: Rows that a sentence lists.
LISTED = 8


def verdict(inputs: TableInputs, dtype: str) -> dict[str, Any]:
    """Ask every question about a table.

    Parameters
    ----------
    inputs
        The table, and what was measured of it.
    dtype
        Format in which it was stored, for recognising formulas.

    Returns
    -------
    dict
        ``summary``, ``rows`` (the stretch that most questions are asked of, as positions),
        ``reasons`` for it, and ``answers``, the block of ``analysis.json``.
    """
    layout = inputs.table.layout
    values = np.asarray(to_numpy(inputs.kept.values), dtype=np.float64)
    found = inputs.result("seams") or inputs.seams
    if isinstance(layout, Grid):
        asked = ask_grid(values, layout.height, layout.width, seed=inputs.seed, dtype=dtype)
    else:
        asked = ask(values, seed=inputs.seed, dtype=dtype)
        asked.append(winds(values, inputs.result("winding"), seed=inputs.seed))
    answers = {answer.question: answer for answer in (*asked, _special(found), _seams(found))}
    for name in QUESTIONS:
        answers.setdefault(name, _not_asked(name, layout))
    ordered = [answers[name] for name in QUESTIONS]
    start, stretch = inputs.table.start, inputs.stretch
    return {
        "summary": summary(answers, inputs.stretch, start),
        "rows": [start + stretch.first, start + stretch.stop],
        "reasons": list(stretch.reasons),
        "answers": [_block(answer) for answer in ordered],
    }


def _block(answer: Answer) -> dict[str, Any]:
    block = asdict(answer)
    return block | {"keys": list(answer.keys)}


def _not_asked(name: str, layout: object) -> Answer:
    why = (
        "This is asked of patches on a grid, and the positions are a sequence."
        if not isinstance(layout, Grid)
        else "This is asked of positions on a line, and these are patches on a grid."
    )
    return Answer(name, "cannot tell", why)


def _special(found: Seams) -> Answer:
    keys = ("seams.special",)
    if found.undefined:
        return Answer(
            "special_rows", "cannot tell", f"Cannot be told: {found.undefined}.", keys=keys
        )
    rows = [row.row + found.start for row in found.special]
    if not rows:
        text = "No: no row is further from its neighbours than the table's own steps make likely."
        return Answer("special_rows", "no", text, value=[], keys=keys)
    names = listed([str(row) for row in rows], LISTED)
    one = len(rows) == 1
    first = found.special[0]
    text = (
        f"Yes: position{'' if one else 's'} {names} {'is' if one else 'are'} unlike "
        f"{'its' if one else 'their'} neighbours; {rows[0]} is {first.reason}."
    )
    return Answer("special_rows", "yes", text, value=rows, keys=keys)


def _seams(found: Seams) -> Answer:
    keys = ("seams.between", "seams.reasons")
    if found.undefined:
        return Answer("seams", "cannot tell", f"Cannot be told: {found.undefined}.", keys=keys)
    pairs = [[left + found.start, right + found.start] for left, right in found.between]
    if not pairs:
        text = "No: nowhere do two neighbouring parts differ more than the table varies anyway."
        return Answer("seams", "no", text, value=[], keys=keys)
    places = [
        f"between positions {left} and {right} ({reason})"
        for (left, right), reason in zip(pairs, found.reasons, strict=True)
    ]
    text = f"Yes: there is a seam {listed(places, LISTED)}."
    return Answer("seams", "yes", text, value=pairs, keys=keys)


def summary(answers: Mapping[str, Answer], stretch: Stretch, start: int) -> str:
    """Sum the answers up in one sentence."""

    def says(name: str) -> bool:
        return name in answers and answers[name].answer == "yes"

    rest = ""
    if not stretch.whole:
        rest = f"Positions {start + stretch.first} to {start + stretch.stop - 1}: "
    breaks = []
    if says("seams"):
        pairs = answers["seams"].value
        breaks.append(f"a seam between {listed([f'{a} and {b}' for a, b in pairs], 4)}")
    if says("special_rows"):
        rows = answers["special_rows"].value
        breaks.append(f"{len(rows)} special row{'' if len(rows) == 1 else 's'}")
    tail = f", with {listed(breaks)}" if breaks else ""
    main = _main(answers, says)
    text = f"{rest}{main}{tail}."
    return text[0].upper() + text[1:]


def _main(answers: Mapping[str, Answer], says: Any) -> str:
    if says("closed_form"):
        return answers["closed_form"].sentence.removeprefix("Yes: ").rstrip(".")
    if says("rows_and_columns"):
        value = answers["rows_and_columns"].value
        share = value["row_share"] + value["column_share"]
        text = f"each patch is a code of its row plus a code of its column ({share:.0%} of the variance)"
        if says("axis_rotations"):
            text += ", and the codes rotate"
        return text
    if answers["order"].answer == "no":
        return "no sign that the order of positions matters: the rows look independent"
    if answers["order"].answer == "cannot tell":
        return "too little to tell whether the order of positions matters"
    few = ""
    if says("low_dimensional"):
        few = f" in about {answers['low_dimensional'].value['components']} directions"
    if says("rotations"):
        return _rotations(answers["rotations"], says("ladder")) + few
    wound = ""
    if says("winding"):
        wound = f" that winds {answers['winding'].value['turns']:.1f} times"
    if says("smooth"):
        length = show(answers["smooth"].value["length"])
        held = "" if says("stationary") else ", and where it stands matters as well as distance"
        return f"a smooth curve{few}{wound}, alike over about {length} positions{held}"
    if says("stationary"):
        return f"neighbours are alike, and distance alone decides how much{few}; no smooth curve{wound}"
    return f"neighbours are alike, as in a random walk{few}{wound}; nothing else stands out"


def _rotations(answer: Answer, ladder: bool) -> str:
    value = answer.value or {}
    periods = [show(period) for period in value.get("periods", ())]
    if not periods:
        return "a sum of many rotations"
    kind = "a geometric series of rotations" if ladder else "rotations"
    share = value.get("share")
    held = "" if share is None else f", holding {share:.0%} of the variance"
    return f"{kind} with periods of {listed(periods)} positions{held}"


def findings_of(block: Block) -> tuple[Finding, ...]:
    """Return what the verdict affirms, as sentences with the keys that they rest on."""
    return tuple(
        Finding(_affirmed(answer["sentence"]), tuple(answer["keys"]))
        for answer in block["answers"]
        if answer["answer"] == "yes"
    )


def _affirmed(sentence: str) -> str:
    text = sentence.removeprefix("Yes: ")
    return text[0].upper() + text[1:]


def shared(labels: Sequence[str], verdicts: Sequence[Block]) -> dict[str, Any]:
    """Compare the answers of several tables.

    Returns
    -------
    dict
        ``summary`` and ``answers``: for each question the answers by label, whether all agree, and
        a sentence.
    """
    answers = []
    for name, question in QUESTIONS.items():
        found = [
            next(a["answer"] for a in block["answers"] if a["question"] == name)
            for block in verdicts
        ]
        kinds = set(found)
        if kinds == {"cannot tell"}:
            continue
        same = len(kinds) == 1
        if same:
            text = f"{question} {found[0].capitalize()}, for all."
        else:
            parts = [
                f"{kind} for {listed([label for label, one in zip(labels, found, strict=True) if one == kind])}"
                for kind in ("yes", "no", "cannot tell")
                if kind in kinds
            ]
            text = f"{question} {listed(parts).capitalize()}."
        answers.append(
            {
                "question": name,
                "answers": dict(zip(labels, found, strict=True)),
                "same": same,
                "sentence": text,
            }
        )
    differ = [QUESTIONS[a["question"]] for a in answers if not a["same"]]
    agree = len(answers) - len(differ)
    text = f"The tables agree on {agree} of {len(answers)} questions"
    text += f"; they differ on: {' '.join(differ)}" if differ else "."
    return {"summary": text, "answers": answers}
