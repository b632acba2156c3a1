"""The relations of two copies, each with its tolerance (``rules.toml``), and the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posprobe.arrays import Floats
from posprobe.data import read_data


@dataclass(frozen=True)
class Rule:
    """A relation: its tolerance, and whether copies so related encode position alike."""

    alike: bool
    tolerance: float


#: All relations by the name of their cause.
RULES: Mapping[str, Rule] = {
    name: Rule(**rule) for name, rule in read_data("relations/rules.toml").items()
}


@dataclass(frozen=True)
class Finding:
    """One thing that was compared, and what B is to A in it.

    Parameters
    ----------
    what
        ``rows``, ``values``, ``ladder``, ``factor``, ``columns``, ``pairs``, ``sections``,
        ``window``, ``weights``, ``slopes``, ``buckets``, ``heads`` or ``logits``.
    cause
        Name of a relation in `RULES`.
    a, b
        Values of A and B, if one value describes each.
    value
        Number that is compared with the tolerance, or that the sentence on the cause names.
    first_distance
        First distance at which it matters: of a ladder, that at which some pair is 0.1 rad off; 0
        for what changes the first token already.
    rotation
        Largest difference of the mean rotation of ladders within the shorter context.
    more
        Further numbers and words of the sentence.
    part
        Name of the encoding, if a copy has several.
    curve
        Values that show the difference; None without any. For ladders ``[pairs]``, frequencies of B
        over those of A; for rows ``[rows of A]``, the relative distance of B's rows, NaN where B
        has none.
    """

    what: str
    cause: str
    a: Any = None
    b: Any = None
    value: float | None = None
    first_distance: float | None = None
    rotation: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    curve: Floats | None = field(default=None, repr=False, compare=False)

    @property
    def alike(self) -> bool:
        """Whether copies with this relation encode position alike."""
        return RULES[self.cause].alike


@dataclass(frozen=True)
class NotCompared:
    """What could not be compared, and whether the verdict hangs on it.

    Parameters
    ----------
    what
        Subject, as in `Finding`, or the kind of an encoding.
    reason
        Key of the sentence in `words/checks.toml`.
    about
        Name that the sentence uses.
    decides
        Whether copies may differ in it, so that they cannot be called alike.
    """

    what: str
    reason: str
    about: str = ""
    decides: bool = True
