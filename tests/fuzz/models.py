"""Models for ``forward``: code that comes along, configurations that do not fit, evil weights.

Nothing of a checkpoint may run, and nobody may be asked whether it should.
"""

from __future__ import annotations

import functools
import io
import json
import pickle
import random
from typing import Any

import numpy as np

from fuzz import build
from fuzz.arrays import Evil
from fuzz.case import Case

CODE = b"""import os
os.mkdir("canary")
from transformers import GPT2Config as Evil, GPT2Model as EvilModel
"""
ARGV = (
    "forward",
    "m",
    "--contexts",
    "2",
    "--length",
    "4",
    "--nulls",
    "0",
    "--device",
    "cpu",
    "--offline",
    "--out",
    "bundle",
)
CONFIG = {
    "model_type": "gpt2",
    "n_embd": 4,
    "n_layer": 1,
    "n_head": 1,
    "vocab_size": 8,
    "n_positions": 8,
    "n_ctx": 8,
    "architectures": ["GPT2Model"],
    "bos_token_id": 0,
    "eos_token_id": 0,
}
AUTOS = (
    "AutoModel",
    "AutoModelForMaskedLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForImageClassification",
    "AutoProcessor",
    "AutoConfig",
    "AutoTokenizer",
    "AutoModelForCausalLM",
    "AutoBackbone",
    "AutoFeatureExtractor",
)


def make(rng: random.Random) -> Case:
    """Make one model and run it."""
    return build.pick(
        rng, (1, _sound), (6, _code), (3, _tokenizer), (4, _config), (2, _weights), (2, _timm)
    )(rng)


@functools.cache
def _gpt2() -> bytes:
    rng = np.random.default_rng(0)
    shapes = {
        "wte.weight": (8, 4),
        "wpe.weight": (8, 4),
        "h.0.ln_1.weight": (4,),
        "h.0.ln_1.bias": (4,),
        "h.0.attn.c_attn.weight": (4, 12),
        "h.0.attn.c_attn.bias": (12,),
        "h.0.attn.c_proj.weight": (4, 4),
        "h.0.attn.c_proj.bias": (4,),
        "h.0.ln_2.weight": (4,),
        "h.0.ln_2.bias": (4,),
        "h.0.mlp.c_fc.weight": (4, 16),
        "h.0.mlp.c_fc.bias": (16,),
        "h.0.mlp.c_proj.weight": (16, 4),
        "h.0.mlp.c_proj.bias": (4,),
        "ln_f.weight": (4,),
        "ln_f.bias": (4,),
    }
    tensors = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    return build.safetensors(tensors, {"format": "pt"})


def case(
    what: str, config: Any, *words: str, files: dict[str, bytes] | None = None, **more: Any
) -> Case:
    content = config if isinstance(config, bytes) else build.dumps(config)
    given = {"m/config.json": content, "m/model.safetensors": _gpt2(), **(files or {})}
    only = () if "--only" in words else ("--only", "states")
    return Case(
        what,
        (*ARGV, *only, *words),
        {name: content for name, content in given.items() if content != b"-"},
        outputs=("bundle",),
        **more,
    )


def _sound(_: random.Random) -> Case:
    return case("sound", CONFIG, expected="accepted")


def _code(rng: random.Random) -> Case:
    """Bring code along, and name classes that would fetch it."""
    names = rng.sample(AUTOS, 3)
    config: dict[str, Any] = {
        **CONFIG,
        "architectures": [
            rng.choice(
                (
                    names[0],
                    "EvilModel",
                    "GPT2Model",
                    "GPT2LMHeadModel",
                    "os",
                    "pipeline",
                    "logging",
                    "AutoModelForCausalLM",
                    "__name__",
                    "Trainer",
                    "PreTrainedModel",
                    "utils",
                )
            )
        ],
        "auto_map": {
            name: f"evil.{rng.choice(('EvilModel', 'Evil'))}"
            for name in (*names, "AutoConfig", "AutoModel")
        },
    }
    if rng.random() < 0.4:
        config["model_type"] = rng.choice(("evil", "bert", "", "llama", "vit"))
    if rng.random() < 0.2:
        config["auto_map"] = rng.choice(build.WRONG)
    if rng.random() < 0.2:
        config["architectures"] = rng.choice((*build.WRONG, [7], [None], [["GPT2Model"]]))
    words = rng.choice(
        ((), (), ("--only", "heads"), ("--only", "states,attention"), ("--only", "order"))
    )
    return case(
        f"code beside {config['architectures']}",
        config,
        *words,
        files={"m/evil.py": CODE, "m/modeling_evil.py": CODE},
    )


def _tokenizer(rng: random.Random) -> Case:
    """Let the tokenizer or processor bring code along."""
    place, word = rng.choice(
        (
            ("tokenizer_config.json", "--text"),
            ("preprocessor_config.json", "--images"),
            ("processor_config.json", "--images"),
        )
    )
    kind = rng.choice(
        ("Evil", "GPT2Tokenizer", "AutoTokenizer", "AutoImageProcessor", "PreTrainedTokenizerFast")
    )
    told = {
        "tokenizer_class": kind,
        "image_processor_type": kind,
        "processor_class": kind,
        "auto_map": {
            "AutoTokenizer": ["evil.Evil", "evil.Evil"],
            "AutoImageProcessor": "evil.Evil",
            "AutoProcessor": "evil.Evil",
        },
    }
    files = {
        f"m/{place}": build.dumps(told),
        "m/evil.py": CODE,
        "text.txt": b"some words to run on\n" * 20,
        "pictures/a.png": b"x",
        "m/tokenizer.json": rng.choice(
            (b"{}", b"-", b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}', b"[" * 9999)
        ),
    }
    config = (
        {**CONFIG, "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
        if rng.random() < 0.5
        else CONFIG
    )
    return case(
        f"code of {place}",
        config,
        word,
        "text.txt" if word == "--text" else "pictures",
        files=files,
    )


def _config(rng: random.Random) -> Case:
    """Give values of wrong types and sizes."""
    config: Any = dict(CONFIG)
    kind = rng.choice(("mutated", "mutated", "layers", "size", "deep"))
    if kind == "mutated":
        config = build.mutated(rng, config)
    elif kind == "layers":
        config[rng.choice(("n_layer", "num_hidden_layers"))] = rng.choice(
            (10**9, 0, -1, 10**400, 1.5, "1", 10**5)
        )
    elif kind == "size":
        config[rng.choice(("n_embd", "vocab_size", "n_positions", "n_head", "n_inner"))] = (
            rng.choice((10**9, 0, -1, 3, 16, 10**400, 5.0, True))
        )
    else:
        config = b'{"a":' * 5000
    return case(f"configuration: {kind}", config)


def _weights(rng: random.Random) -> Case:
    """Damage the weights, or put a pickle in their place."""
    kind = rng.choice(("damaged", "pickle", "zip", "missing", "shape"))
    files: dict[str, bytes] = {}
    if kind == "damaged":
        files["m/model.safetensors"] = build.damage(rng, _gpt2())[1]
    elif kind in ("pickle", "zip"):
        content = pickle.dumps(Evil(), protocol=2)
        if kind == "zip":
            stream = io.BytesIO()
            with build.Archive(stream, "w") as archive:
                archive.writestr("archive/data.pkl", content)
                archive.writestr("archive/version", b"3\n")
            content = stream.getvalue()
        files = {"m/model.safetensors": b"-", "m/pytorch_model.bin": content}
    elif kind == "missing":
        files = {"m/model.safetensors": rng.choice((b"-", b""))}
    else:
        files["m/model.safetensors"] = _gpt2().replace(b"[8, 4]", b"[4, 8]", 1)
    return case(f"weights: {kind}", CONFIG, files=files)


def _timm(rng: random.Random) -> Case:
    """Name architectures of timm, with arguments of any kind."""
    config = {
        "architecture": rng.choice(
            (
                "vit_tiny_patch16_224",
                "nope",
                "",
                "hf-hub:a/b",
                "local-dir:/",
                "../x",
                7,
                None,
                ["a"],
            )
        ),
        "num_classes": rng.choice((0, 10, -1, "x")),
        "pretrained_cfg": rng.choice(({}, {"input_size": [3, 32, 32]}, 7, {"url": "http://x/y"})),
        "model_args": rng.choice(
            (
                {},
                {"nope": 1},
                {"depth": 10**9},
                {"img_size": 32},
                {"embed_dim": -3},
                [],
                7,
                {"block_fn": "os.mkdir"},
            )
        ),
    }
    return case(f"timm: {json.dumps(config)[:60]}", config)


WARM: tuple[tuple[str, ...], ...] = ()


def prepare() -> None:
    """Import what every case needs; each import would cost every fork seconds."""
    import timm
    import torch
    import transformers

    torch.set_num_threads(1)
    assert timm
    for name in (
        "AutoConfig",
        "AutoModel",
        "AutoTokenizer",
        "AutoImageProcessor",
        "GPT2Model",
        "GPT2LMHeadModel",
        "GPT2Config",
    ):
        getattr(transformers, name)
