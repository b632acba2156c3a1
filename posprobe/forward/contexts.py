"""Contexts to run a model on, and running them batch by batch, added up as they come."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.families.find import is_named_position
from posprobe.forward.models import evaluation_mode, required
from posprobe.forward.running import is_out_of_memory, refuse_overflow, running
from posprobe.progress import stage

if TYPE_CHECKING:
    import torch
    from torch import nn


_log = logging.getLogger("posprobe")


def random_tokens(
    config: Any, length: int, count: int, *, seed: int = 0, batch_size: int = 8
) -> Iterator[NDArray[np.int64]]:
    """Yield contexts of independent tokens, equally likely.

    Special tokens that the configuration names are left out; others only a tokenizer knows.

    Parameters
    ----------
    config
        Configuration of a model of transformers.
    length, count
        Tokens per context, and contexts.
    seed
        Random seed; the contexts do not depend on the batch size.
    batch_size
        Contexts at a time.

    Yields
    ------
    NDArray
        ``[b, length]``.

    Raises
    ------
    UsageError
        If fewer than two tokens of the vocabulary are not special.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> from transformers import GPT2Config
    >>> batches = pp.forward.random_tokens(GPT2Config(vocab_size=100), length=16, count=10)
    >>> [batch.shape for batch in batches]
    [(8, 16), (2, 16)]
    """
    allowed = _ordinary(config)
    rng = np.random.default_rng(seed)
    for size in _sizes(count, batch_size):
        yield allowed[rng.integers(0, len(allowed), (size, length))]


def generates(model: Any) -> bool:
    """Tell whether a model of transformers predicts the next token, so that it can be sampled."""
    return type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def sampled_tokens(
    model: Any, length: int, count: int, *, seed: int = 0, batch_size: int = 8
) -> Iterator[NDArray[np.int64]]:
    """Yield contexts that a causal language model writes itself, at temperature 1.

    Each begins with the token that begins a text, or else with the one that ends it. A context
    costs one step of the model per token.

    Parameters
    ----------
    model
        Language model of transformers, with its head.
    length, count, seed, batch_size
        Same as for `random_tokens`.

    Yields
    ------
    NDArray
        ``[b, length]``.

    Raises
    ------
    UsageError
        If the model does not predict the next token, or cannot be run token by token.
    InvalidTable
        If its logits are not finite.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    ...     vocab_size=50,
    ... )
    >>> model = LlamaForCausalLM(config)
    >>> [batch.shape for batch in pp.forward.sampled_tokens(model, length=16, count=10)]
    [(8, 16), (2, 16)]
    """
    title = type(model).__name__
    if not generates(model):
        raise UsageError(
            f"{title}: it does not predict the next token, so it cannot be sampled. Use a text "
            "(--text), token ids (--tokens FILE.npy) or random ones (--tokens random)."
        )
    config = model.config
    begins = (config.bos_token_id, config.eos_token_id)
    first = next((token for token in begins if isinstance(token, int)), None)
    if first is None:
        first = int(_ordinary(config)[0])
    drawn = np.random.default_rng(seed).random((count, length))
    with stage("Sampling contexts from the model (tokens)", count * (length - 1)) as done:
        for begin in range(0, count, batch_size):
            yield _sampled(model, drawn[begin : begin + batch_size], first, title, done)


def _sampled(
    model: Any, drawn: NDArray[np.float64], first: int, title: str, done: Callable[[int], None]
) -> NDArray[np.int64]:
    """Sample a batch by one uniform number per token, what was read before being cached."""
    pt = required("torch")
    cache = required("transformers").DynamicCache(config=model.config)
    # The argument was renamed in transformers 5.24.
    takes = inspect.signature(model.forward).parameters
    named = {"cache" if "cache" in takes else "past_key_values": cache}
    tokens = np.full(drawn.shape, first, dtype=np.int64)
    with evaluation_mode(model) as device:
        for place in range(1, drawn.shape[1]):
            given = pt.as_tensor(tokens[:, place - 1 : place], device=device)
            with running(model):
                logits = model(input_ids=given, use_cache=True, **named).logits[:, -1]
            refuse_overflow(model, logits, "the logits", title)
            wide = logits[:, : model.config.vocab_size].cpu().double().softmax(dim=-1).numpy()
            reached = np.cumsum(wide, axis=1)
            for row, sums in enumerate(reached):
                tokens[row, place] = np.searchsorted(
                    sums / sums[-1], drawn[row, place], side="right"
                )
            done(len(tokens))
    return tokens


def repeated_tokens(
    config: Any, length: int, count: int, *, seed: int = 0, batch_size: int = 8
) -> Iterator[NDArray[np.int64]]:
    """Yield contexts of one token repeated, a different one each (Wang et al. 2021, ICLR).

    Parameters
    ----------
    config, length, seed, batch_size
        Same as for `random_tokens`.
    count
        Most contexts; there is one for each token that is not special. Wang et al. take 300.

    Yields
    ------
    NDArray
        ``[b, length]``.
    """
    allowed = _ordinary(config)
    chosen = np.random.default_rng(seed).permutation(allowed)[:count]
    for begin in range(0, len(chosen), batch_size):
        yield np.repeat(chosen[begin : begin + batch_size, None], length, axis=1)


def random_images(
    shape: tuple[int, int, int], count: int, *, seed: int = 0, batch_size: int = 8
) -> Iterator[NDArray[np.float32]]:
    """Yield images of independent normal pixels with mean 0 and variance 1.

    Parameters
    ----------
    shape
        Channels, height and width.
    count, seed, batch_size
        Same as for `random_tokens`.

    Yields
    ------
    NDArray
        ``[b, *shape]``.

    Examples
    --------
    >>> import posprobe as pp
    >>> [batch.shape for batch in pp.random_images((3, 8, 8), count=10)]
    [(8, 3, 8, 8), (2, 3, 8, 8)]
    """
    rng = np.random.default_rng(seed)
    for size in _sizes(count, batch_size):
        yield rng.standard_normal((size, *shape)).astype(np.float32)


def _ordinary(config: Any) -> NDArray[np.int64]:
    """List the token ids not named as special; padding alone would shift RoBERTa's positions."""
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise UsageError(
            f"{type(config).__name__}: its configuration has no vocab_size. If the model has "
            "several parts, choose one: REF#text, REF#vision or REF#decoder."
        )
    named = [value for key, value in config.to_dict().items() if key.endswith("_token_id")]
    special = {
        token
        for value in named
        for token in (value if isinstance(value, list | tuple) else [value])
        if isinstance(token, int)
    }
    ordinary = np.array([token for token in range(config.vocab_size) if token not in special])
    if ordinary.size < 2:
        raise UsageError(
            f"{type(config).__name__}: {ordinary.size} of the {config.vocab_size} tokens of its "
            "vocabulary are not special, too few to draw contexts from. Use a text: --text."
        )
    return ordinary


def _sizes(count: int, batch_size: int) -> Iterator[int]:
    for begin in range(0, count, batch_size):
        yield min(batch_size, count - begin)


class Summable(Protocol):
    """Sums over contexts that can be joined."""

    @property
    def contexts(self) -> int:
        """How many contexts were added up."""

    def __add__(self, other: Self) -> Self: ...


_S = TypeVar("_S", bound=Summable)
#: What is called with a batch on the model's device, the number of contexts before it, and the sums
#: over those; it returns the sums over this batch, by layer.
Measure: TypeAlias = "Callable[[torch.Tensor, int, Mapping[int, _S]], dict[int, _S]]"


def stream(
    model: Any, batches: Iterable[Array], measure: Measure[_S], title: str
) -> tuple[dict[int, _S], bool]:
    """Run every context and join what is measured on it, layer by layer.

    Ctrl-C ends the run and keeps what was joined until then.

    Parameters
    ----------
    model
        Model, which is run without dropout and gradients.
    batches
        Batches, as for `posprobe.forward.averages`.
    measure
        Function that measures a batch.
    title
        Name of the model, for messages.

    Returns
    -------
    tuple
        The sums by layer, and whether the run was interrupted.

    Raises
    ------
    UsageError
        If there are no contexts, they differ in length, or a batch does not fit into memory.
    """
    sums: dict[int, _S] = {}
    shape: tuple[int, ...] = ()
    stopped = False
    done = 0
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
                parts = measure(batch, done, sums)
                # In one step: an interruption must not leave some layers ahead of others.
                sums = {n: sums[n] + part for n, part in parts.items()} if sums else parts
                done += len(batch)
    except KeyboardInterrupt:
        if not sums:
            raise
        stopped = True
        _log.warning("Interrupted: the result is over the %d contexts until then.", done)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UsageError(
            f"{title}: a batch of contexts does not fit into memory. Use smaller ones "
            "(--batch-size), shorter contexts, --dtype bfloat16 or another device."
        ) from error
    if not sums:
        raise UsageError(
            f"{title}: the inputs are empty. A generator can be used only once; pass a list."
        )
    return sums, stopped


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
            f"and the model knows {vocabulary}: they are of the tokenizer of another model."
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
    return longest - _first_position(model)


def places(model: Any, batch: torch.Tensor, shift: int) -> torch.Tensor:
    """Return the numbers ``[b, t]`` of positions so much later than a model's own."""
    start = _first_position(model) + shift
    row: torch.Tensor = required("torch").arange(start, start + batch.shape[1], device=batch.device)
    return row.expand(len(batch), -1)


def _first_position(model: Any) -> int:
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
