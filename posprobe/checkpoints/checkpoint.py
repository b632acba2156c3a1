"""What every checkpoint offers, whatever its format: named tensors, known before they are read.

A folder of diffusers, which lists several models in a file, is one checkpoint: each tensor's name
begins with its folder's, and the configuration holds those of the models.
"""

from __future__ import annotations

import functools
import hashlib
import math
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posprobe.checkpoints.hub_local import count_bytes
from posprobe.errors import InvalidCheckpoint, InvalidTable, UsageError
from posprobe.sources import Quantisation

#: Float formats that can be read, by their name in a safetensors header.
FLOATS: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

#: Bytes to which a compressed or repeated tensor is unpacked in memory at most: 1 GiB. A few bytes
#: can stand for any number of them; what is stored byte by byte is mapped, and has no such limit.
MAX_UNPACKED = 2**30
#: What is said of what outgrows that where the file cannot be made smaller.
NO_TABLE = "It is no table of positions."
#: What is said of a file that contradicts itself.
DAMAGED_ADVICE = "The file is damaged or truncated: download it again."
#: Chunks of one array: each is looked for on its own, whether it is there or not.
MOST_CHUNKS = 100_000


#: What libraries call the formats of numbers, by the names in a safetensors header.
DTYPES: Mapping[str, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def check_unpacked(subject: str, size: int, advice: str = "Save it again.") -> None:
    """Refuse what a few stored bytes would become.

    Parameters
    ----------
    subject
        The file, and what of it.
    size
        Bytes in memory.
    advice
        What to do next.

    Raises
    ------
    InvalidCheckpoint
        If these are more than `MAX_UNPACKED`.
    """
    if size > MAX_UNPACKED:
        raise InvalidCheckpoint(
            f"{subject} unpacks to {size} bytes; up to {MAX_UNPACKED} are unpacked. {advice}"
        )


def check_chunks(subject: str, shape: Sequence[int], chunk: Sequence[int]) -> None:
    """Refuse an array that is cut into more than `MOST_CHUNKS` chunks.

    Raises
    ------
    InvalidCheckpoint
        If it is.
    """
    count = math.prod(-(-n // max(m, 1)) for n, m in zip(shape, chunk, strict=False))
    if count > MOST_CHUNKS:
        raise InvalidCheckpoint(
            f"{subject} is cut into {count} chunks; up to {MOST_CHUNKS} are read. Save it again."
        )


def bytes_of(values: NDArray[Any], dtype: str) -> memoryview[int]:
    """Return the bytes of an array as a checkpoint stores them, of bfloat16 its bit patterns."""
    bits = values.view(np.uint16) if dtype == "BF16" else values
    stored = np.ascontiguousarray(bits, FLOATS.get(dtype, bits.dtype.newbyteorder("<")))
    return memoryview(stored.reshape(-1).view(np.uint8).data)


def damaged(subject: str) -> InvalidCheckpoint:
    """Say that something in a file contradicts the rest of it."""
    return InvalidCheckpoint(f"{subject}. {DAMAGED_ADVICE}")


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's name, shape and dtype (safetensors' names: ``F32``, ``BF16``, ``I8`` …).

    ``file`` is the file of the checkpoint that holds it; ``start`` and ``stop`` are byte offsets
    in that file where the format has them. Of a quantised tensor ``dtype`` is that of the values
    after dequantisation, and ``quantisation`` says how they are stored; its step is known once the
    tensor was read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: str
    start: int = 0
    stop: int = 0
    quantisation: Quantisation | None = None

    @property
    def where(self) -> str:
        """The tensor as messages begin with it."""
        return f"{self.file}: tensor {self.name}, shape {list(self.shape)}"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's values and the sha256 of its stored bytes; bfloat16 is widened to float32.

    Of a quantised tensor ``info.quantisation`` has the step.
    """

    info: TensorInfo
    values: NDArray[np.floating[Any]]
    sha256: str


@dataclass(frozen=True, eq=False)
class ShardedTensors(Mapping[str, TensorInfo]):
    """The tensors of a sharded checkpoint, each from the shard that the index names for it.

    Names come from the index, so looking for a name reads no shard; ``header`` returns the tensors
    of one. A tensor that stands in another shard as well is not taken from there.
    """

    shards: Mapping[str, str]
    header: Callable[[str], Mapping[str, TensorInfo]]

    def __getitem__(self, name: str) -> TensorInfo:
        file = self.shards[name]
        try:
            return self.header(file)[name]
        except KeyError:
            raise damaged(f"{file}: the index says that {name!r} is in it, and it is not") from None

    def __contains__(self, name: object) -> bool:
        return name in self.shards

    def __iter__(self) -> Iterator[str]:
        return iter(self.shards)

    def __len__(self) -> int:
        return len(self.shards)


Fetch: TypeAlias = Callable[[TensorInfo], "bytes | memoryview[int]"]
#: Turns the stored bytes of a quantised tensor into its values, in its shape, and their step
#: (None where it has none).
Dequantise: TypeAlias = Callable[
    [TensorInfo, "bytes | memoryview[int]"], tuple[NDArray[np.floating[Any]], float | None]
]


def _not_quantised(info: TensorInfo, _: bytes | memoryview[int]) -> Any:
    raise InvalidCheckpoint(
        f"{info.where}, is quantised, and its reader does not say how (it gives no `dequantise`). "
        "Tell those who made the reader, or use the model before it was quantised."
    )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint opened lazily.

    Parameters
    ----------
    location
        Absolute path or Hub repository.
    tensors
        Every tensor by name; nothing but headers has been read.
    fetch
        Returns a tensor's stored bytes: little-endian, row-major, but for quantised tensors.
    config
        The model's configuration, empty where there is none.
    revision
        Commit of a Hub repository.
    dequantise
        For formats with quantised tensors, what turns their stored bytes into values; a reader of
        another package that leaves it out can list such tensors alone.
    format
        Of its files, as `posprobe.readers` names it.
    uses
        Tensors that the file itself shows to be tables of positions, whatever they are called, and
        how it does.
    models
        Of a folder with several models each by its folder's name, with which the
        names of its tensors begin.
    """

    location: str
    tensors: Mapping[str, TensorInfo]
    fetch: Fetch
    config: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    dequantise: Dequantise = _not_quantised
    format: str = ""
    uses: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Checkpoint] = field(default_factory=dict)

    def read(self, name: str) -> StoredTensor:
        """Read one tensor of a float format, or a quantised one as the floats it stands for.

        Raises
        ------
        InvalidTable
            If the tensor holds anything but floats.
        InvalidCheckpoint
            If fewer bytes are there than the header promises.
        """
        info = self._floats(name)
        data = self._bytes(info)
        digest = hashlib.sha256(data).hexdigest()
        if info.quantisation is None:
            return StoredTensor(info, _widened(info, _stored(info, data)), digest)
        values, step = self.dequantise(info, data)
        if values.shape != info.shape:
            raise damaged(f"{info.where}, has values of shape {list(values.shape)}")
        known_info = replace(info, quantisation=replace(info.quantisation, step=step))
        return StoredTensor(known_info, values, digest)

    def read_rows(self, name: str, rows: ArrayLike) -> NDArray[np.floating[Any]]:
        """Read some rows of one tensor of a float format.

        Where the format has byte offsets (safetensors, GGUF) nothing else is read, and each run of
        consecutive rows is one read: on the Hub one request. Other formats give the whole tensor,
        mapped where they can be, and its rows are taken from that.

        Parameters
        ----------
        name
            The tensor; its first axis counts the rows.
        rows
            ``[k]``, row numbers in rising order, each once.

        Returns
        -------
        NDArray
            ``[k, ...]``: those rows, bfloat16 widened to float32.

        Raises
        ------
        InvalidTable, InvalidCheckpoint
            As for `read`.
        UsageError
            If the tensor has no such rows, or their order is another.
        """
        info = self._floats(name)
        row_numbers = np.asarray(rows)
        count = info.shape[0] if info.shape else 0
        if row_numbers.size == 0:
            row_numbers = np.zeros(0, np.int64)
        if (
            row_numbers.ndim != 1
            or row_numbers.dtype.kind not in "iu"
            or not _rising(row_numbers, count)
        ):
            raise UsageError(
                f"{info.where}: rows are read in rising order, each once, from 0 to {count - 1}."
            )
        # ggml's blocks end with each row; elsewhere scales stand in another tensor.
        if info.quantisation and (self.format != "GGUF" or not row_numbers.size):
            return np.asarray(self.read(name).values[row_numbers])
        if info.start == info.stop:  # no offsets, or no values
            return _widened(info, _stored(info, self._bytes(info))[row_numbers])
        runs = (
            np.split(row_numbers, np.flatnonzero(np.diff(row_numbers) > 1) + 1)
            if row_numbers.size
            else []
        )
        no_rows = np.empty((0, *info.shape[1:]), FLOATS[info.dtype])
        parts = [self._run(info, int(run[0]), int(run[-1]) + 1) for run in runs]
        return _widened(info, np.concatenate([no_rows, *parts]))

    def _run(self, info: TensorInfo, start: int, stop: int) -> NDArray[Any]:
        """Copy a run of rows: a tensor of its own, named as in Python; that also keys the cache."""
        width = (info.stop - info.start) // info.shape[0]
        part = replace(
            info,
            name=f"{info.name}[{start}:{stop}]",
            shape=(stop - start, *info.shape[1:]),
            start=info.start + start * width,
            stop=info.start + stop * width,
        )
        data = self._bytes(part)
        values = self.dequantise(part, data)[0] if info.quantisation else _stored(part, data).copy()
        let_go(data)
        return values

    def _bytes(self, info: TensorInfo) -> bytes | memoryview[int]:
        data = self.fetch(info)
        if self.revision is None:  # what comes from a hub is counted as it comes
            count_bytes(len(data))
        return data

    def _floats(self, name: str) -> TensorInfo:
        info = self.tensors[name]
        if info.dtype not in FLOATS:
            raise InvalidTable(
                f"{info.where}, is stored as {info.dtype}: integers and quantised numbers are not "
                "analysed. Use the checkpoint in its original F32, F16 or BF16 format."
            )
        return info


def _rising(rows: NDArray[Any], count: int) -> bool:
    return bool(np.all(rows[1:] > rows[:-1]) and np.all((rows >= 0) & (rows < count)))


def _stored(info: TensorInfo, data: bytes | memoryview[int]) -> NDArray[Any]:
    """View a tensor's bytes as what they store; bfloat16 as its bit patterns."""
    dtype = np.dtype(FLOATS[info.dtype])
    expected = dtype.itemsize * int(np.prod(info.shape, dtype=object))
    if len(data) != expected:
        raise damaged(f"{info.where} {info.dtype}, needs {expected} bytes and has {len(data)}")
    return np.frombuffer(data, dtype=dtype).reshape(info.shape)


def _widened(info: TensorInfo, stored: NDArray[Any]) -> NDArray[np.floating[Any]]:
    return widen_bfloat16(stored) if info.dtype == "BF16" else stored


def let_go(data: bytes | memoryview[int]) -> None:
    """Give back what was read of a mapped file and copied: it counts as memory of this process."""
    if isinstance(data, memoryview) and isinstance(data.obj, mmap.mmap):
        with suppress(AttributeError):  # of systems that know no such advice
            data.obj.madvise(mmap.MADV_DONTNEED)


def widen_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Turn bfloat16 bit patterns into float32, which holds each of them exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def stored_bytes(values: NDArray[np.floating[Any]], dtype: str) -> bytes:
    """Return values as a checkpoint stores them, rounded to nearest; see `FLOATS` for formats."""
    if dtype != "BF16":
        return np.ascontiguousarray(values, FLOATS[dtype]).tobytes()
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    # Half of the last kept bit, and a tie goes to the even one.
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return rounded.tobytes()


def joined(
    models: Mapping[str, Checkpoint],
    index: Mapping[str, Any],
    location: str,
    revision: str | None = None,
) -> Checkpoint:
    """Put the models of a folder together into one checkpoint.

    Parameters
    ----------
    models
        Each by its folder.
    index
        The file that lists them.
    location, revision
        Of the whole.
    """
    renamed = {folder: _within(folder, model) for folder, model in models.items()}
    metadata = {key: value for key, value in index.items() if not isinstance(value, list | dict)}
    configs = {f"{folder}_config": dict(model.config) for folder, model in models.items()}
    joined_checkpoint = gathered(
        renamed.__getitem__,
        [*models],
        location,
        metadata | configs,
        {name: folder for folder, model in renamed.items() for name in model.tensors},
        revision,
        lambda info: info.name.partition(".")[0],
    )
    return replace(
        joined_checkpoint,
        format=next(iter(models.values())).format,
        uses={name: use for model in renamed.values() for name, use in model.uses.items()},
        models=renamed,
    )


def _within(folder: str, model: Checkpoint) -> Checkpoint:
    """Rename the tensors of a model."""

    @functools.cache
    def header(_: str) -> dict[str, TensorInfo]:
        infos = (replace(info, name=f"{folder}.{info.name}") for info in model.tensors.values())
        return {info.name: info for info in infos}

    def own(info: TensorInfo) -> TensorInfo:
        return replace(info, name=info.name.removeprefix(f"{folder}."))

    return replace(
        model,
        tensors=ShardedTensors({f"{folder}.{name}": folder for name in model.tensors}, header),
        fetch=lambda info: model.fetch(own(info)),
        dequantise=lambda info, data: model.dequantise(own(info), data),
        uses={f"{folder}.{name}": use for name, use in model.uses.items()},
    )


def gathered(
    opened: Callable[[str], Checkpoint],
    parts: list[str],
    location: str,
    config: Mapping[str, Any],
    shards: Mapping[str, str],
    revision: str | None = None,
    part_of: Callable[[TensorInfo], str] = attrgetter("file"),
) -> Checkpoint:
    """Put the parts of one checkpoint together, of ``shards`` each when it is needed.

    Parameters
    ----------
    opened
        Opens a part by its name, or returns it opened.
    parts
        Their names.
    location, config, revision
        Of the whole; what the only part says of a configuration counts where this one is silent.
    shards
        The part of each tensor, where there are several parts.
    part_of
        Names the part of a tensor that is read.
    """
    if not shards:
        single_shard = opened(parts[0])
        settings = {**single_shard.config, **config}
        return replace(single_shard, location=location, config=settings, revision=revision)

    return Checkpoint(
        location,
        ShardedTensors(shards, lambda part: opened(part).tensors),
        lambda info: opened(part_of(info)).fetch(info),
        config,
        revision,
        lambda info, data: opened(part_of(info)).dequantise(info, data),
    )
