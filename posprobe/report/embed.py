"""What a page carries for its script: numbers, and the script itself with its hash."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from posprobe.text import plain_json


def json_text(document: Mapping[str, Any]) -> str:
    """Serialise a document for a ``<script>``: no ``<`` that could end it or open a comment."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return plain_json(text).replace("<", "\\u003c")


@cache
def script(name: str) -> tuple[str, str]:
    """Return a page's script and its hash, by which the page's policy lets it alone run."""
    text = (files("posprobe.report") / "templates" / name).read_text(encoding="utf-8")
    digest = hashlib.sha256(text.encode()).digest()
    return text, f"sha256-{base64.b64encode(digest).decode()}"
