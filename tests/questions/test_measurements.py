"""One home for each measurement: what lists measurements, numbers and figures follows from it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pytest
import schemas
from made_schemas import problems
from made_tables import as_table, patches, walk, waves

import posprobe as pp
from posprobe.analyses import Result
from posprobe.analyses.facts import Number
from posprobe.analyses.result import Stored
from posprobe.arrays import cores, positions, run_concurrently
from posprobe.cli.analyze import list_names
from posprobe.errors import UsageError
from posprobe.figures import builder
from posprobe.measurements import (
    TABLE,
    Drawing,
    Measurement,
    TableInputs,
    compared_numbers,
)
from posprobe.report import read_bundle
from posprobe.report.screen import text
from posprobe.studies.figure import kinds
from posprobe.words.captions import reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tables() -> list[pp.PositionTable]:
    return [as_table(waves(64, [5.0, 9.0], noise=0.02)), as_table(walk(40, 6)), patches(6, 8, 12)]


# Each measurement, and what must be true of all of them.


def test_names_labels_and_figures_are_unique_and_measurements_have_titles() -> None:
    numbers = [number.label for m in TABLE.values() for number in m.numbers.values()]
    assert len(numbers) == len(set(numbers))
    drawn = [drawing.name for m in TABLE.values() for drawing in m.drawings]
    assert len(drawn) == len(set(drawn))
    assert all(name == m.name for name, m in TABLE.items())
    for measurement in TABLE.values():
        assert measurement.title
        assert not measurement.title.endswith(".")
        assert measurement.drawings
        assert all(number.meaning for number in measurement.numbers.values())


@pytest.mark.parametrize("table", tables(), ids=["waves", "walk", "grid"])
def test_every_figure_that_is_named_is_made_and_those_for_papers_have_a_caption(
    table: pp.PositionTable,
) -> None:
    analysis = pp.analyze(table, only=["all"], nulls=0)
    made = set(analysis.figures()) - {"table"}
    for name, result in analysis.results.items():
        for drawing in TABLE[name].drawings:
            assert callable(builder(result, drawing.name))
            if drawing.name in kinds() and not drawing.lacks(result):
                shown = {"made": result} if drawing.several else result
                assert reading(drawing.name, drawing.draws, shown).endswith(".")
            # Components that wind are drawn in space by themselves.
            replaced = drawing.name == "trajectory" and "winding" in made
            assert (drawing.name in made) == (not drawing.lacks(result) and not replaced)


# A measurement of which the package knows nothing.


@dataclass(frozen=True, eq=False)
class Toy(Result):
    """Numbers of the toy."""

    loudness: Annotated[float, Number("loudness of the toy", "largest number", compared=True)]
    figures: ClassVar[str] = "toy.plot"

    @property
    def samples(self) -> Annotated[Any, Stored("toy")]:
        return np.array([self.loudness])


def toy(given: TableInputs) -> Toy:
    return Toy(float(np.abs(np.asarray(given.table.values)).max()))


def drawn(sheet: Any, results: Any, references: Any) -> Any:
    assert isinstance(references, dict)
    figure = sheet.figure(1.5)
    plot(figure.subplots(), next(iter(results.values())))
    return figure


def plot(ax: Axes, result: Toy) -> None:
    ax.bar([0], [result.loudness])


TOY = Measurement[TableInputs, Toy](
    name="toy",
    title="Loudness",
    compute=toy,
    record=Toy,
    drawings=(Drawing("toy_bar", draws="one bar"),),
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("posprobe.figures.toy")
    module.__dict__.update(plot=plot, toy_bar_figure=drawn)
    monkeypatch.setitem(sys.modules, "posprobe.figures.toy", module)
    monkeypatch.setitem(TABLE, "toy", TOY)


@pytest.mark.usefixtures("registered")
def test_a_toy_measurement_shows_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = as_table(walk(24, 4))
    analysis = pp.analyze(table, only=["toy", "norms"], nulls=1)
    loudness = float(np.abs(table.values).max())
    folder = analysis.save(tmp_path / "bundle", every=True)
    document = read_bundle(folder)
    assert document["toy"] == {"loudness": loudness}
    assert document["nulls"]["numbers"]["toy.loudness"]["value"] == loudness
    assert (folder / "figures" / "toy_bar.svg").exists()
    assert analysis.arrays()["toy"] == [loudness]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "loudness of the toy" in page
    printed = text(document)
    assert "loudness of the toy" in printed
    assert "loudness of the toy" in analysis._repr_html_()
    assert "toy.loudness" in compared_numbers()
    assert problems(dict(schemas.schemas())["analysis-2.json"], document) == []
    list_names("numbers")
    assert "loudness of the toy: " in capsys.readouterr().out
    assert kinds()["toy_bar"] == "one bar"
    figure = pp.paper_figure("toy_bar", table)
    assert figure.caption.startswith("One bar.")
    assert TOY.compute(TableInputs(table, None, 0, None, {})).plot().patches  # type: ignore[arg-type]
    plt.close("all")


@pytest.mark.usefixtures("registered")
def test_a_measurement_that_does_not_apply_says_why() -> None:
    needy = replace(TOY, needs=lambda _: "a quiet room")
    table = as_table(walk(24, 4))
    TABLE["toy"] = needy
    with pytest.raises(pp.PosprobeError, match="toy needs a quiet room"):
        pp.analyze(table, only=["toy"], nulls=0)
    assert "toy" not in pp.analyze(table, nulls=0).results


# Those of whole tables, beside the others.


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].whole])
@pytest.mark.parametrize("table", tables(), ids=["waves", "walk", "patches"])
def test_what_is_measured_beside_the_questions_takes_no_part_of_a_table(
    table: pp.PositionTable, name: str
) -> None:
    inputs = TableInputs(table, positions(table), 0, None, dict(TABLE))
    if not TABLE[name].needs(inputs):
        inputs.result(name)
        assert all(TABLE[each].whole for each in inputs.results)
        assert not {"stretch", "seams", "kept", "seen"} & vars(inputs).keys()


def test_one_core_and_two_find_the_same() -> None:
    table, found = patches(6, 8, 12), []
    for count in (1, 2):
        before = cores.set(count)
        analysis = pp.analyze(table)
        cores.reset(before)
        numbers = {key: each for key, each in analysis.numbers.items() if isinstance(each, float)}
        found.append((numbers, [(each.question, each.answer) for each in analysis.answers]))
    assert found[0][1] == found[1][1]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-9, abs=1e-12)


def test_work_beside_sees_the_cores_of_its_caller() -> None:
    seen = []
    before = cores.set(3)
    with run_concurrently(lambda: seen.append(cores.get()), is_small=True):
        cores.set(7)
    cores.reset(before)
    assert seen == [3]


def test_an_error_beside_is_raised() -> None:
    def work() -> None:
        raise UsageError("beside")

    before, done = cores.set(2), []
    with pytest.raises(UsageError, match="beside"), run_concurrently(work, is_small=True):
        done.append("all")
    cores.reset(before)
    assert done == ["all"]
