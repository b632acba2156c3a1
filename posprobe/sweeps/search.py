"""Which tables come from one another: the nearest to one, lineages, and training runs."""

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
from posprobe.drawable import line
from posprobe.errors import InvalidCheckpoint, UnknownReference, UsageError
from posprobe.families import load
from posprobe.measurements import compared_numbers
from posprobe.opening import open_regular
from posprobe.relations.fingerprints import (
    Fingerprint,
    Likeness as Likeness,
    fingerprint,
    likeness,
    read_fingerprint as read,
)
from posprobe.report.files import expanded
from posprobe.studies.series import PATH, Series
from posprobe.sweeps.columns import OWN, SEAMS
from posprobe.sweeps.references import counted_step
from posprobe.tables import PositionTable, table
from posprobe.words import relations

#: The file of a sweep with a line for each table.
FINGERPRINTS = "fingerprints.jsonl"
#: What ships with the package, in the same form.
SHIPPED = "known_tables.jsonl"
#: Longest line that is read, in bytes: the fingerprint of the longest table has a tenth of it.
LONGEST = 2**20
#: Lineages of tables of one width that later tables are held against, which bounds time and memory.
MOST = 1000
#: Cosine of two tables below which they are not looked at: those of a distance above 1.2 are not
#: one lineage, whatever they share. Every fourth of the kept rows tells as much.
ALIKE, THINNED = 0.25, 4

#: Every few of the kept rows of a table and its mean rows, as unit vectors.
_Vectors: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class Match:
    """A known table and how the one that was asked about relates to it.

    Parameters
    ----------
    name, reference
        Of the known table, as its sweep has them.
    likeness
        The relation, with distance and evidence.
    about
        More about it: for tables that ship with posprobe ``title``, ``licence``, ``source`` and
        ``numbers``.

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
        """Return it as JSON has it."""
        found = {"name": self.name, "reference": self.reference, "about": dict(self.about)}
        for key in ("relation", "distance", "rows", "chance", "rounded_to", "shift"):
            found[key] = getattr(self.likeness, key)
        return {**found, "evidence": relations.evidence(self.likeness)}


@dataclass(frozen=True, repr=False)
class Nearest:
    """The known tables nearest to a table.

    Parameters
    ----------
    name
        Name of the table that was asked about.
    among
        Folder of the sweep that was searched; None for the tables that posprobe knows.
    matches
        The nearest first: those that are related, then by distance.
    compared
        Number of tables that were searched.
    other_width
        How many of them have another width and cannot be compared.

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
        """Return it as JSON has it."""
        return {**vars(self), "matches": [match.to_dict() for match in self.matches]}

    def __repr__(self) -> str:
        found = [f"{relations.relation(match.likeness)} {match.name}" for match in self.matches]
        return line(self, repr(self.name), *found, f"compared={self.compared}")


def nearest(given: Any, *, sweep: str | os.PathLike[str] | None = None, most: int = 5) -> Nearest:
    """Find the known tables that a table was copied or fine-tuned from.

    Distances are relative Frobenius distances on the positions that both tables have, estimated
    from random projections: a fine-tuned model keeps the meaning of every column, so that its table
    lies near the one it began with; tables trained apart are far from each other whatever they have
    learned. No network is needed but to read the table itself.

    Parameters
    ----------
    given
        A `PositionTable`, whatever `posprobe.table` takes, or a reference as `posprobe.load`
        reads it.
    sweep
        Folder of a sweep to search; None for the tables that ship with posprobe as fingerprints.
    most
        How many to return.

    Raises
    ------
    UsageError
        If ``most`` is not positive.
    UnknownReference
        If the folder holds no fingerprints of a sweep.
    InvalidCheckpoint
        If they are damaged.
    PosprobeError
        Whatever `posprobe.load` and `posprobe.table` raise.

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
        raise UsageError(f"--limit {most}: at least one table is named.")
    asked = load(os.fspath(given)) if isinstance(given, str | os.PathLike) else table(given)
    return nearest_to(asked, sweep, most)


def nearest_to(asked: PositionTable, sweep: str | os.PathLike[str] | None, most: int) -> Nearest:
    """Do what `nearest` does for a table that was loaded."""
    mine = fingerprint(asked)
    counts = {"all": 0, "others": 0}

    def found() -> Iterator[Match]:
        for known, theirs in read_fingerprints(sweep):
            counts["all"] += 1
            if theirs.dim == mine.dim:
                name, reference = (str(known.pop(key, "")) for key in ("name", "reference"))
                yield Match(name, reference, likeness(mine, theirs), known)
            else:
                counts["others"] += 1

    matches = heapq.nsmallest(most, found(), key=_order)
    among = None if sweep is None else str(sweep)
    return Nearest(asked.name, among, tuple(matches), counts["all"], counts["others"])


def _order(match: Match) -> tuple[bool, bool, float]:
    found = match.likeness
    distance = float("inf") if found.distance is None else found.distance
    return not found.related, found.relation != "identical", distance


def read_fingerprints(
    sweep: str | os.PathLike[str] | None,
) -> Iterator[tuple[dict[str, Any], Fingerprint]]:
    """Read the fingerprints of a sweep, or those that ship, with what is said of each table.

    Raises
    ------
    UnknownReference, InvalidCheckpoint
        As `nearest`.
    """
    if sweep is None:
        path = Path(str(files("posprobe.sweeps"))) / SHIPPED
    else:
        path = expanded(Path(sweep)) / FINGERPRINTS
    try:
        with open_regular(path) as file:
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                yield _read_line(line, f"{path}, line {number}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownReference(
            f"{sweep}: contains no {FINGERPRINTS}. Run `posprobe sweep … --out {sweep}` to its end."
        ) from error
    except OSError as error:
        raise InvalidCheckpoint(f"{path}: it cannot be read ({error.strerror}).") from error


def _read_line(line: bytes, where: str) -> tuple[dict[str, Any], Fingerprint]:
    try:
        known = json.loads(line)
        found = read(known.pop("fingerprint"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        found = None
    if found is None:
        raise InvalidCheckpoint(f"{where}: it is damaged. Run the same sweep again to rebuild it.")
    return known, found


class Lineages:
    """Tables as they come, each with the first one that it is related to.

    A table belongs to a lineage if it is related to its first table, or to the one that joined it
    last, so that the steps of a training belong together though its ends have nothing in common.

    Parameters
    ----------
    file
        Open for writing: gets a line for each table, as `read_fingerprints` reads them.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        #: The lineage of a table with these values, by their width and checksum.
        self._heads: dict[tuple[int, str], str] = {}
        #: Of each width the first and the last table of each lineage, with its unit vectors.
        self._ends: dict[int, dict[str, list[tuple[Fingerprint, _Vectors]]]] = {}

    def place(self, reference: str, name: str | None, mine: Fingerprint) -> str:
        """Keep a table; return the reference of the first of its lineage, which may be itself."""
        known = {"reference": reference, "name": name, "fingerprint": mine.to_dict()}
        self._file.write(json.dumps(known).encode() + b"\n")
        values = mine.dim, mine.sha256
        if values in self._heads:
            return self._heads[values]
        vectors = _unit(mine.rows[::THINNED]), _unit(mine.blocks)
        lineages = self._ends.setdefault(mine.dim, {})
        near = [
            (found.distance, head)
            for head, ends in lineages.items()
            for end, theirs in ends
            if _alike(vectors, theirs) and (found := likeness(mine, end)).related
        ]
        if not near and len(lineages) >= MOST:
            return reference
        head = min(near)[1] if near else reference
        self._heads[values] = head
        lineages[head] = [*lineages.get(head, ())[:1], (mine, vectors)]
        return head


def _alike(mine: _Vectors, theirs: _Vectors) -> bool:
    """Tell whether more of two tables has one direction than of most that are unrelated."""
    common = min(len(mine[0]), len(theirs[0]))
    rows = float(mine[0][:common] @ theirs[0][:common])
    return max(rows, float(mine[1] @ theirs[1])) >= ALIKE


def _unit(values: NDArray[np.float16]) -> NDArray[np.float32]:
    flat = values.astype(np.float32).ravel()
    return flat / (float(np.linalg.norm(flat)) or 1.0)


# --- training runs ----------------------------------------------------------------------------

#: Steps of a run: fewer make no series.
FEWEST = 3
#: Where a run lies or what it is called, whether the list calls it so, its tensor and size.
_Key: TypeAlias = tuple[str, bool, str | None, int | None, int | None]


def runs_of(rows: Iterable[dict[str, Any]], folder: Path) -> tuple[Series, ...]:
    """Find the training runs among the rows of the sweep in ``folder``, as `series` says."""
    runs: dict[_Key, dict[int, dict[str, Any]]] = {}
    for row in rows:
        step = _step(row)
        if step is not None and row.get("scheme") in ("learned", "fixed"):
            where, name = _parts(row)
            # The tensor of a file that holds nothing else is called after the file.
            tensor = None if row.get("tensor") == Path(name).stem else row.get("tensor")
            given = row.get(f"{OWN}run")
            key = (
                str(given or where),
                given is not None,
                tensor,
                row.get("positions"),
                row.get("dim"),
            )
            runs.setdefault(key, {}).setdefault(step, row)
    found = {
        key: dict(sorted(steps.items())) for key, steps in runs.items() if len(steps) >= FEWEST
    }
    if not found:
        return ()
    apart = _from_ends(folder, [[*steps.values()] for steps in found.values()])
    return tuple(
        _series(_called(key, list(found)), [*steps], [*steps.values()], apart)
        for key, steps in found.items()
    )


def _step(row: Mapping[str, Any]) -> int | None:
    step = row.get(f"{OWN}step")
    if step is None:
        return counted_step(_parts(row)[1])
    try:
        return int(step) if int(step) == float(step) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _parts(row: Mapping[str, Any]) -> tuple[str, str]:
    """Split a reference into what it lies in, and its own name."""
    if row.get("commit"):
        name = row["reference"].partition("#")[0].partition("@")[2]
        return str(row.get("resolved")), name
    path = Path(row.get("resolved") or row["reference"])
    return str(path.parent), path.name


def _called(key: _Key, keys: Sequence[_Key]) -> str:
    """Name a run: as the list does, or the last part of its folder; more where that is several."""
    where, _, tensor, positions, dim = key
    short = {other: other if own else Path(other).name or other for other, own, *_ in keys}
    name = short[where] if list(short.values()).count(short[where]) == 1 else where
    if [other for other, *_ in keys].count(where) == 1:
        return name
    return f"{name}, {tensor or 'table'}, {positions} x {dim}"


def _from_ends(
    folder: Path, runs: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, tuple[float | None, ...]]:
    """Return the distances of each table of some runs from the first and the last of its run."""
    ends = {
        row["reference"]: (run[0]["reference"], run[-1]["reference"]) for run in runs for row in run
    }
    found = ((str(known.get("reference")), each) for known, each in read_fingerprints(folder))
    kept = {reference: each for reference, each in found if reference in ends}
    return {
        reference: tuple(
            likeness(each, kept[end]).distance if end in kept else None for end in ends[reference]
        )
        for reference, each in kept.items()
    }


def _series(
    name: str,
    steps: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
    apart: Mapping[str, tuple[float | None, ...]],
) -> Series:
    def column(key: str) -> tuple[Any, ...]:
        return tuple(row.get(key) for row in rows)

    def there(keys: Iterable[str], before: str = "", after: str = "") -> dict[str, tuple[Any, ...]]:
        found = {key: column(f"{before}{key}{after}") for key in keys}
        return {key: values for key, values in found.items() if set(values) != {None}}

    ends = [apart.get(reference, (None, None)) for reference in column("reference")]
    first, last = zip(*ends, strict=True)
    sinusoid = tuple(None if cka is None else 1 - cka for cka in column("sinusoid.cka"))
    numbers = there(compared_numbers())
    return Series(
        name=name,
        steps=tuple(steps),
        numbers=numbers,
        sinusoid=there(numbers, after=".sinusoid"),
        answers=there(questions.TABLE, before="answers."),
        seams=column(SEAMS),
        path=dict(zip(PATH, (first, last, sinusoid), strict=True)),
    )
