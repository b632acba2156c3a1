"""Running a model: what position does to hidden states and attention.

PyTorch, transformers and timm are imported on first use; they are the extra ``models``.
"""

from posprobe.forward.attention import attention_budget as attention_budget
from posprobe.forward.averages import (
    attend as attend,
    decompose as decompose,
)
from posprobe.forward.contexts import (
    generates as generates,
    random_images as random_images,
    random_tokens as random_tokens,
    repeated_tokens as repeated_tokens,
    sampled_tokens as sampled_tokens,
)
from posprobe.forward.experiments import (
    blank_images as blank_images,
    permutation_effect as permutation_effect,
    phase_shift as phase_shift,
)
from posprobe.forward.files import (
    check_tokenizer_files as check_tokenizer_files,
    file_tokens as file_tokens,
    image_files as image_files,
    load_preparation as load_preparation,
    load_tokenizer as load_tokenizer,
    text_windows as text_windows,
)
from posprobe.forward.joint import states_and_budget as states_and_budget
from posprobe.forward.models import load_model as load_model
from posprobe.forward.places import places as places
from posprobe.forward.position_ids import positions_of as positions_of
from posprobe.forward.replacements import explanations as explanations
from posprobe.forward.rotary import (
    has_image_rotation as has_image_rotation,
    is_rotary as is_rotary,
    rotary_use as rotary_use,
)
from posprobe.forward.substitute import substitution_effect as substitution_effect
