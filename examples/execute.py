"""Execute the notebooks of this folder and store what they print: `make notebooks`.

They run in an empty folder, so that nothing is reused. What differs from machine to machine is left out: progress on
standard error, durations, and the folder's path.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).resolve().parent.glob("*.ipynb"))
TIMEOUT_S = 1800
_DURATION = re.compile(r"\b\d+ min \d+ s\b|\b\d+(?:\.\d+)? s\b")


def execute(path: Path) -> None:
    """Execute a notebook in an empty folder and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        client = NotebookClient(
            notebook,
            timeout=TIMEOUT_S,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [_stable(output, folder) for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(notebook, path)


def _stable(output: Any, folder: Path) -> Any:
    """Return an output without what another execution would change."""
    if output.output_type == "stream":
        output.text = _stable_text(output.text, folder)
    else:
        output.data = {"text/plain": _stable_text(output.data["text/plain"], folder)}
    return output


def _stable_text(text: str, folder: Path) -> str:
    """Keep the width of what is replaced, since it may be in a table."""
    text = text.replace(f"{folder}/", "")
    return _DURATION.sub(lambda found: "… s".rjust(len(found[0])), text)


if __name__ == "__main__":
    for path in NOTEBOOKS:
        print(path.name)
        execute(path)
