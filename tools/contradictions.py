"""Find statements of a document that contradict each other, in all references or processes.

A document says one thing several times: as a part of the variance budget, as an answer, as the
value of a test beside its range by chance, in the headline, as a period and as a number of turns.
`contradictions` compares these statements. It knows nothing of how they were computed.

    uv run --group test python tools/contradictions.py --jobs 2
    uv run --group test python tools/contradictions.py --calibration 3
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import calibration
import golden
import numpy as np

import posprobe as pp
from posprobe.layouts import Grid, Sequence
from posprobe.sources import Source
from posprobe.tables import PositionTable

Document: TypeAlias = Mapping[str, Any]

#: Smallest share of the variance that an answer must agree with, and that may be a yes.
MIN_PART_SHARE = 0.02
#: Smallest share of the variance that a headline must name.
MIN_NAMED_SHARE = 0.15
#: Largest difference of two shares that are one number.
MAX_SHARE_DIFFERENCE = 1e-6
#: Largest relative difference of the number of rows from turns times period.
MAX_TURNS_DIFFERENCE = 0.01
#: Baselines that are limits, which a no is meant to be outside of.
STATED_LIMITS = frozenset({"90 % kept"})
#: Largest p-value of a yes.
MAX_YES_P = 0.02
#: Parts of the budget by the question whose answer reads them.
PARTS_BY_QUESTION: Mapping[str, tuple[str, ...]] = {
    "smooth": ("smooth", "line", "slow"),
    "rotations": ("rotation", "sway"),
    "special_rows": ("special",),
    "seams": ("breaks",),
    "rows_and_columns": ("rows", "columns"),
}
#: Words of which a headline has at least one where it names a part.
WORDS_BY_PART: Mapping[str, tuple[str, ...]] = {
    "rotation": ("rotation", "periodic"),
    "preferred": ("a preference of",),
    "line": ("line",),
    "smooth": ("smooth", "curve", "formula", "slow changes"),
    "walk": ("walk",),
    "rough": ("rough", "similar"),
    "alternating": ("alternat", "opposite"),
    "special": ("outlier", "zeros"),
    "breaks": ("break", "untrained"),
    "rows": ("row code", "column code"),
    "noise": ("noise", "independent", "cannot be told", "equally far", "too few"),
    "untrained": ("untrained",),
    "other": (),
}


def contradictions(document: Document) -> list[str]:
    """Return the contradictions of a document, a line each; empty where there is none.

    Parameters
    ----------
    document
        Content of an ``analysis.json`` of any kind.
    """
    verdict = document.get("verdict") or {}
    answers = {answer["question"]: answer for answer in verdict.get("answers") or ()}
    checks = [
        *_compare_tests(answers),
        *_compare_nested_fits(document.get("clock") or {}),
    ]
    if document.get("budget") and document["budget"]["parts"]:
        shares = _shares(document["budget"])
        checks += [
            *_compare_parts(answers, shares),
            *_compare_headline(verdict.get("summary") or "", shares, answers, document),
            *_compare_sum(document["budget"]),
        ]
    checks += _compare_turns(answers)
    return checks


def _shares(budget: Document) -> dict[str, float]:
    """Return the shares of the variance around the mean row, by part."""
    shares: Counter[str] = Counter()
    for part in budget["parts"]:
        if part["part"] != "mean":
            shares[part["part"]] += part["share"]
    total = sum(shares.values()) or 1.0
    return {name: share / total for name, share in shares.items()}


def _compare_parts(answers: Document, shares: Mapping[str, float]) -> Iterator[str]:
    """Compare each answer about parts with the bar (rules a and b)."""
    for question, parts in PARTS_BY_QUESTION.items():
        answer = answers.get(question)
        if answer is None:
            continue
        share = sum(shares.get(part, 0.0) for part in parts)
        if answer["answer"] == "no" and share >= MIN_PART_SHARE:
            yield f"{question}: no, beside a part of {share:.1%}"
        is_other = question == "seams" and ("untrained" in shares or "other" in shares)
        # On a grid, the question is whether the steps of surface and codes are smooth.
        is_other |= question == "smooth" and "rows_and_columns" in answers
        if answer["answer"] == "yes" and not share > 0 and not is_other:
            yield f"{question}: yes, beside a part of {share:.1%}"
        if question not in {"rotations", "rows_and_columns"} or answer["answer"] != "yes":
            continue
        stated = (answer.get("facts") or {}).get("share", share)
        if abs(stated - share) > MAX_SHARE_DIFFERENCE:
            yield f"{question}: {stated:.1%} in the answer, {share:.1%} in the bar"


def _compare_tests(answers: Document) -> Iterator[str]:
    """Compare values with their ranges by chance (rule c)."""
    for question, answer in answers.items():
        tested, interval = answer.get("tested"), answer.get("interval")
        is_limit = answer.get("baseline") in STATED_LIMITS
        if tested is None or interval is None or answer.get("change") or is_limit:
            continue
        is_outside = not interval[0] <= tested <= interval[1]
        p = answer.get("p")
        if is_outside and answer["answer"] == "no":
            yield f"{question}: no, but {tested:.4g} is outside {interval}"
        if is_outside and p is not None and p > MAX_YES_P:
            yield f"{question}: p {p:.3g}, but {tested:.4g} is outside {interval}"
        if not is_outside and answer["answer"] == "yes":
            yield f"{question}: yes, but {tested:.4g} is inside {interval}"


def _compare_headline(
    summary: str, shares: Mapping[str, float], answers: Document, document: Document
) -> Iterator[str]:
    """Compare the headline with the bar (rule d) and with the clock (rule h)."""
    text = summary.lower().replace("noise that prefers", "a preference of")
    # Parts of one kind are named together.
    groups = {"sway": "rotation", "columns": "rows", "slow": "smooth"}
    sums: dict[str, float] = {}
    for name, share in shares.items():
        sums[groups.get(name, name)] = sums.get(groups.get(name, name), 0.0) + share
    shares = sums
    is_formula = answers.get("closed_form", {}).get("answer") == "yes"
    places = {}
    for name, share in shares.items():
        found = [text.find(word) for word in WORDS_BY_PART[name] if word in text]
        places[name] = min(found) if found else None
        is_named = bool(found) or not WORDS_BY_PART[name] or is_formula
        if share >= MIN_NAMED_SHARE and not is_named:
            yield f"headline: {name} with {share:.1%} is missing"
    largest = max(shares, key=lambda name: shares[name])
    first_place = min(
        (place for place in places.values() if place is not None), default=None
    )
    if not is_formula and places[largest] not in {None, first_place}:
        yield f"headline: {largest} with {shares[largest]:.1%} is not first"
    clock = document.get("clock") or {}
    if clock.get("shared") and "clock" not in text:
        yield "headline: the shared clock is missing"


def _compare_sum(budget: Document) -> Iterator[str]:
    """Check that the shares add up (rule g)."""
    total = sum(part["share"] for part in budget["parts"])
    if abs(total - 1) > MAX_SHARE_DIFFERENCE:
        yield f"budget: shares add up to {total:.6f}"


def _compare_nested_fits(clock: Document) -> Iterator[str]:
    """Check the order of nested fits (rule f)."""
    fits = [
        clock[name] for name in ("fixed", "one", "own") if clock.get(name) is not None
    ]
    if len(fits) == 3 and not fits[0] <= fits[1] + 1e-9 <= fits[2] + 2e-9:
        yield f"clock: fixed {fits[0]:.3f}, one {fits[1]:.3f}, own {fits[2]:.3f}"


def _compare_turns(answers: Document) -> Iterator[str]:
    """Compare turns with periods and rows (rule e)."""
    winding, rotations = answers.get("winding"), answers.get("rotations")
    facts = (winding or {}).get("facts") or {}
    if not (winding and rotations and facts.get("rotation")):
        return
    line = facts["rotation"]
    period = line["period"] if isinstance(line, dict) else line
    rows = (rotations.get("facts") or {}).get("rows")
    if isinstance(period, float) and rows and facts.get("turns"):
        ratio = facts["turns"] * period / rows
        if abs(ratio - 1) > MAX_TURNS_DIFFERENCE:
            yield f"winding: {facts['turns']:.2f} turns of {period:.2f} are not {rows} rows"


def find_in_reference(name: str, real: Path | None) -> list[str]:
    """Return the contradictions of a golden reference."""
    return contradictions(golden.document(name, real))


def find_in_process(name: str, n: int, d: int, index: int) -> list[str]:
    """Return the contradictions of a table that a process of the calibration draws."""
    process = calibration.ALL[name]
    values = process.draw(np.random.default_rng([0, index, n, *name.encode()]), n, d)
    side = math.isqrt(n)
    layout = Grid(side, side) if process.grid else Sequence(len(values))
    table = PositionTable(
        values.astype(np.float32), layout, "drawn", Source("drawn", "drawn")
    )
    return contradictions(pp.analyze(table, seed=index).to_dict())


def main() -> int:
    """Print the contradictions of all documents; 1 where there are any."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="NAME", help="or patterns"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--real", type=Path, default=os.environ.get("POSPROBE_REAL"))
    parser.add_argument(
        "--calibration",
        type=int,
        default=0,
        metavar="TABLES",
        help="of each process and size, in place of the references",
    )
    parser.add_argument("--size", action="append", help="NxD, N rows or patches")
    options = parser.parse_args()
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    n_found = n_documents = 0
    kinds: Counter[str] = Counter()
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        futures = {
            pool.submit(function, *arguments): label
            for label, function, arguments in _list_jobs(options)
        }
        for future in as_completed(futures):
            n_documents += 1
            for line in future.result():
                n_found += 1
                kinds[re.sub(r"[0-9.%()\[\], -]+", " ", line)] += 1
                print(f"{futures[future]}: {line}", flush=True)
    print("\n".join(f"{count:5}  {kind}" for kind, count in kinds.most_common()))
    print(f"{n_found} contradictions in {n_documents} documents.")
    return int(n_found > 0)


def _list_jobs(
    options: argparse.Namespace,
) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Yield a label, a function and its arguments for each document."""
    if not options.calibration:
        for name in golden.names_of(options.real):
            if golden.matches(options.only, name):
                yield name, find_in_reference, (name, options.real)
        return
    for name, process in calibration.ALL.items():
        if not golden.matches(options.only, name):
            continue
        for n, d in process.sizes:
            if options.size and f"{n}x{d}" not in options.size:
                continue
            for index in range(1 if process.table_size else options.calibration):
                yield f"{name} {n}x{d} #{index}", find_in_process, (name, n, d, index)


if __name__ == "__main__":
    sys.exit(main())
