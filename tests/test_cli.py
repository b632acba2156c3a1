"""The command line: data on stdout, talk on stderr, one clear error, and a light start."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.cli import main
from posprobe.families import FAMILIES
from posprobe.report import read_bundle
from posprobe.samples import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMANDS = (
    "analyze", "compare", "figure", "forward", "inspect", "extract", "resize", "report",
    "samples", "families",
)  # fmt: skip
BERT = "embeddings.position_embeddings.weight"
#: What the start of the program has no use for.
HEAVY = (
    "numpy", "scipy", "sklearn", "matplotlib", "torch", "transformers", "timm", "safetensors",
    "huggingface_hub", "jinja2", "PIL", "rich",
)  # fmt: skip


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Cli(Protocol):
    def __call__(self, *arguments: str) -> Done:
        """Run the command line in this process."""


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Cli]:
    """Run ``posprobe`` in an empty folder; loggers and environment are restored afterwards."""
    logger = logging.getLogger("posprobe")
    state = logger.handlers[:], logger.level, logger.propagate
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["posprobe", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, printed.out, printed.err)

    yield run
    logger.handlers[:], logger.level, logger.propagate = state


def process(code: str, *arguments: str, cwd: Path, **environment: str) -> Done:
    """Run Python code that calls the command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def left_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# What each command prints.


def test_help_names_every_command_and_what_a_reference_is(cli: Cli) -> None:
    done = cli("--help")
    assert (done.code, done.err) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", done.out, re.MULTILINE)
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
        ("samples", "--json"),
        ("families", "--json"),
    ],
)
def test_commands_have_the_options_of_the_contract(command: str, options: str, cli: Cli) -> None:
    words = set(re.findall(r"(?<!\S)--?[a-z]+", cli(command, "--help").out))
    assert set(options.split()) <= words


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
    assert "sincos2d:4x6x16: fixed table, grid of 4 x 6, width 16" in done.err
    # The last lines say where the files are, and the files are there.
    places = [line.split(maxsplit=1) for line in done.err.splitlines()[-3:]]
    assert [place[0] for place in places] == ["Data", "Figures", "Report"]
    for _, names in places:
        for name in names.split(", "):
            assert (tmp_path / name).exists()
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
    assert done.err.splitlines()[-1].startswith("Report  b/report.html")
    before = (tmp_path / "b" / "report.html").read_bytes()
    assert cli("report", "b") == Done(0, "b/report.html\n", "")
    assert (tmp_path / "b" / "report.html").read_bytes() == before


@pytest.mark.parametrize(
    ("refs", "said"),
    [
        (["sinusoidal:16x8"], "at least two tables"),
        (["sinusoidal"], "sinusoidal"),
    ],
)
def test_tables_that_cannot_be_compared(
    refs: list[str], said: str, cli: Cli, tmp_path: Path
) -> None:
    done = cli("compare", *refs, "--offline", "--quiet")
    assert done.code in (2, 3)
    assert_one_clear_error(done, done.code)
    assert said in done.err
    assert left_in(tmp_path) == set()


def test_what_was_left_out_is_said_before_anything_is_computed(cli: Cli) -> None:
    done = cli("analyze", "sample:sapiens-roberta", "--only", "norms", "--out", "b")
    assert "left out: rows 0 to 1" in done.err
    assert "decoder.sentence_encoder.embed_positions.weight (F32)" in done.err


def test_report_renders_again_and_prints_where(cli: Cli, tmp_path: Path) -> None:
    cli("analyze", "sinusoidal:16x4", "--only", "norms", "--quiet", "--out", "b")
    page = tmp_path / "b" / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert cli("report", "b") == Done(0, "b/report.html\n", "")
    assert page.read_bytes() == before


def test_extract_writes_the_positions_and_prints_where(cli: Cli, tmp_path: Path) -> None:
    done = cli("extract", "sample:sapiens-roberta", "-o", "table.npy")
    assert (done.code, done.out, done.err) == (0, "table.npy\n", "144 x 128 float32\n")
    table = pp.load("sample:sapiens-roberta")
    np.testing.assert_array_equal(np.load(tmp_path / "table.npy"), table.values)
    assert cli("extract", "sinusoidal:4x2", "--output", "t.csv", "--quiet").err == ""


def test_samples_lists_what_can_be_analysed_without_a_download(cli: Cli) -> None:
    done = cli("samples")
    assert (done.code, done.err) == (0, "")
    names = re.findall(r"^(sample:\S+)", done.out, re.MULTILINE)
    assert names == [f"sample:{sample.name}" for sample in samples()]
    listed = json.loads(cli("samples", "--json").out)["samples"]
    assert [f"sample:{sample['name']}" for sample in listed] == names
    for name, sample in zip(names, listed, strict=True):
        assert pp.load(name).source.sha256 == sample["tensor_sha256"]


def test_families_lists_every_architecture(cli: Cli) -> None:
    done = cli("families")
    assert (done.code, done.err) == (0, "")
    listed = json.loads(cli("families", "--json").out)["families"]
    assert [family["name"] for family in listed] == [family.name for family in FAMILIES]
    assert len(listed) >= 15
    for family in FAMILIES:
        assert re.search(rf"^{re.escape(family.name)} ", done.out, re.MULTILINE)
        assert family.title in done.out


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


# Rows and grids.


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ("1:12", slice(1, 12)),
        (":5", slice(5)),
        ("5:", slice(5, None)),
        (":", slice(None)),
        (" 2:4 ", slice(2, 4)),
        ("-3:", slice(-3, None)),
        (":-3", slice(-3)),
        ("4:999", slice(4, None)),
        ("4:99999999999999999", slice(4, None)),
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
    ["9:3", "5:5", "20:30", "x", "", "5", "1:2:3", "1:x", "1.5:3", "-:", "- 1:", "0x1:3", "1;2",
     "1:" + "9" * 5000],
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


@pytest.mark.parametrize("grid", ["3", "3x", "0x4", "3x4x5", "-3x4", "axb", ""])
def test_a_grid_that_means_nothing_is_wrong_usage(grid: str, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", np.ones((12, 8)))
    done = cli("analyze", "p.npy", "--tensor", "p", "--grid", grid)
    assert_one_clear_error(done, 2)


# Bad input: one clear error with its exit code, and nothing left behind.


def assert_one_clear_error(done: Done, code: int) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert "a bug" not in done.err
    assert done.err.count("posprobe: ") == 1
    assert done.err.startswith("posprobe: ")
    # A sentence that says what to do: it ends, and it is more than the name of an exception.
    assert len(done.err.split()) >= 8


def checkpoint(place: Path, tensors: dict[str, Any], config: Any = None) -> None:
    (place / "model").mkdir()
    save_file(tensors, place / "model" / "model.safetensors")
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (place / "model" / "config.json").write_text(text)


def table(rows: int = 16, width: int = 8) -> Any:
    return np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)


def empty(place: Path) -> None:
    (place / "model").mkdir()
    (place / "model" / "model.safetensors").write_bytes(b"")


def truncated(place: Path) -> None:
    checkpoint(place, {BERT: table()})
    path = place / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


def enormous_header(place: Path) -> None:
    empty(place)
    (place / "model" / "model.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")


def with_value(value: float) -> Callable[[Path], None]:
    def prepare(place: Path) -> None:
        values = table()
        values[3, 2] = value
        checkpoint(place, {BERT: values}, {"model_type": "bert"})

    return prepare


class Malicious:
    """What a pickle can do when it is read carelessly: leave a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def pickled(place: Path) -> None:
    (place / "model").mkdir()
    content = {BERT: torch.ones(4, 4), "x": Malicious(place / "ran")}
    torch.save(content, place / "model" / "pytorch_model.bin")


def legacy_pickle(place: Path) -> None:
    (place / "model").mkdir()
    (place / "model" / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(place / "ran")))


WEIGHT = {"layers.0.self_attn.q_proj.weight": np.ones((8, 8), np.float32)}
T5 = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"

PREPARE: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "empty file": empty,
    "truncated": truncated,
    "enormous header": enormous_header,
    "empty folder": lambda place: (place / "model").mkdir(),
    "list for a config": lambda place: checkpoint(place, {BERT: table()}, [1, 2]),
    "no JSON": lambda place: checkpoint(place, {BERT: table()}, "{'a': 1}"),
    "NaN": with_value(np.nan),
    "infinity": with_value(np.inf),
    "one row": lambda place: checkpoint(place, {BERT: table(1)}, {"model_type": "bert"}),
    "one dimension": lambda place: checkpoint(place, {"bias": np.ones(8, np.float32)}),
    "integers": lambda place: checkpoint(
        place, {BERT: np.ones((8, 8), np.int8)}, {"model_type": "bert"}
    ),
    "rotary": lambda place: checkpoint(place, WEIGHT, {"model_type": "llama", "rope_theta": 1e4}),
    "alibi": lambda place: checkpoint(place, WEIGHT, {"model_type": "bloom", "n_head": 8}),
    "relative": lambda place: checkpoint(
        place, {T5: np.ones((32, 8), np.float32)}, {"model_type": "t5"}
    ),
    "no positions": lambda place: checkpoint(place, WEIGHT),
    "several": lambda place: checkpoint(
        place,
        {
            "model.encoder.embed_positions.weight": table(),
            "model.decoder.embed_positions.weight": table(),
        },
        {"model_type": "bart"},
    ),
    "malicious": pickled,
    "malicious legacy": legacy_pickle,
}


@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "said"),
    [
        ("nothing", "./missing.safetensors", 3, "missing.safetensors: no such file"),
        ("nothing", "a/b/c", 3, "a/b/c: no such file or folder"),
        ("nothing", "sample:gpt-5", 3, "no sample 'gpt-5'.*Available: all-minilm-l6-v2"),
        ("nothing", "wavelet:5x5", 3, "no formula is called 'wavelet'.*sinusoidal"),
        ("nothing", "sinusoidal:5", 2, "takes 2 sizes"),
        ("nothing", "sinusoidal:5x5", 2, "multiple of 2"),
        ("nothing", "sinusoidal:0x4", 2, "must be positive"),
        ("nothing", "sinusoidal:99999999x512", 2, "Choose fewer positions"),
        ("nothing", "sinusoidal:1x4", 4, "one position"),
        ("nothing", "sinusoidal:8x4#encoder", 2, "a formula has no"),
        ("nothing", "nobody/nothing --offline", 3, "nobody/nothing"),
        ("nothing", "what is this?", 3, "neither a path that exists nor a Hub id"),
        ("empty file", "model", 4, "model.safetensors"),
        ("truncated", "model", 4, "model.safetensors"),
        ("enormous header", "model", 4, "model.safetensors"),
        ("empty folder", "model", 4, "no weights"),
        ("list for a config", "model", 4, "config.json: a JSON object was expected"),
        ("no JSON", "model", 4, "config.json: it is no JSON"),
        ("NaN", "model", 4, "NaN or infinity, at the positions 3"),
        ("infinity", "model", 4, "NaN or infinity, at the positions 3"),
        ("one row", "model", 4, "one position"),
        ("one dimension", "model --tensor bias", 4, r"bias, shape \[8\].*two dimensions"),
        ("one dimension", "model --tensor nias", 3, "no tensor nias.*bias"),
        ("integers", "model", 4, "I8"),
        ("no positions", "model", 5, "no position table was found"),
        ("rotary", "model", 4, "how wide a head is"),
        ("alibi", "model --only pca", 2, "it has no table"),
        ("alibi", "model --rows 3:9", 2, "--rows 0:N"),
        ("relative", "model --grid 4x4", 5, "no table of positions.*relative"),
        ("no positions", "model", 5, "no position table.*--tensor NAME"),
        ("several", "model", 2, "2 position tables.*model#decoder.*model#encoder"),
        ("several", "model#third", 3, "no table called 'third'.*model#decoder"),
        ("malicious", "model", 4, "pytorch_model.bin"),
        ("malicious legacy", "model", 4, "pytorch_model.bin"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_nothing(
    prepare: str, arguments: str, code: int, said: str, cli: Cli, tmp_path: Path
) -> None:
    PREPARE[prepare](tmp_path)
    before = left_in(tmp_path)
    words = [arguments] if "?" in arguments else arguments.split()
    done = cli("analyze", *words, "--quiet")
    assert_one_clear_error(done, code)
    assert re.search(said, done.err, re.DOTALL), done.err
    assert left_in(tmp_path) == before


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
    assert document["schema"] == "posprobe.kernels/1"


def test_a_zero_row_is_analysed_and_reported(cli: Cli, tmp_path: Path) -> None:
    values = table()
    values[3] = 0
    checkpoint(tmp_path, {BERT: values}, {"model_type": "bert"})
    done = cli("analyze", "model", "--only", "norms,similarity", "--json", "--quiet", "--out", "b")
    document = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert document["norms"]["zero_rows"] == document["similarity"]["zero_rows"] == [3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "frobnicate"),
        (["analyze"], "Missing argument"),
        (["analyze", "sinusoidal:8x4", "extra"], "extra"),
        (["analyze", "sinusoidal:8x4", "--colour", "red"], "--colour"),
        (["analyze", "sinusoidal:8x4", "--device", "tpu"], "'tpu' is not one of"),
        (["extract", "sinusoidal:8x4"], "output"),
        (["--colour"], "--colour"),
    ],
    ids=" ".join,
)
def test_wrong_usage_says_where_to_read(
    arguments: list[str], said: str, cli: Cli, tmp_path: Path
) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "posprobe" in done.err
    assert "-h" in done.err
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "pca,tea"], "no analysis is called 'tea'. There are .*pca"),
        (["--only", ""], "no analysis is called ''"),
        (["--nulls", "-1"], "--nulls -1: between 0 and"),
        (["--nulls", "99999999999"], "between 0 and"),
        (["--only", "grid"], "grid needs positions on a grid; this is a sequence of 8"),
        (["--tensor", "x"], "a formula has no tensor"),
        (["--out", "taken"], "taken: it is no folder"),
        (["--out", "taken/b"], "cannot be written"),
        (["--out", "full"], "keep.txt"),
    ],
)
def test_an_option_that_cannot_be_followed_changes_nothing(
    arguments: list[str], said: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "keep.txt").write_text("work")
    before = left_in(tmp_path)
    done = cli("analyze", "sinusoidal:8x4", "--quiet", *arguments)
    assert_one_clear_error(done, 2)
    assert re.search(said, done.err)
    assert left_in(tmp_path) == before
    assert (tmp_path / "taken").read_text() == "a file"


def test_nothing_at_all_shows_the_help(cli: Cli) -> None:
    done = cli()
    assert done.code == 2
    assert "Usage: posprobe" in done.out + done.err


@pytest.mark.parametrize(
    ("content", "code"), [(None, 3), ("{", 4), ('{"schema": "posprobe.analysis/1"}', 4)]
)
def test_report_of_what_is_no_bundle(
    content: str | None, code: int, cli: Cli, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "analysis.json").write_text(content)
    before = left_in(tmp_path)
    assert_one_clear_error(cli("report", "."), code)
    assert left_in(tmp_path) == before


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("table.xlsx", "the suffix must be"),
        ("missing/table.npy", "there is no folder missing"),
        ("folder.npy", "it is a folder"),
    ],
)
def test_extract_to_where_it_cannot_write(output: str, said: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    done = cli("extract", "sinusoidal:8x4", "-o", output)
    assert_one_clear_error(done, 2)
    assert said in done.err
    assert left_in(tmp_path) == {"folder.npy"}


@pytest.mark.parametrize("where", ["before", "after"])
def test_debug_adds_the_traceback_and_keeps_the_exit_code(where: str, cli: Cli) -> None:
    arguments = ["analyze", "./missing.npy"]
    done = cli(*(["--debug", *arguments] if where == "before" else [*arguments, "--debug"]))
    assert done.code == 3
    assert "Traceback (most recent call last)" in done.err
    assert "UnknownReference" in done.err
    assert done.err.splitlines()[-1].startswith("posprobe: ./missing.npy: no such file")


def test_a_bug_says_that_it_is_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("posprobe.checkpoint_analysis.load", broken)
    done = cli("analyze", "sinusoidal:8x4")
    assert done.code == 1
    assert done.err.startswith("posprobe: a bug: ZeroDivisionError")
    assert "--debug" in done.err
    assert "Traceback" not in done.err


def test_an_interrupt_ends_quietly(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("posprobe.figures.report_figures", interrupt)
    done = cli("analyze", "sinusoidal:8x4", "--only", "norms")
    assert done.code == 130  # as every shell expects
    assert "Traceback" not in done.err
    assert left_in(tmp_path) == set()


# File names that are no text.


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text on this system")
def test_a_path_that_is_no_valid_text_is_a_path_like_any_other(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")  # Latin-1, as an old archive leaves it
    place = tmp_path / name
    place.mkdir()
    np.save(place / "t.npy", table())
    code = "from posprobe.cli import main; main()"
    strict = {"PYTHONIOENCODING": "utf-8:strict"}
    done = process(
        code, "analyze", f"{name}/t.npy", "--tensor", "t", "--only", "norms", "--json",
        "--out", f"{name}/b", cwd=tmp_path, **strict,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["table"]["source"]["reference"] == f"{name}/t.npy"
    assert read_bundle(place / "b")["table"]["source"]["resolved"] == str(place / "t.npy")
    page = (place / "b" / "report.html").read_bytes()
    printed = subprocess.run(
        [sys.executable, "-c", code, "report", f"{name}/b"],
        cwd=tmp_path,
        env=os.environ | strict,
        capture_output=True,
        check=True,
    )
    assert printed.stdout == b"caf\xe9/b/report.html\n"
    assert (place / "b" / "report.html").read_bytes() == page


# Pipes and imports, each in a process of its own.


@pytest.mark.parametrize("arguments", [["families", "--json"], ["--help"]], ids=str)
def test_a_reader_that_has_seen_enough_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", "from posprobe.cli import main; main()", *arguments],
            cwd=tmp_path,
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def loaded_by(statement: str, *arguments: str, cwd: Path) -> set[str]:
    code = f"""
import sys
HEAVY = {HEAVY!r}
try:
    {statement}
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded", *sorted(set(HEAVY) & set(sys.modules)), file=sys.stderr)
"""
    done = process(code, *arguments, cwd=cwd)
    assert done.code == 0, done.err
    last = done.err.splitlines()[-1].split()
    assert last[0] == "loaded"
    return set(last[1:])


@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        ("import posprobe; dir(posprobe)", []),
        ("from posprobe.cli import main; main()", ["--help"]),
        ("from posprobe.cli import main; main()", ["--version"]),
        ("from posprobe.cli import main; main()", ["analyze", "--help"]),
    ],
    ids=["import", "--help", "--version", "analyze --help"],
)
def test_a_start_is_light(statement: str, arguments: list[str], tmp_path: Path) -> None:
    assert loaded_by(statement, *arguments, cwd=tmp_path) == set()


def test_the_main_job_loads_no_framework(tmp_path: Path) -> None:
    loaded = loaded_by(
        "from posprobe.cli import main; main()",
        "analyze", "sample:sapiens-roberta", "--out", "b", "--quiet", cwd=tmp_path,
    )  # fmt: skip
    assert "numpy" in loaded
    assert not loaded & {"torch", "transformers", "timm", "sklearn", "huggingface_hub"}


def test_analyses_in_a_notebook_need_no_figures_until_asked(tmp_path: Path) -> None:
    statement = "import posprobe as pp; pp.similarity(pp.load('sinusoidal:16x4'))"
    assert not loaded_by(statement, cwd=tmp_path) & {"matplotlib", "torch", "sklearn", "jinja2"}


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as where it is not installed
from posprobe.cli import main
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as ended:
        print("code", ended.code or 0, file=sys.stderr)
"""


def test_without_torch_everything_but_torch_files_works(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    torch.save({BERT: torch.ones(4, 4)}, tmp_path / "model" / "pytorch_model.bin")
    done = process(
        WITHOUT_TORCH,
        "analyze sinusoidal:16x4 --only norms,pca --nulls 0 --out b --quiet",
        "analyze model --quiet",
        "analyze sinusoidal:16x4 --device cuda --quiet",
        cwd=tmp_path,
    )
    worked, file, device = done.err.split("code ")[:3]
    assert worked == ""
    assert file.startswith("0")
    assert "posprobe[models]" in file
    assert device.startswith("4")
    assert "posprobe[models]" in device
    assert done.err.endswith("code 4\n")
    assert "Traceback" not in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_that_finds_no_room_is_no_bug() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", "from posprobe.cli import main; main()", "families"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    assert "cannot be written (No space left on device)" in ended.stderr
    assert "bug" not in ended.stderr


def test_the_module_is_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "posprobe", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == pp.__version__
