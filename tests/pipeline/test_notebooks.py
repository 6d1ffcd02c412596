"""The notebooks of examples/ run from top to bottom as plain Python: small by default, at their own size if nightly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
PARAMETERS = "parameters"
"""Tag of the cell whose values a smaller run replaces; those of papermill."""
SMALL: dict[str, dict[str, Any]] = {
    "own_csv": {"num_tickets": 220, "max_error": 0.95, "export": {"format": "cross-encoder", "distil": True}},
    "few_labels": {
        "num_dialogues": 80,
        "first": 8,
        "more": 6,
        "limit": {"validation": 12, "test": 25},
        "max_error": 0.99,
    },
}
BUDGET = {"encoder.budget": {"max_context_tokens": 60, "max_candidate_tokens": 20}}


def run_notebook(path: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """Run a notebook's cells in the current folder, and return its names."""
    names: dict[str, Any] = {}
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert PARAMETERS in cells[0]["metadata"].get("tags", ())
    for index, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{path.name}, {cell['id']}", "exec"), names)
        if index == 0:
            assert parameters.keys() <= names.keys()
            names.update(parameters)
    return names


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(one, marks=getattr(pytest.mark, "slow" if one.stem == "few_labels" else "nightly"))
        for one in NOTEBOOKS
    ],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_at_small_size(
    path: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = {"encoder.num_layers": 1, "domain_pretraining": None, **BUDGET}
    if path.stem == "few_labels":
        quick |= {"cross": False, "similarity.training.epochs": 1}
    else:
        quick |= {"regime.training.epochs": 1}
    run_notebook(path, {**SMALL[path.stem], "backbone": str(tiny_bert), "quick": quick})
    assert (tmp_path / path.stem / "runs").is_dir()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_notebook(path, {})
    assert (tmp_path / path.stem / "runs").is_dir()
