"""Closed forms: published anchor values, exact identities, and the libraries that use them."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import hf_mae
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.whisper.modeling_whisper import sinusoids

from posprobe.encodings import FORMULAS, fixed_formula, from_reference, sincos2d, sinusoidal
from posprobe.encodings.sinusoidal import MAX_SIZE, Order, frequencies
from posprobe.errors import UnknownReference, UsageError
from posprobe.families import load
from posprobe.table import Grid, Layout, Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

orders = st.sampled_from(["interleaved", "halves"])
sizes = st.tuples(st.integers(1, 40), st.integers(1, 24))
quick = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def cosine(values: Floats) -> Floats:
    rows = values / np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(rows @ rows.T)


# --- one dimension ---


def test_cosines_of_the_sinusoid_of_512_positions_and_width_768() -> None:
    similarity = cosine(np.asarray(sinusoidal(512, 768)))
    for position, value in ((1, 0.97336), (10, 0.68003), (100, 0.43689), (511, 0.24643)):
        assert similarity[0, position] == pytest.approx(value, abs=5e-6)
    assert similarity.min() == pytest.approx(0.24360, abs=5e-6)


def test_row_norm_of_the_sinusoid_of_width_768() -> None:
    norms = np.linalg.norm(sinusoidal(512, 768), axis=1)
    np.testing.assert_allclose(norms, 19.59592, atol=5e-6)


@quick
@given(sizes, orders, st.booleans(), st.sampled_from([100.0, 1e4, 1e6]))
def test_laws_of_every_sinusoid(
    size: tuple[int, int], order: Order, endpoint: bool, base: float
) -> None:
    n, d = size[0], 2 * size[1]
    table = sinusoidal(n, d, order=order, endpoint=endpoint, base=base)
    assert table.values.shape == (n, d)
    assert table.values.dtype == np.float64
    assert table.layout == Sequence(n)
    assert table.kind == "fixed"
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), math.sqrt(d / 2), rtol=1e-12)
    gram = table.values @ table.values.T
    for offset in range(n):  # what two positions share depends on their distance alone
        diagonal = np.diagonal(gram, offset)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-12 * d)
    omega = frequencies(d, base=base, endpoint=endpoint)
    np.testing.assert_allclose(gram[0], np.cos(np.outer(np.arange(n), omega)).sum(axis=1))


def test_the_paper_interleaves_and_tensor2tensor_does_not() -> None:
    position, width = 37, 8
    expected = [
        math.sin(position / 10_000 ** (i / width))
        if i % 2 == 0
        else math.cos(position / 10_000 ** ((i - 1) / width))
        for i in range(width)
    ]
    interleaved = sinusoidal(40, width).values
    np.testing.assert_allclose(interleaved[position], expected, rtol=1e-13)
    halves = sinusoidal(40, width, order="halves").values
    np.testing.assert_array_equal(halves, interleaved[:, [0, 2, 4, 6, 1, 3, 5, 7]])


def test_slowest_periods_of_the_two_ladders_at_width_512() -> None:
    assert 2 * math.pi / frequencies(512)[-1] == pytest.approx(60_611, abs=0.5)
    assert 2 * math.pi / frequencies(512, endpoint=True)[-1] == pytest.approx(62_832, abs=0.5)
    assert frequencies(512)[0] == frequencies(512, endpoint=True)[0] == 1


def test_gram_matrices_of_the_two_ladders_differ_by_up_to_0_019() -> None:
    grams = [
        np.asarray(t) @ np.asarray(t).T / 256
        for t in (sinusoidal(512, 512), sinusoidal(512, 512, endpoint=True))
    ]
    assert np.abs(grams[0] - grams[1]).max() == pytest.approx(0.019, abs=5e-4)


def whisper(n: int, d: int) -> Floats:
    return np.asarray(sinusoids(n, d))


def distilbert(n: int, d: int) -> Floats:
    out = torch.empty(n, d)
    create_sinusoidal_embeddings(n, d, out)
    return out.detach().numpy()


def marian(n: int, d: int) -> Floats:
    module: Any = MarianSinusoidalPositionalEmbedding(n, d)
    return np.asarray(module.create_weight())


@pytest.mark.parametrize(
    ("library", "options"),
    [
        (whisper, {"order": "halves", "endpoint": True}),
        (distilbert, {}),
        (marian, {"order": "halves"}),
    ],
)
@pytest.mark.parametrize(("n", "d"), [(1500, 384), (64, 16), (5, 4)])
def test_each_variant_is_that_of_a_library(
    library: Any, options: dict[str, Any], n: int, d: int
) -> None:
    # In float32 an angle of n carries an error of about n * 2**-24.
    np.testing.assert_allclose(sinusoidal(n, d, **options), library(n, d), atol=1e-6 + n * 2**-23)


# --- grids ---


def test_neighbours_on_a_grid_of_14_x_14_and_width_768() -> None:
    table = sincos2d(14, 14, 768)
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), 19.59592, atol=5e-6)
    similarity = cosine(np.asarray(table)).reshape(14, 14, 14, 14)
    for r, c in product(range(13), repeat=2):
        assert similarity[r, c, r, c + 1] == pytest.approx(0.986374, abs=5e-7)
        assert similarity[r, c, r + 1, c] == pytest.approx(0.986374, abs=5e-7)
        assert similarity[r, c, r + 1, c + 1] == pytest.approx(0.972748, abs=5e-7)


@quick
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 8))
def test_the_similarity_on_a_grid_is_a_sum_of_its_axes(
    height: int, width: int, quarter: int
) -> None:
    table = sincos2d(height, width, 4 * quarter)
    assert table.layout == Grid(height, width)
    assert table.kind == "fixed"
    similarity = cosine(table.values)[0].reshape(height, width)
    expected = similarity[:, :1] + similarity[:1] - 1  # C(dx, dy) = C(dx, 0) + C(0, dy) - 1
    np.testing.assert_allclose(similarity, expected, atol=1e-12)


@quick
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 8))
def test_a_row_of_the_grid_encodes_its_column_and_then_its_row(
    height: int, width: int, quarter: int
) -> None:
    half = 2 * quarter
    line = sinusoidal(max(height, width), half, order="halves").values
    values = sincos2d(height, width, 2 * half).values.reshape(height, width, 2 * half)
    for r, c in product(range(height), range(width)):
        np.testing.assert_array_equal(values[r, c, :half], line[c])
        np.testing.assert_array_equal(values[r, c, half:], line[r])


def mae(height: int, width: int) -> Floats:
    stored = hf_mae().embeddings.position_embeddings.detach().numpy()[0, 1:]
    assert len(stored) == height * width
    return np.asarray(stored)


def rows_first(height: int, width: int) -> Floats:
    line = np.asarray(sinusoidal(max(height, width), 8, order="halves"))
    return np.array([[*line[r], *line[c]] for r in range(height) for c in range(width)])


def test_the_grid_is_that_of_masked_autoencoders() -> None:
    np.testing.assert_allclose(sincos2d(4, 4, 16), mae(4, 4), atol=1e-6)


# --- recognising a formula ---

ONE_D: dict[str, Any] = {
    "sinusoid, interleaved, exponents over d/2": {},
    "sinusoid, interleaved, exponents over d/2 - 1": {"endpoint": True},
    "sinusoid, halves, exponents over d/2": {"order": "halves"},
    "sinusoid, halves, exponents over d/2 - 1": {"order": "halves", "endpoint": True},
}
PRECISIONS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
}  # fmt: skip


def stored(values: object, precision: str) -> Floats:
    tensor = torch.from_numpy(np.array(values)).to(PRECISIONS[precision])
    return np.asarray((tensor.float() if precision == "BF16" else tensor).numpy())


def known_tables() -> dict[str, tuple[Floats, Layout, str]]:
    tables: dict[str, tuple[Floats, Layout, str]] = {
        name: (np.array(sinusoidal(300, 64, **options)), Sequence(300), name)
        for name, options in ONE_D.items()
    }
    return tables | {
        "whisper": (whisper(1500, 384), Sequence(1500), "sinusoid, halves, exponents over d/2 - 1"),
        "distilbert": (
            distilbert(512, 64),
            Sequence(512),
            "sinusoid, interleaved, exponents over d/2",
        ),
        "marian": (marian(512, 64), Sequence(512), "sinusoid, halves, exponents over d/2"),
        "mae": (mae(4, 4), Grid(4, 4), "2-D sin-cos, columns first"),
        "oblong": (np.array(sincos2d(3, 5, 32)), Grid(3, 5), "2-D sin-cos, columns first"),
        "rows first": (rows_first(3, 5), Grid(3, 5), "2-D sin-cos, rows first"),
        "on a grid": (np.array(sinusoidal(15, 32)), Grid(3, 5), next(iter(ONE_D))),
    }


KNOWN = known_tables()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", KNOWN)
def test_every_published_variant_is_recognised(name: str, precision: str) -> None:
    values, layout, formula = KNOWN[name]
    assert fixed_formula(stored(values, precision), layout, precision) == formula


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", KNOWN)
def test_a_table_that_moved_away_from_its_formula_is_learned(name: str, precision: str) -> None:
    values, layout, _ = KNOWN[name]
    chance = np.random.default_rng(0)
    moved = values + 0.02 * chance.standard_normal(values.shape)
    one = values.copy()
    one[tuple(chance.integers(0, size) for size in values.shape)] += 0.02
    for table in (moved, one, 1.02 * values, values[::-1], np.roll(values, 1, axis=0), -values):
        assert fixed_formula(stored(table, precision), layout, precision) is None


@pytest.mark.parametrize("shape", [(16, 8), (16, 7), (1, 6), (4, 1), (16, 2)])
def test_a_random_table_is_learned(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(0).standard_normal(shape)
    for layout in (Sequence(shape[0]), Grid(shape[0], 1)):
        assert fixed_formula(values, layout, "F64") is None


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_constant_table_is_no_formula(value: float) -> None:
    assert fixed_formula(np.full((9, 8), value), Sequence(9), "F32") is None


# --- as a reference ---


def test_a_formula_is_loaded_like_a_checkpoint() -> None:
    table = load("sinusoidal:12x8")
    np.testing.assert_array_equal(table.values, sinusoidal(12, 8).values)
    assert table.source.reference == table.name == "sinusoidal:12x8"
    assert table.source.tensor is None
    grid = load("sincos2d:3x4x8")
    np.testing.assert_array_equal(grid.values, sincos2d(3, 4, 8).values)
    assert grid.layout == Grid(3, 4)


@pytest.mark.parametrize(
    "reference",
    ["sinusoidal:", "sinusoidal:512", "sinusoidal:512x", "sinusoidal:512x768x3", "sinusoidal:axb",
     "sinusoidal:-5x8", "sinusoidal:5.0x8", "sinusoidal:0x8", "sinusoidal:8x0", "sinusoidal:8x7",
     "sinusoidal:٣x8", "sincos2d:14x14", "sincos2d:0x14x8", "sincos2d:14x14x6",
     f"sinusoidal:{MAX_SIZE}x2", "sincos2d:100000x100000x4"],
)  # fmt: skip
def test_sizes_that_cannot_be_are_wrong_usage(reference: str) -> None:
    with pytest.raises(UsageError, match=reference.partition(":")[0]) as caught:
        load(reference)
    assert caught.value.exit_code == 2


def test_the_largest_size_is_within_the_limit() -> None:
    with pytest.raises(UsageError):
        sinusoidal(MAX_SIZE // 2 + 1, 2)
    with pytest.raises(UsageError):
        sinusoidal(1, MAX_SIZE + 2)


def test_an_unknown_formula_lists_the_known_ones() -> None:
    with pytest.raises(UnknownReference) as caught:
        from_reference("fourier:3x4")
    assert caught.value.exit_code == 3
    for name in FORMULAS:
        assert f"{name}:" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"tensor": "x"}, {"grid": (2, 6)}, {"revision": "main"}],
    ids=lambda o: next(iter(o)),
)
def test_a_formula_has_no_tensor_grid_or_revision(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="formula"):
        load("sinusoidal:12x8", **options)


def test_a_formula_has_no_table_name() -> None:
    with pytest.raises(UsageError, match="formula"):
        load("sinusoidal:12x8#encoder")
