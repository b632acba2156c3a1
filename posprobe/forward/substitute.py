"""Explanations put to the test: the model runs with what they keep of its table in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from posprobe.analyses.models.experiments import (
    CERTAIN,
    MEASURES,
    Cost,
    Measure,
    Substitute,
    SubstitutionEffect,
    by_position,
    costs,
    early,
    mean_and_error,
)
from posprobe.analyses.tables.closeness import debiased_cka
from posprobe.arrays import Array, Floats, Sums
from posprobe.errors import UsageError
from posprobe.forward.averages import Distances, added_up, find_distances, step_by_step
from posprobe.forward.contexts import stream
from posprobe.forward.losses import AT_A_TIME, outputs_of, predicted, prediction
from posprobe.forward.models import load_model, required
from posprobe.forward.replacements import Target, explained, find_target
from posprobe.forward.running import LAST, final_states, refuse_overflow, wide
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

    What an explanation keeps of a table is enough for the model where its outputs stay: the loss of
    the next or of masked tokens, the Kullback-Leibler divergence of the outputs from those of the
    unchanged model and the top answers where it has a head, else its last hidden states; and how
    far attention goes, where the model shows it. Each context is run once as it is and once with
    each explanation. The table is restored, also after an error, and rows of special tokens are
    left as they are.

    Parameters
    ----------
    model
        A model of transformers or timm, with one learned table of positions; or a reference, which
        is loaded with its head.
    batches
        As for `decompose`.
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
        If the model has no table of its own or several, it cannot be told which of its rows are
        positions, or a further table has another shape.
    InvalidTable
        If the unchanged model's outputs are not finite.

    Examples
    --------
    This needs the extra `models`. In the place of the whole table stands its own value, which
    changes nothing; three components are not enough:

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
    ready: list[_Ready] = []
    shown, hidden = ExitStack(), ""

    def measure(batch: torch.Tensor, sums: Mapping[int, _Sums]) -> dict[int, _Sums]:
        if not ready:
            target = find_target(
                model, batch, tables=tables or {}, rows=rows, explain=explain, seed=seed,
                title=title,
            )  # fmt: skip
            asked = _Ready(target, mask_token, seed, title, hidden, random=random)
            ready.append(_prepared(model, batch, asked))
        return {0: _run(model, batch, ready[0], sums[0].contexts if sums else 0)}

    with shown:
        try:
            shown.enter_context(step_by_step(model, title))
        except UsageError as error:
            hidden = str(error)
        sums, stopped = stream(model, batches, measure, title)
    return _result(sums[0], ready[0], stopped=stopped)


@dataclass(frozen=True, eq=False)
class _Ready:
    """What is put where, and what is looked at."""

    target: Target
    mask_token: int | None
    seed: int
    title: str
    hidden: str  # why there are no distances
    random: bool
    head: bool = False
    task: str = ""
    rounding: float = 0.0
    distances: Distances | None = None


@dataclass(frozen=True, eq=False)
class _Sums(Sums):
    """Costs by context, added up over positions, and by position, added up over contexts."""

    axes: ClassVar[Mapping[str, int]] = {
        "costs": 1, "weights": 0, "cka": 1, "attention": 1, "losses": 0,
    }  # fmt: skip

    costs: Mapping[Measure, Floats]  # [m, c]
    weights: Floats  # [c]
    cka: Floats  # [m, c]
    attention: Floats  # [m, c, ranges]
    losses: Floats  # [c]: of the unchanged model
    places: Floats  # [2, m, t]: the main cost, and its square
    counted: Floats  # [3, t]: weights, contexts that have one, and the unchanged model's losses

    @property
    def contexts(self) -> int:
        """How many were run."""
        return len(self.weights)


def _prepared(model: Any, batch: torch.Tensor, asked: _Ready) -> _Ready:
    """Find out what is to be looked at."""
    head = outputs_of(model, batch[:1]) is not None
    nothing = asked.random or batch.ndim != 2 or not head
    task = "" if nothing else predicted(model, batch, asked.title)
    eps = float(required("torch").finfo(next(model.parameters()).dtype).eps)
    ready = replace(asked, head=head, task=task, rounding=8 * eps)
    if asked.hidden:
        return ready
    try:
        return replace(ready, distances=find_distances(model, batch))
    except UsageError as error:
        return replace(ready, hidden=str(error))


def _run(model: Any, batch: torch.Tensor, ready: _Ready, done: int) -> _Sums:
    """Run a batch as it is and with every substitute, one after the other."""
    target = ready.target
    given, wanted = prediction(ready.task, batch, ready.mask_token, ready.seed, done)
    before = _looked_at(model, given, head=ready.head)
    weights, losses = _unchanged(before, wanted, head=ready.head)
    for numbers in (weights, losses):
        part = required("torch").as_tensor(numbers)
        refuse_overflow(model, part, "the outputs" if ready.head else LAST, ready.title, done)
    costs: list[dict[Measure, Floats]] = []
    cka = np.full((len(target.substitutes), len(batch)), np.nan)
    attention: list[Floats] = []
    with target.held():
        for number, substitute in enumerate(target.substitutes):
            target.write(substitute.rows)
            with added_up(ready.distances) as shares:
                after = _looked_at(model, given, head=ready.head)
            attention.append(shares(len(batch)))
            if ready.head:
                costs.append(_answers(before, after, wanted))
                if wanted is not None:
                    costs[-1]["loss"] -= losses
            else:
                costs.append({"states": _squared(wide(after) - wide(before))})
                cka[number] = _alike(before, after)
    return _summed(costs, weights, cka, np.stack(attention), losses)


def _looked_at(model: Any, batch: torch.Tensor, *, head: bool) -> torch.Tensor:
    found = outputs_of(model, batch) if head else None
    return final_states(model, batch) if found is None else found


def _unchanged(
    before: torch.Tensor, wanted: torch.Tensor | None, *, head: bool
) -> tuple[Floats, Floats]:
    """Return ``[b, t]`` what each position counts, and its loss: 0 where there is none.

    Where outputs are not finite one of both is not.
    """
    if not head:
        squares = _squared(before)
        return squares, np.zeros_like(squares)
    found = _answers(before, before, wanted)
    counted = np.ones(before.shape[:2]) if wanted is None else _host(wanted != -100)
    counted = np.where(np.isfinite(found["divergence"]), counted, np.nan)
    return counted, found.get("loss", np.zeros_like(counted))


def _answers(
    before: torch.Tensor, after: torch.Tensor, wanted: torch.Tensor | None
) -> dict[Measure, Floats]:
    """Compare logits ``[b, t, v]``: numbers of each position ``[b, t]``, 0 where none is counted.

    The loss is that of ``after``.
    """
    pt = required("torch")
    shape = before.shape[:2]
    places = pt.ones(shape, dtype=pt.bool) if wanted is None else (wanted != -100).cpu()
    at = places.reshape(-1).nonzero()[:, 0].to(before.device)
    found: dict[Measure, Floats] = {
        key: np.zeros(shape[0] * shape[1]) for key in ("divergence", "answers")
    }
    if wanted is not None:
        found["loss"] = np.zeros(shape[0] * shape[1])
    for some in at.split(max(1, AT_A_TIME // before.shape[2])):
        one, two = (
            wide(part.reshape(-1, part.shape[2])[some]).log_softmax(dim=1)
            for part in (before, after)
        )
        apart = pt.where(one.isneginf(), 0.0, one.exp() * (one - two)).sum(dim=1)
        place = some.cpu().numpy()
        # Of one and the same outputs it is 0, and never below.
        found["divergence"][place] = np.maximum(_host(apart), 0.0)
        changed = _host(one.argmax(dim=1) != two.argmax(dim=1))
        found["answers"][place] = np.where(np.isnan(_host(apart)), np.nan, changed)
        if wanted is not None:
            right = wanted.reshape(-1).to(some.device)[some, None]
            found["loss"][place] = -_host(two.gather(1, right)[:, 0])
    return {key: part.reshape(shape) for key, part in found.items()}


def _alike(before: torch.Tensor, after: torch.Tensor) -> Floats:
    """Return the debiased CKA of each context's states ``[b, t, d]``, NaN where undefined."""
    found = np.full(len(before), np.nan)
    if before.shape[1] < 4:
        return found
    for place, both in enumerate(zip(before, after, strict=True)):
        one, two = (wide(part) - wide(part).mean(dim=0) for part in both)
        grams = [part @ part.T for part in (one, two)]
        sums = [float((a * b).sum()) for a, b in ((*grams,), grams[:1] * 2, grams[1:] * 2)]
        if all(map(np.isfinite, sums)):
            power = _host(grams[0].diagonal()), _host(grams[1].diagonal())
            value = debiased_cka(sums[0], (sums[1], sums[2]), power)
            found[place] = np.nan if value is None else value
    return found


def _summed(
    costs: list[dict[Measure, Floats]],
    weight: Floats,
    cka: Floats,
    attention: Floats,
    losses: Floats,
) -> _Sums:
    """Add up over positions, and over contexts."""
    stacked = {key: np.stack([each[key] for each in costs]) for key in costs[0]}
    # What overflowed is not a number, and shall not warn where it is added up.
    stacked = {key: np.where(np.isfinite(part), part, np.nan) for key, part in stacked.items()}
    main = stacked[_main(stacked)]
    return _Sums(
        {key: part.sum(axis=2) for key, part in stacked.items()},
        weight.sum(axis=1),
        cka,
        attention,
        losses.sum(axis=1),
        np.stack([main.sum(axis=1), np.square(main).sum(axis=1)]),
        np.stack([part.sum(axis=0) for part in (weight, weight > 0, losses)]),
    )


def _result(sums: _Sums, ready: _Ready, *, stopped: bool) -> SubstitutionEffect:
    target = ready.target
    removed = [each.name for each in target.substitutes].index(target.removed)
    main = _main(sums.costs)
    rounding = {"states": ready.rounding, "divergence": ready.rounding**2}
    found = {
        key: costs(
            sums.costs[key], sums.weights, removed, norm=key == "states",
            rounding=rounding.get(key, 0.0),
        )
        for key in MEASURES
        if key in sums.costs
    }  # fmt: skip
    with_loss = main == "loss" and bool(sums.weights.any())
    losses_of = costs(sums.costs["loss"] + sums.losses, sums.weights, 0) if with_loss else None
    whole = losses_of[0] if losses_of else Cost(None, None, None, None)
    weight, count, losses = sums.counted
    along = by_position(sums.places, weight, count, norm=main == "states")
    there = len(weight) > 1
    placed = there and main != "states"
    again = found[main][0].value
    return SubstitutionEffect(
        substitutes=tuple(_substitutes(target, sums, found, losses_of)),
        measure=main,
        removed=target.removed,
        contexts=sums.contexts,
        seed=ready.seed,
        table=target.path,
        scheme=target.scheme,
        layout=target.layout,
        start=target.start,
        task=ready.task,
        loss=whole.value,
        loss_error=whole.error,
        by_position=along[0] if there else None,
        by_position_error=along[1] if placed else None,
        unchanged=losses / np.where(count > 0, count, np.nan) if with_loss else None,
        early=early(sums.places[0, removed], weight)
        if placed and not isinstance(target.layout, Grid) else None,
        distances=ready.distances.first if ready.distances else None,
        undefined=_reasons(ready, found[main], removed, with_loss=with_loss, there=there),
        stopped=stopped,
        notes=(f"repeated runs differ, which accounts for {again:.1e} of the costs",)
        if again else (),
    )  # fmt: skip


def _substitutes(
    target: Target,
    sums: _Sums,
    found: Mapping[Measure, list[Cost]],
    losses: list[Cost] | None,
) -> Iterator[Substitute]:
    """Say of each substitute what it costs."""
    own = target.substitutes[0].rows
    for place, each in enumerate(target.substitutes):
        yield Substitute(
            each.name, each.label, each.kind, each.size,
            explained(own, each.rows) if target.scheme == "table" else None,
            {key: cost[place] for key, cost in found.items()},
            *mean_and_error(sums.cka[place]),
            tuple(mean_and_error(share) for share in sums.attention[place].T) or None,
            losses[place] if losses else None,
        )  # fmt: skip


def _reasons(
    ready: _Ready, main: Sequence[Cost], removed: int, *, with_loss: bool, there: bool
) -> dict[str, str]:
    """Say why numbers are undefined."""
    found: dict[str, str] = {}
    if not with_loss:
        found["loss"] = "no loss was measured: " + (
            "the model has no head that gives answers" if not ready.head
            else "random contexts have nothing to predict" if ready.random
            else "which token masks another is not known without a tokenizer" if ready.task
            else "its head predicts no tokens"
        )  # fmt: skip
    if main[removed].value is None:
        found["kept"] = "the outputs are not finite then"
    elif main[removed].error is None:
        found["kept"] = "a single context has no spread to tell that from chance by"
    elif main[removed].kept is None:
        found["kept"] = (
            f"the model does better so, by {CERTAIN:.0f} standard errors or more"
            if main[removed].is_gain
            else "no difference can be told, since that is less than "
            f"{CERTAIN:.0f} standard errors, or the model's rounding"
        )
    if any(cost.value is None for cost in main):
        found["value"] = "null where outputs are not finite"
    if ready.head:
        found["cka"] = "measured of models without a head"
    if ready.hidden:
        found["attention"] = ready.hidden
    if not there:
        found["early"] = "the outputs have no positions"
    return found


def _main(measures: Iterable[Measure]) -> Measure:
    """Return the measure that tells most: the loss, else the divergence, else the states."""
    return min(measures, key=MEASURES.index)


def _squared(states: torch.Tensor) -> Floats:
    return _host((wide(states) ** 2).sum(dim=2))


def _host(part: torch.Tensor) -> Floats:
    return np.asarray(part.cpu().numpy(), dtype=np.float64)
