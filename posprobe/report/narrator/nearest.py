"""What is said of two tables, of which one may come from the other."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.layouts import Grid
from posprobe.relations.sketches import CHANCE, PRECISION
from posprobe.report.narrator.words import some, two_figures
from posprobe.sweeps.fingerprints import BLOCKS, FAR, SIDE, Likeness

#: Probability above which as small a distance is what chance makes.
USUAL = 0.05
_LIMIT = f"{CHANCE:.0e}".replace("-0", "-")
_FORMATS: Mapping[str | None, str] = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


def relation(f: Likeness) -> str:
    """Say what a table is to another, whose name follows."""
    if f.distance is None:
        return "not comparable with"
    if f.shift:
        rows = some(f.shift, "row")
        cut = f"first {rows} cut off from"
        return cut if f.relation == "rows_cut" else f"{rows} put in front of"
    return f"{f.relation} {'to' if f.relation in ('identical', 'unrelated') else 'from'}"


def evidence(f: Likeness) -> str:
    """Say what is known of the distance of two tables."""
    if f.distance is None or f.chance is None:
        one, other = f.widths
        if one != other:
            return f"Tables of width {one} and {other} cannot be compared."
        return "They have no positions in common, or one is zero."
    if f.relation == "identical" and f.whole:
        return f"All {f.rows} rows are equal (same SHA-256)."
    told = f"Relative distance {_distance(f.distance)} {_between(f)}"
    if f.relation == "identical":
        return f"{told}: equal, as far as fingerprints can tell."
    if f.relation == "rounded":
        return f"{told}: within rounding to {_FORMATS[f.rounded_to]}."
    if not f.related:
        if f.chance > USUAL:
            return f"{told}: no closer than chance (p = {f.chance:.2g})."
        return f"{told}: chance is not excluded (p = {f.chance:.2g}, required {_LIMIT})."
    told = f"{told}: closer than chance (p < {_LIMIT})."
    if f.distance > FAR:
        told += " This far apart, they may share only their initial values."
    return f"{told} Which came first is not known."


def _distance(value: float) -> str:
    if value < PRECISION:
        return f"below {PRECISION:g}"
    return f"{value:.1f}" if 1 <= value < 100 else two_figures(value)


def _between(f: Likeness) -> str:
    """Say what the distance is about."""
    if f.rows:
        return f"over all {f.rows} positions" if f.whole else f"over {f.rows} shared positions"
    one, other = (
        f"{size.height} × {size.width}" if isinstance(size, Grid) else f"{size.length}"
        for size in f.sizes
    )
    grid = isinstance(f.sizes[0], Grid)
    parts = f"{SIDE} × {SIDE}" if grid else str(BLOCKS)
    cells = "patches" if grid else "positions"
    return f"between means of {parts} equal parts ({one} and {other} {cells})"
