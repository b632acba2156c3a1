"""Which places of an input count for what a model puts out: texts, next tokens and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.places import (
    MIN_PLACE_UNITS,
    Places,
    Pooling,
    divide_last_slot,
)
from posprobe.analyses.models.rotary_use import Origin
from posprobe.arrays import Array, Floats
from posprobe.errors import UsageError
from posprobe.forward.attention_inputs import promote_half
from posprobe.forward.contexts import check_padding, context_length, generates
from posprobe.forward.experiments import (
    compute_logits,
)
from posprobe.forward.files import load_tokenizer
from posprobe.forward.models import evaluation_mode, import_package, unwrap_model
from posprobe.forward.place_embeddings import Embedder, summarise_embeddings
from posprobe.forward.place_replacements import (
    Output,
    Replacements,
    block_slices,
    cosine_distance,
    divergence,
    draw_donors,
    prediction_log_probabilities,
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
from posprobe.forward.pooling import EmbeddingRecipe, frame_text, pool_states, read_recipe
from posprobe.forward.running import (
    LAST_STATES,
    check_finite,
    compute_final_states,
    find_layout,
    image_shape,
)
from posprobe.layouts import Grid

if TYPE_CHECKING:
    import torch


#: Most rows or columns of cells of an image.
MAX_CELL_ROWS = 4


def places(
    model: Any,
    contexts: Array | Iterable[Array],
    *,
    pooling: Pooling | EmbeddingRecipe | None = None,
    lengths: int | Sequence[int] | None = None,
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
        contexts, or what the tokenizer puts there if the model's folder states a prompt.
    source
        Kind of the contexts, for the result.
    seed
        Random seed of chunks, replacements and permutations.
    name
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If contexts are too few or too short, padded or no token ids, a length cannot be measured,
        the model gives no such output, or a batch does not fit into memory.
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
    model = unwrap_model(model)
    title = name or type(model).__name__
    inputs = _stack_contexts(contexts, title)
    subject = Subject(model, inputs, title, seed, source)
    if image_shape(model) is not None:
        return _summarise_images(subject)
    _check_tokens(model, inputs, title)
    chosen_lengths = _read_lengths(lengths)
    recipe, notes = _choose_recipe(model, pooling, title)
    if recipe is None:
        return _summarise_predictions(subject, chosen_lengths)
    frame = special_tokens or _frame_tokens(model, recipe, inputs)
    embedder = Embedder(model, recipe, title, tuple(frame[0]), tuple(frame[1]))
    return replace(summarise_embeddings(subject, embedder, chosen_lengths), notes=notes)


def _stack_contexts(contexts: Array | Iterable[Array], title: str) -> NDArray[Any]:
    """Return all contexts as one array, from an array or batches."""
    batches = [contexts] if hasattr(contexts, "ndim") else list(contexts)
    arrays = [_to_numpy(batch) for batch in batches]
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
            "Use more (`contexts`)."
        )
    return stacked


def _to_numpy(batch: Array) -> NDArray[Any]:
    """Return a batch as an array; NumPy has no bfloat16."""
    if hasattr(batch, "cpu"):
        batch = promote_half(batch).cpu()
    return np.asarray(batch)


def _check_tokens(model: Any, tokens: NDArray[Any], title: str) -> None:
    """Refuse contexts of a text model that are no token ids, or have padding."""
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        raise UsageError(
            f"{title}: contexts of shape {list(tokens.shape)}, {tokens.dtype}: it takes integer "
            "token ids [contexts, tokens]."
        )
    check_padding(model, tokens, title)


def _read_lengths(lengths: int | Sequence[int] | None) -> list[int] | None:
    """Return lengths as a list; None without."""
    if lengths is None:
        return None
    values = np.atleast_1d(np.asarray(lengths))
    if values.ndim != 1 or values.dtype.kind not in "iu" or (values < 1).any():
        raise UsageError(f"lengths={lengths!r:.60}: choose numbers of tokens.")
    return [int(length) for length in values]


def _describe_recipe(recipe: EmbeddingRecipe) -> str:
    """Return a note on how token states become an embedding."""
    poolings = {
        "mean": "the mean of all tokens",
        "cls": "the first token",
        "last": "the last token",
    }
    cut = f", of texts cut at {recipe.max_tokens:,} tokens" if recipe.max_tokens else ""
    return f"The embedding is {poolings[recipe.pooling]}{cut}"


def _frame_tokens(
    model: Any, recipe: EmbeddingRecipe, tokens: NDArray[Any]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the tokens around each text: with the prompt of a model's folder, if it has one."""
    if not recipe.prompt:
        return _common_ends(tokens)
    return frame_text(load_tokenizer(model.config._name_or_path), recipe.prompt)


def _choose_recipe(
    model: Any, pooling: Pooling | EmbeddingRecipe | None, title: str
) -> tuple[EmbeddingRecipe | None, tuple[str, ...]]:
    """Return how a text model pools, None where it predicts tokens, and a note."""
    if isinstance(pooling, EmbeddingRecipe):
        return pooling, (_describe_recipe(pooling),)
    if pooling is not None:
        if pooling not in get_args(Pooling):
            names = ", ".join(get_args(Pooling))
            raise UsageError(
                f"pooling {pooling!r:.40} is unknown. Choose one of {names}."
            )
        return EmbeddingRecipe(pooling), ()
    path = getattr(getattr(model, "config", None), "_name_or_path", "")
    if path and (Path(path) / "modules.json").is_file():
        recipe = read_recipe(path)
        return recipe, () if recipe is None else (_describe_recipe(recipe),)
    if generates(model):
        return None, ()
    return EmbeddingRecipe("mean"), (
        f"{title} does not say how it pools token states: the mean is assumed",
    )


def _common_ends(tokens: NDArray[Any]) -> tuple[list[int], list[int]]:
    """Return the token that begins all contexts, if there is one, and that which ends them."""
    first, last = (
        [int(column[0])] if (column == column[0]).all() else []
        for column in (tokens[:, 0], tokens[:, -1])
    )
    return first, last


def _summarise_predictions(subject: Subject, lengths: Sequence[int] | None) -> Places:
    """Measure the influence of places on the next token."""
    contexts = subject.contexts[:MAX_PLACE_DOCUMENTS]
    start_tokens, _ = _common_ends(contexts)
    max_tokens = min(contexts.shape[1], context_length(subject.model) or MAX_PLACE_TOKENS)
    chosen_lengths = lengths or [
        round(share * max_tokens) for share in PLACE_LENGTH_SHARES
    ]
    min_tokens = N_PLACE_SLOTS + len(start_tokens)
    fitting = sorted({n for n in chosen_lengths if min_tokens <= n <= max_tokens})
    if lengths and len(fitting) < len(set(lengths)):
        raise UsageError(
            f"{subject.title}: lengths {lengths}: contexts of {contexts.shape[1]} tokens can be "
            f"measured at {min_tokens} to {max_tokens}. Use longer contexts, or other lengths."
        )
    if not fitting:
        raise UsageError(
            f"{subject.title}: contexts of {contexts.shape[1]} tokens are too short to tell "
            f"{N_PLACE_SLOTS} places apart. Use longer ones (`length`)."
        )
    tasks = [
        _prediction_task(subject, contexts, start_tokens, tokens) for tokens in fitting
    ]
    results, is_interrupted = run_tasks(subject, tasks)
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
    subject: Subject, contexts: NDArray[Any], start_tokens: list[int], tokens: int
) -> LengthTask:
    """Return the task of the last tokens of all contexts, after the token that begins them."""
    n_start = len(start_tokens)
    ends = contexts[:, contexts.shape[1] - tokens + n_start :]
    documents = np.concatenate([contexts[:, :n_start], ends], axis=1).astype(np.int64)
    layout = divide_last_slot((tokens - n_start) // N_PLACE_SLOTS)
    rng = np.random.default_rng([subject.seed, tokens])
    replacements = Replacements(
        documents,
        text_slots(tokens, layout.slot_tokens),
        draw_donors(len(documents), N_PLACE_SLOTS, 1, rng),
        block_slices(layout),
    )

    def compute(batch: torch.Tensor, n_previous: int) -> Floats:
        return prediction_log_probabilities(
            subject.model, batch, subject.title, n_previous
        )

    return replacement_task(
        replacements,
        Output(compute, divergence),
        tokens=tokens,
        caused_reason="positions are reversed for embeddings alone",
        layout=layout,
    )


def _summarise_images(subject: Subject) -> Places:
    """Measure the influence of the cells of the patch grid."""
    images = subject.contexts[:MAX_PLACE_DOCUMENTS]
    grid, output, pooling = _image_output(subject)
    shape, cells = _image_cells(images.shape[2:], grid)
    rng = np.random.default_rng([subject.seed, grid.size])
    task = replacement_task(
        Replacements(images, cells, draw_donors(len(images), len(cells), 1, rng)),
        output,
        tokens=grid.size,
        caused_reason="positions are reversed for embeddings of texts alone",
        is_line=False,
    )
    results, is_interrupted = run_tasks(subject, [task])
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


def _image_output(subject: Subject) -> tuple[Grid, Output, Pooling | None]:
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
        return grid, Output(classify, divergence), None
    return grid, Output(embed, cosine_distance), recipe.pooling


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
