"""What a model's own modules say about position: the truth that posprobe is compared with.

Nothing here comes from posprobe. Rules look at the modules of the built model and at their code
(`truth_code`); what they cannot tell is decided by hand in `coverage_reviewed.toml`, one reason per
entry. A table that neither a rule nor an entry decides is reported as undecided, never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isqrt, prod
from typing import Any

import truth_code
from torch import nn
from truth_models import Built
from truth_reviewed import entry_for
from truth_rows import class_of, is_vision, offset_rows, patch_rows, row_count

#: Modules whose parameters are never tables of positions by themselves. A reviewed entry may still
#: name one of them (a projection of relative positions).
PLAIN = (
    nn.Linear,
    nn.Bilinear,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.PReLU,
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.GRUCell,
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
)
CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList)


@dataclass(frozen=True)
class Fact:
    """One thing that the model does about position.

    Parameters
    ----------
    scheme
        ``learned``, ``fixed`` (a formula's values, stored), ``formula`` (computed, not stored),
        ``rotary``, ``relative`` or ``alibi``.
    part
        Path of the module that does it.
    tensors
        Names in the file: the table, or for a relative scheme every tensor that must be named.
    allowed
        Names in the file that belong to the same scheme and may be named as well.
    rows
        Rows of the table, or None where the tensor is not one table of rows.
    special
        Rows that are no positions: padding, offsets, CLS, distillation, registers.
    grid
        Height and width of a table of patches, None where it is a sequence or not known.
    any_of
        For a name in ``tensors``, the tensors of its module: naming one of them is enough (an MLP).
    factored
        Whether the table holds one axis or one part of a position, summed with others.
    optional
        Whether silence about it is right as well.
    detail
        Numbers for the record, such as a rotary embedding's width and base.
    evidence
        The rule, or the reviewed entry's reason.
    """

    scheme: str
    part: str
    tensors: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    rows: int | None = None
    special: tuple[int, ...] = ()
    grid: tuple[int, int] | None = None
    any_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    factored: bool = False
    optional: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)
    evidence: str = ""


@dataclass(frozen=True)
class Undecided:
    """A tensor about which neither a rule nor a reviewed entry says anything."""

    model: str
    tensor: str
    owner: str
    shape: tuple[int, ...]


# Facts -------------------------------------------------------------------------------------------


def owner_of(modules: Mapping[str, nn.Module], path: str) -> tuple[str, nn.Module, str]:
    """Lead from a module to the one whose code uses it, past lists; with the attribute's name."""
    owner, _, attribute = path.rpartition(".")
    while isinstance(modules[owner], CONTAINERS) and owner:
        owner, _, attribute = owner.rpartition(".")
    return owner, modules[owner], attribute


def tables(
    model_built: Built,
) -> Iterator[tuple[str, str, nn.Module, str, nn.Module | None, Any]]:
    """List the tensors that could be tables.

    Each with its owner's path, the owner, the attribute, the embedding module if it is one, and
    the tensor itself.
    """
    modules = dict(model_built.model.named_modules(remove_duplicate=False))
    for path, module in modules.items():
        if isinstance(module, PLAIN) or type(module).__module__.startswith(
            "torch.nn.utils"
        ):
            continue
        if isinstance(module, nn.Embedding) or is_embedding(module):
            owner_path, owner, attribute = owner_of(modules, path)
            yield f"{path}.weight", owner_path, owner, attribute, module, module.weight
            continue
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None:
                continue
            owner_path, owner, attribute = path, module, name
            if isinstance(module, nn.ParameterList):
                owner_path, owner, attribute = owner_of(modules, f"{path}.{name}")
            full_name = f"{path}.{name}" if path else name
            yield full_name, owner_path, owner, attribute, None, tensor


def is_embedding(module: nn.Module) -> bool:
    """Whether a module of the library's own looks up rows of its `weight`."""
    weight = module._parameters.get("weight")
    return (
        type(module).__name__.endswith("Embedding")
        and weight is not None
        and weight.ndim == 2
    )


def verdict(
    model_built: Built,
    owner: nn.Module,
    attribute: str,
    table: nn.Module | None,
    tensor: Any,
) -> tuple[str | None, Mapping[str, Any], str]:
    """Decide what a tensor is: its kind (None: undecided), its reviewed entry, the evidence."""
    kind = type(owner).__name__
    entry = entry_for(model_built.name, kind, attribute, tensor.ndim)
    if entry is not None:
        return entry["kind"], entry, f"reviewed: {entry['reason']}"
    if table is not None and type(table) is not nn.Embedding:
        words = truth_code.identifiers(class_of(table))
        if any(truth_code.COUNTS.search(word) for word in words):
            return (
                "positions",
                {},
                f"rule: {type(table).__name__} makes row numbers itself",
            )
    use = truth_code.use(class_of(owner), attribute)
    if table is not None:
        is_by_position = truth_code.by_position(use)
        if is_by_position is None:
            return None, {}, ""
        text = f"rule: {kind}.{attribute} is called with {sorted(use.direct)[:4]}"
        return ("positions" if is_by_position else "not"), {}, text
    shape = tuple(tensor.shape)
    if not tensor.dtype.is_floating_point or sum(s > 1 for s in shape) < 2:
        return "not", {}, "rule: a vector or integers"
    if attribute in ("weight", "bias") or (
        use.multiplied and not use.is_added and not use.passed_to and not use.indexed
    ):
        return "not", {}, "rule: a weight, a bias or a factor"
    return None, {}, ""


def find_facts(model_built: Built) -> tuple[list[Fact], list[Undecided]]:
    """Collect what a model does about position."""
    facts: list[Fact] = []
    undecided: list[Undecided] = []
    relative: dict[str, list[tuple[str, bool, str]]] = {}
    reached: set[int] = set()
    for full_name, owner_path, owner, attribute, table, tensor in tables(model_built):
        stored = model_built.stored_name.get(full_name)
        kind, entry, evidence = verdict(model_built, owner, attribute, table, tensor)
        if kind is None:
            if stored in model_built.stored:
                undecided.append(
                    Undecided(
                        model_built.name,
                        full_name,
                        type(owner).__name__,
                        tuple(tensor.shape),
                    )
                )
            continue
        if kind == "not" or (
            kind == "positions" and sum(s > 1 for s in tensor.shape) < 2
        ):
            continue
        if kind in ("relative", "relative-allowed"):
            if stored in model_built.stored and id(tensor) not in reached:
                reached.add(id(tensor))
                relative.setdefault(owner_path, []).append(
                    (stored, kind == "relative", evidence)
                )
            continue
        if stored not in model_built.stored:
            if kind in ("positions", "formula"):
                facts.append(
                    Fact("formula", owner_path, optional=True, evidence=evidence)
                )
            continue
        if id(tensor) in reached or kind in ("formula", "rotary"):
            continue
        reached.add(id(tensor))
        facts.append(absolute(stored, owner_path, owner, table, tensor, entry, evidence))
    facts += relative_facts(model_built, relative)
    facts += rotary_facts(model_built)
    facts += formula_facts(model_built)
    facts += model_facts(model_built)
    return facts, undecided


def absolute(
    stored: str,
    path: str,
    owner: nn.Module,
    table: nn.Module | None,
    tensor: Any,
    entry: Mapping[str, Any],
    evidence: str,
) -> Fact:
    """Describe one table of absolute positions."""
    shape = tuple(tensor.shape)
    sines = (
        table is not None
        and type(table) is not nn.Embedding
        and "sin" in truth_code.called_functions(class_of(table))
    )
    frozen = sines or is_frozen(owner, tensor)
    scheme = entry.get("scheme", "fixed" if frozen else "learned")
    rows: int | None
    rows, grid = row_count(shape, bool(entry.get("channels_first")))
    special: tuple[int, ...] = ()
    layout = entry.get("layout")
    if layout == "blocks" and shape[1] == 1:
        layout = "square"
        rows, grid = row_count(shape, channels_first=False)
    if layout == "blocks":
        rows, grid = None, None
    elif "axis" in entry:
        rows, grid = shape[entry["axis"]], None
    elif layout == "stack" or (layout != "square" and entry.get("factored")):
        rows, grid = (rows if layout != "stack" else None), None
    elif layout == "square":
        special = tuple(range(entry.get("special", 0)))
        side = isqrt(rows - len(special))
        grid = (side, side) if side * side == rows - len(special) else None
    elif layout == "last":
        special = (rows - 1,)
        side = isqrt(rows - 1)
        grid = (side, side)
    elif layout == "grid":
        grid = tuple(entry["grid"])
        trailing = entry.get("trailing", 0)
        special = tuple(range(rows - prod(grid) - trailing)) + tuple(
            range(rows - trailing, rows)
        )
    elif "special" in entry:
        special = tuple(range(entry["special"]))
    elif grid is None:
        patches = patch_rows(owner, rows) if is_vision(owner) else None
        if patches:
            special, grid = patches
        else:
            special = offset_rows(owner, table)
    return Fact(
        scheme,
        path,
        (stored,),
        rows=rows,
        special=special,
        grid=grid,
        factored=bool(entry.get("factored")) and layout != "square",
        optional=bool(entry.get("optional")),
        evidence=evidence,
    )


def is_frozen(owner: nn.Module, tensor: Any) -> bool:
    """Whether a tensor does not train although the module around it does."""
    return not tensor.requires_grad and any(p.requires_grad for p in owner.parameters())


def relative_facts(
    model_built: Built, groups: Mapping[str, list[tuple[str, bool, str]]]
) -> Iterator[Fact]:
    """One fact per model for all its relative tensors, and the projections that go with them."""
    required_names = [
        name for group in groups.values() for name, required, _ in group if required
    ]
    allowed = [
        name for group in groups.values() for name, required, _ in group if not required
    ]
    groups_of: dict[str, tuple[str, ...]] = {}
    for path, module in model_built.model.named_modules():
        for name in module._modules:
            entry = entry_for(model_built.name, type(module).__name__, f"{name}[]")
            if entry is None or entry["kind"] not in ("relative", "relative-allowed"):
                continue
            prefix = f"{path}.{name}." if path else f"{name}."
            inner_names = [
                s
                for k, s in model_built.stored_name.items()
                if k.startswith(prefix) and s in model_built.stored
            ]
            weights = [s for s in inner_names if s.endswith("weight")]
            if entry["kind"] == "relative" and weights:
                required_names.append(weights[0])
                groups_of[weights[0]] = tuple(inner_names)
                allowed += [s for s in inner_names if s != weights[0]]
            else:
                allowed += inner_names
    if required_names:
        reasons = {e for group in groups.values() for _, required, e in group if required}
        yield Fact(
            "relative",
            "",
            tuple(dict.fromkeys(required_names)),
            tuple(dict.fromkeys(allowed)),
            any_of=groups_of,
            evidence="; ".join(sorted(reasons))
            or "reviewed: projections of relative positions",
        )


def rotary_facts(model_built: Built) -> Iterator[Fact]:
    """One fact per rotary module (layers of one part counted once)."""
    parts: dict[str, Fact] = {}
    for path, module in model_built.model.named_modules():
        name = type(module).__name__
        entry = entry_for(model_built.name, name, "()")
        by_rule = re.search(r"Rotary|RoPE|Rope(?!n)", name) is not None
        if entry is not None and entry["kind"] != "rotary":
            continue
        if not by_rule and entry is None:
            continue
        part = re.sub(r"\.(layers?|blocks?|h|encoder|stages)\.\d.*", "", path) or path
        widths = {
            key: 2 * value.shape[-1]
            for key, value in module._buffers.items()
            if value is not None and key.endswith("inv_freq") and "original" not in key
        }
        config = getattr(module, "config", None)
        parameters = getattr(config, "rope_parameters", None)
        detail = {"class": name, "width": widths, "rope_parameters": plain(parameters)}
        allowed = tuple(
            model_built.stored_name[full_name]
            for key in [*module._parameters, *module._buffers]
            if (full_name := f"{path}.{key}" if path else key) in model_built.stored_name
        )
        evidence = f"reviewed: {entry['reason']}" if entry else f"rule: module {name}"
        if part not in parts:
            parts[part] = Fact(
                "rotary", part, allowed=allowed, detail=detail, evidence=evidence
            )
    yield from parts.values()


def plain(value: Any) -> Any:
    """Make a value fit for JSON."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def formula_facts(model_built: Built) -> Iterator[Fact]:
    """One fact per module that computes sines and cosines of positions and stores nothing."""
    reached: set[str] = set()
    for path, module in model_built.model.named_modules():
        name = type(module).__name__
        if name in reached or re.search(
            r"Rotary|Rope|RoPE|Time[Ss]tep|FourierEmbedding", name
        ):
            continue
        if not re.search(r"Pos|Sin", name) or isinstance(module, nn.Embedding):
            continue
        if {"sin", "cos"} <= truth_code.called_functions(class_of(module)):
            reached.add(name)
            yield Fact(
                "formula", path, optional=True, evidence=f"rule: {name} computes sin, cos"
            )


#: Modules that pass a state from place to place.
STATES = re.compile(
    r"Mamba|S6|SSM|LSTM|Rwkv|RgLru|Rglru|DeltaNet|DeltaAttention|Lightning|Recurrent|GRU"
)


def instead_of_positions(model_built: Built) -> list[str]:
    """Say what else tells places apart: convolutions over neighbours, recurrence."""
    kinds = set()
    for module in model_built.model.modules():
        if isinstance(module, nn.modules.conv._ConvNd):
            windows = zip(module.kernel_size, module.stride, strict=True)
            if any(kernel > stride for kernel, stride in windows):
                kinds.add("convolution")
        if STATES.search(type(module).__name__) or isinstance(module, nn.RNNBase):
            kinds.add("recurrence")
    return sorted(kinds)


def model_facts(model_built: Built) -> Iterator[Fact]:
    """Facts that a reviewed entry states for a whole model or part of one (attribute ``*``)."""
    parts = {
        type(module).__name__: path for path, module in model_built.model.named_modules()
    }
    for name, path in parts.items():
        entry = entry_for(model_built.name, name, "*")
        if entry is not None and entry["kind"] in ("alibi", "formula"):
            optional = entry["kind"] == "formula"
            reason = f"reviewed: {entry['reason']}"
            yield Fact(entry["kind"], path, optional=optional, evidence=reason)
