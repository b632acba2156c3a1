"""A sweep as a whole: what was asked for, what is recorded, what is left to do."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posprobe.errors import MissingExtra, PosprobeError, UsageError
from posprobe.measurements import TABLE
from posprobe.reference import parse_reference
from posprobe.report.analysis import check_request, environment
from posprobe.report.files import expanded
from posprobe.sweeps import store
from posprobe.sweeps.references import Entry, gather, once
from posprobe.sweeps.store import Store, read_sweep
from posprobe.sweeps.workers import Engine, Options, Task, checked, outcomes, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

#: Requests to a hub at once, by all workers together.
REQUESTS = 8
#: Seconds after which a reference is given up.
TIME_LIMIT = 1800.0


@dataclass
class Sweep:
    """A sweep over many references, computed when its rows are needed.

    Nothing is computed before `run`, or whatever needs the results, is called.

    Parameters
    ----------
    entries
        The references, each once, with the user's own columns.
    store
        Where results are recorded.
    engine
        Where they are computed.
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
    store: Store
    engine: Engine
    repeated: int = 0
    retry_failed: bool = False
    offline: bool = False
    requests: int = REQUESTS
    time_limit: float = TIME_LIMIT
    command: str | None = None
    about: dict[str, Any] | None = None

    @property
    def folder(self) -> Path:
        """The folder of the sweep."""
        return self.store.folder

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
        self.store.begin(about)
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
                self.store.put(record, own[reference])
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
        self.about = self.store.consolidate(self.entries, about)
        return self

    def _about(self) -> dict[str, Any]:
        return {
            "schema": store.SWEEP,
            "finished": False,
            "options": asdict(self.store.options),
            "engine": asdict(self.engine) | {"requests": self.requests},
            "environment": dict(environment("cpu", 0, self.command)),
        }

    def _task(self, entry: Entry, counts: dict[str, int]) -> Task | None:
        """Return what is left to do for a reference; None where all is recorded."""
        record = self.store.recorded(entry.reference)
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
            entry.reference, self.store.options, known, self.folder / "bundles",
            (self.folder / "requests", self.requests), self.offline, self.time_limit,
        )  # fmt: skip

    def failures(self) -> list[dict[str, Any]]:
        """Return what failed of these references: reference, stage, exit code and message."""
        self._done()
        return [
            failure
            for entry in self.entries
            for failure in (self.store.recorded(entry.reference) or {"failures": ()})["failures"]
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
        Seconds after which a reference is tried once more and then recorded as failed.
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
        tuple(entries), Store(expanded(place), options, all_columns), ready, repeated,
        retry_failed, offline, requests, time_limit, command,
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
        raise UsageError(f"no analysis is chosen. Choose from {', '.join(TABLE)}.")
    if rows is not None and rows.step not in (None, 1):
        raise UsageError("rows must be neighbours: a slice without a step.")
    bounds = None if rows is None else (rows.start, rows.stop)
    # Their order changes nothing.
    ordered = None if chosen is None else tuple(sorted(chosen))
    return Options(ordered, nulls if bundles else 0, bounds, revision, bundles)
