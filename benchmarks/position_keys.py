"""Keys of the installed transformers' configurations that concern position, with their decisions.

The decisions are those of ``posprobe/families/position_keys.toml``; `keys_section` writes them for
docs/coverage.md. A test holds that every key has one and that the page is up to date.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping

from posprobe.families.position_keys import concerns_position, load_decisions

#: Decisions by their table, as the page says them.
MEANINGS = {
    "read": "read",
    "tables": "seen in the tensors",
    "no_effect": "without effect",
    "unread": "**not read**",
}
#: Number of model types that the page names for a key.
N_NAMED_TYPES = 3


def collect_keys() -> dict[str, list[str]]:
    """List the keys that concern position, with the model types whose configuration has them."""
    from transformers import CONFIG_MAPPING

    keys: dict[str, list[str]] = defaultdict(list)
    for model_type in sorted(CONFIG_MAPPING):
        for key in list_class_keys(CONFIG_MAPPING[model_type]):
            keys[key].append(model_type)
    return dict(sorted(keys.items()))


def list_class_keys(config_class: type) -> list[str]:
    """List the keys of a configuration class and of its parents that concern position."""
    names: dict[str, None] = {}
    for parent in config_class.__mro__:
        if parent.__module__.startswith("transformers.models"):
            names |= dict.fromkeys(vars(parent).get("__annotations__", {}))
            names |= dict.fromkeys(inspect.signature(parent).parameters)
    return [name for name in names if concerns_position(name)]


def find_undecided(keys: Mapping[str, list[str]]) -> list[str]:
    """List the keys without a decision."""
    return sorted(set(keys) - set(load_decisions()))


def key_rows(keys: Mapping[str, list[str]]) -> list[str]:
    """Write the row of every key, up to the model types, which change with every version."""
    rows = []
    for key in keys:
        table, _, text = load_decisions()[key].partition(": ")
        rows.append(f"| `{key}` | {MEANINGS[table]} | {text} |")
    return rows


def keys_section(keys: Mapping[str, list[str]]) -> str:
    """Write the section of docs/coverage.md."""
    from importlib.metadata import version

    rows = []
    for row, types in zip(key_rows(keys), keys.values(), strict=True):
        more = len(types) - N_NAMED_TYPES
        others = f" and {more} more" if more > 0 else ""
        rows.append(f"{row} {', '.join(types[:N_NAMED_TYPES])}{others} |")
    lines, release = "\n".join(rows), version("transformers")
    return f"""## Keys of configurations

Every key of a configuration in transformers {release} whose name has a word of position, and
what is made of it. A configuration with a key that is not read, or that is not on this list, is not
called exact: the answers name the key and cannot tell.

| key | | what it is | models |
| --- | --- | --- | --- |
{lines}"""
