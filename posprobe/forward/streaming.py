"""Contexts run through a model batch by batch, and added up as they come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.models import at_rest, is_out_of_memory, required

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("posprobe")


class Summable(Protocol):
    """Sums over contexts that can be joined."""

    @property
    def contexts(self) -> int:
        """How many contexts were added up."""

    def __add__(self, other: Self) -> Self: ...


_S = TypeVar("_S", bound=Summable)
_V = TypeVar("_V")
_T = TypeVar("_T")
_K = TypeVar("_K")

#: What the notes of a result say that was cut short.
INTERRUPTED = "the run was interrupted"
#: Whose positions start at ``padding_idx + 1``, so that as many fewer tokens fit.
_SHIFTED = ("roberta", "xlm-roberta", "camembert", "mpnet")


def stream(
    model: Any,
    batches: Iterable[Array],
    measure: Callable[[torch.Tensor, Mapping[int, _S]], tuple[_V, dict[int, _S]]],
    title: str,
) -> tuple[_V, dict[int, _S], tuple[str, ...]]:
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
        Of the model, for messages.

    Returns
    -------
    tuple
        How positions lie, the sums by layer, and what a reader must know.

    Raises
    ------
    UsageError
        If there are no contexts, they differ in length, or a single one does not fit into memory.
    """
    sums: dict[int, _S] = {}
    views: list[_V] = []
    shape: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    most = 0
    try:
        with at_rest(model) as device:
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
                    (view, parts), size = _fitting(measure, piece, sums, title)
                    if size < len(piece):
                        most = size
                    views = [view]
                    # In one step: an interruption must not leave some layers ahead of others.
                    sums = {n: sums[n] + part for n, part in parts.items()} if sums else parts
                    begin += size
    except KeyboardInterrupt:
        if not sums:
            raise
        done = next(iter(sums.values())).contexts
        notes = (f"{INTERRUPTED}: means are over the {done} contexts until then",)
        logger.warning("Interrupted: the result is over the %d contexts until then.", done)
    if not sums:
        raise UsageError(f"{title}: there are no contexts to run it on.")
    return views[0], sums, notes


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
        _check_ids(batch, model)
        return batch.to(device=device, dtype=pt.int64)
    return batch.to(device=device, dtype=next(model.parameters()).dtype)


def _check_ids(batch: torch.Tensor, model: Any) -> None:
    """Refuse what would index outside a table: on a GPU that is no error but the end of the run."""
    config = getattr(model, "config", None)
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary and (int(batch.min()) < 0 or int(batch.max()) >= vocabulary):
        raise UsageError(
            f"token ids run from {int(batch.min())} to {int(batch.max())} and the model knows "
            f"{vocabulary}: they were made by the tokenizer of another model."
        )
    longest = context_length(config)
    if longest and batch.shape[1] > longest:
        raise UsageError(
            f"contexts of {batch.shape[1]} tokens are longer than the {longest} positions of the "
            "model."
        )


def context_length(config: Any) -> int | None:
    """Return how many tokens a model of transformers has positions for, None where unlimited."""
    longest = getattr(config, "max_position_embeddings", None)
    return longest - first_position(config) if isinstance(longest, int) else None


def first_position(config: Any) -> int:
    """Return the number that a model of transformers gives the first position of a text."""
    padding = getattr(config, "pad_token_id", None) or 0
    return padding + 1 if getattr(config, "model_type", "") in _SHIFTED else 0


def _fitting(
    measure: Callable[[torch.Tensor, _K], _T], batch: torch.Tensor, sums: _K, title: str
) -> tuple[_T, int]:
    """Measure as much of a batch as fits into memory; return what came and how much that was."""
    size = len(batch)
    while True:
        try:
            return measure(batch[:size], sums), size
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
