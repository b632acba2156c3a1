"""Planted tables and the answers about them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from made_bundles import analysis_of
from made_tables import (
    as_table,
    gaussian,
    rotation,
    smooth,
    smooth_field,
    sum_codes,
    walk,
    waves,
)

import posprobe as pp
from posprobe.analyses.facts import decide
from posprobe.analyses.view import view
from posprobe.arrays import positions
from posprobe.layouts import Grid
from posprobe.measurements import TABLE_MEASUREMENTS, TableInputs
from posprobe.questions import GRID_QUESTIONS, SEQUENCE_QUESTIONS, corrections
from posprobe.report.document import answer_table_questions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from posprobe.analyses.facts import Answer, Verdicts
    from posprobe.tables import PositionTable

    Floats = NDArray[np.float64]
    Shape = tuple[int, int] | None

#: Measurements that the questions use.
ANSWER_MEASUREMENTS = ("seams", "budget", "winding", "bridging", "axis_codes")


def verdicts_of(
    values: Floats | PositionTable, grid: Shape = None, *, all_rows: bool = False
) -> Verdicts:
    """Ask every question about a whole table, after its seams are found."""
    layout = Grid(*grid) if grid else None
    table = as_table(values, layout) if isinstance(values, np.ndarray) else values
    bare_inputs = TableInputs(table, positions(table), 0, None, {})
    selected = {
        name: TABLE_MEASUREMENTS[name]
        for name in ANSWER_MEASUREMENTS
        if not TABLE_MEASUREMENTS[name].needs(bare_inputs)
    }
    inputs = TableInputs(table, positions(table), 0, None, selected, all_rows)
    for name in selected:
        inputs.result(name)
    return answer_table_questions(inputs)


def answers_of(values: Floats, grid: Shape = None, seed: int = 0) -> dict[str, Answer]:
    """Ask the questions of one stretch about all rows together."""
    table_view = view(values, seed=seed, layout=Grid(*grid) if grid else None)
    table_answers = [
        ask(table_view)
        for ask in (GRID_QUESTIONS if grid else SEQUENCE_QUESTIONS).values()
    ]
    return decide(
        filter(None, table_answers),
        corrections.GRID_CORRECTIONS if grid else corrections.SEQUENCE_CORRECTIONS,
        table_view,
    )


def noisy_circles(
    periods: list[float], n: int = 200, d: int = 32, seed: int = 0
) -> Floats:
    """Return circles of the given periods with noise of equal norm."""
    circles = waves(n, periods)
    values = circles @ rotation(d)[: circles.shape[1]]
    noise = gaussian(n, d, seed)
    return np.asarray(values + noise * np.linalg.norm(values) / np.linalg.norm(noise))


def circle_along(phase: Floats, d: int = 16, noise: float = 0.05) -> Floats:
    """Return a circle along given phases with slight noise."""
    circle = np.stack([np.cos(phase), np.sin(phase)], axis=1)
    return np.asarray(circle @ rotation(d)[:2] + noise * gaussian(len(phase), d))


def helix(n: int, turns: float, d: int = 24) -> Floats:
    """Return a circle that rises along a third direction."""
    t = np.linspace(0, 1, n)
    angle = 2 * np.pi * turns * t
    curve = np.stack([np.cos(angle), np.sin(angle), 1.5 * t], axis=1)
    return np.asarray(curve @ rotation(d)[:3] + 0.01 * gaussian(n, d))


def with_odd_row(values: Floats, row: int) -> Floats:
    """Return a copy of the table with one odd row."""
    values = values.copy()
    values[row] = 8 * gaussian(1, values.shape[1], seed=9)
    return values


def _circle_codes() -> tuple[Floats, Floats]:
    angle = 2 * np.pi * np.outer(np.arange(14) / 13, [1.0, 2.0])
    circles = np.hstack([np.cos(angle), np.sin(angle)]) * [1, 0.4, 1, 0.4]
    return circles @ rotation(32)[:4], circles @ rotation(32, 1)[:4]


ALTERNATING_SIGNS = np.where(np.arange(96) % 2, 1.0, -1.0)[:, None]
CHECKERBOARD = np.outer(
    (-1.0) ** np.add.outer(np.arange(8), np.arange(8)).ravel(), np.ones(8)
)
LINE_ROWS = np.linspace(-1, 1, 96)[:, None]
MIRRORED_ROWS = np.concatenate([gaussian(32, 16), gaussian(32, 16)[::-1]])
#: Planted tables by name: a function that makes the values, and the shape of a grid or None.
PLANTED_TABLES: Mapping[str, tuple[Callable[[], Floats | PositionTable], Shape]] = {
    "noise": (lambda: gaussian(128, 24), None),
    "walk": (lambda: walk(128, 24), None),
    "smooth": (lambda: smooth(128, 24, 5.0), None),
    "few directions": (
        lambda: smooth(256, 3, 8.0) @ rotation(32)[:3] + 0.02 * gaussian(256, 32), None,
    ),
    "line": (lambda: LINE_ROWS * np.arange(1.0, 9), None),
    "noisy line": (lambda: np.sqrt(3) * LINE_ROWS * np.ones(16) + gaussian(96, 16), None),
    "rotations": (lambda: noisy_circles([6.0, 17.3, 48.0], 192, 24), None),
    "series": (lambda: noisy_circles([3.5, 9.0, 23.0, 60.0], 256), None),
    "sinusoid": (lambda: pp.sinusoidal(96, 32), None),
    "turned sinusoid": (
        lambda: np.asarray(pp.sinusoidal(96, 32, base=1000.0).values) @ rotation(32) + 1, None,
    ),
    "helix": (lambda: helix(256, 3.0), None),
    "chirp": (lambda: circle_along(2 * np.pi * np.arange(128) ** 2 / 512), None),
    "alternating": (lambda: gaussian(96, 16) + 1.5 * ALTERNATING_SIGNS, None),
    "growing": (lambda: np.linspace(0.4, 2, 128)[:, None] * gaussian(128, 32), None),
    "mirrored": (lambda: MIRRORED_ROWS, None),
    "one-hot": (lambda: np.eye(48), None),
    "equal": (lambda: np.full((40, 4), 0.1), None),
    "few rows": (lambda: gaussian(6, 4), None),
    "two halves": (
        lambda: np.concatenate([smooth(80, 24, 8.0), smooth(64, 24, 8.0, seed=1)]), None,
    ),
    "odd row": (lambda: with_odd_row(smooth(96, 16, 6.0), 30), None),
    "patches of noise": (lambda: gaussian(120, 24), (10, 12)),
    "field": (lambda: smooth_field(12, 12, 48, 3.0), (12, 12)),
    "growing field": (
        lambda: np.geomspace(1, 4, 12).repeat(12)[:, None] * smooth_field(12, 12, 48, 2.0),
        (12, 12),
    ),
    "codes": (lambda: sum_codes(gaussian(8, 24, 1), gaussian(9, 24, 2), 0.5), (8, 9)),
    "turning codes": (lambda: sum_codes(*_circle_codes(), noise=0.05), (14, 14)),
    "row code": (lambda: np.repeat(gaussian(10, 16), 10, 0) + 0.05 * gaussian(100, 16), (10, 10)),
    "checkerboard": (lambda: CHECKERBOARD + 0.3 * gaussian(64, 8), (8, 8)),
    "grid formula": (lambda: pp.sincos2d(10, 12, 32), (10, 12)),
    "odd patch": (lambda: with_odd_row(smooth_field(12, 12, 48, 3.0), 75), (12, 12)),
}  # fmt: skip
SAMPLE_REFERENCES = (
    "sample:all-minilm-l6-v2",
    "sample:rxnmapper-albert",
    "sample:digits-vit",
)


@cache
def planted_verdict(name: str) -> Verdicts:
    """Return the answers about a planted table or a sample."""
    if name in SAMPLE_REFERENCES:
        verdict = analysis_of(name.removeprefix("sample:")).verdicts
        assert verdict is not None
        return verdict
    values, grid = PLANTED_TABLES[name]
    return verdicts_of(values(), grid)


#: Reasons about the order of tokens that a run of a model gives; all others are of tables.
RUN_ORDER_REASONS = {"changed", "slight", "rounding"}
ANSWER_PREFIXES = re.compile(r"(?:Yes|No|Cannot tell)[:,.]|Cannot\b|[a-z]")


def is_sentence(text: str) -> bool:
    has_broken_value = re.search(
        r"\bNone\b|\bnan\b|\binf\b|[{}]|-0(?:\.0+)?(?![.\d])", text
    )
    return text.endswith(".") and not has_broken_value and not ANSWER_PREFIXES.match(text)
