"""Compare `posprobe analyze` with the script a user would write, on a GPT-2-sized checkpoint.

Both run alternately as processes of their own on the same machine; what is printed are the ratios
of their median wall time and median peak memory, and those of starting up. Run with

    uv run --group test python benchmarks/main_job.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

BENCHMARKS_FOLDER = Path(__file__).parent
ROUNDS = 5
#: As a user has it: libraries are compiled once and for all, not again in every process.
ENVIRONMENT = {
    key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
}


class Cost(NamedTuple):
    """Wall time in seconds and peak resident memory in MiB, of all processes of a command."""

    seconds: float
    mebibytes: float


def build(folder: Path) -> None:
    """Save GPT-2 small with random weights and a smooth position table: about 500 MB."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config())
    steps = torch.randn(1024, 768) * 0.02
    model.transformer.wpe.weight.data = torch.cumsum(steps, dim=0)
    model.save_pretrained(folder)


def run(command: list[str]) -> Cost:
    """Run a command to its end and measure it."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    memory: list[float] = []
    ended = threading.Event()
    watch = threading.Thread(target=look, args=(process.pid, ended, memory))
    watch.start()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    ended.set()
    watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    # A peak may be shorter than the time between two looks.
    return Cost(seconds, max([usage.ru_maxrss / 1024, *memory]))


def look(pid: int, ended: threading.Event, memory: list[float]) -> None:
    """Add up now and then, in MiB, what a process and its children hold; what they share once."""
    while not ended.wait(0.02):
        with suppress(OSError):  # one may end at any time, and other systems do not tell
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            texts = [
                Path(f"/proc/{process}/smaps_rollup").read_text()
                for process in (pid, *children)
            ]
            sizes = [
                line.split()[1]
                for text in texts
                for line in text.splitlines()
                if line[:4] == "Pss:"
            ]
            memory.append(sum(map(int, sizes)) / 1024)


def median(costs: list[Cost]) -> Cost:
    """Take the median of each quantity."""
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def compare(
    title: str, ours: list[str], reference_command: list[str], rounds: int
) -> None:
    """Run two commands alternately and print the ratios of their medians."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for _ in range(rounds):
        for cost, command in zip(costs, (ours, reference_command), strict=True):
            cost.append(run(command))
    our_cost, reference_cost = map(median, costs)
    print(
        f"{title:<44} time {our_cost.seconds / reference_cost.seconds:5.2f} "
        f"({our_cost.seconds:.2f} s / {reference_cost.seconds:.2f} s)   "
        f"memory {our_cost.mebibytes / reference_cost.mebibytes:5.2f} "
        f"({our_cost.mebibytes:.0f} MiB / {reference_cost.mebibytes:.0f} MiB)",
        flush=True,
    )


def main() -> None:
    """Build the checkpoint and print the ratios."""
    python = sys.executable
    probe = str(Path(python).with_name("posprobe"))
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / "gpt2"
        # In a process of its own: a child's peak memory starts from what its parent holds.
        subprocess.run([python, __file__, "--build", str(checkpoint)], check=True)
        naive = [
            python,
            str(BENCHMARKS_FOLDER / "naive.py"),
            str(checkpoint),
            f"{scratch}/naive",
        ]
        analyze = [probe, "analyze", str(checkpoint), "--out", f"{scratch}/bundle"]
        run(naive)
        run(analyze)
        compare("posprobe analyze / naive script", analyze, naive, ROUNDS)
        everything = [*analyze, "--nulls", "9", "--figures", "all", "--format", "png,svg"]
        compare("posprobe analyze, everything / naive", everything, naive, ROUNDS)
    compare(
        "posprobe --help / import typer",
        [probe, "--help"],
        [python, "-c", "import typer"],
        15,
    )
    compare(
        "import posprobe / import numpy",
        [python, "-c", "import posprobe"],
        [python, "-c", "import numpy"],
        15,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--build", type=Path, help="only save the checkpoint in this folder"
    )
    options = parser.parse_args()
    if options.build:
        build(options.build)
    else:
        main()
