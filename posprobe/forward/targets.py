"""What of a model is replaced, and by what: rows of its table, rotations, or heads' biases."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import Floats
from posprobe.analyses.substitution import Scheme
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.explain import REMOVED, Explanation, explanations, itself, mean_row
from posprobe.forward.models import required
from posprobe.forward.permute import position_table, restored
from posprobe.forward.states import final_states, output_of, positions_of
from posprobe.layouts import Layout, Sequence as Line, cut
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    import torch

#: Most bands into which the frequencies of rotations are sorted.
BANDS = 8
#: What layers of models with ALiBi are given its biases as, by model type.
_ALIBI = {"bloom": "alibi", "mpt": "position_bias"}
#: What makes Falcon's biases, in the module of its class.
_BUILD = "build_alibi_tensor"
#: What stands in the place of all rotations, or of all heads' biases, when they are removed.
NOTHING = "none"


@dataclass(frozen=True, eq=False)
class Target:
    """What is replaced, and by what.

    Parameters
    ----------
    path
        Name of the model's parameter or buffer, of several the first.
    scheme
        Whether it is a table, the frequencies of rotations, or heads' biases.
    slots
        Tensors with the rows of each that are replaced, in the order of the substitutes' rows.
    layout, start
        Of the positions.
    substitutes
        The first is what stands there now.
    removed
        Name of the one that counts as removing it.
    around
        What has to be in force while the model runs.
    """

    path: str
    scheme: Scheme
    slots: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    layout: Layout
    start: int
    substitutes: tuple[Explanation, ...]
    removed: str
    around: Callable[[], AbstractContextManager[None]] = nullcontext

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let it be replaced within the block; afterwards it is as it was, whatever happens."""
        with restored(*(tensor for tensor, _ in self.slots)), self.around():
            yield

    def write(self, rows: Floats) -> None:
        """Put rows ``[n, d]`` in place."""
        begin = 0
        for tensor, places in self.slots:
            part = required("torch").from_numpy(rows[begin : begin + len(places)])
            flat = tensor.data.view(-1, rows.shape[1])
            flat[places] = part.to(device=tensor.device, dtype=tensor.dtype)
            begin += len(places)


def find_target(
    model: Any,
    batch: torch.Tensor,
    *,
    tables: Mapping[str, Array],
    rows: slice | None,
    explain: bool,
    seed: int,
    title: str,
) -> Target:
    """Find what of a model is replaced: its table, or else its rotations or heads' biases.

    Parameters
    ----------
    model, batch
        The model, and a batch on its device.
    tables, rows, explain, seed, title
        As for `posprobe.forward.substitution_effect`.

    Raises
    ------
    UsageError
        If there is nothing that can be replaced, or it cannot be told which rows are positions.
    """
    try:
        path, table = position_table(model, title)
    except UsageError as error:
        target = _rotations(model, batch) or _biases(model, batch) or _slopes(model, batch)
        if target is None:
            raise UsageError(
                f"{error} Of several parts name one, as REF#decoder; of models without a table "
                "rotations and the biases of T5 and ALiBi are taken away."
            ) from error
        if tables or rows is not None:
            raise UsageError(
                f"{title}: it has no table of positions, so neither positions nor tables can be "
                "chosen. Leave out --rows (rows, tables)."
            ) from error
        _check_it_is_used(model, batch[:1], target, title)
        return target
    layout, places = _positions(model, batch, table, title)
    start = 0
    if rows is not None:
        start, stop, layout = cut(layout, rows, title)
        places = places[start:stop]
    if layout.size == 1:
        raise UsageError(
            f"{title}: one position is replaced, and its row is the mean row itself. Use longer "
            "contexts, or more positions (--rows)."
        )
    values = table.detach().reshape(-1, table.shape[-1])[places].cpu().double().numpy()
    own = PositionTable(values, layout, title, Source(title, title), start=start)
    made = [*explanations(own, seed=seed)] if explain else [itself(values), mean_row(values)]
    for label, given in tables.items():
        other = np.asarray(given, dtype=np.float64)
        if other.shape != values.shape or not np.isfinite(other).all():
            raise UsageError(
                f"{title}: {label} is of shape {list(other.shape)}; finite numbers of shape "
                f"{list(values.shape)} are expected in the place of the rows that contexts reach."
            )
        made.append(Explanation(label, label, other, "given"))
    return Target(path, "table", ((table, places),), layout, start, tuple(made), REMOVED)


def _positions(
    model: Any, batch: torch.Tensor, table: torch.Tensor, title: str
) -> tuple[Layout, torch.Tensor]:
    """Return how positions lie, and the rows of the table that are theirs."""
    places = _rows_reached(model, batch[:1], table, title)
    if batch.ndim == 2:
        return Line(len(places)), places
    layout = positions_of(model, batch, final_states(model, batch[:1]).shape[1])
    if layout.size > len(places):
        raise UsageError(f"{title}: its table has {len(places)} rows for a {layout} of patches.")
    return layout, places[len(places) - layout.size :]


def _rows_reached(model: Any, batch: torch.Tensor, table: torch.Tensor, title: str) -> torch.Tensor:
    """Return the rows of the table that a context reaches, in the order of its positions.

    Models count from 0, from 2, or on from padding; what they look up tells.
    """
    pt = required("torch")
    every: torch.Tensor = pt.arange(table.numel() // table.shape[-1], device=table.device)
    if batch.ndim == 4:
        return every
    seen: list[Any] = []
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        """Sees what is looked up in the table."""

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = kwargs or {}
            if function is pt.nn.functional.embedding:
                given = dict(zip(("input", "weight"), args, strict=False)) | named
                if given["weight"] is table:
                    seen.append(given["input"])
            elif function is pt.Tensor.__getitem__ and args[0] is table and table.ndim == 2:
                seen.append(every[args[1]])
            return function(*args, **named)

    with Watch():
        output_of(model, batch)
    if not seen or seen[0].numel() != batch.shape[1]:
        raise UsageError(
            f"{title}: it cannot be told which rows of its table are the positions of a context."
        )
    found: torch.Tensor = seen[0].reshape(-1).to(table.device)
    if len(pt.unique(found)) != len(found):
        raise UsageError(f"{title}: several tokens of a context have the same position.")
    return found


def _rotations(model: Any, batch: torch.Tensor) -> Target | None:
    """Sort the frequencies of rotations into bands, and stop the rotations of some."""
    found = _named(model.named_buffers(), lambda name: name.endswith("inv_freq"))
    # Falcon has the frequencies also where ALiBi stands in their place.
    alibi = getattr(getattr(model, "config", None), "alibi", False)
    if not found or batch.ndim != 2 or alibi:
        return None
    # Of each ladder its own ranks: models have one, or a copy in each layer, or one per kind.
    ladders = [tensor.detach().cpu().double().numpy().ravel() for tensor in found.values()]
    ranks = [np.argsort(np.argsort(-ladder, kind="stable")) for ladder in ladders]
    bands = [rank * min(BANDS, len(rank)) // len(rank) for rank in ranks]
    band, frequencies = np.concatenate(bands), np.concatenate(ladders)[:, None]
    count = int(band.max()) + 1

    def without(some: Any, name: str, label: str, kind: Any, size: int | None) -> Explanation:
        return Explanation(name, label, np.where(some[:, None], 0.0, frequencies), kind, size)

    def lengths(some: Any) -> str:
        turning = frequencies[some[:, None] & (frequencies > 0)]
        if not turning.size:
            return "no turn"
        ends = [f"{2 * np.pi / end:.3g}" for end in (turning.max(), turning.min())]
        return f"{' to '.join(dict.fromkeys(ends))} positions"

    made = [Explanation("itself", "all rotations as they are", frequencies, "table")]
    for k in range(count):
        some = band == k
        label = f"without periods of {lengths(some)}"
        made.append(without(some, f"band_{k + 1}", label, "band", k + 1))
    for k in range(2, count):
        some = band < k
        label = f"without periods up to {lengths(some).rpartition(' to ')[2]}"
        made.append(without(some, f"fastest_{k}", label, "fastest", k))
    made.append(without(band >= 0, NOTHING, "no rotation", "removed", None))
    return _whole("rotary", found, batch, made, width=1)


def _biases(model: Any, batch: torch.Tensor) -> Target | None:
    """Make the biases of each head the same at all offsets, which a softmax does not see."""
    found = _named(
        model.named_parameters(), lambda name: name.endswith("relative_attention_bias.weight")
    )
    if not found or batch.ndim != 2:
        return None
    tables = [tensor.detach().cpu().double().numpy() for tensor in found.values()]
    if len({table.shape[1:] for table in tables}) > 1 or tables[0].ndim != 2:
        return None
    values = np.concatenate(tables)
    flat = np.concatenate([np.broadcast_to(each.mean(axis=0), each.shape) for each in tables])
    made = _one_by_one(values, flat, np.arange(values.shape[1])[None])
    return _whole("relative", found, batch, made, width=values.shape[1])


def _one_by_one(values: Floats, flat: Floats, heads: NDArray[np.intp]) -> list[Explanation]:
    """Set the biases of one head after the other to their mean, and those of all."""
    made = [Explanation("itself", "all biases as they are", values, "table")]
    for head in range(heads.size):
        label = f"head {head}: its mean at all offsets"
        alone = np.where(heads == head, flat, values)
        made.append(Explanation(f"head_{head}", label, alone, "head", head + 1))
    made.append(Explanation(NOTHING, "all heads: their mean at all offsets", flat, "removed"))
    return made


def _slopes(model: Any, batch: torch.Tensor) -> Target | None:
    """Take ALiBi's slopes away: biases that are the same at all offsets, for which 0 stands."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", "") == "falcon" and getattr(config, "alibi", False):
        return _slopes_of_falcon(model, batch)
    name = _ALIBI.get(getattr(config, "model_type", ""), "")
    takers = [m for m in model.modules() if name in inspect.signature(m.forward).parameters]
    # Layers hand it on to their attention.
    last = [m for m in takers if not any(m is not o and o in set(m.modules()) for o in takers)]
    if not name or not last or batch.ndim != 2:
        return None
    pt, heads = required("torch"), int(config.num_attention_heads)
    scale = pt.ones(heads, dtype=pt.float64, device=batch.device)

    def scaled(_: Any, args: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        bias = named.get(name)
        if bias is None:
            return args, named
        by_head = bias.reshape(-1, heads, *bias.shape[-2:])
        return args, {**named, name: (by_head * scale[:, None, None].to(bias)).reshape(bias.shape)}

    @contextmanager
    def around() -> Iterator[None]:
        with ExitStack() as hooked:
            for module in last:
                hooked.enter_context(module.register_forward_pre_hook(scaled, with_kwargs=True))
            yield

    return _scaled(scale, batch, around)


def _slopes_of_falcon(model: Any, batch: torch.Tensor) -> Target | None:
    """Scale the biases where Falcon makes them: it also puts them into the mask of its layers."""
    home = sys.modules[type(model).__module__]
    build: Any = getattr(home, _BUILD, None)
    if build is None or batch.ndim != 2:
        return None
    pt = required("torch")
    heads = int(model.config.num_attention_heads)
    scale = pt.ones(heads, dtype=pt.float64, device=batch.device)

    def scaled(*args: Any, **named: Any) -> Any:
        bias = build(*args, **named)
        by_head = bias.reshape(-1, heads, *bias.shape[-2:])
        return (by_head * scale[:, None, None].to(bias)).reshape(bias.shape)

    @contextmanager
    def around() -> Iterator[None]:
        with ExitStack() as after:
            after.callback(setattr, home, _BUILD, build)
            setattr(home, _BUILD, scaled)
            yield

    return _scaled(scale, batch, around)


def _scaled(
    scale: torch.Tensor,
    batch: torch.Tensor,
    around: Callable[[], AbstractContextManager[None]],
) -> Target:
    """Return the biases of heads as what a scale of each, in force in a block, makes of them."""
    ones = np.ones((len(scale), 1))
    made = _one_by_one(ones, np.zeros_like(ones), np.arange(len(scale))[:, None])
    found = _whole("relative", {"ALiBi": scale}, batch, made, width=1)
    return replace(found, around=around)


def _named(tensors: Iterator[Any], is_one: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    found = {name: tensor for name, tensor in tensors if is_one(name) and "original" not in name}
    return {name: tensor for name, tensor in found.items() if tensor.device.type != "meta"}


def _whole(
    scheme: Scheme,
    found: Mapping[str, torch.Tensor],
    batch: torch.Tensor,
    made: list[Explanation],
    *,
    width: int,
) -> Target:
    pt = required("torch")
    slots = tuple(
        (tensor, pt.arange(tensor.numel() // width, device=tensor.device))
        for tensor in found.values()
    )
    layout = Line(batch.shape[1])
    return Target(next(iter(found)), scheme, slots, layout, 0, tuple(made), NOTHING)


def _check_it_is_used(model: Any, batch: torch.Tensor, target: Target, title: str) -> None:
    """Refuse a model that keeps what it once computed: what is written would change nothing."""
    before = final_states(model, batch)
    with target.held():
        target.write(target.substitutes[-1].rows)
        after = final_states(model, batch)
    if bool((before == after).all()):
        raise UsageError(
            f"{title}: {target.path} makes no difference to its states, or not any more once it "
            "has run, so that nothing can be put in its place."
        )
