"""The task that a sweep runs for one reference, and the workers that run tasks.

A task does what `posprobe analyze` does with a reference, and reduces it to rows of numbers. A
worker is another process, on this machine or a Dask cluster. Its result is small and contains
failures as data: a failure never ends a sweep.

When a process dies, all tasks that are under way in its pool are lost, and nothing tells which of
them was the cause. So lost tasks run again, one task at a time, so that a crash can be pinned on
its reference.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from posprobe.analyses import Similarity
from posprobe.arrays import cores
from posprobe.checkpoints.hub_local import SharedRequests, bytes_read, shared_requests
from posprobe.errors import (
    OUT_OF_MEMORY_EXIT_CODE,
    AmbiguousTable,
    PosprobeError,
    Unreachable,
    UsageError,
    check_installed,
)
from posprobe.families import inspect
from posprobe.families.read import load_any
from posprobe.progress import TimeLimit, deadline
from posprobe.reference import Reference, parse_reference
from posprobe.relations.fingerprints import fingerprint
from posprobe.report import bundle_name
from posprobe.schemes import Scheme
from posprobe.studies import Analysis, SchemeAnalysis
from posprobe.studies.checkpoint import analyze_any
from posprobe.studies.saved_runs import run_document
from posprobe.sweeps.atlas import thumbnail
from posprobe.sweeps.columns import analysis_rows, run_row
from posprobe.tables import PositionTable
from posprobe.text import shorten_message

#: matplotlib is not safe for threads, and a Dask worker may run several.
_DRAWING_LOCK = threading.Lock()


@dataclass(frozen=True)
class Options:
    """Options that decide the numbers of a sweep.

    Parameters
    ----------
    only
        Names of the analyses, as for `posprobe.analyze`.
    nulls
        Number of random tables per baseline.
    rows
        First position and one past the last; None is no bound.
    revision
        Revision of Hub repositories whose reference names none.
    bundles
        Whether to write whole bundles, too.
    """

    only: tuple[str, ...] | None = None
    nulls: int = 0
    rows: tuple[int | None, int | None] | None = None
    revision: str | None = None
    bundles: bool = False


@dataclass(frozen=True)
class Task:
    """One reference, with all that a worker needs to run it.

    Parameters
    ----------
    reference
        The reference as the user typed it.
    options
        Options that decide the numbers.
    recorded_state
        Recorded state of the reference (`reference_state`, or its commit), if there is one.
    bundle_folder
        Folder of the bundles, if they are requested.
    request_slots
        Folder in which all workers count their requests to the Hub, and the number at once.
    offline
        Whether to use local files and caches only.
    time_limit
        Seconds after which no further stage of the task begins.
    """

    reference: str
    options: Options
    recorded_state: str | None
    bundle_folder: Path
    request_slots: tuple[Path, int]
    offline: bool
    time_limit: float


def run(task: Task) -> dict[str, Any]:
    """Analyse a reference: all tables of its checkpoint, or else all schemes.

    Returns
    -------
    dict
        Record with ``reference``; ``state``, a commit or a digest of local files; ``rows`` and
        ``failures`` (``reference``, ``exit_code``, ``message``); and ``unchanged`` if that state
        is recorded already, in which case nothing is analysed.
    """
    shared_requests.set(SharedRequests(*task.request_slots))
    cores.set(1)
    deadline.set(time.monotonic() + task.time_limit)
    record: dict[str, Any] = {
        "reference": task.reference,
        "state": "",
        "rows": [],
        "failures": [],
    }
    with _record_failures(record, task.reference):
        parsed = parse_reference(task.reference)
        record["state"], pinned = resolve_state(
            parsed, task.options.revision, offline=task.offline
        )
        if record["state"] == task.recorded_state:
            return record | {"unchanged": True}
        _analyze(task, record, task.reference, pinned)
    return record


def _analyze(
    task: Task, record: dict[str, Any], reference: str, pinned: Reference
) -> None:
    """Add the rows of a reference to a record; an ambiguous one stands for all its tables."""
    start_time = time.perf_counter()
    bytes_read.set(0)
    positions = slice(*task.options.rows) if task.options.rows else None
    # A pinned reference contains its commit.
    revision = None if pinned.text != task.reference else task.options.revision
    with _record_failures(record, reference):
        if (document := run_document(pinned.text)) is not None:
            table_rows = [run_row(document) | {"reference": reference}]
        else:
            try:
                loaded = load_any(
                    pinned.text, rows=positions, revision=revision, offline=task.offline
                )
            except AmbiguousTable:
                if pinned.table is not None:
                    raise
                for name in _table_names(pinned.text, revision, offline=task.offline):
                    table_reference = replace(
                        pinned, text=f"{pinned.text}#{name}", table=name
                    )
                    _analyze(task, record, f"{reference}#{name}", table_reference)
                return
            table_rows = _measure(task, reference, loaded, positions)
        cost = {
            "seconds": round(time.perf_counter() - start_time, 4),
            "bytes_read": bytes_read.get(),
        }
        record["rows"] += [row | cost for row in table_rows]


def _measure(
    task: Task,
    reference: str,
    loaded: PositionTable | tuple[Scheme, ...],
    positions: slice | None,
) -> list[dict[str, Any]]:
    """Analyse a loaded table or schemes, and return the rows."""
    options = task.options
    # The choice of analyses concerns tables; schemes are always measured completely.
    requested = options.only if isinstance(loaded, PositionTable) else None
    analysis = analyze_any(
        loaded,
        only=requested,
        nulls=options.nulls,
        rows=positions,
        device="cpu",
        offline=task.offline,
        command=f"posprobe sweep {reference}",
    )
    extra_columns: dict[str, Any] = {}
    if options.bundles:
        extra_columns["bundle"] = _save_bundle(
            analysis, loaded, task.bundle_folder, reference
        )
    if isinstance(analysis, Analysis):
        # Not a column of the table, but input of `posprobe nearest` and of lineages.
        extra_columns["fingerprint"] = fingerprint(analysis.table).to_dict()
        if isinstance(similarity := analysis.results.get("similarity"), Similarity):
            extra_columns["thumbnail"] = thumbnail(similarity.centered.matrix)
    return [row | extra_columns for row in analysis_rows(analysis, reference)]


def _table_names(reference: str, revision: str | None, *, offline: bool) -> list[str]:
    """Return the names of a checkpoint's tables, as in ``#TABLE``."""
    encodings = inspect(reference, revision=revision, offline=offline)
    tables = [
        encoding for encoding in encodings if encoding["scheme"] in ("learned", "fixed")
    ]
    return list(
        dict.fromkeys(encoding["name"] or encoding["tensor"] for encoding in tables)
    )


def _save_bundle(
    analysis: Analysis | SchemeAnalysis,
    loaded: PositionTable | tuple[Scheme, ...],
    folder: Path,
    reference: str,
) -> str:
    """Write a bundle, and return the name of its folder, which is unique per reference."""
    digest = hashlib.sha256(reference.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{bundle_name(loaded)}-{digest}"
    with _DRAWING_LOCK:
        analysis.save(folder / name)
    return f"{folder.name}/{name}"


def failure(reference: str, exit_code: int, message: str) -> dict[str, Any]:
    """Return the record of a failure."""
    return {
        "reference": reference,
        "exit_code": exit_code,
        "message": shorten_message(message),
    }


def reference_state(parsed: Reference) -> str | None:
    """Return the state of a reference; None if the Hub must be asked for the commit.

    The state of local files is a digest of their paths, sizes and times, so that a rewritten
    checkpoint is analysed again; that of samples and formulas is constant.
    """
    if not parsed.is_path:
        return "built in" if ":" in parsed.source else None
    path = parsed.path.resolve()
    files = [path, path.parent / "config.json"]
    with suppress(OSError):
        files = sorted(path.iterdir()) if path.is_dir() else files
    file_stats: list[Any] = [str(path)]
    for file in files:
        with suppress(OSError):
            status = file.stat()
            file_stats.append((file.name, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(
        json.dumps(file_stats).encode("utf-8", "surrogatepass")
    ).hexdigest()[:32]


def resolve_state(
    parsed: Reference, revision: str | None, *, offline: bool
) -> tuple[str, Reference]:
    """Return the state of a reference, and the reference pinned to that state.

    Raises
    ------
    PosprobeError
        If the Hub does not deliver.
    """
    state = reference_state(parsed)
    if state is not None:
        return state, parsed
    if revision and parsed.revision:
        return "", parsed  # loading it refuses two revisions that differ
    from posprobe.checkpoints.hub import resolve_commit

    commit = resolve_commit(parsed.source, revision or parsed.revision, offline=offline)
    text = f"{parsed.source}@{commit}" + (f"#{parsed.table}" if parsed.table else "")
    return commit, replace(parsed, text=text, revision=commit)


@contextmanager
def _record_failures(record: dict[str, Any], reference: str) -> Iterator[None]:
    """Record an error as a failure with the exit code that the command would have."""
    try:
        yield
    except PosprobeError as error:
        code, message = error.exit_code, str(error)
    except MemoryError as error:
        code = OUT_OF_MEMORY_EXIT_CODE
        message = f"out of memory ({error}). Analyse fewer positions."
    except TimeLimit:
        code, message = 1, "it took longer than the time limit and was given up."
    except Exception as error:  # noqa: BLE001 - a bug in one task must not end the others
        code = 1
        message = (
            f"a bug: {type(error).__name__}: {error}. Analyse it alone for the traceback."
        )
    else:
        return
    record["failures"].append(failure(reference, code, message))


EngineName = Literal["processes", "dask"]
#: Time in which a Dask scheduler must answer.
SCHEDULER_TIMEOUT_SECONDS = 10
#: Time in which the first worker of a Dask scheduler must be connected.
FIRST_WORKER_TIMEOUT_SECONDS = 60
#: Time beyond the time limit after which processes without a result are killed.
GRACE_SECONDS = 30.0
#: Number of attempts to submit a task to workers that do not start.
MAX_SUBMISSIONS = 3
#: Number of tasks submitted to Dask ahead of their results, enough for workers that join later.
MAX_PENDING_DASK_TASKS = 1000


@dataclass(frozen=True)
class Engine:
    """Workers that run the tasks.

    Parameters
    ----------
    name
        Processes of this machine, or Dask.
    jobs
        Number of processes; a Dask cluster has its own number of workers.
    scheduler
        Address of the Dask scheduler, if there is one.
    """

    name: EngineName
    jobs: int
    scheduler: str | None = None


def resolve_engine(jobs: int | None, scheduler: str | None) -> Engine:
    """Choose the workers, at most one process per core or those of a Dask scheduler.

    Raises
    ------
    UsageError
        If the number of workers is not positive.
    MissingExtra
        If the packages of the extra ``sweep`` are not installed.
    """
    for package in ("joblib", "pyarrow", *(("distributed",) if scheduler else ())):
        check_installed(package, "sweep", "a sweep")
    import joblib

    n_cores = joblib.cpu_count()
    if jobs is not None and jobs < 1:
        raise UsageError(f"`jobs={jobs}`: it must be at least 1.")
    # More workers than cores would only slow each other down.
    return Engine(
        "dask" if scheduler else "processes", min(jobs or n_cores, n_cores), scheduler
    )


@dataclass(frozen=True)
class _Pool:
    """An executor of tasks, with the actions for workers that die or hang."""

    #: Function that returns the executor, a new one if the last one broke.
    executor: Callable[[], Executor]
    #: Number of tasks that are submitted ahead of their results.
    max_pending: int
    #: Function that raises if the connection to all workers is lost.
    check_connection: Callable[[BaseException], object] = lambda _: None
    #: Function that kills workers without a result within the timeout; None to wait for them.
    kill_workers: Callable[[], object] | None = None
    #: Time in seconds within which some task must finish.
    timeout: float | None = None

    def submit(self, task: Task) -> Future[dict[str, Any]]:
        """Submit a task; raise `Unreachable` if no worker starts."""
        for n_remaining in reversed(range(MAX_SUBMISSIONS)):
            try:
                with _block_interrupts():
                    return self.executor().submit(_run_single_threaded, task)
            except Exception as error:
                self.check_connection(error)
                if not n_remaining:
                    cause = f"{type(error).__name__}: {shorten_message(str(error))}"
                    raise Unreachable(
                        f"no worker starts ({cause}). What is recorded "
                        "stays. Free memory, or allow more processes, and "
                        "run it again."
                    ) from error
        raise AssertionError

    def wait(self, futures: set[Future[dict[str, Any]]]) -> set[Future[dict[str, Any]]]:
        """Wait until some finish; return all if none does and the workers were killed."""
        finished = wait(futures, self.timeout, FIRST_COMPLETED).done
        if not finished and self.kill_workers is not None:
            self.kill_workers()
        return finished or futures

    def result(self, future: Future[dict[str, Any]]) -> dict[str, Any] | str:
        """Return a record, or the class name of the error that ended its worker."""
        try:
            return future.result(timeout=0)
        except Exception as error:  # noqa: BLE001 - any error may end a worker
            self.check_connection(error)
            return type(error).__name__


def run_tasks(
    tasks: Iterator[Task], engine: Engine, time_limit: float
) -> Iterator[dict[str, Any]]:
    """Run tasks and yield their records (see `run`) in the order in which they finish.

    Parameters
    ----------
    tasks
        Tasks to run, produced while others run.
    engine
        Workers that run them.
    time_limit
        Time limit of each task, in seconds.

    Raises
    ------
    Unreachable
        If a Dask scheduler cannot be reached, has no workers, or is lost; if no worker starts.
    UsageError
        If the address is not that of a scheduler, or its workers have another version of posprobe.
    """
    # The generator skips recorded references before any worker starts.
    first_task = next(tasks, None)
    if first_task is None:
        return
    pending: dict[Future[dict[str, Any]], Task] = {}
    with _open_pool(engine, time_limit + GRACE_SECONDS) as pool:
        try:
            for task in chain((first_task,), tasks):
                pending[pool.submit(task)] = task
                if len(pending) >= pool.max_pending:
                    yield from _collect_finished(pending, pool)
            while pending:
                yield from _collect_finished(pending, pool)
        finally:
            for future in pending:
                future.cancel()


def _collect_finished(
    pending: dict[Future[dict[str, Any]], Task], pool: _Pool
) -> Iterator[dict[str, Any]]:
    """Wait for some tasks and yield their records; after a crash, for all that were pending."""
    lost_tasks: list[Task] = []
    while pending:
        for future in pool.wait(set(pending)):
            task, record = pending.pop(future), pool.result(future)
            if isinstance(record, str):
                lost_tasks.append(task)
            else:
                yield record
        if not lost_tasks:
            return
    for task in lost_tasks:
        yield _run_alone(task, pool)


def _run_alone(task: Task, pool: _Pool) -> dict[str, Any]:
    """Run a task while no other runs, so that a crash is known to be its own."""
    (future,) = pool.wait({pool.submit(task)})
    record = pool.result(future)
    if not isinstance(record, str):
        return record
    message = (
        f"its worker ended twice ({record}): it ran out of memory, or over "
        "its time limit, or was killed. Analyse fewer positions."
    )
    state = None
    with suppress(PosprobeError):
        state = reference_state(parse_reference(task.reference))
    failures = [failure(task.reference, 1, message)]
    return {
        "reference": task.reference,
        "state": state or "",
        "rows": [],
        "failures": failures,
    }


# --- executors --------------------------------------------------------------------------------


@contextmanager
def _open_pool(engine: Engine, timeout: float) -> Iterator[_Pool]:
    """Yield the pool of an engine."""
    # Workers and trackers are started with `-m` and `-c`, for which Python would first search the
    # working directory. Trackers outlive this process and would warn of what it left.
    with _set_environment(PYTHONSAFEPATH="1", PYTHONWARNINGS="ignore"):
        if engine.name == "processes":
            yield _process_pool(engine.jobs, timeout)
        else:
            with _connect(engine.scheduler) as client:
                executor = cache(partial(client.get_executor, pure=False))
                check_connection = partial(_check_connected, client, engine.scheduler)
                yield _Pool(executor, MAX_PENDING_DASK_TASKS, check_connection)


def _process_pool(jobs: int, timeout: float) -> _Pool:
    """Return a pool of joblib's processes, which start clean and are kept for the next sweep.

    They are kept only while the working directory stays the same, as references may be relative.
    """
    from joblib.externals.loky import get_reusable_executor

    _start_trackers()
    # A worker ends when it is idle for 60 seconds.
    executor = partial(
        get_reusable_executor,
        jobs,
        timeout=60,
        initializer=_initialize_worker,
        initargs=(Path.cwd(),),
    )

    def kill_workers() -> None:
        executor().shutdown(wait=False, kill_workers=True)

    return _Pool(executor, 2 * jobs, kill_workers=kill_workers, timeout=timeout)


@contextmanager
def _set_environment(**values: str) -> Iterator[None]:
    """Set environment variables for processes that are started inside the context."""
    previous_values = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous_values.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block SIGINT for processes that are started inside the context, and for this one meanwhile.

    A terminal sends Ctrl-C to all of them. Workers end with their parent, but one that is still
    starting would print a traceback. Trackers, which are started with the first worker, lift the
    block, so `_start_trackers` starts them before.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _start_trackers() -> None:
    if sys.platform != "win32":
        from multiprocessing import resource_tracker

        from joblib.externals.loky.backend import resource_tracker as loky_tracker

        resource_tracker.ensure_running()
        loky_tracker.ensure_running()


@contextmanager
def _connect(scheduler: str | None) -> Iterator[Any]:
    """Connect to a Dask scheduler, and check that its workers have this version of posprobe."""
    from distributed import Client

    # These loggers repeat our own messages.
    for name in ("distributed", "distributed.client", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(
            scheduler, timeout=SCHEDULER_TIMEOUT_SECONDS, set_as_default=False
        )
    except (OSError, ValueError, TypeError) as error:
        error_class = Unreachable if isinstance(error, OSError) else UsageError
        raise error_class(
            f"{scheduler}: no Dask scheduler answers there "
            f"({str(error)[:120]}). An address reads tcp://HOST:8786; `dask "
            "scheduler` prints it when it starts."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER_TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise Unreachable(
                f"{scheduler}: no worker is there after "
                f"{FIRST_WORKER_TIMEOUT_SECONDS} seconds. Start one with "
                f"`dask worker {scheduler}`."
            ) from error
        local_version = version("posprobe")
        versions: Any = client.get_versions(packages=["posprobe"])
        workers = versions["workers"].values()
        worker_versions = {str(worker["packages"].get("posprobe")) for worker in workers}
        if other_versions := worker_versions - {local_version}:
            raise UsageError(
                f"{scheduler}: its workers have posprobe "
                f"{other_versions.pop()}, this is {local_version}. Install "
                "the same version there."
            )
        yield client


def _check_connected(client: Any, scheduler: str | None, error: BaseException) -> None:
    if client.status != "running":
        raise Unreachable(
            f"{scheduler}: the scheduler was lost. What is recorded stays: "
            "the same command goes on from there."
        ) from error


def _run_single_threaded(task: Task) -> dict[str, Any]:
    """Run a task with one thread of linear algebra."""
    _limit_threads()
    return run(task)


@cache
def _limit_threads() -> None:
    """Limit linear algebra to one thread, as several workers then use the cores better."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _initialize_worker(directory: Path) -> None:
    """Prepare a worker process: only its parent handles signals and prints messages.

    Parameters
    ----------
    directory
        Working directory; relative references are not found if it is gone.
    """
    with suppress(OSError):
        os.chdir(directory)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["MPLBACKEND"] = "agg"
    warnings.simplefilter("ignore")
    logging.getLogger("posprobe").addHandler(logging.NullHandler())
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """End this process when its parent is gone, so that a killed sweep leaves no workers behind."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
