"""Measure how often each finding is made of a table that a null model drew.

For every base table and every null model, surrogates are drawn and analysed as if they were real.
What is printed is the share of them that trigger each rule of `posprobe.report.findings`, as the
Markdown table of docs/analyses.md. Run with

    uv run python tools/false_alarms.py --seeds 100
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

import posprobe as pp
from posprobe.nulls import NULLS, surrogate
from posprobe.report.analysis import DRAWS
from posprobe.report.findings import RULES
from posprobe.table import Grid, PositionTable, Sequence, Source

#: What the rules look at.
ANALYSES = ("similarity", "pca", "shift", "seams", "sinusoid")


def bases() -> dict[str, PositionTable]:
    """Return tables without seam or special row, since surrogates inherit row and step lengths."""
    noise = np.random.default_rng(0).standard_normal((256, 64))
    return {
        "sinusoid 256 x 64": pp.sinusoidal(256, 64),
        "random walk 256 x 64": _made(np.cumsum(noise, axis=0)),
        "RXNMapper, positions 8 to 263": pp.load("sample:rxnmapper-albert")[8:264],
        "2-D sin-cos 14 x 14 x 64": pp.sincos2d(14, 14, 64),
    }


def _made(values: np.ndarray) -> PositionTable:
    source = Source(reference="made", resolved="made")
    return PositionTable(values, Sequence(len(values)), name="made", source=source)


def triggered(table: PositionTable, seed: int) -> set[str]:
    """Analyse one table and return the rules that say something of it."""
    document = pp.analyze(table, only=ANALYSES, nulls=DRAWS, seed=seed).to_dict()
    return {name for name, rule in RULES.items() if list(rule(document))}


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    print("| base | null model | " + " | ".join(RULES) + " |")
    print("| --- | --- |" + " ---: |" * len(RULES))
    for base, table in bases().items():
        values = np.asarray(table.values, dtype=np.float64)
        for index, name in enumerate(NULLS):
            counts = dict.fromkeys(RULES, 0)
            for seed in range(seeds):
                rng = np.random.default_rng([1000 + seed, index])
                drawn = surrogate(values, name, rng, table.layout)
                for rule in triggered(replace(table, values=drawn), seed):
                    counts[rule] += 1
            defined = ("neighbours", "invariance", "sinusoid")
            cells = " | ".join(
                "–"
                if isinstance(table.layout, Grid) and rule not in defined
                else f"{count / seeds:.1%}"
                for rule, count in counts.items()
            )
            print(f"| {base} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
