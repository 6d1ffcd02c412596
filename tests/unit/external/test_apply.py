from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.scored_pools import list_rows, pair_table, scored_pools, write_jsonl, write_pairs, write_run
from scipy.special import expit

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import DamagedFileError, DataError, RunFolderError, SettingError
from icalib.external import score_file
from icalib.external.apply import apply
from icalib.external.calibrator import Calibrator
from icalib.external.fit import CalibrationSettings, calibrate
from icalib.external.pool_features import fit_pool_features
from icalib.external.score_file import ScoreFile
from icalib.metrics.pairs import PoolScores

POOLS = scored_pools(300)
NEW = scored_pools(60, seed=5)
FITTED = calibrate(POOLS, CalibrationSettings(precision=0.6)).calibrator
BY_POOL = FITTED.model_copy(update={"map": fit_pool_features(POOLS.logit, POOLS.label, POOLS.offsets)})


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_file, "BATCH_ROWS", 7)  # no multiple of a pool's 6 candidates


@pytest.mark.parametrize("fitted", [FITTED, BY_POOL])
def test_parquet_keeps_its_columns_and_gets_more(tmp_path: Path, fitted: Calibrator) -> None:
    file = ScoreFile.open(write_pairs(tmp_path / "new.parquet", NEW))
    done = apply(fitted, file, tmp_path / "out.parquet")
    assert (done.num_pairs, done.notes) == (len(NEW.logit), ())
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.drop_columns(["calibrated_prob", "accepted", "in_set"]).equals(pair_table(NEW))
    prob = found["calibrated_prob"].to_numpy()
    assert prob == pytest.approx(fitted.prob(NEW.logit, NEW.offsets))
    assert fitted.acceptance is not None
    assert fitted.sets is not None
    assert np.array_equal(found["accepted"].to_numpy(), prob >= fitted.acceptance.prob)
    assert np.array_equal(found["in_set"].to_numpy(), fitted.sets.contain(NEW, NEW.logit))


@pytest.mark.parametrize("fitted", [FITTED, BY_POOL])
def test_lists_and_lines_get_the_same_probabilities(tmp_path: Path, fitted: Calibrator) -> None:
    expected = fitted.prob(NEW.logit, NEW.offsets)
    lists = ScoreFile.open(write_jsonl(tmp_path / "lists.jsonl", list_rows(NEW)))
    apply(fitted, lists, tmp_path / "lists-out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "lists-out.jsonl").read_text().splitlines()]
    assert [prob for row in rows for prob in row["calibrated_prob"]] == pytest.approx(expected)
    assert [len(row["in_set"]) for row in rows] == [6] * 60
    pq.write_table(pa.Table.from_pylist(list_rows(NEW)), tmp_path / "lists.parquet")
    apply(fitted, ScoreFile.open(tmp_path / "lists.parquet"), tmp_path / "lists-out.parquet")
    found = pq.read_table(tmp_path / "lists-out.parquet")["calibrated_prob"].combine_chunks()
    assert found.flatten().to_numpy() == pytest.approx(expected)
    run, _ = write_run(tmp_path, NEW)
    apply(fitted, ScoreFile.open(run), tmp_path / "run.jsonl")
    ranked = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    by_pair = {(row["pool_id"], row["candidate_id"]): row["calibrated_prob"] for row in ranked}
    assert [by_pair[f"q{pool:05}", f"d{index}"] for pool in range(60) for index in range(6)] == pytest.approx(expected)


def test_the_pairs_of_a_pool_must_be_together_where_that_matters(tmp_path: Path) -> None:
    def apart(table: pa.Table) -> pa.Table:
        return pa.concat_tables([table.slice(1), table.slice(0, 1)])

    file = ScoreFile.open(write_pairs(tmp_path / "new.parquet", NEW, apart))
    with pytest.raises(DataError, match="the pairs of a pool are not together"):
        apply(FITTED, file, tmp_path / "out.parquet")
    platt = FITTED.model_copy(update={"map": AffineMap(slope=0.4, offset=-0.4)})
    apply(platt, file, tmp_path / "out.parquet", sets=False)
    found = pq.read_table(tmp_path / "out.parquet")
    assert "in_set" not in found.column_names
    assert found["calibrated_prob"].to_numpy()[-1] == pytest.approx(expit(0.4 * NEW.logit[0] - 0.4))
    with pytest.raises(DataError, match="not together"):
        apply(BY_POOL, file, tmp_path / "out.parquet", sets=False)


def moved(pools: PoolScores, change: float) -> PoolScores:
    return PoolScores(pools.pool_ids, pools.logit + change, pools.prob, pools.label, pools.offsets)


def test_scores_from_another_range_are_refused(tmp_path: Path) -> None:
    file = ScoreFile.open(write_pairs(tmp_path / "far.parquet", moved(NEW, 100.0)))
    with pytest.raises(DataError, match=r"100% of the scores are outside of .*--any-range"):
        apply(FITTED, file, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    done = apply(FITTED, file, tmp_path / "out.parquet", any_range=True)
    assert "can't be trusted" in done.notes[0]
    wide = FITTED.model_copy(update={"fitted_on": FITTED.fitted_on.model_copy(update={"highest": -1.5})})
    near = ScoreFile.open(write_pairs(tmp_path / "near.parquet", NEW))
    fraction = (NEW.logit > -1.5).mean()
    assert 0.05 < fraction < 0.5
    assert f"{fraction:.0%} of the scores are outside" in apply(wide, near, tmp_path / "near-out.parquet").notes[0]


def test_probabilities_and_logits_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    probs = PoolScores(POOLS.pool_ids, expit(POOLS.logit), POOLS.prob, POOLS.label, POOLS.offsets)
    as_probs = ScoreFile.open(write_pairs(tmp_path / "probs.parquet", probs))
    with pytest.raises(DataError, match="these seem to be probabilities"):
        apply(FITTED, as_probs, tmp_path / "out.parquet")
    of_probs = calibrate(probs, CalibrationSettings()).calibrator
    with pytest.raises(DataError, match=r"the calibrator was fitted on probabilities from 0 to 1"):
        apply(of_probs, ScoreFile.open(write_pairs(tmp_path / "logits.parquet", NEW)), tmp_path / "out.parquet")
    apply(of_probs, as_probs, tmp_path / "out.parquet")


def test_other_numbers_of_candidates_are_said(tmp_path: Path) -> None:
    file = ScoreFile.open(write_pairs(tmp_path / "larger.parquet", scored_pools(20, size=9)))
    (note,) = apply(FITTED, file, tmp_path / "out.parquet").notes
    assert note.startswith("20 of 20 pools have another number of candidates than the 6 to 6")


def test_an_output_that_can_not_be_is_refused(tmp_path: Path) -> None:
    file = ScoreFile.open(write_pairs(tmp_path / "new.parquet", NEW))
    with pytest.raises(SettingError, match=r"ends in .parquet"):
        apply(FITTED, file, tmp_path / "out.csv")
    with pytest.raises(SettingError, match="is the score file itself"):
        apply(FITTED, file, tmp_path / "new.parquet")
    apply(FITTED, file, tmp_path / "out.parquet")
    with pytest.raises(SettingError, match="has a column calibrated_prob already"):
        apply(FITTED, ScoreFile.open(tmp_path / "out.parquet"), tmp_path / "twice.parquet")


@pytest.mark.parametrize("fitted", [FITTED, BY_POOL])
def test_a_calibrator_is_saved_and_loaded_unchanged(tmp_path: Path, fitted: Calibrator) -> None:
    fitted.save(tmp_path)
    assert Calibrator.load(tmp_path) == fitted


def test_a_folder_that_is_no_calibrator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"is not a calibrator: it has no calibrator.json"):
        Calibrator.load(tmp_path)
    FITTED.save(tmp_path)
    path = tmp_path / "calibrator.json"
    text = path.read_text()
    path.write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(RunFolderError, match="has version 2, this icalib reads version 1"):
        Calibrator.load(tmp_path)
    path.write_text(text[:50])
    with pytest.raises(DamagedFileError, match="can't be read"):
        Calibrator.load(tmp_path)
    path.write_text(text.replace('"sharpness": 0.', '"sharpness": 1.'))
    with pytest.raises(DamagedFileError, match="has other content than was written"):
        Calibrator.load(tmp_path)
    edited = {name: value for name, value in json.loads(path.read_text()).items() if name != "checksum"}
    path.write_text(json.dumps(edited))
    assert Calibrator.load(tmp_path) != FITTED
    path.write_text(text.replace('"lowest"', '"smallest"'))
    with pytest.raises(RunFolderError, match="smallest"):
        Calibrator.load(tmp_path)
