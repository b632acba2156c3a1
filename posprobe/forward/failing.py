"""What a model's own code fails at, told as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from posprobe.errors import InvalidTable, PosprobeError, UsageError

if TYPE_CHECKING:
    import torch


#: What the states are called that a model returns.
LAST = "the last hidden states"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of PyTorch or Python means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        sign in text
        for sign in ("out of memory", "not enough memory", "can't allocate memory", "alloc_failed")
    )


def refuse_overflow(
    model: Any, numbers: torch.Tensor, what: str, title: str, done: int = 0
) -> None:
    """Refuse numbers that a model computed for a batch of contexts where one is not finite.

    Parameters
    ----------
    model
        Of which they are.
    numbers
        ``[b, ...]``.
    what
        They are called, such as "the hidden states at layer 3".
    title
        Name of the model, for messages.
    done
        Contexts that were run before these.

    Raises
    ------
    InvalidTable
        Naming the first such context, and what to do.
    """
    whole = numbers.isfinite().flatten(1).all(dim=1)
    if not bool(whole.all()):
        raise overflowed(model, what, title, done + int((~whole).nonzero()[0]))


def overflowed(model: Any, what: str, title: str, context: int) -> InvalidTable:
    """Say where numbers of a model are not finite, and what to do about it.

    Parameters
    ----------
    model, what, title
        As for `refuse_overflow`.
    context
        The first of them, from 0.
    """
    parameters = [part for part in model.parameters() if part.device.type != "meta"]
    if not all(bool(part.isfinite().all()) for part in parameters):
        why = "Its weights hold such numbers too: the checkpoint is damaged. Use a sound copy."
    elif parameters[0].element_size() < 4:
        why = "It overflowed. Run it in float32: --dtype float32."
    else:
        why = "It overflowed, in float32 or wider. Use other contexts, or a sound copy."
    return InvalidTable(f"{title}: {what} hold NaN or infinity in context {context + 1}. {why}")


@contextmanager
def running(model: Any) -> Iterator[None]:
    """Tell what a model's own code fails at as what it is: no fault of ours, and nothing measured.

    Raises
    ------
    UsageError
        If it does not take such input, or fails otherwise; what ran out of memory can be tried
        again with less, and stays as it is.
    """
    name = type(model).__name__
    try:
        yield
    except PosprobeError:
        raise
    except (TypeError, ValueError, IndexError, AssertionError) as error:
        raise UsageError(f"{name}: it does not take such input ({error}).") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UsageError(
            f"{name}: its own code fails ({type(error).__name__}: {first_line(error)}). Its "
            "configuration may not fit the installed library."
        ) from error
