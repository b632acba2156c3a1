"""Weights of places in the embedding of a document, by Latin squares of chunks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.places import (
    MIN_PLACE_UNITS,
    PlaceNumbers,
    Places,
    ReversedPositions,
    fit_chunk_weights,
    latin_square,
)
from posprobe.arrays import Floats
from posprobe.errors import UsageError
from posprobe.forward.contexts import (
    context_length,
    shifted_positions,
)
from posprobe.forward.experiments import (
    find_position_table,
    restore_tensors,
)
from posprobe.forward.models import evaluation_mode, import_package
from posprobe.forward.place_replacements import (
    Output,
    Replacements,
    cosine_distance,
    draw_donors,
    replacement_task,
    text_slots,
)
from posprobe.forward.place_runs import (
    MAX_PLACE_DOCUMENTS,
    MAX_PLACE_TOKENS,
    N_PLACE_SLOTS,
    PLACE_LENGTH_SHARES,
    LengthTask,
    Subject,
    run_tasks,
)
from posprobe.forward.pooling import EmbeddingRecipe, pool_states
from posprobe.forward.replacements import find_reached_rows
from posprobe.forward.rotary import declared_context, is_rotary
from posprobe.forward.running import (
    LAST_STATES,
    check_finite,
    find_body,
    run_body,
)

if TYPE_CHECKING:
    import torch


_log = logging.getLogger("posprobe")


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model that pools token states, and the special tokens around each text."""

    model: Any
    recipe: EmbeddingRecipe
    title: str
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def n_special(self) -> int:
        """Number of special tokens."""
        return len(self.prefix) + len(self.suffix)

    def add_special_tokens(self, chunks: NDArray[Any]) -> NDArray[np.int64]:
        """Put special tokens around texts ``[n, t]``."""
        ends = (
            np.tile(np.array(ids, np.int64), (len(chunks), 1))
            for ids in (self.prefix, self.suffix)
        )
        prefix, suffix = ends
        return np.concatenate([prefix, chunks, suffix], axis=1)

    def strip_special_tokens(self, contexts: NDArray[Any]) -> NDArray[Any]:
        """Take special tokens off contexts ``[n, t]`` that all have them; a prompt may lack."""
        suffix = len(self.suffix)
        n_shared = max(
            n
            for n in range(min(len(self.prefix), contexts.shape[1]) + 1)
            if (contexts[:, :n] == self.prefix[:n]).all()
        )
        contexts = contexts[:, n_shared:]
        if suffix and (contexts[:, -suffix:] == self.suffix).all():
            contexts = contexts[:, :-suffix]
        return contexts

    def embed(self, batch: torch.Tensor, n_previous: int, **options: Any) -> Floats:
        """Return the embeddings ``[b, d]`` of a batch."""
        states = run_body(self.model, batch, **options).last_hidden_state
        check_finite(self.model, states, LAST_STATES, self.title, n_previous)
        return pool_states(states, self.recipe, len(self.prefix))


@dataclass(frozen=True, eq=False)
class _Squares:
    """Documents of one length in Latin squares.

    Parameters
    ----------
    chunks
        ``[squares, slots, t]``: tokens of the chunks.
    orders
        ``[squares, slots, slots]``: number of the chunk, by document and slot.
    """

    chunks: NDArray[np.int64]
    orders: NDArray[np.intp]

    def documents(self) -> NDArray[np.int64]:
        """Return the tokens of all documents, without special ones: ``[squares * slots, t]``."""
        texts = [
            chunks[order].reshape(len(order), -1)
            for chunks, order in zip(self.chunks, self.orders, strict=True)
        ]
        return np.concatenate(texts)


def summarise_embeddings(
    subject: Subject, embedder: Embedder, lengths: Sequence[int] | None
) -> Places:
    """Measure the weights of places in the embeddings of a text model."""
    inner = embedder.strip_special_tokens(subject.contexts)
    intervention = _find_intervention(embedder, inner)
    tasks = []
    for chunk_tokens in _chunk_lengths(subject, embedder, inner, lengths):
        rng = np.random.default_rng([subject.seed, chunk_tokens])
        squares = _draw_squares(inner, chunk_tokens, rng)
        tasks.append(_embedding_task(subject, embedder, squares, intervention))
    results, is_interrupted = run_tasks(subject, tasks)
    return Places(
        output="embedding",
        pooling=embedder.recipe.pooling,
        reversed_positions=intervention,
        grid=None,
        lengths=results,
        contexts=len(subject.contexts),
        source=subject.source,
        name=subject.title,
        stopped=is_interrupted,
    )


def _chunk_lengths(
    subject: Subject,
    embedder: Embedder,
    inner: NDArray[Any],
    lengths: Sequence[int] | None,
) -> list[int]:
    """Return the tokens of a chunk for each length, the shortest first."""
    count, inner_tokens = inner.shape

    def holds_chunks(chunk_tokens: int) -> bool:
        n_chunks: int = count * (inner_tokens // chunk_tokens)
        return n_chunks >= MIN_PLACE_UNITS * N_PLACE_SLOTS

    limits = [MAX_PLACE_TOKENS, embedder.recipe.max_tokens]
    limits += [context_length(subject.model), declared_context(subject.model)]
    max_tokens = min(limit for limit in limits if limit is not None)
    chosen_lengths = lengths or [
        round(share * max_tokens) for share in PLACE_LENGTH_SHARES
    ]
    if lengths and not (
        N_PLACE_SLOTS + embedder.n_special <= min(lengths) <= max(lengths) <= max_tokens
    ):
        raise UsageError(
            f"{subject.title}: lengths {lengths}: documents of {N_PLACE_SLOTS} chunks have "
            f"{N_PLACE_SLOTS + embedder.n_special} to {max_tokens} tokens here."
        )
    chunk_lengths = sorted(
        {(tokens - embedder.n_special) // N_PLACE_SLOTS for tokens in chosen_lengths}
        - {0}
    )
    possible = [n for n in chunk_lengths if 0 < n <= inner_tokens and holds_chunks(n)]
    if not possible:
        raise UsageError(
            f"{subject.title}: places need {MIN_PLACE_UNITS * N_PLACE_SLOTS} chunks of "
            f"{max(1, min(chunk_lengths, default=1))} tokens, and {count} contexts of "
            f"{inner_tokens} hold fewer. Use more or longer ones (`contexts`, `length`)."
        )
    if lengths and len(possible) < len(chunk_lengths):
        raise UsageError(
            f"{subject.title}: contexts of {inner_tokens} tokens are too few or too short for "
            f"documents of {max(lengths)} tokens. Use more or longer ones (`contexts`, `length`)."
        )
    if len(possible) < len(chunk_lengths):
        _log.warning(
            "%s: contexts of %d tokens are too few or too short for documents of more than "
            "%d tokens. Use longer ones (`length`).",
            subject.title,
            inner_tokens,
            possible[-1] * N_PLACE_SLOTS + embedder.n_special,
        )
    return possible


def _draw_squares(
    inner: NDArray[Any], chunk_tokens: int, rng: np.random.Generator
) -> _Squares:
    """Cut contexts into chunks, each used once, and draw a Latin square for every eight."""
    per_context = inner.shape[1] // chunk_tokens
    chunks = inner[:, : per_context * chunk_tokens].reshape(-1, chunk_tokens)
    n_squares = min(len(chunks), MAX_PLACE_DOCUMENTS) // N_PLACE_SLOTS
    chosen = rng.permutation(len(chunks))[: n_squares * N_PLACE_SLOTS]
    return _Squares(
        chunks[chosen].reshape(n_squares, N_PLACE_SLOTS, chunk_tokens).astype(np.int64),
        np.stack([latin_square(N_PLACE_SLOTS, rng) for _ in range(n_squares)]),
    )


def _embedding_task(
    subject: Subject,
    embedder: Embedder,
    squares: _Squares,
    intervention: ReversedPositions | None,
) -> LengthTask:
    """Return the task that measures the weights of documents in Latin squares."""
    documents = embedder.add_special_tokens(squares.documents())

    def measure(batch: torch.Tensor, n_previous: int) -> PlaceNumbers:
        pt = import_package("torch")
        square = n_previous // N_PLACE_SLOTS
        texts = embedder.add_special_tokens(squares.chunks[square])
        chunk_batch = pt.as_tensor(texts, device=batch.device)
        alone = embedder.embed(chunk_batch, n_previous)[squares.orders[square]]
        weights, r2 = fit_chunk_weights(embedder.embed(batch, n_previous), alone)
        interventions = {
            key: fit_chunk_weights(embeddings, alone)[0]
            for key, embeddings in _intervene(embedder, batch, n_previous, intervention)
        }
        return PlaceNumbers(len(batch), weights, r2, **interventions)

    n_interventions = {"table": 2, "rotary": 1, None: 0}[intervention]
    reason = "" if intervention else "no position rows or ids that could be reversed"
    rng = np.random.default_rng([subject.seed, documents.shape[1]])
    replacements = Replacements(
        documents,
        text_slots(documents.shape[1] - len(embedder.suffix), squares.chunks.shape[2]),
        draw_donors(len(documents), N_PLACE_SLOTS, N_PLACE_SLOTS, rng),
    )
    return LengthTask(
        tokens=documents.shape[1],
        documents=documents,
        measure=measure,
        runs=1 + 1 / N_PLACE_SLOTS + n_interventions,
        batch_size=N_PLACE_SLOTS,
        unit_size=N_PLACE_SLOTS,
        caused_reason=reason,
        replacement=replacement_task(
            replacements,
            Output(embedder.embed, cosine_distance),
            tokens=documents.shape[1],
            caused_reason="the embedding is no weighted sum of its chunks",
        ),
    )


def _find_intervention(
    embedder: Embedder, inner: NDArray[Any]
) -> ReversedPositions | None:
    """Return what of a text model's positions can be reversed."""
    model, title = embedder.model, embedder.title
    try:
        _, table = find_position_table(model, title)
        with evaluation_mode(model) as device:
            probe = embedder.add_special_tokens(inner[:1, :N_PLACE_SLOTS])
            batch = import_package("torch").as_tensor(probe, device=device)
            find_reached_rows(model, batch, table, title)
    except UsageError:
        parameters = inspect.signature(find_body(model).forward).parameters
        has_ids = "position_ids" in parameters
        return "rotary" if is_rotary(model) and has_ids else None
    return "table"


def _intervene(
    embedder: Embedder,
    batch: torch.Tensor,
    n_previous: int,
    intervention: ReversedPositions | None,
) -> Iterator[tuple[str, Floats]]:
    """Yield the embeddings of documents with changed positions, by the name of the change."""
    model, pt = embedder.model, import_package("torch")
    stop = batch.shape[1] - len(embedder.suffix)
    inner = slice(len(embedder.prefix), stop)
    if intervention == "rotary":
        position_ids = shifted_positions(model, batch, 0).clone()
        position_ids[:, inner] = position_ids[:, inner].flip(1)
        yield "reversed", embedder.embed(batch, n_previous, position_ids=position_ids)
    if intervention == "table":
        _, table = find_position_table(model, embedder.title)
        rows = find_reached_rows(model, batch[:1], table, embedder.title)[inner]
        flat = table.data.view(-1, table.shape[-1])
        changes = {"reversed": flat[rows].flip(0), "averaged": flat[rows].mean(dim=0)}
        for key, values in changes.items():
            with restore_tensors(table), pt.no_grad():
                flat[rows] = values
                embeddings = embedder.embed(batch, n_previous)
            yield key, embeddings
