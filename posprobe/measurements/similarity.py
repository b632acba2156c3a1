"""Cosine similarity of positions."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses import Similarity
from posprobe.analyses.unit_rows import WINDOW
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence
from posprobe.text import Block, show


def _coarse(block: Block) -> tuple[str, ...]:
    """Say of a large table's cosines what the matrices are and what the numbers are."""
    side = block["raw"].get("pooled", 1)
    if side == 1:
        return ()
    return (
        (
            f"The matrices are means over blocks of {side} × {side} pairs. All numbers are those "
            "of single pairs."
        ),
    )


def matrices_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    """Say how to read cosine matrices."""
    from posprobe.figures.common import MAX_CELLS

    sides = {
        name: -(-len(result.raw.matrix) // MAX_CELLS) * result.raw.pooled
        for name, result in results.items()
    }
    pooled = " and ".join(
        f"those of {name} means of {side} × {side}" for name, side in sides.items() if side > 1
    )
    text = "Cosine similarity of every pair of position embeddings, on one range from -1 to 1"
    if centred:
        text += "; the mean row subtracted"
    elif len(results) == 1 and centred is None:
        text += ": rows as stored, and after subtracting the mean row"
    else:
        text += "; rows as stored, not centred"
    numbers = "; ".join(
        f"{name} {show(result.raw.neighbour_mean)} raw and "
        f"{show(result.centered.neighbour_mean)} centred"
        for name, result in results.items()
    )
    cells = f" Cells are pairs of positions, {pooled}." if pooled else ""
    return f"{text}. Mean cosine of neighbouring positions: {numbers}.{cells}"


def _profile_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    first = next(iter(results.values()))
    treated = "as stored" if centred is False else "after subtracting the mean row"
    if isinstance(first.layout, Grid):
        return (
            "Mean cosine of position embeddings by the rows and columns between them, "
            f"{treated}; no displacement is in the middle."
        )
    shaded = "shaded: one standard deviation over pairs"
    which = treated
    if len(results) == 1:
        both = f"as stored (raw) and after subtracting the mean row (centred; {shaded})"
        which = both if centred is None else f"{treated} ({shaded})"
    falls = "; ".join(
        f"{name} {'undefined' if (share := r.raw.monotone_fraction) is None else f'{share:.1%}'}"
        for name, r in results.items()
    )
    return (
        f"Mean cosine of position embeddings by the offset between them, {which}. Share of steps "
        f"away from a position, up to offset {WINDOW}, at which the raw cosine falls: {falls}."
    )


def comparison_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    """Say how to read matrices, profiles and spectra together."""
    on_grid = isinstance(next(iter(results.values())).layout, Grid)
    by = "by columns apart in a row" if on_grid else "by offset"
    treated = "less the mean" if on_grid else "each dimension less its line, Hann window"
    return (
        f"{matrices_caption(results, centred)} Below: mean cosine {by} after subtracting the "
        f"mean row, and the share of power by frequency ({treated})."
    )


SIMILARITY = Measurement[TableInputs, Similarity](
    name="similarity",
    compute=lambda given: analyses.similarity(given.positions),
    record=Similarity,
    drawings=(
        Drawing(
            "similarity",
            sentence(
                "Cosine matrices: neighbouring rows {} raw and {} centred, distant rows {} "
                "centred.",
                "raw.neighbour_mean", "centered.neighbour_mean", "centered.far_mean",
            ),
            matrices_caption,
            several=True,
            centring=True,
            columns=True,
        ),
        Drawing(
            "profile",
            sentence(
                "Mean cosine by offset: {} of its steps up to offset {} fall.",
                "raw.monotone_fraction", "window",
            ),
            _profile_caption,
            several=True,
            band="profile",
            centring=True,
        ),
    ),
    facts=_coarse,
)  # fmt: skip
