"""Foreign text: control characters, marks of direction, escape sequences and lone surrogates.

In names of tensors and files, in options and in configurations. None may reach terminal or page.
"""

from __future__ import annotations

import random

from fuzz import build
from fuzz.case import Case


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
        (f"{bad}.wpe.weight", f"wpe.{bad}.weight", f"{bad}_pos_embed", f"pos_embed.{bad}",
         f"{bad}.relative_attention_bias.weight", f"encoder.{bad}.embed_positions.weight")
    )  # fmt: skip
    tensors = {name: build.table(rng, 16, 4)}
    if rng.random() < 0.4:
        tensors[f"second.{bad}.wpe.weight"] = build.table(rng, 16, 4)
    files = {"t.safetensors": build.safetensors(tensors, rng.choice((None, {bad: bad})))}
    analyze = (
        "analyze",
        "t.safetensors",
        "--only",
        "norms",
        "--nulls",
        "0",
        "--out",
        "bundle",
    )
    argv = rng.choice(
        (
            ("inspect", "t.safetensors"),
            ("inspect", "t.safetensors", "--json"),
            ("extract", "t.safetensors", "-o", "out.npy"),
            ("extract", "t.safetensors", "--tensor", "nope", "-o", "out.npy"),
            analyze,
            (*analyze, "--json"),
            ("analyze", "t.safetensors#x", "--out", "bundle"),
        )
    )
    return Case(
        f"text in a tensor's name: {argv[0]}", argv, files, outputs=("out.npy", "bundle")
    )


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
            *(("inspect", f"{ref}{end}") for end in ("", "#x", "@x", "-missing")),
            ("extract", ref, "-o", "out.npy"),
            ("analyze", ref, "--only", "norms", "--nulls", "0", "--out", "bundle"),
            ("analyze", ref, "--only", "norms", "--nulls", "0"),
            ("compare", ref, "sinusoidal", "--nulls", "0", "--out", "bundle"),
            ("figure", "norms", ref, "-o", "out.svg"),
        )
    )
    outputs = ("out.npy", "bundle", "reports", "out.svg", "out.caption.txt")
    return Case(
        f"text in a file's name: {argv[0]}", argv, {path: content}, outputs=outputs
    )


def _config(rng: random.Random) -> Case:
    """Strings of a configuration."""
    bad = hostile(rng)
    llama: dict[str, object] = {"model_type": "llama", "head_dim": 16, "rope_theta": 1e4}
    configs: tuple[dict[str, object], ...] = (
        {"model_type": bad},
        {"model_type": "gpt2", "architectures": [bad]},
        {**llama, "rope_scaling": {"rope_type": bad, "factor": 2.0}},
        {**llama, "rope_scaling": {"type": "yarn", "factor": bad}},
        {**llama, "rope_parameters": {bad: {"rope_theta": 1e4}}},
        {**llama, "layer_types": [bad]},
        {"model_type": "llama", "hidden_size": bad, "num_attention_heads": 4},
        {"model_type": "bert", "position_embedding_type": bad},
        {"architecture": bad},
        {"architecture": "vit_" + bad, "pretrained_cfg": {bad: bad}},
        {bad: bad},
        {"model_type": "gpt2", "_name_or_path": bad},
        {"text_config": {"model_type": bad}},
    )
    name = rng.choice(("wpe.weight", "embeddings.position_embeddings.weight", "w"))
    files = {
        "m/config.json": build.dumps(rng.choice(configs)),
        "m/model.safetensors": build.safetensors({name: build.table(rng, 16, 4)}),
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
    output = filename(bad)
    output_file = output + rng.choice((".npy", ".csv", ".txt"))
    formula = "sinusoidal:16x8"
    analyze = ("analyze", formula, "--only", "norms", "--nulls", "0", "--out", "bundle")
    option = rng.choice(
        ("--rows", "--only", "--grid", "--tensor", "--revision", "--nulls")
    )
    words = rng.choice(
        (
            *3 * ((*analyze, option, bad),),
            (*analyze[:-1], output),
            (rng.choice(("inspect", "analyze")), bad),
            ("extract", bad, "-o", "out.npy"),
            ("extract", formula, "-o", output_file),
            (bad,),
            ("report", bad),
            ("figure", bad, formula, "-o", "out.svg"),
            ("figure", "norms", formula, "-o", "out.svg", "--venue", bad),
        )
    )
    outputs = ("bundle", "out.npy", "out.svg", "out.caption.txt", output, output_file)
    return Case(f"text in an option: {words[0][:9]!r}", words, outputs=outputs)


def _reference(rng: random.Random) -> Case:
    """References that are no path, and the document of a bundle, which its page shows."""
    bad = hostile(rng)
    schema = rng.choice(("posprobe.analysis/1", bad))
    files = {"b/analysis.json": build.dumps({"schema": schema, "table": {"name": bad}})}
    word = typed(bad)
    ref = rng.choice(
        (f"a/{word}", f"{word}/b", f"a/b@{word}", f"a/b#{word}", f"sample:{word}",
         f"sinusoidal:{word}", f"{word}:1x1", f"./{word}", f"~{word}/x", f"sinusoidal:4x4,{word}=1")
    )  # fmt: skip
    argv = rng.choice((("inspect", ref), ("report", "b")))
    return Case(f"text in a reference: {argv[0]}", argv, files)


make = build.one_of(
    *((1, maker) for maker in (_tensor, _file, _config, _option, _reference, _reference))
)
WARM = (
    ("figure", "norms", "sinusoidal:8x4", "-o", "f.svg"),
    ("compare", "sinusoidal:8x4", "sinusoidal", "--nulls", "0", "--out", "c"),
    ("analyze", "rotary:32x16", "--nulls", "0", "--out", "r"),
)
