"""Whether a table under an unlisted name belongs to patches: what stands in the module beside it.

Names of tables are many, and each module that cuts images into patches has a tensor that says so:
a convolution over two or three axes, or a linear projection of flattened patches. A table of tokens
has an embedding of its vocabulary beside it instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint
from posprobe.families.configurations import ConfigSection, dotted_name
from posprobe.families.rows import (
    NO_GRID_NAME,
    Rows,
    count_video,
    find_configured_grid,
    fit_grid,
    list_token_options,
    stored_layout,
)
from posprobe.layouts import Sequence
from posprobe.tables import PrefixRow

#: Words in the names of convolutions and projections that make patches; other tensors are not
#: looked up, since that can cost a request.
_KERNEL_NAME = re.compile(r"patch|conv|stem|tubelet|embed", re.IGNORECASE)
#: Linear projections of flattened patches, which only their names tell from other matrices.
_PROJECTION_NAME = re.compile(
    r"(?:^|\.)(?:to_patch_embedding|patch_?(?:to_?)?embed(?:ding)?s?|patch_proj(?:ection)?|patcher)"
    r"(?:\.(?:\d+|proj(?:ection)?|linear|fc))*\.weight$",
    re.IGNORECASE,
)
#: Words in the names of convolutions over spectrograms, and of those that add positions.
_OTHER_KERNEL = re.compile(
    r"subsampl|audio|speech|mel|pos_conv|conv_pos|peg\.|cpe\.|decoder", re.IGNORECASE
)
#: Largest side of the kernels by which models of speech halve the resolution of spectrograms.
_MAX_SUBSAMPLING_SIDE = 3
#: Input channels of a convolution over colours.
_N_COLOURS = 3
_VOCABULARY_NAME = re.compile(
    r"(?:^|\.)(?:wte|tok(?:en)?_?emb\w*|word_?emb\w*|embed_tokens|text_emb\w*|vocab\w*"
    r"|(?:src|tgt)_?emb\w*)"
    r"(?:\.weight)?$",
    re.IGNORECASE,
)
_TEXT_WORDS = frozenset({"text", "decoder", "lm", "language", "llm", "bert", "roberta"})


@dataclass(frozen=True)
class PatchKernel:
    """The tensor that makes patches of images, and the size of a patch, frames first.

    ``patch`` is empty for a linear projection, which does not state it.
    """

    tensor: TensorInfo
    patch: tuple[int, ...]

    @property
    def is_of_videos(self) -> bool:
        """Whether a patch covers several pictures of a video."""
        return len(self.patch) == len("thw") and self.patch[0] > 1

    def __str__(self) -> str:
        """Return its name and shape, for notes and messages."""
        noun = "patch convolution" if self.patch else "patch projection"
        return f"{noun} {self.tensor.name} ({' x '.join(map(str, self.tensor.shape))})"


def find_patch_kernel(
    checkpoint: Checkpoint, info: TensorInfo, table_names: Iterable[str]
) -> PatchKernel | None:
    """Find the tensor that makes the patches of a table, in its module or in those around it.

    What lies in a module with a table of its own belongs to that table. An embedding of a
    vocabulary that is as near says that the table is one of tokens.

    Parameters
    ----------
    checkpoint, info
        Checkpoint and table.
    table_names
        Names of all tensors that may be tables of positions.
    """
    name = dotted_name(info.name)
    if _has_own_layout(info):
        return None
    other_modules = {_module_of(dotted_name(n)) for n in table_names} - {_module_of(name)}
    is_of_text = bool(_TEXT_WORDS & set(re.split(r"[._]", name.lower())))
    for module in _iterate_modules(name):
        hidden_modules = [
            m for m in other_modules if m.startswith(module) and m != module
        ]
        siblings = [
            (dotted, stored)
            for stored in checkpoint.tensors
            if (dotted := dotted_name(stored)).startswith(module)
            and not dotted.startswith(tuple(hidden_modules))
        ]
        vocabulary_depths = [
            dotted.removeprefix(module).count(".") - dotted.endswith(".weight")
            for dotted, _ in siblings
            if _VOCABULARY_NAME.search(dotted)
        ]
        if vocabulary_depths:  # only what is nearer than the vocabulary is looked up
            siblings = [
                (dotted, stored)
                for dotted, stored in siblings
                if dotted.removeprefix(module).count(".") - 1 < min(vocabulary_depths)
            ]
        kernel = next(_iterate_kernels(checkpoint, siblings, info.shape[-1]), None)
        if kernel is not None:
            return kernel
        if vocabulary_depths or is_of_text:
            return None
    return None


def _has_own_layout(info: TensorInfo) -> bool:
    """Tell whether the shape or the name of a table says that its rows are no list of patches."""
    try:
        is_list = isinstance(stored_layout(info), Sequence)
    except InvalidCheckpoint:
        return True
    return not is_list or bool(NO_GRID_NAME.search(info.name))


def _module_of(name: str) -> str:
    """Return the module of a table, with its dot: ``visual.`` of ``visual.pos_embed``."""
    words = name.removesuffix(".weight").split(".")
    return "".join(f"{word}." for word in words[:-1])


def _iterate_modules(name: str) -> Iterator[str]:
    words = _module_of(name).split(".")[:-1]
    for depth in range(len(words), -1, -1):
        yield "".join(f"{word}." for word in words[:depth])


def _iterate_kernels(
    checkpoint: Checkpoint, siblings: list[tuple[str, str]], width: int
) -> Iterator[PatchKernel]:
    """Yield the tensors that make patches as wide as the table, those named after patches first."""
    candidates = [
        pair
        for pair in siblings
        if _KERNEL_NAME.search(pair[0]) and not _OTHER_KERNEL.search(pair[0])
    ]
    for dotted, stored in sorted(candidates, key=lambda pair: "patch" not in pair[0]):
        info = checkpoint.tensors[stored]
        shape = info.shape
        if len(shape) in (4, 5) and dotted.endswith(
            "kernel"
        ):  # Keras and Flax: width last
            shape = (shape[-1], shape[-2], *shape[:-2])
        if not shape or shape[0] != width:
            continue
        if len(shape) in (4, 5):
            if _is_of_patches(dotted, shape):
                yield PatchKernel(info, shape[2:])
        elif len(shape) == 2 and _PROJECTION_NAME.search(dotted):
            yield PatchKernel(info, ())


def _is_of_patches(name: str, shape: tuple[int, ...]) -> bool:
    """Tell a convolution over images from others.

    Small ones and those of one channel are over spectrograms, and those with as many inputs as
    outputs mix hidden states.
    """
    is_small = max(shape[2:]) <= _MAX_SUBSAMPLING_SIDE
    is_other = is_small or shape[1] == 1 or shape[1] >= shape[0]
    return not is_other or shape[1] == _N_COLOURS or "patch" in name.lower()


def read_by_witnesses(
    checkpoint: Checkpoint, info: TensorInfo, section: ConfigSection, kernel: PatchKernel
) -> tuple[Rows, str]:
    """Read a table of patches by the tensors beside it and the number of its rows.

    Parameters
    ----------
    checkpoint, info, section
        Checkpoint, table, and its section of the configuration.
    kernel
        Tensor that makes the patches, from `find_patch_kernel`.

    Returns
    -------
    tuple
        Rows and evidence.

    Raises
    ------
    InvalidCheckpoint
        If they contradict each other, or no grid follows.
    """
    n_rows = stored_layout(info).size
    options = list_token_options(checkpoint)
    if kernel.is_of_videos:
        counted = count_video(checkpoint, info, section, kernel.patch)
        if counted is None:
            raise _no_video_error(info, kernel, n_rows, options)
        return counted
    configured = find_configured_grid(checkpoint, section.config, kernel.patch[-2:])
    for declared_grid in (configured, None) if configured else (None,):
        for tokens in options:
            grid = fit_grid(n_rows - len(tokens), declared_grid)
            if grid is None:
                continue
            names = f" and {' and '.join(tokens)}" if tokens else ""
            count = f"{n_rows} = {grid.height} x {grid.width}"
            count += f" + {len(tokens)}" if tokens else ""
            evidence = f"the {kernel}{names}; {count}"
            notes = (
                (f"read as {grid.height} x {grid.width} patches by {evidence}",)
                if declared_grid is None
                else ()
            )
            prefix = tuple(PrefixRow(row, token) for row, token in enumerate(tokens))
            return Rows(grid, prefix=prefix, notes=notes), evidence
    counts = " or ".join(str(len(tokens)) for tokens in options)
    raise InvalidCheckpoint(
        f"{info.subject}: the {kernel} says that its rows are patches, and {n_rows} rows "
        f"with {counts} special tokens are no square. State the grid with "
        "`grid=(HEIGHT, WIDTH)`, or take every row as a sequence with "
        f"`tensor={info.name!r}`."
    )


#: Pictures that most models of videos and images are trained on, in pixels along a side.
_USUAL_IMAGE_PIXELS = 224


def _no_video_error(
    info: TensorInfo, kernel: PatchKernel, n_rows: int, options: list[tuple[str, ...]]
) -> InvalidCheckpoint:
    """Say that frames, height and width of a video are not known, with an example that fits."""
    side = _USUAL_IMAGE_PIXELS // kernel.patch[1]
    frame_counts = (
        [(n_rows - len(tokens)) / side**2 for tokens in options] if side else []
    )
    fits = [int(count) for count in frame_counts if count > 1 and count.is_integer()]
    example = f"{fits[0]}, {side}, {side}" if fits else "FRAMES, ROWS, COLUMNS"
    return InvalidCheckpoint(
        f"{info.subject}: the {kernel} says that its rows are patches of a video, and "
        "nothing says how many frames it has. State them with "
        f"`grid=({example})`, or take every row as a sequence with "
        f"`tensor={info.name!r}`."
    )


#: Numbers of special rows before the patches of common models.
_SPECIAL_ROW_COUNTS = (0, 1, 2, 4, 5, 8)
#: Smallest side of a square that is looked for.
_MIN_SIDE_PATCHES = 4
#: Longest side: images of 1,024 pixels in patches of 16, as of Segment Anything.
_MAX_NOTED_SIDE = 64
#: Smallest share of the variance in row and column codes together, and in either of them, at which
#: rows look like patches. A smooth curve that is cut into lines has no column code.
_MIN_BOTH_CODES_SHARE = 0.8
_MIN_EITHER_CODE_SHARE = 0.1


def note_square(values: NDArray[np.floating[Any]]) -> tuple[str, ...]:
    """Return a note if the rows of a sequence look like a square of patches, or an empty tuple.

    Parameters
    ----------
    values
        All positions of a table that no name and no witness calls patches, ``[n, d]``.
    """
    for n_special in _SPECIAL_ROW_COUNTS:
        side = math.isqrt(max(len(values) - n_special, 0))
        is_likely = _MIN_SIDE_PATCHES <= side <= _MAX_NOTED_SIDE
        if not is_likely or side * side != len(values) - n_special:
            continue
        patches = values[n_special:].astype(np.float64).reshape(side, side, -1)
        patches = patches - patches.mean(axis=(0, 1))
        variances = [np.mean(np.sum(patches.mean(axis=axis) ** 2, -1)) for axis in (1, 0)]
        total = np.mean(np.sum(patches**2, -1))
        shares = [variance / total for variance in variances] if total > 0 else [0.0]
        if sum(shares) >= _MIN_BOTH_CODES_SHARE and min(shares) >= _MIN_EITHER_CODE_SHARE:
            after = f" after {n_special} special rows" if n_special else ""
            note = (
                f"its rows look like {side} x {side} patches{after}: a row code plus a column "
                f"code explains {sum(shares):.0%} of the variance. If they are patches, "
                f"state the grid: {side}x{side}"
            )
            return (note,)
    return ()
