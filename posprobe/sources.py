"""Where the values of a table were read, in memory and in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NotRequired, TypedDict

from posprobe.quantisation import Quantisation, QuantisationBlock
from posprobe.schema import Natural, limits


@dataclass(frozen=True)
class Source:
    """Where the values of a table were read.

    Parameters
    ----------
    reference
        As the user typed it.
    resolved
        What that meant: an absolute path, a Hub repository, a sample or a formula.
    revision
        The commit, for a Hub repository.
    file, tensor
        The file inside the checkpoint and the tensor's name in it.
    shape, dtype
        Of the tensor as stored.
    sha256
        Of the tensor's stored bytes.
    format
        Of the file, as `posprobe.readers` names it.
    quantisation
        How the stored numbers were rounded to few values, where they were.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.load("sample:digits-vit").source.tensor
    'vit.embeddings.position_embeddings'
    """

    reference: str
    resolved: str
    revision: str | None = None
    file: str | None = None
    tensor: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    sha256: str | None = None
    format: str | None = None
    quantisation: Quantisation | None = None


class SourceBlock(TypedDict):
    """Where the values were read."""

    reference: Annotated[str, "As the user typed it."]
    resolved: Annotated[str, "An absolute path, a Hub repository, a sample or a formula."]
    revision: Annotated[str | None, "Commit of a Hub repository."]
    file: str | None
    tensor: str | None
    shape: Annotated[list[Natural] | None, "As stored."]
    dtype: Annotated[str | None, "As stored, by its name in safetensors."]
    sha256: Annotated[str | None, "Of the stored bytes.", limits(pattern="^[0-9a-f]{64}$")]
    format: NotRequired[Annotated[str, "Of the file, in plain words."]]
    quantisation: NotRequired[QuantisationBlock]


def describe_source(source: Source) -> SourceBlock:
    """Return a source as it stands in JSON."""
    block: SourceBlock = {
        "reference": source.reference,
        "resolved": source.resolved,
        "revision": source.revision,
        "file": source.file,
        "tensor": source.tensor,
        "shape": list(source.shape) if source.shape else None,
        "dtype": source.dtype,
        "sha256": source.sha256,
    }
    if source.format:
        block["format"] = source.format
    if source.quantisation:
        block["quantisation"] = {
            "name": source.quantisation.name,
            "step": source.quantisation.step,
        }
    return block
