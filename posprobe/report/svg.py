"""Drawings made fit for a page: small rasters, ids of their own, colours of the theme."""

from __future__ import annotations

import base64
import re
from io import BytesIO

import numpy as np

from posprobe.figures.styles import BLUE, GRID, INK, MUTED, RED

_PNG = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)")
#: What matplotlib never writes, and a bundle from elsewhere might hold; names in its text may.
_ACTIVE = re.compile(
    r"<\s*(?:script|foreignObject|iframe|animate|set)\b|=\s*[\"']?\s*javascript:"
    r"|<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*?\son\w+\s*=",
    re.IGNORECASE,
)
#: Ink that must follow the page's theme, by the CSS variable that names it.
_THEME = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    BLUE: "var(--blue)",
    RED: "var(--red)",
}


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

    if _ACTIVE.search(svg):
        raise ValueError(f"the drawing {name} holds more than a drawing")
    body = svg[svg.index("<svg") :]
    root, _, rest = body.partition(">")
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', root)
    width, height = (size[1], size[2]) if size else ("460", "300")
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
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
        f'style="--width:{shown:.0f}px;max-width:var(--width)" role="img" '
        f'aria-label="{escape(label, quote=True)}">'
    )
    return root + rest
