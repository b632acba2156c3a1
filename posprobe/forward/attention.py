"""Run a model and measure what decides where its heads look."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.attention_budget import (
    AttentionBudget,
    BudgetProblem,
    LogitSource,
    LogitSums,
    build_attention_budget,
)
from posprobe.analyses.models.attention_window import (
    AttentionWindow,
    grid_window,
    sequence_window,
)
from posprobe.analyses.models.rotary_use import MIN_HEAD_CONTEXTS
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.attention_inputs import (
    AttentionInputs,
    find_visible_keys,
    observe_checked_inputs,
    promote_half,
    run_observed,
)
from posprobe.forward.averages import find_attention_layers, use_stepwise_attention
from posprobe.forward.contexts import (
    check_padding,
    check_same_shape,
    empty_error,
    generates,
    split_batches,
    sum_over_contexts,
    to_tensor,
)
from posprobe.forward.models import import_package, unwrap_model
from posprobe.forward.running import (
    find_hook_points,
    find_layout,
    is_timm,
    visit_tensors,
)
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    import torch

#: Contexts with fewer tokens have too few distances to either side.
MIN_BUDGET_TOKENS = 24
#: Distances of a query at most: the window's logits are kept for all contexts.
MAX_WINDOW_DISTANCES = 128
#: Memory of the logits of 64 contexts, in bytes. Windows of larger models get fewer queries.
MAX_LOGIT_BYTES = 2**27
#: Contexts for which `MAX_LOGIT_BYTES` holds: the default number of a run.
N_MEMORY_CONTEXTS = 64
#: Logits explain the output of attention above this cosine: bfloat16 leaves .9999.
MIN_OUTPUT_COSINE = 0.999
#: Logits over all keys, or numbers of keys, that are multiplied at a time: 16 MiB in single
#: precision. A product copies both.
MAX_ROW_LOGITS = 2**22
#: A window has at least so many queries, whatever memory they take.
MIN_WINDOW_QUERIES = 4


#: Logits of a layer's window ``[b, heads, q, n]``; attention to the first token and share that is
#: lost, both ``[b, heads]``.
WindowLogits: TypeAlias = "tuple[torch.Tensor, torch.Tensor, torch.Tensor]"


@dataclass(frozen=True, eq=False)
class LayerView:
    """Window of one layer, and what uniform attention would pay the first token in it."""

    window: AttentionWindow
    uniform_first: float


@dataclass(frozen=True, eq=False)
class _View:
    """How the logits of a model are seen, layer by layer.

    Parameters
    ----------
    source
        Origin of the logits.
    layout
        Layout of the tokens or patches.
    views
        Windows by number of the layer.
    problems
        Reasons by number of the layers that are not measured; found while contexts run.
    measure
        Function that runs a batch and returns the logits of each layer's window.
    """

    source: LogitSource
    layout: Layout
    views: Mapping[int, LayerView]
    problems: dict[int, BudgetProblem]
    measure: Callable[[torch.Tensor], dict[int, LogitSums]]


def attention_budget(
    model: Any, contexts: Array | Iterable[Array], *, name: str | None = None
) -> AttentionBudget:
    """Measure what decides where each head looks: distance, place of the key, or content.

    Each query of a window looks at the same distances, ``t // 2`` of them if keys come before
    queries and ``t // 3`` to either side otherwise, at most 128; on patches, a third of the grid
    in each direction. The variance of its logits over these keys splits into a curve by distance,
    what a key gets wherever it is looked at from, other position, and content: what varies between
    contexts. Shares are unbiased for any number of contexts.

    Logits are computed from the queries and keys that a model hands to the attention interface of
    transformers, with all biases; for other models they are the logarithm of attention.

    Parameters
    ----------
    model
        A model of transformers or timm, such as `load_model` builds.
    contexts
        Token ids ``[contexts, t]`` or pixels ``[contexts, channels, h, w]``, or batches of them,
        NumPy or torch, all of one length or size and without padding; 8 contexts or more for
        errors, 12 for answers.
    name
        Name of the model, for messages.

    Returns
    -------
    AttentionBudget
        Shares of each head, their errors, moved attention, preferred distances and curves.

    Raises
    ------
    UsageError
        If contexts are shorter than 24 tokens or longer than the model's, there are none or fewer
        than two, they hold padding, the model shows no attention, or no layer can be measured.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> model = pp.load_model("sample:digits-vit", device="cpu")
    >>> budget = pp.attention_budget(model, pp.random_images((1, 8, 8), count=16))
    >>> len(budget.heads), budget.source
    (8, 'queries and keys')
    >>> shares = budget.distance, budget.key, budget.other, budget.content
    >>> bool(abs(sum(shares) - 1) < 1e-9)
    True
    """
    model = unwrap_model(model)
    observer = AttentionObserver(model, name or type(model).__name__)

    def measure(batch: torch.Tensor, *_: object) -> dict[int, LogitSums]:
        observer.prepare(batch)
        return observer.measure(batch)

    return observer.build(*sum_over_contexts(model, contexts, measure, observer.title))


def check_budget_contexts(
    contexts: Array | Iterable[Array], title: str
) -> list[torch.Tensor]:
    """Return contexts as batches, refused where no model could be measured on them.

    Parameters
    ----------
    contexts
        As for `attention_budget`.
    title
        What the contexts belong to, for messages.

    Raises
    ------
    UsageError
        If they are no token ids or pixels, differ in length, or are too short or too few.
    """
    batches: list[torch.Tensor] = []
    for batch in map(to_tensor, split_batches(contexts)):
        check_same_shape(batch, tuple(batches[0].shape[1:]) if batches else (), title)
        _check_length(batch, title)
        batches.append(batch)
    if not batches:
        raise empty_error(title)
    _check_count(sum(map(len, batches)), title)
    return batches


class AttentionObserver:
    """Takes the logits of a model's heads while batches run, and measures the attention budget.

    Parameters
    ----------
    model, title
        The model, and its name for messages.
    """

    def __init__(self, model: Any, title: str) -> None:
        self.model, self.title = model, title
        self._view: _View | None = None

    def prepare(self, batch: torch.Tensor) -> None:
        """Find, with one context, where the logits come from; refuse contexts that do not fit.

        Raises
        ------
        UsageError
            As `attention_budget`.
        """
        if self._view is None:
            _check_length(batch, self.title)
            self._view = _find_view(self.model, batch[:1], self.title)
        check_padding(self.model, batch, self.title)

    def measure(self, batch: torch.Tensor) -> dict[int, LogitSums]:
        """Run a batch once, after `prepare`, and return the logits of each layer's window."""
        return {} if self._view is None else self._view.measure(batch)

    def build(
        self, sums: Mapping[int, LogitSums], is_interrupted: bool
    ) -> AttentionBudget:
        """Measure every head from the logits of all contexts.

        Raises
        ------
        UsageError
            If no layer could be measured, or there is one context.
        """
        view = self._view
        problems = {} if view is None else view.problems
        measured = {number: sums[number] for number in sums if number not in problems}
        if view is None or not measured:
            raise _no_layer_error(problems, self.title)
        _check_count(next(iter(measured.values())).contexts, self.title)
        return build_attention_budget(
            measured,
            problems,
            layout=view.layout,
            source=view.source,
            name=self.title,
            is_interrupted=is_interrupted,
        )


#: Message by reason for a layer that cannot be measured.
PROBLEM_MESSAGES: Mapping[str, str] = {
    "other_keys": "which keys it sees depends on more than distance",
    "short_window": "it sees too few distances",
    "not_finite": "its logits hold NaN or infinity",
    "looks_ahead": "it attends to later tokens, though the model predicts them",
    "underflow": "too much of its attention is 0 in this precision",
    "shape": "its attention is not from every token to every token",
}


def _check_count(n_contexts: int, title: str) -> None:
    """Refuse a single context."""
    if n_contexts < 2:
        raise UsageError(
            f"{title}: one context cannot tell position from content. Use "
            f"{MIN_HEAD_CONTEXTS} or more (`contexts`)."
        )


def _check_length(batch: torch.Tensor, title: str) -> None:
    """Refuse contexts that are too short."""
    if batch.ndim == 2 and batch.shape[1] < MIN_BUDGET_TOKENS:
        raise UsageError(
            f"{title}: contexts of {batch.shape[1]} tokens are too short to tell "
            f"distances apart: use {MIN_BUDGET_TOKENS} or more (`length`)."
        )


def _find_view(model: Any, batch: torch.Tensor, title: str) -> _View:
    """Find the source of logits, and the window of every layer, with one context."""
    inputs = {} if is_timm(model) else _observe_all_inputs(model, batch, title)
    view = _observe_projections(model, batch, inputs, title) if inputs else None
    if view is None:
        view = _observe_attention(model, batch, title)
    if not view.views:
        raise _no_layer_error(view.problems, title)
    return view


def _no_layer_error(problems: Mapping[int, BudgetProblem], title: str) -> UsageError:
    reasons = sorted({PROBLEM_MESSAGES[problem] for problem in problems.values()})
    return UsageError(f"{title}: no layer can be measured: {', '.join(reasons)}.")


def _observe_all_inputs(
    model: Any, batch: torch.Tensor, title: str
) -> dict[int, AttentionInputs]:
    """Return the attention inputs of all layers; nothing where some do not show theirs."""
    try:
        inputs = observe_checked_inputs(model, batch, title)
    except UsageError:
        return {}
    # One module that is called for several layers shows its last call alone.
    n_layers = getattr(getattr(model, "config", None), "num_hidden_layers", 0)
    return inputs if len(inputs) >= n_layers else {}


def _observe_projections(
    model: Any, batch: torch.Tensor, inputs: Mapping[int, AttentionInputs], title: str
) -> _View | None:
    """Prepare to compute logits from queries and keys; None where they do not explain outputs."""
    tokens = next(iter(inputs.values())).query.shape[2]
    layout = find_layout(model, batch, tokens)
    visible = {
        number: find_visible_keys(layer.mask, tokens) for number, layer in inputs.items()
    }
    n_heads = sum(layer.query.shape[1] for layer in inputs.values())
    views, problems = _find_views(model, visible, layout, tokens, n_heads)
    for number, layer in inputs.items():
        if not bool(layer.query.isfinite().all() and layer.key.isfinite().all()):
            problems[number] = "not_finite"
            views.pop(number, None)
    if not all(_explain_output(inputs[number], view) for number, view in views.items()):
        return None

    def measure(batch: torch.Tensor) -> dict[int, LogitSums]:
        batch_sums: dict[int, LogitSums] = {}

        def add_logits(number: int, inputs: AttentionInputs) -> None:
            if number in views:
                _add_sums(
                    batch_sums,
                    problems,
                    number,
                    _project_logits(inputs, views[number]),
                    views,
                )

        run_observed(model, batch, add_logits, title)
        return batch_sums

    return _View("queries and keys", layout, views, problems, measure)


def _observe_attention(model: Any, batch: torch.Tensor, title: str) -> _View:
    """Prepare to take the logarithm of attention."""
    with use_stepwise_attention(model, title):
        points = find_hook_points(model, batch, "attentions")
        numbers = find_attention_layers(model, points)
        shapes: dict[int, tuple[int, ...]] = {}
        visible: dict[int, NDArray[np.bool_]] = {}
        underflows: dict[int, bool] = {}

        def find_visible(index: int, weights: torch.Tensor) -> None:
            number = numbers[index] if points else index
            shapes[number] = tuple(weights.shape)
            seen_by_head = (weights > 0).any(dim=0)
            # A zero that one head alone has is underflow.
            visible[number] = seen_by_head.any(dim=0).cpu().numpy()
            underflows[number] = bool((seen_by_head != seen_by_head[:1]).any())

        visit_tensors(model, batch, points, "attentions", find_visible)
    if not shapes:
        raise UsageError(f"{title}: {type(model).__name__} shows no attention.")
    n_heads = sum(shape[1] for shape in shapes.values())
    tokens = next(iter(shapes.values()))[-1]
    n_windows = next(iter(shapes.values()))[0]
    layout = (
        find_layout(model, batch, tokens)
        if n_windows == 1
        else _square_grid(tokens, title)
    )
    views, problems = _find_views(model, visible, layout, tokens, n_heads)
    # A mask is the same for all heads, and other zeros are not.
    problems = {
        number: problem
        if _depends_on_distance(visible[number]) or not underflows[number]
        else "underflow"
        for number, problem in problems.items()
    }

    def measure(batch: torch.Tensor) -> dict[int, LogitSums]:
        batch_sums: dict[int, LogitSums] = {}

        def add_logits(index: int, weights: torch.Tensor) -> None:
            number = numbers[index] if points else index
            if number in views and number not in problems:
                # Of attention within windows of an image, the first window is measured.
                first_windows = weights[:: len(weights) // len(batch)]
                logits = _attention_logits(first_windows, views[number])
                _add_sums(batch_sums, problems, number, logits, views)

        with use_stepwise_attention(model, title):
            visit_tensors(model, batch, points, "attentions", add_logits)
        return batch_sums

    return _View("attention", layout, views, problems, measure)


def _square_grid(tokens: int, title: str) -> Grid:
    """Return the grid of one window of an image."""
    side = math.isqrt(tokens)
    if side**2 != tokens:
        raise UsageError(f"{title}: windows of {tokens} tokens are no squares.")
    return Grid(side, side)


def _find_views(
    model: Any,
    visible: Mapping[int, NDArray[np.bool_] | None],
    layout: Layout,
    tokens: int,
    n_heads: int,
) -> tuple[dict[int, LayerView], dict[int, BudgetProblem]]:
    """Find the window of every layer, or why it has none."""
    views: dict[int, LayerView] = {}
    problems: dict[int, BudgetProblem] = {}
    is_causal = generates(model) or any(
        getattr(module, "is_causal", False) for module in model.modules()
    )
    for number, layer_visible in visible.items():
        if layer_visible is not None and layer_visible.shape != (tokens, tokens):
            problems[number] = "shape"
            continue
        if isinstance(layout, Grid):
            window = grid_window(layout, tokens - layout.size)
        else:
            window = sequence_window(layer_visible, tokens, MAX_WINDOW_DISTANCES)
        if isinstance(window, str):
            problems[number] = window
        elif window.is_two_sided and is_causal:
            problems[number] = "looks_ahead"
        else:
            window = _limit_queries(window, n_heads)
            uniform_first = 1 / tokens
            if layer_visible is not None:
                rows = layer_visible[window.queries]
                uniform_first = float(np.mean(rows[:, 0] / rows.sum(axis=1)))
            views[number] = LayerView(window, uniform_first)
    return views, problems


def _depends_on_distance(visible: NDArray[np.bool_] | None) -> bool:
    """Tell whether the distance alone decides which keys a query sees."""
    return visible is None or bool((visible[1:, 1:] == visible[:-1, :-1]).all())


def _limit_queries(window: AttentionWindow, n_heads: int) -> AttentionWindow:
    """Keep the middle queries of a window, as many as memory allows for all heads."""
    n_queries, n_keys = window.keys.shape
    bytes_by_query = 4 * n_keys * n_heads * N_MEMORY_CONTEXTS
    n_kept = min(n_queries, max(MAX_LOGIT_BYTES // bytes_by_query, MIN_WINDOW_QUERIES))
    start = (n_queries - n_kept) // 2
    kept = slice(start, start + n_kept)
    return replace(window, queries=window.queries[kept], keys=window.keys[kept])


def _row_logits(
    inputs: AttentionInputs, contexts: slice, queries: torch.Tensor
) -> torch.Tensor:
    """Compute the logits of some queries of some contexts over all keys, ``[b, heads, q, t]``."""
    pt = import_package("torch")
    query, key = (promote_half(part[contexts]) for part in (inputs.query, inputs.key))
    n_contexts, n_groups, n_tokens, width = key.shape
    # The queries of heads that share a key stand below each other, so that no key is copied.
    stacked_query = query[:, :, queries].reshape(n_contexts, n_groups, -1, width)
    logits = (stacked_query @ key.transpose(2, 3) * inputs.scale).reshape(
        n_contexts, query.shape[1], len(queries), n_tokens
    )
    if inputs.cap is not None:
        logits = inputs.cap * pt.tanh(logits / inputs.cap)
    for added in (inputs.bias, inputs.mask):
        if added is None:
            continue
        shared_by_contexts = len(added) == 1
        rows = (added if shared_by_contexts else added[contexts])[
            :, :, queries, :n_tokens
        ]
        is_mask = rows.dtype == pt.bool
        logits = logits.masked_fill(~rows, -pt.inf) if is_mask else logits + rows
    return logits


def _project_logits(inputs: AttentionInputs, view: LayerView) -> WindowLogits:
    """Compute the logits of a window from queries and keys, a few contexts at a time."""
    pt = import_package("torch")
    queries, keys = (
        pt.as_tensor(indices, device=inputs.query.device)
        for indices in (view.window.queries, view.window.keys)
    )
    n_contexts, n_heads, n_tokens = inputs.query.shape[:3]
    context_size = max(n_heads * len(queries) * n_tokens, inputs.key[0].numel())
    n_at_once = max(MAX_ROW_LOGITS // context_size, 1)
    parts = []
    for start in range(0, n_contexts, n_at_once):
        logits = _row_logits(inputs, slice(start, start + n_at_once), queries)
        first = logits.softmax(dim=-1)[..., 0].mean(dim=-1)
        parts.append((_gather_keys(logits, keys), first))
    window_logits, first = (pt.cat(part) for part in zip(*parts, strict=True))
    return window_logits, first, pt.zeros_like(first)


def _explain_output(inputs: AttentionInputs, view: LayerView) -> bool:
    """Tell whether these logits give the direction of what the layer's attention returns.

    They do not where a model adds something that is not among the inputs. Its length may differ:
    a sink takes a part of all attention.
    """
    pt = import_package("torch")
    if inputs.value is None or inputs.output is None:
        return False
    queries = pt.as_tensor(view.window.queries, device=inputs.query.device)
    weights = _row_logits(inputs, slice(1), queries).softmax(dim=-1)[0]
    value = promote_half(inputs.value[0])
    expected = weights @ value.repeat_interleave(len(weights) // len(value), dim=0)
    output = promote_half(inputs.output[0]).transpose(0, 1)[:, queries]
    cosines = pt.nn.functional.cosine_similarity(expected, output, dim=-1)
    return bool((cosines >= MIN_OUTPUT_COSINE).all())


def _gather_keys(logits: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Take each query's keys from logits ``[..., q, t]``, as ``[..., q, n]``."""
    return logits.gather(-1, keys.expand(*logits.shape[:-2], *keys.shape))


def _attention_logits(weights: torch.Tensor, view: LayerView) -> WindowLogits:
    """Return the logarithm of a window's attention, the logits less a constant per query."""
    pt = import_package("torch")
    queries, keys = (
        pt.as_tensor(indices, device=weights.device)
        for indices in (view.window.queries, view.window.keys)
    )
    rows = promote_half(weights)[:, :, queries]
    seen = _gather_keys(rows, keys)
    is_lost = seen <= 0
    smallest = pt.finfo(seen.dtype).tiny
    lost = is_lost.to(seen.dtype).mean(dim=(-1, -2))
    return seen.clamp(min=smallest).log(), rows[..., 0].mean(dim=-1), lost


def _add_sums(
    batch_sums: dict[int, LogitSums],
    problems: dict[int, BudgetProblem],
    number: int,
    window_logits: WindowLogits,
    views: Mapping[int, LayerView],
) -> None:
    """Add the logits of a layer to those of the batch; a layer with NaN is not measured."""
    logits, first, lost = (part.cpu().numpy() for part in window_logits)
    if not np.isfinite(logits).all():
        problems[number] = "not_finite"
    view = views[number]
    kept_logits = _copy_to_map(logits)
    batch_sums[number] = LogitSums(
        (kept_logits,), first, lost, view.window, view.uniform_first
    )


def _copy_to_map(array: NDArray[np.floating]) -> NDArray[np.floating]:
    """Copy an array to memory of its own, outside of the heap.

    Between the large tensors of a forward pass, arrays that stay would keep the heap from
    shrinking: that took four times their size.
    """
    copy = np.frombuffer(mmap.mmap(-1, array.nbytes), dtype=array.dtype)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy
