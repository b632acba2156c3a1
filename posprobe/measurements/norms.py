"""Row norms."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses import Norms
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence
from posprobe.page import Table, columns
from posprobe.text import Block, show

#: Rows that stand out which the page lists.
LISTED = 12


def _outliers(document: Block) -> tuple[Table, ...]:
    block = document["norms"]
    rows = sorted(block["outlier_rows"] or (), key=lambda row: -abs(row["norm"] - block["median"]))
    if not rows:
        return ()
    which = f" (the {LISTED} farthest of {len(rows)})" if len(rows) > LISTED else ""
    shown = tuple((str(row["row"]), show(row["norm"])) for row in rows[:LISTED])
    return (Table(f"Rows that stand out{which}", columns("=position", "=norm"), shown),)


def _caption(results: Mapping[str, Norms]) -> str:
    (result,) = results.values()
    count = len(result.outlier_rows)
    return (
        f"Euclidean norm of each position embedding: mean {result.norms.mean():.3g}, from "
        f"{result.norms.min():.3g} to {result.norms.max():.3g}; {count or 'no'} "
        f"row{'' if count == 1 else 's'} stand{'s' if count == 1 else ''} out."
    )


NORMS = Measurement[TableInputs, Norms](
    name="norms",
    compute=lambda given: analyses.norms(given.positions),
    record=Norms,
    drawings=(
        Drawing(
            "norms",
            sentence("Row norms: mean {}, from {} to {}.", "mean", "min", "max"),
            _caption,
        ),
    ),
    tables=_outliers,
)
