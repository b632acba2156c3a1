"""The command line in processes of its own: a light start, closed pipes, names that are no text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_checkpoints import BERT_TABLE, table
from made_cli import CommandRun

from posprobe.report import read_bundle

#: What the start of the program has no use for.
HEAVY = (
    "numpy", "scipy", "sklearn", "matplotlib", "torch", "transformers", "timm", "safetensors",
    "huggingface_hub", "jinja2", "PIL", "rich", "tomllib",
)  # fmt: skip


def process(code: str, *arguments: str, cwd: Path, **environment: str) -> CommandRun:
    """Run Python code that calls the command line in a process of its own."""
    completed = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    return CommandRun(
        completed.returncode, completed.stdout.decode(), completed.stderr.decode()
    )


# File names that are no text.


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text on this system")
def test_a_path_that_is_not_utf8_is_read(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")  # Latin-1, as an old archive leaves it
    place = tmp_path / name
    place.mkdir()
    np.save(place / "t.npy", table())
    code = "from posprobe.cli import main; main()"
    strict = {"PYTHONIOENCODING": "utf-8:strict"}
    completed = process(
        code, "analyze", f"{name}/t.npy", "--tensor", "t", "--only", "norms", "--json",
        "--out", f"{name}/b", cwd=tmp_path, **strict,
    )  # fmt: skip
    assert completed.code == 0, completed.err
    assert json.loads(completed.out)["table"]["source"]["reference"] == f"{name}/t.npy"
    assert read_bundle(place / "b")["table"]["source"]["resolved"] == str(place / "t.npy")
    page = (place / "b" / "report.html").read_bytes()
    printed = subprocess.run(
        [sys.executable, "-c", code, "report", f"{name}/b"],
        cwd=tmp_path,
        env=os.environ | strict,
        capture_output=True,
        check=True,
    )
    assert printed.stdout == b"caf\xe9/b/report.html\n"
    assert (place / "b" / "report.html").read_bytes() == page


# Pipes and imports, each in a process of its own.


@pytest.mark.parametrize("arguments", [["families", "--json"], ["--help"]], ids=str)
def test_a_closed_pipe_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        completed = subprocess.run(
            [sys.executable, "-c", "from posprobe.cli import main; main()", *arguments],
            cwd=tmp_path,
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (completed.returncode, completed.stderr) == (0, b"")


def loaded_by(statement: str, *arguments: str, cwd: Path) -> set[str]:
    code = f"""
import sys
HEAVY = {HEAVY!r}
try:
    {statement}
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded", *sorted(set(HEAVY) & set(sys.modules)), file=sys.stderr)
"""
    completed = process(code, *arguments, cwd=cwd)
    assert completed.code == 0, completed.err
    modules = completed.err.splitlines()[-1].split()
    assert modules[0] == "loaded"
    return set(modules[1:])


@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        ("import posprobe; dir(posprobe)", []),
        ("from posprobe.cli import main; main()", ["analyze", "--help"]),
    ],
    ids=["import", "analyze --help"],
)
def test_a_start_is_light(statement: str, arguments: list[str], tmp_path: Path) -> None:
    assert loaded_by(statement, *arguments, cwd=tmp_path) == set()


def test_the_main_job_loads_no_framework(tmp_path: Path) -> None:
    loaded = loaded_by(
        "from posprobe.cli import main; main()",
        "analyze", "sample:sapiens-roberta", "--out", "b", "--quiet", cwd=tmp_path,
    )  # fmt: skip
    assert "numpy" in loaded
    assert not loaded & {"torch", "transformers", "timm", "sklearn", "huggingface_hub"}


def test_analyses_in_a_notebook_need_no_figures_until_asked(tmp_path: Path) -> None:
    statement = "import posprobe as pp; pp.similarity(pp.load('sinusoidal:16x4'))"
    assert not loaded_by(statement, cwd=tmp_path) & {
        "matplotlib",
        "torch",
        "sklearn",
        "jinja2",
    }


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as where it is not installed
from posprobe.cli import main
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as ended:
        print("code", ended.code or 0, file=sys.stderr)
"""


def test_without_torch_everything_but_torch_files_works(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    torch.save({BERT_TABLE: torch.ones(4, 4)}, tmp_path / "model" / "pytorch_model.bin")
    completed = process(
        WITHOUT_TORCH,
        "analyze sinusoidal:16x4 --only norms,pca --nulls 0 --out b --quiet",
        "analyze model --quiet",
        "analyze sinusoidal:16x4 --device cuda --quiet",
        cwd=tmp_path,
    )
    worked, file, device = completed.err.split("code ")[:3]
    assert worked == ""
    assert file.startswith("0")
    assert "uv sync --extra models" in file
    assert device.startswith("4")
    assert "uv sync --extra models" in device
    assert completed.err.endswith("code 4\n")
    assert "Traceback" not in completed.err
