"""Measure the published numbers again and print them beside ours, as Markdown tables.

    python tools/replicate.py [REF ...] [--seeds N]

The sinusoid, random walks, noise and the samples that ship with posprobe need nothing else. Give a
reference to each further table that is at hand, such as ``gpt2``, ``bert-base-uncased`` and
``roberta-base`` where the Hub can be reached, or the paths of local copies. A table counts as a
model's where `posprobe.studies.comparison` recognises it, and what is missing is listed as such.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

import posprobe as pp
from posprobe.analyses.descriptive.probes import (
    absolute_probe,
    absolute_probe_published,
    order_probe,
    order_probe_published,
)
from posprobe.layouts import Sequence as Line
from posprobe.samples import tables
from posprobe.sources import Source
from posprobe.studies.published import Published, find_published, published_values
from posprobe.tables import PositionTable

#: Positions and width of the random walks and of the noise.
SHAPE = (512, 768)
WALKS = 10


def measure(value: Published, table: PositionTable, seeds: int) -> str:
    """Measure one published quantity on the rows that it was published for."""
    if value.rows is None:
        raise ValueError(f"{value.key}: no rows")
    first_row, stop = value.rows
    if value.stored and table.dropped:
        # The published rows include some that are no positions: take the tensor as it is stored.
        table = pp.load(table.source.reference, tensor=table.source.tensor)
    match value.key:
        case "probes.absolute_published.mae":
            probe = absolute_probe_published(table, rows=stop, seeds=seeds)
            return f"{probe.mean:.3g} ± {probe.sd or 0:.2g}"
        case "probes.order_published.error":
            order = order_probe_published(table, seeds=seeds)
            return f"{order.mean:.2%} ± {order.sd or 0:.2%}".replace("%", " %")
        case "pca.stable_rank":
            return f"{pp.pca(table[first_row:stop]).stable_rank:.3f}"
        case "pca.top3":
            return f"{pp.pca(table[first_row:stop]).top3:.2%}".replace("%", " %")
    raise ValueError(f"{value.key}: no way to measure it here")


def made(
    name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> PositionTable:
    """Wrap made values as a table."""
    source = Source(name, name, shape=values.shape, dtype="F64")
    return PositionTable(values, Line(len(values)), name, source)


def walk(seed: int) -> PositionTable:
    """Make a random walk with independent Gaussian steps."""
    steps = np.random.default_rng(seed).standard_normal(SHAPE)
    return made("random walk", np.cumsum(steps, axis=0))


def replications(tables: Sequence[PositionTable], seeds: int) -> Iterator[str]:
    """Yield one line for each published value."""
    yield "| table | quantity | rows | published | ours | matched by | source |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    # One table is enough; the first that belongs to the model is taken.
    tables_by_value: dict[tuple[str, str], tuple[Published, PositionTable]] = {}
    for table in tables:
        for value in find_published(table):
            tables_by_value.setdefault((value.model, value.key), (value, table))
    for value in published_values():
        rows = f"{value.rows[0]}-{value.rows[1] - 1}" if value.rows else "all"
        if value.stored:
            rows += " as stored"
        if value.model == "random-walk":
            leading_shares = [
                pp.pca(walk(seed)).explained_variance_ratio[0] for seed in range(WALKS)
            ]
            ours, matched = (
                f"{np.mean(leading_shares):.3f} ± {np.std(leading_shares, ddof=1):.3f}",
                "made",
            )
        elif (value.model, value.key) in tables_by_value:
            published_value, table = tables_by_value[value.model, value.key]
            ours, matched = (
                measure(published_value, table, seeds),
                str(published_value.matched),
            )
        else:
            ours, matched = "not measured: table not at hand", ""
        source = f"{value.citation.split(',')[0]}, {value.where}"
        cells = (value.title, value.quantity, rows, value.stated, ours, matched, source)
        yield f"| {' | '.join(cells)} |"


def comparisons(tables: Sequence[PositionTable], seeds: int) -> Iterator[str]:
    """Yield one line for each table: the published probes beside the sound ones."""
    yield (
        "| table | positions | MAE as published | random folds | inner blocks | outer blocks "
        "| order as published | unseen positions | unseen blocks |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for table in tables:
        first, second = (
            absolute_probe_published(table, seeds=seeds),
            absolute_probe(table),
        )
        third, fourth = order_probe_published(table, seeds=seeds), order_probe(table)
        cells = (
            table.name,
            f"{table.rows[0]}-{table.rows[1] - 1}",
            f"{first.mean:.2f} ± {first.sd or 0:.2f} ({first.chance:.0f})",
            f"{second.mae_shuffled:.2f} ({second.chance_shuffled:.0f})",
            f"{second.interpolation:.2f} ({second.chance_interpolation:.0f})",
            f"{second.extrapolation:.2f} ({second.chance_extrapolation:.0f})",
            f"{third.mean:.1%} ± {third.sd or 0:.1%} ({third.chance:.0%})",
            f"{fourth.error:.1%} ({fourth.chance.mean():.0%})",
            f"{fourth.blocked.mean():.1%}",
        )
        yield f"| {' | '.join(cell.replace('%', ' %') for cell in cells)} |"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "references", nargs="*", metavar="REF", help="tables that are at hand"
    )
    parser.add_argument("--seeds", type=int, default=10, help="of the published probes")
    options = parser.parse_args()

    loaded = [pp.load(reference) for reference in options.references]
    sinusoid = pp.sinusoidal(*SHAPE)
    for line in replications([sinusoid, *loaded], options.seeds):
        print(line, flush=True)
    noise = made("Gaussian noise", np.random.default_rng(0).standard_normal(SHAPE))
    shipped = [pp.load(f"sample:{sample.name}") for sample in tables()]
    lines = [table for table in (*shipped, *loaded) if isinstance(table.layout, Line)]
    print()
    for line in comparisons([sinusoid, walk(0), noise, *lines], options.seeds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
