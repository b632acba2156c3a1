"""The first screen of a table, on the page and in a terminal: small, whole, and true."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_tables import as_table, patches, walk
from test_page_in_browser import browser, show

import posprobe as pp
from posprobe.report.narrator.lines import lines
from posprobe.report.overview import drawings, strip
from posprobe.report.page import render
from posprobe.report.screen import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

__all__ = ["browser", "show"]

SAMPLES = (
    "all-minilm-l6-v2",
    "sapiens-roberta",
    "whisper-tiny-decoder",
    "digits-vit",
)
WORDS = "root => root.innerText.split(/\\s+/).filter((word) => /\\w/.test(word)).length"
#: Running text: outside drawings, tables and lists of a drawing's colours.
RUNNING = "[...document.querySelectorAll('main > section:first-child :is(h1, p:not(.key))')]"


@pytest.fixture(scope="module")
def analyses() -> dict[str, Any]:
    return {name: pp.analyze(pp.load(f"sample:{name}")) for name in SAMPLES}


@pytest.fixture(scope="module")
def bundles(analyses: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    for name, analysis in analyses.items():
        analysis.save(folder / name)
    return folder


# How much there is.


@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_stays_small(name: str, bundles: Path, show: Callable[..., Page]) -> None:
    url = (bundles / name / "report.html").as_uri()
    page = show(url, viewport={"width": 1280, "height": 800})
    heads = page.locator("main > section > h2").all_inner_texts()
    assert heads == ["Evidence", "All numbers", "Provenance"]
    assert page.locator("main > section").count() == 4
    assert page.locator("button, input, select").count() == 0
    assert page.locator("body").evaluate(WORDS) <= 800
    running = page.evaluate(f"{RUNNING}.map({WORDS}).reduce((a, b) => a + b)")
    assert 10 <= running <= 60
    bottom = page.evaluate(
        "document.querySelector('main > section').getBoundingClientRect().bottom"
    )
    assert bottom <= 800
    assert (bundles / name / "report.html").stat().st_size <= 400_000


def test_a_no_beside_a_small_p_is_explained(analyses: dict[str, Any]) -> None:
    document = analyses["all-minilm-l6-v2"].to_dict()
    said = "Few dimensions: significant but small."
    assert said not in " ".join(text(document, 80).split())
    (found,) = (a for a in document["verdict"]["answers"] if a["question"] == "low_dimensional")
    found |= {"answer": "no", "reason": "small"}
    assert said in " ".join(text(document, 80).split())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_terminal_shows_a_table_on_one_screen(name: str, analyses: dict[str, Any]) -> None:
    said = text(analyses[name].to_dict(), 80).split("\n")
    assert len(said) <= 20  # of 24; one more says where the page is
    assert max(map(len, said)) <= 80
    told = lines(analyses[name].verdict, grid=name == "digits-vit")
    for each in told:
        mark = {"yes": "yes ", "no": "no  ", "cannot tell": "?   "}[each.answer]
        (row,) = (line for line in said if each.question in line)
        assert row.startswith(mark)
        assert each.value in row
        assert len(each.question.split()) <= 5


def test_a_terminal_shows_a_comparison_on_one_screen(analyses: dict[str, Any]) -> None:
    table = analyses["all-minilm-l6-v2"].table[:160]
    said = text(pp.compare(table, pp.sinusoidal(160, 384)).to_dict(), 80).split("\n")
    assert len(said) <= 24
    assert max(map(len, said)) <= 80
    assert any(line.split() == ["Known", "formula?", "no", "yes"] for line in said)


def test_all_numbers_are_printed_where_asked_for(analyses: dict[str, Any]) -> None:
    document = analyses["all-minilm-l6-v2"].to_dict()
    assert "stable rank" not in text(document, 80)
    assert "stable rank" in text(document, 80, verbose=True)


# That it is true.


def test_the_bar_of_the_budget_adds_up(analyses: dict[str, Any]) -> None:
    for analysis in analyses.values():
        drawn = drawings(analysis.to_dict(), analysis.arrays())["budget"]
        found = re.findall(r'class="seg [\w-]+" x="([\d.]+)%" y="28" width="([\d.]+)%"', drawn)
        places = np.array(found, dtype=float)
        assert places[:, 1].sum() == pytest.approx(100, abs=0.01)
        np.testing.assert_allclose(places[1:, 0], np.cumsum(places[:-1, 1]), atol=0.01)
        shares = [each["share"] for each in analysis.to_dict()["budget"]["parts"]]
        around = np.array(shares[:-1]) / sum(shares[:-1])
        np.testing.assert_allclose(places[:, 1], 100 * around, atol=0.01)


def test_breaks_and_outliers_are_drawn_where_they_are(analyses: dict[str, Any]) -> None:
    drawn = drawings(analyses["all-minilm-l6-v2"].to_dict(), analyses["all-minilm-l6-v2"].arrays())
    similarity = drawn["similarity"]
    (line,) = re.findall(r'class="seamline" d="M([\d.]+),24v290', similarity)
    assert float(line) == pytest.approx(34 + 290 * 128 / 512, abs=0.1)
    rows = [float(x) for x in re.findall(r'class="mark" d="M([\d.]+),17h8', similarity)]
    expected = [34 + 290 * (row + 0.5) / 512 - 4 for row in (0, 127, 510, 511)]
    np.testing.assert_allclose(rows, expected, atol=0.06)
    for period in ("6.1", "18", "55", "164"):
        assert f">{period}</text>" in drawn["shape"]
        assert f">{period}</text>" in drawn["spectrum"]


@pytest.mark.parametrize("table", [as_table(walk(300, 8))[3:], patches(6, 9, 12)])
def test_the_cosines_under_the_pointer_are_those_of_the_table(
    table: Any, tmp_path: Path, show: Callable[..., Page]
) -> None:
    folder = pp.analyze(table, only=["similarity", "pca", "norms"]).save(tmp_path / "bundle")
    with np.load(folder / "arrays.npz") as arrays:
        cosines = arrays["similarity_centered"]
    page = show((folder / "report.html").as_uri(), viewport={"width": 1280, "height": 800})
    box = page.locator("image.only-light").first.bounding_box()
    assert box is not None
    for x, y in ((0.1, 0.7), (0.55, 0.2), (0.93, 0.93)):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        said, _, value = page.locator(".read").text_content().rpartition(": ")  # type: ignore[union-attr]
        numbers = [int(each) for each in re.findall(r"\d+", said)]
        if len(numbers) == 4:
            pair = numbers[0] * 9 + numbers[1], numbers[2] * 9 + numbers[3]
            assert numbers[:2] == [int(y * 6), int(x * 9)]
            assert cosines[pair] == pytest.approx(float(value), abs=0.006)
        else:
            row, column = (each - 3 for each in numbers)
            assert abs(row - y * 297) <= 2
            near = cosines[max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3]
            assert near.min() - 0.01 <= float(value) <= near.max() + 0.01


def test_a_strip_shows_the_value_and_its_null(analyses: dict[str, Any]) -> None:
    for each in lines(analyses["all-minilm-l6-v2"].verdict, grid=False):
        drawn = strip(each)
        assert bool(drawn) == (each.interval is not None)
        if each.interval is None or each.tested is None:
            continue
        value = float(re.findall(r'class="val" d="M([\d.]+)', drawn)[0])
        left, width = map(
            float, re.findall(r'class="null" x="([\d.]+)".* width="([\d.]+)" h', drawn)[0]
        )
        inside = each.interval[0] <= each.tested <= each.interval[1]
        assert (left - 1 <= value <= left + width + 1) == inside


def test_what_a_document_lacks_is_left_out(analyses: dict[str, Any]) -> None:
    document, arrays = analyses["digits-vit"].to_dict(), analyses["digits-vit"].arrays()
    del document["budget"], arrays["pca_scores"]
    assert drawings(document, arrays).keys() == {"similarity"}
    assert "Variance budget" not in render(document, drawings(document, arrays))


def test_undefined_cosines_are_holes() -> None:
    values = walk(9, 3)
    values[4] = 0
    analysis = pp.analyze(as_table(values), only=["similarity"])
    drawn = drawings(analysis.to_dict(), analysis.arrays())["similarity"]
    (carried,) = re.findall(r'data-v="([^"]*)"', drawn)
    levels = np.frombuffer(base64.b64decode(carried), np.int8).reshape(9, 9)
    cosines = analysis.arrays()["similarity_centered"]
    np.testing.assert_array_equal(levels == -128, np.isnan(cosines))
