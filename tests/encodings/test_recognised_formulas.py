"""A table that follows a published formula is recognised, and no other is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from made_formulas import distilbert, mae, marian, musicgen, timm, videomae, whisper
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding

from posprobe.encodings import fixed_formula, sinusoidal
from posprobe.layouts import Grid, Layout, Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


def rows_first(height: int, width: int) -> Floats:
    line = np.asarray(sinusoidal(max(height, width), 8, order="halves"))
    return np.array([[*line[r], *line[c]] for r in range(height) for c in range(width)])


ONE_D: dict[str, Any] = {
    "sinusoid, interleaved, exponents over d/2": {},
    "sinusoid, interleaved, exponents over d/2 - 1": {"endpoint": True},
    "sinusoid, halves, exponents over d/2": {"order": "halves"},
    "sinusoid, halves, exponents over d/2 - 1": {"order": "halves", "endpoint": True},
    "sinusoid, interleaved, cosines first, exponents over d/2": {"cosine_first": True},
    "sinusoid, halves, cosines first, exponents over d/2": {
        "order": "halves", "cosine_first": True,
    },
}  # fmt: skip


PRECISIONS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
}  # fmt: skip


def stored(values: object, precision: str) -> Floats:
    tensor = torch.from_numpy(np.array(values)).to(PRECISIONS[precision])
    return np.asarray((tensor.float() if precision == "BF16" else tensor).numpy())


def fairseq(n: int, d: int, padding: int) -> Floats:
    module: Any = SinusoidalPositionalEmbedding
    return np.asarray(module.get_embedding(n + padding + 1, d, padding))[padding + 1 :]


def in_a_row(values: Floats, formula: str) -> tuple[Floats, Layout, str]:
    return values, Sequence(len(values)), formula


def known_tables() -> dict[str, tuple[Floats, Layout, str]]:
    tables: dict[str, tuple[Floats, Layout, str]] = {
        name: in_a_row(np.array(sinusoidal(300, 64, **options)), name)
        for name, options in ONE_D.items()
    }
    return tables | {
        "whisper": in_a_row(whisper(1500, 384), "sinusoid, halves, exponents over d/2 - 1"),
        "distilbert": in_a_row(distilbert(512, 64), "sinusoid, interleaved, exponents over d/2"),
        "marian": in_a_row(marian(512, 64), "sinusoid, halves, exponents over d/2"),
        "mae": (mae(4, 4), Grid(4, 4), "2-D sin-cos, columns first"),
        "rows first": (rows_first(3, 5), Grid(3, 5), "2-D sin-cos, rows first"),
        "on a grid": (np.array(sinusoidal(15, 32)), Grid(3, 5), next(iter(ONE_D))),
        "musicgen": in_a_row(
            musicgen(300, 64), "sinusoid, halves, cosines first, exponents over d/2 - 1"
        ),
        "fsmt": in_a_row(
            fairseq(300, 64, 1), "sinusoid, halves, exponents over d/2 - 1, from position 2"
        ),
        "padding at 3": in_a_row(
            fairseq(300, 64, 3), "sinusoid, halves, exponents over d/2 - 1, from position 4"
        ),
        "t2t-vit": (  # its class token has position 0
            videomae(197, 64)[1:], Grid(14, 14),
            "sinusoid, interleaved, exponents over d/2, from position 1",
        ),
        "timm": (
            timm(3, 5), Grid(3, 5), "2-D sin-cos, rows first, sines before cosines",
        ),
        "a grid that nothing names": in_a_row(
            mae(4, 4), "2-D sin-cos, columns first, on a grid of 4 x 4"
        ),
        "a table longer than a block": in_a_row(
            whisper(4000, 8), "sinusoid, halves, exponents over d/2 - 1"
        ),
    }  # fmt: skip


KNOWN_TABLES = known_tables()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", KNOWN_TABLES)
def test_every_published_variant_is_recognised(name: str, precision: str) -> None:
    values, layout, formula = KNOWN_TABLES[name]
    assert fixed_formula(stored(values, precision), layout, precision) == formula


@pytest.mark.parametrize("precision", ["F32", "BF16"])
@pytest.mark.parametrize("name", KNOWN_TABLES)
def test_a_table_that_moved_away_from_its_formula_is_learned(
    name: str, precision: str
) -> None:
    values, layout, _ = KNOWN_TABLES[name]
    chance = np.random.default_rng(0)
    noisy = values + 0.02 * chance.standard_normal(values.shape)
    changed_row = values.copy()
    changed_row[tuple(chance.integers(0, size) for size in values.shape)] += 0.02
    changed_end = values.copy()
    changed_end[-1, -1] += 0.02
    stretched = 1.02 * values
    for table in (
        noisy, changed_row, changed_end, stretched, values[::-1], np.roll(values, 1, axis=0),
        -values,
        values[:, ::-1], np.roll(values, 1, axis=1),
    ):  # fmt: skip
        assert fixed_formula(stored(table, precision), layout, precision) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 1.0, 1e30])
@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
def test_a_constant_table_is_no_formula(value: float, precision: Any) -> None:
    with np.errstate(over="ignore"):
        values = np.full((9, 8), value).astype(precision)
    for layout in (Sequence(9), Grid(3, 3)):
        assert fixed_formula(values, layout, "F32") is None


@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 4, 9, 16, 300]),
    st.sampled_from([2, 4, 8, 64]),
)
def test_learned_tables_around_a_formula_are_learned(seed: int, n: int, d: int) -> None:
    chance = np.random.default_rng(seed)
    table = sinusoidal(n, d, order="halves").values
    learned = (
        chance.normal(0, 0.02, (n, d)),
        table @ np.linalg.qr(chance.standard_normal((d, d)))[0] + 0.05,
        table * chance.choice([0.9, 1.1], d),
        table * 1e300,
        table + 0.05,
    )
    for values in learned:
        assert fixed_formula(values, Sequence(n), "F32") is None


def test_a_sinusoid_in_the_first_column_alone_is_learned() -> None:
    values = np.random.default_rng(0).standard_normal((64, 16))
    for wave in (
        np.sin(np.arange(64)),
        np.cos(np.arange(64) + 2),
        np.sin(np.arange(64) % 8),
    ):
        values[:, 0] = wave
        assert fixed_formula(values, Sequence(64), "F32") is None
    assert (
        fixed_formula(np.outer(np.sin(np.arange(64)), np.ones(16)), Sequence(64), "F32")
        is None
    )
