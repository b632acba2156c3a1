"""Options that several commands share, and what they mean."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from posprobe.cli.process import say
from posprobe.cli.show import found
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.schemes import Scheme
    from posprobe.tables import PositionTable


class DeviceName(StrEnum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class WhichFigures(StrEnum):
    """Which figures a bundle holds."""

    first = "first"
    all = "all"


#: `posprobe.nulls.DRAWS`, repeated so that help starts without NumPy; a test holds them.
BANDS = 9

Ref: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="REF", help="Path, Hub id, sample:NAME or formula; see posprobe -h."),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Output folder [default: reports/NAME]."),
]
Labels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="REF=LABEL",
        help="Name a reference in the output, such as gpt2=GPT-2. Repeat for each.",
    ),
]
Rows: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--rows",
        metavar="A:B",
        help="Use positions A to B-1, as in a Python slice. For encodings without a table, 0:N "
        "sets the length.",
    ),
]
Only: TypeAlias = Annotated[
    str | None,
    typer.Option("--only", metavar="LIST", help="Run these analyses, such as pca,norms, or all."),
]
OnDevice: TypeAlias = Annotated[
    DeviceName, typer.Option("--device", help="Compute on this device.")
]
Tensor: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tensor",
        metavar="NAME",
        help="Read all rows of this tensor as the position table.",
    ),
]
GridSize: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--grid",
        metavar="HxW",
        help="Grid of patches, if the checkpoint does not state it.",
    ),
]
Revision: TypeAlias = Annotated[
    str | None,
    typer.Option("--revision", metavar="NAME", help="Branch, tag or commit of a Hub repository."),
]
Nulls: TypeAlias = Annotated[
    int, typer.Option("--nulls", metavar="N", help="Random tables to draw per baseline.")
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
Figures: TypeAlias = Annotated[
    WhichFigures,
    typer.Option("--figures", help="Save the figures of the first screen, or all."),
]
Formats: TypeAlias = Annotated[
    str,
    typer.Option(
        "--format", metavar="LIST", help="Save figures in these formats, such as pdf,png,svg."
    ),
]
Offline: TypeAlias = Annotated[
    bool, typer.Option("--offline", help="Use local and cached files only.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", help="Print results only, no messages or progress.")
]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", help="Print all numbers.")]


@dataclass(frozen=True)
class Where:
    """Which tensor of which revision is read, and whether the network may be used."""

    tensor: Tensor = None
    grid: GridSize = None
    revision: Revision = None
    offline: Offline = False

    def parsed(self) -> dict[str, Any]:
        """Return them as the library takes them."""
        return {**self.__dict__, "grid": parse_grid(self.grid)}


def says_where(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command have each option of `Where`, and get them as its last argument, ``where``."""
    own, hints = inspect.signature(command), get_type_hints(Where, include_extras=True)

    @wraps(command)
    def run(**given: Any) -> None:
        where = Where(**{field.name: given.pop(field.name) for field in fields(Where)})
        command(**given, where=where)

    added = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=h)
        for f, h in zip(fields(Where), hints.values(), strict=True)
    ]
    kept = [parameter for name, parameter in own.parameters.items() if name != "where"]
    run.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, **hints}
    del run.__annotations__["where"]
    return run


def load_table(ref: str, *, rows: str | None, where: Where) -> PositionTable:
    """Load the table that a command's arguments name."""
    kept, arguments = None if rows is None else parse_rows(rows), where.parsed()
    with stage(f"Reading {ref}"):
        from posprobe.families import load

        return load(ref, rows=kept, **arguments)


def load_any(ref: str, *, rows: str | None, where: Where) -> PositionTable | tuple[Scheme, ...]:
    """Load the table that a command's arguments name, or else the encodings without a table."""
    from posprobe import checkpoint_analysis

    kept = None if rows is None else parse_rows(rows)
    return checkpoint_analysis.load_any(ref, rows=kept, **where.parsed())


def load_records(
    refs: list[str],
    *,
    rows: str | None,
    quiet: bool,
    where: Where,
    labels: Sequence[str] | None = None,
) -> list[PositionTable | Scheme]:
    """Load what several references name, and say what was found.

    A formula without sizes takes the shape of the first table. Several encodings of one checkpoint
    get the checkpoint's name before their own. ``labels`` (``REF=LABEL``) are their names instead.
    """
    from posprobe.encodings import FORMULAS, of_shape
    from posprobe.report.files import there
    from posprobe.tables import PositionTable

    called = _called(refs, labels or ())
    formula = refs[0].partition(",")[0]
    if formula in FORMULAS and not there(Path(refs[0])):
        raise UsageError(
            f"{refs[0]}: alone it takes the first table's shape, so it cannot be the first. Put it "
            f"after a table, or name its sizes: {formula}:{'x'.join(FORMULAS[formula].sizes)}."
        )
    records: list[PositionTable | Scheme] = []
    for ref in refs:
        first = records[0] if records else None
        alike = of_shape(ref, first) if isinstance(first, PositionTable) else None
        loaded = alike or load_any(ref, rows=rows, where=where)
        if not quiet:
            say(found(loaded))
        several: tuple[PositionTable | Scheme, ...]
        several = loaded if isinstance(loaded, tuple) else (loaded,)
        if len(several) > 1 and (len(refs) > 1 or ref in called):
            whose = called.get(ref, Path(ref).name)
            several = tuple(replace(scheme, name=f"{whose}#{scheme.name}") for scheme in several)
        elif ref in called:
            several = (replace(several[0], name=called[ref]),)
        records += several
    return records


def _called(refs: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Read ``REF=LABEL``, where either may hold the sign itself.

    Raises
    ------
    UsageError
        If a label has no reference among those given, or is empty.
    """
    found = {}
    for text in labels:
        whose = max((ref for ref in refs if text.startswith(f"{ref}=")), key=len, default=None)
        label = "" if whose is None else text[len(whose) + 1 :].strip()
        if whose is None or not label:
            raise UsageError(
                f"--label {text}: expected REF=LABEL, with one of the references: "
                f"{', '.join(refs)}."
            )
        found[whose] = label
    return found


def scheme_length(rows: str | None) -> int | None:
    """Read ``--rows 0:N`` as the length at which encodings without a table are looked at."""
    from posprobe import checkpoint_analysis

    return checkpoint_analysis.scheme_length(None if rows is None else parse_rows(rows))


def names_of(only: str | None) -> list[str] | None:
    """Split ``--only LIST``."""
    return None if only is None else [name.strip() for name in only.split(",")]


def parse_formats(text: str) -> frozenset[str]:
    """Split ``--format LIST``.

    Raises
    ------
    UsageError
        If one is no format of figures.
    """
    found = frozenset(part.strip() for part in text.split(","))
    if unknown := sorted(found - {"pdf", "png", "svg"}):
        raise UsageError(f"--format {text}: {unknown[0]!r} is none of pdf, png and svg.")
    return found


def parse_rows(text: str) -> slice:
    """Parse ``A:B``; either side may be left out.

    Raises
    ------
    UsageError
        If the text is anything else.
    """
    found = re.fullmatch(r"(-?\d{1,18})?:(-?\d{1,18})?", text.strip())
    if not found:
        raise UsageError(f"--rows {text}: expected A:B, such as 1:512 for positions 1 to 511.")
    begin, end = (int(part) if part else None for part in found.groups())
    return slice(begin, end)


def parse_layers(text: str | None) -> list[int] | None:
    """Split ``--layers LIST``.

    Raises
    ------
    UsageError
        If one is no whole number.
    """
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--layers {text}: expected N,N,..., such as 0,6,12.") from None


def parse_grid(text: str | None) -> tuple[int, int] | None:
    """Parse ``HxW``.

    Raises
    ------
    UsageError
        If the text is anything else.
    """
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})", text.strip())
    if not found:
        raise UsageError(f"--grid {text}: expected ROWSxCOLUMNS, such as 14x14.")
    return int(found[1]), int(found[2])


def set_up_logging(*, quiet: bool) -> None:
    """Send the library's messages to stderr, or nowhere."""
    import logging

    from posprobe.cli.messages import Plain, Told

    logger = logging.getLogger("posprobe")
    handler = logging.NullHandler() if quiet else Told()
    handler.setFormatter(Plain())
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if quiet:
        import os

        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
