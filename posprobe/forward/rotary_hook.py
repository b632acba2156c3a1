"""Queries and keys of a running rotary model, seen where its layers hand them to attention."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.rotary_use import (
    LayerUse,
    Origin,
    Pairs,
    Reason,
    RotarySums,
    RotaryUse,
    Turning,
    rotary_result,
)
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.attend import step_by_step
from posprobe.forward.failing import running
from posprobe.forward.models import required
from posprobe.forward.states import body_of, is_timm
from posprobe.forward.streaming import first_position, stream

if TYPE_CHECKING:
    import torch

#: Name under which attention is registered while it is looked at.
NAME = "posprobe_rotary"
#: Positions that the shift check moves by: no multiple of any usual period.
SHIFT = 37
#: Positions of a context that the shift check compares: at later ones the rounding of angles in
#: float32 grows beyond what another base leaves.
COMPARED = 64
#: Residual of the shift check below which a candidate is right, by bytes of a number: other ladders
#: and pairings leave at least three times as much.
PASSES = {"float64": 1e-5, "float32": 1e-5, "float16": 5e-3, "bfloat16": 2.5e-2}
#: Fewest tokens of a context, and fewest distances of a window.
MIN_LENGTH, MIN_WINDOW = 32, 8
#: Queries whose logits are held at a time.
QUERIES = 256


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
        What dot products are multiplied by.
    cap
        What logits are capped at afterwards; None where they are not.
    """

    query: torch.Tensor
    key: torch.Tensor
    mask: torch.Tensor | None
    scale: float
    cap: float | None


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
        raise UsageError(
            f"{title}: {type(model).__name__} has no rotary embedding of transformers, so there "
            "are no rotated queries and keys to look at."
        )
    found: list[tuple[dict[int, Looked], dict[int, LayerUse]]] = []
    lengths: list[int] = []

    def measure(
        batch: torch.Tensor, _: Mapping[int, RotarySums]
    ) -> tuple[None, dict[int, RotarySums]]:
        if batch.ndim != 2:
            raise UsageError(f"{title}: rotations are measured on text, not on images.")
        if not found:
            lengths.append(batch.shape[1])
            found.append(_prepared(model, batch[:2], title))
        layers = found[0][0]
        made: dict[int, RotarySums] = {}
        lost: dict[int, LayerUse] = {}

        def look(number: int, handed: Handed) -> None:
            if number not in layers:
                return
            if not bool(handed.query.isfinite().all() and handed.key.isfinite().all()):
                lost[number] = _unmeasured(number, "not_finite")
                return
            made[number] = window_sums(handed, layers[number])

        _run(model, batch, look, title)
        for number, why in lost.items():
            # A layer is measured on all contexts or on none.
            layers.pop(number)
            found[0][1][number] = why
        return None, {number: part for number, part in made.items() if number in layers}

    _, sums, stopped = stream(model, contexts, measure, title)
    layers, unmeasured = found[0]
    return rotary_result(
        {number: part for number, part in sums.items() if number in layers},
        {number: layer.turning for number, layer in layers.items()},
        unmeasured,
        length=lengths[0],
        positions=_stated(model),
        source=source,
        name=title,
        stopped=stopped,
    )


def is_rotary(model: Any) -> bool:
    """Tell whether a model of transformers rotates queries and keys, for text."""
    return not is_timm(model) and any(map(_is_ladder, getattr(model, "modules", list)()))


def _is_ladder(module: Any) -> bool:
    return type(module).__name__.endswith("RotaryEmbedding")


def _stated(model: Any) -> int | None:
    """Return the context that the configuration states, None where it states none."""
    config: Any = getattr(model, "config", None)
    found = getattr(config, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def _unmeasured(number: int, reason: Reason, residual: float | None = None) -> LayerUse:
    return LayerUse(
        layer=number, ignores=None, reason=reason, window=0, both_sides=False, ladder=np.zeros(0),
        pairs=None, columns=None, shift_check=residual,
    )  # fmt: skip


# Looking.


@contextmanager
def _watched(model: Any, look: Callable[[int, Handed], None], title: str) -> Iterator[None]:
    """Show what each layer hands to attention; the layer's own attention goes on with it."""
    transformers = required("transformers")
    masks = transformers.masking_utils
    interface, mask_interface = transformers.AttentionInterface, transformers.AttentionMaskInterface
    numbers = _numbers(model)

    def attend(
        module: Any, query: Any, key: Any, value: Any, mask: Any, *more: Any, **named: Any
    ) -> Any:
        # Cross-attention has another number of keys, and no distance.
        if module in numbers and query.shape[2] == key.shape[2] and query.shape[2] > 1:
            scale = named.get("scaling", more[0] if more else None)
            cap = named.get("softcap")
            size = query.shape[-1] ** -0.5 if scale is None else float(scale)
            look(numbers[module], Handed(query, key, mask, size, cap))
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


def _numbers(model: Any) -> dict[Any, int]:
    """Return the number of the layer that each module is in."""
    found = {}
    for path, module in model.named_modules():
        if place := re.search(r"(?:^|\.)(\d+)(?:\.|$)", path):
            found[module] = int(place[1])
    return found


def _run(
    model: Any,
    batch: torch.Tensor,
    look: Callable[[int, Handed], None],
    title: str,
    shift: int | None = None,
) -> Any:
    """Run a model, show what its layers hand to attention, and return its last hidden states."""
    with _watched(model, look, title):
        return _states(model, batch, shift)


def _states(model: Any, batch: torch.Tensor, shift: int | None = None) -> Any:
    body = body_of(model)
    options: dict[str, Any] = {}
    if hasattr(body.config, "use_cache"):
        options["use_cache"] = False
    if shift is not None:
        start = first_position(model) + shift
        places = required("torch").arange(start, start + batch.shape[1], device=batch.device)
        options["position_ids"] = places.expand(len(batch), -1)
    with running(model):
        found = body(input_ids=batch, **options)
    return found.last_hidden_state


@contextmanager
def _ladders_seen(model: Any) -> Iterator[list[NDArray[np.float64]]]:
    """Collect the frequencies of every rotary embedding that is called, in radians per position."""
    pt = required("torch")
    found: list[NDArray[np.float64]] = []

    def note(module: Any, given: tuple[Any, ...], named: dict[str, Any], _: Any) -> None:
        # Cosines of a model in half precision are rounded; the module itself computes in float32.
        output = module.forward(
            *map(_widened, given), **{key: _widened(value) for key, value in named.items()}
        )
        ladder = _ladder(output, pt)
        if ladder is None and hasattr(module, "inv_freq"):
            ladder = module.inv_freq.detach().double().cpu().numpy()
        if ladder is not None and not any(np.array_equal(ladder, other) for other in found):
            found.append(ladder)

    handles = [
        module.register_forward_hook(note, with_kwargs=True)
        for module in model.modules()
        if _is_ladder(module)
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _widened(value: Any) -> Any:
    wide = getattr(value, "is_floating_point", bool)
    return value.float() if wide() and value.element_size() < 4 else value


def _ladder(output: Any, pt: Any) -> NDArray[np.float64] | None:
    """Read frequencies off cosines and sines by position, or complex numbers; None of others."""
    if getattr(output, "is_complex", bool)():
        turned = output
    elif isinstance(output, tuple) and len(output) == 2 and output[0].shape == output[1].shape:
        turned = pt.complex(*(part.detach().double() for part in output))
    else:
        return None
    if turned.ndim < 2 or turned.shape[-2] < 2:
        return None
    # Of several axes any: text moves all alike.
    turned = turned.reshape(-1, *turned.shape[-2:])[0].to(pt.complex128)
    size = turned.abs()
    if not pt.allclose(size, size[:1].expand_as(size), rtol=1e-3):
        return None
    step: NDArray[np.float64] = (turned[1] * turned[0].conj()).angle().cpu().numpy()
    half = len(step) // 2
    for one, other in ((step[:half], step[half:]), (step[0::2], step[1::2])):
        # Cosines of both members of a pair, side by side or one half after the other.
        if len(step) % 2 == 0 and np.array_equal(one, other):
            return one
    return step


# Checking.


def _prepared(
    model: Any, batch: torch.Tensor, title: str
) -> tuple[dict[int, Looked], dict[int, LayerUse]]:
    """Check that looking changes nothing, and find how each layer turns queries and keys.

    Returns
    -------
    tuple
        The layers that can be measured, and the others, by number.
    """
    pt = required("torch")
    length, limit = batch.shape[1], _stated(model)
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
    handed: dict[int, Handed] = {}
    with step_by_step(model, title):
        plain = _states(model, batch)
    with _ladders_seen(model) as ladders:
        watched = _run(model, batch, handed.__setitem__, title)
    if not handed:
        raise UsageError(
            f"{title}: the layers of {type(model).__name__} do not use the attention interface of "
            "transformers, so their queries and keys cannot be seen."
        )
    same = (plain == watched) | (plain.isnan() & watched.isnan())
    # A GPU adds up in another order now and then; main memory does not.
    close = plain.device.type != "cpu" and pt.allclose(plain, watched, rtol=1e-4, atol=1e-5)
    if not (bool(same.all()) or close):
        raise UsageError(
            f"{title}: outputs change when attention is looked at, by up to "
            f"{float((plain - watched).abs().max()):.1e}, so it is not measured."
        )
    moved = _shifted(model, batch, handed, title, limit)
    layers: dict[int, Looked] = {}
    unmeasured: dict[int, LayerUse] = {}
    for number, part in sorted(handed.items()):
        found = _layer(part, moved[number], ladders, length)
        if isinstance(found, Looked):
            layers[number] = found
        else:
            unmeasured[number] = _unmeasured(number, *found)
    if not layers:
        reasons = {layer.reason for layer in unmeasured.values()}
        residuals = [use.shift_check for use in unmeasured.values() if use.shift_check is not None]
        least = f" (least residual of the shift check: {min(residuals):.1e})" if residuals else ""
        raise UsageError(
            f"{title}: no layer can be measured: "
            f"{', '.join(WHY[reason] for reason in sorted(reasons))}{least}."
        )
    return layers, unmeasured


#: Why a layer cannot be measured.
WHY: Mapping[str, str] = {
    "no_pairing": "no rotation that is known explains its queries and keys",
    "not_finite": "its queries or keys hold NaN or infinity",
    "other_keys": "which keys it sees does not depend on distance alone",
    "short_window": f"it sees fewer than {MIN_WINDOW} distances",
}

#: Queries and keys ``[b, heads, t, d]`` of the same tokens at positions from 0 and from `SHIFT`.
_Both = Sequence[tuple["torch.Tensor", "torch.Tensor"]]


def _shifted(
    model: Any, batch: torch.Tensor, handed: Mapping[int, Handed], title: str, limit: int | None
) -> dict[int, _Both]:
    """Run the same tokens at later positions, and return what each layer hands over then."""
    # Frequencies can depend on the length, so contexts stay as long where there is room.
    if limit is not None and batch.shape[1] + SHIFT > limit:
        batch = batch[:, : max(limit - SHIFT, 2)]
    first: dict[int, Handed] = {}
    later: dict[int, Handed] = {}
    try:
        _run(model, batch, first.__setitem__, title, 0)
        _run(model, batch, later.__setitem__, title, SHIFT)
    except UsageError as error:
        raise UsageError(
            f"{title}: its positions cannot be shifted, so its rotation cannot be checked ({error})"
        ) from error
    unmoved = all(bool((first[number].query == part.query).all()) for number, part in later.items())
    if unmoved:
        raise UsageError(
            f"{title}: its queries do not change when positions start later, so its rotation "
            "cannot be checked."
        )
    return {
        number: [
            (_float(one)[:, :, :COMPARED], _float(other)[:, :, :COMPARED])
            for one, other in (
                (first[number].query, later[number].query),
                (first[number].key, later[number].key),
            )
        ]
        for number in handed
    }


def _float(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.element_size() < 4 else tensor


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
    for ladder in ladders:
        if 0 < 2 * len(ladder) <= width:
            for pairs in ways:
                if 2 * len(ladder) == width:
                    yield Turning(ladder, pairs, "all", 0.0, nothing, scale)
                else:
                    yield Turning(ladder, pairs, "first", 0.0, nothing, scale)
                    yield Turning(ladder, pairs, "last", 0.0, nothing, scale)


def _residual(turning: Turning, both: _Both) -> float:
    """Return the norm of the change of unrotated queries and keys over theirs, the larger."""
    found = []
    for one, other in both:
        changes, sizes = [], []
        first = _unrotated(one, turning, 0)
        later = _unrotated(other, turning, SHIFT)
        for a, b in zip(first, later, strict=True):
            changes.append(float((a - b).abs().double().square().sum()))
            sizes.append(float(a.abs().double().square().sum()))
        found.append((sum(changes) / sum(sizes)) ** 0.5 if sum(sizes) else 0.0)
    return max(found)


def _unrotated(
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


# Adding up.


def window_sums(handed: Handed, layer: Looked) -> RotarySums:
    """Add a layer's window up over the contexts of a batch: one context, some queries at a time.

    Logits are products in the model's own precision, float32 at least; sums are float64 (float32
    on MPS).
    """
    pt = required("torch")
    turning, first, stop = layer.turning, layer.first, layer.stop
    distances = turning.distances
    group = handed.query.shape[1] // handed.key.shape[1]
    keys_from, keys_to = first - int(distances[-1]), stop - int(distances[0])
    wide = pt.float32 if handed.query.device.type == "mps" else pt.float64
    still = np.exp(1j * np.outer(turning.frequencies, distances)).mean(axis=1)
    curves: list[NDArray[np.float64]] = []
    within: list[NDArray[np.float64]] = []
    moved: list[NDArray[np.float64]] = []
    capped: list[NDArray[np.float64]] = []
    added: dict[str, Any] = {}
    for query, key in zip(_float(handed.query), _float(handed.key), strict=True):
        plain = [query[:, first:stop], key.repeat_interleave(group, dim=0)[:, keys_from:keys_to]]
        pair_q, rest_q = _unrotated(plain[0], turning, first)
        pair_k, rest_k = _unrotated(plain[1], turning, keys_from)
        held = pair_q * pt.as_tensor(still, dtype=pair_q.dtype, device=pair_q.device)
        # What stays of a logit when every pair has the mean of its rotation.
        hidden = [
            pt.cat([held.real, held.imag, rest_q], dim=-1),
            pt.cat([pair_k.real, pair_k.imag, rest_k], dim=-1),
        ]
        parts: list[tuple[Any, ...]] = []
        for begin in range(0, stop - first, QUERIES):
            end = min(begin + QUERIES, stop - first)
            logits, other = (
                _by_distance(q[:, begin:end], k[:, begin : end + len(distances) - 1])
                * turning.scale
                for q, k in (plain, hidden)
            )
            gone = (logits.softmax(dim=-1) - other.softmax(dim=-1)).abs().sum(dim=-1) / 2
            above = pt.full_like(gone, float("nan")) if handed.cap is None else (
                (logits.abs() > handed.cap / 2).to(gone.dtype).mean(dim=-1)
            )  # fmt: skip
            parts.append((
                logits.sum(dim=1, dtype=wide),
                logits.var(dim=-1, correction=0).sum(dim=1, dtype=wide),
                gone.sum(dim=1, dtype=wide),
                above.sum(dim=1, dtype=wide),
            ))  # fmt: skip
        means = [sum(each).cpu().double() / (stop - first) for each in zip(*parts, strict=True)]
        for kept, mean in zip((curves, within, moved, capped), means, strict=True):
            kept.append(mean.numpy())
        for name, (pair, rest) in {
            "query": (pair_q, rest_q), "key": (pair_k, rest_k),
        }.items():  # fmt: skip
            power = pair.real.square() + pair.imag.square()
            if turning.columns != "all":
                power = pt.cat([power, rest.square().sum(dim=-1, keepdim=True)], dim=-1)
            for label, part in (
                (f"{name}_real", pair.real), (f"{name}_imag", pair.imag), (f"rest_{name}", rest),
                (f"{name}_power", power),
            ):  # fmt: skip
                total = part.sum(dim=1, dtype=wide).cpu().double().numpy()
                added[label] = added[label] + total if label in added else total
    return RotarySums(
        # The farthest key comes first in memory.
        curves=np.stack(curves)[:, :, ::-1],
        within=np.stack(within),
        moved=np.stack(moved),
        capped=np.stack(capped),
        query=added["query_real"] + 1j * added["query_imag"],
        key=added["key_real"] + 1j * added["key_imag"],
        rest_query=added["rest_query"],
        rest_key=added["rest_key"],
        query_power=added["query_power"],
        key_power=added["key_power"],
        queries=len(curves) * (stop - first),
        keys=len(curves) * (keys_to - keys_from),
    )


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
