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
from urllib.parse import quote

import numpy as np
import pytest
from made_schemes import buckets, linear, rotary, source, window
from made_tables import as_table, gaussian, patches, walk, waves
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

import posprobe
import posprobe as pp
from posprobe import analyses
from posprobe.errors import OutputError, UnknownReference
from posprobe.layouts import Grid, Sequence
from posprobe.report import read_bundle, to_json
from posprobe.report.bundle import write_index
from posprobe.report.comparison import compare_kernels
from posprobe.report.page import render
from posprobe.report.schemes import analyze_schemes
from posprobe.report.svg import inline
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
    "one scheme in many layers": lambda: analyze_schemes(
        *(window(7, 7, 3, f"layers.{k}.attn", k) for k in range(24))
    ),
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
        assert not page.all("iframe", "object", "embed", "link", "img", "base", "form")
        for element in page.elements:
            for name, value in element.attributes.items():
                assert not name.startswith("on"), f"<{element.name} {name}>"
                if name in FETCHING and not value.startswith(("#", "data:image/png;base64,")):
                    # What lies beside the page may be linked to, not embedded.
                    assert element.name == "a"
                    assert (folder / value).exists()
        namespaces = re.compile(r'\sxmlns(:\w+)?="[^"]*"')
        assert "://" not in namespaces.sub("", page.source)
        targets = re.findall(r"url\(\s*['\"]?(.)", page.source)
        assert set(targets) <= {"#"}
        assert "@import" not in page.source


def test_ids_are_unique_and_whatever_points_to_one_finds_it(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    pointers = [link[1:] for link in page.values("href") if link.startswith("#")]
    pointers += [link[1:] for link in page.values("xlink:href") if link.startswith("#")]
    pointers += re.findall(r"url\(#([^)'\"]+)", page.source)
    for labels in page.values("aria-labelledby"):
        pointers += labels.split()
    assert set(pointers) <= set(ids)
    assert len(pointers) > 5


def test_every_drawing_has_a_text_that_stands_for_it(page: Page) -> None:
    assert page.all("svg")
    for drawing in page.all("svg"):
        if drawing.attributes.get("aria-hidden") == "true":
            continue
        if drawing.attributes.get("class") == "dot":
            assert drawing.attributes["aria-label"] in {"yes", "no", "cannot tell"}
            continue
        assert drawing.attributes["role"] == "img"
        assert len(drawing.attributes["aria-label"]) > 20
    labels = page.values("aria-label")
    assert all(label.strip() for label in labels)
    for figure_label in (label for label in labels if "cosine" in label):
        assert "None" not in figure_label


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
    ink = set(re.findall(r"var\((--[\w-]+)\)", page.source))
    assert ink - {"--width"}  # which every drawing sets for itself
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
    style = (SCRIPT.parent / "drawings.css").read_text(encoding="utf-8")
    roots = re.findall(r":root \{([^}]*)\}", style)
    colors = dict(re.findall(r"(--[\w-]+): (#\w+);", roots[("light", "dark").index(theme)]))
    for paper in ("--bg", "--plot"):
        for text in ("--ink", "--mute", "--acc"):
            assert contrast(colors[text], colors[paper]) >= 4.5, (text, paper)
        assert contrast(colors["--mark"], colors[paper]) >= 3


@pytest.mark.parametrize("factor", [0.0, 1e-3, 1.0])
def test_norms_of_positions_are_drawn_beside_those_of_tokens(factor: float) -> None:
    positions, tokens = gaussian(20, 4), gaussian(70, 4, 1)
    ax = Figure().add_subplot()
    analyses.scale(factor * positions, tokens).plot(ax)
    assert ax.get_legend_handles_labels()[1] == ["positions (20)", "tokens (70)"]
    means = [float(np.asarray(line.get_xdata())[0]) for line in ax.lines]
    expected = [np.linalg.norm(rows, axis=1).mean() for rows in (factor * positions, tokens)]
    np.testing.assert_allclose(means, expected)
    assert len(ax.patches) == 2
    for stairs in ax.patches:
        assert isinstance(stairs, StepPatch)
        assert np.sum(stairs.get_data()[0]) == pytest.approx(1)
    if factor != 1:
        assert ax.get_xscale() == ("log" if factor else "linear")
    nothing = analyses.scale(np.zeros((3, 4)), np.zeros((2, 4))).plot(Figure().add_subplot())
    assert "zero" in nothing.texts[0].get_text()


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


def test_drawings_inlined_twice_do_not_share_ids() -> None:
    svg = (
        '<?xml version="1.0"?><svg viewBox="0 0 10 20" xmlns="http://www.w3.org/2000/svg">'
        '<metadata>x</metadata><defs><path id="m1" d="M0 0"/></defs>'
        '<use xlink:href="#m1"/><g clip-path="url(#m1)"/></svg>'
    )
    both = inline(svg, "one", 'a "label"') + inline(svg, "two", "<label>")
    page = Page(both)
    assert page.values("id") == ["one-m1", "two-m1"]
    assert page.values("xlink:href") == ["#one-m1", "#two-m1"]
    assert page.values("clip-path") == ["url(#one-m1)", "url(#two-m1)"]
    assert page.values("aria-label") == ['a "label"', "<label>"]
    assert not page.all("metadata")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "undefined"),
        (0.0, "0"),
        (1e-17, "0"),
        (-0.00012, "-1.2e-04"),
        (0.12345, "0.123"),
        (19.59592, "19.6"),
        (3581.4, "3580"),
        (123456.0, "123000"),
        (1.5e7, "1.5e+07"),
        (7, "7"),
        ("word", "word"),
    ],
)
def test_numbers_are_shown_as_people_write_them(value: object, text: str) -> None:
    assert show(value) == text


# A folder of bundles.


def test_a_folder_of_bundles_is_listed_and_damaged_ones_are_named(tmp_path: Path) -> None:
    for name, kind in (("one #?%<b>", walk(12, 4)), ("two", gaussian(9, 3))):
        pp.analyze(as_table(kind), only=["similarity"], nulls=0).save(tmp_path / name)
    for name, text in (("torn", "{"), ("hollow", '{"schema": "posprobe.analysis/1"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "analysis.json").write_text(text)
    (tmp_path / "none").mkdir()
    assert write_index(tmp_path) == tmp_path / "index.html"
    page = Page((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert page.runs_nothing_but_its_own()
    links = [link for link in page.values("href") if link.endswith("report.html")]
    assert links == [f"{quote('one #?%<b>')}/report.html", "two/report.html"]
    leads = [span.text for span in page.all("span")]
    assert any(lead.startswith("12 positions × 4") for lead in leads)
    assert any(lead.startswith("9 positions × 3") for lead in leads)
    notes = [e.text for e in page.all("p") if e.attributes.get("class") == "note"]
    assert [note.split()[:4] for note in notes] == [
        [name, "is", "left", "out:"] for name in ("hollow", "torn")
    ]
    # Once more, over its own page.
    before = (tmp_path / "index.html").read_bytes()
    write_index(tmp_path)
    assert (tmp_path / "index.html").read_bytes() == before


def test_a_drawing_that_cannot_be_read_leaves_its_bundle_in_the_list(tmp_path: Path) -> None:
    folder = pp.analyze(as_table(walk(12, 4)), only=["pca"], nulls=0).save(tmp_path / "one")
    (folder / "figures" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    page = Page(write_index(tmp_path).read_text(encoding="utf-8"))
    assert not page.values("src")
    assert [link for link in page.values("href") if link.endswith("html")] == ["one/report.html"]


def test_a_page_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    pp.analyze(as_table(walk(12, 4)), only=["norms"], nulls=0).save(tmp_path / "one")
    (tmp_path / "index.html").write_text("<h1>Mine</h1>")
    with pytest.raises(OutputError, match="not a page of posprobe"):
        write_index(tmp_path)
    assert (tmp_path / "index.html").read_text() == "<h1>Mine</h1>"


def test_a_folder_without_bundles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UnknownReference, match="no folder in it is one"):
            write_index(folder)
    assert not (tmp_path / "index.html").exists()
