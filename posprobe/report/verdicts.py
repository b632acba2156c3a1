"""Every question about a table, of its longest stretch and of other long parts."""

from __future__ import annotations

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.analyses.decide import decide
from posprobe.analyses.facts import Answer, Part, Verdicts
from posprobe.analyses.stretch import all_equal, runs
from posprobe.analyses.views import View, view
from posprobe.arrays import Array, to_numpy
from posprobe.layouts import Grid
from posprobe.measurements import TableInputs
from posprobe.questions import GRID, SEQUENCE, corrections

#: Fewest rows of another part that is asked by itself, and most such parts.
PART, MOST_PARTS = 32, 3


def verdicts(inputs: TableInputs, dtype: str) -> Verdicts:
    """Ask every question about a table.

    Parameters
    ----------
    inputs
        The table, and what was measured of it.
    dtype
        Format in which it was stored, for recognising formulas.
    """
    grid = isinstance(inputs.table.layout, Grid)
    stretch, found, start = inputs.stretch, inputs.seams, inputs.table.start
    names = ("axis_codes",) if grid else ("winding", "bridging")
    seen = view(
        _host(inputs.kept.values), seed=inputs.seed, layout=inputs.kept.layout, dtype=dtype,
        start=start, breaks=found, replaced=inputs.replaced,
        all_rows=_host(inputs.positions.values),
        measured={name: inputs.result(name) for name in names},
    )  # fmt: skip
    answers = _answers(seen)
    return Verdicts(
        answers, start + stretch.first, start + stretch.stop, stretch.whole, stretch.reasons,
        parts=() if stretch.whole or grid else _parts(inputs, dtype),
        replaced=tuple(start + row for row in inputs.replaced),
        copies=None if grid else corrections.copies_of(answers, seen),
        equal=tuple((first + start, last + start) for first, last in found.equal),
    )  # fmt: skip


def _answers(seen: View) -> dict[str, Answer]:
    """Ask and settle; a part of a table is not asked what is asked of the whole alone."""
    grid = isinstance(seen.layout, Grid)
    questions = [
        each for each in (GRID if grid else SEQUENCE) if each.parts or seen.breaks is not None
    ]
    corrected = corrections.GRID if grid else corrections.SEQUENCE
    return decide([each.ask(seen) for each in questions], corrected, seen)


def _parts(inputs: TableInputs, dtype: str) -> tuple[Part, ...]:
    """Ask the other long stretches between seams, in order, each by itself."""
    found, start = inputs.seams, inputs.table.start
    others = [run for run in runs(found) if run[0] != inputs.stretch.first]
    others = [run for run in others if run[1] - run[0] >= PART and not all_equal(found, run)]
    longest = sorted(others, key=lambda run: run[0] - run[1])[:MOST_PARTS]
    return tuple(
        Part(
            start + first,
            start + stop,
            _answers(
                view(_host(inputs.positions.values[first:stop]), seed=inputs.seed, dtype=dtype)
            ),
        )
        for first, stop in sorted(longest)
    )


def _host(values: Array) -> Floats:
    return np.asarray(to_numpy(values), dtype=np.float64)
