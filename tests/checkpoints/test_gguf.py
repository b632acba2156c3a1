"""GGUF: what llama.cpp's converters write is read back."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from made_gguf import write
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.checkpoints.gguf import GGML_TYPES
from posprobe.errors import InvalidCheckpoint, MissingExtra
from posprobe.families import inspect
from posprobe.schemes import LinearBias, RelativeBias, Rotary

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((16, 256)).astype(np.float32)


def quant(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


def gpt2(writer: gguf.GGUFWriter) -> None:
    writer.add_context_length(16)
    writer.add_embedding_length(256)
    writer.add_head_count(4)


EVENLY_SPACED_TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


@pytest.mark.parametrize("kind", EVENLY_SPACED_TYPES)
def test_quantised_blocks_give_the_librarys_numbers_and_the_step(
    kind: str, tmp_path: Path
) -> None:
    path = write(
        tmp_path / "model.gguf", "gpt2", {"position_embd.weight": TABLE}, gpt2,
        {"position_embd.weight": quant(kind)},
    )  # fmt: skip
    table = pp.load(path)
    blocks = gguf.quants.quantize(TABLE, quant(kind))
    assert np.array_equal(table.values, gguf.quants.dequantize(blocks, quant(kind)))
    quantisation = table.source.quantisation
    assert quantisation is not None
    assert quantisation.name == kind
    # The scale is the first number of a block, in half precision.
    scales = np.abs(
        blocks.reshape(-1, GGML_TYPES[quant(kind)][2])[:, :2].copy().view(np.float16)
    )
    assert quantisation.step == pytest.approx(float(np.median(scales)), rel=1e-3)
    for block, scale in zip(table.values.reshape(-1, 32), scales[:, 0], strict=True):
        steps = np.diff(np.unique(block.astype(np.float64))) / float(scale)
        assert np.allclose(steps, np.round(steps), atol=1e-2)
    # A number is off by half a step at most; the largest of a block may be cut by one more.
    assert np.abs(table.values - TABLE).max() <= 1.01 * scales.max()


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_steps_of_nested_scales_are_those_between_values(
    kind: str, tmp_path: Path
) -> None:
    width, size = GGML_TYPES[quant(kind)][1:]
    blocks = RNG.integers(0, 256, (64, size), dtype=np.uint8)
    half = {"Q2_K": 80, "Q3_K": 108, "Q4_K": 0, "Q5_K": 0, "Q6_K": 208}[kind]
    blocks[:, half : half + 2] = np.float16(0.01).reshape(1).view(np.uint8)
    if kind in ("Q2_K", "Q4_K", "Q5_K"):
        blocks[:, half + 2 : half + 4] = 0
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "gpt2")
    writer.add_tensor("position_embd.weight", blocks, raw_dtype=quant(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    stored = open_local(tmp_path / "model.gguf").read("position_embd.weight")
    assert stored.values.shape == (64, width)
    assert stored.info.quantisation is not None
    # Within a run of 16 numbers, all of one scale, values are whole steps apart.
    runs = stored.values.reshape(-1, 16).astype(np.float64)
    gaps = [np.diff(np.unique(run)) for run in runs]
    smallest = [gap[gap > 1e-9].min() for gap in gaps if (gap > 1e-9).any()]
    step = stored.info.quantisation.step
    assert step is not None
    assert step <= 1.001 * float(np.median(smallest))
    assert step >= 0.4 * float(np.median(smallest))


def test_sizes_of_types_are_those_of_the_package() -> None:
    package_sizes = {
        int(kind): (kind.name, *sizes)
        for kind, sizes in gguf.constants.GGML_QUANT_SIZES.items()
    }
    assert {
        number: type_info
        for number, type_info in GGML_TYPES.items()
        if number in package_sizes
    } == {
        number: type_info
        for number, type_info in package_sizes.items()
        if number in GGML_TYPES
    }
    assert {0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 30} <= set(package_sizes) & set(
        GGML_TYPES
    )


def test_header_and_places_are_those_of_the_packages_reader(tmp_path: Path) -> None:
    tensors = {
        f"blk.{n}.weight": RNG.standard_normal((n + 1, 3)).astype("f4") for n in range(5)
    }
    path = write(
        tmp_path / "model.gguf", "gpt2", {**tensors, "position_embd.weight": TABLE}, gpt2
    )
    ours = open_local(Path(path)).tensors
    for tensor in gguf.GGUFReader(path).tensors:
        info = ours[tensor.name]
        assert info.shape == tuple(map(int, tensor.shape[::-1]))
        assert (info.start, info.stop) == (
            tensor.data_offset,
            tensor.data_offset + tensor.n_bytes,
        )


# --- encodings without a table ---


def rotary(path: str) -> Rotary:
    (scheme,) = pp.load_schemes(path)
    assert isinstance(scheme, Rotary)
    return scheme


def llama(writer: gguf.GGUFWriter) -> None:
    writer.add_context_length(4096)
    writer.add_embedding_length(256)
    writer.add_head_count(4)
    writer.add_rope_dimension_count(64)
    writer.add_rope_freq_base(500_000.0)


def same_as_config(path: str, folder: Path, config: Mapping[str, Any]) -> None:
    """Compare with the scheme that a config.json of transformers gives."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"x": np.zeros(1, np.float32)}, folder / "model.safetensors")
    ours, reference = rotary(path), rotary(str(folder))
    assert np.allclose(ours.frequencies(), reference.frequencies(), rtol=2e-6, atol=0)
    assert ours.attention_factor() == pytest.approx(
        reference.attention_factor(), rel=1e-6
    )
    assert (ours.head_dim, ours.base, ours.rule) == (
        reference.head_dim,
        reference.base,
        reference.rule,
    )
    assert ours.max_positions == reference.max_positions
    assert ours.training_length == reference.training_length


LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
    "max_position_embeddings": 4096,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (None, {"rope_type": "default"}),
        ("linear", {"rope_type": "linear", "factor": 4.0}),
        (
            "yarn",
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 1024,
            },
        ),
    ],
)
def test_a_rotary_ladder_is_that_of_the_configuration(
    kind: str | None, parameters: dict[str, Any], tmp_path: Path
) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        llama(writer)
        if kind:
            writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
            writer.add_rope_scaling_factor(4.0)
        if kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(1024)

    path = write(tmp_path / "model.gguf", "llama", {"x": TABLE}, add)
    config = {**LLAMA, "rope_parameters": {"rope_theta": 500_000.0, **parameters}}
    same_as_config(path, tmp_path / "model", config)
    assert rotary(path).interleaved  # llama.cpp reorders queries and keys
    assert rotary(path).partial == 1.0


def test_the_divisors_of_llama_3_are_recognised_as_its_rule(tmp_path: Path) -> None:
    # As the converter of llama.cpp computes them (section on Llama 3.1 of its model card).
    divisors = []
    for frequency in 500_000.0 ** -(np.arange(0, 64, 2) / 64):
        wavelength = 2 * np.pi / frequency
        if wavelength < 8192 / 4:
            divisors.append(1.0)
        elif wavelength > 8192:
            divisors.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / 3
            divisors.append(1 / ((1 - smooth) / 8 + smooth))
    tensors = {"rope_freqs.weight": np.array(divisors, np.float32), "x": TABLE}
    path = write(tmp_path / "model.gguf", "llama", tensors, llama)
    parameters = {
        "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip
    same_as_config(path, tmp_path / "model", {**LLAMA, "rope_parameters": parameters})


def test_gguf_rope_divisors_divide_the_frequencies(tmp_path: Path) -> None:
    divisors = np.linspace(1, 3, 32).astype(np.float32)
    tensors = {"rope_freqs.weight": divisors, "x": TABLE}
    scheme = rotary(write(tmp_path / "model.gguf", "llama", tensors, llama))
    ladder = 500_000.0 ** -(np.arange(0, 64, 2) / 64)
    assert np.allclose(scheme.frequencies(), ladder / divisors, rtol=1e-5, atol=0)
    assert scheme.attention_factor() == 1.0
    divisors[-1] = np.inf
    path = write(tmp_path / "model.gguf", "llama", tensors, llama)
    with pytest.raises(
        InvalidCheckpoint, match="a mapping of finite numbers is expected"
    ):
        rotary(path)


def test_factors_of_longrope_are_read_from_their_tensors(tmp_path: Path) -> None:
    def phi(writer: gguf.GGUFWriter) -> None:
        llama(writer)
        writer.add_rope_scaling_orig_ctx_len(1024)
        writer.add_rope_scaling_attn_factors(1.19)

    long_factors, short_factors = (
        np.linspace(1, 40, 32, dtype="f4"),
        np.linspace(1, 2, 32, dtype="f4"),
    )
    tensors = {
        "rope_factors_long.weight": long_factors,
        "rope_factors_short.weight": short_factors,
        "x": TABLE,
    }
    path = write(tmp_path / "model.gguf", "phi3", tensors, phi)
    config = {
        **LLAMA, "model_type": "phi3", "original_max_position_embeddings": 1024,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 500_000.0, "attention_factor": 1.19,
            "long_factor": long_factors.astype(float).tolist(),
            "short_factor": short_factors.astype(float).tolist(),
        },
    }  # fmt: skip
    same_as_config(path, tmp_path / "model", config)
    assert not rotary(path).interleaved


def test_alibi_is_read_from_its_largest_bias(tmp_path: Path) -> None:
    def mpt(writer: gguf.GGUFWriter) -> None:
        writer.add_context_length(512)
        writer.add_head_count(8)
        writer.add_max_alibi_bias(8.0)

    (scheme,) = pp.load_schemes(write(tmp_path / "model.gguf", "mpt", {"x": TABLE}, mpt))
    assert isinstance(scheme, LinearBias)
    assert np.allclose(scheme.slopes, 2.0 ** -np.arange(1, 9))
    assert scheme.max_positions == 512


def test_the_buckets_of_t5_are_those_of_transformers(tmp_path: Path) -> None:
    def t5(writer: gguf.GGUFWriter) -> None:
        writer.add_head_count(4)
        writer.add_relative_attn_buckets_count(32)

    tables = {
        part: RNG.standard_normal((32, 4)).astype(np.float32) for part in ("enc", "dec")
    }
    ours = write(
        tmp_path / "t5.gguf", "t5",
        {f"{part}.blk.0.attn_rel_b.weight": table for part, table in tables.items()}, t5,
    )  # fmt: skip
    ending = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    save_file(
        {f"{part}oder.{ending}": table for part, table in tables.items()},
        tmp_path / "model.safetensors",
    )
    schemes = pp.load_schemes(ours)
    assert len(schemes) == 2
    for scheme in schemes:
        part = "decoder" if "dec" in scheme.name else "encoder"
        (reference,) = (
            s
            for s in pp.load_schemes(str(tmp_path / "model.safetensors"))
            if part in s.name
        )
        assert isinstance(scheme, RelativeBias)
        assert isinstance(reference, RelativeBias)
        assert scheme.causal == reference.causal == (part == "decoder")
        assert np.array_equal(scheme.curves(40), reference.curves(40))


# --- hostile files ---


def header(
    settings: bytes, count: int, tensors: bytes = b"", tensor_count: int = 0
) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, count) + settings + tensors


def entry(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return struct.pack("<Q", len(name)) + name + sizes + struct.pack("<IQ", kind, offset)


KEY = struct.pack("<Q", 1) + b"k"
LIES = {
    "magic": (b"GGUT" + bytes(99), "does not begin as one"),
    "version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
    "byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
    "settings": (header(b"", 2**60), f"{2**60} settings"),
    "tensors": (
        header(b"", 0, bytes(3_000_000), 100_001),
        "100001 tensors are announced",
    ),
    "a long name": (
        header(struct.pack("<Q", 2**62) + bytes(40), 1),
        f"{2**62} bytes are",
    ),
    "endless texts": (
        header(KEY + struct.pack("<IIQ", 9, 8, 2**40) + bytes(2**16), 1),
        f"{2**40} texts are",
    ),
    "endless numbers": (
        header(KEY + struct.pack("<IIQ", 9, 0, 2**61), 1),
        f"{2**61} bytes are",
    ),
    "nested arrays": (
        header(KEY + struct.pack("<IIQIQ", 9, 9, 1, 9, 1), 1),
        "is not read",
    ),
    "no kind": (header(KEY + struct.pack("<I", 99) + bytes(9), 1), "kind 99"),
    "twice": (header(2 * (KEY + struct.pack("<IB", 0, 1)), 2), "'k' stands there twice"),
    "no text": (
        header(struct.pack("<Q", 1) + b"\xff" + struct.pack("<IB", 0, 1), 1),
        "can't decode",
    ),
    "alignment": (
        header(
            struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, 3), 1
        ),
        "not a power of two",
    ),
    "huge tensor": (
        header(b"", 0, entry(b"a", (2**40, 2**40), 0, 0), 1),
        "would be the bytes",
    ),
    "dimensions": (header(b"", 0, entry(b"a", (1,) * 9, 0, 0), 1), "9 dimensions"),
    "no type": (header(b"", 0, entry(b"a", (1,), 77, 0) + bytes(64), 1), "type 77"),
    "half a block": (
        header(b"", 0, entry(b"a", (33,), 8, 0) + bytes(64), 1),
        "whole number",
    ),
    "offset": (
        header(b"", 0, entry(b"a", (8,), 0, 2**63) + bytes(64), 1),
        "would be the bytes",
    ),
    "overlap": (
        header(b"", 0, entry(b"a", (4,), 0, 0) + entry(b"b", (4,), 0, 8) + bytes(64), 2),
        "the one before it ends",
    ),
    "same name": (
        header(b"", 0, 2 * entry(b"a", (1,), 0, 0) + bytes(64), 2),
        "there twice",
    ),
}


@pytest.mark.parametrize("case", LIES)
def test_a_false_gguf_header_is_one_clear_error(case: str, tmp_path: Path) -> None:
    content, says = LIES[case]
    (tmp_path / "lie.gguf").write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=f"^[^\n]*lie.gguf: [^\n]*{says}[^\n]*$"):
        open_local(tmp_path / "lie.gguf")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = Path(
        write(tmp_path / "cut.gguf", "gpt2", {"position_embd.weight": TABLE}, gpt2)
    )
    content = path.read_bytes()
    for length in (0, 3, 5, 20, 30, 200, 5_000, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(InvalidCheckpoint, match=r"cut\.gguf"):
            open_local(path)


def test_without_the_package_blocks_name_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        tmp_path / "model.gguf", "gpt2", {"position_embd.weight": TABLE}, gpt2,
        {"position_embd.weight": quant("Q8_0")},
    )  # fmt: skip
    monkeypatch.setattr("posprobe.errors.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"uv sync --extra gguf"):
        pp.load(path)
    (item,) = inspect(path)
    assert item["quantisation"] == "Q8_0"
