"""What each rule of scaling costs a rotary model at another length: its loss by position."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from posprobe import forward
from posprobe.analyses.substitution import costs
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.loss import TokenLosses, token_losses
from posprobe.forward.models import built_anew
from posprobe.measurements.model.base import Contexts, ModelInputs, read_material
from posprobe.progress import stage
from posprobe.resizing.facts import Cost
from posprobe.resizing.losses import best_of, in_parts
from posprobe.resizing.rotary import RulesCompared, ToldRun
from posprobe.resizing.ways import Floats

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
    material = read_material(reference, model, given, revision=revision, offline=offline)
    inputs = ModelInputs(reference, model, given, material, None, None, 0, revision, offline)

    def losses(name: str, model: Any, length: int) -> TokenLosses:
        with stage(f"Running the model: {name}"):
            batches: Iterable[Array] = inputs.batches("rules of scaling")
            return token_losses(
                model, (batch[:, :length] for batch in batches), mask_token=inputs.mask_token,
                seed=given.seed, name=reference,
            )  # fmt: skip

    before = losses("before", model, compared.training)
    after = {
        rule: losses(rule, scaled(model, scaling, compared), compared.to)
        for rule, scaling in compared.scalings.items()
        if rule in compared.ladders
    }
    by_position = {name: _mean_losses(found) for name, found in {"before": before, **after}.items()}
    cut = len(by_position["before"])
    return ToldRun(
        kind=material.kind, contexts=before.contexts, measure="loss", task=before.task,
        before=_cost(before, by_position["before"], cut),
        ways={rule: _cost(found, by_position[rule], cut) for rule, found in after.items()},
        best=best_of(_differences(after)), length=compared.to, cut=cut, losses=by_position,
    )  # fmt: skip


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
    """Return by how much each rule costs more than the cheapest, over the same contexts."""
    sums = {rule: each.losses.sum(axis=1) for rule, each in found.items()}
    least = min(sums, key=lambda rule: float(sums[rule].sum()))
    weights = next(iter(found.values())).counted.sum(axis=1)
    more = costs(np.stack([each - sums[least] for each in sums.values()]), weights, 0)
    return {rule: (cost.value or 0.0, cost.error) for rule, cost in zip(sums, more, strict=True)}
