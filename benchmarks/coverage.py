"""Measure how often posprobe says rightly what a checkpoint knows about position.

Every model type that transformers registers and every pretrained attention architecture of timm is
built on the meta device. posprobe sees what would be in the file (names, shapes, dtypes and
config.json); what it says is compared with what the library's own code does (`truth_rules`).

    uv run --group test python benchmarks/coverage.py

takes about five minutes. `--heads` takes the classes with a head instead of the bare models (and
leaves timm out); `--markdown` writes docs/coverage.md, and `--keys` its section on keys of
configurations alone.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from position_keys import collect_keys, keys_section
from truth_grading import OUTCOMES, Case, Grade, grade

#: Where `--markdown` writes.
PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"
#: Schemes in the table's order; `formula`, which no file holds, is counted apart.
SCHEMES = ("learned", "fixed", "rotary", "relative", "alibi", "none", "formula")


def summary(grades: list[Grade], markdown: bool) -> str:
    """Make the table: scheme by outcome for each library, and the total."""
    lines = []
    if markdown:
        lines += [
            "| | scheme | right | unknown | wrong | right, % |",
            "| --- | --- " + "| ---: " * 4 + "|",
        ]
    for library in ("transformers", "timm", "together"):
        selected = [g for g in grades if library in (g.library, "together")]
        total: Counter[str] = Counter()
        for scheme in (*SCHEMES, "all but formula"):
            if scheme in SCHEMES:
                counts = Counter(g.outcome for g in selected if g.scheme == scheme)
                if scheme != "formula":
                    total += counts
            else:
                counts = total
            if not counts or (library == "together" and scheme in SCHEMES):
                continue
            cells = [counts[o] for o in OUTCOMES]
            percent = 100 * counts["right"] / sum(cells)
            if markdown:
                row = [library, scheme, *map(str, cells), f"{percent:.1f}"]
                lines.append(f"| {' | '.join(row)} |")
            else:
                row = [f"{library:13}{scheme:16}", *(f"{cell:8}" for cell in cells)]
                lines.append("".join(row) + f"{percent:8.1f}")
    if not markdown:
        lines.insert(0, " " * 29 + "".join(f"{o:>8}" for o in OUTCOMES) + "       %")
    return "\n".join(lines)


def details(grades: list[Grade]) -> str:
    """List every unknown and wrong with what was expected and what was seen."""
    lines = []
    for outcome in ("wrong", "unknown"):
        for g in grades:
            if g.outcome == outcome:
                lines.append(f"{outcome} {g.library}:{g.name} {g.scheme}")
                lines.append(f"    expected {g.expected}")
                lines.append(f"    seen     {g.observed or 'nothing'}")
    return "\n".join(lines)


def page(grades: list[Grade], cases: int, missing: list[dict[str, str]]) -> str:
    """Write docs/coverage.md: the table, what was not recognised, what was not tested."""
    questionable = [g for g in grades if g.outcome != "right" and g.scheme != "formula"]
    unknown = "".join(
        f"| {g.library} | {g.name} | {g.scheme} | {g.outcome} | {_cell(g.expected)} |\n"
        for g in questionable
    )
    untested = ", ".join(f"`{entry['name']}`" for entry in missing)
    return f"""# Coverage

See how often `posprobe inspect` names the right tensors, from names, shapes and configuration
alone: every model type that transformers registers (default configuration) and every pretrained
architecture of timm with attention. Made by

    uv run --group test python benchmarks/coverage.py --markdown

with {versions()}: {cases} checkpoints.

The truth is what the library's own code adds, indexes or rotates by position, taken from the
modules by rule (`benchmarks/truth_rules.py`) and decided by reading the code where a rule cannot
tell (`benchmarks/coverage_reviewed.toml`). *Right* names exactly the tensors, with the rows that
are positions; *unknown* says nothing, or says that it cannot tell and what was seen; *wrong* claims
what is not there.

{summary(grades, True)}

*Formula* are positions that are computed at run time and stored nowhere, which no tensor can show;
*fixed* are formulas stored in the file, which the values tell. Rotary and ALiBi are graded by
presence; factored tables by their number of rows.

These numbers are no estimate for architectures that are not on the list: posprobe was improved on
it, and some entries of the reviewed list were written after posprobe had disagreed with a rule.
`--heads` repeats the measurement on the classes with a head, whose tensors have other names.

## Not right

| library | model | scheme | outcome | expected |
| --- | --- | --- | --- | --- |
{unknown}
## Not tested

{len(missing)} model types have no class of their own, need a package that is not installed, or fail
to build from their default configuration: {untested}.

{keys_section(collect_keys())}
"""


def rewrite_keys() -> None:
    """Write the section on the keys of configurations anew, without the rest."""
    section = keys_section(collect_keys())
    before = PAGE.read_text(encoding="utf-8").partition(section.splitlines()[0])[0]
    PAGE.write_text(f"{before.rstrip()}\n\n{section}\n", encoding="utf-8")


def _cell(text: str) -> str:
    return (text if len(text) < 120 else text[:117] + "...").replace("|", "/")


def build(
    requested: list[str], heads: bool = False
) -> tuple[list[Case], list[dict[str, str]], list[dict[str, Any]]]:
    """Build every model: its case, the models that are not tested and the undecided tensors."""
    import truth_models
    import truth_rules

    truth_models.quiet()
    requested_names = set(requested)

    def wanted(name: str) -> bool:
        return not requested_names or name in requested_names

    cases, missing, undecided = [], [], []
    sources = [truth_models.transformers_models(wanted, heads)]
    if not heads:
        sources.append(truth_models.timm_models(wanted))
    for source in sources:
        for model in source:
            if isinstance(model, truth_models.NotBuilt):
                missing.append(asdict(model))
                continue
            facts, open_questions = truth_rules.find_facts(model)
            undecided += [asdict(question) for question in open_questions]
            cases.append(
                Case(
                    model.library,
                    model.name,
                    type(model.model).__name__,
                    model.config,
                    model.stored,
                    json.loads(json.dumps([asdict(fact) for fact in facts])),
                    tuple(truth_rules.instead_of_positions(model)),
                )
            )
    return cases, missing, undecided


def versions() -> str:
    """Name the libraries whose models are tested."""
    from importlib.metadata import version

    names = ("transformers", "timm", "torch", "posprobe")
    return ", ".join(f"{name} {version(name)}" for name in names)


def main() -> None:
    """Build, ask, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="model types or architectures; all by default"
    )
    parser.add_argument(
        "--heads", action="store_true", help="classes with a head; without timm"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the full result")
    parser.add_argument("--markdown", action="store_true", help="write docs/coverage.md")
    parser.add_argument("--keys", action="store_true", help="write its section on keys")
    arguments = parser.parse_args()
    if arguments.keys:
        rewrite_keys()
        return
    cases, missing, undecided = build(arguments.names, arguments.heads)
    grades = [g for case in cases for g in grade(case)]
    if arguments.json:
        result = {
            "versions": versions(),
            "grades": [asdict(g) for g in grades],
            "facts": {f"{c.library}:{c.name}": c.facts for c in cases},
            "instead": {f"{c.library}:{c.name}": c.instead for c in cases},
            "not_tested": missing,
            "undecided": undecided,
        }
        arguments.json.write_text(json.dumps(result, indent=1))
    if arguments.markdown:
        PAGE.write_text(page(grades, len(cases), missing), encoding="utf-8")
        return
    print(f"{len(cases)} checkpoints ({versions()}), {len(missing)} not tested\n")
    print(summary(grades, arguments.markdown))
    print("\n" + details(grades))
    for entry in missing:
        print(f"not tested {entry['library']}:{entry['name']}: {entry['reason']}")
    for entry in undecided:
        print(f"undecided {entry}")


if __name__ == "__main__":
    main()
