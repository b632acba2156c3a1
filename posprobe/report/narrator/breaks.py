"""What is said of outliers, of breaks, and of the stretch that is left between them."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.analyses.facts import Cause, Verdicts
from posprobe.questions.breaks import Breaks, SpecialRows
from posprobe.report.narrator import cause
from posprobe.report.narrator.words import (
    Template,
    capital,
    hundredths,
    listed,
    patches,
    percent,
    positions,
    two_figures,
)


def _odd(found: Cause, at: int) -> str:
    """Say what is odd about the row at a position."""
    if found.kind == "among_equal":
        return f"the rows around {at} are equal"
    first, *others = found.numbers
    match found.kind:
        case "far_from_next" | "far_from_previous":
            pair = f"{at} to {at + 1}" if found.kind == "far_from_next" else f"{at - 1} to {at}"
            return f"the step from {pair} is {two_figures(first)} times the median step nearby"
        case "far_from_both":
            times = f"{two_figures(first)} and {two_figures(others[0])}"
            return f"the steps to and from {at} are {times} times the median step nearby"
        case "norm":
            usual = two_figures(others[0])
            return f"the norm of {at} is {two_figures(first)} (median nearby {usual})"
        case "direction":
            usual = hundredths(others[0])
            return f"the mean cosine of {at} with all rows is {hundredths(first)} (nearby {usual})"
    same = "equal" if found.kind == "equal_rows" else "zero"
    return f"position {at} is next to positions {first:.0f}–{others[0]:.0f}, which are all {same}"


def _outliers(f: SpecialRows) -> str:
    said = []
    if f.positions:
        many = "s" if len(f.positions) > 1 else ""
        odd = [f"{capital(_odd(found, f.positions[0]))}." for found in f.causes]
        said = [f"Outlier{many}: {positions(f.positions)}.", *odd]
    return " ".join([*said, *_zeros(f, positions(f.zeros))])


def _outlier_patches(f: SpecialRows) -> str:
    width, said = f.width or 1, []
    if f.positions:
        one = len(f.positions) == 1
        said = [f"Outlier{'' if one else 's'}: {patches(f.positions, width)}."]
        it = "it" if one else "the first"
        for found in f.causes:
            if found.kind == "patch_far":
                times = two_figures(found.numbers[0])
                said.append(
                    f"{capital(it)} is {times} times as far from its neighbours as patches nearby."
                )
            else:
                said.append(f"The patches around {it} are equal.")
    said += _zeros(f, patches(f.zeros, width))
    if f.replaced:
        place = "its place" if len(f.positions) + len(f.zeros) == 1 else "their place"
        said.append(f"Other answers use the mean of the neighbours in {place}.")
    return " ".join(said)


def _zeros(f: SpecialRows, named: str) -> list[str]:
    are = "is" if len(f.zeros) == 1 else "are"
    return [f"{capital(named)} {are} zero."] if f.zeros else []


def _breaks(f: Breaks) -> str:
    first = cause(f.causes[0])
    if len(f.pairs) == 1:
        left, right = f.pairs[0]
        said = f"The table breaks between positions {left} and {right} ({first})."
    else:
        begin = listed([str(right) for _, right in f.pairs], 8)
        said = f"The table breaks before positions {begin}. At the first: {first}."
    for part in f.same:
        some_of = f" ({part.around} of {part.rotations})" if part.around < part.rotations else ""
        said += (
            f" Positions {part.first}–{part.last} rotate in the same planes{some_of}, which "
            f"explain {percent(part.held)} of their variance."
        )
    return said


def based_on(found: Verdicts) -> str:
    """Say which positions the answers are about; nothing where they are about all."""
    if found.whole:
        return ""
    breaks = [f"{end.numbers[1]:.0f}" for end in found.ends if end.kind == "seam"]
    excluded = ["outliers"] if any(end.kind == "special" for end in found.ends) else []
    if breaks:
        noun = "break" if len(breaks) == 1 else "breaks"
        excluded.append(f"positions beyond the {noun} at {listed(breaks)}")
    return (
        f"Based on positions {found.first}–{found.stop - 1}; {listed(excluded)} are excluded. Use "
        "`--all-rows` to include them."
    )


BREAK_PARTS: Mapping[str, Mapping[str, Template]] = {
    "special_rows": {"found": _outliers, "patches": _outlier_patches},
    "seams": {"found": _breaks},
}
