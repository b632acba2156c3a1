"""What the heads of a running rotary model make of distance, once it is known how layers turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import add
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.rotary_heads import RotarySums, Turning, rotary_result
from posprobe.analyses.models.rotary_use import Columns, LayerUse, Origin, Pairs, Reason, RotaryUse
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.averages import step_by_step
from posprobe.forward.contexts import places, stream
from posprobe.forward.models import required
from posprobe.forward.running import body_of, is_timm, layer_numbers, output_of

if TYPE_CHECKING:
    import torch


#: Name under which attention is registered while it is looked at.
NAME = "posprobe_rotary"


@dataclass(frozen=True, eq=False)
class Handed:
    """What one layer hands to attention for a batch.

    Parameters
    ----------
    query, key
        ``[b, heads, t, d]`` and ``[b, groups, t, d]``, rotated.
    mask
        Additive or boolean; None where every key is seen.
    scale
        Factor of the dot products.
    cap
        Cap of the logits; None without one.
    """

    query: torch.Tensor
    key: torch.Tensor
    mask: torch.Tensor | None
    scale: float
    cap: float | None


def is_rotary(model: Any) -> bool:
    """Tell whether a model of transformers rotates queries and keys, for text."""
    return not is_timm(model) and any(map(_is_ladder, getattr(model, "modules", list)()))


def turns_images(model: Any) -> bool:
    """Tell whether a model turns queries and keys along rows and columns of an image."""
    names = [type(module).__name__ for module in getattr(model, "modules", list)()]
    return any("Rope" in name or "Rotary" in name for name in names)


def _is_ladder(module: Any) -> bool:
    return type(module).__name__.endswith("RotaryEmbedding")


def stated_context(model: Any) -> int | None:
    """Return the context that the configuration states, None where it states none."""
    config: Any = getattr(model, "config", None)
    found = getattr(config, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


@contextmanager
def _watched(model: Any, look: Callable[[int, Handed], None], title: str) -> Iterator[None]:
    """Show what each layer hands to attention; the layer's own attention goes on with it."""
    transformers = required("transformers")
    masks = transformers.masking_utils
    interface, mask_interface = transformers.AttentionInterface, transformers.AttentionMaskInterface
    numbers, fused = layer_numbers(model), runs_fused(model)

    def attend(
        module: Any, query: Any, key: Any, value: Any, mask: Any, *more: Any, **named: Any
    ) -> Any:
        # Cross-attention has another number of keys, and no distance.
        if module in numbers and query.shape[2] == key.shape[2] and query.shape[2] > 1:
            scale = named.get("scaling", more[0] if more else None)
            cap = named.get("softcap")
            size = query.shape[-1] ** -0.5 if scale is None else float(scale)
            look(numbers[module], Handed(query, key, mask, size, cap))
        # Fused attention has no cap and no sinks.
        if fused and named.get("softcap") is None and named.get("s_aux") is None:
            # As the model itself has it: a mask that hides later keys alone need not be added.
            given = None if getattr(module, "is_causal", False) and _hides_later(mask) else mask
            return interface()["sdpa"](module, query, key, value, given, *more, **named)
        own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if own is None:
            raise UsageError(
                f"{title}: {type(module).__name__} has no step-by-step attention to go on with, "
                "so its queries and keys cannot be looked at."
            )
        return own(module, query, key, value, mask, *more, **named)

    interface.register(NAME, attend)
    # Without a mask function of that name the mask would be lost.
    mask_interface.register(NAME, masks.eager_mask)
    try:
        with step_by_step(model, title, NAME):
            yield
    finally:
        interface._global_mapping.pop(NAME, None)  # there is no public way back
        mask_interface._global_mapping.pop(NAME, None)


def _hides_later(mask: torch.Tensor | None) -> bool:
    """Tell whether an additive mask ``[b, 1, t, t]`` hides later keys and no others."""
    if mask is None or mask.shape[-1] != mask.shape[-2]:
        return False
    pt = required("torch")
    earlier = pt.ones(mask.shape[-2:], dtype=pt.bool, device=mask.device).tril()
    return bool(((mask == 0) == earlier).all())


def runs_fused(model: Any) -> bool:
    """Tell whether a model uses PyTorch's fused attention, in single precision at least.

    It takes two thirds of the time of attention step by step, and rounds otherwise.
    """
    way = getattr(body_of(model).config, "_attn_implementation", None)
    return way == "sdpa" and next(model.parameters()).element_size() >= 4


def run_watched(
    model: Any,
    batch: torch.Tensor,
    look: Callable[[int, Handed], None],
    title: str,
    shift: int | None = None,
) -> Any:
    """Run a model, show what its layers hand to attention, and return its last hidden states."""
    with _watched(model, look, title):
        return last_states(model, batch, shift)


def last_states(model: Any, batch: torch.Tensor, shift: int | None = None) -> Any:
    """Run a batch of token ids ``[b, t]``, at positions so much later; return its last states."""
    moved = {} if shift is None else {"position_ids": places(model, batch, shift)}
    return output_of(model, batch, **moved).last_hidden_state


def frequencies_of(model: Any) -> dict[str, torch.Tensor]:
    """Return the buffers that hold the frequencies of a model's rotations, by name."""
    return {
        name: buffer
        for name, buffer in model.named_buffers()
        if name.endswith("inv_freq") and "original" not in name and buffer.device.type != "meta"
    }


def ladders_of(model: Any) -> list[NDArray[np.float64]]:
    """Return the frequencies with which a model ran last, in radians per position, each once.

    They depend on the length of contexts where a rule of scaling does.
    """
    buffers = frequencies_of(model).values()
    found = [buffer.detach().double().cpu().numpy() for buffer in buffers]
    # GPT-J and CodeGen keep cosines of the usual frequencies, of so many columns.
    if columns := getattr(body_of(model).config, "rotary_dim", None):
        found.append(10_000.0 ** (-np.arange(0, columns, 2) / columns))
    return [
        ladder
        for place, ladder in enumerate(found)
        if not any(np.array_equal(ladder, other) for other in found[:place])
    ]


def widened(value: torch.Tensor) -> torch.Tensor:
    """Return numbers of half precision as float32, others as they are."""
    return value.float() if value.element_size() < 4 else value


#: Positions that the shift check moves by: no multiple of any usual period.
SHIFT = 37
#: Positions of a context that the shift check compares: at later ones the rounding of angles in
#: float32 grows beyond what another base leaves.
COMPARED = 64
#: Residual of the shift check below which a candidate is right, by bytes of a number: other ladders
#: and pairings leave at least three times as much.
PASSES = {"float64": 1e-5, "float32": 1e-5, "float16": 5e-3, "bfloat16": 2.5e-2}
#: Change of the outputs, over their norm, that rounding in single precision explains.
ROUNDED = 1e-4
#: Fewest tokens of a context, and fewest distances of a window.
MIN_LENGTH = 32
MIN_WINDOW = 8


@dataclass(frozen=True, eq=False)
class Looked:
    """How a layer turns, and which of its queries are looked at.

    Parameters
    ----------
    turning
        With the distances at which each of them is looked at.
    first, stop
        The first query of the window, and the one after its last.
    """

    turning: Turning
    first: int
    stop: int


def unmeasured_layer(number: int, reason: Reason, residual: float | None = None) -> LayerUse:
    """Return the record of a layer that cannot be measured."""
    return LayerUse(
        layer=number, ignores=None, reason=reason, window=0, both_sides=False, ladder=np.zeros(0),
        pairs=None, columns=None, shift_check=residual,
    )  # fmt: skip


def prepared(
    model: Any, batch: torch.Tensor, title: str
) -> tuple[dict[int, Looked], dict[int, LayerUse]]:
    """Check that looking changes nothing, and find how each layer turns queries and keys.

    Returns
    -------
    tuple
        The layers that can be measured, and the others, by number.
    """
    length, limit = batch.shape[1], stated_context(model)
    if length < MIN_LENGTH:
        raise UsageError(
            f"{title}: contexts of {length} tokens are too short to tell distances apart: use "
            f"{MIN_LENGTH} or more (--length)."
        )
    if limit and length > limit:
        raise UsageError(
            f"{title}: contexts of {length} tokens are longer than the {limit} positions of the "
            "model. Use shorter ones: --length."
        )
    handed = _handed(model, batch, title)
    ladders = ladders_of(model)
    moved = _moved(model, batch, ladders, title)
    layers: dict[int, Looked] = {}
    unmeasured: dict[int, LayerUse] = {}
    for number, part in sorted(handed.items()):
        found = _layer(part, moved[number], ladders, length)
        if isinstance(found, Looked):
            layers[number] = found
        else:
            unmeasured[number] = unmeasured_layer(number, *found)
    if not layers:
        reasons = sorted({WHY[layer.reason] for layer in unmeasured.values()})
        raise UsageError(f"{title}: no layer can be measured: {', '.join(reasons)}.")
    return layers, unmeasured


def _handed(model: Any, batch: torch.Tensor, title: str) -> dict[int, Handed]:
    """Return what each layer hands to attention, if outputs are the same when that is looked at."""
    pt = required("torch")
    handed: dict[int, Handed] = {}
    fused = runs_fused(model)
    with step_by_step(model, title, "sdpa" if fused else "eager"):
        plain = last_states(model, batch)
    watched = run_watched(model, batch, handed.__setitem__, title)
    if not handed:
        raise UsageError(
            f"{title}: the layers of {type(model).__name__} do not use the attention interface of "
            "transformers, so their queries and keys cannot be seen."
        )
    apart = (plain - watched).nan_to_num()
    same = pt.equal(plain.isnan(), watched.isnan()) and not apart.any()
    # Fused attention rounds otherwise with a mask than without; a GPU adds up in another order.
    rounded = fused or plain.device.type != "cpu"
    if not (same or (rounded and bool(apart.norm() <= ROUNDED * plain.nan_to_num().norm()))):
        raise UsageError(
            f"{title}: outputs change when attention is looked at, by up to "
            f"{float(apart.abs().max()):.1e}, so it is not measured."
        )
    return handed


#: Why a layer cannot be measured.
WHY: Mapping[str, str] = {
    "no_pairing": "no rotation that is known explains its queries and keys",
    "not_finite": "its queries or keys hold NaN or infinity",
    "other_keys": "which keys it sees does not depend on distance alone",
    "short_window": f"it sees fewer than {MIN_WINDOW} distances",
}

#: Queries and keys ``[b, heads, t, d]`` of the same tokens at positions from 0 and from `SHIFT`.
_Both = Sequence[tuple["torch.Tensor", "torch.Tensor"]]


def _moved(
    model: Any, batch: torch.Tensor, ladders: Sequence[NDArray[np.float64]], title: str
) -> dict[int, _Both]:
    """Run the same tokens at later positions, and return what each layer hands over then.

    They are the first alone, unless frequencies depend on how many there are.
    """
    # No longer than there is room for.
    limit = stated_context(model)
    room = batch.shape[1] if limit is None else max(min(batch.shape[1], limit - SHIFT), 2)
    first: dict[int, Handed] = {}
    later: dict[int, Handed] = {}
    for tokens in (batch[:, : min(COMPARED, room)], batch[:, :room]):
        run_watched(model, tokens, first.__setitem__, title, 0)
        run_watched(model, tokens, later.__setitem__, title, SHIFT)
        own = ladders_of(model)
        if len(own) == len(ladders) and all(map(np.array_equal, own, ladders)):
            break
    if all(bool((first[number].query == part.query).all()) for number, part in later.items()):
        raise UsageError(
            f"{title}: its queries do not change when positions start later, so its rotation "
            "cannot be checked."
        )
    return {
        number: [
            (first[number].query, later[number].query),
            (first[number].key, later[number].key),
        ]
        for number in first
    }


def _layer(
    handed: Handed, both: _Both, ladders: Sequence[NDArray[np.float64]], length: int
) -> Looked | tuple[Reason, float | None]:
    """Find how a layer turns queries and keys, and its window; or why it cannot be measured."""
    if not all(bool(part.isfinite().all()) for part in (handed.query, handed.key)):
        return "not_finite", None
    dtype = str(handed.query.dtype).removeprefix("torch.")
    best = min(
        (
            replace(candidate, residual=_residual(candidate, both))
            for candidate in _candidates(ladders, handed.query.shape[-1], handed.scale)
        ),
        key=lambda candidate: candidate.residual,
    )
    if not best.residual < PASSES[dtype]:
        return "no_pairing", best.residual
    window = _window(handed.mask, length)
    if isinstance(window, str):
        return window, best.residual
    distances, first, stop = window
    return Looked(replace(best, distances=distances), first, stop)


def _candidates(
    ladders: Sequence[NDArray[np.float64]], width: int, scale: float
) -> Iterator[Turning]:
    """Yield all ways in which columns of a width may turn, beside not turning at all."""
    nothing = np.zeros(0, dtype=np.int64)
    yield Turning(np.zeros(0), "none", "none", 0.0, nothing, scale)
    ways: tuple[Pairs, Pairs] = ("halves", "neighbours")
    parts: tuple[Columns, Columns] = ("first", "last")
    for ladder, pairs in product(ladders, ways):
        if 2 * len(ladder) == width:
            yield Turning(ladder, pairs, "all", 0.0, nothing, scale)
        elif 0 < 2 * len(ladder) < width:
            for columns in parts:
                yield Turning(ladder, pairs, columns, 0.0, nothing, scale)


def _residual(turning: Turning, both: _Both) -> float:
    """Return the norm of the change of unrotated queries and keys over theirs, the larger."""
    found = []
    for runs in both:
        one, other = (widened(part)[:, :, :COMPARED] for part in runs)
        first, later = unrotated(one, turning, 0), unrotated(other, turning, SHIFT)
        change = sum(_power(a - b) for a, b in zip(first, later, strict=True))
        size = sum(map(_power, first))
        found.append((change / size) ** 0.5 if size else 0.0)
    return max(found)


def _power(part: torch.Tensor) -> float:
    return float(part.abs().double().square().sum())


def unrotated(
    tensor: torch.Tensor, turning: Turning, start: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Undo the rotation of queries or keys at positions that begin at a number.

    Returns
    -------
    tuple
        ``[..., t, pairs]``, complex, and ``[..., t, columns]`` those that do not turn.
    """
    pt = required("torch")
    width, size = tensor.shape[-1], len(turning.frequencies)
    begin = width - 2 * size if turning.columns == "last" else 0
    turned = tensor[..., begin : begin + 2 * size]
    rest = pt.cat([tensor[..., :begin], tensor[..., begin + 2 * size :]], dim=-1)
    if turning.pairs == "neighbours":
        real, imaginary = turned[..., 0::2], turned[..., 1::2]
    else:
        real, imaginary = turned[..., :size], turned[..., size:]
    places = np.arange(start, start + tensor.shape[-2])
    back = np.exp(-1j * np.outer(places, turning.frequencies))
    pair = pt.complex(real.contiguous(), imaginary.contiguous())
    return pair * pt.as_tensor(back, dtype=pair.dtype, device=pair.device), rest


def _window(
    mask: torch.Tensor | None, length: int
) -> tuple[NDArray[np.int64], int, int] | Literal["other_keys", "short_window"]:
    """Return the distances, and the first and last query, of which each sees all of them."""
    seen = None
    if mask is not None:
        seen = (mask if mask.dtype == required("torch").bool else mask == 0)[0, 0, :, -length:]
    middle = length // 2
    both = seen is None or bool(seen[middle, middle + 1 :].any())
    window = length // 3 if both else length // 2
    if seen is not None:
        # How far back the middle, or the last, query sees without a gap.
        row = middle if both else length - 1
        back = seen[row, : row + 1].flip(0).tolist()
        window = min(window, back.index(False) if False in back else row + 1)
    if window < MIN_WINDOW:
        return "short_window"
    distances = np.arange(-window + 1 if both else 0, window)
    first, stop = window, length - window if both else 2 * window
    if seen is not None:
        rows, columns = np.arange(first, stop)[:, None], distances[None, :]
        if not bool(seen[rows, rows - columns].all()):
            return "other_keys"
    return distances, first, stop


#: Heads and queries whose logits are held at a time: those of all heads of a large model would take
#: more memory than all sums.
HEADS = 4
QUERIES = 128


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
        Rotary language model of transformers.
    contexts
        Batches ``[b, t]`` of token ids, all as long, at least 32 tokens; 12 contexts or more for
        answers.
    source
        Kind of the contexts, for the record.
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
        by_context = {name: joined.pop(name)[None] for name in RotarySums.context_axes}
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
    found = dict(zip(RotarySums.context_axes, means, strict=True))
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
        Logits as they are, and with distance hidden.
    cap
        Cap of the logits, None without one.
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
