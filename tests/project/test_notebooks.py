"""The notebooks run as they stand, on the samples alone, and their asserts hold what they claim."""

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

#: Run a model, which the others must not need.
WITH_A_MODEL = {"6-inside-a-running-model", "7-what-rotary-heads-do"}

#: Runs before a notebook: what leaves the machine fails.
NO_NETWORK = """
import socket

def refuse(*args, **kwargs):
    raise OSError("a notebook must not need the network")

socket.create_connection = socket.getaddrinfo = socket.socket.connect = refuse
"""

#: Runs before all but the one with a model: the import of a model library fails.
NO_MODELS = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "timm"}:
            raise ImportError(f"a notebook must not need {name}")

sys.meta_path.insert(0, Refuse())
"""

#: Submodules that notebooks take names from.
PLACES = tuple(pp._NAMES_BY_SUBMODULE)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def load(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code(path: Path) -> list[ast.Module]:
    cells = load(path)["cells"]
    return [ast.parse("".join(c["source"])) for c in cells if c["cell_type"] == "code"]


def public(module: str) -> set[str]:
    found = import_module(module)
    return set(getattr(found, "__all__", dir(found)))


def test_all_seven_are_here_and_listed() -> None:
    listed = re.findall(r"\]\(([\w-]+\.ipynb)\)", (FOLDER / "README.md").read_text("utf-8"))
    assert [path.name for path in NOTEBOOKS] == listed
    assert len(listed) == 7


@each_notebook
def test_runs_without_network_and_its_asserts_hold(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads that wait for each other make the small products of these tables many times slower.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    # Startup files of whoever runs the tests are no part of a notebook.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # A notebook's figures are shown in it, wherever a test before this one drew its own.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    # Two notebooks are about running models and say that they need the extra `models`.
    fence = NO_NETWORK if path.stem in WITH_A_MODEL else NO_NETWORK + NO_MODELS
    notebook.cells.insert(0, nbformat.v4.new_code_cell(fence))  # type: ignore[no-untyped-call]
    (work := tmp_path / "work").mkdir()

    NotebookClient(
        notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(work)}}
    ).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    told = [o["text"] for o in outputs if o["output_type"] == "stream" and o["name"] == "stderr"]
    assert not told, "a cell warns"
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 5


@each_notebook
def test_is_stored_without_outputs_and_says_nothing_of_where_it_was_made(path: Path) -> None:
    notebook = load(path)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert notebook["nbformat"] == 4
    nbformat.validate(notebook)


@each_notebook
def test_checks_its_own_claims(path: Path) -> None:
    asserts = [n for cell in code(path) for n in ast.walk(cell) if isinstance(n, ast.Assert)]
    assert len(asserts) >= 5


@each_notebook
def test_uses_public_names_alone(path: Path) -> None:
    modules = {"pp": "posprobe"}
    used: set[tuple[str, str]] = set()
    imported: set[str] = set()
    for node in (node for cell in code(path) for node in ast.walk(cell)):
        match node:
            case ast.Import(names=names):
                imported |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                imported.add(module)
                for alias in names:
                    if module == "posprobe" and alias.name in PLACES:
                        modules[alias.name] = f"posprobe.{alias.name}"
                    elif module.startswith("posprobe"):
                        used.add((module, alias.name))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in modules:
                used.add((modules[name], attribute))

    ours = {name for name in imported if name.partition(".")[0] == "posprobe"}
    assert ours <= {"posprobe", *(f"posprobe.{place}" for place in PLACES)}
    assert {name.partition(".")[0] for name in imported} <= {
        "matplotlib",
        "numpy",
        "posprobe",
        "sklearn",
        "warnings",
        *({"torch"} if path.stem in WITH_A_MODEL else ()),
    }
    assert not {(module, name) for module, name in used if name not in public(module)}
    assert {module for module, _ in used} >= {"posprobe"}


@each_notebook
def test_links_lead_to_notebooks_that_exist(path: Path) -> None:
    cells = load(path)["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (FOLDER / target).is_file(), target
    for named in re.findall(r"`(docs/[\w.-]+)`", text):
        assert (FOLDER.parent / named).is_file(), named
