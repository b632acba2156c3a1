"""Formulas of position tables as computed by their libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
from tiny_models import hf_mae
from transformers.models.distilbert.modeling_distilbert import (
    create_sinusoidal_embeddings,
)
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.musicgen.modeling_musicgen import (
    MusicgenSinusoidalPositionalEmbedding,
)
from transformers.models.videomae.modeling_videomae import get_sinusoid_encoding_table
from transformers.models.whisper.modeling_whisper import sinusoids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


def whisper(n: int, d: int) -> Floats:
    return np.asarray(sinusoids(n, d))


def distilbert(n: int, d: int) -> Floats:
    embeddings = torch.empty(n, d)
    create_sinusoidal_embeddings(n, d, embeddings)
    return embeddings.detach().numpy()


def marian(n: int, d: int) -> Floats:
    module: Any = MarianSinusoidalPositionalEmbedding(n, d)
    return np.asarray(module.create_weight())


def musicgen(n: int, d: int) -> Floats:
    return np.asarray(MusicgenSinusoidalPositionalEmbedding.get_embedding(n, d))


def videomae(n: int, d: int) -> Floats:
    table: Any = get_sinusoid_encoding_table
    return np.asarray(table(n, d)[0])


def mae(height: int, width: int) -> Floats:
    stored = hf_mae().embeddings.position_embeddings.detach().numpy()[0, 1:]
    assert len(stored) == height * width
    return np.asarray(stored)


def timm(height: int, width: int, dim: int = 16, **options: Any) -> Floats:
    return np.asarray(build_sincos2d_pos_embed([height, width], dim, **options))
