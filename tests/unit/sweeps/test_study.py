"""The study resumes: interrupted trials continue, finished ones stay, more can be added."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from unit.sweeps.made_spaces import GRID, made_folder, write_space

from icalib.core.component import with_settings
from icalib.core.errors import Abandoned, ComponentError, SettingError
from icalib.methods.catalogue import load_method
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.space import Space, load_space
from icalib.sweeps.study import Rungs, SweepStudy, changed_method
from icalib.sweeps.trials import sweep_trials

NAME = "regime.rule.confidence_threshold"
TPE = GRID.replace("suggest_categorical(NAME, [0.1, 0.2, 0.3])", "suggest_float(NAME, 0.0, 1.0)").replace(
    "def grid", "def lattice"
)


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return write_space(tmp_path / "spaces")


@pytest.fixture
def folder(tmp_path: Path, space: Space) -> SweepFolder:
    return made_folder(tmp_path, space)


def study_in(folder: SweepFolder, space: Space, num_trials: int | None = None) -> SweepStudy:
    return SweepStudy(space, load_method(space.method), folder.settings.sampler, num_trials, folder.journal_path)


def asked(study: SweepStudy) -> list[Any]:
    values: list[Any] = []
    while (proposal := study.next()) is not None:
        values.append(proposal.settings[NAME])
        study.tell_complete(proposal.number, [0.5])
    return values


def test_interrupted_trials_come_first_and_keep_their_numbers(folder: SweepFolder, space: Space) -> None:
    study = study_in(folder, space)
    first, second = study.next(), study.next()
    assert first is not None
    assert second is not None
    study.tell_complete(second.number, [0.9])
    again = study_in(folder, space)  # the other process is gone
    assert again.num_missing == 2
    resumed = again.next()
    assert resumed == first
    last = again.next()
    assert last is not None
    assert (last.number, last.settings[NAME]) == (2, 0.3)
    assert again.next() is None


@pytest.mark.parametrize("number", [0, 2.5, "3"])
def test_trials_are_a_whole_number(space: Space, number: Any) -> None:
    with pytest.raises(SettingError, match=rf"found {number!r} as number of trials, expected a whole number"):
        SweepStudy(space, load_method(space.method), "grid", number)


def test_an_interruption_does_not_change_what_is_drawn(tmp_path: Path) -> None:
    space = write_space(tmp_path / "spaces", TPE)
    whole = asked(study_in(made_folder(tmp_path / "whole", space), space, 14))
    parts = made_folder(tmp_path / "parts", space)
    assert asked(study_in(parts, space, 5)) + asked(study_in(parts, space, 14)) == whole
    assert len(set(whole)) == 14


@pytest.mark.parametrize("grid", [True, False])
def test_a_trial_that_was_interrupted_before_it_had_settings_gets_them(
    tmp_path: Path, grid: bool, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, number = (space, 3) if grid else (write_space(tmp_path / "spaces", TPE), 8)
    whole = asked(study_in(made_folder(tmp_path / "whole", space), space, number))
    folder = made_folder(tmp_path / "parts", space)
    drawn = asked(study_in(folder, space, 2))
    study = study_in(folder, space, number)
    with monkeypatch.context() as patch:
        patch.setattr(Space, "proposed", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            study.next()
    again = study_in(folder, space, number)
    assert drawn + asked(again) == whole
    assert [trial.number for trial in again.trials()] == list(range(number))


def test_it_is_said_why_other_trials_run_than_were_asked_for(folder: SweepFolder, space: Space) -> None:
    study = study_in(folder, space, 9)
    assert study.why_not(9) == "the grid has 3 points"
    assert study.why_not(2) == ""
    asked(study)
    assert study_in(folder, space, 2).why_not(2) == "3 were begun earlier, and count, too"
    assert study_in(folder, space, 3).why_not(3) == ""


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2"])
def test_every_sampler_draws_and_resumes(tmp_path: Path, sampler: str) -> None:
    space = load_space("ranking_and_calibration")
    folder = made_folder(tmp_path, space, sampler=sampler)
    drawn: list[str] = []
    for so_far in (3, 12):
        study = study_in(folder, space, so_far)
        while (proposal := study.next()) is not None:
            drawn.append(str(proposal.settings))
            study.tell_complete(proposal.number, [proposal.number / 20, 0.1])
    assert len(drawn) == 12
    assert len(set(drawn)) > 9  # a crossover may give what was there
    winner = study.winner()
    assert winner is not None
    assert winner.number == 11


def test_a_proposal_that_the_method_refuses_is_drawn_again_and_does_not_count(tmp_path: Path) -> None:
    space = write_space(tmp_path / "spaces", TPE.replace("confidence_threshold", "positive_threshold"))
    folder = made_folder(tmp_path, space)
    study = study_in(folder, space, 4)
    values = []
    while (proposal := study.next()) is not None:
        values.append(proposal.settings["regime.rule.positive_threshold"])
    assert len(values) == 4
    assert min(values) > 0.5  # λ⁺ above λ̃⁺
    assert len(study.trials()) == 4
    assert study.refusals


def test_a_proposal_without_effect_is_an_error_of_the_space() -> None:
    base = with_settings(load_method("icast"), {"cross": False})
    assert changed_method(base, {"cross": True, "regime.teacher.epochs": 2}).cross
    with pytest.raises(SettingError, match=r"`regime\.teacher\.epochs`, which has no effect .* no cross-encoder"):
        changed_method(base, {"regime.teacher.epochs": 2})


def test_a_component_that_there_is_not_is_an_error_of_the_space() -> None:
    for target in ("no-such-loss", "icalib.losses.binary.NoSuchLoss", "no_lab.losses.Soft"):
        with pytest.raises(ComponentError, match=target.rpartition(".")[2] if "lab" not in target else "no_lab"):
            changed_method(load_method("bert"), {"loss": target})


def test_trials_are_refused_once_their_component_was_edited_but_may_run_again(
    folder: SweepFolder, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    editions = {"my_lab.losses.Soft": "before"}
    monkeypatch.setattr("icalib.sweeps.study.from_outside", lambda _: dict(editions))
    study = study_in(folder, space)
    failing = study.next()
    assert failing is not None
    study.tell_failed(failing.number, "a mistake in it")
    editions["my_lab.losses.Soft"] = "after"
    mended = study_in(folder, space)
    again = mended.next()
    assert again == failing
    assert again.edited
    mended.start_again(again)
    mended.tell_complete(failing.number, [0.5])
    assert study_in(folder, space).num_missing == 2
    editions["my_lab.losses.Soft"] = "later"
    with pytest.raises(SettingError, match=r"trial 0 ran before my_lab\.losses\.Soft was edited\. Use --fresh"):
        study_in(folder, space)


def test_half_a_line_of_another_writer_is_cut_off_by_the_next(folder: SweepFolder, space: Space) -> None:
    study = study_in(folder, space)
    study.next()
    with folder.journal_path.open("ab") as journal:
        journal.write(b'{"op_code": 4, "worker')  # a trial's process was killed; the study continues
    study.tell_complete(0, [0.5])
    assert asked(study_in(folder, space)) == [0.2, 0.3]


def test_a_failed_trial_is_run_again_by_the_next_call_and_may_fail_again(folder: SweepFolder, space: Space) -> None:
    def states() -> list[str]:
        return [trial.state for trial in sweep_trials(folder)]

    study = study_in(folder, space, 1)
    first = study.next()
    study.tell_failed(0, "out of memory")
    assert study.next() is None  # once a call
    again = study_in(folder, space, 1)
    assert again.num_missing == 1
    assert again.next() == first
    assert states() == ["running"]
    again.tell_failed(0, "still out of memory")
    assert again.next() is None
    assert states() == ["failed"]
    assert sweep_trials(folder)[0].error == "still out of memory"
    last = study_in(folder, space, 1)
    assert asked(last) == [0.1]
    assert states() == ["complete"]
    assert study_in(folder, space, 1).num_missing == 0


def test_of_trials_that_are_equal_in_the_first_metric_the_next_decides(tmp_path: Path) -> None:
    space = load_space("ranking_and_calibration")
    study = study_in(made_folder(tmp_path, space), space, 3)
    for values in ([0.5, 0.3], [0.5, 0.1], [0.4, 0.0]):
        proposal = study.next()
        assert proposal is not None
        study.tell_complete(proposal.number, values)
    winner = study.winner()
    assert winner is not None
    assert winner.number == 1


def test_a_stopped_trial_stays_stopped_when_the_same_step_is_asked_again(tmp_path: Path) -> None:
    """After a kill between the verdict and its record; halving itself would let the trial continue."""
    space = write_space(tmp_path / "spaces", TPE)
    folder = made_folder(tmp_path, space, pruner="asha")
    study = study_in(folder, space, 4)
    for figure in (0.9, 0.1):
        proposal = study.next()
        assert proposal is not None
        if figure == 0.9:
            Rungs(folder, proposal.number).report(1, figure)
            study.tell_complete(proposal.number, [figure])
            continue
        for _ in range(2):
            with pytest.raises(Abandoned):
                Rungs(folder, proposal.number).report(1, figure)


def test_a_step_that_was_reported_before_an_interruption_stays(folder: SweepFolder, space: Space) -> None:
    study = study_in(folder, space)
    study.next()
    Rungs(folder, 0).report(1, 0.8)
    Rungs(folder, 0).report(1, 0.7)
    assert study.trials()[0].intermediate_values == {1: 0.8}
