from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.pool_folders import read_pools
from rank_bm25 import BM25Okapi
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import RidgeClassifier

from icalib.core.errors import SettingError
from icalib.data.bm25 import tokenize
from icalib.data.prepare import prepare
from icalib.data.schema import Dialogue, Pool
from icalib.data.simulate import REPLIES, Simulation, simulate


def read(path: Path) -> list[Dialogue]:
    return [Dialogue.model_validate_json(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    simulate(folder / "desk.jsonl")
    prepare(folder / "desk.jsonl", folder / "pools")
    return folder


def test_corpus_is_a_function_of_its_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        simulate(tmp_path / name, num_dialogues=50, seed=seed)
    first, same, other = ((tmp_path / name).read_text() for name in "abc")
    assert first == same != other


def test_a_file_of_someone_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "desk.jsonl").write_text("mine")
    with pytest.raises(SettingError, match=r"desk\.jsonl exists and isn't of `simulate`"):
        simulate(tmp_path / "desk.jsonl", num_dialogues=50)
    assert (tmp_path / "desk.jsonl").read_text() == "mine"
    simulate(tmp_path / "own", num_dialogues=50)
    simulate(tmp_path / "own", num_dialogues=60)


def test_splits_and_noise_are_as_reported(tmp_path: Path) -> None:
    truth = simulate(tmp_path / "desk.jsonl", num_dialogues=2000, label_noise=0.1, intent_noise=0.0)
    splits = [dialogue.split for dialogue in read(tmp_path / "desk.jsonl")]
    assert [splits.count(s) for s in ("train", "validation", "test")] == [1400, 300, 300]
    assert sum(truth.num_responses.values()) / 2000 == pytest.approx(2.3, abs=0.1)  # as the help of simulate says
    assert list(truth.best_reachable.values()) == pytest.approx([0.9] * 3, abs=0.04)
    assert Simulation.model_validate(json.loads((tmp_path / "desk.jsonl.truth.json").read_text())) == truth


def test_lexical_overlap_is_not_enough_but_the_rules_can_be_learned(prepared: Path) -> None:
    train, test = read_pools(prepared / "pools", "train"), read_pools(prepared / "pools", "test")
    okapi = BM25Okapi([tokenize(reply) for reply in REPLIES])
    index = {reply: number for number, reply in enumerate(REPLIES)}

    def query(pool: Pool) -> str:
        return " ".join(utterance.text for utterance in pool.context)

    def recall(scores: np.ndarray) -> float:
        best = [max(p.candidates, key=lambda c, row=row: row[index[c]]) for p, row in zip(test, scores, strict=True)]
        return float(np.mean([b == p.candidates[p.label] for b, p in zip(best, test, strict=True)]))

    lexical = recall(np.array([okapi.get_scores(tokenize(query(pool))) for pool in test]))
    features = TfidfVectorizer(ngram_range=(1, 2))
    learned = RidgeClassifier().fit(
        features.fit_transform(map(query, train)), [index[p.candidates[p.label]] for p in train]
    )
    decisions = np.full((len(test), len(REPLIES)), -np.inf)
    decisions[:, learned.classes_] = learned.decision_function(features.transform(map(query, test)))
    truth = Simulation.model_validate(json.loads((prepared / "desk.jsonl.truth.json").read_text()))
    assert lexical < 0.35
    assert 0.75 < recall(decisions) <= truth.best_reachable["test"] + 0.03
