"""Base classes of analyses and comparisons that are saved, shown and plotted."""

from __future__ import annotations

import webbrowser
from collections.abc import Collection, Mapping
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from posprobe.analyses import Result
from posprobe.drawable import format_repr
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.report.bundle import BundleContent


class Saveable:
    """An analysis or comparison that can be written as a bundle."""

    def save(
        self: BundleContent,
        folder: str | Path,
        *,
        every: bool = False,
        formats: Collection[str] = ("svg",),
    ) -> Path:
        """Write the bundle: data, figures and report. Return its folder.

        Parameters
        ----------
        folder
            Where.
        every
            Whether to make every figure of a table, rather than those of the first screen alone.
        formats
            Formats of these figures, among ``svg``, ``pdf`` and ``png``.

        Raises
        ------
        OutputError
            If the folder cannot be written, or holds something else.
        """
        from posprobe.report.bundle import write_bundle

        return write_bundle(self, Path(folder), all_figures=every, formats=formats)

    def __repr__(self: Any) -> str:
        verdict = self.to_dict().get("verdict") or {}
        return format_repr(
            self, self._subject_name(), verdict.get("summary") or "no answers"
        )

    def _subject_name(self: Any) -> str:
        """Return what the analysis is of, as `repr` shows it."""
        return repr(self.name)

    def show(self: Any) -> Path:
        """Write the bundle to a temporary folder, open its page in a browser, and return it."""
        page: Path = (
            self.save(Path(mkdtemp(prefix="posprobe-")) / "report") / "report.html"
        )
        webbrowser.open(page.as_uri())
        return page

    def _repr_html_(self: BundleContent) -> str:
        from posprobe.report.overview import draw_overview
        from posprobe.report.render import is_single_table, render
        from posprobe.report.run_overview import draw_run_overview

        document = self.to_dict()
        draw = draw_overview if is_single_table(document) else draw_run_overview
        # Other figures take long to draw; a notebook draws each one where a cell calls `plot`.
        page = render(document, draw(document, self.arrays()))
        # The frame keeps the style of the page out of the notebook.
        return (
            f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" width="100%" height="820" '
            'style="border: 0"></iframe>'
        )


class Plottable(Saveable):
    """An analysis with results that can be drawn one by one."""

    def _drawable(self) -> Mapping[str, Result]:
        """Return the results that have a drawing, the leading one first."""
        raise NotImplementedError

    def plot(
        self, kind: str | None = None, ax: Axes | None = None, **properties: Any
    ) -> Axes:
        """Draw one of the results into ``ax``, or into a new figure, and return the Axes.

        Parameters
        ----------
        kind
            Its name in ``results``, such as ``pca``; of several encodings with that of one before
            it, such as ``encoder.heads``. Where None, the variance budget, or the curves of the
            first encoding's heads.
        ax, properties
            Axes to draw into, and properties of these Axes.

        Raises
        ------
        UsageError
            If there is no such result.
        """
        drawable = self._drawable()
        kind = next(iter(drawable)) if kind is None else kind
        if kind not in drawable:
            raise UsageError(
                f"unknown result {kind!r}. Choose from {', '.join(drawable)}."
            )
        return drawable[kind].plot(ax, **properties)
