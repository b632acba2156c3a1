"""The experiment of permutations: what a model still knows of order, with and without positions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import Result
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.families.find import is_named_position
from posprobe.forward.models import required
from posprobe.forward.states import hidden_states, positions_of
from posprobe.forward.streaming import stream
from posprobe.table import Grid

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Change:
    """What changes when a model's tokens are permuted.

    Parameters
    ----------
    tokens
        Relative change of the last hidden states, each compared with that of the same token at its
        new place: 0 where the model knows no order.
    special
        Relative change of the last hidden states of tokens that stay, such as CLS of an image
        model; None where there are none.
    accuracy, scrambled_accuracy
        Share of the contexts that are classified right, as they are and permuted; None without
        labels.
    """

    tokens: float
    special: float | None
    accuracy: float | None
    scrambled_accuracy: float | None


@dataclass(frozen=True)
class PermutationEffect(Result):
    """The experiment on a model as it is and on the same model with its position table set to 0.

    Parameters
    ----------
    with_positions, without_positions
        What changes.
    contexts
        How many were permuted, each in its own way.
    seed
        Of the permutations.
    table
        Name of the parameter that was set to 0.
    """

    with_positions: Change
    without_positions: Change
    contexts: int
    seed: int
    table: str

    def summary(self) -> dict[str, Any]:
        """Return the numbers of both models."""
        return {
            "contexts": self.contexts,
            "seed": self.seed,
            "table": self.table,
            "with_positions": vars(self.with_positions),
            "without_positions": vars(self.without_positions),
        }


def permutation_effect(
    model: Any,
    batches: Sequence[Array],
    *,
    labels: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    seed: int = 0,
    name: str | None = None,
) -> PermutationEffect:
    """Permute tokens or patches, with and without the position table, and measure what changes.

    Attention, feed-forward layers and LayerNorm treat all tokens alike, so that without positions
    a permutation of the input permutes the output and leaves CLS as it is (Vaswani et al. 2017,
    section 3.5, state it as the reason for positions). A causal mask knows the order by itself.

    Parameters
    ----------
    model
        Of transformers or timm, with one learned table of positions. The table is restored.
    batches
        As for `decompose`, and read twice.
    labels
        ``[contexts]``: the right class of each, for models with a head that classifies
        (``load_model(..., head=True)``).
    seed
        Of the permutations, one for each context.
    name
        Of the model, for messages.

    Raises
    ------
    UsageError
        If the model has no table of its own or several, or labels do not fit, or as for
        `decompose`.
    """
    title = name or type(model).__name__
    tables = [
        (path, parameter)
        for path, parameter in model.named_parameters()
        if is_named_position(path) and parameter.ndim > 1
    ]
    if len(tables) != 1:
        found = ", ".join(path for path, _ in tables) or "none"
        raise UsageError(f"{title}: one table of positions is expected, and it has {found}.")
    ((path, table),) = tables
    known = None if labels is None else np.asarray(labels)
    with_positions, contexts = _measure(model, batches, known, seed, title)
    with _zeroed(table):
        without_positions, _ = _measure(model, batches, known, seed, title)
    return PermutationEffect(with_positions, without_positions, contexts, seed, path)


@dataclass(frozen=True)
class _Sums:
    """Squared norms of outputs and of their changes, and right answers."""

    contexts: int
    tokens: NDArray[np.float64]
    special: NDArray[np.float64]
    right: NDArray[np.float64]

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.contexts + other.contexts,
            self.tokens + other.tokens,
            self.special + other.special,
            self.right + other.right,
        )


def _measure(
    model: Any,
    batches: Iterable[Array],
    labels: NDArray[Any] | None,
    seed: int,
    title: str,
) -> tuple[Change, int]:
    def measure(batch: torch.Tensor, sums: Mapping[int, _Sums]) -> tuple[None, dict[int, _Sums]]:
        done = sums[0].contexts if sums else 0
        before = hidden_states(model, batch)[-1]
        layout = positions_of(model, batch, before.shape[1])
        # A permutation belongs to its context, however contexts are grouped.
        orders = np.stack(
            [
                np.random.default_rng([seed, done + row]).permutation(layout.size)
                for row in range(len(batch))
            ]
        )
        moved = _permuted(batch, layout if isinstance(layout, Grid) else None, orders)
        after = hidden_states(model, moved)[-1]
        first = before.shape[1] - layout.size
        expected = before[:, first:].gather(
            1, _on(batch, orders)[:, :, None].expand(-1, -1, before.shape[2])
        )
        right = np.zeros(2)
        if labels is not None:
            wanted = labels[done : done + len(batch)]
            right = np.array([_right(model, given, wanted, title) for given in (batch, moved)])
        return None, {
            0: _Sums(
                len(batch),
                _norms(expected, after[:, first:]),
                _norms(before[:, :first], after[:, :first]),
                right,
            )
        }

    _, sums, _ = stream(model, batches, measure, title)
    found = sums[0]
    if labels is not None and len(labels) != found.contexts:
        raise UsageError(f"{title}: {len(labels)} labels for {found.contexts} contexts.")
    accuracy = [None, None] if labels is None else (found.right / found.contexts).tolist()
    return (
        Change(
            tokens=math.sqrt(found.tokens[1] / found.tokens[0]) if found.tokens[0] else 0.0,
            special=math.sqrt(found.special[1] / found.special[0]) if found.special[0] else None,
            accuracy=accuracy[0],
            scrambled_accuracy=accuracy[1],
        ),
        found.contexts,
    )


def _permuted(batch: torch.Tensor, grid: Grid | None, orders: NDArray[np.int64]) -> torch.Tensor:
    """Move tokens or patches: place ``i`` gets what stood at ``orders[i]``."""
    order = _on(batch, orders)
    if grid is None:
        return batch.gather(1, order)
    count, channels, height, width = batch.shape
    down, across = height // grid.height, width // grid.width
    patches = batch.reshape(count, channels, grid.height, down, grid.width, across)
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(count, grid.size, -1)
    patches = patches.gather(1, order[:, :, None].expand(-1, -1, patches.shape[2]))
    patches = patches.reshape(count, grid.height, grid.width, channels, down, across)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(batch.shape)


def _on(batch: torch.Tensor, orders: NDArray[np.int64]) -> torch.Tensor:
    order: torch.Tensor = required("torch").as_tensor(orders, device=batch.device)
    return order


def _norms(before: torch.Tensor, after: torch.Tensor) -> NDArray[np.float64]:
    pair = [before.cpu().double(), (after - before).cpu().double()]
    return np.array([float((part**2).sum()) for part in pair])


def _right(model: Any, batch: torch.Tensor, wanted: NDArray[Any], title: str) -> int:
    output = model(batch)
    logits = getattr(output, "logits", output)
    if getattr(logits, "ndim", 0) != 2 or len(wanted) != len(batch):
        raise UsageError(
            f"{title}: labels need one for each context, and a model with a head that classifies: "
            "load_model(..., head=True)."
        )
    return int((logits.argmax(dim=1).cpu().numpy() == wanted).sum())


@contextmanager
def _zeroed(table: torch.Tensor) -> Iterator[None]:
    kept = table.detach().clone()
    try:
        table.data.zero_()
        yield
    finally:
        table.data.copy_(kept)
