"""A folder of bundles: one page that lists them and leads to theirs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posprobe.errors import InvalidCheckpoint, OutputError, UnknownReference
from posprobe.formatting import cell
from posprobe.page import Cell, Page, Section, Table, columns
from posprobe.report.files import expanded, recover
from posprobe.report.html import html
from posprobe.report.own import read_regular, seal, unsealed, write_page
from posprobe.report.stored import read_bundle

_NAME = "index.html"


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
                f"{target}: it is no page of posprobe, or it changed since, and would be lost. "
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
            f"{folder}: no bundle, it has no analysis.json, and no folder in it is one. "
            "`posprobe analyze REF --out DIR` makes one."
        )
    return bundles, damaged


def _entry(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    positions: int | None = None
    findings: int | None = len(document.get("findings", ()))
    if "tables" in document:
        name = " · ".join(table["label"] for table in document["tables"])
        kind = f"comparison of {len(document['tables'])} tables"
        positions = document["length"]
        findings = sum(len(table.get("findings", ())) for table in document["tables"])
    elif "records" in document:
        name = " · ".join(record["label"] for record in document["records"])
        kind = f"comparison of {len(document['records'])} encodings"
        positions, findings = document["length"], None
    elif "schemes" in document:
        name = document["name"]
        schemes = dict.fromkeys(scheme["scheme"] for scheme in document["schemes"])
        kind = f"encodings without a table: {', '.join(schemes)}"
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
        "findings": findings,
        "created": document["environment"]["created"],
        "folder": path.name,
        "href": quote(path.name.encode(errors="surrogateescape")),
        "page": (path / "report.html").is_file(),
    }


def _index_page(folder: Path, bundles: list[dict[str, Any]], damaged: list[tuple[str, str]]) -> str:
    rows = tuple(
        (
            Cell(bundle["name"], href=f"{bundle['href']}/report.html" if bundle["page"] else ""),
            bundle["kind"],
            cell(bundle["positions"]),
            cell(bundle["findings"]),
            bundle["created"],
            Cell(f"{bundle['folder']}/analysis.json", href=f"{bundle['href']}/analysis.json"),
        )
        for bundle in bundles
    )
    headings = columns("name", "kind", "=positions", "=findings", "made", "folder and data")
    page = Page(
        title=folder.resolve().name or "bundles",
        subject=f"{len(bundles)} bundles",
        lead=f"{len(bundles)} bundles in this folder.",
        notes=tuple(f"{name} is left out: {reason}" for name, reason in damaged),
        sections=(
            Section(
                "bundles",
                "Bundles",
                tables=(Table("What each holds; the name leads to its page.", headings, rows),),
            ),
        ),
        provenance=(),
    )
    return html(page, {"bundles": bundles}, version("posprobe"))
