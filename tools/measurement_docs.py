"""Write docs/measurements.md: every measurement and its numbers, as the registry has them."""

from __future__ import annotations

from pathlib import Path

from posprobe.measurements import TABLE

TARGET = Path(__file__).parent.parent / "docs" / "measurements.md"
HEAD = """# Measurements and their numbers

Look up the key of a number in `analysis.json`, for `posprobe table --numbers` or a script. Numbers
with a dot are compared with the sinusoid and, with `--nulls N`, with random baselines.
[Analyses](analyses.md) has the formulas. Made by `tools/measurement_docs.py`.

| key | number | meaning | compared |
| --- | --- | --- | --- |
"""


def document() -> str:
    """Return the page as Markdown."""
    rows = [
        f"| `{name}.{key}` | {number.label} | {number.meaning} | {'•' if number.compared else ''} |"
        for name, measurement in TABLE.items()
        for key, number in measurement.numbers.items()
    ]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
