"""Sentences about resizing: the ways of resizing, rules of scaling, and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posprobe.layouts import Grid
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.relations.resized import Copied, Period, Rule, Run, Way
from posprobe.text import Block, format_value, format_with_error
from posprobe.words.formats import format_count, format_two_figures, join_words

#: Origin of the positions that a way adds, by way.
_ADDED_ROWS_TEXTS: Mapping[str, str] = {
    "tile": "new ones repeat the table",
    "repeat-last": "new ones are copies of the last or nearest",
    "sinusoids": "new ones are extrapolated and untrained",
}
#: Names of the numbers that change.
_CHANGED_NUMBERS: Mapping[str, str] = {
    "neighbour_cosine": "mean cosine of neighbours",
    "translation_invariance": "share of similarity that distance explains",
    "norm_mean": "mean norm",
    "norm_min": "smallest norm",
}
#: Way that timm resizes grids with, as `posprobe.resizing.tables` states it. That of transformers
#: has the name of its library.
TIMM_WAY = "bicubic"
#: Relative change of a number from which a headline names it: less does not show in two digits.
MIN_NAMED_CHANGE = 0.05
#: Numbers below this count as this large, so that a change of next to nothing is not the largest.
MIN_COMPARED_NUMBER = 0.1
#: Verbs for the degree to which rows keep their relative places.
_PLACE_VERBS: Mapping[str, str] = {
    "lost": "do not keep",
    "partly": "partly keep",
    "kept": "keep",
}


def way_sentences(way: Way) -> tuple[str, ...]:
    """Return sentences on what a way of resizing keeps and changes."""
    return tuple(_iterate_way_sentences(way))


def _iterate_way_sentences(way: Way) -> Iterator[str]:
    if way.old == way.new:
        yield "The table has this size already: nothing changes."
    elif way.alike:
        yield "All rows are equal, before and after: the table tells no positions apart."
    else:
        is_stretched = way.kind == "stretches"
        yield from (
            _stretched_sentences(way) if is_stretched else _continued_sentences(way)
        )
        yield from map(_period_sentence, way.periods)
        for name in way.changed:
            old_value, new_value = (
                _format_short(getattr(numbers, name)) for numbers in (way.before, way)
            )
            yield f"The {_CHANGED_NUMBERS[name]} becomes {new_value} (before {old_value})."
        yield from _break_sentences(way)


def _format_short(value: float) -> str:
    return f"{value:z.2f}" if 0.1 <= abs(value) < 100 else format_two_figures(value)


def _stretched_sentences(way: Way) -> Iterator[str]:
    if way.place is None or way.position is None:
        yield "Every row that both tables have is the mean row: there is nothing to keep."
        return
    predicate = f"{_PLACE_VERBS[way.place]} their relative place"
    distances = _distances_phrase(way.factors) if way.place == "kept" else ""
    cosine = f"mean cosine {way.same_place:z.2f}"
    yield f"Stretched: {_position_noun(way)} {predicate} ({cosine}){distances}."
    if way.position == "kept":
        cosine = f"mean cosine {way.same_position:z.2f}"
        yield f"Rows also resemble the old ones at the same position ({cosine})."


def _distances_phrase(factors: Mapping[str, float]) -> str:
    """Return a phrase on changed distances; empty where they hardly change."""
    changes = []
    for axis, factor in factors.items():
        if (factor_text := format_two_figures(factor)) != "1":
            axis_text = "" if axis == "positions" else f" between {axis}"
            changes.append(f"divided by {factor_text}{axis_text}")
    return f", so the model sees distances {join_words(changes)}" if changes else ""


def _continued_sentences(way: Way) -> Iterator[str]:
    if isinstance(way.old, Grid) and isinstance(way.new, Grid):
        height, width = (
            min(way.old.height, way.new.height),
            min(way.old.width, way.new.width),
        )
        kept_text, n_patches = (
            f"The upper left {height} × {width} patches",
            height * width,
        )
    else:
        n_patches = min(way.old.size, way.new.size)
        kept_text = f"The first {format_count(n_patches, 'position')}"
    added_text = f"; {_ADDED_ROWS_TEXTS[way.how]}" if way.new.size > n_patches else ""
    cut_text = "; the others are cut off" if way.old.size > n_patches else ""
    yield f"{kept_text} stay unchanged{added_text}{cut_text}."


def _period_sentence(period: Period) -> str:
    axis = "" if period.axis == "positions" else f" along the {period.axis}"
    old_period, new_period = (
        format_two_figures(positions or 0) for positions in (period.before, period.after)
    )
    subject = f"The leading period{axis} of {old_period} positions"
    if period.change == "lost":
        return f"{subject} is lost."
    return f"{subject} {period.change} ({new_period} now)."


def _break_sentences(way: Way) -> Iterator[str]:
    if (n_added := way.copies - way.before.copies) > 0:
        yield f"Exact copies of other rows: {n_added} more than before."
    if way.seams:
        pairs = join_words([f"{left} and {right}" for left, right in way.seams])
        yield f"The table breaks anew between positions {pairs}."
    if way.before.special is not None and way.special is not None:
        n_old, n_new = len(way.before.special), len(way.special)
        if n_old != n_new:
            yield f"Outliers: {n_new} (before {n_old})."


def _position_noun(way: Way) -> str:
    return "patches" if isinstance(way.new, Grid) else "positions"


def rule_sentences(rule: Rule) -> str:
    """Return sentences on the pairs that a scaling slows, and on those at new angles."""
    slowest_text = (
        f" (up to {format_two_figures(rule.slowest)} times)" if rule.slowed else ""
    )
    sentences = (
        f"Of {format_count(rule.pairs, 'pair')}, {rule.slowed} turn more "
        f"slowly{slowest_text} and {rule.extrapolated} reach angles unseen "
        "in training. The mean rotation between neighbours is "
        f"{format_value(rule.kernel_at_1)}."
    )
    if rule.attention_factor != 1:
        sentences += (
            f" Logits are multiplied by {format_two_figures(rule.attention_factor**2)}."
        )
    return sentences


def cost_sentences(run: Run) -> str:
    """Return sentences on the way or rule of least cost, and on those not worse within errors."""
    best, *other_ways = run.best
    cost = run.ways[best].value
    sentences = (
        f"`{best}` costs the model least: {cost:.3f} nats per {run.task} at "
        f"{run.length} tokens. The unchanged model has "
        f"{run.before.value:.3f} on the first {run.cut} of the same windows."
    )
    if other_ways:
        do = "does" if len(other_ways) == 1 else "do"
        names = join_words([f"`{way}`" for way in other_ways], 9)
        sentences += f" Within the errors, {names} {do} as well."
    return sentences


# Leads, headlines and lines, from the blocks of a document.


def ways_lead(old: Block, new: Block) -> str:
    """Return a phrase on the old and the new size of a table."""
    return f"from a {_layout_phrase(old)} to a {_layout_phrase(new)}"


def _layout_phrase(layout: Block) -> str:
    if layout["type"] == "grid":
        return f"grid of {layout['height']} × {layout['width']} patches"
    return f"sequence of {layout['length']:,} positions"


def rules_lead(document: Block) -> str:
    """Return a phrase on the old and the new length of rotary positions."""
    return (
        f"rotary embeddings with base {document['base']:g}, from "
        f"{document['training']:,} positions to {document['to']:,}"
    )


def ways_headline(document: Block) -> str:
    """Return sentences on what changes most, or costs least, and on the model's library."""
    run = document.get("run")
    sentence = run["sentence"] if run else _largest_change_sentence(document)
    return f"{sentence} {_library_sentence(document)}".rstrip()


def _largest_change_sentence(document: Block) -> str:
    """Return the sentence on the way that changes a number of the table most."""
    ways, before = document["ways"], document["before"]
    changes = [
        (
            abs(way[name] - before[name]) / max(abs(before[name]), MIN_COMPARED_NUMBER),
            way,
            name,
        )
        for way in ways
        for name in _CHANGED_NUMBERS
        if way[name] is not None and before[name] is not None
    ]
    if not changes:
        return _kinds_sentence(ways)
    change, way, name = max(changes, key=lambda item: item[0])
    if change < MIN_NAMED_CHANGE:
        return _kinds_sentence(ways)
    return (
        f"`{way['how']}` changes the table most: the {_CHANGED_NUMBERS[name]} becomes "
        f"{_format_short(way[name])} (before {_format_short(before[name])})."
    )


def _library_sentence(document: Block) -> str:
    """Return the sentence on the way that the model's library takes; empty if not known."""
    names = {way["how"] for way in document["ways"]}
    is_timm = (document["table"]["family"] or "").startswith("timm")
    if is_timm and TIMM_WAY in names:
        return f"The model's library, timm, resizes with `{TIMM_WAY}`."
    return ""


def _kinds_sentence(ways: Sequence[Block]) -> str:
    """Return the sentence on the ways that stretch a table and those that continue it."""
    kinds = {"stretches": "stretched with", "continues": "continued at its end with"}
    names_by_kind = {
        kind: [f"`{way['how']}`" for way in ways if way["kind"] == kind] for kind in kinds
    }
    clauses = [
        f"{kinds[kind]} {join_words(names, 9)}"
        for kind, names in names_by_kind.items()
        if names
    ]
    return f"The table is {' and '.join(clauses)}."


def rules_headline(rules: Sequence[Block], pairs: int) -> str:
    """Return the sentence on the pairs that reach angles unseen in training, by rule."""
    counts = join_words(
        [f"{rule['extrapolated']} with `{rule['rule']}`" for rule in rules], 9
    )
    return f"Of {format_count(pairs, 'pair')}, {counts} reach angles unseen in training."


#: Measure of a run of the model.
LOSS_MEASURE = "mean loss (nats)"


def format_cost(block: Block) -> str:
    """Format the loss of the model with one table, or one rule."""
    return format_with_error(block["value"], block["error"])


def run_key(run: Block | None) -> str:
    """Return the key to a run: its contexts; empty without a run."""
    if run is None:
        return ""
    return f"{run['contexts']} windows of {run['kind'].removeprefix('windows of ')}, no training."


def way_line(way: Block, run: Block | None) -> AnswerLine:
    """Return the similarity that a way keeps, or its loss, as a line without an answer."""
    name, way_name = f"way-{way['how']}", way["how"]
    if run is not None:
        return AnswerLine(
            name, "", way_name, LOSS_MEASURE, format_cost(run["ways"][way_name])
        )
    unit = "place" if way["kind"] == "stretches" else "position"
    value = way[f"same_{unit}"]
    text = NO_VALUE if value is None else _format_short(value)
    return AnswerLine(name, "", way_name, f"cosine, same {unit}", text)


def rule_line(rule: Block, pairs: int, run: Block | None) -> AnswerLine:
    """Return the pairs that a rule leaves at new angles, or its loss, as a line."""
    rule_name, name = rule["rule"], f"rule-{rule['rule']}"
    if run is not None and rule_name in run["ways"]:
        cost = format_cost(run["ways"][rule_name])
        return AnswerLine(name, "", rule_name, LOSS_MEASURE, cost)
    count = f"{rule['extrapolated']} of {pairs}"
    return AnswerLine(name, "", rule_name, "pairs at unseen angles", count)


def copied_sentences(copied: Copied) -> tuple[str, ...]:
    """Return sentences on a copy of a checkpoint with its table at another size."""
    old_shape, new_shape = (
        "x".join(map(str, shape)) for shape in (copied.old_shape, copied.new_shape)
    )
    sentences = [f"{copied.tensor} in {copied.file}: {old_shape} became {new_shape}"]
    if copied.keys:
        sentences.append(f"config.json: changed {join_words(copied.keys)}")
    if copied.omitted_files:
        sentences.append(
            "left out, since they may hold the table at its old size: "
            f"{join_words(copied.omitted_files)}"
        )
    return tuple(sentences)
