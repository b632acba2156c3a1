"""The folder of a sweep: one small file per reference, and the tables made of them.

``parts/`` only ever grows: each reference that was finished leaves one file, written beside its
place and moved there, whose name is a digest of the reference, the options, posprobe's version and
the state of what was read. Nothing else decides what is computed again, so that a sweep can be
killed, repeated, extended and run twice at a time. ``sweep.parquet`` and the rest are made of the
parts and can be made again.

Whoever shows a sweep (an atlas, a series of steps, the nearest tables) begins with `read_sweep`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posprobe.errors import InvalidCheckpoint, MissingExtra, OutputError, UnknownReference
from posprobe.report.files import expanded, there, whole_files
from posprobe.sweeps.atlas import Atlas
from posprobe.sweeps.columns import (
    OWN,
    Kind,
    columns,
    headline_columns,
    own_kind,
    own_value,
)
from posprobe.sweeps.fingerprints import read_fingerprint
from posprobe.sweeps.lineages import Lineages
from posprobe.sweeps.references import Entry
from posprobe.sweeps.search import FINGERPRINTS

if TYPE_CHECKING:
    import pyarrow as pa

    from posprobe.sweeps.task import Options

#: Names the format of ``sweep.json``.
SWEEP = "posprobe.sweep/1"
TABLE, CSV, FAILURES, ABOUT = "sweep.parquet", "sweep.csv", "failures.csv", "sweep.json"
ATLAS = "atlas.html"
#: Rows that are in memory at a time.
ROWS = 256
#: Longest part and description that are read, in bytes.
LONGEST = 2**26
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

    @property
    def bundles(self) -> Path:
        """Where whole bundles are written."""
        return self.folder / "bundles"

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
            names = _names(self.folder) if there(self.folder) else []
            if names and not _is_sweep(self.folder):
                raise OutputError(
                    f"{self.folder}: not a sweep's folder: it holds {', '.join(names[:4])}. "
                    "Choose another --out."
                )
            (self.folder / "parts").mkdir(parents=True, exist_ok=True)
            if not (self.folder / ABOUT).exists():
                _write(self.folder / ABOUT, _json(about))
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    # --- parts --------------------------------------------------------------------------------

    @cached_property
    def _decisive(self) -> list[Any]:
        # Bundles are in the options: a part without one cannot stand for it.
        return [asdict(self.options), version("posprobe")]

    def _key(self, reference: str) -> str:
        return _digest(json.dumps([reference, *self._decisive]))

    def recorded(self, reference: str) -> list[dict[str, Any]]:
        """Return what was recorded of a reference, one record for each state, the newest last."""
        key = self._key(reference)
        found = []
        with suppress(FileNotFoundError), os.scandir(self.folder / "parts" / key[:2]) as entries:
            for entry in entries:
                if entry.name.startswith(f"{key}-") and entry.name.endswith(".json"):
                    with suppress(FileNotFoundError):
                        found.append((entry.stat().st_mtime_ns, Path(entry.path)))
        parts = (_read_part(path) for _, path in sorted(found))
        return [part for part in parts if part is not None]

    def renew(self, reference: str, state: str) -> None:
        """Make a record the newest: what it was made of is what the reference leads to again."""
        with suppress(OSError):
            self._path(reference, state).touch()

    def _path(self, reference: str, state: str) -> Path:
        key = self._key(reference)
        return self.folder / "parts" / key[:2] / f"{key}-{_digest(state)[:16]}.json"

    def put(self, record: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Record what came of a reference; whole or not at all.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        path = self._path(record["reference"], record["state"])
        try:
            path.parent.mkdir(exist_ok=True)
            _write(path, json.dumps({**record, "own": dict(own)}))
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def _others(self, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        """Give what other runs with these options recorded, in the order of their keys."""
        known = {self._key(entry.reference) for entry in entries}
        keys: dict[str, list[Path]] = {}
        for path in (self.folder / "parts").glob("??/*.json"):
            key = path.name.partition("-")[0]
            if key not in known:
                keys.setdefault(key, []).append(path)
        for key, paths in sorted(keys.items()):
            newest = max(paths, key=lambda path: path.stat().st_mtime_ns)
            part = _read_part(newest)
            if part is not None and self._key(part["reference"]) == key:
                yield part

    def records(self, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        """Give every record of these options: of this run in its order, then of others.

        What the user's list says now stands for what it said when the record was made.
        """
        for entry in entries:
            for part in self.recorded(entry.reference)[-1:]:
                yield part | {"own": dict(entry.columns)}
        yield from self._others(entries)

    def _own(self, entries: Sequence[Entry]) -> dict[str, Kind]:
        """Name the user's columns and their kinds."""
        kinds: dict[str, Kind] = {}
        others = (part["own"] for part in self._others(entries))
        for own in chain((entry.columns for entry in entries), others):
            for name, value in own.items():
                kinds[name] = own_kind([value], kinds.get(name))
        return kinds

    # --- tables -------------------------------------------------------------------------------

    def consolidate(self, entries: Sequence[Entry], about: Mapping[str, Any]) -> dict[str, int]:
        """Write the tables, the fingerprints, ``sweep.json`` and the atlas.

        Memory does not depend on how many records there are, beyond the rows that the atlas shows.

        Returns
        -------
        dict
            ``rows``, ``failures`` and ``references`` that the files hold.

        Raises
        ------
        OutputError
            If they cannot be written.
        """
        from posprobe.sweeps.runs import series

        names = (TABLE, CSV, FAILURES, ABOUT, ATLAS, FINGERPRINTS)
        targets = [self.folder / name for name in names]
        try:
            with whole_files(*targets) as place:
                atlas, counts = self._tables(entries, place)
                (place / ABOUT).write_text(_json({**about, "counts": counts}), encoding="utf-8")
                with (place / ATLAS).open("w", encoding="utf-8") as file:
                    file.writelines(atlas.page(about, counts, series(place)))
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        return counts

    def _tables(self, entries: Sequence[Entry], place: Path) -> tuple[Atlas, dict[str, int]]:
        """Write the tables and the fingerprints; return what the atlas shows, and the counts."""
        own = self._own(entries)
        atlas, counts = Atlas(own), {"references": 0, "rows": 0, "failures": 0}
        failed = (place / FAILURES).open("w", encoding="utf-8", newline="")
        prints = (place / FINGERPRINTS).open("w+b")
        with _Tables(place, own, all_columns=self.all_columns) as tables, failed, prints:
            failures, lineages = csv.writer(failed), Lineages(prints)
            failures.writerow(FAILURE)
            for record in self.records(entries):
                counts["references"] += 1
                counts["rows"] += len(record["rows"])
                counts["failures"] += len(record["failures"])
                for row in record["rows"]:
                    row["lineage"] = _lineage(row, lineages)
                tables.add(record["rows"], record["own"])
                atlas.add(record["rows"], record["own"])
                failures.writerows([f[name] for name in FAILURE] for f in record["failures"])
        return atlas, counts


def _lineage(row: dict[str, Any], lineages: Lineages) -> str:
    """Place a row in its lineage, and take what is kept of its table out of it."""
    reference, found = str(row.get("reference", "")), read_fingerprint(row.pop("fingerprint", None))
    return reference if found is None else lineages.place(reference, row.get("name"), found)


class _Tables:
    """``sweep.parquet`` and ``sweep.csv``, written some rows at a time."""

    def __init__(self, place: Path, own: Mapping[str, Kind], *, all_columns: bool) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self.own = own
        kinds = {**columns(), **{f"{OWN}{name}": kind for name, kind in own.items()}}
        self.kinds, self.types = kinds, {name: _arrow_type(kind) for name, kind in kinds.items()}
        self.schema = pa.schema(self.types.items())
        self.parquet = parquet.ParquetWriter(place / TABLE, self.schema, compression="zstd")
        self.file = (place / CSV).open("w", encoding="utf-8", newline="")
        chosen = kinds if all_columns else headline_columns(f"{OWN}{name}" for name in own)
        self.csv = csv.DictWriter(self.file, [name for name in kinds if name in chosen])
        self.csv.writeheader()
        self.waiting: list[dict[str, Any]] = []

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self.parquet.close()
        self.file.close()

    def add(self, rows: Iterable[Mapping[str, Any]], own: Mapping[str, Any]) -> None:
        """Add rows with the user's columns of their reference."""
        said = {f"{OWN}{name}": own_value(value, self.own[name]) for name, value in own.items()}
        for row in rows:
            self.waiting.append({**row, **said})
            if len(self.waiting) == ROWS:
                self._flush()

    def _flush(self) -> None:

        if not self.waiting:
            return
        import pyarrow as pa

        # Most columns are of analyses that this sweep leaves out.
        said = {name for row in self.waiting for name in row}
        arrays = [
            pa.array([_typed(row.get(name), kind) for row in self.waiting], self.types[name])
            if name in said
            else pa.nulls(len(self.waiting), self.types[name])
            for name, kind in self.kinds.items()
        ]
        self.parquet.write_batch(pa.record_batch(arrays, schema=self.schema))
        for row in self.waiting:
            self.csv.writerow({name: _cell(row.get(name)) for name in self.csv.fieldnames})
        self.waiting.clear()


def _arrow_type(kind: Kind) -> Any:
    import pyarrow as pa

    if kind in ("strings", "rows"):
        return pa.list_(pa.string() if kind == "strings" else pa.int64())
    return pa.type_for_alias(kind)


def _typed(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    match kind:
        case "double":
            return float(value)
        case "int64":
            return int(value)
        case "string":
            # Half of a character, out of a name that is not text, has no place in Arrow.
            return value.encode("utf-8", "replace").decode()
        case "strings":
            return [text.encode("utf-8", "replace").decode() for text in value]
        case "rows":
            return [int(row) for row in value]
    return value


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        value = " ".join(map(str, value))
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
        if names is None:
            return parquet.read_table(path)
        there = set(parquet.read_schema(path).names)
        return parquet.read_table(path, columns=[name for name in names if name in there])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownReference(
            f"{folder}: contains no {TABLE}. Run `posprobe sweep … --out {folder}` to its end."
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise InvalidCheckpoint(
            f"{path}: it is damaged ({str(error)[:80]}). Run the same sweep again to rebuild it."
        ) from error


def _is_sweep(folder: Path) -> bool:
    try:
        with (folder / ABOUT).open("rb") as file:
            return bool(json.loads(file.read(LONGEST)).get("schema") == SWEEP)
    except (OSError, ValueError, AttributeError, RecursionError):
        # Killed before anything was said: a folder of parts and nothing else.
        visible = [
            name for name in _names(folder) if not name.startswith((".posprobe-", f".{ABOUT}-"))
        ]
        return visible in ([], ["parts"])


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _read_part(path: Path) -> dict[str, Any] | None:
    """Read a part; one that is damaged or another's is not there."""
    try:
        with path.open("rb") as file:
            part = json.loads(file.read(LONGEST))
        sound = (
            isinstance(part, dict)
            and isinstance(part["reference"], str)
            and isinstance(part["state"], str)
            and isinstance(part["own"], dict)
            and all(isinstance(row, dict) for row in part["rows"])
            and all(set(FAILURE) <= set(one) for one in part["failures"])
        )
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return part if sound else None


def _write(path: Path, text: str) -> None:
    """Write a file beside its place and move it there."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{folder}: it cannot be written ({error.strerror or error}). Make room, mend its "
        "permissions, or choose another --out; what is recorded there stays."
    )
