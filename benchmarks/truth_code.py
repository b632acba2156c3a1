"""Read the library's own code: what a module's attribute is used for.

The forward code of the class that owns a table says whether its rows are looked up by position:
`self.position_embeddings(position_ids)` with `position_ids` coming from `torch.arange` is, whereas
`self.word_embeddings(input_ids)` is not. Nothing is decided by the name of the table.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

#: Identifiers from which a row number that is a position is made.
COUNTS = re.compile(
    r"^(arange|cumsum|linspace|meshgrid)$|position_ids|positions?$|^pos(_ids|_idx)?$|pos_ids|"
    r"cache_position|create_position|past_key_values_length|seq_len|sequence_length"
)
#: Identifiers of row numbers that are something else.
CONTENT = re.compile(
    r"token_type|segment|input_ids|^tokens?$|labels?$|vocab|codes?$|_id_|speaker|lang|type_ids|"
    r"batch_idx|bucket|relative|rel_pos|distance|bbox"
)


@dataclass(frozen=True)
class Use:
    """How the code of a class uses one of its attributes.

    ``direct`` lists the identifiers in the arguments of its calls and in its subscripts,
    ``called_with`` those that reach them through assignments as well; ``is_added``,
    ``concatenated``, ``indexed`` and ``passed_to`` say what else happens to its value.
    """

    called_with: frozenset[str] = frozenset()
    direct: frozenset[str] = frozenset()
    is_added: bool = False
    concatenated: bool = False
    multiplied: bool = False
    indexed: bool = False
    passed_to: frozenset[str] = frozenset()
    used: bool = False


@cache
def classes(module: str) -> dict[str, ast.ClassDef]:
    """Parse a module's file once: its classes by name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


@cache
def functions(owner: type) -> tuple[ast.FunctionDef, ...]:
    """Methods of a class, its own and inherited, as far as a model's own code defines them."""
    functions_by_name: dict[str, ast.FunctionDef] = {}
    for parent in owner.__mro__:
        if parent.__module__.startswith(("transformers.models.", "timm.")):
            definition = classes(parent.__module__).get(parent.__name__)
            for node in ast.walk(definition) if definition else ():
                if (
                    isinstance(node, ast.FunctionDef)
                    and node.name not in functions_by_name
                ):
                    functions_by_name[node.name] = node
    return tuple(
        f
        for f in functions_by_name.values()
        if f.name not in ("_init_weights", "init_weights", "__init__")
    )


@cache
def identifiers(owner: type) -> frozenset[str]:
    """Every identifier in the methods of a class, its constructor left out."""
    return frozenset(name for function in functions(owner) for name in names(function))


@cache
def text(owner: type) -> str:
    """Code of a class and its parents, as far as a model's own code defines them."""
    return "\n".join(
        ast.unparse(definition)
        for parent in owner.__mro__
        if parent.__module__.startswith(("transformers.models.", "timm."))
        and (definition := classes(parent.__module__).get(parent.__name__)) is not None
    )


@cache
def called_functions(owner: type) -> frozenset[str]:
    """Names of the functions that the code of a class calls, its constructor included."""
    called_names = set()
    for parent in owner.__mro__:
        if parent.__module__.startswith(("transformers.models.", "timm.")):
            definition = classes(parent.__module__).get(parent.__name__)
            for node in ast.walk(definition) if definition else ():
                if isinstance(node, ast.Call):
                    called_names |= set(list(names(node.func))[:1])
    return frozenset(called_names)


def names(node: ast.AST) -> Iterator[str]:
    """Every identifier and attribute below a node."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr


def origins(function: ast.FunctionDef, node: ast.AST, depth: int = 4) -> frozenset[str]:
    """Collect the identifiers that reach an expression through its function's assignments."""
    sources: dict[str, set[str]] = {}
    for child in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(child, ast.Assign):
            targets, value = child.targets, child.value
        elif isinstance(child, ast.AugAssign | ast.AnnAssign) and child.value is not None:
            targets, value = [child.target], child.value
        else:
            continue
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    sources.setdefault(name.id, set()).update(names(value))
    reached = set(names(node))
    frontier = set(reached)
    for _ in range(depth):
        frontier = {
            name for source_name in frontier for name in sources.get(source_name, ())
        } - reached
        reached |= frontier
    return frozenset(reached - {"self", "torch", "device", "dtype", "long"})


def is_self(node: ast.AST, attribute: str) -> bool:
    """Whether a node is `self.attribute` (or an entry or the weight of it)."""
    while isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Attribute) and node.attr in ("weight", "data")
    ):
        node = node.value
    return (
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.value, ast.Name)
    )


def carries(node: ast.AST, attribute: str) -> bool:
    """Whether an expression is the attribute's value, perhaps reshaped or cast."""
    while True:
        if is_self(node, attribute):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Subscript | ast.Attribute):
            node = node.value
        else:
            return False


@cache
def use(owner: type, attribute: str) -> Use:
    """Collect what the methods of a class, its constructor apart, do with an attribute."""
    called_names: set[str] = set()
    direct: set[str] = set()
    passed: set[str] = set()
    flags = dict.fromkeys(
        ("is_added", "concatenated", "multiplied", "indexed", "used"), False
    )
    for function in functions(owner):
        # Local names that hold the attribute's value, such as `pos = self.pos_embed`.
        holders = {
            target.id
            for child in ast.walk(function)
            if isinstance(child, ast.Assign) and carries(child.value, attribute)
            for target in child.targets
            if isinstance(target, ast.Name)
        }

        def holds(node: ast.AST, holders: set[str] = holders) -> bool:
            while (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and not is_self(node.func, attribute)
            ):
                node = node.func.value
            return carries(node, attribute) or (
                isinstance(node, ast.Name) and node.id in holders
            )

        for child in ast.walk(function):
            if isinstance(child, ast.Attribute) and child.attr == attribute:
                flags["used"] = True
            if isinstance(child, ast.Call):
                arguments = [*child.args, *(k.value for k in child.keywords)]
                if is_self(child.func, attribute):
                    for argument in arguments:
                        called_names |= origins(function, argument)
                        direct |= set(names(argument))
                else:
                    function_name = next(iter(names(child.func)), "")
                    if isinstance(child.func, ast.Attribute):
                        function_name = child.func.attr
                    flat = [
                        e
                        for a in arguments
                        for e in (a.elts if isinstance(a, ast.List | ast.Tuple) else [a])
                    ]
                    if any(holds(e) for e in flat):
                        if function_name in ("cat", "concat", "concatenate", "stack"):
                            flags["concatenated"] = True
                        passed.add(function_name)
            elif isinstance(child, ast.BinOp) and (
                holds(child.left) or holds(child.right)
            ):
                flags["is_added"] |= isinstance(child.op, ast.Add)
                flags["multiplied"] |= isinstance(
                    child.op, ast.Mult | ast.MatMult | ast.Div
                )
            elif isinstance(child, ast.AugAssign) and holds(child.value):
                flags["is_added"] |= isinstance(child.op, ast.Add)
            elif isinstance(child, ast.Subscript) and is_self(child.value, attribute):
                flags["indexed"] = True
                called_names |= origins(function, child.slice)
                direct |= set(names(child.slice))
    return Use(
        frozenset(called_names), frozenset(direct), passed_to=frozenset(passed), **flags
    )


def by_position(use: Use) -> bool | None:
    """Whether row numbers are positions; None where the code gives no clear answer.

    What stands in the call itself decides; only where that says nothing, what reaches it does.
    """
    for words in (use.direct, use.called_with):
        counts = any(COUNTS.search(word) for word in words)
        content = any(CONTENT.search(word) for word in words)
        if counts != content:
            return counts
        if counts:
            return None
    return None
