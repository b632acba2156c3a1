"""What a sweep does with one reference, and the workers that do it.

A task is what `posprobe analyze` does with it, reduced to rows of numbers. It is run by a worker:
another process, a thread, or a process on another machine. What it returns is small, and holds
whatever went wrong as data: a failure never ends a sweep.

Workers are an executor of processes, threads or Dask. When a process dies, all that is under way in
its pool is lost, and nobody can say whose fault it was. So what was lost is run again one by one,
where it is known: who dies alone has failed.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posprobe.analyses import Similarity
from posprobe.arrays import cores
from posprobe.checkpoint_analysis import analyze_any, load_any, scheme_length
from posprobe.checkpoints.shared import Shared, bytes_read, sharing
from posprobe.errors import OUT_OF_MEMORY, AmbiguousTable, PosprobeError
from posprobe.families import inspect
from posprobe.foreign import brief
from posprobe.reference import Reference, parse_reference
from posprobe.report import Analysis, SchemeAnalysis, analyze_schemes, bundle_name
from posprobe.schemes import Scheme
from posprobe.sweeps.atlas import thumbnail
from posprobe.sweeps.columns import scheme_row, table_row
from posprobe.sweeps.fingerprints import fingerprint
from posprobe.tables import PositionTable

#: Drawing is not for several threads at a time.
_DRAWING = threading.Lock()


@dataclass(frozen=True)
class Options:
    """What decides the numbers of a sweep.

    Parameters
    ----------
    only
        As for `posprobe.analyze`.
    nulls
        Random tables drawn per baseline.
    rows
        First position and one past the last; None is no bound.
    revision
        Of Hub repositories that name none.
    bundles
        Whether whole bundles are written, too.
    """

    only: tuple[str, ...] | None = None
    nulls: int = 0
    rows: tuple[int | None, int | None] | None = None
    revision: str | None = None
    bundles: bool = False


@dataclass(frozen=True)
class Task:
    """One reference, and what a worker must know to run it.

    Parameters
    ----------
    reference
        As the user gave it.
    options
        What decides the numbers.
    known
        The state of the reference (`state_of`, or its commit) that is recorded already, if any.
    bundles
        Folder of the bundles, where they are asked for.
    requests
        Where requests to a hub are counted for all workers, and how many there are at once.
    offline
        Use local files and caches only.
    time_limit
        Seconds after which it is given up.
    """

    reference: str
    options: Options
    known: str | None
    bundles: Path
    requests: tuple[Path, int]
    offline: bool
    time_limit: float


class TimeLimit(Exception):
    """A task took longer than it may."""


def run(task: Task) -> dict[str, Any]:
    """Analyse what a reference leads to.

    Of a checkpoint with several tables each is analysed, of one without a table each encoding.

    Returns
    -------
    dict
        ``reference``; ``state``, what it led to: a commit, or a digest of local files; ``rows`` and
        ``failures`` (``reference``, ``stage``, ``exit_code``, ``message``); ``unchanged`` where
        that state was known, and nothing was done; ``retry`` where another attempt may end
        otherwise.
    """
    sharing.set(Shared(*task.requests))
    cores.set(1)
    record: dict[str, Any] = {"reference": task.reference, "state": "", "rows": [], "failures": []}
    laps = _Laps()
    try:
        with _limited(task.time_limit), _recorded(record, task.reference, "resolve"):
            parsed = parse_reference(task.reference)
            record["state"], pinned = resolved(parsed, task.options.revision, offline=task.offline)
            if record["state"] == task.known:
                return record | {"unchanged": True}
            _analyze(task, record, laps, task.reference, pinned, parsed.table is None)
    except TimeLimit:
        message = f"it took more than {task.time_limit:g} seconds and was given up"
        record["failures"].append(failure(task.reference, "measure", 1, message))
        record["retry"] = True
    return record


class _Laps:
    """Seconds that passed and bytes that were read since one last asked."""

    def __init__(self) -> None:
        self.since = time.perf_counter()
        bytes_read.set(0)

    def __call__(self) -> dict[str, Any]:
        began, self.since = self.since, time.perf_counter()
        count = bytes_read.get()
        bytes_read.set(0)
        return {"seconds": round(self.since - began, 4), "bytes_read": count}


def _analyze(
    task: Task, record: dict[str, Any], laps: _Laps, typed: str, pinned: Reference, several: bool
) -> None:
    """Analyse one reference; ``several`` says whether it may stand for all tables."""
    options = task.options
    rows = slice(*options.rows) if options.rows else None
    # A pinned commit is in the reference itself.
    revision = None if pinned.text != task.reference else options.revision
    with _recorded(record, typed, "read"):
        try:
            loaded = load_any(pinned.text, rows=rows, revision=revision, offline=task.offline)
        except AmbiguousTable:
            if not several:
                raise
            for name in _names(pinned.text, revision, offline=task.offline):
                one = replace(pinned, text=f"{pinned.text}#{name}", table=name)
                _analyze(task, record, laps, f"{typed}#{name}", one, False)
            return
        with _recorded(record, typed, "measure"):
            # An encoding without a table is measured by what it has, whatever is chosen of tables.
            only = options.only if isinstance(loaded, PositionTable) else None
            analysis = analyze_any(
                loaded, only=only, nulls=options.nulls, rows=rows, device="cpu",
                offline=task.offline, command=f"posprobe sweep {typed}",
            )  # fmt: skip
            row: dict[str, Any] = {"reference": typed}
            if options.bundles:
                row["bundle"] = _save(analysis, loaded, task.bundles, typed)
            if isinstance(analysis, Analysis):
                row = table_row(analysis.to_dict()) | row
                # Beside the columns: for `posprobe nearest` and lineages, not for the table.
                row["fingerprint"] = fingerprint(analysis.table).to_dict()
                if isinstance(seen := analysis.results.get("similarity"), Similarity):
                    row["thumbnail"] = thumbnail(seen.centered.matrix)
                record["rows"].append(row | laps())
                return
            length = scheme_length(rows)
            for scheme in analysis.records:
                document = analyze_schemes(scheme, length=length).to_dict()
                whose = {"reference": f"{typed}#{scheme.name}"} if len(analysis.records) > 1 else {}
                record["rows"].append(scheme_row(document) | row | whose | laps())


def _names(reference: str, revision: str | None, *, offline: bool) -> list[str]:
    """Name the tables of a checkpoint as ``#TABLE`` picks them."""
    found = inspect(reference, revision=revision, offline=offline)
    tables = [entry for entry in found if entry["scheme"] in ("learned", "fixed")]
    return list(dict.fromkeys(entry["name"] or entry["tensor"] for entry in tables))


def _save(
    analysis: Analysis | SchemeAnalysis,
    loaded: PositionTable | tuple[Scheme, ...],
    folder: Path,
    typed: str,
) -> str:
    """Write a bundle, and return its folder's name; two references never share one."""
    digest = hashlib.sha256(typed.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{bundle_name(loaded)}-{digest}"
    with _DRAWING:
        analysis.save(folder / name)
    return f"{folder.name}/{name}"


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `TimeLimit` in this thread after so many seconds, at the next step of Python."""
    thread, lock, done = threading.get_ident(), threading.Lock(), False

    def stop() -> None:
        with lock:
            if not done:
                raised = ctypes.py_object(TimeLimit)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            done = True
        time.sleep(0)  # what was raised just before arrives here


def failure(reference: str, stage: str, exit_code: int, message: str) -> dict[str, Any]:
    """Return a failure as it is recorded."""
    return {
        "reference": reference,
        "stage": stage,
        "exit_code": exit_code,
        "message": brief(message),
    }


def state_of(parsed: Reference) -> str | None:
    """Tell the state of what a reference leads to; None where a hub must be asked.

    Of local files it is a digest of their places, sizes and times, so that a checkpoint that was
    written again counts as another; of samples and formulas it is always the same.
    """
    if not parsed.is_path:
        return "built in" if ":" in parsed.source else None
    path = parsed.path.resolve()
    files = [path, path.parent / "config.json"]
    with suppress(OSError):
        files = sorted(path.iterdir()) if path.is_dir() else files
    found: list[Any] = [str(path)]
    for file in files:
        with suppress(OSError):
            status = file.stat()
            found.append((file.name, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(json.dumps(found).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def resolved(parsed: Reference, revision: str | None, *, offline: bool) -> tuple[str, Reference]:
    """Return the state of what a reference leads to, and the reference to exactly that.

    Raises
    ------
    PosprobeError
        If a hub does not deliver, or the reference and ``revision`` contradict each other.
    """
    state = state_of(parsed)
    if state is not None:
        return state, parsed
    if revision and parsed.revision:
        return "", parsed  # whoever loads it says whether that is a contradiction
    from posprobe.checkpoints.hub import commit_of

    commit = commit_of(parsed.source, revision or parsed.revision, offline=offline)
    text = f"{parsed.source}@{commit}" + (f"#{parsed.table}" if parsed.table else "")
    return commit, replace(parsed, text=text, revision=commit)


@contextmanager
def _recorded(record: dict[str, Any], reference: str, stage: str) -> Iterator[None]:
    """Turn whatever fails into a failure with the exit code that the command would have."""
    try:
        yield
    except PosprobeError as error:
        record["failures"].append(failure(reference, stage, error.exit_code, str(error)))
    except MemoryError as error:
        message = f"out of memory ({error}). Analyse fewer positions with --rows A:B."
        record["failures"].append(failure(reference, stage, OUT_OF_MEMORY, message))
        record["retry"] = True
    except TimeLimit:
        raise
    except Exception as error:  # noqa: BLE001 - a bug in one task must not end the others
        message = f"a bug: {type(error).__name__}: {error}. `posprobe analyze --debug` traces it."
        record["failures"].append(failure(reference, stage, 1, message))
