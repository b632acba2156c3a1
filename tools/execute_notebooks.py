"""Execute the notebooks and store them with their outputs, or read what they printed.

    uv run --group test python tools/execute_notebooks.py [NAME ...]

A name is the start of a notebook's, such as ``6``; without names all are executed. The notebooks
are stored with small pictures, so that a code host shows them as they are.
"""

from __future__ import annotations

import base64
import os
import re
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parents[1] / "notebooks"
#: Size limit of a stored notebook, in bytes: code hosts show no larger ones at once.
MAX_NOTEBOOK_BYTES = 400_000
#: Width limit of a stored picture, in pixels: that of the text on a code host.
MAX_PICTURE_WIDTH_PIXELS = 640
#: Size limit of a stored picture, in bytes of base64, so that ten fit into a notebook.
MAX_STORED_PICTURE_BYTES = 50_000
#: Factor by which a picture that is too large is made smaller, until it is small enough.
STORED_SHRINKING_FACTOR = 0.85
#: Colours of a stored picture.
N_STORED_COLOURS = 48
#: Time limit of a cell, in seconds.
CELL_TIMEOUT_SECONDS = 200
#: Metadata of a stored notebook.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
#: Environment of the kernel: threads make the small products of these tables many times slower, and
#: figures are shown inline, whatever the shell says.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
#: What may differ between two machines, and what stands in its place.
VARIABLE_PARTS = (
    (re.compile(r"<img [^>]*>"), "<img>"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0x"),
    (re.compile(r"\bposprobe \d[\w.+]*"), "posprobe VERSION"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|seconds)\b"), "SECONDS"),
    # Rounding of single precision, and the sign of a rounded zero.
    (re.compile(r"\b\d(?:\.\d+)?e[-\u2212](?:0[6-9]|[1-9]\d)\b"), "ROUNDING"),
    (re.compile(r"-(0(?:\.0+)?)(?![\d.])"), r"\1"),
)


def execute(notebook: Any, folder: Path, fence: str = "") -> None:
    """Execute a notebook in a folder; its outputs replace the old ones.

    Parameters
    ----------
    notebook
        Notebook as `nbformat` reads it.
    folder
        Empty folder, in which the notebook runs; the user's IPython start-up files do not.
    fence
        Code that runs before the first cell, and is not part of the notebook.
    """
    fence_cell = nbformat.v4.new_code_cell(fence)  # type: ignore[no-untyped-call]
    notebook.cells.insert(0, fence_cell)
    (work := folder / "work").mkdir()
    environment = {**os.environ, **ENVIRONMENT, "IPYTHONDIR": str(folder / "ipython")}
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(work)}},
    )
    client.execute(env=environment)
    del notebook.cells[0]
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code_cells, 1):
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number


def outputs_of(notebook: Any) -> list[Any]:
    """Return the outputs of all cells, in order."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def printed_texts(notebook: Any) -> list[list[str]]:
    """Return the texts that each code cell shows, without pictures and what machines differ in."""
    return [
        [
            mask_variable_parts(text)
            for output in cell.outputs
            for text in _texts_of_output(output)
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def mask_variable_parts(text: str) -> str:
    """Replace what differs between machines: pictures, addresses, versions, times, rounding."""
    for pattern, replacement in VARIABLE_PARTS:
        text = pattern.sub(replacement, text)
    return text


def _texts_of_output(output: Any) -> list[str]:
    if output.output_type == "stream":
        return [output.text]
    data = output.get("data", {})
    # The text of a picture is the size of its figure.
    return [] if "image/png" in data else [data[kind] for kind in sorted(data)]


def shrink_pictures(notebook: Any) -> None:
    """Store the pictures of a notebook with few colours and no wider than the text."""
    for output in outputs_of(notebook):
        data = output.get("data", {})
        if "image/png" in data:
            data["image/png"] = _shrink_picture(data["image/png"])


def _shrink_picture(encoded: str) -> str:
    image = Image.open(BytesIO(base64.b64decode(encoded))).convert("RGB")
    width = min(image.width, MAX_PICTURE_WIDTH_PIXELS)
    while len(stored := _encode_picture(image, width)) > MAX_STORED_PICTURE_BYTES:
        width = round(width * STORED_SHRINKING_FACTOR)
    return stored


def _encode_picture(image: Image.Image, width: int) -> str:
    """Return a picture at a width in pixels, with few colours, as PNG in base64."""
    height = round(image.height * width / image.width)
    if width < image.width:
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    image.quantize(N_STORED_COLOURS).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main(names: list[str]) -> None:
    """Execute the notebooks whose names begin so, and store them."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and not path.name.startswith(tuple(names)):
            continue
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        with TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        shrink_pictures(notebook)
        notebook.metadata = nbformat.from_dict(METADATA)  # type: ignore[no-untyped-call]
        text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
        size = len(text.encode())
        if size > MAX_NOTEBOOK_BYTES:
            sys.exit(
                f"{path.name}: {size:,} bytes; at most {MAX_NOTEBOOK_BYTES:,} are stored."
            )
        path.write_text(f"{text}\n", encoding="utf-8")
        print(f"{path.name}: {size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
