"""Position ids that the layers of a model received, and where two records of them differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.drawable import Card, Drawable


@dataclass(frozen=True, eq=False)
class PositionIds(Drawable):
    """Position ids of a prompt, as each rotary layer received them.

    Parameters
    ----------
    ids
        ``[layers, axes, tokens]``; one axis, or time, rows and columns.
    layers
        Numbers of the layers.
    name
        Name of the model, or of the file.
    """

    figures: ClassVar[str] = "positions.plot_position_ids"

    ids: NDArray[np.int64]
    layers: tuple[int, ...]
    name: str

    def _card(self) -> Card:
        n_layers, n_axes, n_tokens = self.ids.shape
        ranges = [f"{axis.min()} to {axis.max()}" for axis in self.ids.swapaxes(0, 1)]
        differs = bool((self.ids != self.ids[:1]).any())
        facts = {
            "tokens": n_tokens,
            "ids": ranges[0] if n_axes == 1 else f"{'; '.join(ranges)} by axis",
            "layers": f"{n_layers}, {'with different' if differs else 'all with the same'} ids",
        }
        return Card(self.name, facts, pictures=self._pictures())


@dataclass(frozen=True)
class PositionChange:
    """First token at which two records of position ids differ.

    Parameters
    ----------
    cause
        ``ids_offset`` (later by a constant), ``ids_restarted`` (they start anew),
        ``ids_flattened`` (axes became equal) or ``ids_differ``.
    token, axis
        Number of the token and of the axis, from 0.
    first_id, second_id
        Ids of that token.
    layers
        Layers in which they differ.
    """

    cause: str
    token: int
    axis: int
    first_id: int
    second_id: int
    layers: tuple[int, ...]


def find_position_change(a: PositionIds, b: PositionIds) -> PositionChange | None:
    """Return where ids of the same tokens differ first; None if they are equal.

    Records of other layers, or of one that stands for all, are compared with the first layer.
    """
    n_axes = max(a.ids.shape[1], b.ids.shape[1])
    ids_a, ids_b = (_spread_axes(record.ids, n_axes) for record in (a, b))
    if a.layers != b.layers:
        ids_a, ids_b = np.broadcast_arrays(ids_a[:1], ids_b)
    differs = ids_a != ids_b
    if not differs.any():
        return None
    token = int(differs.any(axis=(0, 1)).argmax())
    layer = int(differs[:, :, token].any(axis=1).argmax())
    axis = int(differs[layer, :, token].argmax())
    wrong_layers = differs.any(axis=(1, 2))
    return PositionChange(
        _name_change(ids_a[layer], ids_b[layer], axis, token),
        token,
        axis,
        int(ids_a[layer, axis, token]),
        int(ids_b[layer, axis, token]),
        tuple(np.array(b.layers)[wrong_layers].tolist()),
    )


def _spread_axes(ids: NDArray[np.int64], n_axes: int) -> NDArray[np.int64]:
    """Return ids ``[layers, n_axes, tokens]``; a single axis stands for all."""
    shape = (len(ids), n_axes, ids.shape[2])
    return np.broadcast_to(ids, shape) if ids.shape[1] == 1 else ids


def _name_change(
    ids_a: NDArray[np.int64], ids_b: NDArray[np.int64], axis: int, token: int
) -> str:
    """Return the cause of a change, ``[axes, tokens]`` each."""
    if len(ids_a) > 1 and (ids_b == ids_b[:1]).all() and (ids_a != ids_a[:1]).any():
        return "ids_flattened"
    change = ids_b[axis] - ids_a[axis]
    if (change == change[0]).all():
        return "ids_offset"
    if ids_b[axis, token] == ids_b[axis, 0] and ids_a[axis, token] != ids_a[axis, 0]:
        return "ids_restarted"
    return "ids_differ"
