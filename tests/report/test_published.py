"""Published values: what the file may hold, and which table they are said to belong to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tables import as_table, walk

import posprobe as pp
from posprobe.blocks import table_block
from posprobe.layouts import Sequence
from posprobe.sources import Source
from posprobe.studies.published import Published, find_published, published_values
from posprobe.tables import DroppedRow, PositionTable

GPT2_BYTES = "29c69587e2af826b7c159c38620a32e549a925e6d9a0dc37cb563f377f5be772"
DOCS = Path(__file__).parents[2] / "docs" / "replication.md"


def from_hub(
    name: str,
    shape: tuple[int, int],
    tensor: str,
    *,
    commit: str | None = "0" * 40,
    **options: Any,
) -> PositionTable:
    """A table of zeros but for one row: only its provenance matters here."""
    values = np.zeros(shape, np.float32)
    values[0] = 1
    source = Source(
        name, name, commit, "model.safetensors", tensor, shape, "F32", "f" * 64
    )
    return PositionTable(values, Sequence(shape[0]), name, replace(source, **options))


def gpt2(
    name: str = "openai-community/gpt2", tensor: str = "wpe.weight", **options: Any
) -> PositionTable:
    return from_hub(name, (1024, 768), tensor, **options)


def named(values: tuple[Published, ...]) -> dict[str, Published]:
    return {value.key: value for value in values}


def document(table: PositionTable, **blocks: Any) -> dict[str, Any]:
    return {"table": table_block(table)} | blocks


# --- the file ---


def test_every_value_says_what_it_is_and_where_it_stands() -> None:
    values = published_values()
    assert len({(value.model, value.key) for value in values}) == len(values)
    for value in values:
        assert value.citation
        assert value.where
        assert value.evidence
        assert value.url.startswith("https://")
        assert np.isfinite(value.value)
        assert value.tolerance is None or value.tolerance >= 0
        assert value.matched is None
        # A share is kept as a share, whatever the source prints.
        number = float(value.stated.rpartition("= ")[2].removesuffix(" %"))
        assert value.value == pytest.approx(
            number / (100 if "%" in value.stated else 1), abs=5e-5
        )


def test_the_values_of_the_two_published_tables_are_all_there() -> None:
    printed_values = {
        (value.model, value.key.split(".")[1]): value.stated
        for value in published_values()
    }
    models = ("bert-base-uncased", "roberta-base", "gpt2", "sinusoid")
    absolute = ["34.14", "6.06", "1.03", "0.0"]
    order = ["19.72 %", "7.23 %", "1.56 %", "5.08 %"]
    assert [printed_values[model, "absolute_published"] for model in models] == absolute
    assert [printed_values[model, "order_published"] for model in models] == order


def test_the_page_on_replication_lists_every_value() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for value in published_values():
        assert value.stated in page, value


# --- whose table it is ---


BERT = "embeddings.position_embeddings.weight"


@pytest.mark.parametrize(
    ("table", "matched"),
    [
        (gpt2("gpt2"), "hub"),
        (gpt2("openai-community/gpt2"), "hub"),
        # Bytes are known wherever they lie; those of GPT-2 in half precision are not known.
        (gpt2("/renamed", commit=None, sha256=GPT2_BYTES, tensor="values"), "bytes"),
        (gpt2("/models/gpt2", commit=None, dtype="F16"), "name"),
        (from_hub("/models/bert-base-uncased", (512, 768), BERT, commit=None), "name"),
        *((pp.sinusoidal(n, 768), "formula") for n in (512, 1024)),
        # A local folder is believed only where nothing speaks against it.
        (gpt2("/models/gpt2", commit=None), None),
        (gpt2("/models/my-gpt2", commit=None, dtype="F16"), None),
        (from_hub("/models/bert-base-uncased", (256, 768), BERT, commit=None), None),
        (gpt2("someone/gpt2"), None),
        (gpt2("gpt2-medium"), None),
        (gpt2(tensor="wte.weight"), None),
        (from_hub("gpt2", (1024, 1024), "wpe.weight"), None),
        (from_hub("gpt2", (512, 768), "wpe.weight"), None),
        (as_table(walk(64, 8), name="gpt2"), None),
        (as_table(walk(64, 8), name="sinusoidal:64x768"), None),
        (pp.sinusoidal(512, 384), None),
        (pp.sincos2d(16, 32, 768), None),
    ],
)
def test_a_table_is_known_by_its_id_its_bytes_its_name_or_its_formula(
    table: PositionTable, matched: str | None
) -> None:
    assert {value.matched for value in find_published(table)} == (
        {matched} if matched else set()
    )


def test_rows_that_are_no_positions_make_it_another_quantity() -> None:
    name = "roberta.embeddings.position_embeddings.weight"
    full_table = from_hub("FacebookAI/roberta-base", (514, 768), name)
    values = named(
        find_published(
            replace(full_table[2:], dropped=(DroppedRow(0, "a"), DroppedRow(1, "b")))
        )
    )
    assert values
    assert all("2 are not positions" in value.differs for value in values.values())
    # With every stored row, the order probe takes the published rows; the other takes 512 of 514.
    values = named(find_published(full_table))
    assert values["probes.order_published.error"].differs == ""
    assert (
        "rows 0 to 513, here 0 to 511" in values["probes.absolute_published.mae"].differs
    )


# --- which rows ---


def test_rows_must_be_those_that_were_published() -> None:
    all_rows, cut, few_rows = (
        named(find_published(t)) for t in (gpt2(), gpt2()[1:512], gpt2()[1:128])
    )
    assert all_rows["probes.absolute_published.mae"].differs == ""
    assert (
        all_rows["pca.stable_rank"].differs
        == "published for rows 1 to 511, here 0 to 1023"
    )
    assert cut["pca.stable_rank"].differs == ""
    assert cut["probes.order_published.error"].differs == (
        "published for rows 0 to 511, here 1 to 511"
    )
    assert few_rows["pca.top3"].differs == ""


def test_dropped_rows_matter_only_where_stored_rows_count() -> None:
    table = replace(gpt2(), dropped=(DroppedRow(0, "made"),))
    assert named(find_published(table))["probes.absolute_published.mae"].differs == ""


def test_ours_stands_beside_the_published_value() -> None:
    table = gpt2()[1:512]
    shown_document = document(table, pca={"stable_rank": 2.054, "top3": None})
    values = {
        value["key"]: value
        for value in (v.compared(shown_document) for v in find_published(table))
    }
    assert values["pca.stable_rank"]["ours"] == 2.054
    assert values["pca.stable_rank"]["value"] == 2.05
    assert values["pca.stable_rank"]["rows"] == [1, 512]
    assert values["pca.top3"]["ours"] is None
    assert values["probes.order_published.error"]["ours"] is None
    json.dumps(list(values.values()), allow_nan=False)


def test_a_value_inside_a_list_is_found() -> None:
    walk_value = next(
        value for value in published_values() if value.model == "random-walk"
    )
    assert (
        walk_value.compared({"pca": {"explained_variance_ratio": [0.61, 0.2]}})["ours"]
        == 0.61
    )
    assert walk_value.compared({"pca": {"explained_variance_ratio": []}})["ours"] is None
    assert (
        walk_value.compared({"pca": {"explained_variance_ratio": None}})["ours"] is None
    )
