"""Sweeps: what they read, what they record, and that nothing is lost or computed twice."""

from __future__ import annotations

import csv
import gc
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_cli import Cli, cli
from made_forward import places_of, rotary_of, save_run
from made_hub import limit_file_size
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.errors import (
    MissingExtra,
    OutputError,
    PosprobeError,
    UnknownReference,
    UsageError,
)
from posprobe.measurements import TABLE_MEASUREMENTS, compared_numbers
from posprobe.sweeps.columns import columns
from posprobe.sweeps.references import (
    Entry,
    drop_repeated,
    expand_folder,
    parse_step,
    read_file,
    read_list,
)
from posprobe.text import escape_invisible, lookup

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["cli"]

QUICK: dict[str, Any] = {"jobs": 2, "only": ["norms", "pca"], "nulls": 0}


def save(place: Path, seed: int = 0, rows: int = 12, name: str = "wpe.weight") -> str:
    """Save a small checkpoint and return the reference to it."""
    place.mkdir(parents=True)
    walk = np.cumsum(np.random.default_rng(seed).normal(size=(rows, 6)), axis=0)
    save_file({name: walk.astype(np.float32)}, place / "model.safetensors")
    (place / "config.json").write_text('{"model_type": "gpt2"}')
    return str(place)


def without_times(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.drop_columns(["seconds"]).to_pylist()
    return rows


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("parts/??/*.json"))


def codes(failures: Iterable[dict[str, Any]]) -> dict[str, int]:
    return {failure["reference"]: failure["exit_code"] for failure in failures}


# What is read.


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "# mine\na/b\n\n  c/d#encoder \r\nrotary:64x16,base=500000\n"),
        ("list.csv", "size,reference\n1,a/b\n2,c/d#encoder\n3,\"rotary:64x16,base=500000\"\n"),
        ("standard input", "reference\na/b\nc/d#encoder\n\"rotary:64x16,base=500000\"\n"),
    ],
    ids=["text", "csv", "csv-by-header"],
)  # fmt: skip
def test_lists_of_every_form_name_the_same(name: str, text: str) -> None:
    listed_references = [entry.reference for entry in read_list(text.encode(), name)]
    assert listed_references == ["a/b", "c/d#encoder", "rotary:64x16,base=500000"]


@pytest.mark.parametrize(
    ("name", "content", "phrase"),
    [
        (
            "l.csv",
            b"model,size\na/b,1\n",
            "names 'model', 'size'.*one of them 'reference'",
        ),
        ("l.csv", b"reference;size\na/b;2\n", "names 'reference;size'.*with commas"),
        ("l.csv", b"reference,x,x\na/b,1,2\n", "each column once"),
        ("l.csv", b"reference,\na/b,1\n", "each column once"),
        ("l.csv", b"reference,x\na/b\n", "line 2: it has 1 fields, the header 2"),
        ("l.csv", b'reference,x\na/b,"1\n', "not valid CSV"),
        ("l.csv", b"reference,x\n,1\n", "line 2: it has no 'reference'"),
        ("l.txt", b"a/b\n\xff\xfe\n", "line 2: not UTF-8"),
        ("l.txt", b"# nothing\n\n", "no references"),
        ("l.csv", b"", "names nothing"),
    ],
)
def test_a_bad_list_is_refused_with_its_line(
    name: str, content: bytes, phrase: str
) -> None:
    with pytest.raises(UsageError, match=phrase):
        read_list(content, name)


def test_a_folder_expands_to_its_checkpoints_by_step(tmp_path: Path) -> None:
    for step in (1000, 500, 90):
        save(tmp_path / f"checkpoint-{step}")
        for name in ("optimizer.pt", "training_args.bin"):
            (tmp_path / f"checkpoint-{step}" / name).write_bytes(b"")
    (tmp_path / "arrays").mkdir()
    for name in ("b.npy", "a.npy"):
        np.save(tmp_path / "arrays" / name, np.eye(4))
    save(tmp_path / "checkpoint-10²")  # its digit is no decimal
    (tmp_path / "empty").mkdir()
    # Named alone, a model without weights is a failure; the settings of a pooling are no model.
    for name, text in (
        ("weightless", '{"model_type": "llama"}'),
        ("pooling", '{"mean": true}'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    names = [
        Path(entry.reference).name
        for entry in expand_folder(Entry(str(tmp_path), {"x": 1}))
    ]
    saved = [f"checkpoint-{step}" for step in ("10²", 90, 500, 1000)]
    assert names == ["a.npy", "b.npy", *saved, "weightless"]
    assert expand_folder(Entry(str(tmp_path / "empty"))) == [
        Entry(str(tmp_path / "empty"))
    ]
    assert expand_folder(Entry("gpt2")) == [Entry("gpt2")]


def test_linked_folders_are_followed_once_and_never_in_a_circle(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    save(run / "checkpoint-1")
    save(elsewhere / "checkpoint-2")
    (run / "linked").symlink_to(elsewhere)
    (run / "again").symlink_to(run / "checkpoint-1")
    (elsewhere / "back").symlink_to(run)
    (run / "broken").symlink_to(tmp_path / "nothing")
    names = [entry.reference for entry in expand_folder(Entry(str(run)))]
    assert names == [f"{run}/checkpoint-1", f"{run}/linked/checkpoint-2"]


@pytest.mark.parametrize(
    ("name", "step"),
    [("step1000", 1000), ("main", None), ("v2-step300-tokens4B", 300), ("1.0", 0),
     ("Training in progress, step 500", 500), ("checkpoint-7", 7)],
)  # fmt: skip
def test_steps_are_read_off_names(name: str, step: int | None) -> None:
    assert parse_step(name) == step


def test_a_repeated_reference_with_other_columns_is_refused(tmp_path: Path) -> None:
    entries = [Entry("a", {"x": 1}), Entry("b"), Entry("a", {"x": 1})]
    assert drop_repeated(entries) == [Entry("a", {"x": 1}), Entry("b")]
    path = tmp_path / "list.csv"
    path.write_text("reference,group,size\nc,a,1\nd,a,1\nc,b,1\n")
    message = r"list\.csv, line 2 and .*list\.csv, line 4: both are 'c', and .* differ: 'group'\."
    with pytest.raises(UsageError, match=message):
        drop_repeated(read_file(path))
    with pytest.raises(
        UsageError, match=r"reference 1 and record 2: both are 'sinusoidal:8x4'"
    ):
        pp.sweep(["sinusoidal:8x4", {"reference": "sinusoidal:8x4", "group": "a"}])


# What is recorded.


def test_columns_follow_from_the_registries() -> None:
    names = columns()
    for key in compared_numbers():
        assert {key, f"{key}.sinusoid"} <= set(names)
    assert not [name for name in names if name.endswith((".p5", ".p50", ".p95"))]
    assert all(
        any(name.startswith(f"{key}.") for name in names)
        for key in TABLE_MEASUREMENTS
        if key != "seams"
    )
    assert names["rotation.pairs"] == "int64"
    assert names["base"] == "double"
    assert names["rule"] == "string"


def test_rotary_models_have_rows_of_weights_and_heads(
    tmp_path: Path,
) -> None:
    (weighed,) = (
        pp.sweep("sample:pydoc-llama", **QUICK).to_arrow()["weights.never"].to_pylist()
    )
    assert 0 < weighed < 1
    use = rotary_of()
    save_run(tmp_path / "runs" / "made", {"rotary_use": use})
    save_run(tmp_path / "runs" / "other", {})
    sweep = pp.sweep(str(tmp_path / "runs"), out=tmp_path / "out", **QUICK).run()
    (row,) = sweep.to_arrow().to_pylist()
    assert (row["name"], row["scheme"]) == ("made", "rotary")
    summary = {
        key: row[f"rotary_use.summary.{key}"] for key in ("share", "yes", "no", "never")
    }
    assert summary == {key: getattr(use.summary, key) for key in summary}
    assert summary["yes"]
    (failure,) = sweep.failures()
    assert failure["exit_code"] == 2
    assert "neither what decides where heads look nor" in failure["message"]
    numbers = ["rotary_use.summary.yes"]
    table = pp.research_table([str(tmp_path / "runs" / "made")], numbers=numbers)
    assert table.splitlines()[2].endswith(f"| {summary['yes']} |")


def test_runs_have_rows_of_places(tmp_path: Path) -> None:
    places = places_of(pp.layouts.Sequence(32), "next_token")
    save_run(tmp_path / "made", {"places": places})
    (row,) = pp.sweep(str(tmp_path / "made"), **QUICK).to_arrow().to_pylist()
    assert row["scheme"] is None
    assert row["places.output"] == "next_token"
    for key in ("first_over_last", "reach"):
        assert row[f"places.{key}"] == getattr(places, key)


def test_a_row_holds_what_the_document_of_analyze_says(tmp_path: Path) -> None:
    reference = save(tmp_path / "one")
    swept = pp.sweep([reference], jobs=1, out=tmp_path / "s")
    (row,) = swept.to_arrow().to_pylist()
    analysis = pp.analyze(pp.load(reference), tokens=None).to_dict()
    for key, entry in analysis["nulls"]["numbers"].items():
        assert row[key] == entry["value"]
        assert row[f"{key}.sinusoid"] == entry["sinusoid"]
    for answer in analysis["verdict"]["answers"]:
        assert row[f"answers.{answer['question']}"] == answer["answer"]
    assert row["summary"] == analysis["verdict"]["summary"]
    assert row["findings"] == [finding["text"] for finding in analysis["findings"]]
    assert row["seams.at"] is None  # twelve rows are too few to look for seams
    assert row["sha256"] == analysis["table"]["source"]["sha256"]
    assert (row["positions"], row["dim"], row["layout"], row["family"]) == (
        12, 6, "sequence", "gpt2",
    )  # fmt: skip
    assert row["norms.mean"] == lookup(analysis, "norms.mean")
    assert row["bytes_read"] == 12 * 6 * 4


def test_every_table_and_scheme_has_a_row(tmp_path: Path) -> None:
    place = tmp_path / "two"
    save(place)
    names = (
        "model.encoder.embed_positions.weight",
        "model.decoder.embed_positions.weight",
    )
    table = np.random.default_rng(0).normal(size=(14, 6)).astype(np.float32)
    save_file(dict.fromkeys(names, table), place / "model.safetensors")
    (place / "config.json").write_text(
        '{"model_type": "bart", "max_position_embeddings": 12, "is_encoder_decoder": true}'
    )
    tables = pp.sweep([str(place)], **QUICK).to_arrow().to_pylist()
    assert {row["reference"]: row["tensor"] for row in tables} == {
        f"{place}#encoder": names[0],
        f"{place}#decoder": names[1],
    }
    references = ["rotary:64x8", "alibi:32x4"]
    rows = pp.sweep(references, jobs=1).to_arrow().to_pylist()
    assert [(row["reference"], row["scheme"]) for row in rows] == [
        ("rotary:64x8", "rotary"), ("alibi:32x4", "alibi"),
    ]  # fmt: skip
    assert (rows[0]["rotation.pairs"], rows[0]["positions"]) == (4, 64)
    assert rows[0]["answers.rotary_stretched"] == "no"
    # What is chosen of tables leaves nothing of an encoding out.
    swept = pp.sweep(["rotary:64x8", str(place)], **QUICK)
    assert swept.failures() == []
    first_record, *other_records = swept.to_arrow().to_pylist()
    assert first_record | {"seconds": None} == rows[0] | {"seconds": None}
    assert len(other_records) == 2


def test_own_columns_are_kept_typed_and_apart_from_ours(tmp_path: Path) -> None:
    references = [save(tmp_path / name, seed) for seed, name in enumerate("ab")]
    csv_text = (
        "reference,family,step,loss,note\n{},mine,10,0.5,01\n{},mine,2,1,\n".format(
            *references
        )
    )
    entries = read_list(csv_text.encode(), "l.csv")
    swept_references = [
        {"reference": entry.reference, **entry.columns} for entry in entries
    ]
    frame = pp.sweep(swept_references, out=tmp_path / "s", **QUICK).to_pandas()
    assert frame["user.step"].to_list() == [10, 2]
    assert frame["user.loss"].to_list() == [0.5, 1.0]
    assert frame["user.note"].fillna("").to_list() == ["01", ""]
    assert frame["user.family"].to_list() == ["mine", "mine"]
    (typed,) = pp.sweep(
        [swept_references[0] | {"loss": np.float64(0.5)}], **QUICK
    ).to_arrow()["user.loss"]
    assert typed.as_py() == 0.5
    assert frame["family"].to_list() == ["gpt2", "gpt2"]
    header = (
        (tmp_path / "s" / "sweep.csv")
        .read_text(encoding="utf-8")
        .splitlines()[0]
        .split(",")
    )
    assert len(header) == 40
    assert "user.note" in header
    # What the list says now counts, without anything being computed.
    second_sweep = pp.sweep([{"reference": references[0], "step": "ten"}], out=tmp_path / "s",
                     all_columns=True, **QUICK)  # fmt: skip
    assert second_sweep.to_pandas()["user.step"].tolist() == ["ten", "2"]
    assert (second_sweep.about or {})["run"]["computed"] == 0
    header = (
        (tmp_path / "s" / "sweep.csv")
        .read_text(encoding="utf-8")
        .splitlines()[0]
        .split(",")
    )
    assert header == second_sweep.to_arrow().column_names


def bad(folder: Path) -> dict[str, int]:
    """Make bad references; return them with the exit code that `analyze` has for each."""
    save(folder / "damaged")
    content = (folder / "damaged" / "model.safetensors").read_bytes()
    (folder / "damaged" / "model.safetensors").write_bytes(content[:-20])
    save(folder / "none", name="something.else")
    (folder / "none" / "config.json").write_text("{}")
    save(folder / "nan")
    save_file({"wpe.weight": np.full((5, 3), np.nan, np.float32)},
              folder / "nan" / "model.safetensors")  # fmt: skip
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    return {
        str(folder / "nowhere"): 3, str(folder / "damaged"): 4, str(folder / "none"): 5,
        str(folder / "nan"): 4, str(folder / "objects.npy"): 4,
        "sample:\x1b[2Jnone": 3, "sinusoidal:x": 2,
    }  # fmt: skip


def test_bad_references_fail_without_ending_the_sweep(cli: Cli, tmp_path: Path) -> None:
    good = [save(tmp_path / f"good-{seed}", seed) for seed in range(4)]
    expected = bad(tmp_path / "bad")
    for reference in expected:
        expected[reference] = cli("analyze", reference, "--only", "norms", "--quiet").code
        assert expected[reference]
    (tmp_path / "list.txt").write_text("\n".join([*expected, *good]))
    command = ["sweep", "--from", "list.txt", "--only", "norms", "--jobs", "1",
               "--out", "s"]  # fmt: skip
    for strict, code in (([], 0), (["--strict"], next(iter(expected.values())))):
        completed = cli(*command, *strict)
        assert completed.code == code, completed.err
        assert "\x1b" not in completed.err
        failure_lines = [
            line for line in completed.err.splitlines() if line.startswith("failed (")
        ]
        for line, (reference, number) in zip(
            failure_lines, expected.items(), strict=False
        ):
            assert line.startswith(f"failed ({number}): {reference}")
        assert failure_lines
        with (tmp_path / "s" / "failures.csv").open(newline="") as file:
            failures = list(csv.DictReader(file))
        expected_failures = {
            escape_invisible(reference): number for reference, number in expected.items()
        }
        assert {
            f["reference"]: int(f["exit_code"]) for f in failures
        } == expected_failures
        table = pp.read_sweep(tmp_path / "s")
        assert table["reference"].to_pylist() == good
        with (tmp_path / "s" / "sweep.csv").open(newline="") as file:
            failed_rows = list(csv.DictReader(file))
        assert [float(row["norms.mean"]) for row in failed_rows] == table[
            "norms.mean"
        ].to_pylist()
        assert len(failed_rows[0]) <= 40 < len(table.column_names)


def test_edited_files_are_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    references = ["alibi:16x2", "alibi:16x4", "./nowhere"]
    run(references[:1], folder)
    for name in ("sweep.csv", "failures.csv", "atlas.html"):
        run(references[:1], folder)  # what the sweep wrote itself is replaced
        (folder / name).write_text("my notes")
        with pytest.raises(OutputError, match=rf"{name}: changed since .* Move it away"):
            pp.sweep(references, out=folder, **QUICK).run()
        assert (folder / name).read_text() == "my notes"
        assert len(parts(folder)) == 1
        (folder / name).unlink()

    # So is what changes while the sweep is at work; what it found by then is kept.
    def change(_: int) -> None:
        (folder / "sweep.csv").write_text("mine")

    swept = pp.sweep(references, out=folder, **QUICK)
    with pytest.raises(OutputError, match=r"sweep\.csv: changed since"):
        swept.run(change)
    (folder / "sweep.csv").rename(tmp_path / "mine.csv")
    assert run(references, folder)["computed"] == 0
    assert (tmp_path / "mine.csv").read_text() == "mine"
    description = json.loads((folder / "sweep.json").read_text())
    assert set(description["written"]) == {"sweep.csv", "failures.csv", "atlas.html"}


def test_names_do_nothing_in_a_spreadsheet_or_a_terminal(tmp_path: Path) -> None:
    notes = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "a\x1b[2Jb\u202ec",
             "-1.5", "+2e3", "plain"]  # fmt: skip
    references = [
        {"reference": f"alibi:{k + 8}x2", "note": note} for k, note in enumerate(notes)
    ]
    references += [{"reference": "=1+1\x1b]0;x\x07.npy"}, {"reference": "@\u202enone#x"}]
    swept = pp.sweep(references, out=tmp_path / "s", jobs=1).run()
    assert swept.to_arrow()["user.note"].to_pylist() == notes
    for name in ("sweep.csv", "failures.csv"):
        text = (tmp_path / "s" / name).read_text(encoding="utf-8")
        assert text.replace("\n", "").isprintable()
    with (tmp_path / "s" / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["user.note"] for row in rows] == [
        "'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(1)", r"\t=1", r"\r=1",
        r"a\x1b[2Jb\u202ec", "-1.5", "+2e3", "plain",
    ]  # fmt: skip
    with (tmp_path / "s" / "failures.csv").open(newline="") as file:
        failed = [row["reference"] for row in csv.DictReader(file)]
    assert failed == [r"'=1+1\x1b]0;x\x07.npy", r"'@\u202enone#x"]
    # Numbers below zero are numbers.
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(12, 4)))
    pp.sweep(
        [{"reference": str(tmp_path / "a.npy"), "x": -2}], out=tmp_path / "n", **QUICK
    ).run()
    with (tmp_path / "n" / "sweep.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["user.x"] == "-2"


def test_a_full_disk_is_one_clear_error_wherever_it_strikes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    references = [f"rotary:{n}x8" for n in range(9, 18)]
    run(references, tmp_path / "s")
    parquet_before = (tmp_path / "s" / "sweep.parquet").read_bytes()
    largest = max(
        path.stat().st_size for path in (tmp_path / "s").iterdir() if path.is_file()
    )
    for room in range(1000, largest, 6000):
        with (
            limit_file_size(room),
            pytest.raises(OutputError, match=r"cannot be written .*Make room"),
        ):
            pp.sweep(references, out=tmp_path / "s", **QUICK).run()
        gc.collect()
        assert ignored == []
        assert (tmp_path / "s" / "sweep.parquet").read_bytes() == parquet_before
    assert not list((tmp_path / "s").rglob(".*"))


# What is not computed twice.


def run(references: Any, folder: Path, **options: Any) -> dict[str, Any]:
    swept = pp.sweep(references, out=folder, **{**QUICK, **options}).run()
    assert swept.about is not None
    return dict(swept.about["run"]) | dict(swept.about["counts"])


def test_a_sweep_goes_on_and_is_extended(tmp_path: Path) -> None:
    for seed in range(4):
        save(tmp_path / "c" / str(seed), seed)
    first = run([str(tmp_path / "c" / str(k)) for k in range(2)], tmp_path / "s")
    assert (first["computed"], first["rows"]) == (2, 2)
    complete = run(str(tmp_path / "c"), tmp_path / "s")
    assert (complete["computed"], complete["recorded"], complete["rows"]) == (2, 2, 4)
    # Others of the same options stay, after this run's.
    last = run(str(tmp_path / "c" / "3"), tmp_path / "s")
    assert (last["computed"], last["rows"]) == (0, 4)
    assert pp.read_sweep(tmp_path / "s")["reference"][0].as_py().endswith("3")
    # Other options are another sweep's, which comes back with them.
    assert run(str(tmp_path / "c" / "3"), tmp_path / "s", only="norms")["rows"] == 1
    assert run(str(tmp_path / "c"), tmp_path / "s")["computed"] == 0


def test_changed_inputs_are_computed_again(tmp_path: Path) -> None:
    place = tmp_path / "c"
    save(place)
    run(str(place), tmp_path / "s")
    save_file({"wpe.weight": np.eye(9, 4, dtype=np.float32)}, place / "model.safetensors")
    assert run(str(place), tmp_path / "s")["computed"] == 1
    assert pp.read_sweep(tmp_path / "s")["positions"].to_pylist() == [9]


def test_failures_are_retried_on_request_or_after_a_change(tmp_path: Path) -> None:
    place = str(tmp_path / "late")
    references = ["./nowhere", place]
    assert run(references, tmp_path / "s")["failures"] == 2
    assert run(references, tmp_path / "s")["computed"] == 0
    assert run(references, tmp_path / "s", retry_failed=True)["computed"] == 2
    save(tmp_path / "late")
    outcome = run(references, tmp_path / "s")
    assert (outcome["computed"], outcome["failures"], outcome["rows"]) == (1, 1, 1)


def test_a_damaged_part_is_computed_again(tmp_path: Path) -> None:
    for seed in range(3):
        save(tmp_path / "c" / str(seed), seed)
    run(str(tmp_path / "c"), tmp_path / "s")
    rows_before = without_times(pp.read_sweep(tmp_path / "s"))
    for path, content in zip(
        parts(tmp_path / "s"), ("", "{}", '{"rows": 3'), strict=True
    ):
        path.write_text(content)
    assert run(str(tmp_path / "c"), tmp_path / "s")["computed"] == 3
    assert without_times(pp.read_sweep(tmp_path / "s")) == rows_before


def test_a_part_with_a_value_of_another_kind_is_computed_again(tmp_path: Path) -> None:
    bad_values: tuple[tuple[str, Any], ...] = (
        ("positions", "many"), ("positions", 2**63), ("positions", True), ("pca.top3", [1]),
        ("pca.top3", float("inf")), ("pca.top3", 10**30), ("name", 7), ("seams.at", {}),
        ("findings", [1]), ("reference", None),
    )  # fmt: skip
    for seed in range(len(bad_values)):
        save(tmp_path / "c" / str(seed), seed)
    run(str(tmp_path / "c"), tmp_path / "s")
    rows_before = without_times(pp.read_sweep(tmp_path / "s"))
    for path, (column, value) in zip(parts(tmp_path / "s"), bad_values, strict=True):
        part = json.loads(path.read_text())
        part["rows"][0][column] = value
        path.write_text(json.dumps(part))
    assert run(str(tmp_path / "c"), tmp_path / "s")["computed"] == len(bad_values)
    assert without_times(pp.read_sweep(tmp_path / "s")) == rows_before


def test_two_sweeps_into_one_folder_do_not_damage_it(tmp_path: Path) -> None:
    for seed in range(12):
        save(tmp_path / "c" / str(seed), seed)
    failed: list[BaseException] = []

    def go() -> None:
        try:
            run(str(tmp_path / "c"), tmp_path / "s")
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            failed.append(error)

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    run(str(tmp_path / "c"), tmp_path / "alone")
    assert without_times(pp.read_sweep(tmp_path / "s")) == without_times(
        pp.read_sweep(tmp_path / "alone")
    )
    assert not list((tmp_path / "s").rglob(".*"))


def test_a_task_over_its_time_is_given_up(tmp_path: Path) -> None:
    reference = save(tmp_path / "c", rows=600)
    swept = pp.sweep([reference], out=tmp_path / "s", jobs=1, time_limit=0.005)
    (failure,) = swept.failures()
    assert failure["exit_code"] == 1
    assert "longer than the time limit" in failure["message"]


# What is refused.


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for occupied in ("mine", "file"):
        with pytest.raises(OutputError, match=r"Choose another \(`out`\)"):
            pp.sweep("alibi:8x2", out=tmp_path / occupied, jobs=1).run()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"only": ["nonsense"]}, "unknown analysis 'nonsense'"),
        ({"nulls": -1}, "`nulls=-1`"),
        ({"jobs": 0}, "`jobs=0`"),
        ({"requests": 0}, "requests 0"),
        ({"revisions": "*"}, "`revisions` lists those of one Hub repository"),
        ({"revisions": "*", "offline": True}, "`offline` forbids it"),
        ({"time_limit": 0}, "leaves nothing"),
        ({"rows": slice(0, 8, 2)}, "neighbours"),
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused(
    options: dict[str, Any], phrase: str
) -> None:
    with pytest.raises(UsageError, match=phrase):
        pp.sweep("sinusoidal:8x4", **options)


def test_an_empty_sweep_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to sweep"):
        pp.sweep([])
    for references, phrase in (
        ({"model": "gpt2"}, "it has no 'reference'"), ({"reference": ["a/b"]}, "no 'reference'"),
        ({"reference": "a/b", "x": {}}, "'x' is {}"),
        ({"reference": "a/b", "x": 10**30}, "at most 18 digits"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=phrase):
            pp.sweep([references])


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"joblib": None}
    monkeypatch.setattr("posprobe.errors.find_spec", lambda name: missing.get(name, name))
    with pytest.raises(
        MissingExtra, match=r"needs joblib, .* Run `uv sync --extra sweep`"
    ):
        pp.sweep("gpt2")


def test_a_folder_without_a_finished_sweep_says_so(tmp_path: Path) -> None:
    with pytest.raises(PosprobeError, match=r"contains no sweep\.parquet"):
        pp.read_sweep(tmp_path)
    (tmp_path / "sweep.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(PosprobeError, match="damaged"):
        pp.read_sweep(tmp_path)
    with pytest.raises(UnknownReference, match=r"contains no sweep\.parquet"):
        pp.read_sweep(tmp_path / "sweep.parquet")
    with pytest.raises(UnknownReference, match=r"contains no sweep\.parquet"):
        pp.read_sweep(tmp_path / ("n" * 300))
    with pytest.raises(UnknownReference, match=r"contains no fingerprints\.jsonl"):
        pp.nearest("sinusoidal:8x4", sweep=tmp_path / "sweep.parquet")
