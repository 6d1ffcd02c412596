"""What is promised rests on pools that have chosen nothing, and covers pools of their sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from unit.metrics.made_predictions import simulated_table

from icalib.core.errors import DataError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.data.questions import Question
from icalib.metrics.conformal import answer_sets, fit_conformal
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.risk_control import control_risk
from icalib.pipeline.guarantees import AnswerOptions, Guarantees


def scores(num_pools: int, seed: int, num_candidates: int = 10) -> PoolScores:
    return PoolScores.from_predictions(simulated_table(num_pools, seed=seed, num_candidates=num_candidates))


def rename(table: pa.Table) -> pa.Table:
    """The same pools under other names."""
    names = pa.array([f"few-{name}" for name in table["pool_id"].to_pylist()])
    return table.set_column(0, table.schema.field(0), names)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.write_table("predictions/validation.parquet", simulated_table(60, seed=1))
    folder.write_table("predictions/test.parquet", simulated_table(80, seed=2))
    return folder


def test_validation_proposes_and_the_test_pools_decide(folder: RunFolder) -> None:
    found, asked = Guarantees(folder), scores(30, 3)
    validation, test = scores(60, 1), scores(80, 2)
    assert found.promise(0.8, 0.8) == control_risk(top_candidate(test), top_candidate(validation), 0.8, 0.8)
    assert found.sets(asked, 0.9).tolist() == answer_sets(asked, fit_conformal(test, 0.9)).tolist()


def test_promises_stay_those_of_the_run_that_was_loaded(folder: RunFolder) -> None:
    found, asked = Guarantees(folder), scores(30, 3)
    expected = Guarantees(folder).promise(0.8, 0.8), Guarantees(folder).sets(asked, 0.5).tolist()
    found.keep()
    for split in ("validation", "test"):
        folder.write_table(f"predictions/{split}.parquet", simulated_table(200, seed=7))
    assert (found.promise(0.8, 0.8), found.sets(asked, 0.5).tolist()) == expected


def test_pools_of_another_size_are_not_covered_and_their_sets_leave_nothing_out(folder: RunFolder) -> None:
    found, few = Guarantees(folder), scores(30, 4, num_candidates=4)
    assert found.covered(scores(30, 3)).all()
    assert not found.covered(few).any()
    assert found.sets(few, 0.5).all()


@pytest.mark.parametrize("has_few", ["validation", "test"])
def test_what_is_said_of_questions_of_a_size_that_one_split_lacks(folder: RunFolder, has_few: str) -> None:
    few = simulated_table(40, seed=3, num_candidates=4)
    tables = [folder.predictions(has_few), rename(few)]
    folder.write_table(f"predictions/{has_few}.parquet", pa.concat_tables(tables))
    asked = scores(30, 4, num_candidates=4)
    questions = [Question(id=name, context=("hello",), candidates=("a", "b", "c", "d")) for name in asked.pool_ids]
    found = Guarantees(folder).answers(questions, asked, AnswerOptions(max_error=0.8, confidence=0.8))
    notes = " ".join(found.notes)
    is_tested = has_few == "test"
    assert any(not answer.abstained for answer in found.answers) == is_tested
    assert ("No promise covers these questions" in notes) == (not is_tested)
    assert ("don't rely on theirs" in notes) == is_tested  # whose probabilities validation has not calibrated


def test_the_mean_size_is_that_of_sets_that_leave_something_out(folder: RunFolder) -> None:
    usual, few = simulated_table(30, seed=3), rename(simulated_table(30, seed=4, num_candidates=4))
    asked = PoolScores.from_predictions(pa.concat_tables([usual, few]))
    questions = [
        Question(id=name, context=("hello",), candidates=("a",) * int(size))
        for name, size in zip(asked.pool_ids, asked.sizes(), strict=True)
    ]
    found = Guarantees(folder).answers(questions, asked, AnswerOptions(sets=0.5))
    size = np.mean([len(answer.set or ()) for answer in found.answers if len(answer.probs) == 10])
    assert f"the other sets have {size:.1f} candidates on average" in found.notes[-1]


def test_without_labelled_test_pools_nothing_is_promised(folder: RunFolder) -> None:
    table = simulated_table(20, seed=2)
    unknown = pa.array(np.full(table.num_rows, -1), table.schema.field("label").type)
    label = table.schema.get_field_index("label")
    folder.write_table("predictions/test.parquet", table.set_column(label, "label", unknown))
    for promise in (lambda: Guarantees(folder).promise(0.2), lambda: Guarantees(folder).sets(scores(1, 3), 0.9)):
        with pytest.raises(DataError, match="no labelled test pools"):
            promise()


def test_a_confidence_without_a_promise_is_refused(folder: RunFolder) -> None:
    with pytest.raises(SettingError, match=r"confidence of 0.99 .*Add `max_error`"):
        Guarantees(folder).check(AnswerOptions(confidence=0.99))
