"""Options that several commands share, their parsing, and their order in the help."""

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

from posprobe.cli.parameters import command_options
from posprobe.cli.process import print_note, set_up_logging
from posprobe.cli.show import describe_loaded
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.schemes import Scheme
    from posprobe.tables import PositionTable


Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]

#: Default number of random tables per baseline, as in `posprobe.nulls`; repeated here so that help
#: starts without NumPy.
DEFAULT_NULL_DRAWS = 9


@dataclass(frozen=True)
class LoadOptions:
    """Options of loading: tensor, grid, revision, and whether the network is forbidden."""

    tensor: str | None = None
    grid: str | None = None
    revision: str | None = None
    offline: bool = False

    def parse(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `posprobe.load`."""
        return {**self.__dict__, "grid": parse_grid(self.grid)}


@cache
def _texts() -> dict[str, Any]:
    # JSON rather than TOML, whose reader would slow down the help.
    texts: dict[str, Any] = json.loads(
        Path(__file__).with_name("options.json").read_bytes()
    )
    return texts


def add_options(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags and help of ``options.json``, and the option ``--quiet``.

    A parameter ``load_options`` stands for all options of `LoadOptions`.
    """
    hints, parameters = get_type_hints(command), inspect.signature(command).parameters
    load_hints = get_type_hints(LoadOptions) if "load_options" in parameters else {}
    names = [name for name in parameters if name != "load_options"]
    options = [(name, hints[name], parameters[name].default) for name in names]
    options += [
        ("quiet", bool, False),
        *((key, hint, getattr(LoadOptions, key)) for key, hint in load_hints.items()),
    ]
    texts = {**_texts()["all"], **_texts().get(name, {})}
    flags = [flag for key, *_ in options for flag in texts[key].get("flags", ())]

    @wraps(command)
    def run(**arguments: Any) -> None:
        set_up_logging(quiet=arguments.pop("quiet"))
        if load_hints:
            load_values = {key: arguments.pop(key) for key in load_hints}
            arguments["load_options"] = LoadOptions(**load_values)
        with command_options(flags):
            command(**arguments)

    run.__annotations__ = {key: _annotate(hint, **texts[key]) for key, hint, _ in options}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=run.__annotations__[key],
            )
            for key, _, default in options
        ]
    )
    return run


def _annotate(hint: Any, *, flags: Sequence[str] = (), **text: Any) -> Any:
    return Annotated[
        hint, typer.Option(*flags, **text) if flags else typer.Argument(**text)
    ]


def check_arguments(
    folder: Path | None, requested: list[str] | None, nulls: int, device: Device
) -> None:
    """Check the output folder, analyses, draws and device before anything is read."""
    with stage("Starting"):
        from posprobe.report import check_bundle_folder
        from posprobe.studies import check_table_request

    if folder is not None:
        check_bundle_folder(folder)
    check_table_request(requested, nulls, device)


def bundle_folder(
    folder: Path | None, *loaded: PositionTable | Scheme | tuple[Scheme, ...]
) -> Path:
    """Return the folder of a bundle, by default one named after the loaded encodings."""
    from posprobe.report import (
        bundle_name,
        check_bundle_folder,
        default_folder,
        list_sources,
    )

    if folder is None:
        scheme_groups = (
            record if isinstance(record, tuple) else (record,) for record in loaded
        )
        name = "-vs-".join(map(bundle_name, loaded))[:200]
        folder = default_folder(name, list_sources(chain.from_iterable(scheme_groups)))
        check_bundle_folder(folder)
    return folder


def load_table(ref: str, *, rows: str | None, load_options: LoadOptions) -> PositionTable:
    """Load the table that the arguments of a command name."""
    positions, arguments = parse_rows(rows), load_options.parse()
    with stage(f"Reading {ref}"):
        from posprobe.families import load

        return load(ref, rows=positions, **arguments)


def load_any(
    ref: str, *, rows: str | None, load_options: LoadOptions
) -> PositionTable | tuple[Scheme, ...]:
    """Load the table that the arguments of a command name, or else the schemes."""
    from posprobe.families.read import load_any as load

    return load(ref, rows=parse_rows(rows), **load_options.parse())


def load_records(
    refs: list[str],
    *,
    rows: str | None,
    load_options: LoadOptions,
    labels: Sequence[str] | None = None,
    accepts_runs: bool = False,
    seed: int = 0,
) -> list[PositionTable | Scheme]:
    """Load the encodings that several references name, and print a description of each.

    A formula without sizes takes the shape of the first table, and a null model is drawn from that
    table with ``seed``. Several schemes of one checkpoint are named after the checkpoint and their
    own name; ``labels`` (``REF=LABEL``) replace the names. With ``accepts_runs``, a folder of
    `posprobe forward` stands for the heads that were measured.
    """
    from posprobe.studies.comparison import check_has_shape, generate_in_shape
    from posprobe.studies.kernels import measured_heads

    labels_by_reference = parse_labels(refs, labels or ())
    check_has_shape(refs[0])
    records: list[PositionTable | Scheme] = []
    for ref in refs:
        generated: Any = generate_in_shape(ref, records[0], seed) if records else None
        run = measured_heads(ref) if accepts_runs else None
        if run is not None:
            generated = generated or (run,)
        loaded = generated or load_any(ref, rows=rows, load_options=load_options)
        print_note(describe_loaded(loaded))
        loaded_records: tuple[PositionTable | Scheme, ...]
        loaded_records = loaded if isinstance(loaded, tuple) else (loaded,)
        if len(loaded_records) > 1 and (len(refs) > 1 or ref in labels_by_reference):
            label = labels_by_reference.get(ref, Path(ref).name)
            loaded_records = tuple(
                replace(scheme, name=f"{label}#{scheme.name}")
                for scheme in loaded_records
            )
        elif ref in labels_by_reference:
            loaded_records = (replace(loaded_records[0], name=labels_by_reference[ref]),)
        records += loaded_records
    return records


def parse_labels(refs: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Parse ``REF=LABEL``, in which either side may contain an equals sign.

    A reference may be named as the output names it, where no other one has that name.

    Raises
    ------
    UsageError
        If a label belongs to none of the references, or is empty.
    """
    from posprobe.families.read import title_of_reference

    titles = [title_of_reference(ref) for ref in refs]
    references = {
        title: ref
        for title, ref in zip(titles, refs, strict=True)
        if titles.count(title) == 1
    } | {ref: ref for ref in refs}
    labels_by_reference = {}
    for text in labels:
        name = max(
            (n for n in references if text.startswith(f"{n}=")), key=len, default=None
        )
        label = "" if name is None else text[len(name) + 1 :].strip()
        if name is None or not label:
            raise UsageError(
                f"--label {text}: expected REF=LABEL, with one of the "
                f"references: {', '.join(refs)}."
            )
        labels_by_reference[references[name]] = label
    return labels_by_reference


def scheme_length(rows: str | None) -> int | None:
    """Parse ``--rows 0:N`` as the length at which schemes are measured."""
    from posprobe.studies.checkpoint import scheme_length as length_of_rows

    return length_of_rows(parse_rows(rows))


def split_names(text: str | None) -> list[str] | None:
    """Split ``--only LIST``."""
    return None if text is None else [name.strip() for name in text.split(",")]


def parse_formats(text: str) -> frozenset[str]:
    """Split ``--format LIST``.

    Raises
    ------
    UsageError
        If a name is not a format of figures.
    """
    formats = frozenset(name.strip() for name in text.split(","))
    if unknown := sorted(formats - {"pdf", "png", "svg"}):
        raise UsageError(f"--format {text}: {unknown[0]!r} is none of pdf, png and svg.")
    return formats


def match_value(flag: str, text: str, pattern: str, form: str) -> tuple[Any, ...]:
    """Return the groups of a pattern in the value of an option.

    Raises
    ------
    UsageError
        If the value has another form.
    """
    matched = re.fullmatch(pattern, text.strip())
    if not matched:
        raise UsageError(f"{flag} {text}: expected {form}.")
    return matched.groups()


def parse_rows(text: str | None) -> slice | None:
    """Parse ``A:B``; either side may be left out."""
    if text is None:
        return None
    form = "A:B, such as 1:512 for positions 1 to 511"
    bounds = match_value("--rows", text, r"(-?\d{1,18})?:(-?\d{1,18})?", form)
    start, stop = (int(bound) if bound else None for bound in bounds)
    return slice(start, stop)


def parse_layers(text: str | None) -> list[int] | None:
    """Split ``--layers LIST``.

    Raises
    ------
    UsageError
        If an entry is not an integer.
    """
    try:
        return None if text is None else [int(index) for index in text.split(",")]
    except ValueError:
        raise UsageError(f"--layers {text}: expected N,N,..., such as 0,6,12.") from None


def parse_grid(text: str | None) -> tuple[int, ...] | None:
    """Parse ``HxW``, or ``FxHxW`` of a video."""
    if text is None:
        return None
    form = "ROWSxCOLUMNS, such as 14x14, or of a video FRAMESxROWSxCOLUMNS"
    pattern = r"([1-9]\d{0,6})x([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?"
    sizes = match_value("--grid", text, pattern, form)
    return tuple(int(size) for size in sizes if size is not None)


#: Number of options that help shows before all others: the first ones of a command's signature.
MAX_FIRST_OPTIONS = 5


class Command(TyperCommand):
    """Command whose help shows its most used options first."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the arguments, the most used options and the others."""
        records_by_type: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                records_by_type[parameter.param_type_name].append(record)
        options = records_by_type["option"]
        # The last of them is --help.
        n_first = (
            MAX_FIRST_OPTIONS if len(options) > MAX_FIRST_OPTIONS + 1 else len(options)
        )
        panels = {
            "Arguments": records_by_type["argument"],
            "Options": options[:n_first],
            "More options": options[n_first:],
        }
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(TyperGroup):
    """Group of commands whose help lists them by purpose."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ARG002
        """Write a panel of commands for each purpose."""
        panels: dict[str, list[tuple[str, str]]] = defaultdict(list)
        limit = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            if not command.hidden:
                panel = str(getattr(command, "rich_help_panel", ""))
                panels[panel].append((name, command.get_short_help_str(limit)))
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=12)
