"""Surrogate tables: what a number is where there is no positional structure to find.

A number means something only beside the values that it takes on tables that share the real one's
trivial properties. Each null model keeps one such property and destroys the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import UsageError
from posprobe.table import Grid, Layout

#: What each null model keeps of the table.
NULLS: Mapping[str, str] = {
    "gaussian": "independent Gaussian rows with the table's row norms",
    "permuted": "the table's own rows in random order",
    "walk": "a random walk whose steps are as long as the table's",
    "phase": "each column's power spectrum, with random phases",
}

#: Surrogates larger than this many numbers in all are refused: they would take hours.
MAX_NUMBERS = 2**36


def surrogate(
    values: NDArray[np.floating[Any]], name: str, rng: np.random.Generator, layout: Layout
) -> NDArray[np.float32]:
    """Draw one surrogate of a table.

    Parameters
    ----------
    values
        ``[n, d]``.
    name
        Key of `NULLS`. On a grid a walk follows the stored order, row by row, and phases are
        those of the two-dimensional transform.
    rng
        Source of randomness.
    layout
        Of the positions.

    Returns
    -------
    NDArray
        ``[n, d]`` float32, which is precise enough for a band and twice as fast.

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
        case "walk":
            steps = np.linalg.norm(np.diff(values, axis=0), axis=1)
            walk = np.empty(values.shape, dtype=np.float32)
            walk[0] = values[0]
            walk[1:] = _directions(rng, (len(values) - 1, values.shape[1]), steps)
            return np.cumsum(walk, axis=0, dtype=np.float32)
        case "phase":
            return _random_phases(values, rng, layout)
    raise ValueError(f"no null model is called {name!r}; there are {', '.join(NULLS)}")


def surrogates(
    values: NDArray[np.floating[Any]], layout: Layout, draws: int, seed: int
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Draw ``draws`` surrogates of every null model, the same ones for the same seed.

    Raises
    ------
    UsageError
        If ``draws`` is negative, or more than could be computed.
    """
    if draws < 0 or draws * values.size * len(NULLS) > MAX_NUMBERS:
        raise UsageError(
            f"--nulls {draws}: between 0 and {MAX_NUMBERS // (values.size * len(NULLS))} draws of "
            f"each null model can be made of a table of {values.shape[0]} x {values.shape[1]}."
        )
    for index, name in enumerate(NULLS):
        for draw in range(draws):
            yield name, surrogate(values, name, np.random.default_rng([seed, index, draw]), layout)


def _directions(
    rng: np.random.Generator, shape: tuple[int, ...], lengths: NDArray[np.floating[Any]]
) -> NDArray[np.float32]:
    """Draw vectors of given lengths in random directions."""
    drawn = rng.standard_normal(shape, dtype=np.float32)
    norm = np.sqrt(np.einsum("ij,ij->i", drawn, drawn))
    drawn *= (lengths / np.where(norm > 0, norm, 1.0)).astype(np.float32)[:, None]
    return drawn


def _random_phases(
    values: NDArray[np.floating[Any]], rng: np.random.Generator, layout: Layout
) -> NDArray[np.float32]:
    shape = (layout.height, layout.width) if isinstance(layout, Grid) else (len(values),)
    maps = values.reshape(*shape, -1).astype(np.float32)
    axes = tuple(range(len(shape)))
    # The phases of white noise are uniform and have the symmetry that a real signal needs.
    noise = np.fft.rfftn(rng.standard_normal(maps.shape, dtype=np.float32), axes=axes)
    size = np.abs(noise)
    turn = np.divide(noise, size, out=np.ones_like(noise), where=size > 0)
    # The mean is no fluctuation: its sign is kept.
    turn[(0,) * len(shape)] = 1.0
    mixed = np.fft.irfftn(np.fft.rfftn(maps, axes=axes) * turn, s=shape, axes=axes)
    return mixed.reshape(values.shape).astype(np.float32)
