"""Inputs of a measurement inside a running model: the model, and contexts to run it on."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe import families, forward
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.places import Pooling
from posprobe.analyses.models.rotary_use import Origin
from posprobe.analyses.models.states import MeanDecomposition
from posprobe.analyses.result import Result
from posprobe.arrays import Array
from posprobe.errors import PosprobeError, UsageError
from posprobe.forward.averages import check_layers
from posprobe.forward.contexts import check_token_ids, context_length
from posprobe.forward.default_contexts import documentation_windows, photograph_crops
from posprobe.forward.rotary import declared_context
from posprobe.forward.running import image_shape, is_timm
from posprobe.layouts import Sequence as Line, slice_layout
from posprobe.measurements import Measurement
from posprobe.progress import stage
from posprobe.tables import PositionTable
from posprobe.text import Block, format_cell, lookup

_log = logging.getLogger("posprobe")

#: Tokens of a context by default. Song & Zhong take 512.
DEFAULT_CONTEXT_TOKENS = 128
#: An experiment runs each context several times, so it takes no more contexts than this.
MAX_EXPERIMENT_CONTEXTS = 16

#: A context that the model generates takes a step for each token, so they are no more than this.
#: Shares of heads then have standard errors of 0.007 (median of a model of 36 heads).
MAX_SAMPLED_CONTEXTS = 24
#: Kinds of contexts that depend on the seed.
DRAWN_ORIGINS = ("random", "sampled", "photographs")

#: A number of a run: its label, and its text by column, which is a layer or one of the names below.
LabelledRow: TypeAlias = tuple[str, Mapping[int | str, str]]
#: Column of numbers of the model as a whole.
MODEL_COLUMN = "model"
#: Baseline column: the sinusoid of the same shape.
SINUSOID_COLUMN = "sinusoid"
#: Baseline column: the 5 to 95 % range of random walks.
RANDOM_WALK_COLUMN = "random walks"

#: Refusal of a text for a vision model.
IMAGES_MESSAGE = "this model takes images: use `images=DIR`, or neither."

#: Description of random tokens.
RANDOM_TOKENS = "random tokens"

ModelResultT = TypeVar("ModelResultT", bound=Result)


@dataclass(frozen=True)
class Contexts:
    """Contexts that a model is run on.

    Parameters
    ----------
    text
        Text file in UTF-8, cut into windows. Where None, the text is Python's documentation if a
        tokenizer lies beside the model; a causal language model without one is sampled, and other
        models get random tokens.
    images
        Folder of pictures. Where None, they are crops of the photographs of scikit-learn if
        something beside the model says how it takes pictures, and otherwise random pixels.
    tokens
        ``.npy`` file of token ids ``[contexts, tokens]``; ``"random"`` draws random tokens even
        where a tokenizer lies beside the model, or where it could be sampled.
    count
        Largest number of windows or images.
    length
        Tokens per window; None takes `DEFAULT_CONTEXT_TOKENS`, or all positions of a shorter model.
    batch_size
        Windows or images per batch.
    seed
        Random seed.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.Contexts(count=16, length=64)
    Contexts(text=None, images=None, count=16, length=64, batch_size=8, seed=0, tokens=None)
    """

    text: Path | None = None
    images: Path | None = None
    count: int = 64
    length: int | None = None
    batch_size: int = 8
    seed: int = 0
    tokens: Path | Literal["random"] | None = None

    @property
    def is_text(self) -> bool:
        """Whether contexts are windows of a text, or token ids of a file."""
        return bool(self.text) or isinstance(self.tokens, Path)


@dataclass(frozen=True, eq=False)
class ContextSource:
    """Source of the contexts of a run, read before the model's weights.

    Parameters
    ----------
    description
        Description for the page, e.g. "windows of book.txt".
    origin
        Kind of the contexts.
    length
        Tokens of a context; None for images.
    tokenizer
        Tokenizer of a text; None for other contexts.
    windows
        ``[count, length]``, token ids of a text or of a file; None for other contexts.
    preprocess
        Function that turns a Pillow picture into pixels; None for other contexts.
    """

    description: str
    origin: Origin
    length: int | None = None
    tokenizer: Any = None
    windows: NDArray[np.int64] | None = None
    preprocess: Callable[[Any], Any] | None = None


def read_context_source(
    reference: str,
    model: Any,
    contexts: Contexts,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    offline: bool = False,
) -> ContextSource:
    """Read the source of a run's contexts, and refuse contexts that the model does not take.

    Parameters
    ----------
    reference, trust_remote_code, revision, offline
        Options of `posprobe.load_model`.
    model
        Model that `posprobe.load_model` returns, with or without weights.
    contexts
        Contexts to run the model on.

    Raises
    ------
    UsageError
        If the model takes no such contexts, or the checkpoint has no preprocessor for them.
    UnknownReference, InvalidCheckpoint
        If the text or a picture cannot be read.
    """
    _check_contexts(reference, model, contexts)
    load_options: dict[str, Any] = {"revision": revision, "offline": offline}
    if image_shape(model):
        return _read_images(reference, model, contexts, load_options)
    source = _read_tokens(reference, model, contexts, load_options, trust_remote_code)
    stated_length = declared_context(model)
    if source.length and stated_length and source.length > stated_length:
        # Where only distances count, longer contexts than in training can run.
        beyond = (
            f"longer than the {stated_length} positions that the configuration states"
        )
        return replace(source, description=f"{source.description} ({beyond})")
    return source


def _read_tokens(
    reference: str,
    model: Any,
    contexts: Contexts,
    load_options: dict[str, Any],
    trust_remote_code: bool,
) -> ContextSource:
    """Read the source of contexts of tokens."""
    if isinstance(contexts.tokens, Path):
        windows = forward.file_tokens(
            contexts.tokens, count=contexts.count, length=contexts.length
        )
        check_token_ids(windows, model)
        description = f"the token ids in {contexts.tokens.name}"
        return ContextSource(description, "tokens", windows.shape[1], windows=windows)
    length = _choose_length(reference, model, contexts)
    load_options = load_options | {"trust_remote_code": trust_remote_code}
    if contexts.text:
        return _read_text(
            reference, model, contexts.text, length, contexts.count, load_options
        )
    random_source = ContextSource(RANDOM_TOKENS, "random", length)
    if contexts.tokens == "random":
        return random_source
    source = _read_documentation(reference, model, length, contexts.count, load_options)
    if source is not None:
        return source
    if forward.generates(model):
        return ContextSource(
            "contexts that the model itself generates", "sampled", length
        )
    return random_source


def without_sampling(source: ContextSource) -> ContextSource:
    """Take random tokens in place of contexts that a damaged model would have to generate."""
    if source.origin != "sampled":
        return source
    return ContextSource(RANDOM_TOKENS, "random", source.length)


def _choose_length(reference: str, model: Any, contexts: Contexts) -> int:
    """Return the tokens of a context, and refuse more than the model has positions."""
    max_length = context_length(model)
    length = contexts.length or min(
        DEFAULT_CONTEXT_TOKENS, max_length or DEFAULT_CONTEXT_TOKENS
    )
    if max_length and length > max_length:
        raise UsageError(
            f"{reference}: contexts of {length} tokens are longer than the "
            f"{max_length} positions of the model. Use shorter ones "
            "(`length`)."
        )
    return length


def _read_documentation(
    reference: str, model: Any, length: int, count: int, load_options: dict[str, Any]
) -> ContextSource | None:
    """Cut Python's documentation; None where no sound tokenizer lies beside the model."""
    try:
        forward.check_tokenizer_files(reference)
    except UsageError:
        return None
    try:
        tokenizer = forward.load_tokenizer(reference, **load_options)
        windows = documentation_windows(tokenizer, length, count)
        check_token_ids(windows, model)
    except PosprobeError as error:
        _log.warning("%s No text is used.", error)
        return None
    description = "windows of Python's documentation"
    return ContextSource(description, "documentation", length, tokenizer, windows)


def _read_text(
    reference: str,
    model: Any,
    path: Path,
    length: int,
    count: int,
    load_options: dict[str, Any],
) -> ContextSource:
    """Read windows of the user's text."""
    tokenizer = forward.load_tokenizer(reference, **load_options)
    window_batches = forward.text_windows(path, tokenizer, length, count=count)
    windows = np.concatenate(list(window_batches))
    check_token_ids(windows, model)
    description = f"windows of {path.name}"
    if len(windows) > 1 and (windows == windows[0]).all():
        # Equal contexts count as one, because they have no spread from which to take errors.
        description, windows = f"{description}, which are all the same", windows[:1]
    return ContextSource(description, "text", length, tokenizer, windows)


def _read_images(
    reference: str, model: Any, contexts: Contexts, load_options: dict[str, Any]
) -> ContextSource:
    """Find the pictures of a run, and how a model takes them."""
    if contexts.images:
        preprocess = forward.load_preparation(reference, model, **load_options)
        first_image = next(forward.image_files(contexts.images, preprocess, count=1))
        _check_image_shape(reference, model, first_image)
        return ContextSource(
            f"the pictures in {contexts.images.name}", "pictures", preprocess=preprocess
        )
    try:
        preprocess = forward.load_preparation(reference, model, **load_options)
        _check_image_shape(reference, model, next(photograph_crops(preprocess, 1)))
    except PosprobeError:
        return ContextSource("random pixels, independent and normal", "random")
    return ContextSource("crops of two photographs", "photographs", preprocess=preprocess)


def _check_contexts(reference: str, model: Any, contexts: Contexts) -> None:
    """Refuse contexts that the model cannot take at all."""
    shape = image_shape(model)
    refusals = {
        "only timm transformers with blocks over patches are supported, and "
        f"{type(model).__name__} is not one.": not (
            hasattr(model, "config") or is_timm(model)
        ),
        "`length` is for text, and this model takes images.": shape and contexts.length,
        IMAGES_MESSAGE: shape and contexts.text,
        "this model takes images: leave out `tokens`.": shape and contexts.tokens,
        "this model takes text: use `text=FILE`, or neither.": not shape
        and contexts.images,
    }
    for message, applies in refusals.items():
        if applies:
            raise UsageError(f"{reference}: {message}")


def _check_image_shape(reference: str, model: Any, images: Array) -> None:
    """Refuse pictures ``[1, channels, height, width]`` of another shape than the model takes."""
    model_shape = image_shape(model) or ()
    # Models that can interpolate their table to other sizes do so only on request.
    interpolation = inspect.signature(model.forward).parameters.get(
        "interpolate_pos_encoding"
    )
    is_size_fixed = interpolation and not interpolation.default
    pixels, channels = (
        images.shape[2:] if is_size_fixed else model_shape[1:],
        images.shape[1:2],
    )
    for unit, image_size, model_size in (
        ("pixels", pixels, model_shape[1:]),
        ("channels", channels, model_shape[:1]),
    ):
        if tuple(image_size) != tuple(model_size):
            produced, required = (
                " x ".join(map(str, size)) for size in (image_size, model_size)
            )
            raise UsageError(
                f"{reference}: its preprocessor_config.json makes images of "
                f"{produced} {unit}, but the model takes {required}. Fix "
                "that file, or leave out `images`."
            )


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """Inputs of a measurement inside a model.

    Parameters
    ----------
    reference
        Reference of the checkpoint, as typed.
    model
        Model that `posprobe.load_model` returns.
    contexts
        Contexts to run it on. Their seed is the seed of all random draws.
    context_source
        Source that the contexts are read or drawn from.
    positions, layers
        Positions and hidden states to analyse; None for all.
    nulls
        Number of random walks drawn as a baseline for the numbers of a layer.
    measurements
        Names of all measurements that are to be taken: some share a run of the contexts.
    revision, offline
        Options of `posprobe.load_model` for further files of the checkpoint.
    pooling
        How token states become an embedding; None as the model's folder says.
    """

    reference: str
    model: Any
    contexts: Contexts
    context_source: ContextSource
    positions: slice | None
    layers: Sequence[int] | None
    nulls: int
    measurements: Sequence[str]
    revision: str | None
    offline: bool
    pooling: Pooling | None = None

    @property
    def seed(self) -> int:
        """Seed of all random draws."""
        return self.contexts.seed

    @property
    def n_experiment_contexts(self) -> int:
        """Number of contexts for an experiment that runs each several times."""
        return min(self.contexts.count, MAX_EXPERIMENT_CONTEXTS)

    @property
    def takes_images(self) -> bool:
        """Whether the model takes images, not text."""
        return image_shape(self.model) is not None

    @cached_property
    def table(self) -> PositionTable:
        """The position table as stored, read once."""
        return families.load(
            self.reference,
            rows=self.positions,
            revision=self.revision,
            offline=self.offline,
        )

    @cached_property
    def windows(self) -> NDArray[np.int64] | None:
        """Token ids of all contexts ``[count, length]``; None for images and random tokens.

        Contexts that the model generates are sampled once for all measurements.
        """
        source = self.context_source
        if source.origin != "sampled":
            return source.windows
        batches = forward.sampled_tokens(
            self.model,
            source.length or 0,
            min(self.contexts.count, MAX_SAMPLED_CONTEXTS),
            seed=self.seed,
            batch_size=MAX_SAMPLED_CONTEXTS,
        )
        return np.concatenate(list(batches))

    @cached_property
    def states_and_budget(
        self,
    ) -> tuple[MeanDecomposition, AttentionBudget | PosprobeError]:
        """Hidden states and attention budget, for which the contexts run once."""
        return forward.states_and_budget(
            self.model,
            self.batches("hidden states and attention"),
            positions=self.positions,
            layers=self.layers,
            name=self.reference,
        )

    @property
    def mask_token(self) -> int | None:
        """Id of the token that masks others; None without a text's tokenizer."""
        tokenizer = self.context_source.tokenizer
        return None if tokenizer is None else tokenizer.mask_token_id

    def check(self) -> None:
        """Refuse positions and layers that the model does not have.

        Raises
        ------
        UsageError
            If there are no such positions or layers.
        """
        if self.positions is not None and self.context_source.length is not None:
            slice_layout(Line(self.context_source.length), self.positions, self.reference)
        n_blocks = getattr(getattr(self.model, "config", None), "num_hidden_layers", None)
        if isinstance(n_blocks, int) and not hasattr(self.model, "blocks"):
            check_layers(self.layers, n_blocks + 1, self.reference)

    def describe(self) -> dict[str, Any]:
        """Return the contexts' description, shape and seed, by key."""
        contexts, shape = self.contexts, image_shape(self.model)
        origin = self.context_source.origin
        seed = contexts.seed if origin in DRAWN_ORIGINS else None
        size = (
            {"length": self.context_source.length}
            if shape is None
            else {"shape": list(shape)}
        )
        return {
            "kind": self.context_source.description,
            "random": origin == "random",
            **size,
            "seed": seed,
        }

    def batches(
        self,
        label: str,
        count: int | None = None,
        *,
        repeat_token: bool = False,
        leave_room: bool = False,
    ) -> Iterator[Array]:
        """Yield contexts in batches.

        Parameters
        ----------
        label
            Purpose of the run, shown before the progress bar.
        count
            Number of contexts; None takes all.
        repeat_token
            Whether to repeat one random token over each context.
        leave_room
            Whether to halve contexts, so that the model has as many later positions.
        """
        contexts = self.contexts
        count = contexts.count if count is None else count
        batch_size = contexts.batch_size
        draw_options = {"seed": contexts.seed, "batch_size": batch_size}
        shape, length = image_shape(self.model), self.context_source.length or 0
        preprocess, windows = self.context_source.preprocess, self.windows
        batches: Iterator[Array]
        if repeat_token:
            batches = forward.repeated_tokens(
                self.model.config, length, count, **draw_options
            )
        elif contexts.images and preprocess:
            batches = forward.image_files(
                contexts.images, preprocess, count=count, batch_size=batch_size
            )
        elif preprocess:
            batches = photograph_crops(preprocess, count, **draw_options)
        elif shape:
            batches = forward.random_images(shape, count, **draw_options)
        elif windows is not None:
            counted_windows = windows[:count]
            batches = (
                counted_windows[start : start + batch_size]
                for start in range(0, len(counted_windows), batch_size)
            )
        else:
            batches = forward.random_tokens(
                self.model.config, length, count, **draw_options
            )
        if leave_room and (max_length := context_length(self.model)):
            batches = (batch[:, : max(1, max_length // 2)] for batch in batches)
        return _report_progress(batches, label, count)


def _report_progress(batches: Iterable[Array], label: str, count: int) -> Iterator[Array]:
    """Yield batches and report how many contexts were run."""
    with stage(f"Contexts: {label}", count) as advance:
        for batch in batches:
            yield batch
            advance(len(batch))


@dataclass(frozen=True)
class ModelMeasurement(Measurement[ModelInputs, ModelResultT]):
    """A measurement inside a running model.

    Parameters
    ----------
    is_from_weights
        Whether it needs no run. These come first, so that they survive an interrupted run.
    needs_head
        Function from the model without weights to whether drawn contexts need the model's head.
    rows
        Function from the document to the numbers that the page lists.
    """

    is_from_weights: bool = False
    needs_head: Callable[[Any], bool] = lambda _: False
    rows: Callable[[Block], Iterable[LabelledRow]] = lambda _: ()


def needs_text(inputs: ModelInputs) -> str:
    """Say that a model takes no text; empty if it does."""
    return "a model that takes text" if inputs.takes_images else ""


def needs_images(inputs: ModelInputs) -> str:
    """Say that a model takes no images; empty if it does."""
    return "" if inputs.takes_images else "a model that takes images"


def list_by_layer(
    block: Block, label: str, key: str, format_number: Callable[[Any], str] = format_cell
) -> LabelledRow:
    """Return a number of every layer of a block, by its key path there."""
    return label, {
        layer["layer"]: format_number(lookup(layer, key)) for layer in block["layers"]
    }


def format_head_mean(values: Iterable[float | None]) -> str:
    """Format the mean of a number over the heads that have it."""
    defined = [value for value in values if value is not None]
    return format_cell(sum(defined) / len(defined) if defined else None)
