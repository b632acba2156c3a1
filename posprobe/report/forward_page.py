"""What the page about positions inside a model shows: figures, tables, what is missing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from posprobe.formatting import Block, cell, lookup, reasons, show
from posprobe.measurements import Number, compared_numbers
from posprobe.page import Fact, Page, Picture, Reading, Section, Table, columns
from posprobe.report.forward_findings import percent, random_contexts
from posprobe.report.forward_sections import SECTIONS, ModelSection
from posprobe.report.table_page import versions

#: Heads that a table lists; the JSON has all.
LISTED = 32
#: Numbers of a layer that stand beside the sinusoid and random walks, and their short names.
BESIDE: Mapping[str, str] = {
    "similarity.centered.neighbour_mean": "neighbours",
    "similarity.centered.translation_invariance": "invariance",
    "pca.stable_rank": "stable rank",
    "sinusoid.cka": "CKA",
}


def forward_page(document: Block) -> Page:
    """Lay out the page about positions inside a model."""
    titles = {section.key: section.title for section in SECTIONS}
    model, contexts = document["model"], document["contexts"]
    run = f", run on {contexts['used']} contexts" if contexts["used"] else ""
    bullets = tuple(finding["text"] for finding in document["findings"])
    nothing = () if bullets else ("Nothing can be said in a sentence.",)
    described = f"{model['class']}, {model['parameters']:,} parameters"
    return Page(
        title=_title(document["name"]),
        subject="what position does inside it",
        lead=f"What position does inside this model: {described}{run}, in {model['dtype']}.",
        notes=tuple(f"{note}." for note in run_notes(document)),
        sections=(
            Section("findings", "Findings", paragraphs=nothing, bullets=bullets),
            _contexts(document),
            *(
                _section(section, document)
                for section in SECTIONS
                if document[section.key] is not None
            ),
            *_missing(document, titles),
        ),
        provenance=(
            Fact("reference", document["name"], code=True),
            Fact("model", f"{described}, {model['dtype']}"),
            *versions(document["environment"]),
        ),
    )


def _contexts(document: Block) -> Section:
    contexts = document["contexts"]
    rows = [("contexts", contexts["kind"]), ("how many", str(contexts["used"]))]
    if "shape" in contexts:
        shape = " × ".join(map(str, contexts["shape"]))
        rows.append(("size of each", f"{shape} (channels, height, width)"))
    else:
        rows.append(("length of each", f"{contexts['length']} tokens"))
    if contexts["seed"] is not None:
        rows.append(("seed", str(contexts["seed"])))
    said: tuple[str, ...] = ()
    if not_real := random_contexts(document):
        option = "--images DIR" if "shape" in contexts else "--text FILE"
        said = (
            (
                f"Not real input: {not_real}. Means over them show what positions add whatever "
                "stands there; what positions do together with real content can differ. Run it "
                f"with `{option}` to see."
            ),
        )
    return Section(
        "contexts",
        "What it was run on",
        paragraphs=said,
        tables=(Table("The contexts that means are over", columns("what", "value"), tuple(rows)),),
    )


def _section(section: ModelSection, document: Block) -> Section:
    block = document[section.key]
    return Section(
        section.key,
        section.title,
        paragraphs=(section.shows, *section.facts(block)),
        pictures=tuple(Picture(name, alt(block)) for name, alt in section.figures.items()),
        notes=_reasons(block.get("undefined", {})),
        tables=tuple(_tables(section, document)),
        reading=Reading(section.reading, section.limits, section.source),
    )


def _missing(document: Block, titles: Mapping[str, str]) -> tuple[Section, ...]:
    if not document["missing"]:
        return ()
    rows = tuple((titles.get(name, name), why) for name, why in document["missing"].items())
    table = Table("Not measured, and why", columns("measurement", "reason"), rows, brief=True)
    return (Section("missing", "Not measured", tables=(table,)),)


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


def _reasons(undefined: Mapping[str, str]) -> tuple[str, ...]:
    """Say why the numbers that the page shows are undefined."""
    return reasons(
        (BESIDE.get(name, name), reason)
        for name, reason in undefined.items()
        if "." not in name or name in BESIDE
    )


def _tables(section: ModelSection, document: Block) -> list[Table]:
    block = document[section.key]
    match section.key:
        case "states":
            return [layers_table(document)]
        case "effective":
            return [_effective(block)]
        case "heads":
            return [_preferred(block, "by their weights"), _sharpest(block)]
        case "attention":
            return [_preferred(block, "in measured attention"), _attention(block)]
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
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    foot: Sequence[Sequence[str]] = (),
    *,
    brief: bool = False,
) -> Table:
    """Lay out a table; columns whose label begins with ``=`` hold numbers."""
    return Table(
        caption, columns(*headings), tuple(map(tuple, rows)), tuple(map(tuple, foot)), brief=brief
    )


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
            cell(layer["relative_norm"]),
            cell(layer["rank"]),
            *(cell(layer["analyses"].get(key)) for key in BESIDE),
        ]
        for layer in layers
    ]
    foot = []
    if sinusoid:
        known = [cell(sinusoid.get(key)) for key in BESIDE]
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
        brief=True,
    )  # fmt: skip


def _effective(block: Block) -> Table:
    rows = [
        [number.label, cell(block["raw"][key]), cell(block["effective"][key]),
         number.meaning]
        for key, number in compared_numbers().items()
        if block["raw"].get(key) is not None
    ]  # fmt: skip
    return _table(
        "The table before and after.",
        ["number", "=as stored", "=as attention sees it", "meaning"],
        rows,
    )


def _preferred(block: Block, where: str) -> Table:
    """Count the heads of each layer by the offset that they prefer."""
    rows = []
    for layer in block["layers"]:
        common = Counter(layer["peak_name"]).most_common(3)
        rows.append([str(layer["layer"]), "; ".join(f"{name} ({n})" for name, n in common)])
    return _table(
        f"What most heads prefer {where}, with the number of heads",
        ["layer", "offsets"],
        rows,
        brief=True,
    )


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
            percent(layer['uniform'][head]), cell(layer["offset_share"][head]),
            cell(layer["key_share"][head]),
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
            number.label, cell(block[number.key]["value"]), show(block[number.key]["expected"]),
            show(block[number.key]["band"], " to "), number.meaning,
        ]
        for number in numbers
    ]  # fmt: skip
    return _table(
        "Shares, and those of a random subspace of the same rank.",
        ["share", "=value", "=random subspace", "=5 to 95 %", "meaning"],
        rows,
    )


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
            *(_mean(layer[key]) for key in shown), cell(layer["translation_invariance"]),
        ]
        for layer in block["layers"]
    ]  # fmt: skip
    headings = ["layer", "most heads prefer", *(f"={label}" for label in shown.values())]
    uniform = block["uniform_first"]
    even = "" if uniform is None else f" Uniform attention pays the first {percent(uniform)}."
    return _table(f"Means over heads.{even}", [*headings, "=invariance"], rows)


def _common(names: Sequence[str]) -> str:
    name, count = Counter(names).most_common(1)[0]
    return f"{name} ({count} of {len(names)})"


def _words(block: Block) -> Table:
    layer = block["layers"][0]
    rows = [
        [str(head), name, *(cell(layer[key][head]) for key in ("first", "locality", "symmetry"))]
        for head, name in enumerate(layer["peak_name"])
    ]
    headings = ["head", "prefers", "=to the first", "=locality", "=symmetry"]
    return _table(
        f"Heads of layer {layer['layer']}, over {block['contexts']} repeated tokens.",
        headings,
        rows,
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
    rows = [[label, *(cell(block[kind][key]) for key in shown)] for label, kind in kinds]
    return _table(
        f"Relative change of the last hidden states over {block['contexts']} contexts; the table "
        f"is {block['table']}.",
        ["model", *(f"={label}" for label in shown.values())],
        rows,
    )


def _shift(block: Block) -> Table:
    headings = ["first position", "=relative change"]
    rows = [
        [str(at), cell(change)] for at, change in zip(block["shifts"], block["change"], strict=True)
    ]
    if block["loss"] is not None:
        headings += ["=loss (nats)", "=perplexity"]
        for row, loss in zip(rows, block["loss"], strict=True):
            row += [cell(loss), show(math.exp(min(loss, 700.0)))]
    return _table(f"By shift, over {block['contexts']} contexts.", headings, rows)


def _blank(block: Block) -> Table:
    numbers = {"share": "share", "alignment": "cosine", "cka": "CKA"}
    rows = [
        [
            str(layer["layer"]),
            *(cell(layer[kind][key]) for key in numbers for kind in ("constant", "noise")),
        ]
        for layer in block["layers"]
    ]
    headings = [f"={label}, {kind}" for label in numbers.values() for kind in ("grey", "noise")]
    return _table(
        f"By layer; cosine and CKA are with {block['table']}.", ["layer", *headings], rows
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else percent(value) if value >= 5e-4 else "0 %"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return cell(sum(known) / len(known) if known else None)
