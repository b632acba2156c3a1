"""Measure how often a head of a rotary model is said to prefer a distance.

Heads at initialisation are those of models with random weights, run on random tokens and on what
they sample themselves. Planted heads are drawn as the sums that a run leaves: white noise and a
smooth curve of each context's own, with and without one curve that all contexts share. What is
counted is the answer of `posprobe forward`. docs/calibration.md tells what this prints:

    OPENBLAS_NUM_THREADS=1 uv run --group test python tools/rotary_calibration.py

``--heads 40`` draws fewer, ``--without-models`` runs none. ``--large`` runs one model of 1.0
billion parameters alone, in float32 (5 GB of memory, some minutes).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from calibration import rate
from numpy.typing import NDArray
from scipy.signal import lfilter

from posprobe.analyses.models.rotary_heads import (
    LayerRotation,
    RotarySums,
    answer_heads,
    measure_rotary_heads,
)
from posprobe.analyses.models.rotary_use import HeadUse, RotaryUse

Floats: TypeAlias = NDArray[np.float64]

#: Layers, heads, heads of keys and width of the models.
SHAPES = ((2, 4, 4, 32), (4, 8, 4, 64), (2, 12, 12, 192), (4, 16, 4, 256))
LARGE = (28, 32, 8, 2048)
SEEDS = 3
CONTEXTS = 16
LENGTH = 256
#: Distances of a window, which are also its queries.
WINDOW = LENGTH // 2
#: Heads that are judged in one call.
HEADS_PER_BATCH = 40
#: Shares of the remaining variance of logits in curves of single contexts; the heads of
#: `sample:pydoc-llama` have 0.01 to 0.04.
CONTEXT_SHARES = (0.0, 0.1, 1.0)
#: Correlation of such a curve at neighbouring distances; `sample:pydoc-llama` has 0.7 to 0.95.
NOISE_CORRELATION = 0.8
#: Standard deviations of planted curves, in nats.
SPREADS = (0.05, 0.1, 0.2, 0.3, 0.5)
#: Shares of the variance of a query's logits that the planted curve holds.
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)
LADDER = 10_000.0 ** (-np.arange(8) / 8)


def noise(rng: np.random.Generator, context_share: float, heads: int) -> Floats:
    """Draw what contexts' mean logits deviate by, ``[contexts, heads, n]``, for logits of 1 nat."""
    white, context_noise = rng.standard_normal((2, CONTEXTS, heads, WINDOW))
    context_noise[..., 0] /= np.sqrt(1 - NOISE_CORRELATION**2)
    curve = lfilter([1], [1, -NOISE_CORRELATION], context_noise) * np.sqrt(
        1 - NOISE_CORRELATION**2
    )
    # White noise of every query, of which there are as many as distances.
    return np.asarray(
        np.sqrt(context_share) * curve + np.sqrt((1 - context_share) / WINDOW) * white
    )


def planted(
    rng: np.random.Generator, context_share: float, spreads: Floats, share: float
) -> tuple[HeadUse, ...]:
    """Judge heads whose contexts share a curve of these standard deviations, 0 for none.

    Logits of a query vary by ``spread ** 2 / share``, of heads without a curve by 1.
    """
    heads = len(spreads)
    turns = rng.choice(LADDER, heads)[:, None] * np.arange(WINDOW)
    curve = np.cos(turns + rng.uniform(0, 2 * np.pi, (heads, 1)))
    curve -= curve.mean(axis=1, keepdims=True)
    curve *= (spreads / curve.std(axis=1))[:, None]
    noise_variance = np.where(spreads > 0, spreads**2 / share, 1.0)
    size = np.sqrt(noise_variance - spreads**2)
    curves = curve + size[:, None] * noise(rng, context_share, heads)
    ones = np.ones((heads, len(LADDER)))
    rotated = ones.astype(np.complex128)
    padding = np.zeros((heads, 0))
    sums = RotarySums(
        curves=curves, variance=np.tile(noise_variance, (CONTEXTS, 1)),
        moved_attention=np.ones((CONTEXTS, heads)),
        capped_share=np.full((CONTEXTS, heads), np.nan), query=rotated, key=rotated,
        fixed_query=padding, fixed_key=padding, query_power=ones, key_power=ones, queries=1, keys=1,
    )  # fmt: skip
    turning = LayerRotation(LADDER, "halves", "all", 0.0, np.arange(WINDOW), 1.0)
    return answer_heads(measure_rotary_heads(0, sums, turning, length=2 * WINDOW))


def answers(
    context_share: float, spread: float, share: float, heads: int
) -> Counter[str]:
    """Count the answers of planted heads, each beside one without a curve."""
    rng = np.random.default_rng(
        [int(1000 * parameter) for parameter in (context_share, spread, share)]
    )
    verdicts: Counter[str] = Counter()
    spreads = np.where(np.arange(HEADS_PER_BATCH) % 2 == 0, spread, 0.0)
    while verdicts.total() < heads:
        curves = planted(rng, context_share, spreads, share)
        verdicts.update(head.answer for head in curves[::2])
    return verdicts


def untrained(shapes: Sequence[tuple[int, ...]], seeds: int) -> Iterator[RotaryUse]:
    """Run models with random weights on random tokens, and on what they sample themselves."""
    import torch
    import transformers

    from posprobe.forward import random_tokens, rotary_use, sampled_tokens

    model_class: Any = transformers.LlamaForCausalLM
    for layers, heads, keys, width in shapes:
        config = transformers.LlamaConfig(
            hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=keys, vocab_size=512,
            max_position_embeddings=2 * LENGTH,
        )  # fmt: skip
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = model_class(config).eval()
            for contexts in (
                random_tokens(config, LENGTH, CONTEXTS, seed=seed),
                sampled_tokens(model, LENGTH, CONTEXTS, seed=seed),
            ):
                yield rotary_use(model, contexts)


def tables(heads: int) -> Iterator[str]:
    """Yield lines of the tables of planted heads."""
    for context_share in CONTEXT_SHARES:
        without_curve = answers(context_share, 0.0, 1.0, 10 * heads)
        false = rate(without_curve["yes"], without_curve.total(), is_lower_bound=False)
        yield f"own curves {context_share:g}, none shared: yes in {false}"
        yield "| nats | " + " | ".join(f"share {share:g}" for share in SHARES) + " |"
        yield "| ---: |" + " ---: |" * len(SHARES)
        for spread in SPREADS:
            with_curve = [
                answers(context_share, spread, share, heads) for share in SHARES
            ]
            cells = (
                f"{100 * verdicts['yes'] / verdicts.total():.1f} %"
                for verdicts in with_curve
            )
            yield f"| {spread:g} | " + " | ".join(cells) + " |"


def of_models(runs: Sequence[RotaryUse]) -> Iterator[str]:
    """Yield lines on the heads of models with random weights."""
    heads = [head for run in runs for head in run.heads]
    yes = sum(head.answer == "yes" for head in heads)
    sure = sum(head.p is not None and head.p < 0.01 for head in heads)
    residual = max(layer.shift_check or 0 for run in runs for layer in run.layers)
    counted = rate(yes, len(heads), is_lower_bound=False)
    yield f"at initialisation: yes in {counted}; p < 0.01 in {sure}"
    largest = {
        "spread (nats)": max(head.spread or 0 for head in heads),
        "share": max(head.share or 0 for head in heads),
        "lower end of its interval": max(
            head.interval[0] for head in heads if head.interval
        ),
        "moved attention": max(head.moved for head in heads),
        "residual of the shift check": residual,
    }
    yield f"at most: {', '.join(f'{name} {value:.2g}' for name, value in largest.items())}"


def main() -> None:
    """Read the options, count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=400, help="of each cell")
    parser.add_argument(
        "--without-models", action="store_true", help="planted heads alone"
    )
    parser.add_argument("--large", action="store_true", help="one large model alone")
    options = parser.parse_args()
    if options.large:
        import resource  # which Windows lacks

        for run in untrained([LARGE], 1):
            for line in of_models([run]):
                print(line, flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        print(f"{time.process_time():.0f} s of processor time, {peak:.1f} GiB at most")
        return
    for line in tables(options.heads):
        print(line, flush=True)
    if not options.without_models:
        for line in of_models(list(untrained(SHAPES, SEEDS))):
            print(line, flush=True)


if __name__ == "__main__":
    main()
