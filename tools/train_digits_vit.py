# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "matplotlib>=3.10",
#     "numpy>=2.0",
#     "safetensors>=0.5",
#     "scikit-learn>=1.6",
#     "torch>=2.6",
#     "transformers>=5.0",
# ]
# ///
"""Train the sample ``digits-vit``: a small vision transformer that learns a grid of positions.

Run ``uv run tools/train_digits_vit.py``; it takes several minutes on one CPU core. Every pixel of
scikit-learn's 8x8 digits is a patch of its own, so the position table is an 8x8 grid and a CLS row.
Nothing in the architecture knows that the grid is two-dimensional. Beside naming the digit, the
model has to fill in hidden pixels, scattered ones and whole lines; the best clues are the pixels
around them and in the same row or column, and so the table learns where they are. Digits are
turned, scaled and moved, so that strokes reach every part of the grid. The layer that fills in
pixels is dropped in the end: what ships is an ordinary ``ViTForImageClassification``.

The run is seeded and single-threaded: on one machine, with one set of library versions, it writes
the same bytes every time. Another processor or another version of torch may round differently, and
training amplifies that, so files made elsewhere agree in structure but not in every digit.
"""

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import functional
from transformers import ViTConfig, ViTForImageClassification

SAMPLES = Path(__file__).resolve().parent.parent / "posprobe" / "samples"
NAME = "digits-vit"
TENSOR = "vit.embeddings.position_embeddings"
SIDE = 8
SEED = 0
TEST_IMAGES = 360
STEPS = 6000
WARMUP = 200
BATCH = 128
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.05
TABLE_WEIGHT_DECAY = 0.2
LABEL_SMOOTHING = 0.05
FILL_WEIGHT = 30.0  # of the squared error of hidden pixels, relative to the cross-entropy
CLIP_NORM = 3.0
# Of the images with hidden pixels: share with scattered pixels, whole rows, whole columns. Upright
# strokes tell more about a pixel than its row does, so columns are hidden more often than rows.
HIDDEN_KINDS = (0.3, 0.1, 0.6)
HIDDEN_VALUE = -1.0  # what a hidden pixel shows; ink runs from 0 to 1
WARPED = 0.7  # share of the images that are turned, scaled and moved

Split = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def load_split() -> Split:
    """Return train images, test images, train labels and test labels, ink scaled to 0..1."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, SIDE, SIDE)
    parts = train_test_split(
        images, labels, test_size=TEST_IMAGES, stratify=labels, random_state=SEED
    )
    train_x, test_x, train_y, test_y = (torch.from_numpy(part) for part in parts)
    return train_x, test_x, train_y, test_y


def uniform(count: int, limit: float) -> torch.Tensor:
    """Draw `count` numbers between -limit and limit."""
    return (torch.rand(count) * 2 - 1) * limit


def warp(images: torch.Tensor) -> torch.Tensor:
    """Turn, scale, stretch and move most of the images, each in its own way."""
    count = len(images)
    is_warped = (torch.rand(count) < WARPED).float()
    angle = uniform(count, 0.5) * is_warped
    zoom = torch.exp(uniform(count, 0.25) * is_warped)
    stretch = torch.exp(uniform(count, 0.15) * is_warped)
    # affine_grid measures the image from -1 to 1: 2 / SIDE is one pixel.
    move_x, move_y = (uniform(count, 2.5 * 2 / SIDE) * is_warped for _ in range(2))
    cos, sin = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    rows = [
        torch.stack([cos * stretch, -sin, move_x], dim=1),
        torch.stack([sin, cos / stretch, move_y], dim=1),
    ]
    grid = functional.affine_grid(
        torch.stack(rows, dim=1), list(images.shape), align_corners=False
    )
    return functional.grid_sample(images, grid, align_corners=False)


def hide_mask(images: torch.Tensor) -> torch.Tensor:
    """Choose the pixels to hide: none in a third of the images, else a share of up to 3/4."""
    count, _, height, width = images.shape
    share = (torch.rand(count, 1, 1, 1) * 1.5 - 0.5).clamp(min=0) * 0.75
    scattered, in_rows, _ = HIDDEN_KINDS
    kind = torch.rand(count, 1, 1, 1)
    by_pixel = torch.rand(count, 1, height, width)
    by_row = torch.rand(count, 1, height, 1).expand_as(by_pixel)
    by_column = torch.rand(count, 1, 1, width).expand_as(by_pixel)
    by_line = torch.where(kind < scattered + in_rows, by_row, by_column)
    return torch.where(kind < scattered, by_pixel, by_line) < share


def build(side: int = SIDE) -> ViTForImageClassification:
    """Return the untrained model for images of a side of so many pixels."""
    return ViTForImageClassification(
        ViTConfig(
            image_size=side,
            patch_size=1,
            num_channels=1,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=80,
            id2label={digit: str(digit) for digit in range(10)},
            label2id={str(digit): digit for digit in range(10)},
        )
    )


def train(
    model: ViTForImageClassification,
    images: torch.Tensor,
    labels: torch.Tensor,
    steps: int = STEPS,
    on_step: Callable[[int], None] = lambda _: None,
) -> None:
    """Teach the model to name the digit and to fill in hidden pixels, and call ``on_step``."""
    fill = torch.nn.Linear(model.config.hidden_size, 1)
    parameters = [*model.parameters(), *fill.parameters()]
    table = model.get_parameter(TENSOR)
    matrices = [p for p in parameters if p.ndim > 1 and p is not table]
    vectors = [p for p in parameters if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": WEIGHT_DECAY},
            {"params": [table], "weight_decay": TABLE_WEIGHT_DECAY},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=LEARNING_RATE,
        betas=(0.9, 0.98),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, step / WARMUP) * 0.5 * (1 + math.cos(math.pi * step / steps))
        ),
    )
    model.train()
    started = time.monotonic()
    on_step(0)
    for step in range(1, steps + 1):
        batch = torch.randint(len(images), (BATCH,))
        target = warp(images[batch])
        hidden = hide_mask(target)
        masked = target.masked_fill(hidden, HIDDEN_VALUE)
        states = model.vit(pixel_values=masked).last_hidden_state
        class_loss = functional.cross_entropy(
            model.classifier(states[:, 0]), labels[batch], label_smoothing=LABEL_SMOOTHING
        )
        filled = fill(states[:, 1:]).reshape(target.shape)
        fill_loss = functional.mse_loss(filled[hidden], target[hidden])
        optimizer.zero_grad()
        torch.autograd.backward(class_loss + FILL_WEIGHT * fill_loss)
        torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        optimizer.step()
        schedule.step()
        on_step(step)
        if step % 500 == 0:
            seconds = time.monotonic() - started
            losses = f"class {class_loss.item():.3f}, fill {fill_loss.item():.4f}"
            print(f"step {step}: {losses}, {seconds:.0f} s", file=sys.stderr)


@torch.no_grad()
def accuracy(
    model: ViTForImageClassification, images: torch.Tensor, labels: torch.Tensor
) -> float:
    """Return the share of the images, shown as they are, whose digit the model names."""
    model.train(mode=False)
    logits = model(pixel_values=images).logits
    return float((logits.argmax(dim=1) == labels).double().mean())


def centred_cosine(table: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosine of the patch rows after subtracting their mean; the CLS row is left out."""
    rows = table[0, 1:].astype(np.float64)
    rows -= rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


def structure(cosine: NDArray[np.float64]) -> dict[str, float]:
    """Return the mean cosine of neighbours and of distant pairs of patches."""
    row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
    row_distance, column_distance = (
        np.abs(np.subtract.outer(row, row)),
        np.abs(np.subtract.outer(column, column)),
    )
    distance = np.hypot(row_distance, column_distance)
    middle = (distance >= 3) & (distance <= 5)
    pairs = {
        "right_neighbour": (row_distance == 0) & (column_distance == 1),
        "lower_neighbour": (row_distance == 1) & (column_distance == 0),
        "far": distance > 4,
        "distance_3_to_5_same_row": middle & (row_distance == 0),
        "distance_3_to_5_same_column": middle & (column_distance == 0),
        "distance_3_to_5_neither": middle & (row_distance > 0) & (column_distance > 0),
    }
    return {name: round(float(cosine[mask].mean()), 4) for name, mask in pairs.items()}


def draw_mosaic(cosine: NDArray[np.float64], path: Path) -> None:
    """Draw one 8x8 tile per patch, all on one colour range."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(SIDE, SIDE, figsize=(7, 7), layout="constrained")
    for tile, values in zip(axes.flat, cosine, strict=True):
        image = tile.imshow(values.reshape(SIDE, SIDE), vmin=-1, vmax=1, cmap="viridis")
        tile.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=axes, label="cosine, centred")
    figure.savefig(path, dpi=100)


def catalogue_entry(
    weights: dict[str, NDArray[Any]], measured: dict[str, Any]
) -> dict[str, Any]:
    """Return what the catalogue says about the sample."""
    table = weights[TENSOR]
    return {
        "name": NAME,
        "title": "Digits ViT, 8x8 grid",
        "description": (
            "Small vision transformer trained for this project on scikit-learn's 8x8 digits, one "
            "patch per pixel; complete weights, so the model can be run."
        ),
        "citation": (
            "Architecture: Dosovitskiy et al. 2020, arXiv:2010.11929; "
            "data: Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits, UCI, "
            "doi:10.24432/C50P49"
        ),
        "licence": "Apache-2.0",
        "tensor": TENSOR,
        "shape": list(table.shape),
        "dtype": str(table.dtype),
        "tensor_sha256": hashlib.sha256(table.tobytes()).hexdigest(),
        "registry": None,
        "package": None,
        "version": None,
        "archive": None,
        "archive_sha256": None,
        "member": None,
        "member_tensor": None,
        "member_sha256": None,
        "training": {
            "script": "tools/train_digits_vit.py",
            "data": (
                "scikit-learn load_digits (1797 images, a copy of the test part of the UCI set), "
                f"split at random within each class with seed {SEED}: {1797 - TEST_IMAGES} train, "
                f"{TEST_IMAGES} test; writers may appear on both sides"
            ),
            "input": "pixel_values of shape [batch, 1, 8, 8], pixels divided by 16, nothing else",
            "task": (
                "cross-entropy of the digit (label smoothing "
                f"{LABEL_SMOOTHING}) + {FILL_WEIGHT:g} x mean squared error of hidden pixels, "
                f"which show {HIDDEN_VALUE:g}: none in a third of the images, else up to 3/4, as "
                f"scattered pixels ({HIDDEN_KINDS[0]:.0%} of those images), whole rows "
                f"({HIDDEN_KINDS[1]:.0%}) or whole columns ({HIDDEN_KINDS[2]:.0%}); the "
                "layer that fills them in is not part of the shipped weights"
            ),
            "augmentation": (
                f"{WARPED:.0%} of the images: rotation up to 0.5 rad, scale exp(+-0.25), aspect "
                "exp(+-0.15) either way, shift up to 2.5 pixels"
            ),
            "optimiser": (
                f"AdamW, {STEPS} steps of {BATCH} images, learning rate {LEARNING_RATE:g} with "
                f"{WARMUP} warm-up steps and cosine decay, weight decay {WEIGHT_DECAY:g} on "
                f"matrices and {TABLE_WEIGHT_DECAY:g} on the position table"
            ),
            "seed": SEED,
            "parameters": sum(values.size for values in weights.values()),
            "measured": measured,
            "measured_how": (
                "test_accuracy: unchanged test images after the last step; they were also looked "
                "at while the recipe was chosen. centred_cosine: means over pairs of the 64 patch "
                "rows after subtracting their mean, CLS row left out; far is more than 4 patches "
                "apart in a straight line"
            ),
        },
    }


def main() -> None:
    """Train, measure and write the sample."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--samples", type=Path, default=SAMPLES, help="folder to write into"
    )
    parser.add_argument(
        "--mosaic", type=Path, help="also draw the similarity mosaic into this file"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    train_x, test_x, train_y, test_y = load_split()
    model = build()
    train(model, train_x, train_y)

    weights = {name: values.numpy() for name, values in model.state_dict().items()}
    cosine = centred_cosine(weights[TENSOR])
    measured = {
        "test_accuracy": round(accuracy(model, test_x, test_y), 4),
        "centred_cosine": structure(cosine),
    }

    folder = options.samples / NAME
    folder.mkdir(parents=True, exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    # How a picture of grey pixels from 0 to 255, ink bright on black, becomes the ink of training.
    preparation = {
        "do_normalize": False,
        "do_rescale": True,
        "do_resize": True,
        "image_processor_type": "ViTImageProcessor",
        "rescale_factor": 1 / 255,
        "resample": 2,
        "size": {"height": SIDE, "width": SIDE},
    }
    text = json.dumps(preparation, indent=2) + "\n"
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")
    content = safetensors.numpy.save(weights, metadata={"format": "pt"})
    (folder / "model.safetensors").write_bytes(content)
    catalogue = options.samples / "samples.json"
    siblings = json.loads(catalogue.read_bytes()) if catalogue.exists() else []
    entries = [entry for entry in siblings if entry["name"] != NAME]
    entries.append(catalogue_entry(weights, measured))
    text = json.dumps(entries, indent=2, ensure_ascii=False)
    catalogue.write_text(text + "\n", encoding="utf-8")
    if options.mosaic:
        draw_mosaic(cosine, options.mosaic)
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
