"""Test of explanations: the model runs with each of them in place of its position table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from posprobe.analyses.descriptive.closeness import cka
from posprobe.analyses.linear import grid_displacements
from posprobe.analyses.models.experiments import (
    MEASURES,
    MIN_COST_STANDARD_ERRORS,
    Cost,
    Measure,
    Substitute,
    SubstitutionEffect,
    by_position,
    costs,
    mean_and_error,
    measure_early,
)
from posprobe.arrays import Array, Floats, Sums
from posprobe.errors import InvalidTable, UsageError
from posprobe.forward.averages import use_stepwise_attention
from posprobe.forward.contexts import sum_over_contexts
from posprobe.forward.experiments import (
    MAX_LOGITS_AT_ONCE,
    compute_logits,
    find_task,
    prepare_prediction,
)
from posprobe.forward.models import import_package, load_model
from posprobe.forward.replacements import Target, explained_share, find_target
from posprobe.forward.running import (
    LAST_STATES,
    HookPoint,
    check_finite,
    compute_final_states,
    find_hook_points,
    find_layout,
    observe_hook_points,
    visit_tensors,
    widen,
)
from posprobe.layouts import Grid

if TYPE_CHECKING:
    import torch


def substitution_effect(
    model: Any,
    batches: Iterable[Array],
    *,
    tables: Mapping[str, Array] | None = None,
    rows: slice | None = None,
    explain: bool = True,
    random: bool = False,
    mask_token: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> SubstitutionEffect:
    """Run a model with explanations of its position table in the table's place.

    An explanation keeps enough of a table if the outputs stay. For a model with a head these are
    the loss of the next or of masked tokens, the Kullback-Leibler divergence from the outputs of
    the unchanged model, and the top answers; for others they are the last hidden states. The
    distances that attention spans are compared as well, if the model shows its attention. Each
    context is run once unchanged and once with each explanation. The table is restored, also after
    an error, and rows of special tokens are left as they are.

    Parameters
    ----------
    model
        A model of transformers or timm, with one learned table of positions; or a reference, which
        is loaded with its head.
    batches
        Batches, as for `decompose`.
    tables
        Further tables to put in its place, by name: ``[n, d]`` each.
    rows
        Positions that are replaced; None stands for all that the contexts reach. Explanations are
        of these rows alone.
    explain
        Whether the usual explanations are put there as well, or further tables and the mean row
        alone.
    random
        Whether contexts are random, so that their loss says nothing and is not measured.
    mask_token
        Id of the token that masks another, as the tokenizer has it; without it the loss of a model
        of masked tokens is not measured.
    seed
        Random seed of the baselines and of the masked tokens.
    name
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If the model has no table of its own or several, the rows that are positions cannot be
        identified, or a further table has another shape.
    InvalidTable
        If the unchanged model's outputs are not finite.

    Examples
    --------
    This needs the extra `models`. The table in its own place changes nothing, whereas three
    components are not enough:

    >>> import posprobe as pp
    >>> model = pp.load_model("sample:digits-vit", device="cpu")
    >>> effect = pp.substitution_effect(model, pp.random_images((1, 8, 8), count=8))
    >>> effect["itself"].costs["states"].value
    0.0
    >>> effect["components_3"].costs["states"].value > 0.1
    True
    """
    if isinstance(model, str):
        name, model = name or model, load_model(model, head=True)
    title = name or type(model).__name__
    setups: list[_Setup] = []
    attention_message = ""

    def measure(batch: torch.Tensor, n_previous: int, _: object) -> dict[int, _CostSums]:
        if not setups:
            target = find_target(
                model,
                batch,
                tables=tables or {},
                rows=rows,
                explain=explain,
                seed=seed,
                title=title,
            )
            setup = _prepare_setup(
                model, batch, target, attention_message, random=random, title=title
            )
            setups.append(setup)
        inputs, targets = prepare_prediction(
            setups[0].task, batch, mask_token, seed, n_previous
        )
        return {0: _run_substitutes(model, inputs, targets, n_previous, setups[0], title)}

    with ExitStack() as attention_mode:
        try:
            attention_mode.enter_context(use_stepwise_attention(model, title))
        except UsageError as error:
            attention_message = str(error)
        sums, is_interrupted = sum_over_contexts(model, batches, measure, title)
    return _build_result(sums[0], setups[0], seed, is_interrupted=is_interrupted)


@dataclass(frozen=True, eq=False)
class Distances:
    """Hook points of attention, and the distance of each pair of positions.

    Parameters
    ----------
    points
        Result of `find_hook_points`.
    first_distances
        The first distance of each range: 0, 1, 2, 4, 8 and so on.
    ranges
        ``[n, n]``: of each query and key the range; one more where the pair is not counted.
    """

    points: Sequence[HookPoint]
    first_distances: tuple[int, ...]
    ranges: torch.Tensor

    def sum_attention(self, weights: torch.Tensor) -> torch.Tensor:
        """Add attention ``[c, heads, m, m]`` up by range, in the mean over heads and queries."""
        n_positions = len(self.ranges)
        mean = widen(weights[:, :, -n_positions:, -n_positions:].mean(dim=1)).flatten(1)
        range_sums = mean.new_zeros((len(weights), len(self.first_distances) + 1))
        range_sums.index_add_(1, self.ranges.flatten().to(mean.device), mean)
        return range_sums.cpu() / n_positions


def find_distances(model: Any, batch: torch.Tensor) -> Distances:
    """Find the hook points of a model's attention, and group pairs of positions by distance.

    On a grid the distance is the larger of those along rows and columns. In a sequence attention to
    the first position is not counted, because many heads attend to it from everywhere, which is no
    preference for a distance.

    Raises
    ------
    UsageError
        If no attention from every token to every token can be observed layer by layer.
    """
    points = find_hook_points(model, batch, "attentions")
    if not points:
        raise UsageError("its attention is seen at the end of a run alone")
    shapes: set[tuple[int, ...]] = set()
    visit_tensors(
        model,
        batch[:1],
        points,
        "attentions",
        lambda _, weights: shapes.add(tuple(weights.shape[2:])),
    )
    tokens = next(iter(shapes))[-1]
    if shapes != {(tokens, tokens)}:
        raise UsageError("its attention is not from every token to every token")
    layout = find_layout(model, batch, tokens)
    distance = np.maximum(*grid_displacements(layout.height, layout.width))
    first_distances = (0, *(2**k for k in range(int(distance.max()).bit_length())))
    ranges = np.searchsorted(first_distances, distance, side="right") - 1
    if not isinstance(layout, Grid):
        ranges[:, 0] = len(first_distances)
    return Distances(
        points,
        first_distances,
        import_package("torch").as_tensor(ranges, device=batch.device),
    )


@dataclass(frozen=True, eq=False)
class _Setup:
    """What is replaced in the model, and which outputs are compared."""

    target: Target
    has_head: bool
    task: str
    is_random: bool
    rounding: float
    distances: Distances | None
    attention_message: str  # reason for the lack of distances


@dataclass(frozen=True, eq=False)
class _CostSums(Sums):
    """Costs by context, added up over positions, and by position, added up over contexts."""

    context_axes: ClassVar[Mapping[str, int]] = {
        "costs": 1,
        "weights": 0,
        "cka": 1,
        "attention": 1,
        "losses": 0,
    }

    costs: Mapping[Measure, Floats]  # [m, c]
    weights: Floats  # [c]
    cka: Floats  # [m, c]
    attention: Floats  # [m, c, ranges]
    losses: Floats  # [c]: of the unchanged model
    position_costs: Floats  # [2, m, t]: the main cost, and its square
    # [3, t]: weights, contexts that have one, and the unchanged model's losses
    position_weights: Floats

    @property
    def contexts(self) -> int:
        """Number of contexts that were run."""
        return len(self.weights)


def _prepare_setup(
    model: Any,
    batch: torch.Tensor,
    target: Target,
    attention_message: str,
    *,
    random: bool,
    title: str,
) -> _Setup:
    """Find the outputs of a model that can be compared."""
    has_head = compute_logits(model, batch[:1]) is not None
    has_task = has_head and not random and batch.ndim == 2
    dtype = next(model.parameters()).dtype
    distances = None
    try:
        distances = None if attention_message else find_distances(model, batch)
    except UsageError as error:
        attention_message = str(error)
    return _Setup(
        target=target,
        has_head=has_head,
        task=find_task(model, batch, title) if has_task else "",
        is_random=random,
        rounding=8 * float(import_package("torch").finfo(dtype).eps),
        distances=distances,
        attention_message=attention_message,
    )


def _run_substitutes(
    model: Any,
    batch: torch.Tensor,
    targets: torch.Tensor | None,
    n_previous: int,
    setup: _Setup,
    title: str,
) -> _CostSums:
    """Run a batch unchanged and then with every substitute in turn."""
    target = setup.target
    before, _ = _run_observed(model, batch, setup)
    weights, losses = _measure_unchanged(before, targets, has_head=setup.has_head)
    subject = "the outputs" if setup.has_head else LAST_STATES
    for numbers in (weights, losses):
        tensor = import_package("torch").as_tensor(numbers)
        check_finite(model, tensor, subject, title, n_previous)
    substitute_costs: list[dict[Measure, Floats]] = []
    cka_values = np.full((len(target.substitutes), len(batch)), np.nan)
    attention: list[Floats] = []
    with target.restore_on_exit():
        for number, substitute in enumerate(target.substitutes):
            target.write(substitute.rows)
            after, shares = _run_observed(model, batch, setup)
            attention.append(shares)
            if setup.has_head:
                substitute_costs.append(_compare_logits(before, after, targets))
                if targets is not None:
                    substitute_costs[-1]["loss"] -= losses
            else:
                substitute_costs.append(
                    {"states": _squared_norms(widen(after) - widen(before))}
                )
                cka_values[number] = _compare_states(before, after)
    stacked = {
        key: np.stack([costs[key] for costs in substitute_costs])
        for key in substitute_costs[0]
    }
    # Sums of NaN are silent, whereas those of infinite numbers would warn.
    stacked = {
        key: np.where(np.isfinite(part), part, np.nan) for key, part in stacked.items()
    }
    main = stacked[_main_measure(stacked)]
    return _CostSums(
        {key: part.sum(axis=2) for key, part in stacked.items()},
        weights.sum(axis=1),
        cka_values,
        np.stack(attention),
        losses.sum(axis=1),
        np.stack([main.sum(axis=1), np.square(main).sum(axis=1)]),
        np.stack([part.sum(axis=0) for part in (weights, weights > 0, losses)]),
    )


def _run_observed(
    model: Any, batch: torch.Tensor, setup: _Setup
) -> tuple[torch.Tensor, Floats]:
    """Run a model, and return its logits or last states, and the attention by range.

    The attention is ``[c, ranges]``: for each context the share of the attention of positions that
    goes to each range of distances, in the mean over heads and layers; no range without hooks.
    """
    sums: list[torch.Tensor] = []
    distances = setup.distances

    def add_shares(_: int, weights: torch.Tensor) -> None:
        if distances:
            sums.append(distances.sum_attention(weights))

    with observe_hook_points(distances.points if distances else (), add_shares):
        outputs = compute_logits(model, batch) if setup.has_head else None
        outputs = compute_final_states(model, batch) if outputs is None else outputs
    if not sums:
        return outputs, np.zeros((len(batch), 0))
    return outputs, _to_host(import_package("torch").stack(sums).mean(dim=0)[:, :-1])


def _measure_unchanged(
    outputs: torch.Tensor, targets: torch.Tensor | None, *, has_head: bool
) -> tuple[Floats, Floats]:
    """Return the weight and the loss of each position, both ``[b, t]``, 0 if it has none.

    If outputs are not finite, one of both is not finite either.
    """
    if not has_head:
        squares = _squared_norms(outputs)
        return squares, np.zeros_like(squares)
    numbers = _compare_logits(outputs, outputs, targets)
    weights = np.ones(outputs.shape[:2]) if targets is None else _to_host(targets != -100)
    weights = np.where(np.isfinite(numbers["divergence"]), weights, np.nan)
    return weights, numbers.get("loss", np.zeros_like(weights))


def _compare_logits(
    before: torch.Tensor, after: torch.Tensor, targets: torch.Tensor | None
) -> dict[Measure, Floats]:
    """Compare logits ``[b, t, v]``: numbers of each position ``[b, t]``, 0 where none is counted.

    The loss is that of ``after``.
    """
    pt = import_package("torch")
    shape = before.shape[:2]
    is_counted = (
        pt.ones(shape, dtype=pt.bool) if targets is None else (targets != -100).cpu()
    )
    counted_rows = is_counted.reshape(-1).nonzero()[:, 0].to(before.device)
    numbers: dict[Measure, Floats] = {
        key: np.zeros(shape[0] * shape[1]) for key in ("divergence", "answers")
    }
    if targets is not None:
        numbers["loss"] = np.zeros(shape[0] * shape[1])
    for row_chunk in counted_rows.split(max(1, MAX_LOGITS_AT_ONCE // before.shape[2])):
        log_before, log_after = (
            widen(logits.reshape(-1, logits.shape[2])[row_chunk]).log_softmax(dim=1)
            for logits in (before, after)
        )
        divergence = pt.where(
            log_before.isneginf(), 0.0, log_before.exp() * (log_before - log_after)
        ).sum(dim=1)
        rows = row_chunk.cpu().numpy()
        # Rounding may leave a negative number, but no divergence is below 0.
        numbers["divergence"][rows] = np.maximum(_to_host(divergence), 0.0)
        has_changed = _to_host(log_before.argmax(dim=1) != log_after.argmax(dim=1))
        numbers["answers"][rows] = np.where(
            np.isnan(_to_host(divergence)), np.nan, has_changed
        )
        if targets is not None:
            target_ids = targets.reshape(-1).to(row_chunk.device)[row_chunk, None]
            numbers["loss"][rows] = -_to_host(log_after.gather(1, target_ids)[:, 0])
    return {key: logits.reshape(shape) for key, logits in numbers.items()}


def _compare_states(before: torch.Tensor, after: torch.Tensor) -> Floats:
    """Return the debiased CKA of each context's states ``[b, t, d]``, NaN where undefined."""
    cka_values = np.full(len(before), np.nan)
    for context, (states_before, states_after) in enumerate(
        zip(before, after, strict=True)
    ):
        with suppress(
            InvalidTable
        ):  # States are not finite, all equal, or fewer than four.
            cka_values[context] = cka(
                _to_host(widen(states_before)), _to_host(widen(states_after))
            )
    return cka_values


def _build_result(
    sums: _CostSums, setup: _Setup, seed: int, *, is_interrupted: bool
) -> SubstitutionEffect:
    target = setup.target
    costs_by_measure = _average_costs(sums, target.removed_index, setup.rounding)
    main = _main_measure(sums.costs)
    has_loss = main == "loss" and bool(sums.weights.any())
    unknown = [Cost(None, None, None, None)]
    (total_loss,) = costs(sums.losses[None], sums.weights, 0) if has_loss else unknown
    weight, count, losses = sums.position_weights
    position_curve = by_position(
        sums.position_costs, weight, count, norm=main == "states"
    )
    has_positions = len(weight) > 1
    has_position_errors = has_positions and main != "states"
    repeat_cost = costs_by_measure[main][0].value
    return SubstitutionEffect(
        substitutes=tuple(_describe_substitutes(target, sums, costs_by_measure)),
        measure=main,
        removed=target.removed,
        contexts=sums.contexts,
        seed=seed,
        table=target.path,
        scheme=target.scheme,
        layout=target.layout,
        start=target.start,
        task=setup.task,
        loss=total_loss.value,
        loss_error=total_loss.error,
        by_position=position_curve[0] if has_positions else None,
        by_position_error=position_curve[1] if has_position_errors else None,
        unchanged=losses / np.where(count > 0, count, np.nan) if has_loss else None,
        early=measure_early(sums.position_costs[0, target.removed_index], weight)
        if has_position_errors and not isinstance(target.layout, Grid)
        else None,
        distances=setup.distances.first_distances if setup.distances else None,
        undefined=_undefined_reasons(
            setup,
            costs_by_measure[main],
            has_loss=has_loss,
            has_positions=has_positions,
        ),
        stopped=is_interrupted,
        notes=(
            f"repeated runs differ, which accounts for {repeat_cost:.1e} of the costs",
        )
        if repeat_cost
        else (),
    )


def _average_costs(
    sums: _CostSums, removed_index: int, states_rounding: float
) -> dict[Measure, list[Cost]]:
    """Return the mean costs of the substitutes by each measure that was taken."""
    rounding = {"states": states_rounding, "divergence": states_rounding**2}
    return {
        key: costs(
            sums.costs[key],
            sums.weights,
            removed_index,
            norm=key == "states",
            rounding=rounding.get(key, 0.0),
        )
        for key in MEASURES
        if key in sums.costs
    }


def _describe_substitutes(
    target: Target, sums: _CostSums, costs_by_measure: Mapping[Measure, list[Cost]]
) -> Iterator[Substitute]:
    """Yield the record of each substitute with its costs."""
    stored_rows = target.substitutes[0].rows
    for index, substitute in enumerate(target.substitutes):
        yield Substitute(
            substitute.name,
            substitute.label,
            substitute.kind,
            substitute.size,
            explained_share(stored_rows, substitute.rows)
            if target.scheme == "table"
            else None,
            {key: cost[index] for key, cost in costs_by_measure.items()},
            *mean_and_error(sums.cka[index]),
            tuple(mean_and_error(share) for share in sums.attention[index].T) or None,
        )


def _undefined_reasons(
    setup: _Setup,
    main: Sequence[Cost],
    *,
    has_loss: bool,
    has_positions: bool,
) -> dict[str, str]:
    """Return why numbers are undefined, by key."""
    n_errors = f"{MIN_COST_STANDARD_ERRORS:.0f}"
    reasons = {
        "loss": "" if has_loss else _explain_missing_loss(setup),
        "kept": ""
        if main[setup.target.removed_index].kept is not None
        else f"removal costs no {n_errors} standard errors, or these are not known",
        "value": "null where outputs are not finite"
        if any(cost.value is None for cost in main)
        else "",
        "cka": "measured of models without a head" if setup.has_head else "",
        "attention": setup.attention_message,
        "early": "" if has_positions else "the outputs have no positions",
    }
    return {key: reason for key, reason in reasons.items() if reason}


def _explain_missing_loss(setup: _Setup) -> str:
    if not setup.has_head:
        return "the model has no head that gives answers"
    if setup.is_random:
        return "random contexts have nothing to predict"
    if setup.task:
        return "which token masks another is not known without a tokenizer"
    return "the head predicts no tokens"


def _main_measure(measures: Iterable[Measure]) -> Measure:
    """Return the most informative measure: the loss, else the divergence, else the states."""
    return min(measures, key=MEASURES.index)


def _squared_norms(states: torch.Tensor) -> Floats:
    return _to_host((widen(states) ** 2).sum(dim=2))


def _to_host(tensor: torch.Tensor) -> Floats:
    return np.asarray(tensor.cpu().numpy(), dtype=np.float64)
