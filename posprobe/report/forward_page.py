"""The page of a run of a model, from its document alone."""

from __future__ import annotations

from dataclasses import replace

from posprobe.measurements.model import MODEL
from posprobe.number_format import Block, lookup
from posprobe.page import Fact, Page, Section, Table, columns
from posprobe.report.narrator.models import ASKS
from posprobe.report.table_page import answers_table, versions

#: Figures that carry the answers, shown first.
LEADING = ("layers", "substitution")


def forward_page(document: Block) -> Page:
    """Lay out the page of a run of a model: the answers, the contexts, each measurement."""
    model, contexts = document["model"], document["contexts"]
    run = f", run on {contexts['used']} contexts" if contexts["used"] else ""
    described = f"{model['class']}, {model['parameters']:,} parameters"
    measured = [m.section(document) for m in MODEL.values() if document.get(m.name) is not None]
    told = "verdict" in document
    if told:
        measured = [
            replace(
                section,
                pictures=tuple(p for p in section.pictures if p.name not in LEADING),
                folded=True,
            )
            for section in measured
        ]
    return Page(
        title=_title(document["name"]),
        subject="what position does inside it",
        lead=f"What position does inside this model: {described}{run}, in {model['dtype']}.",
        notes=_run_notes(document),
        sections=(
            _verdict(document),
            replace(_contexts(document), folded=told),
            *measured,
            *_missing(document),
        ),
        provenance=(
            Fact("reference", document["name"], code=True),
            Fact("model", f"{described}, {model['dtype']}"),
            *versions(document["environment"]),
        ),
    )


def _verdict(document: Block) -> Section:
    """Say what the run amounts to; bundles of earlier versions have findings alone."""
    if "verdict" not in document:
        bullets = tuple(finding["text"] for finding in document["findings"])
        return Section("findings", "Findings", bullets=bullets)
    told = document["verdict"]
    caption = "Questions and answers. Each names what it is compared with."
    tables = (answers_table(told, caption, ASKS),) if told["answers"] else ()
    title = "What position does in this model"
    pictures = tuple(
        picture
        for measurement in MODEL.values()
        if document.get(measurement.name) is not None
        for picture in measurement.section(document).pictures
        if picture.name in LEADING
    )
    return Section("verdict", title, bullets=(told["summary"],), pictures=pictures, tables=tables)


def _title(reference: str) -> str:
    """Shorten a reference that is a path to the last of its parts."""
    is_path = reference.startswith((".", "/", "~"))
    return reference.rstrip("/").rpartition("/")[2] or reference if is_path else reference


def _run_notes(document: Block) -> tuple[str, ...]:
    """Return the notes on the run; those on a result are in its section."""
    elsewhere = {note for name in MODEL for note in lookup(document, f"{name}.notes") or ()}
    return tuple(f"{note}." for note in document["notes"] if note not in elsewhere)


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
    if contexts.get("random"):
        given, real, option = "tokens", "text", "--text FILE"
        if "shape" in contexts:
            given, real, option = "pixels", "pictures", "--images DIR"
        said = (
            (
                f"Measured on random {given}, not on {real}: means over them show what positions "
                "add whatever the content is. What positions do with real content can differ. Run "
                f"it with `{option}` to see."
            ),
        )
    return Section(
        "contexts",
        "What it was run on",
        paragraphs=said,
        tables=(Table("The contexts that means are over", columns("what", "value"), tuple(rows)),),
    )


def _missing(document: Block) -> tuple[Section, ...]:
    if not document["missing"]:
        return ()
    rows = tuple(
        (MODEL[name].texts.title if name in MODEL else name, why)
        for name, why in document["missing"].items()
    )
    table = Table("Not measured, and why", columns("measurement", "reason"), rows, brief=True)
    return (Section("missing", "Not measured", tables=(table,)),)
