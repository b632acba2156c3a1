"""Copies of checkpoints in which one table and the configuration have another size."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from posprobe import samples
from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.checkpoints.checkpoint import ShardedTensors, encode_values
from posprobe.checkpoints.files import check_link_inside
from posprobe.checkpoints.local import choose_weights
from posprobe.checkpoints.safetensors import replace_tensor
from posprobe.encodings import FORMULAS
from posprobe.errors import (
    NoPositionTable,
    OutputError,
    PosprobeError,
    Unreachable,
    UsageError,
)
from posprobe.families import StoredEncoding, choose_table, find_encodings
from posprobe.families.rows import Rows, flatten_rows, resize_config
from posprobe.layouts import Grid, layout_sides
from posprobe.progress import defer_signals, hide_stages, stage
from posprobe.readers import READERS, list_suffixes
from posprobe.reference import Reference, parse_reference
from posprobe.relations.resized import Copied
from posprobe.report.files import (
    expand_user,
    folder_exists,
    open_scratch_folder,
    path_exists,
)
from posprobe.tables import PositionTable

#: Suffixes of weights in any format; a copy contains only the weights of the resized model.
_WEIGHT_SUFFIXES = (*list_suffixes(READERS), ".ckpt", ".ot", ".index.json")
_CONFIG_FILE = "config.json"


def check_not_source(table: PositionTable, path: Path) -> None:
    """Refuse to write a table to the file that it was read from.

    Raises
    ------
    OutputError
        If the path leads to that file, under whatever name.
    """
    target, source = expand_user(path), Path(table.source.resolved)
    source_file = (
        source / table.source.file if source.is_dir() and table.source.file else source
    )
    if path_exists(target) and source_file.is_file() and target.samefile(source_file):
        raise OutputError(
            f"{path}: the table was read from this file. Choose another name."
        )


def check_copy_folder(reference: str, folder: Path) -> Path:
    """Check the folder of a copy before anything is computed, and return its full path.

    Raises
    ------
    OutputError
        If it exists, lies inside the checkpoint, or has no parent folder.
    UsageError
        If the reference is a formula.
    """
    target, source = expand_user(folder), _local_source(parse_reference(reference))
    if path_exists(target):
        raise OutputError(
            f"{folder}: it exists, and a copy is written to a new folder only."
        )
    if not folder_exists(target.parent):
        raise OutputError(f"{folder}: no folder {target.parent}. Create it first.")
    root = source.resolve() if source is not None and source.is_dir() else None
    if root is not None and target.parent.resolve().is_relative_to(root):
        raise OutputError(
            f"{folder}: it lies inside the checkpoint itself. Choose another place."
        )
    return target


def write_checkpoint(
    reference: str,
    table: PositionTable,
    folder: Path,
    *,
    tensor: str | None = None,
    grid: tuple[int, ...] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> Copied:
    """Copy a checkpoint with its table at another size; all other tensors keep their bytes.

    Shards stay as they are, and files are copied in pieces. The copy is written to a scratch
    folder, read back, and moved to its place when complete.

    Parameters
    ----------
    reference, tensor, grid, revision, offline
        Location of the checkpoint and its table, as for `posprobe.load`. A checkpoint of the Hub is
        downloaded into the Hub's own cache first.
    table
        Table of that checkpoint at its new size, with all positions.
    folder
        Folder to create.

    Returns
    -------
    Copied
        Changed tensor and configuration keys, and the files that were left out.

    Raises
    ------
    OutputError
        If the folder cannot be written, or the copy would not be read correctly.
    UsageError
        If the checkpoint is a formula, or not in safetensors.
    InvalidCheckpoint
        If it contains a link that leads out of it.
    PosprobeError
        As `posprobe.load`, if a checkpoint of the Hub cannot be downloaded.
    """
    parsed = parse_reference(reference)
    target = check_copy_folder(reference, folder)
    source = _local_source(parsed) or download_repository(
        parsed, revision, offline=offline
    )
    checkpoint = open_local(source)
    _check_single_model(checkpoint, parsed)
    encodings = find_encodings(checkpoint)
    encoding = choose_table(checkpoint, parsed, encodings, tensor, grid)
    info, rows = encoding.tensor, encoding.rows
    if info is None or rows is None:
        raise NoPositionTable(f"{reference}: it has no table that could be resized.")
    new_tensor = _resize_tensor(checkpoint, info, rows, table)
    config, keys = resize_config(checkpoint.config, info, rows, table.layout)
    files = _CopiedFiles.of(source, checkpoint, info.file)
    files.check_links(source)
    try:
        with open_scratch_folder(target) as scratch_folder:
            new_folder = scratch_folder / "checkpoint"
            with stage("Copying the checkpoint"):
                files.copy(new_folder, new_tensor, config if keys else None)
            new_reference = new_folder if source.is_dir() else new_folder / source.name
            _check_copy(new_reference, parsed, table, new_tensor, encodings, tensor, grid)
            with defer_signals():
                new_folder.rename(target)
    except OSError as error:
        raise OutputError(
            f"{folder}: the copy cannot be written ({error.strerror or error}). "
            "Choose another place, or make room."
        ) from error
    return Copied(
        tensor=info.name,
        file=info.file,
        old_shape=tuple(info.shape),
        new_shape=tuple(new_tensor.shape),
        keys=keys,
        omitted_files=tuple(files.omitted),
    )


def _local_source(reference: Reference) -> Path | None:
    """Return the path of a checkpoint on this disk; None for one on the Hub."""
    prefix, colon, name = reference.source.partition(":")
    if colon and prefix == "sample":
        return samples.sample_path(name)
    if not reference.is_path and (colon or reference.source in FORMULAS):
        raise UsageError(
            f"{reference.text}: a formula is not a checkpoint. Write it with -o FILE."
        )
    return reference.path if reference.is_path else None


def download_repository(
    reference: Reference, revision: str | None, *, offline: bool
) -> Path:
    """Download a repository of the Hub as its client does, and return its folder.

    Of the weights, only those are downloaded that a table is read from.

    Raises
    ------
    PosprobeError
        If there is no such repository, or it cannot be reached.
    """
    from huggingface_hub import snapshot_download

    from posprobe.checkpoints.hub import open_hub

    checkpoint = open_hub(
        reference.source, revision or reference.revision, offline=offline
    )
    _check_single_model(checkpoint, reference)
    tensors = checkpoint.tensors
    if isinstance(tensors, ShardedTensors):
        names = {*tensors.shards.values(), "*.safetensors.index.json"}
    else:
        names = {next(iter(tensors.values())).file}
    weights = [f"*{ending}" for ending in _WEIGHT_SUFFIXES if ending != ".index.json"]
    download_options: dict[str, Any] = {
        "revision": checkpoint.revision,
        "local_files_only": offline,
    }
    try:
        with stage("Downloading the checkpoint"), hide_stages():
            snapshot_download(
                reference.source, ignore_patterns=weights, **download_options
            )
            folder = snapshot_download(
                reference.source, allow_patterns=sorted(names), **download_options
            )
    except (OSError, RuntimeError, ValueError) as error:
        message = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unreachable(
            f"{reference.text}: the download failed ({message}). Try `hf "
            f"download {reference.source}`."
        ) from error
    return Path(folder)


def _check_single_model(checkpoint: Checkpoint, reference: Reference) -> None:
    if checkpoint.models:
        folder = (
            reference.table if reference.table in checkpoint.models else "text_encoder"
        )
        raise UsageError(
            f"{reference.text}: one model is copied, and this folder "
            f"holds {len(checkpoint.models)} "
            f"({', '.join(checkpoint.models)}). Name the folder of that "
            f"model, such as {reference.source}/{folder} (of a repository: "
            "download it first)."
        )


@dataclass(frozen=True)
class _NewTensor:
    """The resized tensor: its old description, its new shape and bytes."""

    info: TensorInfo
    shape: tuple[int, ...]
    content: bytes


def _resize_tensor(
    checkpoint: Checkpoint, info: TensorInfo, rows: Rows, table: PositionTable
) -> _NewTensor:
    if not info.file.endswith(".safetensors"):
        raise UsageError(
            f"{info.file}: only checkpoints in safetensors are copied. "
            "Convert it first (`save_pretrained` of transformers writes "
            "them), or write the table alone."
        )
    if rows.axis is not None:
        raise UsageError(
            f"{info.subject}: contains the tables of two axes, and a copy "
            "changes whole tensors. Write the table alone."
        )
    if rows.tail is not None:
        raise UsageError(
            f"{info.subject}: later rows of the table are those of {rows.tail.tensor}, and "
            "a copy changes one tensor. Write the table alone."
        )
    old_rows = flatten_rows(checkpoint.read(info.name).values, rows)
    first, last = rows.n_leading_excluded, rows.n_leading_excluded + rows.layout.size
    if any(first <= row < last for row in rows.excluded_rows):
        raise UsageError(
            f"{info.subject}: special rows stand between its positions. "
            "Write the table alone with -o FILE."
        )
    all_rows = np.concatenate(
        [old_rows[:first], table.values.astype(old_rows.dtype), old_rows[last:]]
    )
    shape = _new_shape(info, rows, table, len(all_rows))
    if rows.channels_first:
        all_rows = np.moveaxis(all_rows.reshape(1, *shape[2:], shape[1]), -1, 1)
    if not np.isfinite(all_rows).all():
        raise OutputError(
            f"{info.file}: tensor {info.name}: the new rows do not fit its "
            f"format {info.dtype}. Use another way."
        )
    return _NewTensor(info, shape, encode_values(all_rows, info.dtype))


def _new_shape(
    info: TensorInfo, rows: Rows, table: PositionTable, count: int
) -> tuple[int, ...]:
    """Return the stored shape with the new sizes in place of the old ones."""
    layout, shape = table.layout, info.shape
    if isinstance(layout, Grid) and rows.channels_first:
        return (1, shape[1], layout.height, layout.width)
    blocks = shape[:-1]
    if isinstance(layout, Grid) and sum(size > 1 for size in blocks) == 2:
        return (*blocks[:-2], layout.height, layout.width, shape[-1])
    axis = max(range(len(blocks)), key=blocks.__getitem__)
    return (*blocks[:axis], count, *blocks[axis + 1 :], shape[-1])


@dataclass(frozen=True)
class _CopiedFiles:
    """Files of a checkpoint that a copy takes over.

    Parameters
    ----------
    root
        Folder of the checkpoint.
    copied, omitted
        Paths of files relative to that folder.
    shard
        File that holds the table.
    """

    root: Path
    copied: tuple[str, ...]
    omitted: tuple[str, ...]
    shard: str

    @classmethod
    def of(cls, source: Path, checkpoint: Checkpoint, shard: str) -> _CopiedFiles:
        """List the files of a checkpoint, which is a folder or one file."""
        tensors = checkpoint.tensors
        weights = (
            set(tensors.shards.values())
            if isinstance(tensors, ShardedTensors)
            else {shard}
        )
        if not source.is_dir():
            config_names = (
                {_CONFIG_FILE} if (source.parent / _CONFIG_FILE).is_file() else set()
            )
            return cls(
                source.parent,
                tuple(sorted({source.name, *weights, *config_names})),
                (),
                shard,
            )
        own_files = weights | {
            choose_weights((p.name for p in source.iterdir()), str(source))
        }
        all_files = tuple(_list_files(source))
        copied_names = tuple(
            name
            for name in all_files
            if name in own_files or not name.endswith(_WEIGHT_SUFFIXES)
        )
        return cls(
            source,
            copied_names,
            tuple(name for name in all_files if name not in copied_names),
            shard,
        )

    def check_links(self, source: Path) -> None:
        """Refuse links that lead out of the checkpoint; the file that the user named may be one."""
        for path in (self.root / name for name in self.copied):
            if path != source:
                check_link_inside(path, self.root)

    def copy(
        self, folder: Path, new_tensor: _NewTensor, config: dict[str, Any] | None
    ) -> None:
        """Write all files into a new folder."""
        for name in self.copied:
            source_path, copy_path = self.root / name, folder / name
            copy_path.parent.mkdir(parents=True, exist_ok=True)
            if name == self.shard:
                replace_tensor(
                    source_path,
                    copy_path,
                    new_tensor.info.name,
                    new_tensor.shape,
                    new_tensor.content,
                )
            elif name == _CONFIG_FILE and config is not None:
                copy_path.write_text(
                    json.dumps(config, indent=2) + "\n", encoding="utf-8"
                )
            elif name.endswith(".index.json"):
                copy_path.write_text(
                    _resized_index(source_path, new_tensor), encoding="utf-8"
                )
            else:
                shutil.copyfile(source_path, copy_path)


def _list_files(root: Path) -> Iterator[str]:
    """Yield the paths of the files in a folder, without those in hidden folders."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_file():
                yield str(path.relative_to(root))


def _resized_index(old: Path, new_tensor: _NewTensor) -> str:
    """Return a shard index with the new total size."""
    index = json.loads(old.read_bytes())
    metadata = index.get("metadata")
    added_numbers = int(np.prod(new_tensor.shape)) - int(np.prod(new_tensor.info.shape))
    changes = {
        "total_size": added_numbers
        * len(new_tensor.content)
        // int(np.prod(new_tensor.shape)),
        "total_parameters": added_numbers,
    }
    for key, change in changes.items():
        if isinstance(metadata, dict) and type(metadata.get(key)) is int:
            metadata[key] += change
    return json.dumps(index, indent=2) + "\n"


def _check_copy(
    new_folder: Path,
    reference: Reference,
    table: PositionTable,
    new_tensor: _NewTensor,
    old_encodings: tuple[StoredEncoding, ...],
    tensor: str | None,
    grid: tuple[int, ...] | None,
) -> None:
    """Read a copy back, and check that the table has its new size and others their old one.

    Raises
    ------
    OutputError
        If the configuration does not state the new size, or another table is read differently.
    """
    layout = table.layout
    new_grid = layout_sides(layout) if grid else None
    new_reference = Reference(reference.text, str(new_folder), table=reference.table)
    rows_by_tensor: dict[str, Rows | None] = {}
    try:
        copied = open_local(new_folder)
        encodings = find_encodings(copied)
        rows_by_tensor = {e.tensor.name: e.rows for e in encodings if e.tensor}
        chosen_encoding = choose_table(copied, new_reference, encodings, tensor, new_grid)
        chosen_layout = chosen_encoding.rows.layout if chosen_encoding.rows else None
        problem = chosen_encoding.problem
        if not problem and chosen_layout != layout:
            problem = "another grid"
        copied_hash = copied.read(new_tensor.info.name).sha256
        has_same_content = copied_hash == sha256(new_tensor.content).hexdigest()
    except PosprobeError as error:
        problem, has_same_content = str(error), True
    if problem or not has_same_content:
        raise OutputError(
            f"{reference.text}: its configuration states the size in a way that is not "
            f"known, so that the copy would not be read as a {layout} "
            f"({problem or 'other values'}). Write the table alone with -o FILE."
        )
    names = [
        old_encoding.tensor.name
        for old_encoding in old_encodings
        if old_encoding.rule is not None
        and old_encoding.tensor is not None
        and old_encoding.tensor.name != new_tensor.info.name
        if rows_by_tensor.get(old_encoding.tensor.name) != old_encoding.rows
    ]
    if names:
        raise OutputError(
            f"{reference.text}: its configuration states one size for {new_tensor.info.name} "
            f"and for {', '.join(names)}, so that a copy in which one of them has another "
            "would not be read. Write the table alone with -o FILE."
        )
