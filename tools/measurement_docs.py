"""Write docs/measurements.md: every measurement and its numbers, as the registry has them."""

from __future__ import annotations

from pathlib import Path

from posprobe.measurements import TABLE

TARGET = Path(__file__).parent.parent / "docs" / "measurements.md"
HEAD = """# Measurements and their numbers

Made by `tools/measurement_docs.py` from the registry of measurements; a test holds it equal. The
key is the place of a number in `analysis.json`. Numbers marked with a dot stand beside the sinusoid
of the table's shape and the null models. How each is computed, and what it does not show, is
described in [analyses.md](analyses.md).
"""


def document() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for name, measurement in TABLE.items():
        slow = " Runs on request: `--only`." if measurement.slow else ""
        parts.append(f"## {measurement.texts.title}: `{name}`\n\n{measurement.texts.shows}{slow}\n")
        if measurement.numbers:
            rows = [
                f"| {number.label} | `{name}.{key}` | {number.meaning} | "
                f"{'•' if number.compared else ''} |"
                for key, number in measurement.numbers.items()
            ]
            head = "| number | key | meaning | compared |\n| --- | --- | --- | --- |"
            parts.append("\n".join([head, *rows]) + "\n")
        about = measurement.texts.drawings
        drawn = [
            f"`{d.name}` ({about[d.name]})" if d.name in about else f"`{d.name}`"
            for d in measurement.drawings
        ]
        if drawn:
            parts.append(f"Figures: {', '.join(drawn)}.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
