"""``posprobe analyze``, ``inspect``, ``list``, ``extract`` and ``report``: one reference."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from posprobe.cli import options
from posprobe.cli.process import print_note, trim_freed_memory, typed_command
from posprobe.cli.show import describe_loaded, print_analysis, print_json, print_path
from posprobe.progress import stage
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from posprobe.analyses.models.rotating_layers import LayerRotation

#: Rows with one reason that `inspect` lists one by one.
MAX_LISTED_ROWS = 8


def analyze(
    ref: str,
    out_folder: Path | None = None,
    rows: str | None = None,
    all_rows: bool = False,
    measurement_list: str | None = None,
    as_json: bool = False,
    figures: Literal["first", "all"] = "first",
    formats: str = "svg",
    nulls: int = 0,
    weights: bool = False,
    layers: str | None = None,
    seed: int = 0,
    device: options.Device = "auto",
    verbose: bool = False,
    *,
    load_options: options.LoadOptions,
) -> None:
    """Analyse how one checkpoint encodes position.

    Write a folder with a report, figures and data. A checkpoint without a position table is
    analysed by what it uses instead: rotary, relative or ALiBi positions.
    """
    requested = options.split_names(measurement_list)
    figure_formats = options.parse_formats(formats)
    layer_indices = options.parse_layers(layers)
    trim_freed_memory()
    options.check_arguments(out_folder, requested, nulls, device)
    from posprobe.studies.checkpoint import analyze_any, open_weights
    from posprobe.words.weights import reading_message

    loaded = options.load_any(ref, rows=rows, load_options=load_options)
    if isinstance(loaded, tuple):
        print_note(describe_loaded(loaded))
    folder = options.bundle_folder(out_folder, loaded)
    opened_weights = open_weights(
        loaded, everywhere=weights, layers=layer_indices, offline=load_options.offline
    )
    if size := sum(w.bytes for w in opened_weights.values() if not isinstance(w, str)):
        print_note(reading_message(size))
    analysis = analyze_any(
        loaded,
        only=requested,
        nulls=nulls,
        rows=options.parse_rows(rows),
        device=device,
        seed=seed,
        offline=load_options.offline,
        command=typed_command(),
        all_rows=all_rows,
        weights=opened_weights,
    )
    folder = analysis.save(folder, every=figures == "all", formats=figure_formats)
    print_analysis(analysis.to_dict(), folder, as_json=as_json, verbose=verbose)


def inspect(
    ref: str,
    revision: str | None = None,
    offline: bool = False,
    weights: bool = False,
    as_json: bool = False,
) -> None:
    """List the positional encodings in a checkpoint.

    Only file headers are read, no tensors, unless --weights asks which layers rotate.
    """
    with stage(f"Inspecting {ref}"):
        from posprobe.families.read import inspect_reference

        encodings, message = inspect_reference(ref, revision=revision, offline=offline)
    rotations: list[LayerRotation] = []
    if weights and any(encoding["scheme"] == "rotary" for encoding in encodings):
        from posprobe.studies.rotation import layer_rotations

        rotations = layer_rotations(ref, revision=revision, offline=offline)
    if as_json:
        blocks = [asdict(rotation) for rotation in rotations]
        print_json({"encodings": encodings, **({"layers": blocks} if weights else {})})
        if message:
            print_note(escape_invisible(message))
        return
    lines = [_format_encoding(encoding) for encoding in encodings]
    lines = lines or [escape_invisible(message)]
    notes = dict.fromkeys(note for encoding in encodings for note in encoding["notes"])
    lines += [f"note: {escape_invisible(note)}" for note in notes]
    if weights:
        from posprobe.words.weights import rotation_lines

        lines += rotation_lines(rotations)
    typer.echo("\n".join(lines))


def _format_parameters(numbers: dict[str, Any]) -> str:
    """Format the parameters of a rotary or linear scheme that are not at their default."""
    scaling = numbers.get("scaling") or {}
    labelled = {
        "heads": numbers.get("heads"),
        "width of a head": numbers.get("head_dim"),
        "base": numbers.get("base"),
        "rotated share": numbers["partial"]
        if numbers.get("partial", 1.0) != 1.0
        else None,
        "axes": numbers["axes"] if numbers.get("axes", 1) > 1 else None,
        "window": numbers.get("window"),
        "rule": scaling.get("rope_type", scaling.get("type")),
        "factor": scaling.get("factor"),
        "trained at": numbers.get("training_length"),
        "context": numbers.get("max_positions"),
        "not read": ", ".join(numbers.get("unread_keys", ())) or None,
    }
    defined = {name: value for name, value in labelled.items() if value is not None}
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in defined.items()
    )


def _format_special_rows(rows: list[dict[str, Any]]) -> list[str]:
    """List rows that are no positions; long runs with one reason on one line."""
    lines = []
    labels = [(row["row"], row.get("token") or row.get("reason")) for row in rows]
    for label, group in groupby(labels, key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        is_run = len(numbers) > MAX_LISTED_ROWS and numbers == list(
            range(numbers[0], numbers[-1] + 1)
        )
        if is_run:
            lines.append(f"         rows {numbers[0]} to {numbers[-1]}: {label}")
        else:
            lines += [f"         row {number}: {label}" for number in numbers]
    return lines


def _format_encoding(encoding: dict[str, Any]) -> str:
    shape = " x ".join(map(str, encoding["shape"])) if encoding["shape"] else ""
    name = f"#{encoding['name']}  " if encoding["name"] else ""
    tensor, dtype = encoding["tensor"] or "", encoding["dtype"] or ""
    lines = [f"{encoding['scheme']:<8} {name}{tensor}  {shape} {dtype}".rstrip()]
    if encoding["tensor"] and encoding["format"]:
        quantised = (
            f", dequantised from {encoding['quantisation']}"
            if encoding["quantisation"]
            else ""
        )
        lines.append(f"         {encoding['format']} file {encoding['file']}{quantised}")
    if encoding["positions"]:
        noun = "position" if encoding["positions"] == 1 else "positions"
        lines.append(
            f"         {encoding['positions']} {noun}, {encoding['layout']['type']}"
        )
    lines += _format_special_rows([*encoding["dropped_rows"], *encoding["prefix_rows"]])
    if encoding["parameters"]:
        lines.append(f"         {_format_parameters(encoding['parameters'])}")
    lines.append(f"         by {encoding['why']}")
    if encoding["unused"]:
        lines.append(f"         unused: {encoding['unused']}")
    if encoding["problem"]:
        lines.append(f"         cannot be read: {encoding['problem']}")
    return "\n".join(map(escape_invisible, lines))


def list_names(
    what: Literal["samples", "families", "figures", "numbers"], as_json: bool = False
) -> None:
    """List the samples, model families, figures or numbers.

    Samples are real tables that ship with the package. Families are the architectures whose tables
    are known by name. `posprobe figure` draws the figures, `posprobe table` prints the numbers.
    """
    entries = _catalogue_entries(what)
    if as_json:
        print_json({what: entries})
        return
    prefix = "sample:" if what == "samples" else ""
    width = max(len(prefix + entry["name"]) for entry in entries) + 2
    for entry in entries:
        typer.echo(f"{prefix + entry['name']:<{width}}{entry['title']}")
        if note := entry.get("note"):
            typer.echo(f"{'':<{width}}{note}")


def _catalogue_entries(catalogue: str) -> list[dict[str, Any]]:
    match catalogue:
        case "samples":
            from posprobe.samples import samples as load_samples

            return [asdict(sample) for sample in load_samples()]
        case "families":
            from posprobe.families.architectures import load_added_families, load_registry

            return [
                asdict(family)
                for family in (*load_registry().families, *load_added_families())
            ]
        case "figures":
            from posprobe.studies.figure import kinds

            titles = kinds()
        case _:
            from posprobe.measurements import TABLE_MEASUREMENTS

            titles = {
                f"{name}.{key}": f"{number.label}: {number.meaning}"
                for name, measurement in TABLE_MEASUREMENTS.items()
                for key, number in measurement.numbers.items()
            }
    return [{"name": name, "title": title} for name, title in titles.items()]


def samples(as_json: bool = False) -> None:
    """List the real tables and the model that ship with the package."""
    list_names("samples", as_json)


def families(as_json: bool = False) -> None:
    """List the architectures whose tables are known by name."""
    list_names("families", as_json)


def extract(
    ref: str, output: Path, rows: str | None = None, *, load_options: options.LoadOptions
) -> None:
    """Write a position table to a file.

    Only rows that are positions are written, in order.
    """
    with stage("Starting"):
        from posprobe.report import resolve_table_path, write_table

        resolve_table_path(output)
    table = options.load_table(ref, rows=rows, load_options=load_options)
    write_table(table, output)
    print_note(f"{len(table)} x {table.dim} {table.values.dtype}")
    print_path(output)


def report(folder: Path) -> None:
    """Render a saved report again, without the model."""
    with stage("Rendering"):
        from posprobe.report import render_bundle

        page = render_bundle(folder)
    print_path(page)
