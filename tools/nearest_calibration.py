"""Measure how often `posprobe nearest` is wrong, on tables whose relation is known.

    uv run python tools/nearest_calibration.py

It prints the numbers of docs/how-to/nearest.md. Pairs of unrelated tables are made with one shape
and one covariance of positions, and differ in their columns, as trainings of one architecture do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

import posprobe as pp
from posprobe.relations.fingerprints import Likeness, fingerprint, likeness
from posprobe.samples import tables as shipped

Floats = NDArray[np.float64]
PAIRS = 50
#: Width of the tables of made pairs; narrow ones are the harder case.
WIDTHS = (12, 48, 192)


def smooth(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw columns that change slowly: a few cosines, whose weights fall."""
    waves = np.cos(np.pi * np.outer(np.arange(n) + 0.5, np.arange(1, 9)) / n)
    slow = (waves / np.arange(1, 9)) @ rng.normal(size=(8, d))
    return np.asarray(slow + 0.02 * rng.normal(size=(n, d)))


def walk(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a random walk."""
    return np.asarray(np.cumsum(rng.normal(size=(n, d)), axis=0), dtype=np.float64)


def turned(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Turn the sinusoid's columns at random."""
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return np.asarray(pp.sinusoidal(n, d).values @ turn, dtype=np.float64)


def one_direction(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw rows that are nearly one and the same: the mean row is most of many trained tables."""
    return np.asarray(rng.normal(size=d) + 0.1 * smooth(rng, n, d))


TABLE_KINDS: Mapping[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "smooth": smooth, "walk": walk, "sinusoid, columns turned": turned, "one row": one_direction,
}  # fmt: skip


def unrelated(seed: int, pairs: int = PAIRS) -> Iterator[tuple[str, Likeness]]:
    """Compare pairs of unrelated tables of every kind: of one size, and in a third of two."""
    rng = np.random.default_rng(seed)
    for name, make in TABLE_KINDS.items():
        for k in range(pairs):
            d = WIDTHS[k % len(WIDTHS)]
            sizes = (144, 144) if k % 3 else (144, 256)
            # Half of the tables are patches.
            grids = (
                [(12, 12) if n == 144 else (16, 16) for n in sizes]
                if k % 2
                else [None, None]
            )
            a, b = (
                pp.table(make(rng, n, d), grid=grid)
                for n, grid in zip(sizes, grids, strict=True)
            )
            yield name, likeness(fingerprint(a), fingerprint(b))


def noisy(rng: np.random.Generator, values: Floats, share: float) -> Floats:
    """Add noise of so much of the root mean square."""
    size = share * np.sqrt(np.mean(values**2))
    return np.asarray(values + size * rng.normal(size=values.shape))


def drifted(rng: np.random.Generator, values: Floats, share: float, rank: int) -> Floats:
    """Move a table as fine-tuning does: in a few directions, all rows, by so much of its norm."""
    n, d = values.shape
    drift = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    return np.asarray(
        values + drift * (share * np.linalg.norm(values) / np.linalg.norm(drift))
    )


def again(table: pp.PositionTable, values: Floats) -> tuple[Likeness, float]:
    """Compare a changed table with the first; return the exact relative distance as well."""
    grid = (
        (table.layout.height, table.layout.width)
        if isinstance(table.layout, pp.layouts.Grid)
        else None
    )
    likeness_found = likeness(
        fingerprint(pp.table(values, grid=grid)), fingerprint(table)
    )
    original = table.values.astype(np.float64)
    return likeness_found, float(
        np.linalg.norm(values - original) / np.linalg.norm(original)
    )


def main() -> None:
    """Print what was measured."""
    print("| pairs | number | called related | smallest distance | smallest chance |")
    print("| --- | ---: | ---: | ---: | ---: |")
    likenesses: dict[str, list[Likeness]] = {}
    for name, likeness_found in unrelated(0, 5 * PAIRS):
        likenesses.setdefault(name, []).append(likeness_found)
    for name, matches in likenesses.items():
        distance = min(likeness_found.distance or 0.0 for likeness_found in matches)
        chance = min(likeness_found.chance or 0.0 for likeness_found in matches)
        false_kin = sum(likeness_found.related for likeness_found in matches)
        print(
            f"| {name} | {len(matches)} | {false_kin} | {distance:.2f} | {chance:.1g} |"
        )
    rng = np.random.default_rng(1)
    changes: dict[str, Callable[[Floats], Floats]] = {
        "noise of 1 %": partial(noisy, rng, share=0.01)
    }
    for share, rank in ((0.03, 1), (0.1, 4), (0.3, 16)):
        name = f"drift of {100 * share:.0f} % in {rank} direction{'s' * (rank > 1)}"
        changes[name] = partial(drifted, rng, share=share, rank=rank)
    print("\n| change | tables | found again | estimated over exact distance |")
    print("| --- | ---: | ---: | ---: |")
    tables = [pp.load(f"sample:{sample.name}") for sample in shipped()]
    for name, change in changes.items():
        ratios, n_related = [], 0
        for _ in range(20):
            for table in tables:
                likeness_found, exact = again(
                    table, change(table.values.astype(np.float64))
                )
                n_related += likeness_found.relation == "moved"
                ratios.append((likeness_found.distance or 0.0) / exact)
        print(
            f"| {name} | {len(ratios)} | {n_related} | {min(ratios):.2f} to {max(ratios):.2f} |"
        )


if __name__ == "__main__":
    main()
