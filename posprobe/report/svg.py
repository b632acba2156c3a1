"""SVG of a page: elements of its drawings, and figures of matplotlib prepared for it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.styles import (
    BLUE,
    INK,
    MUTED,
    OCHRE,
    ON_RED,
    PALE,
    PURPLE,
    RED,
    SOUND_FILL,
)
from posprobe.text import escape_invisible, use_minus_sign

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: Commands of a path.
_PATH_DATA = re.compile(r'(?<= d=")[^"]*')
#: Decimals of a coordinate, of which the first two are kept.
_EXTRA_DIGITS = re.compile(r"(\.\d\d)\d+")
#: PNG within a drawing, in base64.
_PNG_DATA = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)")
#: Line breaks with the space around them.
_LINE_BREAK = re.compile(r"[ \t]*\n\s*")
#: CSS variable of each colour that must follow the theme of the page.
_THEME_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--mute)",
    PALE: "var(--rule)",
    BLUE: "var(--acc)",
    RED: "var(--mark)",
    PURPLE: "var(--purple)",
    OCHRE: "var(--ochre)",
    SOUND_FILL: "var(--sound)",
    ON_RED: "var(--on-mark)",
}


def render_svg(figure: Figure, name: str) -> str:
    """Draw a figure for a page within a `style` block; equal figures give equal texts."""
    import matplotlib as mpl

    buffer = BytesIO()
    # The salt makes the ids differ between figures and agree between runs.
    mpl.rcParams["svg.hashsalt"] = f"posprobe-{name}"
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return shrink_images(shorten_paths(buffer.getvalue().decode()))


def shorten_paths(svg: str) -> str:
    """Cut coordinates of paths to hundredths of a point, which no printer resolves."""
    return _PATH_DATA.sub(lambda path_match: _EXTRA_DIGITS.sub(r"\1", path_match[0]), svg)


def shrink_images(svg: str) -> str:
    """Store each raster of a drawing with a palette, since colour maps have few colours."""
    return _PNG_DATA.sub(
        lambda image_match: (
            "data:image/png;base64," + _encode_with_palette(image_match[1])
        ),
        svg,
    )


def _encode_with_palette(encoded: str) -> str:
    from PIL import Image

    image = Image.open(BytesIO(base64.b64decode(encoded))).convert("RGBA")
    pixels = np.ascontiguousarray(np.asarray(image)).view(np.uint32)[..., 0]
    colors, index = np.unique(pixels, return_inverse=True)
    if len(colors) > 256:
        return encoded
    return _encode_png(
        index.reshape(pixels.shape).astype(np.uint8), colors.view(np.uint8).reshape(-1, 4)
    )


def _encode_png(index: NDArray[np.uint8], rgba: NDArray[np.uint8]) -> str:
    """Encode indices into a palette ``[k, 4]`` as a PNG, in base64."""
    from PIL import Image

    image = Image.fromarray(index, "P")
    image.putpalette(rgba[:, :3].tobytes())
    buffer = BytesIO()
    image.save(buffer, "PNG", compress_level=6, transparency=bytes(rgba[:, 3]))
    return base64.b64encode(buffer.getvalue()).decode()


def embed_svg(svg: str, label: str) -> str:
    """Embed a standalone drawing as an image, which runs no script and loads no file.

    Parameters
    ----------
    svg
        Drawing as matplotlib writes it; that of a bundle may come from somebody else.
    label
        Alternative text.
    """
    size = re.search(r'viewBox="0 0 (\d{1,6}(?:\.\d{1,9})?) ', svg)
    # A point has 4/3 pixels; the factor 1.25 allows for screens being further away than paper.
    width = float(size[1] if size else 460) * 4 / 3 * 1.25
    # A line break takes three letters in an address, and indents only help who reads the file.
    svg = _LINE_BREAK.sub(" ", svg)
    for color, variable in _THEME_VARIABLES.items():
        svg = svg.replace(color, variable)
    root, _, content = svg[svg.index("<svg") :].partition(">")
    address = quote(
        f"{root}><style>{read_template('colors.css')}</style>{content}",
        safe=" :;/?,=+()!*>",
    )
    return (
        f'<img alt="{escape(label)}" style="--width:{width:.0f}px" '
        f'src="data:image/svg+xml,{address}">'
    )


@cache
def read_template(name: str) -> str:
    """Return the text of a style sheet or script of the pages."""
    return (files("posprobe.report") / "templates" / name).read_text(encoding="utf-8")


#: Cosines whose colours are listed below; colours in between are interpolated.
_STOP_POSITIONS = (-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
#: Colours of cosines on a light page: blue, white, red.
_LIGHT_COLOURS = (
    "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"
)
#: Colours of cosines on a dark page: blue, black, red.
_DARK_COLOURS = (
    "8fd0ff 5aa7e4 3785c5 255c8f 193650 14181d 40241c 743320 ae532c e2814d ffc295"
)
#: Number of levels of a raster on either side of 0.
_N_LEVELS = 40


def text_element(
    x: float, y: float, content: str, css_class: str = "ax", anchor: str = "start"
) -> str:
    """Return a text of one line, with its CSS classes."""
    anchor_attribute = f' text-anchor="{anchor}"' if anchor != "start" else ""
    attributes = f'class="{css_class}" x="{x:.1f}" y="{y:.1f}"{anchor_attribute}'
    return f"<text {attributes}>{escape(escape_invisible(content))}</text>"


def rect_element(css_class: str, x: float, y: float, width: float, height: float) -> str:
    """Return a rectangle."""
    box_attributes = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{css_class}" {box_attributes}/>'


def path_element(css_class: str, commands: str) -> str:
    """Return a path that follows these drawing commands."""
    return f'<path class="{css_class}" d="{commands}"/>'


def line_commands(x: Iterable[float], y: Iterable[float]) -> str:
    """Return the path commands of a line, which is broken where a value is not finite."""
    commands, command = [], "M"
    for x_value, y_value in zip(x, y, strict=True):
        if not np.isfinite(y_value):
            command = "M"
            continue
        commands.append(f"{command}{x_value:.1f},{y_value:.1f}")
        command = "L"
    return "".join(commands)


def dot_commands(points: NDArray[np.float64]) -> str:
    """Return path commands of points ``[k, 2]``: strokes of length 0 with round ends."""
    return "".join(f"M{x:.1f},{y:.1f}h0" for x, y in points)


def svg_element(
    width: int,
    height: int,
    label: str,
    elements: Sequence[str],
    data_attributes: str = "",
) -> str:
    """Return a drawing of these elements."""
    aria_label = escape(escape_invisible(label))
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{aria_label}"'
        f"{data_attributes}>{''.join(elements)}</svg>"
    )


def cosine_map(matrix: NDArray[np.float64], x: float, y: float, side: float) -> str:
    """Draw a matrix of cosines, with holes at NaN, for a light page and again for a dark one."""
    levels = (
        np.rint(np.clip(np.nan_to_num(matrix, nan=2.0), -1, 2) * _N_LEVELS) + _N_LEVELS
    )
    levels = np.where(np.isnan(matrix), 2 * _N_LEVELS + 1, levels).astype(np.uint8)
    cells_class = " cells" if side > 2 * max(matrix.shape) else ""
    images = []
    for theme, colors in (("only-light", _LIGHT_COLOURS), ("only-dark", _DARK_COLOURS)):
        png = _encode_png(levels, _palette(colors))
        images.append(
            f'<image class="{theme}{cells_class}" x="{x:g}" y="{y:g}" '
            f'width="{side:g}" height="{side:g}" preserveAspectRatio="none" '
            f'href="data:image/png;base64,{png}"/>'
        )
    return "".join(images)


def cosine_bar(x: float, y: float, height: float) -> str:
    """Draw a colour bar of cosines."""
    column = np.linspace(1, -1, 2 * _N_LEVELS + 1)[:, None]
    bars = cosine_map(column, x, y, height).replace(f'width="{height:g}"', 'width="9"')
    labels = (
        text_element(
            x + 13, y + height * (1 - value) / 2 + 4, use_minus_sign(f"{value:g}")
        )
        for value in (1, 0.5, 0, -0.5, -1)
    )
    return bars + "".join(labels)


def _palette(colors: str) -> NDArray[np.uint8]:
    """Return the colour of each level, and a transparent one for holes."""
    stops = np.array(
        [list(bytes.fromhex(color)) for color in colors.split()], dtype=np.float64
    )
    level_cosines = np.linspace(-1, 1, 2 * _N_LEVELS + 1)
    shades = [np.interp(level_cosines, _STOP_POSITIONS, channel) for channel in stops.T]
    opaque_colors = np.stack([*shades, np.full_like(level_cosines, 255)], axis=1)
    return np.asarray(np.rint(np.vstack([opaque_colors, np.zeros(4)])), dtype=np.uint8)


def position_ticks(length: int, first: int = 0) -> list[int]:
    """Return round numbers among ``length`` positions from ``first`` on, and both ends."""
    step = 2 ** max(0, round(np.log2(max(length / 4, 1))))
    last = first + length - 1
    inner = range(-(-(first + 1) // step) * step, last, step)
    spaced = [
        position
        for position in inner
        if min(position - first, last - position) > step / 3
    ]
    return sorted({first, *spaced, last})
