"""Measure how often each question about a table is answered yes, no, or cannot tell.

Tables are drawn from processes that have a property or lack it, and the whole verdict is asked of
each, as `posprobe analyze` asks it: special rows and seams of all rows, the rest of the longest
stretch without them. Counts are added to a file, of which the page of the documentation is made:

    OPENBLAS_NUM_THREADS=1 uv run python tools/calibration.py --tables 30 --size 64x32
    OPENBLAS_NUM_THREADS=1 uv run python tools/calibration.py --tables 30 --process walk --print
    uv run python tools/calibration.py --trained
    uv run python tools/calibration.py --tables 0 --page docs/calibration.md

With ``--trained`` the questions are asked of the tables that ``tools/train_tables.py`` trained.
What is true of them follows from their tasks.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.signal import lfilter
from scipy.stats import binomtest

import posprobe as pp
from posprobe.analyses.facts import Answer
from posprobe.arrays import positions
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.measurements import TABLE_MEASUREMENTS, TableInputs
from posprobe.questions import GRID_QUESTIONS, SEQUENCE_QUESTIONS
from posprobe.report.document import answer_table_questions
from posprobe.sources import Source
from posprobe.tables import PositionTable

Floats: TypeAlias = NDArray[np.float64]

#: Sizes of sequences, ``[n, d]``, and of grids, ``[h * w, d]`` with equal sides.
SIZES = ((32, 16), (64, 32), (128, 64), (512, 64), (1024, 768))
GRIDS = ((49, 64), (196, 192))
#: Measurements that the verdict looks at.
BEHIND = ("seams", "winding", "bridging", "axis_codes")

#: Questions of sequences and of grids.
COLUMNS = {
    grid: list(questions)
    for grid, questions in enumerate((SEQUENCE_QUESTIONS, GRID_QUESTIONS))
}
QUESTIONS = tuple(dict.fromkeys([*COLUMNS[False], *COLUMNS[True]]))
#: Where counts are kept, and what the tables of the page stand after.
COUNTS_PATH = Path(__file__).parents[1] / "docs" / "calibration.csv"
#: Tables of tiny transformers, and the size of each.
TRAINED_PATH = Path(__file__).parents[1] / "tests" / "data" / "trained-tables.npz"
TRAINED_SIZE = (64, 32)
MARK = "<!-- Made by tools/calibration.py; not to be edited. -->"

Counts: TypeAlias = dict[str, Any]
Draw: TypeAlias = Callable[[np.random.Generator, int, int], Floats]


@dataclass(frozen=True)
class Process:
    """One process: how it is drawn, and which questions have the answer yes, or either."""

    draw: Draw
    yes: frozenset[str] = frozenset()
    either: frozenset[str] = frozenset()
    grid: bool = False
    periods: Callable[[int], tuple[float, ...]] | None = None
    #: Size of the only table there is, for a process that draws nothing.
    table_size: tuple[int, int] | None = None

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """The sizes that tables are drawn in."""
        if self.table_size is not None:
            return (self.table_size,)
        return GRIDS if self.grid else SIZES

    def has(self, question: str) -> Literal["planted", "either", "absent"]:
        """Say whether the property that a question is about is there."""
        return (
            "planted"
            if question in self.yes
            else "either"
            if question in self.either
            else "absent"
        )


def gaussian(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw independent rows."""
    return rng.standard_normal((n, d))


def from_kernel(values: Floats, rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw independent columns of a stationary process with a covariance by offset."""
    covariance = toeplitz(values) + 1e-8 * np.eye(n)
    return np.asarray(np.linalg.cholesky(covariance) @ rng.standard_normal((n, d)))


def ou(length: float) -> Draw:
    """Draw an Ornstein-Uhlenbeck process."""
    return lambda rng, n, d: from_kernel(np.exp(-np.arange(n) / length), rng, n, d)


def rbf(length: float) -> Draw:
    """Draw a squared exponential process."""
    return lambda rng, n, d: from_kernel(
        np.exp(-0.5 * (np.arange(n) / length) ** 2), rng, n, d
    )


def matern(length: float, half: int) -> Draw:
    """Draw a Matern 3/2 or 5/2 process."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        x = np.sqrt(half) * np.arange(n) / length
        return from_kernel(
            np.exp(-x) * (1 + x + (x**2 / 3 if half == 5 else 0)), rng, n, d
        )

    return draw


def mixed_ou(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw columns of very different time constants."""
    lengths = np.exp(rng.uniform(np.log(0.5), np.log(n / 2), d))
    values = np.empty((n, d))
    values[0] = rng.standard_normal(d)
    keep = np.exp(-1 / lengths)
    for t in range(1, n):
        values[t] = keep * values[t - 1] + np.sqrt(1 - keep**2) * rng.standard_normal(d)
    return values


def walk(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a random walk with normal steps."""
    return np.cumsum(rng.standard_normal((n, d)), axis=0)


def heavy_walk(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a random walk whose steps have heavy tails (Student's t with 2 degrees of freedom)."""
    return np.cumsum(
        rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(2, (n, 1)) / 2), axis=0
    )


def anisotropic_walk(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a random walk whose steps span about four directions."""
    return np.asarray(
        np.cumsum(rng.standard_normal((n, d)) * np.exp(-np.arange(d) / 2), axis=0)
    )


def bridge(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a Brownian bridge, without the ends that are zero."""
    path = walk(rng, n + 1, d)
    share = np.arange(1, n + 2) / (n + 1)
    return np.asarray(path - np.outer(share, path[-1]))[:n]


def trend(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a straight line with as much noise."""
    line = np.outer(np.linspace(-1, 1, n) * np.sqrt(3), direction(rng, d))
    return np.asarray(line * np.sqrt(d) + rng.standard_normal((n, d)))


def blocks(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw eight blocks of equal rows with noise."""
    means = rng.standard_normal((8, d))
    return np.asarray(means[np.arange(n) * 8 // n] + 0.5 * rng.standard_normal((n, d)))


def growing(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw independent rows whose norms grow fivefold."""
    return np.asarray(np.linspace(0.4, 2, n)[:, None] * rng.standard_normal((n, d)))


def low_rank_smooth(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a smooth curve in three directions with a little noise."""
    curve = rbf(n / 12)(rng, n, 3) @ np.linalg.qr(rng.standard_normal((d, 3)))[0].T
    return np.asarray(curve * np.sqrt(d / 3) + 0.1 * rng.standard_normal((n, d)))


def heavy_noise(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw independent rows with heavy tails."""
    return rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(2, (n, 1)) / 2)


def direction(rng: np.random.Generator, d: int) -> Floats:
    """Draw a random unit vector."""
    vector = rng.standard_normal(d)
    return np.asarray(vector / np.linalg.norm(vector))


def rotations(
    periods: Callable[[int], tuple[float, ...]], noise: float, background: Draw = gaussian
) -> Draw:
    """Draw rotations of equal size in random planes, with ``noise`` times their variance."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        chosen_periods = periods(n)
        planes = np.linalg.qr(rng.standard_normal((d, 2 * len(chosen_periods))))[0]
        angles = (
            2
            * np.pi
            * (
                np.arange(n)[:, None] / np.array(chosen_periods)
                + rng.random(len(chosen_periods))
            )
        )
        waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(
            len(chosen_periods)
        )
        noise_rows = background(rng, n, d)
        noise_rows = noise_rows - noise_rows.mean(axis=0)
        return np.asarray(
            waves @ planes.T
            + noise_rows * np.sqrt(noise / np.square(noise_rows).sum() * n)
        )

    return draw


def drifting(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw one rotation whose period grows by a tenth along the table, with as much noise."""
    t = np.arange(n) / n
    angle = 2 * np.pi * n / 8 * (t - 0.05 * t**2)
    plane = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    noise = rng.standard_normal((n, d)) / np.sqrt(d)
    return np.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1) @ plane.T + noise)


def ladder(base: float) -> Draw:
    """Draw the sinusoid of a base, in a random basis, with as much noise."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        table = pp.sinusoidal(n, d, base=base).values
        table = table - table.mean(axis=0)
        noise = rng.standard_normal((n, d))
        return np.asarray(
            table + noise * np.sqrt(np.square(table).sum() / np.square(noise).sum())
        )

    return draw


def seam(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw two independent smooth curves, one after the other."""
    half = n // 2
    return np.concatenate([rbf(half / 8)(rng, half, d), rbf(half / 8)(rng, n - half, d)])


def special(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a smooth curve with two rows that are four times as long and elsewhere."""
    values = rbf(n / 16)(rng, n, d)
    values[[0, n - 1]] = 4 * rng.standard_normal((2, d))
    return values


def permuted(reference: str) -> Draw:
    """Draw a real table's rows in random order."""

    def draw(rng: np.random.Generator, n: int, _: int) -> Floats:
        values = np.asarray(pp.load(reference).values, dtype=np.float64)
        return np.asarray(rng.permutation(values)[:n])

    return draw


def permuted_in_blocks(reference: str) -> Draw:
    """Draw a real table's rows in random order within blocks of eight."""

    def draw(rng: np.random.Generator, n: int, _: int) -> Floats:
        values = np.asarray(pp.load(reference).values, dtype=np.float64)[:n]
        order = np.argsort(np.arange(len(values)) // 8 + rng.random(len(values)) * 0.999)
        return np.asarray(values[order])

    return draw


def field_of(kind: str, length: float) -> Draw:
    """Draw a field on a square grid: isotropic RBF or exponential, or separable."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        side = round(np.sqrt(n))
        y, x = np.divmod(np.arange(side * side), side)
        row_step, column_step = y[:, None] - y, x[:, None] - x
        if kind == "separable":
            covariance = np.exp(-(np.abs(row_step) + np.abs(column_step)) / length)
        else:
            distance = np.hypot(row_step, column_step) / length
            covariance = (
                np.exp(-(distance**2) / 2) if kind == "rbf" else np.exp(-distance)
            )
        covariance = covariance + 1e-8 * np.eye(len(covariance))
        return np.asarray(
            np.linalg.cholesky(covariance) @ rng.standard_normal((side * side, d))
        )

    return draw


def low_rank_field(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw three independent smooth columns in random directions, in little noise."""
    plane = np.linalg.qr(rng.standard_normal((d, 3)))[0]
    surface = field_of("rbf", np.sqrt(n) / 6)(rng, n, 3)
    return np.asarray(
        surface @ plane.T * np.sqrt(d / 3) + 0.1 * rng.standard_normal((n, d))
    )


def special_field(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a smooth field with two patches that are four times as long and elsewhere."""
    values = field_of("rbf", np.sqrt(n) / 5)(rng, n, d)
    values[rng.choice(n, 2, replace=False)] = 4 * rng.standard_normal((2, d))
    return values


def growing_field(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a smooth field whose norms grow threefold from the first row to the last."""
    side = round(np.sqrt(n))
    grown = np.geomspace(1, 3, side).repeat(side)
    return np.asarray(grown[:, None] * field_of("rbf", 1.5)(rng, n, d))


def rotating_codes(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw row and column codes that go round once and twice, with a tenth of noise."""
    side = round(np.sqrt(n))
    place = np.arange(side) / (side - 1)
    parts = []
    for _ in range(2):
        planes = np.linalg.qr(rng.standard_normal((d, 4)))[0]
        angles = 2 * np.pi * (place[:, None] * np.array([1.0, 2.0]) + rng.random(2))
        waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * [
            1,
            0.4,
            1,
            0.4,
        ]
        parts.append(waves @ planes.T)
    codes = (parts[0][:, None] + parts[1][None]).reshape(n, d)
    noise = rng.standard_normal((n, d))
    return np.asarray(
        codes + noise * np.sqrt(0.1 * np.square(codes).sum() / np.square(noise).sum())
    )


def additive(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a row code and a column code, each a smooth curve, with as much noise."""
    side = round(np.sqrt(n))
    by_row, by_column = rbf(side / 5)(rng, side, d), rbf(side / 5)(rng, side, d)
    codes = (by_row[:, None] + by_column[None]).reshape(n, d)
    return np.asarray(codes + np.sqrt(2) * rng.standard_normal((n, d)))


def additive_random(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw independent random codes of rows and columns, with as much noise."""
    side = round(np.sqrt(n))
    by_row, by_column = rng.standard_normal((side, d)), rng.standard_normal((side, d))
    codes = (by_row[:, None] + by_column[None]).reshape(n, d)
    return np.asarray(codes + np.sqrt(2) * rng.standard_normal((n, d)))


def one_period(_: int) -> tuple[float, ...]:
    """Return a period that divides no table."""
    return (5.3,)


def dividing(n: int) -> tuple[float, ...]:
    """Return periods that divide the table."""
    return (n / 8, n / 3)


def few_periods(n: int) -> tuple[float, ...]:
    """Return three periods over the range that the table resolves."""
    return (3.7, np.sqrt(3.7 * n / 4), n / 4)


def recursive(*weights: float, columns: int = 0) -> Draw:
    """Draw an autoregressive process; in so few columns, with as much noise beside it, if any."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        burn_in = 400  # rows until it has forgotten where it began
        noise = rng.standard_normal((burn_in + n, columns or d))
        rows = lfilter([1.0], [1.0, *(-w for w in weights)], noise, axis=0)[burn_in:]
        if not columns:
            return np.asarray(rows)
        rows = rows @ rng.standard_normal((columns, d))
        return np.asarray(rows / rows.std() + rng.standard_normal((n, d)))

    return draw


def hump(period: float, coherence: float, columns: int = 0) -> Draw:
    """Draw an AR(2) process with a preferred period, whose phase is lost over so many rows."""
    radius = np.exp(-1 / coherence)
    turn = 2 * radius * np.cos(2 * np.pi / period)
    return recursive(turn, -(radius**2), columns=columns)


def moving_average(count: int) -> Draw:
    """Draw means of so many independent rows."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        white = rng.standard_normal((n + count, d))
        return np.asarray(lfilter(np.ones(count), [1.0], white, axis=0)[count:])

    return draw


def filtered(gain: Callable[[Floats], Floats]) -> Draw:
    """Draw noise with a gain by frequency, in cycles per position."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        waves = np.fft.rfft(rng.standard_normal((4 * n, d)), axis=0)
        amplitude = gain(np.maximum(np.fft.rfftfreq(4 * n), 1 / (8 * n)))
        return np.asarray(np.fft.irfft(waves * amplitude[:, None], axis=0)[:n])

    return draw


def band(low: float, high: float) -> Draw:
    """Draw noise between two frequencies alone."""
    return filtered(
        lambda frequency: ((frequency >= low) & (frequency <= high)).astype(float)
    )


def fractional(power: float) -> Draw:
    """Draw noise whose amplitude falls like a power of the frequency."""
    return filtered(lambda frequency: frequency**-power)


def five_periods(n: int) -> tuple[float, ...]:
    """Return five periods over the range that the table resolves, in a geometric ladder."""
    return tuple(np.geomspace(3.1, n / 4, 5))


S = frozenset
ORDERED = S({"order"})
#: It moves on, or grows: that where rows stand matters must be found.
ORDERED_AND_ABSOLUTE = ORDERED | {"absolute_position"}
SMOOTH_AND_ABSOLUTE = S({"smooth", "absolute_position"})
ROTATING = S({"order", "rotations"})
ANY = S({"smooth", "absolute_position", "low_dimensional", "winding"})
BROKEN = S({"seams", "special_rows"})

# A stationary process with independent columns of equal size has neither absolute position nor few
# dimensions, and traces no circle: each yes is false.

#: Every process; what its ``yes`` names must be found, what ``either`` names may be.
PROCESSES: Mapping[str, Process] = {
    "gaussian": Process(gaussian),
    "heavy-tailed noise": Process(heavy_noise),
    "growing norms": Process(growing, S({"absolute_position"}), S({"order"})),
    "permuted MiniLM": Process(
        permuted("sample:all-minilm-l6-v2"),
        either=S({"low_dimensional", "absolute_position", "special_rows"}),
    ),
    "permuted RXNMapper": Process(
        permuted("sample:rxnmapper-albert"),
        either=S({"low_dimensional", "absolute_position", "special_rows"}),
    ),
    "walk": Process(walk, ORDERED_AND_ABSOLUTE),
    "heavy-tailed walk": Process(heavy_walk, ORDERED_AND_ABSOLUTE, S({"low_dimensional"})),
    "anisotropic walk": Process(anisotropic_walk, ORDERED_AND_ABSOLUTE, S({"low_dimensional"})),
    "bridge": Process(bridge, ORDERED, S({"absolute_position"})),
    "trend": Process(trend, ORDERED_AND_ABSOLUTE, S({"smooth", "low_dimensional"})),
    "blocks": Process(blocks, either=ANY | {"seams", "order"} - {"winding"}),
    **{
        f"OU {length:g}": Process(ou(length), ORDERED)
        for length in (1, 3, 10, 30, 100)
    },
    "OU mixed": Process(mixed_ou, ORDERED, S({"low_dimensional"})),
    **{
        f"RBF {length:g}": Process(rbf(length), S({"order", "smooth"}))
        for length in (3, 10, 20, 50)
    },
    # It bends within three positions, so that it may be smooth or rough.
    "RBF 1.5": Process(rbf(1.5), ORDERED, S({"smooth"})),
    **{
        f"Matern {half}/2 {length:g}": Process(matern(length, half), ORDERED, S({"smooth"}))
        for half in (3, 5)
        for length in (3, 10, 30)
    },
    "low-rank smooth": Process(
        low_rank_smooth, S({"order", "smooth", "low_dimensional"})
    ),
    "AR(2) in 2 directions, 16 rows": Process(hump(8, 16, 2), ORDERED, S({"low_dimensional"})),
    "AR(2) in 3 directions, 8 rows": Process(hump(8, 8, 3), ORDERED, S({"low_dimensional"})),
    **{
        name: Process(draw, ORDERED)
        for name, draw in {
            "AR(1) 0.7": recursive(0.7),
            "AR(1) -0.3": recursive(-0.3),
            "AR(1) -0.7": recursive(-0.7),
            "AR(2) period 8, 8 rows": hump(8, 8),
            "AR(2) period 8, 16 rows": hump(8, 16),
            "AR(2) period 4, 4 rows": hump(4, 4),
            "MA(3)": moving_average(3),
            "MA(5)": moving_average(5),
            "band .15 to .25": band(0.15, 0.25),
            "band .1 to .2": band(0.1, 0.2),
            "fractional noise .4": fractional(0.4),
            "fractional noise .8": fractional(0.8),
        }.items()
    },
    "seam": Process(seam, ORDERED | {"seams"}, SMOOTH_AND_ABSOLUTE | {"low_dimensional"}),
    "special rows": Process(
        special, ORDERED | {"special_rows"}, SMOOTH_AND_ABSOLUTE | {"low_dimensional"}
    ),
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
        permuted_in_blocks("sample:all-minilm-l6-v2"), ORDERED,
        ANY | BROKEN | {"rotations", "ladder"},
    ),
}  # fmt: skip

FIELDS: Mapping[str, Process] = {
    "noise on a grid": Process(gaussian, grid=True),
    **{
        f"{kind} field {length:g}": Process(
            field_of(kind, length),
            S({"order", "smooth"}) if kind == "rbf" and length > 2 else ORDERED,
            S() if kind != "rbf" else S({"smooth"}),
            grid=True,
        )
        for kind in ("rbf", "exponential", "separable")
        for length in (1.5, 3, 8)
    },
    "low-rank field": Process(
        low_rank_field, S({"order", "low_dimensional"}), S({"smooth"}), grid=True
    ),
    "heavy-tailed noise on a grid": Process(heavy_noise, grid=True),
    "special patches": Process(
        special_field, S({"order", "special_rows"}), SMOOTH_AND_ABSOLUTE, grid=True
    ),
    "field with growing norms": Process(
        growing_field, ORDERED_AND_ABSOLUTE, S({"smooth"}), grid=True
    ),
    "row + column codes": Process(
        additive, S({"order", "rows_and_columns"}), SMOOTH_AND_ABSOLUTE, grid=True
    ),
    "random row + column codes": Process(
        additive_random, S({"rows_and_columns"}), S({"order", "absolute_position"}), grid=True
    ),
    "rotating row + column codes": Process(
        rotating_codes, S({"order", "rows_and_columns", "axis_rotations"}),
        SMOOTH_AND_ABSOLUTE | {"low_dimensional"}, grid=True,
    ),
}  # fmt: skip


def clustered(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw rows around six centres, in random order."""
    centres = 1.5 * rng.standard_normal((6, d))
    return np.asarray(centres[rng.integers(6, size=n)] + rng.standard_normal((n, d)))


def telegraph(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a switch between two rows, every tenth row on average, in as much noise."""
    state = np.cumsum(rng.random(n) < 0.1) % 2
    return np.asarray(
        2 * np.outer(state, rng.standard_normal(d)) + rng.standard_normal((n, d))
    )


def polygon(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw straight lines between random corners, nine rows apart."""
    corners = rng.standard_normal((n // 9 + 2, d))
    place = np.arange(n) / 9
    corner, fraction = np.floor(place).astype(int), (place % 1)[:, None]
    return np.asarray((1 - fraction) * corners[corner] + fraction * corners[corner + 1])


def slowing_curve(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a smooth curve whose pace falls to a fifth."""
    place = np.geomspace(1, 5, n) * n / 40
    covariance = np.exp(-0.5 * np.square(np.subtract.outer(place, place) / 1.5))
    root = np.linalg.cholesky(covariance + 1e-8 * np.eye(n))
    return np.asarray(root @ rng.standard_normal((n, d)))


def fading(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw noise beside a row that fades away over a tenth of the table."""
    faded = np.exp(-np.arange(n) / (n / 10))
    return np.asarray(
        4 * np.outer(faded, rng.standard_normal(d)) + rng.standard_normal((n, d))
    )


def stable_walk(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a walk whose steps have infinite variance (Cauchy)."""
    steps = rng.standard_normal((n, d)) / np.abs(rng.standard_normal((n, 1)))
    return np.asarray(np.cumsum(steps, axis=0))


def added(a: Draw, b: Draw) -> Draw:
    """Draw two processes of equal size, added up."""

    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        terms = [draw_term(rng, n, d) for draw_term in (a, b)]
        terms = [part - part.mean(axis=0) for part in terms]
        return np.asarray(sum(part / np.linalg.norm(part) for part in terms))

    return draw


def shuffled(draw: Draw) -> Draw:
    """Draw a process and its rows in random order."""
    return lambda rng, n, d: rng.permutation(draw(rng, n, d))


def columns_of(draw: Draw) -> Draw:
    """Draw a process whose columns differ in size, a few by far the largest."""
    return lambda rng, n, d: draw(rng, n, d) * np.exp(1.5 * rng.standard_normal(d))


def rounded(draw: Draw, levels: int) -> Draw:
    """Draw a process in so many levels of each sign."""

    def drawn(rng: np.random.Generator, n: int, d: int) -> Floats:
        values = draw(rng, n, d)
        return np.asarray(np.round(values * levels / np.abs(values).max()))

    return drawn


def long_field(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw a smooth field that is three times as long along the diagonal as across it."""
    side = round(np.sqrt(n))
    y, x = np.divmod(np.arange(side * side), side)
    diagonal, antidiagonal = (
        np.subtract.outer(y + x, y + x) / 6,
        np.subtract.outer(y - x, y - x) / 2,
    )
    covariance = np.exp(-0.25 * (diagonal**2 + antidiagonal**2)) + 1e-8 * np.eye(n)
    return np.asarray(np.linalg.cholesky(covariance) @ rng.standard_normal((n, d)))


#: Processes that nothing was tuned on: each was drawn once, when everything else was done.
HELD_OUT: Mapping[str, Process] = {
    "ARMA(1, 1)": Process(added(recursive(0.6), recursive(-0.4)), ORDERED),
    "fractional noise .25": Process(fractional(0.25), either=ORDERED),
    "noise of unequal columns": Process(
        columns_of(gaussian), either=S({"low_dimensional"})
    ),
    "walk of unequal columns": Process(
        columns_of(walk), ORDERED_AND_ABSOLUTE, S({"low_dimensional"})
    ),
    "clusters in random order": Process(
        clustered, either=S({"absolute_position", "low_dimensional"})
    ),
    "shuffled sinusoid": Process(
        shuffled(ladder(10_000.0)), either=S({"absolute_position", "low_dimensional"})
    ),
    "telegraph": Process(telegraph, either=ANY | BROKEN | {"order"}),
    "polygon": Process(polygon, ORDERED, ANY | BROKEN),
    "slowing curve": Process(slowing_curve, ORDERED, ANY | BROKEN),
    "fading": Process(fading, either=ANY | BROKEN | {"order"}),
    "Cauchy walk": Process(stable_walk, ORDERED, ANY | BROKEN),
    "walk and noise": Process(added(walk, gaussian), ORDERED, S({"absolute_position"})),
    "OU 5 and OU 40": Process(added(ou(5), ou(40)), ORDERED),
    "RBF 7 in 7 levels": Process(rounded(rbf(7), 3), ORDERED, S({"smooth"})),
    "MA(8)": Process(moving_average(8), ORDERED, S({"smooth"})),
    "Matern 3/2 6 and noise": Process(
        added(matern(6, 3), gaussian), ORDERED, S({"smooth"})
    ),
}
HELD_OUT_FIELDS: Mapping[str, Process] = {
    "diagonal field": Process(long_field, ORDERED, S({"smooth"}), grid=True),
    "rbf field and noise": Process(
        added(field_of("rbf", 2), gaussian), ORDERED, S({"smooth"}), grid=True
    ),
    "two exponential fields": Process(
        added(field_of("exponential", 1), field_of("exponential", 5)),
        ORDERED,
        grid=True,
    ),
    "field of unequal columns": Process(
        columns_of(field_of("rbf", 2)),
        ORDERED,
        SMOOTH_AND_ABSOLUTE | {"low_dimensional"},
        grid=True,
    ),
    "clusters on a grid": Process(
        clustered, either=S({"absolute_position", "low_dimensional"}), grid=True
    ),
    "shuffled codes": Process(
        shuffled(additive), either=S({"absolute_position", "low_dimensional"}), grid=True
    ),
}  # fmt: skip


def read_trained(
    name: str, yes: frozenset[str] = frozenset(), either: frozenset[str] = frozenset()
) -> Process:
    """Return the process that draws a trained table as it is."""

    def draw(_: np.random.Generator, n: int, d: int) -> Floats:
        with np.load(TRAINED_PATH) as tables:
            return np.asarray(tables[name][:n, :d], dtype=np.float64)

    return Process(draw, yes, either, table_size=TRAINED_SIZE)


#: Training treats rows alike, so that they are exchangeable: nothing depends on their order. It
#: may give them few directions and unequal norms.
EXCHANGEABLE = S({"low_dimensional", "absolute_position"})
#: Attention to another position asks that one bilinear form of two rows is largest there. Of 64
#: rows in 32 columns, rows without any order can meet that, and so can a rotation or a curve.
#: Nothing makes periods a geometric series. Rows at the ends have fewer targets, and fewer look
#: at them.
ATTENDING = ANY | {"order", "rotations", "special_rows"}

#: Trained tables by their task; what is true follows from the task alone.
TRAINED: Mapping[str, Process] = {
    "untrained": read_trained("untrained"),
    "bag": read_trained("bag", either=EXCHANGEABLE),
    "bag-decay": read_trained("bag-decay", either=EXCHANGEABLE),
    # All rows but the first are exchangeable, and all others must tell the first from the rest.
    "first-token": read_trained("first-token", S({"special_rows"}), EXCHANGEABLE),
    # Rows are exchangeable within a half. Whether order matters depends on whether one half is
    # asked about or both.
    "halves": read_trained("halves", S({"seams"}), EXCHANGEABLE | {"order"}),
    # Even rows are exchangeable, and so are odd ones. Signs that alternate have a period and go
    # round in no plane, so that either answer about rotations is right.
    "parity": read_trained("parity", ORDERED, EXCHANGEABLE | {"rotations"}),
    # Rows of one residue are exchangeable: the table is eight rows, repeated, and independent
    # noise. The periods 8, 4, 8/3 and 2 are harmonics and no geometric series.
    "modulo-8": read_trained("modulo-8", ROTATING, EXCHANGEABLE | {"winding"}),
    "index": read_trained("index", ORDERED | SMOOTH_AND_ABSOLUTE, S({"low_dimensional"})),
    # Pairs of mirrored rows are exchangeable. Neighbours are no more similar than other rows,
    # and yet the order of rows decides which of them make a pair.
    "reversal": read_trained("reversal", either=EXCHANGEABLE | {"order"}),
    # Windows of neighbours share all but two of eleven positions, so that their rows must be
    # similar. The five rows at either end have no target and may break off.
    "neighbourhood": read_trained("neighbourhood", ORDERED, ANY | BROKEN | {"rotations"}),
    "previous-token": read_trained("previous-token", either=ATTENDING),
    # Rows 40 to 63 are as they were before training.
    "first-forty": read_trained("first-forty", S({"seams"}), ATTENDING),
    # No row looks at the last one, which has no target: it is as before training, but for weight
    # decay. The first rows know less of the text, and are seen by more.
    "markov-text": read_trained(
        "markov-text", S({"special_rows"}), ATTENDING | {"seams"}
    ),
}
KINDS = ((PROCESSES, FIELDS), (HELD_OUT, HELD_OUT_FIELDS))
ALL = {
    name: process
    for kinds in (*(kinds for pair in KINDS for kinds in pair), TRAINED)
    for name, process in kinds.items()
}


def right_periods(planted: tuple[float, ...], value: object) -> bool:
    """Say whether every planted period is among those found, within 2 %, and none besides."""
    reported = [] if not isinstance(value, list) else [line["period"] for line in value]
    return len(reported) == len(planted) and all(
        min(abs(f / w - 1) for f in reported) <= 0.02 for w in planted
    )


def answered(values: Floats, layout: Layout, seed: int) -> Mapping[str, Answer]:
    """Ask every question of a table, as `posprobe.analyze` does."""
    table = PositionTable(
        values.astype(np.float32), layout, "drawn", Source("drawn", "drawn")
    )
    table_positions = positions(table)
    bare = TableInputs(table, table_positions, seed, None, {})
    measurements = {
        name: TABLE_MEASUREMENTS[name]
        for name in BEHIND
        if not TABLE_MEASUREMENTS[name].needs(bare)
    }
    inputs = TableInputs(table, table_positions, seed, None, measurements)
    for name in measurements:
        inputs.result(name)
    return answer_table_questions(inputs).answers


def measure(
    name: str,
    process: Process,
    size: tuple[int, int],
    tables: int,
    seed: int,
    earlier: Counts | None = None,
) -> Counts:
    """Draw tables of one process and size, and add their answers to those counted ``earlier``.

    Tables are numbered, and begin with the first that was not counted yet.
    """
    n, d = size
    side = math.isqrt(n)
    layout = Grid(side, side) if process.grid else Sequence(n)
    counts: Counts = earlier or {"tables": 0, "any": 0, "periods": 0, "answers": {}}
    n_drawn = counts["tables"]
    counts["tables"] += tables
    for index in range(n_drawn, n_drawn + tables):
        values = process.draw(
            np.random.default_rng([seed, index, n, *name.encode()]), n, d
        )
        rows = layout if process.grid else Sequence(len(values))
        false = False
        for question, verdict in answered(values, rows, index).items():
            tally = counts["answers"].setdefault(question, [0, 0, 0])
            tally[("yes", "no", "cannot tell").index(verdict.answer)] += 1
            false |= verdict.yes and process.has(question) == "absent"
            if question == "rotations" and verdict.yes and process.periods:
                counts["periods"] += right_periods(process.periods(n), verdict.value)
        counts["any"] += false
    return counts


def read_counts(path: Path) -> dict[str, dict[str, Counts]]:
    """Read counts by process and size."""
    counts_by_process: dict[str, dict[str, Counts]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            counts: Counts = {key: int(row[key]) for key in ("tables", "any", "periods")}
            counts["answers"] = {
                question: [int(count) for count in row[question].split("/")]
                for question in QUESTIONS
                if row[question]
            }
            counts_by_process.setdefault(row["process"], {})[row["size"]] = counts
    return counts_by_process


def write_counts(
    counts_by_process: Mapping[str, Mapping[str, Counts]], path: Path
) -> None:
    """Write counts, a row for each process and size: answers are yes/no/cannot tell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["process", "size", "tables", "any", "periods", *QUESTIONS])
        for name, sizes in counts_by_process.items():
            for size, counts in sizes.items():
                tallies = (counts["answers"].get(question, ()) for question in QUESTIONS)
                cells = ["/".join(map(str, tally)) for tally in tallies]
                numbers = (counts[key] for key in ("tables", "any", "periods"))
                writer.writerow([name, size, *numbers, *cells])


def rate(yes: int, tables: int, *, is_lower_bound: bool) -> str:
    """Return a count of yes with the lower or upper end of its 95 % interval (Clopper-Pearson)."""
    if not tables:
        return ""
    ends = binomtest(yes, tables).proportion_ci()
    end = f"≥ {100 * ends.low:.1f}" if is_lower_bound else f"≤ {100 * ends.high:.1f}"
    return f"{yes} of {tables:,} ({end} %)"


def rates(
    counts_by_process: Mapping[str, Mapping[str, Counts]],
    kinds: Mapping[str, Process],
    *,
    grid: bool,
) -> str:
    """Return, by question and size, yes where the property is absent and where it is planted."""
    sizes = [f"{n}x{d}" for n, d in (GRIDS if grid else SIZES)]
    lines = [
        f"| question | yes where | {' | '.join(sizes)} |",
        f"| --- | --- |{' ---: |' * len(sizes)}",
    ]
    for question in COLUMNS[grid]:
        for truth in ("absent", "planted"):
            names = [
                name for name, process in kinds.items() if process.has(question) == truth
            ]
            cells = []
            for size in sizes:
                counts = [
                    counts_by_process[name][size]
                    for name in names
                    if size in counts_by_process.get(name, {})
                ]
                yes = sum(counts["answers"].get(question, [0])[0] for counts in counts)
                tables = sum(counts["tables"] for counts in counts)
                cells.append(rate(yes, tables, is_lower_bound=truth == "planted"))
            if any(cells):
                lines.append(
                    f"| {question.replace('_', ' ')} | {truth} | {' | '.join(cells)} |"
                )
    cells = []
    for size in sizes:
        counts = [
            counts_by_process[name][size]
            for name in kinds
            if size in counts_by_process.get(name, {})
        ]
        any_yes, tables = (
            sum(counts[key] for counts in counts) for key in ("any", "tables")
        )
        cells.append(rate(any_yes, tables, is_lower_bound=False))
    return "\n".join([*lines, f"| any of them | absent | {' | '.join(cells)} |"])


def trained_answers(counts_by_process: Mapping[str, Mapping[str, Counts]]) -> str:
    """Return the answers about trained tables: false ones bold, those of open truth in italics."""
    questions = COLUMNS[False]
    lines = [
        f"| task | {' | '.join(question.replace('_', ' ') for question in questions)} |",
        f"| --- |{' --- |' * len(questions)}",
    ]
    settled = false = 0
    for name, process in TRAINED.items():
        counts = counts_by_process[name]["x".join(map(str, TRAINED_SIZE))]
        cells = []
        for question in questions:
            answer = ("yes", "no", "cannot tell")[counts["answers"][question].index(1)]
            truth = process.has(question)
            is_false = (truth, answer) in {("absent", "yes"), ("planted", "no")}
            settled += truth != "either"
            false += is_false
            mark = "**" if is_false else "*" if truth == "either" else ""
            cells.append(f"{mark}{answer}{mark}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return (
        f"False answers (bold): {false} of the {settled} that the tasks settle. Answers in "
        "italics are not settled.\n\n" + "\n".join(lines)
    )


def page(counts_by_process: Mapping[str, Mapping[str, Counts]]) -> str:
    """Return the rates as the documentation has them."""
    parts = []
    for title, pair in zip(("Rates by question", "Rates, held out"), KINDS, strict=True):
        parts += [
            f"## {title}",
            *(
                rates(counts_by_process, kinds, grid=bool(g))
                for g, kinds in enumerate(pair)
            ),
        ]
    parts += ["## Answers about trained tables", trained_answers(counts_by_process)]
    return "\n\n".join(parts)


def main() -> None:
    """Add to the counts, print them, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--tables", type=int, default=100, help="of each process and size"
    )
    parser.add_argument("--process", action="append", help="part of a name; all without")
    parser.add_argument("--held-out", action="store_true", help="processes not tuned on")
    parser.add_argument(
        "--trained", action="store_true", help="trained tables, once each"
    )
    parser.add_argument(
        "--size", action="append", help="NxD, N rows or patches; all without"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--counts", type=Path, default=COUNTS_PATH, help="file that is added to"
    )
    parser.add_argument(
        "--print", action="store_true", help="print counts and add them nowhere"
    )
    parser.add_argument(
        "--page", type=Path, help="Markdown file whose tables are replaced"
    )
    options = parser.parse_args()
    counts_by_process = read_counts(options.counts) if options.counts.exists() else {}
    kinds, fields = KINDS[options.held_out]
    for name, process in (TRAINED if options.trained else {**kinds, **fields}).items():
        if not options.tables or (
            options.process and not any(p in name for p in options.process)
        ):
            continue
        for size in process.sizes:
            text = f"{size[0]}x{size[1]}"
            if options.size and text not in options.size:
                continue
            is_new = options.print or options.trained
            earlier = None if is_new else counts_by_process.get(name, {}).get(text)
            tables = 1 if options.trained else options.tables
            counts = measure(name, process, size, tables, options.seed, earlier)
            print(name, text, counts, flush=True)
            if options.print:
                continue
            counts_by_process.setdefault(name, {})[text] = counts
            write_counts(counts_by_process, options.counts)
    if options.page:
        prose = options.page.read_text().partition(MARK)[0]
        options.page.write_text(f"{prose}{MARK}\n\n{page(counts_by_process)}\n")


if __name__ == "__main__":
    main()
