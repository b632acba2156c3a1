"""What is said of a table of patches on a grid, where templates must choose."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.questions.axis_rotations import LEAST_TURNS, Code
from posprobe.questions.codes import RowsAndColumns
from posprobe.report.narrator.words import Template, either, listed, percent
from posprobe.text import show


def _codes(f: RowsAndColumns) -> str:
    shares = {"": f.share, "row": f.row_share, "column": f.column_share}
    summed = f"A {f.lone} code alone explains" if f.lone else "Row code + column code explain"
    said = f"{summed} {percent(shares[f.lone])} of the variance"
    return f"{said} ({percent(f.typical)} in random tables without codes)."


def _code(axis: str) -> str:
    return f"{axis.removesuffix('s')} code"


def _lined(code: Code) -> str:
    share = min(sum(line.share for line in code.lines), 1.0)
    which = "a periodic component with a period of|periodic components with periods of"
    return (
        f"The {_code(code.axis)} has {either(code.lines, which)} "
        f"{listed([show(line.period) for line in code.lines])} {code.axis} ({percent(share)} of "
        "its variance)."
    )


def _circled(code: Code) -> str:
    circle = code.circle
    assert circle is not None  # noqa: S101 - those told of have one
    turns = f"{circle.turns:.1f} turns" if circle.turns > LEAST_TURNS else "about one turn"
    return (
        f"A circle of {turns} over {code.length} {code.axis} explains {percent(circle.share)} of "
        f"the variance of the {_code(code.axis)} ({percent(circle.typical)} in smooth random "
        "curves)."
    )


GRID_PARTS: Mapping[str, Mapping[str, Template]] = {
    "rows_and_columns": {"codes": _codes},
    "axis_rotations": {
        "lines": lambda f: " ".join(map(_lined, f.round)),
        "round": lambda f: " ".join(map(_circled, f.round)),
        "circles": lambda f: " ".join(map(_circled, f.codes)),
        "of_codes": lambda f: "" if f.codes_share is None else "codes",
    },
    "smooth": {"surface": lambda f: "halving" if f.halves else "wide"},
}
