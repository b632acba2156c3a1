"""``posprobe inspect``: what a checkpoint says about position, from header bytes alone."""

from typing import Any

import typer

from posprobe.cli.show import print_json
from posprobe.foreign import plain
from posprobe.progress import stage

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
