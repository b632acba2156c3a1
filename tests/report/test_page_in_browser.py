"""The page in a browser: what is shown, read and reached, by everybody."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pytest
from made_pages import HOSTILE_TEXTS, hostile_table, save_page
from made_tables import as_table, patches, walk
from registry import package

import posprobe as pp
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
AXE = "4.14.1"
WIDE = {"width": 1280, "height": 800}
#: What of axe depends on colours and on the width; all other rules hold for any.
LOOK = [
    "color-contrast",
    "link-in-text-block",
    "scrollable-region-focusable",
    "target-size",
]
VISIBLE_SELECTOR = (
    "all-minilm-l6-v2", "sequence", "patches", "comparison", "schemes", "run", "kernels", "ways",
    "rules", "check",
)  # fmt: skip
WORDS = "e => e.innerText.split(/\\s+/).filter((word) => /\\w/.test(word)).length"
#: Running text: outside drawings, tables and lists of a drawing's colours, and without notes on
#: what is missing.
RUNNING_TEXT = (
    "[...document.querySelectorAll("
    "'main > section:first-child :is(h1, p:not(.key, .note))')]"
)


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
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        lacking(f"no browser: none of {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        # Without its own sandbox, which root may not have.
        launched = playwright.chromium.launch(
            executable_path=executable, chromium_sandbox=False
        )
        yield launched
        launched.close()


@contextmanager
def opened(browser: Browser, path: Path, **options: Any) -> Iterator[Page]:
    """Open a page, which may ask for nothing else, run into no error and open no dialog."""
    messages: list[str] = []

    def asked(url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            messages.append(url)

    page = browser.new_page(**options)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: asked(request.url))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert messages == []


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over three tables and the four steps of a training run."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    first_table, *changes = (
        np.cumsum(rng.normal(size=(20, 6)), axis=0) for _ in range(4)
    )
    steps = [
        first_table,
        *(first_table + 0.5 * k * change for k, change in enumerate(changes, 1)),
    ]
    references: list[dict[str, Any]] = [
        {"reference": "sinusoidal:30x8", "group": "formula"}
    ]
    for number, values in enumerate((*changes[:2], *steps)):
        np.save(folder / f"{number} <b>.npy", values)
        row = {"reference": str(folder / f"{number} <b>.npy"), "group": HOSTILE_TEXTS[0]}
        references.append(
            row
            | ({"step": number, "run": f"mine {HOSTILE_TEXTS[0]}"} if number > 1 else {})
        )
    sweep_folder = folder / "sweep"
    pp.sweep(references, out=sweep_folder, only=["similarity", "pca"], jobs=1).run()
    return sweep_folder


@pytest.fixture(scope="module", params=VISIBLE_SELECTOR)
def page(request: pytest.FixtureRequest, browser: Browser, base: Path) -> Iterator[Page]:
    """A page of every kind, which all tests of it look at."""
    with opened(browser, save_page(base, request.param) / "report.html") as opened_page:
        yield opened_page


@pytest.fixture(scope="module")
def atlas(browser: Browser, sweep: Path) -> Iterator[Page]:
    with opened(browser, sweep / "atlas.html") as opened_page:
        yield opened_page


def seen_at(page: Page, size: dict[str, int], **media: Any) -> Page:
    page.set_viewport_size(size)  # type: ignore[arg-type]
    page.emulate_media(**{"media": "screen", "color_scheme": "light", **media})
    return page


def hold_to_axe(page: Page) -> None:
    axe = package("axe-core", AXE, "npm") / "package" / "axe.min.js"
    page.evaluate(axe.read_text(encoding="utf-8"))
    for size, scheme, rules in (
        ({"width": 1100, "height": 900}, "light", {}),
        ({"width": 390, "height": 900}, "dark", {"runOnly": LOOK}),
    ):
        seen_at(page, size, color_scheme=scheme)
        # A drawing is one image to a reader, whatever it is made of.
        report = page.evaluate(
            "rules => axe.run({exclude: ['svg[role=img] > *']}, rules)", rules
        )["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in report] == []


def hold_to_a_narrow_screen(page: Page) -> None:
    seen_at(page, {"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, li, td, th, dd, dt, span')].filter(e => e.offsetParent)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12


@pytest.mark.registry
def test_axe_finds_no_violation(page: Page) -> None:
    hold_to_axe(page)


def test_a_narrow_page_does_not_scroll_sideways(page: Page) -> None:
    hold_to_a_narrow_screen(page)


def test_every_page_has_the_same_four_sections_and_few_words(page: Page) -> None:
    seen_at(page, WIDE)
    heads = page.locator("main > section > h2").all_inner_texts()
    assert heads == ["Evidence", "All numbers", "Provenance"]
    assert page.locator("main > section").count() == 4
    assert page.locator("h1").count() == 1
    assert page.locator("button, input, select").count() == 0
    assert page.locator("body").evaluate(WORDS) <= 800
    n_words = page.evaluate(f"{RUNNING_TEXT}.map({WORDS}).reduce((a, b) => a + b)")
    assert n_words >= 10
    assert n_words <= 60 or not page.locator(".budget").count()
    # Questions are seen without scrolling, and lead to what shows their answers.
    box: Any = page.locator("main > section").first.bounding_box()
    assert box["y"] + box["height"] <= 800
    # Two pictures side by side have letters of one size.
    scales = page.evaluate(
        "[...document.querySelectorAll('.pics figure > img')]"
        ".map(e => e.getBoundingClientRect().width / e.naturalWidth)"
    )
    if len(scales) == 2:
        assert scales[0] == pytest.approx(scales[1], rel=0.02)
    widths = page.evaluate(
        "[...document.querySelectorAll('figure img')].map(e => e.naturalWidth)"
    )
    assert all(width > 100 for width in widths)  # a browser could read each
    headings = page.evaluate(
        "[...document.querySelectorAll('.answers a, .shared a')]"
        ".map(e => document.querySelectorAll(e.getAttribute('href')).length)"
    )
    assert len(headings) > 1
    assert set(headings) == {1}


def test_print_is_as_wide_as_paper_and_shows_every_section(page: Page) -> None:
    seen_at(page, {"width": 703, "height": 1000}, media="print")  # A4 less 24 mm
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    hidden = page.evaluate(
        "[...document.querySelectorAll('section, details table, details p')]"
        ".filter(e => !e.offsetHeight || getComputedStyle(e).visibility == 'hidden').length"
    )
    assert hidden == 0


@pytest.mark.parametrize("name", ["sequence", "comparison", "run"])
def test_without_javascript_everything_is_there(
    name: str, base: Path, browser: Browser
) -> None:
    path = save_page(base, name) / "report.html"
    with (
        opened(browser, path, java_script_enabled=False) as plain,
        opened(browser, path) as scripted,
    ):
        assert plain.locator("body").inner_text() == scripted.locator("body").inner_text()


@pytest.mark.parametrize("table", [as_table(walk(300, 8))[3:], patches(6, 9, 12)])
def test_the_cosines_under_the_pointer_are_those_of_the_table(
    table: Any, tmp_path: Path, browser: Browser
) -> None:
    folder = pp.analyze(table, only=["similarity", "pca", "norms"]).save(
        tmp_path / "bundle"
    )
    with np.load(folder / "arrays.npz") as arrays:
        cosines = arrays["similarity_centered"]
    with opened(browser, folder / "report.html", viewport=WIDE) as page:
        box: Any = page.locator("image.only-light").first.bounding_box()
        for x, y in ((0.1, 0.7), (0.55, 0.2), (0.93, 0.93)):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            label, _, value = (page.locator(".read").text_content() or "").rpartition(
                ": "
            )
            numbers = [int(digits) for digits in re.findall(r"\d+", label)]
            if len(numbers) == 4:
                pair = numbers[0] * 9 + numbers[1], numbers[2] * 9 + numbers[3]
                assert numbers[:2] == [int(y * 6), int(x * 9)]
                assert cosines[pair] == pytest.approx(float(value), abs=0.006)
            else:
                row, column = (digits - 3 for digits in numbers)
                assert abs(row - y * 297) <= 2
                neighbourhood = cosines[
                    max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3
                ]
                assert (
                    neighbourhood.min() - 0.01
                    <= float(value)
                    <= neighbourhood.max() + 0.01
                )


# Names come from strangers.


@pytest.mark.parametrize("text", [HOSTILE_TEXTS[0], HOSTILE_TEXTS[2]])
def test_a_hostile_name_does_nothing_in_a_browser(
    text: str, tmp_path: Path, browser: Browser
) -> None:
    analysis = pp.analyze(
        hostile_table(text), only=["norms", "similarity"], nulls=0, command=text
    )
    folder = analysis.save(tmp_path / "bundle")
    with opened(browser, folder / "report.html") as page:
        assert page.locator("h1").text_content() == escape_invisible(text)


def test_a_script_from_elsewhere_does_not_run(
    base: Path, browser: Browser, tmp_path: Path
) -> None:
    source = (save_page(base, "ways") / "report.html").read_text(encoding="utf-8")
    foreign = (
        "<script>window.ran = 1</script><img src='x:y' onerror='window.ran = 2'></body>"
    )
    edited = tmp_path / "changed.html"
    edited.write_text(source.replace("</body>", foreign), encoding="utf-8")
    page = browser.new_page()
    page.goto(edited.as_uri())
    assert page.evaluate("window.ran") is None
    page.close()


# The atlas of a sweep.


@pytest.mark.registry
def test_axe_finds_no_violation_in_the_atlas(atlas: Page) -> None:
    hold_to_axe(atlas)


def test_a_narrow_atlas_does_not_scroll_sideways(atlas: Page) -> None:
    hold_to_a_narrow_screen(atlas)


@pytest.mark.parametrize(("width", "media"), [(390, "screen"), (703, "print")])
def test_a_narrow_or_printed_atlas_shows_every_value(
    atlas: Page, width: int, media: str
) -> None:
    seen_at(atlas, {"width": width, "height": 1000}, media=media)
    # Values that were not measured are left out; all others have their heading before them.
    cells = atlas.evaluate(
        "[...document.querySelectorAll('tbody td:not([data-none], :empty)')].map(e =>"
        " [e.getBoundingClientRect().right, getComputedStyle(e, '::before').content])"
    )
    assert len(cells) > 20
    assert all(0 < right <= width for right, _ in cells)
    assert all(heading.strip('"') not in ("", "none") for _, heading in cells)


def test_the_atlas_shows_a_training_run(atlas: Page) -> None:
    title = atlas.get_by_role("heading", name="Training run").inner_text()
    assert title == f"Training run: mine {escape_invisible(HOSTILE_TEXTS[0])}"
    (image,) = atlas.locator("figure img").all()
    assert image.evaluate("e => e.naturalWidth") > 100  # a browser could read it
    assert "distance from the last" in unquote(image.get_attribute("src") or "")


def test_the_atlas_is_sorted_and_filtered(atlas: Page, sweep: Path) -> None:
    seen_at(atlas, WIDE)
    rows = pp.read_sweep(sweep).to_pylist()
    names = [row["name"] for row in rows]
    body = atlas.locator("table").last.locator("tbody tr:visible th")

    def seen() -> list[str]:
        return [text.split("\n")[0] for text in body.all_inner_texts()]

    assert seen() == names
    assert (
        atlas.locator("main b:not(header b)").count() == 0
    )  # names of strangers are text
    sort = atlas.get_by_role("button", name="participation ratio").first
    sort.press("Enter")
    by_ratio = sorted(rows, key=lambda row: row["pca.participation_ratio"])
    assert seen() == [row["name"] for row in by_ratio]
    atlas.get_by_label("Filter").press_sequentially("sinus")
    assert seen() == ["sinusoidal:30x8"]
    assert "1 of 7 rows" in atlas.locator(".tools output").inner_text()
