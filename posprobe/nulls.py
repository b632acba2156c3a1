"""Surrogate tables: what a number is where there is no positional structure to find.

A number means something only beside the values that it takes on tables that share the real one's
trivial properties. Each null model keeps one such property and destroys the rest. None depends on
the basis of the columns, which changes no headline number either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from posprobe.analyses.headline import (
    BLOCKS,
    MOST_PRODUCTS,
    headline,
    headline_curves,
    products,
    shape_constants,
    sinusoid_headline,
    sinusoid_numbers,
)
from posprobe.analyses.stationary import Process, fit_process
from posprobe.arrays import cores
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Layout
from posprobe.progress import stage
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from posprobe.documents import BandBlock

#: What each null model keeps of the table.
NULLS: Mapping[str, str] = {
    "gaussian": "independent Gaussian rows with the table's row norms",
    "permuted": "the table's own rows in random order",
    "walk": "the table's own steps with random signs, added up",
    "stationary": "a smooth stationary process with the table's covariance of columns",
}

#: Multiply-adds n * n * d below which one product does not fill a machine.
SMALL = 2**31
#: Numbers of all surrogates that are measured at a time where they are long: 32 bytes for each.
AT_A_TIME = 2**26
#: Surrogates larger than this many numbers in all are refused: they would take hours.
MAX_NUMBERS = 2**36
#: Draws of each null model: more would take hours, and move no band by what a reader could see.
MAX_DRAWS = 10_000
#: Draws of a band that is asked for without a number.
DRAWS = 9


def null_models(layout: Layout) -> tuple[str, ...]:
    """Return the null models that a layout has: patches on a grid have no walk."""
    return tuple(name for name in NULLS if name != "walk" or not isinstance(layout, Grid))


def surrogate(
    values: NDArray[np.floating[Any]],
    name: str,
    rng: np.random.Generator,
    layout: Layout,
    process: Process | None = None,
) -> NDArray[np.float32]:
    """Draw one surrogate of a table.

    Parameters
    ----------
    values
        ``[n, d]``.
    name
        One of `null_models`.
    rng
        Source of randomness.
    layout
        Of the positions.
    process
        The stationary process, where it has been fitted already.

    Returns
    -------
    NDArray
        ``[n, d]`` float32, which is precise enough for a band and twice as fast; of the stationary
        process ``[n, r]`` along the table's principal directions, which no number depends on.

    Raises
    ------
    ValueError
        If there is no such null model.
    """
    match name:
        case "gaussian":
            return _directions(rng, values.shape, np.linalg.norm(values, axis=1))
        case "permuted":
            return rng.permutation(values, axis=0).astype(np.float32)
        case "walk" if name in null_models(layout):
            walk = values.astype(np.float32)
            signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(len(values) - 1, 1))
            walk[1:] = np.diff(values, axis=0).astype(np.float32) * signs
            return np.cumsum(walk, axis=0, dtype=np.float32)
        case "stationary":
            return (process or fit_process(values, layout)).draw(rng)
    names = ", ".join(null_models(layout))
    raise ValueError(f"no null model is called {name!r}; there are {names}")


def _directions(
    rng: np.random.Generator, shape: tuple[int, ...], lengths: NDArray[np.floating[Any]]
) -> NDArray[np.float32]:
    """Draw vectors of given lengths in random directions."""
    drawn = rng.standard_normal(shape, dtype=np.float32)
    norm = np.sqrt(np.einsum("ij,ij->i", drawn, drawn))
    drawn *= (lengths / np.where(norm > 0, norm, 1.0)).astype(np.float32)[:, None]
    return drawn


def bands(
    table: PositionTable,
    measure: Callable[[], Mapping[str, float | None]],
    draws: int,
    seed: int,
    blocks: Iterable[str] = BLOCKS,
) -> dict[str, dict[str, Any]]:
    """Set a table's headline numbers beside those of the sinusoid and of the null models.

    Parameters
    ----------
    table
        The table.
    measure
        Returns its headline numbers by key, as the full analyses give them. Called once, while the
        surrogates of a small table are under way.
    draws
        Surrogates of each null model; 0 gives the sinusoid alone.
    seed
        Of the surrogates.
    blocks
        The analyses whose numbers they are: no others are computed.

    Returns
    -------
    dict
        By key: ``value``, ``sinusoid`` (of the same shape; on a grid the 2-D sin-cos; None where it
        has no table of that width) and per null model ``p5``, ``p50`` and ``p95``, or None where
        the number is undefined or the layout has no such model.

    Raises
    ------
    UsageError
        If there are too many draws.
    """
    tasks = list(_tasks(table.values, draws, table.layout))
    # Small products side by side use the cores better than threads within each of them, and
    # threads that wait for each other take many times as long where the cores are busy.
    small = len(table) * table.values.size < SMALL
    if not draws or not BLOCKS & set(blocks):
        with threadpool_limits(1 if small else None, "blas"):
            own = measure()
            formula = sinusoid_numbers(table.layout, table.dim, frozenset(blocks) & BLOCKS)
        return {
            key: {"value": value, "sinusoid": formula.get(key)} | {name: band([]) for name in NULLS}
            for key, value in own.items()
        }
    scale = float(np.abs(table.values).max()) or 1.0
    values = np.asarray(table.values, dtype=np.float64) / scale
    shared = shape_constants(table.layout, table.dim, blocks)
    whole = None
    with stage(f"{table.name}: null models"):
        process = fit_process(values, table.layout)
        if len(values) <= MOST_PRODUCTS:
            whole = products(values.astype(np.float32))
        else:  # as precise as what is drawn, in half of the memory
            values = values.astype(np.float32)

    def draw_one(task: tuple[str, int, int]) -> dict[str, float | None]:
        found = measured(task)
        done(1)
        return found

    def measured(task: tuple[str, int, int]) -> dict[str, float | None]:
        name, index, draw = task
        rng = np.random.default_rng([seed, index, draw])
        if name == "permuted" and whole is not None:
            order = rng.permutation(len(values))
            return headline(values[order].astype(np.float32), shared, whole.reordered(order))
        return headline(surrogate(values, name, rng, table.layout, process), shared)

    beside = small
    workers = max(1, cores.get() - 1) if beside else 1
    if len(values) > MOST_PRODUCTS:  # transforms and sums take the time: they have no threads
        workers = max(1, min(cores.get() - 1, AT_A_TIME // values.size))
        beside = 2 * values.size <= AT_A_TIME
    numbers = None if beside else measure()
    pool = ThreadPoolExecutor(workers)
    try:
        with (
            threadpool_limits(1 if beside else None, "blas"),
            stage(f"{table.name}: null models", len(tasks)) as done,
        ):
            pending = pool.submit(sinusoid_headline, shared)
            futures = [pool.submit(draw_one, task) for task in tasks]
            numbers = measure() if numbers is None else numbers
            # This thread has time now: it takes over what has not begun, from the end.
            taken = {
                task: draw_one(task)
                for task, future in zip(reversed(tasks), reversed(futures), strict=True)
                if beside and future.cancel()
            }
            reference = pending.result()
            drawn: dict[str, list[dict[str, float | None]]] = {name: [] for name in NULLS}
            for task, future in zip(tasks, futures, strict=True):
                drawn[task[0]].append(taken[task] if task in taken else future.result())
    finally:
        pool.shutdown(cancel_futures=True)
    return {
        key: {"value": value, "sinusoid": reference.get(key)}
        | {name: band([found.get(key) for found in drawn[name]]) for name in NULLS}
        for key, value in numbers.items()
    }


def _tasks(
    values: NDArray[np.floating[Any]], draws: int, layout: Layout
) -> Iterator[tuple[str, int, int]]:
    check_draws(values, draws)
    for index, name in enumerate(NULLS):
        for draw in range(draws if name in null_models(layout) else 0):
            yield name, index, draw


def check_draws(values: NDArray[np.floating[Any]], draws: int) -> None:
    """Refuse numbers of draws below 0, above `MAX_DRAWS`, or that would take hours.

    Raises
    ------
    UsageError
        If that is so.
    """
    most = min(MAX_DRAWS, MAX_NUMBERS // (values.size * len(NULLS)))
    if not 0 <= draws <= most:
        raise UsageError(
            f"--nulls {draws}: between 0 and {most} draws of each null model can be made of a "
            f"table of {values.shape[0]} x {values.shape[1]}."
        )


def curves(
    table: PositionTable, draws: int, seed: int
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Draw random walks with a table's steps and return the bands of their curves.

    Returns
    -------
    dict
        5 and 95 % of the centred offset ``profile`` ``[n]``, of the ``spectrum`` as shares of its
        power ``[f]`` and of the running sum of explained ``variance`` ``[16]``; empty on a grid,
        and where the table never moves.

    Raises
    ------
    UsageError
        If there are too many draws.
    """
    check_draws(table.values, draws)
    if isinstance(table.layout, Grid) or not np.diff(table.values, axis=0).any():
        return {}
    scale = float(np.abs(table.values).max()) or 1.0
    values = np.asarray(table.values, dtype=np.float64) / scale
    shared = shape_constants(table.layout, table.dim)
    index = list(NULLS).index("walk")
    drawn = [
        headline_curves(
            surrogate(values, "walk", np.random.default_rng([seed, index, draw]), table.layout),
            shared,
        )
        for draw in range(draws)
    ]
    return {
        name: tuple(np.percentile([found[name] for found in drawn], [5, 95], axis=0))
        for name in drawn[0]
    }


def band(values: Sequence[float | None]) -> BandBlock | None:
    """Summarise draws by their 5, 50 and 95 %; None where one of them is undefined."""
    found = [value for value in values if value is not None]
    if not found or len(found) < len(values):
        return None
    low, middle, high = np.percentile(found, [5, 50, 95])
    return {"p5": float(low), "p50": float(middle), "p95": float(high)}
