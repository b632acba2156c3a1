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
from posprobe.checkpoint_analysis import analyze_any, load_any
from posprobe.checkpoints.hub_local import Shared, bytes_read, sharing
from posprobe.errors import OUT_OF_MEMORY, AmbiguousTable, PosprobeError, Unreachable, UsageError
from posprobe.families import inspect
from posprobe.progress import TimeLimit, deadline
from posprobe.reference import Reference, parse_reference
from posprobe.report import Analysis, SchemeAnalysis, bundle_name
from posprobe.report.runs import run_document
from posprobe.schemes import Scheme
from posprobe.sweeps.atlas import thumbnail
from posprobe.sweeps.columns import run_row, scheme_rows, table_row
from posprobe.sweeps.fingerprints import fingerprint
from posprobe.sweeps.store import need_extra
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
        ``failures`` (``reference``, ``stage``, ``exit_code``, ``message``); ``unchanged`` where
        that state was known, and nothing was done; ``retry`` where another attempt may end
        otherwise.
    """
    sharing.set(Shared(*task.requests))
    cores.set(1)
    deadline.set(time.monotonic() + task.time_limit)
    record: dict[str, Any] = {"reference": task.reference, "state": "", "rows": [], "failures": []}
    laps = _Laps()
    try:
        with _recorded(record, task.reference, "resolve"):
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
        if (run := run_document(pinned.text)) is not None:
            record["rows"].append(run_row(run) | {"reference": typed} | laps())
            return
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
            for scheme, found in zip(analysis.records, scheme_rows(analysis), strict=True):
                whose = {"reference": f"{typed}#{scheme.name}"} if len(analysis.records) > 1 else {}
                record["rows"].append(found | row | whose | laps())


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


Name = Literal["processes", "threads", "dask"]
#: Seconds in which a scheduler must answer, and in which a first worker must be there.
CONNECT, WORKERS = 10, 60
#: Seconds beyond its time limit after which a worker that says nothing counts as dead.
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
    need_extra("joblib", "pyarrow", *(("dask", "distributed") if scheduler else ()))
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
    #: Seconds without any result after which all workers count as dead.
    patience: float
    #: Leaves workers that say nothing to themselves, or ends them.
    abandon: Callable[[], object]
    #: Raises where no worker will come any more.
    check: Callable[[BaseException], object] = lambda _: None

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
    again: list[Task] = []
    with _workers(engine, time_limit + GRACE) as pool:
        try:
            for task in chain((first,), tasks):
                flying[pool.submit(task)] = task
                if len(flying) >= pool.ahead:
                    yield from _landed(flying, pool, again)
            while flying:
                yield from _landed(flying, pool, again)
            for task in again:
                yield _alone(task, 1, pool)
        finally:
            for future in flying:
                future.cancel()


def _landed(
    flying: dict[Future[dict[str, Any]], Task], pool: _Pool, again: list[Task]
) -> Iterator[dict[str, Any]]:
    """Wait for tasks and yield what came of them; after a death, of all that were under way."""
    lost: list[Task] = []
    while flying:
        done = wait(flying, pool.patience, FIRST_COMPLETED).done
        if not done:
            pool.abandon()
        for future in done or set(flying):
            task, record = flying.pop(future), pool.result(future)
            if isinstance(record, str):
                lost.append(task)
            elif record.pop("retry", False):
                again.append(task)
            else:
                yield record
        if not lost:
            return
    for task in lost:
        # Of several, it is not known whose fault it was: none has used up its retry.
        yield _alone(task, 1 if len(lost) == 1 else 2, pool)


def _alone(task: Task, tries: int, pool: _Pool) -> dict[str, Any]:
    """Run a task while no other runs, so that it is known what ends its worker."""
    for _ in range(tries):
        future = pool.submit(task)
        if wait([future], pool.patience).not_done:
            pool.abandon()
        record = pool.result(future)
        if not isinstance(record, str):
            record.pop("retry", None)
            return record
    message = (
        f"its worker ended twice ({record}): it ran out of memory, or over its time limit, or was "
        "killed. Analyse fewer positions with --rows A:B."
    )
    state = None
    with suppress(PosprobeError):
        state = state_of(parse_reference(task.reference))
    return {
        "reference": task.reference,
        "state": state or "",
        "rows": [],
        "failures": [failure(task.reference, "worker", 1, message)],
    }


# --- executors --------------------------------------------------------------------------------


@contextmanager
def _workers(engine: Engine, patience: float) -> Iterator[_Pool]:
    """Give the executor of an engine."""
    # Python looks into the working directory first for what `-m` and `-c` name, as which workers
    # and their trackers are started; these, which outlive us, would tell of what we left.
    with _environment(PYTHONSAFEPATH="1", PYTHONWARNINGS="ignore"):
        if engine.name == "threads":
            from threadpoolctl import threadpool_limits

            threads = cache(partial(_Threads, engine.jobs))
            with threadpool_limits(1):
                yield _Pool(threads, run, 2 * engine.jobs, patience, threads.cache_clear)
        elif engine.name == "processes":
            yield _processes(engine.jobs, patience)
        else:
            with _client(engine.scheduler) as client:
                executor = cache(partial(client.get_executor, pure=False))
                check = partial(_connected, client, engine.scheduler)
                yield _Pool(executor, _on_one_thread, AHEAD, patience, executor.cache_clear, check)


class _Threads(Executor):
    """Threads for which no process waits when it ends, so that one that hangs holds nothing up.

    Parameters
    ----------
    jobs
        How many work at a time; others wait.
    """

    def __init__(self, jobs: int) -> None:
        self._room = threading.Semaphore(jobs)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Run a function in a thread of its own."""
        future: Future[Any] = Future()

        def work() -> None:
            with self._room:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    future.set_result(fn(*args, **options))
                except BaseException as error:  # noqa: BLE001 - as executors do
                    future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future


def _processes(jobs: int, patience: float) -> _Pool:
    """Give joblib's processes: they start in a clean state, and are kept for the next sweep."""
    from joblib.externals.loky import get_reusable_executor

    _start_trackers()
    # Who never got a task ends by being idle.
    executor = partial(get_reusable_executor, jobs, timeout=60, initializer=_settle)

    def abandon() -> None:
        executor().shutdown(wait=False, kill_workers=True)

    return _Pool(executor, _on_one_thread, 2 * jobs, patience, abandon)


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
    """Connect to a Dask scheduler."""
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
        _check_workers(client, scheduler)
        yield client


def _connected(client: Any, scheduler: str | None, error: BaseException) -> None:
    if client.status != "running":
        raise Unreachable(
            f"{scheduler}: the scheduler was lost. What is recorded stays: the same command goes "
            "on from there."
        ) from error


def _check_workers(client: Any, scheduler: str | None) -> None:
    """Hold the workers' version against ours: rows of two versions would not compare."""
    try:
        client.wait_for_workers(1, timeout=WORKERS)
        found = client.submit(version, "posprobe", pure=False).result(timeout=WORKERS)
    except TimeoutError as error:
        raise Unreachable(
            f"{scheduler}: no worker is there after {WORKERS} seconds. Start one with "
            f"`dask worker {scheduler}`."
        ) from error
    except Exception as error:  # noqa: BLE001 - whatever asking for our version ends in
        found = f"none ({type(error).__name__})"
    if found != version("posprobe"):
        raise UsageError(
            f"{scheduler}: its workers have posprobe {found}, this is {version('posprobe')}. "
            "Install the same version there."
        )


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
