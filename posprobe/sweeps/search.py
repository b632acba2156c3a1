"""Relations among the tables of a sweep: nearest tables, lineages, and training runs."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe import questions
from posprobe.drawable import Card, Displayable, format_repr
from posprobe.errors import InvalidCheckpoint, UnknownReference, UsageError
from posprobe.families import load
from posprobe.measurements import compared_numbers
from posprobe.opening import open_regular
from posprobe.relations.fingerprints import (
    Fingerprint,
    Likeness as Likeness,
    fingerprint,
    likeness,
    read_fingerprint,
)
from posprobe.report.files import expand_user
from posprobe.studies.series import PATH_LABELS, Series
from posprobe.sweeps.columns import SEAM_COLUMN, USER_PREFIX, row_source
from posprobe.sweeps.references import parse_counted_step
from posprobe.tables import PositionTable, table
from posprobe.words import relations

#: File of a sweep with one line per table.
FINGERPRINT_FILE = "fingerprints.jsonl"
#: Fingerprints that ship with the package, in the same format.
SHIPPED_FINGERPRINT_FILE = "known_tables.jsonl"
#: Size limit of a line, in bytes: ten times the fingerprint of the longest table.
MAX_FINGERPRINT_BYTES = 2**20
#: Number of lineages per width that later tables are compared with, to bound time and memory.
MAX_LINEAGES = 1000
#: Cosine of two tables below which their fingerprints are not compared: tables at a distance above
#: 1.2 are not of one lineage, whatever they share.
MIN_LINEAGE_COSINE = 0.25
#: Stride in the rows of a fingerprint for that cosine; all rows would give the same decision.
LINEAGE_ROW_STRIDE = 4

#: Rows of a fingerprint at the stride, and its mean rows, both flattened to unit vectors.
_Vectors: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class Match(Displayable):
    """A known table and the relation of the query table to it.

    Parameters
    ----------
    name, reference
        Name and reference of the known table, as its sweep has them.
    likeness
        Relation, with distance and evidence.
    about
        Metadata of the known table: for those that ship with posprobe ``title``, ``licence``,
        ``source`` and ``numbers``.

    Examples
    --------
    >>> import posprobe as pp
    >>> match = pp.nearest("sample:digits-vit").matches[0]
    >>> match.likeness.relation, match.about["licence"]
    ('identical', 'Apache-2.0')
    """

    name: str
    reference: str
    likeness: Likeness
    about: Mapping[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the match as a JSON object."""
        document = {
            "name": self.name,
            "reference": self.reference,
            "about": dict(self.about),
        }
        for key in ("relation", "distance", "rows", "chance", "rounded_to", "shift"):
            document[key] = getattr(self.likeness, key)
        return {**document, "evidence": relations.evidence_sentences(self.likeness)}

    def _card(self) -> Card:
        return Card(self.name or self.reference, self.line())

    def line(self) -> dict[str, str]:
        """Return the relation in words, the known table, and the evidence."""
        return {
            "relation": relations.relation_phrase(self.likeness),
            "table": self.name or self.reference,
            "reference": self.reference,
            "evidence": relations.evidence_sentences(self.likeness),
        }


@dataclass(frozen=True, repr=False)
class Nearest(Displayable):
    """The known tables nearest to a table.

    Parameters
    ----------
    name
        Name of the query table.
    among
        Folder of the sweep that was searched; None for the tables that posprobe knows.
    matches
        Known tables, nearest first: related ones before others, then by distance.
    compared
        Number of tables that were searched.
    other_width
        Number of searched tables of another width, which cannot be compared.

    Examples
    --------
    >>> import posprobe as pp
    >>> found = pp.nearest(pp.sinusoidal(100, 30))
    >>> found.matches, found.compared == found.other_width
    ((), True)
    """

    name: str
    among: str | None
    matches: tuple[Match, ...]
    compared: int
    other_width: int

    def to_dict(self) -> dict[str, Any]:
        """Return the matches and counts as a JSON object."""
        return {**vars(self), "matches": [match.to_dict() for match in self.matches]}

    def _card(self) -> Card:
        among = "known tables" if self.among is None else f"tables of {self.among}"
        text = (
            f"Compared with {self.compared} {among}, {self.other_width} of another width."
        )
        lines = [match.line() for match in self.matches]
        return Card(self.name, {}, text, lines)

    def __repr__(self) -> str:
        names = [
            f"{relations.relation_phrase(match.likeness)} {match.name}"
            for match in self.matches
        ]
        return format_repr(self, repr(self.name), *names, f"compared={self.compared}")


def nearest(
    given: Any, *, sweep: str | os.PathLike[str] | None = None, most: int = 5
) -> Nearest:
    """Find the known tables that a table was copied or fine-tuned from.

    Distances are relative Frobenius distances on the positions that both tables have, estimated
    from random projections: a fine-tuned model keeps the meaning of every column, so that its table
    lies near the one it began with; tables trained separately are far apart whatever they have
    learned. The network is needed only to read the table itself.

    Parameters
    ----------
    given
        Query table: a `PositionTable`, anything that `posprobe.table` takes, or a reference.
    sweep
        Folder of a sweep to search; None for the tables that ship with posprobe as fingerprints.
    most
        Number of matches to return.

    Raises
    ------
    UsageError
        If ``most`` is not positive.
    UnknownReference
        If the folder holds no fingerprints of a sweep.
    InvalidCheckpoint
        If they are damaged.
    PosprobeError
        Any error of `posprobe.load` and `posprobe.table`.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> table = pp.load("sample:rxnmapper-albert")
    >>> noise = np.random.default_rng(0).normal(size=table.shape) * table.values.std()
    >>> match = pp.nearest(table.values + 0.02 * noise).matches[0]
    >>> match.name, match.likeness.relation, round(match.likeness.distance, 3)
    ('rxnmapper-albert', 'moved', 0.02)
    """
    if most < 1:
        raise UsageError(f"`most={most}`: at least one table is named.")
    query_table = (
        load(os.fspath(given)) if isinstance(given, str | os.PathLike) else table(given)
    )
    return nearest_to(query_table, sweep, most)


def nearest_to(
    query_table: PositionTable, sweep: str | os.PathLike[str] | None, limit: int
) -> Nearest:
    """Find the known tables nearest to a loaded table, as `nearest` does."""
    query_sketch = fingerprint(query_table)
    counts = {"all": 0, "others": 0}

    def find_matches() -> Iterator[Match]:
        for metadata, known_sketch in read_fingerprints(sweep):
            counts["all"] += 1
            if known_sketch.dim == query_sketch.dim:
                name, reference = (
                    str(metadata.pop(key, "")) for key in ("name", "reference")
                )
                yield Match(
                    name, reference, likeness(query_sketch, known_sketch), metadata
                )
            else:
                counts["others"] += 1

    matches = heapq.nsmallest(limit, find_matches(), key=_match_rank)
    among = None if sweep is None else str(sweep)
    return Nearest(
        query_table.name, among, tuple(matches), counts["all"], counts["others"]
    )


def _match_rank(match: Match) -> tuple[bool, bool, float]:
    relation = match.likeness
    distance = float("inf") if relation.distance is None else relation.distance
    return not relation.related, relation.relation != "identical", distance


def read_fingerprints(
    sweep: str | os.PathLike[str] | None,
) -> Iterator[tuple[dict[str, Any], Fingerprint]]:
    """Read the fingerprints of a sweep, or the shipped ones, with the metadata of each table.

    Raises
    ------
    UnknownReference, InvalidCheckpoint
        As `nearest`.
    """
    if sweep is None:
        path = Path(str(files("posprobe.sweeps"))) / SHIPPED_FINGERPRINT_FILE
    else:
        path = expand_user(Path(sweep)) / FINGERPRINT_FILE
    try:
        with open_regular(path) as file:
            line_number = 0
            while raw_line := file.readline(MAX_FINGERPRINT_BYTES):
                line_number += 1
                yield _read_line(raw_line, f"{path}, line {line_number}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownReference(
            f"{sweep}: contains no {FINGERPRINT_FILE}. Finish the sweep of "
            "that folder first."
        ) from error
    except OSError as error:
        raise InvalidCheckpoint(
            f"{path}: it cannot be read ({error.strerror})."
        ) from error


def _read_line(line: bytes, location: str) -> tuple[dict[str, Any], Fingerprint]:
    try:
        metadata = json.loads(line)
        sketch = read_fingerprint(metadata.pop("fingerprint"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        sketch = None
    if sketch is None:
        raise InvalidCheckpoint(
            f"{location}: it is damaged. Run the same sweep again to rebuild it."
        )
    return metadata, sketch


class Lineages:
    """Lineages of related tables, built while the tables arrive.

    A table belongs to a lineage if it is related to its first table, or to the one that joined it
    last, so that the steps of a training run belong together though its ends are unrelated.

    Parameters
    ----------
    file
        File open for writing, which gets a line per table, as `read_fingerprints` reads them.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        #: Lineage of each table, by its width and the checksum of its values.
        self._heads: dict[tuple[int, str], str] = {}
        #: First and last table of each lineage with their unit vectors, by width and lineage.
        self._ends: dict[int, dict[str, list[tuple[Fingerprint, _Vectors]]]] = {}

    def assign(self, reference: str, name: str | None, sketch: Fingerprint) -> str:
        """Record a table; return the reference of its lineage's first table, maybe its own."""
        record = {"reference": reference, "name": name, "fingerprint": sketch.to_dict()}
        self._file.write(json.dumps(record).encode() + b"\n")
        identity = sketch.dim, sketch.sha256
        if identity in self._heads:
            return self._heads[identity]
        vectors = (
            _unit_vector(sketch.rows[::LINEAGE_ROW_STRIDE]),
            _unit_vector(sketch.blocks),
        )
        lineages = self._ends.setdefault(sketch.dim, {})
        related = [
            (relation.distance, head)
            for head, ends in lineages.items()
            for end_sketch, end_vectors in ends
            if _may_be_related(vectors, end_vectors)
            and (relation := likeness(sketch, end_sketch)).related
        ]
        if not related and len(lineages) >= MAX_LINEAGES:
            return reference
        head = min(related)[1] if related else reference
        self._heads[identity] = head
        lineages[head] = [*lineages.get(head, ())[:1], (sketch, vectors)]
        return head


def _may_be_related(a: _Vectors, b: _Vectors) -> bool:
    """Tell whether two tables have a higher cosine than most unrelated ones."""
    n_common = min(len(a[0]), len(b[0]))
    row_cosine = float(a[0][:n_common] @ b[0][:n_common])
    return max(row_cosine, float(a[1] @ b[1])) >= MIN_LINEAGE_COSINE


def _unit_vector(values: NDArray[np.float16]) -> NDArray[np.float32]:
    flat = values.astype(np.float32).ravel()
    return flat / (float(np.linalg.norm(flat)) or 1.0)


# --- training runs ----------------------------------------------------------------------------

#: Smallest number of steps of a training run.
MIN_RUN_STEPS = 3
#: Location or name of a run, whether the user's list names it, its tensor, and the table's size.
_RunKey: TypeAlias = tuple[str, bool, str | None, int | None, int | None]


def find_runs(rows: Iterable[dict[str, Any]], folder: Path) -> tuple[Series, ...]:
    """Find the training runs among the rows of the sweep in ``folder``; see `series`."""
    runs: dict[_RunKey, dict[int, dict[str, Any]]] = {}
    for row in rows:
        step = _row_step(row)
        if step is not None and row.get("scheme") in ("learned", "fixed"):
            location, name = _split_reference(row)
            # The only tensor of a file is named after the file, so its name differs between steps.
            tensor = None if row.get("tensor") == Path(name).stem else row.get("tensor")
            run_name = row.get(f"{USER_PREFIX}run")
            key = (
                str(run_name or location),
                run_name is not None,
                tensor,
                row.get("positions"),
                row.get("dim"),
            )
            runs.setdefault(key, {}).setdefault(step, row)
    complete_runs = {
        key: dict(sorted(steps.items()))
        for key, steps in runs.items()
        if len(steps) >= MIN_RUN_STEPS
    }
    if not complete_runs:
        return ()
    run_rows = [[*steps.values()] for steps in complete_runs.values()]
    end_distances = _distances_from_ends(folder, run_rows)
    names = [_run_name(key, [*complete_runs]) for key in complete_runs]
    return tuple(
        _build_series(name, [*steps], [*steps.values()], end_distances)
        for name, steps in zip(names, complete_runs.values(), strict=True)
    )


def _listed_numbers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of numbers that the user's list adds, but for the step."""
    names = dict.fromkeys(
        key for row in rows for key in row if key.startswith(USER_PREFIX)
    )
    return [
        name
        for name in names
        if name not in (f"{USER_PREFIX}step", f"{USER_PREFIX}run")
        and all(isinstance(row.get(name), int | float | None) for row in rows)
    ]


def _row_step(row: Mapping[str, Any]) -> int | None:
    step = row.get(f"{USER_PREFIX}step")
    if step is None:
        return parse_counted_step(_split_reference(row)[1])
    try:
        return int(step) if int(step) == float(step) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _split_reference(row: Mapping[str, Any]) -> tuple[str, str]:
    """Split a reference into its location and its own name."""
    if row.get("commit"):
        name = row["reference"].partition("#")[0].partition("@")[2]
        return str(row.get("resolved")), name
    path = Path(row.get("resolved") or row["reference"])
    return str(path.parent), path.name


def _run_name(key: _RunKey, keys: Sequence[_RunKey]) -> str:
    """Return the shortest unique name of a run: its name in the list, or that of its folder."""
    location, _, tensor, positions, dim = key
    short_names = {
        run_location: run_location
        if is_named
        else Path(run_location).name or run_location
        for run_location, is_named, *_ in keys
    }
    is_unique = list(short_names.values()).count(short_names[location]) == 1
    name = short_names[location] if is_unique else location
    if [run_location for run_location, *_ in keys].count(location) == 1:
        return name
    return f"{name}, {tensor or 'table'}, {positions} x {dim}"


def _distances_from_ends(
    folder: Path, runs: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, tuple[float | None, ...]]:
    """Return the distance of each table of the runs to the first and the last of its run."""
    ends = {
        row["reference"]: (run[0]["reference"], run[-1]["reference"])
        for run in runs
        for row in run
    }
    sketches = (
        (str(metadata.get("reference")), sketch)
        for metadata, sketch in read_fingerprints(folder)
    )
    run_sketches = {
        reference: sketch for reference, sketch in sketches if reference in ends
    }
    return {
        reference: tuple(
            likeness(sketch, run_sketches[end]).distance if end in run_sketches else None
            for end in ends[reference]
        )
        for reference, sketch in run_sketches.items()
    }


def _build_series(
    name: str,
    steps: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
    end_distances: Mapping[str, tuple[float | None, ...]],
) -> Series:
    def column(key: str) -> tuple[Any, ...]:
        return tuple(row.get(key) for row in rows)

    def defined_columns(
        keys: Iterable[str], prefix: str = "", suffix: str = ""
    ) -> dict[str, tuple[Any, ...]]:
        values_by_key = {key: column(f"{prefix}{key}{suffix}") for key in keys}
        return {
            key: values for key, values in values_by_key.items() if set(values) != {None}
        }

    ends = [
        end_distances.get(reference, (None, None)) for reference in column("reference")
    ]
    first, last = zip(*ends, strict=True)
    sinusoid = tuple(None if cka is None else 1 - cka for cka in column("sinusoid.cka"))
    numbers = defined_columns(compared_numbers())
    listed_numbers = defined_columns(_listed_numbers(rows))
    return Series(
        name=name,
        steps=tuple(steps),
        numbers=numbers | listed_numbers,
        sinusoid=defined_columns(numbers, suffix=".sinusoid"),
        answers=defined_columns(questions.TABLE_QUESTIONS, prefix="answers."),
        seams=column(SEAM_COLUMN),
        path=dict(zip(PATH_LABELS, (first, last, sinusoid), strict=True)),
        shape=(rows[-1]["positions"], rows[-1]["dim"]) if rows[-1].get("dim") else None,
        source=f"First step: {row_source(rows[0])}. Last step: {row_source(rows[-1])}.",
    )
