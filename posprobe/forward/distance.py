"""How far attention goes: its shares by distance, added up by context while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.errors import UsageError
from posprobe.forward.models import required
from posprobe.forward.states import HookPoint, find_hook_points, positions_of, seen_at, visit, wide
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Distances:
    """Where attention is seen, and which pairs of positions are at which distance.

    Parameters
    ----------
    points
        As `find_hook_points` finds them.
    first
        The first distance of each range: 0, 1, 2, 4, 8 and so on.
    ranges
        ``[n * n]``: of each query and key the range; one more where the pair is not counted.
    """

    points: Sequence[HookPoint]
    first: tuple[int, ...]
    ranges: torch.Tensor


def find_distances(model: Any, batch: torch.Tensor) -> Distances:
    """Find where a model's attention can be seen.

    On a grid the distance is the larger of those along rows and columns. In a sequence attention to
    the first position is not counted: what many heads pay to it, wherever they are, is no
    preference for a distance.

    Raises
    ------
    UsageError
        If it shows none that goes from every token to every token, layer by layer.
    """
    points = find_hook_points(model, batch, "attentions")
    if not points:
        raise UsageError("its attention is seen at the end of a run alone")
    shapes: set[tuple[int, ...]] = set()
    visit(model, batch[:1], points, "attentions", lambda _, part: shapes.add(tuple(part.shape[2:])))
    tokens = next(iter(shapes))[-1]
    if shapes != {(tokens, tokens)}:
        raise UsageError("its attention is not from every token to every token")
    layout = positions_of(model, batch, tokens)
    distance = _distances(layout)
    first = (0, *(2**k for k in range(int(distance.max()).bit_length())))
    ranges = np.searchsorted(first, distance, side="right") - 1
    if not isinstance(layout, Grid):
        ranges[:, 0] = len(first)
    return Distances(points, first, required("torch").as_tensor(ranges.ravel()).to(batch.device))


def _distances(layout: Layout) -> Any:
    """Return the distance of all pairs of positions: ``[n, n]``."""
    along = [np.arange(layout.size)]
    if isinstance(layout, Grid):
        along = [part.ravel() for part in np.indices((layout.height, layout.width))]
    return np.max([np.abs(part[:, None] - part[None]) for part in along], axis=0)


@contextmanager
def added_up(distances: Distances | None) -> Iterator[Callable[[int], Floats]]:
    """Add attention up while a model runs in the block; nothing of a layer is kept.

    What is given, called after the block with the number of contexts, returns ``[c, ranges]``: for
    each context the share of the attention of positions that goes to each range of distances, in
    the mean over heads and layers; no range where attention is not seen.
    """
    if distances is None:
        yield lambda contexts: np.zeros((contexts, 0))
        return
    pt = required("torch")
    size = round(len(distances.ranges) ** 0.5)
    sums: list[torch.Tensor] = []

    def look(_: int, weights: torch.Tensor) -> None:
        begin = weights.shape[-1] - size
        mean = wide(weights[:, :, begin:, begin:].mean(dim=1).reshape(len(weights), -1))
        into = mean.new_zeros((len(weights), len(distances.first) + 1))
        sums.append(into.index_add_(1, distances.ranges.to(mean.device), mean).cpu())

    with seen_at(distances.points, look):
        yield lambda _: np.asarray(pt.stack(sums).mean(dim=0)[:, :-1].numpy() / size, np.float64)
