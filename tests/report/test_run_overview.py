"""Drawings of the first screen of a run, from its document and arrays."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET  # our own drawings are parsed here, nothing from outside
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_forward import HEADS, budget_of, forward_analysis, places_of, window_of

from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.attention_window import AttentionWindow
from posprobe.errors import InvalidCheckpoint
from posprobe.figures.attention_budget import MAX_DRAWN_CURVES
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.report import render_bundle
from posprobe.report.run_overview import (
    RUN_DRAWING_NAMES,
    draw_run_overview,
)
from posprobe.words.lines import ATTENTION_LABELS

#: Length of the bar of a head, in units of the drawing.
BAR_LENGTH = 320.0
SCRIPT = "<script>window.ran = 1</script>"


def run_of(layout: Layout, layers: int = 3, *, causal: bool = True) -> Any:
    window = window_of(layout, causal=causal)
    assert isinstance(window, AttentionWindow)
    budget = budget_of(window, layout, layers)
    return forward_analysis(layout, results={"attention_budget": budget})


def drawings_of(run: Any) -> dict[str, str]:
    return draw_run_overview(run.to_dict(), run.arrays())


def bar_segments(svg: str) -> dict[str, dict[float, float]]:
    """Return the lengths of segments by their colour class and height."""
    return {
        colour: {
            float(y): float(length)
            for y, length in re.findall(r"M[\d.]+,([\d.]+)h([\d.]+)", commands)
        }
        for colour, commands in re.findall(r'class="bar (\w+)s"[^>]* d="([^"]*)"', svg)
    }


@pytest.mark.parametrize("layout", [Sequence(24), Grid(6, 9)], ids=str)
def test_every_drawing_of_the_first_screen_is_sound(layout: Layout) -> None:
    svgs = drawings_of(run_of(layout))
    assert tuple(svgs) == RUN_DRAWING_NAMES[:-1]
    for svg in svgs.values():
        ET.fromstring(svg)  # noqa: S314
        assert "nan" not in svg.lower()
        assert 'aria-label="' in svg


def test_every_head_has_its_bar_with_lengths_as_its_shares() -> None:
    run = run_of(Sequence(24))
    budget: AttentionBudget = run.results["attention_budget"]
    segments = bar_segments(drawings_of(run)["attention-heads"])
    heights = sorted({y for by_height in segments.values() for y in by_height})
    assert len(heights) == len(budget.heads) == 3 * HEADS
    for y, head in zip(heights, budget.heads, strict=True):
        shares = {name: max(getattr(head, name), 0.0) for name in ATTENTION_LABELS}
        total = sum(shares.values())
        for name, (_, colour) in ATTENTION_LABELS.items():
            expected_length = BAR_LENGTH * shares[name] / total
            assert segments.get(colour, {}).get(y, 0.0) == pytest.approx(
                expected_length, abs=0.06
            )
    # Layers are apart by one more bar.
    steps = np.diff(heights)
    is_next_layer = np.arange(1, len(heights)) % HEADS == 0
    assert steps[is_next_layer] == pytest.approx(2 * steps[0], abs=0.02)
    assert steps[~is_next_layer] == pytest.approx(steps[0], abs=0.02)


def test_the_bar_of_the_model_has_the_mean_shares() -> None:
    run = run_of(Sequence(24))
    budget = run.results["attention_budget"]
    svg = drawings_of(run)["budget"]
    widths = [float(w) for w in re.findall(r'class="seg [^>]*? width="([\d.]+)%"', svg)]
    assert sum(widths) == pytest.approx(100, abs=0.01)
    shares = [max(getattr(budget, name), 0.0) for name in ATTENTION_LABELS]
    np.testing.assert_allclose(widths, 100 * np.array(shares) / sum(shares), atol=0.01)


def test_curves_are_of_the_heads_that_position_moves_most() -> None:
    run = run_of(Sequence(24), layers=8)
    budget = run.results["attention_budget"]
    svg = drawings_of(run)["attention-curves"]
    names = re.findall(r">(\d+\.\d+) ", svg)
    moved = {f"{head.layer}.{head.head}": head.moved for head in budget.heads}
    assert len(names) == MAX_DRAWN_CURVES < len(moved)
    assert set(names) == set(
        sorted(moved, key=lambda name: -moved[name])[:MAX_DRAWN_CURVES]
    )
    # In the order of the model, each with its preferred distance marked.
    assert names == [name for name in moved if name in names]
    preferring = [
        head for head in budget.heads
        if f"{head.layer}.{head.head}" in names and head.preferred is not None
    ]  # fmt: skip
    assert svg.count('class="mark"') == len(preferring) == MAX_DRAWN_CURVES


def test_a_run_without_a_budget_or_its_curves_draws_what_it_has() -> None:
    run = run_of(Sequence(24))
    document, arrays = run.to_dict(), run.arrays()
    assert set(draw_run_overview(document, {})) == {"budget", "attention-heads"}
    short_arrays = {"attention_curves": arrays["attention_curves"][:2]}
    assert "attention-curves" not in draw_run_overview(document, short_arrays)
    assert draw_run_overview(document | {"attention_budget": None}, arrays) == {}


@pytest.mark.parametrize("output", ["embedding", "next_token"])
def test_every_place_of_a_text_has_its_dot(output: Any) -> None:
    layout = Sequence(24)
    places = places_of(layout, output)
    svg = drawings_of(forward_analysis(layout, results={"places": places}))[
        "output-places"
    ]
    ET.fromstring(svg)  # noqa: S314
    full_length = places.full_length
    n_curves = 1 + (output == "embedding" and full_length.reversed is not None)
    heights = [
        float(y) for y in re.findall(r'class="dotline" cx="[\d.]+" cy="([\d.]+)"', svg)
    ]
    assert len(heights) == full_length.slots
    assert svg.count("<circle") == n_curves * full_length.slots
    # The heavier a place, the higher its dot.
    assert (np.argsort(heights) == np.argsort(-full_length.weights)).all()


def test_every_cell_of_a_picture_has_its_influence() -> None:
    layout = Grid(6, 9)
    places = places_of(layout, "classes")
    run = forward_analysis(layout, results={"places": places})
    svg = drawings_of(run)["output-places"]
    ET.fromstring(svg)  # noqa: S314
    written = re.findall(r'class="tag"[^>]*>([\d.]+)<', svg)
    assert written == [f"{weight:.2g}" for weight in places.full_length.weights]


def saved(folder: Path) -> Path:
    bundle: Path = run_of(Sequence(24)).save(folder)
    return bundle


def page_or_nothing(folder: Path) -> str:
    """Return the page of a bundle; nothing where it is refused as damaged."""
    try:
        return render_bundle(folder).read_text(encoding="utf-8")
    except InvalidCheckpoint:
        assert not (folder / "report.html").exists()
        return ""


def test_a_foreign_drawing_of_the_first_screen_is_drawn_anew(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    (folder / "report.html").unlink()
    for name in ("budget", "attention-heads", "overview-budget"):
        (folder / "figures").mkdir(exist_ok=True)
        (folder / f"figures/{name}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg">{SCRIPT}</svg>'
        )
    page = render_bundle(folder).read_text(encoding="utf-8")
    assert SCRIPT not in page
    assert "window.ran" not in page
    assert 'aria-label="Budget: distance ' in page


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("heads", 0, "layer"), SCRIPT),
        (("heads", 0, "head"), SCRIPT),
        (("heads", 0, "preferred"), SCRIPT),
        (("heads", 0, "distance"), SCRIPT),
        (("heads", 0, "preferred"), 10**9),
        (("window",), SCRIPT),
        (("layout", "type"), SCRIPT),
        (("distance",), SCRIPT),
    ],
)
def test_foreign_values_of_a_budget_never_run(
    path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "run")
    (folder / "report.html").unlink()
    document = json.loads((folder / "analysis.json").read_text())
    block = document["attention_budget"]
    for key in path[:-1]:
        block = block[key]
    block[path[-1]] = value
    (folder / "analysis.json").write_text(json.dumps(document))
    assert SCRIPT not in page_or_nothing(folder)


def test_curves_of_nan_are_refused_or_left_out(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    (folder / "report.html").unlink()
    arrays = dict(np.load(folder / "arrays.npz"))
    arrays["attention_curves"] = np.full_like(arrays["attention_curves"], np.nan)
    np.savez(folder / "arrays.npz", **arrays)
    assert "nan" not in page_or_nothing(folder)
