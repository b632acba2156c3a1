"""A sweep as a whole: what is recorded, what is left to do, and the tables made of it.

Each reference that was finished leaves one file in ``parts/``, written beside its place and moved
there, whose name is a digest of the reference, the options and posprobe's version; it says the
state of what was read. Nothing else decides what is computed again, so that a sweep can be killed,
repeated, extended and run twice at a time. ``sweep.parquet`` and the rest are made of the parts and
can be made again.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posprobe.blocks import environment
from posprobe.errors import (
    InvalidCheckpoint,
    MissingExtra,
    OutputError,
    PosprobeError,
    UnknownReference,
    UsageError,
    check_installed,
    explain_errors,
)
from posprobe.measurements import TABLE as MEASUREMENTS
from posprobe.opening import open_regular
from posprobe.reference import parse_reference
from posprobe.relations.fingerprints import read_fingerprint
from posprobe.report.files import SCRATCH, expanded, recover, there, whole_files, write_page
from posprobe.studies.series import Series
from posprobe.studies.table import check_request
from posprobe.sweeps.atlas import atlas
from posprobe.sweeps.columns import (
    OWN,
    Kind,
    columns,
    headline_columns,
    is_row,
    number_in,
    typed_own,
)
from posprobe.sweeps.references import Entry, gather, once
from posprobe.sweeps.search import FINGERPRINTS, Lineages, runs_of
from posprobe.sweeps.workers import Engine, Options, Task, checked, outcomes, state_of
from posprobe.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

#: Names the format of ``sweep.json``.
SWEEP = "posprobe.sweep/1"
TABLE, CSV, FAILURES, ABOUT = "sweep.parquet", "sweep.csv", "failures.csv", "sweep.json"
ATLAS = "atlas.html"
#: What people open, and may have changed: ``sweep.json`` says what was written.
OPENED = (CSV, FAILURES, ATLAS)
#: Longest part and description that are read, in bytes.
LONGEST = 2**26
#: What begins a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@")
#: Columns of ``failures.csv``.
FAILURE = ("reference", "exit_code", "message")
#: Requests to a hub at once, by all workers together.
REQUESTS = 8
#: Seconds after which a reference is given up.
TIME_LIMIT = 1800.0
VERSION = version("posprobe")


def _write_table(path: Path, rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, Kind]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    lists = {"strings": pa.list_(pa.string()), "rows": pa.list_(pa.int64())}
    schema = pa.schema(
        [(name, lists.get(kind) or pa.type_for_alias(kind)) for name, kind in kinds.items()]
    )
    sound = [{name: _text(value) for name, value in row.items()} for row in rows]
    # In memory first: a writer that cannot close its file would try again when it is forgotten.
    made = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(sound, schema), made, compression="zstd")
    path.write_bytes(made.getvalue())


def _write_csv(path: Path, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        cells = csv.writer(file)
        cells.writerow(map(csv_cell, names))
        cells.writerows([csv_cell(row.get(name)) for name in names] for row in rows)


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


def read_sweep(folder: str | os.PathLike[str]) -> pa.Table:
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
    check_installed("pyarrow", "sweep", "a sweep")
    import pyarrow as pa
    from pyarrow import parquet

    path = expanded(Path(folder)) / TABLE
    if not there(path):
        raise UnknownReference(
            f"{folder}: contains no {TABLE}. Run `posprobe sweep … --out {folder}` to its end."
        )
    advice = "Run the same sweep again to rebuild it."
    wrong = OSError, pa.ArrowException
    damaged = explain_errors(InvalidCheckpoint, f"{path}: it is damaged", advice, *wrong)
    with damaged, open_regular(path) as file:
        return parquet.ParquetFile(file).read()


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
    return runs_of(read_sweep(folder).to_pylist(), Path(folder))


# --- the sweep --------------------------------------------------------------------------------


@dataclass
class Sweep:
    """A sweep over many references, computed when its rows are needed.

    Nothing is computed before `run`, or whatever needs the results, is called.

    Parameters
    ----------
    entries
        The references, each once, with the user's own columns.
    folder
        Where everything lies.
    options
        What decides the numbers: what is recorded of other options is another sweep's.
    engine
        Where they are computed.
    all_columns
        Whether ``sweep.csv`` has every column.
    repeated
        References that were named more than once, and are analysed once.
    retry_failed, offline, requests, time_limit, command
        As for `posprobe.sweep`.
    about
        After a run, the content of ``sweep.json``.

    Examples
    --------
    >>> import posprobe as pp
    >>> sweep = pp.sweep(["sample:digits-vit"], only=["norms"], nulls=0)
    >>> sweep.entries[0].reference
    'sample:digits-vit'
    """

    entries: tuple[Entry, ...]
    folder: Path
    options: Options
    engine: Engine
    all_columns: bool = False
    repeated: int = 0
    retry_failed: bool = False
    offline: bool = False
    requests: int = REQUESTS
    time_limit: float = TIME_LIMIT
    command: str | None = None
    about: dict[str, Any] | None = None

    def run(self, more: Callable[[int], None] = lambda _: None) -> Sweep:
        """Compute what is not recorded yet, and write the tables.

        Parameters
        ----------
        more
            Takes how many more references are done.

        Raises
        ------
        PosprobeError
            If the folder cannot be written, or the workers cannot be reached. What is wrong with a
            reference is recorded, and raises nothing.
        """
        about = self._about()
        self._begin(about)
        began, counts = time.monotonic(), {"computed": 0, "failed": 0, "recorded": 0}
        own = {entry.reference: entry.columns for entry in self.entries}

        def tasks() -> Iterator[Task]:
            for entry in self.entries:
                task = self._task(entry, counts)
                if task is None:
                    counts["recorded"] += 1
                    more(1)
                else:
                    yield task

        for record in outcomes(tasks(), self.engine, self.time_limit):
            reference = record["reference"]
            if record.get("unchanged"):
                counts["recorded"] += 1
            else:
                self._put(record, own[reference])
                counts["computed"] += 1
                counts["failed"] += bool(record["failures"])
            more(1)
        run: dict[str, float] = {
            **counts,
            "references": len(self.entries),
            "repeated": self.repeated,
        }
        run["seconds"] = round(time.monotonic() - began, 3)
        about |= {"finished": True, "run": run}
        self.about = self._consolidate(about)
        return self

    def _about(self) -> dict[str, Any]:
        return {
            "schema": SWEEP,
            "finished": False,
            "options": asdict(self.options),
            "engine": asdict(self.engine) | {"requests": self.requests},
            "environment": dict(environment("cpu", 0, self.command)),
        }

    def _task(self, entry: Entry, counts: dict[str, int]) -> Task | None:
        """Return what is left to do for a reference; None where all is recorded."""
        record = self._recorded(entry.reference)
        if record and record["failures"] and self.retry_failed:
            record = None
        known = record["state"] if record else None
        try:
            state = state_of(parse_reference(entry.reference))
        except PosprobeError:
            state = ""  # it names nothing, and is a failure
        # A hub, which has no state here, is not asked again about what it refused.
        if record and known == (state or ""):
            counts["failed"] += bool(record["failures"])
            return None
        return Task(
            entry.reference, self.options, known, self.folder / "bundles",
            (self.folder / "requests", self.requests), self.offline, self.time_limit,
        )  # fmt: skip

    def failures(self) -> list[dict[str, Any]]:
        """Return what failed of these references: reference, exit code and message."""
        self._done()
        return [
            failure
            for entry in self.entries
            for failure in (self._recorded(entry.reference) or {"failures": ()})["failures"]
        ]

    def to_arrow(self) -> pa.Table:
        """Return the rows of the folder as a table of pyarrow."""
        self._done()
        return read_sweep(self.folder)

    def to_pandas(self) -> Any:
        """Return the rows of the folder as a data frame of pandas.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        if find_spec("pandas") is None:
            raise MissingExtra("a data frame of pandas needs it: pip install pandas.")
        return self.to_arrow().to_pandas()

    def _begin(self, about: Mapping[str, Any]) -> None:
        """Make the folder, or take it over where it is a sweep's and nothing else is in it."""
        with self._writing():
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

    def _writing(self) -> AbstractContextManager[None]:
        return explain_errors(
            OutputError,
            f"{self.folder}: it cannot be written",
            "Make room, mend its permissions, or choose another --out; what is recorded there "
            "stays.",
            OSError,
        )

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

    def _path(self, reference: str) -> Path:
        text = json.dumps([reference, asdict(self.options), VERSION])
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self.folder / "parts" / key[:2] / f"{key}.json"

    def _recorded(self, reference: str) -> dict[str, Any] | None:
        """Return what was recorded of a reference."""
        path = self._path(reference)
        # Killed when the part was in place, which is then not written again.
        recover(path)
        return _read_part(path)

    def _put(self, record: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Record what came of a reference; whole or not at all."""
        path = self._path(record["reference"])
        with self._writing():
            path.parent.mkdir(exist_ok=True)
            with whole_files(path) as place:
                content = json.dumps({**record, "own": dict(own)})
                (place / path.name).write_text(content, encoding="utf-8")

    def _records(self) -> Iterator[dict[str, Any]]:
        """Give every record of these options: of this run in its order, then of others.

        What the user's list says now stands for what it said when the record was made.
        """
        mine = {self._path(entry.reference): entry for entry in self.entries}
        for path, entry in mine.items():
            if part := _read_part(path):
                yield part | {"own": dict(entry.columns)}
        for path in sorted((self.folder / "parts").glob("??/*.json")):
            part = None if path in mine else _read_part(path)
            if part and self._path(part["reference"]) == path:
                yield part

    # --- tables -------------------------------------------------------------------------------

    def _consolidate(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Write the tables, the fingerprints, the atlas and ``sweep.json``, which is returned."""
        names = (TABLE, FINGERPRINTS, *OPENED, ABOUT)
        with (
            self._writing(),
            self._alone(),
            whole_files(*(self.folder / name for name in names)) as place,
        ):
            self._check_unchanged()
            rows, failures, references = self._collected(place / FINGERPRINTS)
            counts = {"references": references, "rows": len(rows), "failures": len(failures)}
            own = typed_own(rows)
            kinds = {**columns(), **own}
            _write_table(place / TABLE, rows, kinds)
            chosen = kinds if self.all_columns else headline_columns(own)
            _write_csv(place / CSV, [name for name in kinds if name in chosen], rows)
            _write_csv(place / FAILURES, FAILURE, failures)
            with (place / ATLAS).open("w", encoding="utf-8") as file:
                file.writelines(atlas(rows, own, about, counts, runs_of(rows, place)))
            written = {name: _checksum(place / name) for name in OPENED}
            whole = {**about, "counts": counts, "written": written}
            (place / ABOUT).write_text(_json(whole), encoding="utf-8")
        return whole

    def _collected(self, prints: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
        """Write the fingerprints; return all rows, all failures, and the number of references."""
        rows: list[dict[str, Any]] = []
        failures: list[dict[str, Any]] = []
        references = 0
        with prints.open("wb") as file:
            lineages = Lineages(file)
            for record in self._records():
                references += 1
                failures += record["failures"]
                own = {f"{OWN}{name}": value for name, value in record["own"].items()}
                for row in record["rows"]:
                    found = read_fingerprint(row.pop("fingerprint", None))
                    reference, name = row["reference"], row.get("name")
                    lineage = lineages.place(reference, name, found) if found else reference
                    rows.append(row | own | {"lineage": lineage})
        return rows, failures, references

    def _done(self) -> None:
        if self.about is None:
            self.run()

    def __repr__(self) -> str:
        """Say how many references there are, and where results go."""
        state = "not run yet" if self.about is None else f"{self.about['counts']['rows']} rows"
        return f"Sweep({len(self.entries)} references, {state}, {self.folder})"


def sweep(
    references: str
    | os.PathLike[str]
    | Iterable[str | os.PathLike[str] | Mapping[str, Any] | Entry],
    *,
    out: str | os.PathLike[str] | None = None,
    revisions: str | None = None,
    jobs: int | None = None,
    engine: str = "processes",
    scheduler: str | None = None,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    rows: slice | None = None,
    bundles: bool = False,
    all_columns: bool = False,
    retry_failed: bool = False,
    revision: str | None = None,
    offline: bool = False,
    requests: int = REQUESTS,
    time_limit: float = TIME_LIMIT,
    command: str | None = None,
) -> Sweep:
    """Analyse many references, each as `posprobe analyze` does, into one table.

    An existing sweep in ``out`` is resumed. This needs the extra ``sweep``.

    Parameters
    ----------
    references
        Whatever `posprobe.load` takes; folders stand for all checkpoints below them; mappings have
        a ``reference``, and their other items are columns of the result. One that is given twice
        is analysed once.
    out
        Folder of the results; None is a temporary one that goes with the sweep.
    revisions
        With one Hub repository: which of its branches, tags and commits, such as ``step*``.
    jobs
        Number of workers; None for one per core, which is also the maximum.
    engine
        ``processes`` or ``threads`` of this machine.
    scheduler
        Address of a Dask scheduler, whose workers are taken instead.
    only
        As for `posprobe.analyze`; an encoding without a table is measured by what it has.
    nulls
        As for `posprobe.analyze`, in the reports of ``bundles``; the table holds no baselines.
    rows
        Positions to keep of each table, without a step.
    bundles
        Write a report for each table, too.
    all_columns
        Write every column to ``sweep.csv``, not the 40 most useful ones; ``sweep.parquet`` has all.
    retry_failed
        Try failed references again.
    revision, offline
        As for `posprobe.load`.
    requests
        Largest number of simultaneous requests to the Hub.
    time_limit
        Seconds after which no further stage of a reference begins: it is recorded as failed.
    command
        Command line to record.

    Raises
    ------
    UsageError
        If there is nothing to sweep, a reference is given twice with other columns, or an option
        cannot mean anything.
    MissingExtra
        If the extra is not installed.

    Examples
    --------
    >>> import posprobe as pp
    >>> sweep = pp.sweep(["sinusoidal:64x16", "rotary:64x16"], nulls=0)
    >>> len(sweep.entries)
    2
    """
    ready = checked(engine, jobs, scheduler)
    options = _options(only, nulls, rows, revision, bundles)
    if requests < 1:
        raise UsageError(f"requests {requests}: it is 1 or more.")
    if not time_limit > 0:
        raise UsageError(f"a time limit of {time_limit} seconds leaves nothing to do.")
    given = [references] if isinstance(references, str | os.PathLike) else list(references)
    found = gather(given, revisions, offline=offline)
    entries = once(found)
    repeated = len(found) - len(entries)
    place = Path(tempfile.mkdtemp(prefix="posprobe-sweep-") if out is None else out)
    made = Sweep(
        tuple(entries), expanded(place), options, ready, all_columns, repeated, retry_failed,
        offline, requests, time_limit, command,
    )  # fmt: skip
    if out is None:
        weakref.finalize(made, shutil.rmtree, place, ignore_errors=True)
    return made


def _options(
    only: Iterable[str] | None, nulls: int, rows: slice | None, revision: str | None, bundles: bool
) -> Options:
    names = (only,) if isinstance(only, str) else only
    chosen = None if names is None else tuple(dict.fromkeys(names))
    check_request(chosen, nulls, "cpu")
    if chosen == ():
        raise UsageError(f"no analysis is chosen. Choose from {', '.join(MEASUREMENTS)}.")
    if rows is not None and rows.step not in (None, 1):
        raise UsageError("rows must be neighbours: a slice without a step.")
    bounds = None if rows is None else (rows.start, rows.stop)
    # Their order changes nothing.
    ordered = None if chosen is None else tuple(sorted(chosen))
    return Options(ordered, nulls if bundles else 0, bounds, revision, bundles)
