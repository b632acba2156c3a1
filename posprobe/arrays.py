"""Arrays and devices: NumPy unless the caller brings, or asks for, PyTorch."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidTable, MissingExtra, UsageError
from posprobe.table import Layout, PositionTable, Sequence

if TYPE_CHECKING:
    from types import ModuleType

#: A NumPy array or a torch tensor.
Array: TypeAlias = Any
Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]

#: Below this many multiply-adds of n * n * d, moving a table to a GPU costs more than it saves.
GPU_PAYS = 2**34


def namespace(array: Array) -> ModuleType:
    """Return the array API namespace of a NumPy array or torch tensor.

    NumPy implements the standard itself, so only torch goes through array-api-compat.
    """
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    found: ModuleType = array_namespace(array)
    return found


def unpack(table: PositionTable | Array) -> tuple[Array, Layout, ModuleType]:
    """Return a table's values in the widest float of their device, its layout and namespace.

    Parameters
    ----------
    table
        A `PositionTable`, or a NumPy array or torch tensor ``[n, d]``, read as a sequence.

    Returns
    -------
    tuple
        Values ``[n, d]`` in float64 (float32 on MPS, which has no float64), layout, namespace.

    Raises
    ------
    InvalidTable
        If the values are not two-dimensional, finite and at least one row and one column.
    """
    layout: Layout | None = None
    if isinstance(table, PositionTable):
        array, layout = table.values, table.layout
    else:
        array = table if _is_torch(table) else np.asarray(table)
    xp = namespace(array)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidTable(
            f"an array of shape {list(array.shape)} is no table of positions: [n, d] is expected, "
            "n positions of width d."
        )
    wide = xp.float32 if _device_type(array) == "mps" else xp.float64
    values = xp.astype(array, wide)
    if not bool(xp.all(xp.isfinite(values))):
        raise InvalidTable("the table holds NaN or infinity. Leave those rows out first.")
    return values, layout or Sequence(values.shape[0]), xp


def to_numpy(array: Array) -> NDArray[Any]:
    """Bring an array to the host as NumPy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.detach().cpu())


def to_device(table: PositionTable, device: Device) -> tuple[PositionTable | Array, str]:
    """Move a table's values to where they are analysed.

    Parameters
    ----------
    table
        The table.
    device
        ``"auto"`` takes a GPU only where one is there and the table is large enough to gain.

    Returns
    -------
    tuple
        What to pass to the analyses (the table itself for the CPU), and the device's name.

    Raises
    ------
    MissingExtra
        If a GPU is asked for and PyTorch is not installed.
    UsageError
        If the device is not there.
    """
    n, d = table.values.shape
    if device == "cpu" or (device == "auto" and (n * n * d < GPU_PAYS or not find_spec("torch"))):
        return table, "cpu"
    if find_spec("torch") is None:
        raise MissingExtra(
            f"--device {device} needs PyTorch, which is not installed. "
            "Run `uv sync --extra models` or `pip install 'posprobe[models]'`."
        )
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = "cuda" if there["cuda"] else "cpu"
    if device == "cpu":
        return table, "cpu"
    if not there[device]:
        raise UsageError(
            f"--device {device}: PyTorch finds no such device here. Use --device cpu, or auto."
        )
    name = torch.cuda.get_device_name() if device == "cuda" else "Apple GPU"
    return torch.from_numpy(np.array(table.values)).to(device), f"{device} ({name})"


def _is_torch(array: Array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _device_type(array: Array) -> str:
    return getattr(getattr(array, "device", None), "type", "cpu")
