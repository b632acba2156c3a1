"""Reading of texts, images and token ids for a model, safe against hostile files."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.files import LocalFiles
from posprobe.checkpoints.local import read_json
from posprobe.errors import (
    InvalidCheckpoint,
    UnknownReference,
    UsageError,
    explain_errors,
    first_line,
)
from posprobe.families.configurations import list_sections
from posprobe.families.read import find_model_source
from posprobe.forward.models import forbid_prompts, import_package
from posprobe.forward.running import image_shape, is_timm
from posprobe.opening import open_regular
from posprobe.progress import stage
from posprobe.reference import Reference, parse_reference

_log = logging.getLogger("posprobe")
#: Suffixes of the names of images.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
#: Formats that Pillow may detect in them. Others are excluded because EPS starts a program.
_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP")
#: Larger image files are refused.
MAX_IMAGE_BYTES = 2**27
#: Images of more pixels are not decoded.
MAX_IMAGE_PIXELS = 2**25
#: A progressive JPEG is decoded as a whole for every scan, and a scan may take only a few bytes.
#: Encoders write about ten scans.
MAX_JPEG_SCANS = 100
_JPEG_SCAN_MARKER = b"\xff\xda"
#: Letters of a text that are tokenised at a time.
TEXT_CHUNK_LETTERS = 2**16
#: Normalisation that may make a text more times as long is refused.
_MAX_TEXT_GROWTH = 64
#: Normalisation that puts more letters before a text is refused.
_MAX_PREPENDED_LETTERS = 1000
#: Bytes of the number at the start of a table of replacements.
_TABLE_SIZE_BYTES = 4


def file_tokens(
    path: Path, *, count: int | None = None, length: int | None = None
) -> NDArray[np.int64]:
    """Read contexts of token ids from a ``.npy`` file.

    Parameters
    ----------
    path
        Path of an array of whole numbers ``[contexts, tokens]``.
    count, length
        Most contexts, and tokens of each, that are taken; all where None.

    Returns
    -------
    NDArray
        ``[contexts, tokens]``.

    Raises
    ------
    UnknownReference
        If the file cannot be read.
    UsageError
        If it holds something else, or contexts are shorter.
    """
    subject, advice = (
        f"{path}: the token ids cannot be read",
        "Name a .npy file of whole numbers ",
    )
    with explain_errors(
        UnknownReference,
        subject,
        f"{advice}[contexts, tokens].",
        OSError,
        ValueError,
        EOFError,
    ):
        open_regular(path).close()
        # A memory map reads only the contexts in use of a long file.
        token_ids = np.load(path, mmap_mode="r", allow_pickle=False)
    is_matrix = isinstance(token_ids, np.ndarray) and token_ids.ndim == 2
    if not is_matrix or 0 in token_ids.shape or token_ids.dtype.kind not in "iu":
        raise UsageError(
            f"{path}: it does not hold one array of whole numbers [contexts, tokens]."
        )
    if length and length > token_ids.shape[1]:
        raise UsageError(
            f"{path}: its contexts have {token_ids.shape[1]} tokens, fewer "
            f"than {length} (`length`)."
        )
    return np.array(token_ids[:count, :length], np.int64)


def text_windows(
    path: Path,
    tokenizer: Any,
    length: int,
    *,
    count: int | None = None,
    batch_size: int = 8,
) -> Iterator[NDArray[np.int64]]:
    """Yield consecutive windows of a text's tokens, without special tokens and without overlap.

    No more of the text is read than they need: it is made tokens in pieces of 65,536 letters, each
    cut where a line begins.

    Parameters
    ----------
    path
        Path of a text in UTF-8.
    tokenizer
        Tokenizer of transformers.
    length
        Tokens per window; what is left over at the end is not used.
    count
        Most windows that are taken; all where None.
    batch_size
        Windows at a time.

    Yields
    ------
    NDArray
        ``[b, length]``.

    Raises
    ------
    UnknownReference
        If the text cannot be read.
    UsageError
        If it is shorter than one window.
    """
    id_chunks: list[NDArray[np.int64]] = []
    subject, advice = (
        f"{path}: its tokenizer breaks off",
        "Leave out `text`, or cut other text.",
    )
    for chunk in _read_chunks(path):
        with explain_errors(InvalidCheckpoint, subject, advice):
            token_ids = tokenizer(chunk, add_special_tokens=False, verbose=False)[
                "input_ids"
            ]
        id_chunks.append(np.array(token_ids, np.int64))
        if count and sum(map(len, id_chunks)) >= count * length:
            break
    ids = np.concatenate(id_chunks) if id_chunks else np.zeros(0, np.int64)
    n_windows = len(ids) // length
    if n_windows == 0:
        raise UsageError(
            f"{path}: it has {len(ids)} tokens, fewer than one context of "
            f"{length}. Use a longer text, or shorter contexts."
        )
    n_windows = min(n_windows, count or n_windows)
    contexts = ids[: n_windows * length].reshape(n_windows, length)
    for start in range(0, n_windows, batch_size):
        yield contexts[start : start + batch_size]


def _read_chunks(path: Path) -> Iterator[str]:
    """Yield a text in chunks that end before a line, or else before a space."""
    remainder = ""
    subject, advice = f"{path}: the text cannot be read", "Name a text in UTF-8."
    with (
        explain_errors(UnknownReference, subject, advice, OSError, UnicodeDecodeError),
        io.TextIOWrapper(open_regular(path), encoding="utf-8") as file,
    ):
        while letters := file.read(TEXT_CHUNK_LETTERS):
            remainder += letters
            if len(letters) == TEXT_CHUNK_LETTERS:
                line_start = re.match(r"(?s:.*\n)(?=\S)", remainder)
                end = (
                    line_start.end()
                    if line_start
                    else max(remainder.rfind(" "), 0) or len(remainder)
                )
                yield remainder[:end]
                remainder = remainder[end:]
    if remainder:
        yield remainder


def image_files(
    folder: Path,
    prepare: Callable[[Any], Any],
    *,
    count: int | None = None,
    batch_size: int = 8,
) -> Iterator[NDArray[np.float32]]:
    """Yield the images of a folder, in the order of their names, as pixels for a model.

    Parameters
    ----------
    folder
        Folder of PNG, JPEG, WebP, TIFF or BMP files, recognised by their content; others in it are
        left out. A picture that is damaged, or too large to decode, is named and left out as well.
    prepare
        Turns a picture of Pillow into pixels ``[channels, h, w]``.
    count
        Most pictures that are taken; all where None.
    batch_size
        Pictures at a time.

    Yields
    ------
    NDArray
        ``[b, channels, h, w]``.

    Raises
    ------
    UnknownReference
        If the folder cannot be read, or holds no picture.
    InvalidCheckpoint
        If none of its pictures can be used.
    """
    with explain_errors(
        UnknownReference, f"{folder}: the folder cannot be read", "", OSError
    ):
        paths = sorted(
            path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES
        )
    if not paths:
        raise UnknownReference(
            f"{folder}: contains no images ({', '.join(IMAGE_SUFFIXES)})."
        )
    decoded = islice(_decode_images(paths), count)
    while pixels := [
        np.asarray(prepare(picture), np.float32)
        for picture in islice(decoded, batch_size)
    ]:
        if len({image.shape for image in pixels}) > 1:
            raise UsageError(
                f"{folder}: its images are prepared to different sizes. Use images of one size."
            )
        yield np.stack(pixels)


def _decode_images(paths: Sequence[Path]) -> Iterator[Any]:
    """Yield decoded images; warn of images that cannot be decoded, and leave them out."""
    has_decoded = False
    for path in paths:
        try:
            picture = _decode_image(path)
        except Exception as error:  # Pillow raises any exception for a damaged file.
            message = f"{path}: the picture cannot be used ({first_line(error)})"
            if not has_decoded and path == paths[-1]:
                raise InvalidCheckpoint(
                    f"{message}, nor can any other in its folder. Use sound pictures, PNG or JPEG."
                ) from error
            _warn_once(f"{message}, and is left out")
            continue
        has_decoded = True
        yield picture


@cache
def _warn_once(message: str) -> None:
    """Warn only once about an image, although a folder is read repeatedly."""
    _log.warning(message)


def _decode_image(path: Path) -> Any:
    """Decode the first frame of an image, after a check of its size against the limits.

    Texts and colour profiles that unpack to more than 1 MiB Pillow refuses itself.
    """
    from PIL import Image

    with open_regular(path, MAX_IMAGE_BYTES) as file, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # Sizes that Pillow warns about are refused below.
        picture = Image.open(file, formats=_IMAGE_FORMATS)
        pixels = picture.width * picture.height
        if pixels > MAX_IMAGE_PIXELS:
            raise ValueError(
                f"it has {pixels} pixels, and at most {MAX_IMAGE_PIXELS} are decoded"
            )
        file.seek(0)
        scans = (
            file.read().count(_JPEG_SCAN_MARKER)
            if picture.format in ("JPEG", "MPO")
            else 1
        )
        if scans > MAX_JPEG_SCANS:
            raise ValueError(
                f"it has {scans} scans, and at most {MAX_JPEG_SCANS} are decoded"
            )
        return picture.convert("RGB")


def _load_processor(
    class_name: str,
    reference: str,
    revision: str | None,
    *,
    offline: bool,
    trust: bool = False,
) -> Any:
    """Load a tokenizer or image processor of a model with a class of transformers."""
    parsed_reference = parse_reference(reference)
    with forbid_prompts():
        return getattr(import_package("transformers"), class_name).from_pretrained(
            find_model_source(parsed_reference),
            revision=revision or parsed_reference.revision or "main",
            local_files_only=offline,
            trust_remote_code=trust,
        )


#: Words in the names of files that hold a tokenizer, or the code of one.
_TOKENIZER_FILES = re.compile(
    r"token|vocab|merges|bpe|spiece|sentencepiece|\.(model|py)$", re.IGNORECASE
)
#: Models whose tokens are bytes or characters, so that their tokenizers need no file.
_BYTE_MODELS = ("canine", "perceiver")
_TOKENIZER_ADVICE = "Leave out `text` to run it on random tokens."


def check_tokenizer_files(reference: str) -> None:
    """Refuse a local model of tokens without any file of a tokenizer, before it is built.

    Raises
    ------
    UsageError
        If its folder holds none.
    PosprobeError
        As `find_model_source`.
    """
    config = Path(find_model_source(parse_reference(reference))) / "config.json"
    if not config.is_file():
        return  # of a model on the Hub, the library reports a missing tokenizer
    sections = list_sections(
        read_json(LocalFiles(config.parent, config.name), config.name)
    )
    has_vocabulary = any("vocab_size" in section.config for section in sections)
    is_of_bytes = any(section.model_type in _BYTE_MODELS for section in sections)
    has_files = any(
        _TOKENIZER_FILES.search(path.name) for path in config.parent.iterdir()
    )
    if has_vocabulary and not (is_of_bytes or has_files):
        raise UsageError(
            f"{reference}: no tokenizer lies beside the model. {_TOKENIZER_ADVICE}"
        )


def load_tokenizer(
    reference: str,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    offline: bool = False,
) -> Any:
    """Load the tokenizer of a model; parameters are those of `load_model`.

    Raises
    ------
    UsageError
        If there is none.
    InvalidCheckpoint
        If it would take memory beyond its size.
    """
    _check_tokenizer(parse_reference(reference), revision, offline=offline)
    subject = f"{reference}: no tokenizer lies beside the model"
    with (
        explain_errors(UsageError, subject, _TOKENIZER_ADVICE),
        stage("Reading the tokenizer"),
    ):
        tokenizer = _load_processor(
            "AutoTokenizer", reference, revision, trust=trust_remote_code, offline=offline
        )
    # Without tokenizer files, transformers builds a tokenizer to which every word is unknown.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise UsageError(f"{subject} (it knows no words). {_TOKENIZER_ADVICE}")
    return tokenizer


def _check_tokenizer(
    parsed_reference: Reference, revision: str | None, *, offline: bool
) -> None:
    """Refuse a tokenizer that would take memory beyond its size, before the library reads it."""
    path: str | None = None
    with (
        forbid_prompts(),
        suppress(Exception),
    ):  # The library reports a missing tokenizer later.
        path = import_package("transformers").utils.cached_file(
            find_model_source(parsed_reference),
            "tokenizer.json",
            revision=revision or parsed_reference.revision or "main",
            local_files_only=offline,
        )
    if path is not None:
        _check_tokenizer_steps(
            Path(path).read_text("utf-8", "replace"), parsed_reference.text
        )


def _check_tokenizer_steps(text: str, subject: str) -> None:
    """Refuse a ``tokenizer.json`` that makes texts far longer, or has an invalid table.

    A table of replacements would be allocated with the length that it announces. ``subject`` is
    the name of the tokenizer in the error.

    Raises
    ------
    InvalidCheckpoint
        If a text may grow beyond the limit, or a table announces more bytes than it has.
    """
    tokenizer_config: Any = None
    with suppress(ValueError, RecursionError):  # The library reports invalid JSON.
        tokenizer_config = json.loads(text)
    growth = 1
    for step in _iterate_steps(tokenizer_config):
        match step:
            case {"type": "Replace", "content": str(content)}:
                growth *= max(len(content), 1)
            case {"type": "Prepend", "prepend": str(content)} if (
                len(content) > _MAX_PREPENDED_LETTERS
            ):
                growth = _MAX_TEXT_GROWTH + 1
            case {"type": "Precompiled", "precompiled_charsmap": str(table)}:
                with suppress(ValueError):
                    _check_replacement_table(base64.b64decode(table), subject)
    if growth > _MAX_TEXT_GROWTH:
        raise InvalidCheckpoint(
            f"{subject}: its tokenizer makes a text more than "
            f"{_MAX_TEXT_GROWTH} times as long, which could take all "
            "memory. Leave out `text`, or use a sound copy."
        )


def _iterate_steps(tokenizer_config: Any) -> Iterator[Any]:
    """Yield the steps of a tokenizer before its model, including nested ones."""
    pending = []
    if isinstance(tokenizer_config, dict):
        pending = [
            tokenizer_config.get("normalizer"),
            tokenizer_config.get("pre_tokenizer"),
        ]
    while pending:
        step = pending.pop()
        yield step
        if isinstance(step, dict):
            for key in ("normalizers", "pretokenizers"):
                pending += step[key] if isinstance(step.get(key), list) else []


def _check_replacement_table(table: bytes, subject: str) -> None:
    """Refuse a table of replacements whose first part is longer than the table."""
    size = int.from_bytes(table[:_TABLE_SIZE_BYTES], "little")
    if table and (
        not _TABLE_SIZE_BYTES <= size <= len(table) - _TABLE_SIZE_BYTES
        or size % _TABLE_SIZE_BYTES
    ):
        raise InvalidCheckpoint(
            f"{subject}: its tokenizer has a table of {len(table)} bytes "
            f"and says that {size} of them come first. Leave out `text`, or "
            "use a sound copy."
        )


def load_preparation(
    reference: str, model: Any, *, revision: str | None = None, offline: bool = False
) -> Callable[[Any], Any]:
    """Return a function that turns a Pillow image into pixels ``[channels, h, w]`` of a model.

    Raises
    ------
    UsageError
        If nothing beside the model says how.
    """
    if is_timm(model):
        data = __import__("timm.data").data
        transform: Callable[[Any], Any] = data.create_transform(
            **data.resolve_data_config({"input_size": image_shape(model)}, model=model)
        )
        return transform
    subject = f"{reference}: nothing beside the model says how it takes pictures"
    advice = "Put its preprocessor_config.json there, or leave out `images`."
    with (
        explain_errors(UsageError, subject, advice),
        stage("Reading how pictures are prepared"),
    ):
        processor = _load_processor(
            "AutoImageProcessor", reference, revision, offline=offline
        )
    is_grey = (image_shape(model) or (3,))[0] == 1

    def preprocess(picture: Any) -> Any:
        picture = picture.convert("L") if is_grey else picture
        subject = (
            f"{reference}: what is written beside the model cannot prepare a picture"
        )
        with explain_errors(
            UsageError, subject, "Fix preprocessor_config.json, or leave out `images`."
        ):
            return processor(picture, return_tensors="np")["pixel_values"][0]

    return preprocess
