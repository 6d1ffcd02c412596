"""Execute the notebooks of this folder and store what they print: `make notebooks`.

They run in an empty folder, so that nothing is reused. Progress on standard error is left out: its times differ from
machine to machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).resolve().parent.glob("*.ipynb"))
TIMEOUT_S = 1800


def execute(path: Path) -> None:
    """Execute a notebook in an empty folder and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=TIMEOUT_S,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in NOTEBOOKS:
        print(path.name)
        execute(path)
