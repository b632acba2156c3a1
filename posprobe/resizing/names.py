"""The ways of resizing by name: apart from what they do, so that help starts without NumPy."""

from enum import StrEnum


class Way(StrEnum):
    """How a table gets another size."""

    bicubic = "bicubic"
    bilinear = "bilinear"
    transformers = "transformers"
    linear = "linear"
    cubic = "cubic"
    fourier = "fourier"
    tile = "tile"
    sinusoids = "sinusoids"
    repeat_last = "repeat-last"


_EITHER = (Way.fourier, Way.tile, Way.sinusoids, Way.repeat_last)
#: Ways for each layout, in the order in which they are listed.
SEQUENCE_WAYS = tuple(way.value for way in (Way.linear, Way.cubic, *_EITHER))
GRID_WAYS = tuple(way.value for way in (Way.bicubic, Way.bilinear, Way.transformers, *_EITHER))
WAYS = tuple(way.value for way in Way)
