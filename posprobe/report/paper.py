"""A figure for a paper: what each kind draws, of which records, with its caption."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posprobe.arrays import Device
from posprobe.errors import InvalidCheckpoint, OutputError, UsageError
from posprobe.progress import stage
from posprobe.report.captions import caption
from posprobe.report.comparison import relabelled
from posprobe.report.files import expanded, folder_there, recover, there, whole_files
from posprobe.report.own import read_regular
from posprobe.report.paper_kinds import (
    Record,
    check_look,
    kinds,
    of_schemes,
    of_tables,
    schemes_for,
    tables_for,
)
from posprobe.report.svg import smaller_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.figures.styles import Span

#: What a figure is written as.
SUFFIXES = (".pdf", ".svg", ".png")


@dataclass(frozen=True, eq=False)
class PaperFigure:
    """A figure at its final size, with the caption that belongs to it.

    Parameters
    ----------
    figure
        The matplotlib figure, at the width of the venue.
    caption
        One paragraph: how to read it, what it shows, how it was made.
    venue, span
        Where it will be printed.

    Examples
    --------
    >>> import posprobe as pp
    >>> figure = pp.paper_figure("norms", pp.sinusoidal(64, 8), venue="acl")
    >>> figure.caption.startswith("Euclidean norm of each position embedding")
    True
    """

    figure: Figure
    caption: str = field(repr=False)
    venue: str
    span: Span

    def save(self, path: str | Path) -> Path:
        """Write the figure, and its caption beside it; return the caption's path.

        The same figure gives the same bytes. A broken run leaves the old files or none.

        Parameters
        ----------
        path
            Ends in ``.pdf``, ``.svg`` or ``.png``; the caption goes to ``NAME.caption.txt``.

        Raises
        ------
        UsageError
            If the suffix is none of these.
        OutputError
            If a file cannot be written, or a caption stands there that posprobe did not write.
        """
        target, beside = figure_paths(Path(path))
        content = self._draw(target.suffix.lower())
        try:
            with whole_files(target, beside) as place:
                (place / target.name).write_bytes(content)
                (place / beside.name).write_text(self.caption, encoding="utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise OutputError(
                f"{target}: it cannot be written ({why}). Choose another place."
            ) from error
        return beside

    def _draw(self, suffix: str) -> bytes:
        import matplotlib as mpl

        from posprobe.figures import style

        mark = {"Keywords": _mark(self.caption.encode())}
        metadata: dict[str, dict[str, Any]] = {
            ".pdf": {"CreationDate": None, **mark},
            ".svg": {"Date": None, **mark},
            ".png": {"Software": None, **mark},
        }
        buffer = BytesIO()
        with (
            style(self.venue, span=self.span),
            mpl.rc_context({"svg.hashsalt": "posprobe"}),
            warnings.catch_warnings(),
        ):
            # A name may hold letters that the font lacks, and is drawn with boxes then.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            self.figure.savefig(buffer, format=suffix[1:], metadata=metadata[suffix])
        if suffix == ".svg":
            return smaller_images(buffer.getvalue().decode()).encode()
        return buffer.getvalue()


def figure_paths(path: Path) -> tuple[Path, Path]:
    """Return where a figure and its caption go.

    Raises
    ------
    UsageError
        If the suffix is not a known one.
    OutputError
        If there is no such folder, a folder stands where a file should, or a text where the caption
        should that is not of a figure beside it.
    """
    path = expanded(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: the suffix must be .pdf, .svg or .png.")
    beside = path.with_suffix(".caption.txt")
    try:
        inside = folder_there(path.parent)
        folder = next((place for place in (path, beside) if folder_there(place)), None)
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: no file can have this name ({error}).") from error
    if not inside:
        raise OutputError(f"{path}: no folder {path.parent}. Create it first.")
    if folder is not None:
        raise OutputError(f"{folder}: it is a folder. Choose another name.")
    recover(path)
    if there(beside) and not _own_caption(path, beside):
        raise OutputError(
            f"{beside}: posprobe did not write this text, or it changed since, and the caption "
            "would replace it. Move it away, or choose another name."
        )
    return path, beside


def _mark(caption: bytes) -> str:
    """Return what a figure carries to tell its caption from a text of somebody else."""
    return f"caption sha256 {hashlib.sha256(caption).hexdigest()}"


def _own_caption(path: Path, beside: Path) -> bool:
    try:
        mark = _mark(read_regular(beside)).encode()
    except (InvalidCheckpoint, FileNotFoundError):
        return False
    # One caption serves a figure in several formats.
    for figure in {path, *(path.with_suffix(suffix) for suffix in SUFFIXES)}:
        with suppress(InvalidCheckpoint, FileNotFoundError):
            if mark in read_regular(figure):
                return True
    return False


def check_kind(kind: str) -> None:
    """Refuse a kind of figure that there is not.

    Raises
    ------
    UsageError
        If it is not one of `posprobe.report.paper_kinds.kinds`.
    """
    if kind not in kinds():
        raise UsageError(
            f"unknown figure {kind!r}. Choose one of {', '.join(kinds())}; `posprobe figure "
            "series` draws a training run from a sweep."
        )


def _colours(kind: str, figure: Figure, cmap: str) -> str:
    """Say how to read the colours that were asked for, which must be there.

    Raises
    ------
    UsageError
        If nothing is drawn in the colour map that was asked for.
    """
    maps = {part.get_cmap().name for part in figure.findobj() if hasattr(part, "get_cmap")}
    if cmap not in maps:
        raise UsageError(f"{kind}: this figure has no signed values, which --cmap colours.")
    return "Dark is below 0, light above." if cmap == "grey" else ""


def check_request(
    kind: str,
    venue: str,
    path: Path,
    *,
    cmap: str | None,
    centred: bool | None,
    columns: int | None,
) -> None:
    """Refuse what cannot be drawn or written, before anything is loaded.

    Raises
    ------
    UsageError
        If the kind, the venue, the colour map or the suffix is unknown, or the kind has not what
        was asked for.
    OutputError
        If the path cannot be written to.
    """
    from posprobe.figures.styles import check_map, venue_of

    check_kind(kind)
    venue_of(venue)
    check_map(cmap)
    check_look(kind, centred, columns)
    figure_paths(path)


def paper_figure(
    kind: str,
    *records: Record,
    venue: str = "acl",
    span: Span = "column",
    labels: Sequence[str] | None = None,
    centred: bool | None = None,
    columns: int | None = None,
    cmap: str | None = None,
    seed: int = 0,
    device: Device = "auto",
    length: int | None = None,
) -> PaperFigure:
    """Draw one figure for a paper.

    Parameters
    ----------
    kind
        Kind of figure, as `posprobe list figures` names it.
    records
        Tables; for ``heads``, the encodings of one checkpoint that have no table. Where tables
        share axes, all are cut to the positions of the shortest.
    venue
        Key of `posprobe.figures.styles.venues`.
    span
        ``"column"`` or ``"page"``; a text of one column has no narrower one.
    labels
        Names in figure and caption, one for each; None keeps their own.
    centred
        Whether cosines are drawn after subtracting the mean row, or as stored; None for what suits
        the kind. ``similarity``, ``profile`` and ``comparison`` have the choice.
    columns
        Panels per row, for ``similarity``, ``components`` and ``comparison``.
    cmap
        Colours of numbers with a sign, as for `posprobe.style`; ``"grey"`` keeps the sign in black
        and white.
    seed, device
        As for `analyze`.
    length
        Positions at which encodings without a table are drawn; as for `analyze_schemes`.

    Raises
    ------
    UsageError
        If the kind, venue, span or colour map is unknown, the kind does not apply to these records
        or has not what was asked for, or there are more or fewer labels than records.
    InvalidTable
        If a table has a single row.

    Examples
    --------
    >>> import posprobe as pp
    >>> figure = pp.paper_figure("norms", pp.sinusoidal(64, 8), venue="acl")
    >>> print(f"{figure.figure.get_figwidth():.2f} inches")
    3.03 inches
    """
    from posprobe.figures import style
    from posprobe.figures.common import Sheet, lay_out, shown_plainly
    from posprobe.figures.styles import venue_of

    check_kind(kind)
    check_look(kind, centred, columns)
    records = relabelled(records, labels)
    place = venue_of(venue)
    with style(venue, span=span, cmap=cmap):
        sheet = Sheet(place.width(span), place.height, columns=columns)
        if kind == "heads":
            figure, (text, *whence) = of_schemes(schemes_for(records), sheet, length, seed)
        else:
            tables = tables_for(kind, records)
            figure, (text, *whence) = of_tables(kind, tables, sheet, seed, device, centred=centred)
        colours = _colours(kind, figure, cmap) if cmap else ""
        with stage("Laying out the figure"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            drawn = figure
            if not all(record.name.isprintable() for record in records):
                figure = shown_plainly(lambda: drawn)
            lay_out(figure)
    return PaperFigure(figure, caption(text, colours, *whence), venue, span)
