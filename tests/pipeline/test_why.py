"""One pool through a run of a sum of parts, and what people see of it."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from helpers.runs import TRAINING, run_context, small_settings
from rich.console import Console

from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import read_json
from icalib.core.parquet import read_parquet
from icalib.core.run_folder import RunFolder
from icalib.pipeline.run import run
from icalib.pipeline.why import Why, mistakes, why
from icalib.reports.why import print_why


@pytest.fixture(scope="module")
def icast(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    similarity = {"training": {**TRAINING, "selection_metric": "MAP", "batch_size": 4}}
    changes = {"similarity": similarity, "intent": {"training": None}, "cross": False, "uncertainty.num_passes": 4}
    return run(small_settings("icast", tiny_pools, tiny_bert, **changes), run_context(tmp_path_factory.mktemp("runs")))


def pool_ids(run: RunFolder, split: str) -> list[str]:
    return list(dict.fromkeys(run.predictions(split)["pool_id"].to_pylist()))


def assert_shares_sum_to_the_logit(found: Why) -> None:
    for reading in found.readings:
        for one in reading.candidates:
            np.testing.assert_allclose(sum(one.shares.values()) + reading.offset, one.logit, rtol=1e-6, atol=1e-6)


def test_pseudo_labels_are_those_that_the_student_was_trained_on(icast: RunFolder) -> None:
    labels = read_parquet(icast.path / "rounds" / "1" / "pseudo_labels.parquet").to_pylist()
    assert labels
    for pool_id in dict.fromkeys(row["pool_id"] for row in labels[:12]):
        found = why(icast.path, pool_id)
        (reading,) = found.readings
        own = {row["candidate"]: row for row in labels if row["pool_id"] == pool_id}
        assert {one.index: one.pseudo_label for one in reading.candidates if one.pseudo_label is not None} == {
            index: row["label"] for index, row in own.items()
        }
        for one in (one for one in reading.candidates if one.index in own):
            row = own[one.index]
            assert (one.prob, one.information, one.gain, one.view, reading.rule) == (
                row["prob"], row["mutual_information"], row["gain"], row["view"], row["rule"],
            )  # fmt: skip
        assert_shares_sum_to_the_logit(found)


def test_a_sum_is_fitted_to_the_view_that_is_read(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    """With λ = 1 no intents are read, and the intent part is 0."""
    changes = {
        "similarity": {"training": {**TRAINING, "selection_metric": "MAP", "batch_size": 4}},
        "intent": {"training": None},
        "cross": False,
        "calibration": None,
        "regime.rule.gain_threshold": 1.0,
    }
    settings = small_settings("icast-teacher", tiny_pools, tiny_bert, **changes)
    found = run(settings, run_context(tmp_path))
    assert set(found.predictions("validation")["view"].to_pylist()) == {"plain"}
    (member,) = [path for path, _ in found.members]
    fitted = read_json(member / "parts.json")
    assert fitted["nll"] == pytest.approx(found.result["validation"]["NLL"], rel=1e-3)
    assert fitted["recall"] == pytest.approx(found.result["validation"]["R@1"])


def test_a_pool_that_was_not_selected_says_so(icast: RunFolder, tiny_pools: Path) -> None:
    selected = set(read_parquet(icast.path / "rounds" / "1" / "pseudo_labels.parquet")["pool_id"].to_pylist())
    every = read_parquet(tiny_pools / "train.parquet")["pool_id"].to_pylist()
    some = [one for one in every if one not in selected][::6]
    found = [why(icast.path, one) for one in some]
    assert {one.readings[0].rule for one in found if one.readings} == {"not selected"}
    assert {one.note for one in found if not one.readings} == {"this pool is labelled: its gold label is trained on"}


def test_a_test_pool_has_the_predictions_of_the_run(icast: RunFolder) -> None:
    predicted = icast.predictions("test").to_pylist()
    for pool_id in pool_ids(icast, "test"):
        found = why(icast.path, pool_id)
        (reading,) = found.readings
        rows = {row["candidate"]: row for row in predicted if row["pool_id"] == pool_id}
        assert {one.index: (one.prob, one.view) for one in reading.candidates} == {
            index: (row["prob"], row["view"]) for index, row in rows.items()
        }
        order = sorted(rows, key=lambda index: -rows[index]["logit"])
        assert [one.index for one in reading.candidates] == order
        assert_shares_sum_to_the_logit(found)


def test_people_see_texts_numbers_and_thresholds(icast: RunFolder) -> None:
    (pool_id, *_) = read_parquet(icast.path / "rounds" / "1" / "pseudo_labels.parquet")["pool_id"].to_pylist()
    found = why(icast.path, pool_id)
    shown = StringIO()
    print_why(found, Console(file=shown, width=200))
    for text in (*found.readings[0].candidates[0].shares, "λ⁺", "pseudo label", "round 1, by the teacher"):
        assert text in shown.getvalue()
    assert all(one.text[:20] in shown.getvalue() for one in found.readings[0].candidates)
    assert json.loads(json.dumps(found.as_json()))["pool"]["pool_id"] == pool_id


def test_a_folder_of_runs_that_was_moved_brings_its_stages(icast: RunFolder, tmp_path: Path) -> None:
    runs = icast.path.parents[1]
    (pool_id, *_) = pool_ids(icast, "test")
    expected = why(icast.path, pool_id).as_json()
    moved = shutil.copytree(runs, tmp_path / "Läufe mit Raum")
    hidden = runs.rename(runs.with_name("hidden"))
    try:
        assert why(moved / icast.path.relative_to(runs), pool_id).as_json() == expected
    finally:
        hidden.rename(runs)


def test_unknown_pools_and_removed_stages_are_named(icast: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no-such-pool"):
        why(icast.path, "no-such-pool")
    moved = RunFolder(shutil.copytree(icast.path, tmp_path / "copy"))
    (moved.path / "files.json").unlink()
    for kept in ((), ("test/scores",)):  # nothing, or the scores without the columns of the parts
        stages = [s if s["name"] in kept else {**s, "path": str(tmp_path / "gone")} for s in icast.stages]
        moved.write_json("stages.json", stages)
        with pytest.raises(RunFolderError, match="stage cache was removed"):
            why(moved.path, pool_ids(icast, "test")[0])


def test_mistakes_are_wrong_and_the_most_confident_come_first(icast: RunFolder) -> None:
    found = mistakes(icast.path, number=3)
    for stage in {one.stage for one in found}:
        probs = [one.prob for one in found if one.stage == stage]
        assert probs == sorted(probs, reverse=True)
        assert len(probs) <= 3
    predicted = icast.predictions("test").to_pandas()
    best = predicted.loc[predicted.groupby("pool_id")["logit"].idxmax()].set_index("pool_id")
    wrong = [one for one in found if one.stage == "test"]
    assert wrong
    assert all(best.loc[one.pool_id, "label"] == 0 for one in wrong)
    labels = {row["pool_id"] for row in read_parquet(icast.path / "rounds" / "1" / "pseudo_labels.parquet").to_pylist()
              if row["label"] == 1 and row["gold"] == 0}  # fmt: skip
    of_round = {one.pool_id for one in found if one.stage == "round 1"}
    assert of_round <= labels
    assert len(of_round) == min(3, len(labels))
