"""What a model loses at each token of a text, context by context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.failing import refuse_overflow
from posprobe.forward.models import required
from posprobe.forward.shift import predicted, prediction
from posprobe.forward.streaming import stream
from posprobe.forward.substitute import AT_A_TIME, outputs_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class TokenLosses:
    """Losses of the tokens of some contexts.

    Parameters
    ----------
    task
        ``next token`` or ``masked token``.
    losses
        ``[c, t]`` in nats, at the position whose output predicts; 0 where nothing is predicted.
    counted
        ``[c, t]``: where something is.
    """

    task: str
    losses: Floats
    counted: Floats

    @property
    def contexts(self) -> int:
        """How many were run."""
        return len(self.losses)

    def __add__(self, other: TokenLosses) -> TokenLosses:
        return TokenLosses(
            self.task,
            np.concatenate([self.losses, other.losses]),
            np.concatenate([self.counted, other.counted]),
        )


def token_losses(
    model: Any, batches: Iterable[Array], *, mask_token: int | None, seed: int, name: str
) -> TokenLosses:
    """Run a model with a head on contexts, and take the loss of each token.

    Parameters
    ----------
    model, batches, mask_token, seed, name
        As for `posprobe.substitution_effect`.

    Raises
    ------
    UsageError
        If its head predicts no tokens of a text.
    InvalidTable
        If a loss is not finite.
    """
    task = ""

    def measure(
        batch: torch.Tensor, sums: Mapping[int, TokenLosses]
    ) -> tuple[None, dict[int, TokenLosses]]:
        nonlocal task
        task = task or predicted(model, batch, name)
        done = sums[0].contexts if sums else 0
        given, wanted = prediction(task, batch, mask_token, seed, done)
        logits = None if wanted is None else outputs_of(model, given)
        if logits is None or wanted is None:
            raise UsageError(
                f"{name}: {type(model).__name__} predicts no tokens of a text, so that it has no "
                "loss. Leave out --text."
            )
        losses = _losses(logits, wanted)
        refuse_overflow(model, required("torch").as_tensor(losses), "the losses", name, done)
        found = TokenLosses(task, losses, (wanted != -100).cpu().numpy() * 1.0)
        return None, {0: found}

    _, sums, stopped = stream(model, batches, measure, name)
    if stopped:
        raise KeyboardInterrupt  # models are compared on the same contexts only
    return sums[0]


def _losses(logits: torch.Tensor, wanted: torch.Tensor) -> Floats:
    pt = required("torch")
    wide = pt.float32 if logits.device.type == "mps" else pt.float64
    flat, right = logits.flatten(0, 1), wanted.flatten().to(logits.device)
    size = max(1, AT_A_TIME // flat.shape[1])
    found = np.empty(len(flat))
    for begin in range(0, len(flat), size):
        some = slice(begin, begin + size)
        part = pt.nn.functional.cross_entropy(
            flat[some].to(wide), right[some], reduction="none", ignore_index=-100
        )
        found[some] = part.cpu().numpy()
    return found.reshape(wanted.shape)
