"""The notebooks run unchanged on the samples alone, and assert their claims."""

import ast
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import execute_notebooks as notebooks
import nbformat
import pytest

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


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


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
def test_notebooks_run_without_network_and_print_what_is_stored(
    path: Path, tmp_path: Path
) -> None:
    stored, executed = read(path), read(path)
    # Two notebooks are about running models and say that they need the extra `models`.
    fence = NO_NETWORK if path.stem in MODEL_NOTEBOOKS else NO_NETWORK + NO_MODELS

    notebooks.execute(executed, tmp_path, fence)

    outputs = notebooks.outputs_of(executed)
    warnings = [
        o["text"]
        for o in outputs
        if o["output_type"] == "stream" and o["name"] == "stderr"
    ]
    assert not warnings, "a cell warns"
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 5
    assert notebooks.printed_texts(executed) == notebooks.printed_texts(stored)


@all_notebooks
def test_notebooks_are_stored_executed_and_small(path: Path) -> None:
    assert path.stat().st_size <= notebooks.MAX_NOTEBOOK_BYTES
    stored = read(path)
    nbformat.validate(stored)
    assert stored.metadata == notebooks.METADATA
    code_cells = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code_cells] == [
        *range(1, len(code_cells) + 1)
    ]
    assert all(cell.metadata == {} for cell in stored.cells)
    outputs = notebooks.outputs_of(stored)
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 5
    assert not any(output.output_type == "error" for output in outputs)


@all_notebooks
def test_stored_outputs_name_no_place_of_a_machine(path: Path) -> None:
    text = json.dumps(notebooks.printed_texts(read(path)))
    assert not re.search(r"/(tmp|home|root|usr)/|[A-Z]:\\\\", text)


def test_texts_of_outputs_leave_out_what_machines_differ_in() -> None:
    masked = notebooks.mask_variable_parts(
        'took 1.5 s <img src="data:a"> at 0x7fdb4eebc890 by posprobe 0.1.0'
    )
    assert masked == "took SECONDS <img> at 0x by posprobe VERSION"
    assert notebooks.mask_variable_parts("-0.0% -0.01") == "0.0% -0.01"
    assert (
        notebooks.mask_variable_parts("6.1e\N{MINUS SIGN}07, 6.1e-03")
        == "ROUNDING, 6.1e-03"
    )
    assert (
        notebooks.mask_variable_parts("0.25 of 512 positions") == "0.25 of 512 positions"
    )


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
    places = (*SUBMODULES, "callbacks")
    assert own_modules <= {"posprobe", *(f"posprobe.{place}" for place in places)}
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
