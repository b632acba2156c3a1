"""Surrogate tables: what a number is where there is no positional structure to find.

A number means something only beside the values that it takes on tables that share the real one's
trivial properties. Each null model keeps one such property and destroys the rest. None depends on
the basis of the columns, which changes no headline number either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posprobe.analyses.composition.processes import Process, fit_process
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Layout, check_no_video
from posprobe.sources import DRAWN_PREFIX, Source
from posprobe.tables import PositionTable, table as as_table

if TYPE_CHECKING:
    from posprobe.blocks import BandBlock

#: Description of each null model: the property of the table that it keeps.
NULL_MODELS: Mapping[str, str] = {
    "gaussian": "independent Gaussian rows with the table's row norms",
    "permuted": "the table's own rows in random order",
    "walk": "the table's own steps with random signs, added up",
    "stationary": "a smooth stationary process with the table's covariance of columns",
}

#: Surrogates with more numbers in all are refused, since they would take hours.
MAX_SURROGATE_NUMBERS = 2**36
#: More draws of a null model are refused: they would take hours and move no band visibly.
MAX_DRAWS = 10_000
#: Number of draws of a band where none is given.
DEFAULT_DRAWS = 9


def null_models(layout: Layout) -> tuple[str, ...]:
    """Return the names of the null models of a layout; patches on a grid have no walk."""
    return tuple(
        name for name in NULL_MODELS if name != "walk" or not isinstance(layout, Grid)
    )


def surrogate(
    table: PositionTable | ArrayLike | PathLike[str], name: str, seed: int = 0
) -> PositionTable:
    """Draw a table that shares one trivial property with another, and nothing else.

    Parameters
    ----------
    table
        Table, or a reference, that gives that property, the layout and the width.
    name
        ``gaussian`` (its row norms), ``permuted`` (its rows in random order), ``walk`` (its steps
        with random signs, added up) or ``stationary`` (a smooth process with its covariance of
        columns).
    seed
        Seed of the draw.

    Raises
    ------
    UsageError
        If there is no such surrogate; patches on a grid have no walk.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.surrogate(pp.sinusoidal(64, 8), "walk")
    PositionTable('walk', fixed, sequence of 64, dim=8)
    """
    table = as_table(table)
    check_no_video(table.layout, table.name)
    scale = float(np.abs(table.values).max()) or 1.0
    values = np.asarray(table.values, dtype=np.float64) / scale
    rows = scale * draw_rows(values, name, np.random.default_rng(seed), table.layout)
    rows = np.pad(rows, ((0, 0), (0, table.dim - rows.shape[1])))
    source = Source(reference=name, resolved=f"{DRAWN_PREFIX}{table.name}, seed {seed}")
    return PositionTable(
        rows, table.layout, name=name, source=source, kind="fixed", start=table.start
    )


def draw_rows(
    values: NDArray[np.floating[Any]],
    name: str,
    rng: np.random.Generator,
    layout: Layout,
    process: Process | None = None,
) -> NDArray[np.float32]:
    """Draw the rows of a surrogate.

    Parameters
    ----------
    values
        ``[n, d]``.
    name
        One of `null_models`.
    rng
        Source of randomness.
    layout
        Layout of the positions.
    process
        The stationary process, where it has been fitted already.

    Returns
    -------
    NDArray
        ``[n, d]`` float32, which is precise enough for a band and twice as fast; of the stationary
        process ``[n, r]`` along the table's principal directions, which no number depends on.

    Raises
    ------
    UsageError
        If there is no such null model.
    """
    match name:
        case "gaussian":
            return _random_directions(rng, values.shape, np.linalg.norm(values, axis=1))
        case "permuted":
            return rng.permutation(values, axis=0).astype(np.float32)
        case "walk" if name in null_models(layout):
            steps = values.astype(np.float32)
            signs = rng.choice(
                np.array([-1, 1], dtype=np.float32), size=(len(values) - 1, 1)
            )
            steps[1:] = np.diff(values, axis=0).astype(np.float32) * signs
            return np.cumsum(steps, axis=0, dtype=np.float32)
        case "stationary":
            return (process or fit_process(values, layout)).draw(rng)
    names = ", ".join(null_models(layout))
    raise UsageError(f"unknown null model {name!r}. Choose from {names}.")


def _random_directions(
    rng: np.random.Generator, shape: tuple[int, ...], lengths: NDArray[np.floating[Any]]
) -> NDArray[np.float32]:
    """Draw vectors of these lengths in random directions."""
    normals = rng.standard_normal(shape, dtype=np.float32)
    norm = np.sqrt(np.einsum("ij,ij->i", normals, normals))
    normals *= (lengths / np.where(norm > 0, norm, 1.0)).astype(np.float32)[:, None]
    return normals


def check_draws(values: NDArray[np.floating[Any]], draws: int) -> None:
    """Check that a number of draws is not negative, too large, or more than takes hours.

    Raises
    ------
    UsageError
        If that is so.
    """
    max_draws = min(MAX_DRAWS, MAX_SURROGATE_NUMBERS // (values.size * len(NULL_MODELS)))
    if not 0 <= draws <= max_draws:
        raise UsageError(
            f"`nulls={draws}`: between 0 and {max_draws} draws of each null "
            f"model can be made of a table of {values.shape[0]} x "
            f"{values.shape[1]}."
        )


def null_band(values: Sequence[float | None]) -> BandBlock | None:
    """Return the 5, 50 and 95 % of draws; None where one of them is undefined."""
    defined = [value for value in values if value is not None]
    if not defined or len(defined) < len(values):
        return None
    low, middle, high = np.percentile(defined, [5, 50, 95])
    return {"p5": float(low), "p50": float(middle), "p95": float(high)}
