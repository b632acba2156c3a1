"""Sentences about encodings without a table: facts of the configuration and of what was learned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from posprobe.measurements import Finding

Block = Mapping[str, Any]
#: A text and the keys of the numbers it rests on.
Sentence: TypeAlias = tuple[str, tuple[str, ...]]
#: Encodings with their place in the document.
Numbered: TypeAlias = list[tuple[int, Block]]


def scheme_findings(document: Block) -> tuple[Finding, ...]:
    """Return what can be said of the encodings in a document's ``schemes``, scheme by scheme."""
    return tuple(
        Finding(text if "_" in text.partition(" ")[0] else text[0].upper() + text[1:], keys)
        for rule in (_rotary, _relative, _linear)
        for text, keys in rule(list(enumerate(document["schemes"])))
    )


def _rotary(schemes: Numbered) -> Iterator[Sentence]:
    found = [(number, scheme) for number, scheme in schemes if scheme["scheme"] == "rotary"]
    for number, scheme in found:
        block, at = scheme["rotation"], f"schemes.{number}"
        who = f"{scheme['name']}: " if len(found) > 1 else ""
        pairs, target = block["pairs"], block["target"]
        if block["never_turn_target"] is not None:
            never = round(block["never_turn_target"] * pairs)
            text = f"{who}{never} of {pairs} pairs never complete a turn within {target} positions"
            yield (
                f"{text} (base {scheme['base']:g})",
                (f"{at}.rotation.never_turn_target", f"{at}.base"),
            )
        first = block["first_negative"]
        if first is not None and target is not None:
            place = "inside" if first <= target else "beyond"
            text = f"{who}the mean rotation first turns negative at distance {first}, {place}"
            yield f"{text} the context of {target}", (f"{at}.rotation.first_negative",)
        if scheme["rule"] != "default":
            was = f" from {block['training']} positions" if block["training"] else ""
            yield (
                f"{who}the series of wavelengths is stretched{was} by the rule {scheme['rule']}",
                (f"{at}.rule",),
            )


def _relative(schemes: Numbered) -> Iterator[Sentence]:
    relative = [pair for pair in schemes if pair[1]["scheme"] == "relative"]
    for quantity, what in (
        ("bias", "give neighbouring distances more alike biases than permuted distances have"),
        ("cosine", "have vectors of neighbouring distances more alike than permuted ones"),
    ):
        found = [pair for pair in relative if pair[1]["quantity"] == quantity]
        found = [pair for pair in found if not pair[1]["computed"]]
        count = sum(scheme["smoothness"]["structured"] for _, scheme in found)
        total = sum(len(scheme["smoothness"]["correlation"]) for _, scheme in found)
        # Of heads without structure one in twenty lies above its 95 %.
        chance = 0.05 * total
        if count <= chance + 2 * math.sqrt(0.95 * chance):
            continue
        unit = "heads" if quantity == "bias" else "tables of vectors"
        where = f" in {len(found)} tables" if quantity == "bias" and len(found) > 1 else ""
        yield (
            f"{count} of {total} {unit}{where} {what} (by chance {chance:.2g})",
            tuple(f"schemes.{number}.smoothness.structured" for number, _ in found),
        )
    yield from _windows(relative)


def _linear(schemes: Numbered) -> Iterator[Sentence]:
    found = [pair for pair in schemes if pair[1]["scheme"] == "alibi"]
    for number, scheme in found:
        slopes = scheme["slopes"]
        low, high = f"{min(slopes):.3g}", f"{max(slopes):.3g}"
        who = (
            f"{len(slopes)} heads subtract from {low} to {high}"
            if low != high
            else (f"{'the only head' if len(slopes) == 1 else 'every head'} subtracts {low}")
        )
        yield f"{who} logits per position", (f"schemes.{number}.slopes",)
    yield from _windows(found)


def _windows(schemes: Numbered) -> Iterator[Sentence]:
    windows = [
        value for _, scheme in schemes for value in scheme["heads"]["window"] if value is not None
    ]
    if windows:
        low, high = (f"{w:,.0f}" if w >= 100 else f"{w:.3g}" for w in (min(windows), max(windows)))
        keys_seen = f"between {low} and {high} keys, by head" if low != high else f"{low} keys"
        keys = tuple(f"schemes.{number}.heads.window" for number, _ in schemes)
        yield f"by the bias alone a query attends to {keys_seen}", keys
