"""Figures of encodings without a table: the records' own numbers, on ranges that are shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_figures import ax, hold_to_colours, numbers_of, pyplot_is_left_alone, texts
from made_pages import SCHEMES
from made_schemes import buckets, linear, rotary, source, window
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from posprobe.analyses.models.head_biases import smoothness
from posprobe.analyses.models.rotary import rotation
from posprobe.figures import style
from posprobe.figures.common import REPORT
from posprobe.figures.comparison import KERNEL_FIGURES
from posprobe.figures.relative import MAX_HEADS, MAX_LAYERS, MAX_STRIPES
from posprobe.figures.schemes import MAX_FIGURES, decay, scheme_figures, short_names
from posprobe.report.schemes import analyze_schemes
from posprobe.schemes import RelativeBias, Scheme

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes


#: A fixture that pytest finds by name.
__all__ = ["ax", "pyplot_is_left_alone"]


def drawn(*records: Scheme) -> dict[str, Figure]:
    """Every figure of a bundle, laid out."""
    made = {}
    for name, make in scheme_figures(records, analyze_schemes(*records).results).items():
        with style():
            made[name] = make()
            made[name].draw_without_rendering()
    return made


def panels(figure: Figure) -> list[Axes]:
    """The Axes that show something, colour bars left out."""
    return [ax for ax in figure.axes if ax.axison and ax.get_label() != "<colorbar>"]


# Biases by offset.


@pytest.mark.parametrize("causal", [False, True])
def test_few_heads_are_curves_told_apart_by_dash(causal: bool) -> None:
    record = buckets(heads=4, n=200, causal=causal)
    (ax,) = panels(drawn(record)["curves"])
    seen = 200 if causal else 399
    for curve, line in zip(record.curves(200), ax.lines, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(-199, 200)[:seen])
        np.testing.assert_array_equal(line.get_ydata(), curve[:seen])
    assert len({str(line._dash_pattern) for line in ax.lines}) == 4  # type: ignore[attr-defined]
    assert ax.get_xscale() == "symlog"
    alone = Figure().add_subplot()
    assert record.plot(alone) is alone
    for one, other in zip(alone.lines, ax.lines, strict=True):
        np.testing.assert_array_equal(one.get_ydata(), other.get_ydata())


def test_many_heads_become_stripes_that_hold_each_curve_less_its_mean() -> None:
    record = buckets(heads=20, n=60)
    curves = record.curves(60)
    alone = Figure().add_subplot()
    record.plot(alone)
    (ax,) = panels(drawn(record)["stripes"])
    for each in (ax, alone):
        (mesh,) = [artist for artist in each.collections if isinstance(artist, QuadMesh)]
        shown = numbers_of(mesh)
        np.testing.assert_allclose(shown, curves - curves.mean(axis=1, keepdims=True))
        low, high = mesh.get_clim()
        assert -low == high == np.abs(shown).max()


def test_offsets_on_a_page_are_not_called_positions() -> None:
    page = buckets(2, 101, name="page", unit="hundredths of the page's width")
    assert panels(drawn(page)["curves"])[0].get_xlabel() == (
        "offset (key minus query, hundredths of the page's width)"
    )
    both = drawn(buckets(2), page, buckets(2, name="other"))["stripes"]
    label = " ".join(panels(both)[0].get_xlabel().split())
    assert "positions or hundredths of the page's width" in label


def test_stripes_of_too_many_heads_skip_some_and_say_so() -> None:
    layers = [buckets(heads=24, n=20, name=f"block.{k}", seed=k) for k in range(20)]
    (ax,) = panels(drawn(*layers)["stripes"])
    (mesh,) = [artist for artist in ax.collections if isinstance(artist, QuadMesh)]
    assert numbers_of(mesh).shape[0] <= MAX_STRIPES
    assert "one in 3" in ax.get_ylabel()
    curves = layers[3].curves(20)
    centred = curves - curves.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(numbers_of(mesh)[24], centred[0])


# Biases by displacement.


def test_the_mosaic_holds_a_tile_for_each_layer_and_head() -> None:
    layers = [window(3, 3, heads=2 + k, name=f"layers.{k}.attn", seed=k) for k in range(4)]
    (ax,) = panels(drawn(*layers)["mosaic"])
    (image,) = ax.images
    canvas = numbers_of(image)
    assert canvas.shape == (4 * 6 - 1, 5 * 6 - 1)
    for r, record in enumerate(layers):
        for c in range(5):
            tile = canvas[6 * r : 6 * r + 5, 6 * c : 6 * c + 5]
            if c < record.heads:
                values = record.values[c]
                np.testing.assert_allclose(tile, values - values.mean())
            else:
                assert np.isnan(tile).all()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2", "3"]


def test_cosines_are_drawn_as_they_are_from_minus_one_to_one() -> None:
    layers = [window(4, 4, heads=1, quantity="cosine", name=f"b.{k}", seed=k) for k in range(3)]
    (ax,) = panels(drawn(*layers)["mosaic_cosine"])
    canvas = numbers_of(ax.images[0])
    for k, record in enumerate(layers):
        np.testing.assert_array_equal(canvas[8 * k : 8 * k + 7], record.values[0])
    assert ax.images[0].get_clim() == (-1, 1)
    assert ax.images[0].cmap.name == "RdBu_r"


def test_windows_of_two_sizes_share_a_mosaic_with_the_query_in_the_middle() -> None:
    layers = [window(side, side, heads=2, name=f"l.{side}") for side in (3, 4, 6)]
    (ax,) = panels(drawn(*layers)["mosaic"])
    canvas = numbers_of(ax.images[0])
    side = 2 * 11
    for r, record in enumerate(layers):
        tile = canvas[r * (side + 1) : r * (side + 1) + side, :side]
        centred = record.values[0] - record.values[0].mean()
        half = side // 2
        assert tile[half, half] == pytest.approx(
            centred[centred.shape[0] // 2, centred.shape[1] // 2]
        )
        assert set(tile.ravel()) == set(centred.ravel())


def test_a_mosaic_says_which_heads_and_layers_it_leaves_out() -> None:
    count = MAX_LAYERS + 6
    layers = [window(2, 2, heads=MAX_HEADS + 3, name=f"l.{k}", seed=k) for k in range(count)]
    (ax,) = panels(drawn(*layers)["mosaic"])
    assert len(ax.get_yticks()) == count // 2
    assert "one row in 2" in ax.get_ylabel()
    assert {note.get_text() for note in ax.texts} == {"+3"}
    assert len(ax.get_xticks()) == MAX_HEADS


def test_heads_of_a_single_window_stand_in_rows(ax: Axes) -> None:
    record = window(3, 3, heads=6)
    record.plot(ax)
    canvas = numbers_of(ax.images[0])
    # Two rows of three.
    np.testing.assert_allclose(canvas[6:11, 6:11], record.values[4] - record.values[4].mean())


# Rotary and linear biases.


def test_the_ladder_is_the_wavelengths_with_the_unscaled_ones_behind(ax: Axes) -> None:
    record = rotary(scaling={"rope_type": "linear", "factor": 4.0})
    record.plot(ax)
    lines = {str(line.get_label()): line for line in ax.lines}
    turns = 2 * np.pi / record.frequencies()
    np.testing.assert_allclose(np.asarray(lines["wavelength"].get_ydata()), turns)
    np.testing.assert_allclose(np.asarray(lines["before scaling"].get_ydata()), turns / 4)
    lengths = [np.asarray(line.get_ydata()) for line in ax.lines]
    levels = {float(line[0]) for line in lengths if line.size == 2}
    assert levels == {2048, 4096}
    never = int((turns > 4096).sum())
    assert any(f"{never} of 16 pairs" in note.get_text() for note in ax.texts)


def test_a_ladder_without_scaling_is_drawn_once(ax: Axes) -> None:
    rotary(training_length=4096).plot(ax)
    assert "before scaling" not in {str(line.get_label()) for line in ax.lines}
    assert [note.get_text() for note in ax.texts if "length" in note.get_text()] == ["length 4096"]


def test_the_decay_is_the_mean_cosine_with_its_first_negative_marked(ax: Axes) -> None:
    record = rotary()
    found: Any = rotation(record.frequencies(), target=4096)
    decay(ax, found)
    lines = {str(line.get_label()): line for line in ax.lines}
    distance, kernel = (np.asarray(data) for data in lines["mean rotation"].get_data())
    expected = np.cos(distance[:, None] * record.frequencies()).mean(axis=1)
    np.testing.assert_allclose(kernel, expected, atol=1e-12)
    (dot,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert list(np.asarray(dot.get_xdata())) == [found.first_negative]
    at = found.first_negative
    assert np.cos(at * record.frequencies()).mean() < 0
    assert np.cos((at - 1) * record.frequencies()).mean() >= 0


def test_equal_rotations_are_drawn_once() -> None:
    assert "rotation_2" not in drawn(rotary("a"), rotary("b"))
    assert "rotation_2" in drawn(rotary("a"), rotary("b", base=500.0))


def test_linear_biases_are_lines_of_slope_one_that_meet_one_logit_at_one_over_theirs(
    ax: Axes,
) -> None:
    record = linear(8)
    record.plot(ax)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    for slope, line in zip(record.slopes, ax.lines, strict=False):
        distance, penalty = (np.asarray(data) for data in line.get_data())
        np.testing.assert_allclose(penalty / distance, slope)
        np.testing.assert_allclose(penalty, -record.curves(300)[0, distance - 1 + 300] * slope * 2)
    assert {note.get_text() for note in ax.texts} == {f"head {head}" for head in range(8)}


# All of them.

BUNDLES: dict[str, Callable[[], tuple[Scheme, ...]]] = {
    **SCHEMES,
    "cosines and biases": lambda: (
        window(4, 4, 1, "a.pos", quantity="cosine"),
        window(9, 4, 2, "b.pos"),
        buckets(1, 30, "c.pos", quantity="cosine"),
        buckets(2, 30, "d.pos"),
    ),
    "one head": lambda: (linear(1), buckets(1, 3)),
    "zeros": lambda: tuple(
        RelativeBias(np.zeros((2, 5, 5)), window(3, 3).layout, f"zero.{k}", source())
        for k in range(3)
    ),
    "one cell": lambda: (window(1, 1, 2),),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_every_bundle_is_drawn_within_bounds_and_can_be_read(name: str) -> None:
    made = drawn(*BUNDLES[name]())
    assert 1 <= len(made) <= MAX_FIGURES
    for figure in made.values():
        assert figure.get_figwidth() <= 6.31
        assert figure.get_figheight() <= 8
        assert all(6 <= float(text.get_fontsize()) <= 8 for text in texts(figure))
        hold_to_colours(figure)


def test_smoothness_shows_each_head_over_its_band(ax: Axes) -> None:
    found = smoothness(window(5, 5, heads=4).values)
    found.plot(ax)
    (dots,) = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_array_equal(dots.get_ydata(), found.correlation)
    heights = [bar.get_height() for bar in ax.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights, found.p95)


def test_depth_shows_every_head_of_every_encoding() -> None:
    layers = [window(4, 4, heads=3, name=f"l.{k}", seed=k) for k in range(5)]
    results = analyze_schemes(*layers).results
    (ax,) = panels(drawn(*layers)["depth"])
    dots = [np.asarray(line.get_ydata()) for line in ax.lines if line.get_marker() == "."]
    expected = [result["smoothness"].correlation for result in results]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(dots, expected)


def test_names_lose_what_they_share() -> None:
    assert short_names(["a.0.b.bias", "a.1.b.bias", "a.1.c.bias"]) == ["0.b", "1.b", "1.c"]
    assert short_names(["whole.name"]) == ["whole.name"]
    assert short_names(["x.a", "x.b", "x.a"]) == ["0: x.a", "1: x.b", "2: x.a"]
    assert short_names(["a.b", "a.b.c"]) == ["a.b", "c"]
    assert short_names(["a.a", "a.a.a"]) == ["a.a", "a.a.a"]


@pytest.mark.parametrize("name", ["_hidden", "$\\frac{1}{0}$", "a/" * 100, "\x01<&"])
def test_names_of_encodings_are_drawn_whatever_they_are(name: str) -> None:
    records = (buckets(2, 20, name), rotary(name + "2"), linear(2, name + "3"))
    for figure in drawn(*records).values():
        for text in figure.findobj(Text):
            assert "$" not in text.get_text() or "frac" in text.get_text()


def test_curves_and_distances_of_kernels_hold_their_numbers() -> None:
    rng = np.random.default_rng(0)
    curves = {name: rng.standard_normal(19) for name in "abcd"}
    made = {}
    matrix = rng.uniform(-1, 1, (4, 4))
    references = {"distances": {"correlation": matrix}}
    for name, build in KERNEL_FIGURES.items():
        with style():
            made[name] = build(REPORT, curves, references)
            made[name].draw_without_rendering()
    (ax,) = panels(made["curves"])
    for curve, line in zip(curves.values(), ax.lines, strict=False):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 20))
        np.testing.assert_array_equal(line.get_ydata(), curve)
    (ax,) = panels(made["distances"])
    np.testing.assert_array_equal(numbers_of(ax.images[0]), matrix)
    assert ax.images[0].get_clim() == (-1, 1)
    assert [note.get_text() for note in ax.texts] == [f"{value:.2f}" for value in matrix.flat]
