"""What is said of the heads of a rotary model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from posprobe.analyses.rotary_use import MIN_CONTEXTS, RotaryUse
from posprobe.questions.rotary_use import Preferring
from posprobe.report.narrator import TEXTS
from posprobe.report.narrator.words import Template, percent, some
from posprobe.text import Block

#: What contexts are.
SOURCES: Mapping[str, str] = TEXTS["sources"]
#: Whether a layer ignores position, or why it was not measured.
REASONS: Mapping[str, str] = TEXTS["layers"]


def on(f: Preferring | RotaryUse) -> str:
    """Say what contexts the numbers are of."""
    return f"on {f.contexts:,} contexts of {f.length:,} tokens {SOURCES[f.source]}".rstrip()


def _explains(f: Preferring) -> str:
    if f.share is None or f.least is None or f.most is None:
        return "All logits of a query are equal"
    span = _range(f.least, f.most)
    return (
        f"Distance alone explains {percent(max(f.share, 0.0))} ({span}) of the differences between "
        f"a query's logits"
    )


def _range(least: float, most: float) -> str:
    """Return a range of shares; an estimate of nothing can be a little below 0."""
    low, high = percent(max(least, 0.0)), percent(max(most, 0.0))
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


ROTARY_PARTS: Mapping[str, Mapping[str, Template]] = {
    "distance": {"on": on, "explains": _explains, "fewest": lambda _: str(MIN_CONTEXTS),
                 "turning": lambda f: "" if f.never is None else "strength"},
}  # fmt: skip


def clause(f: Preferring) -> str:
    """Say in the summary of a run how many heads prefer a distance."""
    return f"{f.yes} of {some(f.heads, 'head')} prefer a distance ({on(f)})."


def peaks(heads: Sequence[Block]) -> str:
    """List the preferred distances of a layer's heads, most frequent first."""
    found = Counter(head["peak"] for head in heads if head["peak"] is not None).most_common(4)
    return ", ".join(f"{peak} ({count})" for peak, count in found) or "–"


def counts(heads: Sequence[Block]) -> str:
    """Count a layer's heads by their answers: yes, no, can't tell."""
    answers = Counter(head["answer"] for head in heads)
    return " / ".join(str(answers[each]) for each in ("yes", "no", "cannot tell"))


def no_heads(found: RotaryUse) -> str:
    """Say why nothing can be drawn; empty where it can."""
    return "" if found.heads else "no layer could be measured"


#: What a measurement needs that a model lacks.
NEEDS_ROTARY = "a text model of transformers with rotary embeddings"
NEEDS_ADDED = "positions that are added to the input; this model rotates queries and keys"
