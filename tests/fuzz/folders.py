"""Folders of several files: pipelines of diffusers, Orbax, Keras's shards; links, pipes, lists.

What a sound file of the folder holds is read by its package, or known because it was written here.
"""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import build
from fuzz.arrays import compared
from fuzz.case import Case

FORMATS = Path(__file__).parents[1] / "data" / "formats"
CLIP = "text_model.embeddings.position_embedding.weight"
WPE = "layers/position_embedding/vars/0"
#: What may stand where a file or a folder should.
_SPECIAL = (
    "fifo",
    "sparse 9999999999",
    "folder",
    "absent",
    "link outside",
    "link .",
    "link /dev/zero",
)


def make(rng: random.Random) -> Case:
    """Make one folder and read a table of it."""
    return build.pick(
        rng,
        (1, _pipeline_sound),
        (6, _pipeline),
        (1, _orbax_sound),
        (3, _orbax_list),
        (4, _orbax_arrays),
        (2, _orbax_store),
        (1, _shards_sound),
        (5, _shards),
    )(rng)


def _special(rng: random.Random, place: str) -> str:
    """Choose what stands at a place instead; ``outside`` lies above the checkpoint's folder."""
    kind = rng.choice(_SPECIAL)
    return kind.replace("outside", "../" * place.count("/") + "outside")


# --- diffusers ---------------------------------------------------------------------------------


def _pipeline_files(rng: random.Random) -> tuple[dict[str, Any], dict[str, bytes]]:
    index: dict[str, Any] = {
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": "0.35.1",
        "requires_safety_checker": False,
        "scheduler": ["diffusers", "DDIMScheduler"],
        "safety_checker": [None, None],
    }
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
    files: Mapping[str, bytes],
    what: str,
    expected: Any = "any",
    special: Mapping[str, str] | None = None,
    *,
    reference: str = "m#text_encoder",
    read: bool = True,
) -> Case:
    inspected = reference == "m"
    argv = ("inspect", "m") if inspected else ("extract", reference, "-o", "out.npy")
    return Case(
        f"diffusers: {what}",
        argv,
        files,
        special or {},
        read=("m/text_encoder/model.safetensors", CLIP) if read and not inspected else None,
        outputs=("out.npy",),
        expected=expected,
    )


def _pipeline_sound(rng: random.Random) -> Case:
    index, files = _pipeline_files(rng)
    files["m/model_index.json"] = build.dumps(index)
    reference = rng.choice(("m#text_encoder", "m#text_encoder", "m"))
    return _pipeline_case(files, "sound", "accepted", reference=reference)


def _pipeline(rng: random.Random) -> Case:
    index, files = _pipeline_files(rng)
    special: dict[str, str] = {}
    reference = rng.choice(("m#text_encoder", "m#text_encoder", "m", "m#text_encoder_2"))
    read = reference == "m#text_encoder"
    kind = rng.choice(
        ("mutated", "damaged", "name", "special", "part", "config", "within", "many", "foreign")
    )
    hostile = rng.choice(build.HOSTILE)
    sound = hostile.encode("utf-8", "replace").decode()
    expected = "any"
    match kind:
        case "mutated":
            for _ in range(rng.choice((1, 2, 4))):
                changed = build.mutated(rng, index)
                index = changed if isinstance(changed, dict) else {"x": changed}
        case "name":
            index[hostile] = ["transformers", hostile]
            if "\0" not in sound and len(sound) < 200 and not sound.startswith(("..", "/")):
                files[f"m/{sound}/model.safetensors"] = build.safetensors({sound: build.table(rng)})
                files[f"m/{sound}/config.json"] = build.dumps({"model_type": sound})
        case "special":
            place = rng.choice(
                ("m/text_encoder", "m/text_encoder/model.safetensors", "m/text_encoder/config.json",
                 "m/text_encoder_2", "m/model_index.json", "m/scheduler")
            )  # fmt: skip
            files = {name: content for name, content in files.items()
                     if not name.startswith(place)}  # fmt: skip
            special[place] = _special(rng, place)
            files["outside/model.safetensors"] = build.safetensors({CLIP: build.table(rng, 8, 4)})
            read = False
        case "part":
            _, files["m/text_encoder/model.safetensors"] = build.damage(
                rng, files["m/text_encoder/model.safetensors"]
            )
        case "config":
            config = build.mutated(rng, {"model_type": "clip_text_model", "hidden_size": 4,
                                         "max_position_embeddings": 8})  # fmt: skip
            files["m/text_encoder/config.json"] = build.dumps(config)
            read = False
        case "within":  # a part that is a pipeline itself, or a folder of the whole
            files["m/text_encoder/model_index.json"] = build.dumps(index)
            if rng.random() < 0.5:
                special["m/text_encoder/text_encoder"] = "link ../../m"
        case "many":
            for number in range(rng.choice((70, 3000))):
                index[f"part{number}"] = ["a", "b"]
            if rng.random() < 0.3:
                one = build.safetensors({"x": build.table(rng, 2, 2)})
                files |= {f"m/part{number}/model.safetensors": one for number in range(65)}
                expected = "error"
        case "foreign":
            reference, read = f"m#{sound}".replace("\0", ""), False
    files["m/model_index.json"] = build.dumps(index)
    if kind == "damaged":
        _, files["m/model_index.json"] = build.damage(rng, files["m/model_index.json"])
    if special.get("m/model_index.json"):
        del files["m/model_index.json"]
    return _pipeline_case(files, kind, expected, special, reference=reference, read=read)


# --- Orbax -------------------------------------------------------------------------------------


def _entry(*keys: Any, **about: Any) -> dict[str, Any]:
    return {
        "key_metadata": [{"key": key, "key_type": 2} for key in keys],
        "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False, **about},
    }


def _array(values: Any, **changed: Any) -> dict[str, Any]:
    shape = list(values.shape)
    return {
        "zarr_format": 2, "shape": shape, "chunks": shape, "dtype": values.dtype.str,
        "compressor": None, "fill_value": None, "filters": None, "order": "C",
        "dimension_separator": ".", **changed,
    }  # fmt: skip


def _orbax_files(rng: random.Random, *keys: str, **changed: Any) -> tuple[dict[str, bytes], Any]:
    """Lay a parameter down as Orbax does without its store, and return its numbers too."""
    values = build.table(rng, 8, 4)
    place = ".".join(keys or ("params", "wpe"))
    tree = {"tree_metadata": {"('params', 'wpe')": _entry(*(keys or ("params", "wpe")))}}
    return {
        "m/_METADATA": build.dumps(tree),
        f"m/{place}/.zarray": build.dumps(_array(values, **changed)),
        f"m/{place}/0.0": values.tobytes(),
    }, values


def _orbax_case(
    files: Mapping[str, bytes],
    what: str,
    expected: Any = "any",
    special: Mapping[str, str] | None = None,
    *,
    numbers: Any = None,
    tensor: str = "params/wpe",
) -> Case:
    case = Case(
        f"Orbax: {what}",
        ("extract", "m", "--tensor", tensor, "-o", "out.npy"),
        files,
        special or {},
        outputs=("out.npy",),
        expected=expected,
    )
    return compared(case, numbers)


def _orbax_sound(rng: random.Random) -> Case:
    files, values = _orbax_files(rng)
    return _orbax_case(files, "sound", "accepted", numbers=values)


def _orbax_list(rng: random.Random) -> Case:
    """Change the list of parameters."""
    files, values = _orbax_files(rng)
    kind = rng.choice(("mutated", "damaged", "outside", "name", "many", "missing"))
    tree: dict[str, Any] = {"tree_metadata": {"('params', 'wpe')": _entry("params", "wpe")}}
    names: dict[str, Any] = tree["tree_metadata"]
    tensor, expected, numbers = "params/wpe", "any", values
    match kind:
        case "mutated":
            for _ in range(rng.choice((1, 2))):
                changed = build.mutated(rng, tree)
                tree = changed if isinstance(changed, dict) else {"x": changed}
        case "outside":  # an array that lies beside the folder, and not in it
            keys = rng.choice((("..",), ("", "", ""), ("..", "m"), ("../secret",), (".",), ("",)))
            names["x"] = _entry(*keys)
            values = build.table(rng, 8, 4)
            for folder in ("", "secret/"):
                files[f"{folder}.zarray"] = build.dumps(_array(values))
                files[f"{folder}0.0"] = values.tobytes()
            tensor, expected, numbers = "/".join(keys), "error", None
        case "name":
            names["x"] = _entry(rng.choice((*build.HOSTILE, 7, None, True, ["a"], 10**30)))
        case "many":
            names |= {f"x{number}": _entry("params", f"x{number}") for number in range(3000)}
        case "missing":
            names["x"] = _entry("params", "x")
            tensor, expected, numbers = "params/x", "error", None
    files["m/_METADATA"] = build.dumps(tree)
    if kind == "damaged":
        _, files["m/_METADATA"] = build.damage(rng, files["m/_METADATA"])
    return _orbax_case(files, f"list, {kind}", expected, numbers=numbers, tensor=tensor)


def _orbax_arrays(rng: random.Random) -> Case:
    """Let what describes an array, or its bytes, lie."""
    kind = rng.choice(("mutated", "shape", "dtype", "filter", "bytes", "special", "fill", "bomb"))
    changed: dict[str, Any] = {}
    expected, special = "any", {}
    match kind:
        case "shape":
            changed[rng.choice(("shape", "chunks"))] = rng.choice(
                ([2**40, 4], [8, 2**40], [-8, 4], [8], [8, 4, 1], [0, 4], [8, 0], [2**62, 2**62],
                 [2**63, 4], [8.5, 4], ["8", 4], None, 8, [[8], 4], [4, 4], [9, 4])
            )  # fmt: skip
        case "dtype":
            changed["dtype"] = rng.choice(
                ("<f8", ">f4", "|O", "<i8", "<c8", "<U4", "bfloat16", "x\x1b[2J", None,
                 [["a", "<f4"]])
            )  # fmt: skip
        case "filter":
            changed[rng.choice(("compressor", "filters"))] = rng.choice(
                ({"id": "zstd", "level": 1}, {"id": "blosc"}, {"id": "x\x1b[2J"}, [],
                 {"id": "gzip"}, [{"id": "delta"}], {"id": "pickle"}, {"id": "bz2", "level": 99}, 7)
            )  # fmt: skip
        case "fill":
            changed = {
                "shape": rng.choice(([2**13, 2**13], [2**16, 2**16], [2**20, 2**20])),
                "chunks": rng.choice(([8, 4], [2**13, 2**13])),
                "fill_value": 1.0,
            }
            expected = "any"
    files, values = _orbax_files(rng, **changed)
    if kind == "mutated":
        about = build.mutated(rng, _array(values))
        files["m/params.wpe/.zarray"] = build.dumps(about)
    elif kind == "bytes":
        _, files["m/params.wpe/0.0"] = build.damage(rng, files["m/params.wpe/0.0"])
    elif kind == "special":
        place = rng.choice(("m/params.wpe/0.0", "m/params.wpe/.zarray", "m/params.wpe",
                            "m/_METADATA"))  # fmt: skip
        files = {name: content for name, content in files.items() if not name.startswith(place)}
        special[place] = _special(rng, place)
        outside = build.table(rng, 8, 4)
        files["outside/.zarray"] = build.dumps(_array(outside))
        files["outside/0.0"] = outside.tobytes()
    elif kind == "bomb":
        import zlib

        about = _array(values, compressor={"id": "zlib", "level": 9})
        files["m/params.wpe/.zarray"] = build.dumps(about)
        packer = zlib.compressobj(9)
        once = packer.compress(bytes(2**20))
        files["m/params.wpe/0.0"] = (
            once + b"".join(packer.compress(bytes(2**20)) for _ in range(15)) + packer.flush()
        )
        expected = "error"
    return _orbax_case(files, f"array, {kind}", expected, special)


@cache
def _store() -> dict[str, bytes]:
    folder = FORMATS / "orbax"
    return {
        f"m/{path.relative_to(folder)}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _orbax_store(rng: random.Random) -> Case:
    """Damage the store of all parameters together."""
    files = dict(_store())
    name = rng.choice([name for name in files if not name.endswith("_METADATA")])
    special, tensor = {}, "params/bert/embeddings/position_embeddings/embedding"
    kind = rng.choice(("sound", "damaged", "damaged", "special", "swapped"))
    if kind == "damaged":
        _, files[name] = build.damage(rng, files[name])
    elif kind == "special":
        del files[name]
        special[name] = _special(rng, name)
    elif kind == "swapped":
        files[name] = files[rng.choice(sorted(files))]
    expected = "accepted" if kind == "sound" else "any"
    return _orbax_case(files, f"store, {kind}", expected, special, tensor=tensor)


# --- Keras -------------------------------------------------------------------------------------


def _weights(tensors: Mapping[str, Any]) -> bytes:
    import h5py

    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, values in tensors.items():
            file[name] = values
    return stream.getvalue()


def _shard_files(rng: random.Random) -> tuple[dict[str, Any], dict[str, bytes]]:
    index = {
        "metadata": {"total_size": 200.0},
        "weight_map": {
            "/layers/position_embedding/vars": "model_00000.weights.h5",
            "/layers/dense/vars": ["model_00001.weights.h5"],
        },
    }
    files = {
        "m/model_00000.weights.h5": _weights({WPE: build.table(rng, 8, 4)}),
        "m/model_00001.weights.h5": _weights({"layers/dense/vars/0": build.table(rng, 4, 4)}),
    }
    return index, files


def _shard_case(
    files: Mapping[str, bytes],
    what: str,
    expected: Any = "any",
    special: Mapping[str, str] | None = None,
    *,
    read: bool = True,
) -> Case:
    return Case(
        f"Keras's shards: {what}",
        ("extract", "m/model.weights.json", "--tensor", WPE, "-o", "out.npy"),
        files,
        special or {},
        read=("m/model_00000.weights.h5", WPE) if read else None,
        outputs=("out.npy",),
        expected=expected,
    )


def _shards_sound(rng: random.Random) -> Case:
    index, files = _shard_files(rng)
    files["m/model.weights.json"] = build.dumps(index)
    return _shard_case(files, "sound", "accepted")


def _shards(rng: random.Random) -> Case:
    index, files = _shard_files(rng)
    weights: dict[str, Any] = index["weight_map"]
    special: dict[str, str] = {}
    kind = rng.choice(("mutated", "damaged", "outside", "special", "part", "twice", "nested"))
    expected: Any = "error"
    read = True
    match kind:
        case "mutated":
            changed = build.mutated(rng, index)
            index = changed if isinstance(changed, dict) else {"x": changed}
            expected = "any"
        case "outside":
            bad: Any = rng.choice(
                ("../secret.weights.h5", "/etc/passwd", "a/b.weights.h5", "..", "x\x1b.weights.h5",
                 "model_00000.safetensors", ".weights.h5", "", 7, None, ["../x.weights.h5"], [[]],
                 {"a": "b"}, "model_00009.weights.h5", "x" * 5000 + ".weights.h5")
            )  # fmt: skip
            weights["/layers/other/vars"] = bad
            files["secret.weights.h5"] = _weights({"other/vars/0": build.table(rng, 8, 4)})
        case "special":
            name = rng.choice(("m/model_00000.weights.h5", "m/model.weights.json"))
            files.pop(name, None)
            special[name] = _special(rng, name)
            files["outside"] = _weights({WPE: build.table(rng, 8, 4)})
        case "part":
            name = "m/model_00000.weights.h5"
            _, files[name] = build.damage(rng, files[name])
            expected = "any"
        case "twice":
            files["m/model_00001.weights.h5"] = files["m/model_00000.weights.h5"]
        case "nested":
            weights["/x"] = "model.weights.h5"
            special["m/model.weights.h5"] = "link model.weights.json"
    content = build.dumps(index)
    if kind == "damaged":
        _, content = build.damage(rng, content)
        expected, read = "any", True
    if "m/model.weights.json" not in special:
        files["m/model.weights.json"] = content
    return _shard_case(files, kind, expected, special, read=read)


WARM: tuple[tuple[str, ...], ...] = ()


def prepare() -> None:
    """Import what every case needs."""
    import h5py
    import tensorstore

    import posprobe.checkpoints.base

    assert h5py.version
    assert callable(tensorstore.open)
    assert posprobe.checkpoints.base.INDEX
