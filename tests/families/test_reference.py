"""References: how SOURCE[@REVISION][#TABLE] is split, and what is refused at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st

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
        ("openai/whisper-tiny@169d4a4#encoder", "openai/whisper-tiny", "169d4a4", "encoder"),
        ("gpt2#transformer.wpe.weight", "gpt2", None, "transformer.wpe.weight"),
        ("sample:all-minilm-l6-v2#text", "sample:all-minilm-l6-v2", None, "text"),
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
    [
        "{}@main",
        "{}@main#decoder",
        "sample:all-minilm-l6-v2@main",
        "sinusoidal:512x768@main",
    ],
)
def test_only_repositories_have_revisions(text: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownReference, match="only Hub repositories have revisions"):
        parse_reference(text.format(tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("  ", "empty"), ("gpt2#", "nothing follows #"), ("gpt2@#decoder", "nothing follows @"),
        ("model.safetensors", "no such file"), ("table.npy#x", "no such file"),
        ("./model", "no such file"), ("a/b/c", "no such file"),
        ("~nobody-is-called-this/x", "no such file"), ("-x", "nor a Hub id"),
        ("gpt2\0", "nor a Hub id"), ("ü/ö", "nor a Hub id"), ("a" * 97, "nor a Hub id"),
        ("gpt2#a#b", "nor a Hub id"), ("x" * 5000, "nor a Hub id"),
        ("https://hub.example/a/b", "give its name"), ("http://x/a.npy#wpe", "give its name"),
    ],
)  # fmt: skip
def test_an_invalid_reference_is_refused_before_any_request(text: str, says: str) -> None:
    with pytest.raises(UnknownReference, match=says) as caught:
        parse_reference(text)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [("hf:gpt2", "unknown formula 'hf'"), ("sample:all-minilm", "all-minilm-l6-v2")],
)
def test_an_unknown_formula_or_sample_is_refused(text: str, says: str) -> None:
    with pytest.raises(UnknownReference, match=says):
        load(text)


@given(st.text(max_size=30) | st.text("ab12./@#:~-_", max_size=20))
def test_any_text_is_a_reference_or_an_explained_failure(text: str) -> None:
    try:
        reference = parse_reference(text)
    except PosprobeError:
        return
    assert reference.text == text
    assert text.startswith(reference.source)
    if not reference.is_path:
        suffix = text.removeprefix(reference.source)
        assert suffix == (f"@{reference.revision}" if reference.revision else "") + (
            f"#{reference.table}" if reference.table else ""
        )
