from __future__ import annotations

import json
from pathlib import Path

from unit.reports.fake_runs import write_pools, write_run
from unit.reports.pages import read_page, visible

from icalib.reports.label_curve import label_curve, write_label_curve


def test_the_page_has_a_point_and_the_deviation_of_each_number_of_labels(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    few, many = ([write_run(tmp_path / part, data, "tsst", seed) for seed in (1, 2)] for part in ("few", "many"))
    runs = {None: [write_run(tmp_path / "free", data, "bm25", 1)], 60: few, 240: many}
    curve = label_curve("desk", "test", runs)
    page = read_page(write_label_curve(curve, tmp_path / "curve.html", "icalib curve tsst"))
    assert curve.verdicts["tsst"] in visible(page)
    (figure,) = (json.loads(script) for script in page.scripts if script.startswith('{"data"'))
    lines = [trace for trace in figure["data"] if trace["name"] == "tsst"]
    assert [trace["x"] for trace in lines] == [[60, 240]] * 3
    assert all(min(trace["error_y"]["array"]) > 0 for trace in lines)
