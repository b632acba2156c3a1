"""The command line: data on stdout, talk on stderr, and every option followed as it is told."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_checkpoints import PREPARE
from made_cli import Cli, Done, assert_one_clear_error, cli, left_in
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.families.registry import registry
from posprobe.report import read_bundle
from posprobe.report.paper import OF_RUNS, kinds
from posprobe.samples import samples

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cli"]

COMMANDS = (
    "analyze", "inspect", "figure", "list", "compare", "check", "nearest", "sweep", "table",
    "forward", "resize", "extract", "report",
)  # fmt: skip


# What each command prints.


def test_help_names_every_command_and_what_a_reference_is(cli: Cli) -> None:
    done = cli("--help")
    assert (done.code, done.err) == (0, "")
    panels = dict(re.findall(r"^(\w+):\n((?:  .+\n)+)", done.out, re.MULTILINE))
    assert list(panels) == ["Options", "Look", "Compare", "Models", "Files"]
    listed = [line for panel in list(panels)[1:] for line in panels[panel].splitlines()]
    # A line each, with a sentence that is whole.
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
    text = " ".join(done.out.split())
    for said in ("SOURCE[@REVISION][#TABLE]", "sample:NAME", "sinusoidal:512x768", "0 done"):
        assert said in text
    for code in ("2 wrong usage", "3 reference not", "4 checkpoint not", "5 no position table"):
        assert code in text
    assert cli("-h").out == done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_explained(command: str, cli: Cli) -> None:
    done = cli(command, "--help")
    assert (done.code, done.err) == (0, "")
    options = re.findall(r"^ +(?:-\w, )?--[\w-]+.*(?:\n {20,}.*)*", done.out, re.MULTILINE)
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
def test_commands_have_the_options_of_the_contract(command: str, options: str, cli: Cli) -> None:
    words = set(re.findall(r"(?<!\S)--?[a-z]+", cli(command, "--help").out))
    assert set(options.split()) <= words


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("analyze", "--out --rows --all-rows --only --json"),
        ("figure", "--output --venue --span --label --rows"),
        ("forward", "--out --text --images --only --length"),
    ],
)
def test_help_shows_the_most_used_options_first(command: str, first: str, cli: Cli) -> None:
    said = cli(command, "--help").out
    shown, _, others = said.partition("\nOptions:\n")[2].partition("\nMore options:\n")
    assert re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE) == first.split()
    assert "--offline" in others


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version") == Done(0, version("posprobe") + "\n", "")
    assert pp.__version__ == version("posprobe")


def test_analyze_prints_numbers_on_stdout_and_talk_on_stderr(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "analyze", "sincos2d:4x6x16", "--only", "pca,similarity,grid", "--nulls", "1", "--out", "b"
    )
    assert done.code == 0
    document = read_bundle(tmp_path / "b")
    assert f"{document['pca']['stable_rank']:.3g}" in done.out
    assert "stable rank" in done.out
    assert done.out.startswith("sincos2d:4x6x16: 4 × 6 patches × 16\n")
    # The last line says where the page is.
    assert done.err.splitlines()[-1] == "Report: b/report.html"
    assert (tmp_path / "b" / "report.html").exists()
    assert "b/" not in done.out


def test_json_on_stdout_is_the_saved_document_and_nothing_else(cli: Cli, tmp_path: Path) -> None:
    done = cli("analyze", "sinusoidal:16x4", "--only", "norms", "--json", "--quiet", "--out", "b")
    assert (done.code, done.err) == (0, "")
    assert done.out == (tmp_path / "b" / "analysis.json").read_text(encoding="utf-8")
    assert json.loads(done.out)["table"]["positions"] == 16


def test_the_bundle_goes_to_reports_under_the_name_of_the_table(cli: Cli, tmp_path: Path) -> None:
    assert cli("analyze", "sinusoidal:16x4", "--only", "norms", "--quiet").code == 0
    assert cli("analyze", "sinusoidal:16x4", "--only", "norms", "--rows", "1:9").code == 0
    found = {path.name for path in (tmp_path / "reports").iterdir()}
    assert found == {"sinusoidal-16x4", "sinusoidal-16x4-rows-1-9"}


def test_the_command_is_on_record_as_it_can_be_typed_again(cli: Cli, tmp_path: Path) -> None:
    arguments = ["analyze", "sinusoidal:16x4", "--only", "norms", "--out", "a b", "--quiet"]
    assert cli(*arguments).code == 0
    command = read_bundle(tmp_path / "a b")["environment"]["command"]
    assert shlex.split(command) == ["posprobe", *arguments]


def test_compare_takes_the_first_ones_shape_for_a_formula(cli: Cli, tmp_path: Path) -> None:
    some = ["--nulls", "0", "--out", "b"]
    done = cli("compare", "sinusoidal:16x8", "sinusoidal", "--json", *some)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document == json.loads((tmp_path / "b" / "analysis.json").read_text(encoding="utf-8"))
    assert [entry["table"]["dim"] for entry in document["tables"]] == [8, 8]
    assert done.err.splitlines()[-1].startswith("Report: b/report.html")
    before = (tmp_path / "b" / "report.html").read_bytes()
    assert cli("report", "b") == Done(0, "b/report.html\n", "")
    assert (tmp_path / "b" / "report.html").read_bytes() == before


def test_what_was_left_out_is_said(cli: Cli) -> None:
    done = cli("analyze", "sample:sapiens-roberta", "--only", "norms", "--out", "b")
    assert "embed_positions.weight · 2 rows left out" in " ".join(done.out.split())


def test_extract_writes_the_positions_and_prints_where(cli: Cli, tmp_path: Path) -> None:
    done = cli("extract", "sample:sapiens-roberta", "-o", "table.npy")
    assert (done.code, done.out, done.err) == (0, "table.npy\n", "144 x 128 float32\n")
    table = pp.load("sample:sapiens-roberta")
    np.testing.assert_array_equal(np.load(tmp_path / "table.npy"), table.values)
    assert cli("extract", "sinusoidal:4x2", "--output", "t.csv", "--quiet").err == ""


def test_samples_lists_what_can_be_analysed_without_a_download(cli: Cli) -> None:
    done = cli("list", "samples")
    assert (done.code, done.err) == (0, "")
    assert cli("samples") == done  # its old name
    names = re.findall(r"^(sample:\S+)", done.out, re.MULTILINE)
    assert names == [f"sample:{sample.name}" for sample in samples()]
    listed = json.loads(cli("list", "samples", "--json").out)["samples"]
    assert [f"sample:{sample['name']}" for sample in listed] == names
    for name, sample in zip(names, listed, strict=True):
        if sample["tensor"]:
            assert pp.load(name).source.sha256 == sample["tensor_sha256"]
        else:
            assert pp.load_schemes(name)


def test_families_lists_every_architecture(cli: Cli) -> None:
    done = cli("list", "families")
    assert (done.code, done.err) == (0, "")
    assert cli("families") == done  # its old name
    listed = json.loads(cli("list", "families", "--json").out)["families"]
    assert [family["name"] for family in listed] == [family.name for family in registry().families]
    assert len(listed) >= 15
    for family in registry().families:
        assert re.search(rf"^{re.escape(family.name)} ", done.out, re.MULTILINE)
        assert family.title in done.out


def test_figures_and_numbers_are_listed_as_other_commands_take_them(cli: Cli) -> None:
    figures = json.loads(cli("list", "figures", "--json").out)["figures"]
    listed = {figure["name"]: figure["title"] for figure in figures}
    assert listed == {**kinds(), **{name: title for name, (_, title) in OF_RUNS.items()}}
    numbers = [
        number["name"] for number in json.loads(cli("list", "numbers", "--json").out)["numbers"]
    ]
    assert "pca.stable_rank" in numbers
    some = ",".join(name for name in numbers if name.startswith(("pca.", "norms.")))
    done = cli("table", "sinusoidal:32x8", "--numbers", some, "--nulls", "0")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].count(" | ") == len(some.split(","))


def test_inspect_says_what_is_there(cli: Cli) -> None:
    done = cli("inspect", "sample:sapiens-roberta", "--json")
    (record,) = json.loads(done.out)["encodings"]
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


@pytest.mark.parametrize("scheme", ["rotary", "alibi", "relative"])
def test_inspect_names_the_scheme_of_a_checkpoint_without_a_table(
    scheme: str, cli: Cli, tmp_path: Path
) -> None:
    PREPARE[scheme](tmp_path)
    done = cli("inspect", "model", "--json")
    assert done.code == 0
    assert scheme in {record["scheme"] for record in json.loads(done.out)["encodings"]}


def test_inspect_of_a_checkpoint_without_positions_is_an_empty_list(
    cli: Cli, tmp_path: Path
) -> None:
    save_file({"dense": np.ones((3, 3), np.float32)}, tmp_path / "model.safetensors")
    assert json.loads(cli("inspect", "model.safetensors", "--json").out) == {"encodings": []}
    assert cli("inspect", "model.safetensors").out.strip()


@pytest.mark.parametrize("scheme", ["rotary", "alibi", "relative"])
def test_a_checkpoint_without_a_table_is_analysed_by_its_scheme(
    scheme: str, cli: Cli, tmp_path: Path
) -> None:
    PREPARE[scheme](tmp_path)
    config = tmp_path / "model" / "config.json"
    if scheme == "rotary":
        config.write_text(json.dumps(json.loads(config.read_text()) | {"head_dim": 8}))
    done = cli("analyze", "model", "--out", "bundle", "--json")
    assert done.code == 0
    (found,) = json.loads(done.out)["schemes"]
    assert found["scheme"] == scheme
    assert {"analysis.json", "arrays.npz", "report.html"} < left_in(tmp_path / "bundle")
    assert cli("extract", "model", "-o", "t.npy").code == 5


def test_encodings_of_any_scheme_compare(cli: Cli, tmp_path: Path) -> None:
    done = cli("compare", "sinusoidal:64x16", "rotary:64x16", "alibi:64x8", "--out", "bundle")
    assert done.code == 0, done.err
    document = json.loads((tmp_path / "bundle" / "analysis.json").read_text())
    assert document["schema"] == "posprobe.kernels/2"


# Rows and grids.


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ("1:12", slice(1, 12)),
        (":5", slice(5)),
        ("5:", slice(5, None)),
        (" 2:4 ", slice(2, 4)),
        (":-3", slice(-3)),
        ("4:999", slice(4, None)),
    ],
)
def test_rows_keeps_positions_like_a_slice(
    rows: str, kept: slice, cli: Cli, tmp_path: Path
) -> None:
    assert cli("extract", "sinusoidal:20x4", "-o", "t.npy", "--rows", rows).code == 0
    expected = pp.sinusoidal(20, 4).values[kept]
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), expected)


@pytest.mark.parametrize(
    "rows",
    ["9:3", "5:5", "20:30", "", "5", "1:2:3", "1.5:3", "-:", "0x1:3", "1:" + "9" * 5000],
)  # fmt: skip
def test_rows_that_mean_nothing_are_wrong_usage(rows: str, cli: Cli, tmp_path: Path) -> None:
    done = cli("extract", "sinusoidal:20x4", "-o", "t.npy", "--rows", rows)
    assert_one_clear_error(done, 2)
    assert left_in(tmp_path) == set()


def test_a_grid_can_be_stated(cli: Cli, tmp_path: Path) -> None:
    values = pp.sincos2d(3, 4, 8).values
    np.save(tmp_path / "patches.npy", np.concatenate([np.ones((1, 8)), values]))
    done = cli(
        "analyze", "patches.npy", "--tensor", "patches", "--grid", "3x4", "--only", "grid,norms",
        "--quiet", "--json", "--out", "b",
    )  # fmt: skip
    assert done.code == 0, done.err
    table = json.loads(done.out)["table"]
    assert table["layout"] == {"type": "grid", "height": 3, "width": 4}
    assert [row["row"] for row in table["prefix_rows"]] == [0]


@pytest.mark.parametrize("grid", ["3", "0x4", "3x4x5", "axb", ""])
def test_a_grid_that_means_nothing_is_wrong_usage(grid: str, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", np.ones((12, 8)))
    done = cli("analyze", "p.npy", "--tensor", "p", "--grid", grid)
    assert_one_clear_error(done, 2)
