"""Images without content: what a vision model tells apart by position alone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import cka
from posprobe.analyses.experiments import BlankImages, Pattern
from posprobe.analyses.rounding import centring_error
from posprobe.errors import InvalidTable, UsageError
from posprobe.forward.failing import refuse_overflow
from posprobe.forward.models import evaluation_mode, required
from posprobe.forward.permute import position_table
from posprobe.forward.states import find_hook_points, image_shape, positions_of, visit
from posprobe.layouts import Grid

if TYPE_CHECKING:
    import torch


def blank_images(model: Any, *, seed: int = 0, name: str | None = None) -> BlankImages:
    """Run a vision model on a constant image and on one of noise.

    Patches of a constant image differ in position alone. Those of independent pixels differ in
    content too, but in none that a grid could explain. Yang et al. 2024 (Denoising Vision
    Transformers) find the fixed pattern of both in the features of photographs.

    Parameters
    ----------
    model
        A model of transformers or timm, for images, with one learned table of positions.
    seed
        Random seed.
    name
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If the model takes no images, or has no table of its own or several.
    InvalidTable
        If hidden states are not finite.

    Examples
    --------
    This needs the extra `models`. What enters the first layer for a constant image is the table
    itself:

    >>> import posprobe as pp
    >>> blank = pp.forward.blank_images(pp.load_model("sample:digits-vit", device="cpu"))
    >>> print(f"{blank.constant[0].alignment:.2f}")
    1.00
    """
    title = name or type(model).__name__
    shape = image_shape(model)
    if shape is None:
        raise UsageError(f"{title}: it takes no images.")
    path, table = position_table(model, title)
    pt = required("torch")
    rng = np.random.default_rng(seed)
    images = np.stack([np.zeros(shape), rng.standard_normal(shape)])
    with evaluation_mode(model) as device:
        batch = pt.as_tensor(images, device=device, dtype=table.dtype)
        states: dict[int, NDArray[np.float64]] = {}

        def look(number: int, state: torch.Tensor) -> None:
            refuse_overflow(model, state, f"the hidden states at layer {number}", title)
            states[number] = state.cpu().double().numpy()

        visit(model, batch, find_hook_points(model, batch, "hidden_states"), "hidden_states", look)
        grid = positions_of(model, batch, states[0].shape[1])
    if not isinstance(grid, Grid):
        raise UsageError(f"{title}: its patches have no grid.")
    rows = table.detach().cpu().double().numpy()
    rows = rows.reshape(-1, rows.shape[-1])[-grid.size :]
    constant, noise = (
        {
            number: _pattern(state[image, -grid.size :], rows, grid)
            for number, state in sorted(states.items())
        }
        for image in range(2)
    )
    return BlankImages(constant, noise, layout=grid, seed=seed, table=path)


def _pattern(states: NDArray[np.float64], rows: NDArray[np.float64], grid: Grid) -> Pattern:
    away = states - states.mean(axis=0)
    norms = np.linalg.norm(away, axis=1)
    power = float((states**2).sum())
    # Models compute in single precision or less.
    error = centring_error(1.0, len(states), float(np.finfo(np.float32).eps))
    varies = bool(power) and float((away**2).sum()) > error**2 * power
    alignment = closeness = None
    if varies and len(rows) == len(states) and len(rows) > 3:
        table = rows - rows.mean(axis=0)
        lengths = np.linalg.norm(table, axis=1) * norms
        if table.shape == away.shape and (lengths > 0).all():
            alignment = float(((table * away).sum(axis=1) / lengths).mean())
        with suppress(InvalidTable):  # the table is constant, or all its rows are equally far
            closeness = cka(states, rows)
    return Pattern(
        share=float((away**2).sum()) / power if power else None,
        alignment=alignment,
        cka=closeness,
        norms=norms.reshape(grid.height, grid.width),
    )
