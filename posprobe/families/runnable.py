"""Where a model lies that other libraries are to build."""

from __future__ import annotations

from posprobe.errors import InvalidCheckpoint, UnknownReference, UsageError
from posprobe.reference import Reference
from posprobe.samples import sample_path


def model_source(reference: Reference) -> str:
    """Return where the libraries find the model behind a reference: a folder or a Hub id.

    Raises
    ------
    UnknownReference
        If it is a path from which no model can be built, one that may not be read, or no sample.
    UsageError
        If it is a formula.
    InvalidCheckpoint
        If something in the folder is neither a file nor a folder, which no library expects.
    """
    if reference.is_path:
        path = reference.path
        config = path / "config.json"
        try:
            if not config.is_file():
                why = (
                    "it has no config.json"
                    if path.is_dir()
                    else "a model is a folder with a config"
                )
                raise UnknownReference(
                    f"{reference.text}: {why}, so no model can be built from it."
                )
            for entry in path.iterdir():
                if entry.exists() and not entry.is_dir() and not entry.is_file():
                    raise InvalidCheckpoint(
                        f"{entry}: not a regular file but a pipe or a device, which libraries "
                        "would wait for. Put the file itself there."
                    )
            config.open("rb").close()
        except PermissionError as error:
            raise UnknownReference(
                f"{error.filename or path}: permission denied. Check that you may read it."
            ) from error
        return str(path)
    kind, colon, name = reference.source.partition(":")
    if colon and kind == "sample":
        return str(sample_path(name))
    if colon:
        raise UsageError(f"{reference.text}: a formula is not a model that can be run.")
    return reference.source
