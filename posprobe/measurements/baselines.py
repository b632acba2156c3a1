"""Compared numbers of any table, such as the sinusoid of the same shape and draws of null models.

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
from posprobe.analyses.descriptive.sinusoid import decompose_ladder
from posprobe.analyses.result import Result, to_json
from posprobe.arrays import cores, positions
from posprobe.encodings.tables import sincos2d, sinusoidal
from posprobe.layouts import Grid, Layout
from posprobe.measurements import TABLE_MEASUREMENTS, TableInputs, compared_numbers
from posprobe.nulls import NULL_MODELS, check_draws, draw_rows, null_band, null_models
from posprobe.progress import stage
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: A product with a table of fewer numbers does not fill a machine, so such tables are measured
#: concurrently.
MIN_PARALLEL_PRODUCT_SIZE = 2**21


def measure_numbers(
    table: PositionTable,
    names: Iterable[str] = TABLE_MEASUREMENTS,
    components: PCA | None = None,
) -> dict[str, float | None]:
    """Return the compared numbers of a table by key path; None if undefined.

    Parameters
    ----------
    table
        The table.
    names
        Measurements whose numbers to return; those that do not apply have none.
    components
        Principal components of the table, in any basis of the columns; None computes them.
    """
    names_by_key = {key: key.split(".")[0] for key in compared_numbers()}
    if len(table) < 2:
        return dict.fromkeys(names_by_key)
    results: dict[str, Result] = {} if components is None else {"pca": components}
    inputs = TableInputs(
        table, positions(table, "cpu"), 0, None, dict(TABLE_MEASUREMENTS), results=results
    )
    compared_names = [name for name in names if name in names_by_key.values()]
    applicable_names = [
        n for n in compared_names if not TABLE_MEASUREMENTS[n].needs(inputs)
    ]
    # PCA runs last, because measurements that need its scores compute its numbers as well.
    order = [*(name for name in TABLE_MEASUREMENTS if name != "pca"), "pca"]
    numbers: dict[str, float | None] = {}
    for name in sorted(applicable_names, key=order.index):
        result_keys = [key for key in names_by_key if names_by_key[key] == name]
        numbers |= _read_numbers(inputs.result(name), result_keys)
        if name == "similarity":
            del inputs.results[name]  # No later measurement needs its large matrices.
    return numbers


def _read_numbers(result: Any, keys: Iterable[str]) -> dict[str, float | None]:
    """Return the numbers of a result, without the arrays and texts of its block."""
    return {key: to_json(attrgetter(key.partition(".")[2])(result)) for key in keys}


@lru_cache(maxsize=16)
def measure_formula(
    layout: Layout, dim: int, names: frozenset[str] = frozenset(TABLE_MEASUREMENTS)
) -> Mapping[str, float | None]:
    """Return the compared numbers of the sinusoid of a shape, for a grid of the 2-D sin-cos.

    Empty if that formula has no table of this width.
    """
    if isinstance(layout, Grid):
        return (
            {}
            if dim % 4
            else measure_numbers(sincos2d(layout.height, layout.width, dim), names)
        )
    if dim % 2:
        return {}
    components = None
    if "pca" in names and layout.size > 1:
        # The sinusoid varies in few directions; PCA in those takes a fraction of the time.
        sinusoid_ladder = decompose_ladder(layout.size, dim)
        components = pca(sinusoid_ladder.directions * sinusoid_ladder.deviations)
    return measure_numbers(sinusoidal(layout.size, dim), names, components)


def build_null_table(values: NDArray[np.floating[Any]], layout: Layout) -> PositionTable:
    """Return the rows of a null model, ``[n, d]``, as a table."""
    return PositionTable(
        values.astype(np.float32), layout, "drawn", Source("drawn", "drawn")
    )


def compare_with_baselines(
    table: PositionTable, table_numbers: Mapping[str, float | None], draws: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Compare the numbers of a table with those of the sinusoid and of the null models.

    Parameters
    ----------
    table
        The table.
    table_numbers
        Compared numbers of the table by key path.
    draws
        Number of tables drawn from each null model; 0 gives the sinusoid alone.
    seed
        Seed of the draws.

    Returns
    -------
    dict
        By key: ``value``, ``sinusoid`` (of the same shape; None if it has no table of that
        width) and per null model ``p5``, ``p50`` and ``p95``, or None if the number is undefined
        or the layout has no such model.

    Raises
    ------
    UsageError
        If there are too many draws.
    """
    check_draws(table.values, draws)
    if not table_numbers:
        return {}
    names = frozenset(key.split(".")[0] for key in table_numbers)
    formula_numbers = measure_formula(table.layout, table.dim, names)
    null_numbers = _measure_null_models(table, draws, seed, names) if draws else {}
    comparison: dict[str, dict[str, Any]] = {}
    for key, value in table_numbers.items():
        comparison[key] = {"value": value, "sinusoid": formula_numbers.get(key)}
        for name in NULL_MODELS:
            comparison[key][name] = null_band(
                [draw.get(key) for draw in null_numbers.get(name, ())]
            )
    return comparison


def _measure_null_models(
    table: PositionTable, draws: int, seed: int, names: frozenset[str]
) -> dict[str, list[dict[str, float | None]]]:
    """Return the compared numbers of ``draws`` tables of each null model."""
    scale = float(np.abs(table.values).max()) or 1.0
    values = np.asarray(table.values, dtype=np.float64) / scale
    process = fit_process(values, table.layout)

    def measure_draw(name: str, draw: int) -> dict[str, float | None]:
        rng = np.random.default_rng([seed, list(NULL_MODELS).index(name), draw])
        rows = draw_rows(values, name, rng, table.layout, process)
        # A stationary process is drawn along its principal directions, which may be fewer.
        rows = np.pad(rows, ((0, 0), (0, table.dim - rows.shape[1])))
        return measure_numbers(build_null_table(rows, table.layout), names)

    is_small = values.size < MIN_PARALLEL_PRODUCT_SIZE
    tasks = [(name, draw) for name in null_models(table.layout) for draw in range(draws)]
    null_numbers: dict[str, list[dict[str, float | None]]] = {
        name: [] for name in NULL_MODELS
    }
    with (
        ThreadPoolExecutor(cores.get() if is_small else 1) as pool,
        threadpool_limits(1 if is_small else None, "blas"),
        stage(f"{table.name}: null models", len(tasks)) as advance,
    ):
        draw_numbers = pool.map(lambda task: measure_draw(*task), tasks)
        for (name, _), numbers in zip(tasks, draw_numbers, strict=True):
            null_numbers[name].append(numbers)
            advance(1)
    return null_numbers
