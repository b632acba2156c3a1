"""Figures for papers: their kinds, the records that they draw, and their captions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from posprobe.analyses import Heads, Result, Rotation
from posprobe.arrays import Device
from posprobe.drawable import Card, Displayable
from posprobe.errors import InvalidCheckpoint, OutputError, UsageError
from posprobe.layouts import Grid
from posprobe.measurements import TABLE_MEASUREMENTS, Drawing
from posprobe.progress import stage
from posprobe.report.files import (
    folder_exists,
    path_exists,
    read_regular_file,
    recover_leftovers,
    resolve_file_path,
    write_files,
)
from posprobe.report.svg import shrink_images
from posprobe.schemes import Encoding, LinearBias, RelativeBias, Rotary, Scheme
from posprobe.studies.comparison import (
    apply_labels,
    load_references,
    make_names_unique,
)
from posprobe.studies.run_figures import RUN_FIGURES, draw_runs, measure_runs
from posprobe.studies.schemes import analyze_schemes
from posprobe.studies.series import Series
from posprobe.studies.table import analyze, select_results
from posprobe.tables import PositionTable
from posprobe.words import captions
from posprobe.words.captions import join_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.figures.common import FigureFormat
    from posprobe.figures.styles import Span
    from posprobe.studies.model import ForwardAnalysis


#: A figure, the sentences of its caption, and the sources of its data.
CaptionedFigure: TypeAlias = "tuple[Figure, tuple[str, ...], str]"

#: Kinds of figures that do not belong to one measurement.
KINDS_WITHOUT_TABLE = (
    Drawing("table", help_text="the table itself"),
    Drawing("heads", help_text="relative, rotary and ALiBi encodings"),
    Drawing(
        "comparison",
        help_text="similarity, profiles and spectra together",
        shows_several_tables=True,
        has_centring=True,
        has_columns=True,
    ),
)
#: The kind of figure that shows a training run.
SERIES_KIND = "series"
#: Kinds whose panels are too many for half a slide.
TALL_KINDS = ("comparison", "axis_codes", "clock")
#: Number of lines that readers can tell apart in one figure.
MAX_PAPER_TABLES = 6
#: Number of rotations that fit into one figure.
MAX_PAPER_ROTATIONS = 3


def drawings() -> dict[str, Drawing]:
    """Return the drawings of all kinds of figures for papers, by name."""
    kinds = (
        drawing
        for measurement in TABLE_MEASUREMENTS.values()
        for drawing in measurement.drawings
        if drawing.help_text
    )
    return {drawing.name: drawing for drawing in (*kinds, *KINDS_WITHOUT_TABLE)}


def kinds() -> dict[str, str]:
    """Return the description of every kind of figure, by name."""
    return {
        **{name: drawing.help_text for name, drawing in drawings().items()},
        **{name: title for name, (_, title) in RUN_FIGURES.items()},
        SERIES_KIND: "a training run: numbers and answers by step",
    }


def multi_table_kinds() -> list[str]:
    """Return the kinds that take several tables."""
    return _kinds_with("shows_several_tables")


def _kinds_with(property_name: str) -> list[str]:
    return [
        name for name, drawing in drawings().items() if getattr(drawing, property_name)
    ]


def check_kind(kind: str, centred: bool | None, columns: int | None) -> None:
    """Refuse an unknown kind of figure, and options that it does not have.

    Raises
    ------
    UsageError
        If it is not one of `kinds`, has no choice of centring, or no panels to arrange.
    """
    if kind not in kinds():
        raise UsageError(f"unknown figure {kind!r}. Choose one of {', '.join(kinds())}.")
    if centred is not None and kind not in (able := _kinds_with("has_centring")):
        raise UsageError(f"{kind}: `centred` applies only to {', '.join(able)}.")
    if columns is not None and kind not in (able := _kinds_with("has_columns")):
        raise UsageError(f"{kind}: `columns` applies only to {', '.join(able)}.")
    if columns is not None and not 1 <= columns <= MAX_PAPER_TABLES:
        raise UsageError(
            f"`columns={columns}`: 1 to {MAX_PAPER_TABLES} panels fit into a row."
        )


def select_tables(kind: str, records: Sequence[Encoding]) -> list[PositionTable]:
    """Return the tables that a kind draws, cut to the shortest where they share axes.

    Raises
    ------
    UsageError
        If there are too few or too many, or one of the records is not a table.
    """
    tables = [record for record in records if isinstance(record, PositionTable)]
    if len(tables) < len(records):
        raise UsageError(
            f"{kind} draws tables of positions. The kind heads draws encodings without one."
        )
    min_tables, max_tables = (
        2 if kind == "comparison" else 1,
        MAX_PAPER_TABLES if kind in multi_table_kinds() else 1,
    )
    if not min_tables <= len(tables) <= max_tables:
        raise UsageError(
            f"{kind} draws {min_tables} to {max_tables} tables, and "
            f"{len(tables)} are given. Several are drawn by "
            f"{', '.join(multi_table_kinds())}."
        )
    if len(tables) == 1 or kind in {"similarity", "budget"}:
        return tables
    return cut_to_shared_positions(tables)


def cut_to_shared_positions(tables: Sequence[PositionTable]) -> list[PositionTable]:
    """Cut tables to the positions that all of them have, from their first row.

    Raises
    ------
    UsageError
        If grids differ, or grids and sequences are mixed.
    """
    layouts = {table.layout for table in tables if isinstance(table.layout, Grid)}
    if layouts and (len(layouts) > 1 or any(t.layout not in layouts for t in tables)):
        shapes = ", ".join(f"{table.name} is a {table.layout}" for table in tables)
        raise UsageError(
            f"{shapes}: positions on a grid share axes only with the same "
            "grid. Nothing is resampled."
        )
    length = min(len(table) for table in tables)
    return [table if len(table) == length else table[:length] for table in tables]


def draw_tables(
    kind: str,
    tables: list[PositionTable],
    figure_format: FigureFormat,
    seed: int,
    device: Device,
    *,
    centred: bool | None,
) -> CaptionedFigure:
    """Draw a kind of figure of tables, and write the sentences of its caption.

    Raises
    ------
    UsageError
        If the kind does not apply to the tables, or its numbers are undefined.
    """
    from posprobe.figures import find_builder
    from posprobe.figures.comparison import comparison_figure
    from posprobe.figures.styles import make_labels_printable

    if kind in TALL_KINDS and figure_format.is_low and figure_format.is_narrow:
        raise UsageError(f"{kind}: it does not fit half a slide. Use `span='page'`.")
    drawing, names = drawings()[kind], make_names_unique([table.name for table in tables])
    drawables: dict[str, Any] = dict(zip(names, tables, strict=True))
    extras: dict[str, Any] = {"centred": centred}
    if kind != "table":
        results_by_name = _measure_tables(drawing, drawables, seed, device)
        drawables = {
            name: next(iter(results.values()))
            for name, results in results_by_name.items()
        }
        if kind == "comparison":
            spectra = {
                name: results["spectrum"] for name, results in results_by_name.items()
            }
            extras["spectra"] = make_labels_printable(spectra)
    for name, drawable in drawables.items():
        if absence := drawing.explain_absence(drawable):
            raise UsageError(f"{name}: {kind} cannot be drawn: {absence}.")
    first_drawable = next(iter(drawables.values()))
    build = (
        comparison_figure if kind == "comparison" else find_builder(first_drawable, kind)
    )
    figure = build(figure_format, make_labels_printable(drawables), extras)
    options = {"centred": centred} if drawing.has_centring else {}
    subject = drawables if drawing.shows_several_tables else first_drawable
    text = captions.reading_caption(kind, drawing.help_text, subject, **options)
    sentences = text, captions.describe_records(names, tables)
    return figure, sentences, captions.describe_sources(names, tables)


def _measure_tables(
    drawing: Drawing, tables: Mapping[str, PositionTable], seed: int, device: Device
) -> dict[str, Mapping[str, Result]]:
    """Return the results that a drawing shows, the drawn one first, by the name of the table."""
    measurements = [
        name
        for name, measurement in TABLE_MEASUREMENTS.items()
        if drawing in measurement.drawings
    ]
    requested = measurements or ("similarity", "spectrum")
    return {
        name: analyze(table, only=requested, nulls=0, seed=seed, device=device).results
        for name, table in tables.items()
    }


def select_schemes(records: Sequence[Encoding]) -> list[Scheme]:
    """Return the schemes among the records, which must fit into one figure.

    Raises
    ------
    UsageError
        If there is none, one of the records is a table, or they differ in scheme.
    """
    schemes = [record for record in records if not isinstance(record, PositionTable)]
    if not schemes or len(schemes) < len(records):
        raise UsageError(
            "heads draws relative, rotary and linear encodings, and no tables."
        )
    kinds = {
        (s.scheme, s.quantity, isinstance(s.layout, Grid))
        if isinstance(s, RelativeBias)
        else (s.scheme,)
        for s in schemes
    }
    if len(kinds) > 1:
        raise UsageError(
            f"{schemes[0].name} and others: encodings of {len(kinds)} kinds "
            f"({', '.join(sorted({s.scheme for s in schemes}))}) do not "
            "share a figure. Pick one with REF#NAME; `posprobe inspect "
            "REF` lists them: "
            f"{', '.join(s.name for s in schemes[:8])}{' …' if len(schemes) > 8 else ''}."
        )
    return schemes


def draw_schemes(
    schemes: list[Scheme], figure_format: FigureFormat, length: int | None, seed: int
) -> CaptionedFigure:
    """Draw encodings of one scheme, and write the sentences of their caption.

    Raises
    ------
    UsageError
        If too many rotations differ for one figure, or the length is too small.
    """
    from posprobe.figures.relative import heads_figure
    from posprobe.figures.schemes import (
        drop_equal_rotations,
        rotation_figure,
        slopes_figure,
    )
    from posprobe.figures.styles import make_labels_printable

    names = make_names_unique([record.name for record in schemes])
    analysis = analyze_schemes(*schemes, length=length, seed=seed)
    results = dict(zip(names, analysis.results, strict=True))
    drawn_schemes, first_scheme = schemes, schemes[0]
    if isinstance(first_scheme, Rotary):
        unique = drop_equal_rotations(select_results(results, "rotation", Rotation))
        if len(unique) > MAX_PAPER_ROTATIONS:
            raise UsageError(
                f"{len(unique)} rotations differ and {MAX_PAPER_ROTATIONS} "
                "share a figure. Pick one with REF#NAME out of "
                f"{', '.join(unique)}."
            )
        drawn_schemes = [
            record for name, record in zip(names, schemes, strict=True) if name in unique
        ]
        figure = rotation_figure(figure_format, make_labels_printable(unique), {})
        text = captions.rotation_caption(unique)
    elif isinstance(first_scheme, LinearBias):
        drawn_schemes = [first_scheme]
        figure = slopes_figure(
            figure_format, make_labels_printable({names[0]: first_scheme}), {}
        )
        text = captions.slopes_caption(first_scheme)
    else:
        heads_by_name = select_results(results, "heads", Heads)
        figure = heads_figure(figure_format, make_labels_printable(heads_by_name), {})
        text = captions.heads_caption(heads_by_name)
    sources = drawn_schemes[:3]
    source_names = make_names_unique([record.name for record in sources])
    description = captions.describe_records(source_names, sources)
    omitted_text = (
        f"And {len(drawn_schemes) - 3} more of the same checkpoint."
        if len(drawn_schemes) > 3
        else ""
    )
    sentences = text, description, omitted_text
    return figure, sentences, captions.describe_sources(source_names, sources)


#: Suffixes of the files that a figure can be written to.
FIGURE_SUFFIXES = (".pdf", ".svg", ".png")


@dataclass(frozen=True, eq=False)
class PaperFigure(Displayable):
    """A figure at its final size, with its caption.

    Parameters
    ----------
    figure
        Figure of matplotlib, at the width of the venue.
    caption
        Paragraph on what the figure shows and of which rows, without paths and checksums.
    source
        Paragraph on the files that the data were read from, and the version of posprobe.
    venue, span
        Venue and width that the figure is drawn for.

    Examples
    --------
    >>> import posprobe as pp
    >>> figure = pp.paper_figure("norms", pp.sinusoidal(64, 8), venue="acl")
    >>> figure.caption.startswith("Euclidean norm of each position embedding")
    True
    """

    figure: Figure
    caption: str = field(repr=False)
    source: str = field(repr=False)
    venue: str
    span: Span

    def save(self, path: str | Path) -> Path:
        """Write the figure and its caption; return the path of the caption.

        The same figure gives the same bytes. An interrupted run leaves the old files or none.

        Parameters
        ----------
        path
            Path that ends in ``.pdf``, ``.svg`` or ``.png``; the caption and below it the
            sources are written to ``NAME.caption.txt``.

        Raises
        ------
        UsageError
            If the suffix is another one.
        OutputError
            If a file cannot be written, or the text file is no caption of posprobe.
        """
        target, caption_path = figure_paths(Path(path))
        content = self._draw(target.suffix.lower())
        with write_files(target, caption_path) as scratch:
            (scratch / target.name).write_bytes(content)
            (scratch / caption_path.name).write_text(self.caption_text, encoding="utf-8")
        return caption_path

    @property
    def caption_text(self) -> str:
        """The caption, and below it the sources, as they are written beside the figure."""
        return f"{self.caption}\n{self.source}"

    def _card(self) -> Card:
        title = f"{self.venue}, {self.span}"
        return Card(title, {}, self.caption.strip(), pictures=(lambda: self.figure,))

    def _draw(self, suffix: str) -> bytes:
        import matplotlib as mpl

        from posprobe.figures import style

        metadata = {".pdf": "CreationDate", ".svg": "Date", ".png": "Software"}
        buffer = BytesIO()
        with (
            style(self.venue, span=self.span),
            mpl.rc_context({"svg.hashsalt": "posprobe"}),
        ):
            self.figure.savefig(
                buffer, format=suffix[1:], metadata={metadata[suffix]: None}
            )
        if suffix == ".svg":
            return shrink_images(buffer.getvalue().decode()).encode()
        return buffer.getvalue()


def figure_paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of a figure and its caption, after checks that they can be written.

    Raises
    ------
    UsageError
        If the suffix is unknown.
    OutputError
        If there is no such folder, one of the paths is a folder, or the text file is no caption of
        posprobe.
    """
    path = resolve_file_path(path, FIGURE_SUFFIXES, any_case=True)
    caption_path = path.with_suffix(".caption.txt")
    if folder_exists(caption_path):
        raise OutputError(f"{caption_path}: it is a folder. Choose another name.")
    recover_leftovers(path)
    if path_exists(caption_path) and not _is_own_caption(caption_path):
        raise OutputError(
            f"{caption_path}: posprobe did not write this text, and the "
            "caption would replace it. Move it away, or choose another "
            "name."
        )
    return path, caption_path


def _is_own_caption(path: Path) -> bool:
    """Tell whether a text file ends like the sources below a caption of posprobe."""
    try:
        return (
            re.search(rb"Made with posprobe \S+\.\n\Z", read_regular_file(path))
            is not None
        )
    except (InvalidCheckpoint, FileNotFoundError):
        return False


def check_figure_request(
    kind: str,
    venue: str,
    path: Path,
    *,
    centred: bool | None,
    columns: int | None,
) -> None:
    """Check kind, options, venue and path before anything is loaded.

    Raises
    ------
    UsageError
        If the kind, the venue or the suffix is unknown, or the kind lacks a requested option.
    OutputError
        If the path cannot be written to.
    """
    from posprobe.figures.styles import find_venue

    check_kind(kind, centred, columns)
    find_venue(venue)
    figure_paths(path)


def paper_figure(
    kind: str,
    *records: Encoding | Result | ForwardAnalysis | Series | str | PathLike[str],
    venue: str = "acl",
    span: Span = "column",
    labels: Sequence[str] | None = None,
    centred: bool | None = None,
    columns: int | None = None,
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
        Tables, or for ``heads`` the schemes of one checkpoint; or references, as `compare` takes
        them. Tables that share axes are cut to the positions of the shortest. For kinds of running
        models, what `attention_budget`, `places` or `analyze_model` returns, or the reference of a
        model to run; ``attention-budget`` also takes several, and folders of saved runs. For
        ``series``, one of what `series` returns.
    venue
        Key of `posprobe.figures.styles.venues`.
    span
        ``"column"`` or ``"page"``; a text of one column has no narrower one.
    labels
        Names in figure and caption, one for each record; None keeps their own.
    centred
        Whether to subtract the mean row before cosines are taken; None for the default of the
        kind. ``similarity``, ``profile`` and ``comparison`` have the choice.
    columns
        Number of panels per row, for ``similarity``, ``components`` and ``comparison``.
    seed, device
        Options as for `analyze`.
    length
        Number of positions at which schemes are drawn, as for `analyze_schemes`.

    Raises
    ------
    UsageError
        If the kind, venue or span is unknown, the kind does not apply to these records or lacks a
        requested option, or there are more or fewer labels than records.
    InvalidTable
        If a table has a single row.

    Examples
    --------
    >>> import posprobe as pp
    >>> figure = pp.paper_figure("norms", pp.sinusoidal(64, 8), venue="acl")
    >>> print(f"{figure.figure.get_figwidth():.2f} inches")
    3.03 inches
    """
    from posprobe.figures.styles import find_venue

    check_kind(kind, centred, columns)
    find_venue(venue).width(span)  # refused before anything is measured
    if kind == SERIES_KIND:
        return _draw_series(apply_labels(records, labels), venue, span)
    if kind in RUN_FIGURES:
        runs = measure_runs(kind, records, labels, seed, device)
        drawing = kind.replace("-", "_")
        return lay_out_figure(partial(draw_runs, drawing, runs), venue, span)
    encodings: tuple[Encoding, ...] = apply_labels(load_references(records, seed), labels)

    def draw(figure_format: FigureFormat) -> CaptionedFigure:
        if kind == "heads":
            return draw_schemes(select_schemes(encodings), figure_format, length, seed)
        return draw_tables(
            kind,
            select_tables(kind, encodings),
            figure_format,
            seed,
            device,
            centred=centred,
        )

    return lay_out_figure(draw, venue, span, columns=columns)


def _draw_series(records: Sequence[Any], venue: str, span: Span) -> PaperFigure:
    if len(records) != 1 or not isinstance(records[0], Series):
        raise UsageError(
            "series draws one training run of a sweep: choose from `posprobe.series(folder)`."
        )
    return records[0].figure(venue, span)


def lay_out_figure(
    draw: Callable[[FigureFormat], CaptionedFigure],
    venue: str,
    span: Span,
    *,
    columns: int | None = None,
) -> PaperFigure:
    """Lay a figure out for a venue.

    Parameters
    ----------
    draw
        Function that draws it in a `FigureFormat`.
    venue, span, columns
        Same as for `paper_figure`.

    Raises
    ------
    UsageError
        If the venue or span is unknown.
    """
    from posprobe.figures import style
    from posprobe.figures.common import FigureFormat, escape_figure_text, freeze_layout
    from posprobe.figures.styles import find_venue

    venue_size = find_venue(venue)
    with style(venue, span=span):
        figure, sentences, sources = draw(
            FigureFormat(venue_size.width(span), venue_size.height, max_columns=columns)
        )
        with stage("Laying out the figure"):
            freeze_layout(escape_figure_text(figure))
    source = f"Source: {join_caption(sources, captions.credit())}"
    return PaperFigure(figure, join_caption(*sentences), source, venue, span)
