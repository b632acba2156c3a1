"""Parts that several pages share: where a table comes from, versions, the headline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posprobe.page import Fact
from posprobe.text import Block


def origin_facts(source: Block) -> tuple[Fact, ...]:
    """Return the facts about the reference that the user typed and its resolution."""
    labels = {"reference": "reference", "resolved": "resolved to", "revision": "revision"}
    return tuple(
        Fact(label, str(source[key])) for key, label in labels.items() if source[key]
    )


def tensor_facts(source: Block, prefix: str = "") -> tuple[Fact, ...]:
    """Return the facts about the stored tensor: file, name, shape, dtype and checksum."""
    facts = []
    if source["file"]:
        facts.append(Fact(f"{prefix}file", source["file"]))
    if source.get("format"):
        facts.append(Fact(f"{prefix}file format", source["format"]))
    if source["tensor"]:
        facts.append(Fact(f"{prefix}tensor", source["tensor"]))
        shape = " × ".join(map(str, source["shape"] or ()))
        stored = ", ".join(
            filter(None, (shape, source["dtype"], describe_quantisation(source)))
        )
        if stored:
            facts.append(Fact(f"{prefix}stored as", stored))
    if source["sha256"]:
        facts.append(Fact(f"{prefix}SHA-256", source["sha256"]))
    return tuple(facts)


def describe_quantisation(source: Block) -> str:
    """Describe the quantisation of the stored numbers; empty where there is none."""
    quantisation = source.get("quantisation")
    if not quantisation:
        return ""
    step = f" in steps of {quantisation['step']:.3g}" if quantisation["step"] else ""
    return f"dequantised from {quantisation['name']}{step}"


def document_headline(document: Block) -> str:
    """Return the summary of the answers; bundles of earlier versions have findings alone."""
    if verdict := document.get("verdict"):
        summary: str = verdict["summary"]
        return summary
    return " ".join(finding["text"] for finding in document["findings"])


def version_facts(environment: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Return the facts about the environment that made the numbers."""
    return tuple(
        Fact(name, str(value)) for name, value in environment.items() if value is not None
    )
