"""Sentences about encodings without a table: facts of the configuration and of what was learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from posprobe.report.findings import Finding

Block = Mapping[str, Any]
#: A text and the keys of the numbers it rests on.
Sentence: TypeAlias = tuple[str, tuple[str, ...]]


def scheme_findings(document: Block) -> tuple[Finding, ...]:
    """Return what can be said of the encodings in a document's ``schemes``."""
    several = len(document["schemes"]) > 1
    found: list[Finding] = []
    for number, scheme in enumerate(document["schemes"]):
        who = f"{scheme['name']}: " if several else ""
        for text, keys in _sentences(scheme):
            text = who + text if who else text[0].upper() + text[1:]
            found.append(Finding(text, tuple(f"schemes.{number}.{key}" for key in keys)))
    return tuple(found)


def _sentences(scheme: Block) -> Iterator[Sentence]:
    match scheme["scheme"]:
        case "rotary":
            yield from _rotary(scheme)
        case "relative":
            yield from _relative(scheme)
        case "alibi":
            yield from _linear(scheme)


def _rotary(scheme: Block) -> Iterator[Sentence]:
    block = scheme["rotation"]
    pairs, target = block["pairs"], block["target"]
    if block["never_turn_target"] is not None:
        never = round(block["never_turn_target"] * pairs)
        text = f"{never} of {pairs} pairs never complete a turn within {target} positions"
        yield f"{text} (base {scheme['base']:g})", ("rotation.never_turn_target", "base")
    first = block["first_negative"]
    if first is not None and target is not None:
        place = "inside" if first <= target else "beyond"
        text = f"the mean rotation first turns negative at distance {first}, {place} the context of"
        yield f"{text} {target}", ("rotation.first_negative", "rotation.target")
    if scheme["rule"] != "default":
        was = f" from {block['training']} positions" if block["training"] else ""
        yield f"the ladder is stretched{was} by the rule {scheme['rule']}", ("rule", "scaling")


def _relative(scheme: Block) -> Iterator[Sentence]:
    heads, block = scheme["heads"], scheme["smoothness"]
    count, total = block["structured"], len(block["correlation"])
    if scheme["quantity"] == "cosine":
        than = "more" if count else "no more"
        text = (
            f"the vectors of neighbouring distances resemble each other {than} than permuted ones"
        )
        yield text, ("smoothness.structured",)
    else:
        text = f"{count} of {total} heads give neighbouring distances more alike biases than chance"
        yield text, ("smoothness.structured", "smoothness.correlation")
    yield from _windows(scheme)
    odd = [value for value in heads["asymmetry"] if value is not None]
    if leaning := sum(value > 0.5 for value in odd):
        text = f"{leaning} of {total} heads tell before from after: most of their variance is odd"
        yield text, ("heads.asymmetry",)


def _linear(scheme: Block) -> Iterator[Sentence]:
    slopes = scheme["slopes"]
    text = f"{len(slopes)} heads subtract from {min(slopes):.3g} to {max(slopes):.3g} logits"
    yield f"{text} per position", ("slopes",)
    yield from _windows(scheme)


def _windows(scheme: Block) -> Iterator[Sentence]:
    windows = [value for value in scheme["heads"]["window"] if value is not None]
    if windows:
        low, high = f"{min(windows):.3g}", f"{max(windows):.3g}"
        span = f"between {low} and {high} positions, by head" if low != high else f"{low} positions"
        yield f"by the bias alone a query attends to {span}", ("heads.window",)
