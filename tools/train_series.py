# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "numpy>=2.0",
#     "safetensors>=0.5",
#     "scikit-learn>=1.6",
#     "torch>=2.6",
#     "transformers>=5.0",
# ]
# ///
"""Train two small models and keep their position tables at 24 steps: order emerging from noise.

Run ``uv run tools/train_series.py``; it takes a few minutes on one CPU core. It writes
``tests/data/series/digits-vit`` and ``…/help-gpt2``, one file for each step.

The first is the model of ``tools/train_digits_vit.py``, trained for a sixth of its steps. The
second is a GPT-2 of two layers that reads the help texts of Python, letter by letter, from the
beginning of a line, so that a position is a column of the text. Runs are seeded and single-threaded
as there. ``--seed 1`` gives trainings from another start, of which the last table is kept.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import safetensors.numpy
import torch
from train_digits_vit import TENSOR, build, load_split, train as train_digits
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "series"
#: Steps at which the tables are kept.
SAVED_STEPS = (
    0, 10, 20, 30, 40, 50, 60, 80, 100, 125, 150, 175, 200, 250, 300, 350, 400, 450, 500, 600, 700,
    800, 900, 1000,
)  # fmt: skip
STEPS = SAVED_STEPS[-1]
RUNS = ("digits-vit", "help-gpt2")
POSITIONS = 80
WIDTH = 48
BATCH = 32
LEARNING_RATE = 3e-3
WARMUP = 100
WEIGHT_DECAY = 0.1


def help_texts() -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the letters of all texts as numbers, where lines begin, and how many letters occur."""
    text = "\n".join(text for _, text in sorted(topics.items()))
    letters = {letter: k for k, letter in enumerate(sorted(set(text)))}
    codes = torch.tensor([letters[letter] for letter in text])
    starts = [0] + [start + 1 for start, letter in enumerate(text) if letter == "\n"]
    valid_starts = [start for start in starts if start + POSITIONS < len(text)]
    return codes, torch.tensor(valid_starts), len(letters)


def train_reader(on_step: Callable[[int], None], model: GPT2LMHeadModel) -> None:
    """Teach the model the next letter."""
    codes, starts, _ = help_texts()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, step / WARMUP) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        ),
    )
    model.train()
    on_step(0)
    started = time.monotonic()
    for step in range(1, STEPS + 1):
        batch_starts = starts[torch.randint(len(starts), (BATCH, 1))]
        batch = codes[batch_starts + torch.arange(POSITIONS)]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        on_step(step)
        if step % 250 == 0:
            progress = (
                f"step {step}: {loss.item():.3f}, {time.monotonic() - started:.0f} s"
            )
            print(progress, file=sys.stderr)


def reader() -> GPT2LMHeadModel:
    """Return the untrained model of letters."""
    _, _, letters = help_texts()
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=letters, n_positions=POSITIONS, n_embd=WIDTH, n_layer=2, n_head=4,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def keeper(
    model: torch.nn.Module, tensor: str, name: str, folder: Path, steps: tuple[int, ...]
) -> Callable[[int], None]:
    """Return what writes the table of a step that is kept."""

    def seen(step: int) -> None:
        if step in steps:
            values = model.get_parameter(tensor).detach().numpy().astype(np.float16)
            content = safetensors.numpy.save({name: values}, metadata={"format": "pt"})
            (folder / f"step-{step}.safetensors").write_bytes(content)

    return seen


def main() -> None:
    """Train both, and write what is kept."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="folder to write into"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="other than 0: keep the last step only"
    )
    parser.add_argument(
        "--run", choices=RUNS, action="append", help="train this one only"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    steps = SAVED_STEPS if options.seed == 0 else SAVED_STEPS[-1:]
    ending = "" if options.seed == 0 else f"-seed-{options.seed}"

    for name in options.run or RUNS:
        folder = options.folder / f"{name}{ending}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(options.seed)
        if name == "digits-vit":
            images, _, labels, _ = load_split()
            vit = build()
            save_step = keeper(vit, TENSOR, TENSOR, folder, steps)
            train_digits(vit, images, labels, STEPS, save_step)
            vit.config.architectures = [type(vit).__name__]
            vit.config.save_pretrained(folder)
        else:
            gpt2 = reader()
            save_step = keeper(
                gpt2, "transformer.wpe.weight", "wpe.weight", folder, steps
            )
            train_reader(save_step, gpt2)
            gpt2.config.architectures = [type(gpt2).__name__]
            gpt2.config.save_pretrained(folder)


if __name__ == "__main__":
    main()
