"""Training runs: numbers, answers and path of a position table, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posprobe.analyses.breaks.history import AnswerHistory, SeamHistory, histories
from posprobe.drawable import Card, Displayable, format_repr
from posprobe.errors import UsageError
from posprobe.measurements import compared_numbers
from posprobe.words import QUESTION_TEXTS, SHORT_QUESTION_TEXTS, comparisons
from posprobe.words.captions import describe_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.figures.common import FigureFormat
    from posprobe.figures.styles import Span
    from posprobe.studies.figure import PaperFigure

#: Key paths of the numbers that are listed first.
HEADLINE_NUMBERS = (
    "similarity.centered.neighbour_mean",
    "pca.participation_ratio",
    "sinusoid.cka",
)
#: Key paths of the numbers that a figure shows.
SERIES_NUMBERS = (*HEADLINE_NUMBERS, "similarity.centered.translation_invariance")
#: Labels of the measures of a table's path during training.
PATH_LABELS: Mapping[str, str] = {
    "first": "distance from the first",
    "last": "distance from the last",
    "sinusoid": "1 \N{MINUS SIGN} CKA with sinusoid",
}


def _question_label(name: str) -> str:
    """Return a question in few words, as the sentences on changes ask it."""
    text = QUESTION_TEXTS[name]
    return SHORT_QUESTION_TEXTS.get(text, text)


@dataclass(frozen=True, repr=False)
class Series(Displayable):
    """A training run, measured at its steps by a sweep.

    Parameters
    ----------
    name
        Name of the run: its folder, its repository, or the value of the column ``run`` of the list.
    steps
        Training steps in increasing order.
    numbers
        Headline numbers at every step by their key path in ``analysis.json``, and those of the
        user's list by ``user.NAME``; None where undefined.
    sinusoid
        The same numbers of the sinusoid of equal shape.
    answers
        Answers at every step by question: ``yes``, ``no``, ``cannot tell``, or None where it was
        not asked.
    seams
        Position to the right of each seam at every step; None where seams were not measured.
    path
        Distances at every step: ``first`` and ``last`` are relative Frobenius distances from the
        table of the first and of the last step, estimated as by `posprobe.nearest`; ``sinusoid`` is
        1 minus the CKA with the sinusoid.
    shape
        Positions and dimensions of the table of the last step; None where unknown.
    source
        Sentence on the files of the first and the last step, or empty.

    Examples
    --------
    >>> import numpy as np
    >>> import posprobe as pp
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp()) / "run"
    >>> folder.mkdir()
    >>> rng = np.random.default_rng(0)
    >>> noise, wave = rng.normal(size=(32, 8)), pp.sinusoidal(32, 8).values
    >>> for step in (0, 100, 200):
    ...     np.save(folder / f"step-{step}.npy", noise + step * wave)
    >>> sweep = pp.sweep(str(folder), only=["norms"], nulls=0, jobs=1).run()
    >>> (run,) = pp.series(sweep.folder)
    >>> run.name, run.steps
    ('run', (0, 100, 200))
    """

    name: str
    steps: tuple[int, ...]
    numbers: Mapping[str, tuple[float | None, ...]]
    sinusoid: Mapping[str, tuple[float | None, ...]]
    answers: Mapping[str, tuple[str | None, ...]]
    seams: tuple[Sequence[int] | None, ...]
    path: Mapping[str, tuple[float | None, ...]]
    shape: tuple[int, int] | None = None
    source: str = ""

    def __repr__(self) -> str:
        steps = f"{len(self.steps)} steps from {self.steps[0]} to {self.steps[-1]}"
        return format_repr(self, repr(self.name), steps, *self.changes)

    def _card(self) -> Card:
        return Card(
            self.name,
            {},
            " ".join(self._caption_sentences()),
            pictures=(self._report_figure,),
        )

    @property
    def history(self) -> tuple[SeamHistory | AnswerHistory, ...]:
        """Seams that appear, move or disappear, and answers that change."""
        return histories(self.steps, self.seams, self.answers)

    @property
    def changes(self) -> tuple[str, ...]:
        """A sentence for each entry of the history."""
        return tuple(
            comparisons.seam_sentence(history)
            if isinstance(history, SeamHistory)
            else comparisons.answer_change_sentence(history)
            for history in self.history
        )

    def figure(self, venue: str = "acl", span: Span = "column") -> PaperFigure:
        """Draw the run for a paper, with a caption.

        Parameters
        ----------
        venue, span
            Venue and width as for `posprobe.paper_figure`.

        Raises
        ------
        UsageError
            If the venue or span is unknown.
        """
        from posprobe.studies.figure import lay_out_figure

        return lay_out_figure(
            lambda figure_format: (
                self._draw(figure_format),
                self._caption_sentences(),
                self.source,
            ),
            venue,
            span,
        )

    def drawing(self, name: str) -> str:
        """Draw the run for a page, as SVG."""
        from posprobe.figures import style
        from posprobe.figures.common import escape_figure_text, freeze_layout
        from posprobe.report.svg import render_svg

        with style():
            figure = escape_figure_text(self._report_figure())
            freeze_layout(figure)
            return render_svg(figure, name)

    def _report_figure(self) -> Figure:
        from posprobe.figures.common import REPORT

        return self._draw(REPORT)

    def _draw(self, figure_format: FigureFormat) -> Figure:
        from posprobe.figures.comparison import series_figure

        if figure_format.is_low and figure_format.is_narrow:
            raise UsageError("series: it does not fit half a slide. Use `span='page'`.")
        return series_figure(figure_format, {}, self.drawn())

    def _drawn_keys(self) -> list[str]:
        """Return the keys of the numbers that are drawn: those of the user's list come last."""
        measured = compared_numbers()
        listed = [key for key in self.numbers if key not in measured]
        return [
            key
            for key in (*SERIES_NUMBERS, *listed)
            if any(value is not None for value in self.numbers.get(key, ()))
        ]

    def drawn(self) -> dict[str, Any]:
        """Return the numbers, answers and path that the figure shows, by their labels."""
        labels = {key: number.label for key, number in compared_numbers().items()}
        labels |= {
            key: key.partition(".")[2].replace("_", " ")
            for key in self.numbers
            if key not in labels
        }
        undefined = (None,) * len(self.steps)
        numbers = {
            labels[key]: {
                "values": self.numbers[key],
                "sinusoid": self.sinusoid.get(key, undefined),
            }
            for key in self._drawn_keys()
        }
        answers = {
            _question_label(name): series_answers
            for name, series_answers in self.answers.items()
            if {"yes", "no"} & set(series_answers)
        }
        path = {PATH_LABELS[name]: values for name, values in self.path.items()}
        return {"steps": self.steps, "numbers": numbers, "answers": answers, "path": path}

    def _caption_sentences(self) -> tuple[str, ...]:
        ends = f"{self.steps[0]:,} to {self.steps[-1]:,}"
        size = f" [{self.shape[0]} × {self.shape[1]}]" if self.shape else ""
        sentences = [
            f"{self.name}: its position table{size} at {len(self.steps)} steps of training, {ends}."
        ]
        numbers = compared_numbers()
        described = [numbers[key] for key in self._drawn_keys() if key in numbers]
        if described:
            sentences.append(
                f"Panels: {describe_numbers(described)}, of the table and of the sinusoid of its "
                "shape."
            )
        sentences.append(
            "Distance: relative Frobenius distance from the tables of the first and of the last "
            "step, estimated from random projections, and 1 \N{MINUS SIGN} CKA with the sinusoid."
        )
        if self.drawn()["answers"]:
            sentences.append(
                "Answers: filled yes, open no, dash cannot tell; questions without a yes or no "
                "are left out."
            )
        return (*sentences, *self.changes)
