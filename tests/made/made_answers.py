"""Tables whose truth is planted, and the answers about them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from made_bundles import analysis_of
from made_tables import as_table, gaussian, rotation, walk, waves

import posprobe as pp
from posprobe.analyses.facts import decide
from posprobe.analyses.view import view
from posprobe.arrays import positions
from posprobe.layouts import Grid
from posprobe.measurements import TABLE, TableInputs
from posprobe.questions import GRID, SEQUENCE, corrections
from posprobe.report.document import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from posprobe.analyses.facts import Answer, Verdicts
    from posprobe.tables import PositionTable

    Floats = NDArray[np.float64]
    Shape = tuple[int, int] | None

#: What answers look at.
BEHIND = ("seams", "budget", "winding", "bridging", "axis_codes")


def verdicts_of(
    values: Floats | PositionTable, grid: Shape = None, *, all_rows: bool = False
) -> Verdicts:
    """Ask every question about a whole table, its breaks first."""
    layout = Grid(*grid) if grid else None
    table = as_table(values, layout) if isinstance(values, np.ndarray) else values
    bare = TableInputs(table, positions(table), 0, None, {})
    chosen = {name: TABLE[name] for name in BEHIND if not TABLE[name].needs(bare)}
    inputs = TableInputs(table, positions(table), 0, None, chosen, all_rows)
    for name in chosen:
        inputs.result(name)
    return verdicts(inputs)


def answers_of(values: Floats, grid: Shape = None, seed: int = 0) -> dict[str, Answer]:
    """Ask all rows together what can be asked of a part."""
    seen = view(values, seed=seed, layout=Grid(*grid) if grid else None)
    own = [ask(seen) for ask in (GRID if grid else SEQUENCE).values()]
    return decide(filter(None, own), corrections.GRID if grid else corrections.SEQUENCE, seen)


def smooth(n: int, d: int, length: float, seed: int = 0) -> Floats:
    """Columns of a squared exponential process."""
    offset = np.subtract.outer(np.arange(n), np.arange(n)) / length
    root = np.linalg.cholesky(np.exp(-(offset**2) / 2) + 1e-8 * np.eye(n))
    return np.asarray(root @ gaussian(n, d, seed))


def turning(periods: list[float], n: int = 200, d: int = 32, seed: int = 0) -> Floats:
    """Circles, with as much noise."""
    circles = waves(n, periods)
    values = circles @ rotation(d)[: circles.shape[1]]
    noise = gaussian(n, d, seed)
    return np.asarray(values + noise * np.linalg.norm(values) / np.linalg.norm(noise))


def circling(phase: Floats, d: int = 16, noise: float = 0.05) -> Floats:
    """A circle along given phases, in a little noise."""
    circle = np.stack([np.cos(phase), np.sin(phase)], axis=1)
    return np.asarray(circle @ rotation(d)[:2] + noise * gaussian(len(phase), d))


def helix(n: int, turns: float, d: int = 24) -> Floats:
    """A circle that rises."""
    t = np.linspace(0, 1, n)
    angle = 2 * np.pi * turns * t
    curve = np.stack([np.cos(angle), np.sin(angle), 1.5 * t], axis=1)
    return np.asarray(curve @ rotation(d)[:3] + 0.01 * gaussian(n, d))


def surface(side: int, d: int, power: float, length: float, seed: int = 0) -> Floats:
    """An isotropic field: smooth with a power of 2, rough with 1."""
    place = np.stack(np.divmod(np.arange(side * side), side), axis=1) / length
    distance = np.sqrt(np.square(place[:, None] - place[None]).sum(axis=-1))
    kernel = np.exp(-(distance**power) / power) + 1e-8 * np.eye(side * side)
    return np.asarray(np.linalg.cholesky(kernel) @ gaussian(side * side, d, seed))


def summed(rows: Floats, columns: Floats, noise: float = 0.0) -> Floats:
    """A row code plus a column code in noise."""
    values = (rows[:, None] + columns[None]).reshape(-1, rows.shape[1])
    return np.asarray(values + noise * gaussian(*values.shape))


def with_row(values: Floats, row: int) -> Floats:
    """Put a row of another kind into a table."""
    values = values.copy()
    values[row] = 8 * gaussian(1, values.shape[1], seed=9)
    return values


def _round() -> tuple[Floats, Floats]:
    angle = 2 * np.pi * np.outer(np.arange(14) / 13, [1.0, 2.0])
    circles = np.hstack([np.cos(angle), np.sin(angle)]) * [1, 0.4, 1, 0.4]
    return circles @ rotation(32)[:4], circles @ rotation(32, 1)[:4]


SIGNS = np.where(np.arange(96) % 2, 1.0, -1.0)[:, None]
BOARD = np.outer((-1.0) ** np.add.outer(np.arange(8), np.arange(8)).ravel(), np.ones(8))
LINE = np.linspace(-1, 1, 96)[:, None]
MIRRORED = np.concatenate([gaussian(32, 16), gaussian(32, 16)[::-1]])
#: Tables by what is planted in them, on a grid where a shape stands beside them.
PLANTED: Mapping[str, tuple[Callable[[], Floats | PositionTable], Shape]] = {
    "noise": (lambda: gaussian(128, 24), None),
    "walk": (lambda: walk(128, 24), None),
    "smooth": (lambda: smooth(128, 24, 5.0), None),
    "few directions": (
        lambda: smooth(256, 3, 8.0) @ rotation(32)[:3] + 0.02 * gaussian(256, 32), None,
    ),
    "line": (lambda: LINE * np.arange(1.0, 9), None),
    "noisy line": (lambda: np.sqrt(3) * LINE * np.ones(16) + gaussian(96, 16), None),
    "rotations": (lambda: turning([6.0, 17.3, 48.0], 192, 24), None),
    "series": (lambda: turning([3.5, 9.0, 23.0, 60.0], 256), None),
    "sinusoid": (lambda: pp.sinusoidal(96, 32), None),
    "turned sinusoid": (
        lambda: np.asarray(pp.sinusoidal(96, 32, base=1000.0).values) @ rotation(32) + 1, None,
    ),
    "helix": (lambda: helix(256, 3.0), None),
    "chirp": (lambda: circling(2 * np.pi * np.arange(128) ** 2 / 512), None),
    "alternating": (lambda: gaussian(96, 16) + 1.5 * SIGNS, None),
    "growing": (lambda: np.linspace(0.4, 2, 128)[:, None] * gaussian(128, 32), None),
    "mirrored": (lambda: MIRRORED, None),
    "one-hot": (lambda: np.eye(48), None),
    "equal": (lambda: np.full((40, 4), 0.1), None),
    "few rows": (lambda: gaussian(6, 4), None),
    "two halves": (
        lambda: np.concatenate([smooth(80, 24, 8.0), smooth(64, 24, 8.0, seed=1)]), None,
    ),
    "odd row": (lambda: with_row(smooth(96, 16, 6.0), 30), None),
    "patches of noise": (lambda: gaussian(120, 24), (10, 12)),
    "field": (lambda: surface(12, 48, 2, 3.0), (12, 12)),
    "growing field": (
        lambda: np.geomspace(1, 4, 12).repeat(12)[:, None] * surface(12, 48, 2, 2.0), (12, 12),
    ),
    "codes": (lambda: summed(gaussian(8, 24, 1), gaussian(9, 24, 2), 0.5), (8, 9)),
    "turning codes": (lambda: summed(*_round(), noise=0.05), (14, 14)),
    "row code": (lambda: np.repeat(gaussian(10, 16), 10, 0) + 0.05 * gaussian(100, 16), (10, 10)),
    "checkerboard": (lambda: BOARD + 0.3 * gaussian(64, 8), (8, 8)),
    "grid formula": (lambda: pp.sincos2d(10, 12, 32), (10, 12)),
    "odd patch": (lambda: with_row(surface(12, 48, 2, 3.0), 75), (12, 12)),
}  # fmt: skip
SAMPLES = ("sample:all-minilm-l6-v2", "sample:rxnmapper-albert", "sample:digits-vit")


@cache
def planted(name: str) -> Verdicts:
    """Return what is answered of a planted table, or of a sample."""
    if name in SAMPLES:
        found = analysis_of(name.removeprefix("sample:")).verdicts
        assert found is not None
        return found
    values, grid = PLANTED[name]
    return verdicts_of(values(), grid)


BEGINS = re.compile(r"(?:Yes|No|Cannot tell)[:,.]|Cannot\b|[a-z]")


def is_a_sentence(text: str) -> bool:
    broken = re.search(r"\bNone\b|\bnan\b|\binf\b|[{}]|-0(?:\.0+)?(?![.\d])", text)
    return text.endswith(".") and not broken and not BEGINS.match(text)
