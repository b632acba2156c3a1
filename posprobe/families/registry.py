"""The families: which tensors are positions, and which of their rows are not.

This is data. To add a family, add one `Family` here: the list in the documentation, the `families`
command and detection follow from it, and the tests ask for a tiny model of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from posprobe.readers import added

#: Entry points of other packages that name a `Family`.
GROUP = "posprobe.families"

#: Rows at the start of a table that no position selects:
#: ``none``; ``two``: the model adds 2 to every position; ``padding``: positions start at
#: ``padding_idx + 1``, with padding_idx read from the configuration; ``beyond``: as many as the
#: table has rows beyond the configured number of positions.
Reserved: TypeAlias = Literal["none", "two", "padding", "beyond"]

#: Special tokens whose rows come before the patches. ``stored`` asks the checkpoint: the tokens
#: for which it has an embedding, all of them or (timm's ``no_embed_class``) none.
Tokens: TypeAlias = tuple[str, ...] | Literal["stored"]


@dataclass(frozen=True)
class TableRule:
    """Where a family keeps one table, and how its rows are to be read.

    Parameters
    ----------
    tensors
        Names, matched after any prefix that ends in a dot (``bert.``, ``model.decoder.``).
    name
        What ``#TABLE`` calls it, where a family has several.
    reserved
        The rule for rows that are not positions.
    grid
        Whether positions are patches of an image.
    tokens
        For a grid, the special tokens that have rows before the patches.
    tokens_last
        Whether the rows of special tokens come after the patches.
    fixed
        Whether the model fills it from a formula; reading the values puts this to the test.
    """

    tensors: tuple[str, ...]
    name: str = ""
    reserved: Reserved = "none"
    grid: bool = False
    tokens: Tokens = ()
    tokens_last: bool = False
    fixed: bool = False


@dataclass(frozen=True)
class Family:
    """An architecture and the tables it learns.

    Parameters
    ----------
    name
        Short name, as printed by `posprobe families`.
    title
        What people call the models.
    model_types
        Values of ``model_type`` in a transformers configuration.
    tables
        The tables it learns or stores.
    prefixes
        Module names that identify the family where there is no configuration.
    note
        What its rows are, in a sentence.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    tables: tuple[TableRule, ...]
    prefixes: tuple[str, ...] = ()
    note: str = "every row is a position"


_BERT = ("embeddings.position_embeddings.weight",)
#: llama.cpp, whose converter leaves out rows that are no positions.
_GGUF = ("position_embd.weight",)
#: TensorFlow 1.
_TF1 = "bert.embeddings.position_embeddings"
_CLIP = "embeddings.position_embedding.weight"
_VIT = ("embeddings.position_embeddings",)
_BART = tuple(
    TableRule((f"{part}.embed_positions.weight",), name=part, reserved="two")
    for part in ("encoder", "decoder")
)

FAMILIES: tuple[Family, ...] = (
    Family("bert", "BERT", ("bert",), (TableRule((*_BERT, *_GGUF, _TF1)),), ("bert",)),
    Family("distilbert", "DistilBERT", ("distilbert",), (TableRule(_BERT),), ("distilbert",)),
    Family(
        "electra", "ELECTRA", ("electra",), (TableRule(_BERT),), ("electra",),
        note="every row is a position; small models keep it at the embedding width",
    ),
    Family(
        "albert", "ALBERT", ("albert",), (TableRule(_BERT),), ("albert",),
        note="every row is a position, at the embedding width and not the hidden width",
    ),
    Family(
        "roberta", "RoBERTa and its kin: XLM-R, CamemBERT, Longformer, ESM, LUKE",
        ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm",
         "longformer", "data2vec-text", "altclip_text_model", "bridgetower_text_model",
         "clap_text_model", "esm", "ibert", "layoutlmv3", "lilt", "luke", "markuplm", "xmod"),
        (
            TableRule(
                (*_BERT, "layout_embeddings.box_position_embeddings.weight"), name="tokens",
                reserved="padding",
            ),
        ),
        ("roberta", "longformer", "data2vec_text"),
        note="rows 0 to padding_idx are not positions",
    ),
    Family(
        "mpnet", "MPNet", ("mpnet",), (TableRule(_BERT, reserved="two"),), ("mpnet",),
        note="rows 0 and 1 are not positions: the model's code sets padding_idx to 1",
    ),
    Family(
        "nystromformer", "Nyströmformer", ("nystromformer",), (TableRule(_BERT, reserved="two"),),
        note="rows 0 and 1 are not positions: the model adds 2 to every position",
    ),
    Family(
        "prophetnet", "ProphetNet", ("prophetnet",),
        (
            TableRule(
                tuple(f"{part}.position_embeddings.weight" for part in ("encoder", "decoder")),
                reserved="padding",
            ),
        ),
        note="rows 0 to padding_idx are not positions",
    ),
    Family(
        "gpt2", "GPT-2, GPT-Neo, GPT-BigCode", ("gpt2", "gpt_neo", "gpt_bigcode"),
        (TableRule(("wpe.weight", *_GGUF)),),
    ),
    Family("openai-gpt", "OpenAI GPT", ("openai-gpt",), (TableRule(("positions_embed.weight",)),)),
    Family(
        "opt", "OPT", ("opt",),
        (TableRule(("decoder.embed_positions.weight",), reserved="two"),),
        note="rows 0 and 1 are not positions: the model adds 2 to every position",
    ),
    Family(
        "bart", "BART, mBART", ("bart", "mbart"), _BART,
        note="rows 0 and 1 are not positions: the model adds 2 to every position",
    ),
    Family(
        "marian", "Marian, Pegasus", ("marian", "pegasus"),
        tuple(
            TableRule((f"{part}.embed_positions.weight",), name=part, fixed=True)
            for part in ("encoder", "decoder")
        ),
        note="both tables are sinusoids, which not every file holds",
    ),
    Family(
        "whisper", "Whisper", ("whisper",),
        (
            TableRule(
                ("decoder.embed_positions.weight", "decoder.positional_embedding"), name="decoder"
            ),
            TableRule(
                ("encoder.embed_positions.weight", "encoder.positional_embedding"), name="encoder",
                fixed=True,
            ),
        ),
        note="the decoder's table is learned, the encoder's is a sinusoid",
    ),
    Family(
        "clip", "CLIP", ("clip",),
        (
            TableRule((f"vision_model.{_CLIP}",), name="vision", grid=True, tokens=("CLS",)),
            TableRule((f"text_model.{_CLIP}",), name="text"),
        ),
        note="vision: row 0 is CLS; text: every row is a position",
    ),
    Family("clip-text", "CLIP, text half", ("clip_text_model",), (TableRule((_CLIP,)),)),
    Family(
        "clip-vision", "CLIP, vision half", ("clip_vision_model",),
        (TableRule((_CLIP,), grid=True, tokens=("CLS",)),),
        note="row 0 is CLS, then the patches row by row",
    ),
    Family(
        "siglip", "SigLIP", ("siglip",),
        (
            TableRule((f"vision_model.{_CLIP}",), name="vision", grid=True),
            TableRule((f"text_model.{_CLIP}",), name="text"),
        ),
        note="vision: patches only; text: every row is a position",
    ),
    Family("siglip-text", "SigLIP, text half", ("siglip_text_model",), (TableRule((_CLIP,)),)),
    Family(
        "siglip-vision", "SigLIP, vision half", ("siglip_vision_model",),
        (TableRule((_CLIP,), grid=True),),
        note="patches only, row by row",
    ),
    Family(
        "vit", "ViT", ("vit",), (TableRule(_VIT, grid=True, tokens=("CLS",)),), ("vit",),
        note="row 0 is CLS, then the patches row by row",
    ),
    Family(
        "deit", "DeiT with distillation token", ("deit",),
        (TableRule(_VIT, grid=True, tokens=("CLS", "distillation")),), ("deit",),
        note="rows 0 and 1 are CLS and the distillation token, then the patches",
    ),
    Family(
        "dinov2", "DINOv2, with and without registers", ("dinov2", "dinov2_with_registers"),
        (TableRule(_VIT, grid=True, tokens=("CLS",)),), ("dinov2", "dinov2_with_registers"),
        note="row 0 is CLS, then the patches; registers have no rows",
    ),
    Family(
        "llama4-vision", "Llama 4, vision half", ("llama4_vision_model",),
        (TableRule(("positional_embedding_vlm",), grid=True, tokens=("CLS",), tokens_last=True),),
        note="the patches row by row, then CLS",
    ),
    Family(
        "timm-vit", "timm: ViT, DeiT, CLIP, SigLIP, DINOv2 and their kin", (),
        (
            TableRule(("pos_embed", "pos_embed_0", "pos_embed_1"), grid=True, tokens="stored"),
        ),
        note="the rows of CLS, distillation and register tokens come first, where they have any",
    ),
    Family(
        "torchvision-vit", "torchvision: ViT", (),
        (TableRule(("encoder.pos_embedding",), grid=True, tokens=("CLS",)),),
        note="row 0 is CLS, then the patches row by row",
    ),
    Family(
        "llama.cpp-vision", "llama.cpp: the image encoders of LLaVA and its kin (mmproj)",
        ("mmproj_vision",),
        (TableRule(("v.position_embd.weight",), grid=True, tokens="stored"),),
        note="where there is a class embedding, row 0 is CLS, then the patches row by row",
    ),
    Family(
        "jax-vit", "the original ViT, Big Vision and SigLIP in JAX", (),
        (
            TableRule(("posembed_input.pos_embedding", "params.pos_embedding"), grid=True,
                      tokens="stored"),
            TableRule(("img.pos_embedding",), name="image", grid=True, tokens="stored"),
            TableRule(("txt.pos_embedding",), name="text"),
        ),
        note="images: the row of CLS comes first, where there is one; text: every row counts",
    ),
    Family(
        "keras-hub", "KerasHub: PositionEmbedding and TokenAndPositionEmbedding", (),
        (
            TableRule(
                ("layers.position_embedding.vars.0", "layers.position_embedding_1.vars.0",
                 "token_and_position_embedding.position_embedding.vars.0"),
            ),
            TableRule(
                ("vi_t_patching_and_embedding.position_embedding.vars.0",
                 "clip_vision_embedding.position_embedding.vars.0"),
                grid=True, tokens=("CLS",),
            ),
        ),
        note="every row is a position; of ViT and CLIP's images row 0 is CLS, then the patches",
    ),
    Family(
        "fairseq-roberta", "fairseq: RoBERTa", (),
        (TableRule(("sentence_encoder.embed_positions.weight",), reserved="beyond"),),
        note="as many rows as exceed max_positions are not positions",
    ),
)  # fmt: skip


@cache
def added_families() -> tuple[Family, ...]:
    """Load the families that other installed packages add, which takes a look at all packages."""
    return tuple(added(GROUP, Family))


#: Tensors named like tables of positions that an architecture stores and never reads, by
#: ``model_type``.
UNUSED: Mapping[str, tuple[str, ...]] = {
    "tvp": ("visual_embeddings.position_embeddings.weight",),
}

#: Architectures that compute their positions at run time, so that no file holds them, by
#: ``model_type``.
COMPUTED: Mapping[str, str] = {
    name: what
    for what, names in {
        "a sinusoid": (
            "canary_decoder", "ctrl", "fun_asr_nano_encoder", "kosmos_2_text_model",
            "kosmos_2_5_text_model", "m2m_100", "marian", "musicgen_decoder",
            "musicgen_melody_decoder", "nllb-moe", "pegasus", "pegasus_x",
            "qwen2_5_omni_audio_encoder", "qwen3_asr_encoder", "qwen3_omni_moe_audio_encoder",
            "seamless_m4t", "seamless_m4t_v2", "speech_to_text",
            "tipsv2_text_model", "videomae", "xglm",
        ),
        "a sinusoid of rows and one of columns": (
            "conditional_detr", "d_fine", "dab-detr", "deformable_detr", "deimv2", "detr",
            "edgetam_vision_model", "grounding-dino", "kimi_k25_vision", "mask2former",
            "maskformer", "mm-grounding-dino", "oneformer", "pp_doclayout_v3", "pp_doclayout_v4",
            "rt_detr", "rt_detr_v2", "sam2_vision_model", "sam3_vision_model",
            "table-transformer",
        ),
        "random Fourier features of the coordinates": ("sam", "sam_hq"),
    }.items()
    for name in names
}  # fmt: skip

#: Layers of Keras that compute positions and store nothing.
COMPUTED_LAYERS: Mapping[str, str] = {"sine_position_encoding": "a sinusoid"}
