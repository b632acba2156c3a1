"""Contexts run through a model batch by batch, and added up as they come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.families.find import is_named_position
from posprobe.forward.failing import is_out_of_memory
from posprobe.forward.models import evaluation_mode, required

if TYPE_CHECKING:
    import torch
    from torch import nn

logger = logging.getLogger("posprobe")


class Summable(Protocol):
    """Sums over contexts that can be joined."""

    @property
    def contexts(self) -> int:
        """How many contexts were added up."""

    def __add__(self, other: Self) -> Self: ...


@dataclass(frozen=True)
class Added:
    """Sums over contexts, each of which is added to the same of other contexts."""

    contexts: int

    def __add__(self, other: Self) -> Self:
        both = ((getattr(each, part.name) for each in (self, other)) for part in fields(self))
        return type(self)(*(one + two for one, two in both))


_S = TypeVar("_S", bound=Summable)
_V = TypeVar("_V")


def stream(
    model: Any,
    batches: Iterable[Array],
    measure: Callable[[torch.Tensor, Mapping[int, _S]], tuple[_V, dict[int, _S]]],
    title: str,
) -> tuple[_V, dict[int, _S], bool]:
    """Run every context and join what is measured on it, layer by layer.

    A batch that does not fit into memory is halved, and so are those after it. Ctrl-C ends the run
    and keeps what was joined until then.

    Parameters
    ----------
    model
        To be run without dropout and gradients.
    batches
        As for `posprobe.forward.decompose`.
    measure
        Called with a batch on the model's device and the sums until then; returns how positions lie
        and the sums of this batch.
    title
        Name of the model, for messages.

    Returns
    -------
    tuple
        How positions lie, the sums by layer, and whether the run was interrupted.

    Raises
    ------
    UsageError
        If there are no contexts, they differ in length, or a single one does not fit into memory.
    """
    sums: dict[int, _S] = {}
    views: list[_V] = []
    shape: tuple[int, ...] = ()
    stopped = False
    most = 0
    try:
        with evaluation_mode(model) as device:
            for given in batches:
                batch = _as_batch(given, device, model)
                if shape and tuple(batch.shape[1:]) != shape:
                    raise UsageError(
                        f"{title}: contexts of shape {list(batch.shape[1:])} after those of "
                        f"{list(shape)}: all must be as long as each other."
                    )
                shape = tuple(batch.shape[1:])
                begin = 0
                while begin < len(batch):
                    piece = batch[begin : begin + (most or len(batch))]
                    (view, joined), size = _fitting(measure, piece, sums, title)
                    if size < len(piece):
                        most = size
                    # In one step: an interruption must not leave some layers ahead of others.
                    views, sums = [view], joined
                    begin += size
    except KeyboardInterrupt:
        if not sums:
            raise
        done = next(iter(sums.values())).contexts
        stopped = True
        logger.warning("Interrupted: the result is over the %d contexts until then.", done)
    if not sums:
        raise UsageError(
            f"{title}: the inputs are empty. A generator can be used only once; pass a list."
        )
    return views[0], sums, stopped


def _as_batch(given: Array, device: torch.device, model: Any) -> torch.Tensor:
    pt = required("torch")
    batch: torch.Tensor = pt.as_tensor(given)
    ids = batch.ndim == 2 and not batch.is_floating_point() and not batch.is_complex()
    pixels = batch.ndim == 4 and batch.is_floating_point()
    if not (ids or pixels) or 0 in batch.shape:
        raise UsageError(
            f"a batch of shape {list(batch.shape)}, {batch.dtype}: integer token ids [b, t] or "
            "floating-point pixels [b, channels, h, w] are expected, at least one of them."
        )
    if ids:
        check_ids(batch, model)
        return batch.to(device=device, dtype=pt.int64)
    return batch.to(device=device, dtype=next(model.parameters()).dtype)


def check_ids(batch: torch.Tensor | NDArray[np.int64], model: Any) -> None:
    """Refuse what would index outside a table: on a GPU that is no error but the end of the run.

    Raises
    ------
    UsageError
        If token ids are outside the vocabulary, or contexts longer than the positions.
    """
    config = getattr(model, "config", None)
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary and (int(batch.min()) < 0 or int(batch.max()) >= vocabulary):
        raise UsageError(
            f"{type(model).__name__}: token ids run from {int(batch.min())} to {int(batch.max())} "
            f"and the model knows {vocabulary}: they were made by the tokenizer of another model. "
            "Use its own."
        )
    longest = context_length(model)
    if longest and batch.shape[1] > longest:
        raise UsageError(
            f"{type(model).__name__}: contexts of {batch.shape[1]} tokens are longer than the "
            f"{longest} positions of the model. Use shorter ones: --length."
        )


def context_length(model: Any) -> int | None:
    """Return how many tokens a model of transformers has positions for, None where unlimited.

    Where distances alone count, contexts may be longer than those of the training.
    """
    config = getattr(model, "config", None)
    keys = ("max_position_embeddings", "max_target_positions")
    longest = next((getattr(config, key) for key in keys if hasattr(config, key)), None)
    rotary = getattr(config, "rope_parameters", None) and not _tables(model)
    if not isinstance(longest, int) or longest < 1 or rotary:
        return None
    return longest - first_position(model)


def first_position(model: Any) -> int:
    """Return the number that a model gives the first position: RoBERTa's kin count on from padding.

    Their tables have a padding row, which others have not.
    """
    padding = [getattr(module, "padding_idx", None) for module in _tables(model)]
    return max((row + 1 for row in padding if row is not None), default=0)


def has_table(model: Any) -> bool:
    """Tell whether a model looks rows of positions up in a table."""
    return bool(_tables(model))


def _tables(model: Any) -> list[nn.Module]:
    named = model.named_modules() if hasattr(model, "named_modules") else ()
    return [
        module
        for path, module in named
        if hasattr(module, "num_embeddings") and is_named_position(f"{path}.weight")
    ]


def _fitting(
    measure: Callable[[torch.Tensor, Mapping[int, _S]], tuple[_V, dict[int, _S]]],
    batch: torch.Tensor,
    sums: Mapping[int, _S],
    title: str,
) -> tuple[tuple[_V, dict[int, _S]], int]:
    """Measure as much of a batch as fits into memory and join it; return that and how much."""
    size = len(batch)
    while True:
        try:
            view, parts = measure(batch[:size], sums)
            joined = {n: sums[n] + part for n, part in parts.items()} if sums else parts
            return (view, joined), size
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise UsageError(
                    f"{title}: a single context does not fit into the memory of {batch.device}. "
                    "Use shorter contexts, --dtype bfloat16 or another device."
                ) from error
        size //= 2
        logger.warning("Out of memory: going on with batches of %d.", size)
        if batch.device.type == "cuda":
            required("torch").cuda.empty_cache()
