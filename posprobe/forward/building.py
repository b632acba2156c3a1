"""What is checked before and after transformers and timm build a model from a configuration."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posprobe.checkpoints import Checkpoint
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.settings import MOST_LAYERS

#: Numbers of a model for each byte of its files: weights of 4 bits have 2. Up to `SMALL` numbers
#: nothing is asked.
PER_BYTE, SMALL = 8, 2**28
_COUNTS = re.compile(
    r"(?:n|num)_\w*(?:layers?|blocks|heads?|experts|groups|stages|branches)|\w*layers|depths?"
)
#: Names of tensors that a message holds.
_NAMED = 8
#: What stands behind the last layer of an encoder.
_POOLER = re.compile(r"(?:^|[._])pooler\.(?:dense\.)?(?:weight|bias)$")
_log = logging.getLogger("posprobe")
#: A number of layers of which there must be one.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def check_sizes(config: Mapping[str, Any], where: str) -> None:
    """Refuse a configuration of which a library would build layers without end.

    Parameters
    ----------
    config
        As it stands in the file, with whatever is nested in it.
    where
        The reference, for messages.

    Raises
    ------
    InvalidCheckpoint
        If it states more than `settings.MOST_LAYERS` layers, heads or experts, or no layers at all.
    """
    waiting: list[Mapping[str, Any]] = [config]
    while waiting:
        part = waiting.pop()
        for key, value in part.items():
            if isinstance(value, Mapping):
                waiting.append(value)
            elif _COUNTS.fullmatch(str(key)):
                counts = value if isinstance(value, list) else [value]
                wrong = [n for n in counts if type(n) is int and n > MOST_LAYERS]
                wrong += [n for n in counts if key in _LAYERS and type(n) is int and n < 1]
                if wrong:
                    raise InvalidCheckpoint(
                        f"{where}: the configuration gives {key} as {str(wrong[0])[:40]}; 1 to "
                        f"{MOST_LAYERS} are built. Fix config.json."
                    )


def model_class(transformers: Any, config: Any) -> Any:
    """Return the class that a configuration names, if it is a model of transformers itself.

    Its Auto classes are none: they look for code in the checkpoint and ask whether to run it.

    Returns
    -------
    type or None
        None where it names none that is known.
    """
    named = getattr(config, "architectures", None)
    first = named[0] if isinstance(named, list) and named else None
    if not isinstance(first, str) or not first.isidentifier():
        return None
    found: Any = getattr(transformers, first, None)
    if not (inspect.isclass(found) and issubclass(found, transformers.PreTrainedModel)):
        return None
    takes: Any = getattr(found, "config_class", None)
    concrete = found.__module__.startswith("transformers.models.") and takes is not None
    return found if concrete and isinstance(config, takes) else None


def is_encoder_alone(named: Any) -> bool:
    """Tell whether a class is the encoder of a model that has a decoder as well, saved without it.

    By its configuration the library's Auto class would build both.
    """
    return named is not None and named.__name__.endswith("EncoderModel")


@contextmanager
def unattended(*, kernels: bool = True, config: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Keep transformers from asking on standard input whether to run a checkpoint's code.

    Where nothing says ``trust_remote_code``, as for models within models, it would ask; so told, it
    raises an error instead.

    Parameters
    ----------
    kernels, config
        Whether a configuration may name compiled code on the Hub that computes its attention.

    Raises
    ------
    UsageError
        If it names some and may not.
    """
    named = [config.get(key) for key in ("attn_implementation", "_attn_implementation")] if (
        config
    ) else []  # fmt: skip
    if not kernels and any("/" in str(name) for name in named):
        raise UsageError(
            "the configuration names code on the Hub that is to compute its attention "
            "(attn_implementation), which is not run unless you say --trust-remote-code "
            "(trust_remote_code=True)."
        )
    from transformers import dynamic_module_utils as dynamic

    patience = dynamic.TIME_OUT_REMOTE_CODE
    dynamic.TIME_OUT_REMOTE_CODE = 0
    try:
        yield
    finally:
        dynamic.TIME_OUT_REMOTE_CODE = patience


def without_weights(transformers: Any, named: Any, config: Any) -> Any:
    """Build a model without memory for its numbers, which takes a tenth of a second."""
    build = named._from_config if named else transformers.AutoModel.from_config
    with __import__("torch").device("meta"):
        return build(copy.deepcopy(config))


def refuse_inflated(empty: Any, source: str) -> None:
    """Refuse a configuration of which a library would allocate far more than the files hold.

    Raises
    ------
    InvalidCheckpoint
        If it has more than `PER_BYTE` numbers for each byte of the folder.
    """
    folder = Path(source)
    if not folder.is_dir():
        return  # on the Hub its weights are downloaded first
    stored = sum(entry.stat().st_size for entry in folder.iterdir() if entry.is_file())
    size = sum(parameter.numel() for parameter in empty.parameters())
    if size > PER_BYTE * stored + SMALL:
        raise InvalidCheckpoint(
            f"{source}: by its configuration the model has {size} numbers, and its files have "
            f"{stored} bytes. One of them is not this model's: fix config.json."
        )


def refuse_other_sizes(model: Any, checkpoint: Checkpoint) -> None:
    """Refuse weights of other sizes than a model of timm has, which timm would resample.

    Raises
    ------
    InvalidCheckpoint
        If a tensor has fewer or more numbers than that of the same name in the model.
    """
    for name, value in model.state_dict().items():
        info = checkpoint.tensors.get(name)
        if info is not None and math.prod(info.shape) != value.numel():
            raise InvalidCheckpoint(
                f"{info.file}: tensor {name} has the shape {list(info.shape)}, and by its "
                f"configuration the model needs {list(value.shape)}. One of the two files is not "
                "this model's."
            )


def refuse_lost(model: Any, report: Mapping[str, Any], source: str, *, allow_missing: bool) -> None:
    """Refuse weights that are not those of the model that the configuration describes.

    Raises
    ------
    InvalidCheckpoint
        If tensors have other shapes; unless ``allow_missing``, which warns instead, also if some
        are missing, or the checkpoint has more layers.
    """
    for entry in report["mismatched_keys"]:
        name, stored, wanted = entry[0], *map(list, entry[1:3])
        raise InvalidCheckpoint(
            f"{source}: tensor {name} has the shape {stored}, and by its configuration the model "
            f"needs {wanted}. One of the two files is not this model's."
        )
    # A checkpoint of a model with another head has no pooler, and heads that are not built.
    lost = [name for name in report["missing_keys"] if not _POOLER.search(name)]
    known = {_unnumbered(name) for name, _ in model.named_parameters()}
    more = [name for name in report["unexpected_keys"] if _unnumbered(name) in known]
    refuse_keys(lost, more, source, allow_missing=allow_missing)


def refuse_keys(
    lost: Collection[str], more: Collection[str], source: str, *, allow_missing: bool
) -> None:
    """Refuse a checkpoint that lacks tensors of the model, or has some that the model does not.

    Raises
    ------
    InvalidCheckpoint
        If there are any; ``allow_missing`` warns instead.
    """
    wrong = [
        f"{what} {', '.join(sorted(names)[:_NAMED])}"
        + (f" and {len(names) - _NAMED} more tensors" if len(names) > _NAMED else "")
        for what, names in (("it lacks", lost), ("the model does not take", more))
        if names
    ]
    if not wrong:
        return
    said = f"{source}: {'; '.join(wrong)}. What is missing has random numbers in the model"
    if not allow_missing:
        raise InvalidCheckpoint(
            f"{said}, which show nothing: use the whole checkpoint and its own configuration, or "
            "--allow-missing (allow_missing=True) to run it as it is."
        )
    _log.warning("%s.", said)


@contextmanager
def noting_keys() -> Iterator[tuple[set[str], set[str]]]:
    """Note what models lack and do not take as timm loads their weights, which returns neither."""
    from torch import nn

    load: Any = nn.Module.load_state_dict
    lost: set[str] = set()
    more: set[str] = set()

    def note(model: Any, *given: Any, **options: Any) -> Any:
        found = load(model, *given, **options)
        lost.update(found.missing_keys)
        more.update(found.unexpected_keys)
        return found

    nn.Module.load_state_dict = note  # type: ignore[assignment,method-assign]
    try:
        yield lost, more
    finally:
        nn.Module.load_state_dict = load  # type: ignore[method-assign]


def _unnumbered(name: str) -> str:
    return re.sub(r"(?<=\.)[0-9]+(?=\.)", "N", name)
