"""Bundles that somebody sent: drawings that act, parts that are no files, arrays that are none."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_tables import as_table, walk

import posprobe as pp
from posprobe.errors import InvalidCheckpoint, PosprobeError
from posprobe.report import render_bundle
from posprobe.report.bundle import write_index

ROOT = '<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 10 10">'
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "event": '<path d="M 0 0" onload="alert(1)"/>',
    "event without quotes": "<path d='M' onclick=alert(1)>",
    "slash for a space": '<path/onload="alert(1)"/>',
    "link": '<a xlink:href="javascript:alert(1)"><text>x</text></a>',
    "link in capitals": '<a xlink:href="  JavaScript:alert(1)"><text>x</text></a>',
    "event behind a bracket": "<rect width='>' onclick='alert(1)'/>",
    "event on a line of its own": "<text\nonmouseover = alert(1)>a</text>",
    "data link": '<use xlink:href="data:image/svg+xml,x#a"/>',
    "refresh": '<meta http-equiv="refresh" content="0;url=http://example.org"/>',
    "style sheet": "<style>body { display: none }</style>",
    "style type": '<style type="text/css">@import "http://example.org"</style>',
    "style url": '<path d="M 0 0" style="fill: url(http://example.org/a)"/>',
    "style URL": '<path d="M 0 0" style="fill: URL(a.svg)"/>',
    "style escape": '<path d="M 0 0" style="fill: u\\72l(a)"/>',
    "style place": '<path d="M 0 0" style="position: fixed"/>',
    "heading": "<h1>You won</h1>",
    "foreign object": "<foreignObject><p>x</p></foreignObject>",
    "image": '<image xlink:href="http://example.org/pixel.png"/>',
    "form": '<form action="http://example.org"><input/></form>',
    "base": '<base href="http://example.org"/>',
    "animation": '<set attributeName="href" to="javascript:alert(1)"/>',
    "comment": "<!--><h1>You won</h1>-->",
    "section": "<![CDATA[<h1>You won</h1>]]>",
    "instruction": "<?xml-stylesheet href='http://example.org'?>",
    "ends early": "</svg><h1>You won</h1><svg>",
    "drawings that draw each other": (
        '<g id="a"><use xlink:href="#b"/><use xlink:href="#b"/></g>'
        '<g id="b"><use xlink:href="#a"/></g>'
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    analysis = pp.analyze(as_table(walk(12, 4)), only=["norms", "similarity"], nulls=0)
    return analysis.save(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "bundle"))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose page shows its figures."""
    tables = as_table(walk(12, 4)), pp.sinusoidal(12, 4)
    return pp.compare(*tables, only=["pca"]).save(tmp_path_factory.mktemp("two") / "bundle")


@pytest.fixture
def pair(compared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compared, tmp_path / "pair"))


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_but_a_drawing_reaches_the_page(name: str, pair: Path) -> None:
    before = (pair / "report.html").read_bytes()
    (pair / "figures" / "variance.svg").write_text(f"{ROOT}{HOSTILE[name]}</svg>")
    with pytest.raises(InvalidCheckpoint, match="variance holds more than a drawing"):
        render_bundle(pair)
    assert (pair / "report.html").read_bytes() == before


def test_a_size_of_a_drawing_is_a_number(pair: Path) -> None:
    (pair / "figures" / "variance.svg").write_text('<svg viewBox="0 0 1.1.1 2"><g/></svg>')
    render_bundle(pair)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2**40)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("part", ["analysis.json", "arrays.npz", "figures/variance.svg"])
@pytest.mark.parametrize("make", [fifo, folder, loop, endless, huge, empty])
def test_a_part_that_is_no_file_is_one_clear_error(
    make: Callable[[Path], None], part: str, pair: Path
) -> None:
    make(pair / part)
    with pytest.raises(InvalidCheckpoint, match=Path(part).name):
        render_bundle(pair)


@pytest.mark.parametrize("make", [fifo, folder, endless])
def test_a_page_that_is_no_file_is_not_replaced(make: Callable[[Path], None], bundle: Path) -> None:
    make(bundle / "report.html")
    with pytest.raises(PosprobeError, match=r"report\.html"):
        render_bundle(bundle)
    (bundle.parent / "index.html").write_text("")
    make(bundle.parent / "index.html")
    with pytest.raises(PosprobeError, match=r"index\.html"):
        write_index(bundle.parent)


@pytest.mark.parametrize(
    "matrix",
    [
        np.ones(4), np.ones((3, 4)), np.ones((2, 2, 2)), np.full((4, 4), np.inf),
        np.full((4, 4), 3.0), np.ones((4, 4), dtype=int), np.ones((4, 4), dtype=complex),
        np.array([["a", "b"], ["c", "d"]]),
    ],
    ids=lambda matrix: f"{matrix.dtype} {matrix.shape}",
)  # fmt: skip
def test_cosines_that_are_none_are_one_clear_error(
    matrix: np.ndarray[tuple[int, ...], np.dtype[np.generic]], bundle: Path
) -> None:
    np.savez(bundle / "arrays.npz", similarity_centered=matrix)
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz"):
        render_bundle(bundle)


def test_objects_in_the_arrays_are_not_loaded(bundle: Path) -> None:
    np.savez(
        bundle / "arrays.npz",
        similarity_centered=np.array([[object()]], dtype=object),
        allow_pickle=True,
    )
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz"):
        render_bundle(bundle)


def test_an_archive_that_unpacks_to_more_than_the_memory_is_refused(bundle: Path) -> None:
    header = np.lib.format.header_data_from_array_1_0(np.ones((1, 1))) | {"shape": (2**20, 2**20)}
    with (
        zipfile.ZipFile(bundle / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("similarity_centered.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(2**20))
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz"):
        render_bundle(bundle)


@pytest.mark.parametrize("value", [10**400, -1, "\x1b[2J", [[]], None, "9" * 5000])
def test_values_of_the_document_are_shown_or_refused(value: object, bundle: Path) -> None:
    document = json.loads((bundle / "analysis.json").read_text())
    for block in ("table", "norms", "similarity", "environment"):
        for key in document[block]:
            changed = json.loads(json.dumps(document))
            changed[block][key] = value
            (bundle / "analysis.json").write_text(json.dumps(changed))
            try:
                page = render_bundle(bundle).read_text(encoding="utf-8")
            except InvalidCheckpoint:
                continue
            assert "\x1b" not in page
