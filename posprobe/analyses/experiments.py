"""What experiments on a running model found: tokens permuted, positions shifted, images blank.

The experiments themselves are in `posprobe.forward`; here is what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import Result
from posprobe.layouts import Grid, LayoutBlock, describe_layout
from posprobe.schema import Count, Natural, Reasons, Size, limits

#: Why numbers of permutations are unknown.
_UNKNOWN = {
    "special": "all tokens are permuted, none stays",
    "accuracy": "the contexts have no labels",
    "scrambled_accuracy": "the contexts have no labels",
}


class ChangeBlock(TypedDict):
    """What changes when tokens are permuted."""

    tokens: Size
    special: float | None
    accuracy: float | None
    scrambled_accuracy: float | None


class PermutationBlock(TypedDict):
    """Tokens permuted, with the position table and with zeros in its place."""

    contexts: Natural
    seed: int
    table: str
    with_positions: ChangeBlock
    without_positions: ChangeBlock
    undefined: Reasons


@dataclass(frozen=True)
class Change:
    """What changes when a model's tokens are permuted.

    Parameters
    ----------
    tokens
        Relative change of the last hidden states, each compared with that of the same token at its
        new place: 0 where the model knows no order.
    special
        Relative change of the last hidden states of tokens that stay, such as CLS of an image
        model; None where there are none.
    accuracy, scrambled_accuracy
        Share of the contexts that are classified right, as they are and permuted; None without
        labels.
    """

    tokens: float
    special: float | None
    accuracy: float | None
    scrambled_accuracy: float | None

    def summary(self) -> ChangeBlock:
        """Return the numbers."""
        return {
            "tokens": self.tokens,
            "special": self.special,
            "accuracy": self.accuracy,
            "scrambled_accuracy": self.scrambled_accuracy,
        }


#: Why numbers of permutations are unknown.
_UNKNOWN = {
    "special": "all tokens are permuted, none stays",
    "accuracy": "the contexts have no labels",
    "scrambled_accuracy": "the contexts have no labels",
}


@dataclass(frozen=True, repr=False)
class PermutationEffect(Result):
    """The experiment on a model as it is and on the same model with its position table set to 0.

    Parameters
    ----------
    with_positions, without_positions
        What changes.
    contexts
        How many were permuted, each in its own way.
    seed
        Of the permutations.
    table
        Name of the parameter that was set to 0.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    """

    figures: ClassVar[str] = "model_permutation"

    with_positions: Change
    without_positions: Change
    contexts: int
    seed: int
    table: str
    stopped: bool = False

    def summary(self) -> PermutationBlock:
        """Return the numbers of both models."""
        return {
            "contexts": self.contexts,
            "seed": self.seed,
            "table": self.table,
            "with_positions": self.with_positions.summary(),
            "without_positions": self.without_positions.summary(),
            "undefined": {
                name: why
                for name, why in _UNKNOWN.items()
                if getattr(self.with_positions, name) is None
            },
        }


class PhaseShiftBlock(TypedDict):
    """The same contexts with positions counted from a later one."""

    contexts: Natural
    shifts: Annotated[list[Count], limits(minItems=1)]
    change: list[Size]
    loss: Annotated[list[float] | None, "Nats per predicted token, by shift."]
    task: str | None
    undefined: Reasons


@dataclass(frozen=True, eq=False, repr=False)
class PhaseShift(Result):
    """The same contexts with all positions counted from a later one (Sinha et al. 2022).

    Parameters
    ----------
    shifts
        ``[s]``, rising from 0: position of the first token.
    change
        ``[s]``: relative change of the last hidden states against those at shift 0. Where only
        distances count it is rounding.
    loss
        ``[s]``: mean cross-entropy per predicted token, in nats; its exponential is the perplexity.
        None for a model without a language-modelling head, or whose mask is not known.
    task
        What the model predicts: ``"next token"``, ``"masked token"`` or empty.
    contexts
        How many were run.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    """

    figures: ClassVar[str] = "model_shift"

    shifts: NDArray[np.int64]
    change: NDArray[np.float64]
    loss: NDArray[np.float64] | None
    task: str
    contexts: int
    stopped: bool = False

    def summary(self) -> PhaseShiftBlock:
        """Return the numbers at every shift."""
        return {
            "contexts": self.contexts,
            "shifts": self.shifts.tolist(),
            "change": self.change.tolist(),
            "loss": None if self.loss is None else self.loss.tolist(),
            "task": self.task or None,
            "undefined": {} if self.loss is not None else {"loss": self._why()},
        }

    def _why(self) -> str:
        if self.task:
            return "which token masks another is not known without a tokenizer"
        return "the model was loaded without a head that predicts tokens"


class PatternBlock(TypedDict):
    """What differs between the patches of one image."""

    share: float | None
    alignment: float | None
    cka: float | None


class LayerPatternsBlock(TypedDict):
    """The same at one layer."""

    layer: Count
    constant: PatternBlock
    noise: PatternBlock


class BlankBlock(TypedDict):
    """Images without content."""

    layout: LayoutBlock
    seed: int
    table: str
    layers: Annotated[list[LayerPatternsBlock], limits(minItems=1)]
    undefined: Reasons


@dataclass(frozen=True, eq=False)
class Pattern:
    """What differs between the patches of one image without content, at one layer.

    Parameters
    ----------
    share
        Squared norm of the states less their mean over patches, over that of the states.
    alignment
        Mean over patches of the cosine of a patch's state with the row of its position in the
        table, both less their means over patches; None where either has no direction.
    cka
        Debiased linear CKA of states and table, which a rotation between the two leaves as it is;
        None where either is constant.
    norms
        ``[h, w]``: norm of each patch's state less the mean of all.
    """

    share: float | None
    alignment: float | None
    cka: float | None
    norms: NDArray[np.float64]

    def summary(self) -> PatternBlock:
        """Return the numbers."""
        return {"share": self.share, "alignment": self.alignment, "cka": self.cka}


@dataclass(frozen=True, eq=False, repr=False)
class BlankImages(Result):
    """Hidden states of images without content, which only positions can tell apart.

    Yang et al. 2024 (Denoising Vision Transformers) find the grid pattern of such images in the
    features of ordinary ones.

    Parameters
    ----------
    constant
        By layer, 0 being what enters the first: an image of zeros, the mean grey.
    noise
        By layer: one image of independent normal pixels.
    layout
        Of the patches.
    seed
        Of the noise.
    table
        Name of the parameter that states are compared with.
    """

    figures: ClassVar[str] = "model_blank"

    constant: Mapping[int, Pattern]
    noise: Mapping[int, Pattern]
    layout: Grid
    seed: int
    table: str

    def summary(self) -> BlankBlock:
        """Return the numbers per layer."""
        patterns = [*self.constant.values(), *self.noise.values()]
        undefined = {}
        if any(pattern.alignment is None for pattern in patterns):
            undefined["alignment"] = (
                "the patches' states or rows are all alike, or their widths differ"
            )
        if any(pattern.cka is None for pattern in patterns):
            undefined["cka"] = "the patches' states or rows are all alike, or there are too few"
        if any(pattern.share is None for pattern in patterns):
            undefined["share"] = "all hidden states are 0"
        return {
            "layout": describe_layout(self.layout),
            "seed": self.seed,
            "table": self.table,
            "layers": [
                {
                    "layer": number,
                    "constant": pattern.summary(),
                    "noise": self.noise[number].summary(),
                }
                for number, pattern in self.constant.items()
            ],
            "undefined": undefined,
        }
