# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy>=2.0", "torch>=2.6"]
# ///
"""Train twelve tiny transformers on tasks whose use of position is known, and keep their tables.

Run ``uv run tools/train_tables.py``; it takes some minutes on one CPU core. It writes
``tests/data/trained-tables.npz``: a position table for each task, and one that was not trained.
``tools/calibration.py --trained`` asks what posprobe says of them.

Every row begins as independent normal numbers, as in GPT-2. Tokens are independent and uniform,
except in Markov text, so that a table can only learn what the task asks of positions. Where a task
treats some positions alike, their rows stay exchangeable: no order can come to be among them.

Runs are seeded and single-threaded: on one machine, with one set of library versions, the script
writes the same bytes every time. Another processor or version of torch may round differently.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

TABLES_PATH = Path(__file__).resolve().parent.parent / "tests/data/trained-tables.npz"
POSITIONS = 64
WIDTH = 32
VOCABULARY = 8
BATCH = 32
#: Standard deviation of embeddings before training, that of GPT-2 and BERT.
INITIAL_SD = 0.02
LEARNING_RATE = 3e-3
CLIP_NORM = 1.0
#: Positions to either side that the neighbourhood task looks at.
REACH = 5
#: Target that the loss leaves out, PyTorch's default.
IGNORED = -100
#: Steps whose mean loss is reported.
REPORTED_STEPS = 20


@dataclass(frozen=True)
class Task:
    """What a model learns: its targets by position, and how it is trained."""

    targets: Callable[[torch.Tensor], torch.Tensor]
    steps: int = 600
    weight_decay: float = 0.01
    layers: int = 1
    heads: int = 1
    positions: int = POSITIONS
    is_language: bool = False


def repeat_positions(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return a value for each position as the target of every context."""
    return values[: tokens.shape[1]].expand(len(tokens), -1)


def previous_tokens(tokens: torch.Tensor) -> torch.Tensor:
    """Return the token before each position."""
    targets = torch.full_like(tokens, IGNORED)
    targets[:, 1:] = tokens[:, :-1]
    return targets


def next_tokens(tokens: torch.Tensor) -> torch.Tensor:
    """Return the token after each position."""
    targets = torch.full_like(tokens, IGNORED)
    targets[:, :-1] = tokens[:, 1:]
    return targets


def first_tokens(tokens: torch.Tensor) -> torch.Tensor:
    """Return the first token for every later position."""
    targets = tokens[:, :1].repeat(1, tokens.shape[1])
    targets[:, 0] = IGNORED
    return targets


def is_upper(tokens: torch.Tensor) -> torch.Tensor:
    """Return 1 for tokens of the upper half of the vocabulary, and 0 for the others."""
    return (tokens >= VOCABULARY // 2).float()


def majority(tokens: torch.Tensor) -> torch.Tensor:
    """Return for all positions which half of the vocabulary most tokens of the context are of."""
    targets = (is_upper(tokens).mean(dim=1, keepdim=True) > 0.5).long()
    return targets.expand(-1, tokens.shape[1])


def local_majority(tokens: torch.Tensor) -> torch.Tensor:
    """Return which half of the vocabulary most tokens around each position are of."""
    targets = torch.full_like(tokens, IGNORED)
    windows = is_upper(tokens).unfold(1, 2 * REACH + 1, 1)
    targets[:, REACH:-REACH] = (windows.mean(dim=-1) > 0.5).long()
    return targets


INDEX = torch.arange(POSITIONS)
TASKS = {
    "previous-token": Task(previous_tokens, steps=1500),
    "neighbourhood": Task(local_majority, steps=2000),
    "reversal": Task(lambda tokens: tokens.flip(1), steps=2000),
    "parity": Task(lambda tokens: repeat_positions(INDEX % 2, tokens), steps=300),
    "modulo-8": Task(lambda tokens: repeat_positions(INDEX % 8, tokens), steps=300),
    "halves": Task(
        lambda tokens: repeat_positions(INDEX * 2 // POSITIONS, tokens), steps=300
    ),
    "index": Task(
        lambda tokens: repeat_positions(INDEX / (POSITIONS - 1), tokens), steps=300
    ),
    "first-token": Task(first_tokens),
    "bag": Task(majority, weight_decay=0.0),
    "bag-decay": Task(majority, weight_decay=0.5, heads=2),
    "first-forty": Task(previous_tokens, steps=1500, weight_decay=0.0, positions=40),
    "markov-text": Task(
        next_tokens, steps=2000, weight_decay=0.1, layers=2, heads=2, is_language=True
    ),
}


class TinyTransformer(nn.Module):
    """A transformer with a learned position table."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        nn.init.normal_(self.tokens.weight, std=INITIAL_SD)
        nn.init.normal_(self.positions.weight, std=INITIAL_SD)
        layer = nn.TransformerEncoderLayer(
            WIDTH, task.heads, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, task.layers, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.is_causal = task.is_language

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return outputs ``[contexts, positions, vocabulary]``."""
        n = tokens.shape[1]
        hidden_states = self.tokens(tokens) + self.positions.weight[:n]
        mask = (
            nn.Transformer.generate_square_subsequent_mask(n) if self.is_causal else None
        )
        hidden_states = self.layers(hidden_states, mask=mask, is_causal=self.is_causal)
        outputs: torch.Tensor = self.head(hidden_states)
        return outputs


def draw_text(chain: torch.Tensor, positions: int) -> torch.Tensor:
    """Draw contexts in which the two tokens before decide the chances of the next."""
    tokens = torch.randint(VOCABULARY, (BATCH, positions))
    for t in range(2, positions):
        chances = chain[tokens[:, t - 2], tokens[:, t - 1]]
        tokens[:, t] = torch.multinomial(chances, 1)[:, 0]
    return tokens


def target_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of numbers, or the cross-entropy of classes in nats."""
    if targets.is_floating_point():
        return nn.functional.mse_loss(outputs[..., 0], targets)
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def train(model: TinyTransformer, task: Task) -> tuple[float, float]:
    """Teach the task, and return the mean losses of the first and of the last steps."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=task.weight_decay
    )
    chain = torch.softmax(2 * torch.randn(VOCABULARY, VOCABULARY, VOCABULARY), dim=-1)
    losses = []
    for _ in range(task.steps):
        tokens = (
            draw_text(chain, task.positions)
            if task.is_language
            else torch.randint(VOCABULARY, (BATCH, task.positions))
        )
        loss = target_loss(model(tokens), task.targets(tokens))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        losses.append(loss.item())
    if task.is_language:
        entropy = -(chain * chain.log()).sum(dim=-1).mean()
        print(f"the text has about {entropy:.3f} nats per token", file=sys.stderr)
    first_loss, last_loss = (
        np.mean(losses[:REPORTED_STEPS]),
        np.mean(losses[-REPORTED_STEPS:]),
    )
    return float(first_loss), float(last_loss)


def read_table(model: TinyTransformer) -> np.ndarray:
    """Return the position table in half precision, ``[positions, width]``."""
    return model.positions.weight.detach().numpy().astype(np.float16)


def main() -> None:
    """Train all models, print their losses, and write the tables."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--out", type=Path, default=TABLES_PATH, help="file to write")
    parser.add_argument(
        "--task", choices=TASKS, action="append", help="train this one only"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(len(TASKS))
    tables = {"untrained": read_table(TinyTransformer(TASKS["bag"]))}
    for seed, (name, task) in enumerate(TASKS.items()):
        if options.task and name not in options.task:
            continue
        torch.manual_seed(seed)
        started = time.monotonic()
        model = TinyTransformer(task)
        first_loss, last_loss = train(model, task)
        tables[name] = read_table(model)
        seconds = time.monotonic() - started
        print(
            f"{name}: loss {first_loss:.3f} to {last_loss:.4f}, "
            f"{task.steps} steps, {seconds:.0f} s",
            flush=True,
        )
    np.savez_compressed(options.out, allow_pickle=False, **tables)


if __name__ == "__main__":
    main()
