"""How numbers were rounded to few values: what a format that stores fewer bits says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Quantisation:
    """The quantisation of a stored tensor.

    Parameters
    ----------
    name
        As its format calls it, such as ``Q8_0``.
    step
        Distance between neighbouring values that it can take, in units of the values: the median
        over blocks or channels where each has its own. None until the tensor was read.
    """

    name: Annotated[str, "As the format calls it."]
    step: Annotated[
        float | None,
        "Distance between neighbouring values, the median over blocks that have their own.",
    ] = None
