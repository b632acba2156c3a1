"""The stored rows that are positions: reserved rows, special tokens, and patches.

This module also changes the number of rows that a configuration states.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe import settings
from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.data import read_data
from posprobe.errors import InvalidCheckpoint
from posprobe.families.architectures import TableRule
from posprobe.families.configurations import (
    ConfigSection,
    dotted_name,
    find_section,
    list_sections,
)
from posprobe.layouts import Grid, Layout, Sequence, Video, layout_sides
from posprobe.sources import Source
from posprobe.tables import DroppedRow, PrefixRow

_ROW_KEYS = read_data("families/configurations.toml")["rows"]
_TOKEN_NAMES = _ROW_KEYS["tokens"]
#: Special tokens in the order in which models put them before the patches.
_TOKEN_ORDER = ("CLS", "distillation", "register")
LENGTH_KEYS = _ROW_KEYS["lengths"]
_RELIABLE_LENGTH_KEYS = _ROW_KEYS["reliable_lengths"]


@dataclass(frozen=True)
class TailRows:
    """A second tensor of the same shape, whose rows from ``start`` on are those of the table."""

    start: int
    tensor: str


@dataclass(frozen=True)
class Rows:
    """The rows of a stored table; all but ``prefix`` and ``dropped`` are positions.

    ``channels_first`` is whether the width is stored before the grid; ``axis`` is the index of the
    table in a tensor that holds several; ``tail`` is the tensor that its later rows are read from.
    """

    layout: Layout
    prefix: tuple[PrefixRow, ...] = ()
    dropped: tuple[DroppedRow, ...] = ()
    notes: tuple[str, ...] = ()
    channels_first: bool = False
    axis: int | None = None
    tail: TailRows | None = None

    @property
    def excluded_rows(self) -> list[int]:
        """Indices of the stored rows that are not positions, in order."""
        return sorted(
            [row.row for row in self.prefix] + [row.row for row in self.dropped]
        )

    @property
    def n_leading_excluded(self) -> int:
        """Number of stored rows before the first position."""
        return sum(row == index for index, row in enumerate(self.excluded_rows))


def resolve_rows(
    checkpoint: Checkpoint,
    info: TensorInfo,
    rule: TableRule,
    grid: Grid | Video | None = None,
) -> Rows:
    """Apply a family's rule to a stored table, from header and configuration alone.

    Parameters
    ----------
    checkpoint, info, rule
        Checkpoint, table, and rule of its family.
    grid
        Grid of patches that the user states, which overrides the configuration.

    Raises
    ------
    InvalidCheckpoint
        If the rows do not fit what the architecture or the configuration says.
    """
    config = find_section(info.name, list_sections(checkpoint.config)).config
    table_layout = stored_layout(info)
    n_rows = table_layout.size
    if 0 in info.shape:
        raise InvalidCheckpoint(
            f"{info.subject}: it is empty. Use a checkpoint that was saved with its weights."
        )
    if isinstance(table_layout, Grid):
        _check_grid(info, rule, table_layout, grid)
        return Rows(grid or table_layout, channels_first=_is_channels_first(info))
    if rule.grid or grid is not None:
        return _read_patches(checkpoint, info, rule, n_rows, grid, config)
    if rule.tensors:
        _check_promised_length(
            config, info, n_rows, extra_rows=2 if rule.reserved == "two" else 0
        )
    n_reserved, reason = _count_reserved(config, info, rule, n_rows)
    if n_reserved >= n_rows:
        raise InvalidCheckpoint(
            f"{info.subject}: {n_reserved} rows are not positions "
            f"({reason}) and it has {n_rows}. The configuration belongs to "
            "another checkpoint."
        )
    dropped = tuple(DroppedRow(row, reason) for row in range(n_reserved))
    return Rows(Sequence(n_rows - n_reserved), dropped=dropped)


def _check_grid(
    info: TensorInfo, rule: TableRule, stored: Grid, declared: Grid | Video | None
) -> None:
    """Refuse stacked tables that only look like a grid of patches."""
    if declared is not None and declared.size != stored.size:
        raise InvalidCheckpoint(
            f"{info.subject}: contains {stored.size} rows, and a {declared} has {declared.size}."
        )
    # Without a tensor's name, an array of three axes may also be a stack of tables.
    is_oblong = len(info.shape) == 3 and stored.height != stored.width
    is_bare_array = is_oblong and info.file.endswith(".npy")
    if declared is None and (is_bare_array or (rule.tensors and not rule.grid)):
        raise InvalidCheckpoint(
            f"{info.subject}: one row per position, [n, d], is expected. Of "
            f"a grid of patches state `grid=({stored.height}, {stored.width})`."
        )


#: Keys of an image's size, first that of the training, which the positions belong to.
IMAGE_SIZE_KEYS = ("pretrain_image_size", "image_size", "input_size")
#: Largest number of patches along a side.
_MAX_SIDE_PATCHES = 2**20
#: Largest number of special tokens.
_MAX_SPECIAL_TOKENS = 2**12
_STORED_TOKENS_RULE = TableRule((), grid=True, tokens="stored")
#: Keys that state the number of patches of a square grid.
PATCH_COUNT_KEYS = ("num_position_embeddings", "num_patches", "max_num_patches")


def count_rows(
    checkpoint: Checkpoint, info: TensorInfo, section: ConfigSection
) -> tuple[Rows, str] | None:
    """Find the positions of an unlisted architecture by the number that its configuration states.

    Parameters
    ----------
    checkpoint, info
        Checkpoint and table.
    section
        Section of the configuration that the table belongs to.

    Returns
    -------
    tuple or None
        Rows and evidence; None if no number fits, or if reserved rows would explain one as well.
    """
    try:
        stored = stored_layout(info)
    except InvalidCheckpoint:
        return None
    if isinstance(stored, Grid) or stored.size < 2:
        return None
    grid = find_configured_grid(checkpoint, section.config)
    if grid is not None and grid.size > 1:
        prefix = _find_special_rows(checkpoint, section, stored.size, grid.size)
        if prefix is not None:
            return Rows(
                grid, prefix=prefix
            ), f"the configured grid of {grid.height} x {grid.width}"
    for key in PATCH_COUNT_KEYS:
        if section.config.get(key) == stored.size and (
            square_grid := fit_grid(stored.size, None)
        ):
            return Rows(square_grid), f"{key} is {stored.size}, a square"
    for key in LENGTH_KEYS:
        promised = section.config.get(key)
        if type(promised) is not int or promised < 2:
            continue
        if (
            section.is_vision
            and stored.size == promised
            and (square_grid := fit_grid(promised, None))
        ):
            return Rows(square_grid), f"{key} is {promised}, a square"
        if stored.size == promised and not is_reserved_count(promised):
            return Rows(Sequence(promised)), f"{key} is {promised}"
        if stored.size == promised + 2 and not is_reserved_count(promised):
            reason = f"{stored.size} rows for {key} = {promised}"
            dropped = (DroppedRow(0, reason), DroppedRow(1, reason))
            return Rows(
                Sequence(promised), dropped=dropped
            ), f"{key} is {promised}, and two more"
    return _read_square(info, section, stored.size)


#: Key of the number of texts' rows that come before the patches of a video (CogVideoX).
_TEXT_ROWS_KEY = "max_text_seq_length"


def count_text_rows(info: TensorInfo, section: ConfigSection) -> tuple[Rows, str] | None:
    """Leave out the rows of a text before the patches of a video; None without such rows."""
    n_text_rows = section.read_integer(_TEXT_ROWS_KEY, maximum=settings.MAX_CONFIG_LAYERS)
    is_table = len(info.shape) == len(("batch", "rows", "columns")) and info.shape[0] == 1
    if not n_text_rows or not is_table or info.shape[1] - n_text_rows < 2:
        return None
    dropped = tuple(DroppedRow(row, "text") for row in range(n_text_rows))
    note = "patches of a video in order: frames, then rows, then columns"
    rows = Rows(Sequence(info.shape[1] - n_text_rows), dropped=dropped, notes=(note,))
    return rows, f"{_TEXT_ROWS_KEY} is {n_text_rows}"


def count_video(
    checkpoint: Checkpoint,
    info: TensorInfo,
    section: ConfigSection,
    kernel_sizes: tuple[int, ...] = (),
) -> tuple[Rows, str] | None:
    """Find the patches of a video by the number that its configuration states.

    ``kernel_sizes`` are those of the convolution that makes patches, frames first, which stand for
    what the configuration leaves out.
    """
    if not any(key in section.config for key in FRAME_COUNT_KEYS) or NO_GRID_NAME.search(
        info.name
    ):
        return None
    grid = find_configured_grid(checkpoint, section.config, kernel_sizes[-2:])
    video = grid and find_configured_video(section.config, grid, *kernel_sizes[:1])
    if video is None or len(info.shape) not in (2, 3):
        return None
    n_rows = math.prod(info.shape[:-1])
    prefix = _find_special_rows(checkpoint, section, n_rows, video.size)
    return (
        None
        if prefix is None
        else (Rows(video, prefix=prefix), f"the configured {video}")
    )


def _find_special_rows(
    checkpoint: Checkpoint, section: ConfigSection, n_rows: int, n_patches: int
) -> tuple[PrefixRow, ...] | None:
    """Name the rows of special tokens: CLS and others before the patches, detections after."""
    token_options = [
        (),
        ("CLS",),
        ("CLS", "distillation"),
        *_token_options(checkpoint, _STORED_TOKENS_RULE),
    ]
    n_detections = (
        settings.read_integer(
            section.config, "num_detection_tokens", minimum=0, maximum=_MAX_SIDE_PATCHES
        )
        or 0
    )
    if n_detections > n_rows:
        return None
    last_tokens = tuple(f"detection {index}" for index in range(n_detections))
    for first_tokens in token_options:
        if len(first_tokens) + n_patches + len(last_tokens) == n_rows:
            row_numbers = (
                *range(len(first_tokens)),
                *range(n_rows - len(last_tokens), n_rows),
            )
            return tuple(map(PrefixRow, row_numbers, (*first_tokens, *last_tokens)))
    return None


#: Words in the names of tables along one axis, and of those of text.
NO_GRID_NAME = re.compile(r"tempor|tile|time|frame|text|row|col|_[xyhw]_")


def _read_square(
    info: TensorInfo, section: ConfigSection, n_rows: int
) -> tuple[Rows, str] | None:
    """Read a square number of rows as patches if the section describes images, with a note."""
    is_about_images = section.is_vision or "image_size" in section.config
    if not is_about_images or NO_GRID_NAME.search(info.name):
        return None
    for tokens in ((), ("CLS",)):
        square_grid = fit_grid(n_rows - len(tokens), None)
        if square_grid is not None:
            prefix = tuple(PrefixRow(row, token) for row, token in enumerate(tokens))
            note = (
                f"no grid size is configured: {square_grid.size} patches read as square"
            )
            return Rows(
                square_grid, prefix=prefix, notes=(note,)
            ), "a square number of patches"
    return None


def is_reserved_count(n_rows: int) -> bool:
    """Tell whether a count looks like a round number with reserved rows: 514, 1026, 4098."""
    return n_rows > 64 and any(
        (n_rows - n_reserved) % 64 == 0 for n_reserved in (1, 2, 4)
    )


def stored_layout(info: TensorInfo) -> Layout:
    """Read a stored shape: ``[n, d]`` and ``[1, n, d]`` are rows, ``[1, h, w, d]`` is a grid.

    If only the last two of four sizes are equal, the width comes first: ``[1, d, h, w]``.

    Raises
    ------
    InvalidCheckpoint
        If the shape has another form.
    """
    match info.shape:
        case (n, _) | (1, n, _) | (1, 1, n, _) | (n, 1, _):
            return Sequence(n)
        case (1, _, height, width) if _is_channels_first(info):
            return Grid(height, width)
        case (1, height, width, _) | (height, width, _) if _is_plausible_grid(
            height, width
        ):
            return Grid(height, width)
    raise InvalidCheckpoint(
        f"{info.subject}: position tables are [n, d], [1, n, d], [1, h, w, "
        "d] or [1, d, h, w]. Pick another tensor with `tensor=NAME`; "
        "`posprobe inspect` lists the candidates."
    )


def _is_plausible_grid(height: int, width: int) -> bool:
    """Tell a grid of patches from stacked tables: no image is more oblong than 8 to 1."""
    return 1 < max(height, width) <= 8 * min(height, width)


def _is_channels_first(info: TensorInfo) -> bool:
    match info.shape:
        case (1, first, second, third):
            return second == third != first
    return False


def _check_promised_length(
    config: Mapping[str, Any], info: TensorInfo, n_rows: int, extra_rows: int
) -> None:
    """Refuse a table whose length differs from the configured one, except by ``extra_rows``."""
    promised = {
        key: config[key] for key in _RELIABLE_LENGTH_KEYS if type(config.get(key)) is int
    }
    if promised and not any(
        n_rows - count in (0, extra_rows) for count in promised.values()
    ):
        promise_text = " and ".join(f"{key} = {count}" for key, count in promised.items())
        alternative = f", or read all rows with `tensor={info.name!r}`"
        raise settings.contradiction_error(info.subject, promise_text, alternative)


def _count_reserved(
    config: Mapping[str, Any], info: TensorInfo, rule: TableRule, n_rows: int
) -> tuple[int, str]:
    if rule.reserved == "none":
        return 0, ""
    if rule.reserved == "two":
        return 2, "the model adds 2 to every position"
    key = "max_positions"
    if rule.reserved == "padding":
        key = "padding_idx" if "padding_idx" in config else "pad_token_id"
    config_value = config.get(key)
    if type(config_value) is not int or not 0 <= config_value <= n_rows:
        raise InvalidCheckpoint(
            f"{info.subject}: which rows are positions follows from {key}, "
            f"which the configuration gives as {config_value!r}. State it "
            "in config.json, or take every row as it stands with "
            f"`tensor={info.name!r}`."
        )
    if rule.reserved == "beyond":
        return n_rows - config_value, f"{n_rows} rows for max_positions = {config_value}"
    return config_value + 1, f"positions start at padding_idx + 1 = {config_value + 1}"


def _unfit_grid_error(
    info: TensorInfo,
    n_rows: int,
    declared_grid: Grid | Video | None,
    stated_grid: Grid | Video | None,
    token_counts: list[int],
) -> InvalidCheckpoint:
    """Return the error of rows that are no grid with any number of special tokens."""
    advice = "State the grid with `grid=(HEIGHT, WIDTH)`"
    if stated_grid is not None:
        sizes = " or ".join(str(n_rows - count) for count in token_counts)
        advice = f"State a grid of {sizes} patches"
    counts = " or ".join(map(str, token_counts))
    return InvalidCheckpoint(
        f"{info.subject}: {n_rows} rows do not fit a "
        f"{declared_grid or 'square grid'} of patches with {counts} "
        f"special tokens. {advice}, or "
        f"take every row as a sequence with `tensor={info.name!r}`."
    )


def _read_patches(
    checkpoint: Checkpoint,
    info: TensorInfo,
    rule: TableRule,
    n_rows: int,
    grid: Grid | Video | None,
    config: Mapping[str, Any],
) -> Rows:
    token_options = _token_options(checkpoint, rule)
    if grid is not None:  # the user has seen what the family's rule does not know
        stored_options = _token_options(checkpoint, _STORED_TOKENS_RULE)
        token_options = [*dict.fromkeys((*token_options, *stored_options))]
    declared_grid: Grid | Video | None
    declared_grid = grid or find_configured_grid(checkpoint, config)
    fits = [
        tokens
        for tokens in token_options
        if fit_grid(n_rows - len(tokens), declared_grid) is not None
    ]
    if (
        declared_grid is not None
        and not fits
        and grid is None
        and rule.tokens == "stored"
    ):
        # timm states an input size but not the stride of every patch embedding.
        declared_grid = None
        fits = [
            tokens
            for tokens in token_options
            if fit_grid(n_rows - len(tokens), None) is not None
        ]
    layout = fit_grid(n_rows - len(fits[0]), declared_grid) if len(fits) == 1 else None
    if layout is None:
        token_counts = [len(tokens) for tokens in token_options]
        raise _unfit_grid_error(info, n_rows, declared_grid, grid, token_counts)
    start = layout.size if rule.tokens_last else 0
    prefix = tuple(PrefixRow(start + row, token) for row, token in enumerate(fits[0]))
    notes = (
        ()
        if declared_grid
        else (f"no grid size is configured: {layout.size} patches read as square",)
    )
    return Rows(layout, prefix=prefix, notes=notes)


def _token_options(checkpoint: Checkpoint, rule: TableRule) -> list[tuple[str, ...]]:
    if rule.tokens != "stored":
        return [rule.tokens]
    counts = _count_tokens(checkpoint, _TOKEN_NAMES)
    if not counts:
        # The checkpoint may hold the table only, so all usual numbers of tokens are tried.
        return [(), ("CLS",), ("CLS", "distillation")]
    return _order_tokens(counts)


def list_token_options(checkpoint: Checkpoint) -> list[tuple[str, ...]]:
    """List the special tokens that may have rows of a table whose family is not known.

    Without an embedding of a class token that is known by name, its row may be there all the same.
    """
    counts = _count_tokens(checkpoint, {**_TOKEN_NAMES, **_ROW_KEYS["class_tokens"]})
    return [*dict.fromkeys((*_order_tokens(counts), (), ("CLS",)))]


def _count_tokens(checkpoint: Checkpoint, names: Mapping[str, str]) -> dict[str, int]:
    """Count the special tokens that have an embedding in the checkpoint."""
    counts: dict[str, int] = {}
    for name in checkpoint.tensors:
        # CrossViT numbers its two branches.
        token = names.get(re.sub(r"_\d$", "", dotted_name(name).rpartition(".")[2]))
        shape = checkpoint.tensors[name].shape if token else ()
        if token and len(shape) in (1, 2, 3):
            count = min(shape[-2], _MAX_SPECIAL_TOKENS) if len(shape) > 1 else 1
            counts[token] = max(counts.get(token, 0), count)
    return counts


def _order_tokens(counts: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Order special tokens as models put them: with and without registers, and without rows."""
    stored = tuple(
        token if count == 1 else f"{token} {index}"
        for token, count in sorted(
            counts.items(), key=lambda item: _TOKEN_ORDER.index(item[0])
        )
        for index in range(count)
    )
    # timm gives registers rows if CLS has one, DINOv2's own release does not.
    without_registers = tuple(
        token for token in stored if not token.startswith("register")
    )
    return [*dict.fromkeys((stored, without_registers, ()))]


def fit_grid(n_patches: int, declared_grid: Grid | Video | None) -> Grid | Video | None:
    """Return the declared grid, or without one the square, if it has that number of patches."""
    if declared_grid is not None:
        return declared_grid if n_patches == declared_grid.size else None
    side = math.isqrt(max(n_patches, 0))
    return Grid(side, side) if side > 1 and side * side == n_patches else None


def find_configured_grid(
    checkpoint: Checkpoint,
    config: Mapping[str, Any],
    stored_patch: tuple[int, ...] = (),
) -> Grid | None:
    """Find the grid that a configuration states; ``stored_patch`` is what its patches lack."""
    image_sizes = (
        settings.read_size(config, key, maximum=_MAX_SIDE_PATCHES)
        for key in IMAGE_SIZE_KEYS
    )
    image = next(filter(None, image_sizes), None)
    tubelet = config.get("tubelet_size")  # of ViViT frames, rows and columns
    sizes = {"tubelet_size": tubelet[1:]} if isinstance(tubelet, list) else {}
    patch_sizes = (
        settings.read_size({**config, **sizes}, key, maximum=_MAX_SIDE_PATCHES)
        for key in ("patch_stride", "patch_size", *sizes)
    )
    patch = next(filter(None, patch_sizes), None)
    if "frequency_stride" in config:
        return _read_spectrogram_grid(config)
    pretrained = config.get("pretrained_cfg")
    if image is None and isinstance(pretrained, Mapping):
        model_args = config.get("model_args")
        timm_arguments = model_args if isinstance(model_args, Mapping) else {}
        size = pretrained.get("input_size")
        size_entry = {"input_size": size[-2:]} if isinstance(size, list) else {}
        image = settings.read_size(timm_arguments, "img_size", maximum=_MAX_SIDE_PATCHES)
        image = image or settings.read_size(
            size_entry, "input_size", maximum=_MAX_SIDE_PATCHES
        )
        patch = _find_stored_patch(checkpoint) or _find_named_patch(config)
    patch = patch or (stored_patch if len(stored_patch) == 2 else None)
    if image is None or patch is None:
        return None
    return Grid(image[0] // patch[0], image[1] // patch[1])


#: Keys of the number of pictures in a video, and of the number that a patch covers.
FRAME_COUNT_KEYS = ("num_frames", "frames_per_clip")


def find_configured_video(
    config: Mapping[str, Any], grid: Grid, stored_frames: int = 0
) -> Video | None:
    """Find the patches of a video that a configuration states, with the grid of a frame.

    ``stored_frames`` is the number of pictures that a patch covers, if the kernel states it alone.
    """
    tubelet = config.get("tubelet_size")
    first_size = tubelet[0] if isinstance(tubelet, list) and tubelet else tubelet
    n_merged = first_size if type(first_size) is int else stored_frames
    for key in FRAME_COUNT_KEYS:
        n_pictures = config.get(key)
        if type(n_pictures) is int and 0 < n_merged < n_pictures <= _MAX_SIDE_PATCHES:
            return Video(n_pictures // n_merged, grid.height, grid.width)
    return None


def _read_spectrogram_grid(config: Mapping[str, Any]) -> Grid | None:
    """Read the grid of patches of a spectrogram, mel bins by time (Gong et al. 2021)."""
    keys = ("num_mel_bins", "max_length", "patch_size", "frequency_stride", "time_stride")
    numbers = [
        settings.read_integer(config, key, maximum=_MAX_SIDE_PATCHES) for key in keys
    ]
    if None in numbers:
        return None
    n_mel_bins, n_frames, patch, frequency_step, time_step = (
        number for number in numbers if number is not None
    )
    return Grid(
        (n_mel_bins - patch) // frequency_step + 1, (n_frames - patch) // time_step + 1
    )


def _find_stored_patch(checkpoint: Checkpoint) -> tuple[int, int] | None:
    for name in checkpoint.tensors:
        if name.endswith("patch_embed.proj.weight"):
            shape = checkpoint.tensors[name].shape
            if len(shape) == 4:
                return shape[2], shape[3]
    return None


def _find_named_patch(config: Mapping[str, Any]) -> tuple[int, int] | None:
    patch_match = re.search(
        r"patch([0-9]{1,4})(?![0-9])", str(config.get("architecture", ""))
    )
    return (int(patch_match[1]), int(patch_match[1])) if patch_match else None


def resize_config(
    config: Mapping[str, Any], info: TensorInfo, rows: Rows, layout: Layout
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a configuration that states another size for one table.

    Only keys of the section that the table belongs to change: numbers of positions that equal that
    of the table, with or without its excluded rows, and sizes of images. The size of a patch stays.

    Parameters
    ----------
    config
        Configuration as stored; it is not changed.
    info, rows
        Table as stored, and its rows.
    layout
        New layout.

    Returns
    -------
    tuple
        New configuration, and the changed keys.
    """
    new_config = copy.deepcopy(dict(config))
    section = find_section(info.name, list_sections(new_config))
    edited = new_config
    for key in section.path.split(".") if section.path else ():
        edited = edited[key]
    if isinstance(rows.layout, Video):
        keys = _resize_videos(edited, rows.layout, layout)
    elif isinstance(layout, Grid) and isinstance(rows.layout, Grid):
        keys = _resize_images(edited, rows.layout, layout)
        keys += _replace_counts(edited, PATCH_COUNT_KEYS, {rows.layout.size: layout.size})
    else:
        n_excluded = len(rows.excluded_rows)
        size_pairs = {
            rows.layout.size + n_extra: layout.size + n_extra
            for n_extra in (0, n_excluded)
        }
        keys = _replace_counts(edited, LENGTH_KEYS, size_pairs)
    return new_config, tuple(
        f"{section.path}.{key}" if section.path else key for key in keys
    )


def _replace_counts(
    config: dict[str, Any], keys: tuple[str, ...], new_counts: Mapping[int, int]
) -> list[str]:
    changed_keys = [
        key for key in keys if type(config.get(key)) is int and config[key] in new_counts
    ]
    config |= {key: new_counts[config[key]] for key in changed_keys}
    return changed_keys


def _resize_videos(config: dict[str, Any], old: Video, new: Layout) -> list[str]:
    """Change the sizes of images and the number of frames."""
    frames, height, width = (1, *layout_sides(new))[-3:]
    keys = _resize_images(config, old.frame, Grid(height, width))
    for key in FRAME_COUNT_KEYS:
        if type(config.get(key)) is int:
            config[key] = config[key] // old.frames * frames
            keys.append(key)
    return keys


def _resize_images(config: dict[str, Any], old: Grid, new: Grid) -> list[str]:
    """Change the sizes of images in their form: a number, two numbers, or a mapping."""
    edited_keys = []
    for key in IMAGE_SIZE_KEYS:
        image = settings.read_size(config, key, maximum=_MAX_SIDE_PATCHES)
        if image is not None:
            config[key] = _keep_form(config[key], _scale_image(image, old, new))
            edited_keys.append(key)
    pretrained = config.get("pretrained_cfg")
    size = pretrained.get("input_size") if isinstance(pretrained, dict) else None
    if isinstance(pretrained, dict) and isinstance(size, list) and len(size) == 3:
        # timm has the size that images are scaled to, and the size that the model is built for.
        image = _scale_image((size[1], size[2]), old, new)
        pretrained["input_size"] = [size[0], *image]
        arguments = config.get("model_args")
        timm_arguments = arguments if isinstance(arguments, dict) else {}
        config["model_args"] = {
            **timm_arguments,
            "img_size": _keep_form(timm_arguments.get("img_size", 0), image),
        }
        edited_keys += ["pretrained_cfg.input_size", "model_args.img_size"]
    return edited_keys


def _scale_image(declared_size: tuple[int, int], old: Grid, new: Grid) -> tuple[int, int]:
    return (
        declared_size[0] // old.height * new.height,
        declared_size[1] // old.width * new.width,
    )


def _keep_form(old_value: object, size: tuple[int, int]) -> object:
    if isinstance(old_value, dict):
        return {**old_value, "height": size[0], "width": size[1]}
    return size[0] if isinstance(old_value, int) and size[0] == size[1] else list(size)


#: Largest table in numbers that is read whole for a few of its rows, which also gives its digest:
#: 16 MB in F32.
MAX_WHOLE_READ_NUMBERS = 2**22


def build_source(
    checkpoint: Checkpoint, reference: str, info: TensorInfo, sha256: str | None
) -> Source:
    """Return the source of a tensor's values."""
    return Source(
        reference,
        checkpoint.location,
        checkpoint.revision,
        info.file,
        info.name,
        info.shape,
        info.dtype,
        sha256,
        checkpoint.format or None,
        info.quantisation,
    )


def is_long(info: TensorInfo, rows: Rows) -> bool:
    """Tell whether a table exceeds `MAX_WHOLE_READ_NUMBERS` and has contiguous rows."""
    in_rows = rows.axis is None and not rows.channels_first and rows.tail is None
    return in_rows and math.prod(info.shape) > MAX_WHOLE_READ_NUMBERS


def read_positions(
    checkpoint: Checkpoint, info: TensorInfo, rows: Rows, begin: int, end: int
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Read only the positions ``begin`` to ``end`` of a table and its rows of special tokens.

    Returns
    -------
    tuple
        ``[end - begin, d]`` and ``[p, d]``.
    """
    flat = replace(info, shape=(math.prod(info.shape[:-1]), info.shape[-1]))
    flat_checkpoint = replace(checkpoint, tensors={info.name: flat})
    first, last = begin, end - 1
    for row in rows.excluded_rows:  # in order: each moves the positions after it
        first, last = first + (row <= first), last + (row <= last)
    position_rows = np.setdiff1d(np.arange(first, last + 1), rows.excluded_rows)
    prefix_row_numbers = sorted(row.row for row in rows.prefix)
    return flat_checkpoint.read_rows(info.name, position_rows), flat_checkpoint.read_rows(
        info.name, prefix_row_numbers
    )


def flatten_rows(
    values: NDArray[np.floating[Any]], rows: Rows
) -> NDArray[np.floating[Any]]:
    """Reshape a stored tensor to ``[rows, d]``."""
    if rows.axis is not None:
        values = values[rows.axis]
    if rows.channels_first:
        values = np.moveaxis(values, 1, -1)
    return values.reshape(-1, values.shape[-1])
