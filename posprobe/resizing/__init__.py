"""Resizing of tables, checkpoints and rotary ladders, and the losses at the new size.

The names of the ways are here, apart from their functions, so that help starts without NumPy.
"""

from typing import Literal, TypeAlias, get_args

Way: TypeAlias = Literal[
    "bicubic",
    "bilinear",
    "transformers",
    "trilinear",
    "linear",
    "cubic",
    "fourier",
    "tile",
    "sinusoids",
    "repeat-last",
]
WAYS: tuple[Way, ...] = get_args(Way)
#: Ways of resizing a sequence, in the order in which they are listed.
SEQUENCE_WAYS = WAYS[4:]
#: Ways of resizing a grid, in the order in which they are listed.
GRID_WAYS = (*WAYS[:3], *WAYS[6:])
#: Ways of resizing the patches of a video.
VIDEO_WAYS = WAYS[3:4]
