"""Trials: one disturbed command or damaged file, and what became of it. Seed and number alone determine each."""

from __future__ import annotations

import errno
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from faults.commands import Disturbance, Ended, run_command
from faults.world import VERBS, Usual, World
from helpers.damage import DAMAGES
from helpers.hostile import changed_parquet

Outcome: TypeAlias = Literal["identical", "recomputed", "refused", "different", "untyped", "hung", "leftovers"]
"""The same result without a word, the same result after a message, an error of icalib's own; and the faults: another
result, any other error, no end within the time limit, files that should have been removed."""
FAULTS: tuple[Outcome, ...] = ("different", "untyped", "hung", "leftovers")
_MESSAGES = ("computing this stage again", "writing it again", "scoring it again")
_AREAS = ("runs/.cache", "runs/default", "pools", "other", "calibrator", "scored")
_MIN_FILE_BYTES = 16_384
"""A command's own messages may need so much."""


@dataclass(frozen=True)
class Trial:
    """One trial: how to name it in a report, and what became of it."""

    kind: str
    name: str
    outcomes: tuple[Outcome, ...]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {', '.join(self.outcomes)}\n{self.detail}"

    @property
    def is_fault(self) -> bool:
        return any(outcome in FAULTS for outcome in self.outcomes)


def ended_trial(kind: str, name: str, outcomes: Sequence[Outcome], left: Sequence[str], detail: str) -> Trial:
    """Return a trial with its outcomes; files that were left over are one more."""
    found: list[Outcome] = [*outcomes, "leftovers"] if left else [*outcomes]
    unlike = [outcome for outcome in dict.fromkeys(found) if outcome != "identical"]
    return Trial(kind, name, tuple(unlike) or ("identical",), f"{detail}\n{' '.join(left)}")


EDITED = "edit_parquet"
KINDS = (*DAMAGES, EDITED)
Kind: TypeAlias = Callable[[random.Random, Usual], Disturbance]


def _refuse(error: int) -> Kind:
    return lambda rng, usual: Disturbance(refuse_from=rng.randint(1, usual.num_writes), error=error)


KILLS: Mapping[str, Kind] = {"kill": lambda rng, usual: Disturbance(kill_at=rng.randint(1, usual.num_writes))}
DISKS: Mapping[str, Kind] = {
    "full disk": _refuse(errno.ENOSPC),
    "failing disk": _refuse(errno.EIO),
    "quota": _refuse(errno.EDQUOT),
    "no permission": _refuse(errno.EACCES),
    "read-only disk": lambda rng, usual: Disturbance(refuse_from=1, error=errno.EROFS),
    "largest file": lambda rng, usual: Disturbance(
        largest_file=max(int(usual.num_bytes * rng.random() ** 2), _MIN_FILE_BYTES)
    ),
}
STORES: Mapping[str, Kind] = {
    "flaky store": lambda rng, usual: Disturbance(store_seed=rng.randrange(2**31), store_failing=0.15),
    "store that is gone": lambda rng, usual: Disturbance(store_gone_from=rng.randint(1, 150), patience_s=0.5),
}


def damage_once(world: World, names: Sequence[str], seed: int, number: int) -> Trial:
    """Damage a file and run a verb that may read it: kinds in turn, files and verbs by chance."""
    kind = KINDS[number % len(KINDS)]
    rng = random.Random(f"{seed}/{kind}/{number}")
    name = rng.choice(sorted(names))
    world.usual(name)
    world.renew()
    path = world.now / rng.choice(damageable(world.pristine, ".parquet" if kind == EDITED else ""))
    if kind == EDITED:
        path.write_bytes(changed_parquet(path.read_bytes(), rng) or b"")
    else:
        DAMAGES[kind](path)
    if VERBS[name].writes and rng.random() < 0.5:
        world.remove(VERBS[name].writes)
    ended = run_command(VERBS[name].words, world.now)
    outcomes, left = [_outcome(world, name, ended)], world.left(name, ended)
    detail = f"{path.relative_to(world.now)}, then {name}: {ended.err[-1500:]}"
    return ended_trial(f"damage: {kind}", f"{seed}/{number}", outcomes, left, detail)


def disturb_once(world: World, kinds: Mapping[str, Kind], names: Sequence[str], seed: int, number: int) -> Trial:
    """Disturb a verb that has everything to do, up to three times if it is killed, and let it end: the usual result.

    Kinds and verbs in turn, moments by chance.
    """
    kind, name = sorted(kinds)[number % len(kinds)], sorted(names)[number // len(kinds) % len(names)]
    rng = random.Random(f"{seed}/{kind}/{name}/{number}")
    usual = world.usual(name)
    world.begin(name)
    outcomes: list[Outcome] = []
    left: list[str] = []
    details: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if kinds is KILLS else 1):
        disturbance = kinds[kind](rng, usual)
        ended = run_command(VERBS[name].words, world.now, disturbance)
        details.append(f"{disturbance}, {usual}: {ended.err[-1500:]}")
        if ended.code != -signal.SIGKILL:
            outcomes.append(_outcome(world, name, ended))
            left += world.left(name, ended)
    if kinds is STORES and rng.random() < 0.5:  # another machine runs the verb again
        world.remove("mirror")
    ended = run_command(VERBS[name].words, world.now)
    outcome = _outcome(world, name, ended)
    if outcome == "refused":  # what is whole may be refused: it isn't written again
        outcome = "identical" if world.is_usual(name, ended) else "different"
    details.append(f"again: {ended.err[-1500:]}")
    left += world.left(name, ended)
    return ended_trial(f"{kind}: {name}", f"{seed}/{number}", [*outcomes, outcome], left, "\n".join(details))


def _outcome(world: World, name: str, ended: Ended) -> Outcome:
    if ended.code == -signal.SIGALRM:
        return "hung"
    if ended.is_refused:
        return "refused"
    if ended.code:
        return "untyped"
    if not world.is_usual(name, ended):
        return "different"
    return "recomputed" if any(message in ended.err for message in _MESSAGES) else "identical"


def damageable(world: Path, suffix: str) -> list[Path]:
    """Return the files that are damaged, of all kinds or of one, relative to the world."""
    files = [path.relative_to(world) for area in _AREAS for path in sorted((world / area).rglob("*")) if path.is_file()]
    kept = [path for path in files if not {"tb", ".locks"} & set(path.parts) and path.suffix not in (".lock", ".html")]
    return [path for path in kept if path.name.endswith(suffix)]
