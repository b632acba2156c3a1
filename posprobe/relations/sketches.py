"""What two tables are to each other, of which only a sketch was kept: some rows, projected."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.relations.rules import Finding

#: Largest chance, were the columns of one table turned at random, at which two count as related.
CHANCE = 1e-9
#: Relative distance below which sketches tell nothing: both are rounded to half precision, each by
#: at most 2**-11 / 3**0.5 (that of values just above a power of two).
PRECISION = 4e-4
#: Relative distance that rounding to a format makes at most, 2**-p / 3**0.5 of p significant bits.
ROUNDING: Mapping[str | None, float] = {"F16": 3e-4, "BF16": 2.4e-3, "F32": 4e-8}


def relate_sketches(
    distance: float,
    chance: float,
    formats: tuple[str | None, str | None],
    *,
    rows: int,
    whole: bool,
) -> Finding:
    """Name the relation of two tables from what their sketches tell.

    What rounds to another format adds to the rounding of sketches. Tables in one format have the
    same scale, so that what their sketches lose is the same.

    Parameters
    ----------
    distance, chance
        Relative distance, and the probability that a turn of the columns makes it as small.
    formats
        The coarsest that holds each table's values, by its name in safetensors.
    rows
        Positions that were compared; 0 for mean rows of equal parts.
    whole
        Whether these are all positions of both.
    """
    if chance > CHANCE:
        return Finding("values", "unrelated", value=distance)
    if not rows:
        return Finding("rows", "resized", value=distance)
    coarser = max(formats, key=lambda name: ROUNDING.get(name, 0.0))
    same = len(set(formats)) == 1
    if same and not whole and distance <= PRECISION:
        return Finding("values", "identical", value=distance)
    if distance <= ROUNDING.get(coarser, 0.0) + (0.0 if same else PRECISION):
        return Finding("values", "rounded", value=distance, more={"type": coarser})
    return Finding("values", "moved", value=distance)
