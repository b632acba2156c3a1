"""Measure the names of a Python package: print one table, and exit with 1 past a limit.

    uv run python tools/names.py posprobe --max-banned 2 --max-tuples 0 --commits 20

`banned` and `module` are words that say nothing as a whole name, in percent of all names and of
the names of the worst module; `fragments` are descriptions of parameters that begin like "Of the
draws", in percent; `repeated` counts constants that two modules define, `over_50` functions of more
than 50 lines of code, `width` the mean number of characters in a line of code, and `upward` imports
against `ORDER`. `subjects` counts subjects of commits that are too long or not imperative.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: Words that say nothing as a whole name; as part of one, as in `kept_rows`, they may be right. A
#: field whose name is a key of a JSON Schema is exempt, because keys are published.
BANNED = frozenset(
    """
    about above across added after again ahead alike alone along apart around asked at away before
    began below beside between beyond both built by called changed chosen counted different done
    drawn each enough even every far few first for found from full gained given handed held here how
    inside is kept known lacking last later least left less listed long longest looked lost made
    many met mine more moved most named near never new none nothing now of off often old on one only
    other others out over own placed rest right running said same seen several short shown so some
    something stated still stopped such taken that theirs then there this those through to together
    told tried turned two under until used usual wanted was what when where which whole whose why
    with within without wrong
    """.split()  # noqa: SIM905 - a hundred words read better as text
)
#: Words that name something beside a partner: allowed where one function binds both.
PAIRS = (
    frozenset({"left", "right"}),
    frozenset({"first", "last"}),
    frozenset({"first", "second"}),
    frozenset({"before", "after"}),
    frozenset({"old", "new"}),
)
#: How a description begins that leans on the name of its parameter.
FRAGMENT = re.compile(r"(As|By|How|If|In|Of|So|Such|To|What|Where|Which|Who|Whose) ")
#: How a subject begins that states something instead of saying what the commit does.
NOT_IMPERATIVE = re.compile(
    r"(?i)(an?|the|each|every|wh\w+|no|of|in|on|it|all|one|\w+(ed|ing)) |"
    r"\S+ (\S+ )?(is|are|has|have|was|says|reads|tells|takes) "
)
#: Longest subject of a commit, in characters: git cuts longer ones off.
MAX_SUBJECT = 72
#: Longest function, in lines of code.
MAX_FUNCTION_LINES = 50
#: Names from which the share of banned words of a module says something.
MIN_NAMES = 40
#: The floors of the package, ground floor first; imports run downwards.
ORDER = (
    "text", "errors", "tables", "arrays", "encodings", "schemes", "analyses", "relations",
    "figures", "families", "blocks", "questions", "checks", "words", "nulls", "forward",
    "measurements", "report", "resizing", "studies", "sweeps", "cli",
)  # fmt: skip
LIMITS = (
    "banned", "module", "fragments", "tuples", "repeated", "over_50", "width", "upward", "subjects",
)  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Binding:
    """A name that is assigned, or a parameter, with the function that binds it."""

    function: str
    name: str
    is_field: bool


@dataclass
class Module:
    """Counts of one module, its constants, and the modules that it imports from."""

    counts: Counter[str] = field(default_factory=Counter)
    constants: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)


def bindings(node: ast.AST, function: str = "") -> Iterator[Binding]:
    """Yield every assigned name and parameter below a node."""
    is_field = isinstance(node, ast.AnnAssign) and not function
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.arg(arg=name) if name not in {"self", "cls"}:
                yield Binding(function, name, is_field=False)
            case ast.Name(id=name, ctx=ast.Store()) if name != "_":
                yield Binding(function, name, is_field)
        yield from bindings(
            child, child.name if isinstance(child, Function) else function
        )


def banned_words(names: list[Binding], published: set[str]) -> list[str]:
    """Return the banned words among names, those of published fields and pairs left out."""
    bound = defaultdict(set)
    for binding in names:
        bound[binding.function].add(binding.name)
    words = []
    for binding in names:
        word = binding.name.strip("_").lower()
        is_published = binding.is_field and binding.name in published
        is_operand = word == "other" and binding.function.startswith("__")
        is_paired = any(
            word in pair and pair <= bound[binding.function] for pair in PAIRS
        )
        if word in BANNED and not (is_published or is_operand or is_paired):
            words.append(word)
    return words


def constants(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield each upper-case name of a module, and whether a tuple assigns it."""
    for statement in tree.body:
        for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(name, ast.Name) and re.fullmatch(
                    r"_?[A-Z][A-Z\d_]+", name.id
                ):
                    yield name.id.strip("_"), name is not target


def code_lines(source: str, tree: ast.Module) -> dict[int, str]:
    """Return the lines of code by number, without comments and strings that stand alone."""
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, source.split("\n")), 1)
    return {n: line for n, line in lines if line and line[0] != "#" and n not in silent}


def descriptions(node: ast.AST) -> list[str]:
    """Return how each parameter is described in the docstring of a function or class."""
    if not isinstance(node, Function | ast.ClassDef):
        return []
    text = ast.get_docstring(node) or ""
    section = re.search(r"Parameters\n-+\n(.*?)(\n\n|\Z)", text, re.DOTALL)
    return re.findall(r"^\S.*\n +(\S.*)", section[1], re.MULTILINE) if section else []


def measure(source: str, published: set[str]) -> Module:
    """Measure one module."""
    tree = ast.parse(source)
    names = list(bindings(tree))
    code = code_lines(source, tree)
    module = Module()
    module.counts.update(
        modules=1, lines=len(code), characters=sum(map(len, code.values()))
    )
    module.counts.update(names=len(names), banned=len(banned_words(names, published)))
    for name, is_tuple in constants(tree):
        module.constants.add(name)
        module.counts["tuples"] += is_tuple
    for node in ast.walk(tree):
        described = descriptions(node)
        module.counts["parameters"] += len(described)
        module.counts["fragments"] += sum(
            bool(FRAGMENT.match(text)) for text in described
        )
        if isinstance(node, Function):
            body = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            module.counts["over_50"] += len(code.keys() & set(body)) > MAX_FUNCTION_LINES
        if isinstance(node, ast.ImportFrom) and node.module:
            module.imports.add(node.module)
    return module


def published_keys(root: Path) -> set[str]:
    """Return the keys of the JSON Schemas below a folder."""
    schemas = "".join(path.read_text("utf-8") for path in root.rglob("schema/*.json"))
    return set(re.findall(r'"(\w+)": \{', schemas))


def upward_imports(root: Path, modules: dict[str, Module]) -> set[tuple[str, str]]:
    """Return pairs of packages of which the lower one imports the higher one."""
    floor = {name: number for number, name in enumerate(ORDER)}
    upward = set()
    for name, module in modules.items():
        package = name.split("/")[0]
        for target in module.imports:
            if target.startswith(f"{root.name}."):
                imported = target.split(".")[1]
                if (
                    floor.get(package, -1) >= 0
                    and floor.get(imported, -1) > floor[package]
                ):
                    upward.add((package, imported))
    return upward


def poor_subjects(root: Path, commits: int) -> list[str]:
    """Return the subjects of the latest commits that are too long or not imperative."""
    if not commits:
        return []
    log = ["git", "-C", str(root), "log", f"-{commits}", "--format=%s"]
    subjects = subprocess.check_output(log, text=True).splitlines()
    return [s for s in subjects if len(s) > MAX_SUBJECT or NOT_IMPERATIVE.match(s)]


def percent(part: int, total: int) -> float:
    """Return a share in percent; 0 of nothing."""
    return 100 * part / total if total else 0.0


def print_packages(modules: dict[str, Module]) -> None:
    """Print the counts of every package and their sum."""
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, module in modules.items():
        package = name.split("/")[0] if "/" in name else "(root)"
        for key in (package, "sum"):
            packages[key] += module.counts
    total = packages.pop("sum")
    print(f"{'package':14} modules  lines  width  names  banned  fragments  tuples")
    for package, counts in [*sorted(packages.items()), ("sum", total)]:
        print(
            f"{package:14} {counts['modules']:7} {counts['lines']:6} "
            f"{counts['characters'] / max(counts['lines'], 1):6.1f} {counts['names']:6} "
            f"{percent(counts['banned'], counts['names']):5.1f} % "
            f"{percent(counts['fragments'], counts['parameters']):8.1f} % {counts['tuples']:7}"
        )


def main() -> int:
    """Print the tables, and return 1 where a limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", type=Path, help="folder of the package")
    parser.add_argument(
        "--commits", type=int, default=0, help="number of commits to read"
    )
    for name in LIMITS:
        parser.add_argument(
            f"--max-{name}", type=float, default=float("inf"), metavar="N"
        )
    options = parser.parse_args()
    root = options.root.resolve()
    published = published_keys(root)
    modules = {
        path.relative_to(root).with_suffix("").as_posix(): measure(
            path.read_text("utf-8"), published
        )
        for path in sorted(root.rglob("*.py"))
    }
    print_packages(modules)
    total = sum((module.counts for module in modules.values()), Counter[str]())
    homes = Counter(name for module in modules.values() for name in module.constants)
    repeated = sorted(name for name, count in homes.items() if count > 1)
    shares = {
        name: percent(module.counts["banned"], module.counts["names"])
        for name, module in modules.items()
        if module.counts["names"] >= MIN_NAMES
    }
    upward = upward_imports(root, modules)
    subjects = poor_subjects(root, options.commits)
    values = {
        "banned": percent(total["banned"], total["names"]),
        "module": max(shares.values(), default=0.0),
        "fragments": percent(total["fragments"], total["parameters"]),
        "tuples": total["tuples"],
        "repeated": len(repeated),
        "over_50": total["over_50"],
        "width": total["characters"] / max(total["lines"], 1),
        "upward": len(upward),
        "subjects": len(subjects),
    }
    limits = {name: getattr(options, f"max_{name}") for name in LIMITS}
    print()
    for name, limit in limits.items():
        print(f"{name:10}{values[name]:8.1f}  at most {limit:g}")
    worst = sorted(shares, key=lambda name: -shares[name])[:8]
    print("worst modules:", *(f"{name} {shares[name]:.1f} %" for name in worst))
    print("repeated constants:", *repeated)
    for line in (*sorted(upward), *subjects):
        print("past a limit:", line)
    return int(any(values[name] > limit for name, limit in limits.items()))


if __name__ == "__main__":
    sys.exit(main())
