"""``posprobe forward`` and ``resize``: positions inside a running model, and for another length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from posprobe.cli import options
from posprobe.cli.process import print_note, received_signals, typed_command
from posprobe.cli.show import describe_loaded, print_analysis, print_path
from posprobe.errors import UsageError
from posprobe.progress import stage
from posprobe.resizing import WAYS, Way
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from posprobe.measurements.model import Contexts


def forward(
    ref: str,
    out_folder: Path | None = None,
    text: Path | None = None,
    images: Path | None = None,
    measurement_list: str | None = None,
    length: int | None = None,
    tokens: str | None = None,
    contexts: int = 64,
    rows: str | None = None,
    layers: str | None = None,
    batch_size: int = 8,
    dtype: Literal["float32", "float16", "bfloat16", "float64"] = "float32",
    nulls: int = options.DEFAULT_NULL_DRAWS,
    pooling: Literal["mean", "cls", "last"] | None = None,
    seed: int = 0,
    device: options.Device = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
    allow_missing: bool = False,
    revision: str | None = None,
    offline: bool = False,
    as_json: bool = False,
    verbose: bool = False,
) -> None:
    """Run a model and measure what position decides inside it.

    Of the variance of each head's attention logits: how much goes with distance, with the place of
    the key, with other position, with content. How much of the hidden states is position. And which
    places of an input reach the embedding, the next token or the class.
    `--only` measures more: attention, shift, subspaces, words, blank, rotary_use, substitution.
    Without --text, --images or --tokens the contexts are Python's documentation where a tokenizer
    lies beside the model, and photographs for images; a causal language model without tokenizer
    writes its own; else they are random. Ctrl-C keeps what has been measured so far.
    """
    with stage("Starting"):
        from posprobe.measurements.model import Contexts
        from posprobe.studies.model import analyze_model

        folder = _forward_folder(ref, out_folder)
    analysis = analyze_model(
        ref,
        Contexts(text, images, contexts, length, batch_size, seed, _token_ids(tokens)),
        only=options.split_names(measurement_list),
        positions=options.parse_rows(rows),
        layers=options.parse_layers(layers),
        nulls=nulls,
        pooling=pooling,
        device=device,
        device_map=device_map,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        allow_missing=allow_missing,
        revision=revision,
        offline=offline,
        command=typed_command(),
    )
    if analysis.stopped:
        received_signals.clear()  # the partial result is saved and marked as stopped
    document = analysis.to_dict()
    print_analysis(document, analysis.save(folder), as_json=as_json, verbose=verbose)


def _forward_folder(ref: str, out_folder: Path | None) -> Path:
    """Return the folder of the results, by default one named after the model."""
    from posprobe.report import check_bundle_folder, default_folder, forward_name

    folder = out_folder or default_folder(forward_name(ref), {(ref, None)})
    check_bundle_folder(folder)
    return folder


def _token_ids(text: str | None) -> Path | Literal["random"] | None:
    if text is None:
        return None
    return "random" if text == "random" else Path(text)


def resize(
    ref: str,
    to: str,
    method: Way | None = None,
    output: Path | None = None,
    into: Path | None = None,
    text: Path | None = None,
    contexts: int = 64,
    out_folder: Path | None = None,
    rows: str | None = None,
    as_json: bool = False,
    *,
    load_options: options.LoadOptions,
) -> None:
    """Resize a position table, or compare ways to do so.

    Without -o and --into all methods are compared: what happens to periods, neighbours and breaks,
    and with --text to the model's loss. For rotary positions the scaling rules are compared. With
    -o or --into the resized table or checkpoint is written. Rows of special tokens such as CLS stay
    as they are.
    """
    size = parse_size(to)
    if output or into:
        if out_folder or text or as_json:
            raise UsageError(
                "--text, --out and --json apply to the comparison. Leave "
                "them out, or leave out -o and --into."
            )
        _write_resized(ref, size, method, output, into, rows, load_options)
        return
    loss_contexts = None if text is None else _loss_contexts(text, contexts, rows)
    if out_folder is not None:
        from posprobe.report import check_bundle_folder

        check_bundle_folder(out_folder)
    loaded = options.load_any(ref, rows=rows, load_options=load_options)
    print_note(describe_loaded(loaded))
    with stage("Starting"):
        from posprobe.studies.resizing import compare
    comparison = compare(
        loaded,
        to=size,
        how=method,
        contexts=loss_contexts,
        reference=ref,
        **load_options.parse(),
        command=typed_command(),
    )
    folder = None if out_folder is None else comparison.save(out_folder)
    print_analysis(comparison.to_dict(), folder, as_json=as_json)


def _write_resized(
    ref: str,
    size: int | tuple[int, ...],
    method: Way | None,
    output: Path | None,
    into: Path | None,
    rows: str | None,
    load_options: options.LoadOptions,
) -> None:
    """Write the resized table, as a file or in a copy of its checkpoint."""
    if method is None:
        raise UsageError(
            f"--how is missing. Choose one of {', '.join(WAYS)}; without -o "
            "and --into all are compared."
        )
    if into and rows:
        raise UsageError("--into resizes the whole table. Leave out --rows.")
    with stage("Starting"):
        from posprobe.report import resolve_table_path, write_table
        from posprobe.resizing.checkpoint import (
            check_copy_folder,
            check_not_source,
            write_checkpoint,
        )
        from posprobe.resizing.tables import resize as resize_table
        from posprobe.words.resizing import copied_sentences

        if output is not None:
            resolve_table_path(output)
        if into is not None:
            check_copy_folder(ref, into)
    table = options.load_table(ref, rows=rows, load_options=load_options)
    print_note(describe_loaded(table))
    resized = resize_table(table, to=size, how=method)
    print_note(f"a {table.layout} becomes a {resized.layout}, by {method}")
    if output is not None:
        check_not_source(table, output)
        write_table(resized, output)
        print_path(output)
    if into is not None:
        copy = write_checkpoint(ref, resized, into, **load_options.parse())
        print_note("\n".join(map(escape_invisible, copied_sentences(copy))))
        print_path(into)


def _loss_contexts(text: Path, count: int, rows: str | None) -> Contexts:
    """Return the contexts for the loss, checked before anything is read."""
    from posprobe.measurements.model import Contexts
    from posprobe.studies.model import check_contexts

    if rows:
        raise UsageError("--text runs the model with a whole table. Leave out --rows.")
    loss_contexts = Contexts(text, count=count)
    check_contexts(loss_contexts)
    return loss_contexts


def parse_size(text: str) -> int | tuple[int, ...]:
    """Parse ``N``, ``HxW``, or ``FxHxW`` of a video."""
    form = (
        "N for a sequence, such as 1024, or ROWSxCOLUMNS for patches, such as 24x24, or "
        "FRAMESxROWSxCOLUMNS for those of a video"
    )
    pattern = r"(\d{1,18})(?:x(\d{1,18}))?(?:x(\d{1,18}))?"
    sizes = options.match_value("--to", text, pattern, form)
    sides = tuple(int(size) for size in sizes if size is not None)
    return sides if len(sides) > 1 else sides[0]
