"""The page: one file, small, well-formed, readable without a mouse, and safe whatever it says."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import xml.etree.ElementTree as ET  # our own drawings are parsed here, nothing from outside
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pytest
from made_schemes import buckets, linear, rotary, source, window
from made_tables import as_table, gaussian, patches, walk, waves

import posprobe
import posprobe as pp
from posprobe.layouts import Grid, Sequence
from posprobe.report import read_bundle, to_json
from posprobe.report.kernels import compare_kernels
from posprobe.report.page import render
from posprobe.report.schemes import analyze_schemes
from posprobe.report.svg import embedded
from posprobe.schemes import RelativeBias
from posprobe.sources import Source
from posprobe.tables import DroppedRow, PositionTable, PrefixRow
from posprobe.text import plain, show

if TYPE_CHECKING:
    from collections.abc import Callable


LIMIT = 700_000
SCRIPT = Path(posprobe.__file__).parent / "report" / "templates" / "page.js"
VOID = {"meta", "link", "br", "img", "input", "hr", "col", "base", "wbr", "source", "area"}
#: Attributes through which a page fetches something.
FETCHING = {"src", "href", "xlink:href", "srcset", "data", "poster", "action", "background"}
SVG = "{http://www.w3.org/2000/svg}"
BLOCKS = ["norms", "similarity", "pca", "spectrum"]


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A page taken apart; tags that do not match are an error."""

    source: str
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        assert self.open == [], f"never closed: {[element.name for element in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        opened = self.open.pop()
        assert opened.name == tag, f"</{tag}> closes <{opened.name}>"

    def handle_data(self, data: str) -> None:
        # What a script holds is no text of the page.
        script = self.open and self.open[-1].name == "script"
        for element in self.open[-1:] if script else self.open:
            element.text += data

    def all(self, *names: str) -> list[Element]:
        return [element for element in self.elements if element.name in names]

    def values(self, attribute: str) -> list[str]:
        return [e.attributes[attribute] for e in self.elements if attribute in e.attributes]

    def runs_nothing_but_its_own(self) -> bool:
        """Whether any script that a browser would run is ours, and the policy says so."""
        scripts = [e.text for e in self.all("script")]
        (policy,) = (
            e.attributes["content"]
            for e in self.all("meta")
            if e.attributes.get("http-equiv") == "Content-Security-Policy"
        )
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in scripts]
        allowed = [f"'sha256-{digest.decode()}'" for digest in digests] or ["'none'"]
        assert [rules["script-src"]] == allowed
        return scripts in ([], [SCRIPT.read_text(encoding="utf-8")])


def page_of(content: Any, place: Path) -> Page:
    folder = content.save(place / "bundle")
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def with_special_rows() -> PositionTable:
    """A table on which everything that the page can show is there."""
    values = waves(64, [5.0, 9.0], noise=0.02)
    values[10] *= 30
    return replace(
        as_table(values)[5:],
        prefix=np.ones((1, 4)),
        prefix_rows=(PrefixRow(0, "CLS"),),
        dropped=(DroppedRow(1, "padding"),),
        notes=("a note",),
    )


PAGES: dict[str, Callable[[], Any]] = {
    "sequence": lambda: pp.analyze(with_special_rows(), nulls=2),
    "patches": lambda: pp.analyze(patches(8, 8, 12), nulls=0),
    "constant": lambda: pp.analyze(as_table(np.full((64, 4), 0.1), Grid(8, 8)), nulls=1),
    "short": lambda: pp.analyze(as_table(gaussian(2, 3)), nulls=1),
    "comparison": lambda: pp.compare(as_table(walk(40, 6)), pp.sinusoidal(40, 6), nulls=1),
    "schemes": lambda: analyze_schemes(rotary(), linear(112), buckets(3), window()),
    "flat schemes": lambda: analyze_schemes(
        RelativeBias(np.ones((2, 9)), Sequence(9), "zero", source()),
        rotary(max_positions=None, training_length=None),
    ),
    "kernels": lambda: compare_kernels(as_table(walk(40, 6)), rotary(), linear(), buckets()),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Page, Path]]:
    """Every kind of page, taken apart, and its folder."""
    made = {}
    for name, make in PAGES.items():
        place = tmp_path_factory.mktemp("page")
        made[name] = (page_of(make(), place), place / "bundle")
    return made


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, pages: dict[str, tuple[Page, Path]]) -> Page:
    return pages[request.param][0]


def test_the_page_says_what_it_is(page: Page) -> None:
    assert page.source.lstrip().lower().startswith("<!doctype html>")
    (root,) = page.all("html")
    assert root.attributes["lang"] == "en"
    title, *_ = page.all("title")
    assert title.text.strip()
    assert 'charset="utf-8"' in page.source[:1024]
    assert any(meta.attributes.get("name") == "viewport" for meta in page.all("meta"))


def test_only_our_script_runs_and_nothing_is_fetched(
    pages: dict[str, tuple[Page, Path]],
) -> None:
    for page, folder in pages.values():
        assert (folder / "report.html").stat().st_size < LIMIT
        assert page.runs_nothing_but_its_own()
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
    for dot in (each for each in page.all("svg") if each.attributes.get("class") == "dot"):
        assert dot.attributes["aria-label"] in {"yes", "no", "cannot tell"}
    drawn = [each for each in page.all("svg") if each.attributes.get("class") != "dot"]
    labels = [each.attributes["aria-label"] for each in drawn]
    labels += [each.attributes["alt"] for each in page.all("img")]
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


def test_the_page_shows_the_numbers_of_the_document(pages: dict[str, tuple[Page, Path]]) -> None:
    page, _ = pages["sequence"]
    text = page.all("body")[0].text
    document = pp.analyze(with_special_rows(), only=BLOCKS, nulls=0).to_dict()
    assert show(document["pca"]["stable_rank"]) in text
    assert show(document["similarity"]["centered"]["neighbour_mean"]) in text
    for said in ("a note", "row 0: CLS", "row 1: padding", "59 positions × 4"):
        assert said in text


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
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_from_the_paper(theme: str) -> None:
    colors: dict[str, str] = {}
    for name in ("colors.css", "drawings.css"):
        roots = re.findall(r":root \{([^}]*)\}", (SCRIPT.parent / name).read_text(encoding="utf-8"))
        colors |= re.findall(r"(--[\w-]+): (#\w+);", roots[("light", "dark").index(theme)])
    for paper in ("--bg", "--plot"):
        for text in ("--ink", "--mute", "--acc"):
            assert contrast(colors[text], colors[paper]) >= 4.5, (text, paper)
        assert contrast(colors["--mark"], colors[paper]) >= 3


def test_the_citation_is_that_of_the_repository(pages: dict[str, tuple[Page, Path]]) -> None:
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    found = dict(
        re.findall(r'^(?:  - )?(title|name|version|doi): "?([^"\n]+)"?$', text, re.MULTILINE)
    )
    page, folder = pages["sequence"]
    version = read_bundle(folder)["environment"]["posprobe"]
    cited = f"{found['name']}. {found['title']}. Version {version}."
    assert [each.text for each in page.all("dd") if each.text == cited] == [cited]
    assert version == found["version"]
    assert "doi" not in found  # the page has to show it once there is one


# Size.


def smooth() -> PositionTable:
    kernel = np.hanning(65) / np.hanning(65).sum()
    noise = gaussian(1024 + 64, 768)
    columns = [np.convolve(column, kernel, mode="valid") for column in noise.T]
    return as_table(np.stack(columns, axis=1))


@pytest.mark.parametrize(
    "make",
    [
        smooth,
        lambda: as_table(gaussian(37 * 37, 96), Grid(37, 37)),
    ],
    ids=["smooth of GPT-2's size", "37 x 37 patches"],
)
def test_the_page_of_a_large_table_is_small(
    make: Callable[[], PositionTable], tmp_path: Path
) -> None:
    table = make()
    blocks = [*BLOCKS, "grid"] if isinstance(table.layout, Grid) else BLOCKS
    folder = pp.analyze(table, only=blocks, nulls=0).save(tmp_path / "bundle")
    assert (folder / "report.html").stat().st_size < LIMIT


# Names come from strangers.

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "</style></title></svg><script>alert(1)</script>",
    "{{ 7 * 191 }}{% raw %}",
    "<!-- ]]> &lt;b&gt; &amp;",
    "$\\frac{1}{0}$ \x01 \\u0041",
]


def named(text: str) -> PositionTable:
    """A table that says ``text`` wherever a checkpoint can put its own words."""
    source = Source(
        reference=text, resolved=text, revision=text, file=text, tensor=text, shape=(13, 4),
        dtype=text, sha256="0" * 64,
    )  # fmt: skip
    return replace(
        as_table(walk(12, 4)),
        name=text,
        source=source,
        family=text,
        prefix=np.ones((1, 4)),
        prefix_rows=(PrefixRow(0, text),),
        dropped=(DroppedRow(1, text),),
        notes=(text, text),
    )


def hostile_page(text: str, place: Path) -> Page:
    command = f"posprobe {text}"
    return page_of(pp.analyze(named(text), only=["norms"], nulls=0, command=command), place)


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return hostile_page("harmless", tmp_path_factory.mktemp("harmless"))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_is_shown_and_does_nothing(
    text: str, harmless: Page, tmp_path: Path
) -> None:
    page = hostile_page(text, tmp_path)
    assert page.runs_nothing_but_its_own()
    # The same elements with the same attributes as with a harmless name, so no markup came in.
    shape = [(element.name, list(element.attributes)) for element in page.elements]
    assert shape == [(element.name, list(element.attributes)) for element in harmless.elements]
    shown = page.source.count("harmless"), page.all("body")[0].text.count(plain(text))
    assert shown == (0, harmless.all("body")[0].text.count("harmless"))
    assert shown[1] >= 6
    assert plain(text.strip()) in page.all("h1")[0].text


@pytest.mark.parametrize("text", [HOSTILE[0], HOSTILE[-1], "_hidden", "a/" * 150])
def test_a_comparison_names_its_tables_whatever_they_are_called(text: str, tmp_path: Path) -> None:
    table = replace(as_table(walk(40, 6)), name=text)
    page = page_of(pp.compare(table, pp.sinusoidal(40, 6), nulls=0), tmp_path)
    drawings = sorted((tmp_path / "bundle" / "figures").glob("*.svg"))
    assert page.runs_nothing_but_its_own()
    for path in drawings:
        root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314
        shown = " ".join("".join(element.itertext()) for element in root.iter(f"{SVG}text"))
        start = "".join(letter for letter in text[:14] if letter.isprintable())
        assert start in shown
        # Each legend and each axis names both tables.
        assert "sinusoidal:40x6" in shown


@pytest.mark.parametrize("text", HOSTILE[2:4])
def test_a_hostile_name_is_shown_in_a_notebook_as_text(text: str) -> None:
    table = named(text)
    page = Page(table._repr_html_())
    assert not page.all("script", "b")
    assert all("alert" not in "".join(e.attributes) for e in page.elements)
    assert any(plain(text) in element.text for element in page.elements)
    # A frame of its own, in which a page runs that is escaped itself.
    (frame,) = Page(pp.analyze(table, only=["norms"], nulls=0)._repr_html_()).elements
    assert set(frame.attributes) == {"srcdoc", "sandbox", "width", "height", "style"}
    inner = Page(frame.attributes["srcdoc"] or "")
    assert inner.runs_nothing_but_its_own()
    assert any(plain(text) in element.text for element in inner.elements)


def test_a_hostile_document_is_escaped_as_well() -> None:
    document = pp.analyze(named("harmless"), only=["norms"], nulls=0).to_dict()
    document["norms"]["mean"] = '<script>"&'
    page = Page(render(document, {}))
    assert page.runs_nothing_but_its_own()
    assert '<script>"&' in page.all("body")[0].text
    assert "alert" not in to_json(document)


def test_a_drawing_is_an_image_whatever_it_holds() -> None:
    evil = '<script>alert(1)</script><a xlink:href="javascript:alert(1)">\' "></svg><h1>x</h1>'
    svg = f'<?xml version="1.0"?><svg viewBox="0 0 300 20" xmlns="x">{evil}</svg>'
    (element,) = Page(embedded(svg, 'a "label" <b>')).elements
    assert element.name == "img"
    assert element.attributes.keys() == {"alt", "style", "src"}
    assert element.attributes["alt"] == 'a "label" <b>'
    assert element.attributes["style"] == "--width:500px"
    kind, _, drawn = element.attributes["src"].partition(",")
    assert kind == "data:image/svg+xml"
    assert unquote(drawn).startswith('<svg viewBox="0 0 300 20" xmlns="x"><style>')
    assert unquote(drawn).endswith(f"</style>{evil}</svg>")
