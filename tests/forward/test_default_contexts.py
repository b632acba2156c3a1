"""Contexts of a run for which none are given: in this order, and one for all measurements."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from made_models import bert, gpt2, vit
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

import posprobe as pp
from posprobe import forward
from posprobe.errors import UsageError
from posprobe.forward.default_contexts import (
    documentation_windows,
    photograph_crops,
    read_documentation,
)
from posprobe.measurements.model.contexts import (
    MAX_SAMPLED_CONTEXTS,
    Contexts,
    read_context_source,
)

N_BYTES = 256
LENGTH = 32


def tokenizer(*, with_special: bool = False) -> Any:
    """Return a tokenizer of single bytes, with a token before and behind each text or none."""
    vocabulary = {letter: k for k, letter in enumerate(sorted(ByteLevel.alphabet()))}
    letters = Tokenizer(BPE({**vocabulary, "<s>": N_BYTES, "</s>": N_BYTES + 1}, []))
    letters.pre_tokenizer = ByteLevel(add_prefix_space=False)
    letters.decoder = ByteLevelDecoder()
    if with_special:
        letters.post_processor = TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", N_BYTES), ("</s>", N_BYTES + 1)]
        )
    kind: Any = transformers.PreTrainedTokenizerFast
    return kind(tokenizer_object=letters)


def text_of(window: Any) -> str:
    """Return the text of bytes; a letter of several may be cut at the end."""
    text: str = tokenizer().decode(window, clean_up_tokenization_spaces=False)
    return text.rstrip("\N{REPLACEMENT CHARACTER}")


def save(model: Any, folder: Path, *beside: Any) -> str:
    for part in (model, *beside):
        part.save_pretrained(folder)
    return str(folder)


def language_model() -> Any:
    return gpt2(vocab_size=N_BYTES + 2, n_positions=LENGTH)


def masked_model() -> Any:
    config = transformers.BertConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=16,
        vocab_size=N_BYTES + 2, max_position_embeddings=LENGTH,
    )  # fmt: skip
    return transformers.BertModel(config).train(mode=False)


def origin(reference: str, model: Any, contexts: Contexts | None = None) -> Any:
    return read_context_source(
        reference, model, contexts or Contexts(count=6), offline=True
    )


@pytest.mark.parametrize("build", [language_model, masked_model])
def test_documentation_is_read_where_a_tokenizer_lies_beside(
    build: Any, tmp_path: Path
) -> None:
    model = build()
    reference = save(model, tmp_path, tokenizer())
    source = origin(reference, model)
    assert source.origin == "documentation"
    assert "Python's documentation" in source.description
    assert source.windows.shape == (6, LENGTH)
    assert all(text_of(window) in read_documentation() for window in source.windows)


def test_random_tokens_can_be_asked_for_beside_a_tokenizer(tmp_path: Path) -> None:
    model = language_model()
    reference = save(model, tmp_path, tokenizer())
    source = origin(reference, model, Contexts(count=6, tokens="random"))
    assert (source.origin, source.windows) == ("random", None)


def test_a_language_model_without_tokenizer_is_sampled_and_others_are_not(
    tmp_path: Path,
) -> None:
    for build, expected in ((language_model, "sampled"), (masked_model, "random")):
        model = build()
        reference = save(model, tmp_path / expected)
        assert origin(reference, model).origin == expected


@pytest.mark.parametrize(
    ("build", "expected"), [(language_model, "sampled"), (masked_model, "random")]
)
def test_a_damaged_tokenizer_is_left_out_with_a_warning(
    build: Any, expected: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = build()
    reference = save(model, tmp_path, tokenizer())
    (tmp_path / "tokenizer.json").write_text("{")
    with caplog.at_level(logging.WARNING, "posprobe"):
        assert origin(reference, model).origin == expected
    assert "No text is used." in caplog.text
    assert str(tmp_path) in caplog.text


def test_a_tokenizer_of_another_model_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = bert()
    reference = save(model, tmp_path, tokenizer())
    with caplog.at_level(logging.WARNING, "posprobe"):
        assert origin(reference, model).origin == "random"
    assert "No text is used." in caplog.text


def test_windows_of_documentation_are_spread_over_it_and_begin_at_words() -> None:
    text = read_documentation()
    windows = documentation_windows(tokenizer(), 40, 5)
    places = [text.index(text_of(window)) for window in windows]
    assert places == sorted(places)
    assert places[-1] - places[0] > 0.9 * len(text)
    assert all(text[place - 1] == " " for place in places)


def test_special_tokens_stand_around_windows_of_documentation() -> None:
    windows = documentation_windows(tokenizer(with_special=True), 40, 5)
    assert windows.shape == (5, 40)
    assert set(windows[:, 0]) == {N_BYTES}
    assert set(windows[:, -1]) == {N_BYTES + 1}
    assert windows[:, 1:-1].max() < N_BYTES


def test_documentation_shorter_than_a_context_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "posprobe.forward.default_contexts.read_documentation", lambda: "a b " * 30
    )
    with pytest.raises(UsageError, match="too short for contexts of 4096 tokens"):
        documentation_windows(tokenizer(), 4096, 2)


def test_contexts_are_sampled_once_for_all_measurements_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = save(language_model(), tmp_path)
    sample = forward.sampled_tokens
    calls: list[int] = []

    def count_calls(model: Any, length: int, count: int, **options: Any) -> Any:
        calls.append(count)
        return sample(model, length, count, **options)

    monkeypatch.setattr(forward, "sampled_tokens", count_calls)
    seen: dict[str, list[Any]] = {}
    for key in ("states_and_budget", "attend"):
        function = getattr(forward, key)

        def keep(
            model: Any, batches: Any, *, function: Any = function, key: str = key,
            **options: Any,
        ) -> Any:  # fmt: skip
            seen[key] = list(batches)
            return function(model, iter(seen[key]), **options)

        monkeypatch.setattr(forward, key, keep)
    analysis = pp.analyze_model(
        reference, Contexts(count=64), only=("states", "attention_budget", "attention"),
        nulls=0, device="cpu", offline=True,
    )  # fmt: skip
    assert analysis.missing == {}
    assert calls == [MAX_SAMPLED_CONTEXTS]
    assert analysis.contexts["kind"] == "contexts that the model itself generates"
    assert analysis.to_dict()["contexts"]["used"] == MAX_SAMPLED_CONTEXTS
    budget, attention = (
        np.concatenate(seen[key]) for key in ("states_and_budget", "attend")
    )
    np.testing.assert_array_equal(budget, attention)


def test_photographs_are_cut_where_a_preprocessor_lies_beside(tmp_path: Path) -> None:
    model = vit()
    size = {"height": 14, "width": 21}
    reference = save(model, tmp_path, transformers.ViTImageProcessor(size=size))
    source = origin(reference, model)
    assert (source.origin, source.description) == (
        "photographs",
        "crops of two photographs",
    )
    batches = list(photograph_crops(source.preprocess, 5, seed=3, batch_size=2))
    assert [batch.shape for batch in batches] == [(2, 3, 14, 21)] * 2 + [(1, 3, 14, 21)]
    crops = np.concatenate(batches)
    # They differ, and are the same with the same seed.
    assert len({crop.tobytes() for crop in crops}) == 5
    (again,) = photograph_crops(source.preprocess, 5, seed=3, batch_size=5)
    np.testing.assert_array_equal(crops, again)


def test_random_pixels_stand_in_without_a_sound_preprocessor(tmp_path: Path) -> None:
    model = vit()
    assert origin(save(model, tmp_path / "none"), model).origin == "random"
    size = {"height": 21, "width": 21}
    processor = transformers.ViTImageProcessor(size=size)
    # Its pictures are larger than the model's.
    reference = save(model, tmp_path / "other", processor)
    assert origin(reference, model).origin == "random"
    settings = tmp_path / "other/preprocessor_config.json"
    settings.write_text(json.dumps({"image_processor_type": "Nothing"}))
    assert origin(reference, model).origin == "random"
