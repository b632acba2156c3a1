"""Captions of figures for papers hold true numbers; what cannot be drawn is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from made_figures import pyplot_is_left_alone
from made_paper import FIRST, made, records, sequence
from made_schemes import buckets, rotary, window
from made_tables import as_table, gaussian, patches

import posprobe as pp
from posprobe.errors import UsageError
from posprobe.report.paper import paper_figure

#: Autouse: it holds every drawing here to leaving no figure and no setting behind.
__all__ = ["pyplot_is_left_alone"]


def test_a_caption_says_of_what_it_is_and_how_it_was_made() -> None:
    table = pp.load("sample:sapiens-roberta")
    text = paper_figure("similarity", table).caption
    found = pp.similarity(table)
    for said in (
        "n = 144",
        "d = 128",
        "positions 0 to 143",
        "rows 0 to 1 as stored left out",
        "decoder.sentence_encoder.embed_positions.weight (F32)",
        "sample:sapiens-roberta",
        f"SHA-256 {str(table.source.sha256)[:12]}",
        "after subtracting the mean row",
        f"{found.raw.neighbour_mean:.3g} raw",
        f"{found.centered.neighbour_mean:.3g} centred",
        f"posprobe {pp.__version__}",
    ):
        assert said in text


def test_a_caption_names_the_revision_and_the_rows() -> None:
    from dataclasses import replace

    first, second = sequence("one"), sequence("two", 5)
    hub = replace(first, source=replace(first.source, revision="0123456789abcdef" * 2))
    text = paper_figure("profile", hub[10:60], second).caption
    assert "revision 0123456789ab" in text
    assert "positions 10 to 59" in text


def numbers_of(kind: str, record: Any) -> list[str]:
    """What a caption must hold, computed from the record by the analyses."""
    match kind:
        case "variance":
            found = pp.pca(record)
            needed = found.components_for(0.9)
            return [f"stable rank {found.stable_rank:.3g}", f"{needed} components for 90 %"]
        case "spectrum":
            spectrum = pp.spectrum(record)
            periods = [f"{line.period:.3g}" for line in spectrum.lines]
            assert periods
            return [f"{spectrum.entropy:.3g}", "Hann window", *periods]
        case "components":
            return [f"{pp.pca(record).explained_variance_ratio[:6].sum():.1%}", "columns centred"]
        case "norms":
            return [f"mean {pp.norms(record).norms.mean():.3g}"]
        case "shift":
            shift = pp.shift(record)
            periods = [f"{period:.3g}" for period in shift.periods[shift.rotations]]
            assert periods
            return [f"held-out rows: {shift.skill:.3g}", f"first {shift.rank} princ", *periods]
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
    [item for item in FIRST.items() if item[1] != "several" and item[0] != "heads"]
    + [("heads", "alibi")],
)
def test_captions_hold_the_numbers_of_the_analyses(kind: str, case: str) -> None:
    text = made(kind, case).caption
    for number in numbers_of(kind, records(case)[0]):
        assert number in text


# Refusals.


@pytest.mark.parametrize(
    ("kind", "case", "said"),
    [
        ("mosaic", "sequence", "positions on a grid"),
        ("heads", "sequence", "and no tables"),
        ("similarity", "curves", "kind heads"),
        ("norms", "several", "1 to 1 tables, and 3 are given"),
        ("comparison", "sequence", "2 to 6 tables"),
        ("shift", "grid", "cannot be drawn"),
        ("spectrogram", "grid", "cannot be drawn"),
        ("pie", "sequence", "Choose one of budget, clock, mosaic"),
    ],
)
def test_a_kind_that_does_not_apply_is_refused(kind: str, case: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        paper_figure(kind, *records(case))


def test_other_refusals_say_what_there_is() -> None:
    table = sequence()
    with pytest.raises(UsageError, match="Choose one of acl, neurips"):
        paper_figure("profile", table, venue="nature")
    with pytest.raises(UsageError, match="Choose one of column, page"):
        paper_figure("profile", table, span="wide")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="1 to 6 tables, and 7 are given"):
        paper_figure("variance", *[table] * 7)
    with pytest.raises(UsageError, match="0 are given"):
        paper_figure("similarity")
    with pytest.raises(UsageError, match="and no tables"):
        paper_figure("heads")
    with pytest.raises(UsageError, match="same grid"):
        paper_figure("profile", table, records("grid")[0])
    with pytest.raises(UsageError, match="REF#NAME"):
        paper_figure("heads", buckets(), rotary())
    with pytest.raises(UsageError, match="do not share a figure"):
        paper_figure("heads", buckets(), window())
    with pytest.raises(UsageError, match="4 rotations differ"):
        paper_figure("heads", *(rotary(f"r{k}", base=10.0 ** (3 + k)) for k in range(4)))


@pytest.mark.parametrize("kind", ["variance", "components", "trajectory", "spectrum", "shift"])
def test_what_is_undefined_is_not_drawn(kind: str) -> None:
    with pytest.raises(UsageError, match=f"{kind} cannot be drawn: "):
        paper_figure(kind, as_table(np.full((32, 3), 0.1)))
    if kind == "trajectory":
        with pytest.raises(UsageError, match="two components"):
            paper_figure(kind, as_table(gaussian(30, 1)))


def test_captions_tell_of_what_is_drawn() -> None:
    t = np.arange(120.0)
    ring = np.stack([np.cos(t / 5), np.sin(t / 5)], axis=1) @ gaussian(2, 16)
    ring[:3] = 40 * gaussian(3, 16)  # special rows: the rest is measured
    table = as_table(ring + 0.01 * gaussian(120, 16))
    for kind in ("winding", "bridging"):
        text = paper_figure(kind, table).caption
        assert "positions 3 to 119 " in text, kind
    grid = patches(6, 6, 8)
    assert "of the row code and of the column code" in paper_figure("bridging", grid).caption
    several = {"similarity": "rows as stored.", "profile": "rows after subtracting the mean row;"}
    for kind, treated in several.items():
        assert treated in paper_figure(kind, table, table, labels=["a", "b"]).caption
