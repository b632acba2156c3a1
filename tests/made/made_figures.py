"""Axes to draw into, and what every drawing leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes


@pytest.fixture(autouse=True)
def pyplot_is_left_alone() -> Iterator[None]:
    """Hold every drawing to leaving no figure and no setting behind."""
    plt.switch_backend("Agg")
    before = dict(mpl.rcParams)
    yield
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()
