"""The experiment of permutations: what a model still knows of order, with and without positions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.experiments import Change, PermutationEffect
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.families.find import is_named_position
from posprobe.forward.failing import LAST, refuse_overflow, running
from posprobe.forward.models import required
from posprobe.forward.states import final_states, positions_of, squared_norms
from posprobe.forward.streaming import Added, stream
from posprobe.layouts import Grid

if TYPE_CHECKING:
    import torch
    from torch import nn


def permutation_effect(
    model: Any,
    batches: Iterable[Array],
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
        A model of transformers or timm, with one learned table of positions. The table is restored.
    batches
        As for `decompose`. Each is run four times: as it is and permuted, with the table and
        without.
    labels
        ``[contexts]``: the right class of each, for models with a head that classifies
        (``load_model(..., head=True)``).
    seed
        Random seed of the permutations, one per context; the identity is never drawn.
    name
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If the model has no table of its own or several, labels do not fit, no permutation changes
        a context, since all its tokens are the same or there is one, or as for `decompose`.
    InvalidTable
        If the last hidden states are not finite.

    Examples
    --------
    This needs the extra `models`. Without positions, permuted patches give permuted states:

    >>> import posprobe as pp
    >>> model = pp.load_model("sample:digits-vit", device="cpu")
    >>> effect = pp.forward.permutation_effect(model, pp.random_images((1, 8, 8), count=8))
    >>> effect.with_positions.tokens > 0.1, effect.without_positions.tokens < 1e-4
    (True, True)
    """
    title = name or type(model).__name__
    path, table = position_table(model, title)
    known = None if labels is None else np.asarray(labels)
    if known is not None and (known.ndim != 1 or known.dtype.kind not in "iu"):
        raise UsageError(
            f"{title}: labels of shape {list(known.shape)}, {known.dtype}: one whole number per "
            "context is expected."
        )

    def measure(
        batch: torch.Tensor, sums: Mapping[int, _Permuted]
    ) -> tuple[None, dict[int, _Permuted]]:
        done = sums[0].contexts if sums else 0
        wanted = None if known is None else known[done : done + len(batch)]
        found = {0: _measure(model, batch, done, wanted, seed, title)}
        with restored(table):
            table.data.zero_()
            found[1] = _measure(model, batch, done, wanted, seed, title)
        return None, found

    _, sums, stopped = stream(model, batches, measure, title)
    contexts = sums[0].contexts
    if not sums[0].moved:
        raise UsageError(
            f"{title}: every context is one token, or patch, alone or repeated, so that permuting "
            "changes nothing. Use longer contexts, or others."
        )
    if known is not None and len(known) != contexts and not stopped:
        raise UsageError(f"{title}: {len(known)} labels for {contexts} contexts.")
    with_positions, without_positions = (
        _change(sums[key], classified=known is not None) for key in (0, 1)
    )
    return PermutationEffect(with_positions, without_positions, contexts, seed, path, stopped)


def position_table(model: Any, title: str) -> tuple[str, nn.Parameter]:
    """Return the name of a model's only table of positions, and the table.

    Raises
    ------
    UsageError
        If it has none, or several.
    """
    tables = [
        (path, parameter)
        for path, parameter in model.named_parameters()
        if is_named_position(path) and parameter.ndim > 1
    ]
    if len(tables) != 1:
        found = ", ".join(path for path, _ in tables) or "none"
        raise UsageError(f"{title}: one table of positions is expected, and it has {found}.")
    if tables[0][1].device.type == "meta":
        raise UsageError(
            f"{title}: {tables[0][0]} is kept on disk and cannot be changed. Use a --device-map "
            "that keeps it in memory."
        )
    return tables[0]


@dataclass(frozen=True)
class _Permuted(Added):
    """Squared norms of outputs and of their changes, and right answers."""

    moved: int  # contexts that permuting changes
    tokens: NDArray[np.float64]
    special: NDArray[np.float64]
    right: NDArray[np.float64]


def _measure(
    model: Any,
    batch: torch.Tensor,
    done: int,
    labels: NDArray[Any] | None,
    seed: int,
    title: str,
) -> _Permuted:
    before = final_states(model, batch)
    layout = positions_of(model, batch, before.shape[1])
    # A permutation belongs to its context, however contexts are grouped.
    orders = np.stack([_order([seed, done + row], layout.size) for row in range(len(batch))])
    moved = _permuted(batch, layout if isinstance(layout, Grid) else None, orders)
    after = final_states(model, moved)
    for states in (before, after):
        refuse_overflow(model, states, LAST, title, done)
    first = before.shape[1] - layout.size
    expected = before[:, first:].gather(
        1, _on(batch, orders)[:, :, None].to(before.device).expand(-1, -1, before.shape[2])
    )
    right = np.zeros(2)
    if labels is not None:
        right = np.array([_right(model, given, labels, title) for given in (batch, moved)])
    return _Permuted(
        len(batch),
        int((moved != batch).flatten(1).any(dim=1).sum()),
        squared_norms(expected, after[:, first:]),
        squared_norms(before[:, :first], after[:, :first]),
        right,
    )


def _order(seed: list[int], size: int) -> NDArray[np.int64]:
    """Draw one of all permutations that move something; the only one of a single place."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(size)
    while size > 1 and (order == np.arange(size)).all():
        order = rng.permutation(size)
    return order


def _change(sums: _Permuted, *, classified: bool) -> Change:
    accuracy = (sums.right / sums.contexts).tolist() if classified else [None, None]
    return Change(
        tokens=math.sqrt(sums.tokens[1] / sums.tokens[0]) if sums.tokens[0] else 0.0,
        special=math.sqrt(sums.special[1] / sums.special[0]) if sums.special[0] else None,
        accuracy=accuracy[0],
        scrambled_accuracy=accuracy[1],
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


def _right(model: Any, batch: torch.Tensor, wanted: NDArray[Any], title: str) -> int:
    with running(model):
        output = model(batch)
    logits = getattr(output, "logits", output)
    if getattr(logits, "ndim", 0) != 2 or len(wanted) != len(batch):
        raise UsageError(
            f"{title}: labels need one for each context, and a model with a head that classifies: "
            "load_model(..., head=True)."
        )
    return int((logits.argmax(dim=1).cpu().numpy() == wanted).sum())


@contextmanager
def restored(*tensors: torch.Tensor) -> Iterator[None]:
    """Put tensors back as they were, whatever is written to them within the block and happens."""
    with ExitStack() as after:
        for tensor in tensors:
            after.callback(tensor.data.copy_, tensor.detach().clone())
        yield
