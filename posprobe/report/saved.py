"""The one way in which every result that can be a bundle becomes one."""

from __future__ import annotations

import webbrowser
from collections.abc import Collection
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from posprobe.drawable import line

if TYPE_CHECKING:
    from posprobe.report.bundle import Bundled


class Saved:
    """What can be written as a bundle: an analysis or a comparison."""

    def save(
        self: Bundled,
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
            Of a table, whether to make every figure, rather than those of the first screen alone.
        formats
            Of these figures, among ``svg``, ``pdf`` and ``png``.

        Raises
        ------
        OutputError
            If the folder cannot be written, or holds something else.
        """
        from posprobe.report.bundle import write_bundle

        return write_bundle(self, Path(folder), every=every, formats=formats)

    def __repr__(self: Any) -> str:
        verdict = self.to_dict().get("verdict") or {}
        return line(self, self._of(), verdict.get("summary") or "no answers")

    def show(self: Any) -> Path:
        """Write the bundle to a temporary folder, open its page in a browser, and return it."""
        page: Path = self.save(Path(mkdtemp(prefix="posprobe-")) / "report") / "report.html"
        webbrowser.open(page.as_uri())
        return page

    def _repr_html_(self: Bundled) -> str:
        from posprobe.report.page import of_table, render

        document = self.to_dict()
        # Figures take their time: in a notebook each is drawn where it is asked for.
        page = render(document, {}, self.arrays() if of_table(document) else {})
        # It has a style of its own, which must not become that of the notebook.
        return (
            f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" width="100%" height="820" '
            'style="border: 0"></iframe>'
        )
