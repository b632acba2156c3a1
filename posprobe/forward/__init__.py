"""Running a model: what position does to hidden states and attention.

PyTorch, transformers and timm are imported on first use; they are the extra ``models``.
"""

from posprobe.forward.attend import attend
from posprobe.forward.blank import blank_images
from posprobe.forward.contexts import (
    image_files,
    random_images,
    random_tokens,
    repeated_tokens,
    text_windows,
)
from posprobe.forward.decompose import decompose
from posprobe.forward.explain import explanations
from posprobe.forward.heads import measure_heads
from posprobe.forward.models import load_model, load_preparation, load_tokenizer
from posprobe.forward.permute import permutation_effect
from posprobe.forward.shift import phase_shift
from posprobe.forward.substitute import substitution_effect

__all__ = [
    "attend",
    "blank_images",
    "decompose",
    "explanations",
    "image_files",
    "load_model",
    "load_preparation",
    "load_tokenizer",
    "measure_heads",
    "permutation_effect",
    "phase_shift",
    "random_images",
    "random_tokens",
    "repeated_tokens",
    "substitution_effect",
    "text_windows",
]
