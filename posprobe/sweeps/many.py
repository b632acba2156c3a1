"""Sweeps: the records of finished references, the tasks that remain, and the tables.

Each finished reference leaves one record in ``parts/``, written to a scratch file and moved there.
Its name is a digest of the reference, the options and posprobe's version, and it contains the state
of the files that were read. Only these records decide what is computed again, so a sweep can be
killed, repeated, extended and run twice at a time. ``sweep.parquet`` and the other files are built
from the records and can be rebuilt.
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posprobe.blocks import describe_environment
from posprobe.drawable import Card, Displayable, check_pandas
from posprobe.errors import (
    InvalidCheckpoint,
    OutputError,
    PosprobeError,
    UnknownReference,
    UsageError,
    check_installed,
    explain_errors,
)
from posprobe.locks import lock_folder
from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.opening import open_regular
from posprobe.reference import parse_reference
from posprobe.relations.fingerprints import read_fingerprint
from posprobe.report.files import (
    SCRATCH_PATTERN,
    expand_user,
    path_exists,
    recover_leftovers,
    write_atomically,
    write_page,
)
from posprobe.studies.series import Series
from posprobe.studies.table import check_table_request
from posprobe.sweeps.atlas import atlas
from posprobe.sweeps.columns import (
    USER_PREFIX,
    ColumnType,
    columns,
    convert_user_columns,
    headline_columns,
    is_row,
    parse_number,
)
from posprobe.sweeps.references import Entry, drop_repeated, gather
from posprobe.sweeps.search import FINGERPRINT_FILE, Lineages, find_runs
from posprobe.sweeps.workers import (
    Engine,
    Options,
    Task,
    reference_state,
    resolve_engine,
    run_tasks,
)
from posprobe.text import escape_invisible, format_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

#: Name and version of the format of ``sweep.json``.
SWEEP_SCHEMA = "posprobe.sweep/1"
TABLE_FILE = "sweep.parquet"
CSV_FILE = "sweep.csv"
FAILURES_FILE = "failures.csv"
DESCRIPTION_FILE = "sweep.json"
ATLAS_FILE = "atlas.html"
#: Files that users open and may have changed; ``sweep.json`` has their checksums.
USER_FILES = (CSV_FILE, FAILURES_FILE, ATLAS_FILE)
#: Size limit of a record and of ``sweep.json``, in bytes.
MAX_RECORD_BYTES = 2**26
#: First letters of a formula in a spreadsheet.
_FORMULA_PREFIXES = ("=", "+", "-", "@")
#: Columns of ``failures.csv``.
FAILURE_COLUMNS = ("reference", "exit_code", "message")
#: Number of simultaneous requests to the Hub, of all workers together.
MAX_HUB_REQUESTS = 8
#: Time after which a reference is given up.
TIME_LIMIT_SECONDS = 1800.0
POSPROBE_VERSION = version("posprobe")


def _write_table(
    path: Path, rows: Sequence[Mapping[str, Any]], column_types: Mapping[str, ColumnType]
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    list_types = {"strings": pa.list_(pa.string()), "rows": pa.list_(pa.int64())}
    arrow_types = {
        name: list_types.get(column_type) or pa.type_for_alias(column_type)
        for name, column_type in column_types.items()
    }
    schema = pa.schema([*arrow_types.items()])
    encodable_rows = [
        {name: _encodable(value) for name, value in row.items()} for row in rows
    ]
    # The table is written to memory first: a Parquet writer that fails to close its file tries
    # again when it is garbage-collected.
    buffer = pa.BufferOutputStream()
    parquet.write_table(
        pa.Table.from_pylist(encodable_rows, schema), buffer, compression="zstd"
    )
    path.write_bytes(buffer.getvalue())


def _write_csv(
    path: Path, names: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(csv_cell, names))
        writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)


def csv_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula, and no terminal for a command.

    Numbers, and text that reads as a number, stay as they are.
    """
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    text = _encodable(escape_invisible(value))
    return (
        f"'{text}"
        if text[:1] in _FORMULA_PREFIXES and parse_number(text) is None
        else text
    )


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, which come from file names that are not text, as in UTF-8."""
    if isinstance(value, list):
        return [_encodable(element) for element in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def read_sweep(folder: str | os.PathLike[str]) -> pa.Table:
    """Read the table of a sweep: one row per position table and encoding.

    Parameters
    ----------
    folder
        Folder of the sweep.

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
    >>> sweep = pp.sweep(["rotary:64x16", "alibi:64x4"], jobs=1).run()
    >>> pp.read_sweep(sweep.folder)["scheme"].to_pylist()
    ['rotary', 'alibi']
    """
    check_installed("pyarrow", "sweep", "a sweep")
    import pyarrow as pa
    from pyarrow import parquet

    path = expand_user(Path(folder)) / TABLE_FILE
    if not path_exists(path):
        raise UnknownReference(
            f"{folder}: contains no {TABLE_FILE}. Finish the sweep of that folder first."
        )
    advice = "Run the same sweep again to rebuild it."
    read_errors = OSError, pa.ArrowException
    explained = explain_errors(
        InvalidCheckpoint, f"{path}: it is damaged", advice, *read_errors
    )
    with explained, open_regular(path) as file:
        return parquet.ParquetFile(file).read()


def _is_sweep(folder: Path, names: Sequence[str]) -> bool:
    # A sweep that was killed before it wrote ``sweep.json`` leaves only the folder of records.
    visible = [name for name in names if not SCRATCH_PATTERN.fullmatch(name)]
    return (
        visible in ([], ["parts"])
        or read_description(folder).get("schema") == SWEEP_SCHEMA
    )


def read_description(folder: Path) -> dict[str, Any]:
    """Read ``sweep.json``; return an empty dict if there is none."""
    return _read_json(folder / DESCRIPTION_FILE)


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; return an empty dict if there is none."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read(MAX_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_record(path: Path) -> dict[str, Any] | None:
    """Read the record of a reference; return None if it is missing or damaged."""
    record = _read_json(path)
    match record:
        case {
            "reference": str(),
            "state": str(),
            "own": dict(),
            "rows": [*rows],
            "failures": [*failures],
        }:
            are_objects = all(isinstance(element, dict) for element in (*rows, *failures))
        case _:
            return None
    is_valid = (
        are_objects
        and all(map(is_row, rows))
        and all(set(FAILURE_COLUMNS) <= set(failure) for failure in failures)
    )
    return record if is_valid else None


def _checksum(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if the path is not a file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dump_json(document: Mapping[str, Any]) -> str:
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
    >>> sweep = pp.sweep(["sinusoidal:32x8", "sinusoidal:64x8"], nulls=0, jobs=1).run()
    >>> pp.series(sweep.folder)
    ()
    """
    return find_runs(read_sweep(folder).to_pylist(), Path(folder))


#: Columns that the card of a sweep shows: as many as fit into the width of a notebook.
CARD_COLUMNS = ["name", "scheme", "positions", "dim", "summary"]


# --- the sweep --------------------------------------------------------------------------------


@dataclass
class Sweep(Displayable):
    """A sweep over many references, computed when its rows are needed.

    Nothing is computed before `run`, or a method that needs the results, is called.

    Parameters
    ----------
    entries
        References without repetition, with the columns of the user's list.
    folder
        Folder of the results.
    options
        Options that decide the numbers; records of other options belong to another sweep.
    engine
        Workers that compute them.
    all_columns
        Whether ``sweep.csv`` has every column.
    repeated
        Number of repeated references, which are analysed once.
    retry_failed, offline, requests, time_limit, command
        Options as for `posprobe.sweep`.
    about
        Content of ``sweep.json`` after a run; None before it.

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
    requests: int = MAX_HUB_REQUESTS
    time_limit: float = TIME_LIMIT_SECONDS
    command: str | None = None
    about: dict[str, Any] | None = None

    def run(self, advance: Callable[[int], None] = lambda _: None) -> Sweep:
        """Compute what is not recorded yet, and write the tables.

        Parameters
        ----------
        advance
            Function that is called with the number of references that finished since its last call.

        Raises
        ------
        PosprobeError
            If the folder cannot be written, or the workers cannot be reached. Failures of single
            references are recorded and do not raise.
        """
        description = self._describe()
        self._prepare_folder(description)
        start_time, counts = time.monotonic(), {"computed": 0, "failed": 0, "recorded": 0}
        user_columns = {entry.reference: entry.columns for entry in self.entries}

        def tasks() -> Iterator[Task]:
            for entry in self.entries:
                task = self._prepare_task(entry, counts)
                if task is None:
                    counts["recorded"] += 1
                    advance(1)
                else:
                    yield task

        for record in run_tasks(tasks(), self.engine, self.time_limit):
            reference = record["reference"]
            if record.get("unchanged"):
                counts["recorded"] += 1
            else:
                self._save_record(record, user_columns[reference])
                counts["computed"] += 1
                counts["failed"] += bool(record["failures"])
            advance(1)
        run_counts: dict[str, float] = {
            **counts,
            "references": len(self.entries),
            "repeated": self.repeated,
        }
        run_counts["seconds"] = round(time.monotonic() - start_time, 3)
        description |= {"finished": True, "run": run_counts}
        self.about = self._write_tables(description)
        return self

    def _describe(self) -> dict[str, Any]:
        return {
            "schema": SWEEP_SCHEMA,
            "finished": False,
            "options": asdict(self.options),
            "engine": asdict(self.engine) | {"requests": self.requests},
            "environment": dict(describe_environment("cpu", 0, self.command)),
        }

    def _prepare_task(self, entry: Entry, counts: dict[str, int]) -> Task | None:
        """Return the task of a reference; None if its result is recorded already."""
        record = self._read_recorded(entry.reference)
        if record and record["failures"] and self.retry_failed:
            record = None
        recorded_state = record["state"] if record else None
        try:
            state = reference_state(parse_reference(entry.reference))
        except PosprobeError:
            state = ""  # the reference names nothing, and is a failure
        # A refusal of the Hub is recorded with the state "", and the Hub is not asked again.
        if record and recorded_state == (state or ""):
            counts["failed"] += bool(record["failures"])
            return None
        return Task(
            entry.reference,
            self.options,
            recorded_state,
            self.folder / "bundles",
            (self.folder / "requests", self.requests),
            self.offline,
            self.time_limit,
        )

    def failures(self) -> list[dict[str, Any]]:
        """Return the failures of these references: reference, exit code and message."""
        self._ensure_run()
        return [
            failure
            for entry in self.entries
            for failure in (self._read_recorded(entry.reference) or {"failures": ()})[
                "failures"
            ]
        ]

    def to_arrow(self) -> pa.Table:
        """Return the rows of the folder as a pyarrow table."""
        self._ensure_run()
        return read_sweep(self.folder)

    def to_pandas(self) -> Any:
        """Return the rows of the folder as a pandas data frame.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        check_pandas()
        return self.to_arrow().to_pandas()

    def _prepare_folder(self, description: Mapping[str, Any]) -> None:
        """Create the folder, or resume the sweep in it; refuse a folder with other files."""
        with self._explain_write_errors():
            if path_exists(self.folder) and not self.folder.is_dir():
                raise OutputError(f"{self.folder}: not a folder. Choose another (`out`).")
            names = sorted(path.name for path in self.folder.glob("*"))
            if not _is_sweep(self.folder, names):
                raise OutputError(
                    f"{self.folder}: not a sweep's folder: it holds "
                    f"{', '.join(names[:4])}. Choose another (`out`)."
                )
            (self.folder / "parts").mkdir(parents=True, exist_ok=True)
            with self._lock_folder():
                recover_leftovers(self.folder / TABLE_FILE)
                self._check_unchanged()
                if not (self.folder / DESCRIPTION_FILE).exists():
                    write_page(self.folder / DESCRIPTION_FILE, _dump_json(description))

    def _explain_write_errors(self) -> AbstractContextManager[None]:
        return explain_errors(
            OutputError,
            f"{self.folder}: it cannot be written",
            "Make room, mend its permissions, or choose another folder (`out`); what "
            "is recorded there stays.",
            OSError,
        )

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Hold the lock under which sweeps write tables into the folder."""
        with ExitStack() as stack:
            with suppress(OSError):  # the file system has no locks
                stack.callback(lock_folder(self.folder / "parts", waits=True))
            yield

    def _check_unchanged(self) -> None:
        """Refuse to overwrite files that the user changed."""
        written = read_description(self.folder).get("written", {})
        for name in USER_FILES:
            path = self.folder / name
            if path_exists(path) and _checksum(path) != written.get(name):
                raise OutputError(
                    f"{path}: changed since the sweep wrote it, and would "
                    "be lost. Move it away, then run the same command: "
                    "nothing is computed twice."
                )

    # --- records ------------------------------------------------------------------------------

    def _record_path(self, reference: str) -> Path:
        text = json.dumps([reference, asdict(self.options), POSPROBE_VERSION])
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self.folder / "parts" / key[:2] / f"{key}.json"

    def _read_recorded(self, reference: str) -> dict[str, Any] | None:
        """Return the record of a reference, if there is one."""
        path = self._record_path(reference)
        # A sweep that was killed during the exchange of files may have left the old one aside.
        recover_leftovers(path)
        return _read_record(path)

    def _save_record(
        self, record: Mapping[str, Any], user_columns: Mapping[str, Any]
    ) -> None:
        """Write the record of a reference, completely or not at all."""
        path = self._record_path(record["reference"])
        with self._explain_write_errors():
            path.parent.mkdir(exist_ok=True)
            with write_atomically(path) as scratch:
                content = json.dumps({**record, "own": dict(user_columns)})
                (scratch / path.name).write_text(content, encoding="utf-8")

    def _iterate_records(self) -> Iterator[dict[str, Any]]:
        """Yield the records of these options: those of this run in its order, then others.

        The columns of the user's list replace those that were recorded with a reference.
        """
        entries_by_path = {
            self._record_path(entry.reference): entry for entry in self.entries
        }
        for path, entry in entries_by_path.items():
            if record := _read_record(path):
                yield record | {"own": dict(entry.columns)}
        for path in sorted((self.folder / "parts").glob("??/*.json")):
            record = None if path in entries_by_path else _read_record(path)
            if record and self._record_path(record["reference"]) == path:
                yield record

    # --- tables -------------------------------------------------------------------------------

    def _write_tables(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Write the tables, the fingerprints, the atlas and ``sweep.json``, which is returned."""
        names = (TABLE_FILE, FINGERPRINT_FILE, *USER_FILES, DESCRIPTION_FILE)
        with (
            self._explain_write_errors(),
            self._lock_folder(),
            write_atomically(*(self.folder / name for name in names)) as scratch,
        ):
            self._check_unchanged()
            rows, failures, references = self._collect_rows(scratch / FINGERPRINT_FILE)
            counts = {
                "references": references,
                "rows": len(rows),
                "failures": len(failures),
            }
            user_types = convert_user_columns(rows)
            column_types = {**columns(), **user_types}
            _write_table(scratch / TABLE_FILE, rows, column_types)
            selected = column_types if self.all_columns else headline_columns(user_types)
            csv_columns = [name for name in column_types if name in selected]
            _write_csv(scratch / CSV_FILE, csv_columns, rows)
            _write_csv(scratch / FAILURES_FILE, FAILURE_COLUMNS, failures)
            runs = find_runs(rows, scratch)
            with (scratch / ATLAS_FILE).open("w", encoding="utf-8") as file:
                file.writelines(atlas(rows, user_types, description, counts, runs))
            written = {name: _checksum(scratch / name) for name in USER_FILES}
            full_description = {**description, "counts": counts, "written": written}
            (scratch / DESCRIPTION_FILE).write_text(
                _dump_json(full_description), encoding="utf-8"
            )
        return full_description

    def _collect_rows(
        self, fingerprint_path: Path
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
        """Write the fingerprints; return all rows, all failures, and the number of references."""
        rows: list[dict[str, Any]] = []
        failures: list[dict[str, Any]] = []
        references = 0
        with fingerprint_path.open("wb") as file:
            lineages = Lineages(file)
            for record in self._iterate_records():
                references += 1
                failures += record["failures"]
                user_values = {
                    f"{USER_PREFIX}{name}": value for name, value in record["own"].items()
                }
                for row in record["rows"]:
                    fingerprint = read_fingerprint(row.pop("fingerprint", None))
                    lineage = row["reference"]
                    if fingerprint:
                        lineage = lineages.assign(lineage, row.get("name"), fingerprint)
                    rows.append(row | user_values | {"lineage": lineage})
        return rows, failures, references

    def _ensure_run(self) -> None:
        if self.about is None:
            self.run()

    def _card(self) -> Card:
        facts: dict[str, object] = {
            "references": len(self.entries),
            "folder": self.folder,
            "failures": "not run yet",
        }
        if self.about is None:
            return Card("Sweep", facts)
        facts["failures"] = self.about["counts"]["failures"]
        rows = self.to_arrow().select(CARD_COLUMNS).to_pylist()
        lines = [{key: format_cell(value) for key, value in row.items()} for row in rows]
        return Card("Sweep", facts, lines=lines)

    def __repr__(self) -> str:
        """Return the number of references, the state and the folder."""
        state = (
            "not run yet"
            if self.about is None
            else f"{self.about['counts']['rows']} rows"
        )
        return f"Sweep({len(self.entries)} references, {state}, {self.folder})"


def sweep(
    references: str
    | os.PathLike[str]
    | Iterable[str | os.PathLike[str] | Mapping[str, Any] | Entry],
    *,
    out: str | os.PathLike[str] | None = None,
    revisions: str | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    rows: slice | None = None,
    bundles: bool = False,
    all_columns: bool = False,
    retry_failed: bool = False,
    revision: str | None = None,
    offline: bool = False,
    requests: int = MAX_HUB_REQUESTS,
    time_limit: float = TIME_LIMIT_SECONDS,
    command: str | None = None,
) -> Sweep:
    """Analyse many references, each as `posprobe analyze` does, into one table.

    An existing sweep in ``out`` is resumed. This needs the extra ``sweep``.

    Parameters
    ----------
    references
        References as for `posprobe.load`; folders stand for all checkpoints below them; mappings
        have a ``reference``, and their other items are columns of the result. Repeated references
        are analysed once.
    out
        Folder of the results; None is a temporary one that is deleted with the sweep.
    revisions
        Pattern of the branches, tags and commits of one Hub repository, such as ``step*``.
    jobs
        Number of worker processes; None for one per core, which is also the maximum.
    scheduler
        Address of a Dask scheduler, whose workers are used instead.
    only
        Names of the analyses of tables, as for `posprobe.analyze`; schemes get all of theirs.
    nulls
        Number of random tables per baseline, in the reports of ``bundles``; the table of the sweep
        holds no baselines.
    rows
        Positions to keep of each table, without a step.
    bundles
        Whether to write a report for each table, too.
    all_columns
        Whether to write every column to ``sweep.csv``, not the 40 most useful ones;
        ``sweep.parquet`` has all.
    retry_failed
        Whether to try failed references again.
    revision, offline
        Options as for `posprobe.load`.
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
    engine = resolve_engine(jobs, scheduler)
    options = _make_options(only, nulls, rows, revision, bundles)
    if requests < 1:
        raise UsageError(f"requests {requests}: it is 1 or more.")
    if not time_limit > 0:
        raise UsageError(f"a time limit of {time_limit} seconds leaves nothing to do.")
    requested = (
        [references] if isinstance(references, str | os.PathLike) else list(references)
    )
    named_entries = gather(requested, revisions, offline=offline)
    entries = drop_repeated(named_entries)
    folder = Path(tempfile.mkdtemp(prefix="posprobe-sweep-") if out is None else out)
    prepared = Sweep(
        tuple(entries),
        expand_user(folder),
        options,
        engine,
        all_columns=all_columns,
        repeated=len(named_entries) - len(entries),
        retry_failed=retry_failed,
        offline=offline,
        requests=requests,
        time_limit=time_limit,
        command=command,
    )
    if out is None:
        weakref.finalize(prepared, shutil.rmtree, folder, ignore_errors=True)
    return prepared


def _make_options(
    only: Iterable[str] | None,
    nulls: int,
    rows: slice | None,
    revision: str | None,
    bundles: bool,
) -> Options:
    names = (only,) if isinstance(only, str) else only
    requested = None if names is None else tuple(dict.fromkeys(names))
    check_table_request(requested, nulls, "cpu")
    if requested == ():
        raise UsageError(
            f"no analysis is chosen. Choose from {', '.join(TABLE_MEASUREMENTS)}."
        )
    if rows is not None and rows.step not in (None, 1):
        raise UsageError("rows must be neighbours: a slice without a step.")
    bounds = None if rows is None else (rows.start, rows.stop)
    # Sorted, as the order of the analyses changes no number.
    sorted_names = None if requested is None else tuple(sorted(requested))
    return Options(sorted_names, nulls if bundles else 0, bounds, revision, bundles)
