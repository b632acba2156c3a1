"""Explanations put to the test: the model runs with what they keep of its table in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from posprobe.analyses.descriptive.closeness import cka
from posprobe.analyses.linear import displacements
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
from posprobe.arrays import Array, Floats, Sums
from posprobe.errors import InvalidTable, UsageError
from posprobe.forward.averages import step_by_step
from posprobe.forward.contexts import stream
from posprobe.forward.experiments import AT_A_TIME, outputs_of, predicted, prediction
from posprobe.forward.models import load_model, required
from posprobe.forward.replacements import Target, explained, find_target
from posprobe.forward.running import (
    LAST,
    HookPoint,
    final_states,
    find_hook_points,
    positions_of,
    refuse_overflow,
    seen_at,
    visit,
    wide,
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
    hidden = ""

    def measure(batch: torch.Tensor, done: int, _: object) -> dict[int, _Sums]:
        if not ready:
            target = find_target(
                model, batch, tables=tables or {}, rows=rows, explain=explain, seed=seed,
                title=title,
            )  # fmt: skip
            ready.append(_prepared(model, batch, target, hidden, random=random, title=title))
        given, wanted = prediction(ready[0].task, batch, mask_token, seed, done)
        return {0: _run(model, given, wanted, done, ready[0], title)}

    with ExitStack() as shown:
        try:
            shown.enter_context(step_by_step(model, title))
        except UsageError as error:
            hidden = str(error)
        sums, stopped = stream(model, batches, measure, title)
    return _result(sums[0], ready[0], seed, stopped=stopped)


@dataclass(frozen=True, eq=False)
class Distances:
    """Where attention is seen, and which pairs of positions are at which distance.

    Parameters
    ----------
    points
        Result of `find_hook_points`.
    first
        The first distance of each range: 0, 1, 2, 4, 8 and so on.
    ranges
        ``[n, n]``: of each query and key the range; one more where the pair is not counted.
    """

    points: Sequence[HookPoint]
    first: tuple[int, ...]
    ranges: torch.Tensor

    def shares(self, weights: torch.Tensor) -> torch.Tensor:
        """Add attention ``[c, heads, m, m]`` up by range, in the mean over heads and queries."""
        size = len(self.ranges)
        mean = wide(weights[:, :, -size:, -size:].mean(dim=1)).flatten(1)
        into = mean.new_zeros((len(weights), len(self.first) + 1))
        return into.index_add_(1, self.ranges.flatten().to(mean.device), mean).cpu() / size


def find_distances(model: Any, batch: torch.Tensor) -> Distances:
    """Find where a model's attention can be seen.

    On a grid the distance is the larger of those along rows and columns. In a sequence attention to
    the first position is not counted: what many heads pay to it, wherever they are, is no
    preference for a distance.

    Raises
    ------
    UsageError
        If it shows none that goes from every token to every token, layer by layer.
    """
    points = find_hook_points(model, batch, "attentions")
    if not points:
        raise UsageError("its attention is seen at the end of a run alone")
    shapes: set[tuple[int, ...]] = set()
    visit(model, batch[:1], points, "attentions", lambda _, part: shapes.add(tuple(part.shape[2:])))
    tokens = next(iter(shapes))[-1]
    if shapes != {(tokens, tokens)}:
        raise UsageError("its attention is not from every token to every token")
    layout = positions_of(model, batch, tokens)
    distance = np.maximum(*displacements(layout.height, layout.width))
    first = (0, *(2**k for k in range(int(distance.max()).bit_length())))
    ranges = np.searchsorted(first, distance, side="right") - 1
    if not isinstance(layout, Grid):
        ranges[:, 0] = len(first)
    return Distances(points, first, required("torch").as_tensor(ranges, device=batch.device))


@dataclass(frozen=True, eq=False)
class _Ready:
    """What is put where, and what is looked at."""

    target: Target
    head: bool
    task: str
    random: bool
    rounding: float
    distances: Distances | None
    hidden: str  # why there are no distances


@dataclass(frozen=True, eq=False)
class _Sums(Sums):
    """Costs by context, added up over positions, and by position, added up over contexts."""

    context_axes: ClassVar[Mapping[str, int]] = {
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


def _prepared(
    model: Any, batch: torch.Tensor, target: Target, hidden: str, *, random: bool, title: str
) -> _Ready:
    """Find out what is to be looked at."""
    head = outputs_of(model, batch[:1]) is not None
    predicts = head and not random and batch.ndim == 2
    distances = None
    try:
        distances = None if hidden else find_distances(model, batch)
    except UsageError as error:
        hidden = str(error)
    return _Ready(
        target, head, predicted(model, batch, title) if predicts else "", random,
        8 * float(required("torch").finfo(next(model.parameters()).dtype).eps), distances, hidden,
    )  # fmt: skip


def _run(
    model: Any,
    batch: torch.Tensor,
    wanted: torch.Tensor | None,
    done: int,
    ready: _Ready,
    title: str,
) -> _Sums:
    """Run a batch as it is and with every substitute, one after the other."""
    target = ready.target
    before, _ = _looked_at(model, batch, ready)
    weights, losses = _unchanged(before, wanted, head=ready.head)
    for numbers in (weights, losses):
        part = required("torch").as_tensor(numbers)
        refuse_overflow(model, part, "the outputs" if ready.head else LAST, title, done)
    found: list[dict[Measure, Floats]] = []
    likeness = np.full((len(target.substitutes), len(batch)), np.nan)
    attention: list[Floats] = []
    with target.held():
        for number, substitute in enumerate(target.substitutes):
            target.write(substitute.rows)
            after, shares = _looked_at(model, batch, ready)
            attention.append(shares)
            if ready.head:
                found.append(_answers(before, after, wanted))
                if wanted is not None:
                    found[-1]["loss"] -= losses
            else:
                found.append({"states": _squared(wide(after) - wide(before))})
                likeness[number] = _alike(before, after)
    stacked = {key: np.stack([each[key] for each in found]) for key in found[0]}
    # What overflowed is not a number, and shall not warn where it is added up.
    stacked = {key: np.where(np.isfinite(part), part, np.nan) for key, part in stacked.items()}
    main = stacked[_main(stacked)]
    return _Sums(
        {key: part.sum(axis=2) for key, part in stacked.items()},
        weights.sum(axis=1),
        likeness,
        np.stack(attention),
        losses.sum(axis=1),
        np.stack([main.sum(axis=1), np.square(main).sum(axis=1)]),
        np.stack([part.sum(axis=0) for part in (weights, weights > 0, losses)]),
    )


def _looked_at(model: Any, batch: torch.Tensor, ready: _Ready) -> tuple[torch.Tensor, Floats]:
    """Run a model, and return a head's answers, or the last states, and where attention went.

    For each context that is the share of the attention of positions that goes to each range of
    distances, in the mean over heads and layers: ``[c, ranges]``; no range where none is seen.
    """
    sums: list[torch.Tensor] = []
    distances = ready.distances

    def look(_: int, weights: torch.Tensor) -> None:
        if distances:
            sums.append(distances.shares(weights))

    with seen_at(distances.points if distances else (), look):
        found = outputs_of(model, batch) if ready.head else None
        found = final_states(model, batch) if found is None else found
    if not sums:
        return found, np.zeros((len(batch), 0))
    return found, _host(required("torch").stack(sums).mean(dim=0)[:, :-1])


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
    for place, (one, two) in enumerate(zip(before, after, strict=True)):
        with suppress(InvalidTable):  # states are not finite, all alike, or fewer than four
            found[place] = cka(_host(wide(one)), _host(wide(two)))
    return found


def _result(sums: _Sums, ready: _Ready, seed: int, *, stopped: bool) -> SubstitutionEffect:
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
    unknown = [Cost(None, None, None, None)]
    (whole,) = costs(sums.losses[None], sums.weights, 0) if with_loss else unknown
    weight, count, losses = sums.counted
    along = by_position(sums.places, weight, count, norm=main == "states")
    there = len(weight) > 1
    placed = there and main != "states"
    again = found[main][0].value
    return SubstitutionEffect(
        substitutes=tuple(_substitutes(target, sums, found)),
        measure=main,
        removed=target.removed,
        contexts=sums.contexts,
        seed=seed,
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
    target: Target, sums: _Sums, found: Mapping[Measure, list[Cost]]
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
        )  # fmt: skip


def _reasons(
    ready: _Ready, main: Sequence[Cost], removed: int, *, with_loss: bool, there: bool
) -> dict[str, str]:
    """Say why numbers are undefined."""
    reasons = {
        "loss": "" if with_loss else _without_loss(ready),
        "kept": "" if main[removed].kept is not None
        else f"removal costs no {CERTAIN:.0f} standard errors, or these are not known",
        "value": "null where outputs are not finite"
        if any(cost.value is None for cost in main) else "",
        "cka": "measured of models without a head" if ready.head else "",
        "attention": ready.hidden,
        "early": "" if there else "the outputs have no positions",
    }  # fmt: skip
    return {key: why for key, why in reasons.items() if why}


def _without_loss(ready: _Ready) -> str:
    if not ready.head:
        return "the model has no head that gives answers"
    if ready.random:
        return "random contexts have nothing to predict"
    if ready.task:
        return "which token masks another is not known without a tokenizer"
    return "the head predicts no tokens"


def _main(measures: Iterable[Measure]) -> Measure:
    """Return the measure that tells most: the loss, else the divergence, else the states."""
    return min(measures, key=MEASURES.index)


def _squared(states: torch.Tensor) -> Floats:
    return _host((wide(states) ** 2).sum(dim=2))


def _host(part: torch.Tensor) -> Floats:
    return np.asarray(part.cpu().numpy(), dtype=np.float64)
