"""The compared numbers of any table: of the sinusoid of a shape, and of tables from null models.

They come from the same measurements as those of the table itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.descriptive.pca import PCA, pca
from posprobe.analyses.descriptive.sinusoid import ladder
from posprobe.analyses.result import Result, plain
from posprobe.arrays import cores, positions
from posprobe.encodings.tables import sincos2d, sinusoidal
from posprobe.layouts import Grid, Layout
from posprobe.measurements import TABLE, TableInputs, compared_numbers
from posprobe.nulls import NULLS, band, check_draws, draw_rows, null_models
from posprobe.progress import stage
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: Numbers of a table below which one product does not fill a machine: tables are then measured side
#: by side.
SMALL = 2**21


def numbers_of_table(
    table: PositionTable, names: Iterable[str] = TABLE, components: PCA | None = None
) -> dict[str, float | None]:
    """Return the compared numbers of a table by key path; None is undefined.

    Parameters
    ----------
    table
        The table.
    names
        Of the measurements whose numbers they are; those that do not apply have none.
    components
        The principal components where they are known already, in any basis of the columns.
    """
    keys = {key: key.split(".")[0] for key in compared_numbers()}
    if len(table) < 2:
        return dict.fromkeys(keys)
    known: dict[str, Result] = {} if components is None else {"pca": components}
    inputs = TableInputs(table, positions(table, "cpu"), 0, None, dict(TABLE), results=known)
    wanted = [name for name in names if name in keys.values() and not TABLE[name].needs(inputs)]
    numbers: dict[str, float | None] = {}
    # The components last: who needs their scores has their sizes as well.
    for name in sorted(wanted, key=[*(name for name in TABLE if name != "pca"), "pca"].index):
        own = [key for key, whose in keys.items() if whose == name]
        numbers |= _read(inputs.result(name), own)
        if name == "similarity":
            del inputs.results[name]  # its matrices are large, and nothing that follows needs them
    return numbers


def _read(result: Any, keys: Iterable[str]) -> dict[str, float | None]:
    """Read numbers, without what a block has beside them."""
    return {key: plain(attrgetter(key.partition(".")[2])(result)) for key in keys}


@lru_cache(maxsize=16)
def formula_numbers(
    layout: Layout, dim: int, names: frozenset[str] = frozenset(TABLE)
) -> Mapping[str, float | None]:
    """Return the compared numbers of the sinusoid of a shape, on a grid of the 2-D sin-cos.

    Empty where there is none of that width.
    """
    if isinstance(layout, Grid):
        return (
            {} if dim % 4 else numbers_of_table(sincos2d(layout.height, layout.width, dim), names)
        )
    if dim % 2:
        return {}
    components = None
    if "pca" in names and layout.size > 1:
        # In the few directions in which it varies, which take a fraction of the time.
        rungs = ladder(layout.size, dim)
        components = pca(rungs.left * rungs.values)
    return numbers_of_table(sinusoidal(layout.size, dim), names, components)


def made(values: NDArray[np.floating[Any]], layout: Layout) -> PositionTable:
    """Return drawn rows as a table."""
    return PositionTable(values.astype(np.float32), layout, "drawn", Source("drawn", "drawn"))


def bands(
    table: PositionTable, own: Mapping[str, float | None], draws: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Set a table's compared numbers beside those of the sinusoid and of the null models.

    Parameters
    ----------
    table
        The table.
    own
        Its numbers by key.
    draws
        Tables of each null model; 0 gives the sinusoid alone.
    seed
        Of the draws.

    Returns
    -------
    dict
        By key: ``value``, ``sinusoid`` (of the same shape; None where it has no table of that
        width) and per null model ``p5``, ``p50`` and ``p95``, or None where the number is undefined
        or the layout has no such model.

    Raises
    ------
    UsageError
        If there are too many draws.
    """
    check_draws(table.values, draws)
    if not own:
        return {}
    names = frozenset(key.split(".")[0] for key in own)
    formula = formula_numbers(table.layout, table.dim, names)
    drawn = _drawn(table, draws, seed, names) if draws else {}
    return {
        key: {"value": value, "sinusoid": formula.get(key)}
        | {name: band([found.get(key) for found in drawn.get(name, ())]) for name in NULLS}
        for key, value in own.items()
    }


def _drawn(
    table: PositionTable, draws: int, seed: int, names: frozenset[str]
) -> dict[str, list[dict[str, float | None]]]:
    """Measure so many tables of each null model."""
    scale = float(np.abs(table.values).max()) or 1.0
    values = np.asarray(table.values, dtype=np.float64) / scale
    process = fit_process(values, table.layout)

    def measured(name: str, draw: int) -> dict[str, float | None]:
        rng = np.random.default_rng([seed, list(NULLS).index(name), draw])
        rows = draw_rows(values, name, rng, table.layout, process)
        # A stationary process is drawn along its principal directions.
        rows = np.pad(rows, ((0, 0), (0, table.dim - rows.shape[1])))
        return numbers_of_table(made(rows, table.layout), names)

    small = values.size < SMALL
    tasks = [(name, draw) for name in null_models(table.layout) for draw in range(draws)]
    found: dict[str, list[dict[str, float | None]]] = {name: [] for name in NULLS}
    with (
        ThreadPoolExecutor(cores.get() if small else 1) as pool,
        threadpool_limits(1 if small else None, "blas"),
        stage(f"{table.name}: null models", len(tasks)) as done,
    ):
        for (name, _), numbers in zip(
            tasks, pool.map(lambda task: measured(*task), tasks), strict=True
        ):
            found[name].append(numbers)
            done(1)
    return found
