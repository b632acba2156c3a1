"""Whether heads of a rotary model prefer a distance, counted over all heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from posprobe.analyses.facts import Answer
from posprobe.analyses.rotary_use import MIN_CONTEXTS, Origin, RotaryUse
from posprobe.questions.models import Run, RunQuestion, measured


@dataclass(frozen=True)
class Preferring:
    """How many heads prefer a distance, and what distance explains.

    Parameters
    ----------
    share, least, most
        Distance share: median, smallest and largest of any head; None where none has one.
    yes, no, open
        Heads that do, that do not, and of which it cannot be told.
    never, positions
        Mean share of the usage in pairs that make no full turn within so many positions.
    contexts, length, source
        How many contexts of how many tokens, and what they are.
    """

    share: float | None
    least: float | None
    most: float | None
    yes: int
    no: int
    open: int
    never: float | None
    positions: int
    contexts: int
    length: int
    source: Origin

    @property
    def heads(self) -> int:
        """All of them."""
        return self.yes + self.no + self.open

    @property
    def value(self) -> dict[str, Any]:
        """The counts, and the median share."""
        return {"heads": self.yes, "of": self.heads, "share": self.share}


def distance(run: Run) -> Answer:
    """Ask whether any head prefers a distance."""
    found: RotaryUse = run.results["rotary_use"]
    told = found.summary
    keys = tuple(f"rotary_use.summary.{key}" for key in ("share", "yes", "no", "open", "never"))
    facts = Preferring(
        told.share, told.least, told.most, told.yes, told.no, told.open, told.never,
        told.positions, found.contexts, found.length, found.source,
    )  # fmt: skip
    if found.contexts < MIN_CONTEXTS or told.share is None:
        reason = "few_contexts" if found.contexts < MIN_CONTEXTS else "even"
        return Answer("distance", "cannot tell", reason, facts, keys=keys)
    if told.yes:
        return Answer("distance", "yes", "some", facts, keys=keys)
    if told.open:
        return Answer("distance", "cannot tell", "open", facts, keys=keys)
    return Answer("distance", "no", "no_head", facts, keys=keys)


DISTANCE = RunQuestion(
    "distance", distance, ("some", "open", "no_head", "few_contexts", "even"),
    applies=measured("rotary_use"),
)  # fmt: skip
