"""Imports between the layers, read from the syntax of every module.

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
BASE_MODULES = {
    "text", "arrays", "data", "drawable", "errors", "layouts", "progress",
    "locks", "opening", "readers", "reference", "number_types",
    "sources", "tables",
}  # fmt: skip

#: Layers that each layer may import; other layers may not exist.
ALLOWED_LAYERS: Mapping[str, set[str]] = {
    "_version": set(),
    "text": set(),
    "data": set(),
    "errors": {"text"},
    "page": set(),
    "number_types": set(),
    "locks": set(),
    "drawable": {"errors", "text"},
    "layouts": {"errors", "number_types"},
    "progress": {"text"},
    "opening": set(),
    # The module names its readers; opening a file imports them.
    "readers": {"data"},
    "sources": {"number_types"},
    "tables": {"drawable", "errors", "layouts", "number_types", "sources", "text"},
    "arrays": {"errors", "layouts", "progress", "tables"},
    "reference": {"errors", "readers"},
    "settings": {"errors"},
    "samples": {"errors"},
    "encodings": {*BASE_MODULES, "settings"},
    "checkpoints": BASE_MODULES,
    "schemes": {*BASE_MODULES, "encodings"},
    "analyses": {*BASE_MODULES, "encodings"},
    "families": {
        *BASE_MODULES,
        "checkpoints",
        "encodings",
        "samples",
        "schemes",
        "settings",
    },
    # Relations of two copies, from their numbers alone.
    "relations": {*BASE_MODULES, "analyses", "encodings"},
    "figures": {*BASE_MODULES, "analyses", "encodings", "nulls", "schemes"},
    "blocks": {"analyses", "errors", "layouts", "number_types", "sources", "tables"},
    # Answers follow from numbers; only `words` makes sentences of them.
    "questions": {*BASE_MODULES, "analyses", "encodings", "schemes"},
    "checks": {
        *BASE_MODULES,
        "analyses",
        "checkpoints",
        "encodings",
        "families",
        "relations",
        "schemes",
        "settings",
    },
    "words": {
        *BASE_MODULES,
        "analyses",
        "figures",
        "page",
        "questions",
        "relations",
        "schemes",
    },
    "nulls": {*BASE_MODULES, "analyses", "blocks", "encodings"},
    "forward": {
        *BASE_MODULES,
        "analyses",
        "checkpoints",
        "encodings",
        "families",
        "nulls",
        "settings",
    },
    "measurements": {*BASE_MODULES, "analyses", "encodings", "figures", "nulls", "words"},
    "measurements.model": {
        *BASE_MODULES,
        "analyses",
        "encodings",
        "families",
        "figures",
        "forward",
        "measurements",
        "nulls",
        "words",
    },
    "report": {
        *BASE_MODULES,
        "analyses",
        "blocks",
        "encodings",
        "figures",
        "measurements",
        "measurements.model",
        "nulls",
        "page",
        "questions",
        "relations",
        "schemes",
        "words",
    },
    "resizing": {
        *BASE_MODULES,
        "analyses",
        "blocks",
        "checkpoints",
        "encodings",
        "families",
        "figures",
        "forward",
        "measurements.model",
        "relations",
        "report",
        "samples",
        "schemes",
        "words",
    },
    "studies": {
        *BASE_MODULES,
        "analyses",
        "blocks",
        "checkpoints",
        "checks",
        "encodings",
        "families",
        "figures",
        "forward",
        "measurements",
        "measurements.model",
        "nulls",
        "page",
        "questions",
        "relations",
        "report",
        "resizing",
        "schemes",
        "settings",
        "words",
    },
    "callbacks": {
        *BASE_MODULES,
        "families",
        "forward",
        "report",
        "studies",
        "words",
    },
    "testing": {
        *BASE_MODULES,
        "checks",
        "encodings",
        "relations",
        "schemes",
        "studies",
        "words",
    },
    "sweeps": {
        *BASE_MODULES,
        "analyses",
        "blocks",
        "checkpoints",
        "families",
        "measurements",
        "nulls",
        "page",
        "questions",
        "relations",
        "report",
        "schemes",
        "studies",
        "words",
    },
    "cli": {
        *BASE_MODULES,
        "analyses",
        "checkpoints",
        "checks",
        "encodings",
        "families",
        "figures",
        "forward",
        "measurements",
        "measurements.model",
        "nulls",
        "report",
        "resizing",
        "samples",
        "schemes",
        "studies",
        "sweeps",
        "words",
    },
    "__main__": {"cli"},
    # The package itself names every submodule and imports it on first use.
    "": {
        *BASE_MODULES,
        "analyses",
        "encodings",
        "families",
        "figures",
        "forward",
        "measurements.model",
        "nulls",
        "report",
        "resizing",
        "schemes",
        "studies",
        "sweeps",
    },
}

#: Results import their figures lazily, in `plot()`.
FIGURE_IMPORT = ("drawable", "posprobe.figures")
#: Allowed upward imports: figures, the sentence of an answer, the table that a reference names, and
#: names of 0.1 that moved to another module.
UPWARD_IMPORTS = {
    FIGURE_IMPORT,
    ("analyses.facts", "posprobe.words"),
    ("tables", "posprobe.families"),
    ("report", "posprobe.studies"),
    ("checks", "posprobe.studies"),
}

#: Functions that import a module by name.
IMPORT_FUNCTIONS = {"import_module", "__import__", "find_spec", "import_string"}

#: External packages that a layer may not import.
FORBIDDEN_PACKAGES: Mapping[str, set[str]] = {
    "analyses": {
        "matplotlib",
        "jinja2",
        "safetensors",
        "huggingface_hub",
        "torch",
        "typer",
    },
    "figures": {"scipy", "sklearn", "torch", "array_api_compat", "jinja2", "typer"},
    "report": {"sklearn", "torch", "typer", "huggingface_hub"},
    "studies": {"sklearn", "torch", "typer", "huggingface_hub"},
    "measurements": {
        "matplotlib",
        "torch",
        "typer",
        "huggingface_hub",
        "jinja2",
        "sklearn",
    },
    "measurements.model": {
        "matplotlib",
        "torch",
        "transformers",
        "typer",
        "huggingface_hub",
        "jinja2",
        "sklearn",
    },
    "families": {
        "matplotlib",
        "torch",
        "transformers",
        "timm",
        "huggingface_hub",
        "typer",
    },
    "checkpoints": {"matplotlib", "transformers", "timm", "typer"},
    "resizing": {"matplotlib", "typer", "sklearn"},
    "sweeps": {"matplotlib", "torch", "typer", "huggingface_hub", "sklearn"},
    "cli": {"numpy", "scipy", "sklearn", "matplotlib", "torch", "jinja2"},
    "encodings": {"matplotlib", "torch", "transformers", "typer"},
    "relations": {"matplotlib", "torch", "transformers", "typer"},
}


@dataclass(frozen=True)
class Import:
    """One imported name, its line, and whether only annotations use it."""

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
        id(nested)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for nested in ast.walk(statement)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imported = [(alias.name, alias.name) for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                imported = [("." * level + (module or ""), alias.name) for alias in names]
            case ast.Call(func=function, args=[argument, *_]):
                by_name = ast.unparse(function).split(".")[-1] in IMPORT_FUNCTIONS
                imported = [(_leading_text(argument), "?")] if by_name else []
            case _:
                imported = []
        for module_path, name in imported:
            yield Import(
                module_path, name, getattr(node, "lineno", 0), id(node) in typing
            )


def _leading_text(argument: ast.expr) -> str:
    """Return the leading constant text of a string or an f-string."""
    match argument:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
    return "?"


def target_layers(item: Import) -> Iterator[str]:
    """Return the layers of posprobe that an import reaches."""
    if item.module == "posprobe":
        # ``from posprobe import analyses`` reaches a layer; other names are public ones.
        yield item.name.split(".")[-1] if item.name in LAYERS else "posprobe"
    elif item.module.startswith("posprobe."):
        yield layer_of(item.module.removeprefix("posprobe."))


def layer_of(module: str) -> str:
    """Return the first part of a module's name; some subpackages are layers of their own."""
    own_layers = ("measurements.model",)
    matching = (room for room in own_layers if f"{module}.".startswith(f"{room}."))
    return next(matching, module.split(".")[0])


LAYERS = {layer_of(name) for name in MODULES if name}


def breaches(module: str, source: str) -> list[str]:
    """Return the imports of a module that its layer may not have."""
    layer = layer_of(module)
    messages = []
    for item in imports_of(source):
        subject = f"posprobe.{module}:{item.line} imports {item.module} ({item.name})"
        if item.module.startswith("."):
            messages.append(f"{subject}: relative imports hide the layer")
        if (module, item.module) in UPWARD_IMPORTS:
            continue
        messages += [
            f"{subject}: not for {layer or 'the package itself'}"
            for target in target_layers(item)
            if target not in {*ALLOWED_LAYERS[layer], layer}
            # The command line imports the package for its version.
            and not (target == "posprobe" and layer == "cli" and item.name == "posprobe")
        ]
        package = item.module.split(".")[0]
        if package in FORBIDDEN_PACKAGES.get(layer, ()) and not item.typing:
            messages.append(f"{subject}: {package} is not for {layer}")
    return messages


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_layers(module: str) -> None:
    assert breaches(module, MODULES[module].read_text(encoding="utf-8")) == []


#: Subpackages that each subpackage of `analyses` may import.
ALLOWED_SUBPACKAGES: Mapping[str, set[str]] = {
    "descriptive": set(),
    "breaks": set(),
    "models": {"descriptive"},
    "composition": {"breaks", "descriptive"},
    "view": {"breaks", "composition", "descriptive"},
}


@pytest.mark.parametrize(
    "module", [name for name in MODULES if layer_of(name) == "analyses"]
)
def test_subpackages_of_analyses_import_one_way(module: str) -> None:
    subpackage = module.split(".")[1] if "." in module else ""
    if subpackage not in ALLOWED_SUBPACKAGES:
        return
    for item in imports_of(MODULES[module].read_text(encoding="utf-8")):
        if item.module.startswith("posprobe.analyses."):
            target = item.module.split(".")[2]
            assert (
                target in {subpackage, *ALLOWED_SUBPACKAGES[subpackage]}
                or target not in ALLOWED_SUBPACKAGES
            ), item


def test_every_layer_has_its_allowed_imports() -> None:
    assert set(ALLOWED_LAYERS) >= LAYERS


def test_allowed_imports_form_no_cycle() -> None:
    sorted_layers: set[str] = set()
    waiting = set(ALLOWED_LAYERS)
    while waiting:
        free = {layer for layer in waiting if ALLOWED_LAYERS[layer] <= sorted_layers}
        assert free, f"these import each other: {sorted(waiting)}"
        sorted_layers |= free
        waiting -= free


def test_results_import_figures_in_one_place_only() -> None:
    upward = [
        (module, item.module)
        for module, path in MODULES.items()
        if layer_of(module) in {"analyses", "drawable", "schemes", "table"}
        for item in imports_of(path.read_text(encoding="utf-8"))
        if item.module.startswith("posprobe.figures")
    ]
    assert upward == [FIGURE_IMPORT]
    # The import stands inside a function, so that computing needs no matplotlib.
    tree = ast.parse(MODULES["drawable"].read_text(encoding="utf-8"))
    load_figures = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "load_figures"
    )
    modules = [item.module for item in imports_of(ast.unparse(load_figures))]
    assert modules == [FIGURE_IMPORT[1]]


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
def test_forbidden_imports_are_found(module: str, source: str) -> None:
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
def test_declared_upward_imports_are_allowed(module: str, source: str) -> None:
    assert breaches(module, source) == []


# Figures compute nothing.


@pytest.mark.parametrize(
    "module", [name for name in MODULES if layer_of(name) == "figures"]
)
def test_figures_run_no_analysis(module: str) -> None:
    for item in imports_of(MODULES[module].read_text(encoding="utf-8")):
        if item.module.startswith("posprobe.analyses") and not item.typing:
            # Result classes and constants are capitalised; functions that compute are not.
            assert item.name[0].isupper(), item


@pytest.mark.parametrize(
    "module", [name for name in MODULES if layer_of(name) == "figures"]
)
def test_figures_compute_nothing(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    attributes = {
        ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    mathematics = {
        "linalg", "fft", "random", "dot", "matmul", "einsum", "corrcoef", "cov", "polyfit",
    }  # fmt: skip
    assert not {name for name in attributes if mathematics & set(name.split(".")[1:])}
    assert not any(isinstance(node, ast.MatMult) for node in ast.walk(tree))
    for item in imports_of(MODULES[module].read_text(encoding="utf-8")):
        assert not item.module.startswith(("numpy.linalg", "numpy.fft", "numpy.random"))


@pytest.mark.parametrize(
    "module", [name for name in MODULES if layer_of(name) == "analyses"]
)
def test_analyses_touch_no_file_and_no_clock(module: str) -> None:
    source = MODULES[module].read_text(encoding="utf-8")
    packages = {item.module.split(".")[0] for item in imports_of(source)}
    assert not packages & {
        "pathlib",
        "io",
        "os",
        "shutil",
        "tempfile",
        "socket",
        "time",
        "datetime",
    }
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
    }
    assert not calls & {"open", "print", "np.load", "np.save"}


def test_checkpoints_name_no_family() -> None:
    from posprobe.families.architectures import load_registry

    names = {family.name for family in load_registry().families if len(family.name) > 2}
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


def test_public_names_exist() -> None:
    stub = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(stub) if isinstance(node, ast.ImportFrom)]
    modules = {node.module for node in imports if node.module}
    modules |= {alias.name for node in imports if not node.module for alias in node.names}
    assert {layer_of(module) for module in modules} <= {*ALLOWED_LAYERS[""], "_version"}
    for name in posprobe.__all__:
        assert getattr(posprobe, name) is not None
    assert set(posprobe.__all__) <= set(dir(posprobe))
    with pytest.raises(AttributeError, match="attribute nonsense"):
        _ = posprobe.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "submodule"), posprobe._SUBMODULES_BY_NAME.items())
def test_moved_names_warn_with_their_new_module(name: str, submodule: str) -> None:
    with pytest.warns(
        DeprecationWarning, match=rf"is now posprobe\.{submodule}\.{name};"
    ):
        value = getattr(posprobe, name)
    assert value is getattr(import_module(f"posprobe.{submodule}"), name)
    assert name not in posprobe.__all__


def test_the_architecture_document_names_existing_modules() -> None:
    root = ROOT.parent
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w./]+(?:\.py|/))`", text))
    assert len(paths) > 20
    assert not {
        name for name in paths if not any((p / name).exists() for p in (root, ROOT))
    }


# Sentences are made in one package.

#: Modules that lay out the sentences of a document, and the record that looks its own up.
SENTENCE_MODULES = ("analyses.facts", "report.document", "report.pages", "words")


def is_within(module: str, homes: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{home}.") for home in homes)


@pytest.mark.parametrize("module", MODULES)
def test_sentences_are_made_in_words_and_read_by_no_other_module(module: str) -> None:
    source = MODULES[module].read_text(encoding="utf-8")
    if not is_within(module, ("words",)):
        words = "posprobe.words.formats"
        assert not any(
            words in (i.module, f"{i.module}.{i.name}") for i in imports_of(source)
        )
    if not is_within(module, SENTENCE_MODULES):
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Attribute(attr="sentence", ctx=ast.Load()):
                    raise AssertionError(ast.unparse(node))
                case ast.Subscript(slice=ast.Constant(value="sentence"), ctx=ast.Load()):
                    raise AssertionError(ast.unparse(node))
                case ast.Call(
                    func=ast.Attribute(attr="get"), args=[ast.Constant("sentence"), *_]
                ):
                    raise AssertionError(ast.unparse(node))
