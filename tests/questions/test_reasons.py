"""Questions about a line: a planted table for every reason, and the numbers that were planted."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from made_answers import smooth
from made_tables import gaussian, rotation, walk, waves

import posprobe as pp
from posprobe.analyses.tables.cached import View, view
from posprobe.arrays import Floats
from posprobe.layouts import Grid
from posprobe.questions import SEQUENCE
from posprobe.report.narrator import sentence, templates


def process(n: int, d: int, length: float, power: float = 1.0, seed: int = 0) -> Floats:
    """Columns of a stationary process: of power 1 rough, of power 2 smooth."""
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / length
    root = np.linalg.cholesky(np.exp(-(offset**power)) + 1e-8 * np.eye(n))
    return np.asarray(root @ gaussian(n, d, seed))


def slowing() -> Floats:
    angle = np.outer(2 * np.pi * np.linspace(0, 1, 400) ** 2, [6.0, 9.0, 13.0])
    circles = np.hstack([np.cos(angle), np.sin(angle)]) @ rotation(6)
    return np.asarray(circles + 0.01 * gaussian(400, 6))


def sinusoid(n: int, d: int, base: float = 1e4, noise: float = 0.0) -> Floats:
    exact = np.asarray(pp.sinusoidal(n, d, base=base).values, dtype=np.float64)
    return np.asarray(exact + noise * exact.std() * gaussian(n, d))


def weak_line() -> Floats:
    weak = 0.12 * waves(512, [60.0])
    return np.hstack([waves(512, [5.0, 9.0]), weak, 0.02 * gaussian(512, 10)])


def weak(share: float) -> Floats:
    """Smooth rows with a circle of period 4.1 of that share."""
    slow = smooth(256, 16, 20.0)
    slow /= np.sqrt(np.square(slow - slow.mean(axis=0)).sum(axis=1).mean())
    circle = waves(256, [4.1]) @ rotation(16)[:2]
    both = np.sqrt(1 - share) * slow + np.sqrt(share) * circle
    return np.asarray(both + 1e-3 * gaussian(256, 16))


def along(phase: Floats, noise: float = 0.05) -> Floats:
    """A circle along given phases, in a little noise."""
    curve = np.stack([np.cos(phase), np.sin(phase)], axis=1) @ rotation(16)[:2]
    return np.asarray(curve + noise * gaussian(len(phase), 16))


def chirp() -> Floats:
    return along(2 * np.pi * np.arange(256) ** 2 / 2048)


def two_arcs(turns: float) -> Floats:
    """An arc of large radius, and a smaller circle of so many turns."""
    time = np.linspace(0, 1, 300)
    large, small = 2 * np.pi * 0.6 * time, 2 * np.pi * turns * time
    parts = [2 * np.cos(large), 2 * np.sin(large), np.cos(small), np.sin(small)]
    return np.stack(parts, axis=1) @ rotation(12)[:4] + 0.02 * gaussian(300, 12)


def related_steps(n: int, d: int, cosine: float) -> Floats:
    steps = gaussian(n, d, seed=4)
    for k in range(1, n):
        steps[k] += cosine * steps[k - 1]
    return np.asarray(np.cumsum(steps, axis=0))


HALF, LONG = gaussian(32, 16), gaussian(64, 64)
LINE = np.linspace(-1, 1, 96)[:, None]
FORMULA = np.asarray(pp.sincos2d(8, 8, 32).values, dtype=np.float64)
#: Of each question, by answer and reason, a table.
TABLES: dict[str, dict[str, Floats | View]] = {
    "closed_form": {
        "yes: exact": sinusoid(128, 64),
        "yes: nearly": 3 * sinusoid(128, 64) + 0.02 * gaussian(128, 64),
        "yes: sinusoid": sinusoid(128, 64) @ rotation(64) + 1.0,
        "yes: sincos2d": view(FORMULA @ rotation(32), layout=Grid(8, 8)),
        "no: none": walk(200, 64),
    },
    "ladder": {
        "yes: base": sinusoid(128, 32, noise=1.0),
        "yes: even": waves(512, [6.0, 18.0, 54.0], noise=0.05),
        "no: none": gaussian(200, 32),
        "cannot tell: few": waves(128, [9.0], noise=0.05),
        "cannot tell: dense": sinusoid(64, 128, 30.0, 0.6),
        "no: uneven": waves(512, [5.0, 10.0, 20.0, 48.0, 80.0], noise=0.05),
        "no: random": waves(512, [6.0, 9.0, 54.0], noise=0.05),
        "cannot tell: between": weak_line(),
        "cannot tell: open": waves(512, [6.0, 19.0, 54.0], noise=0.05),
    },
    "rotations": {
        "yes: stand_out": waves(256, [9.0, 31.0], noise=0.1),
        "no: small": weak(0.01),
        "no: none": gaussian(200, 32),
        "cannot tell: few_rows": gaussian(40, 8),
        "cannot tell: dense": sinusoid(64, 128, 30.0, 0.6),
        "cannot tell: unclear": gaussian(48, 2),
        "no: preferred": np.asarray(pp.load("sample:rxnmapper-albert").values, dtype=np.float64),
    },
    "winding": {
        "yes: turns": chirp(),
        "no: part_turn": waves(400, [400.0]),
        "no: smooth": walk(400, 32, 3),
        "cannot tell: open": waves(400, [330.0], noise=0.1),
        "no: none": gaussian(200, 32),
        # Much of the leading directions may be little of the table.
        "no: small": 2.2 * waves(800, [40.0]) @ rotation(500)[:2] + gaussian(800, 500),
    },
    "smooth": {
        "yes: curve": smooth(128, 16, 6.0),
        "yes: line": LINE * np.arange(1.0, 9),
        "yes: noisy_line": np.sqrt(3) * LINE + gaussian(96, 16),
        "no: small": related_steps(1000, 32, 0.08),
        "no: not_smooth": walk(200, 32),
        "cannot tell: open": walk(10, 8),
    },
    "low_dimensional": {
        "yes: fewer": smooth(256, 3, 8.0) @ rotation(32)[:3] + 0.02 * gaussian(256, 32),
        "no: small": gaussian(120, 24, seed=2) * 0.97 ** np.arange(24),
        "no: not_fewer": smooth(256, 32, 8.0),
        "cannot tell: open": smooth(12, 3, 1.0, seed=20) * 0.6 ** np.arange(3),
        "cannot tell: slow": walk(200, 32),
        "cannot tell: few_columns": walk(64, 2),
    },
    "absolute_position": {
        "no: exact": sinusoid(128, 64),
        "no: equally_far": np.eye(48),
        "no: bounded": process(200, 16, 5.0),
        "no: small": 0.6 * np.concatenate([LONG, LONG[::-1]]) + gaussian(128, 64, 9),
        # A few rows are much longer than all others.
        "yes: place_products": gaussian(64, 256, 1)
        / np.sqrt(np.random.default_rng(3).chisquare(2, (64, 1)) / 2),
        "yes: place_norms": gaussian(256, 32) * np.linspace(1, 3, 256)[:, None],
        "yes: place_speed": slowing(),
        "yes: place_mirrored": np.concatenate([HALF, HALF[::-1]]),
        "yes: place_opposed": np.concatenate([HALF, -HALF[::-1]]),
        "cannot tell: slow": process(128, 16, 96.0, seed=4),
        "cannot tell: maybe_place": np.repeat(gaussian(32, 16), 4, axis=0),
        "cannot tell: wanders": walk(200, 32),
        "cannot tell: few_steps": process(128, 8, 64.0, 2),
    },
}
#: Reasons that only corrections give.
CORRECTED = {
    "rotations": {"formula", "pace"},
    "winding": {"rotation", "mixed", "mixed_waves"},
    "smooth": {"rotations"},
    "absolute_position": {
        "straight_line", "unordered", "unordered_open", "order_open", "copies", "zeros",
    },
}  # fmt: skip


def ask(question: str, table: Floats | View) -> Any:
    return SEQUENCE[question](table if isinstance(table, View) else view(table))


@cache
def asked(question: str, reason: str) -> Any:
    """The answer about the table of a reason."""
    (table,) = (each for key, each in TABLES[question].items() if key.endswith(f": {reason}"))
    return ask(question, table)


@pytest.mark.parametrize(
    ("question", "expected"), [(name, key) for name, tables in TABLES.items() for key in tables]
)
def test_each_planted_table_has_its_answer(question: str, expected: str) -> None:
    answer = asked(question, expected.partition(": ")[2])
    assert f"{answer.answer}: {answer.reason}" == expected
    assert sentence(answer).endswith(".")
    if answer.yes and answer.test:
        assert 0 < answer.test.least <= 0.05 / 7
        low, high = answer.test.interval
        assert low <= answer.test.null <= high
        # Of few directions, and of a series, less is more.
        less = answer.reason in {"fewer", "even"}
        assert answer.test.value < low if less else answer.test.value > high


@pytest.mark.parametrize("question", TABLES)
def test_every_reason_is_reached_or_comes_from_a_correction(question: str) -> None:
    reached = {key.partition(": ")[2] for key in TABLES[question]}
    worded = {reason for name, reason in templates() if name == question}
    of_lines = {reason for reason in worded if not reason.startswith("patch_")}
    assert of_lines == reached | CORRECTED.get(question, set())
