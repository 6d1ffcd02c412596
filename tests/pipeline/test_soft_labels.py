"""A language model's labels in a run: trained on, marked, and counted nowhere as people's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.annotators import filled_table
from helpers.chat_endpoint import endpoint, knows
from helpers.pool_folders import read_pools
from helpers.runs import TRAINING, Silent, run_context, small_settings

from icalib import label_ask, label_import, label_next
from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.data.pools import read_column
from icalib.pipeline.run import run
from icalib.reports.html import write_report
from icalib.training.pseudo_labelled import SOFT_LABELS_FILE

SIMILARITY = {"training": {**TRAINING, "epochs": 1, "selection_metric": "MAP", "batch_size": 4}}


@pytest.fixture(scope="module")
def folders(tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Pools with people's labels, and the same with a model's labels of ten others besides."""
    folder, pools = tmp_path_factory.mktemp("labelled"), read_pools(tiny_pools, "train")
    right = {pool.pool_id: pool.right for pool in pools}
    batch = label_next(data=tiny_pools, out=folder / "batch.csv", number=20)
    filled = filled_table(batch.path, folder / "filled.csv", right.__getitem__, zeros=True)
    people, soft = folder / "people", folder / "soft"
    label_import(filled, tiny_pools, people)
    with endpoint(knows(pools)) as at:
        label_ask(people, folder / "a.jsonl", url=at.url, model="m", number=10, requests_per_minute=1e6)
    label_import(folder / "a.jsonl", people, soft)
    return people, soft


def trained(data: Path, backbone: Path, runs: Path, silent: Silent) -> RunFolder:
    settings = small_settings(
        "bert", data, backbone, experiment=data.name, domain_pretraining=None, similarity=SIMILARITY, cross=False
    )
    return run(settings, run_context(runs, silent))


def test_soft_labels_are_trained_on_and_counted_nowhere(
    folders: tuple[Path, Path], tiny_bert: Path, tmp_path: Path
) -> None:
    said = [Silent(), Silent()]
    without, found = (trained(data, tiny_bert, tmp_path, silent) for data, silent in zip(folders, said, strict=True))
    num_examples = [read_json(_training(one) / "result.json")["examples"] for one in (without, found)]
    assert num_examples[1] == num_examples[0] + 10
    assert any("llm:m: right in" in text and "trained on by the similarity part" in text for text in said[1].messages)
    assert not any("llm:" in text for text in said[0].messages)
    for split in ("validation", "test"):  # the same pools and labels are measured on
        columns = ["pool_id", "candidate", "label"]
        assert found.predictions(split).select(columns) == without.predictions(split).select(columns)
    (source,) = read_json(found.path / "provenance.json")["soft_labels"]
    assert (source["annotator"], source["num_pools"]) == ("llm:m", 10)
    assert "Soft labels of 10 pools: llm:m." in write_report([found], tmp_path / "r.html", "r").read_text()


def test_self_training_selects_no_pool_that_the_teacher_learnt_from(
    folders: tuple[Path, Path], tiny_bert: Path, tmp_path: Path
) -> None:
    fields = {"domain_pretraining": None, "similarity": SIMILARITY, "cross": False}
    settings = small_settings("tsst", folders[1], tiny_bert, **fields)
    found = run(settings, run_context(tmp_path))
    soft = set(pq.read_table(folders[1] / SOFT_LABELS_FILE)["pool_id"].to_pylist())
    names = np.array([pool.pool_id for pool in read_pools(folders[1], "train")])
    unlabelled = settings.selection.rows("train", "unlabelled", read_column(folders[1], "train", "label_order"))
    assert soft
    assert found.round_summaries()[0].num_pools_scored == len(set(names[unlabelled]) - soft)


def _training(run: RunFolder) -> Path:
    (stage,) = (one for one in run.stages if one["name"] == "teacher-similarity")
    return Path(stage["path"])
