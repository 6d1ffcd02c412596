"""Pools with several right candidates in whole runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from helpers.pool_folders import read_pools
from helpers.raw_corpora import write_ranking
from helpers.runs import small_settings

from icalib.core.run_folder import RunFolder
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import SPLITS
from icalib.pipeline.run import RunContext, run


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries with one, two, three or no right answer, in FlagEmbedding's format."""
    folder, rng = tmp_path_factory.mktemp("several"), np.random.default_rng(3)
    for split, queries in zip(SPLITS, (range(60), range(60, 90), range(90, 120)), strict=True):
        write_ranking(folder / f"{split}.jsonl", lambda _: rng.integers(0, 4), num_wrong=3, queries=queries)
    prepare(folder, folder / "pools", PrepareSettings(labelled=0.5))
    return folder / "pools"


@pytest.fixture(scope="module", params=["bert", "jm", "bm25", "tsst", "gray", "big", "gpf-bert"])
def finished(request: pytest.FixtureRequest, pools: Path, tiny_bert: Path, around: RunContext) -> RunFolder:
    """Pairs, whole pools, no training, pseudo labels, generated texts of both kinds, and a posterior."""
    # contexts of one utterance have no domain pre-training
    return run(small_settings(request.param, pools, tiny_bert, limit={}, domain_pretraining=None), around)


def test_every_kind_of_method_has_all_labels_and_the_metrics_of_trec_eval(finished: RunFolder, pools: Path) -> None:
    by_id = {pool.pool_id: pool for pool in read_pools(pools, "test")}
    assert {len(pool.right) for pool in by_id.values()} == {0, 1, 2, 3}
    relevance: dict[str, dict[str, int]] = {}
    ranking: dict[str, dict[str, float]] = {}
    for row in finished.predictions("test").to_pylist():
        pool = by_id[row["pool_id"]]
        assert row["label"] == int(row["candidate"] in pool.right)
        relevance.setdefault(pool.pool_id, {})[str(row["candidate"])] = row["label"]
        ranking.setdefault(pool.pool_id, {})[str(row["candidate"])] = row["logit"]
    answerable = [name for name, pool in by_id.items() if pool.right]
    evaluator = pytrec_eval.RelevanceEvaluator(relevance, {"map", "recip_rank", "recall.1,2", "P_1"})
    found = evaluator.evaluate(ranking)
    names = {"MAP": "map", "MRR": "recip_rank", "R@1": "recall_1", "R@2": "recall_2", "hit@1": "P_1"}
    result = finished.result["test"]
    if finished.result["method"] != "bm25":  # whose ties count in expectation
        for name, of_trec in names.items():
            assert result[name] == pytest.approx(np.mean([found[pool][of_trec] for pool in answerable])), name
    assert result.keys() >= {"AUROC_none", "false_accepts@90", "ECE_none"}
    assert result["MRR"] >= result["hit@1"]
    assert result["hit@1"] >= result["R@1"]
