"""What results show of themselves in a notebook: their page, escaped."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from html import escape, unescape
from typing import Any

import matplotlib.pyplot as plt
import pytest

import posprobe as pp
from posprobe.errors import UsageError


def shown(result: Any) -> str:
    """The page within the frame that a notebook shows of an analysis."""
    return unescape(result._repr_html_().partition('srcdoc="')[2].partition('"')[0])


def test_an_analysis_shows_its_first_screen() -> None:
    analysis: Any = pp.analyze(pp.load("sample:rxnmapper-albert"))
    html = shown(analysis)
    assert escape(analysis.verdict["summary"]) in html
    assert html.count("<svg") >= 4
    assert "neighbour cosine" in html


def test_an_analysis_has_three_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = pp.analyze(pp.load("sample:digits-vit"))
    assert {answer.question for answer in analysis.answers} >= {"order", "rows_and_columns"}
    stable_rank = pp.pca(analysis.table).stable_rank
    assert analysis.numbers["pca.stable_rank"] == pytest.approx(stable_rank)
    assert analysis.numbers["budget.rows"] == pytest.approx(pp.budget(analysis.table).rows)
    _, (one, other) = plt.subplots(1, 2)
    assert analysis.plot(ax=one).get_xlabel() == "share of the variance"
    assert analysis.plot("norms", other, title="norms").get_title(loc="left") == "norms"
    plt.close("all")
    with pytest.raises(UsageError, match="unknown result 'pie'"):
        analysis.plot("pie")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = analysis.show()
    assert opened == [page.as_uri()]
    assert "row code plus a column code" in page.read_text(encoding="utf-8")


def test_comparisons_show_their_pairs() -> None:
    tables = pp.sinusoidal(32, 8), pp.encodings.counting(32, 8)
    html = shown(pp.compare(*tables))
    assert "sinusoidal:32x8 · counting:32x8" in html
    (rotary,) = pp.load_schemes("rotary:32x8")
    html = shown(pp.compare_kernels(tables[0], rotary))
    assert "sinusoidal:32x8 · rotary:32x8" in html
    assert "alignment" in html


@pytest.mark.parametrize("reference", ["rotary:256x16", "t5:64x32"])
def test_encodings_without_a_table_have_the_same_doors(reference: str) -> None:
    encodings = pp.load_schemes(reference)
    analysis = pp.analyze(encodings)
    assert analysis.records == encodings
    assert [answer.question for answer in analysis.answers] == [
        told["question"] for told in analysis.to_dict()["verdict"]["answers"]
    ]
    block = analysis.to_dict()["schemes"][0]
    assert analysis.numbers["heads.peak"] == block["heads"]["peak"]
    _, (one, other) = plt.subplots(1, 2)
    assert analysis.plot(ax=one) is one
    assert analysis.plot("heads", other, title="heads").get_title(loc="left") == "heads"
    plt.close("all")
    with pytest.raises(UsageError, match="unknown result 'pie'"):
        analysis.plot("pie")
    with pytest.raises(UsageError, match="apply to position tables"):
        pp.analyze(encodings[0], only=["pca"])


def test_of_several_encodings_each_is_named() -> None:
    (one,) = pp.load_schemes("rotary:256x16")
    analysis = pp.analyze((replace(one, name="fast"), replace(one, name="slow")))
    assert {"fast.rotation.pairs", "slow.heads.peak"} <= analysis.numbers.keys()
    analysis.plot("slow.rotation")
    plt.close("all")


def test_what_users_hold_says_what_it_is_in_few_words() -> None:
    table, sinusoid = pp.load("sample:digits-vit"), pp.sinusoidal(64, 16)
    (rotary,), (alibi,) = pp.load_schemes("rotary:64x16"), pp.load_schemes("alibi:64x112")
    comparison = pp.compare(sinusoid, pp.encodings.counting(64, 16))
    held: list[tuple[Any, str]] = [
        (pp.pca(table), "stable_rank="),
        (rotary, "'rotary:64x16', head_count=1, head_dim=16"),
        (alibi, "'alibi:64x112', head_count=112"),
        (comparison, comparison.to_dict()["verdict"]["summary"]),
        (pp.report.analyze_schemes(rotary), "'rotary:64x16'"),
        (pp.nearest("sample:digits-vit").matches[0], "identical"),
        (pp.families.load_heads("sample:digits-vit"), "heads=4"),
    ]
    for thing, said in held:
        text = repr(thing)
        assert text.startswith(f"{type(thing).__name__}(")
        assert said in text
        assert len(text) <= 500
        assert "\n" not in text
