"""A table, or a checkpoint, at another size; and what each way of resizing does to it.

The ways by name stand here, apart from what they do, so that help starts without NumPy.
"""

from typing import Literal, TypeAlias, get_args

Way: TypeAlias = Literal[
    "bicubic", "bilinear", "transformers", "linear", "cubic", "fourier", "tile", "sinusoids",
    "repeat-last",
]  # fmt: skip
WAYS: tuple[Way, ...] = get_args(Way)
#: Ways for each layout, in the order in which they are listed.
SEQUENCE_WAYS, GRID_WAYS = WAYS[3:], (*WAYS[:3], *WAYS[5:])
