"""Foreign text: control characters, marks of direction, escape sequences and lone surrogates.

In names of tensors and files, in options and in configurations. None may reach terminal or page.
"""

from __future__ import annotations

import random

from fuzz import build
from fuzz.case import Case


def make(rng: random.Random) -> Case:
    """Put hostile text where posprobe will say it."""
    return rng.choice((_tensor, _file, _config, _option, _analysis, _hubname, _format))(rng)


def hostile(rng: random.Random) -> str:
    """Return one or several pieces of hostile text."""
    return "".join(rng.choices(build.HOSTILE, k=rng.choice((1, 1, 2))))


def typed(text: str) -> str:
    """Turn text into a word that a shell can pass."""
    if "\udcff" in text:  # the stand-in of a byte; other lone surrogates stand for none
        text = text.replace("\ud800", "")
    return (
        text.encode("utf-8", "surrogateescape" if "\udcff" in text else "replace")
        .replace(b"\0", b"")
        .decode("utf-8", "surrogateescape")
    )


def filename(text: str) -> str:
    """Turn text into a file's name."""
    name = typed(text.replace("\ud800", "")).replace("/", "_").replace("..", "_")
    while len(name.encode("utf-8", "surrogateescape")) > 200:
        name = name[: len(name) // 2]
    return name or "x"


def _tensor(rng: random.Random) -> Case:
    """Names of tensors, in safetensors."""
    bad = hostile(rng)
    name = rng.choice(
        (
            f"{bad}.wpe.weight",
            f"wpe.{bad}.weight",
            f"{bad}_pos_embed",
            f"pos_embed.{bad}",
            f"{bad}.relative_attention_bias.weight",
            f"encoder.{bad}.embed_positions.weight",
        )
    )
    tensors = {name: build.table(rng, 16, 4)}
    if rng.random() < 0.4:
        tensors[f"second.{bad}.wpe.weight"] = build.table(rng, 16, 4)
    files = {"t.safetensors": build.safetensors(tensors, rng.choice((None, {bad: bad})))}
    argv = rng.choice(
        (
            ("inspect", "t.safetensors"),
            ("inspect", "t.safetensors", "--json"),
            ("extract", "t.safetensors", "-o", "out.npy"),
            ("extract", "t.safetensors", "--tensor", "nope", "-o", "out.npy"),
            ("analyze", "t.safetensors", "--only", "norms", "--nulls", "0", "--out", "bundle"),
            (
                "analyze",
                "t.safetensors",
                "--nulls",
                "0",
                "--only",
                "norms",
                "--json",
                "--out",
                "bundle",
            ),
            ("analyze", "t.safetensors#x", "--out", "bundle"),
        )
    )
    return Case(f"text in a tensor's name: {argv[0]}", argv, files, outputs=("out.npy", "bundle"))


def _file(rng: random.Random) -> Case:
    """Names of files and folders."""
    name = filename(hostile(rng))
    content = build.safetensors({"wpe.weight": build.table(rng, 16, 4)})
    if rng.random() < 0.3:
        content = content[:-1]
    path = rng.choice(
        (f"{name}.safetensors", f"{name}/model.safetensors", f"{name}.npy", f"{name}.xyz")
    )
    ref = path.rpartition("/")[0] or path
    argv = rng.choice(
        (
            ("inspect", ref),
            ("extract", ref, "-o", "out.npy"),
            ("inspect", f"{ref}#x"),
            ("inspect", f"{ref}@x"),
            ("analyze", ref, "--only", "norms", "--nulls", "0", "--out", "bundle"),
            ("analyze", ref, "--only", "norms", "--nulls", "0"),
            ("compare", ref, "sinusoidal", "--nulls", "0", "--out", "bundle"),
            ("figure", "norms", ref, "-o", "out.svg"),
            ("inspect", f"{ref}-missing"),
        )
    )
    outputs = ("out.npy", "bundle", "reports", "out.svg", "out.caption.txt")
    return Case(f"text in a file's name: {argv[0]}", argv, {path: content}, outputs=outputs)


def _config(rng: random.Random) -> Case:
    """Strings of a configuration."""
    bad = hostile(rng)
    configs: tuple[dict[str, object], ...] = (
        {"model_type": bad},
        {"model_type": "gpt2", "architectures": [bad]},
        {
            "model_type": "llama",
            "hidden_size": 64,
            "num_attention_heads": 4,
            "rope_scaling": {"rope_type": bad, "factor": 2.0},
        },
        {"model_type": "llama", "hidden_size": bad, "num_attention_heads": 4},
        {"model_type": "llama", "head_dim": 16, "rope_parameters": {bad: {"rope_theta": 1e4}}},
        {"model_type": "bert", "position_embedding_type": bad},
        {"architecture": bad},
        {"architecture": "vit_" + bad, "pretrained_cfg": {bad: bad}},
        {bad: bad},
        {"model_type": "gpt2", "_name_or_path": bad},
        {"text_config": {"model_type": bad}},
        {"model_type": "llama", "head_dim": 16, "rope_theta": 1e4, "layer_types": [bad]},
        {
            "model_type": "llama",
            "head_dim": 16,
            "rope_scaling": {"type": "yarn", "factor": bad},
        },
    )
    config = rng.choice(configs)
    tensors = {
        rng.choice(("wpe.weight", "embeddings.position_embeddings.weight", "w")): build.table(
            rng, 16, 4
        )
    }
    files = {
        "m/config.json": build.dumps(config),
        "m/model.safetensors": build.safetensors(tensors),
    }
    argv = rng.choice(
        (
            ("inspect", "m"),
            ("inspect", "m", "--json"),
            ("extract", "m", "-o", "out.npy"),
            ("analyze", "m", "--nulls", "0", "--rows", "0:8", "--out", "bundle"),
        )
    )
    return Case("text in a configuration", argv, files, outputs=("out.npy", "bundle"))


def _option(rng: random.Random) -> Case:
    """Words of the command line."""
    bad = typed(hostile(rng))
    place = rng.choice(
        (
            "--rows",
            "--only",
            "--grid",
            "--tensor",
            "--revision",
            "--out",
            "ref",
            "command",
            "report",
            "figure",
            "venue",
            "-o",
            "nulls",
        )
    )
    argv: tuple[str, ...] = ("analyze", "sinusoidal:16x8", "--nulls", "0", "--out", "bundle")
    outputs: tuple[str, ...] = ("bundle",)
    if place == "ref":
        argv = (rng.choice(("inspect", "analyze", "extract")), bad)
        argv += ("-o", "out.npy") if argv[0] == "extract" else ()
    elif place == "command":
        argv = (bad,)
    elif place == "report":
        argv = ("report", bad)
    elif place in ("figure", "venue"):
        argv = ("figure", bad if place == "figure" else "norms", "sinusoidal:16x8", "-o", "out.svg")
        argv += ("--venue", bad) if place == "venue" else ()
    elif place == "-o":
        out = filename(bad) + rng.choice((".npy", ".csv", ".txt"))
        argv, outputs = ("extract", "sinusoidal:16x8", "-o", out), (out,)
    elif place == "--out":
        out = filename(bad)
        argv, outputs = (*argv[:4], "--only", "norms", "--out", out), (out,)
    elif place == "nulls":
        argv = (*argv[:2], "--nulls", bad, "--out", "bundle")
    elif place == "--tensor":
        argv = (*argv, "--only", "norms", place, bad)
    else:
        argv = (*argv, place, bad)
    if place != "--only" and argv[0] == "analyze" and "--only" not in argv:
        argv = (*argv, "--only", "norms")
    return Case(
        f"text in an option: {place}",
        argv,
        outputs=(*outputs, "out.npy", "out.svg", "out.caption.txt"),
    )


def _analysis(rng: random.Random) -> Case:
    """Strings of a bundle's document, which the page and the index show."""
    bad = hostile(rng)
    files = {
        "b/analysis.json": build.dumps({"schema": "posprobe.analysis/1", "table": {"name": bad}})
    }
    document = build.dumps({"schema": bad, "table": {"name": bad}})
    if rng.random() < 0.4:
        files = {"b/analysis.json": document}
    argv = rng.choice((("report", "b"), ("report", ".")))
    return Case("text in a bundle's document", argv, files, outputs=("index.html",))


def _hubname(rng: random.Random) -> Case:
    """References that are no path."""
    bad = typed(hostile(rng))
    ref = rng.choice(
        (
            f"a/{bad}",
            f"{bad}/b",
            f"a/b@{bad}",
            f"a/b#{bad}",
            f"sample:{bad}",
            f"sinusoidal:{bad}",
            f"{bad}:1x1",
            f"./{bad}",
            f"~{bad}/x",
            f"sinusoidal:4x4,{bad}=1",
        )
    )
    return Case("text in a reference", ("inspect", ref))


def _format(rng: random.Random) -> Case:
    """Messages of libraries that quote a file."""
    bad = hostile(rng).encode("utf-8", "surrogatepass")
    name, content = rng.choice(
        (
            ("m/config.json", b'{"a": ' + bad),
            ("m/model.safetensors.index.json", b'{"weight_map": {"a": "' + bad),
            (
                "a.npy",
                b"\x93NUMPY\x01\x00\x76\x00{'descr': '"
                + bad[:80]
                + b"', 'fortran_order': False, 'shape': (4, 4)}",
            ),
            ("m/config.json", bad),
            ("a.npz", bad * 3),
        )
    )
    files = {name: content}
    if name.startswith("m/c"):
        files["m/model.safetensors"] = build.safetensors({"wpe.weight": build.table(rng, 16, 4)})
    return Case("text in a damaged file", ("inspect", name.partition("/")[0]), files)


WARM = (
    ("figure", "norms", "sinusoidal:8x4", "-o", "f.svg"),
    ("compare", "sinusoidal:8x4", "sinusoidal", "--nulls", "0", "--out", "c"),
    ("analyze", "rotary:32x16", "--nulls", "0", "--out", "r"),
)
