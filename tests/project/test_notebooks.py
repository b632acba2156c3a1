"""The notebooks run unchanged on the samples alone, and assert their claims."""

import ast
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import posprobe as pp

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

#: Notebooks that run a model; the others must not need one.
MODEL_NOTEBOOKS = {"6-inside-a-running-model", "7-what-rotary-heads-do"}

#: Cell before a notebook: connections fail.
NO_NETWORK = """
import socket

def refuse(*args, **kwargs):
    raise OSError("a notebook must not need the network")

socket.create_connection = socket.getaddrinfo = socket.socket.connect = refuse
"""

#: Cell before notebooks without a model: imports of model libraries fail.
NO_MODELS = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "timm"}:
            raise ImportError(f"a notebook must not need {name}")

sys.meta_path.insert(0, Refuse())
"""

#: Submodules with public names.
SUBMODULES = tuple(pp._NAMES_BY_SUBMODULE)

all_notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def load(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code(path: Path) -> list[ast.Module]:
    cells = load(path)["cells"]
    return [ast.parse("".join(c["source"])) for c in cells if c["cell_type"] == "code"]


def public_names(module: str) -> set[str]:
    loaded = import_module(module)
    return set(getattr(loaded, "__all__", dir(loaded)))


def test_the_readme_lists_all_seven_notebooks() -> None:
    listed_names = re.findall(
        r"\]\(([\w-]+\.ipynb)\)", (FOLDER / "README.md").read_text("utf-8")
    )
    assert [path.name for path in NOTEBOOKS] == listed_names
    assert len(listed_names) == 7


@all_notebooks
def test_notebooks_run_without_network_and_their_asserts_hold(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads make the small products of these tables many times slower.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    # The user's IPython startup files must not run.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # Notebooks show their figures inline, whatever backend an earlier test chose.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    # Two notebooks are about running models and say that they need the extra `models`.
    fence = NO_NETWORK if path.stem in MODEL_NOTEBOOKS else NO_NETWORK + NO_MODELS
    notebook.cells.insert(0, nbformat.v4.new_code_cell(fence))  # type: ignore[no-untyped-call]
    (work := tmp_path / "work").mkdir()

    NotebookClient(
        notebook,
        timeout=200,
        kernel_name="python3",
        resources={"metadata": {"path": str(work)}},
    ).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    warnings = [
        o["text"]
        for o in outputs
        if o["output_type"] == "stream" and o["name"] == "stderr"
    ]
    assert not warnings, "a cell warns"
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 5


@all_notebooks
def test_notebooks_are_stored_without_outputs_and_metadata(path: Path) -> None:
    notebook = load(path)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert notebook["metadata"] == {
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    assert notebook["nbformat"] == 4
    nbformat.validate(notebook)


@all_notebooks
def test_notebooks_assert_their_claims(path: Path) -> None:
    asserts = [
        n for cell in code(path) for n in ast.walk(cell) if isinstance(n, ast.Assert)
    ]
    assert len(asserts) >= 5


@all_notebooks
def test_notebooks_use_public_names_only(path: Path) -> None:
    modules = {"pp": "posprobe"}
    used_names: set[tuple[str, str]] = set()
    imported: set[str] = set()
    for node in (node for cell in code(path) for node in ast.walk(cell)):
        match node:
            case ast.Import(names=names):
                imported |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                imported.add(module)
                for alias in names:
                    if module == "posprobe" and alias.name in SUBMODULES:
                        modules[alias.name] = f"posprobe.{alias.name}"
                    elif module.startswith("posprobe"):
                        used_names.add((module, alias.name))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (
                name in modules
            ):
                used_names.add((modules[name], attribute))

    own_modules = {name for name in imported if name.partition(".")[0] == "posprobe"}
    assert own_modules <= {"posprobe", *(f"posprobe.{place}" for place in SUBMODULES)}
    assert {name.partition(".")[0] for name in imported} <= {
        "matplotlib",
        "transformers",
        "numpy",
        "posprobe",
        "sklearn",
        "warnings",
        *({"torch"} if path.stem in MODEL_NOTEBOOKS else ()),
    }
    assert not {
        (module, name) for module, name in used_names if name not in public_names(module)
    }
    assert {module for module, _ in used_names} >= {"posprobe"}


@all_notebooks
def test_links_of_notebooks_exist(path: Path) -> None:
    cells = load(path)["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (FOLDER / target).is_file(), target
    for document in re.findall(r"`(docs/[\w.-]+)`", text):
        assert (FOLDER.parent / document).is_file(), document
