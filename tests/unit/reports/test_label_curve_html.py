from __future__ import annotations

import json

import pytest
from unit.reports.fake_runs import write_pools, write_run
from unit.reports.pages import Page, read_page, visible

from icalib.reports.label_curve import label_curve
from icalib.reports.label_curve_html import write_label_curve
from icalib.reports.page import _commands


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    root = tmp_path_factory.mktemp("curve")
    data = write_pools(root / "desk")
    few, many = ([write_run(root / part, data, "tsst", seed) for seed in (1, 2)] for part in ("few", "many"))
    runs = {None: [write_run(root / "free", data, "bm25", 1)], 60: few, 240: many}
    command = "icalib curve tsst --data pools/desk --resample-labels"
    return read_page(write_label_curve(label_curve("desk", "test", runs), root / "curve.html", command))


def test_the_page_says_what_it_was_made_of(page: Page) -> None:
    assert "Made by icalib from the tables of the run folders." in " ".join(visible(page).split())


def test_bands_have_no_dots(page: Page) -> None:
    (figure,) = (json.loads(script) for script in page.scripts if script.startswith('{"data"'))
    bands = [trace for trace in figure["data"] if trace.get("fill") == "toself"]
    assert len(bands) == 3
    assert {trace["mode"] for trace in bands} == {"none"}


def test_the_options_of_a_command_are_not_broken_after_their_hyphens() -> None:
    said = _commands("`icalib curve my-method --data pools/desk -n 3` <shows> -- it - all")
    assert said.count('<span class="flag">') == 2
    assert (
        '<code>icalib curve my-method <span class="flag">--data</span> pools/desk <span class="flag">-n</span> 3'
        in said
    )
    assert said.endswith("</code> &lt;shows&gt; -- it - all")
