"""What the heads of a running rotary model make of distance."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.rotary_heads import RotarySums, rotary_result
from posprobe.analyses.models.rotary_use import LayerUse, Origin, RotaryUse
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.contexts import stream
from posprobe.forward.models import required
from posprobe.forward.rotary_layers import (
    Handed,
    Looked,
    is_rotary,
    prepared,
    run_watched,
    stated_context,
    turns_images,
    unmeasured_layer,
    unrotated,
    widened,
)

if TYPE_CHECKING:
    import torch

#: Heads and queries whose logits are held at a time: those of all heads of a large model would take
#: more memory than all sums.
HEADS, QUERIES = 4, 128


def rotary_use(
    model: Any,
    contexts: Iterable[Array],
    *,
    source: Origin = "given",
    name: str | None = None,
) -> RotaryUse:
    """Measure what each head of a rotary model makes of distance, on some contexts.

    Of contexts of T tokens, each query of a window is seen with the same distances, so that the
    variance of logits splits exactly: ``W = T // 2`` distances where keys come before queries
    (fewer in layers with a sliding window), ``T // 3`` on either side where both are seen. The
    first token is never a key. The distance share depends on T and on the text.

    Before anything is measured, two checks guard it: looking leaves the outputs exactly as they
    are, and for each layer frequencies, pairs and rotated columns must be those with which
    unrotated queries and keys stay the same when positions start 37 later. A layer of which no
    candidate passes is not measured, and the result says so.

    Unrotated pairs: Su et al. 2021; usage: Barbero et al. 2024 (2410.06205); offset pairs:
    Jonasson 2025 (2503.01832); window, distance share and moved attention are this package's own.

    Parameters
    ----------
    model
        Of transformers, rotary, for text.
    contexts
        Batches ``[b, t]`` of token ids, all as long, at least 32 tokens; 12 contexts or more for
        answers.
    source
        What the contexts are, for the record.
    name
        Name of the model, for messages.

    Returns
    -------
    RotaryUse
        By head: distance share (0 to 1), spread, range and curves (nats), preferred distance
        (tokens), usage and mean part of each pair, moved attention (0 to 1), and an answer.

    Raises
    ------
    UsageError
        If the model has no rotary embedding, its layers do not hand queries and keys to the
        attention interface of transformers, contexts are too short or longer than its context, or
        no layer can be measured.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> from transformers import LlamaConfig, LlamaModel
    >>> config = LlamaConfig(
    ...     hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    ...     vocab_size=50,
    ... )
    >>> model = LlamaModel(config).eval()
    >>> found = pp.rotary_use(model, pp.forward.random_tokens(config, length=32, count=4))
    >>> found.layers[0].pairs, found.layers[0].window, len(found.heads)
    ('halves', 16, 2)
    """
    title = name or type(model).__name__
    if not is_rotary(model):
        axes = " Along rows and columns of images they are not measured."
        raise UsageError(
            f"{title}: {type(model).__name__} has no rotary embedding of transformers that turns "
            f"queries and keys by their place in a text.{axes if turns_images(model) else ''}"
        )
    layers: dict[int, Looked] = {}
    unmeasured: dict[int, LayerUse] = {}
    length = 0

    def measure(batch: torch.Tensor, *_: object) -> dict[int, RotarySums]:
        nonlocal layers, unmeasured, length
        if batch.ndim != 2:
            raise UsageError(f"{title}: rotations are measured on text, not on images.")
        if not length:
            layers, unmeasured = prepared(model, batch[:1], title)
            length = batch.shape[1]
        made: dict[int, RotarySums] = {}

        def look(number: int, handed: Handed) -> None:
            if number not in layers:
                return
            if bool(handed.query.isfinite().all() and handed.key.isfinite().all()):
                made[number] = window_sums(handed, layers[number])
                return
            # A layer is measured on all contexts or on none.
            del layers[number]
            unmeasured[number] = unmeasured_layer(number, "not_finite")

        run_watched(model, batch, look, title)
        return made

    sums, stopped = stream(model, contexts, measure, title)
    return rotary_result(
        {number: part for number, part in sums.items() if number in layers},
        {number: layer.turning for number, layer in layers.items()},
        unmeasured,
        length=length,
        positions=stated_context(model),
        source=source,
        name=title,
        stopped=stopped,
    )


def window_sums(handed: Handed, layer: Looked) -> RotarySums:
    """Add a layer's window up over the contexts of a batch: one context, some heads at a time.

    Logits are products in the model's own precision, float32 at least; sums are float64 (float32
    on MPS).
    """
    first, last = int(layer.turning.distances[0]), int(layer.turning.distances[-1])
    found = []
    for query, key in zip(widened(handed.query), widened(handed.key), strict=True):
        heads = np.arange(len(query))
        shared = heads // (len(query) // len(key))
        parts = [
            _sums_of_heads(query[some.tolist()], key[shared[some].tolist()], layer, handed.cap)
            for some in np.array_split(heads, -(-len(heads) // HEADS))
        ]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        by_context = {name: joined.pop(name)[None] for name in RotarySums.axes}
        queries = layer.stop - layer.first
        found.append(
            RotarySums(**by_context, **joined, queries=queries, keys=queries + last - first)
        )
    return reduce(add, found)


def _sums_of_heads(
    query: torch.Tensor, key: torch.Tensor, layer: Looked, cap: float | None
) -> dict[str, NDArray[Any]]:
    """Add up the window of some heads, ``[heads, t, d]`` each, in one context."""
    pt = required("torch")
    turning, first, stop = layer.turning, layer.first, layer.stop
    distances = turning.distances
    begin = first - int(distances[-1])
    plain = query[:, first:stop], key[:, begin : stop - int(distances[0])]
    pairs = unrotated(plain[0], turning, first), unrotated(plain[1], turning, begin)
    (pair_q, rest_q), (pair_k, rest_k) = pairs
    still = np.exp(1j * np.outer(turning.frequencies, distances)).mean(axis=1)
    held = pair_q * pt.as_tensor(still, dtype=pair_q.dtype, device=pair_q.device)
    # What stays of a logit when every pair has the mean of its rotation.
    hidden = (
        pt.cat([held.real, held.imag, rest_q], dim=-1),
        pt.cat([pair_k.real, pair_k.imag, rest_k], dim=-1),
    )
    wide = pt.float32 if query.device.type == "mps" else pt.float64

    def total(part: torch.Tensor) -> NDArray[np.float64]:
        return np.asarray(part.sum(dim=1, dtype=wide).cpu().double().numpy())

    parts = []
    for start in range(0, stop - first, QUERIES):
        end = min(start + QUERIES, stop - first)
        logits, other = (
            _by_distance(q[:, start:end], k[:, start : end + len(distances) - 1]) * turning.scale
            for q, k in (plain, hidden)
        )
        parts.append(tuple(map(total, _of_logits(logits, other, cap))))
    means = [sum(each) / (stop - first) for each in zip(*parts, strict=True)]
    found = dict(zip(RotarySums.axes, means, strict=True))
    # The farthest key comes first in memory.
    found["curves"] = found["curves"][:, ::-1]
    for name, (pair, rest) in zip(("query", "key"), pairs, strict=True):
        power = pair.real.square() + pair.imag.square()
        if turning.columns != "all":
            power = pt.cat([power, rest.square().sum(dim=-1, keepdim=True)], dim=-1)
        found |= {
            name: total(pair.real) + 1j * total(pair.imag), f"rest_{name}": total(rest),
            f"{name}_power": total(power),
        }  # fmt: skip
    return found


def _of_logits(
    logits: torch.Tensor, other: torch.Tensor, cap: float | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits ``[heads, q, n]``, and by query their variance, moved attention, share capped.

    Parameters
    ----------
    logits, other
        As they are, and with distance hidden.
    cap
        What logits are capped at, None where they are not.
    """
    moved = logits.softmax(dim=-1).sub_(other.softmax(dim=-1)).abs_().sum(dim=-1) / 2
    capped = moved * float("nan")
    if cap is not None:
        capped = (logits.abs() > cap / 2).to(moved.dtype).mean(dim=-1)
    # PyTorch's own variance took a third of all time.
    variance = (logits - logits.mean(dim=-1, keepdim=True)).square_().mean(dim=-1)
    return logits, variance, moved, capped


def _by_distance(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return the dot product of each query with the n keys up to its own place, farthest first.

    Parameters
    ----------
    query, key
        ``[heads, q, d]`` and ``[heads, q + n - 1, d]``: query i meets keys i to i + n - 1.
    """
    heads, count, _ = query.shape
    across = key.shape[1]
    products = query @ key.transpose(1, 2)
    # Rows that begin one later each are rows of a matrix with one column more.
    flat = required("torch").nn.functional.pad(products.reshape(heads, -1), (0, count))
    found: torch.Tensor = flat.reshape(heads, count, across + 1)[:, :, : across - count + 1]
    return found
