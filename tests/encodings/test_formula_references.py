"""Formulas as references: sizes, options, shapes, and names that lead back to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from posprobe.encodings import (
    FORMULAS,
    binary,
    build_formula,
    build_formula_in_shape,
    parse_formula,
    sincos2d,
    sinusoidal,
)
from posprobe.encodings.tables import MAX_FORMULA_NUMBERS
from posprobe.errors import NoPositionTable, UnknownReference, UsageError
from posprobe.families import load


@pytest.mark.parametrize(
    "reference",
    ["sinusoidal:", "sinusoidal", "sinusoidal:512", "sinusoidal:512x", "sinusoidal:512x768x3",
     "sinusoidal:axb", "sinusoidal:-5x8", "sinusoidal:5.0x8", "sinusoidal:0x8", "sinusoidal:8x7",
     "sinusoidal:٣x8", "sincos2d:14x14", "sincos2d:0x14x8", "sincos2d:14x14x6",
     f"sinusoidal:{MAX_FORMULA_NUMBERS // 2 + 1}x2", "sincos2d:100000x100000x4",
     f"counting:{'9' * 5000}x2", "rotary:4096", "alibi:64x0", "t5:512x32x2", "alibi:512x100000",
     "rotary:512x99999998", "t5:4x100000"],
)  # fmt: skip
def test_sizes_that_cannot_be_are_wrong_usage(reference: str) -> None:
    with pytest.raises(UsageError, match=reference.partition(":")[0]) as caught:
        build_formula(reference)
    assert caught.value.exit_code == 2


#: References with options, and what they mean to Python.
WITH_OPTIONS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "sinusoidal:12x8,halves": ((12, 8), {"order": "halves"}),
    "sinusoidal:12x8,halves,endpoint,cosine-first,base=1000": (
        (12, 8), {"order": "halves", "endpoint": True, "cosine_first": True, "base": 1000.0},
    ),
    "sinusoidal:12x8,cosine-first,base=1234.5": (
        (12, 8), {"cosine_first": True, "base": 1234.5},
    ),
    **{f"{name}:8x3": ((8, 3), {})
       for name in ("counting", "normalised-counting", "continuous-binary")},
    "sincos2d:3x4x8,timm,base=100": ((3, 4, 8), {"order": "timm", "base": 100.0}),
    "binary:256x16,signed": ((256, 16), {"signed": True}),
    "sine-ladder:9x4,base=50": ((9, 4), {"base": 50.0}),
    "rotary:4096x128,base=500000,partial=0.5,interleaved,linear=2": (
        (4096, 128),
        {"base": 5e5, "partial": 0.5, "interleaved": True,
         "scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
    "rotary:64x8,yarn=8": ((64, 8), {"scaling": {"rope_type": "yarn", "factor": 8.0}}),
    "rotary:64x8,dynamic=1.5": ((64, 8), {"scaling": {"rope_type": "dynamic", "factor": 1.5}}),
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
    if not build:
        with pytest.raises(NoPositionTable, match=name):
            build_formula(reference)
        return
    table = build_formula(reference)
    np.testing.assert_array_equal(table, build(*sizes, **options))
    assert table.source.reference == table.source.resolved == table.name == reference
    assert (table.kind, table.layout.size) == ("fixed", len(table))


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        ("sinusoidal:012x8,base=10000", "sinusoidal:12x8"),
        (
            "sinusoidal:12x8,base=1e3,endpoint,halves",
            "sinusoidal:12x8,halves,endpoint,base=1000",
        ),
        ("sincos2d:3x4x8,base=100,timm", "sincos2d:3x4x8,timm,base=100"),
    ],
)
def test_a_table_names_the_reference_that_builds_it_again(
    typed: str, canonical: str
) -> None:
    assert build_formula(typed).source == build_formula(canonical).source
    assert build_formula(typed).name == canonical


@given(st.floats(1, 1e300, exclude_min=True), st.booleans())
def test_every_base_survives_its_reference(base: float, endpoint: bool) -> None:
    table = sinusoidal(3, 6, base=base, endpoint=endpoint)
    np.testing.assert_array_equal(build_formula(table.source.reference), table)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("sinusoidal:8x8,", "halves, endpoint, cosine-first, base=NUMBER"),
        ("sinusoidal:8x8,halves,halves", "'halves' sets again"),
        ("sinusoidal:8x8,base", "no option 'base'"),
        ("counting:8x8,signed", "Options of counting: none"),
        ("sinusoidal:8x8,base=1", "above 1"),
        ("sinusoidal:8x8,base=1e999", "base is '1e999'"),
        ("sinusoidal:8x8,base=٣٠", "base is"),
        ("rotary:8x8,linear=2,yarn=4", "'yarn=4' sets again"),
        ("rotary:8x8,linear=0", "above 1e-12"),
        ("rotary:8x8,yarn=1e300", "up to 1e+12"),
        ("alibi:8x8,bias-max=1e300", "up to 1000"),
        ("rotary:8x8,ntk=2", "base=NUMBER, partial=NUMBER, interleaved, linear=NUMBER"),
        ("t5:8x8,max=1.5", "whole number"),
    ],
)
def test_options_that_cannot_be_are_wrong_usage(reference: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_formula(reference)
    assert message in str(caught.value)
    assert str(caught.value).startswith(reference[:7])


def test_a_bare_formula_takes_the_shape_of_a_table() -> None:
    line, grid = sinusoidal(12, 8), sincos2d(2, 6, 8)
    shaped = build_formula_in_shape("sinusoidal", sinusoidal(12, 8, endpoint=True))
    assert shaped is not None
    np.testing.assert_array_equal(shaped, line)
    for name, like in (
        ("sinusoidal,halves,base=100", line),
        ("binary,signed", line),
        ("sine-ladder", line),
        ("sincos2d,timm", grid),
    ):
        formula, _, options = name.partition(",")
        shape = "12x8" if like is line else "2x6x8"
        table = build_formula_in_shape(name, like)
        assert table is not None
        assert (
            table.source.reference
            == f"{formula}:{shape}{',' if options else ''}{options}"
        )
    for name in ("gpt2", "sinusoidal:12x8", "sinusoidal:12x8,halves", "owner/model"):
        assert build_formula_in_shape(name, line) is None


def test_a_formula_without_such_a_table_has_no_shape() -> None:
    for name, table in (("sincos2d", sinusoidal(9, 8)), ("binary", sincos2d(3, 3, 8))):
        with pytest.raises(UsageError, match=f"{name}: it has no table in the shape"):
            build_formula_in_shape(name, table)
    with pytest.raises(UsageError, match="no option"):
        build_formula_in_shape("binary,halves", sinusoidal(9, 8))
    for name in ("rotary", "alibi", "t5"):
        with pytest.raises(NoPositionTable, match=name) as caught:
            build_formula_in_shape(name, sinusoidal(9, 8))
        assert caught.value.exit_code == 5


def test_an_unknown_formula_lists_the_known_ones() -> None:
    with pytest.raises(UnknownReference) as caught:
        build_formula("fourier:3x4")
    assert caught.value.exit_code == 3
    for name in FORMULAS:
        assert f"{name}:" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"tensor": "x"}, {"grid": (2, 6)}, {"revision": "main"}, {"name": "#encoder"}],
    ids=lambda o: next(iter(o)),
)
def test_a_formula_has_no_tensor_grid_revision_or_name(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="formula"):
        load("sinusoidal:12x8" + options.pop("name", ""), **options)


def test_too_few_digits_are_noted() -> None:
    assert any("rows repeat" in note for note in binary(256, 2).notes)
    assert binary(256, 8).notes == ()
