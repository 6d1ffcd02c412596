from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.run_folder import RunFolder
from icalib.reports.case_table import CASES_PER_KIND, CaseTable, build_case_table


def _table(root: Path) -> tuple[CaseTable, dict[str, RunFolder]]:
    data = write_pools(root / "desk")
    runs = {method: write_run(root / "runs", data, method, 1) for method in ("icast", "tsst", "bm25")}
    table = build_case_table(runs)
    assert table is not None
    return table, runs


def test_kinds_and_order_follow_the_rule(tmp_path: Path) -> None:
    table, _ = _table(tmp_path)
    for (_, num_pools, cases), right, wrong in zip(table.groups, (0, 1), (1, 0), strict=True):
        gaps: list[float] = []
        for case in cases:
            (gold,) = [candidate for candidate in case["candidates"] if candidate["is_right"]]
            assert (gold["is_top"][right], gold["is_top"][wrong]) == (True, False)
            gaps.append(gold["probs"][right] - gold["probs"][wrong])
        assert gaps == sorted(gaps, reverse=True)
        assert len(cases) == min(num_pools, CASES_PER_KIND) > 0


def test_texts_and_scores_belong_together(tmp_path: Path) -> None:
    table, runs = _table(tmp_path)
    case = table.groups[0][2][0]
    pools = pq.read_table(tmp_path / "desk" / "test.parquet").to_pylist()
    (pool,) = [pool for pool in pools if pool["pool_id"] == case["pool"]["pool_id"]]
    assert case["pool"] == pool
    for place, run in enumerate(runs.values()):
        rows = {
            row["candidate"]: row for row in run.predictions("test").to_pylist() if row["pool_id"] == pool["pool_id"]
        }
        for candidate in case["candidates"]:
            row = rows[pool["candidates"].index(candidate["text"])]
            assert (candidate["probs"][place], candidate["is_right"]) == (row["prob"], row["label"] == 1)
    assert [candidate["is_top"][0] for candidate in case["candidates"]] == [True] + [False] * 9
