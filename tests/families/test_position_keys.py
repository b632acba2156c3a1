"""Keys of configurations: each is read, decided, or named in an answer that cannot tell."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_checkpoints import model_folder

import posprobe as pp
from posprobe.families import inspect
from posprobe.families.configurations import ConfigSection
from posprobe.families.position_keys import list_unread_keys, load_decisions
from posprobe.schemes import Rotary
from posprobe.studies.schemes import analyze_schemes

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
    "max_position_embeddings": 2048, "rope_theta": 10000.0,
}  # fmt: skip
NOMIC = {
    "model_type": "nomic_bert", "n_embd": 64, "n_head": 4, "n_positions": 8192,
    "max_trained_positions": 2048, "rotary_emb_fraction": 1.0, "rotary_emb_base": 1000,
    "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
}  # fmt: skip


def document(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    schemes = pp.load_schemes(model_folder(folder, {}, **config))
    return analyze_schemes(*schemes).to_dict()


def answers_of(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {answer["question"]: answer for answer in content["verdict"]["answers"]}


def rotary(folder: Path, config: dict[str, Any]) -> Rotary:
    (scheme,) = pp.load_schemes(model_folder(folder, {}, **config))
    assert isinstance(scheme, Rotary)
    return scheme


def test_the_dynamic_rule_of_nomic_begins_at_its_training_length(tmp_path: Path) -> None:
    config = NOMIC | {"rotary_scaling_factor": 2}
    scheme = rotary(tmp_path / "m", config)
    assert (scheme.training_length, scheme.max_positions) == (2048, 8192)
    unscaled = 1000.0 ** -(np.arange(0, 16, 2) / 16)
    for length in (1, 2048):
        np.testing.assert_allclose(scheme.frequencies(length), unscaled)
    # NomicBertDynamicNTKRotaryEmbedding: the base grows with the length beyond 2048.
    base = 1000 * (2 * 8192 / 2048 - (2 - 1)) ** (16 / 14)
    expected = base ** -(np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(scheme.frequencies(8192), expected)


def test_nomic_without_a_factor_is_not_stretched(tmp_path: Path) -> None:
    scheme = rotary(tmp_path / "m", NOMIC)
    assert (scheme.rule, scheme.training_length, scheme.unread_keys) == (
        "default",
        2048,
        (),
    )


def test_nomic_states_pairs_of_neighbours(tmp_path: Path) -> None:
    config = NOMIC | {"rotary_emb_interleaved": True}
    scheme = rotary(tmp_path / "m", config)
    assert scheme.interleaved


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("rope_ratio", 500, "rope_ratio"),
        ("rotary_emb_scale_base", 512, "rotary_emb_scale_base"),
        (
            "rope_parameters",
            {"rope_type": "default", "warp": 2.0},
            "rope_parameters.warp",
        ),
        ("use_dynamic_ntk", True, "use_dynamic_ntk"),
        ("compress_rope_theta", 160000.0, "compress_rope_theta"),
    ],
)
def test_a_key_that_no_rule_reads_is_named_and_no_answer_is_exact(
    key: str, value: object, named: str, tmp_path: Path
) -> None:
    from posprobe.report.pages.schemes import scheme_page

    content = document(tmp_path / "m", LLAMA | {key: value})
    answers = answers_of(content)
    for question in ("rotary_turns", "rotary_positive", "rotary_stretched"):
        assert answers[question]["answer"] == "cannot tell"
        assert named in answers[question]["sentence"]
    page = scheme_page(content)
    assert "exact" not in page.key
    assert named in page.key
    assert named in page.headline


@pytest.mark.parametrize("off_value", [None, False, 0, -1, {}, []])
def test_a_key_that_is_turned_off_changes_nothing(
    off_value: object, tmp_path: Path
) -> None:
    from posprobe.report.pages.schemes import scheme_page

    content = document(tmp_path / "m", LLAMA | {"use_rope_warp": off_value})
    assert answers_of(content)["rotary_turns"]["answer"] != "cannot tell"
    assert scheme_page(content).key == "From the configuration: exact."


def test_unread_keys_of_alibi_are_named_in_its_answers(tmp_path: Path) -> None:
    config = {"model_type": "mpt", "n_heads": 4, "max_seq_len": 64}
    attention = {"alibi": True, "alibi_bias_max": 8, "alibi_warp": 3}
    content = document(tmp_path / "m", config | {"attn_config": attention})
    assert {answer["answer"] for answer in answers_of(content).values()} == {
        "cannot tell"
    }
    assert "alibi_warp" in answers_of(content)["alibi_near"]["sentence"]


def test_inspect_names_a_key_that_is_not_read(tmp_path: Path) -> None:
    (record,) = inspect(model_folder(tmp_path / "m", {}, **LLAMA, rope_ratio=8))
    assert record["parameters"]["unread_keys"] == ("rope_ratio",)


def test_keys_of_no_consequence_are_not_named() -> None:
    config = {"routed_scaling_factor": 2.5, "logits_scaling": 8.0, "hidden_size": 3}
    assert list_unread_keys(ConfigSection("", config)) == ()


def test_every_key_that_is_said_to_be_read_stands_in_the_code() -> None:
    families = ROOT / "posprobe" / "families"
    paths = [*families.glob("*.py"), *families.glob("*.toml")]
    sources = "".join(
        path.read_text("utf-8") for path in paths if path.stem != "position_keys"
    )
    names = set(re.findall(r'"(\w+)"', sources)) | set(
        re.findall(r"^(\w+) = ", sources, re.MULTILINE)
    )
    read = {key for key, decision in load_decisions().items() if decision == "read"}
    assert read <= names


@pytest.mark.slow
def test_every_key_of_the_installed_transformers_has_a_decision() -> None:
    keys = coverage_module()
    collected = keys.collect_keys()
    assert len(collected) > 50
    assert keys.find_undecided(collected) == []
    page = (ROOT / "docs" / "coverage.md").read_text("utf-8")
    assert [row for row in keys.key_rows(collected) if row not in page] == []


def test_a_new_key_of_a_configuration_class_has_no_decision() -> None:
    keys = coverage_module()

    class NewConfig:
        __module__ = "transformers.models.new"
        hidden_size: int = 8
        rope_wobble: float = 1.0

        def __init__(self, window_wobble: int = 3) -> None:
            self.window_wobble = window_wobble

    names = keys.list_class_keys(NewConfig)
    assert sorted(names) == ["rope_wobble", "window_wobble"]
    assert keys.find_undecided({name: [] for name in names}) == sorted(names)


def coverage_module() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import position_keys
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return position_keys
