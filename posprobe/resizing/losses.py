"""What each way of resizing, or rule of scaling, costs the model.

Of a text it is the loss by position, of pictures how often answers stay the same.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe import forward
from posprobe.analyses.models.experiments import costs
from posprobe.arrays import Array, Floats
from posprobe.errors import UsageError
from posprobe.forward.contexts import context_length
from posprobe.forward.experiments import TokenLosses, outputs_of, token_losses
from posprobe.forward.models import built_anew, evaluation_mode
from posprobe.forward.replacements import find_target
from posprobe.layouts import Grid, Layout
from posprobe.measurements.model.contexts import Contexts, ModelInputs, read_material
from posprobe.progress import stage
from posprobe.reference import parse_reference
from posprobe.resizing.checkpoint import write_checkpoint
from posprobe.resizing.facts import Cost, Part
from posprobe.resizing.rotary import RulesCompared, ToldRun
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    import torch


#: Standard errors of both by which one way must be better than another.
SURE = 2.0
#: Ranges of positions over which losses are averaged: so many in the old length and in the rest.
PARTS = 2
_PREPARES = "preprocessor_config.json"
#: What contexts are run for, before the bar that shows how far the run is.
_LABEL = "another size"


def run_ways(
    reference: str,
    table: PositionTable,
    made: Mapping[str, PositionTable],
    contexts: Contexts,
    *,
    tensor: str | None = None,
    grid: tuple[int, int] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> ToldRun:
    """Run a model with its table resized in each way.

    The checkpoint is copied once at the new size, and the rows of each way are written into the
    parameter of the model that it becomes. On a text the loss is taken by position, at the new
    length; the unchanged model reads the beginning of the same windows. Of pictures, prepared at
    the new size, those count whose top answer is that of the unchanged model at its own size.

    Parameters
    ----------
    reference, tensor, grid, revision, offline
        Of a checkpoint and its table, as for `write_checkpoint`.
    table
        As it is.
    made
        By way, at the new size.
    contexts
        With a text or a folder of pictures.

    Raises
    ------
    UsageError
        If the model has no head that predicts tokens or names classes, or as for
        `write_checkpoint` and `posprobe.load_model`.
    """
    where: dict[str, Any] = {"revision": revision, "offline": offline}
    with TemporaryDirectory() as place:
        folder = Path(place) / "copy"
        first = next(iter(made.values()))
        write_checkpoint(reference, first, folder, tensor=tensor, grid=grid, **where)
        part = parse_reference(reference).table
        copy = f"{folder}#{part}" if part else str(folder)
        if contexts.images:
            _prepare_at(folder / _PREPARES, table.layout, first.layout)
        before = forward.load_model(reference, head=True, **where)
        after = forward.load_model(copy, head=True)
        if contexts.images:
            return _on_pictures(reference, copy, before, after, made, contexts, where)
        given = replace(contexts, length=context_length(after) or len(first))
        inputs = _inputs(copy, after, given)
        losses = partial(_losses, inputs, reference)
        unchanged = losses("before", before, context_length(before))
        batch = next(inputs.batches(_LABEL))
        ways = _written(after, batch, made, reference)
        return _told(inputs, unchanged, {how: losses(how, after, given.length) for how in ways})


def _inputs(name: str, model: Any, contexts: Contexts, **where: Any) -> ModelInputs:
    material = read_material(name, model, contexts, **where)
    return ModelInputs(name, model, contexts, material, None, None, 0, None, offline=True)


def _losses(
    inputs: ModelInputs, reference: str, name: str, model: Any, length: int | None
) -> TokenLosses:
    """Run a model on the beginning of each window, so many tokens of it."""
    with stage(f"Running the model: {name}"):
        batches: Iterable[Array] = inputs.batches(_LABEL)
        return token_losses(
            model, (batch[:, :length] for batch in batches), mask_token=inputs.mask_token,
            seed=inputs.seed, name=reference,
        )  # fmt: skip


def _written(
    model: Any, batch: Array, made: Mapping[str, PositionTable], reference: str
) -> Iterator[str]:
    """Write the table of each way into a model, one after the other, and name it."""
    with evaluation_mode(model) as device:
        target = find_target(
            model, _tensor(batch[:1], device, model), explain=False, rows=None, seed=0,
            tables={how: table.values for how, table in made.items()}, title=reference,
        )  # fmt: skip
    rows = {each.name: each.rows for each in target.substitutes}
    for how in made:
        target.write(rows[how])
        yield how


def _told(inputs: ModelInputs, before: TokenLosses, after: Mapping[str, TokenLosses]) -> ToldRun:
    """Set the losses of each way or rule beside those of the unchanged model."""
    losses = {name: _mean_losses(found) for name, found in {"before": before, **after}.items()}
    cut = len(losses["before"])
    return ToldRun(
        kind=inputs.material.kind, contexts=before.contexts, measure="loss", task=before.task,
        before=_cost(before, losses["before"], cut),
        ways={name: _cost(found, losses[name], cut) for name, found in after.items()},
        best=best_of(_differences(after)), length=inputs.contexts.length or 0, cut=cut,
        losses=losses,
    )  # fmt: skip


def in_parts(losses: Floats, cut: int) -> tuple[Part, ...]:
    """Average losses over parts of the old length, and of what is beyond."""
    edges = {len(losses), *np.linspace(0, min(cut, len(losses)), PARTS + 1).astype(int).tolist()}
    if len(losses) > cut:
        edges |= {*np.linspace(cut, len(losses), PARTS + 1).astype(int).tolist()}
    ordered = sorted(edges)
    return tuple(
        Part(first, stop - 1, float(np.nanmean(losses[first:stop])))
        for first, stop in pairwise(ordered)
        if np.isfinite(losses[first:stop]).any()
    )


def best_of(found: Mapping[str, tuple[float, float | None]]) -> tuple[str, ...]:
    """Return the way that costs least, and those that cannot be told from it.

    Without standard errors, those of a single context, none can.
    """
    errors = {how: np.inf if error is None else error for how, (_, error) in found.items()}
    costs = {how: value for how, (value, _) in found.items()}
    least = min(costs, key=lambda how: costs[how])
    near = [
        (value, how)
        for how, value in costs.items()
        if how == least or value - costs[least] <= SURE * (errors[least] + errors[how])
    ]
    return tuple(how for _, how in sorted(near))


def _on_pictures(
    reference: str,
    copy: str,
    before: Any,
    after: Any,
    made: Mapping[str, PositionTable],
    contexts: Contexts,
    where: Mapping[str, Any],
) -> ToldRun:
    def pictures(name: str, model: Any, **where: Any) -> Iterable[Array]:
        return _inputs(name, model, contexts, **where).batches(_LABEL)

    wanted = np.concatenate(_answers(reference, before, pictures(reference, before, **where)))
    # Pictures are prepared once, and shown with each table.
    prepared = list(pictures(copy, after))
    ways: dict[str, Cost] = {}
    for how in _written(after, prepared[0], made, reference):
        same = np.concatenate(_answers(reference, after, prepared)) == wanted
        # One more picture of either kind: a few that all agree do not show that every one does.
        share = (same.sum() + 1) / (len(same) + 2)
        error = float(np.sqrt(share * (1 - share) / len(same)))
        ways[how] = Cost(float(same.mean()), error)
    return ToldRun(
        kind=f"the pictures in {contexts.images}", contexts=len(wanted), measure="agreement",
        task=None, before=None, ways=ways,
        best=best_of({how: (-way.value, way.error) for how, way in ways.items()}),
    )  # fmt: skip


def _answers(reference: str, model: Any, batches: Iterable[Array]) -> list[Any]:
    """Return the top answer to each picture."""
    found = []
    with evaluation_mode(model) as device:
        for batch in batches:
            logits = outputs_of(model, _tensor(batch, device, model))
            if logits is None:
                raise UsageError(
                    f"{reference}: {type(model).__name__} names no classes, so that its answers "
                    "cannot be compared. Leave out --images."
                )
            found.append(logits[:, 0].argmax(dim=1).cpu().numpy())
    return found


def _tensor(batch: Array, device: Any, model: Any) -> torch.Tensor:
    import torch

    given = torch.as_tensor(batch).to(device=device)
    return given.to(next(model.parameters()).dtype) if given.is_floating_point() else given


def _prepare_at(path: Path, old: Layout, new: Layout) -> None:
    """Have pictures prepared at the new size, where a file beside the copy states the old one."""
    if not path.is_file() or not isinstance(old, Grid) or not isinstance(new, Grid):
        return
    factors = {"height": new.height / old.height, "width": new.width / old.width}
    settings = json.loads(path.read_text(encoding="utf-8"))
    for key in ("size", "crop_size"):
        sizes = settings.get(key)
        if isinstance(sizes, int):
            sizes = {"height": sizes, "width": sizes}
        if isinstance(sizes, dict) and sizes.keys() >= {"height", "width"}:
            settings[key] = {side: round(sizes[side] * factors[side]) for side in factors}
        elif isinstance(sizes, dict) and "shortest_edge" in sizes:
            settings[key] = {"shortest_edge": round(sizes["shortest_edge"] * max(factors.values()))}
    path.write_text(json.dumps(settings), encoding="utf-8")


#: What a rule leaves as it is in a configuration.
_KEPT = ("rope_theta", "partial_rotary_factor")


def run_rules(
    reference: str,
    compared: RulesCompared,
    contexts: Contexts,
    *,
    revision: str | None = None,
    offline: bool = False,
) -> ToldRun:
    """Run a rotary model on a text at another length, scaled by each rule.

    transformers builds the model anew from a configuration that names the rule, with the same
    weights. The unchanged model reads the beginning of the same windows, as long as in training.

    Parameters
    ----------
    reference, revision, offline
        Of the checkpoint, as for `posprobe.load_model`.
    compared
        Its rules at the new length.
    contexts
        With a text.

    Raises
    ------
    UsageError
        If the model predicts no tokens of a text, its configuration names no rule that
        transformers would read, or as for `posprobe.load_model`.
    """
    model = forward.load_model(reference, head=True, revision=revision, offline=offline)
    _check(model, reference)
    given = replace(contexts, length=compared.to)
    inputs = _inputs(reference, model, given, revision=revision, offline=offline)
    losses = partial(_losses, inputs, reference)
    before = losses("before", model, compared.training)
    after = {
        rule: losses(rule, scaled(model, scaling, compared), compared.to)
        for rule, scaling in compared.scalings.items()
        if rule in compared.ladders
    }
    return _told(inputs, before, after)


def scaled(model: Any, scaling: Mapping[str, Any], compared: RulesCompared) -> Any:
    """Build a rotary model anew, by transformers, from a configuration that names a rule.

    Parameters
    ----------
    model
        Of transformers.
    scaling
        The rule and its numbers, as ``rope_parameters`` states them.
    compared
        Both lengths, and the configuration's own rule.
    """
    if scaling is compared.record.scaling:
        return model
    config = copy.deepcopy(model.config)
    stated = config.rope_parameters
    config.rope_parameters = {
        "rope_type": "default",
        **{key: stated[key] for key in _KEPT if key in stated},
        **scaling,
    }
    # NTK-aware scaling follows from the length of the text beyond the one that is stated.
    dynamic = scaling.get("rope_type") == "dynamic"
    config.max_position_embeddings = compared.training if dynamic else compared.to
    return built_anew(model, config)


def _check(model: Any, reference: str) -> None:
    """Refuse a configuration in which no rule can be named for the whole model."""
    stated = getattr(getattr(model, "config", None), "rope_parameters", None)
    if not isinstance(stated, Mapping) or "rope_type" not in stated:
        why = "several ladders of rotations" if stated else "no rope_parameters"
        raise UsageError(
            f"{reference}: the configuration of {type(model).__name__} has {why}, so that no rule "
            "of scaling can be given to it as a whole. Leave out --text."
        )


def _mean_losses(found: TokenLosses) -> Floats:
    """Return the mean loss at each position, NaN where nothing is predicted."""
    count = found.counted.sum(axis=0)
    total = found.losses.sum(axis=0)
    mean = np.full(len(count), np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def _cost(found: TokenLosses, losses: Floats, cut: int) -> Cost:
    (mean,) = costs(found.losses.sum(axis=1)[None], found.counted.sum(axis=1), 0)
    return Cost(mean.value or 0.0, mean.error, in_parts(losses, cut))


def _differences(found: Mapping[str, TokenLosses]) -> dict[str, tuple[float, float | None]]:
    """Return how much more each costs than the cheapest, over the same contexts."""
    sums = {rule: each.losses.sum(axis=1) for rule, each in found.items()}
    least = min(sums, key=lambda rule: float(sums[rule].sum()))
    weights = next(iter(found.values())).counted.sum(axis=1)
    more = costs(np.stack([each - sums[least] for each in sums.values()]), weights, 0)
    return {rule: (cost.value or 0.0, cost.error) for rule, cost in zip(sums, more, strict=True)}
