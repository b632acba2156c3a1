"""What encodings without a table tell attention, as answers and in one sentence.

What the configuration decides (rotary, ALiBi) is known, not estimated: such an answer has no
p-value. What was learned is compared with permuted distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from posprobe.analyses.answer import Answer, verdict_of
from posprobe.formatting import Block, between, show
from posprobe.measurements import Finding
from posprobe.report.questions import SCHEME_QUESTIONS
from posprobe.report.verdict import affirmed, answer_block, capital

if TYPE_CHECKING:
    from posprobe.documents import ToldBlock

#: Encodings of one kind with their places in the document.
Numbered: TypeAlias = Sequence[tuple[int, Block]]
#: Share of heads without structure that lie above 95 % of permutations.
CHANCE = 0.05
#: Encodings that a sentence names.
NAMED = 4
NO_LENGTH = "Cannot be told: the configuration states no length."


def scheme_verdict(schemes: Sequence[Block]) -> ToldBlock:
    """Answer what can be asked of encodings without a table.

    Parameters
    ----------
    schemes
        The blocks of ``analysis.json``.

    Returns
    -------
    dict
        ``summary`` and ``answers``.
    """
    kinds: dict[str, list[tuple[int, Block]]] = {}
    for number, scheme in enumerate(schemes):
        kind = scheme["quantity"] if scheme["scheme"] == "relative" else scheme["scheme"]
        kinds.setdefault(kind, []).append((number, scheme))
    parts, answers = [], []
    for kind, found in kinds.items():
        summarise, questions = _KINDS[kind]
        asked = [answer for ask in questions for answer in ask(found)]
        parts.append(summarise(found, {answer.question: answer for answer in asked}))
        answers += asked
    text = ". ".join(capital(part) for part in parts)
    order = list(SCHEME_QUESTIONS)
    answers.sort(key=lambda answer: order.index(answer.question))
    return {"summary": f"{text}.", "answers": [answer_block(answer) for answer in answers]}


def told_findings(told: ToldBlock) -> tuple[Finding, ...]:
    """Return the answers of a verdict that are known, as findings."""
    return tuple(
        Finding(affirmed(answer["sentence"]), tuple(answer["keys"]))
        for answer in told["answers"]
        if answer["answer"] != "cannot tell"
    )


def _keys(found: Numbered, *paths: str) -> tuple[str, ...]:
    return tuple(f"schemes.{number}.{path}" for number, _ in found for path in paths)


def _whose(found: Numbered, scheme: Block) -> str:
    """Name an encoding where there are several."""
    return f"{scheme['name']}: " if len(found) > 1 else ""


def _few(parts: Sequence[str]) -> str:
    shown = list(parts[:NAMED])
    if len(parts) > NAMED:
        shown.append(f"and {len(parts) - NAMED} more encodings")
    return "; ".join(shown)


# Rotary.


def _distance(value: float) -> str:
    """Write a number of positions."""
    return f"{value:,.0f}" if value >= 100 else show(value)


def _rotary(found: Numbered, answers: Mapping[str, Answer]) -> str:
    del answers
    parts = []
    for _, scheme in found:
        block = scheme["rotation"]
        longest = block["longest_wavelength"]
        far = "beyond any length" if longest is None else f"{_distance(longest)} positions"
        one = block["pairs"] == 1
        text = f"{_whose(found, scheme)}{block['pairs']} pair{'' if one else 's'} of numbers "
        text += f"rotate{'s' if one else ''} with periods from {_near(block)} to {far}"
        if block["target"] is not None:
            turn = block["pairs"] - round(block["never_turn_target"] * block["pairs"])
            text += f"; {turn} of {block['pairs']} complete a turn within the context of "
            text += f"{block['target']:,} positions"
        parts.append(text + _sign(block))
    return _few(parts)


def _near(block: Block) -> str:
    shortest = block["shortest_wavelength"]
    return "infinity" if shortest is None else _distance(shortest)


def _sign(block: Block) -> str:
    first, target = block["first_negative"], block["target"]
    if first is None:
        return "; the mean rotation never falls below 0"
    text = f"; the mean rotation first falls below 0 at distance {first:,}"
    if target is None:
        return text
    return f"{text}, {'within' if first < target else 'beyond'} that length"


def _stated(found: Numbered) -> list[Block]:
    """Return the rotary encodings whose configuration states a length."""
    return [scheme for _, scheme in found if scheme["rotation"]["target"] is not None]


def _turns(found: Numbered) -> Iterator[Answer]:
    keys = _keys(found, "rotation.never_turn_target", "rotation.longest_wavelength")
    stated = _stated(found)
    if not stated:
        yield Answer("rotary_turns", "cannot tell", NO_LENGTH, keys=keys)
        return
    parts, never = [], 0
    for scheme in stated:
        block = scheme["rotation"]
        slow = round(block["never_turn_target"] * block["pairs"])
        never += slow
        longest = block["longest_wavelength"]
        need = "" if longest is None else f"; the slowest needs {_distance(longest)} positions"
        count = slow or "all"
        verb = "complete a turn" if not slow else "never complete a turn"
        parts.append(
            f"{_whose(found, scheme)}{count} of {block['pairs']} pairs {verb} within "
            f"{block['target']:,} positions{need}"
        )
    yield Answer(
        "rotary_turns", "no" if never else "yes", f"{'No' if never else 'Yes'}: {_few(parts)}.",
        [s["rotation"]["never_turn_target"] for s in stated], keys=keys,
    )  # fmt: skip


def _positive(found: Numbered) -> Iterator[Answer]:
    keys = _keys(found, "rotation.first_negative", "rotation.target")
    stated = _stated(found)
    if not stated:
        yield Answer("rotary_positive", "cannot tell", NO_LENGTH, keys=keys)
        return
    parts, inside = [], False
    for scheme in stated:
        first, target = scheme["rotation"]["first_negative"], scheme["rotation"]["target"]
        inside |= first is not None and first < target
        place = (
            "it never falls below 0"
            if first is None
            else f"it first falls below 0 at distance {first:,}, "
            f"{'within' if first < target else 'beyond'} the context of {target:,}"
        )
        parts.append(f"{_whose(found, scheme)}{place}")
    yield Answer(
        "rotary_positive", "no" if inside else "yes",
        f"{'No' if inside else 'Yes'}: of a query equal to its key, {_few(parts)}.",
        [s["rotation"]["first_negative"] for s in stated], keys=keys,
    )  # fmt: skip


def _stretched(found: Numbered) -> Iterator[Answer]:
    changed = [(n, s) for n, s in found if s["rule"] != "default"]
    keys = _keys(found, "rule")
    if not changed:
        text = "No: the wavelengths are those of training, by no rule for longer contexts."
        yield Answer("rotary_stretched", "no", text, keys=keys)
        return
    parts = []
    for _, scheme in changed:
        block = scheme["rotation"]
        was = f", for more than the {block['training']:,} of training" if block["training"] else ""
        where = f" for {block['target']:,} positions{was}" if block["target"] else ""
        parts.append(f"{_whose(found, scheme)}the rule {scheme['rule']} changes them{where}")
    yield Answer(
        "rotary_stretched", "yes", f"Yes: {_few(parts)}.",
        [s["rule"] for _, s in changed], keys=keys,
    )  # fmt: skip


# Linear biases.


def _halving(slope: float) -> float:
    """Return the distance over which attention falls by half, contents being equal."""
    return math.log(2) / slope


def _slopes(found: Numbered) -> list[float]:
    return [float(slope) for _, scheme in found for slope in scheme["slopes"]]


def _linear(found: Numbered, answers: Mapping[str, Answer]) -> str:
    del answers
    slopes = _slopes(found)
    fast, slow = _distance(_halving(max(slopes))), _distance(_halving(min(slopes)))
    where = f"in the fastest of {len(slopes)} heads and every {slow} in the slowest"
    if fast == slow:
        where = "in every head" if len(slopes) > 1 else "in the only head"
    return f"where contents are equal, attention falls by half every {fast} positions {where}"


def _linear_near(found: Numbered) -> Iterator[Answer]:
    slopes = _slopes(found)
    windows = [w for _, s in found for w in s["heads"]["window"] if w is not None]
    keys = _keys(found, "slopes", "heads.window")
    heads = "the only head" if len(slopes) == 1 else f"all {len(slopes)} heads"
    seen = f"; the bias alone spreads attention over {between(windows)} keys" if windows else ""
    yield Answer(
        "alibi_near", "yes",
        f"Yes: {heads} subtract{'s' if len(slopes) == 1 else ''} a slope times the distance, "
        f"{between(slopes)} logits per position{seen}.",
        {"halving": [_halving(slope) for slope in slopes]}, keys=keys,
    )  # fmt: skip


def _linear_reach(found: Numbered) -> Iterator[Answer]:
    keys = _keys(found, "slopes", "max_positions")
    lengths = [s["max_positions"] for _, s in found if s["max_positions"] is not None]
    if not lengths:
        text = "Cannot be told: the configuration states no length."
        yield Answer("alibi_reach", "cannot tell", text, keys=keys)
        return
    slowest = min(_slopes(found))
    length, half = max(lengths), _halving(slowest)
    left = math.exp(-slowest * length)
    reaches = half >= length
    kept = f"{left:.0%}" if left >= 0.01 else "less than 1%"
    yield Answer(
        "alibi_reach", "yes" if reaches else "no",
        f"{'Yes' if reaches else 'No'}: where contents are equal, the slowest head pays a key "
        f"{length:,} positions away {kept} of what it pays the nearest; half is left at "
        f"{_distance(half)}.",
        left, keys=keys,
    )  # fmt: skip


# Relative biases and vectors.


def _structured(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask whether neighbouring distances are alike, beside permuted distances."""

    def ask(found: Numbered) -> Iterator[Answer]:
        name = f"{kind}_smooth"
        learned = [(n, s) for n, s in found if not s["computed"]]
        keys = _keys(learned or found, "smoothness.structured")
        if not learned:
            text = (
                "Cannot be told: a small network computes the values from the distance, so that "
                "they are smooth whatever was learned."
            )
            yield Answer(name, "cannot tell", text, keys=keys)
            return
        count = sum(s["smoothness"]["structured"] for _, s in learned)
        total = sum(len(s["smoothness"]["correlation"]) for _, s in learned)
        known = sum(c is not None for _, s in learned for c in s["smoothness"]["correlation"])
        if not known:
            text = "Cannot be told: every distance has the same value."
            yield Answer(name, "cannot tell", text, keys=keys)
            return
        p = _binomial(count, known)
        answer = verdict_of(p)
        unit = _unit(kind, total)
        what = "have neighbouring distances more alike than 95 % of permutations"
        told = f"{count} of {total} {unit} {what}, by chance {CHANCE * known:.2g}"
        begin = {"yes": "Yes", "no": "No sign of it", "cannot tell": "Cannot be told"}[answer]
        yield Answer(
            name, answer, f"{begin}: {told}.", count, CHANCE * known, p, count / known, keys
        )

    return ask


def _unit(kind: str, count: int) -> str:
    noun = "head" if kind == "bias" else "table"
    return f"{noun}{'' if count == 1 else 's'}{'' if kind == 'bias' else ' of vectors'}"


def _binomial(count: int, total: int) -> float:
    """Return how likely so many or more of ``total`` are where each is with 5 %."""
    return math.fsum(
        math.comb(total, k) * CHANCE**k * (1 - CHANCE) ** (total - k)
        for k in range(count, total + 1)
    )


def _near_keys(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask whether heads favour near positions."""

    def ask(found: Numbered) -> Iterator[Answer]:
        name, keys = f"{kind}_near", _keys(found, "heads.half_width")
        half = [w for _, s in found for w in s["heads"]["half_width"]]
        flat = [m is None for _, s in found for m in s["heads"]["monotone_fraction"]]
        widths = [w for w, still in zip(half, flat, strict=True) if not still]
        if not widths:
            text = "Cannot be told: every distance has the same value."
            yield Answer(name, "cannot tell", text, keys=keys)
            return
        near = [w for w in widths if w is not None]
        far = len(widths) - len(near)
        unit = _unit(kind, len(widths))
        reach = f", and half of the fall is done within {between(near)} positions" if near else ""
        told = f"{len(near)} of {len(widths)} {unit} favour{'s' if len(near) == 1 else ''} near "
        told += f"positions{reach}"
        if far:
            told += f"; {far} favour{'s' if far == 1 else ''} those beyond a quarter of the length"
        most = len(near) > len(widths) / 2
        yield Answer(
            name, "yes" if most else "no", f"{'Yes' if most else 'No'}: {told}.",
            {"near": len(near), "far": far}, keys=keys,
        )  # fmt: skip

    return ask


def _sides(found: Numbered) -> Iterator[Answer]:
    """Ask whether heads prefer one side of the query."""
    keys = _keys(found, "heads.peak")
    line = [(n, s) for n, s in found if s["layout"]["type"] == "sequence"]
    if not line:
        return  # a displacement has more than two sides
    both = [(n, s) for n, s in line if not s["causal"]]
    if not both:
        text = "Cannot be told: later keys are hidden."
        yield Answer("bias_sides", "cannot tell", text, keys=keys)
        return
    peaks = [
        peak
        for _, s in both
        for peak, still in zip(s["heads"]["peak"], s["heads"]["monotone_fraction"], strict=True)
        if still is not None
    ]
    if not peaks:
        text = "Cannot be told: every distance has the same value."
        yield Answer("bias_sides", "cannot tell", text, keys=keys)
        return
    before, after = sum(peak < 0 for peak in peaks), sum(peak > 0 for peak in peaks)
    own = len(peaks) - before - after
    some = bool(before or after)
    where = " that see both sides" if len(both) < len(found) else ""
    told = f"of {len(peaks)} {_unit('bias', len(peaks))}{where}, the greatest bias is at an "
    told += f"earlier key in {before}, at a later one in {after} and at the query itself in {own}"
    yield Answer(
        "bias_sides", "yes" if some else "no", f"{'Yes' if some else 'No'}: {told}.",
        {"before": before, "after": after, "same": own}, keys=_keys(both, "heads.peak"),
    )  # fmt: skip


def _limited(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask from where on distances share one value."""

    def ask(found: Numbered) -> Iterator[Answer]:
        line = [(n, s) for n, s in found if s["layout"]["type"] == "sequence"]
        if not line:
            return
        keys = _keys(line, "reach")
        reaches = [s["reach"] for _, s in line if s["reach"] is not None]
        if not reaches:
            text = "No: every distance within the length has a value of its own."
            yield Answer(f"{kind}_limit", "no", text, keys=keys)
            return
        text = f"Yes: distances beyond {between(reaches)} share the value of that distance."
        yield Answer(f"{kind}_limit", "yes", text, reaches, keys=keys)

    return ask


def _learned(kind: str) -> Callable[[Numbered, Mapping[str, Answer]], str]:
    def summarise(found: Numbered, answers: Mapping[str, Answer]) -> str:
        total = sum(s["head_count"] for _, s in found)
        what = f"{total} {_unit(kind, total)}"
        smooth = answers[f"{kind}_smooth"]
        learned = {
            "yes": "have learned biases" if kind == "bias" else "were learned",
            "no": "show no sign of having learned an order of distances",
            "cannot tell": "depend on distance",
        }[smooth.answer]
        parts = []
        if smooth.answer == "yes":
            parts.append(
                f"{what} {learned} in which neighbouring distances are alike ({smooth.value} of "
                f"{total}, by chance {smooth.null:.2g})"
            )
        else:
            parts.append(f"{what} {learned}")
        near = answers[f"{kind}_near"]
        # Of what has no structure, a preference is noise.
        if near.value and smooth.answer != "no":
            one = near.value["near"] == 1
            text = f"{near.value['near']} favour{'s' if one else ''} near positions"
            if near.value["far"]:
                text += f" and {near.value['far']} far ones"
            parts.append(text)
        limit = answers.get(f"{kind}_limit")
        if limit is not None and limit.value:
            parts.append(f"distances beyond {between(limit.value)} share one value")
        return "; ".join(parts)

    return summarise


_KINDS: Mapping[
    str,
    tuple[
        Callable[[Numbered, Mapping[str, Answer]], str],
        tuple[Callable[[Numbered], Iterator[Answer]], ...],
    ],
] = {
    "rotary": (_rotary, (_turns, _positive, _stretched)),
    "alibi": (_linear, (_linear_near, _linear_reach)),
    "bias": (
        _learned("bias"),
        (_structured("bias"), _near_keys("bias"), _sides, _limited("bias")),
    ),
    "cosine": (
        _learned("cosine"),
        (_structured("cosine"), _near_keys("cosine"), _limited("cosine")),
    ),
}
