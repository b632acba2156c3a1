"""What a model's own code fails at, told as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from posprobe.errors import PosprobeError, UsageError


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of PyTorch or Python means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        sign in text
        for sign in ("out of memory", "not enough memory", "can't allocate memory", "alloc_failed")
    )


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
        first = (str(error).strip() or "without a message").splitlines()[0]
        raise UsageError(
            f"{name}: its own code fails ({type(error).__name__}: {first}). Its configuration may "
            "not fit the installed library."
        ) from error
