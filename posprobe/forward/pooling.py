"""How a model's folder says that token states become an embedding, after sentence-transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.models.places import Pooling
from posprobe.arrays import Floats
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families.read import find_model_source
from posprobe.forward.models import forbid_prompts, import_package
from posprobe.forward.running import widen
from posprobe.reference import parse_reference

if TYPE_CHECKING:
    import torch

#: Keys of a pooling configuration that are supported, with their pooling.
_POOLING_KEYS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
#: Values of ``pooling_mode`` in newer configurations, with their pooling.
_POOLING_MODES: Mapping[str, Pooling] = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
}
#: Longer files of settings are refused: real ones have some hundred bytes.
MAX_RECIPE_BYTES = 2**20


@dataclass(frozen=True)
class EmbeddingRecipe:
    """The way from the states of tokens to an embedding.

    Parameters
    ----------
    pooling
        Which states are pooled.
    is_normalised
        Whether the embedding is divided by its norm.
    prompt
        Text that is put before each input; empty without.
    pools_prompt
        Whether the tokens of the prompt are pooled too.
    max_tokens
        Tokens at which inputs are cut; None where it is not stated.
    """

    pooling: Pooling
    is_normalised: bool = False
    prompt: str = ""
    pools_prompt: bool = True
    max_tokens: int | None = None


def read_recipe(
    reference: str, *, revision: str | None = None, offline: bool = False
) -> EmbeddingRecipe | None:
    """Read how a model pools, from the files that sentence-transformers writes beside it.

    Parameters
    ----------
    reference, revision, offline
        Same as for `posprobe.load_model`.

    Returns
    -------
    EmbeddingRecipe or None
        None where no such file lies beside the model.

    Raises
    ------
    UsageError
        If it pools in a way that is not supported, or has layers after pooling.
    InvalidCheckpoint
        If a file is no valid JSON of its form.
    """
    parsed = parse_reference(reference)
    location = {
        "revision": revision or parsed.revision or "main",
        "local_files_only": offline,
    }
    source = find_model_source(parsed)
    modules = _read_settings(reference, source, "modules.json", location)
    if modules is None:
        return None
    if not isinstance(modules, list):
        raise _form_error(reference, "modules.json")
    paths = {_module_kind(module): str(module["path"]) for module in modules[1:]}
    if unknown := sorted(paths.keys() - {"Pooling", "Normalize"}):
        raise UsageError(
            f"{reference}: its modules.json names {', '.join(unknown)} after the model, "
            "which is not run. Choose a pooling: `pooling='mean'`."
        )
    folder = paths.get("Pooling", "")
    if not re.fullmatch(r"[\w-]+", folder):
        raise _form_error(reference, "modules.json")
    settings = _read_settings(reference, source, f"{folder}/config.json", location)
    prompts = _read_settings(
        reference, source, "config_sentence_transformers.json", location
    )
    limits = _read_settings(reference, source, "sentence_bert_config.json", location)
    if not isinstance(settings, dict):
        raise _form_error(reference, f"{folder}/config.json")
    max_tokens = (limits if isinstance(limits, dict) else {}).get("max_seq_length")
    return EmbeddingRecipe(
        pooling=_find_pooling(reference, settings),
        is_normalised="Normalize" in paths,
        prompt=_find_prompt(prompts),
        pools_prompt=settings.get("include_prompt") is not False,
        max_tokens=max_tokens if type(max_tokens) is int and max_tokens > 0 else None,
    )


def _read_settings(
    reference: str, source: str, name: str, location: Mapping[str, Any]
) -> Any:
    """Read a JSON file beside a model; None where there is none."""
    path: str | None = None
    with forbid_prompts(), suppress(Exception):  # The library reports a missing file so.
        path = import_package("transformers").utils.cached_file(source, name, **location)
    if path is None or not Path(path).is_file():
        return None
    if Path(path).stat().st_size > MAX_RECIPE_BYTES:
        raise _form_error(reference, name)
    try:
        return json.loads(Path(path).read_text("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise _form_error(reference, name) from error


def _form_error(reference: str, name: str) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{reference}: its {name} is not of the form that sentence-transformers writes. "
        "Fix it, or choose a pooling: `pooling='mean'`."
    )


def _module_kind(module: Any) -> str:
    """Return the class name of a module, such as Pooling."""
    is_module = isinstance(module, dict) and "path" in module
    return str(module.get("type", "")).rpartition(".")[2] if is_module else "no module"


def _find_pooling(reference: str, settings: Mapping[str, Any]) -> Pooling:
    """Return the only pooling that a configuration states."""
    stated = [
        key
        for key, value in settings.items()
        if key.startswith("pooling_mode_") and value is True
    ]
    poolings = [_POOLING_KEYS.get(key) for key in stated]
    if isinstance(mode := settings.get("pooling_mode"), str):
        stated, poolings = [mode], [_POOLING_MODES.get(mode)]
    pooling = poolings[0] if len(poolings) == 1 else None
    if pooling is None:
        raise UsageError(
            f"{reference}: it pools by {' and '.join(stated) or 'nothing'}, which is not "
            "supported. Choose one: `pooling='mean'`, cls or last."
        )
    return pooling


def _find_prompt(settings: Any) -> str:
    """Return the prompt that is used by default."""
    if not isinstance(settings, dict) or not isinstance(settings.get("prompts"), dict):
        return ""
    prompt = settings["prompts"].get(settings.get("default_prompt_name"), "")
    return prompt if isinstance(prompt, str) else ""


def frame_text(tokenizer: Any, prompt: str = "") -> tuple[list[int], list[int]]:
    """Return the token ids that a tokenizer puts before and after a text, with a prompt.

    Parameters
    ----------
    tokenizer
        Tokenizer of transformers.
    prompt
        Text before each text; empty without.
    """
    bare = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    framed = list(tokenizer("a")["input_ids"])
    starts = (i for i in range(len(framed)) if framed[i : i + len(bare)] == bare)
    start = next(starts, 0)
    prompt_tokens = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    prefix = framed[:start] + list(prompt_tokens if prompt else [])
    return prefix, framed[start + len(bare) :]


def pool_states(
    states: torch.Tensor, recipe: EmbeddingRecipe, n_prompt: int = 0
) -> Floats:
    """Pool states ``[b, t, d]`` into embeddings ``[b, d]``.

    Parameters
    ----------
    states
        Last states of all tokens.
    recipe
        How they are pooled.
    n_prompt
        Tokens at the start that a recipe may leave out.
    """
    wide = widen(states)
    if recipe.pooling == "mean":
        is_left_out = recipe.prompt and not recipe.pools_prompt
        pooled = wide[:, n_prompt if is_left_out else 0 :].mean(dim=1)
    else:
        pooled = wide[:, 0 if recipe.pooling == "cls" else -1]
    embeddings: Floats = pooled.cpu().double().numpy()
    if recipe.is_normalised:
        norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
        embeddings = embeddings / np.where(norms > 0, norms, 1.0)
    return embeddings
