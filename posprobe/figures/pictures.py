"""Pictures of a notebook's cards: small PNG within the HTML, which any viewer shows."""

from __future__ import annotations

import base64
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

from posprobe.figures.common import escape_figure_text
from posprobe.figures.styles import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width of a picture in pixels: about half a cell, so that two stand side by side.
PICTURE_WIDTH_PIXELS = 480
#: Height limit of a picture in pixels, about a screen.
MAX_PICTURE_HEIGHT_PIXELS = 640
#: Colours of a picture: fewer show bands in a colour map.
N_PICTURE_COLOURS = 128
#: Size limit of a picture in base64, so that a card with two stays below 100 kB.
MAX_PICTURE_BYTES = 45_000
#: Factor by which a picture that is too large is made smaller, until it is small enough.
SHRINKING_FACTOR = 0.75


def picture_address(draw: Callable[[], Figure]) -> str:
    """Draw a picture, and return it as the address of an image that holds its content.

    Parameters
    ----------
    draw
        Function that draws the figure.
    """
    with style():
        figure = escape_figure_text(draw())
        width, height = figure.get_size_inches()
        dpi = min(PICTURE_WIDTH_PIXELS / width, MAX_PICTURE_HEIGHT_PIXELS / height)
        while len(encoded := _encode(figure, dpi)) > MAX_PICTURE_BYTES:
            dpi *= SHRINKING_FACTOR
    return f"data:image/png;base64,{encoded}"


def _encode(figure: Figure, dpi: float) -> str:
    """Return a figure as PNG with few colours, in base64."""
    from PIL import Image

    drawn, reduced = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    image = Image.open(drawn).convert("RGB").quantize(N_PICTURE_COLOURS)
    image.save(reduced, "PNG", optimize=True)
    return base64.b64encode(reduced.getvalue()).decode()
