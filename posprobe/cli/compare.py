"""``posprobe compare``, ``check`` and ``nearest``: tables and copies of models side by side."""

from pathlib import Path
from typing import TYPE_CHECKING

from posprobe.cli import options
from posprobe.cli.process import typed
from posprobe.cli.show import print_analysis, tell_saved
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.report import Comparison
    from posprobe.report.kernels import KernelComparison


def compare(
    refs: list[str],
    out: Path | None = None,
    label: list[str] | None = None,
    rows: str | None = None,
    only: str | None = None,
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
    names = options.names_of(only)
    with stage("Starting"):
        from posprobe.report import (
            bundle_name,
            check_place,
            check_request,
            compare as run,
            compare_kernels,
            default_place,
            sources_of,
        )
        from posprobe.tables import PositionTable

        if out is not None:
            check_place(out)
        check_request(names, nulls, device)
    records = options.load_records(
        refs, rows=rows, where=options.Where(offline=offline), labels=label
    )
    if out is None:
        name = "-vs-".join(bundle_name(record) for record in records)
        out = default_place(name[:200], sources_of(records))
        check_place(out)
    tables = [record for record in records if isinstance(record, PositionTable)]
    result: Comparison | KernelComparison
    if len(tables) < len(records):
        length = options.scheme_length(rows)
        if only is not None:
            raise UsageError("--only chooses analyses of tables, and not all of these are tables.")
        result = compare_kernels(*records, length=length, seed=seed, command=typed())
    else:
        result = run(*tables, only=names, nulls=nulls, device=device, seed=seed, command=typed())
    folder = result.save(out)
    print_analysis(result.to_dict(), as_json=as_json, verbose=verbose)
    tell_saved(folder)
