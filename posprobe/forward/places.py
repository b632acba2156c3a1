"""Run a model on documents of chunks, or with content replaced, to see which places count."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.places import (
    MIN_ADDITIVE_R2,
    MIN_PLACE_UNITS,
    PlaceNumbers,
    Places,
    PlacesAtLength,
    Pooling,
    ReachLayout,
    ReversedPositions,
    divide_last_slot,
    fit_chunk_weights,
    latin_square,
    summarise_places,
)
from posprobe.analyses.models.rotary_use import Origin
from posprobe.arrays import Array, Floats
from posprobe.errors import InvalidTable, UsageError
from posprobe.forward.contexts import (
    context_length,
    generates,
    shifted_positions,
    sum_over_contexts,
)
from posprobe.forward.experiments import (
    compute_logits,
    find_position_table,
    restore_tensors,
)
from posprobe.forward.models import evaluation_mode, import_package
from posprobe.forward.pooling import EmbeddingRecipe, read_recipe
from posprobe.forward.replacements import find_reached_rows
from posprobe.forward.rotary import declared_context, is_rotary
from posprobe.forward.running import (
    LAST_STATES,
    check_finite,
    compute_final_states,
    find_body,
    find_layout,
    image_shape,
    run_body,
    widen,
)
from posprobe.layouts import Grid
from posprobe.progress import stage

if TYPE_CHECKING:
    import torch


_log = logging.getLogger("posprobe")
#: Slots of a document, and most rows or columns of cells of an image.
N_PLACE_SLOTS = 8
MAX_CELL_ROWS = 4
#: Documents of a length: more move no number by more than a few per cent.
MAX_PLACE_DOCUMENTS = 64
#: Longer documents are measured only on request.
MAX_PLACE_TOKENS = 1024
#: Lengths that are measured, as shares of the longest.
PLACE_LENGTH_SHARES = (0.25, 0.5, 1.0)
#: A model that moves by less than this, in units of its output, moves by rounding.
MIN_PLACE_INFLUENCE = 1e-12


def places(
    model: Any,
    contexts: Array | Iterable[Array],
    *,
    pooling: Pooling | EmbeddingRecipe | None = None,
    lengths: Sequence[int] | None = None,
    special_tokens: tuple[Sequence[int], Sequence[int]] | None = None,
    source: Origin = "given",
    seed: int = 0,
    name: str | None = None,
) -> Places:
    """Measure how much each place of an input counts for a model's output.

    A model that pools is run on documents of 8 chunks in Latin squares: every chunk stands in every
    slot once, so that content is balanced over places. Least squares of a document's embedding on
    those of its chunks alone gives a weight for each slot. Of a language model, the content of each
    slot is replaced by content from elsewhere, and the Kullback-Leibler divergence of the last
    token's prediction says how far that moves it. Of a vision model, cells of the patch grid are
    replaced by those of other pictures. Weights and influences have mean 1.

    For embeddings, position rows of the inner tokens are reversed and averaged, or the position ids
    of rotary embeddings reversed: what moves with them is due to them. Permutation probes of
    embeddings precede this (arXiv 2601.16934, 2412.15241, 2505.13950).

    Parameters
    ----------
    model
        A model of transformers or timm; one that predicts tokens, or classes, with its head.
    contexts
        Token ids ``[contexts, length]`` or pixels ``[contexts, channels, h, w]``, or batches of
        them. Chunks are cut from the tokens between special ones.
    pooling
        How token states become an embedding: ``"mean"``, ``"cls"``, ``"last"`` or a recipe. Where
        None, as the model's folder states; else the mean for a model that predicts no tokens.
    lengths
        Tokens of documents; where None a quarter, half and all of what the model takes, at most
        1,024.
    special_tokens
        Token ids before and after each text; where None, what stands first, and last, in all
        contexts.
    source
        Kind of the contexts, for the result.
    seed
        Random seed of chunks, replacements and permutations.
    name
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If contexts are too few or too short, the model gives no such output, or a batch does not
        fit into memory.
    InvalidTable
        If the output is not finite, or no replacement moves it.

    Examples
    --------
    This needs the extra `models`. The mean of states that no layer changes weighs all places alike:

    >>> import numpy as np
    >>> import posprobe as pp
    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(
    ...     vocab_size=50, hidden_size=32, num_hidden_layers=0, num_attention_heads=2,
    ...     intermediate_size=32, max_position_embeddings=40,
    ... )
    >>> model = BertModel(config, add_pooling_layer=False).eval()
    >>> tokens = np.random.default_rng(0).integers(1, 50, (16, 8))
    >>> result = pp.places(model, tokens, lengths=[32])
    >>> result.output, len(result.full_length.weights)
    ('embedding', 8)
    """
    title = name or type(model).__name__
    inputs = _stack_contexts(contexts, title)
    subject = _Subject(model, inputs, title, seed, source)
    if image_shape(model) is not None:
        return _summarise_images(subject)
    recipe, notes = _choose_recipe(model, pooling, title)
    if recipe is None:
        return _summarise_predictions(subject, lengths)
    frame = special_tokens or _common_ends(inputs)
    embedder = _Embedder(model, recipe, title, tuple(frame[0]), tuple(frame[1]))
    return replace(_summarise_embeddings(subject, embedder, lengths), notes=notes)


@dataclass(frozen=True, eq=False)
class _Subject:
    """A model with its contexts ``[contexts, ...]``, their kind, its name, and the random seed."""

    model: Any
    contexts: NDArray[Any]
    title: str
    seed: int
    source: Origin


def _stack_contexts(contexts: Array | Iterable[Array], title: str) -> NDArray[Any]:
    """Return all contexts as one array, from an array or batches."""
    batches = [contexts] if hasattr(contexts, "ndim") else list(contexts)
    arrays = [
        np.asarray(batch.cpu() if hasattr(batch, "cpu") else batch) for batch in batches
    ]
    if not arrays:
        raise UsageError(
            f"{title}: the inputs are empty. A generator can be used only once; pass a list."
        )
    if len({array.shape[1:] for array in arrays}) > 1 or arrays[0].ndim not in (2, 4):
        raise UsageError(
            f"{title}: contexts of shapes {sorted({array.shape for array in arrays})}: token "
            "ids [b, t] or pixels [b, channels, h, w] of one size are expected."
        )
    stacked: NDArray[Any] = np.concatenate(arrays)
    if len(stacked) < MIN_PLACE_UNITS:
        raise UsageError(
            f"{title}: {len(stacked)} contexts are too few to take other content from. "
            "Use more: --contexts."
        )
    return stacked


def _choose_recipe(
    model: Any, pooling: Pooling | EmbeddingRecipe | None, title: str
) -> tuple[EmbeddingRecipe | None, tuple[str, ...]]:
    """Return how a text model pools, None where it predicts tokens, and a note."""
    if isinstance(pooling, EmbeddingRecipe):
        return pooling, ()
    if pooling is not None:
        return EmbeddingRecipe(pooling), ()
    path = getattr(getattr(model, "config", None), "_name_or_path", "")
    if path and (Path(path) / "modules.json").is_file():
        return read_recipe(path), ()
    if generates(model):
        return None, ()
    return EmbeddingRecipe("mean"), (
        f"{title} does not say how it pools token states: the mean is assumed (--pooling)",
    )


def _common_ends(tokens: NDArray[Any]) -> tuple[list[int], list[int]]:
    """Return the token that begins all contexts, if there is one, and that which ends them."""
    first, last = (
        [int(column[0])] if (column == column[0]).all() else []
        for column in (tokens[:, 0], tokens[:, -1])
    )
    return first, last


# Runs at several lengths.


@dataclass(frozen=True, eq=False)
class _LengthTask:
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
    replacement: _LengthTask | None = None


def _run_tasks(
    subject: _Subject, tasks: Sequence[_LengthTask]
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


def _announce_cost(title: str, tasks: Sequence[_LengthTask]) -> None:
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


def _run_task(subject: _Subject, task: _LengthTask) -> tuple[PlacesAtLength, bool]:
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
    is_additive = result.r2 is None or result.r2 >= MIN_ADDITIVE_R2
    if is_additive or task.replacement is None or is_interrupted:
        return result, is_interrupted
    influences, is_interrupted = _run_task(subject, task.replacement)
    return replace(influences, r2=result.r2), is_interrupted


# Embeddings.


@dataclass(frozen=True, eq=False)
class _Embedder:
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
        """Take special tokens off contexts ``[n, t]`` that all have them."""
        prefix, suffix = len(self.prefix), len(self.suffix)
        if prefix and (contexts[:, :prefix] == self.prefix).all():
            contexts = contexts[:, prefix:]
        if suffix and (contexts[:, -suffix:] == self.suffix).all():
            contexts = contexts[:, :-suffix]
        return contexts

    def embed(self, batch: torch.Tensor, n_previous: int, **options: Any) -> Floats:
        """Return the embeddings ``[b, d]`` of a batch."""
        states = run_body(self.model, batch, **options).last_hidden_state
        check_finite(self.model, states, LAST_STATES, self.title, n_previous)
        return pool_states(states, self.recipe, len(self.prefix))


def pool_states(
    states: torch.Tensor, recipe: EmbeddingRecipe, n_prompt: int = 0
) -> Floats:
    """Pool states ``[b, t, d]`` into embeddings ``[b, d]``.

    Parameters
    ----------
    states
        Last states of all tokens.
    recipe
        How they are pooled.
    n_prompt
        Tokens at the start that a recipe may leave out.
    """
    wide = widen(states)
    if recipe.pooling == "mean":
        is_left_out = recipe.prompt and not recipe.pools_prompt
        pooled = wide[:, n_prompt if is_left_out else 0 :].mean(dim=1)
    else:
        pooled = wide[:, 0 if recipe.pooling == "cls" else -1]
    embeddings: Floats = pooled.cpu().double().numpy()
    if recipe.is_normalised:
        norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
        embeddings = embeddings / np.where(norms > 0, norms, 1.0)
    return embeddings


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


def _summarise_embeddings(
    subject: _Subject, embedder: _Embedder, lengths: Sequence[int] | None
) -> Places:
    """Measure the weights of places in the embeddings of a text model."""
    inner = embedder.strip_special_tokens(subject.contexts)
    intervention = _find_intervention(embedder, inner)
    tasks = []
    for chunk_tokens in _chunk_lengths(subject, embedder, inner, lengths):
        rng = np.random.default_rng([subject.seed, chunk_tokens])
        squares = _draw_squares(inner, chunk_tokens, rng)
        tasks.append(_embedding_task(subject, embedder, squares, intervention))
    results, is_interrupted = _run_tasks(subject, tasks)
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
    subject: _Subject,
    embedder: _Embedder,
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
    chunk_lengths = sorted(
        {(tokens - embedder.n_special) // N_PLACE_SLOTS for tokens in chosen_lengths}
        - {0}
    )
    possible = [n for n in chunk_lengths if 0 < n <= inner_tokens and holds_chunks(n)]
    if not possible:
        raise UsageError(
            f"{subject.title}: places need {MIN_PLACE_UNITS * N_PLACE_SLOTS} chunks of "
            f"{max(1, min(chunk_lengths, default=1))} tokens, and {count} contexts of "
            f"{inner_tokens} hold fewer. Use more or longer ones: --contexts, --length."
        )
    if len(possible) < len(chunk_lengths):
        _log.warning(
            "%s: contexts of %d tokens are too few or too short for documents of more than "
            "%d tokens. Use longer ones: --length.",
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
    subject: _Subject,
    embedder: _Embedder,
    squares: _Squares,
    intervention: ReversedPositions | None,
) -> _LengthTask:
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
    replacements = _Replacements(
        documents,
        _text_slots(documents.shape[1] - len(embedder.suffix), squares.chunks.shape[2]),
        _draw_donors(len(documents), N_PLACE_SLOTS, N_PLACE_SLOTS, rng),
    )
    return _LengthTask(
        tokens=documents.shape[1],
        documents=documents,
        measure=measure,
        runs=1 + 1 / N_PLACE_SLOTS + n_interventions,
        batch_size=N_PLACE_SLOTS,
        unit_size=N_PLACE_SLOTS,
        caused_reason=reason,
        replacement=_replacement_task(
            replacements,
            _Output(embedder.embed, cosine_distance),
            tokens=documents.shape[1],
            caused_reason="the embedding is no weighted sum of its chunks",
        ),
    )


def _find_intervention(
    embedder: _Embedder, inner: NDArray[Any]
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
    embedder: _Embedder,
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


def cosine_distance(embeddings: Floats, moved: Floats) -> Floats:
    """Return 1 less the cosine of each pair of embeddings ``[b, d]``."""
    norms = np.linalg.norm(embeddings, axis=1) * np.linalg.norm(moved, axis=1)
    products = (embeddings * moved).sum(axis=1)
    return np.asarray(1 - products / np.where(norms > 0, norms, 1.0))


# Content replaced.


@dataclass(frozen=True)
class _Output:
    """An output of a batch and the number of contexts before it, and how far two are apart."""

    compute: Callable[[torch.Tensor, int], Floats]
    distance: Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, eq=False)
class _Replacements:
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


def _draw_donors(
    count: int, slots: int, unit_size: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draw another unit's document, and a slot at random, for every slot of every document."""
    shape = (count, slots)
    steps = rng.integers(1, count // unit_size, shape) * unit_size
    start = (np.arange(count) // unit_size * unit_size)[:, None]
    donors = (start + steps + rng.integers(0, unit_size, shape)) % count
    return np.stack([donors, rng.integers(0, slots, shape)], axis=-1)


def _text_slots(stop: int, slot_tokens: int) -> tuple[tuple[slice, ...], ...]:
    """Return slots of a text that end with token ``stop``."""
    start = stop - N_PLACE_SLOTS * slot_tokens
    return tuple(
        (slice(start + slot * slot_tokens, start + (slot + 1) * slot_tokens),)
        for slot in range(N_PLACE_SLOTS)
    )


def _block_slices(layout: ReachLayout) -> tuple[slice, ...]:
    """Return the tokens of each block within the last slot, the last block first."""
    stops = layout.slot_tokens - np.cumsum((0, *layout.blocks[:-1]))
    return tuple(
        slice(int(stop) - size, int(stop))
        for stop, size in zip(stops, layout.blocks, strict=True)
    )


def _replacement_task(
    replacements: _Replacements,
    output: _Output,
    *,
    tokens: int,
    caused_reason: str,
    layout: ReachLayout | None = None,
    is_line: bool = True,
) -> _LengthTask:
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

    return _LengthTask(
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


def _summarise_predictions(subject: _Subject, lengths: Sequence[int] | None) -> Places:
    """Measure the influence of places on the next token."""
    contexts = subject.contexts[:MAX_PLACE_DOCUMENTS]
    start_tokens, _ = _common_ends(contexts)
    max_tokens = min(contexts.shape[1], context_length(subject.model) or MAX_PLACE_TOKENS)
    chosen_lengths = lengths or [
        round(share * max_tokens) for share in PLACE_LENGTH_SHARES
    ]
    fitting = sorted(
        {
            n
            for n in chosen_lengths
            if N_PLACE_SLOTS + len(start_tokens) <= n <= contexts.shape[1]
        }
    )
    if not fitting:
        raise UsageError(
            f"{subject.title}: contexts of {contexts.shape[1]} tokens are too short to tell "
            f"{N_PLACE_SLOTS} places apart. Use longer ones: --length."
        )
    tasks = [
        _prediction_task(subject, contexts, start_tokens, tokens) for tokens in fitting
    ]
    results, is_interrupted = _run_tasks(subject, tasks)
    return Places(
        output="next_token",
        pooling=None,
        reversed_positions=None,
        grid=None,
        lengths=results,
        contexts=len(contexts),
        source=subject.source,
        name=subject.title,
        stopped=is_interrupted,
    )


def _prediction_task(
    subject: _Subject, contexts: NDArray[Any], start_tokens: list[int], tokens: int
) -> _LengthTask:
    """Return the task of the last tokens of all contexts, after the token that begins them."""
    n_start = len(start_tokens)
    ends = contexts[:, contexts.shape[1] - tokens + n_start :]
    documents = np.concatenate([contexts[:, :n_start], ends], axis=1).astype(np.int64)
    layout = divide_last_slot((tokens - n_start) // N_PLACE_SLOTS)
    rng = np.random.default_rng([subject.seed, tokens])
    replacements = _Replacements(
        documents,
        _text_slots(tokens, layout.slot_tokens),
        _draw_donors(len(documents), N_PLACE_SLOTS, 1, rng),
        _block_slices(layout),
    )

    def compute(batch: torch.Tensor, n_previous: int) -> Floats:
        return prediction_log_probabilities(
            subject.model, batch, subject.title, n_previous
        )

    return _replacement_task(
        replacements,
        _Output(compute, divergence),
        tokens=tokens,
        caused_reason="positions are reversed for embeddings alone",
        layout=layout,
    )


# Images.


def _summarise_images(subject: _Subject) -> Places:
    """Measure the influence of the cells of the patch grid."""
    images = subject.contexts[:MAX_PLACE_DOCUMENTS]
    grid, output, pooling = _image_output(subject)
    shape, cells = _image_cells(images.shape[2:], grid)
    rng = np.random.default_rng([subject.seed, grid.size])
    task = _replacement_task(
        _Replacements(images, cells, _draw_donors(len(images), len(cells), 1, rng)),
        output,
        tokens=grid.size,
        caused_reason="positions are reversed for embeddings of texts alone",
        is_line=False,
    )
    results, is_interrupted = _run_tasks(subject, [task])
    return Places(
        output="classes" if pooling is None else "embedding",
        pooling=pooling,
        reversed_positions=None,
        grid=shape,
        lengths=results,
        contexts=len(images),
        source=subject.source,
        name=subject.title,
        stopped=is_interrupted,
    )


def _image_output(subject: _Subject) -> tuple[Grid, _Output, Pooling | None]:
    """Return the patch grid, and classes as output, or else an embedding and its pooling."""
    pt = import_package("torch")
    model, title = subject.model, subject.title
    with evaluation_mode(model) as device:
        dtype = next(model.parameters()).dtype
        image = pt.as_tensor(subject.contexts[:1], device=device, dtype=dtype)
        n_tokens = compute_final_states(model, image).shape[1]
        grid = find_layout(model, image, n_tokens)
        has_classes = compute_logits(model, image) is not None
    if not isinstance(grid, Grid):
        raise UsageError(f"{title}: its patches have no grid.")
    recipe = EmbeddingRecipe("cls" if n_tokens > grid.size else "mean")

    def embed(batch: torch.Tensor, n_previous: int) -> Floats:
        final = compute_final_states(model, batch)
        check_finite(model, final, LAST_STATES, title, n_previous)
        return pool_states(final, recipe)

    def classify(batch: torch.Tensor, n_previous: int) -> Floats:
        return prediction_log_probabilities(model, batch, title, n_previous)

    if has_classes:
        return grid, _Output(classify, divergence), None
    return grid, _Output(embed, cosine_distance), recipe.pooling


def _image_cells(
    pixels: tuple[int, ...], grid: Grid
) -> tuple[tuple[int, int], tuple[tuple[slice, ...], ...]]:
    """Return rows and columns of equal cells of patches, and the pixels of each.

    Where a side is no multiple of the cells, patches between cells are left as they are.
    """
    spans = []
    for size, patches in zip(pixels, (grid.height, grid.width), strict=True):
        count = min(MAX_CELL_ROWS, patches)
        side = patches // count
        starts = np.rint(np.linspace(0, patches - side, count)).astype(int)
        patch = size // patches
        spans.append([slice(k * patch, (k + side) * patch) for k in starts.tolist()])
    rows, columns = spans
    cells = tuple((slice(None), row, column) for row in rows for column in columns)
    return (len(rows), len(columns)), cells
