"""Frequencies along positions."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses import Spectrum
from posprobe.layouts import Grid
from posprobe.measurements.base import (
    Drawing,
    Measurement,
    TableInputs,
    sentence,
    undefined,
)
from posprobe.page import Table, columns
from posprobe.text import Block, show


def _lines(document: Block) -> tuple[Table, ...]:
    rows = tuple(
        (show(line["period"]), show(line["frequency"]), show(line["ratio"]))
        for line in document["spectrum"]["lines"] or ()
    )
    headings = columns("=period", "=frequency", "=times the noise")
    return (Table("Lines above red noise", headings, rows),) if rows else ()


def _caption(results: Mapping[str, Spectrum]) -> str:
    first = next(iter(results.values()))
    treated = (
        "two-dimensional transform of each dimension less its mean, over rings of equal frequency"
        if isinstance(first.layout, Grid)
        else f"each dimension less its {'line' if first.detrend == 'linear' else 'mean'}, "
        f"{first.window.title()} window"
    )
    entropy = "; ".join(f"{name} {show(result.entropy)}" for name, result in results.items())
    what = "Power spectrum" if len(results) == 1 else "Share of power by frequency"
    text = (
        f"{what} of the position embeddings along positions, summed over dimensions ({treated}). "
        f"Spectral entropy: {entropy}."
    )
    if len(results) > 1 or first.threshold is None:
        return text
    lines = ", ".join(f"{line.period:.3g}" for line in first.lines[:6])
    above = (
        f"Periods of the strongest lines above it: {lines} positions."
        if lines
        else "No line rises above it."
    )
    return (
        f"{text} Dashed: red noise fitted to it; dotted: its 1 % level over all frequencies. "
        f"{above} The other panel has each dimension's dominant frequency, fastest first, beside "
        "the frequencies of the sinusoid of base 10,000."
    )


SPECTRUM = Measurement[TableInputs, Spectrum](
    name="spectrum",
    compute=lambda given: analyses.spectrum(given.positions),
    record=Spectrum,
    drawings=(
        Drawing(
            "spectrum",
            sentence(
                "Power spectrum: 90 % of the power lies below frequency {}.", "edge_frequency"
            ),
            _caption,
            lacks=undefined,
            several=True,
            band="spectrum",
        ),
    ),
    tables=_lines,
)  # fmt: skip
