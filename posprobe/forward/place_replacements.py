"""Content of places replaced by content from elsewhere, and how far a model's output moves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.places import (
    PlaceNumbers,
    ReachLayout,
)
from posprobe.arrays import Floats
from posprobe.errors import UsageError
from posprobe.forward.experiments import (
    compute_logits,
)
from posprobe.forward.models import import_package
from posprobe.forward.place_runs import (
    MIN_PLACE_INFLUENCE,
    N_PLACE_SLOTS,
    LengthTask,
)
from posprobe.forward.running import (
    check_finite,
    widen,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Output:
    """An output of a batch and the number of contexts before it, and how far two are apart."""

    compute: Callable[[torch.Tensor, int], Floats]
    distance: Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, eq=False)
class Replacements:
    """Documents whose slots get content from elsewhere.

    Parameters
    ----------
    documents
        ``[documents, ...]``.
    slots
        Index of each slot in a document; all have one shape.
    donors
        ``[documents, slots, 2]``: document and slot that the new content comes from.
    blocks
        Tokens within the last slot that are replaced by themselves, block by block.
    """

    documents: NDArray[Any]
    slots: tuple[tuple[slice, ...], ...]
    donors: NDArray[np.intp]
    blocks: tuple[slice, ...] = ()

    def replace_slot(
        self, rows: slice, slot: int, block: slice = slice(None)
    ) -> NDArray[Any]:
        """Return documents ``rows`` with new content in a slot, or in a block of it."""
        documents = self.documents[rows].copy()
        for document, (donor, donor_slot) in zip(
            documents, self.donors[rows, slot], strict=True
        ):
            content = self.documents[donor][self.slots[donor_slot]]
            document[self.slots[slot]][..., block] = content[..., block]
        return documents


def draw_donors(
    count: int, slots: int, unit_size: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draw another unit's document, and a slot at random, for every slot of every document."""
    shape = (count, slots)
    steps = rng.integers(1, count // unit_size, shape) * unit_size
    start = (np.arange(count) // unit_size * unit_size)[:, None]
    donors = (start + steps + rng.integers(0, unit_size, shape)) % count
    return np.stack([donors, rng.integers(0, slots, shape)], axis=-1)


def text_slots(stop: int, slot_tokens: int) -> tuple[tuple[slice, ...], ...]:
    """Return slots of a text that end with token ``stop``."""
    start = stop - N_PLACE_SLOTS * slot_tokens
    return tuple(
        (slice(start + slot * slot_tokens, start + (slot + 1) * slot_tokens),)
        for slot in range(N_PLACE_SLOTS)
    )


def block_slices(layout: ReachLayout) -> tuple[slice, ...]:
    """Return the tokens of each block within the last slot, the last block first."""
    stops = layout.slot_tokens - np.cumsum((0, *layout.blocks[:-1]))
    return tuple(
        slice(int(stop) - size, int(stop))
        for stop, size in zip(stops, layout.blocks, strict=True)
    )


def replacement_task(
    replacements: Replacements,
    output: Output,
    *,
    tokens: int,
    caused_reason: str,
    layout: ReachLayout | None = None,
    is_line: bool = True,
) -> LengthTask:
    """Return the task that measures how far new content in each slot moves an output."""
    edits = [(slot, slice(None)) for slot in range(len(replacements.slots))]
    edits += [(len(edits) - 1, block) for block in replacements.blocks]

    def measure(batch: torch.Tensor, n_previous: int) -> PlaceNumbers:
        pt = import_package("torch")
        rows = slice(n_previous, n_previous + len(batch))
        before = output.compute(batch, n_previous)
        distances = []
        for slot, block in edits:
            edited = replacements.replace_slot(rows, slot, block)
            inputs = pt.as_tensor(edited, device=batch.device, dtype=batch.dtype)
            distances.append(output.distance(before, output.compute(inputs, n_previous)))
        moves = np.maximum(np.stack(distances, axis=1), 0.0)
        slots = len(replacements.slots)
        # Each document counts as much as any other, however far its output moves.
        mean = moves[:, :slots].mean(axis=1, keepdims=True)
        moves = moves / np.where(mean > MIN_PLACE_INFLUENCE, mean, 1.0)
        blocks = moves[:, slots:] if replacements.blocks else None
        return PlaceNumbers(len(batch), moves[:, :slots], blocks=blocks)

    return LengthTask(
        tokens=tokens,
        documents=replacements.documents,
        measure=measure,
        runs=1 + len(edits),
        batch_size=N_PLACE_SLOTS,
        unit_size=1,
        caused_reason=caused_reason,
        layout=layout,
        is_line=is_line,
    )


def prediction_log_probabilities(
    model: Any, batch: torch.Tensor, title: str, n_previous: int = 0
) -> Floats:
    """Return log probabilities ``[b, v]`` of the class, or of the token after the last.

    Raises
    ------
    UsageError
        If the model has no head that predicts them.
    InvalidTable
        If they are not finite.
    """
    has_choice = "logits_to_keep" in inspect.signature(model.forward).parameters
    logits = compute_logits(model, batch, **({"logits_to_keep": 1} if has_choice else {}))
    if logits is None:
        raise UsageError(
            f"{title}: it has no head that predicts tokens or classes. Load it with its "
            "head: load_model(..., head=True)."
        )
    check_finite(model, logits, "the logits", title, n_previous)
    return np.asarray(widen(logits[:, -1]).log_softmax(dim=-1).cpu().double().numpy())


def divergence(log_p: Floats, log_q: Floats) -> Floats:
    """Return the Kullback-Leibler divergence of q from p, nats, of log probabilities ``[b, v]``."""
    return np.asarray((np.exp(log_p) * (log_p - log_q)).sum(axis=1))


def cosine_distance(embeddings: Floats, moved: Floats) -> Floats:
    """Return 1 less the cosine of each pair of embeddings ``[b, d]``."""
    norms = np.linalg.norm(embeddings, axis=1) * np.linalg.norm(moved, axis=1)
    products = (embeddings * moved).sum(axis=1)
    return np.asarray(1 - products / np.where(norms > 0, norms, 1.0))
