"""``posprobe forward``: positions inside a running model."""

from pathlib import Path
from typing import Literal

from posprobe.cli import options
from posprobe.cli.process import received, typed
from posprobe.cli.show import print_analysis
from posprobe.progress import stage


def forward(
    ref: str,
    out: Path | None = None,
    text: Path | None = None,
    images: Path | None = None,
    only: str | None = None,
    length: int | None = None,
    tokens: str | None = None,
    contexts: int = 64,
    rows: str | None = None,
    layers: str | None = None,
    batch_size: int = 8,
    dtype: Literal["float32", "float16", "bfloat16", "float64"] = "float32",
    nulls: int = options.BANDS,
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
    """Run a model and measure position inside it.

    Measure hidden states, attention and heads layer by layer; then permute tokens, shift positions
    and show images without content. `--only substitution` replaces the position table by its
    explanations and measures what the model loses. Without --text, --images or --tokens the
    inputs are random tokens or pixels; rotary use is measured on 16 contexts that a causal language
    model samples itself. Ctrl-C keeps what has been measured so far.
    """
    with stage("Starting"):
        from posprobe.measure import analyze_model
        from posprobe.measurements.model import Contexts
        from posprobe.report import check_place, default_place, forward_name

        folder = out or default_place(forward_name(ref), {(ref, None)})
        check_place(folder)
    analysis = analyze_model(
        ref,
        Contexts(text, images, contexts, length, batch_size, seed, _token_ids(tokens)),
        only=options.names_of(only),
        positions=options.parse_rows(rows),
        layers=options.parse_layers(layers),
        nulls=nulls,
        device=device,
        device_map=device_map,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        allow_missing=allow_missing,
        revision=revision,
        offline=offline,
        command=typed(),
    )
    if analysis.stopped:
        received.clear()  # what was measured is kept, and says so
    print_analysis(analysis.to_dict(), analysis.save(folder), as_json=as_json, verbose=verbose)


def _token_ids(text: str | None) -> Path | Literal["random"] | None:
    if text is None:
        return None
    return "random" if text == "random" else Path(text)
