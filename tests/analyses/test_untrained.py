"""Rows that look as they were initialised, after trained ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_answers import smooth, verdicts_of
from made_tables import gaussian, rotation, walk, waves
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.sequences.changes import ROWS, untrained_from
from posprobe.report.narrator.summary import headline

Floats = NDArray[np.float64]


def half_trained(trained: int, rest: int, d: int, seed: int) -> Floats:
    """A smooth curve on top of the noise that all rows began as."""
    values = 0.02 * gaussian(trained + rest, d, seed)
    values[:trained] += 0.03 * smooth(trained, d, 6.0, seed + 1)
    return values


@pytest.mark.parametrize("d", [32, 512])
@pytest.mark.parametrize(("trained", "rest"), [(50, 60), (150, 300)])
def test_their_beginning_is_found(trained: int, rest: int, d: int) -> None:
    found = [untrained_from(half_trained(trained, rest, d, seed)) for seed in range(5)]
    assert all(told and abs(told[0] - trained) <= 3 for told in found), found
    assert sum(told is not None and told[1] <= trained <= told[2] for told in found) >= 4


@pytest.mark.parametrize("fade", [1, 20, 60])
@pytest.mark.parametrize("size", [1.5, 3.0])
def test_an_interval_holds_the_end_of_training(fade: int, size: float) -> None:
    held, off, n = 0, [], 256
    for seed in range(6):
        end = 90 + 16 * seed
        left = np.clip((end - np.arange(n)) / fade, 0, 1)
        values = gaussian(n, 64, seed) + size * left[:, None] * smooth(n, 64, 8.0, seed + 1)
        told: Any = untrained_from(values)
        row, least, most = told
        held += least <= end <= most
        off.append(abs(row - end))
    assert held >= 5
    assert np.median(off) <= 1 + fade / 10


NONE = {
    "noise": gaussian(300, 64),
    "smooth": smooth(300, 64, 8.0),
    "walk": walk(300, 64),
    "trend": gaussian(300, 64) + np.outer(np.arange(300), gaussian(1, 64)[0]) / 30,
    "rotation in noise": waves(300, [9.0]) @ rotation(64)[:2] * 3 + gaussian(300, 64),
    "growing": gaussian(300, 64) * np.linspace(1, 3, 300)[:, None],
    "unequal columns": gaussian(300, 64) * np.geomspace(0.1, 1, 64),
    "heavy tails": np.random.default_rng(0).standard_t(2, (300, 64)),
    "few columns": gaussian(300, 3),
    "zeros": np.vstack([smooth(100, 32, 6.0), np.zeros((100, 32))]),
    "short": gaussian(2 * ROWS - 1, 64),
}


@pytest.mark.parametrize("name", NONE)
def test_other_tables_have_none(name: str) -> None:
    assert untrained_from(NONE[name]) is None


def test_trained_tables_have_none() -> None:
    for name in ("all-minilm-l6-v2", "whisper-tiny-decoder", "rxnmapper-albert", "sapiens-roberta"):
        assert pp.seams(pp.load(f"sample:{name}")).untrained is None


def test_questions_are_asked_of_the_trained_part() -> None:
    values = half_trained(120, 300, 64, 3)
    values[:120] += 0.2 * smooth(120, 64, 12.0, 5)
    found: Any = verdicts_of(values)
    assert (found.first, found.stop) == (0, found.untrained)
    assert found.answers["smooth"].yes
    assert f"rows from position {found.untrained} on look untrained" in headline(found).lower()
    within: Any = pp.seams(values).untrained_interval
    assert within[0] <= 120 <= within[1]
    budget = pp.budget(values)
    rest = values[found.untrained :]
    expected = np.square(rest - rest.mean(axis=0)).sum() / np.square(values).sum()
    assert budget.untrained == pytest.approx(expected, rel=1e-6)
