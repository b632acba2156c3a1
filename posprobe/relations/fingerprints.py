"""Sketch a table in 25 kilobytes, so that its distance to another table can be told without either.

Training from another table hardly moves positions and keeps the meaning of every column, while the
columns of two trainings from scratch are unrelated. So the difference of two tables tells whether
one comes from the other. It is estimated from a random projection of some rows (Johnson &
Lindenstrauss 1984; with signs, Achlioptas 2003), the same for all tables of a width.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from posprobe.drawable import Displayable
from posprobe.layouts import Grid, Layout, Sequence, Video, describe_layout
from posprobe.relations.tables import find_row_lag
from posprobe.relations.values import relate_sketches_of_tables
from posprobe.tables import PositionTable

#: Rows are projected to this many numbers; narrower rows are kept as they are. The square of a norm
#: is then known to (2 / 64)**0.5 of it, over 100 rows to 2 %. With the rows and blocks below, a
#: table of 512 positions takes (112 + 36) x 64 numbers of two bytes, 25 kB as text.
PROJECTION_DIM = 64
#: A grid is divided into six by six blocks, whose mean rows are kept.
BLOCKS_PER_AXIS = 6
#: A sequence is divided into as many blocks as a grid.
N_BLOCKS = BLOCKS_PER_AXIS * BLOCKS_PER_AXIS
#: Beyond the first positions the gap to the next kept position is the position over this number.
SAMPLING_RATIO = 24
#: The rule above keeps this many positions without a gap.
N_DENSE_POSITIONS = 2 * SAMPLING_RATIO
#: The bound of a chance is the minimum over this many slopes: 20 in each decade, which suffices
#: because the minimum is flat.
N_CHERNOFF_SLOPES = 160
#: Stride in the slopes of the coarse grid, near the square root of their number: fewest are tried.
COARSE_SLOPE_STRIDE = 10
#: Beyond this relative distance, little of one related table may be left in the other.
MAX_RELATED_DISTANCE = 0.5
#: The causes of `posprobe.relations` that relate two fingerprints.
Relation: TypeAlias = Literal[
    "identical", "rounded", "moved", "rows_cut", "rows_before", "resized", "unrelated"
]


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The sketch of a table's values.

    Parameters
    ----------
    sha256
        Checksum of the values ``[n, d]`` as float64, so that a copy in a wider format has the same.
    layout, start, dim
        Layout of the table's ``n`` positions, the first of them, and ``d``.
    dtype
        The coarsest format that holds every value, by its name in safetensors.
    scale
        Root mean square of the values; 0 of a table of zeros.
    rows
        ``[m, k]``, rows at the `sampled_positions`, projected, over the scale.
    blocks
        ``[36, k]``, mean rows of equal blocks of the table, projected, over the scale.
    """

    sha256: str
    layout: Layout
    start: int
    dim: int
    dtype: str | None
    scale: float
    rows: NDArray[np.float16]
    blocks: NDArray[np.float16]

    def to_dict(self) -> dict[str, Any]:
        """Return the fingerprint as JSON holds it."""
        texts = {"rows": _encode_array(self.rows), "blocks": _encode_array(self.blocks)}
        return {**vars(self), "layout": describe_layout(self.layout), **texts}


@dataclass(frozen=True)
class Likeness(Displayable):
    """The relation of two tables.

    Parameters
    ----------
    relation
        Relation of the first table to the second, such as ``moved``.
    distance
        Relative Frobenius distance, estimated: the norm of the difference over that of the second
        table; None if nothing was compared.
    rows
        Number of common positions that the distance covers; 0 if mean rows of equal blocks were
        compared, None if nothing was.
    chance
        Probability that tables which agree in all but the basis of their columns come as near; None
        if nothing was compared.
    sizes, widths
        Layout of the positions, and width of the rows, of both tables.
    rounded_to
        Coarser format of the two, for a rounded table.
    rounded_side
        Table that is the rounded copy: ``a``, the first, or ``b``; None where both have one format.
    shift
        Number of first rows that the first table lacks, or has in addition.

    Examples
    --------
    >>> import posprobe as pp
    >>> likeness = pp.nearest("sample:rxnmapper-albert").matches[0].likeness
    >>> likeness.relation, likeness.rows, likeness.whole
    ('identical', 512, True)
    """

    relation: Relation
    distance: float | None
    rows: int | None
    chance: float | None
    sizes: tuple[Layout, Layout]
    widths: tuple[int, int]
    rounded_to: str | None = None
    rounded_side: Literal["a", "b"] | None = None
    shift: int = 0

    @property
    def related(self) -> bool:
        """Whether one comes from the other, or both from a third."""
        return self.relation != "unrelated"

    @property
    def whole(self) -> bool:
        """Whether the distance is about all positions of both."""
        return all(self.rows == size.size for size in self.sizes)


# --- making -----------------------------------------------------------------------------------


def fingerprint(table: PositionTable) -> Fingerprint:
    """Reduce a table to a sketch that tells it from other tables."""
    values = np.ascontiguousarray(table.values, dtype="<f8")
    # Squares of numbers near the end of the range of float64 would overflow.
    largest = float(np.abs(values).max())
    scale = (
        largest * math.sqrt(float(np.mean((values / largest) ** 2))) if largest else 0.0
    )
    begin, end = table.rows
    sampled_rows = np.array(sampled_positions(begin, end), dtype=np.intp) - begin
    divisor = scale or 1.0
    return Fingerprint(
        hashlib.sha256(values.tobytes()).hexdigest(),
        table.layout,
        table.start,
        table.dim,
        _coarsest_format(values),
        scale,
        _project_rows(values[sampled_rows] / divisor),
        _project_rows(_block_means(values, table.layout) / divisor),
    )


def _coarsest_format(values: NDArray[np.float64]) -> str:
    """Return the coarsest format that holds every value, whatever the stored format was."""
    with np.errstate(over="ignore"):
        float16_values, float32_values = values.astype("<f2"), values.astype("<f4")
    if not np.array_equal(float32_values, values):
        return "F64"
    # The upper 16 bits of a float32 are a bfloat16.
    if not (float32_values.view("<u4") & 0xFFFF).any():
        return "BF16"
    return "F16" if np.array_equal(float16_values, values) else "F32"


@lru_cache(maxsize=64)
def sampled_positions(begin: int, end: int) -> tuple[int, ...]:
    """Return the positions of a table that are kept: dense at first, then ever further apart.

    They do not depend on the table's length, so that the same positions of two tables are kept.

    Examples
    --------
    >>> sampled_positions(0, 60)[-6:]
    (48, 50, 52, 54, 56, 58)
    >>> len(sampled_positions(0, 512)), len(sampled_positions(0, 1024))
    (112, 129)
    """
    positions, position = [], 0
    while position < end:
        if position >= begin:
            positions.append(position)
        position += max(1, position // SAMPLING_RATIO)
    return tuple(positions)


def _project_rows(rows: NDArray[np.float64]) -> NDArray[np.float16]:
    dim = rows.shape[1]
    return (rows if dim <= PROJECTION_DIM else rows @ _projection_signs(dim)).astype(
        np.float16
    )


@lru_cache(maxsize=8)
def _projection_signs(dim: int) -> NDArray[np.float64]:
    """Return ``[d, 64]`` signs over 8, which do not depend on the version of NumPy."""
    seed = f"posprobe, rows of {dim}".encode()
    digest = hashlib.shake_256(seed).digest(dim * PROJECTION_DIM // 8)
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8)).reshape(
        dim, PROJECTION_DIM
    )
    return (2 * bits.astype(np.float64) - 1) / math.sqrt(PROJECTION_DIM)


def _block_means(values: NDArray[np.float64], layout: Layout) -> NDArray[np.float64]:
    """Return the mean rows of equal blocks, ``[36, d]``; a patch on an edge counts for both."""
    if isinstance(layout, Grid):
        patches = values.reshape(layout.height, layout.width, -1)
        row_weights = _block_weights(layout.height, BLOCKS_PER_AXIS)
        column_weights = _block_weights(layout.width, BLOCKS_PER_AXIS)
        means = np.einsum(
            "ah,bw,hwd->abd", row_weights, column_weights, patches, optimize=True
        )
        return np.asarray(means.reshape(N_BLOCKS, -1))
    return np.asarray(_block_weights(len(values), N_BLOCKS) @ values)


def _block_weights(n: int, n_blocks: int) -> NDArray[np.float64]:
    """Return the share of each of ``n`` rows in the mean of equal blocks, ``[blocks, n]``."""
    edges = np.arange(n_blocks + 1) * n / n_blocks
    index = np.arange(n)
    overlaps = np.minimum(edges[1:, None], index + 1) - np.maximum(
        edges[:-1, None], index
    )
    return np.asarray(np.maximum(overlaps, 0) * n_blocks / n)


# --- comparing --------------------------------------------------------------------------------


def likeness(a: Fingerprint, b: Fingerprint) -> Likeness:
    """Tell whether a table comes from another."""
    sizes, widths = (a.layout, b.layout), (a.dim, b.dim)
    unrelated = Likeness("unrelated", None, None, None, sizes, widths)
    if a.dim != b.dim:
        return unrelated
    if a.sha256 == b.sha256 and a.layout.size == b.layout.size:
        return Likeness("identical", 0.0, a.layout.size, 0.0, sizes, widths)
    alignments = ((0, _common_rows(a, b)), (0, _common_blocks(a, b)), _shifted_rows(a, b))
    candidates = [
        candidate
        for lag, aligned_rows in alignments
        if aligned_rows is not None
        and (candidate := _judge_likeness(a, b, lag, aligned_rows)) is not None
    ]
    return min(
        candidates,
        key=lambda candidate: (not candidate.related, candidate.distance),
        default=unrelated,
    )


def _judge_likeness(
    a: Fingerprint, b: Fingerprint, lag: int, aligned_rows: _AlignedRows
) -> Likeness | None:
    """Name the relation of two tables from their aligned rows; None if a table is zero."""
    distance = _sketch_distance(a, b, aligned_rows)
    if distance is None:
        return None
    chance = _rotation_chance(a, b, aligned_rows)
    layouts, n_positions = (a.layout, b.layout), aligned_rows.n_positions
    is_complete = all(n_positions == layout.size for layout in layouts)
    finding = relate_sketches_of_tables(
        distance,
        chance,
        (a.dtype, b.dtype),
        n_positions=n_positions,
        is_complete=is_complete,
    )
    is_related, relation = finding.cause != "unrelated", finding.cause
    if lag and is_related:
        relation = "rows_cut" if lag > 0 else "rows_before"
    return Likeness(
        cast("Relation", relation),
        distance,
        n_positions,
        chance,
        layouts,
        (a.dim, b.dim),
        rounded_to=finding.more.get("type"),
        rounded_side=finding.more.get("side"),
        shift=abs(lag) if is_related else lag,
    )


class _AlignedRows(NamedTuple):
    """Corresponding rows of two tables, weighted, ``[m, k]``, and the positions they stand for."""

    rows_a: NDArray[np.float64]
    rows_b: NDArray[np.float64]
    n_positions: int


def _common_rows(a: Fingerprint, b: Fingerprint) -> _AlignedRows | None:
    """Return the rows of the same positions, of sequences or of tables of one size."""
    is_same_size = a.layout == b.layout or a.layout.size == b.layout.size
    are_lines = isinstance(a.layout, Sequence) and isinstance(b.layout, Sequence)
    if not is_same_size and not are_lines:
        return None
    if not isinstance(a.layout, Sequence) and a.start != b.start:
        return None
    begin = max(a.start, b.start)
    end = min(sketch.start + sketch.layout.size for sketch in (a, b))
    common_positions = sampled_positions(begin, end)
    if not common_positions:
        return None
    # Each row stands for the positions up to the next one.
    root_weights = np.sqrt(np.diff([*common_positions, end]))[:, None]
    weighted_rows = []
    for sketch in (a, b):
        first_row = len(sampled_positions(sketch.start, begin))
        rows = sketch.rows[first_row:][: len(common_positions)]
        weighted_rows.append(root_weights * rows.astype(np.float64))
    return _AlignedRows(weighted_rows[0], weighted_rows[1], end - begin)


def _common_blocks(a: Fingerprint, b: Fingerprint) -> _AlignedRows | None:
    """Return the mean rows of equal blocks, of two sequences or two grids of different sizes."""
    if a.layout == b.layout or type(a.layout) is not type(b.layout):
        return None
    if isinstance(a.layout, Video):  # blocks are those of lines and grids
        return None
    if a.start or b.start:
        return None
    return _AlignedRows(a.blocks.astype(np.float64), b.blocks.astype(np.float64), 0)


def _shifted_rows(a: Fingerprint, b: Fingerprint) -> tuple[int, _AlignedRows | None]:
    """Return the number of rows by which the first table begins later, and the aligned rows."""
    can_align = a.scale and b.scale and _are_scales_comparable(a.scale / b.scale)
    if not can_align or any(
        not isinstance(sketch.layout, Sequence) or sketch.start for sketch in (a, b)
    ):
        return 0, None
    rows_a, rows_b = (
        sketch.rows[:N_DENSE_POSITIONS].astype(np.float64) for sketch in (a, b)
    )
    lag = find_row_lag(rows_b * b.scale, rows_a * a.scale)
    if not lag:
        return 0, None
    rows_a, rows_b = rows_a[max(-lag, 0) :], rows_b[max(lag, 0) :]
    n_common = min(len(rows_a), len(rows_b))
    return lag, _AlignedRows(rows_a[:n_common], rows_b[:n_common], n_common)


def _sketch_distance(
    a: Fingerprint, b: Fingerprint, aligned_rows: _AlignedRows
) -> float | None:
    """Return the relative distance of two tables; None if one of them is zero."""
    norm_b = float(np.linalg.norm(aligned_rows.rows_b))
    if not np.any(aligned_rows.rows_a) or not norm_b or not a.scale or not b.scale:
        return None
    ratio = a.scale / b.scale
    if not _are_scales_comparable(ratio):
        return max(1.0, min(ratio, 1e12))
    return (
        float(np.linalg.norm(ratio * aligned_rows.rows_a - aligned_rows.rows_b)) / norm_b
    )


def _are_scales_comparable(ratio: float) -> bool:
    """Tell whether neither table is negligible: scales may differ by as much as floats can."""
    return 1e-12 < ratio < 1e12


def _rotation_chance(a: Fingerprint, b: Fingerprint, aligned_rows: _AlignedRows) -> float:
    """Return the chance that a random rotation of the columns brings two tables as near.

    Neither table may be zero. After a random rotation ``R`` of the columns of one table, its inner
    product with the other is the trace of ``M R``, with ``M`` the product of both tables: a sum of
    coordinates of random directions, each times a singular value of ``M``. The chance is the larger
    of two: that of a single direction, whose square has a beta distribution, and the bound for all.
    """
    if not _are_scales_comparable(a.scale / b.scale):
        return 1.0
    row_product = aligned_rows.rows_a.T @ aligned_rows.rows_b
    singular_values = np.asarray(
        np.linalg.svd(row_product, compute_uv=False), dtype=np.float64
    )
    trace = float(np.trace(row_product))
    chance = _direction_chance(
        trace / float(np.linalg.norm(singular_values)), len(row_product)
    )
    return max(chance, _chernoff_bound(trace, singular_values))


def _direction_chance(cosine: float, n_dims: int) -> float:
    """Return the chance that a random direction has at least this cosine with a fixed one."""
    from scipy.special import betainc

    if n_dims == 1 or cosine <= 0:
        return 0.5 if cosine > 0 else 1.0
    return 0.5 * float(betainc((n_dims - 1) / 2, 0.5, max(0.0, 1 - cosine * cosine)))


def _chernoff_bound(trace: float, singular_values: NDArray[np.float64]) -> float:
    """Bound the chance that a random rotation makes a trace as large (Chernoff).

    Directions are treated as independent. The mean of ``exp(x u)``, where ``u`` is a coordinate of
    a random direction, is the hypergeometric function ``0F1(k / 2, x**2 / 4)``, a Bessel function.
    """
    if trace <= 0:
        return 1.0
    relative_values = singular_values / singular_values[0]
    relative_trace = trace / singular_values[0]
    slopes = np.geomspace(1e-2, 1e6, N_CHERNOFF_SLOPES)
    # The bound has one minimum over the slopes, so that a coarse grid says where it is.
    coarse_bounds = _log_chernoff_bounds(
        slopes[::COARSE_SLOPE_STRIDE], relative_trace, relative_values
    )
    nearest = COARSE_SLOPE_STRIDE * int(np.argmin(coarse_bounds))
    near_slopes = slopes[
        max(0, nearest - COARSE_SLOPE_STRIDE) : nearest + COARSE_SLOPE_STRIDE + 1
    ]
    log_bounds = _log_chernoff_bounds(near_slopes, relative_trace, relative_values)
    return math.exp(min(0.0, float(np.min(log_bounds))))


def _log_chernoff_bounds(
    slopes: NDArray[np.float64], trace: float, singular_values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the logarithm of the bound at each slope, ``[slopes]``."""
    from scipy.special import gammaln, ive

    half_dim = len(singular_values) / 2
    x = slopes[:, None] * singular_values
    large_x = np.maximum(x, 1e-2)
    log_bessel = np.log(ive(half_dim - 1, large_x)) + large_x
    log_means = log_bessel + gammaln(half_dim) + (1 - half_dim) * np.log(large_x / 2)
    log_means = np.where(x < 1e-2, np.square(x) / (4 * half_dim), log_means)
    return np.asarray(log_means.sum(axis=1) - slopes * trace)


# --- reading ----------------------------------------------------------------------------------


def read_fingerprint(document: Any) -> Fingerprint | None:
    """Read the result of `Fingerprint.to_dict`; return None if the document is not one."""
    try:
        layout = _read_layout(document["layout"])
        start, dim, scale = (
            int(document["start"]),
            int(document["dim"]),
            float(document["scale"]),
        )
        sha256, dtype = document["sha256"], document["dtype"]
        rows, blocks = (
            _decode_array(document[name], min(dim, PROJECTION_DIM))
            for name in ("rows", "blocks")
        )
        is_valid = (
            start >= 0
            and dim >= 1
            and 0 <= scale < math.inf
            and isinstance(sha256, str)
            and isinstance(dtype, str | None)
            and len(blocks) == N_BLOCKS
            and layout.size <= 2**40
            and len(rows) == len(sampled_positions(start, start + layout.size))
        )
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    if not is_valid:
        return None
    return Fingerprint(sha256, layout, start, dim, dtype, scale, rows, blocks)


def _read_layout(document: Mapping[str, Any]) -> Layout:
    layouts_by_type: dict[str, tuple[Callable[..., Layout], tuple[str, ...]]] = {
        "grid": (Grid, ("height", "width")),
        "video": (Video, ("frames", "height", "width")),
    }
    build_layout, names = layouts_by_type.get(document["type"], (Sequence, ("length",)))
    sizes = [int(document[name]) for name in names]
    if min(sizes) < 1:
        raise ValueError(sizes)
    return build_layout(*sizes)


def _encode_array(values: NDArray[np.float16]) -> str:
    return base64.b64encode(values.astype("<f2").tobytes()).decode()


def _decode_array(text: str, width: int) -> NDArray[np.float16]:
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2")
    if not np.isfinite(values).all():
        raise ValueError(text[:20])
    return values.reshape(-1, width).astype(np.float16)
