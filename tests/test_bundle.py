"""The bundle: what it holds, that it is written whole or not at all, and that it is repeatable."""

from __future__ import annotations

import copy
import errno
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET  # our own drawings are parsed here, nothing from outside
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from made_tables import as_table, gaussian, patches, walk
from PIL import Image
from safetensors import safe_open

import posprobe as pp
from posprobe.errors import InvalidCheckpoint, OutputError, UnknownReference, UsageError
from posprobe.layouts import Grid
from posprobe.report import (
    bundle_name,
    read_bundle,
    render_bundle,
    to_json,
    write_bundle,
    write_table,
)
from posprobe.samples import samples
from posprobe.tables import DroppedRow, PrefixRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.figure import Figure

    from posprobe.report import Analysis
    from posprobe.tables import PositionTable

MEMBERS = {"analysis.json", "arrays.npz", "figures", "report.html"}
SEQUENCE_ARRAYS = {
    "values",
    "norms",
    "similarity",
    "similarity_centered",
    "offset_profile",
    "pca_scores",
    "pca_components",
    "pca_explained_variance_ratio",
    "spectrum_frequency",
    "spectrum_power",
    "spectrum_power_by_dim",
}
MAIN = [sys.executable, "-m", "posprobe"]
#: A mount of one's own needs a namespace of one's own, which not every container grants.
NAMESPACES = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: the bytes of files, None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def small(**fields: Any) -> Analysis:
    """An analysis that is quickly written: two figures."""
    return pp.analyze(replace(as_table(walk(12, 4)), **fields), only=["norms"], nulls=0)


@cache
def schema() -> dict[str, Any]:
    text = (files("posprobe.report") / "schema" / "analysis-1.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def problems(document: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def with_zero_row() -> PositionTable:
    values = gaussian(6, 3)
    values[0] = 0
    return as_table(values)


TABLES: dict[str, Callable[[], PositionTable]] = {
    **{
        sample.name: (lambda name=sample.name: pp.load(f"sample:{name}"))  # type: ignore[misc]
        for sample in samples()
    },
    "grid": lambda: patches(8, 6, 12),
    "small grid": lambda: patches(2, 3, 5),
    "constant": lambda: as_table(np.ones((16, 3))),
    "constant grid": lambda: as_table(np.full((64, 3), 0.1), Grid(8, 8)),
    "zeros": lambda: as_table(np.zeros((9, 2))),
    "zero row": with_zero_row,
    "two rows": lambda: as_table(gaussian(2, 3)),
    "seven rows": lambda: as_table(gaussian(7, 1)),
    "cut": lambda: as_table(walk(30, 4))[10:20],
}


@cache
def document_of(name: str) -> str:
    return to_json(pp.analyze(TABLES[name](), nulls=1, device="cpu").to_dict())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete bundle of a real table. Tests that change it work on a copy."""
    table = pp.load("sample:sapiens-roberta")
    analysis = pp.analyze(table, nulls=1, device="cpu")
    return analysis.save(tmp_path_factory.mktemp("bundle") / "sapiens")


@pytest.fixture
def own_bundle(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "own"))


# What a bundle holds.


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("name", TABLES)
def test_the_document_follows_the_schema_and_is_strict_json(name: str) -> None:
    document = strict_json(document_of(name))
    assert problems(document) == []
    assert to_json(document) == document_of(name)


def holds_none(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(holds_none, value)))


def undefined_numbers(block: Any, where: str = "") -> list[str]:
    """Paths of nulls without a reason beside them, and of reasons without a null."""
    if not isinstance(block, dict):
        return []
    reasons = block.get("undefined", {})
    reasons = reasons if isinstance(reasons, dict) else dict.fromkeys(block, reasons)
    found = [
        f"{where}.{name}"
        for name, value in block.items()
        if holds_none(value) != (name in reasons) and name != "undefined"
    ]
    for name, value in block.items():
        found += undefined_numbers(value, f"{where}.{name}")
    return found


@pytest.mark.parametrize("name", TABLES)
def test_an_undefined_number_is_null_with_a_reason_beside_it(name: str) -> None:
    document = strict_json(document_of(name))
    for block, content in document.items():
        if block not in ("table", "environment", "nulls"):
            assert undefined_numbers(content, block) == []
    for reason in document["pca"]["undefined"].values():
        assert len(reason) > 10


def test_what_is_undefined_for_a_constant_table() -> None:
    document = strict_json(document_of("constant grid"))
    assert document["pca"]["stable_rank"] is None
    assert document["pca"]["explained_variance_ratio"] is None
    assert document["spectrum"]["entropy"] is None
    assert document["similarity"]["centered"]["neighbour_mean"] is None
    assert document["similarity"]["raw"]["neighbour_mean"] == pytest.approx(1)
    assert document["grid"]["axis_power_share"] is None


def remove(*path: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


def put(value: Any, *path: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        remove("table"),
        remove("table", "source", "sha256"),
        remove("environment", "created"),
        remove("pca", "stable_rank"),
        remove("similarity", "raw", "undefined"),
        put("posprobe.analysis/2", "schema"),
        put(1, "surprise"),
        put(1, "norms", "surprise"),
        put(1, "similarity", "centered", "surprise"),
        put("high", "pca", "stable_rank"),
        put(1.5, "similarity", "raw", "neighbour_mean"),
        put([2.0], "pca", "explained_variance_ratio"),
        put("hamming", "spectrum", "window"),
        put({"type": "sequence", "length": 0}, "table", "layout"),
        put({"type": "grid", "height": 3}, "table", "layout"),
        put([{"row": 0}], "table", "dropped_rows"),
        put("", "similarity", "raw", "undefined", "minimum"),
        put(None, "norms", "mean"),
        put("no sentence with keys", "findings"),
        put([{"text": "no keys"}], "findings"),
        remove("shift", "periods"),
        remove("seams", "between"),
        put([[1, 2, 3]], "seams", "between"),
        put([{"row": 3}], "seams", "special"),
        remove("nulls", "numbers"),
        put({"value": 1.0}, "nulls", "numbers", "pca.top3"),
    ],
)
def test_the_schema_notices(change: Callable[[Any], None]) -> None:
    document = strict_json(document_of("sapiens-roberta"))
    change(document)
    assert problems(document)


@pytest.mark.parametrize("name", ["shift", "seams", "sinusoid", "dct", "spectrogram", "nulls"])
def test_the_schema_knows_every_key_of_every_block(name: str) -> None:
    document = strict_json(document_of("sapiens-roberta"))
    document[name]["more"] = 1
    assert problems(document)


def test_the_schema_leaves_the_null_models_open() -> None:
    document = strict_json(document_of("sapiens-roberta"))
    number = document["nulls"]["numbers"]["pca.top3"]
    document["nulls"]["models"]["another"] = "keeps something else"
    number["another"] = {"p5": 0.1, "p50": 0.2, "p95": 0.3}
    assert problems(document) == []
    number["another"] = None
    assert problems(document) == []
    number["another"] = 0.2
    assert problems(document)


def test_what_is_not_a_number_reaches_no_file() -> None:
    document = strict_json(document_of("sapiens-roberta"))
    document["pca"]["top3"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(document)


def test_findings_rest_on_keys_that_are_there() -> None:
    for name in TABLES:
        document = strict_json(document_of(name))
        for finding in document["findings"]:
            assert finding["text"].strip()
            assert finding["keys"]
            for key in finding["keys"]:
                assert resolves(document, key), key


def resolves(document: Any, key: str) -> bool:
    """Whether a dotted path leads somewhere; keys along it may hold dots themselves."""
    if not isinstance(document, dict):
        return False
    return any(
        key == name or (key.startswith(f"{name}.") and resolves(value, key[len(name) + 1 :]))
        for name, value in document.items()
    )


def test_the_folder_holds_data_figures_and_page_and_nothing_else(bundle: Path) -> None:
    assert {path.name for path in bundle.iterdir()} == MEMBERS
    figures = list((bundle / "figures").iterdir())
    drawn = {path.stem for path in figures}
    assert {path.name for path in figures} == {
        f"{n}.{kind}" for n in drawn for kind in ("png", "svg")
    }
    assert drawn >= {"similarity", "profile", "variance", "components", "spectrum", "norms"}
    for path in figures:
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.verify()
                assert min(image.size) > 200
        else:
            root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314
            assert root.tag.endswith("}svg")


def test_the_saved_document_is_the_analysis(bundle: Path) -> None:
    saved = strict_json((bundle / "analysis.json").read_text(encoding="utf-8"))
    assert problems(saved) == []
    assert read_bundle(bundle) == saved
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


def test_the_arrays_are_those_of_the_results(bundle: Path) -> None:
    table = pp.load("sample:sapiens-roberta")
    similarity, components, spectrum = pp.similarity(table), pp.pca(table), pp.spectrum(table)
    with np.load(bundle / "arrays.npz", allow_pickle=False) as arrays:
        assert set(arrays) >= SEQUENCE_ARRAYS
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


def test_a_zero_row_is_nan_in_the_arrays_and_named_in_the_document() -> None:
    analysis = pp.analyze(with_zero_row(), only=["similarity"], nulls=0)
    assert np.isnan(analysis.arrays()["similarity"][0]).all()
    assert analysis.to_dict()["similarity"]["zero_rows"] == [0]


def test_patches_bring_their_own_arrays_and_figures(tmp_path: Path) -> None:
    table = patches(4, 6, 8)
    analysis = pp.analyze(table, only=["similarity", "grid"], nulls=0)
    assert {"values", "similarity", "offset_profile", "grid_power"} <= set(analysis.arrays())
    assert analysis.arrays()["offset_profile"].shape == (7, 11)
    drawn = {path.stem for path in (analysis.save(tmp_path / "b") / "figures").iterdir()}
    assert {"mosaic", "plane_spectrum", "similarity", "profile", "table"} <= drawn


def test_prefix_and_dropped_rows_are_on_record() -> None:
    table = replace(
        as_table(walk(12, 4)),
        prefix=np.ones((1, 4)),
        prefix_rows=(PrefixRow(0, "CLS"),),
        dropped=(DroppedRow(1, "padding"),),
    )
    block = pp.analyze(table, only=["norms"], nulls=0).to_dict()["table"]
    assert block["prefix_rows"] == [{"row": 0, "token": "CLS"}]
    assert block["dropped_rows"] == [{"row": 1, "reason": "padding"}]


def test_only_the_analyses_asked_for_are_written(tmp_path: Path) -> None:
    analysis = pp.analyze(as_table(walk(12, 4)), only=["pca", "norms"], nulls=0)
    folder = analysis.save(tmp_path / "b")
    document = read_bundle(folder)
    assert problems(document) == []
    assert {"norms", "pca"} <= set(document)
    assert not {"similarity", "spectrum", "grid"} & set(document)
    with np.load(folder / "arrays.npz") as arrays:
        assert "pca_scores" in arrays
        assert "similarity" not in arrays


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["pca", "tea"], "no analysis is called 'tea'"),
        (["grid"], "grid needs positions on a grid"),
        ([], "no analysis is chosen"),
    ],
)
def test_analyses_that_cannot_be_run_are_refused(only: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pp.analyze(as_table(walk(12, 4)), only=only)


def test_the_time_is_that_of_source_date_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert small().environment["created"] == "2023-11-14T22:13:20+00:00"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    created = datetime.fromisoformat(small().environment["created"])
    assert abs((datetime.now(UTC) - created).total_seconds()) < 600
    for wrong in ("yesterday", "9" * 30):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)
        with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
            small()


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    trees = []
    for seed in ("1", "2"):
        place = tmp_path / seed
        place.mkdir()
        done = run(
            "analyze", "sincos2d:4x6x16", "--nulls", "2", "--out", "bundle", cwd=place,
            SOURCE_DATE_EPOCH="1700000000", PYTHONHASHSEED=seed,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        trees.append(tree(place))
    assert trees[0].keys() == trees[1].keys()
    for name, content in trees[0].items():
        assert trees[1][name] == content, name


# Names of bundles.


def test_different_rows_and_tables_get_folders_of_their_own() -> None:
    table = pp.load("sample:sapiens-roberta")
    formula = pp.sinusoidal(16, 4)
    names = {
        bundle_name(one)
        for one in (table, table[1:], table[:10], formula, pp.sinusoidal(16, 6), formula[2:])
    }
    assert len(names) == 6
    assert bundle_name(table) == "sapiens-roberta"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("a/b#decoder", "a-b-decoder"),
        ('"><script>', "script"),
        ("..", "table"),
        ("größe 7", "gr-e-7"),
        ("", "table"),
    ],
)
def test_a_folder_name_cannot_lead_elsewhere(name: str, folder: str) -> None:
    assert bundle_name(replace(as_table(walk(12, 4)), name=name)) == folder


# Written whole or not at all.


class Broken:
    """An analysis one of whose figures fails after others are on disk."""

    def __init__(self, error: BaseException) -> None:
        self.analysis, self.error = small(), error

    def to_dict(self) -> dict[str, Any]:
        return self.analysis.to_dict()

    def arrays(self) -> dict[str, Any]:
        return self.analysis.arrays()

    def figures(self) -> dict[str, Callable[[], Figure]]:
        def fail() -> Figure:
            raise self.error

        return {**self.analysis.figures(), "broken": fail}


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no font"), MemoryError(), KeyboardInterrupt(), OSError(errno.EIO, "broken")],
    ids=lambda error: type(error).__name__,
)
def test_a_run_that_breaks_leaves_the_old_bundle_byte_for_byte(
    error: BaseException, tmp_path: Path
) -> None:
    folder = small().save(tmp_path / "bundle")
    before = tree(tmp_path)
    with pytest.raises(OutputError if isinstance(error, OSError) else type(error)):
        write_bundle(Broken(error), folder)
    assert tree(tmp_path) == before


def test_a_run_that_breaks_leaves_no_new_folders(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    before = tree(tmp_path)
    with pytest.raises(RuntimeError, match="no font"):
        write_bundle(Broken(RuntimeError("no font")), tmp_path / "kept" / "new" / "bundle")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()], ids=repr)
def test_a_failing_move_puts_the_old_bundle_back(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small().save(tmp_path / "bundle")
    before, move = tree(tmp_path), Path.rename

    def fail_on_the_new_one(path: Path, target: Path) -> Path:
        if path.name == "bundle" and Path(target) == folder:
            raise error
        return move(path, target)

    monkeypatch.setattr(Path, "rename", fail_on_the_new_one)
    monkeypatch.setattr("posprobe.report.files.exchange", lambda *_: False)
    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        small().save(folder)
    assert tree(tmp_path) == before


def test_a_new_run_replaces_the_old_bundle_completely(tmp_path: Path) -> None:
    before = pp.analyze(as_table(walk(12, 4)), only=["norms", "pca"], nulls=0)
    folder = before.save(tmp_path / "bundle")
    assert (folder / "figures" / "variance.svg").exists()
    small().save(folder)
    assert not (folder / "figures" / "variance.svg").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    small().save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == MEMBERS


def test_the_folder_one_stands_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        small().save(".")
    assert tree(tmp_path) == {}


def test_missing_folders_on_the_way_are_made(tmp_path: Path) -> None:
    assert small().save(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "b" / "c"
    assert {path.name for path in (tmp_path / "a" / "b" / "c").iterdir()} == MEMBERS


def foreign_file(place: Path) -> Path:
    (place / "thesis.tex").write_text("years of work")
    return place


def file_in_place(place: Path) -> Path:
    (place / "taken").write_text("a file")
    return place / "taken"


def file_above(place: Path) -> Path:
    return file_in_place(place) / "bundle"


def link(place: Path) -> Path:
    (place / "elsewhere").mkdir()
    (place / "link").symlink_to(place / "elsewhere")
    return place / "link"


def dangling_link(place: Path) -> Path:
    (place / "link").symlink_to(place / "nowhere")
    return place / "link"


def too_long(place: Path) -> Path:
    return place / "new" / ("x" * 300)


@pytest.mark.parametrize(
    "prepare", [foreign_file, file_in_place, file_above, link, dangling_link, too_long]
)
def test_a_place_that_cannot_be_taken_is_refused_and_left_alone(
    prepare: Callable[[Path], Path], tmp_path: Path
) -> None:
    target = prepare(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"--out DIR") as refused:
        small().save(target)
    assert str(target) in str(refused.value)
    assert tree(tmp_path) == before


def test_foreign_files_are_named_in_the_message(tmp_path: Path) -> None:
    foreign_file(tmp_path)
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        small().save(tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that nobody can write to")
def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    done = run("analyze", "sinusoidal:12x4", "--out", "/proc/bundle", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "/proc/bundle: the bundle cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(tmp_path) == {}


#: What a full disk, or one that is read-only, does to each command that writes.
WRITING = {
    "analyze": ["analyze", "sinusoidal:64x16", "--nulls", "0", "--out", "new/folder/bundle"],
    "extract npy": ["extract", "sinusoidal:640x64", "-o", "table.npy"],
    "extract safetensors": ["extract", "sinusoidal:640x64", "-o", "table.safetensors"],
}


@pytest.mark.parametrize("command", WRITING)
def test_a_full_disk_ends_in_one_clear_error_and_leaves_nothing(
    command: str, tmp_path: Path
) -> None:
    # A limit on the size of files stands for the full disk where nothing may be mounted.
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
        "from posprobe.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, *WRITING[command]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert_refused(done)
    assert done.stdout == ""
    assert tree(tmp_path) == {}


def assert_refused(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "Choose another place" in done.stderr
    for noise in ("Traceback", "Exception ignored", "Warning"):
        assert noise not in done.stderr


if NAMESPACES:

    @pytest.mark.parametrize("options", ["size=48k", "ro"], ids=["full", "read-only"])
    @pytest.mark.parametrize("command", ["analyze", "extract safetensors"])
    def test_a_disk_of_its_own_that_is_full_or_read_only(
        command: str, options: str, tmp_path: Path
    ) -> None:
        script = f'mount -t tmpfs -o {options} none "$0" && cd "$0" && "$@"; c=$?; find .; exit $c'
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script, str(tmp_path), *MAIN, *WRITING[command]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert_refused(done)
        assert done.stdout == ".\n"  # nothing is printed, and nothing is found on the disk


# Rendered again.


def test_report_renders_the_same_page_again(own_bundle: Path) -> None:
    before = tree(own_bundle)
    (own_bundle / "report.html").unlink()
    assert render_bundle(own_bundle) == own_bundle / "report.html"
    assert tree(own_bundle) == before


def test_a_bundle_that_lost_its_figures_keeps_the_page_it_has(own_bundle: Path) -> None:
    shutil.rmtree(own_bundle / "figures")
    before = tree(own_bundle)
    with pytest.raises(InvalidCheckpoint, match="lost its figures"):
        render_bundle(own_bundle)
    assert tree(own_bundle) == before


def test_a_folder_without_a_bundle_is_not_found(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UnknownReference, match=r"no analysis\.json.*posprobe analyze"):
            render_bundle(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"schema": "posprobe.analysis/2"}',
        b'{"schema": "posprobe.analysis/1"}',
        b'{"schema": "posprobe.analysis/1", "table": 3, "environment": 4}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"9" * 5000,
    ],
    ids=lambda content: repr(content[:50]),
)
def test_a_damaged_document_is_one_clear_error(content: bytes, own_bundle: Path) -> None:
    (own_bundle / "analysis.json").write_bytes(content)
    before = tree(own_bundle)
    with pytest.raises(InvalidCheckpoint, match=r"analysis\.json.*Analyse the table again"):
        render_bundle(own_bundle)
    assert tree(own_bundle) == before


def paths(block: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    if isinstance(block, dict):
        for key, value in block.items():
            if key not in ("undefined", "findings"):
                yield from paths(value, (*path, key))


def test_no_missing_or_wrong_value_of_the_document_is_a_crash(own_bundle: Path) -> None:
    document = read_bundle(own_bundle)
    refused = 0
    for path in paths(document):
        if len(path) > (2 if path[0] in ("table", "environment", "nulls") else 1):
            continue
        for change in (remove(*path), put([[3]], *path), put("<b>", *path)):
            changed = copy.deepcopy(document)
            change(changed)
            (own_bundle / "analysis.json").write_text(to_json(changed), encoding="utf-8")
            try:
                render_bundle(own_bundle)
            except InvalidCheckpoint:
                refused += 1
    assert refused > 20


def test_a_damaged_drawing_is_named(own_bundle: Path) -> None:
    (own_bundle / "figures" / "norms.svg").write_bytes(b"\xff not a drawing")
    with pytest.raises(InvalidCheckpoint, match=r"norms\.svg"):
        render_bundle(own_bundle)


# The table alone, as a file.


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".csv"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_extracted_table_holds_the_same_values(suffix: str, dtype: Any, tmp_path: Path) -> None:
    values = (gaussian(12, 4) * 10 ** gaussian(12, 4, 1)).astype(dtype)
    table = replace(as_table(values), prefix=np.ones((2, 4), dtype=dtype))
    path = tmp_path / f"table{suffix}"
    write_table(table, path)
    match suffix:
        case ".npy":
            values = np.load(path, allow_pickle=False)
        case ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                values = arrays["values"]
                np.testing.assert_array_equal(arrays["prefix"], np.ones((2, 4)))
        case ".safetensors":
            with safe_open(path, "np") as file:
                values = file.get_tensor("values")
                assert json.loads(file.metadata()["posprobe.tables"])["positions"] == 12
        case _:
            values = np.loadtxt(path, delimiter=",").astype(dtype)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, table.values)


def test_an_extracted_table_can_be_loaded_by_name(tmp_path: Path) -> None:
    table = pp.load("sample:sapiens-roberta")
    for suffix, tensor in ((".npy", "table"), (".npz", "values"), (".safetensors", "values")):
        path = tmp_path / f"table{suffix}"
        write_table(table, path)
        np.testing.assert_array_equal(pp.load(str(path), tensor=tensor).values, table.values)


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the suffix must be \.npy"):
        write_table(as_table(walk(12, 4)), tmp_path / "table.xlsx")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("where", ["missing/table.npy", "taken/table.npy", "folder.npy"])
def test_a_table_that_cannot_be_written_leaves_everything_as_it_was(
    where: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder.npy").mkdir()
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"no folder .*missing|taken|it is a folder"):
        write_table(as_table(walk(12, 4)), tmp_path / where)
    assert tree(tmp_path) == before
