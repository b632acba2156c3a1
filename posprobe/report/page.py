"""The page: a saved bundle becomes one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from posprobe.report.svg import inline

if TYPE_CHECKING:
    from jinja2 import Template

Block = Mapping[str, Any]


@dataclass(frozen=True)
class Number:
    """A number of the overview: where it stands in the JSON and what it means."""

    label: str
    key: str
    meaning: str
    form: str = ".3g"


@dataclass(frozen=True)
class Section:
    """An analysis on the page.

    Parameters
    ----------
    key
        Its block in the JSON.
    title
        Heading.
    figures
        Drawings by name, with the text that stands for each: a function of the block.
    shows, reading, limits, source
        What it measures, how to read it, what it does not show, and whose analysis it is.
    numbers
        What the table beside it lists.
    """

    key: str
    title: str
    shows: str
    reading: str
    limits: str
    source: str
    figures: Mapping[str, Callable[[Block], str]]
    numbers: tuple[Number, ...]


def _fact(text: str, *keys: str) -> Callable[[Block], str]:
    return lambda block: text.format(*(show(_lookup(block, key)) for key in keys))


SECTIONS: tuple[Section, ...] = (
    Section(
        key="grid",
        title="Patches",
        shows="How similar each patch's position is to every other patch's.",
        reading="One tile per patch, arranged as in the image; in a tile, one cell per patch. "
        "Red is "
        "similar. A bright own cell with a bright row and column means that the table knows rows "
        "and columns. Position vectors of special tokens take no part.",
        limits="A bright own cell alone shows nothing: every vector has cosine 1 with itself.",
        source="Dosovitskiy et al. 2021, figure 7; the two-way decomposition is ours.",
        figures={
            "mosaic": _fact(
                "Mosaic of cosines: mean centred cosine {} to the right neighbour, {} to the one "
                "below, {} elsewhere.",
                "neighbour_right",
                "neighbour_below",
                "elsewhere",
            ),
            "plane_spectrum": _fact(
                "Two-dimensional spectrum: {} of the power lies on the axes.", "axis_power_share"
            ),
        },
        numbers=(
            Number("neighbour to the right", "neighbour_right", "mean centred cosine"),
            Number("neighbour below", "neighbour_below", "mean centred cosine"),
            Number("own row", "own_row", "mean centred cosine with the rest of the row"),
            Number("own column", "own_column", "mean centred cosine with the rest of the column"),
            Number("elsewhere", "elsewhere", "mean centred cosine with other rows and columns"),
            Number("rows", "row_share", "share of variance that the row alone explains"),
            Number("columns", "column_share", "share of variance that the column alone explains"),
            Number("interaction", "interaction_share", "share that neither explains alone"),
            Number("power on the axes", "axis_power_share", "share in waves along one axis only"),
        ),
    ),
    Section(
        key="similarity",
        title="Similarity of positions",
        shows="The cosine of every pair of rows, and how it depends on their distance.",
        reading="Bands along the diagonal mean that similarity depends on the offset; blocks "
        "mean that "
        "it depends on where you are. Left: rows as stored. Right: after subtracting the mean row, "
        "which all positions share and which lifts every raw cosine.",
        limits="Bands alone are no evidence of a sinusoid: a random walk's centred matrix is "
        "banded "
        "too, and reaches a translation invariance of about 0.9. Centring forces the mean cosine "
        "slightly below zero.",
        source="Wang & Chen, EMNLP 2020, figure 1; properties after Wang et al., ICLR 2021.",
        figures={
            "similarity": _fact(
                "Cosine matrices: neighbouring rows {} raw and {} centred, distant rows {} "
                "centred.",
                "raw.neighbour_mean",
                "centered.neighbour_mean",
                "centered.far_mean",
            ),
            "profile": _fact(
                "Mean cosine by offset: {} of its steps up to offset {} fall.",
                "raw.monotone_fraction",
                "window",
            ),
        },
        numbers=(
            Number("neighbours, raw", "raw.neighbour_mean", "mean cosine of neighbouring rows"),
            Number(
                "neighbours, centred", "centered.neighbour_mean", "after subtracting the mean row"
            ),
            Number("far apart, raw", "raw.far_mean", "mean over more than a quarter of the table"),
            Number("far apart, centred", "centered.far_mean", "after subtracting the mean row"),
            Number("minimum, raw", "raw.minimum", "smallest cosine of any pair"),
            Number(
                "translation invariance, raw",
                "raw.translation_invariance",
                "share of variance that the offset explains, off the diagonal",
            ),
            Number(
                "translation invariance, centred",
                "centered.translation_invariance",
                "after subtracting the mean row",
            ),
            Number(
                "monotone fraction",
                "raw.monotone_fraction",
                "share of steps away from a position at which the cosine falls",
            ),
        ),
    ),
    Section(
        key="pca",
        title="Principal components",
        shows="How many directions the positions use, and how they move along each.",
        reading="Few components with smooth scores mean a low-dimensional curve. Pairs of equal "
        "share "
        "a quarter period apart are circles, the learned analogue of a sine and cosine pair.",
        limits="Sinusoidal scores prove nothing by themselves: the components of any smooth random "
        "series are sinusoids. A few rows at the ends can move the shares a lot; try --rows.",
        source="Chughtai & Lau 2024; Song & Zhong 2023; caution by Antognini & Sohl-Dickstein "
        "2018.",
        figures={
            "variance": _fact(
                "Explained variance: {} components hold 90 % and {} hold 99 %.",
                "components_90",
                "components_99",
            ),
            "components": _fact(
                "Scores of the first components; three hold {} of the variance.", "top3"
            ),
        },
        numbers=(
            Number("first three components", "top3", "share of the variance"),
            Number("stable rank", "stable_rank", "all squared singular values over the largest"),
            Number("participation ratio", "participation_ratio", "effective number of eigenvalues"),
            Number("effective rank", "effective_rank", "exponential of the eigenvalues' entropy"),
            Number("components for 90 %", "components_90", "of the variance", "d"),
            Number("components for 95 %", "components_95", "of the variance", "d"),
            Number("components for 99 %", "components_99", "of the variance", "d"),
        ),
    ),
    Section(
        key="spectrum",
        title="Frequencies",
        shows="At which frequencies the table moves along positions.",
        reading="Left: power summed over dimensions, with the red noise of the same memory; dots "
        "are "
        "lines that it does not explain, labelled with their period. Right: the strongest "
        "frequency "
        "of each dimension, beside the ladder of the sinusoid.",
        limits="A sinusoidal table of this length has many wavelengths longer than the table, so "
        "its "
        "spectrum looks red as well. Frequencies that drift along the table are smeared.",
        source="Yamamoto & Matsuzaki, EMNLP 2023; significance after Torrence & Compo 1998.",
        figures={
            "spectrum": _fact(
                "Power spectrum: 90 % of the power lies below frequency {}.", "edge_frequency"
            )
        },
        numbers=(
            Number("entropy", "entropy", "of the power over frequencies; 1 is white noise"),
            Number("edge frequency", "edge_frequency", "90 % of the power lies below it"),
            Number(
                "dimensions with a line", "dimensions_with_line", "above their own red noise", "d"
            ),
        ),
    ),
    Section(
        key="norms",
        title="Norms",
        shows="How long each position's vector is.",
        reading="A flat line means that all positions weigh the same. Rows that stand out are "
        "often the "
        "first and last, or where training sequences ended.",
        limits="A normal norm does not make a row trained: compare its neighbours' similarity.",
        source="Standard practice.",
        figures={"norms": _fact("Row norms: mean {}, from {} to {}.", "mean", "min", "max")},
        numbers=(
            Number("mean", "mean", "in the table's units"),
            Number("minimum", "min", "in the table's units"),
            Number("maximum", "max", "in the table's units"),
            Number("norm of the mean row", "mean_row_norm", "what all positions share"),
        ),
    ),
)

#: The overview at the top of the page.
OVERVIEW: tuple[Number, ...] = (
    Number("neighbour cosine", "similarity.centered.neighbour_mean", "centred"),
    Number("far cosine", "similarity.centered.far_mean", "centred, a quarter of the table apart"),
    Number("translation invariance", "similarity.raw.translation_invariance", "of raw cosines"),
    Number("stable rank", "pca.stable_rank", "directions, weighted by power"),
    Number("components for 90 %", "pca.components_90", "of the variance", "d"),
    Number("edge frequency", "spectrum.edge_frequency", "90 % of the power lies below"),
)


def render(document: Block, drawings: Mapping[str, str]) -> str:
    """Render a bundle's page.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    drawings
        SVG text of its figures by name.

    Returns
    -------
    str
        HTML that refers to nothing outside itself.

    Raises
    ------
    KeyError, TypeError
        If the document lacks a block that the page shows.
    """
    sections = [
        {
            "key": section.key,
            "title": section.title,
            "text": section,
            "figures": [
                inline(drawings[name], name, label(document[section.key]))
                for name, label in section.figures.items()
                if name in drawings
            ],
            "rows": rows_of(document[section.key], section.numbers),
            "undefined": _reasons(document[section.key]),
        }
        for section in SECTIONS
        if section.key in document
    ]
    table_drawing = drawings.get("table")
    return _template().render(
        document=document,
        table=document["table"],
        source=document["table"]["source"],
        environment=document["environment"],
        overview=[row for row in rows_of(document, OVERVIEW) if row["value"] != "undefined"],
        sections=sections,
        lines=document.get("spectrum", {}).get("lines") or [],
        outliers=document.get("norms", {}).get("outlier_rows") or [],
        table_drawing=table_drawing
        and inline(table_drawing, "table", f"Heat map of the table {document['table']['name']}"),
    )


def show(value: object, form: str = ".3g") -> str:
    """Format a number for reading; None is undefined."""
    if value is None:
        return "undefined"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "d" or isinstance(value, int):
        return f"{value:d}"
    if value and abs(value) < 5e-4:
        return f"{value:.1e}" if abs(value) > 1e-12 else "0"
    return f"{value:{form}}"


def rows_of(block: Block, numbers: tuple[Number, ...]) -> list[dict[str, str]]:
    """Look numbers up in a block and format them: label, value and meaning."""
    return [
        {
            "label": number.label,
            "value": show(_lookup(block, number.key), number.form),
            "meaning": number.meaning,
        }
        for number in numbers
    ]


def _lookup(block: Any, key: str) -> Any:
    for part in key.split("."):
        block = block.get(part) if isinstance(block, Mapping) else None
    return block


def _reasons(block: Block) -> list[str]:
    """Collect why numbers are undefined, each reason once."""
    found: dict[str, None] = {}
    for part in (block, *(value for value in block.values() if isinstance(value, Mapping))):
        reason = part.get("undefined")
        reasons = reason.values() if isinstance(reason, Mapping) else [reason] if reason else []
        found |= dict.fromkeys(reasons)
    return list(found)


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("posprobe.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    return environment.get_template("report.html")
