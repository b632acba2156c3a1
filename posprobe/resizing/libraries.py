"""What timm and transformers do to a grid of patches: called here, so that the bits are theirs.

The two differ even where a grid grows. timm filters (``antialias=True``), for which PyTorch takes
the cubic kernel with a = -0.5; most models of transformers do not, and take the one with -0.75.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import MissingExtra, UsageError
from posprobe.progress import importing

if TYPE_CHECKING:
    from posprobe.layouts import Grid
    from posprobe.tables import PositionTable

Values = NDArray[np.floating[Any]]

#: Families whose embedding module interpolates by itself: module, class, configuration.
MODULES: Mapping[str, tuple[str, str, str]] = {
    "vit": ("vit.modeling_vit", "ViTEmbeddings", "ViTConfig"),
    "deit": ("deit.modeling_deit", "DeiTEmbeddings", "DeiTConfig"),
    "clip": ("clip.modeling_clip", "CLIPVisionEmbeddings", "CLIPVisionConfig"),
    "clip-vision": ("clip.modeling_clip", "CLIPVisionEmbeddings", "CLIPVisionConfig"),
    "siglip": ("siglip.modeling_siglip", "SiglipVisionEmbeddings", "SiglipVisionConfig"),
    "siglip-vision": ("siglip.modeling_siglip", "SiglipVisionEmbeddings", "SiglipVisionConfig"),
}


def timm_resampled(table: PositionTable, old: Grid, new: Grid, mode: str) -> Values:
    """Call ``timm.layers.resample_abs_pos_embed``.

    Parameters
    ----------
    table
        Of the grid ``old``.
    mode
        ``"bicubic"`` or ``"bilinear"``.

    Returns
    -------
    ndarray
        ``[height * width, d]`` in the table's format.

    Raises
    ------
    MissingExtra
        If timm or PyTorch is not installed.
    """
    torch = _needed("torch", mode)
    _needed("timm", mode)
    from timm.layers.pos_embed import resample_abs_pos_embed

    with torch.no_grad():
        made = resample_abs_pos_embed(
            _tensor(torch, table.values, table)[None],
            new_size=[new.height, new.width],
            old_size=[old.height, old.width],
            num_prefix_tokens=0,
            interpolation=mode,
        )
    return _array(torch, made[0], table)


def transformers_interpolated(table: PositionTable, old: Grid, new: Grid) -> Values:
    """Call ``interpolate_pos_encoding`` of the table's own embedding module in transformers.

    Parameters, returned values and errors are those of `timm_resampled`; the family must be one of
    `MODULES`, and its grid a square, as the modules take for granted.

    Raises
    ------
    UsageError
        If the family has no such module, or the grid is not a square.
    """
    names = MODULES.get(table.family or "")
    if names is None:
        raise UsageError(
            f"{table.name}: 'transformers' is the interpolation of a vision model of transformers "
            f"({', '.join(MODULES)}), and this table is of the family {table.family or 'unknown'}. "
            "Use bicubic or bilinear."
        )
    if old.height != old.width:
        raise UsageError(
            f"{table.name}: transformers takes the grid for a square, and it is a {old}. Use "
            "bicubic or bilinear."
        )
    torch = _needed("torch", "transformers")
    library = _needed("transformers", "transformers")
    home, kind, settings = names
    module = import_module(f"transformers.models.{home}")
    # Patches of one pixel: sizes of images are sizes of grids, and no weights but the table matter.
    config = getattr(library, settings)(
        hidden_size=table.dim,
        num_attention_heads=1,
        image_size=old.height,
        patch_size=1,
        num_channels=1,
    )
    first = table.prefix if table.prefix is not None else table.values[:0]
    rows = _tensor(torch, np.concatenate([first, table.values]), table)
    with torch.no_grad():
        embeddings = getattr(module, kind)(config)
        stored = getattr(embeddings, "position_embeddings", None)
        if stored is None:
            embeddings.position_embedding.weight = torch.nn.Parameter(rows)
        else:
            embeddings.position_embeddings = torch.nn.Parameter(rows[None])
        # Of the patches it is given, the module asks the number only.
        patches = rows[:1].expand(1, len(first) + new.size, table.dim)
        made = embeddings.interpolate_pos_encoding(patches, new.height, new.width)
    return _array(torch, made[0, len(first) :], table)


def _needed(package: str, way: str) -> Any:
    if find_spec(package) is None:
        raise MissingExtra(
            f"--how {way} calls {package}, which is not installed. Run `uv sync --extra models`."
        )
    with importing(package):
        return import_module(package)


def _tensor(torch: Any, values: Values, table: PositionTable) -> Any:
    """Give a library the values in the format that the checkpoint stores."""
    made = torch.from_numpy(np.array(values))
    return made.to(torch.bfloat16) if table.source.dtype == "BF16" else made


def _array(torch: Any, made: Any, table: PositionTable) -> Values:
    made = made.detach()
    made = made.to(torch.float32) if made.dtype == torch.bfloat16 else made
    return np.ascontiguousarray(made.numpy(), dtype=table.values.dtype)
