"""What results show of themselves in a notebook: findings first, bands beside numbers, escaped."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

import posprobe as pp


def test_an_analysis_shows_its_headline_its_answers_and_the_bands() -> None:
    analysis = pp.analyze(pp.load("sample:rxnmapper-albert"), nulls=2)
    html = analysis._repr_html_()
    assert analysis.verdict is not None
    assert escape(analysis.verdict["summary"]) in html
    assert "<td>yes</td><td>Order matters?</td><td>neighbour cosine</td><td>0.77</td>" in html
    assert "<th>walk</th>" in html
    bands = analysis.nulls["numbers"]["similarity.centered.neighbour_mean"]["walk"]
    assert f"{bands['p50']:.2g}"[:4] in html


def test_without_draws_there_are_no_bands_to_show() -> None:
    html = pp.analyze(pp.sinusoidal(32, 8), nulls=0)._repr_html_()
    assert "<th>sinusoid</th>" in html
    assert "<th>walk</th>" not in html


def test_comparisons_show_their_pairs() -> None:
    tables = pp.sinusoidal(32, 8), pp.counting(32, 8)
    html = pp.compare(*tables, nulls=0)._repr_html_()
    assert "sinusoidal:32x8 and counting:32x8" in html
    (rotary,) = pp.load_schemes("rotary:32x8")
    html = pp.compare_kernels(tables[0], rotary)._repr_html_()
    assert "sinusoidal:32x8 and rotary:32x8" in html
    assert "alignment" in html


def test_encodings_show_what_was_found() -> None:
    html = pp.analyze_schemes(*pp.load_schemes("rotary:2048x64"))._repr_html_()
    assert "never complete a turn" in html


def test_names_are_escaped() -> None:
    hostile = replace(pp.sinusoidal(16, 4), name="<script>alert(1)</script>")
    (rotary,) = pp.load_schemes("rotary:16x4")
    shown: list[Any] = [
        pp.analyze(hostile, nulls=0),
        pp.compare(hostile, hostile, nulls=0),
        pp.compare_kernels(hostile, rotary),
        pp.analyze_schemes(replace(rotary, name="<script>")),
        hostile,
    ]
    for result in shown:
        assert "<script>" not in result._repr_html_()
