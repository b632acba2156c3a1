"""Writing of bundles (data, figures and a page) and of tables."""

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

from posprobe.blocks import table_block
from posprobe.errors import InvalidCheckpoint, OutputError, UnknownReference
from posprobe.progress import stage
from posprobe.reference import parse_reference
from posprobe.report.comparison_overview import COMPARED_ARRAYS
from posprobe.report.files import (
    CHECK_SCHEMA,
    PAGE_ARRAYS,
    PAGE_NAME,
    REPEAT_ADVICE,
    RUN_SCHEMAS,
    expand_user,
    list_bundle_files,
    list_foreign_files,
    list_unchanged_files,
    open_scratch_folder,
    path_exists,
    read_arrays,
    read_bundle,
    read_drawings,
    recover_leftovers,
    replace_folder,
    resolve_file_path,
    seal_page,
    write_files,
    write_page,
)
from posprobe.report.overview import make_standalone
from posprobe.report.render import (
    OWN_DRAWING_NAMES,
    draw_first_screen,
    is_single_table,
    list_figure_names,
    render,
)
from posprobe.report.svg import render_svg
from posprobe.tables import PositionTable
from posprobe.text import escape_invisible_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.schemes import Scheme


#: A folder is searched this often for foreign files, as other processes may replace it meanwhile.
_MAX_FOREIGN_CHECKS = 5
#: Suffixes of the formats that a table can be written in.
TABLE_SUFFIXES = (".npy", ".npz", ".safetensors", ".csv")


def bundle_name(table: PositionTable | Scheme | tuple[Scheme, ...]) -> str:
    """Name a bundle such that different tables, tensors, rows and encodings differ in name."""
    if isinstance(table, tuple):
        if len(table) == 1:
            return bundle_name(table[0])
        reference = table[0].source.reference
        return _safe_name(Path(reference).name or reference)
    source = table.source
    name = source.reference if table.family == "formula" else table.name
    if not isinstance(table, PositionTable):
        return _safe_name(name)
    if table.start or (source.shape and len(table) < _stored_positions(table)):
        first_position, stop_position = table.rows
        name += f"-rows-{first_position}-{stop_position}"
    return _safe_name(name)


def forward_name(reference: str) -> str:
    """Name the bundle of a run of a model differently from that of the model's table."""
    parsed = parse_reference(reference)
    path = parsed.path.resolve() if parsed.is_path else Path(parsed.source)
    name_parts = (path.name.rpartition(":")[2], parsed.revision, parsed.table, "forward")
    return _safe_name("-".join(part for part in name_parts if part))


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "table"


def _stored_positions(table: PositionTable) -> int:
    stored = math.prod(table.source.shape[:-1]) if table.source.shape else len(table)
    return stored - len(table.dropped) - len(table.prefix_rows)


def default_folder(name: str, sources: set[tuple[str, str | None]]) -> Path:
    """Return the folder in ``reports`` of a bundle for which no other was given.

    It is called ``name``, or ``name-2``, ``name-3``, ... where that is a bundle of other sources:
    folders of two checkpoints may have the same name.
    """
    for number in itertools.count(1):
        folder = Path("reports") / (name if number == 1 else f"{name}-{number}")
        try:
            if _document_sources(read_bundle(folder)) == sources:
                return folder
        except (UnknownReference, InvalidCheckpoint):
            # The folder is free, or no bundle and refused later.
            return folder
    raise AssertionError


def list_sources(
    records: Iterable[PositionTable | Scheme],
) -> set[tuple[str, str | None]]:
    """Return the resolved source and the tensor of each table or encoding."""
    return {(record.source.resolved, record.source.tensor) for record in records}


def _document_sources(document: Mapping[str, Any]) -> set[tuple[str, str | None]] | None:
    """Return the sources that a document states; None if it states none."""
    records = document.get("tables") or document.get("schemes") or document.get("records")
    try:
        if document["schema"] in RUN_SCHEMAS:
            return {(document["name"], None)}
        blocks = [
            record.get("table", record)["source"] for record in records or [document]
        ]
        return {(block["resolved"], block["tensor"]) for block in blocks}
    except (LookupError, TypeError, AttributeError):
        return None


class BundleContent(Protocol):
    """An analysis or comparison that can be written as a bundle."""

    def to_dict(self) -> Mapping[str, Any]:
        """Return the content of ``analysis.json``."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``."""

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return a function that makes each figure, by name."""


def write_bundle(
    content: BundleContent,
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
    check_bundle_folder(folder)
    folder = expand_user(folder)
    missing = [parent for parent in folder.parents if not path_exists(parent)]

    def check(old_bundle: Path) -> None:
        # The user may have saved a file there while figures were drawn.
        _check_foreign_files(old_bundle, folder)

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open_scratch_folder(folder) as scratch_root:
            _write_content(
                content, scratch_root / "bundle", all_figures=all_figures, formats=formats
            )
            replace_folder(scratch_root / "bundle", folder, check)
    except BaseException as error:
        _remove_empty(missing)
        if not isinstance(error, OSError):
            raise
        raise OutputError(
            f"{folder}: the bundle cannot be written "
            f"({error.strerror or error}). Nothing was changed. Choose "
            "another place, or make room."
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
    folder = expand_user(folder)
    target = folder / PAGE_NAME
    recover_leftovers(target)
    document = read_bundle(folder)
    has_lost_page = not path_exists(target)
    try:
        files = {} if has_lost_page else list_unchanged_files(folder)
    except FileNotFoundError:
        # The page is a broken link.
        files = None
    if files is None:
        raise OutputError(
            f"{target}: posprobe did not write it, or it changed since, and "
            "would be lost. Move it away first."
        )
    page, figure_names = _render_document(document, folder)
    if has_lost_page:
        # The page knows the names of the bundle's own figures; files with these names are listed.
        files = {
            name: entry
            for name, entry in list_bundle_files(folder).items()
            if not name.startswith("figures/") or Path(name).stem in figure_names
        }
    write_page(target, seal_page(page, files))
    return target


def _render_document(document: Mapping[str, Any], folder: Path) -> tuple[str, set[str]]:
    """Render the page of a document, and return the names of its figures too."""
    from jinja2 import TemplateError

    is_run = document["schema"] in RUN_SCHEMAS
    advice = "Run the model again." if is_run else REPEAT_ADVICE
    names = COMPARED_ARRAYS if "tables" in document else PAGE_ARRAYS
    arrays = read_arrays(folder / "arrays.npz", advice, names)
    try:
        # The page of a table is drawn from its arrays.
        if is_single_table(document):
            svgs = draw_first_screen(document, arrays)
        else:
            # Only drawings that are made here become part of the page itself.
            own_svgs = draw_first_screen(document, arrays)
            figure_svgs = {
                name: svg
                for name, svg in read_drawings(folder / "figures", advice).items()
                if name not in OWN_DRAWING_NAMES
            }
            svgs = figure_svgs | own_svgs
            needs_figures = document["schema"] != CHECK_SCHEMA and not (
                is_run and own_svgs
            )
            if needs_figures and not figure_svgs:
                raise InvalidCheckpoint(
                    f"{folder}: the bundle has lost its figures, which the page shows. {advice}"
                )
        with stage("Writing the page"):
            page = render(document, svgs)
        return page, list_figure_names(document)
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
            f"({type(error).__name__}: {error}). {advice}"
        ) from error


def to_json(document: Mapping[str, Any]) -> str:
    """Serialise a document in stable order and without NaN."""
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    # File names need not be valid UTF-8; JSON can escape their bytes.
    return escape_invisible_json(text).encode("utf-8", "backslashreplace").decode()


def _write_content(
    content: BundleContent, folder: Path, *, all_figures: bool, formats: Collection[str]
) -> None:
    figures = folder / "figures"
    figures.mkdir(parents=True)
    with stage("Writing the data"):
        document = content.to_dict()
        text = to_json(document)
        (folder / "analysis.json").write_text(text, encoding="utf-8")
        arrays = content.arrays()
        np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    is_table = is_single_table(document)
    svgs = draw_first_screen(document, arrays)
    for name, svg in svgs.items():
        path = figures / f"overview-{name}.svg"
        path.write_text(make_standalone(svg), encoding="utf-8")
    if is_table and all_figures:
        _draw_figures(content, figures, text, formats)
    elif all_figures or not svgs or document.keys() & {"records", "tables"}:
        svgs = _draw_figures(content, figures, text, {"svg", *formats}) | svgs
    with stage("Writing the page"):
        page = seal_page(render(document, svgs), list_bundle_files(folder))
    (folder / PAGE_NAME).write_text(page, encoding="utf-8")


def _draw_figures(
    content: BundleContent, figures: Path, text: str, formats: Collection[str]
) -> dict[str, str]:
    """Save every figure of a bundle whose document is ``text``; return the SVG by name."""
    with stage("Drawing figures"):
        from posprobe.figures import style
        from posprobe.figures.common import escape_figure_text
    # Searching all texts of a figure takes a third as long as drawing it, so that it is done only
    # if the document has escapes.
    has_escapes = re.search(r"\\[a-z]", text) is not None
    builders = content.figures()
    with style(), stage("Drawing figures", len(builders)) as advance:
        for name, build in builders.items():
            figure = build()
            if has_escapes:
                figure = escape_figure_text(figure)
            _save_figure(figure, name, figures, formats)
            advance(1)
    paths = {name: figures / f"{name}.svg" for name in builders if "svg" in formats}
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items()}


def _save_figure(
    figure: Figure, name: str, folder: Path, formats: Collection[str]
) -> None:
    # The layout takes as long as drawing and is the same for all formats. With any layout engine,
    # even one that does nothing, saving would draw twice.
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)
    if "png" in formats:
        figure.savefig(
            folder / f"{name}.png",
            metadata={"Software": None},
            pil_kwargs={"compress_level": 1},
        )
    if "pdf" in formats:
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
    if "svg" in formats:
        (folder / f"{name}.svg").write_text(render_svg(figure, name), encoding="utf-8")


def check_bundle_folder(folder: Path) -> None:
    """Check, before anything is computed, that a bundle can be written to a folder.

    Raises
    ------
    OutputError
        If it holds anything but a bundle as posprobe wrote it, or cannot be made.
    """
    folder = expand_user(folder)
    recover_leftovers(folder)
    _check_foreign_files(folder)
    if message := _folder_problem(folder):
        raise OutputError(f"{folder}: {message}. Choose another place.")


def _folder_problem(folder: Path) -> str:
    """Return why no folder can be made or replaced there; empty where one can."""
    # Without a name, no other folder can be moved to this path.
    if folder.name in ("", ".."):
        return "the working directory and its parents cannot be replaced"
    try:
        if folder.is_mount():
            return "it is a mount point, which cannot be replaced, but a folder in it can"
    except OSError as error:
        # The name is too long, or a parent may not be searched.
        return f"no folder can be made there ({error.strerror})"
    nearest_parent = next(
        (parent for parent in folder.absolute().parents if path_exists(parent)), Path("/")
    )
    if not nearest_parent.is_dir():
        return f"{nearest_parent} is not a folder"
    return (
        ""
        if os.access(nearest_parent, os.W_OK)
        else f"{nearest_parent} cannot be written to"
    )


def _check_foreign_files(folder: Path, shown_path: Path | None = None) -> None:
    """Check that replacing a folder loses nothing; messages call it ``shown_path``."""
    message = ""
    # Another process may put its bundle there meanwhile, but foreign files persist in all checks.
    for _ in range(_MAX_FOREIGN_CHECKS):
        if not (message := _describe_loss(folder)):
            return
    raise OutputError(f"{shown_path or folder}: {message}. Choose a folder of its own.")


def _describe_loss(folder: Path) -> str:
    """Return what replacing a folder would lose; empty for nothing."""
    if not path_exists(folder):
        return ""
    if folder.is_symlink() or not folder.is_dir():
        return "it is not a folder"
    try:
        foreign = list_foreign_files(folder)
    except OSError as error:
        return f"it cannot be looked into ({error.strerror})"
    if not foreign:
        return ""
    names_text = f"{', '.join(foreign[:6])}{' and more' if len(foreign) > 6 else ''}"
    hint = ". `posprobe report DIR` takes over a bundle that has lost its page"
    return (
        f"it holds {names_text}, which posprobe did not write or which "
        "changed since, and would be "
        f"lost{hint if 'analysis.json' in foreign else ''}"
    )


def _remove_empty(folders: list[Path]) -> None:
    """Remove newly made parent folders that are empty, innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def resolve_table_path(path: Path) -> Path:
    """Return the path of a table's file; errors are those of `resolve_file_path`."""
    return resolve_file_path(path, TABLE_SUFFIXES)


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
    path = resolve_table_path(path)
    with write_files(path) as scratch_root:
        _write_values(table, scratch_root / path.name)


def _write_values(table: PositionTable, path: Path) -> None:
    values = np.ascontiguousarray(table.values)
    match path.suffix:
        case ".npy":
            np.save(path, values)
        case ".npz":
            prefix = table.prefix if table.prefix is not None else values[:0]
            np.savez(path, values=values, prefix=prefix)
        case ".safetensors":
            from safetensors.numpy import save

            # The package's own writer maps the file, so that a full disk would kill the process.
            content = save(
                {"values": values}, {"posprobe.table": json.dumps(table_block(table))}
            )
            path.write_bytes(content)
        case _:
            digits = 17 if values.dtype == np.float64 else 9
            np.savetxt(path, values.astype(np.float64), delimiter=",", fmt=f"%.{digits}g")
