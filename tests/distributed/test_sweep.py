"""A whole sweep on a real local Ray: killed in the middle, continued, with one trial that fails."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from distributed.sweeps import run_space, run_sweep, start_sweep, sweep_settings
from helpers.runs import ONE_WORKER, Silent, run_context, small_settings
from icalib.distributed.sweep import sweep_folder_of

from icalib.core.errors import RunFolderError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.pipeline.run import run
from icalib.sweeps.dry import dry
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.proposals import proposals
from icalib.sweeps.space import load_space

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweeps")


def told(folder: SweepFolder) -> int:
    """Trials of which the study knows the end."""
    text = folder.journal_path.read_text() if folder.journal_path.is_file() else ""
    return text.count('"datetime_complete":"')


@pytest.fixture(scope="module")
def finished_before(runs: Path, tiny_pools: Path, tiny_bert: Path) -> dict[str, int]:
    """Kill -9 when the first trials are over and another is under way; results that were there, and when."""
    driver = start_sweep(runs, tiny_pools, tiny_bert)
    base = small_settings("icast", tiny_pools, tiny_bert)
    folder = sweep_folder_of(sweep_settings(load_space(str(runs / "rules.py")), base), runs)
    deadline = time.monotonic() + 400
    while not (told(folder) and (folder.run_folder(3, 1).path / "stages.json").is_file()):
        assert driver.poll() is None, (runs / "driver.log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    results = {path.parent.name: path.stat().st_mtime_ns for path in folder.path.glob("trials/*/result.json")}
    assert results
    assert "3-s1" not in results
    return results


@pytest.fixture(scope="module")
def finished(finished_before: dict[str, int], runs: Path, tiny_pools: Path, tiny_bert: Path) -> SweepFolder:
    assert start_sweep(runs, tiny_pools, tiny_bert).wait(400) == 0, (runs / "driver.log").read_text()
    (path,) = runs.glob("test/sweep-*")
    return SweepFolder.open(path)


def rows(folder: SweepFolder) -> list[dict[str, Any]]:
    return folder.trials().to_pylist()


def test_no_trial_is_lost_and_no_finished_one_repeated(finished: SweepFolder, finished_before: dict[str, int]) -> None:
    assert [(row["trial"], row["state"]) for row in rows(finished)] == [
        (0, "complete"), (1, "complete"), (2, "failed"), (3, "complete"),
    ]  # fmt: skip
    for name, written in finished_before.items():
        assert (finished.path / "trials" / name / "result.json").stat().st_mtime_ns == written


def test_a_failed_trial_keeps_its_error(finished: SweepFolder) -> None:
    error = rows(finished)[2]["error"]
    assert "/nowhere" in error


def test_work_is_shared(finished: SweepFolder) -> None:
    def stage(trial: int, name: str) -> dict[str, Any]:
        return next(stage for stage in rows(finished)[trial]["stages"] if stage["name"] == name)

    for name in ("post-training", "teacher", "round-1/scores", "round-1/student"):
        assert stage(0, name)["digest"] == stage(1, name)["digest"]
        assert stage(0, name)["reused"] != stage(1, name)["reused"]  # one computed it, whichever came first
    assert stage(0, "round-1/pseudo-labels")["digest"] != stage(1, "round-1/pseudo-labels")["digest"]
    assert stage(3, "teacher")["reused"]
    assert stage(3, "round-1/student")["digest"] != stage(0, "round-1/student")["digest"]


def test_trials_see_validation_and_the_winner_test(finished: SweepFolder) -> None:
    best = finished.best()
    assert best is not None
    splits = {row["trial"]: {metric["split"] for metric in row["metrics"] or ()} for row in rows(finished)}
    assert splits[best.trial] == {"validation", "test"}
    assert all(found <= {"validation"} for trial, found in splits.items() if trial != best.trial)
    values = {
        row["trial"]: next(m["value"] for m in row["metrics"] if (m["split"], m["name"]) == ("validation", "F1"))
        for row in rows(finished)
        if row["state"] == "complete"
    }
    assert values[best.trial] == max(values.values()) == best.validation["F1"][0]
    assert not (finished.run_folder(0, 1).path / "predictions" / "test.parquet").exists()


def test_only_the_winners_model_stays(finished: SweepFolder) -> None:
    best = finished.best()
    assert best is not None
    assert (finished.best_run(1).checkpoint_path / "model.safetensors").is_file()
    kept = {Path(stage["path"]) for stage in finished.run_folder(best.trial, 1).stages}
    for trial in (0, 1, 3):
        assert not finished.run_folder(trial, 1).checkpoint_path.exists()
        for stage in finished.run_folder(trial, 1).stages:
            path = Path(stage["path"])
            if stage["name"] == "round-1/student":
                assert path.exists() == (path in kept)


def test_the_winners_config_runs_as_it_is(finished: SweepFolder, runs: Path) -> None:
    from icalib.api.settings import from_config

    settings = from_config(finished.best_config_path)
    again = run(settings, run_context(runs, Silent()))  # every stage is cached: Ray isn't even started
    assert again.result["test"] == finished.best_run(1).result["test"]


def test_a_trial_is_no_whole_run(finished: SweepFolder) -> None:
    with pytest.raises(RunFolderError, match="trial of a sweep"):
        RunFolder.open(finished.run_folder(0, 1).path)


def test_a_finished_sweep_does_nothing_more(
    finished: SweepFolder, runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    before = told(finished)
    run_sweep(runs, tiny_pools, tiny_bert)
    assert told(finished) == before


def test_an_edited_space_is_another_sweep(finished: SweepFolder, runs: Path, tiny_pools: Path, tiny_bert: Path) -> None:
    path = runs / "rules.py"
    text = path.read_text()
    path.write_text(text.replace("0.31", "0.32"))
    try:
        with pytest.raises(SettingError, match="was edited"):
            run_sweep(runs, tiny_pools, tiny_bert)
    finally:
        path.write_text(text)


def test_dry_tells_what_the_trials_selected(
    finished: SweepFolder, runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    space = load_space(str(runs / "rules.py"))
    base = small_settings("icast", tiny_pools, tiny_bert)
    tried = [proposal for proposal in proposals(space, base.settings, "grid", None) if proposal.number != 2]
    for row in dry(tried, base, 1, run_context(runs, Silent(), ONE_WORKER)):
        trial = rows(finished)[row["trial"]]
        for name in ("num_pseudo_pools", "num_pseudo_pairs", "num_selected_intents", "pseudo_accuracy"):
            assert row[name] == trial[name]


RATES = '''"""A rate at which models learn, and two at which they don't."""

METHOD = "bert"
METRICS = {"NLL": "minimize"}
PRUNER = "asha"
RATES = [3e-3, 1e-9, 2e-9]


def suggest(trial):
    rate = RATES[trial.suggest_int("rate", 0, 2)]
    return {"regime.training.learning_rate": rate, "regime.training.head_learning_rate": rate}


def grid():
    return [{"rate": place} for place in range(3)]
'''


def test_trials_that_learn_nothing_are_stopped_by_their_first_epochs(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    (tmp_path / "rates.py").write_text(RATES)
    changes = {"regime.training.selection_metric": "NLL", "regime.training.epochs": 6}
    base = small_settings("bert", tiny_pools, tiny_bert, **changes)
    folder = run_space(load_space(str(tmp_path / "rates.py")), base, tmp_path / "runs", concurrent=1)
    assert [row["state"] for row in rows(folder)] == ["complete", "pruned", "pruned"]
    best = folder.best()
    assert best is not None
    assert best.trial == 0


def test_dry_answers_questions_about_rules_alone(runs: Path, tiny_pools: Path, tiny_bert: Path) -> None:
    base = small_settings("icast", tiny_pools, tiny_bert)
    tried = proposals(load_space("icast_grid"), base.settings, "grid", 1)
    wrong = [tried[0].__class__(0, {"encoder.dropout": 0.2}, tried[0].method)]
    with pytest.raises(SettingError, match=r"encoder\.dropout"):
        list(dry(wrong, base, 1, run_context(runs, Silent())))
    with pytest.raises(SettingError, match="has no rounds"):
        list(dry(tried, small_settings("bert", tiny_pools, tiny_bert), 1, run_context(runs, Silent())))
