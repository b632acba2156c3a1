"""Watching positions while a model trains."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import posprobe as pp
from posprobe.callbacks import PositionCallback, record_positions, write_step_list
from posprobe.errors import UsageError

SIZES: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2,
}  # fmt: skip


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=40, n_positions=32
    )
    return transformers.GPT2LMHeadModel(config)


def tokens(count: int = 24, length: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, 40, (count, length), generator=generator)


def train(model: Any, callback: PositionCallback, folder: Path, steps: int) -> Any:
    dataset = [{"input_ids": row, "labels": row} for row in tokens()]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"), max_steps=steps, per_device_train_batch_size=4,
        report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", seed=0,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=dataset, callbacks=[callback]
    )
    trainer.train()
    return trainer


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "steps.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_saved_tables_are_those_of_the_model_at_each_step(tmp_path: Path) -> None:
    model = gpt2()
    at_start = model.transformer.wpe.weight.detach().numpy().copy()
    callback = PositionCallback(2, tmp_path / "positions", max_time_share=1e-9)
    train(model, callback, tmp_path, 5)
    records = callback.records
    assert [record.step for record in records] == [0, 2, 4, 5]
    first, last = (pp.load(str(records[k].reference)).values for k in (0, -1))
    np.testing.assert_array_equal(first, at_start)
    np.testing.assert_array_equal(last, model.transformer.wpe.weight.detach().numpy())
    assert not np.array_equal(first, last)
    assert [row["step"] for row in rows(tmp_path / "positions")] == ["0", "2", "4", "5"]


def test_nothing_is_measured_beyond_the_share_of_time(tmp_path: Path) -> None:
    callback = PositionCallback(1, tmp_path, max_time_share=1e-9)
    train(gpt2(), callback, tmp_path, 2)
    assert all(record.analysis is None for record in callback.records)


def test_a_record_has_the_answers_and_the_share_of_the_model(tmp_path: Path) -> None:
    model = gpt2().train()
    with torch.no_grad():
        model.transformer.wpe.weight.copy_(torch.tensor(pp.sinusoidal(32, 16).values))
    contexts = tokens(8)
    record = record_positions(model, 7, tmp_path, contexts=contexts)
    assert record.analysis is not None
    answers = {answer.question: answer.answer for answer in record.analysis.answers}
    assert answers["order"] == "yes"
    assert record.distance_share == pp.attention_budget(model, [contexts]).distance
    assert model.training


def test_rows_that_are_no_positions_are_left_out_as_in_the_checkpoint(
    tmp_path: Path,
) -> None:
    config = transformers.RobertaConfig(
        **SIZES, max_position_embeddings=34, pad_token_id=1
    )
    model = transformers.RobertaModel(config)
    record = record_positions(model, 0, tmp_path, analyse=False)
    assert len(pp.load(str(record.reference))) == 32


def test_a_model_without_a_table_needs_contexts(tmp_path: Path) -> None:
    model = transformers.LlamaModel(transformers.LlamaConfig(**SIZES))
    with pytest.raises(UsageError, match=r"no table of positions\. Give contexts"):
        record_positions(model, 0, tmp_path)
    record = record_positions(model, 0, tmp_path, contexts=tokens(8))
    assert record.reference is None
    assert record.distance_share is not None


def test_an_error_ends_the_watch_and_not_the_training(tmp_path: Path) -> None:
    blocked = tmp_path / "positions"
    blocked.write_text("a file where a folder is wanted")
    callback = PositionCallback(1, blocked)
    trainer = train(gpt2(), callback, tmp_path, 3)
    assert trainer.state.global_step == 3
    assert callback.records == []


@pytest.mark.parametrize(
    "arguments",
    [{"every": 0}, {"every": 2.5}, {"every": "5"}, {"max_time_share": -1},
     {"max_time_share": float("nan")}, {"max_time_share": 1.5}, {"max_time_share": "1"},
     {"folder": 5}, {"folder": None}],
)  # fmt: skip
def test_settings_of_the_callback_that_cannot_be_are_refused(
    arguments: dict[str, Any],
) -> None:
    with pytest.raises(UsageError, match="choose a"):
        PositionCallback(**arguments)


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        (5, "int 5: arrays of token ids"),
        ("abc", "str 'a': arrays of token ids"),
        (np.array([["a", "b"]]), "ndarray .*: arrays of token ids"),
        (tokens().double() / 40, "integer token ids"),
        (tokens()[0], "integer token ids"),
        (torch.zeros(0, 32, dtype=torch.int64), "at least one of them"),
        ([], "the inputs are empty"),
        (tokens(length=8), "too short to tell distances apart"),
        (tokens(count=1), "one context"),
        ([tokens(length=32), tokens(length=30)], "as long as each other"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contexts_are_refused_when_the_callback_is_made(
    contexts: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        PositionCallback(contexts=contexts)


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        (tokens() + 40, "token ids run from"),
        (tokens(length=40), "longer than the 32 positions"),
        (torch.nn.functional.pad(tokens(length=28), (0, 4), value=2), "padding"),
    ],
    ids=["vocabulary", "length", "padding"],
)
def test_contexts_that_the_model_cannot_take_are_refused_before_the_first_step(
    contexts: Any, message: str, tmp_path: Path
) -> None:
    model = gpt2()
    model.config.pad_token_id = 2
    weights = model.transformer.wpe.weight.detach().clone()
    callback = PositionCallback(1, tmp_path / "positions", contexts=contexts)
    with pytest.raises(UsageError, match=message):
        train(model, callback, tmp_path, 2)
    assert torch.equal(model.transformer.wpe.weight, weights)
    assert not (tmp_path / "positions").exists()


def test_a_resumed_training_keeps_the_steps_before_it(tmp_path: Path) -> None:
    records = [
        record_positions(gpt2(), step, tmp_path, analyse=False) for step in (0, 2, 4)
    ]
    write_step_list(records[:2], tmp_path)
    write_step_list(records[2:], tmp_path)
    assert [row["step"] for row in rows(tmp_path)] == ["0", "2", "4"]
    write_step_list(records[:1], tmp_path)
    assert [row["step"] for row in rows(tmp_path)] == ["0"]


def test_a_model_without_a_table_is_watched_by_its_attention(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    folder = tmp_path / "positions"
    callback = PositionCallback(1, folder, contexts=tokens(8), max_time_share=1.0)
    train(model, callback, tmp_path, 3)
    assert [record.step for record in callback.records] == [0, 1, 2, 3]
    assert {record.reference for record in callback.records} == {None}
    assert not folder.exists()


def test_series_has_the_numbers_of_the_list(tmp_path: Path) -> None:
    callback = PositionCallback(2, tmp_path / "positions", max_time_share=1e-9)
    train(gpt2(), callback, tmp_path, 4)
    listed = [
        {"reference": record.reference, "step": record.step, "loss": loss, "note": "text"}
        for record, loss in zip(callback.records, (3.5, 2.5, 1.5), strict=True)
    ]
    sweep = pp.sweep(listed, only=["norms"], jobs=1, out=tmp_path / "sweep").run()
    (run,) = pp.series(sweep.folder)
    assert run.numbers["user.loss"] == (3.5, 2.5, 1.5)
    assert "user.note" not in run.numbers
    assert run.drawn()["numbers"]["loss"]["values"] == (3.5, 2.5, 1.5)
