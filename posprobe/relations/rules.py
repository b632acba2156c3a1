"""What two copies can be to each other: each relation with its tolerance and the reason for it.

Tolerances were found on trained tables, projections and ladders of published configurations;
`tools/relations.py` counts how often each relation is named, and how often wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from posprobe.arrays import Floats


@dataclass(frozen=True)
class Rule:
    """A relation: whether copies so related encode position alike, and up to where it holds."""

    alike: bool
    tolerance: float
    because: str


_EXACT = "stored numbers are equal or they are not"
_FLOAT32 = "ladders that were computed in float32 are 5e-8 to 1e-7 off"
_INVERSE = "undone, the change leaves rounding alone, which is below 0.01 down to 8 bits"
_PROJECTED = "8 bits leave 0.005, and any other reading of the rows at least 0.4"

RULES: Mapping[str, Rule] = {
    # Values: of tables, biases and projections.
    "identical": Rule(True, 0.0, _EXACT),
    "rounded": Rule(True, 0.0, _EXACT),
    "quantised": Rule(
        True,
        0.01,
        "a rounded scale leaves 0.4 % of numbers nearer to another value of their block; values "
        "moved by 0.5 % before rounding, 1 to 2 %",
    ),
    "moved": Rule(
        True,
        0.5,
        "trained copies stay nearer; unrelated tables are 1.4 apart, and rows "
        "less their mean have no cosine of 0.5",
    ),
    "unrelated": Rule(False, 0.5, "nothing else holds"),
    # Tables.
    "width": Rule(False, 0.0, _EXACT),
    "rows_cut": Rule(False, 0.5, "half the squared distance of neighbouring rows must be gained"),
    "rows_before": Rule(
        False, 0.5, "half the squared distance of neighbouring rows must be gained"
    ),
    "truncated": Rule(False, 0.0, _EXACT),
    "longer": Rule(False, 0.0, _EXACT),
    "repeated": Rule(False, 0.02, "copies of the first rows, up to rounding to 8 bits"),
    "retrained": Rule(False, 6.0, "noise of one size leaves no row at 6 times the median"),
    "scaled": Rule(False, 0.01, _INVERSE),
    "constant_row": Rule(False, 0.01, _INVERSE),
    "reversed": Rule(False, 0.01, _INVERSE),
    "transposed": Rule(False, 0.01, _INVERSE),
    "exchanged": Rule(False, 0.01, _INVERSE),
    "permuted": Rule(False, 0.01, _INVERSE),
    "resized": Rule(False, 0.01, _INVERSE),
    "turned": Rule(False, 1e-3, "inner products survive a turn of the columns up to rounding"),
    # Rotary ladders, in logarithms of frequencies unless stated.
    "same_ladder": Rule(True, 1e-6, _FLOAT32),
    "cosines_rounded": Rule(True, 2**-7, "a cosine in bfloat16 is off by 2^-9, whatever the angle"),
    "ladder_rounded": Rule(False, 1e-6, _FLOAT32),
    "angles_rounded": Rule(False, 2**-7, "cosines as that arithmetic gives them, in bfloat16"),
    "base": Rule(False, 1e-6, _FLOAT32),
    "ntk": Rule(False, 1e-5, "factors are whole numbers, and float32 leaves 1e-6 of the base"),
    "spread": Rule(False, 1e-5, "float32 leaves 1e-6 of the base"),
    "last_pair": Rule(False, 1e-5, "float32 leaves 1e-6 of the base"),
    "positions_scaled": Rule(False, 1e-6, _FLOAT32),
    "parts_lost": Rule(False, 1e-6, _FLOAT32),
    "parts_added": Rule(False, 1e-6, _FLOAT32),
    "parts_factor": Rule(False, 1e-6, _FLOAT32),
    "ramp": Rule(False, 1e-6, _FLOAT32),
    "pair_order": Rule(False, 1e-6, _FLOAT32),
    "frequencies": Rule(False, 1e-6, "nothing else holds"),
    "columns": Rule(False, 0.0, _EXACT),
    "same_columns": Rule(True, 0.0, _EXACT),
    "factor": Rule(False, 1e-6, "float32 cosines and sines give it to 2e-7"),
    "axes": Rule(False, 0.0, _EXACT),
    "sections": Rule(False, 0.0, _EXACT),
    "window": Rule(False, 0.0, _EXACT),
    "logit_scale": Rule(False, 1e-6, "configurations state it as float32 or as a square"),
    "soft_cap": Rule(False, 0.0, _EXACT),
    "missing": Rule(False, 0.0, _EXACT),
    # Which columns are pairs.
    "same_pairs": Rule(True, 0.5, "any wrong order of rows is at least 0.9 away"),
    "pairs_reordered": Rule(True, 0.5, "any wrong order of rows is at least 0.9 away"),
    "pairs_mixed_up": Rule(False, 0.5, "any wrong order of rows is at least 0.9 away"),
    "pairs_wrong": Rule(False, 0.02, "the right pairing leaves rounding, 0.009 in bfloat16"),
    # Projections to queries and keys.
    "gain_folded": Rule(True, 0.02, _PROJECTED),
    "scale_folded": Rule(True, 0.02, _PROJECTED),
    "heads_order": Rule(True, 0.02, _PROJECTED),
    "weights_transposed": Rule(False, 0.02, _PROJECTED),
    "gauge": Rule(True, 1e-6, "products of pairs turned together are equal up to float32"),
    "other_weights": Rule(True, 0.5, "another model; what it does with position is not compared"),
    # Linear and relative biases.
    "same_slopes": Rule(True, 1e-6, _FLOAT32),
    "slopes_scaled": Rule(False, 1e-6, _FLOAT32),
    "slopes": Rule(False, 1e-6, "nothing else holds"),
    "heads": Rule(False, 0.0, _EXACT),
    "buckets": Rule(False, 0.0, "the same values, at other distances"),
    "reach": Rule(False, 0.0, _EXACT),
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
        A name in `RULES`.
    a, b
        What A and B have, where one value says it.
    value
        What was held against the tolerance, or the number that names the cause.
    first_distance
        Of ladders: first distance at which some pair is 0.1 rad off.
    rotation
        Of ladders: largest difference of the mean rotation within the shorter context.
    more
        Further numbers of the sentence.
    part
        The encoding that it is about, where there are several.
    curve
        What shows it, None where nothing does: of ladders ``[pairs]``, frequencies of B over those
        of A; of rows ``[rows of A]``, how far B's are from them, NaN where B has none.
    """

    what: str
    cause: str
    a: Any = None
    b: Any = None
    value: float | None = None
    first_distance: float | None = None
    rotation: float | None = None
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    part: str = ""
    curve: Floats | None = field(default=None, repr=False, compare=False)

    @property
    def alike(self) -> bool:
        """Whether copies so related encode position alike in this."""
        return RULES[self.cause].alike


@dataclass(frozen=True)
class NotCompared:
    """What could not be compared, and whether the verdict hangs on it.

    Parameters
    ----------
    what
        As in `Finding`, or the kind of an encoding.
    reason
        A key of the narrator.
    about
        What the sentence names.
    decides
        Whether copies may differ in it, so that they cannot be called alike.
    """

    what: str
    reason: str
    about: str = ""
    decides: bool = True
