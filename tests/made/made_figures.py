"""Axes to draw into, and the laws of every drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes


@pytest.fixture(autouse=True)
def pyplot_is_left_alone() -> Iterator[None]:
    """Assert that a test leaves no figure and no changed setting behind."""
    plt.switch_backend("Agg")
    settings_before = dict(mpl.rcParams)
    yield
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == settings_before


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()


def numbers_of(image: Any) -> Any:
    """Return the numbers of an image or a mesh, NaN where nothing is drawn."""
    return np.ma.filled(image.get_array(), np.nan)


def texts(figure: Figure) -> list[Text]:
    """Return all visible texts."""
    artists = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text for text in artists if text.get_text().strip() and text.get_visible()]


def assert_colour_maps(figure: Figure) -> None:
    """Assert that cosines have one diverging range and sizes a sequential map."""
    for image in figure.findobj(AxesImage):
        assert isinstance(image, AxesImage)
        assert image.get_interpolation() == "none"
        low, high = image.get_clim()
        if image.cmap.name == "RdBu_r":
            assert (low, high) == (-1, 1)
        elif image.cmap.name == "PuOr_r":
            assert low == -high
        else:
            assert image.cmap.name in ("viridis", "cividis")
