"""Sentences about two copies of a model, and about two tables that may be related."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from posprobe.data import read_data
from posprobe.layouts import Grid, layout_sides
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.relations.fingerprints import (
    BLOCKS_PER_AXIS,
    MAX_RELATED_DISTANCE,
    N_BLOCKS,
    Likeness,
)
from posprobe.relations.rules import Finding
from posprobe.relations.values import MAX_RELATED_CHANCE, MAX_SKETCH_ROUNDING
from posprobe.text import shorten_reference
from posprobe.words.formats import (
    Template,
    TemplateFormatter,
    format_count,
    format_number,
    format_two_figures,
    layer_numbers,
)

#: Name of the first distance at which a difference has an effect.
DISTANCE_LABEL = "matters from distance"
#: Largest number of lines in the terminal.
MAX_CHECK_LINES = 12


@cache
def _check_texts() -> Mapping[str, Any]:
    return read_data("words/checks.toml")


def compared_subjects() -> tuple[str, ...]:
    """Return the names of what is compared of two copies, in the order of the report."""
    return tuple(_check_texts()["what"])


def _format_size(value: float | None) -> str:
    if value is not None and value < 1e-5:
        return "less than 0.00001"
    return format_two_figures(value or 0.0)


def _layers_phrase(finding: Finding) -> str:
    layers = finding.more.get("layers")
    pair_order = f", {finding.more['read']}" if "read" in finding.more else ""
    if not layers:
        return ""
    side = f", {finding.more['projection']}" if "projection" in finding.more else ""
    return f"{layer_numbers(layers)}{side}{pair_order}: "


def _partner(finding: Finding) -> str:
    """Return the other side of attention, or both."""
    partners = {"queries": "its keys", "keys": "its queries"}
    return partners.get(finding.more["projection"], "each other")


def _partner_order(finding: Finding) -> str:
    """Return where the rows of the other side went."""
    partner = {"queries": "keys", "keys": "queries"}.get(finding.more["projection"])
    order = finding.b if partner == "keys" else finding.a
    if partner is None:
        return "each in its way"
    text = _check_texts()["parts"].get(order, "") if order != "other_heads" else ""
    return f"{partner}: {text.partition(' ')[2] or 'other rows'}"


def _cap_phrase(value: float | None) -> str:
    return f"capped at {format_number(value)}" if value else "not capped"


def _angles_key(finding: Finding) -> str:
    way: str = finding.more["way"]
    return way if way in {"positions", "product"} else "all_angles"


#: Parts of lines that depend on the finding.
FINDING_PARTS: Mapping[str, Template] = {
    "again": lambda f: (
        f", rounded to {f.more['type']} in {f.more['side'].upper()}"
        if "type" in f.more
        else ""
    ),
    "along": lambda f: ", along the raster of rows" if f.more.get("raster") else "",
    "angles": _angles_key,
    "apart": lambda f: format_number(max(f.more["last"], 1 / f.more["last"])),
    "base": lambda f: f"base {format_number(f.a)} in both" if f.a else "equal",
    "beyond": lambda f: (
        f", in inputs longer than {f.more['trained']:,}" if "trained" in f.more else ""
    ),
    "between": lambda f: str(f.more["pairs"] - f.more["kept"]),
    "blocks": lambda f: f.more.get("type") or f"{f.more['bits']} bits in blocks",
    "caps": lambda f: f"{_cap_phrase(f.a)} in A, {_cap_phrase(f.b)} in B",
    "count": lambda f: format_count(int(f.value or 0), "row"),
    "from_position": lambda f: (
        f"; wrong from position {f.more['position']:,}" if "position" in f.more else ""
    ),
    "holder": lambda f: "A" if f.a else "B",
    "in_layers": lambda f: (
        f" in {layer_numbers(f.more['layers'])}" if "layers" in f.more else ""
    ),
    "inverse": lambda f: format_number(1 / (f.value or 1)),
    "layers": _layers_phrase,
    "lone": lambda f: f"{f.a or f.b} in {'A' if f.a else 'B'}",
    "method": lambda f: f.more["method"].replace("_antialias", ", antialiased"),
    "vector": lambda f: _check_texts()["what"][f.what],
    "up_to_order": lambda f: " up to the order of rows" if "reordered" in f.more else "",
    "of_heads": lambda f: "heads of " if "of" in f.more else "",
    "partner": _partner,
    "partner_order": _partner_order,
    "pairing": lambda f: f.a or "in the same order",
    "pairings": lambda f: f"{f.a or 'not stated'} in A, {f.b or 'not stated'} in B",
    "position_axis": lambda f: f"axis {f.more['axis']}, " if f.more["axis"] else "",
    "scaled": lambda f: "divided" if (f.value or 0) >= 1 else "multiplied",
    "side": lambda f: f.more["side"].upper(),
    "size": lambda f: _format_size(f.value),
    "subject": lambda f: f.more.get("projection", "the table"),
}


def _finding_formatter(finding: Finding) -> TemplateFormatter:
    return TemplateFormatter({**_check_texts()["parts"], **FINDING_PARTS}, f=finding)


def _finding_line(finding: Finding) -> str:
    line: str = _check_texts()["causes"][finding.cause]["line"]
    # Layers stand in front of every line that is of some.
    prefix = "" if "{layers}" in line else "{layers}"
    return _finding_formatter(finding).format(prefix + line)


def not_compared_reason(reason: str, details: str = "") -> str:
    """Return why something was not compared; a reason that is no key is already a message."""
    text: str | None = _check_texts()["not_compared"].get(reason)
    if text is None:
        return reason.removesuffix(".")
    return text.format(*details.split(" | "), about=details)


def finding_sentence(finding: Finding) -> str:
    """Return one finding as a sentence."""
    subject = _check_texts()["what"][finding.what].capitalize()
    if finding.part:
        subject += f" of {finding.part}"
    text = f"{subject}: {_finding_line(finding)}."
    if finding.first_distance is None:
        return text
    return f"{text} {_harm_sentence(finding)}."


def finding_place(finding: Finding) -> str:
    """Return the layers and the projection that a finding is about; empty for all."""
    return _layers_phrase(finding).removesuffix(": ")


def finding_verdict(finding: Finding, *, differs: bool) -> str:
    """Return what B is in the subject of a finding: other, the same, or in another order."""
    if differs:
        return "differs"
    return "reordered" if "reordered" in finding.more else "alike"


def format_first_distance(finding: Finding) -> str:
    """Return the first distance that a difference matters from, as the integer that it is."""
    distance = finding.first_distance
    if distance is None:
        return NO_VALUE
    if not math.isfinite(distance):
        return "none"
    return f"{math.ceil(distance):,}"


def finding_line(finding: Finding, name: str, *, differs: bool) -> AnswerLine:
    """Return one finding as a line: whether the two copies agree, and where.

    Parameters
    ----------
    finding
        What was compared.
    name
        Name of the line; it ends with the subject, which defines the question.
    differs
        Whether it is a difference.
    """
    subject = subject_name(finding.what, finding.part)
    distance = finding.first_distance
    measure, value = finding_place(finding), finding.value
    text = finding_verdict(finding, differs=differs).replace("alike", "equal")
    if distance is not None and math.isfinite(distance):
        measure = f"{measure}, {DISTANCE_LABEL}".removeprefix(", ")
        text = format_first_distance(finding)
    elif value:
        text = _format_size(value)
    return AnswerLine(name, "no" if differs else "yes", f"Same {subject}?", measure, text)


def _harm_sentence(finding: Finding) -> str:
    """Say from which distance a difference matters, and what is wrong there."""
    if finding.first_distance == 0:
        return f"{DISTANCE_LABEL.capitalize()} 0, the first token"
    if not math.isfinite(finding.first_distance or math.inf):
        return "No pair is 0.1 rad off within what was compared"
    start = f"{DISTANCE_LABEL.capitalize()} {format_first_distance(finding)}"
    if finding.what == "positions":
        return f"{start}: offsets of tokens differ"
    if finding.what == "window":
        return f"{start}: other keys are seen"
    size = _format_size(finding.rotation) if finding.rotation is not None else ""
    up_to = "" if size.startswith("less") else "up to "
    mean = f"; mean rotation off by {up_to}{size}" if size else ""
    return f"{start}: a pair is 0.1 rad off{mean}"


def read_finding(block: Mapping[str, Any]) -> Finding:
    """Return the finding that a block of a saved document holds."""
    names = {field.name for field in fields(Finding)}
    return Finding(**{name: value for name, value in block.items() if name in names})


def subject_name(kind: str, part: str) -> str:
    """Return the name of what was compared, with the encoding where there are several."""
    name: str = _check_texts()["what"][kind]
    return f"{name} {part}".rstrip()


def projection_label(relation: str, order: str | None, read: str) -> str:
    """Return what a projection of B is to that of A, in a word or two."""
    labels: Mapping[str, str] = _check_texts()["labels"]
    if order not in (None, "same"):
        return labels[str(order)]
    label = labels.get(relation, relation.replace("_", " "))
    return labels["rows_only"] if read == "rows" else label


def tolerance_sentence(error: float, positions: int, tolerance: float) -> str:
    """Return that an angle is off by more than a tolerance, in radians."""
    return (
        f"The largest error of an angle within {positions:,} positions is "
        f"{format_two_figures(error)} rad, above the tolerance of {tolerance:g}."
    )


def run_sentence(a: str, b: str) -> str:
    """Return what a run compares: a model as transformers loads it with a file."""
    file = "its own file" if a == b else f"the file of {a}"
    return f"{b} as transformers loads it, against what {file} states."


def check_title(a: str, b: str) -> str:
    """Return the names of two copies, without the folders that they are in."""
    names = [shorten_reference(a), shorten_reference(b)]
    return " → ".join([a, b] if len(set(names)) == 1 else names)


def check_lead(document: Mapping[str, Any]) -> str:
    """Return the question that a check answers, and how much was compared."""
    layers = {projection["layer"] for projection in document.get("projections") or ()}
    compared = f" · {format_count(len(layers), 'layer')}" if layers else ""
    return f"Does B encode position as A does?{compared}"


def not_compared_sentence(reason: str) -> str:
    """Return the sentence that something was not compared."""
    return f"Not compared: {reason}."


def verdict_sentences(
    is_alike: bool | None, causes: Sequence[Finding], compared: Sequence[Finding]
) -> list[str]:
    """Return the verdict and, for a difference, its likely cause."""
    texts = _check_texts()["causes"]
    if is_alike is None:
        return ["Cannot tell."]
    if is_alike:
        has_other_weights = any(
            finding.cause in ("moved", "other_weights") for finding in compared
        )
        return [f"Alike{': other weights, same positions' if has_other_weights else ''}."]
    hints = [texts[x.cause]["likely"] for x in causes if "likely" in texts[x.cause]][:1]
    headline = _finding_formatter(causes[0]).format(texts[causes[0].cause]["head"])
    return [f"Different: {headline}", *(f"Likely: {hint}" for hint in hints)]


def check_lines(
    is_alike: bool | None,
    causes: Sequence[Finding],
    compared: Sequence[Finding],
    missing: Iterable[str],
    context: int | None,
) -> list[str]:
    """Return the verdict, the differences, the equal findings, and the likely cause."""
    headline, *hints = verdict_sentences(is_alike, causes, compared)
    body, alike_lines = (
        [
            line
            for finding in findings
            for line in _finding_rows(
                finding, finding_verdict(finding, differs=findings is causes), context
            )
        ]
        for findings in (causes, compared)
    )
    alike_lines += [f"  not compared: {text}." for text in missing]
    all_lines = [*body, *alike_lines]
    max_lines = MAX_CHECK_LINES - 1 - len(hints)
    if len(all_lines) > max_lines:
        all_lines = [
            *all_lines[: max_lines - 1],
            f"  … {len(all_lines) - max_lines + 1} more lines, in the JSON.",
        ]
    return [headline, *all_lines, *hints]


def _finding_rows(finding: Finding, verdict: str, context: int | None) -> Iterator[str]:
    subject = subject_name(finding.what, finding.part)
    yield f"  {subject:<15} {_finding_line(finding):<56}  {verdict}"
    if finding.first_distance is not None:
        length = (
            f"; the context is {context:,}" if context and finding.first_distance else ""
        )
        harm = _harm_sentence(finding)
        yield f"  {'':<16}{harm[:1].lower()}{harm[1:]}{length}"


#: Largest probability of as small a distance by chance at which the tables may be related.
MAX_EXCLUDED_CHANCE_P = 0.05
_CHANCE_TEXT = f"{MAX_RELATED_CHANCE:.0e}".replace("-0", "-")
_NUMBER_FORMAT_NAMES: Mapping[str | None, str] = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


#: Relation of a table to the one that follows, by which of them is the rounded copy.
_ROUNDED_PHRASES: Mapping[str | None, str] = {
    "a": "a rounded copy of",
    "b": "the unrounded version of",
    None: "the same up to rounding as",
}


def relation_phrase(likeness: Likeness) -> str:
    """Return the relation of a table to another, whose name follows."""
    if likeness.distance is None:
        return "not comparable with"
    if likeness.shift:
        rows = format_count(likeness.shift, "row")
        if likeness.relation == "rows_cut":
            return f"first {rows} cut off from"
        return f"{rows} put in front of"
    if likeness.relation == "rounded":
        return _ROUNDED_PHRASES[likeness.rounded_side]
    preposition = "to" if likeness.relation in ("identical", "unrelated") else "from"
    return f"{likeness.relation} {preposition}"


def evidence_sentences(likeness: Likeness) -> str:
    """Return sentences on the distance of two tables."""
    if likeness.distance is None or likeness.chance is None:
        width_a, width_b = likeness.widths
        if width_a != width_b:
            return f"Tables of width {width_a} and {width_b} cannot be compared."
        return "They have no positions in common, or one is zero."
    if likeness.relation == "identical" and likeness.whole:
        return f"All {likeness.rows} rows are equal (same SHA-256)."
    distance = _format_distance(likeness.distance)
    sentence = f"Relative distance {distance} {_distance_scope(likeness)}"
    if likeness.relation == "identical":
        return f"{sentence}: equal, as far as fingerprints can tell."
    if likeness.relation == "rounded":
        return (
            f"{sentence}: within rounding to {_NUMBER_FORMAT_NAMES[likeness.rounded_to]}."
        )
    if not likeness.related:
        p = f"p = {likeness.chance:.2g}"
        if likeness.chance > MAX_EXCLUDED_CHANCE_P:
            return f"{sentence}: no closer than chance ({p})."
        return f"{sentence}: chance is not excluded ({p}, required {_CHANCE_TEXT})."
    sentence = f"{sentence}: closer than chance (p < {_CHANCE_TEXT})."
    if likeness.distance > MAX_RELATED_DISTANCE:
        sentence += " This far apart, they may share only their initial values."
    return f"{sentence} Which came first is not known."


def _format_distance(value: float) -> str:
    if value < MAX_SKETCH_ROUNDING:
        return f"below {MAX_SKETCH_ROUNDING:g}"
    return f"{value:.1f}" if 1 <= value < 100 else format_two_figures(value)


def _distance_scope(likeness: Likeness) -> str:
    """Return a phrase on the rows that the distance is about."""
    if likeness.rows:
        return (
            f"over all {likeness.rows} positions"
            if likeness.whole
            else f"over {likeness.rows} shared positions"
        )
    name_a, name_b = (" × ".join(map(str, layout_sides(size))) for size in likeness.sizes)
    is_grid = isinstance(likeness.sizes[0], Grid)
    blocks = f"{BLOCKS_PER_AXIS} × {BLOCKS_PER_AXIS}" if is_grid else str(N_BLOCKS)
    noun = "patches" if is_grid else "positions"
    return f"between means of {blocks} equal parts ({name_a} and {name_b} {noun})"
