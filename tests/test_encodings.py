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
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
from tiny_models import hf_mae
from transformers import PatchTSTConfig
from transformers.models.aimv2.modeling_aimv2 import build_2d_sinusoidal_position_embedding
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
from transformers.models.florence2.modeling_florence2 import (
    Florence2VisionPositionalEmbeddingCosine1D,
)
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.musicgen.modeling_musicgen import MusicgenSinusoidalPositionalEmbedding
from transformers.models.patchtst.modeling_patchtst import PatchTSTPositionalEncoding
from transformers.models.pegasus.modeling_pegasus import PegasusSinusoidalPositionalEmbedding
from transformers.models.videomae.modeling_videomae import get_sinusoid_encoding_table
from transformers.models.videoprism.modeling_videoprism import create_sinusoidal_positions
from transformers.models.whisper.modeling_whisper import sinusoids

from posprobe.encodings import (
    FORMULAS,
    binary,
    continuous_binary,
    counting,
    fixed_formula,
    frequencies,
    from_reference,
    normalised_counting,
    of_shape,
    parse_formula,
    sincos2d,
    sine_ladder,
    sinusoidal,
    translation_matrix,
)
from posprobe.encodings.build import MAX_SIZE
from posprobe.encodings.sinusoidal import Order
from posprobe.errors import NoPositionTable, UnknownReference, UsageError
from posprobe.families import load
from posprobe.layouts import Grid, Layout, Sequence

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
@given(sizes, orders, st.booleans(), st.booleans(), st.sampled_from([100.0, 1e4, 1e6]))
def test_laws_of_every_sinusoid(
    size: tuple[int, int], order: Order, endpoint: bool, cosine_first: bool, base: float
) -> None:
    n, d = size[0], 2 * size[1]
    table = sinusoidal(n, d, order=order, endpoint=endpoint, cosine_first=cosine_first, base=base)
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


def test_cosine_first_exchanges_the_columns_of_each_frequency() -> None:
    sine = sinusoidal(9, 8).values
    cosine = sinusoidal(9, 8, cosine_first=True).values
    np.testing.assert_array_equal(cosine, sine[:, [1, 0, 3, 2, 5, 4, 7, 6]])
    sine = sinusoidal(9, 8, order="halves").values
    cosine = sinusoidal(9, 8, order="halves", cosine_first=True).values
    np.testing.assert_array_equal(cosine, np.roll(sine, 4, axis=1))


def test_row_128_of_kernes_figure() -> None:
    table = sinusoidal(257, 128, cosine_first=True).values
    products = table @ table[128]
    assert products.argmax() == 128
    profile = products / products.max()
    offsets = [0, 1, 8, 28, 64, 128]
    expected = [1, 0.9702, 0.7144, 0.5587, 0.4769, 0.3328]
    for sign in (1, -1):
        np.testing.assert_allclose(profile[128 + sign * np.array(offsets)], expected, atol=6e-5)


@quick
@given(
    sizes, orders, st.booleans(), st.booleans(), st.floats(-500, 500), st.sampled_from([20.0, 1e4])
)
def test_the_translation_matrix_moves_every_row(
    size: tuple[int, int],
    order: Order,
    endpoint: bool,
    cosine_first: bool,
    shift: float,
    base: float,
) -> None:
    n, d = size[0], 2 * size[1]
    variant: dict[str, Any] = {
        "order": order, "endpoint": endpoint, "cosine_first": cosine_first, "base": base,
    }  # fmt: skip
    whole = round(shift / 20)
    table = sinusoidal(n + abs(whole), d, **variant).values
    moved = table @ translation_matrix(d, whole, **variant)
    begin = max(-whole, 0)
    np.testing.assert_allclose(
        moved[begin : begin + n], table[begin + whole :][:n], atol=1e-12 * (n + 50)
    )
    half = translation_matrix(d, shift / 2, **variant)
    np.testing.assert_allclose(half @ half, translation_matrix(d, shift, **variant), atol=1e-11)
    np.testing.assert_allclose(half @ half.T, np.eye(d), atol=1e-14)
    assert (half != 0).sum() <= 2 * d  # a rotation of each plane by itself


def test_a_translation_by_one_period_is_none() -> None:
    np.testing.assert_allclose(translation_matrix(2, 2 * math.pi), np.eye(2), atol=1e-15)
    np.testing.assert_allclose(translation_matrix(2, math.pi / 2), [[0, -1], [1, 0]], atol=1e-15)


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


def pegasus(n: int, d: int) -> Floats:
    module: Any = PegasusSinusoidalPositionalEmbedding(n, d)
    return np.asarray(module.create_weight())


def musicgen(n: int, d: int) -> Floats:
    return np.asarray(MusicgenSinusoidalPositionalEmbedding.get_embedding(n, d))


def videomae(n: int, d: int) -> Floats:
    table: Any = get_sinusoid_encoding_table
    return np.asarray(table(n, d)[0])


def videoprism(n: int, d: int) -> Floats:
    return np.asarray(create_sinusoidal_positions(n, d))


def florence2(n: int, d: int) -> Floats:
    sine, cosine = Florence2VisionPositionalEmbeddingCosine1D.get_sinusoid_embeddings(n, d)
    return np.stack([np.asarray(sine), np.asarray(cosine)], axis=2).reshape(n, d)


@pytest.mark.parametrize(
    ("library", "options"),
    [
        (whisper, {"order": "halves", "endpoint": True}),
        (distilbert, {}),
        (videomae, {}),
        (florence2, {}),
        (marian, {"order": "halves"}),
        (pegasus, {"order": "halves"}),
        (videoprism, {"order": "halves"}),
        (musicgen, {"order": "halves", "endpoint": True, "cosine_first": True}),
    ],
)
@pytest.mark.parametrize(("n", "d"), [(1500, 384), (64, 16), (5, 4)])
def test_each_variant_is_that_of_a_library(
    library: Any, options: dict[str, Any], n: int, d: int
) -> None:
    # In float32 an angle of n carries an error of about n * 2**-24.
    np.testing.assert_allclose(sinusoidal(n, d, **options), library(n, d), atol=1e-6 + n * 2**-23)


@pytest.mark.parametrize("base", [1.0, 0.5, -3.0, math.nan, math.inf])
def test_a_base_that_makes_no_ladder_is_wrong_usage(base: float) -> None:
    for build in (
        lambda: sinusoidal(4, 4, base=base),
        lambda: sincos2d(2, 2, 4, base=base),
        lambda: sine_ladder(4, 4, base=base),
        lambda: translation_matrix(4, 1, base=base),
    ):
        with pytest.raises(UsageError, match="base"):
            build()


def test_an_unknown_order_is_wrong_usage() -> None:
    unknown: Any = "rows"
    for build in (
        lambda: sinusoidal(4, 4, order=unknown),
        lambda: translation_matrix(4, 1, order=unknown),
        lambda: sincos2d(2, 2, 4, order=unknown),
    ):
        with pytest.raises(UsageError, match="rows"):
            build()


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


def timm(height: int, width: int, dim: int = 16, **options: Any) -> Floats:
    return np.asarray(build_sincos2d_pos_embed([height, width], dim, **options))


def rows_first(height: int, width: int) -> Floats:
    line = np.asarray(sinusoidal(max(height, width), 8, order="halves"))
    return np.array([[*line[r], *line[c]] for r in range(height) for c in range(width)])


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 7), (7, 3), (1, 5)])
def test_the_grid_in_timms_order_is_that_of_timm(height: int, width: int) -> None:
    for base in (10_000.0, 100.0):
        ours = sincos2d(height, width, 24, order="timm", base=base)
        theirs = timm(height, width, 24, temperature=base)
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_orders_of_a_grid_hold_the_same_columns() -> None:
    mae_order = sincos2d(3, 5, 16).values.reshape(15, 4, 4)  # sin x, cos x, sin y, cos y
    timm_order = sincos2d(3, 5, 16, order="timm").values.reshape(15, 4, 4)
    np.testing.assert_array_equal(timm_order, mae_order[:, [2, 0, 3, 1]])
    by_axis = timm(3, 5, interleave_sin_cos=True).reshape(15, 4, 4)
    np.testing.assert_allclose(by_axis, mae_order[:, [2, 3, 0, 1]], atol=1e-6)
    aimv2 = build_2d_sinusoidal_position_embedding(3, 5, 16).numpy().reshape(15, 4, 4)
    np.testing.assert_allclose(aimv2, mae_order[:, [2, 3, 0, 1]], atol=1e-6)


def test_the_grid_is_that_of_masked_autoencoders() -> None:
    np.testing.assert_allclose(sincos2d(4, 4, 16), mae(4, 4), atol=1e-6)


# --- recognising a formula ---

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


def patchtst(n: int, d: int, *, cls: bool = False) -> Floats:
    config = PatchTSTConfig(d_model=d, positional_encoding_type="sincos", use_cls_token=cls)
    module: Any = PatchTSTPositionalEncoding(config, n)
    return np.asarray(module.position_enc.detach())[cls:]


def fairseq(n: int, d: int, padding: int) -> Floats:
    module: Any = SinusoidalPositionalEmbedding
    return np.asarray(module.get_embedding(n + padding + 1, d, padding))[padding + 1 :]


def m2m_100(n: int, d: int) -> Floats:
    module: Any = M2M100SinusoidalPositionalEmbedding(n, d, padding_idx=1)
    return np.asarray(module.weights)[2 : n + 2]


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
        "musicgen": (
            musicgen(300, 64), Sequence(300),
            "sinusoid, halves, cosines first, exponents over d/2 - 1",
        ),
        "fsmt": (
            fairseq(300, 64, 1), Sequence(300),
            "sinusoid, halves, exponents over d/2 - 1, from position 2",
        ),
        "m2m_100": (
            m2m_100(300, 64), Sequence(300),
            "sinusoid, halves, exponents over d/2 - 1, from position 2",
        ),
        "padding at 3": (
            fairseq(300, 64, 3), Sequence(300),
            "sinusoid, halves, exponents over d/2 - 1, from position 4",
        ),
        "t2t-vit": (  # its class token has position 0
            videomae(197, 64)[1:], Grid(14, 14),
            "sinusoid, interleaved, exponents over d/2, from position 1",
        ),
        "patchtst": (
            patchtst(42, 64), Sequence(42),
            "sinusoid, interleaved, exponents over d/2, standardised",
        ),
        "patchtst after its class token": (
            patchtst(42, 64, cls=True), Sequence(42),
            "sinusoid, interleaved, exponents over d/2, standardised, from position 1",
        ),
        "timm": (
            timm(3, 5), Grid(3, 5), "2-D sin-cos, rows first, sines before cosines",
        ),
        "a grid that nothing names": (
            mae(4, 4), Sequence(16), "2-D sin-cos, columns first, on a grid of 4 x 4",
        ),
        "a table longer than a block": (
            whisper(4000, 8), Sequence(4000), "sinusoid, halves, exponents over d/2 - 1",
        ),
    }  # fmt: skip


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
    last = values.copy()
    last[-1, -1] += 0.02
    stretched = 1.02 * values + (0 if "patchtst" not in name else 0.02)
    for table in (
        moved, one, last, stretched, values[::-1], np.roll(values, 1, axis=0), -values,
        values[:, ::-1], np.roll(values, 1, axis=1),
    ):  # fmt: skip
        assert fixed_formula(stored(table, precision), layout, precision) is None


@pytest.mark.parametrize("shape", [(16, 8), (16, 7), (1, 6), (4, 1), (16, 2)])
def test_a_random_table_is_learned(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(0).standard_normal(shape)
    for layout in (Sequence(shape[0]), Grid(shape[0], 1)):
        assert fixed_formula(values, layout, "F64") is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 1.0, 1e30])
@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
def test_a_constant_table_is_no_formula(value: float, precision: Any) -> None:
    with np.errstate(over="ignore"):
        values = np.full((9, 8), value).astype(precision)
    for layout in (Sequence(9), Grid(3, 3)):
        assert fixed_formula(values, layout, "F32") is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("cell", [(0, 0), (7, 3), (-1, -1)])
def test_a_formula_with_one_bad_number_is_none(value: float, cell: tuple[int, int]) -> None:
    values = sinusoidal(40, 8).values.copy()
    values[cell] = value
    assert fixed_formula(values, Sequence(40), "F32") is None


@quick
@given(st.integers(0, 2**31), st.sampled_from([1, 4, 9, 16, 300]), st.sampled_from([2, 4, 8, 64]))
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
    for wave in (np.sin(np.arange(64)), np.cos(np.arange(64) + 2), np.sin(np.arange(64) % 8)):
        values[:, 0] = wave
        assert fixed_formula(values, Sequence(64), "F32") is None
    assert fixed_formula(np.outer(np.sin(np.arange(64)), np.ones(16)), Sequence(64), "F32") is None


# --- the ladder of guesses ---


def distinct(values: Floats) -> int:
    return len(np.unique(np.asarray(values).round(9), axis=0))


def test_counting_is_unbounded_and_of_rank_one() -> None:
    for n in (10, 1000):
        values = counting(n, 4).values
        assert values.max() == n - 1
        assert np.linalg.matrix_rank(values) == 1
        assert distinct(values) == n
        np.testing.assert_array_equal(np.diff(values, axis=0), 1)


def test_normalised_counting_is_bounded_but_depends_on_the_length() -> None:
    short, long = normalised_counting(11, 3).values, normalised_counting(101, 3).values
    for values in (short, long):
        assert (values.min(), values.max()) == (0, 1)
        assert distinct(values) == len(values)
    np.testing.assert_allclose(short[5], long[50])  # one row means two positions
    assert np.abs(short[5] - long[5]).min() > 0.4
    assert (normalised_counting(1, 2).values == 0).all()


@quick
@given(st.integers(1, 200), st.integers(1, 80))
def test_binary_rows_are_the_digits_of_their_position(n: int, digits: int) -> None:
    values = binary(n, digits).values
    read = [sum(int(v) << j for j, v in enumerate(row)) for row in values]
    assert read == [i % 2**digits for i in range(n)]
    np.testing.assert_array_equal(binary(n, digits, signed=True).values, 2 * values - 1)


@pytest.mark.parametrize("signed", [False, True])
def test_binary_rows_are_bounded_and_repeat_after_2_to_the_d(signed: bool) -> None:
    values = binary(3 * 32, 5, signed=signed).values
    assert distinct(values) == 32
    np.testing.assert_array_equal(values[:64], values[32:])
    assert set(values.ravel()) == ({-1, 1} if signed else {0, 1})


def test_neighbours_in_binary_are_as_far_apart_as_their_digits_flip() -> None:
    values = binary(256, 8).values
    steps = np.linalg.norm(np.diff(values, axis=0), axis=1)
    assert (steps.min(), steps.max()) == (1, math.sqrt(8))  # the carry from 127 to 128 flips all
    assert steps.argmax() == 127


def test_the_dials_have_the_signs_of_the_signed_digits() -> None:
    values = continuous_binary(300, 9).values
    np.testing.assert_array_equal(np.sign(values), binary(300, 9, signed=True))


@pytest.mark.parametrize("dim", [1, 4, 7])
def test_the_dials_close_after_2_to_the_d_and_not_before(dim: int) -> None:
    turn = 2**dim
    values = continuous_binary(2 * turn, dim).values
    np.testing.assert_array_equal(values[:turn], values[turn:])
    assert distinct(values) == turn
    assert np.abs(values).max() <= 1


def test_each_dial_turns_half_as_fast_as_the_one_before() -> None:
    values = continuous_binary(64, 6).values
    for j in range(6):
        period = 2 ** (j + 1)
        spectrum = np.abs(np.fft.rfft(values[:, j]))
        assert spectrum.argmax() == 64 // period
        assert (spectrum > 1e-9).sum() == 1  # a single line: a pure sine


def test_the_curve_of_dials_is_smoother_than_the_digits() -> None:
    digits, dials = binary(512, 9, signed=True), continuous_binary(512, 9)
    for j in range(3, 9):
        jump = [np.abs(np.diff(t.values[:, j])).max() for t in (digits, dials)]
        assert jump[0] == 2
        assert jump[1] <= 2 * math.pi / 2 ** (j + 1)


def test_rows_of_the_sine_ladder_and_of_the_sinusoid_are_all_distinct() -> None:
    for table in (sine_ladder(5000, 32), sinusoidal(5000, 32)):
        assert distinct(table.values) == 5000
        assert np.abs(table.values).max() <= 1


def test_the_sine_ladder_has_one_frequency_per_column() -> None:
    values = sine_ladder(50, 6, base=1000).values
    omega = 1000 ** (-np.arange(6) / 6)
    np.testing.assert_allclose(values, np.sin(np.outer(np.arange(50), omega)), atol=1e-12)


def shift_error(values: Floats, shift: int) -> float:
    """Relative error of the best linear map from every row to the one that is `shift` later."""
    before, after = values[:-shift], values[shift:]
    matrix = np.linalg.lstsq(before, after, rcond=None)[0]
    return float(np.linalg.norm(before @ matrix - after) / np.linalg.norm(after))


def test_only_with_cosines_is_a_shift_linear() -> None:
    assert shift_error(sinusoidal(400, 16).values, 7) < 1e-10
    assert shift_error(sine_ladder(400, 16).values, 7) > 0.1
    assert shift_error(binary(400, 16).values, 7) > 0.1


def test_the_row_norm_of_the_sinusoid_alone_is_constant() -> None:
    spread = {
        name: np.ptp(np.linalg.norm(from_reference(f"{name}:64x16"), axis=1))
        for name, formula in FORMULAS.items()
        if formula.build and len(formula.sizes) == 2
    }
    assert spread.pop("sinusoidal") < 1e-12
    assert min(spread.values()) > 0.1
    assert np.ptp(np.linalg.norm(binary(64, 16, signed=True), axis=1)) == 0


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
     f"sinusoidal:{MAX_SIZE}x2", "sincos2d:100000x100000x4", f"counting:{'9' * 5000}x2",
     f"binary:{MAX_SIZE}x2", "binary:0x4", "continuous-binary:4", "sine-ladder:4x0",
     "normalised-counting:0x1", "counting:1e3x2", "rotary:4096", "rotary:0x128", "alibi:64x0",
     "t5:512x32x2", "t5:512"],
)  # fmt: skip
def test_sizes_that_cannot_be_are_wrong_usage(reference: str) -> None:
    with pytest.raises(UsageError, match=reference.partition(":")[0]) as caught:
        from_reference(reference)
    assert caught.value.exit_code == 2


#: References with options, and what they mean to Python.
WITH_OPTIONS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "sinusoidal:12x8,halves": ((12, 8), {"order": "halves"}),
    "sinusoidal:12x8,halves,endpoint,cosine-first,base=1000": (
        (12, 8), {"order": "halves", "endpoint": True, "cosine_first": True, "base": 1000.0},
    ),
    "sinusoidal:12x8,base=1.5": ((12, 8), {"base": 1.5}),
    "sinusoidal:12x8,base=2e6": ((12, 8), {"base": 2e6}),
    "sincos2d:3x4x8,timm": ((3, 4, 8), {"order": "timm"}),
    "sincos2d:3x4x8,timm,base=100": ((3, 4, 8), {"order": "timm", "base": 100.0}),
    "binary:256x16,signed": ((256, 16), {"signed": True}),
    "sine-ladder:9x4,base=50": ((9, 4), {"base": 50.0}),
    "rotary:4096x128": ((4096, 128), {}),
    "rotary:4096x128,base=500000,partial=0.5,interleaved,linear=2": (
        (4096, 128),
        {"base": 5e5, "partial": 0.5, "interleaved": True,
         "scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
    "rotary:64x8,yarn=8": ((64, 8), {"scaling": {"rope_type": "yarn", "factor": 8.0}}),
    "rotary:64x8,dynamic=1.5": ((64, 8), {"scaling": {"rope_type": "dynamic", "factor": 1.5}}),
    "alibi:64x8": ((64, 8), {}),
    "alibi:64x8,bias-max=16": ((64, 8), {"bias_max": 16.0}),
    "t5:512x32,causal,max=128": ((512, 32), {"bidirectional": False, "max_distance": 128}),
}  # fmt: skip


@pytest.mark.parametrize("reference", WITH_OPTIONS)
def test_options_of_a_reference_are_keywords(reference: str) -> None:
    name, sizes, options = parse_formula(reference)
    assert name == reference.partition(":")[0]
    assert (sizes, options) == WITH_OPTIONS[reference]
    assert len(sizes) == len(FORMULAS[name].sizes)
    build = FORMULAS[name].build
    if build:
        np.testing.assert_array_equal(from_reference(reference), build(*sizes, **options))
    else:
        with pytest.raises(NoPositionTable, match=name):
            from_reference(reference)


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        ("sinusoidal:12x8", "sinusoidal:12x8"),
        ("sinusoidal:012x8,base=10000", "sinusoidal:12x8"),
        ("sinusoidal:12x8,base=1000,endpoint,halves", "sinusoidal:12x8,halves,endpoint,base=1000"),
        ("sinusoidal:12x8,base=1e3", "sinusoidal:12x8,base=1000"),
        ("sinusoidal:12x8,base=1234.5,cosine-first", "sinusoidal:12x8,cosine-first,base=1234.5"),
        ("sincos2d:3x4x8,base=100,timm", "sincos2d:3x4x8,timm,base=100"),
        ("binary:8x3,signed", "binary:8x3,signed"),
        ("binary:8x3", "binary:8x3"),
        ("sine-ladder:8x3,base=7", "sine-ladder:8x3,base=7"),
        ("counting:8x3", "counting:8x3"),
        ("normalised-counting:8x3", "normalised-counting:8x3"),
        ("continuous-binary:8x3", "continuous-binary:8x3"),
    ],
)
def test_a_table_names_the_reference_that_builds_it_again(typed: str, canonical: str) -> None:
    table = from_reference(typed)
    assert table.source.reference == table.source.resolved == table.name == canonical
    assert table.kind == "fixed"
    assert table.layout.size == len(table)
    again = from_reference(canonical)
    np.testing.assert_array_equal(again, table)
    assert again.source == table.source


@quick
@given(st.floats(1, 1e300, exclude_min=True), st.booleans())
def test_every_base_survives_its_reference(base: float, endpoint: bool) -> None:
    table = sinusoidal(3, 6, base=base, endpoint=endpoint)
    np.testing.assert_array_equal(from_reference(table.source.reference), table)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("sinusoidal:8x8,", "halves, endpoint, cosine-first, base=NUMBER"),
        ("sinusoidal:8x8,half", "no option 'half'"),
        ("sinusoidal:8x8,halves,halves", "'halves' sets again"),
        ("sinusoidal:8x8,halves=1", "no option 'halves=1'"),
        ("sinusoidal:8x8,halves=", "no option 'halves='"),
        ("sinusoidal:8x8,base", "no option 'base'"),
        ("sinusoidal:8x8,base=", "base is ''"),
        ("sinusoidal:8x8,base=ten", "base is 'ten'"),
        ("sinusoidal:8x8,base=1", "above 1"),
        ("sinusoidal:8x8,base=-10", "above 1"),
        ("sinusoidal:8x8,base=nan", "base is 'nan'"),
        ("sinusoidal:8x8,base=inf", "base is 'inf'"),
        ("sinusoidal:8x8,base=1e999", "base is '1e999'"),
        ("sinusoidal:8x8,base=1_000", "base is '1_000'"),
        ("sinusoidal:8x8,base=٣٠", "base is"),
        ("sinusoidal:8x8,base=10,base=20", "'base=20' sets again"),
        ("counting:8x8,signed", "counting has no options"),
        ("sincos2d:2x2x8,halves", "timm, base=NUMBER"),
        ("rotary:8x8,linear=2,yarn=4", "'yarn=4' sets again"),
        ("rotary:8x8,linear", "no option 'linear'"),
        ("rotary:8x8,linear=0", "above 0"),
        ("rotary:8x8,ntk=2", "base=NUMBER, partial=NUMBER, interleaved, linear=NUMBER"),
        ("t5:8x8,max=1.5", "whole number"),
        ("t5:8x8,max=0", "above 0"),
        ("alibi:8x8,causal", "bias-max=NUMBER"),
    ],
)
def test_options_that_cannot_be_are_wrong_usage(reference: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_formula(reference)
    assert message in str(caught.value)
    assert str(caught.value).startswith(reference[:7])


def test_a_bare_formula_takes_the_shape_of_a_table() -> None:
    line, grid = sinusoidal(12, 8), sincos2d(2, 6, 8)
    made = of_shape("sinusoidal", sinusoidal(12, 8, endpoint=True))
    assert made is not None
    np.testing.assert_array_equal(made, line)
    for name, like in (
        ("sinusoidal,halves,base=100", line),
        ("binary,signed", line),
        ("sine-ladder", line),
        ("sincos2d,timm", grid),
    ):
        formula, _, options = name.partition(",")
        shape = "12x8" if like is line else "2x6x8"
        found = of_shape(name, like)
        assert found is not None
        assert found.source.reference == f"{formula}:{shape}{',' if options else ''}{options}"
    for name in ("gpt2", "sinusoidal:12x8", "sinusoidal:12x8,halves", "owner/model"):
        assert of_shape(name, line) is None


def test_a_formula_without_such_a_table_has_no_shape() -> None:
    for name, table in (("sincos2d", sinusoidal(9, 8)), ("binary", sincos2d(3, 3, 8))):
        with pytest.raises(UsageError, match=f"{name}: it has no table in the shape"):
            of_shape(name, table)
    with pytest.raises(UsageError, match="no option"):
        of_shape("binary,halves", sinusoidal(9, 8))
    for name in ("rotary", "alibi", "t5"):
        with pytest.raises(NoPositionTable, match=name) as caught:
            of_shape(name, sinusoidal(9, 8))
        assert caught.value.exit_code == 5


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


def test_too_few_digits_are_noted() -> None:
    assert any("rows repeat" in note for note in binary(256, 2).notes)
    assert binary(256, 8).notes == ()


@pytest.mark.parametrize("name", FORMULAS)
def test_the_example_that_a_message_suggests_can_be_read(name: str) -> None:
    sizes = FORMULAS[name].example
    assert parse_formula(f"{name}:{sizes}")[0] == name
    with pytest.raises(UsageError, match=f"write {name}:{sizes}, for example"):
        parse_formula(f"{name}:12")
