"""Folders of several files: pipelines of diffusers, and Keras's shards; links, pipes, lists.

What a sound file of the folder holds is read by its package.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from fuzz import build
from fuzz.case import Case
from fuzz.formats import weights

CLIP = "text_model.embeddings.position_embedding.weight"
WPE = "layers/position_embedding/vars/0"
INDEX = "m/model.weights.json"


# --- diffusers ---------------------------------------------------------------------------------


def _pipeline_files(rng: random.Random) -> tuple[dict[str, Any], dict[str, bytes]]:
    index: dict[str, Any] = {
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.35.1",
        "requires_safety_checker": False, "scheduler": ["diffusers", "DDIMScheduler"],
        "safety_checker": [None, None],
    }  # fmt: skip
    files: dict[str, bytes] = {"m/scheduler/scheduler_config.json": b"{}"}
    for part, rows in (("text_encoder", 8), ("text_encoder_2", 6)):
        index[part] = ["transformers", "CLIPTextModel"]
        tensors = {CLIP: build.table(rng, rows, 4)}
        config = {"model_type": "clip_text_model", "max_position_embeddings": rows,
                  "hidden_size": 4}  # fmt: skip
        files[f"m/{part}/model.safetensors"] = build.safetensors(tensors)
        files[f"m/{part}/config.json"] = build.dumps(config)
    return index, files


def _pipeline_case(
    files: Mapping[str, bytes], subject: str, reference: str, **options: Any
) -> Case:
    is_readable = options.pop("read", True) and reference == "m#text_encoder"
    argv = (
        ("inspect", "m") if reference == "m" else ("extract", reference, "-o", "out.npy")
    )
    return Case(
        f"diffusers: {subject}", argv, files, outputs=("out.npy",),
        read=("m/text_encoder/model.safetensors", CLIP) if is_readable else None, **options,
    )  # fmt: skip


def _pipeline_sound(rng: random.Random) -> Case:
    index, files = _pipeline_files(rng)
    files["m/model_index.json"] = build.dumps(index)
    reference = rng.choice(("m#text_encoder", "m"))
    return _pipeline_case(files, "sound", reference, expected="accepted")


def _pipeline(rng: random.Random) -> Case:
    index, files = _pipeline_files(rng)
    special: dict[str, str] = {}
    reference = rng.choice(("m#text_encoder", "m#text_encoder", "m", "m#text_encoder_2"))
    kind = rng.choice(("name", "spoiled", "spoiled", "spoiled", "folder", "within", "many",
                       "foreign"))  # fmt: skip
    hostile = rng.choice(build.HOSTILE)
    sound = hostile.encode("utf-8", "replace").decode()
    read, expected = True, "any"
    match kind:
        case "name":
            index[hostile] = ["transformers", hostile]
            if (
                "\0" not in sound
                and len(sound) < 200
                and not sound.startswith(("..", "/"))
            ):
                files[f"m/{sound}/model.safetensors"] = build.safetensors(
                    {sound: build.table(rng)}
                )
                files[f"m/{sound}/config.json"] = build.dumps({"model_type": sound})
        case "within":  # a part that is a pipeline itself, or a folder of the whole
            files["m/text_encoder/model_index.json"] = build.dumps(index)
            if rng.random() < 0.5:
                special["m/text_encoder/text_encoder"] = "link ../../m"
        case "many":
            for number in range(rng.choice((70, 3000))):
                index[f"part{number}"] = ["a", "b"]
            if rng.random() < 0.3:
                tensor_file = build.safetensors({"x": build.table(rng, 2, 2)})
                files |= {
                    f"m/part{number}/model.safetensors": tensor_file
                    for number in range(65)
                }
                expected = "error"
        case "foreign":
            reference = f"m#{sound}".replace("\0", "")
    files["m/model_index.json"] = build.dumps(index)
    if kind == "spoiled":
        part = rng.choice(("model.safetensors", "config.json"))
        place = rng.choice(("m/model_index.json", f"m/text_encoder/{part}"))
        outside = build.safetensors({CLIP: build.table(rng, 8, 4)})
        kind, files, special = build.spoiled(rng, files, place, outside=outside)
        read = not special and place.endswith(".safetensors")
    elif kind == "folder":
        place, read = (
            rng.choice(("m/text_encoder", "m/text_encoder_2", "m/scheduler")),
            False,
        )
        files = {
            name: content for name, content in files.items() if not name.startswith(place)
        }
        files["outside/model.safetensors"] = build.safetensors(
            {CLIP: build.table(rng, 8, 4)}
        )
        special[place] = rng.choice((*build.SPECIAL, "link ../outside", "link ."))
    return _pipeline_case(
        files, kind, reference, expected=expected, special=special, read=read
    )


# --- Keras -------------------------------------------------------------------------------------


def _shard_files(rng: random.Random) -> tuple[dict[str, Any], dict[str, bytes]]:
    index = {
        "metadata": {"total_size": 200.0},
        "weight_map": {
            "/layers/position_embedding/vars": "model_00000.weights.h5",
            "/layers/dense/vars": ["model_00001.weights.h5"],
        },
    }
    files = {
        "m/model_00000.weights.h5": weights({WPE: build.table(rng, 8, 4)}),
        "m/model_00001.weights.h5": weights(
            {"layers/dense/vars/0": build.table(rng, 4, 4)}
        ),
    }
    return index, files


def _shard_case(
    files: Mapping[str, bytes], subject: str, expected: Any = "any", **options: Any
) -> Case:
    read = ("m/model_00000.weights.h5", WPE)
    return build.extract(
        f"Keras's shards: {subject}",
        files,
        WPE,
        INDEX,
        expected=expected,
        read=read,
        **options,
    )


def _shards_sound(rng: random.Random) -> Case:
    index, files = _shard_files(rng)
    return _shard_case({**files, INDEX: build.dumps(index)}, "sound", "accepted")


def _shards(rng: random.Random) -> Case:
    index, files = _shard_files(rng)
    special: dict[str, str] = {}
    first, second = files
    kind = rng.choice(
        ("spoiled", "spoiled", "spoiled", "outside", "outside", "twice", "nested")
    )
    if kind == "outside":
        index["weight_map"]["/layers/other/vars"] = rng.choice(
            ("../secret.weights.h5", "/etc/passwd", "a/b.weights.h5", "..", "x\x1b.weights.h5",
             "model_00000.safetensors", ".weights.h5", "", 7, None, ["../x.weights.h5"], [[]],
             {"a": "b"}, "model_00009.weights.h5", "x" * 5000 + ".weights.h5")
        )  # fmt: skip
        files["secret.weights.h5"] = weights({"other/vars/0": build.table(rng, 8, 4)})
    elif kind == "twice":
        files[second] = files[first]
    elif kind == "nested":
        index["weight_map"]["/x"] = "model.weights.h5"
        special["m/model.weights.h5"] = "link model.weights.json"
    files[INDEX] = build.dumps(index)
    expected = "error"
    if kind == "spoiled":
        place = rng.choice((first, INDEX))
        outside = weights({WPE: build.table(rng, 8, 4)})
        kind, files, special = build.spoiled(rng, files, place, outside=outside)
        expected = "error" if special else "any"
    return _shard_case(files, kind, expected, special=special)


make = build.one_of(
    (1, _pipeline_sound), (6, _pipeline), (1, _shards_sound), (5, _shards)
)
NEEDS = ("h5py",)
