"""Comparison of a loaded table with its tiny model, and a BERT of a few rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tiny_models import BERT, Tiny, hf_text

from posprobe.layouts import Grid, Sequence
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from torch import Tensor


#: Token names of posprobe by parameter.
TOKEN_NAMES = {
    "cls_token": "CLS", "class_token": "CLS", "class_embedding": "CLS",
    "dist_token": "distillation", "distillation_token": "distillation",
    "reg_token": "register", "register_tokens": "register",
}  # fmt: skip


def assert_table_as_in_model(table: PositionTable, tiny: Tiny) -> None:
    rows = tiny.probe()
    assert_same_bits(table.values, tiny.rows[rows.positions])
    assert [row.row for row in table.dropped] == rows.unused
    assert all(row.reason for row in table.dropped)
    assert table.layout == (
        Grid(*rows.grid) if rows.grid else Sequence(len(rows.positions))
    )
    special = sorted(rows.special)
    assert [row.row for row in table.prefix_rows] == special
    count = Counter(rows.special[row].partition("[")[0] for row in special)
    for prefix in table.prefix_rows:
        parameter, _, index = rows.special[prefix.row].partition("[")
        token = TOKEN_NAMES[parameter]
        assert prefix.token == (
            f"{token} {index[:-1]}" if count[parameter] > 1 else token
        )
    if special:
        assert table.prefix is not None
        assert_same_bits(table.prefix, tiny.rows[special])
    else:
        assert table.prefix is None
    assert table.source.shape == tuple(tiny.table.shape)


def assert_same_bits(values: np.ndarray[Any, Any], parameter: Tensor) -> None:
    if parameter.dtype == torch.bfloat16:
        parameter = (
            parameter.float()
        )  # NumPy has no bfloat16; float32 holds each of its numbers
    expected = parameter.numpy()
    assert values.dtype == expected.dtype
    assert values.shape == expected.shape
    assert values.tobytes() == expected.tobytes()


def bert_of(rows: int) -> Tiny:
    return hf_text(
        "BertModel", BERT, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, vocab_size=30, max_position_embeddings=rows,
    )  # fmt: skip
