"""What `make docs` and `make results` build: navigation, links of the site, tables that are up to date, notebooks."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from unit.reports.fake_runs import write_pools, write_run

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def script(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    return script("hooks")


def pages(entry: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry if isinstance(entry, list) else entry.values():
            yield from pages(part)


def test_the_navigation_has_every_page_once(hooks: ModuleType) -> None:
    own = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(pages(CONFIG["nav"])) == sorted([*own, *hooks.site_paths().values()])


def test_links_lead_to_pages_of_the_site_also_where_their_text_has_code(hooks: ModuleType) -> None:
    text = "See [preset `bi-encoder`](docs/methods.md#presets), [data](docs/data.md), `[code](docs/data.md)`."
    assert hooks.with_site_links(text, "project/README.md") == (
        "See [preset `bi-encoder`](../methods.md#presets), [data](../data.md), `[code](docs/data.md)`."
    )


def test_the_tables_of_results_are_up_to_date_and_none_is_written_by_hand() -> None:
    results = script("results")
    text = "".join(page.read_text(encoding="utf-8") for page in results.PAGES)
    assert results.page_with_tables(text) == text, "run `make results`"
    used = {*results.named_tables(text), *re.findall(r"\(results/([\w-]+)\.yaml\)", text)}
    assert used == {path.stem for path in results.TABLES.glob("*.yaml")}
    by_hand = results._MARKED.sub("", text)
    assert [line for line in by_hand.splitlines() if line.startswith("|") and "0." in line] == []


def test_the_page_of_results_names_the_versions_that_tables_leave_out() -> None:
    results = script("results")
    head = " ".join(results.PAGES[0].read_text(encoding="utf-8").split("<!-- table")[0].split())
    assert results.versions_text(results.USUAL_VERSIONS) in head


def test_finished_runs_become_a_table(tmp_path: Path) -> None:
    results, data = script("results"), write_pools(tmp_path / "desk")
    runs = [write_run(tmp_path / "runs", data, "icast", seed) for seed in (1, 2)]
    results.write_table(tmp_path / "mine.yaml", results.collected([run.path for run in runs], ["R@1"]))
    (row,) = results.read_table(tmp_path / "mine.yaml").rows
    recalls = [run.result["test"]["R@1"] for run in runs]
    assert row["R@1"] == pytest.approx([statistics.fmean(recalls), statistics.stdev(recalls)], abs=1e-4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebooks_are_executed_from_top_to_bottom(path: Path) -> None:
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result"}
    assert not any(line.startswith("/") for output in outputs for line in str(output).split())
