from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
from unit.reports.fake_runs import write_pools, write_run

from icalib.reports.case_table import build_case_table


def test_texts_and_scores_belong_together(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    runs = {method: write_run(tmp_path / "runs", data, method, 1) for method in ("icast", "tsst", "bm25")}
    table = build_case_table(runs)
    assert table is not None
    case = table.groups[0][2][0]
    pools = pq.read_table(data / "test.parquet").to_pylist()
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


def test_pools_that_were_prepared_again_are_not_shown_as_those_of_the_run(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    run = write_run(tmp_path / "runs", data, "tsst", 1)
    assert build_case_table({"tsst": run}) is not None
    shutil.rmtree(data)
    write_pools(data, digest="of others")
    assert build_case_table({"tsst": run}) is None
