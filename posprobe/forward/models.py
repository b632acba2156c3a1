"""Loading of a model from a reference; code of the checkpoint runs only on request."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from posprobe.arrays import Device, find_devices
from posprobe.checkpoints.files import LocalFiles
from posprobe.checkpoints.local import open_local, read_json
from posprobe.checkpoints.torchfile import checked_loading, unsafe_pickle_error
from posprobe.errors import (
    InvalidCheckpoint,
    PosprobeError,
    UnknownReference,
    UsageError,
    check_installed,
    explain_errors,
    first_line,
)
from posprobe.families.read import find_model_source
from posprobe.forward.running import (
    find_submodels,
    is_out_of_memory,
    is_timm,
)
from posprobe.progress import hide_stages, import_stage, stage
from posprobe.reference import parse_reference
from posprobe.settings import MAX_CONFIG_LAYERS

if TYPE_CHECKING:
    import torch
    from torch import nn


#: A model with more numbers for each byte of its files is refused. Weights of 4 bits have 2.
MAX_NUMBERS_PER_BYTE = 8
#: A model of at most so many numbers is not checked against the size of its files.
MAX_UNCHECKED_NUMBERS = 2**28
_COUNT_KEYS = re.compile(
    r"(?:n|num)_\w*(?:layers?|blocks|heads?|experts|groups|stages|branches)|\w*layers|depths?"
)
#: A message lists no more names of tensors.
_MAX_NAMED_TENSORS = 8
#: Names of the pooler's tensors, which follow the last layer of an encoder.
_POOLER_NAMES = re.compile(r"(?:^|[._])pooler\.(?:dense\.)?(?:weight|bias)$")
_log = logging.getLogger("posprobe")
#: Keys of a number of layers that must be 1 at least.
_LAYER_COUNT_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def check_counts(config: Mapping[str, Any], subject: str) -> None:
    """Refuse a configuration from which a library would build endless layers.

    Parameters
    ----------
    config
        Configuration as it stands in the file, with all that is nested in it.
    subject
        The reference, for messages.

    Raises
    ------
    InvalidCheckpoint
        If it states more than `settings.MAX_CONFIG_LAYERS` layers, heads or experts, or no layers.
    """
    for key, value in _iterate_settings(config):
        if not _COUNT_KEYS.fullmatch(key):
            continue
        counts = [
            n for n in (value if isinstance(value, list) else [value]) if type(n) is int
        ]
        invalid_counts = [n for n in counts if n > MAX_CONFIG_LAYERS]
        invalid_counts += [n for n in counts if n < 1 and key in _LAYER_COUNT_KEYS]
        if invalid_counts:
            raise InvalidCheckpoint(
                f"{subject}: the configuration gives {key} as "
                f"{str(invalid_counts[0])[:40]}; 1 to {MAX_CONFIG_LAYERS} "
                "are built. Fix config.json."
            )


def _iterate_settings(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all keys and values of a configuration, including nested ones."""
    pending: list[Mapping[str, Any]] = [config]
    while pending:
        for key, value in pending.pop().items():
            if isinstance(value, Mapping):
                pending.append(value)
            yield str(key), value


def find_model_class(transformers: Any, config: Any) -> Any:
    """Return the class that a configuration names, if it is a model of transformers itself.

    Auto classes are not accepted, because they look for code in the checkpoint and offer to run it.

    Returns
    -------
    type or None
        None where it names none that is known.
    """
    architectures = getattr(config, "architectures", None)
    class_name = (
        architectures[0] if isinstance(architectures, list) and architectures else None
    )
    if not isinstance(class_name, str) or not class_name.isidentifier():
        return None
    candidate: Any = getattr(transformers, class_name, None)
    if not (
        inspect.isclass(candidate) and issubclass(candidate, transformers.PreTrainedModel)
    ):
        return None
    config_class: Any = getattr(candidate, "config_class", None)
    is_concrete = (
        candidate.__module__.startswith("transformers.models.")
        and config_class is not None
    )
    return candidate if is_concrete and isinstance(config, config_class) else None


def is_encoder_only(model_class: Any) -> bool:
    """Tell whether a class is the encoder of an encoder-decoder model, saved without its decoder.

    The library's Auto class would build both from such a configuration.
    """
    return model_class is not None and model_class.__name__.endswith("EncoderModel")


def check_kernels(config: Mapping[str, Any]) -> None:
    """Refuse a configuration that names compiled code on the Hub for attention, or experts.

    Raises
    ------
    UsageError
        If it does.
    """
    implementations = [
        value for key, value in _iterate_settings(config) if "_implementation" in key
    ]
    if any("/" in str(implementation) for implementation in implementations):
        raise UsageError(
            "the configuration names code on the Hub to compute its "
            "attention, which is not run unless you say "
            "`trust_remote_code=True`."
        )


@contextmanager
def forbid_prompts() -> Iterator[None]:
    """Keep transformers from asking on standard input whether to run a checkpoint's code.

    Without ``trust_remote_code``, as for models within models, it would ask. With a timeout of 0 it
    raises an error instead.
    """
    from transformers import dynamic_module_utils as dynamic

    timeout = dynamic.TIME_OUT_REMOTE_CODE
    dynamic.TIME_OUT_REMOTE_CODE = 0
    try:
        yield
    finally:
        dynamic.TIME_OUT_REMOTE_CODE = timeout


def build_without_weights(transformers: Any, model_class: Any, config: Any) -> Any:
    """Build a model on the meta device, without memory for its weights, in a tenth of a second."""
    build = (
        model_class._from_config if model_class else transformers.AutoModel.from_config
    )
    with __import__("torch").device("meta"):
        return build(copy.deepcopy(config))


def check_model_size(empty: Any, source: str) -> None:
    """Refuse a configuration from which a library would allocate far more than the files hold.

    Raises
    ------
    InvalidCheckpoint
        If it has more than `MAX_NUMBERS_PER_BYTE` numbers for each byte of the folder.
    """
    folder = Path(source)
    if not folder.is_dir():
        return  # Weights on the Hub have not been downloaded yet.
    stored_bytes = sum(
        entry.stat().st_size for entry in folder.iterdir() if entry.is_file()
    )
    n_numbers = sum(parameter.numel() for parameter in empty.parameters())
    if n_numbers > MAX_NUMBERS_PER_BYTE * stored_bytes + MAX_UNCHECKED_NUMBERS:
        raise InvalidCheckpoint(
            f"{source}: by its configuration the model has {n_numbers} "
            f"numbers, and its files have {stored_bytes} bytes. One of them "
            "is not this model's: fix config.json."
        )


def check_lost_weights(
    model: Any, report: Mapping[str, Iterable[Any]], source: str, *, allow_missing: bool
) -> dict[str, list[str]]:
    """Refuse weights of another model than the configuration describes.

    Parameters
    ----------
    model
        Built by its configuration.
    report
        Names under ``missing_keys`` and ``unexpected_keys``; under ``mismatched_keys`` also the
        shape that is stored, and the one that is needed.
    source, allow_missing
        Same as for `load_model`.

    Returns
    -------
    dict
        Names of tensors: ``missing_weights`` and ``unused_weights``.

    Raises
    ------
    InvalidCheckpoint
        If tensors have other shapes; unless ``allow_missing``, which warns instead, also if some
        are missing, or the checkpoint has more layers.
    """
    for name, stored_shape, model_shape, *_ in report["mismatched_keys"]:
        raise InvalidCheckpoint(
            f"{source}: tensor {name} has the shape {list(stored_shape)}, "
            f"and by its configuration the model needs {list(model_shape)}. "
            "One of the two files is not this model's."
        )
    model_names = {_mask_numbers(name) for name, _ in model.named_parameters()}
    lost_weights = {
        # A checkpoint with another head lacks the pooler, and has a head that is not built.
        "missing_weights": sorted(
            n for n in report["missing_keys"] if not _POOLER_NAMES.search(n)
        ),
        "unused_weights": sorted(
            n for n in report["unexpected_keys"] if _mask_numbers(n) in model_names
        ),
    }
    problems = []
    verbs = ("it lacks", "the model does not take")
    for verb, names in zip(verbs, lost_weights.values(), strict=True):
        if names:
            n_unnamed = len(names) - _MAX_NAMED_TENSORS
            suffix = f" and {n_unnamed} more tensors" if n_unnamed > 0 else ""
            problems.append(f"{verb} {', '.join(names[:_MAX_NAMED_TENSORS])}{suffix}")
    if not problems:
        return lost_weights
    message = f"{source}: {'; '.join(problems)}. What is missing has random numbers in the model"
    if not allow_missing:
        raise InvalidCheckpoint(
            f"{message}, which show nothing: use the whole checkpoint and "
            "its own configuration, or `allow_missing=True` to run it as it is."
        )
    _log.warning("%s.", message)
    return lost_weights


def _mask_numbers(name: str) -> str:
    return re.sub(r"(?<=\.)[0-9]+(?=\.)", "N", name)


#: Precision in which a model computes; sums are wider.
Precision: TypeAlias = Literal["float64", "float32", "float16", "bfloat16"]


def load_model(
    reference: str,
    *,
    device: Device = "auto",
    dtype: Precision = "float32",
    head: bool | Callable[[nn.Module], bool] = False,
    device_map: str | None = None,
    trust_remote_code: bool = False,
    allow_missing: bool = False,
    revision: str | None = None,
    offline: bool = False,
    check: Callable[[nn.Module], None] | None = None,
    noted: Callable[[dict[str, list[str]]], None] | None = None,
) -> nn.Module:
    """Load a model with transformers or timm, ready to run.

    Parameters
    ----------
    reference
        A path, ``sample:NAME`` or a Hub id. ``#encoder``, ``#decoder``, ``#text`` or ``#vision``
        takes that part of a model that has several.
    device
        Device to run on; ``"auto"`` uses a GPU if there is one.
    dtype
        Precision of weights and activations.
    head
        Whether to build it with the head for the task that its configuration names. Models of timm
        always have theirs. A function is told the model of transformers with its head and without
        weights, and says whether to keep it.
    device_map
        Way in which transformers spreads a model that outgrows one device, such as ``"auto"``: over
        all GPUs first, then main memory. ``device`` must then be ``"auto"``.
    trust_remote_code
        Whether Python code that comes with the checkpoint may be run. It can do what you can.
    allow_missing
        Whether to build a model some of whose weights the checkpoint lacks, or that does not take
        all of them: what is missing is random, and named in a warning.
    revision
        Branch, tag or commit of a Hub repository.
    offline
        Use local files only.
    check
        Called with the model of transformers before its weights are read, to refuse what it cannot
        do; not where it needs code of its own.
    noted
        Called with the names of weights that the checkpoint lacks (``missing_weights``) and that
        the model does not take (``unused_weights``).

    Raises
    ------
    MissingExtra
        If PyTorch or transformers (timm) is not installed, or accelerate for a device map.
    UsageError
        If the device is not there or too small, there is no such part, or the model would need code
        of its own to be run.
    UnknownReference
        If the reference cannot be resolved or reached.
    InvalidCheckpoint
        If the checkpoint lacks weights that the model needs, or cannot be read.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> model = pp.load_model("sample:digits-vit", device="cpu")
    >>> type(model).__name__, model.training
    ('ViTModel', False)
    """
    target_device = _choose_device(device, device_map)
    parsed = parse_reference(reference)
    source = find_model_source(parsed)
    options: dict[str, Any] = {
        "dtype": _find_dtype(dtype),
        "revision": revision or parsed.revision or "main",
        "local_files_only": offline,
        "allow_missing": allow_missing,
    }
    model: nn.Module

    def check_submodel(empty: nn.Module) -> None:
        submodel = _select_submodel(empty, parsed.table, reference)
        if check:
            check(submodel)

    with _explain_build_errors(reference, source, target_device):
        if is_timm_source(source):
            _check_one_device(reference, device_map)
            model, lost_weights = _load_timm(source, **options)
        else:
            model, lost_weights = _load_transformers(
                source,
                head=head,
                device_map=device_map,
                trust_remote_code=trust_remote_code,
                check=check_submodel,
                **options,
            )
        if noted:
            noted(lost_weights)
        model = _select_submodel(model, parsed.table, reference)
        # No conversion here: transformers keeps some numbers, such as rotation angles, in float32.
        if not device_map:
            model = model.to(device=target_device)
    return model.requires_grad_(requires_grad=False).train(mode=False)


def _check_one_device(reference: str, device_map: str | None) -> None:
    """Refuse to spread a model of timm over several devices."""
    if device_map is not None:
        raise UsageError(f"{reference}: a model of timm is run on one device.")


def _find_dtype(name: str) -> torch.dtype:
    """Return PyTorch's type of a precision."""
    if name not in get_args(Precision):
        raise UsageError(
            f"dtype={name!r}: it is one of {', '.join(get_args(Precision))}."
        )
    dtype: torch.dtype = getattr(import_package("torch"), name)
    return dtype


def _choose_device(device: Device, device_map: str | None) -> str:
    """Return the device for a model that no device map spreads."""
    import_package("torch")
    if device_map is not None:
        import_package("accelerate")
        if device != "auto":
            raise UsageError(
                f"`device={device!r}` and `device_map={device_map!r}`: the map "
                "chooses the devices. Leave one of them out."
            )
    available_devices = find_devices(device)
    return available_devices[0] if device == "auto" else device


@contextmanager
def _explain_build_errors(reference: str, source: str, device: str) -> Iterator[None]:
    """Raise errors of the libraries that build a model as errors of the reference.

    For a configuration that makes no sense they may raise any exception.
    """
    try:
        yield
    except PosprobeError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UsageError(
                f"{reference}: it needs Python code out of its checkpoint, "
                "which is not run unless you say "
                "`trust_remote_code=True`."
            ) from error
        if isinstance(error, pickle.UnpicklingError) or "Weights only load failed" in str(
            error
        ):
            raise unsafe_pickle_error(reference, "PyTorch refuses it") from error
        if is_out_of_memory(error):
            raise UsageError(
                f"{reference}: the model does not fit into the memory of "
                f"{device}. Use `dtype='bfloat16'`, or "
                "`device_map='auto'` to spread it."
            ) from error
        cause = first_line(error)
        is_missing = not Path(source).exists() and isinstance(error, OSError)
        error_class = UnknownReference if is_missing else InvalidCheckpoint
        raise error_class(f"{reference}: the model cannot be built ({cause}).") from error


@contextmanager
def silence_transformers(transformers: Any) -> Iterator[None]:
    """Keep transformers from logging and from showing its own progress bars."""
    logs = transformers.utils.logging
    level, has_bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(level)
        if has_bars:
            logs.enable_progress_bar()


@contextmanager
def _show_loading(source: str) -> Iterator[None]:
    """Show progress while weights are read; the libraries show their own bars for downloads."""
    hidden_stages = (
        nullcontext(enter_result=False) if Path(source).is_dir() else hide_stages()
    )
    with stage("Loading the model"), hidden_stages as are_hidden, checked_loading():
        if are_hidden:
            import_package("transformers").utils.logging.enable_progress_bar()
        yield


def _select_submodel(model: Any, name: str | None, reference: str) -> Any:
    if not name:
        return model
    submodels = find_submodels(model)
    if name not in submodels:
        available = (
            ", ".join(f"#{submodel}" for submodel in submodels)
            or f"none: leave out #{name}"
        )
        raise UsageError(
            f"{reference}: {type(model).__name__} has no such part that "
            f"takes tokens or pixels. It has {available}."
        )
    return submodels[name]


def import_package(package: str) -> Any:
    """Import a package of the extra ``models``.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    check_installed(package, "models", "running a model")
    with import_stage(package):
        return __import__(package)


def rebuild_model(model: Any, config: Any) -> Any:
    """Build a model of transformers from another configuration with the weights of a given model.

    Parameters
    ----------
    model
        Result of `load_model`.
    config
        Changed configuration that leaves all shapes unchanged.

    Raises
    ------
    UsageError
        If transformers refuses the configuration.
    """
    class_name = type(model).__name__
    subject = (
        f"{class_name}: transformers does not build it from the changed configuration"
    )
    with (
        explain_errors(UsageError, subject),
        silence_transformers(import_package("transformers")),
    ):
        rebuilt = type(model).from_pretrained(
            None, config=config, state_dict=model.state_dict(), dtype=model.dtype
        )
    model_on_device = rebuilt.to(device=first_device(model))
    return model_on_device.requires_grad_(requires_grad=False).train(mode=False)


def first_device(model: nn.Module) -> torch.device:
    """Return the device of a model's input; weights that are kept on disk have no device."""
    devices = (parameter.device for parameter in model.parameters())
    first_found = next((device for device in devices if device.type != "meta"), None)
    return first_found or import_package("torch").device("cpu")


def check_module(model: object) -> None:
    """Refuse what is no module of torch, such as the name of a model.

    Raises
    ------
    UsageError
        If it is none.
    """
    if not isinstance(model, import_package("torch").nn.Module):
        raise UsageError(
            f"{type(model).__name__} {model!r:.40}: a model is expected. Load one with "
            "posprobe.load_model; head=True keeps the head that predicts."
        )


def unwrap_model(model: object) -> Any:
    """Return the model that DataParallel, DistributedDataParallel or torch.compile wraps.

    Other models are returned as they are.

    Raises
    ------
    UsageError
        If it is no model of transformers or timm.
    """
    nn = import_package("torch").nn
    wrappers = nn.DataParallel, nn.parallel.DistributedDataParallel
    check_module(model)
    inner: Any = model
    while isinstance(inner, wrappers) or hasattr(inner, "_orig_mod"):
        inner = inner.module if isinstance(inner, wrappers) else inner._orig_mod
    if not hasattr(inner, "config") and not is_timm(inner):
        raise UsageError(
            f"{type(inner).__name__}: neither a model of transformers nor a vision "
            "transformer of timm."
        )
    return inner


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[torch.device]:
    """Run a model without dropout and gradients, and restore its mode at the end of the block."""
    torch = import_package("torch")
    check_module(model)
    with ExitStack() as cleanup, torch.no_grad():
        for module in model.modules():
            cleanup.callback(setattr, module, "training", module.training)
        model.train(mode=False)
        yield first_device(model)


def is_timm_source(source: str) -> bool:
    """Tell whether a source that `find_model_source` returns is a model of timm, for images."""
    config = Path(source) / "config.json"
    if not config.is_file():
        return source.startswith("timm/")
    return "architecture" in read_json(
        LocalFiles(config.parent, config.name), config.name
    )


def _load_timm(
    source: str,
    *,
    dtype: torch.dtype,
    revision: str,
    local_files_only: bool,
    allow_missing: bool,
) -> tuple[Any, dict[str, list[str]]]:
    create_model = import_package("timm").create_model
    if not Path(source).is_dir():
        from huggingface_hub import snapshot_download

        with stage("Loading the model"), hide_stages():
            source = snapshot_download(
                source,
                revision=revision,
                local_files_only=local_files_only,
                allow_patterns=["config.json", "model.safetensors"],
            )
    config = Path(source) / "config.json"
    check_counts(read_json(LocalFiles(config.parent, config.name), config.name), source)
    with _show_loading(source):
        # The check below finds missing weights, whatever strictness the configuration states.
        model = create_model(
            f"local-dir:{Path(source).resolve()}",
            pretrained=True,
            pretrained_strict=False,
        )
    model_tensors, stored_tensors = model.state_dict(), open_local(Path(source)).tensors
    report = {
        "missing_keys": model_tensors.keys() - stored_tensors.keys(),
        "unexpected_keys": stored_tensors.keys() - model_tensors.keys(),
        # timm would resample such tensors.
        "mismatched_keys": [
            (name, stored_tensors[name].shape, tensor.shape)
            for name, tensor in model_tensors.items()
            if name in stored_tensors
            and math.prod(stored_tensors[name].shape) != tensor.numel()
        ],
    }
    model = model.to(dtype=dtype)
    return model, check_lost_weights(model, report, source, allow_missing=allow_missing)


def _load_transformers(
    source: str,
    *,
    dtype: object,
    head: bool | Callable[[nn.Module], bool],
    device_map: str | None,
    allow_missing: bool,
    check: Callable[[nn.Module], None],
    **options: Any,
) -> tuple[Any, dict[str, list[str]]]:
    transformers = import_package("transformers")
    is_trusted = options["trust_remote_code"]
    load_options = {
        key: value for key, value in options.items() if key != "trust_remote_code"
    }
    with silence_transformers(transformers), forbid_prompts():
        with stage("Reading the configuration"):
            config_values, _ = transformers.PreTrainedConfig.get_config_dict(
                source, **load_options
            )
            check_counts(config_values, source)
            if not is_trusted:
                check_kernels(config_values)
            config = transformers.AutoConfig.from_pretrained(source, **options)
            model_class = find_model_class(transformers, config)
            if model_class is not None and callable(head):
                head = head(build_without_weights(transformers, model_class, config))
            if not head and not is_encoder_only(model_class):
                model_class = None
            # A class from the checkpoint's own code cannot be checked without running that code.
            if type(config).__module__.startswith("transformers."):
                empty = build_without_weights(transformers, model_class, config)
                check_model_size(empty, source)
                check(empty)
        with _show_loading(source):
            model, report = (model_class or transformers.AutoModel).from_pretrained(
                source,
                **options,
                dtype=dtype,
                device_map=device_map,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # check_lost_weights refuses them by name.
            )
    return model, check_lost_weights(model, report, source, allow_missing=allow_missing)
