"""Commands that are killed -9 just before a change of the disk, and run again: equal results, and nothing left over."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from faults.commands import Ended, renewed, run_command
from faults.damages import leftovers, outcome_of
from faults.tally import Outcome, Trial
from faults.world import COMMON, OUTCOME, RUN, SWEEP, World, json_result, tables_result

from icalib.data.pools import pools_digest


def _pools(ended: Ended, world: Path) -> str:
    files = sorted(path.name for path in (world / "new").iterdir())
    return hashlib.sha256(f"{pools_digest(world / 'new')}{files}".encode()).hexdigest()


COMMANDS: Mapping[str, tuple[tuple[str, ...], Callable[[Ended, Path], str]]] = {
    "prepare": (("prepare", "dialogues.jsonl", "--out", "new", "--candidates", "4", "--executor", "local"), _pools),
    "run bm25": (("run", "bm25", *COMMON, "--json"), json_result),
    "run bert": (RUN, tables_result(*OUTCOME)),
    "sweep": (SWEEP, json_result),
}


class Kills:
    """Commands with their results and numbers of changes when nothing disturbs them."""

    def __init__(self, world: World, names: tuple[str, ...] = tuple(COMMANDS)) -> None:
        self._world = world
        self._fresh = world.now.with_name("fresh")
        shutil.copytree(world.pristine, self._fresh)
        shutil.rmtree(self._fresh / "runs")
        self._expected: dict[str, tuple[str, int]] = {}
        for name in names:
            arguments, result = COMMANDS[name]
            renewed(world.now, self._fresh)
            ended = world.command(arguments)
            self._expected[name] = result(ended, world.now), ended.num_writes

    def kill(self, trials: int, seed: int, limit_s: float) -> Iterator[Trial]:
        """Kill a command and run it again, `trials` times: commands in turn, moments by chance."""
        names = sorted(self._expected)
        for number in range(trials):
            yield self.kill_once(names[number % len(names)], seed, number, limit_s)

    def kill_once(self, name: str, seed: int, number: int, limit_s: float) -> Trial:
        """Kill a command up to three times, and then let it end."""
        rng = random.Random(f"{seed}/{name}/{number}")
        (arguments, result), (expected, num_writes) = COMMANDS[name], self._expected[name]
        world = renewed(self._world.now, self._fresh)
        moments = [rng.randint(1, num_writes) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        for moment in moments:
            run_command(arguments, world, kill_at=moment, limit_s=limit_s)
        ended = run_command(arguments, world, limit_s=limit_s)
        outcome = outcome_of(ended, lambda: result(ended, world) == expected)
        if outcome == "refused":  # nothing was damaged
            outcome = "different"
        left = [*ended.temporary, *leftovers(world)]
        outcomes: tuple[Outcome, ...] = (outcome, "leftovers") if left else (outcome,)
        detail = f"killed before changes {moments} of {num_writes}: {ended.err[-1500:]}\n{' '.join(left)}"
        return Trial(f"kill: {name}", f"{seed}/{number}", outcomes, detail)
