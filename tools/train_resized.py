"""Ask models what each way of resizing their positions costs them.

Run ``uv run tools/train_resized.py digits`` or ``uv run tools/train_resized.py text``; each takes
several minutes on one CPU core and prints its numbers as JSON.

``digits`` trains the vision transformer of `train_digits_vit` for fewer steps, once at 8x8 and once
at 12x12 pixels, a patch each. The table of the first is resized to 12x12 in every way, and the
model shown the test digits at 12x12, without further training.

``text`` trains a small GPT-2 on the characters of Python's own manual, once at length 128 and once
at length 256. The table of the first is resized to 256 in every way, and the loss taken by
position, without further training.

Both are seeded and single-threaded. The manual is that of the Python that runs this, so that losses
differ a little from version to version.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
import train_digits_vit as digits
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, ViTForImageClassification

import posprobe as pp
from posprobe.resizing import GRID_WAYS, SEQUENCE_WAYS

SEED = 0
OLD_SIDE = digits.SIDE
NEW_SIDE = 12
DIGIT_STEPS = 800
OLD_LENGTH = 128
NEW_LENGTH = 256
TEXT_STEPS = 500
TOKENS = 2048  # in a batch, whatever the length
LEARNING_RATE = 2e-3
WARMUP = 100
#: Positions over which losses are averaged.
BLOCKS = ((0, 64), (64, 128), (128, 160), (160, 192), (192, 256))


def digit_accuracies() -> dict[str, Any]:
    """Train both models, and return the share of test digits that each way names.

    The same is asked of the sample `digits-vit`, which was trained longer.
    """
    train_x, test_x, train_y, test_y = digits.load_split()
    larger = enlarged(test_x, NEW_SIDE)
    models = {}
    for side in (OLD_SIDE, NEW_SIDE):
        torch.manual_seed(SEED)
        models[side] = digits.build(side)
        digits.train(models[side], enlarged(train_x, side), train_y, DIGIT_STEPS)
    sample = ViTForImageClassification.from_pretrained(digits.SAMPLES / digits.NAME)
    old, new = models[OLD_SIDE], models[NEW_SIDE]
    small, large = (f"{side}x{side}" for side in (OLD_SIDE, NEW_SIDE))
    return {
        "images": len(test_y),
        "steps": DIGIT_STEPS,
        f"trained and shown at {small}": digits.accuracy(old, test_x, test_y),
        f"trained at {small}, shown at {large}": each_way(old, larger, test_y),
        f"trained and shown at {large}": digits.accuracy(new, larger, test_y),
        "steps of the sample": digits.STEPS,
        f"sample, shown at {small}": digits.accuracy(sample, test_x, test_y),
        f"sample, shown at {large}": each_way(sample, larger, test_y),
    }


def each_way(
    model: ViTForImageClassification, images: torch.Tensor, labels: torch.Tensor
) -> dict[str, float]:
    """Return the share of larger images that a model names with its table resized in each way."""
    weights = model.state_dict()
    rows = weights[digits.TENSOR][0]
    table = pp.PositionTable(
        rows[1:].numpy().copy(),
        pp.layouts.Grid(OLD_SIDE, OLD_SIDE),
        name="digits",
        source=pp.sources.Source("digits", "trained here"),
        family="vit",
        prefix=rows[:1].numpy().copy(),
    )
    losses_by_way: dict[str, float] = {}
    for way in GRID_WAYS:
        resized = pp.resize(table, to=(NEW_SIDE, NEW_SIDE), how=way)
        losses_by_way[way] = digits.accuracy(with_rows(weights, resized), images, labels)
    return losses_by_way


def enlarged(images: torch.Tensor, side: int) -> torch.Tensor:
    """Return images of another size, their pixels mixed from the nearest four."""
    return functional.interpolate(
        images, size=(side, side), mode="bilinear", align_corners=False
    )


def with_rows(
    weights: dict[str, torch.Tensor], table: pp.PositionTable
) -> ViTForImageClassification:
    """Return the model of the new side with all weights of the old one but its table."""
    model = digits.build(NEW_SIDE)
    rows = np.concatenate([np.asarray(table.prefix), table.values])[None]
    model.load_state_dict({**weights, digits.TENSOR: torch.from_numpy(rows)})
    return model


def text_losses() -> dict[str, Any]:
    """Train both models, and return losses by position for each way."""
    train, test = characters()
    windows = test[: len(test) // NEW_LENGTH * NEW_LENGTH].reshape(-1, NEW_LENGTH)
    old = trained(train, OLD_LENGTH)
    table = pp.table(old.transformer.wpe.weight, name="text")
    losses_by_way = {}
    for way in SEQUENCE_WAYS:
        longer = gpt2(NEW_LENGTH)
        rows = torch.from_numpy(pp.resize(table, to=NEW_LENGTH, how=way).values.copy())
        longer.load_state_dict({**old.state_dict(), "transformer.wpe.weight": rows})
        losses_by_way[way] = blocks(losses(longer, windows))
    halves = windows.reshape(-1, OLD_LENGTH)
    print(json.dumps([blocks(losses(old, halves)), losses_by_way]), file=sys.stderr)
    new = trained(train, NEW_LENGTH)
    return {
        "characters": int(windows.numel()),
        "steps": TEXT_STEPS,
        f"trained at {OLD_LENGTH}, read at {OLD_LENGTH}": blocks(losses(old, halves)),
        f"trained at {OLD_LENGTH}, read at {NEW_LENGTH}": losses_by_way,
        f"trained at {NEW_LENGTH}, read at {NEW_LENGTH}": blocks(losses(new, windows)),
    }


def characters() -> tuple[torch.Tensor, torch.Tensor]:
    """Return Python's manual as numbers of 7-bit characters, the last tenth for the test."""
    text = "\n".join(topics[name] for name in sorted(topics))
    codes = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int64)
    cut = len(codes) * 9 // 10
    return torch.from_numpy(codes[:cut].copy()), torch.from_numpy(codes[cut:].copy())


def gpt2(length: int) -> GPT2LMHeadModel:
    """Return the untrained model."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=128, n_positions=length, n_embd=96, n_layer=2, n_head=4, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def trained(text: torch.Tensor, length: int) -> GPT2LMHeadModel:
    """Train a model on windows of one length."""
    torch.manual_seed(SEED)
    model = gpt2(length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, step / WARMUP) * 0.5 * (1 + math.cos(math.pi * step / TEXT_STEPS))
        ),
    )
    model.train()
    started = time.monotonic()
    for step in range(1, TEXT_STEPS + 1):
        starts = torch.randint(len(text) - length, (TOKENS // length,))
        batch = text[starts[:, None] + torch.arange(length)]
        logits = model(input_ids=batch).logits[:, :-1]
        loss = functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            seconds = time.monotonic() - started
            print(
                f"length {length}, step {step}: {loss.item():.3f}, {seconds:.0f} s",
                file=sys.stderr,
            )
    return model


@torch.no_grad()
def losses(model: GPT2LMHeadModel, windows: torch.Tensor) -> torch.Tensor:
    """Return the mean loss in nats of the character after each position but the last."""
    model.train(mode=False)
    total = torch.zeros(windows.shape[1] - 1)
    for start in range(0, len(windows), 64):
        batch = windows[start : start + 64]
        logits = model(input_ids=batch).logits[:, :-1]
        token_losses = functional.cross_entropy(
            logits.transpose(1, 2), batch[:, 1:], reduction="none"
        )
        total += token_losses.sum(dim=0)
    return total / len(windows)


def blocks(loss: torch.Tensor) -> dict[str, float]:
    """Return mean losses over blocks of positions."""
    return {
        f"{start}-{stop - 1}": round(float(loss[start:stop].mean()), 3)
        for start, stop in BLOCKS
        if start < len(loss)
    }


def main() -> None:
    """Run one of the two and print its numbers."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("which", choices=["digits", "text"])
    experiment = parser.parse_args().which
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    print(
        json.dumps(
            digit_accuracies() if experiment == "digits" else text_losses(), indent=2
        )
    )


if __name__ == "__main__":
    main()
