"""What a measurement inside a running model takes: the model, and contexts to run it on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe import families, forward
from posprobe.analyses.result import Result
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.averages import check_layers
from posprobe.forward.contexts import check_ids, context_length
from posprobe.forward.running import image_shape, is_timm
from posprobe.layouts import Sequence as Line, cut
from posprobe.measurements import Measurement
from posprobe.progress import stage
from posprobe.tables import PositionTable
from posprobe.text import Block, cell, lookup

#: Tokens of a context unless stated; Song & Zhong take 512.
LENGTH = 128
#: Contexts that the experiments take at most, which run each several times.
FEW = 16

#: A number of a run: what it is called, and how it is written by column, which is a layer or one
#: of the names below.
LabelledRow: TypeAlias = tuple[str, Mapping[int | str, str]]
#: Of the model as a whole; of its table; and what stands beside the numbers of layers.
WHOLE, STORED, SEEN = "model", "table as stored", "table as attention sees it"
SINUSOID, WALKS = "sinusoid", "random walks"

#: Of a vision model that is given a text.
TAKES_IMAGES = "this model takes images: use --images DIR, or neither."

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Contexts:
    """What a model is run on.

    Parameters
    ----------
    text
        File in UTF-8, cut into windows; None draws random tokens.
    images
        Folder of pictures; None draws random pixels.
    tokens
        File ``.npy`` of token ids ``[contexts, tokens]``; ``"random"`` draws random tokens even
        where a measurement would sample them from the model.
    count
        Largest number of windows or images.
    length
        Tokens per window; None takes `LENGTH`, or what the model has positions for.
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
    def is_random(self) -> bool:
        """Whether they are drawn: neither text, nor pictures, nor token ids of a file."""
        return not (self.is_text or self.images)

    @property
    def is_text(self) -> bool:
        """Whether they are a text, or token ids of a file."""
        return bool(self.text) or isinstance(self.tokens, Path)


@dataclass(frozen=True, eq=False)
class Material:
    """What the contexts of a run are made of, read before the model's weights are.

    Parameters
    ----------
    kind
        In words.
    length
        Tokens of a context; None of images.
    tokenizer, windows
        Of a text: what reads it. Of a text or a file of token ids: ``[count, length]``, cut once.
    prepare
        Turns a picture of Pillow into pixels.
    """

    kind: str
    length: int | None = None
    tokenizer: Any = None
    windows: NDArray[np.int64] | None = None
    prepare: Callable[[Any], Any] | None = None


def read_material(
    reference: str,
    model: Any,
    given: Contexts,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    offline: bool = False,
) -> Material:
    """Read what a model is to be run on, and refuse what it does not take.

    Parameters
    ----------
    reference, trust_remote_code, revision, offline
        As for `posprobe.load_model`.
    model
        As that returns it, with or without weights.
    given
        What to run it on.

    Raises
    ------
    UsageError
        If the model takes no such contexts, or nothing beside it says how.
    UnknownReference, InvalidCheckpoint
        If the text or a picture cannot be read.
    """
    shape = image_shape(model)
    refused = {
        "only timm transformers with blocks over patches are supported, and "
        f"{type(model).__name__} is not one.": not (hasattr(model, "config") or is_timm(model)),
        "--length is for text, and this model takes images.": shape and given.length,
        TAKES_IMAGES: shape and given.text,
        "this model takes images: leave out --tokens.": shape and given.tokens,
        "this model takes text: use --text FILE, or neither.": not shape and given.images,
    }
    for why, applies in refused.items():
        if applies:
            raise UsageError(f"{reference}: {why}")
    where: dict[str, Any] = {"revision": revision, "offline": offline}
    if given.images and shape:
        prepare = forward.load_preparation(reference, model, **where)
        _check_pictures(reference, model, next(forward.image_files(given.images, prepare, count=1)))
        return Material(f"the pictures in {given.images}", prepare=prepare)
    if shape:
        return Material("random pixels, independent and normal")
    if isinstance(given.tokens, Path):
        windows = forward.file_tokens(given.tokens, count=given.count, length=given.length)
        check_ids(windows, model)
        return Material(f"the token ids in {given.tokens}", windows.shape[1], windows=windows)
    longest = context_length(model)
    length = given.length or min(LENGTH, longest or LENGTH)
    if longest and length > longest:
        raise UsageError(
            f"{reference}: contexts of {length} tokens are longer than the {longest} positions of "
            "the model. Use shorter ones: --length."
        )
    if not given.text:
        return Material("random tokens, independent and equally likely", length)
    tokenizer = forward.load_tokenizer(reference, trust_remote_code=trust_remote_code, **where)
    cut = forward.text_windows(given.text, tokenizer, length, count=given.count)
    windows = np.concatenate(list(cut))
    check_ids(windows, model)
    kind = f"windows of {given.text}"
    if len(windows) > 1 and (windows == windows[0]).all():
        # The same context again and again is one context: there is no spread to take errors from.
        kind, windows = f"{kind}, which are all the same", windows[:1]
    return Material(kind, length, tokenizer, windows)


def _check_pictures(reference: str, model: Any, made: Array) -> None:
    """Refuse pictures ``[1, channels, height, width]`` of another shape than the model takes."""
    takes = image_shape(model) or ()
    # Models that can stretch their table to other sizes do so on request alone.
    stretch = inspect.signature(model.forward).parameters.get("interpolate_pos_encoding")
    fixed = stretch and not stretch.default
    for what, one, other in (
        ("images of {} pixels", made.shape[2:] if fixed else takes[1:], takes[1:]),
        ("images of {} channels", made.shape[1:2], takes[:1]),
    ):
        if tuple(one) != tuple(other):
            own, needed = (" x ".join(map(str, each)) for each in (one, other))
            raise UsageError(
                f"{reference}: its preprocessor_config.json makes {what.format(own)}, but the "
                f"model takes {needed}. Fix that file, or leave out --images."
            )


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """What a measurement inside a model takes.

    Parameters
    ----------
    reference
        Of the checkpoint, as typed.
    model
        As `posprobe.load_model` returns it.
    contexts
        What it is run on; their seed is that of everything that is drawn.
    material
        What they are made of.
    positions, layers
        Which positions and hidden states to look at; None stands for all.
    nulls
        Random walks drawn as a baseline for the numbers of a layer.
    revision, offline
        How further files of the checkpoint are read, as for `posprobe.load_model`.
    """

    reference: str
    model: Any
    contexts: Contexts
    material: Material
    positions: slice | None
    layers: Sequence[int] | None
    nulls: int
    revision: str | None
    offline: bool

    @property
    def seed(self) -> int:
        """Of everything that is drawn."""
        return self.contexts.seed

    @property
    def few(self) -> int:
        """How many contexts an experiment takes that runs each several times."""
        return min(self.contexts.count, FEW)

    @property
    def takes_images(self) -> bool:
        """Whether the model takes images, not text."""
        return image_shape(self.model) is not None

    @cached_property
    def table(self) -> PositionTable:
        """The position table as stored, read once."""
        return families.load(
            self.reference, rows=self.positions, revision=self.revision, offline=self.offline
        )

    @property
    def mask_token(self) -> int | None:
        """What masks a token, known only with a text's tokenizer."""
        tokenizer = self.material.tokenizer
        return None if tokenizer is None else tokenizer.mask_token_id

    def check(self) -> None:
        """Refuse positions and layers that the model is known not to have.

        Raises
        ------
        UsageError
            If there are no such positions or layers.
        """
        if self.positions is not None and self.material.length is not None:
            cut(Line(self.material.length), self.positions, self.reference)
        blocks = getattr(getattr(self.model, "config", None), "num_hidden_layers", None)
        if isinstance(blocks, int) and not hasattr(self.model, "blocks"):
            check_layers(self.layers, blocks + 1, self.reference)

    def describe(self) -> dict[str, Any]:
        """Say what the model is run on."""
        given, shape = self.contexts, image_shape(self.model)
        seed = given.seed if given.is_random else None
        size = {"length": self.material.length} if shape is None else {"shape": list(shape)}
        return {
            "kind": self.material.kind, "random": given.is_random, **size, "seed": seed,
        }  # fmt: skip

    def batches(
        self, label: str, count: int | None = None, *, repeated: bool = False, room: bool = False
    ) -> Iterator[Array]:
        """Yield contexts in batches.

        Parameters
        ----------
        label
            What they are run for, before the bar that shows how far the run is.
        count
            How many; None takes all.
        repeated
            Whether each is one random token, repeated.
        room
            Whether they are so short that the model has as many later positions again.
        """
        given = self.contexts
        count = given.count if count is None else count
        size = given.batch_size
        drawn = {"seed": given.seed, "batch_size": size}
        shape, length = image_shape(self.model), self.material.length or 0
        prepare, windows = self.material.prepare, self.material.windows
        found: Iterator[Array]
        if repeated:
            found = forward.repeated_tokens(self.model.config, length, count, **drawn)
        elif given.images and prepare:
            found = forward.image_files(given.images, prepare, count=count, batch_size=size)
        elif shape:
            found = forward.random_images(shape, count, **drawn)
        elif windows is not None:
            kept = windows[:count]
            found = (kept[begin : begin + size] for begin in range(0, len(kept), size))
        else:
            found = forward.random_tokens(self.model.config, length, count, **drawn)
        if room and (longest := context_length(self.model)):
            found = (batch[:, : max(1, longest // 2)] for batch in found)
        return _shown(found, label, count)


def _shown(batches: Iterable[Array], label: str, count: int) -> Iterator[Array]:
    """Yield batches and tell how many were run."""
    with stage(f"Contexts: {label}", count) as done:
        for batch in batches:
            yield batch
            done(len(batch))


@dataclass(frozen=True)
class ModelMeasurement(Measurement[ModelInputs, R]):
    """A measurement inside a running model.

    Parameters
    ----------
    from_weights
        Whether it runs nothing: such are measured first, so that who stops a long run has them.
    head
        From the model without weights, whether it needs the model's head where contexts are drawn.
    rows
        From the document, its numbers as the page lists them.
    """

    from_weights: bool = False
    head: Callable[[Any], bool] = lambda _: False
    rows: Callable[[Block], Iterable[LabelledRow]] = lambda _: ()


def only_text(given: ModelInputs) -> str:
    """Return what a model that takes images lacks; empty for one that takes text."""
    return "a model that takes text" if given.takes_images else ""


def only_images(given: ModelInputs) -> str:
    """Return what a model that takes text lacks; empty for one that takes images."""
    return "" if given.takes_images else "a model that takes images"


def by_layer(block: Block, label: str, key: str, write: Callable[[Any], str] = cell) -> LabelledRow:
    """Return a number of every layer of a block, by its key path there."""
    return label, {layer["layer"]: write(lookup(layer, key)) for layer in block["layers"]}


def mean_over_heads(values: Iterable[float | None]) -> str:
    """Write the mean over the heads of which a number is known."""
    known = [value for value in values if value is not None]
    return cell(sum(known) / len(known) if known else None)
