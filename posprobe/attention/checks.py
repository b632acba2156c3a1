"""What the functions of this package ask of their arguments, and how they bring in constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Array, namespace, to_numpy
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from types import ModuleType


def joined(where: str, **arrays: Array) -> ModuleType:
    """Return the namespace that arrays share, having checked that they can be computed with."""
    try:
        spaces = {name: namespace(array) for name, array in arrays.items()}
    except TypeError as error:
        raise UsageError(f"{where}: it takes NumPy arrays or torch tensors ({error}).") from error
    kinds = {
        name: f"{spaces[name].__name__.split('.')[-1]} {array.dtype} on {array.device}"
        for name, array in arrays.items()
    }
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise UsageError(f"{where}: {told}. Bring them to one library, dtype and device.")
    if any(0 in array.shape for array in arrays.values()):
        raise unfit(where, "no axis may be empty.", **arrays)
    return next(iter(spaces.values()))


def floating(where: str, array: Array, xp: ModuleType) -> None:
    """Check that an array holds floats."""
    if not xp.isdtype(array.dtype, "real floating"):
        raise UsageError(f"{where}: it needs floats, not {array.dtype}.")


def unfit(where: str, why: str, **arrays: Array) -> UsageError:
    """Make the error for arrays whose shapes do not fit, naming each."""
    shapes = " and ".join(f"{name} of shape {list(array.shape)}" for name, array in arrays.items())
    return UsageError(f"{where}: {shapes}: {why}")


def constant(where: str, **named: Array) -> NDArray[np.generic]:
    """Bring an index or offsets to the host."""
    joined(where, **named)
    ((name, array),) = named.items()
    try:
        return to_numpy(array)
    except TypeError as error:
        told = f"{where}: NumPy has no {array.dtype}, the dtype of {name}. Pass it as float32."
        raise UsageError(told) from error


def entries(where: str, index: Array, count: int, like: Array, xp: ModuleType) -> Array:
    """Check an index and flatten it, beside the array that it points into."""
    host = constant(where, index=index)
    if host.ndim != 2 or host.dtype.kind not in "iu":
        raise unfit(where, f"integers [n, m] are expected, not {host.dtype}.", index=index)
    if host.min() < 0 or host.max() >= count:
        raise UsageError(
            f"{where}: the index runs from {host.min()} to {host.max()}, and the table has "
            f"{count} entries. The index belongs to a table of another size."
        )
    return xp.asarray(host.astype(np.int64).reshape(-1), device=like.device)


def on_device_of(host: NDArray[np.generic], like: Array, xp: ModuleType) -> Array:
    """Bring numbers from the host to the library, dtype and device of an array."""
    cast = xp.astype(xp.asarray(np.array(host)), like.dtype)
    return xp.asarray(cast, device=like.device)
