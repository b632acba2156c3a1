"""The folder of a sweep: one small file per reference, and the tables made of them.

Each reference that was finished leaves one file in ``parts/``, written beside its place and moved
there, whose name is a digest of the reference, the options and posprobe's version; it says the
state of what was read. Nothing else decides what is computed again, so that a sweep can be killed,
repeated, extended and run twice at a time. ``sweep.parquet`` and the rest are made of the parts and
can be made again.

Whoever shows a sweep (an atlas, a series of steps, the nearest tables) begins with `read_sweep`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from posprobe import questions
from posprobe.errors import InvalidCheckpoint, MissingExtra, OutputError, UnknownReference
from posprobe.measurements import compared_numbers
from posprobe.opening import open_regular
from posprobe.report.files import SCRATCH, expanded, recover, there, whole_files, write_page
from posprobe.report.series import PATH, Series
from posprobe.sweeps.atlas import Atlas
from posprobe.sweeps.columns import (
    OWN,
    SEAMS,
    Kind,
    columns,
    headline_columns,
    is_row,
    number_in,
    own_kind,
    own_value,
)
from posprobe.sweeps.fingerprints import likeness, read_fingerprint
from posprobe.sweeps.references import Entry, counted_step
from posprobe.sweeps.search import FINGERPRINTS, Lineages, read_fingerprints
from posprobe.text import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from posprobe.sweeps.workers import Options


#: Names the format of ``sweep.json``.
SWEEP = "posprobe.sweep/1"
TABLE, CSV, FAILURES, ABOUT = "sweep.parquet", "sweep.csv", "failures.csv", "sweep.json"
ATLAS = "atlas.html"
#: What people open, and may have changed: ``sweep.json`` says what was written.
OPENED = (CSV, FAILURES, ATLAS)
#: Rows that are in memory at a time.
ROWS = 256
#: Longest part and description that are read, in bytes.
LONGEST = 2**26
#: What begins a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@")
#: Columns of ``failures.csv``.
FAILURE = ("reference", "stage", "exit_code", "message")


def need_extra(*modules: str) -> None:
    """Say what to install where a package of the extra is missing.

    Raises
    ------
    MissingExtra
        If one of the modules is not there.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"a sweep needs {', '.join(missing)}. Run `uv sync --extra sweep`.")


@dataclass(frozen=True)
class Store:
    """The folder of one sweep, with the options of this run.

    Parameters
    ----------
    folder
        Where everything lies.
    options
        What decides the numbers: parts of other options are another sweep's.
    all_columns
        Whether ``sweep.csv`` has every column.
    """

    folder: Path
    options: Options
    all_columns: bool = False

    def begin(self, about: Mapping[str, Any]) -> None:
        """Make the folder, or take it over where it is a sweep's.

        Raises
        ------
        OutputError
            If it holds anything else, or cannot be written.
        """
        try:
            if there(self.folder) and not self.folder.is_dir():
                raise OutputError(f"{self.folder}: not a folder. Choose another --out.")
            names = sorted(each.name for each in self.folder.glob("*"))
            if not _is_sweep(self.folder, names):
                raise OutputError(
                    f"{self.folder}: not a sweep's folder: it holds {', '.join(names[:4])}. "
                    "Choose another --out."
                )
            (self.folder / "parts").mkdir(parents=True, exist_ok=True)
            with self._alone():
                recover(self.folder / TABLE)
                self._check_unchanged()
                if not (self.folder / ABOUT).exists():
                    write_page(self.folder / ABOUT, _json(about))
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other sweep writes tables into the folder, and keep others waiting."""
        import fcntl

        opened = os.open(self.folder / "parts", os.O_RDONLY)
        try:
            with suppress(OSError):  # a disk without locks
                fcntl.flock(opened, fcntl.LOCK_EX)
            yield
        finally:
            os.close(opened)

    def _check_unchanged(self) -> None:
        """Refuse to write over what somebody changed."""
        written = read_about(self.folder).get("written", {})
        for name in OPENED:
            path = self.folder / name
            if there(path) and _checksum(path) != written.get(name):
                raise OutputError(
                    f"{path}: changed since the sweep wrote it, and would be lost. Move it away, "
                    "then run the same command: nothing is computed twice."
                )

    # --- parts --------------------------------------------------------------------------------

    @cached_property
    def _decisive(self) -> list[Any]:
        # Bundles are in the options: a part without one cannot stand for it.
        return [asdict(self.options), version("posprobe")]

    def _path(self, reference: str) -> Path:
        text = json.dumps([reference, *self._decisive])
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self.folder / "parts" / key[:2] / f"{key}.json"

    def recorded(self, reference: str) -> dict[str, Any] | None:
        """Return what was recorded of a reference."""
        path = self._path(reference)
        # Killed when the part was in place, which is then not written again.
        recover(path)
        return _read_part(path)

    def put(self, record: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Record what came of a reference; whole or not at all.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        path = self._path(record["reference"])
        try:
            path.parent.mkdir(exist_ok=True)
            with whole_files(path) as place:
                content = json.dumps({**record, "own": dict(own)})
                (place / path.name).write_text(content, encoding="utf-8")
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def records(self, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        """Give every record of these options: of this run in its order, then of others.

        What the user's list says now stands for what it said when the record was made.
        """
        mine = {self._path(entry.reference): entry for entry in entries}
        for path, entry in mine.items():
            if part := _read_part(path):
                yield part | {"own": dict(entry.columns)}
        for path in sorted((self.folder / "parts").glob("??/*.json")):
            part = None if path in mine else _read_part(path)
            if part and self._path(part["reference"]) == path:
                yield part

    def _own(self, entries: Sequence[Entry]) -> dict[str, Kind]:
        """Name the user's columns and their kinds."""
        kinds: dict[str, Kind] = {}
        for record in self.records(entries):
            for name, value in record["own"].items():
                kinds[name] = own_kind(value, kinds.get(name))
        return kinds

    # --- tables -------------------------------------------------------------------------------

    def consolidate(self, entries: Sequence[Entry], about: Mapping[str, Any]) -> dict[str, Any]:
        """Write the tables, the fingerprints, the atlas and ``sweep.json``.

        Memory does not depend on how many records there are, beyond the rows that the atlas shows.

        Returns
        -------
        dict
            The content of ``sweep.json``: with ``counts`` of ``rows``, ``failures`` and
            ``references`` that the files hold, and ``written``, the checksums of some of them.

        Raises
        ------
        OutputError
            If they cannot be written, or somebody changed one of them.
        """
        names = (TABLE, FINGERPRINTS, *OPENED, ABOUT)
        try:
            with self._alone(), whole_files(*(self.folder / name for name in names)) as place:
                self._check_unchanged()
                atlas, counts = self._tables(entries, place)
                with (place / ATLAS).open("w", encoding="utf-8") as file:
                    file.writelines(atlas.page(about, counts, series(place)))
                written = {name: _checksum(place / name) for name in OPENED}
                whole = {**about, "counts": counts, "written": written}
                (place / ABOUT).write_text(_json(whole), encoding="utf-8")
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        return whole

    def _tables(self, entries: Sequence[Entry], place: Path) -> tuple[Atlas, dict[str, int]]:
        """Write the tables and the fingerprints; return what the atlas shows, and the counts."""
        own = self._own(entries)
        atlas, counts = Atlas(own), {"references": 0, "rows": 0, "failures": 0}
        kinds = {**columns(), **{f"{OWN}{name}": kind for name, kind in own.items()}}
        with (
            (place / FAILURES).open("w", encoding="utf-8", newline="") as failed,
            (place / FINGERPRINTS).open("wb") as prints,
            _rows_written(place, kinds, whole=self.all_columns) as add,
        ):
            failures, lineages = csv.writer(failed), Lineages(prints)
            failures.writerow(FAILURE)
            for record in self.records(entries):
                counts["references"] += 1
                counts["rows"] += len(record["rows"])
                counts["failures"] += len(record["failures"])
                # Another sweep into this folder may have brought a column since they were named.
                known = own.keys() & record["own"].keys()
                said = {f"{OWN}{name}": own_value(record["own"][name], own[name]) for name in known}
                rows = [row | said | {"lineage": _lineage(row, lineages)} for row in record["rows"]]
                add(rows)
                atlas.add(rows)
                failures.writerows(
                    [csv_cell(f[name]) for name in FAILURE] for f in record["failures"]
                )
        return atlas, counts


def _lineage(row: dict[str, Any], lineages: Lineages) -> str:
    """Place a row in its lineage."""
    reference, found = str(row.get("reference", "")), read_fingerprint(row.get("fingerprint"))
    return reference if found is None else lineages.place(reference, row.get("name"), found)


@contextmanager
def _rows_written(
    place: Path, kinds: Mapping[str, Kind], *, whole: bool
) -> Iterator[Callable[[Sequence[Mapping[str, Any]]], None]]:
    """Give what adds rows to ``sweep.parquet`` and ``sweep.csv``, some at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    lists = {"strings": pa.list_(pa.string()), "rows": pa.list_(pa.int64())}
    schema = pa.schema(
        [(name, lists.get(kind) or pa.type_for_alias(kind)) for name, kind in kinds.items()]
    )
    chosen = headline_columns(name for name in kinds if name.startswith(OWN))
    shown = [name for name in kinds if whole or name in chosen]
    waiting: list[dict[str, Any]] = []
    with (place / CSV).open("w", encoding="utf-8", newline="") as file:
        cells = csv.writer(file)
        cells.writerow(map(csv_cell, shown))
        table = parquet.ParquetWriter(place / TABLE, schema, compression="zstd")

        def flush() -> None:
            table.write_batch(pa.RecordBatch.from_pylist(waiting, schema=schema))
            waiting.clear()

        def add(rows: Sequence[Mapping[str, Any]]) -> None:
            for row in rows:
                cells.writerow([csv_cell(row.get(name)) for name in shown])
                waiting.append({name: _text(value) for name, value in row.items()})
                if len(waiting) == ROWS:
                    flush()

        try:
            yield add
            flush()
            table.close()
        finally:
            # One that could not be closed would try again, and say so, when it is forgotten.
            table.is_open = False


def csv_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula, and no terminal for a command.

    Numbers, and text that is one, stay what they are.
    """
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    text = _text(plain(value))
    return f"'{text}" if text[:1] in _FORMULA and number_in(text) is None else text


def _text(value: Any) -> Any:
    """Return what UTF-8 can hold: not half a character, out of a name that is not text."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def read_sweep(folder: str | Path) -> pa.Table:
    """Read the table of a sweep: one row per position table and encoding.

    Parameters
    ----------
    folder
        Folder of the sweep, as given to ``--out``.

    Raises
    ------
    UnknownReference
        If there is no such folder, or no finished sweep in it.
    InvalidCheckpoint
        If its table is damaged.
    MissingExtra
        If pyarrow is not installed.

    Examples
    --------
    >>> import posprobe as pp
    >>> sweep = pp.sweep(["rotary:64x16", "alibi:64x4"], engine="threads").run()
    >>> pp.read_sweep(sweep.folder)["scheme"].to_pylist()
    ['rotary', 'alibi']
    """
    return read_columns(Path(folder), None)


def read_columns(folder: Path, names: Sequence[str] | None) -> pa.Table:
    """Read those of some columns of a sweep that it has; None stands for all.

    Raises
    ------
    PosprobeError
        As `read_sweep`.
    """
    need_extra("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    path = expanded(folder) / TABLE
    try:
        with open_regular(path) as file:
            stored = parquet.ParquetFile(file)
            there = stored.schema_arrow.names
            return stored.read(None if names is None else [name for name in names if name in there])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownReference(
            f"{folder}: contains no {TABLE}. Run `posprobe sweep … --out {folder}` to its end."
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise InvalidCheckpoint(
            f"{path}: it is damaged ({str(error)[:80]}). Run the same sweep again to rebuild it."
        ) from error


def _is_sweep(folder: Path, names: Sequence[str]) -> bool:
    # Killed before anything was said: a folder of parts and nothing else.
    visible = [name for name in names if not SCRATCH.fullmatch(name)]
    return visible in ([], ["parts"]) or read_about(folder).get("schema") == SWEEP


def read_about(folder: Path) -> dict[str, Any]:
    """Read ``sweep.json``; empty where it is none."""
    return _read(folder / ABOUT)


def _read(path: Path) -> dict[str, Any]:
    """Read an object of JSON; empty where there is none."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read(LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_part(path: Path) -> dict[str, Any] | None:
    """Read a part; one that is damaged or another's is not there."""
    match part := _read(path):
        case {"reference": str(), "state": str(), "own": dict(), "rows": [*rows],
              "failures": [*failures]}:  # fmt: skip
            whole = all(isinstance(each, dict) for each in (*rows, *failures))
            sound = whole and all(map(is_row, rows))
            return part if sound and all(set(FAILURE) <= set(one) for one in failures) else None
    return None


def _checksum(path: Path) -> str | None:
    """Return the SHA-256 of a file; None of anything else."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{folder}: it cannot be written ({error.strerror or error}). Make room, mend its "
        "permissions, or choose another --out; what is recorded there stays."
    )


#: Steps of a run: fewer make no series.
FEWEST = 3
#: Columns that tell runs and steps apart.
_WHERE = (
    "reference", "resolved", "commit", "tensor", "scheme", "positions", "dim", f"{OWN}step",
    f"{OWN}run",
)  # fmt: skip


#: Where a run lies or what it is called, whether the list calls it so, its tensor and size.
_Key: TypeAlias = tuple[str, bool, str | None, int, int]


def series(folder: str | os.PathLike[str]) -> tuple[Series, ...]:
    """Find the training runs in a sweep.

    Rows are steps of one run where their references lie in one folder or repository (or the column
    ``run`` of the user's list says so), and the tensor and its size are the same. The step is that
    of the column ``step``, or of the reference's last part, such as ``checkpoint-400``. Of several
    rows with one step the first counts. Fewer than three steps are no run.

    Parameters
    ----------
    folder
        Folder of the sweep.

    Returns
    -------
    tuple
        Of `Series`, in the order of the sweep; empty where there is none.

    Raises
    ------
    PosprobeError
        As `posprobe.read_sweep`.

    Examples
    --------
    >>> import posprobe as pp
    >>> sweep = pp.sweep(["sinusoidal:32x8", "sinusoidal:64x8"], nulls=0, engine="threads").run()
    >>> pp.series(sweep.folder)
    ()
    """
    place = Path(folder)
    runs: dict[_Key, dict[int, int]] = {}
    for at, row in enumerate(read_columns(place, _WHERE).to_pylist()):
        step = _step(row)
        if step is not None and row["scheme"] in ("learned", "fixed"):
            where, name = _parts(row)
            # The tensor of a file that holds nothing else is called after the file.
            tensor = None if row["tensor"] == Path(name).stem else row["tensor"]
            given = row.get(f"{OWN}run")
            key = (str(given or where), given is not None, tensor, row["positions"], row["dim"])
            runs.setdefault(key, {}).setdefault(step, at)
    found = {key: steps for key, steps in runs.items() if len(steps) >= FEWEST}
    if not found:
        return ()
    table = read_columns(place, _shown())
    rows = {
        key: table.take([steps[step] for step in sorted(steps)]).to_pylist()
        for key, steps in found.items()
    }
    apart = _from_ends(place, [[row["reference"] for row in run] for run in rows.values()])
    return tuple(
        _series(_called(key, list(found)), sorted(steps), rows[key], apart)
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
    if row["commit"]:
        name = row["reference"].partition("#")[0].partition("@")[2]
        return row["resolved"], name
    path = Path(row["resolved"] or row["reference"])
    return str(path.parent), path.name


def _called(key: _Key, keys: Sequence[_Key]) -> str:
    """Name a run: as the list does, or the last part of its folder; more where that is several."""
    where, _, tensor, positions, dim = key
    short = {other: other if own else Path(other).name or other for other, own, *_ in keys}
    name = short[where] if list(short.values()).count(short[where]) == 1 else where
    if [other for other, *_ in keys].count(where) == 1:
        return name
    return f"{name}, {tensor or 'table'}, {positions} x {dim}"


def _shown() -> list[str]:
    """Name the columns that a series shows."""
    keys = ["reference", SEAMS, *(f"answers.{name}" for name in questions.TABLE)]
    return [*keys, *(f"{key}{end}" for key in compared_numbers() for end in ("", ".sinusoid"))]


def _from_ends(place: Path, runs: Sequence[Sequence[str]]) -> dict[str, tuple[float | None, ...]]:
    """Return the distances of each table of some runs from the first and the last of its run."""
    ends = {reference: (run[0], run[-1]) for run in runs for reference in run}
    found = ((known.get("reference"), each) for known, each in read_fingerprints(place))
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
