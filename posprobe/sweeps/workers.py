"""What a sweep does with one reference, and the workers that do it.

A task is what `posprobe analyze` does with it, reduced to rows of numbers. It is run by a worker:
another process, a thread, or a process on another machine. What it returns is small, and holds
whatever went wrong as data: a failure never ends a sweep.

Workers are an executor of processes, threads or Dask. When a process dies, all that is under way in
its pool is lost, and nobody can say whose fault it was. So what was lost is run again one by one,
where it is known: who dies alone has failed.
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
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from posprobe.analyses import Similarity
from posprobe.arrays import cores
from posprobe.checkpoints.hub_local import Shared, bytes_read, sharing
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
from posprobe.studies.kernels import run_document
from posprobe.sweeps.atlas import thumbnail
from posprobe.sweeps.columns import rows_of, run_row
from posprobe.tables import PositionTable
from posprobe.text import brief

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
        Seconds after which no further stage of it begins.
    """

    reference: str
    options: Options
    known: str | None
    bundles: Path
    requests: tuple[Path, int]
    offline: bool
    time_limit: float


def run(task: Task) -> dict[str, Any]:
    """Analyse what a reference leads to.

    Of a checkpoint with several tables each is analysed, of one without a table each encoding.

    Returns
    -------
    dict
        ``reference``; ``state``, what it led to: a commit, or a digest of local files; ``rows`` and
        ``failures`` (``reference``, ``exit_code``, ``message``); ``unchanged`` where that state was
        known, and nothing was done.
    """
    sharing.set(Shared(*task.requests))
    cores.set(1)
    deadline.set(time.monotonic() + task.time_limit)
    record: dict[str, Any] = {"reference": task.reference, "state": "", "rows": [], "failures": []}
    with _recorded(record, task.reference):
        parsed = parse_reference(task.reference)
        record["state"], pinned = resolved(parsed, task.options.revision, offline=task.offline)
        if record["state"] == task.known:
            return record | {"unchanged": True}
        _analyze(task, record, task.reference, pinned)
    return record


def _analyze(task: Task, record: dict[str, Any], typed: str, pinned: Reference) -> None:
    """Add the rows of a reference to a record, or of each table that it may stand for."""
    began = time.perf_counter()
    bytes_read.set(0)
    rows = slice(*task.options.rows) if task.options.rows else None
    # A pinned commit is in the reference itself.
    revision = None if pinned.text != task.reference else task.options.revision
    with _recorded(record, typed):
        if (saved := run_document(pinned.text)) is not None:
            found = [run_row(saved) | {"reference": typed}]
        else:
            try:
                loaded = load_any(pinned.text, rows=rows, revision=revision, offline=task.offline)
            except AmbiguousTable:
                if pinned.table is not None:
                    raise
                for name in _names(pinned.text, revision, offline=task.offline):
                    one = replace(pinned, text=f"{pinned.text}#{name}", table=name)
                    _analyze(task, record, f"{typed}#{name}", one)
                return
            found = _measured(task, typed, loaded, rows)
        took = {
            "seconds": round(time.perf_counter() - began, 4),
            "bytes_read": bytes_read.get(),
        }
        record["rows"] += [row | took for row in found]


def _measured(
    task: Task, typed: str, loaded: PositionTable | tuple[Scheme, ...], rows: slice | None
) -> list[dict[str, Any]]:
    """Analyse what was loaded, and return its rows."""
    options = task.options
    # An encoding without a table is measured by what it has, whatever is chosen of tables.
    only = options.only if isinstance(loaded, PositionTable) else None
    analysis = analyze_any(
        loaded, only=only, nulls=options.nulls, rows=rows, device="cpu",
        offline=task.offline, command=f"posprobe sweep {typed}",
    )  # fmt: skip
    more: dict[str, Any] = {}
    if options.bundles:
        more["bundle"] = _save(analysis, loaded, task.bundles, typed)
    if isinstance(analysis, Analysis):
        # Beside the columns: for `posprobe nearest` and lineages, not for the table.
        more["fingerprint"] = fingerprint(analysis.table).to_dict()
        if isinstance(seen := analysis.results.get("similarity"), Similarity):
            more["thumbnail"] = thumbnail(seen.centered.matrix)
    return [row | more for row in rows_of(analysis, typed)]


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


def failure(reference: str, exit_code: int, message: str) -> dict[str, Any]:
    """Return a failure as it is recorded."""
    return {"reference": reference, "exit_code": exit_code, "message": brief(message)}


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
def _recorded(record: dict[str, Any], reference: str) -> Iterator[None]:
    """Turn whatever fails into a failure with the exit code that the command would have."""
    try:
        yield
    except PosprobeError as error:
        code, message = error.exit_code, str(error)
    except MemoryError as error:
        code = OUT_OF_MEMORY_EXIT_CODE
        message = f"out of memory ({error}). Analyse fewer positions with --rows A:B."
    except TimeLimit:
        code, message = 1, "it took longer than the time limit and was given up."
    except Exception as error:  # noqa: BLE001 - a bug in one task must not end the others
        code = 1
        message = f"a bug: {type(error).__name__}: {error}. `posprobe analyze --debug` traces it."
    else:
        return
    record["failures"].append(failure(reference, code, message))


Name = Literal["processes", "threads", "dask"]
#: Seconds in which a scheduler must answer, and in which a first worker must be there.
CONNECT, WORKERS = 10, 60
#: Seconds beyond the time limit after which processes that say nothing count as dead.
GRACE = 30.0
#: How often a task is offered to workers that do not start.
STARTS = 3
#: Tasks that are handed to Dask ahead of their results: it has them for workers that come later.
AHEAD = 1000


@dataclass(frozen=True)
class Engine:
    """Where tasks are run.

    Parameters
    ----------
    name
        Processes or threads of this machine, or Dask.
    jobs
        Tasks at a time; of a Dask cluster its own number counts.
    scheduler
        Address of a Dask scheduler, if that is where.
    """

    name: Name
    jobs: int
    scheduler: str | None = None


def checked(name: str, jobs: int | None, scheduler: str | None) -> Engine:
    """Check what was asked for against what there is.

    Raises
    ------
    UsageError
        If there is no such engine, or an option cannot be.
    MissingExtra
        If its packages are not installed.
    """
    for package in ("joblib", "pyarrow", *(("distributed",) if scheduler else ())):
        check_installed(package, "sweep", "a sweep")
    engine: Name = "dask" if scheduler else "threads" if name == "threads" else "processes"
    if not scheduler and name != engine:
        raise UsageError(f"--engine {name}: choose processes or threads, or name a --scheduler.")
    import joblib

    most = joblib.cpu_count()
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: it must be at least 1.")
    # More workers than cores would only get into each other's way.
    return Engine(engine, min(jobs or most, most), scheduler)


@dataclass(frozen=True)
class _Pool:
    """What runs tasks: an executor that is made anew when it broke, and how to deal with it."""

    executor: Callable[[], Executor]
    #: What a worker calls.
    work: Callable[[Task], dict[str, Any]]
    #: Tasks that are handed over ahead of their results.
    ahead: int
    #: Raises where no worker will come any more.
    check: Callable[[BaseException], object] = lambda _: None
    #: Ends workers that say nothing for so many seconds; None where they are waited for.
    end: Callable[[], object] | None = None
    patience: float | None = None

    def submit(self, task: Task) -> Future[dict[str, Any]]:
        """Hand a task over; where no worker starts, one error says so."""
        for left in reversed(range(STARTS)):
            try:
                with _deaf():
                    return self.executor().submit(self.work, task)
            except Exception as error:
                self.check(error)
                if not left:
                    raise Unreachable(
                        f"no worker starts ({type(error).__name__}: {brief(str(error))}). What is "
                        "recorded stays; --engine threads needs no other processes."
                    ) from error
        raise AssertionError

    def wait(self, futures: set[Future[dict[str, Any]]]) -> set[Future[dict[str, Any]]]:
        """Wait until some are done; those of workers that were ended for their silence are, too."""
        done = wait(futures, self.patience, FIRST_COMPLETED).done
        if not done and self.end is not None:
            self.end()
        return done or futures

    def result(self, future: Future[dict[str, Any]]) -> dict[str, Any] | str:
        """Return a record, or the name of what ended its worker."""
        try:
            return future.result(timeout=0)
        except Exception as error:  # noqa: BLE001 - whatever ends a worker
            self.check(error)
            return type(error).__name__


def outcomes(tasks: Iterator[Task], engine: Engine, time_limit: float) -> Iterator[dict[str, Any]]:
    """Run tasks and yield what came of each (`posprobe.sweeps.workers.run`) as it comes.

    Parameters
    ----------
    tasks, engine, time_limit
        What is run, where, and the seconds that each task has.

    Raises
    ------
    Unreachable
        If a Dask scheduler cannot be reached, has no workers, or is lost; if no worker starts.
    UsageError
        If that is no address of one, or its workers cannot run this version of posprobe.
    """
    # What is recorded is passed over here, before any worker starts.
    first = next(tasks, None)
    if first is None:
        return
    flying: dict[Future[dict[str, Any]], Task] = {}
    with _workers(engine, time_limit + GRACE) as pool:
        try:
            for task in chain((first,), tasks):
                flying[pool.submit(task)] = task
                if len(flying) >= pool.ahead:
                    yield from _landed(flying, pool)
            while flying:
                yield from _landed(flying, pool)
        finally:
            for future in flying:
                future.cancel()


def _landed(flying: dict[Future[dict[str, Any]], Task], pool: _Pool) -> Iterator[dict[str, Any]]:
    """Wait for tasks and yield what came of them; after a death, of all that were under way."""
    lost: list[Task] = []
    while flying:
        for future in pool.wait(set(flying)):
            task, record = flying.pop(future), pool.result(future)
            if isinstance(record, str):
                lost.append(task)
            else:
                yield record
        if not lost:
            return
    for task in lost:
        yield _alone(task, pool)


def _alone(task: Task, pool: _Pool) -> dict[str, Any]:
    """Run a task while no other runs, so that it is known what ends its worker."""
    (future,) = pool.wait({pool.submit(task)})
    record = pool.result(future)
    if not isinstance(record, str):
        return record
    message = (
        f"its worker ended twice ({record}): it ran out of memory, or over its time limit, or was "
        "killed. Analyse fewer positions with --rows A:B."
    )
    state = None
    with suppress(PosprobeError):
        state = state_of(parse_reference(task.reference))
    failed = [failure(task.reference, 1, message)]
    return {"reference": task.reference, "state": state or "", "rows": [], "failures": failed}


# --- executors --------------------------------------------------------------------------------


@contextmanager
def _workers(engine: Engine, patience: float) -> Iterator[_Pool]:
    """Give the executor of an engine."""
    # Python looks into the working directory first for what `-m` and `-c` name, as which workers
    # and their trackers are started; these, which outlive us, would tell of what we left.
    with _environment(PYTHONSAFEPATH="1", PYTHONWARNINGS="ignore"):
        if engine.name == "threads":
            from threadpoolctl import threadpool_limits

            threads = ThreadPoolExecutor(engine.jobs)
            with threadpool_limits(1):
                try:
                    yield _Pool(lambda: threads, run, 2 * engine.jobs)
                finally:
                    threads.shutdown(wait=False, cancel_futures=True)
        elif engine.name == "processes":
            yield _processes(engine.jobs, patience)
        else:
            with _client(engine.scheduler) as client:
                executor = cache(partial(client.get_executor, pure=False))
                check = partial(_connected, client, engine.scheduler)
                yield _Pool(executor, _on_one_thread, AHEAD, check)


def _processes(jobs: int, patience: float) -> _Pool:
    """Give joblib's processes: they start in a clean state, and are kept for the next sweep."""
    from joblib.externals.loky import get_reusable_executor

    _start_trackers()
    # Who never got a task ends by being idle.
    executor = partial(get_reusable_executor, jobs, timeout=60, initializer=_settle)

    def end() -> None:
        executor().shutdown(wait=False, kill_workers=True)

    return _Pool(executor, _on_one_thread, 2 * jobs, end=end, patience=patience)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Have what is started meanwhile find these variables."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _deaf() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started meanwhile, and for a moment from this one.

    A terminal sends it to all of them. They end with their parent, but while they start, each would
    tell of it. Trackers, which are started with the first of them, lift the block, so they are
    started before (`_start_trackers`).
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_trackers() -> None:
    if sys.platform != "win32":
        from multiprocessing import resource_tracker

        from joblib.externals.loky.backend import resource_tracker as lokys

        resource_tracker.ensure_running()
        lokys.ensure_running()


@contextmanager
def _client(scheduler: str | None) -> Iterator[Any]:
    """Connect to a Dask scheduler whose workers have our version: rows of two would not compare."""
    from distributed import Client

    # They log what our own messages say.
    for name in ("distributed", "distributed.client", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(scheduler, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        kind = Unreachable if isinstance(error, OSError) else UsageError
        raise kind(
            f"{scheduler}: no Dask scheduler answers there ({str(error)[:120]}). "
            "An address reads tcp://HOST:8786; `dask scheduler` prints it when it starts."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKERS)
        except TimeoutError as error:
            raise Unreachable(
                f"{scheduler}: no worker is there after {WORKERS} seconds. Start one with "
                f"`dask worker {scheduler}`."
            ) from error
        mine = version("posprobe")
        versions: Any = client.get_versions(packages=["posprobe"])
        workers = versions["workers"].values()
        others = {str(each["packages"].get("posprobe")) for each in workers} - {mine}
        if others:
            raise UsageError(
                f"{scheduler}: its workers have posprobe {others.pop()}, this is {mine}. Install "
                "the same version there."
            )
        yield client


def _connected(client: Any, scheduler: str | None, error: BaseException) -> None:
    if client.status != "running":
        raise Unreachable(
            f"{scheduler}: the scheduler was lost. What is recorded stays: the same command goes "
            "on from there."
        ) from error


def _on_one_thread(task: Task) -> dict[str, Any]:
    """Run a task in a process of its own."""
    _limit()
    return run(task)


@cache
def _limit() -> None:
    """Leave one thread to linear algebra: side by side, workers use the cores better."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _settle() -> None:
    """Make a process a worker: what is to be said is said by its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["MPLBACKEND"] = "agg"
    warnings.simplefilter("ignore")
    logging.getLogger("posprobe").addHandler(logging.NullHandler())
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: a killed sweep leaves nobody behind."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
