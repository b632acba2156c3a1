"""What measuring costs beside running: `decompose` against the bare forward pass.

    uv run --group test python benchmarks/forward.py                  # BERT-base, on the CPU
    uv run --group test python benchmarks/forward.py --size 1b --dtype bfloat16 --device cuda
    uv run --group test python benchmarks/forward.py --rotary         # `rotary_use`, and its memory

    uv run --group test python benchmarks/forward.py --whole CHECKPOINT   # processes, start to end

`--whole` times `posprobe forward` beside a script that loads the same model and makes one bare
pass over the same 64 contexts. Both run the same model on the same batches, in turns, so that
what else the machine does falls on both. Weights are random: their values take no time. On a
GPU the peak memory of both is compared too, and with `--beside-cpu` the rate of the CPU.
`--rotary` runs 16 contexts of 1,024 tokens through a model of 100 M parameters, unless told
otherwise; the memory is that of the sums of 32 layers of 32 heads over contexts of 2,048
tokens, beside what any model would hold.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from posprobe.analyses.models.rotary_heads import (
    LayerRotation,
    RotarySums,
    build_rotary_use,
)
from posprobe.forward import attend, decompose, random_tokens, rotary_use
from posprobe.forward.attention_inputs import AttentionInputs
from posprobe.forward.rotary import ObservedLayer, sum_window
from posprobe.forward.running import run_body

Contexts = list[Any]

#: By name: configuration, tokens of a context and contexts at a time.
SIZES: dict[str, Callable[[], Any]] = {
    "bert-base": lambda: transformers.BertConfig(),
    "gpt2": lambda: transformers.GPT2Config(),
    "100m": lambda: transformers.LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
        max_position_embeddings=2048,
    ),
    # As large as TinyLlama, and as Llama 2 7B.
    "1b": lambda: transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
        num_key_value_heads=4, max_position_embeddings=2048,
    ),
    "7b": lambda: transformers.LlamaConfig(),
}  # fmt: skip

#: What `--rotary` runs unless told otherwise.
ROTARY = {"size": "100m", "length": 1024, "batch_size": 2, "batches": 8}
#: Of the model whose sums are weighed, and its contexts.
LAYERS = 32
HEADS = 32
WIDTH = 64
LENGTH = 2048
CONTEXTS = 16


def build(size: str, device: str, dtype: str) -> Any:
    """Build a model with random weights where it is to be run."""
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            kind: Any = transformers.AutoModel
            model = kind.from_config(SIZES[size]())
    finally:
        torch.set_default_dtype(default_dtype)
    model.requires_grad_(requires_grad=False)
    return model.train(mode=False)


def bare(model: Any, batches: Contexts) -> None:
    """Run a model and look at nothing."""
    device = next(model.parameters()).device
    with torch.no_grad():
        for batch in batches:
            run_body(model, torch.as_tensor(batch, device=device))


def seconds(task: Callable[[], object], device: str) -> float:
    """Time a task, what it left a GPU to do included."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    task()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def peak(task: Callable[[], object]) -> float:
    """Return the GiB of device memory that a task and what was there before take at most."""
    torch.cuda.reset_peak_memory_stats()
    task()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


def status(name: str) -> float:
    """Return MiB that this process holds (``VmRSS``) or held at most (``VmHWM``); Linux alone."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def rotary_memory() -> float:
    """Return the MiB that sums, what is held while they are made, and the result take at most.

    Layers are alike here: the last context alone is added up layer by layer, the others once.
    """
    ladder = 10_000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
    scale, window = WIDTH**-0.5, LENGTH // 2
    turning = LayerRotation(ladder, "halves", "all", 0.0, np.arange(window), scale)
    query, key = torch.randn(2, 1, HEADS, LENGTH, WIDTH)
    attention_call, layer = (
        AttentionInputs(query, key, None, scale, None),
        ObservedLayer(turning, window, LENGTH),
    )
    few_layer = ObservedLayer(
        LayerRotation(ladder, "halves", "all", 0.0, np.arange(8), scale), 8, 16
    )
    sum_window(attention_call, few_layer)  # libraries are loaded
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    memory_before, window_sums_found = status("VmRSS"), sum_window(attention_call, layer)
    sums: dict[int, RotarySums] = dict.fromkeys(range(LAYERS), window_sums_found)
    for context in range(1, CONTEXTS):
        for number in sums:
            sums[number] += (
                sum_window(attention_call, layer)
                if context == CONTEXTS - 1
                else window_sums_found
            )
    build_rotary_use(
        sums, dict.fromkeys(sums, turning), {}, length=LENGTH, positions=LENGTH, source="random",
        name="made",
    )  # fmt: skip
    return status("VmHWM") - memory_before


def in_turns(
    tasks: dict[str, Callable[[], object]], rounds: int, device: str
) -> dict[str, float]:
    """Return the median time of each task, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            spent = seconds(task, device)
            if number:
                times[name].append(spent)
    return {name: statistics.median(spent) for name, spent in times.items()}


def report(
    size: str, device: str, dtype: str, options: argparse.Namespace
) -> Iterator[str]:
    """Measure and yield lines to print."""
    model = build(size, device, dtype)
    count = options.batches * options.batch_size
    batches = list(
        random_tokens(model.config, options.length, count, batch_size=options.batch_size)
    )
    threads = f"{torch.get_num_threads()} threads"
    device_name = torch.cuda.get_device_name() if device == "cuda" else threads
    parameters = sum(parameter.numel() for parameter in model.parameters())
    yield (
        f"{size}: {parameters / 1e9:.2f}e9 parameters, {dtype}, {device} ({device_name}), "
        f"{options.batches} batches of {options.batch_size} x {options.length} tokens"
    )
    tasks: dict[str, Callable[[], object]] = {
        "bare": lambda: bare(model, batches),
        "decompose": lambda: decompose(model, batches),
    }
    if options.attention:
        tasks["attend"] = lambda: attend(model, batches)
    if options.rotary:
        tasks = {"bare": tasks["bare"], "rotary_use": lambda: rotary_use(model, batches)}
    spent = in_turns(tasks, options.rounds, device)
    tokens = count * options.length
    for name, time_taken in spent.items():
        yield (
            f"{name:>12}: {tokens / time_taken:10.0f} tokens/s, "
            f"{spent['bare'] / time_taken:.2f} of the bare pass, "
            f"{time_taken / spent['bare']:.2f} times as long"
        )
    if device == "cuda":
        memory = {name: peak(task) for name, task in tasks.items()}
        for name, peak_bytes in memory.items():
            share = peak_bytes / memory["bare"]
            yield f"{name:>12}: {peak_bytes:7.2f} GiB at most, {share:.2f} of the bare pass"


#: Script beside `--whole`: the same contexts, run once.
BARE_SCRIPT = """
import sys
import torch
from transformers import AutoModel, AutoTokenizer
from posprobe.forward.default_contexts import documentation_windows
model = AutoModel.from_pretrained(sys.argv[1]).eval()
tokens = documentation_windows(AutoTokenizer.from_pretrained(sys.argv[1]), 128, 64)
with torch.no_grad():
    for start in range(0, 64, 8):
        model(input_ids=torch.as_tensor(tokens[start : start + 8]))
"""


def whole(reference: str, rounds: int) -> None:
    """Time whole processes in turns, with and without the places that reach the output."""
    fast = ["--only", "attention_budget,states,permutation"]
    with tempfile.TemporaryDirectory() as folder:
        forward = [sys.executable, "-m", "posprobe", "forward", reference, "--quiet"]
        commands = {
            "one bare pass": [sys.executable, "-c", BARE_SCRIPT, reference],
            "forward without places": [*forward, *fast, "--out", f"{folder}/fast"],
            "forward": [*forward, "--out", f"{folder}/all"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                begin = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:24} {median:6.2f} s  {median / medians['one bare pass']:.2f}")


def main() -> None:
    """Read the options, measure and print."""
    parser = argparse.ArgumentParser(description="What measuring costs beside running.")
    parser.add_argument("--size", choices=SIZES, default="bert-base")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attention", action="store_true", help="time `attend`, too")
    parser.add_argument(
        "--rotary", action="store_true", help="`rotary_use`, and its memory"
    )
    parser.add_argument(
        "--beside-cpu", action="store_true", help="and the same on the CPU"
    )
    parser.add_argument("--whole", metavar="CHECKPOINT", help="whole processes")
    if checkpoint := parser.parse_known_args()[0].whole:
        whole(checkpoint, parser.parse_known_args()[0].rounds)
        return
    if parser.parse_known_args()[0].rotary:
        parser.set_defaults(**ROTARY)
        # In a process of its own, which holds nothing else.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            peak = pool.submit(rotary_memory).result()
        description = (
            f"{LAYERS} layers x {HEADS} heads x {LENGTH} tokens, {CONTEXTS} contexts"
        )
        print(f"rotary_use: {peak:.0f} MiB at most ({description})", flush=True)
    options = parser.parse_args()
    for device in dict.fromkeys(
        [options.device, *(["cpu"] if options.beside_cpu else [])]
    ):
        for line in report(options.size, device, options.dtype, options):
            print(line, flush=True)


if __name__ == "__main__":
    main()
