"""Where architectures keep what leads from a table of positions to a layer's attention.

They are listed in ``layer_rules.toml``. What bears one of these architectures' names and computes
in another way is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from posprobe import settings
from posprobe.checkpoints import Checkpoint
from posprobe.data import read_data
from posprobe.errors import UsageError


@dataclass(frozen=True)
class Rule:
    """Where an architecture keeps what leads from its table to queries and keys.

    Names are relative to the module of the table, ``{}`` is the layer; without it all layers share
    their weights. ``fused`` says how one tensor holds queries, keys and values: below each other as
    linear layers store them, or side by side as GPT-2's Conv1D does. ``first_norm`` stands between
    the sum of the embeddings and the first layer, ``projection`` after it (a question mark: in some
    models), and ``norm`` before the attention of each layer (pre-LN).
    """

    table: str
    query: str
    key: str = ""
    fused: Literal["", "rows", "columns"] = ""
    norm: str = ""
    first_norm: str = ""
    projection: str = ""
    token_type: str = ""
    eps: float = 1e-12
    causal: bool = False
    heads: tuple[str, ...] = ("num_attention_heads",)
    model_types: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether all layers have the same weights."""
        return "{}" not in self.query


@cache
def rules() -> tuple[Rule, ...]:
    """Read ``layer_rules.toml``, once."""
    return tuple(Rule(**entry) for entry in read_data("families/layer_rules.toml")["rules"])


_KNOWN = (
    "Known are BERT, RoBERTa, ELECTRA, ALBERT, DistilBERT, GPT-2, OPT, BART, mBART, Whisper, ViT, "
    "DeiT, DINOv2 and timm's ViT."
)


def find_rule(checkpoint: Checkpoint, position: str, config: Mapping[str, Any]) -> Rule:
    """Find the one rule whose tensors are there."""
    kind = config.get("model_type")
    found = []
    for rule in rules():
        module = position.removesuffix(rule.table)
        if (
            f".{position}".endswith(f".{rule.table}")
            and f"{module}{rule.query.format(0)}.weight" in checkpoint.tensors
            and (not rule.norm or norm_part(checkpoint, module + rule.norm.format(0), "weight"))
            and kind in (None, *rule.model_types)
        ):
            found.append(rule)
    if len(found) == 1:
        _refuse_variants(checkpoint, config)
        return found[0]
    why = f"how its heads read {position} is not known" + (f" (model_type {kind})" if kind else "")
    known = (r for r in rules() if kind in r.model_types and f".{position}".endswith(f".{r.table}"))
    if not found and (meant := next(known, None)):
        module = position.removesuffix(meant.table)
        names = (f"{module}{name.format(0)}.weight" for name in (meant.query, meant.norm) if name)
        raise UsageError(
            f"{checkpoint.location}: the weights that {position} meets are not in this checkpoint: "
            f"{next(name for name in names if name not in checkpoint.tensors)} is missing. Use the "
            "whole model."
        )
    if found:
        why = (
            f"several architectures have these names beside {position}, and no model_type in "
            "config.json says which this is"
        )
    raise UsageError(f"{checkpoint.location}: {why}. {_KNOWN}")


def _refuse_variants(checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    """Refuse what bears a known architecture's names and computes in another way."""
    groups = (config.get("num_hidden_groups", 1), config.get("inner_group_num", 1))
    if groups != (1, 1):
        raise UsageError(
            f"{checkpoint.location}: its layers share {groups[0]} groups of {groups[1]} sets of "
            "weights, which is not supported: all must share one set."
        )
    if re.search(r"_rpn(_|$)", name := str(config.get("architecture", ""))):
        raise UsageError(
            f"{checkpoint.location}: {name} normalises after its attention, which is not supported."
        )


def count_layers(checkpoint: Checkpoint, module: str, rule: Rule, config: Mapping[str, Any]) -> int:
    """Count the layers whose query weights stand beside the table, or that share one set."""
    if rule.shared:
        return settings.whole(config, "num_hidden_layers", most=settings.MOST_LAYERS) or 1
    found = 1
    while f"{module}{rule.query.format(found)}.weight" in checkpoint.tensors:
        found += 1
    return found


def full_name(checkpoint: Checkpoint, module: str, stated: str) -> str:
    """Return the full name of what a rule states, empty where this model goes without."""
    name = module + stated.removesuffix("?")
    there = not stated.endswith("?") or norm_part(checkpoint, name, "weight")
    return name if stated and there else ""


def norm_part(checkpoint: Checkpoint, name: str, part: Literal["weight", "bias"]) -> str | None:
    """Find a part of a LayerNorm; checkpoints converted from TensorFlow say gamma and beta."""
    other = {"weight": "gamma", "bias": "beta"}[part]
    names = (f"{name}.{part}", f"{name}.{other}")
    return next((name for name in names if name in checkpoint.tensors), None)


def epsilon(checkpoint: Checkpoint, rule: Rule, module: str, config: Mapping[str, Any]) -> float:
    """Return what a model's LayerNorms add to variances."""
    for key in ("layer_norm_eps", "layer_norm_epsilon"):
        if (stated := settings.number(config, key)) is not None:
            return stated
    # Of timm's models only CLIP's normalise before the first layer, and they use 1e-5 throughout.
    is_clip = rule.first_norm == "norm_pre?" and full_name(checkpoint, module, rule.first_norm)
    return 1e-5 if is_clip else rule.eps
