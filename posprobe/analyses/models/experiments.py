"""What experiments on a running model found: tokens permuted, positions shifted, images blank.

The experiments themselves are in `posprobe.forward`; here is what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import HIDDEN, As, Part, Result, Stored
from posprobe.layouts import Grid
from posprobe.schema import Count, Natural, Reasons, Size, limits


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

    tokens: Size
    special: float | None
    accuracy: float | None
    scrambled_accuracy: float | None


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

    figures: ClassVar[str] = "experiments.plot_permutation"

    with_positions: Change
    without_positions: Change
    contexts: Natural
    seed: int
    table: str
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None."""
        known = self.with_positions
        return {name: why for name, why in _UNKNOWN.items() if getattr(known, name) is None}


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

    figures: ClassVar[str] = "experiments.plot_phase_shift"

    shifts: Annotated[NDArray[np.int64], As(list[Count]), limits(minItems=1), Stored("shifts")]
    change: Annotated[NDArray[np.float64], As(list[Size]), Stored("shift_change")]
    loss: Annotated[NDArray[np.float64] | None, "Nats per predicted token, by shift."]
    task: Annotated[str, As(str | None, lambda found: found.task or None)]
    contexts: Natural
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for a loss that is None."""
        return {} if self.loss is not None else {"loss": self._why()}

    def _why(self) -> str:
        if self.task:
            return "which token masks another is not known without a tokenizer"
        return "the model was loaded without a head that predicts tokens"


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
    norms: Annotated[NDArray[np.float64], Stored("blank")]


@dataclass(frozen=True)
class LayerPatterns:
    """The same of both images at one layer."""

    constant: Annotated[Pattern, Part(stored="_constant")]
    noise: Annotated[Pattern, Part(stored="_noise")]


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

    figures: ClassVar[str] = "experiments.plot_blank"

    constant: Annotated[Mapping[int, Pattern], HIDDEN]
    noise: Annotated[Mapping[int, Pattern], HIDDEN]
    layout: Grid
    seed: int
    table: str

    @property
    def layers(
        self,
    ) -> Annotated[Mapping[int, LayerPatterns], limits(minItems=1), Part()]:
        """Both by layer."""
        return {k: LayerPatterns(pattern, self.noise[k]) for k, pattern in self.constant.items()}

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        reasons = {
            "alignment": "the patches' states or rows are all equal, or their widths differ",
            "cka": "the patches' states or rows are all equal, or there are too few",
            "share": "all hidden states are 0",
        }
        patterns = [*self.constant.values(), *self.noise.values()]
        lacking = {key for key in reasons if any(getattr(p, key) is None for p in patterns)}
        return {key: why for key, why in reasons.items() if key in lacking}
