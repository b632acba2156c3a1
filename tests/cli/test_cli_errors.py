"""Bad input is one clear error with its exit code, and leaves nothing behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made_checkpoints import CHECKPOINT_MAKERS
from made_cli import Cli, assert_one_clear_error, cli, files_in

import posprobe as pp
from posprobe.errors import UsageError

__all__ = ["cli"]


@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "phrase"),
    [
        ("nothing", "./missing.safetensors", 3, "missing.safetensors: no such file"),
        ("nothing", "sample:gpt-5", 3, "gpt-5: no such sample.*Choose from all"),
        ("nothing", "wavelet:5x5", 3, "unknown formula 'wavelet'.*sinusoidal"),
        ("nothing", "sinusoidal:5x5", 2, "multiple of 2"),
        ("nothing", "sinusoidal:99999999x512", 2, "Choose fewer positions"),
        ("nothing", "sinusoidal:1x4", 4, "one position"),
        ("nothing", "sinusoidal:8x4#encoder", 2, "a formula has no"),
        ("nothing", "what is this?", 3, "neither a path that exists nor a Hub id"),
        ("sound", "./modle", 3, r"no such file or folder\. Did you mean `model`\?$"),
        (
            "sound",
            "modle --offline",
            3,
            r"not in the local cache.*Did you mean `model`\?$",
        ),
        ("nothing", "an--owner/name", 3, "neither a path that exists nor a Hub id"),
        ("empty file", "model", 4, "model.safetensors"),
        ("enormous header", "model", 4, "model.safetensors"),
        ("empty folder", "model", 4, "no weights"),
        ("no JSON", "model", 4, "config.json: not valid JSON"),
        ("NaN", "model", 4, "NaN or infinity, at the positions 3"),
        ("one row", "model", 4, "one position"),
        ("one dimension", "model --tensor bias", 4, r"bias, shape \[8\].*two dimensions"),
        ("one dimension", "model --tensor nias", 3, "no tensor nias.*inspect"),
        ("integers", "model", 4, "I8"),
        ("rotary", "model", 4, "the width of a head"),
        ("alibi", "model --only pca", 2, "it has no table"),
        ("alibi", "model --rows 3:9", 2, "--rows 0:N"),
        ("relative", "model --grid 4x4", 5, "no table of positions.*relative"),
        ("no positions", "model", 5, "no position table.*--tensor NAME"),
        ("several", "model", 2, "2 position tables.*model#decoder.*model#encoder"),
        ("several", "model#third", 3, "no table called 'third'.*model#decoder"),
        ("malicious", "model", 4, "pytorch_model.bin"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_nothing(
    prepare: str, arguments: str, code: int, phrase: str, cli: Cli, tmp_path: Path
) -> None:
    CHECKPOINT_MAKERS[prepare](tmp_path)
    files_before = files_in(tmp_path)
    words = [arguments] if "?" in arguments else arguments.split()
    completed = cli("analyze", *words, "--quiet")
    assert_one_clear_error(completed, code)
    assert re.search(phrase, completed.err, re.DOTALL), completed.err
    assert files_in(tmp_path) == files_before


@pytest.mark.parametrize(
    ("broken", "code", "phrase"),
    [
        ("truncated", 4, "model.safetensors: tensor"),
        ("integers", 4, "model.safetensors: tensor"),
        ("no positions", 5, "no position table was found"),
    ],
)
@pytest.mark.parametrize("command", ["compare", "figure similarity -o x.pdf"])
def test_of_several_checkpoints_the_message_names_the_one_that_fails(
    broken: str, code: int, phrase: str, command: str, cli: Cli, tmp_path: Path
) -> None:
    for name, prepared in (("a", "sound"), ("b", broken)):
        (tmp_path / name).mkdir()
        CHECKPOINT_MAKERS[prepared](tmp_path / name)
    completed = cli(*command.split(), "a/model", "./b/model", "--quiet")
    assert_one_clear_error(completed, code)
    begin = rf"posprobe: (?:{re.escape(str(tmp_path))}/|\./)?b/model\b"
    assert re.match(rf"{begin}.*{phrase}", completed.err)
    assert "a/model" not in completed.err
    assert completed.err.count("b/model") == 1


@pytest.mark.parametrize("name", ["m", "./m", "model.safe"])
def test_a_name_with_which_a_file_begins_is_named_as_well(
    name: str, cli: Cli, tmp_path: Path
) -> None:
    CHECKPOINT_MAKERS["truncated"](tmp_path)
    (tmp_path / "model").rename(tmp_path / name)
    completed = cli("analyze", name, "--quiet")
    assert_one_clear_error(completed, 4)
    assert completed.err.startswith(f"posprobe: {Path(name)}/model.safetensors: tensor")


@pytest.mark.parametrize(
    ("arguments", "phrase"),
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
    arguments: list[str], phrase: str, cli: Cli, tmp_path: Path
) -> None:
    completed = cli(*arguments)
    assert (completed.code, completed.out) == (2, "")
    assert phrase in completed.err
    assert "posprobe" in completed.err
    assert "-h" in completed.err
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["--only", "all,foo"], "foo"),
        (["--only", "pca,tea"], "unknown analysis 'tea'. Choose from .*pca"),
        (["--only", ""], "unknown analysis ''"),
        (["--nulls", "-1"], "--nulls -1: between 0 and"),
        (["--nulls", "99999999999"], "between 0 and"),
        (["--only", "grid"], "grid needs positions on a grid; this is a sequence of 8"),
        (["--tensor", "x"], "a formula has no tensor"),
        (["--out", "taken"], "taken: it is not a folder"),
        (["--out", "taken/b"], "taken is not a folder"),
        (["--out", "full"], "keep.txt"),
        (["--out", "long" * 100], "no folder can be made there"),
    ],
)
def test_an_impossible_option_changes_no_file(
    arguments: list[str], phrase: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "keep.txt").write_text("work")
    files_before = files_in(tmp_path)
    completed = cli("analyze", "sinusoidal:8x4", "--quiet", *arguments)
    assert_one_clear_error(completed, 2)
    assert re.search(phrase, completed.err)
    assert files_in(tmp_path) == files_before
    assert (tmp_path / "taken").read_text() == "a file"


@pytest.mark.parametrize("looks", ["is_file", "open"], ids=["folder", "file"])
def test_an_unreadable_model_is_one_clear_error(
    looks: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CHECKPOINT_MAKERS["sound"](tmp_path)
    sound = getattr(Path, looks)

    def refused(path: Path, *arguments: object) -> object:
        if path.name == "config.json":
            raise PermissionError(13, "Permission denied", str(path))
        return sound(path, *arguments)

    monkeypatch.setattr(Path, looks, refused)
    completed = cli("forward", "./model")
    assert_one_clear_error(completed, 3)
    assert (
        "model/config.json: permission denied. Check that you may read it."
        in completed.err
    )


def test_no_arguments_show_the_help(cli: Cli) -> None:
    completed = cli()
    assert completed.code == 2
    assert "Usage: posprobe" in completed.out + completed.err


@pytest.mark.parametrize(
    ("content", "code"), [(None, 3), ("{", 4), ('{"schema": "posprobe.analysis/1"}', 4)]
)
def test_report_of_a_foreign_folder_is_refused(
    content: str | None, code: int, cli: Cli, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "analysis.json").write_text(content)
    files_before = files_in(tmp_path)
    assert_one_clear_error(cli("report", "."), code)
    assert files_in(tmp_path) == files_before


@pytest.mark.parametrize(
    ("output", "phrase"),
    [
        ("table.xlsx", "the suffix must be"),
        ("missing/table.npy", "no folder missing"),
        ("folder.npy", "it is a folder"),
    ],
)
def test_extract_to_an_unwritable_path_is_one_clear_error(
    output: str, phrase: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "folder.npy").mkdir()
    completed = cli("extract", "sinusoidal:8x4", "-o", output)
    assert_one_clear_error(completed, 2)
    assert phrase in completed.err
    assert files_in(tmp_path) == {"folder.npy"}


@pytest.mark.parametrize("option_position", ["before", "after"])
def test_debug_adds_the_traceback_and_keeps_the_exit_code(
    option_position: str, cli: Cli
) -> None:
    arguments = ["analyze", "./missing.npy"]
    completed = cli(
        *(
            ["--debug", *arguments]
            if option_position == "before"
            else [*arguments, "--debug"]
        )
    )
    assert completed.code == 3
    assert "Traceback (most recent call last)" in completed.err
    assert "UnknownReference" in completed.err
    assert completed.err.splitlines()[-1].startswith(
        "posprobe: ./missing.npy: no such file"
    )


def test_an_unexpected_exception_is_reported_as_a_bug(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("posprobe.families.read.load", broken)
    completed = cli("analyze", "sinusoidal:8x4")
    assert completed.code == 1
    assert completed.err.startswith("posprobe: a bug: ZeroDivisionError")
    assert "--debug" in completed.err
    assert "Traceback" not in completed.err


def test_an_interrupt_ends_quietly(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("posprobe.report.bundle.render", interrupt)
    completed = cli("analyze", "sinusoidal:8x4", "--only", "norms")
    assert completed.code == 130  # as every shell expects
    assert "Traceback" not in completed.err
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("parameter", "option"),
    [
        ("`tensor='wpe.weight'`", "--tensor wpe.weight"),
        ("`grid=(4, 14, 14)`", "--grid 4x14x14"),
        ("`table[1:]`", "--rows 1:"),
        ("`rows=slice(None, 9)`", "--rows :9"),
        ("`layers=[7, 9]`", "--layers 7,9"),
        ("`all_rows=True`", "--all-rows"),
        ("`trust_remote_code=True`", "`trust_remote_code=True`"),  # forward has it
        ("`save_pretrained`", "`save_pretrained`"),
    ],
)
def test_a_message_names_options_of_its_command(
    parameter: str, option: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UsageError(f"x: unfit. Use {parameter}.")

    monkeypatch.setattr("posprobe.families.read.load", refuse)
    assert cli("analyze", "sinusoidal:8x4").err == f"posprobe: x: unfit. Use {option}.\n"


@pytest.mark.parametrize(
    ("arguments", "call", "option", "parameter"),
    [
        (
            "analyze sinusoidal:8x4 --nulls -1",
            lambda: pp.analyze("sinusoidal:8x4", nulls=-1),
            "--nulls -1: ",
            "`nulls=-1`: ",
        ),
        (
            "figure similarity sinusoidal:8x4 -o x.pdf --columns 0",
            lambda: pp.paper_figure("similarity", "sinusoidal:8x4", columns=0),
            "--columns 0: ",
            "`columns=0`: ",
        ),
        (
            "table sinusoidal:8x4 --nulls -1",
            lambda: pp.research_table(["sinusoidal:8x4"], nulls=-1),
            "--nulls -1: ",
            "`nulls=-1`: ",
        ),
        (
            "forward sample:pydoc-llama --only states --pooling mean",
            lambda: pp.analyze_model(
                "sample:pydoc-llama", only=["states"], pooling="mean"
            ),
            "--pooling is for places",
            "`pooling` is for places",
        ),
        (
            "sweep gpt2 --revisions * --offline",
            lambda: pp.sweep("gpt2", revisions="*", offline=True),
            "--revisions asks the Hub, and --offline forbids it",
            "`revisions` asks the Hub, and `offline` forbids it",
        ),
    ],
)
def test_an_error_speaks_to_each_door_in_its_words(
    arguments: str, call: Callable[[], object], option: str, parameter: str, cli: Cli
) -> None:
    with pytest.raises(pp.PosprobeError) as refusal:
        call()
    assert parameter in str(refusal.value)
    completed = cli(*arguments.split(), "--quiet")
    assert completed.code == refusal.value.exit_code
    assert option in completed.err
    assert "`" not in completed.err
