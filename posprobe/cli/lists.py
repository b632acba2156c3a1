"""``posprobe list``: the names that other commands take."""

from __future__ import annotations

from typing import Any, Literal

import typer

from posprobe.cli.show import print_json


def list_names(
    what: Literal["samples", "families", "figures", "numbers"], as_json: bool = False
) -> None:
    """List the samples, model families, figures or numbers.

    Samples are real tables that ship with the package. Families are the architectures whose tables
    are known by name. `posprobe figure` draws the figures, `posprobe table` prints the numbers.
    """
    match what:
        case "samples":
            samples(as_json)
        case "families":
            families(as_json)
        case "figures":
            from posprobe.report.paper_kinds import OF_RUNS, kinds

            every = {**kinds(), **{name: title for name, (_, title) in OF_RUNS.items()}}
            _print(what, [{"name": name, "title": title} for name, title in every.items()], as_json)
        case "numbers":
            from posprobe.measurements import TABLE

            found = [
                {"name": f"{name}.{key}", "title": number.label}
                for name, measurement in TABLE.items()
                for key, number in measurement.numbers.items()
            ]
            _print(what, found, as_json)


def samples(as_json: bool = False) -> None:
    """List the real tables and the model that ship with the package."""
    from dataclasses import asdict

    from posprobe.samples import samples as shipped

    _print("samples", [asdict(sample) for sample in shipped()], as_json, prefix="sample:")


def families(as_json: bool = False) -> None:
    """List the architectures whose tables are known by name."""
    from dataclasses import asdict

    from posprobe.families.registry import added_families, registry

    known = (*registry().families, *added_families())
    _print("families", [asdict(family) for family in known], as_json)


def _print(what: str, found: list[dict[str, Any]], as_json: bool, prefix: str = "") -> None:
    if as_json:
        print_json({what: found})
        return
    width = max(len(prefix + item["name"]) for item in found) + 2
    for item in found:
        typer.echo(f"{prefix + item['name']:<{width}}{item['title']}")
        if note := item.get("note"):
            typer.echo(f"{'':<{width}}{note}")
