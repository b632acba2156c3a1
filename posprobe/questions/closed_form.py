"""Whether a table follows a published formula, on a line or a grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from posprobe.analyses.descriptive.closeness import cka, cloud
from posprobe.analyses.facts import Answer
from posprobe.analyses.view import View
from posprobe.encodings.recognise import fixed_formula, nearly_formula
from posprobe.encodings.tables import sincos2d
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid
from posprobe.questions.base import too_few

#: CKA with a formula from which a table is one, up to a rotation.
SAME = 0.99
#: Relative distance from a formula that rounding explains.
EXACT = 5e-4
#: Of formats with so many fewer digits.
COARSE = {"BF16": 8.0}
#: Base of every published variant.
BASE = 1e4
KEYS = ("sinusoid.cka", "sinusoid.base")


@dataclass(frozen=True)
class ClosedForm:
    """The formula, or how similar the nearest one is.

    Parameters
    ----------
    rows, of
        Number of rows that were compared, from the first, and of all.
    formula, base, scale
        Its layout, the base of its frequencies, and its factor; each None where there is none.
    error
        Root mean squared distance, over the waves' own size.
    cka
        With the most similar sinusoid, on a grid with the 2-D sin-cos table.
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
        known: dict[str, Any] = {"base": self.base}
        if self.formula is None:
            known |= {"cka": self.cka, "rows": self.rows}
        else:
            formula = f"{self.formula}, base {self.base:.6g}"
            known |= {"formula": formula, "scale": self.scale, "error": self.error}
        return {name: each for name, each in known.items() if each is not None}


def ask_closed_form(seen: View) -> Answer:
    """Ask whether the table follows a published formula, up to rotation, scale and mean."""
    values, layout = seen.values, seen.layout
    n, d = values.shape
    facts = ClosedForm(n, n, grid=isinstance(layout, Grid))

    def answer(reason: str, **known: Any) -> Answer:
        told = replace(facts, **known)
        return Answer("closed_form", "no" if reason == "none" else "yes", reason, told, keys=KEYS)

    if name := fixed_formula(values, layout, seen.dtype):
        return answer("exact", formula=name, base=BASE)
    if near := nearly_formula(values, layout):
        rounded = near.error <= EXACT * COARSE.get(seen.dtype, 1.0)
        known = {"base": near.base, "scale": near.scale, "error": near.error}
        return answer("exact" if rounded else "nearly", formula=near.name, **known)
    if few := too_few("closed_form", seen, KEYS):
        return few
    if isinstance(layout, Grid):
        alike = _sincos2d(seen, layout, d - d % 4)
        return answer("sincos2d" if alike is not None and alike >= SAME else "none", cka=alike)
    fit = seen.base
    if fit is None:
        return answer("none")
    if fit.best is not None and fit.base is not None and fit.best >= SAME:
        return answer("sinusoid", base=fit.base, cka=fit.best, rows=fit.rows)
    return answer("none", cka=fit.best, rows=fit.rows)


def _sincos2d(seen: View, layout: Grid, width: int) -> float | None:
    if width < 4:
        return None
    try:
        return cka(cloud(seen.points), cloud(sincos2d(layout.height, layout.width, width).values))
    except (InvalidTable, ValueError):
        return None
