"""Small pieces of SVG: texts, lines, rasters. Their colours are classes of ``drawings.css``."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from posprobe.text import minus, plain

#: Cosines from -1 to 1: blue, white (dark on a dark page), red, at the places below.
_AT = (-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_LIGHT = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"
_DARK = "8fd0ff 5aa7e4 3785c5 255c8f 193650 14181d 40241c 743320 ae532c e2814d ffc295"
#: Levels of a raster on either side of 0.
_LEVELS = 40


def text(x: float, y: float, words: str, look: str = "ax", anchor: str = "start") -> str:
    """Write words; ``look`` are classes."""
    at = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}"{at}>{escape(plain(words))}</text>'


def rect(look: str, x: float, y: float, width: float, height: float) -> str:
    """Draw a rectangle."""
    at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{look}" {at}/>'


def path(look: str, d: str) -> str:
    """Draw a path."""
    return f'<path class="{look}" d="{d}"/>'


def curve(x: Iterable[float], y: Iterable[float]) -> str:
    """Return the points of a line; it is broken where a point is not finite."""
    found, pen = [], "M"
    for one, other in zip(x, y, strict=True):
        if not np.isfinite(other):
            pen = "M"
            continue
        found.append(f"{pen}{one:.1f},{other:.1f}")
        pen = "L"
    return "".join(found)


def dots(points: NDArray[np.float64]) -> str:
    """Return points ``[k, 2]`` as strokes without length, whose round ends are dots."""
    return "".join(f"M{x:.1f},{y:.1f}h0" for x, y in points)


def svg(width: int, height: int, label: str, parts: Sequence[str], data: str = "") -> str:
    """Put the parts of a drawing together."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(plain(label))}"{data}>'
        f"{''.join(parts)}</svg>"
    )


def map_of(matrix: NDArray[np.float64], x: float, y: float, side: float) -> str:
    """Draw a matrix of cosines, NaN as a hole: once for a light page and once for a dark one."""
    level = np.rint(np.clip(np.nan_to_num(matrix, nan=2.0), -1, 2) * _LEVELS) + _LEVELS
    level = np.where(np.isnan(matrix), 2 * _LEVELS + 1, level).astype(np.uint8)
    places = np.linspace(-1, 1, 2 * _LEVELS + 1)
    look = " cells" if side > 2 * max(matrix.shape) else ""
    return "".join(
        f'<image class="{theme}{look}" x="{x:g}" y="{y:g}" width="{side:g}" height="{side:g}" '
        f'preserveAspectRatio="none" href="data:image/png;base64,{_png(level, colors, places)}"/>'
        for theme, colors in (("only-light", _LIGHT), ("only-dark", _DARK))
    )


def color_bar(x: float, y: float, height: float) -> str:
    """Draw the colours of cosines with their numbers."""
    column = np.linspace(1, -1, 2 * _LEVELS + 1)[:, None]
    bars = map_of(column, x, y, height).replace(f'width="{height:g}"', 'width="9"')
    labels = (
        text(x + 13, y + height * (1 - value) / 2 + 4, minus(f"{value:g}"))
        for value in (1, 0.5, 0, -0.5, -1)
    )
    return bars + "".join(labels)


def _png(level: NDArray[np.uint8], colors: str, places: NDArray[np.float64]) -> str:
    """Encode levels as a PNG with a palette, in base64; the last level is a hole."""
    stops = np.array([list(bytes.fromhex(each)) for each in colors.split()], dtype=np.float64)
    palette = np.stack([np.interp(places, _AT, stops[:, k]) for k in range(3)], axis=1)
    height, width = level.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), level])

    def chunk(kind: bytes, body: bytes) -> bytes:
        tail = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + tail

    image = b"\x89PNG\r\n\x1a\n"
    image += chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
    image += chunk(b"PLTE", np.rint(palette).astype(np.uint8).tobytes() + b"\xff" * 3)
    image += chunk(b"tRNS", b"\xff" * len(palette) + b"\0")
    image += chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b"")
    return base64.b64encode(image).decode()


def ticks(length: int, first: int = 0) -> list[int]:
    """Return round places among ``length`` positions from ``first`` on, and both ends."""
    step = 2 ** max(0, round(np.log2(max(length / 4, 1))))
    last = first + length - 1
    inner = range(-(-(first + 1) // step) * step, last, step)
    far = [place for place in inner if min(place - first, last - place) > step / 3]
    return sorted({first, *far, last})
