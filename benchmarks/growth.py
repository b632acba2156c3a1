"""How time and memory of `posprobe analyze` grow with a table, fitted and drawn.

Tables of random steps added up, each analysed by the command in a process of its own, page and
figures included: it is what a user waits for. Run with

    uv run --group test python benchmarks/growth.py -o growth.svg [--most-seconds 120]

Of a row of sizes nothing larger is measured once one took that many processor seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

#: Positions at this width, and widths at this many positions.
POSITIONS = (64, 256, 1024, 4096, 8192, 16_384, 65_536, 131_072)
WIDTH = 64
WIDTHS = (64, 256, 768, 1024, 2048, 4096)
LENGTH = 1024
#: Positions from which on no matrix of all pairs is formed: the method changes there.
CHANGE = 8192
#: Runs of each size that takes no more seconds than this.
ROUNDS = 3
MIN_SECONDS = 30.0


def table(place: Path, n: int, d: int) -> Path:
    """Save a table of random steps added up."""
    steps = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    path = place / f"{n}x{d}.npy"
    np.save(path, np.cumsum(steps, axis=0, dtype=np.float32))
    return path


def measured(path: Path, nulls: int) -> dict[str, float]:
    """Take the median of several runs where they are short, of which the machine disturbs more."""
    costs = [analysed(path, nulls)]
    while len(costs) < ROUNDS and costs[0]["seconds"] < MIN_SECONDS:
        costs.append(analysed(path, nulls))
    return {key: statistics.median(cost[key] for cost in costs) for key in costs[0]}


def analysed(path: Path, nulls: int) -> dict[str, float]:
    """Analyse a table; return seconds by the clock and by the processors, and memory in MiB."""
    probe = str(Path(sys.executable).with_name("posprobe"))
    command = [probe, "analyze", str(path), "--out", str(path.with_suffix("")), "--quiet"]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--nulls", str(nulls)], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{path.name} ended with {process.returncode}")
    processors = usage.ru_utime + usage.ru_stime
    return {
        "seconds": seconds,
        "processors": processors,
        "mebibytes": usage.ru_maxrss / 1024,
    }


def exponent(sizes: list[int], costs: list[float], overhead: float) -> float:
    """Fit the power with which a cost grows beyond ``overhead``, what the smallest table takes."""
    excess = np.array(costs) - overhead
    is_measurable = excess > 0.2 * overhead
    if is_measurable.sum() < 2:
        return 0.0
    return float(
        np.polyfit(
            np.log(np.array(sizes)[is_measurable]), np.log(excess[is_measurable]), 1
        )[0]
    )


def drawn(rows_by_name: dict[str, list[dict[str, Any]]], target: Path) -> None:
    """Draw time and memory against both sizes."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    from posprobe.figures import style
    from posprobe.figures.common import label_decades

    with style():
        figure, axes = plt.subplots(
            2, 2, figsize=(6.3, 4.2), layout="constrained", sharey="row"
        )
        for column, (axis, rows) in enumerate(rows_by_name.items()):
            sizes = [row[axis] for row in rows]
            for ax, cost, label in zip(
                axes[:, column], ("processors", "mebibytes"),
                ("processor seconds", "peak memory in MiB"), strict=True,
            ):  # fmt: skip
                ax.loglog(sizes, [row[cost] for row in rows], "o-", markersize=3)
                ax.set(
                    xlabel={
                        "n": f"positions, {WIDTH} wide",
                        "d": f"width, {LENGTH} rows",
                    }[axis]
                )
                label_decades(ax.xaxis, ax.yaxis)
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                if axis == "n":
                    ax.axvline(CHANGE, linewidth=0.6, color="#6b6b6b", linestyle=":")
                    ax.set_ylabel(label)
        figure.savefig(
            target, metadata={"Date": None} if target.suffix == ".svg" else None
        )


def main() -> None:
    """Measure, print a table and the exponents, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("growth.svg"))
    parser.add_argument("--most-seconds", type=float, default=120.0)
    parser.add_argument("--nulls", type=int, default=9)
    options = parser.parse_args()
    sizes = {"n": [(n, WIDTH) for n in POSITIONS], "d": [(LENGTH, d) for d in WIDTHS]}
    rows_by_name: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for axis, shapes in sizes.items():
            rows = rows_by_name.setdefault(axis, [])
            for n, d in shapes:
                cost = measured(table(Path(scratch), n, d), options.nulls)
                rows.append({"n": n, "d": d} | cost)
                print(
                    f"{n:>7} x {d:<5} {cost['seconds']:8.1f} s {cost['processors']:8.1f} s of "
                    f"processors {cost['mebibytes']:7.0f} MiB",
                    flush=True,
                )
                if cost["processors"] > options.most_seconds:
                    print("          larger ones are left out")
                    break
    for name, rows, first_size in (
        (
            "n up to the change",
            [row for row in rows_by_name["n"] if row["n"] <= CHANGE],
            rows_by_name["n"][0],
        ),
        (
            "n beyond it",
            [row for row in rows_by_name["n"] if row["n"] > CHANGE],
            rows_by_name["n"][0],
        ),
        ("d", rows_by_name["d"], rows_by_name["d"][0]),
    ):
        costs = [row[name[0]] for row in rows]
        powers = [
            exponent(costs, [row[cost] for row in rows], first_size[cost])
            for cost in ("processors", "mebibytes")
        ]
        print(f"with {name}: time to the power {powers[0]:.2f}, memory {powers[1]:.2f}")
    options.output.with_suffix(".json").write_text(
        json.dumps(rows_by_name, indent=1) + "\n"
    )
    drawn(rows_by_name, options.output)


if __name__ == "__main__":
    main()
