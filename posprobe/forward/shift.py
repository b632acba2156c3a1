"""Phase shift: the same contexts with all positions counted from a later one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.experiments import PhaseShift
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.failing import LAST, refuse_overflow
from posprobe.forward.loss import predicted, prediction
from posprobe.forward.models import required
from posprobe.forward.states import body_of, final_states, output_of, squared_norms
from posprobe.forward.streaming import Added, context_length, first_position, stream

if TYPE_CHECKING:
    import torch


def phase_shift(
    model: Any,
    batches: Iterable[Array],
    *,
    shifts: Sequence[int] | None = None,
    mask_token: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> PhaseShift:
    """Run contexts with positions that start later, and measure what changes.

    Sinha et al. 2022 (The Curious Case of Absolute Position Embeddings): a model that knew only
    distances would not mind. One with a table has learned each position for itself.

    Parameters
    ----------
    model
        A model of transformers, for text. With a language-modelling head (``load_model(...,
        head=True)``) the loss is measured too: of the next token, or of masked tokens.
    batches
        Token ids ``[b, t]``, as for `decompose`; t must leave room for the shifts. Each is run once
        per shift.
    shifts
        Positions of the first token, rising; 0 is added. Where None, five equal steps over what the
        table leaves, or up to 4 t where positions have no end.
    mask_token
        Id of the token that masks another, as the tokenizer has it; without it the loss of a model
        of masked tokens is not measured.
    seed
        Random seed of the masked tokens.
    name
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If the model takes no positions, contexts leave no room for a shift, or as for `decompose`.
    InvalidTable
        If the last hidden states, or losses, are not finite.

    Examples
    --------
    This needs the extra `models`. Rotary embeddings know distances alone, so a shift changes
    nothing:

    >>> import posprobe as pp
    >>> import torch
    >>> from transformers import LlamaConfig, LlamaModel
    >>> config = LlamaConfig(
    ...     hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    ...     vocab_size=50,
    ... )
    >>> model = LlamaModel(config).eval()
    >>> contexts = pp.forward.random_tokens(config, length=8, count=4)
    >>> effect = pp.forward.phase_shift(model, contexts, shifts=(8, 16))
    >>> effect.shifts.tolist(), bool(effect.change.max() < 1e-4)
    ([0, 8, 16], True)
    """
    title = name or type(model).__name__
    body = body_of(model) if hasattr(model, "config") else model
    if "position_ids" not in inspect.signature(body.forward).parameters:
        raise UsageError(
            f"{title}: {type(body).__name__} takes no position_ids, so its positions cannot be "
            "shifted."
        )
    chosen: list[NDArray[np.int64]] = []
    tasks: list[str] = []

    def measure(
        batch: torch.Tensor, sums: Mapping[int, _Shifted]
    ) -> tuple[None, dict[int, _Shifted]]:
        if batch.ndim != 2:
            raise UsageError(f"{title}: positions of patches are not shifted, only those of text.")
        if not chosen:
            chosen.append(_shifts(model, batch.shape[1], shifts, title))
            tasks.append(predicted(model, batch, title))
            _check_start(model, batch, title)
        done = sums[0].contexts if sums else 0
        given, wanted = prediction(tasks[0], batch, mask_token, seed, done)
        found: dict[int, _Shifted] = {}
        still = None
        for shift in chosen[0].tolist():
            state, losses = _run(model, given, wanted, shift)
            refuse_overflow(model, state, f"{LAST} at shift {shift}", title, done)
            refuse_overflow(model, losses, f"the losses at shift {shift}", title, done)
            count = 0 if wanted is None else int((wanted != -100).sum())
            loss = np.array([float(losses.double().sum()), float(count)])
            still = state if still is None else still
            found[shift] = _Shifted(len(batch), squared_norms(still, state), loss)
        return None, found

    _, sums, stopped = stream(model, batches, measure, title)
    losses = np.array([found.loss for found in sums.values()])
    predicts = bool(losses[:, 1].all())
    return PhaseShift(
        shifts=chosen[0],
        change=np.array(
            [math.sqrt(s.norms[1] / s.norms[0]) if s.norms[0] else 0.0 for s in sums.values()]
        ),
        loss=losses[:, 0] / losses[:, 1] if predicts else None,
        task=tasks[0],
        contexts=sums[0].contexts,
        stopped=stopped,
    )


@dataclass(frozen=True)
class _Shifted(Added):
    """Squared norms of states and of their changes; sum of losses and number of predictions."""

    norms: NDArray[np.float64]
    loss: NDArray[np.float64]


def _shifts(model: Any, length: int, shifts: Sequence[int] | None, title: str) -> NDArray[np.int64]:
    longest = context_length(model)
    room = longest - length if longest else max([4 * length, *(shifts or ())])
    if shifts is None:
        shifts = [round(room * step / 5) for step in range(6)]
    if room < 1:
        raise UsageError(
            f"{title}: contexts of {length} tokens fill its positions, so that none can be later. "
            "Use shorter contexts."
        )
    if not all(isinstance(shift, int | np.integer) for shift in shifts):
        raise UsageError(f"{title}: shifts {list(shifts)}: they are whole numbers.")
    found = np.unique([0, *shifts])
    if len(found) < 2 or found[0] < 0 or found[-1] > room:
        raise UsageError(
            f"{title}: contexts of {length} tokens can be shifted by 1 to {room} positions, not by "
            f"{', '.join(map(str, shifts))}. Use shorter contexts."
        )
    return found.astype(np.int64)


def _check_start(model: Any, batch: torch.Tensor, title: str) -> None:
    """Refuse a model whose own positions are not those that shift 0 gives it."""
    own = final_states(model, batch[:1])
    refuse_overflow(model, own, LAST, title)
    given, _ = _run(model, batch[:1], None, 0)
    before, change = squared_norms(own, given)
    if change > 1e-3 * before:
        raise UsageError(
            f"{title}: it numbers positions in a way that is not known, so they cannot be shifted."
        )


def _run(
    model: Any, batch: torch.Tensor, wanted: torch.Tensor | None, shift: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the last hidden states, and ``[b, t]`` the losses: 0 where nothing is predicted."""
    pt = required("torch")
    start = first_position(model) + shift
    places = pt.arange(start, start + batch.shape[1], device=batch.device).expand(len(batch), -1)
    kept: list[Any] = []
    body = body_of(model)
    with body.register_forward_hook(lambda _, __, output: kept.append(output)):
        if wanted is None:
            output_of(model, batch, position_ids=places)
        else:
            cache = {"use_cache": False} if hasattr(body.config, "use_cache") else {}
            output = model(input_ids=batch, position_ids=places, **cache)
    state = kept[0].last_hidden_state
    if wanted is None:
        return state, pt.zeros(batch.shape)
    logits = output.logits.float()
    losses = pt.nn.functional.cross_entropy(
        logits.flatten(0, 1), wanted.to(logits.device).flatten(), reduction="none"
    )
    return state, losses.reshape(batch.shape).cpu()
