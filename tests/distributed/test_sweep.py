"""Sweeps by Ray Tune: killed in the middle, continued, with one trial that fails; and trials that are stopped."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from distributed.drivers import ON_RAY, kill_at, wait_for
from distributed.sweeps import start_sweep
from helpers.runs import run_context, small_settings
from helpers.sweeps import PRUNABLE, RULES, check_only_one_rate_learns, folder_of, num_told, states, written_space

from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import sweep_trials

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweeps")


@pytest.fixture(scope="module")
def finished_before(runs: Path, tiny_pools: Path, tiny_bert: Path) -> dict[str, int]:
    """Kill -9 when the first trials are over and another is under way; results that were there, and when."""
    space, base = written_space(runs, "rules", RULES), small_settings("icast", tiny_pools, tiny_bert)
    folder = folder_of(space, base, runs)
    driver = start_sweep(runs, tiny_pools, tiny_bert)
    kill_at(driver, lambda: num_told(folder) > 0 and (folder.run_folder(3, 1).path / "stages.json").is_file())
    results = {path.parent.name: path.stat().st_mtime_ns for path in folder.path.glob("trials/*/result.json")}
    assert results
    assert "3-s1" not in results
    return results


@pytest.fixture(scope="module")
def finished(finished_before: dict[str, int], runs: Path, tiny_pools: Path, tiny_bert: Path) -> SweepFolder:
    assert start_sweep(runs, tiny_pools, tiny_bert).wait(400) == 0, (runs / "driver.log").read_text()
    (path,) = runs.glob("test/sweep-*")
    return SweepFolder.open(path)


@pytest.mark.nightly
def test_no_trial_is_lost_and_no_finished_one_repeated(finished: SweepFolder, finished_before: dict[str, int]) -> None:
    assert states(finished) == ["complete", "complete", "failed", "complete"]
    assert "/nowhere" in (sweep_trials(finished)[2].error or "")
    for name, written in finished_before.items():
        assert (finished.path / "trials" / name / "result.json").stat().st_mtime_ns == written


@pytest.mark.nightly
def test_a_sweep_whose_raylet_dies_ends_with_an_error_and_resumes(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    driver = start_sweep(tmp_path, tiny_pools, tiny_bert, "bm25")
    trials = tmp_path / "test" / f"sweep-shards-{tiny_pools.name}-0.3" / "trials"
    wait_for(lambda: any(trials.glob("*/config.yaml")), lambda: driver.poll() is None)
    (raylet,) = (child for child in psutil.Process(driver.pid).children(recursive=True) if child.name() == "raylet")
    raylet.kill()
    assert driver.wait(120) != 0
    assert "`raylet` on this machine has died" in (tmp_path / "driver.log").read_text()
    assert start_sweep(tmp_path, tiny_pools, tiny_bert, "bm25").wait(400) == 0, (tmp_path / "driver.log").read_text()
    assert states(SweepFolder.open(trials.parent)) == ["complete"] * 4


@pytest.mark.slow
def test_trials_that_learn_nothing_are_stopped_by_their_first_epochs(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    from icalib.distributed.tune import run_by_tune  # imports ray, which must not come before the session starts

    base = small_settings("bert", tiny_pools, tiny_bert, **PRUNABLE)
    context = run_context(tmp_path / "runs", executor=ON_RAY)
    check_only_one_rate_learns(tmp_path, base, context, run_by_tune)
