"""A small part of the campaign: `make test-faults` runs the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.commands import run_command
from faults.damages import KINDS, damage, damageable, leftovers
from faults.fuzz import fuzz, write_files
from faults.kills import Kills
from faults.parsers import Parser, artifacts, readers, texts
from faults.tally import Outcome, Tally, Trial
from faults.world import TRAINED, VERBS, World

from icalib.core.errors import SettingError

SEED = 1
VERBS_HERE = ("run again", "bm25 from the cache", "predict", "report")


@pytest.fixture(scope="module")
def world(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), tiny_pools, tiny_bert, {name: VERBS[name] for name in VERBS_HERE})


def no_faults(tally: Tally) -> bool:
    print(tally.table())
    return bool(tally.trials) and not tally.faults


def test_damages_are_repaired_or_refused(world: World) -> None:
    tally = Tally()
    tally.add(damage(world, 3 * len(KINDS), SEED, limit_s=60))
    assert no_faults(tally)
    assert {"recomputed", "refused"} & {outcome for trial in tally.trials for outcome in trial.outcomes}


def test_killed_commands_run_again_with_equal_results_and_leave_nothing(world: World) -> None:
    tally = Tally()
    tally.add(Kills(world, ("prepare", "run bm25")).kill(3, SEED, limit_s=60))
    assert no_faults(tally)


def test_the_examples_are_valid(world: World, tmp_path: Path) -> None:
    for number, parser in enumerate(dict([*readers(), *texts(), *artifacts(world.pristine, TRAINED)]).values()):
        for example in parser.examples:
            write_files(tmp_path / f"{number}", {**parser.fixed, **example})
            parser.read(tmp_path / f"{number}")


def test_changed_input_is_read_or_refused() -> None:
    tally = Tally()
    tally.add(fuzz(dict([*readers(), *texts()]), 300, SEED))
    assert no_faults(tally)


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
    (trial,) = fuzz({"any": Parser(({"a.json": b"{}"},), read, {})}, 1, SEED)  # type: ignore[arg-type]
    assert trial.outcomes == outcomes
    assert trial.is_fault == bool(list(tmp_path.iterdir())) == (outcomes == ("untyped",))


def test_a_killed_command_and_what_it_left_are_seen(world: World) -> None:
    killed = run_command(("simulate", "new.jsonl"), world.now, kill_at=1)
    assert killed.code == -9
    assert not killed.refused
    assert run_command(("simulate",), world.now).refused
    (world.now / ".answers.jsonl.tmp").write_text("")
    assert leftovers(world.now) == [".answers.jsonl.tmp"]


def test_every_kind_of_damage_has_files(world: World) -> None:
    assert all(damageable(world.pristine, kind) for kind in KINDS)


def test_the_table_counts_each_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    tally.add(
        [
            Trial("a", "1", ("identical",)),
            Trial("a", "2", ("different", "leftovers"), "see"),
            Trial("b", "3", ("refused",)),
        ]
    )
    assert capsys.readouterr().out == "a 2: different, leftovers\nsee\n\n"
    rows = [line.split() for line in tally.table().splitlines()]
    assert rows[1:] == [["a", "2", "1", "0", "0", "1", "0", "0", "1"], ["b", "1", "0", "0", "1", "0", "0", "0", "0"]]
