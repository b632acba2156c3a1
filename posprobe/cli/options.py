"""Options that several commands share, what they mean, and how help shows them."""

from __future__ import annotations

import inspect
import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from posprobe.cli.process import set_up_logging, tell
from posprobe.cli.show import found
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.schemes import Scheme
    from posprobe.tables import PositionTable


Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]

#: `posprobe.nulls.DRAWS`, repeated so that help starts without NumPy.
BANDS = 9


@dataclass(frozen=True)
class Where:
    """Which tensor of which revision is read, and whether the network may be used."""

    tensor: str | None = None
    grid: str | None = None
    revision: str | None = None
    offline: bool = False

    def parsed(self) -> dict[str, Any]:
        """Return them as the library takes them."""
        return {**self.__dict__, "grid": parse_grid(self.grid)}


@cache
def _texts() -> dict[str, Any]:
    # Not TOML, since help would have to import its reader.
    texts: dict[str, Any] = json.loads(Path(__file__).with_name("options.json").read_bytes())
    return texts


def declared(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Let a command's parameters be typed as ``options.json`` says, and ``--quiet`` besides.

    A parameter ``where`` stands for each option of `Where`.
    """
    hints, own = get_type_hints(command), inspect.signature(command).parameters
    kept = [(key, hints[key], own[key].default) for key in own if key != "where"]
    placed = get_type_hints(Where) if "where" in own else {}
    kept += [("quiet", bool, False), *((k, hint, getattr(Where, k)) for k, hint in placed.items())]
    texts = {**_texts()["all"], **_texts().get(name, {})}

    @wraps(command)
    def run(**given: Any) -> None:
        set_up_logging(quiet=given.pop("quiet"))
        if placed:
            given["where"] = Where(**{key: given.pop(key) for key in placed})
        command(**given)

    run.__annotations__ = {key: _typed(hint, **texts[key]) for key, hint, _ in kept}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=default,
                annotation=run.__annotations__[key],
            )
            for key, _, default in kept
        ]
    )  # fmt: skip
    return run


def _typed(hint: Any, *, flags: Sequence[str] = (), **text: Any) -> Any:
    return Annotated[hint, typer.Option(*flags, **text) if flags else typer.Argument(**text)]


def check_asked(out: Path | None, only: list[str] | None, nulls: int, device: Device) -> None:
    """Refuse what cannot be done before anything is read."""
    with stage("Starting"):
        from posprobe.report import check_place
        from posprobe.studies import check_request

    if out is not None:
        check_place(out)
    check_request(only, nulls, device)


def place_of(out: Path | None, *loaded: PositionTable | Scheme | tuple[Scheme, ...]) -> Path:
    """Return where a bundle goes: by default a folder named after what it is of."""
    from posprobe.report import bundle_name, check_place, default_place, sources_of

    if out is None:
        several = (each if isinstance(each, tuple) else (each,) for each in loaded)
        name = "-vs-".join(map(bundle_name, loaded))[:200]
        out = default_place(name, sources_of(chain.from_iterable(several)))
        check_place(out)
    return out


def load_table(ref: str, *, rows: str | None, where: Where) -> PositionTable:
    """Load the table that a command's arguments name."""
    kept, arguments = parse_rows(rows), where.parsed()
    with stage(f"Reading {ref}"):
        from posprobe.families import load

        return load(ref, rows=kept, **arguments)


def load_any(ref: str, *, rows: str | None, where: Where) -> PositionTable | tuple[Scheme, ...]:
    """Load the table that a command's arguments name, or else the encodings without a table."""
    from posprobe.families.read import load_any as load

    return load(ref, rows=parse_rows(rows), **where.parsed())


def load_records(
    refs: list[str],
    *,
    rows: str | None,
    where: Where,
    labels: Sequence[str] | None = None,
    runs: bool = False,
    seed: int = 0,
) -> list[PositionTable | Scheme]:
    """Load what several references name, and say what was found.

    A formula without sizes takes the shape of the first table, and a null model is drawn from it,
    with ``seed``. Several encodings of one checkpoint get the checkpoint's name before their own.
    ``labels`` (``REF=LABEL``) are their names instead.
    With ``runs``, a folder of `posprobe forward` stands for what its heads do.
    """
    from posprobe.encodings import FORMULAS, of_shape
    from posprobe.nulls import NULLS, surrogate
    from posprobe.report.files import there
    from posprobe.studies.kernels import measured_heads
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
        alike = None
        if isinstance(first, PositionTable):
            drawn = ref in NULLS and not there(Path(ref))
            alike = surrogate(first, ref, seed) if drawn else of_shape(ref, first)
        run = measured_heads(ref) if runs else None
        loaded = alike or (run and (run,)) or load_any(ref, rows=rows, where=where)
        tell(found(loaded))
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
    from posprobe.studies.checkpoint import scheme_length as length_of_rows

    return length_of_rows(parse_rows(rows))


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


def parse_rows(text: str | None) -> slice | None:
    """Parse ``A:B``; either side may be left out.

    Raises
    ------
    UsageError
        If the text is anything else.
    """
    if text is None:
        return None
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


#: Options that help shows before all others: those that a command's signature names first.
FIRST = 5


class Command(TyperCommand):
    """A command whose help shows its most used options first."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the arguments, the most used options and the others."""
        found: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                found[parameter.param_type_name].append(record)
        options = found["option"]
        # The last of them is --help.
        first = FIRST if len(options) > FIRST + 1 else len(options)
        panels = {
            "Arguments": found["argument"],
            "Options": options[:first],
            "More options": options[first:],
        }
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(TyperGroup):
    """Commands by what they are for."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ARG002
        """Write a panel for each purpose."""
        panels: dict[str, list[tuple[str, str]]] = defaultdict(list)
        limit = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            if not command.hidden:
                panel = str(getattr(command, "rich_help_panel", ""))
                panels[panel].append((name, command.get_short_help_str(limit)))
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=12)
