"""Base classes of analyses and comparisons that are saved, shown and plotted."""

from __future__ import annotations

import webbrowser
from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from posprobe.analyses import Result
from posprobe.drawable import Card, Displayable, DrawPicture, format_repr
from posprobe.errors import UsageError
from posprobe.page import Page
from posprobe.report.render import build_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.report.bundle import BundleContent


class Saveable(Displayable):
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

    def _card(self: Any) -> Card:
        page = build_page(self.to_dict())
        text = " ".join((f"{page.lead.rstrip('.')}.", page.headline)).strip()
        return Card(page.title, {}, text, page_lines(page), self._pictures())

    def _pictures(self: Any) -> tuple[DrawPicture, ...]:
        """Return the first figure of the bundle as the picture of the card."""
        return tuple(islice(self.figures().values(), 1))

    def _locations(self) -> Mapping[str, str]:
        results = vars(self).get("results", {})
        groups = {f".results[{i}]": group for i, group in enumerate(results)}
        if isinstance(results, Mapping):
            groups = {".results": results}
        located = {
            name: f"{place}[{name!r}]"
            for place, group in groups.items()
            for name in group
        }
        return {**located, **super()._locations()}


def page_lines(page: Page) -> list[dict[str, str]]:
    """Return the table of a page's card: answers, else sentences, else all numbers."""
    if page.shared_answers:
        labels = page.subjects
        return [
            {"question": row[0].question}
            | dict(zip(labels, (line.answer for line in row), strict=True))
            for row in page.shared_answers
        ]
    if page.single_answers:
        lines = [
            {
                "question": line.question,
                "answer": line.answer,
                "measure": line.measure,
                "value": line.value,
                "by chance": line.chance,
            }
            for line in page.single_answers
        ]
        return [
            {key: line[key] for key in line if any(row[key] for row in lines)}
            for line in lines
        ]
    if page.evidence:
        return [
            {"": evidence.title, "sentence": sentence}
            for evidence in page.evidence
            for sentence in evidence.sentences
        ]
    labels = tuple(column.label for column in page.numbers.columns)
    return [dict(zip(labels, map(str, row), strict=True)) for row in page.numbers.rows]


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
