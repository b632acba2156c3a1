"""Measure how often each finding is made of a table that a null model drew.

For every base table and every null model, surrogates are drawn and analysed as if they were real.
What is printed is the share of them that trigger each rule of `posprobe.report.findings`, as the
Markdown table of docs/analyses.md. Run with

    uv run python tools/false_alarms.py --seeds 100
"""

from __future__ import annotations

import argparse

import numpy as np

import posprobe as pp
from posprobe.nulls import NULLS, surrogate
from posprobe.report.analysis import DRAWS
from posprobe.report.findings import RULES
from posprobe.table import PositionTable, Sequence, Source

ANALYSES = ("similarity", "pca", "spectrum", "shift", "seams", "sinusoid")


def bases() -> dict[str, np.ndarray]:
    """Return tables without seam or special row, since surrogates inherit row and step lengths."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((256, 64))
    sample = np.asarray(pp.load("sample:rxnmapper-albert")[8:264].values, dtype=np.float64)
    return {
        "sinusoid 256 x 64": np.asarray(pp.sinusoidal(256, 64).values),
        "random walk 256 x 64": np.cumsum(noise, axis=0),
        "RXNMapper, positions 8 to 263": sample,
    }


def triggered(values: np.ndarray, seed: int) -> set[str]:
    """Analyse one table and return the rules that say something of it."""
    source = Source(reference="surrogate", resolved="surrogate")
    table = PositionTable(values, Sequence(len(values)), name="surrogate", source=source)
    document = pp.analyze(table, only=ANALYSES, nulls=DRAWS, seed=seed).to_dict()
    return {name for name, rule in RULES.items() if list(rule(document))}


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    print("| base | null model | " + " | ".join(RULES) + " |")
    print("| --- | --- |" + " ---: |" * len(RULES))
    for base, values in bases().items():
        for index, name in enumerate(NULLS):
            counts = dict.fromkeys(RULES, 0)
            for seed in range(seeds):
                rng = np.random.default_rng([1000 + seed, index])
                drawn = surrogate(values, name, rng, Sequence(len(values)))
                for rule in triggered(drawn, seed):
                    counts[rule] += 1
            cells = " | ".join(f"{count / seeds:.0%}" for count in counts.values())
            print(f"| {base} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
