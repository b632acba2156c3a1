"""Arrays and devices: NumPy unless the caller passes torch tensors or requests a GPU."""

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

from posprobe.errors import InvalidTable, UsageError, check_installed
from posprobe.layouts import Layout, Sequence, check_no_video
from posprobe.progress import import_stage
from posprobe.tables import PositionTable, load_reference, to_real_array

if TYPE_CHECKING:
    from types import ModuleType

#: A NumPy array or a torch tensor.
Array: TypeAlias = Any
Floats: TypeAlias = NDArray[np.float64]
Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Below this many multiply-adds (n * n * d), moving a table to a GPU costs more than it saves: two
#: cores compute that many cosines in about the time that torch takes to start.
MIN_GPU_MULTIPLY_ADDS = 2**36

#: Number of cores that this thread may keep busy; workers that run side by side set it to 1.
cores: ContextVar[int] = ContextVar("cores", default=os.cpu_count() or 1)


def namespace(array: Array) -> ModuleType:
    """Return the array API namespace of a NumPy array or torch tensor.

    NumPy implements the standard itself, so only torch goes through array-api-compat.
    """
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    array_api: ModuleType = array_namespace(array)
    return array_api


@dataclass(frozen=True, eq=False)
class Positions:
    """A table's values where they are analysed.

    Parameters
    ----------
    values
        ``[n, d]`` in the widest float of the device: float64, or float32 on MPS.
    layout
        Layout of the positions.
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
    table: PositionTable | Positions | Array,
    device: Device | None = None,
    *,
    sums_squares: bool = False,
) -> Positions:
    """Check a table and move it to a device.

    Parameters
    ----------
    table
        A `PositionTable`, a reference to one, or a NumPy array or torch tensor ``[n, d]``, read as
        a sequence. `Positions` are returned as they are.
    device
        Device to compute on. None leaves arrays where they are; ``"auto"`` takes a GPU only if one
        is present and the table is large enough to gain from it.
    sums_squares
        Whether the caller sums squares: then the largest magnitude must lie between 1e-140 and
        1e140, so that squares stay in the range of the arithmetic; otherwise it may reach 1e301.

    Raises
    ------
    InvalidTable
        If the values are not two-dimensional, real, finite and at least one row and one column, or
        sums of them leave the range of the arithmetic.
    MissingExtra
        If a GPU is requested and PyTorch is not installed.
    UsageError
        If the device does not exist, or the table is that of a video.
    """
    if isinstance(table, Positions):
        return table
    table = load_reference(table)
    array: Array = table.values if isinstance(table, PositionTable) else table
    array = to_real_array(array, "the table")
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidTable(
            f"an array of shape {list(array.shape)} is not a table of "
            "positions: expected [n, d], n positions of width d."
        )
    if device is not None:
        array = _move_to_device(array, _choose(array.shape, device))
    xp = namespace(array)
    widest = xp.float32 if _device_type(array) == "mps" else xp.float64
    # A table's values never change; an array that the caller holds may.
    values = xp.astype(array, widest, copy=not isinstance(table, PositionTable))
    if not bool(xp.all(xp.isfinite(values))):
        raise InvalidTable("the table holds NaN or infinity. Leave those rows out first.")
    largest = float(max(xp.max(values), -xp.min(values)))
    lower_limit, upper_limit = (1e-140, 1e140) if sums_squares else (0.0, 2.0**1000)
    if largest and not lower_limit < largest < upper_limit:
        name = table.name if isinstance(table, PositionTable) else "the table"
        raise InvalidTable(
            f"{name}: its numbers reach {largest:.1e}, and sums of them or "
            "their squares leave the range of the arithmetic. Scale the "
            "table first: only the norms depend on its units."
        )
    if isinstance(table, PositionTable):
        check_no_video(table.layout, table.name)
        return Positions(values, table.layout, table.start, _device_name(array))
    return Positions(values, Sequence(values.shape[0]), 0, _device_name(array))


def to_numpy(array: Array) -> NDArray[Any]:
    """Bring an array to the host as NumPy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.detach().cpu())


def to_float64(array: Array) -> Floats:
    """Copy an array to the host as NumPy, in double precision."""
    return to_numpy(array).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over contexts; ``+`` joins those of different contexts."""

    #: Axis of the contexts, for fields that hold a number per context.
    context_axes: ClassVar[Mapping[str, int]] = {}
    #: Fields that are equal for all contexts.
    shared_fields: ClassVar[tuple[str, ...]] = ()

    def __add__(self, other: Self) -> Self:
        def join(a: Any, b: Any, axis: int | None) -> Any:
            if isinstance(a, dict):
                return {key: join(value, b[key], axis) for key, value in a.items()}
            if b is None:
                return a
            return a + b if axis is None else np.concatenate([a, b], axis=axis)

        joined = {name: getattr(self, name) for name in self.shared_fields}
        for name in (field.name for field in fields(self) if field.name not in joined):
            axis = self.context_axes.get(name)
            joined[name] = join(getattr(self, name), getattr(other, name), axis)
        return type(self)(**joined)


def quotient(
    numerator: NDArray[Any],
    denominator: NDArray[Any],
    is_defined: Any = None,
    *,
    fill: float = np.nan,
) -> Floats:
    """Divide elementwise, with ``fill`` where the quotient is not defined.

    It is defined where ``is_defined`` says so, by default where the denominator is above 0.
    """
    ratios: Floats = np.full(
        np.broadcast_shapes(numerator.shape, denominator.shape), fill
    )
    mask = denominator > 0 if is_defined is None else is_defined
    np.divide(numerator, denominator, out=ratios, where=mask)
    return ratios


def map_in_parallel(
    work: Callable[[_Task], _Result], tasks: Iterable[_Task], xp: ModuleType
) -> Iterator[_Result]:
    """Yield the result of ``work`` for each task, in the order of the tasks.

    On NumPy, tasks run side by side with one thread each: element-wise operations use no more, and
    matrix products with threads of their own would compete. torch splits each operation itself.
    """
    if xp is not np:
        yield from map(work, tasks)
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(cores.get()) as pool:
        yield from pool.map(work, tasks)


@contextmanager
def run_concurrently(work: Callable[[], object], *, is_small: bool) -> Iterator[None]:
    """Run ``work`` while the body runs, on a second core if there is one, otherwise before it.

    Both get one thread for linear algebra: products of a small table are too short to be split, and
    threads that wait for their next part take time from those that work. Where the table is not
    small, ``work`` runs first and with all threads.
    """
    if not is_small or cores.get() < 2:
        work()
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(1) as pool:
        future = pool.submit(copy_context().run, work)
        yield
        future.result()


def _choose(shape: tuple[int, int], device: Device) -> Device:
    n, d = shape
    if device == "cpu" or (
        device == "auto" and (n * n * d < MIN_GPU_MULTIPLY_ADDS or not find_spec("torch"))
    ):
        return "cpu"
    if device != "auto":
        check_device(device)
        return device
    return "cuda" if _has_gpu_driver() and "cuda" in find_devices() else "cpu"


def _has_gpu_driver() -> bool:
    """Tell whether a GPU driver is installed, without PyTorch, which takes seconds and 400 MB."""
    if sys.platform == "linux" and Path("/dev/kfd").exists():  # AMD's, "cuda" to PyTorch
        return True
    import ctypes

    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def check_device(device: Device) -> None:
    """Refuse a device that this machine does not have.

    Raises
    ------
    MissingExtra
        If PyTorch, which finds GPUs, is not installed.
    UsageError
        If the device does not exist.
    """
    if device in ("auto", "cpu"):
        return
    check_installed("torch", "models", f"`device={device!r}`")
    find_devices(device)


def find_devices(requested: Device = "auto") -> tuple[str, ...]:
    """Return the devices that PyTorch finds, the fastest first and the CPU last.

    Raises
    ------
    UsageError
        If the requested device is not among them.
    """
    with import_stage("torch"):
        import torch

    is_available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    devices = (*(name for name, available in is_available.items() if available), "cpu")
    if requested not in ("auto", *devices):
        raise UsageError(
            f"`device={requested!r}`: PyTorch finds no such device here. "
            "Use `device='cpu'`, or auto."
        )
    return devices


def device_name(device: Any) -> str:
    """Return the name of a PyTorch device for the record, with the model of a GPU."""
    if device.type != "cuda":
        return str(device.type)
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})"


def _move_to_device(array: Array, device: Device) -> Array:
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
