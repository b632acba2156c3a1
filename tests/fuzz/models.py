"""Models for ``forward``: code that comes along, configurations that do not fit, evil weights.

Nothing of a checkpoint may run, and nobody may be asked whether it should.
"""

from __future__ import annotations

import functools
import itertools
import json
import pickle
import random
from typing import Any

import numpy as np

from fuzz import build
from fuzz.archives import zipped
from fuzz.arrays import Evil
from fuzz.case import Case

CODE = b"""import os
os.mkdir("canary")
from transformers import GPT2Config as Evil, GPT2Model as EvilModel
"""
ARGV = (
    "forward", "m", "--contexts", "2", "--length", "4", "--nulls", "0", "--device", "cpu",
    "--offline", "--out", "bundle",
)  # fmt: skip
CONFIG = {
    "model_type": "gpt2", "n_embd": 4, "n_layer": 1, "n_head": 1, "vocab_size": 8, "n_ctx": 8,
    "n_positions": 8, "architectures": ["GPT2Model"], "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
AUTOS = (
    "AutoModel", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModelForImageClassification",
    "AutoProcessor", "AutoConfig", "AutoTokenizer", "AutoModelForCausalLM", "AutoBackbone",
    "AutoFeatureExtractor",
)  # fmt: skip


def drawn(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """Write a model's tensors, of numbers drawn here."""
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()
    }
    return build.safetensors(tensors, {"format": "pt"})


@functools.cache
def _gpt2() -> bytes:
    layers = {"attn.c_attn": (4, 12), "attn.c_proj": (4, 4), "mlp.c_fc": (4, 16),
              "mlp.c_proj": (16, 4)}  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (8, 4), "wpe.weight": (8, 4)}
    shapes |= {f"h.0.{name}.weight": shape for name, shape in layers.items()}
    shapes |= {f"h.0.{name}.bias": shape[1:] for name, shape in layers.items()}
    norms = itertools.product(("h.0.ln_1", "h.0.ln_2", "ln_f"), ("weight", "bias"))
    return drawn(shapes | {".".join(name): (4,) for name in norms})


def case(
    subject: str,
    config: Any,
    *words: str,
    files: dict[str, bytes] | None = None,
    **options: Any,
) -> Case:
    content = config if isinstance(config, bytes) else build.dumps(config)
    model_files = {
        "m/config.json": content,
        "m/model.safetensors": _gpt2(),
        **(files or {}),
    }
    measurement_words = () if "--only" in words else ("--only", "states")
    return Case(
        subject,
        (*ARGV, *measurement_words, *words),
        {name: content for name, content in model_files.items() if content != b"-"},
        outputs=("bundle",),
        **options,
    )


def _sound(_: random.Random) -> Case:
    return case("sound", CONFIG, expected="accepted")


def _code(rng: random.Random) -> Case:
    """Bring code along, and name classes that would fetch it."""
    names = rng.sample(AUTOS, 3)
    kinds = (names[0], "EvilModel", "GPT2Model", "GPT2LMHeadModel", "os", "pipeline", "logging",
             "AutoModelForCausalLM", "__name__", "Trainer", "PreTrainedModel", "utils")  # fmt: skip
    evil = rng.choice(("evil.EvilModel", "evil.Evil"))
    config: dict[str, Any] = {
        **CONFIG, "architectures": [rng.choice(kinds)],
        "auto_map": dict.fromkeys((*names, "AutoConfig", "AutoModel"), evil),
    }  # fmt: skip
    other_entries: dict[str, tuple[Any, ...]] = {
        "model_type": ("evil", "bert", "", "llama", "vit"), "auto_map": build.WRONG_VALUES,
        "architectures": (*build.WRONG_VALUES, [7], [None], [["GPT2Model"]]),
    }  # fmt: skip
    for name, values in other_entries.items():
        if rng.random() < 0.25:
            config[name] = rng.choice(values)
    words = rng.choice(
        ((), (), (), (), ("--only", "states,attention"), ("--only", "shift"))
    )
    files = {"m/evil.py": CODE, "m/modeling_evil.py": CODE}
    return case(f"code beside {config['architectures']}", config, *words, files=files)


def _tokenizer(rng: random.Random) -> Case:
    """Let the tokenizer or processor bring code along."""
    place, word, value = rng.choice(
        (
            ("tokenizer_config.json", "--text", "text.txt"),
            ("preprocessor_config.json", "--images", "pictures"),
            ("processor_config.json", "--images", "pictures"),
        )
    )
    kind = rng.choice(
        (
            "Evil",
            "GPT2Tokenizer",
            "AutoTokenizer",
            "AutoImageProcessor",
            "PreTrainedTokenizerFast",
        )
    )
    bringing = {"AutoTokenizer": ["evil.Evil", "evil.Evil"], "AutoImageProcessor": "evil.Evil",
                "AutoProcessor": "evil.Evil"}  # fmt: skip
    names = dict.fromkeys(
        ("tokenizer_class", "image_processor_type", "processor_class"), kind
    )
    files = {
        f"m/{place}": build.dumps({**names, "auto_map": bringing}), "m/evil.py": CODE,
        "text.txt": b"some words to run on\n" * 20, "pictures/a.png": b"x",
        "m/tokenizer.json": rng.choice(
            (b"{}", b"-", b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}', b"[" * 9999)
        ),
    }  # fmt: skip
    auto_map = rng.choice(({}, {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}))
    return case(f"code of {place}", {**CONFIG, **auto_map}, word, value, files=files)


def _config(rng: random.Random) -> Case:
    """Give values of wrong types and sizes."""
    size = rng.choice(
        ("n_embd", "vocab_size", "n_positions", "n_head", "n_inner", "n_layer")
    )
    number = rng.choice((10**9, 10**5, 0, -1, 3, 16, 10**400, 5.0, True, "1"))
    config = rng.choice((build.mutated(rng, CONFIG), CONFIG | {size: number}))
    return case("configuration", config)


def _weights(rng: random.Random) -> Case:
    """Damage the weights, or put a pickle in their place."""
    weights, code = "m/model.safetensors", pickle.dumps(Evil(), protocol=2)
    kind, files = rng.choice(
        (
            *2 * (("damaged", {weights: build.damage(rng, _gpt2())[1]}),),
            (
                "pickle",
                {weights: b"-", "m/pytorch_model.bin": rng.choice((code, zipped(code)))},
            ),
            ("missing", {weights: rng.choice((b"-", b""))}),
            ("shape", {weights: _gpt2().replace(b"[8, 4]", b"[4, 8]", 1)}),
        )
    )
    return case(f"weights: {kind}", CONFIG, files=files)


def _timm(rng: random.Random) -> Case:
    """Name architectures of timm, with arguments of any kind."""
    values: dict[str, tuple[Any, ...]] = {
        "architecture": ("vit_tiny_patch16_224", "nope", "", "hf-hub:a/b", "local-dir:/", "../x", 7,
                         None, ["a"]),
        "num_classes": (0, 10, -1, "x"),
        "pretrained_cfg": ({}, {"input_size": [3, 32, 32]}, 7, {"url": "http://x/y"}),
        "model_args": ({}, {"nope": 1}, {"depth": 10**9}, {"img_size": 32}, {"embed_dim": -3}, [],
                       7, {"block_fn": "os.mkdir"}),
    }  # fmt: skip
    config = {name: rng.choice(choices) for name, choices in values.items()}
    return case(f"timm: {json.dumps(config)[:60]}", config)


make = build.one_of(
    (1, _sound), (6, _code), (3, _tokenizer), (4, _config), (2, _weights), (2, _timm)
)
WARM = (("figure", "norms", "sinusoidal:8x4", "-o", "f.svg"),)
#: Each would cost every fork seconds.
NEEDS = (
    "timm", "torch", "transformers.models.gpt2.modeling_gpt2",
    *(f"transformers.models.auto.{part}_auto" for part in (
        "configuration", "modeling", "tokenization", "image_processing")),
)  # fmt: skip
