"""What the page about positions inside a model shows: figures, tables, what is missing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from posprobe.report.forward_findings import percent, random_contexts
from posprobe.report.forward_sections import SECTIONS
from posprobe.report.sections import VERDICT, Block, Number, Section, lookup, reasons, show
from posprobe.report.svg import inline

#: ``caption``, ``columns`` (``label``, and whether they hold a ``value``), ``rows`` and ``foot``.
Table: TypeAlias = Mapping[str, Any]

#: Heads that a table lists; the JSON has all.
LISTED = 32
#: Numbers of a layer that stand beside the sinusoid and random walks, and their short names.
BESIDE: Mapping[str, str] = {
    "similarity.centered.neighbour_mean": "neighbours",
    "similarity.centered.translation_invariance": "invariance",
    "pca.stable_rank": "stable rank",
    "sinusoid.cka": "CKA",
}


def forward_context(document: Block, drawings: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template of a page about a run of a model shows."""
    titles = {section.key: section.title for section in SECTIONS}
    sections = [
        {
            "text": section,
            "figures": [
                inline(drawings[name], name, label(document[section.key]))
                for name, label in section.figures.items()
                if name in drawings
            ],
            "facts": section.facts(document[section.key]),
            "tables": _tables(section, document),
            "undefined": _reasons(document[section.key].get("undefined", {})),
        }
        for section in SECTIONS
        if document[section.key] is not None
    ]
    return {
        "name": document["name"],
        "title": _title(document["name"]),
        "model": document["model"],
        "contexts": document["contexts"],
        "not_real": random_contexts(document),
        "notes": run_notes(document),
        "findings": document["findings"],
        "sections": sections,
        "missing": {titles.get(name, name): why for name, why in document["missing"].items()},
    }


def run_notes(document: Block) -> list[str]:
    """Return the notes on the run; those on a result stand beside it."""
    beside = {
        note for name in ("heads", "effective") for note in lookup(document, f"{name}.notes") or ()
    }
    return [note for note in document["notes"] if note not in beside]


def _title(reference: str) -> str:
    """Shorten a reference that is a path to the last of its parts."""
    is_path = reference.startswith((".", "/", "~"))
    return reference.rstrip("/").rpartition("/")[2] or reference if is_path else reference


def _reasons(undefined: Mapping[str, str]) -> list[str]:
    """Say why the numbers that the page shows are undefined."""
    return reasons(
        (BESIDE.get(name, name), reason)
        for name, reason in undefined.items()
        if "." not in name or name in BESIDE
    )


def _tables(section: Section, document: Block) -> list[Table]:
    block = document[section.key]
    match section.key:
        case "states":
            return [layers_table(document)]
        case "effective":
            return [_effective(block)]
        case "heads":
            return [_sharpest(block)]
        case "attention":
            return [_attention(block)]
        case "words":
            return [_words(block)]
        case "permutation":
            return [_permutation(block)]
        case "shift":
            return [_shift(block)]
        case "blank":
            return [_blank(block)]
    return [_overlaps(block, section.numbers)]


def _table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    foot: Sequence[Sequence[str]] = (),
) -> Table:
    """Lay out a table; columns whose label begins with ``=`` hold numbers."""
    labels = [{"label": label.lstrip("="), "value": label[0] == "="} for label in columns]
    return {"caption": caption, "columns": labels, "rows": rows, "foot": foot}


def layers_table(document: Block) -> Table:
    """Tabulate what positions add: a row per layer, the sinusoid and random walks below."""
    layers = document["states"]["layers"]
    beside = document["beside"] or {}
    sinusoid = beside.get("sinusoid") or {}
    walk = beside.get("walk") or {}
    rows = [
        [
            str(layer["layer"]),
            _percent(lookup(layer, "shares.position")),
            _percent(layer["noise_share"]),
            _percent(lookup(layer, "shares.context")),
            _cell(layer["relative_norm"]),
            _cell(layer["rank"]),
            *(_cell(layer["analyses"].get(key)) for key in BESIDE),
        ]
        for layer in layers
    ]
    foot = []
    if sinusoid:
        known = [_cell(sinusoid.get(key)) for key in BESIDE]
        foot.append(["sinusoid", *[""] * 5, *known])
    if any(walk.values()):
        bands = [walk.get(key) for key in BESIDE]
        known = [f"{show(b['p5'], '.2g')} to {show(b['p95'], '.2g')}" if b else "–" for b in bands]
        foot.append(["random walks", *[""] * 5, *known])
    below = [
        *(["the sinusoid"] if sinusoid else []),
        *([f"{beside['draws']} random walks, 5 to 95 %"] if any(walk.values()) else []),
    ]
    also = f" At the foot {' and '.join(below)}, of the same shape." if below else ""
    return _table(
        "By layer: the share of variance that positions account for, the share of that which is "
        "noise, the share of contexts, and numbers of the table that positions add." + also,
        ["layer", "=position", "=noise", "=context", "=relative norm", "=rank",
         *(f"={label}" for label in BESIDE.values())],
        rows,
        foot,
    )  # fmt: skip


def _effective(block: Block) -> Table:
    rows = [
        [number.label, _cell(block["raw"][number.key]), _cell(block["effective"][number.key]),
         number.meaning]
        for number in VERDICT
        if block["raw"].get(number.key) is not None
    ]  # fmt: skip
    columns = ["number", "=as stored", "=as attention sees it", "meaning"]
    return _table("The table before and after.", columns, rows)


def _sharpest(block: Block) -> Table:
    heads = [
        (layer["attention"][head], layer, head)
        for layer in block["layers"]
        for head in range(layer["heads"])
    ]
    heads.sort(key=lambda entry: -entry[0])
    rows = [
        [
            f"{layer['layer']}.{head}", layer["peak_name"][head], percent(attention),
            percent(layer['uniform'][head]), _cell(layer["offset_share"][head]),
            _cell(layer["key_share"][head]),
        ]
        for attention, layer, head in heads[:LISTED]
    ]  # fmt: skip
    total = len(heads)
    which = f"The {LISTED} sharpest of {total} heads" if total > LISTED else f"All {total} heads"
    return _table(
        f"{which}, by attention at the offset that they prefer.",
        ["layer.head", "prefers", "=attention there", "=equal logits", "=offset share",
         "=key share"],
        rows,
    )  # fmt: skip


def _overlaps(block: Block, numbers: Sequence[Number]) -> Table:
    rows = [
        [
            number.label, _cell(block[number.key]["value"]), show(block[number.key]["expected"]),
            show(block[number.key]["band"], " to "), number.meaning,
        ]
        for number in numbers
    ]  # fmt: skip
    columns = ["share", "=value", "=random subspace", "=5 to 95 %", "meaning"]
    return _table("Shares beside those of a random subspace of the same rank.", columns, rows)


def _attention(block: Block) -> Table:
    numbers = {
        "first": "to the first",
        "special": "to no position",
        "locality": "locality",
        "symmetry": "symmetry",
    }
    # Where there are no such tokens, and no line, there is no such column.
    shown = {
        key: label
        for key, label in numbers.items()
        if any(value for layer in block["layers"] for value in layer[key])
    }
    rows = [
        [
            str(layer["layer"]), _common(layer["peak_name"]),
            *(_mean(layer[key]) for key in shown), _cell(layer["translation_invariance"]),
        ]
        for layer in block["layers"]
    ]  # fmt: skip
    columns = ["layer", "most heads prefer", *(f"={label}" for label in shown.values())]
    uniform = block["uniform_first"]
    even = "" if uniform is None else f" Uniform attention pays the first {percent(uniform)}."
    return _table(f"Means over heads.{even}", [*columns, "=invariance"], rows)


def _common(names: Sequence[str]) -> str:
    name, count = Counter(names).most_common(1)[0]
    return f"{name} ({count} of {len(names)})"


def _words(block: Block) -> Table:
    layer = block["layers"][0]
    rows = [
        [str(head), name, *(_cell(layer[key][head]) for key in ("first", "locality", "symmetry"))]
        for head, name in enumerate(layer["peak_name"])
    ]
    columns = ["head", "prefers", "=to the first", "=locality", "=symmetry"]
    return _table(
        f"Heads of layer {layer['layer']}, over {block['contexts']} repeated tokens.", columns, rows
    )


def _permutation(block: Block) -> Table:
    kinds = (("with positions", "with_positions"), ("table set to 0", "without_positions"))
    numbers = {
        "tokens": "tokens",
        "special": "tokens that stay",
        "accuracy": "right as they are",
        "scrambled_accuracy": "right permuted",
    }
    shown = {
        key: label
        for key, label in numbers.items()
        if any(block[kind][key] is not None for _, kind in kinds)
    }
    rows = [[label, *(_cell(block[kind][key]) for key in shown)] for label, kind in kinds]
    return _table(
        f"Relative change of the last hidden states over {block['contexts']} contexts; the table "
        f"is {block['table']}.",
        ["model", *(f"={label}" for label in shown.values())],
        rows,
    )


def _shift(block: Block) -> Table:
    columns = ["first position", "=relative change"]
    rows = [
        [str(at), _cell(change)]
        for at, change in zip(block["shifts"], block["change"], strict=True)
    ]
    if block["loss"] is not None:
        columns += ["=loss (nats)", "=perplexity"]
        for row, loss in zip(rows, block["loss"], strict=True):
            row += [_cell(loss), show(math.exp(min(loss, 700.0)))]
    return _table(f"By shift, over {block['contexts']} contexts.", columns, rows)


def _blank(block: Block) -> Table:
    numbers = {"share": "share", "alignment": "cosine", "cka": "CKA"}
    rows = [
        [
            str(layer["layer"]),
            *(_cell(layer[kind][key]) for key in numbers for kind in ("constant", "noise")),
        ]
        for layer in block["layers"]
    ]
    columns = [f"={label}, {kind}" for label in numbers.values() for kind in ("grey", "noise")]
    return _table(f"By layer; cosine and CKA are with {block['table']}.", ["layer", *columns], rows)


def _cell(value: float | None) -> str:
    return "–" if value is None else show(value)


def _percent(value: float | None) -> str:
    return "–" if value is None else percent(value) if value >= 5e-4 else "0 %"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _cell(sum(known) / len(known) if known else None)
