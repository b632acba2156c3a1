"""Substitutes for a model's position table, rotations or biases, and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from posprobe import nulls
from posprobe.analyses.breaks.outlier_patches import replace_patches
from posprobe.analyses.breaks.seams import seams
from posprobe.analyses.composition.bridging import interpolate_rows
from posprobe.analyses.composition.processes import fit_process
from posprobe.analyses.descriptive.closeness import prepare_cloud
from posprobe.analyses.descriptive.matching_pursuit import choose_sinusoids
from posprobe.analyses.descriptive.sinusoid import fit_base
from posprobe.analyses.models.experiments import Scheme
from posprobe.analyses.result import centre_rows
from posprobe.analyses.view import view
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.encodings.tables import sincos2d, sinusoidal
from posprobe.errors import UsageError
from posprobe.forward.experiments import find_position_table, restore_tensors
from posprobe.forward.models import import_package
from posprobe.forward.rotary import frequency_buffers
from posprobe.forward.running import compute_final_states, find_layout
from posprobe.layouts import Grid, Layout, Sequence as Line, slice_layout
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    import torch


#: Kind of an explanation. Explanations of one kind differ only in their size.
ExplanationKind: TypeAlias = Literal[
    "table",
    "components",
    "sinusoids",
    "rotations",
    "ladder",
    "smoothed",
    "codes",
    "repaired",
    "formula",
    "null",
    "removed",
    "given",
    "band",
    "head",
]

#: Numbers of components, or of sinusoids, that explanations keep.
COMPONENT_COUNTS = (1, 2, 3, 5, 10, 20, 50)
#: Standard deviations of the Gaussian smoothing, in positions; on a grid, in patches.
SMOOTHING_POSITIONS = (1, 2, 4, 8, 16)
#: Tables with fewer positions are neither smoothed nor fitted with waves, which would say nothing.
MIN_EXPLAINED_ROWS = 8
#: Singular values below this share of the largest are rounding errors.
MIN_SINGULAR_VALUE_RATIO = 1e-10
#: Name of the substitute that removes the table: every row becomes the mean row.
MEAN_ROW_NAME = "mean"

_NULL_LABELS = {
    "gaussian": "rows in random directions",
    "permuted": "its rows in random order",
    "walk": "a random walk of its steps",
    "stationary": "a smooth random table like it",
}


@dataclass(frozen=True, eq=False)
class Explanation:
    """A table that takes the place of another.

    Parameters
    ----------
    name
        Key, such as ``"components_3"``.
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
    kind: ExplanationKind
    size: int | None = None


def explanations(
    table: PositionTable | Array, *, seed: int = 0
) -> tuple[Explanation, ...]:
    """Return the tables that different explanations of a table would leave of it.

    The table itself; its k leading principal components; its k best sinusoids
    (`analyses.descriptive.matching_pursuit`); the rotations that stand out of a smooth spectrum
    (`analyses.composition.planes`); the sinusoid of its shape, and that of the base that
    fits best, each rotated and scaled to fit (Procrustes: Schönemann 1966); the table smoothed; row
    code plus column code; the table without its outlier rows, or patches; a draw of each null model
    (`posprobe.nulls`); the mean row; zeros. Explanations that do not apply are left out: a grid has
    no sinusoids of one axis, a sequence no row code, and not every table has outlier rows.

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
    >>> explanations = pp.forward.explanations(pp.sinusoidal(32, 8))
    >>> [explanation.name for explanation in explanations][:4]
    ['itself', 'components_1', 'components_2', 'components_3']
    >>> explanations[0].rows.shape
    (32, 8)
    """
    table_positions = positions(table)
    values = to_numpy(table_positions.values).astype(np.float64)
    mean = values.mean(axis=0)
    centred_rows = centre_rows(values)[0]
    is_grid = isinstance(table_positions.layout, Grid)

    def add_mean(*groups: Iterable[Explanation]) -> Iterator[Explanation]:
        for explanation in chain(*groups):
            yield replace(explanation, rows=mean + explanation.rows)

    return (
        explain_by_itself(values),
        *add_mean(
            _explain_by_components(centred_rows),
            () if is_grid else _explain_by_waves(values, centred_rows, seed),
            _explain_by_formulas(centred_rows, table_positions.layout),
            _explain_by_smoothing(centred_rows, table_positions.layout),
            _explain_by_codes(centred_rows, table_positions.layout),
        ),
        *_explain_by_repair(values, table_positions),
        *add_mean(_explain_by_null_models(centred_rows, table_positions.layout, seed)),
        explain_by_mean_row(values),
        Explanation("zeros", "zeros everywhere", np.zeros_like(values), "removed"),
    )


def explain_by_itself(values: Floats) -> Explanation:
    """Return the explanation that leaves a table ``[n, d]`` unchanged."""
    return Explanation("itself", "the table itself", values, "table")


def explain_by_mean_row(values: Floats) -> Explanation:
    """Return the explanation that replaces every row of a table ``[n, d]`` by the mean row."""
    rows = np.broadcast_to(values.mean(axis=0), values.shape).copy()
    return Explanation(MEAN_ROW_NAME, "the mean row everywhere", rows, "removed")


def explained_share(values: Floats, rows: Floats) -> float | None:
    """Return the share of a table's variance that a substitute keeps.

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
    centred_rows = centre_rows(values)[0]
    scale = float(np.abs(centred_rows).max(initial=0.0))
    if not scale:
        return None
    total = float(np.square(centred_rows / scale).sum())
    return 1 - float(np.square((values - rows) / scale).sum()) / total


def _explain_by_components(centred_rows: Floats) -> Iterator[Explanation]:
    u, singular_values, vt = np.linalg.svd(centred_rows, full_matrices=False)
    rank = (
        int((singular_values > MIN_SINGULAR_VALUE_RATIO * singular_values[0]).sum())
        if singular_values[0] > 0
        else 0
    )
    # A table of low rank ends with all its components.
    for k in sorted({min(k, rank) for k in COMPONENT_COUNTS} - {0}):
        rows = (u[:, :k] * singular_values[:k]) @ vt[:k]
        yield _sized_explanation("components", k, rows, "leading component")


def _sized_explanation(
    kind: ExplanationKind, k: int, rows: Floats, noun: str
) -> Explanation:
    """Return an explanation of ``k`` components, sinusoids or the like."""
    return Explanation(f"{kind}_{k}", noun if k == 1 else f"{k} {noun}s", rows, kind, k)


def _explain_by_waves(
    values: Floats, centred_rows: Floats, seed: int
) -> Iterator[Explanation]:
    """Yield fits of sinusoids to a sequence: the best ones, and those of its rotations."""
    n = len(centred_rows)
    if n < MIN_EXPLAINED_ROWS or not centred_rows.any():
        return
    frequencies = choose_sinusoids(
        prepare_cloud(values), max(COMPONENT_COUNTS)
    ).frequencies
    for k in (k for k in COMPONENT_COUNTS if k <= len(frequencies)):
        rows = _fit_sinusoids(centred_rows, frequencies[k - 1])
        yield _sized_explanation("sinusoids", k, rows, "best sinusoid")
    if n < 2 * MIN_EXPLAINED_ROWS or centred_rows.shape[1] < 2:
        return
    rotations = view(values, seed=seed).rotation_fit.rotations
    if rotations:
        k = len(rotations)
        rows = _fit_sinusoids(
            centred_rows, np.array([1 / rotation.period for rotation in rotations])
        )
        label = "the rotation found" if k == 1 else f"the {k} rotations found"
        yield Explanation("rotations", f"{label}, alone", rows, "rotations", k)


def _fit_sinusoids(centred_rows: Floats, frequencies: Floats) -> Floats:
    """Fit sinusoids of these frequencies, in cycles per position, to rows ``[n, d]``."""
    angles = 2 * np.pi * np.outer(np.arange(len(centred_rows)), frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    basis, _ = np.linalg.qr(waves - waves.mean(axis=0))
    return np.asarray(basis @ (basis.T @ centred_rows))


def _explain_by_formulas(centred_rows: Floats, layout: Layout) -> Iterator[Explanation]:
    """Yield closed-form tables of the same shape, rotated and scaled to fit."""
    n, d = centred_rows.shape
    if (
        n < MIN_EXPLAINED_ROWS
        or not centred_rows.any()
        or d % (4 if isinstance(layout, Grid) else 2)
    ):
        return
    if isinstance(layout, Grid):
        formula = sincos2d(layout.height, layout.width, d)
        rows = _align_rows(formula.values, centred_rows)
        yield Explanation("sinusoid", "2-D sin-cos, rotated to fit", rows, "formula")
        return
    rows = _align_rows(sinusoidal(n, d).values, centred_rows)
    yield Explanation("sinusoid", "sinusoid, rotated to fit", rows, "formula")
    fit = fit_base(prepare_cloud(centred_rows), d)
    if fit.bases.size:
        base = fit.base or float(fit.bases[int(np.argmax(fit.cka))])
        rows = _align_rows(sinusoidal(n, d, base=base).values, centred_rows)
        label = f"ladder of base {base:.3g}, rotated to fit"
        yield Explanation("ladder", label, rows, "ladder")


def _align_rows(values: Array, centred_rows: Floats) -> Floats:
    """Rotate and scale a table onto rows ``[n, d]`` by orthogonal Procrustes."""
    from scipy.linalg import orthogonal_procrustes

    source = np.asarray(values, dtype=np.float64)
    source = source - source.mean(axis=0)
    rotation, scale = orthogonal_procrustes(source, centred_rows)
    return np.asarray(scale / np.square(source).sum() * source @ rotation)


def _explain_by_smoothing(centred_rows: Floats, layout: Layout) -> Iterator[Explanation]:
    sides = (layout.height, layout.width)
    if len(centred_rows) < MIN_EXPLAINED_ROWS:
        return
    noun = "patch" if isinstance(layout, Grid) else "position"
    patches = centred_rows.reshape(*sides, -1)
    for length in (length for length in SMOOTHING_POSITIONS if 4 * length <= max(sides)):
        rows = patches
        for axis, size in enumerate(sides):
            rows = np.moveaxis(
                np.tensordot(_gaussian_weights(size, length), rows, (1, axis)), 0, axis
            )
        plural = "" if length == 1 else ("es" if noun == "patch" else "s")
        label = f"smoothed over {length} {noun}{plural}"
        smoothed_rows = rows.reshape(centred_rows.shape)
        yield Explanation(f"smoothed_{length}", label, smoothed_rows, "smoothed", length)


def _gaussian_weights(size: int, length: float) -> Floats:
    """Return Gaussian weights of neighbours, ``[n, n]``, whose rows sum to 1, also at the ends."""
    index = np.arange(size)
    weights = np.exp(-0.5 * np.square((index[:, None] - index[None]) / length))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _explain_by_codes(centred_rows: Floats, layout: Layout) -> Iterator[Explanation]:
    if not isinstance(layout, Grid):
        return
    patches = centred_rows.reshape(layout.height, layout.width, -1)
    rows = patches.mean(axis=1)[:, None] + patches.mean(axis=0)[None]
    yield Explanation(
        "codes", "row code plus column code", rows.reshape(centred_rows.shape), "codes"
    )


def _explain_by_repair(
    values: Floats, table_positions: Positions
) -> Iterator[Explanation]:
    outlier_rows = [row.row for row in seams(table_positions).special]
    k, grid = len(outlier_rows), table_positions.layout
    if not 0 < k < len(values) - 1:
        return
    if isinstance(grid, Grid):
        rows, nouns = (
            replace_patches(values, outlier_rows, grid.height, grid.width, np),
            ("patch", "patches"),
        )
    else:
        rows, nouns = values.copy(), ("row", "rows")
        is_missing = np.isin(np.arange(len(values)), outlier_rows)
        rows[is_missing] = interpolate_rows(values, is_missing)
    count = f"{k} special {nouns[1]}" if k > 1 else f"special {nouns[0]}"
    yield Explanation("repaired", f"without its {count}", rows, "repaired", k)


def _explain_by_null_models(
    centred_rows: Floats, layout: Layout, seed: int
) -> Iterator[Explanation]:
    """Yield one draw of each null model, centred."""
    if not centred_rows.any():
        return
    scale = float(np.abs(centred_rows).max())
    for index, name in enumerate(nulls.NULL_MODELS):
        if name not in nulls.null_models(layout):
            continue
        rng = np.random.default_rng([seed, index])
        if name == "stationary":
            null_rows = _draw_stationary(centred_rows / scale, layout, rng)
        else:
            null_rows = nulls.draw_rows(centred_rows / scale, name, rng, layout).astype(
                np.float64
            )
        rows = scale * (null_rows - null_rows.mean(axis=0))
        yield Explanation(name, _NULL_LABELS[name], rows, "null")


def _draw_stationary(
    centred_rows: Floats, layout: Layout, rng: np.random.Generator
) -> Floats:
    """Draw the stationary process of a table in the table's own columns."""
    process = fit_process(centred_rows, layout)
    process_rows = process.draw(rng).astype(np.float64)
    vt = np.linalg.svd(centred_rows, full_matrices=False)[2]
    # The strongest directions of the process come last, and it may have one more, along the mean.
    count = int((process.columns > 0).sum())
    return np.asarray(process_rows[:, :count] @ vt[:count][::-1])


#: The frequencies of rotations are sorted into at most so many bands.
MAX_FREQUENCY_BANDS = 8
#: Name of the substitute that removes all rotations, or the biases of all heads.
NO_SCHEME_NAME = "none"


@dataclass(frozen=True, eq=False)
class Target:
    """Tensors of a model that are replaced, and their substitutes.

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
    def restore_on_exit(self) -> Iterator[None]:
        """Restore the tensors at the end of the block, also after an error."""
        with restore_tensors(*(tensor for tensor, _ in self.slots)):
            yield

    @property
    def removed_index(self) -> int:
        """Index of the substitute that counts as removing the tensors."""
        return [substitute.name for substitute in self.substitutes].index(self.removed)

    def write(self, rows: Floats) -> None:
        """Write the rows ``[n, d]`` of a substitute into the tensors."""
        start = 0
        for tensor, slot_rows in self.slots:
            slot_values = import_package("torch").from_numpy(
                rows[start : start + len(slot_rows)]
            )
            flat = tensor.data.view(-1, rows.shape[1])
            flat[slot_rows] = slot_values.to(device=tensor.device, dtype=tensor.dtype)
            start += len(slot_rows)


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
    """Find the tensors to replace: a model's table, or else its rotations or heads' biases.

    Parameters
    ----------
    model, batch
        The model, and a batch on its device.
    tables, rows, explain, seed, title
        Same as for `posprobe.forward.substitution_effect`.

    Raises
    ------
    UsageError
        If there is nothing to replace, or the rows that are positions cannot be identified.
    """
    try:
        path, table = find_position_table(model, title)
    except UsageError as error:
        target = _find_scheme_target(model, batch, error)
        if tables or rows is not None:
            raise UsageError(
                f"{title}: it has no table of positions, so neither positions nor tables "
                "can be chosen. Leave out `rows` and `tables`."
            ) from error
        _check_effect(model, batch[:1], target, title)
        return target
    layout, reached_rows = _find_positions(model, batch, table, title)
    start = 0
    if rows is not None:
        start, stop, layout = slice_layout(layout, rows, title)
        reached_rows = reached_rows[start:stop]
    if layout.size == 1:
        raise UsageError(
            f"{title}: one position is replaced, and its row is the mean row itself. "
            "Use longer contexts, or more positions (`rows`)."
        )
    rows_of_table = table.detach().reshape(-1, table.shape[-1])
    values = rows_of_table[reached_rows].cpu().double().numpy()
    stored_table = PositionTable(values, layout, title, Source(title, title), start=start)
    substitutes = [explain_by_itself(values), explain_by_mean_row(values)]
    if explain:
        substitutes = [*explanations(stored_table, seed=seed)]
    substitutes += _read_tables(tables, values.shape, title)
    slots = ((table, reached_rows),)
    return Target(path, "table", slots, layout, start, tuple(substitutes), MEAN_ROW_NAME)


def _read_tables(
    tables: Mapping[str, Array], shape: tuple[int, ...], title: str
) -> Iterator[Explanation]:
    """Yield the substitutes that the user gives, once they are seen to fit the table's rows."""
    for label, values in tables.items():
        rows = np.asarray(values, dtype=np.float64)
        if rows.shape != shape or not np.isfinite(rows).all():
            raise UsageError(
                f"{title}: {label} is of shape {list(rows.shape)}; finite numbers of shape "
                f"{list(shape)} are expected in the place of the rows that contexts reach."
            )
        yield Explanation(label, label, rows, "given")


def _find_scheme_target(model: Any, batch: torch.Tensor, error: UsageError) -> Target:
    """Return the rotations or biases of a model without a table, or raise if it has neither."""
    target = _find_rotation_target(model, batch) or _find_bias_target(model, batch)
    if target is None:
        raise UsageError(
            f"{error} Of several parts name one, as REF#decoder; of models "
            "without a table rotations and the biases of T5 are taken away."
        ) from error
    return target


def _find_positions(
    model: Any, batch: torch.Tensor, table: torch.Tensor, title: str
) -> tuple[Layout, torch.Tensor]:
    """Return the layout of the positions, and their rows of the table."""
    reached_rows = find_reached_rows(model, batch[:1], table, title)
    if batch.ndim == 2:
        return Line(len(reached_rows)), reached_rows
    layout = find_layout(model, batch, compute_final_states(model, batch[:1]).shape[1])
    if layout.size > len(reached_rows):
        raise UsageError(
            f"{title}: its table has {len(reached_rows)} rows for a {layout} of patches."
        )
    return layout, reached_rows[len(reached_rows) - layout.size :]


def find_reached_rows(
    model: Any, batch: torch.Tensor, table: torch.Tensor, title: str
) -> torch.Tensor:
    """Return the rows of the table on which the last states of a context depend.

    Models number positions from 0, from 2, or from behind the padding row.

    Parameters
    ----------
    model, batch
        The model, and one context on its device.
    table
        Parameter of the positions.
    title
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If they are not as many as the tokens of a context.
    """
    pt = import_package("torch")
    if batch.ndim == 4:
        all_rows: torch.Tensor = pt.arange(
            table.numel() // table.shape[-1], device=table.device
        )
        return all_rows
    had_gradient = table.requires_grad
    try:
        with pt.enable_grad():
            table.requires_grad_(True)
            states = compute_final_states(model, batch)
            # Unequal weights, since a LayerNorm fixes the sum of the states and of their squares.
            weights = pt.linspace(
                0, 1, states.shape[-1], dtype=states.dtype, device=states.device
            )
            weighted_sum = (states * weights**2).sum()
            is_differentiable = weighted_sum.requires_grad
            gradients = (
                pt.autograd.grad(weighted_sum, table, allow_unused=True)
                if is_differentiable
                else (None,)
            )
    finally:
        table.requires_grad_(had_gradient)
    if gradients[0] is not None:
        reached_rows: torch.Tensor = (
            gradients[0].flatten(0, -2).abs().sum(dim=1).nonzero()[:, 0]
        )
        if len(reached_rows) == batch.shape[1]:
            return reached_rows
    raise UsageError(
        f"{title}: it cannot be told which rows of its table are the positions of a context."
    )


def _find_rotation_target(model: Any, batch: torch.Tensor) -> Target | None:
    """Return substitutes that stop the rotations of one band of frequencies, or of all."""
    buffers = frequency_buffers(model)
    # Falcon has frequencies even if it uses ALiBi instead of rotations.
    has_alibi = getattr(getattr(model, "config", None), "alibi", False)
    if not buffers or batch.ndim != 2 or has_alibi:
        return None
    # Each ladder is ranked by itself: a model may have one, one per layer, or one per layer kind.
    ladders = [
        tensor.detach().cpu().double().numpy().ravel() for tensor in buffers.values()
    ]
    ranks = [np.argsort(np.argsort(-ladder, kind="stable")) for ladder in ladders]
    bands = [rank * min(MAX_FREQUENCY_BANDS, len(rank)) // len(rank) for rank in ranks]
    band, frequencies = np.concatenate(bands)[:, None], np.concatenate(ladders)[:, None]
    substitutes = [
        Explanation("itself", "all rotations as they are", frequencies, "table")
    ]
    for k in range(int(band.max()) + 1):
        rotating = frequencies[(band == k) & (frequencies > 0)]
        if rotating.size:
            fast, slow = 2 * np.pi / rotating.max(), 2 * np.pi / rotating.min()
            label = f"without periods of {fast:.3g} to {slow:.3g} positions"
            rows = np.where(band == k, 0.0, frequencies)
            substitutes.append(Explanation(f"band_{k + 1}", label, rows, "band", k + 1))
    no_rotation = np.zeros_like(frequencies)
    substitutes.append(Explanation(NO_SCHEME_NAME, "no rotation", no_rotation, "removed"))
    return _scheme_target("rotary", buffers, batch, substitutes, width=1)


def _find_bias_target(model: Any, batch: torch.Tensor) -> Target | None:
    """Return substitutes that make the biases of one head, or of all, equal at all offsets.

    A softmax ignores equal biases.
    """
    parameters = {
        name: tensor
        for name, tensor in model.named_parameters()
        if name.endswith("relative_attention_bias.weight")
        and tensor.device.type != "meta"
    }
    if not parameters or batch.ndim != 2:
        return None
    tables = [tensor.detach().cpu().double().numpy() for tensor in parameters.values()]
    if len({table.shape[1:] for table in tables}) > 1 or tables[0].ndim != 2:
        return None
    values = np.concatenate(tables)
    mean_biases = np.concatenate(
        [np.broadcast_to(table.mean(axis=0), table.shape) for table in tables]
    )
    substitutes = [Explanation("itself", "all biases as they are", values, "table")]
    for head in range(values.shape[1]):
        rows = values.copy()
        rows[:, head] = mean_biases[:, head]
        label = f"head {head}: its mean at all offsets"
        substitutes.append(Explanation(f"head_{head}", label, rows, "head", head + 1))
    substitutes.append(
        Explanation(
            NO_SCHEME_NAME, "all heads: their mean at all offsets", mean_biases, "removed"
        )
    )
    return _scheme_target(
        "relative", parameters, batch, substitutes, width=values.shape[1]
    )


def _scheme_target(
    scheme: Scheme,
    tensors: Mapping[str, torch.Tensor],
    batch: torch.Tensor,
    substitutes: list[Explanation],
    *,
    width: int,
) -> Target:
    pt = import_package("torch")
    slots = tuple(
        (tensor, pt.arange(tensor.numel() // width, device=tensor.device))
        for tensor in tensors.values()
    )
    layout = Line(batch.shape[1])
    return Target(
        next(iter(tensors)), scheme, slots, layout, 0, tuple(substitutes), NO_SCHEME_NAME
    )


def _check_effect(model: Any, batch: torch.Tensor, target: Target, title: str) -> None:
    """Refuse a model that caches its positions, so that a substitute would have no effect."""
    before = compute_final_states(model, batch)
    with target.restore_on_exit():
        target.write(target.substitutes[-1].rows)
        after = compute_final_states(model, batch)
    if bool((before == after).all()):
        raise UsageError(
            f"{title}: {target.path} makes no difference to its states once it has run."
        )
