"""Drawings for a page: small pieces of SVG, and those of matplotlib made fit for it."""

from __future__ import annotations

import base64
import re
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.styles import BLUE, GRID, INK, MUTED, RED
from posprobe.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The points of a path, and what their coordinates have beyond a hundredth of a point.
_PATH, _FINER = re.compile(r'(?<= d=")[^"]*'), re.compile(r"(\.\d\d)\d+")
_PNG = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)")
#: What matplotlib writes of a drawing, and nothing else: a text in which every element, attribute
#: and style is one of these reads the same as XML and as HTML, runs nothing and loads nothing.
_STYLE = (
    r"(?:(?:fill|stroke|font|text|opacity|image-rendering|white-space)[a-z-]*+:\s*+"
    r"(?:url\(#[\w.-]++\)|(?!(?i:url|image|src|element|env|var))[\w.#%-]++\(?+|[\s,.'+)#%-])++(?:;\s*+|(?=\")))*+"
)
_ATTRIBUTE = (
    r"(?:(?:id|in)=\"[\w.-]*+\""
    rf"|style=\"{_STYLE}\""
    r"|clip-path=\"url\(#[\w.-]++\)\""
    r"|(?:xlink:)?href=\"(?:#[\w.-]++|data:image/png;base64,[\w+/=\s]*+)\""
    r"|(?:d|points|x|y|x1|y1|x2|y2|cx|cy|r|width|height|transform|viewBox|clip-rule|offset"
    r"|patternUnits|xml:space|clipPathUnits|version)=\"[\w\s.,()#%+-]*+\""
    r"|(?:fill|stroke)(?:-[a-z]+)?=\"[\w.#-]*+\")"
)
_DRAWING = re.compile(
    r"(?:[^<>]++"
    r"|<style type=\"text/css\">\*\{stroke-linejoin: round; stroke-linecap: butt\}</style>"
    rf"|</?(?:g|defs|clipPath|path|rect|circle|line|use|image|text|tspan|pattern)"
    rf"(?:\s++{_ATTRIBUTE})*+\s*+/?>)*+</svg>\s*+"
)
_USED = re.compile(r"<use\b[^>]*?href=\"#([^\"]*)\"")
_GROUPS = re.compile(r"<(?:g|use|defs|clipPath|pattern|text)\s[^>]*?\bid=\"([^\"]*)\"")
#: Ink that must follow the page's theme, by the CSS variable that names it.
_THEME = {
    INK: "var(--ink)",
    MUTED: "var(--mute)",
    GRID: "var(--rule)",
    BLUE: "var(--acc)",
    RED: "var(--mark)",
}


def svg_of(figure: Figure, name: str) -> str:
    """Draw a figure for a page, within a style in force; equal figures give equal texts."""
    import matplotlib as mpl

    buffer = BytesIO()
    # The salt makes a figure's ids its own and the same on every run.
    mpl.rcParams["svg.hashsalt"] = f"posprobe-{name}"
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return smaller_images(shorter_paths(buffer.getvalue().decode()))


def shorter_paths(svg: str) -> str:
    """Write the points of paths to a hundredth of a point, which no eye and no printer resolves."""
    return _PATH.sub(lambda found: _FINER.sub(r"\1", found[0]), svg)


def smaller_images(svg: str) -> str:
    """Store each raster of a drawing with a palette: a colour map has few colours."""
    return _PNG.sub(lambda found: "data:image/png;base64," + _with_palette(found[1]), svg)


def _with_palette(encoded: str) -> str:
    from PIL import Image

    image = Image.open(BytesIO(base64.b64decode(encoded))).convert("RGBA")
    pixels = np.ascontiguousarray(np.asarray(image)).view(np.uint32)[..., 0]
    colors, index = np.unique(pixels, return_inverse=True)
    if len(colors) > 256:
        return encoded
    rgba = colors.view(np.uint8).reshape(-1, 4)
    small = Image.fromarray(index.reshape(pixels.shape).astype(np.uint8), "P")
    small.putpalette(rgba[:, :3].tobytes())
    buffer = BytesIO()
    small.save(buffer, "PNG", compress_level=6, transparency=bytes(rgba[:, 3]))
    return base64.b64encode(buffer.getvalue()).decode()


def inline(svg: str, name: str, label: str) -> str:
    """Turn a standalone drawing into an element of a page.

    Parameters
    ----------
    svg
        As matplotlib writes it.
    name
        Of the figure; its ids are prefixed with it, since a page holds several drawings.
    label
        Alternative text.
    """
    from html import escape

    body = svg[svg.index("<svg") :]
    root, _, rest = body.partition(">")
    size = re.search(r'viewBox="0 0 (\d{1,6}(?:\.\d{1,9})?) (\d{1,6}(?:\.\d{1,9})?)"', root)
    width, height = (size[1], size[2]) if size else ("460", "300")
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    if not _is_drawing(rest):
        raise ValueError(f"the drawing {name} holds more than a drawing")
    seen: set[str] = set()

    def once(found: re.Match[str]) -> str:
        # Equal rasters have equal ids, to which nothing points.
        if found[1] in seen:
            return ""
        seen.add(found[1])
        return f'id="{name}-{found[1]}"'

    rest = re.sub(r'\bid="([^"]*)"', once, rest)
    rest = rest.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    for color, variable in _THEME.items():
        rest = rest.replace(color, variable)
    shown = float(width) * 4 / 3 * 1.25
    root = (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {width} {height}" '
        f'style="--width:{shown:.0f}px" role="img" '
        f'aria-label="{escape(label, quote=True)}">'
    )
    return root + rest


def _is_drawing(rest: str) -> bool:
    if not _DRAWING.fullmatch(rest):
        return False
    # Characters that are not seen as themselves, written out or by number.
    text = rest.replace("\n", "").replace("\t", "")
    if "&#" in text or plain(text) != text:
        return False
    # What is drawn again holds nothing that is: groups that draw each other would never end.
    return set(_USED.findall(rest)).isdisjoint(_GROUPS.findall(rest))
