"""The source of a table's values and their quantisation, in memory and in JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from posprobe.number_types import Natural, limits

#: Start of `Source.resolved` of a table that was drawn from another, as null models are.
DRAWN_PREFIX = "drawn from "


@dataclass(frozen=True)
class Quantisation:
    """The quantisation of a stored tensor.

    Parameters
    ----------
    name
        Name in its format, such as ``Q8_0``.
    step
        Distance between neighbouring representable values, in units of the values: the median over
        blocks or channels if they differ. None until the tensor is read.
    """

    name: Annotated[str, "As the format calls it."]
    step: Annotated[
        float | None,
        "Distance between neighbouring values, the median over blocks that have their own.",
    ] = None


@dataclass(frozen=True)
class Source:
    """Where the values of a table were read.

    Parameters
    ----------
    reference
        Reference as the user typed it.
    resolved
        Resolved reference: an absolute path, a Hub repository, a sample or a formula.
    revision
        Commit of a Hub repository.
    file, tensor
        File inside the checkpoint, and name of the tensor in it.
    shape, dtype
        Shape and type of the tensor as stored.
    sha256
        Checksum of the tensor's stored bytes.
    format
        Format of the file, as `posprobe.readers` names it.
    quantisation
        Quantisation of the stored numbers, if any.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.load("sample:digits-vit").source.tensor
    'vit.embeddings.position_embeddings'
    """

    reference: Annotated[str, "As the user typed it."]
    resolved: Annotated[str, "An absolute path, a Hub repository, a sample or a formula."]
    revision: Annotated[str | None, "Commit of a Hub repository."] = None
    file: str | None = None
    tensor: str | None = None
    shape: Annotated[tuple[Natural, ...] | None, "As stored."] = None
    dtype: Annotated[str | None, "As stored, by its name in safetensors."] = None
    sha256: Annotated[
        str | None, "Of the stored bytes.", limits(pattern="^[0-9a-f]{64}$")
    ] = None
    format: Annotated[str | None, "Of the file, in plain words."] = None
    quantisation: Quantisation | None = None


def describe_source(source: Source) -> dict[str, Any]:
    """Return a source as a JSON object."""
    return asdict(source) | {"shape": list(source.shape) if source.shape else None}
