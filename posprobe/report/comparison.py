"""Two or more tables side by side: the same analyses at one length, and their distances."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import PCA, Result, Similarity, Spectrum
from posprobe.analyses.closeness import Closeness, cka, closeness, cloud
from posprobe.analyses.stationary import fit_process
from posprobe.arrays import Device
from posprobe.errors import InvalidTable, UsageError
from posprobe.nulls import NULLS, band, curves, null_models, surrogate
from posprobe.report.analysis import DRAWS, Analysis, analyze, environment
from posprobe.report.comparison_page import comparison_page
from posprobe.report.notebook import fragment
from posprobe.report.published import published_for
from posprobe.report.stored import COMPARISON
from posprobe.report.verdict import shared
from posprobe.table import Grid, PositionTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.documents import (
        BandBlock,
        ComparedTable,
        ComparisonDocument,
        EnvironmentBlock,
        PairBlock,
    )

_R = TypeVar("_R", bound=Result)

#: By null model, 5, 50 and 95 % of a number.
PairBand: TypeAlias = "dict[str, BandBlock | None]"

#: Distances shown as matrices.
DISTANCES = ("cka", "procrustes", "subspace_overlap")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Tables of one length with their analyses and distances.

    Parameters
    ----------
    labels
        A name for each table, all different.
    analyses
        One for each table, of the common positions.
    cut
        Positions that each table had before it was cut.
    distances
        ``[m][m]``; None on the diagonal.
    bands
        ``[m][m]``: by null model, the debiased CKA of a surrogate of the one with a surrogate of
        the other, None where undefined; None on the diagonal, or without draws.
    curve_bands
        By curve (``profile``, ``spectrum``, ``variance``): 5 and 95 % of a random walk with the
        first table's steps.
    environment
        Versions, device, seed, command and time.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.counting(32, 8), nulls=0)
    >>> len(comparison.analyses), comparison.distances[0][0]
    (2, None)
    """

    labels: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    cut: tuple[int, ...]
    distances: tuple[tuple[Closeness | None, ...], ...]
    bands: tuple[tuple[PairBand | None, ...], ...]
    curve_bands: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
    environment: EnvironmentBlock

    def to_dict(self) -> ComparisonDocument:
        """Return the content of ``analysis.json`` (schema `posprobe.comparison/1`)."""
        tables: list[ComparedTable] = []
        for label, analysis, before in zip(self.labels, self.analyses, self.cut, strict=True):
            document = analysis.to_dict()
            del document["schema"]
            table: Any = {
                "label": label,
                "positions_before": before,
                "published": [value.compared(document) for value in published_for(analysis.table)],
            }
            tables.append(table | document)
        pairs: list[PairBlock] = [
            {
                "tables": [self.labels[i], self.labels[j]],
                **distance.summary(),
                "nulls": self.bands[i][j],
            }
            for i, row in enumerate(self.distances)
            for j, distance in enumerate(row)
            if i < j and distance is not None
        ]
        return {
            "schema": COMPARISON,
            "length": len(self.analyses[0].table),
            "tables": tables,
            "pairs": pairs,
            "verdict": shared(self.labels, [table["verdict"] for table in tables]),
            "environment": self.environment,
        }

    def matrix(self, name: str) -> NDArray[np.float64]:
        """Return one kind of distance as ``[m, m]``, NaN on the diagonal and where undefined."""
        return np.array(
            [
                [np.nan if d is None or getattr(d, name) is None else getattr(d, name) for d in row]
                for row in self.distances
            ],
            dtype=np.float64,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: every table's arrays under its number."""
        arrays = {name: self.matrix(name) for name in DISTANCES}
        for index, analysis in enumerate(self.analyses):
            arrays |= {f"{index}_{name}": array for name, array in analysis.arrays().items()}
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures import report_figures
        from posprobe.figures.comparison import FIGURES
        from posprobe.figures.sheet import REPORT
        from posprobe.figures.styles import printable

        alike = self._results("similarity", Similarity)
        references = {
            "bands": self.curve_bands,
            "spectra": printable(self._results("spectrum", Spectrum)),
            "distances": {name: self.matrix(name) for name in DISTANCES},
        }
        figures = report_figures(alike, ("similarity",))
        figures |= report_figures(self._results("pca", PCA), ("variance",), references)
        on_grid = isinstance(self.analyses[0].table.layout, Grid)
        for name in ("distances",) if on_grid else ("distances", "curves"):
            figures[name] = partial(FIGURES[name], REPORT, printable(alike), references)
        return figures

    def _results(self, name: str, kind: type[_R]) -> dict[str, _R]:
        results = zip(self.labels, (a.results.get(name) for a in self.analyses), strict=True)
        return {label: result for label, result in results if isinstance(result, kind)}

    def save(self, folder: str | Path) -> Path:
        """Write the bundle: data, figures and report. Return its folder.

        Raises
        ------
        OutputError
            If the folder cannot be written, or holds something else.
        """
        from posprobe.report.bundle import write_bundle

        return write_bundle(self, Path(folder))

    def _repr_html_(self) -> str:
        return fragment(comparison_page(self.to_dict()))


def compare(
    *tables: PositionTable,
    nulls: int = DRAWS,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
) -> Comparison:
    """Compare tables over the positions that all of them have.

    Longer sequences are cut to the shortest, from their first row; nothing is resampled. Grids
    must be equal.

    Parameters
    ----------
    tables
        Two or more.
    nulls
        Draws of every null model.
    device, seed, command
        As for `analyze`.

    Raises
    ------
    UsageError
        If there are fewer than two tables, or grids that differ, or grids beside sequences.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.counting(32, 8), nulls=0)
    >>> comparison.labels
    ('sinusoidal:32x8', 'counting:32x8')
    >>> print(f"{comparison.distances[0][1].cka:.2f}")
    0.56
    """
    if len(tables) < 2:
        raise UsageError("a comparison needs at least two tables.")
    cut = common(tables)
    analyses = tuple(
        analyze(
            table,
            # The published values are those of the probes.
            only=("all",) if published_for(table) else None,
            nulls=nulls,
            device=device,
            seed=seed,
            command=command,
        )
        for table in cut
    )
    clouds = [cloud(np.asarray(table.values, dtype=np.float64)) for table in cut]
    pairs: dict[tuple[int, int], tuple[Closeness, PairBand | None]] = {}
    for i in range(len(cut)):
        for j in range(i + 1, len(cut)):
            pairs[i, j] = closeness(clouds[i], clouds[j]), _pair_band(cut[i], cut[j], nulls, seed)
            pairs[j, i] = pairs[i, j]
    size = range(len(cut))
    return Comparison(
        labels=distinct([table.name for table in cut]),
        analyses=analyses,
        cut=tuple(len(table) for table in tables),
        distances=tuple(tuple(pairs[i, j][0] if i != j else None for j in size) for i in size),
        bands=tuple(tuple(pairs[i, j][1] if i != j else None for j in size) for i in size),
        curve_bands=curves(cut[0], nulls, seed) if nulls else {},
        environment=environment(analyses[0].environment["device"], seed, command),
    )


def common(tables: Sequence[PositionTable]) -> tuple[PositionTable, ...]:
    """Cut tables to the positions that all of them have, from their first row.

    Raises
    ------
    UsageError
        If there are grids that differ, or grids beside sequences.
    """
    layouts = {table.layout for table in tables if isinstance(table.layout, Grid)}
    if layouts and (len(layouts) > 1 or any(t.layout not in layouts for t in tables)):
        shapes = ", ".join(f"{table.name} is a {table.layout}" for table in tables)
        raise UsageError(
            f"{shapes}: positions on a grid compare only with the same grid. Nothing is resampled."
        )
    length = min(len(table) for table in tables)
    return tuple(table if len(table) == length else table[:length] for table in tables)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Make names all different: equal ones are numbered."""
    labels: list[str] = []
    for name in names:
        numbered = (f"{name} ({k})" for k in count(1))
        free = (label for label in numbered if label not in labels and label not in names)
        labels.append(name if names.count(name) == 1 else next(free))
    return tuple(labels)


def _pair_band(x: PositionTable, y: PositionTable, draws: int, seed: int) -> PairBand | None:
    """Compute the CKA of surrogates of both tables, the same for either order of the pair."""
    if not draws:
        return None
    scaled = [
        np.asarray(t.values, dtype=np.float64) / (float(np.abs(t.values).max()) or 1.0)
        for t in sorted((x, y), key=_fingerprint)
    ]
    found: PairBand = {}
    models = null_models(x.layout)
    fitted = [fit_process(v, x.layout) for v in scaled]
    for index, name in enumerate(NULLS):
        values = []
        for draw in range(draws if name in models else 0):
            both = [
                surrogate(
                    v,
                    name,
                    np.random.default_rng([seed, index, draw, side]),
                    x.layout,
                    fitted[side],
                )
                for side, v in enumerate(scaled)
            ]
            values.append(_cka(both[0], both[1]))
        found[name] = band(values)
    return found


def _cka(x: NDArray[np.float32], y: NDArray[np.float32]) -> float | None:
    try:
        return cka(x.astype(np.float64), y.astype(np.float64))
    except InvalidTable:  # a surrogate of equal rows, or of fewer than four
        return None


def _fingerprint(table: PositionTable) -> tuple[int, int]:
    return zlib.crc32(np.ascontiguousarray(table.values).tobytes()), table.dim
