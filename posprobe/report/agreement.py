"""How answers correct each other: what one shows that another could not know."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from posprobe.analyses.answer import Answer
from posprobe.analyses.answers import ALL_LINE
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.analyses.bridging import Bridging
from posprobe.analyses.copies import Copies
from posprobe.analyses.rotation_answers import ROUND, noun_of, plural
from posprobe.analyses.stationary_answer import EQUALLY
from posprobe.analyses.turning import CHANGES
from posprobe.analyses.winding import WindingPair, rhythms
from posprobe.report.narrator.causes import copied
from posprobe.report.summary import PAIR_SHARE
from posprobe.text import listed, percent, show

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


def agreeing(answers: dict[str, Answer]) -> dict[str, Answer]:
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
        bounded = without_order(bounded, order)
    return answers | {"order": order, "stationary": bounded}


def without_order(bounded: Answer, order: Answer) -> Answer:
    """Say of rows whose order may not matter that their distance hardly can, nor their places."""
    if order.answer == "yes" or EQUALLY in bounded.sentence:
        return bounded
    if order.answer == "cannot tell":
        if bounded.answer != "yes" or order.value is None:
            return bounded
        text = (
            "Yes, whether or not their order matters: inner products at one distance vary no more "
            "than in draws of a stationary process."
        )
        return replace(bounded, sentence=text)
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


def with_copies(
    answers: dict[str, Answer], found: Copies | None, *, zeros: bool
) -> dict[str, Answer]:
    """Correct what exact copies of rows, and zeros among the others, show to be otherwise."""
    answers = dict(answers)
    order, stationary = answers["order"], answers["stationary"]
    if found and found.kind != "any" and order.answer != "yes" and order.value is not None:
        text = f"Yes: the order of the rows matters: {copied(found)}, though "
        told = _without_yes_or_no(order.sentence)
        answers["order"] = replace(order, answer="yes", sentence=text + told, p=None)
    why = "rows of zeros stand among others" if zeros else ""
    if found and found.kind in ("blocks", "mirror"):
        why = copied(found)
    if why and stationary.answer == "yes":
        text = "No: the distance of two rows alone does not decide how alike they are: "
        answers["stationary"] = replace(stationary, answer="no", sentence=f"{text}{why}.")
    return answers


def beside_rotations(answer: Answer, found: Bridging | None, turning: Answer) -> Answer:
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


def beside_winding(answer: Answer, winding: Answer) -> Answer:
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


def of_a_rotation(answer: Answer, turning: Answer, pair: WindingPair | None) -> Answer:
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


def of_weak_codes(answer: Answer, codes: Answer) -> Answer:
    """Say how much of the table codes hold that go round in one that is no sum of them."""
    if answer.answer != "yes" or codes.value is None:
        return answer
    share = codes.value["row_share"] + codes.value["column_share"]
    text = f" These codes hold {percent(share)} of the variance of the table."
    return replace(answer, sentence=answer.sentence + text)


def with_windings(answer: Answer, codes: AxisCodes | None, lone: str) -> Answer:
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
