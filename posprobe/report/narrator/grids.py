"""What is said of a table of patches on a grid."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.number_format import show
from posprobe.questions.axis_rotations import LEAST_TURNS, AxisRotations, Code
from posprobe.questions.codes import RowsAndColumns
from posprobe.questions.fields import PatchDimension, PatchPlaces, PatchSmooth
from posprobe.questions.grids import PatchOrder
from posprobe.report.narrator import Template
from posprobe.report.narrator.words import listed, percent, some, two_figures

#: The questions that are asked of grids alone, as a reader asks them.

_LARGE = "A grid of {f.height} × {f.width} patches is too large to test (at most {f.most:,})."
_NARROW = (
    "A grid of {f.height} × {f.width} patches is too narrow to test (at least {f.least} on a side)."
)


def _cosines(f: PatchOrder) -> str:
    return (
        f"neighbouring patches have a mean cosine of {f.cosine:z.2f} ({f.chance:z.2f} in random "
        "order)"
    )


def _neighbours(f: PatchOrder) -> str:
    side = "more" if f.cosine > f.chance else "less"
    return (
        f"Neighbouring patches are {side} similar than chance: they have a mean cosine of "
        f"{f.cosine:z.2f} ({f.chance:z.2f} in random order)."
    )


def _codes(f: RowsAndColumns) -> str:
    shares = {"": f.share, "row": f.row_share, "column": f.column_share}
    summed = f"A {f.lone} code alone explains" if f.lone else "Row code + column code explain"
    said = f"{summed} {percent(shares[f.lone])} of the variance"
    return f"{said} ({percent(f.typical)} in random tables without codes)."


def _code(axis: str) -> str:
    return f"{axis.removesuffix('s')} code"


def _of_codes(f: AxisRotations) -> str:
    """Say what share of the table codes hold, where it is no sum of them."""
    if f.codes_share is None:
        return ""
    return f" The two codes explain {percent(f.codes_share)} of the variance of the table."


def _lined(code: Code) -> str:
    periods = [f"{show(line.period)}" for line in code.lines]
    share = min(sum(line.share for line in code.lines), 1.0)
    noun = "a periodic component" if len(periods) == 1 else "periodic components"
    which = "period" if len(periods) == 1 else "periods"
    return (
        f"The {_code(code.axis)} has {noun} with {'a ' if len(periods) == 1 else ''}{which} of "
        f"{listed(periods)} {code.axis} ({percent(share)} of its variance)."
    )


def _circled(code: Code) -> str:
    circle = code.circle
    assert circle is not None  # noqa: S101 - those told of have one
    turns = f"{circle.turns:.1f} turns" if circle.turns > LEAST_TURNS else "about one turn"
    return (
        f"A circle of {turns} over {code.length} {code.axis} explains {percent(circle.share)} of "
        f"the variance of the {_code(code.axis)} ({percent(circle.typical)} in smooth random "
        "curves)."
    )


def _steps(f: PatchSmooth) -> str:
    return (
        f"consecutive steps of {some(f.stride, 'patch')} along rows and columns have a mean "
        f"cosine of {f.cosine:z.2f} ({f.typical:z.2f} in rough fields)"
    )


def _surface(f: PatchSmooth) -> str:
    halves = (
        f"Similarity halves after {two_figures(f.length)} patches."
        if f.halves
        else "Similarity does not halve within the grid."
    )
    return (
        f"Consecutive steps of {some(f.stride, 'patch')} along rows and columns point the same "
        f"way (mean cosine {f.cosine:z.2f}; rough fields {f.typical:z.2f}). {halves}"
    )


def _misfit(f: PatchPlaces) -> str:
    return (
        f"at a fixed displacement, similarity in the {f.components} leading components varies by "
        f"{percent(f.misfit)} ({percent(f.typical_misfit)} in random stationary fields)"
    )


def _norms(f: PatchPlaces) -> str:
    return (
        f"In the {f.components} leading components, norms of patches change over the grid by a "
        f"factor of {f.norms:.2f} ({f.typical_norms:.2f} in random stationary fields)"
    )


def _dimension(f: PatchDimension) -> str:
    count = some(f.directions, "component")
    return (
        f"{count} explain{'s' if f.directions == 1 else ''} 90 % of the variance. With patches "
        f"scaled to equal length, the effective dimension is {two_figures(f.participation)} "
        f"({two_figures(f.expected)} in an equally smooth random field)."
    )


TEMPLATES: Mapping[tuple[str, str], Template] = {
    ("order", "patch_neighbours"): _neighbours,
    ("order", "patch_none"): lambda f: f"The patches look independent: {_cosines(f)}.",
    ("order", "patch_open"): lambda f: f"The evidence is weak: {_cosines(f)}.",
    ("order", "patch_small"): lambda f: (
        f"The effect of place is significant but small: {_cosines(f)}."
    ),
    ("order", "patch_large"): _LARGE,
    ("rows_and_columns", "codes"): _codes,
    ("rows_and_columns", "lone"): _codes,
    ("rows_and_columns", "none"): _codes,
    ("rows_and_columns", "small"): lambda f: f"The effect is significant but small. {_codes(f)}",
    ("rows_and_columns", "few_patches"): lambda f: (
        f"{_codes(f)} With {f.height} × {f.width} patches, codes can hardly be told from smooth "
        "surfaces."
    ),
    ("rows_and_columns", "open"): lambda f: f"The evidence is weak. {_codes(f)}",
    ("rows_and_columns", "narrow"): _NARROW,
    ("rows_and_columns", "large"): _LARGE,
    ("axis_rotations", "lines"): lambda f: (
        " ".join(_lined(code) for code in f.round) + _of_codes(f)
    ),
    ("axis_rotations", "circles"): lambda f: (
        " ".join(_circled(code) for code in f.round) + _of_codes(f)
    ),
    ("axis_rotations", "none"): lambda f: " ".join(_circled(code) for code in f.codes),
    ("axis_rotations", "open"): lambda f: (
        f"{' '.join(_circled(code) for code in f.codes)} Smooth curves of this length can look the "
        "same."
    ),
    ("axis_rotations", "short"): (
        "No code has the eight positions and two components that a rotation needs "
        "({f.height} × {f.width} patches)."
    ),
    ("axis_rotations", "formula"): (
        "Both codes of the formula are sums of rotations, one for each frequency."
    ),
    ("axis_rotations", "large"): _LARGE,
    ("smooth", "patch_surface"): _surface,
    ("smooth", "patch_rough"): lambda f: f"The surface is rough: {_steps(f)}.",
    ("smooth", "patch_open"): lambda f: f"The evidence is weak: {_steps(f)}.",
    ("smooth", "patch_narrow"): _NARROW,
    ("smooth", "patch_large"): _LARGE,
    ("absolute_position", "patch_products"): lambda f: (
        f"Similarity depends on place: {_misfit(f)}."
    ),
    ("absolute_position", "patch_norms"): lambda f: f"{_norms(f)}.",
    ("absolute_position", "patch_displacement"): lambda f: (
        f"Similarity is consistent with depending on displacement only: {_misfit(f)}."
    ),
    ("absolute_position", "patch_open"): lambda f: f"The evidence is weak: {_misfit(f)}.",
    ("absolute_position", "patch_small"): lambda f: (
        f"The effect of place is significant but small: {_misfit(f)}. {_norms(f)}."
    ),
    ("absolute_position", "patch_slow"): lambda f: (
        f"Equally slow stationary fields can vary as much by chance: {_misfit(f)}."
    ),
    ("absolute_position", "patch_short"): lambda f: (
        f"Only neighbouring patches are similar (mean cosine {f.neighbours:z.2f}), too few pairs "
        f"to test: {_misfit(f)}."
    ),
    ("absolute_position", "patch_unlike"): lambda f: (
        f"Patches are hardly similar at any displacement (neighbours: mean cosine "
        f"{f.neighbours:z.2f})."
    ),
    ("absolute_position", "patch_narrow"): _NARROW,
    ("absolute_position", "patch_large"): _LARGE,
    ("absolute_position", "patch_unordered"): "Not applicable: the patches look independent.",
    ("absolute_position", "patch_order_open"): lambda f: (
        "Similarity is consistent with depending on displacement only, whether or not order "
        f"matters: {_misfit(f)}."
    ),
    ("absolute_position", "patch_yes_unordered"): lambda f: (
        f"Similarity depends on place, although neighbours show no order: {_misfit(f)}."
    ),
    ("low_dimensional", "patch_fewer"): _dimension,
    ("low_dimensional", "patch_as_many"): _dimension,
    ("low_dimensional", "patch_small"): lambda f: f"{_dimension(f)} The difference is small.",
    ("low_dimensional", "patch_open"): lambda f: f"{_dimension(f)} The evidence is weak.",
    ("low_dimensional", "patch_few_columns"): ("Too few columns to tell ({f.rows} × {f.columns})."),
    ("low_dimensional", "patch_narrow"): _NARROW,
    ("low_dimensional", "patch_large"): _LARGE,
}
