"""What was learned of each distance, beside permuted distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from posprobe.analyses.answer import Answer, verdict_of
from posprobe.formatting import between
from posprobe.report.numbered import Numbered, keys_of

#: Share of heads without structure that lie above 95 % of permutations.
CHANCE = 0.05


def structured(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask whether neighbouring distances are alike, beside permuted distances."""

    def ask(found: Numbered) -> Iterator[Answer]:
        name = f"{kind}_smooth"
        learned = [(n, s) for n, s in found if not s["computed"]]
        keys = keys_of(learned or found, "smoothness.structured")
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


def near_keys(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask whether heads favour near positions."""

    def ask(found: Numbered) -> Iterator[Answer]:
        name, keys = f"{kind}_near", keys_of(found, "heads.half_width")
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


def sides(found: Numbered) -> Iterator[Answer]:
    """Ask whether heads prefer one side of the query."""
    keys = keys_of(found, "heads.peak")
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
        {"before": before, "after": after, "same": own}, keys=keys_of(both, "heads.peak"),
    )  # fmt: skip


def limited(kind: str) -> Callable[[Numbered], Iterator[Answer]]:
    """Ask from where on distances share one value."""

    def ask(found: Numbered) -> Iterator[Answer]:
        line = [(n, s) for n, s in found if s["layout"]["type"] == "sequence"]
        if not line:
            return
        keys = keys_of(line, "reach")
        reaches = [s["reach"] for _, s in line if s["reach"] is not None]
        if not reaches:
            text = "No: every distance within the length has a value of its own."
            yield Answer(f"{kind}_limit", "no", text, keys=keys)
            return
        text = f"Yes: distances beyond {between(reaches)} share the value of that distance."
        yield Answer(f"{kind}_limit", "yes", text, reaches, keys=keys)

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
