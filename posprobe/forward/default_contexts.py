"""Contexts of a run for which none were given: text and pictures that are installed anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidCheckpoint, UsageError, explain_errors

#: Letters of Python's documentation that give a token, at most: windows are cut to their length.
MAX_LETTERS_PER_TOKEN = 12
#: Sides of the crops of a photograph, as shares of its shorter side.
CROP_SIDES = (0.4, 1.0)


def read_documentation() -> str:
    """Return the English text that ships with Python: its language reference, some 460 kB.

    Raises
    ------
    UsageError
        If this Python has been installed without it.
    """
    subject = "Python's documentation is not installed"
    with explain_errors(UsageError, subject, "Use a text: `text=FILE`.", ImportError):
        from pydoc_data.topics import topics
    return "\n\n".join(topics.values())


def documentation_windows(tokenizer: Any, length: int, count: int) -> NDArray[np.int64]:
    """Cut windows from Python's documentation, spread over it, with special tokens around.

    Parameters
    ----------
    tokenizer
        Tokenizer of transformers, which says what special tokens stand around a text.
    length
        Tokens of a window, special ones included.
    count
        Number of windows. They overlap where the text is too short for so many.

    Returns
    -------
    NDArray
        ``[count, length]``. A window begins at a word, in the middle of the text.

    Raises
    ------
    UsageError
        If the text is not installed, or too short for such windows.
    InvalidCheckpoint
        If the tokenizer fails.
    """
    text = read_documentation()
    n_letters = min(MAX_LETTERS_PER_TOKEN * length, len(text) // 2)
    starts = np.linspace(0, len(text) - n_letters - 1, count).astype(int)
    with explain_errors(
        InvalidCheckpoint, "its tokenizer breaks off", "Use `tokens='random'`."
    ):
        windows = []
        for start in starts:
            first_word = text.index(" ", start) + 1
            piece = text[first_word : first_word + n_letters]
            # Special tokens count in the length.
            ids = tokenizer(piece, truncation=True, max_length=length)["input_ids"]
            windows.append(ids)
    if min(map(len, windows)) < length:
        raise UsageError(
            f"Python's documentation is too short for contexts of {length} tokens. Use a "
            "longer text: `text=FILE`."
        )
    return np.array(windows, dtype=np.int64)


def photograph_crops(
    preprocess: Callable[[Any], Any], count: int, *, seed: int = 0, batch_size: int = 8
) -> Iterator[NDArray[np.float32]]:
    """Yield random square crops of the two photographs that ship with scikit-learn.

    Parameters
    ----------
    preprocess
        Function that turns a Pillow picture into pixels ``[channels, h, w]`` of a model.
    count
        Number of crops.
    seed, batch_size
        Random seed, and crops at a time.

    Yields
    ------
    NDArray
        ``[b, channels, h, w]``.
    """
    from PIL import Image
    from sklearn.datasets import load_sample_images

    photographs = [Image.fromarray(image) for image in load_sample_images().images]
    rng = np.random.default_rng(seed)
    for start in range(0, count, batch_size):
        crops = []
        for index in range(start, min(start + batch_size, count)):
            photograph = photographs[index % len(photographs)]
            side = int(rng.uniform(*CROP_SIDES) * min(photograph.size))
            left, top = (
                int(rng.integers(0, size - side + 1)) for size in photograph.size
            )
            crop = photograph.crop((left, top, left + side, top + side))
            crops.append(np.asarray(preprocess(crop), np.float32))
        yield np.stack(crops)
