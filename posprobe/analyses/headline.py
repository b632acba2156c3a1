"""The headline numbers of a table, cheaply: what is asked of every surrogate.

The definitions are those of the analyses, and the tests hold both to the same values. Here one Gram
matrix serves all of them, in float32, and leading components come from a block Krylov iteration, so
that twenty surrogates cost no more than one complete analysis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.similarity import by_displacement, monotone_fraction, offset_numbers
from posprobe.analyses.spectrum import EDGE, MIN_LENGTH
from posprobe.table import Grid, Layout

#: Steps of the block Krylov iteration: leading eigenvalues within 0.3 % even of a flat spectrum.
STEPS = 6


@dataclass(frozen=True, eq=False)
class Ruler:
    """What all tables of one shape share.

    Parameters
    ----------
    layout
        Of the positions.
    count
        ``[2h - 1, 2w - 1]``: number of pairs at each displacement.
    window
        ``[n, 1]`` float32: the spectrum's taper.
    """

    layout: Layout
    count: NDArray[np.float64]
    window: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width; a sequence has height 1."""
        if isinstance(self.layout, Grid):
            return self.layout.height, self.layout.width
        return 1, self.layout.length


def ruler(layout: Layout) -> Ruler:
    """Prepare what all tables of one shape share."""
    height, width = (
        (layout.height, layout.width) if isinstance(layout, Grid) else (1, layout.length)
    )
    down, right = np.mgrid[1 - height : height, 1 - width : width]
    count = ((height - np.abs(down)) * (width - np.abs(right))).astype(np.float64)
    return Ruler(layout, count, np.hanning(layout.size).astype(np.float32)[:, None])


def headline(values: NDArray[np.floating[Any]], shared: Ruler) -> dict[str, float | None]:
    """Compute the headline numbers of one table.

    Parameters
    ----------
    values
        ``[n, d]``; computed in float32.
    shared
        For the table's layout.

    Returns
    -------
    dict
        Numbers by their key path in ``analysis.json``; None where undefined.
    """
    table = np.ascontiguousarray(values, dtype=np.float32)
    table = table / np.float32(np.abs(table).max() or 1.0)
    gram = table @ table.T
    mean = gram.mean(axis=1)
    centered = gram - mean[:, None] - mean[None, :] + mean.mean()
    numbers = {
        **_similarity("raw", gram, shared),
        **_similarity("centered", centered, shared),
        **_components(centered),
        **_spectrum(table - table.mean(axis=0), shared),
    }
    return {key: None if value is None else float(value) for key, value in numbers.items()}


def _similarity(
    variant: str, gram: NDArray[np.float32], shared: Ruler
) -> dict[str, float | None]:
    height, width = shared.shape
    length = np.sqrt(np.maximum(np.diagonal(gram), 0))
    inverse = np.divide(1, length, out=np.zeros_like(length), where=length > 1e-6 * length.max())
    cosine = gram * inverse[:, None] * inverse[None, :]
    np.fill_diagonal(cosine, 1)
    flat = cosine.ravel()
    numbers = offset_numbers(
        by_displacement(cosine, height, width, np),
        shared.count,
        float(np.dot(flat, flat)) - len(cosine),
        height,
        width,
    )
    prefix = f"similarity.{variant}."
    found = {prefix + name: value for name, value in numbers.items()}
    if variant == "raw":
        found[prefix + "monotone_fraction"] = monotone_fraction(cosine, height, width)
    return found


def _components(gram: NDArray[np.float32]) -> dict[str, float | None]:
    total = float(np.trace(gram, dtype=np.float64))
    flat = gram.ravel()
    if total <= 1e-6 * len(gram):
        return dict.fromkeys(("pca.top3", "pca.stable_rank", "pca.participation_ratio"))
    leading = leading_components(gram, 3)[0]
    return {
        "pca.top3": float(leading[:3].sum()) / total,
        "pca.stable_rank": total / float(leading[0]),
        "pca.participation_ratio": total**2 / float(np.dot(flat, flat)),
    }


def leading_components(
    gram: NDArray[np.float32], count: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the leading eigenvalues ``[k]`` and eigenvectors ``[n, k]`` of a Gram matrix.

    Block Krylov iteration (Musco & Musco 2015) from a fixed start, so that it is repeatable.
    """
    n = len(gram)
    if n <= 4 * (count + 8):
        eigenvalues, vectors = np.linalg.eigh(gram)
        return eigenvalues[::-1][:count], vectors[:, ::-1][:, :count]
    block = np.random.default_rng(0).standard_normal((n, count + 8), dtype=np.float32)
    blocks = []
    steps = min(STEPS, n // (count + 8))
    for _ in range(steps):
        block = np.linalg.qr(gram @ block)[0]
        blocks.append(block)
    basis = np.linalg.qr(np.concatenate(blocks, axis=1))[0]
    eigenvalues, vectors = np.linalg.eigh(basis.T @ (gram @ basis))
    return eigenvalues[::-1][:count], basis @ vectors[:, ::-1][:, :count]


def _spectrum(centered: NDArray[np.float32], shared: Ruler) -> dict[str, float | None]:
    nothing: dict[str, float | None] = {"spectrum.entropy": None, "spectrum.edge_frequency": None}
    n = len(centered)
    if isinstance(shared.layout, Grid) or n < MIN_LENGTH:
        return nothing
    line = (np.arange(n, dtype=np.float32) - np.float32((n - 1) / 2))[:, None]
    rest = centered - line * (line.T @ centered / float((line**2).sum()))
    power = (np.abs(np.fft.rfft(rest * shared.window, axis=0)) ** 2).sum(axis=1, dtype=np.float64)
    power[1 : (n + 1) // 2] *= 2
    if power.sum() <= 0:
        return nothing
    share = power / power.sum()
    positive = share[share > 0]
    return {
        "spectrum.entropy": -(positive * np.log(positive)).sum() / np.log(len(share)),
        "spectrum.edge_frequency": np.searchsorted(np.cumsum(share), EDGE) / n,
    }
