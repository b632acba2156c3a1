"""What follows from a way of resizing: its numbers beside those of the table before, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posprobe.layouts import Grid, Layout
from posprobe.text import hundredths, listed, rounded, show

if TYPE_CHECKING:
    from posprobe.resizing.effects import EffectBlock

#: Changes below which a cosine, and a norm as a share, is said to stay.
SLIGHT, SHARE = 0.02, 0.05
#: Mean cosine with the old rows from which rows are said to be kept, and up to which they are not.
KEPT, LOST = 0.9, 0.5
#: Factor within which a period is kept, or has grown with the table.
ALIKE = 1.1
_PARTLY = " only as far as rows keep their places"
#: What is said of a table that tells no positions apart, at any size.
EQUAL = "No row differs from the mean row, before and after: no model can tell positions by them."


def sentences(
    how: str, new: EffectBlock, before: EffectBlock, old: Layout, layout: Layout, *, stretched: bool
) -> tuple[str, ...]:
    """Say what a way keeps, what it changes, and what a model makes of it.

    Parameters
    ----------
    how
        The way.
    new, before
        Numbers of the new table and of the old one.
    old, layout
        Of the positions before and after.
    stretched
        Whether the way spreads the old rows over the new range.
    """
    if old == layout:
        return ("The table has that size already: nothing changes.", *_against(new, layout))
    cells = "patches" if isinstance(layout, Grid) else "positions"
    if before["copies"] == old.size - 1 and new["copies"] == layout.size - 1:
        return (EQUAL, *_against(new, layout))
    return (
        _stretched(new, layout) if stretched else _continued(old, layout),
        *_periods(new, before, old, layout, stretched=stretched),
        *_changes(new, before),
        *_copies(new, before, cells),
        *_seams(new),
        *_special(new, before, cells),
        *_against(new, layout),
        _follows(how, new, old, layout, cells, stretched=stretched),
    )


def _stretched(new: EffectBlock, layout: Layout) -> str:
    place, position = new["same_place"], new["same_position"]
    if place is None or position is None:
        return "No row that both tables have differs from the mean row: there is nothing to keep."
    first, second = _keep(place), _keep(position)
    then = {first: "and", "do not keep": "or"}[first] if first == second else f"and {second}"
    counted = ", counted in patches" if isinstance(layout, Grid) else ""
    return (
        f"Rows {first} their relative places (mean centred cosine with the old row there "
        f"{_cosine(place)}) {then} their positions{counted} ({_cosine(position)})."
    )


def _keep(cosine: float) -> str:
    return "keep" if cosine >= KEPT else "do not keep" if cosine <= LOST else "partly keep"


def _continued(old: Layout, layout: Layout) -> str:
    if isinstance(old, Grid) and isinstance(layout, Grid):
        height, width = min(old.height, layout.height), min(old.width, layout.width)
        kept = f"The upper left {height} x {width} patches keep their rows"
        more, fewer = layout.size > height * width, old.size > height * width
    else:
        few = min(old.size, layout.size)
        kept = f"The first {few} positions keep their rows"
        if few == 1:
            kept = "The first position keeps its row"
        more, fewer = layout.size > old.size, layout.size < old.size
    rest = ["those beyond are made"] * more + ["the rest of the old ones is cut off"] * fewer
    return f"{'; '.join([kept, *rest])}."


def _periods(
    new: EffectBlock, before: EffectBlock, old: Layout, layout: Layout, *, stretched: bool
) -> tuple[str, ...]:
    """Tell for each axis whether the leading period stays, changes with the table, or neither."""
    sides = {"positions": (old.size, layout.size)}
    if isinstance(old, Grid) and isinstance(layout, Grid):
        sides = {"rows": (old.height, layout.height), "columns": (old.width, layout.width)}
    told: dict[str, list[str]] = {
        "stays": [],
        "changes with the table": [],
        "is found again in a pair that holds less": [],
        "is not found again": [],
    }
    for axis, (few, many) in sides.items():
        periods, found = (
            block["turns"][axis]["periods"] if axis in block["turns"] else []
            for block in (before, new)
        )
        if not periods or not found:
            continue
        was, along = periods[0], "" if axis == "positions" else f"along the {axis} "
        # Which of several pairs holds most may change with the size.
        grown = stretched and many != few
        factors = {"changes with the table": many / few} if grown else {}
        factors["stays"] = 1.0
        leads, now = next(
            (
                (kind, period)
                for kind, factor in factors.items()
                for period in found
                if _alike(period / was, factor)
            ),
            ("is not found again", found[0]),
        )
        lesser = now != found[0]
        kind = "is found again in a pair that holds less" if lesser else leads
        change = {
            "stays": f"at {rounded(now)}"
            + (f" (before {rounded(was)})" if rounded(now) != rounded(was) else ""),
            "changes with the table": f"from {rounded(was)} to {rounded(now)}",
        }.get(kind, f"{rounded(was)} before and {rounded(now)} now")
        if lesser:
            change += f" behind {rounded(found[0])}"
        told[kind].append(f"{along}{change}")
    return tuple(
        f"The leading period {kind}, {listed(axes)}." for kind, axes in told.items() if axes
    )


def _alike(factor: float, other: float) -> bool:
    return 1 / ALIKE <= factor / other <= ALIKE


def _changes(new: EffectBlock, before: EffectBlock) -> tuple[str, ...]:
    told = []
    neighbours, were = new["neighbour_cosine"], before["neighbour_cosine"]
    if neighbours is not None and were is not None and abs(neighbours - were) > SLIGHT:
        more = "more" if neighbours > were else "less"
        told.append(f"neighbours are {more} alike ({_cosine(neighbours)}, before {_cosine(were)})")
    even, was = new["translation_invariance"], before["translation_invariance"]
    if even is not None and was is not None and abs(even - was) > SLIGHT:
        more = "more" if even > was else "less"
        told.append(f"distance decides {more} of the cosines ({show(even)}, before {show(was)})")
    for name, what in (("norm_mean", "rows on average are"), ("norm_min", "the shortest row is")):
        size, usual = float(new[name]), float(before[name])  # type: ignore[literal-required]
        if usual and abs(size / usual - 1) > SHARE:
            than = "longer" if size > usual else "shorter"
            told.append(f"{what} {than} ({show(size)}, before {show(usual)})")
    said = listed(told)
    return (f"{said[0].upper()}{said[1:]}.",) if told else ()


def _copies(new: EffectBlock, before: EffectBlock, cells: str) -> tuple[str, ...]:
    more = new["copies"] - before["copies"]
    if more <= 0:
        return ()
    rows = f"{more} more rows" if before["copies"] else f"{more} rows"
    return (f"{rows} are exact copies of others: the table does not tell these {cells} apart.",)


def _seams(new: EffectBlock) -> tuple[str, ...]:
    pairs = [f"{left} and {right}" for left, right in new["seams"] or ()]
    return (f"A seam appears between {listed(pairs)}.",) if pairs else ()


def _special(new: EffectBlock, before: EffectBlock, cells: str) -> tuple[str, ...]:
    was, now = before["special"], new["special"]
    if not was or now is None:
        return ()
    one = len(was) == 1
    noun = {"patches": "patch", "positions": "position"}[cells] if one else cells
    own = "is unlike its" if one else "are unlike their"
    then = f"{len(now)} {'is' if len(now) == 1 else 'are'}" if now else "none is"
    return (f"{len(was)} {noun} of the old table {own} neighbours; in the new one {then}.",)


def _against(new: EffectBlock, layout: Layout) -> tuple[str, ...]:
    trained = new["against"]
    if trained is None:
        return ()
    alike = "" if trained["cka"] is None else f", and a CKA of {hundredths(trained['cka'])}"
    said = (
        f"Its rows have a mean cosine of {_cosine(trained['row_cosine'])} with those of the table "
        f"trained for a {layout}, a distance of {show(trained['distance'])} of its size{alike}."
    )
    return (said,)


def _follows(
    how: str, new: EffectBlock, old: Layout, layout: Layout, cells: str, *, stretched: bool
) -> str:
    """Say what a model reads out of such a table before it is trained any further."""
    if stretched and isinstance(layout, Grid):
        place = new["same_place"]
        kept = place is not None and place >= KEPT
        return (
            f"What follows: parts of a picture are found where they were{'' if kept else _PARTLY}, "
            "and steps from patch to patch are of another size than in training."
        )
    if stretched:
        factor = layout.size / old.size
        other = f"{rounded(max(factor, 1 / factor))} times as {'near' if factor > 1 else 'far'}"
        return (
            f"What follows: a model that goes by distances takes everything for {other}, at every "
            "position."
        )
    if layout.size <= old.size:
        return "What follows: nothing changes for the positions that are left."
    beyond = {
        "tile": "those of the beginning again",
        "repeat-last": "the last one, whatever their order",
    }.get(how, "a continuation that no training has seen")
    return f"What follows: old {cells} are read as before; new ones are taken for {beyond}."


def _cosine(value: float | None) -> str:
    return "undefined" if value is None else hundredths(value)
