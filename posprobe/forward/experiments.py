"""Experiments: tokens permuted, positions that begin later, images without content; losses."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.closeness import cka
from posprobe.analyses.models.experiments import (
    BlankImages,
    Change,
    Pattern,
    PermutationEffect,
    PhaseShift,
)
from posprobe.analyses.result import centring_error
from posprobe.arrays import Array, Floats, Sums
from posprobe.errors import InvalidTable, UsageError
from posprobe.families.find import is_named_position
from posprobe.forward.contexts import context_length, generates, places, stream
from posprobe.forward.models import evaluation_mode, required
from posprobe.forward.running import (
    LAST,
    body_of,
    final_states,
    find_hook_points,
    image_shape,
    is_timm,
    output_of,
    positions_of,
    refuse_overflow,
    running,
    squared_norms,
    visit,
    wide,
)
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    import torch
    from torch import nn


#: Share of the tokens that a masked model has to guess (Devlin et al. 2019, section 3.1).
MASKED = 0.15
#: Parts of the names of models whose heads give answers: probabilities of tokens, or of classes.
TASKS = (
    "LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification",
    "ForTokenClassification", "ForImageClassification",
)  # fmt: skip
#: Numbers of which probabilities are computed at a time, in double precision.
AT_A_TIME = 2**23


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
        Batches, as for `decompose`. Each is run four times: as it is and permuted, with the table
        and without.
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
        raise UsageError(f"{title}: labels are one whole number per context, not {known.dtype}.")

    def measure(batch: torch.Tensor, done: int, _: object) -> dict[int, _Permuted]:
        wanted = None if known is None else known[done : done + len(batch)]
        found = {0: _permute(model, batch, done, wanted, seed, title)}
        with restored(table):
            table.data.zero_()
            found[1] = _permute(model, batch, done, wanted, seed, title)
        return found

    sums, stopped = stream(model, batches, measure, title)
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


@dataclass(frozen=True, eq=False)
class _Permuted(Sums):
    """Squared norms of outputs and of their changes, and right answers."""

    contexts: int
    moved: int  # contexts that permuting changes
    tokens: NDArray[np.float64]
    special: NDArray[np.float64]
    right: NDArray[np.float64]


def _permute(
    model: Any,
    batch: torch.Tensor,
    done: int,
    labels: NDArray[Any] | None,
    seed: int,
    title: str,
) -> _Permuted:
    pt = required("torch")
    before = final_states(model, batch)
    layout = positions_of(model, batch, before.shape[1])
    # A permutation belongs to its context, however contexts are grouped.
    orders = np.stack([_order([seed, done + row], layout.size) for row in range(len(batch))])
    order = pt.as_tensor(orders, device=batch.device)
    moved = _permuted(batch, layout, order)
    after = final_states(model, moved)
    for states in (before, after):
        refuse_overflow(model, states, LAST, title, done)
    first = before.shape[1] - layout.size
    expected = before[:, first:].gather(
        1, order[:, :, None].to(before.device).expand(-1, -1, before.shape[2])
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
        tokens=_relative(sums.tokens),
        special=_relative(sums.special) if sums.special[0] else None,
        accuracy=accuracy[0],
        scrambled_accuracy=accuracy[1],
    )


def _relative(norms: NDArray[np.float64]) -> float:
    """Return the norm of a change over that of what changes, from their squares."""
    return math.sqrt(norms[1] / norms[0]) if norms[0] else 0.0


def _permuted(batch: torch.Tensor, layout: Layout, order: torch.Tensor) -> torch.Tensor:
    """Move tokens or patches: place ``i`` gets what stood at ``order[i]``."""
    if not isinstance(layout, Grid):
        return batch.gather(1, order)
    count, channels, height, width = batch.shape
    down, across = height // layout.height, width // layout.width
    patches = batch.reshape(count, channels, layout.height, down, layout.width, across)
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(count, layout.size, -1)
    patches = patches.gather(1, order[:, :, None].expand(-1, -1, patches.shape[2]))
    patches = patches.reshape(count, layout.height, layout.width, channels, down, across)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(batch.shape)


def _right(model: Any, batch: torch.Tensor, wanted: NDArray[Any], title: str) -> int:
    logits = outputs_of(model, batch)
    if logits is None or logits.shape[1] != 1 or len(wanted) != len(batch):
        raise UsageError(
            f"{title}: labels need one for each context, and a model with a head that classifies: "
            "load_model(..., head=True)."
        )
    return int((logits[:, 0].argmax(dim=1).cpu().numpy() == wanted).sum())


@contextmanager
def restored(*tensors: torch.Tensor) -> Iterator[None]:
    """Put tensors back as they were, whatever is written to them within the block and happens."""
    with ExitStack() as after:
        for tensor in tensors:
            after.callback(tensor.data.copy_, tensor.detach().clone())
        yield


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
            f"{title}: {type(body).__name__} takes no position_ids that could be shifted."
        )
    chosen: list[NDArray[np.int64]] = []
    tasks: list[str] = []

    def measure(batch: torch.Tensor, done: int, _: object) -> dict[int, _Shifted]:
        if batch.ndim != 2:
            raise UsageError(f"{title}: positions of patches are not shifted, only those of text.")
        if not chosen:
            chosen.append(_shifts(model, batch.shape[1], shifts, title))
            tasks.append(predicted(model, batch, title))
            _check_start(model, batch, title)
        given, wanted = prediction(tasks[0], batch, mask_token, seed, done)
        found: dict[int, _Shifted] = {}
        still = None
        for shift in chosen[0].tolist():
            state, losses = _shifted(model, given, wanted, shift)
            refuse_overflow(model, state, f"{LAST} at shift {shift}", title, done)
            refuse_overflow(model, losses, f"the losses at shift {shift}", title, done)
            count = 0 if wanted is None else int((wanted != -100).sum())
            still = state if still is None else still
            loss = np.array([float(losses.sum()), count])
            found[shift] = _Shifted(len(batch), squared_norms(still, state), loss)
        return found

    sums, stopped = stream(model, batches, measure, title)
    losses = np.array([found.loss for found in sums.values()])
    return PhaseShift(
        shifts=chosen[0],
        change=np.array([_relative(found.norms) for found in sums.values()]),
        loss=losses[:, 0] / losses[:, 1] if losses[:, 1].all() else None,
        task=tasks[0],
        contexts=sums[0].contexts,
        stopped=stopped,
    )


@dataclass(frozen=True, eq=False)
class _Shifted(Sums):
    """Squared norms of states and of their changes; sum of losses and number of predictions."""

    contexts: int
    norms: NDArray[np.float64]
    loss: NDArray[np.float64]


def _shifts(model: Any, length: int, shifts: Sequence[int] | None, title: str) -> NDArray[np.int64]:
    longest = context_length(model)
    room = longest - length if longest else max([4 * length, *(shifts or ())])
    if shifts is None:
        shifts = [round(room * step / 5) for step in range(6)]
    found = np.unique([0, *shifts])
    if found.dtype.kind != "i" or len(found) < 2 or found[0] < 0 or found[-1] > room:
        raise UsageError(
            f"{title}: contexts of {length} tokens can be shifted by 1 to {room} whole positions, "
            f"not by {', '.join(map(str, shifts))}. Use shorter contexts."
        )
    return found.astype(np.int64)


def _check_start(model: Any, batch: torch.Tensor, title: str) -> None:
    """Refuse a model whose own positions are not those that shift 0 gives it."""
    own = final_states(model, batch[:1])
    refuse_overflow(model, own, LAST, title)
    given, _ = _shifted(model, batch[:1], None, 0)
    before, change = squared_norms(own, given)
    if change > 1e-3 * before:
        raise UsageError(
            f"{title}: it numbers positions in a way that is not known, so they cannot be shifted."
        )


def _shifted(
    model: Any, batch: torch.Tensor, wanted: torch.Tensor | None, shift: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the last hidden states, and ``[b, t]`` the losses: 0 where nothing is predicted."""
    moved = {"position_ids": places(model, batch, shift)}
    if wanted is None:
        nothing: torch.Tensor = required("torch").zeros(batch.shape)
        return output_of(model, batch, **moved).last_hidden_state, nothing
    kept: list[Any] = []
    with body_of(model).register_forward_hook(lambda _, __, output: kept.append(output)):
        logits: Any = outputs_of(model, batch, **moved)
    return kept[0].last_hidden_state, losses_of(logits, wanted)


def blank_images(model: Any, *, seed: int = 0, name: str | None = None) -> BlankImages:
    """Run a vision model on a constant image and on one of noise.

    Patches of a constant image differ in position alone. Those of independent pixels differ in
    content too, but in none that a grid could explain. Yang et al. 2024 (Denoising Vision
    Transformers) find the fixed pattern of both in the features of photographs.

    Parameters
    ----------
    model
        A model of transformers or timm, for images, with one learned table of positions.
    seed
        Random seed.
    name
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If the model takes no images, or has no table of its own or several.
    InvalidTable
        If hidden states are not finite.

    Examples
    --------
    This needs the extra `models`. What enters the first layer for a constant image is the table
    itself:

    >>> import posprobe as pp
    >>> blank = pp.forward.blank_images(pp.load_model("sample:digits-vit", device="cpu"))
    >>> print(f"{blank.constant[0].alignment:.2f}")
    1.00
    """
    title = name or type(model).__name__
    shape = image_shape(model)
    if shape is None:
        raise UsageError(f"{title}: it takes no images.")
    path, table = position_table(model, title)
    pt = required("torch")
    rng = np.random.default_rng(seed)
    images = np.stack([np.zeros(shape), rng.standard_normal(shape)])
    with evaluation_mode(model) as device:
        batch = pt.as_tensor(images, device=device, dtype=table.dtype)
        states: dict[int, NDArray[np.float64]] = {}

        def look(number: int, state: torch.Tensor) -> None:
            refuse_overflow(model, state, f"the hidden states at layer {number}", title)
            states[number] = state.cpu().double().numpy()

        visit(model, batch, find_hook_points(model, batch, "hidden_states"), "hidden_states", look)
        grid = positions_of(model, batch, states[0].shape[1])
    if not isinstance(grid, Grid):
        raise UsageError(f"{title}: its patches have no grid.")
    rows = table.detach().cpu().double().numpy()
    rows = rows.reshape(-1, rows.shape[-1])[-grid.size :]
    constant, noise = (
        {
            number: _pattern(state[image, -grid.size :], rows, grid)
            for number, state in sorted(states.items())
        }
        for image in range(2)
    )
    return BlankImages(constant, noise, layout=grid, seed=seed, table=path)


def _pattern(states: NDArray[np.float64], rows: NDArray[np.float64], grid: Grid) -> Pattern:
    away = states - states.mean(axis=0)
    norms = np.linalg.norm(away, axis=1)
    power = float((states**2).sum())
    # Models compute in single precision or less.
    error = centring_error(1.0, len(states), float(np.finfo(np.float32).eps))
    varies = bool(power) and float((away**2).sum()) > error**2 * power
    alignment = closeness = None
    if varies and len(rows) == len(states) and len(rows) > 3:
        table = rows - rows.mean(axis=0)
        lengths = np.linalg.norm(table, axis=1) * norms
        if table.shape == away.shape and (lengths > 0).all():
            alignment = float(((table * away).sum(axis=1) / lengths).mean())
        with suppress(InvalidTable):  # the table is constant, or all its rows are equally far
            closeness = cka(states, rows)
    return Pattern(
        share=float((away**2).sum()) / power if power else None,
        alignment=alignment,
        cka=closeness,
        norms=norms.reshape(grid.height, grid.width),
    )


@dataclass(frozen=True, eq=False)
class TokenLosses(Sums):
    """Losses of the tokens of some contexts.

    Parameters
    ----------
    losses
        ``[c, t]`` in nats, at the position whose output predicts; 0 where nothing is predicted.
    counted
        ``[c, t]``: where something is.
    task
        ``next token`` or ``masked token``.
    """

    context_axes: ClassVar[Mapping[str, int]] = {"losses": 0, "counted": 0}

    losses: Floats
    counted: Floats
    task: str = ""

    @property
    def contexts(self) -> int:
        """How many were run."""
        return len(self.losses)


def token_losses(
    model: Any, batches: Iterable[Array], *, mask_token: int | None, seed: int, name: str
) -> TokenLosses:
    """Run a model with a head on contexts, and take the loss of each token.

    Parameters
    ----------
    model, batches, mask_token, seed, name
        Same as for `posprobe.substitution_effect`.

    Raises
    ------
    UsageError
        If its head predicts no tokens of a text.
    InvalidTable
        If a loss is not finite.
    """
    task = ""

    def measure(batch: torch.Tensor, done: int, _: object) -> dict[int, TokenLosses]:
        nonlocal task
        task = task or predicted(model, batch, name)
        given, wanted = prediction(task, batch, mask_token, seed, done)
        logits = None if wanted is None else outputs_of(model, given)
        if logits is None or wanted is None:
            raise UsageError(
                f"{name}: {type(model).__name__} predicts no tokens of a text, so that it has no "
                "loss. Leave out --text."
            )
        losses = losses_of(logits, wanted)
        refuse_overflow(model, losses, "the losses", name, done)
        return {0: TokenLosses(losses.numpy(), (wanted != -100).cpu().numpy() * 1.0)}

    sums, stopped = stream(model, batches, measure, name)
    if stopped:
        raise KeyboardInterrupt  # models are compared on the same contexts only
    return replace(sums[0], task=task)


def losses_of(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the loss of each token ``[b, t]`` on the host, 0 where nothing is predicted."""
    pt = required("torch")
    flat, right = logits.flatten(0, 1), wanted.flatten().to(logits.device)
    size = max(1, AT_A_TIME // flat.shape[1])
    parts = [
        pt.nn.functional.cross_entropy(wide(some), tokens, reduction="none", ignore_index=-100)
        for some, tokens in zip(pt.split(flat, size), pt.split(right, size), strict=True)
    ]
    found: torch.Tensor = pt.cat(parts).reshape(wanted.shape).cpu().double()
    return found


def predicted(model: Any, batch: torch.Tensor, title: str) -> str:
    """Say what a model with a language-modelling head predicts; empty for another."""
    if type(model).__name__.endswith("ForMaskedLM"):
        return "masked token"
    if not generates(model) or batch.shape[1] < 2:
        return ""
    # Names promise more than models keep: XLM's head looks at the tokens that it would predict.
    other = batch[:1].clone()
    other[:, -1] = batch[:1, 0]
    if bool((other == batch[:1]).all()):
        other[:, -1] = (other[:, -1] + 1) % model.config.vocab_size
    one, two = (final_states(model, given)[:, :-1] for given in (batch[:1], other))
    refuse_overflow(model, one, LAST, title)
    before, change = squared_norms(one, two)
    rounding = 8 * required("torch").finfo(one.dtype).eps
    return "next token" if change <= rounding**2 * before else ""


def prediction(
    kind: str, batch: torch.Tensor, mask: int | None, seed: int, done: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return what the model is given, and ``[b, t]`` the tokens it has to predict, -100 for none.

    A predicted token stands at the place whose output predicts it.
    """
    pt = required("torch")
    if kind == "next token":
        nothing = pt.full_like(batch[:, :1], -100)
        return batch, pt.cat([batch[:, 1:], nothing], dim=1)
    if kind != "masked token" or mask is None:
        return batch, None
    # The choice belongs to its context, however contexts are grouped.
    hidden = pt.as_tensor(
        np.stack(
            [
                np.random.default_rng([seed, done + row]).random(batch.shape[1]) < MASKED
                for row in range(len(batch))
            ]
        ),
        device=batch.device,
    )
    return batch.masked_fill(hidden, mask), batch.masked_fill(~hidden, -100)


def outputs_of(model: Any, batch: torch.Tensor, **options: Any) -> torch.Tensor | None:
    """Return a head's logits ``[b, t, v]``, or ``[b, 1, v]``; None without one that gives answers.

    A single number is no answer among several. What other heads return can be anything, such as the
    pixels that were hidden.
    """
    logits: Any
    if is_timm(model):
        with running(model):
            logits = model(batch) if getattr(model, "num_classes", 0) else None
    elif not any(task in type(model).__name__ for task in TASKS):
        logits = None
    else:
        if hasattr(body_of(model).config, "use_cache"):
            options["use_cache"] = False
        kind = "pixel_values" if batch.ndim == 4 else "input_ids"
        with running(model):
            logits = getattr(model(**{kind: batch}, **options), "logits", None)
    if logits is None or logits.ndim not in (2, 3) or logits.shape[-1] < 2:
        return None
    found: torch.Tensor = logits[:, None] if logits.ndim == 2 else logits
    return found
