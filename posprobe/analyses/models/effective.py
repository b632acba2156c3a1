"""The table as attention sees it, beside the table as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import HIDDEN, As, Result, Stored
from posprobe.schema import Natural, Reasons, Text
from posprobe.tables import PositionTable


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveTable(Result):
    """Headline numbers of a table before and after what stands between it and attention.

    Parameters
    ----------
    raw
        Of the table as stored, keyed as in `posprobe.measurements.compared_numbers`; None where a
        number is undefined.
    effective
        The same of ``table``.
    notes
        Which content was added and which normalisation applied.
    table
        The rows that enter the first layer's queries and keys, `posprobe.families.effective_table`.
    """

    figures: ClassVar[str] = "states.plot_effective"

    raw: Annotated[
        Mapping[str, float | None],
        As(dict[str, float | None]),
        "Headline numbers of the table as stored, by their key path in posprobe.analysis/1.",
    ]
    effective: Annotated[
        Mapping[str, float | None],
        As(dict[str, float | None], lambda found: {k: found.effective.get(k) for k in found.raw}),
        "The same of the rows that attention sees.",
    ]
    notes: Annotated[tuple[str, ...], As(list[Text])]
    table: Annotated[PositionTable, HIDDEN]

    @property
    def rows(self) -> Annotated[NDArray[np.floating[Any]], Stored("effective")]:
        """``[n, d]``: those of ``table``."""
        return self.table.values

    @property
    def positions(self) -> Annotated[Natural, ""]:
        """How many there are."""
        return len(self.table)

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None on either side."""
        why = "one of the two tables has too few positions, or rows that are too similar"
        sides = (self.raw, self.effective)
        return {key: why for key in self.raw if any(side.get(key) is None for side in sides)}
