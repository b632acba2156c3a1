"""The walls between the layers, read from the syntax of every module.

An import counts wherever it stands: at the top, inside a function, under ``TYPE_CHECKING``, or as a
string that is handed to ``import_module``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

import posprobe

ROOT = Path(posprobe.__file__).parent
BASE = {
    "text", "arrays", "data", "drawable", "errors", "layouts", "progress",
    "opening", "readers", "reference", "number_types",
    "sources", "tables",
}  # fmt: skip

#: What each layer may import of the others; what is missing here may not exist.
ALLOWED: Mapping[str, set[str]] = {
    "_version": set(),
    "text": set(),
    "data": set(),
    "errors": {"text"},
    "page": set(),
    "number_types": set(),
    "drawable": {"errors", "text"},
    "layouts": {"errors", "number_types"},
    "progress": {"text"},
    "opening": set(),
    # It names its readers, and whoever opens a file imports them.
    "readers": {"data"},
    "sources": {"number_types"},
    "tables": {"drawable", "errors", "layouts", "number_types", "sources", "text"},
    "arrays": {"errors", "layouts", "progress", "tables"},
    "reference": {"errors", "readers"},
    "settings": {"errors"},
    "samples": {"errors"},
    "encodings": {*BASE, "settings"},
    "checkpoints": BASE,
    "schemes": {*BASE, "encodings"},
    "analyses": {*BASE, "encodings"},
    "families": {*BASE, "checkpoints", "encodings", "samples", "schemes", "settings"},
    # What two copies are to each other, from their numbers alone.
    "relations": {*BASE, "analyses", "encodings"},
    "figures": {*BASE, "analyses", "encodings", "nulls", "schemes"},
    "blocks": {"analyses", "errors", "layouts", "number_types", "sources", "tables"},
    # Answers follow from numbers; only `words` makes sentences of them.
    "questions": {*BASE, "analyses", "encodings", "schemes"},
    "checks": {
        *BASE, "analyses", "checkpoints", "families", "relations", "schemes", "settings",
    },
    "words": {*BASE, "analyses", "figures", "page", "questions", "relations", "schemes"},
    "nulls": {*BASE, "analyses", "blocks", "encodings"},
    "forward": {*BASE, "analyses", "checkpoints", "encodings", "families", "nulls", "settings"},
    "measurements": {*BASE, "analyses", "encodings", "figures", "nulls", "words"},
    "measurements.model": {
        *BASE, "analyses", "encodings", "families", "figures", "forward", "measurements", "nulls",
        "words",
    },
    "report": {
        *BASE, "analyses", "blocks", "encodings", "figures", "measurements", "measurements.model",
        "nulls", "page", "questions", "relations", "schemes", "words",
    },
    "resizing": {
        *BASE, "analyses", "blocks", "checkpoints", "encodings", "families", "figures", "forward",
        "measurements.model", "relations", "report", "samples", "schemes", "words",
    },
    "studies": {
        *BASE, "analyses", "blocks", "checkpoints", "checks", "encodings", "families", "figures",
        "forward", "measurements", "measurements.model", "nulls", "page", "questions", "relations",
        "report", "resizing", "schemes", "settings", "words",
    },
    "sweeps": {
        *BASE, "analyses", "blocks", "checkpoints", "families", "measurements", "nulls", "page",
        "questions", "relations", "report", "schemes", "studies", "words",
    },
    "cli": {
        *BASE, "analyses", "checkpoints", "checks", "encodings", "families", "figures", "forward",
        "measurements", "measurements.model", "nulls", "report", "resizing", "samples", "schemes",
        "studies", "sweeps", "words",
    },
    "__main__": {"cli"},
    # The public face names every home, and imports it on first use.
    "": {
        *BASE, "analyses", "encodings", "families", "figures", "forward", "measurements.model",
        "nulls", "report", "resizing", "schemes", "studies", "sweeps",
    },
}  # fmt: skip

#: A result draws itself by looking its drawing up when asked.
DOOR = ("drawable", "posprobe.figures")
#: The doors upwards: that of drawings, and names of 0.1 that are served from where they moved to.
DOORS = {DOOR, ("report", "posprobe.studies"), ("checks", "posprobe.studies")}

#: Calls that import what a string names.
BY_NAME = {"import_module", "__import__", "find_spec", "import_string"}

#: Packages from outside that a layer must do without.
FOREIGN: Mapping[str, set[str]] = {
    "analyses": {"matplotlib", "jinja2", "safetensors", "huggingface_hub", "torch", "typer"},
    "figures": {"scipy", "sklearn", "torch", "array_api_compat", "jinja2", "typer"},
    "report": {"sklearn", "torch", "typer", "huggingface_hub"},
    "studies": {"sklearn", "torch", "typer", "huggingface_hub"},
    "measurements": {"matplotlib", "torch", "typer", "huggingface_hub", "jinja2", "sklearn"},
    "measurements.model": {
        "matplotlib",
        "torch",
        "transformers",
        "typer",
        "huggingface_hub",
        "jinja2",
        "sklearn",
    },
    "families": {"matplotlib", "torch", "transformers", "timm", "huggingface_hub", "typer"},
    "checkpoints": {"matplotlib", "transformers", "timm", "typer"},
    "resizing": {"matplotlib", "typer", "sklearn"},
    "sweeps": {"matplotlib", "torch", "typer", "huggingface_hub", "sklearn"},
    "cli": {"numpy", "scipy", "sklearn", "matplotlib", "torch", "jinja2"},
    "encodings": {"matplotlib", "torch", "transformers", "typer"},
    "relations": {"matplotlib", "torch", "transformers", "typer"},
}


@dataclass(frozen=True)
class Import:
    """One imported name, the line it stands on, and whether it is there for annotations only."""

    module: str
    name: str
    line: int
    typing: bool = False


def module_name(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(source: str) -> Iterator[Import]:
    tree = ast.parse(source)
    typing = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inside in ast.walk(statement)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [(alias.name, alias.name) for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                found = [("." * level + (module or ""), alias.name) for alias in names]
            case ast.Call(func=function, args=[argument, *_]):
                by_name = ast.unparse(function).split(".")[-1] in BY_NAME
                found = [(_leading_text(argument), "?")] if by_name else []
            case _:
                found = []
        for home, name in found:
            yield Import(home, name, getattr(node, "lineno", 0), id(node) in typing)


def _leading_text(argument: ast.expr) -> str:
    """The constant part that a string, or an f-string, begins with."""
    match argument:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
    return "?"


def targets(found: Import) -> Iterator[str]:
    """The layers of posprobe that an import reaches."""
    if found.module == "posprobe":
        # ``from posprobe import analyses``; other names are those of the public face.
        yield found.name.split(".")[-1] if found.name in LAYERS else "posprobe"
    elif found.module.startswith("posprobe."):
        yield layer_of(found.module.removeprefix("posprobe."))


def layer_of(module: str) -> str:
    """The first part of a module's name, but for rooms that others may enter alone."""
    rooms = ("measurements.model",)
    inside = (room for room in rooms if f"{module}.".startswith(f"{room}."))
    return next(inside, module.split(".")[0])


LAYERS = {layer_of(name) for name in MODULES if name}


def breaches(module: str, source: str) -> list[str]:
    """What a module imports although its layer may not."""
    layer = layer_of(module)
    found = []
    for item in imports_of(source):
        where = f"posprobe.{module}:{item.line} imports {item.module} ({item.name})"
        if item.module.startswith("."):
            found.append(f"{where}: relative imports hide the layer")
        if (module, item.module) in DOORS:
            continue
        found += [
            f"{where}: not for {layer or 'the package itself'}"
            for target in targets(item)
            if target not in {*ALLOWED[layer], layer}
            # The versions of the package are its own.
            and not (target == "posprobe" and layer == "cli" and item.name == "posprobe")
        ]
        outside = item.module.split(".")[0]
        if outside in FOREIGN.get(layer, ()) and not item.typing:
            found.append(f"{where}: {outside} is not for {layer}")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module: str) -> None:
    assert breaches(module, MODULES[module].read_text(encoding="utf-8")) == []


#: What each room of `analyses` may import of the others.
ROOMS: Mapping[str, set[str]] = {
    "descriptive": set(),
    "breaks": set(),
    "models": {"descriptive"},
    "composition": {"breaks", "descriptive"},
    "view": {"breaks", "composition", "descriptive"},
}


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) == "analyses"])
def test_rooms_of_analyses_import_one_way(module: str) -> None:
    room = module.split(".")[1] if "." in module else ""
    if room not in ROOMS:
        return
    for item in imports_of(MODULES[module].read_text(encoding="utf-8")):
        if item.module.startswith("posprobe.analyses."):
            target = item.module.split(".")[2]
            assert target in {room, *ROOMS[room]} or target not in ROOMS, item


def test_every_layer_has_its_place_in_the_house() -> None:
    assert set(ALLOWED) >= LAYERS


def test_the_layers_form_no_circle() -> None:
    done: set[str] = set()
    waiting = set(ALLOWED)
    while waiting:
        free = {layer for layer in waiting if ALLOWED[layer] <= done}
        assert free, f"these import each other: {sorted(waiting)}"
        done |= free
        waiting -= free


def test_there_is_one_door_from_a_result_up_to_its_figure() -> None:
    doors = [
        (module, item.module)
        for module, path in MODULES.items()
        if layer_of(module) in {"analyses", "drawable", "schemes", "table"}
        for item in imports_of(path.read_text(encoding="utf-8"))
        if item.module.startswith("posprobe.figures")
    ]
    assert doors == [DOOR]
    # It opens inside plot(), so that computing needs no matplotlib.
    tree = ast.parse(MODULES["drawable"].read_text(encoding="utf-8"))
    plot = next(
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "plot"
    )
    inside = [item.module for item in imports_of(ast.unparse(plot))]
    assert inside == [DOOR[1]]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("analyses.pca", "from posprobe import figures"),
        ("analyses.pca", "import posprobe.figures.components"),
        ("analyses.pca", "def f():\n    from posprobe.checkpoints import open_local"),
        ("analyses.pca", "if TYPE_CHECKING:\n    from posprobe.report import Analysis"),
        ("analyses.pca", "import_module('posprobe.figures')"),
        ("analyses.pca", "import_module(f'posprobe.report.{name}')"),
        ("analyses.pca", "__import__('posprobe.cli')"),
        ("analyses.pca", "from .similarity import similarity"),
        ("analyses.pca", "import torch"),
        ("analyses.pca", "import posprobe"),
        ("analyses.pca", "from posprobe import load"),
        ("checkpoints.hub", "def f():\n    import posprobe.families.rows as r"),
        ("figures.pca", "import scipy.signal"),
        ("measurements.table", "from posprobe.measurements.model import MODEL"),
        ("tables", "from posprobe.arrays import positions"),
    ],
)
def test_the_walls_notice(module: str, source: str) -> None:
    assert breaches(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("drawable", "import_module('posprobe.figures').draw"),
        ("cli.analyze", "def f():\n    from posprobe.report import analyze"),
        ("cli.__init__", "def f():\n    import posprobe"),
        ("families.read", "from posprobe import encodings, samples"),
    ],
)
def test_the_doors_are_open(module: str, source: str) -> None:
    assert breaches(module, source) == []


# Figures compute nothing.


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) == "figures"])
def test_figures_run_no_analysis(module: str) -> None:
    for item in imports_of(MODULES[module].read_text(encoding="utf-8")):
        if item.module.startswith("posprobe.analyses") and not item.typing:
            # Kinds of results and constants are capitalised, what computes is not.
            assert item.name[0].isupper(), item


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) == "figures"])
def test_figures_compute_nothing(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    mathematics = {
        "linalg", "fft", "random", "dot", "matmul", "einsum", "corrcoef", "cov", "polyfit",
    }  # fmt: skip
    assert not {name for name in used if mathematics & set(name.split(".")[1:])}
    assert not any(isinstance(node, ast.MatMult) for node in ast.walk(tree))
    for item in imports_of(MODULES[module].read_text(encoding="utf-8")):
        assert not item.module.startswith(("numpy.linalg", "numpy.fft", "numpy.random"))


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) == "analyses"])
def test_analyses_touch_no_file_and_no_clock(module: str) -> None:
    source = MODULES[module].read_text(encoding="utf-8")
    outside = {item.module.split(".")[0] for item in imports_of(source)}
    assert not outside & {"pathlib", "io", "os", "shutil", "tempfile", "socket", "time", "datetime"}
    called = {
        ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
    }
    assert not called & {"open", "print", "np.load", "np.save"}


def test_checkpoints_know_no_family_by_name() -> None:
    from posprobe.families.rows import registry

    names = {family.name for family in registry().families if len(family.name) > 2}
    for module, path in MODULES.items():
        if layer_of(module) != "checkpoints":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not names & texts


def test_the_public_face_names_what_exists() -> None:
    stub = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    found = [node for node in ast.walk(stub) if isinstance(node, ast.ImportFrom)]
    modules = {node.module for node in found if node.module}
    modules |= {alias.name for node in found if not node.module for alias in node.names}
    assert {layer_of(module) for module in modules} <= {*ALLOWED[""], "_version"}
    for name in posprobe.__all__:
        assert getattr(posprobe, name) is not None
    assert set(posprobe.__all__) <= set(dir(posprobe))
    with pytest.raises(AttributeError, match="attribute nonsense"):
        _ = posprobe.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "place"), posprobe._SUBMODULES_BY_NAME.items())
def test_a_name_that_moved_says_where_it_is(name: str, place: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"is now posprobe\.{place}\.{name};"):
        found = getattr(posprobe, name)
    assert found is getattr(import_module(f"posprobe.{place}"), name)
    assert name not in posprobe.__all__


def test_the_architecture_document_names_modules_that_exist() -> None:
    home = ROOT.parent
    text = (home / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./]+(?:\.py|/))`", text))
    assert len(named) > 20
    assert not {name for name in named if not any((p / name).exists() for p in (home, ROOT))}


# Words are made in one place.

#: What lays out the sentences of a document.
RENDERERS = ("report.document", "report.pages", "words")


def within(module: str, homes: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{home}.") for home in homes)


@pytest.mark.parametrize("module", MODULES)
def test_sentences_are_made_in_words_and_read_by_nobody(module: str) -> None:
    source = MODULES[module].read_text(encoding="utf-8")
    if not within(module, ("words",)):
        words = "posprobe.words.formats"
        assert not any(words in (i.module, f"{i.module}.{i.name}") for i in imports_of(source))
    if not within(module, RENDERERS):
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Attribute(attr="sentence", ctx=ast.Load()):
                    raise AssertionError(ast.unparse(node))
                case ast.Subscript(slice=ast.Constant(value="sentence"), ctx=ast.Load()):
                    raise AssertionError(ast.unparse(node))
                case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant("sentence"), *_]):
                    raise AssertionError(ast.unparse(node))
