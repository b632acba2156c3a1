"""Bundles that somebody sent: drawings that act, parts that are no files, arrays that are none."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from made_tables import as_table, walk

import posprobe as pp
from posprobe.errors import InvalidCheckpoint, PosprobeError
from posprobe.report import render_bundle


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


@pytest.mark.parametrize("dtype", [int, complex, str, object])
def test_arrays_that_are_no_numbers_are_one_clear_error(dtype: type, bundle: Path) -> None:
    np.savez(bundle / "arrays.npz", similarity_centered=np.ones((4, 4)).astype(dtype))
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz"):
        render_bundle(bundle)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 2, 2), (12, 12)])
def test_arrays_that_are_no_cosines_do_no_harm(shape: tuple[int, ...], bundle: Path) -> None:
    np.savez(bundle / "arrays.npz", similarity_centered=np.full(shape, 1e300))
    with suppress(InvalidCheckpoint):  # where nothing else is drawn
        page = render_bundle(bundle).read_text(encoding="utf-8")
        assert ("a tile per patch" in page or "Cosine similarity" in page) == (shape == (12, 12))


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
