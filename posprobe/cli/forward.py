"""``posprobe forward``: positions inside a running model."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posprobe.cli.options import (
    AsJson,
    DeviceName,
    Offline,
    OnDevice,
    Quiet,
    Ref,
    Revision,
    Rows,
    Seed,
    parse_rows,
    talk,
)
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from posprobe.analyses.head_logits import HeadLogits


class PrecisionName(StrEnum):
    """In which a model computes."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float64 = "float64"


#: Tokens of a context unless stated; Song & Zhong take 512.
LENGTH = 128


def forward(
    ref: Ref,
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="Run on windows of this text.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", metavar="DIR", help="Run on these pictures.")
    ] = None,
    contexts: Annotated[
        int, typer.Option("--contexts", metavar="N", min=1, help="Most contexts to run.")
    ] = 64,
    length: Annotated[
        int | None,
        typer.Option("--length", metavar="N", min=2, help="Tokens of a context [default: 128]."),
    ] = None,
    rows: Rows = None,
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="LIST", help="Hidden states, such as 0,6,12; 0 enters."),
    ] = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Measure attention by offset, too.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, help="Contexts at a time.")
    ] = 8,
    dtype: Annotated[
        PrecisionName, typer.Option("--dtype", help="In which the model computes.")
    ] = PrecisionName.float32,
    seed: Seed = 0,
    device: OnDevice = DeviceName.auto,
    revision: Revision = None,
    offline: Offline = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a model and measure what position does to its hidden states and heads.

    Without --text or --images it runs on seeded random tokens or pixels, and says so.
    """
    from posprobe.forward import attend, decompose, load_model
    from posprobe.report import to_json
    from posprobe.report.analysis import environment
    from posprobe.report.forward import ForwardAnalysis

    talk(quiet=quiet)
    chosen = None if layers is None else _layers(layers)
    kept = None if rows is None else parse_rows(rows)
    model = load_model(
        ref, device=device.value, dtype=dtype.value, revision=revision, offline=offline
    )
    place = next(model.parameters()).device.type

    def batches() -> Iterator[Any]:
        return _contexts(
            ref, model, text, images, contexts, length, batch_size, seed, revision, offline
        )

    said = _described(model, text, images, length, seed)
    if not quiet:
        typer.echo(f"{ref}: {said['kind']}", err=True)
    states = decompose(model, batches(), positions=kept, layers=chosen, name=ref)
    heads, missing = _heads(ref, kept, revision, offline=offline)
    analysis = ForwardAnalysis(
        states=states,
        heads=heads,
        heads_missing=missing,
        attention=attend(model, batches(), name=ref) if attention else None,
        contexts=said,
        environment=environment(place, seed, shlex.join(["posprobe", *sys.argv[1:]])),
    )
    document = analysis.to_dict()
    typer.echo(to_json(document) if as_json else _summary(document), nl=not as_json)


def _layers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--layers {text}: layers read N,N,..., such as 0,6,12.") from None


def _length(model: Any, length: int | None) -> int:
    from posprobe.forward.streaming import context_length

    longest = context_length(getattr(model, "config", None))
    return length or min(LENGTH, longest or LENGTH)


def _described(
    model: Any, text: Path | None, images: Path | None, length: int | None, seed: int
) -> dict[str, Any]:
    """Say what the model is run on."""
    from posprobe.forward.states import image_shape

    shape = image_shape(model)
    if text and images:
        raise UsageError("--text and --images: a model takes one of them.")
    if (text and shape) or (images and not shape) or (length and shape):
        wanted = "images: use --images DIR" if shape else "text: use --text FILE"
        raise UsageError(f"this model takes {wanted}, or neither.")
    if shape:
        kind = f"the pictures in {images}" if images else "random pixels, independent and normal"
        return {"kind": kind, "shape": list(shape), "seed": None if images else seed}
    kind = f"windows of {text}" if text else "random tokens, independent and equally likely"
    return {"kind": kind, "length": _length(model, length), "seed": None if text else seed}


def _contexts(
    ref: str,
    model: Any,
    text: Path | None,
    images: Path | None,
    count: int,
    length: int | None,
    batch_size: int,
    seed: int,
    revision: str | None,
    offline: bool,
) -> Iterator[Any]:
    from posprobe import forward as run
    from posprobe.forward.states import image_shape

    shape = image_shape(model)
    if images:
        prepare = run.load_preparation(ref, model, revision=revision, offline=offline)
        return run.image_files(images, prepare, count=count, batch_size=batch_size)
    if shape:
        return run.random_images(shape, count, seed=seed, batch_size=batch_size)
    tokens = _length(model, length)
    if text:
        tokenizer = run.load_tokenizer(ref, revision=revision, offline=offline)
        return run.text_windows(text, tokenizer, tokens, count=count, batch_size=batch_size)
    return run.random_tokens(model.config, tokens, count, seed=seed, batch_size=batch_size)


def _heads(
    ref: str, rows: slice | None, revision: str | None, *, offline: bool
) -> tuple[Mapping[int, HeadLogits], str]:
    """Measure the heads of every layer by their weights, or say why that cannot be done."""
    from posprobe.analyses.head_logits import head_logits
    from posprobe.errors import PosprobeError
    from posprobe.families.weights import load_heads

    try:
        layer = load_heads(ref, rows=rows, revision=revision, offline=offline)
    except PosprobeError as error:
        return {}, str(error)
    found: dict[int, HeadLogits] = {}
    while True:
        found[layer.layer] = head_logits(
            layer.table, layer.w_q, layer.w_k, layer.b_q, layer.b_k,
            heads=layer.heads, scale=layer.scale, causal=layer.causal,
        )  # fmt: skip
        if len(found) == layer.layers:
            return found, ""
        layer = load_heads(ref, len(found), rows=rows, revision=revision, offline=offline)


def _summary(document: Mapping[str, Any]) -> str:
    from posprobe.report.sections import show

    states, contexts = document["hidden_states"], document["contexts"]
    lines = [
        f"{document['name']}: {contexts['used']} contexts, {contexts['kind']}",
        *document["notes"],
        "",
        f"{'layer':>5}{'stable rank':>14}{'relative norm':>16}{'share of variance':>20}",
    ]
    for layer in states["layers"]:
        share = layer["shares"] and layer["shares"]["position"]
        lines.append(
            f"{layer['layer']:>5}{show(layer['stable_rank']):>14}"
            f"{show(layer['relative_norm']):>16}{show(share):>20}"
        )
    lines += ["", "offset that each head prefers, by its weights (attention there)"]
    for layer in document["heads"]:
        cells = [
            f"{peak} ({share:.2f})"
            for peak, share in zip(layer["peak"], layer["attention"], strict=True)
        ]
        lines.append(f"{layer['layer']:>5}  " + "  ".join(cells))
    if document["heads_missing"]:
        lines.append(f"  {document['heads_missing']}")
    return "\n".join(lines)
