"""A small part of the campaign: `make test-faults` runs the whole."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from faults.campaign import table
from faults.commands import Disturbance, run_command
from faults.fuzz import Parser, fuzz_once
from faults.parsers import all_parsers
from faults.serving import serve_once
from faults.trials import DISKS, KILLS, STORES, Outcome, Trial, damage_once, disturb_once
from faults.world import IN_STORE, VERBS, World

from icalib.core.errors import SettingError

SEED = 1
READING = ("run bert", "run bm25", "predict", "report", "apply")
WRITING = ("prepare", "run bm25", "calibrate")


@pytest.fixture(scope="module")
def world(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), tiny_pools, tiny_bert, READING)


@pytest.fixture(scope="module")
def parsers(world: World) -> dict[str, Parser]:
    return all_parsers(world.pristine)


def no_faults(trial: Callable[[int], Trial], numbers: Iterable[int]) -> set[Outcome]:
    """Run trials; return their outcomes."""
    trials = [trial(number) for number in numbers]
    print(table(trials))
    assert not [str(trial) for trial in trials if trial.is_fault]
    return {outcome for trial in trials for outcome in trial.outcomes}


def test_damages_are_repaired_or_refused(world: World) -> None:
    # The last of these damages a file that is read.
    outcomes = no_faults(lambda number: damage_once(world, READING, SEED, number), range(8, 13))
    assert {"recomputed", "refused"} & outcomes


def test_killed_commands_run_again_with_equal_results_and_leave_nothing(world: World) -> None:
    no_faults(lambda number: disturb_once(world, KILLS, WRITING, SEED, number), range(len(WRITING)))


@pytest.mark.nightly
def test_a_killed_server_answers_nothing_wrong_and_the_next_one_starts(world: World) -> None:
    no_faults(lambda number: serve_once(world, SEED, number), range(3))


@pytest.mark.nightly
def test_commands_on_a_disk_that_refuses_end_with_an_error_and_succeed_later(world: World) -> None:
    outcomes = no_faults(lambda number: disturb_once(world, DISKS, WRITING, SEED, number), range(2 * len(DISKS)))
    assert "refused" in outcomes


@pytest.mark.nightly
def test_a_run_in_an_unreliable_store_ends_as_one_on_a_disk(world: World) -> None:
    no_faults(lambda number: disturb_once(world, STORES, IN_STORE, SEED, number), range(2 * len(STORES)))


def test_examples_are_valid_and_changed_ones_are_read_or_refused(parsers: dict[str, Parser], tmp_path: Path) -> None:
    for name, parser in parsers.items():
        for index, example in enumerate(parser.examples):
            parser.write(tmp_path / f"{name}-{index}", example)
            parser.read(tmp_path / f"{name}-{index}")


def test_changed_input_is_read_or_refused(parsers: dict[str, Parser]) -> None:
    quick = {name: parser for name, parser in parsers.items() if name not in ("checkpoint", "run folder")}
    no_faults(lambda number: fuzz_once(quick, SEED, number), range(400))


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
    read: Callable[[Path], object], outcomes: tuple[Outcome, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the input that found the fault is kept there
    trial = fuzz_once({"any": Parser(({"a.json": b"{}"},), read)}, SEED, 0)
    assert trial.outcomes == outcomes
    assert trial.is_fault == (outcomes == ("untyped",))


def test_a_killed_command_and_what_it_left_are_seen(world: World) -> None:
    world.renew()
    killed = run_command(("simulate", "new.jsonl"), world.now, Disturbance(kill_at=1))
    assert killed.code == -9
    assert not killed.is_refused
    assert run_command(("simulate",), world.now).is_refused
    (world.now / ".answers.jsonl.tmp").write_text("")
    assert world.left("predict", killed) == [".answers.jsonl.tmp"]
    (world.now / VERBS["predict"].writes).unlink()
    world.usual("predict")
    world.remove("answers.jsonl")
    assert not world.is_usual("predict", killed)
