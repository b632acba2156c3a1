"""Two copies of a model: errors that people met, made again with the libraries they met them in."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import relations as made
import torch
import transformers
from made_cli import Cli, cli
from made_gguf import write
from made_schemas import problems
from numpy.typing import NDArray
from safetensors.numpy import save_file
from timm.layers.pos_embed import resample_abs_pos_embed
from transformers import (
    DeepseekV3Config,
    Gemma3TextConfig,
    GlmConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2VLConfig,
    Qwen3VLConfig,
)
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as rotate_neighbours
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb as rotate_halves,
)
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLVisionRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

import posprobe as pp
from posprobe.encodings.rotary import round_to_type
from posprobe.errors import InvalidCheckpoint, NoPositionTable
from posprobe.relations import relate_ladders
from posprobe.relations.dumps import read_dump
from posprobe.relations.weights import reorder_rows
from posprobe.schemes import Rotary

__all__ = ["cli"]

LLAMA3 = made._LLAMA3
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
HEADS = 4
KEYS = 2
WIDTH = 32
HIDDEN = 64
#: Angles of four pairs, and of positions 5 to 9.
TURNS = np.outer(np.arange(9.0), [1.0, 0.1, 0.01, 0.001])
LATE = np.arange(5.0, 10.0)[:, None]


def projections(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Queries and keys of three layers, whose rows have sizes of their own."""
    draw = np.random.default_rng(seed)
    tensors = {}
    for layer in range(3):
        for name, heads in (("q", HEADS), ("k", KEYS)):
            rows = np.exp(0.5 * draw.normal(size=(heads * WIDTH, 1)))
            values = (rows * draw.normal(size=(heads * WIDTH, HIDDEN))).astype(np.float32)
            tensors[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = values
    return tensors


def llama(
    folder: Path, tensors: Mapping[str, NDArray[Any]] | None = None, **overrides: Any
) -> str:
    """Save a small Llama: configuration of transformers, and the weights that are compared."""
    rope_parameters = {
        "rope_type": "default",
        "rope_theta": 5e5,
        **overrides.pop("rope", {}),
    }
    config = LlamaConfig(
        hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=KEYS, head_dim=WIDTH,
        num_hidden_layers=3, max_position_embeddings=8192, rope_parameters=rope_parameters,
    ).to_dict()  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **overrides}))
    save_file(dict(tensors or projections()), folder / "model.safetensors")
    return str(folder)


def stated(folder: Path, config: Any) -> str:
    """Save a configuration of transformers beside a tensor that has no position."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    save_file(
        {"model.embed_tokens.weight": np.ones((4, 64), "f4")},
        folder / "model.safetensors",
    )
    return str(folder)


def converted(
    path: Path,
    *,
    times: int = 1,
    freqs: NDArray[np.float32] | None = None,
    kind: Any = None,
) -> str:
    """Convert that Llama as llama.cpp does, its queries and keys reordered so many times."""
    names = {"q": ("attn_q", HEADS), "k": ("attn_k", KEYS)}
    tensors = {}
    for name, values in projections().items():
        layer, projection = name.split(".")[2], name.split(".")[4][0]
        gguf_name, heads = names[projection]
        for _ in range(times):
            cells = values.reshape(heads, 2, WIDTH // 2, HIDDEN)
            values = cells.swapaxes(1, 2).reshape(values.shape)
        tensors[f"blk.{layer}.{gguf_name}.weight"] = np.ascontiguousarray(values)
    kinds = dict.fromkeys(tensors, kind) if kind is not None else None
    if freqs is not None:
        tensors["rope_freqs.weight"] = freqs

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_context_length(8192)
        writer.add_embedding_length(HIDDEN)
        writer.add_block_count(3)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KEYS)
        writer.add_key_length(WIDTH)
        writer.add_rope_dimension_count(WIDTH)
        writer.add_rope_freq_base(5e5)

    return write(path, "llama", tensors, add, kinds)


def engine(path: Path, config: Any, count: int = 512, **options: bool) -> str:
    """Dump what transformers computes from a configuration, and one query at position 7."""
    module = LlamaRotaryEmbedding(config)
    width = 2 * len(module.inv_freq)
    arrays = {}
    cos, sin = module(torch.zeros(1, 1), torch.arange(count)[None])
    if options.get("cosines", True):
        arrays = {"cos": cos[0].numpy(), "sin": sin[0].numpy()}
    else:
        arrays = {"inv_freq": module.inv_freq.numpy()}
    q = torch.randn(1, 1, count, width, generator=torch.Generator().manual_seed(0))
    rotate = rotate_neighbours if options.get("neighbours", False) else rotate_halves
    arrays["q"] = q[0, :, 7].numpy()
    arrays["q_rotated"] = rotate(q, q, cos, sin)[0][0, :, 7].numpy()
    np.savez(path, **arrays)
    return str(path)


def configured(head_dim: int = WIDTH, /, **rope: Any) -> Any:
    return LlamaConfig(
        hidden_size=head_dim * 2, num_attention_heads=2, head_dim=head_dim,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5, **rope},
    )  # fmt: skip


def causes(result: pp.Check) -> list[str]:
    return [finding.cause for finding in result.causes]


# In the files.


def test_a_sound_conversion_is_alike_in_8_bits_too(tmp_path: Path) -> None:
    a = llama(tmp_path / "a")
    for kind in (None, gguf.GGMLQuantizationType.Q8_0):
        result = pp.check(a, converted(tmp_path / "b.gguf", kind=kind))
        assert result.alike, str(result)
        compared_causes = {finding.cause for finding in result.compared}
        assert compared_causes == {
            "same_ladder", "same_columns", "pairs_reordered", "quantised" if kind else "identical"
        }  # fmt: skip
        assert ("rounded to Q8_0 in B" in str(result)) == (kind is not None)


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_1", "Q4_0"])
def test_a_copy_that_was_trained_on_and_then_quantised_is_both(
    kind: str, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    a = {
        k: v + 0.03 * v.std() * draw.normal(size=v.shape)
        for k, v in projections().items()
    }
    quant = gguf.GGMLQuantizationType[kind]
    b = converted(tmp_path / "b.gguf", kind=quant)
    base_model = llama(
        tmp_path / "a", {name: values.astype("f4") for name, values in a.items()}
    )
    result = pp.check(base_model, b)
    (weights_finding,) = (
        finding for finding in result.compared if finding.what == "weights"
    )
    assert (
        weights_finding.cause,
        weights_finding.more["type"],
        weights_finding.more["side"],
    ) == (
        "moved",
        kind,
        "b",
    )
    assert f"fine-tuned or merged, rounded to {kind} in B" in str(result)
    assert causes(pp.check(base_model, b, same_weights=True)) == ["moved"]
    assert causes(pp.check(llama(tmp_path / "c"), b, same_weights=True)) == []


def test_a_conversion_without_rope_freqs_lost_the_scaling_by_parts(
    tmp_path: Path,
) -> None:
    a = llama(tmp_path / "a", rope=LLAMA3)
    result = pp.check(a, converted(tmp_path / "b.gguf"))
    assert causes(result) == ["parts_lost"]
    assert result.causes[0].more["last"] == pytest.approx(8)
    omega = 5e5 ** -(np.arange(WIDTH / 2) / (WIDTH / 2))
    scaled, _ = pp.encodings.rotary_frequencies(WIDTH, base=5e5, scaling=LLAMA3)
    sound = converted(tmp_path / "c.gguf", freqs=(omega / scaled).astype(np.float32))
    assert pp.check(a, sound).alike


@pytest.mark.parametrize("times", [0, 2])
def test_queries_reordered_twice_or_not_at_all_do_not_fit_their_pairs(
    times: int, tmp_path: Path
) -> None:
    result = pp.check(llama(tmp_path / "a"), converted(tmp_path / "b.gguf", times=times))
    assert causes(result) == ["pairs_mixed_up"]
    order = "same" if times == 0 else "to_neighbours_twice"
    assert result.causes[0].more["order"] == order


def test_rows_put_as_neighbours_under_an_architecture_of_halves(tmp_path: Path) -> None:
    neighbours = {
        name: reorder_rows(values.astype(float), "to_neighbours", WIDTH, WIDTH)
        for name, values in projections().items()
    }
    result = pp.check(llama(tmp_path / "a"), llama(tmp_path / "b", neighbours))
    assert causes(result) == ["pairs_mixed_up"]
    # Where neither says what it rotates, nobody can tell.
    for name in "ab":
        (tmp_path / name / "config.json").write_text(json.dumps({
            "rope_theta": 5e5, "head_dim": WIDTH, "num_attention_heads": HEADS,
        }))  # fmt: skip
    result = pp.check(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (result.alike, result.exit_code) == (None, 7)


def test_a_table_of_roberta_shifted_on_conversion(tmp_path: Path) -> None:
    a = pp.load("sample:sapiens-roberta")
    values = np.asarray(a.values, dtype=np.float32)
    for cut, expected in ((0, []), (2, ["rows_cut"])):
        path = write(
            tmp_path / f"{cut}.gguf", "bert",
            {"position_embd.weight": values[cut:], "token_embd.weight": np.ones((9, 4), "f4")},
            partial(gguf.GGUFWriter.add_context_length, length=len(values) - cut),
        )  # fmt: skip
        assert causes(pp.check("sample:sapiens-roberta", path)) == expected


def test_a_stale_base_beside_rope_parameters_loses(tmp_path: Path) -> None:
    a = llama(tmp_path / "a")
    assert pp.check(a, llama(tmp_path / "b", rope_theta=1e4)).alike


def test_a_table_that_timm_resampled_and_stored() -> None:
    table = pp.load("sample:digits-vit")
    values = torch.tensor(np.asarray(table.values, np.float32))[None]
    resampled = resample_abs_pos_embed(values, (12, 12), num_prefix_tokens=0)[0]
    result = pp.check(table, pp.table(resampled.numpy(), grid=(12, 12)))
    assert causes(result) == ["resized"]
    details = {"method": "bicubic_antialias", "corners": False, "position": 0}
    assert result.causes[0].more == details
    plain = resample_abs_pos_embed(
        values, (12, 12), num_prefix_tokens=0, antialias=False
    )[0]
    result = pp.check(table, pp.table(plain.numpy(), grid=(12, 12)))
    assert result.causes[0].more["method"] == "bicubic"


# In what an engine computes.


@pytest.mark.parametrize("cosines", [True, False])
def test_check_of_a_faithful_dump_is_alike(cosines: bool, tmp_path: Path) -> None:
    for rope in ({}, LLAMA3, YARN):
        a = llama(tmp_path / "a", rope=rope)
        result = pp.check(
            a, engine(tmp_path / "b.npz", configured(**rope), cosines=cosines)
        )
        assert result.causes == (), str(result)
        # Frequencies alone do not carry the factor that YaRN puts on cosines.
        assert result.alike is (None if rope is YARN and not cosines else True), str(
            result
        )


#: Rotary settings of a checkpoint, of its copy, how that is stored, and what is wrong with it: the
#: first cause with the value that names it.
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
TRUNCATED = {**YARN, "rope_theta": 1.5e5}


@pytest.mark.parametrize(
    ("a", "b", "stored", "expected", "expected_facts"),
    [
        (LLAMA3, LINEAR, "files", ["parts_lost", "base", "positions_scaled"], {"last": 8}),
        ({**LLAMA3, "factor": 32.0}, LLAMA3, "files", ["parts_factor"], {"last": 4}),
        ({}, {"rope_theta": 1e4}, "dumps", ["base"], {"b": 1e4}),
        (LLAMA3, {}, "cosines", ["parts_lost"], {"last": 8}),
        (LLAMA3, {**LLAMA3, "factor": 16.0}, "cosines", ["parts_factor"], {}),
        ({**YARN, "attention_factor": 1.0}, {**YARN, "attention_factor": 1.2773}, "cosines",
         ["factor"], {"b": 1.2773}),
        ({**TRUNCATED, "truncate": False}, TRUNCATED, "frequencies", ["ramp"], {}),
    ],
    ids=["linear for llama3", "factor 8 for 32", "default base", "scaling dropped", "factor 16",
         "factor on cosines", "ramp rounded"],
)  # fmt: skip
def test_check_names_the_cause_of_other_angles(
    a: dict[str, Any], b: dict[str, Any], stored: str, expected: list[str],
    expected_facts: dict[str, float], tmp_path: Path,
) -> None:  # fmt: skip
    copies = []
    if stored == "files":
        copies.append(llama(tmp_path / "b", rope=b))
    if stored in ("cosines", "dumps"):
        copies.append(engine(tmp_path / "b.npz", configured(**b)))
    if stored in ("frequencies", "dumps"):
        copies.append(engine(tmp_path / "c.npz", configured(**b), cosines=False))
    for copy in copies:
        result = pp.check(llama(tmp_path / "a", rope=a), copy)
        assert causes(result) == expected
        first_cause = result.causes[0]
        for name, value in expected_facts.items():
            stated_value = first_cause.b if name == "b" else first_cause.more[name]
            assert stated_value == pytest.approx(value, rel=1e-5)
        if "base" in expected and stored != "files":
            assert (first_cause.first_distance or 1) < 1


def test_linear_scaling_dropped_on_the_global_layers_of_gemma(tmp_path: Path) -> None:
    config = Gemma3TextConfig(
        hidden_size=64, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        num_hidden_layers=6,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    )  # fmt: skip
    a = stated(tmp_path / "a", config)
    b = engine(tmp_path / "b.npz", configured(32, rope_theta=1e6), cosines=False)
    ambiguous = pp.check(a, b)
    assert ambiguous.exit_code == 7
    assert "#full_attention" in str(ambiguous)
    result = pp.check(f"{a}#full_attention", b)
    assert causes(result) == ["positions_scaled"]
    assert result.causes[0].value == pytest.approx(1 / 8)
    local = engine(tmp_path / "c.npz", configured(32, rope_theta=1e4), cosines=False)
    assert pp.check(f"{a}#sliding_attention", local).alike


def test_an_engine_that_rotates_the_whole_head_or_spreads_the_ladder(
    tmp_path: Path,
) -> None:
    config = GlmConfig(
        hidden_size=64, num_attention_heads=2, head_dim=32, num_hidden_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )  # fmt: skip
    a = stated(tmp_path / "a", config)
    full_dump = engine(tmp_path / "b.npz", configured(32, rope_theta=1e4), cosines=False)
    assert "columns" in causes(pp.check(a, full_dump))
    np.savez(tmp_path / "c.npz", inv_freq=1e4 ** -(2 * np.arange(8) / 32))
    assert causes(pp.check(a, tmp_path / "c.npz")) == ["spread"]


@pytest.mark.parametrize(
    ("way", "first_distance"),
    [("ladder", 56), ("all", 33), ("positions", 257), ("product", None)],
)
def test_an_engine_that_rounds_to_bfloat16_before_the_cosine(
    way: str, first_distance: float | None, tmp_path: Path
) -> None:
    omega = pp.encodings.rotary_frequencies(128, base=5e5)[0]
    t, small = np.arange(512.0), round_to_type(omega, "bfloat16")
    angles = {
        "ladder": np.outer(t, small),
        "all": round_to_type(np.outer(round_to_type(t, "bfloat16"), small), "bfloat16"),
        "positions": np.outer(round_to_type(t, "bfloat16"), omega),
        "product": round_to_type(np.outer(t, omega), "bfloat16"),
    }[way]
    for stored in ("float32", "bfloat16"):
        cos, sin = (
            round_to_type(f(angles), stored).astype("f4") for f in (np.cos, np.sin)
        )
        np.savez(tmp_path / "b.npz", cos=cos, sin=sin)
        result = pp.check("rotary:8192x128,base=500000", str(tmp_path / "b.npz"))
        assert result.causes[0].cause in ("ladder_rounded", "angles_rounded")
        assert (result.causes[0].more["way"], result.causes[0].more["type"]) == (
            way,
            "bfloat16",
        )
        if first_distance is not None:
            assert result.causes[0].first_distance == pytest.approx(first_distance, abs=1)


def test_rounded_cosines_are_alike_and_hide_no_other_ladder(tmp_path: Path) -> None:
    def dumped(omega: NDArray[np.float64]) -> str:
        angles = np.outer(np.arange(64.0), omega)
        cos, sin = (
            round_to_type(f(angles), "bfloat16").astype("f4") for f in (np.cos, np.sin)
        )
        np.savez(tmp_path / "b.npz", cos=cos, sin=sin)
        return str(tmp_path / "b.npz")

    sound = pp.check("rotary:8192x128", dumped(pp.encodings.rotary_frequencies(128)[0]))
    assert [finding.cause for finding in sound.compared] == ["cosines_rounded"]
    # Over 64 positions only the sines of slow pairs tell that they were stretched.
    scaling = {**LLAMA3, "original_max_position_embeddings": 8192}
    wrong_base = pp.check(
        "rotary:8192x128",
        dumped(pp.encodings.rotary_frequencies(128, scaling=scaling)[0]),
    )
    assert wrong_base.alike is False


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_cosine_tables_of_any_length_and_dtype_are_alike(
    name: str,
) -> None:
    for model in made.PUBLISHED:
        ladder = replace(made.published(model), context=512)
        for rows in (64, 1024):
            angles = np.outer(np.arange(float(rows)), ladder.frequencies)
            cos, sin = (
                round_to_type((ladder.factor or 1) * f(angles), name)
                for f in (np.cos, np.sin)
            )
            findings = relate_ladders(
                ladder, read_dump({"cos": cos, "sin": sin}, "b").ladder
            )
            expected = "same_ladder" if name == "float32" else "cosines_rounded"
            assert [finding.cause for finding in findings] == [expected], (model, rows)


def test_check_names_pair_order_of_a_dump_as_the_difference(tmp_path: Path) -> None:
    a = llama(tmp_path / "a")
    b = engine(tmp_path / "b.npz", configured(), cosines=False, neighbours=True)
    result = pp.check(a, b)
    # transformers' neighbours take their angles from the first half of the cosines.
    assert causes(result) == ["pairs_wrong"]
    assert (result.causes[0].a, result.causes[0].b) == ("halves", "neighbours")


def multimodal(folder: Path, kind: Any = Qwen2VLConfig, **overrides: Any) -> str:
    """Save the configuration of a Qwen2-VL, 32 columns, whose pairs turn along three axes."""
    text = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "head_dim": 32,
    }
    rope = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [4, 6, 6],
        **overrides,
    }
    return f"{stated(folder, kind(text_config={**text, 'rope_parameters': rope}))}#text"


def test_check_names_other_axis_sections_of_a_dump(tmp_path: Path) -> None:
    a = multimodal(tmp_path / "a")
    dump = engine(tmp_path / "b.npz", configured(32, rope_theta=1e6))
    result = pp.check(a, dump)
    assert (result.alike, [skipped.what for skipped in result.not_compared]) == (
        None,
        ["sections"],
    )
    arrays = dict(np.load(dump))
    for sections, expected in (([4, 6, 6], []), ([6, 4, 6], ["sections"])):
        np.savez(tmp_path / "c.npz", sections=sections, **arrays)
        result = pp.check(a, str(tmp_path / "c.npz"))
        assert causes(result) == expected
        assert result.alike is not bool(expected)
        assert any(
            skipped.what == "sections" for skipped in result.not_compared
        )  # nor their order
    for in_turn, expected in ((False, []), (True, ["sections"])):
        np.savez(tmp_path / "c.npz", sections=[4, 6, 6], interleaved=in_turn, **arrays)
        result = pp.check(a, str(tmp_path / "c.npz"))
        assert (causes(result), result.not_compared) == (expected, ())
    vision = f"{tmp_path / 'a'}#vision"
    config: Any = Qwen2VLConfig()
    module = Qwen2VLVisionRotaryEmbedding(config.vision_config)
    ladder = module.inv_freq.double().numpy()
    np.savez(tmp_path / "d.npz", inv_freq=ladder)
    result = pp.check(vision, str(tmp_path / "d.npz"))
    assert (result.alike, result.causes) == (None, ())
    np.savez(tmp_path / "e.npz", inv_freq=ladder**0.75)
    assert causes(pp.check(vision, str(tmp_path / "e.npz"))) == ["base"]


def axes_of_pairs(config: Any) -> list[int]:
    """Ask the library which axis turns each pair: the one that moves it."""
    module: Any = Qwen3VLTextRotaryEmbedding(config)
    axes = []
    for axis in range(3):
        positions = torch.zeros(3, 1, 1)
        positions[axis] = 1
        axes.append(module(torch.zeros(1), positions)[1][0, 0, :16])
    return list(torch.stack(axes).argmax(0).tolist())


def test_interleaved_axis_sections_are_named_as_a_difference(tmp_path: Path) -> None:
    a = multimodal(tmp_path / "a")
    declared_copy = multimodal(tmp_path / "b", mrope_interleaved=True)
    result = pp.check(a, declared_copy)
    assert causes(result) == ["sections"]
    assert (result.causes[0].a, result.causes[0].b) == ("contiguous", "interleaved")
    resectioned = multimodal(
        tmp_path / "c", mrope_interleaved=True, mrope_section=[6, 5, 5]
    )
    assert [finding.a for finding in pp.check(a, resectioned).causes] == [
        [4, 6, 6],
        "contiguous",
    ]
    # Qwen3-VL does so whether or not its configuration says it.
    silent = multimodal(tmp_path / "d", Qwen3VLConfig, mrope_section=[6, 5, 5])
    record = next(
        finding
        for finding in pp.load_schemes(silent)
        if isinstance(finding, pp.schemes.Rotary)
    )
    assert "mrope_interleaved" not in (tmp_path / "d" / "config.json").read_text()
    text: Any = Qwen3VLConfig(
        **json.loads((tmp_path / "d" / "config.json").read_text())
    ).text_config
    axes = np.array(axes_of_pairs(text))
    for axis, omega in enumerate(record.along_axes().values()):
        np.testing.assert_allclose(omega, record.frequencies()[axes == axis])
    assert pp.check(resectioned, silent).alike


@pytest.mark.parametrize(
    ("arch", "expected"), [("qwen2vl", []), ("qwen3vl", ["sections"])]
)
def test_gguf_sections_interleave_as_its_architecture_does(
    arch: str, expected: list[str], tmp_path: Path
) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_embedding_length(64)
        writer.add_head_count(2)
        writer.add_rope_dimension_count(32)
        writer.add_rope_freq_base(1e6)
        writer.add_rope_dimension_sections([4, 6, 6, 0])

    b = write(
        tmp_path / "b.gguf", arch, {"token_embd.weight": np.ones((4, 64), "f4")}, add
    )
    assert causes(pp.check(multimodal(tmp_path / "a"), b)) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"query_pre_attn_scalar": WIDTH}, {}, []),
        ({"query_pre_attn_scalar": 4 * WIDTH}, {}, ["logit_scale"]),
        ({"attention_multiplier": WIDTH**-0.5}, {}, []),
        ({"attention_multiplier": 1 / WIDTH}, {}, ["logit_scale"]),
        ({"attn_logit_softcapping": 50.0}, {"attn_logit_softcapping": 50.0}, []),
        ({"attn_logit_softcapping": 50.0}, {"attn_logit_softcapping": None}, ["soft_cap"]),
    ],
)  # fmt: skip
def test_check_names_other_logit_scales_and_caps(
    a: dict[str, Any], b: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    result = pp.check(llama(tmp_path / "a", **a), llama(tmp_path / "b", **b))
    assert causes(result) == expected
    if expected == ["logit_scale"]:
        model = LlamaAttention(configured(), 0)
        assert result.causes[0].b == pytest.approx(model.scaling * WIDTH**0.5)


def test_logits_that_deepseek_scales_with_yarn(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "qk_rope_head_dim": 16,
    }
    sides = []
    for name, share in (("a", 1.0), ("b", 0.0)):
        rope = {**YARN, "rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": share}
        config = DeepseekV3Config(**sizes, rope_parameters=rope)
        stated(tmp_path / name, config)
        sides.append(DeepseekV3Attention(config, 0).scaling)
    result = pp.check(tmp_path / "a", tmp_path / "b")
    scale = next(finding for finding in result.causes if finding.cause == "logit_scale")
    assert scale.a / scale.b == pytest.approx(sides[0] / sides[1])


def test_a_gguf_that_does_not_state_the_scale_of_logits_says_so(tmp_path: Path) -> None:
    a = llama(tmp_path / "a", query_pre_attn_scalar=4 * WIDTH)
    result = pp.check(a, converted(tmp_path / "b.gguf"))
    assert result.alike
    assert "does not state" in str(result)


@pytest.mark.parametrize(
    ("model_type", "module", "turn"),
    [
        ("blt_local_encoder", "blt", "rotate_half"), ("cohere2_moe", "cohere2_moe", "rotate_half"),
        ("deepseek_v4", "deepseek_v4", "rotate_half"), ("moonshine", "moonshine", "rotate_half"),
        ("ernie4_5_vl_moe_text", "ernie4_5_vl_moe", "rotate_half_text"),
        ("glm4v_text", "glm4v", "rotate_half_llm"), ("glm_ocr_text", "glm_ocr", "rotate_half_llm"),
        ("hy_v4_vl_text", "hy_v4_vl", "rotate_half"),
    ],
)  # fmt: skip
def test_check_knows_architectures_with_neighbouring_pairs(
    model_type: str, module: str, turn: str, tmp_path: Path
) -> None:
    modeling = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    assert getattr(modeling, turn)(torch.tensor([1.0, 2, 3, 4])).tolist() == [
        -2,
        1,
        -4,
        3,
    ]
    a = llama(tmp_path / "a", model_type=model_type)
    result = pp.check(a, engine(tmp_path / "b.npz", configured(), neighbours=True))
    assert {finding.cause for finding in result.compared} >= {"same_pairs"}, str(result)


def test_equal_axis_sections_are_alike_in_any_stored_order(tmp_path: Path) -> None:
    axes = {}
    for model_type in ("qwen2_vl_text", "ernie4_5_vl_moe_text"):
        a = llama(
            tmp_path / model_type,
            model_type=model_type,
            rope={"mrope_section": [6, 6, 4]},
        )
        (rotary,) = pp.load_schemes(a)
        assert isinstance(rotary, Rotary)
        axes[model_type] = [
            len(axis_ladder) for axis_ladder in rotary.along_axes().values()
        ]
    assert axes == {"qwen2_vl_text": [6, 6, 4], "ernie4_5_vl_moe_text": []}


@pytest.mark.parametrize("name", ["Llama", "Glm", "Ernie4_5_Moe"])
def test_the_recipe_for_transformers_writes_what_the_model_computes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "check.md").read_text()
    recipe = text.split("\ntransformers (")[1].split("```py\n")[1].split("```")[0]
    sizes: dict[str, Any] = {
        "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "head_dim": 32,
        "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 16, "pad_token_id": 0,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    model.save_pretrained(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    exec(recipe, {"model": model})  # noqa: S102 - the documentation's own lines
    result = pp.check("a", "dump.npz")
    assert result.alike, str(result)
    assert {finding.cause for finding in result.compared} >= {"same_ladder", "same_pairs"}
    model_config = json.loads((tmp_path / "a" / "config.json").read_text())
    model_config["rope_parameters"]["rope_theta"] = 7e4
    (tmp_path / "a" / "config.json").write_text(json.dumps(model_config))
    assert causes(pp.check("a", "dump.npz")) == ["base"]


def trained(folder: Path, seed: int, kind: str) -> str:
    """Train a tiny model of so many steps to copy the token before, from its own seed."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    model: Any = (
        LlamaForCausalLM(LlamaConfig(
            **sizes, hidden_size=32, intermediate_size=32, num_attention_heads=2,
            num_hidden_layers=2, max_position_embeddings=32,
        ))
        if kind == "rotary"
        else GPT2LMHeadModel(GPT2Config(**sizes, n_embd=32, n_head=2, n_layer=2, n_positions=32))
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        tokens = torch.randint(3, 16, (16, 1)).expand(-1, 32) + torch.arange(32) % 2
        loss = model(input_ids=tokens % 16, labels=tokens % 16).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.0
    model.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ["rotary", "table"])
def test_two_trainings_of_one_architecture_are_no_fine_tuning(
    kind: str, tmp_path: Path
) -> None:
    a, b = (trained(tmp_path / str(seed), seed, kind) for seed in (1, 2))
    result = pp.check(a, b)
    names = [finding.cause for finding in (*result.causes, *result.compared)]
    assert "moved" not in names
    if kind == "rotary":
        assert result.exit_code == 7
        assert "another model" in str(result)
        assert pp.check(a, b, other_weights=True).alike
        assert causes(pp.check(a, b, same_weights=True)) == ["other_weights"]
    else:
        assert causes(result) == ["unrelated"]


# What cannot be told, and what cannot be.


def test_a_dump_without_a_query_cannot_tell_the_pairs(tmp_path: Path) -> None:
    omega = pp.encodings.rotary_frequencies(WIDTH, base=5e5)[0]
    np.savez(tmp_path / "b.npz", inv_freq=omega)
    a = llama(tmp_path / "a")
    result = pp.check(a, str(tmp_path / "b.npz"))
    assert (result.alike, result.causes) == (None, ())
    q = np.ones((1, WIDTH))
    np.savez(tmp_path / "c.npz", inv_freq=omega, q=q, q_rotated=q)  # at position 0
    assert pp.check(a, str(tmp_path / "c.npz")).alike is None


def test_frequencies_that_do_not_turn_the_query_of_their_dump_are_refused(
    tmp_path: Path,
) -> None:
    a, position = llama(tmp_path / "a"), 200
    omega, other_omega = (
        pp.encodings.rotary_frequencies(WIDTH, base=base)[0] for base in (5e5, 1e4)
    )
    q = np.random.default_rng(0).normal(size=(1, WIDTH))
    pairs = (q[:, : WIDTH // 2] + 1j * q[:, WIDTH // 2 :]) * np.exp(
        1j * position * other_omega
    )
    rotated_query = np.concatenate([pairs.real, pairs.imag], axis=1)
    np.savez(
        tmp_path / "b.npz",
        inv_freq=omega,
        position=position,
        q=q,
        q_rotated=rotated_query,
    )
    with pytest.raises(InvalidCheckpoint, match="frequencies that the engine uses"):
        pp.check(a, tmp_path / "b.npz")
    np.savez(
        tmp_path / "b.npz",
        inv_freq=other_omega,
        position=position,
        q=q,
        q_rotated=rotated_query,
    )
    assert causes(pp.check(a, tmp_path / "b.npz")) == ["base"]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"inv_freq": np.array([1.0, np.nan])}, "inv_freq contains NaN"),
        ({"inv_freq": np.zeros(4)}, "inv_freq of shape"),
        ({"inv_freq": np.array([1.0, 1e-300])}, "inv_freq of shape"),
        ({"inv_freq": np.zeros(0)}, "inv_freq of shape"),
        ({"inv_freq": np.ones(4), "sections": [1.5, 2.5]}, "sections of shape"),
        ({"inv_freq": np.ones(4), "sections": [-1, 5]}, "sections of shape"),
        ({"cos": np.ones((4, 3)), "sin": np.zeros((4, 2))}, "cos and sin of shape"),
        ({"cos": np.ones((3, 0)), "sin": np.zeros((3, 0))}, "cos and sin of shape"),
        ({"cos": np.ones((4, 4)), "sin": np.ones((4, 4)) * 3 + np.eye(4)}, "not the same everywh"),
        ({"cos": np.cos(LATE), "sin": np.sin(LATE)}, "not that of position 0"),
        ({"inv_freq": np.ones(2), "q": np.ones((1, 4))}, "Write both"),
        ({"inv_freq": np.ones(2), "q": np.ones(4), "q_rotated": np.ones(6)}, "q and q_rotated"),
        ({"inv_freq": np.array([{}], dtype=object)}, "stored as object"),
        ({"inv_freq": np.ones(4) + 1j}, "stored as complex128. Write it as float32"),
        ({"cos": np.cos(TURNS).T, "sin": np.sin(TURNS).T}, r"\[positions, pairs\], from position"),
    ],
)  # fmt: skip
def test_a_dump_that_cannot_be_is_refused_in_one_sentence(
    arrays: dict[str, Any], words: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(pp.PosprobeError, match=words) as refused:
        pp.check("rotary:4096x8", str(tmp_path / "b.npz"))
    assert refused.value.exit_code == 4
    message = str(refused.value).removeprefix(str(tmp_path))
    assert ("sections" in message) == (
        "sections" in arrays
    )  # no list of all that there can be


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ("nan", 7, "NaN"), ("cut", 4, "model.safetensors"), ("codes", 7, "stored as I8"),
        ("shape", 4, "which does not divide 2"), ("dump first", 4, "Name the checkp"),
        ("neither", 7, "a dump has inv_freq"), ("config", 4, "rope_theta"),
        ("missing", 3, "no-such"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(
    files: str, code: int, words: str, cli: Cli, tmp_path: Path
) -> None:
    a, b = llama(tmp_path / "a"), str(tmp_path / "b")
    tensors: dict[str, NDArray[Any]] = dict(projections())
    name = "model.layers.0.self_attn.q_proj.weight"
    match files:
        case "nan":
            tensors[name][3] = np.nan
            llama(tmp_path / "b", tensors)
        case "codes":
            llama(
                tmp_path / "b",
                {**tensors, name: np.zeros((HEADS * WIDTH, HIDDEN), np.int8)},
            )
        case "shape":
            llama(tmp_path / "b", {**tensors, name: tensors[name].reshape(2, -1)})
        case "config":
            llama(tmp_path / "b", rope={"rope_theta": [1e4]})
        case "cut":
            llama(tmp_path / "b")
            file = tmp_path / "b" / "model.safetensors"
            file.write_bytes(file.read_bytes()[:-1000])
        case "dump first":
            a, b = engine(tmp_path / "b.npz", configured()), a
        case "neither":
            b = str(tmp_path / "b.npz")
            np.savez(b, no_such_array=np.ones(4))
        case "missing":
            b = str(tmp_path / "no-such")
    completed = cli("check", a, b)
    assert (completed.code, words in completed.out + completed.err) == (code, True), (
        completed
    )
    assert "Traceback" not in completed.err
    assert len([line for line in completed.err.splitlines() if words in line]) <= 1


@pytest.mark.parametrize(
    ("a", "b", "cause"),
    [
        ("alibi:512x8", "alibi:1024x8", None),
        ("alibi:512x8", "alibi:512x12", "heads"),
        ("t5:512x32", "t5:512x32", None),
        ("t5:512x32", "t5:512x32,max=64", "buckets"),
    ],
)
def test_slopes_and_buckets(a: str, b: str, cause: str | None) -> None:
    result = pp.check(a, b)
    assert result.alike is (cause is None)
    assert [finding.what for finding in result.causes[:1]] == ([cause] if cause else [])


def test_neither_has_a_position(tmp_path: Path) -> None:
    for name in "ab":
        save_file({"x": np.ones((3, 4), "f4")}, tmp_path / f"{name}.safetensors")
    with pytest.raises(NoPositionTable):
        pp.check(tmp_path / "a.safetensors", tmp_path / "b.safetensors")


def test_the_verdict_comes_first_and_the_report_shows_the_difference(
    cli: Cli, tmp_path: Path
) -> None:
    a = llama(tmp_path / "a", rope=LLAMA3)
    b, folder = llama(tmp_path / "b"), tmp_path / "out"
    completed = cli("check", a, b, "--out", str(folder))
    headline = completed.out.partition(".")[0]
    assert (completed.code, headline.partition(": ")[0]) == (6, "Different")
    document = json.loads((folder / "analysis.json").read_text())
    assert [cause["cause"] for cause in document["causes"]] == ["parts_lost"]
    assert problems("check", document) == []
    printed = cli("check", a, b, "--json")
    json_document = json.loads(printed.out)
    assert (printed.code, json_document["schema"], json_document["alike"]) == (
        6,
        "posprobe.check/1",
        False,
    )
    assert json_document["causes"] == document["causes"]
    assert cli("check", a, a, "--all").code == 0
    unlike = cli("check", a, "sample:digits-vit")
    assert (unlike.code, "there is nothing that both have" in unlike.out) == (7, True)
    assert document["environment"]["command"].startswith("posprobe check")
    scaled, _ = pp.encodings.rotary_frequencies(WIDTH, base=5e5, scaling=LLAMA3)
    plain, _ = pp.encodings.rotary_frequencies(WIDTH, base=5e5)
    with np.load(folder / "arrays.npz") as arrays:
        assert arrays.files == ["ladder"]
        np.testing.assert_allclose(arrays["ladder"], plain / scaled, rtol=1e-6)
    figure_names = {path.stem for path in (folder / "figures").iterdir()}
    assert figure_names == {"ladder", "projections"}
    page = (folder / "report.html").read_text()
    assert f"{headline}. " in page
    assert document["causes"][0]["sentence"] in page
    assert "Matters from distance" in page
    pp.report.render_bundle(folder)
    assert (folder / "report.html").read_text() == page


def test_a_report_of_tables_has_the_error_of_each_row() -> None:
    draw = np.random.default_rng(0)
    rows = np.cumsum(draw.normal(size=(40, 16)), axis=0)
    changed_rows = rows[2:].copy()
    changed_rows[10] += 50
    result = pp.check(pp.table(rows), pp.table(changed_rows))
    assert causes(result) == ["rows_cut", "retrained"]
    errors = result.arrays()["rows"]
    size = np.median(np.linalg.norm(rows[2:], axis=1))
    assert np.flatnonzero(np.isnan(errors)).tolist() == [0, 1]
    assert np.flatnonzero(errors > 0).tolist() == [12]
    assert errors[12] == pytest.approx(50 * 4 / size)
    (line,) = result.figures()["rows"]().axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), errors)


def test_a_report_without_anything_to_draw_is_rendered_again(tmp_path: Path) -> None:
    result = pp.check("alibi:64x4", "sinusoidal:16x8")
    folder = result.save(tmp_path / "out")
    assert result.figures() == {}
    page = (folder / "report.html").read_text()
    assert "Cannot tell." in page
    pp.report.render_bundle(folder)
    assert (folder / "report.html").read_text() == page


def test_a_check_answers_each_question_with_the_words_of_its_page() -> None:
    result = pp.check("rotary:4096x128,base=500000", "rotary:4096x128")
    assert result.answers["ladder"].answer == "no"
    assert result.answers["columns"].answer == "yes"
    document = result.to_dict()
    sentences = [f["sentence"] for f in (*document["causes"], *document["compared"])]
    assert result.answers["weights"].answer == "cannot tell"
    sentences += [f"Not compared: {x['reason']}." for x in document["not_compared"]]
    assert [answer.sentence for answer in result.answers] == sentences
    frame = result.answers.to_pandas()
    assert frame["question"].tolist() == [answer.question for answer in result.answers]
    assert frame["sentence"].tolist() == sentences


def test_a_check_that_compares_nothing_cannot_tell() -> None:
    (answer,) = pp.check("alibi:64x4", "sinusoidal:16x8").answers
    assert answer.answer == "cannot tell"
    assert answer.sentence.startswith("Not compared: ")
