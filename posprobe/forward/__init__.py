"""Running a model: what position does to hidden states and attention.

PyTorch, transformers and timm are imported on first use; they are the extra ``models``.
"""

from posprobe.forward.attend import attend as attend
from posprobe.forward.blank import blank_images as blank_images
from posprobe.forward.contexts import (
    file_tokens as file_tokens,
    generates as generates,
    image_files as image_files,
    random_images as random_images,
    random_tokens as random_tokens,
    repeated_tokens as repeated_tokens,
    sampled_tokens as sampled_tokens,
    text_windows as text_windows,
)
from posprobe.forward.decompose import decompose as decompose
from posprobe.forward.explain import explanations as explanations
from posprobe.forward.heads import measure_heads as measure_heads
from posprobe.forward.models import (
    load_model as load_model,
    load_preparation as load_preparation,
    load_tokenizer as load_tokenizer,
)
from posprobe.forward.permute import permutation_effect as permutation_effect
from posprobe.forward.rotary_attention import is_rotary as is_rotary
from posprobe.forward.rotary_use import rotary_use as rotary_use
from posprobe.forward.shift import phase_shift as phase_shift
from posprobe.forward.substitute import substitution_effect as substitution_effect
