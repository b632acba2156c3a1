"""What every checkpoint offers, whatever its format: named tensors, known before they are read.

A folder of diffusers, which lists several models in a file, is one checkpoint: each tensor's name
begins with its folder's, and the configuration holds those of the models.
"""

from __future__ import annotations

import functools
import hashlib
import math
import mmap
import warnings
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

#: NumPy's dtype of every float format that can be read, by its name in a safetensors header.
FLOAT_DTYPES: Mapping[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
}

#: Largest size in bytes to which a compressed or repeated tensor is unpacked in memory: 1 GiB. A
#: few stored bytes can unpack to any number; uncompressed tensors are mapped and have no limit.
MAX_UNPACKED_BYTES = 2**30
#: Advice for a tensor above that limit in a file that cannot be saved in a smaller form.
TOO_LARGE_ADVICE = "It is no table of positions."
#: Advice for a file that contradicts itself.
DAMAGED_ADVICE = "The file is damaged or truncated: download it again."
#: Largest number of chunks of one array. Every chunk costs a search, even one that is missing.
MAX_CHUNKS = 100_000

#: Number formats in a safetensors header by the names that libraries give them.
DTYPE_NAMES: Mapping[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def check_unpacked(subject: str, n_bytes: int, advice: str = "Save it again.") -> None:
    """Refuse a tensor that unpacks to too many bytes.

    Parameters
    ----------
    subject
        File and tensor, with which the message begins.
    n_bytes
        Size in memory, in bytes.
    advice
        Sentence that ends the message.

    Raises
    ------
    InvalidCheckpoint
        If these are more than `MAX_UNPACKED_BYTES`.
    """
    if n_bytes > MAX_UNPACKED_BYTES:
        raise InvalidCheckpoint(
            f"{subject} unpacks to {n_bytes} bytes; up to "
            f"{MAX_UNPACKED_BYTES} are unpacked. {advice}"
        )


def check_chunks(subject: str, shape: Sequence[int], chunk_shape: Sequence[int]) -> None:
    """Refuse an array that is cut into more than `MAX_CHUNKS` chunks.

    Raises
    ------
    InvalidCheckpoint
        If there are more chunks than that.
    """
    count = math.prod(
        -(-size // max(chunk_size, 1))
        for size, chunk_size in zip(shape, chunk_shape, strict=False)
    )
    if count > MAX_CHUNKS:
        raise InvalidCheckpoint(
            f"{subject} is cut into {count} chunks; up to {MAX_CHUNKS} are read. Save it again."
        )


def view_stored_bytes(values: NDArray[Any], dtype: str) -> memoryview[int]:
    """Return an array's little-endian bytes, those of the bit patterns for bfloat16."""
    stored = values.view(np.uint16) if dtype == "BF16" else values
    contiguous = np.ascontiguousarray(
        stored, FLOAT_DTYPES.get(dtype, stored.dtype.newbyteorder("<"))
    )
    return memoryview(contiguous.reshape(-1).view(np.uint8).data)


def damaged_error(subject: str) -> InvalidCheckpoint:
    """Return the error for a file that contradicts itself."""
    return InvalidCheckpoint(f"{subject}. {DAMAGED_ADVICE}")


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's name, shape and dtype (safetensors' names: ``F32``, ``BF16``, ``I8`` …).

    ``file`` is the file of the checkpoint that holds it; ``start`` and ``stop`` are byte offsets
    in that file where the format has them. For a quantised tensor, ``dtype`` is that of the values
    after dequantisation and ``quantisation`` names the stored format; its step is set when the
    tensor is read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: str
    start: int = 0
    stop: int = 0
    quantisation: Quantisation | None = None

    @property
    def subject(self) -> str:
        """File, name and shape, with which messages about the tensor begin."""
        return f"{self.file}: tensor {self.name}, shape {list(self.shape)}"

    @property
    def where(self) -> str:
        """Former name of `subject`; version 0.3 drops it."""
        warnings.warn(
            "TensorInfo.where is now TensorInfo.subject; the old name leaves with version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.subject


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's values and the sha256 of its stored bytes; bfloat16 is widened to float32.

    For a quantised tensor, ``info.quantisation`` has the step.
    """

    info: TensorInfo
    values: NDArray[np.floating[Any]]
    sha256: str


@dataclass(frozen=True, eq=False)
class ShardedTensors(Mapping[str, TensorInfo]):
    """The tensors of a sharded checkpoint, each from the shard that the index names for it.

    Names come from the index, so looking up a name reads no shard; ``header`` returns the tensors
    of one shard. Copies of a tensor in other shards are ignored.
    """

    shards: Mapping[str, str]
    header: Callable[[str], Mapping[str, TensorInfo]]

    def __getitem__(self, name: str) -> TensorInfo:
        file = self.shards[name]
        try:
            return self.header(file)[name]
        except KeyError:
            raise damaged_error(
                f"{file}: the index says that {name!r} is in it, and it is not"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self.shards

    def __iter__(self) -> Iterator[str]:
        return iter(self.shards)

    def __len__(self) -> int:
        return len(self.shards)


FetchBytes: TypeAlias = Callable[[TensorInfo], "bytes | memoryview[int]"]
#: Turns the stored bytes of a quantised tensor into its values, in its shape, and their step
#: (None where it has none).
Dequantise: TypeAlias = Callable[
    [TensorInfo, "bytes | memoryview[int]"],
    tuple[NDArray[np.floating[Any]], float | None],
]


def _refuse_quantised(info: TensorInfo, _: bytes | memoryview[int]) -> Any:
    raise InvalidCheckpoint(
        f"{info.subject}, is quantised, and its reader does not say how (it "
        "gives no `dequantise`). Tell those who made the reader, or use "
        "the model before it was quantised."
    )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint opened lazily.

    Parameters
    ----------
    location
        Absolute path or Hub repository.
    tensors
        Every tensor by name, from headers alone.
    fetch
        Function that returns a tensor's stored bytes, little-endian and row-major; those of a
        quantised tensor are in the format's own layout.
    config
        Configuration of the model; empty if there is none.
    revision
        Commit of a Hub repository.
    dequantise
        Function that turns the stored bytes of a quantised tensor into values. A reader of another
        package without it can only list such tensors.
    format
        Name of the file format in `posprobe.readers`.
    uses
        Use of every tensor that the graph in the file uses as a table of positions, by name.
    models
        Models of a folder with several, by the name of their folder, with which the names of their
        tensors begin.
    notes
        Remarks for the reader, such as what of the file was not read.
    """

    location: str
    tensors: Mapping[str, TensorInfo]
    fetch: FetchBytes
    config: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    dequantise: Dequantise = _refuse_quantised
    format: str = ""
    uses: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Checkpoint] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def read(self, name: str) -> StoredTensor:
        """Read one tensor of a float format, or a quantised one as the floats it stands for.

        Raises
        ------
        InvalidTable
            If the tensor holds anything but floats.
        InvalidCheckpoint
            If fewer bytes are there than the header promises.
        """
        info = self._float_info(name)
        content = self._fetch_counted(info)
        digest = hashlib.sha256(content).hexdigest()
        if info.quantisation is None:
            return StoredTensor(info, _widen(info, _view_stored(info, content)), digest)
        values, step = self.dequantise(info, content)
        if values.shape != info.shape:
            raise damaged_error(
                f"{info.subject}, has values of shape {list(values.shape)}"
            )
        info_with_step = replace(info, quantisation=replace(info.quantisation, step=step))
        return StoredTensor(info_with_step, values, digest)

    def read_rows(self, name: str, rows: ArrayLike) -> NDArray[np.floating[Any]]:
        """Read some rows of one tensor of a float format.

        Where the format has byte offsets (safetensors, GGUF) nothing else is read, and each run of
        consecutive rows is one read: on the Hub one request. Other formats give the whole tensor,
        mapped where they can be, and its rows are taken from that.

        Parameters
        ----------
        name
            Name of the tensor, whose first axis counts the rows.
        rows
            ``[k]``, row numbers in rising order, without repetition.

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
        info = self._float_info(name)
        row_numbers = np.asarray(rows)
        n_rows = info.shape[0] if info.shape else 0
        if row_numbers.size == 0:
            row_numbers = np.zeros(0, np.int64)
        if (
            row_numbers.ndim != 1
            or row_numbers.dtype.kind not in "iu"
            or not _is_rising(row_numbers, n_rows)
        ):
            raise UsageError(
                f"{info.subject}: rows are read in rising order, each once, from 0 to {n_rows - 1}."
            )
        # ggml's blocks end with each row; elsewhere scales stand in another tensor.
        if info.quantisation and (self.format != "GGUF" or not row_numbers.size):
            return np.asarray(self.read(name).values[row_numbers])
        if info.start == info.stop:  # no offsets, or no values
            return _widen(
                info, _view_stored(info, self._fetch_counted(info))[row_numbers]
            )
        runs = (
            np.split(row_numbers, np.flatnonzero(np.diff(row_numbers) > 1) + 1)
            if row_numbers.size
            else []
        )
        empty_rows = np.empty((0, *info.shape[1:]), FLOAT_DTYPES[info.dtype])
        row_runs = [self._read_run(info, int(run[0]), int(run[-1]) + 1) for run in runs]
        return _widen(info, np.concatenate([empty_rows, *row_runs]))

    def _read_run(self, info: TensorInfo, start: int, stop: int) -> NDArray[Any]:
        """Copy consecutive rows, as a tensor named like a slice, which is also its cache key."""
        row_bytes = (info.stop - info.start) // info.shape[0]
        run_info = replace(
            info,
            name=f"{info.name}[{start}:{stop}]",
            shape=(stop - start, *info.shape[1:]),
            start=info.start + start * row_bytes,
            stop=info.start + stop * row_bytes,
        )
        content = self._fetch_counted(run_info)
        values = (
            self.dequantise(run_info, content)[0]
            if info.quantisation
            else _view_stored(run_info, content).copy()
        )
        release_mapped(content)
        return values

    def _fetch_counted(self, info: TensorInfo) -> bytes | memoryview[int]:
        content = self.fetch(info)
        if self.revision is None:  # bytes from the Hub are counted as they arrive
            count_bytes(len(content))
        return content

    def _float_info(self, name: str) -> TensorInfo:
        info = self.tensors[name]
        if info.dtype not in FLOAT_DTYPES:
            raise InvalidTable(
                f"{info.subject}, is stored as {info.dtype}: integers and "
                "quantised numbers are not analysed. Use the checkpoint in "
                "its original F32, F16 or BF16 format."
            )
        return info


def _is_rising(row_numbers: NDArray[Any], n_rows: int) -> bool:
    return bool(
        np.all(row_numbers[1:] > row_numbers[:-1])
        and np.all((row_numbers >= 0) & (row_numbers < n_rows))
    )


def _view_stored(info: TensorInfo, content: bytes | memoryview[int]) -> NDArray[Any]:
    """View a tensor's bytes as an array; bfloat16 as its bit patterns."""
    dtype = np.dtype(FLOAT_DTYPES[info.dtype])
    n_expected = dtype.itemsize * int(np.prod(info.shape, dtype=object))
    if len(content) != n_expected:
        raise damaged_error(
            f"{info.subject} {info.dtype}, needs {n_expected} bytes and has {len(content)}"
        )
    return np.frombuffer(content, dtype=dtype).reshape(info.shape)


def _widen(info: TensorInfo, stored: NDArray[Any]) -> NDArray[np.floating[Any]]:
    return widen_bfloat16(stored) if info.dtype == "BF16" else stored


def release_mapped(content: bytes | memoryview[int]) -> None:
    """Release the pages of a mapped file after copying: they count as memory of this process."""
    if isinstance(content, memoryview) and isinstance(content.obj, mmap.mmap):
        with suppress(AttributeError):  # not every system has this advice
            content.obj.madvise(mmap.MADV_DONTNEED)


def widen_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Turn bfloat16 bit patterns into float32, which holds each of them exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode_values(values: NDArray[np.floating[Any]], dtype: str) -> bytes:
    """Return values rounded to nearest in one of the `FLOAT_DTYPES`, as stored bytes."""
    if dtype != "BF16":
        return np.ascontiguousarray(values, FLOAT_DTYPES[dtype]).tobytes()
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    # Adds half of the last retained bit; a tie goes to the even number.
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return rounded.tobytes()


def join_models(
    models: Mapping[str, Checkpoint],
    index: Mapping[str, Any],
    location: str,
    revision: str | None = None,
) -> Checkpoint:
    """Join the models of a folder into one checkpoint.

    Parameters
    ----------
    models
        Checkpoints by folder.
    index
        Content of the file that lists the models.
    location, revision
        Location and revision of the folder.
    """
    prefixed = {
        folder: _prefix_tensors(folder, model) for folder, model in models.items()
    }
    metadata = {
        key: value for key, value in index.items() if not isinstance(value, list | dict)
    }
    configs = {f"{folder}_config": dict(model.config) for folder, model in models.items()}
    joined_checkpoint = join_shards(
        prefixed.__getitem__,
        [*models],
        location,
        metadata | configs,
        {name: folder for folder, model in prefixed.items() for name in model.tensors},
        revision,
        lambda info: info.name.partition(".")[0],
    )
    return replace(
        joined_checkpoint,
        format=next(iter(models.values())).format,
        uses={
            name: use for model in prefixed.values() for name, use in model.uses.items()
        },
        models=prefixed,
    )


def _prefix_tensors(folder: str, model: Checkpoint) -> Checkpoint:
    """Put the folder before the names of a model's tensors."""

    @functools.cache
    def header(_: str) -> dict[str, TensorInfo]:
        infos = (
            replace(info, name=f"{folder}.{info.name}") for info in model.tensors.values()
        )
        return {info.name: info for info in infos}

    def unprefixed(prefixed_info: TensorInfo) -> TensorInfo:
        return replace(prefixed_info, name=prefixed_info.name.removeprefix(f"{folder}."))

    return replace(
        model,
        tensors=ShardedTensors(
            {f"{folder}.{name}": folder for name in model.tensors}, header
        ),
        fetch=lambda info: model.fetch(unprefixed(info)),
        dequantise=lambda info, data: model.dequantise(unprefixed(info), data),
        uses={f"{folder}.{name}": use for name, use in model.uses.items()},
    )


def join_shards(
    open_shard: Callable[[str], Checkpoint],
    shard_names: list[str],
    location: str,
    config: Mapping[str, Any],
    shards: Mapping[str, str],
    revision: str | None = None,
    shard_of: Callable[[TensorInfo], str] = attrgetter("file"),
) -> Checkpoint:
    """Join the shards of one checkpoint; each is opened when it is first needed.

    Parameters
    ----------
    open_shard
        Function that opens a shard by its name, or returns the opened one.
    shard_names
        Names of the shards.
    location, config, revision
        Those of the checkpoint. The configuration of a single file fills keys that ``config``
        lacks.
    shards
        Shard of every tensor; empty for a single file.
    shard_of
        Function that names the shard of a tensor.
    """
    if not shards:
        single_shard = open_shard(shard_names[0])
        full_config = {**single_shard.config, **config}
        return replace(
            single_shard, location=location, config=full_config, revision=revision
        )

    return Checkpoint(
        location,
        ShardedTensors(shards, lambda shard: open_shard(shard).tensors),
        lambda info: open_shard(shard_of(info)).fetch(info),
        config,
        revision,
        lambda info, data: open_shard(shard_of(info)).dequantise(info, data),
    )
