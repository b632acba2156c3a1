"""``posprobe compare``, ``check`` and ``nearest``: comparisons of tables and of model copies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from posprobe.cli import options
from posprobe.cli.parameters import name_options
from posprobe.cli.process import print_note, typed_command
from posprobe.cli.show import print_analysis, print_json, print_report_path
from posprobe.progress import stage
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from posprobe.sweeps.search import Match, Nearest


def compare(
    refs: list[str],
    out_folder: Path | None = None,
    label: list[str] | None = None,
    rows: str | None = None,
    measurement_list: str | None = None,
    as_json: bool = False,
    nulls: int = 0,
    seed: int = 0,
    device: options.Device = "auto",
    offline: bool = False,
    verbose: bool = False,
) -> None:
    """Compare several encodings side by side.

    Numbers and answers are given for each table as a whole, distances over the positions that two
    tables share. With a rotary, relative or ALiBi encoding among them, all are compared by how
    similarity depends on distance.
    """
    names = options.split_names(measurement_list)
    options.check_arguments(out_folder, names, nulls, device)
    from posprobe.studies.comparison import compare_any

    records = options.load_records(
        refs,
        rows=rows,
        load_options=options.LoadOptions(offline=offline),
        labels=label,
        accepts_runs=True,
        seed=seed,
    )
    folder = options.bundle_folder(out_folder, *records)
    result = compare_any(
        *records,
        rows=options.parse_rows(rows),
        only=names,
        nulls=nulls,
        device=device,
        seed=seed,
        command=typed_command(),
    )
    print_analysis(
        result.to_dict(), result.save(folder), as_json=as_json, verbose=verbose
    )


def check(
    a: str,
    b: str | None = None,
    run: bool = False,
    out_folder: Path | None = None,
    same_weights: bool = False,
    other_weights: bool = False,
    all_layers: bool = False,
    as_json: bool = False,
    offline: bool = False,
) -> None:
    """Check whether two copies of a model encode position alike.

    Copies are checkpoints in any format, or what an engine computes, dumped to a file; with --run,
    B, or A itself, is run by transformers and held against A's file. Exit codes: 0 alike,
    6 different, 7 cannot tell.
    """
    if same_weights and other_weights:
        raise typer.BadParameter(
            "--same-weights and --other-weights exclude each other: give one"
        )
    if b is None and not run:
        raise typer.BadParameter("name a second copy, or give --run")
    with stage("Starting"):
        from posprobe.report import check_bundle_folder
        from posprobe.studies.check import check as run_check
        from posprobe.words.relations import run_sentence

        if out_folder is not None:
            check_bundle_folder(out_folder)
    copy: Any = b
    if run:
        from posprobe.forward import load_model

        copy = load_model(b or a, offline=offline)
    result = run_check(
        a,
        copy,
        same_weights=same_weights,
        other_weights=other_weights,
        all_layers=all_layers,
        offline=offline,
        command=typed_command(),
    )
    if run:
        result = replace(result, b=f"{b or a} as transformers loads it")
    if out_folder is not None:
        result.save(out_folder)
    if as_json:
        print_json(result.to_dict())
    else:
        if run:
            typer.echo(escape_invisible(run_sentence(a, b or a)))
        for line in name_options(str(result)).split("\n"):
            typer.echo(escape_invisible(line))
    if out_folder is not None:
        print_report_path(out_folder)
    raise typer.Exit(result.exit_code)


def nearest(
    ref: str,
    sweep: Path | None = None,
    limit: int = 5,
    rows: str | None = None,
    as_json: bool = False,
    *,
    load_options: options.LoadOptions,
) -> None:
    """Find the model that a position table was copied from.

    The table is identical, rounded, moved (fine-tuned), shifted by rows, resized, or unrelated.
    Fine-tuning hardly changes position embeddings; tables trained separately are far apart.
    """
    table = options.load_table(ref, rows=rows, load_options=load_options)
    from posprobe.sweeps.search import nearest_to
    from posprobe.words import relations

    result = nearest_to(table, sweep, limit)
    if as_json:
        print_json(result.to_dict())
        return
    if not result.matches:
        typer.echo(escape_invisible(_no_match_message(result)))
        return
    for match in result.matches:
        typer.echo(
            escape_invisible(
                _format_match(match, relations.relation_phrase(match.likeness))
            )
        )
        typer.echo(escape_invisible(f"  {relations.evidence_sentences(match.likeness)}"))
        if source := match.about.get("source"):
            typer.echo(
                escape_invisible(
                    f"  {match.about['title']}; {source}; {match.about['licence']}"
                )
            )
    print_note(_searched_message(result))


def _format_match(match: Match, relation: str) -> str:
    name = match.name or match.reference
    suffix = f" ({match.reference})" if match.reference not in ("", name) else ""
    return f"{relation} {name}{suffix}"


def _no_match_message(result: Nearest) -> str:
    origin = "that posprobe knows" if result.among is None else f"of {result.among}"
    return (
        f"{result.name}: none of the {result.compared} tables {origin} has "
        "its width. Search a sweep with --in FOLDER."
    )


def _searched_message(result: Nearest) -> str:
    searched = (
        "tables that posprobe knows"
        if result.among is None
        else f"tables of {result.among}"
    )
    n_other_width = result.other_width
    suffix = f", {n_other_width} of them of another width" if n_other_width else ""
    return f"{result.name}: compared with {result.compared} {searched}{suffix}"
