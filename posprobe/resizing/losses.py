"""Losses of a model on a text with each way of resizing, or rule of scaling, by position."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from posprobe import forward
from posprobe.analyses.models.experiments import costs
from posprobe.arrays import Array, Floats
from posprobe.errors import UsageError
from posprobe.forward.contexts import context_length
from posprobe.forward.experiments import TokenLosses, token_losses
from posprobe.forward.models import evaluation_mode, rebuild_model
from posprobe.forward.replacements import find_target
from posprobe.measurements.model.contexts import (
    Contexts,
    ModelInputs,
    read_context_source,
)
from posprobe.progress import stage
from posprobe.reference import parse_reference
from posprobe.relations.resized import Cost, Part
from posprobe.resizing.checkpoint import write_checkpoint
from posprobe.resizing.rotary import RulesCompared, ToldRun
from posprobe.tables import PositionTable

#: Difference of two losses, in its standard errors, from which one way counts as better.
MIN_CLEAR_DIFFERENCE_ERRORS = 2.0
#: Number of ranges over which losses are averaged, in the old length and again beyond it.
N_LOSS_RANGES = 2
#: Label of the progress bar of the contexts.
_LABEL = "another size"


def run_ways(
    reference: str,
    resized_tables: Mapping[str, PositionTable],
    contexts: Contexts,
    *,
    tensor: str | None = None,
    grid: tuple[int, ...] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> ToldRun:
    """Run a model with its table resized in each way.

    The checkpoint is copied once at the new size, and the rows of each way are written into the
    parameter of the model that it becomes. The loss is taken by position, at the new length; the
    unchanged model reads the beginning of the same windows.

    Parameters
    ----------
    reference, tensor, grid, revision, offline
        Location of a checkpoint and its table, as for `write_checkpoint`.
    resized_tables
        Tables at the new size by way.
    contexts
        Contexts from a text.

    Raises
    ------
    UsageError
        If the model has no head that predicts tokens, or as for `write_checkpoint` and
        `posprobe.load_model`.
    """
    location: dict[str, Any] = {"revision": revision, "offline": offline}
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "copy"
        first_table = next(iter(resized_tables.values()))
        write_checkpoint(
            reference, first_table, folder, tensor=tensor, grid=grid, **location
        )
        table_name = parse_reference(reference).table
        copy_reference = f"{folder}#{table_name}" if table_name else str(folder)
        before = forward.load_model(reference, head=True, **location)
        after = forward.load_model(copy_reference, head=True)
        used_contexts = replace(
            contexts, length=context_length(after) or len(first_table)
        )
        inputs = _make_inputs(copy_reference, after, used_contexts)
        losses = partial(_measure_losses, inputs, reference)
        unchanged = losses("before", before, context_length(before))
        batch = next(inputs.batches(_LABEL))
        ways = _write_each_table(after, batch, resized_tables, reference)
        return _collect_run(
            inputs,
            unchanged,
            {way: losses(way, after, used_contexts.length) for way in ways},
        )


def _make_inputs(
    name: str, model: Any, contexts: Contexts, **location: Any
) -> ModelInputs:
    context_source = read_context_source(name, model, contexts, **location)
    return ModelInputs(
        name, model, contexts, context_source, None, None, 0, (), None, offline=True
    )


def _measure_losses(
    inputs: ModelInputs, reference: str, name: str, model: Any, length: int | None
) -> TokenLosses:
    """Run a model on the first ``length`` tokens of each window."""
    with stage(f"Running the model: {name}"):
        batches: Iterable[Array] = inputs.batches(_LABEL)
        return token_losses(
            model,
            (batch[:, :length] for batch in batches),
            mask_token=inputs.mask_token,
            seed=inputs.seed,
            name=reference,
        )


def _write_each_table(
    model: Any, batch: Array, resized_tables: Mapping[str, PositionTable], reference: str
) -> Iterator[str]:
    """Write the tables into a model in turn, and yield the name of each way."""
    import torch

    with evaluation_mode(model) as device:
        first_context = torch.as_tensor(batch[:1]).to(device=device)
        target = find_target(
            model,
            first_context,
            explain=False,
            rows=None,
            seed=0,
            tables={way: table.values for way, table in resized_tables.items()},
            title=reference,
        )
    rows = {substitute.name: substitute.rows for substitute in target.substitutes}
    for way in resized_tables:
        target.write(rows[way])
        yield way


def _collect_run(
    inputs: ModelInputs, before: TokenLosses, after: Mapping[str, TokenLosses]
) -> ToldRun:
    """Collect the losses of each way or rule with those of the unchanged model."""
    losses = {
        name: _mean_losses(losses_by_context)
        for name, losses_by_context in {"before": before, **after}.items()
    }
    old_length = len(losses["before"])
    costs_by_way = {
        name: _cost(losses_by_context, losses[name], old_length)
        for name, losses_by_context in after.items()
    }
    return ToldRun(
        kind=inputs.context_source.description,
        contexts=before.contexts,
        task=before.task,
        before=_cost(before, losses["before"], old_length),
        ways=costs_by_way,
        best=_cheapest_ways(after),
        length=inputs.contexts.length or 0,
        cut=old_length,
        losses=losses,
    )


def _average_ranges(losses: Floats, old_length: int) -> tuple[Part, ...]:
    """Average losses over ranges of the old length, and of the positions beyond it."""
    ends = (0, min(old_length, len(losses)), len(losses))
    edges = {
        edge
        for side in pairwise(ends)
        for edge in np.linspace(*side, N_LOSS_RANGES + 1).astype(int)
    }
    return tuple(
        Part(int(start), int(stop) - 1, float(np.nanmean(losses[start:stop])))
        for start, stop in pairwise(sorted(edges))
        if np.isfinite(losses[start:stop]).any()
    )


def _cheapest_ways(losses_by_way: Mapping[str, TokenLosses]) -> tuple[str, ...]:
    """Return the way with the least loss, and those that are not clearly worse.

    A single context has no standard error, so that no way is clearly worse than another.
    """
    sums = {
        way: losses_by_context.losses.sum(axis=1)
        for way, losses_by_context in losses_by_way.items()
    }
    cheapest = min(sums, key=lambda way: float(sums[way].sum()))
    weights = losses_by_way[cheapest].prediction_counts.sum(axis=1)
    extra_costs = costs(
        np.stack([way_sums - sums[cheapest] for way_sums in sums.values()]), weights, 0
    )
    costs_by_way: dict[str, float] = {}
    for way, cost in zip(sums, extra_costs, strict=True):
        value = cost.value or 0.0
        if cost.error is None or value <= MIN_CLEAR_DIFFERENCE_ERRORS * cost.error:
            costs_by_way[way] = value
    return tuple(sorted(costs_by_way, key=costs_by_way.__getitem__))


#: Keys of ``rope_parameters`` that a scaling rule does not change.
_KEPT_ROPE_KEYS = ("rope_theta", "partial_rotary_factor")


def run_rules(
    reference: str,
    rules: RulesCompared,
    contexts: Contexts,
    *,
    revision: str | None = None,
    offline: bool = False,
) -> ToldRun:
    """Run a rotary model on a text at another length, scaled by each rule.

    transformers rebuilds the model from a configuration that names the rule, with the same weights.
    The unchanged model reads the beginning of the same windows, up to its training length.

    Parameters
    ----------
    reference, revision, offline
        Location of the checkpoint, as for `posprobe.load_model`.
    rules
        Comparison of the scaling rules at the new length.
    contexts
        Contexts from a text.

    Raises
    ------
    UsageError
        If the model does not predict tokens of a text, its configuration has no place for a rule
        that transformers would read, or as for `posprobe.load_model`.
    """
    model = forward.load_model(reference, head=True, revision=revision, offline=offline)
    _check_rope_parameters(model, reference)
    used_contexts = replace(contexts, length=rules.to)
    inputs = _make_inputs(
        reference, model, used_contexts, revision=revision, offline=offline
    )
    losses = partial(_measure_losses, inputs, reference)
    before = losses("before", model, rules.training)
    after = {
        rule: losses(rule, rebuild_scaled(model, scaling, rules), rules.to)
        for rule, scaling in rules.scalings.items()
        if rule in rules.ladders
    }
    return _collect_run(inputs, before, after)


def rebuild_scaled(model: Any, scaling: Mapping[str, Any], rules: RulesCompared) -> Any:
    """Rebuild a rotary model of transformers from a configuration that names a scaling rule.

    Parameters
    ----------
    model
        Rotary model of transformers.
    scaling
        Rule and its numbers, as ``rope_parameters`` states them.
    rules
        Comparison with both lengths, and the configuration's own rule.
    """
    if scaling is rules.record.scaling:
        return model
    config = copy.deepcopy(model.config)
    rope_parameters = config.rope_parameters
    config.rope_parameters = {
        "rope_type": "default",
        **{
            key: rope_parameters[key] for key in _KEPT_ROPE_KEYS if key in rope_parameters
        },
        **scaling,
    }
    # NTK-aware scaling depends on how far the context exceeds the stated length.
    is_dynamic = scaling.get("rope_type") == "dynamic"
    config.max_position_embeddings = rules.training if is_dynamic else rules.to
    return rebuild_model(model, config)


def _check_rope_parameters(model: Any, reference: str) -> None:
    """Refuse a configuration that cannot name one scaling rule for the whole model."""
    rope_parameters = getattr(getattr(model, "config", None), "rope_parameters", None)
    if not isinstance(rope_parameters, Mapping) or "rope_type" not in rope_parameters:
        reason = (
            "several ladders of rotations" if rope_parameters else "no rope_parameters"
        )
        raise UsageError(
            f"{reference}: the configuration of {type(model).__name__} has "
            f"{reason}, so that no rule of scaling can be given to it as a "
            "whole. Leave out `text`."
        )


def _mean_losses(losses_by_context: TokenLosses) -> Floats:
    """Return the mean loss at each position, NaN if no token there is predicted."""
    count = losses_by_context.prediction_counts.sum(axis=0)
    total = losses_by_context.losses.sum(axis=0)
    mean = np.full(len(count), np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def _cost(losses_by_context: TokenLosses, losses: Floats, old_length: int) -> Cost:
    (mean,) = costs(
        losses_by_context.losses.sum(axis=1)[None],
        losses_by_context.prediction_counts.sum(axis=1),
        0,
    )
    return Cost(mean.value or 0.0, mean.error, _average_ranges(losses, old_length))
