"""Ways of resizing side by side: what each does to the structure of a table, as a document.

Of a table at another size one can ask two things that no way grants together: that a row still
stands at its relative place, and that it still stands at its position. Both are measured, with what
follows from either: periods, steps between neighbours, seams, and rows that cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from numpy.typing import NDArray

from posprobe.analyses.norms import norms
from posprobe.analyses.result import HIDDEN, As, as_block
from posprobe.documents import EnvironmentBlock, TableBlock
from posprobe.errors import MissingExtra, NoPositionTable, UsageError
from posprobe.families.runnable import model_source
from posprobe.layouts import Grid, Layout
from posprobe.progress import stage
from posprobe.reference import parse_reference
from posprobe.report.analysis import describe, environment
from posprobe.report.narrator import resizing as narrator
from posprobe.report.saved import Saved
from posprobe.report.stored import RESIZING
from posprobe.resizing.effects import check_against, effect, pooled_cosines
from posprobe.resizing.facts import Effect, Way
from posprobe.resizing.rotary import RulesCompared, ToldRun, compare_rules
from posprobe.resizing.tables import check_way, new_layout, resize, ways_of
from posprobe.resizing.ways import CONTINUING, Floats
from posprobe.schema import Text
from posprobe.schemes import Rotary
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from posprobe.measurements.model import Contexts
    from posprobe.schemes import Scheme


@dataclass(frozen=True)
class ToldWay(Way):
    """One way of resizing, what it does to the table, and that in words."""

    @property
    def sentences(self) -> Annotated[tuple[Text, ...], ""]:
        """What it keeps, and what it changes."""
        return narrator.way(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class WaysCompared(Saved):
    """Ways of resizing a table.

    Parameters
    ----------
    table, to
        Before, and the layout wanted.
    before, ways
        Numbers of the old table, and by way those of the new one.
    missing
        Why other ways were not measured.
    against
        The table of the new size that others are compared with, or None.
    run
        What the model does with each of them, or None where it was not run.
    environment
        Versions, command and time.
    tables
        By way.
    cosines, norms
        Under ``before`` and by way, centred cosines ``[c, c]`` averaged over blocks of positions,
        and row norms ``[m]``.
    """

    schema: Literal["posprobe.resizing/1"] = RESIZING
    table: Annotated[dict[str, Any], As(TableBlock), "Before."]
    to: Layout
    before: Annotated[Effect, "The old table beside itself."]
    ways: tuple[ToldWay, ...]
    missing: Annotated[dict[str, Text], "By way, why it is left out."]
    against: Annotated[
        dict[str, Any] | None,
        As(TableBlock | None),
        "The table of the new size that was given.",
    ]
    run: Annotated[ToldRun | None, "The model run with each table; null where it was not."] = None
    environment: EnvironmentBlock
    tables: Annotated[Mapping[str, PositionTable], HIDDEN]
    cosines: Annotated[Mapping[str, Floats], HIDDEN]
    norms: Annotated[Mapping[str, Floats], HIDDEN]

    def to_dict(self) -> dict[str, Any]:
        """Return the document (schema `posprobe.resizing/1`)."""
        return as_block(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: by way cosines, norms, and losses if it was run."""
        losses = {} if self.run is None else self.run.losses
        drawn = {"cosines": self.cosines, "norms": self.norms, "losses": losses}
        return {
            f"{how}_{name}": array for name, found in drawn.items() for how, array in found.items()
        }

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures.resizing import WAY_FIGURES
        from posprobe.figures.sheet import REPORT

        sizes = {how: len(found) for how, found in self.norms.items()}
        losses = {} if self.run is None else self.run.losses
        references = {"positions": sizes, "norms": self.norms, "losses": losses}
        return {
            name: partial(build, REPORT, self.cosines, references)
            for name, build in WAY_FIGURES.items()
            if name != "losses" or losses
        }


def compare(
    loaded: PositionTable | tuple[Scheme, ...],
    *,
    to: int | tuple[int, int],
    how: str | None = None,
    against: PositionTable | None = None,
    contexts: Contexts | None = None,
    reference: str = "",
    command: str | None = None,
    **where: Any,
) -> WaysCompared | RulesCompared:
    """Compare ways of resizing of what a reference names: of a table, or of rotary positions.

    Parameters
    ----------
    loaded
        A table, or the encodings of a checkpoint that has none.
    to, how, against, command
        As for `compare_ways`; of rotary positions a length alone.
    contexts, reference, **where
        What to run the model on with each table or by each rule, and where it is, as for
        `posprobe.resizing.losses.run_ways`; None does not run it.

    Raises
    ------
    UsageError
        As for `compare_ways` and `compare_rules`, or if the model takes no such contexts.
    NoPositionTable
        If there is neither a table nor a rotation.
    """
    if contexts is not None:
        _check_contexts(loaded, contexts)
    if isinstance(loaded, PositionTable):
        ways = None if how is None else (how,)
        if contexts is not None:
            model_source(parse_reference(reference))  # what is not a model is refused at once
        found = compare_ways(loaded, to=to, ways=ways, against=against, command=command)
        if contexts is None:
            return found
        from posprobe.resizing.losses import run_ways

        with stage("Running the model"):
            run = run_ways(reference, loaded, found.tables, contexts, **where)
        return replace(found, run=run)
    rotations = [record for record in loaded if isinstance(record, Rotary)]
    if len(rotations) > 1:
        names = ", ".join(f"#{record.name}" for record in rotations)
        raise UsageError(
            f"{loaded[0].source.reference}: it has {len(rotations)} rotary encodings. Pick one "
            f"with {names}."
        )
    if not rotations:
        kind = "the biases of ALiBi" if loaded[0].scheme == "alibi" else "relative biases"
        raise NoPositionTable(
            f"{loaded[0].name}: it has {kind} and no table of positions that could "
            "be resized. `posprobe analyze REF` shows what they are."
        )
    rotary = rotations[0]
    if how is not None or against is not None or isinstance(to, tuple):
        raise UsageError(
            f"{rotary.name}: rotary positions have no table. Give a length with --to N, without "
            "--how and --against: all rules of scaling are compared."
        )
    if contexts is not None:
        model_source(parse_reference(reference))
    rules = compare_rules(rotary, to=to, command=command)
    if contexts is None:
        return rules
    from posprobe.resizing.rotary_losses import run_rules

    with stage("Running the model"):
        run = run_rules(
            reference, rules, contexts, revision=where.get("revision"),
            offline=where.get("offline", False),
        )  # fmt: skip
    return replace(rules, run=run)


def _check_contexts(loaded: PositionTable | tuple[Scheme, ...], contexts: Contexts) -> None:
    """Refuse a text for positions in pictures, and pictures for those on a line, before any work.

    Raises
    ------
    UsageError
        If they do not fit, or are neither a text nor pictures.
    """
    if isinstance(loaded, PositionTable):
        name, of_pictures = loaded.name, isinstance(loaded.layout, Grid)
    else:
        name = loaded[0].name
        of_pictures = any(isinstance(each, Rotary) and each.axes > 1 for each in loaded)
    if contexts.text and of_pictures:
        raise UsageError(
            f"{name}: its positions are patches of pictures, and --text is for models of text. Use "
            "--images DIR, or neither."
        )
    if contexts.images and not of_pictures:
        raise UsageError(
            f"{name}: its positions lie on a line, and --images is for patches on a grid. Use "
            "--text FILE, or neither."
        )
    if not contexts.text and not contexts.images:
        raise UsageError(
            f"{name}: ways of resizing are compared on a text or on pictures. Name one: --text "
            "FILE or --images DIR."
        )


def compare_ways(
    table: PositionTable | ArrayLike,
    *,
    to: int | tuple[int, int],
    ways: Sequence[str] | None = None,
    against: PositionTable | None = None,
    command: str | None = None,
) -> WaysCompared:
    """Resize a table in several ways, and measure what each does to it.

    Parameters
    ----------
    table, to
        As for `posprobe.resize`.
    ways
        Some of those for its layout; None for all. A way that is a library's which is not
        installed, or that does not fit the table, is left out, with the reason.
    against
        A table that was trained at the new size.
    command
        Command line to record.

    Raises
    ------
    UsageError
        If the size or a way cannot be, or ``against`` is of another size.
    """
    from posprobe.tables import table as as_table

    old = as_table(table)
    layout = new_layout(old, to)
    for how in ways or ():
        check_way(old, layout, how)
    if against is not None:
        check_against(old, against, layout)
    asked = ways or ways_of(old)
    found: list[ToldWay] = []
    missing, tables, cosines, lengths = {}, {}, {}, {}
    with stage("Measuring", len(asked) + 1) as done:
        before = effect(old, old, stretched=False, against=None)
        for how in ("before", *asked):
            try:
                made = old if how == "before" else resize(old, to=to, how=how)
            except (MissingExtra, UsageError) as error:
                if ways:
                    raise
                missing[how] = str(error)
            else:
                cosines[how], lengths[how] = pooled_cosines(made), norms(made).norms
                if how != "before":
                    tables[how] = made
                    stretched = how not in CONTINUING
                    new = effect(made, old, stretched=stretched, against=against)
                    found.append(
                        ToldWay(
                            **vars(new), how=how, kind="stretches" if stretched else "continues",
                            before=before, old=old.layout, new=layout, start=old.start,
                        )
                    )  # fmt: skip
            done(1)
    return WaysCompared(
        table=describe(old), to=layout, before=before, ways=tuple(found), missing=missing,
        against=None if against is None else describe(against),
        environment=environment("cpu", 0, command), tables=tables, cosines=cosines, norms=lengths,
    )  # fmt: skip
