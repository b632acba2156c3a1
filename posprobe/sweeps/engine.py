"""Workers: joblib's processes, its threads, or its Dask back end. A dead worker ends no sweep.

joblib gives up all that is under way when one worker dies, and cannot say whose fault it was. So
what was under way then is run again one by one, where it is known: who dies alone has failed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from posprobe.errors import PosprobeError, Unreachable, UsageError
from posprobe.foreign import brief
from posprobe.reference import parse_reference
from posprobe.sweeps.store import need_extra
from posprobe.sweeps.task import Task, failure, run, state_of

if TYPE_CHECKING:
    from joblib import Parallel

Name = Literal["processes", "threads", "dask"]
#: Seconds in which a scheduler must answer, and in which a first worker must be there.
CONNECT, WORKERS = 10, 60
#: Seconds beyond its time limit after which a worker that says nothing counts as dead.
GRACE = 30.0
#: How often workers are started of which none takes a task.
STARTS = 3
#: What else logs what our own messages say.
_QUIET = ("distributed", "tornado")


@dataclass(frozen=True)
class Engine:
    """Where tasks are run.

    Parameters
    ----------
    name
        Processes or threads of this machine, or Dask.
    jobs
        Tasks at a time; of a Dask cluster that others started, its own number counts.
    scheduler
        Address of a Dask scheduler; None starts a cluster on this machine.
    """

    name: Name
    jobs: int
    scheduler: str | None = None


def checked(name: str, jobs: int | None, scheduler: str | None) -> Engine:
    """Check what was asked for against what there is.

    Raises
    ------
    UsageError
        If there is no such engine, or an option does not go with it.
    MissingExtra
        If its packages are not installed.
    """
    if name not in ("processes", "threads", "dask"):
        raise UsageError(f"--engine {name}: choose processes, threads or dask.")
    if scheduler is not None and name != "dask":
        raise UsageError(f"--scheduler {scheduler}: only --engine dask has a scheduler.")
    need_extra("joblib", "pyarrow", *(("dask", "distributed") if name == "dask" else ()))
    if scheduler is not None:
        _check_address(scheduler)
    import joblib

    most = joblib.cpu_count()
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: it must be at least 1.")
    # More workers than cores would only get into each other's way.
    engine: Name = (
        "processes" if name == "processes" else "threads" if name == "threads" else "dask"
    )
    return Engine(engine, min(jobs or most, most), scheduler)


def _check_address(scheduler: str) -> None:
    """Refuse what is not an address: Dask's client would be left half made, and waited for."""
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(scheduler)
    except ValueError as error:
        raise UsageError(
            f"--scheduler {scheduler}: not an address ({error}). One reads tcp://HOST:8786; "
            "`dask scheduler` prints it when it starts."
        ) from error


def outcomes(tasks: Iterator[Task], engine: Engine, time_limit: float) -> Iterator[dict[str, Any]]:
    """Run tasks and yield what came of each (`posprobe.sweeps.task.run`) as it comes.

    Raises
    ------
    Unreachable
        If a Dask scheduler cannot be reached, has no workers, or is lost; if no worker starts.
    UsageError
        If its workers cannot run this version of posprobe.
    """
    # What is recorded is passed over here, where Ctrl-C is heard at once.
    first = next(tasks, None)
    if first is None:
        return
    with _workers(engine, time_limit) as (work, parallel, alive):
        feed, idle = _Feed(chain((first,), tasks)), 0
        while True:
            again: list[Task] = []
            try:
                with _deaf():
                    records = parallel()(feed.calls(work))
                for record in records:
                    task = feed.flying.pop(record["reference"])
                    if record.pop("retry", False):
                        again.append(task)
                    else:
                        yield record
                ended = not feed.flying
            except Exception as error:
                if feed.error is not None:
                    raise
                alive(error)
                idle = 0 if feed.flying else idle + 1
                if idle == STARTS:
                    raise Unreachable(
                        f"no worker starts ({type(error).__name__}: {brief(str(error))}). Results "
                        "so far are kept; try --engine threads, which needs no other processes."
                    ) from error
                ended = False
            lost = feed.land()
            for task in again:
                yield _alone(task, 1, work, parallel, alive)
            for task in lost:
                # Of several, it is not known whose fault it was: none has used up its retry.
                yield _alone(task, 1 if len(lost) == 1 else 2, work, parallel, alive)
            if ended:
                break
        if feed.error is not None:
            raise feed.error


def _alone(
    task: Task,
    tries: int,
    work: Callable[[Task], Any],
    parallel: Callable[[], Parallel],
    alive: Callable[[Exception], None],
) -> dict[str, Any]:
    """Run a task while no other runs, so that it is known what ends its worker."""
    import joblib

    for _ in range(tries):
        try:
            with _deaf():
                records = parallel()([joblib.delayed(work)(task)])
            (record,) = records
        except Exception as error:  # noqa: BLE001 - whatever ends a worker
            alive(error)
            reason = type(error).__name__
        else:
            found: dict[str, Any] = record
            found.pop("retry", None)
            return found
    message = (
        f"its worker ended twice ({reason}): it ran out of memory, or over its time limit, or was "
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


class _Feed:
    """Tasks as joblib asks for them, from several threads, and those that are under way."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self.tasks, self.lock = tasks, threading.Lock()
        self.flying: dict[str, Task] = {}
        self.error: Exception | None = None

    def calls(self, work: Callable[[Task], Any]) -> Iterator[Any]:
        """Yield calls for joblib until there are no more tasks."""
        import joblib

        while True:
            with self.lock:
                try:
                    task = next(self.tasks, None)
                except Exception as error:  # noqa: BLE001 - joblib would wait for ever
                    self.error = error
                    return
                if task is None:
                    return
                self.flying[task.reference] = task
            yield joblib.delayed(work)(task)

    def land(self) -> list[Task]:
        """Return what was under way, of which nothing will come."""
        with self.lock:
            tasks = list(self.flying.values())
            self.flying.clear()
        return tasks


# --- back ends --------------------------------------------------------------------------------


@contextmanager
def _workers(
    engine: Engine, time_limit: float
) -> Iterator[tuple[Callable[[Task], Any], Callable[[], Parallel], Callable[[Exception], None]]]:
    """Give what runs a task, what makes a `Parallel`, and what raises where none will work."""
    import joblib

    common = {"return_as": "generator_unordered", "batch_size": 1, "timeout": time_limit + GRACE}
    # A task may die, so it is never run in this process: joblib would with a single job.
    alone = {"n_jobs": 2, "pre_dispatch": 1} if engine.jobs == 1 else {"n_jobs": engine.jobs}
    if engine.name == "processes":
        _start_tracker()
        # Who never got a task ends by being idle.
        with joblib.parallel_config("loky", inner_max_num_threads=1, idle_worker_timeout=60):
            yield _in_process, partial(joblib.Parallel, **common, **alone), _broken
    elif engine.name == "threads":
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1), joblib.parallel_config("threading"):
            yield run, partial(joblib.Parallel, **common, **alone), _broken
    else:
        with _client(engine) as client:
            alive = partial(_connected, client, engine)
            with joblib.parallel_config("dask", client=client, wait_for_workers_timeout=WORKERS):
                yield _on_dask, partial(joblib.Parallel, **common), alive


@contextmanager
def _deaf() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started meanwhile, and for a moment from this one.

    A terminal sends it to all of them. They end with their parent, but while they start, each would
    tell of it. What multiprocessing starts with the first of them lifts the block, so it is started
    before (`_start_tracker`).
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_tracker() -> None:
    if sys.platform != "win32":
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()


def _broken(error: Exception) -> None:
    """Let the error of a worker pass; the next `Parallel` starts new ones."""


def _connected(client: Any, engine: Engine, error: Exception) -> None:
    if client.status != "running":
        raise Unreachable(
            f"{engine.scheduler or 'dask'}: the scheduler was lost ({error}). Results "
            "so far are kept. Run the same command again to resume."
        ) from error


@contextmanager
def _client(engine: Engine) -> Iterator[Any]:
    """Connect to a Dask scheduler, or start a cluster on this machine."""
    from distributed import Client, LocalCluster

    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    cluster = None
    if engine.scheduler is None:
        _start_tracker()
        with _deaf():
            cluster = LocalCluster(
                n_workers=engine.jobs, threads_per_worker=1, dashboard_address=None
            )
    try:
        try:
            client = Client(cluster or engine.scheduler, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise Unreachable(
                f"{engine.scheduler}: no Dask scheduler answers there ({str(error)[:120]}). "
                "An address reads tcp://HOST:8786; `dask scheduler` prints it when it starts."
            ) from error
        with client:
            _check_workers(client, engine)
            yield client
    finally:
        if cluster is not None:
            cluster.close()


def _check_workers(client: Any, engine: Engine) -> None:
    """Hold the workers' version against ours: rows of two versions would not compare."""
    from importlib.metadata import version

    try:
        client.wait_for_workers(1, timeout=WORKERS)
        found = client.submit(_version_there, pure=False).result(timeout=WORKERS)
    except TimeoutError as error:
        raise Unreachable(
            f"{engine.scheduler}: no worker is there after {WORKERS} seconds. Start one with "
            f"`dask worker {engine.scheduler}`."
        ) from error
    except Exception as error:  # noqa: BLE001 - whatever unpickling our function ends in
        found = f"none ({type(error).__name__})"
    if found != version("posprobe"):
        raise UsageError(
            f"{engine.scheduler}: its workers have posprobe {found}, this is "
            f"{version('posprobe')}. Install the same version there."
        )


def _version_there() -> str:
    from importlib.metadata import version

    return version("posprobe")


def _in_process(task: Task) -> dict[str, Any]:
    """Run a task in a process of joblib's."""
    _settle()
    return run(task)


def _on_dask(task: Task) -> dict[str, Any]:
    """Run a task in a worker of Dask's."""
    _limit()
    return run(task)


@cache
def _settle() -> None:
    """Make a process a worker: what is to be said is said by its parent."""
    _limit()
    with suppress(ValueError):
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


@cache
def _limit() -> None:
    """Leave one thread to linear algebra: side by side, workers use the cores better."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
