"""What the head of a model predicts, and what it loses at each token of a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from posprobe.arrays import Array, Floats, Sums
from posprobe.errors import UsageError
from posprobe.forward.contexts import generates, stream
from posprobe.forward.models import required
from posprobe.forward.running import (
    LAST,
    body_of,
    final_states,
    is_timm,
    refuse_overflow,
    running,
    squared_norms,
    wide,
)

if TYPE_CHECKING:
    import torch


#: Share of the tokens that a masked model has to guess (Devlin et al. 2019, section 3.1).
MASKED = 0.15
#: Parts of the names of models whose heads give answers: probabilities of tokens, or of classes.
TASKS = (
    "LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification",
    "ForTokenClassification", "ForImageClassification",
)  # fmt: skip
#: Numbers of which probabilities are computed at a time, in double precision.
AT_A_TIME = 2**23


@dataclass(frozen=True, eq=False)
class TokenLosses(Sums):
    """Losses of the tokens of some contexts.

    Parameters
    ----------
    losses
        ``[c, t]`` in nats, at the position whose output predicts; 0 where nothing is predicted.
    counted
        ``[c, t]``: where something is.
    task
        ``next token`` or ``masked token``.
    """

    axes: ClassVar[Mapping[str, int]] = {"losses": 0, "counted": 0}

    losses: Floats
    counted: Floats
    task: str = ""

    @property
    def contexts(self) -> int:
        """How many were run."""
        return len(self.losses)


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

    def measure(batch: torch.Tensor, sums: Mapping[int, TokenLosses]) -> dict[int, TokenLosses]:
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
        return {0: TokenLosses(losses, (wanted != -100).cpu().numpy() * 1.0)}

    sums, stopped = stream(model, batches, measure, name)
    if stopped:
        raise KeyboardInterrupt  # models are compared on the same contexts only
    return replace(sums[0], task=task)


def _losses(logits: torch.Tensor, wanted: torch.Tensor) -> Floats:
    pt = required("torch")
    flat, right = logits.flatten(0, 1), wanted.flatten().to(logits.device)
    size = max(1, AT_A_TIME // flat.shape[1])
    found = np.empty(len(flat))
    for begin in range(0, len(flat), size):
        some = slice(begin, begin + size)
        part = pt.nn.functional.cross_entropy(
            wide(flat[some]), right[some], reduction="none", ignore_index=-100
        )
        found[some] = part.cpu().numpy()
    return found.reshape(wanted.shape)


def predicted(model: Any, batch: torch.Tensor, title: str) -> str:
    """Say what a model with a language-modelling head predicts; empty for another."""
    if type(model).__name__.endswith("ForMaskedLM"):
        return "masked token"
    if not generates(model) or batch.shape[1] < 2:
        return ""
    # Names promise more than models keep: XLM's head looks at the tokens that it would predict.
    other = batch[:1].clone()
    other[:, -1] = batch[:1, 0]
    if bool((other == batch[:1]).all()):
        other[:, -1] = (other[:, -1] + 1) % model.config.vocab_size
    one, two = (final_states(model, given)[:, :-1] for given in (batch[:1], other))
    refuse_overflow(model, one, LAST, title)
    before, change = squared_norms(one, two)
    rounding = 8 * required("torch").finfo(one.dtype).eps
    return "next token" if change <= rounding**2 * before else ""


def prediction(
    kind: str, batch: torch.Tensor, mask: int | None, seed: int, done: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return what the model is given, and ``[b, t]`` the tokens it has to predict, -100 for none.

    A predicted token stands at the place whose output predicts it.
    """
    pt = required("torch")
    if kind == "next token":
        nothing = pt.full_like(batch[:, :1], -100)
        return batch, pt.cat([batch[:, 1:], nothing], dim=1)
    if kind != "masked token" or mask is None:
        return batch, None
    # The choice belongs to its context, however contexts are grouped.
    hidden = pt.as_tensor(
        np.stack(
            [
                np.random.default_rng([seed, done + row]).random(batch.shape[1]) < MASKED
                for row in range(len(batch))
            ]
        ),
        device=batch.device,
    )
    return batch.masked_fill(hidden, mask), batch.masked_fill(~hidden, -100)


def outputs_of(model: Any, batch: torch.Tensor) -> torch.Tensor | None:
    """Return a head's logits ``[b, t, v]``, or ``[b, 1, v]``; None without one that gives answers.

    A single number is no answer among several. What other heads return can be anything, such as the
    pixels that were hidden.
    """
    logits: Any
    if is_timm(model):
        with running(model):
            logits = model(batch) if getattr(model, "num_classes", 0) else None
    elif not any(task in type(model).__name__ for task in TASKS):
        logits = None
    else:
        options = {"use_cache": False} if hasattr(body_of(model).config, "use_cache") else {}
        kind = "pixel_values" if batch.ndim == 4 else "input_ids"
        with running(model):
            logits = getattr(model(**{kind: batch}, **options), "logits", None)
    if logits is None or logits.ndim not in (2, 3) or logits.shape[-1] < 2:
        return None
    found: torch.Tensor = logits[:, None] if logits.ndim == 2 else logits
    return found
