"""A whole sweep in this process: interrupted in a trial, continued, with one trial that fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import CPU, TRAINING, run_context, small_settings
from helpers.sweeps import (
    PRUNABLE,
    RATES,
    RULES,
    check_only_one_rate_learns,
    folder_of,
    run_sweep,
    stage_of,
    states,
    written_space,
)

from icalib.api.settings import from_config
from icalib.core.errors import RunFolderError, SettingError
from icalib.core.events import Event
from icalib.core.run_folder import RunFolder
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import run
from icalib.stages.executor import LocalExecutor
from icalib.sweeps.dry import dry
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.space import Space, load_space
from icalib.sweeps.study import proposals
from icalib.sweeps.sweep import Trials, claimed, run_here, run_seeds
from icalib.sweeps.trials import sweep_trials

LOCAL = LocalExecutor(CPU, num_threads=1)
HERE = run_here(LOCAL)


@pytest.fixture(scope="module")
def space(runs: Path) -> Space:
    return written_space(runs, "rules", RULES)


@pytest.fixture(scope="module")
def base(tiny_pools: Path, tiny_bert: Path) -> RunConfig:
    quick = {"regime.teacher": {**TRAINING, "epochs": 1}, "encoder.num_layers": 1, "uncertainty.num_passes": 2}
    return small_settings("icast", tiny_pools, tiny_bert, **quick)


@pytest.fixture(scope="module")
def finished_before(space: Space, base: RunConfig, runs: Path) -> dict[str, int]:
    """Ctrl-C when the last trial begins; results that were there, and when."""

    def interrupted(trials: Trials) -> None:
        for _ in range(3):
            job = trials.next()
            assert job is not None
            trials.finish(job.number, run_seeds(job, LOCAL))
        assert trials.next() is not None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(space, base, run_context(runs), interrupted)
    results = folder_of(space, base, runs).path.glob("trials/*/result.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in results}


@pytest.fixture(scope="module")
def finished(finished_before: dict[str, int], space: Space, base: RunConfig, runs: Path) -> SweepFolder:
    return SweepFolder.open(run_sweep(space, base, run_context(runs), HERE).path)


def test_no_trial_is_lost_and_no_finished_one_repeated(finished: SweepFolder, finished_before: dict[str, int]) -> None:
    assert states(finished) == ["complete", "complete", "failed", "complete"]
    assert "/nowhere" in (sweep_trials(finished)[2].error or "")
    assert finished_before.keys() == {"0-s1", "1-s1"}
    for name, written in finished_before.items():
        assert (finished.path / "trials" / name / "result.json").stat().st_mtime_ns == written


def test_work_is_shared(finished: SweepFolder) -> None:
    for name in ("domain-pretraining", "teacher", "round-1/scores-cross", "round-1/scores", "round-1/student"):
        first, second = (stage_of(finished, trial, name) for trial in (0, 1))
        assert first["digest"] == second["digest"]
        assert (first["reused"], second["reused"]) == (False, True)
    labels = [stage_of(finished, trial, "round-1/pseudo-labels")["digest"] for trial in (0, 1)]
    assert labels[0] != labels[1]
    assert stage_of(finished, 3, "teacher")["reused"]
    assert stage_of(finished, 3, "round-1/student")["digest"] != stage_of(finished, 0, "round-1/student")["digest"]


def test_trials_see_validation_and_the_winner_test(finished: SweepFolder) -> None:
    best, trials = finished.best(), sweep_trials(finished)
    assert best is not None
    assert all("test" not in run.result for trial in trials for run in trial.runs)
    assert best.test["F1"][0] == finished.best_run(1).result["test"]["F1"]
    means = {trial.number: trial.mean("F1") or 0.0 for trial in trials if trial.state == "complete"}
    assert means[best.trial] == max(means.values()) == best.validation["F1"][0]
    assert not finished.run_folder(0, 1).has_predictions("test")


def test_only_the_winners_model_stays(finished: SweepFolder) -> None:
    best = finished.best()
    assert best is not None
    assert (finished.best_run(1).checkpoint_path / "cross" / "model.safetensors").is_file()
    kept = {Path(stage["path"]) for stage in finished.run_folder(best.trial, 1).stages}
    for trial in (0, 1, 3):
        assert not finished.run_folder(trial, 1).checkpoint_path.exists()
        for stage in finished.run_folder(trial, 1).stages:
            path = Path(stage["path"])
            if stage["name"] == "round-1/student":
                assert path.exists() == (path in kept)


def test_the_winners_config_runs_as_it_is(finished: SweepFolder, runs: Path) -> None:
    again = run(from_config(finished.best_config_path), run_context(runs))  # every stage is cached
    assert again.result["test"] == finished.best_run(1).result["test"]


def test_a_trial_is_no_whole_run(finished: SweepFolder) -> None:
    with pytest.raises(RunFolderError, match="trial of a sweep"):
        RunFolder.open(finished.run_folder(0, 1).path)


def test_dry_tells_what_the_trials_selected(finished: SweepFolder, space: Space, base: RunConfig, runs: Path) -> None:
    tried = [proposal for proposal in proposals(space, base.settings, "grid", None) if proposal.number != 2]
    for row in dry(tried, base, 1, run_context(runs)):
        (summary,) = finished.run_folder(row["trial"], 1).round_summaries()
        assert row["num_pseudo_pools"] == summary.num_pools_selected
        assert row["num_pseudo_pairs"] == summary.num_pairs_selected
        assert row["num_selected_intents"] == summary.num_pairs_with_intents
        assert row["pseudo_accuracy"] == summary.pool_accuracy


def test_dry_answers_questions_about_rules_alone(
    base: RunConfig, runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    tried = proposals(load_space("icast_grid"), base.settings, "grid", 1)
    wrong = [tried[0].__class__(0, {"encoder.dropout": 0.2}, tried[0].method)]
    with pytest.raises(SettingError, match=r"encoder\.dropout"):
        list(dry(wrong, base, 1, run_context(runs)))
    with pytest.raises(SettingError, match="has no rounds"):
        list(dry(tried, small_settings("bert", tiny_pools, tiny_bert), 1, run_context(runs)))
    with pytest.raises(SettingError, match=r"no training pool .* is unlabelled at 1 labelled\. Lower --labelled"):
        list(dry(tried, base.model_copy(update={"labelled": 1.0}), 1, run_context(runs)))


def test_trials_that_learn_nothing_are_stopped_by_their_first_epochs(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    bert = small_settings("bert", tiny_pools, tiny_bert, **PRUNABLE)
    check_only_one_rate_learns(tmp_path, bert, run_context(tmp_path / "runs"), HERE)


def test_epochs_before_calibration_stop_no_trial_that_is_judged_after_it(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    calibrated = RATES.replace('"calibration": None', '"calibration": "pool-softmax"')
    bert, said = small_settings("bert", tiny_pools, tiny_bert, **PRUNABLE), list[Event]()
    context = replace(run_context(tmp_path / "runs"), emit=said.append)
    found = run_sweep(written_space(tmp_path, "rates", calibrated), bert, context, HERE)
    assert states(found) == ["complete"] * 3
    assert any("no training measures NLL after an epoch as a run does" in str(event) for event in said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method_digest": "other"}, "with other defaults of `icast`"),
        ({"method_digest": "other", "settings": {"seed": 4}}, r"has other settings \(settings"),
        ({"space_digest": "other"}, "before the space .* was edited"),
    ],
)
def test_trials_of_another_method_or_space_are_no_part_of_a_sweep(
    change: dict[str, Any], said: str, finished: SweepFolder, runs: Path
) -> None:
    with (
        pytest.raises(SettingError, match=f"{said}.*--fresh"),
        claimed(finished.settings.model_copy(update=change), runs),
    ):
        pass
