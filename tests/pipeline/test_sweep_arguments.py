"""What a sweep can't do: tune metrics that say nothing about its pools, keep settings that its space replaces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import run_context, small_settings
from helpers.sweeps import SHARDS, run_sweep, written_space

import icalib
from icalib.api.sweeps import SweepKeywords, dry_sweep
from icalib.cli import main
from icalib.core.errors import RunFolderError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.pipeline.run import run
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.sweep import claimed, run_here
from icalib.sweeps.trials import sweep_trials

FAILS = '''"""Two backbones that aren't there."""

METHOD = "bert"
METRICS = {"F1": "maximize"}


def suggest(trial):
    return {"encoder.backbone": trial.suggest_categorical("folder", ["/nowhere", "/nowhere/else"])}


def grid():
    return [{"folder": folder} for folder in ("/nowhere", "/nowhere/else")]
'''
TUNES_NONE = SHARDS.replace('{"F1": "maximize"}', '{"R@1": "maximize", "ECE_none": "minimize"}')


def test_a_first_trial_without_the_metric_ends_the_sweep(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    base, context = small_settings("bm25", tiny_pools, tiny_bert), run_context(tmp_path / "runs")
    with pytest.raises(SettingError, match=r"tunes ECE_none .*does not apply .*METRICS"):
        run_sweep(written_space(tmp_path, "none", TUNES_NONE), base, context, run_here(context.executor))
    (sweep,) = tmp_path.glob("runs/*/sweep-*")
    (trial,) = sweep_trials(SweepFolder(sweep))
    assert trial.state == "failed"
    assert "does not apply" in str(trial.error)


SOMETIMES_NAN = """
import numpy as np
from icalib.metrics.metric import Metric

calls = []


def of_first_trial_alone(scores):
    calls.append(1)
    return np.full(scores.num_pools, np.nan if len(calls) == 1 else 1.0)


metric = Metric("sometimes", "rank", "maximize", "NaN once", per_pool=of_first_trial_alone)
"""


def test_a_first_trial_whose_metric_is_nan_fails_alone(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sometimes_nan.py").write_text(SOMETIMES_NAN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    base, context = small_settings("bm25", tiny_pools, tiny_bert), run_context(tmp_path / "runs")
    text = SHARDS.replace('{"F1": "maximize"}', '{"sometimes_nan:metric": "maximize"}')
    run_sweep(written_space(tmp_path, "nan", text), base, context, run_here(context.executor))
    (sweep,) = tmp_path.glob("runs/*/sweep-*")
    first, *others = sweep_trials(SweepFolder(sweep))
    assert first.state == "failed"
    assert "is NaN on the validation pools" in str(first.error)
    assert others
    assert {one.state for one in others} == {"complete"}


def test_a_wrong_number_of_trials_removes_no_sweep(tiny_pools: Path, tmp_path: Path) -> None:
    space, runs = written_space(tmp_path, "shards", SHARDS), tmp_path / "runs"
    kept = runs / "default" / f"sweep-shards-{tiny_pools.name}-0.3" / "study.journal"
    kept.parent.mkdir(parents=True)
    kept.touch()
    with pytest.raises(SettingError, match="number of trials"):
        icalib.sweep(space.file, tiny_pools, labelled=0.3, trials=0, fresh=True, runs=runs, executor="local")
    assert kept.exists()


def test_a_sweep_is_refused_once_the_file_of_its_metric_was_edited(
    tiny_pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SHARDS.replace('{"F1": "maximize"}', '{"my_lab.metrics:mean_rank": "minimize"}')
    space, place = written_space(tmp_path, "shards", text), {"runs": tmp_path / "runs", "executor": "local"}
    icalib.sweep(space.file, tiny_pools, labelled=0.3, trials=1, **place)
    monkeypatch.setattr("icalib.api.sweeps.module_digest", lambda name: "another")
    with pytest.raises(SettingError, match="before the space `shards` or a metric of it was edited"):
        icalib.sweep(space.file, tiny_pools, labelled=0.3, trials=2, **place)


def test_a_trial_whose_component_was_edited_runs_all_seeds_again(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editions = {"my_lab.losses.Soft": "before"}
    monkeypatch.setattr("icalib.sweeps.study.from_outside", lambda _: dict(editions))
    place: Any = {"seeds": 2, "trials": 1, "runs": tmp_path / "runs", "executor": "local", "backbone": str(tiny_bert)}
    space, ran = written_space(tmp_path, "shards", SHARDS), list[int]()

    def fails_at(last: int) -> None:
        def run_once(config: Any, *given: Any, **keywords: Any) -> Any:
            ran.append(config.seed)
            if config.seed == last:
                raise RuntimeError("a mistake in it")
            return run(config, *given, **keywords)

        monkeypatch.setattr("icalib.sweeps.sweep.run", run_once)

    def provenance() -> str:
        (found,) = tmp_path.glob("runs/*/sweep-*/trials/0-s1/provenance.json")
        return found.read_text()

    fails_at(2)
    icalib.sweep(space.file, tiny_pools, labelled=0.3, **place)
    first = provenance()
    icalib.sweep(space.file, tiny_pools, labelled=0.3, **place)
    assert provenance() == first  # resumed
    editions["my_lab.losses.Soft"] = "after"
    fails_at(0)
    icalib.sweep(space.file, tiny_pools, labelled=0.3, **place)
    assert provenance() != first
    assert ran[:6] == [1, 2] * 3


def test_a_sweep_without_a_complete_trial_has_failed(
    tiny_pools: Path,
    tiny_bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = ["--runs", str(tmp_path / "runs"), "--executor", "local"]
    space, options = written_space(tmp_path, "fails", FAILS), ["--data", str(tiny_pools), "--backbone", str(tiny_bert)]
    monkeypatch.setattr(sys, "argv", ["icalib", "sweep", str(space.file), *options, *place, "--labelled", "0.3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "trial 1 failed" in said
    assert "No trial was completed" in said


def test_a_setting_that_the_space_replaces_is_named(
    tiny_pools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, settings = written_space(tmp_path, "shards", SHARDS), {"scoring.pools_per_shard": 5, "pretraining": None}
    place: Any = {"runs": tmp_path / "runs", "executor": "local"}
    icalib.sweep(space.file, tiny_pools, labelled=0.3, trials=1, settings=settings, **place)
    said = " ".join(capsys.readouterr().err.split())
    assert "shards sets scoring.pools_per_shard itself, so that --set has no effect there. To try other values" in said


def test_a_dry_sweep_that_is_refused_leaves_no_folder(tiny_pools: Path, tmp_path: Path) -> None:
    keywords: SweepKeywords = {"runs": tmp_path / "runs", "executor": "local"}
    with pytest.raises(SettingError, match="has no rounds"):
        dry_sweep(written_space(tmp_path, "shards", SHARDS).file, tiny_pools, 0.3, 1, keywords)
    assert not list(tmp_path.glob("runs/*/sweep-*"))


def test_a_sweep_leaves_its_winner_whole_and_its_command(
    tiny_pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, runs = written_space(tmp_path, "shards", SHARDS), tmp_path / "runs"
    monkeypatch.setattr("icalib.api.sweeps.command_line", lambda: "icalib sweep shards.py")
    given: Any = {"labelled": 0.3, "trials": 1, "runs": runs, "executor": "local"}
    with pytest.raises(SettingError, match="runs one trial at a time; found 3"):
        icalib.sweep(space.file, tiny_pools, concurrent=3, **given)
    found = icalib.sweep(space.file, tiny_pools, **given).folder
    assert list(found.best_run(1).path.glob("tb/test/*"))
    trial = found.run_folder(0, 1)
    with pytest.raises(RunFolderError, match=rf"`icalib run {trial.path}/config.yaml --runs {runs}` makes a complete"):
        RunFolder.open(trial.path)
    with claimed(found.settings.model_copy(update={"command": "icalib sweep shards.py --dry"}), runs, dry=True):
        assert found.settings.command == "icalib sweep shards.py"
