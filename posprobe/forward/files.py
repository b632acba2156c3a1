"""Texts, pictures and token ids of files, as a model takes them: none hangs or fills memory."""

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

from posprobe.errors import (
    InvalidCheckpoint,
    UnknownReference,
    UsageError,
    explain_errors,
    first_line,
)
from posprobe.families.read import model_source
from posprobe.forward.models import required, unattended
from posprobe.forward.running import image_shape, is_timm
from posprobe.opening import open_regular
from posprobe.progress import stage
from posprobe.reference import Reference, parse_reference

_log = logging.getLogger("posprobe")
#: Ends of the names of pictures, and the formats that are looked for in them: that of EPS starts
#: a program.
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP")
#: Bytes and pixels that a picture may have, and scans: a progressive JPEG of a few bytes each is
#: decoded whole for every one; encoders write about ten.
MOST_BYTES = 2**27
MOST_PIXELS = 2**25
MOST_SCANS = 100
_SCAN = b"\xff\xda"
#: Letters of a text that are made tokens at a time.
PIECE = 2**16
#: How many times as long normalisation may make a text, and letters that it may put before one.
_GROWTH = 64
_BEFORE = 1000
#: Bytes of the number that a table of replacements begins with.
_SIZE = 4


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
    what, advice = f"{path}: the token ids cannot be read", "Name a .npy file of whole numbers "
    with explain_errors(
        UnknownReference, what, f"{advice}[contexts, tokens].", OSError, ValueError, EOFError
    ):
        open_regular(path).close()
        # Mapped: of a long file only the contexts that are taken are read.
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    is_array = isinstance(found, np.ndarray) and found.ndim == 2 and 0 not in found.shape
    if not is_array or found.dtype.kind not in "iu":
        raise UsageError(f"{path}: it does not hold one array of whole numbers [contexts, tokens].")
    if length and length > found.shape[1]:
        raise UsageError(
            f"{path}: its contexts have {found.shape[1]} tokens, fewer than {length} (--length)."
        )
    return np.array(found[:count, :length], np.int64)


def text_windows(
    path: Path, tokenizer: Any, length: int, *, count: int | None = None, batch_size: int = 8
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
    found: list[NDArray[np.int64]] = []
    what, advice = f"{path}: its tokenizer breaks off", "Leave out --text, or cut other text."
    for piece in _pieces(path):
        with explain_errors(InvalidCheckpoint, what, advice):
            named = tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"]
        found.append(np.array(named, np.int64))
        if count and sum(map(len, found)) >= count * length:
            break
    ids = np.concatenate(found) if found else np.zeros(0, np.int64)
    windows = len(ids) // length
    if windows == 0:
        raise UsageError(
            f"{path}: it has {len(ids)} tokens, fewer than one context of {length}. Use a longer "
            "text, or shorter contexts."
        )
    windows = min(windows, count or windows)
    contexts = ids[: windows * length].reshape(windows, length)
    for begin in range(0, windows, batch_size):
        yield contexts[begin : begin + batch_size]


def _pieces(path: Path) -> Iterator[str]:
    """Read a text in pieces that end where a line begins, or else before a space."""
    rest = ""
    what, advice = f"{path}: the text cannot be read", "Name a text in UTF-8."
    with (
        explain_errors(UnknownReference, what, advice, OSError, UnicodeDecodeError),
        io.TextIOWrapper(open_regular(path), encoding="utf-8") as file,
    ):
        while new := file.read(PIECE):
            rest += new
            if len(new) == PIECE:
                begins = re.match(r"(?s:.*\n)(?=\S)", rest)
                end = begins.end() if begins else max(rest.rfind(" "), 0) or len(rest)
                yield rest[:end]
                rest = rest[end:]
    if rest:
        yield rest


def image_files(
    folder: Path, prepare: Callable[[Any], Any], *, count: int | None = None, batch_size: int = 8
) -> Iterator[NDArray[np.float32]]:
    """Yield the pictures of a folder, by name, as a model takes them.

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
    with explain_errors(UnknownReference, f"{folder}: the folder cannot be read", "", OSError):
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURES)
    if not paths:
        raise UnknownReference(f"{folder}: contains no images ({', '.join(PICTURES)}).")
    decoded = islice(_decoded(paths), count)
    while pixels := [
        np.asarray(prepare(picture), np.float32) for picture in islice(decoded, batch_size)
    ]:
        if len({image.shape for image in pixels}) > 1:
            raise UsageError(
                f"{folder}: its images are prepared to different sizes. Use images of one size."
            )
        yield np.stack(pixels)


def _decoded(paths: Sequence[Path]) -> Iterator[Any]:
    """Decode pictures one after another; those that cannot be used are told of and left out."""
    used = False
    for path in paths:
        try:
            picture = _picture(path)
        except Exception as error:  # of damage Pillow raises whatever comes up first
            said = f"{path}: the picture cannot be used ({first_line(error)})"
            if not used and path == paths[-1]:
                raise InvalidCheckpoint(
                    f"{said}, nor can any other in its folder. Use sound pictures, PNG or JPEG."
                ) from error
            _tell(f"{said}, and is left out")
            continue
        used = True
        yield picture


@cache
def _tell(message: str) -> None:
    """Warn once, however often a folder is read."""
    _log.warning(message)


def _picture(path: Path) -> Any:
    """Decode the first frame of a picture, after its size was held against the limits.

    Texts and colour profiles that unpack to more than 1 MiB Pillow refuses itself.
    """
    from PIL import Image

    with open_regular(path, MOST_BYTES) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a size that Pillow warns of is refused here
        picture = Image.open(file, formats=_FORMATS)
        pixels = picture.width * picture.height
        if pixels > MOST_PIXELS:
            raise ValueError(f"it has {pixels} pixels, and at most {MOST_PIXELS} are decoded")
        file.seek(0)
        scans = file.read().count(_SCAN) if picture.format in ("JPEG", "MPO") else 1
        if scans > MOST_SCANS:
            raise ValueError(f"it has {scans} scans, and at most {MOST_SCANS} are decoded")
        return picture.convert("RGB")


def _beside(
    kind: str, reference: str, revision: str | None, *, offline: bool, trust: bool = False
) -> Any:
    """Read what lies beside a model, with a class of transformers."""
    parsed = parse_reference(reference)
    with unattended():
        return getattr(required("transformers"), kind).from_pretrained(
            model_source(parsed),
            revision=revision or parsed.revision or "main",
            local_files_only=offline,
            trust_remote_code=trust,
        )


def load_tokenizer(
    reference: str,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    offline: bool = False,
) -> Any:
    """Load the tokenizer that lies beside a model; parameters as for `load_model`.

    Raises
    ------
    UsageError
        If there is none.
    InvalidCheckpoint
        If it would take memory beyond its size.
    """
    _look_at_tokenizer(parse_reference(reference), revision, offline=offline)
    what = f"{reference}: no tokenizer lies beside the model"
    advice = "Leave out --text to run it on random tokens."
    with explain_errors(UsageError, what, advice), stage("Reading the tokenizer"):
        found = _beside(
            "AutoTokenizer", reference, revision, trust=trust_remote_code, offline=offline
        )
    # Where its files are missing, transformers makes one to which every word is unknown.
    if len(found) <= len(found.all_special_tokens):
        raise UsageError(f"{what} (it knows no words). {advice}")
    return found


def _look_at_tokenizer(parsed: Reference, revision: str | None, *, offline: bool) -> None:
    """Refuse a tokenizer that would take memory beyond its size, before the library reads it."""
    path: str | None = None
    with unattended(), suppress(Exception):  # it may have none, of which the library tells
        path = required("transformers").utils.cached_file(
            model_source(parsed),
            "tokenizer.json",
            revision=revision or parsed.revision or "main",
            local_files_only=offline,
        )
    if path is not None:
        _refuse_costly(Path(path).read_text("utf-8", "replace"), parsed.text)


def _refuse_costly(text: str, where: str) -> None:
    """Refuse a ``tokenizer.json`` that makes texts far longer, or has a table that is no table.

    A table of replacements that is announced longer than it is would be allocated as announced.
    ``where`` is what the error names.

    Raises
    ------
    InvalidCheckpoint
        If it does.
    """
    described: Any = None
    with suppress(ValueError, RecursionError):  # the library says what is wrong
        described = json.loads(text)
    growth = 1
    for part in _parts(described):
        match part:
            case {"type": "Replace", "content": str(content)}:
                growth *= max(len(content), 1)
            case {"type": "Prepend", "prepend": str(content)} if len(content) > _BEFORE:
                growth = _GROWTH + 1
            case {"type": "Precompiled", "precompiled_charsmap": str(table)}:
                with suppress(ValueError):
                    _check_table(base64.b64decode(table), where)
    if growth > _GROWTH:
        raise InvalidCheckpoint(
            f"{where}: its tokenizer makes a text more than {_GROWTH} times as long, which could "
            "take all memory. Leave out --text, or use a sound copy."
        )


def _parts(described: Any) -> Iterator[Any]:
    """Yield the steps of a tokenizer before its model, also those within others."""
    waiting = []
    if isinstance(described, dict):
        waiting = [described.get("normalizer"), described.get("pre_tokenizer")]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, dict):
            for key in ("normalizers", "pretokenizers"):
                waiting += part[key] if isinstance(part.get(key), list) else []


def _check_table(table: bytes, where: str) -> None:
    """Refuse a table of replacements whose first part is announced longer than the whole."""
    size = int.from_bytes(table[:_SIZE], "little")
    if table and (not _SIZE <= size <= len(table) - _SIZE or size % _SIZE):
        raise InvalidCheckpoint(
            f"{where}: its tokenizer has a table of {len(table)} bytes and says that {size} of "
            "them come first. Leave out --text, or use a sound copy."
        )


def load_preparation(
    reference: str, model: Any, *, revision: str | None = None, offline: bool = False
) -> Callable[[Any], Any]:
    """Return what turns a picture of Pillow into the pixels ``[channels, h, w]`` of a model.

    Raises
    ------
    UsageError
        If nothing beside the model says how.
    """
    if is_timm(model):
        data = __import__("timm.data").data
        prepare: Callable[[Any], Any] = data.create_transform(
            **data.resolve_data_config({"input_size": image_shape(model)}, model=model)
        )
        return prepare
    what = f"{reference}: nothing beside the model says how it takes pictures"
    advice = "Put its preprocessor_config.json there, or leave out --images."
    with explain_errors(UsageError, what, advice), stage("Reading how pictures are prepared"):
        processor = _beside("AutoImageProcessor", reference, revision, offline=offline)
    grey = (image_shape(model) or (3,))[0] == 1

    def prepared(picture: Any) -> Any:
        picture = picture.convert("L") if grey else picture
        what = f"{reference}: what is written beside the model cannot prepare a picture"
        with explain_errors(
            UsageError, what, "Fix preprocessor_config.json, or leave out --images."
        ):
            return processor(picture, return_tensors="np")["pixel_values"][0]

    return prepared
