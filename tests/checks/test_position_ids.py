"""Position ids of a prompt as layers receive them, and where two records differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
import torch
import transformers

import posprobe as pp
from posprobe.analyses.models.positions import PositionIds
from posprobe.errors import UsageError

COMMON: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": 0,
}  # fmt: skip
TOKENS = torch.arange(4, 16)[None]


def record(family: str, ids: Any = None, **settings: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(**COMMON, **settings)
    model = getattr(transformers, f"{family}Model")._from_config(config)
    options = {} if ids is None else {"position_ids": torch.as_tensor(ids)}
    return pp.positions_of(model, {"input_ids": TOKENS, **options})


def test_ids_are_recorded_for_each_layer() -> None:
    positions = record("Llama")
    assert positions.layers == (0, 1)
    assert positions.ids.tolist() == [[list(range(12))]] * 2


@pytest.mark.parametrize(
    ("ids", "cause", "token"),
    [
        ([*range(1, 13)], "ids_offset", 0),
        ([*range(8), *range(4)], "ids_restarted", 8),
        ([*range(8), 9, 9, 10, 11], "ids_differ", 8),
    ],
)
def test_first_other_token_is_named(ids: list[int], cause: str, token: int) -> None:
    result = pp.check(record("Llama"), record("Llama", [ids]))
    assert result.exit_code == 6
    (finding,) = result.causes
    assert (finding.cause, finding.more["token"]) == (cause, token)
    assert list(finding.more["layers"]) == [0, 1]
    # Ids that are all later by one number leave offsets as they are.
    assert finding.first_distance == (None if cause == "ids_offset" else 1)
    assert f"layers 0, 1: token {token}" in str(result)
    assert f"token {token}" in str(result)


def test_flattened_axes_are_named() -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    time = np.array([*range(4), *[4] * 4, *range(8, 12)])
    rows = np.array([*range(4), 4, 4, 5, 5, *range(8, 12)])
    columns = np.array([*range(4), 4, 5, 4, 5, *range(8, 12)])
    grid = np.stack([time, rows, columns])[:, None]
    flat = np.broadcast_to(time, (3, 1, 12)).copy()
    found = record("Qwen2VLText", grid, rope_parameters=rope)
    assert found.ids.shape == (2, 3, 12)
    result = pp.check(found, record("Qwen2VLText", flat, rope_parameters=rope))
    (finding,) = result.causes
    assert (finding.cause, finding.more["token"]) == ("ids_flattened", 5)
    assert finding.more["axis"] == "columns"


def test_dump_with_positions_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "dump.npz", positions=np.arange(12))
    assert pp.check(record("Llama"), tmp_path / "dump.npz").alike is True
    np.savez(tmp_path / "dump.npz", positions=np.arange(12) / 2)
    with pytest.raises(pp.PosprobeError, match="whole numbers"):
        pp.check(record("Llama"), tmp_path / "dump.npz")


def test_other_prompts_cannot_be_compared(tmp_path: Path) -> None:
    np.savez(tmp_path / "dump.npz", positions=np.arange(5))
    assert pp.check(record("Llama"), tmp_path / "dump.npz").exit_code == 7


def test_ids_against_a_file_are_refused() -> None:
    with pytest.raises(UsageError, match="two records"):
        pp.check(record("Llama"), "rotary:64x16")


def test_plot_draws_a_line_for_each_axis_and_ids_of_other_layers() -> None:
    pytest.importorskip("matplotlib")
    time, rows, columns = np.arange(6), np.arange(6) // 2, np.arange(6) % 2
    grid = PositionIds(np.stack([[time, rows, columns]] * 2), (0, 4), "grid")
    lines = grid.plot().get_lines()
    assert [line.get_label() for line in lines] == ["time", "rows", "columns"]
    assert np.array_equal(np.array(lines[1].get_ydata()), rows)
    (line,) = PositionIds(time[None, None], (0,), "text").plot().get_lines()
    assert np.array_equal(np.array(line.get_ydata()), time)
    unlike = PositionIds(np.stack([[time], [rows]]), (0, 4), "unlike")
    labels = [line.get_label() for line in unlike.plot().get_lines()]
    assert labels == ["layer 0", "layer 4"]


def test_notebook_shows_a_card_of_the_ids() -> None:
    ids = np.stack([np.arange(6), np.arange(6) % 2])[None]
    card = PositionIds(ids, (3,), "<model>")._repr_html_()
    assert "&lt;model&gt;" in card
    assert "0 to 5; 0 to 1" in card


def test_inputs_go_to_the_device_of_the_model() -> None:
    devices: list[Any] = []

    class Recorder(torch.Tensor):
        def to(self, *args: Any) -> Any:  # type: ignore[override]
            devices.extend(args)
            return torch.Tensor(self).long()

    config = transformers.LlamaConfig(**COMMON)
    model = transformers.LlamaModel(config)
    inputs = {"input_ids": TOKENS.as_subclass(Recorder), "use_cache": False}
    assert pp.positions_of(model, inputs).ids.shape == (2, 1, 12)
    assert devices[0] == torch.device("cpu")
