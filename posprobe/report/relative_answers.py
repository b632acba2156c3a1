"""What was learned of each distance, beside permuted distances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from posprobe.analyses.answer import Answer, Verdict, at_least, verdict_of
from posprobe.analyses.heads import SIDED
from posprobe.report.numbered import Numbered, keys_of
from posprobe.schemes import POSITIONS
from posprobe.text import Block, between, listed

#: Share of heads without structure that lie above 95 % of permutations.
CHANCE = 0.05
EQUAL = "Cannot be told: every distance has the same value."


def structured(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask whether neighbouring distances are alike, beside permuted distances."""

    def ask(found: Numbered) -> Iterator[Answer]:
        name = f"{kind}_smooth"
        learned = _learned(found)
        keys = keys_of(learned or found, "smoothness.structured")
        if not learned:
            text = (
                "Cannot be told: a small network computes the values from the distance, so that "
                "they are smooth whatever was learned."
            )
            yield Answer(name, "cannot tell", text, keys=keys)
            return
        count, known, p = _alike(learned)
        if not known:
            yield Answer(name, "cannot tell", EQUAL, keys=keys)
            return
        total = sum(len(s["smoothness"]["correlation"]) for _, s in learned)
        answer = verdict_of(p)
        unit = _unit(kind, total)
        what = "have neighbouring distances more alike than 95 % of permutations"
        told = f"{count} of {total} {unit} {what}, by chance {CHANCE * known:.2g}"
        begin = {"yes": "Yes", "no": "No sign of it", "cannot tell": "Cannot be told"}[answer]
        yield Answer(
            name, answer, f"{begin}: {told}.", count, CHANCE * known, p, count / known, keys
        )

    return ask


def _learned(found: Numbered) -> Numbered:
    return [(n, s) for n, s in found if not s["computed"]]


def _alike(learned: Numbered) -> tuple[int, int, float]:
    """Count the heads above 95 % of permutations and all that vary; how likely so many are."""
    count = sum(s["smoothness"]["structured"] for _, s in learned)
    known = sum(c is not None for _, s in learned for c in s["smoothness"]["correlation"])
    return count, known, at_least(count, known, CHANCE) if known else 1.0


def _ordered(found: Numbered) -> list[tuple[Block, int]]:
    """List the heads that have an order of distances, if more have one than chance makes."""
    more_than_chance = verdict_of(_alike(_learned(found))[2]) == "yes"
    return [
        (scheme, head)
        for _, scheme in found
        for head, near in enumerate(scheme["heads"]["near"])
        if near is not None and (scheme["computed"] or (more_than_chance and _smooth(scheme, head)))
    ]


def _smooth(scheme: Block, head: int) -> bool:
    correlation = scheme["smoothness"]["correlation"][head]
    return correlation is not None and correlation > scheme["smoothness"]["p95"][head]


def _no_preference(found: Numbered) -> str:
    """Say why no preference can be told."""
    if all(near is None for _, s in found for near in s["heads"]["near"]):
        return EQUAL
    return (
        "Cannot be told: distances have no more order than chance makes, and of values without "
        "order the greatest lies somewhere as well."
    )


def _unit(kind: str, count: int) -> str:
    noun = "head" if kind == "bias" else "table"
    return f"{noun}{'' if count == 1 else 's'}{'' if kind == 'bias' else ' of vectors'}"


def _measured(distances: Sequence[tuple[Block, float]]) -> str:
    """Write distances with what they count, each unit by itself."""
    units: dict[str, list[float]] = {}
    for scheme, distance in distances:
        units.setdefault(scheme["unit"], []).append(distance)
    return listed([f"{between(each)} {unit}" for unit, each in units.items()])


def near_keys(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask whether heads favour near positions."""

    def ask(found: Numbered) -> Iterator[Answer]:
        name = f"{kind}_near"
        keys = keys_of(found, "heads.near", "heads.half_width", "smoothness.structured")
        ordered = _ordered(found)
        if not ordered:
            yield Answer(name, "cannot tell", _no_preference(found), keys=keys)
            return
        near = [(s, head) for s, head in ordered if s["heads"]["near"][head]]
        far = len(ordered) - len(near)
        widths = [(s, w) for s, head in near if (w := s["heads"]["half_width"][head]) is not None]
        total = sum(s["head_count"] for _, s in found)
        # Heads without order are not known to favour anything; heads of one value favour nothing.
        open_ = sum(n is not None for _, s in found for n in s["heads"]["near"]) - len(ordered)
        answer: Verdict = "cannot tell"
        if len(near) > total / 2:
            answer = "yes"
        elif len(near) + open_ <= total / 2:
            answer = "no"
        each = _unit(kind, len(ordered))
        order = "" if len(ordered) == total else " that have an order of distances"
        verb = "favours" if len(near) == 1 else "favour"
        told = f"{len(near)} of {len(ordered)} {each}{order} {verb} near positions"
        if widths:
            whose = "" if len(widths) == len(near) else f" in {len(widths)} of them"
            told += f", and half of the fall is done within {_measured(widths)}{whose}"
        if far:
            told += f"; {far} favour{'s' if far == 1 else ''} those beyond a quarter of the length"
        if open_:
            told += f"; {open_} of all {total} show no order"
        begin = {"yes": "Yes", "no": "No", "cannot tell": "Cannot be told of most"}[answer]
        value = {"near": len(near), "far": far}
        yield Answer(name, answer, f"{begin}: {told}.", value, keys=keys)

    return ask


def sides(found: Numbered) -> Iterator[Answer]:
    """Ask whether heads prefer one side of the query."""
    line = [
        (n, s) for n, s in found if s["layout"]["type"] == "sequence" and s["unit"] == POSITIONS
    ]
    if not line:
        return  # a displacement has more than two sides, and a place on a page is not earlier
    both = [(n, s) for n, s in line if not s["causal"]]
    if not both:
        text = "Cannot be told: later keys are hidden."
        yield Answer("bias_sides", "cannot tell", text, keys=keys_of(found, "heads.peak"))
        return
    keys = keys_of(both, "heads.peak", "heads.asymmetry", "smoothness.structured")
    ordered = _ordered(both)
    if not ordered:
        yield Answer("bias_sides", "cannot tell", _no_preference(both), keys=keys)
        return
    # Where both sides are alike, the greatest value is on either.
    peaks = [s["heads"]["peak"][h] if s["heads"]["asymmetry"][h] > SIDED else 0 for s, h in ordered]
    before, after = sum(peak < 0 for peak in peaks), sum(peak > 0 for peak in peaks)
    own = len(peaks) - before - after
    some = bool(before or after)
    whose = ["see both sides"] if len(both) < len(found) else []
    if len(ordered) < sum(s["head_count"] for _, s in both):
        whose.append("have an order of distances")
    where = f" that {listed(whose)}" if whose else ""
    told = f"of {len(peaks)} {_unit('bias', len(peaks))}{where}, the greatest bias is at an "
    told += f"earlier key in {before}, at a later one in {after}"
    told += f" and at the query itself, or on both sides alike, in {own}"
    yield Answer(
        "bias_sides", "yes" if some else "no", f"{'Yes' if some else 'No'}: {told}.",
        {"before": before, "after": after, "same": own}, keys=keys,
    )  # fmt: skip


def limited(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask from where on distances share one value."""

    def ask(found: Numbered) -> Iterator[Answer]:
        line = [(n, s) for n, s in found if s["layout"]["type"] == "sequence"]
        if not line:
            return
        keys = keys_of(line, "reach")
        reaches = [(s, s["reach"]) for _, s in line if s["reach"] is not None]
        if not reaches:
            text = "No: values go on changing to the last distance within the length."
            yield Answer(f"{kind}_limit", "no", text, keys=keys)
            return
        text = f"Yes: distances beyond {_measured(reaches)} share the value of that distance."
        yield Answer(f"{kind}_limit", "yes", text, [reach for _, reach in reaches], keys=keys)

    return ask


def learned(kind: str) -> Callable[[Numbered, Mapping[str, Answer]], str]:
    """Sum up what was learned of distances."""

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
        if near.value:
            one = near.value["near"] == 1
            text = f"{near.value['near']} favour{'s' if one else ''} near positions"
            if near.value["far"]:
                text += f" and {near.value['far']} far ones"
            parts.append(text)
        limit = answers.get(f"{kind}_limit")
        if limit is not None and limit.value:
            reaches = [(s, s["reach"]) for _, s in found if s["reach"] is not None]
            parts.append(f"distances beyond {_measured(reaches)} share one value")
        return "; ".join(parts)

    return summarise
