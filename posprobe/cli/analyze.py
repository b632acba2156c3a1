"""``posprobe analyze``, ``inspect`` and ``list``: what a reference leads to."""

from pathlib import Path
from typing import Literal

from posprobe.cli import options
from posprobe.cli.messages import tell
from posprobe.cli.process import give_memory_back, typed
from posprobe.cli.show import found, print_analysis, tell_saved
from posprobe.progress import stage


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
    with stage("Starting"):
        from posprobe.checkpoint_analysis import analyze_any, open_weights
        from posprobe.report import (
            bundle_name,
            check_place,
            check_request,
            default_place,
            sources_of,
        )
        from posprobe.report.narrator.weights import reading

        if out is not None:
            check_place(out)
        check_request(names, nulls, device)
    loaded = options.load_any(ref, rows=rows, where=where)
    if isinstance(loaded, tuple):
        tell(found(loaded))
    if out is None:
        records = loaded if isinstance(loaded, tuple) else (loaded,)
        out = default_place(bundle_name(loaded), sources_of(records))
        check_place(out)
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
    print_analysis(analysis.to_dict(), as_json=as_json, verbose=verbose)
    tell_saved(folder)
