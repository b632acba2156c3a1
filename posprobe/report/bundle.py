"""The bundle: a folder with the data, the figures and the page, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidCheckpoint, OutputError, UnknownReference
from posprobe.reference import parse_reference
from posprobe.report.page import render
from posprobe.report.svg import smaller_images
from posprobe.table import PositionTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.schemes import Scheme

#: Of the four kinds of bundle.
ANALYSIS: Final = "posprobe.analysis/1"
COMPARISON: Final = "posprobe.comparison/1"
KERNELS: Final = "posprobe.kernels/1"
FORWARD: Final = "posprobe.forward/1"
SCHEMAS = (ANALYSIS, COMPARISON, KERNELS, FORWARD)
#: What helps where a bundle is damaged.
_AGAIN = "Analyse the table again."
#: Everything a bundle holds.
MEMBERS = ("analysis.json", "arrays.npz", "figures", "report.html")


def bundle_name(table: PositionTable | Scheme | tuple[Scheme, ...]) -> str:
    """Name a bundle so that different tables, tensors, rows and encodings get different folders."""
    if isinstance(table, tuple):
        first = table[0].source.reference
        return bundle_name(table[0]) if len(table) == 1 else _safe(Path(first).name or first)
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
    place = Path(parsed.source).expanduser().resolve() if parsed.is_path else Path(parsed.source)
    parts = (place.name.rpartition(":")[2], parsed.revision, parsed.table, "forward")
    return _safe("-".join(part for part in parts if part))


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "table"


def _stored_positions(table: PositionTable) -> int:
    stored = math.prod(table.source.shape[:-1]) if table.source.shape else len(table)
    return stored - len(table.dropped) - len(table.prefix_rows)


class Bundled(Protocol):
    """What can be written as a bundle: an analysis or a comparison."""

    def to_dict(self) -> Mapping[str, Any]:
        """Return the content of ``analysis.json``."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``."""

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure."""


def write_bundle(content: Bundled, folder: Path) -> Path:
    """Write ``analysis.json``, ``arrays.npz``, ``figures/`` and ``report.html`` into a folder.

    The bundle is made beside its place and moved there when complete, so that a broken run leaves
    the old one or none.

    Raises
    ------
    OutputError
        If the folder cannot be written, or holds files that are no bundle's.
    """
    folder = folder.expanduser()
    _refuse_foreign(folder)
    missing = [parent for parent in folder.parents if not _there(parent)]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
            made = Path(scratch) / "bundle"
            _fill(content, made)
            _replace(folder, made, Path(scratch) / "old")
    except BaseException as error:
        _remove_empty(missing)
        if not isinstance(error, OSError):
            raise
        raise OutputError(
            f"{folder}: the bundle cannot be written ({error.strerror or error}). Nothing was "
            "changed. Choose another place with --out DIR, or make room."
        ) from error
    return folder


def read_bundle(folder: Path) -> dict[str, Any]:
    """Read a bundle's ``analysis.json``.

    Raises
    ------
    UnknownReference
        If the folder is no bundle.
    InvalidCheckpoint
        If the file is damaged or of another version.
    """
    path = folder.expanduser() / "analysis.json"
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UnknownReference(
            f"{folder}: no bundle, it has no analysis.json. "
            "`posprobe analyze REF --out DIR` makes one."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidCheckpoint(f"{path}: it cannot be read ({error}). {_AGAIN}") from error
    found = document.get("schema") if isinstance(document, dict) else None
    if found not in SCHEMAS:
        raise InvalidCheckpoint(
            f"{path}: its schema is {found!r} and one of {', '.join(SCHEMAS)} is needed. {_AGAIN}"
        )
    return dict(document)


def render_bundle(folder: Path) -> Path:
    """Render ``report.html`` again from what the bundle holds, and return its path.

    Raises
    ------
    UnknownReference, InvalidCheckpoint
        If the folder is no sound bundle.
    OutputError
        If the page cannot be written.
    """
    from jinja2 import TemplateError

    folder = folder.expanduser()
    document = read_bundle(folder)
    again = "Run the model again." if document["schema"] == FORWARD else _AGAIN
    drawings = _drawings(folder / "figures", again)
    if not drawings:
        raise InvalidCheckpoint(
            f"{folder / 'figures'}: the bundle has lost its figures, which the page shows. {again}"
        )
    try:
        with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
            page = render(document, drawings, arrays)
    except FileNotFoundError as error:
        raise InvalidCheckpoint(
            f"{folder / 'arrays.npz'}: the bundle has lost its arrays. {again}"
        ) from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidCheckpoint(
            f"{folder / 'arrays.npz'}: it cannot be read ({error}). {again}"
        ) from error
    except (LookupError, TypeError, AttributeError, ValueError, TemplateError) as error:
        raise InvalidCheckpoint(
            f"{folder / 'analysis.json'}: it lacks what the report shows "
            f"({type(error).__name__}: {error}). {again}"
        ) from error
    target = folder / "report.html"
    scratch = folder / ".report.html.part"
    try:
        scratch.write_text(page, encoding="utf-8")
        scratch.replace(target)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise OutputError(
            f"{target}: it cannot be written ({error.strerror or error}). Make room or mend the "
            "folder's permissions."
        ) from error
    return target


def to_json(document: Mapping[str, Any]) -> str:
    """Serialise a document: stable order, no NaN."""
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    # A file name need not be valid text; JSON can carry what UTF-8 cannot.
    return text.encode("utf-8", "backslashreplace").decode()


def _fill(content: Bundled, folder: Path) -> None:
    from posprobe.figures import style

    figures = folder / "figures"
    figures.mkdir(parents=True)
    document = content.to_dict()
    (folder / "analysis.json").write_text(to_json(document), encoding="utf-8")
    arrays = content.arrays()
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    drawings = {}
    with style(), warnings.catch_warnings():
        # A reader's browser has the letters that the figure's own font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        for name, make in content.figures().items():
            drawings[name] = _save_figure(make, name, figures)
    page = render(document, drawings, arrays)
    (folder / "report.html").write_text(page, encoding="utf-8")


def _save_figure(make: Callable[[], Figure], name: str, folder: Path) -> str:
    import matplotlib as mpl

    figure = make()
    # Laying out costs as much as drawing, and is the same for both formats. Without any engine, not
    # even one that does nothing, saving does not draw twice.
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)
    figure.savefig(
        folder / f"{name}.png", metadata={"Software": None}, pil_kwargs={"compress_level": 1}
    )
    buffer = BytesIO()
    # The salt makes a figure's ids its own and the same on every run.
    mpl.rcParams["svg.hashsalt"] = f"posprobe-{name}"
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    drawing = smaller_images(buffer.getvalue().decode())
    (folder / f"{name}.svg").write_text(drawing, encoding="utf-8")
    return drawing


def _drawings(folder: Path, again: str) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    drawings = {}
    for path in sorted(folder.glob("*.svg")):
        try:
            drawings[path.stem] = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InvalidCheckpoint(f"{path}: it cannot be read ({error}). {again}") from error
        if "<svg" not in drawings[path.stem]:
            raise InvalidCheckpoint(f"{path}: it is no drawing. {again}")
    return drawings


def check_place(folder: Path) -> None:
    """Refuse, before anything is computed, a folder that no bundle can be written to.

    Raises
    ------
    OutputError
        If it holds files that are no bundle's, or cannot be made.
    """
    folder = folder.expanduser()
    _refuse_foreign(folder)
    nearest = next((parent for parent in folder.absolute().parents if _there(parent)), Path("/"))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OutputError(
            f"{folder}: {nearest} cannot be written to. Choose another place with --out DIR."
        )


def _refuse_foreign(folder: Path) -> None:
    if not _there(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise OutputError(f"{folder}: it is no folder. Choose another place with --out DIR.")
    try:
        foreign = sorted(entry.name for entry in folder.iterdir() if entry.name not in MEMBERS)
    except OSError as error:
        raise OutputError(
            f"{folder}: it cannot be looked into ({error.strerror}). Choose another --out DIR."
        ) from error
    if foreign:
        raise OutputError(
            f"{folder}: it holds {', '.join(foreign[:5])}, which are no part of a bundle and would "
            "be lost. Choose a folder of its own with --out DIR."
        )


def _there(path: Path) -> bool:
    """Tell whether a path names anything, be it a broken link; an impossible name does not."""
    try:
        return path.is_symlink() or path.exists()
    except OSError:
        return False


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders that were made on the way, innermost first, as far as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _replace(folder: Path, made: Path, old: Path) -> None:
    if not folder.exists():
        made.replace(folder)
        return
    folder.replace(old)
    try:
        made.replace(folder)
    except BaseException:
        old.replace(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
