"""Relative positions: which tensors hold them, and what these say about each distance.

``relative.toml`` has one entry for each way in which the architectures store them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.data import read_data
from posprobe.families.names import dotted

Kind: TypeAlias = Literal[
    "buckets", "window", "log window", "mirrored window", "two axes", "displacements", "distances",
    "log buckets", "prompt buckets", "projected",
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
    size_keys, sizes
        Of buckets: what a configuration calls their number and the largest distance, and what
        these are where it says nothing; 0 buckets for as many as the table has.
    heads_first
        Of buckets: whether the table is stored as ``[heads, buckets]``.
    side, parts
        Of buckets of places on a page: which side of it distances are along, and in how many parts.
    """

    kind: Kind
    tensors: tuple[str, ...]
    what: str
    backwards: bool = False
    size_keys: tuple[str, str] = (
        "relative_attention_num_buckets", "relative_attention_max_distance",
    )  # fmt: skip
    sizes: tuple[int, int] = (0, 128)
    heads_first: bool = False
    side: str = ""
    parts: int = 0


@cache
def rules() -> tuple[RelativeRule, ...]:
    """Read ``relative.toml``, once."""
    return tuple(RelativeRule(**entry) for entry in read_data("families/relative.toml")["rules"])


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
    for rule in rules():
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
