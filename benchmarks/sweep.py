"""How fast a sweep is, and what memory it takes, on checkpoints that this makes.

    uv run --extra sweep python benchmarks/sweep.py [--count 1000]

Prints tables a second with one worker and with all, the ratio of both, the time of processors that
workers and the parent take, the time that one table takes beside `pp.analyze` in this process, and
the largest memory of a worker and of the parent. How much the parent's grows is from a tenth of the
checkpoints to all of them.
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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

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
QUICK = ("norms", "similarity", "pca", "spectrum")


def make(folder: Path, count: int) -> None:
    """Save so many checkpoints: smooth random tables, each of its own seed."""
    for number in range(count):
        config, name, rows, dim = KINDS[number % len(KINDS)]
        # Not "checkpoint-": they are no steps of one training, whose runs would be drawn.
        place = folder / f"model-{number}"
        place.mkdir()
        values: NDArray[np.float32] = np.cumsum(
            np.random.default_rng(number).standard_normal((rows, dim), dtype=np.float32),
            axis=0,
        )
        shaped = values[None] if config["model_type"] == "vit" else values
        save_file({name: shaped}, place / "model.safetensors")
        (place / "config.json").write_text(json.dumps(config))


def swept(
    folder: Path, jobs: int, *, measurements: tuple[str, ...] | None
) -> dict[str, float]:
    """Run a sweep in a process of its own; return seconds without its start, and memory in MiB.

    Seconds of processors are those of the workers, with their start and the first tenth that warms
    them up, and those of the parent without.
    """
    code = f"""
import json, os, resource, sys, time
import posprobe as pp
options = dict(jobs={jobs}, only={measurements!r}, nulls=0)
with __import__("tempfile").TemporaryDirectory() as out:
    first = sorted(os.scandir({str(folder)!r}), key=lambda entry: entry.name)
    pp.sweep(first[: max(len(first) // 10, 3)], out=out + "/warm", **options).run()
    ready, used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    begin = time.perf_counter()
    sweep = pp.sweep({str(folder)!r}, out=out + "/s", **options).run()
    seconds, used = time.perf_counter() - begin, time.process_time() - used
from joblib.externals.loky import get_reusable_executor
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
get_reusable_executor().shutdown(wait=True)
workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
assert not sweep.about["counts"]["failures"], sweep.about
children = resource.getrusage(resource.RUSAGE_CHILDREN)
both = [children.ru_utime + children.ru_stime, used]
print(json.dumps([seconds, workers / 1024, own / 1024, (own - ready) / 1024, *both]))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    names = ("seconds", "worker", "parent", "growth", "workers_used", "parent_used")
    return dict(zip(names, json.loads(run.stdout), strict=True))


def main() -> None:
    """Make checkpoints, sweep them, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    count = parser.parse_args().count
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        make(folder, count)
        one_worker, all_ = (
            swept(folder, jobs, measurements=QUICK) for jobs in (1, cores)
        )
        rate = count / all_["seconds"]
        print(f"{count} checkpoints, --only {','.join(QUICK)} --nulls 0, {cores} cores")
        print(f"  one worker     {count / one_worker['seconds']:6.1f} tables/s")
        ratio = one_worker["seconds"] / all_["seconds"]
        print(
            f"  {cores} workers      {rate:6.1f} tables/s, {ratio:.2f} times one worker"
        )
        swept_in_all = count + max(count // 10, 3)
        print(f"  of processors  {1e3 * all_['workers_used'] / swept_in_all:6.1f} ms per table in "
              f"workers, {1e3 * all_['parent_used'] / count:.1f} ms in the parent")  # fmt: skip
        print(f"  largest worker {all_['worker']:6.0f} MiB")
        print(f"  parent         {all_['parent']:6.0f} MiB, of which {all_['growth']:.1f} MiB came "
              f"after the first {max(count // 10, 3)}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        make(folder, 3)
        import posprobe as pp

        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        pp.analyze(pp.sinusoidal(32, 16), nulls=0)
        begin = time.perf_counter()
        for place in sorted(folder.iterdir()):
            pp.analyze(pp.load(str(place)), nulls=0, device="cpu").to_dict()
        plain = (time.perf_counter() - begin) / 3
        full_seconds = swept(folder, 1, measurements=None)["seconds"] / 3
        print(
            f"all analyses, one at a time: {full_seconds:.2f} s per table swept, "
            f"{plain:.2f} s analysed"
        )
    print(
        f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
