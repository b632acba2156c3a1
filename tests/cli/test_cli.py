"""The command line: data on stdout, talk on stderr, and every option followed as it is told."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_checkpoints import CHECKPOINT_MAKERS
from made_cli import Cli, CommandRun, assert_one_clear_error, cli, files_in
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.cli.options import parse_grid, parse_rows
from posprobe.errors import UsageError
from posprobe.families.architectures import load_registry
from posprobe.report import read_bundle
from posprobe.samples import samples
from posprobe.studies.figure import kinds

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cli"]

COMMANDS = (
    "analyze", "inspect", "figure", "list", "compare", "check", "nearest", "sweep", "table",
    "forward", "resize", "extract", "report",
)  # fmt: skip


# What each command prints.


def test_help_names_every_command_and_what_a_reference_is(cli: Cli) -> None:
    completed = cli("--help")
    assert (completed.code, completed.err) == (0, "")
    panels = dict(re.findall(r"^(\w+):\n((?:  .+\n)+)", completed.out, re.MULTILINE))
    assert list(panels) == ["Options", "Look", "Compare", "Models", "Files"]
    lines = [line for panel in list(panels)[1:] for line in panels[panel].splitlines()]
    # A line each, with a sentence that is whole.
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)
    text = " ".join(completed.out.split())
    for phrase in (
        "SOURCE[@REVISION][#TABLE]",
        "sample:NAME",
        "sinusoidal:512x768",
        "0 done",
    ):
        assert phrase in text
    for code in (
        "2 wrong usage",
        "3 reference not",
        "4 checkpoint not",
        "5 no position table",
    ):
        assert code in text
    assert cli("-h").out == completed.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_explained(command: str, cli: Cli) -> None:
    completed = cli(command, "--help")
    assert (completed.code, completed.err) == (0, "")
    options = re.findall(
        r"^ +(?:-\w, )?--[\w-]+.*(?:\n {20,}.*)*", completed.out, re.MULTILINE
    )
    assert options
    for option in options:
        assert len(option.split()) >= 4, option


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (
            "analyze",
            "--out --rows --only --nulls --seed --device --tensor --grid --revision --json --quiet",
        ),
        ("compare", "--out --rows --nulls --seed --device --offline --json --quiet"),
        ("inspect", "--revision --offline --json --quiet"),
        ("extract", "-o --output --rows --tensor --grid --revision --offline --quiet"),
        ("list", "--json"),
    ],
)
def test_commands_have_the_options_of_the_contract(
    command: str, options: str, cli: Cli
) -> None:
    words = set(re.findall(r"(?<!\S)--?[a-z]+", cli(command, "--help").out))
    assert set(options.split()) <= words


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version") == CommandRun(0, version("posprobe") + "\n", "")
    assert pp.__version__ == version("posprobe")


def test_analyze_prints_numbers_on_stdout_and_talk_on_stderr(
    cli: Cli, tmp_path: Path
) -> None:
    completed = cli(
        "analyze",
        "sincos2d:4x6x16",
        "--only",
        "pca,similarity,grid",
        "--nulls",
        "1",
        "--out",
        "b",
    )
    assert completed.code == 0
    document = read_bundle(tmp_path / "b")
    assert f"{document['pca']['stable_rank']:.3g}" in completed.out
    assert "stable rank" in completed.out
    assert completed.out.startswith("sincos2d:4x6x16: 4 × 6 patches × 16\n")
    # The last line says where the page is.
    assert completed.err.splitlines()[-1] == "Report: b/report.html"
    assert (tmp_path / "b" / "report.html").exists()
    assert "b/" not in completed.out


def test_json_on_stdout_is_the_saved_document_and_nothing_else(
    cli: Cli, tmp_path: Path
) -> None:
    completed = cli(
        "analyze", "sinusoidal:16x4", "--only", "norms", "--json", "--quiet", "--out", "b"
    )
    assert (completed.code, completed.err) == (0, "")
    assert completed.out == (tmp_path / "b" / "analysis.json").read_text(encoding="utf-8")
    assert json.loads(completed.out)["table"]["positions"] == 16


def test_the_command_is_on_record_as_it_can_be_typed_again(
    cli: Cli, tmp_path: Path
) -> None:
    arguments = [
        "analyze",
        "sinusoidal:16x4",
        "--only",
        "norms,pca",
        "--rows",
        "1:9",
        "--quiet",
    ]
    assert cli(*arguments).code == 0
    # It goes to reports, under the name of the table.
    (folder,) = (tmp_path / "reports").iterdir()
    assert folder.name == "sinusoidal-16x4-rows-1-9"
    assert shlex.split(read_bundle(folder)["environment"]["command"]) == [
        "posprobe",
        *arguments,
    ]


def test_extract_writes_the_positions_and_prints_where(cli: Cli, tmp_path: Path) -> None:
    completed = cli("extract", "sample:sapiens-roberta", "-o", "table.npy")
    assert (completed.code, completed.out, completed.err) == (
        0,
        "table.npy\n",
        "144 x 128 float32\n",
    )
    table = pp.load("sample:sapiens-roberta")
    np.testing.assert_array_equal(np.load(tmp_path / "table.npy"), table.values)
    assert cli("extract", "sinusoidal:4x2", "--output", "t.csv", "--quiet").err == ""


def test_samples_and_families_are_listed_also_by_their_old_names(cli: Cli) -> None:
    shipped, families = samples(), load_registry().families
    for subject, names in (
        ("samples", [sample.name for sample in shipped]),
        ("families", [family.name for family in families]),
    ):  # fmt: skip
        completed = cli("list", subject)
        assert (completed.code, completed.err) == (0, "")
        assert cli(subject) == completed
        entries = json.loads(cli("list", subject, "--json").out)[subject]
        assert [family["name"] for family in entries] == names
        assert all(
            family["name"] in completed.out and family["title"] in completed.out
            for family in entries
        )
    for sample in shipped:
        name = f"sample:{sample.name}"
        if sample.tensor:
            assert pp.load(name).source.sha256 == sample.tensor_sha256
        else:
            assert pp.load_schemes(name)


def test_listed_figures_and_numbers_are_accepted_by_commands(cli: Cli) -> None:
    figures = json.loads(cli("list", "figures", "--json").out)["figures"]
    titles = {figure["name"]: figure["title"] for figure in figures}
    assert titles == kinds()
    numbers = [
        number["name"]
        for number in json.loads(cli("list", "numbers", "--json").out)["numbers"]
    ]
    assert "pca.stable_rank" in numbers
    requested = ",".join(name for name in numbers if name.startswith(("pca.", "norms.")))
    completed = cli("table", "sinusoidal:32x8", "--numbers", requested, "--nulls", "0")
    assert completed.code == 0, completed.err
    assert completed.out.splitlines()[0].count(" | ") == len(requested.split(","))


def test_inspect_lists_stored_encodings(cli: Cli) -> None:
    completed = cli("inspect", "sample:sapiens-roberta", "--json")
    (record,) = json.loads(completed.out)["encodings"]
    assert record["scheme"] == "learned"
    assert record["tensor"] == "decoder.sentence_encoder.embed_positions.weight"
    assert record["shape"] == [146, 128]
    assert record["positions"] == 144
    assert record["layout"] == {"type": "sequence", "length": 144}
    assert [row["row"] for row in record["dropped_rows"]] == [0, 1]
    text = cli("inspect", "sample:sapiens-roberta").out
    assert "learned" in text
    assert "146 x 128 F32" in text
    (fixed,) = json.loads(cli("inspect", "sincos2d:3x4x8", "--json").out)["encodings"]
    assert (fixed["scheme"], fixed["positions"]) == ("fixed", 12)


def test_inspect_of_a_checkpoint_without_positions_is_an_empty_list(
    cli: Cli, tmp_path: Path
) -> None:
    save_file({"dense": np.ones((3, 3), np.float32)}, tmp_path / "model.safetensors")
    assert json.loads(cli("inspect", "model.safetensors", "--json").out) == {
        "encodings": []
    }
    assert cli("inspect", "model.safetensors").out.strip()


@pytest.mark.parametrize("scheme", ["rotary", "alibi", "relative"])
def test_a_checkpoint_without_a_table_is_analysed_by_its_scheme(
    scheme: str, cli: Cli, tmp_path: Path
) -> None:
    CHECKPOINT_MAKERS[scheme](tmp_path)
    config = tmp_path / "model" / "config.json"
    if scheme == "rotary":
        config.write_text(json.dumps(json.loads(config.read_text()) | {"head_dim": 8}))
    encodings = json.loads(cli("inspect", "model", "--json").out)["encodings"]
    assert scheme in {record["scheme"] for record in encodings}
    completed = cli("analyze", "model", "--out", "bundle", "--json")
    assert completed.code == 0
    (scheme_block,) = json.loads(completed.out)["schemes"]
    assert scheme_block["scheme"] == scheme
    assert {"analysis.json", "arrays.npz", "report.html"} < files_in(tmp_path / "bundle")
    assert cli("extract", "model", "-o", "t.npy").code == 5


# Several encodings.


def test_compare_reports_cut_rows_and_results(cli: Cli, tmp_path: Path) -> None:
    completed = cli(
        "compare", "sinusoidal:80x16", "sinusoidal:50x16", "--nulls", "3", "--out", "b"
    )
    assert completed.code == 0, completed.err
    assert "Distances use the first 50" in " ".join(completed.out.split())
    assert re.search(r"\n +sinusoidal:80x16 +sinusoidal:50x16\n", completed.out)
    assert completed.err.splitlines()[-1] == "Report: b/report.html"
    page_before = (tmp_path / "b" / "report.html").read_bytes()
    assert cli("report", "b") == CommandRun(0, "b/report.html\n", "")
    assert (tmp_path / "b" / "report.html").read_bytes() == page_before


@pytest.mark.parametrize(
    ("words", "layout"),
    [
        (
            "sample:rxnmapper-albert sinusoidal --rows 8:60",
            {"type": "sequence", "length": 52},
        ),
        ("sample:rxnmapper-albert walk --rows 8:60", {"type": "sequence", "length": 52}),
        ("sincos2d:4x5x12 sincos2d", {"type": "grid", "height": 4, "width": 5}),
    ],
)
def test_a_formula_takes_the_shape_of_the_rows_that_are_kept(
    words: str, layout: dict[str, object], cli: Cli
) -> None:
    completed = cli("compare", *words.split(), "--only", "norms", "--json")
    assert completed.code == 0, completed.err
    document = json.loads(completed.out)
    assert [entry["table"]["layout"] for entry in document["tables"]] == [layout, layout]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sincos2d:4x5x12 sinusoidal", "no table in the shape of"),
        ("sinusoidal:40x12 sincos2d", "no table in the shape of"),
        ("sinusoidal sinusoidal:40x12", "cannot be the first"),
        ("sincos2d:4x5x12 walk", "Choose from gaussian, permuted, stationary"),
        ("sinusoidal:40x12", "at least two tables"),
        ("t5:8x2 sinusoidal:14x4 --nulls -1", "--nulls -1"),
    ],
)
def test_comparing_incompatible_encodings_is_wrong_usage(
    words: str, message: str, cli: Cli, tmp_path: Path
) -> None:
    completed = cli("compare", *words.split(), "--quiet")
    assert_one_clear_error(completed, 2)
    assert message in completed.err
    assert files_in(tmp_path) == set()


def test_encodings_of_any_scheme_compare(cli: Cli, tmp_path: Path) -> None:
    completed = cli(
        "compare", "sinusoidal:64x16", "rotary:64x16", "alibi:64x8", "--out", "bundle"
    )
    assert completed.code == 0, completed.err
    document = json.loads((tmp_path / "bundle" / "analysis.json").read_text())
    assert document["schema"] == "posprobe.kernels/3"


# Rows and grids.


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("1:12", slice(1, 12)), (":5", slice(None, 5)), ("5:", slice(5, None)),
        (" 2:4 ", slice(2, 4)), (":-3", slice(None, -3)), ("4:999", slice(4, 999)),
    ],
)  # fmt: skip
def test_rows_are_a_slice(rows: str, expected: slice) -> None:
    assert parse_rows(rows) == expected


@pytest.mark.parametrize(
    "rows", ["", "5", "1:2:3", "1.5:3", "-:", "0x1:3", "1:" + "9" * 5000]
)
def test_rows_that_mean_nothing_are_wrong_usage(rows: str) -> None:
    with pytest.raises(UsageError, match="expected A:B"):
        parse_rows(rows)


@pytest.mark.parametrize("rows", ["9:3", "5:5", "20:30"])
def test_rows_that_leave_nothing_are_wrong_usage(
    rows: str, cli: Cli, tmp_path: Path
) -> None:
    assert_one_clear_error(
        cli("extract", "sinusoidal:20x4", "-o", "t.npy", "--rows", rows), 2
    )
    assert files_in(tmp_path) == set()
    assert cli("extract", "sinusoidal:20x4", "-o", "t.npy", "--rows", "1:12").code == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "t.npy"), pp.sinusoidal(20, 4).values[1:12]
    )


def test_a_grid_can_be_stated(cli: Cli, tmp_path: Path) -> None:
    values = pp.sincos2d(3, 4, 8).values
    np.save(tmp_path / "patches.npy", np.concatenate([np.ones((1, 8)), values]))
    completed = cli(
        "analyze", "patches.npy", "--tensor", "patches", "--grid", "3x4", "--only", "grid,norms",
        "--quiet", "--json", "--out", "b",
    )  # fmt: skip
    assert completed.code == 0, completed.err
    table = json.loads(completed.out)["table"]
    assert table["layout"] == {"type": "grid", "height": 3, "width": 4}
    assert [row["row"] for row in table["prefix_rows"]] == [0]


@pytest.mark.parametrize("grid", ["3", "0x4", "3x4x5x6", "axb", ""])
def test_a_grid_that_means_nothing_is_wrong_usage(grid: str) -> None:
    with pytest.raises(UsageError, match="ROWSxCOLUMNS"):
        parse_grid(grid)
