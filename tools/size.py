"""Print the lines of code of each package beside its budget; it informs and fails nothing.

A line of code holds a token other than a comment or a docstring. Run with
``uv run python tools/size.py``.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1] / "posprobe"
#: Lines that each package may have; one that would make code dense is raised, with the reason.
BUDGET = {
    "": 1690, "analyses": 5900, "checkpoints": 2700, "cli": 1150,
    "encodings": 1000, "families": 2600, "figures": 2800, "forward": 1950, "measurements": 900,
    "questions": 1250, "relations": 830, "report": 4100, "resizing": 1050, "sweeps": 1400,
}  # fmt: skip
#: Lines of a function from which it is named.
LONG = 50
_SPACE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(path: Path) -> set[int]:
    """Return the numbers of the lines of code of a module."""
    source = path.read_bytes()
    said: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
                    said |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    tokens = tokenize.tokenize(io.BytesIO(source).readline)
    code = (range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in _SPACE)
    return {line for lines in code for line in lines} - said


def main() -> None:
    """Print the packages, their sum, and functions that are long."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    long = []
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        package = place.parts[0] if len(place.parts) > 1 else ""
        own = code_lines(path)
        lines[package] += len(own)
        files[package] += 1
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = len(own & set(range(node.lineno, (node.end_lineno or 0) + 1)))
                long += [(count, f"{place}: {node.name}")] if count > LONG else []
    for package in sorted(lines):
        budget = BUDGET.get(package, 0)
        name = package or "(root)"
        print(f"{name:14} {files[package]:4} modules {lines[package]:6} lines, budget {budget:5}")
    print(f"{'sum':14} {sum(files.values()):4} modules {sum(lines.values()):6} lines")
    for count, name in sorted(long, reverse=True):
        print(f"{count:4} lines in {name}")


if __name__ == "__main__":
    main()
