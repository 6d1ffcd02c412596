from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.artifacts import known
from helpers.score_jobs import score_job
from helpers.tiny_models import ranker_config
from helpers.train_jobs import answer_job
from unit.regimes.made_scores import intent_table, score_table

from icalib.core.events import ignore
from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.regimes.pseudo_labelling import PseudoLabelJob
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.stages.executor import LocalExecutor
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.pseudo_labelled import pseudo_labelled

CPU = torch.device("cpu")


def train_job(tokens: Path, backbone: Path, intents: tuple[str, ...], **values: Any) -> CrossEncoderJob:
    return answer_job(tokens, ranker_config(backbone, intents=intents), labelled=0.1, **values)


def test_every_worker_builds_the_same_model_and_the_same_batches(
    tokens: Path, tiny_bert: Path, intents: tuple[str, ...]
) -> None:
    job = train_job(tokens, tiny_bert, intents, views_with_intents=True)
    torch.manual_seed(1)
    one = job.prepare(CPU)
    torch.manual_seed(2)
    two = job.prepare(CPU)
    other = job.model_copy(update={"seed": 4}).prepare(CPU)
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, two.model.state_dict()[name])
    assert not torch.equal(one.model.intent_head.weight, other.model.intent_head.weight)
    lengths = [[[e.length for e in batch] for batch in made.curriculum.batches(2)] for made in (one, two)]
    assert lengths[0] == lengths[1]


def test_only_labelled_pools_are_learnt(tokens: Path, tiny_bert: Path, store: TokenStore) -> None:
    made = train_job(tokens, tiny_bert, ()).prepare(CPU)
    rows = {example.labels.row for batch in made.curriculum.batches(0) for example in batch}
    assert len(rows) == math.ceil(len(store) / 10)
    assert sorted(store.column("label_order")[sorted(rows)]) == list(range(len(rows)))


def test_shards_cut_a_part_or_a_sample_of_it_into_disjoint_rows(tokens: Path, store: TokenStore) -> None:
    def shards(**values: Any) -> list[list[int]]:
        return [[int(row) for row in rows] for rows in score_job(tokens, Path("nowhere"), **values).shards()]

    whole = shards()
    assert {len(rows) for rows in whole[:-1]} == {10}
    rows = [row for shard in whole for row in shard]
    assert len(set(rows)) == len(rows) == len(store) - math.ceil(len(store) / 10)
    assert shards(selection=Selection(labelled_fraction=1.0)) == []
    sample = [row for shard in shards(sample=20) for row in shard]
    assert (len(set(sample)), sample) == (20, sorted(sample))
    assert set(sample) < set(rows)
    assert shards(sample=20) != shards(sample=20, seed=2)
    assert shards(sample=1000) == whole


@pytest.mark.parametrize("predicted", [[[0]], [[]], None])
def test_pseudo_labels_on_disk_come_back_as_pools_to_learn(
    store: TokenStore, tmp_path: Path, predicted: list[list[int]] | None
) -> None:
    """Without a predicted intent both views are the same text, whose scores the intent part may still tell apart."""
    plain = [
        [(0.9, 0.1), (0.05, 0.1), (0.5, 0.1)],
        [(0.5, 0), (0.5, 0), (0.5, 0)],
        [(0.9, 0.1), (0.01, 0.1), (0.02, 0.1)],
    ]
    intent = [[(0.95, 0.3), (0.05, 0.0), (0.5, 0.1)], [(0.5, 0), (0.5, 0), (0.5, 0)], plain[2]]
    scores = score_table(plain, intent if predicted is not None else None)
    ids = [store.pool(int(name.removeprefix("p"))).pool_id for name in scores["pool_id"].to_pylist()]
    scores = scores.set_column(0, "pool_id", [ids])
    folder = tmp_path / "scores"
    folder.mkdir()
    pq.write_table(scores, folder / "scores-000000.parquet")
    if predicted is not None:
        table = intent_table(3)
        predictions = pa.array([predicted] * 3, table.schema.field("intents").type)
        table = table.set_column(table.schema.get_field_index("intents"), table.schema.field("intents"), predictions)
        pq.write_table(table, folder / "intents-000000.parquet")
    job = PseudoLabelJob(scores=known(folder), rule=PseudoLabelRule(gain_threshold=0.02), round=2)
    (tmp_path / "pseudo").mkdir()
    LocalExecutor().map(job, tmp_path / "pseudo", "pseudo-labels", ignore)
    first, second = pseudo_labelled(tmp_path / "pseudo", store)
    assert (first.row, first.candidates.tolist(), first.labels.tolist()) == (0, [0, 1], [1, 0])
    assert (second.row, second.candidates.tolist(), second.labels.tolist()) == (2, [0, 1, 2], [1, 0, 0])
    has_intents = predicted == [[0]]
    assert first.intent_view.tolist() == [has_intents, False]
    assert (first.learn_intents, second.learn_intents) == (has_intents, False)
    assert list(first.intents) == (predicted or [])
    assert (tmp_path / "pseudo" / "summary.json").is_file()
