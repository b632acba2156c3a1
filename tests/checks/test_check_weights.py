"""Queries and keys of models of full size and of fused projections: where they stand, what is read.

What a library makes of its fused weights is asked of the library.
"""

from __future__ import annotations

import json
import math
import shutil
import tracemalloc
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hub_server import Hub, Sparse
from made_files import entry, header_of
from made_gguf import write
from made_hub import server, waits
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from transformers.models.falcon.modeling_falcon import FalconAttention

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.families.projections import open_rotary_weights
from posprobe.relations.weights import reorder_rows

__all__ = ["server", "waits"]

HEAD = 128
HIDDEN = 4096
LAYERS = 32
CONFIG = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 11008,
    "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": LAYERS,
    "max_position_embeddings": 4096, "rope_scaling": None, "vocab_size": 32000,
}  # fmt: skip


@cache
def llama_2_7b(seed: int = 0, layers: int = LAYERS) -> dict[str, bytes | Sparse]:
    """The files of Llama 2 7B, zero but for the first head of its queries and keys."""
    shapes = {"model.embed_tokens.weight": [32000, HIDDEN]}
    for layer in range(layers):
        for name, shape in {
            "self_attn.q_proj": [HIDDEN, HIDDEN], "self_attn.k_proj": [HIDDEN, HIDDEN],
            "self_attn.v_proj": [HIDDEN, HIDDEN], "self_attn.o_proj": [HIDDEN, HIDDEN],
            "mlp.gate_proj": [11008, HIDDEN], "mlp.up_proj": [11008, HIDDEN],
            "mlp.down_proj": [HIDDEN, 11008], "input_layernorm": [HIDDEN],
            "post_attention_layernorm": [HIDDEN],
        }.items():  # fmt: skip
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes |= {"model.norm.weight": [HIDDEN], "lm_head.weight": [32000, HIDDEN]}
    draw = np.random.default_rng(seed)
    config = {**CONFIG, "num_hidden_layers": layers}
    files: dict[str, bytes | Sparse] = {"config.json": json.dumps(config).encode()}
    places = {}
    for shard in range(2):
        file, entries, begin = f"model-{shard + 1:05}-of-00002.safetensors", {}, 0
        pieces = {}
        for name, shape in shapes.items():
            second = name.startswith(("model.norm", "lm_head")) or (
                ".layers." in name and int(name.split(".")[2]) >= 23
            )
            if second != bool(shard):
                continue
            stop = begin + 2 * math.prod(shape)
            entries[name] = entry(shape, begin, stop, "F16")
            if ".q_proj." in name or ".k_proj." in name:
                rows = draw.standard_normal((HEAD, HIDDEN), dtype=np.float32)
                pieces[begin] = rows.astype("<f2").tobytes()
            places[name], begin = file, stop
        header = header_of(entries)
        pieces_by_offset = {
            len(header) + offset: piece for offset, piece in pieces.items()
        }
        files[file] = Sparse(len(header) + begin, {0: header, **pieces_by_offset})
    index = {"metadata": {"total_size": 13_476_839_424}, "weight_map": places}
    return {**files, "model.safetensors.index.json": json.dumps(index).encode()}


def saved(folder: Path, files: dict[str, bytes | Sparse]) -> str:
    folder.mkdir()
    for name, content in files.items():
        with (folder / name).open("wb") as stream:
            if isinstance(content, bytes):
                stream.write(content)
                continue
            stream.truncate(content.size)
            for offset, piece in content.pieces.items():
                stream.seek(offset)
                stream.write(piece)
    return str(folder)


def weights(result: pp.Check) -> tuple[str, dict[str, Any]]:
    (weights_finding,) = (
        finding
        for finding in (*result.causes, *result.compared)
        if finding.what == "weights"
    )
    return weights_finding.cause, dict(weights_finding.more)


def compared(a: str | Path, b: str | Path, **options: Any) -> pp.Check:
    """Compare within 120 MiB: the interpreter and its modules take 65 MiB more."""
    tracemalloc.start()
    try:
        result = pp.check(a, b, **options)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 120 * 2**20
    return result


@pytest.mark.parametrize("layers", [LAYERS, 2])
def test_a_pair_of_7b_is_compared_in_200_mib(layers: int, tmp_path: Path) -> None:
    a, b = (saved(tmp_path / f"{seed}", llama_2_7b(seed, layers)) for seed in range(2))
    all_layers = layers < LAYERS
    result = compared(a, b, all_layers=all_layers, other_weights=True)
    assert result.alike
    assert weights(result)[0] == "other_weights"
    assert ("first head" in str(result)) is not all_layers
    assert compared(a, b, all_layers=all_layers).exit_code == 7


#: Heads, their width, and the columns of a projection that is square.
COUNT = 17
SHORT_COUNT = 16
WIDE = COUNT * SHORT_COUNT


@pytest.fixture
def head_by_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries of 17 heads count as too large to be read whole: seven are read at once."""
    # By name, as the package's own name for it is the function.
    module = import_module("posprobe.checks.layers")
    monkeypatch.setattr(module, "MAX_WHOLE_LAYER_NUMBERS", 2**16)
    monkeypatch.setattr(module, "MAX_BLOCK_NUMBERS", 2**15)


def wide(folder: Path, query: NDArray[Any], key: NDArray[Any]) -> str:
    """Save one layer whose queries are square."""
    config = {
        "model_type": "llama", "hidden_size": WIDE, "num_attention_heads": COUNT,
        "head_dim": SHORT_COUNT,
        "num_key_value_heads": len(key) // SHORT_COUNT, "num_hidden_layers": 1,
        "max_position_embeddings": 64,
    }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    place = "model.layers.0.self_attn."
    tensors = {f"{place}q_proj.weight": query, f"{place}k_proj.weight": key}
    save_file(
        {k: np.ascontiguousarray(v, "f4") for k, v in tensors.items()},
        folder / "m.safetensors",
    )
    return str(folder)


@pytest.mark.usefixtures("head_by_head")
@pytest.mark.parametrize("keys", [17, 1])
@pytest.mark.parametrize(
    ("cause", "pairs"),
    [
        ("identical", "same_pairs"), ("moved", "same_pairs"), ("scale_folded", "same_pairs"),
        ("identical", "pairs_mixed_up"), ("other_weights", "same_pairs"),
    ],
)  # fmt: skip
def test_changes_of_layers_read_head_by_head_are_named(
    cause: str, pairs: str, keys: int, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    rows = np.exp(0.5 * draw.normal(size=(WIDE, 1)))
    query = (rows * draw.normal(size=(WIDE, WIDE))).astype("f4")
    key = query[::-1][: keys * SHORT_COUNT] + draw.normal(
        size=(keys * SHORT_COUNT, WIDE)
    ).astype("f4")
    change: dict[str, Any] = {
        "identical": lambda w: w,
        "moved": lambda w: w + 0.1 * draw.normal(size=w.shape),
        "other_weights": lambda w: draw.normal(size=w.shape),
        "scale_folded": lambda w: 4 * w if w is query else w / 4,
    }
    changed_projections = [*map(change[cause], (query, key))]
    if pairs == "pairs_mixed_up":
        changed_projections = [
            reorder_rows(w, "to_neighbours", SHORT_COUNT, SHORT_COUNT)
            for w in changed_projections
        ]
    result = pp.check(
        wide(tmp_path / "a", query, key),
        wide(tmp_path / "b", *changed_projections),
        all_layers=True,
        other_weights=True,
    )
    cause_by_subject = {
        finding.what: finding.cause for finding in (*result.causes, *result.compared)
    }
    assert cause_by_subject["weights"] == cause
    assert cause_by_subject["pairs"] == pairs


@pytest.mark.usefixtures("head_by_head")
def test_rows_of_large_layers_that_crossed_heads_are_found(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    query, key = (draw.normal(size=(WIDE, WIDE)) for _ in "qk")
    a = wide(tmp_path / "a", query, key)
    roll = np.roll(np.arange(WIDE), SHORT_COUNT)
    both = pp.check(a, wide(tmp_path / "b", query[roll], key[roll]), all_layers=True)
    causes = {finding.what: finding.cause for finding in both.compared}
    assert (both.alike, causes["pairs"]) == (True, "same_pairs")
    assert "heads_order" in {finding.cause for finding in both.compared}
    # Heads of queries without their keys meet the keys of other heads.
    alone = pp.check(a, wide(tmp_path / "c", query[roll], key), all_layers=True)
    assert [finding.cause for finding in alone.causes] == ["heads_separated"]
    shuffled = pp.check(
        a, wide(tmp_path / "d", query, key[draw.permutation(WIDE)]), all_layers=True
    )
    (finding,) = shuffled.causes
    assert (finding.cause, finding.more["projection"]) == ("half_permuted", "keys")


def test_a_pair_of_7b_on_the_hub_costs_16_mb(server: Hub) -> None:
    for name in ("meta/a", "meta/b"):
        server.add(name, llama_2_7b())
    result = pp.check("meta/a", "meta/b")
    assert result.alike
    assert weights(result) == (
        "identical",
        {"layers": [*range(LAYERS)], "read": "first head"},
    )
    assert {state.read for state in result.projections} == {"first head", "rows"}
    assert server.sent() < 16e6


@pytest.mark.usefixtures("head_by_head")
def test_heads_that_lie_together_on_the_hub_are_asked_for_together(
    server: Hub, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    for name in "ab":
        query, key = (draw.normal(size=(WIDE, WIDE)) for _ in "qk")
        folder = Path(wide(tmp_path / name, query, key))
        server.add(
            f"meta/{name}", {item.name: item.read_bytes() for item in folder.iterdir()}
        )
    # None of 17 heads is another's, so that the layer is gone through a second time.
    result = pp.check("meta/a", "meta/b", all_layers=True, other_weights=True)
    assert weights(result)[0] == "other_weights"
    paths = [item.path for item in server.requests if item.server == "hub"]
    # Of each file its header, the queries and the keys.
    assert sum(path.endswith("m.safetensors") for path in paths) == 2 * 3


def test_a_quantised_copy_of_7b_is_compared_in_200_mib(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    layers = 4
    a = saved(tmp_path / "a", llama_2_7b(layers=layers))
    kind = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(tmp_path / "b.gguf", "llama")
    for add, value in (
        (writer.add_context_length, 4096), (writer.add_embedding_length, HIDDEN),
        (writer.add_block_count, layers), (writer.add_head_count, 32),
        (writer.add_head_count_kv, 32), (writer.add_rope_dimension_count, HEAD),
    ):  # fmt: skip
        add(value)
    checkpoint = open_local(Path(a))
    for layer in range(layers):
        for name in "qk":
            rows = np.zeros((HIDDEN, HIDDEN // 32 * 34), np.uint8)
            stored = f"model.layers.{layer}.self_attn.{name}_proj.weight"
            values = checkpoint.read_rows(stored, np.arange(HEAD)).astype(np.float32)
            neighbours = (
                values.reshape(2, HEAD // 2, HIDDEN).swapaxes(0, 1).reshape(HEAD, -1)
            )
            rows[:HEAD] = gguf.quants.quantize(neighbours, kind)
            writer.add_tensor(f"blk.{layer}.attn_{name}.weight", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    result = compared(a, tmp_path / "b.gguf")
    assert result.alike
    assert weights(result)[0] == "quantised"


def test_rows_of_a_quantised_tensor_are_those_of_the_whole(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    values = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q4_0
    path = write(tmp_path / "a.gguf", "llama", {"t": values}, kinds={"t": kind})
    checkpoint = open_local(Path(path))
    all_rows = checkpoint.read("t").values
    for rows in ([], [3], [0, 1, 2, 17, 39]):
        np.testing.assert_array_equal(
            checkpoint.read_rows("t", rows), all_rows[np.array(rows, int)]
        )


# Fused projections.

SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 30,
    "intermediate_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def made(name: str, **overrides: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **overrides})
    config._attn_implementation = "eager"
    return getattr(transformers, f"{name}Model")(config).eval()


def falcon_heads(model: Any, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split fused weights as the model splits what they make."""
    attention = model.h[layer].self_attention
    assert isinstance(attention, FalconAttention)
    query, key, _ = attention._split_heads(attention.query_key_value.weight.T[None])
    # Keys of a group are given to each of its queries.
    n_key_heads = (
        model.config.num_kv_heads
        if model.config.new_decoder_architecture
        else key.shape[2]
    )
    return query[0], key[0, :, :: key.shape[2] // n_key_heads]


def seen_heads(model: Any, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of queries and keys, each number by what attention gets of a unit input at position 0,
    where nothing turns."""
    fused = next(
        module for name, module in model.named_modules()
        if f".{layer}." in f".{name}." and name.endswith(("qkv_proj", "query_key_value", "Wqkv"))
    )  # fmt: skip
    if fused.bias is not None:
        torch.nn.init.zeros_(fused.bias)
    got = []

    def look(_module: Any, query: Any, key: Any, *_: Any, **__: Any) -> Any:
        got.append((query, key))
        return torch.zeros(query.shape).swapaxes(1, 2), None

    transformers.AttentionInterface.register("look", look)
    model.set_attn_implementation("look")
    units = torch.eye(fused.in_features)
    hook = fused.register_forward_pre_hook(lambda *_: (units[:, None],))
    model(input_ids=torch.ones(len(units), 1, dtype=torch.long))
    hook.remove()
    query, key = got[layer]
    return query[:, :, 0], key[:, :, 0]


@pytest.mark.parametrize(
    ("name", "overrides", "split"),
    [
        ("Phi3", {"num_key_value_heads": 2}, seen_heads),
        ("GPTNeoX", {}, seen_heads),
        ("ModernBert", {}, seen_heads),
        ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}, falcon_heads),
        ("Falcon", {"new_decoder_architecture": False, "multi_query": True}, falcon_heads),
        ("Falcon", {"new_decoder_architecture": False, "multi_query": False}, falcon_heads),
    ],
)  # fmt: skip
def test_heads_of_fused_projections_are_those_that_the_model_uses(
    name: str, overrides: dict[str, Any], split: Any, tmp_path: Path
) -> None:
    model = made(name, **overrides)
    model.save_pretrained(tmp_path / "a")
    opened = open_rotary_weights(str(tmp_path / "a"))
    assert sorted(layer for weights in opened for layer in weights.layers) == [0, 1]
    opened_weights = next(weights for weights in opened if 1 in weights.layers)
    layer, first_heads = (
        opened_weights.read(1),
        opened_weights.read(1, (range(1), range(1))),
    )
    for rows, projection, reference in zip(
        (layer.query, layer.key),
        (first_heads.query, first_heads.key),
        split(model, 1),
        strict=True,
    ):
        expected = reference.detach().permute(1, 2, 0).reshape(-1, 16, 64).numpy()
        np.testing.assert_allclose(rows, expected, atol=1e-6)
        np.testing.assert_array_equal(projection, rows[:1])
    check = pp.check(tmp_path / "a", tmp_path / "a")
    assert weights(check)[0] == "identical", str(check)


@pytest.mark.parametrize(
    ("model_type", "name", "heads"),
    [("codegen", "qkv_proj", 4), ("qwen", "c_attn", 5), ("qwen", "c_attn", None)],
)  # fmt: skip
def test_a_fused_projection_of_unknown_order_is_not_compared(
    model_type: str, name: str, heads: int | None, tmp_path: Path
) -> None:
    config = {
        "model_type": model_type,
        "head_dim": 16,
        "rope_theta": 1e4,
        "hidden_size": 64,
    }
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "num_attention_heads": heads})
    )
    values = np.random.default_rng(0).normal(size=(192, 64)).astype(np.float32)
    save_file(
        {f"transformer.h.0.attn.{name}.weight": values}, tmp_path / "model.safetensors"
    )
    result = pp.check(tmp_path, tmp_path)
    (reason,) = (
        skipped.reason for skipped in result.not_compared if skipped.what == "weights"
    )
    assert "num_attention_heads" in reason or reason == "no_projections"


@pytest.mark.parametrize(
    ("changes", "sides"),
    [
        ({"num_key_value_heads": 4}, ["keys"]),
        ({"num_key_value_heads": 1}, ["keys"]),
        ({"num_key_value_heads": None}, ["keys"]),
        ({"num_attention_heads": 8}, ["queries"]),
        ({}, []),
    ],
)
def test_heads_that_are_stated_and_not_stored_make_copies_different(
    changes: dict[str, Any], sides: list[str], tmp_path: Path
) -> None:
    made("Llama", num_key_value_heads=2, head_dim=16).save_pretrained(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    (tmp_path / "b" / "config.json").write_text(json.dumps({**config, **changes}))
    for copies in (("a", "b"), ("b", "a")):
        result = pp.check(*(tmp_path / name for name in copies))
        assert [finding.cause for finding in result.causes] == ["head_count"] * len(sides)
        assert [finding.more["projection"] for finding in result.causes] == sides
        assert {finding.more["side"] for finding in result.causes} <= {
            "ab"[copies.index("b")]
        }


def test_layers_that_are_stored_and_not_stated_make_copies_different(
    tmp_path: Path,
) -> None:
    made("Llama").save_pretrained(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    (tmp_path / "b" / "config.json").write_text(
        json.dumps({**config, "num_hidden_layers": 1})
    )
    (finding,) = pp.check(tmp_path / "a", tmp_path / "b").causes
    assert (finding.cause, finding.a, finding.b) == ("layer_count", 2, 1)


def test_key_heads_that_mistral_does_not_state_are_not_those_of_queries(
    tmp_path: Path,
) -> None:
    made("Mistral", num_key_value_heads=2).save_pretrained(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    del config["num_key_value_heads"]
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    assert pp.check(tmp_path / "a", tmp_path / "b").alike


def change_tensors(folder: Path, change: Callable[[str, Any], Any]) -> None:
    """Replace the tensors of a saved model by what ``change`` makes of them by name."""
    tensors = load_file(folder / "model.safetensors")
    changed = {name: change(name, values) for name, values in tensors.items()}
    save_file(
        {name: np.ascontiguousarray(values) for name, values in changed.items()},
        folder / "model.safetensors",
    )


def reflect(name: str, values: Any) -> Any:
    """Negate the second half of each head of queries and keys."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return values
    signs = np.repeat([1, -1], 8).astype(values.dtype)
    return values * np.tile(signs, len(values) // 16)[:, None]


def negate(name: str, values: Any) -> Any:
    return -values if name.endswith(("q_proj.weight", "k_proj.weight")) else values


def negate_keys(name: str, values: Any) -> Any:
    return -values if name.endswith("k_proj.weight") else values


def halve_queries(name: str, values: Any) -> Any:
    return values / 2 if name.endswith("q_proj.weight") else values


def fold_gain(name: str, values: Any) -> Any:
    gain = np.linspace(0.5, 2, 64).astype(values.dtype)
    if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
        return values * gain
    return values / gain if "input_layernorm" in name else values


def fold_gain_and_keep_it(name: str, values: Any) -> Any:
    return values if "input_layernorm" in name else fold_gain(name, values)


def fold_gain_into_keys(name: str, values: Any) -> Any:
    return values if "q_proj" in name else fold_gain(name, values)


def lose_gain(name: str, values: Any) -> Any:
    return values * 3 if "layers.1.input_layernorm" in name else values


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (reflect, "reflected"),
        (negate, None),
        (negate_keys, "logit_scale"),
        (halve_queries, "logit_scale"),
        (fold_gain, None),
        (fold_gain_and_keep_it, "input_gain"),
        (fold_gain_into_keys, "gain_unlike"),
        (lose_gain, "input_gain"),
    ],
)
def test_changes_of_all_layers_are_alike_where_no_logit_changes(
    change: Callable[[str, Any], Any], cause: str | None, tmp_path: Path
) -> None:
    model = made("Llama", num_key_value_heads=2)
    ids = torch.arange(12)[None] % 32
    model.save_pretrained(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    change_tensors(tmp_path / "b", change)
    copy: Any = transformers.LlamaModel.from_pretrained(
        tmp_path / "b", attn_implementation="eager"
    )
    copy.eval()
    with torch.no_grad():
        states, states_of_copy = (x(ids).last_hidden_state for x in (model, copy))
    is_same = torch.allclose(states, states_of_copy, atol=1e-4)
    result = pp.check(tmp_path / "a", tmp_path / "b")
    assert result.alike == is_same
    assert [finding.cause for finding in result.causes] == ([cause] if cause else [])


def test_a_phi_that_was_split_into_a_llama_is_alike(tmp_path: Path) -> None:
    model = made("Phi3", num_key_value_heads=2)
    model.save_pretrained(tmp_path / "a")
    config = transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 2}).to_dict()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    tensors = {}
    for layer in range(2):
        fused = model.layers[layer].self_attn.qkv_proj.weight.detach().numpy()
        for part, rows in (("q", slice(64)), ("k", slice(64, 96)), ("v", slice(96, 128))):
            name = f"model.layers.{layer}.self_attn.{part}_proj.weight"
            tensors[name] = np.ascontiguousarray(fused[rows])
    save_file(tensors, tmp_path / "b" / "model.safetensors")
    result = pp.check(tmp_path / "a", tmp_path / "b")
    assert (result.alike, weights(result)[0]) == (True, "identical")
    tensors["model.layers.1.self_attn.q_proj.weight"][:32] = 0
    save_file(tensors, tmp_path / "b" / "model.safetensors")
    for same_weights in (False, True):
        causes = pp.check(
            tmp_path / "a", tmp_path / "b", same_weights=same_weights
        ).causes
        assert [
            (finding.cause, finding.more["layers"], finding.more["projection"])
            for finding in causes
        ] == [("zeroed", [1], "queries")]
