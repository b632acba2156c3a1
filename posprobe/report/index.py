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
from posprobe.measurements import compared_numbers
from posprobe.number_format import cell, lookup
from posprobe.page import Cell, Column, Listing, Section, Table, columns
from posprobe.report.files import expanded, recover
from posprobe.report.html import listing
from posprobe.report.own import read_regular, seal, unsealed, write_page
from posprobe.report.stored import read_bundle

_NAME = "index.html"
#: The numbers of a table that are listed.
HEADLINE = (
    "similarity.centered.neighbour_mean",
    "pca.participation_ratio",
    "sinusoid.cka",
)
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


def _bundles(folder: Path) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
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


def _entry(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    positions: int | None = None
    if "tables" in document:
        name = " · ".join(table["label"] for table in document["tables"])
        kind = f"comparison of {len(document['tables'])} tables"
        positions = document["length"]
    elif "records" in document:
        name = " · ".join(record["label"] for record in document["records"])
        kind = f"comparison of {len(document['records'])} encodings"
        positions = document["length"]
    elif "schemes" in document:
        name = document["name"]
        schemes = dict.fromkeys(scheme["scheme"] for scheme in document["schemes"])
        kind = f"encodings without a table: {', '.join(schemes)}"
    elif "ways" in document:
        name, positions = document["table"]["name"], document["table"]["positions"]
        kind = f"{len(document['ways'])} ways of resizing a table"
    elif "rules" in document:
        name, positions = document["name"], document["training"]
        kind = f"{len(document['rules'])} rules of scaling rotary positions"
    elif "contexts" in document:
        name, contexts = document["name"], document["contexts"]
        kind = f"run of a model on {contexts['used']} contexts"
        if document["states"]:
            layout = document["states"]["layout"]
            positions = layout.get("length") or layout["height"] * layout["width"]
    else:
        name, positions = document["table"]["name"], document["table"]["positions"]
        layout = document["table"]["layout"]
        kind = f"{document['table']['kind']} table"
        if layout["type"] == "grid":
            kind += f", {layout['height']} × {layout['width']} patches"
    return {
        "name": name,
        "kind": kind,
        "positions": positions,
        "summary": str(lookup(document, "verdict.summary") or ""),
        "numbers": {key: _number(lookup(document, key)) for key in HEADLINE},
        "created": document["environment"]["created"],
        "folder": path.name,
        "href": quote(path.name.encode(errors="surrogateescape")),
        "page": (path / "report.html").is_file(),
    }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


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


def _index_page(folder: Path, bundles: list[dict[str, Any]], damaged: list[tuple[str, str]]) -> str:
    rows = tuple(
        (
            Cell(
                bundle["name"],
                note=bundle["kind"],
                href=f"{bundle['href']}/report.html" if bundle["page"] else "",
            ),
            Cell("", thumbnail=bundle["folder"]),
            bundle["summary"] or "–",
            cell(bundle["positions"]),
            *(cell(bundle["numbers"][key]) for key in HEADLINE),
            Cell(
                "JSON",
                note=f"{bundle['folder']}, made {str(bundle['created'])[:10]}",
                href=f"{bundle['href']}/analysis.json",
            ),
        )
        for bundle in bundles
    )
    labels = compared_numbers()
    headings = (
        Column("name"),
        *columns("drawn", "what it says", "=positions"),
        *(Column(labels[key].label, numeric=True) for key in HEADLINE),
        Column("data"),
    )
    caption = "What each says of itself; the name leads to its page."
    page = Listing(
        title=folder.resolve().name or "bundles",
        subject=f"{len(bundles)} bundles",
        lead=f"{len(bundles)} bundles in this folder.",
        notes=tuple(f"{name} is left out: {reason}" for name, reason in damaged),
        sections=(
            Section(
                "bundles",
                "Bundles",
                tables=(Table(caption, headings, rows, stacked=True),),
            ),
        ),
        provenance=(),
    )
    pieces = listing(
        page,
        version("posprobe"),
        thumbnail=lambda name: _thumbnail(folder / name),
    )
    return "".join(pieces)
