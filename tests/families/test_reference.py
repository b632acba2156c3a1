"""References: how SOURCE[@REVISION][#TABLE] is split, and what is refused at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from posprobe.errors import PosprobeError, UnknownReference
from posprobe.families import load
from posprobe.reference import Reference, parse_reference

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "source", "revision", "table"),
    [
        ("gpt2", "gpt2", None, None),
        ("openai/whisper-tiny#decoder", "openai/whisper-tiny", None, "decoder"),
        ("timm/vit_base_patch16_224.augreg2_in21k_ft_in1k",
         "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k", None, None),
        ("gpt2@main", "gpt2", "main", None),
        ("gpt2@refs/pr/3", "gpt2", "refs/pr/3", None),
        ("openai/whisper-tiny@169d4a4#encoder", "openai/whisper-tiny", "169d4a4", "encoder"),
        ("gpt2#transformer.wpe.weight", "gpt2", None, "transformer.wpe.weight"),
        ("sample:all-minilm-l6-v2", "sample:all-minilm-l6-v2", None, None),
        ("sample:all-minilm-l6-v2#text", "sample:all-minilm-l6-v2", None, "text"),
        ("sinusoidal:512x768", "sinusoidal:512x768", None, None),
        ("sincos2d:14x14x768", "sincos2d:14x14x768", None, None),
    ],
)  # fmt: skip
def test_a_reference_has_a_source_a_revision_and_a_table(
    text: str, source: str, revision: str | None, table: str | None
) -> None:
    reference = parse_reference(text)
    assert reference == Reference(text, source, revision, table)
    assert not reference.is_path


def test_a_path_that_exists_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "a@b", "a#b", "a@b#c", "sample:x", "sinusoidal:512x768"):
        (tmp_path / name).mkdir()
        for text in (name, str(tmp_path / name)):
            assert parse_reference(text) == Reference(text, text)
            assert parse_reference(text).is_path
            picked = f"{text}#decoder"
            assert parse_reference(picked) == Reference(picked, text, None, "decoder")


def test_the_home_folder_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert parse_reference("~/model").is_path
    with pytest.raises(UnknownReference, match="no such file"):
        parse_reference("~/other")


def test_a_tilde_that_a_path_does_not_begin_with_is_part_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = np.eye(4, dtype=np.float32)
    np.save("~t.npy", values)
    (tmp_path / "~").mkdir()
    np.save("~/t.npy", 2 * values)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    np.testing.assert_array_equal(load("./~t.npy").values, values)
    np.testing.assert_array_equal(load("~t.npy").values, values)  # nobody is called t.npy
    np.testing.assert_array_equal(load("./~/t.npy").values, 2 * values)
    with pytest.raises(UnknownReference, match="no such file"):
        load("~/t.npy")


@pytest.mark.parametrize(
    "text",
    ["{}@main", "{}@main#decoder", "sample:all-minilm-l6-v2@main", "sinusoidal:512x768@main"],
)
def test_only_repositories_have_revisions(text: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownReference, match="only Hub repositories have revisions"):
        parse_reference(text.format(tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"), ("  ", "empty"), ("\n", "empty"),
        ("gpt2#", "nothing follows #"), ("gpt2@", "nothing follows @"),
        ("gpt2@#decoder", "nothing follows @"), ("gpt2@main#", "nothing follows #"),
        ("model.safetensors", "no such file"), ("runs/model.bin", "no such file"),
        ("pytorch_model.bin.index.json", "no such file"), ("table.npy#x", "no such file"),
        ("./model", "no such file"), ("/nowhere/at/all", "no such file"),
        ("a/b/c", "no such file"), ("~nobody-is-called-this/x", "no such file"),
        ("-x", "nor a Hub id"), ("a b", "nor a Hub id"), ("a/", "nor a Hub id"),
        ("gpt2\0", "nor a Hub id"), ("ü/ö", "nor a Hub id"), ("a" * 97, "nor a Hub id"),
        ("#decoder", "nor a Hub id"), ("@main", "nor a Hub id"), ("gpt2#a#b", "nor a Hub id"),
        ("x" * 5000, "nor a Hub id"),
        ("https://hub.example/a/b", "give its name"), ("http://x/a.npy#wpe", "give its name"),
    ],
)  # fmt: skip
def test_what_can_be_no_reference_is_refused_before_anything_is_asked(text: str, says: str) -> None:
    with pytest.raises(UnknownReference, match=says) as caught:
        parse_reference(text)
    assert caught.value.exit_code == 3


def test_something_unknown_before_a_colon_is_refused() -> None:
    with pytest.raises(UnknownReference, match="unknown formula 'hf'"):
        load("hf:gpt2")


def test_an_unknown_sample_lists_the_known_ones() -> None:
    with pytest.raises(UnknownReference, match="all-minilm-l6-v2"):
        load("sample:all-minilm")


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.text(max_size=30) | st.text("ab12./@#:~-_", max_size=20))
def test_any_text_is_a_reference_or_an_explained_failure(text: str) -> None:
    try:
        reference = parse_reference(text)
    except PosprobeError:
        return
    assert reference.text == text
    assert text.startswith(reference.source)
    if not reference.is_path:
        rest = text.removeprefix(reference.source)
        assert rest == (f"@{reference.revision}" if reference.revision else "") + (
            f"#{reference.table}" if reference.table else ""
        )
