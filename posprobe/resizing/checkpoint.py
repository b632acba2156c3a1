"""A copy of a checkpoint in which one table and the configuration have another size."""

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
from posprobe.errors import NoPositionTable, OutputError, PosprobeError, Unreachable, UsageError
from posprobe.families import StoredEncoding, choose_table, find_encodings
from posprobe.families.rows import Rows, rows_of, with_size
from posprobe.layouts import Grid
from posprobe.progress import defer_signals, hide_stages, stage
from posprobe.readers import READERS, suffixes_of
from posprobe.reference import Reference, parse_reference
from posprobe.relations.resized import Copied
from posprobe.report.files import expanded, folder_there, scratch, there
from posprobe.tables import PositionTable

#: Files of weights in any format: a copy has those that were resized, and no others.
_WEIGHTS = (*suffixes_of(READERS), ".ckpt", ".ot", ".index.json")
_CONFIG = "config.json"


def refuse_source(table: PositionTable, path: Path) -> None:
    """Refuse to write a table to the file that it was read from.

    Raises
    ------
    OutputError
        If it is that file, by whatever name.
    """
    place, source = expanded(path), Path(table.source.resolved)
    read = source / table.source.file if source.is_dir() and table.source.file else source
    if there(place) and read.is_file() and place.samefile(read):
        raise OutputError(f"{path}: the table was read from this file. Choose another name.")


def copy_place(reference: str, folder: Path) -> Path:
    """Return where a copy of a checkpoint goes, before anything is computed.

    Raises
    ------
    OutputError
        If something is there, or it lies inside the checkpoint, or nowhere.
    UsageError
        If it is a formula.
    """
    target, source = expanded(folder), _source(parse_reference(reference))
    if there(target):
        raise OutputError(f"{folder}: it exists, and a copy is written to a new folder only.")
    if not folder_there(target.parent):
        raise OutputError(f"{folder}: no folder {target.parent}. Create it first.")
    if (
        source is not None
        and source.is_dir()
        and target.parent.resolve().is_relative_to(source.resolve())
    ):
        raise OutputError(f"{folder}: it lies inside the checkpoint itself. Choose another place.")
    return target


def write_checkpoint(
    reference: str,
    table: PositionTable,
    folder: Path,
    *,
    tensor: str | None = None,
    grid: tuple[int, int] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> Copied:
    """Copy a checkpoint with its table at another size; all other tensors keep their bytes.

    Shards stay as they are, files are read in pieces, and the copy is made beside its place and
    moved there when complete and read back.

    Parameters
    ----------
    reference, tensor, grid, revision, offline
        Location of the checkpoint and its table, as for `posprobe.load`. A checkpoint of the Hub is
        downloaded into the Hub's own cache first.
    table
        The table of that checkpoint at its new size, all positions.
    folder
        A new folder.

    Returns
    -------
    Copied
        What was changed, and what was left out.

    Raises
    ------
    OutputError
        If the folder cannot be written, or the copy would not be read as it should.
    UsageError
        If the checkpoint is a formula, or not in safetensors.
    InvalidCheckpoint
        If it contains a link that leads out of it.
    PosprobeError
        As `posprobe.load`, where a checkpoint of the Hub cannot be downloaded.
    """
    parsed = parse_reference(reference)
    target = copy_place(reference, folder)
    source = _source(parsed) or downloaded(parsed, revision, offline=offline)
    checkpoint = open_local(source)
    _refuse_several(checkpoint, parsed)
    found = find_encodings(checkpoint)
    encoding = choose_table(checkpoint, parsed, found, tensor, grid)
    if encoding.tensor is None or encoding.rows is None:
        raise NoPositionTable(f"{reference}: it has no table that could be resized.")
    new = _new_tensor(checkpoint, encoding.tensor, encoding.rows, table)
    config, keys = with_size(checkpoint.config, encoding.tensor, encoding.rows, table.layout)
    files = _Files.of(source, checkpoint, new.info.file)
    for name in files.taken:
        if files.root / name != source:  # a file that was named may be a link
            check_link_inside(files.root / name, files.root)
    try:
        with scratch(target) as place:
            made = place / "checkpoint"
            with stage("Copying the checkpoint"):
                files.copy(made, new, config if keys else None)
            again = made if source.is_dir() else made / source.name
            _check(again, parsed, table, new, found, tensor, grid)
            with defer_signals():
                made.rename(target)
    except OSError as error:
        raise OutputError(
            f"{folder}: the copy cannot be written ({error.strerror or error}). Choose another "
            "place, or make room."
        ) from error
    return Copied(
        tensor=new.info.name,
        file=new.info.file,
        was=tuple(new.info.shape),
        now=tuple(new.shape),
        keys=keys,
        left=tuple(files.left),
    )


def _source(reference: Reference) -> Path | None:
    """Return where a checkpoint lies on this disk; None of one of the Hub."""
    kind, colon, name = reference.source.partition(":")
    if colon and kind == "sample":
        return samples.sample_path(name)
    if not reference.is_path and (colon or reference.source in FORMULAS):
        raise UsageError(f"{reference.text}: a formula is not a checkpoint. Write it with -o FILE.")
    return reference.path if reference.is_path else None


def downloaded(reference: Reference, revision: str | None, *, offline: bool) -> Path:
    """Download a repository of the Hub as its client does, and return its folder.

    Of its weights those alone that a table is read from.

    Raises
    ------
    PosprobeError
        If there is no such repository, or it cannot be reached.
    """
    from huggingface_hub import snapshot_download

    from posprobe.checkpoints.hub import open_hub

    found = open_hub(reference.source, revision or reference.revision, offline=offline)
    _refuse_several(found, reference)
    tensors = found.tensors
    if isinstance(tensors, ShardedTensors):
        names = {*tensors.shards.values(), "*.safetensors.index.json"}
    else:
        names = {next(iter(tensors.values())).file}
    weights = [f"*{ending}" for ending in _WEIGHTS if ending != ".index.json"]
    where: dict[str, Any] = {"revision": found.revision, "local_files_only": offline}
    try:
        with stage("Downloading the checkpoint"), hide_stages():
            snapshot_download(reference.source, ignore_patterns=weights, **where)
            folder = snapshot_download(reference.source, allow_patterns=sorted(names), **where)
    except (OSError, RuntimeError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unreachable(
            f"{reference.text}: the download failed ({first}). Try `hf download "
            f"{reference.source}`."
        ) from error
    return Path(folder)


def _refuse_several(checkpoint: Checkpoint, reference: Reference) -> None:
    if checkpoint.models:
        folder = reference.table if reference.table in checkpoint.models else "text_encoder"
        raise UsageError(
            f"{reference.text}: --into copies one model, and this folder holds "
            f"{len(checkpoint.models)} ({', '.join(checkpoint.models)}). Name the folder of that "
            f"model, such as {reference.source}/{folder} (of a repository: download it first)."
        )


@dataclass(frozen=True)
class _NewTensor:
    """The table as it is stored: its old entry, its new shape and bytes."""

    info: TensorInfo
    shape: tuple[int, ...]
    content: bytes


def _new_tensor(
    checkpoint: Checkpoint, info: TensorInfo, rows: Rows, table: PositionTable
) -> _NewTensor:
    if not info.file.endswith(".safetensors"):
        raise UsageError(
            f"{info.file}: --into copies checkpoints in safetensors. Convert it first "
            "(`save_pretrained` of transformers writes them), or write the table alone with -o "
            "FILE."
        )
    if rows.axis is not None:
        raise UsageError(
            f"{info.subject}: contains the tables of two axes, and --into changes whole tensors. "
            "Write the table alone with -o FILE."
        )
    old = rows_of(checkpoint.read(info.name).values, rows)
    first, last = rows.skip, rows.skip + rows.layout.size
    if any(first <= row < last for row in rows.special):
        raise UsageError(
            f"{info.subject}: special rows stand between its positions. Write the table alone with "
            "-o FILE."
        )
    full = np.concatenate([old[:first], table.values.astype(old.dtype), old[last:]])
    shape = _new_shape(info, rows, table, len(full))
    if rows.channels_first:
        full = np.moveaxis(full.reshape(1, *shape[2:], shape[1]), -1, 1)
    if not np.isfinite(full).all():
        raise OutputError(
            f"{info.file}: tensor {info.name}: the new rows do not fit its format {info.dtype}. "
            "Use another way."
        )
    return _NewTensor(info, shape, encode_values(full, info.dtype))


def _new_shape(info: TensorInfo, rows: Rows, table: PositionTable, count: int) -> tuple[int, ...]:
    """Return the stored shape with other sizes where the old ones stood."""
    layout, shape = table.layout, info.shape
    if isinstance(layout, Grid) and rows.channels_first:
        return (1, shape[1], layout.height, layout.width)
    blocks = shape[:-1]
    if isinstance(layout, Grid) and sum(size > 1 for size in blocks) == 2:
        return (*blocks[:-2], layout.height, layout.width, shape[-1])
    place = max(range(len(blocks)), key=blocks.__getitem__)
    return (*blocks[:place], count, *blocks[place + 1 :], shape[-1])


@dataclass(frozen=True)
class _Files:
    """What a copy takes over from a checkpoint.

    Parameters
    ----------
    root
        Its folder.
    taken, left
        Names of files in it, with those of folders before them.
    shard
        The file that holds the table.
    """

    root: Path
    taken: tuple[str, ...]
    left: tuple[str, ...]
    shard: str

    @classmethod
    def of(cls, source: Path, checkpoint: Checkpoint, shard: str) -> _Files:
        """List the files of a checkpoint, which is a folder or one file."""
        tensors = checkpoint.tensors
        weights = set(tensors.shards.values()) if isinstance(tensors, ShardedTensors) else {shard}
        if not source.is_dir():
            beside = {_CONFIG} if (source.parent / _CONFIG).is_file() else set()
            return cls(source.parent, tuple(sorted({source.name, *weights, *beside})), (), shard)
        own = weights | {choose_weights((p.name for p in source.iterdir()), str(source))}
        found = tuple(_walk(source))
        taken = tuple(name for name in found if name in own or not name.endswith(_WEIGHTS))
        return cls(source, taken, tuple(name for name in found if name not in taken), shard)

    def copy(self, folder: Path, new: _NewTensor, config: dict[str, Any] | None) -> None:
        """Write all files into a new folder."""
        for name in self.taken:
            old, made = self.root / name, folder / name
            made.parent.mkdir(parents=True, exist_ok=True)
            if name == self.shard:
                replace_tensor(old, made, new.info.name, new.shape, new.content)
            elif name == _CONFIG and config is not None:
                made.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            elif name.endswith(".index.json"):
                made.write_text(_index(old, new), encoding="utf-8")
            else:
                shutil.copyfile(old, made)


def _walk(root: Path) -> Iterator[str]:
    """Name the files of a folder; hidden folders are no part of a checkpoint."""
    for folder, inside, files in os.walk(root):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_file():
                yield str(path.relative_to(root))


def _index(old: Path, new: _NewTensor) -> str:
    """Return a shard index with the new total size."""
    index = json.loads(old.read_bytes())
    metadata = index.get("metadata")
    more = int(np.prod(new.shape)) - int(np.prod(new.info.shape))
    changes = {
        "total_size": more * len(new.content) // int(np.prod(new.shape)),
        "total_parameters": more,
    }
    for key, change in changes.items():
        if isinstance(metadata, dict) and type(metadata.get(key)) is int:
            metadata[key] += change
    return json.dumps(index, indent=2) + "\n"


def _check(
    made: Path,
    reference: Reference,
    table: PositionTable,
    new: _NewTensor,
    before: tuple[StoredEncoding, ...],
    tensor: str | None,
    grid: tuple[int, int] | None,
) -> None:
    """Read a copy back: its configuration must say what its table is, and the others be as before.

    Raises
    ------
    OutputError
        If it does not, or another table is not read as it was.
    """
    layout = table.layout
    stated = (layout.height, layout.width) if grid and isinstance(layout, Grid) else None
    again = Reference(reference.text, str(made), table=reference.table)
    after: dict[str, Rows | None] = {}
    try:
        copied = open_local(made)
        encodings = find_encodings(copied)
        after = {each.tensor.name: each.rows for each in encodings if each.tensor}
        found = choose_table(copied, again, encodings, tensor, stated)
        why = found.problem or (
            "" if found.rows and found.rows.layout == layout else "another grid"
        )
        same = copied.read(new.info.name).sha256 == sha256(new.content).hexdigest()
    except PosprobeError as error:
        why, same = str(error), True
    if why or not same:
        raise OutputError(
            f"{reference.text}: its configuration states the size in a way that is not known, so "
            f"that the copy would not be read as a {layout} ({why or 'other values'}). Write the "
            "table alone with -o FILE."
        )
    names = [
        was.tensor.name
        for was in before
        if was.rule is not None and was.tensor is not None and was.tensor.name != new.info.name
        if after.get(was.tensor.name) != was.rows
    ]
    if names:
        raise OutputError(
            f"{reference.text}: its configuration states one size for {new.info.name} and for "
            f"{', '.join(names)}, so that a copy in which one of them has another would not be "
            "read. Write the table alone with -o FILE."
        )
