"""Places of an input: planted weights are found, and interventions move what they should."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_models import minilm
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.models.places import Places
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.forward.place_embeddings import Embedder
from posprobe.forward.pooling import EmbeddingRecipe, frame_text, read_recipe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

#: Weights of the eight slots that the planted model has.
PLANTED = np.array([2.0, 1.0, 0.7, 0.6, 0.5, 0.9, 1.1, 1.2])
SLOT_TOKENS = 4
VOCABULARY = 60


@dataclass
class Output:
    last_hidden_state: Any


class WeightedSum(torch.nn.Module):  # type: ignore[misc, name-defined]
    """States are token vectors times a weight of their place: from a table, or from a buffer."""

    def __init__(self, weights: NDArray[np.float64], *, from_table: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = transformers.BertConfig(
            vocab_size=VOCABULARY, max_position_embeddings=len(weights)
        )
        self.tokens = torch.nn.Embedding(VOCABULARY, 64)
        self.position_embeddings = torch.nn.Embedding(len(weights), 1)
        planted = torch.as_tensor(weights, dtype=torch.float32)[:, None]
        rows = planted if from_table else torch.ones_like(planted)
        self.position_embeddings.weight.data[:] = rows
        self.register_buffer("place_weights", torch.ones_like(planted))
        if not from_table:
            self.place_weights[:] = planted

    def forward(self, input_ids: Any, **_: Any) -> Output:
        n = input_ids.shape[1]
        rows = self.position_embeddings(torch.arange(n)) * self.place_weights[:n]
        return Output(self.tokens(input_ids) * rows)


def random_contexts(count: int = 64, length: int = 16, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(1, VOCABULARY, (count, length))


def measure_planted(weights: NDArray[np.float64], *, from_table: bool) -> Places:
    model = WeightedSum(np.repeat(weights, SLOT_TOKENS), from_table=from_table)
    tokens = len(weights) * SLOT_TOKENS
    return pp.places(model, random_contexts(), lengths=[tokens], special_tokens=([], []))


@pytest.mark.parametrize("from_table", [True, False])
def test_planted_weights_of_places_are_found(from_table: bool) -> None:
    found = measure_planted(PLANTED, from_table=from_table).full_length
    np.testing.assert_allclose(found.weights, PLANTED / PLANTED.mean(), atol=0.02)
    assert found.p <= 0.01
    assert found.r2 == pytest.approx(1, abs=1e-6)


def test_preference_of_position_rows_moves_when_they_are_reversed() -> None:
    found = measure_planted(PLANTED, from_table=True).full_length
    assert found.reversed is not None
    np.testing.assert_allclose(found.reversed, found.weights[::-1], atol=1e-6)
    assert found.caused == pytest.approx(1, abs=1e-6)
    assert found.averaged is not None
    np.testing.assert_allclose(found.averaged, 1, atol=1e-6)


def test_preference_of_places_stays_when_position_rows_are_reversed() -> None:
    found = measure_planted(PLANTED, from_table=False).full_length
    assert found.reversed is not None
    np.testing.assert_allclose(found.reversed, found.weights, atol=1e-6)
    assert found.caused == pytest.approx(0, abs=1e-6)
    assert found.caused_p is not None
    assert found.caused_p > 0.05


def test_table_is_restored_after_interventions() -> None:
    model = WeightedSum(np.repeat(PLANTED, SLOT_TOKENS), from_table=True)
    before = model.position_embeddings.weight.detach().clone()
    pp.places(model, random_contexts(), lengths=[32], special_tokens=([], []))
    assert torch.equal(model.position_embeddings.weight, before)


def tiny_bert(**options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        **options,
    )
    return transformers.BertModel(config, add_pooling_layer=False).eval()


def test_encoder_without_positions_weighs_all_places_alike() -> None:
    model = tiny_bert()
    model.embeddings.position_embeddings.weight.data.zero_()
    for length in pp.places(model, random_contexts()).lengths:
        np.testing.assert_allclose(length.weights, 1, atol=1e-3)


def test_causal_window_limits_influence_and_reach() -> None:
    torch.manual_seed(0)
    window, layers = 4, 2
    config = transformers.MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        sliding_window=window,
    )
    model = transformers.MistralForCausalLM(config).eval()
    found = pp.places(model, random_contexts(24, 64), lengths=[64]).full_length
    # A query sees `window` keys with its own, so each layer adds one less.
    seen = layers * (window - 1) + 1
    slots = -(-seen // 8)
    assert not found.weights[:-slots].any()
    assert found.reach is not None
    assert 0 < found.reach <= seen


def test_last_token_alone_gives_a_reach_below_one_token() -> None:
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        sliding_window=1,
    )
    model = transformers.MistralForCausalLM(config).eval()
    found = pp.places(model, random_contexts(24, 64), lengths=[64]).full_length
    assert found.reach == pytest.approx(0.9)


def test_reversed_position_ids_are_used_without_a_table() -> None:
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        pad_token_id=0,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.ModernBertModel(config).eval()
    result = pp.places(model, random_contexts(), lengths=[64])
    assert result.reversed_positions == "rotary"
    assert (
        result.full_length.reversed is not None
        or result.full_length.measure == "influence"
    )


def test_special_tokens_that_all_contexts_share_stay_at_the_ends() -> None:
    model = WeightedSum(np.repeat(PLANTED, 4), from_table=True)
    seen: list[Any] = []
    model.register_forward_pre_hook(lambda _, __, kw: seen.append(kw), with_kwargs=True)
    contexts = random_contexts()
    contexts[:, 0], contexts[:, -1] = 58, 59
    pp.places(model, contexts, lengths=[32])
    runs = [options["input_ids"] for options in seen]
    assert all((run[:, 0] == 58).all() and (run[:, -1] == 59).all() for run in runs)
    assert not any((run[:, 1:-1] == 58).all() for run in runs)


def test_cells_of_images_are_replaced_for_a_vision_model() -> None:
    model = pp.load_model("sample:digits-vit", device="cpu")
    images = np.concatenate(list(pp.random_images((1, 8, 8), count=12)))
    result = pp.places(model, images)
    assert result.output == "embedding"
    assert result.grid == (4, 4)
    assert result.full_length.weights.mean() == pytest.approx(1)
    assert result.full_length.first_over_last is None


def test_too_few_contexts_are_refused() -> None:
    with pytest.raises(UsageError, match="16 chunks"):
        pp.places(tiny_bert(), random_contexts(2, 8), lengths=[64])


@pytest.mark.parametrize("start", [[50], [50, 7, 8], []])
def test_what_stands_before_a_text_is_taken_off_with_or_without_its_prompt(
    start: list[int],
) -> None:
    embedder = Embedder(None, EmbeddingRecipe("mean"), "made", (50, 7, 8), (51,))
    texts = random_contexts(4, 6) % 40
    contexts = np.array([[*start, *text, 51] for text in texts])
    np.testing.assert_array_equal(embedder.strip_special_tokens(contexts), texts)
    shortest = np.array([[*start[:1], 5]] * 4)
    np.testing.assert_array_equal(embedder.strip_special_tokens(shortest), [[5]] * 4)


def test_arguments_that_cannot_be_measured_are_refused() -> None:
    model = WeightedSum(np.ones(32), from_table=True)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"pooling": "meen"}, "pooling 'meen' is unknown. Choose one of mean, cls, last"),
        ({"lengths": [32, 5000]}, "documents of 8 chunks have 8 to 32 tokens"),
        ({"lengths": 5}, "documents of 8 chunks have 8 to 32 tokens"),
        ({"lengths": [0]}, "choose numbers of tokens"),
        ({"lengths": [16.5]}, "choose numbers of tokens"),
        ({"contexts": random_contexts() + 0.5}, "integer token ids"),
    ]
    for arguments, message in refusals:
        contexts = arguments.pop("contexts", random_contexts())
        with pytest.raises(UsageError) as raised:
            pp.places(model, contexts, **arguments)
        assert message in str(raised.value)
    model.config.pad_token_id = 0
    padded = random_contexts()
    padded[5, -6:] = 0
    with pytest.raises(UsageError, match="padding"):
        pp.places(model, padded)
    with pytest.raises(UsageError, match="a model is expected"):
        pp.places("sample:pydoc-llama", random_contexts())


def test_lengths_may_be_an_array_or_a_number() -> None:
    model = WeightedSum(np.ones(32), from_table=True)
    by_array = pp.places(model, random_contexts(), lengths=list(np.array([16, 32])))
    assert [length.tokens for length in by_array.lengths] == [16, 32]
    assert pp.places(model, random_contexts(), lengths=32).full_length.tokens == 32


def test_an_end_whose_weight_is_negative_has_no_ratio() -> None:
    planted = np.array([3.0, 2.0, 1.5, 1.0, 0.8, 0.5, -0.4, -0.4])
    full_length = measure_planted(planted, from_table=False).full_length
    assert full_length.weights[-1] < 0
    assert full_length.first_over_last is None
    assert "first_over_last" in full_length.undefined


def test_weights_whose_mean_is_near_0_give_way_to_influences() -> None:
    planted = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -0.98])
    full_length = measure_planted(planted, from_table=False).full_length
    assert full_length.measure == "influence"
    assert (full_length.weights > 0).all()


def test_contexts_of_a_language_model_too_short_for_slots_are_refused() -> None:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=32
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with pytest.raises(UsageError, match="too short to tell 8 places apart"):
        pp.places(model, random_contexts(8, 6))


def write_recipe(folder: Path, pooling: Any, modules: Any = None, **prompts: Any) -> None:
    modules = modules or [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))


def test_recipe_is_read_from_the_folder(tmp_path: Path) -> None:
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write_recipe(tmp_path / "model", pooling, **prompts)
    recipe = read_recipe(str(tmp_path / "model"))
    assert recipe == EmbeddingRecipe("cls", prompt="query: ")


def test_folder_without_modules_has_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert read_recipe(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("pooling", "modules", "error", "message"),
    [
        ({"pooling_mode_max_tokens": True}, None, UsageError, "pooling_mode_max_tokens"),
        ([], None, InvalidCheckpoint, "1_Pooling/config.json"),
        (
            {"pooling_mode_mean_tokens": True},
            [{"path": ""}, {"type": "models.Dense", "path": "2_Dense"}],
            UsageError,
            "Dense",
        ),
        (
            {"pooling_mode_mean_tokens": True},
            [{"path": ""}, {"type": "models.Pooling", "path": "../.."}],
            InvalidCheckpoint,
            "modules.json",
        ),
    ],
)
def test_unsupported_recipe_is_refused_by_name(
    tmp_path: Path, pooling: Any, modules: Any, error: type[Exception], message: str
) -> None:
    write_recipe(tmp_path / "model", pooling, modules)
    with pytest.raises(error, match=message):
        read_recipe(str(tmp_path / "model"))


def test_document_of_a_run_has_the_contract(tmp_path: Path) -> None:
    tiny_bert().save_pretrained(tmp_path / "bert")
    contexts = pp.Contexts(count=32, length=16)
    analysis = pp.analyze_model(str(tmp_path / "bert"), contexts, only=("places",))
    block = analysis.to_dict()["places"]
    assert (block["output"], block["pooling"]) == ("embedding", "mean")
    expected = {
        "tokens", "slots", "weights", "error", "p", "r2", "reach", "first_over_last",
        "caused",
    }  # fmt: skip
    for length in block["lengths"]:
        assert expected <= length.keys()
        assert len(length["weights"]) == len(length["error"]) == length["slots"] == 8
        nulls = {key for key in expected if length[key] is None}
        assert nulls <= length["undefined"].keys()
    assert any("the mean is assumed" in note for note in analysis.notes)


def test_chosen_pooling_is_used_without_a_note(tmp_path: Path) -> None:
    tiny_bert().save_pretrained(tmp_path / "bert")
    contexts = pp.Contexts(count=32, length=16)
    analysis = pp.analyze_model(
        str(tmp_path / "bert"), contexts, only=("places",), pooling="cls"
    )
    assert analysis.to_dict()["places"]["pooling"] == "cls"
    assert not analysis.notes


def test_interruption_keeps_the_lengths_that_were_measured() -> None:
    model = tiny_bert()

    def interrupt(_: Any, __: Any, options: Any) -> None:
        if options["input_ids"].shape[1] == 64:
            raise KeyboardInterrupt

    with model.register_forward_pre_hook(interrupt, with_kwargs=True):
        result = pp.places(model, random_contexts())
    assert [length.tokens for length in result.lengths] == [16, 32]
    assert result.stopped
    with (
        model.register_forward_pre_hook(interrupt, with_kwargs=True),
        pytest.raises(KeyboardInterrupt),
    ):
        pp.places(model, random_contexts(), lengths=[64])


def test_squares_measured_before_an_interruption_are_kept() -> None:
    model = WeightedSum(np.repeat(PLANTED, SLOT_TOKENS), from_table=True)
    n_documents = 0

    def interrupt(_: Any, __: Any, options: Any) -> None:
        nonlocal n_documents
        n_documents += options["input_ids"].shape[1] == 32
        if n_documents > 16:
            raise KeyboardInterrupt

    model.register_forward_pre_hook(interrupt, with_kwargs=True)
    result = pp.places(model, random_contexts(), lengths=[32], special_tokens=([], []))
    assert result.stopped
    assert result.full_length.documents % 8 == 0
    assert 16 <= result.full_length.documents < 64


def python_text() -> str:
    """Return Python's documentation."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key] for key in sorted(topics))


def library_text() -> str:
    """Return the source of some modules of Python's library."""
    import argparse
    import inspect
    import logging
    import typing
    import unittest.mock

    modules = (argparse, logging, typing, unittest.mock)
    return "\n".join(map(inspect.getsource, modules))


@pytest.fixture(scope="module")
def minilm_places() -> list[Places]:
    """Return the places of MiniLM on two texts, each with two seeds."""
    folder = str(minilm())
    model: Any = pp.load_model(folder, device="cpu")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    frame = frame_text(tokenizer)
    results = []
    for text in (python_text(), library_text()):
        ids = np.array(
            tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        )
        contexts = ids[: len(ids) // 48 * 48].reshape(-1, 48)
        results += [
            pp.places(model, contexts, lengths=[66], special_tokens=frame, seed=seed)
            for seed in (0, 1)
        ]
    return results


def test_minilm_pools_as_its_folder_says_and_prefers_the_start(
    minilm_places: list[Places],
) -> None:
    for result in minilm_places:
        assert result.pooling == "mean"
        length = result.full_length
        assert length.p <= 0.01
        assert length.weights.argmax() == 0
        assert length.caused is not None
        assert length.caused > 0.5


def test_texts_and_seeds_agree_within_intervals_on_minilm(
    minilm_places: list[Places],
) -> None:
    lengths = [result.full_length for result in minilm_places]
    for i, a in enumerate(lengths):
        for b in lengths[:i]:
            # Eight squares give an error with seven degrees of freedom, and there are 48 pairs.
            limit = 4.5 * np.hypot(a.error, b.error)
            assert (np.abs(a.weights - b.weights) <= limit).all()
