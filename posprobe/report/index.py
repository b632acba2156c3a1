"""A folder of bundles: one page that shows what each says, and leads to theirs."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posprobe.errors import InvalidCheckpoint, OutputError, UnknownReference
from posprobe.page import Cell, Listing, Row, Section, Table, columns
from posprobe.report.files import expanded, recover
from posprobe.report.html import listing
from posprobe.report.own import read_regular, seal, unsealed, write_page
from posprobe.report.page import page_of
from posprobe.report.stored import read_bundle

_NAME = "index.html"
#: Figures of which one stands for a bundle, the first that there is; else the first by name.
SHOWN = (
    "overview-similarity",
    "mosaic",
    "similarity",
    "layers",
    "rotation",
    "slopes",
    "heads",
    "kernels",
)
#: Width and height within which it is shown, in pixels, and what its file may have.
THUMBNAIL = (360, 220)
MAX_BYTES, MAX_PIXELS = 2**23, 2**24


def write_index(folder: Path) -> Path:
    """Write ``index.html``, which lists the bundles in a folder, and return its path.

    Raises
    ------
    UnknownReference
        If no folder in it is a bundle.
    OutputError
        If the page cannot be written, or another's ``index.html`` stands there.
    """
    folder = expanded(folder)
    target = folder / _NAME
    recover(target)
    bundles, damaged = _bundles(folder)
    with suppress(FileNotFoundError):
        if not unsealed(read_regular(target).decode("utf-8", "surrogateescape"))[0]:
            raise OutputError(
                f"{target}: not a page of posprobe, or it changed since, and would be lost. "
                "Move it away first."
            )
    write_page(target, seal(_index_page(folder, bundles, damaged)))
    return target


def _bundles(folder: Path) -> tuple[list[Row], list[tuple[str, str]]]:
    try:
        inside = sorted(path.parent for path in folder.glob("*/analysis.json"))
    except OSError:
        inside = []
    bundles, damaged = [], []
    for path in inside:
        try:
            bundles.append(_entry(path, read_bundle(path)))
        except (InvalidCheckpoint, LookupError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, InvalidCheckpoint) else "it lacks its blocks."
            damaged.append((path.name, reason))
    if not bundles:
        raise UnknownReference(
            f"{folder}: not a report: it has no analysis.json, and no folder in it is one. "
            "`posprobe analyze REF --out DIR` makes one."
        )
    return bundles, damaged


def _entry(path: Path, document: Mapping[str, Any]) -> Row:
    """Return what a bundle says of itself, with links to its page and its data."""
    page, href = page_of(document), quote(path.name.encode(errors="surrogateescape"))
    there = (path / "report.html").is_file()
    made = f"{path.name}, made {str(document['environment']['created'])[:10]}"
    return (
        Cell(page.title, note=page.lead, href=f"{href}/report.html" if there else ""),
        Cell("", thumbnail=path.name),
        page.headline.replace("`", "") or "–",
        Cell("JSON", note=made, href=f"{href}/analysis.json"),
    )


def _thumbnail(folder: Path) -> str:
    """Return a small copy of the figure that stands for a bundle, as an element of a page.

    It is empty where there is none that can be read.
    """
    from PIL import Image

    there = {path.stem: path for path in sorted((folder / "figures").glob("*.[ps][nv]g"))}
    name = next((name for name in (*SHOWN, *there) if name in there), None)
    if name is None:
        return ""
    try:
        content = read_regular(there[name], MAX_BYTES)
        if there[name].suffix == ".svg":  # its first raster
            _, _, raster = content.partition(b"data:image/png;base64,")
            content = base64.b64decode(raster.partition(b'"')[0])
        with Image.open(BytesIO(content), formats=["PNG"]) as image:
            if image.width * image.height > MAX_PIXELS:
                return ""
            small = image.convert("RGBA").convert("RGB")
    except (InvalidCheckpoint, OSError, ValueError, SyntaxError):
        return ""
    small.thumbnail(THUMBNAIL)
    wide, high = (-(-side // 2) for side in small.size)
    buffer = BytesIO()
    small.quantize(128).save(buffer, "PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="" width="{wide}" height="{high}">'


def _index_page(folder: Path, bundles: list[Row], damaged: list[tuple[str, str]]) -> str:
    caption = "What each says of itself; the name leads to its page."
    table = Table(caption, columns("name", "drawn", "what it says", "data"), tuple(bundles))
    page = Listing(
        title=folder.resolve().name or "bundles",
        subject=f"{len(bundles)} bundles",
        lead=f"{len(bundles)} bundles in this folder.",
        notes=tuple(f"{name} is left out: {reason}" for name, reason in damaged),
        sections=(Section("bundles", "Bundles", tables=(table,)),),
    )
    pieces = listing(page, version("posprobe"), thumbnail=lambda name: _thumbnail(folder / name))
    return "".join(pieces)
