"""Write the last section of docs/analyses.md: a sentence on every question and number.

    uv run python tools/analyses_docs.py

The sentences are those that pages show in place. A test compares the section with what this prints.
"""

from __future__ import annotations

from pathlib import Path

from posprobe.measurements import STRETCH_MEASUREMENTS, TABLE_MEASUREMENTS
from posprobe.measurements.model import MODEL_MEASUREMENTS
from posprobe.words import DEFINITIONS, QUESTION_TEXTS
from posprobe.words.relations import subject_name

TARGET = Path(__file__).parent.parent / "docs" / "analyses.md"
TITLE = "## Every question and number"
HEAD = f"""{TITLE}

What pages show beside a question, a measure and a number. This section is made by
`tools/analyses_docs.py` from the package.
"""


def section() -> str:
    """Return the section."""
    lines = [HEAD, "| question | what is asked |", "| --- | --- |"]
    for name, sentence in DEFINITIONS["questions"].items():
        lines.append(f"| `{name}`: {QUESTION_TEXTS[name]} | {sentence} |")
    lines += [
        "",
        "| line or numbers without a question | what they show |",
        "| --- | --- |",
    ]
    lines += [f"| `{name}` | {text} |" for name, text in DEFINITIONS["lines"].items()]
    lines += ["", "| question of a check | what is asked |", "| --- | --- |"]
    lines += [
        f"| `{name}`: Same {subject_name(name, '')}? | {text} |"
        for name, text in DEFINITIONS["check"].items()
    ]
    lines += ["", "| number of a table | key | what it is | rows |", "| --- " * 4 + "|"]
    for name, measurement in TABLE_MEASUREMENTS.items():
        rows = "those of the answers" if name in STRETCH_MEASUREMENTS else "all"
        lines += [
            f"| {number.label} | `{name}.{key}` | {number.meaning} | {rows} |"
            for key, number in measurement.numbers.items()
        ]
    lines += ["", "| number of a run | key | what it is |", "| --- " * 3 + "|"]
    lines += [
        f"| {number.label} | `{name}.{key}` | {number.meaning} |"
        for name, measurement in MODEL_MEASUREMENTS.items()
        for key, number in measurement.numbers.items()
    ]
    return "\n".join(lines) + "\n"


def document() -> str:
    """Return the whole page, with the section at its end."""
    page = TARGET.read_text(encoding="utf-8")
    return f"{page.partition(TITLE)[0].rstrip()}\n\n{section()}"


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
