"""Types of the numbers in documents, with their limits as JSON Schema states them.

``Annotated`` adds to a type, in any order, a description (a string) and keywords of JSON Schema, as
in ``Annotated[float, "In positions.", limits(minimum=0)]``.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias


def limits(**keywords: float | str) -> tuple[tuple[str, float | str], ...]:
    """Return keywords of JSON Schema in a form that ``Annotated`` can hold in a union: hashable."""
    return tuple(keywords.items())


#: Whole numbers from 0, and from 1.
Count: TypeAlias = Annotated[int, limits(minimum=0)]
Natural: TypeAlias = Annotated[int, limits(minimum=1)]
#: A position, counted without prefix and dropped rows.
Row: TypeAlias = Annotated[int, limits(minimum=0)]
#: Numbers from 0.
NonNegative: TypeAlias = Annotated[float, limits(minimum=0)]
#: Shares, which rounding may leave just above 1.
Share: TypeAlias = Annotated[float, limits(minimum=0, maximum=1.000001)]
Cosine: TypeAlias = Annotated[float, limits(minimum=-1, maximum=1)]
Text: TypeAlias = Annotated[str, limits(minLength=1)]
Reasons: TypeAlias = Annotated[
    dict[str, Text], "Reason for each number of the block that is null."
]
#: Limits of a list that holds exactly two values.
PAIR_LIMITS = limits(minItems=2, maxItems=2)
