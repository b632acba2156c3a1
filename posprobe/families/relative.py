"""Relative positions: which tensors hold them.

This is data: one `RelativeRule` for each way in which the architectures store them. What the
tensors say about each distance is read in `posprobe.families.relative_layout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.families.names import dotted

Kind: TypeAlias = Literal[
    "buckets", "window", "log window", "mirrored window", "two axes", "displacements", "distances",
    "log buckets", "projected",
]  # fmt: skip


@dataclass(frozen=True)
class RelativeRule:
    """A way to store relative positions.

    Parameters
    ----------
    kind
        How the numbers are found for a distance.
    tensors
        Endings of the names that belong together; the first alone identifies the rule.
    what
        What it is, for people.
    backwards
        Whether distances count query minus key.
    """

    kind: Kind
    tensors: tuple[str, ...]
    what: str
    backwards: bool = False


RULES: tuple[RelativeRule, ...] = (
    RelativeRule("buckets", ("relative_attention_bias.weight",), "T5's bias per bucket"),
    RelativeRule("buckets", ("relpos_bias.rel_embedding",), "T5X's bias per bucket"),
    RelativeRule("buckets", ("attn_rel_b.weight",), "T5's bias per bucket, as llama.cpp has it"),
    RelativeRule("buckets", ("rel_attn_embed.weight",), "WavLM's bias per bucket"),
    RelativeRule("buckets", ("rel_pos_bias.weight",), "LayoutLM's bias per bucket"),
    RelativeRule("buckets", ("rel_pos_x_bias.weight",), "LayoutLM's bias per bucket across"),
    RelativeRule("buckets", ("rel_pos_y_bias.weight",), "LayoutLM's bias per bucket down"),
    RelativeRule("buckets", ("position_bias.relative_attention_bias",), "CPM-Ant's bias"),
    RelativeRule(
        "window", ("relative_position_bias_table",), "Swin's bias per displacement", backwards=True
    ),
    *(
        RelativeRule(
            "log window",
            (f"{mlp}.{first}.weight", f"{mlp}.{first}.bias", f"{mlp}.{second}.weight"),
            "Swin v2's bias, a small network of the displacement",
            backwards=True,
        )
        for mlp, first, second in (
            ("continuous_position_bias_mlp", "0", "2"),
            ("cpb_mlp", "0", "2"),
            ("meta_mlp", "fc1", "fc2"),
            ("rel_pos.mlp", "fc1", "fc2"),
            ("shared_rel_pos.mlp", "fc1", "fc2"),
        )
    ),
    RelativeRule(
        "mirrored window", ("attention_biases",), "a bias per distance, as in LeViT and TinyViT"
    ),
    RelativeRule(
        "two axes", ("rel_pos_h", "rel_pos_w"), "ViTDet's vectors by row and column", backwards=True
    ),
    RelativeRule("two axes", ("height_rel", "width_rel"), "BoTNet's vectors by row and column"),
    RelativeRule(
        "distances", ("distance_embedding.weight",), "Shaw's vector per distance", backwards=True
    ),
    RelativeRule("distances", ("pe_k.weight",), "Shaw's vector per distance", backwards=True),
    RelativeRule(
        "distances", ("rel_pos_emb.weight",), "Shaw's vector per distance", backwards=True
    ),
    RelativeRule("distances", ("emb_rel_k", "emb_rel_v"), "Shaw's vector per distance"),
    RelativeRule(
        "distances", ("relative_attention_bias_layer.bias_values.weight",), "a bias per distance"
    ),
    RelativeRule("displacements", ("self_attn.pos_emb",), "LambdaNet's vector per displacement"),
    RelativeRule(
        "log buckets", ("rel_embeddings.weight",), "DeBERTa's vector per distance", backwards=True
    ),
    *(
        RelativeRule(
            "projected", names, "a projection, as in Transformer-XL, and no numbers per distance"
        )
        for names in (
            ("linear_pos.weight", "pos_bias_u", "pos_bias_v"),
            ("rel_attn.r", "rel_attn.r_r_bias", "rel_attn.r_w_bias"),
            ("attention.r_kernel", "attention.r_r_bias", "attention.r_w_bias"),
            ("relative_k_proj.weight", "bias_u", "bias_v"),
            ("relative_position_embedding.pos_proj.weight",),
            ("rel_bias_module.pos_proj.weight",),
            ("relative_pos_embeddings.weight", "relative_pos_embeddings.bias"),
            ("rel_logits_proj.proj",),
            ("attn.pos_proj.weight", "attn.pos_proj.bias"),
        )
    ),
)


#: What is stored and not used: in UDOP's decoder, whose layers have a bias of their own, and in T5
#: between decoder and encoder, where no key is nearer than another.
UNUSED = ("decoder.relative_bias.", "EncDecAttention.relative_attention_bias.")


@dataclass(frozen=True)
class Relative:
    """One relative encoding: its rule and its tensors, in the order of the rule."""

    rule: RelativeRule
    tensors: tuple[TensorInfo, ...]

    @property
    def prefix(self) -> str:
        """The module that holds it."""
        return dotted(self.tensors[0].name).removesuffix(self.rule.tensors[0]).rstrip(".")


def find_relative(checkpoint: Checkpoint) -> Iterator[Relative]:
    """List the relative encodings of a checkpoint, layer by layer."""
    by_ending: dict[str, list[RelativeRule]] = {}
    for rule in RULES:
        by_ending.setdefault(rule.tensors[0].rpartition(".")[2], []).append(rule)
    for name in sorted(checkpoint.tensors, key=_natural):
        plain = dotted(name)
        for rule in by_ending.get(plain.rpartition(".")[2], ()):
            first = rule.tensors[0]
            if not f".{plain}".endswith(f".{first}") or any(name in plain for name in UNUSED):
                continue
            module = plain.removesuffix(first)
            names = [name, *(module + other for other in rule.tensors[1:])]
            stored = tuple(checkpoint.tensors[n] for n in names if n in checkpoint.tensors)
            if len(stored) == len(names) or rule.kind == "projected":
                yield Relative(rule, stored)
            break


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort layer 2 before layer 10, by the length of the number: it may have any."""
    return [
        (len(part.lstrip("0")), part.lstrip("0")) if part.isdecimal() else (-1, part)
        for part in re.split(r"[._/]", name)
    ]
