"""The page in a browser: what can be pointed at, sorted, copied and reached, for everybody."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pytest
from made_forward import forward_analysis
from made_schemes import buckets, linear, rotary, window
from made_tables import as_table, gaussian, patches, walk, waves
from registry import package
from test_report_page import HOSTILE, named, with_special_rows

import posprobe as pp
from posprobe.foreign import plain
from posprobe.layouts import Grid
from posprobe.report.index import write_index
from posprobe.report.kernels import compare_kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from playwright.sync_api import Browser, FloatRect, Locator, Page

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
    "schemes": lambda: pp.analyze_schemes(rotary(), linear(112), buckets(3), window()),
    "run": lambda: forward_analysis(missing={"blank": "it takes no images"}, notes=("a note",)),
    "run on images": lambda: forward_analysis(Grid(4, 5)),
    "kernels": lambda: compare_kernels(as_table(walk(40, 6)), rotary(), linear(), seed=3),
}
#: Pages of every kind.
PAGES = (*BUNDLES, "index")
#: What the sweep of the atlas is over.
SWEPT = 6


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle of every kind and the page that lists them."""
    folder = tmp_path_factory.mktemp("bundles")
    for name, make in BUNDLES.items():
        make().save(folder / name)
    write_index(folder)
    rng = np.random.default_rng(0)
    given: list[dict[str, Any]] = [{"reference": "sinusoidal:30x8", "group": "formula"}]
    for number in range(1, SWEPT):
        np.save(folder / f"{number} <b>.npy", np.cumsum(rng.normal(size=(20 + number, 6)), axis=0))
        given.append({"reference": str(folder / f"{number} <b>.npy"), "group": HOSTILE[0]})
    pp.sweep(
        given, out=folder / "sweep", only=["similarity", "pca"], nulls=0, engine="threads"
    ).run()
    values = [np.cumsum(rng.normal(size=(20, 6)), axis=0) for _ in range(4)]
    for k, value in enumerate(values):
        np.save(folder / f"step-{k}.npy", values[0] + 0.01 * k * value)
    run = [
        {"reference": str(folder / f"step-{k}.npy"), "step": k, "run": f"mine {HOSTILE[0]}"}
        for k in range(4)
    ]
    options: dict[str, Any] = {"nulls": 1, "engine": "threads"}
    pp.sweep(run, out=folder / "steps", only=["similarity", "pca"], **options).run()
    return folder


def address(bundles: Path, name: str) -> str:
    places = {
        "index": "index.html",
        "atlas": "sweep/atlas.html",
        "training run": "steps/atlas.html",
    }
    return (bundles / places.get(name, f"{name}/report.html")).as_uri()


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
        if options.get("java_script_enabled", True) and page.query_selector("#cosines"):
            page.wait_for_selector(".reader")
        return page

    def wanted(url: str) -> bool:
        return not url.startswith(("file:", "data:", "blob:"))

    yield opened
    for context in contexts:
        context.close()
    assert said == []


@pytest.mark.registry
@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 390)])
@pytest.mark.parametrize("name", [*PAGES, "atlas", "training run"])
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


@pytest.mark.parametrize("name", [*PAGES, "atlas", "training run"])
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
    for cell in page.locator(".verdict td[data-label]").all()[:8]:
        assert cell.evaluate("e => getComputedStyle(e, '::before').content").strip('"') != "none"


@pytest.mark.parametrize("name", PAGES)
def test_without_javascript_everything_is_there_and_no_button_is_dead(
    name: str, bundles: Path, show: Callable[..., Page]
) -> None:
    url = address(bundles, name)
    plain, full = show(url, java_script_enabled=False), show(url)
    assert plain.locator("button, input").count() == 0
    assert full.locator("button").count() > 0
    for selector in ("h2", "caption", "dd", "svg[role=img]:not(.profile)"):
        count = plain.locator(selector).count()
        assert full.locator(selector).count() == count
    assert plain.locator("h2").count() > 0


@pytest.mark.parametrize("name", PAGES)
def test_print_shows_every_section_and_no_control(
    name: str, bundles: Path, show: Callable[..., Page]
) -> None:
    page = show(address(bundles, name))
    for sort in page.locator(".sort").all()[:1]:
        sort.click()
    page.emulate_media(media="print")
    for control in page.locator("button:not(.sort), input, .skip, nav").all():
        assert not control.is_visible()
    for section in page.locator("section, details table").all():
        assert section.is_visible()
    marks = page.evaluate(
        "[...document.querySelectorAll('.sort')].map(e => getComputedStyle(e, '::after').content)"
    )
    assert set(marks) <= {"none"}


# Cosines.


def unfold(page: Page) -> None:
    """Open the sections that are shown on request."""
    page.locator("details.fold:not([open]) > summary").evaluate_all(
        "found => found.forEach((summary) => summary.click())"
    )


def read(reader: Locator) -> tuple[int, int, float, float]:
    """The pair of positions and its two cosines as a reader states them."""
    first, second = (int(box.input_value()) for box in reader.locator("input").all())
    text = reader.locator("output").inner_text()
    found = re.fullmatch(r".* cosine (\S+) raw, (\S+) centred", text)
    assert found, text
    assert "undefined" not in text
    return first, second, float(found[1]), float(found[2])


def matrices(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    with np.load(folder / "arrays.npz") as arrays:
        return arrays["similarity"], arrays["similarity_centered"]


def assert_true(
    stated: tuple[int, int, float, float],
    cosines: tuple[NDArray[np.float64], NDArray[np.float64]],
    start: int = 0,
) -> None:
    first, second, raw, centered = stated
    pair = first - start, second - start
    assert raw == pytest.approx(cosines[0][pair], abs=0.005)
    assert centered == pytest.approx(cosines[1][pair], abs=0.005)


def raster(page: Page, name: str, panel: int) -> FloatRect:
    image = page.locator(f'[id="{name}-axes_{panel}"] image')
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    assert box is not None
    return box


@pytest.mark.parametrize(
    "make", [lambda: walk(300, 5), lambda: waves(1024, [7.0, 40.0], noise=0.02)]
)
def test_any_pair_of_positions_can_be_pointed_at(
    make: Callable[[], NDArray[np.float64]], tmp_path: Path, show: Callable[..., Page]
) -> None:
    table = as_table(make())[3:]
    n = len(table)
    folder = pp.analyze(table, only=["similarity"], nulls=0).save(tmp_path / "bundle")
    cosines = matrices(folder)
    page = show((folder / "report.html").as_uri())
    reader = page.locator(".reader")
    rng = np.random.default_rng(0)
    for panel in (1, 2):
        box = raster(page, "similarity", panel)
        for x, y in rng.random((8, 2)):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            stated = read(reader)
            assert_true(stated, cosines, start=3)
            # A pixel of the screen is a few positions wide, and the pointer stands on whole ones.
            near = 1.5 + 2 * n / box["width"]
            assert abs(stated[0] - 3 - y * n) < near
            assert abs(stated[1] - 3 - x * n) < near
    first, second = reader.locator("input").all()
    for row, column in rng.integers(0, n, (8, 2)):
        first.fill(str(row + 3))
        second.fill(str(column + 3))
        second.press("Enter")
        assert read(reader)[:2] == (row + 3, column + 3)
        assert_true(read(reader), cosines, start=3)
    first.fill("-7")
    first.press("Enter")
    assert read(reader)[0] == 3
    drawn = reader.locator("path.raw").get_attribute("d")
    assert drawn is not None
    heights = np.array([float(y) for y in re.findall(r" ([\d.]+)", drawn)])
    np.testing.assert_allclose((68 - heights) / 60, cosines[0][0], atol=0.006)


def test_keys_move_the_crosshair(bundles: Path, show: Callable[..., Page]) -> None:
    page = show(address(bundles, "sequence"))
    place, reader = page.locator(".map"), page.locator(".reader")
    place.focus()
    assert place.evaluate("e => getComputedStyle(e).outlineStyle") != "none"
    begin = read(reader)[:2]
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Shift+ArrowRight", "ArrowUp", "ArrowLeft"):
        place.press(key)
    assert read(reader)[:2] == (begin[0] + 1, begin[1] + 10)
    assert_true(read(reader), matrices(bundles / "sequence"), start=5)
    for _ in range(3):
        place.press("Shift+ArrowUp")
    assert read(reader)[0] == 5


def test_patches_follow_the_pointer_and_the_keys(bundles: Path, show: Callable[..., Page]) -> None:
    height, width, every = 20, 18, 2  # 16 tiles a side at most
    page = show(address(bundles, "patches"))
    cosines = matrices(bundles / "patches")
    reader = page.locator(".reader").first
    box = raster(page, "mosaic", 1)
    across, down = 9 * (width + 1) - 1, 10 * (height + 1) - 1
    for tile, cell in (((0, 0), (3, 4)), ((9, 8), (19, 17)), ((4, 7), (0, 9))):
        x = (tile[1] * (width + 1) + cell[1] + 0.5) / across * box["width"]
        y = (tile[0] * (height + 1) + cell[0] + 0.5) / down * box["height"]
        page.mouse.move(box["x"] + x, box["y"] + y)
        patch = tile[0] * every * width + tile[1] * every, cell[0] * width + cell[1]
        assert read(reader)[:2] == patch
        assert_true(read(reader), cosines)
        said = reader.locator("output").inner_text()
        assert f"(row {tile[0] * every}, column {tile[1] * every})" in said
        assert f"(row {cell[0]}, column {cell[1]})" in said
    place = page.locator(".map").first
    place.press("ArrowDown")
    assert read(reader)[1] == patch[1] + width
    place.press("Shift+ArrowLeft")
    assert read(reader)[0] == patch[0] - every
    # The matrix below shows the same pair.
    unfold(page)
    assert read(page.locator(".reader").last) == read(reader)


def test_means_of_blocks_say_so(tmp_path: Path, show: Callable[..., Page]) -> None:
    table = as_table(gaussian(1500, 40))
    folder = pp.analyze(table, only=["similarity"], nulls=0).save(tmp_path / "bundle")
    cosines = matrices(folder)
    page = show((folder / "report.html").as_uri())
    packed = json.loads(page.locator("#cosines").text_content() or "")
    block = packed["block"]
    assert block > 1
    reader = page.locator(".reader")
    first, second = reader.locator("input").all()
    first.fill("700")
    second.fill("1499")
    second.press("Enter")
    rows, columns = (slice(at // block * block, (at // block + 1) * block) for at in (700, 1499))
    stated = read(reader)
    assert stated[2] == pytest.approx(cosines[0][rows, columns].mean(), abs=0.005)
    assert stated[3] == pytest.approx(cosines[1][rows, columns].mean(), abs=0.005)
    assert f"{rows.start} to {rows.stop - 1} and" in reader.locator("output").inner_text()
    assert f"means of {block} × {block} pairs" in reader.inner_text()


def test_a_zero_row_is_undefined(tmp_path: Path, show: Callable[..., Page]) -> None:
    values = gaussian(9, 3)
    values[4] = 0
    folder = pp.analyze(as_table(values), only=["similarity"], nulls=0).save(tmp_path / "bundle")
    page = show((folder / "report.html").as_uri())
    first = page.locator(".reader input").first
    first.fill("4")
    first.press("Enter")
    assert "cosine undefined raw" in page.locator(".reader output").inner_text()


# Spectra, tables, copies.


def test_spectra_can_be_read_by_period(bundles: Path, show: Callable[..., Page]) -> None:
    page = show(address(bundles, "sequence"))
    unfold(page)

    def labels() -> list[list[str]]:
        axes = page.locator('[id^="spectrum-matplotlib.axis"]').all()
        return [axis.locator("text").all_text_contents() for axis in axes]

    before = labels()
    swap = page.get_by_role("button", name="Swap frequency and period").first
    swap.focus()
    page.keyboard.press("Enter")
    assert swap.get_attribute("aria-pressed") == "true"
    swapped = 0
    for old, new in zip(before, labels(), strict=True):
        title = next((text for text in old if re.match("(dominant )?(frequency|period)", text)), "")
        if not title:
            assert old == new
            continue
        swapped += 1
        wanted = {"frequency": "period", "period": "frequency"}
        for text, other in zip(old, new, strict=True):
            if text[0].isdigit():
                assert float(text) * float(other) == pytest.approx(1, rel=0.01)
            elif text == title:
                (word,) = re.findall("frequency|period", text)
                assert wanted[word] in other
                assert word not in other
            assert ("cycles per" in other) != ("cycles per" in text) or "position" not in text
    assert swapped == 3
    swap.press("Enter")
    assert labels() == before


def test_tables_sort_by_pointer_and_key(bundles: Path, show: Callable[..., Page]) -> None:
    page = show(address(bundles, "schemes"))
    page.locator("summary").first.click()
    table = page.locator("details table").first
    header = table.locator("thead th").nth(1)
    button = header.locator("button")

    def column(k: int) -> list[float]:
        return [float(row.split("\t")[k]) for row in table.locator("tbody tr").all_inner_texts()]

    given = column(0)
    assert len(given) == 112
    button.click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(1) == sorted(column(1))
    button.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert column(1) == sorted(column(1), reverse=True)
    table.locator("thead th button").first.press(" ")
    assert header.get_attribute("aria-sort") is None
    for _ in range(2):
        table.locator("thead th button").first.click()
    assert column(0) == given
    assert page.locator("[aria-sort]").count() == 0


def test_numbers_citation_and_command_can_be_copied(
    bundles: Path, show: Callable[..., Page]
) -> None:
    page = show(address(bundles, "sequence"), permissions=["clipboard-read", "clipboard-write"])
    unfold(page)
    copied = "navigator.clipboard.readText()"
    page.get_by_role("button", name="Copy command").click()
    assert page.evaluate(copied) == "posprobe analyze x"
    page.get_by_role("button", name="Copy citation").click()
    assert "posprobe: what a trained transformer" in page.evaluate(copied)
    assert page.get_by_role("status").last.inner_text() == "Copied: citation."
    page.get_by_role("button", name=re.compile("Copy table: Norms: numbers")).click()
    document = json.loads((bundles / "sequence" / "analysis.json").read_text(encoding="utf-8"))
    rows = [line.split("\t") for line in page.evaluate(copied).splitlines()]
    assert rows[0] == ["number", "value", "meaning"]
    assert {row[0]: row[1] for row in rows}["mean norm"] == f"{document['norms']['mean']:.3g}"


def test_files_can_be_saved_from_the_page_alone(bundles: Path, show: Callable[..., Page]) -> None:
    page = show(address(bundles, "sequence"), accept_downloads=True)
    unfold(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save analysis.json").click()
    document = Path(bundles / "sequence" / "analysis.json").read_text(encoding="utf-8")
    assert json.loads(saved.value.path().read_text(encoding="utf-8")) == json.loads(document)
    with page.expect_download() as saved:
        page.get_by_role("button", name=re.compile("Save CSV: Each number")).click()
    assert saved.value.suggested_filename.endswith(".csv")
    rows = list(csv.reader(StringIO(saved.value.path().read_text(encoding="utf-8"))))
    models = ["gaussian", "permuted", "walk", "stationary"]
    bands = [f"{model}{end}" for model in models for end in ("", ", 5 %", ", 95 %")]
    assert rows[0] == ["number", "number, meaning", "table", "sinusoid", *bands]
    # Every cell of a band is a number by itself, and the median lies between its ends.
    known = [row[4:] for row in rows[1:] if "–" not in row]
    assert known
    for row in known:
        numbers = np.array(row, dtype=float).reshape(len(models), 3)
        assert (numbers[:, 1] <= numbers[:, 0]).all()
        assert (numbers[:, 0] <= numbers[:, 2]).all()


# Names come from strangers.


@pytest.mark.parametrize("text", [*HOSTILE[:3], '=cmd|" /C calc"!A0'])
def test_a_hostile_name_does_nothing_in_a_browser(
    text: str, tmp_path: Path, show: Callable[..., Page]
) -> None:
    analysis = pp.analyze(named(text), only=["norms", "similarity"], nulls=0, command=text)
    folder = analysis.save(tmp_path / "bundle")
    page = show((folder / "report.html").as_uri(), accept_downloads=True)
    assert page.locator("h1").text_content() == plain(text)
    with page.expect_download() as saved:
        page.get_by_role("button", name=re.compile("Save CSV: Where the values")).click()
    cells = dict(csv.reader(StringIO(saved.value.path().read_text(encoding="utf-8"))))
    shown = " ".join(plain(text).split())
    # A spreadsheet takes what begins so for a formula.
    assert cells["reference"] == (f"'{shown}" if shown[0] in "=+-@" else shown)


def test_a_script_from_elsewhere_does_not_run(bundles: Path, browser: Browser) -> None:
    source = (bundles / "schemes" / "report.html").read_text(encoding="utf-8")
    foreign = "<script>window.ran = 1</script><img src='x:y' onerror='window.ran = 2'></body>"
    changed = bundles / "schemes" / "changed.html"
    changed.write_text(source.replace("</body>", foreign), encoding="utf-8")
    page = browser.new_page()
    page.goto(changed.as_uri())
    assert page.evaluate("window.ran") is None
    assert page.locator("button").count() > 0
    page.close()
    changed.unlink()


# A folder of bundles.


def test_the_list_of_bundles_leads_to_each(bundles: Path, show: Callable[..., Page]) -> None:
    page = show(address(bundles, "index"))
    links = page.locator("tbody th a").all()
    assert len(links) == len(BUNDLES)
    for link in links:
        assert (bundles / unquote(link.get_attribute("href") or "")).is_file()
    texts = dict(zip(sorted(BUNDLES), page.locator("tbody tr").all_inner_texts(), strict=True))
    assert "20 × 18 patches" in texts["patches"]
    assert "\t360\t" in texts["patches"]
    assert "comparison of 2 tables" in texts["comparison"]
    links[0].click()
    assert page.title()
    assert page.url.endswith("report.html")


def test_names_in_the_list_are_text(tmp_path: Path, show: Callable[..., Page]) -> None:
    for number, text in enumerate(HOSTILE):
        table = replace(as_table(walk(12, 4)), name=text)
        pp.analyze(table, only=["norms"], nulls=0).save(tmp_path / f"{number} #?%<b>")
    write_index(tmp_path)
    page = show((tmp_path / "index.html").as_uri())
    assert page.locator("tbody tr").count() == len(HOSTILE)
    assert page.locator("b, img:not([src^='data:image/png;base64,'])").count() == 0
    page.locator("tbody th a").nth(1).click()
    assert page.locator("h1").count() == 1


# The atlas of a sweep.


def test_the_atlas_shows_a_training_run_and_its_lineage(
    bundles: Path, show: Callable[..., Page]
) -> None:
    page = show(address(bundles, "training run"))
    title = page.get_by_role("heading", name="Training run").inner_text()
    assert title == f"Training run: mine {plain(HOSTILE[0])}"
    assert page.locator("figure svg").count() == 1
    assert "distance from the last" in page.locator("figure svg").inner_html()
    table = page.get_by_role("table", name="Lineages of more than one table")
    assert table.locator("tbody tr").count() == 1
    assert table.locator("tbody td").first.inner_text() == "4"
    page.get_by_label("Colour by").select_option("lineage")
    assert page.locator(".legend").first.inner_text() == "step-0.npy (4)"


def test_the_atlas_is_filtered_sorted_and_read_by_keys(
    bundles: Path, show: Callable[..., Page]
) -> None:
    page = show(address(bundles, "atlas"))
    known = pp.read_sweep(bundles / "sweep").to_pylist()
    names = [row["name"] for row in known]
    body = page.locator("table").last.locator("tbody tr:visible th")

    def seen() -> list[str]:
        return [text.split("\n")[0] for text in body.all_inner_texts()]

    assert seen() == names
    # Names and groups of strangers are text, in every list that the script makes of them.
    assert page.locator("b").count() == 0
    assert page.locator(".legend").first.inner_text().count(plain(HOSTILE[0])) == 1
    sort = page.get_by_role("button", name="participation ratio").first
    sort.press("Enter")
    by_ratio = sorted(known, key=lambda row: row["pca.participation_ratio"])
    assert seen() == [row["name"] for row in by_ratio]
    page.get_by_label("Filter").press_sequentially("sinus")
    assert seen() == ["sinusoidal:30x8"]
    assert "1 of 6 rows" in page.locator(".bar output").inner_text()
    assert page.locator(".points [class^=c]").count() == 2  # on the map and on the scatter
    for _ in range(5):
        page.keyboard.press("Backspace")
    page.get_by_label("Show only").select_option("group")
    page.get_by_label("where it is").select_option(plain(HOSTILE[0]))
    assert set(seen()) == set(names[1:])
    # From point to point, and to the row.
    scatter = page.locator(".map").last
    page.get_by_label("Across").select_option("positions")
    scatter.focus()
    assert scatter.evaluate("e => getComputedStyle(e).outlineStyle") != "none"
    for count in range(1, SWEPT):
        scatter.press("ArrowRight")
        assert f"positions {20 + count}" in page.locator(".map + p output").last.inner_text()
    scatter.press("Enter")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused.startswith("5 <b>.npy")
