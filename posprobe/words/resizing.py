"""What is said of another size: of each way of resizing, of rules of scaling, and of their cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posprobe.layouts import Grid
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.relations.resized import Copied, Period, Rule, Run, Way
from posprobe.text import Block, format_value, format_with_error
from posprobe.words.formats import listed, some, two_figures

#: How positions that a way adds come about.
_ADDED_ROWS_TEXTS: Mapping[str, str] = {
    "tile": "new ones repeat the table",
    "repeat-last": "new ones are copies of the last or nearest",
    "sinusoids": "new ones are extrapolated and untrained",
}
#: What changes, and how its numbers are told.
_CHANGES: Mapping[str, str] = {
    "neighbour_cosine": "mean cosine of neighbours",
    "translation_invariance": "share of similarity that distance explains",
    "norm_mean": "mean norm",
    "norm_min": "smallest norm",
}
#: How well rows keep their relative places.
_PLACES: Mapping[str, str] = {"lost": "do not keep", "partly": "partly keep", "kept": "keep"}


def way(f: Way) -> tuple[str, ...]:
    """Say what a way of resizing keeps, and what it changes."""
    return tuple(_way(f))


def _way(f: Way) -> Iterator[str]:
    if f.old == f.new:
        yield "The table has this size already: nothing changes."
    elif f.alike:
        yield "All rows are equal, before and after: the table tells no positions apart."
    else:
        yield from _stretched(f) if f.kind == "stretches" else _continued(f)
        yield from map(_period, f.periods)
        for name in f.changed:
            new_value, old_value = _short(getattr(f, name)), _short(getattr(f.before, name))
            yield f"The {_CHANGES[name]} becomes {new_value} (before {old_value})."
        yield from _breaks(f)


def _short(value: float) -> str:
    return f"{value:z.2f}" if 0.1 <= abs(value) < 100 else two_figures(value)


def _stretched(f: Way) -> Iterator[str]:
    if f.place is None or f.position is None:
        yield "Every row that both tables have is the mean row: there is nothing to keep."
        return
    sentence = f"{_PLACES[f.place]} their relative place (mean cosine {f.same_place:z.2f})"
    yield f"Stretched: {_cells(f)} {sentence}{_distances(f.factors) if f.place == 'kept' else ''}."
    if f.position == "kept":
        cosine = f"mean cosine {f.same_position:z.2f}"
        yield f"Rows also resemble the old ones at the same position ({cosine})."


def _distances(factors: Mapping[str, float]) -> str:
    """Say what becomes of distances; nothing where they hardly change."""
    parts = [
        f"divided by {two_figures(factor)}{'' if axis == 'positions' else f' between {axis}'}"
        for axis, factor in factors.items()
        if two_figures(factor) != "1"
    ]
    return f", so the model sees distances {listed(parts)}" if parts else ""


def _continued(f: Way) -> Iterator[str]:
    if isinstance(f.old, Grid) and isinstance(f.new, Grid):
        height, width = min(f.old.height, f.new.height), min(f.old.width, f.new.width)
        kept_text, n_patches = f"The upper left {height} × {width} patches", height * width
    else:
        n_patches = min(f.old.size, f.new.size)
        kept_text = f"The first {some(n_patches, 'position')}"
    added_text = f"; {_ADDED_ROWS_TEXTS[f.how]}" if f.new.size > n_patches else ""
    cut = "; the others are cut off" if f.old.size > n_patches else ""
    yield f"{kept_text} stay unchanged{added_text}{cut}."


def _period(f: Period) -> str:
    axis = "" if f.axis == "positions" else f" along the {f.axis}"
    old_period, new_period = (two_figures(period or 0) for period in (f.before, f.now))
    sentence = f"The leading period{axis} of {old_period} positions"
    return (
        f"{sentence} is lost."
        if f.change == "lost"
        else f"{sentence} {f.change} ({new_period} now)."
    )


def _breaks(f: Way) -> Iterator[str]:
    if (n_added := f.copies - f.before.copies) > 0:
        yield f"Exact copies of other rows: {n_added} more than before."
    if f.seams:
        pairs = listed([f"{left} and {right}" for left, right in f.seams])
        yield f"The table breaks anew between positions {pairs}."
    if f.before.special is not None and f.special is not None:
        old, new = len(f.before.special), len(f.special)
        if old != new:
            yield f"Outliers: {new} (before {old})."


def _cells(f: Way) -> str:
    return "patches" if isinstance(f.new, Grid) else "positions"


def rule(f: Rule) -> str:
    """Say what a rule of scaling slows down, and what it leaves to new angles."""
    slowest = f" (up to {two_figures(f.slowest)} times)" if f.slowed else ""
    sentences = (
        f"Of {some(f.pairs, 'pair')}, {f.slowed} turn more slowly{slowest} and {f.extrapolated} "
        f"reach angles unseen in training. The mean rotation between neighbours is "
        f"{format_value(f.kernel_at_1)}."
    )
    if f.attention_factor != 1:
        sentences += f" Logits are multiplied by {two_figures(f.attention_factor**2)}."
    return sentences


def costs(f: Run) -> str:
    """Say which way or rule costs the model least, and what cannot be told from it."""
    best, *other_ways = f.best
    cost = f.ways[best].value
    sentences = (
        f"`{best}` costs the model least: {cost:.3f} nats per {f.task} at {f.length} tokens. The "
        f"unchanged model has {f.before.value:.3f} on the first {f.cut} of the same windows."
    )
    if other_ways:
        do = "does" if len(other_ways) == 1 else "do"
        names = listed([f"`{way}`" for way in other_ways], 9)
        sentences += f" Within the errors, {names} {do} as well."
    return sentences


# What stands above and beside them, from the blocks of a document.


def ways_lead(old: Block, new: Block) -> str:
    """Say from which size to which a table is resized."""
    return f"from a {_layout(old)} to a {_layout(new)}"


def _layout(layout: Block) -> str:
    if layout["type"] == "grid":
        return f"grid of {layout['height']} × {layout['width']} patches"
    return f"sequence of {layout['length']:,} positions"


def rules_lead(document: Block) -> str:
    """Say from which length to which rotary positions are scaled."""
    return (
        f"rotary embeddings with base {document['base']:g}, from {document['training']:,} "
        f"positions to {document['to']:,}"
    )


def ways_headline(ways: Sequence[Block]) -> str:
    """Say which ways stretch a table and which continue it."""
    kinds = {"stretches": "stretched with", "continues": "continued at its end with"}
    names_by_kind = {
        kind: [f"`{way['how']}`" for way in ways if way["kind"] == kind] for kind in kinds
    }
    clauses = [
        f"{kinds[kind]} {listed(names, 9)}" for kind, names in names_by_kind.items() if names
    ]
    return f"The table is {' and '.join(clauses)}."


def rules_headline(rules: Sequence[Block], pairs: int) -> str:
    """Say by which rules pairs reach angles that training has not shown."""
    counts = [f"{rule['extrapolated']} with `{rule['rule']}`" for rule in rules]
    return f"Of {some(pairs, 'pair')}, {listed(counts, 9)} reach angles unseen in training."


#: What a run of the model measures.
MEASURED = "mean loss (nats)"


def cost(block: Block) -> str:
    """Write what the model loses with one table, or by one rule."""
    return format_with_error(block["value"], block["error"])


def run_key(run: Block | None) -> str:
    """Say what a model was run on; empty where it was not."""
    if run is None:
        return ""
    return f"{run['contexts']} windows of {run['kind'].removeprefix('windows of ')}, no training."


def way_line(way: Block, run: Block | None) -> AnswerLine:
    """Return what a way keeps, or what it costs the model, as a line without an answer."""
    name, way_name = f"way-{way['how']}", way["how"]
    if run is not None:
        return AnswerLine(name, "", way_name, MEASURED, cost(run["ways"][way_name]))
    unit = "place" if way["kind"] == "stretches" else "position"
    value = way[f"same_{unit}"]
    written = NO_VALUE if value is None else _short(value)
    return AnswerLine(name, "", way_name, f"cosine, same {unit}", written)


def rule_line(rule: Block, pairs: int, run: Block | None) -> AnswerLine:
    """Return what a rule leaves to new angles, or costs the model, as a line without an answer."""
    name = f"rule-{rule['rule']}"
    if run is not None and rule["rule"] in run["ways"]:
        return AnswerLine(name, "", rule["rule"], MEASURED, cost(run["ways"][rule["rule"]]))
    count = f"{rule['extrapolated']} of {pairs}"
    return AnswerLine(name, "", rule["rule"], "pairs at unseen angles", count)


def copied(f: Copied) -> tuple[str, ...]:
    """Say what became of a checkpoint that was copied with its table at another size."""
    old_shape, new_shape = ("x".join(map(str, shape)) for shape in (f.was, f.now))
    sentences = [f"{f.tensor} in {f.file}: {old_shape} became {new_shape}"]
    if f.keys:
        sentences.append(f"config.json: changed {listed(f.keys)}")
    if f.left:
        sentences.append(
            f"left out, since they may hold the table at its old size: {listed(f.left)}"
        )
    return tuple(sentences)
