"""Window of queries and keys in which every query sees the same distances.

Outside such a window the mean logit at a distance would depend on the places that have it, so that
distance and place could not be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.layouts import Grid

#: A layer whose window has fewer distances, on one side, is not measured.
MIN_WINDOW_DISTANCES = 8
#: On a grid, the window reaches at least so many patches to each side.
MIN_WINDOW_PATCHES = 1

#: Reason why a layer has no window.
WindowProblem: TypeAlias = Literal["other_keys", "short_window"]


@dataclass(frozen=True, eq=False)
class AttentionWindow:
    """Queries of a window, and the keys at which each of them looks.

    Parameters
    ----------
    queries
        ``[q]``: indices of tokens.
    keys
        ``[q, n]``: indices of tokens, one for each displacement.
    displacements
        ``[n, axes]``: query minus key, in tokens, or in rows and columns of patches.
    """

    queries: NDArray[np.int64]
    keys: NDArray[np.int64]
    displacements: NDArray[np.int64]

    @property
    def reach(self) -> int:
        """Number of distances on one side, the own place included."""
        return int(self.displacements.max()) + 1

    @property
    def is_two_sided(self) -> bool:
        """Whether later keys are looked at too."""
        return bool((self.displacements < 0).any())


def sequence_window(
    visible: NDArray[np.bool_] | None, length: int, max_reach: int | None = None
) -> AttentionWindow | WindowProblem:
    """Return the window of a layer on a text, or why it has none.

    If keys come before queries, the second half of the queries looks at ``length // 2`` distances;
    if both sides are visible, the middle third looks at ``length // 3`` to either side. The first
    token is never a key.

    Parameters
    ----------
    visible
        ``[length, length]``: whether a query, by row, sees a key; None if it sees all.
    length
        Tokens of a context.
    max_reach
        Largest number of distances on one side; None for no limit.
    """
    middle = length // 2
    is_two_sided = visible is None or bool(visible[middle, middle + 1 :].any())
    reach = length // 3 if is_two_sided else length // 2
    first_query, stop_query = reach, length - reach if is_two_sided else 2 * reach
    if visible is not None:
        # The window ends at the first gap behind the middle query, or behind the last one.
        row = middle if is_two_sided else length - 1
        visible_keys = visible[row, : row + 1][::-1].tolist()
        nearest_gap = visible_keys.index(False) if False in visible_keys else row + 1
        if nearest_gap < reach:
            reach = nearest_gap
            first_query, stop_query = (
                (reach, length - reach) if is_two_sided else (reach, 2 * reach)
            )
    if reach < MIN_WINDOW_DISTANCES:
        return "short_window"
    reach = min(reach, max_reach or reach)
    distances = np.arange(1 - reach if is_two_sided else 0, reach)
    queries = np.arange(first_query, stop_query)
    keys = queries[:, None] - distances[None, :]
    if visible is not None and not bool(visible[queries[:, None], keys].all()):
        return "other_keys"
    return AttentionWindow(queries, keys, distances[:, None])


def grid_window(grid: Grid, n_special: int) -> AttentionWindow | WindowProblem:
    """Return the window of a layer on patches, all of which see each other.

    The queries in the middle look at a third of the side in each direction.

    Parameters
    ----------
    grid
        Patches in reading order.
    n_special
        Tokens before the first patch.
    """
    reaches = grid.height // 3, grid.width // 3
    if min(reaches) < MIN_WINDOW_PATCHES:
        return "short_window"
    query_rows, query_columns = (
        np.arange(reach, side - reach)
        for reach, side in zip(reaches, (grid.height, grid.width), strict=True)
    )
    row_steps, column_steps = (np.arange(-reach, reach + 1) for reach in reaches)
    rows, columns = (
        axis.ravel() for axis in np.meshgrid(query_rows, query_columns, indexing="ij")
    )
    displacements = np.stack(
        [axis.ravel() for axis in np.meshgrid(row_steps, column_steps, indexing="ij")],
        axis=1,
    )
    key_rows = rows[:, None] - displacements[:, 0]
    key_columns = columns[:, None] - displacements[:, 1]
    return AttentionWindow(
        n_special + rows * grid.width + columns,
        n_special + key_rows * grid.width + key_columns,
        displacements,
    )
