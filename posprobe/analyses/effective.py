"""The table as attention sees it, beside the table as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypedDict

from posprobe.analyses.result import Result
from posprobe.schema import Natural, Reasons, Text
from posprobe.tables import PositionTable


class EffectiveBlock(TypedDict):
    """The table as stored and as the first layer's attention sees it."""

    positions: Natural
    raw: Annotated[
        dict[str, float | None],
        "Headline numbers of the table as stored, by their key path in posprobe.analysis/2.",
    ]
    effective: Annotated[dict[str, float | None], "The same of the rows that attention sees."]
    notes: list[Text]
    undefined: Reasons


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveTable(Result):
    """Headline numbers of a table before and after what stands between it and attention.

    Parameters
    ----------
    raw
        Of the table as stored, keyed as in `posprobe.analyses.headline.HEADLINES`; None where a
        number is undefined.
    effective
        The same of ``table``.
    notes
        Which content was added and which normalisation applied.
    table
        The rows that enter the first layer's queries and keys, `posprobe.effective_table`.
    """

    figures: ClassVar[str] = "model_effective"

    raw: Mapping[str, float | None]
    effective: Mapping[str, float | None]
    notes: tuple[str, ...]
    table: PositionTable

    def summary(self) -> EffectiveBlock:
        """Return both sets of numbers."""
        lacking = [
            key
            for key in self.raw
            if self.raw[key] is None or self.effective.get(key, None) is None
        ]
        return {
            "positions": len(self.table),
            "raw": dict(self.raw),
            "effective": {key: self.effective.get(key) for key in self.raw},
            "notes": list(self.notes),
            "undefined": dict.fromkeys(
                lacking, "too few positions or rows too alike in one of the two tables"
            ),
        }
