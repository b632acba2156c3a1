"""The registry of measurements: numbers, figures and pages follow from its entries."""

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
from posprobe.analyses.result import StoredArray
from posprobe.arrays import cores, positions, run_concurrently
from posprobe.cli.analyze import list_names
from posprobe.errors import UsageError
from posprobe.figures import find_builder
from posprobe.measurements import (
    TABLE_MEASUREMENTS,
    Drawing,
    Measurement,
    TableInputs,
    compared_numbers,
)
from posprobe.report import read_bundle
from posprobe.report.screen import render_text
from posprobe.studies.figure import kinds
from posprobe.words.captions import reading_caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tables() -> list[pp.PositionTable]:
    return [
        as_table(waves(64, [5.0, 9.0], noise=0.02)),
        as_table(walk(40, 6)),
        patches(6, 8, 12),
    ]


# Laws of all measurements.


def test_names_labels_and_figures_are_unique_and_measurements_have_titles() -> None:
    numbers = [
        number.label for m in TABLE_MEASUREMENTS.values() for number in m.numbers.values()
    ]
    assert len(numbers) == len(set(numbers))
    names = [drawing.name for m in TABLE_MEASUREMENTS.values() for drawing in m.drawings]
    assert len(names) == len(set(names))
    assert all(name == m.name for name, m in TABLE_MEASUREMENTS.items())
    for measurement in TABLE_MEASUREMENTS.values():
        assert measurement.title
        assert not measurement.title.endswith(".")
        assert measurement.drawings
        assert all(number.meaning for number in measurement.numbers.values())


@pytest.mark.parametrize("table", tables(), ids=["waves", "walk", "grid"])
def test_every_declared_figure_is_drawn_and_paper_figures_have_captions(
    table: pp.PositionTable,
) -> None:
    analysis = pp.analyze(table, only=["all"], nulls=0)
    figure_names = set(analysis.figures()) - {"table"}
    for name, result in analysis.results.items():
        for drawing in TABLE_MEASUREMENTS[name].drawings:
            assert callable(find_builder(result, drawing.name))
            if drawing.name in kinds() and not drawing.explain_absence(result):
                results = {"made": result} if drawing.shows_several_tables else result
                assert reading_caption(drawing.name, drawing.help_text, results).endswith(
                    "."
                )
            # A figure of winding components replaces the trajectory.
            is_replaced = drawing.name == "trajectory" and "winding" in figure_names
            assert (drawing.name in figure_names) == (
                not drawing.explain_absence(result) and not is_replaced
            )


# A measurement that only this test registers.


@dataclass(frozen=True, eq=False)
class Toy(Result):
    """Numbers of the toy."""

    loudness: Annotated[
        float, Number("loudness of the toy", "largest number", compared=True)
    ]
    figures: ClassVar[str] = "toy.plot"

    @property
    def samples(self) -> Annotated[Any, StoredArray("toy")]:
        return np.array([self.loudness])


def measure_toy(inputs: TableInputs) -> Toy:
    return Toy(float(np.abs(np.asarray(inputs.table.values)).max()))


def toy_figure(sheet: Any, results: Any, references: Any) -> Any:
    assert isinstance(references, dict)
    figure = sheet.make_figure(1.5)
    plot(figure.subplots(), next(iter(results.values())))
    return figure


def plot(ax: Axes, result: Toy) -> None:
    ax.bar([0], [result.loudness])


TOY_MEASUREMENT = Measurement[TableInputs, Toy](
    name="toy",
    title="Loudness",
    compute=measure_toy,
    record=Toy,
    drawings=(Drawing("toy_bar", help_text="one bar"),),
)


@pytest.fixture
def registered_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("posprobe.figures.toy")
    module.__dict__.update(plot=plot, toy_bar_figure=toy_figure)
    monkeypatch.setitem(sys.modules, "posprobe.figures.toy", module)
    monkeypatch.setitem(TABLE_MEASUREMENTS, "toy", TOY_MEASUREMENT)


@pytest.mark.usefixtures("registered_toy")
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
    printed = render_text(document)
    assert "loudness of the toy" in printed
    assert "loudness of the toy" in analysis._repr_html_()
    assert "toy.loudness" in compared_numbers()
    assert problems(dict(schemas.schemas())["analysis-2.json"], document) == []
    list_names("numbers")
    assert "loudness of the toy: " in capsys.readouterr().out
    assert kinds()["toy_bar"] == "one bar"
    figure = pp.paper_figure("toy_bar", table)
    assert figure.caption.startswith("One bar.")
    assert TOY_MEASUREMENT.compute(TableInputs(table, None, 0, None, {})).plot().patches  # type: ignore[arg-type]
    plt.close("all")


@pytest.mark.usefixtures("registered_toy")
def test_a_measurement_that_does_not_apply_is_refused_with_its_need() -> None:
    needy = replace(TOY_MEASUREMENT, needs=lambda _: "a quiet room")
    table = as_table(walk(24, 4))
    TABLE_MEASUREMENTS["toy"] = needy
    with pytest.raises(pp.PosprobeError, match="toy needs a quiet room"):
        pp.analyze(table, only=["toy"], nulls=0)
    assert "toy" not in pp.analyze(table, nulls=0).results


# Measurements of whole tables, which run concurrently with the questions.


@pytest.mark.parametrize(
    "name",
    [name for name in TABLE_MEASUREMENTS if TABLE_MEASUREMENTS[name].uses_all_rows],
)
@pytest.mark.parametrize("table", tables(), ids=["waves", "walk", "patches"])
def test_measurements_of_whole_tables_use_no_stretches(
    table: pp.PositionTable, name: str
) -> None:
    inputs = TableInputs(table, positions(table), 0, None, dict(TABLE_MEASUREMENTS))
    if not TABLE_MEASUREMENTS[name].needs(inputs):
        inputs.result(name)
        assert all(TABLE_MEASUREMENTS[name].uses_all_rows for name in inputs.results)
        assert not {"stretch", "seams", "kept_positions", "view"} & vars(inputs).keys()


def test_numbers_do_not_depend_on_the_number_of_cores() -> None:
    table, results = patches(6, 8, 12), []
    for count in (1, 2):
        token = cores.set(count)
        analysis = pp.analyze(table)
        cores.reset(token)
        numbers = {
            key: value
            for key, value in analysis.numbers.items()
            if isinstance(value, float)
        }
        results.append(
            (numbers, [(value.question, value.answer) for value in analysis.answers])
        )
    assert results[0][1] == results[1][1]
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-9, abs=1e-12)


def test_concurrent_work_inherits_the_cores_of_its_caller() -> None:
    core_counts = []
    token = cores.set(3)
    with run_concurrently(lambda: core_counts.append(cores.get()), is_small=True):
        cores.set(7)
    cores.reset(token)
    assert core_counts == [3]


def test_errors_of_concurrent_work_are_raised_after_the_block() -> None:
    def work() -> None:
        raise UsageError("beside")

    token, finished = cores.set(2), []
    with pytest.raises(UsageError, match="beside"), run_concurrently(work, is_small=True):
        finished.append("all")
    cores.reset(token)
    assert finished == ["all"]
