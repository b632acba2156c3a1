"""Keys of a configuration that say something about position, and whether a rule reads them.

The decisions stand in ``position_keys.toml``. A key that stands nowhere there is not passed over:
what follows from the configuration is then not known to be exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from posprobe.data import read_data
from posprobe.families.configurations import ConfigSection

_KEY_DATA = read_data("families/position_keys.toml")
_POSITION_WORDS = re.compile("|".join(_KEY_DATA["words"]))
_READ_SETTINGS = tuple(_KEY_DATA["read_settings"])
#: Nested settings whose keys all concern position.
_PARAMETER_KEYS = ("rope_parameters", "rope_scaling")
#: Nested settings of attention (MPT), whose keys are judged by their names.
_ATTENTION_KEY = "attn_config"
#: Values by which a key turns off what it names.
_OFF_VALUES: tuple[Any, ...] = (None, False, 0, -1, "", [], {})
#: Largest number of keys that are named, and of their letters.
_MAX_NAMED_KEYS = 8
_MAX_KEY_LETTERS = 60


@cache
def load_decisions() -> dict[str, str]:
    """Return the decision on every key that is known: what it is for, or that it is read."""
    decisions = dict.fromkeys(_KEY_DATA["read"], "read")
    for table in ("tables", "no_effect", "unread"):
        decisions |= {key: f"{table}: {text}" for key, text in _KEY_DATA[table].items()}
    return decisions


def concerns_position(key: str) -> bool:
    """Tell whether the name of a key has one of the words of position."""
    return bool(_POSITION_WORDS.search(key.lower()))


def list_unread_keys(section: ConfigSection) -> tuple[str, ...]:
    """List the keys of a section that concern position and that no rule reads.

    Keys that turn nothing on (null, false, 0) are left out.
    """
    keys = dict.fromkeys(_iter_unread(section.config))
    return tuple(key[:_MAX_KEY_LETTERS] for key in keys)[:_MAX_NAMED_KEYS]


def _iter_unread(config: Mapping[str, Any]) -> Iterator[str]:
    for key, value in config.items():
        if not isinstance(key, str) or _is_off(value):
            continue
        if key in _PARAMETER_KEYS and isinstance(value, Mapping):
            yield from _iter_unread_parameters(value)
        elif key == _ATTENTION_KEY and isinstance(value, Mapping):
            yield from _iter_unread(value)
        elif not isinstance(value, Mapping) and concerns_position(key):
            decision = load_decisions().get(key, "unread")
            is_read_setting = key.endswith(_READ_SETTINGS) and "." in key
            if decision.startswith("unread") and not is_read_setting:
                yield key


def _iter_unread_parameters(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a rule of scaling, or of the rules of several kinds of layers."""
    known = {*_KEY_DATA["read_parameters"], *_KEY_DATA["no_effect_parameters"]}
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from _iter_unread_parameters(value)
        elif isinstance(key, str) and key not in known and not _is_off(value):
            yield f"rope_parameters.{key}"


def _is_off(value: Any) -> bool:
    return any(
        value is off or (type(value) is type(off) and value == off) for off in _OFF_VALUES
    )
