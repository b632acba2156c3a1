"""Runs of a model at several lengths of documents, to see which places count."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.places import (
    MIN_ADDITIVE_R2,
    MIN_PLACE_UNITS,
    PlaceNumbers,
    PlacesAtLength,
    ReachLayout,
    has_scale,
    summarise_places,
)
from posprobe.analyses.models.rotary_use import Origin
from posprobe.errors import InvalidTable
from posprobe.forward.contexts import (
    sum_over_contexts,
)
from posprobe.progress import stage

if TYPE_CHECKING:
    import torch


_log = logging.getLogger("posprobe")
#: Slots of a document.
N_PLACE_SLOTS = 8
#: Documents of a length: more move no number by more than a few per cent.
MAX_PLACE_DOCUMENTS = 64
#: Longer documents are measured only on request, tokens.
MAX_PLACE_TOKENS = 1024
#: Lengths that are measured, as shares of the longest.
PLACE_LENGTH_SHARES = (0.25, 0.5, 1.0)
#: A model that moves by less than this, in units of its output, moves by rounding.
MIN_PLACE_INFLUENCE = 1e-12


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with its contexts ``[contexts, ...]``, their kind, its name, and the random seed."""

    model: Any
    contexts: NDArray[Any]
    title: str
    seed: int
    source: Origin


@dataclass(frozen=True, eq=False)
class LengthTask:
    """What is measured at one length.

    Parameters
    ----------
    tokens
        Tokens, or patches, of a document.
    documents
        ``[documents, ...]``: the inputs.
    measure
        Function of a batch on the device and the number of documents before it.
    runs
        Runs of the model for each document.
    batch_size
        Documents of a batch, which are one unit of the null if they are a Latin square.
    unit_size
        Documents of a unit.
    layout
        Segments of the reach; None where there is none.
    caused_reason
        Reason why there is no intervention; empty if there is.
    is_line
        Whether places have a first and a last.
    replacement
        What is measured instead where weights do not add up to the embedding.
    """

    tokens: int
    documents: NDArray[Any]
    measure: Callable[[torch.Tensor, int], PlaceNumbers]
    runs: float
    batch_size: int
    unit_size: int
    caused_reason: str
    layout: ReachLayout | None = None
    is_line: bool = True
    replacement: LengthTask | None = None


def run_tasks(
    subject: Subject, tasks: Sequence[LengthTask]
) -> tuple[tuple[PlacesAtLength, ...], bool]:
    """Run all lengths, and tell whether Ctrl-C ended the run, which keeps what was measured."""
    _announce_cost(subject.title, tasks)
    results: list[PlacesAtLength] = []
    is_interrupted = False
    for task in tasks:
        try:
            result, is_interrupted = _run_task(subject, task)
        except KeyboardInterrupt:
            if not results:
                raise
            is_interrupted = True
            break
        results.append(result)
        if is_interrupted:
            break
    return tuple(results), is_interrupted


def _announce_cost(title: str, tasks: Sequence[LengthTask]) -> None:
    """Say how long the run takes, in passes over the longest documents."""
    full_task = tasks[-1]
    full_cost = full_task.tokens * len(full_task.documents)
    cost = sum(task.runs * task.tokens * len(task.documents) for task in tasks)
    unit = "tokens" if full_task.is_line else "patches"
    _log.info(
        "%s: places take as long as %.0f bare passes of %d x %d %s.",
        title,
        np.ceil(cost / full_cost),
        len(full_task.documents),
        full_task.tokens,
        unit,
    )


def _run_task(subject: Subject, task: LengthTask) -> tuple[PlacesAtLength, bool]:
    """Measure one length, and tell whether Ctrl-C ended it."""

    def batches() -> Iterator[NDArray[Any]]:
        label = f"Places of {task.tokens} {'tokens' if task.is_line else 'patches'}"
        with stage(label, len(task.documents)) as advance:
            for start in range(0, len(task.documents), task.batch_size):
                batch = task.documents[start : start + task.batch_size]
                yield batch
                advance(len(batch))

    sums, is_interrupted = sum_over_contexts(
        subject.model,
        batches(),
        lambda batch, n_previous, _: {0: task.measure(batch, n_previous)},
        subject.title,
    )
    numbers = sums[0]
    if numbers.contexts < MIN_PLACE_UNITS * task.unit_size:
        raise KeyboardInterrupt
    if not abs(numbers.values.mean()) > MIN_PLACE_INFLUENCE:
        raise InvalidTable(
            f"{subject.title}: its output does not depend on the content of its input, "
            "so that no place counts."
        )
    result = summarise_places(
        numbers,
        tokens=task.tokens,
        unit_size=task.unit_size,
        layout=task.layout,
        caused_reason=task.caused_reason,
        is_line=task.is_line,
        seed=subject.seed,
    )
    is_additive = result.r2 is None or (
        result.r2 >= MIN_ADDITIVE_R2 and has_scale(numbers.values, task.unit_size)
    )
    if is_additive or task.replacement is None or is_interrupted:
        return result, is_interrupted
    influences, is_interrupted = _run_task(subject, task.replacement)
    return replace(influences, r2=result.r2), is_interrupted
