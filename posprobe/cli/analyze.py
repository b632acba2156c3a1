"""``posprobe analyze``, ``inspect``, ``list``, ``extract`` and ``report``: one reference."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import typer

from posprobe.cli import options
from posprobe.cli.process import give_memory_back, tell, typed
from posprobe.cli.show import found, print_analysis, print_json, print_path
from posprobe.progress import stage
from posprobe.text import plain


def analyze(
    ref: str,
    out: Path | None = None,
    rows: str | None = None,
    all_rows: bool = False,
    only: str | None = None,
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
    where: options.Where,
) -> None:
    """Analyse how one checkpoint encodes position.

    Write a folder with a report, figures and data. A checkpoint without a position table is
    analysed by what it uses instead: rotary, relative or ALiBi positions.
    """
    names, kinds = options.names_of(only), options.parse_formats(formats)
    wanted = options.parse_layers(layers)
    give_memory_back()
    options.check_asked(out, names, nulls, device)
    from posprobe.studies.checkpoint import analyze_any, open_weights
    from posprobe.words.weights import reading

    loaded = options.load_any(ref, rows=rows, where=where)
    if isinstance(loaded, tuple):
        tell(found(loaded))
    out = options.place_of(out, loaded)
    opened = open_weights(loaded, everywhere=weights, layers=wanted, offline=where.offline)
    size = sum(each.bytes for each in opened.values() if not isinstance(each, str))
    if size:
        tell(reading(size))
    analysis = analyze_any(
        loaded,
        only=names,
        nulls=nulls,
        rows=options.parse_rows(rows),
        device=device,
        seed=seed,
        offline=where.offline,
        command=typed(),
        all_rows=all_rows,
        weights=opened,
    )
    folder = analysis.save(out, every=figures == "all", formats=kinds)
    print_analysis(analysis.to_dict(), folder, as_json=as_json, verbose=verbose)


#: What is said of a checkpoint that says nothing about position.
NOTHING = "No positional encoding found. `posprobe analyze REF --tensor NAME` analyses any tensor."


def inspect(
    ref: str, revision: str | None = None, offline: bool = False, as_json: bool = False
) -> None:
    """List the positional encodings in a checkpoint.

    Only file headers are read, no tensors.
    """
    with stage(f"Inspecting {ref}"):
        from posprobe.families import inspect as look

        encodings = look(ref, revision=revision, offline=offline)
    if as_json:
        print_json({"encodings": encodings})
    else:
        typer.echo("\n".join(_line(item) for item in encodings) or NOTHING)


def _parameters(numbers: dict[str, Any]) -> str:
    """Name the numbers of a rotary or linear encoding that say something."""
    scaling = numbers.get("scaling") or {}
    shown = {
        "heads": numbers.get("heads"),
        "width of a head": numbers.get("head_dim"),
        "base": numbers.get("base"),
        "rotated share": numbers["partial"] if numbers.get("partial", 1.0) != 1.0 else None,
        "axes": numbers["axes"] if numbers.get("axes", 1) > 1 else None,
        "window": numbers.get("window"),
        "rule": scaling.get("rope_type", scaling.get("type")),
        "factor": scaling.get("factor"),
        "trained at": numbers.get("training_length"),
        "context": numbers.get("max_positions"),
    }
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in shown.items() if value is not None)  # fmt: skip


def _line(item: dict[str, Any]) -> str:
    shape = " x ".join(map(str, item["shape"])) if item["shape"] else ""
    name = f"#{item['name']}  " if item["name"] else ""
    lines = [
        f"{item['scheme']:<9}{name}{item['tensor'] or ''}  {shape} {item['dtype'] or ''}".rstrip()
    ]
    if item["tensor"] and item["format"]:
        quantised = f", dequantised from {item['quantisation']}" if item["quantisation"] else ""
        lines.append(f"         {item['format']} file {item['file']}{quantised}")
    if item["positions"]:
        noun = "position" if item["positions"] == 1 else "positions"
        lines.append(f"         {item['positions']} {noun}, {item['layout']['type']}")
    lines += [
        f"         row {row['row']}: {row.get('token') or row.get('reason')}"
        for row in (*item["dropped_rows"], *item["prefix_rows"])
    ]
    if item["parameters"]:
        lines.append(f"         {_parameters(item['parameters'])}")
    lines.append(f"         by {item['why']}")
    if item["problem"]:
        lines.append(f"         cannot be read: {item['problem']}")
    return "\n".join(map(plain, lines))


def list_names(
    what: Literal["samples", "families", "figures", "numbers"], as_json: bool = False
) -> None:
    """List the samples, model families, figures or numbers.

    Samples are real tables that ship with the package. Families are the architectures whose tables
    are known by name. `posprobe figure` draws the figures, `posprobe table` prints the numbers.
    """
    listed = _listed(what)
    if as_json:
        print_json({what: listed})
        return
    prefix = "sample:" if what == "samples" else ""
    width = max(len(prefix + item["name"]) for item in listed) + 2
    for item in listed:
        typer.echo(f"{prefix + item['name']:<{width}}{item['title']}")
        if note := item.get("note"):
            typer.echo(f"{'':<{width}}{note}")


def _listed(what: str) -> list[dict[str, Any]]:
    match what:
        case "samples":
            from posprobe.samples import samples as shipped

            return [asdict(sample) for sample in shipped()]
        case "families":
            from posprobe.families.rows import added_families, registry

            return [asdict(family) for family in (*registry().families, *added_families())]
        case "figures":
            from posprobe.studies.figure import OF_RUNS, kinds

            every = {**kinds(), **{name: title for name, (_, title) in OF_RUNS.items()}}
        case _:
            from posprobe.measurements import TABLE

            every = {
                f"{name}.{key}": f"{number.label}: {number.meaning}"
                for name, measurement in TABLE.items()
                for key, number in measurement.numbers.items()
            }
    return [{"name": name, "title": title} for name, title in every.items()]


def samples(as_json: bool = False) -> None:
    """List the real tables and the model that ship with the package."""
    list_names("samples", as_json)


def families(as_json: bool = False) -> None:
    """List the architectures whose tables are known by name."""
    list_names("families", as_json)


def extract(ref: str, output: Path, rows: str | None = None, *, where: options.Where) -> None:
    """Write a position table to a file.

    Only rows that are positions are written, in order.
    """
    with stage("Starting"):
        from posprobe.report import table_path, write_table

        table_path(output)
    table = options.load_table(ref, rows=rows, where=where)
    write_table(table, output)
    tell(f"{len(table)} x {table.dim} {table.values.dtype}")
    print_path(output)


def report(folder: Path) -> None:
    """Render a saved report again, without the model."""
    with stage("Rendering"):
        from posprobe.report import render_bundle

        page = render_bundle(folder)
    print_path(page)
