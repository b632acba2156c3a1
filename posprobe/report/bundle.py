"""What is written: a bundle, which is data, figures and a page, or a table alone."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from posprobe.blocks import describe
from posprobe.errors import InvalidCheckpoint, OutputError, UnknownReference
from posprobe.progress import stage
from posprobe.reference import parse_reference
from posprobe.report.files import (
    CHECK,
    FORWARD,
    PAGE,
    REPEAT_ADVICE,
    expanded,
    file_path,
    files_in,
    foreign_in,
    own_files,
    put_in_place,
    read_bundle,
    recover,
    scratch,
    seal,
    stored_arrays,
    stored_drawings,
    there,
    write_page,
    written,
)
from posprobe.report.overview import drawings, standalone
from posprobe.report.render import figures_of, of_table, render
from posprobe.report.svg import svg_of
from posprobe.tables import PositionTable
from posprobe.text import plain_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.schemes import Scheme


#: How often a folder is looked into that other processes may replace meanwhile.
_LOOKS = 5
#: What a table is written as.
SUFFIXES = (".npy", ".npz", ".safetensors", ".csv")


def bundle_name(table: PositionTable | Scheme | tuple[Scheme, ...]) -> str:
    """Name a bundle so that different tables, tensors, rows and encodings get different folders."""
    if isinstance(table, tuple):
        first_reference = table[0].source.reference
        return (
            bundle_name(table[0])
            if len(table) == 1
            else _safe(Path(first_reference).name or first_reference)
        )
    source = table.source
    name = source.reference if table.family == "formula" else table.name
    if not isinstance(table, PositionTable):
        return _safe(name)
    if table.start or (source.shape and len(table) < _stored_positions(table)):
        begin, end = table.rows
        name += f"-rows-{begin}-{end}"
    return _safe(name)


def forward_name(reference: str) -> str:
    """Name the bundle of a run of a model, which stands beside that of the model's table."""
    parsed = parse_reference(reference)
    place = parsed.path.resolve() if parsed.is_path else Path(parsed.source)
    parts = (place.name.rpartition(":")[2], parsed.revision, parsed.table, "forward")
    return _safe("-".join(part for part in parts if part))


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "table"


def _stored_positions(table: PositionTable) -> int:
    stored = math.prod(table.source.shape[:-1]) if table.source.shape else len(table)
    return stored - len(table.dropped) - len(table.prefix_rows)


def default_place(name: str, sources: set[tuple[str, str | None]]) -> Path:
    """Return the folder in ``reports`` where a bundle goes that was given no other.

    It is called ``name``, or ``name-2``, ``name-3``, ... where that is a bundle of other sources:
    folders of two checkpoints may have the same name.
    """
    for number in itertools.count(1):
        folder = Path("reports") / (name if number == 1 else f"{name}-{number}")
        try:
            if _sources_in(read_bundle(folder)) == sources:
                return folder
        except (UnknownReference, InvalidCheckpoint):
            return folder  # free, or no bundle and refused as such
    raise AssertionError


def sources_of(records: Iterable[PositionTable | Scheme]) -> set[tuple[str, str | None]]:
    """Return what was read: for each table or encoding where, and which tensor."""
    return {(record.source.resolved, record.source.tensor) for record in records}


def _sources_in(document: Mapping[str, Any]) -> set[tuple[str, str | None]] | None:
    """Return what a bundle was made of; None where it does not say."""
    multiple = document.get("tables") or document.get("schemes") or document.get("records")
    try:
        if document["schema"] == FORWARD:
            return {(document["name"], None)}
        blocks = [record.get("table", record)["source"] for record in multiple or [document]]
        return {(block["resolved"], block["tensor"]) for block in blocks}
    except (LookupError, TypeError, AttributeError):
        return None


class Bundled(Protocol):
    """What can be written as a bundle: an analysis or a comparison."""

    def to_dict(self) -> Mapping[str, Any]:
        """Return the content of ``analysis.json``."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``."""

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure."""


def write_bundle(
    content: Bundled,
    folder: Path,
    *,
    all_figures: bool = False,
    formats: Collection[str] = ("svg",),
) -> Path:
    """Write ``analysis.json``, ``arrays.npz``, ``figures/`` and ``report.html`` into a folder.

    The bundle is made beside its place and moved there when complete, so that a broken run leaves
    the old one or none. Only a bundle is replaced, and only where all files in it are as posprobe
    wrote them.

    Parameters
    ----------
    content, folder
        Content of the bundle, and its folder.
    all_figures
        Whether to make every figure of a table, rather than those of the first screen alone.
    formats
        Formats of these figures, among ``svg``, ``pdf`` and ``png``. A page shows SVG.

    Raises
    ------
    OutputError
        If the folder cannot be written, or holds anything else.
    """
    check_place(folder)
    folder = expanded(folder)
    missing = [parent for parent in folder.parents if not there(parent)]

    def check(old_bundle: Path) -> None:
        # Somebody may have saved a file there while figures were drawn.
        _refuse_foreign(old_bundle, folder)

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch(folder) as place:
            _fill(content, place / "bundle", all_figures=all_figures, formats=formats)
            put_in_place(place / "bundle", folder, check)
    except BaseException as error:
        _remove_empty(missing)
        if not isinstance(error, OSError):
            raise
        raise OutputError(
            f"{folder}: the bundle cannot be written ({error.strerror or error}). Nothing was "
            "changed. Choose another place with --out DIR, or make room."
        ) from error
    return folder


def render_bundle(folder: Path) -> Path:
    """Render ``report.html`` again from what the bundle holds, and return its path.

    Raises
    ------
    UnknownReference, InvalidCheckpoint
        If the folder is no sound bundle.
    OutputError
        If the page is not as posprobe wrote it, or cannot be written.
    """
    from jinja2 import TemplateError

    folder = expanded(folder)
    target = folder / PAGE
    recover(target)
    document = read_bundle(folder)
    repeat_command = "Run the model again." if document["schema"] == FORWARD else REPEAT_ADVICE
    has_lost_page = not there(target)
    try:
        files = {} if has_lost_page else own_files(folder)
    except FileNotFoundError:  # a link to nowhere
        files = None
    if files is None:
        raise OutputError(
            f"{target}: posprobe did not write it, or it changed since, and would be lost. Move it "
            "away first."
        )
    arrays = stored_arrays(folder / "arrays.npz", repeat_command)
    try:
        # The page of a table is drawn from its arrays.
        if of_table(document):
            svgs = drawings(document, arrays)
        else:
            svgs = stored_drawings(folder / "figures", repeat_command)
            if not svgs and document["schema"] != CHECK:
                raise InvalidCheckpoint(
                    f"{folder}: the bundle has lost its figures, which the page shows. "
                    f"{repeat_command}"
                )
        with stage("Writing the page"):
            page = render(document, svgs)
        names = figures_of(document)
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        ArithmeticError,
        RecursionError,
        TemplateError,
    ) as error:
        raise InvalidCheckpoint(
            f"{folder / 'analysis.json'}: it lacks what the report shows "
            f"({type(error).__name__}: {error}). {repeat_command}"
        ) from error
    if (
        has_lost_page
    ):  # the page says which figures are the bundle's own: those that it may have are taken
        files = {
            name: entry
            for name, entry in files_in(folder).items()
            if not name.startswith("figures/") or Path(name).stem in names
        }
    write_page(target, seal(page, files))
    return target


def to_json(document: Mapping[str, Any]) -> str:
    """Serialise a document: stable order, no NaN."""
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    # A file name need not be valid text; JSON can carry what UTF-8 cannot.
    return plain_json(text).encode("utf-8", "backslashreplace").decode()


def _fill(content: Bundled, folder: Path, *, all_figures: bool, formats: Collection[str]) -> None:
    figures = folder / "figures"
    figures.mkdir(parents=True)
    with stage("Writing the data"):
        document = content.to_dict()
        text = to_json(document)
        (folder / "analysis.json").write_text(text, encoding="utf-8")
        arrays = content.arrays()
        np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    if of_table(document):
        svgs = drawings(document, arrays)
        for name, svg in svgs.items():
            place = figures / f"overview-{name}.svg"
            place.write_text(standalone(svg), encoding="utf-8")
        if all_figures:
            _drawn(content, figures, text, formats)
    else:
        svgs = _drawn(content, figures, text, {"svg", *formats})
    with stage("Writing the page"):
        page = seal(render(document, svgs), files_in(folder))
    (folder / PAGE).write_text(page, encoding="utf-8")


def _drawn(content: Bundled, figures: Path, text: str, formats: Collection[str]) -> dict[str, str]:
    """Save every figure of a bundle whose document is ``text``; return the SVG by name."""
    with stage("Drawing figures"):
        from posprobe.figures import style
        from posprobe.figures.common import escape_figure_text
    # To look through all texts of a figure takes a third of the time that drawing it does.
    escapes = re.search(r"\\[a-z]", text)
    makers = content.figures()
    with style(), stage("Drawing figures", len(makers)) as advance:
        for name, make in makers.items():
            figure = make()
            _save_figure(escape_figure_text(figure) if escapes else figure, name, figures, formats)
            advance(1)
    places = {name: figures / f"{name}.svg" for name in makers if "svg" in formats}
    return {name: place.read_text(encoding="utf-8") for name, place in places.items()}


def _save_figure(figure: Figure, name: str, folder: Path, formats: Collection[str]) -> None:
    # Laying out costs as much as drawing, and is the same for all formats. Without any engine, not
    # even one that does nothing, saving does not draw twice.
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)
    if "png" in formats:
        figure.savefig(
            folder / f"{name}.png", metadata={"Software": None}, pil_kwargs={"compress_level": 1}
        )
    if "pdf" in formats:
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
    if "svg" in formats:
        (folder / f"{name}.svg").write_text(svg_of(figure, name), encoding="utf-8")


def check_place(folder: Path) -> None:
    """Refuse, before anything is computed, a folder that no bundle can be written to.

    Raises
    ------
    OutputError
        If it holds anything but a bundle as posprobe wrote it, or cannot be made.
    """
    folder = expanded(folder)
    recover(folder)
    _refuse_foreign(folder)
    if message := _unfit(folder):
        raise OutputError(f"{folder}: {message}. Choose another place with --out DIR.")


def _unfit(folder: Path) -> str:
    """Say why no folder can be made or replaced there; empty where one can."""
    if folder.name in ("", ".."):  # no other folder can be moved to a place without a name
        return "the working directory and its parents cannot be replaced"
    try:
        if folder.is_mount():
            return "it is a mount point, which cannot be replaced, but a folder in it can"
    except OSError as error:  # too long a name, or below what may not be looked into
        return f"no folder can be made there ({error.strerror})"
    nearest = next((parent for parent in folder.absolute().parents if there(parent)), Path("/"))
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return "" if os.access(nearest, os.W_OK) else f"{nearest} cannot be written to"


def _refuse_foreign(folder: Path, shown_path: Path | None = None) -> None:
    """Refuse a folder with anything that would be lost; messages call it ``shown_path``."""
    message = ""
    # Another process may put its bundle there meanwhile; what is foreign is so at every look.
    for _ in range(_LOOKS):
        if not (message := _lost(folder)):
            return
    raise OutputError(
        f"{shown_path or folder}: {message}. Choose a folder of its own with --out DIR."
    )


def _lost(folder: Path) -> str:
    """Say what would be lost if a bundle took this place; empty for nothing."""
    if not there(folder):
        return ""
    if folder.is_symlink() or not folder.is_dir():
        return "it is not a folder"
    try:
        foreign = foreign_in(folder)
    except OSError as error:
        return f"it cannot be looked into ({error.strerror})"
    if not foreign:
        return ""
    names_text = f"{', '.join(foreign[:6])}{' and more' if len(foreign) > 6 else ''}"
    hint = ". `posprobe report DIR` takes over a bundle that has lost its page"
    return (
        f"it holds {names_text}, which posprobe did not write or which changed since, "
        "and would be lost"
        f"{hint if 'analysis.json' in foreign else ''}"
    )


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders that were made on the way, innermost first, as far as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def table_path(path: Path) -> Path:
    """Return where a table goes; errors are those of `posprobe.report.files.file_path`."""
    return file_path(path, SUFFIXES)


def write_table(table: PositionTable, path: Path) -> None:
    """Write a table's positions as ``.npy``, ``.npz``, ``.safetensors`` or ``.csv``.

    ``.npz`` also holds the rows of special tokens (``prefix``), ``.safetensors`` the provenance, as
    JSON under ``posprobe.table`` in its metadata.

    Raises
    ------
    UsageError
        If the suffix is none of these.
    OutputError
        If the file cannot be written; an older one is then left as it was.
    """
    path = table_path(path)
    with written(path) as place:
        _write(table, place / path.name)


def _write(table: PositionTable, path: Path) -> None:
    values = np.ascontiguousarray(table.values)
    match path.suffix:
        case ".npy":
            np.save(path, values)
        case ".npz":
            prefix = table.prefix if table.prefix is not None else values[:0]
            np.savez(path, values=values, prefix=prefix)
        case ".safetensors":
            from safetensors.numpy import save

            # The package's own writer maps the file, which a full disk turns into a signal.
            content = save({"values": values}, {"posprobe.table": json.dumps(describe(table))})
            path.write_bytes(content)
        case _:
            digits = 17 if values.dtype == np.float64 else 9
            np.savetxt(path, values.astype(np.float64), delimiter=",", fmt=f"%.{digits}g")
