from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs
from unit.reports.fake_runs import HOSTILE, write_pools, write_run
from unit.reports.pages import Page, read_page, visible

from icalib.core.errors import DamagedFileError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.reports.html import write_report
from icalib.reports.page import LIBRARY
from icalib.reports.paired_tests import MethodTest, matrices


@pytest.fixture(scope="module")
def page(runs: list[RunFolder], tmp_path_factory: pytest.TempPathFactory) -> Page:
    return read_page(write_report(runs, tmp_path_factory.mktemp("html") / "report.html", "Desk <1>"))


def test_the_page_is_self_contained_and_shows_rounds_and_cases(page: Page) -> None:
    assert page.addresses
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    text = visible(page)
    assert all(words in text for words in ("Desk <1>", "icast is right, tsst is wrong", "confident 410"))


def test_only_names_of_html_files_are_written_to(runs: list[RunFolder], tmp_path: Path) -> None:
    for name in ("x.txt", "x"):
        with pytest.raises(SettingError, match=f"{name}: a report is a page. Name a .html file"):
            write_report(runs, tmp_path / name, "x")
    assert not list(tmp_path.iterdir())
    assert write_report(runs[:1], tmp_path / "x.HTM", "x").is_file()


def test_text_from_data_is_escaped(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk", num_pools=3)
    run = write_run(tmp_path / "runs", data, "icast", 1)
    out = write_report([run], tmp_path / "report.html", "one")
    assert "<script>alert" not in out.read_text(encoding="utf-8")
    assert HOSTILE in "".join(read_page(out).text)


def test_a_run_that_has_moved_and_whose_pools_are_gone_has_the_rest(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    run = write_run(tmp_path / "runs", data, "tsst", 1)
    moved = RunFolder(Path(shutil.move(run.path, tmp_path / "elsewhere")))
    shutil.rmtree(data)
    assert "No cases" in visible(read_page(write_report([moved], tmp_path / "report.html", "moved")))


def test_the_plot_library_is_that_of_the_figures() -> None:
    """The figures are made by the plotly package, whose version of Plotly.js may change with an update."""
    packed = gzip.decompress(LIBRARY.read_bytes()).decode()
    version = re.search(r"plotly.js \(basic - minified\) v([\d.]+)", packed)
    ours = re.search(r"plotly.js v([\d.]+)", get_plotlyjs()[:400])
    assert version is not None
    assert ours is not None
    assert version[1].split(".")[0] == ours[1].split(".")[0]


@pytest.mark.parametrize("ranks", [True, False])
def test_calibrators_of_what_ranks_by_chance_are_never_bold(runs: list[RunFolder], tmp_path: Path, ranks: bool) -> None:
    copy = RunFolder(shutil.copytree(runs[-1].path, tmp_path / "run"))
    copy.write_json("result.json", {**copy.result, "test": {**copy.result["test"], "R@1_chance": 1.0 - ranks}})
    text = write_report([copy], tmp_path / "report.html", "x").read_text()
    table = text[text.index('class="post-hoc"') : text.index('id="abstention"')]
    assert ('class="best"' in table) == ranks


def test_significance_is_a_matrix_from_each_methods_view() -> None:
    tests = [MethodTest("MAP", "a", "b", 0.2, 0.01, 0.02), MethodTest("Brier", "a", "b", 0.2, 0.01, 0.02)]
    tests.append(MethodTest("MAP", "a", "c", 0.1, 0.2, 0.3))
    found = matrices(tests)
    outcomes = {first: {second: one.outcome for second, one in row.items()} for first, row in found["MAP"].items()}
    assert outcomes == {"a": {"b": "better", "c": "chance"}, "b": {"a": "worse"}, "c": {"a": "chance"}}
    assert found["MAP"]["b"]["a"].difference == -0.2
    assert found["Brier"]["a"]["b"].outcome == "worse"  # a lower Brier score is better


def test_a_result_without_a_key_is_an_error_that_names_both(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "tsst", 1)
    run.write_json("result.json", {name: value for name, value in run.result.items() if name != "data"})
    with pytest.raises(DamagedFileError, match=r"result.json has no `data`"):
        write_report([run], tmp_path / "report.html", "damaged")
