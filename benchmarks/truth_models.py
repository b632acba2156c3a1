"""Build every model that transformers registers and every pretrained architecture of timm.

Models are built on PyTorch's meta device: names, shapes and code are real, no memory is taken.
What `save_pretrained` (or timm's hub helper) would write is derived from the built model.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
import transformers
from timm.models._hub import save_config_for_hf
from torch import nn
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict
from transformers.models.auto import modeling_auto

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
}


@dataclass(frozen=True)
class Built:
    """A model on the meta device, with what its checkpoint would hold.

    ``stored`` lists shape and dtype by the name in the file; ``stored_name`` leads from the name
    in the model (parameters and persistent buffers) to the name in the file.
    """

    library: str
    name: str
    model: nn.Module
    config: dict[str, Any]
    stored: dict[str, tuple[tuple[int, ...], str]]
    stored_name: dict[str, str]


@dataclass(frozen=True)
class NotBuilt:
    """A model type or architecture that is not tested, and why."""

    library: str
    name: str
    reason: str


def quiet() -> None:
    """Silence what the libraries say while hundreds of untrained models are built."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(50)


# transformers -------------------------------------------------------------------------------------

#: Auto mappings in the order in which a class is looked for.
MAPPINGS = [
    "MODEL_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING",
]


#: Arguments for configurations whose defaults build no model; their values change no scheme.
REPAIRS: dict[str, dict[str, Any]] = {
    "autoformer": {"prediction_length": 24},
    "aya_vision": {
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 1152,
            "num_attention_heads": 16,
            "patch_size": 14,
            "image_size": 384,
        }
    },
    "chameleon": {"vocabulary_map": {"<image>": 8711}},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0}
            for kind in ("full_attention", "sliding_attention")
        }
    },
    "dbrx": {"attn_config": {"rope_theta": 10000.0}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense"] + ["sparse"] * 31},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2},
    "emu3": {"vocabulary_map": {"<image>": 8711}},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "1/2"},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl": {"text_config": {"head_dim": 128}},
    "hunyuan_vl_text": {"head_dim": 128},
    "informer": {"prediction_length": 24},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "ministral": {"head_dim": 128},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 8},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 2048,
        "indexer_compress_ratio": 16,
    },
    "time_series_transformer": {"prediction_length": 24},
    "timm_backbone": {"backbone": "vit_tiny_patch16_224"},
    "vitmatte": {"fusion_hidden_sizes": [256, 128, 64, 32]},
}
#: Model types whose first auto class takes another configuration than their own.
CLASSES = {
    "musicgen": "MusicgenForConditionalGeneration",
    "musicgen_melody": "MusicgenMelodyForConditionalGeneration",
}


def model_class(config_class: type, heads: bool) -> type | None:
    """Find the class that is built from a configuration: by the auto mappings, else by its code."""
    candidates = sorted(
        name
        for name in vars(modeling_auto)
        if name.endswith("_MAPPING")
        and name.startswith("MODEL_")
        and name not in MAPPINGS
    )
    order = (
        [*MAPPINGS[1:], *candidates, MAPPINGS[0]] if heads else [*MAPPINGS, *candidates]
    )
    for name in order:
        mapping = getattr(modeling_auto, name)
        if config_class in mapping:
            mapped: Any = mapping[config_class]
            class_found: type = mapped[0] if isinstance(mapped, tuple | list) else mapped
            return class_found
    return by_code(config_class)


def by_code(config_class: type) -> type | None:
    """Find a class that names this configuration as its own in the same folder of transformers."""
    folder = config_class.__module__.rpartition(".")[0]
    package = importlib.import_module(folder)
    classes: list[type] = []
    for path in sorted(Path(str(package.__file__)).parent.glob("modeling_*.py")):
        module = importlib.import_module(f"{folder}.{path.stem}")
        classes += [
            value
            for value in vars(module).values()
            if inspect.isclass(value)
            and issubclass(value, transformers.PreTrainedModel)
            and value.__module__ == module.__name__
            and value.config_class is config_class
            and not value.__name__.endswith("PreTrainedModel")
        ]
    # The bare model comes before those with a head, and is the one with the shortest name.
    classes.sort(key=lambda c: ("For" in c.__name__, len(c.__name__)))
    return classes[0] if classes else None


def transformers_models(
    is_wanted: Callable[[str], bool], heads: bool = False
) -> Iterator[Built | NotBuilt]:
    """Build one model per registered model type, with its default configuration where that works.

    Parameters
    ----------
    is_wanted
        Which model types to build.
    heads
        Whether to take the class with a head where there is one, instead of the bare model.
    """
    for name, config_class in transformers.CONFIG_MAPPING.items():
        if not is_wanted(name):
            continue
        try:
            config = config_class(**REPAIRS.get(name, {}))
            class_found = model_class(config_class, heads)
            if name in CLASSES:
                class_found = getattr(transformers, CLASSES[name])
            if class_found is None:
                yield NotBuilt(
                    "transformers", name, "transformers has no model class for it"
                )
                continue
            with torch.device("meta"):
                model = class_found(config)
            yield as_saved(name, model)
        except Exception as error:  # noqa: BLE001 - whatever a library raises is the reason
            text = " ".join(str(error).split())[:200]
            yield NotBuilt("transformers", name, f"{type(error).__name__}: {text}")


def as_saved(name: str, model: Any) -> Built:
    """Say what `save_pretrained` would write, following its steps on meta tensors."""
    config = model.config
    config.architectures = [type(model).__name__]
    config.dtype = "float32"
    state = dict(model.state_dict())
    for key in model._keys_to_ignore_on_save or ():
        state.pop(key, None)
    old_state = dict(state)
    state = dict(remove_tied_weights_from_state_dict(state, model))
    saved = dict(revert_weight_conversion(model, dict(state)))
    by_tensor = {id(value): key for key, value in saved.items()}
    stored_name = {
        key: by_tensor.get(id(value), key if key in saved else "")
        for key, value in old_state.items()
    }
    return Built(
        "transformers",
        name,
        model,
        json.loads(config.to_json_string(use_diff=True)),
        {key: (tuple(value.shape), DTYPES[value.dtype]) for key, value in saved.items()},
        {key: value for key, value in stored_name.items() if value},
    )


# timm ---------------------------------------------------------------------------------------------


#: Gates over channels or pixels that carry the word attention, and convolutional networks' own.
GATES = re.compile(
    r"Split|SelectiveKernel|Channel|Spatial|Bilinear|^Bat|Eca|Ceca|GlobalContext"
)


def attends(model: nn.Module) -> bool:
    """Whether a module of the model is an attention over places, by its class name."""
    return any(
        re.search(r"[Aa]ttention|Attn|^GPSA|Lambda|MHSA|^Xca|^XCA", name)
        and not GATES.search(name)
        for name in {type(module).__name__ for module in model.modules()}
    )


def timm_models(is_wanted: Callable[[str], bool]) -> Iterator[Built | NotBuilt]:
    """Build one model per pretrained architecture, with the config of its first weights."""
    names: dict[str, str] = {}
    for full_name in timm.list_pretrained():
        names.setdefault(full_name.split(".")[0], full_name)
    for name, full_name in names.items():
        if not is_wanted(name):
            continue
        try:
            with torch.device("meta"):
                model = timm.create_model(full_name, pretrained=False)
            if not attends(model):
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "config.json"
                save_config_for_hf(model, str(path))
                config = json.loads(path.read_text())
        except Exception as error:  # noqa: BLE001 - whatever a library raises is the reason
            text = " ".join(str(error).split())[:200]
            yield NotBuilt("timm", name, f"{type(error).__name__}: {text}")
            continue
        state = model.state_dict()
        yield Built(
            "timm",
            name,
            model,
            config,
            {
                key: (tuple(value.shape), DTYPES[value.dtype])
                for key, value in state.items()
            },
            {key: key for key in state},
        )
