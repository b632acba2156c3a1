"""Figures for papers: exact widths, readable text, one raster per heat map, the same bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest
from made_figures import assert_colour_maps, pyplot_is_left_alone, texts
from made_schemes import buckets, linear, rotary, window
from made_tables import as_table, gaussian, patches, walk, waves
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.text import Text
from PIL import Image

import posprobe as pp
from posprobe.errors import OutputError, UsageError
from posprobe.figures import style
from posprobe.figures.styles import venues
from posprobe.studies.figure import (
    PaperFigure,
    drawings,
    kinds,
    multi_table_kinds,
    paper_figure,
)
from posprobe.studies.run_figures import RUN_FIGURES

if TYPE_CHECKING:
    from posprobe.figures.styles import Span
    from posprobe.schemes import Encoding

#: Widths in inches that the author kits state, found independently of the code.
KIT_WIDTHS = {
    "acl": ((21 - 2 * 2.5 - 0.6) / 2 / 2.54, (21 - 2 * 2.5) / 2.54),
    "neurips": (5.5, 5.5),
    "iclr": (5.5, 5.5),
    "icml": ((6.75 - 0.25) / 2, 6.75),
    "cvpr": (3.25, 6 + 7 / 8),
    "aaai": ((7 - 0.375) / 2, 7.0),
    "jmlr": (6.0, 6.0),
    "tmlr": (6.5, 6.5),
    "slides": ((14 - 0.4) / 2 / 2.54, (16 - 2) / 2.54),
    "web": (360 / 96, 720 / 96),
}
#: Autouse: it holds every drawing here to leaving no figure and no setting behind.
__all__ = ["pyplot_is_left_alone"]


def sequence(name: str = "waves", seed: int = 0) -> pp.PositionTable:
    return as_table(waves(96, [6.0, 18.0, 40.0], seed=seed, noise=0.05), name=name)


@cache
def records(case: str) -> tuple[Encoding, ...]:
    """What each case draws, made once."""
    long_table = as_table(walk(120, 6), name="a longer walk with a long name")
    grid = patches(6, 8, 12)
    record_cases: dict[str, tuple[Encoding, ...]] = {
        "sequence": (sequence(),),
        "cut": (long_table[20:70],),
        "several": (sequence(), long_table, pp.sinusoidal(96, 6)),
        "six": tuple(sequence(f"table {k}", k) for k in range(6)),
        "grid": (grid,),
        "grids": (grid, pp.sincos2d(6, 8, 12)),
        "curves": (buckets(4),),
        "causal": (buckets(8, causal=True),),
        "layers": tuple(buckets(4, name=f"layer {k}", seed=k) for k in range(3)),
        "window": (window(),),
        "windows": (window(name="stage 0"), window(7, 7, 4, name="stage 1")),
        "rotary": (rotary(scaling={"rope_type": "linear", "factor": 2.0}),),
        "alibi": (linear(),),
    }
    return record_cases[case]


#: Kinds that draw tables or schemes: one case for each; others in `CASES`.
KINDS = tuple(drawings())
KINDS_OF_SEVERAL = multi_table_kinds()
FIRST_CASES = dict.fromkeys(KINDS, "sequence") | {
    "mosaic": "grid", "axis_codes": "grid", "heads": "curves", "comparison": "several",
}  # fmt: skip
CASES = [
    *FIRST_CASES.items(),
    *((kind, "several") for kind in KINDS_OF_SEVERAL if kind != "comparison"),
    *((kind, "grids") for kind in KINDS_OF_SEVERAL),
    ("comparison", "six"),
    *((kind, "grid") for kind in ("similarity", "profile", "variance", "components", "trajectory")),
    *((kind, "grid") for kind in ("spectrum", "table", "norms")),
    *(("heads", case) for case in ("causal", "layers", "window", "windows", "rotary", "alibi")),
    *((kind, "cut") for kind in ("trajectory", "table")),
]  # fmt: skip


@cache
def made(kind: str, case: str, venue: str = "acl", span: Span = "column") -> PaperFigure:
    return paper_figure(kind, *records(case), venue=venue, span=span)


def table_of(case: str) -> pp.PositionTable:
    (record,) = records(case)
    assert isinstance(record, pp.PositionTable)
    return record


def check_page(figure_drawn: PaperFigure, venue: str, span: Span) -> None:
    """Hold a figure to its width, to text of 7 to 9 points, and to nothing beyond the page."""
    width, height = figure_drawn.figure.get_size_inches()
    assert width == KIT_WIDTHS[venue][span == "page"]
    assert 1 < height <= venues()[venue].height + 1e-9
    assert all(
        7 <= float(text.get_fontsize()) <= 9 for text in texts(figure_drawn.figure)
    )
    with style(venue, span=span):
        tight_box = figure_drawn.figure.get_tightbbox()
    # Hundredths of an inch: nothing that is drawn is cut off.
    assert tight_box.x0 >= -0.01
    assert tight_box.y0 >= -0.01
    assert tight_box.x1 <= width + 0.01
    assert tight_box.y1 <= height + 0.01
    check_labels_apart(figure_drawn.figure)


def check_labels_apart(figure: Figure) -> None:
    """Hold labels of neighbouring ticks to a gap, and legends to a place free of axis labels."""
    for axes in figure.axes:
        for axis, side in ((axes.xaxis, 0), (axes.yaxis, 1)):
            low, high = sorted(axis.get_view_interval())
            boxes = [
                tick.label1.get_window_extent().get_points()[:, side]
                for tick in axis.get_major_ticks()
                if tick.label1.get_visible()
                and tick.label1.get_text()
                and low <= tick.get_loc() <= high
            ]
            boxes.sort(key=lambda ends: ends[0])
            for before, after in pairwise(boxes):
                assert before[1] < after[0], (axes.get_title(), axis.axis_name)
    legends = figure.findobj(Legend)
    labels = [
        label
        for axes in figure.findobj(Axes)
        for label in (axes.xaxis.label, axes.yaxis.label)
        if label.get_text() and label.get_visible()
    ]
    for legend in legends:
        frame = legend.get_window_extent()
        assert not any(frame.overlaps(label.get_window_extent()) for label in labels)


# Widths and text.


@pytest.mark.parametrize("venue", KIT_WIDTHS)
def test_widths_are_those_of_the_author_kits(venue: str) -> None:
    result = venues()[venue]
    assert (result.column, result.page) == pytest.approx(KIT_WIDTHS[venue], abs=1e-9)
    # The kit is named, and says a length.
    assert re.search(r"\d+(\.\d+)?( true |-| )?(in|cm|inches|pixels)\b", result.source)
    assert result.height <= 10


def test_every_venue_and_kind_is_tested() -> None:
    assert set(venues()) == set(KIT_WIDTHS)
    assert {kind for kind, _ in CASES} == set(KINDS)


def test_kinds_of_runs_and_series_are_kinds_in_python_too() -> None:
    assert set(kinds()) == {*KINDS, *RUN_FIGURES, "series"}
    for kind in (*RUN_FIGURES, "series"):
        with pytest.raises(UsageError, match=f"^{kind} draws "):
            paper_figure(kind, sequence())


@pytest.mark.parametrize("venue", KIT_WIDTHS)
def test_cosines_are_drawn_for_every_venue(venue: str) -> None:
    check_page(
        made("similarity", FIRST_CASES["similarity"], venue, "column"), venue, "column"
    )


@pytest.mark.parametrize("kind", ["mosaic", "components", "winding", "heads"])
def test_tall_and_panelled_figures_fit_slides(kind: str) -> None:
    check_page(made(kind, FIRST_CASES[kind], "slides", "column"), "slides", "column")


@pytest.mark.parametrize("kind", ["comparison", "axis_codes", "clock"])
def test_figures_too_tall_for_half_a_slide_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match="`span='page'`"):
        made(kind, FIRST_CASES[kind], "slides", "column")


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_every_layout_and_number_of_tables_is_drawn_as_papers_ask(
    kind: str, case: str
) -> None:
    figure_drawn = made(kind, case)
    check_page(figure_drawn, "acl", "column")
    assert_colour_maps(figure_drawn.figure)
    check_legends(figure_drawn.figure)
    assert figure_drawn.caption.endswith(".\n")
    assert figure_drawn.source.endswith(f"Made with posprobe {pp.__version__}.\n")
    assert "\n" not in figure_drawn.caption[:-1]
    assert "  " not in figure_drawn.caption
    if kind in KINDS_OF_SEVERAL or kind == "components":
        check_page(made(kind, case, "acl", "page"), "acl", "page")


def check_legends(figure: Figure) -> None:
    """Hold lines of a legend to being told apart without colour."""
    for axes in figure.axes:
        looks = {}
        for line in axes.lines:
            label = str(line.get_label())
            if not label.startswith("_"):
                dash = line._dash_pattern  # type: ignore[attr-defined]
                empty = line.get_linestyle() == "None"
                face = str(line.get_markerfacecolor()) if empty else ""
                looks[label] = str(dash), empty, line.get_marker(), face
                # White markers have an edge.
                ink = line.get_markeredgecolor() if empty else line.get_color()
                assert np.dot(mpl.colors.to_rgb(ink), [0.299, 0.587, 0.114]) < 0.9
        assert len(set(looks.values())) == len(looks)


# What the drawings hold.


def test_the_path_darkens_steadily_in_grey_and_joins_the_scores() -> None:
    figure = made("trajectory", "cut").figure
    scores = pp.pca(table_of("cut")).scores
    (path,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    corners = np.array(path.get_segments())
    np.testing.assert_allclose(corners[:, 0], scores[:-1, :2])
    np.testing.assert_allclose(corners[:, 1], scores[1:, :2])
    gray = np.asarray(path.get_colors())[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(gray) > 0).all()


def test_on_a_grid_every_row_is_a_path_of_its_own() -> None:
    figure = made("trajectory", "grid").figure
    (path,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    assert [len(segment) for segment in path.get_segments()] == [8] * 6
    assert len(np.unique(np.asarray(path.get_colors()), axis=0)) == 6


# Files.


def saved(figure_drawn: PaperFigure, path: Path) -> bytes:
    figure_drawn.save(path)
    return path.read_bytes()


#: Rasters by kind: each heat map at the size of its data, and one colour bar.
@pytest.mark.parametrize(
    ("kind", "case", "sizes"),
    [
        ("similarity", "sequence", [(96, 96)] * 2),
        ("similarity", "several", [(96, 96), (120, 120), (96, 96)]),
        ("mosaic", "grid", [(8 * 9 - 1, 6 * 7 - 1)]),
        ("profile", "grid", [(15, 11)]),
        ("components", "grid", [(8, 6)] * 6),
        ("table", "sequence", [(96, 6)]),
        ("norms", "grid", [(8, 6)]),
        ("comparison", "several", [(96, 96)] * 3),
        ("heads", "window", [(3 * 9 + 2, 9)] * 2),  # gaps are transparent: a mask
        ("profile", "sequence", []),
        ("variance", "several", []),
        ("shift", "sequence", []),
    ],
)
def test_a_pdf_has_exact_width_embedded_fonts_and_rasters(
    kind: str, case: str, sizes: list[tuple[int, int]], tmp_path: Path
) -> None:
    content = saved(made(kind, case), tmp_path / "f.pdf")
    (box,) = re.findall(rb"/MediaBox \[ ([\d. ]+) \]", content)
    left, bottom, right, _ = map(float, box.split())
    assert (left, bottom) == (0, 0)
    assert right / 72 == pytest.approx(KIT_WIDTHS["acl"][0], abs=1e-4)
    assert b"/Type3" not in content
    assert b"/FontFile2" in content
    assert b"/CreationDate" not in content
    objects = re.findall(
        rb"<<(?:(?!>>).)*?/Subtype /Image.*?>>\s*(?:/|stream)", content, re.DOTALL
    )
    rasters = []
    for text in re.findall(rb"\d+ 0 obj\s(.*?)stream", content, re.DOTALL):
        if b"/Subtype /Image" in text:
            size = (re.search(rb"/Width (\d+)", text), re.search(rb"/Height (\d+)", text))
            rasters.append(tuple(int(number[1]) for number in size if number))
    assert len(rasters) >= len(objects) - 1
    bars = [size for size in rasters if size not in sizes]
    assert sorted(size for size in rasters if size in sizes) == sorted(sizes)
    assert len(bars) <= (1 if sizes else 0)


def test_a_png_has_its_pixels_and_an_svg_its_width_and_text(tmp_path: Path) -> None:
    figure_drawn = made("profile", "sequence")
    saved(figure_drawn, tmp_path / "f.png")
    with Image.open(tmp_path / "f.png") as image:
        assert image.size[0] == pytest.approx(KIT_WIDTHS["acl"][0] * 300, abs=1)
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    svg = saved(figure_drawn, tmp_path / "f.svg").decode()
    (width,) = re.findall(r'<svg[^>]* width="([\d.]+)pt"', svg)
    assert float(width) / 72 == pytest.approx(KIT_WIDTHS["acl"][0], abs=1e-4)
    assert "offset (positions)" in svg
    assert "<dc:date>" not in svg


@pytest.mark.parametrize("kind", ["trajectory", "comparison"])
def test_the_same_figure_gives_the_same_bytes(kind: str, tmp_path: Path) -> None:
    repeated = paper_figure(kind, *records(FIRST_CASES[kind]))
    assert repeated.caption == made(kind, FIRST_CASES[kind]).caption
    for suffix in ("pdf", "svg", "png"):
        first_bytes = saved(made(kind, FIRST_CASES[kind]), tmp_path / f"a.{suffix}")
        assert saved(repeated, tmp_path / f"b.{suffix}") == first_bytes
    # Drawing it once more, after other formats, changes nothing.
    assert saved(repeated, tmp_path / "b.pdf") == (tmp_path / "a.pdf").read_bytes()


def test_the_caption_stands_beside_the_figure_above_its_sources(tmp_path: Path) -> None:
    figure_drawn = made("similarity", "sequence")
    caption_path = figure_drawn.save(tmp_path / "one.two.pdf")
    assert caption_path == tmp_path / "one.two.caption.txt"
    caption, source = caption_path.read_text(encoding="utf-8").split("\n\n")
    assert (f"{caption}\n", source) == (figure_drawn.caption, figure_drawn.source)


@pytest.mark.parametrize("name", ["f.jpg", "f", "f.eps", ".pdf"])
def test_unknown_suffixes_are_refused_with_the_known_ones(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"\.pdf, \.svg or \.png"):
        made("profile", "sequence").save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_all_files(tmp_path: Path) -> None:
    figure_drawn = made("profile", "sequence")
    with pytest.raises(OutputError, match="no folder"):
        figure_drawn.save(tmp_path / "missing" / "f.pdf")
    (tmp_path / "d.pdf").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        figure_drawn.save(tmp_path / "d.pdf")
    (tmp_path / "e.caption.txt").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        figure_drawn.save(tmp_path / "e.pdf")
    with pytest.raises(OutputError):
        figure_drawn.save(tmp_path / ("x" * 300 + ".pdf"))
    with pytest.raises(OutputError):
        figure_drawn.save(tmp_path / "a\0b.pdf")
    assert {path.name for path in tmp_path.iterdir()} == {"d.pdf", "e.caption.txt"}


# What an author can ask for.


def drawn_in(figure: Figure) -> list[AxesImage]:
    return [image for ax in figure.axes for image in ax.images]


def test_labels_name_tables_in_figure_and_caption() -> None:
    a, b = sequence("one"), sequence("two", 5)
    figure = paper_figure("similarity", a, b, labels=("GPT-2", "BERT"))
    titles = {ax.get_title(loc="left") for ax in figure.figure.axes}
    assert {"GPT-2", "BERT"} <= titles
    assert "GPT-2: learned table" in figure.caption
    assert not {"one", "two"} & titles
    with pytest.raises(UsageError, match="as many labels"):
        paper_figure("similarity", a, b, labels=("GPT-2",))


def test_rows_are_drawn_as_stored_or_centred_as_asked() -> None:
    table = pp.table(sequence().values + 2.0, name="shifted")
    result = pp.similarity(table)
    for centred, cosine in ((True, result.centered), (False, result.raw)):
        (image, *other_images) = drawn_in(
            paper_figure("similarity", table, centred=centred).figure
        )
        assert not other_images
        np.testing.assert_allclose(np.asarray(image.get_array()), cosine.matrix)
        profile = paper_figure("profile", table, centred=centred)
        curve = profile.figure.axes[0].lines[0].get_ydata()
        np.testing.assert_allclose(np.asarray(curve), cosine.offset_mean)
        assert ("after subtracting the mean row" in profile.caption) == centred
    with pytest.raises(UsageError, match="`centred` applies only"):
        paper_figure("variance", table, centred=True)


def test_no_more_panels_stand_side_by_side_than_asked() -> None:
    tables = [sequence(f"table {k}", k) for k in range(3)]
    for columns in (1, 3):
        figure = paper_figure("similarity", *tables, columns=columns, span="page")
        left_edges = {
            round(ax.get_position().x0, 2) for ax in figure.figure.axes if ax.images
        }
        assert len(left_edges) == columns
    with pytest.raises(UsageError, match="`columns` applies only"):
        paper_figure("norms", tables[0], columns=2)
    with pytest.raises(UsageError, match="`columns=0`"):
        paper_figure("similarity", *tables, columns=0)


def test_papers_are_set_in_serif_and_slides_are_not() -> None:
    for venue, face in (("acl", "STIXGeneral"), ("slides", "DejaVu Sans")):
        figure = paper_figure("norms", sequence(), venue=venue).figure
        written = [text for text in figure.findobj(Text) if text.get_text()]
        assert {text.get_fontname() for text in written} == {face}


def test_decades_of_an_axis_are_written_in_one_way() -> None:
    from posprobe.figures.common import label_decades

    for low, high, written in (
        (1e-4, 1.0, ["0.0001", "0.001", "0.01", "0.1", "1"]),
        (1e-6, 1e-2, ["1e-6", "1e-5", "1e-4", "1e-3", "1e-2"]),
        (1e3, 1e6, ["1e3", "1e4", "1e5", "1e6"]),
    ):
        ax = Figure().subplots()
        ax.set(yscale="log", ylim=(low, high))
        label_decades(ax.yaxis)
        ticks = [t for t in ax.get_yticks() if low <= t * 1.001 and t <= high * 1.001]
        assert [ax.yaxis.get_major_formatter()(tick) for tick in ticks] == written


@pytest.mark.parametrize(
    "label",
    ["a" * 200, "_hidden $x_1$ \\frac{1}", "naïve 模型 🙂 <b>&\tnew\nline", ""],
)
def test_any_name_can_be_drawn(label: str, tmp_path: Path) -> None:
    tables = as_table(walk(40, 4), name=label), as_table(walk(40, 4, 1), name="other")
    figure_drawn = paper_figure("comparison", *tables)
    for suffix in ("pdf", "svg"):
        assert saved(figure_drawn, tmp_path / f"f.{suffix}")
    assert "\n" not in figure_drawn.caption[:-1]


# Captions hold true numbers.


def test_a_caption_names_its_table_and_method() -> None:
    table = pp.load("sample:sapiens-roberta")
    figure = paper_figure("similarity", table)
    result = pp.similarity(table)
    for phrase in (
        "n = 144",
        "d = 128",
        "positions 0 to 143",
        "rows 0 to 1 as stored left out",
        "after subtracting the mean row",
        f"{result.raw.neighbour_mean:.3g} raw",
        f"{result.centered.neighbour_mean:.3g} centred",
    ):
        assert phrase in figure.caption
    for phrase in (
        "decoder.sentence_encoder.embed_positions.weight (F32)",
        "sample:sapiens-roberta",
        f"SHA-256 {str(table.source.sha256)[:12]}",
        f"posprobe {pp.__version__}",
    ):
        assert phrase in figure.source
        assert phrase not in figure.caption


def test_a_caption_names_the_revision_and_the_rows() -> None:
    first, second = sequence("one"), sequence("two", 5)
    hub = replace(first, source=replace(first.source, revision="0123456789abcdef" * 2))
    figure = paper_figure("profile", hub[10:60], second)
    assert "revision 0123456789ab" in figure.source
    assert "positions 10 to 59" in figure.caption


def numbers_of(kind: str, record: Any) -> list[str]:
    """What a caption must hold, computed from the record by the analyses."""
    match kind:
        case "variance":
            result = pp.pca(record)
            needed = result.components_for(0.9)
            return [
                f"stable rank {result.stable_rank:.3g}",
                f"{needed} components for 90 %",
            ]
        case "spectrum":
            spectrum = pp.spectrum(record)
            periods = [f"{line.period:.3g}" for line in spectrum.lines]
            assert periods
            return [f"{spectrum.entropy:.3g}", "Hann window", *periods]
        case "components":
            return [
                f"{pp.pca(record).explained_variance_ratio[:6].sum():.1%}",
                "columns centred",
            ]
        case "norms":
            return [f"mean {pp.norms(record).norms.mean():.3g}"]
        case "shift":
            shift = pp.shift(record)
            periods = [f"{period:.3g}" for period in shift.periods[shift.rotations]]
            assert periods
            return [
                f"held-out rows: {shift.skill:.3g}",
                f"first {shift.rank} princ",
                *periods,
            ]
        case "mosaic":
            return ["6 × 8", f"{pp.grid(record).neighbour_right:.3g} with the right"]
        case "spectrogram":
            return [f"segments of {pp.spectrogram(record).length} positions"]
        case "table":
            return [f"±{np.percentile(np.abs(record.values), 99):.3g}"]
        case "heads":
            return [f"{record.slopes.max():.3g} to {record.slopes.min():.3g}", "8 heads"]
    return []


@pytest.mark.parametrize(
    ("kind", "case"),
    [item for item in FIRST_CASES.items() if item[1] != "several" and item[0] != "heads"]
    + [("heads", "alibi")],
)
def test_captions_hold_the_numbers_of_the_analyses(kind: str, case: str) -> None:
    text = made(kind, case).caption
    for number in numbers_of(kind, records(case)[0]):
        assert number in text


# Refusals.


FOUR = tuple(rotary(f"r{k}", base=10.0 ** (3 + k)) for k in range(4))


@pytest.mark.parametrize(
    ("kind", "arguments", "options", "phrase"),
    [
        ("mosaic", "sequence", {}, "positions on a grid"),
        ("heads", "sequence", {}, "and no tables"),
        ("heads", (), {}, "and no tables"),
        ("similarity", "curves", {}, "kind heads"),
        ("similarity", (), {}, "0 are given"),
        ("norms", "several", {}, "1 to 1 tables, and 3 are given"),
        ("comparison", "sequence", {}, "2 to 6 tables"),
        ("shift", "grid", {}, "cannot be drawn"),
        ("spectrogram", "grid", {}, "cannot be drawn"),
        ("pie", "sequence", {}, "Choose one of budget, clock, mosaic"),
        ("profile", "sequence", {"venue": "nature"}, "Choose one of acl, neurips"),
        ("profile", "sequence", {"span": "wide"}, "Choose one of column, page"),
        ("variance", (sequence(),) * 7, {}, "1 to 6 tables, and 7 are given"),
        ("profile", (sequence(), patches(6, 8, 12)), {}, "same grid"),
        ("heads", (buckets(), rotary()), {}, "REF#NAME"),
        ("heads", (buckets(), window()), {}, "do not share a figure"),
        ("heads", FOUR, {}, "4 rotations differ"),
    ],
)
def test_inapplicable_figures_are_refused_with_the_possible_ones(
    kind: str, arguments: Any, options: Any, phrase: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(phrase)):
        paper_figure(
            kind,
            *(records(arguments) if isinstance(arguments, str) else arguments),
            **options,
        )


@pytest.mark.parametrize(
    "kind", ["variance", "components", "trajectory", "spectrum", "shift"]
)
def test_undefined_values_are_not_drawn(kind: str) -> None:
    with pytest.raises(UsageError, match=f"{kind} cannot be drawn: "):
        paper_figure(kind, as_table(np.full((32, 3), 0.1)))
    if kind == "trajectory":
        with pytest.raises(UsageError, match="two components"):
            paper_figure(kind, as_table(gaussian(30, 1)))


def test_captions_describe_what_is_drawn() -> None:
    t = np.arange(120.0)
    ring = np.stack([np.cos(t / 5), np.sin(t / 5)], axis=1) @ gaussian(2, 16)
    ring[:3] = 40 * gaussian(3, 16)  # special rows: the rest is measured
    table = as_table(ring + 0.01 * gaussian(120, 16))
    for kind in ("winding", "bridging"):
        text = paper_figure(kind, table).caption
        assert "positions 3 to 119 " in text, kind
    grid = patches(6, 6, 8)
    assert (
        "of the row code and of the column code" in paper_figure("bridging", grid).caption
    )
    plural_captions = {
        "similarity": "rows as stored.",
        "profile": "rows after subtracting the mean row.",
    }
    for kind, treated in plural_captions.items():
        assert treated in paper_figure(kind, table, table, labels=["a", "b"]).caption


def test_a_caption_says_which_cells_are_means_only_where_some_are() -> None:
    small, large = sequence("small"), as_table(gaussian(1100, 4), name="large")
    assert "Each cell" not in paper_figure("similarity", small).caption
    assert "mean of 3 × 3 pairs." in paper_figure("similarity", large).caption
    several = paper_figure("similarity", small, large).caption
    assert "Each cell is the mean of 3 × 3 pairs (large)." in several
    assert "one row in 3." in paper_figure("table", large).caption
    assert "Drawn" not in paper_figure("table", small).caption


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"heads"}))
def test_a_caption_of_a_line_names_no_grid_and_the_other_way_round(kind: str) -> None:
    if FIRST_CASES[kind] != "grid":
        text = made(kind, FIRST_CASES[kind]).caption
        assert "grid" not in text
        assert "patch" not in text
    if (kind, "grid") in CASES:
        assert "random walk" not in made(kind, "grid").caption
        assert "Hann" not in made(kind, "grid").caption


# The style of a venue.


def test_results_take_the_look_of_the_venue_they_are_plotted_in() -> None:
    result = pp.similarity(sequence())
    with style("icml", span="page"):
        figure: Any = result.plot().figure
        assert figure.get_size_inches()[0] == 6.75
    with style("web"):
        other_axes = pp.pca(sequence()).plot()
    sizes = {float(text.get_fontsize()) for text in texts(other_axes.figure)}  # type: ignore[arg-type]
    assert sizes == {8, 9}
    plt.close("all")


def test_a_style_within_a_style_keeps_the_outer_one() -> None:
    with style("acl"):
        width = mpl.rcParams["figure.figsize"][0]
        with style():
            assert mpl.rcParams["figure.figsize"][0] == width == KIT_WIDTHS["acl"][0]
        with style("aaai"):
            assert mpl.rcParams["figure.figsize"][0] == KIT_WIDTHS["aaai"][0]
        assert mpl.rcParams["figure.figsize"][0] == width
    with style():
        assert mpl.rcParams["figure.figsize"] == mpl.rcParamsDefault["figure.figsize"]


def test_axes_of_grids_are_of_patches() -> None:
    axes = made("similarity", "grid").figure.axes[0]
    assert axes.get_xlabel() == axes.get_ylabel() == "patch, row by row"
    assert made("similarity", "sequence").figure.axes[0].get_xlabel() == "position"
