"""Tables of positions, from a file or from memory: the record that all packages share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from posprobe.drawable import Card, Drawable, format_repr, to_frame
from posprobe.errors import InvalidTable, UsageError, explain_errors
from posprobe.layouts import Grid, Layout, Sequence, make_grid, slice_layout, split_note
from posprobe.number_types import Count
from posprobe.sources import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Advice for an integer tensor.
INTEGER_ADVICE = (
    "Integers are indices or quantised weights: "
    "analyse the checkpoint in its float format."
)
#: Conversions to real numbers that a message suggests.
_CONVERSION_ADVICE = (
    "x.real, x.float(), x.to_dense(), x.dequantize(), x.filled(VALUE) or x.astype(float)"
)


def to_real_array(values: Any, name: str) -> Any:
    """Return ``values`` as a torch tensor or NumPy array of integers or floats.

    Raises
    ------
    InvalidTable
        If there are other than real numbers, or some are masked, quantised or not in memory.
    """
    import numpy as np

    if hasattr(values, "detach"):
        tensor = values.detach()
        if not _is_plain(tensor):
            description = f"{tensor.dtype}, {tensor.layout}, {tensor.device}"
            raise _not_real_error(name, values, description.replace("torch.", ""))
        return tensor.resolve_neg()
    subject = f"{name}: {type(values).__name__} is not an array of numbers"
    advice = "Pass an array such as model.wpe.weight, or rows of as many numbers each."
    with explain_errors(
        InvalidTable, subject, advice, TypeError, ValueError, RuntimeError
    ):
        array = np.asarray(values)
    if array.ndim == 0 and array.dtype.kind != "f":
        raise InvalidTable(f"{subject}. {advice}")
    dtype = array.dtype.name
    if dtype == "bfloat16":  # from JAX; NumPy has no bfloat16
        return array.astype(np.float32)
    arrays = values if isinstance(values, list | tuple) else (values,)
    if any(np.ma.is_masked(array_part) for array_part in arrays):
        raise _not_real_error(name, values, f"{dtype}, masked")
    if array.dtype.kind not in "iuf" or dtype.startswith("float8"):
        raise _not_real_error(name, values, str(array.dtype))
    return array


def _is_plain(tensor: Any) -> bool:
    """Tell whether a torch tensor holds real numbers, stored in memory without conversion."""
    dtype, layout = str(tensor.dtype), str(tensor.layout)
    is_stored_apart = tensor.is_quantized or tensor.is_nested or tensor.is_meta
    is_real = not tensor.is_complex() and dtype != "torch.bool" and "float8" not in dtype
    return is_real and not is_stored_apart and layout == "torch.strided"


def _not_real_error(name: str, values: object, dtype: str) -> InvalidTable:
    return InvalidTable(
        f"{name}: {type(values).__name__} of {dtype}: a table holds real "
        "floating-point numbers that are all there. Make them first: "
        f"{_CONVERSION_ADVICE}."
    )


def load_reference(values: Any, grid: tuple[int, ...] | None = None) -> Any:
    """Load the table that a reference names, as `posprobe.load`; return other values as they are.

    Raises
    ------
    PosprobeError
        As `posprobe.load`, if ``values`` is a reference.
    """
    if not isinstance(values, str | PathLike):
        return values
    return import_module("posprobe.families").load(values, grid=grid)


#: Largest product of two axes, in positions.
MAX_PRODUCT_POSITIONS = 2**16

Kind: TypeAlias = Literal["learned", "fixed"]

#: Safetensors' names of floating-point formats, by the names of libraries.
FLOAT_DTYPE_NAMES = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


@dataclass(frozen=True)
class DroppedRow:
    """A stored row that no input ever selects as a position (``row`` counts as stored)."""

    row: Count
    reason: str


@dataclass(frozen=True)
class PrefixRow:
    """A stored row that belongs to a special token such as CLS (``row`` counts as stored)."""

    row: Count
    token: str


@dataclass(frozen=True, eq=False)
class PositionTable(Drawable):
    """Rows of a position table, in order, with their provenance.

    ``table[1:512]`` keeps rows 1 to 511; layout and provenance follow. ``len(table)`` is the number
    of positions and ``np.asarray(table)`` the values.

    Parameters
    ----------
    values
        ``[n, d]``, finite floats: only rows that are positions. Made read-only.
    layout
        Layout of the ``n`` rows; its size must be ``n``.
    name
        Short name for titles.
    source
        Provenance.
    kind
        ``"learned"``, or ``"fixed"`` where the values follow a formula.
    family
        Architecture family whose rules chose the rows.
    prefix, prefix_rows
        ``[p, d]`` values and names of the rows of special tokens, kept apart.
    dropped
        Stored rows that are not positions, with the reason.
    start
        Position of the first row: 0 unless the table was sliced.
    notes
        Remarks for the reader, such as a choice that the rules made.

    Raises
    ------
    InvalidTable
        If the values are not a finite ``[n, d]`` float array, or do not fit the layout.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> values = np.random.default_rng(0).normal(size=(16, 4))
    >>> source = pp.sources.Source(reference="mine", resolved="made in memory")
    >>> table = pp.PositionTable(values, pp.layouts.Sequence(16), name="mine", source=source)
    >>> len(table), table.dim
    (16, 4)
    >>> table[1:9].rows
    (1, 9)
    """

    figures: ClassVar[str] = "rows.plot_table"

    values: NDArray[np.floating[Any]]
    layout: Layout
    name: str
    source: Source
    kind: Kind = "learned"
    family: str | None = None
    prefix: NDArray[np.floating[Any]] | None = None
    prefix_rows: tuple[PrefixRow, ...] = ()
    dropped: tuple[DroppedRow, ...] = ()
    start: int = 0
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        import numpy as np

        values = np.asarray(to_real_array(self.values, self.name))
        subject = (
            f"{self.name}: table of shape {list(values.shape)}, dtype {values.dtype}"
        )
        if values.ndim != 2:
            raise InvalidTable(
                f"{subject}: a position table has two dimensions, positions "
                "and width. Pick another tensor with `tensor=NAME`; "
                "`posprobe inspect` lists them."
            )
        if values.dtype.kind != "f":
            raise InvalidTable(
                f"{subject}: a position table holds floating-point numbers. {INTEGER_ADVICE}"
            )
        if values.shape[0] == 0 or values.shape[1] == 0:
            raise InvalidTable(
                f"{subject}: it is empty. Check which rows were chosen (`rows`)."
            )
        if values.shape[0] != self.layout.size:
            raise InvalidTable(
                f"{subject}: {values.shape[0]} rows do not fill a {self.layout}."
            )
        is_finite = np.isfinite(values).all(axis=1)
        if not is_finite.all():
            bad_rows = np.flatnonzero(~is_finite)
            raise InvalidTable(
                f"{subject}: {bad_rows.size} of {values.shape[0]} rows hold "
                "NaN or infinity, at the positions "
                f"{_list_rows(bad_rows + self.start)}. The checkpoint is "
                "damaged: leave them out."
            )
        for name, array in (("values", values), ("prefix", self.prefix)):
            if array is not None:
                read_only = np.asarray(array).view()
                read_only.flags.writeable = False
                object.__setattr__(self, name, read_only)

    @property
    def dim(self) -> int:
        """Width ``d`` of a row."""
        return int(self.values.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Positions and width, ``(n, d)``."""
        return len(self), self.dim

    @property
    def rows(self) -> tuple[int, int]:
        """First position and one past the last."""
        return self.start, self.start + len(self)

    @property
    def scheme(self) -> Kind:
        """Name of the scheme, as for encodings without a table: ``learned`` or ``fixed``."""
        return self.kind

    def kernel(self, n: int) -> NDArray[np.float64]:
        """Return the cosines between the first ``n`` positions, ``[1, n, n]``.

        A zero row has no direction: its cosines are NaN.

        Raises
        ------
        UsageError
            If the table has fewer than ``n`` positions, or ``n`` is not positive.
        """
        import numpy as np

        if not 1 <= n <= len(self):
            raise UsageError(f"{self.name}: n = {n}, and it has {len(self)} positions.")
        rows = self.values[:n].astype(np.float64)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = np.divide(rows, norms, out=np.full_like(rows, np.nan), where=norms > 0)
        cosines: NDArray[np.float64] = (rows @ rows.T)[None]
        return cosines

    def curves(self, n: int) -> NDArray[np.float64]:
        """Return the mean cosine by offset between the first ``n`` positions, ``[1, 2 n - 1]``.

        Raises
        ------
        UsageError
            As for `kernel`.
        """
        import numpy as np

        cosines = self.kernel(n)[0]
        half = np.array([np.diagonal(cosines, offset).mean() for offset in range(n)])
        return np.concatenate([half[:0:-1], half])[None]

    def to_frame(self) -> Any:
        """Return a data frame of pandas, or of polars: ``position``, and the columns as ``"0"`` ….

        Raises
        ------
        MissingExtra
            If neither pandas nor polars is installed.
        """
        columns = {str(k): self.values[:, k] for k in range(self.dim)}
        return to_frame({"position": list(range(*self.rows)), **columns})

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        import numpy as np

        return np.array(self.values, dtype=dtype, copy=copy)

    def __getitem__(self, rows: slice) -> PositionTable:
        """Keep the positions of a slice with step 1.

        A grid stays a grid if the slice consists of whole grid rows, and becomes a sequence
        otherwise.

        Raises
        ------
        UsageError
            If it is not a slice of whole numbers, is empty, or skips rows.
        """
        if not isinstance(rows, slice):
            raise UsageError(
                f"{self.name}: PositionTable supports slices only, such as "
                f"table[1:128], not {rows!r}; use table.values for single "
                "rows."
            )
        begin, end, layout = slice_layout(self.layout, rows, self.name)
        return replace(
            self,
            values=self.values[begin:end],
            layout=layout,
            start=self.start + begin,
            notes=(*self.notes, *split_note(self.layout, layout)),
        )

    def __repr__(self) -> str:
        return format_repr(
            self, repr(self.name), self.kind, str(self.layout), f"dim={self.dim}"
        )

    def _card(self) -> Card:
        facts = {
            "positions": f"{len(self)} ({self.layout})",
            "width": self.dim,
            "kind": self.kind,
            "reference": self.source.reference,
            "tensor": self.source.tensor or "formula",
            "dropped": ", ".join(f"row {r.row}: {r.reason}" for r in self.dropped)
            or "none",
            "prefix": ", ".join(f"row {r.row}: {r.token}" for r in self.prefix_rows)
            or "none",
        }
        return Card(self.name, facts, pictures=self._pictures())


def table(
    values: Any,
    *,
    grid: tuple[int, ...] | None = None,
    name: str = "table",
    kind: Kind = "learned",
) -> PositionTable:
    """Make a table from an array or parameter in memory.

    Parameters
    ----------
    values
        ``[n, d]`` floats: an array, a torch parameter or tensor on any device, or nested lists; a
        leading axis of length 1, as image models store it, is dropped. A `PositionTable` is
        returned as it is, and a reference is read as `posprobe.load` reads it. Complex, masked and
        quantised numbers, of which a part would be lost, are refused.
    grid
        Height and width if the rows are patches, row by row, and before them the number of frames
        for those of a video; None for a sequence. Rows of special tokens must be removed before.
    name
        Name in titles.
    kind
        ``"learned"``, or ``"fixed"`` where the values follow a formula.

    Raises
    ------
    InvalidTable
        If the values are not finite ``[n, d]`` floats, or do not fill the grid.
    UsageError
        If the grid or kind is invalid.
    PosprobeError
        As `posprobe.load`, if a reference is given.

    Examples
    --------
    >>> import numpy as np
    >>> import posprobe as pp
    >>> pp.table(np.random.default_rng(0).normal(size=(12, 8)), grid=(3, 4), name="mine")
    PositionTable('mine', learned, grid of 3 x 4, dim=8)
    """
    import numpy as np

    values = load_reference(values, grid)
    if isinstance(values, PositionTable):
        return values
    if kind not in get_args(Kind):
        raise UsageError(f"{name}: a table is 'learned' or 'fixed', not {kind!r}.")
    dtype = str(getattr(values, "dtype", "")).removeprefix("torch.")
    array = to_real_array(values, name)
    if hasattr(array, "detach"):  # a torch tensor; NumPy has no bfloat16
        array = array.cpu()
        array = (array.float() if dtype == "bfloat16" else array).numpy()
    shape = array.shape
    if array.ndim == 3 and shape[0] == 1:
        array = array[0]
    if isinstance(values, list | tuple):
        array = array.astype(np.float64)
    return PositionTable(
        values=array,
        layout=make_grid(grid, name)
        if grid is not None
        else Sequence(len(array) if array.ndim else 0),
        name=name,
        kind=kind,
        source=Source(
            reference=name,
            resolved="made in memory",
            shape=shape,
            dtype=FLOAT_DTYPE_NAMES.get(dtype, FLOAT_DTYPE_NAMES.get(array.dtype.name)),
            sha256=sha256(array.tobytes()).hexdigest(),
        ),
    )


def product(
    rows: PositionTable | str | PathLike[str],
    columns: PositionTable | str | PathLike[str],
    *,
    how: Literal["add", "concatenate"],
) -> PositionTable:
    """Combine the tables of two axes into the table of their grid.

    Axial and factored encodings store one table for each axis: Reformer concatenates them (Kitaev
    et al. 2020, released code), Pix2Struct, Gemma 4 and LayoutLM's x and y add them.

    Parameters
    ----------
    rows, columns
        ``[h, d1]`` and ``[w, d2]``, sequences, or references to them.
    how
        ``"add"``: the widths are equal; ``"concatenate"``: the row's numbers come first.

    Returns
    -------
    PositionTable
        ``[h * w, d]``, row by row.

    Raises
    ------
    UsageError
        If ``how`` is another word, an argument is not a table or is a grid already, widths to be
        added differ, or the grid is too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> rows, columns = pp.sinusoidal(4, 8), pp.sinusoidal(6, 8)
    >>> print(pp.product(rows, columns, how="add").layout)
    grid of 4 x 6
    >>> pp.product(rows, columns, how="concatenate").values.shape
    (24, 16)
    """
    import numpy as np

    row_table, column_table = _load_axis_table(rows), _load_axis_table(columns)
    subject = f"{row_table.name} by {column_table.name}"
    _check_axis_tables(row_table, column_table, how, subject)
    height, width = len(row_table), len(column_table)
    by_row = np.repeat(row_table.values, width, axis=0)
    by_column = np.tile(column_table.values, (height, 1))
    is_sum = how == "add"
    values = by_row + by_column if is_sum else np.concatenate([by_row, by_column], axis=1)
    return PositionTable(
        values,
        Grid(height, width),
        name=subject,
        source=Source(
            reference=f"{row_table.source.reference} by {column_table.source.reference}",
            resolved=row_table.source.resolved,
            revision=row_table.source.revision,
            file=row_table.source.file,
            tensor=", ".join(
                filter(None, (row_table.source.tensor, column_table.source.tensor))
            )
            or None,
        ),
        kind="fixed" if row_table.kind == column_table.kind == "fixed" else "learned",
        family=row_table.family,
        notes=(f"product of two axes: {how}",),
    )


def _list_rows(rows: NDArray[np.integer[Any]]) -> str:
    listed_rows = ", ".join(str(row) for row in rows[:5].tolist())
    return listed_rows + (", ..." if rows.size > 5 else "")


def _check_axis_tables(
    row_table: PositionTable, column_table: PositionTable, how: str, subject: str
) -> None:
    """Refuse tables of two axes that make no grid."""
    if how not in ("add", "concatenate"):
        raise UsageError(f'product: how={how!r}: choose "add" or "concatenate".')
    if not (
        isinstance(row_table.layout, Sequence)
        and isinstance(column_table.layout, Sequence)
    ):
        raise UsageError(
            f"{subject}: the tables of two axes are sequences; one of these is a grid."
        )
    if how == "add" and row_table.dim != column_table.dim:
        raise UsageError(
            f"{subject}: widths {row_table.dim} and {column_table.dim} cannot be added. "
            "Concatenate them."
        )
    if len(row_table) * len(column_table) > MAX_PRODUCT_POSITIONS:
        raise UsageError(
            f"{subject}: {len(row_table)} x {len(column_table)} positions are more than "
            f"{MAX_PRODUCT_POSITIONS}. Cut the tables first, such as "
            "table[:64]."
        )


def _load_axis_table(axis_table: PositionTable | str | PathLike[str]) -> PositionTable:
    """Return the table of an axis, and refuse what is none."""
    loaded = load_reference(axis_table)
    if isinstance(loaded, PositionTable):
        return loaded
    raise UsageError(
        f"product: {type(loaded).__name__} is not a table. posprobe.load reads one, and "
        "posprobe.table makes one of an array."
    )
