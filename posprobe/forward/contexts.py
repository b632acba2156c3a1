"""Contexts to run a model on, and sums over them, batch by batch."""

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
from posprobe.forward.models import evaluation_mode, import_package
from posprobe.forward.running import check_finite, explain_model_errors, is_out_of_memory
from posprobe.progress import stage

if TYPE_CHECKING:
    import torch
    from torch import nn


_log = logging.getLogger("posprobe")

#: Contexts of a batch where they come as one array.
DEFAULT_BATCH_SIZE = 8
#: So much padding at an end of a context is padding: one such token may be drawn at random.
MIN_PADDING_TOKENS = 2
#: The same where the token of padding has another role: it may begin or end a text, once or twice.
MIN_PADDING_TOKENS_WITH_ROLE = 3
#: Keys of a configuration: tokens that begin or end a text.
_END_TOKEN_KEYS = (
    "bos_token_id",
    "eos_token_id",
    "cls_token_id",
    "sep_token_id",
    "decoder_start_token_id",
)


def random_tokens(
    config: Any, length: int, count: int, *, seed: int = 0, batch_size: int = 8
) -> Iterator[NDArray[np.int64]]:
    """Yield contexts of independent tokens, equally likely.

    Special tokens that the configuration names are left out. Others are known only to a tokenizer.

    Parameters
    ----------
    config
        Configuration of a model of transformers, or the model.
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
        If it states no vocabulary, or fewer than two of its tokens are not special.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> from transformers import GPT2Config
    >>> batches = pp.forward.random_tokens(GPT2Config(vocab_size=100), length=16, count=10)
    >>> [batch.shape for batch in batches]
    [(8, 16), (2, 16)]
    """
    allowed = _list_ordinary_tokens(getattr(config, "config", config))
    rng = np.random.default_rng(seed)
    for size in _batch_sizes(count, batch_size):
        yield allowed[rng.integers(0, len(allowed), (size, length))]


def generates(model: Any) -> bool:
    """Tell whether a model of transformers predicts the next token, so that it can be sampled."""
    return type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def sampled_tokens(
    model: Any, length: int, count: int, *, seed: int = 0, batch_size: int = 8
) -> Iterator[NDArray[np.int64]]:
    """Yield contexts that a causal language model generates itself, at temperature 1.

    Each begins with the token that begins a text, or else with the one that ends it. A context
    takes one step of the model per token.

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
            f"{title}: it does not predict the next token, so it cannot be "
            "sampled. Load it with the head that predicts "
            "(`head=True`), or use a text (`text`), token ids (`tokens=FILE.npy`) or "
            "random ones (`tokens='random'`)."
        )
    config = model.config
    start_tokens = (config.bos_token_id, config.eos_token_id)
    # Small models keep the default of their configuration, which may lie beyond their vocabulary.
    known_tokens = range(config.vocab_size)
    first_token = next(
        (t for t in start_tokens if isinstance(t, int) and t in known_tokens), None
    )
    if first_token is None:
        first_token = int(_list_ordinary_tokens(config)[0])
    uniforms = np.random.default_rng(seed).random((count, length))
    with stage(
        "Sampling contexts from the model (tokens)", count * (length - 1)
    ) as advance:
        for start in range(0, count, batch_size):
            yield _sample_batch(
                model, uniforms[start : start + batch_size], first_token, title, advance
            )


def _sample_batch(
    model: Any,
    uniforms: NDArray[np.float64],
    first_token: int,
    title: str,
    advance: Callable[[int], None],
) -> NDArray[np.int64]:
    """Sample a batch with one uniform number per token, and a cache of earlier tokens."""
    pt = import_package("torch")
    cache = import_package("transformers").DynamicCache(config=model.config)
    # transformers 5.24 renamed the argument.
    parameters = inspect.signature(model.forward).parameters
    cache_options = {"cache" if "cache" in parameters else "past_key_values": cache}
    tokens = np.full(uniforms.shape, first_token, dtype=np.int64)
    with evaluation_mode(model) as device:
        for position in range(1, uniforms.shape[1]):
            last_tokens = pt.as_tensor(tokens[:, position - 1 : position], device=device)
            with explain_model_errors(model):
                logits = model(
                    input_ids=last_tokens, use_cache=True, **cache_options
                ).logits[:, -1]
            check_finite(model, logits, "the logits", title)
            token_logits = logits[:, : model.config.vocab_size].cpu().double()
            cumulative = np.cumsum(token_logits.softmax(dim=-1).numpy(), axis=1)
            for row, sums in enumerate(cumulative):
                distribution = sums / sums[-1]
                uniform = uniforms[row, position]
                tokens[row, position] = np.searchsorted(
                    distribution, uniform, side="right"
                )
            advance(len(tokens))
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
    allowed = _list_ordinary_tokens(config)
    tokens = np.random.default_rng(seed).permutation(allowed)[:count]
    for start in range(0, len(tokens), batch_size):
        yield np.repeat(tokens[start : start + batch_size, None], length, axis=1)


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
    for size in _batch_sizes(count, batch_size):
        yield rng.standard_normal((size, *shape)).astype(np.float32)


def _list_ordinary_tokens(config: Any) -> NDArray[np.int64]:
    """List the token ids that the configuration does not name as special.

    Padding, for example, would shift RoBERTa's positions.
    """
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise UsageError(
            f"{type(config).__name__}: its configuration has no vocab_size. "
            "If the model has several parts, choose one: REF#text, "
            "REF#vision or REF#decoder."
        )
    special_values = [
        value for key, value in config.to_dict().items() if key.endswith("_token_id")
    ]
    special_tokens = {
        token
        for value in special_values
        for token in (value if isinstance(value, list | tuple) else [value])
        if isinstance(token, int)
    }
    ordinary_tokens = np.array(
        [token for token in range(config.vocab_size) if token not in special_tokens]
    )
    if ordinary_tokens.size < 2:
        raise UsageError(
            f"{type(config).__name__}: {ordinary_tokens.size} of the "
            f"{config.vocab_size} tokens of its vocabulary are not special, "
            "too few to draw contexts from. Use a text: `text`."
        )
    return ordinary_tokens


def _batch_sizes(count: int, batch_size: int) -> Iterator[int]:
    for start in range(0, count, batch_size):
        yield min(batch_size, count - start)


class Summable(Protocol):
    """Sums over contexts that can be joined."""

    @property
    def contexts(self) -> int:
        """Number of contexts in the sums."""

    def __add__(self, other: Self) -> Self: ...


_SumsT = TypeVar("_SumsT", bound=Summable)
_KeyT = TypeVar("_KeyT")
#: Function of a batch on the model's device, the number of contexts before it, and the sums over
#: those. It returns the sums over this batch, by layer.
MeasureBatch: TypeAlias = (
    "Callable[[torch.Tensor, int, Mapping[_KeyT, _SumsT]], dict[_KeyT, _SumsT]]"
)


def sum_over_contexts(
    model: Any,
    batches: Array | Iterable[Array],
    measure: MeasureBatch[_KeyT, _SumsT],
    title: str,
) -> tuple[dict[_KeyT, _SumsT], bool]:
    """Run all contexts and add up a measurement of each batch, layer by layer.

    Ctrl-C ends the run and keeps the sums until then.

    Parameters
    ----------
    model
        Model, which is run without dropout and gradients.
    batches
        Batches, as for `posprobe.forward.averages`, or all contexts as one array.
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
    sums: dict[_KeyT, _SumsT] = {}
    shape: tuple[int, ...] = ()
    is_interrupted = False
    n_done = 0
    try:
        with evaluation_mode(model) as device:
            for contexts in split_batches(batches):
                batch = _as_batch(contexts, device, model)
                check_same_shape(batch, shape, title)
                shape = tuple(batch.shape[1:])
                batch_sums = measure(batch, n_done, sums)
                # A single assignment keeps all layers at the same context after an interruption.
                sums = (
                    {n: sums[n] + layer_sums for n, layer_sums in batch_sums.items()}
                    if sums
                    else batch_sums
                )
                n_done += len(batch)
    except KeyboardInterrupt:
        if not sums:
            raise
        is_interrupted = True
        _log.warning(
            "Interrupted: the result is over the %d contexts until then.", n_done
        )
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UsageError(
            f"{title}: a batch of contexts does not fit into memory. Use "
            "smaller ones (`batch_size`), shorter contexts, "
            "`dtype='bfloat16'` or another device."
        ) from error
    if not sums:
        raise empty_error(title)
    return sums, is_interrupted


def empty_error(title: str) -> UsageError:
    """Return the error of inputs without a context."""
    return UsageError(
        f"{title}: the inputs are empty. A generator can be used only once; pass a list."
    )


def check_same_shape(batch: torch.Tensor, shape: tuple[int, ...], title: str) -> None:
    """Refuse a batch whose contexts are not of the shape of those before it; () before any.

    Raises
    ------
    UsageError
        If they differ.
    """
    if shape and tuple(batch.shape[1:]) != shape:
        raise UsageError(
            f"{title}: contexts of shape {list(batch.shape[1:])} after those of {list(shape)}: "
            "all must be as long as each other."
        )


def split_batches(contexts: Array | Iterable[Array]) -> Iterator[Array]:
    """Yield batches of contexts; one array of all contexts is cut into them.

    Raises
    ------
    UsageError
        If there is nothing to take batches from.
    """
    if not hasattr(contexts, "ndim"):
        if not isinstance(contexts, Iterable):
            raise _form_error(contexts)
        yield from contexts
        return
    array: Array = contexts
    for start in range(0, max(len(array), 1), DEFAULT_BATCH_SIZE):
        yield array[start : start + DEFAULT_BATCH_SIZE]


def _form_error(contexts: object) -> UsageError:
    return UsageError(
        f"{type(contexts).__name__} {contexts!r:.40}: arrays of token ids [b, t] or of pixels "
        "[b, channels, h, w] are expected. posprobe.forward.text_windows cuts a text."
    )


def _as_batch(contexts: Array, device: torch.device, model: Any) -> torch.Tensor:
    batch = to_tensor(contexts)
    check_inputs(model, batch)
    dtype = next(model.parameters()).dtype
    return batch.to(device=device, dtype=dtype if batch.is_floating_point() else None)


def to_tensor(contexts: Array) -> torch.Tensor:
    """Return a batch as a tensor of token ids ``[b, t]``, int64, or of floating-point signals.

    Raises
    ------
    UsageError
        If it is neither, or empty.
    """
    pt = import_package("torch")
    if not hasattr(contexts, "ndim"):
        raise _form_error(contexts)
    try:
        batch: torch.Tensor = pt.as_tensor(contexts)
    except (TypeError, ValueError) as error:
        raise _form_error(contexts) from error
    are_ids = batch.ndim == 2 and not batch.is_floating_point() and not batch.is_complex()
    are_signals = batch.ndim in (3, 4) and batch.is_floating_point()
    if not (are_ids or are_signals) or 0 in batch.shape:
        raise UsageError(
            f"a batch of shape {list(batch.shape)}, {batch.dtype}: integer "
            "token ids [b, t], floating-point pixels [b, channels, h, w] or "
            "features of sound [b, bins, t] are expected, at least one of them."
        )
    return batch.to(dtype=pt.int64) if are_ids else batch


def check_inputs(model: Any, batch: torch.Tensor) -> None:
    """Refuse token ids that the model does not have, or has no positions for.

    Raises
    ------
    UsageError
        As `check_token_ids`.
    """
    if not batch.is_floating_point():
        check_token_ids(batch, model)


def check_token_ids(batch: torch.Tensor | NDArray[np.int64], model: Any) -> None:
    """Refuse token ids and positions outside the tables, which would crash a run on a GPU.

    Raises
    ------
    UsageError
        If token ids are outside the vocabulary, or contexts longer than the positions.
    """
    config = getattr(model, "config", None)
    vocabulary_size = getattr(config, "vocab_size", None)
    if vocabulary_size and (int(batch.min()) < 0 or int(batch.max()) >= vocabulary_size):
        raise UsageError(
            f"{type(model).__name__}: token ids run from {int(batch.min())} "
            f"to {int(batch.max())} and the model knows {vocabulary_size}: "
            "they are of the tokenizer of another model."
        )
    max_length = context_length(model)
    if max_length and batch.shape[1] > max_length:
        raise UsageError(
            f"{type(model).__name__}: contexts of {batch.shape[1]} tokens "
            f"are longer than the {max_length} positions of the model. Use "
            "shorter ones (`length`)."
        )


def check_padding(
    model: Any, batch: torch.Tensor | NDArray[np.int64], title: str
) -> None:
    """Refuse contexts that begin or end with padding, which no query may look at.

    Raises
    ------
    UsageError
        If a context begins or ends with `MIN_PADDING_TOKENS` of the model's padding, or with
        `MIN_PADDING_TOKENS_WITH_ROLE` where the same token begins or ends texts.
    """
    config = getattr(model, "config", None)
    padding = getattr(config, "pad_token_id", None)
    if padding is None or batch.ndim != 2:
        return
    end_tokens = [getattr(config, key, None) for key in _END_TOKEN_KEYS]
    # Some models have several tokens that end a text.
    has_role = any(
        padding in (ids if isinstance(ids, list | tuple) else [ids]) for ids in end_tokens
    )
    n_ends = MIN_PADDING_TOKENS_WITH_ROLE if has_role else MIN_PADDING_TOKENS
    if batch.shape[1] < n_ends:
        return
    ends = batch[:, :n_ends], batch[:, -n_ends:]
    if any(bool((end == padding).all(1).any()) for end in ends):
        raise UsageError(
            f"{title}: contexts begin or end with padding (token {padding}), which hides keys. "
            "Cut them to one length without it."
        )


def context_length(model: Any) -> int | None:
    """Return the number of tokens that a model of transformers has positions for.

    None stands for no limit: if only distances count, contexts may be longer than in training.
    """
    config = getattr(model, "config", None)
    keys = ("max_position_embeddings", "max_target_positions")
    max_length = next(
        (getattr(config, key) for key in keys if hasattr(config, key)), None
    )
    is_rotary = getattr(config, "rope_parameters", None) and not position_tables(model)
    if not isinstance(max_length, int) or max_length < 1 or is_rotary:
        return None
    return max_length - _first_position(model)


def shifted_positions(model: Any, batch: torch.Tensor, shift: int) -> torch.Tensor:
    """Return the numbers ``[b, t]`` of positions that are ``shift`` later than a model's own."""
    start = _first_position(model) + shift
    row: torch.Tensor = import_package("torch").arange(
        start, start + batch.shape[1], device=batch.device
    )
    return row.expand(len(batch), -1)


def _first_position(model: Any) -> int:
    """Return the number of a model's first position.

    Models like RoBERTa count from behind the padding row of their table. Others have no such row.
    """
    padding_rows = [
        getattr(module, "padding_idx", None) for module in position_tables(model).values()
    ]
    return max((row + 1 for row in padding_rows if row is not None), default=0)


def has_table(model: Any) -> bool:
    """Tell whether a model looks positions up in a table."""
    return bool(position_tables(model))


def position_tables(model: Any) -> dict[str, nn.Module]:
    """Return the modules of a model in which positions are looked up, by path."""
    named_modules = model.named_modules() if hasattr(model, "named_modules") else ()
    return {
        path: module
        for path, module in named_modules
        if hasattr(module, "num_embeddings") and is_named_position(f"{path}.weight")
    }
