"""Measure how often each question about a table is answered yes, no, or cannot tell.

Tables are drawn from processes that have a property or lack it, and every question is asked of
each. What is printed is a Markdown table: per process and question the shares of yes / no / cannot
tell in percent; a star marks a "yes" to a property that the process lacks. Run with

    uv run python tools/calibration.py --tables 100
    uv run python tools/calibration.py --tables 20 --process walk --process ou-10 --question order
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import toeplitz

import posprobe as pp
from posprobe.analyses.answers import ask
from posprobe.analyses.grid_answers import ask_grid

#: Sizes of sequences and of grids.
SIZES = ((32, 16), (64, 64), (128, 256), (256, 64), (512, 128), (1024, 768))
GRIDS = ((7, 7, 64), (14, 14, 192), (16, 16, 64))

Draw = Callable[[np.random.Generator, int, int], np.ndarray]


@dataclass(frozen=True)
class Process:
    """One process: how it is drawn, and which questions have the answer yes, or either."""

    draw: Draw
    yes: frozenset[str] = frozenset()
    either: frozenset[str] = frozenset()
    grid: bool = False
    periods: Callable[[int], tuple[float, ...]] | None = None
    sizes: tuple[tuple[int, ...], ...] = field(default=SIZES)


def gaussian(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw independent rows."""
    return rng.standard_normal((n, d))


def from_kernel(values: np.ndarray, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw independent columns of a stationary process with a covariance by offset."""
    covariance = toeplitz(values) + 1e-8 * np.eye(n)
    return np.linalg.cholesky(covariance) @ rng.standard_normal((n, d))


def ou(length: float) -> Draw:
    """Draw an Ornstein-Uhlenbeck process."""
    return lambda rng, n, d: from_kernel(np.exp(-np.arange(n) / length), rng, n, d)


def rbf(length: float) -> Draw:
    """Draw a squared exponential process."""
    return lambda rng, n, d: from_kernel(np.exp(-0.5 * (np.arange(n) / length) ** 2), rng, n, d)


def matern(length: float, half: int) -> Draw:
    """Draw a Matern 3/2 or 5/2 process."""

    def draw(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        x = np.sqrt(half) * np.arange(n) / length
        return from_kernel(np.exp(-x) * (1 + x + (x**2 / 3 if half == 5 else 0)), rng, n, d)

    return draw


def mixed_ou(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw columns of very different time constants."""
    lengths = np.exp(rng.uniform(np.log(0.5), np.log(n / 2), d))
    values = np.empty((n, d))
    values[0] = rng.standard_normal(d)
    keep = np.exp(-1 / lengths)
    for t in range(1, n):
        values[t] = keep * values[t - 1] + np.sqrt(1 - keep**2) * rng.standard_normal(d)
    return values


def walk(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a random walk with normal steps."""
    return np.cumsum(rng.standard_normal((n, d)), axis=0)


def heavy_walk(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a random walk whose steps have heavy tails (Student's t with 2 degrees of freedom)."""
    return np.cumsum(rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(2, (n, 1)) / 2), axis=0)


def anisotropic_walk(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a random walk whose steps span about four directions."""
    return np.cumsum(rng.standard_normal((n, d)) * np.exp(-np.arange(d) / 2), axis=0)


def bridge(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a Brownian bridge."""
    path = walk(rng, n, d)
    return path - np.outer(np.arange(n) / (n - 1), path[-1])


def trend(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a straight line with as much noise."""
    line = np.outer(np.linspace(-1, 1, n) * np.sqrt(3), direction(rng, d))
    return line * np.sqrt(d) + rng.standard_normal((n, d))


def blocks(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw eight blocks of equal rows with noise."""
    means = rng.standard_normal((8, d))
    return means[np.arange(n) * 8 // n] + 0.5 * rng.standard_normal((n, d))


def growing(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw independent rows whose norms grow fivefold."""
    return np.linspace(0.4, 2, n)[:, None] * rng.standard_normal((n, d))


def low_rank_smooth(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a smooth curve in three directions with a little noise."""
    curve = rbf(n / 12)(rng, n, 3) @ np.linalg.qr(rng.standard_normal((d, 3)))[0].T
    return curve * np.sqrt(d / 3) + 0.1 * rng.standard_normal((n, d))


def heavy_noise(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw independent rows with heavy tails."""
    return rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(2, (n, 1)) / 2)


def direction(rng: np.random.Generator, d: int) -> np.ndarray:
    """Draw a random unit vector."""
    vector = rng.standard_normal(d)
    return np.asarray(vector / np.linalg.norm(vector))


def rotations(
    periods: Callable[[int], tuple[float, ...]], noise: float, background: Draw = gaussian
) -> Draw:
    """Draw rotations of equal size in random planes, with ``noise`` times their variance."""

    def draw(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        chosen = periods(n)
        planes = np.linalg.qr(rng.standard_normal((d, 2 * len(chosen))))[0]
        angles = 2 * np.pi * (np.arange(n)[:, None] / np.array(chosen) + rng.random(len(chosen)))
        waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(len(chosen))
        rest = background(rng, n, d)
        rest = rest - rest.mean(axis=0)
        return waves @ planes.T + rest * np.sqrt(noise / np.square(rest).sum() * n)

    return draw


def drifting(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw one rotation whose period grows by a tenth along the table, with as much noise."""
    t = np.arange(n) / n
    angle = 2 * np.pi * n / 8 * (t - 0.05 * t**2)
    plane = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    noise = rng.standard_normal((n, d)) / np.sqrt(d)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) @ plane.T + noise


def ladder(base: float) -> Draw:
    """Draw the sinusoid of a base, in a random basis, with as much noise."""

    def draw(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        table = pp.sinusoidal(n, d, base=base).values
        table = table - table.mean(axis=0)
        noise = rng.standard_normal((n, d))
        return table + noise * np.sqrt(np.square(table).sum() / np.square(noise).sum())

    return draw


def seam(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw two independent smooth curves, one after the other."""
    half = n // 2
    return np.concatenate([rbf(half / 8)(rng, half, d), rbf(half / 8)(rng, n - half, d)])


def special(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a smooth curve with two rows that are four times as long and elsewhere."""
    values = rbf(n / 16)(rng, n, d)
    values[[0, n - 1]] = 4 * rng.standard_normal((2, d))
    return values


def permuted(reference: str) -> Draw:
    """Draw a real table's rows in random order."""

    def draw(rng: np.random.Generator, n: int, _: int) -> np.ndarray:
        values = np.asarray(pp.load(reference).values, dtype=np.float64)
        return rng.permutation(values)[:n]

    return draw


def permuted_in_blocks(reference: str) -> Draw:
    """Draw a real table's rows in random order within blocks of eight."""

    def draw(rng: np.random.Generator, n: int, _: int) -> np.ndarray:
        values = np.asarray(pp.load(reference).values, dtype=np.float64)[:n]
        order = np.argsort(np.arange(len(values)) // 8 + rng.random(len(values)) * 0.999)
        return values[order]

    return draw


def field_of(kind: str, length: float) -> Draw:
    """Draw a field on a square grid: isotropic RBF or exponential, or separable."""

    def draw(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        side = round(np.sqrt(n))
        y, x = np.divmod(np.arange(side * side), side)
        down, right = y[:, None] - y, x[:, None] - x
        if kind == "separable":
            covariance = np.exp(-(np.abs(down) + np.abs(right)) / length)
        else:
            distance = np.hypot(down, right) / length
            covariance = np.exp(-(distance**2) / 2) if kind == "rbf" else np.exp(-distance)
        covariance = covariance + 1e-8 * np.eye(len(covariance))
        return np.linalg.cholesky(covariance) @ rng.standard_normal((side * side, d))

    return draw


def additive(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw a row code and a column code, each a smooth curve, with as much noise."""
    side = round(np.sqrt(n))
    by_row, by_column = rbf(side / 5)(rng, side, d), rbf(side / 5)(rng, side, d)
    codes = (by_row[:, None] + by_column[None]).reshape(n, d)
    return codes + np.sqrt(2) * rng.standard_normal((n, d))


def additive_random(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw independent random codes of rows and columns, with as much noise."""
    side = round(np.sqrt(n))
    by_row, by_column = rng.standard_normal((side, d)), rng.standard_normal((side, d))
    codes = (by_row[:, None] + by_column[None]).reshape(n, d)
    return codes + np.sqrt(2) * rng.standard_normal((n, d))


def one_period(_: int) -> tuple[float, ...]:
    """Return a period that divides no table."""
    return (5.3,)


def dividing(n: int) -> tuple[float, ...]:
    """Return periods that divide the table."""
    return (n / 8, n / 3)


def few_periods(n: int) -> tuple[float, ...]:
    """Return three periods over the range that the table resolves."""
    return (3.7, np.sqrt(3.7 * n / 4), n / 4)


def five_periods(n: int) -> tuple[float, ...]:
    """Return five periods over the range that the table resolves, in a geometric ladder."""
    return tuple(np.geomspace(3.1, n / 4, 5))


S = frozenset
ORDERED = S({"order"})
SMOOTH = S({"order", "smooth"})
BOUNDED = S({"order", "stationary"})
BOTH = S({"order", "smooth", "stationary"})
ROTATING = S({"order", "rotations"})
ANY = S({"smooth", "stationary", "low_dimensional"})

#: Every process; what its ``yes`` names must be found, what ``either`` names may be.
PROCESSES: Mapping[str, Process] = {
    "gaussian": Process(gaussian, either=S({"stationary"})),
    "heavy-tailed noise": Process(heavy_noise, either=S({"stationary"})),
    "growing norms": Process(growing, either=S({"order"})),
    "permuted MiniLM": Process(
        permuted("sample:all-minilm-l6-v2"), either=S({"low_dimensional", "stationary"})
    ),
    "permuted RXNMapper": Process(
        permuted("sample:rxnmapper-albert"), either=S({"low_dimensional", "stationary"})
    ),
    "walk": Process(walk, ORDERED),
    "heavy-tailed walk": Process(heavy_walk, ORDERED, S({"low_dimensional"})),
    "anisotropic walk": Process(anisotropic_walk, ORDERED, S({"low_dimensional"})),
    "bridge": Process(bridge, ORDERED, S({"stationary"})),
    "trend": Process(trend, ORDERED, S({"smooth", "low_dimensional"})),
    "blocks": Process(blocks, ORDERED, S({"smooth", "stationary", "low_dimensional"})),
    **{
        f"OU {length:g}": Process(ou(length), ORDERED, S({"stationary"}))
        for length in (1, 3, 10, 30, 100)
    },
    "OU mixed": Process(mixed_ou, ORDERED, S({"stationary", "low_dimensional"})),
    **{
        f"RBF {length:g}": Process(rbf(length), S({"order", "smooth"}), S({"stationary"}))
        for length in (1.5, 3, 10, 20, 50)
    },
    **{
        f"Matern {half}/2 {length:g}": Process(matern(length, half), ORDERED, BOTH)
        for half in (3, 5)
        for length in (3, 10, 30)
    },
    "low-rank smooth": Process(
        low_rank_smooth, S({"order", "smooth", "low_dimensional"}), S({"stationary"})
    ),
    "seam": Process(seam, ORDERED, BOTH | {"low_dimensional"}),
    "special rows": Process(special, ORDERED, BOTH | {"low_dimensional"}),
    **{
        f"1 rotation, noise {noise:g}": Process(
            rotations(one_period, noise), ROTATING if noise <= 1 else S(), ANY | ROTATING,
            periods=one_period,
        )
        for noise in (0.1, 0.3, 1, 3, 10)
    },
    "2 dividing rotations": Process(
        rotations(dividing, 1), ROTATING, ANY, periods=dividing
    ),
    "3 rotations": Process(
        rotations(few_periods, 1), ROTATING, ANY | {"ladder"}, periods=few_periods
    ),
    "5 rotations (ladder)": Process(
        rotations(five_periods, 1), ROTATING | {"ladder"}, ANY, periods=five_periods
    ),
    "3 rotations in a walk": Process(
        rotations(few_periods, 1, walk), ORDERED, ANY | ROTATING | {"ladder"}, periods=few_periods
    ),
    "drifting rotation": Process(drifting, ROTATING, ANY),
    **{
        f"sinusoid, base {base:g}": Process(
            ladder(base), ORDERED | {"ladder"}, ANY | {"rotations", "closed_form"}
        )
        for base in (100.0, 10_000.0, 1_000_000.0)
    },
    "MiniLM in blocks of 8": Process(
        permuted_in_blocks("sample:all-minilm-l6-v2"), ORDERED, ANY | {"rotations", "ladder"}
    ),
}  # fmt: skip

FIELDS: Mapping[str, Process] = {
    "noise on a grid": Process(gaussian, grid=True),
    **{
        f"{kind} field {length:g}": Process(field_of(kind, length), grid=True)
        for kind in ("rbf", "exponential", "separable")
        for length in (1.5, 3, 8)
    },
    "row + column codes": Process(additive, S({"rows_and_columns"}), grid=True),
    "random row + column codes": Process(additive_random, S({"rows_and_columns"}), grid=True),
}


def right_periods(wanted: tuple[float, ...], value: object) -> bool:
    """Say whether every planted period is among those found, within 2 %, and none besides."""
    found = [] if not isinstance(value, list) else [line["period"] for line in value]
    return len(found) == len(wanted) and all(
        min(abs(f / w - 1) for f in found) <= 0.02 for w in wanted
    )


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--process", action="append", help="part of a name; all without")
    parser.add_argument("--question", action="append", help="all without")
    parser.add_argument("--largest", type=int, default=1024, help="longest table")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    both = {**PROCESSES, **FIELDS}
    names = [k for k in both if not given.process or any(p in k for p in given.process)]
    header = False
    for name in names:
        process = both[name]
        sizes = [
            size
            for size in (GRIDS if process.grid else SIZES)
            if size[0] * (size[1] if process.grid else 1) <= given.largest
        ]
        counts: dict[str, list[int]] = {}
        any_false, right, sure = 0, 0, 0
        for index in range(given.tables):
            rng = np.random.default_rng([given.seed, index, sum(map(ord, name))])
            size = sizes[index % len(sizes)]
            n, d = (size[0] * size[1], size[2]) if process.grid else size
            values = process.draw(rng, n, d)
            answers = (
                ask_grid(values, size[0], size[1], seed=index)
                if process.grid
                else ask(values, seed=index)
            )
            false = False
            for answer in answers:
                if given.question and answer.question not in given.question:
                    continue
                counted = counts.setdefault(answer.question, [0, 0, 0])
                counted[("yes", "no", "cannot tell").index(answer.answer)] += 1
                wrong = answer.question not in process.yes | process.either
                false |= answer.answer == "yes" and wrong
                if answer.question == "rotations" and answer.answer == "yes":
                    sure += 1
                    if process.periods:
                        right += right_periods(process.periods(n), answer.value)
            any_false += false
        if not header:
            print("| process | " + " | ".join(counts) + " | any false yes | periods right |")
            print("| --- |" + " ---: |" * (len(counts) + 2))
            header = True
        cells = []
        for question, counted in counts.items():
            text = " / ".join(f"{100 * c / given.tables:.0f}" for c in counted)
            if question in process.yes:
                text = f"**{text}**"
            elif question not in process.either and counted[0]:
                text += " *"
            cells.append(text)
        found = f"{100 * right / sure:.0f} %" if process.periods and sure else ""
        print(
            f"| {name} | " + " | ".join(cells) + f" | {100 * any_false / given.tables:.0f} % | "
            f"{found} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
