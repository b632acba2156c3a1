"""Figures for papers of every kind of encoding."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from made_schemes import buckets, linear, rotary, window
from made_tables import as_table, patches, walk, waves

import posprobe as pp
from posprobe.report.paper import PaperFigure, kinds, kinds_of_several, paper_figure

if TYPE_CHECKING:
    from posprobe.figures.styles import Span
    from posprobe.report.paper import Record


def sequence(name: str = "waves", seed: int = 0) -> pp.PositionTable:
    return as_table(waves(96, [6.0, 18.0, 40.0], seed=seed, noise=0.05), name=name)


@cache
def records(case: str) -> tuple[Record, ...]:
    """What each case draws, made once."""
    long = as_table(walk(120, 6), name="a longer walk with a long name")
    grid = patches(6, 8, 12)
    made: dict[str, tuple[Record, ...]] = {
        "sequence": (sequence(),),
        "cut": (long[20:70],),
        "several": (sequence(), long, pp.sinusoidal(96, 6)),
        "six": tuple(sequence(f"table {k}", k) for k in range(6)),
        "grid": (grid,),
        "grids": (grid, pp.sincos2d(6, 8, 12)),
        "curves": (buckets(4),),
        "causal": (buckets(8, causal=True),),
        "layers": tuple(buckets(4, name=f"layer {k}", seed=k) for k in range(3)),
        "window": (window(),),
        "windows": (window(name="stage 0"), window(7, 7, 4, name="stage 1")),
        "rotary": (rotary(scaling={"rope_type": "linear", "factor": 2.0}),),
        "alibi": (linear(),),
    }
    return made[case]


#: One case for each kind; others in `CASES`.
KINDS, MANY = kinds(), kinds_of_several()
FIRST = dict.fromkeys(KINDS, "sequence") | {
    "mosaic": "grid", "axis_codes": "grid", "heads": "curves", "comparison": "several",
}  # fmt: skip
CASES = [
    *FIRST.items(),
    *((kind, "several") for kind in MANY if kind != "comparison"),
    *((kind, "grids") for kind in MANY),
    *((kind, "six") for kind in ("similarity", "comparison")),
    *((kind, "grid") for kind in ("similarity", "profile", "variance", "components", "trajectory")),
    *((kind, "grid") for kind in ("spectrum", "table", "norms")),
    *(("heads", case) for case in ("causal", "layers", "window", "windows", "rotary", "alibi")),
    *((kind, "cut") for kind in ("trajectory", "table")),
]  # fmt: skip


@cache
def _made(kind: str, case: str, venue: str, span: Span) -> PaperFigure:
    return paper_figure(kind, *records(case), venue=venue, span=span)


def made(kind: str, case: str, venue: str = "acl", span: Span = "column") -> PaperFigure:
    """Draw each figure once, whether venue and span are given or meant."""
    return _made(kind, case, venue, span)
