"""The linear map from each position to the next."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses import Shift
from posprobe.measurements.base import (
    Drawing,
    Measurement,
    TableInputs,
    sentence,
    undefined,
)
from posprobe.text import show

#: Periods that a caption lists.
LISTED = 12


def _caption(results: Mapping[str, Shift]) -> str:
    (result,) = results.values()
    turning = [f"{period:.3g}" for period in result.periods[result.rotations].tolist()]
    rule = "no mode is a rotation by our rule"
    if turning:
        more = f" and {len(turning) - LISTED} more" if len(turning) > LISTED else ""
        periods = ", ".join(turning[:LISTED])
        rule = f"filled ones are rotations by our rule, with periods {periods}{more}"
    return (
        "Eigenvalues of the linear map from each position to the next, fitted to the first "
        f"{result.rank} principal components; on the unit circle a mode keeps its amplitude, and "
        f"labels are its period in positions; {rule}. Skill on held-out rows: "
        f"{show(result.skill)} (1 is exact, 0 no better than no change or the mean row)."
    )


SHIFT = Measurement[TableInputs, Shift](
    name="shift",
    compute=lambda given: analyses.shift(given.positions, pca=given.result("pca")),
    record=Shift,
    drawings=(
        Drawing(
            "shift",
            sentence("Eigenvalues of the shift: skill {}, rank {}.", "skill", "rank"),
            _caption,
            lacks=undefined,
        ),
    ),
)  # fmt: skip
