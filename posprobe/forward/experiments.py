"""Experiments: permuted tokens, shifted positions, images without content; losses of tokens."""

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
from posprobe.forward.contexts import (
    context_length,
    generates,
    shifted_positions,
    sum_over_contexts,
)
from posprobe.forward.models import evaluation_mode, import_package
from posprobe.forward.running import (
    LAST_STATES,
    check_finite,
    compute_final_states,
    explain_model_errors,
    find_body,
    find_hook_points,
    find_layout,
    image_shape,
    is_timm,
    run_body,
    squared_norms,
    visit_tensors,
    widen,
)
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    import torch
    from torch import nn


#: Share of the tokens that a masked model has to guess (Devlin et al. 2019, section 3.1).
MASKED_TOKEN_SHARE = 0.15
#: Parts of class names of models whose heads return probabilities of tokens or classes.
ANSWERING_HEADS = (
    "LMHeadModel",
    "ForCausalLM",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForImageClassification",
)
#: Logits of which probabilities are computed at a time, which bounds memory in double precision.
MAX_LOGITS_AT_ONCE = 2**23


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
    a permutation of the input permutes the output and leaves CLS unchanged (Vaswani et al. 2017,
    section 3.5, give this as the reason for positions). A causal mask reveals the order by itself.

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
        If the model has no table of its own or several, labels do not fit, or no permutation
        changes a context, because its tokens are all equal or there is only one; and for the
        reasons that `decompose` states.
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
    path, table = find_position_table(model, title)
    class_labels = None if labels is None else np.asarray(labels)
    if class_labels is not None and (
        class_labels.ndim != 1 or class_labels.dtype.kind not in "iu"
    ):
        raise UsageError(
            f"{title}: labels are one whole number per context, not {class_labels.dtype}."
        )

    def measure(
        batch: torch.Tensor, n_previous: int, _: object
    ) -> dict[int, _PermutedSums]:
        batch_labels = (
            None
            if class_labels is None
            else class_labels[n_previous : n_previous + len(batch)]
        )
        batch_sums = {0: _permute(model, batch, n_previous, batch_labels, seed, title)}
        with restore_tensors(table):
            table.data.zero_()
            batch_sums[1] = _permute(model, batch, n_previous, batch_labels, seed, title)
        return batch_sums

    sums, is_interrupted = sum_over_contexts(model, batches, measure, title)
    contexts = sums[0].contexts
    if not sums[0].n_moved:
        raise UsageError(
            f"{title}: every context is one token, or patch, alone or "
            "repeated, so that permuting changes nothing. Use longer "
            "contexts, or others."
        )
    if class_labels is not None and len(class_labels) != contexts and not is_interrupted:
        raise UsageError(f"{title}: {len(class_labels)} labels for {contexts} contexts.")
    with_positions, without_positions = (
        _summarise_change(sums[key], classified=class_labels is not None)
        for key in (0, 1)
    )
    return PermutationEffect(
        with_positions, without_positions, contexts, seed, path, is_interrupted
    )


def find_position_table(model: Any, title: str) -> tuple[str, nn.Parameter]:
    """Return the name of a model's only table of positions, and the table.

    Raises
    ------
    UsageError
        If the model has no such table, or several.
    """
    tables = [
        (path, parameter)
        for path, parameter in model.named_parameters()
        if is_named_position(path) and parameter.ndim > 1
    ]
    if len(tables) != 1:
        names = ", ".join(path for path, _ in tables) or "none"
        raise UsageError(
            f"{title}: one table of positions is expected, and it has {names}."
        )
    if tables[0][1].device.type == "meta":
        raise UsageError(
            f"{title}: {tables[0][0]} is kept on disk and cannot be "
            "changed. Use a `device_map` that keeps it in memory."
        )
    return tables[0]


@dataclass(frozen=True, eq=False)
class _PermutedSums(Sums):
    """Squared norms of outputs and of their changes, and right answers."""

    contexts: int
    n_moved: int  # contexts that permuting changes
    tokens: NDArray[np.float64]
    special: NDArray[np.float64]
    n_right: NDArray[np.float64]


def _permute(
    model: Any,
    batch: torch.Tensor,
    n_previous: int,
    labels: NDArray[Any] | None,
    seed: int,
    title: str,
) -> _PermutedSums:
    pt = import_package("torch")
    before = compute_final_states(model, batch)
    layout = find_layout(model, batch, before.shape[1])
    # The seed of a permutation depends on its context alone, not on the batch.
    orders = np.stack(
        [
            _draw_permutation([seed, n_previous + row], layout.size)
            for row in range(len(batch))
        ]
    )
    order = pt.as_tensor(orders, device=batch.device)
    permuted = _permute_positions(batch, layout, order)
    after = compute_final_states(model, permuted)
    for states in (before, after):
        check_finite(model, states, LAST_STATES, title, n_previous)
    n_special = before.shape[1] - layout.size
    expected = before[:, n_special:].gather(
        1, order[:, :, None].to(before.device).expand(-1, -1, before.shape[2])
    )
    n_right = np.zeros(2)
    if labels is not None:
        n_right = np.array(
            [_count_right(model, inputs, labels, title) for inputs in (batch, permuted)]
        )
    return _PermutedSums(
        len(batch),
        int((permuted != batch).flatten(1).any(dim=1).sum()),
        squared_norms(expected, after[:, n_special:]),
        squared_norms(before[:, :n_special], after[:, :n_special]),
        n_right,
    )


def _draw_permutation(seed: list[int], size: int) -> NDArray[np.int64]:
    """Draw a permutation other than the identity, which is the only one of a single position."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(size)
    while size > 1 and (order == np.arange(size)).all():
        order = rng.permutation(size)
    return order


def _summarise_change(sums: _PermutedSums, *, classified: bool) -> Change:
    accuracy = (sums.n_right / sums.contexts).tolist() if classified else [None, None]
    return Change(
        tokens=_relative_change(sums.tokens),
        special=_relative_change(sums.special) if sums.special[0] else None,
        accuracy=accuracy[0],
        scrambled_accuracy=accuracy[1],
    )


def _relative_change(norms: NDArray[np.float64]) -> float:
    """Return the norm of a change over the norm of what changes, from the squared norms."""
    return math.sqrt(norms[1] / norms[0]) if norms[0] else 0.0


def _permute_positions(
    batch: torch.Tensor, layout: Layout, order: torch.Tensor
) -> torch.Tensor:
    """Permute tokens or patches: position ``i`` gets the one from position ``order[i]``."""
    if not isinstance(layout, Grid):
        return batch.gather(1, order)
    count, channels, height, width = batch.shape
    patch_height, patch_width = height // layout.height, width // layout.width
    patches = batch.reshape(
        count, channels, layout.height, patch_height, layout.width, patch_width
    )
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(count, layout.size, -1)
    patches = patches.gather(1, order[:, :, None].expand(-1, -1, patches.shape[2]))
    patches = patches.reshape(
        count, layout.height, layout.width, channels, patch_height, patch_width
    )
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(batch.shape)


def _count_right(
    model: Any, batch: torch.Tensor, labels: NDArray[Any], title: str
) -> int:
    logits = compute_logits(model, batch)
    if logits is None or logits.shape[1] != 1 or len(labels) != len(batch):
        raise UsageError(
            f"{title}: labels need one for each context, and a model with a "
            "head that classifies: load_model(..., head=True)."
        )
    return int((logits[:, 0].argmax(dim=1).cpu().numpy() == labels).sum())


@contextmanager
def restore_tensors(*tensors: torch.Tensor) -> Iterator[None]:
    """Restore the values of tensors at the end of the block, also after an error."""
    with ExitStack() as cleanup:
        for tensor in tensors:
            cleanup.callback(tensor.data.copy_, tensor.detach().clone())
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

    A model that used only distances would not change, whereas one with a table has learned each
    position separately (Sinha et al. 2022, The Curious Case of Absolute Position Embeddings).

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
    This needs the extra `models`. Rotary embeddings encode distances alone, so a shift changes
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
    body = find_body(model) if hasattr(model, "config") else model
    if "position_ids" not in inspect.signature(body.forward).parameters:
        raise UsageError(
            f"{title}: {type(body).__name__} takes no position_ids that could be shifted."
        )
    chosen_shifts: list[NDArray[np.int64]] = []
    tasks: list[str] = []

    def measure(
        batch: torch.Tensor, n_previous: int, _: object
    ) -> dict[int, _ShiftedSums]:
        if batch.ndim != 2:
            raise UsageError(
                f"{title}: positions of patches are not shifted, only those of text."
            )
        if not chosen_shifts:
            chosen_shifts.append(_choose_shifts(model, batch.shape[1], shifts, title))
            tasks.append(find_task(model, batch, title))
            _check_start(model, batch, title)
        inputs, targets = prepare_prediction(
            tasks[0], batch, mask_token, seed, n_previous
        )
        return _sum_by_shift(model, inputs, targets, chosen_shifts[0], title, n_previous)

    sums, is_interrupted = sum_over_contexts(model, batches, measure, title)
    losses = np.array([shift_sums.loss for shift_sums in sums.values()])
    return PhaseShift(
        shifts=chosen_shifts[0],
        change=np.array(
            [_relative_change(shift_sums.norms) for shift_sums in sums.values()]
        ),
        loss=losses[:, 0] / losses[:, 1] if losses[:, 1].all() else None,
        task=tasks[0],
        contexts=sums[0].contexts,
        stopped=is_interrupted,
    )


@dataclass(frozen=True, eq=False)
class _ShiftedSums(Sums):
    """Squared norms of states and of their changes; sum of losses and number of predictions."""

    contexts: int
    norms: NDArray[np.float64]
    loss: NDArray[np.float64]


def _choose_shifts(
    model: Any, length: int, shifts: Sequence[int] | None, title: str
) -> NDArray[np.int64]:
    max_length = context_length(model)
    max_shift = max_length - length if max_length else max([4 * length, *(shifts or ())])
    if shifts is None:
        shifts = [round(max_shift * step / 5) for step in range(6)]
    unique_shifts = np.unique([0, *shifts])
    is_integer = unique_shifts.dtype.kind == "i" and len(unique_shifts) > 1
    if not is_integer or unique_shifts[0] < 0 or unique_shifts[-1] > max_shift:
        raise UsageError(
            f"{title}: contexts of {length} tokens can be shifted by 1 to "
            f"{max_shift} whole positions, not by "
            f"{', '.join(map(str, shifts))}. Use shorter contexts."
        )
    return unique_shifts.astype(np.int64)


def _sum_by_shift(
    model: Any,
    inputs: torch.Tensor,
    targets: torch.Tensor | None,
    shifts: NDArray[np.int64],
    title: str,
    n_previous: int,
) -> dict[int, _ShiftedSums]:
    """Run a batch at each shift, of which the first is 0, and sum what changes."""
    count = 0 if targets is None else int((targets != -100).sum())
    batch_sums: dict[int, _ShiftedSums] = {}
    unshifted_states = None
    for shift in shifts.tolist():
        states, losses = _run_at_shift(model, inputs, targets, shift)
        for numbers, subject in ((states, LAST_STATES), (losses, "the losses")):
            check_finite(model, numbers, f"{subject} at shift {shift}", title, n_previous)
        unshifted_states = states if unshifted_states is None else unshifted_states
        loss = np.array([float(losses.sum()), count])
        norms = squared_norms(unshifted_states, states)
        batch_sums[shift] = _ShiftedSums(len(inputs), norms, loss)
    return batch_sums


def _check_start(model: Any, batch: torch.Tensor, title: str) -> None:
    """Refuse a model whose own positions differ from those that shift 0 gives it."""
    own_states = compute_final_states(model, batch[:1])
    check_finite(model, own_states, LAST_STATES, title)
    shifted_states, _ = _run_at_shift(model, batch[:1], None, 0)
    power, change = squared_norms(own_states, shifted_states)
    if change > 1e-3 * power:
        raise UsageError(
            f"{title}: it numbers positions in a way that is not known, so they cannot be shifted."
        )


def _run_at_shift(
    model: Any, batch: torch.Tensor, targets: torch.Tensor | None, shift: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the last hidden states, and the losses ``[b, t]``, 0 without a prediction."""
    options = {"position_ids": shifted_positions(model, batch, shift)}
    if targets is None:
        no_losses: torch.Tensor = import_package("torch").zeros(batch.shape)
        return run_body(model, batch, **options).last_hidden_state, no_losses
    body_outputs: list[Any] = []
    with find_body(model).register_forward_hook(
        lambda _, __, output: body_outputs.append(output)
    ):
        logits: Any = compute_logits(model, batch, **options)
    return body_outputs[0].last_hidden_state, measure_losses(logits, targets)


def blank_images(model: Any, *, seed: int = 0, name: str | None = None) -> BlankImages:
    """Run a vision model on a constant image and on one of noise.

    Patches of a constant image differ in position alone. Patches of independent pixels differ in
    content too, but the grid explains none of that content. Yang et al. 2024 (Denoising Vision
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
    This needs the extra `models`. The input of the first layer for a constant image is the table
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
    path, table = find_position_table(model, title)
    pt = import_package("torch")
    rng = np.random.default_rng(seed)
    images = np.stack([np.zeros(shape), rng.standard_normal(shape)])
    with evaluation_mode(model) as device:
        batch = pt.as_tensor(images, device=device, dtype=table.dtype)
        states: dict[int, NDArray[np.float64]] = {}

        def keep_states(layer: int, layer_states: torch.Tensor) -> None:
            check_finite(
                model, layer_states, f"the hidden states at layer {layer}", title
            )
            states[layer] = layer_states.cpu().double().numpy()

        visit_tensors(
            model,
            batch,
            find_hook_points(model, batch, "hidden_states"),
            "hidden_states",
            keep_states,
        )
        grid = find_layout(model, batch, states[0].shape[1])
    if not isinstance(grid, Grid):
        raise UsageError(f"{title}: its patches have no grid.")
    rows = table.detach().cpu().double().numpy()
    rows = rows.reshape(-1, rows.shape[-1])[-grid.size :]
    constant, noise = (
        {
            number: _measure_pattern(state[image, -grid.size :], rows, grid)
            for number, state in sorted(states.items())
        }
        for image in range(2)
    )
    return BlankImages(constant, noise, layout=grid, seed=seed, table=path)


def _measure_pattern(
    states: NDArray[np.float64], rows: NDArray[np.float64], grid: Grid
) -> Pattern:
    centred_states = states - states.mean(axis=0)
    norms = np.linalg.norm(centred_states, axis=1)
    power = float((states**2).sum())
    # Models compute in single precision or less, so their rounding sets the limit.
    error = centring_error(1.0, len(states), float(np.finfo(np.float32).eps))
    has_pattern = bool(power) and float((centred_states**2).sum()) > error**2 * power
    alignment = closeness = None
    if has_pattern and len(rows) == len(states) and len(rows) > 3:
        table = rows - rows.mean(axis=0)
        norm_products = np.linalg.norm(table, axis=1) * norms
        if table.shape == centred_states.shape and (norm_products > 0).all():
            alignment = float(
                ((table * centred_states).sum(axis=1) / norm_products).mean()
            )
        with suppress(
            InvalidTable
        ):  # The table is constant, or its rows are equidistant.
            closeness = cka(states, rows)
    return Pattern(
        share=float((centred_states**2).sum()) / power if power else None,
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
    prediction_counts
        ``[c, t]``: where something is.
    task
        ``next token`` or ``masked token``.
    """

    context_axes: ClassVar[Mapping[str, int]] = {"losses": 0, "prediction_counts": 0}

    losses: Floats
    prediction_counts: Floats
    task: str = ""

    @property
    def contexts(self) -> int:
        """Number of contexts that were run."""
        return len(self.losses)


def token_losses(
    model: Any, batches: Iterable[Array], *, mask_token: int | None, seed: int, name: str
) -> TokenLosses:
    """Run a model with a head on contexts, and return the loss of each token.

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

    def measure(
        batch: torch.Tensor, n_previous: int, _: object
    ) -> dict[int, TokenLosses]:
        nonlocal task
        task = task or find_task(model, batch, name)
        inputs, targets = prepare_prediction(task, batch, mask_token, seed, n_previous)
        logits = None if targets is None else compute_logits(model, inputs)
        if logits is None or targets is None:
            raise UsageError(
                f"{name}: {type(model).__name__} predicts no tokens of a "
                "text, so that it has no loss. Leave out `text`."
            )
        losses = measure_losses(logits, targets)
        check_finite(model, losses, "the losses", name, n_previous)
        return {0: TokenLosses(losses.numpy(), (targets != -100).cpu().numpy() * 1.0)}

    sums, is_interrupted = sum_over_contexts(model, batches, measure, name)
    if is_interrupted:
        raise KeyboardInterrupt  # Models can be compared only on the same contexts.
    return replace(sums[0], task=task)


def measure_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of each token ``[b, t]`` on the host, 0 without a prediction."""
    pt = import_package("torch")
    flat_logits, flat_targets = logits.flatten(0, 1), targets.flatten().to(logits.device)
    size = max(1, MAX_LOGITS_AT_ONCE // flat_logits.shape[1])
    chunks = [
        pt.nn.functional.cross_entropy(
            widen(logit_chunk), target_chunk, reduction="none", ignore_index=-100
        )
        for logit_chunk, target_chunk in zip(
            pt.split(flat_logits, size), pt.split(flat_targets, size), strict=True
        )
    ]
    losses: torch.Tensor = pt.cat(chunks).reshape(targets.shape).cpu().double()
    return losses


def find_task(model: Any, batch: torch.Tensor, title: str) -> str:
    """Return what a model with a language-modelling head predicts; empty for other models."""
    if type(model).__name__.endswith("ForMaskedLM"):
        return "masked token"
    if not generates(model) or batch.shape[1] < 2:
        return ""
    # The class name does not suffice: XLM's head sees the tokens that it would predict.
    changed_batch = batch[:1].clone()
    changed_batch[:, -1] = batch[:1, 0]
    if bool((changed_batch == batch[:1]).all()):
        changed_batch[:, -1] = (changed_batch[:, -1] + 1) % model.config.vocab_size
    states, changed_states = (
        compute_final_states(model, tokens)[:, :-1]
        for tokens in (batch[:1], changed_batch)
    )
    check_finite(model, states, LAST_STATES, title)
    power, change = squared_norms(states, changed_states)
    rounding = 8 * import_package("torch").finfo(states.dtype).eps
    return "next token" if change <= rounding**2 * power else ""


def prepare_prediction(
    task: str, batch: torch.Tensor, mask_token: int | None, seed: int, n_previous: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the input of the model, and the tokens ``[b, t]`` to predict, -100 for none.

    A token to predict stands at the position whose output predicts it.
    """
    pt = import_package("torch")
    if task == "next token":
        no_target = pt.full_like(batch[:, :1], -100)
        return batch, pt.cat([batch[:, 1:], no_target], dim=1)
    if task != "masked token" or mask_token is None:
        return batch, None
    # The seed of the masked tokens depends on the context alone, not on the batch.
    is_masked = pt.as_tensor(
        np.stack(
            [
                np.random.default_rng([seed, n_previous + row]).random(batch.shape[1])
                < MASKED_TOKEN_SHARE
                for row in range(len(batch))
            ]
        ),
        device=batch.device,
    )
    return batch.masked_fill(is_masked, mask_token), batch.masked_fill(~is_masked, -100)


def compute_logits(
    model: Any, batch: torch.Tensor, **options: Any
) -> torch.Tensor | None:
    """Return a head's logits, ``[b, t, v]`` or ``[b, 1, v]``; None without an answering head.

    A head with a single output chooses among no answers, and other heads may return anything, such
    as the masked pixels.
    """
    logits: Any
    if is_timm(model):
        with explain_model_errors(model):
            logits = model(batch) if getattr(model, "num_classes", 0) else None
    elif not any(task in type(model).__name__ for task in ANSWERING_HEADS):
        logits = None
    else:
        if hasattr(find_body(model).config, "use_cache"):
            options["use_cache"] = False
        input_name = "pixel_values" if batch.ndim == 4 else "input_ids"
        with explain_model_errors(model):
            logits = getattr(model(**{input_name: batch}, **options), "logits", None)
    if logits is None or logits.ndim not in (2, 3) or logits.shape[-1] < 2:
        return None
    position_logits: torch.Tensor = logits[:, None] if logits.ndim == 2 else logits
    return position_logits
