"""One run of all contexts for two measurements: hidden states and the attention budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from posprobe.analyses.models.attention_budget import AttentionBudget, LogitSums
from posprobe.analyses.models.states import MeanDecomposition, Moments
from posprobe.arrays import Array
from posprobe.errors import PosprobeError
from posprobe.forward.attention import AttentionObserver
from posprobe.forward.averages import StateObserver
from posprobe.forward.contexts import sum_over_contexts
from posprobe.forward.running import run_body

if TYPE_CHECKING:
    import torch

#: Measurement and layer that sums belong to.
SumKey: TypeAlias = tuple[Literal["states", "attention"], int]


def states_and_budget(
    model: Any,
    batches: Iterable[Array],
    *,
    positions: slice | None = None,
    layers: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[MeanDecomposition, AttentionBudget | PosprobeError]:
    """Decompose hidden states and measure the attention budget while the contexts run once.

    Parameters
    ----------
    model, batches, positions, layers, name
        Same as for `decompose`; positions and layers concern hidden states alone.

    Returns
    -------
    tuple
        Results of `decompose` and `attention_budget`; the error where the latter cannot be taken.

    Raises
    ------
    PosprobeError
        As `decompose`.
    """
    title = name or type(model).__name__
    states = StateObserver(model, title, positions, layers)
    attention = AttentionObserver(model, title)
    problem: PosprobeError | None = None

    def measure(
        batch: torch.Tensor, n_previous: int, sums: Mapping[SumKey, Any]
    ) -> dict[SumKey, Moments | LogitSums]:
        nonlocal problem
        if problem is None:
            try:
                attention.prepare(batch)
            except PosprobeError as error:
                problem = error
        state_sums = {n: part for (kind, n), part in sums.items() if kind == "states"}
        logits: dict[int, LogitSums] = {}
        with states.observe(batch, n_previous, state_sums) as moments:
            if problem is None:
                logits = attention.measure(batch)
            elif states.has_hooks:
                run_body(model, batch)
        return {("states", n): part for n, part in moments.items()} | {
            ("attention", n): part for n, part in logits.items()
        }

    sums, is_interrupted = sum_over_contexts(model, batches, measure, title)
    parts: dict[str, dict[int, Any]] = {"states": {}, "attention": {}}
    for (kind, number), part in sums.items():
        parts[kind][number] = part
    decomposition = states.build(parts["states"], is_interrupted)
    if problem is not None:
        return decomposition, problem
    try:
        return decomposition, attention.build(parts["attention"], is_interrupted)
    except PosprobeError as error:
        return decomposition, error
