"""``posprobe samples`` and ``posprobe families``: what there is."""

from __future__ import annotations

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out


def samples(as_json: options.AsJson = False) -> None:
    """List the real tables that ship with the package."""
    from dataclasses import asdict

    from posprobe.samples import samples as shipped

    if as_json:
        typer.echo(json_out({"samples": [asdict(sample) for sample in shipped()]}), nl=False)
        return
    for sample in shipped():
        typer.echo(f"sample:{sample.name:<22}{sample.title}")


def families(as_json: options.AsJson = False) -> None:
    """List the architectures whose tables are known by name."""
    from dataclasses import asdict

    from posprobe.families.registry import added_families, registry

    known = (*registry().families, *added_families())
    if as_json:
        typer.echo(json_out({"families": [asdict(family) for family in known]}), nl=False)
        return
    for family in known:
        typer.echo(f"{family.name:<18}{family.title}\n{'':<18}{family.note}")
