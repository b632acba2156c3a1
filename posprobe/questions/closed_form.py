"""Whether a table follows a published formula, on a line or a grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from posprobe.analyses.composition.formulas import MIN_FORMULA_CKA
from posprobe.analyses.descriptive.closeness import cka, prepare_cloud
from posprobe.analyses.facts import Answer, Verdict
from posprobe.analyses.view import View
from posprobe.encodings.tables import sincos2d
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid
from posprobe.questions.rank_tests import small_table_answer

#: Largest relative distance from a formula that rounding explains.
MAX_ROUNDING_ERROR = 5e-4
#: Factor on that distance by number format, for formats with fewer digits.
ROUNDING_FACTORS = {"BF16": 8.0}
#: Keys of the numbers in ``analysis.json`` that belong to the question.
CLOSED_FORM_KEYS = ("sinusoid.cka", "sinusoid.base")


@dataclass(frozen=True)
class ClosedForm:
    """The formula of a table, or the similarity of the nearest one.

    Parameters
    ----------
    rows, of
        Number of rows that were compared, from the first, and number of all rows.
    formula, base, scale
        Layout of the formula, the base of its frequencies, and its factor; each None where there
        is none.
    error
        Root mean square distance over the root mean square of the waves.
    cka
        CKA with the most similar sinusoid; on a grid, with the 2-D sin-cos table.
    grid
        Whether positions are patches on a grid.
    """

    rows: int
    of: int
    formula: str | None = None
    base: float | None = None
    scale: float | None = None
    error: float | None = None
    cka: float | None = None
    grid: bool = False

    @property
    def value(self) -> dict[str, Any]:
        """The formula with its numbers, or the CKA."""
        parameters: dict[str, Any] = {"base": self.base}
        if self.formula is None:
            parameters |= {"cka": self.cka, "rows": self.rows}
        else:
            formula = f"{self.formula}, base {self.base:.6g}"
            parameters |= {"formula": formula, "scale": self.scale, "error": self.error}
        return {name: value for name, value in parameters.items() if value is not None}


def ask_closed_form(view: View) -> Answer:
    """Ask whether the table follows a published formula, up to rotation, scale and mean."""
    values, layout = view.values, view.layout
    n, d = values.shape
    facts = ClosedForm(n, n, grid=isinstance(layout, Grid))

    def answer(reason: str, **changes: Any) -> Answer:
        verdict: Verdict = "no" if reason == "none" else "yes"
        new_facts = replace(facts, **changes)
        return Answer("closed_form", verdict, reason, new_facts, keys=CLOSED_FORM_KEYS)

    if formula := view.formula:
        max_error = MAX_ROUNDING_ERROR * ROUNDING_FACTORS.get(view.dtype, 1.0)
        return answer(
            "exact" if (formula.error or 0.0) <= max_error else "nearly",
            formula=formula.name,
            base=formula.base,
            scale=formula.scale,
            error=formula.error,
        )
    if refusal := small_table_answer("closed_form", view, CLOSED_FORM_KEYS):
        return refusal
    if isinstance(layout, Grid):
        grid_cka = _sincos2d_cka(view, layout, d - d % 4)
        is_sincos2d = grid_cka is not None and grid_cka >= MIN_FORMULA_CKA
        return answer("sincos2d" if is_sincos2d else "none", cka=grid_cka)
    fit = view.base_fit
    if fit is None:
        return answer("none")
    if fit.best is not None and fit.base is not None and fit.best >= MIN_FORMULA_CKA:
        return answer("sinusoid", base=fit.base, cka=fit.best, rows=fit.rows)
    return answer("none", cka=fit.best, rows=fit.rows)


def _sincos2d_cka(view: View, layout: Grid, width: int) -> float | None:
    if width < 4:
        return None
    try:
        return cka(
            prepare_cloud(view.points),
            prepare_cloud(sincos2d(layout.height, layout.width, width).values),
        )
    except (InvalidTable, ValueError):
        return None
