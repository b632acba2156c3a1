"""The table of readers, what other packages add to it, and how a format is chosen."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.encodings import fixed_formula
from posprobe.errors import InvalidCheckpoint, MissingExtra
from posprobe.families.architectures import load_added_families
from posprobe.readers import (
    READER_SUFFIXES,
    READERS,
    Reader,
    choose_reader,
    load_added_readers,
    load_opener,
)
from posprobe.report.render import build_page
from posprobe.sources import Quantisation

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "extend.md"


@pytest.fixture(autouse=True)
def _nothing_added_yet() -> Iterator[None]:
    load_added_readers.cache_clear()
    load_added_families.cache_clear()
    yield
    load_added_readers.cache_clear()
    load_added_families.cache_clear()


@pytest.fixture
def placer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install the package of the how-to page; its last block is what a user runs."""
    page = PAGE.read_text(encoding="utf-8")
    (project,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    files = re.findall(r"\(`(placer/\w+\.py)`\)", page)
    site = tmp_path / "site"
    dist_info = site / "posprobe_placer-1.0.dist-info"
    for folder in (dist_info, site / "placer"):
        folder.mkdir(parents=True)
    (dist_info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: posprobe-placer\nVersion: 1.0\n"
    )
    groups = tomllib.loads(project)["project"]["entry-points"]
    (dist_info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n"
            + "".join(f"{name} = {place}\n" for name, place in points.items())
            for group, points in groups.items()
        )
    )
    (site / "placer" / "__init__.py").touch()
    for file, block in zip(files, blocks, strict=False):
        (site / file).write_text(block)
    monkeypatch.syspath_prepend(str(site))
    return blocks[len(files) :]


def rows_file(
    path: Path, count: int = 10
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    values = np.random.default_rng(3).normal(size=(count, 6)).astype("<f4")
    path.write_bytes(f"ROWS {count} 6\n".encode() + values.tobytes())
    return values


def test_a_package_adds_a_format_and_a_family(
    placer: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_file({"wpe.weight": np.ones((4, 2), "f4")}, tmp_path / "known.safetensors")
    assert len(pp.load(str(tmp_path / "known.safetensors"))) == 4
    assert (
        load_added_readers.cache_info().misses == 0
    )  # what is known needs no look at packages
    values = rows_file(tmp_path / "model.rows")
    monkeypatch.chdir(tmp_path)
    (use,) = placer
    exec(use, {})  # noqa: S102 - the page's own block
    assert capsys.readouterr().out.split() == [
        "core.places.weight", "rows", "of", "floats", "placer", "8",
    ]  # fmt: skip
    table = pp.load("model.rows")
    np.testing.assert_array_equal(table.values, values[2:])
    # A folder's only file is found, and a name that says nothing is told by its first bytes.
    folder = tmp_path / "folder"
    folder.mkdir()
    rows_file(folder / "weights.rows")
    np.testing.assert_array_equal(pp.load(str(folder)).values, values[2:])
    (folder / "weights.rows").rename(tmp_path / "nothing-said")
    np.testing.assert_array_equal(pp.load("./nothing-said").values, values[2:])
    (tmp_path / "model.rows").write_bytes(b"ROWS 10 7\n")
    with pytest.raises(InvalidCheckpoint, match="0 bytes for 10 x 7"):
        pp.load("model.rows")


def test_a_broken_package_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dist_info = tmp_path / "site" / "broken-1.0.dist-info"
    dist_info.mkdir(parents=True)
    (dist_info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"
    )
    (dist_info / "entry_points.txt").write_text(
        "[posprobe.readers]\ngone = no_such_module:READER\nother = pathlib:Path\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "model.xyz").write_bytes(b"what is this?")
    with (
        caplog.at_level(logging.WARNING, "posprobe"),
        pytest.raises(
            InvalidCheckpoint, match=r"\.xyz is not a checkpoint format.*\.safetensors"
        ),
    ):
        open_local(tmp_path / "model.xyz")
    assert "gone = no_such_module:READER cannot be loaded" in caplog.text
    assert "other = pathlib:Path is a type and no Reader" in caplog.text


def test_every_format_is_recognised_by_its_own_reader() -> None:
    for reader in READERS:
        assert callable(load_opener(reader.opener))
        assert bool(reader.packages) == bool(reader.extra)
        # Nothing that reads a format is imported before a file is opened.
        source = Path(
            import_module(reader.opener.partition(":")[0]).__file__ or ""
        ).read_text()
        for package in reader.packages:
            assert not re.search(rf"^(import|from) {package}\b", source, re.MULTILINE)
        for name in reader.weights:
            assert (
                choose_reader(name.replace(".index.json", "".join(reader.suffixes[:1])))
                is reader
            )
    for suffix in set(READER_SUFFIXES) - {
        ".index.json"
    }:  # of readers that share one, bytes decide
        assert all(
            reader.magic for reader in [r for r in READERS if suffix in r.suffixes][1:]
        )
    with pytest.raises(ValueError, match="begin with a dot"):
        Reader("x", ("xyz",), "a:b")
    with pytest.raises(ValueError, match="module:function"):
        Reader("x", (".xyz",), "a.b")


def test_every_format_stands_in_the_documentation() -> None:
    page = PAGE.with_name("formats.md").read_text(encoding="utf-8")
    rows = {
        line.split("|")[1].strip(): line
        for line in page.splitlines()
        if line.startswith("| ")
    }
    for reader in READERS:
        assert all(f"`{suffix}`" in rows[reader.name] for suffix in reader.suffixes)
        assert (f"extra `{reader.extra}`" in rows[reader.name]) == bool(reader.extra)


def test_a_missing_package_is_one_line_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posprobe.checkpoints import local

    monkeypatch.setattr(local, "find_spec", lambda _: None)
    for reader in READERS:
        if reader.packages:
            path = tmp_path / (
                f"x{reader.suffixes[0]}" if reader.suffixes else reader.weights[0]
            )
            path.write_bytes(reader.magic[0] if reader.magic else b"0")
            with pytest.raises(MissingExtra) as caught:
                open_local(path)
            assert f"`uv sync --extra {reader.extra}`" in str(caught.value)
            assert "\n" not in str(caught.value)


def test_a_quantised_tensor_says_how_it_was_stored() -> None:
    codes = np.random.default_rng(5).integers(-7, 8, size=(8, 4)).astype("i1")
    info = TensorInfo(
        "wpe.weight", (8, 4), "F32", "x.q8", quantisation=Quantisation("8 bits")
    )
    checkpoint = Checkpoint(
        "x",
        {"wpe.weight": info},
        lambda _: codes.tobytes(),
        dequantise=lambda info, data: (
            np.frombuffer(data, "i1").reshape(info.shape).astype("f4") * np.float32(0.5),
            0.5,
        ),
    )
    stored = checkpoint.read("wpe.weight")
    np.testing.assert_array_equal(stored.values, codes * 0.5)
    assert stored.info.quantisation == Quantisation("8 bits", 0.5)
    np.testing.assert_array_equal(
        checkpoint.read_rows("wpe.weight", [1, 3]), codes[[1, 3]] * 0.5
    )
    silent = Checkpoint("x", {"wpe.weight": info}, lambda _: codes.tobytes())
    with pytest.raises(
        InvalidCheckpoint, match=r"x\.q8: tensor wpe.weight.* no `dequantise`"
    ):
        silent.read("wpe.weight")


def test_components_below_the_steps_of_a_quantised_table_are_counted() -> None:
    """Three strong directions, rounded to steps: what lies below is what rounding made."""
    rng = np.random.default_rng(0)
    step = 0.05
    smooth = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 40))
    values = np.round(smooth / step) * step
    source = pp.sources.Source(
        reference="x",
        resolved="x",
        tensor="wpe.weight",
        quantisation=Quantisation("Q8_0", step),
    )
    table = pp.PositionTable(values, pp.layouts.Sequence(200), name="x", source=source)
    analysis = pp.analyze(table, only="pca", nulls=0)
    document = analysis.to_dict()
    assert document["table"]["source"]["quantisation"] == {"name": "Q8_0", "step": step}
    (note,) = document["table"]["notes"]
    assert "Q8_0, in steps of 0.05" in note
    assert "3 of 40 principal components lie above" in note
    assert "dequantised from Q8_0 in steps of 0.05" in str(build_page(document))
    # A sinusoid is known through its rounding.
    waves = pp.sinusoidal(64, 16).values
    rounded = np.round(waves / step) * step
    assert fixed_formula(rounded, pp.layouts.Sequence(64), "F32") is None
    assert fixed_formula(rounded, pp.layouts.Sequence(64), "F32", step)


@pytest.mark.parametrize(
    ("file", "content"),
    [("_METADATA", b'{"tree_metadata": {}}'), ("ggml.bin", b"lmgg" + bytes(99))],
)
def test_a_format_that_is_not_read_ends_in_one_sentence(
    file: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=rf"^[^\n]*{file}[^\n]+$"):
        open_local(tmp_path)
