"""What a measurement inside a running model takes: the model, and contexts to run it on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from posprobe import families, forward
from posprobe.analyses.result import Result
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.states import image_shape, is_timm
from posprobe.forward.streaming import context_length
from posprobe.measurements.base import Measurement
from posprobe.tables import PositionTable

#: Tokens of a context unless stated; Song & Zhong take 512.
LENGTH = 128
#: Contexts that the experiments take at most, which run each several times.
FEW = 16

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
    count
        Most contexts that are run.
    length
        Tokens of each; None takes `LENGTH`, or what the model has positions for.
    batch_size
        How many are run at a time.
    seed
        Of random ones.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.Contexts(count=16, length=64)
    Contexts(text=None, images=None, count=16, length=64, batch_size=8, seed=0)
    """

    text: Path | None = None
    images: Path | None = None
    count: int = 64
    length: int | None = None
    batch_size: int = 8
    seed: int = 0


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
    positions, layers
        Which positions and hidden states to look at; None stands for all.
    nulls
        Random walks that the numbers of a layer are compared with.
    trust_remote_code, revision, offline
        How further files of the checkpoint are read, as for `posprobe.load_model`.
    progress
        Whether to show on stderr how far the runs are.
    """

    reference: str
    model: Any
    contexts: Contexts
    positions: slice | None
    layers: Sequence[int] | None
    nulls: int
    trust_remote_code: bool
    revision: str | None
    offline: bool
    progress: bool

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

    @property
    def length(self) -> int:
        """Tokens of a context."""
        longest = context_length(self.model)
        return self.contexts.length or min(LENGTH, longest or LENGTH)

    @cached_property
    def table(self) -> PositionTable:
        """The position table as stored, read once."""
        return families.load(
            self.reference, rows=self.positions, revision=self.revision, offline=self.offline
        )

    @cached_property
    def tokenizer(self) -> Any:
        """Of the text that the model is run on, read once."""
        return forward.load_tokenizer(
            self.reference, trust_remote_code=self.trust_remote_code, revision=self.revision,
            offline=self.offline,
        )  # fmt: skip

    @cached_property
    def windows(self) -> NDArray[np.int64]:
        """``[count, length]``: token ids of the text, cut once."""
        text = cast(Path, self.contexts.text)
        cut = forward.text_windows(text, self.tokenizer, self.length, count=self.contexts.count)
        return np.concatenate(list(cut))

    @property
    def mask_token(self) -> int | None:
        """What masks a token, known only with a text's tokenizer."""
        return self.tokenizer.mask_token_id if self.contexts.text else None

    def describe(self) -> dict[str, Any]:
        """Say what the model is run on, and refuse what it does not take."""
        given, shape = self.contexts, image_shape(self.model)
        if not hasattr(self.model, "config") and not is_timm(self.model):
            raise UsageError(
                f"{self.reference}: of timm only transformers that have blocks over patches can be "
                f"looked into, and {type(self.model).__name__} is none."
            )
        if given.length and shape:
            raise UsageError(
                f"{self.reference}: --length is for text, and this model takes images."
            )
        if given.text and given.images:
            raise UsageError("--text and --images: a model takes one of them.")
        if (given.text and shape) or (given.images and not shape):
            takes = "images: use --images DIR" if shape else "text: use --text FILE"
            raise UsageError(f"{self.reference}: this model takes {takes}, or neither.")
        if shape:
            kind = (
                f"the pictures in {given.images}"
                if given.images
                else "random pixels, independent and normal"
            )
            seed = None if given.images else given.seed
            return {"kind": kind, "shape": list(shape), "seed": seed}
        kind = (
            f"windows of {given.text}"
            if given.text
            else "random tokens, independent and equally likely"
        )
        seed = None if given.text else given.seed
        return {"kind": kind, "length": self.length, "seed": seed}

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
        shape = image_shape(self.model)
        found: Iterator[Array]
        if repeated:
            found = forward.repeated_tokens(
                self.model.config, self.length, count, seed=given.seed, batch_size=size
            )
        elif given.images:
            prepare = forward.load_preparation(
                self.reference, self.model, revision=self.revision, offline=self.offline
            )
            found = forward.image_files(given.images, prepare, count=count, batch_size=size)
        elif shape:
            found = forward.random_images(shape, count, seed=given.seed, batch_size=size)
        elif given.text:
            windows = self.windows[:count]
            found = (windows[begin : begin + size] for begin in range(0, len(windows), size))
        else:
            found = forward.random_tokens(
                self.model.config, self.length, count, seed=given.seed, batch_size=size
            )
        if room and (longest := context_length(self.model)):
            found = (batch[:, : max(1, longest // 2)] for batch in found)
        return _shown(found, label, count) if self.progress else found


def _shown(batches: Iterable[Array], label: str, count: int) -> Iterator[Array]:
    """Yield batches under a bar with rate and time left; a batch counts when it was run."""
    from tqdm import tqdm

    with tqdm(total=count, desc=f"{label:>18}", unit=" contexts", disable=None) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))
        bar.total = bar.n  # there may be fewer than were asked for
        bar.refresh()


@dataclass(frozen=True)
class ModelMeasurement(Measurement[ModelInputs, R]):
    """A measurement inside a running model.

    Parameters
    ----------
    from_weights
        Whether it runs nothing: such are measured first, so that who stops a long run has them.
    """

    from_weights: bool = False


def only_text(given: ModelInputs) -> str:
    """Return what a model that takes images lacks; empty for one that takes text."""
    return "a model that takes text" if given.takes_images else ""


def only_images(given: ModelInputs) -> str:
    """Return what a model that takes text lacks; empty for one that takes images."""
    return "" if given.takes_images else "a model that takes images"
