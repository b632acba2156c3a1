"""The first screen of a table, on the page, in a terminal and in a notebook: whole, and true."""

from __future__ import annotations

import base64
import re
import webbrowser
from dataclasses import replace
from html import escape
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_bundles import analysis_of
from made_tables import as_table, walk

import posprobe as pp
from posprobe.analyses.linear import MAX_VIEW_ROWS
from posprobe.errors import UsageError
from posprobe.page import Cell
from posprobe.report.overview import draw_answer_strip, draw_overview
from posprobe.report.render import build_page, render
from posprobe.report.screen import render_text
from posprobe.words import SHORT_QUESTION_TEXTS
from posprobe.words.lines import table_lines

SAMPLES = ("all-minilm-l6-v2", "rxnmapper-albert", "digits-vit")


# How much there is.


def test_a_no_beside_a_small_p_is_explained() -> None:
    document = analysis_of("all-minilm-l6-v2").to_dict()
    note = "significant but small"
    assert note not in " ".join(render_text(document, 80).split())
    (answer,) = (
        a for a in document["verdict"]["answers"] if a["question"] == "low_dimensional"
    )
    answer |= {"answer": "no", "reason": "small"}
    assert note in " ".join(render_text(document, 80).split())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_terminal_shows_a_table_on_one_screen(name: str) -> None:
    screen = render_text(analysis_of(name).to_dict(), 80).split("\n")
    assert len(screen) <= 20  # of 24; one more says where the page is
    assert max(map(len, screen)) <= 80
    answer_lines = table_lines(analysis_of(name).verdict or {}, grid=name == "digits-vit")
    for line_shown in answer_lines:
        mark = {"yes": "yes ", "no": "no  ", "cannot tell": "?   "}[line_shown.answer]
        question = SHORT_QUESTION_TEXTS.get(line_shown.question, line_shown.question)
        (row,) = (line for line in screen if question in line)
        assert row.startswith(mark)
        assert line_shown.value in row
        assert len(line_shown.question.split()) <= 5


def test_a_terminal_shows_a_comparison_on_one_screen() -> None:
    tables = as_table(walk(160, 24)), pp.sinusoidal(160, 24)
    screen = render_text(pp.compare(*tables).to_dict(), 80).split("\n")
    assert len(screen) <= 24
    assert max(map(len, screen)) <= 80
    assert any(line.split() == ["Known", "formula?", "no", "yes"] for line in screen)


def test_all_numbers_are_printed_where_asked_for() -> None:
    document = analysis_of("all-minilm-l6-v2").to_dict()
    assert "stable rank" not in render_text(document, 80)
    assert "stable rank" in render_text(document, 80, verbose=True)


# That it is true.


def test_the_bar_of_the_budget_adds_up() -> None:
    for analysis in map(analysis_of, SAMPLES):
        svg = draw_overview(analysis.to_dict(), analysis.arrays())["budget"]
        segments = re.findall(
            r'class="seg [\w-]+" x="([\d.]+)%" y="28" width="([\d.]+)%"', svg
        )
        places = np.array(segments, dtype=float)
        assert places[:, 1].sum() == pytest.approx(100, abs=0.01)
        np.testing.assert_allclose(places[1:, 0], np.cumsum(places[:-1, 1]), atol=0.01)
        shares = [term["share"] for term in analysis.to_dict()["budget"]["parts"]]
        expected_shares = np.array(shares[:-1]) / sum(shares[:-1])
        np.testing.assert_allclose(places[:, 1], 100 * expected_shares, atol=0.01)


def test_breaks_and_outliers_are_drawn_where_they_are() -> None:
    svg = draw_overview(
        analysis_of("all-minilm-l6-v2").to_dict(),
        analysis_of("all-minilm-l6-v2").arrays(),
    )
    similarity = svg["similarity"]
    (line,) = re.findall(r'class="seamline" d="M([\d.]+),24v290', similarity)
    assert float(line) == pytest.approx(34 + 290 * 128 / 512, abs=0.1)
    rows = [float(x) for x in re.findall(r'class="mark" d="M([\d.]+),17h8', similarity)]
    expected = [34 + 290 * (row + 0.5) / 512 - 4 for row in (0, 127, 510, 511)]
    np.testing.assert_allclose(rows, expected, atol=0.06)
    for period in ("6.1", "18", "55", "164"):
        assert f">{period}</text>" in svg["shape"]
        assert f">{period}</text>" in svg["spectrum"]


def test_a_strip_shows_the_value_and_its_null() -> None:
    for line_shown in table_lines(
        analysis_of("all-minilm-l6-v2").verdict or {}, grid=False
    ):
        svg = draw_answer_strip(line_shown)
        assert bool(svg) == (line_shown.interval is not None)
        if line_shown.interval is None or line_shown.tested is None:
            continue
        value = float(re.findall(r'class="val" d="M([\d.]+)', svg)[0])
        left_edge, width = map(
            float, re.findall(r'class="null" x="([\d.]+)".* width="([\d.]+)" h', svg)[0]
        )
        is_inside = line_shown.interval[0] <= line_shown.tested <= line_shown.interval[1]
        assert (left_edge - 1 <= value <= left_edge + width + 1) == is_inside


def test_page_omits_sections_of_missing_blocks() -> None:
    document, arrays = (
        analysis_of("digits-vit").to_dict(),
        analysis_of("digits-vit").arrays(),
    )
    del document["budget"], arrays["pca_scores"]
    assert draw_overview(document, arrays).keys() == {"similarity"}
    assert "Variance budget" not in render(document, draw_overview(document, arrays))


def test_undefined_cosines_are_holes() -> None:
    values = walk(9, 3)
    values[4] = 0
    analysis = pp.analyze(as_table(values), only=["similarity"])
    svg = draw_overview(analysis.to_dict(), analysis.arrays())["similarity"]
    (carried,) = re.findall(r'data-v="([^"]*)"', svg)
    levels = np.frombuffer(base64.b64decode(carried), np.int8)
    cosines = analysis.arrays()["similarity_centered"]
    # The lower half of the symmetric matrix, with the diagonal.
    half = np.isnan(cosines)[np.tril_indices(9)]
    np.testing.assert_array_equal(levels == -128, half)


# In a notebook.


def test_an_analysis_shows_its_first_screen() -> None:
    analysis: Any = analysis_of("rxnmapper-albert")
    html = analysis._repr_html_()
    assert escape(analysis.verdict["summary"]) in html
    assert html.count("<img") == 2
    assert "neighbour cosine" in html


@pytest.mark.parametrize("reference", ["sample:digits-vit", "rotary:256x16", "t5:64x32"])
def test_page_terminal_and_notebook_show_the_same_headline(
    reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis: Any
    if reference == "sample:digits-vit":
        analysis, kind = analysis_of("digits-vit"), "norms"
        numbers = {"budget.rows": pytest.approx(pp.budget(analysis.table).rows)}
    else:
        encodings = pp.load_schemes(reference)
        analysis, kind = pp.analyze(encodings), "heads"
        assert analysis.records == encodings
        numbers = {"heads.peak": analysis.to_dict()["schemes"][0]["heads"]["peak"]}
    verdict = analysis.to_dict()["verdict"]
    assert [answer.question for answer in analysis.answers] == [
        answer["question"] for answer in verdict["answers"]
    ]
    assert {key: analysis.numbers[key] for key in numbers} == numbers
    _, (left_axes, right_axes) = plt.subplots(1, 2)
    assert analysis.plot(ax=left_axes) is left_axes
    assert analysis.plot(kind, right_axes, title=kind).get_title(loc="left") == kind
    plt.close("all")
    with pytest.raises(UsageError, match="unknown result 'pie'"):
        analysis.plot("pie")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = analysis.show()
    assert opened == [page.as_uri()]
    assert escape(verdict["summary"]) in page.read_text(encoding="utf-8")


def test_comparisons_show_their_pairs() -> None:
    tables = pp.sinusoidal(32, 8), pp.encodings.counting(32, 8)
    html = pp.compare(*tables)._repr_html_()
    assert "sinusoidal:32x8 · counting:32x8" in html
    (rotary,) = pp.load_schemes("rotary:32x8")
    html = pp.compare_kernels(tables[0], rotary)._repr_html_()
    assert "sinusoidal:32x8 · rotary:32x8" in html
    assert "Offset alone decides?" in html


def test_several_encodings_are_all_named() -> None:
    (scheme,) = pp.load_schemes("rotary:256x16")
    analysis = pp.analyze((replace(scheme, name="fast"), replace(scheme, name="slow")))
    assert {"fast.rotation.pairs", "slow.heads.peak"} <= analysis.numbers.keys()
    analysis.plot("slow.rotation")
    plt.close("all")
    with pytest.raises(UsageError, match="apply to position tables"):
        pp.analyze(scheme, only=["pca"])


def test_public_objects_have_short_reprs() -> None:
    table, sinusoid = pp.load("sample:digits-vit"), pp.sinusoidal(64, 16)
    (rotary,), (alibi,) = pp.load_schemes("rotary:64x16"), pp.load_schemes("alibi:64x112")
    comparison = pp.compare(sinusoid, pp.encodings.counting(64, 16))
    objects: list[tuple[Any, str]] = [
        (pp.pca(table), "stable_rank="),
        (rotary, "'rotary:64x16', head_count=1, head_dim=16"),
        (alibi, "'alibi:64x112', head_count=112"),
        (comparison, comparison.to_dict()["verdict"]["summary"]),
        (pp.compare_kernels(sinusoid, rotary), "'sinusoidal:64x16' and 'rotary:64x16'"),
        (pp.studies.analyze_schemes(rotary), "'rotary:64x16'"),
        (pp.nearest("sample:digits-vit"), "identical to digits-vit"),
        (pp.nearest("sample:digits-vit").matches[0], "identical"),
        (pp.paper_figure("norms", sinusoid), "venue='acl'"),
        (pp.load_tokens(table), "white-noise patch"),
        (pp.forward.explanations(table)[1], "leading component"),
    ]
    for thing, phrase in objects:
        text = repr(thing)
        assert text.startswith(f"{type(thing).__name__}(")
        assert phrase in text
        assert len(text) <= 500
        assert "\n" not in text


def test_a_long_table_states_the_rows_that_were_measured() -> None:
    rows = np.arange(2200)[:, None]
    noise = np.cumsum(np.random.default_rng(0).normal(size=(2200, 6)), axis=0)
    table = as_table(noise + 3 * np.sin(rows / 9 + np.arange(6)))
    analysis = pp.analyze(table, device="cpu")
    document = analysis.to_dict()
    assert document["verdict"]["rows"] == [0, MAX_VIEW_ROWS]
    assert document["verdict"]["based_on"] == "Based on positions 0–2047 of 2,200."
    assert document["winding"]["rows"] == [0, 2200]
    cells = (row[0] for row in build_page(document).numbers.rows)
    notes = {cell.text: cell.note for cell in cells if isinstance(cell, Cell)}
    first, stop = document["bridging"]["rows"]
    assert stop - first < 2200
    assert notes["components bridged"] == f"positions {first} to {stop - 1}"
    assert notes["noise"] == "all rows; parts fitted to positions 0 to 2047"
    assert notes["mean norm"] == "all rows"
