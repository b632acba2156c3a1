"""All that a checkpoint says about position, also what is stored and unused, or missing.

`posprobe inspect` lists it, and the message for a checkpoint without a table says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.families.architectures import has_model_type, load_registry
from posprobe.families.configurations import ADAPTER_KEY, list_sections
from posprobe.families.find import (
    StoredEncoding,
    find_encodings,
    find_unused,
    is_named_position,
    list_in_models,
)

#: Names of convolutions that replace positions in wav2vec 2.0 and relatives, PVT v2 and XCiT.
_CONVOLUTION_NAME = re.compile(r"pos_conv|conv_pos|peg\.|pos_embed\.proj|\.cpe\.")
#: Name in it that projections of patches have, too.
_PATCH_PROJECTION = "pos_embed.proj"
#: Name of the first factor of an embedding's low-rank change, and of an adapter's tensors.
_EMBEDDING_CHANGE = re.compile(r"(.+)\.lora_embedding_A(?:\.\w+)?$")
_ADAPTER_NAME = re.compile(r"\.lora_(?:embedding_)?[AB](?:\.|$)|\.(?:ia3|oft|vera)_\w+")
#: Number of tensors that a message lists if none is known as a table.
_MAX_LISTED_TENSORS = 5


def list_encodings(checkpoint: Checkpoint) -> tuple[StoredEncoding, ...]:
    """List all that a checkpoint says about position, also what cannot be analysed.

    Those of `find_encodings` come first; then tables that are stored and never read, changes of a
    table (LoRA), convolutions, and tables that the architecture has and the file lacks.
    """
    if checkpoint.models:
        return tuple(list_in_models(checkpoint.models, list_encodings))
    encodings = (
        *find_encodings(checkpoint),
        *find_unused(checkpoint),
        *_find_table_changes(checkpoint),
        *_find_convolutions(checkpoint),
    )
    return encodings or tuple(_find_missing_tables(checkpoint))


def _find_table_changes(checkpoint: Checkpoint) -> Iterator[StoredEncoding]:
    """Yield the low-rank changes that adapters make to tables (LoRA: Hu et al. 2022)."""
    for name in checkpoint.tensors:
        match = _EMBEDDING_CHANGE.match(name)
        if match is None or not is_named_position(f"{match[1]}.weight"):
            continue
        info = checkpoint.tensors[name]
        rank, n_rows = info.shape if len(info.shape) == len(("rank", "rows")) else (0, 0)
        evidence = f"LoRA: a change of the table {match[1]}, {n_rows} rows, rank {rank}"
        problem = (
            f"the table itself is in {_describe_base(checkpoint)}. Merge the adapter into "
            "it (merge_and_unload of PEFT), and analyse the merged model."
        )
        yield StoredEncoding("learned", name, evidence, info, problem=problem)


def _describe_base(checkpoint: Checkpoint) -> str:
    adapter = checkpoint.config.get(ADAPTER_KEY)
    base = adapter.get("base_model_name_or_path") if isinstance(adapter, dict) else None
    return f"the base model, {base[:200]}" if isinstance(base, str) else "the base model"


def _find_convolutions(checkpoint: Checkpoint) -> Iterator[StoredEncoding]:
    """Yield the first convolution by which a model tells positions apart."""
    for name in filter(_CONVOLUTION_NAME.search, checkpoint.tensors):
        info: TensorInfo = checkpoint.tensors[name]
        # Diffusion models name the projection of patches so, which mixes all channels.
        if _PATCH_PROJECTION in name and info.shape[1:2] != (1,):
            continue
        evidence = f"the name {name}: a convolution tells positions apart"
        yield StoredEncoding("convolution", "convolution", evidence, info)
        return


def _find_missing_tables(checkpoint: Checkpoint) -> Iterator[StoredEncoding]:
    """Yield the tables that the configured architecture learns and the file does not hold."""
    if not checkpoint.tensors:
        return
    for section in list_sections(checkpoint.config):
        for family in load_registry().families:
            if not has_model_type(family, section.model_type):
                continue
            for rule in family.tables:
                if rule.fixed:
                    continue
                problem = (
                    f"{family.title} has a table {rule.tensors[0]}, and the file does not "
                    "hold it: it may be a shard, or saved without it. Use the whole "
                    "checkpoint."
                )
                evidence = f"model_type is {section.model_type}"
                name = rule.name or "missing"
                yield StoredEncoding("learned", name, evidence, problem=problem)
            return


def describe_no_table(checkpoint: Checkpoint) -> str:
    """Return the message for a checkpoint without a table: what it has instead."""
    encodings = list_encodings(checkpoint)
    notes = "".join(f" Note: {note}." for note in checkpoint.notes)
    if encodings:
        instead = "; ".join(dict.fromkeys(map(_describe_instead, encodings)))
        return (
            f"{checkpoint.location}: it has no table of positions that can be read. It "
            f"has {instead}. `posprobe inspect` lists what the checkpoint says "
            f"about position.{notes}"
        )
    tensors = [name for model in checkpoint.models.values() for name in model.tensors]
    tensors = tensors or list(checkpoint.tensors)
    if ADAPTER_KEY in checkpoint.config or any(map(_ADAPTER_NAME.search, tensors)):
        return (
            f"{checkpoint.location}: it is an adapter, which changes other weights and "
            f"holds no positions. They are those of {_describe_base(checkpoint)}: "
            "name that one."
        )
    listed_names = ", ".join(name[:80] for name in tensors[:_MAX_LISTED_TENSORS])
    model = checkpoint.config.get("model_type")
    return (
        f"{checkpoint.location}: no position table was found among its "
        f"tensors ({len(tensors)}: "
        f"{listed_names}{', ...' if len(tensors) > _MAX_LISTED_TENSORS else ''})"
        + (f" of a {model}" if isinstance(model, str) else "")
        + ", nor another scheme in the configuration."
        + f" If a tensor holds positions, name it with `tensor=NAME`.{notes}"
    )


def _describe_instead(encoding: StoredEncoding) -> str:
    reason = encoding.unused and f"never read: {encoding.unused}"
    details = "; ".join(filter(None, (encoding.evidence, reason, encoding.problem)))
    return f"{encoding.scheme} positions ({details.rstrip('.')})"
