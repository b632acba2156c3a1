# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy>=2.0", "safetensors>=0.5", "torch>=2.6", "transformers>=5.0"]
# ///
"""Train the sample ``pydoc-llama``: a small rotary language model of the bytes of Python's manual.

Run ``uv run tools/train_rotary_lm.py``; it takes a few minutes on one CPU core. The text ships with
Python as ``pydoc_data.topics``, what ``help("topics")`` prints. A token is a byte of ASCII, so that
no tokenizer is needed. What ships is an ordinary ``LlamaForCausalLM``.

The run is seeded and single-threaded: on one machine, with one set of library versions, it writes
the same bytes every time. Another processor or another version of torch may round differently.
"""

import argparse
import hashlib
import json
import math
import platform
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

SAMPLES = Path(__file__).resolve().parent.parent / "posprobe" / "samples"
NAME = "pydoc-llama"
SEED = 0
LENGTH = 256
HELD_OUT = 0.05  # share of the text at its end
STEPS = 1500
WARMUP = 100
BATCH = 16
LEARNING_RATE = 4e-3
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
NEWLINE = 10


def corpus() -> NDArray[np.int64]:
    """Return the manual as bytes of ASCII; other characters are left out."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int64)


def build() -> LlamaForCausalLM:
    """Return the untrained model."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128,
            hidden_size=64,
            intermediate_size=176,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=NEWLINE,
            eos_token_id=None,
            pad_token_id=None,
        )
    )


def train(model: LlamaForCausalLM, text: torch.Tensor) -> None:
    """Teach the model to name the next byte."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": WEIGHT_DECAY},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=LEARNING_RATE,
        betas=(0.9, 0.95),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, step / WARMUP) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        ),
    )
    model.train()
    started = time.monotonic()
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - LENGTH, (BATCH, 1))
        batch = text[starts + torch.arange(LENGTH)]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            seconds = time.monotonic() - started
            print(
                f"step {step}: {loss.item():.3f} nats, {seconds:.0f} s", file=sys.stderr
            )


@torch.no_grad()
def held_out(model: LlamaForCausalLM, text: torch.Tensor) -> float:
    """Return the loss on what was not trained on, nats per byte."""
    model.train(mode=False)
    batch = text[: len(text) // LENGTH * LENGTH].reshape(-1, LENGTH)
    losses = [
        model(input_ids=part, labels=part).loss for part in torch.split(batch, BATCH)
    ]
    return float(torch.stack(losses).mean())


def main() -> None:
    """Train, measure and write the sample."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--samples", type=Path, default=SAMPLES, help="folder to write into"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    text = corpus()
    split = round(len(text) * (1 - HELD_OUT))
    model = build()
    train(model, torch.from_numpy(text[:split]))
    for (
        values
    ) in model.parameters():  # what ships is rounded, so that the package stays small
        values.data = values.data.half().float()
    loss = round(held_out(model, torch.from_numpy(text[split:])), 4)

    folder = options.samples / NAME
    folder.mkdir(parents=True, exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.dtype = torch.float16
    model.config.save_pretrained(folder)
    weights = {name: values.half().numpy() for name, values in model.state_dict().items()}
    del weights["lm_head.weight"]  # it is that of the embeddings
    content = safetensors.numpy.save(weights, metadata={"format": "pt"})
    (folder / "model.safetensors").write_bytes(content)
    catalogue = options.samples / "samples.json"
    siblings = json.loads(catalogue.read_bytes()) if catalogue.exists() else []
    entries = [entry for entry in siblings if entry["name"] != NAME]
    entries.append(
        catalogue_entry(text, loss, sum(values.size for values in weights.values()))
    )
    written = json.dumps(entries, indent=2, ensure_ascii=False)
    catalogue.write_text(written + "\n", encoding="utf-8")
    print(f"{loss} nats per byte")


def catalogue_entry(
    text: NDArray[np.int64], loss: float, parameters: int
) -> dict[str, Any]:
    """Return what the catalogue says about the sample."""
    unknown = dict.fromkeys(
        (
            "tensor_sha256", "registry", "package", "version", "archive", "archive_sha256",
            "member", "member_tensor", "member_sha256",
        )
    )  # fmt: skip
    return {
        "name": NAME,
        "title": "Python's manual by bytes (Llama)",
        "description": (
            "Small rotary language model trained for this project on the bytes of Python's manual; "
            "complete weights, so the model can be run. It has no table of positions."
        ),
        "citation": "Architecture: Touvron et al. 2023, arXiv:2302.13971",
        "licence": "Apache-2.0",
        "tensor": None,
        "shape": [],
        "dtype": "float16",
        **unknown,
        "training": {
            "script": "tools/train_rotary_lm.py",
            "data": (
                f"pydoc_data.topics of Python {platform.python_version()}, {len(text)} bytes of "
                f"ASCII, sha256 {hashlib.sha256(text.astype(np.uint8).tobytes()).hexdigest()}; the "
                f"last {HELD_OUT:.0%} held out"
            ),
            "input": "bytes of ASCII as token ids",
            "task": f"cross-entropy of the next byte, windows of {LENGTH}",
            "optimiser": (
                f"AdamW, {STEPS} steps of {BATCH} windows, learning rate {LEARNING_RATE:g} with "
                f"{WARMUP} warm-up steps and cosine decay, weight decay {WEIGHT_DECAY:g} on "
                "matrices"
            ),
            "seed": SEED,
            "parameters": parameters,
            "measured": {"held_out_nats_per_byte": loss},
            "measured_how": f"windows of {LENGTH} of the held-out text, after the last step",
        },
    }


if __name__ == "__main__":
    main()
