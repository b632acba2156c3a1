"""A learned table against the sinusoid of its shape.

Distances to the sinusoid, the share of the table that its ladder of frequencies spans, how many
freely chosen sinusoids the table amounts to, and the base of the ladder that resembles it most. All
of them are functions of the table's Gram matrix alone, so no rotation of the table changes them,
and neither does the position at which its first row stands.

Warning: smooth tables are near sinusoids without being made of any. A random walk reaches a CKA of
0.85 with the sinusoid, 0.99 of it lies within a wide ladder's span, and three sinusoids explain 0.9
of it. Only a comparison with such nulls says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np

from posprobe.analyses.base_fit import BaseFit, fit_base
from posprobe.analyses.closeness import Closeness, Cloud, Floats, closeness, cloud
from posprobe.analyses.facts import Number
from posprobe.analyses.ladder import ladder
from posprobe.analyses.pca import PCA
from posprobe.analyses.pursuit import Sinusoids, choose_sinusoids
from posprobe.analyses.result import HIDDEN, As, Result
from posprobe.arrays import Array, Positions, positions
from posprobe.encodings.tables import sincos2d
from posprobe.layouts import Grid, Layout
from posprobe.schema import Count, Natural, Reasons, Share, limits
from posprobe.tables import PositionTable

#: Fewest positions that are set against a sinusoid.
MIN_LENGTH = 8

#: Numbers that are undefined together.
_DISTANCES = (
    "reference",
    "cka",
    "cka_biased",
    "procrustes",
    "subspace_overlap",
    "subspace_rank",
    "subspace_chance",
)
_LADDER = ("ladder_share", "ladder_rank", "ladder_white_share")
_LINES = ("sinusoids", "sinusoids_for_90")
_BASE = ("base", "base_cka", "base_contrast", "base_rows")


@dataclass(frozen=True)
class FittedSinusoid:
    """One more freely chosen sinusoid."""

    period: Annotated[float, "Positions."]
    share: Annotated[float, "Of the variance, with those before it."]
    best_share: Annotated[float, "What so many directions of any shape explain."]


def _listed(fit: SinusoidFit) -> list[FittedSinusoid] | None:
    if (lines := fit.sinusoids) is None:
        return None
    numbers = zip(lines.periods, lines.share, fit.best_share, strict=True)
    return [FittedSinusoid(*each) for each in numbers]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SinusoidFit(Result):
    """A table beside the sinusoid of its shape; on a grid, beside the 2-D sin-cos.

    Parameters
    ----------
    layout
        Of the positions.
    points
        What waves are fitted to, on first use; None where none are.
    width
        Columns of the table.
    missing
        Reason for each distance and each number of the ladder that is None.
    reference
        The formula compared with.
    cka, cka_biased, procrustes, subspace_overlap
        Distances to the reference, see `posprobe.analyses.closeness`.
    subspace_rank
        Leading directions compared.
    subspace_chance
        Overlap of unrelated directions.
    ladder_share
        Share of the variance within the span of the sinusoid's columns. A wide ladder spans nearly
        every wave slower than its fastest, of 6.3 positions, so that any smooth table scores high.
    ladder_rank
        Dimensions of that span: directions in which the sinusoid varies by more than
        `posprobe.analyses.ladder.LADDER_CONDITION` of its widest.
    ladder_white_share
        What so many directions explain of white noise.
    """

    figures: ClassVar[str] = "fits.plot_sinusoid"

    layout: Annotated[Layout, HIDDEN]
    points: Annotated[Cloud | None, HIDDEN]
    width: Annotated[int, HIDDEN]
    missing: Annotated[Mapping[str, str], HIDDEN]
    reference: Annotated[str | None, "The formula compared with."] = None
    cka: Annotated[
        float | None,
        Number(
            "CKA with the sinusoid",
            "debiased centred kernel alignment; 1 is a rotated copy",
            compared=True,
        ),
    ] = None
    cka_biased: Share | None = None
    procrustes: Annotated[
        float | None,
        limits(minimum=0, maximum=1.4142136),
        Number("Procrustes distance", "0 is a rotated copy, 1.41 the maximum"),
    ] = None
    subspace_overlap: Annotated[
        Share | None, Number("subspace overlap", "of the leading directions; 1 is complete")
    ] = None
    subspace_rank: Annotated[Natural | None, "Leading directions compared."] = None
    subspace_chance: Annotated[Share | None, "Overlap of unrelated directions."] = None
    ladder_share: Annotated[
        Share | None,
        Number(
            "explained by the sinusoid",
            "share of the variance that the sinusoid's frequencies explain",
            compared=True,
        ),
    ] = None
    ladder_rank: Annotated[Count | None, "Dimensions of that span."] = None
    ladder_white_share: Annotated[
        float | None,
        Number(
            "explained, white noise",
            "share of the variance of white noise that so many waves explain",
        ),
    ] = None

    @cached_property
    def sinusoids(
        self,
    ) -> Annotated[Sinusoids | None, As(list[FittedSinusoid] | None, _listed)]:
        """The best 1, 2, 3 … freely chosen sinusoids; None where undefined."""
        return None if self.points is None else choose_sinusoids(self.points)

    @property
    def best_share(self) -> Floats:
        """``[k]``: share that the best directions of any shape explain, two for each sinusoid.

        An upper bound on what sinusoids can.
        """
        if self.points is None or self.sinusoids is None:
            return np.zeros(0)
        return _best_share(self.points, len(self.sinusoids.share))

    @cached_property
    def base(
        self,
    ) -> Annotated[
        BaseFit | None,
        As(float | None, lambda fit: fit.base and fit.base.base),
        Number("base", "of the geometric series of wavelengths that fits best"),
    ]:
        """The search for the ladder's base; None where undefined."""
        return None if self.points is None or self.width % 2 else fit_base(self.points, self.width)

    @property
    def undefined(self) -> Reasons:
        """Reason for each number that is None."""
        reasons = dict(self.missing)
        if (lines := self.sinusoids) is not None and lines.enough is None:
            reasons["sinusoids_for_90"] = (
                f"{len(lines.share)} sinusoids explain {lines.share[-1]:.2f}"
                if lines.share.size
                else "no sinusoid was found"
            )
        if self.base is not None and self.base.undefined:
            unknown = _BASE[:3] if self.base.best is None else _BASE[:1]
            reasons |= dict.fromkeys(unknown, self.base.undefined)
        return reasons

    @property
    def sinusoids_for_90(
        self,
    ) -> Annotated[
        Natural | None,
        Number(
            "sinusoids for 90 %",
            "freely chosen frequencies that explain 90 % of the variance",
            form="d",
        ),
    ]:
        """How many explain as much."""
        return self.sinusoids.enough if self.sinusoids else None

    @property
    def base_cka(self) -> Annotated[float | None, ""]:
        """The highest CKA that a base has."""
        return self.base.best if self.base else None

    @property
    def base_contrast(self) -> Annotated[float | None, ""]:
        """Of that base, see `BaseFit`."""
        return self.base.contrast if self.base else None

    @property
    def base_rows(self) -> Annotated[Natural | None, ""]:
        """Rows that were compared for it."""
        return self.base.rows if self.base else None


def against_sinusoid(
    table: PositionTable | Positions | Array, *, decomposition: PCA | None = None
) -> SinusoidFit:
    """Compare a table with the sinusoid of its shape.

    Parameters
    ----------
    table
        ``[n, d]``. The sinusoid has base 10 000 and exponents over d/2 (Vaswani et al. 2017); its
        order of columns does not matter. On a grid the 2-D sin-cos of the same shape takes its
        place, and what concerns one ladder of frequencies is undefined.
    decomposition
        The table's principal components, where they are known already: they save an SVD.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> fit = pp.analyses.against_sinusoid(pp.sinusoidal(64, 16))
    >>> print(f"{fit.cka:.2f}")
    1.00
    >>> print(f"{fit.ladder_share:.2f}")
    1.00
    """
    given = positions(table)
    n, d = given.values.shape
    points = cloud(given, decomposition=decomposition)
    why = ""
    if n < MIN_LENGTH:
        why = f"fewer than {MIN_LENGTH} positions"
    elif points.total == 0:
        why = "all rows are equal"
    if why:
        undefined = dict.fromkeys((*_DISTANCES, *_LADDER, *_LINES, *_BASE), why)
        return SinusoidFit(layout=given.layout, points=None, width=d, missing=undefined)
    if isinstance(given.layout, Grid):
        return _on_grid(points, given.layout, d)
    return _on_line(points, given.layout, d)


def _on_line(points: Cloud, layout: Layout, d: int) -> SinusoidFit:
    n = len(points)
    if d % 2:
        why = f"the sinusoid has no table of odd width {d}"
        missing = dict.fromkeys((*_DISTANCES, *_LADDER, *_BASE), why)
        return SinusoidFit(layout=layout, points=points, width=d, missing=missing)
    rungs = ladder(n, d)
    near = closeness(points, rungs.cloud)
    missing = _undefined_distances(near)
    if rungs.spans_all:
        missing["ladder_share"] = "the ladder spans every table of this length"
    return SinusoidFit(
        layout=layout,
        points=points,
        width=d,
        missing=missing,
        reference=f"sinusoidal:{n}x{d}",
        **_distances(near, n),
        ladder_share=None if rungs.spans_all else rungs.share(points),
        ladder_rank=rungs.rank,
        ladder_white_share=rungs.white_share,
    )


def _on_grid(points: Cloud, layout: Grid, d: int) -> SinusoidFit:
    missing = dict.fromkeys(
        (*_LADDER, *_LINES, *_BASE), "one ladder of frequencies does not describe a grid"
    )
    if d % 4:
        why = f"the 2-D sin-cos has no table of width {d}, which is no multiple of 4"
        missing |= dict.fromkeys(_DISTANCES, why)
        return SinusoidFit(layout=layout, points=None, width=d, missing=missing)
    near = closeness(points, _grid_cloud(layout.height, layout.width, d))
    return SinusoidFit(
        layout=layout,
        points=None,
        width=d,
        missing=missing | _undefined_distances(near),
        reference=f"sincos2d:{layout.height}x{layout.width}x{d}",
        **_distances(near, layout.size),
    )


@lru_cache(maxsize=4)
def _grid_cloud(height: int, width: int, d: int) -> Cloud:
    return cloud(sincos2d(height, width, d))


def _best_share(points: Cloud, count: int) -> Floats:
    """Return the share that the best 2, 4, 6 … directions of any shape explain: ``[count]``."""
    share = np.cumsum(points.directions[1] ** 2) / points.total
    last = np.minimum(2 * np.arange(1, count + 1), len(share)) - 1
    return np.asarray(np.minimum(share[last], 1.0))


def _distances(near: Closeness, n: int) -> dict[str, Any]:
    rank = near.subspace_rank or None
    return {
        "cka": near.cka,
        "cka_biased": near.cka_biased,
        "procrustes": near.procrustes,
        "subspace_overlap": near.subspace_overlap,
        "subspace_rank": rank,
        "subspace_chance": rank and rank / (n - 1),
    }


def _undefined_distances(near: Closeness) -> dict[str, str]:
    undefined = dict(near.undefined)
    if "subspace_overlap" in undefined:
        undefined["subspace_rank"] = undefined["subspace_chance"] = undefined["subspace_overlap"]
    return undefined
