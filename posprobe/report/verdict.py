"""The verdict: every question about a table with its answer, and one sentence that sums them up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from posprobe.analyses.answer import OPEN, Answer, Verdict
from posprobe.analyses.answers import ask
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.analyses.bridging import Bridging, bridging
from posprobe.analyses.closeness import Floats
from posprobe.analyses.grid_answers import ask_grid
from posprobe.analyses.seams import Seams
from posprobe.analyses.stretch import Stretch, runs
from posprobe.analyses.turning import winds
from posprobe.analyses.winding import Winding, winding
from posprobe.arrays import to_numpy
from posprobe.formatting import Block, listed, show
from posprobe.measurements import TABLE, Finding, TableInputs
from posprobe.report.questions import ON_A_LINE, QUESTIONS
from posprobe.tables import Grid

if TYPE_CHECKING:
    from posprobe.documents import (
        AnswerBlock,
        PartBlock,
        SharedAnswerBlock,
        SharedVerdictBlock,
    )

#: Fewest rows of another part that is summed up by itself, and how many of them are.
PART, MOST_PARTS = 32, 3
#: Rows that a sentence lists.
LISTED = 8
#: Questions whose yes says something of a table whose order does not matter.
ANYWAY = ("closed_form", "special_rows", "seams")
#: Share of both codes from which pairs that go round are all that there is to say of them.
HELD = 0.95
#: Held-out R² by which rotations must be ahead of any smooth curve.
AHEAD = 0.2
#: Least share of an axis code's variance of a pair of components that a sentence tells of.
PAIR_SHARE = 0.05


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
        The block of ``analysis.json``: ``summary``, ``rows`` (the stretch that most questions are
        asked of, as positions), ``reasons`` for it, ``parts`` with what is said of other parts,
        and ``answers``.
    """
    layout = inputs.table.layout
    values = np.asarray(to_numpy(inputs.kept.values), dtype=np.float64)
    found = inputs.seams
    codes = inputs.result("axis_codes") if isinstance(layout, Grid) else None
    if isinstance(layout, Grid):
        asked = ask_grid(values, layout.height, layout.width, seed=inputs.seed, dtype=dtype)
        asked = [_with_windings(answer, codes) for answer in asked]
        answers = {answer.question: answer for answer in asked}
    else:
        measured = inputs.result("winding"), inputs.result("bridging")
        answers = _of_a_line(values, *measured, inputs.seed, dtype)
    answers |= {"special_rows": _special(found), "seams": _seams(found)}
    if isinstance(layout, Grid):
        for name in QUESTIONS:
            answers.setdefault(name, Answer(name, "cannot tell", ON_A_LINE))
    ordered = [answers[name] for name in QUESTIONS if name in answers]
    start, stretch = inputs.table.start, inputs.stretch
    parts = _parts(inputs, dtype)
    return {
        "summary": summary(answers, stretch, start, [part["summary"] for part in parts], codes),
        "rows": [start + stretch.first, start + stretch.stop],
        "reasons": list(stretch.reasons),
        "parts": parts,
        "answers": [answer_block(answer) for answer in ordered],
    }


def _of_a_line(
    values: Floats, winding: Winding, bridging: Bridging, seed: int, dtype: str
) -> dict[str, Answer]:
    """Ask what is asked of positions on a line, but for seams and special rows."""
    asked = *ask(values, seed=seed, dtype=dtype), winds(values, winding, seed=seed)
    answers = {answer.question: answer for answer in asked}
    if answers["smooth"].answer == answers["rotations"].answer == "yes":
        answers["smooth"] = _beside_rotations(answers["smooth"], bridging)
    return answers


def _parts(inputs: TableInputs, dtype: str) -> list[PartBlock]:
    """Sum up the other long stretches between seams, in order, each by itself."""
    stretch = inputs.stretch
    if stretch.whole:
        return []
    others = [run for run in runs(inputs.seams) if run[0] != stretch.first]
    longest = sorted(others, key=lambda run: run[0] - run[1])[:MOST_PARTS]
    parts: list[PartBlock] = []
    for first, stop in sorted(run for run in longest if run[1] - run[0] >= PART):
        values = np.asarray(to_numpy(inputs.positions.values[first:stop]), dtype=np.float64)
        measured = winding(values), bridging(values)
        answers = _of_a_line(values, *measured, inputs.seed, dtype)
        text = _main(answers, lambda name, of=answers: name in of and of[name].answer == "yes")
        rows = [inputs.table.start + first, inputs.table.start + stop]
        parts.append({"rows": rows, "summary": f"positions {rows[0]} to {rows[1] - 1}: {text}"})
    return parts


def answer_block(answer: Answer) -> AnswerBlock:
    """Return an answer as ``analysis.json`` has it."""
    return cast("AnswerBlock", asdict(answer) | {"keys": list(answer.keys)})


def _beside_rotations(answer: Answer, found: Bridging | None) -> Answer:
    """Say of a sum of rotations that it is no smooth curve, where gaps in it tell the two apart."""
    if found is None or found.undefined:
        return answer
    best = np.maximum(found.r2["sinusoids"], found.r2["ladder"])
    curve = np.max([found.r2[name] for name in ("linear", *found.kernels)], axis=0)
    ahead = best - curve
    if not np.nanmax(ahead) > AHEAD:
        return answer
    widest = int(np.nanargmax(ahead))
    return replace(
        answer,
        answer="no",
        sentence="No: what makes neighbours alike is its rotations: across gaps of "
        f"{found.gaps[widest]} positions, sinusoids predict the missing rows with an R² of "
        f"{best[widest]:.2f} (1 is exact), the best smooth curve with {curve[widest]:.2f}.",
        keys=(*answer.keys, "bridging.r2"),
    )


def _with_windings(answer: Answer, codes: AxisCodes | None) -> Answer:
    """Add what the codes' components look like, whether or not a dozen points can prove it."""
    if answer.question != "axis_rotations" or codes is None or codes.undefined:
        return answer
    said = []
    for name, code in codes.axes.items():
        pairs = [pair for pair in code.winding.pairs if pair.share >= PAIR_SHARE]
        if pairs:
            one = len(pairs) == 1
            said.append(
                f"{'a pair' if one else 'pairs'} of components with "
                f"{listed([f'{pair.share:.0%}' for pair in pairs])} of the variance of the "
                f"{name.removesuffix('s')} code go{'es' if one else ''} round "
                f"{listed([f'{pair.turns:.2f}' for pair in pairs])} times over "
                f"{len(code.code)} {name}"
            )
    if not said:
        return answer
    text = "; ".join(said)
    return replace(answer, sentence=f"{answer.sentence} {text[0].upper()}{text[1:]}.")


def _rotating_codes(codes: AxisCodes | None) -> str:
    """Say how often the pairs of components of both codes go round, of which they consist."""
    turns = []
    for code in () if codes is None else codes.axes.values():
        pairs = [pair for pair in code.winding.pairs if pair.share >= PAIR_SHARE]
        if sum(pair.share for pair in pairs) < HELD or not pairs:
            return ", and the codes contain rotations"
        turns.append(sorted(pair.turns for pair in pairs))
    if not turns:
        return ", and the codes contain rotations"
    noun = {1: "one rotation", 2: "two rotations", 3: "three rotations"}
    each = [
        f"{noun.get(len(own), f'{len(own)} rotations')} of "
        f"{listed([f'{number:.1f}' for number in own])} turns"
        for own in turns
    ]
    alike = len(turns[0]) == len(turns[1]) and np.allclose(turns[0], turns[1], rtol=0, atol=0.05)
    if alike:
        return f", each code {each[0]}"
    return f", the row code {each[0]}, the column code {each[1]}"


def _special(found: Seams) -> Answer:
    keys = ("seams.special",)
    if found.undefined:
        text = f"Cannot be told: {found.undefined}."
        return Answer("special_rows", "cannot tell", text, keys=keys)
    rows = [row.row + found.start for row in found.special]
    if not rows:
        text = "No: no row is further from its neighbours than the table's own steps make likely."
        return Answer("special_rows", "no", text, value=[], keys=keys)
    names = listed([str(row) for row in rows], LISTED)
    one = len(rows) == 1
    first = found.special[0]
    text = (
        f"Yes: position{'' if one else 's'} {names} {'is' if one else 'are'} unlike "
        f"{'its' if one else 'their'} neighbours; position {rows[0]}: {first.reason}."
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


def summary(
    answers: Mapping[str, Answer],
    stretch: Stretch,
    start: int,
    others: Sequence[str] = (),
    codes: AxisCodes | None = None,
) -> str:
    """Sum the answers up in one sentence, with what is said of other parts of the table."""

    def says(name: str) -> bool:
        return name in answers and answers[name].answer == "yes"

    breaks = []
    if says("seams"):
        pairs = answers["seams"].value
        noun = "a seam" if len(pairs) == 1 else "seams"
        breaks.append(f"{noun} between {listed([f'{a} and {b}' for a, b in pairs], 4)}")
    if says("special_rows"):
        rows = answers["special_rows"].value
        breaks.append(f"{len(rows)} special row{'' if len(rows) == 1 else 's'}")
    main = _main(answers, says, codes)
    if not stretch.whole:
        main = f"positions {start + stretch.first} to {start + stretch.stop - 1}: {main}"
    tail = f"; the table has {' and '.join(breaks)}" if breaks else ""
    text = ". ".join(f"{each[0].upper()}{each[1:]}" for each in (f"{main}{tail}", *others))
    return f"{text}."


def _main(answers: Mapping[str, Answer], says: Any, codes: AxisCodes | None = None) -> str:
    if says("closed_form"):
        return answers["closed_form"].sentence.removeprefix("Yes: ").rstrip(".")
    if says("rows_and_columns"):
        value = answers["rows_and_columns"].value
        share = value["row_share"] + value["column_share"]
        text = "each patch is a code of its row plus a code of its column "
        text += f"({share:.0%} of the variance)"
        return text + (_rotating_codes(codes) if says("axis_rotations") else "")
    if answers["order"].answer == "no":
        return "no sign that the order of positions matters: the rows look independent"
    if answers["order"].answer == "cannot tell":
        return "too little to tell whether the order of positions matters"
    few = ""
    if says("low_dimensional"):
        count = answers["low_dimensional"].value["directions"]
        few = (
            f"; {count} direction{' holds' if count == 1 else 's hold'} nine tenths of the variance"
        )
    if says("rotations"):
        return _rotations(answers["rotations"], answers["ladder"]) + few
    wound = ""
    if says("winding"):
        wound = f" that winds {answers['winding'].value['turns']:.1f} times around a centre"
    where = "how alike two positions are depends on "
    on_grid = "rows_and_columns" in answers
    if says("smooth"):
        length = answers["smooth"].value["length"]
        if on_grid:
            near = f"likeness falls to half within {length:.2g} patches"
            held = "; displacement alone decides how alike two are" if says("stationary") else ""
            return f"a smooth surface over the grid: {near}{few}{held}"
        near = f"likeness falls to half within {length:.2g} positions"
        held = ""
        if says("stationary"):
            held = f"; {where}their distance alone"
        elif answers["stationary"].answer == "no" and not _wanders(answers):
            held = f"; {where}where they stand, not on their distance alone"
        return f"a smooth curve{wound}: {near}{few}{held}"
    if on_grid:
        text = f"neighbouring patches are alike (mean cosine {answers['order'].value:.2f})"
        text += ", and displacement alone decides how alike two are" * says("stationary")
    elif says("stationary"):
        text = f"neighbours are alike, and {where}their distance alone"
    elif answers["smooth"].answer == "no" and _wanders(answers):
        text = "like a random walk: no smoother than random steps added up, and no sign of bounds"
    else:
        alike = f"neighbours are alike (mean cosine {answers['order'].value:.2f})"
        text = f"{alike}, and nothing else stands out"
    return f"{text}{f'; it is a path{wound}' if wound else ''}{few}"


def _wanders(answers: Mapping[str, Answer]) -> bool:
    """Whether the table is no better bounded than its steps added up at random."""
    bounded = answers["stationary"]
    return bounded.answer == "no" and bounded.p is not None and bounded.p > OPEN


def _rounded(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _rotations(answer: Answer, ladder: Answer) -> str:
    series = ladder.answer == "yes"
    base = (ladder.value or {}).get("base") if series else None
    if base is not None:
        return f"a geometric series of rotations, like the sinusoid of base {_rounded(base)}"
    periods = [show(rotation["period"]) for rotation in answer.value or ()]
    if not periods:
        return "a sum of many rotations"
    kind = "a geometric series of rotations" if series else "rotations"
    if len(periods) == 1:
        kind = "a rotation"
    held = "" if answer.effect is None else f", holding {answer.effect:.0%} of the variance"
    noun = "a period" if len(periods) == 1 else "periods"
    return f"{kind} with {noun} of {listed(periods)} positions{held}"


def findings(document: Block) -> tuple[Finding, ...]:
    """Return what the verdict affirms, and what single measurements say, as sentences.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    """
    answers = document.get("verdict", {}).get("answers", ())
    ordered = any(a["question"] == "order" and a["answer"] == "yes" for a in answers)
    told = tuple(
        Finding(affirmed(answer["sentence"]), tuple(answer["keys"]))
        for answer in answers
        # Independent rows are stationary, too: without order there is nothing to tell of them.
        if answer["answer"] == "yes" and (ordered or answer["question"] in ANYWAY)
    )
    measured = (measurement.findings for measurement in TABLE.values())
    return (*told, *(finding for rule in measured for finding in rule(document)))


def affirmed(sentence: str) -> str:
    """Return an answer without the word that it begins with."""
    return capital(re.sub(r"^(Yes|No|Cannot be told|No sign of it): ", "", sentence))


def capital(text: str) -> str:
    """Begin a sentence with a capital, but leave a name before a colon as it is."""
    first = text.partition(" ")[0]
    return text if first.endswith(":") else text[0].upper() + text[1:]


def shared(labels: Sequence[str], verdicts: Sequence[Block]) -> SharedVerdictBlock:
    """Compare the answers of several tables.

    Returns
    -------
    dict
        ``summary`` and ``answers``: for each question the answers by label, whether none of them
        is yes where another is no, and a sentence.
    """
    answers: list[SharedAnswerBlock] = []
    for name, question in QUESTIONS.items():
        found: list[Verdict] = [
            next((a["answer"] for a in block["answers"] if a["question"] == name), "cannot tell")
            for block in verdicts
        ]
        kinds = set(found)
        if kinds == {"cannot tell"}:
            continue
        if len(kinds) == 1:
            told = f"{question} {found[0].capitalize()}, for all."
        else:
            parts = []
            for kind in ("yes", "no", "cannot tell"):
                whose = [label for label, one in zip(labels, found, strict=True) if one == kind]
                if whose:
                    parts.append(f"{kind} for {listed(whose)}")
            text = listed(parts)
            told = f"{question} {text[0].upper()}{text[1:]}."
        answers.append(
            {
                "question": name,
                "answers": dict(zip(labels, found, strict=True)),
                "same": not {"yes", "no"} <= kinds,
                "sentence": told,
            }
        )
    alike = [a["sentence"] for a in answers if len(set(a["answers"].values())) == 1]
    differ = [QUESTIONS[a["question"]] for a in answers if not a["same"]]
    text = " ".join(alike) or "No question has the same answer for all."
    text += (
        f" They differ on: {' '.join(differ)}" if differ else " No answers contradict each other."
    )
    return {"summary": text, "answers": answers}
