"""The verdict: every question about a table with its answer, and one sentence that sums them up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from posprobe.analyses.answer import Answer, Verdict
from posprobe.analyses.answers import ALL_LINE, ask
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.analyses.bridging import Bridging, bridging
from posprobe.analyses.closeness import Floats
from posprobe.analyses.copies import Copies, copies, returns
from posprobe.analyses.grid_answers import ask_grid, lone_code
from posprobe.analyses.rotation_answers import FEW_ROWS, NEARLY, ROUND, noun_of, plural
from posprobe.analyses.seams import Seams
from posprobe.analyses.stationary_answer import EQUALLY
from posprobe.analyses.stretch import runs
from posprobe.analyses.turning import CHANGES, winds
from posprobe.analyses.winding import Winding, WindingPair, rhythms, winding
from posprobe.arrays import Array, to_numpy
from posprobe.formatting import Block, listed, percent, show
from posprobe.layouts import Grid
from posprobe.measurements import TABLE, Finding, TableInputs
from posprobe.measurements.seams import named_patches
from posprobe.report.questions import ON_A_LINE, QUESTIONS
from posprobe.report.summary import MOST_PARTS, PAIR_SHARE, main_clause, summary

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
#: Held-out R² by which rotations must be ahead of any smooth curve.
AHEAD = 0.2
#: Most pairs of components of one code that a sentence tells of.
MOST_PAIRS = 2
#: Relative difference of turns up to which what winds is a rotation.
SAME_TURNS = 0.1
#: Share of what winds from which a rotation has a part in it.
MIXED = 0.1
#: Turns from which what winds shows that order matters, whatever neighbours have in common.
MANY_TURNS = 3.0
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
        answers["stationary"] = _without_order(answers["stationary"], answers["order"])
        if answers["rows_and_columns"].answer == "yes":
            share = answers["rows_and_columns"].value
            lone = lone_code(share["row_share"], share["column_share"])
            answers["axis_rotations"] = _with_windings(answers["axis_rotations"], codes, lone)
        else:
            answers["axis_rotations"] = _of_weak_codes(
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
    zero = found.norms == 0
    if not isinstance(layout, Grid):
        among = 0 < int(np.count_nonzero(zero[stretch.rows])) < stretch.stop - stretch.first
        answers = _with_copies(answers, alike, zeros=among)
    ordered = [answers[name] for name in QUESTIONS if name in answers]
    zeros = int(np.count_nonzero(zero)) if found.special else 0
    copied = alike.text if alike else ""
    return {
        "summary": summary(answers, stretch, start, others, codes, copied, zeros),
        "rows": [start + stretch.first, start + stretch.stop],
        "reasons": list(stretch.reasons),
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
        answers["smooth"] = _beside_rotations(answers["smooth"], bridging, answers["rotations"])
    if len(values) >= FEW_ROWS:
        answers["rotations"] = _beside_winding(answers["rotations"], answers["winding"])
    pair = winding.pairs[0] if winding.pairs else None
    answers["winding"] = _of_a_rotation(answers["winding"], answers["rotations"], pair)
    return _agreeing(answers)


def _agreeing(answers: dict[str, Answer]) -> dict[str, Answer]:
    """Correct what one answer says by what another shows."""
    order, turning, bounded = answers["order"], answers["winding"], answers["stationary"]
    if order.answer != "yes" and turning.answer == "yes" and turning.value["turns"] >= MANY_TURNS:
        # A path whose pace changes a lot has neighbours at every angle, and no period.
        text = (
            f"Yes: the order of the rows matters: two components go round "
            f"{turning.value['turns']:.1f} times along the table, though "
            f"{_without_yes_or_no(order.sentence)}"
        )
        order = replace(order, answer="yes", sentence=text, p=turning.p)
    straight = (answers["smooth"].value or {}).get("straight", 0.0)
    if straight > ALL_LINE:
        text = (
            "No: it moves on along a straight line and stays in no bounds; only how far two rows "
            "lie apart follows from the distance of their positions."
        )
        bounded = replace(bounded, answer="no", sentence=text)
    else:
        bounded = _without_order(bounded, order)
    return answers | {"order": order, "stationary": bounded}


def _without_order(bounded: Answer, order: Answer) -> Answer:
    """Say of rows whose order does not matter that their distance hardly can, nor their places."""
    if order.answer != "no" or EQUALLY in bounded.sentence:
        return bounded
    if bounded.answer == "yes":
        text = "Yes, as their order does not matter: rows at one distance are as unlike as at any."
        return replace(bounded, sentence=text)
    if bounded.answer == "no":
        why = bounded.sentence.rpartition(": ")[2].rstrip(".")
        text = f"Cannot be told: {why}; but there is no sign that the order of the rows matters."
        return replace(bounded, answer="cannot tell", sentence=text)
    return bounded


def _without_yes_or_no(sentence: str) -> str:
    """Return what an answer tells after its first words."""
    return re.sub(r"^(No|Cannot)[^:]*: ", "", sentence)


def _with_copies(
    answers: dict[str, Answer], found: Copies | None, *, zeros: bool
) -> dict[str, Answer]:
    """Correct what exact copies of rows, and zeros among the others, show to be otherwise."""
    answers = dict(answers)
    order, stationary = answers["order"], answers["stationary"]
    if found and found.kind != "any" and order.answer != "yes" and order.value is not None:
        text = f"Yes: the order of the rows matters: {found.text}, though "
        told = _without_yes_or_no(order.sentence)
        answers["order"] = replace(order, answer="yes", sentence=text + told, p=None)
    why = "rows of zeros stand among others" if zeros else ""
    if found and found.kind in ("blocks", "mirror"):
        why = found.text
    if why and stationary.answer == "yes":
        text = "No: the distance of two rows alone does not decide how alike they are: "
        answers["stationary"] = replace(stationary, answer="no", sentence=f"{text}{why}.")
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


def _beside_rotations(answer: Answer, found: Bridging | None, turning: Answer) -> Answer:
    """Say of a sum of rotations that it is no smooth curve, where gaps in it tell the two apart."""
    if found is None or found.undefined:
        return answer
    best = np.maximum(found.r2["sinusoids"], found.r2["ladder"])
    curve = np.max([found.r2[name] for name in ("linear", *found.kernels)], axis=0)
    ahead = best - curve
    if not np.nanmax(ahead) > AHEAD:
        return answer
    widest = int(np.nanargmax(ahead))
    lines = [line["circularity"] for line in turning.value or ()]
    what = plural(noun_of(lines)) if lines else "rotations"
    gap = found.gaps[widest]
    return replace(
        answer,
        answer="no",
        sentence=f"No: {what} tell more of it than any smooth curve: across gaps of {gap} "
        f"position{'' if gap == 1 else 's'}, sinusoids predict the missing rows with an R² of "
        f"{best[widest]:.2f} (1 is exact), the best smooth curve with {curve[widest]:.2f}.",
        keys=(*answer.keys, "bridging.r2"),
    )


def _beside_winding(answer: Answer, winding: Answer) -> Answer:
    """Say of what winds, at no steady pace, that no period is fixed where none stands out."""
    if answer.answer != "cannot tell" or CHANGES not in winding.sentence:
        return answer
    turn = winding.value["turn"]
    text = (
        "No sign of rotations of fixed period: no period stands out clearly, and what winds does "
        f"so at no steady pace: most whole turns take between {turn[0]:.3g} and {turn[1]:.3g} "
        "positions."
    )
    return replace(answer, answer="no", sentence=text, keys=(*answer.keys, *winding.keys))


def _of_a_rotation(answer: Answer, turning: Answer, pair: WindingPair | None) -> Answer:
    """Say of what winds which rotation it is, or which it mixes."""
    if pair is None or not answer.answer == turning.answer == "yes":
        return answer
    turns = answer.value["turns"]
    shares = rhythms(pair, [line["period"] for line in turning.value])
    order = np.argsort(-shares, kind="stable")
    mixed = [turning.value[k] for k in order if shares[k] >= MIXED]
    if len(mixed) > 1 and abs(turns / mixed[0]["turns"] - 1) > SAME_TURNS:
        return _mixing(answer, mixed)
    same = [line for line in turning.value if abs(turns / line["turns"] - 1) <= SAME_TURNS]
    if not same:
        return answer
    period = min(same, key=lambda line: abs(turns / line["turns"] - 1))["period"]
    told = answer.sentence.partition("; their period")[0].rstrip(".")
    text = f"{told}: they are the rotation with a period of {show(period)} positions."
    return replace(answer, sentence=text, value=answer.value | {"rotation": period})


def _mixing(answer: Answer, lines: Sequence[Mapping[str, Any]]) -> Answer:
    """Say of two components which lines of the spectrum meet in them, the strongest given first."""
    first, lines = lines[0], sorted(lines, key=lambda line: float(line["period"]))
    rounds = [line["circularity"] >= ROUND for line in lines]
    share = answer.value["share"]
    periods = listed([show(line["period"]) for line in lines])
    told = f"two components with {share:.0%} of the variance mix"
    what = plural(noun_of([line["circularity"] for line in lines]))
    value = answer.value | {"mixed": [line["period"] for line in lines]}
    if not all(rounds):
        text = f"Cannot be told: {told} {what} with periods of {periods} positions."
        return replace(answer, answer="cannot tell", sentence=text, value=value)
    times = listed([f"{line['turns']:.1f}" for line in lines])
    text = (
        f"Yes: {told} the rotations with periods of {periods} positions, which go round {times} "
        "times, each in a plane of its own."
    )
    value |= {"turns": first["turns"], "rotation": first["period"]}
    return replace(answer, sentence=text, value=value)


def _of_weak_codes(answer: Answer, codes: Answer) -> Answer:
    """Say how much of the table codes hold that go round in one that is no sum of them."""
    if answer.answer != "yes" or codes.value is None:
        return answer
    share = codes.value["row_share"] + codes.value["column_share"]
    text = f" These codes hold {percent(share)} of the variance of the table."
    return replace(answer, sentence=answer.sentence + text)


def _with_windings(answer: Answer, codes: AxisCodes | None, lone: str) -> Answer:
    """Add what the codes' components look like, whether or not a dozen points can prove it."""
    if answer.answer == "no" or codes is None or codes.undefined:
        return answer
    lacking = {"row": "column", "column": "row"}.get(lone)
    said = []
    for name, code in codes.axes.items():
        if name.removesuffix("s") == lacking:
            continue
        pairs = [pair for pair in code.winding.pairs if pair.share >= PAIR_SHARE][:MOST_PAIRS]
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
    named = partial(named_patches, width=grid.width) if grid else _positions
    zero = [row for row in rows if not found.norms[row - found.start]]
    other = [row for row in found.special if row.row + found.start not in zero]
    parts = []
    if other:
        names = [row.row + found.start for row in other]
        own = "is unlike its" if len(names) == 1 else "are unlike their"
        first = "" if len(names) == 1 else f"{named(names[:1])}: "
        parts.append(f"{named(names)} {own} neighbours ({first}{other[0].reason})")
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
        f"between positions {left} and {right} ({reason})"
        for (left, right), reason in zip(pairs, found.reasons, strict=True)
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
