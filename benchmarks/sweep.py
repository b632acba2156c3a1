"""How fast a sweep is, and what memory it takes, on checkpoints that this makes.

    OPENBLAS_NUM_THREADS=1 uv run --extra sweep python benchmarks/sweep.py [--count 1000]

Prints tables a second with one worker and with one for each core, the ratio of both, and what the
ratio would be if the workers shared nothing: that of as many sweeps of one worker at once, each of
tables of its own, to one sweep alone. Then the time of processors that workers and the parent take,
the largest memory of a worker and of the parent, how much of the parent's came after a tenth of the
checkpoints, and the time that one table takes beside `pp.analyze` in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

import posprobe as pp

#: Of each kind: the configuration, the tensor's name, positions and width.
KINDS = (
    ({"model_type": "gpt2"}, "wpe.weight", 1024, 768),
    ({"model_type": "bert"}, "embeddings.position_embeddings.weight", 512, 384),
    (
        {"model_type": "vit", "image_size": 224, "patch_size": 16},
        "vit.embeddings.position_embeddings",
        197,
        192,
    ),
)
#: Analyses that take no draws.
QUICK_MEASUREMENTS = ("norms", "similarity", "pca", "spectrum")
#: Environment of every process that is timed: workers, not threads, share out the cores.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class SweepCost:
    """What one sweep took, without its start: seconds, and memory in MiB.

    Parameters
    ----------
    seconds
        From the first task to the tables.
    worker_seconds
        Time of processors of the workers, with their start and the tables that warm them up.
    parent_seconds
        Time of processors of the parent.
    worker_memory, parent_memory
        Largest memory of a worker, and of the parent.
    memory_growth
        Growth of the parent's memory after the tables that warm it up.
    """

    seconds: float
    worker_seconds: float
    parent_seconds: float
    worker_memory: float
    parent_memory: float
    memory_growth: float


def make_checkpoints(folder: Path, count: int) -> None:
    """Save so many checkpoints: smooth random tables, each of its own seed."""
    for number in range(count):
        config, name, n_rows, dim = KINDS[number % len(KINDS)]
        # Not "checkpoint-": they are no steps of one training, whose runs would be drawn.
        checkpoint_folder = folder / f"model-{number}"
        checkpoint_folder.mkdir(parents=True)
        values: NDArray[np.float32] = np.cumsum(
            np.random.default_rng(number).standard_normal((n_rows, dim), np.float32),
            axis=0,
        )
        stored_values = values[None] if config["model_type"] == "vit" else values
        save_file({name: stored_values}, checkpoint_folder / "model.safetensors")
        (checkpoint_folder / "config.json").write_text(json.dumps(config))


def count_warm_up(count: int) -> int:
    """Return the number of tables that are swept before the clock starts."""
    return max(count // 10, len(KINDS))


def _peak_memory(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 1024


def measure_sweep(folder: Path, jobs: int, only: Sequence[str] | None) -> SweepCost:
    """Sweep the checkpoints of a folder in this process, which must be a new one."""
    from joblib.externals.loky import get_reusable_executor

    checkpoints = sorted(folder.iterdir())
    with tempfile.TemporaryDirectory() as out:
        warm_up = checkpoints[: count_warm_up(len(checkpoints))]
        pp.sweep(warm_up, out=f"{out}/warm-up", jobs=jobs, only=only, nulls=0).run()
        warm_memory = _peak_memory(resource.RUSAGE_SELF)
        start, start_cpu = time.perf_counter(), time.process_time()
        sweep = pp.sweep(str(folder), out=f"{out}/s", jobs=jobs, only=only, nulls=0).run()
        seconds = time.perf_counter() - start
        parent_seconds = time.process_time() - start_cpu
    if sweep.about is None or sweep.about["counts"]["failures"]:
        raise SystemExit(f"references failed: {sweep.about}")
    parent_memory = _peak_memory(resource.RUSAGE_SELF)
    get_reusable_executor().shutdown(wait=True)
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return SweepCost(
        seconds,
        workers.ru_utime + workers.ru_stime,
        parent_seconds,
        workers.ru_maxrss / 1024,
        parent_memory,
        parent_memory - warm_memory,
    )


def run_sweep(folder: Path, jobs: int, only: Sequence[str] | None) -> SweepCost:
    """Sweep the checkpoints of a folder in a process of its own."""
    options = ["--only", *only] if only else []
    run = subprocess.run(
        [
            sys.executable,
            __file__,
            "--folder",
            str(folder),
            "--jobs",
            str(jobs),
            *options,
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    return SweepCost(**json.loads(run.stdout))


def compare_workers(count: int, cores: int) -> None:
    """Print how fast one worker and several are, and what they take."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / str(number) for number in range(cores)]
        for folder in folders:
            make_checkpoints(folder, count)
        one_worker, all_workers = (
            run_sweep(folders[0], jobs, QUICK_MEASUREMENTS) for jobs in (1, cores)
        )
        with ThreadPoolExecutor(cores) as pool:
            at_once = list(
                pool.map(lambda folder: run_sweep(folder, 1, QUICK_MEASUREMENTS), folders)
            )
    ratio = one_worker.seconds / all_workers.seconds
    ceiling = cores * one_worker.seconds / max(cost.seconds for cost in at_once)
    n_warm_up = count_warm_up(count)
    worker_ms = 1e3 * all_workers.worker_seconds / (count + n_warm_up)
    print(f"{count} checkpoints, --only {','.join(QUICK_MEASUREMENTS)}, {cores} cores")
    print(f"  one worker     {count / one_worker.seconds:6.1f} tables/s")
    print(f"  {cores} workers      {count / all_workers.seconds:6.1f} tables/s")
    print(
        f"  ratio          {ratio:.2f}; of {cores} sweeps that share nothing {ceiling:.2f}"
    )
    print(f"  of processors  {worker_ms:6.1f} ms per table in workers")
    print(
        f"                 {1e3 * all_workers.parent_seconds / count:6.1f} in the parent"
    )
    print(f"  largest worker {all_workers.worker_memory:6.0f} MiB")
    print(f"  parent         {all_workers.parent_memory:6.0f} MiB, of which")
    print(
        f"                 {all_workers.memory_growth:.1f} MiB after the first {n_warm_up}"
    )


def compare_with_analyze() -> None:
    """Print the time of all analyses of a table in a sweep, and in this process."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_checkpoints(folder, len(KINDS))
        pp.analyze(pp.sinusoidal(32, 16), nulls=0)
        start = time.perf_counter()
        for checkpoint in sorted(folder.iterdir()):
            pp.analyze(pp.load(str(checkpoint)), nulls=0, device="cpu").to_dict()
        analyze_seconds = (time.perf_counter() - start) / len(KINDS)
        sweep_seconds = run_sweep(folder, 1, None).seconds / len(KINDS)
    print("all analyses, one at a time:")
    print(f"  {sweep_seconds:.2f} s per table swept, {analyze_seconds:.2f} s analysed")


def main() -> None:
    """Make checkpoints, sweep them and print; with ``--folder``, measure one sweep of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    for name, kind in (("--folder", Path), ("--jobs", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        cost = measure_sweep(arguments.folder, arguments.jobs, arguments.only)
        print(json.dumps(asdict(cost)))
        return
    compare_workers(arguments.count, len(os.sched_getaffinity(0)))
    compare_with_analyze()


if __name__ == "__main__":
    main()
