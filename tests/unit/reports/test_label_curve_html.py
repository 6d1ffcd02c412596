from __future__ import annotations

import json
from pathlib import Path

from unit.reports.fake_runs import write_pools, write_run
from unit.reports.pages import read_page, visible

from icalib.reports.label_curve import label_curve, write_label_curve


def test_the_page_has_a_sentence_a_row_a_point_and_the_deviation(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    few, many = ([write_run(tmp_path / part, data, "tsst", seed) for seed in (1, 2)] for part in ("few", "many"))
    runs = {None: [write_run(tmp_path / "free", data, "bm25", 1)], 60: few, 240: many}
    curve = label_curve("desk", "test", runs)
    page = read_page(write_label_curve(curve, tmp_path / "curve.html", "icalib curve tsst"))
    text = visible(page)
    point, said = curve.curves["tsst"][0], curve.verdicts["tsst"]
    assert point.minus(point, "test").p_value == 1
    assert said in text
    assert all(part in said for part in ("from 60 to 240 labels", "against bm25", "the next 100"))
    (figure,) = (json.loads(script) for script in page.scripts if script.startswith('{"data"'))
    lines = [trace for trace in figure["data"] if trace["name"] == "tsst"]
    assert [trace["x"] for trace in lines] == [[60, 240]] * 3
    assert all(min(trace["error_y"]["array"]) > 0 for trace in lines)


def test_a_curve_of_one_point_says_nothing_of_more_labels(tmp_path: Path) -> None:
    run = write_run(tmp_path, write_pools(tmp_path / "desk"), "tsst", 1)
    curve = label_curve("desk", "test", {60: [run]})
    assert curve.verdicts == {"tsst": "tsst: 60 labels."}
