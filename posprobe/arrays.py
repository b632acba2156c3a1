"""Arrays and devices: NumPy unless the caller brings, or asks for, PyTorch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidTable, UsageError, need
from posprobe.layouts import Layout, Sequence
from posprobe.progress import importing
from posprobe.tables import PositionTable, real_numbers, refuse_reference

if TYPE_CHECKING:
    from types import ModuleType

#: A NumPy array or a torch tensor.
Array: TypeAlias = Any
Floats: TypeAlias = NDArray[np.float64]
Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
_Task = TypeVar("_Task")
_Done = TypeVar("_Done")

#: Below this many multiply-adds of n * n * d, moving a table to a GPU costs more than it saves: two
#: cores take about as long for their cosines as torch takes to start.
GPU_PAYS = 2**36

#: Cores that this thread may keep busy: who runs many analyses at once leaves one to each.
cores: ContextVar[int] = ContextVar("cores", default=os.cpu_count() or 1)


def namespace(array: Array) -> ModuleType:
    """Return the array API namespace of a NumPy array or torch tensor.

    NumPy implements the standard itself, so only torch goes through array-api-compat.
    """
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    found: ModuleType = array_namespace(array)
    return found


@dataclass(frozen=True, eq=False)
class Positions:
    """A table's values where they are analysed.

    Parameters
    ----------
    values
        ``[n, d]`` in the widest float of the device: float64, or float32 on MPS.
    layout
        How the positions are arranged.
    start
        Position of the first row.
    device
        Name of the device, for the record.
    """

    values: Array
    layout: Layout
    start: int
    device: str

    @property
    def xp(self) -> ModuleType:
        """The array API namespace of the values."""
        return namespace(self.values)


def positions(
    table: PositionTable | Positions | Array, device: Device | None = None, *, squares: bool = False
) -> Positions:
    """Check a table and bring it to a device.

    Parameters
    ----------
    table
        A `PositionTable`, or a NumPy array or torch tensor ``[n, d]``, read as a sequence.
        `Positions` are returned as they are.
    device
        Where to compute. None leaves arrays where they are; ``"auto"`` takes a GPU only where one
        is there and the table is large enough to gain.
    squares
        Whether numbers are summed whose squares leave the range of the arithmetic, from a largest
        one of 1e-140 down or of 1e140 up; otherwise 1e301 may be reached.

    Raises
    ------
    InvalidTable
        If the values are not two-dimensional, real, finite and at least one row and one column, or
        sums of them leave the range of the arithmetic.
    MissingExtra
        If a GPU is asked for and PyTorch is not installed.
    UsageError
        If the device is not there.
    """
    if isinstance(table, Positions):
        return table
    refuse_reference(table)
    array: Array = table.values if isinstance(table, PositionTable) else table
    array = real_numbers(array, "the table")
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidTable(
            f"an array of shape {list(array.shape)} is not a table of positions: expected "
            "[n, d], n positions of width d."
        )
    if device is not None:
        array = _moved(array, _choose(array.shape, device))
    xp = namespace(array)
    widest = xp.float32 if _device_type(array) == "mps" else xp.float64
    # A table's values never change; an array that the caller holds may.
    values = xp.astype(array, widest, copy=not isinstance(table, PositionTable))
    if not bool(xp.all(xp.isfinite(values))):
        raise InvalidTable("the table holds NaN or infinity. Leave those rows out first.")
    largest = float(max(xp.max(values), -xp.min(values)))
    least, most = (1e-140, 1e140) if squares else (0.0, 2.0**1000)
    if largest and not least < largest < most:
        name = table.name if isinstance(table, PositionTable) else "the table"
        raise InvalidTable(
            f"{name}: its numbers reach {largest:.1e}, and sums of them or their squares leave the "
            "range of the arithmetic. Scale the table first: only the norms depend on its units."
        )
    if isinstance(table, PositionTable):
        return Positions(values, table.layout, table.start, _device_name(array))
    return Positions(values, Sequence(values.shape[0]), 0, _device_name(array))


def to_numpy(array: Array) -> NDArray[Any]:
    """Bring an array to the host as NumPy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.detach().cpu())


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over contexts; ``+`` joins those of different contexts."""

    #: Of fields with a number of each context the axis that counts those; fields alike in all.
    axes: ClassVar[Mapping[str, int]] = {}
    kept: ClassVar[tuple[str, ...]] = ()

    def __add__(self, other: Self) -> Self:
        def joined(one: Any, two: Any, axis: int | None) -> Any:
            if isinstance(one, dict):
                return {key: joined(part, two[key], axis) for key, part in one.items()}
            if two is None:
                return one
            return one + two if axis is None else np.concatenate([one, two], axis=axis)

        return type(self)(**{
            f.name: getattr(self, f.name) if f.name in self.kept
            else joined(getattr(self, f.name), getattr(other, f.name), self.axes.get(f.name))
            for f in fields(self)
        })  # fmt: skip


def quotient(
    part: NDArray[Any], whole: NDArray[Any], known: Any = None, *, otherwise: float = np.nan
) -> Floats:
    """Divide; what is not ``known``, or is divided by nothing above 0, is ``otherwise``."""
    out = np.full(np.broadcast_shapes(part.shape, whole.shape), otherwise)
    found: Floats = np.divide(part, whole, out=out, where=whole > 0 if known is None else known)
    return found


def in_parallel(
    work: Callable[[_Task], _Done], tasks: Iterable[_Task], xp: ModuleType
) -> Iterator[_Done]:
    """Yield what ``work`` makes of each task, in the order of the tasks.

    On NumPy tasks run side by side, one thread each: element-wise operations use no more, and a
    product of its own threads would fight with the others. torch shares out each operation itself.
    """
    if xp is not np:
        yield from map(work, tasks)
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(cores.get()) as pool:
        yield from pool.map(work, tasks)


@contextmanager
def beside(work: Callable[[], object], *, small: bool) -> Iterator[None]:
    """Do other work while the body runs, on another core where there is one; else before it.

    One thread each: of ``small`` tables the products are too short to be shared out, and threads
    that wait for their next share take the time of those that work.
    """
    if not small or cores.get() < 2:
        work()
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(1) as pool:
        started = pool.submit(copy_context().run, work)
        yield
        started.result()


def _choose(shape: tuple[int, int], device: Device) -> Device:
    n, d = shape
    if device == "cpu" or (device == "auto" and (n * n * d < GPU_PAYS or not find_spec("torch"))):
        return "cpu"
    if device != "auto":
        check_device(device)
        return device
    return "cuda" if _driver_is_there() and "cuda" in find_devices() else "cpu"


def _driver_is_there() -> bool:
    """Tell whether a GPU's driver is installed: to ask PyTorch takes seconds and 400 MB."""
    if sys.platform == "linux" and Path("/dev/kfd").exists():  # AMD's, "cuda" to PyTorch
        return True
    import ctypes

    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def check_device(device: Device) -> None:
    """Refuse a device that is not there; the CPU always is.

    Raises
    ------
    MissingExtra
        If PyTorch, which would find it, is not installed.
    UsageError
        If it is not there.
    """
    if device in ("auto", "cpu"):
        return
    need("torch", "models", f"--device {device}")
    find_devices(device)


def find_devices(wanted: Device = "auto") -> tuple[str, ...]:
    """Return the devices that PyTorch finds, the fastest first and the CPU last.

    Raises
    ------
    UsageError
        If the device that is wanted is not among them.
    """
    with importing("torch"):
        import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    there = (*(name for name, here in found.items() if here), "cpu")
    if wanted not in ("auto", *there):
        raise UsageError(
            f"--device {wanted}: PyTorch finds no such device here. Use --device cpu, or auto."
        )
    return there


def device_name(device: Any) -> str:
    """Return the name of a device of PyTorch for the record: of a GPU, which one it is."""
    if device.type != "cuda":
        return str(device.type)
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})"


def _moved(array: Array, device: Device) -> Array:
    if _is_torch(array):
        return array.to(device)
    if device == "cpu":
        return array
    import torch

    return torch.from_numpy(np.array(array)).to(device)


def _is_torch(array: Array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _device_type(array: Array) -> str:
    return getattr(getattr(array, "device", None), "type", "cpu")


def _device_name(array: Array) -> str:
    return device_name(array.device) if _is_torch(array) else "cpu"
