"""The page: one file, small, well-formed, readable without a mouse, and safe whatever it says."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET  # our own drawings are parsed here, nothing from outside
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pytest
from made_pages import (
    HOSTILE_TEXTS,
    PAGES,
    SCHEMES,
    SCRIPT,
    Page,
    hostile_table,
    parse_page,
    save_page,
    with_special_rows,
)
from made_tables import as_table, gaussian, walk

import posprobe as pp
from posprobe.layouts import Grid
from posprobe.report import read_bundle, render_bundle, to_json
from posprobe.report.render import build_page, render
from posprobe.report.svg import embed_svg
from posprobe.text import escape_invisible, format_range, format_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from posprobe.tables import PositionTable

LIMIT = 700_000
#: Attributes through which a page fetches something.
FETCHING = {
    "src",
    "href",
    "xlink:href",
    "srcset",
    "data",
    "poster",
    "action",
    "background",
}
SVG = "{http://www.w3.org/2000/svg}"
BLOCKS = ["norms", "similarity", "pca", "spectrum"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module", params=PAGES)
def folder(request: pytest.FixtureRequest, base: Path) -> Path:
    """A bundle of every kind."""
    return save_page(base, request.param)


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return parse_page(folder)


def test_the_page_has_a_descriptive_title(page: Page) -> None:
    assert page.source.lstrip().lower().startswith("<!doctype html>")
    (root,) = page.all("html")
    assert root.attributes["lang"] == "en"
    title, *_ = page.all("title")
    assert title.text.strip()
    assert 'charset="utf-8"' in page.source[:1024]
    assert any(meta.attributes.get("name") == "viewport" for meta in page.all("meta"))


def test_only_the_own_script_runs_and_no_url_is_fetched(page: Page, folder: Path) -> None:
    size = (folder / "report.html").stat().st_size
    assert size < (
        400_000 if (folder / "figures" / "overview-budget.svg").exists() else LIMIT
    )
    assert page.runs_only_own_scripts()
    assert not page.all("iframe", "object", "embed", "link", "base", "form")
    for element in page.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on"), f"<{element.name} {name}>"
            if name in FETCHING and not value.startswith(("#", "data:image/")):
                # What lies beside the page may be linked to, not embedded.
                assert element.name == "a"
                assert (folder / value).exists()
    images = re.compile(r'src="data:image/svg[^"]*"')
    assert "://" not in images.sub("", page.source)
    assert "url(" not in images.sub("", page.source)
    assert "@import" not in page.source


def test_ids_are_unique_and_whatever_points_to_one_finds_it(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    pointers = [link[1:] for link in page.values("href") if link.startswith("#")]
    assert set(pointers) <= set(ids)
    assert pointers


def test_every_drawing_has_a_text_that_stands_for_it(page: Page) -> None:
    for dot in (
        element for element in page.all("svg") if element.attributes.get("class") == "dot"
    ):
        assert dot.attributes["aria-label"] in {"yes", "no", "cannot tell"}
    drawings = [
        element
        for element in page.all("svg")
        # Frames within a drawing are parts of it.
        if element.attributes.get("class") not in ("dot", "slot")
    ]
    labels = [element.attributes["aria-label"] for element in drawings]
    labels += [element.attributes["alt"] for element in page.all("img")]
    assert labels
    assert all(len(label) > 20 and "None" not in label for label in labels)


def test_headings_are_in_order(page: Page) -> None:
    headings = page.all("h1", "h2", "h3", "h4", "h5", "h6")
    levels = [int(heading.name[1]) for heading in headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    for level, following in itertools.pairwise(levels):
        assert following <= level + 1
    assert all(heading.text.strip() for heading in headings)


def test_tables_can_be_read_by_their_headings(page: Page) -> None:
    assert page.all("table")
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(caption.text.strip() for caption in page.all("caption"))
    for cell in page.all("th"):
        assert cell.attributes.get("scope") in ("row", "col")


def test_no_number_is_left_raw(page: Page) -> None:
    text = " ".join(cell.text for cell in page.all("td", "th", "dd", "p", "li"))
    assert not {"nan", "NaN", "None", "inf", "[]", "{}"} & set(text.split())
    assert not re.search(r"\d\.\d{7,}", text)


def test_a_rendered_page_holds_all_figures_and_answers(page: Page, folder: Path) -> None:
    drawings = [*(folder / "figures").glob("*.svg")]
    assert drawings
    # Those are drawn into the page.
    if not any(path.name.startswith("overview-") for path in drawings):
        assert len(page.all("figure")) == len(drawings)
    text = " ".join(page.all("body")[0].text.split())
    document = read_bundle(folder)
    # Of tables, answers are joined; of several of them they are marks.
    answers = (
        document.get("verdict", {}).get("answers", []) if "table" not in document else []
    )
    for answer in answers:
        assert "answers" in answer or " ".join(answer["sentence"].split()) in text
    for row in build_page(document).numbers.rows:
        assert " ".join(str(getattr(row[0], "text", row[0])).split()) in text
    (folder / "report.html").unlink()
    assert render_bundle(folder) == folder / "report.html"
    assert (folder / "report.html").read_text(encoding="utf-8") == page.source


def test_the_page_shows_the_numbers_of_the_document(base: Path) -> None:
    text = parse_page(save_page(base, "sequence")).all("body")[0].text
    document = pp.analyze(with_special_rows(), only=BLOCKS, nulls=0).to_dict()
    assert format_value(document["pca"]["stable_rank"]) in text
    assert format_value(document["similarity"]["centered"]["neighbour_mean"]) in text
    for phrase in ("a note", "row 0: CLS", "row 1: padding", "59 positions × 4"):
        assert phrase in text


def test_dark_and_light_readers_see_the_ink(page: Page) -> None:
    (style, *_) = page.all("style")
    assert "prefers-color-scheme: dark" in style.text
    ink = set(re.findall(r"var\((--[\w-]+)\)", unquote(page.source)))
    assert ink - {"--width"} <= set(re.findall(r"(--[\w-]+):", style.text))


def luminance(color: str) -> float:
    """WCAG 2.2's relative luminance of ``#rgb`` or ``#rrggbb``."""
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_from_the_paper(theme: str) -> None:
    colors: dict[str, str] = {}
    for name in ("colors.css", "drawings.css"):
        roots = re.findall(
            r":root \{([^}]*)\}", (SCRIPT.parent / name).read_text(encoding="utf-8")
        )
        colors |= re.findall(
            r"(--[\w-]+): (#\w+);", roots[("light", "dark").index(theme)]
        )
    for paper in ("--bg", "--plot"):
        for text in ("--ink", "--mute", "--acc"):
            assert contrast(colors[text], colors[paper]) >= 4.5, (text, paper)
        assert contrast(colors["--mark"], colors[paper]) >= 3


def test_the_citation_is_that_of_the_repository(base: Path) -> None:
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    entries = dict(
        re.findall(
            r'^(?:  - )?(title|name|version|doi): "?([^"\n]+)"?$', text, re.MULTILINE
        )
    )
    folder = save_page(base, "sequence")
    page = parse_page(folder)
    version = read_bundle(folder)["environment"]["posprobe"]
    cited = f"{entries['name']}. {entries['title']}. Version {version}."
    assert [element.text for element in page.all("dd") if element.text == cited] == [
        cited
    ]
    assert version == entries["version"]
    assert "doi" not in entries  # the page has to show it once there is one


# Size.


def smooth() -> PositionTable:
    kernel = np.hanning(65) / np.hanning(65).sum()
    noise = gaussian(1024 + 64, 96)
    columns = [np.convolve(column, kernel, mode="valid") for column in noise.T]
    return as_table(np.stack(columns, axis=1))


@pytest.mark.parametrize(
    "make",
    [
        smooth,
        lambda: as_table(gaussian(37 * 37, 96), Grid(37, 37)),
    ],
    ids=["as long as GPT-2's", "37 x 37 patches"],
)
def test_the_page_of_a_large_table_is_small(
    make: Callable[[], PositionTable], tmp_path: Path
) -> None:
    table = make()
    blocks = [*BLOCKS, "grid"] if isinstance(table.layout, Grid) else BLOCKS
    folder = pp.analyze(table, only=blocks, nulls=0).save(tmp_path / "bundle")
    assert (folder / "report.html").stat().st_size < LIMIT


# Encodings without a table.


@pytest.mark.parametrize("name", SCHEMES)
def test_the_page_shows_the_numbers_of_all_heads(name: str, base: Path) -> None:
    folder = save_page(base, name)
    cells = [cell.text for cell in parse_page(folder).all("td", "th")]
    for scheme in read_bundle(folder)["schemes"]:
        if scheme["scheme"] == "rotary":
            for key in ("shortest_wavelength", "first_negative", "never_turn_target"):
                assert (
                    scheme["rotation"][key] is None
                    or format_value(scheme["rotation"][key]) in cells
                )
            assert f"{scheme['base']:g}" in cells
            continue
        lists = [scheme["heads"][key] for key in ("window", "half_width", "asymmetry")]
        lists += [scheme[key] for key in ("slopes",) if key in scheme]
        for key in ("correlation", "p95") if "smoothness" in scheme else ():
            lists.append(scheme["smoothness"][key])
        for values in lists:
            defined_values = [value for value in values if value is not None]
            assert not defined_values or format_range(defined_values) in cells


def test_properties_of_single_encodings_name_them(base: Path) -> None:
    text = parse_page(save_page(base, "schemes")).all("body")[0].text
    for kind in ("rotary embeddings", "linear biases", "learned bias", "learned vector"):
        assert kind in text
    assert "no position table" in text
    page = parse_page(save_page(base, "T5")).source
    assert "encoder: a note." in page
    cells = '{}</th><td class="r">{}</td><td class="r">{}</td>'
    assert cells.format("later keys hidden", "no", "yes") in page
    # Where the last of the buckets begins: more of them are an earlier key's of a decoder.
    assert cells.format("distance from which one value is shared", 91, 113) in page
    assert "token to CLS" in parse_page(save_page(base, "BEiT")).all("body")[0].text


# Names come from strangers.


def hostile_page(text: str, place: Path) -> Page:
    command = f"posprobe {text}"
    return parse_page(
        pp.analyze(hostile_table(text), only=["norms"], nulls=0, command=command).save(
            place
        )
    )


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return hostile_page("harmless", tmp_path_factory.mktemp("harmless"))


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_hostile_name_is_shown_and_does_nothing(
    text: str, harmless: Page, tmp_path: Path
) -> None:
    page = hostile_page(text, tmp_path)
    assert page.runs_only_own_scripts()
    # The same elements with the same attributes as with a harmless name, so no markup came in.
    shape = [(element.name, list(element.attributes)) for element in page.elements]
    assert shape == [
        (element.name, list(element.attributes)) for element in harmless.elements
    ]
    counts = (
        page.source.count("harmless"),
        page.all("body")[0].text.count(escape_invisible(text)),
    )
    assert counts == (0, harmless.all("body")[0].text.count("harmless"))
    assert counts[1] >= 6
    assert escape_invisible(text.strip()) in page.all("h1")[0].text


@pytest.mark.parametrize(
    "text", [HOSTILE_TEXTS[0], HOSTILE_TEXTS[-1], "_hidden", "a/" * 150]
)
def test_a_comparison_names_its_tables_whatever_they_are_called(
    text: str, tmp_path: Path
) -> None:
    table = replace(as_table(walk(40, 6)), name=text)
    tables = table, pp.sinusoidal(40, 6)
    folder = pp.compare(*tables, only=["similarity", "pca"], nulls=0).save(
        tmp_path / "bundle"
    )
    drawings = sorted((folder / "figures").glob("*.svg"))
    assert len(drawings) > 1
    assert parse_page(folder).runs_only_own_scripts()
    texts_by_name = {}
    for path in drawings:
        root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314
        svg_text = " ".join(
            "".join(element.itertext()) for element in root.iter(f"{SVG}text")
        )
        texts_by_name[path.stem] = svg_text
    own_names = [name for name in texts_by_name if name.startswith("overview-")]
    assert own_names
    own_text = " ".join(texts_by_name.pop(name) for name in own_names)
    start = "".join(letter for letter in text[:14] if letter.isprintable())
    # Each legend and each axis of a figure names both tables, and so do all maps together.
    for svg_text in (own_text, *texts_by_name.values()):
        assert start in svg_text
        assert "sinusoidal:40x6" in svg_text


@pytest.mark.parametrize("text", HOSTILE_TEXTS[2:4])
def test_a_hostile_name_is_shown_in_a_notebook_as_text(text: str) -> None:
    table = hostile_table(text)
    page = Page(table._repr_html_())
    assert not page.all("script", "b")
    assert all("alert" not in "".join(e.attributes) for e in page.elements)
    assert any(escape_invisible(text) in element.text for element in page.elements)
    card = Page(pp.analyze(table, only=["norms"], nulls=0)._repr_html_())
    assert not card.all("script", "b")
    assert any(escape_invisible(text) in element.text for element in card.elements)


def test_a_hostile_document_is_escaped_as_well() -> None:
    document = pp.analyze(hostile_table("harmless"), only=["norms"], nulls=0).to_dict()
    document["norms"]["mean"] = '<script>"&'
    page = Page(render(document, {}))
    assert page.runs_only_own_scripts()
    assert '<script>"&' in page.all("body")[0].text
    assert "alert" not in to_json(document)


def test_a_drawing_is_an_image_whatever_it_holds() -> None:
    evil = '<script>alert(1)</script><a xlink:href="javascript:alert(1)">\' "></svg><h1>x</h1>'
    svg = f'<?xml version="1.0"?><svg viewBox="0 0 300 20" xmlns="x">{evil}</svg>'
    (element,) = Page(embed_svg(svg, 'a "label" <b>')).elements
    assert element.name == "img"
    assert element.attributes.keys() == {"alt", "style", "src"}
    assert element.attributes["alt"] == 'a "label" <b>'
    assert element.attributes["style"] == "--width:500px"
    kind, _, data = element.attributes["src"].partition(",")
    assert kind == "data:image/svg+xml"
    assert unquote(data).startswith('<svg viewBox="0 0 300 20" xmlns="x"><style>')
    assert unquote(data).endswith(f"</style>{evil}</svg>")
