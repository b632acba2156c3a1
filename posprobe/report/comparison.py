"""Position tables side by side: analyses, distances, and what others have published of them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import combinations, count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import PCA, Similarity, Spectrum
from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.descriptive.closeness import Closeness, cka, closeness, cloud
from posprobe.analyses.descriptive.probes import PUBLISHED_ROWS
from posprobe.analyses.result import as_block
from posprobe.arrays import Array, Device, Floats
from posprobe.blocks import PairBlock, environment
from posprobe.data import read_data
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid
from posprobe.nulls import DRAWS, NULLS, band, draw_rows, null_models
from posprobe.progress import stage
from posprobe.report.analysis import Analysis, analyze, results_of
from posprobe.report.document import shared_block
from posprobe.report.files import COMPARISON
from posprobe.report.saved import Saved
from posprobe.schemes import Scheme
from posprobe.tables import PositionTable, table as as_table
from posprobe.text import lookup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.blocks import BandBlock, EnvironmentBlock


_Record = TypeVar("_Record", bound=PositionTable | Scheme)

#: By null model, 5, 50 and 95 % of a number.
PairBand: TypeAlias = "dict[str, BandBlock | None]"

#: Distances shown as matrices.
DISTANCES = ("cka", "procrustes", "subspace_overlap")


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
        By the numbers of both tables, the smaller one first.
    bands
        Of the same pairs, by null model, the debiased CKA of a surrogate of the one with a
        surrogate of the other, None where undefined; None where there is no distance.
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
            own = analysis.to_dict()
            del own["schema"]
            published = [value.compared(own) for value in published_for(analysis.table)]
            tables.append({"label": label, "published": published, **own})
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
        found = np.full((len(self.labels), len(self.labels)), np.nan)
        for (i, j), distance in self.distances.items():
            value = getattr(distance, name)
            found[i, j] = found[j, i] = np.nan if value is None else value
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: every table's arrays under its number."""
        arrays = {name: self.matrix(name) for name in DISTANCES}
        for index, analysis in enumerate(self.analyses):
            arrays |= {f"{index}_{name}": array for name, array in analysis.arrays().items()}
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures import report_figures
        from posprobe.figures.common import REPORT
        from posprobe.figures.comparison import curves_figure, distances_figure
        from posprobe.figures.styles import printable

        found = dict(zip(self.labels, (each.results for each in self.analyses), strict=True))
        alike = results_of(found, "similarity", Similarity)
        spectra = results_of(found, "spectrum", Spectrum)
        # Curves over offset and over frequency are of positions on a line.
        lines = {
            name: result
            for name, result in alike.items()
            if name in spectra and not isinstance(result.layout, Grid)
        }
        references = {
            "spectra": printable({name: spectra[name] for name in lines}),
            "distances": {name: self.matrix(name) for name in DISTANCES},
        }
        figures = report_figures(alike, ("similarity",)) if alike else {}
        if components := results_of(found, "pca", PCA):
            figures |= report_figures(components, ("variance",), references)
        labels = dict.fromkeys(self.labels)
        figures["distances"] = partial(distances_figure, REPORT, printable(labels), references)
        if lines:
            figures["curves"] = partial(curves_figure, REPORT, printable(lines), references)
        return figures

    def _of(self) -> str:
        return " and ".join(
            f"{label!r} ({one.table.layout}, dim={one.table.dim})"
            for label, one in zip(self.labels, self.analyses, strict=True)
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
        As for `analyze`.
    nulls
        Random tables drawn per baseline; of each pair at least so many as a band needs are drawn.
    device, seed, command
        As for `analyze`.

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
    tables = relabelled(tuple(map(as_table, tables)), labels)
    analyses = tuple(
        analyze(table, only=only, nulls=nulls, device=device, seed=seed, command=command)
        for table in tables
    )
    length = min(len(table) for table in tables)
    line = min((len(t) for t in tables if not isinstance(t.layout, Grid)), default=0)
    cut = [t if isinstance(t.layout, Grid) or len(t) == line else t[:line] for t in tables]
    clouds = [cloud(np.asarray(table.values, dtype=np.float64)) for table in cut]
    distances: dict[tuple[int, int], Closeness] = {}
    bands: dict[tuple[int, int], PairBand | None] = {}
    with stage("Distances", len(cut) * (len(cut) - 1) // 2) as done:
        for i, j in combinations(range(len(cut)), 2):
            if cut[i].layout == cut[j].layout:
                distances[i, j] = closeness(clouds[i], clouds[j])
                bands[i, j] = _pair_band(cut[i], cut[j], max(nulls, DRAWS), seed)
            else:
                distances[i, j], bands[i, j] = _apart(cut[i], cut[j]), None
            done(1)
    return Comparison(
        labels=distinct([table.name for table in tables]),
        analyses=analyses,
        length=length,
        distances=distances,
        bands=bands,
        environment=environment(analyses[0].environment["device"], seed, command),
    )


def _apart(x: PositionTable, y: PositionTable) -> Closeness:
    """Say why tables whose positions do not correspond have no distance."""
    why = f"a {x.layout} and a {y.layout}: no positions in common"
    numbers = ("cka", "cka_biased", "procrustes", "subspace_overlap")
    return Closeness(None, None, None, None, 0, dict.fromkeys(numbers, why))


def relabelled(records: Sequence[_Record], labels: Sequence[str] | None) -> tuple[_Record, ...]:
    """Call records by labels, one for each; without labels they keep their names.

    Raises
    ------
    UsageError
        If there are more or fewer labels than records, or one of them is empty or no text.
    """
    if labels is None:
        return tuple(records)
    sound = not isinstance(labels, str) and all(isinstance(each, str) and each for each in labels)
    if not sound or len(labels) != len(records):
        raise UsageError(
            f"{len(records)} encodings need a list of as many labels, texts that are not empty."
        )
    return tuple(replace(r, name=label) for r, label in zip(records, labels, strict=True))


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Make names all different: equal ones are numbered."""
    labels: list[str] = []
    for name in names:
        numbered = (f"{name} ({k})" for k in count(1))
        free = (label for label in numbered if label not in labels and label not in names)
        labels.append(name if names.count(name) == 1 else next(free))
    return tuple(labels)


def _pair_band(x: PositionTable, y: PositionTable, draws: int, seed: int) -> PairBand:
    """Compute the CKA of surrogates of both tables, the same for either order of the pair."""
    both = sorted((x, y), key=_fingerprint)
    scaled = [
        np.asarray(t.values, dtype=np.float64) / (float(np.abs(t.values).max()) or 1.0)
        for t in both
    ]
    fitted = [fit_process(values, x.layout) for values in scaled]
    found: PairBand = {}
    for index, name in enumerate(NULLS):
        values = []
        for draw in range(draws if name in null_models(x.layout) else 0):
            drawn = [
                draw_rows(
                    one, name, np.random.default_rng([seed, index, draw, side]), x.layout, fit
                )
                for side, (one, fit) in enumerate(zip(scaled, fitted, strict=True))
            ]
            values.append(_cka(*drawn))
        found[name] = band(values)
    return found


def _cka(x: NDArray[np.float32], y: NDArray[np.float32]) -> float | None:
    try:
        return cka(x.astype(np.float64), y.astype(np.float64))
    except InvalidTable:  # a surrogate of equal rows, or of fewer than four
        return None


def _fingerprint(table: PositionTable) -> tuple[int, int]:
    return zlib.crc32(np.ascontiguousarray(table.values).tobytes()), table.dim


#: How it is known that a number is a model's: see `published_for`.
Match: TypeAlias = Literal["bytes", "hub", "formula", "name"]


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published value.

    Parameters
    ----------
    model, title
        The model's short and full name.
    key
        Where posprobe's own value stands in ``analysis.json``, as a dotted path.
    quantity
        What it is, in words.
    value, unit
        In posprobe's unit: shares rather than percentages; None for a bare number.
    stated
        As printed in the source.
    tolerance
        By how much a sound repetition may differ: what rounding hides, or for a single unseeded run
        three standard deviations of ours over 100 seeds. None where we have not measured it.
    rows
        First row and one past the last; None where they do not matter.
    takes
        ``"all"``: the table must be cut to these rows. ``"first"``: the analysis cuts it itself.
    stored
        Whether rows count as stored, those that are not positions included.
    citation, where, url
        The source, and where in it.
    evidence
        How the value was read: first hand or not, and what limits it.
    matched
        How the table at hand was recognised; None in `published`.
    differs
        Why ours is not the same quantity, or empty.
    """

    model: str
    title: str
    key: str
    quantity: str
    value: float
    unit: str | None = None
    stated: str
    tolerance: float | None = None
    rows: tuple[int, int] | None = None
    takes: Literal["all", "first"]
    stored: bool = False
    citation: str
    where: str
    url: str
    evidence: str
    matched: Match | None = None
    differs: str = ""

    def compared(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value with posprobe's own from an ``analysis.json``, ready for JSON.

        ``ours`` is None where the document does not hold the quantity.
        """
        path, _, last = self.key.rpartition(".")
        ours = lookup(document, self.key)
        if last.isdecimal():  # a place in a list
            ours = next(iter((lookup(document, path) or ())[int(last) :]), None)
        return asdict(self) | {
            "rows": list(self.rows) if self.rows else None,
            "ours": ours if isinstance(ours, int | float) else None,
        }


@dataclass(frozen=True)
class _Model:
    """What a model's table is known by: its place in a checkpoint, or a formula."""

    title: str
    hub: tuple[str, ...] = ()
    tensor: str = ""
    shape: tuple[int, int] = (0, 0)
    sha256: tuple[str, ...] = ()  # of the tensor in single precision
    formula: str = ""  # all lengths of it


@cache
def _data() -> dict[str, Any]:
    return read_data("report/published.toml")


@cache
def _models() -> dict[str, _Model]:
    return {name: _Model(**entry) for name, entry in _data()["models"].items()}


@cache
def published() -> tuple[Published, ...]:
    """Return every published value, as ``published.toml`` has them.

    Raises
    ------
    TypeError
        If an entry has a key that is not a field of `Published`, or lacks one without a default.
    """
    return tuple(_value(**entry) for entry in _data()["values"])


def _value(*, model: str, of: str, source: str, note: str = "", **entry: Any) -> Published:
    said = _data()["sources"][source] | _data()["quantities"][of] | entry
    if note:
        said["evidence"] += f"; {note}"
    return Published(model=model, title=_models()[model].title, **said)


def published_for(table: PositionTable) -> tuple[Published, ...]:
    """Return the published values of the model that a table belongs to.

    A table is known to be a model's in one of four ways: its stored bytes have a known SHA-256,
    whatever the file is called; it came from the model's repository on the Hub, under one of its
    ids; it is a formula; or it came from a local folder with the model's name that holds a tensor
    of the model's name and shape. That is the weakest sign, since a fine-tuned copy looks the same;
    where the model's bytes are known in that format and these differ, there is no match.

    Returns
    -------
    tuple
        With `Published.matched` and `Published.differs` filled in; empty for any other table.
    """
    matches = {name: _match(model, table) for name, model in _models().items()}
    return tuple(
        replace(value, matched=matches[value.model], differs=_differs(value, table))
        for value in published()
        if matches[value.model]
    )


def _match(model: _Model, table: PositionTable) -> Match | None:
    source = table.source
    if table.family == "formula" or not model.hub:
        follows = model.formula and re.fullmatch(model.formula, source.resolved)
        return "formula" if follows and table.family == "formula" else None
    if source.sha256 in model.sha256:
        return "bytes"
    if not (source.tensor or "").endswith(model.tensor) or source.shape != model.shape:
        return None
    if source.revision is not None:  # only what was read from the Hub has a commit
        return "hub" if source.resolved in model.hub else None
    known = model.sha256 and source.dtype == "F32" and source.sha256 is not None
    called = PurePath(source.resolved).name in {hub.rpartition("/")[2] for hub in model.hub}
    return "name" if called and not known else None


def _differs(value: Published, table: PositionTable) -> str:
    if value.rows is None:
        return ""
    if value.stored and table.dropped:
        return (
            f"published with all stored rows, of which {len(table.dropped)} are not positions "
            "and are left out here"
        )
    first, stop = table.rows
    if value.takes == "first":
        stop = min(stop, first + PUBLISHED_ROWS)
    if (first, stop) == value.rows:
        return ""
    return f"published for rows {value.rows[0]} to {value.rows[1] - 1}, here {first} to {stop - 1}"
