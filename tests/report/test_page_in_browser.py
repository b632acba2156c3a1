"""The page in a browser: what is shown, read and reached, by everybody."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pytest
from made_forward import forward_analysis
from made_schemes import buckets, linear, rotary, window
from made_tables import as_table, patches, walk
from registry import package
from test_report_page import HOSTILE, named, with_special_rows

import posprobe as pp
from posprobe.layouts import Grid
from posprobe.report.kernels import compare_kernels
from posprobe.resizing.comparison import compare
from posprobe.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
AXE = "4.14.1"


def lacking(reason: str) -> Any:
    """Skip, or fail where everything has to be there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking("playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        lacking(f"no browser: none of {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        # Without its own sandbox, which root may not have.
        launched = playwright.chromium.launch(executable_path=found, chromium_sandbox=False)
        yield launched
        launched.close()


BUNDLES: dict[str, Callable[[], Any]] = {
    "sequence": lambda: pp.analyze(with_special_rows(), nulls=2, command="posprobe analyze x"),
    "patches": lambda: pp.analyze(patches(20, 18, 12), nulls=1),
    "comparison": lambda: pp.compare(as_table(walk(40, 6)), pp.sinusoidal(40, 6), nulls=1),
    "schemes": lambda: pp.report.analyze_schemes(rotary(), linear(112), buckets(3), window()),
    "run": lambda: forward_analysis(missing={"blank": "it takes no images"}, notes=("a note",)),
    "run on images": lambda: forward_analysis(Grid(4, 5)),
    "kernels": lambda: compare_kernels(as_table(walk(40, 6)), rotary(), linear(), seed=3),
    "ways": lambda: compare(as_table(walk(40, 6)), to=60),
    "rules": lambda: compare((rotary(),), to=8192),
}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle of every kind."""
    folder = tmp_path_factory.mktemp("bundles")
    for name, make in BUNDLES.items():
        make().save(folder / name)
    # A sweep over three tables and the four steps of a training run.
    rng = np.random.default_rng(0)
    first, *others = (np.cumsum(rng.normal(size=(20, 6)), axis=0) for _ in range(4))
    steps = [first, *(first + 0.5 * k * each for k, each in enumerate(others, 1))]
    given: list[dict[str, Any]] = [{"reference": "sinusoidal:30x8", "group": "formula"}]
    for number, values in enumerate((*others[:2], *steps)):
        np.save(folder / f"{number} <b>.npy", values)
        row = {"reference": str(folder / f"{number} <b>.npy"), "group": HOSTILE[0]}
        given.append(row | ({"step": number, "run": f"mine {HOSTILE[0]}"} if number > 1 else {}))
    pp.sweep(given, out=folder / "sweep", only=["similarity", "pca"], engine="threads").run()
    return folder


def address(bundles: Path, name: str) -> str:
    return (bundles / ("sweep/atlas.html" if name == "atlas" else f"{name}/report.html")).as_uri()


@pytest.fixture
def show(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address; the page may ask for nothing else, run into no error and open no dialog."""
    contexts = []
    said: list[str] = []

    def opened(url: str, **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
        page.on(
            "request", lambda request: said.append(request.url) if wanted(request.url) else None
        )
        page.goto(url)
        return page

    def wanted(url: str) -> bool:
        return not url.startswith(("file:", "data:", "blob:"))

    yield opened
    for context in contexts:
        context.close()
    assert said == []


@pytest.mark.registry
@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 390)])
@pytest.mark.parametrize("name", [*BUNDLES, "atlas"])
def test_axe_finds_no_violation(
    name: str, scheme: str, width: int, bundles: Path, show: Callable[..., Page]
) -> None:
    axe = package("axe-core", AXE, "npm") / "package" / "axe.min.js"
    size = {"width": width, "height": 900}
    page = show(address(bundles, name), color_scheme=scheme, viewport=size, bypass_csp=True)
    page.evaluate(axe.read_text(encoding="utf-8"))
    # A drawing is one image to a reader, whatever it is made of.
    found = page.evaluate("axe.run({exclude: ['svg[role=img] > *']})")["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found] == []


@pytest.mark.parametrize("name", [*BUNDLES, "atlas"])
def test_a_narrow_page_does_not_scroll_sideways(
    name: str, bundles: Path, show: Callable[..., Page]
) -> None:
    page = show(address(bundles, name), viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, li, td, th, dd, dt, span')].filter(e => e.offsetParent)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12


@pytest.mark.parametrize("name", BUNDLES)
def test_every_page_has_the_same_four_sections_and_few_words(
    name: str, bundles: Path, show: Callable[..., Page]
) -> None:
    page = show(address(bundles, name), viewport={"width": 1280, "height": 800})
    heads = page.locator("main > section > h2").all_inner_texts()
    assert heads == ["Evidence", "All numbers", "Provenance"]
    assert page.locator("main > section").count() == 4
    words = "e => e.innerText.split(/\\s+/).filter((word) => /\\w/.test(word)).length"
    assert page.locator("body").evaluate(words) <= 800
    # Questions are seen without scrolling, and lead to what shows their answers.
    box: Any = page.locator("main > section").first.bounding_box()
    assert box["y"] + box["height"] <= 800
    questions = page.locator(".answers a, .shared a").all()
    # Two pictures side by side have letters of one size.
    scales = page.evaluate(
        "[...document.querySelectorAll('.pics figure > img')]"
        ".map(e => e.getBoundingClientRect().width / e.naturalWidth)"
    )
    if len(scales) == 2:
        assert scales[0] == pytest.approx(scales[1], rel=0.02)
    assert len(questions) > 1
    for image in page.locator("figure img").all():
        assert image.evaluate("e => e.naturalWidth") > 100  # a browser could read it
    for link in questions:
        assert page.locator(link.get_attribute("href") or "").count() == 1


@pytest.mark.parametrize("name", BUNDLES)
def test_without_javascript_everything_is_there(
    name: str, bundles: Path, show: Callable[..., Page]
) -> None:
    url = address(bundles, name)
    plain, full = show(url, java_script_enabled=False), show(url)
    assert full.locator("button, input, select").count() == 0
    assert plain.locator("body").inner_text() == full.locator("body").inner_text()
    assert plain.locator("h1").count() == 1


@pytest.mark.parametrize("name", BUNDLES)
def test_print_is_as_wide_as_paper_and_shows_every_section(
    name: str, bundles: Path, show: Callable[..., Page]
) -> None:
    page = show(address(bundles, name), viewport={"width": 703, "height": 1000})  # A4 less 24 mm
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    for section in page.locator("section, details table, details p").all():
        assert section.is_visible()


# Names come from strangers.


@pytest.mark.parametrize("text", [*HOSTILE[:3], '=cmd|" /C calc"!A0'])
def test_a_hostile_name_does_nothing_in_a_browser(
    text: str, tmp_path: Path, show: Callable[..., Page]
) -> None:
    analysis = pp.analyze(named(text), only=["norms", "similarity"], nulls=0, command=text)
    folder = analysis.save(tmp_path / "bundle")
    page = show((folder / "report.html").as_uri())
    assert page.locator("h1").text_content() == plain(text)


def test_a_script_from_elsewhere_does_not_run(bundles: Path, browser: Browser) -> None:
    source = (bundles / "schemes" / "report.html").read_text(encoding="utf-8")
    foreign = "<script>window.ran = 1</script><img src='x:y' onerror='window.ran = 2'></body>"
    changed = bundles / "schemes" / "changed.html"
    changed.write_text(source.replace("</body>", foreign), encoding="utf-8")
    page = browser.new_page()
    page.goto(changed.as_uri())
    assert page.evaluate("window.ran") is None
    page.close()
    changed.unlink()


# The atlas of a sweep.


def test_the_atlas_shows_a_training_run(bundles: Path, show: Callable[..., Page]) -> None:
    page = show(address(bundles, "atlas"))
    title = page.get_by_role("heading", name="Training run").inner_text()
    assert title == f"Training run: mine {plain(HOSTILE[0])}"
    (drawn,) = page.locator("figure img").all()
    assert drawn.evaluate("e => e.naturalWidth") > 100  # a browser could read it
    assert "distance from the last" in unquote(drawn.get_attribute("src") or "")


def test_the_atlas_is_sorted_and_filtered(bundles: Path, show: Callable[..., Page]) -> None:
    page = show(address(bundles, "atlas"))
    known = pp.read_sweep(bundles / "sweep").to_pylist()
    names = [row["name"] for row in known]
    body = page.locator("table").last.locator("tbody tr:visible th")

    def seen() -> list[str]:
        return [text.split("\n")[0] for text in body.all_inner_texts()]

    assert seen() == names
    assert page.locator("main b:not(header b)").count() == 0  # names of strangers are text
    sort = page.get_by_role("button", name="participation ratio").first
    sort.press("Enter")
    by_ratio = sorted(known, key=lambda row: row["pca.participation_ratio"])
    assert seen() == [row["name"] for row in by_ratio]
    page.get_by_label("Filter").press_sequentially("sinus")
    assert seen() == ["sinusoidal:30x8"]
    assert "1 of 7 rows" in page.locator(".tools output").inner_text()
