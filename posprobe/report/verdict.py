"""The verdict: every question about a table with its answer, and one sentence that sums them up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from posprobe.analyses.answer import Answer, Verdict
from posprobe.analyses.answers import ask
from posprobe.analyses.bridging import Bridging, bridging
from posprobe.analyses.closeness import Floats
from posprobe.analyses.copies import copies, returns
from posprobe.analyses.grid_answers import ask_grid, lone_code
from posprobe.analyses.rotation_answers import FEW_ROWS, NEARLY
from posprobe.analyses.seams import Seams
from posprobe.analyses.stretch import all_equal, runs
from posprobe.analyses.turning import winds
from posprobe.analyses.winding import Winding, winding
from posprobe.arrays import Array, to_numpy
from posprobe.layouts import Grid
from posprobe.measurements import TABLE, Finding, TableInputs
from posprobe.report.agreement import (
    agreeing,
    beside_rotations,
    beside_winding,
    of_a_rotation,
    of_weak_codes,
    with_copies,
    with_windings,
    without_order,
)
from posprobe.report.document import plain
from posprobe.report.narrator import cause, together
from posprobe.report.narrator.causes import copied
from posprobe.report.questions import ON_A_LINE, QUESTIONS
from posprobe.report.summary import MOST_PARTS, main_clause, summary
from posprobe.text import Block, listed, patches

if TYPE_CHECKING:
    from posprobe.documents import (
        AnswerBlock,
        PartBlock,
        SharedAnswerBlock,
        SharedVerdictBlock,
    )

#: Fewest rows of another part that is summed up by itself.
PART = 32
#: Rows that a sentence lists.
LISTED = 8
#: Rows below which planted seams and special rows are missed more often than one time in twenty.
FEWEST_ROWS = 64
#: Questions whose yes says something of a table whose order does not matter.
ANYWAY = ("closed_form", "special_rows", "seams")
#: Words of a grid whose special patches have others in their place.
REPLACED = "The other questions are asked with the mean of the neighbours"
#: Shortest run of rows that a sentence names by its ends.
RUN = 3


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
    values = _host(inputs.kept.values)
    found = inputs.seams
    codes = inputs.result("axis_codes") if isinstance(layout, Grid) else None
    if isinstance(layout, Grid):
        asked = ask_grid(values, layout.height, layout.width, seed=inputs.seed, dtype=dtype)
        answers = {answer.question: answer for answer in asked}
        answers["stationary"] = without_order(answers["stationary"], answers["order"])
        if answers["rows_and_columns"].answer == "yes":
            share = answers["rows_and_columns"].value
            lone = lone_code(share["row_share"], share["column_share"])
            answers["axis_rotations"] = with_windings(answers["axis_rotations"], codes, lone)
        else:
            answers["axis_rotations"] = of_weak_codes(
                answers["axis_rotations"], answers["rows_and_columns"]
            )
    else:
        measured = inputs.result("winding"), inputs.result("bridging")
        answers = _of_a_line(values, *measured, inputs.seed, dtype)
    answers |= {"special_rows": _special(found, inputs.replaced), "seams": _seams(found)}
    form = answers["closed_form"]
    if inputs.replaced and NEARLY in form.sentence:
        why = "the means in the place of special patches are part of that"
        text = f"{form.sentence.rstrip('.')}; {why}."
        answers["closed_form"] = replace(form, sentence=text)
    if isinstance(layout, Grid):
        for name in QUESTIONS:
            answers.setdefault(name, Answer(name, "cannot tell", ON_A_LINE))
    start, stretch = inputs.table.start, inputs.stretch
    parts = _parts(inputs, dtype)
    others = [part["summary"] for part in parts]
    alike = None
    if not isinstance(layout, Grid):
        positions, turning = _host(inputs.positions.values), answers["rotations"]
        rotating = turning.effect or 0.0 if turning.answer == "yes" else 0.0
        rotating = 1.0 if answers["winding"].answer == "yes" else rotating
        alike = copies(positions) or returns(positions, rotating)
        if alike and alike.kind == "any" and found.equal:
            again = [row for first, last in found.equal for row in range(first + 1, last + 1)]
            alike = alike if copies(np.delete(positions, again, axis=0)) else None
    zero = found.norms == 0
    if not isinstance(layout, Grid):
        among = 0 < int(np.count_nonzero(zero[stretch.rows])) < stretch.stop - stretch.first
        answers = with_copies(answers, alike, zeros=among)
    ordered = [answers[name] for name in QUESTIONS if name in answers]
    zeros = int(np.count_nonzero(zero)) if found.special else 0
    clause = copied(alike) if alike else ""
    equal = [(first + start, last + start) for first, last in found.equal]
    return {
        "summary": summary(answers, stretch, start, others, codes, clause, zeros, equal),
        "rows": [start + stretch.first, start + stretch.stop],
        "reasons": plain(stretch.reasons),
        "parts": parts,
        "answers": [answer_block(answer) for answer in ordered],
    }


def _host(values: Array) -> Floats:
    return np.asarray(to_numpy(values), dtype=np.float64)


def _of_a_line(
    values: Floats, winding: Winding, bridging: Bridging, seed: int, dtype: str
) -> dict[str, Answer]:
    """Ask what is asked of positions on a line, but for seams and special rows."""
    asked = *ask(values, seed=seed, dtype=dtype), winds(values, winding, seed=seed)
    answers = {answer.question: answer for answer in asked}
    if answers["smooth"].answer == answers["rotations"].answer == "yes":
        answers["smooth"] = beside_rotations(answers["smooth"], bridging, answers["rotations"])
    if len(values) >= FEW_ROWS:
        answers["rotations"] = beside_winding(answers["rotations"], answers["winding"])
    pair = winding.pairs[0] if winding.pairs else None
    answers["winding"] = of_a_rotation(answers["winding"], answers["rotations"], pair)
    return agreeing(answers)


def _parts(inputs: TableInputs, dtype: str) -> list[PartBlock]:
    """Sum up the other long stretches between seams, in order, each by itself."""
    stretch = inputs.stretch
    if stretch.whole:
        return []
    found = inputs.seams
    others = [run for run in runs(found) if run[0] != stretch.first and not all_equal(found, run)]
    longest = sorted(others, key=lambda run: run[0] - run[1])[:MOST_PARTS]
    parts: list[PartBlock] = []
    for first, stop in sorted(run for run in longest if run[1] - run[0] >= PART):
        values = _host(inputs.positions.values[first:stop])
        measured = winding(values), bridging(values)
        answers = _of_a_line(values, *measured, inputs.seed, dtype)
        text = main_clause(answers)
        rows = [inputs.table.start + first, inputs.table.start + stop]
        parts.append({"rows": rows, "summary": f"positions {rows[0]} to {rows[1] - 1}: {text}"})
    return parts


def answer_block(answer: Answer) -> AnswerBlock:
    """Return an answer as ``analysis.json`` has it."""
    return cast("AnswerBlock", asdict(answer) | {"keys": list(answer.keys)})


def _special(found: Seams, replaced: Sequence[int]) -> Answer:
    keys = ("seams.special",)
    if found.no_special:
        text = f"Cannot be told: {found.no_special}."
        return Answer("special_rows", "cannot tell", text, keys=keys)
    rows = [row.row + found.start for row in found.special]
    grid = found.layout if isinstance(found.layout, Grid) else None
    if not rows:
        text = "No: no row is further from its neighbours than the table's own steps make likely."
        if grid:
            text = "No: no patch is much further from its neighbours than others from theirs."
        return _unless_few("special_rows", text, found, keys)
    named = partial(patches, width=grid.width) if grid else _positions
    zero = [row for row in rows if not found.norms[row - found.start]]
    other = [row for row in found.special if row.row + found.start not in zero]
    parts = []
    if other:
        names = [row.row + found.start for row in other]
        own = "is unlike its" if len(names) == 1 else "are unlike their"
        first = "" if len(names) == 1 else f"{named(names[:1])}: "
        parts.append(f"{named(names)} {own} neighbours ({first}{together(other[0].causes)})")
    if zero:
        many = "holds only zeros and has" if len(zero) == 1 else "hold only zeros and have"
        parts.append(f"{named(zero)} {many} no direction")
    text = f"Yes: {'; '.join(parts)}."
    if replaced:
        place = "its place" if len(replaced) == 1 else "their place"
        text += f" {REPLACED} in {place}."
    return Answer("special_rows", "yes", text, value=rows, keys=keys)


def _unless_few(question: str, no: str, found: Seams, keys: tuple[str, ...]) -> Answer:
    """Answer no, unless the rows are so few that what there is would often be missed."""
    n = len(found.norms)
    if n >= FEWEST_ROWS:
        return Answer(question, "no", no, value=[], keys=keys)
    noun = "patch" if isinstance(found.layout, Grid) else "row"
    seen = {"seams": "no seam is seen", "special_rows": f"no {noun} stands out"}[question]
    many = "patches" if noun == "patch" else "rows"
    text = f"Cannot be told from {n} {many}: {seen}, and among so few one may well be missed."
    return Answer(question, "cannot tell", text, value=[], keys=keys)


def _positions(rows: Sequence[int]) -> str:
    """Name positions, which rise, runs of them by their ends."""
    edges = np.flatnonzero(np.diff(rows) != 1) + 1
    names: list[str] = []
    for run in np.split(np.asarray(rows), edges):
        first, last = int(run[0]), int(run[-1])
        names += [f"{first} to {last}"] if len(run) >= RUN else [str(row) for row in run]
    return f"position{'' if len(rows) == 1 else 's'} {listed(names, LISTED)}"


def _seams(found: Seams) -> Answer:
    keys = ("seams.between", "seams.reasons")
    if found.undefined:
        return Answer("seams", "cannot tell", f"Cannot be told: {found.undefined}.", keys=keys)
    pairs = [[left + found.start, right + found.start] for left, right in found.between]
    if not pairs:
        text = "No: nowhere do two neighbouring parts differ more than the table varies anyway."
        return _unless_few("seams", text, found, keys)
    places = [
        f"between positions {left} and {right} ({cause(changed)})"
        for (left, right), changed in zip(pairs, found.reasons, strict=True)
    ]
    text = f"Yes: there is a seam {listed(places, LISTED)}."
    return Answer("seams", "yes", text, value=pairs, keys=keys)


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


def shared(
    labels: Sequence[str],
    verdicts: Sequence[Block],
    questions: Mapping[str, str] = QUESTIONS,
) -> SharedVerdictBlock:
    """Compare the answers about several tables or encodings.

    Parameters
    ----------
    labels, verdicts
        Of each, its name and a block with its ``answers``.
    questions
        That are compared, in this order.

    Returns
    -------
    dict
        ``summary`` and ``answers``: for each question the answers by label, whether none of them
        is yes where another is no, and a sentence.
    """
    answers: list[SharedAnswerBlock] = []
    for name, question in questions.items():
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
    differ = [questions[a["question"]] for a in answers if not a["same"]]
    text = " ".join(alike) or "No question has the same answer for all."
    text += (
        f" They differ on: {' '.join(differ)}" if differ else " No answers contradict each other."
    )
    return {"summary": text, "answers": answers}
