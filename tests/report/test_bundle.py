"""What a bundle holds, the same whenever it is made; it is rendered again from its data."""

from __future__ import annotations

import copy
import json
import os
import shutil
import xml.etree.ElementTree as ET  # our own drawings are parsed here, nothing from outside
import zipfile
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from made_bundles import (
    BUNDLE_FILES,
    analysis_of,
    document_of,
    put,
    remove,
    run,
    strict_json,
    tree,
)
from made_pages import save_page
from made_replacements import content as quick
from made_schemas import problems
from made_tables import as_table, walk
from PIL import Image

import posprobe as pp
from posprobe.errors import InvalidCheckpoint, PosprobeError, UsageError
from posprobe.report import bundle_name, read_bundle, render_bundle
from posprobe.report.bundle import default_folder
from posprobe.report.screen import render_text
from posprobe.samples import samples
from posprobe.words import claim_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete bundle of a real table."""
    return analysis_of("sapiens-roberta").save(
        tmp_path_factory.mktemp("whole") / "sapiens"
    )


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    analysis = pp.analyze(as_table(walk(12, 4)), only=["norms", "similarity"], nulls=0)
    return analysis.save(tmp_path_factory.mktemp("little") / "bundle")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose page shows its figures."""
    tables = as_table(walk(12, 4)), pp.sinusoidal(12, 4)
    return pp.compare(*tables, only=["pca"]).save(
        tmp_path_factory.mktemp("two") / "bundle"
    )


@pytest.fixture
def bundle(little: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(little, tmp_path / "bundle"))


@pytest.fixture
def pair(compared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compared, tmp_path / "pair"))


def test_the_folder_holds_data_figures_and_page_and_nothing_else(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == BUNDLE_FILES
    figures = list((whole / "figures").iterdir())
    names = ("budget", "similarity", "shape", "spectrum")
    assert {path.name for path in figures} == {f"overview-{name}.svg" for name in names}
    for path in figures:
        root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314
        assert root.tag.endswith("}svg")


def test_every_figure_is_made_in_the_formats_that_are_asked_for(tmp_path: Path) -> None:
    analysis = pp.analyze(as_table(walk(40, 6)), only=["norms"])
    folder = analysis.save(tmp_path / "b", every=True, formats=("png", "pdf")) / "figures"
    figure_files = {
        path.name for path in folder.iterdir() if not path.name.startswith("overview-")
    }
    assert figure_files == {
        f"{name}.{kind}" for name in analysis.figures() for kind in ("png", "pdf")
    }
    assert "norms.png" in figure_files
    assert (folder / "norms.pdf").read_bytes().startswith(b"%PDF")
    with Image.open(folder / "norms.png") as image:
        image.verify()
        assert min(image.size) > 200
    render_bundle(tmp_path / "b")
    analysis.save(tmp_path / "b")
    assert not (folder / "norms.pdf").exists()


def test_the_saved_document_is_the_analysis(whole: Path) -> None:
    saved = strict_json((whole / "analysis.json").read_text(encoding="utf-8"))
    assert problems("analysis", saved) == []
    assert read_bundle(whole) == saved
    expected = strict_json(document_of("sapiens-roberta"))
    for document in (saved, expected):
        del document["environment"]["created"]
    assert saved == expected
    table = saved["table"]
    assert table["positions"] == 144
    assert table["layout"] == {"type": "sequence", "length": 144}
    assert [row["row"] for row in table["dropped_rows"]] == [0, 1]
    assert table["source"]["reference"] == "sample:sapiens-roberta"
    shipped = next(sample for sample in samples() if sample.name == "sapiens-roberta")
    assert table["source"]["sha256"] == shipped.tensor_sha256


def test_the_arrays_are_those_of_the_results(whole: Path) -> None:
    table = pp.load("sample:sapiens-roberta")
    similarity, components, spectrum = (
        pp.similarity(table),
        pp.pca(table),
        pp.spectrum(table),
    )
    with np.load(whole / "arrays.npz", allow_pickle=False) as arrays:
        expected = {
            "values": table.values,
            "norms": pp.norms(table).norms,
            "similarity": similarity.raw.matrix,
            "similarity_centered": similarity.centered.matrix,
            "offset_profile": similarity.raw.offset_mean,
            "pca_scores": components.scores,
            "pca_components": components.components,
            "pca_explained_variance_ratio": components.explained_variance_ratio,
            "spectrum_frequency": spectrum.frequency,
            "spectrum_power": spectrum.power,
            "spectrum_power_by_dim": spectrum.power_by_dim,
        }
        for name, array in expected.items():
            assert arrays[name].dtype == array.dtype, name
            np.testing.assert_array_equal(arrays[name], array, err_msg=name)


def test_the_time_is_that_of_source_date_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert quick(0).environment["created"] == "2023-11-14T22:13:20+00:00"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    created = datetime.fromisoformat(quick(0).environment["created"])
    assert abs((datetime.now(UTC) - created).total_seconds()) < 600
    for bad_epoch in ("yesterday", "9" * 30):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", bad_epoch)
        with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
            quick(0)


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    trees = []
    for seed in ("1", "2"):
        place = tmp_path / seed
        place.mkdir()
        completed = run(
            "analyze", "sincos2d:4x6x16", "--nulls", "2", "--out", "bundle", cwd=place,
            SOURCE_DATE_EPOCH="1700000000", PYTHONHASHSEED=seed,
        )  # fmt: skip
        assert completed.returncode == 0, completed.stderr
        trees.append(tree(place))
    assert trees[0].keys() == trees[1].keys()
    for name, content in trees[0].items():
        assert trees[1][name] == content, name


# Names of bundles.


def test_different_rows_and_tables_get_folders_of_their_own() -> None:
    table = pp.load("sample:sapiens-roberta")
    formula = pp.sinusoidal(16, 4)
    names = {
        bundle_name(subject)
        for subject in (
            table,
            table[1:],
            table[:10],
            formula,
            pp.sinusoidal(16, 6),
            formula[2:],
        )
    }
    assert len(names) == 6
    assert bundle_name(table) == "sapiens-roberta"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ('"><script>', "script"),
        ("..", "table"),
        ("größe 7", "gr-e-7"),
    ],
)
def test_a_folder_name_cannot_lead_elsewhere(name: str, folder: str) -> None:
    assert bundle_name(replace(as_table(walk(12, 4)), name=name)) == folder


# Damaged, or sent by somebody.


def test_a_bundle_that_lost_its_figures_keeps_the_page_it_has(pair: Path) -> None:
    shutil.rmtree(pair / "figures")
    files_before = tree(pair)
    with pytest.raises(InvalidCheckpoint, match="lost its figures"):
        render_bundle(pair)
    assert tree(pair) == files_before


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"schema": "posprobe.analysis/2"}',
        b'{"schema": "posprobe.analysis/1", "table": 3, "environment": 4}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"9" * 5000,
    ],
    ids=lambda content: repr(content[:50]),
)
def test_a_damaged_document_is_one_clear_error(content: bytes, bundle: Path) -> None:
    (bundle / "analysis.json").write_bytes(content)
    files_before = tree(bundle)
    with pytest.raises(
        InvalidCheckpoint, match=r"analysis\.json.*Analyse the table again"
    ):
        render_bundle(bundle)
    assert tree(bundle) == files_before


def paths(block: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    if isinstance(block, dict) and len(path) < 2:
        for key, value in block.items():
            if key not in ("undefined", "findings"):
                yield from paths(value, (*path, key))


@pytest.mark.parametrize(
    "value",
    [None, 10**400, -1, "\x1b[2J", [[3]], "<b>", "9" * 5000],
    ids=lambda v: repr(v)[:9],
)
def test_no_missing_or_wrong_value_of_the_document_is_a_crash(
    value: Any, bundle: Path
) -> None:
    document = read_bundle(bundle)
    refused = 0
    for path in paths(document):
        for change in (put(value, *path), *([remove(*path)] if value is None else [])):
            changed_document = copy.deepcopy(document)
            change(changed_document)
            (bundle / "analysis.json").write_text(
                json.dumps(changed_document), encoding="utf-8"
            )
            try:
                page = render_bundle(bundle).read_text(encoding="utf-8")
                assert "\x1b" not in page
            except InvalidCheckpoint:
                refused += 1
    assert refused > 5


@pytest.mark.parametrize("name", ["comparison", "schemes", "kernels", "run", "ways"])
def test_no_block_that_is_missing_or_something_else_is_a_crash(
    name: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    saved_bundle = save_page(tmp_path_factory.getbasetemp(), name)
    folder = Path(shutil.copytree(saved_bundle, tmp_path / "bundle"))
    document = read_bundle(folder)
    refused = 0
    for key in document:
        for change in (remove(key), put([[3]], key)):
            changed_document = copy.deepcopy(document)
            change(changed_document)
            (folder / "analysis.json").write_text(
                json.dumps(changed_document), encoding="utf-8"
            )
            try:
                render_bundle(folder)
            except InvalidCheckpoint:
                refused += 1
    assert refused > 5


def test_a_size_of_a_drawing_is_a_number(pair: Path) -> None:
    (pair / "figures" / "variance.svg").write_text(
        '<svg viewBox="0 0 1.1.1 2"><g/></svg>'
    )
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
def test_a_page_that_is_no_file_is_not_replaced(
    make: Callable[[Path], None], bundle: Path
) -> None:
    make(bundle / "report.html")
    with pytest.raises(PosprobeError, match=r"report\.html"):
        render_bundle(bundle)


@pytest.mark.parametrize("dtype", [int, complex, str, object])
def test_arrays_that_are_no_numbers_are_one_clear_error(
    dtype: type, bundle: Path
) -> None:
    np.savez(bundle / "arrays.npz", similarity_centered=np.ones((4, 4)).astype(dtype))
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz"):
        render_bundle(bundle)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 2, 2), (12, 12)])
def test_arrays_that_are_no_cosines_do_no_harm(
    shape: tuple[int, ...], bundle: Path
) -> None:
    np.savez(bundle / "arrays.npz", similarity_centered=np.full(shape, 1e300))
    with suppress(InvalidCheckpoint):  # where nothing else is drawn
        page = render_bundle(bundle).read_text(encoding="utf-8")
        assert ("a tile per patch" in page or "Cosine similarity" in page) == (
            shape == (12, 12)
        )


def test_an_archive_that_unpacks_to_more_than_the_memory_is_refused(bundle: Path) -> None:
    header = np.lib.format.header_data_from_array_1_0(np.ones((1, 1))) | {
        "shape": (2**20, 2**20)
    }
    with (
        zipfile.ZipFile(bundle / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("similarity_centered.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(2**20))
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz"):
        render_bundle(bundle)


# Bundles of the last release.

RELEASED_BUNDLES = sorted((Path(__file__).parents[1] / "data").glob("*-0.1.0"))


@pytest.mark.parametrize(
    "bundle", RELEASED_BUNDLES, ids=[path.name for path in RELEASED_BUNDLES]
)
def test_a_bundle_of_the_last_release_follows_its_schema_and_renders(
    bundle: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    page = render_bundle(folder).read_text(encoding="utf-8")
    document = read_bundle(folder)
    schema = document["schema"].removeprefix("posprobe.").replace("/", "-")
    stored = json.loads(
        (files("posprobe.report") / "schema" / f"{schema}.json").read_text()
    )
    assert list(jsonschema.Draft202012Validator(stored).iter_errors(document)) == []
    name = (
        document["tables"][0]["label"]
        if "tables" in document
        else document["table"]["name"]
    )
    assert name in page
    # Its null models are those that it names, whatever this release draws.
    models = document.get("nulls", document.get("tables", [{}])[0].get("nulls"))["models"]
    assert "phase" in models
    if "table" in document:
        assert ">phase</th>" in page
    else:
        assert "CKA (0–1)" in page
    assert "None" not in render_text(document).split()


RUN_BUNDLES = sorted((Path(__file__).parents[1] / "data").glob("*-run-*"))


@pytest.mark.parametrize("bundle", RUN_BUNDLES, ids=[path.name for path in RUN_BUNDLES])
def test_a_run_of_an_earlier_version_follows_its_schema_and_renders(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(bundle, Path("reports/run")))
    page = render_bundle(folder).read_text(encoding="utf-8")
    document = read_bundle(folder)
    assert document["schema"] == f"posprobe.forward/{bundle.name[-1]}"
    schema = document["schema"].removeprefix("posprobe.").replace("/", "-")
    stored = json.loads(
        (files("posprobe.report") / "schema" / f"{schema}.json").read_text()
    )
    assert list(jsonschema.Draft202012Validator(stored).iter_errors(document)) == []
    text = render_text(document)
    for answer in document["verdict"]["answers"]:
        assert claim_sentence(answer) in unescape(page)
    # The question on heads was asked of weights, and is asked no more.
    is_asked = any(a["question"] == "heads" for a in document["verdict"]["answers"])
    assert ("Heads fixed on one offset?" in text) == is_asked
    assert document["name"] in page
    assert "None" not in text.split()
    # A new run of the same model takes the place of an earlier one.
    assert default_folder("run", {(document["name"], None)}) == folder
