"""Make the tiny models of other libraries that the tests read, with those libraries themselves.

They are kept in ``tests/data/formats``, since Keras, KerasHub, JAX and Flax take longer to import
than the tests may. In an environment that has them, one library at a time:
``python tools/format_samples.py keras`` (Keras 3.15.1 and KerasHub 0.32.0, installed without what
it depends on, made the files), ``python tools/format_samples.py flax`` (Flax 0.12.8),
``python tools/format_samples.py diffusers`` (0.42.1) and
``python tools/format_samples.py onnxruntime`` (1.32.0). Each parameter holds the numbers of
`numbers`, so that the tests know all of them; of quantised ones onnxruntime's answer is kept too.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "formats"


def numbers(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Return what a parameter of a shape holds."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def filled(model: Any) -> Any:
    """Give every parameter its numbers: the seed is the place among the model's weights."""
    for seed, weight in enumerate(model.weights):
        if "float" in str(weight.dtype):
            weight.assign(numbers(tuple(weight.shape), seed))
    return model


def keras_files() -> None:
    """Write Keras 3's formats, and the weights of KerasHub's backbones."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import keras_hub
    from keras_hub import layers

    tokens = keras.Input((None,), dtype="int32")
    hidden = layers.TokenAndPositionEmbedding(20, 12, 8)(tokens)
    places = layers.PositionEmbedding(12, name="my_places")
    hidden = hidden + places(hidden)
    hidden = hidden + layers.SinePositionEncoding()(hidden)
    model = filled(keras.Model(tokens, keras.layers.Dense(3)(hidden)))
    # What the layer adds to a sequence of 5 are its first 5 rows.
    position_rows = places(np.zeros((1, 5, 8), "f4")).detach().cpu().numpy()[0]
    np.testing.assert_array_equal(position_rows, places.weights[0].numpy()[:5])
    model.save(FOLDER / "layers.keras")
    model.save(FOLDER / "layers_keras2.h5")
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8}
    words = sizes | {"vocabulary_size": 20, "intermediate_dim": 16}
    models = keras_hub.models
    backbones = {
        "gpt2": models.GPT2Backbone(max_sequence_length=12, **words),
        "bart": models.BartBackbone(max_sequence_length=12, **words),
        "vit": models.ViTBackbone(
            image_shape=(16, 16, 3), patch_size=4, mlp_dim=16, **sizes
        ),
    }
    for name, backbone in backbones.items():
        filled(backbone).save_weights(FOLDER / f"{name}.weights.h5")
    half = keras_hub.layers.PositionEmbedding(
        6, dtype="bfloat16", name="position_embedding"
    )
    wide = keras.Input((None, 8), dtype="bfloat16")
    filled(keras.Model(wide, half(wide))).save_weights(FOLDER / "bfloat16.weights.h5")


def keras_shard_files() -> None:
    """Write weights in shards."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=20, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16,
        max_sequence_length=12,
    )  # fmt: skip
    (FOLDER / "keras_shards").mkdir(exist_ok=True)
    place = FOLDER / "keras_shards" / "model.weights.json"
    filled(backbone).save_weights(place, max_shard_size=2000 / 2**30)


def flax_files() -> None:
    """Write what ``flax.serialization`` makes of parameters."""
    import flax.serialization
    import ml_dtypes

    model = {
        "bert": {
            "embeddings": {
                "position_embeddings": {"embedding": numbers((12, 8), 0)},
                "word_embeddings": {"embedding": numbers((20, 8), 1)},
            },
            "pooler": {"kernel": numbers((8, 8), 2).astype(ml_dtypes.bfloat16)},
        }
    }
    (FOLDER / "bert.msgpack").write_bytes(flax.serialization.to_bytes(model))


def diffusers_files() -> None:
    """Write a folder of diffusers with two text encoders, an image encoder and a UNet.

    Other numbers are zeros. A transformer with a table of patches is added to the list: no pipeline
    has both networks.
    """
    import json

    import diffusers
    import torch
    import transformers

    sizes: dict[str, Any] = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
    }
    heads: dict[str, Any] = {"num_attention_heads": 2, "projection_dim": 8}
    words: dict[str, Any] = {"vocab_size": 10, "max_position_embeddings": 12}
    text = transformers.CLIPTextConfig(**sizes, **heads, **words)
    image = transformers.CLIPVisionConfig(image_size=16, patch_size=4, **sizes, **heads)
    pipeline = diffusers.StableDiffusionXLPipeline(
        vae=diffusers.AutoencoderKL(block_out_channels=(2,), norm_num_groups=1, layers_per_block=1),
        text_encoder=transformers.CLIPTextModel(text),
        text_encoder_2=transformers.CLIPTextModelWithProjection(text),
        image_encoder=transformers.CLIPVisionModelWithProjection(image),
        unet=diffusers.UNet2DConditionModel(
            sample_size=8, block_out_channels=(2, 2), norm_num_groups=1, layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=16,
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=1,
        ),
        scheduler=diffusers.EulerDiscreteScheduler(), tokenizer=None, tokenizer_2=None,
    )  # fmt: skip
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=1, attention_head_dim=4,
        num_attention_heads=2, joint_attention_dim=8, caption_projection_dim=8,
        pooled_projection_dim=8, pos_embed_max_size=6,
    )  # fmt: skip
    seeds = {"text_encoder": 1, "text_encoder_2": 2, "image_encoder": 3}
    models = {name: getattr(pipeline, name) for name in ("vae", "unet", *seeds)}
    for name, model in (models | {"transformer": transformer}).items():
        for tensor, weight in model.named_parameters():
            weight.data.zero_()
            if tensor.endswith("position_embedding.weight"):
                weight.data.copy_(
                    torch.from_numpy(numbers(tuple(weight.shape), seeds[name]))
                )
    pipeline.save_pretrained(FOLDER / "diffusers")
    transformer.save_pretrained(FOLDER / "diffusers" / "transformer")
    index = FOLDER / "diffusers" / "model_index.json"
    index_entries = json.loads(index.read_text())
    index_entries["transformer"] = ["diffusers", "SD3Transformer2DModel"]
    index.write_text(json.dumps(index_entries, indent=2) + "\n")


def onnxruntime_files() -> None:
    """Write models that gather rows of a table of 4 and 8 bits, and the rows that come."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper, save

    types = {"uint4": TensorProto.UINT4, "int4": TensorProto.INT4}
    rng, answers = np.random.default_rng(0), {}
    for name in (
        "uint4",
        "uint4_zero",
        "int4",
        "int4_zero",
        "bytes4",
        "bytes4_zero",
        "bytes8",
    ):
        kind, _, zero = name.partition("_")
        bits, low = 8 if kind == "bytes8" else 4, -8 if kind == "int4" else 0

        def tensor(label: str, shape: tuple[int, int], kind: str = kind, low: int = low,
                   bits: int = bits) -> Any:  # fmt: skip
            codes = rng.integers(low, low + 2**bits, shape)
            if kind in types:
                return helper.make_tensor(
                    label, types[kind], shape, codes.reshape(-1).tolist()
                )
            if bits == 4:
                codes = np.pad(codes, ((0, 0), (0, shape[1] % 2)))
                codes = codes[:, ::2] | codes[:, 1::2] << 4
            return numpy_helper.from_array(codes.astype(np.uint8), label)

        initializers = [
            tensor("wpe.weight_Q4", (12, 40)),
            numpy_helper.from_array(np.arange(12)[None], "places"),
            numpy_helper.from_array(
                rng.uniform(0.01, 0.1, (12, 3)).astype("f4"), "scales"
            ),
            *([tensor("zeros", (12, 3))] if zero else []),
        ]
        node = helper.make_node(
            "GatherBlockQuantized", [tensor.name for tensor in initializers], ["rows"],
            name="/wpe/Gather",
            domain="com.microsoft", block_size=16, bits=bits, quantize_axis=1,
        )  # fmt: skip
        rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, None)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph([node], "graph", [], [rows], initializers)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        save(model, FOLDER / f"{name}.onnx")
        (answer,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})
        answers[name] = answer[0]
    np.savez(FOLDER / "onnxruntime_answers.npz", **answers)


if __name__ == "__main__":
    writers = {
        "keras": keras_files,
        "keras_shards": keras_shard_files,
        "flax": flax_files,
        "diffusers": diffusers_files,
        "onnxruntime": onnxruntime_files,
    }
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", choices=writers, help="whose files are made")
    library = parser.parse_args().library
    FOLDER.mkdir(parents=True, exist_ok=True)
    writers[library]()
