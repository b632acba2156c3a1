"""Measure what is published of rotary positions and of random models, as a Markdown table.

    python tools/replicate_models.py [--embedding-model PATH]

Bounds of the base and lengths of periods are closed forms. The variance of random attention runs a
model of transformers with random weights, and the energies of queries and keys run the model that
is named, such as a local copy of all-MiniLM-L6-v2.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import posprobe as pp
from posprobe.encodings.rotary import first_negative

Floats = NDArray[np.float64]

#: Rotary settings of Llama 3.1 and 3.2 without their factor (config.json of both).
LLAMA3_BASE = 500_000.0
LLAMA3_SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
#: Width of a head in Men et al. 2024.
BOUND_WIDTH = 128
#: Context lengths of Men et al. 2024, figure 1, tokens: one thousand to one million in doublings.
BOUND_LENGTHS = tuple(1024 * 2**k for k in range(11))
#: Ratio of one base to the next in the search for a bound.
BASE_RATIO = 1.005
#: Tokens of a context, contexts and layers of the random model of Chi et al. 2023.
RANDOM_TOKENS = 512
RANDOM_CONTEXTS = 8
#: Tokens and number of contexts for the energies of queries and keys.
ENERGY_TOKENS = 128
ENERGY_CONTEXTS = 64


def base_bounds() -> dict[int, float]:
    """Return the smallest base at which no distance within a context has a negative kernel."""
    bounds: dict[int, float] = {}
    base = 1000.0
    for length in BOUND_LENGTHS:
        while first_negative(
            pp.encodings.rotary_frequencies(BOUND_WIDTH, base=base)[0], length
        ):
            base *= BASE_RATIO
        bounds[length] = base
    return bounds


def compare_base_bounds() -> Iterator[tuple[str, str, str, str]]:
    """Yield bounds of the base, and the power of the context length that they follow."""
    source = "Men et al. 2024 (2405.14591), figure 1"
    bounds = base_bounds()
    power, constant = np.polyfit(np.log(list(bounds)), np.log(list(bounds.values())), 1)
    ours = f"{np.exp(constant):.3g} L^{power:.3f}"
    yield "lower bound of the base for L tokens", "0.0424 L^1.628", ours, source
    for length in (BOUND_LENGTHS[0], BOUND_LENGTHS[-1]):
        published = f"{0.0424 * length**1.628:.2g} by the fit"
        yield (
            f"the same for {length:,} tokens",
            published,
            f"{bounds[length]:.2g}",
            source,
        )


def compare_periods() -> Iterator[tuple[str, str, str, str]]:
    """Yield the pair whose period is nearest to the frames of a video."""
    periods = pp.encodings.wavelengths(pp.encodings.rotary_frequencies(16, base=256.0)[0])
    nearest = int(np.argmin(np.abs(periods - 48)))
    yield (
        "pair with the period nearest to 48 frames (base 256, width 16)",
        "k = 4, period 50.27",
        f"k = {nearest + 1}, period {periods[nearest]:.2f}",
        "Zhao et al. 2025 (RIFLEx, 2502.15894)",
    )


def scaled_and_plain(width: int, factor: float) -> tuple[Floats, Floats]:
    """Return the frequencies of a Llama 3 head with its scaling and without."""
    scaling = LLAMA3_SCALING | {"factor": factor}
    scaled, _ = pp.encodings.rotary_frequencies(width, base=LLAMA3_BASE, scaling=scaling)
    return scaled, pp.encodings.rotary_frequencies(width, base=LLAMA3_BASE)[0]


def compare_llama3() -> Iterator[tuple[str, str, str, str]]:
    """Yield what the scaling of Llama 3 does to pairs, and what losing it does to vectors."""
    scaled, plain = scaled_and_plain(64, 32.0)
    is_divided = np.isclose(scaled, plain / 32)
    n_same, n_divided = int((scaled == plain).sum()), int(is_divided.sum())
    n_blended = len(plain) - n_same - n_divided
    yield (
        "Llama 3.2 (width 64, factor 32): pairs unchanged, blended, divided",
        "15, 3, 14",
        f"{n_same}, {n_blended}, {n_divided}",
        "rule `llama3` of transformers",
    )
    scaled, plain = scaled_and_plain(128, 8.0)
    positions = (1_000, 8_192, 20_000, 60_000)
    cosines = [float(np.cos(p * (scaled - plain)).mean()) for p in positions]
    yield (
        (
            "Llama 3.2 Vision (width 128, factor 8): cosine of a vector rotated with and without "
            "scaling, at positions 1,000, 8,192, 20,000, 60,000"
        ),
        ".959 .757 .619 .503",
        " ".join(f"{cosine:.3f}".lstrip("0") for cosine in cosines),
        "mlx-vlm, pull request 1710",
    )


def compare_random_attention() -> Iterator[tuple[str, str, str, str]]:
    """Yield how the variance of attention outputs depends on position without an encoding."""
    import torch
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(n_positions=RANDOM_TOKENS)
    model: Any = GPT2Model(config)
    model.eval()
    outputs: list[Any] = []
    with torch.no_grad():
        model.wpe.weight.zero_()
        for block in model.h:
            block.attn.register_forward_hook(lambda *call: outputs.append(call[2][0]))
        generator = torch.Generator().manual_seed(1)
        shape = (RANDOM_CONTEXTS, RANDOM_TOKENS)
        model(torch.randint(0, config.vocab_size, shape, generator=generator))
    tokens = np.arange(1, RANDOM_TOKENS + 1)
    variances = [output.var(dim=-1).mean(dim=0).numpy() for output in outputs]
    powers = [np.polyfit(np.log(tokens[7:]), np.log(v[7:]), 1)[0] for v in variances]
    yield (
        (
            "random GPT-2 small without positions: variance of attention outputs over dimensions, "
            "as a power of the position (from 8), first and last layer"
        ),
        "-1 in the first layer; flatter above",
        f"{powers[0]:.2f}, {powers[-1]:.2f}",
        "Chi et al. 2023, section 4",
    )


def position_covariance(vectors: Floats) -> tuple[Floats, Floats]:
    """Split the covariance of queries or keys into what position explains, and the rest.

    Parameters
    ----------
    vectors
        ``[contexts, tokens, d]``. The part of position is taken from two halves of the contexts,
        whose noise is independent, so that its expectation is right for any number of them.
    """
    centred = vectors - vectors.mean(axis=(0, 1))
    first, second = (half.mean(axis=0) for half in (centred[0::2], centred[1::2]))
    by_position = (first.T @ second + second.T @ first) / (2 * len(first))
    flat = centred.reshape(-1, centred.shape[-1])
    return by_position, flat.T @ flat / len(flat) - by_position


def compare_energies(path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield how much of query-key products is of content and of position, over all heads."""
    import torch
    from transformers import AutoTokenizer

    from posprobe.forward.default_contexts import documentation_windows

    model: Any = pp.load_model(path)
    tokens = documentation_windows(
        AutoTokenizer.from_pretrained(path), ENERGY_TOKENS, ENERGY_CONTEXTS
    )
    projections: dict[str, list[Floats]] = {"query": [], "key": []}

    def store(kind: str) -> Callable[..., None]:
        return lambda *call: projections[kind].append(call[2].double().numpy())

    for name, module in model.named_modules():
        if (kind := name.rpartition(".")[2]) in projections:
            module.register_forward_hook(store(kind))
    with torch.no_grad():
        model(torch.as_tensor(tokens))
    n_heads = model.config.num_attention_heads
    energies = []
    for query, key in zip(projections["query"], projections["key"], strict=True):
        heads = zip(
            np.split(query, n_heads, axis=-1),
            np.split(key, n_heads, axis=-1),
            strict=True,
        )
        for query_vectors, key_vectors in heads:
            parts = product(
                position_covariance(query_vectors), position_covariance(key_vectors)
            )
            energies.append([float(np.sum(q * k)) for q, k in parts])
    by_head = np.array(energies)
    shares = (by_head / by_head.sum(axis=1, keepdims=True)).mean(axis=0)
    ours = f"{shares[3]:.0%}, {shares[1] + shares[2]:.0%}, {shares[0]:.0%}".replace(
        "%", " %"
    )
    yield (
        (
            "energy of query-key products, mean over heads: content with content, content with "
            "position, position with position"
        ),
        "vision models: in this order, content with content largest",
        f"{ours} (all-MiniLM-L6-v2, {ENERGY_CONTEXTS} contexts of {ENERGY_TOKENS} tokens)",
        "BFD, 2601.05328",
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--embedding-model", metavar="PATH", help="BERT-like model to run"
    )
    options = parser.parse_args()
    print("| quantity | published | ours | source |")
    print("| --- | --- | --- | --- |")
    parts = [
        compare_base_bounds,
        compare_periods,
        compare_llama3,
        compare_random_attention,
    ]
    for part in parts:
        for cells in part():
            print(f"| {' | '.join(cells)} |", flush=True)
    if options.embedding_model:
        for cells in compare_energies(options.embedding_model):
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
