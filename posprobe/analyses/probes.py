"""Probes: whether a linear model can read a row's position, or which of two rows comes first.

Two pairs stand side by side. The published pair measures how well rows can be interpolated from
their neighbours, see `posprobe.analyses.probes_published`. The sound pair holds out whole blocks of
positions, or positions that no training pair contains, see `posprobe.analyses.probes_held_out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from threadpoolctl import threadpool_limits

from posprobe.analyses.probes_held_out import (
    AbsoluteProbe,
    OrderProbe,
    absolute_probe,
    order_probe,
)
from posprobe.analyses.probes_published import (
    PublishedAbsolute,
    PublishedOrder,
    absolute_probe_published,
    order_probe_published,
)
from posprobe.analyses.probing import check_seeds, why_not_probed
from posprobe.analyses.result import As, Part, Result
from posprobe.arrays import Array, Positions, positions
from posprobe.schema import Reasons
from posprobe.tables import PositionTable


@dataclass(frozen=True, eq=False, repr=False)
class Probes(Result):
    """Both probes, as published and sound.

    Parameters
    ----------
    absolute_published, order_published
        As Wang & Chen 2020 coded them; None where undefined.
    absolute_blocked, order_disjoint
        With positions held out that training never saw; None where undefined.
    undefined
        Reason why there are no probes, or empty.
    """

    figures: ClassVar[str] = "fits.plot_probes"

    absolute_published: Annotated[PublishedAbsolute | None, Part()] = None
    absolute_blocked: Annotated[AbsoluteProbe | None, Part()] = None
    order_published: Annotated[PublishedOrder | None, Part()] = None
    order_disjoint: Annotated[OrderProbe | None, Part()] = None
    undefined: Annotated[str, As(Reasons)] = ""


def probes(table: PositionTable | Positions | Array, *, seed: int = 0, seeds: int = 10) -> Probes:
    """Run both probes, as published and sound.

    A published number close to zero shows that rows can be interpolated, not that the table encodes
    position: read it beside the sound one and its chance level.

    Parameters
    ----------
    table
        ``[n, d]``. The published pair takes its first `PUBLISHED_ROWS` rows, the sound pair all.
    seed
        Of every random draw.
    seeds
        Repetitions of the published pair; the sound order probe takes a third as many.

    Returns
    -------
    Probes
        Undefined, with the reason, for a grid, for fewer than `MIN_ROWS` rows and for a table whose
        rows are all equal or too large or small for single precision.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.
    ValueError
        If ``seeds`` is not positive.

    Examples
    --------
    A table that is too short for held-out positions says so:

    >>> import posprobe as pp
    >>> pp.analyses.probes(pp.sinusoidal(8, 4)).undefined
    'fewer than 32 positions'
    """
    given = positions(table)
    check_seeds(seeds)
    why = why_not_probed(given)
    if why:
        return Probes(undefined=why)
    # Many small fits lose up to a factor of ten to threads that wait for each other.
    with threadpool_limits(1, "blas"):
        return Probes(
            absolute_published=absolute_probe_published(given, seeds=seeds, seed=seed),
            absolute_blocked=absolute_probe(given, seed=seed),
            order_published=order_probe_published(given, seeds=seeds, seed=seed),
            order_disjoint=order_probe(given, seeds=max(1, seeds // 3), seed=seed),
        )
