"""Read what an engine computes from a dump: frequencies, or cosines and sines, and one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posprobe.arrays import Floats
from posprobe.errors import InvalidCheckpoint
from posprobe.relations.ladders import Ladder
from posprobe.relations.rules import RULES, Finding

#: Names of the arrays of a dump, with the shape and meaning that messages state.
DUMP_ARRAYS: Mapping[str, str] = {
    "inv_freq": "[pairs] in rad per position",
    "cos": "[positions, pairs]",
    "sin": "[positions, pairs]",
    "q": "[..., head_dim] before rotation",
    "q_rotated": "the same after it",
    "position": "of that query, one number",
    "sections": "[axes], pairs that turn along each",
    "interleaved": "0 or 1, whether axes take their pairs in turn",
}
#: The widest head of a dump, in dimensions; this bounds time and memory.
MAX_DUMP_HEAD_DIM = 2**12
#: Only this many positions of a dump are compared, which bounds time and memory.
MAX_DUMP_POSITIONS = 2**15
#: Pairs turn along at most this many axes: time, rows, columns, and one more.
MAX_AXES = 4
#: The lowest frequency of a dump, in radians per position: slower pairs never turn.
MIN_DUMP_FREQUENCY = 1e-12
#: The highest frequency of a dump, in radians per position: no engine has a faster pair.
MAX_DUMP_FREQUENCY = 100.0
#: Within one table cos² + sin² differs by at most this between positions and pairs, in bfloat16.
_MAX_COSINE_LENGTH_ERROR = 2**-6
#: The two orders of rows by which heads are divided into pairs.
_PAIR_ORDER_NAMES = ("halves", "neighbours")


@dataclass(frozen=True, eq=False)
class Dump:
    """A checked dump.

    Parameters
    ----------
    ladder
        Ladder of its frequencies, with a factor and the arrays if the dump has cosines and sines.
    q, q_rotated
        ``[n, head_dim]``, or None.
    sections
        Number of pairs that turn along each axis; None if it is not stated.
    in_turn
        Whether the axes take their pairs in turn; None if it is not stated.
    """

    ladder: Ladder
    q: Floats | None = None
    q_rotated: Floats | None = None
    sections: list[int] | None = None
    in_turn: bool | None = None


def is_dump(names: Mapping[str, object]) -> bool:
    """Tell whether an archive with these names is an engine's dump."""
    return "inv_freq" in names or {"cos", "sin"} <= set(names)


def read_dump(arrays: Mapping[str, Floats], file: str) -> Dump:
    """Check the arrays of a dump.

    Parameters
    ----------
    arrays
        Arrays by the names in `DUMP_ARRAYS`; others are ignored.
    file
        Path of the dump, for messages.

    Raises
    ------
    InvalidCheckpoint
        If a shape is impossible, a number is not finite, or positions do not begin at 0.
    """
    stored_arrays = {
        name: np.asarray(arrays[name], dtype=np.float64)
        for name in DUMP_ARRAYS
        if name in arrays
    }
    for name, values in stored_arrays.items():
        if not np.isfinite(values).all():
            raise InvalidCheckpoint(
                f"{file}: {name} contains NaN or infinity. Write it again."
            )
    q, q_rotated = (stored_arrays.get(name) for name in ("q", "q_rotated"))
    if (q is None) != (q_rotated is None):
        raise InvalidCheckpoint(
            f"{file}: of q and q_rotated it has one. Write both, or neither."
        )
    if q is not None and q_rotated is not None:
        if (
            q.shape != q_rotated.shape
            or not q.ndim
            or q.shape[-1] % 2
            or not 0 < q.size < 2**26
        ):
            shapes = f"{list(q.shape)} and {list(q_rotated.shape)}"
            raise _shape_error(file, ("q", "q_rotated"), shapes)
        q, q_rotated = (states.reshape(-1, states.shape[-1]) for states in (q, q_rotated))
    scalars = {
        name: stored_arrays[name]
        for name in ("position", "interleaved")
        if name in stored_arrays
    }
    for name, values in scalars.items():
        if values.size != 1:
            raise _shape_error(file, (name,), str(list(values.shape)))
    position = float(scalars["position"].item()) if "position" in scalars else None
    in_turn = bool(scalars["interleaved"].item()) if "interleaved" in scalars else None
    if "cos" in stored_arrays and "sin" in stored_arrays:
        ladder = _read_cosines(stored_arrays["cos"], stored_arrays["sin"], file)
    else:
        ladder = _read_frequencies(stored_arrays["inv_freq"], file)
    section_sizes = _read_sections(stored_arrays.get("sections"), file)
    dump = Dump(ladder, q, q_rotated, section_sizes, in_turn)
    if position is not None and q is not None:
        _check_rotated_query(dump, position, file)
    return dump


def _read_sections(sections: Floats | None, file: str) -> list[int] | None:
    """Return the number of pairs of each axis; None where the dump states none."""
    if sections is None:
        return None
    are_counts = (sections == np.round(sections)).all() and (sections >= 0).all()
    if sections.ndim != 1 or not 0 < sections.size <= MAX_AXES or not are_counts:
        shape = f"{list(sections.shape)}, or with such numbers,"
        raise _shape_error(file, ("sections",), shape)
    return [int(size) for size in sections]


def _read_frequencies(inv_freq: Floats, file: str) -> Ladder:
    """Check the frequencies of a dump, in radians per position."""
    frequencies = inv_freq.reshape(-1)
    is_empty = not frequencies.size
    is_too_long = frequencies.size > MAX_DUMP_HEAD_DIM
    is_too_slow = (frequencies < MIN_DUMP_FREQUENCY).any()
    if is_empty or is_too_long or is_too_slow or (frequencies > MAX_DUMP_FREQUENCY).any():
        shape = str(list(inv_freq.shape))
        if not is_empty:
            shape += f" and {frequencies.min():.3g} to {frequencies.max():.3g} rad"
        raise _shape_error(file, ("inv_freq",), shape)
    return Ladder(frequencies)


def _check_rotated_query(dump: Dump, position: float, file: str) -> None:
    """Check that the dump's frequencies turn its query as the engine did."""
    rotations = np.exp(1j * position * dump.ladder.frequencies)
    residuals = [
        _query_residual(dump.ladder, dump, pair_order, rotations)
        for pair_order in _PAIR_ORDER_NAMES
    ]
    if min(residuals) >= RULES["pairs_wrong"].tolerance:
        raise InvalidCheckpoint(
            f"{file}: q_rotated is not q turned by the dump's frequencies "
            f"at position {position:g}. Write the frequencies that the "
            "engine uses, and the query's position."
        )


def _shape_error(file: str, names: Sequence[str], shape: str) -> InvalidCheckpoint:
    """Make the error that states a shape and the shape that is expected."""
    expected_shapes = " and ".join(f"{name} {DUMP_ARRAYS[name]}" for name in names)
    message = f"{file}: {' and '.join(names)} of shape {shape} cannot be."
    return InvalidCheckpoint(f"{message} Write {expected_shapes}.")


def _read_cosines(cos: Floats, sin: Floats, file: str) -> Ladder:
    """Compute the frequencies from the angles, over more and more positions."""
    if cos.size and sin.size:
        cos, sin = (
            table.reshape(-1, table.shape[-1]) if table.ndim else table
            for table in (cos, sin)
        )
    has_equal_shapes = cos.shape == sin.shape and cos.ndim == 2
    if not has_equal_shapes or len(cos) < 2 or not 0 < cos.shape[1] <= MAX_DUMP_HEAD_DIM:
        raise _shape_error(
            file, ("cos", "sin"), f"{list(cos.shape)} and {list(sin.shape)}"
        )
    cos, sin = cos[:MAX_DUMP_POSITIONS], sin[:MAX_DUMP_POSITIONS]
    half = cos.shape[1] // 2
    if cos.shape[1] % 2 == 0 and np.array_equal(cos[:, :half], cos[:, half:]):
        cos, sin = (
            cos[:, :half],
            sin[:, half:],
        )  # the first half of the sines may have a sign
    elif cos.shape[1] % 2 == 0 and np.array_equal(cos[:, 0::2], cos[:, 1::2]):
        cos, sin = cos[:, 0::2], sin[:, 1::2]
    radii = np.sqrt(cos**2 + sin**2)
    factor = float(radii[0].mean())
    if not factor or np.abs(radii / factor - 1).max() > _MAX_COSINE_LENGTH_ERROR:
        raise InvalidCheckpoint(
            f"{file}: cos² + sin² is not the same everywhere, so that they "
            "are not cosines and sines of one rotation. Write the arrays "
            "before anything is added to them."
        )
    factor = float(radii.mean())
    cos, sin = cos / factor, sin / factor
    if np.abs(sin[0]).max() > _MAX_COSINE_LENGTH_ERROR:
        raise InvalidCheckpoint(
            f"{file}: the first row of cos and sin is not that of position "
            "0. Write them as [positions, pairs], from position 0 on."
        )
    frequencies = np.arctan2(sin[1], cos[1])
    row = 1
    while 2 * row < len(cos):
        row *= 2
        angles = np.arctan2(sin[row], cos[row])
        turns = np.round((frequencies * row - angles) / (2 * np.pi))
        frequencies = (angles + 2 * np.pi * turns) / row
    if (frequencies <= 0).any():
        raise InvalidCheckpoint(
            f"{file}: {int((frequencies <= 0).sum())} pairs do not turn "
            "forwards from position 0 to 1. Write the rows of positions 0, "
            "1, 2 and so on, and the pairs that rotate."
        )
    return Ladder(frequencies, factor, cos=cos, sin=sin)


def relate_query(
    ladder: Ladder, dump: Dump, are_neighbours: bool | None
) -> Finding | None:
    """Find the columns that an engine rotates together, from a query before and after rotation.

    Parameters
    ----------
    ladder
        Ladder of the checkpoint.
    dump
        Dump with ``q`` and ``q_rotated``.
    are_neighbours
        Whether the checkpoint's pairs are neighbours; None if it is not known.

    Returns
    -------
    Finding
        None if both pair orders, or neither, fit the query.
    """
    if dump.q is None or dump.q_rotated is None or are_neighbours is None:
        return None
    residuals = {
        order: _query_residual(ladder, dump, order) for order in _PAIR_ORDER_NAMES
    }
    tolerance = RULES["pairs_wrong"].tolerance
    fitting_orders = [
        order for order, residual in residuals.items() if residual < tolerance
    ]
    if len(fitting_orders) != 1:
        return None
    engine_order = fitting_orders[0]
    declared_order = "neighbours" if are_neighbours else "halves"
    cause = "same_pairs" if engine_order == declared_order else "pairs_wrong"
    return Finding("pairs", cause, declared_order, engine_order, residuals[engine_order])


def _query_residual(
    ladder: Ladder, dump: Dump, pair_order: str, rotations: np.ndarray | None = None
) -> float:
    """Return the norm that a pair order leaves unexplained, over that of the rotated query.

    Without ``rotations`` ``[pairs]`` each pair may turn by any angle.
    """
    assert dump.q is not None and dump.q_rotated is not None  # noqa: S101, PT018 - callers check this
    n_pairs = min(len(ladder.frequencies), dump.q.shape[1] // 2)
    before, after = (
        _complex_pairs(states, pair_order, n_pairs) for states in (dump.q, dump.q_rotated)
    )
    # One angle and one factor for all queries of a pair; least squares of one complex number.
    products = (after * before.conj()).sum(axis=0)
    products /= np.maximum((np.abs(before) ** 2).sum(axis=0), 1e-300)
    factor = ladder.factor or dump.ladder.factor or float(np.median(np.abs(products)))
    rotations = products if rotations is None else rotations[:n_pairs]
    rotations = (
        factor * rotations / np.maximum(np.abs(rotations), 1e-300)
    )  # a rotation changes no length
    return float(
        np.linalg.norm(after - rotations * before) / (np.linalg.norm(after) or 1.0)
    )


def _complex_pairs(queries: Floats, pair_order: str, n_pairs: int) -> np.ndarray:
    rotated_columns = queries[:, : 2 * n_pairs]
    if pair_order == "halves":
        return np.asarray(
            rotated_columns[:, :n_pairs] + 1j * rotated_columns[:, n_pairs:]
        )
    return np.asarray(rotated_columns[:, 0::2] + 1j * rotated_columns[:, 1::2])
