"""Tables of up to 131,072 rows: speed and memory beside a plain script.

All ratios are of one run. Peak memory is that of a process of its own. Run with

    uv run --group test python benchmarks/large_tables.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

#: Positions and width of the table that must not take more than 2 GiB.
LARGE = 65_536, 1024
#: Of one whose matrix a plain script can form.
MEDIUM = 16_384, 256
#: Of one of which all components can be had.
DECOMPOSED = 16_384, 1024


def table(n: int, d: int) -> Any:
    """Draw a table in float32."""
    return np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def similarity(n: int, d: int) -> dict[str, float]:
    """Measure our similarity, both variants."""
    import posprobe as pp

    values = table(n, d)
    return {"seconds": seconds(lambda: pp.similarity(values))}


def plain(n: int, d: int) -> dict[str, float]:
    """Measure what a user would write: the matrix in float32, and its diagonals one by one."""

    def numbers(rows: Any) -> None:
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        matrix = units @ units.T
        matrix.min()
        for offset in range(n):
            diagonal = np.diagonal(matrix, offset)
            diagonal.mean()
            diagonal.std()

    def both() -> None:
        values = table(n, d)
        numbers(values)
        numbers(values - values.mean(axis=0))

    return {"seconds": seconds(both)}


def components(n: int, d: int) -> dict[str, float]:
    """Measure the exact and the randomised decomposition, and how far their shares are apart."""
    from posprobe.analyses.descriptive.pca import N_LEADING_COMPONENTS, leading_svd

    values = np.cumsum(table(n, d), axis=0, dtype=np.float64)
    values -= values.mean(axis=0)
    errors: list[Any] = []
    exact = seconds(lambda: errors.append(np.linalg.svd(values, full_matrices=False)[1]))
    leading = seconds(
        lambda: errors.append(leading_svd(values, N_LEADING_COMPONENTS, np)[1])
    )
    share = [
        singular[:N_LEADING_COMPONENTS] ** 2 / (errors[0] ** 2).sum()
        for singular in errors
    ]
    return {
        "exact": exact,
        "randomised": leading,
        "error": float(np.abs(share[0] - share[1]).max()),
    }


def on_gpu(n: int, d: int) -> dict[str, Any]:
    """Measure the similarity on the processor and on the GPU that torch finds, if any."""
    if find_spec("torch") is None:
        return {}
    import torch

    if not torch.cuda.is_available():
        return {}
    import posprobe as pp

    values = torch.from_numpy(table(n, d))
    on_device = values.to("cuda")
    pp.similarity(on_device[:8192])
    begin = time.perf_counter()
    pp.similarity(on_device)
    torch.cuda.synchronize()
    gpu = time.perf_counter() - begin
    cpu = seconds(lambda: pp.similarity(values.numpy()))
    return {"name": torch.cuda.get_device_name(), "cpu": cpu, "gpu": gpu}


PARTS = {part.__name__: part for part in (similarity, plain, components, on_gpu)}


def run(name: str, n: int, d: int) -> tuple[dict[str, Any], float]:
    """Run a part in a process of its own; return what it measured and its peak memory in GiB."""
    process = subprocess.Popen(
        [sys.executable, __file__, name, str(n), str(d)],
        stdout=subprocess.PIPE,
        text=True,
    )
    printed = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} ended with {process.returncode}")
    return json.loads(printed), usage.ru_maxrss / 2**20


def main() -> None:
    """Print the ratios."""
    n, d = LARGE
    ours, memory = run("similarity", n, d)
    print(
        f"similarity {n} x {d}: {ours['seconds']:.1f} s, {memory:.2f} GiB in all",
        flush=True,
    )
    n, d = MEDIUM
    (ours, memory), (reference, reference_memory) = (
        run("similarity", n, d),
        run("plain", n, d),
    )
    print(
        f"similarity {n} x {d} / plain script: time {ours['seconds'] / reference['seconds']:.2f} "
        f"({ours['seconds']:.1f} s / {reference['seconds']:.1f} s), "
        f"memory {memory / reference_memory:.2f} "
        f"({memory:.2f} GiB / {reference_memory:.2f} GiB)",
        flush=True,
    )
    n, d = DECOMPOSED
    error, _ = run("components", n, d)
    print(
        f"components {n} x {d}, randomised / exact: "
        f"time {error['randomised'] / error['exact']:.2f} "
        f"({error['randomised']:.1f} s / {error['exact']:.1f} s), shares within "
        f"{error['error']:.0e}",
        flush=True,
    )
    error, _ = run("on_gpu", *LARGE)
    print(
        f"similarity {LARGE[0]} x {LARGE[1]}, {error['name']} / processor: time "
        f"{error['gpu'] / error['cpu']:.3f} ({error['gpu']:.2f} s / {error['cpu']:.1f} s)"
        if error
        else "torch finds no CUDA device: nothing to set beside the processor"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=PARTS, help="one part; all without")
    parser.add_argument(
        "sides", nargs="*", type=int, help="positions and width of its table"
    )
    options = parser.parse_args()
    if len(options.sides) != (2 if options.part else 0):
        parser.error("a part needs the positions and the width of its table")
    if options.part:
        print(json.dumps(PARTS[options.part](*options.sides)))
    else:
        main()
