"""Comparison of position tables: analyses, distances, and published values of each table."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import PCA, Similarity, Spectrum
from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.descriptive.closeness import (
    Closeness,
    cka,
    closeness,
    prepare_cloud,
)
from posprobe.analyses.facts import Answers
from posprobe.analyses.result import as_block
from posprobe.arrays import Array, Device, Floats
from posprobe.blocks import PairBlock, describe_environment
from posprobe.encodings import FORMULAS, build_formula_in_shape
from posprobe.errors import InvalidTable, UsageError
from posprobe.families.read import load_any
from posprobe.layouts import Grid, check_no_video
from posprobe.nulls import NULL_MODELS, draw_rows, null_band, null_models, surrogate
from posprobe.progress import stage
from posprobe.report.document import shared_block
from posprobe.report.files import COMPARISON_SCHEMA, path_exists
from posprobe.report.saved import Saveable
from posprobe.schemes import Encoding, Scheme
from posprobe.studies.published import find_published
from posprobe.studies.table import Analysis, analyze, select_results
from posprobe.tables import PositionTable, table as as_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.blocks import BandBlock, EnvironmentBlock
    from posprobe.studies.kernels import KernelComparison


#: Record with a name.
_Record = TypeVar("_Record", bound=Any)
_Measured = TypeVar("_Measured")

#: Null band of a number, with its 5, 50 and 95 % quantiles, by null model.
PairBand: TypeAlias = "dict[str, BandBlock | None]"

#: Distances shown as matrices.
DISTANCE_NUMBERS = ("cka", "procrustes", "subspace_overlap")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairwiseComparison(Saveable):
    """Labelled encodings, what is measured of each, and numbers of each pair.

    Parameters
    ----------
    labels
        Names of the encodings, all different.
    environment
        Versions, device, seed, command and time.
    """

    #: Numbers of pairs that are shown as matrices.
    pair_numbers: ClassVar[tuple[str, ...]]

    labels: tuple[str, ...]
    environment: EnvironmentBlock

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json``."""
        indices = range(len(self.labels))
        encodings = [self._encoding_block(index) for index in indices]
        pairs = [self._pair_block(i, j) for i, j in combinations(indices, 2)]
        return self._document(encodings, pairs)

    def _encoding_block(self, index: int) -> dict[str, Any]:
        """Return the block of one encoding."""
        raise NotImplementedError

    def _pair_block(self, i: int, j: int) -> dict[str, Any]:
        """Return the block of one pair, with ``i`` below ``j``."""
        raise NotImplementedError

    def _document(
        self, encodings: list[dict[str, Any]], pairs: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the document that consists of these blocks."""
        raise NotImplementedError

    def matrix(self, name: str) -> Floats:
        """Return one number of all pairs as ``[m, m]``, NaN on the diagonal and where undefined."""
        raise NotImplementedError

    def _matrices(self) -> dict[str, Floats]:
        return {name: self.matrix(name) for name in self.pair_numbers}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: the arrays of each encoding under its number."""
        arrays: dict[str, NDArray[Any]] = dict(self._matrices())
        for index in range(len(self.labels)):
            encoding_arrays = self._encoding_arrays(index)
            arrays |= {
                f"{index}_{name}": array for name, array in encoding_arrays.items()
            }
        return arrays

    def _encoding_arrays(self, index: int) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of one encoding by name."""
        raise NotImplementedError

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the bundle's figures by name."""
        return self._figures({"distances": self._matrices()})

    def _figures(self, extras: dict[str, Any]) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the figures, with the matrices among ``extras``."""
        raise NotImplementedError

    def _subject_name(self) -> str:
        return " and ".join(map(self._describe, range(len(self.labels))))

    def _describe(self, index: int) -> str:
        return repr(self.labels[index])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Comparison(PairwiseComparison):
    """Tables with their analyses and distances.

    Parameters
    ----------
    labels
        Names of the tables, all different.
    analyses
        Analysis of each table, with all its positions.
    length
        Number of positions of the shortest table, over which distances are taken.
    distances
        Distances by the numbers of both tables, the smaller number first.
    bands
        Null bands of the debiased CKA of the same pairs, by null model, between surrogates of both
        tables. None where nothing was drawn, or where the pair has no distance.
    environment
        Versions, device, seed, command and time.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.encodings.counting(32, 8), nulls=0)
    >>> len(comparison.analyses), list(comparison.distances)
    (2, [(0, 1)])
    """

    pair_numbers = DISTANCE_NUMBERS

    analyses: tuple[Analysis, ...]
    length: int
    distances: Mapping[tuple[int, int], Closeness]
    bands: Mapping[tuple[int, int], PairBand | None]

    def _encoding_block(self, index: int) -> dict[str, Any]:
        analysis = self.analyses[index]
        document = analysis.to_dict()
        del document["schema"]
        published = [value.compared(document) for value in find_published(analysis.table)]
        return {"label": self.labels[index], "published": published, **document}

    def _pair_block(self, i: int, j: int) -> dict[str, Any]:
        labels = [self.labels[i], self.labels[j]]
        return as_block(
            PairBlock(**vars(self.distances[i, j]), tables=labels, nulls=self.bands[i, j])
        )

    def _document(
        self, encodings: list[dict[str, Any]], pairs: list[dict[str, Any]]
    ) -> dict[str, Any]:
        document = {
            "schema": COMPARISON_SCHEMA,
            "length": self.length,
            "tables": encodings,
            "pairs": pairs,
            "environment": self.environment,
        }
        answers = self.answers
        if all(answers.values()):
            document["verdict"] = shared_block(answers)
        return document

    @property
    def answers(self) -> dict[str, Answers]:
        """The answers about each table by its label, without any where none were asked for.

        Examples
        --------
        >>> import posprobe as pp
        >>> comparison = pp.compare(pp.sinusoidal(64, 8), "walk", nulls=0)
        >>> comparison.answers["walk"]["closed_form"].answer
        'no'
        """
        return {
            label: analysis.answers
            for label, analysis in zip(self.labels, self.analyses, strict=True)
        }

    def matrix(self, name: str) -> Floats:
        """Return one kind of distance as ``[m, m]``, NaN on the diagonal and where undefined."""
        numbers = {
            pair: getattr(distance, name) for pair, distance in self.distances.items()
        }
        return symmetric_matrix(len(self.labels), numbers)

    def _encoding_arrays(self, index: int) -> Mapping[str, NDArray[Any]]:
        return self.analyses[index].arrays()

    def _figures(self, extras: dict[str, Any]) -> dict[str, Callable[[], Figure]]:
        from posprobe.figures import report_figures
        from posprobe.figures.common import REPORT
        from posprobe.figures.comparison import curves_figure, distances_figure
        from posprobe.figures.styles import make_labels_printable

        results = [analysis.results for analysis in self.analyses]
        results_by_label = dict(zip(self.labels, results, strict=True))
        similarities = select_results(results_by_label, "similarity", Similarity)
        spectra = select_results(results_by_label, "spectrum", Spectrum)
        # Curves over offset and over frequency exist only for positions on a line.
        sequences = {
            name: result
            for name, result in similarities.items()
            if name in spectra and not isinstance(result.layout, Grid)
        }
        extras["spectra"] = make_labels_printable(
            {name: spectra[name] for name in sequences}
        )
        figures = report_figures(similarities, ("similarity",)) if similarities else {}
        if components := select_results(results_by_label, "pca", PCA):
            figures |= report_figures(components, ("variance",), extras)
        labels = make_labels_printable(dict.fromkeys(self.labels))
        figures["distances"] = partial(distances_figure, REPORT, labels, extras)
        if sequences:
            results_on_lines = make_labels_printable(sequences)
            figures["curves"] = partial(curves_figure, REPORT, results_on_lines, extras)
        return figures

    def _describe(self, index: int) -> str:
        table = self.analyses[index].table
        return f"{self.labels[index]!r} ({table.layout}, dim={table.dim})"


def compare_any(
    *records: PositionTable | Scheme,
    rows: slice | None = None,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
) -> Comparison | KernelComparison:
    """Compare tables with `compare`, or any encodings with `compare_kernels`.

    Parameters
    ----------
    records
        Two or more encodings, of which the tables hold only the rows to compare.
    rows
        Rows ``slice(0, N)`` that state the length at which schemes are compared.
    only, nulls, device
        Options as for `compare`; they apply if all records are tables.
    seed, command
        Options as for `compare`.

    Raises
    ------
    UsageError
        As `compare` and `compare_kernels`; also if ``only`` is given with a scheme.
    """
    tables = [record for record in records if isinstance(record, PositionTable)]
    if len(tables) == len(records):
        return compare(
            *tables, only=only, nulls=nulls, device=device, seed=seed, command=command
        )
    from posprobe.studies.checkpoint import scheme_length
    from posprobe.studies.kernels import compare_kernels

    length = scheme_length(rows)
    if only is not None:
        raise UsageError(
            "`only` chooses analyses of tables, and not all of these are tables."
        )
    return compare_kernels(*records, length=length, seed=seed, command=command)


def generate_in_shape(
    reference: str, first_record: Encoding, seed: int
) -> PositionTable | None:
    """Return the null model or formula that a reference without sizes names; None for another.

    Parameters
    ----------
    reference
        Name of a null model, or of a formula without sizes.
    first_record
        Table that gives the shape, and from which the null model is drawn.
    seed
        Seed of the draw.
    """
    if not isinstance(first_record, PositionTable):
        return None
    if reference in NULL_MODELS and not path_exists(Path(reference)):
        return surrogate(first_record, reference, seed)
    return build_formula_in_shape(reference, first_record)


def check_has_shape(reference: str) -> None:
    """Refuse a formula without sizes where there is no table before it that gives them.

    Raises
    ------
    UsageError
        If it is one.
    """
    formula = reference.partition(",")[0]
    if formula in FORMULAS and not path_exists(Path(reference)):
        raise UsageError(
            f"{reference}: alone it takes the first table's shape, so it "
            "cannot be the first. Put it after a table, or name its sizes: "
            f"{formula}:{'x'.join(FORMULAS[formula].sizes)}."
        )


def load_references(records: Iterable[Any], seed: int = 0) -> tuple[Any, ...]:
    """Load the references among records, as `posprobe compare` does; others stay as they are.

    A formula without sizes takes the shape of the first table, and a null model is drawn from it.

    Parameters
    ----------
    records
        Encodings, arrays, and references.
    seed
        Seed of null models.

    Raises
    ------
    PosprobeError
        As `posprobe.load` and `posprobe.load_schemes`.
    """
    loaded: list[Any] = []
    for record in records:
        if not isinstance(record, str | PathLike):
            loaded.append(record)
            continue
        reference = fspath(record)
        if not loaded:
            check_has_shape(reference)
        elif not isinstance(loaded[0], Scheme):
            loaded[0] = as_table(loaded[0])
        generated = generate_in_shape(reference, loaded[0], seed) if loaded else None
        encoding = generated or load_any(reference)
        loaded += name_schemes(encoding, Path(reference).name)
    return tuple(loaded)


def name_schemes(
    loaded: PositionTable | tuple[Scheme, ...], label: str
) -> tuple[Encoding, ...]:
    """Return a table, or schemes that are named after their checkpoint if there are several."""
    if isinstance(loaded, PositionTable):
        return (loaded,)
    if len(loaded) == 1:
        return loaded
    return tuple(replace(scheme, name=f"{label}#{scheme.name}") for scheme in loaded)


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
        Two or more tables, arrays or torch parameters, as `posprobe.table` takes them, or
        references. A formula without sizes, such as ``sinusoidal``, takes the shape of the first
        table, and a null model such as ``walk`` is drawn from it.
    labels
        Names of the tables, one for each; None keeps their own.
    only
        Names of the measurements, as for `analyze`.
    nulls
        Number of random tables per baseline, of each table and of each pair; without them the
        similarity of a pair is not compared with chance.
    device, seed, command
        Options as for `analyze`.

    Raises
    ------
    UsageError
        If there are fewer than two tables, one has none, or there are not as many labels.
    PosprobeError
        As `posprobe.load`, if references are given.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.encodings.counting(32, 8), nulls=0)
    >>> comparison.labels
    ('sinusoidal:32x8', 'counting:32x8')
    >>> print(f"{comparison.distances[0, 1].cka:.2f}")
    0.56
    """
    check_at_least_two(tables, "tables. Name another, such as sinusoidal.")
    tables = apply_labels(_load_tables(tables, seed), labels)
    analyses = tuple(
        analyze(table, only=only, nulls=nulls, device=device, seed=seed, command=command)
        for table in tables
    )
    sequences = [table for table in tables if not isinstance(table.layout, Grid)]
    sequence_length = min(map(len, sequences), default=0)
    shared_tables = [
        table
        if isinstance(table.layout, Grid) or len(table) == sequence_length
        else table[:sequence_length]
        for table in tables
    ]
    clouds = [
        prepare_cloud(np.asarray(table.values, dtype=np.float64))
        for table in shared_tables
    ]

    def measure_pair(i: int, j: int) -> tuple[Closeness, PairBand | None]:
        x, y = shared_tables[i], shared_tables[j]
        if x.layout != y.layout:
            return _undefined_closeness(x, y), None
        band = _pair_band(x, y, nulls, seed) if nulls else None
        return closeness(clouds[i], clouds[j]), band

    pairs = measure_pairs(len(tables), measure_pair)
    return Comparison(
        labels=make_names_unique([table.name for table in tables]),
        analyses=analyses,
        length=min(len(table) for table in tables),
        distances={pair: distance for pair, (distance, _) in pairs.items()},
        bands={pair: band for pair, (_, band) in pairs.items()},
        environment=describe_environment(
            analyses[0].environment["device"], seed, command
        ),
    )


def _load_tables(tables: Iterable[Any], seed: int) -> list[PositionTable]:
    """Return tables to compare, and refuse schemes and videos."""
    records = load_references(tables, seed)
    for record in records:
        if isinstance(record, Scheme):
            raise UsageError(
                f"{record.name}: it is no table of positions. "
                "posprobe.compare_kernels compares any encodings."
            )
    loaded = [as_table(record) for record in records]
    for table in loaded:
        check_no_video(table.layout, table.name)
    return loaded


def _undefined_closeness(x: PositionTable, y: PositionTable) -> Closeness:
    """Return the undefined distance of tables without common positions, with the reason."""
    reason = f"a {x.layout} and a {y.layout}: no positions in common"
    numbers = ("cka", "cka_biased", "procrustes", "subspace_overlap")
    return Closeness(None, None, None, None, 0, dict.fromkeys(numbers, reason))


def check_at_least_two(records: Sequence[object], noun: str) -> None:
    """Refuse a comparison of fewer than two records.

    Raises
    ------
    UsageError
        If there are fewer than two; ``noun`` ends the message.
    """
    if len(records) < 2:
        raise UsageError(f"a comparison needs at least two {noun}")


def measure_pairs(
    count: int, measure: Callable[[int, int], _Measured]
) -> dict[tuple[int, int], _Measured]:
    """Measure all pairs of ``count`` records as a stage with progress, by pair of indices."""
    results = {}
    with stage("Distances", count * (count - 1) // 2) as advance:
        for i, j in combinations(range(count), 2):
            results[i, j] = measure(i, j)
            advance(1)
    return results


def symmetric_matrix(
    size: int, numbers: Mapping[tuple[int, int], float | None]
) -> Floats:
    """Return numbers of pairs as ``[size, size]``, NaN on the diagonal and where undefined."""
    matrix = np.full((size, size), np.nan)
    for (i, j), number in numbers.items():
        if number is not None:
            matrix[i, j] = matrix[j, i] = number
    return matrix


def apply_labels(
    records: Sequence[_Record], labels: Sequence[str] | None
) -> tuple[_Record, ...]:
    """Name records by labels, one for each; without labels they keep their names.

    Raises
    ------
    UsageError
        If there are more or fewer labels than records, or one of them is empty or no string.
    """
    if labels is None:
        return tuple(records)
    is_valid = not isinstance(labels, str) and all(
        isinstance(label, str) and label for label in labels
    )
    if not is_valid or len(labels) != len(records):
        raise UsageError(
            f"{len(records)} records need a list of as many labels, texts that are not empty."
        )
    return tuple(
        replace(record, name=label) for record, label in zip(records, labels, strict=True)
    )


def make_names_unique(names: Sequence[str]) -> tuple[str, ...]:
    """Make names unique by numbering equal ones."""
    labels: list[str] = []
    for name in names:
        numbered = (f"{name} ({k})" for k in count(1))
        free = (label for label in numbered if label not in labels and label not in names)
        labels.append(name if names.count(name) == 1 else next(free))
    return tuple(labels)


def _pair_band(x: PositionTable, y: PositionTable, draws: int, seed: int) -> PairBand:
    """Return null bands of the CKA of two tables, the same for either order of the pair.

    A formula is the same in every draw, unless both tables are formulas.
    """
    table_pair = sorted((x, y), key=_table_order)
    is_fixed = [t.kind == "fixed" for t in table_pair]
    is_drawn = [True, True] if all(is_fixed) else [not fixed for fixed in is_fixed]
    scaled = [
        np.asarray(t.values, dtype=np.float64) / (float(np.abs(t.values).max()) or 1.0)
        for t in table_pair
    ]
    fitted = [fit_process(values, x.layout) for values in scaled]
    bands: PairBand = {}
    for index, name in enumerate(NULL_MODELS):
        values = []
        for draw in range(draws if name in null_models(x.layout) else 0):
            surrogates = [
                draw_rows(
                    scaled[side],
                    name,
                    np.random.default_rng([seed, index, draw, side]),
                    x.layout,
                    fitted[side],
                )
                if is_drawn[side]
                else scaled[side].astype(np.float32)
                for side in range(2)
            ]
            values.append(_cka_or_none(*surrogates))
        bands[name] = null_band(values)
    return bands


def _cka_or_none(x: NDArray[np.float32], y: NDArray[np.float32]) -> float | None:
    try:
        return cka(x.astype(np.float64), y.astype(np.float64))
    except InvalidTable:  # a surrogate of equal rows, or of fewer than four
        return None


def _table_order(table: PositionTable) -> tuple[int, int]:
    return zlib.crc32(np.ascontiguousarray(table.values).tobytes()), table.dim
