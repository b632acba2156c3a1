"""Every analysis of what a reference leads to: its table, or else its encodings without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posprobe.arrays import Device
from posprobe.errors import NoPositionTable, UsageError
from posprobe.families import TokenSample, load, load_schemes, load_tokens
from posprobe.progress import stage
from posprobe.report import Analysis, SchemeAnalysis, analyze, analyze_schemes
from posprobe.schemes import Scheme
from posprobe.tables import PositionTable


def load_any(reference: str, **where: Any) -> PositionTable | tuple[Scheme, ...]:
    """Load the table that a reference names, or else the encodings without a table.

    Parameters and errors are those of `posprobe.load` and `posprobe.load_schemes`.
    """
    with stage(f"Reading {reference}"):
        try:
            return load(reference, **where)
        except NoPositionTable:
            if where.get("tensor") or where.get("grid"):
                raise
            common = {key: where[key] for key in ("revision", "offline") if key in where}
            return load_schemes(reference, **common)


def analyze_any(
    loaded: PositionTable | tuple[Scheme, ...],
    *,
    only: Sequence[str] | None = None,
    nulls: int = 0,
    rows: slice | None = None,
    device: Device = "auto",
    seed: int = 0,
    offline: bool = False,
    command: str | None = None,
    all_rows: bool = False,
) -> Analysis | SchemeAnalysis:
    """Run the analyses on what `load_any` returned.

    Parameters
    ----------
    loaded
        The table, with the rows that are to be kept, or encodings without a table.
    rows
        Of encodings without a table ``slice(0, N)`` is the length at which they are looked at.
    only, nulls, device, seed, command, all_rows
        As for `posprobe.analyze`.
    offline
        Use local files only for what the positions are added to.

    Raises
    ------
    PosprobeError
        As `posprobe.analyze`; also where ``only`` or ``nulls`` mean nothing to an encoding without
        a table.
    """
    if not isinstance(loaded, tuple):
        tokens = _sample(loaded, only, seed=seed, offline=offline)
        return analyze(
            loaded, only=only, nulls=nulls, device=device, seed=seed, command=command,
            tokens=tokens, all_rows=all_rows,
        )  # fmt: skip
    if nulls < 0:
        raise UsageError(f"--nulls {nulls}: it must be 0 or more.")
    if only is not None:
        raise UsageError(
            f"{loaded[0].source.reference}: it has no table, and --only chooses analyses of tables."
        )
    return analyze_schemes(*loaded, length=scheme_length(rows), seed=seed, command=command)


def _sample(
    table: PositionTable, only: Sequence[str] | None, *, seed: int, offline: bool
) -> TokenSample | None:
    """Sample what positions are added to, where it is asked for or costs no requests."""
    remote = table.source.revision is not None
    if remote if only is None else not {"scale", "all"} & set(only):
        return None
    try:
        with stage("Reading tokens that positions are added to"):
            return load_tokens(table, seed=seed, offline=offline)
    except UsageError:
        if only and "scale" in only:
            raise
        return None


def scheme_length(rows: slice | None) -> int | None:
    """Read rows ``0:N`` as the length at which encodings without a table are looked at.

    Raises
    ------
    UsageError
        If the rows begin elsewhere, or have no end.
    """
    if rows is None:
        return None
    if rows.start not in (None, 0) or rows.stop is None or rows.stop < 2:
        begin, end = ("" if part is None else part for part in (rows.start, rows.stop))
        raise UsageError(
            f"--rows {begin}:{end}: an encoding without a table depends on distances alone. Name a "
            "length of at least 2: --rows 0:N."
        )
    return int(rows.stop)
