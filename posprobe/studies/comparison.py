"""Position tables side by side: analyses, distances, and what others have published of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import PCA, Similarity, Spectrum
from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.descriptive.closeness import Closeness, cka, closeness, cloud
from posprobe.analyses.result import as_block
from posprobe.arrays import Array, Device, Floats
from posprobe.blocks import PairBlock, environment
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid
from posprobe.nulls import DRAWS, NULLS, band, draw_rows, null_models
from posprobe.progress import stage
from posprobe.report.document import shared_block
from posprobe.report.files import COMPARISON
from posprobe.report.saved import Saved
from posprobe.schemes import Scheme
from posprobe.studies.published import find_published
from posprobe.studies.table import Analysis, analyze, select_results
from posprobe.tables import PositionTable, table as as_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.blocks import BandBlock, EnvironmentBlock


_Record = TypeVar("_Record", bound=PositionTable | Scheme)

#: By null model, 5, 50 and 95 % of a number.
PairBand: TypeAlias = "dict[str, BandBlock | None]"

#: Distances shown as matrices.
DISTANCE_NUMBERS = ("cka", "procrustes", "subspace_overlap")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Saved):
    """Tables with their analyses and distances.

    Parameters
    ----------
    labels
        A name for each table, all different.
    analyses
        One for each table, of all its positions.
    length
        Positions of the shortest table: over the first so many, distances are taken.
    distances
        Distances by the numbers of both tables, the smaller number first.
    bands
        Null bands of the debiased CKA of the same pairs, by null model: of a surrogate of the one
        with a surrogate of the other. None where undefined, or where there is no distance.
    environment
        Versions, device, seed, command and time.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.encodings.counting(32, 8), nulls=0)
    >>> len(comparison.analyses), list(comparison.distances)
    (2, [(0, 1)])
    """

    labels: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    length: int
    distances: Mapping[tuple[int, int], Closeness]
    bands: Mapping[tuple[int, int], PairBand | None]
    environment: EnvironmentBlock

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.comparison/2`)."""
        tables = []
        for label, analysis in zip(self.labels, self.analyses, strict=True):
            table_document = analysis.to_dict()
            del table_document["schema"]
            published = [value.compared(table_document) for value in find_published(analysis.table)]
            tables.append({"label": label, "published": published, **table_document})
        pairs = [
            PairBlock(
                **vars(distance),
                tables=[self.labels[i], self.labels[j]],
                nulls=self.bands[i, j],
            )
            for (i, j), distance in self.distances.items()
        ]
        document = {
            "schema": COMPARISON,
            "length": self.length,
            "tables": tables,
            "pairs": [as_block(pair) for pair in pairs],
            "environment": self.environment,
        }
        answers = {label: a.answers for label, a in zip(self.labels, self.analyses, strict=True)}
        if all(answers.values()):
            document["verdict"] = shared_block(answers)
        return document

    def matrix(self, name: str) -> Floats:
        """Return one kind of distance as ``[m, m]``, NaN on the diagonal and where undefined."""
        distances = np.full((len(self.labels), len(self.labels)), np.nan)
        for (i, j), distance in self.distances.items():
            value = getattr(distance, name)
            distances[i, j] = distances[j, i] = np.nan if value is None else value
        return distances

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: every table's arrays under its number."""
        arrays = {name: self.matrix(name) for name in DISTANCE_NUMBERS}
        for index, analysis in enumerate(self.analyses):
            arrays |= {f"{index}_{name}": array for name, array in analysis.arrays().items()}
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures import report_figures
        from posprobe.figures.common import REPORT
        from posprobe.figures.comparison import curves_figure, distances_figure
        from posprobe.figures.styles import make_labels_printable

        results_by_label = dict(
            zip(self.labels, (analysis.results for analysis in self.analyses), strict=True)
        )
        similarities = select_results(results_by_label, "similarity", Similarity)
        spectra = select_results(results_by_label, "spectrum", Spectrum)
        # Curves over offset and over frequency are of positions on a line.
        lines = {
            name: result
            for name, result in similarities.items()
            if name in spectra and not isinstance(result.layout, Grid)
        }
        references = {
            "spectra": make_labels_printable({name: spectra[name] for name in lines}),
            "distances": {name: self.matrix(name) for name in DISTANCE_NUMBERS},
        }
        figures = report_figures(similarities, ("similarity",)) if similarities else {}
        if components := select_results(results_by_label, "pca", PCA):
            figures |= report_figures(components, ("variance",), references)
        labels = dict.fromkeys(self.labels)
        figures["distances"] = partial(
            distances_figure, REPORT, make_labels_printable(labels), references
        )
        if lines:
            figures["curves"] = partial(
                curves_figure, REPORT, make_labels_printable(lines), references
            )
        return figures

    def _of(self) -> str:
        return " and ".join(
            f"{label!r} ({analysis.table.layout}, dim={analysis.table.dim})"
            for label, analysis in zip(self.labels, self.analyses, strict=True)
        )


def compare(
    *tables: PositionTable | Array,
    labels: Sequence[str] | None = None,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
) -> Comparison:
    """Compare tables: the numbers of each, and the distances between them.

    Numbers and answers are given for each table as a whole. Distances are taken over the positions
    that sequences share, or between equal grids. A grid has no distance from a sequence.

    Parameters
    ----------
    tables
        Two or more tables, arrays or torch parameters, as `posprobe.table` takes them.
    labels
        One name for each; None keeps their own.
    only
        Measurements, as for `analyze`.
    nulls
        Random tables drawn per baseline; of each pair at least so many as a band needs are drawn.
    device, seed, command
        Same as for `analyze`.

    Raises
    ------
    UsageError
        If there are fewer than two tables, or not as many labels.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.encodings.counting(32, 8), nulls=0)
    >>> comparison.labels
    ('sinusoidal:32x8', 'counting:32x8')
    >>> print(f"{comparison.distances[0, 1].cka:.2f}")
    0.56
    """
    if len(tables) < 2:
        raise UsageError(
            "a comparison needs at least two tables. Name another, such as sinusoidal."
        )
    tables = apply_labels(tuple(map(as_table, tables)), labels)
    analyses = tuple(
        analyze(table, only=only, nulls=nulls, device=device, seed=seed, command=command)
        for table in tables
    )
    length = min(len(table) for table in tables)
    sequence_length = min(
        (len(table) for table in tables if not isinstance(table.layout, Grid)), default=0
    )
    shared_tables = [
        table
        if isinstance(table.layout, Grid) or len(table) == sequence_length
        else table[:sequence_length]
        for table in tables
    ]
    clouds = [cloud(np.asarray(table.values, dtype=np.float64)) for table in shared_tables]
    distances: dict[tuple[int, int], Closeness] = {}
    bands: dict[tuple[int, int], PairBand | None] = {}
    with stage("Distances", len(shared_tables) * (len(shared_tables) - 1) // 2) as advance:
        for i, j in combinations(range(len(shared_tables)), 2):
            if shared_tables[i].layout == shared_tables[j].layout:
                distances[i, j] = closeness(clouds[i], clouds[j])
                bands[i, j] = _pair_band(
                    shared_tables[i], shared_tables[j], max(nulls, DRAWS), seed
                )
            else:
                distances[i, j], bands[i, j] = (
                    _undefined_closeness(shared_tables[i], shared_tables[j]),
                    None,
                )
            advance(1)
    return Comparison(
        labels=make_names_unique([table.name for table in tables]),
        analyses=analyses,
        length=length,
        distances=distances,
        bands=bands,
        environment=environment(analyses[0].environment["device"], seed, command),
    )


def _undefined_closeness(x: PositionTable, y: PositionTable) -> Closeness:
    """Say why tables whose positions do not correspond have no distance."""
    reason = f"a {x.layout} and a {y.layout}: no positions in common"
    numbers = ("cka", "cka_biased", "procrustes", "subspace_overlap")
    return Closeness(None, None, None, None, 0, dict.fromkeys(numbers, reason))


def apply_labels(records: Sequence[_Record], labels: Sequence[str] | None) -> tuple[_Record, ...]:
    """Call records by labels, one for each; without labels they keep their names.

    Raises
    ------
    UsageError
        If there are more or fewer labels than records, or one of them is empty or no text.
    """
    if labels is None:
        return tuple(records)
    is_valid = not isinstance(labels, str) and all(
        isinstance(label, str) and label for label in labels
    )
    if not is_valid or len(labels) != len(records):
        raise UsageError(
            f"{len(records)} encodings need a list of as many labels, texts that are not empty."
        )
    return tuple(replace(record, name=label) for record, label in zip(records, labels, strict=True))


def make_names_unique(names: Sequence[str]) -> tuple[str, ...]:
    """Make names all different: equal ones are numbered."""
    labels: list[str] = []
    for name in names:
        numbered = (f"{name} ({k})" for k in count(1))
        free = (label for label in numbered if label not in labels and label not in names)
        labels.append(name if names.count(name) == 1 else next(free))
    return tuple(labels)


def _pair_band(x: PositionTable, y: PositionTable, draws: int, seed: int) -> PairBand:
    """Compute the CKA of surrogates of both tables, the same for either order of the pair."""
    table_pair = sorted((x, y), key=_table_order)
    scaled = [
        np.asarray(t.values, dtype=np.float64) / (float(np.abs(t.values).max()) or 1.0)
        for t in table_pair
    ]
    fitted = [fit_process(values, x.layout) for values in scaled]
    bands: PairBand = {}
    for index, name in enumerate(NULLS):
        values = []
        for draw in range(draws if name in null_models(x.layout) else 0):
            surrogates = [
                draw_rows(
                    values_scaled,
                    name,
                    np.random.default_rng([seed, index, draw, side]),
                    x.layout,
                    fit,
                )
                for side, (values_scaled, fit) in enumerate(zip(scaled, fitted, strict=True))
            ]
            values.append(_cka_or_none(*surrogates))
        bands[name] = band(values)
    return bands


def _cka_or_none(x: NDArray[np.float32], y: NDArray[np.float32]) -> float | None:
    try:
        return cka(x.astype(np.float64), y.astype(np.float64))
    except InvalidTable:  # a surrogate of equal rows, or of fewer than four
        return None


def _table_order(table: PositionTable) -> tuple[int, int]:
    return zlib.crc32(np.ascontiguousarray(table.values).tobytes()), table.dim
