"""Components that go round each other."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses.winding import Winding
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence
from posprobe.page import Table, columns
from posprobe.text import Block, between, cell, show


def _pairs(document: Block) -> tuple[Table, ...]:
    rows = tuple(
        (
            " and ".join(map(str, pair["components"])),
            f"{pair['share']:.1%}",
            show(pair["turns"]),
            between(pair["local_period"]),
            show(pair["phase_linearity"]),
            show(pair["radius_cv"]),
            cell(pair["pitch"]),
        )
        for pair in document["winding"]["pairs"] or ()
    )
    headings = columns(
        "components", "=variance", "=turns", "=period along the table", "=phase linearity",
        "=radius CV", "=pitch",
    )  # fmt: skip
    text = (
        "Pairs of components that go round. The period is that of tenths of the table, smallest "
        "to largest, in positions; the pitch is the rise of a third component per turn"
    )
    return (Table(f"{text}.", headings, rows),) if rows else ()


def _caption(results: Mapping[str, Winding]) -> str:
    (result,) = results.values()
    pair = result.pairs[0]
    first, second = (number + 1 for number in pair.components)
    last = result.start + len(result.scores) - 1
    return (
        f"Principal components {first} and {second} of positions {result.start} to {last} "
        f"({pair.share:.1%} of their variance) go round their centre {pair.turns:.2f} times; "
        "coloured by position, from the open circle to the black square. The period is that of "
        "each tenth of them. Components of a random walk make 0.75 turns, so turns alone prove "
        "nothing below one."
    )


WINDING = Measurement[TableInputs, Winding](
    name="winding",
    compute=lambda given: analyses.winding(given.kept, pca=given.kept_components),
    record=Winding,
    drawings=(
        Drawing(
            "winding",
            sentence("Path of the pair of components that winds: {} turns.", "turns"),
            _caption,
            lacks=lambda result: (
                result.undefined or ("" if result.pairs else "no pair of components goes round")
            ),
        ),
    ),
    tables=_pairs,
)
