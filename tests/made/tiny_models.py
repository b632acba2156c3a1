"""Tiny models of common libraries, and the positions that their own forward pass uses.

Nothing here knows posprobe's rules. Which row of a table serves which position is found out by
changing one row at a time and looking at which token changes on its way into the first layer.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn

logs: Any = transformers.utils.logging
logs.disable_progress_bar()
logs.set_verbosity_error()
torch.set_num_threads(1)

BERT = "embeddings.position_embeddings.weight"
CLIP = "embeddings.position_embedding.weight"
VIT = "embeddings.position_embeddings"
LLAMA4 = "positional_embedding_vlm"

#: (height, width) of images and of their patches; neither is square.
IMAGE = (28, 42)
PATCH = (7, 14)
VOCABULARY = 30


@dataclass(frozen=True)
class Rows:
    """Use of the rows of a table in a forward pass.

    ``positions`` lists rows in the order of the positions they serve, ``grid`` their arrangement
    for images; ``special`` maps a row to the parameter whose token it is added to, ``unused`` are
    the rows that no input of full length touches.
    """

    positions: list[int]
    grid: tuple[int, int] | None
    special: dict[int, str]
    unused: list[int]


@dataclass(frozen=True)
class Tiny:
    """A model, its table, and a way to call it.

    ``layer`` is the first layer of the part that the table belongs to. ``call`` takes the number
    of tokens for text and an image for vision. ``tokens`` are parameters of special tokens.
    """

    model: Any
    table: Tensor
    layer: nn.Module
    call: Callable[[Any], object]
    image: Tensor | None = None
    patch: tuple[int, int] = PATCH
    tokens: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> Tensor:
        """The table as ``[rows, width]``; writing to it changes the model."""
        return self.table.data.reshape(-1, self.table.shape[-1])

    @torch.no_grad()
    def probe(self) -> Rows:
        """Return which row serves which position, by changing one row at a time."""
        inputs = self.find_max_length() if self.image is None else self.image
        original = self.embed(inputs)
        token_of = {}
        for row in range(len(self.rows)):
            with changed_view(self.rows[row]):
                changed_tokens = _differ(original, self.embed(inputs))
            assert len(changed_tokens) < 2, (
                f"row {row} reaches the tokens {changed_tokens}"
            )
            token_of.update(dict.fromkeys(changed_tokens, row))
        if self.image is None:
            order: list[int] = list(range(len(original)))
            grid = None
        else:
            order, grid = self._patches(original)
        special = {
            row: self._token(token, original, inputs)
            for token, row in token_of.items()
            if token not in order
        }
        return Rows(
            [token_of[token] for token in order],
            grid,
            special,
            sorted(set(range(len(self.rows))) - set(token_of.values())),
        )

    def embed(self, inputs: object) -> Tensor:
        captured: list[Tensor] = []

        def look(
            _: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]
        ) -> None:
            hidden_states = next(
                (v for k, v in kwargs.items() if k.startswith("hidden_state")), None
            )
            captured.append(
                args[0]
                if args
                else hidden_states
                if hidden_states is not None
                else kwargs["x"]
            )

        hook = self.layer.register_forward_pre_hook(look, with_kwargs=True)
        try:
            self.call(inputs)
        finally:
            hook.remove()
        return captured[0][0].clone()

    def find_max_length(self) -> int:
        """Return the longest input that the model accepts."""
        for length in range(len(self.rows), 0, -1):
            try:
                self.embed(length)
            except (IndexError, ValueError, RuntimeError):
                continue
            return length
        raise AssertionError("the model accepts no input")

    def _patches(self, original: Tensor) -> tuple[list[int], tuple[int, int]]:
        """Return the tokens of the patches row by row, and the grid."""
        assert self.image is not None
        height, width = self.patch
        grid = self.image.shape[2] // height, self.image.shape[3] // width
        order: list[int] = []
        for r, c in itertools.product(*map(range, grid)):
            with changed_view(
                self.image[
                    0, :, r * height : (r + 1) * height, c * width : (c + 1) * width
                ]
            ):
                order += _differ(original, self.embed(self.image))
        return order, grid

    def _token(self, token: int, original: Tensor, inputs: object) -> str:
        for name, parameter in self.tokens.items():
            for index, part in enumerate(parameter.data.reshape(-1, parameter.shape[-1])):
                with changed_view(part):
                    if _differ(original, self.embed(inputs)) == [token]:
                        return f"{name}[{index}]"
        raise AssertionError(f"token {token} comes from no known parameter")


class changed_view:  # noqa: N801 - reads like a function
    """Change a view of a tensor within a block."""

    def __init__(self, view: Tensor) -> None:
        self.view, self.saved = view, view.clone()

    def __enter__(self) -> None:
        self.view.copy_(self.saved + 3 * torch.randn(self.saved.shape))

    def __exit__(self, *_: object) -> None:
        self.view.copy_(self.saved)


def _differ(before: Tensor, after: Tensor) -> list[int]:
    return torch.nonzero((before != after).any(dim=-1)).flatten().tolist()


Save: TypeAlias = Callable[[Tiny, Path], str]


@dataclass(frozen=True)
class Case:
    """One model of a family: its builder, its library's saver, and the selector of the table."""

    id: str
    family: str
    model_type: str | None
    build: Callable[[], Tiny]
    save: Save
    pick: str = ""
    kind: str = "learned"


def save_pretrained(tiny: Tiny, folder: Path) -> str:
    """Save the way transformers does."""
    tiny.model.save_pretrained(folder)
    return str(folder)


def find(model: nn.Module, suffix: str) -> Any:
    """Return the one parameter, buffer or module whose name ends with a suffix."""
    candidates = itertools.chain(
        model.named_parameters(), model.named_buffers(), model.named_modules()
    )
    matches = {
        name: part for name, part in candidates if f".{name}".endswith(f".{suffix}")
    }
    assert len(matches) == 1, f"{suffix}: {list(matches)}"
    return next(iter(matches.values()))


def first_layer(model: nn.Module, part: str = "") -> nn.Module:
    """Return the first transformer layer of a model, or of the part of it with that name."""
    layer = re.compile(rf"(^|.*\.){part}(^|.*\.)(\w*layers?|h)\.0")
    return model.get_submodule(
        min((name for name, _ in model.named_modules() if layer.fullmatch(name)), key=len)
    )


def _seeded(model: Any, table: Tensor, *, keep: bool = False) -> Any:
    """Give every row distinct values, also where a library starts from zeros."""
    if not keep:
        torch.manual_seed(0)
        nn.init.normal_(table)
    return model.eval()


# --- transformers: text ---

MODEL_SIZE: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "vocab_size": VOCABULARY, "max_position_embeddings": 12,
}  # fmt: skip
NARROW_SIZE = MODEL_SIZE | {"embedding_size": 8}
DISTILBERT_SIZE = {
    "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "vocab_size": VOCABULARY,
    "max_position_embeddings": 12,
}  # fmt: skip
OPT_SIZE: dict[str, Any] = {
    "hidden_size": 16, "word_embed_proj_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "ffn_dim": 16, "vocab_size": VOCABULARY, "max_position_embeddings": 12, "pad_token_id": 1,
}  # fmt: skip
GPT_NEO_SIZE = {
    "hidden_size": 16, "num_layers": 1, "num_heads": 2, "vocab_size": VOCABULARY,
    "attention_types": [[["global"], 1]], "max_position_embeddings": 12,
}  # fmt: skip
GPT_SIZE = {
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 12,
    "vocab_size": VOCABULARY,
}
SEQ2SEQ_SIZE: dict[str, Any] = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
    "vocab_size": VOCABULARY,
}  # fmt: skip
SPECIAL_IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
# Longformer fills inputs up to whole attention windows: 16 positions are four of them.
ESM_SIZE = MODEL_SIZE | {
    "pad_token_id": 1,
    "mask_token_id": 3,
    "position_embedding_type": "absolute",
}
LAYOUTLM_SIZE = {"coordinate_size": 2, "shape_size": 4, "visual_embed": False}
NYSTROM_SIZE = {"segment_means_seq_len": 12, "num_landmarks": 3}
LILT_SIZE = {
    "max_2d_position_embeddings": 8,
    "hidden_size": 24,
    "channel_shrink_ratio": 2,
}
LUKE_SIZE = {"entity_vocab_size": 5, "entity_emb_size": 8}
LONGFORMER_SIZE = (
    MODEL_SIZE | SPECIAL_IDS | {"attention_window": 4, "max_position_embeddings": 18}
)


def _ids(length: int) -> Tensor:
    return torch.full((1, length), 7)


def hf_text(
    name: str, table: str, dtype: torch.dtype = torch.float32, **config: Any
) -> Tiny:
    """Build a transformers model that reads one sequence of tokens."""
    cls = getattr(transformers, name, None) or _unlisted(name)
    model = cls(cls.config_class(**config)).to(dtype)
    weight = find(model, table)
    return Tiny(
        _seeded(model, weight),
        weight,
        first_layer(model),
        lambda n: model(input_ids=_ids(n)),
    )


def _unlisted(name: str) -> Any:
    """Return a class that transformers does not export."""
    from transformers.models.bridgetower import modeling_bridgetower

    return getattr(modeling_bridgetower, name)


def save_everything(tiny: Tiny, folder: Path) -> str:
    """Save the weights that transformers leaves out as well, as older versions did."""
    tiny.model.save_pretrained(folder)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    torch.save(tiny.model.state_dict(), folder / "pytorch_model.bin")
    return str(folder)


def hf_seq2seq(name: str, part: str, *, keep: bool = False, **config: Any) -> Tiny:
    """Build an encoder and decoder; the other part gets a short input."""
    cls = getattr(transformers, name)
    model = cls(
        cls.config_class(
            **SEQ2SEQ_SIZE, **SPECIAL_IDS, max_position_embeddings=11, **config
        )
    )
    weight = find(model, f"{part}.embed_positions.weight")

    def call(length: int) -> object:
        full_input, short_input = _ids(length), _ids(3)
        if part == "encoder":
            return model(input_ids=full_input, decoder_input_ids=short_input)
        return model(input_ids=short_input, decoder_input_ids=full_input)

    return Tiny(_seeded(model, weight, keep=keep), weight, first_layer(model, part), call)


def prophetnet() -> Tiny:
    """Build a ProphetNet; its decoder adds a position to the tokens of several streams."""
    config = transformers.ProphetNetConfig(
        hidden_size=16, num_encoder_layers=1, num_decoder_layers=1, num_encoder_attention_heads=2,
        num_decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
        vocab_size=VOCABULARY, max_position_embeddings=11, ngram=2, num_buckets=4, pad_token_id=0,
    )  # fmt: skip
    model = transformers.ProphetNetModel(config)
    weight = find(model, "encoder.position_embeddings.weight")

    def call(length: int) -> object:
        if length > 10:
            raise ValueError("the model gives all later tokens its last row")
        return model(input_ids=_ids(length), decoder_input_ids=_ids(3))

    return Tiny(_seeded(model, weight), weight, first_layer(model, "encoder"), call)


def hf_whisper(name: str, part: str) -> Tiny:
    """Build a Whisper; its encoder accepts one length only, in spectrogram frames."""
    cls = getattr(transformers, name)
    config = cls.config_class(
        **SEQ2SEQ_SIZE, **SPECIAL_IDS, decoder_start_token_id=0, max_source_positions=10,
        max_target_positions=9, num_mel_bins=4,
    )  # fmt: skip
    model = cls(config)
    weight = find(model, f"{part}.embed_positions.weight")

    def call(length: int) -> object:
        frames = 2 * length if part == "encoder" else 20
        return model(
            input_features=torch.ones(1, 4, frames),
            decoder_input_ids=_ids(length if part == "decoder" else 3),
        )

    keep = part == "encoder"  # it is a sinusoid already
    return Tiny(_seeded(model, weight, keep=keep), weight, first_layer(model, part), call)


def _text_cases() -> Iterator[Case]:
    ids = MODEL_SIZE | SPECIAL_IDS
    for family, model_type, names, table, config in (
        ("bert", "bert", ("BertModel", "BertForMaskedLM"), BERT, MODEL_SIZE),
        (
            "distilbert", "distilbert", ("DistilBertModel", "DistilBertForMaskedLM"), BERT,
            DISTILBERT_SIZE,
        ),
        ("electra", "electra", ("ElectraModel", "ElectraForPreTraining"), BERT, NARROW_SIZE),
        ("albert", "albert", ("AlbertModel", "AlbertForMaskedLM"), BERT, NARROW_SIZE),
        ("roberta", "roberta", ("RobertaModel", "RobertaForMaskedLM"), BERT, ids),
        ("roberta", "xlm-roberta", ("XLMRobertaModel", "XLMRobertaForMaskedLM"), BERT, ids),
        ("roberta", "xlm-roberta-xl", ("XLMRobertaXLModel", "XLMRobertaXLForMaskedLM"), BERT, ids),
        ("roberta", "camembert", ("CamembertModel", "CamembertForMaskedLM"), BERT, ids),
        (
            "roberta", "roberta-prelayernorm",
            ("RobertaPreLayerNormModel", "RobertaPreLayerNormForMaskedLM"), BERT, ids,
        ),
        (
            "roberta", "longformer", ("LongformerModel", "LongformerForMaskedLM"), BERT,
            LONGFORMER_SIZE,
        ),
        ("roberta", "data2vec-text", ("Data2VecTextModel", "Data2VecTextForMaskedLM"), BERT, ids),
        ("roberta", "altclip_text_model", ("AltCLIPTextModel",), BERT, ids | {"project_dim": 8}),
        ("roberta", "bridgetower_text_model", ("BridgeTowerTextModel",), BERT, ids),
        ("roberta", "clap_text_model", ("ClapTextModel",), BERT, ids),
        ("roberta", "esm", ("EsmModel", "EsmForMaskedLM"), BERT, ESM_SIZE),
        ("roberta", "ibert", ("IBertModel", "IBertForMaskedLM"), BERT, ids),
        ("roberta", "markuplm", ("MarkupLMModel",), BERT, ids),
        ("roberta", "xmod", ("XmodModel",), BERT, ids | {"default_language": "en_XX"}),
        ("mpnet", "mpnet", ("MPNetModel", "MPNetForMaskedLM"), BERT, ids),
        ("nystromformer", "nystromformer", ("NystromformerModel",), BERT, ids | NYSTROM_SIZE),
        ("gpt2", "gpt2", ("GPT2Model", "GPT2LMHeadModel"), "wpe.weight", GPT_SIZE),
        ("gpt2", "gpt_neo", ("GPTNeoModel", "GPTNeoForCausalLM"), "wpe.weight", GPT_NEO_SIZE),
        (
            "gpt2", "gpt_bigcode", ("GPTBigCodeModel", "GPTBigCodeForCausalLM"), "wpe.weight",
            GPT_SIZE,
        ),
        (
            "openai-gpt", "openai-gpt", ("OpenAIGPTModel", "OpenAIGPTLMHeadModel"),
            "positions_embed.weight", GPT_SIZE,
        ),
        ("opt", "opt", ("OPTModel", "OPTForCausalLM"), "embed_positions.weight", OPT_SIZE),
        (
            "clip-text", "clip_text_model", ("CLIPTextModel", "CLIPTextModelWithProjection"),
            CLIP, ids | {"projection_dim": 8},
        ),
        ("siglip-text", "siglip_text_model", ("SiglipTextModel",), CLIP, ids),
    ):  # fmt: skip
        for name in names:
            build = partial(hf_text, name, table, **config)
            yield Case(name, family, model_type, build, save_pretrained)
    for model_type, name, table, config, pick in (
        ("layoutlmv3", "LayoutLMv3Model", BERT, LAYOUTLM_SIZE, "tokens"),
        ("lilt", "LiltModel", BERT, LILT_SIZE, BERT),
        ("luke", "LukeModel", BERT, LUKE_SIZE, "tokens"),
    ):
        build = partial(hf_text, name, table, **ids | config)
        yield Case(
            f"{name}-{pick}", "roberta", model_type, build, save_pretrained, f"#{pick}"
        )
    yield Case(
        "ProphetNetModel-encoder", "prophetnet", "prophetnet", prophetnet, save_pretrained,
        "#encoder",
    )  # fmt: skip
    for padding in (0, 3):
        yield Case(
            f"RobertaModel-padding_idx-{padding}", "roberta", "roberta", roberta(padding),
            save_pretrained,
        )  # fmt: skip
    for name in ("BartModel", "BartForConditionalGeneration", "MBartModel",
                 "MBartForConditionalGeneration"):  # fmt: skip
        for part in ("encoder", "decoder"):
            yield Case(
                f"{name}-{part}", "bart", "mbart" if name.startswith("M") else "bart",
                partial(hf_seq2seq, name, part), save_pretrained, f"#{part}",
            )  # fmt: skip
    for name, model_type in (("MarianModel", "marian"), ("PegasusModel", "pegasus")):
        for part in ("encoder", "decoder"):
            yield Case(
                f"{name}-{part}", "marian", model_type,
                partial(hf_seq2seq, name, part, keep=True, decoder_start_token_id=0),
                save_everything, f"#{part}", "fixed",
            )  # fmt: skip
    for name in ("WhisperModel", "WhisperForConditionalGeneration"):
        for part, kind in (("encoder", "fixed"), ("decoder", "learned")):
            yield Case(
                f"{name}-{part}", "whisper", "whisper", partial(hf_whisper, name, part),
                save_pretrained, f"#{part}", kind,
            )  # fmt: skip


def roberta(padding: int, dtype: torch.dtype = torch.float32) -> Callable[[], Tiny]:
    """Return the builder of a RoBERTa whose padding token has that id."""
    config = MODEL_SIZE | SPECIAL_IDS | {"pad_token_id": padding}
    return partial(hf_text, "RobertaModel", BERT, dtype, **config)


# --- vision ---


def hf_vision(
    name: str, table: str, dtype: torch.dtype = torch.float32,
    tokens: tuple[str, ...] = (), **config: Any,
) -> Tiny:  # fmt: skip
    """Build a transformers model that reads an image."""
    cls = getattr(transformers, name)
    size = {
        key: MODEL_SIZE[key]
        for key in MODEL_SIZE
        if "vocab" not in key and "max" not in key
    }
    size = size | {"image_size": IMAGE, "patch_size": PATCH} | config
    model = cls(cls.config_class(**size))
    if dtype != torch.float32:  # complex buffers do not like it
        model = model.to(dtype)
    weight = find(model, table)
    return Tiny(
        _seeded(model, weight),
        weight,
        first_layer(model),
        lambda image: model(pixel_values=image),
        _image(size["image_size"], dtype),
        _pair(size["patch_size"]),
        {token: find(model, token) for token in tokens},
    )


def hf_two_towers(name: str, part: str, tokens: tuple[str, ...] = ()) -> Tiny:
    """Build a CLIP or SigLIP with both its halves."""
    cls = getattr(transformers, name)
    text = MODEL_SIZE | {
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "projection_size": 16,
    }
    vision = {
        key: MODEL_SIZE[key]
        for key in MODEL_SIZE
        if "vocab" not in key and "max" not in key
    }
    model = cls(
        cls.config_class(
            text_config=text,
            vision_config=vision | {"image_size": 28, "patch_size": 7},
            projection_dim=16,
        )
    )
    weight = find(model, f"{part}_model.embeddings.position_embedding.weight")
    layer = first_layer(model, f"{part}_model")
    image = _image((28, 28))
    _seeded(model, weight)
    if part == "text":
        return Tiny(
            model, weight, layer, lambda n: model(input_ids=_ids(n), pixel_values=image)
        )  # fmt: skip
    return Tiny(
        model, weight, layer, lambda picture: model(input_ids=_ids(4), pixel_values=picture),
        image, (7, 7), {token: find(model, token) for token in tokens},
    )  # fmt: skip


def hf_mae() -> Any:
    """Build a masked autoencoder with the fixed tables that its authors' code fills in."""
    cls: Any = transformers.ViTMAEModel
    size = {
        key: MODEL_SIZE[key]
        for key in MODEL_SIZE
        if "vocab" not in key and "max" not in key
    }
    model = cls(cls.config_class(image_size=28, patch_size=7, **size))
    # transformers skips what it takes for initialised already.
    embeddings = model.embeddings
    for part in (embeddings.patch_embeddings.projection, embeddings.position_embeddings):
        vars(part).pop("_is_hf_initialized", None)
    embeddings.initialize_weights()
    return model


def _image(size: int | tuple[int, int], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(1, 3, *_pair(size), dtype=dtype)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def timm_vit(name: str, **options: Any) -> Tiny:
    """Build one of timm's vision transformers."""
    size = {
        "img_size": 28,
        "patch_size": 7,
        "embed_dim": 16,
        "depth": 1,
        "num_heads": 2,
    } | options
    model: Any = timm.create_model(name, pretrained=False, **size)
    tokens = {
        token: getattr(model, token)
        for token in ("cls_token", "dist_token", "reg_token")
        if getattr(model, token, None) is not None
    }
    return Tiny(
        _seeded(model, model.pos_embed), model.pos_embed, model.blocks[0], model,
        _image(size["img_size"]), _pair(size["patch_size"]), tokens,
    )  # fmt: skip


def save_timm(tiny: Tiny, folder: Path, **arguments: Any) -> str:
    """Save the way timm does for the Hub."""
    timm.models.save_for_hf(tiny.model, str(folder), safe_serialization=True, **arguments)
    return str(folder)


def save_state_dict(tiny: Tiny, folder: Path) -> str:
    """Save the bare state dict."""
    folder.mkdir(exist_ok=True)
    torch.save(tiny.model.state_dict(), folder / "model.pth")
    return str(folder / "model.pth")


def torchvision_vit() -> Tiny:
    """Build torchvision's vision transformer."""
    model = torchvision.models.VisionTransformer(
        image_size=28, patch_size=7, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=16
    )
    table = model.encoder.pos_embedding
    return Tiny(
        _seeded(model, table), table, model.encoder.layers[0], model, _image(28), (7, 7),
        {"class_token": model.class_token},
    )  # fmt: skip


def save_original_dinov2(tiny: Tiny, folder: Path) -> str:
    """Save a DINOv2 with registers under the names of its authors' release."""
    names = {
        "embeddings.position_embeddings": "pos_embed",
        "embeddings.cls_token": "cls_token",
        "embeddings.register_tokens": "register_tokens",
        "embeddings.patch_embeddings.projection.weight": "patch_embed.proj.weight",
    }
    state = tiny.model.state_dict()
    folder.mkdir(exist_ok=True)
    torch.save(
        {new: state[old] for old, new in names.items()}, folder / "dinov2_pretrain.pth"
    )
    return str(folder / "dinov2_pretrain.pth")


def _vision_cases() -> Iterator[Case]:
    cls, cls_and_distillation = ("cls_token",), ("cls_token", "distillation_token")
    square: dict[str, Any] = {"image_size": 28, "patch_size": 7}
    vit: dict[str, Any] = {"tokens": cls}
    deit: dict[str, Any] = {"tokens": cls_and_distillation}
    dino = square | {"tokens": cls}
    registers = square | {
        "tokens": ("cls_token", "register_tokens"),
        "num_register_tokens": 2,
    }
    llama4 = square | {
        "tokens": ("class_embedding",),
        "vision_output_dim": 8,
        "projector_input_dim": 64,
        "projector_output_dim": 64,
        "intermediate_size": 64,
    }
    clip = square | {"tokens": ("class_embedding",)}
    for family, model_type, name, table, options in (
        ("vit", "vit", "ViTModel", VIT, vit),
        ("vit", "vit", "ViTForImageClassification", VIT, vit),
        ("deit", "deit", "DeiTModel", VIT, deit),
        ("deit", "deit", "DeiTForImageClassificationWithTeacher", VIT, deit),
        ("dinov2", "dinov2", "Dinov2Model", VIT, dino),
        ("dinov2", "dinov2", "Dinov2ForImageClassification", VIT, dino),
        ("dinov2", "dinov2_with_registers", "Dinov2WithRegistersModel", VIT, registers),
        (
            "dinov2", "dinov2_with_registers", "Dinov2WithRegistersForImageClassification", VIT,
            registers,
        ),
        ("clip-vision", "clip_vision_model", "CLIPVisionModel", CLIP, clip),
        ("clip-vision", "clip_vision_model", "CLIPVisionModelWithProjection", CLIP, clip),
        ("siglip-vision", "siglip_vision_model", "SiglipVisionModel", CLIP, square),
        ("llama4-vision", "llama4_vision_model", "Llama4VisionModel", LLAMA4, llama4),
    ):  # fmt: skip
        build = partial(hf_vision, name, table, **options)
        yield Case(name, family, model_type, build, save_pretrained)
    original = partial(hf_vision, "Dinov2WithRegistersModel", VIT, **registers)
    yield Case(
        "dinov2-original-registers", "timm-vit", None, original, save_original_dinov2
    )
    for family, name, token in (
        ("clip", "CLIPModel", ("class_embedding",)),
        ("siglip", "SiglipModel", ()),
    ):
        for part in ("text", "vision"):
            yield Case(
                f"{name}-{part}", family, family, partial(hf_two_towers, name, part, token),
                save_pretrained, f"#{part}",
            )  # fmt: skip
    timm_options: tuple[tuple[str, dict[str, Any]], ...] = (
        ("vit_tiny_patch16_224", {}),
        # 24 patches and CLS make 25 rows: a square that is none.
        ("vit_tiny_patch16_224", {"img_size": IMAGE, "patch_size": 7}),
        ("vit_tiny_patch16_224", {"img_size": IMAGE, "patch_size": PATCH}),
        ("vit_tiny_patch16_224", {"no_embed_class": True}),
        ("vit_tiny_patch16_224", {"reg_tokens": 2}),
        ("vit_tiny_patch16_224", {"reg_tokens": 2, "no_embed_class": True}),
        (
            "vit_tiny_patch16_224",
            {"reg_tokens": 2, "class_token": False, "global_pool": "avg"},
        ),
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),
        ("deit_tiny_patch16_224", {}),
        ("deit_tiny_distilled_patch16_224", {}),
        ("deit3_small_patch16_224", {}),
        ("vit_small_patch14_dinov2", {}),
        ("vit_small_patch14_reg4_dinov2", {}),
        ("vit_base_patch16_clip_224", {}),
        ("vit_base_patch16_siglip_224", {}),
    )
    for name, options in timm_options:
        label = "-".join([name, *(f"{key}={value}" for key, value in options.items())])
        timm_build = partial(timm_vit, name, **options)
        arguments = {"img_size": options["img_size"]} if "img_size" in options else None
        save = partial(save_timm, model_args=arguments)
        yield Case(f"timm-{label}", "timm-vit", None, timm_build, save)
        if "img_size" not in options:
            yield Case(f"timm-{label}-pth", "timm-vit", None, timm_build, save_state_dict)
    yield Case(
        "torchvision-vit", "torchvision-vit", None, torchvision_vit, save_state_dict
    )


# --- fairseq ---


def save_fairseq(
    tiny: Tiny, folder: Path, *, legacy: bool = True, hydra: bool = False
) -> str:
    """Save a RoBERTa the way fairseq's trainer does: its options beside the weights.

    transformers' RoBERTa counts positions as fairseq does, so it stands in for the model.
    """
    padding = tiny.model.config.pad_token_id
    options = argparse.Namespace(
        arch="roberta_base", max_positions=len(tiny.rows) - padding - 1, encoder_layers=1
    )
    state = {
        "decoder.sentence_encoder.embed_tokens.weight":
            find(tiny.model, "word_embeddings.weight").data,
        "decoder.sentence_encoder.embed_positions.weight": tiny.table.data,
    }  # fmt: skip
    content = {
        "args": None if hydra else options,
        "cfg": {"_name": None, "model": options, "task": {"_name": "masked_lm"}}
        if hydra
        else None,
        "model": state,
        "optimizer_history": [{"num_updates": 3}],
    }
    folder.mkdir(exist_ok=True)
    torch.save(
        content, folder / "checkpoint.pt", _use_new_zipfile_serialization=not legacy
    )
    return str(folder / "checkpoint.pt")


def _fairseq_cases() -> Iterator[Case]:
    for label, padding, save in (
        ("legacy", 1, save_fairseq),
        ("padding_idx-3", 3, save_fairseq),
        ("zip", 1, partial(save_fairseq, legacy=False)),
        ("hydra", 1, partial(save_fairseq, legacy=False, hydra=True)),
    ):
        yield Case(f"fairseq-{label}", "fairseq-roberta", None, roberta(padding), save)


# --- llama.cpp ---


def save_gguf(tiny: Tiny, folder: Path, *, arch: str) -> str:
    """Save positions and tokens, and their number, as llama.cpp's converter does."""
    from made_gguf import write

    folder.mkdir()
    rows = tiny.rows.numpy()
    tokens = tiny.model.get_input_embeddings().weight.data.numpy()
    return write(
        folder / "model.gguf", arch,
        {"position_embd.weight": rows, "token_embd.weight": tokens},
        lambda writer: writer.add_context_length(len(rows)),
    )  # fmt: skip


def save_mmproj(tiny: Tiny, folder: Path) -> str:
    """Save the tensors of an image encoder that say something about position."""
    from made_gguf import write

    def sizes(writer: Any) -> None:
        writer.add_uint32("clip.vision.image_size", tiny.model.config.image_size)
        writer.add_uint32("clip.vision.patch_size", tiny.model.config.patch_size)

    folder.mkdir()
    tokens = dict.fromkeys(
        ["v.class_embd"] if tiny.tokens else [], np.zeros(16, np.float32)
    )
    patches = tiny.model.get_input_embeddings()
    tensors = {
        **tokens, "v.position_embd.weight": tiny.rows.numpy(),
        **{f"v.patch_embd.{name}": part.data.numpy() for name, part in patches.named_parameters()},
    }  # fmt: skip
    return write(folder / "mmproj.gguf", "clip", tensors, sizes)


def _gguf_cases() -> Iterator[Case]:
    for arch, model_type, name, table, config in (
        ("bert", "bert", "BertModel", BERT, MODEL_SIZE),
        ("gpt2", "gpt2", "GPT2Model", "wpe.weight", GPT_SIZE),
        ("starcoder", "gpt_bigcode", "GPTBigCodeModel", "wpe.weight", GPT_SIZE),
    ):
        family = "bert" if arch == "bert" else "gpt2"
        build = partial(hf_text, name, table, **config)
        yield Case(
            f"gguf-{arch}", family, model_type, build, partial(save_gguf, arch=arch)
        )
    square: dict[str, Any] = {"image_size": 28, "patch_size": 7}
    for name, tokens in (
        ("CLIPVisionModel", ("class_embedding",)),
        ("SiglipVisionModel", ()),
    ):
        build = partial(hf_vision, name, CLIP, tokens=tokens, **square)
        yield Case(
            f"gguf-{name}", "llama.cpp-vision", "mmproj_vision", build, save_mmproj
        )


CASES: tuple[Case, ...] = (
    *_text_cases(), *_vision_cases(), *_fairseq_cases(), *_gguf_cases(),
)  # fmt: skip
