"""A small part of the campaign: `make test-faults` runs the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from faults.commands import KillAt, run_command
from faults.damages import KINDS, damage_once, damageable, leftovers
from faults.disks import SIMULATED, disturb_once
from faults.fuzz import fuzz_once, write_files
from faults.kills import Writing, kill_once
from faults.parsers import Parser, artifacts, readers, texts
from faults.score_parsers import scores, served, settings
from faults.serving import Serving
from faults.stores import KINDS as STORES
from faults.stores import InStore
from faults.tally import Outcome, Part, Tally, Trial, in_turn
from faults.world import TRAINED, VERBS, World

from icalib.core.errors import SettingError

SEED = 1
VERBS_HERE = ("run again", "bm25 from the cache", "predict", "report", "apply")
WRITING_HERE = ("prepare", "run bm25", "calibrate")


@pytest.fixture(scope="module")
def world(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), tiny_pools, tiny_bert, {name: VERBS[name] for name in VERBS_HERE})


@pytest.fixture(scope="module")
def writing(world: World) -> Writing:
    return Writing(world, WRITING_HERE)


def no_faults(trial: Callable[[int], Trial], num_trials: int) -> Tally:
    tally = Tally()
    for number in range(num_trials):
        tally.add(trial(number))
    print(tally.table())
    assert tally.trials
    assert not tally.faults
    return tally


def test_damages_are_repaired_or_refused(world: World) -> None:
    tally = no_faults(lambda number: damage_once(world, SEED, number, limit_s=60), 3 * len(KINDS))
    assert {"recomputed", "refused"} & {outcome for trial in tally.trials for outcome in trial.outcomes}


def test_killed_commands_run_again_with_equal_results_and_leave_nothing(writing: Writing) -> None:
    no_faults(lambda number: kill_once(writing, SEED, number, limit_s=60), len(WRITING_HERE))


@pytest.mark.nightly
def test_a_killed_server_answers_nothing_wrong_and_the_next_one_starts(world: World) -> None:
    serving = Serving(world)
    no_faults(lambda number: serving.kill_once(SEED, number, limit_s=60), 3)


@pytest.mark.nightly
def test_commands_on_a_disk_that_refuses_end_with_an_error_and_succeed_later(writing: Writing) -> None:
    tally = no_faults(lambda number: disturb_once(writing, SEED, 2 * number, limit_s=60), 2 * len(SIMULATED))
    assert "refused" in {outcome for trial in tally.trials for outcome in trial.outcomes}


@pytest.mark.nightly
def test_a_run_in_an_unreliable_store_ends_as_one_on_a_disk(writing: Writing) -> None:
    in_store = InStore(writing)
    no_faults(lambda number: in_store.disturb_once(SEED, number, limit_s=60), len(STORES))


def test_the_examples_are_valid(world: World, tmp_path: Path) -> None:
    others = (*readers(), *texts(), *settings(), *scores(tmp_path / "scores"), *served(world.pristine))
    for number, parser in enumerate(dict([*others, *artifacts(world.pristine, TRAINED)]).values()):
        for index, example in enumerate(parser.examples):
            folder = tmp_path / f"{number}-{index}"
            write_files(folder, {**parser.fixed, **example})
            parser.read(folder)


def test_changed_input_is_read_or_refused(world: World, tmp_path: Path) -> None:
    others = (*settings(), *scores(tmp_path / "scores"), *served(world.pristine))
    parsers = dict([*readers(), *texts(), *others])
    no_faults(lambda number: fuzz_once(parsers, SEED, number), 400)


# What finds faults must find those that are there.


@pytest.mark.parametrize(
    ("read", "outcomes"),
    [
        (lambda folder: None, ("identical",)),
        (lambda folder: 1 / 0, ("untyped",)),
        (lambda folder: (_ for _ in ()).throw(SettingError("wrong")), ("refused",)),
    ],
)
def test_a_parser_that_raises_anything_else_is_a_fault(
    read: object, outcomes: tuple[Outcome, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICALIB_FAULTS", str(tmp_path))
    trial = fuzz_once({"any": Parser(({"a.json": b"{}"},), read, {})}, SEED, 0)  # type: ignore[arg-type]
    assert trial.outcomes == outcomes
    assert trial.is_fault == bool(list(tmp_path.iterdir())) == (outcomes == ("untyped",))


def test_a_killed_command_and_what_it_left_are_seen(world: World) -> None:
    killed = run_command(("simulate", "new.jsonl"), world.now, KillAt(1))
    assert killed.code == -9
    assert not killed.refused
    assert run_command(("simulate",), world.now).refused
    (world.now / ".answers.jsonl.tmp").write_text("")
    assert leftovers(world.now) == [".answers.jsonl.tmp"]


def test_every_kind_of_damage_has_files(world: World) -> None:
    assert all(damageable(world.pristine, kind) for kind in KINDS)


def test_the_table_counts_each_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    for trial in (
        Trial("a", "1", ("identical",)),
        Trial("a", "2", ("different", "leftovers"), "see"),
        Trial("b", "3", ("refused",)),
    ):
        tally.add(trial)
    assert capsys.readouterr().out == "a 2: different, leftovers\nsee\n\n"
    rows = [line.split() for line in tally.table().splitlines()]
    assert rows[1:] == [
        ["a", "2", "1", "0", "0", "1", "0", "0", "1"],
        ["b", "1", "0", "0", "1", "0", "0", "0", "0"],
        ["all", "3", "1", "0", "1", "1", "0", "0", "1"],
    ]


def test_a_campaign_resumes_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    Tally(log).add(Trial("a", "1/0", ("refused",)), "kills")
    resumed = Tally(log)
    assert resumed.trials == [Trial("a", "1/0", ("refused",))]
    assert resumed.has("kills", "1/0")
    assert not resumed.has("kills", "1/1")
    assert not resumed.has("damages", "1/0")


def test_a_stopped_campaign_has_done_the_same_fraction_of_each_part() -> None:
    parts = [Part(name, count, lambda number: Trial("", "", ())) for name, count in (("a", 2), ("b", 8), ("c", 0))]
    names = [part.name for part, _ in in_turn(parts)]
    assert sorted(names) == ["a"] * 2 + ["b"] * 8
    assert sorted(names[:5]) == ["a"] + ["b"] * 4
