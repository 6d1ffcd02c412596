"""Commands that are killed -9 just before a change of the disk, and run again: equal results, and nothing left over."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from faults.commands import Ended, KillAt, renewed, run_command
from faults.damages import leftovers, outcome_of
from faults.tally import Outcome, Trial
from faults.world import (
    APPLY,
    CALIBRATE,
    COMMON,
    EXPORT,
    OUTCOME,
    PREDICT,
    REPORT,
    RUN,
    SCORE,
    SCORE_PAIRS,
    SWEEP,
    UNTRAINED_OUTCOME,
    Verb,
    World,
    files_result,
    json_result,
    tables_result,
    text_result,
    without,
)  # fmt: skip

from icalib.data.pools import pools_digest


def _pools(ended: Ended, world: Path) -> str:
    files = sorted(path.name for path in (world / "new").iterdir())
    return hashlib.sha256(f"{pools_digest(world / 'new')}{files}".encode()).hexdigest()


_PREPARE = ("prepare", "dialogues.jsonl", "--out", "new", "--candidates", "4", "--executor", "local")
_NO_RUNS = without("runs")
WRITING: Mapping[str, Verb] = {
    "prepare": Verb(_PREPARE, _pools),
    "run bm25": Verb(("run", "bm25", *COMMON), tables_result(*UNTRAINED_OUTCOME), _NO_RUNS),
    "run bert": Verb(RUN, tables_result(*OUTCOME), _NO_RUNS),
    "sweep": Verb(SWEEP, json_result, _NO_RUNS),
    "score": Verb(SCORE, tables_result("scores.parquet"), without("scores.parquet")),
    "score pairs": Verb(SCORE_PAIRS, files_result("scored", "part-*.parquet"), without("scored")),
    "predict": Verb(PREDICT, text_result("answers.jsonl"), without("answers.jsonl")),
    "report": Verb(REPORT, lambda ended, world: f"{(world / 'report.html').is_file()}", without("report.html")),
    "calibrate": Verb(CALIBRATE, text_result("calibrator/calibrator.json"), without("calibrator")),
    "apply": Verb(APPLY, text_result("applied.jsonl"), without("applied.jsonl")),
    "export": Verb(EXPORT, files_result("exported"), without("exported")),
}
"""Verbs that write, each from the state in which it has everything to do."""


@dataclass(frozen=True)
class Undisturbed:
    """What a verb's result is when nothing disturbs it, and how much it does."""

    result: str
    num_writes: int
    num_bytes: int


class Writing:
    """Verbs that write, with their results and numbers of changes when nothing disturbs them."""

    def __init__(self, world: World, names: tuple[str, ...] = tuple(WRITING)) -> None:
        self.world = world
        self.names = sorted(names)
        self.undisturbed: dict[str, Undisturbed] = {}
        for name in self.names:
            self.begin(name)
            before = size_of(world.now)
            ended = world.command(WRITING[name].arguments)
            result = WRITING[name].result(ended, world.now)
            self.undisturbed[name] = Undisturbed(result, ended.num_writes, max(size_of(world.now) - before, 0))

    def begin(self, name: str) -> Path:
        """Return the folder in which a verb has everything to do."""
        world = renewed(self.world.now, self.world.pristine)
        WRITING[name].first(world)
        return world

    def again(self, name: str, limit_s: float) -> tuple[tuple[Outcome, ...], str]:
        """Run a verb after it was disturbed: it must give the result of an undisturbed one, and leave nothing over."""
        world, verb = self.world.now, WRITING[name]
        ended = run_command(verb.arguments, world, limit_s=limit_s)
        outcome = outcome_of(ended, lambda: verb.result(ended, world) == self.undisturbed[name].result)
        if name == "export" and outcome == "refused" and verb.result(ended, world) == self.undisturbed[name].result:
            outcome = "identical"  # what is whole isn't written again
        if outcome == "refused":  # nothing was damaged
            outcome = "different"
        left = [*ended.temporary, *leftovers(world)]
        return (outcome, "leftovers") if left else (outcome,), f"{ended.err[-1500:]}\n{' '.join(left)}"


def kill_once(writing: Writing, seed: int, number: int, limit_s: float) -> Trial:
    """Kill a verb up to three times, and then let it end: verbs in turn, moments by chance."""
    name = writing.names[number % len(writing.names)]
    rng = random.Random(f"{seed}/{name}/{number}")
    num_writes = writing.undisturbed[name].num_writes
    world = writing.begin(name)
    moments = [rng.randint(1, num_writes) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    for moment in moments:
        run_command(WRITING[name].arguments, world, KillAt(moment), limit_s=limit_s)
    outcomes, detail = writing.again(name, limit_s)
    return Trial(
        f"kill: {name}", f"{seed}/{number}", outcomes, f"killed before changes {moments} of {num_writes}: {detail}"
    )


def size_of(folder: Path) -> int:
    """Return the bytes in a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
