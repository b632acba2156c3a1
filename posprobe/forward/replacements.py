"""What takes the place of a model's positions, and where: tables, rotations, biases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from posprobe import nulls
from posprobe.analyses.breaks.outliers import without
from posprobe.analyses.breaks.seams import seams
from posprobe.analyses.composition.bridging import interpolate_rows
from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.descriptive.closeness import cloud
from posprobe.analyses.descriptive.matching_pursuit import choose_sinusoids
from posprobe.analyses.descriptive.sinusoid import fit_base
from posprobe.analyses.models.experiments import Scheme
from posprobe.analyses.result import centred
from posprobe.analyses.view import view
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.encodings.tables import sincos2d, sinusoidal
from posprobe.errors import UsageError
from posprobe.forward.experiments import position_table, restored
from posprobe.forward.models import required
from posprobe.forward.rotary import frequencies_of
from posprobe.forward.running import final_states, positions_of
from posprobe.layouts import Grid, Layout, Sequence as Line, cut
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    import torch


#: What an explanation is made of: those of one kind differ in their size alone.
Kind: TypeAlias = Literal[
    "table", "components", "sinusoids", "rotations", "ladder", "smoothed", "codes", "repaired",
    "formula", "null", "removed", "given", "band", "head",
]  # fmt: skip

#: How many components, or sinusoids, are kept.
COUNTS = (1, 2, 3, 5, 10, 20, 50)
#: Standard deviations of the Gaussian weights of neighbours, in positions; on a grid, in patches.
SMOOTHED = (1, 2, 4, 8, 16)
#: Fewest positions that are smoothed, or set against waves: of fewer, nothing can be told.
MIN_ROWS = 8
#: Singular values below this share of the largest are rounding.
ROUNDING = 1e-10
#: What stands in the place of every row when the table is removed.
REMOVED = "mean"

_NULLS = {
    "gaussian": "rows in random directions",
    "permuted": "its rows in random order",
    "walk": "a random walk of its steps",
    "stationary": "a smooth random table like it",
}


@dataclass(frozen=True, eq=False)
class Explanation:
    """A table that stands in the place of another.

    Parameters
    ----------
    name
        Its key, such as ``"components_3"``.
    label
        Description in words.
    rows
        ``[n, d]`` float64.
    kind
        Kind of the explanation.
    size
        Number of components, sinusoids or rotations, or of positions over which it is smoothed;
        None where it has no size.
    """

    name: str
    label: str
    rows: Floats = field(repr=False)
    kind: Kind
    size: int | None = None


def explanations(table: PositionTable | Array, *, seed: int = 0) -> tuple[Explanation, ...]:
    """Make the tables that different explanations of a table keep.

    The table itself; its k leading principal components; its k best sinusoids
    (`analyses.descriptive.matching_pursuit`); the rotations that stand out of a smooth spectrum
    (`analyses.composition.planes`); the sinusoid of its shape, and that of the base that
    fits best, each rotated and scaled to fit (Procrustes: Schönemann 1966); the table smoothed; row
    code plus column code; the table without its special rows, or patches; a draw of each null model
    (`posprobe.nulls`); the mean row; zeros. Those that a table does not have are left out: a grid
    has no sinusoids of one axis, a sequence no row code, a table without special rows none to
    replace.

    Parameters
    ----------
    table
        ``[n, d]``.
    seed
        Random seed.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> made = pp.forward.explanations(pp.sinusoidal(32, 8))
    >>> [each.name for each in made][:4]
    ['itself', 'components_1', 'components_2', 'components_3']
    >>> made[0].rows.shape
    (32, 8)
    """
    given = positions(table)
    values = to_numpy(given.values).astype(np.float64)
    mean = values.mean(axis=0)
    around = centred(values)[0]
    grid = isinstance(given.layout, Grid)

    def moved(*parts: Iterable[Explanation]) -> Iterator[Explanation]:
        for each in chain(*parts):
            yield replace(each, rows=mean + each.rows)

    return (
        itself(values),
        *moved(
            _components(around),
            () if grid else _waves(values, around, seed),
            _formulas(around, given.layout),
            _smoothed(around, given.layout),
            _codes(around, given.layout),
        ),
        *_repaired(values, given),
        *moved(_surrogates(around, given.layout, seed)),
        mean_row(values),
        Explanation("zeros", "zeros everywhere", np.zeros_like(values), "removed"),
    )


def itself(values: Floats) -> Explanation:
    """Return a table ``[n, d]`` in its own place."""
    return Explanation("itself", "the table itself", values, "table")


def mean_row(values: Floats) -> Explanation:
    """Return the mean row in the place of every row of a table ``[n, d]``."""
    rows = np.broadcast_to(values.mean(axis=0), values.shape).copy()
    return Explanation(REMOVED, "the mean row everywhere", rows, "removed")


def explained(values: Floats, rows: Floats) -> float | None:
    """Return the share of a table's variance that a table in its place keeps.

    Parameters
    ----------
    values, rows
        ``[n, d]``: the table, and what stands in its place.

    Returns
    -------
    float or None
        1 less the squared distance over that of the rows from their mean, below 0 where the mean
        row would be closer; None of a constant table.
    """
    around = centred(values)[0]
    scale = float(np.abs(around).max(initial=0.0))
    if not scale:
        return None
    whole = float(np.square(around / scale).sum())
    return 1 - float(np.square((values - rows) / scale).sum()) / whole


def _components(around: Floats) -> Iterator[Explanation]:
    left, singular, right = np.linalg.svd(around, full_matrices=False)
    rank = int((singular > ROUNDING * singular[0]).sum()) if singular[0] > 0 else 0
    # The last is all that there are, where they are few.
    for k in sorted({min(k, rank) for k in COUNTS} - {0}):
        rows = (left[:, :k] * singular[:k]) @ right[:k]
        yield _sized("components", k, rows, "leading component")


def _sized(kind: Kind, k: int, rows: Floats, noun: str) -> Explanation:
    """Return what is made of so many parts of a kind."""
    return Explanation(f"{kind}_{k}", noun if k == 1 else f"{k} {noun}s", rows, kind, k)


def _waves(values: Floats, around: Floats, seed: int) -> Iterator[Explanation]:
    """Fit sinusoids, the best ones and those of the rotations, to a sequence."""
    n = len(around)
    if n < MIN_ROWS or not around.any():
        return
    chosen = choose_sinusoids(cloud(values), max(COUNTS)).frequencies
    for k in (k for k in COUNTS if k <= len(chosen)):
        rows = _fitted(around, chosen[k - 1])
        yield _sized("sinusoids", k, rows, "best sinusoid")
    if n < 2 * MIN_ROWS or around.shape[1] < 2:
        return
    turning = view(values, seed=seed).turning.rotations
    if turning:
        k = len(turning)
        rows = _fitted(around, np.array([1 / each.period for each in turning]))
        label = "the rotation found" if k == 1 else f"the {k} rotations found"
        yield Explanation("rotations", f"{label}, alone", rows, "rotations", k)


def _fitted(around: Floats, frequencies: Floats) -> Floats:
    """Return what sinusoids of given frequencies, in cycles per position, keep: ``[n, d]``."""
    angles = 2 * np.pi * np.outer(np.arange(len(around)), frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    basis, _ = np.linalg.qr(waves - waves.mean(axis=0))
    return np.asarray(basis @ (basis.T @ around))


def _formulas(around: Floats, layout: Layout) -> Iterator[Explanation]:
    """Rotate and scale sinusoids of the table's shape onto it."""
    n, d = around.shape
    if n < MIN_ROWS or not around.any() or d % (4 if isinstance(layout, Grid) else 2):
        return
    if isinstance(layout, Grid):
        made = sincos2d(layout.height, layout.width, d)
        rows = _aligned(made.values, around)
        yield Explanation("sinusoid", "2-D sin-cos, rotated to fit", rows, "formula")
        return
    rows = _aligned(sinusoidal(n, d).values, around)
    yield Explanation("sinusoid", "sinusoid, rotated to fit", rows, "formula")
    fit = fit_base(cloud(around), d)
    if fit.bases.size:
        base = fit.base or float(fit.bases[int(np.argmax(fit.cka))])
        rows = _aligned(sinusoidal(n, d, base=base).values, around)
        label = f"ladder of base {base:.3g}, rotated to fit"
        yield Explanation("ladder", label, rows, "ladder")


def _aligned(shape: Array, around: Floats) -> Floats:
    """Rotate and scale a table so that it is as near as it can be: orthogonal Procrustes."""
    from scipy.linalg import orthogonal_procrustes

    source = np.asarray(shape, dtype=np.float64)
    source = source - source.mean(axis=0)
    turn, size = orthogonal_procrustes(source, around)
    return np.asarray(size / np.square(source).sum() * source @ turn)


def _smoothed(around: Floats, layout: Layout) -> Iterator[Explanation]:
    sides = (layout.height, layout.width)
    if len(around) < MIN_ROWS:
        return
    noun = "patch" if isinstance(layout, Grid) else "position"
    cells = around.reshape(*sides, -1)
    for length in (length for length in SMOOTHED if 4 * length <= max(sides)):
        rows = cells
        for axis, size in enumerate(sides):
            rows = np.moveaxis(np.tensordot(_weights(size, length), rows, (1, axis)), 0, axis)
        plural = "" if length == 1 else ("es" if noun == "patch" else "s")
        label = f"smoothed over {length} {noun}{plural}"
        smooth = rows.reshape(around.shape)
        yield Explanation(f"smoothed_{length}", label, smooth, "smoothed", length)


def _weights(size: int, length: float) -> Floats:
    """Return Gaussian weights of neighbours that add up to 1 at the ends, too: ``[n, n]``."""
    place = np.arange(size)
    weights = np.exp(-0.5 * np.square((place[:, None] - place[None]) / length))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _codes(around: Floats, layout: Layout) -> Iterator[Explanation]:
    if not isinstance(layout, Grid):
        return
    cells = around.reshape(layout.height, layout.width, -1)
    rows = cells.mean(axis=1)[:, None] + cells.mean(axis=0)[None]
    yield Explanation("codes", "row code plus column code", rows.reshape(around.shape), "codes")


def _repaired(values: Floats, given: Positions) -> Iterator[Explanation]:
    special = [row.row for row in seams(given).special]
    k, grid = len(special), given.layout
    if not 0 < k < len(values) - 1:
        return
    if isinstance(grid, Grid):
        rows, nouns = without(values, special, grid.height, grid.width, np), ("patch", "patches")
    else:
        rows, nouns = values.copy(), ("row", "rows")
        missing = np.isin(np.arange(len(values)), special)
        rows[missing] = interpolate_rows(values, missing)
    count = f"{k} special {nouns[1]}" if k > 1 else f"special {nouns[0]}"
    yield Explanation("repaired", f"without its {count}", rows, "repaired", k)


def _surrogates(around: Floats, layout: Layout, seed: int) -> Iterator[Explanation]:
    """Draw one table of each null model about the mean row."""
    if not around.any():
        return
    scale = float(np.abs(around).max())
    for index, name in enumerate(nulls.NULLS):
        if name not in nulls.null_models(layout):
            continue
        rng = np.random.default_rng([seed, index])
        if name == "stationary":
            drawn = _stationary(around / scale, layout, rng)
        else:
            drawn = nulls.draw_rows(around / scale, name, rng, layout).astype(np.float64)
        rows = scale * (drawn - drawn.mean(axis=0))
        yield Explanation(name, _NULLS[name], rows, "null")


def _stationary(around: Floats, layout: Layout, rng: np.random.Generator) -> Floats:
    """Draw the stationary process in the table's own columns."""
    process = fit_process(around, layout)
    drawn = process.draw(rng).astype(np.float64)
    right = np.linalg.svd(around, full_matrices=False)[2]
    # The process has the strongest directions last, and may have one more, along the mean.
    count = int((process.columns > 0).sum())
    return np.asarray(drawn[:, :count] @ right[:count][::-1])


#: Most bands into which the frequencies of rotations are sorted.
BANDS = 8
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
        Layout and first of the positions.
    substitutes
        The first is what stands there now.
    removed
        Name of the one that counts as removing it.
    """

    path: str
    scheme: Scheme
    slots: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    layout: Layout
    start: int
    substitutes: tuple[Explanation, ...]
    removed: str

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let it be replaced within the block; afterwards it is as it was, whatever happens."""
        with restored(*(tensor for tensor, _ in self.slots)):
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
        Same as for `posprobe.forward.substitution_effect`.

    Raises
    ------
    UsageError
        If there is nothing that can be replaced, or it cannot be told which rows are positions.
    """
    try:
        path, table = position_table(model, title)
    except UsageError as error:
        target = _rotations(model, batch) or _biases(model, batch)
        if target is None:
            raise UsageError(
                f"{error} Of several parts name one, as REF#decoder; of models without a table "
                "rotations and the biases of T5 are taken away."
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
    """Return the rows of the table that a context reaches: those that its last states depend on.

    Models count from 0, from 2, or on from padding.
    """
    pt = required("torch")
    if batch.ndim == 4:
        every: torch.Tensor = pt.arange(table.numel() // table.shape[-1], device=table.device)
        return every
    wanted = table.requires_grad
    try:
        with pt.enable_grad():
            table.requires_grad_(True)
            states = final_states(model, batch)
            # After a LayerNorm the sum of the states, or of their squares, depends on nothing.
            weights = pt.linspace(0, 1, states.shape[-1], dtype=states.dtype, device=states.device)
            told = (states * weights**2).sum()
            used = told.requires_grad
            slopes = pt.autograd.grad(told, table, allow_unused=True) if used else (None,)
    finally:
        table.requires_grad_(wanted)
    if slopes[0] is not None:
        found: torch.Tensor = slopes[0].flatten(0, -2).abs().sum(dim=1).nonzero()[:, 0]
        if len(found) == batch.shape[1]:
            return found
    raise UsageError(
        f"{title}: it cannot be told which rows of its table are the positions of a context."
    )


def _rotations(model: Any, batch: torch.Tensor) -> Target | None:
    """Sort the frequencies of rotations into bands, and stop the rotations of some."""
    found = frequencies_of(model)
    # Falcon has the frequencies also where ALiBi stands in their place.
    alibi = getattr(getattr(model, "config", None), "alibi", False)
    if not found or batch.ndim != 2 or alibi:
        return None
    # Of each ladder its own ranks: models have one, or a copy in each layer, or one per kind.
    ladders = [tensor.detach().cpu().double().numpy().ravel() for tensor in found.values()]
    ranks = [np.argsort(np.argsort(-ladder, kind="stable")) for ladder in ladders]
    bands = [rank * min(BANDS, len(rank)) // len(rank) for rank in ranks]
    band, frequencies = np.concatenate(bands)[:, None], np.concatenate(ladders)[:, None]
    made = [Explanation("itself", "all rotations as they are", frequencies, "table")]
    for k in range(int(band.max()) + 1):
        turning = frequencies[(band == k) & (frequencies > 0)]
        if turning.size:
            fast, slow = 2 * np.pi / turning.max(), 2 * np.pi / turning.min()
            label = f"without periods of {fast:.3g} to {slow:.3g} positions"
            rows = np.where(band == k, 0.0, frequencies)
            made.append(Explanation(f"band_{k + 1}", label, rows, "band", k + 1))
    nothing = np.zeros_like(frequencies)
    made.append(Explanation(NOTHING, "no rotation", nothing, "removed"))
    return _whole("rotary", found, batch, made, width=1)


def _biases(model: Any, batch: torch.Tensor) -> Target | None:
    """Make the biases of each head the same at all offsets, which a softmax does not see."""
    found = {
        name: tensor
        for name, tensor in model.named_parameters()
        if name.endswith("relative_attention_bias.weight") and tensor.device.type != "meta"
    }
    if not found or batch.ndim != 2:
        return None
    tables = [tensor.detach().cpu().double().numpy() for tensor in found.values()]
    if len({table.shape[1:] for table in tables}) > 1 or tables[0].ndim != 2:
        return None
    values = np.concatenate(tables)
    flat = np.concatenate([np.broadcast_to(each.mean(axis=0), each.shape) for each in tables])
    made = [Explanation("itself", "all biases as they are", values, "table")]
    for head in range(values.shape[1]):
        alone = values.copy()
        alone[:, head] = flat[:, head]
        label = f"head {head}: its mean at all offsets"
        made.append(Explanation(f"head_{head}", label, alone, "head", head + 1))
    made.append(Explanation(NOTHING, "all heads: their mean at all offsets", flat, "removed"))
    return _whole("relative", found, batch, made, width=values.shape[1])


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
            f"{title}: {target.path} makes no difference to its states once it has run."
        )
